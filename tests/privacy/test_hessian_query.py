"""Queries of curvature and of values: their sensitivity, and the law of their noise."""

import dataclasses
import math

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import dpanalysis as dpa
from dpanalysis.kernels.array_api import Total
from dpanalysis.kernels.products import row_product
from dpanalysis.kernels.rounding import BLOCK_ROWS
from dpanalysis.papers.second_order.printed import PrintedHessian, printed_hessian_sensitivity
from dpanalysis.privacy import events, mechanisms
from dpanalysis.privacy.oracle import PrivateOracle
from dpanalysis.privacy.queries import (
    FirstDecrease,
    NoisyCurvature,
    NoisyHessian,
    NoisyValue,
    Ray,
    Records,
    hessian_sensitivity,
)
from dpanalysis.privacy.queries.hessian import lanczos, symmetric_noise
from dpanalysis.problems.rows import memory

LOGISTIC = dpa.losses.Logistic()
FULL = dpa.Full()


class Sigmoid(dpa.losses.Logistic):
    """1/(1 + exp(y z)), which is not convex; its second derivative is at most 1/(6 sqrt 3)."""

    convex, lipschitz = False, 0.25
    smoothness = 1.0 / (6.0 * math.sqrt(3.0))

    def value(self, z, y):
        return 1.0 / (1.0 + np.exp(y * z))

    def derivative(self, z, y):
        s = 1.0 / (1.0 + np.exp(y * z))
        return -y * s * (1.0 - s)

    def second_derivative(self, z, y):
        s = 1.0 / (1.0 + np.exp(y * z))
        return s * (1.0 - s) * (1.0 - 2.0 * s)


def problem_of(X, y=None, loss=LOGISTIC, regularizer=None, radius=1.0):
    y = np.ones(len(X)) if y is None else y
    return dpa.ERM(X, y, loss, regularizer, row_bound=dpa.RowBound(2, radius))


def facts_of(problem, relation="replace_one", **changed):
    return dataclasses.replace(problem.facts(relation), **changed)


def exact(problem, w, rows=None, size=None):
    records = Records(problem, rows, problem.n if size is None else size)
    return NoisyHessian(w, 0.0).answer(records, np.random.default_rng(0))[0]


# --- sensitivity ---


@given(
    d=st.integers(1, 4),
    loss=st.sampled_from([LOGISTIC, Sigmoid()]),
    spread=st.floats(0.1, 30.0),
    seed=st.integers(0, 2**20),
)
def test_a_record_never_moves_the_hessian_further(d, loss, spread, seed):
    """Replaced, added or removed, far beyond the row bound."""
    rng = np.random.default_rng(seed)
    X, w = rng.normal(scale=spread, size=(3, d)), rng.normal(scale=spread, size=d)
    y = rng.choice([-1.0, 1.0], size=3)
    Z, z = X.copy(), y.copy()
    Z[0], z[0] = rng.normal(scale=spread, size=d), -y[0]
    here, there = problem_of(X, y, loss), problem_of(Z, z, loss)
    moved = np.linalg.norm(exact(here, w) - exact(there, w))
    assert moved <= hessian_sensitivity(facts_of(here), FULL) * (1 + 1e-9)
    gone = np.linalg.norm(exact(here, w, size=3) - exact(here, w, np.array([1, 2]), size=3))
    added = facts_of(here, "add_or_remove_one")
    assert gone <= hessian_sensitivity(added, FULL) * (1 + 1e-9)


def test_the_sensitivities_are_attained():
    e = np.eye(2)
    across = np.linalg.norm(
        exact(problem_of(e[:1]), np.zeros(2)) - exact(problem_of(e[1:]), np.zeros(2))
    )
    facts = facts_of(problem_of(e[:1]))
    assert across == pytest.approx(hessian_sensitivity(facts, FULL), rel=1e-9)
    alone = np.linalg.norm(exact(problem_of(e[:1]), np.zeros(2)))
    added = facts_of(problem_of(e[:1]), "add_or_remove_one")
    assert alone == pytest.approx(hessian_sensitivity(added, FULL), rel=1e-9)
    bend = math.log(2.0 + math.sqrt(3.0)) * e[0]
    pair = [exact(problem_of(e[:1], [y], Sigmoid()), bend) for y in (1.0, -1.0)]
    facts = facts_of(problem_of(e[:1], loss=Sigmoid()))
    turned = np.linalg.norm(pair[0] - pair[1])
    assert turned == pytest.approx(hessian_sensitivity(facts, FULL), rel=1e-6)


