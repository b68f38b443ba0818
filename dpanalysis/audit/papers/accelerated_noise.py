"""Kuru et al. (2022): how large the noise, the sensitivity and the smoothness constant are."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from scipy import special, stats

from ... import theory
from ...losses import Logistic
from ...privacy.relations import REPLACE_ONE
from ...problems import ERM, RowBound
from ...regularizers import L2
from ..exact import renyi_divergence
from ..laws import subsampled_laplace
from ..registry import Effort, Evidence, printed, register, used
from ._smooth import Array, batch_means, log_uniform


@register(
    "001-4",
    "Prop. 3.3, (B.1), (3.12)",
    "the norm of Cov(eta_t) is d b^2, that of Cov(w_t) at most E_T = sigma_s^2 + 2 d b^2",
    "E_T bounds the trace, E||w_t||^2, which the proofs need; the norm is at most "
    "sigma_s^2 + 2 b^2",
    verdict="corrected",
)
def norm_and_trace(effort: Effort) -> Iterator[Evidence]:
    """All batches of a small data set, and the variance of the noise by quadrature."""
    random = effort.random(4)
    unit = float(stats.laplace.expect(np.square))  # by quadrature
    yield printed("(B.1), d = 1: norm of Cov(eta_t) / b^2", unit, "==", 1.0)
    yield printed("(B.1), d = 20: norm of Cov(eta_t) / b^2", unit, "==", 20.0)
    n_cases = effort.cases(300, 5000)
    trace = norm = 0.0
    for case in range(n_cases):
        n, d = int(random.integers(2, 8)), int(random.integers(1, 5))
        m, S, b = int(random.integers(1, n + 1)), log_uniform(random, 0.1, 10), random.exponential()
        gradients = random.standard_normal((n, d))
        if case % 3 == 0:  # corners of the ball, where (3.13) is attained
            gradients = np.outer(random.choice([-1.0, 1.0], n), np.eye(d)[0])
        gradients *= 0.5 * S / np.abs(gradients).sum(1).max()
        errors = batch_means(gradients, m) - gradients.mean(0)
        covariance = errors.T @ errors / len(errors) + unit * b**2 * np.eye(d)
        spread = theory.subsampling_variance(S, n, m)
        moment = float(theory.noise_second_moment(b, d, spread))
        trace = max(trace, float(np.trace(covariance)) / moment)
        norm = max(norm, float(np.linalg.norm(covariance, 2)) / (spread + 2.0 * b**2))
    yield used("largest trace of Cov(w_t) / E_T", trace, "<=", 1.0, tolerance=1e-9, cases=n_cases)
    yield used("that is, attained", trace, ">=", 1.0, tolerance=1e-3)
    yield used("largest norm / (sigma_s^2 + 2 b^2)", norm, "<=", 1.0, tolerance=1e-9, cases=n_cases)


@register(
    "001-5",
    "(B.4), (3.13)",
    "sum_k S_{1,k} <= S_1, hence sigma_s^2 = S_1^2/4 (n-m)/(m(n-1))",
    "the step is false, though no violation of its conclusion was found; S_1^2/4 is proved for "
    "gradients in an L1 ball of radius S_1/2 (logistic loss), S_1^2/2 for all (`in_ball=False`)",
    verdict="corrected",
)
def subsampling_error(effort: Effort) -> Iterator[Evidence]:
    """Enumerate batches: the mean square error of their means."""
    random = effort.random(5)
    corners = np.eye(20)  # any two differ by 2 in L1; every coordinate by 1
    yield printed(
        "sum_k S_{1,k} / S_1, gradients at the 20 corners of a simplex",
        np.ptp(corners, axis=0).sum() / 2.0,
        "<=",
        1.0,
    )
    count = effort.cases(400, 8000)
    worst = {True: 0.0, False: 0.0}
    anywhere = 0.0
    for case in range(count):
        n, d = int(random.integers(2, 9)), int(random.integers(1, 7))
        m = int(random.integers(1, n))
        gradients = random.choice([-1.0, 0.0, 1.0], (n, d)) * random.exponential(size=d)
        if case % 2:
            gradients = random.standard_normal((n, d)) ** 3
        if case % 5 == 0:  # both ends of one axis
            gradients = np.outer(np.arange(n) % 2 - 0.5, np.eye(d)[0])
        apart = np.abs(gradients[:, None] - gradients).sum(2).max()
        if apart == 0.0:
            continue
        errors = batch_means(gradients, m) - gradients.mean(0)
        square = float((errors * errors).sum(1).mean())
        radius = 2.0 * np.abs(gradients).sum(1).max()
        worst[True] = max(worst[True], square / theory.subsampling_variance(radius, n, m))
        anywhere = max(anywhere, square / (apart**2 / 4.0 * (n - m) / (m * (n - 1.0))))
        wide = theory.subsampling_variance(apart, n, m, in_ball=False)
        worst[False] = max(worst[False], square / wide)
    yield printed(
        "largest E||v||^2 / (3.13), gradients anywhere",
        anywhere,
        "<=",
        1.0,
        tolerance=1e-9,
        cases=count,
    )
    what = "largest E||v||^2 / bound, gradients "
    yield used(what + "in the ball", worst[True], "<=", 1.0, tolerance=1e-9, cases=count)
    yield used("that is, attained", worst[True], ">=", 1.0, tolerance=1e-9)
    yield used(what + "anywhere", worst[False], "<=", 1.0, tolerance=1e-9, cases=count)


@register(
    "001-8",
    "Section 3.2",
    "sigma_T^2 = (T/(n epsilon))^2 gives epsilon-privacy when S_1 = 1 and m = n",
    "2 (T/(n epsilon))^2: the variance of Laplace noise of scale b is 2 b^2",
    verdict="corrected",
)
def variance_for_a_budget(effort: Effort) -> Iterator[Evidence]:
    """Noise of that variance: its loss by quadrature."""
    random = effort.random(8)

    def spent(variance: float, T: int, n: int) -> float:
        pair = subsampled_laplace(math.sqrt(variance / 2.0), 1.0 / n, 1.0)
        return T * float(renyi_divergence(*pair, math.inf))

    variance = float(stats.laplace(scale=0.1).expect(np.square))
    yield printed("variance of scale T/(n eps) = .1, by quadrature", variance, "==", 0.01)
    what = "true epsilon at that variance, T = 100, n = 1000, claimed 1"
    yield printed(what, spent(0.01, 100, 1000), "<=", 1.0)
    count, ratios = effort.cases(15, 200), []
    for _ in range(count):
        T, n = int(log_uniform(random, 1, 1e4)), int(log_uniform(random, 1, 1e6))
        epsilon = log_uniform(random, 0.01, 10.0)
        ratios.append(spent(2.0 * (T / (n * epsilon)) ** 2, T, n) / epsilon)
    yield used(
        "largest true epsilon / claimed", max(ratios), "<=", 1.0, tolerance=1e-9, cases=count
    )
    yield used("smallest", min(ratios), ">=", 1.0, tolerance=1e-9, cases=count)


def logistic_problem(U: Array, order: int, radius: float, strength: float = 0.0) -> ERM:
    """Return the logistic problem whose rows have a public bound."""
    penalty = L2(strength) if strength else None
    return ERM(U, np.ones(len(U)), Logistic(), penalty, RowBound(order, radius))


def logistic_gradients(v: Array, x: Array) -> Array:
    """Return the gradients (n, d) at x of -ln p for rows v = z u."""
    return np.asarray(-v * special.expit(-(v @ x))[:, None])


@register(
    "001-17",
    "(5.2)",
    "S_1(x) = 2 sup ||u||_1 for all x",
    "S_1(x) <= 2 R sigmoid(R ||x||_inf), R = sup ||u||_1; S_1(0) = R. The constant 2 R, a "
    "bound for all x, is what noise is scaled to",
    verdict="corrected",
)
def logistic_sensitivity(effort: Effort) -> Iterator[Evidence]:
    """Pairs of records in the L1 ball, its corners among them."""
    random = effort.random(17)

    def sensitivity(x: Array, R: float) -> float:
        corners = R * np.concatenate([np.eye(x.size), -np.eye(x.size)])
        inside = random.dirichlet(np.ones(x.size), 60) * random.choice([-R, R], (60, x.size))
        shorter = inside * random.random((60, 1))
        g = logistic_gradients(np.concatenate([corners, inside, shorter]), x)
        return float(np.abs(g[:, None] - g).sum(2).max())

    at_zero = sensitivity(np.zeros(20), 20.0)
    yield printed("S_1(0) at R = 20, by search", at_zero, "==", 40.0)
    count, local, constant = effort.cases(150, 2500), 0.0, 0.0
    for case in range(count):
        d, R = int(random.integers(1, 7)), log_uniform(random, 0.1, 30.0)
        x = random.standard_normal(d) * log_uniform(random, 0.01, 30.0)
        if case % 3 == 0:  # two coordinates of one size: attained by their corners
            x[: min(d, 2)] = 2.0 * np.abs(x).max()
        found = sensitivity(x, R)
        limit = 2.0 * R * float(special.expit(R * np.abs(x).max()))
        local = max(local, found / limit)
        public = logistic_problem(np.zeros((1, d)), 1, R).facts(REPLACE_ONE)
        constant = max(constant, found / public.record_sensitivity(1))
    what = "largest ||g - g'||_1 / (2 R sigmoid(R ||x||_inf))"
    yield used(what, local, "<=", 1.0, tolerance=1e-9, cases=count)
    yield used("that is, attained", local, ">=", 1.0, tolerance=1e-9)
    what = "largest ||g - g'||_1 / the sensitivity that noise is scaled to"
    yield used(what, constant, "<=", 1.0, tolerance=1e-9, cases=count)
    yield used("S_1(0) / R", at_zero / 20.0, "==", 1.0, tolerance=1e-9)


@register(
    "001-18",
    "Section 5",
    "L = largest singular value of U'U/n + 2 lambda I, estimated from the data",
    "public: R_2^2/4 + 2 lambda with ||u||_2 <= R_2 (R_2 <= R_1)",
    verdict="corrected",
)
def smoothness(effort: Effort) -> Iterator[Evidence]:
    """Neighbouring data sets, and Hessians at any point."""
    random = effort.random(18)
    lam = 0.01

    def from_data(U: Array) -> float:
        return float(np.linalg.eigvalsh(U.T @ U / len(U))[-1]) + 2.0 * lam

    def largest_curvature(U: Array, points: Array) -> float:
        p = special.expit(points @ U.T)
        hessians = np.einsum("kn,ni,nj->kij", p * (1.0 - p), U, U) / len(U)
        return float(np.linalg.eigvalsh(hessians).max()) + 2.0 * lam

    U = random.random((1000, 20))
    neighbour = U.copy()
    neighbour[0] = 0.0
    what = "L of a neighbouring data set less L, n = 1000, d = 20"
    yield printed(what, from_data(neighbour) - from_data(U), "==", 0.0)
    points = np.concatenate([np.zeros((1, 20)), random.standard_normal((20, 20))])
    data_part = (from_data(U) - 2.0 * lam) / (largest_curvature(U, points) - 2.0 * lam)
    what = "data part of L / largest eigenvalue of the loss's Hessian there"
    yield printed(what, data_part, "<=", 1.0)
    constants = [logistic_problem(data, 2, 20.0**0.5, 2.0 * lam).L for data in (neighbour, U)]
    what = "public L of the neighbouring data set less public L"
    yield used(what, constants[0] - constants[1], "==", 0.0)
    count, worst = effort.cases(200, 3000), 0.0
    for case in range(count):
        n, d = int(random.integers(1, 10)), int(random.integers(1, 6))
        radius = log_uniform(random, 0.1, 20.0)
        U = random.standard_normal((n, d))
        U *= radius / np.linalg.norm(U, axis=1, keepdims=True) * random.random((n, 1))
        if case % 5 == 0:
            U[:] = radius * np.eye(d)[0]
        points = np.concatenate([np.zeros((1, d)), random.standard_normal((8, d)) / radius])
        public = logistic_problem(U, 2, radius, 2.0 * lam).L
        worst = max(worst, largest_curvature(U, points) / public)
    what = "largest eigenvalue of a Hessian / public L"
    yield used(what, worst, "<=", 1.0, tolerance=1e-9, cases=count)
    yield used("that is, attained", worst, ">=", 1.0, tolerance=1e-9)
