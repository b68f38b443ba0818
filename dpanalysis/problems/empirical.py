"""Empirical risks: arguments, sums and public facts shared by all problems over samples.

Value clipping without explicit constants depends on the iterate: :func:`resolve_value_clipping`
replaces it with rules whose constants come from the problem.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import array_namespace, is_array_api_obj, is_dask_array, is_numpy_array

from .._devices import match_device, readable, shares_namespace, to_host
from .._user_classes import outdated
from .._validation import check_choice, check_finite, check_reals, refuse_mask
from ..clipping import Clipping, Value, check_clipping
from ..losses import Loss
from ..privacy.facts import LARGEST_ITERATE, MOST_ROWS, Block, PublicFacts, check_size
from ..regularizers import PENALTY_CONSTANTS, Regularizer
from .base import PerturbedObjective, Problem, minimize_perturbed
from .row_bound import RowBound, as_blocks, implied_radius
from .rows.checks import refuse_read_width


def needs_constants(clipping: Any) -> bool:
    """Whether the rule is value clipping without constants, which uses those of the problem."""
    # In this order, since looking at an abstract class takes longer.
    return getattr(clipping, "beta1", 0.0) is None and isinstance(clipping, Value)


def growth_of_rows(loss: Any, radius: float) -> tuple[float, float]:
    """Return a linear loss's weak growth constants, for rows of norm up to ``radius``."""
    Value(1.0).check(loss, radius)
    beta1, beta2 = loss.weak_growth(radius)
    return beta1, beta2


def resolve_value_clipping(
    problem: Any, W: Any, rows: Any, clipping: Any, *rest: Any
) -> tuple[Any, Any, Any]:
    """Call ``problem._evaluate`` with the public value-clipping constants of each iterate."""
    if not needs_constants(clipping):
        return problem._evaluate(W, rows, clipping, *rest)
    beta1, beta2 = problem.weak_growth(W)
    if not np.ndim(beta1):
        return problem._evaluate(W, rows, clipping.at(beta1, beta2), *rest)
    parts = []
    for r, constant in enumerate(beta1):
        own = rows[r : r + 1] if isinstance(rows, list) else rows
        rule = clipping.at(float(constant), beta2)
        parts.append(problem._evaluate(W[r : r + 1, :], own, rule, *rest))
    if len(parts) == 1:  # concatenating one array would copy it
        return parts[0]
    values, gradients, clipped = (array_namespace(W).concat(column) for column in zip(*parts))
    return values, gradients, clipped


# Problems over samples


# Attributes that cannot be reassigned: multipliers, kernels, sums and minimizers depend on them.
_FIXED = frozenset(
    (
        *("n", "d", "loss", "regularizer", "row_bounds", "features", "n_classes", "hidden"),
        *("activation", "bias", "_size"),
    )
)


class Sums(NamedTuple):
    """Unnormalized sums over samples, for one iterate or for each of R.

    Attributes
    ----------
    value : float or array of shape (R,), or None
        Sum of the losses; None if not requested.
    gradient : array of shape (d,) or (R, d), or None
        Sum of the (clipped) gradients; None if not requested.
    clipped : int or array of shape (R,)
        Number of samples whose gradient was scaled down.
    """

    value: Any
    gradient: Any
    clipped: Any


