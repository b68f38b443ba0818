"""The interface of problems, a table without a loss, and minimizers to a given precision."""

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

_ANSWERS = (
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
    """What is minimized, and what a private run may ask of it.

    A problem of your own is a subclass with the attributes below and four methods:
    :meth:`facts`, :meth:`value`, :meth:`gradient` and :meth:`gradient_sum`. Everything else has
    a default. Nothing that is not listed here is asked of it, except that the recorders
    ``"accuracy"`` and ``"gap"`` of :func:`~dpanalysis.minimize` need ``accuracy(w)`` and
    ``solve()``.

    **Public**, known to the world beside the answers: ``n``, ``d``, ``regularizer``, ``mu``,
    ``L``, :meth:`facts`, :meth:`check_clipping`, :meth:`initial`. None of them may depend on a
    private record; n is public by agreement. Where it is not, as under ``"add_or_remove_one"``,
    :meth:`facts` must state another ``n``, a nominal size, and how many records may be there
    (``max_records``): the oracle divides by ``facts.n`` and draws from the ``n`` records at hand.

    **Private**, seen by the oracle alone, which adds the noise: :meth:`gradient_sum`,
    :meth:`line_losses`, :meth:`hessian_sum`, :meth:`hvp_sum`, :meth:`minimize_perturbed`. What one
    record can change in them is bounded by :meth:`facts`.

    **Private, and without noise**: :meth:`value` and :meth:`gradient`. They are for reference
    and for what a run records beside its answer; a release of them has no guarantee.

    Attributes
    ----------
    n : int
        Number of records.
    d : int
        Number of parameters.
    regularizer : Regularizer or None
        Public penalty. It is added to the noisy answers, and never enters a sensitivity.
    mu, L : float
        Strong convexity and smoothness of the objective by public bounds; ``L`` may be inf.

    Examples
    --------
    The mean of numbers in [0, 1], which a record moves by at most 1/n:

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
        """Return what is public of the problem under a neighbouring relation.

        The noise of every release is computed from these bounds, so they must hold for every
        record that may occur and must not be read off the data.
        """

    def check_clipping(self, clipping: Clipping | None) -> None:
        """Raise unless the rule bounds the gradient of every record that may occur.

        That is decided by public bounds, never by the data at hand. By default every rule is
        refused: the noise of a run with a rule is computed from its ``clip_norm``, which is too
        little unless :meth:`gradient_sum` weighs each record's gradient by ``rule.weight``.
        Override this where it does: TypeError for what is no rule of :mod:`dpanalysis.clipping` (or
        None), ValueError for a rule that does not bound every record's gradient.
        """
        check_clipping(clipping)
        if clipping is not None:
            raise ValueError(
                f"{type(self).__name__} takes no clipping rule, got {clipping!r}: override "
                "check_clipping once gradient_sum weighs each record's gradient by "
                "clipping.weight(norm, loss)"
            )

    def initial(self, rng: Any = None) -> np.ndarray:
        """Return the public start of a run, shape ``(d,)``; zeros here.

        ``rng`` is the source of randomness for a start that is drawn: None, an int, a SeedSequence,
        a Generator or a SystemRandom.
        """
        return np.zeros(self.d)

    # Before anything is spent

    def check_private(self) -> None:
        """Raise where the guarantee's assumptions do not hold; the oracle asks before it buys.

        Here: a class that overrides a sum over records must override :meth:`facts` too, or a class
        below it, and no sum is set on the object. A problem adds what else it needs, for data that
        may have been changed since they were checked, or for arguments that were taken from the
        private data. The oracle makes the checks of this package's classes even where a class
        overrides this method and forgets ``super()``.
        """
        found = overridden(type(self), _ANSWERS, "facts")
        if found is not None:
            kind, name, states = found
            raise TypeError(
                f"{kind} overrides {name}, but its facts are those of {states}: the noise would be "
                "computed from bounds on other sums; override facts too (return "
                "super().facts(relation) where they hold)"
            )
        for name in _ANSWERS:
            if name in self.__dict__:
                raise TypeError(
                    f"{name} must be a method of the problem's class, which states the facts of "
                    "its sums; it is set on the object"
                )

    # Private: for the oracle

    @abstractmethod
    def gradient_sum(self, w: Any, rows: Any = None, clipping: Clipping | None = None) -> Any:
        """Return the sum of the records' (clipped) gradients for each iterate.

        Without the penalty and without a division: the oracle divides by the PUBLIC batch size.

        Parameters
        ----------
        w : ndarray of shape (R, d)
            Iterates of R replicates.
        rows : list of R int arrays, optional
            The batch of each replicate, empty ones included; all records by default.
        clipping : Clipping, optional
            Rule for the gradient of every record.

        Returns
        -------
        array of shape (R, d)
            Where the data live.
        """

    def line_losses(
        self, w: np.ndarray, direction: np.ndarray, rows: Any = None
    ) -> Callable[[float], np.ndarray]:
        """Return the function t -> losses (m,) of the records ``rows`` at ``w - t direction``.

        TypeError if the problem does not offer it, as by default; so below.
        """
        self._lacks("line_losses")

    def hessian_sum(self, w: Any, rows: Any = None) -> Any:
        """Sum the records' Hessians at ``w`` of shape (d,): ``(d, d)``, without the penalty.

        None of ``rows`` (m,) gives zeros.
        """
        self._lacks("hessian_sum")

    def hvp_sum(self, w: Any, v: Any, rows: Any = None) -> Any:
        """Sum the records' Hessians at ``w`` times ``v``, without forming them: shape ``(d,)``."""
        self._lacks("hvp_sum")

    def minimize_perturbed(
        self, linear: np.ndarray, ridge: float, tolerance: float, size: float
    ) -> tuple[np.ndarray, int]:
        """Minimize the sum of losses over ``size`` + penalty + <linear, w> + ridge/2 ||w||^2.

        Returns the point, shape (d,), where the gradient's norm is at most ``tolerance``, and
        the number of gradients that it took. The whole must be strongly convex.
        """
        self._lacks("minimize_perturbed")

    def check_offers(self, name: str) -> None:
        """Raise TypeError where the problem offers no method of this name."""
        if getattr(type(self), name) is getattr(Problem, name):
            self._lacks(name)

    def _lacks(self, what: str) -> NoReturn:
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


# A table of private numbers without a loss: what noisy quantiles are asked of


class ColumnTable(Problem):
    """Rows of numbers (n, d) without a loss: queries read them, and no method descends on them.

    A copy of the finite numbers is kept. ``size`` is the public nominal size; by default n, which
    is then stated to be public.
    """

    mu, L = 0.0, math.inf

    def __init__(self, X: Any, size: int | None = None) -> None:
        X, _ = prepare(np.array(X, dtype=np.float64), np.ones(len(X)), False)
        self.X = X
        self.n, self.d = X.shape
        self._size = None if size is None else check_size(size, self.n)

    def facts(self, relation: str) -> PublicFacts:
        """Return the sizes; no gradient is bounded."""
        n, most = self.n, None
        if self._size is not None:
            n, most = self._size, MOST_ROWS * self._size
        none = (math.inf, math.inf)
        return PublicFacts(n, self.d, self.mu, self.L, relation, none, max_records=most)

    def gradient_sum(self, w: Any, rows: Any = None, clipping: Any = None) -> Any:
        """There is no loss: raise TypeError."""
        self._lacks("gradient")

    def value(self, w: Any) -> Any:
        """There is no loss: raise TypeError."""
        self._lacks("value")

    def gradient(self, w: Any) -> Any:
        """There is no loss: raise TypeError."""
        self._lacks("gradient")


# Minimizers


_DENSE_HESSIAN = 2000  # features up to which the Hessian is formed
_NEWTON_STEPS = 50
_SAMPLED = 32  # records a feature whose Hessian serves for the first steps
_FEW_HALVINGS, _HALVINGS = 12, 50  # of a step, for the norm of the gradient and for the objective
_RISES = 50  # steps in a row at whose end the norm was not less than ever before


def _newton_steps(problem: Any, w: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Return the solver of Hessian times step = gradient at ``w``, by least squares if singular."""
    if problem.d > _DENSE_HESSIAN:
        operator = LinearOperator((problem.d, problem.d), matvec=lambda v: problem.hvp(w, v))
        return lambda gradient: cg(operator, gradient, rtol=1e-6, maxiter=10 * problem.d)[0]
    return _solver(problem.hessian(w))


def _solver(hessian: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Return the function that solves Hessian times step = gradient, as above."""
    try:
        factors = cho_factor(hessian)
    except np.linalg.LinAlgError:
        return lambda gradient: lstsq(hessian, gradient)[0]
    return lambda gradient: cho_solve(factors, gradient)


def separated_below(problem: Any) -> float:
    """Return the value below which logistic losses or cross-entropies have no minimizer.

    A sample that is not on the right side of every boundary loses ln 2 or more. Where all are,
    longer weights are better still, unless there is a penalty.
    """
    penalty = problem.regularizer
    return math.log(2.0) / problem.size if penalty is None or penalty.L == 0.0 else 0.0


def find_minimizer(problem: Any, unattained: float = 0.0) -> np.ndarray:
    """Minimize ``problem`` from zero; warn without a minimizer, as below ``unattained``."""

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
        # On the way to infinity the gradient vanishes but the steps do not.
        settled = float(np.linalg.norm(step)) <= 1e-6 * (1.0 + float(np.linalg.norm(w)))
        if norm <= tolerance and settled:
            break
        trial_gradient = problem.gradient(w - step)
        trial_norm = float(np.linalg.norm(trial_gradient))
        if not trial_norm < norm:
            break
        w, gradient, norm = w - step, trial_gradient, trial_norm
    # Where the gradient is zero to machine precision the steps tell nothing.
    if norm > tolerance or not settled or problem.value(w) < unattained:
        warn_caller(
            f"no minimizer reached: the gradient's norm is {norm:.3g} at ||w|| = "
            f"{np.linalg.norm(w):.3g} (separable classes without a penalty have none)",
            RuntimeWarning,
        )
    return w


@dataclass(frozen=True)
class PerturbedObjective:
    """A problem plus ``<linear, w>`` and ``ridge/2 ||w||^2``, with its sum divided by ``size``."""

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
        """Of this objective, from public bounds."""
        return self.ridge + self.problem.L * max(1.0, self.problem.n / self.size)

    def gradient(self, w: np.ndarray) -> np.ndarray:
        """Gradient at ``w``."""
        gradient = self.problem.sums(w, value=False).gradient / self.size + self.linear
        penalty = self.problem.regularizer
        return gradient + self.ridge * w + (0.0 if penalty is None else penalty.gradient(w))

    # The steps are Newton's where the problem's nominal size is the size.

    def hessian(self, w: np.ndarray, records: np.ndarray | None = None) -> np.ndarray:
        """Hessian at ``w``, for steps; with ``records`` (m,) in place of all."""
        problem = self.problem
        found = problem.hessian(w) if records is None else problem.sampled_hessian(w, records)
        return found + self.ridge * np.eye(self.d)

    def hvp(self, w: np.ndarray, v: np.ndarray) -> np.ndarray:
        """Hessian at ``w`` times ``v``, for steps."""
        return self.problem.hvp(w, v) + self.ridge * v


def minimize_perturbed(problem: PerturbedObjective, tolerance: float) -> tuple[np.ndarray, int]:
    """Return a point where the gradient's norm is at most ``tolerance``, and evaluations made.

    Newton steps, halved until the norm falls below all before it. Where that fails, as it may for a
    loss whose curvature jumps, the longest of these steps at whose end the objective still falls:
    by convexity it has fallen by the length of the step times the slope there. Should there be
    none, or too many in a row, a gradient step of the inverse smoothness, which shrinks the norm of
    a strongly convex objective for sure; so there is an end, whatever the data.

    A Hessian takes as long as several gradients: one with which the norm fell to a tenth serves
    again, as long as the norm is halved. The first steps are with Hessians of some records.
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
                    raise FloatingPointError(
                        f"the gradient's norm {norm:.3g} does not fall to tolerance = {tolerance:g}"
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
    """Return a point, its gradient and the evaluations made: steps from 0 that halve the norm."""
    # Each is with the Hessian of :data:`_SAMPLED` times d records. They end at a hundredth of the
    # first norm, from where one Hessian of all records mostly serves to the end.
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
    """Return a point along a Newton step with its gradient, if there is one, and evaluations."""
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
