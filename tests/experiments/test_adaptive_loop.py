"""Adaptive runs: replicates one after the other, each under a separate filter."""

import math

import numpy as np
import pytest

import dpanalysis as dpa
from dpanalysis import privacy
from dpanalysis.experiments.loop import Log
from dpanalysis.privacy.oracle import LARGEST_ITERATE

ADD, REPLACE = "add_or_remove_one", "replace_one"
METHOD = dpa.methods.LineSearchGD(rho=0.005, epsilon=0.1)
BUDGET = dpa.Budget(2.0, 1e-5, REPLACE)


def logistic(n=200):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, size=(n, 3))
    return dpa.ERM(X, np.sign(X @ [1.0, -2.0, 0.5]), dpa.losses.Logistic())


def run(**options):
    options = {"budget": BUDGET, "method": METHOD, "rng": 0, **options}
    method, budget = options.pop("method"), options.pop("budget")
    return dpa.minimize(logistic(), method, budget, **options)


@pytest.mark.slow
def test_every_replicate_has_a_filter_and_a_ledger_of_its_own():
    result = run(replicates=3)
    assert result.w.shape == (3, 3) and len(result.ledgers) == 3
    assert result.ledger is result.ledgers[0] and result.iterations == result.made.max()
    for ledger in result.ledgers:
        guard = privacy.Filter(BUDGET, order=result.guard.order)
        for event in ledger:
            guard.spend(event)  # each fits by itself
        assert guard.spent > 0.8 * guard.limit
    assert result.guard.spent < 1.001 * result.guard.limit
    # The guarantee is for one run; three released together cost more.
    assert result.epsilon() == pytest.approx(2.0)
    assert result.epsilon(replicates=3) > 1.5 * result.epsilon()


def test_the_grant_of_a_filter_is_stated_at_many_deltas_and_epsilons():
    result, deltas = run(), [1e-3, 1e-5, 1e-7]
    found = result.epsilon(deltas)
    assert found.tolist() == [result.epsilon(delta) for delta in deltas]
    back = result.delta(found)
    assert (back >= 0.99 * np.array(deltas)).all()  # between its points the curve lies above
    np.testing.assert_allclose(back, deltas, rtol=0.1)


def test_history_goes_on_at_the_last_iterate_of_a_run_that_is_over():
    result = run(replicates=3)
    assert len(set(result.made.tolist())) > 1
    objective, steps = result.history["objective"], result.history["step_size"]
    assert objective.shape == steps.shape == (len(result.history["iteration"]), 3)
    final = logistic().value(result.w)
    np.testing.assert_allclose(objective[-1], final, rtol=1e-12)
    shortest = int(np.argmin(result.made))
    over = result.history["iteration"] > result.made[shortest]
    assert over.any()
    np.testing.assert_allclose(objective[over, shortest], final[shortest], rtol=1e-12)


@pytest.mark.parametrize("every", [1, 4, 1000])
def test_what_is_recorded_changes_nothing(every):
    reference, result = run(record=()), run(every=every)
    np.testing.assert_array_equal(result.w, reference.w)
    iterations = result.history["iteration"]
    assert iterations[0] == 0 and iterations[-1] == result.iterations
    assert (np.diff(iterations) > 0).all()


def test_two_runs_share_a_filter():
    """The second run gets the rest of the budget; together they stay within it."""
    guard = privacy.Filter(dpa.Budget.zcdp(0.1, REPLACE))
    method = dpa.methods.LineSearchGD(rho=0.005, epsilon=0.1, iterations=3)
    first = run(method=method, budget=guard)
    between = guard.spent
    second = run(method=METHOD, budget=guard, rng=1)
    assert first.private and second.private and first.guard is second.guard is guard
    assert first.iterations == 3 and 0.0 < between < guard.spent <= guard.limit * (1 + 1e-9)
    rho = sum(event.zcdp_cost() for each in (first, second) for event in each.ledger)
    assert rho == pytest.approx(guard.spent)
    third = run(budget=guard, rng=2)
    assert third.iterations == 0 and not len(third.ledger)
    with pytest.raises(ValueError, match="replicates"):
        run(budget=guard, replicates=2)
    with pytest.raises(TypeError, match="budget"):
        run(budget=1.0)
    with pytest.raises(dpa.IncompatibleAccounting):
        run(budget=privacy.Filter(dpa.Budget.zcdp(0.1, ADD)), method=fixed_size())


