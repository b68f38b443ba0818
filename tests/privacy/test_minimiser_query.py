"""Objective perturbation: what its proof needs of the event and of the solver."""

import math

import numpy as np
import pytest

import dpanalysis as dpa
from dpanalysis.privacy.events import GaussianBound
from dpanalysis.privacy.queries import TiltedMinimum

FULL = dpa.Full()


def problem(n=60, d=4, loss=None):
    random = np.random.default_rng(5)
    X = random.normal(size=(n, d))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y = np.sign(X[:, 0] + 0.3 * random.normal(size=n))
    bound = dpa.RowBound(2, 1.0)
    return dpa.ERM(X, y, loss or dpa.losses.Logistic(), dpa.regularizers.L2(0.05), bound)


@pytest.mark.parametrize(
    ("relation", "corners"), [("replace_one", 4.0), ("add_or_remove_one", 2.0)]
)
def test_a_replaced_record_has_four_corners(relation, corners):
    """The loss is largest at a corner of a segment or of a parallelogram: a Gaussian loss each.

    One corner of four is another Gaussian loss, of a shift that the noise decides on: the bound
    adds all four. With two the sum would be half of it.
    """
    facts = problem().facts(relation)
    event = TiltedMinimum("gaussian", 5.0, 0.1, 1e-8, 0.01).event(facts, FULL).events[0]
    assert isinstance(event, GaussianBound)
    assert event.weights == (corners,)
    kappa = math.log1p(0.25 / (60 * 0.15))
    assert event.offset == pytest.approx(kappa, rel=1e-12)
    order = np.array([3.0])
    shift = event.sensitivities[0] / 5.0
    expected = kappa + (math.log(corners) + 3.0 * shift**2) / 2.0
    np.testing.assert_allclose(event.rdp_cost(order), expected, rtol=1e-12)


@pytest.mark.parametrize("loss", [dpa.losses.Logistic(), dpa.losses.HuberizedHinge(0.5)])
def test_the_solver_stops_at_the_tolerance_and_not_at_twice_it(loss):
    """Tolerances just below the norms that it passes on its way, where a slack would show."""
    erm = problem(loss=loss)
    tilt, ridge = np.array([0.3, -0.2, 0.1, 0.0]), 0.02

    def norm(w):
        return float(np.linalg.norm(erm.gradient(w) + tilt + ridge * w))

    tolerance = 0.999 * norm(np.zeros(4))
    for _ in range(40):
        w, _ = erm.minimise_tilted(tilt, ridge, tolerance, 60.0)
        assert norm(w) <= tolerance * (1.0 + 1e-9)
        tolerance = 0.999 * norm(w)
        if tolerance < 1e-13:
            break
    assert tolerance < 1e-3  # it came close, by steps as small as they are


def test_the_error_that_the_tolerance_leaves_is_charged_whole():
    """Twice n tol/c by n, on both sides: the distance of two points that are off by tol/mu each."""
    facts = problem().facts("replace_one")
    for law in ("gaussian", "spherical"):
        query = TiltedMinimum(law, 5.0, 0.1, 1e-4, 0.01)
        event = query.event(facts, FULL).events[1]
        cost = event.mu if law == "gaussian" else event.epsilon
        assert cost == pytest.approx(2.0 * 1e-4 / 0.15 / 0.01, rel=1e-12)
