"""Papers, their claims, and the evidence that decides a claim.

A claim holds the printed statement, the statement used here, and a check. The check does not state
a verdict: it yields :class:`Evidence`, recomputed numbers, and the verdict follows from them. A
claim *fails* if this verdict differs from the registered one. A claim whose check needs something
that is not installed is *not checked*: it neither passes nor fails.
"""

from __future__ import annotations

import math
import re
import time
import traceback
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike

from .._validation import check_choice, check_int


@dataclass(frozen=True, kw_only=True)
class Paper:
    """A paper whose claims are checked, with its bibliographic data.

    Parameters
    ----------
    id : str
        Prefix of the ids of its claims: "001" for the claims "001-1", "001-2" and so on.
    title : str
    authors : str, optional
        Surnames, separated by commas.
    year : int, optional
        1600 or later; required if authors are given.
    venue : str, optional
        Journal or conference.
    setting : str, optional
        Assumptions of all its statements: neighbours, sampling, the notion of privacy.
    label : str, optional
        A short name: by default the first author and the year, or the id if there are no authors.

    Raises
    ------
    TypeError, ValueError
        If a field is of the wrong kind, the title is empty, the year is missing, or the id holds
        anything but letters, digits, "_", "." and "-".

    Examples
    --------
    >>> paper = Paper(id="900", authors="Doe, Roe, Poe", year=2025, title="On noise")
    >>> paper.label, paper.cite
    ('Doe 2025', 'Doe et al. (2025)')
    >>> paper.reference
    'Doe, Roe, Poe, *On noise* (2025)'
    """

    id: str
    title: str
    authors: str = ""
    year: int | None = None
    venue: str = ""
    setting: str = ""
    label: str = ""

    def __post_init__(self) -> None:
        for name in ("id", "title", "authors", "venue", "setting", "label"):
            if not isinstance(value := getattr(self, name), str):
                raise TypeError(f"{name} must be a string, got {value!r}")
        if not self.title.strip():
            raise ValueError("title must not be empty")
        if not _PAPER_ID.fullmatch(self.id):
            raise ValueError(f"id must be of letters, digits, '_', '.' and '-', got {self.id!r}")
        if self.surnames and self.year is None:
            raise ValueError(f"year must be given, as authors are: {self.authors!r}")
        if self.year is not None:
            object.__setattr__(self, "year", check_int("year", self.year, low=1600))
        if not self.label:
            short = f"{self.surnames[0]} {self.year}" if self.surnames else self.id
            object.__setattr__(self, "label", short)

    @property
    def surnames(self) -> tuple[str, ...]:
        """The surnames of the authors."""
        return tuple(name.strip() for name in self.authors.split(",") if name.strip())

    @property
    def cite(self) -> str:
        """The citation in running text, "Doe et al. (2025)"; the title if there are no authors."""
        if not self.surnames:
            return self.title
        first, *others = self.surnames
        names = f"{first} et al." if len(others) > 1 else " and ".join(self.surnames)
        return f"{names} ({self.year})"

    @property
    def reference(self) -> str:
        """Authors, title, venue and year, as in a list of references; Markdown."""
        if not self.surnames:
            return self.title
        venue = f", {self.venue}" if self.venue else ""
        return f"{self.authors}, *{self.title}*{venue} ({self.year})"


_PAPER_ID = re.compile(r"\w[\w.-]*")
_PAPERS: dict[str, Paper] = {}


def enter(paper: Paper) -> Paper:
    """Register a paper and return it; registering an equal paper again changes nothing."""
    for other in list(_PAPERS.values()):
        if other.id != paper.id and _same(other.label, paper.label):
            raise ValueError(
                f"label must be new, {paper.label!r} is the paper {other.id!r}: "
                f"give another, such as label='{paper.label}b'"
            )
    known = _PAPERS.setdefault(paper.id, paper)
    if known != paper:
        raise ValueError(f"id must be new, the paper {paper.id!r} is {known.reference}")
    return paper


def ids() -> set[str]:
    """Return the ids of the papers that are registered."""
    return set(_PAPERS)


def forget(ids: Collection[str]) -> None:
    """Remove papers, as if they had not been registered."""
    for id in ids:
        del _PAPERS[id]


def paper_of(id: str) -> Paper:
    """Return the registered paper with this id, or a placeholder whose title is the id."""
    return _PAPERS.get(id) or Paper(id=id, title=id)


