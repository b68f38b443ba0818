"""The private oracle: sensitivities, charges, batches, noise."""

import contextlib
import copy
import dataclasses
import itertools
import pickle
import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import dpanalysis as dpa
from dpanalysis.privacy import events, mechanisms, queries
from dpanalysis.privacy.budget import Filter, Plan
from dpanalysis.privacy.facts import PublicFacts, gradient_event
from dpanalysis.privacy.oracle import PrivateOracle

LOGISTIC = dpa.losses.Logistic()


def problem_of(X, y, radius=2.0, order=1, loss=LOGISTIC, regularizer=None):
    return dpa.ERM(X, y, loss, regularizer, row_bound=dpa.RowBound(order, radius))


def oracle_of(problem, relation="replace_one", guard=None, replicates=1, seed=0):
    facts = problem.facts(relation)
    return PrivateOracle(problem, facts, guard, mechanisms.spawn(seed, replicates))


def buy(oracle, sampling, *scales, mechanism="laplace", clipping=None):
    """Open a batch that is charged for gradients with these noise scales."""
    events = [oracle.gradient_event(sampling, mechanism, s, clipping) for s in scales]
    return oracle.batch(sampling, events)


def exact_mean(problem, sampling, w):
    """Return the mean gradient without noise."""
    return oracle_of(problem).gradient(w, sampling, "laplace", 0.0)


@given(
    n=st.integers(1, 8),
    d=st.integers(1, 4),
    order=st.sampled_from([1, 2]),
    radius=st.floats(0.1, 10.0),
    spread=st.floats(0.1, 1e3),
    seed=st.integers(0, 2**20),
)
def test_gradient_never_moves_by_more_than_the_sensitivity(n, d, order, radius, spread, seed):
    """Replace any record by any other, rows far over the bound included."""
    rng = np.random.default_rng(seed)
    X, w = rng.normal(scale=spread, size=(n, d)), rng.normal(scale=spread, size=d)
    y = rng.choice([-1.0, 1.0], size=n)
    Z, z = X.copy(), y.copy()
    Z[0], z[0] = rng.normal(scale=spread, size=d), rng.choice([-1.0, 1.0])
    here, there = problem_of(X, y, radius, order), problem_of(Z, z, radius, order)
    moved = exact_mean(here, dpa.Full(), w) - exact_mean(there, dpa.Full(), w)
    facts = here.facts("replace_one")
    for norm in (1, 2):
        limit = facts.gradient_sensitivity(dpa.Full(), norm)
        assert np.linalg.norm(moved, ord=norm) <= limit * (1 + 1e-9)


def test_sensitivity_is_attained():
    """Two orthogonal records at the bound with saturated losses: no smaller constant suffices."""
    radius = 3.0
    w = np.array([1e3, 1e3])
    here = problem_of(np.array([[radius, 0.0]]), np.array([-1.0]), radius)
    there = problem_of(np.array([[0.0, radius]]), np.array([-1.0]), radius)
    moved = exact_mean(here, dpa.Full(), w) - exact_mean(there, dpa.Full(), w)
    limit = here.facts("replace_one").gradient_sensitivity(dpa.Full(), 1)
    assert np.abs(moved).sum() == pytest.approx(limit, rel=1e-9)


def test_add_or_remove_one_is_half_of_replace_one():
    problem = problem_of(np.ones((4, 2)), np.ones(4))
    replace = problem.facts("replace_one").gradient_sensitivity(dpa.Full(), 2)
    remove = problem.facts("add_or_remove_one").gradient_sensitivity(dpa.Full(), 2)
    # Up to the rounding of both sums, which is counted twice for either relation.
    assert replace == pytest.approx(2.0 * remove, rel=1e-9)
    assert replace == pytest.approx(2.0 * 2.0 / 4) and replace > 2.0 * 2.0 / 4


def test_poisson_divides_by_the_public_size():
    """The divisor is rate * n whatever was drawn: the realised size would be private."""
    problem = problem_of(np.ones((1000, 1)), np.ones(1000), radius=1.0)
    w = np.zeros((200, 1))
    oracle = oracle_of(problem, "add_or_remove_one", replicates=200)
    means = oracle.gradient(w, dpa.Poisson(0.02), "laplace", 0.0)[:, 0]
    # Every gradient is -1/2 x: the answer is -(size drawn)/(2 * 20), so it varies.
    sizes = -2.0 * 20.0 * means
    np.testing.assert_allclose(sizes, np.round(sizes), atol=1e-9)
    assert sizes.std() > 2.0 and abs(sizes.mean() - 20.0) < 5 * np.sqrt(19.6 / 200)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mechanism", "law"), [("laplace", stats.laplace), ("gaussian", stats.norm)]
)
def test_noise_has_the_scale_that_the_ledger_says(mechanism, law):
    """Two-sided: the right scale passes, sqrt 2 and 2 times are rejected.

    Kolmogorov-Smirnov on 20,000 draws; false alarm 1e-6, power against sqrt 2 one to 1e-12.
    """
    problem = problem_of(np.ones((5, 10)), np.ones(5))
    oracle = oracle_of(problem, replicates=2000)
    scale = 0.7
    noisy = oracle.gradient(np.zeros((2000, 10)), dpa.Full(), mechanism, scale)
    noise = (noisy - exact_mean(problem, dpa.Full(), np.zeros(10))).ravel()
    assert stats.kstest(noise, law(scale=scale).cdf).pvalue > 1e-6
    for wrong in (np.sqrt(2.0), 1 / np.sqrt(2.0), 2.0, 0.5):
        assert stats.kstest(noise, law(scale=scale * wrong).cdf).pvalue < 1e-12


