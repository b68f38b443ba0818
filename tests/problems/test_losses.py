"""Losses and penalties on their own, and the compiled versions of the losses."""

import math

import array_api_strict
import mpmath
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import special

from dpanalysis import losses, regularizers
from dpanalysis.kernels import kernel_table, scalar

LOSSES = [
    losses.Logistic(),
    losses.SquaredError(),
    losses.Hinge(),
    losses.HuberizedHinge(0.5),
    losses.HuberizedHinge(3.0),
    losses.Huber(0.7),
]
SMOOTH = [loss for loss in LOSSES if math.isfinite(loss.smoothness)]
MARGINS = np.concatenate([-np.logspace(-12, 4, 60), [0.0], np.logspace(-12, 4, 60)])
TWINS = {
    losses.Logistic: (scalar.logistic_value, scalar.logistic_derivative),
    losses.SquaredError: (scalar.squared_value, scalar.squared_derivative),
    losses.Hinge: (scalar.hinge_value, scalar.hinge_derivative),
    losses.HuberizedHinge: (scalar.huberized_value, scalar.huberized_derivative),
    losses.Huber: (scalar.huber_value, scalar.huber_derivative),
}


def test_every_loss_is_listed():
    public = {getattr(losses, name) for name in losses.__all__}
    public -= {losses.Loss, losses.check_loss, losses.compiled}
    assert {type(loss) for loss in LOSSES} == public == set(TWINS) == set(kernel_table._LOSSES)
    assert len({code for code, _ in kernel_table._LOSSES.values()}) == len(TWINS)


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("y", [-1.0, 1.0])
def test_derivatives_match_finite_differences(loss, y):
    z = np.linspace(-6.01, 5.97, 49)  # no corner within h
    h = 1e-5
    slope = (loss.value(z + h, y) - loss.value(z - h, y)) / (2 * h)
    np.testing.assert_allclose(loss.derivative(z, y), slope, atol=1e-9)
    curvature = (loss.derivative(z + h, y) - loss.derivative(z - h, y)) / (2 * h)
    np.testing.assert_allclose(loss.second_derivative(z, y), curvature, atol=1e-9)


@given(st.sampled_from(LOSSES), st.floats(), st.sampled_from([-1.0, 1.0]))
@example(LOSSES[2], math.nan, 1.0)
@example(LOSSES[3], -math.inf, 1.0)
def test_compiled_versions_agree(loss, z, y):
    """At any float64, NaN and infinities included."""
    arguments = (loss.width,) if hasattr(loss, "width") else ()
    for term, twin in zip((loss.value, loss.derivative), TWINS[type(loss)]):
        with np.errstate(all="ignore"):
            expected = term(np.array([z]), np.array([y]))[0]
        assert twin(z, y, *arguments) == pytest.approx(expected, rel=1e-14, nan_ok=True)


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


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_constants_are_tight(loss):
    """The largest slope on a fine grid is the constant; where that is inf, there is a jump."""
    z, h = np.linspace(-8.0, 8.0, 16_001), 1e-3
    corner = 1.0 + getattr(loss, "width", 0.0)
    around = corner + np.array([-1e-9, 0.0, 1e-9])
    for term, constant in (
        (loss.value, loss.lipschitz),
        (loss.derivative, loss.smoothness),
        (loss.second_derivative, loss.hessian_lipschitz),
    ):
        if math.isfinite(constant):
            slope = np.abs(np.diff(term(z, 1.0))).max() / h
            assert slope == pytest.approx(constant, rel=1e-3, abs=1e-9)
        elif term != loss.value:
            values = term(around, 1.0)
            assert np.isnan(values[1]) or np.ptp(values) > 0.1
    assert np.abs(loss.derivative(MARGINS, 1.0)).max() <= loss.lipschitz


