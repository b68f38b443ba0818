r"""Convergence of per-sample adaptive clipping, DP-PSAC, and automatic clipping, Auto-S.

Both rules of Xia et al. (2023) divide a gradient :math:`g` by slightly more than its norm
:math:`\rho = \|g\|_2`:

.. math:: w(\rho) = \frac{1}{\rho + r/(\rho + r)} \ \text{(PSAC)}, \qquad
          w(\rho) = \frac{1}{\rho + r} \ \text{(Auto-S)},

and step by :math:`-\eta (\sum_{i \in B_t} w_i g_i + \sigma z)/B`. The clip norm C only rescales
the step size and is 1 here. Assumptions: (1) :math:`\|\nabla f(x) - \nabla f(y)\| \le (L_0 + L_1
\|\nabla f(x)\|) \|x - y\|`; (2) :math:`\|g_i - \nabla f\| \le \tau_0 + \tau_1 \|\nabla f\|`.

The available copy of the paper lacks its appendix and the bound of Theorem 2. The bound here
follows the outline in the text (Lemmas 1 and 2, "O(eta |grad f|^2) + O(eta)"), with explicit
constants. With :math:`G = \|\nabla f\|`, :math:`\tau = \tau_0 + \tau_1 G`, W the largest weight
and :math:`w \ge 1/(\rho + \bar r)`, where :math:`\bar r` is 1 for PSAC and r for Auto-S:

1. :math:`E\langle \nabla f, w g\rangle \ge \frac{G^2}{G + \tau + \bar r} - \left(W -
   \frac{1}{G + \tau + \bar r}\right) G (\tau - G)_+`, because :math:`E\langle \nabla f, g\rangle =
   G^2` and no single product is below :math:`-G(\tau - G)_+`. It replaces Lemma 5, which the text
   mentions without a statement.
2. With :math:`a = 1 + \tau_1`, :math:`R = \tau_0 + \bar r`, :math:`A(G) = G^2/(aG + R)`, this is at
   least :math:`A(G) - \beta`, :math:`\beta = W \tau_0^2/(4(1 - \tau_1))`; and at least
   :math:`A(G)` where :math:`G \ge \tau_0/(1 - \tau_1)`.
3. Lemma 1: a step changes f in expectation by at most :math:`-\eta` times that product, plus
   :math:`\frac{\eta^2}{2} (L_0 + L_1 G) ((1 + 1/B)\, h(G + \tau)^2 + d\sigma^2/B^2)`, where
   :math:`h(\rho) = \rho w(\rho) < 1` and the factor 1 + 1/B holds for Poisson sampling with mean
   batch size B and for sampling with replacement. Since :math:`G \le a A(G) + R/a`, the
   second-order term is absorbed for small steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .._validation import as_scalar, check_choice, check_int, check_number, check_positive
from ._arguments import FloatArray, check_array


def check_spread(tau0: ArrayLike, tau1: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return the constants of Assumption 2 as arrays, or raise."""
    return (
        check_array("tau0", tau0, low=0.0),
        check_array("tau1", tau1, low=0.0, high=1.0, high_open=True),
    )


def _check_r(r: ArrayLike) -> FloatArray:
    return check_array("r", r, low=0.0, low_open=True)


