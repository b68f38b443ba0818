"""Loaders of MNIST and Fashion-MNIST (IDX files) and CIFAR-10 (the published Python batches)."""

from __future__ import annotations

import io
import os
import pickle
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .dataset import Dataset, row_bounds
from .files import Source, load_idx, locate, read_bytes

PathLike = str | os.PathLike[str]

_MNIST = "https://storage.googleapis.com/cvdf-datasets/mnist"
_FASHION = "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion"
_CIFAR = "https://www.cs.toronto.edu/~kriz/cifar"
_BATCHES = (*(f"data_batch_{k}" for k in range(1, 6)), "test_batch")
_FOLDER = "cifar-10-batches-py"


def mnist(path: PathLike | None = None, *, signed: bool = False) -> Dataset:
    """Return MNIST (60,000 x 784 and a test part of 10,000), float32, digits 0..9.

    Pixels are divided by 255. Row bounds: 784 (L1), 28 (L2). Source: LeCun, Cortes and Burges, The
    MNIST database of handwritten digits.

    Parameters
    ----------
    path : str or path-like, optional
        Folder with the four IDX files (or with a sub-folder ``mnist`` that has them).
    signed : bool
        Scale the pixels to [-1, 1] instead of [0, 1].
    """
    digests = {  # of the unpacked files
        "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
        "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
        "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
        "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
    }
    page = "https://yann.lecun.com/exdb/mnist"
    return _idx("mnist", _MNIST, page, digests, path, signed)


def fashion_mnist(path: PathLike | None = None, *, signed: bool = False) -> Dataset:
    """Return Fashion-MNIST (60,000 x 784 and a test part of 10,000), float32, classes 0..9.

    Pixels are divided by 255. Row bounds: 784 (L1), 28 (L2). The classes are T-shirt, trouser,
    pullover, dress, coat, sandal, shirt, sneaker, bag and ankle boot. Source: Xiao, Rasul and
    Vollgraf, Fashion-MNIST, 2017.

    Parameters
    ----------
    path, signed
        As in :func:`mnist`; the sub-folder is ``fashion_mnist``.
    """
    digests = {  # of the packed files
        "train-images-idx3-ubyte": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "train-labels-idx1-ubyte": "25c81989df183df01b3e8a0aad5dffbe",
        "t10k-images-idx3-ubyte": "bef4ecab320f06d8554ea6380940ec79",
        "t10k-labels-idx1-ubyte": "bb300cfdad3c16e7a12a480ee83cd310",
    }
    page = "https://github.com/zalandoresearch/fashion-mnist"
    return _idx("fashion_mnist", _FASHION, page, digests, path, signed, packed=True)


def _idx(
    name: str,
    url: str,
    page: str,
    digests: Mapping[str, str],
    path: PathLike | None,
    signed: bool,
    packed: bool = False,
) -> Dataset:
    """Return the data set of four IDX files: images and labels of both parts."""
    sources = tuple(
        Source(
            (f"{name}/{file}",),
            f"{url}/{file}.gz",
            f"md5:{digest}",
            page,
            packed=packed,
            required=file.startswith("train"),
        )
        for file, digest in digests.items()
    )
    files = locate(name, sources, path)
    parts: list[Any] = []
    for images, marks in zip(files[::2], files[1::2], strict=True):
        parts += (None, None) if None in (images, marks) else _grey(images, marks, signed)
    X, y, X_test, y_test = parts
    return Dataset(X, y, X_test, y_test, name, row_bounds(784), 10)


def _grey(images: Any, labels: Any, signed: bool) -> tuple[np.ndarray, np.ndarray]:
    pixels, y = load_idx(images), load_idx(labels)
    if pixels.ndim != 3 or pixels.shape[1:] != (28, 28) or pixels.dtype != np.uint8:
        raise ValueError(f"{images}: expected uint8 images of 28 x 28, got {pixels.shape}")
    if y.shape != pixels.shape[:1] or y.max(initial=0) > 9:
        raise ValueError(f"{labels}: expected {len(pixels)} digits from 0 to 9, got {y.shape}")
    return _scaled(pixels.reshape(len(pixels), -1), signed), y.astype(np.int64)


def _scaled(pixels: np.ndarray, signed: bool) -> np.ndarray:
    """Return bytes as numbers in [0, 1], or in [-1, 1]."""
    X = pixels.astype(np.float32)
    X /= np.float32(255)
    if signed:
        X *= 2
        X -= 1
    return X


