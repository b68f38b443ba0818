"""The registry of claims: register, find and check them.

The modules of :mod:`dpanalysis.papers` register the claims of this package. To check another
paper, write a module like them, anywhere, that registers a :class:`Paper` and its claims.
"""

from __future__ import annotations

import os
import pkgutil
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module, invalidate_caches
from types import ModuleType
from typing import Any, overload

from .._validation import check_choice, check_int
from . import claim as bibliography
from .claim import Argument, Check, Claim, Effort, Outcome, Paper
from .report import ARGUMENTS, Table, listed_html, listed_text

Modules = str | ModuleType | Sequence[str | ModuleType]

_CLAIMS: dict[str, Claim] = {}

# Verdicts against a paper: in this package they require ``says`` and ``changes``.
AGAINST = ("repaired", "corrected", "refuted")


@overload
def register(id: Paper) -> Paper: ...


@overload
def register(
    id: str,
    source: str,
    printed: str,
    used: str = "",
    *,
    verdict: str,
    says: str = "",
    hypotheses: str = "",
    changes: str = "",
    adversary: Check | None = None,
    judges: str = "print",
) -> Callable[[Check], Claim]: ...


def register(
    id: str | Paper,
    source: str = "",
    printed: str = "",
    used: str = "",
    *,
    verdict: str = "",
    says: str = "",
    hypotheses: str = "",
    changes: str = "",
    adversary: Check | None = None,
    judges: str = "print",
) -> Paper | Callable[[Check], Claim]:
    """Register a paper, or, as a decorator, a check that decides one of its claims.

    Parameters
    ----------
    id : Paper or str
        A paper, without further arguments; or the id of a claim: the paper's, a hyphen, a number.
    source : str
        Theorem, equation or section.
    printed, used : str
        The statement as printed, and the true one ("" where they are the same); Markdown.
    verdict : {"holds", "repaired", "sharpened", "open", "corrected", "refuted"}
        The verdict that the evidence must give; otherwise the claim fails. "repaired": the printed
        statement holds, a step of its proof does not. "open": it is true in one reading, false in
        another.
    says, hypotheses, changes : str, optional
        What the paper says, in its own words; which hypotheses of the printed statement the check
        satisfies; and what would change the verdict.
    adversary : callable, optional
        A second check, which argues for the paper: :func:`premise` for every hypothesis that the
        counterexample must satisfy, recomputed, and :func:`printed` for the statement read as
        favorably as its words allow. The correction stands if all premises hold and a printed
        comparison is violated: ``claims(adversary=True)``.
    judges : {"print", "code", "figures"}, default "print"
        What the verdict judges: the printed paper, public code, or figures of a repository.

    Returns
    -------
    Paper or callable
        The paper; or a decorator that turns a check into a :class:`Claim`. A check takes an
        :class:`Effort` and yields evidence: :func:`printed` about the printed statement,
        :func:`reading` about one of its readings,
        :func:`used` about the one used here, :func:`step` about a step of the printed proof.

    Raises
    ------
    TypeError, ValueError
        If an argument is of the wrong kind, or the id is taken. A cell of an interactive session
        may run again: its claim then replaces the earlier one.

    Examples
    --------
    This is a whole module; ``python -m dpanalysis claims --module NAME`` checks it.

    >>> from dpanalysis import audit
    >>> paper = audit.register(
    ...     audit.Paper(id="900", authors="Doe, Roe", year=2025, title="On the sum of variances")
    ... )
    >>> @audit.register(
    ...     "900-1",
    ...     "Lemma 2",
    ...     "Laplace noise of scale b has variance b^2",
    ...     "its variance is 2 b^2",
    ...     verdict="corrected",
    ... )
    ... def laplace_variance(effort):
    ...     n = effort.cases(10_000, 1_000_000)
    ...     variance = effort.random().laplace(scale=3.0, size=n).var()
    ...     yield audit.printed("variance / b^2", variance / 9, "==", 1, tolerance=0.2, cases=n)
    ...     yield audit.used("variance / b^2", variance / 9, "==", 2, tolerance=0.2, cases=n)
    >>> audit.claims("Doe 2025").run(quick=True)[0].verdict
    'corrected'
    """
    if isinstance(id, Paper):
        return bibliography.enter(id)

    def decorator(check: Check) -> Claim:
        return _enter(
            Claim(
                id,
                source,
                printed,
                used,
                verdict,
                check,
                says=says,
                hypotheses=hypotheses,
                changes=changes,
                adversary=adversary,
                judges=judges,
            )
        )

    if id in _CLAIMS and not _runs_again(id):
        raise _taken(id)
    return decorator


