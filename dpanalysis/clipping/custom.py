"""A rule of one's own."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from array_api_compat import array_namespace

from .._devices import to_host
from .._validation import keep_numbers
from .base import Clipping

__all__ = ["Custom"]

# What a rule of the user may exceed the bound by when it is checked: rounding.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Custom(Clipping):
    """A rule of one's own: any function of one sample's gradient norm and loss.

    Its bound is checked here on a wide grid of norms and losses, and the guarantee does
    not rest on that: whatever the function returns is cut to ``clip_norm / norm``, and
    what is negative, infinite or NaN, or an exception, counts as a weight of 0 (an error
    that one record alone brings about would tell that it is there). The function is
    called with two numbers at a time, so that it cannot make the weight of one sample
    depend on the others; that costs about a microsecond a sample, which
    :func:`~dpanalysis.clipping.compiled` saves.

    Parameters
    ----------
    function : callable
        ``function(norm, loss) -> weight`` of floats >= 0; pure, the weight finite and >= 0.
    clip_norm : float
        The bound C > 0 on the L2 norm of one sample's weighted gradient.

    Raises
    ------
    TypeError
        If ``function`` is not callable.
    ValueError
        If ``clip_norm`` is not positive and finite, or the function fails, is negative or
        not finite, or exceeds the bound on the grid; the message names norm and loss.

    Examples
    --------
    >>> import numpy as np
    >>> tanh = Custom(lambda norm, loss: np.tanh(norm) / norm if norm > 1e-9 else 1.0, 1.0)
    >>> tanh.weight(np.array([0.0, 1.0, 8.0]), losses=np.zeros(3))
    array([1.    , 0.7616, 0.1250])
    >>> Custom(lambda norm, loss: 1.0 / (norm + loss + 1.0), clip_norm=0.5)
    Traceback (most recent call last):
        ...
    ValueError: function must keep weight * norm <= clip_norm = 0.5: at norm = 1e+300 and...
    """

    function: Callable[[float, float], float]
    clip_norm: float
    needs_losses: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise TypeError(f"function must be callable, got {self.function!r}")
        keep_numbers(self, "clip_norm", low=0.0, low_open=True)
        near = np.array([1e-3, 0.1, 0.5, 0.9, 0.999, 1.0, 1.001, 1.1, 2.0, 10.0, 1e3])
        norms = np.concatenate(
            [[0.0], 10.0 ** np.arange(-300.0, 301.0, 10.0), self.clip_norm * near]
        )
        losses = np.concatenate([[0.0], 10.0 ** np.arange(-12.0, 13.0, 2.0), [1e300]])
        with np.errstate(all="ignore"):
            tried = [(self._tried(n, f) * n, n, f) for n in norms for f in losses]
        size, norm, loss = max(tried)
        if size > self.clip_norm * (1.0 + _ROUNDING):
            raise ValueError(
                f"function must keep weight * norm <= clip_norm = {self.clip_norm!r}: at norm = "
                f"{norm:g} and loss = {loss:g} the weighted norm is {size:g}"
            )

    def _tried(self, norm: float, loss: float) -> float:
        """Return a weight of the grid, or raise naming the place."""
        where = f"at norm = {norm:g} and loss = {loss:g}"
        try:
            weight = float(self.function(norm, loss))
        except Exception as error:
            raise ValueError(f"function failed {where}: {error!r}") from error
        if not 0.0 <= weight < math.inf:
            raise ValueError(f"function must return a finite weight >= 0, got {weight:g} {where}")
        return weight

    def _weight(self, norm: float, loss: float) -> float:
        """Return a weight that counts, whatever the function does."""
        if not (norm < math.inf and loss == loss):
            return 0.0
        try:
            weight = float(self.function(norm, loss))
        except Exception:
            return 0.0
        return weight if 0.0 <= weight < math.inf else 0.0

    @property
    def largest_weight(self) -> float:
        """Unknown, so infinite."""
        return math.inf

    def wanted(self, norms: Any, losses: Any) -> Any:
        """Return what the function gives, one sample at a time."""
        xp = array_namespace(norms)
        # One array, for what is on a device is waited for.
        both = to_host(xp.reshape(xp.stack([norms, losses]), (2, -1)))
        weights = np.array([self._weight(*pair) for pair in zip(*both)], dtype=np.float64)
        return xp.reshape(xp.asarray(weights, device=norms.device), norms.shape)
