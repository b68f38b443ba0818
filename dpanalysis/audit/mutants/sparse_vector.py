"""The sparse vector technique as published, in six ways of which two are private."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from ... import privacy
from ..._validation import check_choice, check_int, check_number
from ...privacy.events import Event, Laplace, Repeated
from ...privacy.mechanisms import laplace, random_source
from ...privacy.relations import REPLACE_ONE
from .base import Mutant

__all__ = ["MUTANTS", "SparseVector", "lyu"]

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(32)


def _tail(x: np.ndarray, scale: float) -> np.ndarray:
    """P(noise >= x) of Laplace noise; without noise, whether 0 >= x."""
    if scale == 0.0:
        return np.where(x <= 0.0, 1.0, 0.0)
    half = 0.5 * np.exp(-abs(x) / scale)
    return np.where(x > 0.0, half, 1.0 - half)


@dataclass(frozen=True)
class SparseVector:
    """Compares noisy queries with one noisy threshold around 0, and says which are above.

    Called with the true answers as the data set, it returns a row of codes for each sample:
    1 above, 0 below, -1 not asked any more. With ``values`` it stops at the first query above
    and returns how many were below and a noisy value (0 where none was above).

    Parameters
    ----------
    threshold_scale, query_scale : float
        Laplace scales; a ``query_scale`` of 0 leaves the queries without noise.
    cutoff : int, optional
        Stop after so many queries above; None never stops.
    refresh : bool
        Draw a new threshold after every query above.
    values : bool
        Publish a noisy value of the query that was above (with ``cutoff=1``).
    value_scale : float
        Its Laplace scale; with 0 it is the very value that was compared.

    Raises
    ------
    ValueError
        If values are to be published with another cutoff than 1.
    """

    threshold_scale: float
    query_scale: float
    cutoff: int | None = None
    refresh: bool = False
    values: bool = False
    value_scale: float = 0.0

    def __post_init__(self) -> None:
        if self.values and self.cutoff != 1:
            raise ValueError(f"cutoff must be 1 where values are published, got {self.cutoff}")

    @property
    def events(self) -> list[Event]:
        """Return what it costs for queries of sensitivity 1, by the proof of Lyu, Su and Li.

        Raises
        ------
        ValueError
            Where the proof says nothing: queries without noise or a cutoff, or a comparison
            whose noisy value is published.
        """
        if self.cutoff is None or not self.query_scale or (self.values and not self.value_scale):
            raise ValueError(f"{self} is not private at any epsilon")
        threshold = Laplace(self.threshold_scale, 1.0)
        queries = Laplace(self.query_scale, 2.0 * self.cutoff)
        values = [Laplace(self.value_scale, 1.0)] if self.values else []
        return [Repeated(threshold, self.cutoff if self.refresh else 1), queries, *values]

    def __call__(self, dataset: Any, rng: Any, size: int) -> np.ndarray:  # noqa: D102
        random = random_source(rng)
        queries = np.asarray(dataset, dtype=np.float64)
        threshold = laplace(random, self.threshold_scale, size)
        codes = np.full((size, len(queries)), -1, dtype=np.int8)
        value = np.zeros(size)
        found = np.zeros(size, dtype=np.int64)
        for i, query in enumerate(queries):
            active = True if self.cutoff is None else found < self.cutoff
            noisy = query + laplace(random, self.query_scale, size)
            above = active & (noisy >= threshold)
            codes[:, i] = np.where(active, above, -1)
            if self.value_scale:
                noisy = query + laplace(random, self.value_scale, size)
            value = np.where(above, noisy, value)
            found += above
            if self.refresh:
                threshold = np.where(above, laplace(random, self.threshold_scale, size), threshold)
        if self.values:
            return np.column_stack([(codes == 0).sum(axis=1), value])
        return codes

    def law(self, dataset: Any) -> np.ndarray:
        """Probabilities of all sequences of codes; of a value, only whether it is below 0."""
        queries = np.asarray(dataset, dtype=np.float64)
        nodes, density = self._grid(queries)
        return np.array(list(self._leaves(queries, nodes, density, density, 0)))

    def _grid(self, queries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Nodes for the threshold and its probability on them; panels end where it has kinks."""
        kinks = np.unique([0.0, *queries])
        far = 50.0 * max(self.threshold_scale, self.query_scale)
        width = min(self.threshold_scale, self.query_scale or math.inf)
        ends = np.concatenate([[kinks[0] - far], kinks, [kinks[-1] + far]])
        edges = np.concatenate(
            [np.linspace(a, b, 1 + int(np.ceil((b - a) / width)))[:-1] for a, b in pairwise(ends)]
        )
        edges = np.append(edges, ends[-1])
        half, middle = np.diff(edges)[:, None] / 2.0, (edges[:-1, None] + edges[1:, None]) / 2.0
        nodes = (middle + half * _NODES).ravel()
        density = np.exp(-abs(nodes) / self.threshold_scale) / (2.0 * self.threshold_scale)
        return nodes, (half * _WEIGHTS).ravel() * density

    def _leaves(
        self,
        queries: np.ndarray,
        nodes: np.ndarray,
        density: np.ndarray,
        mass: np.ndarray,
        found: int,
    ) -> Iterator[float]:
        """Yield the probabilities of what is still to come, given what has been said."""
        if not len(queries) or found == self.cutoff:
            yield float(mass.sum())
            return
        query, rest = queries[0], queries[1:]
        above = _tail(nodes - query, self.query_scale)
        yield from self._leaves(rest, nodes, density, mass * (1.0 - above), found)
        said = mass * above
        if self.values:
            if self.value_scale:
                negative = said * (1.0 - _tail(np.array(-query), self.value_scale))
            else:
                negative = mass * np.maximum(above - _tail(np.array(-query), self.query_scale), 0.0)
            yield float(negative.sum())
            said = said - negative
        if self.refresh:
            said = said.sum() * density
        yield from self._leaves(rest, nodes, density, said, found + 1)


