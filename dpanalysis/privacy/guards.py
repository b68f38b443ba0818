"""Who says no: what a filter and a plan have in common.

Both compare with a relative slack of 1e-9, which absorbs the rounding of costs: a budget of
1 may be exceeded by 1e-9, and no more, since sums of costs are compensated. Both charge
under a lock: two threads that spend from one guard are never promised the same remainder.
A copy of a guard, in this process or another, would be a second budget: it can be looked at,
and refuses to spend. A fork copies without a call that could be caught, so a guard remembers the
process that it was made in.
"""

from __future__ import annotations

import os
import threading
from typing import Any, Protocol

import numpy as np

from .events import Event

__all__ = ["SLACK", "Guard", "Original", "refuse_branch"]

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
        self._process = os.getpid()
        self._seeds: set[tuple[bytes, int]] = set()

    def _only_one(self) -> threading.RLock:
        """Return the lock of the original, or raise RuntimeError in a copy of it."""
        if self._lock is None or self._process != os.getpid():
            raise RuntimeError(
                f"this {type(self).__name__} is a copy, and two could grant the same budget twice: "
                "spend from the original, in the process that it was made in, or give every "
                "process a budget of its own"
            )
        return self._lock

    def claim_seed(self, seed: Any) -> None:
        """Remember a seed of noise that is paid from here, or refuse one used before.

        Two runs from one seed draw the same noise, and their difference has none: composition
        wants fresh noise for every release. Seeds are compared by the state that NumPy makes of
        them, so 9, ``SeedSequence([9])`` and ``default_rng(9)`` are one seed.

        Parameters
        ----------
        seed : None, int, SeedSequence, Generator, SystemRandom or "os"
            What the noise will be drawn from, before anything is spawned from it.

        Raises
        ------
        ValueError
            If the seed has been used under this guard. A Generator or a SeedSequence that
            children were spawned from goes on with other children, and is another seed then.
        RuntimeError
            If this guard is a copy of another.
        """
        with self._only_one():
            state = _state(seed)
            if state in self._seeds:
                shown = f" = {int(seed)}" if isinstance(seed, int | np.integer) else ""
                raise ValueError(
                    f"rng{shown} has been used under this {type(self).__name__.lower()}: two runs "
                    "would have the same noise, and their difference none; give another seed, or "
                    "one Generator to both"
                )
            if state is not None:
                self._seeds.add(state)

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_") and name in self.__dict__:
            kind = type(self).__name__
            raise AttributeError(f"{name} cannot be changed: this {kind} was made with its limit")
        super().__setattr__(name, value)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_lock": None}


def refuse_branch(guard: Any) -> None:
    """Raise TypeError for a branch of a filter, which grants what the filter grants as well."""
    if getattr(guard, "is_branch", False):
        raise TypeError(f"guard must be no branch of a filter, got {guard!r}")


def _state(seed: Any) -> tuple[bytes, int] | None:
    """Return what the streams spawned from ``seed`` depend on; None where they are fresh."""
    if isinstance(seed, int | np.integer):
        seed = np.random.SeedSequence(int(seed))
    if isinstance(seed, np.random.Generator):
        seed = seed.bit_generator.seed_seq
    if not hasattr(seed, "generate_state"):
        return None
    return seed.generate_state(4, np.uint64).tobytes(), getattr(seed, "n_children_spawned", 0)