def _enter(claim: Claim) -> Claim:
    ours = _home(claim).startswith("dpanalysis.papers.") and _home(claim).count(".") > 2
    if ours and claim.verdict in (*AGAINST, "open") and not (claim.says and claim.changes):
        raise ValueError(f"says and changes must be given, {claim.id} is {claim.verdict!r}")
    # Of two threads, or two decorators with the same id, only one can register its claim.
    if _CLAIMS.setdefault(claim.id, claim) is not claim:
        if not (_home(claim) == "__main__" and _runs_again(claim.id)):
            raise _taken(claim.id)
        _CLAIMS[claim.id] = claim
    return claim


def _runs_again(id: str) -> bool:
    """Return whether a cell of an interactive session registered this claim."""
    session = not hasattr(sys.modules["__main__"], "__file__")
    return session and _home(_CLAIMS[id]) == "__main__"


def _taken(id: str) -> ValueError:
    return ValueError(f"id must be new, {id!r} is registered already, in {_home(_CLAIMS[id])}")


def _home(claim: Claim) -> str:
    """Return the name of the module that defines a claim's check."""
    check: Any = getattr(claim.check, "func", claim.check)  # the function of a partial one
    return str(getattr(check, "__module__", ""))


def load(paper: str | None = None, *, module: Modules = ()) -> list[Claim]:
    """Return the registered claims of a paper, or of modules (to be imported), sorted by id."""
    from .. import papers

    for found in pkgutil.walk_packages(papers.__path__, f"{papers.__name__}."):
        import_module(found.name)
    names = _names(module)
    for name in names:
        _import(name)
    chosen = list(_CLAIMS.values())
    if names:
        chosen = list(
            {claim.id: claim for name in names for claim in _registered_in(name)}.values()
        )
    chosen.sort(key=lambda claim: (claim.paper, int(claim.id.rpartition("-")[2])))
    if paper is not None:
        wanted = bibliography.find(paper, sorted({claim.paper for claim in chosen})).id
        chosen = [claim for claim in chosen if claim.paper == wanted]
    for claim in chosen:
        if claim.paper not in bibliography.ids():
            raise ValueError(
                f"the paper of the claim {claim.id!r} must be registered: "
                f"audit.register(audit.Paper(id={claim.paper!r}, ...))"
            )
    return chosen


def _names(module: Modules) -> list[str]:
    """Return the names of the modules that an argument gives."""
    several = [module] if isinstance(module, (str, ModuleType)) else list(module)
    names = [each.__name__ if isinstance(each, ModuleType) else each for each in several]
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"module must be a module or its name, got {name!r}")
        if name.endswith(".py") or "/" in name or os.sep in name:
            raise ValueError(f"module must be a name without folder and .py, got {name!r}")
    return names


def _registered_in(name: str) -> list[Claim]:
    """Return the claims of a module, or of the modules in a package."""
    homes = [(claim, _home(claim)) for claim in list(_CLAIMS.values())]
    found = [claim for claim, home in homes if home == name or home.startswith(name + ".")]
    if not found:
        raise ValueError(f"the module {name!r} registers no claim: see help(audit.register)")
    return found


