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
    found = [_bound(each, excess) for each in B.reshape(-1, *B.shape[-2:])]
    return plain(np.reshape(found, B.shape[:-2]))


def _bound(B: FloatArray, excess: float) -> float:
    if len(B) > B.shape[1]:
        B = B.T
    error = 4.0 * (B.size + 64) * _UNIT
    largest, scale = max(float(B.max()), -float(B.min())), 1.0
    if not math.isfinite(largest):
        return math.inf
    if not 1e-100 < largest < 1e100:
        if not largest:
            return 0.0
        scale = largest
        B = B / scale
    squares: list[float] = []
    size = least = 1.0
    while not squares or size > least * (1.0 + excess) ** 2.0 ** len(squares):
        B = B @ B.T
        squares.append(float(B.trace()))
        B /= squares[-1]
        size = float(np.linalg.norm(B))
        column = B[:, B.diagonal().argmax()]
        least = float(np.linalg.norm(B @ column) / np.linalg.norm(column))
    bound = size * (1.0 + error)
    for square in reversed(squares):
        bound = math.sqrt(square * (1.0 + error) * (bound + error))
    return scale * bound * (1.0 + error)
