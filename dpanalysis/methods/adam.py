"""Adam with clipped, noisy gradients."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from .._validation import check_number
from ..privacy.oracle import PrivateOracle
from ..privacy.sampling import Sampling
from .recursion import Coefficients, Schedule, State, constant_coefficients
from .sgd import StepSize, Stochastic

__all__ = ["Adam"]


@dataclass(frozen=True)
class AdamState(State):
    """Where a run stands: also the mean and the root mean square of past gradients, (R, d)."""

    mean: np.ndarray = field(repr=False, kw_only=True)
    size: np.ndarray = field(repr=False, kw_only=True)


@dataclass(frozen=True, repr=False)
class Adam(Stochastic):
    r"""DP-Adam: the noisy gradient g_t of :class:`SGD`, averaged and scaled by its own size.

    .. math:: m_t = \beta_1 m_{t-1} + (1-\beta_1) g_t, \quad
              v_t = \beta_2 v_{t-1} + (1-\beta_2) g_t^2, \quad
              x_{t+1} = x_t - \alpha_t \frac{m_t / (1-\beta_1^t)}{\sqrt{v_t / (1-\beta_2^t)}
              + \text{eps}}

    Both averages are computed from what has been released, so they cost nothing. The
    variance of the noise is part of v: where it dominates, the steps are those of SGD with
    momentum.

    Parameters
    ----------
    step_size, iterations, sampling, clipping
        As :class:`SGD`.
    betas : (float, float)
        Both in [0, 1).
    eps : float
        Added to the root, > 0.
    weight_decay : float
        lambda >= 0: each step also takes alpha_t lambda x_t off the iterate, outside the
        averages ("decoupled"). It looks at the iterate alone, so it costs nothing.
    noise, mechanism, choose_iterations, output
        See :class:`dpanalysis.methods.sgd.Stochastic`.

    Raises
    ------
    ValueError
        If an argument is outside its range, or an error bound is asked for.

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
    sampling: Sampling = field()
    clipping: Any = field()
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.betas, (tuple, list)) or len(self.betas) != 2:
            raise TypeError(f"betas must be two numbers in [0, 1), got {self.betas!r}")
        betas = [
            check_number(f"betas[{i}]", beta, low=0.0, high=1.0, high_open=True)
            for i, beta in enumerate(self.betas)
        ]
        object.__setattr__(self, "betas", tuple(betas))
        check_number("eps", self.eps, low=0.0, low_open=True)
        check_number("weight_decay", self.weight_decay, low=0.0)
        self._check()

    def coefficients(self) -> Coefficients:
        """Return the schedule of steps; the momentum is in the averages."""
        return constant_coefficients(self.iterations, self._step_sizes())

    def _warn_if_unstable(self, coefficients: Coefficients, facts: object) -> None:
        """Stay silent: no step is longer than a few step sizes, whatever the curvature."""

    def init(self, w0: np.ndarray, plan: Schedule) -> AdamState:
        """Start from ``w0`` of shape (R, d) with averages of nothing."""
        zero = np.zeros_like(w0)
        return AdamState(w0, w0, 0, plan, mean=zero, size=zero)

    def step(self, state: State, oracle: PrivateOracle) -> AdamState:
        """Make one iteration: one batch, one noisy gradient, two averages."""
        assert isinstance(state, AdamState)
        plan, t = state.plan, state.iteration + 1
        gradient = self._gradient(state.w, state, oracle)
        first, second = self.betas
        mean = first * state.mean + (1.0 - first) * gradient
        # The root of v, so that squares of large gradients do not overflow.
        size = np.hypot(second**0.5 * state.size, (1.0 - second) ** 0.5 * gradient)
        root = size / (1.0 - second**t) ** 0.5
        alpha = plan.coefficients.step_size[t - 1]
        kept = (1.0 - alpha * self.weight_decay) * state.w
        after = kept - alpha * (mean / (1.0 - first**t)) / (root + self.eps)
        return AdamState(after, state.w, t, plan, mean=mean, size=size)

    def state_space(self, iteration: int = 0) -> NoReturn:
        """Raise ValueError: the step is not linear in the state."""
        raise ValueError("Adam's step is not linear in its state, so there are no (A, B, C)")
