"""Second-order points: decrease of steps, norms of noise, sample complexity."""

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as peer
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import dpanalysis as dpa
from dpanalysis import privacy, theory
from dpanalysis.audit import above_threshold_distribution, hockey_stick, subsampled_gaussian
from dpanalysis.papers.second_order.convergence import line, waves
from dpanalysis.papers.second_order.printed import (
    PrintedSecondOrder,
    printed_batch,
    printed_search_slack,
    printed_target,
)
from dpanalysis.privacy.events import Gaussian, Repeated, Sampled
from dpanalysis.privacy.queries.hessian import lanczos
from dpanalysis.theory import Shares, best_shares, sample_complexity

CONSTANTS = theory.second_order_constants(1.0, 1e-3)
TARGET = theory.SecondOrderTarget(0.06, 0.245, CONSTANTS, d=54, rho=0.01)
SHORT, SEARCHED = Shares(0.1, 0.25, 0.1), Shares(0.1, 0.25, 0.1, 0.35, 0.2)
changed = dataclasses.replace
seeds = st.integers(0, 2**32 - 1)


# --- constants ---


@given(st.floats(0.01, 100.0), st.floats(0.0, 100.0))
def test_constants_are_the_largest_derivatives(row_norm, strength):
    z = np.linspace(-4.0, 4.0, 20_001)
    s = 1.0 / (1.0 + np.exp(-z))
    third = np.abs(s * (1.0 - s) * (1.0 - 2.0 * s)).max() * row_norm**3
    bend = np.abs(24.0 * z * (z**2 - 1.0) / (1.0 + z**2) ** 4).max() * strength
    G, M, B_g, B_H = theory.second_order_constants(row_norm, strength)
    assert pytest.approx(third + bend, rel=1e-5) == M
    assert (G, B_g, B_H) == (pytest.approx(B_H + 2 * strength), row_norm, row_norm * row_norm / 4)
    problem = dpa.ERM(
        np.full((1, 1), row_norm),
        np.ones(1),
        dpa.losses.Logistic(),
        dpa.regularizers.GemanMcClure(strength),
        dpa.RowBound(2, row_norm),
    )
    facts = problem.facts("replace_one")
    assert (facts.L, facts.hessian_lipschitz) == (pytest.approx(G), pytest.approx(M))


# --- steps ---


def iterate(random, f, w, shares, eps_g, eps_H):
    """Return a noisy gradient, eigenvalue and descent eigenvector, with the largest noise."""
    c, c1, c2, *_ = shares
    long, wide = theory.tolerated_noise(eps_g, eps_H, f.M, c, c1, c2)
    noise, error = random.normal(size=w.size), random.normal(size=(w.size, w.size))
    noise = f.gradient(w) if random.random() < 0.5 else noise
    error += error.T
    signs = np.sign(random.normal(size=2))
    g = f.gradient(w) + signs[0] * long * noise / np.linalg.norm(noise)
    values, vectors = np.linalg.eigh(f.hessian(w) + signs[1] * wide * error / norm(error))
    p = vectors[:, 0]
    return g, values[0], -p if p @ g > 0.0 else p


def norm(matrix):
    return float(np.linalg.norm(matrix, 2))


def landscapes(count, shares_of):
    """Yield random functions, points, tolerances near the local derivatives, and shares."""
    for seed in range(count):
        random = np.random.default_rng(seed)
        d, cubic = int(random.integers(1, 4)), bool(seed % 2)
        f = waves(random, d, cubic)
        w = random.normal(size=d) * math.exp(random.uniform(-4.0, 0.5))
        # A cubic has no G: only its steps along curvature are tested.
        loose = math.exp(random.uniform(1.0, 3.0)) if cubic else math.exp(random.uniform(-1, 0.2))
        eps_g = loose * float(np.linalg.norm(f.gradient(w)))
        eps_H = norm(f.hessian(w)) * math.exp(random.uniform(-2.0, 0.2))
        f = f._replace(G=1.0) if cubic else f
        shares = shares_of(random)
        found = iterate(random, f, w, shares, eps_g, eps_H)
        if np.linalg.norm(found[0]) > eps_g:
            if not cubic:
                yield "gradient", f, w, shares, (eps_g, eps_H), found
        elif found[1] < -eps_H:
            yield "curvature", f, w, shares, (eps_g, eps_H), found


def short_shares(random):
    c, c2, _ = 0.333 * random.dirichlet([1.0, 1.0, 0.3])
    return Shares(c, 0.499 * random.random(), c2)


