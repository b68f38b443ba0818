"""Per-sample weights (Xia et al. 2023): inequalities by brute force, biases, descent, Theorem 2."""

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from scipy.optimize import brentq, minimize_scalar

from dpanalysis import theory
from dpanalysis.clipping import Automatic, Flat, PerSampleAdaptive, Value
from dpanalysis.papers.per_sample_clipping.claims import lemma_terms
from dpanalysis.papers.per_sample_clipping.printed import printed_table1
from dpanalysis.theory.adaptive_clipping import peak_and_offset

WEIGHT = {
    "psac": lambda norm, r: 1 / (norm + r / (norm + r)),
    "auto": lambda norm, r: 1 / (norm + r),
}
RULE = {"psac": PerSampleAdaptive, "auto": Automatic}
kinds = st.sampled_from(["psac", "auto"])
rs = st.floats(1e-4, 3.0)
taus = st.tuples(st.floats(0.01, 5.0), st.floats(0.0, 0.9))


def alignment(G, tau0, tau1, r, kind):
    """Return the lower bound on E<grad f, w g> of step 1 of ``theory.adaptive_clipping``."""
    peak, offset = peak_and_offset(kind, r)
    tau = tau0 + tau1 * G
    least = 1.0 / (G + tau + offset)
    return least * G**2 - (peak - least) * G * np.maximum(tau - G, 0.0)


def descent(G, eta, L0, L1, tau0, r, kind, *, d, sigma, B):
    """Return the upper bound on the expected change of f in a step of step 3 there; tau1 = 0."""
    longest = G + tau0
    size = longest * WEIGHT[kind](longest, r)
    moment = (1.0 + 1.0 / B) * size**2 + d * (sigma / B) ** 2
    return -eta * alignment(G, tau0, 0.0, r, kind) + 0.5 * eta**2 * (L0 + L1 * G) * moment


@given(rs)
def test_the_peak_is_where_a_search_finds_it(r):
    norm, weight = theory.psac_weight_peak(r)
    found = minimize_scalar(
        lambda t: -WEIGHT["psac"](t, r), bounds=(0, 2), method="bounded", options={"xatol": 1e-12}
    )
    assert weight == pytest.approx(max(-found.fun, 1.0), rel=1e-9)
    assert WEIGHT["psac"](norm, r) == pytest.approx(weight)
    assert weight == pytest.approx(PerSampleAdaptive(r).largest_weight)
    if r > 1:  # 000-2: the paper's peak would be at a negative norm
        assert norm == 0 and weight == 1 < 1 / (2 * np.sqrt(r) - r)


@given(kinds, rs, taus, st.floats(0.1, 5), st.floats(0, 5), st.integers(0, 2**32 - 1))
def test_no_gradient_violates_lemma_2(kind, r, tau, L0, L1, seed):
    rng = np.random.default_rng(seed)
    tau0, tau1 = tau
    mean = np.zeros((400, 2))
    mean[:, 0] = np.geomspace(1e-4, 1e4, 400)
    error = rng.standard_normal(mean.shape)
    error[::2] = [-1.0, 0.0]  # opposite to the mean, the worst direction
    error *= ((tau0 + tau1 * mean[:, 0]) * rng.random(400) ** 0.2 / np.linalg.norm(error, axis=1))[
        :, None
    ]
    value = (L0 + L1 * mean[:, 0]) * WEIGHT[kind](np.linalg.norm(mean + error, axis=1), r)
    bound = theory.psac_lemma2(L0, L1, tau0, tau1, r, kind)
    assert value.max() <= bound * (1 + 1e-12)
    # The assumption allows at most this mean gradient for a given sample norm.
    norms = np.r_[0, np.geomspace(1e-7, 1e9, 20_000)]
    highest = np.max((L0 + L1 * (norms + tau0) / (1 - tau1)) * WEIGHT[kind](norms, r))
    assert highest <= bound * (1 + 1e-12)
    assert bound == pytest.approx(highest, rel=1e-6) if kind == "auto" else bound <= 2 * highest


@given(st.floats(1e-4, 1.0), taus, st.floats(0.1, 5), st.floats(0, 5))
def test_the_printed_lemma_2_is_its_second_term_and_never_sharper(r, tau, L0, L1):
    tau0, tau1 = tau
    second = (L0 * (1 - tau1) + L1 * tau0 + L1 * np.sqrt(r)) / (np.sqrt(r) * (1 - tau1))
    printed = max(lemma_terms(L0, L1, tau0, tau1, r))
    assert printed == pytest.approx(second, rel=1e-12)
    assert theory.psac_lemma2(L0, L1, tau0, tau1, r) <= printed * (1 + 1e-12)


