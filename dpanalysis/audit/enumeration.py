"""Mechanisms on tiny data, as tables: the law on every batch, and so every divergence exactly.

A subsampled mechanism on a handful of records is a mixture over all batches. Writing its laws
into a table, one row a batch, gives an adversary all freedom that a bound must allow for: the
other records, the order of the outcomes, the two directions.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from .._validation import check_int, check_number
from ..privacy.rdp import _expm1_minus

__all__ = ["Subsampling", "laws_of", "poisson", "presence", "renyi_curve", "without_replacement"]

Array: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Subsampling:
    """How batches are drawn from two neighbouring data sets.

    Attributes
    ----------
    first, second : ndarray, shape (batches,)
        Probability of each batch under either data set.
    neighbours : ndarray of int, shape (pairs, 2)
        Pairs of batches that are neighbours themselves, so that the mechanism's own privacy
        says how far their laws may differ.

    Examples
    --------
    One of two records is drawn and answered for by randomised response:

    >>> sampling = without_replacement(2, 1)
    >>> table = [[0.75, 0.25], [0.25, 0.75], [0.25, 0.75]]
    >>> sampling.loss(table)
    1.0986123
    >>> sampling.laws(table)
    (array([0.5, 0.5]), array([0.25, 0.75]))
    """

    first: Array
    second: Array
    neighbours: NDArray[np.int64]

    def __post_init__(self) -> None:
        for name in ("first", "second", "neighbours"):  # shared by all who ask for the same
            array = np.array(getattr(self, name))
            array.flags.writeable = False
            object.__setattr__(self, name, array)

    def laws(self, table: ArrayLike) -> tuple[Array, Array]:
        """Return the laws of the outcome on the two data sets.

        Parameters
        ----------
        table : array_like, shape (batches, outcomes)
            Probabilities, one row a batch.
        """
        table = np.asarray(table, dtype=np.float64)
        return self.first @ table, self.second @ table

    def loss(self, table: ArrayLike) -> float:
        """Return the pure loss of the mechanism on a batch."""
        logs = np.log(np.asarray(table, dtype=np.float64))
        return float(np.abs(logs[self.neighbours[:, 0]] - logs[self.neighbours[:, 1]]).max())

    def curve(self, table: ArrayLike) -> Callable[[ArrayLike], Array]:
        """Return the Renyi curve of the mechanism on a batch: the largest of all pairs."""
        table = np.asarray(table, dtype=np.float64)
        ordered = np.concatenate([self.neighbours, self.neighbours[:, ::-1]])
        p, q = table[ordered[:, 0]], table[ordered[:, 1]]

        def curve(orders: ArrayLike) -> Array:
            orders = np.asarray(orders, dtype=np.float64)
            return renyi_curve(p, q, orders.ravel()).max(axis=0).reshape(orders.shape)

        return curve


def renyi_curve(p: ArrayLike, q: ArrayLike, orders: ArrayLike) -> Array:
    """Return the Renyi divergences of many pairs of positive laws at many orders at once.

    Parameters
    ----------
    p, q : array_like, shape (pairs, outcomes)
        Positive probabilities.
    orders : array_like, shape (k,)
        In (1, inf].

    Returns
    -------
    ndarray, shape (pairs, k)

    Examples
    --------
    >>> renyi_curve([[0.75, 0.25]], [[0.25, 0.75]], [2.0, np.inf])
    array([[0.847298, 1.098612]])
    """
    p, q = np.asarray(p, dtype=np.float64)[:, None, :], np.asarray(q, dtype=np.float64)[:, None, :]
    orders = np.asarray(orders, dtype=np.float64)
    loss = np.log(p / q)
    a = np.where(np.isinf(orders), 2.0, orders)[None, :, None]
    # As in ``exact``: positive terms only, so that small divergences keep their digits.
    size = a * np.abs(loss)
    tame = np.where(size < 300.0, loss, 0.0)
    parts = _expm1_minus(-tame) + _expm1_minus((a - 1.0) * tame) / (a - 1.0)
    near = np.log1p((a[..., 0] - 1.0) * (p * parts).sum(axis=-1))
    far = special.logsumexp(np.log(q) + a * loss, axis=-1)
    moment = np.where(size.max(axis=-1) < 300.0, near, far) / (a[..., 0] - 1.0)
    return np.where(np.isinf(orders), loss.max(axis=-1), moment)


def laws_of(logits: ArrayLike, outcomes: int, spread: float = 1.0) -> Array:
    """Return a table of laws from any numbers: the softmax of each row, times ``spread``.

    Parameters
    ----------
    logits : array_like, shape (batches * outcomes,)
    outcomes : int
    spread : float, default=1
        At least 0; log-likelihood ratios are in proportion to it, roughly.

    Returns
    -------
    ndarray, shape (batches, outcomes)

    Examples
    --------
    >>> laws_of([0.0, 0.0, 1.0, -1.0], outcomes=2).tolist()
    [[0.5, 0.5], [0.880797, 0.119203]]
    """
    outcomes = check_int("outcomes", outcomes, low=2)
    spread = check_number("spread", spread, low=0.0)
    rows = np.asarray(logits, dtype=np.float64).reshape(-1, outcomes)
    return special.softmax(spread * rows, axis=1)


@lru_cache(maxsize=64)
def without_replacement(n: int, m: int) -> Subsampling:
    """Return all batches of m records of two data sets of n that differ in one record.

    Examples
    --------
    >>> without_replacement(3, 2).first
    array([0.333333, 0.333333, 0.333333, 0. , 0. ])
    """
    n = check_int("n", n, low=1, high=8)
    m = check_int("m", m, low=1, high=n)
    # Record 0 is replaced by record n.
    sides = [
        [frozenset(batch) for batch in itertools.combinations(records, m)]
        for records in (range(n), range(1, n + 1))
    ]
    batches = list(dict.fromkeys(sides[0] + sides[1]))
    first, second = (np.array([(batch in side) / len(side) for batch in batches]) for side in sides)
    return Subsampling(first, second, _pairs(batches, 2))


@lru_cache(maxsize=64)
def poisson(n: int, rate: float) -> Subsampling:
    """Return all batches of n records, of which the second data set lacks the last.

    Examples
    --------
    >>> poisson(1, 0.25).first, poisson(1, 0.25).second
    (array([0.75, 0.25]), array([1., 0.]))
    """
    n = check_int("n", n, low=1, high=8)
    rate = check_number("rate", rate, low=0.0, high=1.0)
    batches = [
        frozenset(batch)
        for size in range(n + 1)
        for batch in itertools.combinations(range(n), size)
    ]

    def law(records: int) -> Array:
        return np.array(
            [
                rate ** len(b) * (1.0 - rate) ** (records - len(b))
                if max(b, default=0) < records or not b
                else 0.0
                for b in batches
            ]
        )

    return Subsampling(law(n), law(n - 1), _pairs(batches, 1))


def _pairs(batches: list[frozenset[int]], distance: int) -> NDArray[np.int64]:
    found = [
        (i, j)
        for (i, a), (j, b) in itertools.combinations(enumerate(batches), 2)
        if len(a ^ b) == distance
    ]
    return np.array(found, dtype=np.int64).reshape(-1, 2)


@lru_cache(maxsize=64)
def presence(fraction: float, relation: str) -> Subsampling:
    """Return a subsampling of any size, for mechanisms that look at one record only.

    Rows of the table: the batch has the record; for "replace_one" it has the other one in its
    place; it has neither.

    Parameters
    ----------
    fraction : float
        Probability that the record is in the batch, in (0, 1].
    relation : {"replace_one", "add_or_remove_one"}

    Examples
    --------
    >>> presence(0.01, "add_or_remove_one").laws([[0.75, 0.25], [0.25, 0.75]])
    (array([0.255, 0.745]), array([0.25, 0.75]))
    """
    q = check_number("fraction", fraction, low=0.0, high=1.0, low_open=True)
    if relation == "add_or_remove_one":
        return Subsampling(np.array([q, 1.0 - q]), np.array([0.0, 1.0]), np.array([[0, 1]]))
    return Subsampling(
        np.array([q, 0.0, 1.0 - q]),
        np.array([0.0, q, 1.0 - q]),
        np.array([[0, 1], [0, 2], [1, 2]]),
    )
