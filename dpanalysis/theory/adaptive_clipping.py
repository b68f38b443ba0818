r"""Per-sample adaptive clipping, DP-PSAC, beside automatic clipping, Auto-S (Xia et al. 2023).

Both divide a gradient :math:`g` by a little more than its norm :math:`\rho = \|g\|_2`:

.. math:: w(\rho) = \frac{1}{\rho + r/(\rho + r)} \ \text{(PSAC)}, \qquad
          w(\rho) = \frac{1}{\rho + r} \ \text{(Auto-S)},

and step by :math:`-\eta (\sum_{i \in B_t} w_i g_i + \sigma z)/B`. The clip norm C only rescales
the step size and is 1 here. Assumptions: (1) :math:`\|\nabla f(x) - \nabla f(y)\| \le (L_0 + L_1
\|\nabla f(x)\|) \|x - y\|`; (2) :math:`\|g_i - \nabla f\| \le \tau_0 + \tau_1 \|\nabla f\|`.

The copy of the paper lacks its appendix, and the bound of Theorem 2 is lost in its text. What
stands here was derived anew on the outline that the text gives (Lemmas 1 and 2, "O(eta |grad f|^2)
+ O(eta)"), with every constant written out. With :math:`G = \|\nabla f\|`, :math:`\tau = \tau_0 +
\tau_1 G`, W the largest weight and :math:`w \ge 1/(\rho + \bar r)`, where :math:`\bar r` is 1 for
PSAC and r for Auto-S:

1. :math:`E\langle \nabla f, w g\rangle \ge \frac{G^2}{G + \tau + \bar r} - \left(W -
   \frac{1}{G + \tau + \bar r}\right) G (\tau - G)_+`, because :math:`E\langle \nabla f, g\rangle =
   G^2` and no single product is below :math:`-G(\tau - G)_+`.
2. With :math:`a = 1 + \tau_1`, :math:`R = \tau_0 + \bar r`, :math:`A(G) = G^2/(aG + R)`, this is at
   least :math:`A(G) - \beta`, :math:`\beta = W \tau_0^2/(4(1 - \tau_1))`; and at least
   :math:`A(G)` where :math:`G \ge \tau_0/(1 - \tau_1)`.
3. :math:`G \le a A(G) + R/a`, so that the second-order term of Lemma 1 is absorbed for small steps.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .._validation import check_choice
from ._arguments import FloatArray, check_array, plain

__all__ = ["psac_alignment", "psac_lemma2", "psac_table1", "psac_weight_peak"]


def check_spread(tau0: ArrayLike, tau1: ArrayLike) -> tuple[FloatArray, FloatArray]:
    return (
        check_array("tau0", tau0, low=0.0),
        check_array("tau1", tau1, low=0.0, high=1.0, high_open=True),
    )


def _check_r(r: ArrayLike) -> FloatArray:
    return check_array("r", r, low=0.0, low_open=True)


def peak_and_offset(kind: Any, r: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return the largest weight W, and the offset with ``w(rho) >= 1/(rho + offset)``."""
    check_choice("kind", kind, ("psac", "auto"))
    r = _check_r(r)
    if kind == "auto":
        return 1.0 / r, r
    return np.asarray(psac_weight_peak(r)[1]), np.ones_like(r)


def psac_weight_peak(r: ArrayLike) -> tuple[FloatArray | float, FloatArray | float]:
    r"""Return where PSAC's weight is largest, and how large it is there.

    At :math:`\sqrt r - r` with weight :math:`1/(2\sqrt r - r)` for :math:`r \le 1`; for r > 1
    the weight only decreases, from :math:`w(0) = 1` (the paper's formula would leave the range).

    Parameters
    ----------
    r : array_like
        The rule's constant, positive.

    Returns
    -------
    norm, weight : float or ndarray
        The gradient norm at the peak (>= 0), and the weight per unit clip norm (>= 1).

    Raises
    ------
    ValueError
        If ``r`` is not positive.

    References
    ----------
    Xia et al. (2023), Lemma 2 (proved there for r <= 1).

    Examples
    --------
    >>> psac_weight_peak(0.01)
    (0.09, 5.263)
    >>> psac_weight_peak(2.0)
    (0.0, 1.0)
    """
    root = np.sqrt(np.minimum(_check_r(r), 1.0))
    return plain(root - root**2), plain(1.0 / (2.0 * root - root**2))


