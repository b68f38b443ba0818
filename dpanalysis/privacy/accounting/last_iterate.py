r"""The cost of noisy gradient steps when only the last iterate is released.

**Setting.** Two neighbours run :math:`X_{k} = \phi_k(X_{k-1}) + Z_k` and
:math:`X'_{k} = \phi'_k(X'_{k-1}) + Z'_k` from one public start, with noise N(0, s^2) in every
coordinate. All steps are Lipschitz with constant c, and :math:`\|\phi_k - \phi'_k\| \le \delta_k`
everywhere. A gradient step of length :math:`\eta` on a function with curvature in [m, M] has
c = max(|1 - eta m|, |1 - eta M|). Full batches have :math:`\delta_k = \Delta` at every step. In a
public cyclic order of batches this holds at the steps of the record's batch, with 0 elsewhere. The
ratio :math:`\Delta / s`, in which the step size cancels, is sensitivity over noise of one gradient.

**Lemma.** Let :math:`u_k \ge 0` be such that the :math:`z_k = c z_{k-1} + \delta_k - u_k`, from
:math:`z_0 = 0`, are never negative and :math:`z_T = 0`. Then the last iterate is mu-GDP, with
:math:`\mu^2 = \sum_k u_k^2 / s^2`.

*Proof.* A third process moves from the second run to the first: :math:`\tilde X_0 = X_0` and, with
the noise of X,

.. math:: \tilde X_k = \phi'_k(\tilde X_{k-1}) + \lambda_k (\phi_k(X_{k-1}) -
          \phi'_k(\tilde X_{k-1})) + Z_k, \qquad \lambda_k = u_k / (c z_{k-1} + \delta_k).

By induction :math:`\|X_k - \tilde X_k\| \le z_k`: the difference in brackets is at most :math:`c
z_{k-1} + \delta_k` in norm, and a part :math:`1 - \lambda_k` of it remains. So :math:`\tilde X_T =
X_T`. Given :math:`\tilde X_{k-1} = x`, the step to :math:`\tilde X_k` is N(phi'(x), s^2) with its
mean moved by a random vector of norm at most :math:`u_k`, independent of the noise; that of X' at x
is N(phi'(x), s^2). By joint convexity the two are :math:`(u_k/s)`-GDP for every x. Gaussian
guarantees compose to the root of the sum of squares, and discarding all but the last iterate is
post-processing. QED (Where :math:`c z_{k-1} + \delta_k = 0` both are the same point, and
:math:`\lambda_k = 0`.)

**Full batches.** :math:`z_T = 0` means :math:`\sum_k c^{T-k} u_k = \Delta \sum_k c^{T-k}`, and the
least sum of squares has :math:`u_k` proportional to :math:`c^{T-k}`:

.. math:: \mu^2 = \frac{\Delta^2}{s^2} \frac{(\sum_j c^j)^2}{\sum_j c^{2j}}
          = \frac{\Delta^2}{s^2} \frac{1 - c^T}{1 + c^T} \frac{1 + c}{1 - c}.

:math:`u_k` increases, so z stays at least 0 while :math:`u_k \le \Delta`; after that a negative z
would stay negative and could not end at 0. No smaller mu is valid: for :math:`\phi = c x` and
:math:`\phi' = c x + \Delta`, the last iterates are Gaussians with exactly this mu.

**Cyclic batches**, l of them and E passes. Take :math:`u_k = \Delta` at the record's last batch, so
that all later steps are equal steps from equal points, and share the E - 1 earlier moves among the
(E - 1) l steps from its first batch to just before its last, in proportion to powers of c again.
At the end of these steps the last of the moves has shrunk by :math:`c^{l-1}`, so that

.. math:: \mu^2 = \frac{\Delta^2}{s^2} \left(1 + c^{2l-2} \frac{1 - c^2}{(1 - c^l)^2}
          \frac{1 - c^{l(E-1)}}{1 + c^{l(E-1)}} \right),

wherever its batch is in the pass. No z is negative: between two moves :math:`z_k c^{-k}` falls, and
at the end of the m-th pass it has, with :math:`x = c^{-lm}`, the form :math:`(x - 1)(A -
B (x + 1))`, B > 0: a concave function of x that is 0 at the start and at the end.

Only the last iterate may be released: no earlier iterate, and no decision that depends on one.

References
----------
Bok, Su, Altschuler (2024), Shifted interpolation for differential privacy, arXiv:2403.00278.
"""

