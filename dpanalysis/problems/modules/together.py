"""The gradients of one chunk in all parameters: few operations, since each costs a launch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ...clipping import Clipping
from ...kernels.array_api import kept_weights
from .parts import Part, Whole

__all__ = ["Placed", "Together"]


class Placed(NamedTuple):
    """Gradients in one parameter, and where it lies in the vector."""

    where: slice
    part: Part


class Together:
    """Gradients of B samples in all d parameters; what is written out becomes one array.

    Parameters
    ----------
    placed : sequence of Placed
        What is missing has gradients of 0.
    like : Tensor of shape (d,)
        The parameters.
    """

    def __init__(self, placed: Sequence[Placed], like: Tensor) -> None:
        placed = sorted(placed, key=lambda each: each.where.start)
        self._like = like
        self._places, rows = [], []
        self._others: list[Placed] = []
        for where, part in placed:
            if isinstance(part, Whole):
                self._places.append(where)
                rows.append(part.rows)
            else:
                self._others.append(Placed(where, part))
        self._written = (
            Whole(rows[0] if len(rows) == 1 else torch.cat(rows, dim=1)) if rows else None
        )

    @property
    def parts(self) -> list[Part]:
        """All parts, those written out as one."""
        others = [each.part for each in self._others]
        return others if self._written is None else [self._written, *others]

    def squares(self, count: int) -> Tensor:
        """Return upper bounds on the squared norms of ``count`` gradients, float64."""
        found = [part.squares() for part in self.parts]
        if not found:
            return torch.zeros(count, dtype=torch.float64, device=self._like.device)
        return found[0] if len(found) == 1 else torch.stack(found).sum(dim=0)

    def leave_out(self, lost: Tensor) -> None:
        """Put zeros in the place of the gradients of the samples that are ``lost`` (B,)."""
        if self._written is not None:
            self._written = self._written.without(lost)
        self._others = [Placed(where, part.without(lost)) for where, part in self._others]

    def sum(self, weights: Tensor) -> Tensor:
        """Return the sum of ``weights`` (B,), float64, times the gradients, (d,)."""
        sums = [(where, part.sum(weights)) for where, part in self._others]
        if self._written is not None:
            widths = [where.stop - where.start for where in self._places]
            sums += zip(self._places, self._written.sum(weights).split(widths))
        pieces, end = [], 0
        for where, piece in sorted(sums, key=lambda each: each[0].start):
            if where.start > end:
                pieces.append(weights.new_zeros(where.start - end))
            pieces.append(piece)
            end = where.stop
        if end < len(self._like):
            pieces.append(weights.new_zeros(len(self._like) - end))
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces)

    def clipped(
        self, losses: Tensor, clipping: Clipping | None, times: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return the sum of the (clipped) gradients, and how many were cut.

        Parameters
        ----------
        losses : Tensor of shape (B,)
            Float64.
        clipping : Clipping or None
        times : Tensor of shape (B,), or None
            How often each counts; once by default.

        Returns
        -------
        tuple of Tensor
            Shapes (d,) and (). A sample with a loss, a norm or a weight that is not finite adds
            exactly nothing.
        """
        norms = self.squares(len(losses)).sqrt()
        factors = torch.ones_like(losses)
        looked_at = [losses, norms]
        if clipping is not None:
            factors = kept_weights(clipping, norms, losses)
            looked_at.append(factors)
        # 0 times what is not finite is no number, and so is the sum.
        lost = (torch.stack(looked_at) * 0.0).sum(dim=0) != 0.0
        factors = torch.where(lost, 0.0, factors)
        cut = factors < 1.0
        if times is not None:
            cut = cut & (times > 0.0)
            factors = factors * times
        if losses.device.type != "cpu" or bool(lost.any()):  # no device is asked: that would wait
            self.leave_out(lost)
        return self.sum(factors), cut.sum()
