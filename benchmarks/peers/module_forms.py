"""Ours on a CNN of PyTorch, in a process of its own as the peers: steps, and the peak of memory.

``python -m benchmarks.peers.module_forms BATCH`` prints the megabytes that a clipped sum over so
many samples takes beyond the data.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import dpanalysis as dpa
from dpanalysis.privacy import mechanisms

from . import data
from .footprint import resident
from .torch_forms import convolutions

RULES = {
    "Flat": dpa.clipping.Flat(0.1),
    "PSAC": dpa.clipping.PerSampleAdaptive(0.1, 0.1),
    "Auto-S": dpa.clipping.Automatic(0.1, 0.1),
}


def _problem(n: int) -> Any:
    X, y = data.images(n)
    return dpa.problems.Module(convolutions(), X.reshape(n, 1, 28, 28), y)


def cnn(batch: int) -> dict[str, Callable[[], Any]]:
    """Return a private step on one batch for each rule: sum, noise, update."""
    problem, random = _problem(batch), np.random.default_rng(0)
    w, rows = problem.initial()[None], [np.arange(batch)]

    def step(rule: Any) -> np.ndarray:
        total = problem.gradient_sum(w, rows, rule)
        noisy = mechanisms.add_noise(total, "gaussian", rule.clip_norm, [random])
        return w - 0.1 / batch * np.asarray(noisy)

    return {name: lambda rule=rule: step(rule) for name, rule in RULES.items()}


def peak(batch: int) -> float:
    """Return megabytes."""
    problem = _problem(batch)
    w = problem.initial()[None]
    problem.gradient_sum(w, [np.arange(16)], RULES["Flat"])  # libraries are loaded
    before = resident("VmRSS")
    problem.gradient_sum(w, [np.arange(batch)], RULES["Flat"])
    return resident("VmHWM") - before


if __name__ == "__main__":
    print(peak(int(sys.argv[1])))
