"""The output of a run: its last iterate, one drawn from all of them, or their mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

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
        What the guarantee of the run covers besides what its method releases.

    Examples
    --------
    >>> output = Output("average", 2, [None])
    >>> for t, x in enumerate([0.0, 1.0, 5.0]):
    ...     output.add(t, np.array([[x]]))
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
        self.released = also.get(kind, ())

    def add(self, iteration: int, w: np.ndarray) -> None:
        """Take in the iterates (R, d) of the next iteration."""
        self._made = iteration
        if self._kind == "last" or iteration == 0:
            self.w = w
        elif self._kind == "average":
            self.w = self.w + (w - self.w) / (iteration + 1.0)
        else:
            self.w = np.where((self._wanted >= iteration)[:, None], w, self.w)

    @property
    def drawn(self) -> np.ndarray | None:
        """The iteration that each row of ``w`` is of, (R,); None unless it was drawn."""
        return np.minimum(self._wanted, self._made) if self._kind == "uniform" else None