def find(text: str, among: Collection[str]) -> Paper:
    """Return the paper that an id, a label, a citation or a first author names."""
    if not isinstance(text, str):
        raise TypeError(f"paper must be a string, got {text!r}")
    papers = [paper_of(id) for id in among]
    names = {paper.id: {paper.label, paper.cite, *paper.surnames[:1]} for paper in papers}
    exact = [paper for paper in papers if paper.id == text]
    found = exact or [p for p in papers if any(_same(name, text) for name in names[p.id])]
    if len(found) == 1:
        return found[0]
    listed = ", ".join(
        paper.id if paper.label == paper.id else f"{paper.id} ({paper.label})"
        for paper in found or papers
    )
    raise ValueError(f"paper must be one of {listed}; got {text!r}")


def _same(one: str, other: str) -> bool:
    return one.strip().casefold() == other.strip().casefold()


# Evidence

_ABOUT = ("printed", "reading", "used", "step", "premise")

# Significant digits shown: more if four would make the value look equal to its bound.
_DIGITS, _MOST_DIGITS = 4, 8


@dataclass(frozen=True)
class Evidence:
    """One comparison, recomputed.

    Attributes
    ----------
    about : {"printed", "reading", "used", "step", "premise"}
        What the comparison tests: the printed statement, one of its readings, the one used here, a
        step of the printed proof, or a hypothesis of the printed statement.
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
        check_choice("about", self.about, _ABOUT)
        check_choice("sense", self.sense, ("<=", ">=", "=="))
        for name in ("value", "bound", "tolerance"):
            object.__setattr__(self, name, float(getattr(self, name)))
        if math.isnan(self.value) or math.isnan(self.bound):
            raise ValueError(f"{self.what}: value or bound is NaN, which decides nothing")
        if not 0.0 <= self.tolerance < math.inf:
            raise ValueError(f"tolerance must be at least 0 and finite, got {self.tolerance!r}")
        check_int("cases", self.cases, low=1)

    @property
    def holds(self) -> bool:
        """Whether the comparison agrees with the statement."""
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
        """Return both numbers, with enough digits to distinguish them if they differ."""
        for digits in range(_DIGITS, (_MOST_DIGITS if self.holds else 17) + 1):
            shown = f"{self.value:.{digits}g}", f"{self.bound:.{digits}g}"
            if shown[0] != shown[1]:
                return shown
        return f"{self.value:.{_DIGITS}g}", f"{self.bound:.{_DIGITS}g}"


def printed(
    what: str,
    value: ArrayLike,
    sense: str,
    bound: float,
    *,
    tolerance: float = 0.0,
    cases: int | None = None,
) -> Evidence:
    """Return evidence about the statement as the paper prints it.

    Parameters
    ----------
    what, sense, bound, tolerance
        Those of :class:`Evidence`.
    value : float or array_like
        Of several values the worst counts: the largest for "<=", the smallest for ">=", the one
        farthest from ``bound`` for "=="; a NaN is worse than any number.
    cases : int, optional
        How many cases were tried; by default the number of values.

    Raises
    ------
    TypeError, ValueError
        If ``value`` is empty, or an argument is of the wrong kind or outside its range.

    Examples
    --------
    >>> print(printed("gap after one step", 0.9801, "<=", 0.9))
    gap after one step: 0.9801 > 0.9
    >>> print(printed("largest gap", [0.2, 0.9801, 0.5], "<=", 0.9))
    largest gap: 0.9801 > 0.9 (3 cases)
    """
    number = 1
    if np.ndim(value):
        found = np.asarray(value, dtype=np.float64).ravel()
        number = found.size
        if not number:
            raise ValueError(f"value must hold at least one number, got {value!r}")
        if sense == "==":
            with np.errstate(invalid="ignore"):  # inf - inf
                distances = np.where(found == bound, 0.0, np.abs(found - bound))
            value = found[np.argmax(distances)]
        else:
            value = found.max() if sense == "<=" else found.min()
    cases = number if cases is None else cases
    return Evidence("printed", what, value, sense, bound, tolerance, cases)  # type: ignore[arg-type]


class _Options(TypedDict, total=False):
    tolerance: float
    cases: int | None


def reading(
    what: str, value: ArrayLike, sense: str, bound: float, **options: Unpack[_Options]
) -> Evidence:
    """Return evidence about the printed statement in one of several readings or settings.

    For what a paper leaves open. The parameters are those of :func:`printed`.

    Examples
    --------
    >>> reading("probability, at the largest budget", 0.99, ">=", 0.9).holds
    True
    """
    return replace(printed(what, value, sense, bound, **options), about="reading")


def used(
    what: str, value: ArrayLike, sense: str, bound: float, **options: Unpack[_Options]
) -> Evidence:
    """Return evidence about the statement that is used instead of the printed one.

    The parameters are those of :func:`printed`.

    Examples
    --------
    >>> used("worst gap / bound", 0.7, "<=", 1.0, cases=300).holds
    True
    """
    return replace(printed(what, value, sense, bound, **options), about="used")


def step(
    what: str, value: ArrayLike, sense: str, bound: float, **options: Unpack[_Options]
) -> Evidence:
    """Return evidence about a step of the printed proof; it never makes a statement false.

    The parameters are those of :func:`printed`.

    Examples
    --------
    >>> print(step("sum_k S_k / S", 10.0, "<=", 1.0))
    sum_k S_k / S: 10 > 1
    """
    return replace(printed(what, value, sense, bound, **options), about="step")


def premise(
    what: str, value: ArrayLike, sense: str, bound: float, **options: Unpack[_Options]
) -> Evidence:
    """Return evidence that a counterexample satisfies a hypothesis of the printed statement.

    For the ``adversary`` of a claim only. The parameters are those of :func:`printed`.

    Examples
    --------
    >>> premise("alpha L", 1.0, "<=", 1.0).holds
    True
    """
    return replace(printed(what, value, sense, bound, **options), about="premise")


@dataclass(frozen=True)
class Effort:
    """The size of the searches of a check; passed to every check.

    Parameters
    ----------
    quick : bool, default=False
        Whether a small number of cases is enough.

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
    """Raised by a check if something that it needs is not installed; the message names it.

    Examples
    --------
    >>> from dpanalysis.audit import Claim
    >>> def check(effort):
    ...     raise NotChecked("needs the extra 'figures'")
    >>> outcome = Claim("999-4", "(4)", "as printed", "", "holds", check).run()
    >>> outcome.verdict, outcome.missing, outcome.failed
    ('not checked', "needs the extra 'figures'", False)
    """


