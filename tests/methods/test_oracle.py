"""The door: sensitivities, charges, batches, noise."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import dpanalysis as dpa
from dpanalysis.privacy import events, filters, mechanisms
from dpanalysis.privacy.oracle import PrivateOracle, PublicFacts, gradient_event

LOGISTIC = dpa.losses.Logistic()


def problem_of(X, y, radius=2.0, order=1, loss=LOGISTIC, regularizer=None):
    return dpa.ERM(X, y, loss, regularizer, row_bound=dpa.RowBound(order, radius))


def oracle_of(problem, relation="replace_one", guard=None, replicates=1, seed=0):
    facts = PublicFacts.of(problem, relation)
    return PrivateOracle(problem, facts, guard, mechanisms.spawn(seed, replicates))


def exact_mean(problem, sampling, w):
    """What a batch of everything answers without noise."""
    oracle = oracle_of(problem)
    with oracle.batch(sampling) as batch:
        return batch.gradient(w[None, :], "laplace", 0.0)[0]


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
    facts = PublicFacts.of(here, "replace_one")
    for norm in (1, 2):
        limit = facts.gradient_sensitivity(dpa.Full(), norm)
        assert np.linalg.norm(moved, ord=norm) <= limit * (1 + 1e-9)


def test_sensitivity_is_attained():
    """Two orthogonal records at the bound with saturated losses: no smaller constant would do."""
    radius = 3.0
    w = np.array([1e3, 1e3])
    here = problem_of(np.array([[radius, 0.0]]), np.array([-1.0]), radius)
    there = problem_of(np.array([[0.0, radius]]), np.array([-1.0]), radius)
    moved = exact_mean(here, dpa.Full(), w) - exact_mean(there, dpa.Full(), w)
    limit = PublicFacts.of(here, "replace_one").gradient_sensitivity(dpa.Full(), 1)
    assert np.abs(moved).sum() == pytest.approx(limit, rel=1e-9)


def test_add_or_remove_one_is_half_of_replace_one():
    problem = problem_of(np.ones((4, 2)), np.ones(4))
    replace = PublicFacts.of(problem, "replace_one").gradient_sensitivity(dpa.Full(), 2)
    remove = PublicFacts.of(problem, "add_or_remove_one").gradient_sensitivity(dpa.Full(), 2)
    assert replace == 2.0 * remove == pytest.approx(2.0 * 2.0 / 4)


def test_poisson_divides_by_the_public_size():
    """The divisor is rate * n whatever was drawn: the realised size would be private."""
    problem = problem_of(np.ones((1000, 1)), np.ones(1000), radius=1.0)
    w = np.zeros((200, 1))
    oracle = oracle_of(problem, "add_or_remove_one", replicates=200)
    with oracle.batch(dpa.Poisson(0.02)) as batch:
        means = batch.gradient(w, "laplace", 0.0)[:, 0]
    # Every gradient is -1/2 x: the answer is -(size drawn)/(2 * 20), so it varies.
    sizes = -2.0 * 20.0 * means
    np.testing.assert_allclose(sizes, np.round(sizes), atol=1e-9)
    assert sizes.std() > 2.0 and abs(sizes.mean() - 20.0) < 5 * np.sqrt(19.6 / 200)


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
    with oracle.batch(dpa.Full()) as batch:
        noisy = batch.gradient(np.zeros((2000, 10)), mechanism, scale)
    noise = (noisy - exact_mean(problem, dpa.Full(), np.zeros(10))).ravel()
    assert stats.kstest(noise, law(scale=scale).cdf).pvalue > 1e-6
    for wrong in (np.sqrt(2.0), 1 / np.sqrt(2.0), 2.0, 0.5):
        assert stats.kstest(noise, law(scale=scale * wrong).cdf).pvalue < 1e-12


def test_a_batch_is_one_event():
    """Two questions to one batch compose first and are amplified once."""
    problem = problem_of(np.ones((100, 2)), np.ones(100))
    oracle = oracle_of(problem, "add_or_remove_one")
    sampling = dpa.Poisson(0.1)
    with oracle.batch(sampling) as batch:
        first = batch.gradient(np.zeros((1, 2)), "gaussian", 1.0)
        second = batch.gradient(np.zeros((1, 2)), "gaussian", 2.0)
    assert first.shape == second.shape == (1, 2)
    (event,) = oracle.ledger.events
    assert isinstance(event, events.Sampled)
    assert [e.std for e in event.events] == [1.0, 2.0]


def test_a_refused_question_is_neither_answered_nor_charged():
    problem = problem_of(np.ones((10, 2)), np.ones(10))
    facts = PublicFacts.of(problem, "replace_one")
    one = gradient_event(facts, dpa.Full(), "laplace", 1.0)
    guard = filters.Filter(dpa.Budget(1.5 * one.sensitivity))
    oracle = oracle_of(problem, guard=guard)
    with oracle.batch(dpa.Full()) as batch:
        batch.gradient(np.zeros((1, 2)), "laplace", 1.0)
    with pytest.raises(dpa.PrivacyBudgetExceeded), oracle.batch(dpa.Full()) as batch:
        batch.gradient(np.zeros((1, 2)), "laplace", 1.0)
    with pytest.raises(dpa.PrivacyBudgetExceeded), oracle.batch(dpa.Full()) as batch:
        batch.gradient(np.zeros((1, 2)), "laplace", 0.0)
    assert oracle.ledger.events == (one,)
    # Half of the budget is left, and it can still be used.
    with oracle.batch(dpa.Full()) as batch:
        batch.gradient(np.zeros((1, 2)), "laplace", 2.0)
    assert oracle.ledger.epsilon(0.0) == pytest.approx(1.5 * one.sensitivity)


def test_a_failing_user_of_a_batch_still_pays():
    problem = problem_of(np.ones((10, 2)), np.ones(10))
    oracle = oracle_of(problem)
    with pytest.raises(KeyError), oracle.batch(dpa.Full()) as batch:
        batch.gradient(np.zeros((1, 2)), "laplace", 1.0)
        raise KeyError("later code fails")
    assert len(oracle.ledger.events) == 1


def test_two_open_batches_are_refused():
    oracle = oracle_of(problem_of(np.ones((10, 2)), np.ones(10)))
    with (
        oracle.batch(dpa.Full()),
        pytest.raises(RuntimeError, match="open already"),
        oracle.batch(dpa.Full()),
    ):
        pass


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
        with oracle.batch(dpa.Full()) as batch:
            answers.append(batch.gradient(np.zeros((1, 2)), "gaussian", 0.0, rule)[0])
    limit = PublicFacts.of(problem, "replace_one").gradient_sensitivity(dpa.Full(), 2, rule)
    assert np.linalg.norm(answers[0] - answers[1]) == pytest.approx(limit) == pytest.approx(0.5)


def test_the_regularizer_is_public():
    """It changes the answer and neither the event nor the noise."""
    X, y = np.ones((10, 2)), np.ones(10)
    w = np.full((1, 2), 2.0)
    answers, ledgers = [], []
    for regularizer in (None, dpa.regularizers.L2(3.0)):
        oracle = oracle_of(problem_of(X, y, regularizer=regularizer))
        with oracle.batch(dpa.Full()) as batch:
            answers.append(batch.gradient(w, "laplace", 1.0))
        ledgers.append(oracle.ledger.events)
    assert ledgers[0] == ledgers[1]
    np.testing.assert_allclose(answers[1] - answers[0], 3.0 * w)
