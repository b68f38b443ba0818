"""LastIterate: exact laws, premises, and that nothing but the last iterate is released."""

import dataclasses
import math
import pickle
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import dpanalysis as dpa
from dpanalysis import audit, clipping, losses, methods, problems
from dpanalysis.methods import GradientDescent, LastIterate
from dpanalysis.privacy import Filter, exact_noise, gaussian_delta, mechanisms
from dpanalysis.privacy.oracle import PrivateOracle
from dpanalysis.privacy.queries import LastNoisyIterate, Records, largest_slope, last_iterate

REPLACE, ADD = "replace_one", "add_or_remove_one"
FULL = dpa.Full()
BUDGET = dpa.Budget(1.0, delta=1e-6)
RULES = [
    clipping.Flat(0.3),
    clipping.Automatic(0.1, 0.3),
    clipping.Automatic(2.0, 3.0),
    *(clipping.PerSampleAdaptive(r, 0.7) for r in (0.01, 0.1, 0.9, 1.0, 5.0)),
]


class Linear(losses.Loss):
    """y z: every step is then linear, and the last iterate is Gaussian."""

    classification, convex, lipschitz, smoothness = True, True, 1.0, 0.0

    def value(self, z, y):
        return y * z

    def derivative(self, z, y):
        return y + 0.0 * z


def mean(X, penalty, y=None):
    """Rows of length at most 1 whose mean, times -1/penalty, is the minimizer."""
    y = np.ones(len(X)) if y is None else y
    return dpa.ERM(X, y, Linear(), dpa.regularizers.L2(penalty), dpa.RowBound(2, 1.0, "check"))


def data(n=200, d=3):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True))
    return X, np.where(X[:, 0] + 0.3 * rng.normal(size=n) > 0.0, 1.0, -1.0)


def logistic(n=200, d=3, penalty=0.1, loss=None):
    bound = dpa.RowBound(2, 1.0, "check")
    return dpa.ERM(*data(n, d), loss or losses.Logistic(), dpa.regularizers.L2(penalty), bound)


def steps(step_size=0.5, iterations=12, **options):
    return GradientDescent(step_size, iterations, **{"mechanism": "gaussian", **options})


def query(step_size, iterations, std, batches=1, rule=None, d=1):
    return LastNoisyIterate(np.zeros(d), step_size, iterations, std, batches, rule)


def mu_of(query, facts):
    return query.event(facts, FULL).mu


# --- what is charged ---


def exact_mu(query, penalty, shifts):
    """Mu of the last iterate for linear losses, by its mean and variance."""
    moved = variance = 0.0
    slope, spread = 1.0 - query.step_size * penalty, query.step_size * query.std
    for shift in shifts:
        moved = slope * moved + query.step_size * shift
        variance = slope**2 * variance + spread**2
    return abs(moved) / math.sqrt(variance)


sizes = st.integers(1, 40)
settled = st.floats(0.0, 1.0)


@given(st.integers(1, 300), sizes, settled, st.floats(0.05, 20.0), st.sampled_from([REPLACE, ADD]))
def test_linear_losses_cost_exactly_what_is_charged(iterations, n, share, std, relation):
    """Where step_size * penalty is at most 1 the record's moves all point in one direction."""
    penalty, step = 0.5, 2.0 * share + 1e-3
    facts = mean(np.ones((n, 1)), penalty).facts(relation)
    asked = query(step, iterations, std)
    shift = (2.0 if relation == REPLACE else 1.0) / n
    exact = exact_mu(asked, penalty, [shift] * iterations)
    charged = mu_of(asked, facts)
    assert exact <= charged * (1.0 + 1e-12)
    if step * penalty <= 1.0:
        assert charged <= exact * (1.0 + 1e-4)