def laws(rng, tau, dimension, count=300, support=3):
    """Draw probabilities and points of error laws with mean zero and norms at most tau."""
    p = rng.dirichlet(np.full(support, 0.3), count)
    e = rng.standard_normal((count, support, dimension))
    e /= np.linalg.norm(e, axis=-1, keepdims=True)
    e -= (p[..., None] * e).sum(1, keepdims=True)
    longest = np.linalg.norm(e, axis=-1).max(1)
    e *= (tau / np.where(longest > 1e-6, longest, np.inf))[:, None, None]
    return p, e


@given(kinds, rs, taus, st.floats(0.0, 3.0), st.integers(1, 3), st.integers(0, 2**32 - 1))
def test_no_law_of_gradients_violates_the_alignment(kind, r, tau, scale, dimension, seed):
    tau0, tau1 = tau
    G = scale * tau0 / (1 - tau1)
    p, e = laws(np.random.default_rng(seed), tau0 + tau1 * G, dimension)
    g = e.copy()
    g[..., 0] += G
    product = (p * WEIGHT[kind](np.linalg.norm(g, axis=-1), r) * G * g[..., 0]).sum(1)
    bound = alignment(G, tau0, tau1, r, kind)
    assert product.min() >= bound - 1e-12 * (1 + abs(bound))
    if scale >= 1:
        assert bound >= 0


@pytest.mark.slow
@given(st.sampled_from(["auto", "psac"]), rs, taus)
def test_table_1_bounds_the_worst_bias_and_ranks_as_documented(kind, r, tau):
    bound = theory.psac_table1(*tau, r, kind)
    worst = theory.worst_bias(RULE[kind](r), *tau).gradient_norm
    assert worst <= bound * (1 + 1e-9)
    assert bound <= printed_table1(*tau, r, kind) * (1 + 1e-12)
    assert bound <= tau[0] / (1 - tau[1]) * (1 + 1e-12)
    assert alignment(bound, *tau, r, kind) == pytest.approx(0, abs=1e-9 * bound / r)


def test_orders_in_table_1_belong_to_bounds_and_not_to_biases():
    # 000-5: the printed orders are those of the bounds ...
    r = np.array([1e-8, 1e-6])
    for kind, order in (("psac", -0.5), ("auto", -1.0)):
        first, second = printed_table1(1.0, 0.3, r, kind)
        assert np.log(second / first) / np.log(100) == pytest.approx(order, abs=0.01)
        # ... while the possible biases tend to tau0/(1 - tau1) with both weights,
        assert theory.worst_bias(RULE[kind](1e-8), 1.0, 0.3).gradient_norm > 0.99 / 0.7
        assert theory.psac_table1(1.0, 0.3, 1e-8, kind) == pytest.approx(1 / 0.7, rel=1e-3)
    # ... and PSAC's is smaller at r = .1 but larger at r = 1 when gradients spread widely.
    bias = {
        (kind, r, tau0): theory.worst_bias(RULE[kind](r), tau0).gradient_norm
        for kind in RULE
        for r, tau0 in ((0.1, 1.0), (1.0, 5.0))
    }
    assert bias["psac", 0.1, 1.0] < 0.6 * bias["auto", 0.1, 1.0]
    assert bias["psac", 1.0, 5.0] > 1.25 * bias["auto", 1.0, 5.0]


mixtures = st.lists(
    st.tuples(st.floats(-5, 5), st.floats(0.05, 1), st.floats(0.2, 3)), min_size=2, max_size=8
)


def unpack(mixture):
    a, p, c = np.array(mixture).T
    return a, p / p.sum(), c


@given(kinds, st.floats(1e-3, 3.0), mixtures)
def test_fixed_points_are_where_gradient_steps_end(kind, r, mixture):
    a, p, c = unpack(mixture)
    assume(np.ptp(a) > 1e-3)
    found = theory.fixed_points(RULE[kind](r), a, p, c)
    assert found.points.size == 1 and found.stable.all()
    x = found.points[0]
    g = c * (x - a)
    terms = p * WEIGHT[kind](np.abs(g), r) * g
    assert abs(terms.sum()) <= 1e-9 * np.abs(terms).sum()
    assert found.gradients[0] == pytest.approx(p @ g, abs=1e-9)
    assert found.minimizer == pytest.approx(p @ (c * a) / (p @ c))
    assert found.bias[0] == pytest.approx(x - found.minimizer)
    # The gradient at a fixed point is within the bound for the spread of the data.
    tau0 = np.abs(g - p @ g).max()
    assert abs(found.gradients[0]) <= theory.psac_table1(tau0, 0.0, r, kind) + 1e-9


