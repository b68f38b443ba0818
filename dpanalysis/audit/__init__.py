"""Claims checked by machine, and a verifier for anybody's mechanism.

Exact divergences and laws, black-box lower bounds on epsilon, Hypothesis strategies, broken
mechanisms as negative controls, and the registry of what the papers claim. A paper of your own
joins them from a module of your own: see :func:`register`.

Examples
--------
>>> from dpanalysis import audit
>>> audit.hockey_stick([0.75, 0.25], [0.25, 0.75], epsilon=0.0)
0.5
>>> audit.claims("Kuru 2022", ids=["001-10"], quick=True)[0].verdict
'corrected'
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import on_first_use

if TYPE_CHECKING:
    from . import attack, mutants, strategies
    from ._sensitivity import sensitivity
    from .assertions import assert_private
    from .bibliography import Paper
    from .canaries import CanaryVerdict, verify_with_canaries
    from .claim import Claim
    from .empirical import (
        GaussianPrivacy,
        GaussianVerdict,
        Verdict,
        verify_gaussian,
        verify_privacy,
    )
    from .evidence import Effort, Evidence, NotChecked, printed, used
    from .exact import Density, hockey_stick, privacy_profile, renyi_divergence
    from .laws import (
        above_threshold_distribution,
        report_noisy_min_distribution,
        subsampled_gaussian,
        subsampled_laplace,
    )
    from .registry import claims, register
    from .report import Table

# Public name -> module that defines it. Everything is imported on first use: the
# strategies need Hypothesis, the claims need most of the package.
_HOMES = {
    "CanaryVerdict": "canaries",
    "Claim": "claim",
    "Density": "exact",
    "Effort": "evidence",
    "Evidence": "evidence",
    "GaussianPrivacy": "empirical",
    "GaussianVerdict": "empirical",
    "NotChecked": "evidence",
    "Paper": "bibliography",
    "Table": "report",
    "Verdict": "empirical",
    "above_threshold_distribution": "laws",
    "assert_private": "assertions",
    "claims": "registry",
    "hockey_stick": "exact",
    "printed": "evidence",
    "privacy_profile": "exact",
    "register": "registry",
    "renyi_divergence": "exact",
    "report_noisy_min_distribution": "laws",
    "sensitivity": "_sensitivity",
    "subsampled_gaussian": "laws",
    "subsampled_laplace": "laws",
    "used": "evidence",
    "verify_gaussian": "empirical",
    "verify_privacy": "empirical",
    "verify_with_canaries": "canaries",
}
_MODULES = frozenset({"attack", "mutants", "strategies"})

__all__ = [
    "CanaryVerdict",
    "Claim",
    "Density",
    "Effort",
    "Evidence",
    "GaussianPrivacy",
    "GaussianVerdict",
    "NotChecked",
    "Paper",
    "Table",
    "Verdict",
    "above_threshold_distribution",
    "assert_private",
    "attack",
    "claims",
    "hockey_stick",
    "mutants",
    "printed",
    "privacy_profile",
    "register",
    "renyi_divergence",
    "report_noisy_min_distribution",
    "sensitivity",
    "strategies",
    "subsampled_gaussian",
    "subsampled_laplace",
    "used",
    "verify_gaussian",
    "verify_privacy",
    "verify_with_canaries",
]

__getattr__, __dir__ = on_first_use(__name__, _HOMES, _MODULES)
