r"""Learn an event from some runs of a mechanism and test a claim by its counts in other runs.

**The test.** An event is counted in n runs of each input: X is Binomial(n, p), Y Binomial(n, q),
independently. The claim allows :math:`p \le h(q)` for an increasing curve h. Two confidence
intervals would assume the worst of both probabilities at once; the test here uses one statistic,

.. math:: S = X - cY, \qquad c \ge 0 \text{ fixed before counting.}

**The p-value.** Fix a small :math:`\gamma`. Let C be the rectangle of the two-sided
Clopper-Pearson intervals of p and of q, each of which misses with probability at most
:math:`\gamma/2`, so that C misses (p, q) with probability at most :math:`\gamma`. Then

.. math:: \pi = \gamma + \sup\{P_{p,q}(S \ge s) : (p, q) \in C, \; p \le h(q)\},

with s the observed value of S, satisfies :math:`P(\pi \le \alpha) \le \alpha` whenever
:math:`p \le h(q)` (Berger and Boos, 1994): either C misses (p, q), or :math:`P_{p,q}(S \ge s) \le
\alpha - \gamma`, which happens with probability at most :math:`\alpha - \gamma`. If
:math:`h_\theta` increases in :math:`\theta`, so does :math:`\pi`: all levels below a rejected one
are rejected too. So the largest rejected level found, by any search, is a lower bound on
:math:`\theta` that is too high with probability at most :math:`\alpha`.

**The supremum** is bounded, not sampled. :math:`P_{p,q}(S \ge s)` increases in p and decreases in
q, so it suffices to consider the curve: q from a to b, p = h(q). In :math:`\vartheta =
(\mathrm{logit}\,p, \mathrm{logit}\,q)` the two counts are an exponential family,

.. math:: \ln P_\vartheta(S \ge s) = \ln \sum_{S \ge s} e^{\vartheta_1 x + \vartheta_2 y} w(x, y)
          - n A(\vartheta_1) - n A(\vartheta_2), \qquad A(t) = \ln(1 + e^t).

The first term is convex, and on a segment nA lies below its chord by at most
:math:`\tfrac18 n \Delta^2 \max A''`, :math:`A'' = p(1 - p)`. So on a segment the logarithm is at
most the larger of its two end values plus :math:`\tfrac n8 (\Delta_1^2 \max p(1-p) + \Delta_2^2
\max q(1-q))`. The curve is cut into pieces. Each lies below its chord raised by the largest excess
over it (bounded on a grid of the piece by the curve's right and the chord's left value), and pieces
are halved until the remainder is small.

**A probability** :math:`P(S \ge s) = \sum_y P(Y = y) P(X \ge s + cy)` is bounded from above over
blocks of y, with the second factor at the block's left end. All terms are positive. Rounding
errors are those of the regularized incomplete beta function (1e-12, relative), of differences of
the distribution function of Y (1e-16 times a summand's second factor and thus times the sum,
because :math:`P(Y \le y) P(X \ge s + cy) \le P(S \ge s)`) and of s + cy, which is rounded so that
the event grows; a factor of 1 + 1e-9 covers them.

**Two stages.** A first event is learned from few runs and counted in as many others; a second is
learned from all of these and counted in the rest. Given the earlier runs, each event has a p-value
as above, so :math:`Z_k = -\Phi^{-1}(\pi_k)` is stochastically at most a standard normal variable,
whatever happened before. The shares :math:`w_1 + w_2 = 1` are fixed before the first count, so
:math:`\sqrt{w_1} Z_1 + \sqrt{w_2} Z_2` is stochastically at most standard normal, too (Lehmacher
and Wassmer, 1999): replace :math:`Z_2`, then :math:`Z_1`. It decreases in :math:`\theta` as before.

References
----------
Berger, Boos (1994), *P values maximized over a confidence set for the nuisance parameter*;
Clopper, Pearson (1934); Lehmacher, Wassmer (1999), *Adaptive sample size calculations in group
sequential trials*.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from ..privacy.mechanisms import Random, spawn
from .entries import plain
from .events import Limit, OutcomeEvent
from .learning import POWER, Choice, Goal, learn_event, worst
from .outcomes import CHANGED, Batch, Outcomes, Raised, Reader, as_batch, fingerprint

__tracebackhide__ = True  # pytest shows the line that calls this package

_SHARE = 1e-3  # gamma, as a share of the allowed error
_BLOCKS = 128  # blocks of y in one probability
_PLACES = 64  # points of a piece at which the curve is compared with its chord
_REMAINDER = 0.1  # largest remainder of ln P on a piece
_SAFETY = 1e-9  # relative rounding error
_SEARCH = 40  # most levels that are tried
_NEAR = 0.01  # accepted excess of the score over its target quantile
_HALVINGS = 12  # most halvings of a piece; a larger remainder is then included as it is
_CERTAIN = 1e-12  # p-values are capped at 1 minus this share of the error, which is charged for it
# Slopes that are tried, in units of the claim's slope, and the index of the first.
_SLOPES, _FIRST_SLOPE = (0.8, 0.9, 1.0, 1.1, 1.2, 1.35, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0), 3

_Array = NDArray[np.float64]


@dataclass(frozen=True)
class Counts:
    """Counts of an event on the input where it is likelier and on the other one."""

    likelier: int
    other: int
    runs: int  # of each input
    slope: float  # the c of the test, fixed before counting
    share: float = 1.0  # the w of the stage, fixed before any count


def interval(count: int, runs: int, miss: float) -> tuple[float, float]:
    """Return the Clopper-Pearson interval, which misses with probability at most ``miss``."""
    low = special.betaincinv(count, runs - count + 1, miss / 2) if count else 0.0
    high = special.betainccinv(count + 1, runs - count, miss / 2) if count < runs else 1.0
    return float(low), float(high)


def log_p_value(counts: Counts, limit: Limit, level: float, miss: float) -> tuple[float, float]:
    """Return the logarithm of a bound on the p-value, and the q where it is attained."""
    share = _SHARE * miss
    low_p, high_p = interval(counts.likelier, counts.runs, share / 2)
    low, high = interval(counts.other, counts.runs, share / 2)
    low = max(low, float(limit.least(low_p, level)) * (1.0 - _SAFETY))
    if low > high:  # the curve misses the rectangle
        return math.log(share), high
    high = min(high, max(low, float(limit.least(high_p, level)) * (1.0 + _SAFETY)))
    log_tail, q = _supremum(counts, limit, level, low, high, miss)
    return float(np.logaddexp(log_tail + _SAFETY, math.log(share))), q


def _supremum(
    counts: Counts, limit: Limit, level: float, low: float, high: float, miss: float
) -> tuple[float, float]:
    """Return a bound on the largest ln P(S >= s) for q in [low, high], and its q."""
    # The logit diverges at q = 0 and p = 1: small pieces get the larger p and the smaller q.
    little = 1e-4 / counts.runs
    left = min(max(low, little), high)
    right = min(max(float(limit.least(1.0 - little, level)), left), high)
    corners = [(low, left)] * (low < left) + [(right, high)] * (right < high)
    if low == high:
        corners = [(low, high)]
    q = np.array([start for start, _ in corners])
    p = np.minimum(1.0, limit.most(np.array([end for _, end in corners]), level) * (1.0 + 1e-15))
    remainder = 0.0
    if left < right:
        edges = _pieces(counts.runs, limit, level, left, right)
        rise, rest = _remainder(counts.runs, limit, level, edges[:-1], edges[1:])
        moved = special.expit(special.logit(limit.most(edges, level)) + rise.max())
        p, q, remainder = np.append(p, moved), np.append(q, edges), float(rest.max())
    found = _log_tail(counts, p, q, miss) + remainder
    place = int(np.argmax(found))
    return float(found[place]), float(q[place])


def _remainder(
    runs: int, limit: Limit, level: float, left: _Array, right: _Array
) -> tuple[_Array, _Array]:
    """Return by how much each chord is raised, and how far ln P may exceed its end values."""
    t = np.linspace(0.0, 1.0, _PLACES + 1)
    first, last = special.logit(left)[:, None], special.logit(right)[:, None]
    along = first + (last - first) * t
    curve = special.logit(limit.most(special.expit(along), level))
    chord = curve[:, :1] + (curve[:, -1:] - curve[:, :1]) * t
    rise = np.maximum(0.0, (curve[:, 1:] - chord[:, :-1]).max(axis=1))

    def most(edge_a: _Array, edge_b: _Array) -> _Array:
        variance = np.maximum(edge_a * (1.0 - edge_a), edge_b * (1.0 - edge_b))
        return np.where((edge_a < 0.5) & (edge_b > 0.5), 0.25, variance)

    p = special.expit(curve[:, [0, -1]] + rise[:, None])
    p_part = (curve[:, -1] - curve[:, 0]) ** 2 * most(p[:, 0], p[:, 1])
    q_part = (last - first)[:, 0] ** 2 * most(left, right)
    return rise, 0.125 * runs * (p_part + q_part)


def _pieces(runs: int, limit: Limit, level: float, low: float, high: float) -> _Array:
    """Return the edges of the pieces of the curve, halved until their remainders are small."""
    first, last = np.arcsin(np.sqrt([low, high])).tolist()
    edges = np.sin(np.linspace(first, last, 9)) ** 2
    edges[0], edges[-1] = low, high
    for _ in range(_HALVINGS):
        rest = _remainder(runs, limit, level, edges[:-1], edges[1:])[1]
        halved = np.flatnonzero(rest > _REMAINDER)
        if not halved.size:
            break
        middle = special.expit(
            0.5 * (special.logit(edges[halved]) + special.logit(edges[halved + 1]))
        )
        edges = np.insert(edges, halved + 1, middle)
    return edges


def _log_tail(counts: Counts, p: _Array, q: _Array, miss: float) -> _Array:
    """Return an upper bound on ln P(S >= s) for each pair of probabilities."""
    n, c = counts.runs, counts.slope
    reach = -special.ndtri(min(0.25, miss)) + 2.0
    spread = np.sqrt(n * q * (1.0 - q)) + 1.0
    first = np.maximum(0.0, n * q - reach * spread - 2.0)
    last = np.minimum(float(n), n * q + 5.0 * spread + 10.0)
    t = np.linspace(0.0, 1.0, _BLOCKS)
    inner = np.ceil(first[:, None] + (last - first)[:, None] * t)
    starts = np.concatenate([np.zeros((q.size, 1)), inner], axis=1)
    below = special.betainc(
        n - starts + 1.0, starts, (1.0 - q)[:, None], where=starts > 0.0, out=np.zeros(starts.shape)
    )
    mass = np.diff(below, axis=1, append=1.0)
    steps = c * (starts - counts.other)
    needed = np.ceil(counts.likelier + steps - 1e-9 - 1e-13 * np.abs(steps))
    needed = np.clip(needed, 0.0, n + 1.0)
    some = (needed > 0.0) & (needed <= n)
    above = special.betainc(
        needed, n - needed + 1.0, p[:, None], where=some, out=np.where(needed > n, 0.0, 1.0)
    )
    with np.errstate(divide="ignore"):
        return np.log(np.sum(np.maximum(mass, 0.0) * above, axis=1))


def best_slope(
    rates: tuple[float, float], level: float, runs: int, limit: Limit, miss: float
) -> float:
    """Return the c with the smallest p-value at counts that nine of ten repetitions reach."""
    # Rates and level are estimates. As a function of c, the p-value has a single minimum.
    guesses = np.array(rates[0]), np.array(rates[1])
    p, q = (float(rate) for rate in worst(*guesses, limit, POWER**2 / runs))
    inner = min(max(q, 1e-4 / runs), 1.0 - 1e-4 / runs)  # at 0 and 1 there may be no slope
    rise = float(limit.slope(limit.most(inner, level), inner))

    def at(place: int) -> tuple[float, int]:
        counts = Counts(round(runs * p), round(runs * q), runs, rise * _SLOPES[place])
        return log_p_value(counts, limit, level, miss)[0], place

    best = at(_FIRST_SLOPE)
    for way in (1, -1):
        place = best[1] + way
        while 0 <= place < len(_SLOPES) and (found := at(place)) < best:
            best, place = found, place + way
        if best[1] != _FIRST_SLOPE:
            break
    return rise * _SLOPES[best[1]]


def lower_bound(
    stages: Sequence[Counts], limit: Limit, miss: float, start: float = 0.0
) -> tuple[float, tuple[float, float]]:
    """Return a lower bound on the level, and the last stage's pair at which it is attained."""
    charge = _CERTAIN * len(stages) if len(stages) > 1 else 0.0
    target = -float(special.ndtri(miss * (1.0 - charge)))

    def score(level: float) -> tuple[float, float]:
        """Return the combined p-value as a normal quantile, and q."""
        total = q = 0.0
        for each in stages:
            log_p, q = log_p_value(each, limit, level, miss)
            total -= math.sqrt(each.share) * float(special.ndtri_exp(min(log_p, -_CERTAIN * miss)))
        return total, q

    tried = {level: score(level) for level in {0.0, start}}
    for _ in range(_SEARCH):
        low = max((level for level, (z, _) in tried.items() if z >= target), default=-1.0)
        high = min((level for level, (z, _) in tried.items() if z < target), default=math.inf)
        if low < 0.0:
            return 0.0, (float(limit.most(tried[0.0][1], 0.0)), tried[0.0][1])
        # If the start is rejected, the bound must exceed it.
        near = low != start and tried[low][0] - target < _NEAR
        if near or high - low < 1e-9 * max(1.0, low):
            break
        at = 0.5 * (low + high) if high < math.inf else 2.0 * low + 1.0
        tried[at] = score(at)
    q = tried[low][1]
    if low == start:  # which is rejected, so the level lies above it
        low = math.nextafter(start, math.inf)
    return low, (float(limit.most(q, low)), q)


