"""Certificates: valid on every tested function, never below exact rates, always verified."""

import dataclasses
import itertools
import subprocess
import sys
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpanalysis import CertificateNotFound, theory
from dpanalysis.theory import lmi as search_module
from dpanalysis.theory.certificates import best_certificate
from dpanalysis.theory.lmi import nesterov_system
from dpanalysis.theory.tuning import _certified, _refine

heavy_balls = st.tuples(
    st.floats(1e-3, 0.9),  # mu, with L = 1
    st.floats(0.02, 1.2),  # step size
    st.floats(0.0, 0.6),  # momentum
)


def certify(mu, alpha, beta, L=1.0, **options):
    try:
        return theory.heavy_ball_certificate(alpha, beta, mu, L, **options)
    except CertificateNotFound:
        return None


@pytest.mark.parametrize(
    "alpha, beta, rate",
    [(1.0, 0.0, 0.5), (1.0, 0.2, 0.615), (1.0, 0.5, 0.856), (0.2, 0.5, 0.7916)],
)
def test_known_rates(alpha, beta, rate):
    certificate = theory.heavy_ball_certificate(alpha, beta, 0.5, 1.0)
    assert certificate.rate == pytest.approx(rate, abs=5e-4)
    assert certificate.margin >= 0.0


def test_none_where_none_exists():
    with pytest.raises(CertificateNotFound, match=r"0\.894427"):
        theory.heavy_ball_certificate(1.0, 0.8, 0.5, 1.0)
    with pytest.raises(CertificateNotFound):  # beyond 2 / L nothing converges
        theory.heavy_ball_certificate(2.1, 0.0, 0.5, 1.0)
    with pytest.raises(CertificateNotFound, match=r"at rate 0\.5"):
        theory.heavy_ball_certificate(1.0, 0.2, 0.5, 1.0, rate=0.5)


def assert_verifies(certificate):
    c = certificate
    residual = c.lmi.residual(c.rate, c.P, c.c, c.c0)
    smallest = np.linalg.eigvalsh(residual)[0]
    assert smallest == pytest.approx(c.margin, abs=1e-15)
    assert smallest >= -1e-15 and c.margin >= 0.0
    assert np.linalg.eigvalsh(c.P)[0] >= -1e-15
    assert c.c >= 0.0 and c.c0 >= 0.0
    assert np.trace(c.P) + c.c == pytest.approx(1.0)


@pytest.mark.slow
@given(heavy_balls, st.sampled_from([0.01, 1.0, 300.0]))
@settings(max_examples=40)
def test_certificates_verify_and_scale(method, L):
    mu, alpha, beta = method
    certificate = certify(mu, alpha, beta)
    scaled = certify(mu * L, alpha / L, beta, L)
    assert (certificate is None) == (scaled is None)
    if certificate is None or scaled is None:
        return
    exact = theory.heavy_ball_rate(alpha, beta, mu, 1.0)
    assert exact - 1e-9 <= certificate.rate < 1.0
    assert scaled.rate == pytest.approx(certificate.rate, abs=1e-5)
    for one in (certificate, scaled):
        assert_verifies(one)
    quiet = certify(mu, alpha, beta, objective="noise").noise_gain
    scaled_quiet = certify(mu * L, alpha / L, beta, L, objective="noise").noise_gain
    assert scaled_quiet == pytest.approx(quiet / L, rel=0.01)


@pytest.mark.parametrize("horizon", [1, 3])
def test_no_certificate_for_other_noise_has_a_smaller_bound_at_a_short_horizon(horizon):
    """Over few iterations noise adds up to less than its stationary amount, 0.5 % of the bound."""

    def bound(noise):
        goal = {"horizon": horizon, "noise_second_moment": noise, "initial": (1.0, 0.5)}
        certificate = certify(0.05, 0.5, 0.3, objective="bound", **goal)
        return certificate.bound(horizon, certificate.lyapunov(1.0, 0.5), 0.01)

    assert bound(0.01) <= min(bound(0.001), bound(0.003), bound(0.04)) * 1.0005


@pytest.mark.slow
@given(heavy_balls, st.integers(1, 60), st.floats(1e-4, 1.0))
@settings(max_examples=25)
def test_each_certificate_is_best_at_its_own_goal(method, horizon, noise):
    mu, alpha, beta = method
    fast = certify(mu, alpha, beta)
    if fast is None:
        return
    quiet = certify(mu, alpha, beta, objective="noise")
    goal = {"horizon": horizon, "noise_second_moment": noise, "initial": (1.0, None)}
    tight = certify(mu, alpha, beta, objective="bound", **goal)
    assert_verifies(quiet)
    assert_verifies(tight)
    assert fast.rate <= quiet.rate + 1e-5
    assert quiet.noise_gain <= min(fast.noise_gain, tight.noise_gain) * 1.02
    bounds = [c.bound(horizon, c.lyapunov(1.0), noise) for c in (tight, fast, quiet)]
    assert bounds[0] <= min(bounds[1:]) * 1.02
    # All three bounds are at least the exact error of every quadratic.
    times = np.arange(61)
    for lam in np.geomspace(mu, 1.0, 5):
        gap = theory.heavy_ball_gap([lam], alpha, beta, noise, 1.0, 60)
        for c in (tight, fast, quiet):
            start = c.lyapunov(1.0, gap[0])
            assert (gap <= c.bound(times, start, noise) * (1 + 1e-9)).all()
        # The noise gain is at least the exact stationary gap.
        exact = theory.heavy_ball_stationary_gap([lam], alpha, beta, 1.0)
        assert quiet.noise_gain >= exact * (1 - 1e-9)