def test_constants_in_closed_form():
    logistic, squared, hinge = losses.Logistic(), losses.SquaredError(), losses.Hinge()
    assert logistic.hessian_lipschitz == pytest.approx(1 / (6 * math.sqrt(3)), rel=1e-15)
    assert (squared.lipschitz, squared.smoothness, squared.hessian_lipschitz) == (math.inf, 1, 0)
    assert (hinge.lipschitz, hinge.smoothness, hinge.hessian_lipschitz) == (1, math.inf, math.inf)
    assert losses.HuberizedHinge(0.25).smoothness == 2.0


def test_the_constant_of_the_logistic_loss():
    with mpmath.workdps(30):
        ratio = lambda p: (1 - p) ** 2 / -mpmath.log(p)  # noqa: E731
        kappa = ratio(mpmath.findroot(lambda p: mpmath.diff(ratio, p), 0.28))
    beta1, beta2 = losses.Logistic().weak_growth(3.0)
    assert beta1 == pytest.approx(9.0 * float(kappa), rel=1e-15)
    assert beta2 == 0.0


@pytest.mark.parametrize("share", [None, 0.0, 0.01, 0.3, 0.9, 0.999, 1.0, 2.0])
@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_weak_growth_is_tight(loss, share):
    """beta1 l + beta2 is at least the squared gradient everywhere, and touches it.

    For the default pair, and for a share of its beta1 (of 1 for the hinge loss, whose
    beta1 is 0) with the smallest beta2.
    """
    z = np.concatenate([np.linspace(-40, 40, 80_001), 1.0 - np.logspace(-12, 0, 60)])
    values, squares = loss.value(z, 1.0), loss.derivative(z, 1.0) ** 2
    least, rest = loss.weak_growth(1.0)
    if share is None:
        beta1, beta2 = least, rest
    else:
        beta1, beta2 = loss.weak_growth(1.0, beta1=share * (least or 1.0))
        assert beta1 == share * (least or 1.0)
    if not math.isfinite(beta2):
        assert (squares - beta1 * values).max() > 1.0  # on a wider grid, more
        return
    slack = beta1 * values + beta2 - squares
    assert slack.min() >= -1e-12
    assert beta2 == 0.0 or slack.min() <= 1e-6
    if share in (None, 1.0) and beta1 > 0.0 and beta2 == 0.0:  # a smaller beta1 fails somewhere
        assert (slack - 1e-3 * values).min() < 0


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_weak_growth_of_longer_rows(loss):
    """The squared gradient grows with the square of the row."""
    assert loss.weak_growth(3.0) == pytest.approx([9.0 * k for k in loss.weak_growth(1.0)])
    scaled = loss.weak_growth(3.0, beta1=9.0 * 0.1)
    assert scaled == pytest.approx([9.0 * k for k in loss.weak_growth(1.0, beta1=0.1)])
    assert loss.weak_growth(0.0) == loss.weak_growth(0.0, beta1=0.0) == (0.0, 0.0)
    for arguments in ((-1.0,), (math.inf,), (1.0, -0.1)):
        with pytest.raises(ValueError, match=r"row_norm|beta1"):
            loss.weak_growth(*arguments)


# The hinge losses


def test_the_huberized_hinge_of_the_paper():
    """The three cases of Chen and Lee (2020), section 5.3, and its distance from the hinge loss."""
    m, h = np.linspace(-4.0, 4.0, 1601), 0.5
    cases = np.where(m < 1 - h, 1 - m, np.where(abs(1 - m) <= h, (1 + h - m) ** 2 / (4 * h), 0.0))
    for y in (-1.0, 1.0):
        found = losses.HuberizedHinge().value(y * m, y)
        np.testing.assert_allclose(found, cases, atol=1e-15)
        above = found - losses.Hinge().value(y * m, y)
        assert above.min() >= 0.0 and above.max() == pytest.approx(h / 4)


