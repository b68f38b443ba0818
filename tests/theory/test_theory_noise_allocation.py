"""The certificate of noise on full gradients: both sides of its proof, and attacks on it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

import dpanalysis as dpa
from dpanalysis import theory

SPECTRUM = np.geomspace(0.01, 1.0, 8)


def method_of(name, iterations):
    if name == "GradientDescent":
        return dpa.methods.GradientDescent(1.0, iterations)
    if name == "HeavyBall":
        return dpa.methods.HeavyBall(1.0, 0.6, iterations)
    if name == "Nesterov":
        return dpa.methods.Nesterov(1.0, iterations, 0.01)
    return dpa.methods.MultistageNesterov(iterations, 0.01, 1.0)


NAMES = ["GradientDescent", "HeavyBall", "Nesterov", "MultistageNesterov"]


@pytest.mark.parametrize("name", NAMES)
@given(st.integers(1, 30), st.integers(0, 2**32 - 1))
@settings(max_examples=15)
def test_no_noise_beats_the_certificate(name, iterations, seed):
    """Correlated or not: the dual's gradient differences make it cost as much at least."""
    random = np.random.default_rng(seed)
    spectrum = np.sort(random.uniform(0.01, 1.0, random.integers(1, 9)))
    found = theory.allocation_certificate(method_of(name, iterations), spectrum)
    assert abs(found.gap) < 1e-6
    assert np.diag(found.dual).max() <= 1.0 + 1e-9
    assert np.linalg.matrix_rank(found.dual, tol=1e-6) <= len(spectrum)
    assert np.linalg.eigvalsh(found.dual).min() >= -1e-9
    for scale in (0.1, 1.0):
        shape = np.eye(iterations) + scale * random.standard_normal((iterations, iterations))
        X = shape.T @ shape + 1e-6 * np.eye(iterations)
        cost = np.trace(found.gram @ np.linalg.inv(X)) * np.trace(X @ found.dual)
        assert cost >= found.value * (1.0 - 1e-6)
    assert found.error_of(random.uniform(0.1, 2.0, iterations)) >= found.value * (1.0 - 1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_its_own_variances_attain_it(name):
    found = theory.allocation_certificate(method_of(name, 25), SPECTRUM)
    assert np.isfinite(found.variances).all()
    assert found.error_of(found.variances) == pytest.approx(found.value, rel=1e-12)
    assert (1.0 / found.variances).sum() == pytest.approx(1.0)
    assert found.error(2.0, 0.5) == pytest.approx(16.0 * found.value)
    even = found.error_of(np.ones(25))
    assert even > found.value


def test_the_error_is_that_of_runs():
    """The gap of 4,000 runs from the minimizer, with a fixed seed, within 5 standard errors."""
    problem = dpa.Quadratic(SPECTRUM)
    found = theory.allocation_certificate(method_of("Nesterov", 12), SPECTRUM)
    stds = 0.1 * np.sqrt(found.variances)
    method = dpa.methods.Nesterov(1.0, 12, 0.01, noise=stds, mechanism="gaussian")
    result = dpa.minimize(problem, method, w0=np.zeros(8), rng=0, replicates=4000, record=())
    gaps = problem.value(result.w) - problem.value(np.zeros((1, 8)))
    expected = 0.01 * np.diag(found.gram) @ found.variances
    assert abs(gaps.mean() - expected) < 5.0 * gaps.std() / np.sqrt(4000)


def test_gradient_descent_by_its_formula():
    found = theory.allocation_certificate(dpa.methods.GradientDescent(0.5, 6), [0.3])
    shares = 0.5 * 0.3**0.5 * 0.5**0.5 * 2**0.5 * (1 - 0.15) ** np.arange(5, -1, -1) / 2**0.5
    assert found.value == pytest.approx(shares.sum() ** 2)


def test_the_floor_is_below_the_certificate():
    """At a small mu; the certificate is of unbiased methods once they have converged."""
    mu, n, S = 0.1, 1000, 1.0
    floor = theory.noise_floor(SPECTRUM, S, n, mu)
    ratios = {}
    for name in ("GradientDescent", "Nesterov"):
        found = theory.allocation_certificate(method_of(name, 400), SPECTRUM)
        ratios[name] = found.error(S / n, mu) / floor
        assert ratios[name] > 1.0
    assert ratios["GradientDescent"] < ratios["Nesterov"] < 3.0
    assert floor == pytest.approx((1.0 / SPECTRUM).sum() * 1e-6 / (2.0 * special.expm1(0.01)))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: theory.allocation_certificate(m, [0.0, 1.0]), "spectrum"),
        (lambda m: theory.allocation_certificate(m, [1.0], [-1.0]), "weights"),
        (lambda m: theory.allocation_certificate(m, [1.0], [0.0]), "some noise reach"),
        (lambda m: theory.allocation_certificate(m, [1.0]).error_of([1.0]), "shape"),
        (lambda m: theory.noise_floor([1.0], 1.0, 0, 1.0), "n must be"),
        (lambda m: theory.noise_floor([1.0], 1.0, 1, 0.0), "mu must"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call(dpa.methods.GradientDescent(0.5, 4))
