"""Gao and Wright (2023): descent lemmas, horizon, ledger and refusals of SecondOrder."""

import dataclasses
import math
import warnings
from unittest.mock import ANY

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from small_runs import problem_of, quiet, saddle

import dpanalysis as dpa
from dpanalysis import privacy, theory
from dpanalysis.methods import NoisyGradientDescent2NS, SecondOrder, TrustRegion, second_order
from dpanalysis.methods.second_order import QueryCounter, batch_multipliers
from dpanalysis.papers.second_order.printed import PrintedSecondOrder
from dpanalysis.privacy import events, mechanisms
from dpanalysis.privacy.oracle import PrivateOracle
from dpanalysis.privacy.queries import hessian_sensitivity

LOGISTIC, FULL = dpa.losses.Logistic(), dpa.Full()
SHARES = {
    "short": theory.Shares(0.1, 0.2, 0.1),
    "line_search": theory.Shares(0.1, 0.2, 0.1, 0.35, 0.2),
}
LARGE = {"eps_g": 0.3, "eps_H": 0.5}  # with n below, n_min is met


class Shaken(dpa.ERM):
    """An ERM whose gradients and Hessians have the largest noise that is tolerated."""

    gradient_noise = hessian_noise = 0.0
    seed = 0

    def facts(self, relation):
        return super().facts(relation)

    def sums(self, w, **options):
        total = super().sums(w, **options)
        if total.gradient is None:
            return total
        rng = np.random.default_rng(self.seed)
        g = self.gradient(w[0]) if w.ndim == 2 else self.gradient(w)
        noise = g if rng.random() < 0.5 and np.linalg.norm(g) else rng.normal(size=self.d)
        noise *= rng.choice([-1.0, 1.0]) * self.gradient_noise / np.linalg.norm(noise)
        return total._replace(gradient=total.gradient + self.n * noise)

    def gradient(self, w):  # the exact one
        mean = dpa.ERM.sums(self, w, value=False).gradient / self.n
        return mean + self.regularizer.gradient(w)

    def hessian_sum(self, w, rows=None):
        rng = np.random.default_rng(self.seed + 1)
        noise = rng.normal(size=(self.d, self.d))
        noise = self.hessian_noise * (noise + noise.T) / np.linalg.norm(noise + noise.T, 2)
        return super().hessian_sum(w, rows) + self.n * noise


@pytest.mark.parametrize("step", SHARES)
def test_shares_are_shown(step):
    shares = SHARES[step]
    shown = repr(SecondOrder(0.5, 0.6, step=step, shares=shares))
    assert shown.startswith("SecondOrder(eps_g=0.5, eps_H=0.6, ") and repr(shares) in shown


# --- descent, horizon ---


@pytest.mark.slow
@given(
    step=st.sampled_from(["short", "line_search"]),
    strength=st.floats(0.3, 4.0),
    spread=st.floats(0.1, 3.0),
    seed=st.integers(0, 2**20),
)
def test_every_step_descends_by_min_dec_under_the_worst_noise(step, strength, spread, seed):
    """Lemmas 2 and 6 and Corollary 3, exact searches; both kinds of steps are met (see below)."""
    rng = np.random.default_rng(seed)
    problem = problem_of(strength=strength, seed=seed, kind=Shaken)
    method = SecondOrder(0.02, 0.1, step=step, shares=SHARES[step])
    facts = problem.facts("replace_one")
    plan = method.prepare(facts, None, "tightest")
    problem.seed = seed
    limits = theory.tolerated_noise(0.02, 0.1, facts.hessian_lipschitz, 0.1, 0.2, 0.1)
    problem.gradient_noise, problem.hessian_noise = limits
    oracle = PrivateOracle(problem, facts, None, mechanisms.spawn(seed, 1))
    w = rng.normal(scale=spread, size=problem.d)
    before = problem.value(w)
    for count, made in enumerate(method.run(w, oracle, plan)):
        if made.released["second_order_point"]:
            assert np.linalg.norm(problem.gradient(w)) <= 1.2 * 0.02 * (1 + 1e-9)
            assert np.linalg.eigvalsh(dpa.ERM.hessian(problem, w))[0] >= -1.1 * 0.1 * (1 + 1e-9)
            return
        after, w = problem.value(made.w), made.w
        assert before - after >= plan.min_decrease * (1 - 1e-9)
        before = after
        if count == 12:
            return


@pytest.mark.slow
@pytest.mark.parametrize("step", ["short", "line_search"])
@pytest.mark.parametrize("hessian", ["full", "lanczos"])
def test_it_leaves_a_saddle_along_negative_curvature(step, hessian):
    problem, w0 = saddle()
    assert np.linalg.norm(problem.gradient(w0)) < 1e-9
    assert np.linalg.eigvalsh(problem.hessian(w0))[0] < -0.045
    method = SecondOrder(0.003, 0.04, step=step, hessian=hessian)
    result = dpa.minimize(problem, method, None, w0=w0, rng=0, record=("objective",))
    bent = np.nan_to_num(result.history["smallest_eigenvalue"][1:, 0]) < -0.02
    assert bent[0] and not bent[-1]
    assert result.history["second_order_point"][-1, 0] == 1.0
    assert (np.diff(result.history["objective"][:-1, 0]) < 0.0).all()
    assert np.linalg.norm(problem.gradient(result.w[0])) <= 0.003
    assert np.linalg.eigvalsh(problem.hessian(result.w[0]))[0] >= -0.04
    evaluated = "hvp" if hessian == "lanczos" else "hessian"
    products = 2 if hessian == "lanczos" else 1  # of two parameters
    hessians = result.history["hessians"][-1, 0]
    assert result.evaluations[evaluated] == products * hessians * problem.n
    assert hessians == np.isfinite(result.history["smallest_eigenvalue"][:, 0]).sum()


