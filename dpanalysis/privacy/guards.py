"""Who says no: what a filter and a plan have in common.

Both compare with a relative slack of 1e-9, which absorbs the rounding of costs: a budget of
1 may be exceeded by 1e-9, and no more, since sums of costs are compensated. Both charge
under a lock: two threads that spend from one guard are never promised the same remainder.
A copy of a guard, in this process or another, would be a second budget: it can be looked at,
and refuses to spend.
"""

from __future__ import annotations

import threading
from typing import Any, Protocol

from .events import Event

__all__ = ["SLACK", "Guard", "Original"]

SLACK = 1e-9


class Guard(Protocol):
    """What the oracle buys a batch from: a filter, or a plan fixed beforehand."""

    def can_spend(self, event: Event) -> bool:
        """Say whether ``event`` may be released now; without side effects."""

    def spend(self, event: Event) -> None:
        """Charge ``event``, or raise and charge nothing; no other thread comes between."""


class Original:
    """A guard that charges under a lock, whose copies refuse to spend and whose limit stays."""

    def __init__(self) -> None:
        self._lock: threading.RLock | None = threading.RLock()

    def _only_one(self) -> threading.RLock:
        """Return the lock of the original, or raise RuntimeError in a copy of it."""
        if self._lock is None:
            raise RuntimeError(
                f"this {type(self).__name__} is a copy, and two could grant the same budget twice: "
                "spend from the original, or give every process a budget of its own"
            )
        return self._lock

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_") and name in self.__dict__:
            kind = type(self).__name__
            raise AttributeError(f"{name} cannot be changed: this {kind} was made with its limit")
        super().__setattr__(name, value)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_lock": None}
