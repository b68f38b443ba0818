"""AboveThreshold: bounds against exact output laws for many queries, and brute force."""

import functools
import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import special

from dpanalysis.audit import above_threshold_distribution, renyi_divergence
from dpanalysis.papers.line_search.printed import printed_above_threshold
from dpanalysis.privacy import rdp_above_threshold, rdp_gaussian, rdp_laplace, rdp_pure
from dpanalysis.privacy.accounting import sparse_vector as module

# Chen and Lee (2020) with budget 1 and .01: pure loss 1/2 + 2/4; variances 3/(2 rho) and 3/rho.
LAPLACE = ("laplace", 2.0, 4.0)
GAUSSIAN = ("gaussian", math.sqrt(150.0), math.sqrt(300.0))


def exact(noise, first, second, queries, changes, order):
    """Return the larger divergence of the two exact laws, and its error."""
    queries, changes = np.asarray(queries), np.asarray(changes)
    law, other = (
        above_threshold_distribution(q, noise, first, second) for q in (queries, queries + changes)
    )
    return max(renyi_divergence(law, other, order), renyi_divergence(other, law, order))


# --- numbers of the errata ---


def test_numbers_of_errata_002():
    assert rdp_above_threshold(2, *LAPLACE, 20) == pytest.approx(0.457, abs=5e-4)
    assert printed_above_threshold(2, *LAPLACE) == pytest.approx(0.401, abs=5e-4)
    assert rdp_pure(2, 1.0) == pytest.approx(0.735, abs=5e-4)
    assert rdp_above_threshold(2, *GAUSSIAN, 20) == pytest.approx(0.0464, abs=5e-5)
    assert printed_above_threshold(2, *GAUSSIAN) == pytest.approx(0.02, rel=1e-12)


@pytest.mark.parametrize(
    ("size", "ramp", "violated"),
    [(300, (-55.06, 16.19, 10.0), 0.02007), (1000, (-62.26, 17.83, 9.45), 0.02606)],
)
def test_the_printed_theorem_3_is_false(size, ramp, violated):
    """Rising queries that change by +1 and -1 in turn."""
    i = (np.arange(size) + 0.5) / size
    queries = ramp[0] + ramp[1] * i - ramp[2] * np.log1p(-i)
    true = exact(*GAUSSIAN, queries, np.where(np.arange(size) % 2, -1.0, 1.0), 2)
    assert true > violated > printed_above_threshold(2, *GAUSSIAN)
    for coupling in (1.0, "best"):
        assert true <= rdp_above_threshold(2, *GAUSSIAN, size, coupling=coupling)


def test_printed_theorem_2_is_its_formula():
    orders = np.array([1.5, 2.0, 40.0])
    both = rdp_laplace(orders, 0.5) + rdp_laplace(orders, 0.5)
    np.testing.assert_allclose(printed_above_threshold(orders, *LAPLACE), both)


# --- the bound against the exact law ---


@st.composite
def neighbouring_queries(draw):
    """Return queries in units of the larger scale, and their changes in [-1, 1]."""
    size = draw(st.integers(1, 25))
    kind = draw(st.sampled_from(["random", "equal", "ramp", "spike"]))
    level = draw(st.floats(-6, 3))
    queries = np.full(size, level)
    if kind == "random":
        queries = np.array(draw(st.lists(st.floats(-6, 6), min_size=size, max_size=size)))
    elif kind == "ramp":
        queries += draw(st.floats(-5, 5)) * np.linspace(0, 1, size)
    elif kind == "spike":
        queries[draw(st.integers(0, size - 1))] += draw(st.floats(0, 10))
    if draw(st.booleans()):  # the corners, where the worst cases are
        step = draw(st.integers(0, size))
        changes = np.where(np.arange(size) < step, 1.0, -1.0)
        if draw(st.booleans()):
            changes = np.where(np.arange(size) % 2, 1.0, -1.0)
    else:
        changes = np.array(draw(st.lists(st.floats(-1, 1), min_size=size, max_size=size)))
    return queries, changes


