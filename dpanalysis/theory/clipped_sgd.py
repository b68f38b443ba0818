r"""Private SGD with a clip norm so large that clipping hardly ever happens.

Fang et al. (2023), section 4.

The paper leaves its constants c1 to c5 open. :func:`clipped_sgd_bound` needs none: it rests on
:mod:`dpanalysis.theory.sgd_paths`, on batches of a fixed size, and on a noise multiplier that was
calibrated to the budget numerically (:func:`dpanalysis.privacy.calibrate`), never on the paper's
Theorem 3.4.

Full batches need no light tails (Remark 4.2, printed without proof): no sample's excess loss is
more than that of all together, so that :math:`\|\nabla f_i\|^2 \le 2L (f_i - \inf f_i)` gives

.. math:: \max_i \|\nabla f_i(w)\| \le \sqrt{2 L n\, (f(w) - f^* + \Gamma)}, \qquad
          \Gamma = f^* - \tfrac1n \textstyle\sum_i \inf f_i,

with equality where one sample has all the loss. That is the remark's :math:`\sqrt n`; the
:math:`\Gamma` (of Lemma A.13) is missing there, and 0 where one w minimises every :math:`f_i`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, log, sqrt
from typing import Any

from .._validation import check_int, check_number
from ._arguments import check_failure, check_positive
from .sgd_paths import path_bound, sgd_noise_scale, sgd_objective_bound

__all__ = ["ClippedSGDBound", "clipped_sgd_bound", "no_clipping_norm", "sampled_tails"]


def no_clipping_norm(
    initial_gap: float,
    L: float,
    rho: float | None,
    n: int,
    iterations: int,
    failure: float,
    *,
    spread: float = 1.0,
    interpolation_gap: float | None = None,
) -> float:
    r"""Return a clip norm that no gradient of the run exceeds, with probability 1 - ``failure``.

    .. math:: C = \sqrt{2 L\, \max_t (f(w_t) - f^*)} + \rho \sqrt{1 + \ln n},

    for every step size :math:`\eta \le \min\{1/L, s/(\tilde\sigma \sqrt T)\}`, with the bound of
    :func:`sgd_objective_bound` that holds for all of them. The second term holds for all i and w
    at once: a mean of n terms is at least any one of them over n. The paper's, for t-wise unions,
    has :math:`\ln(nT)` and an open constant. Without light tails

    .. math:: C = \sqrt{2 L n\, (\max_t (f(w_t) - f^*) + \Gamma)},

    and the smaller of both where both ``rho`` and ``interpolation_gap`` are given.

    Parameters
    ----------
    initial_gap, L, iterations, failure
        As in :func:`sgd_objective_bound`.
    rho : float or None
        The constant of Assumption 4.1, >= 0; None where it does not hold.
    n : int
        Number of samples, at least 1.
    spread : float
        The distance s >= 0 that the noise may carry the iterates; 1 in the paper.
    interpolation_gap : float, optional
        :math:`\Gamma = f^* - \frac1n \sum_i \inf f_i \ge 0`, or more; needed without ``rho``.

    Returns
    -------
    float
        In units of the gradient.

    Raises
    ------
    ValueError
        If an argument is out of its range, or neither ``rho`` nor ``interpolation_gap`` is given.

    References
    ----------
    Fang et al. (2023), Proposition 4.3 and (11); Remark 4.2, with the constants derived here.

    Examples
    --------
    >>> no_clipping_norm(1.0, 1.0, 1.0, 10_000, 1000, 1e-6)
    14.031
    >>> no_clipping_norm(1.0, 1.0, None, 10_000, 1000, 1e-6, interpolation_gap=0.0)
    1083.7
    """
    gap, L = check_number("initial_gap", initial_gap, low=0.0), check_positive("L", L)
    n = check_int("n", n, low=1)
    rho, interpolation_gap = _check_tails(rho, interpolation_gap)
    T, failure = check_int("iterations", iterations, low=1), check_failure(failure)
    spread = check_number("spread", spread, low=0.0)
    highest = path_bound(gap, L, spread * spread, -log(failure), T)
    return _needed_norm(highest, L, rho, n, interpolation_gap)


def _check_tails(rho: Any, interpolation_gap: Any) -> tuple[float | None, float | None]:
    """Return what is known of one sample's gradient given the loss of all, or raise."""
    if rho is None and interpolation_gap is None:
        raise ValueError("rho and interpolation_gap must not both be None")
    if rho is not None:
        rho = check_number("rho", rho, low=0.0)
    if interpolation_gap is not None:
        interpolation_gap = check_number("interpolation_gap", interpolation_gap, low=0.0)
    return rho, interpolation_gap


