"""Output and objective perturbation: exact laws, brute force over neighbours, mutants."""

import dataclasses
import itertools
import math

import mpmath as mp
import numpy as np
import pytest
from scipy import sparse, stats

import dpanalysis as dpa
from dpanalysis import audit
from dpanalysis.privacy import gaussian_delta, mechanisms
from dpanalysis.privacy.budget import Plan
from dpanalysis.privacy.events import Gaussian, GaussianBound, Pure, Repeated
from dpanalysis.privacy.oracle import PrivateOracle
from dpanalysis.privacy.queries import NoisyDescent, PerturbedMinimum, Records, largest_step
from dpanalysis.privacy.queries.solutions import curvature_of, rounding_of_gradient
from dpanalysis.problems import base

M = dpa.methods
REPLACE, ADD = "replace_one", "add_or_remove_one"
LOGISTIC, HUBER = dpa.losses.Logistic(), dpa.losses.HuberizedHinge(0.5)
FULL = dpa.Full()


def erm(X, y, loss=LOGISTIC, penalty=0.1, radius=1.0):
    X = np.reshape(np.asarray(X, dtype=float), (len(y), -1))
    bound = dpa.RowBound(2, radius, "check")
    return dpa.ERM(X, np.asarray(y, dtype=float), loss, dpa.regularizers.L2(penalty), bound)


def neighbours(rng, relation, d=1):
    """A data set and one with its last record replaced, or a record added; and the public n."""
    n = int(rng.integers(1, 5))
    X = rng.normal(size=(n + 1, d))
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True))
    X[n] /= np.linalg.norm(X[n])
    y = rng.choice([-1.0, 1.0], n + 1)
    if relation == ADD:
        return (X[:n], y[:n]), (X, y), n
    keep = [*range(n - 1), n]
    return (X[:n], y[:n]), (X[keep], y[keep]), n


def tilted(law, scale, ridge=0.0):
    return PerturbedMinimum(law, scale, ridge, 1e-11, 1e-3)


def cost(query, problem, relation):
    """The event of the minimizer itself, without that of the solver's error."""
    return query.event(problem.facts(relation), FULL).events[0]


def law(data, n, loss, convexity, query):
    """Density of the minimizer in one dimension, by change of variables from the noise."""
    X, y = data
    x = X[:, 0]
    unit = math.log(query.scale * (2 if query.law == "spherical" else math.sqrt(2 * math.pi)))

    def tilt(w):
        return -(loss.derivative(np.outer(w, x), y) @ x) - n * convexity * w

    def logpdf(w):
        curvature = loss.second_derivative(np.outer(w, x), y) @ x**2 + n * convexity
        b = abs(tilt(w)) / query.scale  # SciPy's logarithm of Laplace densities underflows
        return np.log(curvature) - (b if query.law == "spherical" else 0.5 * b**2) - unit

    corners = [y_ * e / x_ for x_, y_ in zip(x, y) for e in (0.5, 1.5)]
    zero = root(tilt)
    return audit.Density(logpdf, (zero, *corners) if loss is HUBER else (zero,))


def root(decreasing):
    from scipy.optimize import brentq

    return brentq(lambda w: float(decreasing(np.array([w]))[0]), -1e6, 1e6, xtol=1e-14)


# --- objective perturbation: privacy of the minimizer ---

CASES = list(itertools.product((LOGISTIC, HUBER), (REPLACE, ADD)))


@pytest.mark.slow
@pytest.mark.parametrize(("loss", "relation"), CASES)
def test_gaussian_cost_covers_the_exact_divergences(loss, relation):
    """Renyi and hockey-stick divergences of minimizers, both ways, over random neighbours."""
    closest = 0.0
    for seed in range(5):
        rng = np.random.default_rng(seed)
        one, other, n = neighbours(rng, relation)
        penalty, scale = 10 ** rng.uniform(-2, 1), 10 ** rng.uniform(-0.5, 1.0)
        query = tilted("gaussian", scale, ridge=0.3 * penalty)
        event = cost(query, erm(*one, loss, penalty), relation)
        laws = [law(data, n, loss, 1.3 * penalty, query) for data in (one, other)]
        for p, q in (laws, laws[::-1]):
            for order in (1.2, 5.0):
                divergence = audit.renyi_divergence(p, q, order)
                assert divergence <= float(event.rdp_cost(order)) * (1 + 1e-8)
            for epsilon in (0.0, 1.0):
                delta = audit.hockey_stick(p, q, epsilon)
                bound = profile(event, epsilon)
                assert delta <= bound * (1 + 1e-6) + 1e-12
                closest = max(closest, delta / bound)
    assert closest > 0.05


def profile(event, epsilon):
    return float(np.dot(event.weights, gaussian_delta(1.0 / event.mus, epsilon - event.offset)))


@pytest.mark.slow
@pytest.mark.parametrize(("loss", "relation"), CASES)
def test_pure_cost_covers_the_largest_loss(loss, relation):
    for seed in range(5):
        rng = np.random.default_rng(seed)
        one, other, n = neighbours(rng, relation)
        penalty, scale = 10 ** rng.uniform(-2, 1), 10 ** rng.uniform(-0.5, 1.5)
        query = tilted("spherical", scale)
        laws = [law(data, n, loss, penalty, query) for data in (one, other)]
        largest = max(audit.renyi_divergence(p, q, math.inf) for p, q in (laws, laws[::-1]))
        assert largest <= cost(query, erm(*one, loss, penalty), relation).epsilon * (1 + 1e-8)


def test_the_pure_cost_is_attained_and_no_mutant_covers_it():
    """Where a huberized hinge bends, its gradient and its curvature are largest together.

    The common record has no curvature there, and a gradient of the opposite sign.
    """
    one, other = ([[-1.0]], [1.0]), ([[-1.0], [1.0]], [1.0, 1.0])
    query, penalty, n = tilted("spherical", 5.0), 0.25, 1
    laws = [law(tuple(map(np.array, data)), n, HUBER, penalty, query) for data in (one, other)]
    largest = max(audit.renyi_divergence(p, q, math.inf) for p, q in (laws, laws[::-1]))
    event = cost(query, erm(*one, HUBER, penalty), ADD)
    assert event.epsilon == pytest.approx(0.2 + math.log1p(1.0 / 0.25))
    assert largest == pytest.approx(event.epsilon, rel=1e-6)
    no_determinant = event.epsilon - math.log1p(1.0 / 0.25)
    assert largest > 5 * no_determinant
    # For a flipped label the gradients differ by 2 where both losses are linear.
    one, other = ([[1.0]], [1.0]), ([[1.0]], [-1.0])
    laws = [law(tuple(map(np.array, data)), n, HUBER, 50.0, query) for data in (one, other)]
    largest = audit.renyi_divergence(*laws, math.inf)
    problem = erm(*one, HUBER, 50.0)
    assert largest == pytest.approx(cost(query, problem, REPLACE).epsilon)
    assert largest > 1.5 * cost(query, problem, ADD).epsilon