@given(st.integers(1, 30), st.integers(1, 8), st.integers(1, 5), settled, st.integers(0, 39))
def test_batches_in_turns_cost_no_more_than_is_charged(passes, batches, size, share, place):
    penalty, step, std, n = 0.5, 2.0 * share + 1e-3, 0.7, batches * size
    asked = query(step, passes * batches, std, batches)
    shifts = [2.0 / size * (k % batches == place % batches) for k in range(passes * batches)]
    exact = exact_mu(asked, penalty, shifts)
    charged = mu_of(asked, mean(np.ones((n, 1)), penalty).facts(REPLACE))
    one = 2.0 / size / std
    assert exact <= charged * (1.0 + 1e-12)
    assert one * (1.0 - 1e-12) <= charged <= one * math.sqrt(passes) * (1.0 + 1e-4)


@settings(max_examples=50)
@given(
    st.integers(1, 500),
    st.floats(0.05, 2.0),
    st.sampled_from([None, *RULES]),
    st.sampled_from([REPLACE, ADD]),
    st.floats(1e-3, 10.0),
)
def test_charges_lie_between_one_step_and_the_composition(iterations, share, rule, relation, std):
    facts = logistic().facts(relation)
    step = share / query(1.0, 1, 1.0, rule=rule, d=3).curvature(facts)
    charged = mu_of(query(step, iterations, std, rule=rule, d=3), facts)
    one = facts.gradient_sensitivity(FULL, 2, rule) / std
    assert one * (1.0 - 1e-12) <= charged <= one * math.sqrt(iterations) * (1.0 + 1e-4)


@pytest.mark.slow
def test_a_release_of_linear_losses_is_gaussian_with_this_mu():
    """By runs on two neighbours; nine tenths of the charge would be refuted."""
    penalty, asked = 0.5, query(0.8, 4, 0.5)

    def mechanism(rows, rng, size):
        problem = mean(np.asarray(rows), penalty)
        source = mechanisms.random_source(rng)
        records = Records(problem, None, float(len(rows)))
        return np.array([asked.answer(records, source)[0][0] for _ in range(size)])

    rows, neighbour = [[1.0], [1.0]], [[1.0], [-1.0]]
    mu = mu_of(asked, mean(np.array(rows), penalty).facts(REPLACE))
    verdict = audit.verify_gaussian(
        mechanism, rows, neighbour, audit.GaussianPrivacy(mu), samples=1500, rng=0, fit=1e-6
    )
    assert not verdict.refuted and verdict.mu > 0.9 * mu


def density(x, y, grid, asked, penalty, size):
    """Density of the last iterate on a grid, for one coordinate and logistic losses."""
    loss, spread = losses.Logistic(), asked.step_size * asked.std

    def step(w):
        pull = loss.derivative(np.outer(w, x), y) @ x / size + penalty * w
        return w - asked.step_size * pull

    law = stats.norm.pdf(grid, step(np.zeros(1)), spread)
    kernel = stats.norm.pdf(grid[:, None], step(grid), spread) * (grid[1] - grid[0])
    for _ in range(asked.iterations - 1):
        law = kernel @ law
    return law


@pytest.mark.slow
@pytest.mark.parametrize("relation", [REPLACE, ADD])
def test_logistic_losses_cost_no_more_than_is_charged(relation):
    closest = 0.0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        n, penalty = int(rng.integers(1, 4)), 10.0 ** rng.uniform(-2.0, 0.0)
        x, y = rng.uniform(-1.0, 1.0, n + 1), rng.choice([-1.0, 1.0], n + 1)
        x[n - 1], x[n] = 1.0, 1.0
        y[n - 1], y[n] = 1.0, -1.0
        other = [*range(n + 1)] if relation == ADD else [*range(n - 1), n]
        facts = logistic(n, 1, penalty).facts(relation)
        top = query(1.0, 1, 1.0).curvature(facts)
        asked = query(rng.uniform(0.5, 2.0) / top, int(rng.integers(2, 8)), rng.uniform(0.5, 2.0))
        mu = mu_of(asked, facts)
        reach = 12.0 * asked.step_size * asked.std * math.sqrt(asked.iterations) + 8.0
        grid = np.linspace(-reach, reach, 1201)
        laws = [density(x[rows], y[rows], grid, asked, penalty, n) for rows in ([*range(n)], other)]
        width = grid[1] - grid[0]
        assert [law.sum() * width for law in laws] == pytest.approx([1.0, 1.0], abs=1e-9)
        for p, q in (laws, laws[::-1]):
            for epsilon in (0.0, 0.3, 1.0, 2.0):
                delta = np.maximum(p - math.exp(epsilon) * q, 0.0).sum() * width
                bound = gaussian_delta(1.0 / mu, epsilon)
                assert delta <= bound * (1.0 + 1e-3) + 1e-12
                closest = max(closest, delta / bound)
    assert closest > 0.1


