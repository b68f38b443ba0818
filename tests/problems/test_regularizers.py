"""Penalties: finite differences, attained curvature bounds, extreme parameters."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import dpanalysis as dpa

PENALTIES = {
    "l2": dpa.regularizers.L2(0.3),
    "geman_mcclure": dpa.regularizers.GemanMcClure(0.3),
}


@pytest.fixture(params=PENALTIES)
def penalty(request):
    return PENALTIES[request.param]


def test_derivatives_are_those_of_the_value(penalty):
    h = 1e-5
    w = np.linspace(-4, 4, 81)[:, None]  # one parameter, 81 replicates
    slope = (penalty.value(w + h) - penalty.value(w - h)) / (2 * h)
    np.testing.assert_allclose(penalty.gradient(w)[:, 0], slope, atol=1e-9)
    curve = (penalty.gradient(w + h) - penalty.gradient(w - h)) / (2 * h)
    np.testing.assert_allclose(penalty.hessian_diagonal(w), curve, atol=1e-9)


def test_curvature_bounds_are_reached(penalty):
    w = np.linspace(-6, 6, 600_001)
    curvature = penalty.hessian_diagonal(w)
    assert curvature.min() == pytest.approx(penalty.mu, abs=1e-9)
    assert curvature.max() == pytest.approx(penalty.L, abs=1e-9)
    third = np.abs(np.diff(curvature)).max() / (w[1] - w[0])
    assert third == pytest.approx(penalty.hessian_lipschitz, rel=1e-6, abs=1e-9)


@given(arrays.arrays(np.float64, (3, 4), elements=st.floats(-1e100, 1e100)))
def test_extreme_parameters_give_finite_terms(w):
    penalty = PENALTIES["geman_mcclure"]
    assert ((penalty.value(w) >= 0) & (penalty.value(w) <= 4 * penalty.strength)).all()
    assert np.isfinite(penalty.gradient(w)).all()
    assert np.isfinite(penalty.hessian_diagonal(w)).all()


def test_tiny_and_huge_parameters_keep_their_digits():
    penalty = dpa.regularizers.GemanMcClure(1.0)
    assert penalty.value(np.array([1e-9])) == 1e-18
    with np.errstate(over="ignore", invalid="ignore"):
        assert penalty.value(np.array([1e200])) == 1.0


@pytest.mark.parametrize("strength", [-1.0, np.inf, np.nan])
def test_strength_must_be_finite_and_not_negative(strength):
    for kind in (dpa.regularizers.L2, dpa.regularizers.GemanMcClure):
        with pytest.raises(ValueError, match="strength"):
            kind(strength)
