"""Lower bounds on epsilon or mu from the outputs of a mechanism alone.

:func:`verify_privacy` runs a mechanism on two neighbours (:mod:`.outcomes`), learns an event
from some of the outcomes (:mod:`.events`, :mod:`.learning`), counts it in others and tests
both counts together against the claim, in one stage or in two (:mod:`.counting`).
:func:`~dpanalysis.audit.verify_gaussian` assumes that the release is Gaussian and needs fewer
runs (:mod:`.gaussian`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from .._validation import check_fraction, check_int, check_number
from ..privacy.accounting.relations import Budget, check_relation
from ..privacy.accounting.zcdp import zcdp_to_epsilon
from ..privacy.ledger import html_table
from .counting import Mechanism, learn_and_count
from .entries import hashable, is_shown, plain
from .events import ApproximateLimit, GaussianLimit, Limit, OutcomeEvent
from .outcomes import Batch, as_batch, check_neighbours

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__tracebackhide__ = True  # pytest shows the line that calls this package

_FIRST = 16  # runs with the same generator
_COMPARED = 20_000  # where these are equal
_COMPARED_ONE_BY_ONE = 500
_ENTRIES = 1 << 21  # of their outputs


@dataclass(frozen=True)
class GaussianPrivacy:
    r"""The claim of mu-Gaussian differential privacy (Dong, Roth, Su, 2022).

    For every event S and neighbours, :math:`P(M(D) \in S) \le \Phi(\Phi^{-1}(P(M(D') \in S)) +
    \mu)`: no test tells the inputs apart better than one of N(0, 1) and N(mu, 1). It is a
    statement about all pairs (epsilon, delta) at once, and it holds with equality for Gaussian
    noise of standard deviation sensitivity/mu. Several releases compose: the squares of mu add.

    Parameters
    ----------
    mu : float
        In [0, inf).

    Examples
    --------
    >>> from dpanalysis.audit import verify_privacy
    >>> noise = lambda count, rng, size: count + rng.normal(0.0, 1.0, size)
    >>> verify_privacy(noise, 0, 1, GaussianPrivacy(0.5), samples=20_000, rng=0).refuted
    True
    """

    mu: float

    def __post_init__(self) -> None:
        check_number("mu", self.mu, low=0.0)


@dataclass(frozen=True)
class ParsedClaim:
    """A claim on one parameter, "epsilon" at ``delta`` or "mu"."""

    name: str
    level: float
    delta: float
    relation: str | None = None  # of the budget, if one is claimed
    notes: tuple[str, ...] = ()

    @property
    def limit(self) -> Limit:
        """The pairs of probabilities that the claim allows."""
        return GaussianLimit() if self.name == "mu" else ApproximateLimit(self.delta)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class VerdictBase:
    """The fields and sentences that verdicts share."""

    refuted: bool
    bound: float
    bounded: str
    claim: float
    delta: float
    confidence: float
    notes: tuple[str, ...] = ()

    @property
    def epsilon(self) -> float:
        """Lower bound on epsilon at ``delta``, at least 0; AttributeError if mu is claimed."""
        return self._named("epsilon")

    @property
    def mu(self) -> float:
        """Lower bound on mu, at least 0; AttributeError if epsilon is claimed."""
        return self._named("mu")

    def _named(self, name: str) -> float:
        if self.bounded != name:
            raise AttributeError(f"the claim was of {self.bounded}, so there is no bound on {name}")
        return self.bound

    def __bool__(self) -> bool:
        raise TypeError(
            f"a {type(self).__name__} is neither true nor false: ask for verdict.refuted"
        )

    def _sentences(self, evidence: str, others: str) -> str:
        delta = f"delta = {self.delta:g}, " if self.bounded == "epsilon" else ""
        verdict = "refuted: " if self.refuted else "not refuted: "
        found = (
            f"{self.bounded} >= {self.bound:.4g} where {self.claim:.4g} is claimed "
            f"({delta}confidence {describe_confidence(self.confidence)}). {evidence}"
        )
        caveat = "" if self.refuted else f" Other {others} may still refute it."
        return verdict + found + caveat + "".join(f" {note}." for note in self.notes)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self}>"

    @property
    def _outcome(self) -> str:
        return "refuted" if self.refuted else "not refuted"

    def _repr_html_(self) -> str:
        at = f" at delta = {self.delta:g}" if self.bounded == "epsilon" else ""
        return html_table(
            [
                ("verdict", self._outcome),
                ("claim", f"{self.bounded} = {self.claim:.4g}{at}"),
                ("found", f"{self.bounded} >= {self.bound:.4g}"),
                ("confidence", describe_confidence(self.confidence)),
                ("in words", str(self)),
            ]
        )


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Verdict(VerdictBase):
    """The result of a test of a claim.

    Attributes
    ----------
    refuted : bool
        Whether the lower bound exceeds the claim. False is no certificate: another event, or
        another pair of inputs, may still refute the claim.
    bound : float
        Lower bound on the mechanism's epsilon at ``delta``, or on its mu, at least 0; also under
        its name, ``epsilon`` or ``mu``. It is too high with probability at most
        1 - ``confidence``.
    bounded : {"epsilon", "mu"}
    claim, delta, confidence : float
    event : OutcomeEvent
        The outcomes that tell the inputs apart. ``str(event)`` describes them, and
        ``event(outputs)`` says which outputs lie in it, so that it can be counted again.
    likelier : {"dataset", "neighbour"}
        The input on which the event is more probable.
    counts : (int, int)
        Runs in the event, on the dataset and on the neighbour.
    runs : int
        Runs of each input in which the event was counted; it was learned from others. If another
        one had been counted in some of those, a note says so.
    samples : int
        Runs of each input in all.
    bounds : (float, float)
        Of all pairs of probabilities, on the likelier input and on the other, that the counts do
        not reject (combined with those of an event before it), one that is closest to equal: there
        the bound is attained.
    untested : bool
        Whether the mechanism never looked at what the inputs differ in, as far as can be seen: with
        the same generator, all of many runs are the same on both. Nothing has been tested then.
    notes : tuple of str
        Other facts about the test, for instance that fewer samples were taken.
    """

    event: OutcomeEvent
    likelier: str
    counts: tuple[int, int]
    runs: int
    samples: int
    bounds: tuple[float, float]
    untested: bool = False

    @property
    def _outcome(self) -> str:
        return "untested" if self.untested else super()._outcome

    @property
    def probabilities(self) -> tuple[float, float]:
        """How often the event was seen, on the dataset and on the neighbour."""
        return self.counts[0] / self.runs, self.counts[1] / self.runs

    @property
    def _other(self) -> str:
        return "neighbour" if self.likelier == "dataset" else "dataset"

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw how often the event was seen, beside what the claim allows.

        A claim allows all pairs of probabilities on and below its curve, and the curve of the bound
        passes through the pair of ``bounds``, which is the square. Refuted is a claim below it.

        Parameters
        ----------
        ax : Axes, optional
            One of a new figure by default.

        Examples
        --------
        >>> mechanism = lambda count, rng, size: count + rng.laplace(0.0, 0.5, size)
        >>> ax = verify_privacy(mechanism, 0, 1, claim=1.0, samples=20_000, rng=0).plot()
        >>> ax.get_legend_handles_labels()[1][0]
        'claim: epsilon = 1 at delta = 0'
        """
        from ..plotting import drawing

        limit = GaussianLimit() if self.bounded == "mu" else ApproximateLimit(self.delta)
        p, q = self.probabilities if self.likelier == "dataset" else self.probabilities[::-1]
        least = 0.5 * min(max(q, 1.0 / self.runs), max(self.bounds[1], 1.0 / self.runs))
        x = np.geomspace(least, 1.0, 300)
        with drawing(ax) as ax:
            ax.plot(x, limit.most(x, self.claim), label=f"claim: {limit.describe(self.claim)}")
            found = f"found: at least {self.bounded} = {self.bound:.4g}"
            ax.plot(x, limit.most(x, self.bound), "--", label=found)
            ax.plot(max(q, least), p, "o", label="seen")
            ax.plot(max(self.bounds[1], least), self.bounds[0], "s", label="not rejected")
            ax.set(xscale="log", xlabel=f"probability on the {self._other}")
            ax.set(yscale="log", ylabel=f"probability on the {self.likelier}")
            ax.legend()
        return ax

    def __str__(self) -> str:
        if self.untested:
            return (
                "untested: the mechanism never looked at the changed record. With the same "
                "generator all outputs are the same on dataset and neighbour, so that "
                f"{self.bounded} >= 0 says nothing of the {self.claim:.4g} that is claimed: give "
                "data sets that differ where the mechanism looks."
                + "".join(f" {note}." for note in self.notes)
            )
        return self._sentences(
            f"The event '{self.event}' happened in {self.counts[0]:,} and {self.counts[1]:,} of "
            f"{self.runs:,} held-out runs of dataset and neighbour. Probabilities closer than "
            f"{self.bounds[0]:.4g} on the {self.likelier} and {self.bounds[1]:.4g} on the "
            f"{self._other} "
            "would be rejected.",
            "inputs or events",
        )


