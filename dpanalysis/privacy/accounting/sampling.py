"""Sampling schemes: full batches, a fixed number with or without replacement, and Poisson.

``BallsInBins``, ``RandomAllocation`` and ``Shuffle`` partition the records into an epoch's batches.

A sampling scheme belongs to a neighbouring relation, because amplification is proved
for the pair: ``Poisson``, ``BallsInBins`` and ``RandomAllocation`` with ``add_or_remove_one``,
``WithoutReplacement``, ``WithReplacement`` and ``Shuffle`` with ``replace_one``, ``Full`` with
either. A draw takes time proportional to the batch (plus n/64 words without replacement) and is
sorted, so that the rows are read in order. With the operating system's entropy draws are exact:
unbiased integers, and for ``Poisson`` separate random bits for each record, n bytes per batch.
A seeded generator gives 53-bit uniforms, which are meant for research.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..._validation import check_int, keep_numbers
from .. import noise
from ..noise import Random, SystemRandom
from .relations import ADD_OR_REMOVE_ONE, REPLACE_ONE

# The valid pairs of scheme and relation, for error messages.
PAIRS = (
    f"Poisson, BallsInBins and RandomAllocation go with {ADD_OR_REMOVE_ONE!r}, WithoutReplacement, "
    f"WithReplacement and Shuffle with {REPLACE_ONE!r}, Full with either"
)


@dataclass(frozen=True)
class Full:
    """Every record, every time.

    Examples
    --------
    >>> Full().draw(10, np.random.default_rng(0)) is None
    True
    >>> Full().expected_size(10)
    10.0
    """

    relations: ClassVar[tuple[str, ...]] = (REPLACE_ONE, ADD_OR_REMOVE_ONE)

    def validate(self, n: int) -> None:
        """Raise if there is no record."""
        check_int("n", n, low=1)

    def expected_size(self, n: int) -> float:
        """Return n, the public divisor of a mean."""
        return float(n)

    def fraction(self, n: int | None) -> float:
        """Return the probability 1 that a record is in the batch."""
        return 1.0

    def describe(self, batches: str, n: int | None) -> str:
        """Describe in plain words the records that a release uses."""
        return "the whole data set"

    def draw(self, n: int, random: Random) -> NDArray[np.int64] | None:
        """Return None, which stands for all rows and saves an index array."""
        self.validate(n)
        return None


@dataclass(frozen=True)
class _FixedSize:
    """A batch of ``m`` rows, independent of the data."""

    m: int
    relations: ClassVar[tuple[str, ...]] = (REPLACE_ONE,)

    def __post_init__(self) -> None:
        object.__setattr__(self, "m", check_int("m", self.m, low=1))

    def validate(self, n: int) -> None:
        """Raise ``ValueError`` if ``m`` is above ``n``."""
        check_int("n", n, low=1)
        if self.m > n:
            raise ValueError(f"m must be at most n = {n}, got {self.m}")

    def expected_size(self, n: int) -> float:
        """Return m, the public divisor of a mean."""
        self.validate(n)
        return float(self.m)

    def _count(self, n: int | None) -> int:
        if n is None:
            raise ValueError(f"{type(self).__name__} needs the number of records n")
        self.validate(n)
        return n


@dataclass(frozen=True)
class WithoutReplacement(_FixedSize):
    """A batch of exactly ``m`` of the n records, every subset equally likely.

    Parameters
    ----------
    m : int
        Batch size, at least 1 and at most n.

    Examples
    --------
    >>> batch = WithoutReplacement(3).draw(10, np.random.default_rng(0))
    >>> len(set(batch.tolist())), batch.dtype
    (3, dtype('int64'))
    """

    def fraction(self, n: int | None) -> float:
        """Return m/n, the probability that a record is in the batch."""
        return self.m / self._count(n)

    def describe(self, batches: str, n: int | None) -> str:
        """Describe in plain words the records that a release uses."""
        return f"{batches} of {self.m:,} of the {n:,} records, drawn without replacement"

    def draw(self, n: int, random: Random) -> NDArray[np.int64]:
        """Return m sorted row numbers, int64.

        Independent indices are marked in a bitmap until m of them are distinct; reading
        the bitmap sorts them. For m > n/2 the n - m records to leave out are drawn
        instead. Indices are ``floor(n u)`` of 53-bit uniforms, whose bias is below
        n 2^-53; with the operating system's entropy they are unbiased.
        """
        from .._compiled import mark_distinct, read_bitmap

        self.validate(n)
        inside = 2 * self.m <= n
        missing = marked = self.m if inside else n - self.m
        words = np.zeros((n + 63) // 64, dtype=np.uint64)
        while missing:
            # Draw enough for the expected collisions; a second round is rare and short.
            mean = n * math.log((n - marked + missing) / (n - marked)) if marked < n else n
            count = int(mean + 3.0 * math.sqrt(mean)) + 1
            if isinstance(random, SystemRandom):  # the middle of an interval: exact, n < 2^50
                uniforms = (random.integers(n, size=count) + 0.5) / n
            else:
                uniforms = random.random(count)
            missing = mark_distinct(uniforms, n, words, missing)
        rows = np.empty(self.m + 1, dtype=np.int64)
        return rows[: read_bitmap(words, n, inside, rows)]


@dataclass(frozen=True)
class WithReplacement(_FixedSize):
    """A batch of ``m`` independent draws of one record each, so that records may repeat.

    A record drawn k times moves a sum k times as far, where k is binomial; for the cost see
    :mod:`dpanalysis.privacy.accounting.with_replacement`.

    Parameters
    ----------
    m : int
        Number of draws, at least 1 and at most n.

    Examples
    --------
    >>> batch = WithReplacement(8).draw(10, np.random.default_rng(0))
    >>> len(batch), bool((np.diff(batch) >= 0).all())
    (8, True)
    """

    def fraction(self, n: int | None) -> float:
        """Return 1 - (1 - 1/n)^m, the probability that a record is in the batch at all."""
        size = self._count(n)
        return -math.expm1(self.m * math.log1p(-1.0 / size)) if size > 1 else 1.0

    def describe(self, batches: str, n: int | None) -> str:
        """Describe in plain words the records that a release uses."""
        return f"{batches} of {self.m:,} draws from the {n:,} records, with replacement"

    def draw(self, n: int, random: Random) -> NDArray[np.int64]:
        """Return m sorted row numbers, with multiplicity."""
        self.validate(n)
        return np.sort(_integers(random, n, self.m))


@dataclass(frozen=True)
class Poisson:
    """A batch that holds each record independently with probability ``rate``.

    Parameters
    ----------
    rate : float
        In (0, 1], public: intended batch size over the nominal size, not a private number of rows.

    Examples
    --------
    >>> Poisson(0.5).draw(8, np.random.default_rng(0)).dtype
    dtype('int64')
    >>> Poisson(0.01).expected_size(1000)
    10.0
    """

    rate: float
    relations: ClassVar[tuple[str, ...]] = (ADD_OR_REMOVE_ONE,)

    def __post_init__(self) -> None:
        keep_numbers(self, "rate", low=0.0, high=1.0, low_open=True)

    def validate(self, n: int) -> None:
        """Raise if there is no record to draw from."""
        check_int("n", n, low=1)

    def expected_size(self, n: int) -> float:
        """Return ``rate * n`` for the nominal size n; the actual batch size is private."""
        self.validate(n)
        return self.rate * n

    def fraction(self, n: int | None) -> float:
        """Return the probability that a record is in the batch."""
        return self.rate

    def describe(self, batches: str, n: int | None) -> str:
        """Describe in plain words the records that a release uses."""
        return f"{batches} drawn by Poisson sampling with rate {self.rate:.4g}"

    def draw(self, n: int, random: Random) -> NDArray[np.int64]:
        """Return the sorted row numbers of the batch, possibly empty, int64.

        The gaps between members of the batch are drawn from a geometric law, so that the work is
        proportional to the batch and not to n. With the operating system's entropy, separate bits
        are drawn for each record instead, so that the rate is exact.
        """
        self.validate(n)
        if self.rate == 1.0:
            return np.arange(n, dtype=np.int64)
        if isinstance(random, SystemRandom):
            return np.asarray(random.trials(self.rate, n))
        if self.rate < 2.0**-40:
            raise ValueError(
                "rate must be at least 2^-40 for a seeded generator, whose uniform numbers have "
                f'53 bits, got {self.rate!r}: take rng="os"'
            )
        from .._compiled import bernoulli_positions

        log_keep = math.log1p(-self.rate)
        parts = []
        position = 0
        while position < n:
            mean = self.rate * (n - position)
            uniforms = 1.0 - random.random(int(mean + 4.0 * math.sqrt(mean)) + 8)  # exact
            if uniforms.min() <= noise.SMALL:  # a long gap: 53 bits are too few
                places = uniforms <= noise.SMALL
                uniforms[places] = np.exp(-noise.beyond(random, int(places.sum())))
            rows = np.empty(uniforms.size, dtype=np.int64)
            written, position = bernoulli_positions(uniforms, log_keep, position, n, rows)
            parts.append(rows[:written])
        return parts[0] if len(parts) == 1 else np.concatenate(parts)


# Batches of an epoch


@dataclass(frozen=True)
class _Divided:
    """An epoch of ``batches`` batches that partition the records."""

    batches: int
    relations: ClassVar[tuple[str, ...]] = (ADD_OR_REMOVE_ONE,)
    times = 1  # batches of an epoch that contain a given record

    def __post_init__(self) -> None:
        object.__setattr__(self, "batches", check_int("batches", self.batches, low=1))

    def validate(self, n: int) -> None:
        """Raise ``ValueError`` if there are more batches than the public number of records."""
        check_int("n", n, low=1)
        if self.batches > n:
            raise ValueError(f"batches must be at most n = {n}, got {self.batches}")

    def expected_size(self, n: int) -> float:
        """Return the mean size of a batch for the nominal size n, the public divisor of a mean."""
        self.validate(n)
        return n * self.fraction(n)

    def fraction(self, n: int | None) -> float:
        """Return the probability that a record is in a given batch."""
        return self.times / self.batches

    def describe(self) -> str:
        """Describe the batches of an epoch in plain words."""
        return f"each of the {self.batches:,} batches of an epoch"

    def draw_epoch(self, n: int, random: Random) -> list[NDArray[np.int64]]:
        """Return the sorted row numbers of each batch, possibly empty; n may be private.

        Floyd's algorithm for all records at once: add a new number, or the largest if already in.
        """
        check_int("n", n, low=1)
        chosen = np.empty((n, self.times), dtype=np.int64)
        for count, last in enumerate(range(self.batches - self.times, self.batches)):
            new = _integers(random, last + 1, n)
            there = (chosen[:, :count] == new[:, None]).any(axis=1)
            chosen[:, count] = np.where(there, last, new)
        kind = np.min_scalar_type(self.batches)
        return [rows // self.times for rows in _grouped(chosen.ravel().astype(kind), self.batches)]


def _grouped(bins: NDArray[np.unsignedinteger[Any]], batches: int) -> list[NDArray[np.int64]]:
    """Return the sorted positions of the entries in each bin."""
    order = np.argsort(bins, kind="stable")  # a radix sort for integers of at most 16 bits
    return np.split(order, np.cumsum(np.bincount(bins, minlength=batches))[:-1])


def _integers(random: Random, below: int, size: int) -> NDArray[np.int64]:
    """Return uniform integers, unbiased with the operating system's entropy."""
    if isinstance(random, SystemRandom):
        return np.asarray(random.integers(below, size=size))
    return (random.random(size) * below).astype(np.int64)


