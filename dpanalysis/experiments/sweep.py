"""Grids of runs: each cell is computed once and stored on disk, so sweeps can be resumed."""

from __future__ import annotations

import copy
import hashlib
import importlib.util
import json
import math
import os
import platform
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from pathlib import Path
from types import MethodType
from typing import Any, NamedTuple

import numpy as np

from .._parallel import one_thread
from .._validation import check_int, check_number
from . import backends
from .loop import whole_runs
from .records import DAMAGED, Record, atomic_write, plain

#: Called with the file and the result of each finished cell.
Watch = Callable[[Path, dict[str, np.ndarray]], None]


class SweepStopped(RuntimeError):
    """The time limit of a sweep was reached; finished cells are kept.

    Attributes
    ----------
    finished, total : int
        Cells.

    Examples
    --------
    >>> print(SweepStopped(12, 48))
    12 of 48 cells are finished and kept, 36 are left
    """

    def __init__(self, finished: int, total: int) -> None:
        super().__init__(
            f"{finished} of {total} cells are finished and kept, {total - finished} are left"
        )
        self.finished, self.total = finished, total


@dataclass(frozen=True)
class SweepLimits:
    """Deadline (``time.monotonic``) for starting cells, watch, and provenance of the results."""

    stop_at: float = math.inf
    watch: Watch | None = None
    made_by: Mapping[str, str] = field(default_factory=dict)

    def may_begin(self) -> bool:
        """Return whether a cell may still begin."""
        return time.monotonic() < self.stop_at


_limits: ContextVar[SweepLimits] = ContextVar("limits", default=SweepLimits())  # noqa: B039


def sweep_limits() -> SweepLimits:
    """Return the limits set by :func:`sweeping`."""
    return _limits.get()


@contextmanager
def sweeping(
    *,
    stop_after: float | None = None,
    watch: Watch | None = None,
    made_by: Mapping[str, str] | None = None,
) -> Iterator[None]:
    """Set a time limit for the sweeps inside, watch their cells, or record their provenance.

    After the limit no cell is started; running cells are finished and kept, and the sweep raises
    :class:`SweepStopped`, so that a batch queue's limit costs no work. On Dask and Ray give sweeps
    a number of ``jobs``; without one all cells are submitted, and so started, at once.

    Parameters
    ----------
    stop_after : float, optional
        Seconds from now, at least 0; an earlier enclosing limit still holds.
    made_by : mapping of str to str, optional
        Added to ``made_by`` of each cell that is computed, next to code, versions and processor:
        for example the commit and the device.
    watch : callable, optional
        Called as ``watch(path, result)`` for each cell of a finished sweep, computed or loaded,
        in order; the ``.json`` file next to the ``.npz`` file describes it.

    Examples
    --------
    >>> import tempfile
    >>> from dpanalysis.experiments import sweep
    >>> with tempfile.TemporaryDirectory() as folder, sweeping(stop_after=0):
    ...     sweep(dict, [{"a": 1}, {"a": 2}], folder=folder, progress=False)
    Traceback (most recent call last):
    ...
    dpanalysis.experiments.sweep.SweepStopped: 0 of 2 cells are finished and kept, 2 are left
    """
    around = sweep_limits()
    stop_at = around.stop_at
    if stop_after is not None:
        stop_at = min(stop_at, time.monotonic() + check_number("stop_after", stop_after, low=0.0))
    token = _limits.set(
        SweepLimits(stop_at, watch or around.watch, {**around.made_by, **(made_by or {})})
    )
    try:
        yield
    finally:
        _limits.reset(token)


# Provenance: code, libraries and processor, on which the last bits of a result depend


@cache
def code_digest(*packages: str) -> str:
    """Return a digest of the Python files of the named packages."""
    digest = hashlib.sha256()
    for package in packages:
        try:
            spec = importlib.util.find_spec(package)
        except ValueError:  # __main__
            spec = None
        folders = list(spec.submodule_search_locations or ()) if spec else []
        files = [path for folder in folders for path in sorted(Path(folder).rglob("*.py"))]
        if not files and spec and spec.origin and Path(spec.origin).is_file():
            files = [Path(spec.origin)]
        for path in files:
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


