"""Helpers of the claims on Xia et al. (2023), and faults that the claims must detect."""

import math
import os
import re
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, stats

from dpanalysis import datasets, privacy, theory
from dpanalysis.papers import registry, tools
from dpanalysis.papers.claim import Effort
from dpanalysis.papers.per_sample_clipping import claims as psac
from dpanalysis.papers.tools import Mixture, epsilon_bounds, largest_delta

TEXTS = Path(os.environ.get("DPANALYSIS_DATA", "/nowhere")).parent / "papers"
TEXT = list(TEXTS.glob("000_*.txt"))


@pytest.mark.parametrize(("std", "steps"), [(1.0, 1), (10.0, 100), (0.3, 2)])
@pytest.mark.parametrize("adding", [False, True])
def test_composition_brackets_the_exact_gaussian(std, steps, adding):
    release = Mixture(np.ones(1), np.ones(1), std)
    low, high = epsilon_bounds(release, steps, 1e-5, adding=adding)
    exact = privacy.gaussian_epsilon(std / steps**0.5, 1e-5)
    assert low <= exact <= high
    assert high - low < 0.03


def test_the_delta_of_a_pair_is_the_larger_of_both_directions():
    laws = np.array([0.1, 0.9, 0.0]), np.array([0.1, 0.8, 0.1])
    for pair in (laws, laws[::-1]):
        assert largest_delta(pair, 1.0) == pytest.approx(0.1)


@pytest.mark.parametrize("adding", [False, True])
def test_the_upper_bound_includes_losses_that_are_too_large_to_compose(adding):
    low, high = epsilon_bounds(Mixture(np.ones(1), np.ones(1), 0.1), 1, 1e-5, adding=adding)
    assert low <= privacy.gaussian_epsilon(0.1, 1e-5) <= high


@pytest.mark.slow
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


def test_cells_have_all_mass_and_exact_losses():
    p, q, losses = Mixture(np.array([0.99, 0.01]), np.array([0.0, 1.0]), 0.5).cells()
    assert p.size == q.size == losses.size + 1
    assert p.sum() == pytest.approx(1.0, abs=1e-14) and q.sum() == pytest.approx(1.0, abs=1e-14)
    assert (np.diff(losses) >= 0.0).all()
    at = np.linspace(-6.0, 7.0, tools._CELLS)[20_000]
    ratio = np.log(0.99 + 0.01 * np.exp((at - 0.5) / 0.25))
    assert losses[20_000] == pytest.approx(ratio, rel=1e-12)


def test_batches_of_three_records_by_hand():
    weights, sums = psac.drawn(np.array([1.0, -1.0, 0.0]), 2)
    assert weights.sum() == pytest.approx(1.0)
    assert sorted(sums) == [-2, -1, -1, 0, 0, 0, 1, 1, 2]
    single = (np.ones(1), np.ones(1)), (np.ones(1), np.zeros(1))
    both = psac.deltas(*single, 0.8, 0.7)
    np.testing.assert_allclose(both, privacy.gaussian_delta(0.8, 0.7), rtol=1e-5)


@pytest.mark.parametrize("steps", [4, 40, 400])
@pytest.mark.parametrize(("q", "sigma"), [(1.0, 0.5), (0.1, 0.3), (0.02, 2.0)])
def test_the_sum_of_a_run_against_the_law_of_its_count(q, sigma, steps):
    """The event of 000-9 for each number of batches that hold the record."""
    epsilon, delta, drawn = 0.5, 0.1, np.arange(steps + 1)
    above = stats.norm.sf((0.5 * q * steps - drawn) / (sigma * math.sqrt(steps)))
    exact = stats.binom.pmf(drawn, steps, q) @ above - min(math.exp(epsilon) * above[0], 1.0)
    found = psac.excess_of_sums(q, np.array([float(steps)]), epsilon, sigma, delta)
    assert found * delta <= exact + 1e-12
    mixture = stats.binom.pmf(drawn, steps, q), drawn.astype(float)
    none = np.ones(1), np.zeros(1)
    best = psac.deltas(mixture, none, sigma * math.sqrt(steps), epsilon)[0]
    assert exact <= best * (1 + 1e-6)


def test_cosines_against_single_gradients():
    """One step from 0, where all probabilities are equal; gradients are computed one by one."""
    random = np.random.default_rng(3)
    X, y = random.normal(size=(7, 2)), np.array([0, 1, 2, 0, 1, 2, 2])
    found = psac.cosines(X, y, (0.01, 1.0), steps=1, batches=1, size=7)
    inputs = np.column_stack([X, np.ones(7)])
    gradients = np.array(
        [np.outer(x, 1.0 / 3.0 - (np.arange(3) == label)).ravel() for x, label in zip(inputs, y)]
    )
    norms, mean = np.linalg.norm(gradients, axis=1), gradients.mean(axis=0)
    for i, weight in enumerate((psac.adaptive, psac.automatic)):
        for j, r in enumerate((0.01, 1.0)):
            total = (weight(norms, r)[:, None] * gradients).sum(axis=0)
            cosine = total @ mean / np.linalg.norm(total) / np.linalg.norm(mean)
            assert found[0, i, j] == pytest.approx(cosine, rel=1e-12)


