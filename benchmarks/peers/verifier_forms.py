"""Other verifiers: whether samples refute a claim. All get our runs.

Two are written small after their papers, learn in a half of the runs and count in the other half.
The auditor of jax-privacy is its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import special, stats


def _halves(mechanism: Callable[..., Any], samples: int, rng: Any) -> list[list[np.ndarray]]:
    draws = [np.asarray(mechanism(bit, rng, samples), dtype=float) for bit in (0, 1)]
    draws = [draw.reshape(samples, -1) for draw in draws]
    return [[draw[: samples // 2] for draw in draws], [draw[samples // 2 :] for draw in draws]]


def stat_dp(
    mechanism: Callable[..., Any], epsilon: float, delta: float, samples: int, miss: float, rng: Any
) -> bool:
    """Ding et al. (2018): intervals of coordinates, a hypergeometric test of thinned counts."""
    learn, count = _halves(mechanism, samples, rng)
    best, chosen = math.inf, None
    shift = np.abs(learn[0].mean(axis=0) - learn[1].mean(axis=0))
    for j in np.argsort(-shift)[:8]:  # those that differ most, wherever they stand
        for cut in np.quantile(np.concatenate(learn)[:, j], np.linspace(0.02, 0.98, 25)):
            for above in (True, False):
                for side in (0, 1):
                    pair = [int(np.sum((part[:, j] >= cut) == above)) for part in learn]
                    found = _fisher(pair[side], pair[1 - side], len(learn[0]), epsilon, delta, rng)
                    if found < best:
                        best, chosen = found, (j, cut, above, side)
    assert chosen is not None
    j, cut, above, side = chosen
    pair = [int(np.sum((part[:, j] >= cut) == above)) for part in count]
    return _fisher(pair[side], pair[1 - side], len(count[0]), epsilon, delta, rng) <= miss


def _fisher(x: int, y: int, n: int, epsilon: float, delta: float, rng: Any) -> float:
    """Thin x by e**-epsilon, so that it is no likelier than y; average of a few thinnings."""
    x = max(0, math.floor(x - delta * n))
    thinned = rng.binomial(x, math.exp(-epsilon), 10)
    return float(np.mean(stats.hypergeom.sf(thinned - 1, 2 * n, thinned + y, n)))


def dp_sniper(
    mechanism: Callable[..., Any], epsilon: float, delta: float, samples: int, miss: float, rng: Any
) -> bool:
    """Bichsel et al. (2021): logistic regression, its tail of probability 0.01, two intervals."""
    learn, count = _halves(mechanism, samples, rng)
    found = False
    for side in (0, 1):
        weights = _logistic(learn[side], learn[1 - side])
        scores = [_features(part) @ weights for part in (*learn, *count)]
        cut = np.quantile(scores[1 - side], 0.99)
        pair = [int(np.sum(scores[2 + place] >= cut)) for place in (side, 1 - side)]
        n = len(count[0])
        low = special.betaincinv(pair[0], n - pair[0] + 1, miss / 4) if pair[0] else 0.0
        high = special.betainccinv(pair[1] + 1, n - pair[1], miss / 4) if pair[1] < n else 1.0
        found |= low > math.exp(epsilon) * high + delta
    return found


def jax_privacy(
    scores: Callable[..., Any], epsilon: float, delta: float, samples: int, miss: float, rng: Any
) -> bool:
    """Ask jax-privacy's auditor, with its default: a Bonferroni correction over thresholds."""
    from jax_privacy.auditing import CanaryScoreAuditor

    held_out, held_in = (np.asarray(scores(bit, rng, samples), dtype=float) for bit in (0, 1))
    auditor = CanaryScoreAuditor(held_in, held_out)
    return bool(auditor.epsilon_clopper_pearson(miss, delta, one_sided=False) > epsilon)


def _features(values: np.ndarray) -> np.ndarray:
    return np.hstack([values, np.ones((len(values), 1))])


def _logistic(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    features = _features(np.concatenate([first, second]))
    label = np.repeat([1.0, 0.0], [len(first), len(second)])
    weights = np.zeros(features.shape[1])
    for _ in range(15):
        chance = special.expit(features @ weights)
        curvature = (features * (chance * (1.0 - chance))[:, None]).T @ features
        step = features.T @ (chance - label) + 1e-3 * weights
        weights = weights - np.linalg.solve(curvature + 1e-3 * np.eye(weights.size), step)
    return weights
