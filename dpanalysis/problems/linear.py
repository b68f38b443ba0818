"""What is public of a linear predictor's ERM: from the loss, the penalty and the row bounds."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..clipping import Clipping, check_clipping
from ..losses import Loss
from ..privacy.blocks import Block
from .empirical import EmpiricalRisk
from .growth import growth_of_rows
from .row_bound import RowBound, as_blocks, implied_radius

__all__ = ["LinearRisk"]


class LinearRisk(EmpiricalRisk):
    """Constants that the noise is computed from; none of them looks at the data.

    Attributes
    ----------
    loss : Loss
    row_bounds : tuple of RowBound
    """

    loss: Loss
    row_bounds: tuple[RowBound, ...]

    @property
    def L(self) -> float:  # type: ignore[override]
        """Smoothness that the row bound, the loss and the penalty guarantee; inf for none."""
        data = self.loss.smoothness * self.radius(2) ** 2
        return data + (0.0 if self.regularizer is None else self.regularizer.L)

    def radius(self, order: int) -> float:
        """Public bound on every ``||x_i||_order``, order 1 or 2; inf when there is none."""
        return implied_radius(self.row_bounds, order, self.d)

    def gradient_bound(self, order: int) -> float:
        """Public bound on the norm of one sample's data gradient; inf when there is none."""
        return self.loss.lipschitz * self.radius(order)

    @property
    def convex_records(self) -> bool:  # type: ignore[override]
        """Whether the loss is convex, and so that of every sample."""
        return self.loss.convex

    @property
    def value_at_zero(self) -> float | None:  # type: ignore[override]
        """Objective at w = 0 where the labels do not change it, so that it is public."""
        if not self.loss.classification:
            return None
        ends = self.loss.value(np.zeros(2), np.array([-1.0, 1.0]))
        if ends[0] != ends[1]:
            return None
        penalty = self.regularizer
        return float(ends[0]) + (0.0 if penalty is None else float(penalty.value(np.zeros(self.d))))

    hessian_rank = 1  # of one sample: l'' x x'
    derivative_corners = 2  # l' lies in an interval

    @property
    def derivative_bounds(self) -> tuple[float, float]:  # type: ignore[override]
        """Bound on the derivative of a sample's loss in its prediction."""
        return self.loss.lipschitz, self.loss.lipschitz

    @property
    def flat_where_steep(self) -> bool:  # type: ignore[override]
        """Whether a sample at its largest derivative has no curvature."""
        return self.loss.flat_where_steep

    @property
    def lowest_value(self) -> float:  # type: ignore[override]
        """Lower bound on a sample's loss."""
        return self.loss.lowest

    @property
    def row_blocks(self) -> tuple[tuple[Block, ...], ...]:  # type: ignore[override]
        """Every public bound on the rows, by blocks of their columns."""
        return as_blocks(self.row_bounds, self.d)

    @property
    def hessian_trace(self) -> float:  # type: ignore[override]
        """Public bound on the trace of one sample's Hessian, which has one eigenvalue."""
        return self.hessian_bound

    @property
    def hessian_bound(self) -> float:  # type: ignore[override]
        """Public bound on the norm of one sample's Hessian, without the penalty; inf for none."""
        return self.loss.smoothness * self.radius(2) ** 2

    @property
    def hessian_lipschitz(self) -> float:  # type: ignore[override]
        """Lipschitz constant of the Hessian that the public bounds guarantee; inf for none."""
        data = self.loss.hessian_lipschitz
        data = data * self.radius(2) ** 3 if data else 0.0
        return data + (0.0 if self.regularizer is None else self.regularizer.hessian_lipschitz)

    def weak_growth(self, w: Any) -> tuple[float, float]:
        """Return ``(beta1, beta2)`` of the loss for rows up to the public bound, at every ``w``.

        Raises
        ------
        ValueError
            If there is no bound, or the loss has no such constants.
        """
        return growth_of_rows(self.loss, self.radius(2))

    def check_clipping(self, clipping: Clipping | None) -> None:
        """Raise unless the rule bounds the gradient of every record that may occur.

        That is decided by the loss and the public row bound, never by the data at hand.

        Raises
        ------
        TypeError
            If ``clipping`` is not a rule of :mod:`dpanalysis.clipping` (or None).
        ValueError
            If its bound can fail, as that of :class:`~dpanalysis.clipping.Value` with too
            small a ``beta1``, or without a row bound.

        Examples
        --------
        >>> import numpy as np
        >>> from dpanalysis import ERM, RowBound, clipping, losses
        >>> problem = ERM(np.ones((1, 1)), [1], losses.Logistic(), row_bound=RowBound(2, 2.0))
        >>> problem.check_clipping(clipping.Value(1.0, *problem.loss.weak_growth(2.0)))
        >>> problem.check_clipping(clipping.Value(1.0, beta1=0.5))
        Traceback (most recent call last):
            ...
        ValueError: beta1 = 0.5 with beta2 = 0.0 and lower_bound = 0.0 does not bound...
        """
        check_clipping(clipping)
        if clipping is not None and clipping.needs_losses:  # a norm alone bounds by itself
            clipping.check(self.loss, self.radius(2))
