"""DP-SGD and DP-Adam: stochastic methods with clipped, noisy gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NoReturn

import numpy as np

from .._validation import check_choice, check_finite, check_number, check_positive, check_reals
from ..privacy.accounting.sampling import EpochSampling, Sampling
from ..privacy.facts import PublicFacts
from ..privacy.oracle import Batch, PrivateOracle
from ..theory import ErrorRecursion
from .planned import Coefficients, GivenNoise, Recursion, Schedule, State, constant_coefficients

OUTPUTS = ("last", "uniform", "average")
StepSize = float | Sequence[float] | np.ndarray | Callable[[int], float]


@dataclass(frozen=True, repr=False, kw_only=True)
class Stochastic(Recursion):
    """A recursion with a step size schedule and without an error bound.

    Attributes
    ----------
    noise : "uniform" or array_like of shape (iterations,)
        The same noise in every iteration, calibrated to the budget; or the standard
        deviations (Laplace scales) of the noise on the mean gradient. For noise given as a
        multiplier, as in the papers, see :meth:`with_noise_multiplier`.
    mechanism : {"gaussian", "laplace"}
        Distribution of the noise.
    choose_iterations : None
        Not supported, nor is ``noise="optimal"``: both need an error bound.
    output : {"last", "uniform", "average"}
        ``result.w`` is the last of the iterates 0..T; one of them, drawn uniformly for each
        replicate independently of their values; or their mean. The guarantee covers all iterates
        in each case. Of a run that stops before the drawn iterate, it is the last one.
    """

    epochs: ClassVar[bool] = True
    noise: GivenNoise = "uniform"
    mechanism: str = "gaussian"
    choose_iterations: None = None
    output: str = "last"
    step_size: StepSize

    def _check(self) -> None:
        super()._check()
        check_choice("output", self.output, OUTPUTS)
        if self.choose_iterations is not None or self.noise == "optimal":
            self._raise_without_bound()
        if not callable(self.step_size) and np.ndim(self.step_size):
            object.__setattr__(self, "step_size", tuple(self._step_sizes().tolist()))
        self._step_sizes()

    def _step_sizes(self) -> np.ndarray:
        """Return the step size of each iteration, (T,)."""
        given = self.step_size
        if callable(given):
            given = [given(count) for count in range(self.iterations)]
        elif not np.ndim(given):
            check_positive("step_size", given)
            return np.full(self.iterations, float(given))  # type: ignore[arg-type]
        steps = check_finite("step_size", check_reals("step_size", given))
        if steps.shape != (self.iterations,) or steps.min() <= 0.0:
            raise ValueError(
                f"step_size must be {self.iterations} numbers above 0, one per iteration, got "
                f"shape {steps.shape} with minimum {steps.min(initial=np.inf):g}"
            )
        return steps

    def error_recursion(self, facts: PublicFacts) -> ErrorRecursion:
        """Raise ValueError: there is no error bound."""
        self._raise_without_bound()

    def _raise_without_bound(self) -> NoReturn:
        raise ValueError(
            f"noise='optimal' and choose_iterations need an error bound, and {type(self).__name__} "
            "has none: use noise='uniform' or numbers, or GradientDescent, HeavyBall, Nesterov or "
            "MultistageNesterov"
        )


@dataclass(frozen=True, repr=False)
class SGD(Stochastic):
    r"""DP-SGD: steps along the noisy mean of a batch's clipped gradients.

    .. math:: x_{t+1} = x_t + \beta (x_t - x_{t-1}) - \alpha_t \Big(\frac{1}{B}
              \sum_{i \in \text{batch}} w_i \nabla f_i(x_t) + \nabla r(x_t) + \text{noise}_t\Big)

    with the clipping rule's weights w_i, the EXPECTED batch size B, which is public (the
    size of a Poisson batch is not, and may be 0), and the public regularizer r, which is not
    clipped. Momentum is that of the heavy ball; for a constant step size it is the usual
    v = beta v + gradient, x = x - alpha v. With ``nesterov`` the gradient is evaluated at
    x_t + beta (x_t - x_{t-1}), and the step starts there.

    Parameters
    ----------
    step_size : float, array_like of shape (iterations,) or callable
        alpha > 0; or one per iteration; or a schedule, iteration (from 0) -> step size.
    iterations : int
        T >= 1.
    sampling : Sampling or EpochSampling
        Draws the batch of each iteration: ``Poisson``, which the papers' accounting assumes with a
        budget under add-or-remove-one; ``WithoutReplacement``, ``WithReplacement``, ``Full``; or
        ``BallsInBins``, ``RandomAllocation``, ``Shuffle``, which divide the records among the
        batches of an epoch. An epoch is charged as a whole, even if ``iterations`` end within it.
    clipping : object or None
        Per-sample rule of :mod:`dpanalysis.clipping`; None if the problem bounds all gradients.
    momentum : float
        beta in [0, 1).
    nesterov : bool
        Whether gradients are evaluated at the extrapolated point.
    noise, mechanism, choose_iterations, output
        See :class:`dpanalysis.methods.sgd.Stochastic`. Gaussian noise is calibrated to a budget
        with delta > 0 by the privacy loss distribution of the whole run.

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
    sampling: Sampling | EpochSampling = field()  # type: ignore[assignment]
    clipping: Any = field()
    momentum: float = 0.0
    nesterov: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("momentum", self.momentum, low=0.0, high=1.0, high_open=True)
        check_choice("nesterov", self.nesterov, (False, True))
        self._check()

    def coefficients(self) -> Coefficients:
        """Return the schedule of steps with constant momentum."""
        ahead = self.momentum if self.nesterov else 0.0
        return constant_coefficients(self.iterations, self._step_sizes(), self.momentum, ahead)


