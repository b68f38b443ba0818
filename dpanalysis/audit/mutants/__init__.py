"""Broken mechanisms as negative controls: an auditor is worth what it catches.

Every mutant makes a mistake that somebody made, in a paper, in published code, in a library,
and stands beside a twin that keeps the same promise. An audit must refute the one and must not
refute the other; :func:`detection_table` puts any auditor to this test, yours too.

Examples
--------
>>> from dpanalysis.audit import mutants
>>> len(mutants.MUTANTS)
22
>>> table = mutants.detection_table(mutants.exact_verdict, mutants.MUTANTS[:3])
>>> all(found.passed for found in table)
True
>>> print(table[0])
laplace by standard deviation: claims 1, caught (epsilon >= 1.414); twin accepted
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from . import batches, clipping, line_search, releases, second_order, sparse_vector
from .base import Detection, ExactVerdict, Mechanism, Mutant, exact_verdict
from .batches import BatchMean
from .line_search import EndlessSearch
from .releases import IterationBound, NoisyMinimum, NoisySum, Responses, TwoSums
from .second_order import BatchOfOne, Evaluations, HessianTrace
from .sparse_vector import SparseVector, lyu

__all__ = [
    "MUTANTS",
    "BatchMean",
    "BatchOfOne",
    "Detection",
    "EndlessSearch",
    "Evaluations",
    "ExactVerdict",
    "HessianTrace",
    "IterationBound",
    "Mechanism",
    "Mutant",
    "NoisyMinimum",
    "NoisySum",
    "Responses",
    "SparseVector",
    "TwoSums",
    "detection_table",
    "exact_verdict",
    "lyu",
]

MUTANTS: tuple[Mutant, ...] = (
    *releases.MUTANTS,
    *clipping.MUTANTS,
    *sparse_vector.MUTANTS,
    *line_search.MUTANTS,
    *batches.MUTANTS,
    *second_order.MUTANTS,
)


def detection_table(
    auditor: Callable[..., Any] | None = None, mutants: Iterable[Mutant] = MUTANTS, **options: Any
) -> list[Detection]:
    """Try an auditor on all mutants and their twins.

    Parameters
    ----------
    auditor : callable, optional
        Called as ``auditor(mechanism, dataset, neighbour, claim, delta=delta, **options)``; it
        returns an object with an attribute ``refuted``. By default
        :func:`dpanalysis.audit.verify_privacy`.
    mutants : iterable of Mutant
    **options
        Passed on to the auditor.

    Returns
    -------
    list of Detection
        One for each mutant; ``passed`` where it was caught and its twin was not.

    Examples
    --------
    An auditor that trusts everybody catches nobody:

    >>> from types import SimpleNamespace
    >>> def trusting(mechanism, dataset, neighbour, claim, *, delta):
    ...     return SimpleNamespace(refuted=False)
    >>> any(found.passed for found in detection_table(trusting))
    False
    """
    if auditor is None:
        from ..empirical import verify_privacy

        auditor = verify_privacy
    found = []
    for mutant in mutants:
        pair = mutant.dataset, mutant.neighbour
        broken, correct = (
            auditor(mechanism, *pair, mutant.claim, delta=mutant.delta, **options)
            for mechanism in (mutant.broken, mutant.correct)
        )
        found.append(Detection(mutant, broken, correct))
    return found
