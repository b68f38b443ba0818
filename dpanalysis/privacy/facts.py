"""Public facts of a problem, and the sensitivities that follow from them.

Nothing here accesses a record: the oracle, the plans of methods and the theory of the noise all
compute sensitivities from the same object.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from .._validation import check_choice, check_int, keep_numbers, plain_numbers
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
    """A block of consecutive coordinates, with a norm and a radius in this norm."""

    size: int  # number of coordinates, at least 1
    order: float  # of the norm: 1, 2 or inf
    radius: float  # in (0, inf): for records a bound on the norm, for noise a scale

    def __post_init__(self) -> None:
        plain_numbers(self)
        check_int("size", self.size, low=1)
        check_choice("order", self.order, (1, 2, math.inf))
        keep_numbers(self, "radius", low=0.0, low_open=True)

    def radius_in(self, order: float) -> float:
        """Return the largest norm of ``order`` over this block's ball: tight."""
        if order >= self.order:
            return self.radius
        power = 1.0 / order - (0.0 if math.isinf(self.order) else 1.0 / self.order)
        return self.radius * self.size**power


# Points beyond are refused, since whether a prediction overflows there depends on the record.
LARGEST_ITERATE = 1e250

# Largest ratio of the number of rows to the nominal size; see check_size.
MOST_ROWS = 2

# The norm in which each mechanism needs the sensitivity.
NORM_ORDER = {"laplace": 1, "gaussian": 2}


@dataclass(frozen=True)
class PublicFacts:
    """The public facts of a problem, which a method may use at no privacy cost.

    Attributes
    ----------
    n, d : int
        Public nominal number of records, by which sums are divided, and number of parameters. Under
        add_or_remove_one the guarantee is for two data sets of the same n: see :attr:`max_records`.
    mu, L : float
        Strong convexity and smoothness for n records, from public bounds; ``L`` may be infinite.
    relation : str
        Neighbouring relation of the guarantee.
    gradient_bounds : tuple of float
        Bounds on the L1 and on the L2 norm of one record's gradient; infinite if there is none.
    declared_sensitivity : float or None
        Sensitivity of the whole gradient, for a problem that declares it.
    has_records : bool
        False for problems without private data.
    hessian_bound : float
        Bound on the norm of one record's Hessian; infinite if there is none.
    hessian_lipschitz : float
        Lipschitz constant of the Hessian of the objective; infinite if there is none.
    convex_records : bool
        Whether every record's loss is convex: its Hessian is then positive semidefinite.
    hessian_rank : int or None
        Bound on the rank of one record's Hessian; None if only the dimension d bounds it.
    value_at_zero : float or None
        Bound on the objective of n records at w = 0, and on each record's; None if none is known.
    hessian_trace : float
        Bound on the trace of one record's Hessian; infinite if there is none.
    derivative_bounds : tuple of float
        If one record's gradient is the outer product of the loss derivatives in the linear
        predictions (one number, or one per class) and the record's row: bounds on the L1 and on
        the L2 norm of the former vector. Infinite if it is no such product.
    derivative_corners : int or None
        Number of points whose convex hull contains every derivative vector of one record; they
        may depend on the record, not on the parameters. None if there is no such bound.
    curvature_vanishes_at_max_slope : bool
        Whether a record whose derivative vector has a fraction p of its bound has a Hessian of
        trace at most 4 p (1 - p) times ``hessian_trace``: at its maximal slope a record has no
        curvature, as for the logistic loss. The Hessian has rank 1 then.
    lowest_value : float
        Lower bound on the records' part of the objective; -inf if none is known.
    row_blocks : tuple of tuples of Block
        Bounds on one record's row, each given by blocks of its columns.
    rounding : float
        Bound on the rounding error of a sum over records, in units of the bound on one record's
        term. Two neighbouring data sets may round in opposite directions, so twice that is added
        to every sensitivity.
    largest_iterate : float
        Iterates with larger entries count as diverged: computations of a network may overflow
        there. A public number, since whether they do depends on the records.
    max_records : int or None
        Largest number of records allowed. None: n and, since one may be added, n + 1.
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
        plain_numbers(self)
        object.__setattr__(self, "row_blocks", tuple(self.row_blocks))
        for name in ("gradient_bounds", "derivative_bounds"):
            object.__setattr__(self, name, tuple(map(float, getattr(self, name))))

    @property
    def record_limit(self) -> int:
        """Largest number of records allowed, including an added one."""
        return self.n + 1 if self.max_records is None else self.max_records

    def record_sensitivity(self, order: int, clipping: Any = None) -> float:
        """Return the sensitivity of the SUM of gradients in the norm ``order``."""
        if self.declared_sensitivity is not None:
            return self.declared_sensitivity
        bound = self.gradient_bounds[order - 1]
        if clipping is not None:
            # ||g||_1 <= sqrt(d) ||g||_2 bounds the L1 norm after clipping in L2. A rule may scale
            # small gradients up, beyond their own bound.
            clip_norm, weight = float(clipping.clip_norm), float(clipping.largest_weight)
            if clip_norm < 1e-70:  # see kernels.norms: tiny rows that grew add up to 1e-79
                raise ValueError(f"clip_norm must be at least 1e-70, got {clip_norm!r}")
            bound = min(bound * weight, clip_norm * (math.sqrt(self.d) if order == 1 else 1.0))
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
        """Raise if a sum of terms of that size could overflow, or underflow to subnormals.

        The size is the product of ``sizes``, and 0 only if one of them is.
        """
        bound = math.prod(sizes) or (5e-324 if all(sizes) else 0.0)
        stated = all(map(math.isfinite, sizes))  # their product may overflow
        if stated and bound and not (bound >= 1e-250 and self.n * bound <= 1e300):
            raise ValueError(
                f"{what} must be at least 1e-250, and n times it at "
                f"most 1e300, for sums to be sums: got {bound:g} with n = {self.n}; give the "
                "features, or what is clipped to, another unit"
            )

    def sum_sensitivity(self, bound: float) -> float:
        """Return the sensitivity of a sum whose terms are at most ``bound`` in size.

        Replacing a record moves the exact sum by at most twice the bound, adding or removing
        one by at most once; the rounding error of each of the two computed sums is at most
        ``rounding`` times the bound.
        """
        records = 2.0 if self.relation == REPLACE_ONE else 1.0
        return (records + 2.0 * self.rounding) * bound

    def block_sensitivities(self, order: int) -> list[tuple[Block, ...]]:
        r"""Return the sensitivity of the sum of gradients in each block of columns.

        A gradient is :math:`\theta x^\top`: one copy of the row x for each linear prediction,
        times an entry of :math:`\theta`. So the norms of a block, over all copies, form a vector
        whose L1 (or L2) norm is at most that of :math:`\theta` times the block's bound.
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
    """Raise ValueError if facts differ from those that the problem states."""
    if facts == stated:
        return
    names = [each.name for each in fields(stated)]
    other = [name for name in names if getattr(facts, name, None) != getattr(stated, name)]
    raise ValueError(
        f"facts must be problem.facts({facts.relation!r}), from which every cost is computed; "
        f"they differ in {', '.join(other) or 'their class'}"
    )


