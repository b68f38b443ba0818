"""A claim of privacy as an assertion, for tests of any mechanism."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .._validation import check_int, check_number
from ..privacy.mechanisms import spawn
from ..privacy.relations import REPLACE_ONE, Budget, check_relation
from .empirical import Mechanism, Verdict, verify_privacy
from .empirical.neighbours import draw_pairs, pairs_of

__all__ = ["assert_private"]

_SHOWN = 2000  # characters of a data set in a message


def assert_private(
    mechanism: Mechanism,
    claim: float | Budget,
    *,
    neighbours: Any = None,
    dataset: Any = None,
    neighbour: Any = None,
    relation: str | None = None,
    delta: float = 0.0,
    pairs: int = 10,
    samples: int = 100_000,
    confidence: float = 1 - 1e-9,
    rng: Any = 0,
    vectorized: bool = True,
) -> tuple[Verdict, ...]:
    """Raise AssertionError if a mechanism is found to be less private than claimed.

    In tests under pytest it is the fixture ``assert_private``, which comes with the package.
    A test that passes is no certificate: :func:`~dpanalysis.audit.verify_privacy` says why.

    Parameters
    ----------
    mechanism : callable
        ``mechanism(dataset, rng, size)`` returns ``size`` independent runs, (size,) or
        (size, k); ``mechanism(dataset, rng)`` one, with ``vectorized=False``.
    claim : float or Budget
        Epsilon, or a budget with its delta and relation.
    neighbours : iterable of (dataset, neighbour), or Hypothesis strategy of such pairs, optional
        The inputs to try, from the mechanism's own domain. The first ``pairs`` pairs that a
        strategy yields are tried, the same ones in every run. By default they are drawn from
        :func:`dpanalysis.audit.strategies.neighbouring_datasets` under the relation: pairs of
        ``(X, y)`` with rows in the unit ball and labels -1 and +1. That default does not show
        whether a mechanism clips rows that are longer.
    dataset, neighbour : object, optional
        One pair in the place of ``neighbours``, as in a test to which Hypothesis gives a pair.
    relation : {"replace_one", "add_or_remove_one"}, optional
        By default that of the budget. Where there is none, pairs are drawn for "replace_one",
        and given pairs may be neighbours under either relation.
    delta : float, default=0
        In [0, 1).
    pairs : int, default=10
        How many pairs to draw, at least 1.
    samples : int, default=100_000
        Runs for each data set of each pair.
    confidence : float, default=1 - 1e-9
        One minus the rate of false alarms of this call as a whole: each of k pairs is tested at
        ``1 - (1 - confidence)/k``.
    rng : None, int, SeedSequence, Generator, SystemRandom or "os"
        An int makes the test repeatable.
    vectorized : bool, default=True

    Returns
    -------
    tuple of Verdict
        One for each pair: none of them refutes the claim.

    Raises
    ------
    AssertionError
        If a pair refutes the claim; the message says how surely and shows the pair.
    ValueError, TypeError
        If an argument is outside its range, or no pair is given.

    Examples
    --------
    >>> def noisy_sum(dataset, rng, size):
    ...     X, y = dataset
    ...     return X.sum() + rng.laplace(0.0, 2.0, size)
    >>> import numpy as np
    >>> one, other = (np.array([[x], [0.0]]) for x in (1.0, -1.0))
    >>> labels = np.ones(2)
    >>> pair = (one, labels), (other, labels)
    >>> [verdict.refuted for verdict in assert_private(noisy_sum, 1.0, neighbours=[pair])]
    [False]
    >>> assert_private(noisy_sum, 0.5, neighbours=[pair])
    Traceback (most recent call last):
    AssertionError: refuted: epsilon >= 0.9... where 0.5 is claimed ...
    """
    __tracebackhide__ = True
    confidence = check_number(
        "confidence", confidence, low=0.0, high=1.0, low_open=True, high_open=True
    )
    if relation is not None:
        check_relation(relation)
    chosen, origin = _pairs(neighbours, dataset, neighbour, relation, claim, pairs)
    verdicts = []
    for number, ((first, second), source) in enumerate(zip(chosen, spawn(rng, len(chosen))), 1):
        verdict = verify_privacy(
            mechanism,
            first,
            second,
            claim,
            delta=delta,
            samples=samples,
            confidence=1.0 - (1.0 - confidence) / len(chosen),
            rng=source,
            relation=relation,
            vectorized=vectorized,
        )
        if verdict.refuted:
            raise AssertionError(
                f"{verdict}\nPair {number} of {len(chosen)}, {origin}:\n"
                f"dataset = {_shown(first)}\nneighbour = {_shown(second)}"
            )
        verdicts.append(verdict)
    return tuple(verdicts)


def _pairs(
    neighbours: Any, dataset: Any, neighbour: Any, relation: str | None, claim: Any, count: int
) -> tuple[list[tuple[Any, Any]], str]:
    """Return the pairs to try, and where they are from."""
    if (dataset is None) != (neighbour is None):
        raise ValueError("dataset and neighbour must be given together")
    if dataset is not None:
        if neighbours is not None:
            raise ValueError("give either neighbours, or dataset and neighbour")
        return [(dataset, neighbour)], "as given"
    count = check_int("pairs", count, low=1)
    if neighbours is None:
        from .strategies import neighbouring_datasets

        default = claim.relation if isinstance(claim, Budget) else REPLACE_ONE
        relation = relation or default
        drawn = draw_pairs(neighbouring_datasets(relation), count)
        return drawn, f"drawn from neighbouring_datasets({relation!r})"
    chosen = list(pairs_of(neighbours, count))
    if not chosen:
        raise ValueError("neighbours must hold at least one pair (dataset, neighbour), got none")
    given = isinstance(neighbours, Iterable)
    return chosen, "as given" if given else f"drawn from {neighbours!r}"


def _shown(data: Any) -> str:
    text = repr(data)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(text):,} characters)"
