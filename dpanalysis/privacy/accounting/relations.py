"""Neighbouring relations, privacy budgets, and how numbers that bound a cost are rounded."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context
from typing import Final

from ..._validation import check_choice, check_number, check_positive

__tracebackhide__ = True  # makes pytest show the line that calls this package

REPLACE_ONE: Final = "replace_one"
ADD_OR_REMOVE_ONE: Final = "add_or_remove_one"
RELATIONS: Final = (REPLACE_ONE, ADD_OR_REMOVE_ONE)
_LEAST = 1e-300  # of a budget: parts of a smaller one round to 0


def check_relation(relation: str) -> str:
    """Return ``relation`` if it is a neighbouring relation, or raise ValueError listing them."""
    return str(check_choice("relation", relation, RELATIONS))


def directed(value: float, digits: int, rounding: str = ROUND_CEILING) -> str:
    """Return a number to some digits, rounded in one direction, by default up.

    Its digits beyond the twelfth, which floating point may have added, do not count.
    """
    near = Context(prec=digits, rounding=rounding).create_decimal(f"{value:.12g}")
    return f"{float(near):.{digits}g}"


@dataclass(frozen=True)
class Budget:
    """The largest privacy loss that a run may incur.

    Parameters
    ----------
    epsilon : float or None
        Bound of (epsilon, delta)-differential privacy, at least 1e-300. ``None`` only
        for a zCDP budget, which :meth:`zcdp` builds.
    delta : float, default=0.0
        In [1e-300, 1), or 0 for pure differential privacy.
    relation : {"replace_one", "add_or_remove_one"}, default="replace_one"
        Which data sets are neighbours: one record replaced (n is public), or one
        record added or removed (n is private). Averages are divided by a public nominal size,
        ``size=`` of the problem or the estimator, and the guarantee is for two data sets with
        the same nominal size. It defaults to the number of rows, which is then public.
    rho : float, optional
        Bound of rho-zero-concentrated differential privacy, at least 1e-300. It excludes
        ``epsilon`` and ``delta``.

    Examples
    --------
    >>> Budget(epsilon=1.0, delta=1e-6)
    Budget(epsilon=1.0, delta=1e-06, relation='replace_one', rho=None)
    >>> Budget.zcdp(0.1).rho
    0.1
    """

    epsilon: float | None = None
    delta: float = 0.0
    relation: str = REPLACE_ONE
    rho: float | None = None

    def __post_init__(self) -> None:
        check_relation(self.relation)
        if (self.epsilon is None) == (self.rho is None):
            raise ValueError(
                "a budget takes exactly one of epsilon and rho, "
                f"got epsilon={self.epsilon!r} and rho={self.rho!r}"
            )
        name, value = ("rho", self.rho) if self.epsilon is None else ("epsilon", self.epsilon)
        value = check_positive(name, value)
        object.__setattr__(self, name, check_number(name, value, low=_LEAST))
        delta = check_number("delta", self.delta, low=0.0, high=1.0, high_open=True)
        if delta > 0.0:
            check_number("delta above 0", delta, low=_LEAST, high=1.0, high_open=True)
        if self.rho is not None and delta > 0.0:
            raise ValueError(f"a zCDP budget has no delta: delta must be 0, got {delta!r}")
        object.__setattr__(self, "delta", delta)

    @classmethod
    def zcdp(cls, rho: float, relation: str = REPLACE_ONE) -> Budget:
        """Return a budget of ``rho``-zero-concentrated differential privacy, rho in (0, inf).

        A Gaussian release of sensitivity S and standard deviation s costs ``S**2 / (2 s**2)``.
        """
        return cls(epsilon=None, relation=relation, rho=rho)

    @property
    def limit(self) -> float:
        """The number that must not be exceeded: ``rho`` of a zCDP budget, else ``epsilon``."""
        limit = self.epsilon if self.rho is None else self.rho
        return math.nan if limit is None else limit


def part_of(budget: Budget, share: float) -> Budget:
    """Return a share of a budget, at the same delta."""
    if budget.rho is not None:
        return Budget.zcdp(share * budget.rho, budget.relation)
    return Budget(share * budget.limit, budget.delta, budget.relation)


def check_budget(budget: Budget) -> Budget:
    """Return ``budget`` if it is a Budget; raise TypeError otherwise: a number has no relation."""
    if not isinstance(budget, Budget):
        raise TypeError(f"budget must be a Budget, such as Budget(epsilon=1.0), got {budget!r}")
    return budget
