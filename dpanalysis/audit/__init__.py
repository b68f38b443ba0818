"""Verification of privacy: tests of a mechanism's claim, exact divergences, claims of papers.

Black-box lower bounds on epsilon and mu, exact divergences and laws, Hypothesis strategies, and
the registry of papers' claims, to which other modules can add their own: see :func:`register`.

Examples
--------
>>> from dpanalysis import audit
>>> audit.hockey_stick([0.75, 0.25], [0.25, 0.75], epsilon=0.0)
0.5
>>> audit.claims("Kuru 2022", ids=["001-10"]).run(quick=True)[0].verdict
'corrected'
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import on_first_use

if TYPE_CHECKING:
    from . import attack, strategies
    from .assertions import assert_private, sensitivity
    from .canaries import CanaryVerdict, verify_with_canaries
    from .exact import Density, hockey_stick, privacy_profile, renyi_divergence
    from .gaussian import GaussianVerdict, verify_gaussian
    from .laws import (
        above_threshold_distribution,
        report_noisy_min_distribution,
        subsampled_gaussian,
        subsampled_laplace,
    )
    from .recording import Finding, Recording, record
    from .verify import GaussianPrivacy, Verdict, verify_privacy

# Module -> its public names, imported on first use: the strategies need Hypothesis, the claims most
# of the package. Papers depend on this package, not the reverse.
_NAMES = {
    "assertions": "assert_private sensitivity",
    "canaries": "CanaryVerdict verify_with_canaries",
    "exact": "Density hockey_stick privacy_profile renyi_divergence",
    "gaussian": "GaussianVerdict verify_gaussian",
    "laws": "above_threshold_distribution report_noisy_min_distribution "
    "subsampled_gaussian subsampled_laplace",
    "recording": "Finding Recording record",
    "verify": "GaussianPrivacy Verdict verify_privacy",
    ".papers.claim": "Claim Effort Evidence NotChecked Paper premise printed reading step used",
    ".papers.registry": "Claims claims register",
    ".papers.report": "Table",
}
_MODULES = frozenset({"attack", "strategies"})

__all__ = [
    "CanaryVerdict",
    "Claim",
    "Claims",
    "Density",
    "Effort",
    "Evidence",
    "Finding",
    "GaussianPrivacy",
    "GaussianVerdict",
    "NotChecked",
    "Paper",
    "Recording",
    "Table",
    "Verdict",
    "above_threshold_distribution",
    "assert_private",
    "attack",
    "claims",
    "hockey_stick",
    "premise",
    "printed",
    "privacy_profile",
    "reading",
    "record",
    "register",
    "renyi_divergence",
    "report_noisy_min_distribution",
    "sensitivity",
    "step",
    "strategies",
    "subsampled_gaussian",
    "subsampled_laplace",
    "used",
    "verify_gaussian",
    "verify_privacy",
    "verify_with_canaries",
]

__getattr__, __dir__ = on_first_use(__name__, _NAMES, _MODULES)