def peak_and_offset(kind: Any, r: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return the largest weight W, and the offset such that ``w(rho) >= 1/(rho + offset)``."""
    check_choice("kind", kind, ("psac", "auto"))
    r = _check_r(r)
    if kind == "auto":
        return 1.0 / r, r
    return np.asarray(psac_weight_peak(r)[1]), np.ones_like(r)


def psac_weight_peak(r: ArrayLike) -> tuple[FloatArray | float, FloatArray | float]:
    r"""Return the gradient norm at which PSAC's weight is largest, and that weight.

    For :math:`r \le 1` it is :math:`1/(2\sqrt r - r)` at :math:`\sqrt r - r`; for r > 1 the weight
    decreases from :math:`w(0) = 1` (the paper's formula would give a negative norm). Xia et al.
    (2023), Lemma 2 (proved there for r <= 1).

    Parameters
    ----------
    r : array_like
        The rule's constant, positive.

    Returns
    -------
    norm, weight : float or ndarray
        The gradient norm at the peak (>= 0), and the weight per unit clip norm (>= 1).

    Examples
    --------
    >>> psac_weight_peak(0.01)
    (0.09, 5.263)
    >>> psac_weight_peak(2.0)
    (0.0, 1.0)
    """
    root = np.sqrt(np.minimum(_check_r(r), 1.0))
    return as_scalar(root - root**2), as_scalar(1.0 / (2.0 * root - root**2))


def psac_lemma2(
    L0: ArrayLike, L1: ArrayLike, tau0: ArrayLike, tau1: ArrayLike, r: ArrayLike, kind: str = "psac"
) -> FloatArray | float:
    r"""Return a bound on :math:`(L_0 + L_1 \|\nabla f\|)\, w(\|g\|)` for all gradients.

    With :math:`A = L_0 (1 - \tau_1) + L_1 \tau_0`, from :math:`\|\nabla f\| \le (\rho + \tau_0)/ (1
    - \tau_1)`: PSAC :math:`(A W + L_1)/(1 - \tau_1)`, W the weight at the peak, at most twice the
    supremum; Auto-S :math:`\max(A/r, L_1)/(1 - \tau_1)`, the supremum, for every r > 0 (the paper
    writes that :math:`r > \tau_0` has to be assumed: claim 000-4). Xia et al. (2023), Lemma 2; its
    lost roots are restored from :math:`2\sqrt r - r \ge \sqrt r`.

    Parameters
    ----------
    L0, L1 : array_like
        Constants of Assumption 1, ``L0 > 0``, ``L1 >= 0``.
    tau0, tau1 : array_like
        Constants of Assumption 2, ``tau0 >= 0``, ``0 <= tau1 < 1``.
    r : array_like
        The rule's constant, positive. All arguments broadcast.
    kind : {"psac", "auto"}
        The weight rule, at clip norm 1.

    Examples
    --------
    >>> psac_lemma2(1.0, 0.5, tau0=0.2, tau1=0.1, r=0.01)
    6.4035
    >>> psac_lemma2(1.0, 0.5, tau0=0.2, tau1=0.1, r=0.01, kind="auto")
    111.11
    """
    L0 = check_array("L0", L0, low=0.0, low_open=True)
    L1 = check_array("L1", L1, low=0.0)
    tau0, tau1 = check_spread(tau0, tau1)
    weight, _ = peak_and_offset(kind, r)
    r = _check_r(r)
    constant = L0 * (1.0 - tau1) + L1 * tau0
    bound = constant * weight + L1 if kind == "psac" else np.maximum(constant / r, L1)
    return as_scalar(bound / (1.0 - tau1))


def psac_table1(
    tau0: ArrayLike, tau1: ArrayLike, r: ArrayLike, kind: str = "psac"
) -> FloatArray | float:
    r"""Return a bound on :math:`\|\nabla f\|` at which the noise-free method stops (Table 1).

    For any data that satisfy Assumption 2 it is the norm at which the lower bound on
    :math:`E\langle \nabla f, w g\rangle` vanishes: with :math:`b = 1 - \tau_1` the positive root of
    :math:`W a b\, G^2 - (W a \tau_0 - b(WR - 1) - 1) G - (WR - 1)\tau_0 = 0`. It never exceeds
    :math:`\tau_0/(1 - \tau_1)`, the bound for every positive weight, and tends to it as r tends to
    0, for PSAC and for Auto-S: :math:`O(r^{-1/2})` and :math:`O(r^{-1})` in Table 1 are orders of
    bounds, not of the biases, which have the same limit, and are 0 where opposite deviations are
    equally likely. Where :math:`r \tau_0` is large that of PSAC can be the larger.
    :func:`worst_bias` gives the exact worst case. Xia et al. (2023), Table 1, Remark 2; the
    constants are derived in the module's docstring.

    Parameters
    ----------
    tau0, tau1, r, kind
        As in :func:`psac_lemma2`.

    Examples
    --------
    >>> psac_table1(1.0, 0.0, [1e-4, 1e-2, 1.0])
    array([0.9933, 0.9352, 0.6180])
    >>> psac_table1(1.0, 0.0, [1e-4, 1e-2, 1.0], kind="auto")
    array([0.9999 , 0.9950 , 0.6180])
    """
    tau0, tau1 = check_spread(tau0, tau1)
    check_choice("kind", kind, ("psac", "auto"))
    r = _check_r(r)
    a, b = 1.0 + tau1, 1.0 - tau1
    # The equation divided by W: 1/W and the excess of the offset over it do not cancel, and no
    # square overflows in this unit.
    root_r = np.sqrt(np.minimum(r, 1.0))
    least, beyond = (r, 0.0) if kind == "auto" else (root_r * (2.0 - root_r), (1.0 - root_r) ** 2)
    unit = np.maximum(tau0, least + beyond)
    tau, least, excess = tau0 / unit, least / unit, (tau0 + beyond) / unit
    linear = a * tau - b * excess - least
    # The root of a G^2 - p G - q, in the form without cancellation for negative p.
    root = np.hypot(linear, 2.0 * np.sqrt(a * b * excess) * np.sqrt(tau))
    with np.errstate(invalid="ignore", divide="ignore"):
        cancelled = np.where(tau > 0, 2.0 * excess * tau / (root - linear), 0.0)
    return as_scalar(unit * np.where(linear > 0, (linear + root) / (2.0 * a * b), cancelled))


def invert_gain(value: ArrayLike, a: ArrayLike, R: ArrayLike) -> FloatArray:
    """Return the G >= 0 that solves ``G^2/(a G + R) = value``."""
    linear = np.multiply(a, value)
    return np.asarray(0.5 * (linear + np.sqrt(linear**2 + 4.0 * np.multiply(R, value))))


# Convergence with explicit constants (Theorem 2)


@dataclass(frozen=True)
class PSACBound:
    """Bound on the smallest gradient norm of a run; see :func:`psac_theorem2`."""

    bound: float  # on the expected smallest gradient norm
    bias: float  # limit of the bound as T grows with the noise fixed, at the step size chosen here
    vanishing: float  # bound without the bias, of order T^(-1/4)
    step_size: float  # for clip norm 1


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

    With :math:`c = \eta (1 + 1/B + d\sigma^2/B^2)/2`,

    .. math:: E \min_t \|\nabla f(x_t)\| \le \min\{A^{-1}(V + \beta'),\;
              A^{-1}(V) + \tau_0/(1 - \tau_1)\}, \quad
              V = \frac{\Delta/(\eta T) + c (L_0 + L_1 R/a)}{1 - c L_1 a}, \quad
              \beta' = \frac{\beta}{1 - c L_1 a}.

    Both bounds sum Lemma 1 over the steps, with steps 2 and 3 of the module's derivation, the
    second up to the first norm below :math:`\tau_0/(1 - \tau_1)`; its bias does not depend on r.
    The default step size minimizes the numerator of V subject to :math:`c L_1 a \le 1/2` (in place
    of the paper's condition on T). For PSAC with :math:`\tau_1 = 0` and much noise it is the
    paper's :math:`\propto 1/\sqrt{d \sigma^2 T (L_0 + L_1(\tau_0 + 1))}`.

    Parameters
    ----------
    initial_gap : float
        :math:`\Delta = f(x_0) - \inf f > 0`.
    iterations : int
        T >= 1.
    L0, L1, tau0, tau1, r, kind
        As in :func:`psac_lemma2`, but scalars.
    dimension : int
        d >= 1.
    noise_multiplier : float
        :math:`\sigma \ge 0`.
    batch_size : float
        B > 0; the mean of a Poisson batch.
    step_size : float, optional
        :math:`\eta > 0` for clip norm 1, with :math:`c L_1 a < 1`.

    References
    ----------
    Xia et al. (2023), Theorem 2, and Corollary 1 with a numerically calibrated noise multiplier
    in place of Theorem 1's.

    Examples
    --------
    >>> found = psac_theorem2(1.0, 10_000, 1.0, 0.0, 0.1, 0.0, 0.1, dimension=10,
    ...                       noise_multiplier=1.0, batch_size=100)
    >>> found.bound, found.bias, found.step_size
    (0.1540, 0.0742, 0.01406)
    """
    gap = check_positive("initial_gap", initial_gap)
    T = check_int("iterations", iterations, low=1)
    L0 = check_positive("L0", L0)
    L1 = check_number("L1", L1, low=0.0)
    tau0 = check_number("tau0", tau0, low=0.0)
    tau1 = check_number("tau1", tau1, low=0.0, high=1.0, high_open=True)
    peak, offset = peak_and_offset(kind, check_positive("r", r))
    sigma = check_number("noise_multiplier", noise_multiplier, low=0.0)
    d = check_int("dimension", dimension, low=1)
    batch = check_positive("batch_size", batch_size)
    # Bounds E|sum of the batch|^2 / B^2: the samples and the noise.
    moment = (1.0 + 1.0 / batch) + d * (sigma / batch) * (sigma / batch)
    a, R = np.float64(1.0 + tau1), tau0 + offset
    smoothness = float(L0 + L1 * R / a)
    if step_size is None:
        with np.errstate(over="ignore"):  # a tiny L1 sets no limit
            limit = 1.0 / (moment * L1 * a) if L1 > 0 else np.inf
        eta = min(np.sqrt(2.0 * gap / (T * moment * smoothness)), limit)
    else:
        eta = check_positive("step_size", step_size)
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
