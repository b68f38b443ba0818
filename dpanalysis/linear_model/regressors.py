r"""Private linear regression, with defaults that depend on public facts only.

The usual approach adds noise to the sufficient statistics :math:`[X\,y]^\top [X\,y]`. It must hide
a row times itself, about :math:`d^2/2` numbers; noise on gradients hides a row times a residual, d
numbers, and a residual can be clipped. ``python -m benchmarks regression`` compares both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import RegressorMixin

from .._validation import check_number, warn_caller
from ..clipping import Flat
from ..losses import Huber, Loss, SquaredError
from ..methods.sgd import SGD
from ..preprocessing.columns import LearnedRanges, fits_in
from ..privacy.accounting.relations import Budget
from ..privacy.facts import PublicFacts
from ..problems import ERM
from .estimator import PrivacyWarning, PrivateLinearModel
from .runs import (
    LONG,
    PLAIN_STEPS,
    Run,
    clipped_descent,
    least_penalty,
    mean_noise,
    noise_length,
    perturbation,
    row_variance,
    rule_facts,
    run,
)

_NO_RANGE = (
    "target_bounds must be (low, high) with low < high, a range of the target that was public "
    "before the data were seen, got {!r}: y is clipped to it, and a range read off y would "
    "reveal something about single records"
)


@dataclass(frozen=True)
class TargetRange:
    """Public range of the target, with the shift and scale that map it into [-1, 1]."""

    low: float
    high: float
    center: float
    half: float

    @classmethod
    def of(cls, given: Any, centered: bool) -> TargetRange:
        """Return the validated range ``given``, centered if there is an intercept."""
        try:
            low, high = (check_number("target_bounds", end) for end in given)
        except (TypeError, ValueError):
            raise ValueError(_NO_RANGE.format(given)) from None
        center = 0.5 * low + 0.5 * high if centered else 0.0
        half = 0.5 * high - 0.5 * low if centered else max(abs(low), abs(high))
        if not (low < high and 0.0 < half < math.inf):
            raise ValueError(_NO_RANGE.format(given))
        return cls(low, high, center, half)

    @np.errstate(all="ignore")  # a warning would reveal a record
    def scaled(self, y: np.ndarray) -> np.ndarray:
        """Return the targets, clipped to the range and scaled to [-1, 1]."""
        cut = np.clip(np.asarray(y, dtype=np.float64), self.low, self.high)
        return np.clip((cut - self.center) / self.half, -1.0, 1.0)  # the quotient is rounded


# The rules; targets are in [-1, 1], and columns have size 1. Their constants are rounded results of
# trials with the diabetes data, and with a column of Adult, Bank and ijcnn1 as the target.

# Width of the Huber loss times the length of the random term at width 1, and its least and largest.
_WIDTH, _NARROW, _WIDE = 0.0035, 0.25, 1.0
_FACTOR, _POWER = 7.0, 1.3  # of the penalty
_CLIPPING = Flat(0.35)  # of descent
_REACH = 0.5  # length to which the noise of descent may add up, about that of the weights
_LESS = 0.05  # by which descent may be expected to be worse: real targets cost minimization more


def width_for(facts: PublicFacts, budget: Budget) -> float:
    r"""Return the width of the Huber loss, given the facts for width 1.

    The sensitivity, and hence the noise, is proportional to the width. Clipping residuals costs
    accuracy where their distribution is skewed. So the width is 1 with little noise, where no
    residual below half of the target's range is clipped, and falls to 1/4 with more.
    """
    return min(max(_WIDTH / noise_length(facts, budget), _NARROW), _WIDE)


def penalty_for(facts: PublicFacts, budget: Budget) -> float:
    r"""Return the strength of the L2 penalty for a budget.

    Let the random term divided by n have length :math:`\tau`, and the exact weights length 1. In a
    direction of variance h the best strength is :math:`\tau^2/h`, by the mean squared error
    :math:`(\tau^2 + \lambda^2)/(h+\lambda)^2`, for variances above :math:`\tau`; the other
    directions are lost in the noise. So the best strength for a whole spectrum is between
    :math:`\tau^2` and :math:`\tau`: :math:`7\,\tau^{1.3}` was fitted. The strength is at least
    :func:`~dpanalysis.linear_model.runs.least_penalty`.
    """
    return max(_FACTOR * noise_length(facts, budget) ** _POWER, least_penalty(facts, budget))


def descent_for(facts: PublicFacts, budget: Budget) -> SGD | None:
    """Return noisy gradient descent where it may be better: where the random term is long."""
    # There the clip norm 0.35 is small compared with the longest row.
    if budget.delta == 0.0 or noise_length(facts, budget) < LONG:
        return None
    return clipped_descent(facts, budget, _CLIPPING, 2.0 / facts.hessian_bound, _REACH)


class Expected(NamedTuple):
    """The loss that a run minimizes, and the R^2 to expect for the easiest target."""

    loss: Loss
    r2: float


def expected_r2(facts: PublicFacts, method: Any, noise: float, width: float = _WIDE) -> float:
    r"""Return the R^2 to expect for the easiest target, from public facts.

    The easiest target is a linear function of centered, uncorrelated columns of variance v each;
    its own variance is 1/3, as if uniform on [-1, 1].

    *Objective perturbation.* With a random term b/n of length :math:`\tau` and a penalty
    :math:`\lambda` the weights are :math:`(qvw - b)/(qv + \lambda)`, and the unexplained variance,
    relative to 1/3, is

    .. math:: \frac{\lambda^2 + 3 v \tau^2}{(qv + \lambda)^2},

    with q = 1 where no residual is clipped. For residuals uniform on an interval of which a share
    p is within the width, the gradient is smaller by a factor :math:`q = p^3 + 3 p (1 - p^2)/2`.
    That interval depends on the unexplained variance, so q solves a fixed-point equation.

    *Descent* for a total time T reaches a share :math:`1 - e^{-x}` of the weights, :math:`x = v T`.
    Its noise, of length :math:`\tau T` without a gradient, has shrunk to the square :math:`\tau^2
    T^2 (1 - e^{-2x})/(2x)`. Where typical gradients are clipped, x is smaller by the same factor.
    """
    columns = sum(block.size for block in facts.row_blocks[0])
    square = row_variance(facts)
    v = square / columns
    if not isinstance(method, SGD):
        left = 1.0
        for _ in range(50):
            p = min(1.0, width / max(math.sqrt(left), width))
            pull = v * (p**3 + 1.5 * p * (1.0 - p**2))
            whole = pull + method.ridge  # whose square may overflow
            left = (method.ridge / whole) ** 2 + 3.0 * v * (noise / whole) ** 2
        return 1.0 - left
    time = PLAIN_STEPS * float(method.step_size)  # type: ignore[arg-type]  # one number
    x = v * time * min(1.0, _CLIPPING.clip_norm / math.sqrt(square / 3.0))
    left = noise**2 * time**2 * -math.expm1(-2.0 * x) / (2.0 * x)
    return 1.0 - math.exp(-2.0 * x) - 3.0 * v * left


class Ridge(RegressorMixin, PrivateLinearModel):
    r"""Private linear regression with an L2 penalty.

    The Huber loss, quadratic up to a bound and linear beyond, bounds the gradient of a record
    whatever its target. A random linear term is added to the penalized loss, which is then
    minimized exactly (objective perturbation).

    Parameters
    ----------
    epsilon : float
        Budget of the fit, in (0, inf).
    delta : float
        In [0, 1/n); 0 gives pure differential privacy.
    alpha : float or "auto"
        Strength of the penalty, as in scikit-learn: :math:`\alpha\|w\|^2`, added to the sum of
        squares, with weights w in units in which features have size 1; in [0, inf). It is raised
        where privacy needs more. ``"auto"``: a rule that uses public facts only; for delta > 0 and
        large noise it selects noisy gradient descent without a penalty instead, unless long rows
        make its clipping the larger error.
    fit_intercept : bool
        The intercept is the weight of a constant column, penalized like all others: without data it
        is the middle of ``target_bounds``.
    bounds : (low, high), PublicColumns, RowBound or sequence of RowBound, optional
        As in :class:`LogisticRegression`.
    target_bounds : (low, high)
        Public range of the target, to which it is clipped. Required, and not to be read off y; a
        wide range costs accuracy, since the noise is proportional to it.
    relation, size, random_state
        As in :class:`LogisticRegression`.

    Attributes
    ----------
    coef_ : ndarray of shape (d,)
    intercept_ : float
    privacy_ : PrivacyCard
        The guarantee and what it covers, as text, ``to_json()`` and ``to_html()``.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Of data with names.

    Notes
    -----
    *Privacy.* The Huber loss of width h is convex, with slope at most h and curvature at most 1,
    at any prediction and any target. So the gradient of a record with a row of length R has norm
    at most hR, and its Hessian has rank 1 and trace at most :math:`R^2`. These are the
    assumptions of :class:`dpanalysis.privacy.queries.PerturbedMinimum`, which has the proof: if
    the gradient has sensitivity S in the norm of the noise, in units of its scale, and the sum is
    penalized with strength c, the pure privacy loss is at most :math:`S + \ln(1 + R^2/c)`. Each
    step of descent releases a sum of clipped gradients with Gaussian noise.

    *The width*, on the scale on which the target lies in [-1, 1], is 1 (half of the range) with
    little noise and 1/4 with much, by public facts; the card states it. If all residuals are
    smaller, the minimizer is that of the squared error.

    *Why not sufficient statistics* (AdaSSP of Wang 2018 and others), the usual approach: noise on
    :math:`[X\,y]^\top[X\,y]` hides the longest row times itself; here it hides the row times a
    clipped residual. AdaSSP is less accurate on all data of ``python -m benchmarks regression``.

    References
    ----------
    Kifer, Smith, Thakurta (2012), Redberg, Koskela, Wang (2023) for objective perturbation; Wang
    (2018), Revisiting differentially private linear regression; Huber (1964).

    Examples
    --------
    >>> import numpy as np
    >>> from dpanalysis.linear_model import Ridge
    >>> X = np.random.default_rng(0).uniform(0, 10, size=(5000, 3))
    >>> y = X @ [1.0, -2.0, 3.0]
    >>> model = Ridge(epsilon=1.0, bounds=(0, 10), target_bounds=(-20, 40), random_state=0)
    >>> model.fit(X, y).score(X, y) > 0.95, model.privacy_.epsilon
    (True, 1.0)
    """

    _numeric = True
    _chosen_privately = "alpha='auto', which is chosen without looking"

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 0.0,
        *,
        alpha: float | str = "auto",
        fit_intercept: bool = True,
        bounds: Any = None,
        target_bounds: Any = None,
        relation: str = "replace_one",
        size: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.bounds = bounds
        self.target_bounds = target_bounds
        self.relation = relation
        self.size = size
        self.random_state = random_state

    def predict(self, X: Any) -> np.ndarray:
        """Return the predicted targets, shape (n,)."""
        return self._scores(X)

    def _check_parameters(self, budget: Budget) -> None:
        self._range()
        if self.alpha != "auto":
            check_number("alpha", self.alpha, low=0.0)

    def _range(self) -> TargetRange:
        return TargetRange.of(self.target_bounds, bool(self.fit_intercept))

    def _targets(
        self, y: np.ndarray, classes: tuple[Any, ...] = ()
    ) -> tuple[TargetRange, np.ndarray]:
        known = self._range()
        return known, known.scaled(y)

    def _learned_targets(self) -> tuple[LearnedRanges, ...]:
        return tuple(fits_in(self.target_bounds))

    def _solve(
        self, D: Any, targets: np.ndarray, known: Any, row_bound: Any, budget: Budget, rng: Any
    ) -> list[Run]:
        """Return a single run, whose weights refer to scaled rows and targets."""

        def problem(loss: Loss) -> ERM:
            return ERM(D, targets, loss, None, row_bound, size=self.size)

        facts = problem(Huber(_WIDE)).facts(budget.relation)
        width = width_for(facts, budget)
        chosen = problem(Huber(width))
        narrow, free = chosen.facts(budget.relation), self.alpha == "auto"
        ridge = penalty_for(narrow, budget) if free else float(self.alpha) / facts.n
        method: Any = replace(perturbation(), ridge=ridge)
        expected = expected_r2(facts, method, noise_length(narrow, budget), width)
        descent = descent_for(facts, budget) if free else None
        if descent is not None:
            noise = mean_noise(facts, budget, _CLIPPING) * math.sqrt(facts.d)
            clipped = expected_r2(facts, descent, noise)
            if clipped > expected - _LESS:
                chosen, method, expected = problem(SquaredError()), descent, clipped
        if expected < 0.5:
            text = _little(expected, facts.n, D.shape[1], budget.limit)
            warn_caller(text, PrivacyWarning)
        found = run(chosen, budget, rng, "auto", method)
        return [replace(found, expected=Expected(chosen.loss, expected))]

    def _keep(self, coef: np.ndarray, intercept: np.ndarray, known: TargetRange) -> None:
        self.coef_ = known.half * coef[0]
        self.intercept_ = known.center + known.half * float(intercept[0])

    def _method_facts(self, runs: list[Run], n: int, delta: float) -> dict[str, str]:
        loss = runs[0].expected.loss
        width = f"Huber's of width {loss.width:.3g}" if type(loss) is Huber else "squared error"
        return {
            "Loss": f"{width}, for targets on the scale from -1 to 1",
            **rule_facts(runs, self.alpha, delta, _CLIPPING.clip_norm),
        }

    def _about_targets(self, runs: list[Run]) -> tuple[dict[str, str], list[str], list[str]]:
        known = self._range()
        facts = {
            "Target": f"clipped to the range from {known.low:g} to {known.high:g}, taken as public",
            "Expected": f"{_of_clearest(runs[0].expected.r2)}; by sizes and bounds alone",
        }
        return facts, ["the range of the target"], []


def _of_clearest(expected: float) -> str:
    return (
        "for a target that is a linear function, uniform on its range, R^2 is about "
        f"{max(expected, 0.0):.2f} (0 for a constant prediction), and less in real data"
    )


def _little(expected: float, n: int, d: int, epsilon: float) -> str:
    """Return the warning that the noise hides more than half of the explainable variance."""
    return (
        f"little data for this epsilon: by n = {n}, d = {d} weights, epsilon = {epsilon:g} and the "
        f"bounds alone, {_of_clearest(expected)}. What would help: fewer columns or categories, "
        "more rows, narrower ranges, or a larger epsilon"
    )


class LinearRegression(Ridge):
    """Private linear regression without a penalty to choose: :class:`Ridge` with ``alpha="auto"``.

    Privacy requires a penalty, and it reduces the effect of noise; it vanishes as n grows.

    Parameters
    ----------
    epsilon, delta, fit_intercept, bounds, target_bounds, relation, size, random_state
        As in :class:`Ridge`.

    Attributes
    ----------
    coef_, intercept_, privacy_, n_features_in_, feature_names_in_
        As in :class:`Ridge`.

    Examples
    --------
    >>> import numpy as np
    >>> from dpanalysis.linear_model import LinearRegression
    >>> X = np.random.default_rng(0).uniform(0, 10, size=(5000, 3))
    >>> model = LinearRegression(bounds=(0, 10), target_bounds=(-20, 40), random_state=0)
    >>> model.fit(X, X @ [1.0, -2.0, 3.0]).predict([[5.0, 5.0, 5.0]]).round(-1)
    array([10.])
    """

    _chosen_privately = "the default penalty, which is chosen without looking"

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 0.0,
        *,
        fit_intercept: bool = True,
        bounds: Any = None,
        target_bounds: Any = None,
        relation: str = "replace_one",
        size: int | None = None,
        random_state: Any = None,
    ) -> None:
        super().__init__(
            epsilon=epsilon,
            delta=delta,
            fit_intercept=fit_intercept,
            bounds=bounds,
            target_bounds=target_bounds,
            relation=relation,
            size=size,
            random_state=random_state,
        )
