"""Gao and Wright (2023): noise norms, the cost of small batches, Lanczos, and the objective."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, stats

from ... import theory
from ...losses import Logistic
from ...privacy import rdp_gaussian, rdp_without_replacement
from ...problems import ERM
from ..attack import Range
from ..exact import Density, renyi_divergence
from ..laws import subsampled_gaussian
from ..registry import Effort, Evidence, printed, register, used
from .second_order import largest, symmetric, unit

Array = NDArray[np.float64]

RECORDS = 10_000


# --- 003-10: the mini-batch ---


def batch_quotient(order: int, noise: float, m: int) -> float:
    """Return the exact cost of records 0, 1 and -1 of a sum / Theorem B.4; m of RECORDS."""
    fraction = m / RECORDS
    p, q = subsampled_gaussian(noise, 1.0, fraction)
    left, right = (_replaced(sign, noise, fraction) for sign in (0.5, -0.5))
    exact = max(renyi_divergence(*pair, order) for pair in ((p, q), (q, p), (left, right)))
    return exact / rdp_without_replacement(order, RECORDS, m, lambda a: rdp_gaussian(a, noise))


def _replaced(value: float, noise: float, fraction: float) -> Density:
    """Return the law of a batch's noisy sum: the record is ``value``, all the others are 0."""
    with_it, without = stats.norm(value, noise), stats.norm(0.0, noise)
    logs = math.log(fraction), math.log1p(-fraction)
    return Density(
        lambda x: np.logaddexp(logs[0] + with_it.logpdf(x), logs[1] + without.logpdf(x)),
        (0.0, value),
    )


@register(
    "003-10",
    "(28)",
    "epsilon'(alpha) is about 2 s^2 alpha/sigma^2 for small s",
    "no upper bound; Theorem B.4, or the PLD",
    verdict="corrected",
)
def small_batches(effort: Effort) -> Iterator[Evidence]:
    """One record is 1, all others are 0: the exact divergence by quadrature."""
    order, noise, fraction = 16, 1.0, 0.01
    p, q = subsampled_gaussian(noise, 1.0, fraction)
    approximate = 2.0 * fraction**2 * order / noise**2
    exact = renyi_divergence(p, q, order)
    yield printed("D_16 at s = .01, sigma = 1", exact, "<=", approximate)
    yield printed("even against alpha^2 in place of alpha", exact, "<=", order * approximate)
    space = {
        "order": Range(2, 64, log=True, integer=True),
        "noise": Range(0.3, 20.0, log=True),
        "m": Range(1, int(0.9 * RECORDS), log=True, integer=True),
    }
    found, cases = largest(effort, batch_quotient, space, cost=effort.cases(16, 60))
    yield used("exact / Theorem B.4", found, "<=", 1.0, tolerance=1e-7, cases=cases)


# --- 003-9, 003-11: norms of the noise, eigenvalues by Lanczos ---


def norm_exceeds(d: int, eta: float) -> tuple[float, float, float]:
    """Return P(||x|| > bound) / eta, x ~ N(0, I_d), exactly.

    The bounds: both readings of Lemma D.6, and the one that is used.
    """
    log = math.log(1.0 / eta)
    bounds = (
        math.sqrt(2.0 * d * log),
        math.sqrt(2.0 * d) * log,
        theory.gradient_noise_norm(d, 1.0, eta),
    )
    first, second, third = (float(stats.chi2.sf(b * b, d)) / eta for b in bounds)
    return first, second, third