def describe_confidence(confidence: float) -> str:
    """Return a confidence in digits that differ from 1."""
    missing = 1.0 - confidence
    return f"{confidence:g}" if missing > 0.9e-3 else f"1 - {missing:.3g}"


Claimed: TypeAlias = "float | Budget | GaussianPrivacy | tuple[float, float]"


def parse_claim(claim: Claimed, delta: float) -> ParsedClaim:
    """Return the claim on one parameter, after checking it."""
    if isinstance(claim, tuple):
        if len(claim) != 2:
            raise ValueError(f"claim must be (epsilon, delta), got {claim!r}")
        claim = Budget(*claim)
    delta = check_number("delta", delta, low=0.0, high=1.0, high_open=True)
    if isinstance(claim, GaussianPrivacy):
        if delta != 0.0:
            raise ValueError(
                f"delta must be 0 for {claim!r}, which holds at all deltas: got {delta!r}"
            )
        return ParsedClaim("mu", float(claim.mu), 0.0)
    if not isinstance(claim, Budget):
        return ParsedClaim("epsilon", check_number("claim", claim, low=0.0), delta)
    if claim.rho is not None:
        if delta == 0.0:
            raise ValueError(f"delta must lie in (0, 1) to test {claim!r}, got 0")
        epsilon = zcdp_to_epsilon(claim.rho, delta)
        note = f"The claim is what rho = {claim.rho:g} implies at this delta"
        return ParsedClaim("epsilon", epsilon, delta, claim.relation, (note,))
    if delta not in (0.0, claim.delta):
        raise ValueError(f"delta must be that of the claim, {claim.delta!r}, got {delta!r}")
    assert claim.epsilon is not None
    return ParsedClaim("epsilon", claim.epsilon, claim.delta, claim.relation)


