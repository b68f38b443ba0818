"""Rows of the data, opened and checked once, in memory or out of core."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...losses import Loss
from ..row_bound import RowBound
from .checks import prepare, row_scale
from .mapped import Blocks, mapping
from .memory import InMemoryRows


def open_rows(X: Any, y: Any, loss: Loss, bounds: Sequence[RowBound]) -> Any:
    """Return the checked data of an :class:`~dpanalysis.problems.ERM`, in memory or in chunks."""
    if type(X).__module__.partition(".")[0] == "dask":
        from .dask import DaskChunks

        return DaskChunks(X, y, loss, bounds)
    if mapping(X) is not None:
        return Blocks.mapped(X, y, loss, bounds)
    X, y = prepare(X, y, loss.classification)
    return InMemoryRows(X, y, loss, row_scale(X, bounds), bounds=bounds)