@dataclass(frozen=True)
class BallsInBins(_Divided):
    """An epoch that assigns each record to one batch, uniformly and independently.

    Batch sizes vary, as in Poisson sampling; every record is used once per epoch. For the cost see
    :class:`dpanalysis.privacy.events.Epoch`.

    Parameters
    ----------
    batches : int
        Batches per epoch, at least 1 and at most n.

    Examples
    --------
    >>> epoch = BallsInBins(3).draw_epoch(10, np.random.default_rng(0))
    >>> len(epoch), np.sort(np.concatenate(epoch)).tolist() == list(range(10))
    (3, True)
    """

    def describe(self) -> str:
        """Describe in plain words the batches of an epoch and their records."""
        return f"{super().describe()}, each record in one of them at random (balls in bins)"


@dataclass(frozen=True)
class RandomAllocation(_Divided):
    """An epoch that assigns each record to ``times`` distinct batches, uniformly, independently.

    Parameters
    ----------
    batches : int
        Batches per epoch, at least 1 and at most n.
    times : int
        Batches that contain a given record; at most ``batches``.

    Examples
    --------
    >>> epoch = RandomAllocation(5, times=2).draw_epoch(10, np.random.default_rng(0))
    >>> np.bincount(np.concatenate(epoch)).tolist() == [2] * 10
    True
    """

    times: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "times", check_int("times", self.times, low=1))
        if self.times > self.batches:
            raise ValueError(f"times must be at most batches = {self.batches}, got {self.times}")

    def describe(self) -> str:
        """Describe in plain words the batches of an epoch and their records."""
        return f"{super().describe()}, each record in {self.times} of them at random"