def test_the_released_step_sizes_are_those_of_the_steps():
    problem, w0 = saddle()
    method = SecondOrder(0.003, 0.04, shares=SHARES["short"])
    some = {"record": ["iterate"], "callback": lambda number, w: number == 9}
    result = dpa.minimize(problem, method, None, w0=w0, rng=0, **some)
    released = {name: values[1:, 0] for name, values in result.history.items() if name[0] != "i"}
    moved = np.linalg.norm(np.diff(result.history["iterate"][:, 0], axis=0), axis=1)
    bent = np.isfinite(released["smallest_eigenvalue"])  # the step is along a unit vector
    lengths = np.where(bent, 1.0, released["gradient_norm_noisy"])
    assert bent[0] and not bent.all() and (moved > 0.0).all()
    np.testing.assert_allclose(released["step_size"] * lengths, moved, rtol=1e-9)


def test_a_search_without_noise_takes_the_first_step_size_with_the_required_decrease():
    """Algorithm 2 along gradients, where f falls by c_g times the step size and |g|^2 or more."""
    problem, shares = problem_of(strength=0.1), SHARES["line_search"]
    method = SecondOrder(0.01, 0.3, step="line_search", shares=shares, b_g=30.0, beta_g=0.7)
    result = dpa.minimize(problem, method, w0=[8.0, -6.0, 2.0], record=("iterate",))
    least = 2.0 * (1.0 - shares.c1 - shares.c_g) / problem.L
    sizes, searched = [least * 30.0 * 0.7**k for k in range(10)], 0
    assert sizes[-1] > least > 0.7 * sizes[-1]
    iterates, taken = result.history["iterate"][:, 0], result.history["step_size"][1:, 0]
    for w, size in zip(iterates[:-1], taken, strict=True):
        g = problem.gradient(w)
        enough = [
            s
            for s in sizes
            if problem.value(w - s * g) <= problem.value(w) - shares.c_g * s * g @ g
        ]
        if np.linalg.norm(g) > 0.01:
            assert size == pytest.approx(enough[0] if enough else least, rel=1e-12)
            searched += 1
    assert searched > 3 and len(set(taken)) > 2


@pytest.mark.parametrize("offset", [-0.1, 0.1])
@pytest.mark.parametrize("step", SHARES)
def test_an_exact_run_is_the_printed_loop(step, offset):
    """Algorithm 1, and 3 with its search, Algorithm 2, which ends at the fallback."""
    (problem, w), (c, c1, c2, c_g, c_H) = saddle(), SHARES[step]
    w = w + np.array([offset, 0.0])
    search = {"b_g": 9.0, "beta_g": 0.6, "b_H": 1e3, "beta_H": 0.9}
    method = SecondOrder(0.01, 0.04, step=step, shares=SHARES[step], **search)
    result = dpa.minimize(problem, method, None, w0=w, record=("iterate",))
    f, G, M = problem.value, problem.L, problem.facts("replace_one").hessian_lipschitz
    curved = []
    for found in result.history["iterate"][1:, 0]:
        g = problem.gradient(w)
        values, vectors = np.linalg.eigh(problem.hessian(w))
        depth, p = -values[0], vectors[:, 0] * (-1.0 if vectors[:, 0] @ g > 0.0 else 1.0)
        if np.linalg.norm(g) > 0.01:
            move, b, beta, size = -g, 9.0, 0.6, 1.0 / G
        elif depth > 0.04:
            move, b, beta, size = p, 1e3, 0.9, 2.0 * depth / M
        else:
            np.testing.assert_array_equal(found, result.w[0])
            break
        curved.append(move is p)
        if step == "line_search":
            half = 0.5 * (1.0 - c - c_H)
            t2 = 3.0 * half + 3.0 * math.sqrt(half**2 - 2.0 * c2 / 3.0)
            size = t2 * depth / M if curved[-1] else 2.0 * (1.0 - c1 - c_g) / G
            for k in range(math.floor(math.log(1.0 / b) / math.log(beta)) + 1):
                tried = b * size * beta**k
                least = 0.5 * c_H * tried**2 * depth if curved[-1] else c_g * tried * g @ g
                if f(w + tried * move) <= f(w) - least:
                    size = tried
                    break
        w = w + size * move
        np.testing.assert_allclose(found, w, rtol=1e-6, atol=1e-9)
    assert len(curved) == result.iterations - 1 and curved[0]
    assert offset > 0.0 or not curved[-1]


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_a_step_along_negative_curvature_does_not_climb_the_gradient(sign, monkeypatch):
    """The eigenvector has either sign: the one with <p, g> <= 0 is taken."""
    g, hessian = sign * np.array([0.01, 0.0, 0.0]), np.diag([-0.2, 0.1, 0.1])
    monkeypatch.setattr(QueryCounter, "gradient", lambda *_: g)
    monkeypatch.setattr(QueryCounter, "hessian", lambda *_: hessian)
    method = SecondOrder(0.1, 0.1, shares=SHARES["short"])
    result = dpa.minimize(problem_of(), method, None, callback=lambda number, w: True)
    assert result.iterations == 1 and result.w[0] @ g < 0.0


