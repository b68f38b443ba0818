"""Noise in blocks: its law, its shape, and its privacy cost in objective perturbation."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, stats

import dpanalysis as dpa
from dpanalysis.privacy import gaussian_delta, mechanisms
from dpanalysis.privacy.facts import Block
from dpanalysis.privacy.k_norm import draw_blocks, gaussian_shape, norm_shape, second_moment
from dpanalysis.privacy.queries import PerturbedMinimum, Records

FULL, INF = dpa.Full(), math.inf
REPLACE, ADD = "replace_one", "add_or_remove_one"
LOGISTIC, HUBER = dpa.losses.Logistic(), dpa.losses.HuberizedHinge(0.5)
blocks = st.builds(Block, st.integers(1, 6), st.sampled_from([1, 2, INF]), st.floats(1e-3, 1e3))


def norm(block, v):
    return np.linalg.norm(v, ord=block.order, axis=-1) / block.radius


def density_exponent(shape, b):
    """The sum of the blocks' norms over their scales, for b of shape (..., d)."""
    ends = np.cumsum([block.size for block in shape])
    return sum(norm(t, b[..., hi - t.size : hi]) for t, hi in zip(shape, ends))


# --- the law of the noise ---


@pytest.mark.parametrize("order", [1, 2, INF])
@pytest.mark.parametrize("m", [1, 2, 5])
def test_the_norm_is_gamma_and_the_direction_uniform(order, m):
    """Kolmogorov-Smirnov at 4,000 draws; with 18 tests of 1e-4 the false alarms are below .002."""
    noise, _ = draw_blocks(mechanisms.random_source(7), [Block(m, order, 3.0)], 2.0, 4000 * m)
    noise = noise.reshape(4000, m)
    lengths = norm(Block(m, order, 1.0), noise)
    assert stats.kstest(lengths, stats.gamma(m, scale=6.0).cdf).pvalue > 1e-4
    # One coordinate of a uniform point in the unit ball, the direction times U^(1/m):
    inside = noise[:, 0] / lengths * np.random.default_rng(1).random(4000) ** (1 / m)
    law = {1: stats.beta(1, m), 2: stats.beta(0.5, (m + 1) / 2), INF: stats.uniform()}[order]
    size = inside**2 if order == 2 else abs(inside)
    assert stats.kstest(size, law.cdf).pvalue > 1e-4
    assert 0.45 < (inside > 0).mean() < 0.55


@pytest.mark.parametrize("order", [1, 2, INF])
def test_the_second_moment_is_that_of_the_gamma_law_by_quadrature(order):
    for m in (1, 2, 7):
        ball = {  # mean square of a coordinate in the unit ball
            1: 2.0 / ((m + 1) * (m + 2)), 2: 1.0 / (m + 2), INF: 1.0 / 3.0
        }[order]  # fmt: skip
        radius = stats.gamma(m + 1, scale=2.5).moment(2)
        assert second_moment(Block(m, order, 2.5)) == pytest.approx(m * ball * radius, rel=1e-12)


@given(st.lists(blocks, min_size=1, max_size=5))
def test_the_shape_costs_one_and_no_other_is_shorter(parts):
    shape = norm_shape(parts)
    assert sum(b.radius / t.radius for b, t in zip(parts, shape)) == pytest.approx(1.0)
    least = sum(map(second_moment, shape))
    rng = np.random.default_rng(len(parts))
    for stretch in np.exp(0.3 * rng.normal(size=(20, len(parts)))):
        other = [dataclasses.replace(t, radius=t.radius * s) for t, s in zip(shape, stretch)]
        loss = sum(b.radius / t.radius for b, t in zip(parts, other))
        assert sum(map(second_moment, other)) * loss**2 >= least * (1 - 1e-9)


