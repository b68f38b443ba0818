"""Base classes of the methods: preparation, planned events, and the run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, ClassVar

import numpy as np

from .._validation import plain_numbers
from ..privacy.accounting import accountant
from ..privacy.accounting.relations import Budget
from ..privacy.accounting.sampling import Full, Sampling
from ..privacy.events import Event
from ..privacy.facts import PublicFacts
from ..privacy.oracle import PrivateOracle

FULL = Full()  # immutable, so it can be shared as a default


@dataclass(frozen=True)
class Step:
    """The release of one iteration.

    Attributes
    ----------
    w : ndarray of shape (R, d) for a method that runs replicates together, else (d,)
    released : mapping of str to float
        Other numbers that the guarantee covers, such as the step size.
    state : mapping of str to array_like
        What :meth:`Method.resume` needs besides ``w``: numbers computed from the oracle's answers
        and public ones only, since they may be written to a file.
    """

    w: np.ndarray
    released: Mapping[str, float] = field(default_factory=dict)
    state: Mapping[str, Any] = field(default_factory=dict, repr=False)


class Method(ABC):
    """A private method: it plans from public facts and queries the oracle, but never sees data.

    A run calls :meth:`prepare` once, then :meth:`events`, and then iterates over :meth:`run`.
    A method keeps no state between runs and depends on the data through the oracle's answers
    only, so make it a frozen dataclass; :func:`dpanalysis.testing.check_method` checks this.

    Attributes
    ----------
    sampling : Sampling
        Sampling of the batches; it determines under which relations the method can be accounted.
    clipping : Clipping or None
        Clipping rule of the gradients.
    together : bool
        Whether :meth:`run` computes all R replicates at once, with iterates of shape (R, d).
        Otherwise it is called once per replicate, with iterates of shape (d,).
    output : {"last", "uniform", "average"}
        Which iterate, or the average, a run returns.
    released : tuple of str
        What the guarantee covers.
    needs : tuple of str
        Methods of the :class:`~dpanalysis.Problem` that its queries call.
    """

    sampling: Sampling = FULL
    clipping: Any = None
    together: ClassVar[bool] = False
    output: str = "last"
    released: ClassVar[tuple[str, ...]] = ("iterates",)
    needs: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        plain_numbers(self)

    @abstractmethod
    def prepare(self, facts: PublicFacts, budget: Budget | None, accountant: str) -> Any:
        """Return the plan of a run: everything fixed before the data are accessed.

        It is passed to :meth:`events` and :meth:`run`, and kept as ``result.plan``. Without a
        budget there is no noise, unless the method has explicit noise scales. Raise ValueError if
        the problem does not satisfy the method's assumptions, or the budget does not suffice.
        """

    @abstractmethod
    def events(self, facts: PublicFacts, plan: Any) -> Sequence[Event] | None:
        """Return the events of one replicate, one per batch, in order.

        The run is then controlled by a :class:`dpanalysis.privacy.Plan`, for which every
        accountant is valid. None if the events depend on answers: the run is then controlled by
        a :class:`dpanalysis.privacy.Filter`, see :class:`~dpanalysis.methods.AdaptiveMethod`.
        Empty if some answer is exact: such a run has no budget and no guarantee.

        A noisy gradient costs :func:`~dpanalysis.privacy.facts.gradient_event`. All queries of
        one batch are ONE event, :func:`~dpanalysis.privacy.facts.sampled_event` of their list.
        """

    @abstractmethod
    def run(self, w: np.ndarray, oracle: PrivateOracle, plan: Any) -> Iterator[Step]:
        """Yield one step per iteration from ``w``; no batch may be open while it yields.

        The public start ``w`` has shape (R, d) or (d,), and the oracle is that of all replicates or
        of one, see :attr:`together`.
        """

    def length(self, plan: Any) -> int | None:
        """Return how many iterations replicates make together, if that is fixed in advance."""
        return None

    def resume(
        self, step: Step, made: int, lost: int, oracle: PrivateOracle, plan: Any
    ) -> Iterator[Step]:
        """Yield the steps that :meth:`run` would yield after ``step``, its step number ``made``.

        A method that overrides this, and yields steps with all of its state, can be run with a
        ``checkpoint`` of :func:`dpanalysis.minimize`. The state is empty if ``made`` is 0. ``lost``
        batches were charged after that step, and stay charged: if all events are planned, an
        iteration is lost with its batch, and must be yielded as a step with an unchanged iterate.
        """
        raise TypeError(f"{self!r} cannot be resumed: it has no resume()")

    def __repr__(self) -> str:
        """Return the parameters that differ from the defaults; long tuples are shown by range."""
        if not is_dataclass(self):
            return f"{type(self).__name__}()"
        shown = []
        for each in sorted(fields(self), key=lambda each: bool(each.kw_only)):
            value = getattr(self, each.name)
            numbers = type(value) is tuple and all(isinstance(v, (int, float)) for v in value)
            if numbers and len(value) > 3:  # not a named tuple
                shown.append(
                    f"{each.name}=<{len(value)} numbers, {min(value):g} to {max(value):g}>"
                )
            elif value != each.default:
                shown.append(f"{each.name}={value!r}")
        return f"{type(self).__name__}({', '.join(shown)})"


class AdaptiveMethod(Method):
    """A method whose queries, including their number and noise, depend on earlier answers.

    Each run is controlled by a filter at one fixed Renyi order (see
    :class:`dpanalysis.privacy.Filter`), and replicates run one after the other. :meth:`prepare`
    fixes the initial noise; :meth:`run` is the paper's algorithm, until the filter refuses a batch.

    If the largest possible list of events is known in advance, :meth:`events` returns it, and the
    run is controlled by a :class:`dpanalysis.privacy.Plan` with ``exact=False``.
    """

    released: ClassVar[tuple[str, ...]] = ("iterates", "number of iterations")

    def events(self, facts: PublicFacts, plan: Any) -> Sequence[Event] | None:
        """Return None: the queries depend on answers."""
        return None

    @abstractmethod
    def iteration(self, facts: PublicFacts, plan: Any) -> list[Event]:
        """Return an iteration's events at the initial noise, to choose the filter's order."""

    def order(self, facts: PublicFacts, plan: Any, budget: Budget) -> float | None:
        """Return the Renyi order of the filter; None for a filter that sums rho.

        By default the order at which the budget allows the most iterations; ``budget.delta`` > 0.
        """
        return accountant.order_of_most(self.iteration(facts, plan), budget)


def require_records(facts: PublicFacts, reason: str) -> None:
    """Raise ValueError unless the problem consists of records, as ``reason`` requires."""
    if not facts.has_records or facts.declared_sensitivity is not None:
        raise ValueError(f"problem must consist of records, as an ERM does: {reason}")


def check_gaussian_budget(budget: Budget) -> None:
    """Raise ValueError unless the budget allows Gaussian noise."""
    if budget.rho is None and budget.delta == 0.0:
        raise ValueError(
            f"budget must have delta > 0 or be zCDP for Gaussian noise, got {budget!r}"
        )