def test_a_number_is_the_initial_distance():
    goal = {"objective": "bound", "horizon": 9, "noise_second_moment": 0.1}
    one = theory.heavy_ball_certificate(0.5, 0.3, 0.2, 1.0, initial=2.0, **goal)
    same = theory.heavy_ball_certificate(0.5, 0.3, 0.2, 1.0, initial=(2.0, 2.0), **goal)
    assert one.rate == same.rate and one.c == same.c


@pytest.mark.parametrize(
    ("initial", "message"),
    [
        ((1.0, 1.0, 1.0), r"initial must be a distance or \(distance, gap\), got \(1.0, 1"),
        ((None, None), r"initial must be a distance or \(distance, gap\), got \(None"),
        (-1.0, r"initial: distance must lie in \[0, inf\), got -1.0"),
        (np.ones(2), r"initial: distance must be a number, got array"),
        ((None, -1.0), r"initial: gap must lie in \[0, inf\), got -1.0"),
    ],
)
def test_a_wrong_start_is_refused_by_the_name_of_its_argument(initial, message):
    noise = theory.laplace_noise(1.0, 2.0, 1000, 5)
    with pytest.raises((TypeError, ValueError), match=message):
        theory.tune_heavy_ball(0.1, 1.0, noise, 10, initial)


def test_a_missing_start_is_that_of_the_worst_quadratic():
    certificate = theory.heavy_ball_certificate(0.5, 0.3, 0.2, 1.0)
    for curvature in (0.2, 0.5, 1.0):
        gap = 0.5 * curvature * 1.7**2
        known = certificate.lyapunov(1.7, gap)
        near, low = certificate.lyapunov(distance=1.7), certificate.lyapunov(gap=gap)
        assert min(near, low) >= known * (1 - 1e-12)
        assert near == pytest.approx(known) if curvature == 1.0 else near > known
        assert low == pytest.approx(known) if curvature == 0.2 else low > known


def test_fixed_rate_gives_the_largest_margin():
    best = theory.heavy_ball_certificate(0.5, 0.3, 0.2, 1.0)
    slower = theory.heavy_ball_certificate(0.5, 0.3, 0.2, 1.0, rate=best.rate + 0.03)
    assert slower.rate == pytest.approx(best.rate + 0.03)
    assert_verifies(slower)
    assert slower.margin > best.margin
    quiet = theory.heavy_ball_certificate(
        0.5, 0.3, 0.2, 1.0, rate=best.rate + 0.03, objective="noise"
    )
    assert quiet.rate == pytest.approx(best.rate + 0.03)
    assert quiet.noise_gain < slower.noise_gain


# The inequality itself -------------------------------------------------------------------------


def test_printed_blocks():
    mu, L, alpha, beta = 0.3, 2.0, 0.4, 0.25
    lmi = theory.lyapunov_lmi(theory.heavy_ball_system(alpha, beta), mu, L)
    k = (1 - L * alpha) * beta
    X1 = np.array(
        [
            [-L * beta**2, L * beta**2, -k],
            [L * beta**2, -L * beta**2, k],
            [-k, k, alpha * (2 - L * alpha)],
        ]
    )
    X2 = np.array([[mu, 0.0, -1.0], [0.0, 0.0, 0.0], [-1.0, 0.0, 0.0]])
    np.testing.assert_allclose(lmi.X1, 0.5 * X1, atol=1e-15)
    np.testing.assert_allclose(lmi.X2, 0.5 * X2, atol=1e-15)
    X0 = [[2 * mu * L, 0, -(mu + L)], [0, 0, 0], [-(mu + L), 0, 2.0]]
    np.testing.assert_allclose(lmi.X0, X0, atol=1e-15)


