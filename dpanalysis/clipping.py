"""Per-sample weights that bound the norm of every sample's gradient.

A rule is a pure function of one sample's gradient norm and loss, so that a record can
move a sum of weighted gradients by no more than the rule's ``clip_norm`` (twice that
where it is replaced). The rules here work on whole arrays in any namespace; ``code`` and
``parameters`` select the same rule in the compiled kernels.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from array_api_compat import array_namespace

from ._validation import check_number

__all__ = [
    "Automatic",
    "Clipping",
    "Custom",
    "Flat",
    "PerSampleAdaptive",
    "Value",
    "check_clipping",
]

# A hair below 1, so that rounding cannot push weight * norm over the bound.
_BELOW_ONE = 1.0 - 2.0**-50
# What a rule of the user may exceed the bound by when it is checked: rounding.
_ROUNDING = 1e-9


def check_clipping(clipping: Any) -> None:
    """Raise TypeError unless ``clipping`` is a rule, or None for no rule."""
    if clipping is not None and not isinstance(clipping, Clipping):
        raise TypeError(
            "clipping must be a rule such as Flat(1.0), Custom(function, clip_norm) for one of "
            f"your own, or None, got {clipping!r}"
        )


def _check_positive(rule: Any, *names: str) -> None:
    """Replace the fields by floats that are positive and finite, or raise naming them."""
    for name in names:
        value = check_number(name, getattr(rule, name), low=0.0, low_open=True)
        object.__setattr__(rule, name, value)


class Clipping(ABC):
    """A rule: what it wants to weigh a sample by, and the cut that makes it keep its bound.

    Attributes
    ----------
    clip_norm : float
        The bound C > 0 on the L2 norm of one sample's weighted gradient.
    code : int or None
        The rule's number in the compiled kernels; None where it has no compiled twin.
    needs_losses : bool
        Whether the weights depend on the samples' losses.
    """

    clip_norm: float
    code: ClassVar[int | None] = None
    needs_losses: ClassVar[bool] = False

    @property
    def parameters(self) -> tuple[float, float, float, float]:
        """What the compiled formula needs: ``clip_norm`` and up to three numbers more."""
        return self.clip_norm, 0.0, 0.0, 0.0

    @property
    def largest_weight(self) -> float:
        """Largest weight of any sample; more than 1 where a rule lifts small gradients."""
        return 1.0

    @abstractmethod
    def _wanted(self, norms: Any, losses: Any) -> Any:
        """Return the weights by the rule's formula, before rounding is cut off."""

    def check(self, loss: Any, radius: float) -> None:  # noqa: B027
        """Raise ValueError unless the bound holds for every record; here it always does.

        Parameters
        ----------
        loss : Loss
            Of :mod:`dpanalysis.losses`.
        radius : float
            Public bound on the rows' L2 norm; inf where there is none.
        """

    def weight(self, norms: Any, losses: Any = None) -> Any:
        """Return the multipliers ``w_i`` with ``w_i * norms_i <= clip_norm``.

        Parameters
        ----------
        norms : array
            L2 norms of the samples' gradients, any shape, non-negative.
        losses : array, optional
            The samples' losses, the shape of ``norms``; :class:`Value` and
            :class:`Custom` need them.

        Returns
        -------
        array
            Float64, the shape of ``norms``, >= 0: the rule's formula, cut down to
            ``clip_norm / norm`` where it is more. NaN where the norm is NaN.

        Raises
        ------
        ValueError
            If the rule needs losses and none are given.
        """
        if losses is None and self.needs_losses:
            raise ValueError(f"losses must be given to {self!r}, got None")
        xp = array_namespace(norms)
        norms = xp.astype(norms, xp.float64, copy=False)
        with np.errstate(all="ignore"):  # 0/0 and inf * 0 are provided for
            weights = self._wanted(norms, losses)
            over = weights * norms > self.clip_norm
            cut = _BELOW_ONE * self.clip_norm / xp.where(over, norms, xp.ones_like(norms))
            weights = xp.where(over, cut, weights)
            # Still over where the quotient is subnormal: nothing is left of such a sample.
            weights = xp.where(weights * norms > self.clip_norm, xp.zeros_like(norms), weights)
        return xp.where(xp.isnan(norms), norms, weights)


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
    code: ClassVar[int] = 1

    def __post_init__(self) -> None:
        _check_positive(self, "clip_norm")

    def _wanted(self, norms: Any, losses: Any) -> Any:
        return array_namespace(norms).ones_like(norms)


