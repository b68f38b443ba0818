"""Checks and preparation of data matrices, by blocks of rows to avoid copies of the whole matrix.

The owner of rows in memory may change them after they were checked, so they are checked again. A
matrix whose number of columns was inferred from the data is marked, and private runs refuse it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import numpy as np
import scipy.sparse as sp
from array_api_compat import array_namespace, is_array_api_obj, is_jax_array, is_numpy_array

from ..._devices import match_device, readable, settled, shares_namespace
from ..._validation import refuse_mask
from ...kernels.products import WHOLE
from ...privacy.facts import Block
from ..row_bound import SMALLEST_RADIUS, TOLERANCE, Order, RowBound, implied_radius, norm_name

# A multiplier below this becomes zero, far above the subnormal numbers. So the product of any other
# with a row's entry errs by at most 2^-49 of the bound. And in double only derivatives below 2^-260
# count as zero, see rounding.TINY: if larger ones did, the loss would not be smooth there.
_LEAST_SCALE = {32: 2.0**-100, 64: 2.0**-700}  # by the bits of the dtype

_WORDS = (
    "; of two words make -1 and +1 by np.where(y == 'yes', 1, -1), of several 0, 1, ... by "
    "np.unique(y, return_inverse=True)[1]"
)

_BLOCK_ENTRIES = 1 << 18
NORM_ENTRIES = 1 << 14
_DEVICE_ENTRIES = 1 << 24


def is_sparse(X: Any) -> bool:
    """Whether ``X`` is a SciPy sparse matrix (a bool, so that X keeps its static type)."""
    return bool(sp.issparse(X))


@np.errstate(all="ignore")  # a warning would reveal a record
def prepare(X: Any, y: Any, classification: bool) -> tuple[Any, Any]:
    """Return ``X, y`` in the form that the kernels require; raise if they are not valid.

    Float32 and float64 are kept; anything else becomes float64. A dense matrix that is not
    C-ordered, and a sparse one that is not CSR, is converted once.
    """
    names = _column_names(X)
    X = _matrix(X)
    y = _labels(y, X)
    for name, array in (("X", X), ("y", y)):
        refuse_not_finite(name, *not_finite(array, names))
    refuse_overflow(*overflowing(X))
    if classification:
        wrong = wrong_labels(y)
        if wrong.shape[0]:
            refuse_labels(float(wrong[0]), zero_or_one(y))
    return X, y


def check_real(name: str, array: Any) -> None:
    """Raise TypeError unless the array's dtype is real."""
    if not hasattr(array.dtype, "kind"):  # of another namespace than NumPy's, which has no words
        if array_namespace(array).isdtype(array.dtype, "complex floating"):
            raise TypeError(f"{name} must hold real numbers, got dtype {array.dtype}")
    elif array.dtype.kind not in "fiub":
        words = array.dtype.kind in "OSUT" and name == "y"
        raise TypeError(
            f"{name} must hold real numbers, got dtype {array.dtype}{_WORDS if words else ''}"
        )


def count_not_finite(array: Any) -> int:
    """Count the NaN and infinite entries."""
    array = array.data if is_sparse(array) else array
    xp = array_namespace(array)
    return sum(
        int(xp.sum(xp.astype(~xp.isfinite(block), xp.int64))) for _, _, block in row_blocks(array)
    )


def not_finite(array: Any, names: list[Any] | None = None, start: int = 0) -> tuple[int, str]:
    """Count the entries that are not finite, and locate the first; rows count from ``start``."""
    count = count_not_finite(array)
    return count, _where(array, names, start) if count else ""


def wrong_labels(y: Any) -> Any:
    """Return the labels that are neither -1 nor +1."""
    return y[(y != 1) & (y != -1)]


def zero_or_one(y: Any) -> bool:
    """Whether all labels are 0 or 1."""
    return bool(array_namespace(y).all((y == 0) | (y == 1)))


def canonical_csr(X: Any) -> Any:
    """Return ``X`` as CSR with sorted indices and no duplicates, without a copy if it is that."""
    X = sp.csr_array(X)
    X.check_format(full_check=True)  # the kernels trust the indices
    if not X.has_sorted_indices or not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    return X