# Runs of a mechanism on two inputs


Mechanism = Callable[..., Any]

_UNSEEN = 0.9  # share of new outputs above which a note says that outputs hardly repeat
_PILOT = 1 << 13  # runs of the first call, when the width of outcomes is not known yet
_LEARNING = 1.25  # standard errors due to learning, relative to those of the bound
_LEARN = 1 << 18  # most runs of each input for learning an event, for outputs of one number
_LEARN_WIDE = 1 << 16  # the same for vectors
_LEARN_ENTRIES = 1 << 25  # the same in entries of vectors
_TWO_STAGES = 4  # two stages are used from this multiple of the fewest runs,
_EARLY = 64  # if the first stage can learn from this many runs,
_RARE = 20  # and expects this many counts: p-values of rarer events have coarse steps
_CALL_ENTRIES = 1 << 21  # most entries of one call's output
_CALLS = 1 << 14  # runs held at once if each run is a call
_FALLBACK = 20_000  # runs of each input after a call on many runs raised
_FEWEST = 8  # fewest runs of each input
_CALLS_AGAIN, _AGAIN = 8, 512  # calls that repeat an event which refutes, and most runs of each
_NEVER = 1e-12  # chance at which such a call contradicts independent runs
_SIGNATURES = {
    "each": "mechanism(dataset, rng)",
    "single": "mechanism(dataset, rng, size), or mechanism(dataset, rng) with vectorized=False",
}


