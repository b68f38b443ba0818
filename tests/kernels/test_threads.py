"""Threads that share the tasks of a sum."""

import ctypes
import gc
import os
import platform
import subprocess
import sys
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np
import pytest

from dpanalysis import ERM, _numba, _parallel, clipping, losses
from dpanalysis.kernels.compiled import CompiledSums

needs_two = pytest.mark.skipif(numba.config.NUMBA_NUM_THREADS < 2, reason="one thread only")
needs_cores = pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2,
    reason="this system has one core, or lets nobody choose",
)


@pytest.fixture
def new_pool(monkeypatch):
    """Replace the pool by one without helper threads."""
    monkeypatch.setattr(_parallel, "_pool", _parallel._ThreadPool())
    return _parallel._pool


class Kernel:
    """A kernel in Python that records threads and tasks; ``act`` runs before the first task."""

    def __init__(self, tasks, act=lambda helper: None, work=lambda: None):
        self.tasks, self.act, self.work = tasks, act, work
        self.done, self.came = [], []

    def __call__(self, numbers, wake_flags, helper):
        self.came.append(helper)
        self.act(helper)
        task = _numba.first_task(numbers, wake_flags, helper)
        while task < self.tasks:
            self.work()
            self.done.append(task)
            task = _numba.next_task(numbers)
        _numba.finish(numbers, self.tasks, wake_flags, helper)

    def run(self):
        _parallel.run_tasks(self, (), self.tasks)


@needs_two
def test_every_task_is_done_once_by_more_than_one_thread(new_pool):
    kernel = Kernel(200, work=lambda: time.sleep(1e-4))
    kernel.run()
    assert sorted(kernel.done) == list(range(200))
    assert (
        sorted(kernel.came) == [_parallel.LEADER, 0][: len(kernel.came)] and len(kernel.came) == 2
    )


@needs_two
def test_the_sum_waits_for_a_task_that_a_helper_is_at(new_pool):
    taken, finished = threading.Event(), []

    def work():
        if threading.current_thread().name == "dpanalysis-helper":
            taken.set()
            time.sleep(0.2)
            finished.append(True)
        else:
            assert taken.wait(timeout=30)

    kernel = Kernel(2, work=work)
    kernel.run()
    assert finished and sorted(kernel.done) == [0, 1]


@numba.njit(nogil=True)
def _take_all(numbers, mine):
    count = 0
    task = _numba.first_task(numbers, np.zeros((0, 16), np.int64), _parallel.LEADER)
    while count < mine.shape[0]:
        mine[count] = task
        count += 1
        task = _numba.next_task(numbers)


@pytest.mark.slow
@needs_two
def test_threads_that_never_stop_taking_share_every_number_once():
    _take_all(np.zeros(24, np.int64), np.zeros(1, np.int64))
    for _ in range(5):
        numbers, mine = np.zeros(24, np.int64), np.zeros((4, 100_000), np.int64)
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda part, numbers=numbers: _take_all(numbers, part), mine))
        assert np.unique(mine).size == mine.size


@needs_two
def test_nobody_waits_for_a_helper_that_has_not_begun(new_pool):
    late = threading.Event()

    def act(helper):
        if helper != _parallel.LEADER:
            assert late.wait(timeout=30)

    first, second = Kernel(5, act), Kernel(7)
    first.run()  # would wait for half a minute
    assert sorted(first.done) == list(range(5))
    second.run()  # without the helper
    assert second.came == [_parallel.LEADER] and len(second.done) == 7
    late.set()
    for _ in range(3000):  # the helper returns without a task and joins a later sum
        third = Kernel(9, work=lambda: time.sleep(1e-3))
        third.run()
        if 0 in third.came:
            break
    assert sorted(third.done) == list(range(9)) and 0 in third.came
    assert sorted(first.done) == list(range(5))


@needs_two
def test_a_helper_that_fails_is_an_error_and_not_a_wrong_sum(new_pool):
    taken = threading.Event()

    def act(helper):
        if helper == _parallel.LEADER:
            assert taken.wait(timeout=30)
        else:
            taken.set()

    class Failing(Kernel):
        def __call__(self, numbers, wake_flags, helper):
            if helper != _parallel.LEADER:
                _numba.first_task(numbers, wake_flags, helper)
                self.act(helper)
                raise MemoryError("no room")
            super().__call__(numbers, wake_flags, helper)

    with pytest.raises(MemoryError, match="a thread had no memory"):
        Failing(4, act).run()
    sound = Kernel(4)
    sound.run()
    assert sorted(sound.done) == list(range(4))


@pytest.mark.slow
@needs_two
def test_no_data_are_kept(new_pool):
    class Data:
        pass

    data = Data()
    known = weakref.ref(data)
    kernel = Kernel(50, work=lambda: time.sleep(1e-4))
    _parallel.run_tasks(lambda data, *rest: kernel(*rest), (data,), 50)
    del data
    for _ in range(3000):
        gc.collect()
        if known() is None:
            break
        time.sleep(1e-3)
    assert known() is None