# --- clipped gradients are those of convex losses ---


@pytest.mark.parametrize("rule", RULES, ids=repr)
@pytest.mark.parametrize(
    "loss", [losses.Logistic(), losses.HuberizedHinge(0.5), losses.SquaredError()], ids=repr
)
def test_clipped_gradients_increase_no_faster_than_is_charged(loss, rule):
    """For one record, along its row, by the sums that a run uses."""
    steepest = 0.0
    w = np.linspace(-40.0, 40.0, 40001)[:, None]
    for x in (0.02, 0.3, 1.0):
        one = dpa.ERM(np.array([[x]]), np.array([1.0]), loss, row_bound=dpa.RowBound(2, 1.0))
        pulls = one.gradient_sum(w, None, rule)[:, 0]
        rises = np.diff(pulls) / np.diff(w[:, 0])
        most = largest_slope(rule) * loss.smoothness * x**2
        assert rises.min() >= -1e-10 * largest_slope(rule)
        assert rises.max() <= most * (1.0 + 1e-9) + 1e-10 * largest_slope(rule)
        steepest = max(steepest, rises.max() / most)
    if isinstance(loss, losses.SquaredError):  # its second derivative is the same everywhere
        assert steepest > 0.95


@given(st.floats(1e-3, 10.0), st.floats(1e-3, 10.0))
def test_the_largest_slope_of_adaptive_clipping(r, clip_norm):
    rule = clipping.PerSampleAdaptive(r, clip_norm)
    u = np.concatenate([[0.0], np.geomspace(1e-6, 1e2, 20001)])
    q = u * (u + r)
    slopes = clip_norm * r * (2.0 * u + r) / (q + r) ** 2
    assert slopes.max() == pytest.approx(largest_slope(rule), rel=1e-5)
    assert slopes.max() <= largest_slope(rule)
    middle, width = u[2:-2], 1e-6 * u[2:-2]
    rise = (middle + width) * rule.weight(middle + width) - (middle - width) * rule.weight(
        middle - width
    )
    assert np.allclose(rise / (2.0 * width), slopes[2:-2], rtol=1e-6, atol=1e-8 * clip_norm)


def test_value_clipping_is_the_gradient_of_no_convex_loss():
    one = dpa.ERM(np.ones((1, 1)), np.ones(1), losses.Logistic(), row_bound=dpa.RowBound(2, 1.0))
    rule = clipping.Value(0.1, *losses.Logistic().weak_growth(1.0))
    pulls = one.gradient_sum(np.linspace(-40.0, 0.0, 100)[:, None], None, rule)[:, 0]
    assert np.diff(pulls).min() < -1e-6
    with pytest.raises(ValueError, match="clipping must be Flat"):
        largest_slope(rule)

    class Other(clipping.Flat):
        pass

    with pytest.raises(ValueError, match="clipping must be Flat"):
        largest_slope(Other(1.0))


CONTRACTING = [
    *((logistic(loss=losses.HuberizedHinge(0.5)), rule) for rule in [None, *RULES]),
    (problems.Softmax(data()[0], np.arange(200) % 3, 3, None, dpa.RowBound(2, 1.0)), None),
]