def dense_rows(X: Any, dtype: Any) -> Any:
    """Return ``X`` in C order and aligned, as the kernels need it, without a copy if it is that."""
    return np.require(X, dtype, ["C_CONTIGUOUS", "ALIGNED"])


def _matrix(X: Any) -> Any:
    """Return ``X`` as canonical CSR, C-ordered NumPy, or floats of its own namespace."""
    if type(X).__module__.partition(".")[0] == "dask":
        raise TypeError("X must be in memory, got a Dask array, which ERM alone takes")
    if is_sparse(X):
        check_real("X", X)
        if X.dtype not in (np.float32, np.float64):
            X = X.astype(np.float64)  # first, because duplicates are summed
        X = canonical_csr(X)
    elif not is_array_api_obj(X) or is_numpy_array(X):
        refuse_mask("X", X)
        # In a list the type of one record's numbers would decide on those of all others.
        listed = not hasattr(X, "dtype") and not hasattr(X, "dtypes")
        try:
            X = _of_frame(X) if hasattr(X, "dtypes") else np.asarray(X)
        except ValueError as error:  # rows of different lengths
            raise TypeError(f"X must be a table of real numbers: {error}") from error
        check_real("X", X)
        dtype = X.dtype if X.dtype == np.float32 and not listed else np.float64
        X = dense_rows(X, dtype) if X.ndim else X
    elif is_jax_array(X):
        raise TypeError(
            f"X must be an array whose entries can be assigned, got a {type(X).__name__}: sums are "
            "added up in place; give numpy.asarray(X)"
        )
    else:
        check_real("X", X)
        xp = array_namespace(X)
        X = X if X.dtype in (xp.float32, xp.float64) else xp.astype(X, xp.float64)
    refuse_shape(X)
    # A view, for the owner of an array may also assign its shape.
    return X if is_sparse(X) else settled(X[...])


def _of_frame(X: Any) -> np.ndarray:
    """Return a data frame of numeric columns, such as pandas' nullable ones, as an array."""
    array = np.asarray(X)
    if array.dtype != object:
        return array
    try:
        return np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"X must hold a real number in every cell: {error}") from None


def _column_names(X: Any) -> list[Any] | None:
    """Return a data frame's column names; raise TypeError if a column is not numeric."""
    if not (hasattr(X, "columns") and hasattr(X, "dtypes")):
        return None
    names = list(X.columns)
    for name, dtype in zip(names, X.dtypes):
        if getattr(dtype, "kind", "O") not in "fiub":
            raise TypeError(
                f"X must hold real numbers, got dtype {dtype} in column {name!r}: "
                "dpanalysis.preprocessing.PublicEncoder makes numbers of words by public domains"
            )
    return names


def _where(array: Any, names: list[Any] | None, start: int) -> str:
    """Return the position of the first entry that is not finite, for a message."""
    if not is_sparse(array):
        for lo, _, block in row_blocks(array):
            found = array_namespace(block).nonzero(~array_namespace(block).isfinite(block))
            if found[0].shape[0]:
                row, column = lo + int(found[0][0]), int(found[-1][0])
                break
        if array.ndim == 1:
            return f" (first in row {start + row})"
    else:
        entry = int(np.flatnonzero(~np.isfinite(array.data))[0])
        row = int(np.searchsorted(array.indptr, entry, side="right")) - 1
        column = int(array.indices[entry])
    named = column if names is None else repr(names[column])
    return f" (first in row {start + row}, column {named})"


def _labels(y: Any, X: Any) -> Any:
    """Return a copy of ``y`` as floats on the device of ``X``, one for each of its rows."""
    refuse_mask("y", y)
    on_host = is_sparse(X) or is_numpy_array(X)
    on_device = not on_host and shares_namespace(y, X)
    y = y if on_device else readable("y", y, None if on_host else X)
    check_real("y", y)
    y = y if on_device else y.astype(np.float64)
    if not on_host:
        y = array_namespace(X).astype(settled(match_device("y", y, X)), X.dtype)
    refuse_length(X, y)
    return y


# Errors, the same whether the data are in memory or not


