"""Kuru et al. (2022), section 3: the heavy ball method, its noise and its certificates."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
from scipy import linalg

from ... import theory
from ...errors import CertificateNotFound
from ...theory.certificates import best_certificate
from ..registry import Effort, Evidence, printed, register, used
from ._long_paths import certified_paths
from ._smooth import (
    Array,
    Step,
    closed_loop,
    expected_gaps,
    log_uniform,
    quadratic_gaps,
    random_smooth,
)

# A rounding error of 1e-16 shows as 1e-8 in the modulus of a double root.
CORNER = 1e-7


def exact_rate(spectrum: Array, step: Step) -> float:
    """Return the largest modulus of an eigenvalue of the closed loop."""
    return float(np.abs(np.linalg.eigvals(closed_loop(spectrum, step))).max())


def printed_residual(
    certificate: theory.Certificate, alpha: float, beta: float, sign: float
) -> Array:
    """Return the left side of (3.14) less the right one, as printed, with B = [sign alpha; 0].

    The corner of X_0 is the scalar 2.
    """
    mu, L, P = certificate.lmi.mu, certificate.lmi.L, certificate.P
    A, B = np.array([[1.0 + beta, -beta], [1.0, 0.0]]), np.array([[sign * alpha], [0.0]])
    C = np.array([[1.0, 0.0]])
    square = certificate.rate**2
    X0 = np.block([[2.0 * mu * L * C.T @ C, -(mu + L) * C.T], [-(mu + L) * C, 2.0 * np.eye(1)]])
    k = (1.0 - L * alpha) * beta
    X1 = 0.5 * np.array(
        [
            [-L * beta**2, L * beta**2, -k],
            [L * beta**2, -L * beta**2, k],
            [-k, k, alpha * (2.0 - L * alpha)],
        ]
    )
    X2 = 0.5 * np.array([[mu, 0.0, -1.0], [0.0, 0.0, 0.0], [-1.0, 0.0, 0.0]])
    phi = np.block([[A.T @ P @ A - square * P, A.T @ P @ B], [B.T @ P @ A, B.T @ P @ B]])
    return np.asarray(certificate.c0 * X0 + certificate.c * (X1 + (1.0 - square) * X2) - phi)


def random_certificates(
    random: np.random.Generator, count: int
) -> Iterator[tuple[theory.Certificate, float, float]]:
    """Yield certificates of heavy ball methods with their step size and momentum; L = 1."""
    while count:
        mu, alpha = log_uniform(random, 1e-3, 0.9), log_uniform(random, 0.02, 1.5)
        beta = float(random.uniform(0.0, 0.7))
        goal = str(random.choice(["rate", "noise"]))
        try:
            found = theory.heavy_ball_certificate(alpha, beta, mu, 1.0, objective=goal)
        except CertificateNotFound:
            continue
        count -= 1
        yield found, alpha, beta


@register(
    "001-2",
    "(3.10)",
    "B = [alpha; 0]",
    'B = [-alpha; 0]; with the printed sign (3.14) "certifies" rates that the method does not have',
    verdict="corrected",
)
def sign_of_b(effort: Effort) -> Iterator[Evidence]:
    """One step of (3.9) against (2.5), and what the inequality then proves."""
    random = effort.random(2)
    n = effort.cases(200, 2000)
    as_printed = ours = 0.0
    for _ in range(n):
        now, before, slope, alpha, beta = random.uniform(0.1, 2.0, 5)
        step = now - alpha * slope + beta * (now - before)
        A, B, _ = theory.heavy_ball_system(alpha, beta)
        as_printed = max(as_printed, abs((A @ (now, before))[0] + alpha * slope - step))
        ours = max(ours, abs((A @ (now, before) + B * slope)[0] - step))
    what = "largest |step of (3.9) - step of (2.5)|"
    yield printed(what, as_printed, "<=", 1e-12, cases=n)
    alpha, beta, mu = 1.5, 0.9, 0.5
    lmi = theory.lyapunov_lmi(theory.heavy_ball_system(alpha, beta), mu, 1.0)
    wrong = dataclasses.replace(lmi, system=lmi.system._replace(B=-lmi.system.B))
    certificate = best_certificate(wrong, 0.0, "the printed system")
    residual = printed_residual(certificate, alpha, beta, 1.0)
    yield printed(
        "smallest eigenvalue of (3.14) at mu .5, L 1, alpha 1.5, beta .9 and the rate certified",
        np.linalg.eigvalsh(residual)[0],
        ">=",
        0.0,
        tolerance=1e-12,
    )
    true = exact_rate(np.array([mu, 1.0]), Step(alpha, beta, 0.0))
    yield printed("true rate there, against the certified one", true, "<=", certificate.rate)
    yield used(what, ours, "<=", 1e-12, cases=n)
    n, worst = effort.cases(60, 600), 0.0
    for found, alpha, beta in random_certificates(random, n):
        spectrum = np.geomspace(found.lmi.mu, 1.0, 33)
        worst = max(worst, exact_rate(spectrum, Step(alpha, beta, 0.0)) / found.rate)
    yield used("largest true rate / certified rate", worst, "<=", 1.0, tolerance=CORNER, cases=n)


@register(
    "001-3",
    "(3.14)",
    "2 I_d in the corner of X_0; any positive semidefinite P and c_0, c >= 0",
    "the scalar 2, which makes X_0 the sector condition; P = 0, c = 0 excluded by trace(P) + c = 1",
    verdict="corrected",
)
def blocks_of_the_inequality(effort: Effort) -> Iterator[Evidence]:
    """Shapes, the trivial solution, and X_0 on random functions."""
    random = effort.random(3)
    what = "rows of the corner 2 I_d at d = 3; the block beside it has one"
    yield printed(what, len(np.eye(3)), "==", 1)
    mu, alpha, beta, rate = 0.01, 0.1, 0.0, 0.1
    lmi = theory.lyapunov_lmi(theory.heavy_ball_system(alpha, beta), mu, 1.0)
    trivial = theory.Certificate(rate, np.zeros((2, 2)), 0.0, 0.0, 0.0, lmi)
    smallest = np.linalg.eigvalsh(printed_residual(trivial, alpha, beta, -1.0))[0]
    yield printed("smallest eigenvalue of (3.14) at P = 0, c = 0, rate .1", smallest, ">=", 0.0)
    true = exact_rate(np.array([mu, 1.0]), Step(alpha, beta, 0.0))
    yield printed("true rate at mu .01, L 1, alpha .1, beta 0", true, "<=", rate)
    n, largest = effort.cases(200, 4000), -np.inf
    for _ in range(n):
        mu, d = log_uniform(random, 1e-3, 0.9), int(random.integers(1, 4))
        function = random_smooth(random, mu, 1.0, d)
        x = random.standard_normal((200, d)) * np.exp(random.uniform(-3.0, 3.0, (200, 1)))
        g = function.gradient(x)
        parts = [2.0 * mu * (x * x).sum(1), -2.0 * (1.0 + mu) * (x * g).sum(1)]
        parts.append(2.0 * (g * g).sum(1))
        form = sum(parts) / sum(abs(part) for part in parts)
        largest = max(largest, float(form.max()))
    yield used(
        "largest form of X_0, relative, on functions of the class",
        largest,
        "<=",
        1e-12,
        cases=200 * n,
    )
    n, least, off = effort.cases(60, 600), np.inf, 0.0
    for found, alpha, beta in random_certificates(random, n):
        residual = printed_residual(found, alpha, beta, -1.0)
        least = min(least, float(np.linalg.eigvalsh(residual)[0]))
        off = max(off, abs(float(np.trace(found.P)) + found.c - 1.0))
    yield used(
        "smallest eigenvalue of (3.14), block by block, for certificates found",
        least,
        ">=",
        -1e-12,
        cases=n,
    )
    yield used("largest |trace(P) + c - 1| of them", off, "<=", 1e-12, cases=n)


@register(
    "001-6",
    "Prop. 3.4, (3.15)",
    "rate^{2t} V_0/c + (1-rate^{2t})/(1-rate^2) (L d alpha^2/2) E_T (1 + 2 P12^2/(P22 c L + 2|P|))",
    "[rate^{2t} V_0 + (1-rate^{2t})/(1-rate^2) alpha^2 (P11 + c L/2) E_T]/(c + 2|P|/(L P22)): "
    "without the factor d, which E_T contains, and useful at c = 0",
    verdict="sharpened",
)
def certified_bound(effort: Effort) -> Iterator[Evidence]:
    """Exact expectations over all paths of a two-valued noise, on functions of the class."""
    random = effort.random(6)
    count, T = effort.cases(60, 1000), 8
    times = np.arange(1, T + 1)
    loose = sharp = code = times_d = 0.0
    least = np.inf
    for found, alpha, beta in random_certificates(random, count):
        d = int(random.integers(1, 4))
        function = random_smooth(random, found.lmi.mu, 1.0, d)
        start, noises = random.standard_normal(d), random.standard_normal((T, d))
        level = log_uniform(random, 1e-3, 10.0)
        noises *= level / np.linalg.norm(noises, axis=1, keepdims=True)
        gaps = expected_gaps(function, [Step(alpha, beta, 0.0)] * T, start, noises)
        initial, gaps = float(gaps[0]), gaps[1:]
        (p11, p12), (_, p22) = found.P
        determinant = p11 * p22 - p12 * p12
        decay = found.rate ** (2.0 * times)
        growth = (1.0 - decay) / (1.0 - found.rate**2) * level**2 * alpha**2
        V0 = float(found.P.sum()) * float(start @ start) + found.c * initial
        factor = 1.0 + 2.0 * p12**2 / (p22 * found.c + 2.0 * determinant)
        with np.errstate(divide="ignore"):
            as_printed = decay * np.divide(V0, found.c) + growth * 0.5 * d * factor
        bound = decay * V0 + growth * (p11 + 0.5 * found.c)
        bound /= found.c + 2.0 * determinant / p22
        V0 = found.lyapunov(float(np.linalg.norm(start)), initial)
        ours = np.asarray(found.bound(times, V0, level**2))
        loose = max(loose, float((gaps / as_printed).max()))
        sharp = max(sharp, float((gaps / bound).max()))
        least = min(least, float((as_printed / bound).min()))
        noise = (p11 + 0.5 * found.c) / (found.c + 2.0 * determinant / p22)
        times_d = max(times_d, abs(0.5 * d * factor / noise / d - 1.0))
        code = max(code, float(np.abs(ours / bound - 1.0).max()))
    yield printed("largest E[F - F*] / (3.15)", loose, "<=", 1.0, tolerance=1e-9, cases=count)
    yield used("largest E[F - F*] / bound", sharp, "<=", 1.0, tolerance=1e-9, cases=count)
    yield used("smallest (3.15) / bound, d <= 3", least, ">=", 1.0, tolerance=1e-9, cases=count)
    yield used(
        "|noise term of (3.15) / d, over the bound's, - 1|", times_d, "<=", 1e-9, cases=count
    )
    yield used("relative error of `Certificate.bound`", code, "<=", 1e-9, cases=count)
    long, cases = effort.cases(60, 400), effort.cases(30, 300)
    worst = certified_paths(effort, long)
    yield used(
        f"largest E[F - F*] / bound, T = {long}", worst, "<=", 1.0, tolerance=1e-9, cases=cases
    )


@register(
    "001-7",
    "Theorem 3.5, (3.17)",
    "V(xi_0) C_t^2 rate^{2t} + L m(alpha, beta), drawn with C_t = t",
    "(L/2) C_t^2 rate^{2t} ||xi_0 - xi*||^2 + the stationary gap, with C_t = max_i "
    "||T_i^t|| / rate^t; the printed noise term is 2 L/lambda_i times that of each i",
    verdict="corrected",
)
def quadratic_bound(effort: Effort) -> Iterator[Evidence]:
    """Powers of the 2 x 2 matrices, and the Lyapunov equation for the stationary gap."""
    random = effort.random(7)
    spectrum, step = np.array([0.5, 1.0]), Step(0.5, 0.25, 0.0)
    tenth = np.linalg.matrix_power(closed_loop(spectrum, step), 10)
    growth = np.linalg.norm(tenth, 2, axis=(1, 2)).max() / exact_rate(spectrum, step) ** 10
    yield printed("C_10 at lambda .5 and 1, alpha .5, beta .25, against t", growth, "<=", 10.0)
    gaps = quadratic_gaps([50.0, 100.0], [Step(0.005, 0.25, 0.0)] * 20, 1.0)
    powers = matrix_norms(np.array([50.0, 100.0]), Step(0.005, 0.25, 0.0), 20)
    ratio = float((gaps / (4.0 * powers**2)).max())  # V(xi_0) = ||xi_0 - xi*||^2 = 4
    yield printed("largest gap / (3.17) at L = 100, no noise, C_t exact", ratio, "<=", 1.0)
    count, T = effort.cases(300, 3000), 40
    worst = floor = 0.0
    least = np.inf
    for _ in range(count):
        mu, L = log_uniform(random, 1e-3, 1.0), log_uniform(random, 0.01, 100.0)
        spectrum = L * np.array([mu, log_uniform(random, mu, 1.0), 1.0])
        alpha, beta = log_uniform(random, 0.01, 1.99) / L, float(random.uniform(0.0, 0.95))
        step, noise, start = Step(alpha, beta, 0.0), random.exponential(), random.exponential()
        exact = 0.0
        for lam, closed in zip(spectrum, closed_loop(spectrum, step)):
            kick = np.diag([alpha**2 * noise, 0.0])
            exact += 0.5 * lam * linalg.solve_discrete_lyapunov(closed, kick)[0, 0]
        stationary = theory.heavy_ball_stationary_gap(spectrum, alpha, beta, noise)
        floor = max(floor, abs(float(stationary) / exact - 1.0))
        terms = spectrum * (2.0 + 2.0 * beta - alpha * spectrum)
        m = 0.5 * noise * (2.0 * alpha * (1.0 + beta) / ((1.0 - beta) * terms)).sum()
        least = min(least, L * m / exact)
        gaps = quadratic_gaps(spectrum, [step] * T, start, noise)
        bound = 0.5 * L * matrix_norms(spectrum, step, T) ** 2 * 6.0 * start**2 + exact
        worst = max(worst, float((gaps / bound).max()))
    yield printed(
        "smallest noise term of (3.17) / exact stationary gap",
        least,
        ">=",
        2.0,
        tolerance=1e-9,
        cases=count,
    )
    yield used("largest exact gap / bound", worst, "<=", 1.0, tolerance=1e-9, cases=count)
    yield used(
        "largest relative error of the stationary gap, against the Lyapunov equation",
        floor,
        "<=",
        1e-7,
        cases=count,
    )


def matrix_norms(spectrum: Array, step: Step, T: int) -> Array:
    """Return max_i ||T_i^t||, t = 0..T."""
    closed = closed_loop(spectrum, step)
    power = np.broadcast_to(np.eye(2), closed.shape)
    norms = [1.0]
    for _ in range(T):
        power = closed @ power
        norms.append(float(np.linalg.norm(power, 2, axis=(1, 2)).max()))
    return np.array(norms)


# Points of the authors' Fig. 1, (alpha, beta, rate), and how exactly they can be read off.
READING = 3e-6
FIGURE_1 = np.array(
    [
        (0.1, 0.31, 0.985478),
        (0.1, 0.82, 0.900999),
        (0.1, 0.94, 0.964676),
        (0.5, 0.0, 0.95),
        (0.5, 0.47, 0.900866),
        (0.5, 0.83, 0.887975),
        (1.0, 0.0, 0.900001),
        (1.0, 0.1, 0.888731),
        (1.0, 0.47, 0.782258),
        (1.0, 0.52, 0.684105),
        (1.0, 0.73, 0.810556),
    ]
)


def figure_rates(mu: float, nesterov: bool) -> Array:
    """Return the rates of either method at the points of the figure, from eigenvalues; L = 1."""
    return np.array(
        [
            exact_rate(np.array([mu, 1.0]), Step(alpha, beta, beta if nesterov else 0.0))
            for alpha, beta, _ in FIGURE_1
        ]
    )


@register(
    "001-21",
    "Fig. 1, (3.18)",
    "Fig. 1 shows (3.18) at mu = .5",
    "(3.18) is the rate of (2.5) on quadratics; the published curves are those of Nesterov's "
    "polynomial z^2 - (1+beta)(1-alpha lambda) z + beta (1-alpha lambda) at mu = .1; figures here "
    "draw both",
    verdict="corrected",
)
def figure_1(effort: Effort) -> Iterator[Evidence]:
    """Eigenvalues of the closed loops at published points."""
    random = effort.random(21)
    published, n = FIGURE_1[:, 2], len(FIGURE_1)
    what = "largest |rate - published|, "
    for mu in (0.5, 0.1):
        error = np.abs(figure_rates(mu, nesterov=False) - published).max()
        yield printed(f"{what}(3.18) at mu = {mu:g}", error, "<=", READING, cases=n)
    error = np.abs(figure_rates(0.1, nesterov=True) - published).max()
    yield used(f"{what}Nesterov's at mu = .1", error, "<=", READING, cases=n)
    count, worst = effort.cases(300, 5000), 0.0
    for _ in range(count):
        mu, alpha = log_uniform(random, 1e-3, 1.0), log_uniform(random, 1e-2, 3.9)
        beta = float(random.uniform(0.0, 0.99))
        inside = exact_rate(np.linspace(mu, 1.0, 41), Step(alpha, beta, 0.0))
        worst = max(worst, abs(float(theory.heavy_ball_rate(alpha, beta, mu, 1.0)) - inside))
    yield used(
        "largest error of (3.18), against 41 eigenvalues in [mu, L]",
        worst,
        "<=",
        CORNER,
        cases=count,
    )