@pytest.mark.parametrize(("problem", "rule"), CONTRACTING, ids=lambda each: repr(each)[:30])
def test_steps_contract(problem, rule):
    """A step contracts the distance of two points, near or far, by the stated factor."""
    rng, facts = np.random.default_rng(1), problem.facts(REPLACE)
    top = query(1.0, 1, 0.0, rule=rule, d=problem.d).curvature(facts)
    for share in (0.3, 1.0, 2.0):
        asked = query(share / top, 1, 0.0, rule=rule, d=problem.d)
        c = asked.contraction(facts)
        for _ in range(60):
            u = 10.0 ** rng.uniform(-2, 1) * rng.normal(size=problem.d)
            v = u + 10.0 ** rng.uniform(-4, 1) * rng.normal(size=problem.d)
            records = Records(problem, None, float(problem.n))
            ends = []
            for w in (u, v):
                moved = LastNoisyIterate(w, asked.step_size, 1, 0.0, 1, rule)
                ends.append(moved.answer(records, None)[0])
            assert np.linalg.norm(ends[0] - ends[1]) <= c * np.linalg.norm(u - v) * (1 + 1e-9)


@pytest.mark.parametrize("share", [0.5, 1.0, 1.5, 2.0])
@pytest.mark.parametrize(
    ("rows", "size", "batches"), [(8, 8, 1), (8, 4, 1), (5, 5, 4), (9, 5, 2), (5, None, 4)]
)
def test_the_contraction_of_the_fullest_batch_is_attained(rows, size, batches, share):
    """Every record has the largest curvature, and the bound assumes the most records."""
    loss, bound = losses.HuberizedHinge(1.0), dpa.RowBound(2, 1.0)
    problem = dpa.ERM(np.ones((rows, 1)), np.ones(rows), loss, None, bound, size=size)
    facts = problem.facts(REPLACE)
    step = share / query(1.0, batches, 0.0, batches).curvature(facts)
    c = query(step, batches, 0.0, batches).contraction(facts)
    ends = []
    for w in (0.99, 1.01):  # where the second derivative is 1
        at = np.array([[w]])
        pull = problem.gradient_sum(at, [np.arange(0, rows, batches)])[0] * batches / (size or rows)
        ends.append(float(at[0, 0] - step * pull[0]))
    ratio = abs(ends[1] - ends[0]) / 0.02
    assert ratio <= c * (1.0 + 1e-9)
    if share > 1.0 and (rows, size) == (8, 4):  # the largest number of rows
        assert ratio == pytest.approx(share - 1.0) or c == 1.0
        assert c == pytest.approx(1.0)


@given(
    L=st.floats(1e-3, 10.0),
    share=st.floats(0.0, 1.0),
    step=st.floats(0.01, 2.0),
    rule=st.sampled_from([None, *RULES]),
)
def test_the_contraction_is_rounded_up(L, share, step, rule):
    facts = logistic().facts(REPLACE)
    facts = dataclasses.replace(facts, mu=share * L, L=L)
    asked = query(step / L, 1, 0.0, rule=rule, d=3)
    H, slope = Fraction(min(facts.hessian_bound, facts.hessian_trace)), largest_slope(rule)
    most = Fraction(L) + max(Fraction(slope) - 1, 0) * H
    assert Fraction(asked.curvature(facts)) > most
    if asked.step_size * asked.curvature(facts) <= 2.0:
        eta = Fraction(asked.step_size)
        exact = max(abs(1 - eta * Fraction(facts.mu)), abs(1 - eta * most))
        assert Fraction(asked.contraction(facts)) >= min(exact, 1)


def test_a_start_is_at_most_a_thousand_longest_steps_away():
    facts = logistic().facts(REPLACE)
    far = 1000.0 * query(0.5, 3, 1.0, d=3)._longest_step(facts)
    for share in (0.99, 1.01):
        start = np.array([share * far, 0.0, 0.0])
        asked = dataclasses.replace(query(0.5, 3, 1.0, d=3), start=start)
        if share < 1.0:
            assert asked.event(facts, FULL).mu > 0.0
        else:
            with pytest.raises(ValueError, match="start must be at most 1000 times as long"):
                asked.event(facts, FULL)


def test_longer_steps_contract_less():
    """At step 2/M the largest curvature gives no contraction; at 1/M every curvature does."""
    facts = logistic(penalty=0.25).facts(REPLACE)
    top = query(1.0, 1, 0.0, d=3).curvature(facts)
    one, two = (query(share / top, 1, 0.0, d=3).contraction(facts) for share in (1.0, 2.0))
    assert one == pytest.approx(1.0 - 0.25 / top) and two == pytest.approx(1.0)