# Claims and their outcomes

# The possible verdicts, from the best for the printed statement to the worst.
VERDICTS = {
    "holds": "as printed; the search found no violation",
    "repaired": "the printed statement holds; a step of its proof does not",
    "sharpened": "the printed statement holds; a sharper one is used",
    "open": "what the paper leaves open decides it: true in one reading or setting, and false in "
    "another",
    "corrected": "the printed statement is violated; the one used here is not",
    "refuted": "the printed statement is violated; nothing replaces it",
}

# What a claim may judge other than the printed paper.
NOT_PRINT = {"code": "public code", "figures": "figures of the authors' repository"}

# Display names of verdicts, where they differ.
SHOWN = {"repaired": "holds, proof repaired"}

Check = Callable[[Effort], Iterable[Evidence]]


@dataclass(frozen=True, eq=False)
class Claim:
    """A statement of a paper with the check that decides it.

    Attributes
    ----------
    id, source, printed, used, verdict, says, hypotheses, changes, adversary, judges
        As for :func:`register`.
    check : callable
        ``check(effort)`` yields :class:`Evidence`; ``effort`` is an :class:`Effort`.
    notes : tuple of (str, str)
        Further remarks for a report: pairs of a heading and a text.

    Raises
    ------
    TypeError, ValueError
        If the id is not of that form, the verdict is unknown, a statement is not a string or the
        check is not callable.

    Examples
    --------
    >>> from dpanalysis.audit import printed, used
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
    check: Check = field(repr=False)
    notes: tuple[tuple[str, str], ...] = ()
    says: str = ""
    hypotheses: str = ""
    changes: str = ""
    adversary: Check | None = field(default=None, repr=False)
    judges: str = "print"

    def __post_init__(self) -> None:
        for name in ("id", "source", "printed", "used", "says", "hypotheses", "changes"):
            if not isinstance(value := getattr(self, name), str):
                raise TypeError(f"{name} must be a string, got {value!r}")
        if not _ID.fullmatch(self.id):
            form = "the paper's id, a hyphen and a number, such as '001-9'"
            raise ValueError(f"id must be {form}, got {self.id!r}")
        check_choice("verdict", self.verdict, tuple(VERDICTS))
        check_choice("judges", self.judges, ("print", *NOT_PRINT))
        if not callable(self.check):
            raise TypeError(f"check must be a function of the effort, got {self.check!r}")
        if not (self.adversary is None or callable(self.adversary)):
            raise TypeError(f"adversary must be a function of the effort, got {self.adversary!r}")

    @property
    def paper(self) -> str:
        """The id of the paper."""
        return self.id.rpartition("-")[0]

    @property
    def remarks(self) -> tuple[tuple[str, str], ...]:
        """Remarks of a report beside statements and evidence: pairs of a heading and a text."""
        pairs = (
            ("The paper says", self.says),
            ("Hypotheses checked", self.hypotheses),
            ("What would change the verdict", self.changes),
        )
        return (*(pair for pair in pairs if pair[1]), *self.notes)

    def run(self, effort: Effort | None = None) -> Outcome:
        """Recompute the evidence; an error in the check is a failure, not an exception."""
        found = _recomputed(self.check, effort or Effort(), ("printed", "used", "reading", "step"))
        evidence, seconds, error, missing = found
        if not evidence and error is None and missing is None:
            error = "the check compares nothing: it must yield printed(...) or used(...)"
        return Outcome(self, evidence, seconds, error, missing)

    def argue(self, effort: Effort | None = None) -> Argument:
        """Run the adversary, which argues for the paper; return whether the correction stands."""
        if self.adversary is None:
            return Argument(self, (), 0.0, "the claim has no adversary")
        found = _recomputed(self.adversary, effort or Effort(), ("printed", "premise"))
        evidence, seconds, error, missing = found
        if error is None and missing is None:
            lost = [str(e) for e in evidence if e.about == "premise" and not e.holds]
            if lost:
                error = f"the counterexample breaks a hypothesis: {'; '.join(lost)}"
            elif all(e.holds for e in evidence if e.about == "printed"):
                error = "the printed statement, read favorably, is not violated"
        return Argument(self, evidence, seconds, error, missing)


def _recomputed(
    check: Check, effort: Effort, about: tuple[str, ...]
) -> tuple[tuple[Evidence, ...], float, str | None, str | None]:
    """Return the evidence of a check, its seconds, its error, and what it misses."""
    start, evidence = time.perf_counter(), []
    error = missing = None
    try:
        for item in check(effort) or ():
            # Not a subclass either: its comparison could differ.
            if type(item) is not Evidence or item.about not in about:
                listed = " or ".join(f"{name}(...)" for name in about[:2])
                raise TypeError(f"a check must yield {listed}, got {item!r}")
            evidence.append(item)
    except NotChecked as reason:
        missing = str(reason) or "the check needs something that is not installed here"
    except KeyboardInterrupt:
        raise
    except BaseException:  # a check that calls sys.exit() must not end the command either
        error = traceback.format_exc()
    return tuple(evidence), time.perf_counter() - start, error, missing


# A paper's id, a hyphen, a number.
_ID = re.compile(r"\w[\w.-]*-[0-9]+")


@dataclass(frozen=True)
class Outcome:
    """What a claim's check found."""

    claim: Claim
    evidence: tuple[Evidence, ...]
    seconds: float
    error: str | None = None  # traceback, or a sentence on a check that compared nothing
    missing: str | None = None  # what the check needs and does not find here

    def __post_init__(self) -> None:
        object.__setattr__(self, "evidence", tuple(self.evidence))

    @property
    def verdict(self) -> str:
        """The verdict of the evidence: see ``VERDICTS``, and :mod:`.report` for three others."""
        if self.missing is not None:
            return "not checked"
        if self.error is not None or not self.evidence:
            return "error"
        of = {about: [e for e in self.evidence if e.about == about] for about in _ABOUT}
        readings = [e.holds for e in of["reading"]]
        if not (of["printed"] or readings) or not all(e.holds for e in of["used"]):
            return "broken"
        if all(e.holds for e in of["printed"]) and (any(readings) or not readings):
            if not all(readings):
                return "open"
            if not all(e.holds for e in of["step"]):
                return "repaired"
            return "sharpened" if of["used"] else "holds"
        return "corrected" if of["used"] else "refuted"

    @property
    def expected(self) -> str:
        """The verdict that the evidence must give."""
        return self.claim.verdict

    @property
    def passed(self) -> bool:
        """Whether the evidence gives the registered verdict."""
        return self.verdict == self.expected

    @property
    def failed(self) -> bool:
        """Whether the evidence gives another verdict; an unchecked claim does not fail."""
        return not self.passed and self.missing is None


class Argument(Outcome):
    """What the adversary of a claim found, a check that argues for the paper."""

    @property
    def verdict(self) -> str:
        """Whether the correction "stands" or "falls": see ``ARGUMENTS`` of :mod:`.report`."""
        if self.missing is not None:
            return "not checked"
        return "stands" if self.error is None else "falls"

    @property
    def expected(self) -> str:
        """What the adversary must find."""
        return "stands"
