"""The interface of problems, a table without a loss, and solvers to a given precision."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from scipy.linalg import cho_factor, cho_solve, lstsq
from scipy.optimize import minimize
from scipy.sparse.linalg import LinearOperator, cg

from .._user_classes import overridden
from .._validation import warn_caller
from ..clipping import Clipping, check_clipping
from ..privacy.facts import MOST_ROWS, PublicFacts, check_size
from ..regularizers import Regularizer
from .rows.checks import prepare

_SUM_METHODS = (
    "_evaluate",
    "sums",
    "gradient_sum",
    "line_losses",
    "hessian_sum",
    "_hessian_sum",
    "hvp_sum",
    "minimize_perturbed",
)


class Problem(ABC):
    """Abstract base class of objectives that can be minimized privately.

    A user-defined problem is a subclass with the attributes below and four methods:
    :meth:`facts`, :meth:`value`, :meth:`gradient` and :meth:`gradient_sum`. Everything else has
    a default. Only the members listed here are used, except that the recorders ``"accuracy"`` and
    ``"gap"`` of :func:`~dpanalysis.minimize` need ``accuracy(w)`` and ``solve()``.

    **Public**, known to everyone besides the released answers: ``n``, ``d``, ``regularizer``,
    ``mu``, ``L``, :meth:`facts`, :meth:`check_clipping`, :meth:`initial`. None of them may depend
    on a private record; n is public by convention. Where it is not, as under
    ``"add_or_remove_one"``, :meth:`facts` must state another ``n``, a nominal size, and the largest
    possible number of records (``max_records``): the oracle divides by ``facts.n`` and samples from
    the ``n`` actual records.

    **Private**, accessed by the oracle alone, which adds the noise: :meth:`gradient_sum`,
    :meth:`line_losses`, :meth:`hessian_sum`, :meth:`hvp_sum`, :meth:`minimize_perturbed`. Their
    sensitivity to one record is bounded by :meth:`facts`.

    **Private, and without noise**: :meth:`value` and :meth:`gradient`. They are for reference
    and for the quantities that a run records beside its answer; releasing them has no guarantee.

    Attributes
    ----------
    n : int
        Number of records.
    d : int
        Number of parameters.
    regularizer : Regularizer or None
        Public penalty. It is added to the noisy answers and never enters a sensitivity.
    mu, L : float
        Public bounds on the strong convexity and smoothness of the objective; ``L`` may be inf.

    Examples
    --------
    The mean of numbers in [0, 1], which one record changes by at most 1/n:

    >>> import numpy as np
    >>> import dpanalysis as dpa
    >>> from dpanalysis.privacy.facts import PublicFacts
    >>> class Mean(dpa.Problem):
    ...     d, mu, L = 1, 1.0, 1.0
    ...     def __init__(self, x):
    ...         self.x, self.n = np.clip(x, 0.0, 1.0), len(x)
    ...     def facts(self, relation):
    ...         return PublicFacts(self.n, 1, 1.0, 1.0, relation, (1.0, 1.0))
    ...     def value(self, w):
    ...         return 0.5 * np.mean((np.asarray(w) - self.x) ** 2, axis=-1)
    ...     def gradient(self, w):
    ...         return np.asarray(w) - self.x.mean()
    ...     def gradient_sum(self, w, rows=None, clipping=None):
    ...         batches = [slice(None)] * len(w) if rows is None else rows
    ...         each = [np.clip(w[r] - self.x[batch], -1.0, 1.0) for r, batch in enumerate(batches)]
    ...         return np.array([[part.sum()] for part in each])
    >>> problem = Mean(np.linspace(0.0, 1.0, 101))
    >>> result = dpa.minimize(problem, dpa.methods.GradientDescent(1.0, 1))
    >>> result.w.round(9)
    array([[0.5]])
    """

    n: int
    d: int
    regularizer: Regularizer | None = None
    mu: float
    L: float

    # Public

    @abstractmethod
    def facts(self, relation: str) -> PublicFacts:
        """Return the public facts of the problem under a neighbouring relation.

        The noise of every release is calibrated to these bounds, so they must hold for every
        possible record and must not be computed from the data.
        """

    def check_clipping(self, clipping: Clipping | None) -> None:
        """Raise unless the rule bounds the gradient of every possible record.

        The decision uses public bounds, never the data. By default every rule is refused: the
        noise of a run with a rule is calibrated to its ``clip_norm``, which is too small unless
        :meth:`gradient_sum` multiplies each record's gradient by ``rule.weight``. Override this
        where it does: raise TypeError for anything but a rule of :mod:`dpanalysis.clipping` or
        None, ValueError for a rule that does not bound every record's gradient.
        """
        check_clipping(clipping)
        if clipping is not None:
            raise ValueError(
                f"{type(self).__name__} takes no clipping rule, got {clipping!r}: override "
                "check_clipping once gradient_sum weighs each record's gradient by "
                "clipping.weight(norm, loss)"
            )

    def initial(self, rng: Any = None) -> np.ndarray:
        """Return the public starting point of a run, shape ``(d,)``; zeros by default.

        ``rng`` is the source of randomness for a random start: None, an int, a SeedSequence, a
        Generator or a SystemRandom.
        """
        return np.zeros(self.d)

    # Before anything is spent

    def check_private(self) -> None:
        """Raise if an assumption of the guarantee fails; the oracle calls this before it spends.

        The default check: a class that overrides a sum over records must itself override
        :meth:`facts`, or a subclass of it must, and no sum is set on the instance. A problem adds
        its own checks, for data that may have changed since they were checked, or for arguments
        that were derived from the private data. The oracle runs the checks of this package's
        classes even where a class overrides this method and forgets ``super()``.
        """
        found = overridden(type(self), _SUM_METHODS, "facts")
        if found is not None:
            kind, name, states = found
            raise TypeError(
                f"{kind} overrides {name}, but its facts are those of {states}: the noise would be "
                "computed from bounds on other sums; override facts too (return "
                "super().facts(relation) where they hold)"
            )
        for name in _SUM_METHODS:
            if name in self.__dict__:
                raise TypeError(
                    f"{name} must be a method of the problem's class, which states the facts of "
                    "its sums; it is set on the object"
                )

    # Private: for the oracle

    @abstractmethod
    def gradient_sum(self, w: Any, rows: Any = None, clipping: Clipping | None = None) -> Any:
        """Return the sum of the records' (clipped) gradients for each iterate.

        Without penalty or normalization: the oracle divides by the PUBLIC batch size.

        Parameters
        ----------
        w : ndarray of shape (R, d)
            Iterates of R replicates.
        rows : list of R int arrays, optional
            The batch of each replicate, possibly empty; all records by default.
        clipping : Clipping, optional
            Rule applied to the gradient of every record.

        Returns
        -------
        array of shape (R, d)
            On the device of the data.
        """

    def line_losses(
        self, w: np.ndarray, direction: np.ndarray, rows: Any = None
    ) -> Callable[[float], np.ndarray]:
        """Return the function t -> losses (m,) of the records ``rows`` at ``w - t direction``.

        Like the methods below, it raises TypeError unless the problem implements it.
        """
        self._raise_unsupported("line_losses")

    def hessian_sum(self, w: Any, rows: Any = None) -> Any:
        """Sum the records' Hessians at ``w`` of shape (d,): ``(d, d)``, without the penalty.

        Empty ``rows`` (m,) give zeros.
        """
        self._raise_unsupported("hessian_sum")

    def hvp_sum(self, w: Any, v: Any, rows: Any = None) -> Any:
        """Sum the records' Hessians at ``w`` times ``v``, without forming them: shape ``(d,)``."""
        self._raise_unsupported("hvp_sum")

    def minimize_perturbed(
        self, linear: np.ndarray, ridge: float, tolerance: float, size: float
    ) -> tuple[np.ndarray, int]:
        """Minimize the sum of losses over ``size`` + penalty + <linear, w> + ridge/2 ||w||^2.

        Returns a point, shape (d,), where the gradient's norm is at most ``tolerance``, and the
        number of gradient evaluations. The perturbed objective must be strongly convex.
        """
        self._raise_unsupported("minimize_perturbed")

    def check_offers(self, name: str) -> None:
        """Raise TypeError if the problem does not implement the method of this name."""
        if getattr(type(self), name) is getattr(Problem, name):
            self._raise_unsupported(name)

    def _raise_unsupported(self, what: str) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__} offers no {what}, which this query asks for: take a method "
            "that does without it, or another problem"
        )

    # Private and without noise: for reference

    @abstractmethod
    def value(self, w: Any) -> Any:
        """Objective at ``w``: a float for ``(d,)``, shape ``(R,)`` for ``(R, d)``."""

    @abstractmethod
    def gradient(self, w: Any) -> Any:
        """Gradient of the objective, the shape of ``w``."""


