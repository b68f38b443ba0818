"""Sweeps on every backend: the same bits, and a worker that dies loses its own cell only."""

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import joblib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpanalysis as dpa
from dpanalysis._parallel import one_thread
from dpanalysis.experiments import SweepError, backends, sweep

posix = pytest.mark.skipif(os.name == "nt", reason="POSIX signals")


def bits(seed):
    """Numba kernels, BLAS of NumPy and of SciPy: what depends on the number of threads."""
    import scipy.linalg
    from threadpoolctl import threadpool_info

    random = np.random.default_rng(seed)
    X = random.normal(size=(20_000, 20))
    problem = dpa.ERM(X, np.sign(X[:, 0]), dpa.losses.Logistic())
    gram = X.T @ X
    return {
        "gradient": problem.gradient(np.ones(20)),
        "gram": gram,
        "factor": scipy.linalg.cholesky(gram),
        "threads": [pool["num_threads"] for pool in threadpool_info()],
    }


def deadly(seed, log, killers, how="exit"):
    with open(log, "a") as file:
        file.write(f"{seed}\n")
    if seed in killers:
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(0)  # a dead worker, even with exit status 0
    time.sleep(0.02)
    return {"seed": seed}


def once(seed, folder):
    """Kill the first worker that computes this cell."""
    with contextlib.suppress(FileExistsError):
        Path(folder, f"{seed}.mark").touch(exist_ok=False)
        os._exit(1)
    return {"seed": seed}


def where(seed):
    time.sleep(0.05)
    return {"pid": os.getpid(), "thread": threading.get_ident()}


def in_a_script(tmp_path, body):
    """Run ``body`` in a new process with the functions of this file."""
    script = tmp_path / "script.py"
    head = "from test_sweep_backends import *\nif __name__ == '__main__':\n"
    script.write_text(head + "".join(f"    {line}\n" for line in body.splitlines()))
    path = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[2])])
    return subprocess.Popen(
        [sys.executable, str(script)], cwd=tmp_path, env=os.environ | {"PYTHONPATH": path}
    )


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    folder = tmp_path_factory.mktemp("serial")
    return sweep(bits, [{"seed": seed} for seed in range(4)], folder=folder, progress=False)


def assert_same_bits(records, expected):
    for record, other in zip(records, expected, strict=True):
        for name in ("gradient", "gram", "factor"):
            np.testing.assert_array_equal(record.result[name], other.result[name])
        assert set(record.result["threads"]) == {1}


CELLS = [{"seed": seed} for seed in range(4)]


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 3])  # also more than there are cores
@pytest.mark.parametrize("backend", ["loky", "threading"])
def test_same_bits_on_this_machine(tmp_path, expected, backend, jobs):
    records = sweep(bits, CELLS, folder=tmp_path, jobs=jobs, backend=backend, progress=False)
    assert_same_bits(records, expected)


@pytest.mark.slow
def test_the_enclosing_configuration_counts(tmp_path):
    def seen(name, **options):
        records = sweep(where, CELLS, folder=tmp_path / name, progress=False, **options)
        pids = {int(record.result["pid"]) for record in records}
        return pids, {int(record.result["thread"]) for record in records}

    here = ({os.getpid()}, {threading.get_ident()})
    assert seen("a") == here
    with joblib.parallel_config("threading", n_jobs=2):
        pids, idents = seen("b")
        assert pids == here[0] and len(idents) == 2 and not idents & here[1]
        assert seen("c", jobs=1) == here
        assert os.getpid() not in seen("d", backend="loky")[0]
        assert seen("e")[0] == here[0] != seen("e")[1]  # the configuration is as it was
    with joblib.parallel_config(n_jobs=2):
        assert os.getpid() not in seen("f")[0]
    assert seen("g") == here