def test_a_batch_is_one_event():
    """Two queries of one batch are composed first and amplified once."""
    problem = problem_of(np.ones((100, 2)), np.ones(100))
    oracle = oracle_of(problem, "add_or_remove_one")
    sampling = dpa.Poisson(0.1)
    with buy(oracle, sampling, 1.0, 2.0, mechanism="gaussian") as batch:
        first = batch.gradient(np.zeros((1, 2)), "gaussian", 1.0)
        second = batch.gradient(np.zeros((1, 2)), "gaussian", 2.0)
    assert first.shape == second.shape == (1, 2)
    (event,) = oracle.ledger.events
    assert isinstance(event, events.Sampled)
    assert [e.std for e in event.events] == [1.0, 2.0]


def test_a_refused_batch_is_neither_opened_nor_charged():
    problem = problem_of(np.ones((10, 2)), np.ones(10))
    one = gradient_event(problem.facts("replace_one"), dpa.Full(), "laplace", 1.0)
    guard = Filter(dpa.Budget(1.5 * one.sensitivity))
    oracle = oracle_of(problem, guard=guard)
    w = np.zeros((1, 2))
    oracle.gradient(w, dpa.Full(), "laplace", 1.0)
    for scale in (1.0, 0.0):  # over the budget, and without noise
        with pytest.raises(dpa.PrivacyBudgetExceeded):
            oracle.gradient(w, dpa.Full(), "laplace", scale)
    assert oracle.ledger.events == (one,)
    # Half of the budget is left, and it can still be used.
    oracle.gradient(w, dpa.Full(), "laplace", 2.0)
    assert oracle.ledger.epsilon(0.0) == pytest.approx(1.5 * one.sensitivity)


def test_a_batch_is_charged_whole_before_anything_is_answered():
    """Guard and ledger are charged for both queries before the first, and if none is asked."""
    problem = problem_of(np.ones((10, 2)), np.ones(10))  # a query costs .4 / scale
    guard = Filter(dpa.Budget(2.0))
    oracle = oracle_of(problem, guard=guard)
    with buy(oracle, dpa.Full(), 1.0, 2.0) as batch:
        assert guard.spent == pytest.approx(0.6) == oracle.ledger.epsilon()
        ask(batch, 2.0)
    with pytest.raises(KeyError), buy(oracle, dpa.Full(), 1.0):
        raise KeyError("a failing user pays")
    assert guard.spent == pytest.approx(1.0) == oracle.ledger.epsilon()


def test_a_batch_is_paid_and_written_down_before_it_is_drawn(monkeypatch):
    """An interrupted draw may have been observed, so it must have been charged."""
    guard = Filter(dpa.Budget(1.0))
    oracle, seen = oracle_of(problem_of(np.ones((10, 2)), np.ones(10)), guard=guard), []
    draw = dpa.WithoutReplacement.draw

    def watched(self, n, random):
        seen.append((guard.spent, len(oracle.ledger)))
        return draw(self, n, random)

    monkeypatch.setattr(dpa.WithoutReplacement, "draw", watched)
    with buy(oracle, dpa.WithoutReplacement(5), 10.0):
        pass
    with pytest.raises(dpa.PrivacyBudgetExceeded), buy(oracle, dpa.WithoutReplacement(5), 0.01):
        pass
    assert seen == [(guard.spent, 1)] and guard.spent > 0.0


def test_what_was_not_named_is_refused():
    """Less noise, an exact answer, and the same query twice; a cheaper one is answered."""
    problem = counting()
    rule = dpa.clipping.Flat(0.1)
    oracle = oracle_of(problem)
    with buy(oracle, dpa.Full(), 1.0) as batch:
        for scale in (0.99, 0.0):
            with pytest.raises(dpa.PrivacyBudgetExceeded, match="was not declared"):
                ask(batch, scale)
        assert problem.looks == 0
        batch.gradient(np.zeros((1, 2)), "laplace", 0.1, rule)
        with pytest.raises(dpa.PrivacyBudgetExceeded, match="was not declared"):
            ask(batch, 1.0)
    assert problem.looks == 1 and len(oracle.ledger) == 1


@given(
    named=st.lists(st.floats(0.5, 4.0), min_size=1, max_size=4),
    asked=st.lists(st.floats(0.5, 4.0), max_size=6),
)
def test_answers_never_cost_more_than_was_charged(named, asked):
    """For any queries in any order, the answers of a batch cost at most its charge."""
    oracle = oracle_of(problem_of(np.ones((10, 2)), np.ones(10)))
    cost = 0.0
    with buy(oracle, dpa.Full(), *named) as batch:
        for scale in asked:
            try:
                ask(batch, scale)
            except dpa.PrivacyBudgetExceeded:
                continue
            cost += oracle.gradient_event(dpa.Full(), "laplace", scale).pure_cost()
    assert cost <= oracle.ledger.epsilon() * (1 + 1e-12)


def test_what_is_repeated_is_answered_as_often_as_it_was_named():
    problem = counting()
    oracle = oracle_of(problem)
    event = oracle.gradient_event(dpa.Full(), "laplace", 1.0)
    with oracle.batch(dpa.Full(), [events.Repeated(event, 2)]) as batch:
        ask(batch), ask(batch)
        with pytest.raises(dpa.PrivacyBudgetExceeded, match="was not declared"):
            ask(batch)
    assert problem.looks == 2 and len(oracle.ledger) == 1


@given(named=st.integers(1, 5), asked=st.lists(st.integers(1, 4), max_size=6))
def test_a_question_of_several_choices_uses_up_as_many(named, asked):
    """A query for more choices than are left is refused, and uses none of them."""
    oracle = oracle_of(problem_of(np.eye(2), np.ones(2)))

    def choose(count):
        return queries.NoisyMin(np.zeros((5, 2)), 1.0, 1.0, count=count)

    left = named
    with oracle.batch(dpa.Full(), [choose(named).event(oracle.facts, dpa.Full())]) as batch:
        for count in asked:
            if count <= left:
                left -= np.size(batch.ask(choose(count)))
                continue
            with pytest.raises(dpa.PrivacyBudgetExceeded, match="was not declared"):
                batch.ask(choose(count))


