"""What a loss is: its formulas and its constants."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from .._elementwise import check_elementwise
from .._inheritance import outdated
from .._validation import check_number

__all__ = ["Loss", "check_loss", "check_per_sample", "constants_of"]

# What a derivative may exceed the stated Lipschitz constant by when it is checked: rounding.
_ROUNDING = 1e-9

# What a class says of its formulas, and of no others.
_CONSTANTS = (
    "convex",
    "lipschitz",
    "smoothness",
    "hessian_lipschitz",
    "flat_where_steep",
    "lowest",
    "growth",
    "weak_growth",
    "_remainder",
)


class Loss(ABC):
    r"""A loss of one sample, as a function of the prediction ``z = <x, w>`` and the label ``y``.

    A loss of your own is a class that extends this one, with :meth:`value`,
    :meth:`derivative` and the constants that are finite. Its formulas are written for whole
    arrays (``z`` and ``y`` of shapes that broadcast), without loops and branches, in NumPy or,
    to run on devices too, in the namespace that ``array_api_compat.array_namespace(z)``
    returns. :func:`~dpanalysis.losses.compiled` makes them as fast as the built-in ones. A
    formula is a pure function of its two numbers and of the object's own numbers, which must
    not change once a problem was built with it.

    Everything here is public: nothing may be computed from the data.

    Attributes
    ----------
    classification : bool
        Whether labels must be -1 and +1; False by default: any real numbers.
    convex : bool
        Whether the loss is convex in ``z`` for every label; False by default.
    lipschitz : float
        Largest size of the first derivative; inf, the default, where it is unbounded. The sums
        cut a derivative that is larger, so no gradient goes beyond what the noise is
        computed from.
    smoothness : float
        Lipschitz constant of the first derivative; inf, the default, where it jumps.
    hessian_lipschitz : float
        Lipschitz constant of the second derivative; inf, the default, where it jumps.
    flat_where_steep : bool
        Whether the second derivative is at most :math:`4 M p (1 - p)` wherever the first has size
        p times ``lipschitz``, with M the ``smoothness``: no curvature where the slope is largest.
        False by default. Objective perturbation then needs less noise.
    lowest : float
        Lower bound on the values; -inf, the default, where none is known.
    growth : tuple of float
        Constants ``(beta1, beta2)`` of the weak growth condition for rows of L2 norm 1: see
        :meth:`weak_growth`. By default they follow from the constants above, see there.

    Notes
    -----
    A sample at which a formula fails or gives no finite number adds exactly zero to every
    sum. Of ``smoothness``, ``hessian_lipschitz`` and ``convex`` nothing can be checked while
    sums are computed, and some methods' guarantees rest on them: prove them. That a formula looks
    at one sample alone is tried before a private run, on made-up numbers
    (:func:`~dpanalysis.losses.base.check_per_sample`); compiled formulas see nothing else.

    Constants are not inherited with formulas that a class overrides: a class that extends a
    built-in loss and overrides ``derivative``, say, has the defaults above for all constants that
    it does not state. Its ``lipschitz`` is inf then, and a private run without a clipping rule is
    refused.

    Examples
    --------
    A smooth loss for labels -1 and +1 whose derivative is at most 1/2:

    >>> import numpy as np
    >>> from dpanalysis import ERM, losses
    >>> class Soft(losses.Loss):
    ...     classification = True
    ...     lipschitz, smoothness = 0.5, 0.5
    ...     def value(self, z, y):
    ...         return 0.5 * (np.sqrt(1.0 + (1.0 - y * z) ** 2) - 1.0)
    ...     def derivative(self, z, y):
    ...         gap = 1.0 - y * z
    ...         return -0.5 * y * gap / np.sqrt(1.0 + gap**2)
    >>> problem = ERM(np.array([[1.0], [2.0]]), np.array([1.0, -1.0]), Soft())
    >>> problem.value(np.zeros(1)), problem.gradient(np.zeros(1))
    (0.2071, array([0.1768]))
    """

    __slots__ = ()  # so that a built-in loss cannot be given a formula or a constant by hand

    classification: bool = False
    convex: bool = False
    lipschitz: float = math.inf
    smoothness: float = math.inf
    hessian_lipschitz: float = math.inf
    flat_where_steep: bool = False
    lowest: float = -math.inf

    def __init_subclass__(cls, **options: Any) -> None:
        """Set the constants of overridden formulas to their defaults: nothing is known."""
        super().__init_subclass__(**options)
        for name in outdated(cls, _CONSTANTS, Loss):
            setattr(cls, name, vars(Loss)[name])

    @abstractmethod
    def value(self, z: Any, y: Any) -> Any:
        """Return the loss, the shape of ``z`` broadcast with ``y``."""

    @abstractmethod
    def derivative(self, z: Any, y: Any) -> Any:
        """Return the first derivative in ``z``, the shape of ``z`` broadcast with ``y``."""

    def second_derivative(self, z: Any, y: Any) -> Any:
        """Return the second derivative in ``z``, the shape of ``z`` broadcast with ``y``.

        Raises
        ------
        NotImplementedError
            If the class has none; Hessians and the exact minimiser need it.
        """
        raise NotImplementedError(
            f"{type(self).__name__} has no second_derivative, which Hessians and the exact "
            "minimiser need: add the method to the class"
        )

    @property
    def growth(self) -> tuple[float, float]:
        r"""Return a pair (beta1, beta2) of the weak growth condition, for rows of norm 1.

        By default that which needs no further knowledge. A derivative of size up to G gives
        :math:`(0, G^2)`. An M-smooth function that is bounded below has
        :math:`l'^2 \le 2M(l - \inf l)`: a step of :math:`l'/M` lowers it by at least
        :math:`l'^2/(2M)`.

        Raises
        ------
        ValueError
            If neither constant is finite.
        """
        if math.isfinite(self.lipschitz):
            return 0.0, self.lipschitz**2
        if math.isfinite(self.smoothness):
            return 2.0 * self.smoothness, 0.0
        raise ValueError(
            f"{self!r} has neither a finite lipschitz nor a finite smoothness constant, so no "
            "constants of weak growth are known: give its class a property growth"
        )

    def _remainder(self, beta1: float) -> float:
        """Bound l'^2 - beta1 (l - inf l) for a beta1 below that of ``growth``."""
        return self.lipschitz**2

    def weak_growth(self, row_norm: float, beta1: float | None = None) -> tuple[float, float]:
        """Return ``(beta1, beta2)`` of weak growth for rows of L2 norm up to ``row_norm``.

        They are constants of ``||grad f_i||^2 <= beta1 (f_i - inf f_i) + beta2`` at every
        iterate, for every label and every row up to that norm; of a built-in loss the smallest.

        Parameters
        ----------
        row_norm : float
            Bound on the rows' L2 norm, finite, >= 0.
        beta1 : float, optional
            Ask for the smallest beta2 that goes with this beta1 >= 0. By default the pair
            is the one with the smallest beta2, and then with the smallest beta1.

        Returns
        -------
        beta1, beta2 : float
            beta2 is inf where no number will do.

        References
        ----------
        Fang et al. (2023), Definition 3.1.

        Examples
        --------
        >>> from dpanalysis import losses
        >>> losses.Logistic().weak_growth(1.0)
        (0.40726, 0.0)
        >>> losses.SquaredError().weak_growth(3.0)
        (18.0, 0.0)
        >>> losses.Logistic().weak_growth(1.0, beta1=0.2)
        (0.2, 0.3507)
        """
        row_norm = check_number("row_norm", row_norm, low=0.0)
        square = row_norm * row_norm
        # Zero stays zero, also where the square overflows.
        least, rest = (k * square if k else 0.0 for k in self.growth)
        if beta1 is None:
            return least, rest
        beta1 = check_number("beta1", beta1, low=0.0)
        return beta1, rest if beta1 >= least else square * self._remainder(beta1 / square)


