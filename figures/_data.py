"""The data of a figure: the paper's, a part of them at quick scale, or a stand-in."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

import dpanalysis as dpa

__all__ = ["at_hand", "choose", "load_part", "made_of", "rows_of"]

#: Rows of a data set used at quick scale; other data sets are used whole.
PARTS = {"mnist": 6000, "adult": 10_000}
WORDS = {
    "mnist": "MNIST",
    "adult": "Adult",
    "bank": "Bank Marketing",
    "covertype": "Covertype",
    "ijcnn1": "IJCNN",
    "a9a": "a9a",
    "digits": "1,438 small digits of scikit-learn, not MNIST",
    "census": "a synthetic census, not Adult",
    "clouds": "two synthetic clouds, not Covertype",
    "breast_cancer": "569 rows of breast cancer data",
    "cube": "synthetic rows, as in the paper",
    "ball": "synthetic rows",
}


def at_hand(name: str) -> bool:
    """Return whether a data set is in ``$DPANALYSIS_DATA``; figures download nothing."""
    folder = os.environ.get("DPANALYSIS_DATA")
    return bool(folder) and (name != "mnist" or os.path.isdir(os.path.join(str(folder), "mnist")))


def choose(name: str, stand_in: str, scale: str) -> str:
    """Return a data set's name, ``NAME-ROWS`` for a part of it, or its stand-in if missing."""
    if not at_hand(name):
        return stand_in
    return f"{name}-{PARTS[name]}" if scale == "quick" and name in PARTS else name


def rows_of(data: str) -> int | None:
    """Return the number of rows that a name asks for, None for all.

    >>> rows_of("mnist-6000"), rows_of("mnist")
    (6000, None)
    """
    _, _, rows = data.partition("-")
    return int(rows) if rows else None


def load_part(dataset: dpa.datasets.Dataset, rows: int | None) -> tuple[Any, Any]:
    """Return ``X, y`` of a random part of the training rows, with a fixed seed."""
    if rows is None:
        return dataset.X, dataset.y
    chosen = np.sort(np.random.default_rng(0).choice(dataset.n, rows, replace=False))
    return dataset.X[chosen], dataset.y[chosen]


def made_of(settings: Mapping[str, Any]) -> str:
    """Return a description of a figure's data, "" if it has none."""
    data = settings.get("data")
    names = [data] if isinstance(data, str) else list(data or [])
    words = []
    for name in names:
        rows, word = rows_of(name), WORDS[name.partition("-")[0]]
        words.append(f"{rows:,} rows of {word}" if rows else word)
    return " and ".join(words)
