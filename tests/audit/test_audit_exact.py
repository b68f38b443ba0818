"""Exact divergences and their error bounds against closed forms in many digits."""

import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats

from dpanalysis.audit import (
    Density,
    assertions,
    hockey_stick,
    privacy_profile,
    renyi_divergence,
    sensitivity,
)
from dpanalysis.audit.exact import _divergence
from dpanalysis.audit.quadrature import NODES, integrate
from dpanalysis.audit.strategies import neighbouring_datasets

DIGITS = 60


def gaussian(mean, std):
    return Density(
        lambda x: -0.5 * ((x - mean) / std) ** 2 - math.log(std * math.sqrt(2 * math.pi)), (mean,)
    )


def laplace(mean, scale):
    return Density(lambda x: -np.abs(x - mean) / scale - math.log(2 * scale), (mean,))


def laplace_renyi(d, order):
    if order == 1:
        return d + mp.exp(-d) - 1
    terms = order * mp.exp((order - 1) * d) + (order - 1) * mp.exp(-order * d)
    return mp.log(terms / (2 * order - 1)) / (order - 1)


def gaussian_delta(d, epsilon):
    return mp.ncdf(d / 2 - epsilon / d) - mp.exp(epsilon) * mp.ncdf(-d / 2 - epsilon / d)


def laplace_delta(d, epsilon):
    return 1 - mp.exp((epsilon - d) / 2) if epsilon < d else mp.mpf(0)


scales = st.floats(-12, 12).map(lambda t: 10.0**t)
distances = st.floats(-3, math.log10(50)).map(lambda t: 10.0**t)
orders = st.one_of(st.just(1.0), st.floats(-6, 0).map(lambda t: 1 + 10**t), st.floats(1.01, 500))
epsilons = st.one_of(st.just(0.0), st.floats(-3, math.log10(50)).map(lambda t: 10.0**t))
shifts = st.one_of(st.just(0.0), st.floats(-1e6, 1e6))  # in units of the scale


def centers(scale, distance, shift):
    """Return two float centers and their exact distance in units of the scale."""
    second = shift * scale
    first = second + distance * scale
    with mp.workdps(DIGITS):
        return first, second, (mp.mpf(first) - mp.mpf(second)) / mp.mpf(scale)


@pytest.mark.slow
@given(scales, distances, orders, shifts)
@example(1.0, 50.0, 500.0, 0.0)
@example(1e-12, 1e-3, 1.0, 1e6)
def test_renyi_divergence_is_within_its_error(scale, distance, order, shift):
    first, second, d = centers(scale, distance, shift)
    with mp.workdps(DIGITS):
        exact = {gaussian: mp.mpf(order) * d * d / 2, laplace: laplace_renyi(d, mp.mpf(order))}
        for family, truth in exact.items():
            value, error = renyi_divergence(
                family(first, scale), family(second, scale), order, full_output=True
            )
            assert abs(value - truth) <= error
            # The error bound is useful: near what rounding this far from zero allows.
            assert error <= 1e-9 * truth * (1 + abs(shift)) / min(1.0, distance)


def gaussian_renyi(shift, first, second, order):
    """Closed form from N(0, first**2) to N(shift, second**2), where it is finite."""
    between = order * second**2 + (1 - order) * first**2
    volume = mp.log(second / first) + mp.log(second**2 / between) / (2 * (order - 1))
    return volume + order * shift**2 / (2 * between)


@pytest.mark.slow
@pytest.mark.parametrize("order", [1.0001, 17.3, 500.0])
@given(scales, st.floats(1.001, 20), st.floats(0, 10))
@example(1.0, 4.0, 0.0)
@example(1e-6, 1.3, 1.5)
def test_a_wider_law_is_within_its_error(order, scale, wider, shift):
    # In the tails ln p/q is of the size of ln p; times the order its exponential overflows.
    value, error = renyi_divergence(
        gaussian(0, scale), gaussian(shift * scale, wider * scale), order, full_output=True
    )
    with mp.workdps(DIGITS):
        first, second = mp.mpf(scale), mp.mpf(wider * scale)
        truth = gaussian_renyi(mp.mpf(shift * scale), first, second, mp.mpf(order))
        assert abs(value - truth) <= error
    assert error <= 1e-7 * (1 + truth)


@pytest.mark.slow
@given(scales, distances, epsilons, shifts)
@example(1.0, 1.0, 50.0, 0.0)
@example(1.0, 50.0, 49.999, 0.0)
@example(56.23413251903491, 33.982083289425596, 33.982083289425596, 0.0)
def test_hockey_stick_is_within_its_error(scale, distance, epsilon, shift):
    first, second, d = centers(scale, distance, shift)
    with mp.workdps(DIGITS):
        exact = {gaussian: gaussian_delta(d, epsilon), laplace: laplace_delta(d, epsilon)}
        for family, truth in exact.items():
            value, error = hockey_stick(
                family(first, scale), family(second, scale), epsilon, full_output=True
            )
            assert abs(value - truth) <= error + 1e-320
            assert error <= 1e-9 * (1 + abs(shift))


