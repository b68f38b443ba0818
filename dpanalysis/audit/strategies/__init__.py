"""Hypothesis strategies: neighbouring data, problems, queries and schedules that do harm.

They are for tests of private code, ours and yours. Each strategy makes the worst cases likely,
above all rows on the boundary of the ball and at opposite ends of it. Where a test fails, it
shrinks to a counterexample that can be read. The strategies need Hypothesis:
``pip install "dpanalysis-toolkit[audit]"``.

Examples
--------
>>> import numpy as np
>>> from hypothesis import given
>>> @given(neighbouring_datasets(n=(1, 5), d=2))
... def test_a_sum_moves_by_a_diameter(pair):
...     (X, _), (X_other, _) = pair
...     assert np.linalg.norm(X.sum(axis=0) - X_other.sum(axis=0)) <= 2.0 + 1e-12
>>> test_a_sum_moves_by_a_diameter()
"""

from __future__ import annotations

try:
    import hypothesis as _hypothesis
except ImportError as error:
    raise ImportError(
        "dpanalysis.audit.strategies needs Hypothesis: pip install 'dpanalysis-toolkit[audit]'"
    ) from error

from .data import neighbouring_datasets
from .problems import FORMS, erm_problems, neighbouring_problems, quadratics
from .sequences import noise_schedules, query_sequences

del _hypothesis

__all__ = [
    "FORMS",
    "erm_problems",
    "neighbouring_datasets",
    "neighbouring_problems",
    "noise_schedules",
    "quadratics",
    "query_sequences",
]
