"""The claim of any mechanism, as an assertion."""

from __future__ import annotations

from typing import Any

from ..audit.assertions import assert_private
from ..privacy.relations import Budget

__all__ = ["check_mechanism"]


def check_mechanism(
    mechanism: Any,
    dataset: Any,
    neighbour: Any,
    claim: float | Budget,
    *,
    delta: float = 0.0,
    samples: int = 100_000,
    confidence: float = 1 - 1e-9,
    rng: Any = 0,
    vectorized: bool = True,
) -> None:
    """Raise AssertionError where a mechanism is found to be less private than claimed.

    This is :func:`dpanalysis.audit.assert_private` for one pair of data sets; that function
    also draws pairs.

    Parameters
    ----------
    mechanism : callable
        ``mechanism(dataset, rng, size)`` returns ``size`` independent runs, (size,) or
        (size, k); ``mechanism(dataset, rng)`` one, with ``vectorized=False``.
    dataset, neighbour : object
        Two neighbouring inputs.
    claim : float or Budget
        Epsilon, or a budget with its delta and relation.
    delta : float, default=0
        In [0, 1).
    samples : int, default=100_000
        Runs on each of the two.
    confidence : float, default=1 - 1e-9
        One minus the rate of false alarms.
    rng : None, int, SeedSequence, Generator, SystemRandom or "os"
    vectorized : bool, default=True

    Raises
    ------
    AssertionError
        If the claim is refuted; the message is the verdict, with the pair.
    ValueError, TypeError
        If an argument is outside its range.

    Examples
    --------
    >>> from dpanalysis import testing
    >>> def noisy(total, rng, size):
    ...     return total + rng.laplace(0.0, 2.0, size)
    >>> testing.check_mechanism(noisy, 0.0, 1.0, 0.5)
    >>> testing.check_mechanism(noisy, 0.0, 1.0, 0.25)
    Traceback (most recent call last):
    AssertionError: refuted: epsilon >= 0.4... where 0.25 is claimed ...
    """
    __tracebackhide__ = True
    assert_private(
        mechanism,
        claim,
        dataset=dataset,
        neighbour=neighbour,
        delta=delta,
        samples=samples,
        confidence=confidence,
        rng=rng,
        vectorized=vectorized,
    )
