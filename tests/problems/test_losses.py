"""Losses, penalties and clipping rules on their own, and their compiled twins."""

import math

import array_api_strict
import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpanalysis import clipping, losses, regularizers
from dpanalysis.kernels import scalar

LOSSES = [losses.Logistic(), losses.SquaredError()]
MARGINS = np.concatenate([-np.logspace(-12, 4, 60), [0.0], np.logspace(-12, 4, 60)])


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("y", [-1.0, 1.0])
def test_derivatives_match_finite_differences(loss, y):
    z = np.linspace(-6.0, 6.0, 49)
    h = 1e-5
    slope = (loss.value(z + h, y) - loss.value(z - h, y)) / (2 * h)
    np.testing.assert_allclose(loss.derivative(z, y), slope, atol=1e-9)
    curvature = (loss.derivative(z + h, y) - loss.derivative(z - h, y)) / (2 * h)
    np.testing.assert_allclose(loss.second_derivative(z, y), curvature, atol=1e-9)


@pytest.mark.parametrize("y", [-1.0, 1.0])
def test_logistic_matches_mpmath_at_every_margin(y):
    loss = losses.Logistic()
    with mpmath.workdps(40):
        exact = [mpmath.log1p(mpmath.exp(-mpmath.mpf(y) * mpmath.mpf(z))) for z in MARGINS]
        slope = [-y / (1 + mpmath.exp(mpmath.mpf(y) * mpmath.mpf(z))) for z in MARGINS]
    np.testing.assert_allclose(loss.value(MARGINS, y), [float(v) for v in exact], rtol=1e-14)
    np.testing.assert_allclose(
        loss.derivative(MARGINS, y), [float(v) for v in slope], rtol=1e-14, atol=1e-300
    )


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_nan_stays_nan(loss):
    for term in (loss.value, loss.derivative, loss.second_derivative):
        assert np.isnan(term(np.array([np.nan]), np.array([1.0]))).all()


def test_constants_are_tight():
    logistic, squared = losses.Logistic(), losses.SquaredError()
    z = np.linspace(-8.0, 8.0, 16_001)
    h = 1e-3
    third = np.diff(logistic.second_derivative(z, 1.0)) / h
    assert np.abs(logistic.derivative(MARGINS, 1.0)).max() == logistic.lipschitz == 1.0
    assert logistic.second_derivative(z, 1.0).max() == logistic.smoothness == 0.25
    assert np.abs(third).max() == pytest.approx(logistic.hessian_lipschitz, rel=1e-6)
    assert logistic.hessian_lipschitz == pytest.approx(1 / (6 * math.sqrt(3)), rel=1e-15)
    assert (squared.lipschitz, squared.smoothness, squared.hessian_lipschitz) == (math.inf, 1, 0)


def test_weak_growth_is_tight():
    with mpmath.workdps(30):
        ratio = lambda p: (1 - p) ** 2 / -mpmath.log(p)  # noqa: E731
        kappa = ratio(mpmath.findroot(lambda p: mpmath.diff(ratio, p), 0.28))
    beta1, beta2 = losses.Logistic().weak_growth(3.0)
    assert beta1 == pytest.approx(9.0 * float(kappa), rel=1e-15)
    assert beta2 == 0.0
    z = np.linspace(-30, 30, 60_001)
    for loss in LOSSES:
        beta1, _ = loss.weak_growth(1.0)
        slack = beta1 * loss.value(z, 1.0) - loss.derivative(z, 1.0) ** 2
        assert slack.min() >= -1e-12
        # Any smaller constant fails somewhere.
        assert (slack - 1e-3 * loss.value(z, 1.0)).min() < 0
    with pytest.raises(ValueError, match="row_norm"):
        losses.Logistic().weak_growth(-1.0)


