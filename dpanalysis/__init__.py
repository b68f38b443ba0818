"""Differentially private first-order optimization that a researcher can trust.

A *problem* is minimized by a *method*, which reaches the data through a private oracle only; a
ledger records what the oracle released, and :mod:`dpanalysis.theory` bounds the result in advance.

An argument outside the range in its description raises ValueError, one of a wrong type TypeError;
the message names the argument. Imports happen on first use, so ``import dpanalysis`` is cheap.

Examples
--------
>>> import dpanalysis as dpa
>>> dpa.privacy.laplace_epsilon(sensitivity=40.0, scale=0.4, n=1000)
0.1
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._lazy import on_first_use

if TYPE_CHECKING:
    from . import (
        audit,
        clipping,
        datasets,
        linear_model,
        losses,
        methods,
        plotting,
        preprocessing,
        privacy,
        problems,
        regularizers,
        testing,
        theory,
        tuning,
    )
    from .errors import CertificateNotFound, IncompatibleAccounting, PrivacyBudgetExceeded
    from .experiments.result import Result
    from .experiments.run import minimize
    from .privacy.accounting.relations import Budget
    from .privacy.accounting.runs import accounting
    from .privacy.accounting.sampling import (
        BallsInBins,
        Full,
        Poisson,
        RandomAllocation,
        Shuffle,
        WithoutReplacement,
        WithReplacement,
    )
    from .problems.base import Problem
    from .problems.erm import ERM
    from .problems.quadratic import Quadratic
    from .problems.row_bound import RowBound

__version__ = "0.1.0"

# Module -> the public names that it defines.
_NAMES = {
    "errors": "CertificateNotFound IncompatibleAccounting PrivacyBudgetExceeded",
    "experiments.result": "Result",
    "experiments.run": "minimize",
    "privacy.accounting.relations": "Budget",
    "privacy.accounting.runs": "accounting",
    "privacy.accounting.sampling": "BallsInBins Full Poisson RandomAllocation Shuffle "
    "WithReplacement WithoutReplacement",
    "problems.base": "Problem",
    "problems.erm": "ERM",
    "problems.quadratic": "Quadratic",
    "problems.row_bound": "RowBound",
}
_MODULES = frozenset(
    """
    audit clipping datasets errors experiments kernels linear_model losses methods papers plotting
    preprocessing privacy problems regularizers testing theory tuning
    """.split()  # noqa: SIM905
)

__all__ = [
    "ERM",
    "BallsInBins",
    "Budget",
    "CertificateNotFound",
    "Full",
    "IncompatibleAccounting",
    "Poisson",
    "PrivacyBudgetExceeded",
    "Problem",
    "Quadratic",
    "RandomAllocation",
    "Result",
    "RowBound",
    "Shuffle",
    "WithReplacement",
    "WithoutReplacement",
    "accounting",
    "audit",
    "clipping",
    "datasets",
    "linear_model",
    "losses",
    "methods",
    "minimize",
    "plotting",
    "preprocessing",
    "privacy",
    "problems",
    "regularizers",
    "testing",
    "theory",
    "tuning",
]

__getattr__, __dir__ = on_first_use(__name__, _NAMES, _MODULES)