@pytest.mark.parametrize("epsilon", [10.0, 20.0, 35.0])
def test_tiny_deltas_are_accurate_relative_to_themselves(epsilon):
    with mp.workdps(400):
        truth = gaussian_delta(mp.mpf(1), mp.mpf(epsilon))
    assert hockey_stick(gaussian(1, 1), gaussian(0, 1), epsilon) == pytest.approx(
        float(truth), rel=1e-11
    )


@pytest.mark.parametrize("order", [1, 1.5, 2, 5])
def test_heavy_tails(order):
    value, error = renyi_divergence(stats.cauchy(1), stats.cauchy(0), order, full_output=True)
    density = [lambda x, c=c: 1 / (mp.pi * (1 + (x - c) ** 2)) for c in (1, 0)]
    if order == 1:
        truth = mp.log(mp.mpf(5) / 4)
    else:
        moment = mp.quad(
            lambda x: density[0](x) ** order * density[1](x) ** (1 - order),
            [-mp.inf, -1, 0, 1, 2, 4, mp.inf],
        )
        truth = mp.log(moment) / (order - 1)
    assert abs(value - truth) <= error + 1e-14
    assert error < 1e-11


def test_a_pole_is_within_its_error():
    """Density |x - 1|**-.4, up to a factor: some mass is nearer to 1 than the next float."""
    pole = Density(lambda x: -0.4 * np.log(np.abs(x - 1)) - math.log(2 / 0.6), (1.0,), (0.0, 2.0))
    flat = Density(lambda x: np.full_like(x, -math.log(2)), (), (0.0, 2.0))
    for order in (1.2, 1.5, 2.0):
        truth = math.log(2 ** (order - 1) * 2 / (1 - 0.4 * order) / (2 / 0.6) ** order)
        value, error = renyi_divergence(pole, flat, order, full_output=True)
        assert abs(value - truth / (order - 1)) <= error < 0.01
    assert renyi_divergence(pole, flat, 2.6) == math.inf
    assert renyi_divergence(stats.gamma(0.5), stats.gamma(1.0), 2) == math.inf


@pytest.mark.slow
def test_kinks_without_a_declared_point():
    """A frozen scipy distribution does not declare the kink of its triangular density."""
    for c in (0.1, 0.37, 0.5004):
        triangle, flat = stats.triang(c), stats.uniform(0, 1)
        for order in (2, 7):
            value, error = renyi_divergence(triangle, flat, order, full_output=True)
            truth = math.log(2**order / (order + 1)) / (order - 1)
            assert abs(value - truth) <= error < 1e-10


def test_a_flat_part_of_the_ratio_at_the_level_ends_at_its_edge():
    """Beyond 101 ln p/q is -1, so that p - q/e is 0; no declared point says where."""
    p, q = (Density(lambda x, c=c: laplace(c, 1.0)(x)) for c in (100.0, 101.0))
    value, error = hockey_stick(p, q, -1.0, full_output=True)
    assert abs(value - (1.0 - math.exp(-1.0))) <= error < 1e-13


GAP = -math.log(2.0 * stats.norm.cdf(-0.3))  # of a normal density without what is within .3


def test_infinite_and_zero_divergences():
    wide, narrow = gaussian(0, 2), gaussian(0, 1)
    # Finite up to order 4/3.
    with mp.workdps(30):
        a, variance = mp.mpf("1.3"), mp.mpf("1.3") - mp.mpf("0.3") * 4
        truth = float(-mp.log(2) - mp.log(variance) / (2 * (a - 1)))
    assert renyi_divergence(wide, narrow, 1.3) == pytest.approx(truth, rel=1e-12)
    assert renyi_divergence(wide, narrow, 1.34) == math.inf
    assert renyi_divergence(wide, narrow, math.inf) == math.inf
    assert renyi_divergence(narrow, wide, math.inf) == pytest.approx(math.log(2))
    assert renyi_divergence(stats.uniform(0, 2), stats.uniform(0, 1), 2) == math.inf
    gap = Density(lambda x: np.where(abs(x) < 0.3, -math.inf, narrow(x) + GAP), (0.0,))
    assert renyi_divergence(narrow, gap, 2) == renyi_divergence(narrow, gap, math.inf) == math.inf
    assert renyi_divergence(gap, narrow, math.inf) == pytest.approx(GAP)
    assert renyi_divergence(stats.uniform(0, 1), stats.uniform(0, 2), 7) == pytest.approx(
        math.log(2), rel=1e-14
    )
    hole = Density(
        lambda x: np.where((x > 0) & (x < 1), -np.inf, stats.norm.logpdf(x) - math.log(0.658655)),
        (0.0, 1.0),
    )
    assert renyi_divergence(narrow, _normalized(hole, 1 - (stats.norm.cdf(1) - 0.5)), 2) == math.inf
    for order in (1, 2, 500, math.inf):
        assert renyi_divergence(narrow, narrow, order) == 0.0
        assert renyi_divergence([0.5, 0.5], [1.0, 0.0], order) == math.inf
        assert renyi_divergence([1.0, 0.0], [0.5, 0.5], order) == pytest.approx(math.log(2))
    assert hockey_stick(narrow, narrow, 0.0) == 0.0
    assert hockey_stick(stats.uniform(0, 2), stats.uniform(0, 1), math.inf) == pytest.approx(0.5)
    assert hockey_stick(stats.norm(1), stats.norm(0), math.inf) == 0.0