@cache
def provenance(module: str) -> dict[str, str]:
    """Return versions and digests that results of a function of ``module`` depend on."""
    packages = dict.fromkeys(("dpanalysis", module.partition(".")[0]))
    return {
        "code": code_digest(*packages),
        "python": platform.python_version(),
        **{name: version(name) for name in ("numpy", "scipy", "numba")},
        "processor": processor(),
    }


def processor() -> str:
    """Return the processor's name: libraries choose kernels by it, which round differently."""
    # A name without a number, such as "AMD EPYC", is shared by many models.
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    fields = {key.strip(): value.strip() for key, _, value in (x.partition(":") for x in lines)}
    name = fields.get("model name", "")
    if name and not any(map(str.isdigit, name)):
        name += f", family {fields.get('cpu family')}, model {fields.get('model')}"
    return name or platform.processor() or platform.machine()


# Cells


class SweepError(RuntimeError):
    r"""Some cells of a sweep failed; all others are computed and kept.

    Attributes
    ----------
    failures : list of (dict, str)
        Parameters and traceback of each failed cell.
    records : list of Record
        The cells that did not fail, in their order.

    Examples
    --------
    >>> error = SweepError([({"seed": 1}, "Traceback ...\nValueError: no")], [], 3)
    >>> print(error)
    1 of 3 cells failed, the others are kept; first: {'seed': 1}: ValueError: no
    """

    def __init__(
        self, failures: list[tuple[dict[str, Any], str]], records: list[Record], total: int
    ) -> None:
        parameters, trace = failures[0]
        reason = trace.strip().rsplit("\n", 1)[-1]
        super().__init__(
            f"{len(failures)} of {total} cells failed, the others are kept; "
            f"first: {parameters}: {reason}"
        )
        self.failures = failures
        self.records = records


class Finished(NamedTuple):
    """The result of a cell, ready to be written."""

    arrays: dict[str, np.ndarray]
    about: dict[str, Any]


_DIED = (
    "WorkerDied: the worker died twice while this cell alone was at work "
    "(out of memory, killed, or a crash in compiled code)"
)


@dataclass(frozen=True)
class _Cell:
    """One call and the file of its result."""

    parameters: dict[str, Any]
    identity: str  # JSON of function, version and parameters
    path: Path
    made_by: Mapping[str, str] = field(default_factory=dict)  # added to provenance()

    def load(self) -> dict[str, np.ndarray] | None:
        """Return the stored result, or ``None`` if it must be computed."""
        try:
            with open(self.path, "rb") as handle, np.load(handle, allow_pickle=False) as file:
                if str(file["identity"]) == self.identity:
                    names = [name for name in file.files if name.startswith("result.")]
                    return {name.removeprefix("result."): file[name] for name in names}
                problem = "belongs to another cell"
        except FileNotFoundError:
            return None
        except DAMAGED as error:
            problem = f"is damaged ({error})"
        warnings.warn(f"{self.path} {problem} and is computed again", RuntimeWarning, stacklevel=3)
        return None

    def compute(self, function: Callable[..., Any], settings: Any) -> Finished:
        """Call the function on one thread."""
        with one_thread():
            start = time.perf_counter()
            with whole_runs():
                result = function(**copy.deepcopy(self.parameters))  # which it may change
            seconds = time.perf_counter() - start
        if not isinstance(result, Mapping):
            raise TypeError(f"a cell must return a dict of arrays, got {type(result).__name__}")
        arrays = {name: np.asarray(value) for name, value in result.items()}
        for name, array in arrays.items():
            if array.dtype.kind not in "biufcU":
                raise TypeError(f"result[{name!r}] must be numbers or text, got {array.dtype}")
        about = {
            **json.loads(self.identity),
            "settings": settings,
            "seconds": seconds,
            "made_by": {**provenance(function.__module__), **self.made_by},
        }
        return Finished(arrays, about)

    def keep(self, finished: Finished) -> OSError | None:
        """Write the result atomically; return the error if that fails."""
        try:
            with atomic_write(self.path.with_suffix(".json")) as file:
                json.dump(finished.about, file, indent=1)
            with atomic_write(self.path, "wb") as file:  # last: it marks the cell as finished
                arrays: dict[str, Any] = {f"result.{k}": a for k, a in finished.arrays.items()}
                np.savez(file, identity=np.array(self.identity), **arrays)
        except OSError as error:
            return error
        return None