def psac_lemma2(
    L0: ArrayLike,
    L1: ArrayLike,
    tau0: ArrayLike,
    tau1: ArrayLike,
    r: ArrayLike,
    kind: str = "psac",
) -> FloatArray | float:
    r"""Return a bound on :math:`(L_0 + L_1 \|\nabla f\|)\, w(\|g\|)` that no gradient exceeds.

    With :math:`A = L_0 (1 - \tau_1) + L_1 \tau_0`, from :math:`\|\nabla f\| \le (\rho + \tau_0)/
    (1 - \tau_1)`: PSAC :math:`(A W + L_1)/(1 - \tau_1)`, W the weight at the peak, at most twice
    the supremum; Auto-S :math:`\max(A/r, L_1)/(1 - \tau_1)`, the supremum, for every r > 0 (the
    paper holds that Auto-S needs :math:`r > \tau_0` here; it does not).

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

    Returns
    -------
    float or ndarray

    Raises
    ------
    ValueError
        If an argument is out of its range.

    References
    ----------
    Xia et al. (2023), Lemma 2; its lost roots are restored from :math:`2\sqrt r - r \ge \sqrt r`.

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
    return plain(bound / (1.0 - tau1))


def psac_alignment(
    gradient_norm: ArrayLike,
    tau0: ArrayLike,
    tau1: ArrayLike,
    r: ArrayLike,
    kind: str = "psac",
) -> FloatArray | float:
    r"""Return a lower bound on :math:`E\langle \nabla f, w(\|g\|)\, g\rangle`.

    Step 1 of the module's derivation, in place of the paper's Lemma 5, which the text only names.

    Parameters
    ----------
    gradient_norm : array_like
        :math:`\|\nabla f\| \ge 0`.
    tau0, tau1, r, kind
        As in :func:`psac_lemma2`.

    Returns
    -------
    float or ndarray
        Negative where the spread can turn the weighted gradient away; at large norms close to
        :math:`\|\nabla f\|/(1 + \tau_1)`.

    Raises
    ------
    ValueError
        If an argument is out of its range.

    References
    ----------
    Xia et al. (2023), the text after Lemma 1.

    Examples
    --------
    >>> psac_alignment([0.05, 1.0, 10.0], tau0=0.2, tau1=0.0, r=0.1)
    array([-0.0060, 0.4545, 8.9285])
    """
    G = check_array("gradient_norm", gradient_norm, low=0.0)
    tau0, tau1 = check_spread(tau0, tau1)
    peak, offset = peak_and_offset(kind, r)
    tau = tau0 + tau1 * G
    least = 1.0 / (G + tau + offset)
    return plain(least * G**2 - (peak - least) * G * np.maximum(tau - G, 0.0))


def psac_table1(
    tau0: ArrayLike,
    tau1: ArrayLike,
    r: ArrayLike,
    kind: str = "psac",
) -> FloatArray | float:
    r"""Return a bound on :math:`\|\nabla f\|` where the noise-free method stops (Table 1).

    The bound, for any data that satisfy Assumption 2, is the norm at which
    :func:`psac_alignment` vanishes: with :math:`b = 1 - \tau_1` the positive root of
    :math:`W a b\, G^2 - (W a \tau_0 - b(WR - 1) - 1) G - (WR - 1)\tau_0 = 0`.
    It never exceeds :math:`\tau_0/(1 - \tau_1)`, the bound of every positive weight, and tends to
    it as r tends to 0, for PSAC and for Auto-S: the orders :math:`O(r^{-1/2})` and
    :math:`O(r^{-1})` of Table 1 are orders of bounds and not of the biases, which tend to the same
    limit. At r = 1 the bias of PSAC can be the larger. :func:`worst_bias` gives what can happen.

    Parameters
    ----------
    tau0, tau1, r, kind
        As in :func:`psac_lemma2`.

    Returns
    -------
    float or ndarray

    Raises
    ------
    ValueError
        If an argument is out of its range.

    References
    ----------
    Xia et al. (2023), Table 1, Remark 2; the constants are derived in the module's docstring.

    Examples
    --------
    >>> psac_table1(1.0, 0.0, [1e-4, 1e-2, 1.0])
    array([0.9933, 0.9352, 0.6180])
    >>> psac_table1(1.0, 0.0, [1e-4, 1e-2, 1.0], kind="auto")
    array([0.9999 , 0.9950 , 0.6180])
    """
    tau0, tau1 = check_spread(tau0, tau1)
    peak, offset = peak_and_offset(kind, r)
    a, b, R = 1.0 + tau1, 1.0 - tau1, tau0 + offset
    excess = peak * R - 1.0
    linear = peak * a * tau0 - b * excess - 1.0
    # The root of a G^2 - p G - q in the form that does not cancel where p is negative.
    square, product = peak * a * b, excess * tau0
    root = np.sqrt(linear**2 + 4.0 * square * product)
    with np.errstate(divide="ignore", invalid="ignore"):
        cancelled = np.where(product > 0, 2.0 * product / (root - linear), 0.0)
    return plain(np.where(linear > 0, (linear + root) / (2.0 * square), cancelled))


def invert_gain(value: ArrayLike, a: ArrayLike, R: ArrayLike) -> FloatArray:
    """Return the G >= 0 with ``G^2/(a G + R) = value``."""
    linear = np.multiply(a, value)
    return np.asarray(0.5 * (linear + np.sqrt(linear**2 + 4.0 * np.multiply(R, value))))
