"""Loaders of the data sets by name, with their files, encodings and row bounds."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from .._validation import check_choice, check_int, check_number, check_rng
from . import tables
from .dataset import Dataset, row_bounds
from .files import Source, load_libsvm, locate
from .images import cifar10, fashion_mnist, mnist
from .tables import load_csv

PathLike: TypeAlias = str | os.PathLike[str]

_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases"
_LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets"


def _pair(page: str, folder: str, digests: dict[str, str], end: str = "") -> tuple[Source, ...]:
    """Return the sources of a training file and of a test part, which may be absent."""
    first = next(iter(digests))
    return tuple(
        Source((file,), f"{folder}/{file}{end}", f"md5:{digest}", page, required=file == first)
        for file, digest in digests.items()
    )


def _libsvm_pair(
    name: str, sources: tuple[Source, ...], path: PathLike | None, width: int
) -> list[Any]:
    """Return X, y, X_test, y_test of a LIBSVM training and test file."""
    parts: list[Any] = []
    for file in locate(name, sources, path):
        X, y = (None, None) if file is None else load_libsvm(file, n_features=width)
        if y is not None and not np.isin(y, (-1.0, 1.0)).all():
            raise ValueError(f"{file}: expected labels -1 and +1, got {np.unique(y)[:5].tolist()}")
        parts += [X, y]
    return parts


def a9a(path: PathLike | None = None) -> Dataset:
    """Return a9a: UCI Adult, binarized by LIBSVM (32,561 x 123 and a test part of 16,281).

    Files ``a9a`` and ``a9a.t``, see :func:`load`. CSR, values 0 and 1. Label +1: income over 50K,
    as in the file. Each of 14 source attributes sets at most one of the 123 indicators, so a row
    has norms of at most 14 (L1) and sqrt(14) (L2). ``a9a().pooled().with_intercept()`` is Adult as
    in Table 1 of Chen and Lee (2020) (48,842 x 124, the larger class .761). Source: LIBSVM Data,
    binary classification; Becker and Kohavi, Adult, doi 10.24432/C5XW20.
    """
    digests = {
        "a9a": "fb3596510d780aaf76a06dc721d49662",
        "a9a.t": "b805e6183f2c31924c2597a135efbea1",
    }
    sources = _pair(f"{_LIBSVM}/binary.html#a9a", f"{_LIBSVM}/binary", digests)
    X, y, X_test, y_test = _libsvm_pair("a9a", sources, path, 123)
    return Dataset(X, y, X_test, y_test, "a9a", row_bounds(14))


def ijcnn1(path: PathLike | None = None) -> Dataset:
    """Return ijcnn1: the IJCNN 2001 challenge (49,990 x 22 and a test part of 91,701).

    Files ``ijcnn1`` and ``ijcnn1.t``. Dense (13 of 22 entries are nonzero). Features 1-10 are one
    indicator, 11-22 are twelve numbers. No source states their range; [-1, 1] is declared here
    (training values lie in it, test values reach 1.33): hence the bounds 13 (L1) and sqrt(13) (L2).
    Values are not changed; the problem enforces the bounds, which no row exceeds. Labels are -1/+1
    as in the file. Source: LIBSVM Data, binary classification; Prokhorov, IJCNN 2001 challenge.
    """
    digests = {
        "ijcnn1": "22a1163cb407a2f1561f9678765acebf",
        "ijcnn1.t": "8abe953368ee19cc41e5bb63b5f7abfc",
    }
    sources = _pair(f"{_LIBSVM}/binary.html#ijcnn1", f"{_LIBSVM}/binary", digests, ".bz2")
    X, y, X_test, y_test = _libsvm_pair("ijcnn1", sources, path, 22)
    X_test = None if X_test is None else X_test.toarray()
    return Dataset(X.toarray(), y, X_test, y_test, "ijcnn1", row_bounds(13))


def adult(path: PathLike | None = None) -> Dataset:
    """Return UCI Adult, one-hot (32,561 x 105 and a test part of 16,281).

    Files ``adult.data`` and ``adult.test``. CSR. Six numeric attributes are scaled to [0, 1] by the
    ranges of :data:`~dpanalysis.datasets.tables.ADULT`, eight categorical ones become 99
    indicators; a missing value (``?``) becomes zeros. So a row has L1 norm at most 14 and L2 norm
    at most sqrt(14). ``fnlwgt`` is the survey weight, kept as in the original. Labels: +1 for
    ``>50K``, -1 for ``<=50K`` (in the test file these end in a full stop). Source: Becker and
    Kohavi, Adult, UCI Machine Learning Repository, doi 10.24432/C5XW20.
    """
    digests = {
        "adult.data": "5d7c39d7b8804f071cdd1f2a7c460872",
        "adult.test": "35238206dfdf7f1fe215bbb874adecdc",
    }
    sources = _pair("https://archive.ics.uci.edu/dataset/2/adult", f"{_UCI}/adult", digests)
    parts: list[Any] = []
    for file in locate("adult", sources, path):
        parts += (
            (None, None)
            if file is None
            else load_csv(
                file,
                label="income",
                columns=tables.ADULT,
                labels={"<=50K": -1, ">50K": 1, "<=50K.": -1, ">50K.": 1},
                names=tables.ADULT_NAMES,
                missing=("?",),
                comment="|",
                sparse=True,
            )
        )
    X, y, X_test, y_test = parts
    return Dataset(X, y, X_test, y_test, "adult", row_bounds(len(tables.ADULT)))


def bank(path: PathLike | None = None, *, drop_duration: bool = False) -> Dataset:
    """Return UCI Bank Marketing, the full file, one-hot (45,211 x 51, no test part).

    Dense. Seven numeric attributes are scaled to [0, 1] by the ranges of
    :data:`~dpanalysis.datasets.tables.BANK`, nine categorical ones become 44 indicators
    (``unknown`` is a category). A row has L1 norm at most 16 and L2 norm at most
    4. Labels: +1 for ``yes``, -1 for ``no``.

    The rows are ordered by date (May 2008 to November 2010): shuffle before splitting, as
    :meth:`Dataset.split` does. ``duration`` is the length of the call, known only with its outcome:
    a realistic predictor needs ``drop_duration=True``. Table 1 of Chen and Lee (2020) has the same
    rows (the larger class .883) in 33 columns, by an encoding that it does not state. Source: Moro,
    Rita and Cortez, Bank Marketing, UCI, doi 10.24432/C5K306.

    Parameters
    ----------
    path : str or path-like, optional
        As in :func:`load`; the file is ``bank-full.csv``.
    drop_duration : bool
        Omit ``duration`` (50 features, bounds 15 and sqrt(15)).
    """
    source = Source(
        ("bank-full.csv",),
        f"{_UCI}/00222/bank.zip",
        "md5:e6b0ca77f3f200ec5428e04dd104da53",
        "https://archive.ics.uci.edu/dataset/222/bank+marketing",
        member="bank-full.csv",
    )
    (file,) = locate("bank", (source,), path)
    assert file is not None  # it is required
    columns = {
        name: domain
        for name, domain in tables.BANK.items()
        if not (drop_duration and name == "duration")
    }
    X, y = load_csv(file, label="y", columns=columns, labels={"no": -1, "yes": 1}, delimiter=";")
    return Dataset(X, y, None, None, "bank", row_bounds(len(columns)))


def covertype(path: PathLike | None = None) -> Dataset:
    """Return the two common classes of UCI Covertype (no test part).

    Dense, 54 features: ten numbers scaled to [0, 1] by the known column ranges
    (:data:`~dpanalysis.datasets.tables.COVERTYPE`) and 44 indicators of which two are 1,
    so a row has L1 norm at most 12 and L2 norm at most sqrt(12); the problem enforces it.
    Classes 1 and 2 are kept: class 1 is +1, class 2 is -1, as in Gao and Wright (2023).

    The file ``covtype.data`` (581,012 rows, 495,141 kept) is used if it is found, else the
    stratified 16% sample ``covtype-subset.data`` (92,962 rows, 79,222 kept). Every constant that
    depends on n must use :attr:`Dataset.n`. Source: Blackard, Covertype, UCI, doi 10.24432/C50K5N.
    """
    source = Source(
        ("covtype.data", "covtype-subset.data"),
        "https://ndownloader.figshare.com/files/5976039",
        "sha256:614360d0257557dd1792834a85a1cdebfadc3c4f30b011d56afee7ffb5b15771",
        "https://archive.ics.uci.edu/dataset/31/covertype",
        packed=True,
    )
    (file,) = locate("covertype", (source,), path)
    assert file is not None  # it is required
    X, kind = load_csv(
        file, label="Cover_Type", columns=tables.COVERTYPE, names=tables.COVERTYPE_NAMES
    )
    if not np.isin(kind, range(1, 8)).all():
        raise ValueError(f"{file}: expected classes 1 to 7 in the last column")
    kept = kind <= 2
    y = np.where(kind[kept] == 1, 1.0, -1.0)
    return Dataset(X[kept], y, None, None, "covertype", row_bounds(12))


def digits(path: PathLike | None = None) -> Dataset:
    """Return scikit-learn's bundled digits (1,797 x 64, digits 0..9, no test part).

    Counts 0..16 are divided by 16. Row bounds: 64 (L1), 8 (L2). No file: ``path`` must be None.
    """
    X, y = _bundled("digits", path)
    return Dataset(X / 16.0, y.astype(np.int64), None, None, "digits", row_bounds(64), 10)


def breast_cancer(path: PathLike | None = None) -> Dataset:
    """Return scikit-learn's bundled breast cancer data (569 x 30, no test part).

    Labels: +1 benign (357), -1 malignant (212). The source gives no ranges for its 30 measurements,
    so those of :data:`~dpanalysis.datasets.tables.BREAST_CANCER` are declared here; values are
    scaled by them and clipped to [0, 1]. Row bounds: 30 (L1), sqrt(30) (L2). No file: ``path`` must
    be None. Source: Wolberg, Mangasarian, Street and Street, UCI, doi 10.24432/C5DW2B.
    """
    X, y = _bundled("breast_cancer", path)
    X = np.clip(X / np.array(tables.BREAST_CANCER), 0.0, 1.0)
    return Dataset(X, 2.0 * y - 1.0, None, None, "breast_cancer", row_bounds(30))


def _bundled(name: str, path: PathLike | None) -> tuple[np.ndarray, np.ndarray]:
    """Return X and y of a data set that ships with scikit-learn."""
    if path is not None:
        raise ValueError(f"path must be None for {name!r} (it ships with scikit-learn)")
    try:
        import sklearn.datasets
    except ImportError as error:
        raise ImportError(
            f"data set {name!r} ships with scikit-learn: pip install 'dpanalysis-toolkit[figures]'"
        ) from error
    X, y = getattr(sklearn.datasets, f"load_{name}")(return_X_y=True)
    return X, y


def kuru_synthetic(
    n: int = 100_000,
    d: int = 20,
    *,
    scheme: str = "cube",
    negative_rate: float | None = None,
    rng: Any = None,
) -> Dataset:
    """Draw the logistic regression data of Kuru et al. (2022), section 5.

    Parameters
    ----------
    n, d : int
        Samples and features.
    scheme : {"cube", "ball"}
        ``"cube"``, scheme (i): rows uniform in [0, 1]^d, labels ``sign(<x, w>)`` of one
        random ``w``. ``"ball"``, scheme (ii): rows uniform in the L1 ball of radius 20,
        labels drawn from the logistic model of one standard normal ``w``.
    negative_rate : float, optional
        Fraction of labels -1 for ``"cube"``, in [0, 1], exact up to one sample; 0.1 by default, as
        in the published runs, whose transients depend on it. None for the symmetric ``"ball"``.
    rng : int, SeedSequence or Generator, optional
        Seed or source of randomness.

    Returns
    -------
    Dataset
        With the public row bounds of the scheme: L1 norm ``d`` and L2 norm ``sqrt(d)``
        for ``"cube"``, L1 norm 20 for ``"ball"``; no test part.

    Examples
    --------
    >>> data = kuru_synthetic(n=1000, d=5, rng=0)
    >>> data.X.shape, float((data.y == -1).mean())
    ((1000, 5), 0.1)
    """
    from ..problems.row_bound import RowBound  # imports problems

    n, d = check_int("n", n, low=1), check_int("d", d, low=1)
    check_choice("scheme", scheme, ("cube", "ball"))
    random = check_rng(rng)
    bounds: tuple[RowBound, ...]
    if scheme == "cube":
        rate = 0.1 if negative_rate is None else negative_rate
        rate = check_number("negative_rate", rate, low=0.0, high=1.0)
        X = random.random((n, d))
        y = _signs_at_rate(X, random.standard_normal(d), rate)
        bounds = (RowBound(1, float(d), "check"), RowBound(2, math.sqrt(d), "check"))
    else:
        if negative_rate is not None:
            raise ValueError(f"negative_rate must be None for scheme 'ball', got {negative_rate}")
        radius = 20.0
        X = _uniform_in_l1_ball(random, n, d, radius)
        margins = X @ random.standard_normal(d)
        # P(y = 1) = sigmoid(margin): a standard logistic variable lies below the margin.
        y = np.where(random.logistic(size=n) < margins, 1.0, -1.0)
        bounds = (RowBound(1, radius, "check"),)

    return Dataset(X, y, None, None, f"kuru-{scheme}", bounds)


def _signs_at_rate(X: np.ndarray, direction: np.ndarray, negative_rate: float) -> np.ndarray:
    """Return labels ``sign(<x, direction + c 1>)`` with c chosen for the rate.

    Entries of X are non-negative, so ``<x, direction> + c <x, 1>`` is negative exactly
    for the samples whose ratio ``-<x, direction>/<x, 1>`` exceeds c.
    """
    ratios = -(X @ direction) / np.maximum(X.sum(axis=1), np.finfo(float).tiny)
    y = np.ones(X.shape[0])
    negatives = round(negative_rate * X.shape[0])
    y[np.argsort(ratios)[X.shape[0] - negatives :]] = -1.0
    return y


def _uniform_in_l1_ball(random: np.random.Generator, n: int, d: int, radius: float) -> np.ndarray:
    """Draw rows uniform in the ball: normalized exponentials with random signs."""
    sizes = random.standard_exponential((n, d + 1))
    signs = np.where(random.random((n, d)) < 0.5, -1.0, 1.0)
    return radius * signs * sizes[:, :d] / sizes.sum(axis=1, keepdims=True)


_ALL = (adult, a9a, bank, ijcnn1, covertype, mnist, fashion_mnist, cifar10, breast_cancer, digits)
_LOADERS: dict[str, Callable[..., Dataset]] = {loader.__name__: loader for loader in _ALL}

#: Names for :func:`load`.
NAMES = tuple(_LOADERS)


def load(name: str, path: str | os.PathLike[str] | None = None) -> Dataset:
    """Load a data set of the papers by name.

    The search order is ``path`` (a folder, or the training file; if given, nothing else),
    the folder ``$DPANALYSIS_DATA``, the user's cache (``pooch.os_cache("dpanalysis")``), and the
    public source, whose checksum is verified. Files may be plain or compressed (``.gz``).

    Parameters
    ----------
    name : str
        One of ``"adult", "a9a", "bank", "ijcnn1", "covertype", "mnist", "fashion_mnist", "cifar10",
        "breast_cancer", "digits"``. See the function of the same name for encoding and options.
    path : str or path-like, optional
        Folder or training file.

    Raises
    ------
    FileNotFoundError
        If a file is not found; the message says where to get it and where to put it.

    Examples
    --------
    >>> from dpanalysis import datasets
    >>> data = datasets.load("breast_cancer")
    >>> [round(bound.radius, 2) for bound in data.row_bound]
    [30.0, 5.48]
    """
    check_choice("name", name, NAMES)
    return _LOADERS[name](None if path is None else Path(path))
