"""DP-AGD: steps, budgets, and the exact law of a tiny run."""

import math

import numpy as np
import pytest
from scipy import stats
from small_runs import logistic, unrolled

import dpanalysis as dpa
from dpanalysis import privacy
from dpanalysis.audit import hockey_stick, renyi_divergence, report_noisy_min_distribution
from dpanalysis.methods.line_search import GradientSearch
from dpanalysis.privacy import mechanisms
from dpanalysis.privacy.events import BoundedRange, Gaussian, Pure
from dpanalysis.privacy.queries import NoisyMin

AdaptiveGD = dpa.methods.AdaptiveGD
ADD, REPLACE = "add_or_remove_one", "replace_one"


def test_an_exact_run_takes_the_best_of_the_grid():
    """Normalized steps; the range follows the last step, and never exceeds the first range."""
    problem = logistic()
    method = AdaptiveGD(step_size=0.8, candidates=12, memory=1, iterations=15, headroom=1.1)
    result = dpa.minimize(problem, method, None, record=("iterate",))
    w, reaches = np.zeros(4), [0.8]
    for t in range(result.iterations):
        gradient = problem.gradient(w)
        grid = [k * reaches[-1] / 12 for k in range(13)]
        points = [w - eta * gradient / np.linalg.norm(gradient) for eta in grid]
        best = int(np.argmin([problem.value(point) for point in points]))
        assert result.history["step_size"][t + 1, 0] == pytest.approx(grid[best], rel=1e-12)
        w = points[best]
        np.testing.assert_allclose(result.history["iterate"][t + 1, 0], w, rtol=1e-9)
        reaches.append(min(1.1 * grid[best], 0.8))
    assert result.iterations > 3 and min(reaches) < 0.8
    # An early end means that the current point was the best of the grid.
    gradient = problem.gradient(w)
    steps = reaches[-1] / 12 * np.arange(13)
    values = [problem.value(w - eta * gradient / np.linalg.norm(gradient)) for eta in steps]
    assert result.iterations == 15 or np.argmin(values) == 0


def test_the_range_grows_again_but_not_above_the_first(monkeypatch):
    answers = iter([1, 1, 4, 4, 4, 4, 4, 4])
    monkeypatch.setattr(NoisyMin, "answer", lambda self, records, random: (next(answers), 5))
    method = AdaptiveGD(step_size=1.0, candidates=4, memory=2, iterations=8, headroom=2.0)
    result = dpa.minimize(logistic(), method, None)
    steps = result.history["step_size"][1:, 0]
    np.testing.assert_allclose(steps, [0.25, 0.25, 0.5, 0.5, 1.0, 1.0, 1.0, 1.0])


def test_a_gradient_of_zero_is_no_direction():
    problem = dpa.ERM(np.zeros((5, 2)), np.ones(5), dpa.losses.Logistic())
    result = dpa.minimize(problem, AdaptiveGD(), None)
    assert result.iterations == 0 and (result.w == 0.0).all()


@pytest.mark.parametrize(("relation", "moved"), [(ADD, 1.0), (REPLACE, 2.0)])
@pytest.mark.parametrize(("noise", "ratio"), [("gumbel", math.sqrt(0.16)), ("exponential", 0.2)])
def test_units_of_one_attempt(relation, moved, noise, ratio):
    """Ratio: S/b of the choice that costs rho = .02, by range^2/8 or by epsilon^2/2."""
    facts = logistic(100).facts(relation)
    method = AdaptiveGD(rho=0.01, selection_rho=0.02, clip_norm=0.5, clip_loss=2.0, noise=noise)
    spending = method.prepare(facts, dpa.Budget(1.0, 1e-6, relation), "tightest")
    (batch,) = method.iteration(facts, spending)
    gradient, choice = batch.events
    assert isinstance(gradient, Gaussian) and gradient.zcdp_cost() == pytest.approx(0.01)
    assert gradient.sensitivity == pytest.approx(moved * 0.5 / 100)
    assert isinstance(choice, BoundedRange if noise == "gumbel" else Pure)
    assert choice.epsilon == pytest.approx(ratio)
    assert 0.0199 < choice.zcdp_cost() <= 0.02 * (1 + 1e-9)
    question = method._query(method._ray(np.zeros(4), np.zeros(4), 1.0), facts, spending)
    assert question.scale == pytest.approx(moved * 2.0 / 100 / ratio)
    assert question.points.step_sizes[0] == 0.0 and len(question.points.step_sizes) == 21


