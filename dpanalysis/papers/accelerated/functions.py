"""Random functions of S_{mu,L}, and exact expectations of noisy methods on them.

Iterates are computed from the update of a method, and its expected error by following every path
of a two-valued noise, or on quadratics by moments of 2 x 2 matrices. No formula of
:mod:`dpanalysis.theory` is used, so its bounds can be tested against these numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from ..tools import Array


@dataclass(frozen=True)
class Smooth:
    """F(x) = (mu/2) ||x||^2 + sum_k phi_k(<a_k, x>), with minimum F(0) = 0.

    phi_k'' is in [0, 1]: a parabola, half of one, a Huber function of width s_k, or a logistic loss
    centered at s_k. F is in S_{mu,L} if the largest eigenvalue of sum_k a_k a_k' is L - mu.
    """

    mu: float
    rows: Array
    kinds: NDArray[np.int64]
    offsets: Array

    def value(self, x: Array) -> Array:
        """Return F at ``x`` (..., d)."""
        z, s = x @ self.rows.T, self.offsets
        side, clipped = np.maximum(z, 0.0), np.clip(z, -s, s)
        logistic = np.logaddexp(0.0, z + s) - np.logaddexp(0.0, s) - special.expit(s) * z
        parts = [0.5 * z * z, 0.5 * side * side, clipped * (z - 0.5 * clipped), 4.0 * logistic]
        return np.asarray(
            0.5 * self.mu * (x * x).sum(-1) + np.choose(self.kinds, parts).sum(-1), float
        )

    def gradient(self, x: Array) -> Array:
        """Return the gradient at ``x`` (..., d), of its shape."""
        z, s = x @ self.rows.T, self.offsets
        logistic = 4.0 * (special.expit(z + s) - special.expit(s))
        slopes = np.choose(self.kinds, [z, np.maximum(z, 0.0), np.clip(z, -s, s), logistic])
        return np.asarray(self.mu * x + slopes @ self.rows, float)


def log_uniform(random: np.random.Generator, low: float, high: float) -> float:
    """Return a number in [low, high], uniform on a logarithmic scale."""
    return float(np.exp(random.uniform(np.log(low), np.log(high))))


def random_smooth(random: np.random.Generator, mu: float, L: float, d: int) -> Smooth:
    """Return a random function of S_{mu,L} on R^d whose two constants are sharp."""
    count = int(random.integers(1, d + 3))
    rows = random.standard_normal((count, d)) * random.choice([0.1, 1.0], (count, 1))
    rows *= np.sqrt((L - mu) / np.linalg.eigvalsh(rows.T @ rows)[-1])
    kinds = random.choice(4, count) if random.random() < 0.8 else np.zeros(count, np.int64)
    return Smooth(mu, rows, kinds, random.exponential(size=count) + 0.01)


class SmoothStep(NamedTuple):
    """One iteration: x + momentum (x - x_before) - step_size (gradient + noise)."""

    step_size: float
    momentum: float
    lookahead: float = 0.0  # gradient at x + lookahead (x - x_before): the momentum for Nesterov's
    restart: bool = False  # sets x_before := x first


def nesterov_steps(
    step_sizes: ArrayLike, mu: float, restarts: ArrayLike = False
) -> list[SmoothStep]:
    """Return iterations of Nesterov's method, each with the momentum of its step size."""
    sizes = np.atleast_1d(np.asarray(step_sizes, float))
    root = np.sqrt(mu * sizes)
    momenta = (1.0 - root) / (1.0 + root)
    flags = np.broadcast_to(restarts, sizes.shape)
    return [
        SmoothStep(float(a), float(b), float(b), bool(r)) for a, b, r in zip(sizes, momenta, flags)
    ]


def expected_gaps(
    function: Smooth, steps: Sequence[SmoothStep], start: Array, noises: Array | None = None
) -> Array:
    """Return the exact E F(x_t), t = 0..T, where iteration t has noise +noises[t] or -noises[t].

    Both are equally likely, so the noise has mean zero and E||w_t||^2 = ||noises[t]||^2. All 2^T
    paths are followed (an iteration with noise 0 does not branch).
    """
    now = before = np.atleast_2d(start)
    gaps = [float(function.value(now).mean())]
    for t, step in enumerate(steps):
        if step.restart:
            before = now
        move = now - before
        after = now + step.momentum * move
        after = after - step.step_size * function.gradient(now + step.lookahead * move)
        if noises is not None and noises[t].any():
            kick = step.step_size * noises[t]
            now = np.concatenate([now, now])
            after = np.concatenate([after - kick, after + kick])
        now, before = after, now
        gaps.append(float(function.value(now).mean()))
    return np.array(gaps)


def quadratic_gaps(
    eigenvalues: ArrayLike,
    steps: Sequence[SmoothStep],
    start: ArrayLike,
    variances: ArrayLike = 0.0,
) -> Array:
    """Return the exact E F(x_t), t = 0..T, on 1/2 sum_i lambda_i x_i^2, by second moments."""
    spectrum = np.asarray(eigenvalues, float)
    moment = np.multiply.outer(np.broadcast_to(start, spectrum.shape) ** 2.0, np.ones((2, 2)))
    noise = np.broadcast_to(variances, len(steps))
    gaps = [0.5 * float(spectrum @ moment[:, 0, 0])]
    for step, variance in zip(steps, noise):
        closed = closed_loop(spectrum, step)
        moment = closed @ moment @ closed.transpose(0, 2, 1)
        moment[:, 0, 0] += step.step_size**2 * variance
        gaps.append(0.5 * float(spectrum @ moment[:, 0, 0]))
    return np.array(gaps)


def closed_loop(eigenvalues: Array, step: SmoothStep) -> Array:
    """Return the matrices (d, 2, 2) that take (x_t, x_{t-1}) to (x_{t+1}, x_t) without noise."""
    slope = step.step_size * eigenvalues
    closed = np.zeros((eigenvalues.size, 2, 2))
    closed[:, 0, 0] = 1.0 + step.momentum - slope * (1.0 + step.lookahead)
    closed[:, 0, 1] = -step.momentum + slope * step.lookahead
    closed[:, 1, 0] = 1.0
    if step.restart:
        closed = closed @ np.array([[1.0, 0.0], [1.0, 0.0]])
    return closed