@pytest.mark.slow
@given(
    neighbouring_queries(),
    st.sampled_from(["laplace", "gaussian"]),
    st.floats(-1, 2),
    st.floats(-1, 2),
    st.one_of(st.floats(1.01, 8), st.floats(8, 200)),
    st.sampled_from([0.0, 0.4, 1.0]),
)
def test_no_queries_cost_more_than_the_bound(pair, noise, log_first, log_second, order, coupling):
    first, second = 10.0**log_first, 10.0**log_second
    queries, changes = pair[0] * max(first, second), pair[1]
    true = exact(noise, first, second, queries, changes, order)
    cap = queries.size
    bound = rdp_above_threshold(order, noise, first, second, cap, coupling=coupling)
    assert true <= bound * (1 + 1e-9) + 1e-12
    if noise == "laplace":
        endless = rdp_above_threshold(order, noise, first, second, None, coupling=coupling)
        assert true <= endless * (1 + 1e-9) + 1e-12


@pytest.mark.slow
@given(
    neighbouring_queries(),
    st.floats(-1, 0),
    st.sampled_from(["laplace", "gaussian"]),
    st.floats(-1, 2),
    st.floats(-1, 2),
    st.one_of(st.floats(1.01, 8), st.floats(8, 200)),
    st.sampled_from([0.0, 0.4, 1.0]),
)
def test_queries_that_share_a_value_cost_less(
    pair, low, noise, log_first, log_second, order, coupling
):
    """All changes lie in one interval of length one."""
    first, second = 10.0**log_first, 10.0**log_second
    queries, changes = pair[0] * max(first, second), low + (pair[1] + 1.0) / 2.0
    true = exact(noise, first, second, queries, changes, order)
    setting = (order, noise, first, second, queries.size)
    bound = rdp_above_threshold(*setting, coupling=coupling, shared=True)
    assert true <= bound * (1 + 1e-9) + 1e-12


@functools.cache
def worst_found(noise, first, second, size, order, seed=0):
    """Return the largest exact cost over ramps with two kinds of changes."""
    rng, scale = np.random.default_rng(seed), max(first, second)
    alternating = np.where(np.arange(size) % 2, -1.0, 1.0)
    worst = 0.0
    for _ in range(60):
        queries = scale * (rng.uniform(-4, 1) + rng.uniform(0, 2) * np.linspace(0, 1, size))
        last = np.where(np.arange(size) < size - 1, 1.0, -1.0)
        for changes in (alternating, last):
            worst = max(worst, exact(noise, first, second, queries, changes, order))
    return worst


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("first", [0.02, 0.5])
def test_with_little_noise_on_the_threshold_a_shared_value_saves_nothing(noise, first):
    """A query that moves by 1 shifts the threshold by 1/2, which little noise does not hide."""
    worst = max(exact(noise, first, 1.0, [x], [1.0], 4.0) for x in np.linspace(-3.0, 2.0, 26))
    bounds = [
        rdp_above_threshold(4.0, noise, first, 1.0, 1, coupling=coupling, shared=True)
        for coupling in (0.0, 0.5, "best")
    ]
    assert worst <= min(bounds)
    apart = rdp_above_threshold(4.0, noise, first, 1.0, 1, coupling="best")
    assert bounds[-1] <= apart


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("first", [0.02, 0.5])
def test_no_query_costs_more_than_the_bound(noise, shared, first):
    """A fast check: one query that moves by 1, and several that move as far apart as allowed."""
    changes = [[1.0], [-1.0], [0.5, -0.5, 0.5]] if shared else [[1.0], [1.0, -1.0, 1.0]]
    for moves in changes:
        levels = [np.full(len(moves), x) for x in (-1.0, 0.0, 0.5)]
        for order in (1.5, 4.0, 30.0):
            worst = max(exact(noise, first, 1.0, each, moves, order) for each in levels)
            for coupling in (0.0, 0.5, "best"):
                setting = (order, noise, first, 1.0, len(moves))
                bound = rdp_above_threshold(*setting, coupling=coupling, shared=shared)
                assert worst <= bound * (1.0 + 1e-9)


def test_a_grid_that_takes_too_much_memory_leaves_the_other_bounds(monkeypatch):
    def forget():
        for each in (module._bound, module._queries, module._queries_at_least):
            each.cache_clear()

    best = rdp_above_threshold(2.0, *LAPLACE, 21, coupling="best")
    forget()
    monkeypatch.setattr(module, "_MOST_POINTS", 100)
    rest = rdp_above_threshold(2.0, *LAPLACE, 21, coupling="best")
    forget()
    assert best < rest <= rdp_pure(2.0, 1.0)