# A table of private numbers without a loss, for noisy quantiles


class ColumnTable(Problem):
    """Rows of numbers (n, d) without a loss, for queries only; no method can minimize it.

    A copy of the numbers, which must be finite, is kept. ``size`` is the public nominal size; by
    default n, which is then declared to be public.
    """

    mu, L = 0.0, math.inf

    def __init__(self, X: Any, size: int | None = None) -> None:
        X, _ = prepare(np.array(X, dtype=np.float64), np.ones(len(X)), False)
        self.X = X
        self.n, self.d = X.shape
        self._size = None if size is None else check_size(size, self.n)

    def facts(self, relation: str) -> PublicFacts:
        """Return the sizes; gradient bounds are infinite."""
        n, most = self.n, None
        if self._size is not None:
            n, most = self._size, MOST_ROWS * self._size
        none = (math.inf, math.inf)
        return PublicFacts(n, self.d, self.mu, self.L, relation, none, max_records=most)

    def gradient_sum(self, *arguments: Any, **named: Any) -> NoReturn:
        """Raise TypeError: there is no loss."""
        self._raise_unsupported("loss")

    value = gradient = gradient_sum


# Solvers


_DENSE_HESSIAN = 2000  # number of parameters up to which the Hessian is formed
_NEWTON_STEPS = 50
_SAMPLED = 32  # records per parameter in the subsampled Hessian of the first steps
_FEW_HALVINGS, _HALVINGS = 12, 50  # of a step, to decrease the gradient norm and the objective
_RISES = 50  # consecutive steps allowed without a new minimum of the gradient norm