@given(st.lists(blocks, min_size=1, max_size=5))
def test_the_gaussian_shape_moves_by_one_and_no_other_is_shorter(parts):
    shape = gaussian_shape(parts)
    radii = np.array([b.radius_in(2) for b in parts])
    sizes = np.array([b.size for b in parts])
    stds = np.array([t.radius for t in shape])
    assert math.hypot(*(radii / stds)) == pytest.approx(1.0)
    rng = np.random.default_rng(len(parts))
    for stretch in np.exp(0.3 * rng.normal(size=(20, len(parts)))):
        other = stds * stretch
        assert (sizes * other**2).sum() * ((radii / other) ** 2).sum() >= (
            sizes * stds**2
        ).sum() * (1 - 1e-9)


@given(st.integers(1, 6), st.sampled_from([1, 2, INF]), st.sampled_from([1, 2, INF]))
def test_radii_in_other_norms_are_those_of_the_corners(m, order, other):
    """A norm is largest at an extreme point: a unit vector, or a corner of the cube."""
    corners = [np.eye(m)[0], np.ones(m)]
    radius = max(np.linalg.norm(v, ord=other) / np.linalg.norm(v, ord=order) for v in corners)
    assert Block(m, order, 2.0).radius_in(other) == pytest.approx(2.0 * radius)


# --- privacy cost ---


def predictor(K):
    """Loss derivatives p - e_y (or one number) and their Hessians, of scores (K,)."""
    if K == 1:

        def one(z, y):
            g, h = LOGISTIC.derivative(z, y), LOGISTIC.second_derivative(z, y)
            return g, h[:, None]

        return one  # fmt: skip

    def many(z, y):
        p = np.exp(z - z.max())
        p /= p.sum()
        return p - np.eye(K)[int(y)], np.diag(p) - np.outer(p, p)

    return many


def log_density(query, w, X, y, n, convexity, K):
    """Logarithm of the density of the minimizer at w (K, m), up to a constant."""
    of = predictor(K)
    b, M = -n * convexity * w, n * convexity * np.eye(w.size)
    for x, label in zip(X, y):
        g, h = of(w @ x, np.array([label]) if K == 1 else label)
        b = b - np.outer(g, x)
        M = M + np.kron(h, np.outer(x, x))
    exponent = sum(density_exponent(query.shape, row) for row in b) / query.scale
    return np.linalg.slogdet(M)[1] - exponent


SHAPE = (Block(2, INF, 1.0), Block(2, 1, 1.0))


def row(rng, edge):
    """A row at a corner of the bounds, or inside."""
    if edge:
        return np.array([*rng.choice([-1.0, 1.0], 2), *np.eye(2)[rng.integers(2)]])
    lit = rng.dirichlet([1.0, 1.0])
    return np.array([*rng.uniform(-1, 1, 2), *(rng.random() * lit)])


def problem_of(X, y, K, bound):
    y = np.asarray(y)
    if K == 1:
        return dpa.ERM(X, y, LOGISTIC, dpa.regularizers.L2(0.05), bound)
    return dpa.problems.Softmax(X, y, K, dpa.regularizers.L2(0.05), bound)


def test_a_derivative_without_a_bound_has_no_sensitivity_of_blocks():
    bound = dpa.RowBound(SHAPE, 1.0)
    X = np.zeros((3, sum(block.size for block in SHAPE)))
    problem = dpa.ERM(X, np.zeros(3), dpa.losses.SquaredError(), row_bound=bound)
    assert problem.facts(REPLACE).block_sensitivities(1) == []