def test_no_mutant_of_the_gaussian_cost_covers_the_exact_divergences():
    query = tilted("gaussian", 10.0)
    one, other = ([[-0.2]], [1.0]), ([[-0.2], [1.0]], [1.0, 1.0])
    laws = [law(tuple(map(np.array, data)), 1, HUBER, 0.25, query) for data in (one, other)]
    event = cost(query, erm(*one, HUBER, 0.25), ADD)
    delta = max(audit.hockey_stick(p, q, 0.5) for p, q in (laws, laws[::-1]))
    no_determinant = dataclasses.replace(event, offset=0.0)
    assert profile(no_determinant, 0.5) < 1e-3 * delta < delta < profile(event, 0.5)
    # Mutants: the sensitivity of an added record, and half of that of a replaced one.
    one, other = ([[1.0]], [1.0]), ([[1.0]], [-1.0])
    query = tilted("gaussian", 0.5)
    laws = [law(tuple(map(np.array, data)), 1, HUBER, 50.0, query) for data in (one, other)]
    delta = audit.hockey_stick(*laws, 8.0)
    problem = erm(*one, HUBER, 50.0)
    replaced, added = (cost(query, problem, relation) for relation in (REPLACE, ADD))
    assert profile(added, 8.0) < 0.1 * delta < delta < profile(replaced, 8.0)
    halved = dataclasses.replace(replaced, sensitivities=(replaced.sensitivities[0] / 2,))
    assert profile(halved, 8.0) < delta


@pytest.mark.slow
@pytest.mark.parametrize("relation", [REPLACE, ADD])
def test_in_the_plane_the_cost_covers_the_divergences(relation):
    """Rows that point in different directions: densities on a grid, normalized to 1e-6."""
    side = np.linspace(-7.0, 7.0, 321)
    w = np.stack(np.meshgrid(side, side, indexing="ij"), axis=-1).reshape(-1, 2)
    cell, penalty, n = (side[1] - side[0]) ** 2, 1.5, 2
    query = tilted("gaussian", 2.0)

    def density(X, y):
        z = w @ X.T
        b = -LOGISTIC.derivative(z, y) @ X - n * penalty * w
        second = LOGISTIC.second_derivative(z, y)
        h = np.einsum("ki,id,ie->kde", second, X, X) + n * penalty * np.eye(2)
        return stats.norm.pdf(b, 0, query.scale).prod(axis=1) * np.linalg.det(h) * cell

    for seed in range(6):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(3, 2))
        X /= np.linalg.norm(X, axis=1, keepdims=True)
        y = rng.choice([-1.0, 1.0], 3)
        rows = [0, 2] if relation == REPLACE else [0, 1, 2]
        p, q = density(X[:2], y[:2]), density(X[rows], y[rows])
        assert abs(p.sum() - 1.0) < 1e-6 and abs(q.sum() - 1.0) < 1e-6
        event = cost(query, erm(X[:2], y[:2], penalty=penalty), relation)
        for one, other in ((p, q), (q, p)):
            assert np.log((one**3 / other**2).sum()) / 2 < float(event.rdp_cost(3.0))
            for epsilon in (0.05, 0.5, 1.0):
                assert np.maximum(one - np.exp(epsilon) * other, 0).sum() < profile(event, epsilon)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "loss"), [("gaussian", HUBER), ("spherical", LOGISTIC)])
def test_the_minimiser_has_its_exact_law(kind, loss):
    """Kolmogorov-Smirnov of 600 answers; noise of scale**2 is rejected."""
    data = np.array([[0.5], [-1.0], [0.8]]), np.array([1.0, 1.0, -1.0])
    problem, scale = erm(*data, loss, 0.2), 2.0
    query, random = tilted(kind, scale), mechanisms.random_source(5)
    query = dataclasses.replace(query, output_scale=1e-9)
    records = Records(problem, None, 3.0)
    w = np.array([query.answer(records, random)[0][0] for _ in range(600)])
    b = -3.0 * problem.gradient(w[:, None])[:, 0]
    noise = stats.norm if kind == "gaussian" else stats.laplace
    assert stats.kstest(b, noise(0, scale).cdf).pvalue > 1e-2
    assert stats.kstest(b, noise(0, scale**2).cdf).pvalue < 1e-6


@pytest.mark.slow
def test_in_many_dimensions_the_tilt_has_a_gamma_norm():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 6)) / 10
    problem = erm(X, rng.choice([-1.0, 1.0], 30), penalty=0.1, radius=2.0)
    query, random = tilted("spherical", 3.0), mechanisms.random_source(2)
    query = dataclasses.replace(query, output_scale=1e-9)
    records = Records(problem, None, 30.0)
    w = np.array([query.answer(records, random)[0] for _ in range(250)])
    b = -30.0 * problem.gradient(w)
    assert stats.kstest(np.linalg.norm(b, axis=1), stats.gamma(6, scale=3.0).cdf).pvalue > 1e-2
    angle = stats.beta(0.5, 2.5)  # of a squared coordinate of a uniform direction
    assert stats.kstest(b[:, 0] ** 2 / (b**2).sum(axis=1), angle.cdf).pvalue > 1e-2


# --- the solver ---


@pytest.mark.parametrize("loss", [LOGISTIC, dpa.losses.HuberizedHinge(0.05)])
def test_the_solver_reaches_its_tolerance_and_the_error_it_is_charged_for(loss):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 5))
    problem = erm(X / 10, np.sign(X[:, 0]), loss, 1e-3, radius=2.0)
    for tilt in (np.zeros(5), np.full(5, 0.05), np.full(5, -30.0)):
        w, count = problem.minimize_perturbed(tilt, 1e-3, 1e-10, 200.0)
        gradient = problem.gradient(w) + tilt + 1e-3 * w
        assert np.linalg.norm(gradient) <= 1.0001e-10 and count < 200
        rough = problem.minimize_perturbed(tilt, 1e-3, 1e-4, 200.0)[0]
        assert np.linalg.norm(rough - w) <= (1e-4 + 1e-10) / 2e-3
    with pytest.raises(FloatingPointError, match="tolerance"):
        problem.minimize_perturbed(rng.normal(size=5) / 100, 1e-3, 1e-30, 200.0)


