"""What is claimed, and what a test of the claim found."""

from __future__ import annotations

from dataclasses import dataclass

from ..._validation import check_number
from ...privacy.relations import Budget
from ...privacy.zcdp import zcdp_to_epsilon
from .event import Event

__all__ = ["Verdict", "claimed", "describe_confidence"]


@dataclass(frozen=True, eq=False, repr=False)
class Verdict:
    """What a test of a claim found.

    Attributes
    ----------
    refuted : bool
        Whether the lower bound exceeds the claim. False is no certificate: another event, or
        another pair of inputs, may still refute the claim.
    epsilon : float
        Lower bound on the mechanism's epsilon at ``delta``, at least 0. It is too high with
        probability at most 1 - ``confidence``.
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
        Lower bound of the event's probability on the likelier input, upper bound on the other.
    notes : tuple of str
        Other facts about the test, for instance that fewer samples were taken.
    """

    refuted: bool
    epsilon: float
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

    def __bool__(self) -> bool:
        raise TypeError("a Verdict is neither true nor false: ask for verdict.refuted")

    def __str__(self) -> str:
        other = "neighbour" if self.likelier == "dataset" else "dataset"
        found = (
            f"epsilon >= {self.epsilon:.4g} where {self.claim:.4g} is claimed "
            f"(delta = {self.delta:g}, confidence {describe_confidence(self.confidence)}). "
            f"The event '{self.event}' has probability at least {self.bounds[0]:.4g} on the "
            f"{self.likelier} and at most {self.bounds[1]:.4g} on the {other} "
            f"({self.counts[0]:,} and {self.counts[1]:,} of {self.runs:,} held-out runs of "
            "dataset and neighbour)."
        )
        verdict = "refuted: " if self.refuted else "not refuted: "
        caveat = "" if self.refuted else " Other inputs or events may still refute it."
        return verdict + found + caveat + "".join(f" {note}." for note in self.notes)

    def __repr__(self) -> str:
        return f"<Verdict {self}>"


def describe_confidence(confidence: float) -> str:
    """Return a confidence so that it can be told from 1.

    Examples
    --------
    >>> describe_confidence(0.95), describe_confidence(1 - 1e-9)
    ('0.95', '1 - 1e-09')
    """
    missing = 1.0 - confidence
    return f"{confidence:g}" if missing > 0.9e-3 else f"1 - {missing:.3g}"


def claimed(
    claim: float | Budget, delta: float
) -> tuple[float, float, str | None, tuple[str, ...]]:
    """Return the claimed epsilon and delta, the budget's relation if there is one, and notes.

    Examples
    --------
    >>> claimed(Budget(1.0, 1e-6), 0.0)
    (1.0, 1e-06, 'replace_one', ())
    """
    delta = check_number("delta", delta, low=0.0, high=1.0, high_open=True)
    if not isinstance(claim, Budget):
        return check_number("claim", claim, low=0.0), delta, None, ()
    if claim.rho is not None:
        if delta == 0.0:
            raise ValueError(f"delta must lie in (0, 1) to test {claim!r}, got 0")
        epsilon = zcdp_to_epsilon(claim.rho, delta)
        note = f"The claim is what rho = {claim.rho:g} implies at this delta"
        return epsilon, delta, claim.relation, (note,)
    if delta not in (0.0, claim.delta):
        raise ValueError(f"delta must be that of the claim, {claim.delta!r}, got {delta!r}")
    assert claim.epsilon is not None
    return claim.epsilon, claim.delta, claim.relation, ()