from __future__ import annotations

import math

from ..._validation import check_int, check_number

__all__ = ["last_iterate_gdp", "last_iterate_gdp_cyclic"]


def last_iterate_gdp(steps: int, ratio: float, contraction: float) -> float:
    r"""Return mu of the last iterate of noisy gradient steps on full batches, released alone.

    Parameters
    ----------
    steps : int
        T >= 1.
    ratio : float
        Sensitivity over standard deviation of ONE noisy gradient, mu of one step.
    contraction : float
        c in [0, 1], a Lipschitz constant of every step: ``max(|1 - eta m|, |1 - eta M|)`` for
        steps eta and losses whose curvature is in [m, M].

    Returns
    -------
    float
        :math:`\mu = ratio \sqrt{(1 - c^T)/(1 + c^T) \, (1 + c)/(1 - c)}`, of Gaussian differential
        privacy; ``ratio sqrt(T)`` for c = 1. The release costs as much as
        ``events.Gaussian(std=1.0, sensitivity=mu)``.

    Notes
    -----
    Proof and conditions: :mod:`dpanalysis.privacy.accounting.last_iterate`. The cost is exact
    for quadratic losses (Bok, Su, Altschuler 2024).

    Examples
    --------
    >>> from dpanalysis import privacy
    >>> mu = last_iterate_gdp(1000, ratio=0.05, contraction=0.9)  # condition number 10
    >>> one = privacy.events.Gaussian(std=1.0, sensitivity=mu)
    >>> every = privacy.events.Repeated(privacy.events.Gaussian(1.0, 0.05), 1000)
    >>> [privacy.epsilon(event, 1e-5, "replace_one") for event in (one, every)]
    [0.80, 7.51]
    """
    T = check_int("steps", steps, low=1)
    ratio = check_number("ratio", ratio, low=0.0)
    rate = _rate(contraction)
    if rate == 0.0:
        return ratio * math.sqrt(T)
    return ratio * math.sqrt(math.tanh(0.5 * T * rate) / math.tanh(0.5 * rate))


def last_iterate_gdp_cyclic(passes: int, batches: int, ratio: float, contraction: float) -> float:
    r"""Return mu of the last iterate, released alone, on batches in a public cyclic order.

    Parameters
    ----------
    passes, batches : int
        E passes over l batches, in the same public order; each record is in one of them.
    ratio : float
        Sensitivity over standard deviation of ONE noisy gradient of a batch.
    contraction : float
        As in :func:`last_iterate_gdp`, for the mean loss of every batch.

    Returns
    -------
    float
        :math:`\mu = ratio \sqrt{1 + c^{2l-2} (1 - c^2)/(1 - c^l)^2 \,
        (1 - c^{l(E-1)})/(1 + c^{l(E-1)})}`; ``ratio sqrt(1 + (E - 1)/l)`` for c = 1. For one
        batch :func:`last_iterate_gdp` is smaller.

    Notes
    -----
    Proof and conditions: :mod:`dpanalysis.privacy.accounting.last_iterate`.

    Examples
    --------
    >>> last_iterate_gdp_cyclic(200, 40, ratio=2 / 3, contraction=1.0)
    1.6296
    >>> last_iterate_gdp_cyclic(1, 40, ratio=2 / 3, contraction=0.99)
    0.6667
    """
    E, l = check_int("passes", passes, low=1), check_int("batches", batches, low=1)  # noqa: E741
    ratio = check_number("ratio", ratio, low=0.0)
    rate = _rate(contraction)
    if E == 1:
        return ratio
    if rate == 0.0:
        return ratio * math.sqrt(1.0 + (E - 1) / l)
    shrunk = math.exp(-2.0 * (l - 1) * rate) if l > 1 else 1.0
    spread = -math.expm1(-2.0 * rate) / math.expm1(-l * rate) ** 2
    return ratio * math.sqrt(1.0 + shrunk * spread * math.tanh(0.5 * l * (E - 1) * rate))


def _rate(contraction: float) -> float:
    """Return -log c, infinite for c = 0."""
    c = check_number("contraction", contraction, low=0.0, high=1.0)
    return -math.log(c) if c > 0.0 else math.inf
