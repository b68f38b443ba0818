"""Bounds for the last iterate: exact on quadratics, never below exact laws, and the proof."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dpanalysis import privacy
from dpanalysis.privacy import last_iterate_gdp, last_iterate_gdp_cyclic

contractions = st.one_of(st.floats(0.0, 1.0), st.sampled_from([0.0, 1e-9, 1.0 - 1e-9, 1.0]))


def exact_mu(slopes, moves):
    """Mu of the last iterate of x -> slope x + move + N(0, 1) against moves of 0, by its law."""
    mean = variance = 0.0
    for slope, move in zip(slopes, moves, strict=True):
        mean, variance = slope * mean + move, slope**2 * variance + 1.0
    return abs(mean) / np.sqrt(variance)


def shifts(contraction, moves, powers):
    """Shifts in proportion to powers of c over the marked steps, and the lemma's z."""
    T = len(moves)
    weights = np.array([contraction ** (T - 1 - k) for k in range(T)])
    share = np.where(powers, weights, 0.0)
    u = share * (weights @ moves) / (weights @ share)
    z, path = 0.0, []
    for move, shift in zip(moves, u):
        z = contraction * z + move - shift
        path.append(z)
    return u, np.array(path)


@given(st.integers(1, 200), st.floats(0.0, 5.0), contractions)
def test_equality_on_quadratics(steps, ratio, c):
    exact = exact_mu([c] * steps, [ratio] * steps)
    assert last_iterate_gdp(steps, ratio, c) == pytest.approx(exact, rel=1e-10, abs=1e-300)


@given(st.integers(1, 40), st.floats(0.01, 0.99), st.integers(0, 2**32 - 1))
def test_never_below_other_quadratics(steps, c, seed):
    """Slopes in [-c, c] that change from step to step, and moves of any sign up to the bound."""
    random = np.random.default_rng(seed)
    slopes, moves = random.uniform(-c, c, steps), random.uniform(-1.0, 1.0, steps)
    bound = last_iterate_gdp(steps, 1.0, c)
    assert exact_mu(slopes, moves) <= bound * (1.0 + 1e-12)
    assert exact_mu(np.abs(slopes), np.ones(steps)) <= bound * (1.0 + 1e-12)


@given(st.integers(1, 12), st.integers(1, 12), st.floats(0.0, 1.0), st.integers(0, 11))
def test_cyclic_is_never_below_the_exact_law(passes, batches, c, place):
    moves = [float(k % batches == place % batches) for k in range(passes * batches)]
    exact = exact_mu([c] * len(moves), moves)
    bound = last_iterate_gdp_cyclic(passes, batches, 1.0, c)
    assert exact <= bound * (1.0 + 1e-12)
    assert 1.0 <= bound <= np.sqrt(passes) * (1.0 + 1e-12)


@given(st.integers(2, 10), st.integers(1, 10), st.floats(0.05, 1.0))
@example(3, 4, 1.0)
def test_shifts_of_the_proof(passes, batches, c):
    """No z is negative, the last is 0, and the squares of the shifts sum to the bounds."""
    steps = passes * batches
    u, z = shifts(c, np.ones(steps), np.ones(steps, bool))
    assert z.min() >= -1e-9 and abs(z[-1]) <= 1e-9
    assert u @ u == pytest.approx(last_iterate_gdp(steps, 1.0, c) ** 2, rel=1e-9)
    # From the first batch of the record to just before its last, which is shifted in full.
    moves = np.array([float(k % batches == 0) for k in range((passes - 1) * batches)])
    u, z = shifts(c, moves, np.ones(moves.size, bool))
    assert z.min() >= -1e-9 and abs(z[-1]) <= 1e-9
    bound = last_iterate_gdp_cyclic(passes, batches, 1.0, c) ** 2
    assert 1.0 + u @ u == pytest.approx(bound, rel=1e-9)


@given(contractions, st.integers(1, 50), st.floats(0.0, 5.0))
def test_one_step_or_one_pass_is_the_gaussian(c, batches, ratio):
    assert last_iterate_gdp(1, ratio, c) == pytest.approx(ratio, rel=1e-12)
    assert last_iterate_gdp_cyclic(1, batches, ratio, c) == ratio


@given(st.integers(1, 300), st.integers(1, 30), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_monotone(steps, batches, c, other):
    low, high = sorted((c, other))
    smaller, larger = (last_iterate_gdp(steps, 1.0, each) for each in (low, high))
    assert smaller <= larger * (1.0 + 1e-12)
    assert larger <= last_iterate_gdp(steps + 1, 1.0, high) * (1.0 + 1e-12)
    longer = last_iterate_gdp_cyclic(steps + 1, batches, 1.0, high)
    assert last_iterate_gdp_cyclic(steps, batches, 1.0, high) <= longer * (1.0 + 1e-12)


@pytest.mark.parametrize("condition, epsilon", [(10, 0.80), (100, 2.94), (1000, 7.16)])
def test_gains(condition, epsilon):
    """T = 1000, ratio .05, step 1/M; composition costs 7.51."""
    mu = last_iterate_gdp(1000, 0.05, 1.0 - 1.0 / condition)
    assert privacy.gaussian_epsilon(1.0 / mu, 1e-5) == pytest.approx(epsilon, abs=0.01)
    composed = privacy.gaussian_epsilon(20.0 / np.sqrt(1000.0), 1e-5)
    assert composed == pytest.approx(7.51, abs=0.01)


@pytest.mark.parametrize(
    "call, match",
    [
        (lambda: last_iterate_gdp(0, 1.0, 0.5), "steps"),
        (lambda: last_iterate_gdp(1, -1.0, 0.5), "ratio"),
        (lambda: last_iterate_gdp(1, 1.0, 1.01), "contraction"),
        (lambda: last_iterate_gdp(1, 1.0, -0.1), "contraction"),
        (lambda: last_iterate_gdp_cyclic(0, 1, 1.0, 0.5), "passes"),
        (lambda: last_iterate_gdp_cyclic(1, 0, 1.0, 0.5), "batches"),
        (lambda: last_iterate_gdp_cyclic(1, 1, np.nan, 0.5), "ratio"),
        (lambda: last_iterate_gdp_cyclic(1, 1, 1.0, 2.0), "contraction"),
    ],
)
def test_refusals(call, match):
    with pytest.raises(ValueError, match=match):
        call()