class _CallFailed(Exception):
    """A call on many runs raised, which cannot be attributed to one of them."""


class _Source:
    """Runs of the mechanism on one input."""

    def __init__(self, mechanism: Mechanism, data: Any, rng: Random, mode: str) -> None:
        self.mechanism, self.data, self.rng, self.mode = mechanism, data, rng, mode
        self.error: Exception | None = None
        self.runs = self.raised = self.unseen = 0

    def draw(self, size: int) -> Batch:
        """Return the outcomes of ``size`` fresh runs."""
        self.runs += size
        # NaN and infinity are outcomes, so no warning is needed.
        with np.errstate(all="ignore"):
            if self.mode != "batch":
                return [self._one() for _ in range(size)]
            try:
                returned = self.mechanism(self.data, self.rng, size)
            except Exception as error:
                raise _CallFailed(type(error).__name__) from error
        return as_batch(returned, size)

    def _one(self) -> Any:
        try:
            if self.mode == "each":
                return plain(self.mechanism(self.data, self.rng))
            returned = self.mechanism(self.data, self.rng, 1)
        except Exception as error:
            self.error, self.raised = error, self.raised + 1
            return Raised(type(error).__name__)
        return as_batch(returned, 1)[0]


class _Stage(NamedTuple):
    """An event and its counts on the dataset and on the neighbour."""

    choice: Choice
    counts: tuple[int, int]
    runs: int
    slope: float
    share: float

    def tested(self) -> Counts:
        """Return the counts in the order likelier input, other input."""
        side = self.choice.likelier
        return Counts(self.counts[side], self.counts[1 - side], *self[2:])


