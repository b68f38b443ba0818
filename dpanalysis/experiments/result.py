"""The result of a run."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from .._validation import check_choice, check_int, check_reals
from ..methods.base import AdaptiveMethod, Method
from ..privacy.accounting import accountant as accounting
from ..privacy.accounting.accountant import ACCOUNTANTS
from ..privacy.accounting.curves import PrivacyCurve, curve_of_epsilons, privacy_curve
from ..privacy.accounting.relations import Budget, directed
from ..privacy.budget import Filter
from ..privacy.events import Event, Repeated
from ..privacy.ledger import Ledger, at_each, html_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LOGARITHMIC = ("gap", "gradient_norm")  # records that fall to 0


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """The result of a run.

    Attributes
    ----------
    w : ndarray of shape (R, d)
        Output, one row per replicate: by default the last iterates, see the method's ``output``.
    history : dict of str to ndarray of shape (records, R)
        Records of the iterates, and ``"iteration"`` of shape (records,). Computed from the data
        without noise: for the researcher only, NOT covered by the guarantee.
    ledger : Ledger
        Events of ONE replicate that were released.
    planned : tuple of Event
        Events of ONE replicate as fixed in advance: those of the ledger and, if the run stopped
        early, those that it did not reach.
    method : Method
    plan : object
        Plan of the method, fixed before the data were accessed.
    budget : Budget or None
    iterations : int
        Number of iterations made.
    status : str
        "finished", "stopped by callback", "diverged", "budget exceeded", "interrupted", "failed".
        Interrupted by Ctrl-C, a run returns what it has released; its charges stand.
    private : bool
        False if gradients of private data are released without noise.
    seconds : float
        Wall time of the run. NOT covered by the guarantee: it depends on the sizes of the batches,
        and on how long a solver took on these data.
    released : tuple of str
        What the guarantee covers; under add_or_remove_one, for two data sets of the same nominal
        size (``size=`` of the problem), which is public.
    drawn : ndarray of int, shape (R,), or None
        For ``output="uniform"``: the iteration of each row of ``w``.
    guard : Filter or None
        Filter of an adaptive run: the guarantee is what it grants, not the sum of the ledger.
    ledgers : tuple of Ledger
        One per replicate, if they run one after the other.
    made : ndarray of int, shape (R,), or None
        Iterations of each replicate, if they run one by one; ``iterations`` is the largest.
    evaluations : dict of str to int
        Number of per-record gradients and losses in all replicates. NOT covered by the guarantee.
    charged : ndarray of int, shape (records,), or None
        Events in the ledger at each record, if all replicates run together.

    Examples
    --------
    >>> import numpy as np
    >>> import dpanalysis as dpa
    >>> X, y = np.array([[0.6, 0.8], [1.0, 0.0]] * 500), np.array([1, -1] * 500)
    >>> problem = dpa.ERM(X, y, dpa.losses.Logistic(), row_bound=dpa.RowBound(2, 1.0))
    >>> method = dpa.methods.GradientDescent(1.0, 20)
    >>> result = dpa.minimize(problem, method, dpa.Budget(0.5), replicates=3, rng=0)
    >>> result.w.shape, result.history["objective"].shape
    ((3, 2), (21, 3))
    >>> result.epsilon(), result.epsilon(replicates=3)  # of one replicate, and of all three
    (0.5, 1.5)
    >>> result.released
    ('iterates',)
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
    charged: np.ndarray | None = None

    def __repr__(self) -> str:
        budget = "no budget" if self.budget is None else repr(self.budget)
        return (
            f"Result({self.status} after {self.iterations} iterations of {self.method!r}, "
            f"{budget}, w of shape {self.w.shape}, history of {', '.join(self.history)})"
        )

    def _repr_html_(self) -> str:
        delta = self._delta(None)
        rows = [
            ("method", repr(self.method)),
            ("status", self.status),
            ("iterations", str(self.iterations)),
            ("budget", "none" if self.budget is None else repr(self.budget)),
            (f"epsilon at delta = {delta:g}", directed(self.epsilon(delta), 6)),
            ("relation", self.ledger.relation),
            ("events", f"{len(self.ledger)} of one replicate"),
        ]
        return html_table([*rows, *(("", line) for line in self.ledger.lines())])

    def _delta(self, delta: Any) -> Any:
        """Return the delta, by default that of the guard or the budget, or 0."""
        if delta is not None:
            return delta
        budget = self.budget if self.guard is None else self.guard.budget
        return 0.0 if budget is None else budget.delta

    @property
    def hardened(self) -> bool:
        """Whether every release had exact noise, without floating-point errors.

        Only with ``rng="os"``, where the ledger has ``noise="exact"``. The batches are then drawn
        exactly too: by integers, not by uniform floating-point numbers.
        """
        ledgers = self.ledgers or (self.ledger,)
        return self.private and all(ledger.noise == "exact" for ledger in ledgers)

    def epsilon(
        self, delta: ArrayLike | None = None, replicates: int = 1, accountant: str = "tightest"
    ) -> Any:
        """Return the epsilon of the run at ``delta``: the tightest, or that of one accountant.

        For a run that stopped early, this is the epsilon of all planned events: released values
        decided when to stop, so the events that happened were not fixed in advance and their cost
        alone is not a guarantee. Likewise, for an adaptive run, it is what the filter grants.

        Parameters
        ----------
        delta : float or array of floats, optional
            By default the delta of the budget, or 0. All values of an array hold simultaneously.
        replicates : int
            Number of replicates released together; 1 for the guarantee of one run.
        accountant : {"tightest", "pure", "zcdp", "rdp", "pld"}
            See :func:`dpanalysis.privacy.epsilon`.

        Returns
        -------
        float or ndarray of the shape of ``delta``
            Infinite if exact gradients of private data were released, and at delta = 0, the default
            without a delta in the budget, for Gaussian noise: give a delta. The rho of a run under
            a zCDP budget is ``dpanalysis.privacy.spent(result.ledger.events, result.budget)``.
        """
        check_int("replicates", replicates, low=1)
        check_choice("accountant", accountant, ACCOUNTANTS)
        delta = self._delta(delta)
        return at_each(lambda each: self._epsilon(each, replicates, accountant), delta)

    def _epsilon(self, delta: float, replicates: int, accountant: str) -> float:
        """Return :meth:`epsilon` at one delta."""
        if not self.private:
            return math.inf
        if self.guard is not None:
            if accountant != "tightest":
                raise ValueError(
                    f"accountant must be 'tightest' for a run under a filter, got {accountant!r}: "
                    "the filter has fixed the notion of privacy in advance"
                )
            return self.guard.epsilon(delta, replicates)
        events = self._fixed(replicates)
        return accounting.epsilon(events, delta, self.ledger.relation, accountant)

    def delta(self, epsilon: ArrayLike, replicates: int = 1) -> Any:
        """Return the least delta of the run at ``epsilon``, by :meth:`privacy_curve`.

        Parameters
        ----------
        epsilon : float or array of floats
        replicates : int
            Number of replicates released together.

        Returns
        -------
        float or ndarray of the shape of ``epsilon``
            A valid bound, at all of them at once; 1 if exact private gradients were released.

        Examples
        --------
        >>> import dpanalysis as dpa
        >>> problem = dpa.ERM([[-1.0], [1.0]], [-1, 1], dpa.losses.Logistic(),
        ...                   row_bound=dpa.RowBound(2, 1.0))
        >>> method = dpa.methods.GradientDescent(1.0, 10, mechanism="gaussian")
        >>> result = dpa.minimize(problem, method, dpa.Budget(1.0, 1e-5), rng=0)
        >>> result.delta([0.5, 1.0]), result.epsilon([1e-3, 1e-5])
        (array([4.133e-03, 1.000e-05]), array([0.6432, 1.    ]))
        """
        check_int("replicates", replicates, low=1)
        if not self.private:
            everything = np.ones_like(check_reals("epsilon", epsilon))
            return everything if everything.ndim else 1.0
        return self.privacy_curve(replicates).delta(epsilon)

    def _fixed(self, replicates: int) -> list[Event]:
        """Return the events that the guarantee is for, which were fixed in advance."""
        made = self.planned or self.ledger.events
        return [Repeated(event, replicates) for event in made]

    def privacy_curve(self, replicates: int = 1) -> PrivacyCurve:
        """Return the privacy curve of the run: an attacker's trade-off between error rates.

        As for :meth:`epsilon`, the curve is that of all planned events if the run stopped early,
        and that of the filter's grant for an adaptive run.

        Parameters
        ----------
        replicates : int
            Number of replicates released together.

        Raises
        ------
        ValueError
            If exact gradients of private data were released, so that there is no privacy.
        """
        check_int("replicates", replicates, low=1)
        if not self.private:
            raise ValueError("exact gradients of private data were released: there is no curve")
        if (guard := self.guard) is not None:
            return curve_of_epsilons(lambda delta: guard.epsilon(delta, replicates))
        return privacy_curve(self._fixed(replicates), self.ledger.relation)

    def plot(
        self,
        name: str | None = None,
        *,
        x: str = "iteration",
        delta: float | None = None,
        label: str | None = None,
        ax: Axes | None = None,
    ) -> Axes:
        """Plot a record, such as the objective, against the iterations or against their epsilon.

        The line is the mean over the replicates, with a band that holds 80 % of them.

        Parameters
        ----------
        name : str, optional
            A scalar record: a name in ``history``. The first one by default.
        x : {"iteration", "epsilon"}
            Epsilon is that of all events charged until then: of a run planned to end there.
        delta : float, optional
            The delta of that epsilon; by default that of the budget, or 0.
        label : str, optional
            Of the line, for a legend: by default the name of the method's class.
        ax : Axes, optional
            By default those of a new figure, in the style of :mod:`dpanalysis.plotting`. The line
            has their next color.

        Raises
        ------
        ValueError
            If there is no such record; for ``x="epsilon"``, if epsilon is infinite, or known only
            for the whole run: the events depended on answers, or the replicates ran one by one.

        Examples
        --------
        >>> import dpanalysis as dpa
        >>> problem = dpa.ERM([[-1.0], [1.0]], [-1, 1], dpa.losses.Logistic(),
        ...                   row_bound=dpa.RowBound(2, 1.0))
        >>> method = dpa.methods.GradientDescent(1.0, 10)
        >>> result = dpa.minimize(problem, method, dpa.Budget(1.0), record="objective", rng=0)
        >>> result.plot().get_xlabel(), result.plot("objective", x="epsilon").get_xlabel()
        ('iteration', 'epsilon')
        """
        from ..plotting import curve, drawing

        check_choice("x", x, ("iteration", "epsilon"))
        numbers = [key for key, value in self.history.items() if value.ndim == 2]
        if not numbers:
            raise ValueError("there is nothing to draw: ask minimize for record='objective'")
        name = check_choice("name", numbers[0] if name is None else name, numbers)
        places, values = self.history["iteration"], self.history[name]
        if x == "epsilon":
            rows, places = self._costs(self._delta(delta))
            values = values[rows]
        with drawing(ax) as ax:
            label = type(self.method).__name__ if label is None else label
            curve(ax, places, values, label=label, position=None)
            ax.set(xlabel=x, ylabel=name.replace("_", " "))
            if name in _LOGARITHMIC and (values > 0.0).all():
                ax.set_yscale("log")
        return ax

    def _costs(self, delta: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the indices of some records, and epsilon of the events before each."""
        if self.charged is None or isinstance(self.method, AdaptiveMethod):
            raise ValueError("x must be 'iteration' here: only the epsilon of the whole is known")
        if not self.private:
            raise ValueError("x must be 'iteration' here: exact gradients have no finite epsilon")
        return self.ledger.costs(self.charged, delta)

    def to_frame(self) -> Any:
        """Return the scalar history as a pandas DataFrame, one row per record and replicate."""
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
