"""What the proofs of queries for a whole solution assume."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..sampling import Full, Sampling

if TYPE_CHECKING:
    from ..facts import PublicFacts

__all__ = ["Curvature", "check_full", "check_smooth", "curvature_of"]


@dataclass(frozen=True)
class Curvature:
    """What is public of one record of a loss of linear predictions.

    Attributes
    ----------
    rank : int
        Largest rank of its Hessian.
    trace : float
        Largest trace of its Hessian.
    corners : int
        Of a polytope with all derivatives in the predictions.
    flat : bool
        Whether it has no curvature where its gradient is largest, as
        :attr:`~dpanalysis.privacy.facts.PublicFacts.flat_where_steep` says.
    """

    rank: int
    trace: float
    corners: int
    flat: bool = False

    def cost(self, convexity: float, pull: float = 0.0) -> float:
        """Return the largest logarithm of a ratio of determinants; see :class:`TiltedMinimum`.

        Parameters
        ----------
        convexity : float
            Of the sum.
        pull : float
            What the largest gradient of one record costs. A record that bends the objective pulls
            less than that where it is flat, and the difference is taken off.
        """
        if not self.flat or pull == 0.0:
            return self.rank * math.log1p(self.trace / (self.rank * convexity))
        T = 4.0 * self.trace / convexity
        if pull >= T:
            return 0.0
        # Where the slope p pull + ln(1 + T p (1 - p)) has its maximum: in (1/2, 1). A p that is
        # off by its rounding misses the maximum by that rounding squared.
        p = 2.0 * (1.0 + pull / T) / (2.0 - pull + math.sqrt(4.0 + pull**2 + 4.0 * pull**2 / T))
        p = min(p, 1.0)
        return max(0.0, math.log1p(T * p * (1.0 - p)) - (1.0 - p) * pull)

    def convexity(self, cost: float) -> float:
        """Return the least strong convexity of the sum at which the ratio costs so much."""
        return self.trace / (self.rank * math.expm1(cost / self.rank))


def check_smooth(facts: PublicFacts) -> None:
    """Raise ValueError unless every record's loss is convex, Lipschitz and smooth for sure."""
    _check_convex(facts)
    if not math.isfinite(facts.hessian_bound):
        raise ValueError(_NOT_SMOOTH)


_NOT_SMOOTH = (
    "the loss must be smooth: take Logistic() or HuberizedHinge(width), which is a smooth Hinge()"
)


def _check_convex(facts: PublicFacts) -> None:
    if not facts.convex_records:
        raise ValueError(
            "the loss of every record must be known to be convex: take an ERM with a convex loss"
        )
    if not math.isfinite(facts.gradient_bounds[1]):
        raise ValueError(
            "the gradient of one record has no public bound: give the problem a row_bound and a "
            "Lipschitz loss, such as Logistic() or HuberizedHinge(width)"
        )


def curvature_of(facts: PublicFacts) -> Curvature:
    """Return the curvature of a record, or raise ValueError: see :class:`TiltedMinimum`.

    Every record's loss must be convex, Lipschitz and smooth for sure, and one of linear
    predictions.
    """
    _check_convex(facts)
    rank, corners = facts.hessian_rank, facts.derivative_corners
    if rank is None or corners is None:
        raise ValueError(
            "the loss of a record must depend on linear predictions, as in ERM and Softmax, got "
            f"hessian_rank = {rank!r} and derivative_corners = {corners!r}"
        )
    trace = min(facts.hessian_trace, rank * facts.hessian_bound)
    if not math.isfinite(trace):
        raise ValueError(_NOT_SMOOTH)
    return Curvature(rank, trace, corners, facts.flat_where_steep and rank == 1)


def check_full(sampling: Sampling) -> None:
    """Raise ValueError unless all records are to be taken."""
    if not isinstance(sampling, Full):
        raise ValueError(f"sampling must be Full() for a whole solution, got {sampling!r}")
