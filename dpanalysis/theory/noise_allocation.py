r"""Optimal allocations of Gaussian noise, and an error floor for unbiased private releases.

A method of two-step memory, run on a quadratic with full batches, is a linear system along each
eigenvector, of curvature :math:`\lambda`. Let :math:`a_\lambda \in R^T` be the response of the last
iterate to unit noise at each step, :math:`w_\lambda` the weight of its squared error
(:math:`\lambda/2` for the gap of the objective), and

.. math:: M = \sum_\lambda w_\lambda a_\lambda a_\lambda^T = G G^T, \qquad
          G_{k \lambda} = \sqrt{w_\lambda} \, a_{\lambda k}.

The noise is :math:`C^{-1} z`, with z white Gaussian noise in every coordinate: arbitrarily
correlated over the iterations, and independent across coordinates. With X = C'C its covariance over
the iterations is :math:`X^{-1}`, so that the error is :math:`tr(M X^{-1})`. The gradients of two
neighbouring data sets differ by :math:`v_1, \dots, v_T` of norm at most 1; their Gram matrix is
Y = VV', and the releases are distributed as N(Cv, 1) and N(0, 1): :math:`\mu`-GDP, with
:math:`\mu^2 = tr(X Y)` at most.

**Theorem.** :math:`\min_X \max_Y tr(M X^{-1}) \, tr(X Y) = (\sum_k \sqrt{M_{kk}})^2`, over all
positive definite X and all Y that are positive semidefinite with a diagonal of at most 1. It is
attained by *diagonal* X with :math:`X_{kk}` proportional to :math:`\sqrt{M_{kk}}`: independent
noise, optimally allocated.

*Proof.* For diagonal X, :math:`tr(X Y) \le \sum_k X_{kk}`, and :math:`\sum_k M_{kk} / X_{kk}
\sum_k X_{kk}` is the stated value at this X. This also holds for gradients that depend on earlier
answers, since Gaussian releases compose. Conversely, for every X and every Y = VV',

.. math:: tr(M X^{-1}) \, tr(X Y) = \|C^{-T} G\|_F^2 \, \|C V\|_F^2 \ge \|G^T V\|_*^2,

since :math:`G^T V = (C^{-T} G)^T C V` and the nuclear norm of a product is at most the product of
the Frobenius norms. Let D be diagonal with the norms :math:`\sqrt{M_{kk}}` of the rows of G, and
:math:`V = D^{-1} G`: its rows have norm 1, and are differences in the space of the iterates. Then
:math:`G^T V = G^T D^{-1} G` is positive semidefinite, and its nuclear norm is its trace,
:math:`\sum_k M_{kk} / \sqrt{M_{kk}}`. QED (Zero rows of G belong to answers on which the last
iterate does not depend: their noise is infinite, and their differences are 0.)

*Scope.* The theorem covers Gaussian noise with one correlation over the iterations for all
coordinates, and gradient differences in any direction. The lower bound needs only differences that
are fixed in advance. Records of a linear model differ along one direction; for noise that exploits
this, correlation can gain a little. Batches other than full ones are not covered: there correlated
noise does gain (Denisov, McMahan, Rush, Smith, Thakurta 2022).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .._validation import check_int, check_number, check_positive
from ._arguments import FloatArray, check_array
from .quadratic import as_spectrum


@dataclass(frozen=True, eq=False)
class NoiseAllocation:
    """Optimal Gaussian noise of a method with full batches, with a certificate of optimality.

    For ``mu``-GDP and noise on the mean of n gradients, whose sum one record changes by at most S,
    multiply :attr:`allocation` by ``S / (n mu)`` and the errors by its square.

    Attributes
    ----------
    response : ndarray of shape (T, d)
        G: response of the last iterate to unit noise at each step along each eigenvector, times
        the square root of its weight.
    allocation : ndarray of shape (T,)
        Standard deviations, one per step, with ``sum 1 / allocation^2 = 1``; infinite where the
        last iterate does not depend on an answer.
    dual : ndarray of shape (T, d)
        V, with rows of norm 1 (or 0): the gradient differences of two neighbouring data sets for
        which no Gaussian noise does better.
    """

    response: FloatArray = field(repr=False)
    allocation: FloatArray = field(repr=False)
    dual: FloatArray = field(repr=False)

    @property
    def value(self) -> float:
        """Error of :attr:`allocation`, computed from it: ``sum_k M_kk allocation_k^2``."""
        uses = self.response.any(axis=1)  # 0 times infinity is 0 here
        return float(np.sum((self.response[uses] * self.allocation[uses, None]) ** 2))

    @property
    def lower(self) -> float:
        """Dual bound ``||G' V||_*^2``, from singular values: no Gaussian noise has less."""
        roots = np.linalg.svd(self.response.T @ self.dual, compute_uv=False)
        return float(roots.sum()) ** 2

    @property
    def gap(self) -> float:
        """Relative gap ``(value - lower) / value``; optimality is proved if it is 0 to rounding."""
        return (self.value - self.lower) / self.value

    @property
    def uniform(self) -> float:
        """Error with the same noise at every step."""
        return self.response.shape[0] * float(np.sum(self.response**2))

    def __repr__(self) -> str:
        steps = self.response.shape[0]
        return f"NoiseAllocation({steps} steps, value {self.value:.6g}, gap {self.gap:.1e})"


