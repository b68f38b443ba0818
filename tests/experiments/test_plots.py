"""Plots of results, ledgers and verdicts show the numbers that their methods return."""

import math
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.colors import to_rgb

import dpanalysis as dpa
from dpanalysis import audit, plotting, privacy
from dpanalysis.privacy.events import Gaussian, Laplace

X = np.random.default_rng(0).uniform(-1.0, 1.0, (60, 3))
PROBLEM = dpa.ERM(
    X, np.where(X[:, 0] > 0, 1, -1), dpa.losses.Logistic(), row_bound=dpa.RowBound(2, 2.0)
)
GRADIENTS = dpa.methods.GradientDescent(0.3, 30, mechanism="gaussian")
ADDED = "add_or_remove_one"


def epoch_run(batches, epochs):
    method = dpa.methods.SGD(
        0.1, batches * epochs, dpa.BallsInBins(batches), dpa.clipping.Flat(1.0)
    )
    return dpa.minimize(PROBLEM, method, dpa.Budget(1.0, 1e-5, ADDED), rng=0, replicates=2)


def run(**options):
    budget = dpa.Budget(1.0, 1e-5)
    return dpa.minimize(PROBLEM, GRADIENTS, budget, rng=0, replicates=3, **options)


def drawn(ax):
    return np.asarray(ax.lines[0].get_xdata()), np.asarray(ax.lines[0].get_ydata())


def test_a_record_over_the_iterations():
    result = run(record=("objective", "gradient_norm", "iterate"))
    for name in ("objective", "gradient_norm"):
        ax = result.plot(name)
        x, y = drawn(ax)
        np.testing.assert_array_equal(x, result.history["iteration"])
        np.testing.assert_allclose(y, result.history[name].mean(axis=1))
        assert ax.get_xlabel() == "iteration" and ax.get_ylabel() == name.replace("_", " ")
        assert ax.get_yscale() == ("log" if name == "gradient_norm" else "linear")
        assert ax.figure.get_figwidth() == plotting.COLUMN and ax.figure.dpi >= 200
    assert result.plot().get_ylabel() == "objective"
    _, axes = plotting.panels(1, 1)
    assert result.plot(ax=axes[0, 0]) is axes[0, 0]


def test_runs_in_one_picture_differ_in_color_and_label():
    ax = run().plot()
    run().plot(label="again", ax=ax)
    ax.plot([0.0, 1.0], [0.5, 0.5], label="bound")
    assert [line.get_label() for line in ax.lines] == ["GradientDescent", "again", "bound"]
    assert len({line.get_color() for line in ax.lines}) == 3
    for line, band in zip(ax.lines, ax.collections):  # of the replicates, in the line's color
        assert to_rgb(band.get_facecolor()[0]) == to_rgb(line.get_color())


