"""Mistakes with the weights that bound what one record adds to a sum of gradients."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
from scipy import special

from ... import clipping, privacy, theory
from ...losses import Logistic
from ...privacy.events import Laplace
from ...privacy.relations import ADD_OR_REMOVE_ONE
from ..papers.value_clipping_printed import printed_weak_growth_mlp
from .base import Mutant
from .releases import NoisySum

__all__ = ["MUTANTS"]

# Where the logistic loss has the steepest slope for its height: the bound of weak growth is
# attained, so that a clipped gradient has norm C.
_STEEPEST = 0.92142
_SMALL_NORM = 0.1
_GAIN = 16.0
_BLOCK = 4


def _by_value(rows: Any, mean: bool) -> float:
    """Return the sum of the slopes of logistic losses at -margins ``rows``, clipped by value.

    With ``mean`` the mean loss decides the weight of every sample.
    """
    negative_margins = np.asarray(rows, dtype=np.float64)
    losses = np.logaddexp(0.0, negative_margins)
    rule = clipping.Value(_SMALL_NORM, *Logistic().weak_growth(1.0))
    weights = rule.weight(None, np.full_like(losses, losses.mean()) if mean else losses)
    return math.fsum(weights * special.expit(negative_margins))


def _network(rows: Any, printed: bool) -> float:
    """Return a sum of gradients of a ReLU network with layers 1 x 1, 1 x 1 and 2 x 1.

    The rows are the inputs, in [0, 1]. All gradients point along one line: their sum is a number.
    ``printed`` says how the constant of weak growth is computed.
    """
    x = np.asarray(rows, dtype=np.float64)
    last = 0.5 * _STEEPEST / _GAIN**2  # the scores are -last gain^2 x of the label, and the other
    losses = np.logaddexp(0.0, _STEEPEST * x)
    length = math.sqrt(2.0 * _GAIN**4 + 8.0 * (last * _GAIN) ** 2)
    gradients = length * x * special.expit(_STEEPEST * x)
    norms = [_GAIN, _GAIN, math.sqrt(2.0) * last]
    weak_growth = printed_weak_growth_mlp if printed else theory.weak_growth_mlp
    beta1 = float(weak_growth(1.0, norms))
    return math.fsum(clipping.Value(1.0, beta1).weight(None, losses) * gradients)


def _in_blocks(rows: Any, rest: bool) -> float:
    """Return the sum of numbers clipped at 1 block by block, and the rest only with ``rest``."""
    numbers = np.asarray(rows, dtype=np.float64)
    weights = clipping.Flat(1.0).weight(abs(numbers))
    if not rest:
        weights[len(numbers) // _BLOCK * _BLOCK :] = 1.0
    return math.fsum(weights * numbers)


def _claim(clip_norm: float) -> float:
    return privacy.epsilon(Laplace(clip_norm, sensitivity=clip_norm), 0.0, ADD_OR_REMOVE_ONE)


_CROWD = np.full(99, -40.0)
_INPUTS = np.array([0.0, 0.5])
_NUMBERS = np.array([0.25, -0.5, 0.5, -0.25])

MUTANTS = (
    Mutant(
        name="value clipping by the mean loss",
        source="errata 004-1: Fang et al. (2023), Algorithm 3, line 4",
        why="among many good samples the mean is small, and a bad one keeps its long gradient",
        broken=NoisySum(_SMALL_NORM, total=partial(_by_value, mean=True)),
        correct=NoisySum(_SMALL_NORM, total=partial(_by_value, mean=False)),
        dataset=np.append(_CROWD, _STEEPEST),
        neighbour=_CROWD,
        claim=_claim(_SMALL_NORM),
        relation=ADD_OR_REMOVE_ONE,
    ),
    Mutant(
        name="weak growth by a sum over layers",
        source="errata 004-4: Fang et al. (2023), Appendix D, read as a sum over other layers",
        why="from three layers on only the product of the other layers' norms bounds a gradient",
        broken=NoisySum(1.0, total=partial(_network, printed=True)),
        correct=NoisySum(1.0, total=partial(_network, printed=False)),
        dataset=np.append(_INPUTS, 1.0),
        neighbour=_INPUTS,
        claim=_claim(1.0),
        relation=ADD_OR_REMOVE_ONE,
    ),
    Mutant(
        name="rest of the last block unclipped",
        source="a loop over blocks of rows that forgets what is left behind the last full one",
        why="the weight of one record is not applied",
        broken=NoisySum(1.0, total=partial(_in_blocks, rest=False)),
        correct=NoisySum(1.0, total=partial(_in_blocks, rest=True)),
        dataset=np.append(_NUMBERS, 4.0),
        neighbour=_NUMBERS,
        claim=_claim(1.0),
        relation=ADD_OR_REMOVE_ONE,
    ),
)
