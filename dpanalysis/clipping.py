"""Clipping rules: per-sample weights that bound the norm of every sample's gradient.

A rule is a pure function of one sample's gradient norm and loss, so that a record changes a sum of
weighted gradients by at most the rule's ``clip_norm`` (twice that if it is replaced). The rules
work on arrays in any namespace; compiled kernels evaluate the same formulas one sample at a time.
A number outside the range that a docstring states raises ValueError.
"""

from __future__ import annotations

import math
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from array_api_compat import array_namespace

from ._devices import to_host
from ._lazy import on_first_use
from ._user_classes import check_elementwise, memory, outdated, with_attributes
from ._validation import keep_numbers

__all__ = [
    "Automatic",
    "Clipping",
    "Custom",
    "Flat",
    "PerSampleAdaptive",
    "Value",
    "check_clipping",
    "compiled",  # noqa: F822
]


# Rules that passed check_per_sample, by their id and by all that their formulas read.
_tried: weakref.WeakValueDictionary[Any, Clipping] = weakref.WeakValueDictionary()

# Slightly below 1, so that rounding cannot push weight * norm over the bound.
_BELOW_ONE = 1.0 - 2.0**-50


def check_clipping(clipping: Any) -> None:
    """Raise TypeError unless ``clipping`` is a rule, or None for no rule."""
    if clipping is not None and not isinstance(clipping, Clipping):
        raise TypeError(
            "clipping must be a rule such as Flat(1.0) or Custom(function, clip_norm), or None, "
            f"got {clipping!r}"
        )


def check_per_sample(rule: Clipping | None) -> None:
    """Raise ValueError if a user's rule mixes or stores samples; see the check of losses."""
    if rule is None or type(rule) in BUILT_IN:
        return
    key = id(rule), memory(rule)
    if _tried.get(key) is rule:
        return
    random = np.random.default_rng(0)
    near = rule.clip_norm * np.abs(random.standard_cauchy((500, 3)))
    norms = np.concatenate([near, 10.0 ** random.uniform(-9.0, 9.0, (100, 3))])
    losses = 10.0 ** random.uniform(-9.0, 9.0, norms.shape)
    # Value clipping without its own constants takes them from a problem.
    one: Any = rule.at(1.0, 0.1) if getattr(rule, "beta1", 0.0) is None else rule  # type: ignore[attr-defined]
    check_elementwise(one, "weight", norms, losses)
    with suppress(TypeError):  # a class without weak references is checked again
        _tried[key] = rule


class Clipping(ABC):
    """A clipping rule: a formula for a sample's weight, limited so that its bound holds.

    To define a rule, extend this class with ``clip_norm`` and :meth:`wanted`; :class:`Custom` makes
    a rule from a function of two numbers. The formula runs as array code, even if the class extends
    a built-in rule; :func:`~dpanalysis.clipping.compiled` makes it as fast as the built-in ones.
    The sums limit every weight to ``clip_norm / norm`` and to ``largest_weight``, the bounds used
    for calibration, whatever the methods return. Neither may change during a run. A test before a
    private run checks that a weight depends on one sample only (:func:`check_per_sample`).

    Attributes
    ----------
    clip_norm : float
        The bound C > 0 on the L2 norm of one sample's weighted gradient.
    largest_weight : float
        Largest weight of any sample, 1 by default; inf for a class that overrides the formula of
        a built-in rule, unless it states one.
    needs_losses : bool
        Whether the weights depend on the samples' losses.

    Examples
    --------
    >>> import numpy as np
    >>> from dpanalysis import clipping
    >>> class Root(clipping.Clipping):
    ...     clip_norm = 2.0
    ...     def wanted(self, norms, losses):
    ...         return 1.0 / np.sqrt(1.0 + norms)
    >>> Root().weight(np.array([0.0, 3.0, 99.0]))
    array([1.    , 0.5   , 0.0202])
    """

    clip_norm: float
    needs_losses: ClassVar[bool] = False

    def __repr__(self) -> str:
        return with_attributes(self)

    def __init_subclass__(cls, **options: Any) -> None:
        """Reset the largest weight of an overridden formula to inf; ``clip_norm`` still bounds."""
        super().__init_subclass__(**options)
        for name in outdated(cls, ("largest_weight",), Clipping):
            setattr(cls, name, math.inf)

    @property
    def largest_weight(self) -> float:
        """Largest weight of any sample; above 1 if a rule enlarges small gradients."""
        return 1.0

    @abstractmethod
    def wanted(self, norms: Any, losses: Any) -> Any:
        """Return the weights by the rule's formula, before they are limited.

        ``norms`` are float64, >= 0; ``losses`` are passed if ``needs_losses``. Each weight must be
        a function of that sample's numbers only.
        """

    def check(self, loss: Any, radius: float) -> None:  # noqa: B027
        """Raise ValueError unless the bound holds for every record; by default it does.

        ``loss`` is one of :mod:`dpanalysis.losses`, and ``radius`` is the public bound on the rows'
        L2 norm, or inf.
        """

    def weight(self, norms: Any, losses: Any = None) -> Any:
        """Return the multipliers ``w_i`` with ``w_i * norms_i <= clip_norm``.

        Parameters
        ----------
        norms : array
            L2 norms of the samples' gradients, any shape, non-negative.
        losses : array, optional
            Losses, the shape of ``norms``; required by :class:`Value` and :class:`Custom`.

        Returns
        -------
        array
            Float64, the shape of ``norms``, >= 0: the rule's formula, limited to
            ``clip_norm / norm``. NaN where the norm is NaN.
        """
        if losses is None and self.needs_losses:
            raise ValueError(f"losses must be given to {self!r}, got None")
        xp = array_namespace(norms)
        norms = xp.astype(norms, xp.float64, copy=False)
        with np.errstate(all="ignore"):  # 0/0 and inf * 0 are handled
            weights = self.wanted(norms, losses)
            over = weights * norms > self.clip_norm
            cut = _BELOW_ONE * self.clip_norm / xp.where(over, norms, xp.ones_like(norms))
            weights = xp.where(over, cut, weights)
            # If the product is still too large, the quotient is subnormal: count the sample as 0.
            weights = xp.where(weights * norms > self.clip_norm, xp.zeros_like(norms), weights)
        return xp.where(xp.isnan(norms), norms, weights)


