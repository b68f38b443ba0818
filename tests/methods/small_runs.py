"""Small problems for the tests of the methods, and their ledgers."""

import warnings

import numpy as np

import dpanalysis as dpa
from dpanalysis.privacy.events import Repeated


def logistic(n=300, d=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, size=(n, d))
    y = np.where(X @ np.arange(1.0, d + 1.0) + 0.3 * rng.normal(size=n) > 0.0, 1.0, -1.0)
    return dpa.ERM(X, y, dpa.losses.Logistic(), dpa.regularizers.L2(0.01))


def problem_of(n=60, d=3, strength=1e-3, seed=0, kind=dpa.ERM, loss=None):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = np.where(X @ np.arange(1.0, d + 1.0) + rng.normal(size=n) > 0, 1.0, -1.0)
    penalty = dpa.regularizers.GemanMcClure(strength)
    return kind(X, y, loss or dpa.losses.Logistic(), penalty, dpa.RowBound(2, 1.0, "clip"))


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