class CountedEvent(NamedTuple):
    """An event with its counts on both inputs, and the lower bound on a limit's level."""

    level: float
    pair: tuple[float, float]  # probabilities at which the bound is attained
    event: OutcomeEvent
    likelier: str  # "dataset" or "neighbour"
    counts: tuple[int, int]  # on the dataset and on the neighbour
    runs: int  # of each input, counted
    samples: int  # of each input, in all
    notes: tuple[str, ...]


def learn_and_count(
    mechanism: Mechanism,
    inputs: tuple[Any, Any],
    limit: Limit,
    claim: float,
    *,
    samples: int,
    confidence: float,
    rng: Any,
    vectorized: bool,
) -> CountedEvent:
    """Learn an event, count it in other runs and bound the level from below."""
    miss = 1.0 - confidence
    needed = samples_for(limit, claim, miss)
    if samples < needed:
        raise ValueError(
            f"samples={samples:,} cannot refute {limit.describe(claim)} at confidence "
            f"{confidence!r}, whatever they show: at least {needed:,} are needed"
        )
    before = tuple(map(fingerprint, inputs))
    randoms = spawn(rng, 2)
    notes: tuple[str, ...] = ()
    sources: list[_Source] = []

    def measure(mode: str, samples: int) -> list[_Stage]:
        sources[:] = [_Source(mechanism, data, r, mode) for data, r in zip(inputs, randoms)]
        return _measure(sources, samples, limit, claim, miss)

    failed = ""
    try:
        stages = measure("batch" if vectorized else "each", samples)
    except _CallFailed as failure:
        failed = str(failure)
    if failed:  # outside of except, so that a traceback shows only what is raised now
        samples = min(samples, max(_FALLBACK, needed))
        notes = (
            f"A call on many runs raised {failed}, so {samples:,} runs of each input were made "
            "one by one, and an exception is an outcome",
        )
        stages = measure("single", samples)
    if tuple(map(fingerprint, inputs)) != before:
        raise ValueError(CHANGED)
    choice, counts, runs, *_ = stages[-1]
    if sum(source.unseen for source in sources) > _UNSEEN * 2 * runs:
        notes += (
            "Nearly every output occurred once, so that events say little: return numbers "
            "or collections of them",
        )
    notes += tuple(
        f"Before, the event '{each.choice.event}' happened in {each.counts[0]:,} and "
        f"{each.counts[1]:,} of {each.runs:,} other runs, and both tests are combined"
        for each in stages[:-1]
    )
    level, pair = lower_bound([each.tested() for each in stages], limit, miss, start=claim)
    if sorted(counts) == [0, runs]:
        notes += (
            "Every run tells the inputs apart: nothing is noisy, or the mechanism keeps the noise "
            "of its first run",
        )
    if level > claim:
        for source, count in zip(sources, counts):
            check_repeated(source, choice.event, count, runs)
    name = ("dataset", "neighbour")[choice.likelier]
    return CountedEvent(level, pair, choice.event, name, counts, runs, samples, notes)


