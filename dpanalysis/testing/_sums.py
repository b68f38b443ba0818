"""Sums over samples by every kernel, beside the formulas of a loss and a rule."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from .. import clipping as rules
from .. import losses
from ..clipping import Clipping
from ..losses import Loss
from ..problems.erm import ERM
from ..problems.row_bound import RowBound
from ._tools import fail, optional_namespace, require

__all__ = ["RADIUS", "check_sums"]

RADIUS, _SAMPLES, _FEATURES = 2.0, 60, 4


def _data(loss: Loss) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows (n, d) of norm at most 2, labels (n,) and iterates (3, d) of several sizes."""
    rng = np.random.default_rng(2)
    X = rng.uniform(-1.0, 1.0, (_SAMPLES, _FEATURES)) * (rng.random((_SAMPLES, _FEATURES)) < 0.8)
    X[0] = 0.0
    y = rng.choice([-1.0, 1.0], _SAMPLES)
    if not loss.classification:
        y = y * rng.uniform(0.0, 3.0, _SAMPLES)
    return X, y, rng.normal(size=(3, _FEATURES)) * np.array([[0.1], [3.0], [100.0]])


def check_sums(loss: Loss, devices: bool, fast: bool, rule: Clipping | None = None) -> None:
    """Raise AssertionError where a sum by a kernel is not that of the formulas.

    With ``fast`` also where the formulas are compiled; each kind of sum takes seconds for that.
    """
    X, y, W = _data(loss)
    rows = np.array([3, 0, 3, 17, 41])
    subject = repr(loss) if rule is None else repr(rule)
    asked = [(1, None), (1, [rows]), (3, None), (3, [rows, rows[:2], rows[:0]])]
    for how, problem, used in _problems(loss, rule, X, y, devices, fast):
        kind = "derivative, value" if rule is None else "weight"
        kinds = {"NumPy arrays, compiled": asked[:3], "sparse rows, compiled": asked[:2]}
        for count, batch in kinds.get(how, asked):
            try:
                found = problem.sums(W[:count], batch, used)
            except Exception as error:
                fail(f"{subject}: sums over {how} fail: {error!r}", error)
            expected = _expected(loss, rule, X, y, W[:count], batch)
            for part, sums in zip(("losses", "gradients"), (found.value, found.gradient)):
                same = np.allclose(np.asarray(sums), expected[part], rtol=1e-9, atol=1e-9)
                require(
                    same,
                    f"{subject}: the sums of {part} over {how} are not those of its formulas "
                    f"({kind}), for {count} replicates{' and batches' if batch else ''}: off by "
                    f"{np.abs(np.asarray(sums) - expected[part]).max():.3g}",
                )


def _problems(
    loss: Loss, rule: Clipping | None, X: np.ndarray, y: np.ndarray, devices: bool, fast: bool
) -> Iterator[tuple[str, ERM, Clipping | None]]:
    """Yield problems with the same sums: what they are, the problem, and the rule to use."""
    bound = RowBound(2, RADIUS)
    yield "NumPy arrays", ERM(X, y, loss, None, bound), rule
    yield "sparse rows", ERM(sp.csr_array(X), y, loss, None, bound), rule
    if devices and (xp := optional_namespace()) is not None:
        yield "another library's arrays", ERM(xp.asarray(X), xp.asarray(y), loss, None, bound), rule
    if not fast:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what cannot be compiled runs as arrays
        try:
            quick = losses.compiled(loss)
            quick_rule = None if rule is None else rules.compiled(rule)
        except Exception as error:
            fail(f"{loss if rule is None else rule!r} cannot be compiled: {error}", error)
    if quick is not loss or quick_rule is not rule:
        yield "NumPy arrays, compiled", ERM(X, y, quick, None, bound), quick_rule
        yield "sparse rows, compiled", ERM(sp.csr_array(X), y, quick, None, bound), quick_rule


def _expected(
    loss: Loss, rule: Clipping | None, X: np.ndarray, y: np.ndarray, W: np.ndarray, batch: Any
) -> dict[str, np.ndarray]:
    """Add the formulas up, sample by sample."""
    parts: dict[str, list[Any]] = {"losses": [], "gradients": []}
    for r, w in enumerate(W):
        chosen = slice(None) if batch is None else batch[r]
        x, labels = X[chosen], y[chosen]
        z = x @ w
        values = np.asarray(loss.value(z, labels))
        slopes = np.clip(np.asarray(loss.derivative(z, labels)), -loss.lipschitz, loss.lipschitz)
        if rule is not None:
            norms = np.abs(slopes) * np.linalg.norm(x, axis=1)
            slopes = slopes * rule.weight(norms, values)
        counts = np.isfinite(values) & np.isfinite(slopes)
        parts["losses"].append(values[counts].sum())
        parts["gradients"].append((slopes[counts, None] * x[counts]).sum(axis=0))
    return {name: np.array(each) for name, each in parts.items()}