@dataclass(frozen=True)
class Flat(Clipping):
    r"""Scale a gradient down to the clip norm: :math:`\min(1, C/\|g\|_2)`.

    Parameters
    ----------
    clip_norm : float
        The bound C > 0 on the L2 norm of one sample's gradient.

    References
    ----------
    Fang et al. (2023), Algorithm 1, line 5.

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
    """Base class of rules with a parameter r whose weight is smooth in the norm."""

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

    Nearly normalizes gradients that are large relative to r, and enlarges small ones by a factor
    of up to :math:`C/r`. The weighted norm is below C and increases with :math:`\|g\|`.

    Parameters
    ----------
    r : float
        Stabilizer r > 0.
    clip_norm : float
        The bound C > 0 on the L2 norm of one sample's weighted gradient.

    References
    ----------
    Bu et al., *Automatic clipping*, the baseline of Xia et al. (2023).

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

    Nearly normalizes large gradients, as :class:`Automatic` does with the same parameters (r <= 1
    in the paper), but gives vanishing gradients a weight near C. The weight is not monotone: for
    r <= 1 its maximum is :math:`C/(2\sqrt r - r)`, at :math:`\|g\| = \sqrt r - r`; for r > 1 it
    decreases from C at zero. The weighted norm is below C and increases with :math:`\|g\|`.

    References
    ----------
    Xia et al. (2023), Algorithm 1, line 5.

    Examples
    --------
    >>> import numpy as np
    >>> PerSampleAdaptive(0.25).weight(np.array([0.0, 0.25, 4.0]))
    array([1.    , 1.3333, 0.2464])
    """

    @property
    def largest_weight(self) -> float:
        """The maximum of the weight."""
        return self.clip_norm / (2.0 * math.sqrt(self.r) - self.r if self.r < 1.0 else 1.0)

    def wanted(self, norms: Any, losses: Any) -> Any:
        """Return the weights by the formula of the class."""
        return self.clip_norm / (norms + self.r / (norms + self.r))


_LARGEST, _SMALLEST = float(np.finfo(float).max), float(np.finfo(float).tiny)