def test_two_oracles_never_spend_the_same_remainder():
    """Interleaved batches, and threads: a filter of 1 grants two answers of 1/2, no more."""
    problem = problem_of(np.ones((10, 2)), np.ones(10))  # scale .8 costs .5
    guard = Filter(dpa.Budget(1.0))
    oracles = [oracle_of(problem, guard=guard, seed=seed) for seed in range(8)]
    with buy(oracles[0], dpa.Full(), 0.8) as first, buy(oracles[1], dpa.Full(), 0.8) as second:
        with pytest.raises(dpa.PrivacyBudgetExceeded), buy(oracles[2], dpa.Full(), 0.8):
            pass
        ask(first, 0.8), ask(second, 0.8)
    guard = Filter(dpa.Budget(1.0))
    barrier, answered = threading.Barrier(8), []

    def run(seed):
        oracle = oracle_of(problem, guard=guard, seed=seed)
        barrier.wait()
        with contextlib.suppress(dpa.PrivacyBudgetExceeded):
            answered.append(oracle.gradient(np.zeros((1, 2)), dpa.Full(), "laplace", 0.8))

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answered) == 2 and guard.spent == pytest.approx(1.0)


def test_threads_never_use_one_declared_event_twice(monkeypatch):
    """Each thread compares an event, waits, and uses it up; only a lock prevents a race."""

    def slow(named, asked):
        time.sleep(0.005)
        return named == asked

    monkeypatch.setattr("dpanalysis.privacy.oracle._covers", slow)
    oracle, answered = oracle_of(problem_of(np.ones((10, 2)), np.ones(10))), []
    event = oracle.gradient_event(dpa.Full(), "laplace", 0.8)

    def run():
        with contextlib.suppress(dpa.PrivacyBudgetExceeded):
            answered.append(ask(batch, 0.8))

    with oracle.batch(dpa.Full(), [copy.copy(event), copy.copy(event)]) as batch:
        threads = [threading.Thread(target=run) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(answered) == 2


def test_an_oracle_has_one_open_batch():
    """Also across threads; the second batch is neither charged nor drawn."""
    oracle = oracle_of(problem_of(np.ones((10, 2)), np.ones(10)))
    caught = []

    def second():
        try:
            oracle.gradient(np.zeros((1, 2)), dpa.Full(), "laplace", 1.0)
        except RuntimeError as error:
            caught.append(str(error))

    with buy(oracle, dpa.Full(), 1.0):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join()
        second()
    assert len(caught) == 2 and all("is open already" in message for message in caught)
    assert len(oracle.ledger) == 1


def test_no_bound_no_run_names_both_ways_out():
    X, y = np.ones((10, 2)), np.ones(10)
    unbounded = dpa.ERM(X, y, dpa.losses.SquaredError(), row_bound=dpa.RowBound(2, 1.0))
    method = dpa.methods.GradientDescent(0.1, 2)
    with pytest.raises(ValueError, match=r"row_bound.*clipping"):
        dpa.minimize(unbounded, method, dpa.Budget(1.0))
    clipped = dpa.methods.GradientDescent(0.1, 2, clipping=dpa.clipping.Flat(1.0))
    assert dpa.minimize(unbounded, clipped, dpa.Budget(1.0), rng=0).epsilon() == pytest.approx(1.0)


def test_clipping_bounds_what_a_row_bound_does_not():
    """With squared errors of 1e6 the clipped mean still moves by at most 2C/n."""
    X = np.array([[1.0, 0.0], [0.0, 1.0]])
    rule = dpa.clipping.Flat(0.5)
    answers = []
    for label in (-1e6, 1e6):
        problem = dpa.ERM(X, np.array([label, 1.0]), dpa.losses.SquaredError())
        oracle = oracle_of(problem)
        answers.append(oracle.gradient(np.zeros(2), dpa.Full(), "gaussian", 0.0, rule))
    limit = problem.facts("replace_one").gradient_sensitivity(dpa.Full(), 2, rule)
    assert np.linalg.norm(answers[0] - answers[1]) == pytest.approx(limit) == pytest.approx(0.5)


def test_the_regularizer_is_public():
    """It changes the answer and neither the event nor the noise."""
    X, y = np.ones((10, 2)), np.ones(10)
    w = np.full((1, 2), 2.0)
    answers, ledgers = [], []
    for regularizer in (None, dpa.regularizers.L2(3.0)):
        oracle = oracle_of(problem_of(X, y, regularizer=regularizer))
        answers.append(oracle.gradient(w, dpa.Full(), "laplace", 1.0))
        ledgers.append(oracle.ledger.events)
    assert ledgers[0] == ledgers[1]
    np.testing.assert_allclose(answers[1] - answers[0], 3.0 * w)


class Counting(dpa.ERM):
    """A problem that counts how often its data are evaluated."""

    looks = 0

    def facts(self, relation):
        return super().facts(relation)

    def sums(self, *args, **options):
        self.looks += 1
        return super().sums(*args, **options)


def counting():
    return Counting(np.ones((10, 2)), np.ones(10), LOGISTIC, row_bound=dpa.RowBound(1, 2.0))


def ask(batch, scale=1.0, w=None):
    return batch.gradient(np.zeros((1, 2)) if w is None else w, "laplace", scale)


def test_a_refusal_comes_before_the_data_are_looked_at():
    """Also of two queries that exceed the budget together, where each alone would fit."""
    problem = counting()  # a query costs .4 / scale
    guard = Filter(dpa.Budget(1.0))
    oracle = oracle_of(problem, guard=guard)
    for scales in ((0.3,), (0.5, 0.5)):
        with pytest.raises(dpa.PrivacyBudgetExceeded), buy(oracle, dpa.Full(), *scales):
            pass
    assert problem.looks == 0 and guard.spent == 0.0 and len(oracle.ledger) == 0


def test_a_closed_batch_answers_no_more():
    """Not even a declared query that was never asked: the charge is for this batch only."""
    problem = counting()
    oracle = oracle_of(problem)
    with buy(oracle, dpa.Full(), 1.0, 1.0) as batch:
        ask(batch)
    for scale in (1.0, 0.0):
        with pytest.raises(RuntimeError, match="closed"):
            ask(batch, scale)
    assert problem.looks == 1 and len(oracle.ledger) == 1


@pytest.mark.parametrize("w", [np.zeros((2, 2)), np.zeros(3), np.zeros((1, 3)), np.zeros((0, 2))])
def test_every_row_has_independent_noise(w):
    """If two rows shared the noise of one source, their difference would be exact."""
    problem = counting()
    oracle = oracle_of(problem)
    with pytest.raises(ValueError, match=r"\(1, 2\)"), buy(oracle, dpa.Full(), 1.0) as batch:
        ask(batch, w=w)
    assert problem.looks == 0


@pytest.mark.parametrize("size", [1e251, np.inf, np.nan])
def test_iterates_at_which_a_record_can_overflow_are_refused(size):
    problem = counting()
    oracle = oracle_of(problem)
    with pytest.raises(ValueError, match="w must be finite"), buy(oracle, dpa.Full(), 1.0) as batch:
        ask(batch, w=np.array([[0.0, size]]))
    assert problem.looks == 0 and len(oracle.ledger) == 1
    with pytest.raises(ValueError, match="w must be finite"):
        oracle.gradient(np.array([[0.0, size]]), dpa.Full(), "laplace", 1.0)
    assert problem.looks == 0 and len(oracle.ledger) == 1  # no second batch was charged


@pytest.mark.parametrize("scale", [1.0, 0.0])
def test_a_rule_that_bounds_nothing_is_refused_whatever_the_noise(scale):
    """The oracle checks the rule itself, since a user-defined method may pass any."""
    problem = Counting(np.ones((10, 2)), np.ones(10), LOGISTIC, row_bound=dpa.RowBound(2, 1.0))
    oracle = oracle_of(problem)
    with pytest.raises(ValueError, match="beta1 must be at least"):
        oracle.gradient(np.zeros(2), dpa.Full(), "laplace", scale, dpa.clipping.Value(1.0, 0.4))
    assert problem.looks == len(oracle.ledger) == 0


def test_an_unknown_mechanism_is_refused_by_name_before_any_charge():
    problem = counting()
    oracle = oracle_of(problem, guard=Filter(dpa.Budget(1.0)))
    with pytest.raises(ValueError, match="mechanism must be one of 'laplace', 'gaussian', got"):
        oracle.gradient(np.zeros(2), dpa.Full(), "gauss", 1.0)
    assert problem.looks == len(oracle.ledger) == 0


def test_wrong_pairs_are_refused_before_the_answer():
    """A scheme of the other relation, and a budget of the other relation."""
    problem = counting()
    for relation, sampling in [
        ("replace_one", dpa.Poisson(0.5)),
        ("add_or_remove_one", dpa.WithoutReplacement(5)),
    ]:
        oracle = oracle_of(problem, relation)
        with pytest.raises(dpa.IncompatibleAccounting), buy(oracle, sampling, 1.0) as batch:
            ask(batch)
        assert problem.looks == len(oracle.ledger) == 0
    with pytest.raises(dpa.IncompatibleAccounting, match="the budget is about"):
        oracle_of(problem, "add_or_remove_one", guard=Filter(dpa.Budget(1.0)))


def test_a_batch_is_drawn_once_and_the_next_one_afresh():
    X = np.arange(1.0, 1001.0)[:, None] * [1.0, 0.0]
    oracle = oracle_of(problem_of(X, np.ones(1000), radius=1000.0), "add_or_remove_one")
    answers = []
    for _ in range(2):
        with buy(oracle, dpa.Poisson(0.1), 0.0, 0.0) as batch:
            answers += [ask(batch, 0.0)[0, 0], ask(batch, 0.0)[0, 0]]
    assert answers[0] == answers[1] != answers[2] == answers[3]


def test_noise_does_not_depend_on_the_sampling_scheme():
    """All rows are equal, and so are the means of batches: equal answers mean equal noise."""
    problem = problem_of(np.ones((40, 2)), np.ones(40))
    answers = []
    for sampling in (dpa.Full(), dpa.WithoutReplacement(10), dpa.WithoutReplacement(30)):
        oracle = oracle_of(problem, replicates=3)
        for _ in range(3):
            last = oracle.gradient(np.zeros((3, 2)), sampling, "gaussian", 1.0)
        answers.append(last)
    np.testing.assert_allclose(answers[1], answers[0], rtol=1e-12)
    np.testing.assert_allclose(answers[2], answers[0], rtol=1e-12)


def test_public_coins_leave_the_noise_alone():
    """Otherwise the public coins would reveal the stream of the noise."""
    answers = []
    for coins in (0, 1000):
        oracle = oracle_of(counting())
        oracle.public_random().random(coins)
        answers.append(oracle.gradient(np.zeros(2), dpa.Full(), "laplace", 1.0))
    np.testing.assert_array_equal(*answers)
    first, second = (oracle.public_random().random(8) for _ in range(2))
    assert (first != second).all()


@pytest.mark.slow
def test_noise_and_batch_are_independent():
    """One row of two is drawn: its index is uncorrelated with sign and size of the noise.

    Correlations of 10,000 replicates, normal with deviation .01: false alarm 4e-6 in all.
    """
    X, replicates = np.array([[-1.0, 0.0], [1.0, 0.0]]), 10_000
    problem, w = problem_of(X, np.ones(2)), np.zeros((replicates, 2))
    exact, noisy = (
        oracle_of(problem, replicates=replicates).gradient(
            w, dpa.WithoutReplacement(1), "laplace", scale
        )
        for scale in (0.0, 1.0)
    )
    noise = noisy - exact
    row = np.sign(exact[:, 0])
    assert abs(row.mean()) < 0.05
    for statistic in (np.sign(noise), np.abs(noise)):
        for column in statistic.T:
            assert abs(np.corrcoef(row, column)[0, 1]) < 0.048


def test_a_clipped_gradient_has_sqrt_d_times_the_norm_in_l1():
    """Attained where all features are equal: Laplace noise needs the L1 norm of an L2 clip."""
    d, rule = 4, dpa.clipping.Flat(0.5)
    answers = []
    for label in (-1e6, 1e6):
        problem = dpa.ERM(np.ones((1, d)), [label], dpa.losses.SquaredError())
        answers.append(oracle_of(problem).gradient(np.zeros(d), dpa.Full(), "laplace", 0.0, rule))
    limit = problem.facts("replace_one").gradient_sensitivity(dpa.Full(), 1, rule)
    assert np.abs(answers[0] - answers[1]).sum() == pytest.approx(limit) == pytest.approx(2.0)


def test_laplace_noise_is_charged_by_the_l1_norm():
    problem = dpa.ERM(np.ones((1, 4)), [1.0], dpa.losses.SquaredError())
    facts, rule = problem.facts("replace_one"), dpa.clipping.Flat(0.5)
    for mechanism, expected in [("laplace", 2.0), ("gaussian", 1.0)]:
        event = gradient_event(facts, dpa.Full(), mechanism, 1.0, rule)
        assert event.sensitivity == pytest.approx(expected)


def test_a_batch_with_more_places_than_records_is_refused():
    """With replacement too: the bound on rounding is proved for n terms."""
    facts = problem_of(np.ones((4, 2)), np.ones(4)).facts("replace_one")
    assert gradient_event(facts, dpa.WithReplacement(4), "laplace", 1.0).sensitivity > 0.0
    with pytest.raises(ValueError, match="at most n = 4"):
        gradient_event(facts, dpa.WithReplacement(5), "laplace", 1.0)


def test_a_declared_sensitivity_is_charged_as_it_is_and_never_amplified():
    problem = dpa.Quadratic([1.0, 1.0], sensitivity=0.1)
    facts = problem.facts("add_or_remove_one")
    assert gradient_event(facts, dpa.Full(), "laplace", 2.0) == events.Laplace(2.0, 0.1)
    assert gradient_event(facts, dpa.Poisson(1.0), "laplace", 2.0).sensitivity == 0.1
    for rate in (0.1, 0.99):
        with pytest.raises(ValueError, match=r"Full\(\)"):
            gradient_event(facts, dpa.Poisson(rate), "gaussian", 1.0)


def test_a_rule_that_lifts_small_gradients_needs_more_noise_than_the_row_bound_says():
    """Gradients up to .02 are scaled up tenfold, so one record moves the sum by .2, not by .02."""
    rule = dpa.clipping.Automatic(r=0.1, clip_norm=1.0)
    problem = problem_of(
        np.array([[0.02]]), np.ones(1), radius=0.02, order=2, loss=dpa.losses.Hinge()
    )
    facts = problem.facts("add_or_remove_one")
    lifted = abs(problem.sums([0.0], clipping=rule, value=False).gradient[0])
    assert lifted == pytest.approx(0.02 / 0.12)
    for order in (1, 2):
        assert lifted <= facts.record_sensitivity(order, rule) <= 0.2 * (1 + 1e-9)
    # A rule that only scales down has the row bound; a small largest weight reduces it.
    assert facts.record_sensitivity(2, dpa.clipping.Flat(1.0)) == facts.record_sensitivity(2)
    small = facts.record_sensitivity(2, dpa.clipping.Automatic(0.1, 1e-3))
    assert small == pytest.approx(0.02 * 1e-3 / 0.1)


# Checks before any charge


class OwnSums(dpa.ERM):
    """Overrides the sums, but not the facts."""

    def gradient_sum(self, w, rows=None, clipping=None):
        return 100.0 * super().gradient_sum(w, rows, clipping)


def with_changed_rows():
    X = np.ones((10, 2))
    problem = problem_of(X, np.ones(10))
    X[0] *= 1e3
    return problem


def with_own_sums():
    return OwnSums(np.ones((10, 2)), np.ones(10), LOGISTIC, row_bound=dpa.RowBound(1, 2.0))


def with_classes_from_labels():
    labels = np.array([0, 1, 2] * 3)
    return dpa.problems.Softmax(np.ones((9, 2)), labels, row_bound=dpa.RowBound(1, 2.0))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (with_changed_rows, "X has been changed"),
        (with_own_sums, "OwnSums overrides gradient_sum"),
        (with_classes_from_labels, "n_classes must be given"),
    ],
)
@pytest.mark.parametrize("paid", ["filter", "plan", "ledger"])
def test_problems_whose_bounds_do_not_hold_are_refused_before_any_charge(build, message, paid):
    """By a user's oracle as by a run, at every query; exact answers need no bound."""
    problem = build()
    one = gradient_event(problem.facts("replace_one"), dpa.Full(), "laplace", 1.0)
    guard = {
        "filter": Filter(dpa.Budget(10.0)),
        "plan": Plan(one, None),
        "ledger": None,
    }[paid]
    oracle = oracle_of(problem, guard=guard)
    before, w = repr(guard), np.zeros(problem.d)
    for _ in range(2):
        with pytest.raises((TypeError, ValueError), match=message):
            oracle.gradient(w, dpa.Full(), "laplace", 1.0)
        with pytest.raises((TypeError, ValueError), match=message):
            oracle.ask(queries.NoisyValue(w, 1.0, 1.0, "laplace"), dpa.Full())
    assert repr(guard) == before and len(oracle.ledger) == 0
    if guard is None:
        oracle.gradient(w, dpa.Full(), "laplace", 0.0)
        return
    with pytest.raises((TypeError, ValueError), match=message):
        oracle.can_ask(dpa.Full(), one)
    problem = problem_of(np.ones((10, 2)), np.ones(10))  # the seed counts as unused
    oracle = oracle_of(problem, guard=Filter(dpa.Budget(10.0)) if paid == "plan" else guard)
    oracle.gradient(np.zeros(2), dpa.Full(), "laplace", 1.0)