def test_lanczos_makes_a_step_from_half_the_tolerance_on():
    """Its eigenvalue is too large by up to eps_H/2, so only above -eps_H/2 is it above -eps_H."""
    problem, w0 = saddle()
    smallest = np.linalg.eigvalsh(problem.hessian(w0))[0]
    eps_H = -1.05 * smallest
    shares, last = SHARES["short"], {}
    for hessian in ("full", "lanczos"):
        method = SecondOrder(0.003, eps_H, hessian=hessian, shares=shares)
        result = dpa.minimize(problem, method, None, w0=w0, rng=0, callback=lambda number, w: True)
        last[hessian] = result.history["second_order_point"][-1, 0], result.plan.min_decrease
        assert result.history["smallest_eigenvalue"][-1, 0] == pytest.approx(smallest)
    assert (last["full"][0], last["lanczos"][0]) == (1.0, 0.0)
    halved = SecondOrder(0.003, 0.5 * eps_H, shares=shares)
    plan = halved.prepare(problem.facts("replace_one"), None, "tightest")
    assert last["lanczos"][1] == plan.min_decrease < last["full"][1]


def test_the_horizon_counts_the_terminating_evaluation():
    """Without it a run stops one evaluation short where f falls by exactly MIN_DEC a step.

    Only the count is tested: a run with exact answers that needs all steps but one still has
    the evaluation that detects the end.
    """
    facts = problem_of().facts("replace_one")
    method = SecondOrder(0.1, 0.3, shares=SHARES["short"])
    plan = method.prepare(facts, None, "tightest")
    steps = (math.log(2.0) - 0.0) / plan.min_decrease
    assert plan.iterations == math.floor(steps) + 1
    # f falls by MIN_DEC a step to the lower bound itself: so many steps, and one evaluation.
    exact = dataclasses.replace(method, lower_bound=math.log(2.0) - 5.0 * plan.min_decrease * 1.001)
    assert exact.prepare(facts, None, "tightest").iterations == 6
    none = dataclasses.replace(method, lower_bound=math.log(2.0))
    assert none.prepare(facts, None, "tightest").iterations == 1
    # At a stationary start the only evaluation detects it.
    balanced = dpa.ERM(
        np.array([[1.0], [1.0]]),
        [1, -1],
        LOGISTIC,
        dpa.regularizers.GemanMcClure(1e-3),
        dpa.RowBound(2, 1.0),
    )
    result = dpa.minimize(balanced, none, None)
    assert result.iterations == 1 and result.history["second_order_point"][-1, 0] == 1.0


@given(st.integers(1, 30), st.floats(0.3, 0.95), st.floats(1e-3, 1e3))
def test_a_search_ends_above_its_fallback(count, factor, fallback):
    """Also where the last step but for its rounding is the fallback: factor**-count times it."""
    steps = second_order._step_sizes(fallback, factor**-count, factor)
    assert steps == pytest.approx(fallback * factor ** np.arange(-count, 0.0))
    between = second_order._step_sizes(fallback, factor ** -(count - 0.5), factor)
    assert len(between) == count and fallback < between[-1] < fallback / factor


# --- privacy ---


@pytest.mark.parametrize(
    ("options", "budget"),
    [
        ({}, dpa.Budget.zcdp(0.5)),
        ({"step": "line_search"}, dpa.Budget.zcdp(0.5)),
        ({"step": "line_search", "two_phase": True}, dpa.Budget(1.0, 1e-6)),
        ({"hessian": "lanczos", "two_phase": True}, dpa.Budget(1.0, 1e-6)),
    ],
)
@pytest.mark.parametrize("w0", [None, np.array([0.5, -0.5, 0.1])])
def test_the_ledger_by_hand_is_the_filter(options, budget, w0):
    problem = problem_of(n=3000)
    result = quiet(problem, SecondOrder(0.15, 0.4, **options), budget, rng=1, w0=w0)
    spent = 0.0
    for event in result.ledger.events:
        count = event.count if isinstance(event, events.Repeated) else 1
        event = event.event if count > 1 else event
        if isinstance(event, events.Gaussian):
            spent += count * 0.5 * (event.sensitivity / event.std) ** 2
        else:
            epsilon = 2.0 * event.sensitivity / event.query_scale
            epsilon += event.sensitivity / event.threshold_scale
            assert event.query_scale == pytest.approx(2.0 * event.threshold_scale)
            if w0 is None and "two_phase" not in options:  # 2 lambda Delta and 4 lambda Delta
                assert 1.0 / epsilon == pytest.approx(result.plan.noise.search, rel=1e-6)
            spent += count * epsilon * math.tanh(0.5 * epsilon)
    assert spent == pytest.approx(result.guard.spent, rel=1e-9)
    assert spent <= result.guard.limit * (1 + 1e-9)
    assert result.private