@given(
    st.floats(0.01, 0.9), st.floats(0.05, 1.5), st.floats(0.0, 0.9),
    st.sampled_from([theory.heavy_ball_system, nesterov_system]), st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_the_blocks_bound_the_decrease_of_functions(mu, alpha, beta, make, seed):
    """Of L w^2/2, mu w^2/2, and those with one curvature on either side of the minimum."""
    system = make(alpha, beta)
    lmi = theory.lyapunov_lmi(system, mu, 1.0)
    now, before = np.random.default_rng(seed).standard_normal((2, 300))
    before = np.where(np.arange(300) % 2, before, now * (1 + 0.01 * before))
    for left, right in ((1.0, 1.0), (mu, mu), (mu, 1.0)):

        def F(w, left=left, right=right):
            return 0.5 * np.where(w > 0, right, left) * w**2

        point = system.C[0] * now + system.C[1] * before
        g = np.where(point > 0, right, left) * point
        after = system.A[0, 0] * now + system.A[0, 1] * before + system.B[0] * g
        forms = np.stack([now, before, g])
        sector, step, rest = (
            np.einsum("in,ij,jn->n", forms, X, forms) for X in (lmi.X0, lmi.X1, lmi.X2)
        )
        size = 1e-12 * (now**2 + before**2)
        assert (sector <= size).all()
        assert (step <= F(now) - F(after) + size).all()
        assert (step + rest <= -F(after) + size).all()
        assert right > mu or (np.abs(rest + F(now)) <= size).all()  # no slack at curvature mu


def test_a_form_that_is_not_positive_has_no_margin():
    """Neither the decrease alone nor P alone makes a certificate; either multiplier may be 0."""
    lmi = theory.lyapunov_lmi(theory.heavy_ball_system(0.5, 0.3), 0.2, 1.0)
    search, rng = search_module.CertificateSearch(lmi), np.random.default_rng(0)
    middle = search.center(0.9)
    seen, repaired = set(), 0
    for y in middle + rng.standard_normal((700, 5)) * np.abs(middle) * [1, 1, 3, 1, 1]:
        y[3:] *= rng.random(2) > 0.3
        if y[0] + y[2] + y[3] <= 0 or min(y[3], y[4]) < 0:
            continue
        P = np.tensordot(y[:3], search.shapes, axes=1)
        residual = lmi.residual(np.sqrt(0.9), P, y[3], y[4])
        lowest = [np.linalg.eigvalsh(each)[0] for each in (residual, P)]
        margin = search.margin(0.9, y)
        assert np.isfinite(margin)
        if min(np.abs(lowest)) > 1e-9:
            assert (margin > 0) == (min(lowest) > 0)
            seen.add((lowest[0] > 0, lowest[1] > 0))
        if margin > 0:
            found = search.verified_near(0.9, y)
            np.testing.assert_allclose(found.P / np.trace(found.P), P / np.trace(P), rtol=1e-12)
            repaired += y[3] == 0
    assert {(True, True), (False, True), (True, False)} <= seen and repaired


@pytest.mark.parametrize("corner", [0, 2, 3])
def test_every_segment_ends_at_the_center(corner):
    """From p11, p22 or c alone, with anything else."""
    lmi = theory.lyapunov_lmi(theory.heavy_ball_system(0.5, 0.3), 0.2, 1.0)
    search = search_module.CertificateSearch(lmi)
    middle = search.verified_near(0.9)
    for p12, c0 in ((0.0, 0.0), (-1e6, 0.0), (1e6, 0.0), (0.0, 1e6)):
        y = np.array([0.0, p12, 0.0, 0.0, c0])
        y[corner] = 1.0
        found = search.verified_near(0.9, y)
        assert found.margin >= 0.0 and found.rate == middle.rate


def test_printed_sign_of_B_certifies_a_falsehood():
    """001-2: with B = [alpha, 0] the inequality certifies .831, but the rate is .9487."""
    lmi = theory.lyapunov_lmi(theory.heavy_ball_system(1.5, 0.9), 0.5, 1.0)
    A, B, C = lmi.system
    wrong = dataclasses.replace(lmi, system=theory.StateSpace(A, -B, C))
    certificate = best_certificate(wrong, 0.0, "the printed system")
    assert certificate.rate == pytest.approx(0.831, abs=1e-3)
    truth = theory.heavy_ball_rate(1.5, 0.9, 0.5, 1.0)
    assert truth == pytest.approx(0.9487, abs=1e-4) and truth > certificate.rate + 0.1
    with pytest.raises(CertificateNotFound):
        theory.heavy_ball_certificate(1.5, 0.9, 0.5, 1.0)


systems = {
    "heavy ball": (theory.heavy_ball_system(0.6, 0.25), theory.heavy_ball_certificate, (0.6, 0.25)),
    "Nesterov": (
        nesterov_system(0.9, theory.nesterov_momentum(0.9, 0.2)),
        theory.nesterov_certificate,
        (0.9,),
    ),
}


def logistic_problem(mu, L, rng, d=3):
    """Return a strongly convex, smooth, non-quadratic problem: logistic losses and L2 penalty."""
    X = rng.standard_normal((30, d))
    X *= np.sqrt(4 * (L - mu) / np.linalg.eigvalsh(X.T @ X / 30)[-1])
    y = rng.choice([-1.0, 1.0], 30)

    def value(w):
        return np.logaddexp(0, -(w @ X.T) * y).mean(-1) + 0.5 * mu * (w * w).sum(-1)

    def gradient(w):
        p = 0.5 * (1 + np.tanh(-0.5 * (w @ X.T) * y))  # the sigmoid of the negative margin
        return -(p * y) @ X / 30 + mu * w

    optimum = np.zeros(d)
    for _ in range(100):
        p = 0.5 * (1 + np.tanh(-0.5 * (X @ optimum) * y))
        hessian = (X.T * (p * (1 - p))) @ X / 30 + mu * np.eye(d)
        optimum = optimum - np.linalg.solve(hessian, gradient(optimum))
    assert np.abs(gradient(optimum)).max() < 1e-12
    return value, gradient, optimum


@pytest.mark.slow
@pytest.mark.parametrize("name", systems)
def test_the_lyapunov_function_decreases(name):
    """From any pair of points, on quadratics, logistic functions and piecewise ones."""
    system, find, arguments = systems[name]
    mu, L = 0.2, 1.0
    certificate = find(*arguments, mu=mu, L=L)
    (A, B, C), P, c = system, certificate.P, certificate.c
    rng = np.random.default_rng(5)

    def V(now, before, gap):
        state = np.stack([now, before], -2)
        return np.einsum("...id,ij,...jd->...", state, P, state) + c * gap

    logistic, slope, optimum = logistic_problem(mu, L, rng)
    rotation = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    Q = rotation @ np.diag([mu, 0.5, L]) @ rotation.T
    functions = [
        (lambda w: 0.5 * np.einsum("...i,ij,...j->...", w, Q, w), lambda w: w @ Q, np.zeros(3)),
        (lambda w: logistic(w) - logistic(optimum), slope, optimum),
        # Curvature L on one side of 0 and mu on the other, in each coordinate.
        (
            lambda w: 0.5 * (np.where(w > 0, L, mu) * w * w).sum(-1),
            lambda w: np.where(w > 0, L, mu) * w,
            np.zeros(3),
        ),
    ]
    worst = 0.0
    for gap, gradient, star in functions:
        now, before = rng.standard_normal((2, 20_000, 3)) * rng.choice([0.1, 1, 5], (20_000, 1))
        g = gradient(star + C[0] * now + C[1] * before)
        after = A[0, 0] * now + A[0, 1] * before + B[0] * g
        old, new = V(now, before, gap(star + now)), V(after, now, gap(star + after))
        assert (new <= certificate.rate**2 * old * (1 + 1e-9)).all()
        assert (old >= certificate.value_coefficient * gap(star + now) * (1 - 1e-9)).all()
        worst = max(worst, (new / old).max())
        # One noisy step: the mean of +w and -w drops odd terms, and is at most the bound.
        w = rng.standard_normal(now.shape)
        noisy = [V(after + s * B[0] * w, now, gap(star + after + s * B[0] * w)) for s in (1, -1)]
        limit = certificate.rate**2 * old + certificate.noise_coefficient * (w * w).sum(-1)
        assert (np.mean(noisy, 0) <= limit * (1 + 1e-9)).all()
    assert worst > 0.8 * certificate.rate**2  # the check has power: it comes near the limit


@pytest.mark.slow
@pytest.mark.parametrize("name", systems)
def test_the_bound_holds_in_simulation(name):
    # Means of 4000 runs against a bound; standard errors are added 5-fold. The bound is over
    # twice the mean wherever noise matters, so a false alarm is practically impossible.
    (A, B, C), find, arguments = systems[name]
    rng = np.random.default_rng(3)
    value, gradient, optimum = logistic_problem(0.2, 1.0, rng)
    certificate = find(*arguments, mu=0.2, L=1.0)
    scale, runs = 0.1, 4000
    w = before = np.zeros((runs, 3))
    gaps, bars = [], []
    for _ in range(40):
        gap = value(w) - value(optimum)
        gaps.append(gap.mean())
        bars.append(gap.std() / np.sqrt(runs))
        noise = rng.laplace(scale=scale, size=w.shape)
        step = B[0] * (gradient(C[0] * w + C[1] * before) + noise)
        w, before = A[0, 0] * w + A[0, 1] * before + step, w
    start = certificate.lyapunov(np.linalg.norm(optimum), gaps[0])
    bound = certificate.bound(np.arange(40), start, theory.noise_second_moment(scale, 3))
    assert (np.array(gaps) - 5 * np.array(bars) <= bound).all()


# Extreme conditioning --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("alpha", "beta", "mu"), [(1e-3, 0.9, 1e-12), (5e-3, 0.9, 3e-13), (1e-7, 0.9, 2e-12)]
)
def test_no_certified_rate_is_below_that_on_a_quadratic(alpha, beta, mu):
    """They were: the doubles next to 1 are far apart."""
    try:
        certificate = theory.heavy_ball_certificate(alpha, beta, mu, 1.0)
    except CertificateNotFound:
        return
    with mpmath.workdps(60):
        a, b, m = map(mpmath.mpf, (alpha, beta, mu))
        trace = 1 + b - a * m
        assert certificate.rate >= (trace + mpmath.sqrt(trace**2 - 4 * b)) / 2


