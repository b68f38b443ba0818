"""Broken mechanisms as negative controls for auditors.

Every mutant contains an error from a paper, published code or a library, and is paired with a
correct mechanism that makes the same claim. An audit must refute the mutant and must not refute
the correct one; :func:`detection_table` tests any auditor.

Examples
--------
>>> from tests import broken_mechanisms as mutants
>>> len(mutants.MUTANTS)
26
>>> table = mutants.detection_table(mutants.exact_verdict, mutants.MUTANTS[:3])
>>> all(found.passed for found in table)
True
>>> print(table[0])
laplace by standard deviation: claims 1, caught (epsilon >= 1.414); correct one accepted
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from . import epochs, methods, releases
from .methods import SparseVector, lyu
from .releases import Detection, ExactVerdict, Mechanism, Mutant, exact_verdict

__all__ = [
    "MUTANTS",
    "Detection",
    "ExactVerdict",
    "Mechanism",
    "Mutant",
    "SparseVector",
    "detection_table",
    "exact_verdict",
    "lyu",
]

MUTANTS: tuple[Mutant, ...] = (
    *releases.RELEASES,
    *releases.CLIPPING,
    *methods.SPARSE_VECTOR,
    *methods.LINE_SEARCH,
    *releases.BATCHES,
    *epochs.EPOCHS,
    *methods.SECOND_ORDER,
    *methods.REGRESSION,
)


def detection_table(
    auditor: Callable[..., Any] | None = None, mutants: Iterable[Mutant] = MUTANTS, **options: Any
) -> list[Detection]:
    """Run an auditor on every mutant, which it should refute, and on its correct version.

    Parameters
    ----------
    auditor : callable, optional
        Called as ``auditor(mechanism, dataset, neighbour, claim, delta=delta, **options)``; it
        returns an object with an attribute ``refuted``. By default
        :func:`dpanalysis.audit.verify_privacy`.
    mutants : iterable of Mutant
    **options
        Passed to the auditor.

    Returns
    -------
    list of Detection
        One for each mutant; ``passed`` if only the mutant was refuted.

    Examples
    --------
    An auditor that refutes nothing catches no mutant:

    >>> from types import SimpleNamespace
    >>> def trusting(mechanism, dataset, neighbour, claim, *, delta):
    ...     return SimpleNamespace(refuted=False)
    >>> any(found.passed for found in detection_table(trusting))
    False
    """
    if auditor is None:
        from dpanalysis.audit.verify import verify_privacy

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