def gradient_event(
    facts: PublicFacts,
    sampling: Sampling | EpochSampling,
    mechanism: str,
    scale: float,
    clipping: Any = None,
) -> Event:
    """Return the event of one noisy mean gradient on a drawn batch, before amplification."""
    order = NORM_ORDER[check_choice("mechanism", mechanism, tuple(NORM_ORDER))]
    sensitivity = facts.gradient_sensitivity(sampling, order, clipping)
    return (Laplace if order == 1 else Gaussian)(float(scale), sensitivity)


def sampled_event(facts: PublicFacts, sampling: Sampling, events: Sequence[Event]) -> Event:
    """Return the event of all queries on one batch."""
    if isinstance(sampling, Full) and len(events) == 1:
        return events[0]
    return Sampled(sampling, tuple(events), facts.n)


def check_size(size: Any, n: int) -> int:
    """Return ``size``, the nominal size of a data set of ``n`` rows, or raise naming it.

    The bound on rounding errors holds for at most :data:`MOST_ROWS` times ``size`` rows, so the
    guarantee is for data sets of at most so many rows.
    """
    size = check_int("size", size, low=1, high=1 << 53)  # doubles are exact to here
    if n > MOST_ROWS * size:
        raise ValueError(
            f"size must be at least half of the number of rows, got {size} for {n} rows: the noise "
            f"covers the rounding errors of sums of at most {MOST_ROWS} times size rows"
        )
    return size


def check_records(facts: PublicFacts, n: int) -> None:
    """Raise ValueError unless these facts allow ``n`` records."""
    if n > facts.record_limit:
        raise ValueError(
            f"the problem must have at most {facts.record_limit} records by its facts, got {n}: "
            "give PublicFacts a larger n or max_records"
        )


def check_drawn(facts: PublicFacts, sampling: Sampling | EpochSampling, n: int) -> None:
    """Raise ValueError unless batches drawn from ``n`` records have the law that is charged."""
    fixed = isinstance(sampling, WithoutReplacement | WithReplacement | Shuffle)
    if n != facts.n and fixed:
        raise ValueError(
            f"size must be the number of rows, {n}, for {sampling!r}, got {facts.n}: which batches "
            "can be drawn depends on the number of rows; leave size out, or take Full(), Poisson "
            "or BallsInBins"
        )