def test_the_solver_reuses_a_hessian_while_it_converges_fast(monkeypatch):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(2000, 8)) / 12
    y = np.where(X[:, 0] + 0.08 * rng.normal(size=2000) > 0, 1.0, -1.0)
    problem = erm(X, y, penalty=1e-3)
    made, whole = [], type(problem).hessian
    monkeypatch.setattr(type(problem), "hessian", lambda *args: made.append(1) or whole(*args))
    w, count = problem.minimize_perturbed(np.full(8, 0.01), 1e-3, 1e-11, 2000.0)
    assert np.linalg.norm(problem.gradient(w) + 0.01 + 1e-3 * w) <= 1.001e-11
    kept = len(made), count
    monkeypatch.setattr(base, "_DENSE_HESSIAN", 0)  # conjugate gradients
    again, newton = problem.minimize_perturbed(np.full(8, 0.01), 1e-3, 1e-11, 2000.0)
    np.testing.assert_allclose(again, w, atol=1e-8)
    assert kept[0] < newton - 2 < kept[1] < 2 * newton and len(made) == kept[0]


@pytest.mark.parametrize("kind", ["dense", "CSR", "softmax", "sorted", "a few rows count"])
def test_the_first_steps_of_the_solver_take_hessians_of_some_records(kind, monkeypatch):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(4000, 6)) / 10
    y = np.where(X[:, 0] + 0.08 * rng.normal(size=4000) > 0, 1.0, -1.0)
    if kind == "sorted":
        order = np.argsort(X[:, 1])
        X, y = X[order], y[order]
    elif kind == "a few rows count":  # the sample misses them: its Hessian does not help
        X[:, 5] = 0.0
        X[:3], y[:3] = np.eye(6)[5], 1.0
    rows = sparse.csr_array(X) if kind == "CSR" else X
    penalty, bound = dpa.regularizers.L2(1e-4), dpa.RowBound(2, 2.0)
    if kind == "softmax":
        problem = dpa.problems.Softmax(X, (y > 0).astype(int), 2, penalty, bound)
    else:
        problem = dpa.ERM(rows, y, LOGISTIC, penalty, bound)
    sampled, whole = [], []
    for made, name in ((sampled, "sampled_hessian"), (whole, "hessian")):
        real = getattr(type(problem), name)

        def noted(*args, made=made, real=real):
            made.append(args[1:])
            return real(*args)

        monkeypatch.setattr(type(problem), name, noted)
    tilt = np.full(problem.d, 0.01)
    w, count = problem.minimize_perturbed(tilt, 1e-3, 1e-11, 4000.0)
    assert np.linalg.norm(problem.gradient(w) + tilt + 1e-3 * w) <= 1.001e-11
    assert len(sampled) >= 1 and all(len(rows) == 32 * problem.d for _, rows in sampled)
    all_of_them = np.arange(problem.n)
    np.testing.assert_allclose(
        problem.sampled_hessian(w, all_of_them), problem.hessian(w), rtol=1e-12, atol=1e-15
    )
    kept = len(whole) - 1
    whole.clear()
    monkeypatch.setattr(base, "_SAMPLED", 1 << 20)  # never
    again, _ = problem.minimize_perturbed(tilt, 1e-3, 1e-11, 4000.0)
    np.testing.assert_allclose(again, w, atol=1e-8)
    assert kept < len(whole) and count <= 10


def test_the_error_of_the_solver_is_charged_and_hidden():
    problem = erm([[1.0], [-0.5]], [1, 1])
    query = PerturbedMinimum("gaussian", 5.0, 0.4, 1e-6, 0.01)
    event = query.event(problem.facts(ADD), FULL)
    assert event.events[1] == Gaussian(0.01, 2 * 1e-6 / 0.5)
    pure = dataclasses.replace(query, law="spherical").event(problem.facts(ADD), FULL)
    assert pure.events[1].epsilon == pytest.approx(2 * 1e-6 / 0.5 / 0.01)
    # The noise is added: the same tilt and tolerance, with and without it.
    records = Records(problem, None, 2.0)
    noisy = query.answer(records, mechanisms.random_source(0))[0]
    quiet = dataclasses.replace(query, output_scale=0.0).answer(
        records, mechanisms.random_source(0)
    )[0]
    assert 1e-4 < abs(noisy - quiet)[0] < 0.1
    assert dataclasses.replace(query, output_scale=0.0).event(problem.facts(ADD), FULL) is None


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.01, 40.0, 1e4])
@pytest.mark.parametrize("loss", [LOGISTIC, HUBER])
def test_the_solver_converges_also_with_hardly_any_curvature(epsilon, loss):
    """Separable classes without a penalty; the random term dominates or nearly vanishes."""
    problem = separated(n=300, loss=loss, regularizer=None)
    for seed in range(3):
        result = dpa.minimize(problem, METHODS["objective"], dpa.Budget(epsilon, 1e-6), rng=seed)
        assert result.status == "finished" and np.isfinite(result.w).all()


@pytest.mark.slow
@pytest.mark.parametrize("budget", [dpa.Budget(0.3, 1e-6, ADD), dpa.Budget(0.3, relation=REPLACE)])
def test_more_penalty_where_the_curvature_would_cost_too_much(budget):
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.5, 0.5, size=(100, 3))
    for penalty, share in itertools.product((0.001, 1.0), (0.25, 0.5)):
        problem = erm(X, np.sign(X[:, 0]), penalty=penalty)
        result = dpa.minimize(problem, M.ObjectivePerturbation(share), budget, rng=0)
        ridge = result.plan.ridge
        kappa = math.log1p(0.25 / (100 * (penalty + ridge)))
        assert kappa <= share * 0.3 * (1 + 1e-12)
        assert (ridge == 0.0) == (penalty == 1.0)
        if ridge:
            assert kappa == pytest.approx(share * 0.3)


# --- output perturbation: how far a record moves the final iterate ---


def distances(step, mu, S, n, batches, passes, average):
    """How far the final iterate moves, for each batch of the record: step by step."""
    found = []
    for j in range(batches):
        distance, last = 0.0, []
        for _ in range(passes):
            last = []
            for b in range(batches):
                distance = (1 - step * mu) * distance + (b == j) * step * S * batches / n
                last.append(distance)
        if average:
            distance = (1 - step * mu) * np.mean(last) + step * S / n
        found.append(distance)
    return np.array(found)


def descent(step, batches, passes, average, d=1, scale=0.0):
    return NoisyDescent(np.zeros(d), step, batches, passes, average, "gaussian", scale)


