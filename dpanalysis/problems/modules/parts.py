r"""Gradients of single samples in one parameter: their norms, and their weighted sum.

A part holds what one chunk of B samples gives one parameter. It is kept in the form that costs
least:

- :class:`Whole`: B gradients written out;
- :class:`Outer`: :math:`\delta_i a_i^\top`, an outer product a sample, never formed;
- :class:`Steps`: :math:`\sum_t \delta_{it} a_{it}^\top`, one outer product for each of T places
  of a sequence or an image. Its norm takes two matrices of T x T ("ghost norm").

All arithmetic here is double, whatever the module computes in.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from ...kernels.rounding import DOUBLE

__all__ = ["Lookup", "Outer", "Part", "Steps", "Whole"]

# A sample whose steps cancel by more than this counts by the size of its steps.
MOST_CANCELLED = 1024.0


def module_rounding(n: int, d: int, chunk: int, steps: int) -> float:
    r"""Return how far a computed sum of modules' clipped gradients may be from the exact one.

    Parameters
    ----------
    n, d : int
        Records, or the places of a batch, and parameters.
    chunk : int
        Samples that are added up before their sum meets another.
    steps : int
        Most outer products that a part adds up for one sample, see :class:`Part`.

    Returns
    -------
    float
        In units of the bound B on the norm of one record's term.

    Notes
    -----
    *Proof.* The term of record i is :math:`t_i = c_i g_i`, where :math:`g_i` is the vector that
    the parts hold: numbers, or exact products and sums of products of such numbers, which the
    module computed. Numbers in single precision are converted to double exactly.

    *One term.* Of :class:`Whole` and :class:`Outer` the squared norm takes at most d squares and
    d - 1 additions in double, and the norm and the weight at most 16 operations more; all terms
    are positive. Of :class:`Steps` and :class:`Lookup` it is never below the exact one. The weight
    leaves the computed norm at most B, so :math:`\|t_i\| \le (1 + \gamma_{d+16}) B`.

    *The sum.* An entry passes through at most k roundings: one for each product of its chunk
    (``chunk``, times ``steps`` where the products of a sample are not added up before), one for
    each chunk, and a few for the weight. So it is :math:`\sum_i \sum_s t_{isj} (1 + \theta)`,
    :math:`|\theta| \le \gamma_k`, in whatever order it is added (Higham, *Accuracy and stability
    of numerical algorithms*, 2002, Lemma 3.1), and the error of the sum has a norm of at most
    :math:`\gamma_k \sum_i \sum_s \|t_{is}\|`. Without steps the inner sum is :math:`\|t_i\|`.
    With steps it is at most 1024 B, for the weight goes by no less than a 1024th of it
    (:data:`MOST_CANCELLED`).

    *Needed.* Double precision as IEEE 754 has it: cuBLAS must not be told to emulate it
    (``CUBLAS_EMULATE_DOUBLE_PRECISION``). B must be far above the smallest numbers, as
    :class:`~dpanalysis.privacy.facts.PublicFacts` demands.

    Examples
    --------
    >>> print(f"{module_rounding(60_000, 26_010, 128, 0):.0e}")
    4e-09
    """
    own = (d + 16) * DOUBLE / (1.0 - (d + 16) * DOUBLE)
    additions = chunk * max(1, steps) + n // chunk + 8
    share = additions * DOUBLE / (1.0 - additions * DOUBLE)
    return n * share * (MOST_CANCELLED if steps else 1.0) * (1.0 + own) + own


class Part(ABC):
    """Gradients of B samples in one parameter of p entries.

    Attributes
    ----------
    steps : int
        Outer products that are added up for a sample together with those of the others; 0 where
        the gradient of a sample is one product, or written out.
    """

    steps: int = 0

    @abstractmethod
    def squares(self) -> Tensor:
        """Return upper bounds on the squared norms, (B,), float64.

        They are the squared norms up to a few roundings of double precision, and to what
        :class:`Steps` says.
        """

    @abstractmethod
    def sum(self, weights: Tensor) -> Tensor:
        """Return the sum of ``weights`` (B,), float64, times the gradients, (p,)."""

    @abstractmethod
    def without(self, lost: Tensor) -> Part:
        """Return the part with zeros for the samples that are ``lost`` (B,)."""

    @abstractmethod
    def whole(self) -> Tensor:
        """Return the gradients written out, (B, p), float64."""

    @property
    def entries(self) -> int:
        """Numbers that are held."""
        return sum(each.numel() for each in vars(self).values() if isinstance(each, Tensor))


def _double(array: Tensor) -> Tensor:
    return array.to(torch.float64)


def _zeroed(array: Tensor, lost: Tensor) -> Tensor:
    """Return the array with zeros for the lost samples of the first axis."""
    return torch.where(lost.view(-1, *[1] * (array.ndim - 1)), 0.0, array)


class Whole(Part):
    """Gradients (B, ...) that are written out."""

    def __init__(self, gradients: Tensor) -> None:
        self.rows = gradients.flatten(1)

    def squares(self) -> Tensor:
        """Return the squared norms."""
        return torch.linalg.vector_norm(self.whole(), dim=1).square()

    def sum(self, weights: Tensor) -> Tensor:
        """Return the weighted sum, one product of a vector and a matrix."""
        return weights @ self.whole()

    def without(self, lost: Tensor) -> Whole:
        """Return the part without the lost samples."""
        return Whole(_zeroed(self.rows, lost))

    def whole(self) -> Tensor:
        """Return the gradients."""
        self.rows = _double(self.rows)  # once, and not before they are put together
        return self.rows


class Outer(Part):
    """Gradients that are outer products of ``deltas`` (B, out) and ``inputs`` (B, in)."""

    def __init__(self, deltas: Tensor, inputs: Tensor) -> None:
        self._deltas, self._inputs = _double(deltas), _double(inputs)

    def squares(self) -> Tensor:
        """Return the squared norms: an outer product's is the product of the norms."""
        deltas, inputs = (
            torch.linalg.vector_norm(each, dim=1) for each in (self._deltas, self._inputs)
        )
        return (deltas * inputs).square()

    def sum(self, weights: Tensor) -> Tensor:
        """Return the weighted sum, one product of two matrices."""
        return ((weights[:, None] * self._deltas).T @ self._inputs).flatten()

    def without(self, lost: Tensor) -> Outer:
        """Return the part without the lost samples."""
        return Outer(_zeroed(self._deltas, lost), _zeroed(self._inputs, lost))

    def whole(self) -> Tensor:
        """Return the outer products."""
        return (self._deltas[:, :, None] * self._inputs[:, None, :]).flatten(1)