@given(
    name=st.sampled_from(["n", "L", "gradient_bounds", "rounding", "declared_sensitivity"]),
    factor=st.floats(0.1, 10.0),
)
def test_facts_that_differ_from_those_of_the_problem_are_refused(name, factor):
    """Smaller bounds, or a larger n, would lower the charge."""
    problem = problem_of(np.ones((10, 2)), np.ones(10))
    facts = problem.facts("replace_one")
    values = {
        "n": round(10 * factor),
        "L": factor * facts.L,
        "gradient_bounds": tuple(factor * bound for bound in facts.gradient_bounds),
        "rounding": factor * facts.rounding,
        "declared_sensitivity": factor,
    }
    guard = Filter(dpa.Budget(1e6))
    given = dataclasses.replace(facts, **{name: values[name]})
    oracle = PrivateOracle(problem, given, guard, mechanisms.spawn(0, 1))
    if given == facts:
        oracle.gradient(np.zeros(2), dpa.Full(), "laplace", 1.0)
        return
    with pytest.raises(ValueError, match=rf"facts must be problem.facts.*differ in {name}"):
        oracle.gradient(np.zeros(2), dpa.Full(), "laplace", 1.0)
    assert guard.spent == 0.0 and len(oracle.ledger) == 0


def test_facts_of_a_user_defined_class_are_refused():
    class Cheap(PublicFacts):
        def sum_sensitivity(self, bound):
            return 1e-6 * bound

    problem = problem_of(np.ones((10, 2)), np.ones(10))
    facts = problem.facts("replace_one")
    cheap = Cheap(**{each.name: getattr(facts, each.name) for each in dataclasses.fields(facts)})
    oracle = PrivateOracle(problem, cheap, Filter(dpa.Budget(1.0)), mechanisms.spawn(0, 1))
    with pytest.raises(ValueError, match="differ in their class"):
        oracle.gradient(np.zeros(2), dpa.Full(), "laplace", 1.0)