def exact_eigenvalue(certificate, step, beta, mu, nesterov):
    """Return the least eigenvalue of the residual of (3.14), L = 1, with a unit diagonal."""
    with mpmath.workdps(60):
        a, b, m = map(mpmath.mpf, (step, beta, mu))
        look = mpmath.matrix([1 + b, -b, 0] if nesterov else [1, 0, 0])
        now, after = mpmath.matrix([1, 0, 0]), mpmath.matrix([1 + b, -b, -a])
        g = mpmath.matrix([0, 0, 1])

        def both(u, v):
            return (u * v.T + v * u.T) / 2

        sector = 2 * m * both(look, look) - 2 * (m + 1) * both(look, g) + 2 * both(g, g)
        smooth = both(g, look - after) - both(after - look, after - look) / 2
        to_now = both(g, now - look) + m / 2 * both(now - look, now - look)
        to_optimum = m / 2 * both(look, look) - both(g, look)
        P, square = mpmath.matrix(certificate.P.tolist()), mpmath.mpf(certificate.rate) ** 2
        move = mpmath.matrix([[1 + b, -b, -a], [1, 0, 0]])
        phi = move.T * P * move
        for i, j in itertools.product(range(2), repeat=2):
            phi[i, j] -= square * P[i, j]
        form = certificate.c0 * sector - phi
        form += certificate.c * (smooth + to_now + (1 - square) * (to_optimum - to_now))
        scale = [mpmath.sqrt(abs(form[i, i])) or 1 for i in range(3)]
        scaled = mpmath.matrix(3, 3)
        for i, j in itertools.product(range(3), repeat=2):
            scaled[i, j] = form[i, j] / (scale[i] * scale[j])
        return min(mpmath.eigsy(scaled, eigvals_only=True))


@pytest.mark.parametrize("mu", [10.0**-k for k in (1, 4, 8, 11, 12, 13, 15)])
@pytest.mark.parametrize("nesterov", [False, True])
def test_certificates_hold_in_exact_arithmetic(mu, nesterov):
    """For mu/L below 1e-12 many did not."""
    for step in (1e-3, 0.1, 1.0):
        beta = float(theory.nesterov_momentum(step, mu)) if nesterov else 0.3
        try:
            certificate = (
                theory.nesterov_certificate(step, mu, 1.0)
                if nesterov
                else theory.heavy_ball_certificate(step, beta, mu, 1.0)
            )
        except CertificateNotFound:
            assert mu < 1e-10 or not nesterov
            continue
        assert exact_eigenvalue(certificate, step, beta, mu, nesterov) >= -1e-40
        assert np.isfinite(certificate.noise_gain)


