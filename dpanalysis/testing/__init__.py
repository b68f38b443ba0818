"""Checks of what you write yourself: whether it keeps the contract that a guarantee rests on.

Each check takes one object, tries it hard, and raises AssertionError with a sentence that says
what is wrong. Nothing here needs a test runner; in a test it is one line. What passes is not
proved: a check is a search, and says so where it looks at random points. The package's own
losses, rules, problems and methods pass the same checks.

================================  ===========================================================
:func:`check_loss`                a loss of one's own: constants, derivatives, kernels
:func:`check_clipping`            a clipping rule: its bound, and that records do not mix
:func:`check_problem`             a problem: sums of records, public facts, curvature
:func:`check_method`              a method: keeps nothing, asks what it planned, sees no data
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
    from .losses import check_loss
    from .mechanisms import check_mechanism
    from .methods import check_method
    from .problems import check_problem
    from .rules import check_clipping

_HOMES = {
    "check_clipping": "rules",
    "check_loss": "losses",
    "check_mechanism": "mechanisms",
    "check_method": "methods",
    "check_problem": "problems",
}

__all__ = ["check_clipping", "check_loss", "check_mechanism", "check_method", "check_problem"]

__getattr__, __dir__ = on_first_use(__name__, _HOMES)