def test_the_data_are_looked_at_once_for_all_replicates():
    looks = []

    class Watched(dpa.ERM):
        def check_private(self):
            looks.append("check")
            super().check_private()

        def facts(self, relation):
            return super().facts(relation)

        def gradient_sum(self, w, rows=None, clipping=None):
            looks.append("sum")
            return super().gradient_sum(w, rows, clipping)

    problem = Watched(np.ones((10, 2)), np.ones(10), LOGISTIC, row_bound=dpa.RowBound(1, 2.0))
    one_each = dpa.methods.LineSearchSGD(
        dpa.WithoutReplacement(5), step_size=1.0, iterations=3, clip_norm=1.0, clip_loss=1.0
    )
    for method, budget in (
        (dpa.methods.GradientDescent(0.5, 3), dpa.Budget(10.0)),
        (one_each, dpa.Budget(100.0, 1e-5)),
    ):
        looks.clear()
        result = dpa.minimize(problem, method, budget, rng=0, replicates=3, record=())
        assert result.private and looks[0] == "check" and looks.count("check") == 1 < len(looks)


# No noise is used twice


class Pull(dpa.regularizers.Regularizer):
    """An L2 penalty with mutable constants, unlike those of the package."""

    def __init__(self, strength):
        self.mu = self.L = strength

    mu = L = None  # in place of the properties of the base class
    hessian_lipschitz = 0.0

    def value(self, w):
        return 0.5 * self.mu * (w**2).sum(axis=-1)

    def gradient(self, w):
        return self.mu * w

    def hessian_diagonal(self, w):
        return np.full_like(w, self.mu)