def test_equal_steps_cost_equal_parts_of_epsilon():
    result = dpa.minimize(
        PROBLEM, dpa.methods.GradientDescent(0.3, 4), dpa.Budget(1.0), record="objective", rng=0
    )
    x, _ = drawn(result.plot(x="epsilon"))
    np.testing.assert_allclose(x, [0.0, 0.25, 0.5, 0.75, 1.0], rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("make", [run, lambda: run(every=7), lambda: epoch_run(5, 2)])
def test_epsilon_of_a_picture_is_that_of_the_events_before_each_record(make):
    result = make()
    ax = result.plot("objective", x="epsilon")
    x, y = drawn(ax)
    assert x[0] == 0.0 and (np.diff(x) >= 0.0).all()
    assert x[-1] == pytest.approx(result.epsilon(), rel=1e-6)
    np.testing.assert_allclose(y, result.history["objective"].mean(axis=1))
    k = len(x) // 2
    first = result.ledger.first(int(result.charged[k]))
    assert x[k] == (privacy.epsilon(first, 1e-5, result.ledger.relation) if first else 0.0)


@pytest.mark.slow
def test_an_epoch_is_paid_for_when_it_begins():
    result = epoch_run(5, 3)
    assert result.charged.tolist() == [0, *np.repeat([1, 2, 3], 5).tolist()]
    assert run().charged.tolist() == list(range(31))


@pytest.mark.slow
def test_what_cannot_be_drawn_is_refused():
    result = run(record=("objective",))
    with pytest.raises(ValueError, match="name must be one of 'objective', got 'gap'"):
        result.plot("gap")
    with pytest.raises(ValueError, match="x must be one of 'iteration', 'epsilon', got 'time'"):
        result.plot(x="time")
    with pytest.raises(ValueError, match="epsilon is infinite at delta = 0"):
        result.plot(x="epsilon", delta=0.0)
    with pytest.raises(ValueError, match="ask minimize for record='objective'"):
        run(record=()).plot()
    exact = dpa.minimize(PROBLEM, dpa.methods.GradientDescent(0.3, 3), None)
    with pytest.raises(ValueError, match="exact gradients have no finite epsilon"):
        exact.plot(x="epsilon")
    search = dpa.minimize(PROBLEM, dpa.methods.LineSearchGD(), dpa.Budget(1.0, 1e-5, ADDED), rng=0)
    with pytest.raises(ValueError, match="only the epsilon of the whole is known"):
        search.plot(x="epsilon")
    assert search.plot().lines
    last = dpa.minimize(PROBLEM, dpa.methods.LastIterate(GRADIENTS), dpa.Budget(1.0, 1e-5), rng=0)
    with pytest.raises(ValueError, match="only the epsilon of the whole is known"):
        last.plot(x="epsilon")


events = st.lists(
    st.sampled_from([Laplace(9.0, 1.0), Gaussian(8.0, 1.0), Gaussian(5.0, 1.0)]), max_size=6
)


@given(events, st.integers(0, 8))
def test_the_first_events_of_a_ledger(listed, count):
    ledger = privacy.Ledger("replace_one")
    for event in listed:
        ledger.record(event)
    again = privacy.Ledger("replace_one")
    for event in listed[:count]:
        again.record(event)
    assert ledger.first(count) == list(again)


@settings(max_examples=10)
@given(events, st.sampled_from([1e-5, 1e-2]))
def test_a_ledger_over_its_events(listed, delta):
    ledger = privacy.Ledger("replace_one")
    if not listed:
        with pytest.raises(ValueError, match="nothing was released"):
            ledger.plot()
        return
    for event in listed:
        ledger.record(event)
    x, y = drawn(ledger.plot(delta=delta))
    assert x.tolist() == list(range(len(listed) + 1))
    assert y[0] == 0.0 and y[-1] == ledger.epsilon(delta) and (np.diff(y) >= -1e-9).all()
    if any(isinstance(event, Gaussian) for event in listed):
        with pytest.raises(ValueError, match="give a larger delta"):
            ledger.plot(delta=0.0)


def test_a_long_ledger_is_drawn_from_few_costs():
    ledger = privacy.Ledger("replace_one")
    for _ in range(1000):
        ledger.record(Laplace(100.0, 1.0))
    x, y = drawn(ledger.plot(delta=0.0))
    assert len(x) == 40 and x[0] == 0 and x[-1] == 1000
    np.testing.assert_allclose(y, 0.01 * x)


@pytest.mark.parametrize("claim", [1.0, (0.5, 1e-3), audit.GaussianPrivacy(0.5)])
@pytest.mark.parametrize("scale", [0.3, 5.0])
def test_a_verdict_beside_its_claim(claim, scale):
    def noisy(count, rng, size):
        return count + rng.laplace(0.0, scale, size)

    verdict = audit.verify_privacy(noisy, 0, 1, claim, samples=20_000, rng=0)
    ax = verdict.plot()
    claimed, found, seen, kept = ax.lines
    p, q = verdict.probabilities
    if verdict.likelier == "neighbour":
        p, q = q, p
    assert (seen.get_xdata()[0], seen.get_ydata()[0]) == (
        pytest.approx(max(q, 1e-9)),
        p,
    ) or q == 0.0
    # The pair that is not rejected lies on the curve of the bound.
    at = np.asarray(claimed.get_xdata())
    curve, top = np.asarray(claimed.get_ydata()), verdict.bounds[0]
    assert (np.asarray(found.get_ydata()) >= curve - 1e-12).all() == (
        verdict.bound >= verdict.claim
    )
    if verdict.refuted:
        assert top > np.interp(kept.get_xdata()[0], at, curve)
    assert ax.get_xscale() == ax.get_yscale() == "log"
    key_is_above(ax)


def key_is_above(ax):
    """A key that shows a point must not lie where the points are."""
    ax.figure.draw_without_rendering()
    assert ax.get_legend().get_window_extent().y0 >= ax.get_window_extent().y1


def test_the_key_of_a_privacy_curve():
    key_is_above(privacy.privacy_curve([Gaussian(1.0, 1.0)], "replace_one").plot(delta=1e-3))


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch):
    result = run()
    verdict = audit.verify_privacy(
        lambda count, rng, size: rng.laplace(count, 1.0, size), 0, 1, 1.0, samples=2000, rng=0
    )
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for draw in (result.plot, result.ledger.plot, verdict.plot, result.privacy_curve().plot):
        with pytest.raises(ImportError, match="pip install matplotlib"):
            draw()
    assert math.isfinite(result.epsilon())
