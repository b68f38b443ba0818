"""Parsers of LIBSVM and IDX files, and the unpacking that all parsers share.

Every parser reads plain, ``.gz`` and ``.bz2`` files alike (told apart by their first
bytes, not by their name) and refuses a damaged file with a :class:`ValueError` that names
the file, the line or byte, and what was expected there.
"""

from __future__ import annotations

import bz2
import gzip
import math
import os
import warnings
import zlib
from pathlib import Path

import numpy as np
import scipy.sparse

from .._validation import check_int

__all__ = ["load_idx", "load_libsvm", "parse_numbers", "read_bytes"]


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """Return the unpacked content of a plain, gzip or bzip2 file.

    Parameters
    ----------
    path : str or path-like
        The file.

    Returns
    -------
    bytes
        Its content, unpacked where the first bytes say that it is packed.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If a packed file is damaged or cut short.

    Examples
    --------
    >>> import gzip, pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "numbers.gz")
    ...     _ = path.write_bytes(gzip.compress(b"1 2 3"))
    ...     read_bytes(path)
    b'1 2 3'
    """
    content = Path(path).read_bytes()
    try:
        if content[:2] == b"\x1f\x8b":
            return gzip.decompress(content)
        if content[:3] == b"BZh":
            return bz2.decompress(content)
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise ValueError(
            f"{path}: damaged or truncated packed file of {len(content)} bytes ({error}); "
            "expected a complete .gz or .bz2 file"
        ) from error
    return content


def parse_numbers(text: bytes) -> np.ndarray | None:
    """Parse whitespace-separated numbers; ``None`` when something is not a number."""
    if not text.strip():  # NumPy reads blank text as [-1.0] in some versions
        return np.empty(0)
    with warnings.catch_warnings():
        # NumPy stops at the first thing that is not a number, and only warns.
        warnings.simplefilter("error")
        try:
            return np.fromstring(text, dtype=np.float64, sep=" ")
        except (DeprecationWarning, ValueError):
            return None


def load_libsvm(
    path: str | os.PathLike[str],
    n_features: int | None = None,
    *,
    zero_based: bool = False,
) -> tuple[scipy.sparse.csr_array, np.ndarray]:
    r"""Read a file in LIBSVM format: ``label index:value index:value ...`` on each line.

    Stored zeros are dropped, indices may come in any order, blank lines and
    ``# comments`` are skipped.

    Parameters
    ----------
    path : str or path-like
        Plain, ``.gz`` or ``.bz2`` file.
    n_features : int, optional
        Number of columns, public; a private run needs it. Without it the largest index that
        happens to occur is taken, a property of the data (a test file often lacks the last
        columns), and private runs on ``X``, its slices and ``X.toarray()`` are refused. What
        SciPy stacks of it and other columns is a plain matrix, of which nobody knows that.
    zero_based : bool
        Whether the first column has index 0; LIBSVM's own files start at 1.

    Returns
    -------
    X : scipy.sparse.csr_array, shape (n, n_features)
        float64, canonical (sorted, no duplicates, no stored zeros).
    y : ndarray, shape (n,)
        Labels as written, float64.

    Raises
    ------
    ValueError
        If the file is damaged, a line is malformed, an index lies outside the columns
        or occurs twice on one line, or a number is not finite.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "tiny")
    ...     _ = path.write_text("+1 1:0.5 3:2\n-1 2:1 3:0\n")
    ...     X, y = load_libsvm(path, n_features=3)
    >>> X.toarray()
    array([[0.5, 0. , 2. ],
           [0. , 1. , 0. ]])
    >>> y
    array([ 1., -1.])
    """
    if n_features is not None:
        n_features = check_int("n_features", n_features, low=1)
    content = read_bytes(path)
    if b"#" in content:
        content = b"\n".join(line.split(b"#", 1)[0] for line in content.split(b"\n"))
    text = np.frombuffer(content, dtype=np.uint8)
    blank = (text == ord(" ")) | ((text >= 9) & (text <= 13))
    solid = ~blank
    starts = solid.copy()
    starts[1:] &= blank[:-1]
    tokens = np.flatnonzero(starts)
    token_line = np.searchsorted(np.flatnonzero(text == ord("\n")), tokens)  # from 0
    first = np.ones(tokens.size, dtype=bool)  # the first token of a line is its label
    first[1:] = token_line[1:] != token_line[:-1]
    colons = np.flatnonzero(text == ord(":"))
    flat = parse_numbers(content.replace(b":", b" "))
    # Well-formed means: exactly one colon in every token but the labels, something on both
    # sides of it, and every part one finite number.
    if (
        flat is None
        or flat.size != tokens.size + colons.size
        or not np.array_equal(np.searchsorted(tokens, colons, "right") - 1, np.flatnonzero(~first))
        or not np.append(solid, False)[np.concatenate((colons - 1, colons + 1))].all()
        or not np.isfinite(flat).all()
    ):
        raise _libsvm_error(path, content)
    if not first.any():
        raise ValueError(f"{path}: expected lines 'label index:value ...', got an empty file")

    rows = np.cumsum(first) - 1
    # In the flat list of numbers token k starts after k tokens and as many colons as came before.
    position = np.arange(token_line.size) + np.cumsum(~first) - (~first)
    y = flat[position[first]]
    indices = flat[position[~first]]
    values = flat[position[~first] + 1]
    row = rows[~first]
    lowest = 0 if zero_based else 1
    top = indices.max(initial=lowest - 1) if n_features is None else n_features - 1 + lowest
    wrong = (indices < lowest) | (indices > top) | (indices != np.floor(indices))
    if wrong.any():
        k = int(np.argmax(wrong))
        hint = "; pass zero_based=True if indices start at 0" if indices[k] == 0 else ""
        raise ValueError(
            f"{path}, line {token_line[~first][k] + 1}: expected an integer index between "
            f"{lowest} and {int(top)}, got {indices[k]:g}{hint}"
        )
    column = indices.astype(np.int32) - lowest
    width = n_features if n_features is not None else int(top) - lowest + 1
    counts = np.bincount(row, minlength=y.size)
    indptr = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    X = scipy.sparse.csr_array((values, column, indptr), shape=(y.size, width))
    X.sort_indices()
    repeated = (np.diff(X.indices) == 0) & (np.diff(row) == 0)
    if repeated.any():
        k = int(np.argmax(repeated))
        line = token_line[~first][k] + 1
        raise ValueError(
            f"{path}, line {line}: expected each index once, got {X.indices[k] + lowest} twice"
        )
    X.eliminate_zeros()
    if n_features is None:
        from ..problems.rows.width import with_read_width

        X = with_read_width(X)
    return X, y