def test_no_more_workers_than_cells_are_started(tmp_path):
    """A single cell also gets a worker, since it may kill its process."""
    started = []

    class Counted(joblib.parallel.ThreadingBackend):
        def configure(self, n_jobs=1, parallel=None, **options):
            started.append(n_jobs)
            return super().configure(n_jobs, parallel, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(joblib.parallel.BACKENDS, "counted", Counted)
        for count in (3, 1):
            cells = [{"seed": seed + 10 * count} for seed in range(count)]
            sweep(where, cells, folder=tmp_path, jobs=10**6, backend="counted", progress=False)
    assert started == [3, 2]


# A worker dies -------------------------------------------------------------------------------


@pytest.mark.slow
@posix
def test_a_worker_that_dies_loses_its_cell_only(tmp_path):
    log = tmp_path / "log"
    cells = [{"seed": s, "log": str(log), "killers": [2], "how": "kill"} for s in range(8)]
    with pytest.raises(SweepError, match=r"1 of 8 cells failed.*worker died twice") as error:
        sweep(deadly, cells, folder=tmp_path / "cells", jobs=2, progress=False)
    assert [parameters["seed"] for parameters, _ in error.value.failures] == [2]
    others = [int(record.result["seed"]) for record in error.value.records]
    assert others == [0, 1, 3, 4, 5, 6, 7]
    assert log.read_text().split().count("2") >= 2
    log.unlink()
    again = [*cells[:2], *cells[3:]]
    sweep(deadly, again, folder=tmp_path / "cells", jobs=2, progress=False)
    assert not log.exists()  # the others are kept


@pytest.mark.slow
def test_a_worker_that_dies_by_accident_loses_nothing(tmp_path):
    marks = tmp_path / "marks"
    marks.mkdir()
    for seed in range(1, 4):
        Path(marks, f"{seed}.mark").touch()
    cells = [{"seed": seed, "folder": str(marks)} for seed in range(4)]
    records = sweep(once, cells, folder=tmp_path / "cells", jobs=2, progress=False)
    assert [int(record.result["seed"]) for record in records] == [0, 1, 2, 3]


@given(st.integers(0, 30), st.sets(st.integers(0, 29)), st.integers(1, 7), st.randoms())
def test_only_killers_are_lost(count, killers, width, random):
    """For any pool: a killer loses all running cells; some results come before."""
    killers = {index for index in killers if index < count}
    deaths = Counter()

    def attempt(active, jobs, function, calls):
        given = dict(calls)
        waiting, running = list(given), []
        while waiting or running:
            while waiting and len(running) < width:
                running.append(waiting.pop(0))
            index = random.choice(running)
            if index in killers:
                deaths[index] += 1
                yield from ((other, backends.LOST) for other in running)
                return
            running.remove(index)
            yield function(index, *given[index])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backends, "_joblib", attempt)
        tasks = [(10 * index,) for index in range(count)]
        outcomes = list(backends.results(lambda *call: (call[0], call), tasks, 2))
    results = dict(outcomes)
    assert len(outcomes) == count == len(results)
    assert {index for index, result in outcomes if result is backends.LOST} == killers
    assert all(results[i] == (i, 10 * i) for i in range(count) if i not in killers)
    assert all(deaths[index] >= 2 for index in killers)


@pytest.mark.slow
@posix
def test_a_caller_that_is_killed_goes_on_from_there(tmp_path):
    cells = "[{'seed': s, 'log': 'log', 'killers': []} for s in range(300)]"
    body = f"sweep(deadly, {cells}, folder='cells', jobs=2, backend='threading', progress=False)"
    process = in_a_script(tmp_path, body)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and len(list(tmp_path.glob("cells/*.npz"))) < 5:
        time.sleep(0.02)
    process.kill()
    process.wait(timeout=60)
    kept = list(tmp_path.glob("cells/*.npz"))
    assert 5 <= len(kept) < 300
    assert all(np.load(path)["result.seed"] < 300 for path in kept)  # none is half-written
    log = tmp_path / "log"
    log.unlink()
    with contextlib.chdir(tmp_path):
        longer = [{"seed": s, "log": "log", "killers": []} for s in range(300)]
        again = [int(np.load(path)["result.seed"]) for path in kept]
        chosen = [cell for cell in longer if cell["seed"] in again or cell["seed"] >= 290]
        sweep(deadly, chosen, folder="cells", jobs=2, backend="threading", progress=False)
    fresh = {int(seed) for seed in log.read_text().split()}
    assert fresh == set(range(290, 300)) - set(again)