@pytest.mark.slow
def test_where_auto_s_is_the_closer_one():
    """The claim on Figure 3 at r = 1, and in the first steps of training."""
    for name, steps, r in (("digits", 400, 1.0), ("breast_cancer", 200, 1e-3)):
        data = datasets.load(name)
        found = psac.cosines(data.X, data.y, (r,), steps=steps, batches=100, size=64)
        ours, theirs = found.mean(axis=0).ravel()
        assert ours < theirs


@pytest.mark.slow
@pytest.mark.parametrize(("c1", "c2"), [(1e3, 1e-3), (100.0, 0.01)])
def test_the_batch_of_one_record_against_the_whole_mixture(c1, c2):
    at = psac.one_record_only(c1, c2)
    q, sigma, epsilon = at["q"], at["sigma"], at["epsilon"]
    (B,) = (b for b in (2, 4, 8) if -b * math.log(b / q) - math.log(4.0) == at["log_delta"])
    weights, counts = psac.multiplicities(B, round(B / q))
    exact = psac.deltas((weights, counts), (np.ones(1), np.zeros(1)), sigma, epsilon)[0]
    assert 1.0 < at["excess"] <= exact / math.exp(at["log_delta"]) * (1 + 1e-6)


@given(st.floats(-50.0, 50.0), st.floats(-50.0, 50.0))
def test_the_wave_satisfies_assumption_1(x, y):
    slopes = psac.WAVY.slope(np.array([x, y]))
    allowed = psac.WAVY.L0 + psac.L1 * abs(slopes[0])
    assert abs(slopes[0] - slopes[1]) <= allowed * abs(x - y) * (1 + 1e-3) + 1e-12


def test_samples_of_a_run_have_the_gradient_as_their_mean():
    """Without noise, and all samples drawn: one step from x by hand."""

    class All:
        def random(self, shape):
            return np.zeros(shape)

        def standard_normal(self, shape):
            return np.zeros(shape)

    x = np.full((1, psac.DIMENSION), 2.0)
    slope = float(np.linalg.norm(psac.WAVY.slope(x)))
    found = psac.smallest_gradients(x, 0.0, 0.0, 0.1, 0.01, 2, 0.0, All())
    moved = x - 0.01 * 2.0 * psac.WAVY.slope(x) * psac.adaptive(slope, 0.1)
    assert found == pytest.approx(float(np.linalg.norm(psac.WAVY.slope(moved))), rel=1e-12)


@pytest.mark.parametrize("weight", [psac.adaptive, psac.automatic, psac.clipped])
@pytest.mark.parametrize(("tau0", "r"), [(1.0, 0.1), (50.0, 0.1)])
def test_gradients_in_the_plane_have_no_larger_bias(weight, tau0, r):
    """The worst case of 000-5 against a linear program over laws on a grid of a disk."""
    worst = theory.worst_bias(lambda norms: weight(norms, r), tau0).gradient_norm
    angles, radii = np.meshgrid(np.linspace(0.0, np.pi, 61), np.linspace(0.0, tau0, 401))
    for factor, stops in ((1.002, False), (0.98, True)):
        mean = factor * worst
        along = (mean + radii * np.cos(angles)).ravel()
        norms = np.hypot(along, (radii * np.sin(angles)).ravel())
        # Mirror images across the axis cancel the other coordinate.
        pulls = along * weight(np.maximum(norms, 1e-300), r)
        moments = np.stack([along, np.ones_like(along)])
        found = optimize.linprog(pulls, A_eq=moments, b_eq=[mean, 1.0])
        assert (found.fun <= 0.0) == stops


@given(st.floats(1e-12, 1.0), st.floats(1e-6, 100.0))
def test_the_weight_is_near_1_for_gradients_below_r(r, share):
    """000-12 in exact fractions, at any r in (0, 1]; w - 1 by hand."""
    r = Fraction(r)
    g = Fraction(share) * r
    rise = psac.adaptive(g, r) - 1
    assert rise == g * (1 - r - g) / (g * g + r * g + r)
    assert -g <= rise <= g / r


@given(st.floats(0.01, 0.99), st.floats(0.001, 20.0))
def test_both_rules_between_opposite_gradients(share, size):
    """Dividing by the norm does not move there; as the line on the lazy region says."""

    def faster(near, far, r):
        ours, theirs = (
            far * w(far, r) - near * w(near, r) for w in (psac.adaptive, psac.automatic)
        )
        return ours / theirs

    near, far, r = Fraction(size), Fraction(size) + Fraction(share), Fraction(1, 10**12)
    assert float(faster(near, far, r)) == pytest.approx(float(1 / near + 1 / far), rel=1e-5)
    # Two classes of equal size, a model of an intercept: the norms add up to 1.
    if abs(share - 0.5) > 1e-3:
        for r in (1e-4, 0.01, 0.1):
            assert faster(share, 1.0 - share, r) > 1.0