def refuse_shape(X: Any) -> None:
    """Raise unless ``X`` has rows and columns, and is dense or a SciPy matrix."""
    layout = str(getattr(X, "layout", "torch.strided"))
    if layout.startswith("torch.sparse"):
        raise TypeError(
            "X must be dense or a SciPy CSR matrix, got a tensor of layout "
            f"{layout}: give X.to_dense()"
        )
    if X.ndim != 2 or X.shape[0] < 1 or X.shape[1] < 1:
        raise ValueError(f"X must have shape (n, d) with n, d >= 1, got {tuple(X.shape)}")


def refuse_length(X: Any, y: Any) -> None:
    """Raise ValueError unless there is one label for each row."""
    if tuple(y.shape) != (X.shape[0],):
        raise ValueError(
            f"y must have shape ({X.shape[0]},), one label for each row of X, got {tuple(y.shape)}"
        )


def refuse_not_finite(name: str, count: int, where: str) -> None:
    """Raise ValueError if entries are not finite; ``where`` locates the first."""
    if count:
        raise ValueError(f"{name} must be finite, got {count} NaN or infinite entries{where}")


def refuse_overflow(count: int, first: list[int]) -> None:
    """Raise ValueError if the L1 norms of rows overflow."""
    if count:
        raise ValueError(
            f"X must have rows whose norms are finite numbers, got {count} rows whose norms "
            f"overflow (first rows {first}): give the features another unit"
        )


def refuse_labels(first: float, zero_one: bool) -> None:
    """Raise ValueError naming ``first``, the first invalid label."""
    hint = "; for labels 0 and 1 pass 2 * y - 1" if zero_one else ""
    raise ValueError(f"y must hold the labels -1 and +1 only, got {first!r}{hint}")


def refuse_rows(bound: RowBound, count: int, first: list[int], largest: float) -> None:
    """Raise ValueError if rows exceed a bound with ``enforce="check"``."""
    if count:
        raise ValueError(
            f"row_bound: {count} rows of X exceed the {norm_name(bound.order)} bound "
            f"{bound.radius:g} (first rows {first}, largest norm {largest:.6g})"
        )


def read_only(array: Any) -> Any:
    """Mark an array that this package owns as read-only, and return it."""
    if isinstance(array, np.ndarray):
        array.flags.writeable = False
    return array


def as_float64(array: Any) -> Any:
    """Return ``array`` in float64, without a copy if it is that already."""
    if is_sparse(array) or is_numpy_array(array):
        return array.astype(np.float64, copy=False)
    xp = array_namespace(array)
    return xp.astype(array, xp.float64, copy=False)


