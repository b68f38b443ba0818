"""The claims of all papers: where they are registered, found and checked."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from .._validation import check_choice, check_int
from .evidence import VERDICTS, Claim, Effort, Evidence, NotChecked, Outcome, Table, printed, used

__all__ = [
    "PAPERS",
    "VERDICTS",
    "Claim",
    "Effort",
    "Evidence",
    "NotChecked",
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
        ("per_sample_clipping", "per_sample_clipping_privacy"),
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
        (
            "line_search",
            "line_search_batch",
            "line_search_shared",
            "line_search_filter",
            "line_search_query",
        ),
    ),
    "003": Paper(
        "*Differentially private optimization for smooth non-convex ERM*",
        "Replace-one neighbours; zCDP of full batches, Renyi without replacement.",
        ("second_order", "second_order_steps", "second_order_bounds", "second_order_data"),
    ),
    "004": Paper(
        "*Improved convergence of differential private SGD with gradient clipping*",
        "Add-or-remove-one neighbours, Poisson sampling.",
        ("value_clipping", "value_clipping_proofs"),
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
            "bounds_sparse_vector",
            "bounds_replacement",
        ),
    ),
}

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
        for name, *result in Parallel(jobs, return_as="generator")(tasks):
            found[name] = result
            bar.update()
    return Table(Outcome(claim, *found[claim.id]) for claim in chosen)


def _run(paper: str, id: str, effort: Effort) -> tuple[Any, ...]:
    """Return the id and what an :class:`Outcome` has beside its claim."""
    claim = next(claim for claim in load(paper) if claim.id == id)
    outcome = claim.run(effort)
    return id, outcome.evidence, outcome.seconds, outcome.error, outcome.missing
