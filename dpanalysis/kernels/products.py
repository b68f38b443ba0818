r"""Products of rows with a matrix in which each row's bits do not depend on the other rows.

In a proof of sensitivity the term of a record is a function of that record and the weights. A BLAS
library does not guarantee this: it chooses its kernel by the shape, so that one more record can
change the rounding of all other products. If a hidden unit is 0 to the last bit, that flips its
derivative, and if weights are large, the rounding error of a logit can be of order 1: the sums of
two neighbouring data sets then differ by several records' terms, not by one.

*Method.* Rows are multiplied in portions whose length is a multiple of :data:`WHOLE`, padded with
zeros. A length is used only after a check has found, for a matrix of exactly this shape, that a row
has the same bits at every position of the portion as in a portion of :data:`REFERENCE` rows. If a
length fails, longer ones are tried, finally the reference. If that fails too, as OpenBLAS does in
single precision on processors without AVX-512, which treats a few columns differently from row to
row, the rows become the columns of a transposed product, :data:`WHOLE` at a time, checked in the
same way. If that fails, every row is multiplied and summed separately, as NumPy
does along the last axis, which is slow.

*Why that is enough.* A product of dense matrices chooses its algorithm by shapes, strides and
threads, not by the numbers (an assumption, see below). So for each length, position and column
there is one tree of roundings, and two positions with the same tree agree on all numbers. The check
compares them on random numbers, which reveal different trees: each position with its neighbour, and
so with every other, and with the reference, in 128 numbers or more. A pair of trees that differ in
only one of ten numbers goes undetected once in 700,000 times, and would have to do so at every
position where they meet.

*Assumptions.* The algorithm depends neither on the numbers nor on the array's address in memory. It
may depend on the library's number of threads, so a length is checked again for another number;
nobody changes that number while a product is computed. PyTorch tensors on the host are multiplied
by NumPy, which is checked. On a device there is no check, since the host would wait: a portion's
length depends on the row's alone, and equality of positions is assumed. Products of sparse rows are
summed row by row (SciPy) and need no check.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import scipy.sparse as sp
from array_api_compat import array_namespace, is_numpy_array

from .._devices import on_host, to_host
from .._parallel import blas_threads

WHOLE = 16
REFERENCE = 128
_DEVICE_ENTRIES = 1 << 22  # padding that costs as much as one call
_COMPARED = 128
_PATTERN = 65_537  # numbers drawn; a large matrix repeats them


def row_product(rows: Any, matrix: Any, entries: int = _DEVICE_ENTRIES) -> Any:
    """Return ``rows @ matrix``; no row's bits depend on the other rows or their number."""
    count = rows.shape[-2]
    if sp.issparse(rows) or not count:
        return rows @ matrix
    if on_host(rows) and not is_numpy_array(rows):
        product = row_product(to_host(rows), to_host(matrix))
        return array_namespace(rows).asarray(product, device=rows.device)  # may not be the default
    if is_numpy_array(rows):
        rows = np.ascontiguousarray(rows)
        by_columns = matrix.strides[-1] != matrix.itemsize
        whole = -(-count // WHOLE) * WHOLE
        product = rows.dtype.char, matrix.shape, by_columns
        length = _length(*product, whole, blas_threads())
        if not length:
            if _agrees(*product, REFERENCE, blas_threads(), transposed=True):
                return _transposed_product(rows, matrix)
            columns = (matrix[..., None, :, j] for j in range(matrix.shape[-1]))
            return np.stack([(rows * column).sum(axis=-1) for column in columns], axis=-1)
    else:
        length = min(entries >> 8, max(REFERENCE, entries // rows.shape[-1]))
    if count == length:
        return _multiply(rows, matrix)
    xp = array_namespace(rows)
    parts = []
    for lo in range(0, count, length):
        part = rows[..., lo : min(count, lo + length), :]
        parts.append(_multiply(_padded(xp, part, length), matrix))
    product = parts[0] if len(parts) == 1 else xp.concat(parts, axis=-2)
    return product[..., :count, :]


def _multiply(rows: Any, matrix: Any) -> Any:
    return rows @ matrix


def _padded(xp: Any, rows: Any, length: int) -> Any:
    """Return the rows with zeros after them, ``length`` in total."""
    lacking = length - rows.shape[-2]
    if not lacking:
        return rows
    zeros = xp.zeros(
        (*rows.shape[:-2], lacking, rows.shape[-1]), dtype=rows.dtype, device=rows.device
    )
    return xp.concat([rows, zeros], axis=-2)


def _transposed_product(rows: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Return ``rows @ matrix`` as products of the transposed matrix with ``WHOLE`` rows each."""
    *replicates, count, inner = rows.shape
    portions = -(-count // WHOLE)
    whole = _padded(np, rows, portions * WHOLE).reshape(*replicates, portions, WHOLE, inner)
    product = _multiply(matrix.mT[..., None, :, :], whole.mT).mT
    shape = *product.shape[:-3], portions * WHOLE, product.shape[-1]
    return product.reshape(shape)[..., :count, :]


@cache
def _length(
    kind: str, shape: tuple[int, ...], by_columns: bool, whole: int, threads: tuple[int, ...] = ()
) -> int:
    """Return the length of portions of ``whole`` rows; 0 if every length fails the check."""
    if not _agrees(kind, shape, by_columns, REFERENCE, threads):
        return 0
    for length in range(whole, max(whole, REFERENCE) + 1, WHOLE):
        if length == REFERENCE or _agrees(kind, shape, by_columns, length, threads):
            return length
    return REFERENCE


@cache
def _agrees(
    kind: str,
    shape: tuple[int, ...],
    by_columns: bool,
    length: int,
    threads: tuple[int, ...],
    transposed: bool = False,
) -> bool:
    """Return whether every row of a portion of ``length`` rows has the bits of the reference."""
    *replicates, inner, outer = shape
    multiply = _transposed_product if transposed else _multiply
    random = np.random.default_rng(length)
    pattern = (random.random(_PATTERN) - 0.5).astype(kind)

    def numbers(*shape: int) -> np.ndarray:
        return np.resize(pattern[random.integers(_PATTERN // 2) :], shape)

    for _ in range(-(-_COMPARED // outer)):
        if by_columns:
            matrix = np.swapaxes(numbers(*replicates, outer, inner), -1, -2)
        else:
            matrix = numbers(*replicates, inner, outer)
        rows = numbers(*replicates, REFERENCE, inner)
        expected = multiply(rows, matrix)
        order = np.arange(1, length + 1) % REFERENCE  # every row at its neighbour's position
        found = multiply(rows[..., order, :], matrix)
        if not np.array_equal(found, expected[..., order, :]):
            return False
    return True
