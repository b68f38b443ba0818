"""Ours on networks of PyTorch, in a process of its own as the peers.

``python -m benchmarks.peers.module_forms WORK BATCH`` prints the megabytes of a step at its peak.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import dpanalysis as dpa

from ..networks import private_step
from . import data
from .footprint import peak_of
from .torch_forms import Reader, convolutions, sequential

RULES = {
    "Flat": dpa.clipping.Flat(0.1),
    "PSAC": dpa.clipping.PerSampleAdaptive(0.1, 0.1),
    "Auto-S": dpa.clipping.Automatic(0.1, 0.1),
}


def network(batch: int) -> dict[str, Callable[[], Any]]:
    """Return a private step of 784-128-10 for each rule."""
    return _steps(sequential(), *data.images(batch))


def cnn(batch: int) -> dict[str, Callable[[], Any]]:
    """Return a private step of the CNN on one batch for each rule."""
    images, labels = data.images(batch)
    return _steps(convolutions(), images.reshape(batch, 1, 28, 28), labels)


def lstm(batch: int) -> dict[str, Callable[[], Any]]:
    """Return a private step of the LSTM on one batch for each rule."""
    return _steps(Reader(), *data.sentences(batch))


def _steps(module: Any, X: np.ndarray, y: np.ndarray) -> dict[str, Callable[[], Any]]:
    """Return sum, noise and update for each rule."""
    problem = dpa.problems.Module(module, X, y)
    return {name: private_step(problem, len(X), rule) for name, rule in RULES.items()}


if __name__ == "__main__":
    work, batch = globals()[sys.argv[1]], int(sys.argv[2])
    print(peak_of(*(work(size)["Flat"] for size in (16, batch))))