def _learned(samples: int, miss: float) -> int:
    """Return the number of runs for learning that minimizes the sum of both errors.

    a/sqrt(l) + b/sqrt(n - l) is smallest where l/(n - l) = (a/b)**(2/3).
    """
    errors = max(-float(special.ndtri(miss)), 0.0) + POWER
    ratio = (_LEARNING / errors) ** (2.0 / 3.0)
    return max(1, min(int(samples * ratio / (1.0 + ratio)), _LEARN))


@lru_cache(maxsize=256)
def samples_for(limit: Limit, claim: float, miss: float) -> int:
    """Return how many runs of each input the clearest outcome needs to refute the claim.

    The p-value of an event that always happens on one input and never on the other is at least
    its probability under the best allowed pair, sup (p (1 - q))**runs.
    """
    q = special.expit(np.linspace(-40.0, 40.0, 8001))
    best = float(np.max(limit.most(q, claim) * (1.0 - q)))
    if best >= 1.0 - 1e-15:
        raise ValueError(f"claim must be smaller: no test can refute {limit.describe(claim)}")
    runs = max(1, math.ceil(math.log(miss) / math.log(best)))
    counts = Counts(runs, 0, runs, 1.0)
    while runs < _LEARN and log_p_value(counts, limit, claim, miss)[0] > math.log(miss):
        runs += 1 + runs // 1_000
        counts = Counts(runs, 0, runs, 1.0)
    samples = max(_FEWEST, runs + _learned(runs, miss) - 1)
    while samples - _learned(samples, miss) < runs:
        samples += max(1, (runs - samples + _learned(samples, miss)) // 2)
    return samples


def _measure(
    sources: list[_Source], samples: int, limit: Limit, claim: float, miss: float
) -> list[_Stage]:
    """Learn an event and count it in other runs, in one or two stages."""
    planned = _learned(samples, miss)
    early = planned - planned // 3
    two = early >= _EARLY and samples >= _TWO_STAGES * samples_for(limit, claim, miss)
    pilot = min(early if two else planned, _PILOT)
    batches = [source.draw(pilot) for source in sources]
    reader = Reader(batches, entries=True)
    width = max(1, reader.width)
    most = min(_LEARN if width == 1 else _LEARN_WIDE, _LEARN_ENTRIES // width)
    two = two and 2 * early <= most  # with very many runs, learning uses a small part anyway
    learn = early if two else min(planned, max(pilot, most))
    chunk = max(1, _CALL_ENTRIES // width)
    if sources[0].mode != "batch":
        chunk = min(chunk, _CALLS)

    def draw(source: _Source, runs: int) -> Iterator[Outcomes]:
        while runs > 0:
            size = min(runs, chunk)
            yield reader.read(source.draw(size))
            runs -= size

    known = [
        Outcomes.join([reader.read(batch), *draw(source, learn - pilot)])
        for source, batch in zip(sources, batches)
    ]
    if all(source.raised == source.runs for source in sources):
        error = sources[0].error
        raise ValueError(
            f"mechanism raised in each of {learn:,} runs on both inputs "
            f"({type(error).__name__}: {error}), so nothing was tested; it is called as "
            f"{_SIGNATURES[sources[0].mode]}"
        ) from error
    reader.check_comparable()

    def learned(runs: int) -> tuple[Choice, Goal]:
        goal = Goal(limit, claim, runs, -float(special.ndtri(miss)))
        return learn_event(reader, known[0], known[1], goal), goal

    def slope(choice: Choice, runs: int) -> float:
        return best_slope(choice.rates, max(claim, choice.level), runs, limit, miss)

    # Every choice of a test depends only on outcomes before those that it counts.
    stages: list[_Stage] = []
    left = samples - learn
    if two:
        choice, goal = learned(left)
        share = _first_share(choice, learn, left - learn, goal)
        runs = learn if share else planned - learn
        new = [Outcomes.join(list(draw(source, runs))) for source in sources]
        for source, earlier, later in zip(sources, known, new):
            if source.mode == "batch":
                check_independent(earlier[:pilot], later)
        if share:
            first, second = map(choice.event.count, new)
            stages.append(_Stage(choice, (first, second), runs, slope(choice, runs), share))
        known = [Outcomes.join(pair) for pair in zip(known, new)]
        left -= runs
    choice, _ = learned(left)
    counts = []
    for source, earlier in zip(sources, known):
        count, atoms = 0, reader.atoms
        for place, outcomes in enumerate(draw(source, left)):
            if place == 0 and source.mode == "batch":
                check_independent(earlier[:pilot], outcomes)
            count += choice.event.count(outcomes)
        counts.append(count)
        source.unseen = reader.atoms - atoms
    rest = 1.0 - sum(stage.share for stage in stages)
    return [*stages, _Stage(choice, (counts[0], counts[1]), left, slope(choice, left), rest)]


def _first_share(choice: Choice, runs: int, rest: int, goal: Goal) -> float:
    """Return the share of a first stage of ``runs`` runs, 0 for an unpromising event."""
    # Shares are proportional to the squared expected quantiles. The second is assumed to be at
    # least the one with which nine of ten tests refute the claim.
    if choice.rates[0] * runs < _RARE:
        return 0.0
    p, q = ((rate * runs + 1.0) / (runs + 2.0) for rate in choice.rates)
    allowed = float(goal.limit.most(q, goal.claim))
    variance = p * (1.0 - p) + float(goal.limit.slope(allowed, q)) ** 2 * q * (1.0 - q)
    distance = max(0.0, (p - allowed) / math.sqrt(variance))
    needed = (max(goal.quantile, 0.0) + POWER) / math.sqrt(rest)
    first = runs * distance**2
    return first / (first + rest * max(distance, needed) ** 2)


def check_repeated(source: _Source, event: OutcomeEvent, count: int, runs: int) -> None:
    """Raise if an event's rate in more calls shows that runs share noise or change a state."""
    from scipy.stats import hypergeom  # slow to import, and seldom needed

    size, again = max(1, min(_AGAIN, runs // (8 * _CALLS_AGAIN))), 0
    for more in range(size, _CALLS_AGAIN * size + 1, size):
        try:
            again += int(np.count_nonzero(event(source.draw(size))))
        except _CallFailed:  # a rare one, for none failed before
            return
        # Given the sum of both counts, that of independent runs is hypergeometric.
        law = hypergeom(runs + more, count + again, more)
        if min(law.cdf(again), law.sf(again - 1)) < _NEVER:
            raise ValueError(
                f"mechanism must return independent runs: the event '{event}' happened in "
                f"{count:,} of {runs:,} runs and then in {again:,} of {more:,} with the same data; "
                "draw noise of shape (size, ...), not one number for all runs, and keep no state"
            )


def check_independent(earlier: Outcomes, later: Outcomes) -> None:
    """Raise if a second call shows that runs are not independent."""
    # It practically never happens by chance that 16 or more runs all agree within each of two
    # calls but not between them, or that two calls agree run by run although most runs differ.
    size = min(len(earlier), len(later))
    a, b = earlier.values[:size], later.values[:size]
    if size < 16 or not a.shape[1]:
        return
    same = [np.array_equal(part, part[[0] * size], equal_nan=True) for part in (a, b)]
    if all(same) and not np.array_equal(a[0], b[0], equal_nan=True):
        raise ValueError(
            "mechanism must return independent runs: all runs of a call are equal, "
            "but two calls differ; draw noise of shape (size, ...)"
        )
    if np.array_equal(a, b, equal_nan=True) and np.unique(a[:, 0]).size > size // 2:
        raise ValueError(
            "mechanism must return independent runs: two calls gave the same ones; "
            "draw from the given rng, and do not seed another one"
        )