def matrix_exceeds(d: int, draws: int, random: np.random.Generator) -> float:
    """Return an upper bound (confidence 1 - 1e-6) of P(||E|| > bound)/eta, largest over eta."""
    norms = []
    for _ in range(draws):
        noise = symmetric(random.normal(size=d * (d + 1) // 2), d)
        noise[np.diag_indices(d)] *= math.sqrt(2.0)
        norms.append(float(np.linalg.norm(noise, 2)))
    worst = 0.0
    for eta in (0.1, 0.3, 0.6, 0.99):
        bound = theory.hessian_noise_norm(d, math.sqrt(2.0), eta)
        over = int(np.sum(np.array(norms) > bound))
        upper = float(stats.beta.ppf(1.0 - 1e-6, over + 1, draws - over))
        worst = max(worst, upper / eta)
    return worst


@register(
    "003-9",
    "Lemma D.6",
    "\\|\\|x\\|\\| <= sigma sqrt(2 d ln 1/eta) with probability 1 - eta, for any eta in (0, 1)",
    "sigma (sqrt d + sqrt(2 ln 1/eta)); symmetric matrices with standard deviation s off the "
    "diagonal and sqrt 2 s on it: s (2 sqrt d + sqrt(4 ln 2/eta))",
    verdict="corrected",
)
def concentration(effort: Effort) -> Iterator[Evidence]:
    """Exact quantiles of chi; Clopper-Pearson bounds for matrices."""
    yield printed("P(beyond) / eta at d = 54, eta = .8", norm_exceeds(54, 0.8)[0], "<=", 1.0)
    what = "the same with the root over d only, eta = .5"
    yield printed(what, norm_exceeds(54, 0.5)[1], "<=", 1.0)
    space = {"d": Range(1, 10_000, log=True, integer=True), "eta": Range(1e-12, 1.0, log=True)}
    found, cases = largest(effort, lambda d, eta: norm_exceeds(d, eta)[2], space)
    yield used("P(beyond) / eta", found, "<=", 1.0, cases=cases)
    random = effort.random()
    draws = effort.cases(300, 5000)
    dims = (1, 2, 5, 20)
    worst = max(matrix_exceeds(d, draws, random) for d in dims)
    what = "P(||E|| > bound) / eta, upper 1e-6 confidence limit"
    yield used(what.replace("||", "\\|\\|"), worst, "<=", 1.0, cases=draws * len(dims))


def lanczos_misses(spectrum: Array, steps: int, accuracy: float, starts: Array) -> float:
    """Return the share of starts from which ``steps`` steps miss the smallest eigenvalue.

    Lanczos from the start u on diag(spectrum) minimises the Rayleigh quotient over the Krylov
    space; all starts (R, d) at once, each vector orthogonalised twice against all before.
    """
    count, d = starts.shape
    basis = np.zeros((count, steps, d))
    diagonal, off = np.zeros((count, steps)), np.zeros((count, steps))
    vector = starts / np.linalg.norm(starts, axis=1, keepdims=True)
    for k in range(steps):
        basis[:, k] = vector
        known = basis[:, : k + 1]
        image = spectrum * vector
        diagonal[:, k] = np.einsum("rd,rd->r", vector, image)
        for _ in range(2):
            image -= np.einsum("rk,rkd->rd", np.einsum("rkd,rd->rk", known, image), known)
        off[:, k] = np.linalg.norm(image, axis=1)
        vector = image / np.maximum(off[:, k : k + 1], 1e-300)
    missed = 0
    for a, b in zip(diagonal, off):
        # A Krylov space that ends early has the eigenvalue: nothing follows a zero.
        end = int(np.argmax(b < 1e-10)) + 1 if (b < 1e-10).any() else steps
        smallest = np.linalg.eigvalsh(
            np.diag(a[:end]) + np.diag(b[: end - 1], 1) + np.diag(b[: end - 1], -1)
        )[0]
        missed += bool(smallest > spectrum.min() + accuracy)
    return missed / count


def spectra(d: int, eps: float, random: np.random.Generator) -> list[Array]:
    """Return spectra in [-1, 1], d >= 2, that are hard for Lanczos."""
    dense = np.cos(math.pi * np.arange(d) / (d - 1))
    # One eigenvalue is just too far below all others to be confused with them.
    lonely = -1.0 + 0.51 * eps + (1.0 - 0.255 * eps) * (1.0 + dense)
    lonely[-1] = -1.0
    return [dense, lonely, np.linspace(-1.0, 1.0, d), random.uniform(-1.0, 1.0, size=d)]


@register(
    "003-11",
    "Lemma C.1",
    "Lanczos finds the smallest eigenvalue to eps/2 with probability 1 - delta in "
    "min{d, 1 + ln(2.75 d/delta^2) sqrt(U/eps)/2} iterations, U >= \\|\\|H\\|\\|",
    verdict="holds",
)
def lanczos(effort: Effort) -> Iterator[Evidence]:
    """Random starts on spectra chosen against the method."""
    d, delta, eps = 120, 0.1, 0.05
    allowed = theory.lanczos_iterations(d, 1.0, eps, delta)
    random = effort.random()
    count = effort.cases(600, 3000)
    hard = spectra(d, eps, random)
    starts = random.normal(size=(count, d))
    shares = [
        max(lanczos_misses(spectrum, steps, 0.5 * eps, starts) for spectrum in hard)
        for steps in (allowed, allowed // 2)
    ]
    cases = count * len(hard)
    # Each side of the worst of four spectra, wrong with probability 1e-6 at most.
    missed = [round(share * count) for share in shares]
    upper = float(stats.beta.ppf(1.0 - 0.25e-6, missed[0] + 1, count - missed[0]))
    lower = float(stats.beta.ppf(0.25e-6, missed[1], count - missed[1] + 1))
    what = f"P(miss) in {allowed} iterations, d = 120, U/eps = 20, delta = .1, upper 1e-6 limit"
    yield printed(what, upper, "<=", delta, cases=cases)
    yield printed("and in half as many, lower 1e-6 limit", lower, ">=", delta, cases=cases)
    small = [lanczos_misses(s, 12, 1e-9, starts[:20, :12]) for s in spectra(12, eps, random)]
    yield printed("share that misses by 1e-9 in d iterations, d = 12", max(small), "<=", 0.0)


# --- 003-12, 003-13, 003-15: the objective of the experiments ---


def penalty_curvature(w: Any) -> Any:
    """Return the second derivative of w^2/(1 + w^2)."""
    return (2.0 - 6.0 * w**2) / (1.0 + w**2) ** 3


def penalty_bend(w: Any) -> Any:
    """Return the third derivative of w^2/(1 + w^2)."""
    return 24.0 * w * (w**2 - 1.0) / (1.0 + w**2) ** 4


def smallest_curvature(w: Array, rows: Array, strength: float = 1e-3) -> float:
    """Return -lambda_min of the Hessian of Section 4 over the strength, for three rows."""
    X = np.array([unit(x) for x in rows.reshape(3, w.size)])
    data = ERM(X, np.array([1.0, -1.0, 1.0]), Logistic()).hessian(w)
    whole = data + np.diag(strength * penalty_curvature(w))
    return -float(np.linalg.eigvalsh(whole)[0]) / strength


@register(
    "003-12",
    "Section 4, E.2, E.3",
    "the experiments test lambda_min >= -eps_H, eps_H = .141 to .245, at lambda = 1e-3",
    "lambda_min >= -lambda/2 everywhere: such a test says something only if lambda > 2 eps_H",
    verdict="corrected",
)
def vacuous_test(effort: Effort) -> Iterator[Evidence]:
    """Search for the smallest eigenvalue that rows and weights can have."""
    d = 3
    space = {"w": Range(-10.0, 10.0, size=d), "rows": Range(-1.0, 1.0, size=3 * d)}
    valley = {"w": np.ones(d), "rows": np.zeros(3 * d)}
    found, cases = largest(effort, smallest_curvature, space, guesses=[valley])
    lowest = -1e-3 * found
    yield printed("smallest eigenvalue, lambda = 1e-3", lowest, "<=", -0.141, cases=cases)
    yield used("-lambda_min / (lambda/2)", 2.0 * found, "<=", 1.0, tolerance=1e-12, cases=cases)
    yield used("that is, attained", 2.0 * found, ">=", 0.999)

    def with_data(w: Array, rows: Array) -> float:
        return smallest_curvature(w, rows, strength=1.0)

    # At least one row of norm 1 in every direction: data do not take all curvature away.
    low = -with_data(np.ones(d), np.eye(d).ravel())
    yield used("smallest eigenvalue, lambda = 1, rows e_1, e_2, e_3, w = 1", low, "<=", -0.245)


def trained(loss: str, random: np.random.Generator) -> float:
    """Return the share of 200 separable points that the minimiser gets right."""
    X = random.normal(size=(200, 3))
    y = np.where(X @ np.array([1.0, -2.0, 0.5]) > 0.0, 1.0, -1.0)

    def objective(w: Array) -> float:
        margins = y * (X @ w)
        values = (
            1.0 / (1.0 + np.exp(-margins)) if loss == "printed" else np.logaddexp(0.0, -margins)
        )
        return float(values.mean() + 0.5e-3 * w @ w)

    starts = [np.zeros(3), *random.normal(size=(3, 3))]
    best = min((optimize.minimize(objective, w) for w in starts), key=lambda found: found.fun)
    return float(np.mean(np.sign(X @ best.x) == y))


@register(
    "003-13",
    "E.3",
    "the logistic loss is 1/(1 + exp(-m)) of the margin m",
    "ln(1 + exp(-m))",
    verdict="corrected",
)
def logistic_loss(effort: Effort) -> Iterator[Evidence]:
    """Both objectives minimised on separable points: the printed one grows with the margin."""
    random = effort.random()
    cases = effort.cases(2, 10)
    shares = [[trained(loss, random) for _ in range(cases)] for loss in ("printed", "log")]
    yield printed("share classified rightly", max(shares[0]), ">=", 0.5, cases=cases)
    yield used("share classified rightly", min(shares[1]), ">=", 0.9, cases=cases)


def change_quotients(w: Array, far: Array, x: Array, strength: float) -> tuple[float, float]:
    """Return ||grad f - grad f'||/(G ||w - w'||) and the same of the Hessians with M; one row."""
    x = unit(x)
    size = max(float(np.linalg.norm(w - far)), 1e-6)
    parts = []
    for at in (w, far):
        problem = ERM(x[None, :], np.ones(1), Logistic())
        parts.append(
            (
                problem.gradient(at) + 2.0 * strength * at / (1.0 + at**2) ** 2,
                problem.hessian(at) + np.diag(strength * penalty_curvature(at)),
            )
        )
    gradients, hessians = zip(*parts)
    G, M, _, _ = theory.second_order_constants(1.0, strength)
    first = float(np.linalg.norm(gradients[0] - gradients[1])) / (G * size)
    return first, float(np.linalg.norm(hessians[0] - hessians[1], 2)) / (M * size)


@register(
    "003-15",
    "Section 4, footnote; E.3",
    "with bounded rows the losses have Lipschitz gradients and Hessians",
    "\\|\\|x\\|\\| <= 1: G = 1/4 + 2 lambda, M = 1/(6 sqrt 3) + 4.66856 lambda, B_g = 1, "
    "B_H = 1/4; the penalty's second derivative is in [-lambda/2, 2 lambda]",
    verdict="sharpened",
)
def constants(effort: Effort) -> Iterator[Evidence]:
    """Quotients at pairs of points; maxima of the derivatives on a fine grid."""
    wide = {"w": Range(-1e3, 1e3, size=2), "far": Range(-1e3, 1e3, size=2)}
    rows = {"x": Range(-1.0, 1.0, size=2), "strength": Range(1e-4, 1e2, log=True)}
    found, cases = largest(
        effort, lambda **at: max(change_quotients(**at)), {**wide, **rows}, cost=3
    )
    yield printed(
        "largest difference quotient / constant, w in [-1000, 1000]^2",
        found,
        "<=",
        1.0,
        cases=cases,
    )
    near = {"w": Range(-3.0, 3.0, size=2), "far": Range(-3.0, 3.0, size=2), **rows}
    # Next to 0, where both curvatures are largest; next to the point where the penalty bends most.
    least = math.sqrt(1.0 - 2.0 / math.sqrt(5.0))
    flat: dict[str, Any] = {"w": [0.0, 0.0], "far": [1e-3, 0.0], "x": [1.0, 0.0], "strength": 1.0}
    bent = {**flat, "w": [least, 0.0], "far": [least + 1e-3, 0.0], "strength": 100.0}
    for i, (name, guess) in enumerate((("G", flat), ("M", bent))):
        found, cases = largest(
            effort, lambda i=i, **at: change_quotients(**at)[i], near, cost=3, guesses=[guess]
        )
        yield used(
            f"largest difference quotient / {name}", found, "<=", 1.0, tolerance=1e-9, cases=cases
        )
        yield used("that is, attained", found, ">=", 0.998)
    w = np.linspace(-10.0, 10.0, 2_000_001)
    second = penalty_curvature(w)
    yield used("largest second derivative of the penalty", second.max(), "<=", 2.0)
    yield used("smallest", second.min(), ">=", -0.5)
    bend = float(np.abs(penalty_bend(w)).max())
    known = theory.second_order_constants(0.0, 1.0).M
    yield used("largest third derivative of the penalty", bend, "==", known, tolerance=1e-5)
    slopes = Logistic().derivative(w, np.ones(w.size)), Logistic().second_derivative(w, 1.0)
    yield used("largest slope of the loss", float(np.abs(slopes[0]).max()), "<=", 1.0)
    yield used("largest curvature of the loss", float(slopes[1].max()), "==", 0.25, tolerance=1e-9)