def test_the_worst_case_fills_the_budget_and_not_more():
    """T iterations with all queries; the printed noise costs far less than planned."""
    facts = problem_of(n=3000).facts("replace_one")
    budget = dpa.Budget.zcdp(0.5)
    for options in ({}, {"step": "line_search"}):
        with pytest.warns(UserWarning, match="n_min"):
            method = SecondOrder(0.05, 0.3, **options)
            plan = method.prepare(facts, budget, "tightest")
        events_of_one = method.iteration(facts, plan)
        cost = plan.iterations * sum(event.zcdp_cost() for event in events_of_one)
        assert cost == pytest.approx(0.5, rel=1e-9) and cost <= 0.5 * (1 + 1e-9)
    with pytest.warns(UserWarning, match="n_min"):
        method = PrintedSecondOrder(0.05, 0.3)
        plan = method.prepare(facts, budget, "tightest")
    cost = plan.iterations * sum(event.zcdp_cost() for event in method.iteration(facts, plan))
    assert cost == pytest.approx(0.25 * (1.0 + 1.0 / (2.0 * facts.d)), rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    "method",
    [
        SecondOrder(0.05, 0.3, sampling=dpa.WithoutReplacement(300)),
        SecondOrder(0.05, 0.3, sampling=dpa.WithoutReplacement(3000)),
        SecondOrder(0.05, 0.3, sampling=dpa.WithoutReplacement(1), hessian="lanczos"),
        SecondOrder(0.05, 0.3, sampling=dpa.WithoutReplacement(300), two_phase=True),
        PrintedSecondOrder(0.05, 0.3, sampling=dpa.WithoutReplacement(300)),
        TrustRegion(0.15, 0.4, sampling=dpa.WithoutReplacement(300)),
        NoisyGradientDescent2NS(0.15, 0.4, iterations=9, sampling=dpa.WithoutReplacement(300)),
    ],
    ids=["short", "whole", "lanczos", "two phases", "printed", "trust region", "descent"],
)
def test_a_run_on_batches_asks_at_most_what_it_planned(method):
    """The plan fills the budget; every answer is covered by a separate planned event."""
    problem, budget = problem_of(n=3000), dpa.Budget(1.0, 1e-6)
    result = quiet(problem, method, budget, rng=1, replicates=2)
    planned, T = result.planned, result.plan.iterations
    assert result.guard is None and result.private and planned == result.plan.asked
    cost = privacy.epsilon(planned, 1e-6, "replace_one")
    assert 0.98 <= cost <= 1.0 and result.epsilon() == cost
    assert sum(event.count for event in planned) == sum(method._query_counts(T).values())
    assert sum(count for count, _ in result.plan.phases) == T
    singles = [each.event for each in planned for _ in range(each.count)]
    for ledger in result.ledgers:
        asked = [
            event.event
            for event in ledger.events
            for _ in range(getattr(event, "count", 1))
            if isinstance(event, events.Repeated)
        ] or list(ledger.events)
        place = 0
        for event in asked:
            while not singles[place].dominates(event):
                place += 1
            place += 1
        assert asked and place <= len(singles)


def test_no_rounding_makes_an_answer_cost_more_than_what_was_planned_for_it():
    method = SecondOrder(0.3, 0.5, sampling=dpa.WithoutReplacement(100), shares=SHARES["short"])
    for n in range(1005, 1015):
        facts = problem_of(n=n).facts("replace_one")
        plan = quiet_plan(method, facts, dpa.Budget(1.0, 1e-6))
        planned = plan.asked[0].event
        assert all(map(planned.dominates, method.iteration(facts, plan)))


def test_phases_on_batches_are_fixed_without_a_budget_too():
    """The second phase has the rest of T, however close to the lower bound the first came."""
    method = SecondOrder(1e-9, 0.4, sampling=dpa.WithoutReplacement(30), two_phase=True)
    near = dataclasses.replace(method, lower_bound=math.log(2.0) - 1e-18)
    for each in (near, dataclasses.replace(method, eps_g=0.15)):
        result = dpa.minimize(problem_of(n=60), each, None, rng=0, record=())
        T = result.plan.iterations
        assert sum(count for count, _ in result.plan.phases) == T >= result.iterations
        assert "loss" not in result.evaluations


def test_both_kinds_of_answer_have_one_multiplier():
    """Otherwise the answers would determine how often the more expensive pair occurs."""
    problem = problem_of(n=3000)
    method = SecondOrder(0.15, 0.4, sampling=dpa.WithoutReplacement(300), two_phase=True)
    result = quiet(problem, method, dpa.Budget(1.0, 1e-6), rng=1)
    facts = problem.facts("replace_one")
    units = (
        facts.gradient_sensitivity(method.sampling, 2),
        hessian_sensitivity(facts, method.sampling),
    )
    for (_, noise), event in zip(result.plan.phases, result.planned, strict=True):
        (release,) = event.event.events
        for std, unit in zip((noise.gradient, noise.hessian), units, strict=True):
            assert 0.0 <= std / unit / release.std - 1.0 <= 2e-11
    # Shares of rho: 3/4 in the first phase.
    first, second = (event.count / event.event.events[0].std ** 2 for event in result.planned)
    assert first / (first + second) == pytest.approx(0.75)