def fixed_size():
    return dpa.methods.LineSearchSGD(dpa.WithoutReplacement(20), rho=0.01, epsilon=0.1)


def test_a_callback_ends_one_replicate_and_not_the_others():
    stops = []

    def stop(iteration, w):
        assert w.shape == (1, 3)
        stops.append(iteration)
        return iteration == 2

    result = run(replicates=2, callback=stop)
    assert result.status == "stopped by callback" and result.made.tolist() == [2, 2]
    assert stops == [1, 2, 1, 2]
    assert result.epsilon() == pytest.approx(2.0)  # the filter's guarantee, whatever was used


def test_a_run_that_diverges_holds_the_last_finite_iterate():
    """Steps that grow without end, and make no query."""

    class Leap(dpa.methods.LineSearchGD):
        def run(self, w, oracle, settings):
            while True:
                w = 1e60 * (w + 1.0)
                yield dpa.methods.Step(w)

    with pytest.warns(RuntimeWarning, match="diverged at iteration 5"):
        result = run(method=Leap(rho=0.005, epsilon=0.1), record=())
    assert result.status == "diverged" and result.made.tolist() == [4]
    assert np.isfinite(result.w).all() and np.abs(result.w).max() < LARGEST_ITERATE


def test_replicates_may_start_apart():
    start = np.array([[0.0, 0.0, 0.0], [1.0, -1.0, 0.5]])
    both = run(w0=start, replicates=2, record=("iterate",))
    np.testing.assert_array_equal(both.history["iterate"][0], start)
    alone = run(w0=start[0], record=("iterate",))
    np.testing.assert_array_equal(both.w[0], alone.w[0])


def test_a_run_without_a_budget_has_no_guarantee():
    result = run(budget=None, method=dpa.methods.LineSearchGD(iterations=5))
    assert not result.private and result.guard is None and result.epsilon() == math.inf
    assert result.evaluations["gradient"] == 200 * 5
    assert 2 * 5 <= result.evaluations["loss"] / 200 <= 21 * 5


def test_what_cannot_be_accounted_is_refused_before_the_data_are_touched(monkeypatch):
    def unread(*arguments, **options):
        raise AssertionError("the data were touched")

    monkeypatch.setattr(dpa.ERM, "sums", unread)
    monkeypatch.setattr(dpa.ERM, "line_losses", unread)
    poisson = dpa.methods.LineSearchSGD(dpa.Poisson(0.1))
    with pytest.raises(dpa.IncompatibleAccounting, match="Poisson"):
        run(method=poisson)
    with pytest.raises(dpa.IncompatibleAccounting):  # Gaussian noise on Poisson batches has no rho
        run(method=poisson, budget=dpa.Budget.zcdp(1.0, ADD))
    with pytest.raises(ValueError, match="delta > 0"):
        run(budget=dpa.Budget(1.0))
    with pytest.raises(ValueError, match="m must be"):
        run(method=dpa.methods.LineSearchSGD(dpa.WithoutReplacement(300)))
    with pytest.raises(ValueError, match="accountant"):
        result = run(budget=None, accountant="best")
    monkeypatch.undo()
    result = run()
    with pytest.raises(ValueError, match="accountant must be 'tightest'"):
        result.epsilon(accountant="pld")


def test_what_a_step_does_not_release_is_missing_there():
    log = Log(None, {}, 1)
    log.add(0, np.zeros((1, 2)))
    log.add(1, np.zeros((1, 2)), released={"a": 1.0})
    log.add(2, np.zeros((1, 2)), released={"b": 2.0})
    merged = Log.merge([log])
    np.testing.assert_array_equal(merged["a"][:, 0], [np.nan, 1.0, np.nan])
    np.testing.assert_array_equal(merged["b"][:, 0], [np.nan, np.nan, 2.0])
