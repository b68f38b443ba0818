"""Dominating pairs of distributions and their privacy profiles: delta at each epsilon.

References
----------
Zhu, Dong, Wang (2022); Balle, Barthe, Gaboardi (2018).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import special

from .pure import amplify, deamplify
from .with_replacement import copies, gaussian_profile
from .zcdp import gaussian_divergence

Array: TypeAlias = NDArray[np.floating[Any]]

# Joint outcomes of the randomized responses of a batch; more are merged into one response.
_MOST_ATOMS = 32


def cell_masses(below: Array, above: Array) -> Array:
    """Return the probabilities between adjacent grid points, from those below and above each."""
    # Each is computed from the smaller tail, so that small probabilities keep their digits.
    return np.where(below[1:] < 0.5, np.diff(below), -np.diff(above))


@dataclass(frozen=True)
class Pair:
    """A dominating pair (P, Q): a product of independent parts, subsampled together.

    The ``pair`` of an event states the first three parameters; a sampled event adds the others.

    Parameters
    ----------
    mu : float
        Shift over the standard deviation of the Gaussian part, >= 0.
    laplace : float
        Loss of one Laplace release, >= 0; 0 beside a Gaussian part (state it as a response).
    responses : tuple of (float, int)
        Losses of randomized responses, which dominate any pure release, and their counts.
    fraction : float
        Probability that a record is in the batch.
    poisson : bool
        Whether the batch is a Poisson sample: removing and adding a record then differ.

    Examples
    --------
    The delta of Gaussian noise of twice the sensitivity, at epsilon = 1:

    >>> Pair(mu=0.5).base(np.array([1.0]))
    array([0.0069])
    """

    mu: float = 0.0
    laplace: float = 0.0
    responses: tuple[tuple[float, int], ...] = ()
    fraction: float = 1.0
    poisson: bool = False

    def __post_init__(self) -> None:
        """Refuse two parts of which the profile would ignore one."""
        if not (self.mu >= 0.0 and self.laplace >= 0.0) or (self.mu and self.laplace):
            raise ValueError(
                "mu and laplace must be numbers >= 0, of which one is 0, got "
                f"mu = {self.mu!r} and laplace = {self.laplace!r}: state Laplace noise beside "
                "Gaussian noise as a response of its loss"
            )

    @property
    def fallback(self) -> Pair:
        """A dominating pair for noise so small that rounding on a grid outweighs amplification."""
        return self

    def base(self, loss: Array) -> Array:
        """Return the hockey-stick divergence on the batch at any real losses.

        For a product it is the mean, over the loss of one part, of the other's shifted profile.
        """
        return sum((p * self._core(loss - shift) for shift, p in self.atoms), np.zeros(()))

    @cached_property
    def atoms(self) -> list[tuple[float, float]]:
        """Joint losses of the randomized responses and their probabilities under P."""
        responses = self.responses
        if math.prod(count + 1 for _, count in responses) > _MOST_ATOMS:
            responses = ((math.fsum(loss * count for loss, count in responses), 1),)
        atoms = [(0.0, 1.0)]
        for loss, count in responses:
            yes, no = float(special.expit(loss)), float(special.expit(-loss))
            atoms = [
                (
                    shift + (2 * k - count) * loss,
                    p * math.comb(count, k) * yes**k * no ** (count - k),
                )
                for shift, p in atoms
                for k in range(count + 1)
            ]
        return atoms

    def _core(self, loss: Array) -> Array:
        """Return the divergence of the Gaussian or Laplace part; without either, (1 - e^loss)_+."""
        if self.mu:
            return np.asarray(gaussian_divergence(self.mu, loss))
        outside = -np.expm1(np.minimum(loss, 0.0))
        inside = -np.expm1(0.5 * np.minimum(loss - self.laplace, 0.0))
        return np.where(np.abs(loss) <= self.laplace, inside, outside)

    @np.errstate(divide="ignore")  # where rounding takes the inner loss to its end, -infinity
    def remove(self, loss: Array) -> Array:
        """Return H((1-q) Q + q P, Q) = q H(P, Q) at the loss that sampling maps to ``loss``."""
        q = self.fraction
        if q == 1.0:
            return self.base(loss)
        reached = loss > math.log1p(-q)
        inner = np.log1p(np.expm1(np.where(reached, np.minimum(loss, 0.0), 0.0)) / q)
        inner += deamplify(np.maximum(loss, 0.0), q)
        return np.where(reached, q * self.base(inner), -np.expm1(np.minimum(loss, 0.0)))

    def add(self, loss: Array) -> Array:
        """Return H(Q, (1-q) Q + q P)."""
        q = self.fraction
        if q == 1.0:
            return self.base(loss)
        rest = -np.expm1(np.minimum(loss + math.log1p(-q), 1.0))  # 1 - (1-q) e^loss
        reached = rest > 0.0
        inner = math.log(q) + loss - np.log(np.where(reached, rest, 1.0))
        return np.where(reached, rest * self.base(np.where(reached, inner, 0.0)), 0.0)

    def replace(self, loss: Array) -> Array:
        """Return the profile of sampling without replacement, the same in both directions.

        At losses >= 0 it is that of "remove" (Balle, Barthe, Gaboardi, Theorem 9); below 0 it
        follows, since H(P, Q) at -loss and H(Q, P) at loss determine each other.
        """
        forward = self.remove(np.abs(loss))
        below = np.minimum(loss, 0.0)
        return np.where(loss >= 0.0, forward, -np.expm1(below) + np.exp(below) * forward)

    def reach(self, tail: float) -> tuple[float, float]:
        """Return the smallest and largest loss of "remove", up to a probability ``tail``."""
        top = self.laplace + max(shift for shift, _ in self.atoms)
        if self.mu:
            top += self.mu * (0.5 * self.mu - float(special.ndtri(tail)))
        q = self.fraction
        high = float(amplify(top, q))
        poisson = self.poisson and q < 1.0
        return (math.log1p(q * math.expm1(-top)) if poisson else -high), high

    def distribution(self, width: float, tail: float, adding: bool) -> tuple[int, Array, float]:
        """Return (first cell, probabilities, mass at infinity) of the loss, rounded up."""
        low, high = self.reach(tail)
        asymmetric = self.poisson and self.fraction < 1.0
        profile = self.replace
        if asymmetric:
            profile = self.add if adding else self.remove
            low, high = (-high, -low) if adding else (low, high)
        first, last = math.floor(low / width) - 1, math.ceil(high / width) + 1
        return first, *connect_dots(width, profile(width * np.arange(first, last + 1)))


@dataclass(frozen=True)
class Draws(Pair):
    """Gaussian noise on m of n records drawn with replacement: k copies have k times the shift."""

    n: int = 1
    m: int = 1

    def remove(self, loss: Array) -> Array:
        """Return the profile at losses >= 0; it bounds both directions."""
        return gaussian_profile(loss, self.n, self.m, self.mu)

    add = remove

    def reach(self, tail: float) -> tuple[float, float]:
        """Return losses beyond which the profile is below ``tail``."""
        most = len(copies(self.n, self.m)) * self.mu
        losses = np.geomspace(1e-9, most * (0.5 * most + 40.0) + 1.0, 400)
        below = np.flatnonzero(self.remove(losses) <= tail)
        high = float(losses[below[0] if below.size else -1])
        return -high, high


def connect_dots(width: float, profile: Array) -> tuple[Array, float]:
    r"""Return probabilities of losses, and the mass at infinity, that dominate a profile.

    The profile :math:`\delta_i` of a pair at losses :math:`i w` is convex in :math:`e^{i w}`. The
    straight lines between its dots lie above it, and are the profile of a distribution on these
    losses: a change of slope by s from one line to the next is the mass :math:`s\,e^{i w}` there.
    Before the first dot the line goes to 1 at :math:`e^\epsilon = 0`. (Doroshenko, Ghazi, Kamath,
    Kumar, Manurangsi, *Connect the dots: tighter discrete approximations of privacy loss
    distributions*, PoPETs 2022, Algorithm 1.)

    *Floating point.* Dots that rounding keeps from falling are raised, and a mass that rounding
    makes negative becomes 0: neither lowers the profile anywhere. Masses are differences of falls,
    whose sums telescope. If e^w and e^w - 1 were rounded separately, about 1e-16/w would be lost.
    """
    deltas = np.maximum.accumulate(np.clip(profile, 0.0, 1.0)[::-1])[::-1]
    falls = np.diff(deltas)
    masses = np.zeros_like(deltas)
    with np.errstate(over="ignore"):
        growth = np.expm1(width)  # infinite above 709: the fall of a line is all at its end
    masses[0] = 1.0 - deltas[0] + falls[0] / growth
    masses[1:-1] = np.diff(falls) / growth - falls[:-1]
    masses[-1] = -falls[-1] / growth - falls[-1]
    return np.maximum(masses, 0.0), float(deltas[-1])


def product(parts: Iterable[tuple[Pair | None, int]]) -> Pair | None:
    """Return the pair of independent releases with counts; None if one has no pair."""
    # A single Laplace release keeps its own profile. Several, or one combined with Gaussian noise,
    # are each replaced by the dominating randomized response. Subsampled pairs have no closed form.
    mu_squared = 0.0
    laplaces: list[tuple[float, int]] = []
    responses: list[tuple[float, int]] = []
    for pair, count in parts:
        if pair is None or type(pair) is not Pair or pair.fraction < 1.0:
            return None
        mu_squared += count * pair.mu**2
        laplaces += [(pair.laplace, count)] * (pair.laplace > 0.0)
        responses += [(loss, count * times) for loss, times in pair.responses]
    if len(laplaces) == 1 and laplaces[0][1] == 1 and mu_squared == 0.0:
        return Pair(0.0, laplaces[0][0], tuple(sorted(responses)))
    return Pair(math.sqrt(mu_squared), 0.0, tuple(sorted(laplaces + responses)))