def searched_shares(random):
    c1, c_g, _ = 0.999 * random.dirichlet([1.0, 1.0, 0.3])
    c, c_H, root, _ = 0.999 * random.dirichlet([1.0, 1.0, 1.0, 0.5])
    return Shares(c, c1, 0.375 * root**2, c_g, c_H)


@pytest.mark.slow
def test_short_steps_decrease_by_what_is_promised():
    """Lemma 2."""
    kinds = []
    for kind, f, w, shares, eps, (g, eigenvalue, p) in landscapes(2500, short_shares):
        kinds.append(kind)
        step = -g / f.G if kind == "gradient" else -2.0 * eigenvalue / f.M * p
        decrease = f.value(w) - f.value(w + step)
        assert decrease >= theory.min_decrease_short(*eps, f.G, f.M, *shares[:3]) * (1 - 1e-9)
        # The accuracy of the answer, (11).
        slope = np.linalg.norm(f.gradient(w))
        assert kind == "curvature" or slope <= (1 + shares.c1) * np.linalg.norm(g)
        lowest = np.linalg.eigvalsh(f.hessian(w))[0]
        assert kind == "gradient" or lowest >= (1 + shares.c) * eigenvalue * (1 + 1e-12)
    assert min(kinds.count("gradient"), kinds.count("curvature")) > 200


def test_the_decrease_of_short_steps_is_tight_in_the_worst_case():
    c, c1, c2, eps = 0.1, 0.2, 0.15, 1.0 - 1e-9
    steep = line(1.0 - c1, 1.0, 1.0, 1e-3, False)  # the noisy slope is 1
    decrease = steep.value(np.zeros(1)) - steep.value(-np.ones(1))
    least = theory.min_decrease_short(eps, 1.0, 1.0, 1e-3, c, c1, c2)
    assert decrease == pytest.approx(least, rel=1e-8)
    hill = line(c2, -(1.0 - c), 1.0, 1.0, True)  # p is an ascent direction, hidden by noise
    decrease = hill.value(np.zeros(1)) - hill.value(np.full(1, 2.0))
    assert decrease == pytest.approx(theory.min_decrease_short(9, eps, 1, 1, c, c1, c2), rel=1e-8)


@pytest.mark.slow
def test_searched_steps_decrease_by_what_is_promised():
    """Lemmas 6 and 7: the fallback twice as much, an accepted step at least as much."""
    kinds = []
    for kind, f, w, shares, eps, (g, eigenvalue, p) in landscapes(2500, searched_shares):
        c, c1, c2, c_g, c_H = shares
        least = theory.min_decrease_line_search(*eps, f.G, f.M, *shares)
        if kind == "gradient":
            fallback, direction = 2.0 * (1.0 - c1 - c_g) / f.G, -g
            slope = c_g * float(g @ g)
            steps = fallback * np.array([1e-3, 0.3, 0.999999, 1.5, 4.0])
            required = slope * steps
        else:
            t1, t2 = theory.curvature_roots(c, c2, c_H)
            fallback, direction = -t2 * eigenvalue / f.M, p
            steps = fallback * np.array([t1 / t2 * 1.000001, 0.5 * (t1 / t2 + 1), 1.0, 1.5, 4.0])
            required = -0.5 * c_H * eigenvalue * steps**2
        decrease = f.value(w) - np.array([f.value(w + step * direction) for step in steps])
        assert (decrease[:3] >= required[:3] * (1 - 1e-8) - 1e-14).all(), kind
        assert decrease[2] >= 2.0 * least * 0.9999
        # Search noise may accept half the required decrease, enough for a longer step.
        accepted = decrease >= 0.5 * required
        accepted[:2] = False
        assert (decrease[accepted] >= least * 0.9999).all()
        kinds.append(kind)
    assert min(kinds.count("gradient"), kinds.count("curvature")) > 200


@given(st.floats(1e-6, 0.98), st.floats(1e-6, 1.0), st.floats(0.0, 1.0))
def test_roots_against_numpy(c, share, place):
    c2 = 0.375 * (share * (1.0 - c)) ** 2
    highest = 1.0 - c - math.sqrt(8.0 * c2 / 3.0)
    c_H = place * highest
    if not 0.0 < c_H < highest:
        return
    exact = np.sort(np.roots([-1.0 / 6.0, 0.5 * (1.0 - c - c_H), -c2]).real)
    t1, t2 = theory.curvature_roots(c, c2, c_H)
    assert 0.0 < t1 <= t2
    # A double root is accurate only to the square root of the rounding unit.
    np.testing.assert_allclose([t1, t2], exact, rtol=1e-6, atol=3e-8)