# Threads -------------------------------------------------------------------------------------


def test_threads_share_one_limit():
    """In any order of entry and exit, the limit holds exactly while a thread is inside."""
    import scipy.linalg  # noqa: F401  # with its BLAS
    from threadpoolctl import ThreadpoolController, threadpool_limits

    def blas():
        pools = ThreadpoolController().select(user_api="blas").info()
        return {pool["num_threads"] for pool in pools}

    def cell(entered, leave):
        with one_thread():
            entered.set()
            assert leave.wait(timeout=30)

    with threadpool_limits(2, user_api="blas"):
        if blas() != {2}:
            pytest.skip("this BLAS has one thread only")
        events = [(threading.Event(), threading.Event()) for _ in range(3)]
        cells = [threading.Thread(target=cell, args=pair) for pair in events]
        for thread, (entered, _) in zip(cells, events, strict=True):
            thread.start()
            assert entered.wait(timeout=30)
        for thread, (_, leave) in zip(cells, events, strict=True):  # the first one leaves first
            assert blas() == {1}
            leave.set()
            thread.join()
        assert blas() == {2}


# Bad input -----------------------------------------------------------------------------------


def test_bad_backends_are_refused_before_any_work(tmp_path, monkeypatch):
    for backend in ("lokky", "multiprocessing", 3):
        with pytest.raises(
            ValueError, match=r"backend must be one of .*dask.*loky.*ray.*threading"
        ):
            sweep(bits, CELLS, folder=tmp_path, backend=backend, progress=False)
    refused = pytest.raises(ValueError, match="'multiprocessing' cannot be used")
    with joblib.parallel_config("multiprocessing", n_jobs=2), refused:
        sweep(bits, CELLS, folder=tmp_path, progress=False)
    monkeypatch.setattr(backends, "find_spec", lambda name: None)
    for backend in ("dask", "ray"):
        with pytest.raises(ImportError, match=rf'pip install "dpanalysis-toolkit\[{backend}\]"'):
            sweep(bits, CELLS, folder=tmp_path, backend=backend, progress=False)
    assert list(tmp_path.iterdir()) == []


class Listed(joblib.parallel.ThreadingBackend):
    """A third-party backend that returns all results at the end."""

    supports_return_generator = False


def test_backends_of_others(tmp_path, monkeypatch, expected):
    monkeypatch.setitem(joblib.parallel.BACKENDS, "listed", Listed)
    records = sweep(bits, CELLS, folder=tmp_path, jobs=2, backend="listed", progress=False)
    assert_same_bits(records, expected)


# Clusters ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def client():
    distributed = pytest.importorskip("distributed", reason="dask[distributed] is not installed")
    dask = importlib.import_module("dask")
    options = {"dashboard_address": ":0", "silence_logs": "CRITICAL"}
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, **options) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield distributed, client


@pytest.mark.slow
def test_dask(tmp_path, expected, client):
    records = sweep(bits, CELLS, folder=tmp_path / "a", backend="dask", progress=False)
    assert_same_bits(records, expected)
    with joblib.parallel_config("dask", client=client), contextlib.chdir(tmp_path):
        again = sweep(bits, CELLS, folder="b", jobs=2, progress=False)
        elsewhere = sweep(where, CELLS, folder="c", progress=False)
    assert_same_bits(again, expected)
    assert not {int(record.result["pid"]) for record in elsewhere} & {os.getpid()}


def at_once(index, folder):
    """Return how many calls are running."""
    mark = Path(folder, str(index))
    mark.touch()
    time.sleep(0.1)
    running = len(list(mark.parent.iterdir()))
    mark.unlink()
    return index, running


@contextlib.contextmanager
def one_dask_worker(threads):
    """Run calls in a worker with this many threads."""
    distributed = pytest.importorskip("distributed", reason="dask[distributed] is not installed")
    options = {"n_workers": 1, "threads_per_worker": threads, "dashboard_address": ":0"}
    with (
        distributed.LocalCluster(processes=False, **options) as cluster,
        distributed.Client(cluster) as client,
        joblib.parallel_config("dask", client=client),
    ):
        yield distributed, client


