"""The evidence that a check yields: numbers recomputed now, and what they are compared with."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .._validation import check_choice, check_int

__all__ = ["Effort", "Evidence", "NotChecked", "printed", "used"]

# How many digits of a number are shown: more where fewer would make it look like its bound.
_DIGITS, _MOST_DIGITS = 4, 8


@dataclass(frozen=True)
class Evidence:
    """One comparison, recomputed.

    Attributes
    ----------
    about : {"printed", "used"}
        Which statement the comparison tests.
    what : str
        What ``value`` is and where it was found.
    value : float
        The quantity that the statement bounds. A search gives the worst case that it found.
    sense : {"<=", ">=", "=="}
        What the statement says about ``value`` and ``bound``.
    bound : float
        The number with which the statement compares the value.
    tolerance : float, default=0
        Absolute error of the computation of value and bound, at least 0 and finite. A violation
        that is not larger than this stays hidden, so it must not exceed that error.
    cases : int, default=1
        How many cases were tried.

    Raises
    ------
    TypeError, ValueError
        If a field is of the wrong kind or outside its range.

    Examples
    --------
    >>> Evidence("printed", "first gap / gap at the start", 0.9801, "<=", 0.9).holds
    False
    """

    about: str
    what: str
    value: float
    sense: str
    bound: float
    tolerance: float = 0.0
    cases: int = 1

    def __post_init__(self) -> None:
        check_choice("about", self.about, ("printed", "used"))
        check_choice("sense", self.sense, ("<=", ">=", "=="))
        for name in ("value", "bound", "tolerance"):
            object.__setattr__(self, name, float(getattr(self, name)))
        if not 0.0 <= self.tolerance < math.inf:
            raise ValueError(f"tolerance must be at least 0 and finite, got {self.tolerance!r}")
        check_int("cases", self.cases, low=1)

    @property
    def holds(self) -> bool:
        """Whether the comparison agrees with the statement; one with a NaN never does."""
        if self.sense == "<=":
            return self.value <= self.bound + self.tolerance
        if self.sense == ">=":
            return self.value >= self.bound - self.tolerance
        return self.value == self.bound or abs(self.value - self.bound) <= self.tolerance

    def __str__(self) -> str:
        sense = self.sense
        if self.sense == "==":
            sense = "=" if self.holds else "!="
        elif not self.holds:
            sense = {"<=": ">", ">=": "<"}[self.sense]
        searched = f" ({self.cases:,} cases)" if self.cases > 1 else ""
        value, bound = self._shown()
        return f"{self.what}: {value} {sense} {bound}{searched}"

    def _shown(self) -> tuple[str, str]:
        """Return both numbers, with digits enough to tell them apart if they differ."""
        for digits in range(_DIGITS, (_MOST_DIGITS if self.holds else 17) + 1):
            shown = f"{self.value:.{digits}g}", f"{self.bound:.{digits}g}"
            if shown[0] != shown[1]:
                return shown
        return f"{self.value:.{_DIGITS}g}", f"{self.bound:.{_DIGITS}g}"


def printed(
    what: str, value: float, sense: str, bound: float, *, tolerance: float = 0.0, cases: int = 1
) -> Evidence:
    """Return evidence about the statement as the paper prints it.

    The parameters are those of :class:`Evidence`.

    Examples
    --------
    >>> print(printed("gap after one step", 0.9801, "<=", 0.9))
    gap after one step: 0.9801 > 0.9
    """
    return Evidence("printed", what, value, sense, bound, tolerance, cases)


def used(
    what: str, value: float, sense: str, bound: float, *, tolerance: float = 0.0, cases: int = 1
) -> Evidence:
    """Return evidence about the statement that is used in the place of the printed one.

    The parameters are those of :class:`Evidence`.

    Examples
    --------
    >>> used("worst gap / bound", 0.7, "<=", 1.0, cases=300).holds
    True
    """
    return Evidence("used", what, value, sense, bound, tolerance, cases)


@dataclass(frozen=True)
class Effort:
    """How hard a check searches; every check gets one.

    Parameters
    ----------
    quick : bool, default=False
        Whether a small number of cases is enough.

    Raises
    ------
    TypeError
        If ``quick`` is neither True nor False.

    Examples
    --------
    >>> Effort(quick=True).cases(50, 2000), Effort(quick=False).cases(50, 2000)
    (50, 2000)

    Two calls draw the same numbers, so that no claim depends on what was checked before it:

    >>> bool(Effort().random().normal() == Effort().random().normal())
    True
    """

    quick: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.quick, (bool, np.bool_)):
            raise TypeError(f"quick must be True or False, got {self.quick!r}")

    def cases(self, quick: int, full: int) -> int:
        """Return the number of cases to try: the first of the two if the search is quick."""
        return quick if self.quick else full

    def random(self, seed: int = 0) -> np.random.Generator:
        """Return a new generator that draws the same numbers on every run."""
        return np.random.default_rng(seed)


class NotChecked(Exception):
    """Raised by a check that needs something that is not installed here; the message says what.

    Examples
    --------
    >>> from dpanalysis.audit import Claim
    >>> def check(effort):
    ...     raise NotChecked("needs the extra 'figures'")
    >>> outcome = Claim("999-4", "(4)", "as printed", "", "holds", check).run()
    >>> outcome.verdict, outcome.missing, outcome.failed
    ('not checked', "needs the extra 'figures'", False)
    """
