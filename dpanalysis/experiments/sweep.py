"""The only loop over runs: a grid of cells, computed once, kept on disk, resumable."""

from __future__ import annotations

import hashlib
import json
import os
import time
import traceback
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .._validation import check_int
from . import workers
from .conditions import SweepStopped, current
from .made_by import made_by
from .records import Record, atomic_write, plain
from .threads import one_thread

__all__ = ["Record", "SweepError", "sweep"]


class SweepError(RuntimeError):
    r"""Some cells of a sweep failed; all the others are computed and kept.

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


class _Finished(NamedTuple):
    """What a cell came to, ready to be written."""

    arrays: dict[str, np.ndarray]
    about: dict[str, Any]


_DIED = (
    "WorkerDied: the worker died twice while this cell alone was at work "
    "(out of memory, killed, or a crash in compiled code)"
)


@dataclass(frozen=True)
class _Cell:
    """One call and the file that its result is kept in."""

    parameters: dict[str, Any]
    identity: str  # JSON: what the file must be the result of
    path: Path

    def load(self) -> dict[str, np.ndarray] | None:
        """Return the kept result, or ``None`` where it must be computed."""
        try:
            with open(self.path, "rb") as handle, np.load(handle, allow_pickle=False) as file:
                if str(file["identity"]) == self.identity:
                    names = [name for name in file.files if name.startswith("result.")]
                    return {name.removeprefix("result."): file[name] for name in names}
                problem = "belongs to another cell"
        except FileNotFoundError:
            return None
        except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile, zlib.error) as error:
            problem = f"is damaged ({error})"
        warnings.warn(f"{self.path} {problem} and is computed again", RuntimeWarning, stacklevel=3)
        return None

    def compute(self, function: Callable[..., Any], settings: Any) -> _Finished:
        """Call the function."""
        with one_thread():
            start = time.perf_counter()
            result = function(**self.parameters)
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
            "made_by": made_by(function.__module__),
        }
        return _Finished(arrays, about)

    def keep(self, finished: _Finished) -> OSError | None:
        """Write the result, all of it or nothing; return why it cannot be written."""
        try:
            with atomic_write(self.path.with_suffix(".json")) as file:
                json.dump(finished.about, file, indent=1)
            with atomic_write(self.path, "wb") as file:  # last: this file says "finished"
                arrays: dict[str, Any] = {f"result.{k}": a for k, a in finished.arrays.items()}
                np.savez(file, identity=np.array(self.identity), **arrays)
        except OSError as error:
            return error
        return None


def _compute(
    index: int, cell: _Cell, function: Callable[..., Any], settings: Any, keep: bool = True
) -> tuple[int, str | _Finished | OSError | None]:
    """Compute a cell on a worker and keep it.

    Return the traceback if it fails, the error if it cannot be kept, the result if not to be.
    """
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
    """Compute and keep the cells; return the tracebacks of those that fail, by identity.

    When one cannot be kept, none begins any more.
    """
    kept, traces, until = bar.n, dict[str, str](), current()
    unkept: list[OSError] = []
    # A worker on another machine may not see the folder: what it returns is kept here.
    tasks = [(cell, function, settings, not workers.are_remote()) for cell in todo]

    def may_begin() -> bool:
        return not unkept and until.may_begin()

    try:
        with bar, closing(workers.results(_compute, tasks, jobs, may_begin)) as outcomes:
            for index, outcome in outcomes:
                cell = todo[index]
                if isinstance(outcome, _Finished):
                    outcome = cell.keep(outcome)
                if isinstance(outcome, OSError):
                    unkept.append(outcome)
                elif outcome is not None:
                    traces[cell.identity] = _DIED if outcome is workers.LOST else outcome
                bar.update()
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_progress(todo, kept, bar.total)) from None
    if unkept:
        error = unkept[0]
        said = f"{error.strerror or error}: {_progress(todo, kept, bar.total)}"
        raise OSError(error.errno, said) from error
    return traces


def _progress(todo: list[_Cell], kept: int, total: int) -> str:
    finished = kept + sum(cell.path.exists() for cell in todo)
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
    """Call ``function(**cell)`` for every cell, keep each result on disk, and return them.

    A finished cell is never computed again: its file is named by a hash of the function's
    qualified name, the version and the cell. So an interrupted sweep goes on where it
    stopped, and a longer grid reuses the cells of a shorter one. A cell draws its randomness
    from a seed among its parameters; each cell runs on one thread; so the results do not
    depend on ``jobs`` or ``backend``.

    Results are kept as the cells finish: by the worker, or, with Dask, Ray and backends of
    other packages, whose workers may not see the folder, by the caller. A worker that dies
    (killed, out of memory, a crash in compiled code) takes no more than its cell along: what
    was at work is computed again, and the cell has failed when it alone has killed two.

    Parameters
    ----------
    function : callable
        Defined at the top level of a module (so that other processes can import it). Takes
        the cell's parameters as keywords and returns a dict of arrays or numbers.
    cells : iterable of dict
        Parameters of the calls: numbers, text, None, and lists or dicts of these.
    folder : str or path-like
        Where results are kept: ``<key>.npz`` and, for people, ``<key>.json``.
    jobs : int, optional
        Cells at once, also more than there are cores; 1 for all in this process, -1 for one a
        core (with Dask or Ray: as many as the cluster takes). By default what
        ``joblib.parallel_config`` says around the call, or 1.
    backend : str, optional
        Where the cells run: ``"loky"`` (processes), ``"threading"``, ``"dask"`` (on the current
        client), ``"ray"``, or a name registered with joblib. By default what
        ``joblib.parallel_config`` says around the call, or ``"loky"``.
    progress : bool
        Whether to show a progress bar on stderr.
    settings : dict, optional
        Written beside every result, for people; neither passed to the function nor part of
        the key.
    version : int
        Raise it when the function's meaning changes, so that old results are not reused.

    Returns
    -------
    list of Record
        In the order of ``cells``.

    Raises
    ------
    TypeError
        If the function is not importable by name, or a parameter is not plain.
    ValueError
        If ``jobs`` is neither -1 nor positive, or the backend is unknown.
    ImportError
        If the backend is not installed.
    NotADirectoryError
        If ``folder`` is something else.
    OSError
        If a result cannot be kept (a full disk): the sweep ends there.
    SweepError
        At the end, if cells failed; the others are kept.
    SweepStopped
        When the time limit of :func:`sweeping` came before the end.
    KeyboardInterrupt
        On Ctrl-C, saying how many cells are kept.

    Warns
    -----
    RuntimeWarning
        If a kept file is damaged; its cell is computed again.

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
    if "<" in name:
        raise TypeError(f"function must be defined at the top level of a module, got {function!r}")
    check_int("version", version)
    if jobs is not None and check_int("jobs", jobs, low=-1) == 0:
        raise ValueError("jobs must be -1 or at least 1, got 0")
    workers.check_backend(backend)
    about = plain(dict(settings or {}), "settings")
    home = _home(folder)
    if not isinstance(cells, Iterable):
        raise TypeError(f"cells must be dicts of parameters, got {cells!r}")
    grid = [_cell(name, version, parameters, home) for parameters in cells]

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
        with workers.configured(backend):
            traces = _compute_all(list(todo.values()), function, about, jobs, bar)
        for identity, cell in todo.items():
            trace = traces.get(identity)
            if trace is None and not current().may_begin() and not cell.path.exists():
                left += 1
                continue
            # Read back: what a later run will get, to the bit.
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
    watch = current().watch
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


def _cell(name: str, version: int, parameters: Mapping[str, Any], home: Path) -> _Cell:
    if not isinstance(parameters, Mapping):
        raise TypeError(f"cells must be dicts of parameters, got {parameters!r}")
    identity = json.dumps(
        {"function": name, "version": version, "parameters": plain(dict(parameters), "cell")},
        sort_keys=True,
    )
    key = hashlib.sha256(identity.encode()).hexdigest()[:32]
    return _Cell(dict(parameters), identity, home / f"{key}.npz")
