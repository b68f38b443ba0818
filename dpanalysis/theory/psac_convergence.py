"""Convergence of DP-PSAC and of Auto-S, with explicit constants (Xia et al. 2023, Theorem 2).

The derivation is in :mod:`dpanalysis.theory.adaptive_clipping`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .._validation import check_int, check_number
from ._arguments import FloatArray, check_array
from .adaptive_clipping import invert_gain, peak_and_offset, psac_alignment

__all__ = ["PSACBound", "psac_descent", "psac_theorem2"]


def _second_moment(noise_multiplier: Any, dimension: Any, batch_size: Any) -> tuple[float, float]:
    """Return the factors of E|sum of batch|^2 / B^2: of the samples, and of the noise."""
    sigma = check_number("noise_multiplier", noise_multiplier, low=0.0)
    d = check_int("dimension", dimension, low=1)
    batch = check_number("batch_size", batch_size, low=0.0, low_open=True)
    return 1.0 + 1.0 / batch, d * (sigma / batch) * (sigma / batch)


def psac_descent(
    gradient_norm: ArrayLike,
    step_size: ArrayLike,
    L0: float,
    L1: float,
    tau0: float,
    tau1: float,
    r: float,
    *,
    dimension: int,
    noise_multiplier: float,
    batch_size: float,
    kind: str = "psac",
) -> FloatArray | float:
    r"""Return an upper bound on the expected change of f in one step.

    .. math:: -\eta\, E\langle \nabla f, w g\rangle + \tfrac{\eta^2}{2} (L_0 + L_1 G)
              \left((1 + 1/B)\, h(G + \tau)^2 + d\sigma^2/B^2\right),
              \qquad h(\rho) = \rho w(\rho) < 1,

    with :func:`psac_alignment` for the product. The factor 1 + 1/B holds for Poisson sampling
    with mean batch size B, and for sampling with replacement.

    Parameters
    ----------
    gradient_norm : array_like
        :math:`G = \|\nabla f(x_t)\| \ge 0`.
    step_size : array_like
        Positive, for clip norm 1: :math:`\eta C`.
    L0, L1, tau0, tau1, r, kind
        As in :func:`psac_lemma2`, numbers.
    dimension, noise_multiplier, batch_size
        d, :math:`\sigma \ge 0` and the (mean) batch size B > 0.

    Returns
    -------
    float or ndarray

    Raises
    ------
    ValueError
        If an argument is out of its range.

    References
    ----------
    Xia et al. (2023), Lemma 1.

    Examples
    --------
    >>> psac_descent(1.0, 0.1, 1.0, 0.0, 0.2, 0.0, 0.1, dimension=10, noise_multiplier=1.0,
    ...              batch_size=100)
    -0.0409
    """
    G = check_array("gradient_norm", gradient_norm, low=0.0)
    step = check_array("step_size", step_size, low=0.0, low_open=True)
    L0 = check_number("L0", L0, low=0.0, low_open=True)
    L1 = check_number("L1", L1, low=0.0)
    tau0 = check_number("tau0", tau0, low=0.0)
    tau1 = check_number("tau1", tau1, low=0.0, high=1.0, high_open=True)
    r = check_number("r", r, low=0.0, low_open=True)
    gain = psac_alignment(G, tau0, tau1, r, kind)
    samples, noise = _second_moment(noise_multiplier, dimension, batch_size)
    longest = G + tau0 + tau1 * G
    size = longest / (longest + (r / (longest + r) if kind == "psac" else r))
    change = np.asarray(-step * gain + 0.5 * step**2 * (L0 + L1 * G) * (samples * size**2 + noise))
    return change if change.ndim else float(change)


@dataclass(frozen=True)
class PSACBound:
    r"""A bound on the smallest gradient of a run; see :func:`psac_theorem2`.

    Attributes
    ----------
    bound : float
        On :math:`E \min_{t<T} \|\nabla f(x_t)\|`.
    bias : float
        Its limit as T grows with the noise fixed: what does not vanish.
    vanishing : float
        The bound without the bias; of order :math:`T^{-1/4}`.
    step_size : float
        The step size used, for clip norm 1.
    """

    bound: float
    bias: float
    vanishing: float
    step_size: float


def psac_theorem2(
    initial_gap: float,
    iterations: int,
    L0: float,
    L1: float,
    tau0: float,
    tau1: float,
    r: float,
    *,
    dimension: int,
    noise_multiplier: float,
    batch_size: float,
    step_size: float | None = None,
    kind: str = "psac",
) -> PSACBound:
    r"""Return a bound on the expected smallest gradient norm of T steps.

    Lemma 1 summed over the steps, with steps 2 and 3 of the module's derivation and
    :math:`c = \eta (1 + 1/B + d\sigma^2/B^2)/2`, gives

    .. math:: E \min_t \|\nabla f(x_t)\| \le \min\{A^{-1}(V + \beta'),\
              A^{-1}(V) + \tau_0/(1 - \tau_1)\}, \quad
              V = \frac{\Delta/(\eta T) + c (L_0 + L_1 R/a)}{1 - c L_1 a}, \quad
              \beta' = \frac{\beta}{1 - c L_1 a}.

    The second stops the sum at the first norm below :math:`\tau_0/(1 - \tau_1)`; its bias does
    not depend on r. The default step size minimises V's numerator: for PSAC, with
    :math:`\tau_1 = 0` and much noise, the paper's
    :math:`\propto 1/\sqrt{d \sigma^2 T (L_0 + L_1(\tau_0 + 1))}`, cut to
    :math:`c L_1 a \le 1/2`; this takes the place of the paper's condition on T.

    Parameters
    ----------
    initial_gap : float
        :math:`\Delta = f(x_0) - \inf f > 0`.
    iterations : int
        T >= 1.
    L0, L1, tau0, tau1, r, kind
        As in :func:`psac_lemma2`, numbers; Auto-S as for PSAC.
    dimension, noise_multiplier, batch_size
        As in :func:`psac_descent`.
    step_size : float, optional
        For clip norm 1, with :math:`c L_1 a < 1`.

    Returns
    -------
    PSACBound

    Raises
    ------
    ValueError
        If an argument is out of its range.

    References
    ----------
    Xia et al. (2023), Theorem 2 and Corollary 1 (put in a noise multiplier that was calibrated
    numerically in place of Theorem 1's).

    Examples
    --------
    >>> found = psac_theorem2(1.0, 10_000, 1.0, 0.0, 0.1, 0.0, 0.1, dimension=10,
    ...                       noise_multiplier=1.0, batch_size=100)
    >>> found.bound, found.bias, found.step_size
    (0.1540, 0.0742, 0.01406)
    """
    gap = check_number("initial_gap", initial_gap, low=0.0, low_open=True)
    T = check_int("iterations", iterations, low=1)
    L0 = check_number("L0", L0, low=0.0, low_open=True)
    L1 = check_number("L1", L1, low=0.0)
    tau0 = check_number("tau0", tau0, low=0.0)
    tau1 = check_number("tau1", tau1, low=0.0, high=1.0, high_open=True)
    peak, offset = peak_and_offset(kind, check_number("r", r, low=0.0, low_open=True))
    moment = sum(_second_moment(noise_multiplier, dimension, batch_size))
    a, R = np.float64(1.0 + tau1), tau0 + offset
    smoothness = float(L0 + L1 * R / a)
    if step_size is None:
        limit = 1.0 / (moment * L1 * a) if L1 > 0 else np.inf
        eta = min(np.sqrt(2.0 * gap / (T * moment * smoothness)), limit)
    else:
        eta = check_number("step_size", step_size, low=0.0, low_open=True)
    c = 0.5 * eta * moment
    slack = 1.0 - c * L1 * a
    if slack <= 0:
        raise ValueError(f"step_size must be below {2.0 / (moment * L1 * a)}, got {step_size!r}")
    decay = (gap / (eta * T) + c * smoothness) / slack
    beta, far = peak * tau0**2 / (4.0 * (1.0 - tau1)), tau0 / (1.0 - tau1)
    vanishing = float(invert_gain(decay, a, R))
    return PSACBound(
        bound=min(float(invert_gain(decay + beta / slack, a, R)), vanishing + far),
        bias=min(float(invert_gain(beta, a, R)), far),
        vanishing=vanishing,
        step_size=float(eta),
    )