def _normalized(hole, mass):
    return Density(
        lambda x: np.where((x > 0) & (x < 1), -np.inf, stats.norm.logpdf(x) - math.log(mass)),
        hole.points,
    )


@pytest.mark.parametrize("mean", [1e-4, 0.3, 7.0])
def test_supremum_of_the_log_ratio(mean):
    value, error = renyi_divergence(laplace(mean, 1), laplace(0, 1), math.inf, full_output=True)
    assert abs(value - mean) <= error < 1e-9
    assert renyi_divergence(stats.logistic(mean), stats.logistic(0), math.inf) == pytest.approx(
        mean
    )
    # An interior maximum, of the density ratio (1 + x**2)/(1 + (x - m)**2).
    best = (mean + math.sqrt(mean**2 + 4)) / 2
    truth = math.log((1 + best**2) / (1 + (best - mean) ** 2))
    assert renyi_divergence(stats.cauchy(mean), stats.cauchy(0), math.inf) == pytest.approx(
        truth, rel=1e-9
    )


laws = (
    st.integers(2, 8)
    .flatmap(lambda m: st.tuples(*[st.lists(st.integers(0, 50), min_size=m, max_size=m)] * 2))
    .filter(lambda pair: all(sum(law) > 0 for law in pair))
)


@given(laws, st.integers(1, 60), st.floats(0.0, 5.0))
def test_finite_laws_against_fractions(pair, order, epsilon):
    p, q = ([Fraction(x, sum(law)) for x in law] for law in pair)
    floats = [np.array([float(x) for x in law]) for law in (p, q)]
    value, error = renyi_divergence(*floats, order, full_output=True)
    with mp.workdps(40):
        rational = [[mp.mpf(x.numerator) / x.denominator for x in law] for law in (p, q)]
        both = [(x, y) for x, y in zip(*rational) if x > 0]
        if any(y == 0 for _, y in both):
            assert value == math.inf
        else:
            if order == 1:
                truth = mp.fsum(x * mp.log(x / y) for x, y in both)
            else:
                moment = mp.fsum(x**order * y ** (1 - order) for x, y in both)
                truth = mp.log(moment) / (order - 1)
            assert abs(value - truth) <= error + 1e-30
            assert error < 1e-12 * (1 + value)
        stick, error = hockey_stick(*floats, epsilon, full_output=True)
        scale = mp.exp(mp.mpf(epsilon))
        truth = mp.fsum(max(x - scale * y, 0) for x, y in zip(*rational))
        assert abs(stick - truth) <= error + 1e-30
        assert error < 1e-12


def test_nearly_equal_laws_keep_their_digits():
    """A difference of 1e-9 gives a divergence of 1e-18, which a sum of powers rounds away."""
    p, q = np.array([0.5 + 2.0**-30, 0.5 - 2.0**-30]), np.array([0.5, 0.5])
    t = mp.mpf(2) ** -29
    with mp.workdps(60):
        truth = float(mp.log(((1 + t) ** 3 + (1 - t) ** 3) / 2) / 2)
    assert renyi_divergence(p, q, 3) == pytest.approx(truth, rel=1e-12)


