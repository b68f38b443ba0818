"""What of the iterates a run gives back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..methods.base import State

__all__ = ["Output"]


class Output:
    """The last iterate, one drawn uniformly from all of them, or their mean.

    Parameters
    ----------
    kind : {"last", "uniform", "average"}
        The start counts as iterate 0. A run that stops early has its last iterate for those
        that it did not come to; the mean is over those that it made.
    iterations : int
        T as planned.
    random : sequence of random sources
        One a replicate, other than those of its noise and its batches; asked for
        ``"uniform"`` only.

    Attributes
    ----------
    w : ndarray of shape (R, d)
        After each :meth:`add`, the output of a run that would end there.
    released : tuple of str
        What the guarantee of the run covers.

    Examples
    --------
    >>> output = Output("average", 2, [None])
    >>> for t, x in enumerate([0.0, 1.0, 5.0]):
    ...     output.add(State(np.array([[x]]), None, t, None))
    >>> output.w
    array([[2.]])
    """

    def __init__(self, kind: str, iterations: int, random: Sequence[Any]) -> None:
        self._kind = kind
        self._made = 0
        if kind == "uniform":
            uniform = np.concatenate([source.random(1) for source in random])
            self._wanted = (uniform * (iterations + 1)).astype(np.int64)
        also = {"uniform": ("iteration drawn",), "average": ("mean of the iterates",)}
        self.released = ("iterates", *also.get(kind, ()))

    def add(self, state: State) -> None:
        """Take in the iterates of the next iteration."""
        self._made = state.iteration
        if self._kind == "last" or state.iteration == 0:
            self.w = state.w
        elif self._kind == "average":
            self.w = self.w + (state.w - self.w) / (state.iteration + 1.0)
        else:
            self.w = np.where((self._wanted >= state.iteration)[:, None], state.w, self.w)

    @property
    def drawn(self) -> np.ndarray | None:
        """The iteration that each row of ``w`` is of, (R,); None unless it was drawn."""
        return np.minimum(self._wanted, self._made) if self._kind == "uniform" else None