def moved(query, one, other, n, seed):
    """Distance of noiseless final iterates, the last record's batch, whether it is crowded."""
    ends = [
        query.answer(Records(problem, None, float(n)), np.random.default_rng(seed))[0]
        for problem in (one, other)
    ]
    drawn = (query.batches * np.random.default_rng(seed).random(other.n)).astype(int)
    crowded = other.n > n and np.sum(drawn == drawn[-1]) > 2 * n / query.batches
    batch = drawn[-1] if query.batches > 1 else 0
    return np.linalg.norm(ends[0] - ends[1]), batch, crowded


@pytest.mark.slow
@pytest.mark.parametrize("relation", [REPLACE, ADD])
@pytest.mark.parametrize("average", [False, True])
def test_no_neighbour_moves_the_end_further(relation, average):
    seen = set()
    for seed in range(150):
        rng = np.random.default_rng(seed)
        loss, d = (LOGISTIC, HUBER)[seed % 2], 1 + seed % 3
        (X, y), (X2, y2), n = neighbours(rng, relation, d)
        penalty = float(rng.choice([0.0, 0.3, 2.0]))
        one, other = erm(X, y, loss, penalty), erm(X2, y2, loss, penalty)
        batches, passes = (1, int(rng.integers(1, 6))) if seed % 4 == 0 else rng.integers(1, 4, 2)
        facts = one.facts(relation)
        step = largest_step(facts, batches) * float(rng.choice([0.2, 1.0]))
        query = descent(step, int(batches), int(passes), average, d)
        S = (2.0 if relation == REPLACE else 1.0) + 2.0 * one.rounding
        bounds = distances(step, penalty, S, n, batches, passes, average)
        distance, batch, crowded = moved(query, one, other, n, seed)
        assert distance <= bounds[batch] * (2.0 if crowded else 1.0) * (1 + 1e-9)
        seen.add(bool(crowded))
        values, weights = query.sensitivities(facts)
        values = unrounded(values, batches)
        np.testing.assert_allclose(values[:batches], np.sort(bounds), rtol=1e-12)
        assert weights.sum() == pytest.approx(1.0)
        if relation == ADD and batches > 1:
            p = sum(
                stats.binom.pmf(k, n, 1 / batches) for k in range(n + 1) if k + 1 > 2 * n / batches
            )
            assert weights[batches:].sum() == pytest.approx(p, abs=1e-15)
            np.testing.assert_allclose(values[batches:], 2 * np.sort(bounds), rtol=1e-12)
        else:
            assert len(values) == batches
    assert seen == ({False} if relation == REPLACE else {False, True})


def unrounded(values, batches):
    """Distances without the charge for the rounding of two descents, 1e-4 of the longest."""
    values = values.copy()
    values[:batches] -= 2e-4 * values[batches - 1] / (1.0 + 2e-4)
    values[batches:] -= 2.0 * 2e-4 * values[batches - 1]
    return values


@pytest.mark.parametrize(("batches", "average"), [(1, False), (3, True), (3, False)])
def test_the_distance_is_attained_and_no_mutant_covers_it(batches, average):
    """Far from its corner the huberized hinge is linear: only the penalty contracts."""
    n, x, mu = 9, 1e-3, 0.5
    X, y = np.full((n, 1), x), np.ones(n)
    flipped = np.array([1.0] * (n - 1) + [-1.0])
    one, other = (erm(X, labels, HUBER, mu, radius=x) for labels in (y, flipped))
    step = 0.9
    query = descent(step, batches, 4, average)
    facts = [one.facts(relation) for relation in (REPLACE, ADD)]
    right = unrounded(query.sensitivities(facts[0])[0], batches)
    reached = {batch: d for d, batch, _ in (moved(query, one, other, n, s) for s in range(30))}
    assert len(reached) == batches
    np.testing.assert_allclose(np.sort(list(reached.values())), right, rtol=1e-9)
    assert max(reached.values()) > 1.9 * query.sensitivities(facts[1])[0][batches - 1]
    too_contractive = distances(step, 1.1 * mu, 2 * x, n, batches, 4, average)
    assert max(reached.values()) > too_contractive.max() * 1.01


@pytest.mark.parametrize("average", [False, True])
def test_the_descent_is_that_of_its_definition(average):
    """Batch by batch with gradients of single records, crowded and empty batches among them."""
    crowded = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X, y, m, mu = rng.uniform(-0.7, 0.7, (6, 2)), rng.choice([-1.0, 1.0], 6), 3, 0.2
        B, step = 6 / m, 0.7
        records = Records(erm(X, y, penalty=mu), None, 6.0)

        def gradient(w, rows, size, X=X, y=y, mu=mu):
            return sum((LOGISTIC.derivative(X[i] @ w, y[i]) * X[i] for i in rows), mu * size * w)

        drawn = np.floor(m * np.random.default_rng(seed).random(6))
        w, last = np.zeros(2), []
        for _ in range(4):
            last = []
            for b in range(m):
                rows = np.flatnonzero(drawn == b)
                crowded += len(rows) > 2 * B
                size = max(B, len(rows) / 2)
                w = w - step * gradient(w, rows, size) / size
                last.append(w)
        if average:
            w = np.mean(last, axis=0)
            w = w - step * gradient(w, range(6), 6) / 6
        query = descent(step, m, 4, average, d=2)
        end, evaluations = query.answer(records, np.random.default_rng(seed))
        np.testing.assert_allclose(end, w, rtol=1e-12)
        assert evaluations == 4 + average
    assert crowded


def test_batches_of_twice_their_size_are_not_charged_where_they_never_occur():
    """Two thirds of 5,000 records are in one of three with a probability below 1e-308."""
    problem = erm(np.ones((5000, 1)), np.ones(5000), penalty=0.5)
    query = descent(0.5 * largest_step(problem.facts(ADD), 3), 3, 1, False)
    values, weights = query.sensitivities(problem.facts(ADD))
    assert values.size == 3 and weights.tolist() == [1.0 / 3.0] * 3


def test_many_batches_are_charged_in_groups():
    problem = erm(np.ones((5000, 1)), np.ones(5000), penalty=0.5)
    facts = problem.facts(REPLACE)
    step = 0.5 * largest_step(facts, 2)
    values, weights = descent(step, 1000, 1, False).sensitivities(facts)
    S = 2.0 + 2.0 * problem.rounding
    bounds = np.sort(distances(step, 0.5, S, 5000, 1000, 1, False))
    groups = np.array_split(bounds, 128)  # the largest of each group represents it
    ends = np.array([group[-1] for group in groups])
    np.testing.assert_allclose(values, ends + 2e-4 * bounds[-1], rtol=1e-9)
    np.testing.assert_allclose(weights, [len(group) / 1000 for group in groups])
    event = descent(step, 1000, 1, False, scale=1.0).event(facts, FULL)
    assert isinstance(event, GaussianBound)
    # The random batch helps: the last batch alone would cost the most.
    worst = Gaussian(1.0, float(values[-1]))
    assert float(event.rdp_cost(2.0)) < 0.1 * float(worst.rdp_cost(2.0))


