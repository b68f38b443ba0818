"""Curvature queries: the Hessian of the objective, and its smallest eigenvalue."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._validation import check_int, check_number, check_vector
from .. import mechanisms
from ..accounting.relations import REPLACE_ONE
from ..accounting.sampling import Sampling
from ..events import Gaussian
from .base import Query, Records

if TYPE_CHECKING:
    from ..facts import PublicFacts

_BLOCK_ENTRIES = 1 << 20  # entries of noise drawn at once, again for every product
_MOST_EXACT = 2000  # largest d for which a matrix with exact noise is formed


def hessian_sensitivity(facts: PublicFacts, sampling: Sampling) -> float:
    """Return the sensitivity of the mean Hessian in the Frobenius norm.

    With B the bound on the norm of one record's Hessian, k that on its rank and n the public
    batch size, it is 1/n times

    =================  =======================  ========================
    relation           convex records           any
    =================  =======================  ========================
    replace-one        sqrt(min(2k, d)) B       2 sqrt(k) B
    add-or-remove-one  sqrt(k) B                sqrt(k) B
    =================  =======================  ========================

    and so sqrt(2) B/n for a linear predictor under a convex loss, where k = 1. ValueError if
    the Hessian of a record has no bound.

    Notes
    -----
    *Proof.* The squared norm of one Hessian is the sum of the squares of its at most k nonzero
    eigenvalues, none above B^2: the norm is at most sqrt(k) B, and at most twice that for a
    difference. If both Hessians are positive semidefinite, A - A' is at most A and at least -A':
    it has at most k positive eigenvalues and at most k negative ones, none beyond B. All bounds
    are attained, by projections on the same space with opposite signs, and on orthogonal ones.

    References
    ----------
    Gao and Wright (2023), (4), sharpened in errata 003-1.

    Examples
    --------
    >>> import numpy as np
    >>> import dpanalysis as dpa
    >>> bound = dpa.RowBound(2, 1.0)
    >>> problem = dpa.ERM(np.eye(54), np.ones(54), dpa.losses.Logistic(), row_bound=bound)
    >>> facts = problem.facts("replace_one")
    >>> hessian_sensitivity(facts, dpa.Full())
    0.006547
    """
    if not math.isfinite(facts.hessian_bound):
        raise ValueError(
            "the Hessian of one record has no public bound, so no noise can make it private: give "
            "the problem a row_bound and a smooth loss"
        )
    facts.check_magnitude(facts.hessian_bound, what="the bound on one record's Hessian")
    rank = facts.d if facts.hessian_rank is None else min(facts.hessian_rank, facts.d)
    if facts.relation == REPLACE_ONE:
        moved = math.sqrt(min(2 * rank, facts.d)) if facts.convex_records else 2.0 * math.sqrt(rank)
    else:
        moved = math.sqrt(rank)
    rounded = 2.0 * facts.rounding * math.sqrt(rank)  # the errors of both computed sums
    return (moved + rounded) * facts.hessian_bound / sampling.expected_size(facts.n)


@dataclass(frozen=True, eq=False)
class NoisyHessian(Query):
    r"""The Hessian of the objective at a public point, with symmetric Gaussian noise.

    .. math:: \frac1B \sum_{i \in \text{batch}} \nabla^2 f_i(w) + \nabla^2 r(w) + E

    with the public penalty r, the public batch size B and independent entries of E on and above
    the diagonal: of standard deviation sigma on it and sigma/sqrt 2 above it, which is Gaussian
    noise of standard deviation sigma in every coordinate of an orthonormal basis of the
    symmetric matrices. So the relevant sensitivity is that in the Frobenius norm.

    Parameters
    ----------
    w : ndarray of shape (d,)
        Public.
    std : float
        sigma >= 0; 0 answers exactly.

    References
    ----------
    Gao and Wright (2023), Algorithm 1; errata 003-2.
    """

    w: np.ndarray
    std: float
    evaluates = "hessian"
    #: Ratio of the standard deviations above and on the diagonal.
    off_diagonal = math.sqrt(0.5)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_vector("w", self.w)
        check_number("std", self.std, low=0.0)

    def event(self, facts: PublicFacts, sampling: Sampling) -> Gaussian | None:
        """Return the cost at sensitivity :func:`hessian_sensitivity`."""
        if self.std == 0.0 or not facts.has_records:
            return None
        return Gaussian(self.std, hessian_sensitivity(facts, sampling))

    def iterates(self) -> tuple[np.ndarray, ...]:
        """Return the point."""
        return (self.w,)

    def answer(self, records: Records, random: Any) -> tuple[np.ndarray, int]:
        """Return the symmetric matrix (d, d), and 1."""
        hessian = records.problem.hessian_sum(self.w, records.rows) / records.size
        above = np.triu_indices(len(hessian))
        shares = np.where(above[0] == above[1], 1.0, self.off_diagonal)
        hessian[above] = mechanisms.noisy(random, hessian[above], "gaussian", self.std, shares)
        diagonal = np.diag_indices(len(hessian))
        hessian[diagonal] += _penalty_curvature(records.problem, self.w)
        # The lower half is copied from the upper: that of the sum may differ by rounding.
        return np.triu(hessian) + np.triu(hessian, 1).T, 1


@dataclass(frozen=True, eq=False)
class NoisyCurvature(NoisyHessian):
    r"""The smallest eigenvalue of :class:`NoisyHessian`, and its eigenvector, by Lanczos' method.

    The matrix is not formed: its noise is :math:`(G + G^\top)/2` with independent entries of G,
    which has the same law, and is redrawn from the same seed for every product, block by block.
    So every product uses the same noisy Hessian, and the cost is that of releasing all of it.

    Parameters
    ----------
    w : ndarray of shape (d,)
        Public.
    std : float
        As in :class:`NoisyHessian`.
    iterations : int
        Number of products, at least 1; see :func:`dpanalysis.theory.lanczos_iterations`.

    Notes
    -----
    Needs memory for ``iterations`` vectors of d numbers, and d^2 normal numbers per product. The
    seed has 128 bits and comes from the source of the noise.

    For ``rng="os"`` and d up to 2000 the noisy Hessian is computed by :class:`NoisyHessian`, and
    then its eigenvalue. Beyond that the noise is floating point, which the ledger records.

    References
    ----------
    Gao and Wright (2023), Appendix C; errata 003-11.
    """

    iterations: int
    evaluates = "hvp"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_int("iterations", self.iterations, low=1)

    def answer(self, records: Records, random: Any) -> tuple[Any, int]:
        """Return ((eigenvalue, eigenvector (d,)), number of products)."""
        problem, d = records.problem, len(self.w)
        if isinstance(random, mechanisms.SystemRandom) and d <= _MOST_EXACT:
            from scipy.linalg import eigh  # here, since its import is slow

            released, _ = NoisyHessian(self.w, self.std).answer(records, random)
            values, vectors = eigh(released, subset_by_index=[0, 0])
            return (float(values[0]), vectors[:, 0]), d
        penalty = _penalty_curvature(problem, self.w)
        noise = symmetric_noise(random, d, self.std)
        steps = min(self.iterations, d)

        def product(v: np.ndarray) -> np.ndarray:
            mean = problem.hvp_sum(self.w, v, records.rows) / records.size
            # Add the noise first: a large penalty would round it away.
            return (mean + noise(v)) + penalty * v

        return lanczos(product, mechanisms.gaussian(random, 1.0, d), steps), steps


def _penalty_curvature(problem: Any, w: np.ndarray) -> Any:
    penalty = problem.regularizer
    return 0.0 if penalty is None else penalty.hessian_diagonal(w)


def symmetric_noise(random: Any, d: int, std: float) -> Callable[[np.ndarray], np.ndarray]:
    """Return v -> E v for one matrix E with the law of :class:`NoisyHessian`, not stored."""
    seed = [int(part) for part in random.integers(0, 2**32, size=4)]

    def blocks() -> Iterator[tuple[slice, np.ndarray]]:
        source = np.random.default_rng(seed)
        step = max(1, _BLOCK_ENTRIES // d)
        for low in range(0, d, step):
            rows = slice(low, min(low + step, d))
            yield rows, mechanisms.gaussian(source, 0.5 * std, (rows.stop - low, d))

    def product(v: np.ndarray) -> np.ndarray:
        total = np.zeros(d)
        if std > 0.0:
            for rows, block in blocks():
                total[rows] += block @ v
                total += v[rows] @ block
        return total

    return product


def lanczos(
    product: Callable[[np.ndarray], np.ndarray], start: np.ndarray, steps: int
) -> tuple[float, np.ndarray]:
    """Return the least Ritz value of ``steps`` Lanczos steps and its vector, of norm 1."""
    # Every vector is reorthogonalized against all before, twice, or spurious copies of eigenvalues
    # appear. At a breakdown the Krylov space is invariant and contains the answer for this start.
    from scipy.linalg import eigh_tridiagonal  # here, since its import is slow

    basis = np.zeros((steps, len(start)))
    diagonal, off = np.zeros(steps), np.zeros(steps)
    vector = start / np.linalg.norm(start)
    for k in range(steps):
        basis[k] = vector
        image = product(vector)
        diagonal[k] = vector @ image
        size = float(np.linalg.norm(image))
        for _ in range(2):
            image = image - (basis[: k + 1] @ image) @ basis[: k + 1]
        off[k] = np.linalg.norm(image)
        if off[k] <= 1e-12 * size:
            break
        vector = image / off[k]
    values, weights = eigh_tridiagonal(diagonal[: k + 1], off[:k], select="i", select_range=(0, 0))
    found = weights[:, 0] @ basis[: k + 1]
    return float(values[0]), found / np.linalg.norm(found)
