"""A verifier for anybody's mechanism: a lower bound on epsilon from its outputs alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._validation import check_int, check_number
from ...privacy.relations import Budget, check_relation
from .neighbours import check_neighbours
from .runs import Mechanism, counted
from .verdict import GaussianPrivacy, Verdict, claimed

__all__ = ["Mechanism", "verify_privacy"]


def verify_privacy(
    mechanism: Mechanism,
    dataset: Any,
    neighbour: Any,
    claim: float | Budget | GaussianPrivacy,
    *,
    delta: float = 0.0,
    samples: int = 1_000_000,
    confidence: float = 1 - 1e-9,
    rng: Any = None,
    relation: str | None = None,
    vectorized: bool = True,
) -> Verdict:
    r"""Test whether a mechanism can be as private as claimed, from its outputs alone.

    Under :math:`(\epsilon, \delta)`-differential privacy every event :math:`S` has
    :math:`P(M(D) \in S) \le e^\epsilon P(M(D') \in S) + \delta`, so one event bounds epsilon
    from below by :math:`\ln((p - \delta)/q)`. The mechanism runs ``samples`` times on each of
    the two inputs. From some of the runs (a quarter, or more at a low confidence; at most
    262,144, or 65,536 where outputs are vectors) an event is learned: likelihood-ratio sets of
    the output, of its coordinates, projections and norms, and of classifiers trained on it,
    where scikit-learn is installed its gradient-boosted trees too. It is the one whose bound
    will be best after its own uncertainty is charged or, where no event promises a bound above
    the claim, the one that is most likely to refute it. In the other runs this one event is
    counted, in the direction chosen before, and both counts are tested together (:mod:`.joint`):
    exactly, not by an approximation. So whatever was learned, a correct mechanism is refuted
    with probability at most 1 - ``confidence``. Where the release is Gaussian,
    :func:`verify_gaussian` assumes so and needs fewer runs.

    A :class:`GaussianPrivacy` claims a whole trade-off curve: a pair (p, q) refutes it wherever
    :math:`p > \Phi(\Phi^{-1}(q) + \mu)`. Nothing is assumed about the outputs, and common events
    tell: of Gaussian noise that is too small this claim falls with far fewer runs than the claim
    at a small delta, which only rare events contradict.

    Outcomes may be numbers, vectors, integers, truth values, texts or other objects that can be
    compared. NaN, each infinity, an output of another shape and an exception (by its type) are
    outcomes as well. Outputs are compared as numbers in double precision; which of several
    floating-point neighbours was returned (Mironov, 2012) is not looked at.

    Parameters
    ----------
    mechanism : callable
        ``mechanism(dataset, rng, size)`` returns ``size`` independent runs: shape (size,) or
        (size, k), or a sequence of ``size`` objects. With ``vectorized=False``,
        ``mechanism(dataset, rng)`` is one run and may return anything.
    dataset, neighbour : object
        The two inputs, passed as they are. Arrays of two axes, sparse matrices, tuples
        ``(X, y)``, problems and data sets are compared row by row and must be neighbours;
        anything else is up to the caller.
    claim : float, Budget or GaussianPrivacy
        Epsilon in [0, inf), or a budget; a zCDP budget is converted at ``delta``. Or mu.
    delta : float, default=0
        In [0, 1); 0 where mu is claimed.
    samples : int, default=1_000_000
        Runs of each input.
    confidence : float, default=1 - 1e-9
        In (0, 1): one minus the rate of false alarms that is allowed.
    rng : None, int, SeedSequence, Generator, SystemRandom or "os"
        The two inputs get independent children of it.
    relation : {"replace_one", "add_or_remove_one"}, optional
        Under which relation the inputs are neighbours. If it is given, the entries of arrays
        with one axis count as records, too. By default that of the budget, or else any of the
        two.
    vectorized : bool, default=True
        How the mechanism is called. If a call on many runs raises, the exception cannot be
        attributed to one of them; 20,000 runs of each input are then made by calls with
        ``size=1``, and the verdict says so.

    Returns
    -------
    Verdict

    Raises
    ------
    ValueError
        If a number is outside its range, ``samples`` are too few to refute the claim whatever
        they show, the inputs are not neighbours, or the mechanism returns the wrong number of
        rows, raises in every run, repeats its samples or changes its input.
    TypeError
        If an argument is of the wrong kind, or outputs cannot be compared.

    References
    ----------
    Ding, Wang, Wang, Zhang, Kifer (2018); Bichsel, Steffen, Bogunovic, Vechev (2021); Berger,
    Boos (1994); Dong, Roth, Su (2022).

    Examples
    --------
    Laplace noise whose standard deviation, not its scale, is 1/epsilon:

    >>> def mechanism(count, rng, size):
    ...     return count + rng.laplace(0.0, 1.0 / np.sqrt(2.0), size)
    >>> verdict = verify_privacy(mechanism, 0, 1, claim=1.0, samples=100_000, rng=0)
    >>> verdict.refuted, round(verdict.epsilon, 1)
    (True, 1.3)
    >>> outputs = mechanism(0, np.random.default_rng(1), 100_000)
    >>> round(float(verdict.event(outputs).mean()), 1), verdict.likelier
    (0.5, 'dataset')
    >>> def correct(count, rng, size):
    ...     return count + rng.laplace(0.0, 1.0, size)
    >>> print(verify_privacy(correct, 0, 1, claim=1.0, samples=100_000, rng=0))
    not refuted: epsilon >= 0.9... where 1 is claimed (delta = 0, confidence 1 - 1e-09). ...
    """
    if not callable(mechanism):
        raise TypeError(f"mechanism must be callable, got {mechanism!r}")
    asked = claimed(claim, delta)
    samples = check_int("samples", samples, low=1)
    confidence = check_number(
        "confidence", confidence, low=0.0, high=1.0, low_open=True, high_open=True
    )
    if not isinstance(vectorized, (bool, np.bool_)):
        raise TypeError(f"vectorized must be True or False, got {vectorized!r}")
    if relation is not None:
        check_relation(relation)
    check_neighbours(dataset, neighbour, relation, asked.relation)
    found = counted(
        mechanism,
        (dataset, neighbour),
        asked.limit,
        asked.level,
        samples=samples,
        confidence=confidence,
        rng=rng,
        vectorized=bool(vectorized),
    )
    return Verdict(
        refuted=found.level > asked.level,
        bound=found.level,
        bounded=asked.name,
        claim=asked.level,
        delta=asked.delta,
        confidence=confidence,
        event=found.event,
        likelier=found.likelier,
        counts=found.counts,
        runs=found.runs,
        samples=found.samples,
        bounds=found.pair,
        notes=asked.notes + found.notes,
    )