@pytest.mark.parametrize("constant", ["mu", "L"])
def test_a_penalty_that_changes_after_a_purchase_is_refused(constant):
    """Both constants enter the charge of the next query."""
    penalty = Pull(0.5)
    problem = problem_of(np.ones((10, 2)), np.ones(10), order=2, regularizer=penalty)
    guard = Filter(dpa.Budget(rho=100.0))
    oracle = PrivateOracle(problem, problem.facts("replace_one"), guard, [7])
    oracle.gradient(np.zeros(2), dpa.Full(), "gaussian", 50.0)
    spent = guard.spent
    setattr(penalty, constant, 0.0)
    query = queries.LastNoisyIterate(np.zeros(2), 1.0, 400, 1.0)
    with pytest.raises(ValueError, match=r"regularizer must keep the mu and L .*\(0\.5, 0\.5\)"):
        oracle.ask(query, dpa.Full())
    assert guard.spent == spent


def test_streams_are_not_set_back_after_a_purchase():
    oracle = oracle_of(counting(), guard=Filter(dpa.Budget(10.0)))
    states = oracle.streams
    oracle.streams = states
    oracle.gradient(np.zeros((1, 2)), dpa.Full(), "laplace", 1.0)
    with pytest.raises(ValueError, match="before the first charge"):
        oracle.streams = states


class Logged:
    """A guard that wraps another one."""

    def __init__(self, guard):
        self.budget, self.can_spend, self.spend = guard.budget, guard.can_spend, guard.spend


@pytest.mark.parametrize("wrap", [lambda guard: guard, Logged])
def test_a_guard_for_one_answer_takes_one_source(wrap):
    problem, guard = counting(), wrap(Filter(dpa.Budget(10.0)))
    with pytest.raises(ValueError, match=r"must be one source with a (Filter|Logged)"):
        PrivateOracle(problem, problem.facts("replace_one"), guard, [1, 2, 3])


def test_a_scale_that_changes_after_its_charge_changes_no_noise():
    answers = []
    for scale in (np.array(50.0), 50.0):
        oracle = oracle_of(counting(), guard=Filter(dpa.Budget(10.0)))
        if isinstance(scale, np.ndarray):
            oracle.write_ahead(lambda scale=scale: scale.__setitem__(..., 1e-9))
        answers.append(oracle.gradient(np.zeros((1, 2)), dpa.Full(), "laplace", scale))
    assert (answers[0] == answers[1]).all()