@pytest.mark.parametrize("relation", [REPLACE, ADD])
@pytest.mark.parametrize("K", [1, 2, 4])
def test_no_pair_of_neighbours_costs_more_than_is_charged(relation, K):
    """Log ratios of densities at points far and near, for random neighbours and bounds."""
    rng = np.random.default_rng(K)
    bound = dpa.RowBound(SHAPE, 1.0)
    largest = 0.0
    for trial in range(60):
        n = int(rng.integers(1, 4))
        X = np.array([row(rng, trial % 2) for _ in range(n + 1)])
        y = rng.choice([-1.0, 1.0], n + 1) if K == 1 else rng.integers(0, K, n + 1)
        facts = problem_of(X[:n], y[:n], K, bound).facts(relation)
        shape = norm_shape(facts.block_sensitivities(1)[0])
        query = PerturbedMinimum("blocks", 10.0 ** rng.uniform(-1, 1), 0.0, 1e-9, 1.0, shape)
        cost = query.event(facts, FULL).events[0].epsilon
        keep = [*range(n - 1), n] if relation == REPLACE else list(range(n + 1))
        for size in (0.1, 1.0, 10.0):
            w = size * rng.normal(size=(K, 4))
            pair = [
                log_density(query, w, X[rows], y[rows], n, 0.05, K)
                for rows in (list(range(n)), keep)
            ]
            loss = abs(pair[0] - pair[1])
            assert loss <= cost * (1 + 1e-9)
            largest = max(largest, loss / cost)
    assert largest > 0.25


def test_the_cost_of_the_noise_is_attained():
    """A record at a corner of the bounds, with the largest possible gradient along b."""
    bound = dpa.RowBound(SHAPE, 1.0)
    X, y = np.array([[0.0] * 4, [1.0, 1.0, 1.0, 0.0]]), [1.0, 1.0]
    facts = problem_of(X[:1], y[:1], 1, bound).facts(ADD)
    query = PerturbedMinimum(
        "blocks", 0.01, 1e3, 1e-9, 1.0, norm_shape(facts.block_sensitivities(1)[0])
    )
    cost = query.event(facts, FULL).events[0].epsilon
    w = np.array([[-10.0, -10.0, -10.0, 0.0]])
    pair = [log_density(query, w, X[:k], y[:k], 1, 1e3 + 0.05, 1) for k in (1, 2)]
    assert abs(pair[0] - pair[1]) == pytest.approx(cost, rel=1e-3)