def test_many_callers_at_once_get_the_bits_of_one():
    random = np.random.default_rng(0)
    X, y = random.standard_normal((30_011, 12)), np.sign(random.standard_normal(30_011))
    problem, W = ERM(X, y, losses.Logistic()), random.standard_normal((8, 12))
    expected = [problem.sums(w).gradient for w in W]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            found = list(pool.map(lambda w: problem.sums(w).gradient, W))
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("at", range(1, 4))
def test_another_thread_with_another_rule_does_not_change_the_rule(at):
    """The rule of the last sum is kept; here another one is, from the k-th look at it on."""
    small, large = clipping.Flat(1e-3), clipping.Flat(1e3)
    rows = np.random.default_rng(0).uniform(-1.0, 1.0, (50, 3))
    data = rows, np.sign(rows[:, 0]), losses.Logistic()
    norms = np.linalg.norm(rows, axis=1)

    class Shared(CompiledSums):
        looks, both = 0, (None, None)

        @property
        def _kept(self):
            self.looks += 1
            return self.both[self.looks >= at]

        @_kept.setter
        def _kept(self, _):
            pass

    def gradient(sums):
        return sums.sums(np.zeros((1, 3)), None, small, norms, None, False, True)[1]

    alone, shared = CompiledSums(*data), Shared(*data)
    expected = gradient(alone)
    shared.both = alone._kept, (large, alone._plan(large))
    np.testing.assert_array_equal(gradient(shared), expected)


@needs_two
@needs_cores
def test_helpers_keep_away_from_the_core_of_the_thread_that_asks(new_pool):
    allowed = os.sched_getaffinity(0)
    try:
        for core in sorted(allowed)[:2]:
            os.sched_setaffinity(0, {core})
            Kernel(3).run()  # one core: no helper is used
            os.sched_setaffinity(0, allowed)
            new_pool._core = lambda core=core: core
            Kernel(3).run()
            (helper,) = new_pool._helpers
            assert os.sched_getaffinity(helper._thread.native_id) == allowed - {core}
    finally:
        os.sched_setaffinity(0, allowed)


@needs_two
@needs_cores
def test_one_core_has_no_helpers(new_pool):
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        kernel = Kernel(3)
        kernel.run()
    finally:
        os.sched_setaffinity(0, allowed)
    assert kernel.came == [_parallel.LEADER]


@needs_two
@pytest.mark.skipif(sys.platform != "linux" or platform.machine() != "x86_64", reason="its mode")
def test_no_helper_keeps_a_rounding_mode_of_the_thread_that_started_it(new_pool):
    """It would round down in all later sums, in which the huge record would have no bound."""
    X, w = np.full((40_000, 10), 0.1), np.ones(10)
    X[::100] = 1e300
    problem, rule = ERM(X, np.ones(40_000), losses.SquaredError()), clipping.Flat(1.0)
    rounding = ctypes.CDLL("libm.so.6").fesetround
    rounding(0x400)
    try:
        problem.sums(w, value=False, clipping=rule)
    finally:
        rounding(0)
    for _ in range(20):
        total = problem.sums(w, value=False, clipping=rule)
        np.testing.assert_allclose(total.gradient, 0.0, atol=1e-9)
    assert new_pool._helpers


@needs_two
def test_helpers_run_where_cores_cannot_be_chosen(new_pool, monkeypatch):
    def refuse(thread, cores):
        set(cores)  # a TypeError where there are none, as of the system's function
        raise PermissionError("not here")

    monkeypatch.setattr(os, "sched_setaffinity", refuse, raising=False)
    kernel = Kernel(100, work=lambda: time.sleep(1e-4))
    kernel.run()
    kernel.run()
    assert sorted(kernel.done) == sorted([*range(100)] * 2) and 0 in kernel.came


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_computes_the_same():
    random = np.random.default_rng(1)
    X, y = random.standard_normal((30_011, 12)), np.sign(random.standard_normal(30_011))
    problem, w = ERM(X, y, losses.Logistic()), random.standard_normal(12)
    expected = problem.sums(w).gradient
    child = os.fork()
    if child == 0:
        os._exit(0 if np.array_equal(problem.sums(w).gradient, expected) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_system_without_threads_computes_alone(new_pool, monkeypatch):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    kernel = Kernel(4)
    kernel.run()
    assert kernel.came == [_parallel.LEADER] and len(kernel.done) == 4


@needs_two
def test_the_number_of_threads_of_pytorch_stays_what_it_was():
    pytest.importorskip("torch", reason="PyTorch is not installed")
    program = (
        "import torch; torch.set_num_threads(1); import numpy as np; "
        "from dpanalysis.privacy import mechanisms; "
        "sums = torch.zeros(1, 200_000, dtype=torch.float64); "
        "mechanisms.add_noise(sums, 'gaussian', 1.0, [np.random.default_rng(0)]); "
        "import numba.np.ufunc.parallel as threads; assert threads._is_initialized; "
        "assert torch.get_num_threads() == 1, torch.get_num_threads()"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