@pytest.mark.parametrize("kind", ["gaussian", "spherical"])
def test_the_end_has_the_noise_that_is_charged(kind):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 4)) / 5
    problem = erm(X, np.sign(X[:, 0]), penalty=0.1, radius=2.0)
    query = dataclasses.replace(descent(0.5, 1, 5, False, 4, scale=0.3), law=kind)
    records = Records(problem, None, 50.0)
    end = dataclasses.replace(query, scale=0.0).answer(records, None)[0]
    random = mechanisms.random_source(3)
    noise = np.array([query.answer(records, random)[0] - end for _ in range(800)])
    event = query.event(problem.facts(REPLACE), FULL)
    S = float(query.sensitivities(problem.facts(REPLACE))[0][0])
    if kind == "gaussian":
        assert event == Gaussian(0.3, S)
        assert stats.kstest(noise.ravel(), stats.norm(0, 0.3).cdf).pvalue > 1e-2
        assert stats.kstest(noise.ravel(), stats.norm(0, 0.09).cdf).pvalue < 1e-9
    else:
        assert event.epsilon == pytest.approx(S / 0.3)
        norms = np.linalg.norm(noise, axis=1)
        assert stats.kstest(norms, stats.gamma(4, scale=0.3).cdf).pvalue > 1e-2


# --- runs ---

METHODS = {
    "sgd": M.OutputPerturbation(passes=3, batches=5),
    "descent": M.OutputPerturbation("gradient_descent", passes=30),
    "objective": M.ObjectivePerturbation(),
}


def separated(n=2000, d=3, loss=LOGISTIC, penalty=0.01, **options):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, size=(n, d))
    bound = dpa.RowBound(2, math.sqrt(d))
    y = np.where(X @ np.arange(1.0, d + 1.0) > 0.0, 1.0, -1.0)
    regularizer = dpa.regularizers.L2(penalty)
    return dpa.ERM(X, y, loss, **{"regularizer": regularizer, "row_bound": bound, **options})


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("loss", [LOGISTIC, HUBER])
@pytest.mark.parametrize(
    "budget",
    [dpa.Budget(1.0, 1e-6, ADD), dpa.Budget(1.0, 1e-6), dpa.Budget(1.0), dpa.Budget.zcdp(0.02)],
)
def test_a_run_uses_its_budget_up_and_learns(name, loss, budget):
    problem = separated(loss=loss)
    if name == "objective" and budget.rho is not None:
        with pytest.raises(ValueError, match=r"budget must be of \(epsilon, delta\)"):
            dpa.minimize(problem, METHODS[name], budget)
        return
    result = dpa.minimize(problem, METHODS[name], budget, rng=0, replicates=2, record=("accuracy",))
    assert result.private and result.status == "finished" and result.iterations == 1
    if name != "objective":  # of which the pure noise may have blocks
        gaussian = budget.rho is not None or budget.delta > 0.0
        assert result.plan.law == ("gaussian" if gaussian else "spherical")
    spent = dpa.privacy.spent(result.ledger.events, budget)
    assert 0.999 * budget.limit < spent <= budget.limit * (1 + 1e-9)
    if budget.rho is None:
        assert result.epsilon() == spent
        assert result.epsilon(replicates=2) > 1.2 * spent
    assert (result.w[0] != result.w[1]).all()
    assert result.history["accuracy"][-1].min() > 0.85
    again = dpa.minimize(problem, METHODS[name], budget, rng=0, record=())
    np.testing.assert_array_equal(again.w[0], result.w[0])
    assert result.released == ("w",) and result.evaluations["gradient"] >= 2 * problem.n


def test_without_a_budget_there_is_no_noise():
    problem = separated()
    objective = dpa.minimize(problem, METHODS["objective"])
    assert not objective.private and objective.epsilon() == math.inf
    np.testing.assert_allclose(objective.w[0], problem.solve(), rtol=1e-6)
    for passes in (1, 7):
        method = M.OutputPerturbation("gradient_descent", passes=passes)
        descent = dpa.minimize(problem, method, rng=0)
        same = dpa.minimize(problem, M.GradientDescent(descent.plan.step_size, passes), rng=0)
        np.testing.assert_allclose(descent.w, same.w, rtol=1e-12)
    start = np.array([1.0, -1.0, 2.0])
    for method in (METHODS["sgd"], METHODS["descent"]):
        ends = [dpa.minimize(problem, method, w0=w0, rng=0).w for w0 in (None, start)]
        assert 1e-6 < np.abs(ends[0] - ends[1]).max() < 3.0


def test_a_shared_filter_is_charged_too():
    problem, guard = separated(), dpa.privacy.Filter(dpa.Budget(2.0, 1e-5, ADD), order=20.0)
    for seed, method in enumerate(METHODS.values()):
        query = method.prepare(problem.facts(ADD), dpa.Budget(0.4, 1e-5, ADD), "tightest")
        (event,) = method.events(problem.facts(ADD), query)
        before = guard.spent
        fixed = dataclasses.replace(method)
        object.__setattr__(fixed, "prepare", lambda *arguments, query=query: query)
        result = dpa.minimize(problem, fixed, guard, rng=seed)
        assert result.private and result.iterations == 1
        assert guard.spent - before == pytest.approx(float(event.rdp_cost(20.0)))


def test_noise_is_calibrated_to_the_notion_of_a_filter_or_the_run_says_so():
    problem, method = separated(), METHODS["sgd"]
    for rng in (0, "os"):
        guard = dpa.privacy.Filter(dpa.Budget(1.0, 1e-5, ADD))
        result = dpa.minimize(problem, method, guard, rng=rng)
        assert result.status == "finished" and result.iterations == 1
        assert 0.999 * guard.limit < guard.spent <= guard.limit
    fixed = dataclasses.replace(method)
    query = method.prepare(problem.facts(ADD), dpa.Budget(2.0, 1e-5, ADD), "tightest")
    object.__setattr__(fixed, "prepare", lambda *arguments: query)
    guard = dpa.privacy.Filter(dpa.Budget(1.0, 1e-5, ADD))
    with pytest.raises(dpa.PrivacyBudgetExceeded) as error:  # the start is not returned
        dpa.minimize(problem, fixed, guard, rng=0)
    refused = error.value.partial
    assert guard.spent == 0.0 and refused.status == "budget exceeded"
    assert refused.iterations == 0 and not refused.w.any()