@given(d=st.integers(1, 6), k=st.integers(1, 6), convex=st.booleans(), seed=st.integers(0, 2**20))
def test_hessians_of_any_rank(d, k, convex, seed):
    """Random Hessians of rank k and norm 1, and the projections that attain the bound."""
    facts = facts_of(problem_of(np.zeros((1, d))), hessian_bound=1.0)
    facts = dataclasses.replace(facts, hessian_rank=k, convex_records=convex)
    bound = hessian_sensitivity(facts, FULL)
    rng = np.random.default_rng(seed)
    r = min(k, d)

    def drawn():
        basis = np.linalg.qr(rng.normal(size=(d, d)))[0][:, :r]
        sizes = rng.uniform(0.0 if convex else -1.0, 1.0, size=r)
        return (basis * np.where(rng.random(r) < 0.5, np.sign(sizes), sizes)) @ basis.T

    assert np.linalg.norm(drawn() - drawn()) <= bound * (1 + 1e-12)
    first = np.diag((np.arange(d) < r).astype(float))
    second = np.diag((np.arange(d) >= d - r).astype(float)) if convex else -first
    if convex and 2 * r > d:  # the second is the complement of the first
        second = np.diag((np.arange(d) >= r).astype(float))
    assert np.linalg.norm(first - second) == pytest.approx(bound)


@pytest.mark.parametrize("relation", ["replace_one", "add_or_remove_one"])
def test_the_rounding_of_both_sums_is_that_of_the_longest_hessian(relation):
    """Rank k and norm B: a Hessian is up to sqrt(k) B long, and so are the errors of a sum."""
    facts = facts_of(problem_of(np.zeros((1, 9))), relation, hessian_bound=2.0, hessian_rank=4)
    exactly, rounded = (
        hessian_sensitivity(dataclasses.replace(facts, rounding=r), FULL) for r in (0.0, 0.125)
    )
    longest = np.linalg.norm(2.0 * np.eye(9)[:4])
    assert rounded - exactly == pytest.approx(2.0 * 0.125 * longest)


def test_forgetting_the_rank_of_general_hessians_is_noticed():
    """A mutant assumes rank one for Hessians +-I, whose sensitivity is sqrt(d) times larger."""
    d = 5
    facts = facts_of(problem_of(np.zeros((1, d))), hessian_bound=1.0, convex_records=False)
    moved = np.linalg.norm(2.0 * np.eye(d))
    assert hessian_sensitivity(facts, FULL) < 0.5 * moved
    general = dataclasses.replace(facts, hessian_rank=None)
    assert hessian_sensitivity(general, FULL) == pytest.approx(moved)
    assert printed_hessian_sensitivity(general, FULL) == pytest.approx(moved)


def test_batches_divide_by_their_size_and_unbounded_rows_are_refused():
    problem = problem_of(np.eye(4))
    facts = facts_of(problem)
    batch = dpa.WithoutReplacement(2)
    assert hessian_sensitivity(facts, batch) == 2.0 * hessian_sensitivity(facts, FULL)
    value = NoisyValue(np.zeros(4), 3.0, 0.1)
    whole = value.event(facts, FULL).sensitivity
    assert value.event(facts, batch).sensitivity == 2.0 * whole
    assert whole == 0.75 * (1.0 + 2.0 * facts.rounding)
    unbounded = dpa.ERM(np.eye(2), [1, 1], LOGISTIC).facts("replace_one")
    with pytest.raises(ValueError, match="row_bound"):
        NoisyHessian(np.zeros(2), 1.0).event(unbounded, FULL)


# --- the law of the noise ---