def check_inputs(
    mechanism: Any,
    dataset: Any,
    neighbour: Any,
    relation: str | None,
    claim: ParsedClaim,
    vectorized: Any,
) -> None:
    """Raise unless a mechanism can be run on two neighbouring inputs."""
    if not callable(mechanism):
        raise TypeError(f"mechanism must be callable, got {mechanism!r}")
    if not isinstance(vectorized, (bool, np.bool_)):
        raise TypeError(f"vectorized must be True or False, got {vectorized!r}")
    if relation is not None:
        check_relation(relation)
    check_neighbours(dataset, neighbour, relation, claim.relation)


def verify_privacy(
    mechanism: Mechanism,
    dataset: Any,
    neighbour: Any,
    claim: Claimed,
    *,
    delta: float = 0.0,
    samples: int = 1_000_000,
    confidence: float = 1 - 1e-9,
    rng: Any = None,
    relation: str | None = None,
    vectorized: bool = True,
) -> Verdict:
    r"""Test whether a mechanism can be as private as claimed, from its outputs alone.

    Under :math:`(\epsilon, \delta)`-differential privacy every event :math:`S` has
    :math:`P(M(D) \in S) \le e^\epsilon P(M(D') \in S) + \delta`, so one event bounds epsilon
    from below by :math:`\ln((p - \delta)/q)`. The mechanism runs ``samples`` times on each of
    the two inputs. From some of the runs (a quarter, or more at a low confidence; at most
    262,144, or 65,536 where outputs are vectors) an event is learned: likelihood-ratio sets of
    the output, of its coordinates, projections and norms, of the pairs of coordinates that differ
    most, of prefixes where values repeat, and of classifiers trained on it (with scikit-learn also
    gradient-boosted trees). The event is the one whose bound will be best
    after its uncertainty is charged or, where no event promises a bound above the claim, the
    one that is most likely to refute it. In the other runs this one event is counted, in the
    direction chosen before, and both counts are tested together (:mod:`.counting`): exactly,
    not by an approximation. Unless ``samples`` are very many or very few there are two stages: an
    event that seems to refute the claim is learned from fewer runs and counted in as many, the
    final one is learned from all of these, and both tests are combined. So whatever was learned,
    a correct mechanism is refuted with probability at most 1 - ``confidence``. Where the release
    is Gaussian, :func:`verify_gaussian` assumes so and needs fewer runs.

    A :class:`GaussianPrivacy` claims a whole trade-off curve: a pair (p, q) refutes it wherever
    :math:`p > \Phi(\Phi^{-1}(q) + \mu)`. Nothing is assumed about the outputs. Common events
    refute this claim, so Gaussian noise that is too small needs far fewer runs than under a claim
    at a small delta, which only rare events contradict.

    Outcomes may be numbers, vectors, integers, truth values, texts or other objects that can be
    compared. NaN, each infinity, an output of another shape and an exception (by its type) are
    outcomes as well. Where many different dictionaries, sets, or sequences of words or of different
    lengths come out, they are read by their entries: the number at a key, the word at a place, how
    often an entry occurs, how many there are. Outputs are compared as numbers in double precision;
    attacks on the last bits of floating-point noise (Mironov, 2012) are not searched for.

    Parameters
    ----------
    mechanism : callable
        ``mechanism(dataset, rng, size)`` returns ``size`` independent runs: shape (size,) or
        (size, k), or a sequence of ``size`` objects. With ``vectorized=False``,
        ``mechanism(dataset, rng)`` is one run and may return anything.
    dataset, neighbour : object
        The two inputs, passed as they are. Arrays of two axes, sparse matrices, tuples
        ``(X, y)``, problems and data sets are compared row by row and must be neighbours;
        anything else is up to the caller.
    claim : float, Budget, (float, float) or GaussianPrivacy
        Epsilon in [0, inf), (epsilon, delta), or a budget; a zCDP budget is converted at
        ``delta``. Or mu.
    delta : float, default=0
        In [0, 1); 0 where mu is claimed.
    samples : int, default=1_000_000
        Runs of each input. Where they show no difference at all, up to 20,000 more on both inputs
        with one seed tell whether the mechanism looks at what differs: ``Verdict.untested``.
    confidence : float, default=1 - 1e-9
        In (0, 1): one minus the rate of false alarms that is allowed.
    rng : None, int, SeedSequence, Generator, SystemRandom or "os"
        The two inputs get independent children of it.
    relation : {"replace_one", "add_or_remove_one"}, optional
        The relation under which the inputs are neighbours. If it is given, the entries of arrays
        with one axis count as records, too. By default that of the budget, or else either.
    vectorized : bool, default=True
        How the mechanism is called. If a call on many runs raises, the exception cannot be
        attributed to one of them; 20,000 runs of each input are then made by calls with
        ``size=1``, and the verdict says so.

    Raises
    ------
    ValueError
        If ``samples`` are too few to refute the claim whatever they show, the inputs are not
        neighbours, or the mechanism returns the wrong number of rows, raises in every run, repeats
        its samples or changes its input.
    TypeError
        If outputs cannot be compared.

    References
    ----------
    Ding, Wang, Wang, Zhang, Kifer (2018); Bichsel, Steffen, Bogunovic, Vechev (2021); Berger,
    Boos (1994); Dong, Roth, Su (2022).

    Examples
    --------
    Laplace noise whose standard deviation, not its scale, is 1/epsilon:

    >>> def mechanism(count, rng, size):
    ...     return count + rng.laplace(0.0, 1.0 / np.sqrt(2.0), size)
    >>> verdict = verify_privacy(mechanism, 0, 1, claim=1.0, samples=100_000, rng=0)
    >>> verdict.refuted, round(verdict.epsilon, 1)
    (True, 1.3)
    >>> outputs = mechanism(0, np.random.default_rng(1), 100_000)
    >>> round(float(verdict.event(outputs).mean()), 1), verdict.likelier
    (0.5, 'dataset')
    >>> def correct(count, rng, size):
    ...     return count + rng.laplace(0.0, 1.0, size)
    >>> print(verify_privacy(correct, 0, 1, claim=1.0, samples=100_000, rng=0))
    not refuted: epsilon >= 0.9... where 1 is claimed (delta = 0, confidence 1 - 1e-09). ...
    """
    asked = parse_claim(claim, delta)
    samples = check_int("samples", samples, low=1)
    confidence = check_fraction("confidence", confidence)
    check_inputs(mechanism, dataset, neighbour, relation, asked, vectorized)
    found = learn_and_count(
        mechanism,
        (dataset, neighbour),
        asked.limit,
        asked.level,
        samples=samples,
        confidence=confidence,
        rng=rng,
        vectorized=bool(vectorized),
    )
    return Verdict(
        refuted=found.level > asked.level,
        bound=found.level,
        bounded=asked.name,
        claim=asked.level,
        delta=asked.delta,
        confidence=confidence,
        event=found.event,
        likelier=found.likelier,
        counts=found.counts,
        runs=found.runs,
        samples=found.samples,
        bounds=found.pair,
        untested=found.level == 0.0
        and never_looks(mechanism, dataset, neighbour, bool(vectorized)),
        notes=asked.notes + found.notes,
    )


