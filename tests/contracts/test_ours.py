"""The losses, rules, problems and methods of the package pass its own contract checks."""

import dataclasses
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp

import dpanalysis as dpa
from dpanalysis import clipping, losses, methods, problems, testing

M, R = methods, dpa.regularizers

LOSSES = [
    losses.Logistic(),
    losses.SquaredError(),
    losses.Hinge(),
    *(losses.HuberizedHinge(width) for width in (0.02, 0.5, 3.0)),
    *(losses.Huber(width) for width in (0.02, 0.5, 3.0)),
]
RULES = [
    clipping.Flat(1.0),
    clipping.Flat(1e-3),
    clipping.Automatic(0.1),
    clipping.PerSampleAdaptive(0.1, 2.0),
    clipping.Value(1.0, 4.0),
    clipping.Value(1.0, *losses.Hinge().weak_growth(2.0)),
]


def tanh(norm, loss):
    return np.tanh(norm) / norm if norm > 1e-9 else 1.0


def pairs(n=50):
    """Return problems of every kind, each with a neighbour whose record 7 has the largest norm."""
    rng = np.random.default_rng(11)
    X, y = rng.uniform(-1.0, 1.0, (n, 3)), rng.choice([-1.0, 1.0], n)
    other = X.copy()
    other[7] = [-1.5, 0.0, 0.0]
    bound, k = dpa.RowBound(2, 1.5), (y > 0.0).astype(int)
    kinds = {
        "logistic": lambda X: dpa.ERM(X, y, losses.Logistic(), R.L2(0.1), bound),
        "sparse": lambda X: dpa.ERM(
            sp.csr_array(X), y, losses.HuberizedHinge(), R.GemanMcClure(0.1), bound
        ),
        "hinge": lambda X: dpa.ERM(X.astype(np.float32), y, losses.Hinge(), None, bound),
        "squares": lambda X: dpa.ERM(X, 3.0 * y, losses.SquaredError()),
        "softmax": lambda X: problems.Softmax(X, k, 2, R.L2(0.1), bound),
        "relu": lambda X: problems.MLP(X, k, (4,), 2, row_bound=bound),
        "tanh": lambda X: problems.MLP(X, k, (4, 3), 2, activation="tanh", row_bound=bound),
        "quadratic": lambda X: dpa.Quadratic([0.5, 1.0], [1.0, -1.0], sensitivity=0.1),
        "public": lambda X: dpa.Quadratic([0.5, 1.0]),
    }
    return {name: (make(X), make(other)) for name, make in kinds.items()}


PAIRS = pairs()
METHODS = [
    M.GradientDescent(0.5, 8),
    M.HeavyBall(0.5, 0.3, 8, mechanism="gaussian"),
    M.Nesterov(0.5, 8, mu=0.1, noise="optimal"),
    M.Nesterov(0.5, 8, mu=0.1, choose_iterations=1.0, sampling=dpa.WithoutReplacement(20)),
    M.MultistageNesterov(12, mu=0.5, L=1.0),
    M.SGD(0.3, 8, dpa.Poisson(0.1), clipping.Flat(1.0)),
    M.SGD(0.3, 8, dpa.WithReplacement(20), None, mechanism="laplace"),
    M.Adam(0.1, 8, dpa.WithoutReplacement(20), clipping.Automatic(0.1)),
    M.LineSearchSGD(dpa.Poisson(0.3), rho=0.1, epsilon=0.5),
    M.LineSearchSGD(dpa.Poisson(0.3), rho=0.1, epsilon=0.5, fresh_batch=True),
    M.LineSearchSGD(dpa.WithoutReplacement(60), rho=0.02, epsilon=0.2, clip_decay=0.05),
    M.LineSearchSGD(dpa.Full(), rho=0.02, epsilon=0.2, adapt="always", noise="gaussian"),
    M.LineSearchGD(rho=0.02, epsilon=0.2),
    M.LineSearchGD(rho=0.02, epsilon=0.2, query="difference_clip"),
    M.AdaptiveGD(rho=0.02, selection_rho=0.02),
    M.AdaptiveGD(rho=0.02, selection_rho=0.02, noise="exponential"),
    M.GeneticSearch(population=20, parents=4),
    M.SecondOrder(0.22, 0.4, step="line_search"),
    M.SecondOrder(0.15, 0.4, two_phase=True, sampling=dpa.WithoutReplacement(100)),
    M.TrustRegion(0.15, 0.4),
    M.NoisyGradientDescent2NS(0.22, 0.4),
    M.ObjectivePerturbation(),
    M.LastIterate(M.GradientDescent(0.5, 8, mechanism="gaussian")),
    M.LastIterate(M.GradientDescent(0.5, 8, mechanism="gaussian"), batches=4),
    M.OutputPerturbation("gradient_descent", passes=5),
    M.OutputPerturbation(passes=2, batches=5),
    M.SGD(0.3, 8, dpa.Shuffle(4), clipping.Flat(1.0)),
    M.Adam(0.1, 8, dpa.BallsInBins(4), clipping.Flat(1.0)),
]


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_losses(loss):
    testing.check_loss(loss)


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_rules(rule):
    testing.check_clipping(rule)