def check_loss(loss: Any) -> None:
    """Raise unless ``loss`` is a loss whose formulas run and keep its Lipschitz constant.

    The formulas are tried on a small grid of predictions and labels.

    Parameters
    ----------
    loss : object

    Raises
    ------
    TypeError
        If it is not an object of a class that extends :class:`Loss`.
    ValueError
        If a constant is no number >= 0, a formula is set on the object and not on its class,
        fails or returns another shape, or a derivative on the grid is larger than ``lipschitz``;
        the message names the class.

    Examples
    --------
    >>> from dpanalysis import losses
    >>> losses.check_loss(losses.Logistic())
    >>> losses.check_loss("logistic")
    Traceback (most recent call last):
        ...
    TypeError: loss must be an object of dpanalysis.losses or of a class of your own that...
    """
    if not isinstance(loss, Loss):
        raise TypeError(
            "loss must be an object of dpanalysis.losses or of a class of your own that extends "
            f"dpanalysis.losses.Loss, got {loss!r}"
        )
    name = type(loss).__name__
    for constant in ("lipschitz", "smoothness", "hessian_lipschitz"):
        check_number(f"{name}.{constant}", getattr(loss, constant), low=0.0, finite=False)
    for formula in ("value", "derivative", "second_derivative"):
        if formula in getattr(loss, "__dict__", {}):
            raise ValueError(
                f"{name}.{formula} must be a method of its class, which states the constants of "
                "its formulas; it is set on the object"
            )
    z, y = grid(loss)
    for formula in ("value", "derivative"):
        found = evaluated(loss, formula, z, y)
        if found.shape != z.shape:
            raise ValueError(
                f"{name}.{formula} must return an array of the shape {z.shape} that z and y have, "
                f"got {found.shape}"
            )
        if formula == "value" and np.any(found < loss.lowest):
            k = int(np.nanargmin(found))
            raise ValueError(
                f"{name}.lowest is {loss.lowest!r}, but its value at z = {z[k]:g}, y = {y[k]:g} "
                f"is {found[k]:g}"
            )
    k = int(np.nanargmax(np.append(np.abs(found), 0.0)))
    if k < len(z) and abs(found[k]) > loss.lipschitz * (1.0 + _ROUNDING):
        raise ValueError(
            f"{name}.lipschitz is {loss.lipschitz!r}, but its derivative at z = {z[k]:g}, y = "
            f"{y[k]:g} is {found[k]:g}: the noise would be too small"
        )
    if loss.flat_where_steep:
        share = np.minimum(np.abs(found) / loss.lipschitz, 1.0)
        most = 4.0 * loss.smoothness * share * (1.0 - share)
        bend = evaluated(loss, "second_derivative", z, y)
        k = int(np.nanargmax(np.append(bend - most, 0.0)))
        if k < len(z) and bend[k] - most[k] > _ROUNDING * loss.smoothness:
            raise ValueError(
                f"{name}.flat_where_steep is True, but at z = {z[k]:g}, y = {y[k]:g} its second "
                f"derivative is {bend[k]:g}, above {most[k]:g}: the noise would be too small"
            )


