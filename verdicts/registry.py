"""Register and check claims of released packages."""

from __future__ import annotations

import pkgutil
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path

from dpanalysis._validation import check_choice
from dpanalysis.papers.claim import VERDICTS, Claim, Effort, Evidence, NotChecked, Outcome, Paper
from dpanalysis.papers.report import Table, Words

from .environment import Environment, NotInstallable, prepare
from .protocol import CallRaised, Worker, WorkerFailed
from .store import keep, order

__all__ = ["Package", "Statement", "chosen", "known", "register", "verdicts"]

MEANINGS = {
    "holds": "the search found no violation, which proves nothing",
    "sharpened": "not refuted, and a sharper statement is not refuted either",
    "corrected": "refuted as documented; its corrected twin is not refuted",
    "refuted": "refuted as documented; no twin was tested",
    "broken": "the corrected twin is refuted, or nothing is compared with the claim",
    "error": "the check raised, or compared nothing",
    "not checked": "the package cannot be installed or imported here",
}
SHOWN = {"holds": "not refuted"}  # never "private"
TITLE = "What released packages claim, and what was found"


@dataclass(frozen=True, kw_only=True)
class Package:
    """A released package, with its installation and its probe.

    Parameters
    ----------
    name, version : str
        Name and version of the release.
    probe : path
        A file of functions that use it. It runs where the package is installed, and may import
        the package, NumPy and the standard library.
    imported : str, optional
        Name of the import, by default ``name`` with "_" for "-".
    requirements : sequence of str, optional
        Further requirements to install, for pip.
    setting : str, optional
        Statements of its documentation that concern all claims, such as which data sets are
        neighbours; Markdown.
    folder : path, optional
        Folder of the source of an unreleased package. If given, nothing is installed, and the
        running interpreter imports the package from there.

    Raises
    ------
    TypeError, ValueError
        If a name or a version is not valid.

    Examples
    --------
    >>> Package(name="dp-tools", version="1.0", probe="probe.py").imported
    'dp_tools'
    """

    name: str
    version: str
    probe: str | Path
    imported: str = ""
    requirements: Sequence[str] = ()
    setting: str = ""
    folder: str | Path | None = None

    def __post_init__(self) -> None:
        for key, form in (("name", _NAME), ("version", _VERSION)):
            if not isinstance(value := getattr(self, key), str):
                raise TypeError(f"{key} must be a string, got {value!r}")
            if not form.fullmatch(value):
                raise ValueError(f"{key} must be that of a release, got {value!r}")
        object.__setattr__(self, "imported", self.imported or self.name.replace("-", "_"))
        object.__setattr__(self, "requirements", tuple(self.requirements))

    def environment(self, folder: Path | None = None) -> Environment:
        """Return an environment that has the package; see :func:`.environment.prepare`."""
        if self.folder is not None:
            return Environment(Path(sys.executable))
        wanted = [f"{self.name}=={self.version}", "numpy", *self.requirements]
        return prepare(f"{self.name}-{self.version}", wanted, folder)

    @contextmanager
    def open(self, folder: Path | None = None) -> Iterator[Worker]:
        """Yield a worker that calls the probe where the package is installed.

        Raises
        ------
        NotChecked
            If the package cannot be installed, or cannot be imported after that.
        """
        shown = f"{self.name} {self.version}"
        folders = [] if self.folder is None else [self.folder]
        try:
            python = self.environment(folder).python
            worker = Worker(python, self.probe, self.name, self.imported, folders=folders)
        except NotInstallable as error:
            raise NotChecked(f"{shown} cannot be installed here: {error}") from None
        except (CallRaised, WorkerFailed) as error:
            raise NotChecked(f"{shown} cannot be imported here: {error}") from None
        with worker:
            if self.folder is None and worker.version != self.version:
                raise NotChecked(f"{shown} was asked for, but {worker.version} was installed")
            yield worker


# As in PEP 508 and PEP 440, so that nothing else is passed to pip.
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_VERSION = re.compile(r"[0-9][A-Za-z0-9.!+]*")

Check = Callable[[Worker, Effort], Iterable[Evidence]]


@dataclass(frozen=True, eq=False, kw_only=True)
class Statement:
    """A claim of a package, with the check that decides it.

    Attributes
    ----------
    package : Package
    id : str
        The package's name, a hyphen and a number.
    source : str
        Source of the claim: a page or a docstring.
    claimed : str
        The claim, in the words of the documentation if possible; Markdown.
    twin : str
        The change under which the claim holds, "" if there is none.
    configuration : str
        Arguments and inputs of the runs.
    untested : str
        What the check does not test.
    verdict : {"holds", "sharpened", "corrected", "refuted"}
        Expected verdict for this version.
    check : callable
        ``check(worker, effort)`` yields :class:`~dpanalysis.audit.Evidence`: ``printed`` about
        the claim, ``used`` about the twin.
    """

    package: Package
    id: str
    source: str
    claimed: str
    twin: str
    configuration: str
    untested: str
    verdict: str
    check: Check = field(repr=False)

    def outcome(self, effort: Effort, package: Package, folder: Path | None) -> Outcome:
        """Return the outcome of the check for a version of the package.

        A version other than the recorded one has no expected verdict: then only an error or a
        refuted twin is a failure.
        """

        def check(effort: Effort) -> Iterator[Evidence]:
            with package.open(folder) as worker:
                try:
                    yield from self.check(worker, effort)
                except CallRaised as error:
                    raise RuntimeError(f"{error}\n{error.traceback}") from None

        notes = (("Configuration", self.configuration), ("Not tested", self.untested))
        claim = Claim(self.id, self.source, self.claimed, self.twin, self.verdict, check, notes)
        outcome = claim.run(effort)
        if package.version != self.package.version and outcome.verdict in VERDICTS:
            outcome = replace(outcome, claim=replace(claim, verdict=outcome.verdict))
        return outcome