@pytest.mark.parametrize(
    ("epsilon", "multiplier", "by_renyi"), [(0.2, 37.87, 405.9), (1.0, 8.709, 89.48)]
)
def test_batches_of_a_tenth_by_dp_accounting(epsilon, multiplier, by_renyi):
    """390 answers of .1 n of 79,222 records; both directions of one record are near to the bound.

    dp-accounting composes (1 - q) N(0) + q N(1) against N(0), either way: data sets whose other
    records are all 0. Our cost must cover both. Its other relation has records of -1/2 and 1/2.
    """
    from dp_accounting import NeighboringRelation
    from dp_accounting.pld import privacy_loss_distribution as peer

    n, m, delta = 79_222, 7922, 1e-6
    budget = dpa.Budget(epsilon, delta)
    found, asked = batch_multipliers(dpa.WithoutReplacement(m), n, [(390, 1.0)], budget, "tightest")
    assert found == pytest.approx([multiplier], rel=1e-3)
    (renyi,), _ = batch_multipliers(dpa.WithoutReplacement(m), n, [(390, 1.0)], budget, "rdp")
    assert renyi == pytest.approx(by_renyi, rel=1e-3)
    std = asked[0].event.events[0].std
    pairs = (
        (std, NeighboringRelation.ADD_OR_REMOVE_ONE),
        (2 * std, NeighboringRelation.REPLACE_ONE),
    )
    for noise, relation in pairs:
        law = peer.from_gaussian_mechanism(
            noise, sampling_prob=m / n, neighboring_relation=relation, use_connect_dots=True
        )
        theirs = law.self_compose(390).get_epsilon_for_delta(delta)
        assert 0.95 * epsilon <= theirs <= epsilon * (1 + 1e-3)


def test_a_run_on_batches_under_a_shared_filter_is_priced_by_it():
    """Noise calibrated by a loss distribution would cost too much at the filter's order."""
    problem = problem_of(n=3000)
    budget, method = (
        dpa.Budget(1.0, 1e-6),
        SecondOrder(0.15, 0.4, sampling=dpa.WithoutReplacement(30)),
    )
    with pytest.warns(UserWarning, match="n_min"):
        plan = method.prepare(problem.facts("replace_one"), budget, "rdp")
    guard = privacy.Filter(budget, order=privacy.plan_order(plan.asked, budget))
    result = quiet(problem, method, guard, rng=1)
    assert result.plan.noise == plan.noise and result.iterations > 1
    assert 0.0 < guard.spent <= guard.limit and result.epsilon() <= 1.0 + 1e-9
    with pytest.raises(dpa.IncompatibleAccounting, match="no finite zCDP cost"):
        quiet(problem, method, privacy.Filter(dpa.Budget(1.0, 1e-6)), rng=1)


def test_approximation_28_is_never_what_a_batch_costs():
    """The mutant (28), 2 s^2 alpha/sigma^2, is far below the exact cost at s = .01, alpha = 16."""
    event = events.Sampled(dpa.WithoutReplacement(100), [events.Gaussian(1.0, 1.0)], 10_000)
    charged = float(event.rdp_cost(16.0))
    exact = 3.088  # of errata 003-10
    assert charged >= exact > 100.0 * (2.0 * 0.01**2 * 16.0)


@pytest.mark.slow
@pytest.mark.parametrize("folded", [False, True])
def test_the_horizon_from_a_noisy_value_is_private(folded):
    """T from f + |z|, as in (6), is refuted; T from f + z + margin is not.

    False alarms at confidence 1 - 1e-9.
    """
    facts = dataclasses.replace(problem_of(d=1).facts("replace_one"), n=1)
    method, w = SecondOrder(0.3, 0.5), np.array([1.0])
    plan = dataclasses.replace(
        quiet_plan(method, facts, dpa.Budget.zcdp(0.5)), min_decrease=0.1, n_min=0.0
    )

    class First(QueryCounter):
        left = plan.price.limit  # every query is the first of a run

    def mechanism(row, rng, size):
        problem = dpa.ERM(row[None], [1.0], LOGISTIC, row_bound=dpa.RowBound(2, 1.0))
        oracle = PrivateOracle(problem, problem.facts("replace_one"), None, [rng])
        counter = First(method, oracle, plan)
        values = np.array([counter.value(w) for _ in range(size)])
        if folded:
            (asked,) = oracle.ledger.events
            margin = stats.norm.ppf(0.05) * getattr(asked, "event", asked).std
            values = problem.value(w) + np.abs(values + margin - problem.value(w))
        return [method._horizon(value, plan.min_decrease) for value in values]

    claim = privacy.gaussian_epsilon(1.0 / math.sqrt(2.0 * 0.05 * 0.5), 1e-3)
    verdict = dpa.audit.verify_privacy(
        mechanism, np.array([1.0]), np.array([-1.0]), claim=claim, delta=1e-3, samples=3000, rng=0
    )
    assert verdict.refuted == folded