def test_default_costs():
    facts = logistic(100).facts(ADD)
    spending = AdaptiveGD().prepare(facts, dpa.Budget(1.2, 1e-8, ADD), "tightest")
    assert spending.rho == pytest.approx(0.5e-4)  # e = .01
    assert spending.epsilon**2 / 8.0 == pytest.approx(0.5e-4)
    assert AdaptiveGD(rho=1.0).prepare(facts, None, "tightest").exact


def test_index_zero_leads_to_another_measurement(monkeypatch):
    """Two failures at growth .5: costs rho, rho/2, 3 rho/4; weights in proportion to them."""
    gradients = [[1.0, 0, 0, 0], [0, 1.0, 0, 0], [0, 0, 1.0, 0], [1.0, 0, 0, 0]]
    answers, measure = iter([0, 0, 2, 1]), GradientSearch._gradient

    def gradient(self, batch, w, facts, spending):
        measure(self, batch, w, facts, spending)
        return np.array(gradients.pop(0), dtype=float)

    monkeypatch.setattr(GradientSearch, "_gradient", gradient)
    monkeypatch.setattr(NoisyMin, "answer", lambda self, records, random: (next(answers), 5))
    method = AdaptiveGD(
        rho=0.01, selection_rho=0.01, growth=0.5, iterations=2, step_size=1.0, candidates=4
    )
    budget = dpa.Budget.zcdp(1.0, ADD)
    result = dpa.minimize(logistic(), method, budget, rng=0, record=("iterate",))
    events = [batch.events for batch in unrolled(result.ledger)]
    costs = [gradient.zcdp_cost() for gradient, _ in events]
    np.testing.assert_allclose(costs, [0.01, 0.005, 0.0075, 0.0225])
    assert all(choice.zcdp_cost() == pytest.approx(0.01) for _, choice in events)
    mean = np.array([0.01, 0.005, 0.0075, 0.0]) / 0.0225
    first = -0.5 * mean / np.linalg.norm(mean)
    np.testing.assert_allclose(result.history["iterate"][1, 0], first)
    np.testing.assert_allclose(result.history["rho"][1:, 0], 0.0225)


@pytest.mark.slow
def test_two_measurements_are_as_good_as_one_at_the_grown_budget(monkeypatch):
    """Their weighted mean has the variance of one measurement that costs the sum.

    4 x 500 coordinates: the variance lies within 20% except with chance below 1e-6, by chi-square
    with 2000 degrees of freedom (5% and 7% here are 1 and 2 standard deviations).
    """
    rho, growth, n = 0.01, 3.0, 300
    seen = []
    ray = AdaptiveGD._ray

    def spy(self, w, gradient, reach):
        seen.append(gradient)
        return ray(self, w, gradient, reach)

    answers = iter([0, 1] * 500)
    monkeypatch.setattr(AdaptiveGD, "_ray", spy)
    monkeypatch.setattr(NoisyMin, "answer", lambda self, records, random: (next(answers), 2))
    problem = logistic(n)
    method = AdaptiveGD(rho=rho, selection_rho=0.01, growth=growth, iterations=1, clip_norm=1.5)
    result = dpa.minimize(
        problem, method, dpa.Budget.zcdp(1.0, ADD), rng=0, replicates=500, record=()
    )
    assert (result.made == 1).all()
    both = np.array([g for g in seen if np.any(g)])[1::2]
    assert both.shape == (500, 4)
    clipped = problem.clipped_gradient_sum(np.zeros(4), dpa.clipping.Flat(1.5))[0] / n
    variance = (1.5 / n) ** 2 / (2.0 * (1.0 + growth) * rho)
    assert np.mean((both - clipped) ** 2) == pytest.approx(variance, rel=0.2)


# --- the exact law of one attempt on two records ---

CLIP, STEPS, LOSS_CLIP = 0.25, 4, 0.9


def tiny(labels):
    """Records x = 1 in one dimension: the direction is a sign, and all outcomes can be listed."""
    return dpa.ERM(np.ones((2, 1)), np.array(labels), dpa.losses.Logistic())