@pytest.mark.parametrize(
    ("step", "beta", "mu"),
    [
        (0.000779000235870712, 0.3, 2.2314308634504216e-10),
        (0.0009687050801441325, 0.9, 2.7992338596995755e-10),
    ],
)
def test_the_blocks_are_exact_too(step, beta, mu):
    """With blocks in floating point, a certificate whose least eigenvalue is negative passed."""
    certificate = certify(mu, step, beta)
    assert certificate is None or exact_eigenvalue(certificate, step, beta, mu, False) >= -1e-40


@pytest.mark.parametrize("make", [theory.heavy_ball_system, nesterov_system])
def test_blocks_of_fractions_are_fractions(make):
    """One float among them would round all."""
    exact = np.vectorize(Fraction, otypes=[object])
    system = search_module.StateSpace(*map(exact, make(0.3, 0.7)))
    for block in search_module._blocks(system, Fraction(1, 3), Fraction(1)):
        assert {type(each) for each in block.ravel()} <= {int, Fraction}


def test_the_least_cost_is_that_of_the_certificate_found():
    """Also where the Lyapunov function correlates both iterates positively."""
    certificate = certify(0.5, 0.1, 0.7, objective="noise", rate=0.876)
    square = certificate.rate**2
    search = search_module.CertificateSearch(certificate.lmi)
    goal = search.coefficients(0.0, 0.0, 1.0 / (1.0 - square))
    assert search.least_cost(square, goal)[0] == pytest.approx(certificate.noise_gain, rel=1e-5)


def test_what_a_certificate_must_have_beside_its_residual():
    lmi = theory.lyapunov_lmi(theory.heavy_ball_system(0.5, 0.25), 0.5, 1.0)
    zero, one = np.zeros((3, 3)), 10.0 * np.eye(3)
    easy = dataclasses.replace(lmi, X0=zero, X1=one, X2=zero)  # as a block of another system
    P = np.diag([0.5, 0.25])
    assert easy.holds(0.5, P, 1.0, 1.0) and easy.holds(0.0, P, 1.0, 0.0)
    assert not easy.holds(0.5, P, 1.0, -1.0) and not easy.holds(-0.5, P, 1.0, 1.0)
    assert not easy.holds(0.5, np.diag([0.5, -1e-300]), 1.0, 1.0)
    assert not easy.holds(0.5, np.array([[0.5, 0.5], [0.5, 0.25]]), 1.0, 1.0)
    assert not dataclasses.replace(easy, X0=-one, X1=-one).holds(0.5, 0.0 * P, -1.0, 1.0)
    assert not lmi.holds(0.5, P, 0.0, 0.0)


def test_a_certificate_of_another_system_is_checked_for_that_one():
    """Only where two numbers of the methods add up to 1 is the first one known exactly."""
    _, B, C = theory.heavy_ball_system(0.5, 0.1)
    leaky = theory.lyapunov_lmi(
        theory.StateSpace(np.array([[0.5, -0.1], [1.0, 0.0]]), B, C), 0.5, 1
    )
    easy = dataclasses.replace(leaky, X0=0.0 * leaky.X0, X1=np.eye(3), X2=0.0 * leaky.X2)
    numbers = 0.9, np.diag([1.0, 0.5]), 1.0, 0.0
    assert np.linalg.eigvalsh(easy.residual(*numbers))[0] > 0.6 and easy.holds(*numbers)
    sound = dataclasses.replace(easy, system=theory.heavy_ball_system(0.5, 0.1))
    assert not sound.holds(*numbers)


@pytest.mark.parametrize(
    ("step", "beta", "mu"),
    [
        (0.05226118572417249, 0.9, 4.863928290219672e-15),
        (0.001677076693304757, 0.9, 5.397429693269238e-13),
        (1.2675733831343197e-05, 0.5, 7.884947747461906e-11),
    ],
)
def test_a_rate_too_close_to_1_is_not_searched(step, beta, mu):
    """1 / (1 - rate^2) was a division by zero."""
    assert certify(mu, step, beta, objective="noise") is None


# Nesterov's method -----------------------------------------------------------------------------


@given(st.floats(1e-4, 0.9), st.floats(0.02, 1.0))
def test_nesterovs_lyapunov_function_satisfies_the_inequality(mu, alpha):
    """001-9: V of Theorem 4.1, corrected, with P of rank one, c = 1, c0 = 0."""
    system = nesterov_system(alpha, theory.nesterov_momentum(alpha, mu))
    lmi = theory.lyapunov_lmi(system, mu, 1.0)
    v = np.array([1 / np.sqrt(alpha), np.sqrt(mu) - 1 / np.sqrt(alpha)])
    residual = lmi.residual(np.sqrt(1 - np.sqrt(mu * alpha)), 0.5 * np.outer(v, v), 1.0, 0.0)
    size = np.abs(residual).max()
    assert np.linalg.eigvalsh(residual)[0] >= -1e-12 * max(size, 1 / alpha)
    closed = theory.Certificate(
        np.sqrt(1 - np.sqrt(mu * alpha)), 0.5 * np.outer(v, v), 1.0, 0.0, 0.0, lmi
    )
    assert closed.noise_coefficient == pytest.approx(0.5 * alpha * (1 + alpha))
    assert closed.lyapunov(gap=1.0) <= 2.0 + 1e-9