@pytest.mark.parametrize("name", METHODS)
def test_the_plan_refuses_another_question(name):
    """Less noise than was planned, or the same query twice."""
    problem, budget = separated(), dpa.Budget(1.0, 1e-6)
    facts = problem.facts(REPLACE)
    query = METHODS[name].prepare(facts, budget, "tightest")
    events = METHODS[name].events(facts, query)
    oracle = PrivateOracle(problem, facts, Plan(events, budget), mechanisms.spawn(0, 1))
    greedy = dataclasses.replace(query, scale=0.99 * query.scale)
    with pytest.raises(dpa.PrivacyBudgetExceeded):
        next(METHODS[name].run(np.zeros(3), oracle, greedy))
    next(METHODS[name].run(np.zeros(3), oracle, query))
    with pytest.raises(dpa.PrivacyBudgetExceeded):
        next(METHODS[name].run(np.zeros(3), oracle, query))
    assert oracle.ledger.events == tuple(events)


# --- what is refused, before the data are touched ---


@pytest.fixture
def sealed(monkeypatch):
    def touched(*arguments, **options):
        raise AssertionError("the data were touched")

    for name in ("sums", "gradient", "value", "hessian", "minimize_perturbed"):
        monkeypatch.setattr(dpa.ERM, name, touched)


@pytest.mark.usefixtures("sealed")
@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("budget", [dpa.Budget(1.0, 1e-6), None])
@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"loss": dpa.losses.Hinge()}, "HuberizedHinge"),
        ({"loss": dpa.losses.SquaredError()}, "Lipschitz"),
        ({"row_bound": None}, "row_bound"),
    ],
)
def test_refuses_losses_and_bounds_that_no_proof_covers(name, budget, options, match):
    with pytest.raises(ValueError, match=match):
        dpa.minimize(separated(**options), METHODS[name], budget)


@pytest.mark.usefixtures("sealed")
def test_refuses_penalties_and_steps_that_do_not_contract():
    rough = separated(regularizer=dpa.regularizers.GemanMcClure(0.1))
    with pytest.raises(ValueError, match="penalty must be convex"):
        dpa.minimize(rough, METHODS["sgd"], dpa.Budget(1.0, 1e-6))
    limit = largest_step(separated().facts(REPLACE), 1)
    assert limit == pytest.approx(2.0 / (0.01 + 0.01 + 0.75 * (1 + 1 / 2000)))
    with pytest.raises(ValueError, match=r"step_size must be at most 2/\(mu \+ L\)"):
        M.OutputPerturbation("gradient_descent", step_size=1.001 * limit).prepare(
            separated().facts(REPLACE), None, "tightest"
        )
    with pytest.raises(ValueError, match=r"mu \+ ridge must be positive"):
        dpa.minimize(separated(penalty=0.0), METHODS["objective"])


@pytest.mark.parametrize("name", METHODS)
def test_refuses_other_problems(name):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(20, 3)), rng.integers(0, 3, 20)
    problems = [
        dpa.Quadratic([1.0, 2.0]),
        dpa.problems.MLP(X, y, hidden=(4,), n_classes=3, row_bound=dpa.RowBound(2, 1.0)),
    ]
    for problem in problems:
        with pytest.raises(ValueError, match="convex"):
            dpa.minimize(problem, METHODS[name])
    if name != "objective":
        softmax = dpa.problems.Softmax(X, y, row_bound=dpa.RowBound(2, 1.0))
        with pytest.raises(ValueError, match="smooth"):
            dpa.minimize(softmax, METHODS[name])


def test_objective_perturbation_needs_linear_predictions():
    facts = dataclasses.replace(separated().facts(ADD), derivative_corners=None)
    with pytest.raises(ValueError, match="derivative_corners = None"):
        METHODS["objective"].prepare(facts, dpa.Budget(1.0, 1e-6, ADD), "tightest")
    METHODS["sgd"].prepare(
        facts, dpa.Budget(1.0, 1e-6, ADD), "tightest"
    )  # output perturbation does not


def test_queries_of_a_subsample_are_refused():
    facts = separated().facts(ADD)
    for query in (tilted("gaussian", 1.0), descent(0.1, 2, 1, True, 3, scale=1.0)):
        with pytest.raises(ValueError, match="Full"):
            query.event(facts, dpa.Poisson(0.5))


def test_noise_that_hides_the_solver_has_a_hundredth_of_the_cost():
    facts = separated().facts(REPLACE)
    method = M.ObjectivePerturbation(tolerance=1e-3, ridge=0.1)
    query = method.prepare(facts, dpa.Budget(0.02), "tightest")
    solver = 2.0 * query.tolerance / (facts.mu + query.ridge) / query.output_scale
    assert solver == pytest.approx(0.01 * query.shift(facts) / query.scale, rel=1e-6)


def test_a_tolerance_is_above_the_rounding_of_a_gradient():
    """Otherwise a computed gradient of 0 hid an exact one 5000 times as large."""
    data = np.linspace(-1.0, 1.0, 200)[:, None], np.repeat([-1.0, 1.0], 100)
    facts = erm(*data, LOGISTIC, 0.0).facts("replace_one")
    query = M.ObjectivePerturbation(tolerance=1e-20, ridge=1e6).prepare(
        facts, dpa.Budget(1.0), "tightest"
    )
    assert query.tolerance >= 2.0**-48 * facts.gradient_bounds[1]
    assert query.output_scale >= 2.0 * query.tolerance / 1e6
    bound, ulp = facts.gradient_bounds[1], 2.0**-53
    least = rounding_of_gradient(facts, 3.0, 1.0)
    assert least >= facts.rounding / 200 * bound + 32.0 * ulp * (bound + 3.0)
    with pytest.raises(
        ValueError, match="tolerance must be above twice the rounding of a gradient"
    ):
        dataclasses.replace(query, tolerance=1e-20).event(facts, FULL)


