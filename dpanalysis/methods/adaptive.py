"""What methods share whose queries depend on the answers so far."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from ..privacy import filters
from ..privacy.events import Event
from ..privacy.facts import PublicFacts
from ..privacy.oracle import PrivateOracle
from ..privacy.relations import Budget
from ..privacy.sampling import Sampling
from .base import FULL, Shown

__all__ = ["AdaptiveMethod", "Step"]


@dataclass(frozen=True)
class Step:
    """What a method releases after an iteration.

    Attributes
    ----------
    w : ndarray of shape (d,)
    released : mapping of str to float
        Other numbers that the guarantee covers, such as the step size chosen.
    """

    w: np.ndarray
    released: Mapping[str, float] = field(default_factory=dict)


class AdaptiveMethod(Shown, ABC):
    """A method that decides on the way how often, how and how accurately it asks.

    Nothing of that is fixed beforehand, so each run goes under a filter, at one Renyi order
    that is (see :class:`dpanalysis.privacy.Filter`), and replicates run one after the other.
    A method fixes its noise in :meth:`prepare` from public facts; :meth:`run` is the algorithm
    as the paper prints it, a generator that yields every iterate.

    Attributes
    ----------
    sampling : Sampling
        Of the batches; decides the relations under which the method may be accounted.
    clipping : object or None
        Rule for the gradients.
    released : tuple of str
        What the guarantee covers besides the iterates.
    one_shot : bool
        Whether :meth:`iteration` is all that a run asks, whatever the answers. It then goes
        under a plan, for which any accounting is valid, instead of a filter.
    """

    sampling: Sampling = FULL
    clipping: Any = None
    released: ClassVar[tuple[str, ...]] = ("iterates", "number of iterations")
    one_shot: ClassVar[bool] = False

    @abstractmethod
    def prepare(self, facts: PublicFacts, budget: Budget | None) -> Any:
        """Check the public facts, and fix the noise that :meth:`run` starts with.

        Raises
        ------
        ValueError
            If the problem does not satisfy the method's assumptions.
        """

    @abstractmethod
    def iteration(self, facts: PublicFacts, settings: Any) -> list[Event]:
        """Return what one iteration costs at the start, to choose the filter's order by."""

    def order(self, facts: PublicFacts, settings: Any, budget: Budget) -> float | None:
        """Return the Renyi order of the filter; None for one that sums rho.

        By default that at which the budget affords the most iterations; ``budget.delta`` > 0.
        """
        return filters.order_of_most(self.iteration(facts, settings), budget)

    @abstractmethod
    def run(self, w: np.ndarray, oracle: PrivateOracle, settings: Any) -> Iterator[Step]:
        """Run from ``w`` of shape (d,) until done, or until the filter affords no more."""
