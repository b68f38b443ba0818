r"""A certificate that no noise on full gradients does better than independent, well-divided noise.

On a quadratic, the last iterate of a method that is linear in its state is a sum of responses to
the noise of every step: along an eigenvector of curvature :math:`\lambda`, the noise :math:`z`
(one number a step, correlated as one likes) moves it by :math:`a_\lambda^\top z`. With weights
:math:`w_\lambda` (:math:`\lambda/2` for the gap of the objective) the mean error is tr(M Cov z),

.. math:: M = \sum_\lambda w_\lambda a_\lambda a_\lambda^\top.

Noise :math:`z = C^{-1} g` with white Gaussian g costs what the Gaussian release of C times the
gradients costs. Let one record move the gradient of step k by a vector of norm at most S, and let
Y be the Gram matrix of these vectors over S: diag Y <= 1. With :math:`X = C^\top C` the squared
sensitivity is :math:`S^2 \max_Y \mathrm{tr}(XY)`, and the error at a budget of mu-GDP is
:math:`S^2/\mu^2` times

.. math:: \mathrm{tr}(M X^{-1}) \max_Y \mathrm{tr}(XY).

**Theorem.** Its minimum over all positive definite X is :math:`(\sum_k \sqrt{M_{kk}})^2`, which a
*diagonal* X attains, :math:`X_{kk} \propto \sqrt{M_{kk}}`: independent noise, optimally divided.

*Proof.* A diagonal X gives :math:`\sum_k M_{kk}/X_{kk} \cdot \sum_k X_{kk}`, since diag Y <= 1;
that is the value. For any X and :math:`Y = VV^\top`, with :math:`M = G^\top G`, Cauchy and Schwarz
for the trace give :math:`\mathrm{tr}(M X^{-1})\,\mathrm{tr}(XY) \ge \|G V\|_*^2` with the nuclear
norm. Let the rows of G be :math:`\sqrt{w_\lambda} a_\lambda`, D the diagonal matrix of the norms of
its columns, :math:`\sqrt{M_{kk}}`, and :math:`V = D^{-1} G^\top`: rows of norm 1 in d coordinates,
so that such gradient differences exist. Then :math:`\|GV\|_* = \mathrm{tr}(G D^{-1} G^\top)`, as
that matrix is positive semidefinite, which is :math:`\sum_k M_{kk}/\sqrt{M_{kk}}`. QED

It covers noise with one C for all coordinates, and gradients that an adversary chooses. The
gradients of a linear model differ along one row x, and there correlated noise gains a little; for
minibatches that take turns it gains much (Denisov et al. 2022), which is not treated here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .._validation import check_int
from ._arguments import FloatArray, check_array, check_positive


@dataclass(frozen=True)
class AllocationCertificate:
    r"""The least error of a last iterate at a budget, with both sides of its proof.

    Attributes
    ----------
    value : float
        :math:`(\sum_k \sqrt{M_{kk}})^2`, in units of :math:`S^2/\mu^2`.
    gram : ndarray of shape (T, T)
        M.
    variances : ndarray of shape (T,)
        Variance of the noise of each step that attains it, in the same units; infinite for a step
        whose noise does not reach the last iterate.
    dual : ndarray of shape (T, T)
        Y: gradient differences against which no noise does better.
    lower : float
        :math:`\|M^{1/2} Y^{1/2}\|_*^2`, computed from ``gram`` and ``dual`` alone.
    """

    value: float
    gram: FloatArray = field(repr=False)
    variances: FloatArray = field(repr=False)
    dual: FloatArray = field(repr=False)
    lower: float

    @property
    def gap(self) -> float:
        """How far the two sides are apart, relative: rounding alone."""
        return (self.value - self.lower) / self.value

    def error(self, sensitivity: float, mu: float) -> float:
        """Return the least mean error at mu-GDP, where one record moves a gradient so far."""
        S, mu = check_positive("sensitivity", sensitivity), check_positive("mu", mu)
        return self.value * (S / mu) ** 2

    def error_of(self, variances: ArrayLike) -> float:
        """Return the error of independent noise that is divided otherwise, in the same units.

        Parameters
        ----------
        variances : array_like of shape (T,)
            Up to a factor: they are scaled to the budget.
        """
        given = check_array("variances", variances, low=0.0, low_open=True)
        if given.shape != self.variances.shape:
            raise ValueError(f"variances must have shape {self.variances.shape}, got {given.shape}")
        return float((np.diag(self.gram) @ given) * (1.0 / given).sum())


def allocation_certificate(
    method: Any, spectrum: ArrayLike, weights: ArrayLike | None = None
) -> AllocationCertificate:
    """Return the best noise of a method's full gradients on a quadratic, and the proof of it.

    Parameters
    ----------
    method : GradientDescent, HeavyBall, Nesterov or MultistageNesterov
        Anything with ``iterations`` and ``state_space(iteration)``.
    spectrum : array_like of shape (d,)
        Eigenvalues of the Hessian, positive.
    weights : array_like of shape (d,), optional
        Of the squared error along each eigenvector; by default half the eigenvalues, for the gap
        of the objective.

    Returns
    -------
    AllocationCertificate

    Raises
    ------
    ValueError
        If an argument is out of range, or no noise reaches the last iterate.

    Examples
    --------
    >>> import dpanalysis as dpa
    >>> method = dpa.methods.Nesterov(1.0, 20, 0.01)
    >>> found = dpa.theory.allocation_certificate(method, [0.01, 0.1, 1.0])
    >>> abs(found.gap) < 1e-9, found.error_of([1.0] * 20) > found.value
    (True, True)
    """
    eigenvalues = check_array("spectrum", np.atleast_1d(spectrum), low=0.0, low_open=True)
    share = 0.5 * eigenvalues if weights is None else check_array("weights", weights, low=0.0)
    scale = np.sqrt(np.broadcast_to(share, eigenvalues.shape))
    G = scale[:, None] * _responses(method, eigenvalues)
    sizes = np.linalg.norm(G, axis=0)
    used = sizes > 0.0
    if not used.any():
        raise ValueError("spectrum and weights must let some noise reach the last iterate")
    total = float(sizes.sum())
    variances = np.full(sizes.size, np.inf)
    variances[used] = total / sizes[used]  # 1/X, at sum X = 1
    V = np.zeros(G.T.shape)
    V[used] = G.T[used] / sizes[used, None]
    lower = float(np.linalg.svd(G @ V, compute_uv=False).sum()) ** 2
    return AllocationCertificate(total**2, G.T @ G, variances, V @ V.T, lower)


def _responses(method: Any, eigenvalues: FloatArray) -> FloatArray:
    """Return the change of the last iterate by unit noise at each step, (d, T)."""
    steps = check_int("method.iterations", method.iterations, low=1)
    responses = np.empty((eigenvalues.size, steps))
    ahead = np.tile([[1.0, 0.0]], (eigenvalues.size, 1))  # the last iterate by the state, (d, 2)
    for t in range(steps - 1, -1, -1):
        A, B, C = method.state_space(t)
        responses[:, t] = ahead @ B[:, 0]
        ahead = ahead @ A + responses[:, t, None] * eigenvalues[:, None] * C[0]
    return responses


def noise_floor(spectrum: ArrayLike, sensitivity: float, n: int, mu: float) -> float:
    r"""Return a lower bound on the objective's gap of any unbiased mu-GDP release of the minimizer.

    .. math:: \sum_\lambda \frac{S^2}{2 \lambda n^2 (e^{\mu^2} - 1)}

    A record moves the mean gradient by S/n along an eigenvector, and the minimizer by
    :math:`S/(n\lambda)`. By Hammersley, Chapman and Robbins the variance of an unbiased release
    along it is at least the square of that over the chi-squared divergence of the two laws, which
    is at most :math:`e^{\mu^2} - 1`, that of N(mu, 1) and N(0, 1); :math:`\lambda/2` times the
    variance is the gap.

    Parameters
    ----------
    spectrum : array_like of shape (d,)
        Eigenvalues of the Hessian, positive.
    sensitivity : float
        S: how far one record moves the sum of gradients.
    n : int
        Number of records.
    mu : float
        Of Gaussian differential privacy, over the whole run.

    Returns
    -------
    float

    Examples
    --------
    >>> noise_floor([0.1, 1.0], sensitivity=1.0, n=100, mu=1.0)
    0.00032
    """
    eigenvalues = check_array("spectrum", np.atleast_1d(spectrum), low=0.0, low_open=True)
    S, mu = check_positive("sensitivity", sensitivity), check_positive("mu", mu)
    shift = S / check_int("n", n, low=1)
    return float(shift**2 / (2.0 * np.expm1(mu**2)) * (1.0 / eigenvalues).sum())
