"""Per-sample losses of a linear predictor.

Each loss is a function of the prediction ``z = <x, w>`` and the label ``y``. Its formulas
work on arrays of any shape and namespace (NumPy, CuPy, anything that follows the array
API standard). A built-in loss, and one that :func:`compiled` returns, is evaluated one sample
at a time by compiled kernels; any other, subclasses of the built-in ones included, runs its
array formulas. A number outside the range that a docstring states raises ValueError.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from ._lazy import on_first_use
from ._user_classes import check_elementwise, outdated, with_attributes
from ._validation import check_number, keep_numbers

__all__ = [  # noqa: F822
    "Hinge",
    "Huber",
    "HuberizedHinge",
    "Logistic",
    "Loss",
    "SquaredError",
    "check_loss",
    "compiled",
]


# Relative tolerance of the checks, for rounding errors.
_ROUNDING = 1e-9

# Constants that hold only for the formulas of the class that states them.
_CONSTANTS = (
    "convex",
    "lipschitz",
    "smoothness",
    "hessian_lipschitz",
    "curvature_vanishes_at_max_slope",
    "lowest",
    "growth",
    "weak_growth",
    "_remainder",
)


class Loss(ABC):
    r"""A loss of one sample, as a function of the prediction ``z = <x, w>`` and the label ``y``.

    To define a loss, extend this class with :meth:`value`, :meth:`derivative` and the finite
    constants. Write the formulas for arrays (``z`` and ``y`` of shapes that broadcast), without
    loops and branches, in NumPy or, to run on devices too, in the namespace that
    ``array_api_compat.array_namespace(z)`` returns. :func:`~dpanalysis.losses.compiled` makes
    them as fast as the built-in ones. A formula is a pure function of its two numbers and of the
    object's numbers, which must not change after a problem is built with it.

    All constants are public: none may be computed from the data.

    Attributes
    ----------
    classification : bool
        Whether labels must be -1 and +1; by default False: labels are any real numbers.
    convex : bool
        Whether the loss is convex in ``z`` for every label; False by default.
    lipschitz : float
        Largest absolute first derivative; inf, the default, if it is unbounded. The sums clip
        larger derivatives, so that no gradient exceeds the bound used for calibration.
    smoothness : float
        Lipschitz constant of the first derivative; inf, the default, if there is none.
    hessian_lipschitz : float
        Lipschitz constant of the second derivative; inf, the default, if there is none.
    curvature_vanishes_at_max_slope : bool
        Whether the second derivative is at most :math:`4 M p (1 - p)` wherever the first has size
        p times ``lipschitz``, with M the ``smoothness``: no curvature where the slope is largest.
        False by default. Objective perturbation then needs less noise.
    lowest : float
        Lower bound on the values; -inf, the default, if none is known.
    growth : tuple of float
        Constants ``(beta1, beta2)`` of the weak growth condition for rows of L2 norm 1: see
        :meth:`weak_growth`. By default they follow from the constants above.

    Notes
    -----
    A sample at which a formula raises or is not finite adds exactly zero to every sum.
    ``smoothness``, ``hessian_lipschitz`` and ``convex`` cannot be checked while sums are computed
    (:func:`~dpanalysis.losses.check_loss` checks the first and the last on a grid), and the
    guarantees of some methods depend on them: prove them. A test on random numbers before a
    private run checks that a formula depends on one sample only
    (:func:`~dpanalysis.losses.check_per_sample`); compiled formulas receive one sample only.

    Constants do not hold for overridden formulas: a class that extends a built-in loss and
    overrides ``derivative``, for example, has the defaults above for all constants that it does
    not state. Its ``lipschitz`` is then inf, and a private run without a clipping rule raises.

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

    __slots__ = ()  # no formula or constant can be set on a built-in loss

    classification: bool = False
    convex: bool = False
    lipschitz: float = math.inf
    smoothness: float = math.inf
    hessian_lipschitz: float = math.inf
    curvature_vanishes_at_max_slope: bool = False
    lowest: float = -math.inf

    def __repr__(self) -> str:
        return with_attributes(self)

    def __init_subclass__(cls, **options: Any) -> None:
        """Reset the constants of formulas that the class overrides to their defaults."""
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

        Raise NotImplementedError if the class has none; Hessians and the exact minimizer need it.
        """
        raise NotImplementedError(
            f"{type(self).__name__} has no second_derivative, which Hessians and the exact "
            "minimizer need: add the method to the class"
        )

    @property
    def growth(self) -> tuple[float, float]:
        r"""Return a pair (beta1, beta2) of the weak growth condition, for rows of norm 1.

        The default follows from the other constants. A derivative of size up to G gives
        :math:`(0, G^2)`. An M-smooth function that is bounded below has
        :math:`l'^2 \le 2M(l - \inf l)`: a step of :math:`l'/M` decreases it by at least
        :math:`l'^2/(2M)`. Raises ValueError if neither constant is finite.
        """
        if math.isfinite(self.lipschitz):
            return 0.0, float(self.lipschitz) ** 2
        if math.isfinite(self.smoothness):
            return 2.0 * float(self.smoothness), 0.0
        raise ValueError(
            f"{self!r} has neither a finite lipschitz nor a finite smoothness constant, so no "
            "constants of weak growth are known: give its class a property growth"
        )

    def _remainder(self, beta1: float) -> float:
        """Bound l'^2 - beta1 (l - inf l) for a beta1 below that of ``growth``."""
        return float(self.lipschitz) ** 2

    def weak_growth(self, row_norm: float, beta1: float | None = None) -> tuple[float, float]:
        """Return ``(beta1, beta2)`` of weak growth for rows of L2 norm up to ``row_norm``.

        ``||grad f_i||^2 <= beta1 (f_i - inf f_i) + beta2`` holds at every iterate, for every
        label and every row up to that norm; for built-in losses the constants are the smallest.

        Parameters
        ----------
        row_norm : float
            Bound on the rows' L2 norm, finite, >= 0.
        beta1 : float, optional
            Return the smallest beta2 for this beta1 >= 0. By default the pair has the smallest
            beta2, and then the smallest beta1.

        Returns
        -------
        beta1, beta2 : float
            beta2 is inf if no finite constant exists.

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
        # Zero stays zero even if the square overflows.
        least, rest = (k * square if k else 0.0 for k in self.growth)
        if beta1 is None:
            return least, rest
        beta1 = check_number("beta1", beta1, low=0.0)
        return beta1, rest if beta1 >= least else square * self._remainder(beta1 / square)


def check_loss(loss: Any) -> None:
    """Raise unless ``loss`` is a loss whose formulas agree with its constants on a grid.

    Raises
    ------
    TypeError
        If it is not an object of a class that extends :class:`Loss`.
    ValueError
        If a constant is not a number >= 0, a formula is set on the object, or on the class later
        than the constants of its base class were inherited, raises or returns another shape, or a
        value or derivative on the grid contradicts ``lowest``, ``lipschitz``, ``smoothness``,
        ``convex`` or ``curvature_vanishes_at_max_slope``.

    Examples
    --------
    >>> from dpanalysis import losses
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
    for constant, (kind, formula, of) in outdated(type(loss), _CONSTANTS, Loss).items():
        raise ValueError(
            f"{kind}.{formula} was set on the class after it was made, but its {constant} is that "
            f"of {of}, whose formulas are others: define it in the body of the class"
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
    _check_curvature(loss, z, y, found)
    if loss.curvature_vanishes_at_max_slope:
        share = np.minimum(np.abs(found) / loss.lipschitz, 1.0)
        most = 4.0 * loss.smoothness * share * (1.0 - share)
        bend = evaluated(loss, "second_derivative", z, y)
        k = int(np.nanargmax(np.append(bend - most, 0.0)))
        if k < len(z) and bend[k] - most[k] > _ROUNDING * loss.smoothness:
            raise ValueError(
                f"{name}.curvature_vanishes_at_max_slope is True, but at z = {z[k]:g}, "
                f"y = {y[k]:g} its second derivative is {bend[k]:g}, above {most[k]:g}: the noise "
                "would be too small"
            )


def _check_curvature(loss: Loss, z: np.ndarray, y: np.ndarray, slopes: np.ndarray) -> None:
    """Raise ValueError if derivatives on a grid contradict ``smoothness`` or ``convex``."""
    order = np.lexsort((z, y))
    z, y, slopes = z[order], y[order], slopes[order]
    with np.errstate(invalid="ignore"):
        rise, gap = np.diff(slopes), np.diff(z)
        slack = 1e-6 * np.abs(slopes[1:]) + 1e-9 * np.abs(slopes).max()  # of formulas' rounding
        steep = np.abs(rise) > loss.smoothness * gap * (1.0 + _ROUNDING) + slack
        for constant, wrong in (("smoothness", steep), ("convex", loss.convex & (rise < -slack))):
            for k in np.flatnonzero(wrong & (y[1:] == y[:-1]))[:1]:
                raise ValueError(
                    f"{type(loss).__name__}.{constant} is {getattr(loss, constant)!r}, but from "
                    f"z = {z[k]:g} to {z[k + 1]:g}, y = {y[k]:g}, its derivative goes from "
                    f"{slopes[k]:g} to {slopes[k + 1]:g}: the noise would be too small"
                )


def constants_of(loss: Loss) -> tuple[float, ...]:
    """Return the constants that determine the bounds on sums over samples."""
    return (
        loss.convex,
        loss.lipschitz,
        loss.smoothness,
        loss.hessian_lipschitz,
        loss.curvature_vanishes_at_max_slope,
        loss.lowest,
    )


def check_per_sample(loss: Loss) -> None:
    """Raise ValueError if a formula of a user's loss mixes samples or stores them."""
    # A private sum is charged for the term of one record: no centered or normalized predictions,
    # no median, no running average. Formulas are evaluated on random numbers in several groupings,
    # which must agree to the last bit; single samples would take about 500 times as long.
    if type(loss) in _BUILT_IN:
        return
    z, y = grid(loss)
    random = np.random.default_rng(0)
    z, y = np.append(z, 3.0 * random.standard_normal(1000)), np.resize(y, len(z) + 1000)
    table = np.stack([z, random.permutation(z), random.permutation(z)], axis=1)
    for formula in ("value", "derivative", "second_derivative"):
        check_elementwise(loss, formula, table, y[:, None])


def grid(loss: Loss) -> tuple[np.ndarray, np.ndarray]:
    """Return predictions and labels (m,) for checks: margins of all sizes and signs."""
    sizes = np.concatenate([np.logspace(-12, 3, 31), np.linspace(0.1, 6.0, 60)])
    z = np.concatenate([-sizes, [0.0], sizes])
    labels = [-1.0, 1.0] if loss.classification else [-1.0, 0.0, 0.7, 1.0, 30.0]
    return np.tile(z, len(labels)), np.repeat(labels, len(z))


def evaluated(loss: Loss, formula: str, z: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the values of a formula of the loss, or raise ValueError naming it."""
    try:
        with np.errstate(all="ignore"):
            return np.asarray(getattr(loss, formula)(z, y), dtype=np.float64)
    except Exception as error:
        raise ValueError(f"{type(loss).__name__}.{formula} failed: {error!r}") from error


# Built-in losses


# sup over p in (0, 1) of (1 - p)^2 / (-ln p), attained at p = 0.28466813704083846.
_LOGISTIC_WEAK_GROWTH = 0.407264377589073750


class _Plain(Loss):
    """Loss without parameters: equality, hash and repr by class."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))


class Logistic(_Plain):
    r"""Logistic loss :math:`\ln(1 + e^{-yz})` with labels in {-1, +1}.

    Its derivative is at most 1 in size, its second derivative at most 1/4, its third at most
    :math:`1/(6\sqrt3)`. It satisfies the weak growth condition of Fang et al. (2023), Definition
    3.1, with :math:`\beta_1 = \kappa\|x\|^2`, where :math:`\kappa = \sup_p (1-p)^2/(-\ln p) =
    0.40726437758907375` (the paper prints the looser :math:`\|x\|^2/2`), and :math:`\beta_2 = 0`.

    No margin overflows, and NaN stays NaN.

    References
    ----------
    Kuru et al. (2022), (5.1); Fang et al. (2023), Appendix D.

    Examples
    --------
    >>> import numpy as np
    >>> loss = Logistic()
    >>> loss.value(np.array([0.0, -1000.0]), np.array([1.0, 1.0]))
    array([6.93147181e-01, 1.00000000e+03])
    >>> loss.derivative(np.array([0.0, -1000.0]), np.array([1.0, 1.0]))
    array([-0.5, -1. ])
    >>> loss.smoothness
    0.25
    """

    __slots__ = ()
    classification = True
    convex = True
    lipschitz = 1.0
    smoothness = 0.25
    lowest = 0.0
    hessian_lipschitz = 1.0 / (6.0 * math.sqrt(3.0))
    curvature_vanishes_at_max_slope = True  # l'' = |l'| (1 - |l'|)
    growth = (_LOGISTIC_WEAK_GROWTH, 0.0)

    def value(self, z: Any, y: Any) -> Any:
        """Return the loss, the shape of ``z`` broadcast with ``y``."""
        margin = y * z
        xp = array_namespace(margin)
        size = xp.abs(margin)
        return xp.log1p(xp.exp(-size)) + 0.5 * (size - margin)

    def derivative(self, z: Any, y: Any) -> Any:
        """Return the derivative in ``z``: minus ``y`` times the sigmoid of ``-yz``."""
        margin = y * z
        xp = array_namespace(margin)
        e = xp.exp(-xp.abs(margin))
        return -y * xp.where(margin < 0, xp.ones_like(e), e) / (1.0 + e)

    def second_derivative(self, z: Any, y: Any) -> Any:
        """Return the second derivative in ``z``."""
        margin = y * z
        xp = array_namespace(margin)
        e = xp.exp(-xp.abs(margin))
        return e / ((1.0 + e) * (1.0 + e))

    def _remainder(self, beta1: float) -> float:
        # The sup over p = e^-l of (1 - p)^2 + beta1 ln p is at the smaller root of
        # 2 p (1 - p) = beta1, unless it is the limit 0 at p = 1.
        p = beta1 / (1.0 + math.sqrt(1.0 - 2.0 * beta1))
        return max(0.0, (1.0 - p) ** 2 + beta1 * math.log(p)) if p > 0.0 else 1.0


class SquaredError(_Plain):
    r"""Squared error :math:`(z - y)^2/2` with real targets.

    Its derivative is unbounded, unlike :class:`Huber`'s, so a private run needs a clipping rule.

    Examples
    --------
    >>> import numpy as np
    >>> loss = SquaredError()
    >>> loss.value(np.array([3.0]), np.array([1.0]))
    array([2.])
    >>> loss.lipschitz, loss.smoothness
    (inf, 1.0)
    """

    __slots__ = ()
    classification = False
    convex = True
    lipschitz = math.inf
    smoothness = 1.0
    hessian_lipschitz = 0.0
    lowest = 0.0
    growth = (2.0, 0.0)

    def value(self, z: Any, y: Any) -> Any:
        """Return the loss, the shape of ``z`` broadcast with ``y``."""
        return 0.5 * (z - y) * (z - y)

    def derivative(self, z: Any, y: Any) -> Any:
        """Return the derivative in ``z``, the residual."""
        return z - y

    def second_derivative(self, z: Any, y: Any) -> Any:
        """Return the second derivative in ``z``, 1 everywhere."""
        return 0.0 * (z - y) + 1.0


@dataclass(frozen=True, slots=True)
class Huber(Loss):
    r"""Huber loss: quadratic for residuals up to size h, linear beyond, with real targets.

    .. math:: \ell = \tfrac12 (z - y)^2 \;(|z - y| \le h), \quad
              h |z - y| - \tfrac12 h^2 \;(|z - y| > h).

    Its derivative is the residual clipped at h, whatever the target, so a private run needs no
    clipping rule. It is 1-Lipschitz; the second derivative jumps (1 at a jump), so
    ``hessian_lipschitz`` is inf. Weak growth (Fang et al. 2023, Definition 3.1) holds with
    :math:`\beta_1 = 2\|x\|^2` and :math:`\beta_2 = 0`, as for the squared error.

    Parameters
    ----------
    width : float
        h, positive and finite.

    References
    ----------
    Huber (1964), Robust estimation of a location parameter.

    Examples
    --------
    >>> import numpy as np
    >>> loss = Huber(width=1.0)
    >>> loss.value(np.array([0.5, 1.0, 3.0]), np.zeros(3))
    array([0.125, 0.5  , 2.5  ])
    >>> loss.derivative(np.array([0.5, 1.0, -3.0]), np.zeros(3))
    array([ 0.5,  1. , -1. ])
    >>> loss.lipschitz, loss.smoothness
    (1.0, 1.0)
    """

    width: float = 1.0
    classification = False
    convex = True
    smoothness = 1.0
    hessian_lipschitz = math.inf
    lowest = 0.0
    growth = (2.0, 0.0)

    def __post_init__(self) -> None:
        keep_numbers(self, "width", low=0.0, low_open=True)

    @property
    def lipschitz(self) -> float:  # type: ignore[override]
        """The largest clipped residual."""
        return self.width

    def _remainder(self, beta1: float) -> float:
        return self.width**2 * (1.0 - 0.5 * beta1)  # attained at the end of the parabola

    def value(self, z: Any, y: Any) -> Any:
        """Return the loss, the shape of ``z`` broadcast with ``y``."""
        inside = self.derivative(z, y)
        return inside * ((z - y) - 0.5 * inside)

    def derivative(self, z: Any, y: Any) -> Any:
        """Return the derivative in ``z``, the clipped residual."""
        residual = z - y
        xp = array_namespace(residual)
        edge = xp.full_like(residual, self.width)
        inside = xp.where(residual > edge, edge, residual)
        return xp.where(inside < -edge, -edge, inside)

    def second_derivative(self, z: Any, y: Any) -> Any:
        """Return the second derivative in ``z``: 1 up to the width, 0 beyond."""
        residual = z - y
        xp = array_namespace(residual)
        inside = xp.abs(residual) <= self.width
        curvature = xp.where(inside, xp.ones_like(residual), xp.zeros_like(residual))
        return xp.where(xp.isnan(residual), residual, curvature)


class Hinge(_Plain):
    r"""Hinge loss :math:`\max(0, 1 - yz)` of the linear SVM, with labels in {-1, +1}.

    It is convex and 1-Lipschitz, but not smooth: the derivative jumps at margin :math:`yz = 1`
    (where the subgradient is 0), so ``smoothness`` and ``hessian_lipschitz`` are inf and give
    neither a step size nor an error bound. :class:`HuberizedHinge` is smooth.

    Weak growth (Fang et al. 2023, Definition 3.1) holds with :math:`\beta_1 = 0` and
    :math:`\beta_2 = \|x\|^2`: just below margin 1 the loss vanishes and the gradient does
    not, so no :math:`\beta_1` allows a smaller :math:`\beta_2`.

    References
    ----------
    Chen and Lee (2020), section 5.1.

    Examples
    --------
    >>> import numpy as np
    >>> loss = Hinge()
    >>> loss.value(np.array([-1.0, 0.5, 2.0]), np.array([1.0, 1.0, 1.0]))
    array([2. , 0.5, 0. ])
    >>> loss.derivative(np.array([-1.0, 0.5, 2.0]), np.array([1.0, 1.0, 1.0]))
    array([-1., -1.,  0.])
    >>> loss.smoothness, loss.weak_growth(2.0)
    (inf, (0.0, 4.0))
    """

    __slots__ = ()
    classification = True
    convex = True
    lipschitz = 1.0
    smoothness = math.inf
    hessian_lipschitz = math.inf
    lowest = 0.0
    growth = (0.0, 1.0)

    def value(self, z: Any, y: Any) -> Any:
        """Return the loss, the shape of ``z`` broadcast with ``y``."""
        margin = y * z
        xp = array_namespace(margin)
        return xp.where(margin >= 1.0, xp.zeros_like(margin), 1.0 - margin)

    def derivative(self, z: Any, y: Any) -> Any:
        """Return the subgradient in ``z``: ``-y`` below margin 1, else 0."""
        margin = y * z
        xp = array_namespace(margin)
        below = xp.where(xp.isnan(margin), margin, -y * xp.ones_like(margin))
        return xp.where(margin >= 1.0, xp.zeros_like(margin), below)

    def second_derivative(self, z: Any, y: Any) -> Any:
        """Return 0 where the second derivative exists, NaN at margin 1 where it does not.

        It misses the jump of the derivative, so it is not the curvature of a step.
        """
        margin = y * z
        xp = array_namespace(margin)
        undefined = xp.isnan(margin) | (margin == 1.0)
        return xp.where(undefined, xp.full_like(margin, math.nan), xp.zeros_like(margin))


@dataclass(frozen=True, slots=True)
class HuberizedHinge(Loss):
    r"""Hinge loss with its corner replaced by a parabola, with labels in {-1, +1}.

    With the margin :math:`m = yz` and the width :math:`h`

    .. math:: \ell = 1 - m \;(m < 1 - h), \quad
              \frac{(1 + h - m)^2}{4h} \;(|1 - m| \le h), \quad 0 \;(m > 1 + h).

    Its derivative is at most 1 in size and :math:`1/(2h)`-Lipschitz; its second
    derivative jumps (with the parabola's value at a jump), so ``hessian_lipschitz`` is inf. It
    exceeds the hinge loss by at most :math:`h/4`. Weak growth (Fang et al. 2023, Definition 3.1)
    holds with :math:`\beta_1 = \|x\|^2/h` and :math:`\beta_2 = 0`, with equality on the parabola.

    Parameters
    ----------
    width : float
        Half the width of the parabola's interval of margins, positive and finite.

    References
    ----------
    Chen and Lee (2020), section 5.3 (with ``width=0.5``).

    Examples
    --------
    >>> import numpy as np
    >>> loss = HuberizedHinge(width=0.5)
    >>> loss.value(np.array([0.0, 1.0, 2.0]), np.array([1.0, 1.0, 1.0]))
    array([1.   , 0.125, 0.   ])
    >>> loss.derivative(np.array([0.0, 1.0, 2.0]), np.array([1.0, 1.0, 1.0]))
    array([-1. , -0.5, -0. ])
    >>> loss.smoothness, loss.weak_growth(1.0)
    (1.0, (2.0, 0.0))
    """

    width: float = 0.5
    classification = True
    convex = True
    lipschitz = 1.0
    hessian_lipschitz = math.inf
    lowest = 0.0

    def __post_init__(self) -> None:
        keep_numbers(self, "width", low=0.0, low_open=True)

    @property
    def smoothness(self) -> float:  # type: ignore[override]
        """Second derivative of the parabola."""
        return 0.5 / self.width

    @property
    def growth(self) -> tuple[float, float]:
        """Weak growth for rows of norm 1, tight on the parabola."""
        return 1.0 / self.width, 0.0

    def _remainder(self, beta1: float) -> float:
        return 1.0 - beta1 * self.width  # at the end of the parabola: l = width, l' = 1

    def _slope(self, gap: Any) -> Any:
        """Absolute derivative, in [0, 1], given 1 - margin."""
        xp = array_namespace(gap)
        edge = xp.full_like(gap, self.width)
        inside = xp.where(gap > edge, edge, gap)
        inside = xp.where(inside < -edge, -edge, inside)
        return 0.5 * (inside / self.width + 1.0)

    def value(self, z: Any, y: Any) -> Any:
        """Return the loss, the shape of ``z`` broadcast with ``y``."""
        gap = 1.0 - y * z
        xp = array_namespace(gap)
        slope = self._slope(gap)
        return xp.where(gap >= self.width, gap, self.width * slope * slope)

    def derivative(self, z: Any, y: Any) -> Any:
        """Return the derivative in ``z``."""
        return -y * self._slope(1.0 - y * z)

    def second_derivative(self, z: Any, y: Any) -> Any:
        """Return the second derivative in ``z``: 1/(2 width) on the parabola, else 0."""
        margin = y * z
        xp = array_namespace(margin)
        inside = xp.abs(1.0 - margin) <= self.width
        curvature = xp.where(inside, xp.full_like(margin, self.smoothness), xp.zeros_like(margin))
        return xp.where(xp.isnan(margin), margin, curvature)


_BUILT_IN = (Hinge, Huber, HuberizedHinge, Logistic, SquaredError)

# Imported lazily, since kernels import this module.
__getattr__, __dir__ = on_first_use(__name__, {".kernels.kernel_table:compile_loss": "compiled"})
