"""What a mutant is, and how to put an auditor to the test with it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Protocol

import numpy as np

from ..._validation import check_number
from ...privacy.relations import REPLACE_ONE
from ..exact import Density, privacy_profile, renyi_divergence

__all__ = ["Detection", "ExactVerdict", "Law", "Mechanism", "Mutant", "exact_verdict"]

Law = np.ndarray | Density


class Mechanism(Protocol):
    """A mechanism that can be sampled; some also have a method ``law(dataset)``."""

    def __call__(self, dataset: Any, rng: Any, size: int) -> np.ndarray:
        """Return ``size`` independent outputs, (size,) or (size, k)."""


@dataclass(frozen=True)
class Mutant:
    """A mechanism that breaks its promise, beside a twin that keeps the same one.

    Attributes
    ----------
    name : str
    source : str
        Where the mistake was made.
    why : str
        What is wrong, in a sentence.
    broken, correct : Mechanism
        Called as ``broken(dataset, rng, size)``. Where the output, or a function of it, has an
        exact law, ``broken.law(dataset)`` is that: probabilities or a
        :class:`~dpanalysis.audit.Density`.
    dataset, neighbour : array
        Neighbours on which the mistake shows.
    claim, delta : float
        The promise: (claim, delta)-differential privacy.
    relation : {"replace_one", "add_or_remove_one"}

    Examples
    --------
    >>> from dpanalysis.audit import mutants
    >>> mutant = mutants.MUTANTS[0]
    >>> mutant.name, mutant.claim, mutant.engines
    ('laplace by standard deviation', 1.0, ('exact', 'empirical'))
    >>> mutant.broken(mutant.dataset, 0, 5).shape
    (5,)
    """

    name: str
    source: str
    why: str
    broken: Mechanism = field(repr=False)
    correct: Mechanism = field(repr=False)
    dataset: Any = field(repr=False)
    neighbour: Any = field(repr=False)
    claim: float
    delta: float = 0.0
    relation: str = REPLACE_ONE

    @property
    def engines(self) -> tuple[str, ...]:
        """Which kinds of audit apply: "exact" where there is a law, "empirical" always."""
        exact = hasattr(self.broken, "law") and hasattr(self.correct, "law")
        return ("exact", "empirical") if exact else ("empirical",)


@dataclass(frozen=True)
class ExactVerdict:
    """What the laws of two outputs say about a claim.

    Attributes
    ----------
    refuted : bool
    epsilon : float
        The least epsilon that the pair allows at ``delta``; inf where none does.
    claim, delta : float

    Examples
    --------
    >>> ExactVerdict(refuted=True, epsilon=1.1, claim=1.0, delta=0.0).epsilon
    1.1
    """

    refuted: bool
    epsilon: float
    claim: float
    delta: float


def exact_verdict(
    mechanism: Any, dataset: Any, neighbour: Any, claim: float, *, delta: float = 0.0
) -> ExactVerdict:
    """Audit a mechanism by its exact law: the counterpart of ``verify_privacy`` without samples.

    Parameters
    ----------
    mechanism : object
        With a method ``law(dataset)``, the law of its output or of a function of it.
    dataset, neighbour : array
    claim : float
        In [0, inf].
    delta : float
        In [0, 1).

    Returns
    -------
    ExactVerdict
        Refuted where the loss exceeds the claim by more than rounding (1e-9).

    Raises
    ------
    ValueError
        If a number is outside its range.

    Examples
    --------
    >>> from dpanalysis.audit.mutants import MUTANTS
    >>> mutant = MUTANTS[0]
    >>> exact_verdict(mutant.broken, mutant.dataset, mutant.neighbour, mutant.claim)
    ExactVerdict(refuted=True, epsilon=1.4142, claim=1.0, delta=0.0)
    """
    claim = check_number("claim", claim, low=0.0, finite=False)
    delta = check_number("delta", delta, low=0.0, high=1.0, high_open=True)
    p, q = mechanism.law(dataset), mechanism.law(neighbour)
    epsilon = _least_epsilon(p, q, delta)
    return ExactVerdict(epsilon > claim + 1e-9 * (1.0 + claim), epsilon, claim, delta)


def _least_epsilon(p: Law, q: Law, delta: float) -> float:
    largest = max(renyi_divergence(p, q, math.inf), renyi_divergence(q, p, math.inf))
    if delta == 0.0 or privacy_profile(p, q, 0.0) <= delta:
        return float(largest) if delta == 0.0 else 0.0
    from scipy import optimize

    @cache
    def excess(epsilon: float) -> float:
        return math.log(max(float(privacy_profile(p, q, epsilon)), 1e-300) / delta)

    low, high = 0.0, 1.0
    while excess(high) > 0.0:
        low, high = high, 2.0 * high
        if high > 1e3:
            return math.inf
    if excess(high) == 0.0:
        return high
    return float(optimize.toms748(excess, low, high, xtol=1e-11 * high, rtol=1e-13))


@dataclass(frozen=True)
class Detection:
    """What an auditor says about a mutant and its twin.

    Attributes
    ----------
    mutant : Mutant
    broken, correct : object
        The auditor's verdicts, each with an attribute ``refuted``.

    Examples
    --------
    >>> from dpanalysis.audit import mutants
    >>> verdict = ExactVerdict(refuted=False, epsilon=1.0, claim=1.0, delta=0.0)
    >>> print(Detection(mutants.MUTANTS[0], verdict, verdict))
    laplace by standard deviation: claims 1, NOT CAUGHT; twin accepted
    """

    mutant: Mutant
    broken: Any
    correct: Any

    @property
    def passed(self) -> bool:
        """Whether the auditor caught the mutant and let its twin go."""
        return bool(self.broken.refuted) and not self.correct.refuted

    def __str__(self) -> str:
        found = getattr(self.broken, "epsilon", math.nan)
        caught = f"caught (epsilon >= {found:.4g})" if self.broken.refuted else "NOT CAUGHT"
        twin = "FALSELY ACCUSED" if self.correct.refuted else "accepted"
        return f"{self.mutant.name}: claims {self.mutant.claim:.4g}, {caught}; twin {twin}"