@pytest.mark.slow
def test_the_shared_bound_needs_the_shared_value():
    """Changes by +1 and by -1 cost more than the shared bound, less than the general one."""
    for setting, order in ((LAPLACE, 40), (GAUSSIAN, 40)):
        found = worst_found(*setting, 5, order)
        assert found > rdp_above_threshold(order, *setting, 5, coupling="best", shared=True)
        assert found <= rdp_above_threshold(order, *setting, 5, coupling="best")


# Error -> arguments of the recursion; (setting, order, couplings).
MUTANTS = {
    "a query pays for a change by 1, not by 2": (
        lambda order, noise, scale, cap, shift: (order, noise, 2 * scale, cap, shift),
        (LAPLACE, 32, (1.0,)),
    ),
    "the threshold moves for nothing": (
        lambda order, noise, scale, cap, shift: (order, noise, scale, cap, 1.0),
        (LAPLACE, 32, (0.0,)),
    ),
    "only the last query counts": (
        lambda order, noise, scale, cap, shift: (order, noise, scale, 1, shift),
        (GAUSSIAN, 2, module._SHIFTS),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_wrong_bounds_are_caught(name, monkeypatch):
    """The search that finds no violation of the right bound refutes every wrong one."""
    mutate, (setting, order, shifts) = MUTANTS[name]
    found = worst_found(*setting, 5, order)
    right, bound = module._queries, module._bound.__wrapped__
    assert found <= bound(float(order), *setting, 5, shifts, False)
    monkeypatch.setattr(module, "_queries", lambda *arguments: right(*mutate(*arguments)))
    assert found > 1.01 * bound(float(order), *setting, 5, shifts, False)


@pytest.mark.slow
def test_the_best_coupling_is_close_to_the_truth():
    """The bound is within 1.75 of an exact cost, the classical bound at least 1.9 times larger."""
    for setting, order, factor in ((LAPLACE, 2, 1.75), (GAUSSIAN, 2, 1.4), (GAUSSIAN, 8, 1.5)):
        found = worst_found(*setting, 20, order)
        best = rdp_above_threshold(order, *setting, 20, coupling="best")
        assert found <= best <= factor * found
        assert rdp_above_threshold(order, *setting, 20) > 1.9 * best


# --- the recursion ---


def brute_force(noise, order, scale, caps, shift, nodes):
    """Run the recursion on one fine grid that contains the kinks; return its value at each cap."""
    logsf = {
        "laplace": lambda x: np.where(
            x > 0, -np.abs(x) - math.log(2), np.log1p(-0.5 * np.exp(-np.abs(x)))
        ),
        "gaussian": lambda x: special.log_ndtr(-x),
    }[noise]
    moves = ((1 + shift) / scale, (shift - 1) / scale)
    left, right = moves[1] - 40, moves[0] + 40
    if noise == "gaussian":
        left, right = order * moves[1] - 12, order * moves[0] + 15
    x = np.union1d(np.linspace(left, right, nodes), [0.0, *moves])
    halt = np.concatenate([order * logsf(x - m) + (1 - order) * logsf(x) for m in moves])
    stay = np.concatenate([order * logsf(m - x) + (1 - order) * logsf(-x) for m in moves])
    values = [0.0]
    for _ in range(max(caps)):
        values.append(float(np.logaddexp(halt, stay + values[-1]).max()))
    return [values[cap] / (order - 1) for cap in caps]


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("order", [1.3, 9, 120])
@pytest.mark.parametrize("scale", [0.3, 10.0])
@pytest.mark.parametrize("shift", [0.0, 0.375, 1.0])
def test_the_margin_covers_the_grid(noise, order, scale, shift):
    """A grid of 100 times as many points raises the bound by far less than the margin."""
    caps = (1, 13)
    finest = brute_force(noise, order, scale, caps, shift, 200_000)
    for cap, finer in zip(caps, finest, strict=True):
        found = module._queries(float(order), noise, scale, cap, shift)
        if math.isinf(found):  # not computed: other bounds are far better
            assert shift < 1 and order / scale > 20
            continue
        assert found >= finer * (1 - 0.2 * module._MARGIN)
        # Nor is the bound much above the maximum.
        assert found <= finer * (1 + 1e-4)


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("order", [1.3, 9.0, 120.0])
@pytest.mark.parametrize("shift", [0.0, 0.375, 1.0])
def test_the_recursion_is_never_below_one_query_after_the_other(noise, order, shift):
    """A coarse grid has smaller suprema; also where not halting is very unlikely."""
    for scale in (0.3, 1.0, 10.0):
        steps = brute_force(noise, order, scale, (1, 13), shift, 2000)
        for cap, below in zip((1, 13), steps, strict=True):
            assert module._queries(order, noise, scale, cap, shift) >= below * (1.0 - 1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("order", [1.3, 9.0, 120.0])
def test_leaving_couplings_out_loses_nothing(noise, order):
    """Couplings that are skipped cost more: the best of all is the minimum over each alone."""
    for first, second, cap in ((2.0, 4.0, 5), (30.0, 10.0, 200), (1.0, 300.0, 10**6)):
        several = module._queries_at_least(order, noise, second, float(cap), module._SHIFTS)
        for shift, least in zip(module._SHIFTS, several, strict=True):
            assert least <= module._queries(order, noise, second, float(cap), shift) * (1 + 1e-12)
        setting = (order, noise, first, second, cap)
        alone = [rdp_above_threshold(*setting, coupling=shift) for shift in module._SHIFTS]
        assert rdp_above_threshold(*setting, coupling="best") == min(alone)


@pytest.mark.slow
def test_many_queries_at_once_are_many_single_ones():
    """The walk along the hull equals the recursion query by query, also where it jumps far."""
    for noise, cap in (("laplace", 500), ("gaussian", 2000)):
        found = module._queries(3.0, noise, 2.0, cap, 1.0)
        (finer,) = brute_force(noise, 3.0, 2.0, [cap], 1.0, 30_000)
        assert found == pytest.approx(finer, rel=1e-5)


@pytest.mark.parametrize("cap", [10**6, 10**18, 10**40])
def test_very_many_gaussian_queries_cost_no_less_than_equal_ones(cap):
    """Single steps no longer change W in floating point, and would be made without an end."""
    order, scale = 2.0, 10.0
    cost = module._queries(order, "gaussian", scale, float(cap), 1.0)
    with mp.workdps(120):
        for x in mp.linspace(0, 20, 81):  # the worst are near sqrt(2 ln cap)
            off, on = mp.ncdf(-x), mp.ncdf(mp.mpf(2) / 10 - x)
            halts, stays = on**2 / off, (1 - on) ** 2 / (1 - off)
            W = (halts + stays - 1) * (1 - stays**cap) / (1 - stays)
            assert mp.log(1 + W) <= cost * (1.0 + module._MARGIN)
    assert cost <= rdp_gaussian(order, scale / 2.0) + math.log(cap) / (order - 1.0)


def test_the_bound_without_a_cap_is_the_limit():
    for coupling in (0.0, 0.25, 1.0):
        capped = [
            rdp_above_threshold(2, *LAPLACE, cap, coupling=coupling) for cap in (5, 50, 10**9)
        ]
        assert capped == sorted(capped)
        endless = rdp_above_threshold(2, *LAPLACE, None, coupling=coupling)
        assert endless == pytest.approx(capped[-1], rel=1e-9)
        assert rdp_above_threshold(2, *LAPLACE, math.inf, coupling=coupling) == endless


@pytest.mark.parametrize("order", [1.5, 8.0])
@pytest.mark.parametrize("cap", [1, 10**9])
def test_where_the_recursion_is_too_expensive_a_closed_form_covers_it(order, cap):
    """Little noise on the queries; the threshold has so much that its cost is negligible."""
    scale = 0.9 * 2.0 * order / module._WIDEST
    bound = rdp_above_threshold(order, "gaussian", 1e6, scale, cap, coupling=1.0)
    dear = module._queries(order, "gaussian", scale, float(cap), 1.0)
    cheapest = min(cap * rdp_gaussian(order, scale), dear)
    assert cheapest <= bound <= cheapest + 30.0 / (order - 1.0)


# --- properties of the function ---


scales = st.floats(-2, 4).map(lambda t: 10.0**t)


@pytest.mark.parametrize("scale", [1e-3, 1e-8, 1e-100])
def test_next_to_no_noise_costs_neither_time_nor_memory(scale):
    """A grid over the steps of 1/scale would take gigabytes; the pure bound is nearly exact."""
    cost = rdp_above_threshold([2.0, 8.0], "laplace", scale, scale, 100, coupling="best")
    assert np.all(cost <= (1.0 + 1e-12) * 3.0 / scale)
    assert np.all(cost >= 2.9 / scale)


@pytest.mark.slow
@given(
    st.sampled_from(["laplace", "gaussian"]), scales, scales, st.integers(1, 10**6),
    st.floats(1.01, 300),
)  # fmt: skip
@example("gaussian", 1e4, 1e-2, 10**6, 300.0)
@example("laplace", 1e-2, 1e4, 1, 1.01)
def test_the_bound_is_a_minimum_and_monotone(noise, first, second, cap, order):
    value = rdp_above_threshold(order, noise, first, second, cap)
    slack = 1 + 2e-6
    if noise == "laplace":
        simple = [
            cap * rdp_laplace(order, 1 / second),
            rdp_pure(order, 1 / first + 2 / second),
            rdp_laplace(order, 1 / first) + 2 / second,
        ]
        assert value <= rdp_above_threshold(math.inf, noise, first, second, cap) * slack
    else:
        threshold = rdp_gaussian(order, first)
        simple = [
            cap * rdp_gaussian(order, second),
            threshold + 4 * rdp_gaussian(order, second) + math.log(cap) / (order - 1),
        ]
    assert 0 < value <= min(simple) * (1 + 1e-12)
    assert value <= rdp_above_threshold(order, noise, first, second, cap + 1) * slack
    assert value <= rdp_above_threshold(order * 1.1, noise, first, second, cap) * slack
    assert rdp_above_threshold(order, noise, first, second * 1.1, cap) <= value * slack
    assert rdp_above_threshold(order, noise, first * 1.1, second, cap) <= value * slack


def test_orders_and_special_values():
    orders = np.array([[1.5, 2.0], [30.0, math.inf]])
    values = rdp_above_threshold(orders, *LAPLACE, 20)
    assert values.shape == (2, 2)
    assert values[0, 1] == rdp_above_threshold(2, *LAPLACE, 20)
    assert values[1, 1] == 1.0
    assert isinstance(rdp_above_threshold(2, *LAPLACE, 20), float)
    assert rdp_above_threshold(math.inf, *LAPLACE, 3) == 0.75  # three single releases
    assert rdp_above_threshold(math.inf, *GAUSSIAN, 3) == math.inf
    best = rdp_above_threshold(orders, *LAPLACE, 20, coupling="best")
    assert (best <= values).all() and best[0, 1] < 0.3 * values[0, 1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((1.0, *LAPLACE, 20), r"orders must lie in \(1, inf\], got 1.0"),
        ((2, "cauchy", 1.0, 1.0, 20), "noise must be one of 'laplace', 'gaussian', got 'cauchy'"),
        ((2, "laplace", 0.0, 1.0, 20), r"threshold_scale must lie in \(0, inf\), got 0.0"),
        ((2, "laplace", 1.0, math.nan, 20), "query_scale must lie in"),
        ((2, *LAPLACE, 0), "max_queries must be at least 1, got 0"),
        ((2, *GAUSSIAN, None), "max_queries must be finite with Gaussian noise, got None"),
        ((2, *GAUSSIAN, math.inf), "max_queries must be finite with Gaussian noise, got inf"),
    ],
)
def test_bad_arguments_are_named(arguments, words):
    with pytest.raises(ValueError, match=words):
        rdp_above_threshold(*arguments)


def test_bad_kinds_are_named():
    with pytest.raises(TypeError, match=r"max_queries must be an integer, got 2\.5"):
        rdp_above_threshold(2, *LAPLACE, 2.5)
    with pytest.raises(ValueError, match=r"coupling.*must lie in \[0, 1\], got 1.5"):
        rdp_above_threshold(2, *LAPLACE, 2, coupling=1.5)
    with pytest.raises(TypeError, match=r"coupling.*got 'worst'"):
        rdp_above_threshold(2, *LAPLACE, 2, coupling="worst")