def guards_of(problem, count):
    one = gradient_event(problem.facts("replace_one"), dpa.Full(), "laplace", 1.0)
    return Filter(dpa.Budget(10.0)), Plan([events.Repeated(one, count)], None)


@pytest.mark.parametrize("kind", [0, 1], ids=["filter", "plan"])
@pytest.mark.parametrize(
    "again",
    [
        lambda: 9,
        lambda: np.random.SeedSequence([9, 0]),
        lambda: np.random.default_rng(np.random.SeedSequence([9])),
        lambda: np.random.Generator(np.random.Philox(9)),
    ],
    ids=["int", "sequence", "generator", "other bits"],
)
def test_two_oracles_never_have_the_same_noise_under_one_guard(kind, again):
    """Otherwise answers would differ by the exact difference of gradients at two points."""
    problem = problem_of(np.ones((10, 2)), np.ones(10))
    guard, facts = guards_of(problem, 3)[kind], problem.facts("replace_one")
    source = np.random.default_rng(9)
    first = PrivateOracle(problem, facts, guard, [source])
    second = PrivateOracle(problem, facts, guard, [mechanisms.random_source(again())])
    first.gradient(np.zeros(2), dpa.Full(), "laplace", 1.0)
    before = repr(guard)
    with pytest.raises(ValueError, match=r"rng has been used under this (filter|plan)"):
        second.gradient(np.ones(2), dpa.Full(), "laplace", 1.0)
    assert repr(guard) == before and len(second.ledger) == 0
    # With one shared source, each oracle draws its own noise.
    third = PrivateOracle(problem, facts, guard, [source])
    third.gradient(np.ones(2), dpa.Full(), "laplace", 1.0)


def test_streams_that_overlap_are_refused():
    """The noise of the second oracle would come from the stream of the first one's batches."""
    problem = problem_of(np.ones((10, 2)), np.ones(10))
    guard, facts = Filter(dpa.Budget(10.0)), problem.facts("replace_one")
    shifted = np.random.default_rng(9)
    shifted.spawn(1)
    oracles = [
        PrivateOracle(problem, facts, guard, [source])
        for source in (np.random.default_rng(9), shifted)
    ]
    oracles[0].gradient(np.zeros(2), dpa.WithoutReplacement(5), "laplace", 1.0)
    with pytest.raises(ValueError, match="has been used"):
        oracles[1].gradient(np.zeros(2), dpa.Full(), "laplace", 1.0)


def test_a_filter_takes_one_replicate():
    """Otherwise the filter would be charged once for fifty answers."""
    problem, guard = problem_of(np.ones((10, 2)), np.ones(10)), Filter(dpa.Budget(1.0))
    for replicates in (0, 2, 50):
        with pytest.raises(ValueError, match="random must be one source with a Filter"):
            oracle_of(problem, guard=guard, replicates=replicates)


@pytest.mark.parametrize("seed", [int, np.random.SeedSequence, np.random.default_rng])
def test_public_coins_are_never_the_noise(seed):
    """For any kind of source: an integer spawns the same children every time."""
    problem = problem_of(np.ones((10, 2)), np.ones(10))
    oracle = PrivateOracle(problem, problem.facts("replace_one"), None, [seed(0)])
    noisy = oracle.gradient(np.zeros(2), dpa.Full(), "laplace", 0.5)
    noise = noisy - exact_mean(problem, dpa.Full(), np.zeros(2))
    seen = [oracle.public_random().laplace(0.0, 0.5, 2) for _ in range(3)]
    assert not np.isclose([noise, *seen[:2]], seen[2]).any() and not np.isclose(noise, seen).any()


def test_replicates_with_one_seed_are_refused():
    problem = problem_of(np.ones((10, 2)), np.ones(10))
    guard, facts = guards_of(problem, 1)[1], problem.facts("replace_one")
    sources = [np.random.default_rng(3), np.random.default_rng([3])]
    oracle = PrivateOracle(problem, facts, guard, sources)
    with pytest.raises(ValueError, match="has been used"):
        oracle.gradient(np.zeros((2, 2)), dpa.Full(), "laplace", 1.0)


def test_a_copy_of_a_batch_closes_with_it_and_others_cannot_be_made():
    problem = counting()
    oracle = oracle_of(problem)
    with buy(oracle, dpa.Full(), 1.0, 1.0) as batch:
        twin = copy.copy(batch)
        for make in (copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError):
                make(batch)
            with pytest.raises(TypeError):
                make(oracle)
        ask(twin)
    with pytest.raises(dpa.PrivacyBudgetExceeded):
        ask(twin)
    assert problem.looks == 1


def test_what_an_earlier_process_spent_is_charged_as_often_as_it_is_listed():
    problem = problem_of(np.ones((10, 2)), np.ones(10))
    small, large = events.Pure(0.1), events.Pure(0.2)
    guard = Filter(dpa.Budget(1.0))
    oracle = oracle_of(problem, guard=guard)
    # A file lists what was planned ahead after what was charged, also if both are equal.
    oracle.charge_again([(small, 3), (small, 2), (large, 2)], "floating point")
    assert guard.spent == pytest.approx(5 * 0.1 + 2 * 0.2)
    assert oracle.ledger.runs == ((small, 5), (large, 2)) and len(oracle.ledger) == 7
    plan = Plan(events.Repeated(small, 4), dpa.Budget(1.0))
    oracle_of(problem, guard=plan).charge_again([(small, 3)], "floating point")
    assert plan.remaining == 1


def test_a_price_that_is_kept_is_that_of_the_same_arguments_alone():
    problem = problem_of(np.ones((10, 2)), np.ones(10))
    choices = [dpa.Full(), dpa.WithoutReplacement(5)], ["laplace", "gaussian"], [1.0, 2.0]
    asked = list(itertools.product(*choices, [None, dpa.clipping.Flat(0.1)]))
    facts, oracle = problem.facts("replace_one"), oracle_of(problem)
    for before, now in itertools.product(asked, asked):
        oracle.gradient_event(*before)
        assert oracle.gradient_event(*now) == gradient_event(facts, *now)