def test_the_exact_gradient_at_the_point_found_is_below_the_tolerance(monkeypatch):
    """Ten records of two nearly equal kinds and hardly a penalty, checked with 60 digits."""
    tried = []
    for seed in range(30):
        random = np.random.default_rng(1000 + seed)
        x = random.normal(size=5)
        x /= np.linalg.norm(x)
        aside = random.normal(size=5)
        aside -= aside @ x * x
        rows = np.array([x, x + 2e-3 * aside / np.linalg.norm(aside)])
        X = np.repeat(rows / 1.000001 / np.linalg.norm(rows, axis=1).max(), 5, axis=0)
        problem = dpa.ERM(X, np.ones(10), LOGISTIC, row_bound=dpa.RowBound(2, 1.0))
        facts, ridge = problem.facts("replace_one"), 1e-6
        query = PerturbedMinimum("spherical", 2.0, ridge, 1e-9, 1.0)
        off = rounding_of_gradient(facts, math.sqrt(query.expected_square(5)) / 10, ridge)
        query = dataclasses.replace(query, tolerance=2.01 * off)
        tilt, _ = query._tilt(np.random.default_rng(seed), 5)
        monkeypatch.setattr(mechanisms, "noisy", lambda random, w, law, scale: w)
        w = query.answer(Records(problem, None, 10.0), np.random.default_rng(seed))[0]
        with mp.workdps(60):
            w = [mp.mpf(v) for v in w.tolist()]
            g = [mp.mpf(t) / 10 + ridge * v for t, v in zip(tilt.tolist(), w)]
            for row in X.tolist():
                pull = 1 / (1 + mp.exp(mp.fsum(a * v for a, v in zip(row, w)))) / 10
                g = [each - pull * a for each, a in zip(g, row)]
            length = float(mp.sqrt(mp.fsum(each**2 for each in g)))
        tried.append(length / query.tolerance)
    assert max(tried) <= 1.0


def test_a_tolerance_covers_the_rounding_of_predictions_of_long_rows():
    """A dot product of d numbers is off by up to d units in the last place."""
    facts = erm(np.zeros((4, 3)), np.array([1.0, -1.0, 1.0, -1.0]), LOGISTIC, 0.0).facts(ADD)
    facts = dataclasses.replace(facts, max_records=4)
    method = M.ObjectivePerturbation(tolerance=1e-20)
    short, long = (
        method.least_tolerance(dataclasses.replace(facts, d=d), 1e-6, 1.0) for d in (3, 3000)
    )
    away = 0.5 * long / (3016 * 2.0**-53 * curvature_of(facts).trace)
    assert 1.0 <= away <= 1.001 * (facts.gradient_bounds[1] + 1.0) / 1e-6
    assert long == pytest.approx(short * 3016 * 2.0**-53 / 1e-14, rel=0.01)


def test_a_tolerance_covers_the_rounding_at_a_distant_minimizer():
    """For small mu the distance of the minimizer is bounded by the loss at 0."""
    facts = erm(np.zeros((4, 3)), np.array([1.0, -1.0, 1.0, -1.0]), LOGISTIC, 0.0).facts(ADD)
    facts = dataclasses.replace(facts, max_records=4)
    method = M.ObjectivePerturbation(tolerance=1e-20)
    far = math.sqrt(2.0 * math.log(2.0) / 1e-8)  # mu |w|^2 / 2 = log 2, the loss at 0
    assert far < facts.gradient_bounds[1] / 1e-8  # the bound by the slope alone is larger
    rounds = 1e-14 * curvature_of(facts).trace * far
    assert method.least_tolerance(facts, 1e-8, 0.0) == pytest.approx(2.0 * rounds, rel=0.05)


def test_a_tolerance_covers_twice_the_nominal_number_of_records():
    """Twice the nominal number of records doubles the minimizer's distance and the rounding."""
    X, y, loss = np.ones((20, 1)), np.ones(20), dpa.losses.HuberizedHinge(0.5)
    problem = dpa.ERM(X, y, loss, None, dpa.RowBound(2, 1.0), size=10)
    w, _ = problem.minimize_perturbed(np.zeros(1), 10.0, 1e-12, 10.0)
    assert w == pytest.approx(2.0 * problem.facts(ADD).gradient_bounds[1] / 10.0)
    facts = dataclasses.replace(problem.facts(ADD), d=10**9)  # predictions dominate
    alone = rounding_of_gradient(dataclasses.replace(facts, max_records=10), 0.0, 10.0)
    assert rounding_of_gradient(facts, 0.0, 10.0) == pytest.approx(4.0 * alone, rel=0.01)


@pytest.mark.parametrize(("kind", "batches"), [("permuted_sgd", 5), ("gradient_descent", 1)])
def test_a_descent_takes_ten_passes_of_half_of_the_largest_step_by_default(kind, batches):
    facts = separated().facts(ADD)
    query = M.OutputPerturbation(kind, batches=5).prepare(facts, None, "tightest")
    assert query.passes == 10 and query.step_size == 0.5 * largest_step(facts, batches)


@dataclasses.dataclass(frozen=True)
class Around(dpa.regularizers.L2):
    """An L2 penalty around another point than 0."""

    center: float = 0.0
    mu = property(lambda self: self.strength)
    L = property(lambda self: self.strength)
    hessian_lipschitz = 0.0

    def gradient(self, w):
        return self.strength * (w - self.center)


def test_a_descent_that_the_penalty_leads_away_from_zero_is_refused():
    """Iterates near 1e15 are rounded to eighths: a record moved the end 6 times as far as charged.

    The rounding of steps is bounded by their distance from 0, for a penalty with minimum at 0.
    """
    X, y = np.linspace(-1.0, 1.0, 200)[:, None], np.repeat([-1.0, 1.0], 100)
    for center, allowed in ((0.0, True), (1e15, False)):
        problem = dpa.ERM(X, y, LOGISTIC, Around(0.1, center), dpa.RowBound(2, 1.0))
        for kind in ("gradient_descent", "permuted_sgd"):
            method = M.OutputPerturbation(kind)
            if allowed:
                dpa.minimize(problem, method, dpa.Budget(1.0), rng=0)
                continue
            with pytest.raises(ValueError, match="penalty must have its minimum at 0"):
                dpa.minimize(problem, method, dpa.Budget(1.0), rng=0)


@pytest.mark.parametrize("d", [10, 100_000])
def test_a_descent_is_charged_for_what_its_predictions_may_round(d):
    """They are off by d units of row norm times iterate norm; a step moves by twice that."""
    problem = erm(np.eye(1, d), [1.0], LOGISTIC, 0.0)
    facts = problem.facts("replace_one")
    step, start = largest_step(facts), np.full(d, 4e13 / d**1.5)  # of length 4e13/d
    near, far = (
        NoisyDescent(w, step, 1, 3, False, "gaussian", 1.0).sensitivities(facts)[0].max()
        for w in (np.zeros(d), start)
    )
    moved = 3 * step * facts.record_sensitivity(2)
    assert near == pytest.approx(moved * (1 + 2e-4), rel=1e-12)
    assert far >= moved + 2 * 3 * 2 * d * 2.0**-53 * np.linalg.norm(start)