@pytest.mark.slow
@given(mixtures)
def test_both_rules_tend_to_the_weighted_median(mixture):
    a, p, _ = unpack(mixture)
    order = np.argsort(a)
    cumulative = np.cumsum(p[order])
    assume(np.abs(cumulative - 0.5).min() > 1e-3)
    median = a[order][np.searchsorted(cumulative, 0.5)]
    for rule in RULE.values():
        points = theory.fixed_points(rule(1e-9), a, p).points
        assert np.abs(points - median).min() < 1e-2


@pytest.mark.slow
def test_the_gradient_does_not_vanish_with_a_fixed_r():
    # 000-6, and the case of two quadratics in closed form: h(x) = 2 h(1 - x) / 1.
    for kind in RULE:
        found = theory.fixed_points(RULE[kind](0.1), [0.0, 1.0], [2 / 3, 1 / 3])

        def pull(x, kind=kind):
            return 2 * x * WEIGHT[kind](x, 0.1) - (1 - x) * WEIGHT[kind](1 - x, 0.1)

        assert found.points[0] == pytest.approx(brentq(pull, 0, 1, xtol=1e-15), rel=1e-10)
        x = 0.5
        for _ in range(4000):  # the method itself, without noise
            x -= 0.01 * theory.clipped_mean_gradient(RULE[kind](0.1), x, [0, 1], [2 / 3, 1 / 3])
        assert x == pytest.approx(found.points[0], abs=1e-6)
        assert abs(found.gradients[0]) > 0.05


def test_lazy_regions():
    # Auto-V does not move between two halves of the samples, flat clipping in part of it.
    lazy = theory.fixed_points(lambda norms: 1 / norms, [-1, -1, 1, 1])
    flat = theory.fixed_points(Flat(0.25), [-1, -1, 1, 1])
    np.testing.assert_allclose([lazy.lower, lazy.upper], [[-1], [1]], atol=1e-6)
    np.testing.assert_allclose([flat.lower, flat.upper], [[-0.75], [0.75]], atol=1e-6)
    # With Auto-S and PSAC one point remains; PSAC leaves the region 2/(1 - x^2) times faster.
    r, x = 1e-5, 0.3
    speeds = [
        theory.clipped_mean_gradient(RULE[kind](r), x, [-1.0, 1.0]) for kind in ("auto", "psac")
    ]
    assert speeds[0] == pytest.approx(r * x / (1 - x**2), rel=1e-3)
    assert speeds[1] / speeds[0] == pytest.approx(2 / (1 - x**2), rel=1e-3)
    for rule in RULE.values():
        found = theory.fixed_points(rule(0.1), [-1.0, 1.0])
        np.testing.assert_allclose([found.lower, found.upper], 0, atol=1e-9)


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=5))
def test_where_no_gradient_counts_no_point_moves(points):
    found = theory.fixed_points(np.zeros_like, points)
    assert found.lower.tolist() == [min(points)] and found.upper.tolist() == [max(points)]


def test_several_fixed_points_of_a_weight_that_vanishes_fast():
    found = theory.fixed_points(lambda norms: np.exp(-(norms**2)), [-3.0, 3.0])
    np.testing.assert_allclose(found.points, [-3, 0, 3], atol=1e-9)
    np.testing.assert_array_equal(found.lower, found.upper)  # no lazy region
    assert found.stable.tolist() == [True, False, True]


def test_value_clipping_of_a_quadratic_is_flat_clipping():
    # |g|^2 = 2 c f: with beta1 = 2 c the loss determines the norm.
    for x in np.linspace(-3, 3, 13):
        by_value, by_norm = (
            theory.clipped_mean_gradient(rule, x, [-2.0, 0.0, 2.5], curvatures=[2.0] * 3)
            for rule in (Value(0.7, beta1=4.0), Flat(0.7))
        )
        assert by_value == pytest.approx(by_norm, abs=1e-12)
    assert theory.fixed_points(Flat(1e6), [0.0, 1.0, 5.0]).bias == pytest.approx([0.0], abs=1e-9)


