"""Kernels, clipping and methods need only NumPy, SciPy and Numba, as on some GPU machines."""

import subprocess
import sys

import pytest

MISSING = ["cvxpy", "clarabel", "dp_accounting", "matplotlib", "sklearn", "pooch", "pandas"]
MISSING += ["joblib", "tqdm", "dask", "distributed", "ray"]

CODE = f"""
import sys

for name in {MISSING!r}:
    sys.modules[name] = None  # importing it raises ImportError

import array_api_strict
import numpy as np
import scipy.sparse as sp
import dpanalysis as dpa
from dpanalysis import clipping, losses, problems, regularizers

random = np.random.default_rng(0)
X, y = random.uniform(-1, 1, (200, 3)), np.arange(200) % 2
forms = [np.asarray, np.float32, sp.csr_array, array_api_strict.asarray]
ADD = "add_or_remove_one"
for form in forms:
    erm = dpa.ERM(
        form(X), 2 * y - 1, losses.Logistic(), regularizers.L2(0.1), dpa.RowBound(1, 3.0)
    )
    runs = [
        (erm, dpa.methods.GradientDescent(0.2, 3), dpa.Budget(1.0), "pure"),
        (erm, dpa.methods.HeavyBall(0.2, 0.3, 3, mechanism="gaussian"),
         dpa.Budget(1.0, 1e-6), "zcdp"),
        (erm, dpa.methods.Nesterov(0.2, 3, 0.1, noise="optimal"), dpa.Budget(1.0), "tightest"),
        (erm, dpa.methods.LineSearchSGD(dpa.Poisson(0.5), rho=10.0, epsilon=5.0, iterations=2),
         dpa.Budget(100.0, 1e-6, ADD), "tightest"),
    ]
    rules = [clipping.Flat(0.5), clipping.Automatic(0.1), clipping.PerSampleAdaptive(0.1),
             clipping.Value(0.5, 10.0), clipping.Custom(lambda norm, loss: 1 / (1 + norm), 1.0)]
    networks = [problems.Softmax(form(X), y, 2, row_bound=dpa.RowBound(2, 2.0)),
                problems.MLP(form(X), y, (4,), 2)]
    for i, rule in enumerate(rules):
        kind = dpa.methods.SGD if i % 2 else dpa.methods.Adam
        method = kind(0.1, 3, dpa.Poisson(0.2), rule)
        runs += [(each, method, dpa.Budget(2.0, 1e-4, ADD), "rdp") for each in [erm, *networks]]
    for problem, method, budget, accountant in runs:
        result = dpa.minimize(problem, method, budget, rng=0, replicates=2, accountant=accountant)
        assert result.w.shape == (2, problem.d) and np.isfinite(result.w).all()
        spent = result.epsilon(budget.delta, accountant=accountant)
        assert 0.0 < spent <= budget.epsilon * 1.000001
print(len(runs), "runs")
"""


@pytest.mark.slow
def test_methods_run_without_the_solvers_and_accountants():
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", CODE], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == "19 runs\n"
