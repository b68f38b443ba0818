"""Objective perturbation with noise in blocks, under attack: densities of minimisers at points."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...losses import Logistic
from ...privacy.blocks import Block, norm_shape
from ...privacy.queries import TiltedMinimum
from ...privacy.relations import ADD_OR_REMOVE_ONE, REPLACE_ONE
from ...privacy.sampling import Full
from ...problems import ERM, Softmax
from ...problems.row_bound import RowBound
from ...regularizers import L2
from ..attack import Range, quotient
from ..registry import Effort, Evidence, register
from ._search import Array, search

BLOCKS = (Block(2, math.inf, 1.0), Block(2, 1, 1.0))  # a cube and a group of indicators
CLASSES = 3


def row(x: Array) -> Array:
    """Return a row within the blocks: the second is shortened where it is too long."""
    return np.append(x[:2], x[2:] / max(1.0, float(abs(x[2:]).sum())))


def log_density(
    query: TiltedMinimum, w: Array, X: Array, labels: list[int], n: int, convexity: float
) -> float:
    """Return the logarithm of the minimiser's density at ``w``, one row a prediction."""
    loss, K = Logistic(), len(w)
    b, M = -n * convexity * w, n * convexity * np.eye(w.size)
    for x, label in zip(X, labels):
        z = w @ x
        if K == 1:
            sign = 2.0 * label - 1.0
            theta = loss.derivative(z, np.array([sign]))
            curvature = loss.second_derivative(z, np.array([sign]))[:, None]
        else:
            p = np.exp(z - z.max())
            p /= p.sum()
            theta, curvature = p - np.eye(K)[label], np.diag(p) - np.outer(p, p)
        b = b - np.outer(theta, x)
        M = M + np.kron(curvature, np.outer(x, x))
    cube, group = query.shape
    norms = abs(b[:, :2]).max(axis=1) / cube.radius + abs(b[:, 2:]).sum(axis=1) / group.radius
    return float(np.linalg.slogdet(M)[1] - norms.sum() / query.scale)


def blocks_ratio(
    w: Array, first: Array, second: Array, scale: float, convexity: float, relation: str
) -> float:
    """Attack the pure cost: a second record added, or put in the place of the first."""
    w = w.reshape(-1, 4)
    K, X = len(w), np.array([row(first), row(second)])
    bound = RowBound(BLOCKS, 1.0)
    one: Any = X[:1]
    problem: Any = (
        ERM(one, [1.0], Logistic(), L2(convexity), bound)
        if K == 1
        else Softmax(one, [0], K, L2(convexity), bound)
    )
    facts = problem.facts(relation)
    shape = norm_shape(facts.moved_blocks(1)[0])
    query = TiltedMinimum("blocks", scale, 0.0, 1e-9, 1.0, shape)
    event: Any = query.event(facts, Full())
    kept = [0, 1] if relation == ADD_OR_REMOVE_ONE else [1]
    labels = [min(1, K), 0] if K == 1 else [0, 1]
    logs = [
        log_density(query, w, X[rows], [labels[i] for i in rows], 1, convexity)
        for rows in ([0], kept)
    ]
    return quotient(event.events[0].epsilon, abs(logs[0] - logs[1]))


@register(
    "bounds-31",
    "`TiltedMinimum`, `norm_shape`; Chaudhuri, Monteleoni, Sarwate (2011); Hardt, Talwar (2010)",
    "objective perturbation with noise in blocks costs the sum of the blocks' shifts over their "
    "scales and k ln(1 + trace/(kc)), and for logistic regression the most of p a + "
    "ln(1 + 4 p (1 - p) trace/c) over p, less a, instead of the latter; a is one record's shift",
    verdict="holds",
)
def blocks_cost(effort: Effort) -> Iterator[Evidence]:
    """Log ratios of the densities of two minimisers, at the points where they are largest."""
    corner = np.array([1.0, 1.0, 1.0, 0.0])
    for K, what in ((1, "logistic"), (CLASSES, "softmax")):
        for relation in (ADD_OR_REMOVE_ONE, REPLACE_ONE):
            space = {
                "w": Range(-10.0, 10.0, size=4 * K),
                "first": Range(-1.0, 1.0, size=4),
                "second": Range(-1.0, 1.0, size=4),
                "scale": Range(0.01, 30.0, log=True),
                "convexity": Range(0.01, 1e3, log=True),
            }
            attained = K == 1 and relation == ADD_OR_REMOVE_ONE
            far = {
                "w": 10.0 * np.tile(corner, K), "first": np.zeros(4), "second": corner,
                "scale": 0.01, "convexity": 1e3,
            }  # fmt: skip

            def ratio(relation: str = relation, **at: Any) -> float:
                return blocks_ratio(relation=relation, **at)

            yield from search(
                effort, f"{what}, {relation}", ratio, space, cost=4, guesses=[far],
                tight=1e-3 if attained else None, tolerance=1e-8,
            )  # fmt: skip