def _compute(
    index: int, cell: _Cell, function: Callable[..., Any], settings: Any, keep: bool = True
) -> tuple[int, str | Finished | OSError | None]:
    """Return a failed cell's traceback, the error of writing it, or its result unless ``keep``."""
    try:
        finished = cell.compute(function, settings)
    except (Exception, SystemExit):
        return index, traceback.format_exc()
    if not keep:
        return index, finished
    return index, cell.keep(finished)


def _compute_all(
    todo: list[_Cell], function: Callable[..., Any], settings: Any, jobs: int | None, bar: Any
) -> dict[str, str]:
    """Compute and store cells until a write fails; return tracebacks by identity."""
    before, limits = bar.n, sweep_limits()
    traces, write_errors = dict[str, str](), list[OSError]()
    # A worker on another machine may not see the folder, so this process writes its results.
    tasks = [(cell, function, settings, not backends.are_remote()) for cell in todo]

    def may_begin() -> bool:
        return not write_errors and limits.may_begin()

    try:
        with bar, closing(backends.results(_compute, tasks, jobs, may_begin)) as outcomes:
            for index, outcome in outcomes:
                cell = todo[index]
                if isinstance(outcome, Finished):
                    outcome = cell.keep(outcome)
                if isinstance(outcome, OSError):
                    write_errors.append(outcome)
                elif outcome is not None:
                    traces[cell.identity] = _DIED if outcome is backends.LOST else outcome
                bar.update()
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_progress(todo, before, bar.total)) from None
    if write_errors:
        error = write_errors[0]
        message = f"{error.strerror or error}: {_progress(todo, before, bar.total)}"
        raise OSError(error.errno, message) from error
    return traces


def _progress(todo: list[_Cell], before: int, total: int) -> str:
    finished = before + sum(cell.path.exists() for cell in todo)
    return f"{finished} of {total} cells are finished and kept in {todo[0].path.parent}"