# --- runs ---


def test_without_noise_it_is_gradient_descent():
    problem, start = logistic(), np.array([0.3, -0.2, 0.1])
    for rule in (None, clipping.Flat(0.2)):
        method = steps(iterations=50, clipping=rule)
        each = dpa.minimize(problem, method, w0=start)
        last = dpa.minimize(problem, LastIterate(method), w0=start)
        np.testing.assert_allclose(last.w, each.w, rtol=1e-13)
        assert len(each.history["iteration"]) == 51 and len(last.history["iteration"]) == 2
        assert not last.private


def test_batches_take_turns():
    problem, method = logistic(n=20), LastIterate(steps(iterations=8), batches=4)
    w = np.zeros(3)
    for k in range(8):
        rows = np.arange(k % 4, 20, 4)
        w = w - 0.5 * (problem.gradient_sum(w[None, :], [rows])[0] / 5 + 0.1 * w)
    np.testing.assert_allclose(dpa.minimize(problem, method).w[0], w, rtol=1e-12)


@pytest.mark.parametrize("rng", [0, "os"])
def test_noise_has_the_variance_of_all_steps(rng):
    """3200 coordinates: the sum of squares is within six deviations of its mean."""
    asked = query(0.5, 5, 2.0, d=3200)
    records = Records(mean(np.zeros((3, 3200)), 0.4), None, 3.0)
    found = asked.answer(records, mechanisms.random_source(rng))[0]
    variance = sum(0.8 ** (2 * j) for j in range(5))
    share = float((found**2).mean() / variance)
    assert abs(share - 1.0) < 6.0 * math.sqrt(2.0 / found.size)


@pytest.mark.slow
@pytest.mark.parametrize("relation", [REPLACE, ADD])
@pytest.mark.parametrize("rule", [None, clipping.PerSampleAdaptive(0.1, 0.5)])
def test_a_budget_is_used_up(relation, rule):
    budget = dpa.Budget(1.0, delta=1e-6, relation=relation)
    method = LastIterate(steps(iterations=300, clipping=rule))
    result = dpa.minimize(logistic(), method, budget, replicates=3, rng=0)
    assert result.private and result.epsilon() == pytest.approx(1.0, rel=1e-4)
    assert result.epsilon() <= 1.0
    assert [len(ledger) for ledger in result.ledgers] == [1, 1, 1]
    assert len(np.unique(result.w, axis=0)) == 3
    std = result.plan.std
    fixed = LastIterate(steps(iterations=300, clipping=rule, noise=np.full(300, std)))
    again = dpa.minimize(logistic(), fixed, budget, replicates=3, rng=0)
    np.testing.assert_array_equal(again.w, result.w)
    zcdp = dpa.minimize(logistic(), method, dpa.Budget(rho=0.1, relation=relation), rng=0)
    assert zcdp.ledger.events[0].zcdp_cost() == pytest.approx(0.1, rel=1e-5)
    guard = Filter(budget)
    louder = LastIterate(steps(iterations=300, clipping=rule, noise=np.full(300, 2.0 * std)))
    shared = dpa.minimize(logistic(), louder, guard, rng=0)
    assert shared.iterations == 1 and guard.spent == guard.cost(shared.ledger.events[0])


def test_batches_keep_the_budget():
    method = LastIterate(steps(iterations=300), batches=10)
    result = dpa.minimize(logistic(), method, BUDGET, rng=0)
    assert result.epsilon() == pytest.approx(1.0, rel=1e-4)


# --- premises ---