def sampled_tails(rho: float | None, batch_size: int, n: int) -> float:
    """Return the light tails that sampling needs: 0 for full batches, which have no error."""
    if batch_size == n:
        return 0.0
    if rho is None:
        raise ValueError(f"rho must be given for batches of {batch_size} of {n} samples, got None")
    return rho


def _needed_norm(
    highest: float, L: float, rho: float | None, n: int, interpolation_gap: float | None
) -> float:
    """Return a bound on every sample's gradient where f - f* is at most ``highest``."""
    bounds = []
    if rho is not None:
        bounds.append(sqrt(2.0 * L * highest) + rho * sqrt(1.0 + log(n)))
    if interpolation_gap is not None:
        bounds.append(sqrt(2.0 * L * n * (highest + interpolation_gap)))
    return min(bounds)


@dataclass(frozen=True)
class ClippedSGDBound:
    r"""The parameters and the guarantee of :func:`clipped_sgd_bound`.

    Attributes
    ----------
    clip_norm, step_size, noise_scale : float
        C, :math:`\eta` and :math:`\tilde\sigma`.
    conditional : float
        Bound on the utility given that nothing was clipped (Proposition 4.4).
    expected : float
        Bound on the utility without condition (Theorem 4.5).
    """

    clip_norm: float
    step_size: float
    noise_scale: float
    conditional: float
    expected: float


