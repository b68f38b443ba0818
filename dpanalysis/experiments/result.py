"""What a run gave."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .._validation import check_choice, check_int
from ..methods.base import Method
from ..privacy import accountant as accounting
from ..privacy.accountant import ACCOUNTANTS
from ..privacy.events import Event, Repeated
from ..privacy.filters import Filter
from ..privacy.ledger import Ledger
from ..privacy.relations import Budget

__all__ = ["Result"]


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """What a run gave.

    Attributes
    ----------
    w : ndarray of shape (R, d)
        What the method puts out, one row a replicate: the last iterates, unless its
        ``output`` says otherwise.
    history : dict of str to ndarray of shape (records, R)
        What was recorded of the iterates, and ``"iteration"`` of shape (records,). Computed
        from the data without noise: for the researcher's eyes only, NOT covered by the
        guarantee.
    ledger : Ledger
        Events of ONE replicate that were released.
    planned : tuple of Event
        Events of ONE replicate as fixed beforehand: those of the ledger, and those that a
        run which stopped early did not come to.
    method : Method
    plan : object
        What the method fixed before the data were touched.
    budget : Budget or None
    iterations : int
        Iterations made.
    status : {"finished", "stopped by callback", "diverged", "budget exceeded"}
    private : bool
        False where gradients of private data are released without noise.
    seconds : float
        Wall time of the run. NOT covered by the guarantee: it tells how large the batches were,
        and how long a solver took on these data.
    released : tuple of str
        What the guarantee covers; under add_or_remove_one for two data sets of the same nominal
        size (``size=`` of the problem), which is public.
    drawn : ndarray of int, shape (R,), or None
        For ``output="uniform"``: the iteration whose iterate ``w`` is.
    guard : Filter or None
        Of an adaptive run: what it granted is the guarantee, not what the ledger adds up to.
    ledgers : tuple of Ledger
        One of each replicate, where they run one after the other.
    made : ndarray of int, shape (R,), or None
        The iterations of each replicate, where they run one after the other; ``iterations`` is
        the largest.
    evaluations : dict of str to int
        Gradients and losses of single records evaluated, all replicates together. NOT
        covered by the guarantee.
    """

    w: np.ndarray
    history: dict[str, np.ndarray]
    ledger: Ledger
    planned: tuple[Event, ...]
    method: Method
    plan: Any
    budget: Budget | None
    iterations: int
    status: str
    private: bool
    seconds: float
    released: tuple[str, ...] = ("iterates",)
    drawn: np.ndarray | None = None
    guard: Filter | None = None
    ledgers: tuple[Ledger, ...] = ()
    made: np.ndarray | None = None
    evaluations: dict[str, int] = field(default_factory=dict)

    def __repr__(self) -> str:
        """Summarise the run in one line; the arrays are in the attributes."""
        budget = "no budget" if self.budget is None else repr(self.budget)
        return (
            f"Result({self.status} after {self.iterations} iterations of {self.method!r}, "
            f"{budget}, w of shape {self.w.shape}, history of {', '.join(self.history)}, "
            f"{self.seconds:.3g} s)"
        )

    @property
    def hardened(self) -> bool:
        """Whether no release is changed by floating point: every one had exact noise.

        So it is with ``rng="os"``, where the ledger says ``noise="exact"``, and with nothing else.
        The batches are drawn exactly then, too: by integers, and not by uniform numbers.
        """
        ledgers = self.ledgers or (self.ledger,)
        return self.private and all(ledger.noise == "exact" for ledger in ledgers)

    def epsilon(
        self, delta: float | None = None, replicates: int = 1, accountant: str = "tightest"
    ) -> float:
        """Return the epsilon of the run at ``delta``: the tightest, or that of one accountant.

        That of a run which stopped early is the epsilon of all planned events: when to stop
        was decided by what had been released, so the events that happened were not fixed
        beforehand and their own cost is no guarantee. That of an adaptive run is what its
        filter grants, for the same reason.

        Parameters
        ----------
        delta : float, optional
            By default the delta of the budget, or 0.
        replicates : int
            How many replicates are released together; 1 is the guarantee of one run.
        accountant : {"tightest", "pure", "zcdp", "rdp", "pld"}
            See :func:`dpanalysis.privacy.epsilon`.

        Returns
        -------
        float
            Infinite where exact gradients of private data were released.
        """
        check_int("replicates", replicates, low=1)
        check_choice("accountant", accountant, ACCOUNTANTS)
        if not self.private:
            return math.inf
        if self.guard is not None:
            if accountant != "tightest":
                raise ValueError(
                    f"accountant must be 'tightest' for a run under a filter, got {accountant!r}: "
                    "the filter has fixed the notion of privacy beforehand"
                )
            return self.guard.epsilon(delta, replicates)
        if delta is None:
            delta = self.budget.delta if self.budget is not None else 0.0
        # What a run has released is its cost only if that was fixed beforehand.
        made = self.planned or self.ledger.events
        events = [Repeated(event, replicates) for event in made]
        return accounting.epsilon(events, delta, self.ledger.relation, accountant)

    def to_frame(self) -> Any:
        """Return the scalar history as a pandas DataFrame, one row a record and replicate."""
        import pandas

        iteration = self.history["iteration"]
        replicates = len(self.w)
        columns: dict[str, np.ndarray] = {
            "iteration": np.repeat(iteration, replicates),
            "replicate": np.tile(np.arange(replicates), len(iteration)),
        }
        for name, values in self.history.items():
            if name != "iteration" and values.ndim == 2:
                columns[name] = values.ravel()
        return pandas.DataFrame(columns)
