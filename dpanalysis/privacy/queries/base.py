"""Base class of queries, their records, and the assumptions of proofs for whole solutions."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..._validation import check_vector, plain_numbers
from ..accounting.sampling import Full, Sampling
from ..events import Event

if TYPE_CHECKING:
    from ..facts import PublicFacts


@dataclass(frozen=True)
class Records:
    """The batch on which a query is evaluated; methods never have access to one.

    ``rows`` is the batch drawn, which may be empty; None for all records. ``size`` is the PUBLIC
    divisor of sums: the expected size of the batch.
    """

    problem: Any
    rows: np.ndarray | None
    size: float

    @property
    def count(self) -> int:
        """Number of records in the batch."""
        return self.problem.n if self.rows is None else len(self.rows)


class Ray(NamedTuple):
    """Public points ``w - t direction`` (d,) for the t in ``step_sizes`` (K,)."""

    w: np.ndarray
    direction: np.ndarray
    step_sizes: np.ndarray

    def check(self) -> None:
        """Raise ValueError unless all parts are vectors of finite numbers, and w and g alike."""
        for name, part in zip(self._fields, self):
            check_vector(f"points.{name}", part)
        if np.shape(self.w) != np.shape(self.direction):
            raise ValueError(
                f"points.direction must have the shape of points.w, {np.shape(self.w)}, got "
                f"{np.shape(self.direction)}"
            )

    def ends(self) -> tuple[np.ndarray, ...]:
        """Return w and the points of the smallest and the largest step; the rest lie between."""
        with np.errstate(over="ignore", invalid="ignore"):  # the caller checks them
            least, most = min(self.step_sizes), max(self.step_sizes)
            return self.w, self.w - least * self.direction, self.w - most * self.direction


class Query(ABC):
    """A query on the records of one batch.

    :meth:`event` must bound what :meth:`answer` reveals about any one record; it is charged
    before the answer. See :class:`~dpanalysis.privacy.queries.FirstDecrease`.
    """

    #: Quantity that one answer evaluates for every record of the batch, for counting.
    evaluates = "loss"
    #: Attributes of the problem that an answer needs, checked before the charge.
    needs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        plain_numbers(self)

    @abstractmethod
    def event(self, facts: PublicFacts, sampling: Sampling) -> Event | None:
        """Return the cost on a batch drawn by ``sampling``, before amplification.

        None if the answer is exact. Uses public facts only; raises if no bound makes it private.
        """

    def iterates(self) -> Sequence[np.ndarray]:
        """Return the public points, (d,) or (K, d), at which records are evaluated.

        Whether a record's loss overflows at a huge point depends on the record, so the oracle
        refuses huge points before it answers. Points on a line may be given by its ends. Points
        that the query computes from the records are not public and not listed.
        """
        return ()

    @abstractmethod
    def answer(self, records: Records, random: Any) -> tuple[Any, int]:
        """Return the noisy answer, and the number of evaluations of each record."""


# Assumptions of the proofs for whole solutions


@dataclass(frozen=True)
class Curvature:
    """Public bounds on the curvature of one record, for a loss of linear predictions."""

    rank: int  # bound on the rank of the Hessian
    trace: float  # bound on the trace of the Hessian
    corners: int  # of a polytope that contains all derivatives in the predictions
    flat: bool = False  # see ``PublicFacts.curvature_vanishes_at_max_slope``

    def cost(self, convexity: float, pull: float = 0.0) -> float:
        """Return the bound on the log-ratio of determinants; see :class:`PerturbedMinimum`."""
        if not self.flat or pull == 0.0:
            return self.rank * math.log1p(self.trace / (self.rank * convexity))
        T = 4.0 * self.trace / convexity
        if pull >= T:
            return 0.0
        # The p in (1/2, 1) that maximizes p pull + ln(1 + T p (1 - p)). A rounding error of p
        # changes the maximum by the square of that error only.
        p = 2.0 * (1.0 + pull / T) / (2.0 - pull + math.sqrt(4.0 + pull**2 + 4.0 * pull**2 / T))
        p = min(p, 1.0)
        return max(0.0, math.log1p(T * p * (1.0 - p)) - (1.0 - p) * pull)

    def convexity(self, cost: float) -> float:
        """Return the least strong convexity of the sum for which the log-ratio is ``cost``."""
        return self.trace / (self.rank * math.expm1(cost / self.rank))


def check_double(facts: PublicFacts) -> None:
    """Raise ValueError unless gradients of records are computed in float64.

    In single precision they are those of another iterate, at a relative distance up to 6e-8: if the
    loss is steep, this moves a step, or a minimum, farther than one record may.
    """
    if not facts.double_precision:
        raise ValueError(
            "gradients must be computed in double precision, as the end of all steps must be right "
            "to the last digits: give float64 data, or dtype='float64' (a problem's own class must "
            "state so in its facts)"
        )


def check_penalty(facts: PublicFacts) -> None:
    """Raise ValueError unless the penalty is convex and its steps pull towards 0."""
    if facts.mu < 0.0:
        raise ValueError(f"the penalty must be convex, got mu = {facts.mu!r}: take L2(strength)")
    if not facts.penalty_flat_at_zero:
        raise ValueError("the penalty must have its minimum at 0: take L2(strength)")


def check_smooth(facts: PublicFacts) -> None:
    """Raise ValueError unless every record's loss is known to be convex, Lipschitz and smooth."""
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


@lru_cache(maxsize=64)
def curvature_of(facts: PublicFacts) -> Curvature:
    """Return the curvature of a record, or raise ValueError: see :class:`PerturbedMinimum`.

    Every record's loss must be a convex, Lipschitz and smooth function of linear predictions.
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
    return Curvature(rank, trace, corners, facts.curvature_vanishes_at_max_slope and rank == 1)


def check_full(sampling: Sampling) -> None:
    """Raise ValueError unless the batch is all records."""
    if not isinstance(sampling, Full):
        raise ValueError(f"sampling must be Full() for a whole solution, got {sampling!r}")
