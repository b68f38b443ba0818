"""Lower bounds on epsilon or mu from the outputs of a mechanism alone.

:func:`verify_privacy` runs a mechanism on two neighbouring data sets (:mod:`.outcomes`), learns an
event from some of the outcomes (:mod:`.events`, :mod:`.learning`), counts it in the others and
tests both counts jointly against the claim, in one or two stages (:mod:`.counting`).
:func:`~dpanalysis.audit.verify_gaussian` assumes that the release is Gaussian and needs fewer
runs (:mod:`.gaussian`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from .._validation import check_fraction, check_int, check_number
from ..privacy.accounting.relations import Budget, check_relation
from ..privacy.accounting.zcdp import zcdp_to_epsilon
from ..privacy.ledger import html_table
from .counting import Mechanism, learn_and_count
from .entries import hashable, is_repr, plain
from .events import ApproximateLimit, GaussianLimit, Limit, OutcomeEvent
from .outcomes import Batch, as_batch, check_neighbours

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__tracebackhide__ = True  # pytest shows the line that calls this package

_FIRST = 16  # runs with the same generator that are compared first
_COMPARED = 20_000  # runs compared if these are equal
_COMPARED_ONE_BY_ONE = 500  # the same if every run is a call
_ENTRIES = 1 << 21  # most entries of their outputs


@dataclass(frozen=True)
class GaussianPrivacy:
    r"""The claim of mu-Gaussian differential privacy (Dong, Roth, Su, 2022).

    For every event S and neighbours, :math:`P(M(D) \in S) \le \Phi(\Phi^{-1}(P(M(D') \in S)) +
    \mu)`: no test distinguishes the inputs better than the best test of N(0, 1) against N(mu, 1).
    It covers all pairs (epsilon, delta) at once and holds with equality for Gaussian noise of
    standard deviation sensitivity/mu. Under composition the squares of mu add.

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

    def judged(self, bound: float, confidence: float, *notes: str) -> dict[str, Any]:
        """Return the fields of :class:`VerdictBase` for a lower bound on the parameter."""
        return {
            "refuted": bound > self.level,
            "bound": bound,
            "bounded": self.name,
            "claim": self.level,
            "delta": self.delta,
            "confidence": confidence,
            "notes": self.notes + notes,
        }


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class VerdictBase:
    """Fields and text that verdicts share."""

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
        its name, ``epsilon`` or ``mu``. It is too high with probability at most 1 - ``confidence``.
    bounded : {"epsilon", "mu"}
    claim, delta, confidence : float
    event : OutcomeEvent
        The event that distinguishes the inputs. ``str(event)`` describes it, and
        ``event(outputs)`` returns which outputs lie in it, so that it can be counted again.
    likelier : {"dataset", "neighbour"}
        The input on which the event is more probable.
    counts : (int, int)
        Runs in the event, on the dataset and on the neighbour.
    runs : int
        Runs of each input in which the event was counted; it was learned from others. If an
        earlier event was counted in some of those, a note says so.
    samples : int
        Total runs of each input.
    bounds : (float, float)
        Probabilities on the likelier input and on the other at which the bound is attained: of the
        pairs that the counts (combined with those of an earlier event, if any) do not reject, one
        that is closest to equal.
    untested : bool
        Whether the mechanism apparently never looked at what the inputs differ in: with the same
        generator, all of many runs are the same on both. Then nothing has been tested.
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
        """Observed frequencies of the event, on the dataset and on the neighbour."""
        return self.counts[0] / self.runs, self.counts[1] / self.runs

    @property
    def _other(self) -> str:
        return "neighbour" if self.likelier == "dataset" else "dataset"

    def plot(self, ax: Axes | None = None) -> Axes:
        """Plot the observed frequencies of the event and the pairs that the claim allows.

        A claim allows all pairs of probabilities on and below its curve. The curve of the bound
        passes through the pair ``bounds``, shown as a square; claims below that curve are refuted.

        Parameters
        ----------
        ax : Axes, optional
            Default: those of a new figure.

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
        least = 0.5 * max(min(q, self.bounds[1], 0.1), 1.0 / self.runs)
        x = np.geomspace(least, 1.0, 300)
        with drawing(ax, height=3.0) as ax:
            ax.plot(x, limit.most(x, self.claim), label=f"claim: {limit.describe(self.claim)}")
            found = f"found: at least {self.bounded} = {self.bound:.4g}"
            ax.plot(x, limit.most(x, self.bound), "--", label=found)
            ax.plot(max(q, least), p, "o", label="seen")
            ax.plot(max(self.bounds[1], least), self.bounds[0], "s", label="not rejected")
            ax.set(xscale="log", xlabel=f"probability on the {self._other}")
            ax.set(yscale="log", ylabel=f"probability on the {self.likelier}")
            ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0))  # not on the curves
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
            f"{self.runs:,} held-out runs of dataset and neighbour. The bound is that of the "
            f"closest probabilities that the counts do not reject: {self.bounds[0]:.4g} on the "
            f"{self.likelier} and {self.bounds[1]:.4g} on the {self._other}.",
            "inputs or events",
        )


def describe_confidence(confidence: float) -> str:
    """Format a confidence so that it is distinct from 1."""
    missing = 1.0 - confidence
    return f"{confidence:g}" if missing > 0.9e-3 else f"1 - {missing:.3g}"


Claimed: TypeAlias = "float | Budget | GaussianPrivacy | tuple[float, float]"


def parse_claim(claim: Claimed, delta: float) -> ParsedClaim:
    """Check a claim and return it as a claim on one parameter."""
    if isinstance(claim, (tuple, list)):
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
    name: str = "mechanism",
) -> None:
    """Raise unless a mechanism can be run on two neighbouring inputs."""
    if not callable(mechanism):
        raise TypeError(f"{name} must be callable, got {mechanism!r}")
    if not isinstance(vectorized, (bool, np.bool_)):
        raise TypeError(f"vectorized must be True or False, got {vectorized!r}")
    for which, data in (("dataset", dataset), ("neighbour", neighbour)):
        if isinstance(data, Iterator):
            raise TypeError(f"{which} must be the same in every run, which {data!r} is not: a list")
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
    r"""Test a mechanism's claim of privacy from its outputs alone.

    Under :math:`(\epsilon, \delta)`-differential privacy every event :math:`S` satisfies
    :math:`P(M(D) \in S) \le e^\epsilon P(M(D') \in S) + \delta`, so any event bounds epsilon
    from below by :math:`\ln((p - \delta)/q)`. The mechanism runs ``samples`` times on each of
    the two inputs. From some of the runs (a quarter, or more at a low confidence; at most
    262,144, or 65,536 for vectors) an event is learned: a likelihood-ratio set of the output, of
    its coordinates, pairs, projections, norms or prefixes, or of a classifier trained on it (with
    scikit-learn also gradient-boosted trees). It is the event with the best expected bound or, if
    none promises a bound above the claim, the one most likely to refute it. This one event is
    counted in the other runs, and both counts are tested jointly and exactly (:mod:`.counting`).
    Usually there are two stages: an event is learned from fewer runs and counted in as many, the
    final one is learned from all of these, and both tests are combined. Whatever was learned, a
    correct mechanism is refuted with probability at most 1 - ``confidence``. If the release can be
    assumed Gaussian, :func:`verify_gaussian` needs fewer runs.

    A :class:`GaussianPrivacy` claims a whole trade-off curve: a pair (p, q) refutes it if
    :math:`p > \Phi(\Phi^{-1}(q) + \mu)`. Nothing is assumed about the outputs. Common events
    refute this claim, so refuting Gaussian noise that is too small takes far fewer runs than under
    a claim at a small delta, which only rare events contradict.

    Outcomes may be numbers, vectors, integers, truth values, texts or other objects that can be
    compared. NaN, each infinity, an output of another shape and an exception (by its type) are
    outcomes as well. If outputs are many different dictionaries, sets, or sequences of words or of
    different lengths, they are read by their entries: the number at a key, the word at a position,
    how often an entry occurs, how many there are. Outputs are compared as numbers in double
    precision; attacks on the last bits of floating-point noise (Mironov, 2012) are not attempted.

    Parameters
    ----------
    mechanism : callable
        ``mechanism(dataset, rng, size)`` returns ``size`` independent runs: shape (size,) or
        (size, k), or a sequence of ``size`` objects. With ``vectorized=False``,
        ``mechanism(dataset, rng)`` is one run and may return anything.
    dataset, neighbour : object
        The two inputs, passed as they are. 2-d arrays, sparse matrices, tuples ``(X, y)``, problems
        and data sets are compared row by row and must be neighbours; the rest is up to the caller.
    claim : float, Budget, (float, float) or GaussianPrivacy
        Epsilon in [0, inf), (epsilon, delta), a budget (zCDP is converted at ``delta``), or mu.
    delta : float, default=0
        In [0, 1); 0 where mu is claimed.
    samples : int, default=1_000_000
        Runs of each input; without ``vectorized`` as many calls. If they show no difference at
        all, up to 20,000 more on both inputs with one seed show whether the mechanism looks at what
        differs: ``Verdict.untested``. If they refute the claim, up to 4,096 more show whether runs
        are independent.
    confidence : float, default=1 - 1e-9
        In (0, 1): one minus the allowed rate of false alarms.
    rng : None, int, SeedSequence, Generator, SystemRandom or "os"
        Source of randomness; each input gets an independent child.
    relation : {"replace_one", "add_or_remove_one"}, optional
        The relation under which the inputs are neighbours. If given, the entries of arrays with
        one axis count as records, too. Default: that of the budget, else either.
    vectorized : bool, default=True
        How the mechanism is called. If a call on many runs raises, the exception cannot be
        attributed to one of them; then 20,000 runs of each input are made by calls with
        ``size=1``, and the verdict says so.

    Raises
    ------
    ValueError
        If ``samples`` is too small to refute the claim whatever the outputs, the inputs are not
        neighbours, or the mechanism returns the wrong number of rows, raises in every run,
        changes its input, or shows that its runs are not independent.
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
        **asked.judged(found.level, confidence, *found.notes),
        event=found.event,
        likelier=found.likelier,
        counts=found.counts,
        runs=found.runs,
        samples=found.samples,
        bounds=found.pair,
        untested=found.level == 0.0
        and never_looks(mechanism, dataset, neighbour, bool(vectorized)),
    )


def never_looks(mechanism: Mechanism, dataset: Any, neighbour: Any, vectorized: bool) -> bool:
    """Return whether many runs with the same generator are equal on both inputs."""
    # A mechanism with another random source differs, and is not suspected. One that rounds, or
    # draws a subsample, may give equal outputs by chance: hence the many runs.
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
    """Return runs with a generator seeded with 0, None if one raises."""
    random = np.random.default_rng(0)
    try:
        with np.errstate(all="ignore"):
            if vectorized:
                return as_batch(mechanism(data, random, runs), runs)
            return [plain(mechanism(data, random)) for _ in range(runs)]
    except Exception:  # an outcome that cannot be compared here
        return None


def _equal(first: Batch, second: Batch) -> bool:
    """Return whether all outputs are equal, NaN included."""
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        return np.array_equal(first, second, equal_nan=True)
    if isinstance(first, np.ndarray) or isinstance(second, np.ndarray):
        return False
    one, other = hashable(first), hashable(second)
    return one == other and not is_repr(one)