def test_roots_at_the_end_of_the_range():
    random = np.random.default_rng(0)
    for c, share in random.random((3000, 2)):
        c2 = 0.375 * (share * (1.0 - c)) ** 2
        highest = 1.0 - c - math.sqrt(8.0 * c2 / 3.0)
        t1, t2 = theory.curvature_roots(c, c2, math.nextafter(highest, 0.0))
        assert t1 <= t2 == pytest.approx(math.sqrt(6.0 * c2), rel=1e-4)


# --- noise ---


@given(st.integers(1, 10_000), st.floats(1e-12, 1.0), st.floats(1e-300, 1e3))
def test_gradient_noise_against_exact_quantiles(d, failure, std):
    bound = theory.gradient_noise_norm(d, std, failure)
    exact = std * stats.chi.isf(failure, d)
    assert exact <= bound * (1 + 1e-12)
    if failure <= 0.5:
        assert bound <= exact + 2.5 * std


@pytest.mark.parametrize("iid", [False, True])
@pytest.mark.parametrize("d", [1, 3, 20])
def test_hessian_noise_against_samples(d, iid):
    """Beyond the bound with at most the probability ``failure``; false alarm below 1e-9 a test.

    Entries as large above the diagonal as on it have the bound for a factor sqrt 2.
    """
    random, draws = np.random.default_rng(d), 4000
    E = random.normal(size=(draws, d, d))
    E = np.triu(E) + np.triu(E, 1).transpose(0, 2, 1)
    if not iid:
        E *= np.where(np.eye(d, dtype=bool), 1.0, math.sqrt(0.5))
    norms = np.linalg.norm(E, 2, axis=(1, 2))
    for failure in (0.01, 0.2, 0.9):
        bound = theory.hessian_noise_norm(d, math.sqrt(2.0) if iid else 1.0, failure)
        over = int((norms > bound).sum())
        assert stats.binom.sf(over - 1, draws, failure) > 3e-10
        assert bound < norms.max() * 2.0


