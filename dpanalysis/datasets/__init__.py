"""Data sets of the papers, encoded by public domains only.

``load(name)`` searches the path argument, ``$DPANALYSIS_DATA``, the user's cache and the public
source (with its checksum); if none has the files, the error says where to get them and where to
put them. :func:`load_libsvm`, :func:`load_csv` and :func:`load_idx` read users' files.

Features are scaled by constants of this code (:mod:`dpanalysis.datasets.tables`), never by
ranges or means of the data, which would be a release without a budget. Each data set has the
public row bounds that its encoding implies.

Examples
--------
>>> from dpanalysis import datasets
>>> digits = datasets.load("digits")
>>> digits.X.shape, digits.n_classes
((1797, 64), 10)
"""

from __future__ import annotations

from .dataset import Dataset
from .files import load_idx, load_libsvm
from .registry import (
    NAMES,
    a9a,
    adult,
    bank,
    breast_cancer,
    cifar10,
    covertype,
    digits,
    fashion_mnist,
    ijcnn1,
    kuru_synthetic,
    load,
    mnist,
)
from .tables import load_csv

__all__ = [
    "NAMES",
    "Dataset",
    "a9a",
    "adult",
    "bank",
    "breast_cancer",
    "cifar10",
    "covertype",
    "digits",
    "fashion_mnist",
    "ijcnn1",
    "kuru_synthetic",
    "load",
    "load_csv",
    "load_idx",
    "load_libsvm",
    "mnist",
]
