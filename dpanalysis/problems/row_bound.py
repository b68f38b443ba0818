"""Public bounds on the rows of the data: what sensitivities are computed from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .._validation import check_choice, keep_numbers

__all__ = ["RowBound", "implied_radius"]

# With "check", rows over the bound by rounding alone are accepted (and scaled down to it).
TOLERANCE = 1e-9


@dataclass(frozen=True)
class RowBound:
    """Public bound ``||x_i||_order <= radius`` on every row of the data.

    The bound is chosen by the caller, never computed from the data: it sets the amount
    of noise, so a bound read off private data would leak.

    Parameters
    ----------
    order : {1, 2}
        The norm.
    radius : float
        Positive and finite.
    enforce : {"clip", "check"}
        ``"clip"``: a row over the bound is scaled down to it (by a factor kept beside the
        data; ``X`` is neither changed nor copied). ``"check"``: a row over the bound
        raises ValueError; a row over it by rounding alone (1e-9, relative) is scaled
        down to it. Either way the bound holds for the rows that the sums are taken of.

    Raises
    ------
    ValueError
        If an argument is outside its range.

    Examples
    --------
    >>> RowBound(order=1, radius=20.0)
    RowBound(order=1, radius=20.0, enforce='clip')
    """

    order: int = 2
    radius: float = 1.0
    enforce: str = "clip"

    def __post_init__(self) -> None:
        check_choice("order", self.order, (1, 2))
        keep_numbers(self, "radius", low=0.0, low_open=True)
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
    """Return the best radius in the norm of ``order`` that the bounds imply, or inf.

    Uses ``||x||_2 <= ||x||_1 <= sqrt(d) ||x||_2``.

    Examples
    --------
    >>> implied_radius([RowBound(1, 4.0)], order=2, d=9)
    4.0
    >>> implied_radius([RowBound(2, 4.0)], order=1, d=9)
    12.0
    """
    check_choice("order", order, (1, 2))
    factor = math.sqrt(d) if order == 1 else 1.0
    radii = [b.radius if b.order == order else factor * b.radius for b in bounds]
    return min(radii, default=math.inf)