def test_lanczos_finds_the_smallest_eigenvalue():
    """Errors above eps/2 have frequency at most ``failure``; false alarm below 1e-9."""
    random, d, eps, failure, count = np.random.default_rng(2), 200, 0.1, 0.1, 100
    steps = theory.lanczos_iterations(d, 1.0, eps, failure)
    spectrum = np.cos(math.pi * np.arange(d) / (d - 1))
    missed = sum(
        lanczos(lambda v: spectrum * v, random.normal(size=d), steps)[0] > -1.0 + 0.5 * eps
        for _ in range(count)
    )
    assert stats.binom.sf(missed - 1, count, failure) > 1e-9
    assert theory.lanczos_iterations(5, 1.0, 1e-6, failure) == 5
    few = lanczos(lambda v: spectrum * v, random.normal(size=d), steps // 4)[0]
    assert few > -1.0 + 0.5 * eps


@given(st.integers(1, 10**6), st.floats(0.1, 100.0), st.floats(1e-4, 10.0), st.floats(1e-9, 1.0))
def test_lanczos_takes_the_steps_of_its_lemma(d, norm_bound, eps, failure):
    """The share of starts that miss, Lemma C.1: after k steps, and after one step less."""
    k = theory.lanczos_iterations(d, norm_bound, eps, failure)
    missed = [
        math.sqrt(2.75 * d) * math.exp(-(steps - 1) * math.sqrt(eps / norm_bound))
        for steps in (k, k - 1)
    ]
    assert k == d or missed[0] <= failure * (1 + 1e-9)
    assert k == 1 or missed[1] > failure * (1 - 1e-9)


# --- iterations and data ---


@given(st.floats(0.0, 1e6), st.floats(1e-6, 1e6))
def test_the_iteration_bound_is_exact_up_to_rounding_upwards(gap, decrease):
    exact = math.floor(Fraction(gap) / Fraction(decrease)) + 1
    assert exact <= theory.iteration_bound(gap, decrease)
    nearly = Fraction(gap) / Fraction(decrease) * (1 + Fraction(1, 2**51))
    assert theory.iteration_bound(gap, decrease) <= math.floor(nearly) + 1


def test_decimals_are_rounded_in_favor_of_one_more_iteration():
    """Decreases of a tenth, whose sums and quotients are not those of the decimal numbers."""
    assert all(theory.iteration_bound(k / 10, 0.1) >= k + 1 for k in range(1, 1000))


def test_one_step_and_the_evaluation_after_it():
    """Algorithm 1 on w^2/2 from just above eps_g: T = 1 would stop before the second check."""
    eps, c1 = 0.1, 1e-3
    w = eps * 1.01
    T = theory.iteration_bound(0.5 * w**2, theory.min_decrease_short(eps, 1, 1, 1e-6, 0.1, c1, 0.1))
    evaluations, found = 0, False
    while not found:
        evaluations, found = evaluations + 1, abs(w) <= eps
        w -= w
    assert evaluations == T == 2


@pytest.mark.parametrize("printed", [False, True])
@pytest.mark.parametrize("convex", [False, True])
def test_the_noise_at_n_min_is_within_its_tolerance(printed, convex):
    """Complete runs are simulated; false alarm below 1e-9. The margin is at most 10 percent."""
    target = theory.SecondOrderTarget(0.5, 0.8, CONSTANTS, d=6, rho=0.1, failure=0.3, convex=convex)
    target = printed_target(target) if printed else target
    shares = Shares(0.25, 0.2, 0.05)
    n, T, *_ = sample_complexity(target, shares)
    _, M, B_g, B_H = CONSTANTS
    long, wide = theory.tolerated_noise(0.5, 0.8, M, *shares[:3])
    sigma = math.sqrt(T / 0.1)
    assert T * (0.5 / sigma**2 + 0.5 / sigma**2) == pytest.approx(0.1)
    random, runs, d = np.random.default_rng(0), 3000, 6
    noise = random.normal(size=(runs, T, d)) * sigma * 2.0 * B_g / n
    E = random.normal(size=(runs, T, d, d)) * sigma / n
    E = np.triu(E) + np.triu(E, 1).swapaxes(2, 3)
    if printed:
        E *= 2.0 * B_H * math.sqrt(d)
    else:
        E *= B_H * (math.sqrt(2.0) if convex else 2.0)
        E *= np.where(np.eye(d, dtype=bool), 1.0, math.sqrt(0.5))
    lengths, widths = np.linalg.norm(noise, axis=2), np.linalg.norm(E, 2, axis=(2, 3))
    bad = int(((lengths > long) | (widths > wide)).any(axis=1).sum())
    assert stats.binom.sf(bad - 1, runs, 0.3) > 1e-9
    assert max(lengths.max() / long, widths.max() / wide) > 0.9


def test_searches_at_n_min_rarely_accept_too_short_a_decrease():
    """Exact laws, with every query as low as the decrease allows (Lemma 7)."""
    for printed in (False, True):
        target = changed(printed_target(TARGET) if printed else TARGET, multiple=8.0)
        found = sample_complexity(target, SEARCHED)
        n, T = found.search, found.iterations
        scale = math.sqrt(1.5 * T / target.rho)
        fallback = 2.0 * (1.0 - SEARCHED.c1 - SEARCHED.c_g) / CONSTANTS.G
        steps = fallback * np.array([8.0, 4.0, 2.0, 1.0])
        # A gradient of norm eps_g; along the curvature, an eigenvalue of -eps_H.
        t2 = theory.curvature_roots(0.1, 0.1, 0.2)[1]
        bent = t2 * 0.245 / CONSTANTS.M * steps / fallback
        failures = []
        for gammas, norm_g, missing in (
            (steps, 0.06, 0.5 * 0.35 * 0.06**2 * steps),
            (bent, 1.0, 0.25 * 0.2 * 0.245 * bent**2),
        ):
            unit = 2.0 * norm_g * CONSTANTS.B_g / n * (gammas[0] if printed else gammas)
            law = above_threshold_distribution(-missing / unit, "laplace", 2 * scale, 4 * scale)
            failures.append(law[:-1].sum() * 3 * T / target.failure)
        assert max(failures) <= 1.0
        assert max(failures) > (1e-9 if printed else 0.1)


def test_n_min_is_that_of_the_method():
    data = np.random.default_rng(0).normal(size=(500, 6))
    bound = dpa.RowBound(2, 1.0, "clip")
    problem = dpa.ERM(
        data, np.ones(500), dpa.losses.Logistic(), dpa.regularizers.GemanMcClure(1e-3), bound
    )
    facts = problem.facts("replace_one")
    for printed in (False, True):
        for step, shares in (("short", SHORT), ("line_search", SEARCHED)):
            kind = PrintedSecondOrder if printed else dpa.methods.SecondOrder
            method = kind(0.1, 0.3, step=step, shares=shares)
            with pytest.warns(UserWarning, match="is below n_min"):
                outlook = method.prepare(facts, privacy.Budget.zcdp(0.02), "tightest")
            target = theory.SecondOrderTarget(0.1, 0.3, CONSTANTS, 6, 0.02)
            found = sample_complexity(printed_target(target) if printed else target, shares)
            assert found.iterations == outlook.iterations
            # The searches of both methods query q/gamma.
            search = sample_complexity(target, shares).search
            needed = max(found.gradient, found.hessian, search)
            assert outlook.n_min == pytest.approx(needed, rel=2e-4)


@pytest.mark.parametrize("convex", [True, False])
@pytest.mark.parametrize("d", [1, 2, 6])
def test_the_change_of_a_hessian_equals_the_sensitivity_of_its_query(d, convex):
    """The sensitivity assumed by n_min is that of the event of the query."""
    bound = dpa.RowBound(2, 1.0)
    problem = dpa.ERM(np.ones((4, d)), np.ones(4), dpa.losses.Logistic(), row_bound=bound)
    facts = changed(problem.facts("replace_one"), rounding=0.0, convex_records=convex)
    charged = 4.0 * privacy.queries.hessian_sensitivity(facts, dpa.Full()) / facts.hessian_bound
    target = changed(TARGET, d=d, convex=convex)
    assert target.hessian_change() / CONSTANTS.B_H == pytest.approx(charged, rel=1e-12)


@given(st.floats(1e-6, 10.0), st.sampled_from([SHORT, SEARCHED]))
def test_how_n_min_grows(rho, shares):
    at, more = (sample_complexity(changed(TARGET, rho=r), shares) for r in (rho, 4.0 * rho))
    np.testing.assert_allclose(np.array(at[2:]), 2.0 * np.array(more[2:]))
    small, large = (sample_complexity(changed(TARGET, d=d), shares) for d in (10**8, 10**10))
    assert large.n / small.n == pytest.approx(10.0 if shares is SHORT else large.n / small.n, 1e-2)
    small, large = (
        sample_complexity(changed(printed_target(TARGET), d=d), shares).hessian
        for d in (10**8, 10**10)
    )
    assert large / small == pytest.approx(100.0, rel=1e-2)


def test_what_the_printed_sensitivities_cost():
    ours, theirs = (
        sample_complexity(asked, SEARCHED) for asked in (TARGET, printed_target(TARGET))
    )
    assert theirs.gradient == ours.gradient
    assert theirs.hessian / ours.hessian == pytest.approx(2.0 * math.sqrt(54.0))
    each = 0.05 / (3 * ours.iterations)
    slack = [theory.search_slack(4, each), printed_search_slack(4, each)]
    assert theirs.search / ours.search == pytest.approx(10.0 * slack[1] / slack[0])
    general = sample_complexity(changed(TARGET, convex=False), SEARCHED)
    assert general.hessian / ours.hessian == pytest.approx(math.sqrt(2.0))


@pytest.mark.parametrize("shares", [SHORT, SEARCHED, Shares(0.2, 0.25, 0.1)])
def test_a_guarantee_has_tighter_tolerances(shares):
    """They are eps_g/(1 + c1) and eps_H/(1 + c)."""
    eps = 0.06 / (1 + shares.c1), 0.245 / (1 + shares.c)
    direct = theory.SecondOrderTarget(*eps, CONSTANTS, 54, 0.01)
    assert sample_complexity(changed(TARGET, guarantee=True), shares) == sample_complexity(
        direct, shares
    )


@pytest.mark.slow
@pytest.mark.parametrize("guarantee", [False, True])
@pytest.mark.parametrize("printed", [False, True])
@pytest.mark.parametrize("alpha", [0.5, 0.1, 0.01])
def test_no_shares_are_better(alpha, printed, guarantee):
    """Against random shares and small changes."""
    eps_H = math.sqrt(CONSTANTS.M * alpha)
    target = theory.SecondOrderTarget(alpha, eps_H, CONSTANTS, 54, 0.01, guarantee=guarantee)
    target = printed_target(target) if printed else target
    random = np.random.default_rng(0)
    for step, draw in (("short", short_shares), ("line_search", searched_shares)):
        best = best_shares(target, step)
        n = sample_complexity(target, best).n
        others = [draw(random) for _ in range(300)]
        for _ in range(300):
            moved = [s * math.exp(0.05 * random.normal()) for s in best if s is not None]
            others.append(Shares(*moved))
        for shares in others:
            try:
                assert sample_complexity(target, shares).n >= 0.9999 * n, (best, shares)
            except ValueError:  # moved out of its range
                continue


def test_shares_with_a_large_c2_are_searched_too():
    """The best ones for a single step are among them."""
    constants = theory.second_order_constants(1.0, 1e-4)
    target = theory.SecondOrderTarget(0.015, 0.005, constants, 1000, 0.4, 1e-6)
    given = Shares(0.0022, 1.0 / 3.0, 0.1715, 1.0 / 3.0, 0.2698)
    best = best_shares(target, "line_search")
    assert sample_complexity(target, best).n <= 1.0001 * sample_complexity(target, given).n


@pytest.mark.parametrize(
    ("M", "B_g", "gap"), [(0.1, 1e-3, 0.3), (0.1, 1e-3, 1.0), (0.1, 1e-3, 10.0), (1e-4, 1.0, 0.5)]
)
def test_where_hessians_alone_need_many_records_one_share_matters(M, B_g, gap):
    """That of curvature, or of gradients if their steps are the shorter ones."""
    constants = theory.SecondOrderConstants(1.0, M, B_g, 1e4)
    target = theory.SecondOrderTarget(1.0, 0.3, constants, 1000, 0.01, gap)
    shares = [Shares(c, 1e-4, 1e-4) for c in np.linspace(0.1, 0.333, 300)]
    shares += [Shares(0.3332, c1, 1e-4) for c1 in np.linspace(0.001, 0.499, 100)]
    needed = min(sample_complexity(target, each).n for each in shares)
    best = sample_complexity(target, best_shares(target)).n
    assert 0.995 * needed <= best <= needed


@pytest.mark.slow
@given(st.floats(1e-4, 10.0), st.floats(1e-3, 10.0), st.floats(0.0, 10.0), st.integers(1, 10**6))
def test_the_best_shares_are_no_worse_than_given_ones(eps_g, eps_H, gap, d):
    target = changed(TARGET, eps_g=eps_g, eps_H=eps_H, gap=gap, d=d)
    for step, shares in (("short", SHORT), ("line_search", SEARCHED)):
        best = sample_complexity(target, best_shares(target, step))
        assert best.n <= sample_complexity(target, shares).n


def test_sample_exponents_of_the_compared_methods():
    assert theory.sample_exponent("DP-TR") < theory.sample_exponent("2NS") == 2.0
    n = [
        sample_complexity(
            theory.SecondOrderTarget(a, math.sqrt(CONSTANTS.M * a), CONSTANTS, 54, 0.01), SHORT
        ).n
        for a in (1e-6, 1e-8)
    ]
    slope = math.log(n[1] / n[0]) / math.log(100.0)
    assert slope == pytest.approx(theory.sample_exponent("2NS"), abs=0.02)


# --- small batches ---


@pytest.mark.parametrize("failure", [0.01, 0.3])
@pytest.mark.parametrize("T", [1, 20])
def test_batches_resemble_the_whole(failure, T):
    """One dimension, half of the gradients -1 and half 1: exact hypergeometric tails."""
    c, c1, c2, eps_g, eps_H, M = 0.2, 0.45, 0.1, 3.0, 2.0, 0.2
    size = theory.second_order_batch(eps_g, eps_H, M, 1.0, 1.0, 1, T, failure, c, c1, c2)
    long, wide = theory.tolerated_noise(eps_g, eps_H, M, c, c1, c2)
    for n in (2 * size, 100 * size):
        drawn = stats.hypergeom(n, n // 2, size)
        for half in (0.5 * long, 0.5 * wide):
            away = 2.0 * drawn.sf(math.floor(size * (0.5 + 0.5 * half)))
            assert away <= failure / T
    printed = printed_batch(eps_g, eps_H, M, 1.0, 1.0, 1, T, failure, c, c1, c2)
    assert printed == math.ceil(size / 2) or printed == math.ceil((size - 1) / 2)
    # (23a) at those sizes, Lemmas B.1 and B.2 with d = 1:
    log = math.log(2.0 * T / failure)
    for m, within in ((size, True), (printed, False)):
        far = 4.0 * math.sqrt(2.0 * (log + 0.25) / m) <= 0.5 * long
        wide_enough = 4.0 * math.sqrt(log / m) <= 0.5 * wide
        assert (far and wide_enough) is within


@given(st.integers(1, 1000), st.integers(1, 1000), st.floats(1e-6, 0.9), st.floats(0.1, 10.0))
def test_batches_for_gradients_are_those_of_the_tail(d, T, failure, B_g):
    """exp(1/4 - m t^2/(32 B_g^2)) at half the noise, by Kohler and Lucchi; B_H does not matter."""
    m = theory.second_order_batch(0.5, 0.5, 0.1, B_g, 1e-9, d, T, failure, 0.3, 0.4, 0.3)
    half = 0.5 * theory.tolerated_noise(0.5, 0.5, 0.1, 0.3, 0.4, 0.3)[0]
    tails = [2.0 * d * T * math.exp(0.25 - size * half**2 / (32.0 * B_g**2)) for size in (m, m - 1)]
    assert tails[0] <= failure * (1 + 1e-9) and tails[1] >= failure * (1 - 1e-9)


@pytest.mark.slow
@settings(max_examples=12)
@given(
    st.floats(0.05, 0.95),
    st.floats(1e-9, 0.9),
    st.integers(1, 500),
    st.integers(2, 100_000),
    st.floats(0.0, 1.0),
)
def test_noise_of_batches_by_three_accountants(epsilon, delta, T, n, share):
    m = max(1, round(share * n))
    try:
        found = theory.batch_noise(epsilon, delta, T, n, m)
    except ValueError as error:
        assert "m must be at least" in str(error)
        least = int(str(error).split("at least ")[1].split()[0])
        assert m < least
        less = (least - 1) / n
        each = epsilon / (8.0 * less * math.sqrt(2.0 * T * math.log(2.0 / delta)))
        assert each > 0.628 * (1 - 1e-3) or delta / (4.0 * less * T) > 1.0
        if least <= n:
            theory.batch_noise(epsilon, delta, T, n, least)
        return
    step = epsilon / (2.0 * math.sqrt(2.0 * T * math.log(2.0 / delta)))
    s = m / n
    each = step / (4.0 * s)
    assert math.log1p(s * math.expm1(2.0 * each)) <= step * (1 + 1e-9)
    tail = delta / (4.0 * s * T)
    assert privacy.gaussian_delta(found.advanced, each) <= tail * (1 + 1e-9)
    assert found.advanced == pytest.approx(math.sqrt(2.0 * math.log(1.25 / tail)) / each)

    def spent(noise, accountant="rdp"):
        pair = [Gaussian(noise, 1.0)] * 2
        run = Repeated(Sampled(dpa.WithoutReplacement(m), pair, n), T)
        return privacy.epsilon(run, delta, "replace_one", accountant)

    assert spent(found.renyi) <= epsilon < spent(found.renyi * (1 - 1e-5))
    assert found.pld <= found.renyi and spent(found.pld, "tightest") <= epsilon


@pytest.mark.slow
@pytest.mark.parametrize(("T", "n", "m"), [(3, 40, 4), (100, 5000, 50)])
def test_all_noises_are_private(T, n, m):
    found = theory.batch_noise(0.5, 1e-5, T, n, m)
    for noise in found[1:]:
        pair = Sampled(dpa.WithoutReplacement(m), [Gaussian(noise, 1.0)] * 2, n)
        assert privacy.epsilon(Repeated(pair, T), 1e-5, "replace_one", "pld") < 0.5
    assert found.renyi < 0.2 * found.advanced
    # dp-accounting: both directions, for data sets whose other records are all 0.
    law = peer.from_gaussian_mechanism(found.pld / math.sqrt(2.0), sampling_prob=m / n)
    theirs = law.self_compose(T).get_epsilon_for_delta(1e-5)
    assert 0.4 <= theirs <= 0.5 * (1 + 1e-3)


def test_noise_for_very_little_data_fits_though_costs_are_not_monotone():
    """At the orders for such a small epsilon, a Renyi cost may increase with the noise."""
    found = theory.batch_noise(0.055, 1e-9, 2, 45, 1)
    for noise, accountant in ((found.pld, "pld"), (found.renyi, "rdp")):
        step = Sampled(dpa.WithoutReplacement(1), [Gaussian(noise, 1.0)] * 2, 45)
        assert privacy.epsilon(Repeated(step, 2), 1e-9, "replace_one", accountant) <= 0.055
    assert found.pld < found.renyi < found.advanced


def test_where_theorem_b8_is_refused_it_is_false():
    """A record changes only the gradients: one Gaussian release of a batch."""
    epsilon, delta, n, m = 0.9, 1e-5, 1000, 1
    with pytest.raises(ValueError, match=r"m must be at least 37 for Theorem B\.8 to hold, got 1"):
        theory.batch_noise(epsilon, delta, 1, n, m)
    each = epsilon / (8e-3 * math.sqrt(2.0 * math.log(2.0 / delta)))
    noise = math.sqrt(2.0 * math.log(1.25 * 4e-3 / delta)) / each
    assert hockey_stick(*subsampled_gaussian(noise, 1.0, m / n), epsilon) > 50.0 * delta


# --- bad input ---

POSITIVE = (0.06, 0.245, 0.25, 0.1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: theory.second_order_constants(-1.0, 0.1), r"row_norm must lie in \[0, inf\)"),
        (lambda: theory.min_decrease_short(0.0, 1, 1, 1, 0.1, 0.1, 0.1), r"eps_g must lie in \(0"),
        (lambda: theory.min_decrease_short(1, 1, 1, -1, 0.1, 0.1, 0.1), r"M must lie in \(0"),
        (
            lambda: theory.min_decrease_short(*POSITIVE, 0.1, 0.5, 0.1),
            r"c1 must lie in \(0, 0.5\), got 0.5",
        ),
        (
            lambda: theory.min_decrease_short(*POSITIVE, 0.25, 0.1, 0.1),
            r"c2 with c = 0.25 must lie in \(0, 0.0833333\), got 0.1",
        ),
        (
            lambda: theory.min_decrease_line_search(*POSITIVE, 0.1, 0.6, 0.1, 0.5, 0.1),
            r"c_g with c1 = 0.6 must lie in \(0, 0.4\), got 0.5",
        ),
        (
            lambda: theory.min_decrease_line_search(*POSITIVE, 0.1, 0.1, 0.06, 0.5, 0.7),
            r"c_H with c = 0.1 and c2 = 0.06 must lie in \(0, 0.5\), got 0.7",
        ),
        (lambda: theory.curvature_roots(0.1, 0.5, 0.1), r"c2 must be below .* = 0.30375 for c = 0"),
        (lambda: theory.tolerated_noise(1, 1, 1, 0.1, 0.0, 0.1), r"c1 must lie in \(0"),
        (lambda: theory.gradient_noise_norm(0, 1.0, 0.1), "d must be at least 1"),
        (lambda: theory.hessian_noise_norm(1, 1.0, 0.0), r"failure must lie in \(0, 1\]"),
        (lambda: theory.lanczos_iterations(5, 1.0, 0.0, 0.1), "eps must lie in"),
        (lambda: theory.search_slack(4, 2.0), r"failure must lie in \(0, 1\)"),
        (lambda: theory.iteration_bound(-1.0, 1.0), "gap must lie in"),
        (lambda: theory.iteration_bound(1e300, 1e-300), "gap / min_decrease must lie in"),
        (lambda: sample_complexity(TARGET, (0.1, 0.1, 0.1)), "shares must be Shares"),
        (lambda: sample_complexity(TARGET, Shares(0.1, 0.1, 0.1, 0.3)), "both of c_g and c_H"),
        (lambda: best_shares(TARGET, "long"), "step must be one of 'short', 'line_search'"),
        (lambda: changed(TARGET, rho=0.0), "rho must lie in"),
        (lambda: changed(TARGET, failure=1.0), r"failure must lie in \(0, 1\)"),
        (lambda: changed(TARGET, constants=(1.0, 1.0)), "constants must be SecondOrderConstants"),
        (lambda: changed(TARGET, constants=CONSTANTS._replace(M=0.0)), "M must lie in"),
        (lambda: theory.sample_exponent("DP-SGD"), "method must be one of 'DP-GD'"),
        (lambda: theory.batch_noise(1.0, 1e-5, 1, 10, 5), r"epsilon must lie in \(0, 1\)"),
        (lambda: theory.batch_noise(0.5, 1e-5, 1, 10, 11), "m must be between 1 and 10"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()


def test_failures_and_accuracies_of_any_size():
    assert theory.lanczos_iterations(10, 1.0, 0.1, 1e-170) == 10
    assert theory.lanczos_iterations(10, 1e300, 1e-300, 0.1) == 10
    assert theory.hessian_noise_norm(1, 1.0, 1e-320) == pytest.approx(39.8205, rel=1e-4)


def test_single_precision_arguments_are_computed_in_double():
    """The optimal shares of float32 tolerances used to need 8 % more records."""
    given = (0.04, 0.2, 0.25, 0.1, 0.1, 0.1, 0.1)
    single = [np.float32(each) for each in given]
    double = [float(each) for each in single]
    for function in (theory.min_decrease_short, lambda *a: theory.curvature_roots(*a[4:])):
        found, same = function(*single), function(*double)
        assert found == same and not isinstance(found, np.floating)
    assert math.inf == theory.second_order_constants(1e110, 0.0).M
