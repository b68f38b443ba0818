"""Rules that look at the gradient's norm alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from array_api_compat import array_namespace

from .._validation import keep_numbers
from .base import Clipping

__all__ = ["Automatic", "Flat", "PerSampleAdaptive"]


@dataclass(frozen=True)
class Flat(Clipping):
    r"""Scale a gradient down to the clip norm: :math:`\min(1, C/\|g\|_2)`.

    Parameters
    ----------
    clip_norm : float
        The bound C > 0 on the L2 norm of one sample's gradient.

    Raises
    ------
    ValueError
        If ``clip_norm`` is not positive and finite.

    References
    ----------
    Paper 004, Algorithm 1, line 5.

    Examples
    --------
    >>> import numpy as np
    >>> Flat(2.0).weight(np.array([1.0, 2.0, 8.0]))
    array([1.  , 1.  , 0.25])
    """

    clip_norm: float

    def __post_init__(self) -> None:
        keep_numbers(self, "clip_norm", low=0.0, low_open=True)

    def wanted(self, norms: Any, losses: Any) -> Any:
        """Return the weights by the formula of the class."""
        return array_namespace(norms).ones_like(norms)


@dataclass(frozen=True)
class _Smooth(Clipping):
    """A rule with a parameter r that weighs every gradient, not only the large ones."""

    r: float
    clip_norm: float = 1.0

    def __post_init__(self) -> None:
        keep_numbers(self, "r", "clip_norm", low=0.0, low_open=True)
        if not math.isfinite(self.largest_weight):
            raise ValueError(
                f"clip_norm / r must be representable, got clip_norm = {self.clip_norm!r} and "
                f"r = {self.r!r}"
            )


class Automatic(_Smooth):
    r"""Automatic clipping (Auto-S): :math:`C/(\|g\|_2 + r)`.

    Nearly normalises gradients that are large beside r; a small one is lifted, by up to
    :math:`C/r`. The weighted norm is below C and increases with :math:`\|g\|`.

    Parameters
    ----------
    r : float
        Stabiliser r > 0.
    clip_norm : float
        The bound C > 0 on the L2 norm of one sample's weighted gradient.

    Raises
    ------
    ValueError
        If an argument is not positive and finite.

    References
    ----------
    Bu et al., *Automatic clipping*, the baseline of paper 000.

    Examples
    --------
    >>> import numpy as np
    >>> Automatic(0.5, clip_norm=2.0).weight(np.array([0.0, 0.5, 3.5]))
    array([4. , 2. , 0.5])
    """

    @property
    def largest_weight(self) -> float:
        """The weight C/r of a vanishing gradient."""
        return self.clip_norm / self.r

    def wanted(self, norms: Any, losses: Any) -> Any:
        """Return the weights by the formula of the class."""
        return self.clip_norm / (norms + self.r)


class PerSampleAdaptive(_Smooth):
    r"""Per-sample adaptive clipping (PSAC): :math:`C/(\|g\|_2 + r/(\|g\|_2 + r))`.

    Large gradients are nearly normalised as by :class:`Automatic`, but those that vanish
    keep a weight near C. The weight is not monotone: for r <= 1 it peaks at
    :math:`\|g\| = \sqrt r - r` with :math:`C/(2\sqrt r - r)`; for r > 1 it decreases from
    C at zero. The weighted norm is below C and increases with :math:`\|g\|`.

    Parameters
    ----------
    r : float
        Stabiliser r > 0; the paper has r <= 1.
    clip_norm : float
        The bound C > 0 on the L2 norm of one sample's weighted gradient.

    Raises
    ------
    ValueError
        If an argument is not positive and finite.

    References
    ----------
    Paper 000, Algorithm 1, line 5.

    Examples
    --------
    >>> import numpy as np
    >>> PerSampleAdaptive(0.25).weight(np.array([0.0, 0.25, 4.0]))
    array([1.    , 1.3333, 0.2464])
    """

    @property
    def largest_weight(self) -> float:
        """The weight at the peak."""
        return self.clip_norm / (2.0 * math.sqrt(self.r) - self.r if self.r < 1.0 else 1.0)

    def wanted(self, norms: Any, losses: Any) -> Any:
        """Return the weights by the formula of the class."""
        return self.clip_norm / (norms + self.r / (norms + self.r))
