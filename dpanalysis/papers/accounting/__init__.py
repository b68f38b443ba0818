"""The bounds of :mod:`dpanalysis.privacy`, under attack.

A bound is divided by the exact value, which is integrated or summed from the definition, not from
the formula of the bound; a search over all that the bound leaves free minimizes the quotient.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ...audit.attack import Range
from ..claim import Check, Claim, Effort, Evidence, Paper, printed
from ..registry import register
from ..tools import search_min

PAPER = register(
    Paper(
        id="bounds",
        title="The bounds that `dpanalysis.privacy` relies on",
        setting="Attacked by a search for their worst case; the evidence is the smallest bound / "
        "exact value found: at least 1, and 1 where the bound is tight.",
    )
)

# The order is 1 + excess.
EXCESS = Range(1e-4, 499.0, log=True)
LOSS = Range(1e-3, 50.0, log=True)
STD = Range(0.1, 100.0, log=True)
DELTA = Range(1e-9, 0.3, log=True)


def holds(id: str, source: str, statement: str) -> Callable[[Check], Claim]:
    """Register the check of a bound, as a decorator."""
    return register(id, source, statement, verdict="holds")


def attack(
    effort: Effort,
    what: str,
    ratio: Callable[..., float],
    space: Mapping[str, Range],
    *,
    tight: float | None = None,
    exact: float | None = None,
    tolerance: float = 1e-9,
    **options: Any,
) -> Iterator[Evidence]:
    """Yield the smallest bound / exact that a search finds, and the evidence on tightness."""
    found = search_min(effort, ratio, space, **options)
    yield printed(f"smallest bound / exact, {what}", found, ">=", 1.0, tolerance=tolerance)
    if tight is not None:
        yield printed("tightness, the same quotient", found.min(), "<=", 1.0, tolerance=tight)
    if exact is not None:
        yield printed("exactness, the largest quotient", found.max(), "<=", 1.0, tolerance=exact)
