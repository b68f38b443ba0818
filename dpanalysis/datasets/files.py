"""Parsers of LIBSVM and IDX files, and search and download of the files of a data set.

Every parser reads plain, ``.gz`` and ``.bz2`` files (recognized by their first bytes, not by their
name); for a damaged file it raises a :class:`ValueError` that names the file, the line or byte, and
the expected content.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import importlib.util
import io
import math
import os
import tempfile
import warnings
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse

from .._validation import check_int


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """Return the decompressed content of a plain, gzip or bzip2 file."""
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
    """Parse whitespace-separated numbers; ``None`` if a token is not a number."""
    if not text.strip():  # NumPy reads blank text as [-1.0] in some versions
        return np.empty(0)
    with warnings.catch_warnings():
        # NumPy stops at the first token that is not a number, and only warns.
        warnings.simplefilter("error")
        try:
            return np.fromstring(text, dtype=np.float64, sep=" ")
        except (DeprecationWarning, ValueError):
            return None


def is_finite(token: str) -> bool:
    """Return whether a text is a finite number, as other readers of files understand it."""
    if "_" in token or not token.isascii():
        return False
    try:
        return math.isfinite(float(token))
    except ValueError:
        return False


def load_libsvm(
    path: str | os.PathLike[str], n_features: int | None = None, *, zero_based: bool = False
) -> tuple[scipy.sparse.csr_array, np.ndarray]:
    r"""Read a file in LIBSVM format: ``label index:value index:value ...`` on each line.

    Stored zeros, blank lines and ``# comments`` are dropped; indices may be in any order.

    Parameters
    ----------
    path : str or path-like
        Plain, ``.gz`` or ``.bz2`` file.
    n_features : int, optional
        Public number of columns; a private run needs it. By default it is the largest index in the
        file, a property of the data (a test file often lacks the last columns), and private runs on
        ``X``, its slices and ``X.toarray()`` raise. Matrices that SciPy stacks are not marked.
    zero_based : bool
        Whether the first column has index 0; LIBSVM's files start at 1.

    Returns
    -------
    X : scipy.sparse.csr_array, shape (n, n_features)
        float64, canonical (sorted, no duplicates, no stored zeros).
    y : ndarray, shape (n,)
        Labels as written, float64.

    Raises
    ------
    ValueError
        If the file is damaged, or an index occurs twice on one line; the message names the line.

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
    # Well-formed: one colon in every token but the labels, with finite numbers on both sides.
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
    # In the flat list of numbers token k comes after k tokens and all earlier colons.
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
        from ..problems.rows.checks import with_read_width

        X = with_read_width(X)
    return X, y


def _libsvm_error(path: str | os.PathLike[str], content: bytes) -> ValueError:
    """Return the error for the first malformed line."""
    text = content.decode("utf-8", "replace")
    for count, line in enumerate(text.split("\n"), start=1):
        tokens = line.split()
        if tokens and not is_finite(tokens[0]):
            return ValueError(
                f"{path}, line {count}: expected a label, got {tokens[0]!r}: labels are numbers"
            )
        for token in tokens[1:]:
            parts = token.split(":")
            if len(parts) != 2 or not all(map(is_finite, parts)):
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
        Plain, ``.gz`` or ``.bz2`` file; a damaged one raises ValueError.

    Returns
    -------
    ndarray
        With the shape and type of the header, in native byte order.

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


# Search in the user's path, the environment and the cache, and download


#: Environment variable with the folder of the data sets.
ENVIRONMENT = "DPANALYSIS_DATA"


@dataclass(frozen=True)
class Source:
    """One public file: names, address and checksum."""

    names: tuple[str, ...]  # tried in turn, plain and packed; a download is stored under the first
    url: str  # of the file, plain or packed (gzip, bzip2, zip)
    digest: str  # "md5:..." or "sha256:..." of the unpacked content
    page: str
    member: str = ""  # name inside a zip file
    packed: bool = False  # whether the digest is that of the downloaded file
    required: bool = True  # False: may be missing next to a user's training file

    @property
    def candidates(self) -> tuple[str, ...]:
        """File names to search for."""
        return tuple(name + end for name in self.names for end in ("", ".gz", ".bz2"))

    def inside(self, folder: Path) -> Path | None:
        """Return the file in ``folder``, with or without its sub-folder, or None."""
        for name in self.candidates:
            for path in (folder / name, folder / Path(name).name):
                if path.is_file():
                    return path
        return None


def locate(
    name: str, sources: tuple[Source, ...], path: str | os.PathLike[str] | None = None
) -> list[Path | None]:
    """Return the files of a data set; files that are not found are downloaded."""
    if path is not None:
        given = Path(path).expanduser()
        if given.is_file():
            return [given, *(_beside(name, source, given.parent) for source in sources[1:])]
        return [_beside(name, source, given) for source in sources]

    cache = _cache()
    environment = os.environ.get(ENVIRONMENT)
    folders = [Path(environment).expanduser()] if environment else []
    folders += [cache] if cache else []
    found: list[Path | None] = []
    for source in sources:
        here = next((file for folder in folders if (file := source.inside(folder))), None)
        found.append(here or _download(name, source, cache))
    return found


def _beside(name: str, source: Source, folder: Path) -> Path | None:
    found = source.inside(folder)
    if found is None and source.required:
        raise _missing(name, source, f"it is not in {folder}", folder)
    return found


def _cache() -> Path | None:
    """Return the user's cache folder; ``None`` if pooch is not installed."""
    if importlib.util.find_spec("pooch") is None:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of tqdm, in notebooks without widgets
        import pooch

    return Path(pooch.os_cache("dpanalysis"))


def _download(name: str, source: Source, cache: Path | None) -> Path:
    """Fetch a file into the cache, check it, and return its path."""
    tried = f"${ENVIRONMENT} is {os.environ.get(ENVIRONMENT) or 'not set'}"
    if cache is None:
        needs = f"{tried}, and downloading needs pooch (pip install 'dpanalysis-toolkit[figures]')"
        raise _missing(name, source, needs, f"${ENVIRONMENT}")
    try:
        received = _fetch(source.url)
    except Exception as error:  # any error of the network
        reason = f"{tried}, it is not in {cache}, and downloading {source.url} failed: {error}"
        raise _missing(name, source, reason, cache) from error
    target = cache / source.names[0]
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        fresh = Path(scratch, "file")
        fresh.write_bytes(received)
        if source.member:
            with zipfile.ZipFile(io.BytesIO(received)) as archive:
                fresh.write_bytes(archive.read(source.member))
        content = read_bytes(fresh)
        kind, _, expected = source.digest.partition(":")
        got = hashlib.new(kind, received if source.packed else content).hexdigest()
        if got != expected:
            raise ValueError(
                f"{source.url}: expected {kind} {expected}, got {got}; "
                "the file was changed or damaged on its way, and is not used"
            )
        fresh.write_bytes(content)
        os.replace(fresh, target)  # atomic
    return target


def _fetch(url: str) -> bytes:
    import pooch

    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, "download")
        pooch.HTTPDownloader(timeout=60)(url, str(path), None)
        return path.read_bytes()


def _missing(name: str, source: Source, reason: str, folder: Path | str) -> FileNotFoundError:
    return FileNotFoundError(
        f"data set {name!r}: no file {source.names[0]!r} ({reason}). Get it from {source.page} "
        f"and put it, unpacked or as .gz, into {folder}, or pass path=..."
    )