def test_a_rule_of_a_function():
    testing.check_clipping(clipping.Custom(tanh, 1.0), compiled=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", PAIRS)
def test_problems(name):
    testing.check_problem(*PAIRS[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["relu", "tanh"])
def test_networks_with_negative_curvature_pass(name):
    """With so few records the check finds negative curvature, which mu = 0 allows."""
    testing.check_problem(*pairs(25)[name])


@pytest.mark.parametrize("method", METHODS, ids=lambda m: repr(m)[:70])
def test_a_method_keeps_the_number_that_an_array_held_when_it_was_checked(method):
    values = {field.name: getattr(method, field.name) for field in dataclasses.fields(method)}
    arrays = {name: np.array(v) for name, v in values.items() if type(v) in (int, float)}
    made = dataclasses.replace(method, **arrays)
    for array in arrays.values():
        array[...] = 0
    assert made == method


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS, ids=lambda m: repr(m)[:70])
def test_methods(method):
    testing.check_method(method)


@pytest.mark.slow
@pytest.mark.parametrize(
    "method", [METHODS[0], METHODS[8], METHODS[12]], ids=lambda m: repr(m)[:30]
)
@pytest.mark.parametrize("name", ["softmax", "tanh"])
def test_methods_on_other_problems(method, name):
    problem, neighbour = PAIRS[name]
    rule = method.clipping or clipping.Flat(1.0)
    if isinstance(method, M.GradientDescent):
        method = M.GradientDescent(0.1, 4, clipping=rule, mechanism="gaussian")
    testing.check_method(method, problem, neighbour=neighbour)


def test_everything_public_is_listed():
    """A new loss, rule, problem or method is checked by being listed above."""

    def classes(module, base):
        found = (getattr(module, name) for name in module.__all__)
        return {
            each
            for each in found
            if isinstance(each, type)
            and issubclass(each, base)
            and not getattr(each, "__abstractmethods__", None)
        }

    def kinds(objects):
        return {type(each) for each in objects}

    assert classes(losses, losses.Loss) - {losses.Loss} == kinds(LOSSES)
    assert classes(clipping, clipping.Clipping) == {*kinds(RULES), clipping.Custom}
    assert classes(problems, dpa.Problem) == kinds(problem for problem, _ in PAIRS.values())
    assert classes(methods, methods.Method) == kinds(METHODS)


@pytest.mark.slow
def test_the_checks_need_no_test_runner():
    """They work where pytest is not installed, and importing them costs nothing."""
    code = (
        "import sys, dpanalysis as dpa; dpa.testing; assert 'numpy' not in sys.modules; "
        "dpa.testing.check_method(dpa.methods.GradientDescent(0.5, 2)); "
        "dpa.testing.check_mechanism; dpa.testing.check_problem(dpa.Quadratic([1.0])); "
        "assert not {'pytest', 'hypothesis'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
