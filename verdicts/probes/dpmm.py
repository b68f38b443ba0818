"""Probe of dpmm, whose noise (OpenDP's, from the operating system) cannot be seeded."""

from __future__ import annotations

import copy
import math
import warnings
from typing import Any

import numpy as np

_MADE: dict[str, Any] = {}


def _fresh(key: str, make: Any) -> Any:
    """Return a copy of an unfitted model, since constructing one takes a second."""
    if key not in _MADE:
        _MADE[key] = make()
    return copy.deepcopy(_MADE[key])


def column(rows: list[int], size: int, kind: str) -> np.ndarray:
    """Return, for ``size`` fits, how many of 20 synthetic values of a column are above 0.5."""
    import pandas as pd
    from dpmm.pipelines import PrivBayesPipeline

    plain = kind == "integers"
    frame = pd.DataFrame({"other": np.arange(len(rows)) % 2, "value": rows})
    domain: dict[str, Any] = dict.fromkeys(frame, 2)
    if not plain:
        frame, domain = frame.astype(float), {name: {"lower": 0.0, "upper": 1.0} for name in frame}

    def make() -> Any:
        settings = {"n_jobs": 1, "compress": False, "gen_kwargs": {"n_iters": 1}}
        return PrivBayesPipeline(epsilon=1.0, delta=1e-5, disable_processing=plain, **settings)

    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(size):
            made = _fresh(kind, make)
            made.fit(frame, domain=domain)
            found.append(float((made.generate(n_records=20)["value"] > 0.5).sum()))
    return np.array(found)


def cliques(value: int, size: int, records: int, sensitivity: float | None) -> np.ndarray:
    """Return, for ``size`` fits, whether a and b share a clique; ``sensitivity`` overrides dpmm's.

    The first record has a = c = 1 and b = ``value``, the second c = 1; all other entries are 0.
    """
    import dpmm.models.priv_bayes as module
    import pandas as pd

    frame = pd.DataFrame({name: np.zeros(records, dtype=int) for name in "abc"})
    frame.loc[0, ["a", "b", "c"]] = 1, value, 1
    frame.loc[1, "c"] = 1
    domain = dict.fromkeys("abc", 2)
    mechanism = module.ExponentialMechanism
    compute = mechanism.compute_delta
    if sensitivity is not None:
        mechanism.compute_delta = lambda self, data: (
            sensitivity * len(data.domain.attrs) / self.epsilon
        )
    found = []
    try:
        for _ in range(size):
            made = _fresh(
                "cliques",
                lambda: module.PrivBayesGM(
                    domain=domain, epsilon=1.0, delta=1e-5, n_iters=1, compress=False, n_jobs=1
                ),
            )
            made.fit(frame)
            found.append(float({"a", "b"} in [set(each) for each in made.generator.cliques]))
    finally:
        mechanism.compute_delta = compute
    return np.array(found)


def aim_rho(rounds: int | None, columns: int, delta: float) -> float:
    """Return the zCDP cost of all AIM measurements in one fit: a marginal changes by one count."""
    import pandas as pd
    from dpmm.models.aim import AIMGM

    names = [f"c{i}" for i in range(columns)]
    settings = {"rounds": rounds, "compress": False, "n_iters": 1, "n_jobs": 1}
    made = AIMGM(epsilon=1.0, delta=delta, domain=dict.fromkeys(names, 2), **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made.fit(pd.DataFrame(np.eye(columns, dtype=int), columns=names))
    assert len(made.generate(n_records=1)) == 1
    return math.fsum(0.5 / float(sigma) ** 2 for _, _, sigma, _ in made.generator.measures)


def bins(rows: list[float], size: int, epsilon: float) -> np.ndarray:
    """Return the inner edges of ``size`` trees of up to three bins of [0, 1]; 0 for none."""
    from dpmm.processing.binners import PrivTreeBinner

    found = []
    for _ in range(size):
        made = PrivTreeBinner(n_bins=3, epsilon=epsilon, lower=0.0, upper=1.0)
        made.fit(np.array(rows))
        inner = [float(edge) for edge in made.bins[1:-1]]
        found.append([*inner, 0.0, 0.0][:2])
    return np.array(found)


def bounds(rows: list[float], size: int, epsilon: float) -> np.ndarray:
    """Return ``size`` results of ``approx_bounds``; (0, 0) if it finds none."""
    from dpmm.processing.utils import approx_bounds

    drawn = [approx_bounds(np.array(rows), epsilon) for _ in range(size)]
    return np.array([(0.0, 0.0) if low is None else (low, up) for low, up in drawn], dtype=float)