def clipped_sgd_bound(
    initial_gap: float,
    L: float,
    rho: float | None,
    n: int,
    batch_size: int,
    dimension: int,
    noise_multiplier: float,
    iterations: int,
    failure: float,
    *,
    distance: float | None = None,
    spread: float = 1.0,
    interpolation_gap: float | None = None,
) -> ClippedSGDBound:
    r"""Return clip norm, step size and utility of private SGD whose clipping hardly ever happens.

    The output is uniform among :math:`w_0, \dots, w_T`. Utility is :math:`f - f^*` for convex f
    (``distance`` given), :math:`\|\nabla f\|^2` otherwise; with
    :math:`v = \rho^2/B + d(C\sigma/B)^2`

    .. math:: U = \frac{\|w_0 - w^*\|^2}{2(T+1)\eta} + \frac{v\eta}{2} \quad\text{or}\quad
              U = \frac{D/((T+1)\eta) + Lv\eta/2}{1 - L\eta/2}, \qquad
              \eta = \min\left\{\frac{1}{2L}, \frac{s}{\tilde\sigma\sqrt T}\right\},

    is the bound without clipping (at most 1/2 and 2/3 of the paper's Lemma A.12); given that
    there is none, :math:`U/(1 - \delta')`; without
    condition :math:`U + \delta'(\beta + K(1 + \ln(1/\delta')))`, where the run's worst growth is
    :math:`\beta = 2D + 2L\eta^2T^2(C^2 + K_\xi^2/B^2)`, :math:`K = 2L\eta^2TK_\xi^2/B^2`,
    :math:`K_\xi^2 = 2C^2\sigma^2/(1 - e^{-2/d})`. The clip norm is the smallest that this module
    can prove, never more than :func:`no_clipping_norm`. Full batches do without ``rho``; then C,
    and the utility where noise dominates, are :math:`\sqrt n` times larger.

    Parameters
    ----------
    initial_gap : float
        :math:`D = f(w_0) - f^* \ge 0`.
    L : float
        Smoothness of every :math:`f_i`, positive.
    rho : float or None
        The constant of Assumption 4.1; None, with B = n only, where it does not hold.
    n, batch_size, dimension : int
        n samples, of which B are drawn in each step (B <= n, a fixed number; B = n has no
        sampling error); d parameters.
    noise_multiplier : float
        :math:`\sigma \ge 0`, calibrated to a budget elsewhere: it does not depend on C.
    iterations : int
        T >= 1.
    failure : float
        :math:`\delta'` in ``(0, 0.5]``: the probability that something is clipped. It costs a
        logarithm only, and ``expected`` wants it tiny (1e-12).
    distance : float, optional
        :math:`\|w_0 - w^*\| \ge 0`; makes the bound that of convex :math:`f_i`.
    spread : float
        The distance s > 0; 1 in the paper. About ``distance`` is best.
    interpolation_gap : float, optional
        As in :func:`no_clipping_norm`.

    Returns
    -------
    ClippedSGDBound

    Raises
    ------
    ValueError
        If an argument is out of its range, or ``rho`` is None and B < n.

    References
    ----------
    Fang et al. (2023), Proposition 4.4, Theorem 4.5, Remark 4.2, Lemmas A.9, A.12 and B.1, with
    constants derived here.

    Examples
    --------
    >>> found = clipped_sgd_bound(1.0, 1.0, 1.0, 10_000, 10_000, 20, 5.0, 1000, 1e-12,
    ...                           distance=1.0)
    >>> found.clip_norm, found.step_size, found.expected
    (4.6210, 0.5, 0.00103)
    """
    gap, L = check_number("initial_gap", initial_gap, low=0.0), check_positive("L", L)
    n = check_int("n", n, low=1)
    B = check_int("batch_size", batch_size, low=1, high=n)
    rho, interpolation_gap = _check_tails(rho, interpolation_gap)
    d, T = check_int("dimension", dimension, low=1), check_int("iterations", iterations, low=1)
    sigma = check_number("noise_multiplier", noise_multiplier, low=0.0)
    failure = check_failure(failure)
    spread = check_positive("spread", spread)
    if distance is not None:
        distance = check_number("distance", distance, low=0.0)
    sampled = sampled_tails(rho, B, n)

    def needed(highest: float) -> float:
        return _needed_norm(highest, L, rho, n, interpolation_gap)

    def steps(C: float) -> tuple[float, float]:
        scale = sgd_noise_scale(C, sigma, B, d, sampled)
        return scale, min(0.5 / L, spread / (scale * sqrt(T)) if scale else inf)

    C = needed(path_bound(gap, L, spread**2, -log(failure), T))
    # A smaller C means less noise, so that less C is needed: every step down stays valid.
    for _ in range(50):
        scale, eta = steps(C)
        C = needed(sgd_objective_bound(gap, L, eta, scale, T, failure))
    scale, eta = steps(C)
    variance = sampled**2 / B + d * (C * sigma / B) ** 2
    if distance is None:
        first, factor = 2.0 * gap / (1.0 - 0.5 * L * eta), 2.0 * L
        second = L * variance * eta / (1.0 - 0.5 * L * eta)
    else:
        first, factor, second = distance**2, 1.0, variance * eta
    utility = 0.5 * (first / ((T + 1) * eta) + second)
    gaussian = sgd_noise_scale(C, sigma, B, d)
    growth = 2.0 * L * eta**2 * T
    worst = 2.0 * gap + growth * T * (C**2 + gaussian**2)
    tail = growth * gaussian**2 * (1.0 - log(failure))
    return ClippedSGDBound(
        clip_norm=C,
        step_size=eta,
        noise_scale=scale,
        conditional=utility / (1.0 - failure),
        expected=utility + factor * failure * (worst + tail),
    )
