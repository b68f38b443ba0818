"""Checks of user-defined losses, and defaults that follow from their constants."""

import math

import numpy as np
import pytest

from dpanalysis import ERM, clipping, losses


class Halves(losses.Loss):
    """A loss without parameters."""

    convex, lipschitz, smoothness = True, 0.5, 0.5

    def value(self, z, y):
        return 0.5 * (np.sqrt(1.0 + (z - y) ** 2) - 1.0)

    def derivative(self, z, y):
        return 0.5 * (z - y) / np.sqrt(1.0 + (z - y) ** 2)

    def __eq__(self, other):
        return type(self) is type(other)

    def __hash__(self):
        return 7

    def __repr__(self):
        return "Halves()"


@pytest.mark.parametrize(
    ("attributes", "error", "message"),
    [
        ({"lipschitz": math.nan}, ValueError, r"Bad\.lipschitz must"),
        ({"smoothness": -1.0}, ValueError, r"Bad\.smoothness must"),
        ({"hessian_lipschitz": "1"}, TypeError, r"Bad\.hessian_lipschitz must"),
        ({"lipschitz": 0.49}, ValueError, r"Bad\.lipschitz is 0\.49.*too small"),
        (
            {"derivative": lambda self, z, y: np.where(z < y, -0.7, 0.3), "lipschitz": 0.5},
            ValueError,
            r"Bad\.lipschitz is 0\.5, but its derivative at .* is -0\.7",
        ),
        ({"value": lambda self, z, y: 1.0}, ValueError, r"Bad\.value must return an array"),
        ({"derivative": lambda self, z, y: z.none}, ValueError, r"Bad\.derivative failed"),
        ({"smoothness": 0.4}, ValueError, r"Bad\.smoothness is 0\.4, but from z = .* too small"),
        (
            {
                "derivative": lambda self, z, y: 0.5 * np.sin(z),
                "convex": True,
                "lipschitz": 0.5,
                "smoothness": 0.5,
            },
            ValueError,
            r"Bad\.convex is True, but from z = .*, its derivative goes from",
        ),
        ({"lowest": 0.1}, ValueError, r"Bad\.lowest is 0\.1, but its value at"),
        ({"curvature_vanishes_at_max_slope": True}, ValueError, r"Bad\.second_derivative failed"),
        (
            {
                "curvature_vanishes_at_max_slope": True,
                "lipschitz": 0.5,
                "smoothness": 0.5,
                "second_derivative": lambda self, z, y: 0.5 + 0.0 * z * y,
            },
            ValueError,
            r"Bad\.curvature_vanishes_at_max_slope is True.* second derivative is 0\.5, above",
        ),
        (  # the slope grows to its maximum exponentially, and is bent most just before
            {
                "classification": True,
                "curvature_vanishes_at_max_slope": True,
                "lipschitz": 1.0,
                "smoothness": 1.0,
                "value": lambda self, z, y: np.where(y * z > 0, np.exp(-abs(z)), 1.0 + abs(z)),
                "derivative": lambda self, z, y: -y * np.exp(-np.maximum(y * z, 0.0)),
                "second_derivative": lambda self, z, y: np.where(y * z > 0, np.exp(-abs(z)), 0.0),
            },
            ValueError,
            r"Bad\.curvature_vanishes_at_max_slope is True.* second derivative is 1, above",
        ),
        (
            {
                "convex": False,
                "lipschitz": 1.0,
                "smoothness": 1.0,
                "value": lambda self, z, y: -np.log(np.cosh(3.0 * z)) / 3.0 + 0.0 * y,
                "derivative": lambda self, z, y: -np.tanh(3.0 * z) + 0.0 * y,
                "lowest": -math.inf,
            },
            ValueError,
            r"Bad\.smoothness is 1\.0, but from z = .*, its derivative goes from",
        ),
    ],
)
def test_a_loss_that_shows_its_fault_is_refused(attributes, error, message):
    bad = type("Bad", (Halves,), attributes)()
    with pytest.raises(error, match=message):
        losses.check_loss(bad)
    with pytest.raises(error, match=message):
        ERM(np.ones((2, 1)), np.ones(2), bad)


def test_a_subclass_with_other_formulas_does_not_inherit_declared_constants():
    shifted = type("Shifted", (losses.Logistic,), {"value": lambda self, z, y: -z * y})
    named = type("Named", (losses.Logistic,), {"__repr__": lambda self: "named"})
    stated = type("Stated", (losses.Logistic,), {"value": lambda self, z, y: z, "lowest": -3.0})
    assert (shifted.curvature_vanishes_at_max_slope, shifted.lowest) == (False, -math.inf)
    assert (named.curvature_vanishes_at_max_slope, named.lowest) == (True, 0.0)
    assert (stated.curvature_vanishes_at_max_slope, stated.lowest) == (False, -3.0)


