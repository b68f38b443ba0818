"""Stochastic gradient descent with clipped, noisy gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from .._validation import check_choice, check_finite, check_number, check_reals
from ..privacy.facts import PublicFacts
from ..privacy.sampling import Sampling
from .recursion import Coefficients, GivenNoise, Recursion, constant_coefficients

if TYPE_CHECKING:
    from ..theory import ErrorRecursion

__all__ = ["OUTPUTS", "SGD", "StepSize", "Stochastic"]

OUTPUTS = ("last", "uniform", "average")
StepSize = float | Sequence[float] | np.ndarray | Callable[[int], float]


@dataclass(frozen=True, repr=False, kw_only=True)
class Stochastic(Recursion):
    """A recursion that takes a schedule of step sizes and has no error bound.

    Attributes
    ----------
    noise : "uniform" or array_like of shape (iterations,)
        The same noise in every iteration, calibrated to the budget; or the standard
        deviations (Laplace scales) of the noise on the mean gradient. For the noise
        multiplier of the papers see :meth:`with_noise_multiplier`.
    mechanism : {"gaussian", "laplace"}
        Law of the noise.
    choose_iterations : None
        Refused, as ``noise="optimal"`` is: both need an error bound.
    output : {"last", "uniform", "average"}
        What of the iterates 0..T ``result.w`` is: the last; one of them, drawn uniformly for
        each replicate without a look at them; or their mean. The guarantee covers all
        iterates, so the choice costs nothing.
    """

    noise: GivenNoise = "uniform"
    mechanism: str = "gaussian"
    choose_iterations: None = None
    output: str = "last"
    step_size: StepSize

    def _check(self) -> None:
        super()._check()
        check_choice("output", self.output, OUTPUTS)
        if self.choose_iterations is not None or self.noise == "optimal":
            self._has_no_bound()
        if not callable(self.step_size) and np.ndim(self.step_size):
            object.__setattr__(self, "step_size", tuple(self._step_sizes().tolist()))
        self._step_sizes()

    def _step_sizes(self) -> np.ndarray:
        """Return the step size of each iteration, (T,)."""
        given = self.step_size
        if callable(given):
            given = [given(count) for count in range(self.iterations)]
        elif not np.ndim(given):
            check_number("step_size", given, low=0.0, low_open=True)
            return np.full(self.iterations, float(given))  # type: ignore[arg-type]
        steps = check_finite("step_size", check_reals("step_size", given))
        if steps.shape != (self.iterations,) or steps.min() <= 0.0:
            raise ValueError(
                f"step_size must be {self.iterations} numbers above 0, one an iteration, got shape "
                f"{steps.shape} with minimum {steps.min(initial=np.inf):g}"
            )
        return steps

    def error_recursion(self, facts: PublicFacts) -> ErrorRecursion:
        """Raise ValueError: there is none."""
        self._has_no_bound()

    def _has_no_bound(self) -> NoReturn:
        raise ValueError(
            f"noise='optimal' and choose_iterations need an error bound, and {type(self).__name__} "
            "has none: use noise='uniform' or numbers, or GradientDescent, HeavyBall, Nesterov or "
            "MultistageNesterov"
        )


@dataclass(frozen=True, repr=False)
class SGD(Stochastic):
    r"""DP-SGD: descend along the noisy mean of clipped gradients of a drawn batch.

    .. math:: x_{t+1} = x_t + \beta (x_t - x_{t-1}) - \alpha_t \Big(\frac{1}{B}
              \sum_{i \in \text{batch}} w_i \nabla f_i(x_t) + \nabla r(x_t) + \text{noise}_t\Big)

    with the clipping rule's weights w_i, the EXPECTED batch size B, which is public (the
    size of a Poisson batch is not, and may be 0), and the public regulariser r outside the
    clip. Momentum is the heavy ball's; for a constant step that is the usual
    v = beta v + gradient, x = x - alpha v. With ``nesterov`` the gradient is taken at
    x_t + beta (x_t - x_{t-1}), and the step is made from there.

    Parameters
    ----------
    step_size : float, array_like of shape (iterations,) or callable
        alpha > 0; or one an iteration; or a schedule, count (from 0) -> step size.
    iterations : int
        T >= 1.
    sampling : Poisson, WithoutReplacement, WithReplacement or Full
        How the batch of each iteration is drawn; ``Poisson`` with a budget under
        add-or-remove-one is what the papers' accounting assumes.
    clipping : object or None
        Per-sample rule of :mod:`dpanalysis.clipping`; None where the problem bounds the
        gradient of every record by itself.
    momentum : float
        beta in [0, 1).
    nesterov : bool
        Whether gradients are taken ahead, where the momentum leads.
    noise, mechanism, choose_iterations, output
        See :class:`dpanalysis.methods.sgd.Stochastic`. Gaussian noise calibrated to a
        budget with delta > 0 uses the loss distribution of the whole run.

    Raises
    ------
    ValueError
        If an argument is outside its range, or an error bound is asked for.

    References
    ----------
    Xia et al., Differentially private learning with per-sample adaptive clipping, AAAI 2023,
    Algorithm 1 (which draws with replacement: ``WithReplacement``). Fang et al. (2023), Algorithm
    1, returns an iterate drawn uniformly (``output="uniform"``), and Algorithm 3 clips by values.

    Examples
    --------
    >>> import numpy as np
    >>> import dpanalysis as dpa
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(2000, 3))
    >>> problem = dpa.ERM(X, np.sign(X @ [1.0, -2.0, 0.5]), dpa.losses.Logistic())
    >>> rule = dpa.clipping.Flat(1.0)
    >>> method = dpa.methods.SGD(2.0, 200, sampling=dpa.Poisson(0.05), clipping=rule)
    >>> budget = dpa.Budget(1.0, delta=1e-5, relation="add_or_remove_one")
    >>> result = dpa.minimize(problem, method, budget, rng=0, every=200)
    >>> bool(0.999 < result.epsilon() <= 1.0), bool(problem.accuracy(result.w)[0] > 0.9)
    (True, True)
    """

    step_size: StepSize
    iterations: int
    sampling: Sampling = field()
    clipping: Any = field()
    momentum: float = 0.0
    nesterov: bool = False

    def __post_init__(self) -> None:
        check_number("momentum", self.momentum, low=0.0, high=1.0, high_open=True)
        check_choice("nesterov", self.nesterov, (False, True))
        self._check()

    def coefficients(self) -> Coefficients:
        """Return the schedule of steps with constant momentum."""
        ahead = self.momentum if self.nesterov else 0.0
        return constant_coefficients(self.iterations, self._step_sizes(), self.momentum, ahead)
