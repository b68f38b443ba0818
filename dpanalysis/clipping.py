"""Per-sample weights that bound the norm of every sample's gradient.

A rule is a pure function of the samples' gradient norms (and, for some rules, of their
losses), in any array namespace; ``code`` and ``clip_norm`` select the same rule in the
compiled kernels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from array_api_compat import array_namespace

from ._validation import check_number

__all__ = ["Clipping", "Flat", "check_clipping"]

# A hair below 1, so that rounding cannot push weight * norm over the bound.
_BELOW_ONE = 1.0 - 2.0**-50


class Clipping(Protocol):
    """What a problem needs of a clipping rule."""

    code: ClassVar[int]

    @property
    def clip_norm(self) -> float:
        """Bound on the weighted gradient of one sample."""

    def weight(self, norms: Any, losses: Any = None) -> Any:
        """Per-sample multipliers."""


def check_clipping(clipping: Any) -> None:
    """Raise TypeError unless ``clipping`` is a rule, or None for no rule."""
    if clipping is not None and (isinstance(clipping, type) or not hasattr(clipping, "clip_norm")):
        raise TypeError(f"clipping must be a rule such as Flat(1.0) or None, got {clipping!r}")


@dataclass(frozen=True)
class Flat:
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
    code: ClassVar[int] = 1

    def __post_init__(self) -> None:
        clip_norm = check_number("clip_norm", self.clip_norm, low=0.0, low_open=True)
        object.__setattr__(self, "clip_norm", clip_norm)

    def weight(self, norms: Any, losses: Any = None) -> Any:
        """Return the multipliers ``w_i`` with ``w_i * norms_i <= clip_norm``.

        Parameters
        ----------
        norms : array
            L2 norms of the samples' gradients, any shape, non-negative.
        losses : array, optional
            Not used by this rule.

        Returns
        -------
        array
            In (0, 1], the shape of ``norms``; NaN where the norm is NaN.
        """
        xp = array_namespace(norms)
        over = norms > self.clip_norm
        # 1 where nothing is clipped, so that no division by zero happens.
        safe = xp.where(over, norms, xp.ones_like(norms))
        weights = xp.where(over, _BELOW_ONE * self.clip_norm / safe, xp.ones_like(norms))
        return xp.where(xp.isnan(norms), norms, weights)