@pytest.mark.parametrize("mu, alpha", [(0.01, 1.0), (1e-4, 1.0), (0.1, 0.3), (0.5, 1.0)])
def test_nesterov_certificate_is_at_least_the_classical_rate(mu, alpha):
    certificate = theory.nesterov_certificate(alpha, mu, 1.0)
    momentum = float(theory.nesterov_momentum(alpha, mu))
    assert theory.nesterov_certificate(alpha, mu, 1.0, momentum=momentum).rate == certificate.rate
    classical = np.sqrt(1 - np.sqrt(mu * alpha))
    exact = theory.nesterov_rate(alpha, theory.nesterov_momentum(alpha, mu), mu, 1.0)
    assert exact - 1e-9 <= certificate.rate <= classical + 1e-6 * (1 - classical)
    assert_verifies(certificate)


def test_certificates_as_error_recursions():
    certificate = theory.heavy_ball_certificate(0.5, 0.3, 0.2, 1.0)
    a0, a = theory.heavy_ball_recursion(20, certificate).weights()
    b = 0.1
    bound = theory.error_bound(a0, a, 2.0, b, 3)
    expected = certificate.bound(
        20, certificate.lyapunov(gap=2.0), theory.noise_second_moment(b, 3)
    )
    assert bound == pytest.approx(expected)


# Verification of solver output -----------------------------------------------------------------


def garbage(cost, blocks):
    return np.full(len(cost), 0.37)


def nans(cost, blocks):
    return np.full(len(cost), np.nan)


@pytest.mark.parametrize("fake", [garbage, nans])
@pytest.mark.parametrize("rate", [None, 0.9])
def test_garbage_from_a_solver_is_refused(monkeypatch, fake, rate):
    monkeypatch.setattr(search_module, "maximize", fake)
    with pytest.raises(CertificateNotFound):
        theory.heavy_ball_certificate(0.2, 0.5, 0.5, 1.0, rate=rate)


def test_an_inaccurate_solver_gives_worse_but_valid_rates(monkeypatch):
    """A solver that stops early ("optimal_inaccurate") leaves the certificate valid."""
    honest = search_module.maximize
    rng = np.random.default_rng(0)
    exact = theory.heavy_ball_certificate(0.2, 0.5, 0.5, 1.0)

    def sloppy(cost, blocks):
        y = honest(cost, blocks)
        return y * (1 + 1e-4 * rng.standard_normal(y.size))

    monkeypatch.setattr(search_module, "maximize", sloppy)
    certificate = theory.heavy_ball_certificate(0.2, 0.5, 0.5, 1.0)
    assert_verifies(certificate)
    assert exact.rate - 1e-6 <= certificate.rate < exact.rate + 0.05


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["rate", "noise"])
def test_through_cvxpy(objective):
    """The same programs stated in cvxpy give the same certificates."""
    direct = theory.heavy_ball_certificate(0.2, 0.5, 0.5, 1.0, objective=objective)
    other = theory.heavy_ball_certificate(
        0.2, 0.5, 0.5, 1.0, objective=objective, solver="CLARABEL"
    )
    assert_verifies(other)
    assert other.rate == pytest.approx(direct.rate, abs=1e-5)
    if objective == "noise":
        assert other.noise_gain == pytest.approx(direct.noise_gain, rel=1e-3)


@pytest.mark.slow
def test_an_inaccurate_solver_of_cvxpy_is_verified_too():
    """SCS stops at 1e-4: its output may give a worse rate, but never an invalid one."""
    exact = theory.heavy_ball_certificate(0.2, 0.5, 0.5, 1.0)
    certificate = theory.heavy_ball_certificate(0.2, 0.5, 0.5, 1.0, solver="SCS")
    assert_verifies(certificate)
    assert exact.rate - 1e-6 <= certificate.rate < exact.rate + 0.05


def test_unknown_solver_is_named():
    with pytest.raises(ValueError, match="NOSUCH"):
        theory.heavy_ball_certificate(0.2, 0.5, 0.5, 1.0, solver="NOSUCH")


def test_against_cvxpy():
    """The same inequality in a modelling language and another solver: rates agree."""
    import cvxpy as cp

    mu, alpha, beta = 0.5, 1.0, 0.2
    lmi = theory.lyapunov_lmi(theory.heavy_ball_system(alpha, beta), mu, 1.0)
    step = np.column_stack([lmi.system.A, lmi.system.B])
    P, c, c0, t = cp.Variable((2, 2), PSD=True), cp.Variable(), cp.Variable(), cp.Variable()
    pick = np.eye(3)[:2]

    def margin(rate):
        phi = step.T @ P @ step - rate**2 * (pick.T @ P @ pick)
        residual = c0 * lmi.X0 + c * (lmi.X1 + (1 - rate**2) * lmi.X2) - phi
        positive = 0.5 * (residual + residual.T) >> t * np.eye(3)
        constraints = [positive, c >= 0, c0 >= 0, cp.trace(P) + c == 1]
        problem = cp.Problem(cp.Maximize(t), constraints)
        return problem.solve(solver="SCS", eps=1e-9, max_iters=100_000)

    rate = theory.heavy_ball_certificate(alpha, beta, mu, 1.0).rate
    assert margin(rate + 1e-3) > 0 > margin(rate - 1e-3)


