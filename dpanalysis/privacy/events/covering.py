"""Which event is certainly no dearer than another, whatever notion of privacy is asked."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from .base import Event
from .composed import Repeated, Sampled
from .releases import BoundedRange, Gaussian, Laplace, Pure
from .sparse import AboveThreshold

__all__ = ["covers"]


def covers(named: Event, asked: Event) -> bool:
    """Return whether ``asked`` costs no more than ``named`` in every notion of privacy.

    Whoever has been charged for ``named`` may release ``asked`` in its place. The two events are
    of exactly the same class, and no parameter of ``asked`` is worse:

    - Laplace, Gaussian: the sensitivity over the scale is not larger.
    - Pure, BoundedRange: epsilon is not larger.
    - AboveThreshold: the law of the noise and ``shared`` are the same, no scale over the
      sensitivity is smaller, and there are not more queries; None stands for no limit.
    - Repeated: the count is not larger, and the event is covered. An event by itself counts as
      repeated once.
    - Sampled: the sampling, n and the number of events are the same, and each event is covered
      by the one in the same place.

    Events of every other class cover equal events only.

    Parameters
    ----------
    named, asked : Event

    Returns
    -------
    bool
        False where nothing is known, also if ``asked`` happens to cost less.

    Raises
    ------
    TypeError
        If something is not an event.

    Notes
    -----
    *Why the parameters suffice.* Laplace and Gaussian noise of a larger scale is noise of the
    smaller scale plus independent noise. So more noise is less noise and a random step that looks
    at no record, which cannot cost more; and so is a randomised response of a smaller loss.
    BoundedRange states a set of releases, and the set of a smaller epsilon is a part of that of a
    larger one. For AboveThreshold measure everything in units of the sensitivity: the additional
    noise moves the public threshold and the queries by amounts that no record changes, and a run
    with fewer queries is one with more of which the last never halt. So every bound for ``named``
    is one for ``asked``. Composition and sampling preserve this.

    Examples
    --------
    >>> covers(Gaussian(std=1.0, sensitivity=1.0), Gaussian(std=4.0, sensitivity=2.0))
    True
    >>> covers(Pure(1.0), Pure(1.1)), covers(Pure(1.0), BoundedRange(0.5))
    (False, False)
    >>> covers(Repeated(Pure(1.0), 3), Pure(0.5))
    True
    """
    for event in (named, asked):
        if not isinstance(event, Event):
            raise TypeError(f"an event is needed, got {event!r}")
    (named, most), (asked, count) = _unrolled(named), _unrolled(asked)
    if count > most:
        return False
    if named is asked or named == asked:
        return True
    no_worse = _NO_WORSE.get(type(named))
    return no_worse is not None and type(asked) is type(named) and no_worse(named, asked)


def _unrolled(event: Event) -> tuple[Event, int]:
    """Return the event that is repeated, and how often."""
    count = 1
    while type(event) is Repeated:
        count, event = count * event.count, event.event
    return event, count


def _above_threshold(named: AboveThreshold, asked: AboveThreshold) -> bool:
    if (named.noise, named.shared) != (asked.noise, asked.shared):
        return False
    if asked.sensitivity == 0.0:
        return True
    queries = math.inf if asked.max_queries is None else asked.max_queries
    return (
        asked.sensitivity / asked.threshold_scale <= named.sensitivity / named.threshold_scale
        and asked.sensitivity / asked.query_scale <= named.sensitivity / named.query_scale
        and (named.max_queries is None or queries <= named.max_queries)
    )


def _sampled(named: Sampled, asked: Sampled) -> bool:
    return (
        (named.sampling, named.n) == (asked.sampling, asked.n)
        and len(named.events) == len(asked.events)
        and all(map(covers, named.events, asked.events))
    )


# By the exact class: a subclass may cost something else.
_NO_WORSE: dict[type, Callable[[Any, Any], bool]] = {
    Laplace: lambda named, asked: asked.pure_cost() <= named.pure_cost(),
    Gaussian: lambda named, asked: asked.mu <= named.mu,
    Pure: lambda named, asked: asked.epsilon <= named.epsilon,
    BoundedRange: lambda named, asked: asked.epsilon <= named.epsilon,
    AboveThreshold: _above_threshold,
    Sampled: _sampled,
}