def quiet_plan(method, facts, budget):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return method.prepare(facts, budget, "tightest")


@pytest.mark.slow
def test_enough_data_find_a_point_with_the_stated_probability():
    """n above n_min: none of 40 runs fails; the stated failure probability .05 is loose."""
    problem = problem_of(n=40_000)
    for options in ({}, {"two_phase": True}, {"hessian": "lanczos"}):
        method = SecondOrder(**LARGE, **options)
        result = dpa.minimize(problem, method, dpa.Budget(2.0, 1e-6), rng=0, replicates=40)
        assert result.plan.n_min < problem.n
        assert (result.history["second_order_point"][-1] == 1.0).all()
        norms = np.linalg.norm(problem.gradient(result.w), axis=1)
        assert (norms <= (1.0 + result.plan.shares.c1) * 0.3).all()


def test_two_phases_end_where_the_first_finds_nothing():
    """The first phase has too few iterations; the second starts from its end, with the rest."""
    problem = problem_of(n=20_000)
    method = SecondOrder(0.02, 0.4, two_phase=True, speedup=1e3)
    result = quiet(problem, method, dpa.Budget(1.0, 1e-6), rng=0)
    phases = result.history["phase"][:, 0]
    assert phases[1] == 1.0 and phases[-1] == 2.0
    # The noisy value: sensitivity (ln 2 + ||w||)/n, of neither gradient nor Hessian.
    facts = problem.facts("replace_one")
    known = {facts.gradient_sensitivity(FULL, 2), hessian_sensitivity(facts, FULL)}
    each = [e.event if isinstance(e, events.Repeated) else e for e in result.ledger.events]
    values = [e for e in each if e.sensitivity not in known]
    assert len(values) == 1 and math.log(2.0) < values[0].sensitivity * problem.n
    assert result.guard.spent <= result.guard.limit * (1 + 1e-9)


@pytest.mark.slow
def test_same_seed_same_run():
    problem = problem_of(n=3000)
    for options in ({}, {"sampling": dpa.WithoutReplacement(300)}, {"hessian": "lanczos"}):
        method = SecondOrder(0.15, 0.5, **options)
        first, second = (
            quiet(problem, method, dpa.Budget(1.0, 1e-6), rng=5, replicates=2) for _ in range(2)
        )
        assert (first.w == second.w).all() and (first.w[0] != first.w[1]).any()


# --- refusals ---


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"eps_g": 0.0}, "eps_g"),
        ({"eps_H": -1.0}, "eps_H"),
        ({"shares": theory.Shares(0.1, 0.5, 0.1)}, r"c1 must lie in \(0, 0.5\)"),
        ({"shares": theory.Shares(0.0, 0.25, 0.1)}, r"c must lie in \(0, "),
        (
            {"shares": theory.Shares(0.2, 0.25, 0.2)},
            r"c2 with c = 0.2 must lie in \(0, 0.133333\)",
        ),
        (
            {"step": "line_search", "shares": theory.Shares(0.1, 0.25, 0.1, 0.8, 0.2)},
            r"c_g with c1 = 0.25 must lie in \(0, 0.75\)",
        ),
        (
            {"step": "line_search", "shares": theory.Shares(0.1, 0.25, 0.1, 0.35, 0.5)},
            r"c_H with c = 0.1 and c2 = 0.1 must lie in \(0, 0.3836\d*\)",
        ),
        ({"step": "line_search", "shares": theory.Shares(0.1, 0.25, 0.1)}, "c_g and c_H with"),
        ({"shares": theory.Shares(0.1, 0.25, 0.1, 0.35, 0.2)}, "not with step='short'"),
        ({"shares": theory.Shares(0.1, 0.25, 0.1, 0.35)}, "both of c_g and c_H"),
        ({"step": "newton"}, "step"),
        ({"hessian": "sparse"}, "hessian"),
        ({"step": "line_search", "sampling": dpa.WithoutReplacement(5)}, "sampling must be Full"),
        ({"sampling": dpa.Poisson(0.1)}, "sampling"),
        ({"b_g": 1.0}, "b_g"),
        ({"beta_H": 1.0}, "beta_H"),
        ({"speedup": 1.0}, "speedup"),
        ({"failure": 0.0}, "failure"),
        ({"lower_bound": math.inf}, "lower_bound"),
        ({"two_phase": 1}, "two_phase must be True or False"),
    ],
)
def test_arguments_outside_their_ranges(arguments, match):
    with pytest.raises((ValueError, TypeError), match=match):
        SecondOrder(**{"eps_g": 0.1, "eps_H": 0.3, **arguments})