def draws_of(query, count, d):
    problem = problem_of(np.zeros((1, d)))
    rng = np.random.default_rng(3)
    return np.array([query.answer(Records(problem, None, 1.0), rng)[0] for _ in range(count)])


def stored(random, d, std):
    product = symmetric_noise(random, d, std)
    return np.column_stack([product(column) for column in np.eye(d)])


def test_noise_that_is_not_stored_has_a_seed_of_128_bits():
    """Of fewer, an attacker could try all and subtract the noise."""
    asked = []

    class Source:
        def integers(self, low, high, size):
            asked.append((high - low) ** size)
            return np.random.default_rng(0).integers(low, high, size=size)

    stored(Source(), 3, 1.0)
    assert math.prod(asked) >= 2**128


@pytest.mark.parametrize("source", ["matrix", "products", "printed"])
def test_the_noise_has_the_stated_variances(source):
    """Chi-square of every entry, 2,000 draws: |z| > 5 in 10 entries has probability 6e-6.

    The mutant with the wrong law off the diagonal (a factor 2 in variance) has z near -16.
    """
    d, std, count = 4, 0.7, 2_000
    if source == "products":
        rng = np.random.default_rng(1)
        noise = np.array([stored(rng, d, std) for _ in range(count)])
    else:
        noise = draws_of(
            (PrintedHessian if source == "printed" else NoisyHessian)(np.zeros(d), std), count, d
        )
    assert (noise == noise.transpose(0, 2, 1)).all()
    off = std if source == "printed" else std * math.sqrt(0.5)
    expected = np.where(np.eye(d, dtype=bool), std, off) ** 2
    z = ((noise**2).mean(axis=0) / expected - 1.0) * math.sqrt(count / 2.0)
    assert np.abs(z).max() < 5.0
    wrong = ((noise**2).mean(axis=0) / (2.0 * expected) - 1.0) * math.sqrt(count / 2.0)
    assert np.abs(wrong).min() > 0.8 * 0.5 * math.sqrt(count / 2.0) > 2.0 * 5.0
    above = noise[:, *np.triu_indices(d)]
    correlations = np.corrcoef(above.T) - np.eye(above.shape[1])
    assert np.abs(correlations).max() * math.sqrt(count) < 5.0  # 45 pairs: 3e-5
    assert stats.kstest(noise[:, 0, 1] / off, "norm").pvalue > 1e-3  # fixed seed


@pytest.mark.slow
@pytest.mark.parametrize("forgotten", [False, True])
def test_black_box_audit_of_one_release(forgotten):
    """On rows that attain the sensitivity; a mutant without the factor sqrt 2 is refuted.

    False alarms at confidence 1 - 1e-9.
    """
    facts = facts_of(problem_of(np.eye(2)[:1]))
    std = hessian_sensitivity(facts, FULL) * (math.sqrt(0.5) if forgotten else 1.0)
    change = np.diag([1.0, -1.0])  # the likelihood ratio depends on the part along it

    def mechanism(row, rng, size):
        query, records = NoisyHessian(np.zeros(2), std), Records(problem_of(row[None]), None, 1.0)
        return np.array([np.sum(query.answer(records, rng)[0] * change) for _ in range(size)])

    claim = dpa.audit.GaussianPrivacy(1.0)
    verdict = dpa.audit.verify_gaussian(
        mechanism, *np.eye(2), claim, samples=2000, confidence=1 - 1e-9, rng=0, fit=1e-6
    )
    assert verdict.refuted == forgotten and verdict.mu > 0.75


def test_events_state_true_costs():
    facts = facts_of(problem_of(np.eye(3)))
    for query in (NoisyHessian(np.zeros(3), 0.1), PrintedHessian(np.zeros(3), 0.1)):
        event = query.event(facts, FULL)
        assert (event.std, event.sensitivity) == (0.1, pytest.approx(math.sqrt(2.0) * 0.25 / 3))
    assert NoisyCurvature(np.zeros(3), 0.1, 2).event(facts, FULL) == query.event(facts, FULL)
    assert NoisyHessian(np.zeros(3), 0.0).event(facts, FULL) is None


# --- answers ---


