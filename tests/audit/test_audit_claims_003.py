"""What the claims of paper 003 compute with, and that each of them can fail."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from dpanalysis import privacy
from dpanalysis.audit.papers import second_order, second_order_bounds, second_order_steps

seeds = st.integers(0, 2**32 - 1)


def test_stopping_against_simulation():
    """False alarm below 1e-8: six standard errors, twice."""
    shift, barriers = 0.7, np.array([0.8, 0.3, 1.5, -math.inf])
    epsilons = np.array([0.5, 0.6, 0.9, 1.2])
    random = np.random.default_rng(0)
    size = 400_000
    losses = np.cumsum(0.5 * shift**2 + shift * random.normal(size=(size, 4)), axis=1)
    last = np.argmax(losses >= barriers, axis=1)
    reached = losses[np.arange(size), last]
    gains = np.maximum(0.0, -np.expm1(epsilons[last] - reached))
    delta = second_order.stopping_delta(shift, barriers, epsilons)
    assert abs(gains.mean() - delta) < 6.0 * gains.std() / math.sqrt(size)
    moments = np.exp(0.5 * reached)  # order 1.5
    exact = math.exp(0.5 * second_order.stopping_divergence(shift, barriers, 1.5))
    assert abs(moments.mean() - exact) < 6.0 * moments.std() / math.sqrt(size)


def test_a_run_that_never_stops_early_is_a_gaussian_release():
    barriers = np.array([50.0] * 8 + [-math.inf])
    delta = second_order.stopping_delta(0.4, barriers, np.full(9, 0.9))
    assert delta == pytest.approx(privacy.gaussian_delta(1.0 / 1.2, 0.9), rel=1e-9)
    assert second_order.stopping_divergence(0.4, barriers, 3.0) == pytest.approx(1.5 * 1.44)


@given(seeds, st.booleans())
def test_landscapes_have_their_derivatives_and_constants(seed, cubic):
    random = np.random.default_rng(seed)
    d = int(random.integers(1, 4))
    f = second_order_steps.waves(random, d, cubic)
    w, step = random.normal(size=d), 1e-5 * random.normal(size=d)
    change = f.value(w + step) - f.value(w - step)
    assert change == pytest.approx(2.0 * f.gradient(w) @ step, abs=1e-9)
    turn = f.gradient(w + step) - f.gradient(w - step)
    np.testing.assert_allclose(turn, 2.0 * f.hessian(w) @ step, atol=1e-8)
    far = w + random.normal(size=d)
    distance = np.linalg.norm(far - w)
    assert np.linalg.norm(f.gradient(far) - f.gradient(w)) <= f.G * distance * (1 + 1e-9)
    bend = np.linalg.norm(f.hessian(far) - f.hessian(w), 2)
    assert bend <= f.M * distance * (1 + 1e-9)


@given(seeds)
def test_sigmoid_curvature_against_differences(seed):
    """The change of a Hessian when one of two equal rows of the sigmoid loss changes sides."""
    random = np.random.default_rng(seed)
    w = random.normal(size=1)
    z, h = float(w[0]), 1e-3
    second = (special.expit(-z - h) - 2.0 * special.expit(-z) + special.expit(-z + h)) / h**2
    got = second_order.sigmoid_change(w, np.ones(1), np.zeros(1), 1.0, 1.0)
    assert got == pytest.approx(abs(second) / second_order.SIGMOID_CURVATURE, abs=1e-5)


@given(seeds, st.integers(1, 8))
def test_lanczos_is_the_best_of_the_krylov_space(seed, steps):
    random = np.random.default_rng(seed)
    spectrum, start = random.normal(size=9), random.normal(size=9)
    krylov = np.linalg.qr(spectrum[:, None] ** np.arange(steps) * start[:, None])[0]
    best = np.linalg.eigvalsh(krylov.T @ (spectrum[:, None] * krylov))[0]
    gap = best - spectrum.min()
    shares = [
        second_order_bounds.lanczos_misses(spectrum, steps, accuracy, start[None, :])
        for accuracy in (gap - 1e-5, gap + 1e-5)
    ]
    assert shares == [1.0, 0.0]


# Claims whose statement is made a little stronger than the truth, by a wrong constant.
WRONG = [
    ("003-1", second_order, "LOGISTIC_CURVATURE", 0.249),
    ("003-1", second_order, "SIGMOID_CURVATURE", 0.0962),
    ("003-3", second_order, "gaussian_epsilon", lambda s, d: privacy.gaussian_epsilon(1.05 * s, d)),
    ("003-4", second_order, "gaussian_delta", lambda s, e: privacy.gaussian_delta(1.01 * s, e)),
    ("003-5", second_order, "unit", lambda x: 1.01 * x / max(1.0, float(np.linalg.norm(x)))),
    ("003-7", second_order_steps, "unit", lambda x: 1.01 * x / max(1.0, float(np.linalg.norm(x)))),
    ("003-8", second_order_steps, "roots", lambda c, c_H, c2: (0.0, 3.0 * (1.0 - c - c_H))),
    ("003-10", second_order_bounds, "batch_cost", lambda a, s, q: q * q * a / s**2),
    (
        "003-12",
        second_order_bounds,
        "penalty_curvature",
        lambda w: (2 - 6.1 * w**2) / (1 + w**2) ** 3,
    ),
    ("003-15", second_order_bounds, "PENALTY_BEND", 4.66),
    ("003-15", second_order_bounds, "LOGISTIC_BEND", -0.1),
]


@pytest.mark.parametrize(("name", "module", "attribute", "wrong"), WRONG)
def test_a_claim_fails_where_it_is_wrong(monkeypatch, fails, name, module, attribute, wrong):
    monkeypatch.setattr(module, attribute, wrong)
    assert fails(name)
