"""The convolutional network of the papers' tables, and one training of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np

import dpanalysis as dpa

from . import _clipping as runs

# On a device a whole batch fits into one chunk, except one batch in a hundred million.
_DEVICE_CHUNK = 640


def device() -> str:
    """Return where networks are trained: ``$DPANALYSIS_DEVICE``, or the CPU."""
    return os.environ.get("DPANALYSIS_DEVICE", "cpu")


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Limit PyTorch's threads: a sweep limits only libraries loaded before its cell."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def network(data: str, seed: int) -> Any:
    """Return the CNN of Papernot et al. (2021) as Tramer and Boneh (2021) train it on MNIST.

    Two convolutions and two dense layers, tanh between them; a smaller one for digits.
    """
    import torch
    from torch import nn

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if data != "digits":
            return nn.Sequential(
                nn.Conv2d(1, 16, 8, stride=2, padding=2),
                nn.Tanh(),
                nn.MaxPool2d(2, 1),
                nn.Conv2d(16, 32, 4, stride=2),
                nn.Tanh(),
                nn.MaxPool2d(2, 1),
                nn.Flatten(),
                nn.Linear(512, 32),
                nn.Tanh(),
                nn.Linear(32, 10),
            )
        return nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1),
            nn.Tanh(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3),
            nn.Tanh(),
            nn.Flatten(),
            nn.Linear(64, 10),
        )


@lru_cache(maxsize=2)
def load_problem(
    data: str,
    signed: bool = False,
    regularizer: Any = None,
    row_bound: dpa.RowBound | None = None,
    chunk: int | None = None,
) -> Any:
    """Return the training problem of the network, in single precision."""
    X, y, _, _ = images(data, signed)
    if chunk is None and device() != "cpu":
        chunk = _DEVICE_CHUNK
    return dpa.problems.Module(
        network(data, 0),
        X,
        y,
        regularizer=regularizer,
        row_bound=row_bound,
        chunk=chunk,
        device=device(),
    )


def training_images(data: str) -> tuple[Any, Any]:
    """Return images and labels of the training part, on the host."""
    X, y, _, _ = images(data, signed=False)
    return X, np.int64(y)


@lru_cache(maxsize=2)
def images(data: str, signed: bool) -> tuple[Any, Any, Any, Any]:
    """Return images and labels, training and test part, on the host."""
    X, y, X_test, y_test = runs.load_data(data, signed)
    side = 8 if data == "digits" else 28
    shape = (-1, 1, side, side)
    X, X_test = (np.float32(each).reshape(shape) for each in (X, X_test))
    return X, y, X_test, y_test


@lru_cache(maxsize=2)
def test_images(data: str, signed: bool = False) -> tuple[Any, Any]:
    """Return images and labels of the test part, on the network's device."""
    import torch

    _, _, X, y = images(data, signed)
    return torch.tensor(X, device=device()), torch.tensor(np.int64(y), device=device())


def start(data: str, seed: int) -> np.ndarray:
    """Return the initial weights of a run, drawn by PyTorch from the seed."""
    return load_problem(data).vector(network(data, seed))


def build_method(problem: Any, cell: dict[str, Any]) -> dpa.methods.SGD:
    """Return SGD with momentum and noise of ``noise_multiplier`` times the sensitivity."""
    steps = runs.steps_per_epoch(problem.n, cell["batch"])
    iterations, rate = cell["epochs"] * steps, 1.0 / steps
    rule = runs.make_rule(cell["rule"], cell["clip_norm"], cell["r"])
    moved = problem.facts(runs.RELATION).record_sensitivity(2, rule)
    std = cell["noise_multiplier"] * moved / (rate * problem.n)
    return dpa.methods.SGD(
        cell["step_size"],
        iterations,
        dpa.Poisson(rate),
        rule,
        momentum=cell["momentum"],
        noise=np.full(iterations, std) if std else "uniform",
    )


@threads(1)
def train_cell(**cell: Any) -> dict[str, np.ndarray]:
    """Train once and return the test accuracy by epoch, and the training accuracy at the end.

    Batches are drawn by Poisson sampling at rate 1/(iterations per epoch), and the sum is divided
    by the expected batch size, which is public.
    """
    problem = load_problem(cell["data"])
    X_test, y_test = test_images(cell["data"])
    steps = runs.steps_per_epoch(problem.n, cell["batch"])

    def test_accuracy(problem: Any, w: np.ndarray) -> np.ndarray:
        return problem.accuracy(w, X_test, y_test)

    result = dpa.minimize(
        problem,
        build_method(problem, cell),
        None,  # the noise is given explicitly; its cost is in the ledger
        w0=start(cell["data"], cell["seed"]),
        rng=cell["seed"],
        record=(test_accuracy,),
        every=steps,
    )
    return {
        "epoch": result.history["iteration"] / steps,
        "test_accuracy": result.history["test_accuracy"][:, 0],
        "training_accuracy": problem.accuracy(result.w),
        "finished": np.array(result.status == "finished"),
    }
