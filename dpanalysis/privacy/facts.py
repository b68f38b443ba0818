"""Public facts of a problem, and the sensitivities that follow from them.

Nothing here sees a record: the oracle, the methods' plans and the theory of the noise all compute
sensitivities from the same object.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from .._validation import check_choice, check_int, keep_numbers
from .accounting.relations import REPLACE_ONE, check_relation
from .accounting.sampling import (
    EpochSampling,
    Full,
    Sampling,
    Shuffle,
    WithoutReplacement,
    WithReplacement,
)
from .events import Event, Gaussian, Laplace, Sampled


@dataclass(frozen=True)
class Block:
    """Neighbouring coordinates, a norm, and a length in this norm."""

    size: int  # number of coordinates, at least 1
    order: float  # of the norm: 1, 2 or inf
    radius: float  # in (0, inf): of a record a bound on the norm, of noise a scale

    def __post_init__(self) -> None:
        check_int("size", self.size, low=1)
        check_choice("order", self.order, (1, 2, math.inf))
        keep_numbers(self, "radius", low=0.0, low_open=True)

    def radius_in(self, order: float) -> float:
        """Return the largest norm of ``order`` in this block: tight."""
        if order >= self.order:
            return self.radius
        power = 1.0 / order - (0.0 if math.isinf(self.order) else 1.0 / self.order)
        return self.radius * self.size**power


# Points beyond this are refused: whether a prediction overflows there depends on the record.
LARGEST_ITERATE = 1e250

# So many rows for each record of a nominal size may be there; see check_size.
MOST_ROWS = 2

# The norm in which each mechanism needs the sensitivity.
NORM_ORDER = {"laplace": 1, "gaussian": 2}


@dataclass(frozen=True)
class PublicFacts:
    """What a method may know of a problem without paying for it.

    Attributes
    ----------
    n, d : int
        Public nominal number of records, which sums are divided by, and number of parameters.
        Under add_or_remove_one the guarantee is for two data sets of the same n: see
        :attr:`max_records`.
    mu, L : float
        Strong convexity and smoothness from public bounds, of n records; ``L`` may be infinite.
    relation : str
        Neighbouring relation of the guarantee.
    gradient_bounds : tuple of float
        Bound on the L1 and on the L2 norm of one record's gradient, infinite where none.
    declared_sensitivity : float or None
        Sensitivity of the whole gradient where the problem states it by itself.
    has_records : bool
        False for problems that stand on no private data.
    hessian_bound : float
        Bound on the norm of one record's Hessian, infinite where none.
    hessian_lipschitz : float
        Lipschitz constant of the Hessian of the objective, infinite where none.
    convex_records : bool
        Whether every record's loss is convex: its Hessian is then positive semidefinite.
    hessian_rank : int or None
        Bound on the rank of one record's Hessian; None where nothing but the dimension d
        bounds it.
    value_at_zero : float or None
        Objective of n records at w = 0 where they do not change it; None where one may.
    hessian_trace : float
        Bound on the trace of one record's Hessian, infinite where none.
    derivative_bounds : tuple of float
        Where one record's gradient is an outer product of two vectors, that of the loss in the
        linear predictions (one number, or one a class) and the record's row: bound on the L1 and
        on the L2 norm of the first. Infinite where it is no such product.
    derivative_corners : int or None
        Number of points whose convex hull has every such first vector of one record in it; they
        may depend on the record, not on the parameters. None where there is no such bound.
    curvature_vanishes_at_max_slope : bool
        Whether a record whose first such vector has a share p of its bound has a Hessian of trace
        at most 4 p (1 - p) times ``hessian_trace``: a record that pulls as hard as it can does not
        bend the objective, as of the logistic loss. The Hessian has rank 1 then.
    lowest_value : float
        Lower bound on the part of the objective that records give; -inf where none is known.
    row_blocks : tuple of tuples of Block
        Bounds on one record's row, each of them by blocks of its columns.
    rounding : float
        Bound on the rounding error of a sum over records, in units of the bound on one
        record's term. Two neighbouring data sets may round apart, so twice that is added to
        every sensitivity.
    largest_iterate : float
        Iterates with larger entries count as diverged: what a network computes there may
        overflow. A public number, since whether it does depends on the records.
    max_records : int or None
        Largest number of records that may be there. None: n and, since one may be added, n + 1.
    double_precision : bool
        Whether predictions and gradients of records are computed in float64.
    penalty_flat_at_zero : bool
        Whether the penalty's gradient vanishes at 0.
    """

    n: int
    d: int
    mu: float
    L: float
    relation: str
    gradient_bounds: tuple[float, float]
    declared_sensitivity: float | None = None
    has_records: bool = True
    hessian_bound: float = math.inf
    hessian_lipschitz: float = math.inf
    convex_records: bool = False
    hessian_rank: int | None = None
    value_at_zero: float | None = None
    rounding: float = 0.0
    hessian_trace: float = math.inf
    derivative_bounds: tuple[float, float] = (math.inf, math.inf)
    derivative_corners: int | None = None
    curvature_vanishes_at_max_slope: bool = False
    lowest_value: float = -math.inf
    row_blocks: tuple[tuple[Block, ...], ...] = ()
    largest_iterate: float = LARGEST_ITERATE
    max_records: int | None = None
    double_precision: bool = False
    penalty_flat_at_zero: bool = False

    def __post_init__(self) -> None:
        check_relation(self.relation)
        for name in ("gradient_bounds", "derivative_bounds", "row_blocks"):
            object.__setattr__(self, name, tuple(getattr(self, name)))

    @property
    def record_limit(self) -> int:
        """Largest number of records that may be there, one that is added included."""
        return self.n + 1 if self.max_records is None else self.max_records

    def record_sensitivity(self, order: int, clipping: Any = None) -> float:
        """Return how far one record moves the SUM of gradients, in the norm ``order``.

        Replacing a record moves the sum by at most twice the bound on one gradient,
        adding or removing it by at most once that bound.
        """
        if self.declared_sensitivity is not None:
            return self.declared_sensitivity
        bound = self.gradient_bounds[order - 1]
        if clipping is not None:
            # ||g||_1 <= sqrt(d) ||g||_2 where the L1 norm is wanted of an L2 clip. A rule may
            # lift small gradients, beyond the bound that they had.
            if clipping.clip_norm < 1e-70:  # see kernels.norms: tiny rows that grew add up to 1e-79
                raise ValueError(f"clip_norm must be at least 1e-70, got {clipping.clip_norm!r}")
            clip_norm = clipping.clip_norm * (math.sqrt(self.d) if order == 1 else 1.0)
            bound = min(bound * clipping.largest_weight, clip_norm)
        self.check_magnitude(bound)
        if not math.isfinite(bound):
            raise ValueError(
                f"the L{order} norm of one record's gradient has no public bound, so no noise can "
                "make it private: give the problem a row_bound (with a Lipschitz loss), or give "
                "the method a clipping rule"
            )
        return self.sum_sensitivity(bound)

    def check_magnitude(
        self, *sizes: float, what: str = "the bound on one record's gradient"
    ) -> None:
        """Raise where a sum of terms of that size could overflow, or vanish among subnormals.

        The size is the product of ``sizes``, and 0 only where one of them is.
        """
        bound = math.prod(sizes) or (5e-324 if all(sizes) else 0.0)
        if math.isfinite(bound) and bound and not (bound >= 1e-250 and self.n * bound <= 1e300):
            raise ValueError(
                f"{what} must be at least 1e-250, and n times it at "
                f"most 1e300, for sums to be sums: got {bound:g} with n = {self.n}; give the "
                "features, or what is clipped to, another unit"
            )

    def sum_sensitivity(self, bound: float) -> float:
        """Return how far one record moves a sum whose every term is at most ``bound`` in size.

        Replacing a record moves the exact sum by at most twice the bound, adding or removing
        one by at most once; each of the two computed sums is off by ``rounding`` times the
        bound at most.
        """
        records = 2.0 if self.relation == REPLACE_ONE else 1.0
        return (records + 2.0 * self.rounding) * bound

    def block_sensitivities(self, order: int) -> list[tuple[Block, ...]]:
        r"""Return how far one record moves the sum of gradients, block by block of its row.

        A gradient is :math:`\theta x^\top`: as many copies of the row x as there are linear
        predictions, each times an entry of :math:`\theta`. So the norms of a block, in all copies,
        have an L1 (or L2) norm of at most that of :math:`\theta` times the block's bound.
        """
        derivative = self.derivative_bounds[order - 1]
        if not math.isfinite(derivative):
            return []
        for size in self.gradient_bounds:
            self.check_magnitude(size)
        return [
            tuple(
                replace(block, radius=self.sum_sensitivity(derivative * block.radius))
                for block in blocks
            )
            for blocks in self.row_blocks
        ]

    def gradient_sensitivity(
        self, sampling: Sampling | EpochSampling, order: int, clipping: Any = None
    ) -> float:
        """Return the sensitivity of the mean gradient, divided by the PUBLIC batch size."""
        if self.declared_sensitivity is not None and sampling.fraction(self.n) < 1.0:
            raise ValueError(
                "sampling must be Full() for a problem that declares its sensitivity: it has no "
                f"records to draw from, got {sampling!r}"
            )
        return self.record_sensitivity(order, clipping) / sampling.expected_size(self.n)


def check_facts(facts: PublicFacts, stated: PublicFacts) -> None:
    """Raise ValueError where facts are other than those that the problem states."""
    if facts == stated:
        return
    names = [each.name for each in fields(stated)]
    other = [name for name in names if getattr(facts, name, None) != getattr(stated, name)]
    raise ValueError(
        f"facts must be problem.facts({facts.relation!r}), which every price is computed from; "
        f"they differ in {', '.join(other) or 'their class'}"
    )


def gradient_event(
    facts: PublicFacts,
    sampling: Sampling | EpochSampling,
    mechanism: str,
    scale: float,
    clipping: Any = None,
) -> Event:
    """Return the event of one noisy mean gradient on a drawn batch, not yet amplified."""
    order = NORM_ORDER[mechanism]
    sensitivity = facts.gradient_sensitivity(sampling, order, clipping)
    return (Laplace if order == 1 else Gaussian)(float(scale), sensitivity)


def sampled_event(facts: PublicFacts, sampling: Sampling, events: Sequence[Event]) -> Event:
    """Return the one event of everything asked of one batch."""
    if isinstance(sampling, Full) and len(events) == 1:
        return events[0]
    return Sampled(sampling, tuple(events), facts.n)


def check_size(size: Any, n: int) -> int:
    """Return ``size``, the nominal size of a data set of ``n`` rows, or raise naming it.

    The bound on rounding errors holds for at most :data:`MOST_ROWS` times as many rows, so the
    guarantee is one for data sets of at most so many.
    """
    size = check_int("size", size, low=1)
    if n > MOST_ROWS * size:
        raise ValueError(
            f"size must be at least half of the number of rows, got {size} for {n} rows: the noise "
            f"covers the rounding errors of sums of at most {MOST_ROWS} times size rows"
        )
    return size


def check_records(facts: PublicFacts, n: int) -> None:
    """Raise ValueError unless ``n`` records may be there by these facts."""
    if n > facts.record_limit:
        raise ValueError(
            f"the problem must have at most {facts.record_limit} records by its facts, got {n}: "
            "give PublicFacts a larger n or max_records"
        )


def check_drawn(facts: PublicFacts, sampling: Sampling | EpochSampling, n: int) -> None:
    """Raise ValueError unless batches drawn from ``n`` records are those that are charged for."""
    fixed = isinstance(sampling, WithoutReplacement | WithReplacement | Shuffle)
    if n != facts.n and fixed:
        raise ValueError(
            f"size must be the number of rows, {n}, for {sampling!r}, got {facts.n}: which batches "
            "can be drawn depends on the number of rows; leave size out, or take Full(), Poisson "
            "or BallsInBins"
        )