@dataclass(frozen=True)
class Shuffle(_Divided):
    """An epoch in which the records are permuted, and the permutation is cut into batches.

    Most data loaders do this. Sizes differ by at most one. No amplification by the permutation is
    known that a budget could rely on: an epoch costs what one batch costs without sampling.

    Parameters
    ----------
    batches : int
        Batches per epoch, at least 1 and at most n.

    Examples
    --------
    >>> epoch = Shuffle(3).draw_epoch(10, np.random.default_rng(0))
    >>> [rows.size for rows in epoch], np.sort(np.concatenate(epoch)).tolist() == list(range(10))
    ([4, 3, 3], True)
    """

    relations: ClassVar[tuple[str, ...]] = (REPLACE_ONE,)

    def describe(self) -> str:
        """Describe in plain words the batches of an epoch and their records."""
        return f"{super().describe()}, into which the shuffled records are cut"

    def draw_epoch(self, n: int, random: Random) -> list[NDArray[np.int64]]:
        """Return the sorted row numbers of each batch.

        The permutation is the order of random numbers of 53 bits (62 with the operating system's
        entropy); where two are equal, the smaller row comes first.
        """
        self.validate(n)
        exact = isinstance(random, SystemRandom)
        keys = random.integers(2**62, size=n) if exact else random.random(n)
        order = np.argsort(keys, kind="stable")
        return [np.sort(rows) for rows in np.array_split(order, self.batches)]


Sampling: TypeAlias = Full | WithoutReplacement | WithReplacement | Poisson
EpochSampling: TypeAlias = BallsInBins | RandomAllocation | Shuffle


def check_sampling(sampling: Any, *, epochs: bool = False) -> Any:
    """Return ``sampling`` if it is a scheme of this module; raise TypeError otherwise."""
    # The class must match exactly: amplification is proved for these draws, and a subclass may
    # draw differently. Schemes of whole epochs are accepted if ``epochs`` is true.
    if type(sampling) in (Full, WithoutReplacement, WithReplacement, Poisson):
        return sampling
    if epochs and type(sampling) in (BallsInBins, RandomAllocation, Shuffle):
        return sampling
    listed = "Full(), WithoutReplacement(m), WithReplacement(m) or Poisson(rate)"
    if epochs:
        listed = f"{listed}, or BallsInBins(batches), RandomAllocation(batches, times) or "
        listed += "Shuffle(batches)"
    elif isinstance(sampling, _Divided):
        listed += " here, where every batch is charged on its own; SGD and Adam take epochs"
    raise TypeError(f"sampling must be {listed}, got {sampling!r}")
