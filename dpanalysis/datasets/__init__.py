"""Data sets of the papers, encoded by public domains only.

``load(name)`` looks at the path argument, then in ``$DPANALYSIS_DATA``, then in the user's
cache, then at the public source (with its checksum); where none has the files, one error
says where to get them and where to put them. Users' own files go through
:func:`load_libsvm`, :func:`load_csv` and :func:`load_idx`.

Features are scaled by constants of this code (:mod:`dpanalysis.datasets.domains`), never by
ranges or means read from the data, which would be a release that no budget pays for. Each
data set carries the public row bounds which its encoding implies.

Examples
--------
>>> from dpanalysis import datasets
>>> digits = datasets.load("digits")
>>> digits.X.shape, digits.n_classes
((1797, 64), 10)
"""

from __future__ import annotations

from typing import Any

from .dataset import Dataset
from .formats import load_idx, load_libsvm
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


def __getattr__(name: str) -> Any:
    if name == "kuru_synthetic":  # synthetic problems live with the problems
        from .synthetic import kuru_synthetic

        return kuru_synthetic
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