def test_worst_bias_is_attained_and_known_in_closed_form():
    for r, tau0 in ((0.01, 0.1), (0.1, 1.0), (1.0, 0.3), (0.3, 5.0)):
        for kind, rule in RULE.items():
            worst = theory.worst_bias(rule(r), tau0)
            found = theory.fixed_points(rule(r), -worst.gradients, worst.probabilities)
            assert found.points == pytest.approx([0.0], abs=1e-8)
            assert found.gradients == pytest.approx([worst.gradient_norm], rel=1e-8)
            assert np.abs(worst.gradients - worst.gradient_norm).max() <= tau0 * (1 + 1e-9)
            if kind == "auto":  # tangent at s = sqrt(G r): 1/(sqrt G + sqrt r)^2 = h(G + t)/t

                def cancel(G, r=r, tau0=tau0):
                    return (G + tau0) / (G + tau0 + r) / tau0 - (np.sqrt(G) + np.sqrt(r)) ** -2

                assert worst.gradient_norm == pytest.approx(brentq(cancel, 1e-12, tau0), rel=1e-8)
    # Two gradients with clipped values -C and C cancel, up to a mean of tau0 - C.
    assert theory.worst_bias(Flat(1e-3), 1.0).gradient_norm == pytest.approx(0.999, rel=1e-8)
    small = theory.worst_bias(Automatic(1.0), 1e-4).gradient_norm
    assert small / 1e-8 == pytest.approx(3 - 2 * np.sqrt(2), rel=1e-3)
    assert theory.worst_bias(lambda norms: np.ones_like(norms), 1.0).gradient_norm == 0.0


@pytest.mark.slow
@given(kinds, rs, taus, st.integers(0, 2**32 - 1))
def test_no_law_on_a_line_has_a_larger_bias(kind, r, tau, seed):
    tau0, tau1 = tau
    worst = theory.worst_bias(RULE[kind](r), *tau).gradient_norm
    rng = np.random.default_rng(seed)
    G = worst * (1 + 1e-7) + rng.random() ** 4 * (tau0 / (1 - tau1) - worst)
    p, e = laws(rng, tau0 + tau1 * G, 1, count=2000)
    g = G + e[..., 0]
    assert (p * WEIGHT[kind](np.abs(g), r) * g).sum(1).min() > 0


@pytest.mark.parametrize("kind", ["psac", "auto"])
def test_descent_holds_exactly_on_random_quadratics(kind):
    # The expectation over Poisson batches and noise is known in closed form.
    rng = np.random.default_rng(7)
    for _ in range(300):
        d, n, r = int(rng.integers(1, 5)), int(rng.integers(2, 9)), 10 ** rng.uniform(-3, 0.3)
        H = np.diag(rng.uniform(0.1, 2.0, d))
        a = rng.standard_normal((n, d)) * 10 ** rng.uniform(-2, 1)
        x = rng.standard_normal(d) * 10 ** rng.uniform(-2, 1)
        q, eta, sigma = rng.uniform(0.1, 1), 10 ** rng.uniform(-3, 0.5), rng.uniform(0, 3)
        g = (x - a) @ H
        gradient = g.mean(0)
        weighted = WEIGHT[kind](np.linalg.norm(g, axis=1), r)[:, None] * g
        tau0 = np.linalg.norm((a - a.mean(0)) @ H, axis=1).max()
        B = q * n
        moment = np.outer(weighted.mean(0), weighted.mean(0))
        moment += q * (1 - q) * weighted.T @ weighted / B**2 + sigma**2 / B**2 * np.eye(d)
        change = -eta * gradient @ weighted.mean(0) + eta**2 / 2 * np.trace(H @ moment)
        G = np.linalg.norm(gradient)
        bound = descent(G, eta, H.max(), 0.0, tau0, r, kind, d=d, sigma=sigma, B=B)
        assert change <= bound + 1e-9 * abs(bound)


def steep(x):
    """Return the slope of a function that is steep only where its slope is large."""
    return x + 6 / (1 + np.exp(-2 * (x - 12)))