def allocation_certificate(
    method: Any, spectrum: ArrayLike, weights: ArrayLike | None = None
) -> NoiseAllocation:
    """Return the optimal allocation of Gaussian noise to the iterations, with its certificate.

    It is optimal among Gaussian noises of any correlation over the iterations, for full batches of
    a quadratic. Theorem, proof and conditions are in :mod:`dpanalysis.theory.noise_allocation`;
    :attr:`NoiseAllocation.gap` verifies it with NumPy alone.

    Parameters
    ----------
    method : GradientDescent, HeavyBall, Nesterov, MultistageNesterov or similar
        Any object with ``iterations`` and ``state_space(iteration)``.
    spectrum : (d,) array_like
        Eigenvalues of the Hessian, positive.
    weights : float or (d,) array_like, optional
        Weight of the squared error along each eigenvector; by default half the eigenvalues, for
        the gap of the objective.

    Raises
    ------
    TypeError
        If the method has no state space.
    ValueError
        If the method diverges so far that its response overflows, or the response is zero.

    References
    ----------
    Kuru et al. (2022), Proposition 4.2: the best allocation of independent noise.

    Examples
    --------
    >>> import dpanalysis as dpa
    >>> method = dpa.methods.Nesterov(step_size=1.0, iterations=89, mu=0.01)
    >>> best = allocation_certificate(method, np.geomspace(0.01, 1.0, 20))
    >>> best.value / noise_floor(np.geomspace(0.01, 1.0, 20), sensitivity=1e-3, mu=1e-3)
    1.8631
    >>> best.uniform / best.value, abs(best.gap) < 1e-12
    (3.835, True)
    """
    if not callable(getattr(method, "state_space", None)) or not hasattr(method, "iterations"):
        raise TypeError(
            "method must have iterations and state_space(iteration), as GradientDescent, HeavyBall "
            f"and Nesterov have, got {method!r}"
        )
    eigenvalues, _ = as_spectrum(spectrum, name="spectrum")
    weight = 0.5 * eigenvalues if weights is None else check_array("weights", weights, low=0.0)
    if weight.shape not in ((), eigenvalues.shape):
        raise ValueError(
            f"weights must be a number or of shape {eigenvalues.shape}, got {weight.shape}"
        )
    with np.errstate(over="ignore", invalid="ignore"):
        response = _last_response(method, eigenvalues) * np.sqrt(weight)
    if not np.isfinite(response).all() or not np.abs(response).max() < 1e150:
        raise ValueError(f"method must not diverge on this spectrum, {method!r} does")
    if not response.any():
        raise ValueError("weights must be above 0 where the last iterate depends on an answer")
    largest = np.abs(response).max(axis=1, keepdims=True)  # squares of small rows would underflow
    shape = np.divide(response, largest, out=np.zeros_like(response), where=largest > 0.0)
    lengths = np.sqrt(np.sum(shape**2, axis=1, keepdims=True))
    dual = np.divide(shape, lengths, out=shape, where=lengths > 0.0)
    norms = (largest * lengths)[:, 0]
    with np.errstate(divide="ignore"):
        allocation = math.sqrt(norms.sum()) / np.sqrt(norms)
    return NoiseAllocation(response, allocation, dual)


def _last_response(method: Any, eigenvalues: FloatArray) -> FloatArray:
    """Return the response of the last iterate to unit noise at each step, (T, d).

    It is ``e_1' Phi_{T-1} ... Phi_{k+1} B_k`` with the closed loops ``Phi = A + lambda B C``,
    computed backwards from the last step.
    """
    steps = check_int("method.iterations", method.iterations, low=1)
    response = np.empty((steps, eigenvalues.size))
    row = np.zeros((eigenvalues.size, 2))
    row[:, 0] = 1.0
    for k in range(steps - 1, -1, -1):
        A, B, C = method.state_space(k)
        response[k] = row @ B[:, 0]
        row = row @ A + np.outer(eigenvalues * response[k], C[0])
    return response


def noise_floor(spectrum: ArrayLike, sensitivity: float, mu: float, n: int = 1) -> float:
    r"""Bound from below the error of unbiased ``mu``-GDP releases of a quadratic's minimizer.

    Parameters
    ----------
    spectrum : (d,) array_like
        Eigenvalues of the Hessian of the mean of n losses, positive; public.
    sensitivity : float
        S: how much one record can change the sum of gradients, in every direction.
    mu : float
        Parameter of Gaussian differential privacy, positive.
    n : int
        Number of records.

    Returns
    -------
    float
        :math:`\sum_\lambda S^2 / (2 \lambda n^2 (e^{\mu^2} - 1))`, for the gap of the objective.

    Notes
    -----
    *Proof.* A neighbouring data set whose sum of gradients differs by S along an eigenvector has a
    minimizer shifted by :math:`S / (\lambda n)` along it. The release is unbiased for both, so by
    Cauchy-Schwarz the variance of its coordinate is at least the square of this shift over the
    :math:`\chi^2`-divergence of the two distributions (Hammersley 1950; Chapman, Robbins 1951).
    A :math:`\mu`-GDP release is a function of N(0, 1) against :math:`N(\mu, 1)` and independent
    random numbers (Blackwell), and no function increases their divergence :math:`e^{\mu^2} - 1`.
    Half the eigenvalue times this, summed over the eigenvectors, is the gap. QED

    Biased releases can be better if the minimizer is known to be close to a public point.

    Examples
    --------
    >>> noise_floor([1.0, 0.5], sensitivity=1.0, mu=1.0, n=100)
    8.7296e-05
    """
    eigenvalues, _ = as_spectrum(spectrum, name="spectrum")
    shift = check_number("sensitivity", sensitivity, low=0.0) / check_int("n", n, low=1)
    squared = check_positive("mu", mu) ** 2
    if squared > 700.0:
        return 0.0  # negligible in floating-point arithmetic
    deviation = shift / (math.sqrt(math.expm1(squared)) if squared > 1e-300 else mu)
    return 0.5 * float(np.sum((deviation / np.sqrt(eigenvalues)) ** 2))
