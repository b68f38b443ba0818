"""Small problems for the tests of the methods, and their ledgers."""

import math
import warnings

import numpy as np

import dpanalysis as dpa
from dpanalysis.privacy.events import Repeated


def logistic_data(n=300, d=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, size=(n, d))
    return X, np.where(X @ np.arange(1.0, d + 1.0) + 0.3 * rng.normal(size=n) > 0.0, 1.0, -1.0)


def logistic(n=300, d=4, seed=0):
    X, y = logistic_data(n, d, seed)
    return dpa.ERM(X, y, dpa.losses.Logistic(), dpa.regularizers.L2(0.01))


def problem_of(n=60, d=3, strength=1e-3, seed=0, kind=dpa.ERM, loss=None):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = np.where(X @ np.arange(1.0, d + 1.0) + rng.normal(size=n) > 0, 1.0, -1.0)
    penalty = dpa.regularizers.GemanMcClure(strength)
    return kind(X, y, loss or dpa.losses.Logistic(), penalty, dpa.RowBound(2, 1.0, "clip"))


def saddle():
    """A problem and a stationary point of it that curves downwards along the first axis.

    The losses push w_1 up as much as the penalty pulls it down, beyond 1/sqrt 3, where the
    penalty is concave; no record depends on w_2.
    """
    w, row = np.array([3.0, 0.0]), np.array([0.43, 0.0])
    push = row[0] / (1.0 + math.exp(row @ w))
    strength = push * (1.0 + w[0] ** 2) ** 2 / (2.0 * w[0])
    assert strength > 1.0
    penalty = dpa.regularizers.GemanMcClure(strength)
    rows, bound = np.tile(row, (50, 1)), dpa.RowBound(2, 1.0)
    return dpa.ERM(rows, np.ones(50), dpa.losses.Logistic(), penalty, bound), w


def unrolled(ledger):
    return [
        each
        for event in ledger
        for each in ([event.event] * event.count if isinstance(event, Repeated) else [event])
    ]


def quiet(*arguments, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return dpa.minimize(*arguments, **options)