def test_descent_holds_with_generalised_smoothness():
    # L1 > 0 allows a smaller L0: constants by brute force over pairs, expectation by quadrature.
    xs = np.linspace(-40, 40, 2001)
    slope = steep(xs)
    distance = np.abs(xs[:, None] - xs) + np.eye(xs.size)
    quotient = np.abs(slope[:, None] - slope) / distance
    L1 = 0.25
    L0 = np.max(quotient - L1 * np.abs(slope)[:, None]) + 0.05
    assert 0.6 * quotient.max() > L0
    nodes, weights = np.polynomial.hermite_e.hermegauss(61)
    weights = weights / weights.sum()

    def f(x):
        return x**2 / 2 + 3 * np.logaddexp(0, 2 * (x - 12))

    offsets = np.array([-1.0, 0.5, 0.5])
    for kind in WEIGHT:
        for x in (0.1, 3.0, 10.0, 13.0):
            for eta in (0.05, 0.5, 2.0):
                g = steep(x) + offsets
                step = eta * ((WEIGHT[kind](np.abs(g), 0.1) * g).mean() + 0.4 / 3 * nodes)
                change = weights @ f(x - step) - f(x)
                bound = descent(abs(steep(x)), eta, L0, L1, 1.0, 0.1, kind, d=1, sigma=0.4, B=3)
                assert change <= bound


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["psac", "auto"])
@pytest.mark.parametrize("sigma", [0.0, 2.0])
def test_theorem_2_bounds_simulated_runs(kind, sigma):
    # Non-convex: f_i(x) = sum x^2/(1 + x^2) + <b_i, x>, mean of b zero; 200 runs, seed fixed.
    rng = np.random.default_rng(3)
    d, n, B, T, r = 3, 40, 10, 400, 0.1
    b = rng.standard_normal((n, d)) * 0.1
    b -= b.mean(0)
    x = np.full((200, d), 1.5)
    gap = d * 1.5**2 / (1 + 1.5**2)
    tau0 = np.linalg.norm(b, axis=1).max()
    bound = theory.psac_theorem2(
        gap, T, 2.0, 0.0, tau0, 0.0, r, dimension=d, noise_multiplier=sigma, batch_size=B, kind=kind
    )
    lowest = np.full(200, np.inf)
    for _ in range(T):
        gradient = 2 * x / (1 + x**2) ** 2
        lowest = np.minimum(lowest, np.linalg.norm(gradient, axis=1))
        g = gradient[:, None] + b
        drawn = rng.random((200, n)) < B / n
        g *= (drawn * WEIGHT[kind](np.linalg.norm(g, axis=2), r))[..., None]
        x -= bound.step_size / B * (g.sum(1) + sigma * rng.standard_normal((200, d)))
    assert lowest.mean() <= bound.bound
    assert bound.bias <= bound.bound <= bound.vanishing + tau0


@given(
    kinds, rs, taus, st.floats(0.1, 5), st.floats(0, 5), st.floats(0.5, 50), st.floats(0, 3),
    st.integers(1, 10**6),
)  # fmt: skip
@example("psac", 0.1, (1.0, 0.0), 1.0, 5e-324, 1.0, 0.0, 10)
def test_theorem_2_is_where_steps_stop_to_pay(kind, r, tau, L0, L1, B, sigma, T):
    """Steps 2 and 3 of its proof decrease f by gap/T at a larger norm: a search for the root."""
    tau0, tau1 = tau
    found = theory.psac_theorem2(
        1.0, T, L0, L1, tau0, tau1, r, dimension=10, noise_multiplier=sigma, batch_size=B, kind=kind
    )
    peak, offset = peak_and_offset(kind, r)
    eta, a, R, far = found.step_size, 1 + tau1, tau0 + offset, tau0 / (1 - tau1)
    moment = 1 + 1 / B + 10 * (sigma / B) ** 2

    def excess(G, beta):
        gain = G**2 / (a * G + R)
        rise = eta**2 / 2 * (L0 + L1 * (a * gain + R / a)) * moment
        return eta * (gain - beta) - rise - 1.0 / T

    norms = np.linspace(0, far, 2001)  # the most that is lost: not all samples agree
    lost = np.max(peak * norms * (tau0 + tau1 * norms - norms))
    near, clear = (brentq(excess, 0, 1e12, args=(beta,), xtol=1e-12) for beta in (lost, 0.0))
    assert found.bound == pytest.approx(min(near, clear + far), rel=1e-5)
    assert found.vanishing == pytest.approx(clear, rel=1e-5)