class EmpiricalRisk(Problem):
    """Mean of a loss over samples plus a public penalty, for one iterate or R of them.

    A subclass implements :meth:`_evaluate` and sets ``n``, ``d``, ``regularizer`` and the public
    attributes below, which are those of :class:`~dpanalysis.privacy.facts.PublicFacts`.
    """

    regularizer: Regularizer | None
    hessian_bound: float = math.inf
    hessian_lipschitz: float = math.inf
    convex_records: bool = False
    hessian_rank: int | None = None
    value_at_zero: float | None = None
    rounding: float = 0.0
    hessian_trace: float = math.inf
    derivative_bounds: tuple[float, float] = (math.inf, math.inf)
    derivative_corners: int | None = None
    curvature_vanishes_at_max_slope: bool = False
    lowest_value: float = -math.inf
    row_blocks: tuple[tuple[Block, ...], ...] = ()
    largest_iterate: float = LARGEST_ITERATE
    double_precision: bool = False
    _y: Any
    _on_host: bool
    _size: int | None = None
    _width_read = False  # whether the number of columns was inferred from the data

    @abstractmethod
    def _evaluate(
        self, W: Any, rows: Any, clipping: Any, weights: Any, value: bool, gradient: bool
    ) -> tuple[Any, Any, Any]:
        """Return ``values (R,), gradients (R, d), clipped (R,)``, for checked arguments."""

    def __setattr__(self, name: str, value: Any) -> None:
        # The facts would describe the new loss or bound, but the sums still use the old one.
        if name in _FIXED and name in self.__dict__:
            raise AttributeError(
                f"{name} cannot be changed: the data were prepared for {self.__dict__[name]!r}; "
                "build a new problem"
            )
        super().__setattr__(name, value)

    # Public

    @property
    def size(self) -> int:
        """Public nominal size by which sums are divided: the given one, or n."""
        return self.n if self._size is None else self._size

    @property
    def max_records(self) -> int:
        """Public upper bound on the number of samples, including an added one."""
        return self.n + 1 if self._size is None else MOST_ROWS * self._size

    def _set_size(self, size: int | None) -> None:
        """Set the nominal size, checked against the actual number n of samples."""
        self._size = None if size is None else check_size(size, self.n)

    @property
    @abstractmethod
    def L(self) -> float:  # type: ignore[override]
        """Public bound on the smoothness; inf if there is none."""

    @abstractmethod
    def gradient_bound(self, order: int) -> float:
        """Public bound on the norm of one sample's data gradient; inf if there is none."""

    def facts(self, relation: str) -> PublicFacts:
        """Return the public facts: the bounds that follow from loss, penalty and row bounds."""
        return PublicFacts(
            self.size,
            self.d,
            self.mu,
            self.L,
            relation,
            (self.gradient_bound(1), self.gradient_bound(2)),
            max_records=None if self._size is None else self.max_records,
            penalty_flat_at_zero=flat_at_zero(self.regularizer, self.d),
            **{name: getattr(self, name) for name in _STATED},
        )

    def check_clipping(self, clipping: Clipping | None) -> None:
        """Raise TypeError unless ``clipping`` is a rule or None: the sums enforce any rule's bound.

        Raises ValueError if value clipping needs constants that the problem does not have.
        """
        check_clipping(clipping)
        if needs_constants(clipping):
            self.weak_growth(np.zeros(self.d))

    def weak_growth(self, w: Any) -> tuple[Any, float]:
        """Return public ``(beta1, beta2)`` of the weak growth condition at ``w``, (d,) or (R, d).

        They hold for every possible record; :class:`~dpanalysis.clipping.Value` uses them where it
        has no constants. ``beta1`` is a float, or an array of shape (R,). Raises ValueError if
        there are none, as by default.
        """
        raise ValueError(
            f"{type(self).__name__} has no constants of weak growth: give them to value clipping, "
            "or clip by a rule that needs none, such as Flat(clip_norm)"
        )

    def check_private(self) -> None:
        """As :meth:`Problem.check_private`; ValueError if the width was inferred from the data."""
        super().check_private()
        if self._width_read:
            refuse_read_width()

    # Checks and conversions of arguments

    @property
    def _xp(self) -> Any:
        return array_namespace(self._y)  # not stored: a module cannot be pickled

    def place(self, w: Any) -> Any:
        """Return iterates (d,) or (R, d), float64 and checked, on the device of the data.

        Sums at the returned iterates stay on that device too, so that they can be processed before
        they are copied to the host. An array already on a device is not checked for NaN: the host
        would have to synchronize with it.

        Examples
        --------
        >>> import numpy as np
        >>> from dpanalysis import problems
        >>> problems.Softmax(np.array([[2.0], [0.1]]), np.array([0, 1])).place([1, 2])
        array([1., 2.])
        """
        return self._iterate("w", w)

    def _iterate(self, name: str, w: Any) -> Any:
        """Return ``w`` in the data's namespace, float64, checked."""
        w = self._reals(name, w)
        if w.ndim not in (1, 2) or w.shape[-1] != self.d or not w.shape[0]:
            raise ValueError(
                f"{name} must have shape ({self.d},) or (R, {self.d}), got {tuple(w.shape)}"
            )
        return self._to_data_device(name, check_finite(name, w) if isinstance(w, np.ndarray) else w)

    def _point(self, name: str, w: Any) -> Any:
        """Return one iterate, checked."""
        w = self._iterate(name, w)
        if w.ndim != 1:  # predictions of a second one would be taken for those of other records
            raise ValueError(f"{name} must have shape ({self.d},), got {tuple(w.shape)}")
        return w

    def _reals(self, name: str, array: Any) -> Any:
        """Return ``array`` in float64, on the host unless it is on the device of the data."""
        if self._on_data_device(array):
            return self._xp.astype(match_device(name, array, self._y), self._xp.float64, copy=False)
        return check_reals(name, array, None if self._on_host else self._y)

    def _to_data_device(self, name: str, array: Any) -> Any:
        """Return ``array`` on the device of the data."""
        return array if self._on_host else match_device(name, array, self._y)

    def _on_data_device(self, array: Any) -> bool:
        """Whether ``array`` is on the data's device and that is not the host."""
        return not self._on_host and shares_namespace(array, self._y)

    def _test_rows(self, X: Any) -> Any:
        """Return other rows on the device of the data; TypeError if they cannot be moved there."""
        if not self._on_host:
            refuse_mask("X", X)
            return match_device("X", X, self._y)
        foreign = is_array_api_obj(X) and not (is_numpy_array(X) or is_dask_array(X))
        return readable("X", X) if foreign else X

    def _rows(self, rows: Any, replicates: int) -> Any:
        """Return ``rows`` as None, one index array, or one per replicate, checked."""
        if rows is None:
            return None
        shared = not isinstance(rows, (list, tuple))
        data = None if self._on_host else self._y
        parts = [
            to_host(part) if self._on_data_device(part) else readable("rows", part, data)
            for part in ([rows] if shared else rows)
        ]
        if not shared and len(parts) != replicates:
            raise ValueError(f"rows must list {replicates} index arrays, got {len(parts)}")
        for i, part in enumerate(parts):
            if part.ndim != 1 or (part.size and part.dtype.kind not in "iu"):
                raise TypeError(
                    f"rows must be one-dimensional integer arrays, got {part.dtype} "
                    f"of shape {part.shape}"
                )
            part = np.ascontiguousarray(part, dtype=np.int64)
            # Viewed as unsigned, a negative index is huge: one pass checks both ends.
            if part.size and int(part.view(np.uint64).max()) >= self.n:
                raise ValueError(
                    f"rows must lie in [0, {self.n - 1}], got {part.min()} to {part.max()}"
                )
            parts[i] = part
        parts = [self._to_data_device("rows", part) for part in parts]
        return parts[0] if shared else parts

    def _weights(self, weights: Any) -> Any:
        xp = self._xp
        weights = self._to_data_device("weights", self._reals("weights", weights))
        if tuple(weights.shape) != (self.n,):
            raise ValueError(f"weights must have shape ({self.n},), got {tuple(weights.shape)}")
        if not bool(xp.all(xp.isfinite(weights) & (weights >= 0))):
            raise ValueError("weights must be finite and non-negative")
        return weights

    def _to_caller(self, array: Any, like: Any) -> Any:
        """Return a result on the device of the caller's ``w``."""
        return array if self._on_host or self._on_data_device(like) else to_host(array)

    # Sums over samples

    def gradient_sum(self, w: Any, rows: Any = None, clipping: Clipping | None = None) -> Any:
        """Return the sum of (clipped) gradients (R, d) on the data's device, for the oracle."""
        if type(self).sums is not EmpiricalRisk.sums:  # a subclass overrides sums
            return self.sums(self.place(w), rows=rows, clipping=clipping, value=False).gradient
        W = np.asarray(w, dtype=np.float64) if self._on_host else self._iterate("w", w)
        if W.ndim != 2 or W.shape[1] != self.d:  # kernels would mistake entries for iterates
            raise ValueError(f"w must have shape (R, {self.d}), got {tuple(W.shape)}")
        rows = rows if rows is None else self._rows(rows, W.shape[0])
        return resolve_value_clipping(self, W, rows, clipping, None, False, True)[1]

    def sums(
        self,
        w: Any,
        rows: Any = None,
        clipping: Clipping | None = None,
        value: bool = True,
        gradient: bool = True,
        weights: Any = None,
    ) -> Sums:
        """Sum the losses and the (clipped) gradients over samples, without penalty or division.

        Parameters
        ----------
        w : array of shape (d,) or (R, d)
        rows : int array of shape (m,), or list of R such arrays, optional
            The samples: all of them by default; one batch shared by all replicates; or one batch
            for each replicate, of any sizes, possibly empty. An index may occur several times.
        clipping : Clipping, optional
            Rule of :mod:`dpanalysis.clipping` applied to every sample's gradient (of the
            data term). The losses are not clipped. A gradient that overflows counts as
            zero, so that the sum stays within the bound times the number of samples.
        value, gradient : bool
            Which sums to compute; a sum not requested is None and costs nothing.
        weights : array of shape (n,), optional
            Multiplicity >= 0 of each sample, applied after clipping, to losses and gradients.

        Returns
        -------
        Sums
            On the device of the data if ``w`` is there (see :meth:`place`), else on the host.

        Examples
        --------
        >>> import numpy as np
        >>> from dpanalysis import clipping, problems
        >>> problem = problems.Softmax(np.array([[2.0], [0.1]]), np.array([0, 1]))
        >>> problem.sums(np.zeros(2), clipping=clipping.Flat(0.5), value=False)
        Sums(value=None, gradient=array([-0.3036,  0.3036]), clipped=1)
        """
        iterate = self._iterate("w", w)
        if not needs_constants(clipping):
            self.check_clipping(clipping)
        batched = iterate.ndim == 2
        W = iterate if batched else iterate[None, :]
        chosen = self._rows(rows, W.shape[0])
        if weights is not None:
            weights = self._weights(weights)
        parts = resolve_value_clipping(self, W, chosen, clipping, weights, value, gradient)
        away = self._on_data_device(w)
        values, gradients, clipped = parts if self._on_host or away else self._sums_to_host(*parts)
        if batched:
            return Sums(values if value else None, gradients if gradient else None, clipped)
        return Sums(
            (values[0] if away else float(values[0])) if value else None,
            gradients[0, :] if gradient else None,
            clipped[0] if away else int(clipped[0]),
        )

    def _sums_to_host(self, values: Any, gradients: Any, clipped: Any) -> tuple[np.ndarray, ...]:
        """Copy the parts of a sum to the host as one array: each synchronization costs."""
        xp = self._xp
        columns = [gradients, values[:, None], xp.astype(clipped, xp.float64)[:, None]]
        table = to_host(xp.concat(columns, axis=1))
        return table[:, -2], table[:, :-2], table[:, -1].astype(np.int64)

    def clipped_gradient_sum(
        self, w: Any, clipping: Clipping, weights: Any = None
    ) -> tuple[Any, Any, Any]:
        """Return the clipped gradient, the value and the clipped count of :meth:`sums`."""
        total = self.sums(w, clipping=clipping, weights=weights)
        return total.gradient, total.value, total.clipped

    # The objective

    @property
    def mu(self) -> float:  # type: ignore[override]
        """Strong convexity that the penalty guarantees."""
        return 0.0 if self.regularizer is None else self.regularizer.mu

    def value(self, w: Any) -> Any:
        """Objective at ``w``: a float for ``(d,)``, shape ``(R,)`` for ``(R, d)``."""
        mean = self.sums(w, gradient=False).value / self.size
        if self.regularizer is not None:
            mean = mean + self.regularizer.value(self._reals("w", w))
        return mean if np.ndim(mean) else float(mean)

    def gradient(self, w: Any) -> Any:
        """Gradient of the objective, the shape of ``w``."""
        mean = self.sums(w, value=False).gradient / self.size
        if self.regularizer is None:
            return mean
        return mean + self.regularizer.gradient(self._reals("w", w))


