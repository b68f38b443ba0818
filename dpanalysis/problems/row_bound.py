"""Public bounds on the rows of the data, from which sensitivities are computed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeAlias

from .._validation import check_choice, check_number, keep_numbers, plain_numbers
from ..privacy.facts import Block

#: 1, 2, infinity, or blocks of columns: the largest ratio of a block's norm to its radius.
Order: TypeAlias = float | tuple[Block, ...]

# Norms that are smaller have lost digits, so that a row could be longer than its bound.
SMALLEST_RADIUS = 2.0**-960

# With "check", rows over the bound by rounding alone are accepted (and scaled down to it).
TOLERANCE = 1e-9


@dataclass(frozen=True)
class RowBound:
    """Public bound ``||x_i||_order <= radius`` on every row of the data.

    The bound is chosen by the caller, never computed from the data: it determines the
    noise, so a bound computed from private data would leak.

    Parameters
    ----------
    order : {1, 2, inf} or tuple of Block
        The norm. For blocks of adjacent columns (:class:`dpanalysis.privacy.facts.Block`, of
        order 1 or infinity) it is the largest ratio of a block's norm to its own radius: with
        ``radius=1`` every block is within its own radius.
    radius : float
        At least 2**-960 (about 1e-289), and finite.
    enforce : {"clip", "check"}
        ``"clip"``: a row over the bound is scaled down to it (by a factor stored beside the
        data; ``X`` is neither changed nor copied). ``"check"``: a row over the bound
        raises ValueError; a row over it by rounding alone (1e-9, relative) is scaled
        down to it. Either way the bound holds for the rows that enter the sums.

    Examples
    --------
    >>> RowBound(order=1, radius=20.0)
    RowBound(order=1, radius=20.0, enforce='clip')
    """

    order: Order = 2
    radius: float = 1.0
    enforce: str = "clip"

    def __post_init__(self) -> None:
        plain_numbers(self)
        if isinstance(self.order, tuple):
            if not self.order or not all(isinstance(block, Block) for block in self.order):
                raise TypeError(f"order must be a norm or a tuple of Block, got {self.order!r}")
            for block in self.order:
                check_choice("order of a block", block.order, (1, math.inf))
                check_number("radius of a block", block.radius, low=SMALLEST_RADIUS)
        else:
            check_choice("order", self.order, (1, 2, math.inf))
        keep_numbers(self, "radius", low=SMALLEST_RADIUS)
        check_choice("enforce", self.enforce, ("clip", "check"))


def as_bounds(row_bound: Any) -> tuple[RowBound, ...]:
    """Return the bounds of ``row_bound``: None, one RowBound, or a sequence of them."""
    if row_bound is None:
        return ()
    bounds = tuple(row_bound) if isinstance(row_bound, Sequence) else (row_bound,)
    for bound in bounds:
        if not isinstance(bound, RowBound):
            raise TypeError(
                f"row_bound must be None, a RowBound or a sequence of them, got {bound!r}"
            )
    return bounds


def implied_radius(bounds: Sequence[RowBound], order: int, d: int) -> float:
    """Return the smallest radius in this norm implied by one of the bounds, or inf."""
    return _implied_radius(tuple(bounds), check_choice("order", order, (1, 2)), d)


@lru_cache(maxsize=64)
def _implied_radius(bounds: tuple[RowBound, ...], order: int, d: int) -> float:
    together = math.hypot if order == 2 else lambda *radii: sum(radii)  # no square underflows
    radii = [
        together(*(block.radius_in(order) for block in blocks)) for blocks in as_blocks(bounds, d)
    ]
    return min(radii, default=math.inf)


@lru_cache(maxsize=64)
def as_blocks(bounds: tuple[RowBound, ...], d: int) -> tuple[tuple[Block, ...], ...]:
    """Return each bound on rows of d columns as blocks; an ordinary norm is a single block."""
    found = []
    for bound in bounds:
        if isinstance(bound.order, tuple):
            columns = sum(block.size for block in bound.order)
            if columns != d:
                raise ValueError(f"row_bound: its blocks have {columns} columns, and rows have {d}")
            stretched = (replace(b, radius=bound.radius * b.radius) for b in bound.order)
            found.append(tuple(stretched))
        else:
            found.append((Block(d, bound.order, bound.radius),))
    return tuple(found)


def norm_name(order: Order) -> str:
    """Return the name of a norm for messages."""
    return "block" if isinstance(order, tuple) else f"L{order:g}"


def with_constant(bound: RowBound) -> RowBound:
    """Return the bound on the same rows with a constant 1 appended."""
    if isinstance(bound.order, tuple):
        return replace(bound, order=(*bound.order, Block(1, 1, 1.0 / bound.radius)))
    if math.isinf(bound.order):
        return replace(bound, radius=max(bound.radius, 1.0))
    return replace(bound, radius=(bound.radius**bound.order + 1.0) ** (1.0 / bound.order))