def _libsvm_error(path: str | os.PathLike[str], content: bytes) -> ValueError:
    """Return the error for the first malformed line (slow, but only on the way out)."""

    def number(token: str) -> bool:
        try:
            return math.isfinite(float(token))
        except ValueError:
            return False

    text = content.decode("utf-8", "replace")
    for count, line in enumerate(text.split("\n"), start=1):
        tokens = line.split()
        if tokens and not number(tokens[0]):
            return ValueError(
                f"{path}, line {count}: expected a label, got {tokens[0]!r}: labels are numbers"
            )
        for token in tokens[1:]:
            parts = token.split(":")
            if len(parts) != 2 or not (number(parts[0]) and number(parts[1])):
                return ValueError(
                    f"{path}, line {count}: expected 'index:value' with finite numbers, "
                    f"got {token!r}"
                )
    return ValueError(f"{path}: expected LIBSVM text 'label index:value ...'")


def load_idx(path: str | os.PathLike[str]) -> np.ndarray:
    """Read an array in IDX format (MNIST's): a big-endian header, then the numbers.

    Parameters
    ----------
    path : str or path-like
        Plain, ``.gz`` or ``.bz2`` file.

    Returns
    -------
    ndarray
        With the shape and type that the header states, in native byte order.

    Raises
    ------
    ValueError
        If the header is not IDX, or the data are shorter or longer than it states.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "labels-idx1-ubyte")
    ...     _ = path.write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 2, 1]))
    ...     load_idx(path)
    array([7, 2, 1], dtype=uint8)
    """
    content = read_bytes(path)
    kinds = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in kinds:
        raise ValueError(
            f"{path}, byte 0: expected the IDX magic number 00 00 <type> <dimensions>, "
            f"got {content[:4].hex(' ') or 'nothing'}"
        )
    header = 4 + 4 * content[3]
    if len(content) < header:
        raise ValueError(
            f"{path}, byte {len(content)}: expected a header of {header} bytes "
            f"({content[3]} dimensions), got only {len(content)} bytes"
        )
    shape = tuple(np.frombuffer(content, ">u4", count=content[3], offset=4).tolist())
    kind = np.dtype(kinds[content[2]])
    expected = header + math.prod(shape) * kind.itemsize
    if len(content) != expected:
        raise ValueError(
            f"{path}, byte {min(len(content), expected)}: expected {expected} bytes for an "
            f"array of shape {shape}, got {len(content)}"
        )
    array = np.frombuffer(content, kind, offset=header).reshape(shape)
    return array.astype(kind.newbyteorder("="))
