"""The rule that looks at the loss instead of the gradient's norm."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from array_api_compat import array_namespace

from .._validation import keep_numbers
from .base import Clipping

__all__ = ["Value"]

_LARGEST, _SMALLEST = float(np.finfo(float).max), float(np.finfo(float).tiny)


@dataclass(frozen=True)
class Value(Clipping):
    r"""Value clipping: the loss stands in for the norm of the gradient.

    Where every sample satisfies the weak growth condition
    :math:`\|\nabla f_i\|^2 \le \beta_1 (f_i - \underline f) + \beta_2`, the weights

    .. math:: \min\bigl(1,\; C/\sqrt{\beta_1 (f_i - \underline f) + \beta_2}\bigr)

    bound the gradients by C without a look at their norms. The loss is that of the sample
    itself: with the mean loss, as the paper prints it, the bound is false. The condition
    must hold for every record that may occur, so a problem refuses the rule unless its
    loss and its public row bound imply it (see :meth:`check`); where the norms are known
    the weight is cut to C/norm all the same.

    Parameters
    ----------
    clip_norm : float
        The bound C > 0 on the L2 norm of one sample's weighted gradient.
    beta1 : float, optional
        Of the weak growth condition. By default the problem's own constants at the present
        iterate, which is public: ``problem.weak_growth(w)``. Of a linear predictor with rows up
        to R they are ``loss.weak_growth(R)``; those of a network grow with its weights.
    beta2 : float
        Of the weak growth condition; beta1 and beta2 are >= 0 and not both 0.
    lower_bound : float
        Lower bound of every sample's loss. Without a ``beta1`` it is 0, and so is ``beta2``.

    Raises
    ------
    ValueError
        If an argument is outside its range.

    References
    ----------
    Fang et al. (2023), Algorithm 3, with the per-sample loss in line 4.

    Examples
    --------
    >>> import numpy as np
    >>> from dpanalysis import losses
    >>> Value(1.0).at(*losses.SquaredError().weak_growth(1.0))
    Value(clip_norm=1.0, beta1=2.0, beta2=0.0, lower_bound=0.0)
    >>> Value(1.0, 2.0).weight(np.array([0.4, 0.1]), losses=np.array([0.1, 8.0]))
    array([1.  , 0.25])
    """

    clip_norm: float
    beta1: float | None = None
    beta2: float = 0.0
    lower_bound: float = 0.0
    needs_losses: ClassVar[bool] = True

    def __post_init__(self) -> None:
        keep_numbers(self, "clip_norm", low=0.0, low_open=True)
        keep_numbers(self, *(() if self.beta1 is None else ("beta1",)), "beta2", low=0.0)
        keep_numbers(self, "lower_bound")
        if self.beta1 is None and (self.beta2 or self.lower_bound):
            raise ValueError(
                f"beta2 = {self.beta2!r} and lower_bound = {self.lower_bound!r} must be 0 without "
                "a beta1: the problem's own constants stand for all three"
            )
        if self.beta1 == self.beta2 == 0.0:
            raise ValueError("beta1 and beta2 must not both be 0: no gradient would be clipped")

    def at(self, beta1: float, beta2: float = 0.0) -> Value:
        """Return the rule with these constants, those of a problem at one iterate.

        What is beyond the numbers counts as the largest one, and 0 for both (then every gradient
        is 0) as the smallest.
        """
        beta1 = beta1 if beta1 <= _LARGEST else _LARGEST
        return replace(self, beta1=max(beta1, 0.0 if beta2 else _SMALLEST), beta2=beta2)

    def weight(self, norms: Any, losses: Any = None) -> Any:
        """Return the multipliers ``w_i`` with ``w_i * norms_i <= clip_norm``.

        Parameters
        ----------
        norms : array or None
            L2 norms of the samples' gradients, any shape, non-negative. None where they
            are not known: then the bound rests on the weak growth condition alone.
        losses : array
            The samples' losses, the shape of ``norms``.

        Returns
        -------
        array
            Float64, in [0, 1]. 0 where the loss is infinite, NaN where the norm or the
            loss is NaN.

        Raises
        ------
        ValueError
            If ``losses`` are not given.
        """
        if norms is None and losses is not None:
            with np.errstate(all="ignore"):
                return self.wanted(None, losses)
        return super().weight(norms, losses)

    def wanted(self, norms: Any, losses: Any) -> Any:
        """Return the weights by the losses alone."""
        if self.beta1 is None:
            raise ValueError(
                f"beta1 must be given to {self!r} where no problem gives it: at(beta1, beta2) of "
                "problem.weak_growth(w)"
            )
        xp = array_namespace(losses)
        losses = xp.astype(losses, xp.float64, copy=False)
        excess = losses - self.lower_bound
        excess = xp.where(excess < 0.0, xp.zeros_like(excess), excess)
        size = xp.sqrt(self.beta1 * excess + self.beta2)
        weights = xp.where(size <= self.clip_norm, xp.ones_like(size), self.clip_norm / size)
        return xp.where(losses == math.inf, xp.zeros_like(size), weights)

    def check(self, loss: Any, radius: float) -> None:
        """Raise ValueError unless weak growth holds for every record that may occur.

        Parameters
        ----------
        loss : Loss
            Of :mod:`dpanalysis.losses`.
        radius : float
            Public bound on the rows' L2 norm; inf where there is none.

        Examples
        --------
        >>> from dpanalysis import losses
        >>> Value(1.0, beta1=0.5).check(losses.Logistic(), 1.0)
        >>> Value(1.0, beta1=0.4).check(losses.Logistic(), 1.0)
        Traceback (most recent call last):
            ...
        ValueError: beta1 = 0.4 with beta2 = 0.0 and lower_bound = 0.0 does not bound the...
        """
        if not math.isfinite(radius):
            raise ValueError(
                "value clipping needs a public bound on the rows, since no beta1 is large enough "
                f"for every row (beta1 = {self.beta1!r}): give the problem a row_bound, or clip "
                "by a rule that needs none, such as Flat(clip_norm)"
            )
        if self.beta1 is None:
            loss.weak_growth(radius)  # raises where the loss has no such constants
            return
        # beta1 (f - lower_bound) + beta2 = beta1 f + rest, and the losses' infimum is 0.
        rest = self.beta2 - self.beta1 * self.lower_bound
        least = loss.weak_growth(radius, self.beta1)[1]
        if rest >= least:
            return
        beta1, beta2 = loss.weak_growth(radius)
        raise ValueError(
            f"beta1 = {self.beta1!r} with beta2 = {self.beta2!r} and lower_bound = "
            f"{self.lower_bound!r} does not bound the gradient of every record that {loss!r} may "
            f"meet in rows of L2 norm up to {radius:g}: beta1 must be at least {beta1!r} (with "
            f"beta2 - beta1 * lower_bound >= {beta2!r}), or beta2 - beta1 * lower_bound at least "
            f"{least!r} (with this beta1)"
        )