@pytest.mark.parametrize("method", [SecondOrder, TrustRegion, NoisyGradientDescent2NS])
def test_problems_outside_the_assumptions_are_refused_before_the_data_are_touched(method):
    class Untouchable(dpa.ERM):
        def _evaluate(self, *arguments):
            raise AssertionError("the data were touched")

        hessian_sum = _evaluate

        def facts(self, relation):
            return super().facts(relation)

    X, y, bound = np.eye(4), np.ones(4), dpa.RowBound(2, 1.0)
    build = method(0.1, 0.3)
    cases = [
        (Untouchable(X, y, LOGISTIC), dpa.Budget(1.0, 1e-6), "row_bound"),
        (
            Untouchable(X, y, dpa.losses.HuberizedHinge(0.5), row_bound=bound),
            None,
            "Lipschitz Hessian",
        ),
        (Untouchable(X, y, LOGISTIC, row_bound=bound), dpa.Budget(1.0), "delta > 0 or be zCDP"),
    ]
    for problem, budget, match in cases:
        with pytest.raises(ValueError, match=match):
            dpa.minimize(problem, build, budget, record=())
    batches = method(0.1, 0.3, sampling=dpa.WithoutReplacement(2))
    with pytest.raises(ValueError, match="small batches have no zCDP cost"):
        dpa.minimize(cases[2][0], batches, dpa.Budget.zcdp(1.0), record=())


def test_the_longer_search_determines_the_noise_of_searches():
    facts = problem_of().facts("replace_one")
    plain, *longer = (
        SecondOrder(0.1, 0.3, step="line_search", shares=SHARES["line_search"], **larger)
        for larger in ({}, {"b_g": 1e6}, {"b_H": 1e6})
    )
    slacks = [m._search_slack(facts, second_order.Noise(search=1.0), 0.01) for m in longer]
    few, many = (theory.search_slack(tries, 0.01) for tries in (4, 20))  # halvings of b
    less = plain._search_slack(facts, second_order.Noise(search=1.0), 0.01)
    assert slacks == pytest.approx([less * many / few] * 2)


@pytest.mark.parametrize(("eps_g", "eps_H"), [(1e-3, 0.3), (0.1, 0.01)])
def test_searches_need_the_records_of_the_step_that_decreases_less(eps_g, eps_H):
    """(16), sharpened: along a small gradient, and along a small curvature."""
    facts = problem_of().facts("replace_one")
    method = SecondOrder(eps_g, eps_H, step="line_search", shares=SHARES["line_search"])
    B, M = facts.gradient_bounds[1], facts.hessian_lipschitz
    x = 4.0 * math.log(2.0 * 4 / (3.0 * 0.01))  # of 4 step sizes
    t2 = 1.5 * 0.7 + 3.0 * math.sqrt(0.7**2 / 4.0 - 0.2 / 3.0)
    needed = 2.0 * x * max(2.0 * B / (0.35 * eps_g), 4.0 * B * M / (t2 * 0.2 * eps_H**2))
    slack = method._search_slack(facts, second_order.Noise(search=1.0), 0.01)
    assert facts.n * slack == pytest.approx(needed)


def test_the_mean_hessian_of_a_batch_errs_with_the_stated_probability():
    """At most 2d exp(-c m), as every bound by the eigenvalues of both signs."""
    facts = dataclasses.replace(problem_of().facts("replace_one"), hessian_bound=1e3)
    sampling, noise = dpa.WithoutReplacement(30), second_order.Noise()
    few, many = (
        sampling.fraction(facts.n)
        * SecondOrder(
            0.1, 0.3, sampling=sampling, shares=SHARES["short"], failure=failure
        )._smallest_n(facts, noise, 10)
        for failure in (0.1, 0.01)
    )
    c = math.log(10.0) / (many - few)
    assert 2 * facts.d * math.exp(-c * few) == pytest.approx(0.1 / 20)  # of 20 queries


def test_too_few_records_give_a_warning_with_n_min():
    problem = problem_of(n=100)
    method = SecondOrder(0.1, 0.3)
    with pytest.warns(UserWarning, match=r"n = 100 is below n_min = ([\d.e+]+)") as told:
        dpa.minimize(problem, method, dpa.Budget(1.0, 1e-6), rng=0)
    n_min = float(str(told[0].message).split("n_min = ")[1].split(":")[0])
    # With n_min records there is no warning, with slightly fewer there is.
    facts = problem.facts("replace_one")
    enough = dataclasses.replace(facts, n=math.ceil(n_min * 1.001))
    assert method.prepare(enough, dpa.Budget(1.0, 1e-6), "tightest").n_min == pytest.approx(
        n_min, rel=1e-3
    )
    with pytest.warns(UserWarning, match="n_min"):
        method.prepare(
            dataclasses.replace(facts, n=int(n_min * 0.99)), dpa.Budget(1.0, 1e-6), "tightest"
        )


def test_a_hessian_beyond_the_memory_is_refused_with_what_lanczos_takes(monkeypatch):
    facts = dataclasses.replace(problem_of().facts("replace_one"), d=10**7)
    with pytest.raises(
        ValueError, match=r"d = 10000000 .*hessian='lanczos' takes about \d+ vectors"
    ):
        SecondOrder(0.1, 0.3).prepare(facts, None, "tightest")
    assert SecondOrder(0.1, 0.3, hessian="lanczos").prepare(facts, None, "tightest").iterations > 1
    monkeypatch.delattr(second_order.os, "sysconf", raising=False)  # Windows: memory is unknown
    assert SecondOrder(0.1, 0.3).prepare(facts, None, "tightest").iterations > 1


