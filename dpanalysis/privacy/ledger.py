"""The record of what was released."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from .._validation import check_int, check_number, check_reals
from .accounting.accountant import epsilon
from .accounting.curves import privacy_curve
from .accounting.events import first_runs
from .accounting.relations import check_relation
from .events import Event, Repeated, check_event

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PLOTTED = 40  # points of a plot at which epsilon is computed
_LISTED = 10  # runs of equal events that a repr shows


def html_table(rows: Iterable[tuple[str, str]]) -> str:
    """Return an HTML table of rows (name, text), with both escaped."""
    cells = (
        f"<tr><th>{html.escape(name)}</th><td>{html.escape(text)}</td></tr>" for name, text in rows
    )
    return "\n".join(["<table>", *cells, "</table>"])


def at_each(cost: Callable[[Any], float], delta: ArrayLike) -> Any:
    """Return the cost at a delta, or at every one of an array, in the shape of the array."""
    if np.ndim(delta) == 0:
        return cost(delta)
    return np.asarray(np.vectorize(cost, otypes=[np.float64])(check_reals("delta", delta)))


class Ledger:
    """The released events, in order; a ledger only records, a guard decides.

    Parameters
    ----------
    relation : {"replace_one", "add_or_remove_one"}

    Attributes
    ----------
    noise : {"floating point", "exact"}
        Noise is exact with ``rng="os"``: the rounded output of the mechanism on real numbers was
        released. Floating-point noise is for research.

    Examples
    --------
    >>> from dpanalysis.privacy.events import Laplace
    >>> ledger = Ledger("replace_one")
    >>> for _ in range(10):
    ...     ledger.record(Laplace(scale=100.0, sensitivity=1.0))
    >>> len(ledger), ledger.events
    (10, (Repeated(event=Laplace(scale=100.0, sensitivity=1.0, order=1), count=10),))
    >>> round(ledger.epsilon(), 9)
    0.1
    >>> ledger.epsilon([0.0, 0.01]), ledger.delta([0.0, 0.1])
    (array([0.1   , 0.0061]), array([0.0123, 0.    ]))
    """

    def __init__(self, relation: str) -> None:
        self.relation = check_relation(relation)
        self._runs: list[tuple[Event, int]] = []
        self._length = 0
        self.noise = "floating point"

    def record(self, event: Event, count: int = 1) -> None:
        """Append one event ``count`` times, in constant time; equal events extend the last run.

        Raises TypeError if ``event`` is no Event or ``count`` no integer, ValueError if it is below
        1, and IncompatibleAccounting if its sampling scheme does not belong to the relation.
        """
        count = check_int("count", count, low=1)
        if self._runs and (self._runs[-1][0] is event or self._runs[-1][0] == event):
            self._runs[-1] = (self._runs[-1][0], self._runs[-1][1] + count)
        else:
            check_event(event, self.relation)
            self._runs.append((event, count))
        self._length += count

    @property
    def runs(self) -> tuple[tuple[Event, int], ...]:
        """The events in order, as (event, number of consecutive repetitions)."""
        return tuple(self._runs)

    @property
    def events(self) -> tuple[Event, ...]:
        """The events in order, runs of equal ones as ``Repeated``."""
        return tuple(self)

    def epsilon(self, delta: ArrayLike = 0.0, accountant: str = "tightest") -> Any:
        """Return the epsilon of all events; see :func:`dpanalysis.privacy.epsilon`.

        At every value of an array ``delta``.
        """
        return at_each(lambda each: epsilon(self, each, self.relation, accountant), delta)

    def delta(self, epsilon: ArrayLike) -> Any:
        """Return the least delta of all events at ``epsilon``, a number or an array.

        Computed by :func:`dpanalysis.privacy.privacy_curve`.
        """
        return privacy_curve(self, self.relation).delta(epsilon)

    def first(self, count: int) -> list[Event]:
        """Return the first ``count`` events (or all), with runs of equal ones as ``Repeated``."""
        runs = first_runs(self._runs, count)
        return [event if times == 1 else Repeated(event, times) for event, times in runs]

    def plot(self, ax: Axes | None = None, *, delta: float = 1e-5) -> Axes:
        """Plot the epsilon of the first k events against k.

        Each value is for k events fixed in advance, not for a run that stops early.

        Parameters
        ----------
        ax : Axes, optional
            By default those of a new figure.
        delta : float, default=1e-5
            The delta of epsilon, in [0, 1).

        Raises
        ------
        ValueError
            If nothing was released, or epsilon is infinite at this delta.

        Examples
        --------
        >>> from dpanalysis.privacy.events import Laplace
        >>> ledger = Ledger("replace_one")
        >>> for _ in range(10):
        ...     ledger.record(Laplace(scale=100.0, sensitivity=1.0))
        >>> ax = ledger.plot(delta=0.0)
        >>> ax.get_ylabel(), ax.lines[0].get_ydata().round(2).tolist()[-1]
        ('epsilon at delta = 0', 0.1)
        """
        from ..plotting import drawing

        delta = check_number("delta", delta, low=0.0, high=1.0, high_open=True)
        if not self._length:
            raise ValueError("there is nothing to draw: nothing was released")
        counts, costs = self.costs(np.arange(self._length + 1), delta)
        with drawing(ax) as ax:
            ax.plot(counts, costs)
            ax.set(xlabel="events", ylabel=f"epsilon at delta = {delta:g}")
        return ax

    def costs(self, counts: np.ndarray, delta: float) -> tuple[np.ndarray, np.ndarray]:
        """Return indices of some sorted ``counts``, and epsilon of so many first events."""
        chosen = np.linspace(0, len(counts) - 1, min(len(counts), _PLOTTED)).round().astype(int)
        cost = {0: 0.0}  # no events
        for count in dict.fromkeys(counts[chosen].tolist()):
            if count:
                cost[count] = epsilon(self.first(count), delta, self.relation)
        if math.isinf(max(cost.values())):
            raise ValueError(f"epsilon is infinite at delta = {delta:g}: give a larger delta")
        return chosen, np.array([cost[count] for count in counts[chosen].tolist()])

    def __iter__(self) -> Iterator[Event]:
        for event, count in self._runs:
            yield event if count == 1 else Repeated(event, count)

    def __len__(self) -> int:
        return self._length

    def lines(self) -> list[str]:
        """Return the first runs of equal events as text, and how many more there are."""
        shown = [f"{count} x {event!r}" for event, count in self._runs[:_LISTED]]
        hidden = len(self._runs) - len(shown)
        return [*shown, f"... {hidden} more"] if hidden else shown

    def __repr__(self) -> str:
        title = f"Ledger({self.relation!r}, {self._length} events, {self.noise} noise)"
        return "\n".join([title, *(f"  {line}" for line in self.lines())])

    def _repr_html_(self) -> str:
        head = [("relation", self.relation), ("noise", self.noise), ("events", str(self._length))]
        return html_table([*head, *(("", line) for line in self.lines())])
