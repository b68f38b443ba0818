"""What the claims of paper 004 compute with, and that each of them can fail."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpanalysis import clipping, losses, privacy
from dpanalysis.audit import registry
from dpanalysis.audit.papers import value_clipping
from dpanalysis.audit.registry import Effort


@given(st.integers(0, 2**32 - 1))
def test_gradient_of_a_network_against_differences(seed):
    x, weights = list(value_clipping.networks(np.random.default_rng(seed), 1))[-1]
    weights = [W / max(1.0, float(np.linalg.norm(W, 2))) for W in weights]
    _, square = value_clipping.network(x, weights)
    total, h = 0.0, 1e-6
    for W in weights:
        for index in np.ndindex(W.shape):
            kept = W[index]
            values = []
            for moved in (kept + h, kept - h):
                W[index] = moved
                values.append(value_clipping.network(x, weights)[0])
            W[index] = kept
            total += ((values[0] - values[1]) / (2.0 * h)) ** 2
    assert total == pytest.approx(square, rel=1e-4, abs=1e-6)


def test_products_and_sums_of_three_layers():
    weights = [np.diag([2.0, 1.0]), np.diag([3.0, 0.5]), np.diag([5.0, 5.0])]
    assert value_clipping.products(weights) == pytest.approx(9 * 25 + 4 * 25 + 4 * 9)
    assert value_clipping.sums(weights) == pytest.approx((9 + 25) + (4 + 25) + (4 + 9))


def test_missing_delta_is_what_delta_misses():
    for std, epsilon in ((0.3, 0.5), (1.0, 2.0)):
        missing = value_clipping.missing_delta(std, epsilon)
        assert missing == pytest.approx(1.0 - privacy.gaussian_delta(std, epsilon), rel=1e-9)


def test_scaling_by_the_mean_and_by_the_own_loss():
    """Two samples with margins 0 and 40: losses ln 2 and 0, gradient norm 1/2 of the first."""
    by_mean = value_clipping.clipped_norm(0.0, 40.0, 2, 10.0, mean=True)
    own = value_clipping.clipped_norm(0.0, 40.0, 2, 10.0, mean=False)
    assert by_mean == pytest.approx(0.5 / math.sqrt(0.25 * math.log(2.0)))
    assert own == pytest.approx(0.5 / math.sqrt(0.5 * math.log(2.0)))


class TooTight(losses.Logistic):
    """The logistic loss with a constant of weak growth that is a little too small."""

    def weak_growth(self, row_norm):
        return 0.407 * row_norm**2, 0.0


def too_weak(gap, beta1, clip_norm):
    return 1.0 / np.maximum(1.0, np.sqrt(0.99 * beta1 * gap) / clip_norm)


products = value_clipping.products
WRONG = [
    ("004-1", "value_weight", too_weak),
    ("004-2", "one_release", lambda epsilon, delta: 1.01),
    ("004-2", "tail", lambda dimension, eta: 1.01),
    ("004-3", "used_length", lambda **at: 1.01),
    ("004-3", "Flat", lambda clip_norm: clipping.Flat(1.1 * clip_norm)),
    ("004-3", "Flat", lambda clip_norm: clipping.Flat(0.9 * clip_norm)),
    ("004-4", "products", lambda weights: 0.99 * products(weights)),
    ("004-4", "Logistic", TooTight),
    ("004-5", "Logistic", TooTight),
    ("004-7", "renyi_epsilon", lambda rate, steps, delta: 1.0),
    ("004-7", "epsilon_bounds", lambda mixture, steps, delta: (0.74, 0.8)),
]


@pytest.mark.parametrize(("name", "attribute", "wrong"), WRONG)
def test_a_claim_fails_where_it_is_wrong(monkeypatch, name, attribute, wrong):
    monkeypatch.setattr(value_clipping, attribute, wrong)
    claim = next(claim for claim in registry.load("004") if claim.id == name)
    assert not claim.run(Effort(quick=True)).passed