@pytest.mark.parametrize("xp", [np, array_api_strict])
@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_losses_run_in_any_namespace(xp, loss):
    z, y = xp.asarray([-2.0, 0.5]), xp.asarray([1.0, -1.0])
    for name in ("value", "derivative", "second_derivative"):
        expected = getattr(loss, name)(np.array([-2.0, 0.5]), np.array([1.0, -1.0]))
        np.testing.assert_array_equal(np.asarray(getattr(loss, name)(z, y)), expected)


def test_losses_are_values():
    assert losses.Logistic() == losses.Logistic() != losses.SquaredError()
    assert hash(losses.Logistic()) == hash(losses.Logistic())
    assert repr(losses.SquaredError()) == "SquaredError()"


# The polynomials


def test_polynomials_are_accurate_to_1e_15_over_the_whole_range():
    random = np.random.default_rng(0)
    a = np.concatenate(
        [random.uniform(0, 708, 3000), np.logspace(-300, 0, 301), np.arange(0, 708) * math.log(2)]
    )
    a = a[a <= 708]
    with mpmath.workdps(40):
        exact = [mpmath.exp(-mpmath.mpf(v)) for v in a]
        error = max(abs(mpmath.mpf(scalar.exp_neg(v)) / e - 1) for v, e in zip(a, exact))
        assert error <= 1e-15
        e = np.concatenate([random.random(2000), np.logspace(-300, 0, 301), [0.5, 1.0]])
        exact = [mpmath.log1p(mpmath.mpf(v)) for v in e]
        error = max(abs(mpmath.mpf(scalar.log1p_unit(v)) / x - 1) for v, x in zip(e, exact))
        assert error <= 1e-15


def test_polynomials_at_the_ends():
    assert scalar.exp_neg(0.0) == 1.0
    assert scalar.exp_neg(709.0) == scalar.exp_neg(1e308) == scalar.exp_neg(math.inf) == 0.0
    assert math.isnan(scalar.exp_neg(math.nan))
    assert scalar.log1p_unit(0.0) == 0.0


# Penalties


@pytest.mark.parametrize("xp", [np, array_api_strict])
def test_l2_terms(xp):
    penalty = regularizers.L2(0.5)
    w = np.array([[1.0, -2.0], [0.0, 3.0]])
    np.testing.assert_allclose(np.asarray(penalty.value(xp.asarray(w))), [1.25, 2.25])
    np.testing.assert_allclose(np.asarray(penalty.gradient(xp.asarray(w))), 0.5 * w)
    np.testing.assert_allclose(np.asarray(penalty.hessian_diagonal(xp.asarray(w))), 0.5)
    assert penalty.mu == penalty.L == 0.5


@pytest.mark.parametrize("strength", [-1.0, math.nan, math.inf])
def test_l2_rejects(strength):
    with pytest.raises(ValueError, match="strength"):
        regularizers.L2(strength)


# Clipping


@given(st.floats(0.0, 1e200), st.floats(1e-100, 1e100))
def test_flat_never_exceeds_the_bound_and_leaves_the_rest(norm, bound):
    weight = float(clipping.Flat(bound).weight(np.array([norm]))[0])
    assert weight * norm <= bound
    assert weight == 1.0 if norm <= bound else weight * norm >= bound * (1 - 1e-14)
    assert scalar.clip_weight(clipping.Flat.code, bound, norm) == pytest.approx(weight, rel=1e-15)


def test_flat_keeps_nan_and_runs_in_any_namespace():
    norms = np.array([0.0, 1.0, 4.0, np.nan, np.inf])
    weights = clipping.Flat(2.0).weight(norms)
    np.testing.assert_allclose(weights, [1.0, 1.0, 0.5, np.nan, 0.0])
    strict = clipping.Flat(2.0).weight(array_api_strict.asarray(norms))
    np.testing.assert_array_equal(np.asarray(strict), weights)


@pytest.mark.parametrize("clip_norm", [0.0, -1.0, math.nan, math.inf])
def test_flat_rejects(clip_norm):
    with pytest.raises(ValueError, match="clip_norm"):
        clipping.Flat(clip_norm)