def test_facts_say_nothing_that_was_not_stated():
    """Omitted facts default to the weakest statement: unknown bounds are infinite."""
    facts = PublicFacts(10, 2, 0.0, 1.0, "replace_one", (1.0, 1.0))
    known = {"n", "d", "mu", "L", "relation", "gradient_bounds", "has_records", "max_records"}
    weakest = {
        "rounding": 0.0, "convex_records": False, "row_blocks": (), "double_precision": False,
        "penalty_flat_at_zero": False, "curvature_vanishes_at_max_slope": False,
        "lowest_value": -np.inf, "derivative_bounds": (np.inf, np.inf), "hessian_bound": np.inf,
        "hessian_lipschitz": np.inf, "hessian_trace": np.inf, "value_at_zero": None,
        "hessian_rank": None, "derivative_corners": None, "declared_sensitivity": None,
    }  # fmt: skip
    for field in dataclasses.fields(facts):
        if field.name not in known and field.name != "largest_iterate":
            assert getattr(facts, field.name) == weakest[field.name], field.name


class Exact(queries.NoisyValue):
    """Inherits the event of a noisy answer."""

    def answer(self, records, random):
        return float(records.problem.value(self.w)), 1


def test_a_batch_takes_no_query_that_its_oracle_refuses():
    """Not even a batch that was opened for a valid query of the same event."""
    oracle = oracle_of(problem_of(np.eye(2), np.ones(2)))
    honest = queries.NoisyValue(np.zeros(2), 1.0, 0.1)
    for query, error, message in (
        (Exact(np.zeros(2), 1.0, 0.1), TypeError, "Exact overrides answer, but its event is"),
        (queries.NoisyValue(np.full(2, 1e251), 1.0, 0.1), ValueError, "w must be finite and at"),
        (print, TypeError, "query must be one of dpanalysis.privacy.queries"),
    ):
        with pytest.raises(error, match=message):
            oracle.ask(query, dpa.Full())
        event = honest.event(oracle.facts, dpa.Full())
        with oracle.batch(dpa.Full(), [event]) as batch, pytest.raises(error, match=message):
            batch.ask(query)


@pytest.mark.parametrize("asked", ["gradient", "query"])
def test_the_ledger_says_so_once_noise_was_floating_point(asked, monkeypatch):
    """However noise is drawn: the oracle checks the source after each answer."""
    oracle = oracle_of(problem_of(np.eye(2), np.ones(2)), seed="os")
    query = queries.NoisyValue(np.zeros(2), 1.0, 0.1)

    def answer():
        if asked == "query":
            return oracle.ask(query, dpa.Full())
        return oracle.gradient(np.zeros(2), dpa.Full(), "laplace", 1.0)

    def floating(sources):
        sources.random()
        return 0.0

    answer()
    assert oracle.ledger.noise == "exact"
    monkeypatch.setattr(mechanisms, "add_noise", lambda g, m, s, r: g + floating(r[0]))
    monkeypatch.setattr(mechanisms, "noisy", lambda random, *x: np.array([floating(random)]))
    answer()
    assert oracle.ledger.noise == "floating point"


def test_a_query_is_for_one_replicate():
    oracle = oracle_of(problem_of(np.eye(2), np.ones(2)), replicates=2)
    query = queries.NoisyValue(np.zeros(2), 1.0, 0.1)
    with pytest.raises(ValueError, match="a query is for one replicate, this run has 2"):
        oracle.ask(query, dpa.Full())


class MyFull(dpa.Full):
    """A user's subclass, which may draw other batches."""


class MyShuffle(dpa.Shuffle):
    """A user's subclass, which may draw other batches."""


@pytest.mark.parametrize(
    ("sampling", "size", "error", "match"),
    [
        (MyFull(), 6, TypeError, "sampling must be Full"),
        (MyShuffle(2), 6, TypeError, "sampling must be .*Shuffle"),
        (dpa.Shuffle(7), 6, ValueError, "batches must be at most n = 6"),
        (dpa.Shuffle(2), 7, ValueError, "size must be the number of rows, 6"),
        (dpa.WithoutReplacement(2), 7, ValueError, "size must be the number of rows, 6"),
    ],
)
def test_what_batches_are_charged_for_is_what_is_drawn(sampling, size, error, match):
    """Refused before the purchase: user-defined schemes, too many batches, another size."""
    X, y = np.eye(6), np.repeat([-1.0, 1.0], 3)
    problem = dpa.ERM(X, y, LOGISTIC, row_bound=dpa.RowBound(1, 1.0), size=size)
    guard = Filter(dpa.Budget(1.0))
    oracle = oracle_of(problem, guard=guard)
    event = oracle.gradient_event(dpa.Full(), "laplace", 100.0)
    buying = oracle.epoch if isinstance(sampling, dpa.Shuffle) else oracle.batch
    with pytest.raises(error, match=match), buying(sampling, [event]):
        pass
    assert guard.spent == 0.0


class MyFlat(dpa.clipping.Flat):
    """A user's class, whose bound may change."""


def test_a_charge_is_cached_only_where_nothing_can_change_it():
    """The cost is computed again if the scale is an array or the rule a user's class."""
    oracle = oracle_of(problem_of(np.eye(6), np.repeat([-1.0, 1.0], 3)))
    full, scale, rule = dpa.Full(), np.array(100.0), MyFlat(0.25)
    assert oracle.gradient_event(full, "laplace", scale).scale == 100.0
    scale[...] = 1.0
    assert oracle.gradient_event(full, "laplace", scale).scale == 1.0
    before = oracle.gradient_event(full, "gaussian", 1.0, rule)
    object.__setattr__(rule, "clip_norm", 0.5)
    after = oracle.gradient_event(full, "gaussian", 1.0, rule)
    assert after.sensitivity == pytest.approx(2.0 * before.sensitivity)