# The public facts that a risk states in attributes of the same names.
_STATED = [each.name for each in fields(PublicFacts) if each.name in EmpiricalRisk.__annotations__]


class NonconvexRisk(EmpiricalRisk):
    """Risk of a network: nothing public bounds its gradients or its curvature.

    Value clipping (Fang et al. 2023, Algorithm 3) bounds a gradient by the loss of its sample
    through a constant that here grows with the weights, so that no constant fixed beforehand is
    valid at every iterate. ``Value(clip_norm)``, without a constant, uses that of
    :meth:`weak_growth` at each iterate, which is public and needs a row bound. A user-given
    constant may be too small, and the guarantee would silently fail. The norms are almost free
    here, so every weight is limited to ``clip_norm / norm``: a valid constant is unaffected; with
    one that is too small, value clipping becomes flat clipping for the affected samples.
    """

    @property
    def mu(self) -> float:  # type: ignore[override]
        """Strong convexity: 0, whatever the penalty, since the curvature has no lower bound."""
        return 0.0

    @property
    def L(self) -> float:  # type: ignore[override]
        """Smoothness: inf, since the curvature grows with the weights."""
        return math.inf

    def gradient_bound(self, order: int) -> float:
        """Public bound on the norm of one sample's data gradient: inf in every norm."""
        check_choice("order", order, (1, 2))
        return math.inf