_STATEMENTS: dict[str, Statement] = {}


def register(
    package: Package,
    number: int,
    source: str,
    claimed: str,
    twin: str = "",
    *,
    configuration: str,
    untested: str,
    verdict: str,
) -> Callable[[Check], Statement]:
    """Return a decorator that registers the check of a package's claim.

    The parameters are those of :class:`Statement`; ``number`` is the end of its id.

    Raises
    ------
    TypeError, ValueError
        If the number is taken, the verdict unknown, or a required text empty.

    Examples
    --------
    See ``docs/packages.md`` for a whole module.

    >>> package = Package(name="dp-tools", version="1.0", probe="probe.py")
    >>> texts = {"configuration": "", "untested": "all else"}
    >>> register(package, 1, "README", "epsilon = 1", **texts, verdict="holds")
    Traceback (most recent call last):
    ValueError: configuration must not be empty
    """
    texts = {"source": source, "claimed": claimed, "configuration": configuration}
    for name, text in {**texts, "untested": untested}.items():
        if not isinstance(text, str):
            raise TypeError(f"{name} must be a string, got {text!r}")
        if not text.strip():
            raise ValueError(f"{name} must not be empty")
    check_choice("verdict", verdict, tuple(VERDICTS))
    id = f"{package.name}-{number:d}"

    def decorator(check: Check) -> Statement:
        statement = Statement(
            package=package,
            id=id,
            source=source,
            claimed=claimed,
            twin=twin,
            configuration=configuration,
            untested=untested,
            verdict=verdict,
            check=check,
        )
        if _STATEMENTS.setdefault(id, statement) is not statement:
            raise ValueError(f"number must be new, {id!r} is registered already")
        return statement

    return decorator


def known(modules: Sequence[str] = ()) -> list[Statement]:
    """Import modules and return all statements, ordered by package and number.

    Examples
    --------
    >>> known()[0].id
    'autodp-1'
    """
    from . import claims

    for found in pkgutil.iter_modules(claims.__path__, f"{claims.__name__}."):
        import_module(found.name)
    for name in modules:
        try:
            import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name:
                raise
            raise ImportError(f"there is no module {name!r} on Python's path") from error
    return [_STATEMENTS[id] for id in sorted(_STATEMENTS, key=order)]


def chosen(
    packages: Sequence[str] = (), *, ids: Sequence[str] = (), modules: Sequence[str] = ()
) -> list[tuple[Statement, Package]]:
    """Return the selected statements, each with the package in the version to check.

    Raises ImportError or ValueError if a module, a package or an id is unknown.

    Examples
    --------
    >>> [(statement.id, package.version) for statement, package in chosen(["autodp==0.2"])]
    [('autodp-1', '0.2'), ('autodp-2', '0.2')]
    """
    among = known(modules)
    versions = {statement.package.name: statement.package for statement in among}
    wanted: dict[str, Package] = {}
    for text in packages:
        name, separator, version = text.partition("==")
        if name not in versions:
            raise ValueError(f"package must be one of {', '.join(versions)}; got {text!r}")
        if name in wanted:
            raise ValueError(f"package must be named once, got {name!r} again")
        package = versions[name]
        wanted[name] = replace(package, version=version) if separator else package
    wanted = wanted or versions
    pairs = [(each, wanted[each.package.name]) for each in among if each.package.name in wanted]
    for id in ids:
        check_choice("id", id, tuple(statement.id for statement, _ in pairs))
    return [pair for pair in pairs if not ids or pair[0].id in set(ids)]


def verdicts(
    packages: Sequence[str] = (),
    *,
    ids: Sequence[str] = (),
    modules: Sequence[str] = (),
    quick: bool = False,
    environments: Path | None = None,
    store: Path | None = None,
    progress: bool = False,
) -> Table:
    """Check claims of released packages and return a table of verdicts.

    The arguments are the options of ``python -m verdicts``. With ``store`` each claim's rows are
    replaced in that folder as soon as it is checked.
    """
    from tqdm import tqdm

    pairs = chosen(packages, ids=ids, modules=modules)
    versions = {package.name: package for _, package in pairs}
    effort, outcomes = Effort(quick), []

    def source(name: str) -> Paper:
        package = versions[name]
        return Paper(id=name, title=f"{name} {package.version}", setting=package.setting)

    heads = ("as documented", "corrected twin")
    words = Words(TITLE, "claimed", "twin", heads, "", MEANINGS, source, SHOWN)
    for statement, package in tqdm(pairs, desc="claims", unit="claim", disable=not progress):
        outcomes.append(statement.outcome(effort, package, environments))
        if store is not None:
            keep(outcomes[-1], package, words, store, environments, quick)
    return Table(outcomes, words)