def constants_of(loss: Loss) -> tuple[float, ...]:
    """Return the constants that bounds on sums over samples are computed from.

    Examples
    --------
    >>> from dpanalysis import losses
    >>> constants_of(losses.SquaredError())
    (True, inf, 1.0, 0.0, False, 0.0)
    """
    return (
        loss.convex,
        loss.lipschitz,
        loss.smoothness,
        loss.hessian_lipschitz,
        loss.flat_where_steep,
        loss.lowest,
    )


def check_per_sample(loss: Loss) -> None:
    """Raise ValueError where a formula of a user's loss mixes samples or remembers them.

    Formulas for arrays see many samples at once, and a private sum charges what one record's own
    term can do. So a formula must not look at other samples: no centered or normalized
    predictions, no median, no running average. All formulas are tried on made-up numbers in
    several groupings, which must agree to the last bit. To call them one sample at a time would
    rule mixing out, and take about 500 times as long.

    Parameters
    ----------
    loss : Loss

    Examples
    --------
    >>> from dpanalysis import losses
    >>> class Centered(losses.SquaredError):
    ...     def derivative(self, z, y):
    ...         return z - z.mean() - y
    >>> check_per_sample(Centered())
    Traceback (most recent call last):
        ...
    ValueError: Centered.derivative gives a sample other numbers beside other samples...
    """
    if type(loss).__module__ == f"{__package__}.linear":
        return
    z, y = grid(loss)
    random = np.random.default_rng(0)
    z, y = np.append(z, 3.0 * random.standard_normal(1000)), np.resize(y, len(z) + 1000)
    table = np.stack([z, random.permutation(z), random.permutation(z)], axis=1)
    for formula in ("value", "derivative", "second_derivative"):
        check_elementwise(loss, formula, table, y[:, None])


def grid(loss: Loss) -> tuple[np.ndarray, np.ndarray]:
    """Return predictions and labels (m,) to try formulas at: margins of all sizes and signs."""
    sizes = np.concatenate([np.logspace(-12, 3, 31), np.linspace(0.1, 6.0, 60)])
    z = np.concatenate([-sizes, [0.0], sizes])
    labels = [-1.0, 1.0] if loss.classification else [-1.0, 0.0, 0.7, 1.0, 30.0]
    return np.tile(z, len(labels)), np.repeat(labels, len(z))


def evaluated(loss: Loss, formula: str, z: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return what a formula of the loss gives for arrays, or raise ValueError naming it."""
    try:
        with np.errstate(all="ignore"):
            return np.asarray(getattr(loss, formula)(z, y), dtype=np.float64)
    except Exception as error:
        raise ValueError(f"{type(loss).__name__}.{formula} failed: {error!r}") from error