@dataclass(frozen=True)
class AdamState(State):
    """A state with moving averages of past gradients: mean and root mean square, (R, d)."""

    mean: np.ndarray = field(repr=False, kw_only=True)
    size: np.ndarray = field(repr=False, kw_only=True)


@dataclass(frozen=True, repr=False)
class Adam(Stochastic):
    r"""DP-Adam: Adam with the noisy gradient g_t of :class:`SGD`.

    .. math:: m_t = \beta_1 m_{t-1} + (1-\beta_1) g_t, \quad
              v_t = \beta_2 v_{t-1} + (1-\beta_2) g_t^2, \quad
              x_{t+1} = x_t - \alpha_t \frac{m_t / (1-\beta_1^t)}{\sqrt{v_t / (1-\beta_2^t)}
              + \text{eps}}

    Both averages are computed from released gradients, so they cost no privacy. v includes the
    variance of the noise: if it dominates, the steps are those of SGD with momentum.

    Parameters
    ----------
    step_size, iterations, sampling, clipping
        As :class:`SGD`.
    betas : (float, float)
        Both in [0, 1).
    eps : float
        Added to the root, > 0.
    weight_decay : float
        lambda >= 0: each step also subtracts alpha_t lambda x_t from the iterate, outside the
        averages ("decoupled"). It depends on the iterate only, so it costs no privacy.
    noise, mechanism, choose_iterations, output
        See :class:`dpanalysis.methods.sgd.Stochastic`.

    References
    ----------
    Kingma, Ba, Adam: a method for stochastic optimization, ICLR 2015, Algorithm 1; with
    private gradients in the experiments of Xia et al. (2023). Weight decay: Loshchilov, Hutter,
    Decoupled weight decay regularization, ICLR 2019, Algorithm 2.

    Examples
    --------
    >>> import dpanalysis as dpa
    >>> problem = dpa.Quadratic([0.01, 1.0])
    >>> method = dpa.methods.Adam(0.1, 300, dpa.Full(), clipping=None)
    >>> float(problem.value(dpa.minimize(problem, method, w0=[8.0, 8.0]).w)[0]) < 1e-2
    True
    """

    step_size: StepSize
    iterations: int
    sampling: Sampling | EpochSampling = field()  # type: ignore[assignment]
    clipping: Any = field()
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.betas, (tuple, list)) or len(self.betas) != 2:
            raise TypeError(f"betas must be two numbers in [0, 1), got {self.betas!r}")
        betas = [
            check_number(f"betas[{i}]", beta, low=0.0, high=1.0, high_open=True)
            for i, beta in enumerate(self.betas)
        ]
        object.__setattr__(self, "betas", tuple(betas))
        check_positive("eps", self.eps)
        check_number("weight_decay", self.weight_decay, low=0.0)
        self._check()

    def coefficients(self) -> Coefficients:
        """Return the step sizes; the momentum is in the averages."""
        return constant_coefficients(self.iterations, self._step_sizes())

    def _warn_if_unstable(self, coefficients: Coefficients, facts: object) -> None:
        """Do nothing: no step is longer than a few step sizes, whatever the curvature."""

    def init(self, w0: np.ndarray, plan: Schedule) -> AdamState:
        """Return the state at ``w0`` of shape (R, d) with zero averages."""
        zero = np.zeros_like(w0)
        return AdamState(w0, w0, 0, plan, mean=zero, size=zero)

    def step(self, state: State, oracle: PrivateOracle | Batch) -> AdamState:
        """Make one iteration: one batch, one noisy gradient, two averages."""
        assert isinstance(state, AdamState)
        plan, t = state.plan, state.iteration + 1
        gradient = self._gradient(state.w, state, oracle)
        first, second = self.betas
        mean = first * state.mean + (1.0 - first) * gradient
        # sqrt(v) is stored, since squares of large gradients would overflow.
        size = np.hypot(second**0.5 * state.size, (1.0 - second) ** 0.5 * gradient)
        root = size / (1.0 - second**t) ** 0.5
        alpha = plan.coefficients.step_size[t - 1]
        kept = (1.0 - alpha * self.weight_decay) * state.w
        after = kept - alpha * (mean / (1.0 - first**t)) / (root + self.eps)
        return AdamState(after, state.w, t, plan, mean=mean, size=size)

    def state_space(self, iteration: int = 0) -> NoReturn:
        """Raise ValueError: the step is not linear in the state."""
        raise ValueError("Adam's step is not linear in its state, so there are no (A, B, C)")