def sweep(
    function: Callable[..., Mapping[str, Any]],
    cells: Iterable[Mapping[str, Any]],
    *,
    folder: str | os.PathLike[str],
    jobs: int | None = None,
    backend: str | None = None,
    progress: bool = True,
    settings: Mapping[str, Any] | None = None,
    version: int = 1,
) -> list[Record]:
    """Call ``function(**cell)`` for every cell, store each result on disk, and return them.

    A finished cell is never recomputed: its file name is a hash of the function's qualified name,
    the version and the cell. So an interrupted sweep continues where it stopped, and a larger grid
    reuses the cells of a smaller one. A cell draws its randomness from a seed among its parameters,
    and runs on one thread, so the results do not depend on ``jobs`` or ``backend``.

    Results are written as the cells finish: by the worker or, with Dask, Ray and backends of
    other packages, whose workers may not see the folder, by the caller. If a worker dies (killed,
    out of memory, a crash in compiled code), the running cells are recomputed; a cell has failed
    when two workers died while it alone was running.

    Parameters
    ----------
    function : callable
        Defined at the top level of a module (so that other processes can import it). Takes
        the cell's parameters as keywords and returns a dict of arrays or numbers. Functions of one
        name in two scripts or notebooks count as the same: give each a folder of its own.
    cells : iterable of dict
        Parameters of the calls: numbers, text, None, and lists or dicts of these.
    folder : str or path-like
        Folder of the results: ``<key>.npz`` and, human-readable, ``<key>.json``.
    jobs : int, optional
        Number of concurrent cells; 1 for all in this process, -1 for one per core (with Dask or
        Ray: as many as the cluster takes). By default that of ``joblib.parallel_config``, or 1.
    backend : str, optional
        ``"loky"`` (processes), ``"threading"``, ``"dask"`` (on the current client), ``"ray"``, or a
        name registered with joblib. By default that of ``joblib.parallel_config``, or ``"loky"``.
    progress : bool
        Whether to show a progress bar on stderr.
    settings : dict, optional
        Stored in the JSON file of every result; neither passed to the function nor part of the key.
    version : int
        Increase it when the function changes, so that old results are not reused.

    Returns
    -------
    list of Record
        In the order of ``cells``.

    Raises
    ------
    ImportError
        If the backend is not installed.
    OSError
        If a result cannot be written (a full disk), which ends the sweep.
    SweepError
        At the end, if cells failed; the others are kept.
    SweepStopped
        If the time limit of :func:`sweeping` was reached.
    KeyboardInterrupt
        On Ctrl-C, with the number of cells that are kept.

    Warns
    -----
    RuntimeWarning
        If a stored file is damaged; its cell is recomputed.

    Examples
    --------
    >>> import collections, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:  # any importable function that returns a dict
    ...     cells = [{"a": 1, "b": 2}, {"a": 3, "b": 4}]
    ...     records = sweep(collections.OrderedDict, cells, folder=folder, progress=False)
    >>> [int(record.result["b"]) for record in records]
    [2, 4]
    """
    name = f"{getattr(function, '__module__', None)}.{getattr(function, '__qualname__', '<')}"
    if "<" in name or isinstance(function, MethodType):  # a file does not identify its object
        raise TypeError(f"function must be defined at the top level of a module, got {function!r}")
    check_int("version", version)
    if jobs is not None and check_int("jobs", jobs, low=-1) == 0:
        raise ValueError("jobs must be -1 or at least 1, got 0")
    backends.check_backend(backend)
    about = plain(dict(settings or {}), "settings")
    home = _home(folder)
    if not isinstance(cells, Iterable):
        raise TypeError(f"cells must be dicts of parameters, got {cells!r}")
    grid = [kept_cell(name, version, parameters, home) for parameters in cells]

    results: dict[str, dict[str, np.ndarray]] = {}
    todo: dict[str, _Cell] = {}
    for cell in grid:
        if cell.identity not in results and cell.identity not in todo:
            kept = cell.load()
            if kept is None:
                todo[cell.identity] = cell
            else:
                results[cell.identity] = kept

    failures: list[tuple[dict[str, Any], str]] = []
    left = 0
    if todo:
        from tqdm import tqdm

        bar = tqdm(
            total=len(results) + len(todo),
            initial=len(results),
            desc=name.rsplit(".", 1)[-1],
            unit="cell",
            disable=not progress,
        )
        with backends.configured(backend):
            traces = _compute_all(list(todo.values()), function, about, jobs, bar)
        for identity, cell in todo.items():
            trace = traces.get(identity)
            if trace is None and not sweep_limits().may_begin() and not cell.path.exists():
                left += 1
                continue
            # Read back, so that this run returns the same bits as a later one.
            result = None if trace else cell.load()
            if result is None:
                failures.append((cell.parameters, trace or f"OSError: {cell.path} cannot be read"))
            else:
                results[identity] = result
    records = [
        Record(cell.parameters, results[cell.identity]) for cell in grid if cell.identity in results
    ]
    if failures:
        raise SweepError(failures, records, len(grid))
    if left:
        raise SweepStopped(len(results), len(results) + left)
    watch = sweep_limits().watch
    if watch is not None:
        for cell in {cell.identity: cell for cell in grid}.values():
            watch(cell.path, dict(results[cell.identity]))
    return records


def _home(folder: Any) -> Path:
    if not isinstance(folder, (str, os.PathLike)):
        raise TypeError(f"folder must be a path, got {folder!r}")
    home = Path(folder).absolute()  # workers may have another working directory
    if home.exists() and not home.is_dir():
        raise NotADirectoryError(f"folder must be a directory, {home} is none")
    return home


def kept_cell(name: str, version: int, parameters: Mapping[str, Any], home: Path) -> _Cell:
    """Return the cell of a call, with the path of its stored result."""
    if not isinstance(parameters, Mapping):
        raise TypeError(f"cells must be dicts of parameters, got {parameters!r}")
    identity = json.dumps(
        {"function": name, "version": version, "parameters": plain(dict(parameters), "cell")},
        sort_keys=True,
    )
    key = hashlib.sha256(identity.encode()).hexdigest()[:32]
    made_by = dict(sweep_limits().made_by)
    return _Cell(copy.deepcopy(dict(parameters)), identity, home / f"{key}.npz", made_by)
