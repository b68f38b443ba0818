"""Search for the worst case of a bound: random starts in a box, then a local optimizer.

A bound is attacked by minimizing bound / exact over everything that the bound leaves free: orders,
noise, rates, the data, the mechanism itself. The result is the smallest ratio found, which shows
how tight the bound is, and the point that attains it. If the ratio is below 1, that point is a
reproducible counterexample, which refutes the bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .._validation import check_int, check_number, check_rng

__all__ = ["Attack", "Range", "pair_quotient", "quotient", "worst_case"]

Array: TypeAlias = NDArray[np.float64]

# Share of the coordinates that a random start puts on the edge of the box: bounds often break,
# or are attained, at the ends of their ranges.
_ON_THE_EDGE = 0.25
# Edge of the simplex that a local search starts from, in a box of edge 1.
_SIMPLEX = 0.1
# Replaces infinity in the local optimizer, which subtracts values.
_INFINITY = 1e300
# Divergences below this are rounding errors of laws that should be equal.
_NEGLIGIBLE = 1e-16


@dataclass(frozen=True)
class Range:
    """The values that one parameter may take.

    Parameters
    ----------
    low, high : float
        Both included; 0 < low on a logarithmic scale.
    log : bool, default=False
        Whether the search moves on a logarithmic scale.
    integer : bool, default=False
        Whether values are rounded to integers.
    size : int, optional
        Length of a vector of these values; None, the default, for a single number.

    Examples
    --------
    >>> Range(1e-3, 10.0, log=True).value([0.5])
    0.1
    >>> Range(1, 4, integer=True, size=3).value([0.0, 0.4, 1.0])
    array([1, 2, 4])
    """

    low: float
    high: float
    log: bool = False
    integer: bool = False
    size: int | None = None

    def __post_init__(self) -> None:
        low = check_number("low", self.low, low=0.0 if self.log else -math.inf, low_open=self.log)
        check_number("high", self.high, low=low)
        if self.size is not None:
            check_int("size", self.size, low=1)

    @property
    def dimension(self) -> int:
        """Number of coordinates of the search box."""
        return 1 if self.size is None else self.size

    def value(self, unit: Any) -> Any:
        """Return the value at coordinates in [0, 1], shape (dimension,)."""
        low, high = self._ends
        found = low + np.asarray(unit, dtype=np.float64) * (high - low)
        found = np.exp(found) if self.log else found
        found = np.clip(np.rint(found) if self.integer else found, self.low, self.high)
        if self.integer:
            found = found.astype(np.int64)
        return found if self.size is not None else found[0].item()

    def unit(self, value: Any) -> Array:
        """Return coordinates in [0, 1] whose value is ``value``, shape (dimension,)."""
        found = np.atleast_1d(np.asarray(value, dtype=np.float64))
        inside = (found >= self.low) & (found <= self.high)
        if found.shape != (self.dimension,) or not inside.all():
            raise ValueError(f"a value must be in {self}, got {value!r}")
        low, high = self._ends
        found = np.log(found) if self.log else found
        return (found - low) / (high - low) if high > low else np.zeros(found.shape)

    @property
    def _ends(self) -> tuple[float, float]:
        """Values at the coordinates 0 and 1, as logarithms on a logarithmic scale."""
        low, high = float(self.low), float(self.high)
        if self.integer:  # every integer has the same share of the box
            low, high = max(low - 0.499, 0.5 * low) if self.log else low - 0.499, high + 0.499
        return (math.log(low), math.log(high)) if self.log else (low, high)


@dataclass(frozen=True, eq=False)
class Attack:
    """The worst case that a search found.

    Attributes
    ----------
    ratio : float
        The smallest value.
    at : dict
        The point where it was found: ``function(**at)`` is ``ratio`` again.
    evaluations : int
        Number of points that were tried.

    Examples
    --------
    >>> print(Attack(1.25, {"order": 2.0, "n": 3}, 100))
    1.25 at order = 2, n = 3
    """

    ratio: float
    at: dict[str, Any]
    evaluations: int

    def __str__(self) -> str:
        def shown(value: Any) -> str:
            if np.ndim(value) == 0:
                return f"{value:.6g}"
            return f"({', '.join(f'{v:.4g}' for v in value)})"

        place = ", ".join(f"{name} = {shown(value)}" for name, value in self.at.items())
        return f"{self.ratio:.6g} at {place}"


def quotient(bound: float, exact: float, error: float = 0.0, *, tolerance: float = 1e-9) -> float:
    """Return bound / exact, where both may be 0 or infinite.

    Parameters
    ----------
    bound : float
        Claimed to be at least ``exact``.
    exact : float
        At least 0; below 1e-16 it counts as 0.
    error : float, default=0
        Absolute error estimate of ``exact``.
    tolerance : float, default=1e-9
        Largest accepted error, relative to the larger of both numbers: a quotient below
        1 - tolerance is then not due to numerical error.

    Returns
    -------
    float
        1 if both are 0 or both infinite.

    Raises
    ------
    ArithmeticError
        If a number is NaN, ``exact`` is negative, or its error is too large: a search must not
        skip a point that cannot be compared.

    Examples
    --------
    >>> quotient(3.0, 2.0), quotient(0.0, 0.0), quotient(1.0, 0.0)
    (1.5, 1.0, inf)
    >>> quotient(1.0, 0.5, error=1e-3)
    Traceback (most recent call last):
    ...
    ArithmeticError: the exact value 0.5 is known only up to 0.001
    """
    if math.isnan(bound) or not exact >= 0.0:
        raise ArithmeticError(f"cannot compare the bound {bound!r} with the exact value {exact!r}")
    if exact + error < _NEGLIGIBLE:
        exact = error = 0.0
    # Relative to the larger number: far below the bound, a rough exact value is enough.
    if not error <= tolerance * max(bound, exact):
        raise ArithmeticError(f"the exact value {exact!r} is known only up to {error:.3g}")
    if bound == exact:
        return 1.0
    return bound / exact if exact else math.copysign(math.inf, bound)


def pair_quotient(
    bound: float,
    laws: Any,
    *,
    order: float | None = None,
    epsilon: float | None = None,
    tolerance: float = 1e-9,
) -> float:
    """Return bound / exact for a bound on a divergence of two laws in both directions.

    Parameters
    ----------
    bound : float
        Claimed to be at least both Renyi divergences, or both deltas.
    laws : pair of array_like or of Density, or array of shape (2, m)
        As p and q in :func:`dpanalysis.audit.renyi_divergence`.
    order, epsilon : float
        Exactly one of the two: the order of the Renyi divergence, or the epsilon of the deltas.
    tolerance : float
        As in :func:`quotient`.

    Examples
    --------
    >>> laws = [0.75, 0.25], [0.25, 0.75]
    >>> pair_quotient(0.9, laws, order=2.0)
    1.0622
    >>> pair_quotient(0.6, laws, epsilon=0.0)
    1.2
    """
    from .exact import hockey_stick, renyi_divergence

    divergence: Callable[..., Any]
    if order is not None and epsilon is None:
        divergence, level = renyi_divergence, order
    elif epsilon is not None and order is None:
        divergence, level = hockey_stick, epsilon
    else:
        raise TypeError(f"give order or epsilon, got order={order!r} and epsilon={epsilon!r}")
    exact = max(divergence(a, b, level, full_output=True) for a, b in (laws, laws[::-1]))
    return quotient(bound, *exact, tolerance=tolerance)


def worst_case(
    function: Callable[..., float],
    space: Mapping[str, Range],
    *,
    starts: int = 200,
    searches: int = 3,
    steps: int = 100,
    guesses: Iterable[Mapping[str, Any]] = (),
    rng: np.random.Generator | int = 0,
) -> Attack:
    """Return the smallest value of ``function`` that a seeded search of a box finds.

    The box is sampled at random, with a share of the coordinates on its edge. Nelder-Mead then
    starts from the best points. The number of evaluations is fixed; a seed repeats the search.

    Parameters
    ----------
    function : callable
        Called with the parameters by name; returns a float, for example a
        :func:`quotient`. Infinity is a valid value; NaN is an error.
    space : mapping of str to Range
        The parameters that vary.
    starts : int, default=200
        Random points.
    searches : int, default=3
        Number of local searches, started from that many of the best points.
    steps : int, default=100
        Evaluations of one local search.
    guesses : iterable of mappings, optional
        Further points to try, before the random ones, such as known worst cases.
    rng : numpy.random.Generator or int, default=0

    Raises
    ------
    ArithmeticError
        If ``function`` returns NaN or raises ArithmeticError; the message names the point.

    Examples
    --------
    Is e^x <= 1 + x + x^2 on [-1, 2]? Up to x = 1.79:

    >>> space = {"x": Range(-1.0, 2.0)}
    >>> found = worst_case(lambda x: quotient(1 + x + x * x, math.exp(x)), space)
    >>> print(found)
    0.947347 at x = 2
    """
    if not space:
        raise ValueError(f"space must name at least one parameter, got {space!r}")
    check_int("starts", starts, low=1)
    check_int("searches", searches, low=0)
    check_int("steps", steps, low=1)
    ends = np.cumsum([part.dimension for part in space.values()])
    random = check_rng(rng)

    def point(unit: Array) -> dict[str, Any]:
        pieces = np.split(unit, ends[:-1])
        return {name: part.value(u) for (name, part), u in zip(space.items(), pieces)}

    evaluations = 0

    def value(unit: Array) -> float:
        nonlocal evaluations
        evaluations += 1
        at = point(unit)
        try:
            found = float(function(**at))
        except ArithmeticError as error:
            raise ArithmeticError(f"{error}, at {at}") from error
        if math.isnan(found):
            raise ArithmeticError(f"the function is NaN at {at}")
        return found

    units = [np.concatenate([part.unit(g[name]) for name, part in space.items()]) for g in guesses]
    units.extend(_starts(random, starts, int(ends[-1])))
    found = [(value(unit), i) for i, unit in enumerate(units)]
    found.sort()
    best, best_unit = found[0][0], units[found[0][1]]
    for _, i in found[:searches]:
        for unit, reached in _descend(value, units[i], steps):
            if reached < best:
                best, best_unit = reached, unit
    return Attack(best, point(best_unit), evaluations)


def _starts(random: np.random.Generator, count: int, dimension: int) -> Iterator[Array]:
    """Yield random points of the unit box, with some coordinates on its edge."""
    for _ in range(count):
        unit = random.random(dimension)
        edge = random.random(dimension) < _ON_THE_EDGE
        yield np.where(edge, np.rint(unit), unit)


def _descend(
    value: Callable[[Array], float], start: Array, steps: int
) -> Iterator[tuple[Array, float]]:
    """Yield the points of a local search of ``steps`` evaluations, and their values."""
    from scipy import optimize

    trace: list[tuple[Array, float]] = []

    def recorded(unit: Array) -> float:
        trace.append((unit.copy(), value(unit)))
        return min(max(trace[-1][1], -_INFINITY), _INFINITY)

    # The other corners of the simplex lie inside the box.
    simplex = np.tile(start, (start.size + 1, 1))
    simplex[1:] += np.diag(np.where(start > 0.5, -_SIMPLEX, _SIMPLEX))
    while len(trace) < steps:
        left = steps - len(trace)
        if left <= start.size + 1:  # too few for another simplex
            simplex = simplex[:left]
            for unit in simplex:
                recorded(unit)
            break
        optimize.minimize(
            recorded,
            start,
            method="Nelder-Mead",
            bounds=[(0.0, 1.0)] * start.size,
            options={
                "initial_simplex": simplex,
                "maxfev": left,
                "xatol": 1e-12,
                "fatol": 0.0,
                "adaptive": start.size > 4,
            },
        )
        # After the simplex has collapsed, restart with a smaller one at the best point so far.
        best = min(trace, key=lambda pair: pair[1])[0]
        size = 0.2 * np.abs(simplex[1:] - simplex[0]).max()
        simplex = np.tile(best, (start.size + 1, 1))
        simplex[1:] += np.diag(np.where(best > 0.5, -size, size))
    yield from trace
