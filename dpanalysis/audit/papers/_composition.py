"""Both sides of the epsilon of many releases, by an own composition.

The outcome of a release is sorted into cells. What the cells reveal is no more than what the
outcome reveals, so their loss, rounded down, gives a lower bound; the largest loss in a cell,
rounded up, an upper one. Composition is a power of a Fourier transform, and the probability
beyond its window is bounded. Nothing is shared with ``privacy.pld``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import fft, optimize, special

Array = NDArray[np.float64]

# Cells of the outcome, and how far out in standard deviations they go.
_CELLS = 40_000
_REACH = 12.0
# Steps of the loss: the number of releases times its rounding is this share of one unit.
_ROUNDING = 0.02
# Losses of one release that count as infinite.
_LARGEST = 40.0


@dataclass(frozen=True)
class Mixture:
    """The releases sum_k w_k N(s_k, std^2), s_k >= 0, against N(0, std^2).

    Parameters
    ----------
    weights, shifts : ndarray, shape (m,)
        Probabilities and non-negative means.
    std : float
    """

    weights: Array
    shifts: Array
    std: float

    def cells(self) -> tuple[Array, Array, Array]:
        """Return probabilities of the cells under P and Q, and the loss at all inner edges."""
        top = float(self.shifts[self.weights > 1e-30].max())
        edges = np.linspace(-_REACH * self.std, top + _REACH * self.std, _CELLS)
        z = (edges[:, None] - self.shifts) / self.std
        # Differences of the smaller tail keep their digits on both sides.
        upper = edges > 0.5 * top
        tails = np.where(upper[:, None], special.ndtr(-z), special.ndtr(z))
        p = _masses(tails @ self.weights, upper)
        origin = edges / self.std
        q = _masses(np.where(upper, special.ndtr(-origin), special.ndtr(origin)), upper)
        logs = (edges[:, None] - 0.5 * self.shifts) * self.shifts / self.std**2
        return p, q, special.logsumexp(logs, b=self.weights, axis=1)


def _masses(tails: Array, upper: NDArray[np.bool_]) -> Array:
    """Return what is between the edges, from lower tails and, after the middle, upper ones."""
    middle = int(np.argmax(upper))
    below, above = tails[:middle], tails[middle:]
    between = 1.0 - below[-1] - above[0]
    return np.concatenate([below[:1], np.diff(below), [between], -np.diff(above), above[-1:]])


def epsilon_bounds(
    release: Mixture, steps: int, delta: float, *, adding: bool = False
) -> tuple[float, float]:
    """Return a lower and an upper bound of the epsilon of ``steps`` releases at ``delta``.

    Parameters
    ----------
    release : Mixture
    steps : int
    delta : float
    adding : bool, default=False
        The divergence of N(0, std^2) from the mixture, not of the mixture from it.

    Returns
    -------
    tuple of float
    """
    p, q, edge_losses = release.cells()
    if adding:
        p, q, edge_losses = q[::-1], p[::-1], -edge_losses[::-1]
    width = _ROUNDING / steps
    held = (p > 0.0) & (q > 0.0)
    inside = np.log(p[held] / q[held])
    lower = _curve(np.floor(inside / width), p[held], width, steps, upper=False)
    # The loss grows with the outcome: the largest is at the right edge, and unknown beyond.
    upper = _curve(np.ceil(edge_losses / width), p[:-1], width, steps, upper=True)
    return _root(lower, delta), _root(upper, delta)


@dataclass(frozen=True)
class _Curve:
    losses: Array
    masses: Array
    lost: float

    def delta(self, epsilon: float) -> float:
        above = self.losses > epsilon
        gains = -np.expm1(epsilon - self.losses[above])
        return self.lost + float(self.masses[above] @ gains)


def _curve(cells: Array, masses: Array, width: float, steps: int, *, upper: bool) -> _Curve:
    """Return the composed loss, counted modulo a window.

    What is above the window comes back at its low end, what is below at its high end: the one
    is added to an upper bound, the other subtracted from a lower one (Chernoff).
    """
    kept = np.abs(cells * width) < _LARGEST
    index, held = cells[kept], masses[kept]
    mean = float(index @ held)
    spread = math.sqrt(steps * float((index - mean) ** 2 @ held))
    low = math.floor(steps * mean - 12.0 * spread - 0.5 / width)
    size = fft.next_fast_len(math.ceil(26.0 * spread + 8.0 / width), real=True)
    folded = np.bincount(index.astype(np.int64) % size, held, size)
    total: Array = np.roll(fft.irfft(fft.rfft(folded) ** steps, size), -(low % size))
    losses: Array = width * np.arange(low, low + size, dtype=np.float64)
    sign, end = (1.0, losses[-1]) if upper else (-1.0, -losses[0])
    rates = np.geomspace(0.3, 60.0, 24)
    moments = [special.logsumexp(sign * rate * width * index, b=held) for rate in rates]
    beyond = math.exp(min(0.0, float((steps * np.array(moments) - rates * end).min())))
    lost = beyond + 1.0 - float(held.sum()) ** steps if upper else -beyond
    return _Curve(losses, np.maximum(total, 0.0), lost)


def _root(curve: _Curve, delta: float) -> float:
    top = float(curve.losses[-1]) * (1.0 - 1e-12)
    if curve.delta(0.0) <= delta:
        return 0.0
    if curve.delta(top) > delta:
        return math.inf if curve.lost > 0.0 else top
    return float(optimize.brentq(lambda epsilon: curve.delta(epsilon) - delta, 0.0, top))
