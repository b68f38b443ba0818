"""What every rule has: the cut that makes it keep its bound."""

from __future__ import annotations

import math
import weakref
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Any, ClassVar

import numpy as np
from array_api_compat import array_namespace

from .._elementwise import check_elementwise
from .._inheritance import outdated

__all__ = ["Clipping", "check_clipping", "check_per_sample"]

_BUILT_IN = (f"{__package__}.by_norm", f"{__package__}.by_value")
# Rules that were tried, by their number, as long as they live.
_tried: weakref.WeakValueDictionary[int, Clipping] = weakref.WeakValueDictionary()

# A hair below 1, so that rounding cannot push weight * norm over the bound.
_BELOW_ONE = 1.0 - 2.0**-50


def check_clipping(clipping: Any) -> None:
    """Raise TypeError unless ``clipping`` is a rule, or None for no rule."""
    if clipping is not None and not isinstance(clipping, Clipping):
        raise TypeError(
            "clipping must be a rule such as Flat(1.0), Custom(function, clip_norm) for one of "
            f"your own, or None, got {clipping!r}"
        )


def check_per_sample(rule: Clipping | None) -> None:
    """Raise ValueError where the formula of a user's rule mixes samples or remembers them.

    As :func:`dpanalysis.losses.base.check_per_sample`: a median of norms, a quantile or a running
    average would let one record move the weights of all others. The oracle asks before anything
    is spent; a rule is tried once.

    Parameters
    ----------
    rule : Clipping or None

    Examples
    --------
    >>> from dpanalysis import clipping
    >>> class Median(clipping.Clipping):
    ...     clip_norm = 1.0
    ...     def wanted(self, norms, losses):
    ...         return 1.0 / (norms + np.median(norms))
    >>> check_per_sample(Median())
    Traceback (most recent call last):
        ...
    ValueError: Median.weight gives a sample other numbers beside other samples...
    """
    if rule is None or type(rule).__module__ in _BUILT_IN or _tried.get(id(rule)) is rule:
        return
    random = np.random.default_rng(0)
    near = rule.clip_norm * np.abs(random.standard_cauchy((500, 3)))
    norms = np.concatenate([near, 10.0 ** random.uniform(-9.0, 9.0, (100, 3))])
    losses = 10.0 ** random.uniform(-9.0, 9.0, norms.shape)
    # Value clipping may have no constants of its own.
    one: Any = rule.at(1.0, 0.1) if getattr(rule, "beta1", 0.0) is None else rule  # type: ignore[attr-defined]
    check_elementwise(one, "weight", norms, losses)
    with suppress(TypeError):  # a class without weak references is tried again
        _tried[id(rule)] = rule


class Clipping(ABC):
    """A rule: what it wants to weigh a sample by, and the cut that makes it keep its bound.

    A rule of your own is a class that extends this one, with ``clip_norm`` and
    :meth:`wanted`; :class:`Custom` makes one of a function of two numbers. Its formula runs
    as it is written, also where the class extends a built-in rule;
    :func:`~dpanalysis.clipping.compiled` makes it as fast as the built-in ones. The sums cut
    every weight to ``clip_norm / norm`` and to ``largest_weight``, from which the noise is
    computed, whatever the methods return. Both must not change while a run goes on. That a weight
    depends on one sample alone is tried before a private run (:func:`check_per_sample`).

    Attributes
    ----------
    clip_norm : float
        The bound C > 0 on the L2 norm of one sample's weighted gradient.
    largest_weight : float
        Largest weight of any sample, 1 by default. A class that extends a built-in rule and
        overrides its formula does not inherit that rule's, and has inf unless it states one.
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

    def __init_subclass__(cls, **options: Any) -> None:
        """Forget the largest weight of a formula that is overridden: ``clip_norm`` bounds."""
        super().__init_subclass__(**options)
        for name in outdated(cls, ("largest_weight",), Clipping):
            setattr(cls, name, math.inf)

    @property
    def largest_weight(self) -> float:
        """Largest weight of any sample; more than 1 where a rule lifts small gradients."""
        return 1.0

    @abstractmethod
    def wanted(self, norms: Any, losses: Any) -> Any:
        """Return the weights by the rule's formula, before the cut.

        Parameters
        ----------
        norms : array
            L2 norms of the samples' gradients, float64, >= 0.
        losses : array or None
            The samples' losses, the shape of ``norms``; given where ``needs_losses``.

        Returns
        -------
        array
            The shape of ``norms``; each entry a function of that sample's numbers alone.
        """

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
            weights = self.wanted(norms, losses)
            over = weights * norms > self.clip_norm
            cut = _BELOW_ONE * self.clip_norm / xp.where(over, norms, xp.ones_like(norms))
            weights = xp.where(over, cut, weights)
            # Still over where the quotient is subnormal: nothing is left of such a sample.
            weights = xp.where(weights * norms > self.clip_norm, xp.zeros_like(norms), weights)
        return xp.where(xp.isnan(norms), norms, weights)
