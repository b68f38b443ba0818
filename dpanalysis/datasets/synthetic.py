"""Synthetic data of Kuru et al. (2022), section 5."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from .._validation import check_choice, check_int, check_number, check_rng
from ..problems.row_bound import RowBound

if TYPE_CHECKING:
    from .dataset import Dataset


def kuru_synthetic(
    n: int = 100_000,
    d: int = 20,
    *,
    scheme: str = "cube",
    negative_rate: float | None = None,
    rng: Any = None,
) -> Dataset:
    """Draw the logistic regression data of Kuru et al. (2022), section 5.

    Parameters
    ----------
    n, d : int
        Samples and features.
    scheme : {"cube", "ball"}
        ``"cube"``, scheme (i): rows uniform in [0, 1]^d, labels ``sign(<x, w>)`` of one
        random ``w``. ``"ball"``, scheme (ii): rows uniform in the L1 ball of radius 20,
        labels drawn from the logistic model of one standard normal ``w``.
    negative_rate : float, optional
        Fraction of labels -1 for ``"cube"``, in [0, 1], exact up to one sample; 0.1 by default,
        as in the published runs, whose transients depend on it. None for ``"ball"``, which is
        symmetric.
    rng : int, SeedSequence or Generator, optional
        Source of randomness (SPEC 7).

    Returns
    -------
    Dataset
        With the public row bounds of the scheme: L1 norm ``d`` and L2 norm ``sqrt(d)``
        for ``"cube"``, L1 norm 20 for ``"ball"``; no test part.

    Examples
    --------
    >>> data = kuru_synthetic(n=1000, d=5, rng=0)
    >>> data.X.shape, float((data.y == -1).mean())
    ((1000, 5), 0.1)
    """
    n, d = check_int("n", n, low=1), check_int("d", d, low=1)
    check_choice("scheme", scheme, ("cube", "ball"))
    random = check_rng(rng)
    bounds: tuple[RowBound, ...]
    if scheme == "cube":
        rate = 0.1 if negative_rate is None else negative_rate
        rate = check_number("negative_rate", rate, low=0.0, high=1.0)
        X = random.random((n, d))
        y = _signs(X, random.standard_normal(d), rate)
        bounds = (RowBound(1, float(d), "check"), RowBound(2, math.sqrt(d), "check"))
    else:
        if negative_rate is not None:
            raise ValueError(f"negative_rate must be None for scheme 'ball', got {negative_rate}")
        radius = 20.0
        X = _uniform_in_l1_ball(random, n, d, radius)
        margins = X @ random.standard_normal(d)
        # P(y = 1) = sigmoid(margin): a standard logistic variable lies below the margin.
        y = np.where(random.logistic(size=n) < margins, 1.0, -1.0)
        bounds = (RowBound(1, radius, "check"),)

    from .dataset import Dataset

    return Dataset(X, y, None, None, f"kuru-{scheme}", bounds)


def _signs(X: np.ndarray, direction: np.ndarray, negative_rate: float) -> np.ndarray:
    """Return labels ``sign(<x, direction + c 1>)`` with c chosen for the rate.

    Entries of X are non-negative, so ``<x, direction> + c <x, 1>`` is negative exactly
    for the samples whose ratio ``-<x, direction>/<x, 1>`` exceeds c.
    """
    ratios = -(X @ direction) / np.maximum(X.sum(axis=1), np.finfo(float).tiny)
    y = np.ones(X.shape[0])
    negatives = round(negative_rate * X.shape[0])
    y[np.argsort(ratios)[X.shape[0] - negatives :]] = -1.0
    return y


def _uniform_in_l1_ball(random: np.random.Generator, n: int, d: int, radius: float) -> np.ndarray:
    """Draw rows uniform in the ball: normalized exponentials with random signs."""
    sizes = random.standard_exponential((n, d + 1))
    signs = np.where(random.random((n, d)) < 0.5, -1.0, 1.0)
    return radius * signs * sizes[:, :d] / sizes.sum(axis=1, keepdims=True)
