"""Certificates of noise allocations: no other noise is better, by duality and by search."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpanalysis import privacy, theory
from dpanalysis.methods import GradientDescent, HeavyBall, MultistageNesterov, Nesterov

KAPPA_100 = np.geomspace(0.01, 1.0, 20)
seeds = st.integers(0, 2**32 - 1)


@st.composite
def methods_and_spectra(draw):
    """Return a method that converges on a random spectrum in [mu, 1], and the spectrum."""
    mu = draw(st.sampled_from([1e-3, 0.05, 0.5, 1.0]))
    d, T = draw(st.integers(1, 6)), draw(st.integers(1, 60))
    spectrum = np.array([draw(st.floats(mu, 1.0)) for _ in range(d)])
    alpha = draw(st.floats(0.05, 1.0))
    kind = draw(st.integers(0, 3))
    if kind == 0:
        return GradientDescent(alpha, T), spectrum
    if kind == 1:
        return HeavyBall(alpha, draw(st.floats(0.0, 0.9)), T), spectrum
    if kind == 2:
        return Nesterov(alpha, T, mu), spectrum
    return MultistageNesterov(T, mu, 1.0), spectrum


@given(methods_and_spectra())
def test_primal_and_dual_agree(case):
    best = theory.allocation_certificate(*case)
    norms = np.sqrt((best.response**2).sum(1))
    assert best.value == pytest.approx(norms.sum() ** 2, rel=1e-12)
    assert abs(best.gap) <= 1e-12
    assert ((1.0 / best.allocation) ** 2).sum() == pytest.approx(1.0, rel=1e-12)
    assert (np.linalg.norm(best.dual, axis=1) <= 1.0 + 1e-12).all()
    assert best.value <= best.uniform * (1.0 + 1e-12)


@given(methods_and_spectra(), seeds)
def test_the_error_is_that_of_the_exact_recursion(case, seed):
    """M by its definition: one noisy iteration at a time, by second moments."""
    method, spectrum = case
    variance = np.random.default_rng(seed).random(method.iterations) + 0.1
    M = theory.allocation_certificate(method, spectrum).response
    error = float((M**2).sum(1) @ variance)
    step, beta, gamma, restart = method.coefficients()
    moment = np.zeros((spectrum.size, 2, 2))
    for t in range(method.iterations):
        b, g = (0.0, 0.0) if restart[t] else (beta[t], gamma[t])
        loop = np.zeros_like(moment)
        loop[:, 0, 0] = 1.0 + b - step[t] * spectrum * (1.0 + g)
        loop[:, 0, 1] = -b + step[t] * spectrum * g
        loop[:, 1, 0] = 1.0
        moment = loop @ moment @ loop.transpose(0, 2, 1)
        moment[:, 0, 0] += step[t] ** 2 * variance[t]
    assert error == pytest.approx(0.5 * float(spectrum @ moment[:, 0, 0]), rel=1e-9)


@given(methods_and_spectra(), seeds, st.sampled_from(["diagonal", "correlated", "near"]))
def test_no_other_noise_is_better_against_the_dual(case, seed, kind):
    best = theory.allocation_certificate(*case)
    random, T = np.random.default_rng(seed), best.allocation.size
    if kind == "diagonal":
        C = np.diag(np.exp(random.uniform(-2.0, 2.0, T)))
    else:
        # Correlated noise: lower triangular, as noise must be causal.
        C = np.tril(random.standard_normal((T, T)), -1) / T
        C[np.diag_indices(T)] = np.exp(random.uniform(-1.0, 1.0, T))
        if kind == "near":
            base = 1.0 / np.maximum(best.allocation, best.allocation.min())
            base = np.maximum(base, 1e-3 * base.max())
            C = np.diag(base) @ (np.eye(T) + 0.1 * np.tril(C, -1))
    error = float((np.linalg.solve(C.T, best.response) ** 2).sum())  # tr(M X^-1)
    squared_sensitivity = float(((C @ best.dual) ** 2).sum())  # tr(X Y)
    assert error * squared_sensitivity >= best.value * (1.0 - 1e-9)


def test_a_gradient_that_does_not_matter_has_infinite_noise():
    """One step of size 1/lambda removes all earlier errors."""
    best = theory.allocation_certificate(GradientDescent(0.5, 3), [2.0])
    assert best.allocation.tolist() == [np.inf, np.inf, 1.0]
    assert best.value == best.lower == pytest.approx(0.25)
    assert not best.dual[:2].any()


def test_long_runs_do_not_underflow():
    best = theory.allocation_certificate(GradientDescent(1.0, 3000), [0.3, 0.31])
    assert np.isfinite(best.allocation[-1000:]).all() and abs(best.gap) <= 1e-12
    middle = np.diff(np.log(best.allocation[1500:-1]))
    assert (middle < 0.0).all()  # the noise decreases over all iterations


@pytest.mark.parametrize("iterations", [150, 160, 170, 180, 250, 340])
def test_errors_of_a_method_that_diverges_are_numbers_or_refused(iterations):
    """The response of the first step is 8^(iterations - 1), of which 10^150 is the limit."""
    method = GradientDescent(9.0, iterations)
    if iterations > 166:
        with pytest.raises(ValueError, match="must not diverge"):
            theory.allocation_certificate(method, [1.0])
        return
    best = theory.allocation_certificate(method, [1.0])
    assert np.isfinite([best.value, best.lower, best.uniform]).all() and abs(best.gap) <= 1e-12


@pytest.mark.parametrize(
    "method, uniform, optimal",
    [(GradientDescent(1.0, 690), 17.5, 1.49), (Nesterov(1.0, 89, 0.01), 7.15, 1.86)],
)
def test_numbers_at_condition_number_100(method, uniform, optimal):
    best = theory.allocation_certificate(method, KAPPA_100)
    floor = theory.noise_floor(KAPPA_100, 1e-4, 1e-4)
    assert best.uniform / floor == pytest.approx(uniform, abs=0.01)
    assert best.value / floor == pytest.approx(optimal, abs=0.005)


def test_it_is_the_allocation_of_allocate_gaussian():
    """The best noise is that of Kuru et al. for Gaussians, with exact weights."""
    best = theory.allocation_certificate(Nesterov(1.0, 30, 0.01), KAPPA_100)
    mu, sensitivity = 0.7, 0.02
    std = theory.allocate_gaussian((best.response**2).sum(1), 0.5 * mu**2, sensitivity)
    np.testing.assert_allclose(best.allocation * sensitivity / mu, std, rtol=1e-9)
    events = [privacy.events.Gaussian(each, sensitivity) for each in std]
    spent = privacy.epsilon(events, 1e-5, "replace_one")
    one = privacy.events.Gaussian(1.0, mu)
    assert spent == pytest.approx(privacy.epsilon(one, 1e-5, "replace_one"), rel=1e-6)


def test_weights():
    method = GradientDescent(0.5, 5)
    one = theory.allocation_certificate(method, [0.2, 1.0], weights=[1.0, 0.0])
    alone = theory.allocation_certificate(method, [0.2], weights=1.0)
    assert one.value == pytest.approx(alone.value, rel=1e-12)
    half = theory.allocation_certificate(method, [0.2, 1.0], weights=[0.1, 0.5])
    default = theory.allocation_certificate(method, [0.2, 1.0])
    assert half.value == pytest.approx(default.value, rel=1e-12)
    assert "5 steps" in repr(one)


@given(st.floats(0.01, 3.0), st.floats(0.1, 10.0))
def test_the_floor_is_below_one_gaussian_release(mu, sensitivity):
    """Against a release of the minimizer with Gaussian noise scaled to each eigenvector."""
    # In one dimension: sensitivity S/lambda, standard deviation S/(lambda mu).
    for curvature in (0.3, 2.0):
        error = 0.5 * curvature * (sensitivity / (curvature * mu)) ** 2
        floor = theory.noise_floor([curvature], sensitivity, mu)
        assert floor <= error * (1.0 + 1e-12)
        assert floor == pytest.approx(error * mu**2 / np.expm1(mu**2), rel=1e-12)


@given(st.floats(0.05, 2.0), seeds)
def test_the_floor_on_noise_other_than_gaussian(mu, seed):
    """Both parts of the Hammersley-Chapman-Robbins bound, chi-square by quadrature."""
    # Adding independent noise to a mu-GDP release keeps it mu-GDP and unbiased.
    spread = np.random.default_rng(seed).uniform(0.0, 2.0)
    variance = 1.0 / mu**2 + spread**2
    assert theory.noise_floor([1.0], 1.0, mu) <= 0.5 * variance
    # chi^2 of N(mu, 1) from N(0, 1) is e^(mu^2) - 1.
    x, step = np.linspace(-12.0, 16.0, 200_001, retstep=True)
    density = np.exp(-0.5 * x**2) / np.sqrt(2.0 * np.pi)
    ratio = np.exp(mu * x - 0.5 * mu**2)
    assert (density * (ratio - 1.0) ** 2).sum() * step == pytest.approx(np.expm1(mu**2), rel=1e-8)


def test_floor_scales():
    assert theory.noise_floor([1.0], 2.0, 1.0, n=10) == pytest.approx(0.02 / np.expm1(1.0))
    assert theory.noise_floor([1.0], 1.0, 30.0) == 0.0
    assert theory.noise_floor([1.0], 1e-170, 1e-170) == pytest.approx(0.5)  # squares underflow
    assert theory.noise_floor([1.0, 1.0], 1.0, 1.0) == 2.0 * theory.noise_floor([1.0], 1.0, 1.0)


@pytest.mark.parametrize(
    "call, error, match",
    [
        (lambda: theory.allocation_certificate("GD", [1.0]), TypeError, "state_space"),
        (lambda: theory.allocation_certificate(GradientDescent(1.0, 2), []), ValueError, "spectr"),
        (
            lambda: theory.allocation_certificate(GradientDescent(1.0, 2), [0.0]),
            ValueError,
            "spectr",
        ),
        (
            lambda: theory.allocation_certificate(GradientDescent(1.0, 2), [1.0], [1.0, 2.0]),
            ValueError,
            "weights",
        ),
        (
            lambda: theory.allocation_certificate(GradientDescent(1.0, 2), [1.0], 0.0),
            ValueError,
            "weights",
        ),
        (
            lambda: theory.allocation_certificate(GradientDescent(9.0, 2000), [1.0]),
            ValueError,
            "diverge",
        ),
        (lambda: theory.noise_floor([1.0], 1.0, 0.0), ValueError, "mu"),
        (lambda: theory.noise_floor([1.0], -1.0, 1.0), ValueError, "sensitivity"),
        (lambda: theory.noise_floor([1.0], 1.0, 1.0, n=0), ValueError, "n must"),
    ],
)
def test_refusals(call, error, match):
    with pytest.raises(error, match=match):
        call()
