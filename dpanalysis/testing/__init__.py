"""Checks that a user-defined loss, rule, problem or method satisfies the contract of its interface.

Each check takes one object, searches for violations, and raises AssertionError with a sentence
that names one. It needs no test runner. A check is a search, not a proof. The package's own losses,
rules, problems and methods pass the same checks.

================================  ===========================================================
:func:`check_loss`                a user's loss: constants, derivatives, kernels
:func:`check_clipping`            a clipping rule: its bound, and that records do not mix
:func:`check_problem`             a problem: sums of records, public facts, curvature
:func:`check_method`              a method: keeps no state, queries as planned, sees no data
:func:`check_mechanism`           any mechanism: a search for a violation of its epsilon
================================  ===========================================================

Examples
--------
>>> import dpanalysis as dpa
>>> dpa.testing.check_method(dpa.methods.GradientDescent(0.5, 3))
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import on_first_use

if TYPE_CHECKING:
    from .formulas import check_clipping, check_loss
    from .methods import check_mechanism, check_method
    from .problems import check_problem

__all__ = ["check_clipping", "check_loss", "check_mechanism", "check_method", "check_problem"]

__getattr__, __dir__ = on_first_use(
    __name__,
    {
        "formulas": "check_clipping check_loss",
        "methods": "check_mechanism check_method",
        "problems": "check_problem",
    },
)