REFUSED = {
    "momentum": lambda: LastIterate(methods.HeavyBall(0.5, 0.3, 8, mechanism="gaussian")),
    "mechanism": lambda: LastIterate(GradientDescent(0.5, 8)),
    "sampling": lambda: LastIterate(steps(sampling=dpa.Poisson(0.1))),
    "choose_iterations": lambda: LastIterate(steps(choose_iterations=1.0)),
    "noise": lambda: LastIterate(steps(iterations=3, noise=[1.0, 2.0, 1.0])),
    "'optimal'": lambda: LastIterate(steps(noise="optimal")),
    "multiple": lambda: LastIterate(steps(iterations=10), batches=4),
    "batches": lambda: LastIterate(steps(), batches=0),
    "SGD": lambda: LastIterate(methods.SGD(0.5, 8, FULL, None)),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_the_constructor_refuses(reason):
    with pytest.raises(ValueError, match=reason):
        REFUSED[reason]()


class Sub(GradientDescent):
    """A subclass may override anything."""


def hinge():
    return dpa.ERM(*data(), losses.Hinge(), None, dpa.RowBound(2, 1.0))


class Untold(Linear):
    """Convex, but not declared so."""

    convex = False


def single():
    X = data()[0].astype(np.float32)
    return problems.Softmax(X, np.arange(200) % 2, 2, row_bound=dpa.RowBound(2, 1.0))


def no_bound():
    return dpa.ERM(*data(), losses.Logistic())


def softmax():
    return problems.Softmax(data()[0], np.arange(200) % 2, 2, row_bound=dpa.RowBound(2, 1.0))


def mlp():
    return problems.MLP(data()[0], np.arange(200) % 2, (4,), 2, row_bound=dpa.RowBound(2, 1.0))


def bent():
    bound = dpa.RowBound(2, 1.0)
    penalty = dpa.regularizers.GemanMcClure(0.1)
    return dpa.ERM(*data(), losses.Logistic(), penalty, bound)


def stated():
    return dpa.Quadratic([0.5, 1.0], sensitivity=0.1)


UNMET = [
    ("convex: steps contract", lambda: logistic(loss=Untold()), steps(), {}),
    ("convex: steps contract", mlp, steps(clipping=clipping.Flat(1.0)), {}),
    ("penalty must be convex", bent, steps(), {}),
    ("smooth by public bounds", hinge, steps(), {}),
    ("smooth by public bounds", no_bound, steps(clipping=clipping.Flat(1.0)), {}),
    ("consist of records", stated, steps(), {}),
    ("double precision", single, steps(), {}),
    ("one linear prediction", softmax, steps(clipping=clipping.Flat(1.0)), {}),
    ("no public bound", lambda: logistic(loss=losses.SquaredError()), steps(), {}),
    ("step_size must be at most", logistic, steps(step_size=5.72), {}),
    ("step_size must be at most", logistic, steps(5.6, clipping=clipping.Automatic(0.1)), {}),
    ("clipping must be Flat", logistic, steps(clipping=clipping.Value(1.0)), {}),
    ("start must be", logistic, steps(), {"w0": np.full(3, 1e4)}),
]


@pytest.mark.parametrize(("reason", "make", "method", "options"), UNMET)
def test_a_premise_that_fails_is_named_before_any_charge(reason, make, method, options):
    guard = Filter(dpa.Budget(1.0, delta=1e-6))
    with pytest.raises(ValueError, match=reason):
        dpa.minimize(make(), LastIterate(method), guard, rng=0, **options)
    assert guard.spent == 0.0
    with pytest.raises(ValueError, match=reason):
        dpa.minimize(make(), LastIterate(method), rng=0, **options)


def test_the_error_of_nearly_exact_noise_is_at_most_what_is_charged():
    assert last_iterate._NEARLY >= exact_noise._NEAR + 2.0 * exact_noise._ROUNDING


def test_other_refusals():
    with pytest.raises(ValueError, match="method must be GradientDescent"):
        LastIterate(Sub(0.5, 8, mechanism="gaussian"))
    with pytest.raises(ValueError, match="delta > 0 or be zCDP"):
        dpa.minimize(logistic(), LastIterate(steps()), dpa.Budget(1.0))
    added = dpa.Budget(1.0, delta=1e-6, relation=ADD)
    for batches in (2, 4):
        with pytest.raises(ValueError, match="batches must be 1 under"):
            dpa.minimize(logistic(), LastIterate(steps(), batches=batches), added)
    with pytest.raises(ValueError, match="batches must be at most n"):
        dpa.minimize(logistic(n=3), LastIterate(steps(), batches=4), BUDGET)
    just = 2.0 / query(1.0, 1, 1.0, d=3).curvature(logistic().facts(REPLACE))
    dpa.minimize(logistic(), LastIterate(steps(just)), BUDGET, rng=0)


def test_a_penalty_with_another_minimum_is_refused():
    class Away(dpa.regularizers.L2):
        mu = L = 0.1
        hessian_lipschitz = 0.0

        def value(self, w):
            return 0.05 * np.sum((w - 1.0) ** 2, axis=-1)

        def gradient(self, w):
            return 0.1 * (w - 1.0)

    problem = dpa.ERM(*data(), losses.Logistic(), Away(0.1), dpa.RowBound(2, 1.0))
    guard = Filter(BUDGET)
    with pytest.raises(ValueError, match="minimum at 0"):
        dpa.minimize(problem, LastIterate(steps(noise=np.full(12, 9.0))), guard, rng=0)
    assert guard.remaining == Filter(BUDGET).remaining  # before anything is spent


def test_a_problem_that_does_not_clip_is_refused():
    """A query made by hand is not charged by a rule that the problem does not use."""

    class Unclipped(dpa.ERM):
        def gradient_sum(self, w, rows=None, clipping=None):
            return super().gradient_sum(w, rows)

        def facts(self, relation):
            return super().facts(relation)

        def check_clipping(self, clipping):
            dpa.Problem.check_clipping(self, clipping)

    base = logistic()
    problem = Unclipped(*data(), base.loss, base.regularizer, dpa.RowBound(2, 1.0))
    oracle = PrivateOracle(problem, problem.facts(REPLACE), None, [0])
    with pytest.raises(ValueError, match="takes no clipping rule"):
        oracle.ask(query(0.5, 3, 1.0, rule=clipping.Flat(0.1), d=3), FULL)


# --- nothing else is released ---


class Watched(dpa.ERM):
    """Records the points of its evaluations, and may raise an exception there."""

    def __init__(self, end=None):
        base = logistic()
        super().__init__(*data(), base.loss, base.regularizer, dpa.RowBound(2, 1.0))
        self.seen, self.end = [], end

    def facts(self, relation):
        return super().facts(relation)

    def gradient_sum(self, w, rows=None, clipping=None):
        self.seen.append(w.copy())
        if self.end is not None and len(self.seen) == 4:
            raise self.end
        return super().gradient_sum(w, rows, clipping)


def test_only_the_last_iterate_leaves():
    problem, calls = Watched(), []
    start = np.array([0.1, 0.2, 0.3])
    result = dpa.minimize(
        *(problem, LastIterate(steps(iterations=9)), BUDGET),
        w0=start,
        rng=0,
        record=("iterate", "objective"),
        callback=lambda iteration, w: calls.append((iteration, w.copy())),
    )
    between = problem.seen[1:9]
    assert len(between) == 8 and all(abs(w - result.w).max() > 1e-6 for w in between)
    assert [iteration for iteration, _ in calls] == [1]
    np.testing.assert_array_equal(calls[0][1], result.w)
    np.testing.assert_array_equal(result.history["iteration"], [0, 1])
    np.testing.assert_array_equal(result.history["iterate"], [start[None], result.w])
    assert result.released == ("last iterate",) and result.iterations == 1
    stored = pickle.dumps(result)
    assert result.w.tobytes() in stored
    assert not any(w.tobytes() in stored for w in between)


def test_an_interrupted_run_is_charged_and_releases_nothing():
    guard = Filter(BUDGET)
    one = mu_of(query(0.5, 9, 1.0, d=3), logistic().facts(REPLACE))
    std = one / math.sqrt(2.0 * 0.6 * guard.limit)  # six tenths of the filter
    method = LastIterate(steps(iterations=9, noise=np.full(9, std)))
    whole = dpa.minimize(logistic(), method, rng=1).ledger.events
    problem = Watched(KeyboardInterrupt())
    with pytest.warns(RuntimeWarning, match="interrupted"):
        result = dpa.minimize(problem, method, guard, rng=0)
    assert result.status == "interrupted"
    np.testing.assert_array_equal(result.w, np.zeros((1, 3)))
    assert len(problem.seen) == 4
    assert result.ledger.events == whole and guard.spent == guard.cost(whole[0])
    # What is left does not pay for another run.
    with pytest.raises(dpa.PrivacyBudgetExceeded) as error:
        dpa.minimize(logistic(), method, guard, rng=2)
    assert error.value.partial.iterations == 0 and not error.value.partial.ledger.events


def test_a_run_that_fails_in_a_step_is_charged():
    guard = Filter(BUDGET)
    with pytest.raises(ZeroDivisionError):
        method = LastIterate(steps(noise=np.full(12, 0.2)))
        dpa.minimize(Watched(ZeroDivisionError()), method, guard, rng=0)
    assert guard.spent > 0.0


# --- rounding ---


def test_rounding_is_charged():
    """One step, whose sums are off by the bound on a gradient on each data set."""
    facts = dataclasses.replace(mean(np.ones((4, 1)), 0.5).facts(REPLACE), rounding=1.0)
    lemma = (2.0 + 2.0) / 4.0  # the sensitivity has the sums' rounding already
    assert mu_of(query(0.5, 1, 1.0), facts) == pytest.approx(lemma + 2.0 / 4.0, rel=1e-6)


def test_iterates_that_may_overflow_are_refused():
    facts = mean(np.ones((4, 1)), 0.5).facts(REPLACE)
    with pytest.raises(ValueError, match=r"iterates must be at most 1e\+100 by public bounds"):
        query(0.5, 3, 1e102).event(facts, dpa.Full())


def test_rounding_of_a_step_grows_with_the_dimension():
    """Two roundings an entry of a product; without noise and penalty nothing else depends on d."""
    facts = dataclasses.replace(mean(np.ones((4, 1)), 0.5).facts(REPLACE), rounding=0.0)
    asked = query(0.5, 3, 0.0)
    one, many = (asked._rounding(dataclasses.replace(facts, d=d), 1.0, 0.0) for d in (1, 5000))
    assert many / one == pytest.approx((2 * 5016 + 160) / (2 * 17 + 160))


@pytest.mark.parametrize("rule", [None, clipping.Automatic(0.1, 0.3)])
def test_computed_steps_stay_as_near_to_exact_ones_as_is_charged(rule):
    n, d, T, penalty = 12, 3, 25, 0.01
    problem = logistic(n, d, penalty)
    facts = problem.facts(REPLACE)
    step = 1.9 / query(1.0, 1, 0.0, rule=rule, d=d).curvature(facts)
    asked = query(step, T, 0.0, rule=rule, d=d)
    found = asked.answer(Records(problem, None, float(n)), None)[0]
    with mpmath.workdps(40):
        X = [[mpmath.mpf(float(each)) for each in row] for row in data(n, d)[0]]
        w = [mpmath.mpf(0)] * d
        for _ in range(T):
            total = [mpmath.mpf(0)] * d
            for row, y in zip(X, data(n, d)[1]):
                z = mpmath.fdot(row, w)
                slope = -y / (1 + mpmath.exp(y * z))
                norm = abs(slope) * mpmath.sqrt(mpmath.fdot(row, row))
                weight = 1 if rule is None else mpmath.mpf(0.3) / (norm + mpmath.mpf(0.1))
                total = [t + weight * slope * x for t, x in zip(total, row)]
            w = [v - step * (t / n + mpmath.mpf(penalty) * v) for v, t in zip(w, total)]
        distance = float(mpmath.sqrt(sum((v - float(f)) ** 2 for v, f in zip(w, found))))
    c = asked.contraction(facts)
    charged = asked._rounding(facts, c, 0.0)
    assert 0.0 < distance <= charged
    # The rounding of a sum of so few records is not the largest term.
    assert distance <= asked._rounding(dataclasses.replace(facts, rounding=0.0), c, 0.0)
    assert charged < 1e-6 * step / n