@pytest.mark.parametrize("K", [2, 3, 6])
def test_determinants_of_softmax_come_close_to_their_bound_and_not_above(K):
    """One record of K classes, all equally likely, is the worst for the determinant."""
    rng = np.random.default_rng(0)
    x = np.array([1.0, -1.0, 0.0, 1.0])
    bound = dpa.RowBound(SHAPE, 1.0)
    facts = problem_of(x[None, :], [0], K, bound).facts(ADD)
    for convexity in (0.01, 1.0, 30.0):
        query = PerturbedMinimum(
            "blocks", 1.0, convexity - 0.05 if convexity > 0.05 else 0.0, 1e-9, 1.0,
            norm_shape(facts.block_sensitivities(1)[0]),
        )  # fmt: skip
        c = 0.05 + query.ridge
        event = query.event(facts, FULL).events[0]
        kappa = event.epsilon - query.shift(facts)
        found = []
        for p in (np.full(K, 1.0 / K), *rng.dirichlet(np.full(K, 0.5), 50)):
            h = np.kron(np.diag(p) - np.outer(p, p), np.outer(x, x))
            found.append(np.linalg.slogdet(np.eye(4 * K) + h / c)[1])
        assert max(found) <= kappa * (1 + 1e-9)
        assert found[0] == pytest.approx(kappa, rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("relation", [REPLACE, ADD])
def test_gaussian_noise_of_two_deviations_in_the_plane(relation):
    """The cost covers the hockey-stick divergences of densities on a grid."""
    side = np.linspace(-7.0, 7.0, 241)
    w = np.stack(np.meshgrid(side, side, indexing="ij"), axis=-1).reshape(-1, 2)
    cell, penalty, n = (side[1] - side[0]) ** 2, 1.5, 2
    bound = dpa.RowBound((Block(1, INF, 1.0), Block(1, INF, 0.25)), 1.0)
    X = np.array([[1.0, 0.25], [-1.0, 0.25], [1.0, -0.25]])
    for labels in itertools.product([-1.0, 1.0], repeat=3):
        y = np.array(labels)
        problem = dpa.ERM(X[:2], y[:2], LOGISTIC, dpa.regularizers.L2(penalty), bound)
        facts = problem.facts(relation)
        shape = gaussian_shape(facts.block_sensitivities(2)[0])
        query = PerturbedMinimum("gaussian", 1.0, 0.0, 1e-9, 1.0, shape)
        assert query.shift(facts) == pytest.approx(1.0)
        event = query.event(facts, FULL).events[0]
        stds = np.array([t.radius for t in shape])

        def density(rows, y=y, stds=stds):
            z = w @ X[rows].T
            b = -LOGISTIC.derivative(z, y[rows]) @ X[rows] - n * penalty * w
            second = LOGISTIC.second_derivative(z, y[rows])
            h = np.einsum("ki,id,ie->kde", second, X[rows], X[rows]) + n * penalty * np.eye(2)
            return stats.norm.pdf(b, 0, stds).prod(axis=1) * np.linalg.det(h) * cell

        p, q = density([0, 1]), density([0, 2] if relation == REPLACE else [0, 1, 2])
        assert abs(p.sum() - 1.0) < 1e-3
        for one, other in ((p, q), (q, p)):
            for epsilon in (0.05, 0.5, 1.0):
                bounded = float(
                    np.dot(event.weights, gaussian_delta(1 / event.mus, epsilon - event.offset))
                )
                assert np.maximum(one - math.exp(epsilon) * other, 0).sum() < bounded


PARTS = st.lists(
    st.builds(Block, st.integers(1, 4), st.sampled_from([1, INF]), st.floats(0.01, 100.0)),
    min_size=1,
    max_size=3,
)


@given(PARTS, st.data(), st.sampled_from([REPLACE, ADD]))
def test_no_row_within_its_blocks_moves_gaussian_noise_further_and_one_moves_it_as_far(
    parts, data, relation
):
    """The longest row in units of the standard deviations: a corner of every block."""
    d = sum(part.size for part in parts)
    bound = dpa.RowBound(tuple(parts), 1.0)
    facts = dpa.ERM(np.zeros((3, d)), np.ones(3), LOGISTIC, row_bound=bound).facts(relation)
    drawn = data.draw(st.lists(st.floats(0.1, 10.0), min_size=len(parts), max_size=len(parts)))
    own = tuple(Block(part.size, 2, std) for part, std in zip(parts, drawn))
    for shape in (own, gaussian_shape(facts.block_sensitivities(2)[0])):
        longest = math.hypot(*(
            part.radius / std.radius * (math.sqrt(part.size) if part.order == INF else 1.0)
            for part, std in zip(parts, shape)
        ))  # fmt: skip
        found = PerturbedMinimum("gaussian", 1.0, 0.1, 1e-9, 1.0, shape).shift(facts)
        assert found == pytest.approx(longest * (2 if relation == REPLACE else 1), rel=1e-9)


@given(PARTS, st.sampled_from(["gaussian", "blocks", "round"]), st.data())
def test_the_term_is_as_near_to_the_real_noise_as_is_stated(parts, law, data):
    """Approximate draws, off by a known distance in one coordinate; the total stays as stated."""
    shape = () if law == "round" else tuple(parts)
    if law == "gaussian":
        shape = tuple(Block(part.size, 2, part.radius) for part in parts)
    query = PerturbedMinimum(
        "blocks" if law == "blocks" else "gaussian", 2.0, 0.1, 1e-9, 1.0, shape
    )
    copies = data.draw(st.integers(1, 2))
    d = copies * sum(part.size for part in parts)
    place = data.draw(st.integers(0, d - 1))

    def tilt(off):
        start = 0

        def nearly(random, law, scale, size):
            nonlocal start
            noise = np.zeros(size)
            noise[(place - start) % size if law == "gaussian" else -1] = off * scale
            start += size
            return noise, off * scale

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(mechanisms, "nearly", nearly)
            return query._tilt(None, d)

    real, exact = tilt(0.0)
    found, stated = tilt(1e-3)
    assert exact == 0.0
    assert np.linalg.norm(found - real) <= stated * (1.0 + 1e-12)


def test_every_prediction_has_the_standard_deviations_of_the_blocks(monkeypatch):
    monkeypatch.setattr(mechanisms, "nearly", lambda r, law, scale, d: (np.full(d, scale), 1e-9))
    shape = (Block(2, 2, 0.5), Block(1, 2, 3.0))
    tilt, off = PerturbedMinimum("gaussian", 2.0, 0.1, 1e-6, 1.0, shape)._tilt(None, 6)
    assert tilt.tolist() == [1.0, 1.0, 6.0] * 2 and off == pytest.approx(3e-9)


def test_corners_of_softmax_are_as_many_as_the_classes():
    bound = dpa.RowBound(SHAPE, 1.0)
    for K, relation, weight in ((5, ADD, 5.0), (5, REPLACE, 25.0), (2, REPLACE, 4.0)):
        facts = problem_of(np.zeros((3, 4)), [0, 1, 0], K, bound).facts(relation)
        query = PerturbedMinimum("gaussian", 1.0, 0.1, 1e-9, 1.0)
        assert query.event(facts, FULL).events[0].weights == (weight,)


@pytest.mark.parametrize(("law", "derivative"), [("blocks", 2.0), ("gaussian", math.sqrt(2.0))])
def test_several_predictions_move_copies_of_a_block_by_the_norm_of_the_law(law, derivative):
    """Norms of copies add up by the L1 norm of the derivatives; their squares by the L2 norm."""
    X, k = np.ones((6, 2)) / 2.0, np.array([0, 1, 2, 0, 1, 2])
    problem = dpa.problems.Softmax(X, k, 3, dpa.regularizers.L2(0.1), dpa.RowBound(2, 0.75))
    query = PerturbedMinimum(law, 1.0, 0.1, 1e-6, 1.0, (Block(2, 2, 0.5),))
    moved = query.shift(problem.facts(REPLACE))
    assert moved == pytest.approx(2.0 * derivative * 0.75 / 0.5, rel=1e-9)


def test_blocks_of_sums_that_vanish_or_overflow_are_refused():
    facts = problem_of(np.zeros((3, 4)), [1, 1, -1], 1, dpa.RowBound(SHAPE, 1.0)).facts(ADD)
    for size in (1e-260, 1e300):
        with pytest.raises(ValueError, match="another unit"):
            dataclasses.replace(facts, gradient_bounds=(size, size)).block_sensitivities(1)


def test_a_shape_of_another_norm_is_refused():
    facts = problem_of(np.zeros((3, 4)), [1, 1, -1], 1, dpa.RowBound(SHAPE, 1.0)).facts(ADD)
    swapped = (Block(2, 1, 1.0), Block(2, INF, 1.0))
    for shape in (swapped, (Block(4, 1, 1.0),), (Block(1, INF, 1.0), Block(3, 1, 1.0))):
        with pytest.raises(ValueError, match="shape must have the blocks"):
            PerturbedMinimum("blocks", 1.0, 0.1, 1e-9, 1.0, shape).event(facts, FULL)
    with pytest.raises(ValueError, match="shape must be given for blocks alone"):
        PerturbedMinimum("blocks", 1.0, 0.1, 1e-9, 1.0)
    with pytest.raises(ValueError, match="shape must be given for blocks alone"):
        PerturbedMinimum("spherical", 1.0, 0.1, 1e-9, 1.0, SHAPE)


@pytest.mark.slow
@pytest.mark.parametrize("law", ["blocks", "gaussian"])
def test_the_random_term_has_the_law_that_is_charged(law):
    """The tilt follows from the answer; its norm in each block has a gamma law."""
    rng = np.random.default_rng(3)
    X = np.array([row(rng, False) for _ in range(6)])
    problem = problem_of(X, [0, 1, 2, 0, 1, 2], 3, dpa.RowBound(SHAPE, 1.0))
    shape = (Block(2, INF, 2.0), Block(2, 1, 0.5))
    query = PerturbedMinimum(law, 3.0, 0.2, 1e-10, 0.0, shape)
    records, random = Records(problem, None, 6.0), mechanisms.random_source(1)
    tilts = []
    for _ in range(150):
        w = query.answer(records, random)[0]
        tilts.append(-6.0 * (problem.gradient(w) + 0.2 * w))
    b = np.array(tilts).reshape(-1, 3, 4)
    for k in range(3):
        for block, part in zip(shape, (b[:, k, :2], b[:, k, 2:])):
            if law == "blocks":
                found = stats.kstest(norm(block, part), stats.gamma(2, scale=3.0).cdf)
            else:
                found = stats.kstest(part.ravel(), stats.norm(0, 3.0 * block.radius).cdf)
            assert found.pvalue > 1e-4


# --- choice of the law ---


def test_the_law_of_the_least_square_is_taken():
    def plan(bound, delta=0.0, d=6):
        X, y = np.zeros((1000, d)), np.ones(1000)
        problem = dpa.ERM(X, y, LOGISTIC, dpa.regularizers.L2(0.1), bound)
        method = dpa.methods.ObjectivePerturbation()
        return method.prepare(problem.facts(REPLACE), dpa.Budget(1.0, delta), "tightest")

    assert plan(dpa.RowBound(2, 1.0)).law == "spherical"
    assert [b.order for b in plan(dpa.RowBound(1, 1.0)).shape] == [1]
    assert [b.order for b in plan(dpa.RowBound(INF, 1.0)).shape] == [INF]
    mixed = plan(dpa.RowBound((Block(2, INF, 1.0), Block(4, 1, 1.0)), 1.0))
    assert [b.order for b in mixed.shape] == [INF, 1]
    assert mixed.expected_square(6) < plan(dpa.RowBound(1, 3.0)).expected_square(6)
    # A search finds no scales of the two blocks with a smaller expected square.
    units = [second_moment(dataclasses.replace(b, radius=1.0)) for b in mixed.shape]
    found = optimize.minimize_scalar(
        lambda t: units[0] * t**2 + units[1] / (1.0 - 1.0 / t) ** 2,
        bounds=(1.0001, 50.0), method="bounded",
    )  # fmt: skip
    shape = sum(map(second_moment, norm_shape([Block(2, INF, 1.0), Block(4, 1, 1.0)])))
    assert shape == pytest.approx(found.fun, rel=1e-6)
    assert plan(dpa.RowBound(2, 1.0), 1e-5, d=60).law == "gaussian"
    assert plan(dpa.RowBound(1, 1.0), 1e-300, d=60).law == "blocks"  # Gaussian noise costs more


@pytest.mark.parametrize("copies", [1, 3])
@pytest.mark.parametrize(
    "shape", [(Block(2, 2, 1.5), Block(1, 1, 0.5)), (Block(4, math.inf, 2.0),)]
)
def test_the_expected_square_of_copies_of_blocks_is_so_many_times_one(copies, shape):
    """Copies of a Gaussian block are independent; the radius is the deviation of its entries."""
    d = sum(block.size for block in shape)
    gaussian = PerturbedMinimum("gaussian", 0.7, 0.1, 1e-9, 1.0, shape)
    entries = [block.radius for block in shape for _ in range(block.size)]
    assert gaussian.expected_square(copies * d) == pytest.approx(
        copies * 0.7**2 * np.square(entries).sum(), rel=1e-12
    )