@given(laws, st.lists(st.floats(1, 200), min_size=2, max_size=2), st.floats(0, 4))
def test_laws_of_divergences(pair, two, epsilon):
    """Monotone in the order; no gain from merging outcomes; duality of the profile."""
    p, q = (np.array(law) / sum(law) for law in pair)
    low, high = sorted(two)
    larger = renyi_divergence(p, q, high)
    assert renyi_divergence(p, q, low) <= larger + 1e-12 * (1 + min(larger, 1e300))
    merged = [np.array([law[0] + law[1], *law[2:]]) for law in (p, q)]
    assert renyi_divergence(*merged, low) <= renyi_divergence(p, q, low) + 1e-12
    stick = hockey_stick(p, q, epsilon)
    assert hockey_stick(*merged, epsilon) <= stick + 1e-15
    other = 1 - math.exp(epsilon) + math.exp(epsilon) * hockey_stick(q, p, -epsilon)
    assert stick == pytest.approx(other, abs=1e-13 * math.exp(epsilon))
    assert stick >= np.max(p - math.exp(epsilon) * q) - 1e-15


def test_the_largest_log_ratio_has_a_direction():
    p, q = [0.9, 0.1], [0.5, 0.5]
    assert renyi_divergence(p, q, math.inf) == pytest.approx(math.log(1.8), rel=1e-15)
    assert renyi_divergence(q, p, math.inf) == pytest.approx(math.log(5), rel=1e-15)


@pytest.mark.parametrize("distance", [1e-5, 1e-7, 1e-9])
@pytest.mark.parametrize("order", [1, 2, 64])
def test_error_bounds_of_nearly_equal_densities_cover_the_rounding(distance, order):
    value, error = renyi_divergence(
        gaussian(distance, 1.0), gaussian(0.0, 1.0), order, full_output=True
    )
    truth = 0.5 * order * distance**2
    assert abs(value - truth) <= error <= truth * 1e-14 / distance


@pytest.mark.parametrize(("relative", "least"), [(0.5, math.log(1.5)), (1.0, 0.0)])
def test_the_error_of_a_rough_moment_is_that_of_the_worse_side(relative, least):
    """A moment of 1 off by half is 1/2 or 3/2, and ln(1 + 1/2) is farther from ln 2."""
    value, error = _divergence(0.0, relative, 2.0)
    assert value - least <= error <= 1.001 * (value - least)


def test_outcomes_at_the_level_itself_are_in_the_error():
    """Ratios equal e**epsilon up to rounding, which decides whether an outcome counts."""
    rng = np.random.default_rng(0)
    for _ in range(300):
        q = rng.dirichlet(np.ones(6))
        epsilon = float(rng.uniform(0, 0.6))
        p = np.where(np.arange(6) < 3, q * math.exp(epsilon), 0.0)
        p[-1] = 1.0 - math.fsum(p[:3])
        if p[-1] < 0.0:
            continue
        value, error = hockey_stick(p, q, epsilon, full_output=True)
        with mp.workdps(DIGITS):
            level = mp.exp(mp.mpf(epsilon))
            gaps = [mp.mpf(float(a)) - level * mp.mpf(float(b)) for a, b in zip(p, q, strict=True)]
            assert abs(value - sum(max(gap, 0) for gap in gaps)) <= error
        assert error < 1e-13


def test_a_density_ends_where_its_support_does():
    """Values of the function outside the support are ignored."""
    narrow = Density(np.zeros_like, support=(0.0, 1.0))
    for low, high in ((0.0, 2.0), (-1.0, 1.0)):
        wide = Density(lambda x: np.full_like(x, -math.log(2)), support=(low, high))
        for order in (1, 2, 64, math.inf):
            assert renyi_divergence(narrow, wide, order) == pytest.approx(math.log(2), rel=1e-12)
            assert renyi_divergence(wide, narrow, order) == math.inf
        assert hockey_stick(narrow, wide, 0.0) == pytest.approx(0.5, rel=1e-12)
        assert hockey_stick(wide, narrow, 3.0) == pytest.approx(0.5, rel=1e-12)


@pytest.mark.parametrize("order", [1, 2, 64])
def test_mass_of_either_law_that_is_narrow_and_far_away_is_seen(order):
    """Half of one law is where the other has no mass; only the points of the first show it."""
    spike = gaussian(1e3, 1e-6)

    def half(x):
        return np.logaddexp(gaussian(0.0, 1.0)(x), spike(x)) - math.log(2)

    mixed, plain = Density(half, (0.0, 1e3)), gaussian(0.0, 1.0)
    # Floats beside 1e3 are 1e-7 of the spike's width apart.
    assert renyi_divergence(plain, mixed, order) == pytest.approx(math.log(2), rel=1e-7)
    assert renyi_divergence(mixed, plain, order) > 1e4
    assert hockey_stick(plain, mixed, 0.0) == pytest.approx(0.5, rel=1e-7)
    assert hockey_stick(mixed, plain, 5.0) == pytest.approx(0.5, rel=1e-7)


