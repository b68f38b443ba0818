"""PyTorch networks on a GPU: sums equal to the host's, sensitivity, synchronizations."""

import copy
import warnings
from pathlib import Path

import numpy as np
import pytest

import dpanalysis as dpa

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch==2.13.0")
from test_modules import MODULES, RULES, problem_of  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-9}


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("name", MODULES)
def test_sums_are_those_of_the_host(name, dtype):
    torch.manual_seed(0)
    host, module, X, y = problem_of(name, dtype, chunk=4)
    device = dpa.problems.Module(copy.deepcopy(module), X, y, chunk=4, device="cuda")
    rows, w = np.array([0, 3, 3, 10, 7, 2, 9]), 0.9 * host.initial()
    for rule in [None, *RULES]:
        expected, found = (p.sums(w, rows=rows, clipping=rule) for p in (host, device))
        error = np.abs(found.gradient - expected.gradient).max()
        assert error <= TOLERANCE[dtype] * np.abs(expected.gradient).max()
        assert found.value == pytest.approx(expected.value, rel=TOLERANCE[dtype])
    device.check_private()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
def test_one_record_moves_a_sum_by_no_more_than_its_bound(rule):
    problem = problem_of("conv2d", torch.float32, n=40, chunk=8, device="cuda")[0]
    moved = problem.facts("replace_one").record_sensitivity(2, rule)
    for scale in (1e-30, 1.0, 1e3, 1e15):
        w = scale * problem.initial()
        # Record 39 takes the place of record i: every other one stays where it is.
        for i in (0, 13, 38):
            rows = np.arange(39)
            whole = problem.sums(w, rows=rows, clipping=rule).gradient
            rows[i] = 39
            other = problem.sums(w, rows=rows, clipping=rule).gradient
            assert np.linalg.norm(whole - other) <= moved


@pytest.mark.filterwarnings("ignore:the guarantee is incomplete")  # where kernels keep no bits
def test_a_run_is_that_of_the_host():
    torch.manual_seed(0)
    host, module, X, y = problem_of("conv2d", n=60)
    device = dpa.problems.Module(module, X, y, device="cuda")
    method = dpa.methods.SGD(0.5, 20, dpa.Poisson(0.3), dpa.clipping.Flat(0.5))
    budget = dpa.Budget(4.0, delta=1e-4, relation="add_or_remove_one")
    results = [dpa.minimize(p, method, budget, rng=0, record=()) for p in (host, device)]
    assert max(result.epsilon() for result in results) <= 4.0  # each charged for its rounding
    np.testing.assert_allclose(results[1].w, results[0].w, atol=1e-8)


def test_the_host_waits_once_for_a_sum():
    problem = problem_of("conv2d", torch.float32, n=64, chunk=16, device="cuda")[0]
    w = problem.initial()
    problem.sums(w, clipping=RULES[0], value=False)  # libraries are loaded
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as waits:
            warnings.simplefilter("always")
            problem.sums(w, clipping=RULES[0], value=False)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    said = [each for each in waits if "called a sync" in str(each.message)]
    found = [Path(each.filename).name for each in said]
    assert found == ["_aliases.py", "_devices.py"]  # the iterate is sent, the sum comes back
