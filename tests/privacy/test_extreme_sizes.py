"""Bounds, clip norms and steps near overflow and underflow are charged in full or refused."""

import math

import numpy as np
import pytest

import dpanalysis as dpa
from dpanalysis.privacy.oracle import PrivateOracle
from dpanalysis.privacy.queries import (
    FirstDecrease,
    LastNoisyIterate,
    NoisyCurvature,
    NoisyDescent,
    NoisyHessian,
    NoisyMin,
    NoisyValue,
    Ray,
)

FULL, TINY, ZERO = dpa.Full(), 5e-324, np.zeros(1)
LOGISTIC, SQUARES = dpa.losses.Logistic(), dpa.losses.SquaredError()


def problem_of(X, y, loss=LOGISTIC, radius=None, penalty=None):
    X = np.asarray(X, dtype=float).reshape(len(y), -1)
    bound = None if radius is None else dpa.RowBound(2, radius)
    return dpa.ERM(X, np.asarray(y, dtype=float), loss, penalty, row_bound=bound)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("radius", [1e-165, 2.7e-162, 1e-150, 1e150, 1e155])
def test_radii_neither_underflow_nor_overflow(radius, order):
    """With 1e-165 the sensitivity was 0, so a run that distinguished neighbours cost nothing."""
    problem = dpa.ERM(np.zeros((10, 1)), np.ones(10), LOGISTIC, row_bound=dpa.RowBound(1, radius))
    facts = problem.facts("replace_one")
    assert facts.gradient_bounds[order - 1] == pytest.approx(radius, rel=1e-15)
    assert facts.record_sensitivity(order) >= 2.0 * radius
    assert math.isinf(facts.hessian_bound) or facts.hessian_bound > 0.0


RAY = Ray(ZERO, np.array([1.0]), np.array([0.5]))
TINY_RAY = Ray(ZERO, np.array([1.0]), np.array([TINY]))


@pytest.mark.parametrize(
    "query",
    [
        NoisyValue(ZERO, 1e307, 1e306),
        NoisyValue(ZERO, TINY, 10.0 * TINY),
        NoisyMin(np.zeros((2, 1)), 1e307, 1e306),
        FirstDecrease(RAY, np.array([1.0]), 1e305, "laplace", 1e305, 1e305),
        FirstDecrease(TINY_RAY, np.array([0.0]), 1.0, "laplace", 0.02, 0.04, query="slope_clip"),
        NoisyHessian(ZERO, 1e305),
        NoisyCurvature(ZERO, 1e305, 1),
        NoisyDescent(ZERO, TINY, 1, 1, False, "gaussian", TINY),
        LastNoisyIterate(ZERO, TINY, 1, 1.0),
    ],
    ids=lambda query: type(query).__name__,
)
def test_what_would_overflow_or_vanish_is_refused_before_it_is_charged(query):
    radius = 1e153 if isinstance(query, (NoisyHessian, NoisyCurvature)) else 1.0
    smooth = isinstance(query, (NoisyDescent, LastNoisyIterate))
    penalty = dpa.regularizers.L2(0.1) if smooth else None
    y, loss = ([-1, 1, 1, 1], LOGISTIC) if smooth else ([0, 1, 0, 1], SQUARES)
    problem = problem_of(np.zeros(4), y, loss, radius, penalty)
    oracle = PrivateOracle(problem, problem.facts("replace_one"), None, [0])
    with pytest.raises(ValueError, match="must be at least 1e-250, and n times it at most 1e300"):
        oracle.ask(query, FULL)
    assert not oracle.ledger.events


def test_the_noise_of_a_curvature_comes_before_the_penalty():
    """Noise added after a penalty of 2^59 was rounded: neighbours shared 1 of 1000 answers."""
    found = []
    for first in (66.0, 63.9):
        rows = np.sqrt(np.r_[first, np.full(9, 63.9)])
        problem = problem_of(rows, np.ones(10), SQUARES, 9.0, dpa.regularizers.L2(2.0**59))
        facts = problem.facts("replace_one")
        answers = [
            PrivateOracle(problem, facts, None, [seed]).ask(NoisyCurvature(ZERO, 16.0, 1), FULL)[0]
            for seed in range(200)
        ]
        found.append(np.unique(np.array(answers) - 2.0**59, return_counts=True))
    assert set(found[0][0]) & set(found[1][0])
    shares = [dict(zip(*each)) for each in found]
    most = max(found[0][0], key=shares[0].get)
    assert shares[1].get(most, 0) >= 0.5 * shares[0][most]


def test_a_query_that_changes_the_shape_of_its_noise_states_its_cost():
    class Quiet(NoisyHessian):
        off_diagonal = 0.0

    problem = problem_of(np.full((3, 3), 0.5), np.ones(3), LOGISTIC, 1.0)
    oracle = PrivateOracle(problem, problem.facts("replace_one"), None, [0])
    with pytest.raises(TypeError, match="Quiet overrides off_diagonal, but its event is that of"):
        oracle.ask(Quiet(np.zeros(3), 10.0), FULL)


def test_a_clip_norm_below_what_a_tiny_row_may_add_is_refused():
    facts = problem_of(np.ones(4), [1, 1, -1, 1]).facts("replace_one")
    with pytest.raises(ValueError, match="clip_norm must be at least 1e-70"):
        facts.record_sensitivity(2, dpa.clipping.Flat(1e-240))