@pytest.mark.parametrize("rows", [None, np.array([0, 3, 4])])
def test_the_mean_of_the_batch_with_the_whole_penalty(rows):
    rng = np.random.default_rng(0)
    X, w = rng.normal(size=(6, 3)), rng.normal(size=3)
    penalty = dpa.regularizers.GemanMcClure(0.7)
    problem = problem_of(X, regularizer=penalty, radius=0.9)
    chosen = slice(None) if rows is None else rows
    part = problem_of(X[chosen], regularizer=penalty, radius=0.9)
    expected = part.hessian(w)
    found = exact(problem, w, rows, size=part.n)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-15)
    if rows is None:
        np.testing.assert_allclose(found, problem.hessian(w), rtol=1e-12, atol=1e-15)
    query = NoisyCurvature(w, 0.0, 3)
    (value, vector), products = query.answer(Records(problem, rows, part.n), rng)
    values, vectors = np.linalg.eigh(expected)
    assert products == 3 and value == pytest.approx(values[0], rel=1e-9)
    assert abs(vector @ vectors[:, 0]) == pytest.approx(1.0, rel=1e-9)


def test_every_product_sees_the_same_noise():
    """The eigenpair belongs to one symmetric matrix: its residual vanishes, at d = 60."""
    d, std = 60, 0.3
    problem = problem_of(np.random.default_rng(0).normal(size=(80, d)))
    w = np.zeros(d)
    records = Records(problem, None, problem.n)
    (value, vector), _ = NoisyCurvature(w, std, d).answer(records, np.random.default_rng(9))
    matrix = problem.hessian(w) + stored(np.random.default_rng(9), d, std)
    assert np.linalg.norm(matrix @ vector - value * vector) < 1e-9
    assert value == pytest.approx(np.linalg.eigvalsh(matrix)[0], rel=1e-9)


def test_the_operating_systems_entropy_will_do():
    problem = problem_of(np.eye(3))
    query = NoisyCurvature(np.zeros(3), 0.1, 3)
    source = mechanisms.random_source("os")
    first, second = (query.answer(Records(problem, None, 3.0), source)[0][0] for _ in range(2))
    assert first != second


def test_lanczos_ends_with_the_krylov_space():
    value, vector = lanczos(lambda v: 2.0 * v, np.ones(4), 4)
    assert value == pytest.approx(2.0) and np.linalg.norm(vector) == pytest.approx(1.0)


def test_the_value_is_clamped_and_the_penalty_is_not():
    problem = problem_of(
        np.array([[1.0], [1.0]]), [1.0, -1.0], regularizer=dpa.regularizers.L2(2.0)
    )
    w = np.array([5.0])
    records = Records(problem, None, 2.0)
    answer = NoisyValue(w, 1.0, 0.0).answer(records, np.random.default_rng(0))[0]
    assert answer == pytest.approx(0.5 * (1.0 + math.log1p(math.exp(-5.0))) + 25.0)
    oracle = PrivateOracle(problem, facts_of(problem), None, mechanisms.spawn(0, 1))
    oracle.ask(NoisyValue(w, 1.0, 0.25), FULL)
    moved = 0.5 * (1.0 + 2.0 * oracle.facts.rounding)
    assert oracle.ledger.events == (events.Gaussian(0.25, moved),)


# --- the slopes of a line search ---


@given(
    w=st.floats(-50.0, 50.0),
    direction=st.floats(0.01, 30.0),
    step=st.floats(1e-6, 50.0),
    old=st.floats(-1.0, 1.0),
    new=st.floats(-1.0, 1.0),
)
def test_slopes_move_by_the_lipschitz_constant_at_every_step(w, direction, step, old, new):
    """So clipping slopes at B_g ||g|| never changes them."""
    slopes = []
    for row in (old, new):
        losses = problem_of(np.array([[row]])).line_losses(np.array([w]), np.array([direction]))
        slopes.append(float(losses(0.0)[0] - losses(step)[0]) / step)
        assert abs(slopes[-1]) <= direction * (1 + 1e-9) + 1e-13 / step
    assert abs(slopes[0] - slopes[1]) <= 2.0 * direction * (1 + 1e-9) + 1e-13 / step


