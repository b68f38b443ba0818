"""Answers to queries on neighbouring data, and schedules of noise."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import strategies as st

from ..._validation import check_number
from ._arguments import SIGN, UNIT, Draw, Size, sizes

__all__ = ["noise_schedules", "query_sequences"]


def _shapes(length: int) -> st.SearchStrategy[np.ndarray]:
    """Sequences in [-1, 1]: constant, a ramp, a spike, a step, alternating, anything."""
    index = np.arange(length)
    positions = st.integers(0, length - 1)
    return st.one_of(
        st.just(np.ones(length)),
        positions.map(lambda at: (index == at).astype(np.float64)),
        positions.map(lambda at: np.where(index < at, -1.0, 1.0)),
        st.just(np.linspace(-1.0, 1.0, length)),
        st.just(np.where(index % 2, -1.0, 1.0)),
        st.lists(UNIT, min_size=length, max_size=length).map(np.array),
    )


@st.composite
def _queries(
    draw: Draw, length: st.SearchStrategy[int], sensitivity: float, reach: float, one_sided: bool
) -> tuple[np.ndarray, np.ndarray]:
    size = draw(length)
    level = draw(st.one_of(st.just(0.0), st.floats(-reach, reach)))
    spread = draw(st.one_of(st.just(0.0), st.floats(0.0, reach - abs(level))))
    queries = level + spread * draw(_shapes(size))
    shift = draw(_shapes(size))
    shift = draw(SIGN) * (abs(shift) if one_sided else shift)
    neighbour = queries + sensitivity * shift
    while (over := abs(neighbour - queries) > sensitivity).any():  # by rounding
        neighbour[over] = np.nextafter(neighbour[over], queries[over])
    return queries, neighbour


def query_sequences(
    length: Size = (1, 20),
    *,
    sensitivity: float = 1.0,
    reach: float = 10.0,
    one_sided: bool = False,
) -> st.SearchStrategy[tuple[np.ndarray, np.ndarray]]:
    """Return answers of the same queries on neighbouring data, for sparse vectors and selection.

    Parameters
    ----------
    length : int or (int, int)
        Number of queries, or its smallest and largest value, at least 1.
    sensitivity : float
        The largest difference between two answers to one query. These differences are likely:
        all answers move by it, they move by a ramp, one answer moves alone, the first answers
        go down while the others go up.
    reach : float
        The first sequence lies in [-reach, reach], the threshold being 0.
    one_sided : bool
        Whether all answers move in the same direction, as counts do when a record is added.

    Returns
    -------
    strategy of (q, q')
        Arrays of shape (length,).

    Raises
    ------
    ValueError, TypeError
        If an argument is outside its range.

    Examples
    --------
    >>> from hypothesis import find
    >>> find(query_sequences(3), lambda pair: True)
    (array([0., 0., 0.]), array([1., 1., 1.]))
    """
    sensitivity = check_number("sensitivity", sensitivity, low=0.0)
    reach = check_number("reach", reach, low=0.0)
    return _queries(sizes("length", length), sensitivity, reach, bool(one_sided))


@st.composite
def _schedules(draw: Draw, length: st.SearchStrategy[int], low: float, high: float) -> np.ndarray:
    size = draw(length)
    ends = math.log(low), math.log(high)
    shape = (draw(_shapes(size)) + 1.0) / 2.0
    return np.clip(np.exp(ends[0] + shape * (ends[1] - ends[0])), low, high)


def noise_schedules(
    length: Size = (1, 20), *, low: float = 0.1, high: float = 10.0
) -> st.SearchStrategy[np.ndarray]:
    """Return noise scales or standard deviations for the steps of a run.

    Parameters
    ----------
    length : int or (int, int)
        Number of steps, or its smallest and largest value, at least 1.
    low, high : float
        Range of the noise, ``0 < low <= high < inf``. These schedules are likely: constant, one
        step unlike all others, a switch, a geometric ramp, alternating.

    Returns
    -------
    strategy of arrays of shape (length,)

    Raises
    ------
    ValueError, TypeError
        If an argument is outside its range.

    Examples
    --------
    >>> from hypothesis import find
    >>> scales = find(noise_schedules(3), lambda scales: scales[0] < scales[-1])
    >>> scales.shape, bool((scales > 0.0).all())
    ((3,), True)
    """
    low = check_number("low", low, low=0.0, low_open=True)
    high = check_number("high", high, low=low)
    return _schedules(sizes("length", length), low, high)