def test_narrow_and_wide_roundings():
    z = np.concatenate([MARGINS, [1e300, -1e300, 1.0]])
    narrow, hinge = losses.HuberizedHinge(1e-300), losses.Hinge()
    np.testing.assert_allclose(narrow.value(z, 1.0), hinge.value(z, 1.0), atol=1e-299)
    off = z != 1.0
    np.testing.assert_array_equal(narrow.derivative(z, 1.0)[off], hinge.derivative(z, 1.0)[off])
    wide = losses.HuberizedHinge(1e300)
    assert np.isfinite(wide.value(MARGINS, 1.0)).all()
    np.testing.assert_allclose(wide.derivative(MARGINS, 1.0), -0.5, rtol=1e-12)


def test_the_hinge_loss_at_its_corner():
    loss, one = losses.Hinge(), np.array([1.0])
    assert loss.value(one, one) == loss.derivative(one, one) == 0.0
    assert np.isnan(loss.second_derivative(one, one)).all()
    assert not loss.second_derivative(np.array([0.999, 1.001]), 1.0).any()


@pytest.mark.parametrize("width", [0.0, -1.0, math.nan, math.inf])
@pytest.mark.parametrize("kind", [losses.HuberizedHinge, losses.Huber])
def test_widths_are_positive_numbers(kind, width):
    with pytest.raises(ValueError, match="width"):
        kind(width)


@given(st.floats(-1e3, 1e3), st.floats(-1e3, 1e3), st.floats(1e-3, 1e3))
def test_huber_s_loss_is_scipy_s(z, y, width):
    """And up to the width the squared error."""
    found = losses.Huber(width).value(np.array([z]), np.array([y]))[0]
    assert found == pytest.approx(special.huber(width, z - y), rel=1e-12, abs=1e-300)
    if abs(z - y) <= width:
        assert found == pytest.approx(0.5 * (z - y) ** 2, rel=1e-12, abs=1e-300)


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
    assert losses.HuberizedHinge(1.0) == losses.HuberizedHinge(1) != losses.HuberizedHinge()
    assert repr(losses.HuberizedHinge()) == "HuberizedHinge(width=0.5)"


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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "points"),
    [
        ("exp", np.concatenate([np.linspace(-707.9, 709.7, 2999), np.logspace(-300, 0, 99)])),
        (
            "log",
            np.concatenate([np.exp(np.linspace(-744.0, 709.0, 2999)), 1 + np.logspace(-15, 0)]),
        ),
        ("log", 1.0 - np.logspace(-15, -0.01, 999)),
        ("log1p", np.concatenate([np.logspace(-300, 308, 2999), -np.logspace(-300, -0.01, 999)])),
    ],
)
def test_functions_for_own_formulas_are_accurate_to_1e_15(name, points):
    compiled = getattr(scalar, f"{name}_any")
    with mpmath.workdps(340):
        exact = [getattr(mpmath, name)(mpmath.mpf(float(v))) for v in points]
        pairs = [(compiled(v), e) for v, e in zip(points, exact) if e != 0]
        assert max(abs(mpmath.mpf(found) / e - 1) for found, e in pairs) <= 1e-15


def test_functions_for_own_formulas_at_the_ends():
    inf, nan = math.inf, math.nan
    for name, at, expected in (
        ("exp", (-inf, -709.0, 0.0, 710.0, inf, nan), (0.0, 0.0, 1.0, inf, inf, nan)),
        ("log", (-inf, -1.0, 0.0, 1.0, inf, nan), (nan, nan, -inf, 0.0, inf, nan)),
        ("log1p", (-inf, -2.0, -1.0, 0.0, inf, nan), (nan, nan, -inf, 0.0, inf, nan)),
    ):
        found = [getattr(scalar, f"{name}_any")(x) for x in at]
        np.testing.assert_array_equal(found, expected)


def test_polynomials_at_the_ends():
    assert scalar.exp_neg(0.0) == 1.0
    assert scalar.exp_neg(709.0) == scalar.exp_neg(720.0) == 0.0  # no power of two at 720
    assert scalar.exp_neg(745.0) == scalar.exp_neg(1e308) == scalar.exp_neg(math.inf) == 0.0
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