@pytest.mark.slow
@pytest.mark.parametrize(("step", "gain"), [("short", 2.3), ("line_search", 2.3)])
def test_the_default_shares_have_the_smallest_n_min(step, gain):
    """n_min of one run with default shares, with those of the figures, and with nearby ones."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 8)), np.sign(rng.normal(size=300))
    problem = dpa.ERM(X, y, dpa.losses.Logistic(), row_bound=dpa.RowBound(2, 1.0, "clip"))
    facts = problem.facts("replace_one")
    eps_H = math.sqrt(0.06 * facts.hessian_lipschitz)

    def outlook(budget, shares=None):
        method = SecondOrder(0.06, eps_H, step=step, shares=shares)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            return method.prepare(facts, budget, "tightest")

    given = theory.Shares(0.1, 0.25, 0.1, *((0.35, 0.2) if step == "line_search" else ()))
    for budget in (dpa.Budget(1.0, 1e-6), dpa.Budget(4.0, 1e-6), dpa.Budget.zcdp(0.01)):
        best = outlook(budget)
        assert best.shares == outlook(None).shares  # for any budget, and without one
        assert outlook(budget, best.shares) == dataclasses.replace(best, price=ANY)
        assert outlook(budget, given).shares == given
        assert best.n_min * gain < outlook(budget, given).n_min
        for name in ("c", "c1", "c2", "c_g", "c_H"):
            share = getattr(best.shares, name)
            for factor in (0.95, 1.05) if share is not None else ():
                nearby = best.shares._replace(**{name: factor * share})
                try:
                    assert outlook(budget, nearby).n_min >= best.n_min * (1.0 - 1e-9)
                except ValueError as error:
                    assert "must lie in" in str(error)


def test_a_run_makes_the_steps_of_the_shares_that_were_chosen():
    problem, budget = problem_of(n=3000), dpa.Budget(1.0, 1e-6)
    for options in (
        {"step": "line_search"},
        {"sampling": dpa.WithoutReplacement(300)},
        {"hessian": "lanczos", "two_phase": True},
    ):
        method = SecondOrder(0.15, 0.4, **options)
        first = quiet(problem, method, budget, rng=1)
        named = dataclasses.replace(method, shares=first.plan.shares)
        second = quiet(problem, named, budget, rng=1)
        assert (first.w == second.w).all() and second.plan.shares == first.plan.shares
        other = dataclasses.replace(method, shares=SHARES[method.step])
        assert quiet(problem, other, budget, rng=1).plan.shares == SHARES[method.step]


def test_small_batches_need_fewer_records_with_the_shares_by_default():
    facts = problem_of(n=3000).facts("replace_one")
    method = SecondOrder(0.15, 0.4, sampling=dpa.WithoutReplacement(300))
    named = dataclasses.replace(method, shares=theory.Shares(0.1, 0.25, 0.1))
    with pytest.warns(UserWarning, match="below n_min"):
        ours, theirs = (
            m.prepare(facts, dpa.Budget(1.0, 1e-6), "tightest") for m in (method, named)
        )
    assert 1.5 * ours.n_min < theirs.n_min


def test_the_second_phase_may_spend_all_that_the_first_has_left():
    problem = problem_of(n=3000)
    facts = problem.facts("replace_one")
    method = SecondOrder(0.05, 0.3, two_phase=True, shares=SHARES["short"])
    plan = quiet_plan(method, facts, dpa.Budget.zcdp(0.5))
    counter = QueryCounter(method, PrivateOracle(problem, facts, None, [None]), plan)
    for place, spent in ((0, 0.75 * 0.5), (1, 0.5)):  # if nothing was charged before
        count, noise = counter.phase(place, np.zeros(3))
        asked = method.iteration(facts, dataclasses.replace(plan, noise=noise))
        assert count * sum(event.zcdp_cost() for event in asked) == pytest.approx(spent)


def test_a_noisy_value_is_below_the_loss_as_rarely_as_stated():
    """Of 400 values at failure .05 it is 3 to 44, but with probability 2e-6."""
    problem, w = problem_of(), np.array([1.0, -1.0, 0.5])
    facts, method = problem.facts("replace_one"), SecondOrder(0.3, 0.5)
    plan = quiet_plan(method, facts, dpa.Budget.zcdp(0.5))

    class First(QueryCounter):
        left = plan.price.limit  # every query is the first of a run

    oracle = PrivateOracle(problem, facts, None, mechanisms.spawn(0, 1))
    counter, exact = First(method, oracle, plan), problem.value(w)
    below = sum(counter.value(w) < exact for _ in range(400))
    low, high = stats.binom.ppf([1e-6, 1.0 - 1e-6], 400, method.failure)
    assert low <= below <= high


def test_an_exact_value_near_zero_is_the_objective():
    """A loss is clipped at f(0) plus its Lipschitz constant times the distance."""
    problem, w = problem_of(), np.array([1e-3, 0.0, 0.0])
    facts, method = problem.facts("replace_one"), SecondOrder(0.3, 0.5)
    oracle = PrivateOracle(problem, facts, None, [None])
    counter = QueryCounter(method, oracle, method.prepare(facts, None, "tightest"))
    assert counter.value(w) == pytest.approx(problem.value(w))