def never_looks(mechanism: Mechanism, dataset: Any, neighbour: Any, vectorized: bool) -> bool:
    """Return whether so many runs with the same generator are the same on both inputs."""
    # A mechanism that takes random numbers from elsewhere differs, and is not suspected; one that
    # rounds, or draws a subsample, may give equal outputs by chance: hence so many runs.
    width = 1
    for most in (_FIRST, _COMPARED if vectorized else _COMPARED_ONE_BY_ONE):
        runs = max(_FIRST, min(most, _ENTRIES // width))
        first, second = (
            _with_seed(mechanism, data, runs, vectorized) for data in (dataset, neighbour)
        )
        if first is None or second is None or not _equal(first, second):
            return False
        if isinstance(first, np.ndarray):
            width = max(1, first.size // runs)
    return True


def _with_seed(mechanism: Mechanism, data: Any, runs: int, vectorized: bool) -> Batch | None:
    """Return runs with the generator of seed 0, None where they raise."""
    random = np.random.default_rng(0)
    try:
        with np.errstate(all="ignore"):
            if vectorized:
                return as_batch(mechanism(data, random, runs), runs)
            return [plain(mechanism(data, random)) for _ in range(runs)]
    except Exception:  # an outcome, of which nothing can be said from here
        return None


def _equal(first: Batch, second: Batch) -> bool:
    """Return whether all outputs are the same, NaN included."""
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        return np.array_equal(first, second, equal_nan=True)
    if isinstance(first, np.ndarray) or isinstance(second, np.ndarray):
        return False
    one, other = hashable(first), hashable(second)
    return one == other and not is_shown(one)