@pytest.mark.slow
def test_privacy_profile_takes_the_larger_direction():
    p, q = stats.expon(0, 1), stats.expon(0, 2)
    levels = np.array([[0.0, 0.3], [0.6, 2.0]])
    profile = privacy_profile(p, q, levels)
    assert profile.shape == (2, 2)
    one = np.array([hockey_stick(p, q, e) for e in levels.flat])
    two = np.array([hockey_stick(q, p, e) for e in levels.flat])
    assert one[1] != pytest.approx(two[1])
    np.testing.assert_array_equal(profile.ravel(), np.maximum(one, two))
    # P(S) - e**eps Q(S) in closed form, with S all x below the point where p = e**eps q.
    cut = 2 * (math.log(2) - 0.3)
    assert one[1] == pytest.approx(-math.expm1(-cut) + math.exp(0.3) * math.expm1(-cut / 2))
    assert privacy_profile(p, q, 0.3) == profile[0, 1]


def test_the_rule_is_kronrods():
    """Exact for polynomials up to degree 22, on any interval."""
    for degree in range(0, 23, 2):
        value, _ = integrate(
            lambda x, k=degree: (_log(x**k)[:, None], np.zeros((1, 1))), NODES[[0, -1]]
        )
        truth = math.log(2 * NODES[-1] ** (degree + 1) / (degree + 1))
        assert value[0] == pytest.approx(truth, abs=1e-13)


def _log(x):
    with np.errstate(divide="ignore"):
        return np.log(x)


@pytest.mark.slow
@given(st.floats(0, 9), st.floats(-5, 5), st.floats(-10, -1))
@example(math.log10(2325.542838537787), -1.607464857631422, -3.417)
def test_error_estimates_of_rough_integrals_are_large_enough(log_sharp, at, log_rtol):
    """A kink that is not declared, and a peak as narrow as 1e-9: errors within the estimate."""
    sharp, rtol = 10.0**log_sharp, 10.0**log_rtol
    log_value, error = integrate(
        lambda x: (-sharp * np.abs(x - at)[:, None], np.zeros((1, 1))),
        np.array([-50.0, 70.0]),
        rtol=rtol,
    )
    ratio = math.exp(log_value[0]) / (2 / sharp)
    assert abs(ratio - 1) <= error[0] * ratio + 1e-14
    assert error[0] <= 100 * rtol + 1e-14 * sharp


def test_a_peak_that_was_not_resolved_is_in_the_error():
    """All nodes are e**90 below it, and max_nodes allows no split of the panel."""

    def log_f(x):
        flat = np.where(x < 1.0, -100.0, -np.inf)
        return np.logaddexp(-1e4 * np.abs(x - 1.37), flat)[:, None], np.zeros((1, 1))

    edges, truth = np.array([0.0, 1.0, 2.0]), math.log(2e-4)
    value, error = integrate(log_f, edges)
    assert value[0] == pytest.approx(truth, abs=1e-12)
    value, error = integrate(log_f, edges, max_nodes=100)
    assert value[0] < truth - 1.0
    assert truth <= value[0] + math.log1p(error[0])


@pytest.mark.parametrize("slope", [1.0, 10.0, 300.0])
def test_the_error_is_at_least_that_of_the_integrand(slope):
    """An integrand that is off by a factor everywhere has an integral that is off as much."""
    off = 1e-7
    log_value, error = integrate(
        lambda x: (slope * x[:, None] + math.log1p(off), np.array([[off]])), np.array([-1.0, 1.0])
    )
    truth = math.log(2.0 * math.sinh(slope) / slope)
    assert off * (1.0 - 1e-6) < math.expm1(log_value[0] - truth) < error[0] < 2.0 * off


@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_a_kink_behind_the_last_node_is_found(side):
    """The function is constant at all nodes of the panel."""
    kink, slope = 0.9995, 1e3
    log_value, error = integrate(
        lambda x: (np.log1p(slope * np.maximum(side * x - kink, 0.0))[:, None], np.zeros((1, 1))),
        np.array([-1.0, 1.0]),
    )
    truth = 2.0 + 0.5 * slope * (1.0 - kink) ** 2
    assert abs(math.exp(log_value[0]) / truth - 1.0) <= error[0] <= 1e-12


def test_several_integrals_at_once_are_each_accurate():
    """Peaks differ in size by up to e**500, and each integral has a small relative error."""
    at, height = np.array([-30.0, 0.3, 41.0]), np.array([0.0, -500.0, -250.0])

    def log_f(x):
        return height - 0.5 * (x[:, None] - at) ** 2 * 1e4, np.zeros((1, 1))

    log_value, error = integrate(log_f, np.array([-60.0, 80.0]))
    np.testing.assert_allclose(
        log_value, height + 0.5 * math.log(2 * math.pi) - math.log(100), atol=1e-12
    )
    assert (error < 1e-11).all()