@dataclass(frozen=True)
class _Smooth(Clipping):
    """A rule with a parameter r that weighs every gradient, not only the large ones."""

    r: float
    clip_norm: float = 1.0

    def __post_init__(self) -> None:
        _check_positive(self, "r", "clip_norm")
        if not math.isfinite(self.largest_weight):
            raise ValueError(
                f"clip_norm / r must be representable, got clip_norm = {self.clip_norm!r} and "
                f"r = {self.r!r}"
            )

    @property
    def parameters(self) -> tuple[float, float, float, float]:
        """The clip norm and r."""
        return self.clip_norm, self.r, 0.0, 0.0


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

    code: ClassVar[int] = 2

    @property
    def largest_weight(self) -> float:
        """The weight C/r of a vanishing gradient."""
        return self.clip_norm / self.r

    def _wanted(self, norms: Any, losses: Any) -> Any:
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

    code: ClassVar[int] = 3

    @property
    def largest_weight(self) -> float:
        """The weight at the peak."""
        return self.clip_norm / (2.0 * math.sqrt(self.r) - self.r if self.r < 1.0 else 1.0)

    def _wanted(self, norms: Any, losses: Any) -> Any:
        return self.clip_norm / (norms + self.r / (norms + self.r))


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
    beta1, beta2 : float
        Constants of the weak growth condition, >= 0 and not both 0; for a problem with
        rows up to R they are ``loss.weak_growth(R)``.
    lower_bound : float
        Lower bound of every sample's loss.

    Raises
    ------
    ValueError
        If an argument is outside its range.

    References
    ----------
    Paper 004, Algorithm 3, with the per-sample loss in line 4.

    Examples
    --------
    >>> import numpy as np
    >>> from dpanalysis import losses
    >>> rule = Value(1.0, *losses.SquaredError().weak_growth(1.0))
    >>> rule
    Value(clip_norm=1.0, beta1=2.0, beta2=0.0, lower_bound=0.0)
    >>> rule.weight(np.array([0.4, 0.1]), losses=np.array([0.1, 8.0]))
    array([1.  , 0.25])
    """

    clip_norm: float
    beta1: float
    beta2: float = 0.0
    lower_bound: float = 0.0
    code: ClassVar[int] = 4
    needs_losses: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_positive(self, "clip_norm")
        for name, low in (("beta1", 0.0), ("beta2", 0.0), ("lower_bound", -math.inf)):
            object.__setattr__(self, name, check_number(name, getattr(self, name), low=low))
        if self.beta1 == self.beta2 == 0.0:
            raise ValueError("beta1 and beta2 must not both be 0: no gradient would be clipped")

    @property
    def parameters(self) -> tuple[float, float, float, float]:
        """The clip norm, beta1, beta2 and the lower bound."""
        return self.clip_norm, self.beta1, self.beta2, self.lower_bound

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
                return self._wanted(None, losses)
        return super().weight(norms, losses)

    def _wanted(self, norms: Any, losses: Any) -> Any:
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


@dataclass(frozen=True)
class Custom(Clipping):
    """A rule of one's own: any function of one sample's gradient norm and loss.

    Its bound is checked here on a wide grid of norms and losses, and the guarantee does
    not rest on that: whatever the function returns is cut to ``clip_norm / norm``, and
    what is negative, infinite or NaN, or an exception, counts as a weight of 0 (an error
    that one record alone brings about would tell that it is there). The function is
    called with two numbers at a time, so that it cannot make the weight of one sample
    depend on the others; that costs about a microsecond a sample.

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
        _check_positive(self, "clip_norm")
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

    def _wanted(self, norms: Any, losses: Any) -> Any:
        xp = array_namespace(norms)
        pairs = (
            np.asarray(each.get() if hasattr(each, "get") else each) for each in (norms, losses)
        )
        flat = zip(*(pair.ravel() for pair in pairs))
        weights = np.array([self._weight(*pair) for pair in flat], dtype=np.float64)
        return xp.reshape(xp.asarray(weights, device=norms.device), norms.shape)