def lyu(algorithm: int, epsilon: float, cutoff: int = 1) -> SparseVector:
    """Return an algorithm of Figure 1 of Lyu, Su and Li, for queries of sensitivity 1.

    Algorithms 1 (theirs) and 2 (Dwork and Roth) are ``epsilon``-private. The others claim to be
    so, and are not.

    Parameters
    ----------
    algorithm : {1, ..., 6}
    epsilon : float
        What it claims, in (0, inf).
    cutoff : int
        The c of the paper: queries above before it stops, where it does (1 for Algorithm 3).

    Returns
    -------
    SparseVector

    Raises
    ------
    ValueError
        If an argument is outside its range.

    Examples
    --------
    >>> lyu(5, epsilon=1.0).law([0.0, 1.0])  # below-below, -above, above-below, -above
    array([0.3033, 0.1967, 0.    , 0.5   ])
    """
    epsilon = check_number("epsilon", epsilon, low=0.0, low_open=True)
    cutoff = check_int("cutoff", cutoff, low=1)
    unit = 2.0 / epsilon  # the scale that costs half of epsilon at sensitivity 1
    if algorithm == 1:
        return SparseVector(unit, 2.0 * cutoff * unit, cutoff)
    if algorithm == 2:
        return SparseVector(cutoff * unit, 2.0 * cutoff * unit, cutoff, refresh=True)
    if algorithm == 3:
        return SparseVector(unit, cutoff * unit, cutoff, values=True)
    if algorithm == 4:
        return SparseVector(4.0 / epsilon, 4.0 / (3.0 * epsilon), cutoff)
    check_choice("algorithm", algorithm, (1, 2, 3, 4, 5, 6))
    return SparseVector(unit, 0.0 if algorithm == 5 else unit)


def _mutant(
    algorithm: int,
    author: str,
    why: str,
    epsilon: float,
    correct: SparseVector,
    cutoff: int,
    answers: list[float],
    others: list[float],
) -> Mutant:
    return Mutant(
        name=f"sparse vector of {author}",
        source=f"Lyu, Su, Li, VLDB 2017, Algorithm {algorithm}",
        why=why,
        broken=lyu(algorithm, epsilon, cutoff),
        correct=correct,
        dataset=np.array(answers),
        neighbour=np.array(others),
        claim=privacy.epsilon(correct.events, 0.0, REPLACE_ONE),
    )


# Half of the budget for the comparisons and half for the value, with noise of its own.
_NUMERIC = SparseVector(2.0, 4.0, cutoff=1, values=True, value_scale=1.0)

# Algorithm 2 of the paper is private, so it serves as a twin.
MUTANTS = (
    _mutant(
        3,
        "Roth (2011)",
        "publishes the noisy value that was compared, which bounds the noisy threshold",
        epsilon=2.0,
        correct=_NUMERIC,
        cutoff=1,
        answers=[-1.0] * 10 + [0.0],
        others=[0.0] * 10 + [-1.0],
    ),
    _mutant(
        4,
        "Lee and Clifton (2014)",
        "the noise of the queries does not grow with the cutoff c: (1 + 6c)/4 epsilon",
        epsilon=1.0,
        correct=lyu(2, 1.0, cutoff=2),
        cutoff=2,
        answers=[-0.5] * 3 + [0.5] * 2,
        others=[0.5] * 3 + [-0.5] * 2,
    ),
    _mutant(
        5,
        "Stoddard et al. (2014)",
        "the queries have no noise, so their order shows",
        epsilon=1.0,
        correct=lyu(1, 1.0),
        cutoff=1,
        answers=[0.0, 1.0],
        others=[1.0, 0.0],
    ),
    _mutant(
        6,
        "Chen et al. (2015)",
        "every query above is free, so the loss grows with their number",
        epsilon=1.0,
        correct=lyu(1, 1.0, cutoff=3),
        cutoff=3,
        answers=[-0.5] * 3 + [0.5] * 3,
        others=[0.5] * 3 + [-0.5] * 3,
    ),
)