@pytest.mark.parametrize(
    ("p", "q", "order", "words"),
    [
        ([0.5, 0.5], [0.5, 0.4], 2, "q must sum to 1 .*0.9"),
        ([0.5, 0.5], [1.5, -0.5], 2, "q must have no negative entry, got -0.5"),
        ([0.5, 0.5], [1.0], 2, "same outcomes, got 2 and 1"),
        ([0.5, math.nan], [0.5, 0.5], 2, "p must be finite, got 1 NaN"),
        ([[0.5, 0.5]], [0.5, 0.5], 2, r"p must have shape \(m,\)"),
        ([], [], 2, r"p must have shape \(m,\)"),
        ([0.5, 0.5], [0.5, 0.5], 0, r"order must lie in \[1, inf\], got 0"),
        ([0.5, 0.5], [0.5, 0.5], -2, r"order must lie in \[1, inf\], got -2"),
        ([0.5, 0.5], [0.5, 0.5], math.nan, "order must lie in"),
        (gaussian(0, 1), Density(lambda x: -np.abs(x)), 2, "q must integrate to 1 .*2.0"),
        (gaussian(0, 1), Density(lambda x: np.full_like(x, -1.0)), 2, "q must integrate to 1"),
        (Density(lambda x: x * math.nan), gaussian(0, 1), 2, "p must integrate to 1|NaN"),
        (Density(lambda x: 0.0), gaussian(0, 1), 2, "logpdf must return one value a point"),
    ],
)
def test_bad_laws_are_named(p, q, order, words):
    with pytest.raises(ValueError, match=words):
        renyi_divergence(p, q, order)


def test_a_density_that_is_no_number_in_places_is_named():
    law = gaussian(0, 1)
    holes = Density(lambda x: np.where(abs(x) < 1e-3, math.nan, law(x)), (0.0,))
    for p, q in ((law, holes), (holes, law)):
        with pytest.raises(ValueError, match="NaN"):
            renyi_divergence(p, q, 2)
    narrow = Density(lambda x: np.where(abs(x - 3.3) < 1e-5, math.nan, law(x)), (0.0,))
    with pytest.raises(ValueError, match=r"must not return NaN, got one at x = 3\.[23]"):
        renyi_divergence(gaussian(3.3, 1e-3), narrow, 2)  # where the mass of q alone is not sought


def test_bad_kinds_are_named():
    with pytest.raises(TypeError, match="both be probabilities or both densities"):
        renyi_divergence([1.0], gaussian(0, 1), 2)
    with pytest.raises(TypeError, match="order must be a number, got '2'"):
        renyi_divergence([1.0], [1.0], "2")
    with pytest.raises(ValueError, match="epsilon must lie in"):
        hockey_stick([1.0], [1.0], math.nan)
    with pytest.raises(TypeError, match="logpdf must be a function"):
        Density(3.0)
    with pytest.raises(ValueError, match="points must be finite"):
        Density(np.abs, (math.inf,))
    with pytest.raises(ValueError, match="support must be a pair"):
        Density(np.abs, (), (1.0, 1.0))
    # Mass without a declared point is missed, and the total mass shows it.
    spiked = Density(
        lambda x: np.logaddexp(
            math.log(0.9) + stats.norm.logpdf(x), math.log(0.1) + stats.norm.logpdf(x, 1e5, 1e-3)
        )
    )
    with pytest.raises(ValueError, match=r"p must integrate to 1 within 1e-08, got 0.[89]"):
        renyi_divergence(spiked, gaussian(0, 1e5), 2)
    for excess in (1e-6, -1e-6):
        moved = Density(lambda x, excess=excess: gaussian(0, 1)(x) + excess)
        with pytest.raises(ValueError, match="q must integrate to 1"):
            renyi_divergence(gaussian(0, 1), moved, 2)


def test_a_density_that_changed_is_integrated_again():
    excess = [0.0]
    law = Density(lambda x: gaussian(0, 1)(x) + excess[0], (0.0,))
    assert renyi_divergence(law, gaussian(1, 1), 2) == pytest.approx(1.0)
    excess[0] = 1.0
    with pytest.raises(ValueError, match="p must integrate to 1"):
        renyi_divergence(law, gaussian(1, 1), 2)


@pytest.mark.parametrize("support", [(-math.inf, 60.0), (-60.0, math.inf)])
def test_a_mass_too_small_for_doubles_where_q_has_none_counts(support):
    cut = Density(gaussian(0, 1).logpdf, (0.0,), support)
    assert renyi_divergence(gaussian(0, 1), cut, 2) == math.inf
    assert renyi_divergence(cut, gaussian(0, 1), 2) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("order", [1, 2, math.inf])