@pytest.mark.parametrize(
    ("alpha", "beta", "mu"), [(1e-8, 0.0, 1e-2), (1e-8, 0.5, 1e-5), (1e-12, 0.9, 1e-2)]
)
def test_a_tiny_step_has_a_certificate_of_its_rate(alpha, beta, mu):
    """The slow root, 1 - alpha mu/(1 - beta) up to higher powers of alpha."""
    rate = theory.heavy_ball_certificate(alpha, beta, mu, 1.0).rate
    assert 1.0 - rate == pytest.approx(alpha * mu / (1.0 - beta), rel=0.01)


# Tuning and arguments --------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.0, 1e-9])
def test_no_quadratic_of_the_class_is_worse_than_the_tuned_value(noise):
    tuned = theory.tune_heavy_ball(1e-4, 1.0, lambda T: noise, 300, (1.0, None))
    alpha, beta, T = tuned.step_size, tuned.momentum, tuned.iterations
    worst = max(
        theory.heavy_ball_gap([lam], alpha, beta, noise, 1.0, T)[-1]
        for lam in np.union1d(np.geomspace(1e-4, 1.0, 1500), np.linspace(1e-4, 1.0, 1500))
    )
    assert worst <= 1.005 * tuned.value


def test_a_few_steps_are_tuned_for_noise_in_the_worst_direction():
    tuned = theory.tune_heavy_ball(0.1, 1.0, lambda T: 0.3, 4, (1.0, None))
    alpha, beta, T = tuned.step_size, tuned.momentum, tuned.iterations
    start, noise = (
        max(
            theory.heavy_ball_gap([lam], alpha, beta, variance, error, T)[-1]
            for lam in np.linspace(0.1, 1.0, 500)
        )
        for variance, error in ((0.0, 1.0), (0.3, 0.0))
    )
    assert tuned.value == pytest.approx(start + noise, rel=0.005)


@pytest.mark.slow
def test_tuning_on_a_known_quadratic():
    law = theory.laplace_noise(epsilon=1.0, sensitivity=2.0, n=1000, dimension=2)
    tuned = theory.tune_heavy_ball(0.1, 1.0, law, 60, initial=(1.0, None), eigenvalues=[0.1, 1.0])
    rng = np.random.default_rng(0)

    def worst_error(alpha, beta, T):
        # Noise variance W/d per coordinate; the initial error lies in the worse direction.
        noise = theory.heavy_ball_gap([0.1, 1.0], alpha, beta, law(T) / 2, 0.0, T)[-1]
        start = [theory.heavy_ball_gap([lam], alpha, beta, 0.0, 1.0, T)[-1] for lam in (0.1, 1)]
        return noise + max(start)

    assert tuned.value <= worst_error(tuned.step_size, tuned.momentum, tuned.iterations) + 1e-12
    for _ in range(300):
        alpha, beta, T = rng.uniform(0.05, 3), rng.uniform(0, 0.95), rng.integers(1, 61)
        assert tuned.value <= worst_error(alpha, beta, int(T)) * (1 + 1e-3)
    again = theory.tune_heavy_ball(0.1, 1.0, law, 60, (1.0, None), eigenvalues=[0.1, 1.0])
    assert (again.step_size, again.momentum, again.value) == (
        tuned.step_size,
        tuned.momentum,
        tuned.value,
    )


def test_tuning_where_nothing_is_certified_says_so():
    with pytest.raises(CertificateNotFound, match="no step size and momentum on the grid"):
        theory.tune_heavy_ball(1e-14, 1.0, lambda T: 1e-3, 5, (1.0, None), objective="certified")
    with pytest.raises(TypeError, match="noise_law must be a function of the iterations"):
        theory.tune_heavy_ball(0.1, 1.0, 0.1, 5, (1.0, None))


@pytest.mark.slow
def test_certified_tuning_is_a_bound():
    law = theory.laplace_noise(epsilon=1.0, sensitivity=2.0, n=1000, dimension=5)
    tuned = theory.tune_heavy_ball(0.2, 1.0, law, 30, (1.0, None), objective="certified")
    T, c = tuned.iterations, tuned.certificate
    assert_verifies(c)
    assert tuned.value == pytest.approx(c.bound(T, c.lyapunov(1.0), law(T)))
    for alpha, beta in [(1.0, 0.0), (0.5, 0.0), (0.3, 0.2), (0.1, 0.5)]:
        other = theory.heavy_ball_certificate(alpha, beta, 0.2, 1.0)
        times = np.arange(1, 31)
        bounds = other.bound(times, other.lyapunov(1.0), [law(t) for t in times])
        assert tuned.value <= bounds.min()
    for lam in (0.2, 0.5, 1.0):
        gap = theory.heavy_ball_gap([lam], tuned.step_size, tuned.momentum, law(T), 1.0, T)
        assert gap[-1] <= tuned.value


def test_no_certificate_of_another_horizon_is_better_than_the_tuned_one():
    moments = 0.003 * np.arange(1, 7) ** 2.0
    certificate, value, horizon = _certified(0.9, 0.1, 0.3, 1.0, moments, (1.0, 0.5))
    start = certificate.lyapunov(1.0, 0.5)
    bound = certificate.bound(horizon, start, moments[horizon - 1])
    assert value == pytest.approx(bound, rel=1e-12)  # a power of an array is rounded otherwise
    for T, noise in enumerate(moments, 1):
        goal = {"horizon": T, "noise_second_moment": noise, "initial": (1.0, 0.5)}
        other = certify(0.3, 0.9, 0.1, objective="bound", **goal)
        assert value <= other.bound(T, other.lyapunov(1.0, 0.5), noise) * 1.0001