class Steps(Part):
    r"""Gradients that are sums of T outer products: ``deltas`` (B, T, out), ``inputs`` (B, T, in).

    Notes
    -----
    The squared norm is :math:`\sum_{ts} \langle\delta_t, \delta_s\rangle \langle a_t, a_s\rangle`
    (Li et al., *Large language models can be strong differentially private learners*, 2022).
    With :math:`S = \sum_t \|\delta_t\| \|a_t\|` the terms' sizes add up to at most :math:`S^2`,
    and each passes through at most k = T^2 + in + out + 4 roundings, so the computed sum is off
    by at most :math:`\gamma_k S^2` (in double). That is added, so that what :meth:`squares`
    returns is never below the squared norm, however much the steps cancel.

    In the same way the weighted sum is off by :math:`\gamma` times the sum of the weighted S,
    where a bound by the weighted norms is wanted. So the squares are never less than
    :math:`(S / 1024)^2`: only a gradient whose steps cancel to a thousandth counts for more
    than it is.
    """

    def __init__(self, deltas: Tensor, inputs: Tensor) -> None:
        self._deltas, self._inputs = _double(deltas), _double(inputs)
        self.steps = deltas.shape[1]

    def squares(self) -> Tensor:
        """Return upper bounds on the squared norms, by two matrices of T x T a sample."""
        deltas, inputs = self._deltas, self._inputs
        products = (deltas @ deltas.mT) * (inputs @ inputs.mT)
        norms = torch.linalg.vector_norm(deltas, dim=2) * torch.linalg.vector_norm(inputs, dim=2)
        sizes = norms.sum(dim=1).square()
        count = deltas.shape[1] ** 2 + deltas.shape[2] + inputs.shape[2]
        return _never_below(products.sum(dim=(1, 2)), sizes, count)

    def sum(self, weights: Tensor) -> Tensor:
        """Return the weighted sum, one product of two matrices over samples and places."""
        deltas = (weights[:, None, None] * self._deltas).flatten(0, 1)
        return (deltas.T @ self._inputs.flatten(0, 1)).flatten()

    def without(self, lost: Tensor) -> Steps:
        """Return the part without the lost samples."""
        return Steps(_zeroed(self._deltas, lost), _zeroed(self._inputs, lost))

    def whole(self) -> Tensor:
        """Return the sums of outer products."""
        return (self._deltas.mT @ self._inputs).flatten(1)


class Lookup(Part):
    """Gradients in a table of ``rows`` rows: ``deltas`` (B, T, width) fall to ``places`` (B, T).

    It is :class:`Steps` with rows of the identity for inputs.
    """

    def __init__(self, deltas: Tensor, places: Tensor, rows: int) -> None:
        self._deltas, self._places, self._rows = _double(deltas), places, rows
        self.steps = deltas.shape[1]

    def squares(self) -> Tensor:
        """Return upper bounds on the squared norms: only equal places meet."""
        deltas = self._deltas
        same = self._places[:, :, None] == self._places[:, None, :]
        sizes = torch.linalg.vector_norm(deltas, dim=2).sum(dim=1).square()
        found = (deltas @ deltas.mT).masked_fill(~same, 0.0).sum(dim=(1, 2))
        return _never_below(found, sizes, deltas.shape[1] ** 2 + deltas.shape[2])

    def sum(self, weights: Tensor) -> Tensor:
        """Return the table with each weighted delta in the row of its place."""
        deltas = (weights[:, None, None] * self._deltas).flatten(0, 1)
        table = deltas.new_zeros(self._rows, deltas.shape[1])
        return table.index_add_(0, self._places.flatten(), deltas).flatten()

    def without(self, lost: Tensor) -> Lookup:
        """Return the part without the lost samples."""
        return Lookup(_zeroed(self._deltas, lost), self._places, self._rows)

    def whole(self) -> Tensor:
        """Return the tables of the samples."""
        count, _, width = self._deltas.shape
        tables = self._deltas.new_zeros(count, self._rows, width)
        index = self._places[:, :, None].expand(-1, -1, width)
        return tables.scatter_add_(1, index, self._deltas).flatten(1)


def _never_below(found: Tensor, sizes: Tensor, count: int) -> Tensor:
    """Return squared norms that rounding has not made too small, see :class:`Steps`.

    ``sizes`` are the squares of the sums of the steps' norms.
    """
    found = found.clamp(min=0.0) + (count + 64) * DOUBLE * sizes
    return torch.maximum(found, sizes / MOST_CANCELLED**2)