def test_an_outcome_without_q_counts_however_rare_it_is(order):
    assert renyi_divergence([1.0, 1e-310], [1.0, 0.0], order) == math.inf


# --- sensitivity ---


def test_sensitivity_of_a_histogram_and_of_a_mean():
    data = [0, 1, 1, 2]
    removed = [(data, data[:i] + data[i + 1 :]) for i in range(4)]
    replaced = [(data, [*data[:i], x, *data[i + 1 :]]) for i in range(4) for x in range(3)]

    def histogram(d):
        return np.bincount(d, minlength=3)

    assert sensitivity(histogram, removed, 1) == 1.0
    assert sensitivity(histogram, replaced, 1) == 2.0
    assert sensitivity(histogram, replaced, 2) == pytest.approx(math.sqrt(2))
    assert sensitivity(histogram, replaced, math.inf) == 1.0
    value, pair = sensitivity(np.mean, replaced, 1, full_output=True)
    assert value == 0.5
    assert abs(np.mean(pair[0]) - np.mean(pair[1])) == 0.5


@given(st.lists(st.floats(-1e150, 1e150), min_size=1, max_size=6), st.floats(1, 50))
def test_sensitivity_norms(vector, order):
    value = sensitivity(np.array, [(vector, [0.0] * len(vector))], order)
    largest = max(abs(x) for x in vector)
    with mp.workdps(50):
        truth = mp.fsum(mp.mpf(abs(x)) ** order for x in vector) ** (1 / mp.mpf(order))
    assert value == pytest.approx(float(truth), rel=1e-12)
    assert value >= largest


def test_sensitivity_names_the_pair():
    pairs = [([1.0], [2.0]), ([0.0], [1.0])]
    with pytest.raises(ValueError, match=r"pair 1\[0\].*finite, got 1 NaN"):
        sensitivity(lambda d: _log(np.array(d)), pairs, 2)
    with pytest.raises(ValueError, match=r"pair 1 gave \(0,\) and \(1,\)"):
        sensitivity(np.flatnonzero, pairs, 2)
    with pytest.raises(ValueError, match="at least one pair"):
        sensitivity(np.mean, [], 2)
    with pytest.raises(TypeError, match="number 0 is 3"):
        sensitivity(np.mean, [3], 2)
    with pytest.raises(ValueError, match=r"norm must lie in \[1, inf\], got 0.5"):
        sensitivity(np.mean, pairs, 0.5)
    with pytest.raises(TypeError, match="array of real numbers"):
        sensitivity(lambda d: "text", pairs, 1)
    with pytest.raises(TypeError, match="function must be callable, got 3"):
        sensitivity(3, pairs, 1)
    with pytest.raises(TypeError, match=r"neighbours must be pairs of data sets .* got None"):
        sensitivity(np.mean, None, 1)
    with pytest.raises(TypeError, match="number 0 is array"):  # not the two rows of a data set
        sensitivity(np.mean, (np.zeros((2, 1)), np.ones((2, 1))), 1)


@pytest.mark.slow
def test_sensitivity_over_a_strategy(monkeypatch):
    monkeypatch.setattr(assertions, "_DRAWN", 150)  # pairs, instead of a thousand
    pairs = neighbouring_datasets(n=(1, 4), d=2)
    found = sensitivity(lambda data: data[0].sum(axis=0), pairs, 2)
    assert found == pytest.approx(2.0)  # opposite ends of the unit ball


def plain_gaussian(mean, std=1.0):
    def pdf(x):
        return np.exp(-(((x - mean) / std) ** 2) / 2) / (std * math.sqrt(2 * math.pi))

    return pdf


def scalar_gaussian(x):
    return math.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)


def uniform(low, high):
    return lambda x: 1.0 / (high - low) if low <= x <= high else 0.0


@pytest.mark.slow
def test_plain_densities_give_what_their_logarithms_give():
    plain, log = plain_gaussian(1), (stats.norm(1), stats.norm(0))
    for q in (plain_gaussian(0), scalar_gaussian, stats.norm(0), stats.norm(0).pdf):
        assert renyi_divergence(plain, q, 4) == pytest.approx(2.0, rel=1e-12)
        assert hockey_stick(plain, q, 1.0) == pytest.approx(hockey_stick(*log, 1.0), rel=1e-12)
    assert renyi_divergence(log[0].pdf, log[1].pdf, 40) == pytest.approx(20.0, rel=1e-12)
    mixed = [
        lambda x, c=c: 0.5 * plain_gaussian(-c)(x) + 0.5 * plain_gaussian(c)(x) for c in (5, 6)
    ]
    whole = hockey_stick(stats.norm(1), stats.norm(0), 0.0)
    assert hockey_stick(*mixed, 0.0) == pytest.approx(whole, rel=1e-5)
    assert renyi_divergence(uniform(0, 1), uniform(0, 2), math.inf) == pytest.approx(math.log(2))
    assert renyi_divergence(uniform(0, 2), uniform(0, 1), 2) == math.inf