@pytest.mark.parametrize("horizon", [1, 2, 5])
def test_without_noise_all_steps_are_taken(horizon):
    tuned = theory.tune_heavy_ball(0.1, 1.0, lambda T: 0.0, horizon, (1.0, None))
    assert tuned.iterations == horizon
    # One step: the largest of x (1 - alpha x)^2 / 2 is at x = 1 or 1/(3 alpha).
    if horizon == 1:
        assert (tuned.step_size, tuned.value) == pytest.approx((4 / 3, 1 / 18), rel=1e-3)


def test_the_search_ends_within_half_a_spacing_of_the_best_point():
    rng = np.random.default_rng(0)
    for x, y in rng.uniform([np.log(1e-4), 0.0], [np.log(3.0), np.log(1e3)], (50, 2)):

        def errors(alpha, beta, x=x, y=y):
            away = (np.log(2.0 * alpha) - x) ** 2 + (np.log1p(-beta) + y) ** 2
            return away, np.full(np.shape(alpha), 7)

        alpha, beta, T, value = _refine(errors, 2.0, (13, 11))
        assert abs(np.log(2.0 * alpha) - x) <= 0.51 * np.log(3e4) / 12 / 6**5
        assert abs(np.log1p(-beta) + y) <= 0.51 * np.log(1e3) / 10 / 5**5
        assert T == 7 and value == errors(alpha, beta)[0]


def test_laplace_noise_counts_subsampling():
    law = theory.laplace_noise(1.0, 2.0, 1000, 3, m=10)
    scale = theory.laplace_scales([0.1], 2.0, 1000, 10)
    expected = theory.noise_second_moment(scale, 3, theory.subsampling_variance(2.0, 1000, 10))
    assert law(10) == pytest.approx(expected[0])


hb = theory.heavy_ball_certificate


@pytest.mark.parametrize(
    "call, match",
    [
        (lambda: hb(0.0, 0.1, 0.5, 1.0), "step_size"),
        (lambda: hb(1.0, 1.0, 0.5, 1.0), "momentum"),
        (lambda: hb(1.0, -0.1, 0.5, 1.0), "momentum"),
        (lambda: hb(1.0, 0.1, 2.0, 1.0), "L must"),
        (lambda: hb(1.0, 0.1, 0.0, 1.0), "mu"),
        (lambda: hb(1.0, 0.1, 0.5, 1.0, rate=1.0), "rate"),
        (lambda: hb(1.0, 0.1, 0.5, 1.0, objective="best"), "objective"),
        (lambda: hb(1.0, 0.1, 0.5, 1.0, objective="bound"), "horizon"),
        (lambda: hb(1.0, 0.1, 0.5, 1.0, horizon=3), "horizon"),
        (
            lambda: hb(
                1.0,
                0.1,
                0.5,
                1.0,
                objective="bound",
                horizon=3,
                noise_second_moment=1.0,
                initial=(None, None),
            ),
            "distance",
        ),
        (lambda: theory.nesterov_certificate(3.0, 0.5, 1.0), "step_size"),
        (lambda: hb(0.5, 0.1, 0.5, 1.0).lyapunov(), "distance"),
        (lambda: hb(0.5, 0.1, 0.5, 1.0).bound(-1, 1.0, 0.0), "t must"),
        (lambda: theory.tune_heavy_ball(0.1, 1.0, lambda t: 0.1, 0, (1.0, None)), "horizon_max"),
        (lambda: theory.tune_heavy_ball(0.1, 1.0, lambda t: -0.1, 3, (1.0, None)), "noise_law"),
        (
            lambda: theory.tune_heavy_ball(
                0.1, 1.0, lambda t: 0.1, 3, (1.0, None), objective="certified", eigenvalues=[1.0]
            ),
            "eigenvalues",
        ),
        (lambda: theory.laplace_noise(0.0, 1.0, 10, 2), "epsilon"),
    ],
)
def test_bad_arguments_of_certificates(call, match):
    with pytest.raises(ValueError, match=match):
        call()


@pytest.mark.slow
def test_solvers_are_imported_only_when_needed():
    code = (
        "import sys, dpanalysis.theory; "
        "heavy = {'cvxpy', 'clarabel', 'numba', 'matplotlib'}; "
        "sys.exit(sorted(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_rounding_errors_in_a_spectrum_are_tolerated():
    spectrum = [0.1 * (1.0 - 1e-14), 1.0 + 1e-14]
    tuned = theory.tune_heavy_ball(0.1, 1.0, lambda T: 1e-3, 3, (1.0, None), eigenvalues=spectrum)
    assert 0.0 < tuned.value < 1.0
    for outside in (0.09, 1.01):
        with pytest.raises(ValueError, match="eigenvalues must lie in"):
            theory.tune_heavy_ball(0.1, 1.0, lambda T: 1e-3, 3, (1.0, None), eigenvalues=[outside])


@pytest.mark.parametrize("change", [-0.02, 0.02])
def test_no_rate_beside_the_chosen_one_has_less_noise(change):
    best = theory.heavy_ball_certificate(0.5, 0.5, 0.1, 1.0, objective="noise")
    rate = 1.0 - (1.0 - best.rate) * (1.0 + change)
    other = theory.heavy_ball_certificate(0.5, 0.5, 0.1, 1.0, rate=rate, objective="noise")
    assert best.noise_gain < other.noise_gain < 1.01 * best.noise_gain
