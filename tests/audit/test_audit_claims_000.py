"""What the claims of paper 000 compute with, and that each of them can fail."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dpanalysis import privacy
from dpanalysis.audit import registry
from dpanalysis.audit.papers import _composition
from dpanalysis.audit.papers import per_sample_clipping as psac
from dpanalysis.audit.papers._composition import Mixture, epsilon_bounds
from dpanalysis.audit.registry import Effort


@pytest.mark.parametrize(("std", "steps"), [(1.0, 1), (10.0, 100), (0.3, 2)])
@pytest.mark.parametrize("adding", [False, True])
def test_composition_brackets_the_exact_gaussian(std, steps, adding):
    release = Mixture(np.ones(1), np.ones(1), std)
    low, high = epsilon_bounds(release, steps, 1e-5, adding=adding)
    exact = privacy.gaussian_epsilon(std / steps**0.5, 1e-5)
    assert low <= exact <= high
    assert high - low < 0.03


@pytest.mark.parametrize("adding", [False, True])
def test_composition_brackets_a_product_of_two_cells(adding):
    """Two releases of a mixture, integrated over the first answer."""
    weights, shifts, std, delta = np.array([0.7, 0.2, 0.1]), np.array([0.0, 1.0, 2.0]), 0.9, 1e-3
    low, high = epsilon_bounds(Mixture(weights, shifts, std), 2, delta, adding=adding)
    x = np.linspace(-9.0, 11.0, 2001)
    pair = stats.norm.pdf(x[:, None], shifts, std) @ weights, stats.norm.pdf(x, 0.0, std)
    p, q = pair[::-1] if adding else pair
    products = np.multiply.outer(p, p), np.multiply.outer(q, q)

    def exact(epsilon):
        return (
            np.maximum(products[0] - np.exp(epsilon) * products[1], 0.0).sum() * (x[1] - x[0]) ** 2
        )

    assert exact(high) <= delta * (1 + 1e-4)
    assert exact(low) >= delta * (1 - 1e-4)
    assert high - low < 0.03


def test_cells_hold_everything():
    p, q, losses = Mixture(np.array([0.99, 0.01]), np.array([0.0, 1.0]), 0.5).cells()
    assert p.size == q.size == losses.size + 1
    assert p.sum() == pytest.approx(1.0, abs=1e-14) and q.sum() == pytest.approx(1.0, abs=1e-14)
    assert (np.diff(losses) >= 0.0).all()
    at = np.linspace(-6.0, 7.0, _composition._CELLS)[20_000]
    ratio = np.log(0.99 + 0.01 * np.exp((at - 0.5) / 0.25))
    assert losses[20_000] == pytest.approx(ratio, rel=1e-12)


def test_batches_of_three_records_by_hand():
    weights, sums = psac.drawn(np.array([1.0, -1.0, 0.0]), 2)
    assert weights.sum() == pytest.approx(1.0)
    assert sorted(sums) == [-2, -1, -1, 0, 0, 0, 1, 1, 2]
    single = (np.ones(1), np.ones(1)), (np.ones(1), np.zeros(1))
    both = psac.deltas(*single, 0.8, 0.7)
    np.testing.assert_allclose(both, privacy.gaussian_delta(0.8, 0.7), rtol=1e-5)


@given(st.integers(0, 2**32 - 1), st.floats(0.0, 0.99), st.floats(1e-6, 10.0))
def test_samples_belong_to_the_class_and_rest_where_weights_cancel(seed, tau1, r):
    slopes, offsets = psac.samples(np.random.default_rng(seed), tau1)
    assert slopes.mean() == pytest.approx(1.0) and offsets.mean() == pytest.approx(0.0, abs=1e-12)
    assert np.abs(slopes - 1.0).max() <= tau1 + 1e-12 and np.abs(offsets).max() == pytest.approx(1)
    at = psac.resting(psac.adaptive, slopes, offsets, r)
    totals = []
    for u in (at - 1e-9, at + 1e-9):
        g = slopes * u + offsets
        totals.append(float(np.sum(psac.adaptive(np.abs(g), r) * g)))
    assert totals[0] < 0.0 < totals[1]


def too_heavy(norm, r):
    return 1 / (norm + r / (norm + 1.01 * r))


WRONG = [
    ("000-1", "adaptive", too_heavy),
    ("000-2", "adaptive", too_heavy),
    ("000-3", "sharper", lambda **at: 0.99 * psac.lemma_terms(**at)[0]),
    ("000-4", "automatic", lambda norm, r: 1.01 / (norm + r)),
    ("000-5", "automatic", lambda norm, r: 1.0 + 0.0 * norm),
    ("000-6", "adaptive", lambda norm, r: 1.0 + 0.0 * norm),
    ("000-8", "multiplicities", lambda draws, n: (np.ones(1), np.zeros(1))),
]


@pytest.mark.parametrize(("name", "attribute", "wrong"), WRONG)
def test_a_claim_fails_where_it_is_wrong(monkeypatch, name, attribute, wrong):
    monkeypatch.setattr(psac, attribute, wrong)
    claim = next(claim for claim in registry.load("000") if claim.id == name)
    assert not claim.run(Effort(quick=True)).passed