def cifar10(path: PathLike | None = None, *, signed: bool = False) -> Dataset:
    """Return CIFAR-10 (50,000 x 3072 and a test part of 10,000), float32, classes 0..9.

    Pixels are divided by 255; a row is three planes of 32 x 32, red, green and blue, so that
    ``X.reshape(-1, 3, 32, 32)`` are images. Row bounds: 3072 (L1), sqrt(3072) (L2). The classes
    are airplane, automobile, bird, cat, deer, dog, frog, horse, ship and truck.

    The published files are pickles, which can run arbitrary code when loaded. Only arrays, numbers,
    text and containers of them are loaded here; a file with anything else raises before any of
    its code runs. Source: Krizhevsky, Learning multiple layers of features from tiny images, 2009.

    Parameters
    ----------
    path : str or path-like, optional
        Folder with the six batches (or with a sub-folder ``cifar-10-batches-py`` that has
        them), or with the archive ``cifar-10-python.tar.gz``; or that archive.
    signed : bool
        As in :func:`mnist`.
    """
    source = Source(
        ("cifar-10-python.tar.gz",),
        f"{_CIFAR}-10-python.tar.gz",
        "md5:c58f30108f718f92721af3b95e74349a",
        f"{_CIFAR}.html",
        packed=True,
    )
    folders = _folders(path)
    if folders:
        contents = {name: read_bytes(folders[0] / name) for name in _BATCHES}
    else:
        (archive,) = locate("cifar10", (source,), path)
        contents = _members(archive)
    parts = [_batch(name, contents[name]) for name in _BATCHES]
    X, y = (np.concatenate(each) for each in zip(*parts[:-1], strict=True))
    X_test, y_test = parts[-1]
    images, test_images = _scaled(X, signed), _scaled(X_test, signed)
    return Dataset(images, y, test_images, y_test, "cifar10", row_bounds(3072), 10)


def _folders(path: PathLike | None) -> list[Path]:
    """Return the folders that contain the unpacked batches."""
    given = os.environ.get("DPANALYSIS_DATA") if path is None else path
    if not given:
        return []
    folder = Path(given).expanduser()
    return [
        each
        for each in (folder, folder / _FOLDER, folder / "cifar10")
        if all((each / name).is_file() for name in _BATCHES)
    ]


def _members(archive: Any) -> dict[str, bytes]:
    """Return the batches of the archive by name, without unpacking to disk."""
    found = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(read_bytes(archive))) as tar:
            for name in _BATCHES:
                file = tar.extractfile(f"{_FOLDER}/{name}")
                found[name] = b"" if file is None else file.read()
    except (tarfile.TarError, KeyError, EOFError) as error:
        raise ValueError(f"{archive}: expected the CIFAR-10 batches, got {error}") from error
    return found


def _batch(name: str, content: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Return the images (m, 3072), uint8, and the labels of one batch."""
    try:
        batch = _ArraysOnly(io.BytesIO(content), encoding="bytes").load()
        pixels, y = np.asarray(batch[b"data"]), np.asarray(batch[b"labels"], dtype=np.int64)
    except Exception as error:  # a damaged pickle may raise anything
        raise ValueError(f"{name}: expected a batch of CIFAR-10, got {error}") from error
    if pixels.ndim != 2 or pixels.shape[1] != 3072 or pixels.dtype != np.uint8:
        raise ValueError(f"{name}: expected uint8 rows of 3072, got {pixels.dtype} {pixels.shape}")
    if y.shape != pixels.shape[:1] or not ((y >= 0) & (y <= 9)).all():
        raise ValueError(f"{name}: expected {len(pixels)} labels from 0 to 9, got {y.shape}")
    return pixels, y


class _ArraysOnly(pickle.Unpickler):
    """Unpickler restricted to arrays, numbers, text and containers, which runs no code."""

    def find_class(self, module: str, name: str) -> Any:
        """Return a class or function that constructs arrays; raise for all others."""
        if (module, name) in (("numpy", "ndarray"), ("numpy", "dtype")):
            return getattr(np, name)
        cores = ("numpy.core.multiarray", "numpy._core.multiarray")
        if module in cores and name == "_reconstruct":
            return _empty_array
        raise pickle.UnpicklingError(f"a pickle that asks for {module}.{name}")


def _empty_array(kind: Any, shape: Any, code: Any) -> np.ndarray:
    """Return an empty array of no other class, whose type and data the pickle then sets."""
    return np.ndarray.__new__(np.ndarray, (0,), np.uint8)
