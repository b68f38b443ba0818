"""A problem and an oracle that notice who looks behind the door."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from ..experiments.loop import Loop
from ..privacy import oracle as door
from ..privacy.oracle import Batch, PrivateOracle
from ..problems.base import Problem

__all__ = ["Complaints", "Sealed", "WatchingLoop"]

_ALLOWED = ("dpanalysis.experiments.loop", __name__)
# Of the oracle's public names, the one that tells how large the batches were.
_SECRET = ("evaluations", "__dict__")


class Complaints:
    """What was seen, kept also where a method catches the exception."""

    def __init__(self) -> None:
        self.first: str | None = None

    def raise_it(self, sentence: str) -> None:
        """Note a sentence and raise AssertionError."""
        self.first = self.first or sentence
        raise AssertionError(sentence)


def _inside_the_door() -> bool:
    """Whether the oracle is at work: no code of a method runs above it on the stack.

    While a method asks an open batch, the generator that holds it open is not on the stack.
    """
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if frame.f_globals.get("__name__") == door.__name__:
            return True
        frame = frame.f_back
    return False


def _through(name: str) -> Any:
    """Return a member that asks the sealed problem, for the door alone."""

    def member(self: Any, *arguments: Any, **options: Any) -> Any:
        self._touched(name)
        return getattr(self._sealed, name)(*arguments, **options)

    return member


class Sealed(Problem):
    """A problem whose records answer the oracle alone."""

    gradient_sum = _through("gradient_sum")
    along = _through("along")
    hessian_sum = _through("hessian_sum")
    hvp_sum = _through("hvp_sum")
    minimise_tilted = _through("minimise_tilted")
    value = _through("value")
    gradient = _through("gradient")

    def __init__(self, inner: Problem, complaints: Complaints) -> None:
        self._sealed, self._complaints = inner, complaints
        self.n, self.d, self.mu, self.L = inner.n, inner.d, inner.mu, inner.L
        self.regularizer = inner.regularizer

    def __getattr__(self, name: str) -> Any:
        self._touched(name)
        return getattr(self._sealed, name)

    def _touched(self, name: str) -> None:
        if not _inside_the_door():
            self._complaints.raise_it(
                f"the method looks at the records: it uses the problem's {name} outside the "
                "oracle, whose noise and charge it so avoids; ask oracle.gradient or oracle.ask"
            )

    def facts(self, relation: str) -> Any:
        """See :class:`Problem`."""
        return self._sealed.facts(relation)

    def check_clipping(self, clipping: Any) -> None:
        """See :class:`Problem`."""
        self._sealed.check_clipping(clipping)

    def initial(self, rng: Any = None) -> Any:
        """See :class:`Problem`."""
        return self._sealed.initial(rng)


class _Watched:
    """Attributes that begin with an underscore are for the door alone."""

    def __getattribute__(self, name: str) -> Any:
        found = object.__getattribute__(self, name)
        hidden = name in _SECRET or (name.startswith("_") and not name.startswith("__"))
        if hidden and not _inside_the_door():
            caller = sys._getframe(1).f_globals.get("__name__")
            if caller not in _ALLOWED:
                _complaints_of(self).raise_it(
                    f"the method reads {name!r} of the oracle or of its batch, which is not "
                    "covered by any charge: a method may use the answers, the public facts, the "
                    "guard and the ledger"
                )
        return found

    def __setattr__(self, name: str, value: Any) -> None:
        if not _inside_the_door() and name not in ("__class__", "_complaints"):
            _complaints_of(self).raise_it(f"the method sets {name!r} of the oracle or of its batch")
        object.__setattr__(self, name, value)


def _complaints_of(watched: Any) -> Complaints:
    kept = object.__getattribute__(watched, "__dict__")
    return kept["_complaints"] if "_complaints" in kept else _complaints_of(kept["_oracle"])


class _Batch(_Watched, Batch):
    pass


class _Oracle(_Watched, PrivateOracle):
    """An oracle that notices who reads more than its answers."""

    def __init__(self, complaints: Complaints, *arguments: Any) -> None:
        object.__setattr__(self, "_complaints", complaints)
        super().__init__(*arguments)

    @contextmanager
    def batch(self, sampling: Any, events: Any) -> Iterator[Batch]:
        """See :class:`PrivateOracle`."""
        with super().batch(sampling, events) as batch:
            batch.__class__ = _Batch
            yield batch


class WatchingLoop(Loop):
    """A loop whose oracles notice who looks behind the door."""

    complaints: Complaints

    def oracles(self, problem: Any, random: Sequence[Any]) -> list[PrivateOracle]:
        """Return the oracles, around a sealed problem."""
        sealed = Sealed(problem, self.complaints)
        together = [list(random)] if self._method.together else [[each] for each in random]
        return [
            _Oracle(self.complaints, sealed, self._facts, self._guard(), each) for each in together
        ]

    def check_cost(self) -> None:
        """Raise PrivacyBudgetExceeded where what is planned costs more than the budget."""
        self._guard()

    @property
    def plan(self) -> Any:
        """What the method prepared."""
        return self._plan

    @property
    def planned(self) -> Any:
        """The events that the method plans; None where they depend on answers."""
        return None if self._adapts else self._planned