def test_c_matters_less_at_the_same_product_of_step_size_and_c():
    """000-13 from the text's order of the numbers: a row for each step size."""
    found = {}
    for step, row in zip((8, 4, 2, 0.8, 0.2), psac.FIGURE_4["DP-SGD"]):
        for norm, accuracy in zip((0.1, 0.2, 0.8, 4, 20), row):
            found.setdefault(round(step * norm, 3), []).append(accuracy)
    ranges = {at: max(each) - min(each) for at, each in found.items() if len(each) > 1}
    assert ranges == pytest.approx(
        {0.16: 0.78, 0.4: 0.07, 0.8: 0.59, 1.6: 0.73, 3.2: 2.03, 16.0: 14.19}
    )


@pytest.mark.skipif(not TEXT, reason="the texts of the papers are not beside the data")
def test_the_numbers_of_figure_4_are_those_of_the_text():
    tables = re.findall(
        r"8 4 2 0\.8 0\.2 learning rate ((?:0\.\d{4} ){25})", TEXT[0].read_text("utf-8")
    )
    for printed, table in zip(tables, psac.FIGURE_4.values(), strict=True):
        np.testing.assert_allclose(100.0 * np.array(printed.split(), float), np.ravel(table))


CORRECTED = [claim for claim in registry.load("000") if claim.verdict in ("corrected", "refuted")]


@pytest.mark.parametrize("claim", CORRECTED, ids=lambda claim: claim.id)
def test_a_correction_stands_against_the_paper_s_side(claim):
    found = claim.argue(Effort(quick=True))
    assert found.verdict == "stands", found.error
    assert any(e.about == "premise" for e in found.evidence)


def test_without_its_data_a_claim_is_not_checked(monkeypatch):
    """Python raises ModuleNotFoundError for a module whose entry in sys.modules is None."""
    monkeypatch.setitem(sys.modules, "sklearn", None)
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    claim = next(claim for claim in registry.load("000") if claim.id == "000-7")
    outcome = claim.run(Effort(quick=True))
    assert outcome.verdict == "not checked" and not outcome.failed
    assert "pip install 'dpanalysis-toolkit[figures]'" in outcome.missing


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


class TooFlat(psac.Wavy):
    """The wave with too small a constant of smoothness."""

    def growth(self, x):
        return 0.0


WRONG = [
    ("000-1", "adaptive", too_heavy),
    ("000-2", "adaptive", too_heavy),
    ("000-3", "sharper", lambda **at: 0.99 * psac.lemma_terms(**at)[0]),
    ("000-4", "automatic", lambda norm, r: 1.01 / (norm + r)),
    ("000-5", "automatic", lambda norm, r: 1 / (norm + r + 0.1)),
    ("000-5", "clipped", lambda norm, C: np.minimum(1.0, 0.4 * C / norm)),
    ("000-5", "resting", lambda weight, slopes, offsets, r: -float(np.mean(offsets > 0.0))),
    ("000-6", "adaptive", lambda norm, r: 1.0 + 0.0 * norm),
    ("000-7", "adaptive", lambda norm, r: 1 / (norm + r) ** 2),
    ("000-7", "automatic", lambda norm, r: 1.0 + 0.0 * norm),
    ("000-8", "multiplicities", lambda draws, n: (np.ones(1), np.zeros(1))),
    ("000-10", "Wavy", TooFlat),
    ("000-11", "run_and_bound", lambda T, *at: (1.01, 1.0)),
    ("000-12", "adaptive", too_heavy),
    ("000-12", "peak", lambda r: (0.0, 1.0)),
    ("000-12", "adaptive", lambda norm, r: 1 / (1.02 * norm + r / (norm + r))),
    ("000-13", "FIGURE_4", dict.fromkeys(psac.FIGURE_4, psac.FIGURE_4["DP-SGD"])),
    ("000-13", "NORMS", psac.NORMS[::-1]),
    ("000-9", "excess_at_share", lambda **at: 0.5),
    ("000-9", "excess_at_share", lambda **at: 1.01),
    ("000-9", "excess_of_sums", lambda q, *at: 0.99),
]


@pytest.mark.parametrize(("name", "attribute", "wrong"), WRONG)
def test_a_claim_fails_where_it_is_wrong(monkeypatch, fails, name, attribute, wrong):
    monkeypatch.setattr(psac, attribute, wrong)
    assert fails(name)


@pytest.mark.parametrize("adding", [False, True])
def test_losses_that_count_as_infinite_are_above_an_upper_bound(adding):
    """Of a release with the exact epsilon 66 at delta = .1 a loss from 40 on is infinite."""
    release, delta = Mixture(np.ones(1), np.ones(1), 0.09), 0.1
    low, high = epsilon_bounds(release, 1, delta, adding=adding)
    assert low <= privacy.gaussian_epsilon(0.09, delta) <= high == np.inf
