"""The claims of the papers as objects that can fail.

A claim carries what a paper prints, what is used here, and a check. The check does not state a
verdict: it yields :class:`Evidence`, numbers recomputed now, and the verdict follows from them.
A claim *fails* when that verdict is not the one it was registered with.
"""

from __future__ import annotations

import math
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from .._validation import check_choice, check_int

__all__ = [
    "PAPERS",
    "VERDICTS",
    "Claim",
    "Effort",
    "Evidence",
    "Outcome",
    "Paper",
    "Table",
    "claims",
    "load",
    "printed",
    "register",
    "used",
]


class Paper(NamedTuple):
    """A paper: its title, what its statements assume, and the modules that register its claims."""

    title: str
    setting: str
    modules: tuple[str, ...]


PAPERS = {
    "000": Paper(
        "Xia, Shen, Yao, Fu et al., *Differentially private learning with per-sample adaptive "
        "clipping*, AAAI 2023",
        "Add-or-remove-one neighbours, Poisson sampling.",
        ("per_sample_clipping",),
    ),
    "001": Paper(
        "Kuru, Birbil, Gürbüzbalaban, Yıldırım, *Differentially private accelerated optimization "
        "algorithms*, SIAM J. Optim. 32 (2022)",
        "Replace-one neighbours, sampling m of n without replacement, pure epsilon.",
        (
            "accelerated",
            "accelerated_budget",
            "accelerated_heavy_ball",
            "accelerated_noise",
            "accelerated_privacy",
        ),
    ),
    "002": Paper(
        "Chen, Lee, *Stochastic adaptive line search for differentially private optimization*",
        "Add-or-remove-one neighbours, Poisson sampling.",
        ("line_search", "line_search_batch", "line_search_filter", "line_search_query"),
    ),
    "003": Paper(
        "*Differentially private optimization for smooth non-convex ERM*",
        "Replace-one neighbours; zCDP of full batches, Renyi without replacement.",
        ("second_order", "second_order_steps", "second_order_bounds"),
    ),
    "004": Paper(
        "*Improved convergence of differential private SGD with gradient clipping*",
        "Add-or-remove-one neighbours, Poisson sampling.",
        ("value_clipping",),
    ),
    "bounds": Paper(
        "The bounds that `dpanalysis.privacy` relies on",
        "Attacked by a search for their worst case; the evidence is the smallest bound / exact "
        "value found: at least 1, and 1 where the bound is tight.",
        (
            "bounds",
            "bounds_amplification",
            "bounds_sampled",
            "bounds_composed",
            "bounds_adaptive",
            "bounds_replacement",
        ),
    ),
}

# What the evidence can say, from the best for the printed statement to the worst.
VERDICTS = {
    "holds": "as printed; the search found no violation",
    "sharpened": "the printed statement holds; a sharper one is used",
    "corrected": "the printed statement is violated; the one used here is not",
    "refuted": "the printed statement is violated; nothing takes its place",
}


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
        return f"{self.what}: {self.value:.4g} {sense} {self.bound:.4g}{searched}"


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
        error = None
        try:
            evidence.extend(self.check(effort or Effort()))
        except Exception:
            error = traceback.format_exc()
        return Outcome(self, tuple(evidence), time.perf_counter() - start, error)


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

    @property
    def verdict(self) -> str:
        """What the evidence says: a verdict of ``VERDICTS``, or "broken".

        "broken" stands for a check that raised, one that compared nothing, and one in which
        the statement used here is violated.
        """
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
        return [outcome for outcome in self if not outcome.passed]

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


_CLAIMS: dict[str, Claim] = {}


