"""An upper bound on the largest singular value that rounding cannot make too small."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from .._validation import check_number
from ._arguments import FloatArray, plain

__all__ = ["spectral_bound"]

_UNIT = 2.0**-53


def spectral_bound(matrix: ArrayLike, excess: float = 1e-3) -> float | FloatArray:
    r"""Return an upper bound on the largest singular value of a matrix, by repeated squaring.

    A few products of the smaller Gram matrix with itself: no decomposition, and never less than
    the norm. (Power iteration comes from below, and would be unsafe where a bound is needed.)

    Parameters
    ----------
    matrix : array_like of shape (..., m, n)
        One matrix, or a stack of them.
    excess : float
        The bound is at most ``1 + excess`` times the norm, but for rounding.

    Returns
    -------
    float or ndarray of shape (...)
        inf where an entry is not finite.

    Raises
    ------
    ValueError
        If ``excess`` is not in (0, 1], or there is no matrix.

    Notes
    -----
    *Proof.* For every matrix :math:`\|B\|^2 = \|B B^\top\|` in the spectral norm, and
    :math:`\|B\| \le \|B\|_F`. Let :math:`B_0` be the matrix, or its transpose where that is
    wider, and :math:`B_{j+1} = B_j B_j^\top / t_j` for numbers :math:`t_j > 0`. So
    :math:`\|B_j\| = \sqrt{t_j \|B_{j+1}\|}`, and this, from :math:`\|B_M\| \le \|B_M\|_F` on
    back to :math:`B_0`, is the bound. It is :math:`\operatorname{tr}(G^{2^M})^{1/2^{M+1}}` for
    the Gram matrix G of :math:`B_0`, whatever the :math:`t_j` are: here
    :math:`\operatorname{tr} B_j B_j^\top = \|B_j\|_F^2`, so that nothing overflows.

    *How good it is.* :math:`\|B_M\|` is at least :math:`\ell = \|B_M v\|/\|v\|` for any v, and
    the bound is at most :math:`(\|B_M\|_F / \ell)^{1/2^M}` times the norm. That is when to stop.
    For a good v, here a column of :math:`B_M`, it is at most :math:`k^{1/2^{M+1}}` for k rows, so
    that M hardly grows with k.

    *Rounding.* Let :math:`u = 2^{-53}`, N the number of entries, and :math:`t_j` the number that
    was computed, which divides and multiplies, and is at least :math:`.9\|B_j\|_F^2`. An entry of
    the product passes through at most n roundings, so :math:`B_j B_j^\top` is off by at most
    :math:`\gamma_n \|B_j\|_F^2 \le 2 n u t_j` in the Frobenius norm (Higham, *Accuracy and
    stability of numerical algorithms*, 2002, section 3.5). With the division, and numbers that
    underflow, :math:`\|B_j\|^2 \le t_j (1 + \varepsilon)(\|B_{j+1}\| + \varepsilon)` for
    :math:`\varepsilon = 4(N + 64) u`. The same factor covers the sum that :math:`\|B_M\|_F` is,
    and the scaling of entries beyond :math:`10^{\pm 100}`. No step needs the computed matrices to
    be symmetric.

    Examples
    --------
    >>> import numpy as np
    >>> float(spectral_bound(np.diag([3.0, 2.9, -1.0])) / 3.0)
    1.0001
    >>> spectral_bound(np.ones((2, 4, 9)))
    array([6., 6.])
    """
    check_number("excess", excess, low=0.0, low_open=True, high=1.0)
    B = np.asarray(matrix, dtype=np.float64)
    if B.ndim < 2 or not B.size:
        raise ValueError(f"matrix must have shape (..., m, n), got {B.shape}")
    rows, columns = B.shape[-2:]
    if rows > columns:
        B = B.swapaxes(-1, -2)
    error = 4.0 * (rows * columns + 64) * _UNIT
    largest = np.maximum(B.max(axis=(-2, -1)), -B.min(axis=(-2, -1)))
    finite = np.isfinite(largest)
    usual = finite & (largest > 0.0)
    scale = np.ones_like(largest)
    if not ((largest > 1e-100) & (largest < 1e100)).all():
        scale = np.where(usual, largest, 1.0)
        B = np.where(usual[..., None, None], B, 1.0) / scale[..., None, None]
    squares: list[FloatArray] = []
    size = least = np.ones(())
    while not squares or (size / least).max() > (1.0 + excess) ** 2.0 ** len(squares):
        B = B @ B.swapaxes(-1, -2)
        squares.append(np.trace(B, axis1=-2, axis2=-1))
        B /= squares[-1][..., None, None]
        size, least = _frobenius(B), _least(B)
    bound = size * (1.0 + error)
    for square in reversed(squares):
        bound = np.sqrt(square * (1.0 + error) * (bound + error))
    bound = np.where(finite, np.where(usual, scale * bound * (1.0 + error), 0.0), math.inf)
    return plain(bound)


def _frobenius(B: FloatArray) -> FloatArray:
    flat = B.reshape(*B.shape[:-2], -1)
    return np.sqrt(np.einsum("...i,...i->...", flat, flat))


def _least(B: FloatArray) -> FloatArray:
    """Return a number that the norm of a positive semidefinite matrix is at least."""
    place = np.diagonal(B, axis1=-2, axis2=-1).argmax(axis=-1)
    column = np.take_along_axis(B, place[..., None, None], axis=-1)
    return _frobenius(B @ column) / _frobenius(column)
