"""Claims of papers as objects that can fail, and the evidence that decides them.

A claim carries what a paper prints, what is used here, and a check. The check does not state a
verdict: it yields :class:`Evidence`, numbers recomputed now, and the verdict follows from them.
A claim *fails* when that verdict is not the one it was registered with. One whose check needs
what is not installed here is *not checked*, which is neither.
"""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from .._validation import check_choice, check_int

__all__ = [
    "VERDICTS",
    "Claim",
    "Effort",
    "Evidence",
    "NotChecked",
    "Outcome",
    "Table",
    "printed",
    "used",
]

# What the evidence can say, from the best for the printed statement to the worst.
VERDICTS = {
    "holds": "as printed; the search found no violation",
    "sharpened": "the printed statement holds; a sharper one is used",
    "corrected": "the printed statement is violated; the one used here is not",
    "refuted": "the printed statement is violated; nothing takes its place",
}


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
        The quantity that the statement bounds; of a search, the worst case found.
    sense : {"<=", ">=", "=="}
        What the statement says about ``value`` and ``bound``.
    bound : float
        What the statement says the value is compared with.
    tolerance : float, default=0
        Absolute error of the computation of either; it never hides a violation of that size.
    cases : int, default=1
        How many cases were tried.

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
        if self.tolerance < 0.0:
            raise ValueError(f"tolerance must be at least 0, got {self.tolerance!r}")
        check_int("cases", self.cases, low=1)

    @property
    def holds(self) -> bool:
        """Whether the statement survives this comparison; a NaN never does."""
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
    """Return evidence about the statement as printed.

    Examples
    --------
    >>> print(printed("gap after one step", 0.9801, "<=", 0.9))
    gap after one step: 0.9801 > 0.9
    """
    return Evidence("printed", what, value, sense, bound, tolerance, cases)


def used(
    what: str, value: float, sense: str, bound: float, *, tolerance: float = 0.0, cases: int = 1
) -> Evidence:
    """Return evidence about the statement as used here.

    Examples
    --------
    >>> used("worst gap / bound", 0.7, "<=", 1.0, cases=300).holds
    True
    """
    return Evidence("used", what, value, sense, bound, tolerance, cases)


@dataclass(frozen=True)
class Effort:
    """How hard a check searches.

    Examples
    --------
    >>> Effort(quick=True).cases(50, 2000), Effort(quick=False).cases(50, 2000)
    (50, 2000)
    """

    quick: bool = False

    def cases(self, quick: int, full: int) -> int:
        """Return the number of cases to try."""
        return quick if self.quick else full

    def random(self, seed: int = 0) -> np.random.Generator:
        """Return the check's own generator: the same cases on every run."""
        return np.random.default_rng(seed)


class NotChecked(Exception):
    """Raised by a check that needs what is not installed here; the message says what.

    Examples
    --------
    >>> def check(effort):
    ...     raise NotChecked("needs the extra 'figures'")
    >>> outcome = Claim("999-4", "(4)", "as printed", "", "holds", check).run()
    >>> outcome.verdict, outcome.missing, outcome.failed
    ('not checked', "needs the extra 'figures'", False)
    """


@dataclass(frozen=True, eq=False)
class Claim:
    """A statement of a paper with the check that decides it.

    Attributes
    ----------
    id : str
        Paper and number, as in ERRATA.md.
    source : str
        Theorem, equation or section.
    printed, used : str
        The statement as printed, and as used here ("" where they are the same).
    verdict : {"holds", "sharpened", "corrected", "refuted"}
        What the evidence must say; otherwise the claim fails.
    check : callable
        ``check(effort)`` yields :class:`Evidence`.

    Examples
    --------
    >>> def check(effort):
    ...     yield printed("1 + 1", 1 + 1, "==", 3)
    ...     yield used("1 + 1", 1 + 1, "==", 2)
    >>> outcome = Claim("999-1", "(1)", "1 + 1 = 3", "1 + 1 = 2", "corrected", check).run()
    >>> outcome.verdict, outcome.passed
    ('corrected', True)
    """

    id: str
    source: str
    printed: str
    used: str
    verdict: str
    check: Callable[[Effort], Iterable[Evidence]] = field(repr=False)

    def __post_init__(self) -> None:
        check_choice("verdict", self.verdict, tuple(VERDICTS))

    @property
    def paper(self) -> str:
        """The paper's number."""
        return self.id.rpartition("-")[0]

    def run(self, effort: Effort | None = None) -> Outcome:
        """Recompute the evidence; an error in the check is a failure, not an exception."""
        start = time.perf_counter()
        evidence: list[Evidence] = []
        error = missing = None
        try:
            evidence.extend(self.check(effort or Effort()))
        except NotChecked as reason:
            missing = str(reason)
        except Exception:
            error = traceback.format_exc()
        return Outcome(self, tuple(evidence), time.perf_counter() - start, error, missing)


@dataclass(frozen=True)
class Outcome:
    """What a claim's check found.

    Attributes
    ----------
    claim : Claim
    evidence : tuple of Evidence
    seconds : float
    error : str or None
        Traceback of a check that broke.
    missing : str or None
        What the check needs and does not find here.

    Examples
    --------
    >>> claim = Claim("999-2", "(2)", "2 < 1", "", "holds", lambda effort: [])
    >>> Outcome(claim, (printed("2", 2, "<=", 1),), 0.0).passed
    False
    """

    claim: Claim
    evidence: tuple[Evidence, ...]
    seconds: float
    error: str | None = None
    missing: str | None = None

    @property
    def verdict(self) -> str:
        """What the evidence says: a verdict of ``VERDICTS``, "broken" or "not checked".

        "broken" stands for a check that raised, one that compared nothing, and one in which
        the statement used here is violated.
        """
        if self.missing:
            return "not checked"
        of = {about: [e for e in self.evidence if e.about == about] for about in _ABOUT}
        printed_holds = all(e.holds for e in of["printed"])
        if self.error or not self.evidence or not all(e.holds for e in of["used"]):
            return "broken"
        if not of["printed"]:
            return "broken"
        if printed_holds:
            return "sharpened" if of["used"] else "holds"
        return "corrected" if of["used"] else "refuted"

    @property
    def passed(self) -> bool:
        """Whether the evidence says what the claim was registered with."""
        return self.verdict == self.claim.verdict

    @property
    def failed(self) -> bool:
        """Whether the evidence says something else, which without a check it does not."""
        return not self.passed and not self.missing


_ABOUT = ("printed", "used")


class Table(Sequence[Outcome]):
    """Outcomes of many claims; prints as a table.

    Examples
    --------
    >>> claim = Claim("999-3", "(3)", "0 <= 1", "", "holds", lambda e: [printed("0", 0, "<=", 1)])
    >>> table = Table([claim.run()])
    >>> len(table), table.failed
    (1, [])
    """

    def __init__(self, outcomes: Iterable[Outcome]) -> None:
        self._outcomes = tuple(outcomes)

    def __len__(self) -> int:
        return len(self._outcomes)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        found = self._outcomes[index]
        return Table(found) if isinstance(index, slice) else found

    def __iter__(self) -> Iterator[Outcome]:
        return iter(self._outcomes)

    @property
    def failed(self) -> list[Outcome]:
        """The claims whose evidence says something else than they were registered with."""
        return [outcome for outcome in self if outcome.failed]

    @property
    def seconds(self) -> float:
        """Time of all checks."""
        return math.fsum(outcome.seconds for outcome in self)

    def __str__(self) -> str:
        from .report import to_text

        return to_text(self)

    def _repr_html_(self) -> str:
        from .report import to_html

        return to_html(self, page=False)