@dataclass(frozen=True)
class Value(Clipping):
    r"""Value clipping: weights computed from the loss instead of the gradient norm.

    If every sample satisfies the weak growth condition
    :math:`\|\nabla f_i\|^2 \le \beta_1 (f_i - \underline f) + \beta_2`, the weights

    .. math:: \min\bigl(1,\; C/\sqrt{\beta_1 (f_i - \underline f) + \beta_2}\bigr)

    bound the gradients by C without computing their norms. They use the sample's own loss: with
    the mean loss, as printed in the paper, the bound is false. The condition must hold for every
    record that may occur, so a problem raises unless its loss and its public row bound imply it
    (see :meth:`check`). If the norms are known, the weight is also limited to C/norm.

    Parameters
    ----------
    clip_norm : float
        The bound C > 0 on the L2 norm of one sample's weighted gradient.
    beta1 : float, optional
        Constant of the weak growth condition. By default ``problem.weak_growth(w)`` at the current
        iterate, which is public. For a linear predictor with row norms up to R that is
        ``loss.weak_growth(R)``; for a network it grows with the weights.
    beta2 : float
        Constant of the weak growth condition; beta1 and beta2 are >= 0 and not both 0.
    lower_bound : float
        Lower bound of every sample's loss. Without ``beta1``, it and ``beta2`` must be 0.

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
                "a beta1: the problem gives all three constants"
            )
        if self.beta1 == self.beta2 == 0.0:
            raise ValueError("beta1 and beta2 must not both be 0: no gradient would be clipped")

    def at(self, beta1: float, beta2: float = 0.0) -> Value:
        """Return the rule with the constants of a problem at one iterate.

        An infinite beta1 becomes the largest float; if both are 0 (then every gradient is 0),
        beta1 becomes the smallest normal one.
        """
        beta1 = beta1 if beta1 <= _LARGEST else _LARGEST
        return replace(self, beta1=max(beta1, 0.0 if beta2 else _SMALLEST), beta2=beta2)

    def weight(self, norms: Any, losses: Any = None) -> Any:
        """Return the multipliers ``w_i`` with ``w_i * norms_i <= clip_norm``, in [0, 1].

        As :meth:`Clipping.weight`, but ``norms`` may be None if unknown: then the bound depends on
        the weak growth condition. 0 where the loss is infinite, NaN where norm or loss is.
        """
        if norms is None and losses is not None:
            with np.errstate(all="ignore"):
                return self.wanted(None, losses)
        return super().weight(norms, losses)

    def wanted(self, norms: Any, losses: Any) -> Any:
        """Return the weights from the losses only."""
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
            loss.weak_growth(radius)  # raises if the loss has no constants of weak growth
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


_ROUNDING = 1e-9  # tolerance of the check of a custom rule's bound


@dataclass(frozen=True)
class Custom(Clipping):
    """A user-defined rule: any function of one sample's gradient norm and loss.

    The constructor checks the bound on a wide grid of norms and losses, but the guarantee does not
    depend on that: every weight is limited to ``clip_norm / norm``, and a negative, infinite or NaN
    weight, or an exception, counts as 0 (an error caused by one record would reveal it). The
    function is called for one sample at a time, so that its weight cannot depend on the others;
    that takes about a microsecond per sample, which :func:`~dpanalysis.clipping.compiled` avoids.

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
        If ``clip_norm`` is not positive and finite, or the function raises, is negative or
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
        """Return a weight on the grid, or raise naming norm and loss."""
        where = f"at norm = {norm:g} and loss = {loss:g}"
        try:
            weight = float(self.function(norm, loss))
        except Exception as error:
            raise ValueError(f"function failed {where}: {error!r}") from error
        if not 0.0 <= weight < math.inf:
            raise ValueError(f"function must return a finite weight >= 0, got {weight:g} {where}")
        return weight

    def _weight(self, norm: float, loss: float) -> float:
        """Return the weight, 0 if the function raises or returns an invalid one."""
        if not (norm < math.inf and loss == loss):
            return 0.0
        try:
            weight = float(self.function(norm, loss))
        except Exception:
            return 0.0
        return weight if 0.0 <= weight < math.inf else 0.0

    @property
    def largest_weight(self) -> float:
        """Infinite, since no bound is known."""
        return math.inf

    def wanted(self, norms: Any, losses: Any) -> Any:
        """Return the function's weights, one sample at a time."""
        xp = array_namespace(norms)
        # Transferred as one array, so that the host waits for the device once.
        both = to_host(xp.reshape(xp.stack([norms, losses]), (2, -1)))
        weights = np.array([self._weight(*pair) for pair in zip(*both)], dtype=np.float64)
        return xp.reshape(xp.asarray(weights, device=norms.device), norms.shape)


BUILT_IN = (Flat, Automatic, PerSampleAdaptive, Value)

# Imported lazily, since kernels import this module.
__getattr__, __dir__ = on_first_use(__name__, {".kernels.kernel_table:compile_rule": "compiled"})