@pytest.mark.parametrize("jobs", [1, 2])
def test_dask_runs_no_more_calls_at_once_than_jobs(tmp_path, jobs):
    with one_dask_worker(threads=3):
        found = dict(backends.results(at_once, [(str(tmp_path),)] * 4, jobs))
    assert found.keys() == {0, 1, 2, 3} and max(found.values()) <= jobs


def test_a_call_that_others_cancel_on_dask_is_an_error(tmp_path):
    with one_dask_worker(threads=1) as (distributed, client):
        found = backends.results(at_once, [(str(tmp_path),)] * 4, 2)
        next(found)
        client.cancel([*map(distributed.Future, client.futures)], force=True)
        with pytest.raises(RuntimeError, match="a call was cancelled on the Dask cluster"):
            list(found)


@pytest.mark.slow
def test_dask_worker_dies(tmp_path, client):
    log = str(tmp_path / "log")
    cells = [{"seed": s, "log": log, "killers": [1]} for s in range(6)]
    with pytest.raises(SweepError, match=r"1 of 6 cells failed.*worker died twice") as error:
        sweep(deadly, cells, folder=tmp_path / "cells", backend="dask", progress=False)
    assert [parameters["seed"] for parameters, _ in error.value.failures] == [1]
    assert [int(record.result["seed"]) for record in error.value.records] == [0, 2, 3, 4, 5]


def test_results_of_a_worker_that_sees_no_folder_are_kept_by_the_caller(tmp_path):
    cell = sweep.__globals__["kept_cell"]("f", 1, {"seed": 1}, tmp_path / "none")
    index, finished = sweep.__globals__["_compute"](7, cell, where, {}, False)
    assert index == 7 and not (tmp_path / "none").exists()
    cell.keep(finished)
    assert cell.load()["pid"] == os.getpid()


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed")
def test_ray(tmp_path, expected):
    """In a separate process, whose end also ends what Ray started."""
    body = """
import ray
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
cells = [{"seed": s, "log": "log", "killers": [1]} for s in range(4)]
sweep(bits, CELLS, folder="cells", backend="ray", jobs=3, progress=False)
try:
    sweep(deadly, cells, folder="cells", backend="ray", progress=False)
except SweepError as error:
    assert [int(record.result["seed"]) for record in error.records] == [0, 2, 3], error.records
    assert "worker died twice" in str(error)
else:
    raise AssertionError("cell 1 cannot finish")
"""
    assert in_a_script(tmp_path, body.strip()).wait(timeout=120) == 0
    records = sweep(bits, CELLS, folder=tmp_path / "cells", progress=False)
    assert_same_bits(records, expected)
    assert len(list(tmp_path.glob("cells/*.npz"))) == len(CELLS) + 3


def begins_and_waits(seed, folder):
    Path(folder, f"{seed}.pid").write_text(str(os.getpid()))
    time.sleep(60)
    return {"seed": seed}


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc")
def test_workers_end_with_a_parent_that_is_killed(tmp_path):
    body = (
        f"cells = [{{'seed': seed, 'folder': {str(tmp_path)!r}}} for seed in range(4)]\n"
        "sweep(begins_and_waits, cells, folder='cells', jobs=2, progress=False)"
    )
    with in_a_script(tmp_path, body) as process:
        until = time.monotonic() + 60
        while len(pids := list(tmp_path.glob("*.pid"))) < 2 and time.monotonic() < until:
            time.sleep(0.1)
        process.kill()
    workers_of = [int(path.read_text() or 0) for path in pids]
    assert len(workers_of) == 2
    until = time.monotonic() + 20  # workers check once a second; idle workers would stay 300 s
    while any(map(alive, workers_of)) and time.monotonic() < until:
        time.sleep(0.1)
    assert not any(map(alive, workers_of))


def alive(pid):
    """Return whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