def test_what_a_plain_density_cannot_tell_is_an_error():
    for order in (40, math.inf):  # determined where both densities underflow
        with pytest.raises(ValueError, match=r"q is needed beyond x = 37\.1.*Density"):
            renyi_divergence(plain_gaussian(1), plain_gaussian(0), order)
    for points in ((1.0,), (1.0, 37.1)):  # one next to the end hides nothing beyond it
        with pytest.raises(ValueError, match=r"q is needed beyond x = 37\.1.*Density"):
            renyi_divergence(Density(stats.norm(1).logpdf, points), plain_gaussian(0), 31)
    for center in (-18.5, 0.0, 18.5):  # moved: the end lies as far from 0 as the mode
        p = Density(stats.norm(center + 1).logpdf, (center + 1,))
        with pytest.raises(ValueError, match=f"q is needed beyond x = {center + 37.1:g}"):
            renyi_divergence(p, plain_gaussian(center), 30.7)
    both = lambda x: 0.5 * plain_gaussian(0)(x) + 0.5 * plain_gaussian(60)(x)  # noqa: E731
    box = Density(lambda x: np.zeros(x.shape), (1000.0,), (1000.0, 1001.0))
    for p, end in ((stats.norm(60), 37.1), (stats.norm(-60), -37.1), (both, 37.1), (box, 37.1)):
        with pytest.raises(ValueError, match=rf"q is needed beyond x = {end}.*Density"):
            renyi_divergence(p, plain_gaussian(0), 1)  # most of p lies where q is not known
    with pytest.raises(ValueError, match="p is 0 wherever it was evaluated"):
        renyi_divergence(plain_gaussian(1000, 0.01), plain_gaussian(0), 2)
    with pytest.raises(ValueError, match="p must be a density, got -"):
        renyi_divergence(np.negative, plain_gaussian(0), 2)
    with pytest.raises(TypeError, match="p must map a number to its density"):
        renyi_divergence(lambda x: "half", plain_gaussian(0), 2)
    with pytest.raises(ValueError, match="q must integrate to 1"):
        renyi_divergence(plain_gaussian(0), lambda x: 2 * plain_gaussian(0)(x), 2)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_plain_density_may_end_on_one_side_and_fade_on_the_other(sign):
    """Where it ends there is no mass of Q at all; where it fades, only none that doubles show."""

    def half(x):
        return 2.0 * np.where(sign * x >= 0.0, stats.norm.pdf(x), 0.0)

    assert renyi_divergence(plain_gaussian(0), half, 2) == math.inf
    assert hockey_stick(plain_gaussian(0), half, 5.0) == pytest.approx(0.5)
    assert renyi_divergence(half, plain_gaussian(0), 2) == pytest.approx(math.log(2.0))
    assert renyi_divergence(half, half, 2) == 0.0


def test_the_laplace_law_of_scipy_keeps_its_tail():
    """SciPy takes the logarithm of its density, which underflows."""
    exact = math.log(0.6) + 1 / 0.6 - 1
    assert renyi_divergence(stats.laplace(0, 1), stats.laplace(0, 0.6), 1) == pytest.approx(exact)
    # p**3/q**2 grows as exp((2/.6 - 3) |x|).
    assert renyi_divergence(stats.laplace(0, 1), stats.laplace(0, 0.6), 3) == math.inf


def test_a_law_that_is_narrower_by_far_is_no_overflow():
    order, narrow, wide = 10, 0.1, 1.0
    variance = order * wide**2 + (1 - order) * narrow**2
    exact = math.log(wide / narrow) + math.log(wide**2 / variance) / (2 * (order - 1))
    found = renyi_divergence(stats.norm(0, narrow), stats.norm(0, wide), order)
    assert found == pytest.approx(exact, rel=1e-12)


def test_a_discrete_law_is_asked_for_its_probabilities():
    with pytest.raises(TypeError, match=r"p must be an array of probabilities, got a discrete law"):
        hockey_stick(stats.poisson(3), stats.poisson(2), 0.5)


def test_laws_that_hardly_differ_keep_their_digits():
    p, q = np.array([0.3, 0.7]) + np.array([1.0, -1.0]) * 2.0**-40, np.array([0.3, 0.7])
    exact = math.log1p(float(Fraction(p[0]) / Fraction(q[0]) - 1))
    assert renyi_divergence(p, q, math.inf) == pytest.approx(exact, rel=1e-12, abs=0.0)
