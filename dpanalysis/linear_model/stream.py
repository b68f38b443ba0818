"""Fits to tables that come in blocks, so that no more than a block is in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from ..preprocessing.encoder import PublicEncoder
from .base import PrivateLinearClassifier
from .design import design_of, in_file
from .upstream import Upstream

__all__ = ["fit_blocks"]


def fit_blocks(
    model: PrivateLinearClassifier, encoder: PublicEncoder, blocks: Iterable[tuple[Any, Any]]
) -> None:
    """Fit ``model`` to the rows of all blocks, which a temporary file holds in single precision.

    Parameters
    ----------
    model : LogisticRegression or LinearSVC
    encoder : PublicEncoder
        Fitted.
    blocks : iterable of (table, labels)
        What ``encoder.transform`` takes, and as many labels.

    Raises
    ------
    ValueError, TypeError
        Before anything is spent: as ``encoder.transform`` and ``model.fit``.

    Examples
    --------
    >>> import numpy as np
    >>> from dpanalysis.linear_model import LogisticRegression
    >>> from dpanalysis.preprocessing import PublicEncoder
    >>> ages = np.random.default_rng(0).integers(17, 91, size=(10, 500, 1))
    >>> model = LogisticRegression(random_state=0)
    >>> encoder = PublicEncoder({"age": (17, 90)}).fit(ages[0])
    >>> fit_blocks(model, encoder, ((part, part[:, 0] > 50) for part in ages))
    >>> model.predict(encoder.transform([[20], [80]])).tolist()
    [False, True]
    """
    columns = encoder.columns_
    design, said = design_of(None, columns, columns.d, bool(model.fit_intercept), False)
    labels = []

    def parts() -> Iterator[np.ndarray]:
        for table, part in blocks:
            rows = encoder.transform(table)
            rows = rows if isinstance(rows, np.ndarray) else rows.toarray()
            labels.append(np.asarray(part))
            yield design.rows(np.asarray(rows, dtype=np.float32))

    with in_file(parts()) as D:
        budget = model._budget(len(D))
        classes, codes = model._classes(np.concatenate(labels))
        model.n_features_in_ = columns.d
        model._fit_design(D, codes, classes, design, budget, said, Upstream(columns.learned))