def row_blocks(
    X: Any, most: int = _BLOCK_ENTRIES, rows: int | None = None
) -> Iterator[tuple[int, int, Any]]:
    """Yield ``(lo, hi, X[lo:hi])`` over blocks of ``most`` entries, or of 128 MB on a device.

    A block has at most ``rows`` rows, if given. Larger dense blocks are whole multiples of the
    portion of a row product, which would copy a partial one.
    """
    n, sparse = X.shape[0], is_sparse(X)
    width = (X.nnz // max(1, n) if sparse else X.shape[-1]) if X.ndim == 2 else 1
    entries = most if sparse or is_numpy_array(X) else _DEVICE_ENTRIES
    step = max(1, min(rows or n, entries // max(1, width)))
    if sparse and 0 < n <= step:
        yield 0, n, X  # a slice would be a copy
        return
    step -= step % WHOLE if step > WHOLE else 0
    for lo in range(0, n, step):
        hi = min(n, lo + step)
        yield lo, hi, X[lo:hi, ...] if not sparse else X[lo:hi]


@np.errstate(all="ignore")  # a warning would reveal a record
def row_norms(X: Any, order: Order) -> Any:
    """Return the norms of the rows in float64 (shape ``(n,)``), safe from overflow."""
    if isinstance(order, tuple):
        return block_norms(X, order)
    parts = []
    xp = array_namespace(X.data if is_sparse(X) else X)
    # Large temporary arrays would be returned to the system and faulted in again.
    for _, _, block in row_blocks(X, _BLOCK_ENTRIES if is_sparse(X) else NORM_ENTRIES):
        size = abs(block)
        if is_sparse(block):
            largest = size.max(axis=1).toarray().reshape(-1).astype(np.float64)
        else:
            largest = xp.astype(xp.max(size, axis=1), xp.float64)
        if order == math.inf:
            parts.append(largest)
            continue
        unit = xp.where(largest > 0, largest, xp.ones_like(largest))
        if is_sparse(block):
            # Divided entry by entry: the reciprocal of a subnormal number overflows.
            shares = size.data / np.repeat(unit, np.diff(size.indptr))
            size = sp.csr_array((shares**order, size.indices, size.indptr), size.shape)
            total = size.sum(axis=1)
        else:
            total = xp.sum((xp.astype(size, xp.float64) / unit[:, None]) ** order, axis=1)
        parts.append(largest * (total if order == 1 else xp.sqrt(total)))
    return xp.concat(parts)


@np.errstate(all="ignore")
def norm_limits(
    X: Any, scale: Any, limit: float, norms_of: Callable[[Any, Order], Any] = row_norms
) -> Any:
    """Return bounds on the L2 norms of the (scaled) rows for clipping, at most ``limit``.

    A subnormal norm may be too small by a third, so it is doubled. A row that has grown beyond the
    limit since it was checked gets the limit, and so is outside: it adds nothing to a sum.
    """
    norms = norms_of(X, 2)
    norms = norms if scale is None else norms * scale
    xp = array_namespace(norms)
    norms = norms + xp.where(norms < SMALLEST_RADIUS, norms, xp.zeros_like(norms))
    return read_only(xp.where(norms > limit, xp.full_like(norms, limit), norms))


@np.errstate(all="ignore")
def block_norms(X: Any, blocks: Sequence[Block]) -> Any:
    """Return each row's largest ratio of a block's norm to its radius: float64, shape (n,)."""
    ends = np.cumsum([block.size for block in blocks])
    if ends[-1] != X.shape[1]:
        raise ValueError(f"row_bound: its blocks have {ends[-1]} columns, and X has {X.shape[1]}")
    if is_sparse(X):
        return _block_norms_csr(X, blocks)
    xp, parts = array_namespace(X), []
    for _, _, rows in row_blocks(X, NORM_ENTRIES):
        size, found = abs(rows), None
        for block, hi in zip(blocks, ends):
            part = as_float64(size[:, int(hi) - block.size : int(hi)])
            norm = (xp.sum if block.order == 1 else xp.max)(part, axis=1) / block.radius
            found = norm if found is None else xp.maximum(found, norm)
        parts.append(found)
    return xp.concat(parts)


def _block_norms_csr(X: Any, blocks: Sequence[Block]) -> Any:
    """Compute :func:`block_norms` of CSR: sums by merging a block's columns, maxima by entry."""
    sizes = np.array([block.size for block in blocks])
    inverse = np.repeat([1.0 / block.radius for block in blocks], sizes)
    largest = np.repeat([block.order != 1 for block in blocks], sizes)
    place = np.repeat(np.arange(len(blocks)), sizes)
    found = []
    for _, _, rows in row_blocks(X):
        entries = abs(rows.data.astype(np.float64)) * inverse[rows.indices]
        box = largest[rows.indices]
        alone = sp.csr_array((np.where(box, entries, 0.0), rows.indices, rows.indptr), rows.shape)
        added = np.where(box, 0.0, entries)
        # Entries of one row in the same block get one index: sparse arithmetic adds duplicates.
        shape = rows.shape[0], len(blocks)
        sums = sp.csr_array((added, place[rows.indices], rows.indptr.copy()), shape)
        found.append(np.maximum(alone.max(axis=1).toarray(), sums.max(axis=1).toarray()))
    return np.concatenate(found)


def rows_over(norms: Any, bound: RowBound) -> tuple[int, list[int], float]:
    """Return how many rows exceed a bound beyond rounding, the first of them, the largest norm."""
    xp = array_namespace(norms)
    over = xp.nonzero(norms > bound.radius * (1.0 + TOLERANCE))[0]
    return over.shape[0], _first(over), float(xp.max(norms))


def _first(indices: Any) -> list[int]:
    return [int(indices[k]) for k in range(min(5, indices.shape[0]))]


def overflowing(X: Any) -> tuple[int, list[int]]:
    """Return the number of rows whose L1 norm overflows, and the first of them.

    The L1 norm is the largest of the norms: if it does not overflow, no other does.
    """
    values = X.data if is_sparse(X) else X
    if not values.shape[0]:
        return 0, []
    xp = array_namespace(values)
    largest = max(float(xp.max(values)), -float(xp.min(values)))
    if largest <= np.finfo(np.float64).max / (2.0 * X.shape[1]):
        return 0, []
    lost = xp.nonzero(~xp.isfinite(row_norms(X, 1)))[0]
    return lost.shape[0], _first(lost)


@np.errstate(all="ignore")
def row_scale(
    X: Any, bounds: Sequence[RowBound], norms_of: Callable[[Any, Order], Any] = row_norms
) -> Any:
    r"""Return the factors that scale every row inside the bounds, or None if all are inside.

    Raises ValueError if a row exceeds a bound with ``enforce="check"``.

    A factor is :math:`(1 - 2^{-48}) R/\|x\|` for the radius R, rounded; it is 0 if that is too
    small for the dtype of X, and the row then counts as a row of zeros. So the scaled row is within
    the bound up to the rounding of its norm, which is less than 2^-48 of it for up to 16 features,
    and included in :func:`dpanalysis.kernels.rounding.sum_rounding` for more.
    """
    scale = None
    for bound in bounds:
        norms = norms_of(X, bound.order)
        xp = array_namespace(norms)
        if bound.enforce == "check":
            refuse_rows(bound, *rows_over(norms, bound))
        over = norms > bound.radius
        if bool(xp.any(over)):
            # Slightly below, so that rounding leaves no row over the bound.
            factor = (1.0 - 2.0**-48) * bound.radius / xp.where(over, norms, xp.ones_like(norms))
            least = _LEAST_SCALE[array_namespace(X.data if is_sparse(X) else X).finfo(X.dtype).bits]
            factor = xp.where(factor < least, xp.zeros_like(norms), factor)
            factor = xp.where(over, factor, xp.ones_like(norms))
            scale = factor if scale is None else xp.where(factor < scale, factor, scale)
    return scale


# Changed rows


# Number of entries from which on the compiled kernel pays off.
_MANY = 1 << 20


def recheck_slack(d: int) -> float:
    """Return the relative growth of a row that goes undetected: two roundings of its norm.

    The two norms of a row of d entries may be summed in different orders.
    """
    return 2.0**-40 + 4.0 * (d + 16) * 2.0**-53


def row_limits(bounds: Sequence[RowBound], d: int) -> tuple[float, float, float]:
    """Return the limits that sums enforce for each row: see :mod:`dpanalysis.kernels.norms`.

    They limit the L1 norm and the L2 norm, which imply every public bound of a row in these norms,
    and the ratio of a norm to the cached one; all include the slack of :func:`recheck_slack`.
    """
    sizes = [
        implied_radius([b], 1, d) for b in bounds if b.order == 1 or isinstance(b.order, tuple)
    ]
    lengths = [implied_radius([b], 2, d) for b in bounds if b.order != 1]
    more = 1.0 + recheck_slack(d)
    return more * min(sizes, default=math.inf), more * min(lengths, default=math.inf), more


def check_unchanged(X: Any, scale: Any, bounds: Sequence[RowBound], norms: Any = None) -> None:
    """Raise ValueError if a row has grown since its multiplier and its norm were computed."""
    if is_sparse(X):
        _check_indices(X)
    allowed: list[tuple[Order, Any]] = [(bound.order, bound.radius) for bound in bounds]
    if norms is not None or not allowed:  # without any bound, check that the rows are finite
        allowed.append((2, math.inf if norms is None else norms))
    more, sizes = 1.0 + recheck_slack(X.shape[1]), {}
    for order, limit in allowed:
        if order not in sizes:
            sizes[order] = _quick_norms(X, order)
        size = sizes[order]
        xp = array_namespace(size)
        size = size if scale is None else size * scale
        wrong = xp.nonzero(~((size <= more * limit) & xp.isfinite(size)))[0]
        if not wrong.shape[0]:
            continue
        i = int(wrong[0])
        old = limit if isinstance(limit, float) else float(limit[i])
        raise ValueError(
            f"X has been changed since the problem was built: row {i} had an {norm_name(order)} "
            f"norm of at most {old:.6g} where it counts, and has {float(size[i]):.6g} now; build a "
            "new problem"
        )


@np.errstate(all="ignore")
def _quick_norms(X: Any, order: Order) -> Any:
    """Return the row norms in float64, in one pass; recompute those whose squares underflow."""
    if isinstance(order, tuple) or order == math.inf:
        return row_norms(X, order)
    if is_sparse(X):
        sizes = abs(X.data.astype(np.float64)) ** order
        total = sp.csr_array((sizes, X.indices, X.indptr), X.shape) @ np.ones(X.shape[1])
    elif not is_numpy_array(X):
        return row_norms(X, order)
    elif X.size >= _MANY and X.flags.c_contiguous and X.dtype.char in "fd":
        from ...kernels.norms import norms  # lazily: Numba is slow to import

        return norms(X, int(order))
    elif order == 2:
        total = np.einsum("ij,ij->i", X, X, dtype=np.float64)
    else:
        blocks = row_blocks(X, NORM_ENTRIES)
        total = np.concatenate([abs(block).sum(axis=1, dtype=np.float64) for *_, block in blocks])
    if order == 1:
        return total
    doubtful = np.nonzero(~((total > 1e-280) & (total < 1e300)))[0]
    total = np.sqrt(total)
    if doubtful.size:
        total[doubtful] = row_norms(X[doubtful], 2)
    return total


def _check_indices(X: Any) -> None:
    """Raise ValueError if a CSR matrix is no longer canonical, as the kernels assume."""
    fresh = sp.csr_array((X.data, X.indices, X.indptr), X.shape)  # without cached flags
    try:
        fresh.check_format(full_check=True)
        canonical = fresh.has_canonical_format
    except ValueError:
        canonical = False
    if not canonical:
        raise ValueError(
            "X has been changed since the problem was built: its indices are not sorted, valid "
            "and different any more; build a new problem"
        )


# Widths inferred from the data


class _ReadWidthArray(np.ndarray):
    """Dense rows; slices and the results of arithmetic and stacking keep this class."""

    __array_priority__ = 1.0


class _ReadWidth:
    """Sparse rows; slices, copies, other formats and dense conversions stay marked."""

    _csr_container = property(lambda self: _ReadWidthCSR)
    _csc_container = property(lambda self: _ReadWidthCSC)
    _coo_container = property(lambda self: _ReadWidthCOO)

    def toarray(self, *arguments: Any, **options: Any) -> np.ndarray:
        """See :meth:`scipy.sparse.csr_array.toarray`."""
        return super().toarray(*arguments, **options).view(_ReadWidthArray)  # type: ignore[misc]

    todense = toarray


class _ReadWidthCSR(_ReadWidth, sp.csr_array):
    pass


class _ReadWidthCSC(_ReadWidth, sp.csc_array):
    pass


class _ReadWidthCOO(_ReadWidth, sp.coo_array):
    pass


def with_read_width(X: Any) -> Any:
    """Return the same rows, sparse or dense, in a class that marks their width as inferred."""
    return _ReadWidthCSR(X) if sp.issparse(X) else np.asarray(X).view(_ReadWidthArray)


def has_read_width(X: Any) -> bool:
    """Whether the rows are marked as having an inferred width."""
    return isinstance(X, _ReadWidthArray | _ReadWidth)


def refuse_read_width() -> NoReturn:
    """Raise ValueError: a private run must not use rows of inferred width."""
    raise ValueError(
        "n_features must be given to load_libsvm for a private run: without it the number of "
        "columns of X is the largest index in the private file, and the shape of the answer would "
        "reveal it; give the number of columns that was public before, load_libsvm(path, "
        "n_features=...)"
    )