def register(
    id: str, source: str, printed: str, used: str = "", *, verdict: str
) -> Callable[[Callable[[Effort], Iterable[Evidence]]], Claim]:
    """Return a decorator that makes a check the claim ``id``.

    Parameters
    ----------
    id : str
        Paper and number.
    source, printed, used, verdict : str
        As in :class:`Claim`; Markdown.

    Raises
    ------
    ValueError
        If the id is taken, its paper is not listed in ``PAPERS`` or the verdict is unknown.
    """
    if id in _CLAIMS:
        raise ValueError(f"id must be new, {id!r} is registered already")
    check_choice("paper", id.rpartition("-")[0], tuple(PAPERS))

    def decorator(check: Callable[[Effort], Iterable[Evidence]]) -> Claim:
        claim = Claim(id, source, printed, used, verdict, check)
        _CLAIMS[id] = claim
        return claim

    return decorator


def load(paper: str | None = None) -> list[Claim]:
    """Return the registered claims of one paper, or of all, in the order of their numbers.

    Raises
    ------
    ValueError
        If the paper is unknown.

    Examples
    --------
    >>> load("001")[0].id
    '001-1'
    """
    import importlib

    wanted = tuple(PAPERS) if paper is None else (check_choice("paper", paper, tuple(PAPERS)),)
    for name in wanted:
        for module in PAPERS[name].modules:
            importlib.import_module(f"{__package__}.papers.{module}")
    found = [claim for claim in _CLAIMS.values() if claim.paper in wanted]
    return sorted(found, key=_order)


def _order(claim: Claim) -> tuple[int, int, str]:
    paper, _, number = claim.id.rpartition("-")
    return list(PAPERS).index(paper), int(number) if number.isdigit() else 0, number


def claims(
    paper: str | None = None,
    *,
    ids: Sequence[str] | None = None,
    quick: bool = False,
    jobs: int = 1,
    progress: bool = False,
) -> Table:
    """Check the claims now.

    Parameters
    ----------
    paper : str, optional
        Only this one, e.g. "002"; all of them by default.
    ids : sequence of str, optional
        Only these, e.g. ``["001-9"]``.
    quick : bool, default=False
        Search fewer cases: under a minute for all papers, instead of a few.
    jobs : int, default=1
        Processes at once; -1 for one a core. The evidence does not depend on it.
    progress : bool, default=False
        Show a progress bar.

    Returns
    -------
    Table
        In the order of the numbers.

    Raises
    ------
    TypeError, ValueError
        If the paper or an id is unknown, or an argument is of the wrong kind.

    Examples
    --------
    >>> from dpanalysis import audit
    >>> table = audit.claims(ids=["001-10"], quick=True)
    >>> table[0].verdict
    'corrected'
    """
    chosen = load(paper)
    if not isinstance(quick, (bool, np.bool_)):
        raise TypeError(f"quick must be True or False, got {quick!r}")
    if ids is not None:
        if isinstance(ids, str):
            raise TypeError(f"ids must be a sequence such as [{ids!r}], got {ids!r}")
        known = {claim.id: claim for claim in chosen}
        for name in ids:
            check_choice("ids", name, tuple(known))
        chosen = [claim for claim in chosen if claim.id in set(ids)]
    if jobs != -1:
        check_int("jobs", jobs, low=1)
    effort = Effort(quick)
    from joblib import Parallel, delayed
    from tqdm import tqdm

    # Workers load a claim by its id: a check is a function of a module, found again there.
    tasks = (delayed(_run)(claim.paper, claim.id, effort) for claim in chosen)
    found = {}
    bar = tqdm(total=len(chosen), desc="claims", unit="claim", disable=not progress)
    with bar, warnings.catch_warnings():
        # A worker that has grown is replaced between two claims, which loses nothing.
        warnings.filterwarnings("ignore", message="A worker stopped while some jobs")
        for name, evidence, seconds, error in Parallel(jobs, return_as="generator")(tasks):
            found[name] = (evidence, seconds, error)
            bar.update()
    return Table(Outcome(claim, *found[claim.id]) for claim in chosen)


def _run(
    paper: str, id: str, effort: Effort
) -> tuple[str, tuple[Evidence, ...], float, str | None]:
    claim = next(claim for claim in load(paper) if claim.id == id)
    outcome = claim.run(effort)
    return id, outcome.evidence, outcome.seconds, outcome.error