@pytest.mark.parametrize("exponent", [0, 690, 958])
@pytest.mark.parametrize("form", ["dense", "csr", "softmax"])
def test_losses_of_rows_far_longer_than_their_bound_are_smooth(form, exponent):
    """Derivatives below 1/4 were 0 at 2^958 times the bound: 2 steps moved 62 times as far."""

    def problem(label):
        X, y = np.full((1000, 1), 2.0**exponent), np.append(label, np.ones(999))
        bound = dpa.RowBound(2, 1.0)
        if form == "softmax":
            return dpa.problems.Softmax(X, (y > 0).astype(int), 2, None, bound)
        return dpa.ERM(sparse.csr_array(X) if form == "csr" else X, y, LOGISTIC, None, bound)

    one, other = problem(1.0), problem(-1.0)
    points = np.log(3.0) + np.array([[-1e-3], [1e-3]])  # where the derivative is 1/4
    points = np.hstack([-points / 2, points / 2]) if form == "softmax" else points
    rise = np.linalg.norm(np.diff(one.gradient(points), axis=0))
    assert rise <= one.L * np.linalg.norm(np.diff(points, axis=0))
    if form != "softmax":
        # The first step leads to either side of that point.
        query = NoisyDescent(np.array([0.7861071]), 1.0, 1, 2, False, "gaussian", 0.0)
        ends = [query.answer(Records(each, None, 1000), None)[0] for each in (one, other)]
        charged = query.sensitivities(one.facts(REPLACE))[0].max()
        assert abs(ends[0] - ends[1]) <= charged


@pytest.mark.parametrize(
    ("build", "match"),
    [
        (lambda: M.OutputPerturbation("sgd"), "kind"),
        (lambda: M.OutputPerturbation(passes=0), "passes"),
        (lambda: M.OutputPerturbation(batches=0), "batches"),
        (lambda: M.OutputPerturbation(step_size=0.0), "step_size"),
        (lambda: M.ObjectivePerturbation(0.0), "curvature_share"),
        (lambda: M.ObjectivePerturbation(1.0), "curvature_share"),
        (lambda: M.ObjectivePerturbation(tolerance=0.0), "tolerance"),
        (lambda: tilted("laplace", 1.0), "law"),
        (lambda: tilted("gaussian", -1.0), "scale"),
        (lambda: tilted("gaussian", 1.0, ridge=-1.0), "ridge"),
        (lambda: descent(math.nan, 1, 1, False), "step_size"),
        (lambda: descent(0.1, 1, 1, False, scale=math.inf), "scale"),
    ],
)
def test_refuses_bad_arguments(build, match):
    with pytest.raises(ValueError, match=match):
        build()


def test_events_add_up_over_releases():
    """Two releases of one method are accounted as one list; pure ones as pure."""
    event = GaussianBound(1.0, (0.2,), (2.0,), 0.01)
    twice = dpa.privacy.epsilon(Repeated(event, 2), 1e-6, ADD)
    assert twice < 2 * dpa.privacy.epsilon(event, 1e-6, ADD)
    assert dpa.privacy.epsilon([Pure(0.2), Pure(0.1)], 0.0, ADD) == pytest.approx(0.3)


@pytest.mark.parametrize(("batches", "passes"), [(0, 1), (1, 0), (1, -2)])
def test_a_descent_makes_at_least_one_pass_over_one_batch(batches, passes):
    with pytest.raises(ValueError, match=r"(batches|passes) must"):
        NoisyDescent(np.zeros(2), 0.1, batches, passes, False, "gaussian", 1.0)


@pytest.mark.parametrize("library", ["torch", "array_api_strict"])
def test_solutions_in_single_precision_are_refused(library):
    """A step on such rows moved by 17 times its sensitivity: epsilon 26 instead of 1."""
    xp = pytest.importorskip(library)
    rows = np.ones((40, 1))
    for dtype, refused in ((xp.float32, True), (xp.float64, False)):
        problem = dpa.ERM(
            xp.asarray(rows, dtype=dtype),
            xp.asarray(np.ones(40)),
            dpa.losses.HuberizedHinge(0.5),
            dpa.regularizers.L2(0.1),
            dpa.RowBound(2, 1.0),
        )
        for method in (
            dpa.methods.OutputPerturbation("gradient_descent", passes=2),
            dpa.methods.ObjectivePerturbation(),
        ):
            if refused:
                with pytest.raises(ValueError, match="must be computed in double precision"):
                    dpa.minimize(problem, method, dpa.Budget(1.0, 1e-5), rng=0)
            else:
                result = dpa.minimize(problem, method, dpa.Budget(1.0, 1e-5), rng=0)
                assert result.epsilon() <= 1.0 + 1e-9
    bound = dpa.RowBound(2, 1.0)
    single = dpa.problems.Softmax(rows, np.arange(40) % 2, 2, None, bound, dtype="float32")
    with pytest.raises(ValueError, match="dtype='float64'"):
        dpa.minimize(single, dpa.methods.ObjectivePerturbation(), dpa.Budget(1.0), rng=0)


def test_a_sampled_hessian_estimates_the_mean_over_the_nominal_size():
    X = np.random.default_rng(0).uniform(-1.0, 1.0, size=(40, 3))
    problem = dpa.ERM(X, np.sign(X[:, 0]), LOGISTIC, dpa.regularizers.L2(0.1), size=30)
    found = problem.sampled_hessian(np.ones(3), np.arange(40))
    np.testing.assert_allclose(found, problem.hessian(np.ones(3)), rtol=1e-12)


@pytest.mark.parametrize("epsilon", [12.0, 14.0, 16.0, 20.0])
def test_what_hides_the_solver_changes_a_gradient_by_a_fiftieth_of_its_euclidean_bound(epsilon):
    X = np.random.default_rng(0).uniform(-0.4, 0.4, size=(4000, 5))
    problem = dpa.ERM(X, X[:, 0], dpa.losses.Huber(0.1), row_bound=dpa.RowBound(2, 1.0))
    facts = problem.facts(REPLACE)
    plan = M.ObjectivePerturbation().prepare(facts, dpa.Budget(epsilon), "tightest")
    noise = plan.output_scale * math.sqrt(5 * 6)  # density e^(-|b|/s): E |b|^2 = d (d + 1) s^2
    assert curvature_of(facts).trace * noise <= 0.02 * facts.gradient_bounds[1]


def test_noise_that_a_shared_filter_pays_is_calibrated_as_the_filter_counts():
    """By the privacy loss distribution less noise is enough, which the filter would refuse."""
    guard = dpa.privacy.Filter(dpa.Budget(1.0, 1e-6))
    result = dpa.minimize(separated(), METHODS["descent"], guard, rng=0)
    assert result.status == "finished" and guard.spent == pytest.approx(guard.limit)
