"""The event of AboveThreshold: its costs against the bounds, alone and on a sampled batch."""

import math

import numpy as np
import pytest

from dpanalysis import privacy
from dpanalysis.privacy import Poisson, rdp_above_threshold
from dpanalysis.privacy.events import AboveThreshold, Gaussian, Pure, Repeated, Sampled


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("scale", [0.7, 40.0])
def test_between_the_computed_orders_the_chord_is_little_above_the_bound(noise, shared, scale):
    event = AboveThreshold(noise, scale, 2 * scale, 1.0, 20, shared)
    for order in (1.3, 5.5, 28.0):
        direct = rdp_above_threshold(
            order, noise, scale, 2 * scale, 20, coupling="best", shared=shared
        )
        cost = float(event.rdp_cost(order))
        assert direct * (1 - 1e-6) <= cost <= min(event.pure_cost(), 1.1 * direct)


def test_rungs_are_exact_and_units_cancel():
    event = AboveThreshold("laplace", 20.0, 40.0, 10.0, 20)
    np.testing.assert_allclose(
        event.rdp_cost([2.0, 4.0]),
        rdp_above_threshold([2.0, 4.0], "laplace", 2.0, 4.0, 20, coupling="best"),
    )
    assert event.pure_cost() == 1.0
    assert float(event.rdp_cost(1e12)) == float(event.rdp_cost(math.inf)) == 1.0


@pytest.mark.parametrize(
    ("cap", "shared", "loss"),
    [(None, False, 1.0), (None, True, 0.75), (1, False, 0.25), (2, False, 0.5)],
)
def test_pure_losses(cap, shared, loss):
    assert AboveThreshold("laplace", 2.0, 4.0, 1.0, cap, shared).pure_cost() == loss
    free = AboveThreshold("laplace", 2.0, 4.0, 0.0, cap, shared)
    assert free.pure_cost() == 0.0 and free.rdp_cost([2.0, 8.0]).tolist() == [0.0, 0.0]
    assert AboveThreshold("laplace", 1.0, 1.0, 0.0, 1, shared).no_worse(free)
    assert not AboveThreshold("laplace", 1.0, 1.0, 0.0, 1, not shared).no_worse(free)


def test_a_tiny_sensitivity_needs_no_cap():
    event = AboveThreshold("laplace", 1.0, 2.0, 1e-170, None)
    assert event.rdp_cost([2.0, 8.0]).tolist() == [0.0, 0.0]
    assert privacy.epsilon(event, 1e-5, "replace_one", "rdp") == 0.0
    assert event.pure_cost() == pytest.approx(2e-170)


def test_gaussian_noise_has_no_pure_loss_and_needs_a_cap():
    assert math.isinf(AboveThreshold("gaussian", 2.0, 4.0, 1.0, 5).pure_cost())
    with pytest.raises(ValueError, match="max_queries must be finite"):
        AboveThreshold("gaussian", 2.0, 4.0, 1.0, None)


def test_on_a_shared_batch_it_is_composed_and_then_amplified():
    """The cost lies between that of its exact pair and that of randomized response."""
    search, gradient = AboveThreshold("laplace", 2.0, 4.0, 1.0, 20), Gaussian(1.0, 1.0)
    orders = np.array([2.0, 8.0, 64.0])
    batch = Sampled(Poisson(0.01), [gradient, search]).rdp_cost(orders)
    response = Sampled(Poisson(0.01), [gradient, Pure(1.0)]).rdp_cost(orders)
    ideal = privacy.rdp_poisson(
        orders, 0.01, lambda a: gradient.rdp_cost(a) + search.rdp_cost(a), exact_pair=True
    )
    assert (ideal <= batch).all() and (batch <= response).all()
    assert batch[0] == ideal[0] < response[0]  # order 2 has no factor 3
    apart = sum(Sampled(Poisson(0.01), [each]).rdp_cost(orders) for each in (gradient, search))
    assert (batch[1:] > apart[1:]).all()  # errata 002-4: amplifying each alone is too cheap


@pytest.mark.slow
def test_every_accountant_takes_it():
    run = Repeated(Sampled(Poisson(0.1), [AboveThreshold("laplace", 20.0, 40.0, 1.0, 20)]), 100)
    relation = privacy.ADD_OR_REMOVE_ONE
    costs = {name: privacy.epsilon(run, 1e-5, relation, name) for name in ("pure", "rdp", "pld")}
    assert costs["pure"] == pytest.approx(100 * math.log1p(0.1 * math.expm1(0.1)))
    assert costs["pld"] < costs["pure"] and costs["rdp"] < costs["pure"]
    full = Repeated(AboveThreshold("gaussian", 20.0, 40.0, 1.0, 20), 10)
    assert 0.0 < privacy.epsilon(full, 1e-5, relation) < math.inf
