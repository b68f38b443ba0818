"""Check a claim of privacy, or a sensitivity, over pairs of neighbouring data sets."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from .._validation import check_finite, check_fraction, check_int, check_number, check_reals
from ..privacy.accounting.relations import REPLACE_ONE, Budget, check_relation
from ..privacy.mechanisms import spawn
from .counting import samples_for
from .outcomes import draw_pairs, pairs_of
from .recording import Finding, record
from .verify import Claimed, Mechanism, Verdict, parse_claim, verify_privacy

__tracebackhide__ = True  # pytest shows the line that calls this package

_DRAWN = 1000  # most pairs drawn from a strategy
_FIRST = 5.0  # runs on both data sets that a recording makes however long they take
_SHOWN = 2000  # most characters of a data set in a message


def sensitivity(
    function: Callable[[Any], Any], neighbours: Any, norm: float, *, full_output: bool = False
) -> Any:
    """Return the largest norm of function(D) - function(D') over the pairs (D, D').

    The result is a lower bound on the sensitivity, and the sensitivity itself if all existing pairs
    are given. The pair found refutes any smaller claimed bound. Chen and Lee (2020), Definition 4.

    Parameters
    ----------
    function : callable
        D -> scalar or array of finite numbers, of one shape for both members of a pair.
    neighbours : iterable of (dataset, neighbour), or Hypothesis strategy of such pairs
        At least one pair; data sets are whatever ``function`` takes. The first 1000 pairs of a
        strategy are tried, the same in every run.
    norm : float
        Order in [1, inf] of the vector norm, e.g. 1, 2 or ``math.inf``. All entries of an
        output count as one vector, so the norm of a matrix is not its operator norm.
    full_output : bool, default=False
        Also return the pair where the largest change was found.

    Returns
    -------
    float
        At least 0.
    pair : tuple
        Only with ``full_output``.

    Examples
    --------
    >>> pairs = [([0, 1, 1], [0, 1]), ([0, 1, 1], [1, 1])]
    >>> sensitivity(lambda data: np.bincount(data, minlength=2), pairs, norm=1)
    1.0
    """
    if not callable(function):
        raise TypeError(f"function must be callable, got {function!r}")
    order = check_number("norm", norm, low=1.0, finite=False)
    largest, worst = -math.inf, None
    for number, (first, second) in enumerate(pairs_of(neighbours, _DRAWN)):
        values = []
        for side, data in enumerate((first, second)):
            name = f"function(pair {number}[{side}])"
            values.append(check_finite(name, check_reals(name, function(data))))
        if values[0].shape != values[1].shape:
            raise ValueError(
                f"function must return one shape for both data sets, pair {number} gave "
                f"{values[0].shape} and {values[1].shape}"
            )
        change = _norm(values[0] - values[1], order)
        if change > largest:
            largest, worst = change, (first, second)
    if worst is None:
        raise ValueError("neighbours must hold at least one pair, got none")
    return (largest, worst) if full_output else largest


def _norm(change: np.ndarray, order: float) -> float:
    size = np.abs(change).ravel()
    top = float(size.max(initial=0.0))
    if top == 0.0 or math.isinf(order):
        return top
    # Relative to the largest entry, so that no power overflows.
    return top * float(np.sum((size / top) ** order)) ** (1.0 / order)


# A claim of privacy


def assert_private(
    mechanism: Mechanism,
    claim: Claimed,
    *,
    neighbours: Any = None,
    dataset: Any = None,
    neighbour: Any = None,
    relation: str | None = None,
    delta: float = 0.0,
    pairs: int = 10,
    samples: int = 100_000,
    confidence: float = 1 - 1e-9,
    rng: Any = 0,
    vectorized: bool = True,
    recording: bool = True,
    seconds: float = 5.0,
    time_limit: float = math.inf,
) -> tuple[Verdict, ...]:
    """Raise AssertionError if a mechanism is found to be less private than claimed.

    Each pair is checked twice: by :func:`~dpanalysis.audit.record`, which replays the same noise
    on both data sets and names the line, and by :func:`~dpanalysis.audit.verify_privacy`, which
    bounds epsilon from outputs. The last line of the message says which of the two found it. A
    mechanism that never looks at the changed record does not pass but is "untested".

    In tests under pytest, use the fixture ``assert_private``, which comes with the package.
    A passing test is no certificate, see :func:`~dpanalysis.audit.verify_privacy`.

    Parameters
    ----------
    mechanism, claim, delta, rng, vectorized
        As for :func:`~dpanalysis.audit.verify_privacy`; an int ``rng`` makes the test repeatable.
    neighbours : iterable of (dataset, neighbour), or Hypothesis strategy of such pairs, optional
        The inputs to try, from the mechanism's domain. The first ``pairs`` pairs that a
        strategy yields are tried, the same in every run. By default they are drawn from
        :func:`dpanalysis.audit.strategies.neighbouring_datasets` under the relation: pairs of
        ``(X, y)`` with rows in the unit ball and labels -1 and +1. That default does not test
        whether a mechanism clips longer rows.
    dataset, neighbour : object, optional
        One pair instead of ``neighbours``, as in a test to which Hypothesis passes a pair.
    relation : {"replace_one", "add_or_remove_one"}, optional
        By default that of the budget. Without one, pairs are drawn for "replace_one", and given
        pairs may be neighbours under either relation.
    pairs : int, default=10
        How many pairs to draw, at least 1.
    samples : int, default=100_000
        Runs on each data set of each pair.
    confidence : float, default=1 - 1e-9
        One minus the rate of false alarms of this call as a whole: each of k pairs is tested at
        ``1 - (1 - confidence)/k``.
    recording : bool, default=True
        Whether to record as well. A recording adds nothing to the rate of false alarms, but treats
        as a mistake every scale that depends on the data, and every number of draws that does if
        the output's shape does, too, unless the released noise is seen to satisfy the claim. Switch
        it off if a proof allows more.
    seconds : float, default=5
        Time for the recordings of all pairs together: none of their runs starts later, except the
        first ones of a pair. If ``time_limit`` leaves no time for these, nothing is recorded.
    time_limit : float, default=inf
        Approximate total time in seconds. Each pair gets its share of what is left, and fewer runs
        if they would take longer, as estimated by smaller audits before and by the last pair. If
        there is no time for the runs that the claim needs, a pair's outputs are not tested.

    Returns
    -------
    tuple of Verdict
        One per pair for which there was time: none refutes the claim, and not all are untested.

    Raises
    ------
    AssertionError
        If a pair refutes the claim, by its outputs or by its recording, if the mechanism does not
        look at the changed record of any pair, or if there was no time for any pair; the message
        shows the confidence and the pair. In a Hypothesis test an untested pair is rejected like a
        false assumption.

    Examples
    --------
    >>> def noisy_sum(dataset, rng, size):
    ...     X, y = dataset
    ...     return X.sum() + rng.laplace(0.0, 2.0, size)
    >>> import numpy as np
    >>> one, other = (np.array([[x], [0.0]]) for x in (1.0, -1.0))
    >>> labels = np.ones(2)
    >>> pair = (one, labels), (other, labels)
    >>> [verdict.refuted for verdict in assert_private(noisy_sum, 1.0, neighbours=[pair])]
    [False]
    >>> assert_private(noisy_sum, 0.5, neighbours=[pair])
    Traceback (most recent call last):
    AssertionError: refuted: epsilon >= 0.9... where 0.5 is claimed ...
    """
    confidence = check_fraction("confidence", confidence)
    samples = check_int("samples", samples, low=1)
    seconds = check_number("seconds", seconds, low=0.0)
    end = time.monotonic() + check_number("time_limit", time_limit, low=0.0, finite=False)
    if relation is not None:
        check_relation(relation)
    chosen, origin = _pairs(neighbours, dataset, neighbour, relation, claim, pairs)
    share = 1.0 - (1.0 - confidence) / len(chosen)
    limited, needed = end < math.inf, 0
    if limited:
        asked, needed = parse_claim(claim, delta), samples
        with suppress(ValueError):  # if no test can refute the claim, the audit raises
            needed = min(samples, samples_for(asked.limit, asked.level, 1.0 - share))
    shared: dict[str, Any] = {"delta": delta, "relation": relation, "vectorized": vectorized}
    verdicts: list[Verdict] = []
    per_run = 0.0  # seconds of a run on both data sets, including learning
    for number, ((first, second), source) in enumerate(zip(chosen, spawn(rng, len(chosen))), 1):
        audit = partial(verify_privacy, mechanism, first, second, claim, confidence=share, **shared)
        start = time.monotonic()
        stop = start + (end - start) / (len(chosen) - number + 1)
        found: list[Finding] = []
        allowed, expected, looked = min(seconds, 0.5 * (stop - start)), per_run, True
        if limited and not expected:  # the first may import or compile what it needs
            expected = 2.0 * min(_seconds_of_a_run(mechanism, first, vectorized) for _ in range(2))
        if recording and allowed > 0.0 and _FIRST * expected <= stop - start:
            recorded = record(mechanism, first, second, claim=claim, seconds=allowed, **shared)
            # If a pair shows nothing, this is no mistake of the mechanism.
            found = [f for f in recorded.findings if f.kind != "untested"]
            raised = any("nothing was compared" in f.message for f in recorded.findings)
            looked = recorded.looked or raised  # a call on several runs may not raise
            seconds = max(0.0, seconds - (time.monotonic() - start))
        verdict, runs = None, samples
        try:
            if limited:
                runs = _affordable(audit, needed, samples, stop, expected, per_run > 0.0)
            start = time.monotonic()
            if runs >= needed:
                verdict = audit(samples=runs, rng=source)
        except ValueError as error:
            if not found:
                if neighbours is not None or dataset is not None:
                    raise
                given = f"no neighbours were given, so the data sets are pairs (X, y) {origin}"
                raise ValueError(f"{error}; {given}") from error
        if verdict is not None:
            verdict = replace(verdict, untested=verdict.untested or not looked)
            if runs < samples:
                note = f"There was time for {runs:,} of {samples:,} runs"
                verdict = replace(verdict, notes=(*verdict.notes, note))
            verdicts.append(verdict)
            per_run = (time.monotonic() - start) / runs
        if found or (verdict is not None and verdict.refuted):
            where = (
                f"Pair {number} of {len(chosen)}, {origin}:\n"
                f"dataset = {_shown(first)}\nneighbour = {_shown(second)}"
            )
            raise AssertionError(_report(verdict, found, where))
    if not verdicts:
        raise AssertionError(
            f"untested: time_limit={time_limit:g} leaves no time for the {needed:,} runs of a pair "
            "that the claim needs"
        )
    if all(verdict.untested for verdict in verdicts):
        hypothesis = sys.modules.get("hypothesis")
        if hypothesis and hypothesis.currently_in_test_context():
            hypothesis.reject()
        raise AssertionError(
            f"{verdicts[0]}\nNone of {len(chosen)} pairs, {origin}, was tested: the mechanism "
            "never looked at the changed record"
        )
    return tuple(verdicts)


def _affordable(
    audit: Callable[..., Verdict], needed: int, samples: int, stop: float, each: float, tried: bool
) -> int:
    """Return how many runs fit into an audit's time; if fewer than ``needed``, none is made."""
    # If there is no time for a trial audit, half of the time is reserved for learning.
    pilot = needed
    while not tried and pilot <= samples // 8 and pilot * each <= (stop - time.monotonic()) / 8.0:
        start = time.monotonic()
        audit(samples=pilot, rng=0)
        each, pilot = max(1e-12, (time.monotonic() - start) / pilot), 8 * pilot
    most = min(samples, int(max(0.0, stop - time.monotonic()) / max(each, 1e-12)))
    return most if tried or pilot > needed else max(min(needed, most), min(samples, most // 2))


def _seconds_of_a_run(mechanism: Mechanism, data: Any, vectorized: bool) -> float:
    """Return the seconds that one run takes; it is not part of a test."""
    start, random = time.monotonic(), np.random.default_rng(0)
    with suppress(Exception), np.errstate(all="ignore"):  # an outcome like others
        mechanism(data, random, 1) if vectorized else mechanism(data, random)
    return time.monotonic() - start


def _report(verdict: Verdict | None, found: Sequence[Finding], where: str) -> str:
    """Return the message: what was found and, in the last line, by which of the two."""
    lines = [str(verdict)]
    if verdict is None or not verdict.refuted:
        outputs = "outputs were not judged" if verdict is None else f"by outputs {verdict}"
        lines = [f"refuted by the recording; {outputs}"]
    lines += [f"recording [{finding.kind}]: {finding}" for finding in found]
    if found and verdict is not None and verdict.refuted:
        by = f"found by the recording and by the outputs: {found[0]}"
    elif found:
        by = f"found by the recording alone, not by the outputs: {found[0]}"
    else:
        assert verdict is not None
        by = (
            f"found by the outputs alone, not by the recording: {verdict.bounded} >= "
            f"{verdict.bound:.4g} where {verdict.claim:.4g} is claimed"
        )
    return "\n".join([*lines, where, by])


def _pairs(
    neighbours: Any, dataset: Any, neighbour: Any, relation: str | None, claim: Any, count: int
) -> tuple[list[tuple[Any, Any]], str]:
    """Return the pairs to try and a description of their origin."""
    if (dataset is None) != (neighbour is None):
        raise ValueError("dataset and neighbour must be given together")
    if dataset is not None:
        if neighbours is not None:
            raise ValueError("give either neighbours, or dataset and neighbour")
        return [(dataset, neighbour)], "as given"
    count = check_int("pairs", count, low=1)
    if neighbours is None:
        from .strategies import neighbouring_datasets

        default = claim.relation if isinstance(claim, Budget) else REPLACE_ONE
        relation = relation or default
        drawn = draw_pairs(neighbouring_datasets(relation), count)
        return drawn, f"drawn from neighbouring_datasets({relation!r})"
    chosen = list(pairs_of(neighbours, count))
    if not chosen:
        raise ValueError("neighbours must hold at least one pair (dataset, neighbour), got none")
    given = isinstance(neighbours, Iterable)
    return chosen, "as given" if given else f"drawn from {neighbours!r}"


def _shown(data: Any) -> str:
    text = repr(data)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(text):,} characters)"