def _newton_steps(problem: Any, w: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Return the map from a gradient to its Newton step at ``w``; least squares if singular."""
    if problem.d > _DENSE_HESSIAN:
        operator = LinearOperator((problem.d, problem.d), matvec=lambda v: problem.hvp(w, v))
        return lambda gradient: cg(operator, gradient, rtol=1e-6, maxiter=10 * problem.d)[0]
    return _solver(problem.hessian(w))


def _solver(hessian: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Return the map from a gradient to its Newton step, as :func:`_newton_steps`."""
    try:
        factors = cho_factor(hessian)
    except np.linalg.LinAlgError:
        return lambda gradient: lstsq(hessian, gradient)[0]
    return lambda gradient: cho_solve(factors, gradient)


def separated_below(problem: Any) -> float:
    """Return the objective value below which logistic loss or cross-entropy has no minimizer.

    A misclassified sample has a loss of at least ln 2. If none is misclassified, scaling up the
    weights decreases the objective further, unless there is a penalty.
    """
    penalty = problem.regularizer
    return math.log(2.0) / problem.size if penalty is None or penalty.L == 0.0 else 0.0


def find_minimizer(problem: Any, unattained: float = 0.0) -> np.ndarray:
    """Minimize ``problem`` from zero; warn if no minimizer is reached or below ``unattained``."""

    def both(w: np.ndarray) -> tuple[float, np.ndarray]:
        return problem.value(w), problem.gradient(w)

    w = np.zeros(problem.d)
    tolerance = 1e-10 * max(1.0, float(np.linalg.norm(problem.gradient(w))))
    options: Any = {"maxiter": 2000, "ftol": 1e-14, "gtol": 1e-7}
    w = minimize(both, w, jac=True, method="L-BFGS-B", options=options).x
    gradient = problem.gradient(w)
    norm = float(np.linalg.norm(gradient))
    settled = False
    for _ in range(_NEWTON_STEPS):
        step = _newton_steps(problem, w)(gradient)
        # If the iterates diverge, the gradient vanishes but the steps do not.
        settled = float(np.linalg.norm(step)) <= 1e-6 * (1.0 + float(np.linalg.norm(w)))
        if norm <= tolerance and settled:
            break
        trial_gradient = problem.gradient(w - step)
        trial_norm = float(np.linalg.norm(trial_gradient))
        if not trial_norm < norm:
            break
        w, gradient, norm = w - step, trial_gradient, trial_norm
    # Where the gradient is zero to machine precision the steps carry no information.
    if norm > tolerance or not settled or problem.value(w) < unattained:
        warn_caller(
            f"no minimizer reached: the gradient's norm is {norm:.3g} at ||w|| = "
            f"{np.linalg.norm(w):.3g} (separable classes without a penalty have none)",
            RuntimeWarning,
        )
    return w


@dataclass(frozen=True)
class PerturbedObjective:
    """A problem plus ``<linear, w>`` and ``ridge/2 ||w||^2``; its sum is divided by ``size``."""

    problem: Any
    linear: np.ndarray
    ridge: float
    size: float

    @property
    def d(self) -> int:
        """Number of parameters."""
        return len(self.linear)

    @property
    def smoothness(self) -> float:
        """Smoothness of this objective, from public bounds."""
        return self.ridge + self.problem.L * max(1.0, self.problem.n / self.size)

    def gradient(self, w: np.ndarray) -> np.ndarray:
        """Gradient at ``w``."""
        gradient = self.problem.sums(w, value=False).gradient / self.size + self.linear
        penalty = self.problem.regularizer
        return gradient + self.ridge * w + (0.0 if penalty is None else penalty.gradient(w))

    # These give exact Newton steps if the problem's nominal size equals ``size``.

    def hessian(self, w: np.ndarray, records: np.ndarray | None = None) -> np.ndarray:
        """Hessian at ``w``, for steps; estimated from ``records`` (m,) if given."""
        problem = self.problem
        found = problem.hessian(w) if records is None else problem.sampled_hessian(w, records)
        return found + self.ridge * np.eye(self.d)

    def hvp(self, w: np.ndarray, v: np.ndarray) -> np.ndarray:
        """Hessian at ``w`` times ``v``, for steps."""
        return self.problem.hvp(w, v) + self.ridge * v


def minimize_perturbed(problem: PerturbedObjective, tolerance: float) -> tuple[np.ndarray, int]:
    """Return a point with gradient norm at most ``tolerance`` and the number of evaluations.

    Takes Newton steps, halved until the gradient norm falls below all previous ones. Where that
    fails, as it may for a loss with discontinuous curvature, takes the longest of these steps at
    whose end the objective still decreases: by convexity it has decreased by the step length times
    the slope there. If there is none, or too many in a row, takes a gradient step with step size
    1/smoothness, which always shrinks the gradient norm of a strongly convex objective; so the
    method terminates, whatever the data.

    A Hessian costs as much as several gradients: one with which the norm fell to a tenth is reused
    as long as the norm is halved. The first steps use subsampled Hessians.
    """
    w = np.zeros(problem.d)
    gradient, count = problem.gradient(w), 1
    w, gradient, more = _approach(problem, gradient, tolerance)
    count += more
    norm = least = float(np.linalg.norm(gradient))
    rises, kept = 0, None
    found: tuple[np.ndarray, np.ndarray] | None
    while norm > tolerance:
        if kept is not None:
            end = w - kept(gradient)
            found, count = (end, problem.gradient(end)), count + 1
            if not float(np.linalg.norm(found[1])) <= 0.5 * least:
                kept = None
                continue
        else:
            steps = _newton_steps(problem, w)
            found, evaluations = _newton_line(problem, w, gradient, steps(gradient), least)
            count += evaluations
            if found is None or (rises >= _RISES and float(np.linalg.norm(found[1])) >= least):
                end = w - gradient / problem.smoothness
                found, count = (end, problem.gradient(end)), count + 1
                if not float(np.linalg.norm(found[1])) < norm:
                    # The norm itself is private.
                    raise FloatingPointError(
                        f"the gradient's norm does not fall to tolerance = {tolerance:g}"
                    )
        w, gradient = found
        before, norm = norm, float(np.linalg.norm(gradient))
        kept = steps if norm <= 0.1 * before and problem.d <= _DENSE_HESSIAN else None
        rises = 0 if norm < least else rises + 1
        least = min(least, norm)
    return w, count


def _approach(
    problem: PerturbedObjective, gradient: np.ndarray, tolerance: float
) -> tuple[np.ndarray, np.ndarray, int]:
    """Return a point, its gradient and the evaluations: steps from 0 that each halve the norm."""
    # Each uses the Hessian of :data:`_SAMPLED` times d records. They end at a hundredth of the
    # first norm, from where a single full Hessian mostly suffices.
    w, count, norm = np.zeros(problem.d), 0, float(np.linalg.norm(gradient))
    enough = max(tolerance, 0.01 * norm)
    n, sampled = problem.problem.n, _SAMPLED * problem.d
    if n < 8 * sampled or problem.d > _DENSE_HESSIAN:
        return w, gradient, count
    records = np.sort(np.random.default_rng(0).integers(n, size=sampled))
    while norm > enough:
        end = w - _solver(problem.hessian(w, records))(gradient)
        following, count = problem.gradient(end), count + 1
        before, norm = norm, float(np.linalg.norm(following))
        if not norm <= 0.5 * before:
            break
        w, gradient = end, following
    return w, gradient, count


def _newton_line(
    problem: PerturbedObjective,
    w: np.ndarray,
    gradient: np.ndarray,
    direction: np.ndarray,
    least: float,
) -> tuple[tuple[np.ndarray, np.ndarray] | None, int]:
    """Return an acceptable point along a Newton step with its gradient, or None; evaluations."""
    slope, falls = float(gradient @ direction), None
    for k in range(_HALVINGS):
        t = 0.5**k
        step = w - t * direction
        following = problem.gradient(step)
        if k < _FEW_HALVINGS and np.linalg.norm(following) <= (1.0 - 0.1 * t) * least:
            return (step, following), k + 1
        if falls is None and following @ direction >= 0.1 * slope:
            falls = step, following
        if falls is not None and k + 1 >= _FEW_HALVINGS:
            return falls, k + 1
    return None, _HALVINGS
