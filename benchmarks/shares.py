"""Breakdown of a call's time by clocks around functions; nested time is counted once."""

from __future__ import annotations

import functools
import importlib
import operator
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

REST = "the rest"

# Functions of each part of a run, as "module:path". Calls of another part's functions are charged
# to that part.
PARTS: dict[str, tuple[str, ...]] = {
    "sums over the data": (
        "dpanalysis.kernels.compiled:run_tasks",
        "dpanalysis.kernels.norms:run_tasks",
        "dpanalysis.problems.networks.base:NetworkSums.sums",
        "dpanalysis.problems.rows.memory:InMemoryRows.predictions",
        "dpanalysis.problems.rows.memory:InMemoryRows.hessian_sum",
        "dpanalysis.problems.rows.memory:InMemoryRows.check_unchanged",
        "dpanalysis.problems.erm:formula_values",
    ),
    "drawing batches": (
        "dpanalysis.privacy.accounting.sampling:Poisson.draw",
        "dpanalysis.privacy.accounting.sampling:WithoutReplacement.draw",
    ),
    "noise": (
        "dpanalysis.privacy.mechanisms:add_noise",
        "dpanalysis.privacy.mechanisms:noisy",
        "dpanalysis.privacy.mechanisms:nearly",
        "dpanalysis.privacy.mechanisms:Threshold.__init__",
        "dpanalysis.privacy.mechanisms:Threshold.reached",
    ),
    "accounting": (
        "dpanalysis.experiments.loop:Loop.__init__",  # calibrates the noise
        "dpanalysis.privacy.budget:Plan.__init__",
        "dpanalysis.privacy.budget:Plan.spend",
        "dpanalysis.privacy.budget:Filter.__init__",
        "dpanalysis.privacy.budget:Filter.can_spend",
        "dpanalysis.privacy.budget:Filter.spend",
        "dpanalysis.privacy.ledger:Ledger.record",
        "dpanalysis.privacy.ledger:Ledger.epsilon",
        "dpanalysis.privacy.oracle:PrivateOracle.gradient_event",
        "dpanalysis.privacy.oracle:sampled_event",
        "dpanalysis.methods.line_search:gradient_event",
        "dpanalysis.privacy.queries:FirstDecrease.event",
        "dpanalysis.linear_model.runs:descent",
        "dpanalysis.linear_model.runs:default_penalty",
    ),
}


class Clock:
    """Seconds of each part; time is charged to the innermost part."""

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now, self._inside = now, [REST]
        self.seconds = dict.fromkeys((*PARTS, REST), 0.0)
        self._since = now()

    def _charge(self) -> None:
        now = self._now()
        self.seconds[self._inside[-1]] += now - self._since
        self._since = now

    def around(self, function: Callable[..., Any], part: str) -> Callable[..., Any]:
        """Wrap the function so that its time is charged to ``part``."""

        @functools.wraps(function)
        def timed(*arguments: Any, **named: Any) -> Any:
            self._charge()
            self._inside.append(part)
            try:
                return function(*arguments, **named)
            finally:
                self._charge()
                self._inside.pop()

        return timed

    def read(self) -> dict[str, float]:
        """Return the seconds of each part so far."""
        self._charge()
        return dict(self.seconds)


def owner(where: str) -> tuple[Any, str]:
    """Return the owner of a function named as in :data:`PARTS`, and its attribute name.

    Raises
    ------
    AttributeError
        If there is no such function.
    """
    module, _, path = where.partition(":")
    holder, _, name = path.rpartition(".")
    found: Any = importlib.import_module(module)
    found = operator.attrgetter(holder)(found) if holder else found
    getattr(found, name)
    return found, name


@contextmanager
def clocks(parts: Mapping[str, Sequence[str]] = PARTS) -> Iterator[Clock]:
    """Put a clock around all these functions; restore them at the end."""
    places = [(part, *owner(where)) for part, names in parts.items() for where in names]
    before = [(holder, name, vars(holder).get(name)) for _, holder, name in places]
    clock = Clock()
    try:
        for part, holder, name in places:
            setattr(holder, name, clock.around(getattr(holder, name), part))
        yield clock
    finally:
        for holder, name, function in before:
            if function is None:  # inherited
                delattr(holder, name)
            else:
                setattr(holder, name, function)


def spent(call: Callable[[], object]) -> dict[str, float]:
    """Return the seconds of each part of one call."""
    with clocks() as clock:
        before = clock.read()
        call()
        after = clock.read()
    return {part: after[part] - before[part] for part in after}