@pytest.mark.parametrize(
    "name",
    [
        *("convex", "lipschitz", "smoothness", "hessian_lipschitz", "lowest"),
        "curvature_vanishes_at_max_slope",
    ],
)
def test_no_constant_may_change_once_a_problem_is_built(name):
    loss = Halves()
    problem = ERM(np.ones((2, 1)), np.ones(2), loss)
    setattr(loss, name, 0.25)
    w = np.zeros((1, 1))
    for call in (
        problem.check_private,
        lambda: problem.gradient_sum(w),
        lambda: problem.hessian_sum(w[0]),
    ):
        with pytest.raises(ValueError, match=r"constants of .* have been changed"):
            call()


def test_only_losses_are_losses():
    for other in ("logistic", None, losses.Logistic, type("Loss", (), {"value": 1, "code": 3})()):
        with pytest.raises(TypeError, match=r"loss must be an object.*extends dpanalysis\.losses"):
            ERM(np.ones((2, 1)), np.ones(2), other)


def test_weak_growth_by_default_follows_from_the_other_constants():
    z = np.linspace(-9.0, 9.0, 2001)
    loss = Halves()
    for beta1, beta2 in (loss.weak_growth(1.0), loss.weak_growth(1.0, beta1=0.3)):
        assert (loss.derivative(z, 0.5) ** 2 <= beta1 * loss.value(z, 0.5) + beta2 + 1e-15).all()
    smooth = type("Smooth", (Halves,), {"lipschitz": math.inf})()
    beta1, beta2 = smooth.weak_growth(1.0)
    assert (beta1, beta2) == (1.0, 0.0)
    assert (loss.derivative(z, 0.5) ** 2 <= beta1 * loss.value(z, 0.5) + beta2 + 1e-15).all()
    neither = type("Neither", (Halves,), {"lipschitz": math.inf, "smoothness": math.inf})()
    with pytest.raises(ValueError, match="no constants of weak growth"):
        neither.weak_growth(1.0)


def test_a_user_class_is_shown_by_its_name_and_attributes():
    """On a model's card; the default has a memory address."""

    class Scaled(losses.Logistic):
        def __init__(self, factor=2.0):
            self.factor, self._cache = factor, None

    class Rule(clipping.Clipping):
        clip_norm = 1.0

        def wanted(self, norms, losses):
            return 1.0 / (1.0 + norms)

    assert repr(Scaled()) == "Scaled(factor=2.0)" and repr(Rule()) == "Rule()"
    assert repr(losses.Logistic()) == "Logistic()"
    assert repr(clipping.Flat(1.0)) == "Flat(clip_norm=1.0)"


@pytest.mark.parametrize(("convex", "low"), [(True, 0.0), (False, -0.5)])
def test_a_curvature_beyond_the_stated_ones_counts_as_the_nearest(convex, low):
    """What a Hessian is charged for follows from the constants alone."""

    class Liar(Halves):
        lipschitz, smoothness = 0.5, 0.5

        def second_derivative(self, z, y):
            return np.where(y > 0.0, 9.0, -9.0) + 0.0 * z

    Liar.convex = convex
    for y, expected in ((1.0, 0.5), (-1.0, low)):
        problem = ERM(np.ones((1, 1)), np.array([y]), Liar())
        assert problem.hessian_sum(np.zeros(1)) == pytest.approx(expected)
        assert problem.hvp_sum(np.zeros(1), np.ones(1)) == pytest.approx(expected)


@pytest.mark.parametrize("formula", ["derivative", "second_derivative"])
def test_a_formula_that_is_set_on_a_class_later_does_not_inherit_constants(formula):
    """In the body of the class it resets them; the grid does not see every one that is wrong."""

    class Later(losses.Logistic):
        pass

    assert losses.check_loss(Later()) is None
    setattr(Later, formula, lambda self, z, y: getattr(losses.Logistic, formula)(self, z, y))
    with pytest.raises(
        ValueError, match=rf"Later\.{formula} was set on the class after .* Logistic"
    ):
        losses.check_loss(Later())
    Later.convex, Later.lipschitz, Later.smoothness = True, 1.0, 0.25
    Later.hessian_lipschitz, Later.curvature_vanishes_at_max_slope = math.inf, False
    Later.lowest, Later.growth = 0.0, (0.0, 1.0)
    Later.weak_growth, Later._remainder = losses.Loss.weak_growth, losses.Loss._remainder
    assert losses.check_loss(Later()) is None
