"""Probe of smartnoise-synth, whose noise (OpenDP's, from the operating system) has no seed."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np


def scaler(
    rows: list[float], size: int, distance: int, epsilon: float, **bounds: float
) -> np.ndarray:
    """Return mean and variance of ``size`` fitted scalers with noise for a given distance."""
    import snsynth.transform.standard as module
    from snsynth.transform import TableTransformer

    search = module.binary_search_param

    def changed(make: Any, **given: Any) -> Any:
        return search(make, **{**given, "d_in": distance})

    module.binary_search_param = changed
    found = []
    try:
        for _ in range(size):
            made = module.StandardScaler(**bounds)
            TableTransformer([made]).fit([(row,) for row in rows], epsilon=epsilon)
            found.append([made.mean, made.var])
    finally:
        module.binary_search_param = search
    return np.array(found, dtype=float)


def mwem(rows: list[int], size: int, samples: int, epsilon: float) -> np.ndarray:
    """Return, for ``size`` fits of one column, how many of ``samples`` synthetic rows are 1."""
    from snsynth import Synthesizer
    from snsynth.transform import LabelTransformer, TableTransformer

    public = TableTransformer([LabelTransformer(nullable=False)])
    public.fit([(0,), (1,)])  # fitted already, so that `fit` does not use the rows for it
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(size):
            made = Synthesizer.create("mwem", epsilon=epsilon, iterations=1, q_count=1)
            made.fit([(row,) for row in rows], transformer=public)
            found.append(sum(value for (value,) in made.sample(samples)))
    return np.array(found, dtype=float)


def dpctgan(rows: int, epsilon: float, **arguments: Any) -> np.ndarray:
    """Return the accountant's epsilon before every epoch, and at the end."""
    from snsynth import Synthesizer
    from snsynth.transform import MinMaxTransformer, TableTransformer

    data = np.random.default_rng(0).uniform(-1.0, 1.0, (rows, 2))
    bounded = [MinMaxTransformer(lower=-1.0, upper=1.0) for _ in range(2)]
    small = {"embedding_dim": 2, "generator_dim": (2,), "discriminator_dim": (2,)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = Synthesizer.create("dpctgan", epsilon=epsilon, verbose=False, **small, **arguments)
        made.fit([tuple(map(float, row)) for row in data], transformer=TableTransformer(bounded))
    assert len(made.sample(1)) == 1
    return np.array(made.epsilon_list, dtype=float)


def bounds(rows: list[float], size: int, epsilon: float) -> np.ndarray:
    """Return the bounds inferred by ``size`` transformers; (0, 0) if none are found."""
    from snsynth.transform import BinTransformer, TableTransformer

    found = []
    for _ in range(size):
        column = BinTransformer()
        try:
            TableTransformer([column]).fit([(row,) for row in rows], epsilon=epsilon)
            found.append((column.fit_lower, column.fit_upper))
        except ValueError:
            found.append((0.0, 0.0))
    return np.array(found, dtype=float)


def rhos(settings: list[dict[str, Any]]) -> np.ndarray:
    """Return the zCDP budgets that MST and AIM use for epsilon and delta."""
    from snsynth.utils import cdp_rho

    return np.array([cdp_rho(each["epsilon"], each["delta"]) for each in settings], dtype=float)