def tiny_method(rho, selection_rho, noise):
    return AdaptiveGD(
        rho=rho, selection_rho=selection_rho, noise=noise, clip_norm=CLIP, clip_loss=LOSS_CLIP,
        candidates=STEPS, iterations=1, step_size=2.0,
    )  # fmt: skip


def exact_law(labels, rho, selection_rho, noise):
    """Law of w after one attempt, by hand: at -2, -1.5, ..., 2; at 0 if index 0 was chosen."""
    y = np.array(labels, dtype=float)
    mean = -CLIP * y.mean()  # each gradient is -y/2, clipped
    std = CLIP / math.sqrt(2.0 * rho)  # replaced: 2 C/n
    ratio = math.sqrt(8.0 * selection_rho) if noise == "gumbel" else math.sqrt(2.0 * selection_rho)
    law = np.zeros(2 * STEPS + 1)
    for sign in (1, -1):
        points = -sign * np.linspace(0.0, 2.0, STEPS + 1)
        losses = np.minimum(np.log1p(np.exp(-np.outer(y, points))), LOSS_CLIP).mean(axis=0)
        choice = report_noisy_min_distribution(losses, noise, LOSS_CLIP / ratio)
        law[STEPS - sign * np.arange(STEPS + 1)] += stats.norm.cdf(sign * mean / std) * choice
    return law


def simulated(labels, rho, selection_rho, noise, runs=1500):
    """Frequencies of the outcomes of the method itself, under a filter for one attempt."""
    budget = dpa.Budget.zcdp(rho + selection_rho, REPLACE)
    result = dpa.minimize(
        tiny(labels), tiny_method(rho, selection_rho, noise), budget,
        rng=5, replicates=runs, record=(),
    )  # fmt: skip
    places = np.round(result.w[:, 0] * STEPS / 2.0).astype(int) + STEPS
    return np.bincount(places, minlength=2 * STEPS + 1)


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["gumbel", "exponential"])
def test_the_law_of_a_tiny_run_is_the_one_enumerated(noise, monkeypatch):
    """By chi-square at p = 1e-6; the wrong sign of the noise is detected (errata 002-11)."""
    settings = ([1.0, 1.0], 0.5, 2.0, noise)
    law = exact_law(*settings)
    assert stats.chisquare(simulated(*settings), 1500 * law).pvalue > 1e-6
    drawn = getattr(mechanisms, noise)
    monkeypatch.setattr(mechanisms, noise, lambda *arguments: -drawn(*arguments))
    assert stats.chisquare(simulated(*settings), 1500 * law).pvalue < 1e-6


@pytest.mark.parametrize("noise", ["gumbel", "exponential"])
@pytest.mark.parametrize("neighbours", [([1.0, 1.0], [1.0, -1.0]), ([-1.0, -1.0], [1.0, -1.0])])
@pytest.mark.parametrize("rhos", [(0.01, 0.01), (0.5, 0.1), (1e-3, 2.0), (3.0, 3.0)])
def test_a_tiny_run_keeps_its_guarantee(neighbours, noise, rhos):
    """Exactly: Renyi divergences at several orders, and delta at several epsilon."""
    laws = [exact_law(labels, *rhos, noise) for labels in neighbours]
    rho = sum(rhos)
    for order in (1.1, 2.0, 8.0, 50.0):
        for p, q in (laws, laws[::-1]):
            assert renyi_divergence(p, q, order) <= order * rho * (1 + 1e-9)
    for delta in (1e-2, 1e-6):
        epsilon = privacy.zcdp_to_epsilon(rho, delta)
        for p, q in (laws, laws[::-1]):
            assert hockey_stick(p, q, epsilon) <= delta * (1 + 1e-9)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("step_size", (0.0, -1.0, math.nan)),
        ("candidates", (0,)),
        ("clip_norm", (0.0,)),
        ("clip_loss", (0.0, -2.0)),
        ("growth", (0.0, -0.1)),
        ("headroom", (1.0,)),
        ("memory", (0,)),
        ("iterations", (0,)),
        ("rho", (0.0,)),
        ("selection_rho", (0.0, math.inf)),
        ("noise", ("laplace",)),
    ],
)
def test_refuses_bad_arguments(name, values):
    for value in values:
        with pytest.raises(ValueError, match=name):
            AdaptiveGD(**{name: value})
