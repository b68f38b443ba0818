"""The search for the worst case of a bound, and what it ranges over."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..attack import Range, worst_case
from ..registry import Effort, Evidence, printed

Array = NDArray[np.float64]
Ratio = Callable[..., float]

# The order is 1 + excess; data are vectors in [-1, 1]^d, scaled into the ball they must be in.
EXCESS = Range(1e-4, 499.0, log=True)
LOSS = Range(1e-3, 50.0, log=True)
STD = Range(0.1, 100.0, log=True)
DELTA = Range(1e-9, 0.3, log=True)


def search(
    effort: Effort,
    what: str,
    ratio: Ratio,
    space: Mapping[str, Range],
    *,
    cost: int = 1,
    tight: float | None = None,
    exact: float | None = None,
    tolerance: float = 1e-9,
    guesses: Iterable[Mapping[str, Any]] = (),
) -> Iterator[Evidence]:
    """Yield the smallest bound / exact that a search finds, and what it says about tightness.

    Parameters
    ----------
    effort, what
        Of the claim; the setting in words.
    ratio : callable
        The parameters by name -> bound / exact.
    space, guesses
        As in :func:`dpanalysis.audit.attack.worst_case`.
    cost : int
        Fewer points by this factor, for ratios that take long.
    tight : float, optional
        The smallest ratio must be within this of 1: the bound is attained.
    exact : float, optional
        The largest ratio seen must be within this of 1: the bound is the value itself.
    tolerance : float
        Relative error of the exact value.
    """
    largest = -math.inf

    def recorded(**at: Any) -> float:
        nonlocal largest
        value = ratio(**at)
        largest = max(largest, value)
        return value

    found = worst_case(
        recorded,
        space,
        starts=max(effort.cases(120, 900) // cost, 4),
        searches=effort.cases(2, 3),
        steps=max(effort.cases(60, 250) // cost, 4),
        guesses=guesses,
        rng=effort.random(),
    )
    least = f"smallest bound / exact, {what}"
    yield printed(least, found.ratio, ">=", 1.0, tolerance=tolerance, cases=found.evaluations)
    if tight is not None:
        yield printed("so tight: the same", found.ratio, "<=", 1.0, tolerance=tight)
    if exact is not None:
        yield printed("so exact: the largest", largest, "<=", 1.0, tolerance=exact)
