"""What is claimed, and what a test of the claim found."""

from __future__ import annotations

from dataclasses import dataclass

from ..._validation import check_number
from ...privacy.relations import Budget
from ...privacy.zcdp import zcdp_to_epsilon
from .event import Event
from .limits import ApproximateLimit, GaussianLimit, Limit

__all__ = ["GaussianPrivacy", "Verdict", "claimed", "describe_confidence"]


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
class Claimed:
    """A claim, read.

    Attributes
    ----------
    name : {"epsilon", "mu"}
        What is bounded from below.
    level : float
        The claimed one.
    delta : float
    relation : str or None
        That of the budget, if there is one.
    notes : tuple of str
    """

    name: str
    level: float
    delta: float
    relation: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def limit(self) -> Limit:
        """What the claim allows."""
        return GaussianLimit() if self.name == "mu" else ApproximateLimit(self.delta)


class Found:
    """What verdicts share: the bound by its name, and sentences."""

    refuted: bool
    bound: float
    bounded: str
    claim: float
    delta: float
    confidence: float
    notes: tuple[str, ...]

    @property
    def epsilon(self) -> float:
        """Lower bound on epsilon at ``delta``, at least 0.

        Raises
        ------
        AttributeError
            If the claim is of mu: no bound on epsilon follows from one on mu.
        """
        return self._named("epsilon")

    @property
    def mu(self) -> float:
        """Lower bound on mu, at least 0.

        Raises
        ------
        AttributeError
            If the claim is of epsilon.
        """
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


@dataclass(frozen=True, eq=False, repr=False)
class Verdict(Found):
    """What a test of a claim found.

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
    event : Event
        The outcomes that tell the inputs apart. ``str(event)`` describes them, and
        ``event(outputs)`` says which outputs lie in it, so that it can be counted again.
    likelier : {"dataset", "neighbour"}
        On which input the event is the more probable one.
    counts : (int, int)
        Runs in the event, on the dataset and on the neighbour.
    runs : int
        Runs of each input in which the event was counted; it was learned from others.
    samples : int
        Runs of each input in all.
    bounds : (float, float)
        Of all pairs of probabilities, on the likelier input and on the other, that the counts do
        not reject, one that is closest to equal: there the bound is attained.
    notes : tuple of str
        Other facts about the test, for instance that fewer samples were taken.
    """

    refuted: bool
    bound: float
    bounded: str
    claim: float
    delta: float
    confidence: float
    event: Event
    likelier: str
    counts: tuple[int, int]
    runs: int
    samples: int
    bounds: tuple[float, float]
    notes: tuple[str, ...] = ()

    @property
    def probabilities(self) -> tuple[float, float]:
        """How often the event was seen, on the dataset and on the neighbour."""
        return self.counts[0] / self.runs, self.counts[1] / self.runs

    def __str__(self) -> str:
        other = "neighbour" if self.likelier == "dataset" else "dataset"
        return self._sentences(
            f"The event '{self.event}' happened in {self.counts[0]:,} and {self.counts[1]:,} of "
            f"{self.runs:,} held-out runs of dataset and neighbour. Probabilities closer than "
            f"{self.bounds[0]:.4g} on the {self.likelier} and {self.bounds[1]:.4g} on the {other} "
            "would be rejected.",
            "inputs or events",
        )


def describe_confidence(confidence: float) -> str:
    """Return a confidence so that it can be told from 1.

    Examples
    --------
    >>> describe_confidence(0.95), describe_confidence(1 - 1e-9)
    ('0.95', '1 - 1e-09')
    """
    missing = 1.0 - confidence
    return f"{confidence:g}" if missing > 0.9e-3 else f"1 - {missing:.3g}"


def claimed(claim: float | Budget | GaussianPrivacy, delta: float) -> Claimed:
    """Return what is claimed.

    Examples
    --------
    >>> claimed(Budget(1.0, 1e-6), 0.0)
    Claimed(name='epsilon', level=1.0, delta=1e-06, relation='replace_one', notes=())
    """
    delta = check_number("delta", delta, low=0.0, high=1.0, high_open=True)
    if isinstance(claim, GaussianPrivacy):
        if delta != 0.0:
            raise ValueError(
                f"delta must be 0 for {claim!r}, which is of all deltas: got {delta!r}"
            )
        return Claimed("mu", float(claim.mu), 0.0)
    if not isinstance(claim, Budget):
        return Claimed("epsilon", check_number("claim", claim, low=0.0), delta)
    if claim.rho is not None:
        if delta == 0.0:
            raise ValueError(f"delta must lie in (0, 1) to test {claim!r}, got 0")
        epsilon = zcdp_to_epsilon(claim.rho, delta)
        note = f"The claim is what rho = {claim.rho:g} implies at this delta"
        return Claimed("epsilon", epsilon, delta, claim.relation, (note,))
    if delta not in (0.0, claim.delta):
        raise ValueError(f"delta must be that of the claim, {claim.delta!r}, got {delta!r}")
    assert claim.epsilon is not None
    return Claimed("epsilon", claim.epsilon, claim.delta, claim.relation)