def test_theorem_2_rates_and_steps():
    def bound(T, **change):
        options = {"dimension": 10, "noise_multiplier": 1.0, "batch_size": 50.0, **change}
        return theory.psac_theorem2(1.0, T, 1.0, 0.5, 0.1, 0.2, 0.1, **options)

    near, far = bound(10**6), bound(10**10)
    assert near.vanishing / far.vanishing == pytest.approx(10, rel=0.05)
    assert far.bound == pytest.approx(far.bias, rel=0.02)
    # The default step minimizes the bound.
    best = bound(10**4)
    for factor in (0.5, 0.8, 1.25, 2.0):
        assert bound(10**4, step_size=factor * best.step_size).vanishing > best.vanishing
    # 1/sqrt(d sigma^2 T (L0 + L1(tau0 + 1))) as printed, with much noise and tau1 = 0.
    gap, T, d, sigma, B = 1.0, 10**8, 10, 1e4, 50
    found = theory.psac_theorem2(
        gap, T, 1.0, 0.5, 0.1, 0.0, 0.1, dimension=d, noise_multiplier=sigma, batch_size=B
    )
    paper = B * np.sqrt(2 * gap / (d * sigma**2 * T * (1 + 0.5 * 1.1)))
    assert found.step_size == pytest.approx(paper, rel=1e-5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: theory.psac_weight_peak(0.0), "r must lie"),
        (lambda: theory.psac_lemma2(0.0, 1, 1, 0, 0.1), "L0"),
        (lambda: theory.psac_lemma2(1, -1, 1, 0, 0.1), "L1"),
        (lambda: theory.psac_lemma2(1, 1, 1, 1.0, 0.1), "tau1"),
        (lambda: theory.psac_lemma2(1, 1, 1, 0, 0.1, kind="flat"), "kind"),
        (lambda: theory.psac_table1(-1.0, 0, 0.1), "tau0"),
        (lambda: theory.worst_bias(Automatic(0.1), 0.0), "tau0"),
        (lambda: theory.worst_bias(lambda norms: 1.0, 1.0), "one weight for each norm"),
        (lambda: theory.fixed_points(Automatic(0.1), []), "points"),
        (lambda: theory.fixed_points(Automatic(0.1), [0, 1], [0.5, 0.6]), "sum to 1"),
        (lambda: theory.fixed_points(Automatic(0.1), [0, 1], [1.0]), "probabilities must have"),
        (lambda: theory.fixed_points(Automatic(0.1), [0, 1], curvatures=[1, 0]), "curvatures"),
        (lambda: theory.fixed_points(Automatic(0.1), [0, 1], grid=0), "grid"),
        (lambda: theory.fixed_points(lambda norms: -norms, [0, 1]), "weights"),
        (
            lambda: theory.psac_theorem2(
                1, 10, 1, 1, 0, 0, 0.1, dimension=1, noise_multiplier=1, batch_size=1, step_size=0.7
            ),
            "step_size",
        ),
        (
            lambda: theory.psac_theorem2(
                1, 10, 1, 1, 0, 0, 0.1, dimension=0, noise_multiplier=1, batch_size=1
            ),
            "dimension",
        ),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_class_is_no_rule():
    with pytest.raises(TypeError, match="weight_rule"):
        theory.fixed_points(Automatic, [0.0, 1.0])


@pytest.mark.parametrize("scale", [1e-300, 1e-20, 1.0, 1e100])
def test_fixed_points_are_found_in_units_of_their_range(scale):
    """With equal weights the fixed point is the mean, however close the samples are."""
    found = theory.fixed_points(np.ones_like, [0.0, 0.0, scale], grid=2)
    assert found.points == pytest.approx(np.array([scale / 3]), rel=1e-12, abs=0)


@pytest.mark.parametrize("kind", ["psac", "auto"])
@pytest.mark.parametrize(("tau0", "r"), [(1.0, 1e-154), (1.0, 1e-320), (1e154, 0.1), (1e300, 1e-9)])
def test_table_1_tends_to_the_spread_at_every_size(kind, tau0, r):
    assert theory.psac_table1(tau0, 0.0, r, kind) == pytest.approx(tau0, rel=1e-4)


def test_table_1_where_the_rule_hardly_weighs():
    # W a b G^2 + (1 + b(WR - 1) - W a tau0) G = (WR - 1) tau0 with W = 1/r: G is tau0^2/r.
    assert theory.psac_table1(1.0, 0.0, 1e17, "auto") == pytest.approx(1e-17, rel=1e-12, abs=0.0)