class SmoothRisk(EmpiricalRisk):
    """Risks of linear predictions, whose gradients the row norms bound: Hessians, minimizers."""

    loss: Any
    _solution: np.ndarray | None = None

    @abstractmethod
    def radius(self, order: int) -> float:
        """Return the public bound on every ``||x_i||_order``, order 1 or 2; inf if none."""

    @abstractmethod
    def _hessian_sum(self, w: Any, rows: Any = None) -> Any:
        """Return the sum of the samples' Hessians at ``w`` (d,), on the device of the data."""

    @abstractmethod
    def _hvp_sum(self, w: Any, v: Any) -> Any:
        """Return the sum of Hessians times ``v`` (d,), without forming the sum."""

    @abstractmethod
    def _check_unchanged(self) -> None:
        """Raise ValueError if a row has grown since it was checked; one pass over X."""

    @abstractmethod
    def _find_minimizer(self) -> np.ndarray:
        """Return the minimizer (d,); warn if none is reached."""

    def _check_smooth(self, what: str) -> None:
        """Raise ValueError if the loss is not smooth, naming the method that needs it."""

    def weak_growth(self, w: Any) -> tuple[float, float]:
        """Return ``(beta1, beta2)`` of the loss for rows within the public bound, at any ``w``."""
        return growth_of_rows(self.loss, self.radius(2))

    def check_clipping(self, clipping: Clipping | None) -> None:
        """Raise unless the rule bounds the gradient of every possible record.

        The decision uses the loss and the public row bound, never the data. Raises ValueError if
        the bound can fail, as for :class:`~dpanalysis.clipping.Value` with too small a ``beta1`` or
        without a row bound. (The sums enforce the clip norm anyway; this reports mistakes.)

        Examples
        --------
        >>> import numpy as np
        >>> from dpanalysis import ERM, RowBound, clipping, losses
        >>> problem = ERM(np.ones((1, 1)), [1], losses.Logistic(), row_bound=RowBound(2, 2.0))
        >>> problem.check_clipping(clipping.Value(1.0, *problem.loss.weak_growth(2.0)))
        >>> problem.check_clipping(clipping.Value(1.0, beta1=0.5))
        Traceback (most recent call last):
            ...
        ValueError: beta1 = 0.5 with beta2 = 0.0 and lower_bound = 0.0 does not bound...
        """
        check_clipping(clipping)
        if clipping is not None:
            clipping.check(self.loss, self.radius(2))

    def hessian(self, w: Any) -> Any:
        """Hessian of the objective: ``(d, d)``, or ``(R, d, d)`` for ``w`` of ``(R, d)``.

        Raises ValueError if the loss is not smooth, as do the methods below.

        Examples
        --------
        >>> import numpy as np
        >>> from dpanalysis import ERM, losses
        >>> problem = ERM(np.array([[2.0, 1.0]]), np.array([1.0]), losses.Logistic())
        >>> problem.hessian(np.zeros(2))
        array([[1.  , 0.5 ],
               [0.5 , 0.25]])
        """
        self._check_smooth("hessian")
        iterate, xp = self._iterate("w", w), self._xp
        if iterate.ndim == 2:
            parts = [self.hessian(iterate[r, :]) for r in range(iterate.shape[0])]
            return self._to_caller(xp.stack(parts), w)
        return self._to_caller(
            self._with_penalty(self._hessian_sum(iterate) / self.size, iterate), w
        )

    def sampled_hessian(self, w: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """:meth:`hessian` at ``w`` (d,), estimated from the records ``rows`` (m,)."""
        iterate = self._point("w", w)
        total = self._hessian_sum(iterate, self._rows(rows, 1))
        weight = self.n / (len(rows) * self.size)
        return self._to_caller(self._with_penalty(total * weight, iterate), w)

    def _with_penalty(self, hessian: Any, w: Any) -> Any:
        if self.regularizer is None:
            return hessian
        eye = self._xp.eye(self.d, dtype=self._xp.float64, device=w.device)
        return hessian + eye * self.regularizer.hessian_diagonal(w)

    def hvp(self, w: Any, v: Any) -> Any:
        """Hessian at ``w`` times ``v``, without forming it; both ``(d,)`` or both ``(R, d)``.

        Examples
        --------
        >>> import numpy as np
        >>> from dpanalysis import ERM, losses
        >>> problem = ERM(np.array([[2.0, 1.0]]), np.array([1.0]), losses.Logistic())
        >>> problem.hvp(np.zeros(2), np.array([1.0, 0.0]))
        array([1. , 0.5])
        """
        self._check_smooth("hvp")
        iterate, vector, xp = self._iterate("w", w), self._iterate("v", v), self._xp
        if iterate.shape != vector.shape:
            raise ValueError(
                f"v must have the shape of w, {tuple(iterate.shape)}, got {tuple(vector.shape)}"
            )
        if iterate.ndim == 2:
            parts = [self.hvp(iterate[r, :], vector[r, :]) for r in range(iterate.shape[0])]
            return self._to_caller(xp.stack(parts), w)
        total = self._hvp_sum(iterate, vector) / self.size
        if self.regularizer is not None:
            total = total + self.regularizer.hessian_diagonal(iterate) * vector
        return self._to_caller(total, w)

    def minimize_perturbed(
        self, linear: np.ndarray, ridge: float, tolerance: float, size: float
    ) -> tuple[np.ndarray, int]:
        """As :meth:`Problem.minimize_perturbed`; ``size`` is public, close to the record count.

        Raises ValueError if a row of X has grown by the end, FloatingPointError if ``tolerance``
        is below the rounding errors.

        Examples
        --------
        >>> import numpy as np
        >>> from dpanalysis import ERM, losses
        >>> problem = ERM(np.array([[1.0]]), np.array([1.0]), losses.SquaredError())
        >>> problem.minimize_perturbed(np.array([-1.0]), 1.0, 1e-12, 1.0)[0]
        array([1.])
        """
        self._check_smooth("minimize_perturbed")
        found = minimize_perturbed(PerturbedObjective(self, linear, ridge, size), tolerance)
        self._check_unchanged()  # during the solve: blocks of columns are bounded too
        return found

    def solve(self) -> np.ndarray:
        """Return the non-private minimizer, shape ``(d,)``, for reference only.

        Of an objective that is not convex, a stationary point that need not be the minimizer.

        L-BFGS, then Newton steps to machine precision: the gradient's norm falls below
        1e-10 times the larger of 1 and its norm at zero. Computed once and cached.

        Warns
        -----
        RuntimeWarning
            If no minimizer is reached, as for separable classes without a penalty; the
            message gives the norm of the gradient.

        Examples
        --------
        >>> import numpy as np
        >>> from dpanalysis import ERM, losses
        >>> problem = ERM(np.array([[1.0], [2.0]]), np.array([1.0, 3.0]), losses.SquaredError())
        >>> problem.solve()
        array([1.4])
        """
        self._check_smooth("solve")
        if self._solution is None:
            self._solution = self._find_minimizer()
        return self._solution.copy()


def flat_at_zero(regularizer: Regularizer | None, d: int) -> bool:
    """Whether the gradient of a penalty vanishes at 0."""
    with np.errstate(all="ignore"):  # the gradient of a norm is 0/0
        return regularizer is None or not np.any(regularizer.gradient(np.zeros(d)))


def check_regularizer(regularizer: Any) -> None:
    """Raise TypeError unless it is None or an object of dpanalysis.regularizers."""
    # One that overrides a formula but inherits its constant is refused too: a guarantee would
    # depend on a wrong number.
    missing = [name for name in ("mu", "L", "value", "gradient") if not hasattr(regularizer, name)]
    if isinstance(regularizer, type) or (regularizer is not None and missing):
        raise TypeError(
            "regularizer must be None or an object of dpanalysis.regularizers, such as L2(0.1), "
            f"got {regularizer!r}" + f", without {', '.join(missing)}" * bool(missing)
        )
    stated = getattr(regularizer, "__dict__", {})
    for name in ("value", "gradient", "hessian_diagonal"):
        if name in stated:
            raise TypeError(
                f"regularizer: {name} must be a method of {type(regularizer).__name__}, which "
                "states the constants of its formulas; it is set on the object"
            )
    for name, (kind, formula, of) in outdated(type(regularizer), PENALTY_CONSTANTS).items():
        if name not in stated:
            raise TypeError(
                f"regularizer: {kind} overrides {formula}, but its {name} is that of {of}, whose "
                f"formulas are others; {kind} must state {', '.join(PENALTY_CONSTANTS)} of its own"
            )


# Public facts of linear predictors


class LinearRisk(SmoothRisk):
    """Public constants of a loss of one linear prediction, to which noise is calibrated."""

    loss: Loss
    row_bounds: tuple[RowBound, ...]

    @property
    def L(self) -> float:  # type: ignore[override]
        """Smoothness that the row bound, the loss and the penalty guarantee; inf if none."""
        data = self.hessian_bound
        return data + (0.0 if self.regularizer is None else self.regularizer.L)

    def radius(self, order: int) -> float:
        """Public bound on every ``||x_i||_order``, order 1 or 2; inf if there is none."""
        return implied_radius(self.row_bounds, order, self.d)

    def gradient_bound(self, order: int) -> float:
        """Public bound on the norm of one sample's data gradient; inf if there is none."""
        lipschitz = float(self.loss.lipschitz)
        return lipschitz * self.radius(order) or (5e-324 if lipschitz else 0.0)

    @property
    def convex_records(self) -> bool:  # type: ignore[override]
        """Whether the loss of every sample is convex."""
        return self.loss.convex

    @property
    def value_at_zero(self) -> float | None:  # type: ignore[override]
        """Public bound on the objective at w = 0; None if labels can be any numbers."""
        if not self.loss.classification:
            return None
        ends = self.loss.value(np.zeros(2), np.array([-1.0, 1.0]))
        penalty, most = self.regularizer, float(max(ends))
        return most if penalty is None else most + float(penalty.value(np.zeros(self.d)))

    hessian_rank = 1  # of one sample: l'' x x'
    derivative_corners = 2  # l' lies in an interval

    @property
    def derivative_bounds(self) -> tuple[float, float]:  # type: ignore[override]
        """Bounds (L1, L2) on the derivative of a sample's loss in its prediction."""
        return float(self.loss.lipschitz), float(self.loss.lipschitz)

    @property
    def curvature_vanishes_at_max_slope(self) -> bool:  # type: ignore[override]
        """Whether a sample's curvature is zero where its derivative is largest."""
        return self.loss.curvature_vanishes_at_max_slope

    @property
    def lowest_value(self) -> float:  # type: ignore[override]
        """Lower bound on a sample's loss."""
        return self.loss.lowest

    @property
    def row_blocks(self) -> tuple[tuple[Block, ...], ...]:  # type: ignore[override]
        """Every public bound on the rows, as blocks of columns."""
        return as_blocks(self.row_bounds, self.d)

    @property
    def hessian_trace(self) -> float:  # type: ignore[override]
        """Public bound on the trace of one sample's Hessian, which has rank one."""
        return self.hessian_bound

    @property
    def hessian_bound(self) -> float:  # type: ignore[override]
        """Public bound on the norm of one sample's Hessian, without the penalty; inf if none."""
        smoothness = float(self.loss.smoothness)
        radius = self.radius(2)
        bound = smoothness * (radius * radius)
        if smoothness and radius < 1e-140:  # its square underflows
            root = math.sqrt(smoothness) * radius
            bound = max(root * root, 1e-300)
        return bound

    @property
    def hessian_lipschitz(self) -> float:  # type: ignore[override]
        """Lipschitz constant of the Hessian that the public bounds guarantee; inf if none."""
        data = float(self.loss.hessian_lipschitz)
        radius = self.radius(2)
        data = data * radius * radius * radius if data else 0.0
        return data + (0.0 if self.regularizer is None else self.regularizer.hessian_lipschitz)