def test_short_steps_are_tried_with_the_same_noise():
    problem = problem_of(np.array([[1.0]]), regularizer=dpa.regularizers.L2(1.0))
    ray = Ray(np.array([2.0]), np.array([1.0]), np.array([4.0, 1e-3]))
    query = FirstDecrease(ray, 0.1 * ray.step_sizes, 1.0, "laplace", 1e-9, 1e-9, "slope_clip")
    found = query.answer(Records(problem, None, 1.0), np.random.default_rng(0))
    assert found == (1, 3)  # the slope at 2 is 2 - 1/(1 + e^2); four steps further it is uphill
    event = query.event(facts_of(problem), FULL)
    assert event.sensitivity == pytest.approx(2.0, rel=1e-10)
    expected = events.AboveThreshold("laplace", 1e-9, 1e-9, event.sensitivity, 2, shared=False)
    assert event == expected


class Bent(dpa.losses.Logistic):
    """Its second derivative exceeds the stated constants, on both sides."""

    convex, smoothness = True, 0.25

    def second_derivative(self, z, y):
        return 1e3 * np.sign(z)


class BentBothWays(Bent):
    convex = False


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_a_curvature_beyond_the_stated_constants_is_cut(form):
    X, w = np.array([[0.6], [-0.8], [1.0]]), np.ones(1)
    for loss, low in ((Bent(), 0.0), (BentBothWays(), -0.25)):
        problem = dpa.ERM(form(X), np.ones(3), loss, row_bound=dpa.RowBound(2, 1.0))
        expected = 0.25 * (0.36 + 1.0) + low * 0.64
        np.testing.assert_allclose(problem.hessian_sum(w), [[expected]], rtol=1e-14)
        np.testing.assert_allclose(problem.hvp_sum(w, w), [expected], rtol=1e-14)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_a_prediction_that_overflows_adds_no_curvature(form):
    """Not a NaN, which would reveal the record."""
    X, w, v = np.array([[1.0, 0.0], [1e200, 1.0]]), np.array([1e200, 0.0]), np.array([0.0, 1.0])
    alone, both = (dpa.ERM(form(X[:k]), np.ones(k), LOGISTIC) for k in (1, 2))
    np.testing.assert_array_equal(both.hessian_sum(w), alone.hessian_sum(w))
    np.testing.assert_array_equal(both.hvp_sum(w, v), alone.hvp_sum(w, v))


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_a_record_adds_the_same_curvature_wherever_it_stands(form):
    """Its residual is the width: rounded up at another place, it would lie beyond the corner."""
    for seed in range(20):
        row, w = np.random.default_rng(seed).normal(size=(2, 20))
        loss = dpa.losses.Huber(abs(row_product(form(row[None]), w[:, None]).item()))
        problem = dpa.ERM(form(np.tile(row, (37, 1))), np.zeros(37), loss)
        np.testing.assert_allclose(problem.hessian_sum(w), 37 * np.outer(row, row), rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_sums_of_curvature_are_added_up_by_blocks_as_the_proof_says(form, monkeypatch):
    """Each sum has at most 4096 rows, and all but the last at least 2048."""
    filled = []

    class Watched(Total):
        def open(self, rows):
            block = super().open(rows)
            if self._filled == rows:
                filled.append(0)
            filled[-1] += rows
            return block

    monkeypatch.setattr(memory, "Total", Watched)
    rng = np.random.default_rng(0)
    for n, d in ((20_000, 1), (9000, 150)):
        X = rng.normal(size=(n, d))
        problem = dpa.ERM(form(X), np.ones(n), LOGISTIC)
        w = np.zeros(d)
        for call, arguments in ((problem.hessian_sum, (w,)), (problem.hvp_sum, (w, w))):
            filled.clear()
            call(*arguments)
            assert sum(filled) == n
            assert max(filled) <= BLOCK_ROWS and min(filled[:-1]) >= BLOCK_ROWS // 2
        np.testing.assert_allclose(problem.hessian_sum(w), 0.25 * X.T @ X, rtol=1e-9, atol=1e-9)
