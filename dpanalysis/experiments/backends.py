"""Parallel calls in processes, threads or on other machines, by joblib's configured backend.

Joblib's built-in backends run through joblib. Dask and Ray are called directly, with the client or
the options of joblib's backend: through joblib, Ray returns no result until all are done, and
joblib waits forever for a call whose Dask worker died.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from functools import cache, partial
from importlib.util import find_spec
from itertools import islice, takewhile
from typing import Any

#: The result of a call whose worker died.
LOST = object()

Results = Generator[tuple[int, Any], None, None]
#: Indices and arguments of the calls, consumed as workers become free.
Calls = Iterator[tuple[int, tuple[Any, ...]]]

# Backends among this package's extras, and the modules that they need.
_EXTRAS = {"dask": "distributed", "ray": "ray"}


def check_backend(backend: str | None) -> None:
    """Raise if the backend does not exist or is not installed."""
    if backend is None:
        return
    from joblib.parallel import BACKENDS

    known = sorted({*BACKENDS, *_EXTRAS} - {"multiprocessing"})
    if backend not in known:  # multiprocessing forks, which may hang with OpenMP
        raise ValueError(f"backend must be one of {', '.join(known)}, got {backend!r}")
    if backend in _EXTRAS and find_spec(_EXTRAS[backend]) is None:
        raise ImportError(
            f'backend {backend!r} is not installed: pip install "dpanalysis-toolkit[{backend}]"'
        )


def configured(backend: str | None) -> AbstractContextManager[Any]:
    """Return ``joblib.parallel_config(backend)``; None keeps the current configuration."""
    check_backend(backend)
    if backend is None:
        return nullcontext()
    import joblib

    if backend == "ray":
        from ray.util.joblib import register_ray

        register_ray()
    return joblib.parallel_config(backend)


def are_remote() -> bool:
    """Return whether the workers may be on machines without access to this disk."""
    from joblib.parallel import get_active_backend

    return type(get_active_backend()[0]).__module__ != "joblib._parallel_backends"


def results(
    function: Callable[..., tuple[int, Any]],
    tasks: Sequence[tuple[Any, ...]],
    jobs: int | None,
    may_begin: Callable[[], bool] = lambda: True,
) -> Results:
    """Yield ``function(i, *tasks[i])`` as they finish, ``(i, LOST)`` if a call kills its worker."""
    # Some backends stop when a worker dies, without saying which call killed it: all that may have
    # been running are repeated, by bisection. A call is lost if it kills two workers while alone.
    from joblib.parallel import get_active_backend

    active, configured_jobs = get_active_backend()
    if type(active).__name__ == "MultiprocessingBackend":
        raise ValueError("joblib's backend 'multiprocessing' cannot be used here, 'loky' can")
    special = {"DaskDistributedBackend": _dask, "RayBackend": _ray}
    attempt = special.get(type(active).__name__, _joblib)
    jobs = configured_jobs if jobs is None else jobs
    if jobs is not None and jobs > 1:
        jobs = min(jobs, max(2, len(tasks)))  # with one job, joblib would call in this process
    groups, deadly = [list(range(len(tasks)))], set[int]()
    while groups and may_begin():
        group = groups.pop()
        waiting, lost = dict.fromkeys(group), []
        calls = takewhile(lambda _: may_begin(), ((index, tasks[index]) for index in group))
        with closing(attempt(active, jobs, function, calls)) as outcomes:
            for index, result in outcomes:
                del waiting[index]
                if result is LOST:
                    lost.append(index)
                else:
                    yield index, result
        if len(lost) == 1:  # no other call was running
            if lost[0] in deadly:
                yield lost.pop(), LOST
            else:
                deadly.add(lost[0])
        half = len(lost) // 2
        groups += [part for part in (lost[half:], lost[:half], list(waiting)) if part]


def _joblib(active: Any, jobs: int | None, function: Callable[..., Any], calls: Calls) -> Results:
    import joblib
    from joblib.externals.loky.process_executor import TerminatedWorkerError
    from joblib.parallel import LokyBackend, SequentialBackend

    begun: dict[int, None] = {}
    call = joblib.delayed(function)
    if isinstance(active, LokyBackend):
        call = partial(joblib.delayed(_not_longer_than), os.getpid(), function)

    def each() -> Generator[Any, None, None]:
        for index, arguments in calls:
            begun[index] = None
            yield call(index, *arguments)

    threads: AbstractContextManager[Any] = nullcontext()
    if isinstance(active, LokyBackend) and active.inner_max_num_threads is None:
        options = getattr(active, "backend_kwargs", {})
        threads = joblib.parallel_config("loky", inner_max_num_threads=1, **options)
    streams = isinstance(active, SequentialBackend) or active.supports_return_generator
    with threads:
        pool = joblib.Parallel(
            n_jobs=jobs,
            batch_size=1,
            pre_dispatch="n_jobs",  # so that few calls are running when a worker dies
            return_as="generator_unordered" if streams else "list",
        )
        try:
            for index, result in pool(each()):
                del begun[index]
                yield index, result
        except TerminatedWorkerError:
            yield from ((index, LOST) for index in tuple(begun))


def _not_longer_than(parent: int, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function, and make this process exit when its parent does."""
    if os.getppid() == parent:
        _watch(parent)
    return function(*arguments)


@cache
def _watch(parent: int) -> None:
    def watch() -> None:
        while os.getppid() == parent:  # an orphan is adopted by another (except on Windows)
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _dask(active: Any, jobs: int | None, function: Callable[..., Any], calls: Calls) -> Results:
    from distributed import KilledWorker, as_completed

    client, running = active.client, {}
    finished = as_completed(loop=client.loop, with_results=True, raise_errors=False)

    def submit(count: int | None) -> None:
        for index, arguments in islice(calls, count):
            future = client.submit(function, index, *arguments, pure=False, **active.submit_kwargs)
            running[future] = index
            finished.add(future)

    try:
        submit(_window(jobs))
        for future, result in finished:
            index = running.pop(future)
            if future.status == "finished":
                yield result
            elif future.status == "error" and isinstance(result[1], KilledWorker):
                yield index, LOST
            elif future.status == "error":
                raise result[1]
            else:
                raise RuntimeError(f"a call was {future.status} on the Dask cluster")
            submit(1)
    finally:
        client.cancel(list(running))


def _ray(active: Any, jobs: int | None, function: Callable[..., Any], calls: Calls) -> Results:
    import ray
    from ray.exceptions import NodeDiedError, OutOfMemoryError, WorkerCrashedError

    if not ray.is_initialized():
        ray.init()  # connects to $RAY_ADDRESS if it is set
    remote = ray.remote(function).options(max_retries=0, **(active.ray_remote_args or {}))
    running = {}

    def submit(count: int | None) -> None:
        for index, arguments in islice(calls, count):
            running[remote.remote(index, *arguments)] = index

    try:
        submit(_window(jobs))
        while running:
            (reference,), _ = ray.wait(list(running))
            index = running.pop(reference)
            try:
                result = ray.get(reference)
            except (WorkerCrashedError, NodeDiedError, OutOfMemoryError):
                result = index, LOST
            yield result
            submit(1)
    finally:
        for reference in running:
            ray.cancel(reference)


def _window(jobs: int | None) -> int | None:
    """Return the number of calls submitted at once; None for all of them."""
    return jobs if jobs is not None and jobs >= 1 else None
