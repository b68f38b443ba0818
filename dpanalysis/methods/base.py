"""What every method is: how it prepares, which events it plans, and how it runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, ClassVar

import numpy as np

from ..privacy.events import Event
from ..privacy.facts import PublicFacts
from ..privacy.oracle import PrivateOracle
from ..privacy.relations import Budget
from ..privacy.sampling import Full, Sampling

__all__ = ["FULL", "Method", "Shown", "Step"]

FULL = Full()  # immutable, so it can be shared as a default


@dataclass(frozen=True)
class Step:
    """What a method releases after an iteration.

    Attributes
    ----------
    w : ndarray of shape (R, d) for a method that makes replicates together, else (d,)
    released : mapping of str to float
        Other numbers that the guarantee covers, such as the step size chosen.
    """

    w: np.ndarray
    released: Mapping[str, float] = field(default_factory=dict)


class Method(ABC):
    """A private method. It never sees data: it plans from public facts, and asks the oracle.

    A run calls :meth:`prepare` once, then :meth:`events`, and then iterates over :meth:`run`.
    A method keeps nothing from one run to the next and looks at nothing but the oracle's
    answers, so a frozen dataclass is the right form; :func:`dpanalysis.testing.check_method`
    finds out whether a method keeps to this.

    Attributes
    ----------
    sampling : Sampling
        Of the batches; it decides the relations under which the method may be accounted.
    clipping : Clipping or None
        Rule for the gradients.
    together : bool
        Whether :meth:`run` makes all R replicates at once, with iterates of shape (R, d).
        Otherwise it is called for one replicate after the other, with iterates of shape (d,).
    output : {"last", "uniform", "average"}
        What of the iterates a run gives back.
    released : tuple of str
        What the guarantee covers.
    """

    sampling: Sampling = FULL
    clipping: Any = None
    together: ClassVar[bool] = False
    output: str = "last"
    released: ClassVar[tuple[str, ...]] = ("iterates",)

    @abstractmethod
    def prepare(self, facts: PublicFacts, budget: Budget | None, accountant: str) -> Any:
        """Return the plan of a run: everything that is fixed before the data are touched.

        Parameters
        ----------
        facts : PublicFacts
            Public side of the problem.
        budget : Budget or None
            None runs without noise, unless the method's own arguments give it in numbers.
        accountant : {"tightest", "pure", "zcdp", "rdp", "pld"}
            See :func:`dpanalysis.privacy.epsilon`.

        Returns
        -------
        object
            Given to :meth:`events` and :meth:`run`, and kept as ``result.plan``.

        Raises
        ------
        ValueError
            If the problem does not satisfy the method's assumptions, or the budget does not
            suffice.
        """

    @abstractmethod
    def events(self, facts: PublicFacts, plan: Any) -> Sequence[Event] | None:
        """Return what a run of one replicate will release, batch by batch, in its order.

        The run then goes under a :class:`dpanalysis.privacy.Plan`, for which every accountant
        is valid. None where the events depend on answers: the run then goes under a
        :class:`dpanalysis.privacy.Filter`, see :class:`~dpanalysis.methods.AdaptiveMethod`.
        An empty sequence where some answer is exact: such a run has no budget and no guarantee.

        A noisy gradient costs :func:`~dpanalysis.privacy.facts.gradient_event`; all that is asked
        of one batch is ONE event, :func:`~dpanalysis.privacy.facts.sampled_event` of the list.
        """

    @abstractmethod
    def run(self, w: np.ndarray, oracle: PrivateOracle, plan: Any) -> Iterator[Step]:
        """Yield a step an iteration, from ``w`` on; no batch is open while it yields.

        Parameters
        ----------
        w : ndarray of shape (R, d) or (d,)
            Public start, see :attr:`together`.
        oracle : PrivateOracle
            Answers for the one replicate, or for all of them.
        plan : object
            What :meth:`prepare` returned.
        """

    def length(self, plan: Any) -> int | None:
        """Return the number of iterations where it is fixed beforehand, else None."""
        return None


class Shown:
    """Show what differs from the defaults, and long lists of numbers by their range."""

    def __repr__(self) -> str:
        if not is_dataclass(self):  # then its attributes are unknown
            return f"{type(self).__name__}()"
        shown = []
        for each in sorted(fields(self), key=lambda each: bool(each.kw_only)):
            value = getattr(self, each.name)
            if isinstance(value, tuple) and len(value) > 3:
                shown.append(
                    f"{each.name}=<{len(value)} numbers, {min(value):g} to {max(value):g}>"
                )
            elif value != each.default:
                shown.append(f"{each.name}={value!r}")
        return f"{type(self).__name__}({', '.join(shown)})"