def _import(name: str) -> None:
    """Import a module; if that fails, forget what it registered until then."""
    before, papers = set(_CLAIMS), bibliography.ids()
    invalidate_caches()  # the file may have been written just now
    try:
        import_module(name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # sys.exit() at the end of a script must not look like success
        for id in set(_CLAIMS) - before:
            sys.modules.pop(_home(_CLAIMS.pop(id)), None)
        bibliography.forget(bibliography.ids() - papers)
        missing = getattr(error, "name", None) if isinstance(error, ModuleNotFoundError) else None
        if missing and (name == missing or name.startswith(f"{missing}.")):
            raise ImportError(
                f"there is no module {name!r} in {os.getcwd()} or on Python's path"
            ) from error
        raise ImportError(
            f"importing the module {name!r} failed: {type(error).__name__}: {error}"
        ) from error


class Claims(Sequence[Claim]):
    """Registered claims with their recorded verdicts; nothing is computed before :meth:`run`.

    Prints as a list of ids, papers, verdicts and statements.

    Examples
    --------
    >>> from dpanalysis import audit
    >>> listed = audit.claims("Kuru 2022", ids=["001-10"])
    >>> [(claim.id, claim.verdict) for claim in listed]
    [('001-10', 'corrected')]
    >>> listed.run(quick=True).failed
    []
    """

    def __init__(self, claims: Iterable[Claim]) -> None:
        self._claims = tuple(claims)

    def __len__(self) -> int:
        return len(self._claims)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        found = self._claims[index]
        return Claims(found) if isinstance(index, slice) else found

    def __repr__(self) -> str:
        return listed_text(self)

    def _repr_html_(self) -> str:
        return listed_html(self)

    def run(
        self, *, quick: bool = False, adversary: bool = False, jobs: int = 1, progress: bool = False
    ) -> Table:
        """Check the claims now, or let the adversaries of the corrections argue for the papers.

        Parameters
        ----------
        quick : bool, default=False
            Search fewer cases: about a minute for all papers, instead of a few.
        adversary : bool, default=False
            Run the adversaries of the claims that are "corrected" or "refuted" instead of the
            checks, and report which corrections stand: see :func:`register`.
        jobs : int, default=1
            Number of processes; -1 for one per core. The evidence does not depend on it.
        progress : bool, default=False
            Show a progress bar.

        Examples
        --------
        >>> from dpanalysis import audit
        >>> audit.claims(ids=["001-10"]).run(quick=True)[0].verdict
        'corrected'
        """
        chosen = list(self)
        if adversary:
            chosen = [claim for claim in chosen if claim.verdict in ("corrected", "refuted")]
        effort = Effort(quick)
        if jobs != -1:
            check_int("jobs", jobs, low=1)
        if jobs != 1 and (here := [claim.id for claim in chosen if _home(claim) == "__main__"]):
            raise ValueError(
                f"jobs must be 1 for {', '.join(here)}: other processes cannot import this session"
            )
        found = _outcomes(chosen, effort, adversary, jobs, progress)
        if adversary:
            return Table((Argument(claim, *found[claim.id]) for claim in chosen), ARGUMENTS)
        return Table(Outcome(claim, *found[claim.id]) for claim in chosen)


@overload
def claims(
    paper: str | None = ..., *, ids: Sequence[str] | None = ..., module: Modules = ...
) -> Claims: ...


@overload
def claims(
    paper: str | None = ...,
    *,
    ids: Sequence[str] | None = ...,
    module: Modules = ...,
    **options: Any,
) -> Table: ...


def claims(
    paper: str | None = None,
    *,
    ids: Sequence[str] | None = None,
    module: Modules = (),
    **options: Any,
) -> Claims | Table:
    """List registered claims with their recorded verdicts, without checking any.

    ``claims().run()`` checks them now.

    Parameters
    ----------
    paper : str, optional
        Only the claims of this paper: its id, its label, or its first author, for instance
        "002", "Chen 2020" or "Chen". By default those of all papers.
    ids : sequence of str, optional
        Only these claims, for instance ``["001-9"]``.
    module : str, module or sequence of them, optional
        Only the claims that these modules or packages register. A name is imported.
    **options
        Options of :meth:`Claims.run`, which is then called: ``claims(quick=True)``.

    Returns
    -------
    Claims
        Sorted by id. With options, the Table that :meth:`Claims.run` returns.

    Raises
    ------
    ImportError
        If a module cannot be imported.
    TypeError, ValueError
        If the paper or id is unknown, a module registers no claim, or an argument has a wrong type.

    Examples
    --------
    >>> from dpanalysis import audit
    >>> audit.claims(ids=["000-1"])
    000-1   holds   Xia 2023: ||Clip(g)|| <= C for Clip(g) = C g/(||g|| + r/(||g|| + r)), r > 0
    1 claim, not checked now: .run() does
    """
    listed = Claims(_chosen(load(paper, module=module), ids))
    return listed.run(**options) if options else listed


def _outcomes(
    chosen: list[Claim], effort: Effort, adversary: bool, jobs: int, progress: bool
) -> dict[str, list[Any]]:
    """Return the fields of each :class:`Outcome` except its claim, by id."""
    from joblib import Parallel, delayed
    from tqdm import tqdm

    path = [os.path.abspath(entry) for entry in sys.path]
    tasks = (delayed(_run)(_home(claim), path, claim.id, effort, adversary) for claim in chosen)
    found = {}
    bar = tqdm(total=len(chosen), desc="claims", unit="claim", disable=not progress)
    with bar, warnings.catch_warnings():
        # A worker that has grown is replaced between two claims, which loses nothing.
        warnings.filterwarnings("ignore", message="A worker stopped while some jobs")
        for name, *result in Parallel(jobs, return_as="generator")(tasks):
            found[name] = result
            bar.update()
    return found


def _chosen(known: list[Claim], ids: Sequence[str] | None) -> list[Claim]:
    if ids is None:
        return known
    if isinstance(ids, str):
        raise TypeError(f"ids must be a sequence such as [{ids!r}], got {ids!r}")
    for name in ids:
        check_choice("ids", name, tuple(claim.id for claim in known))
    return [claim for claim in known if claim.id in set(ids)]


def _run(home: str, path: list[str], id: str, effort: Effort, argue: bool) -> tuple[Any, ...]:
    """Return the id and the fields of the :class:`Outcome` except its claim."""
    # A claim cannot be pickled, as its module has it under the name of its check: a worker process
    # imports the module and looks up the id. A worker started earlier may lack path entries.
    sys.path.extend(entry for entry in path if entry not in sys.path)
    if id not in _CLAIMS:
        invalidate_caches()  # the file may be younger than what this process knows of its folder
        import_module(home)
    if id not in _CLAIMS:
        raise LookupError(f"a second process finds no claim {id!r} in {home}: use jobs=1")
    outcome = _CLAIMS[id].argue(effort) if argue else _CLAIMS[id].run(effort)
    return id, outcome.evidence, outcome.seconds, outcome.error, outcome.missing
