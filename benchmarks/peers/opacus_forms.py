"""Opacus, by both of its ways to the norms: a gradient for every sample, and ghost norms.

``python -m benchmarks.peers.opacus_forms WORK BATCH`` prints the megabytes of a step by ghost
norms at its peak.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from opacus import PrivacyEngine
from opacus.validators import ModuleValidator

from . import data
from .footprint import peak_of
from .torch_forms import Reader, convolutions, loader, sequential, tensors, train

MODES = {"Opacus, per sample": "hooks", "Opacus, ghost": "ghost"}


def private(
    mode: str, model: torch.nn.Module, loss: Any, n: int, noise: float, clip: float
) -> tuple[Any, Any, Any]:
    """Return the model, the optimizer and the criterion that Opacus makes of them."""
    empty = torch.utils.data.TensorDataset(torch.zeros(n, 1))
    prepared = PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        criterion=loss,
        data_loader=torch.utils.data.DataLoader(empty, batch_size=n),
        noise_multiplier=noise,
        max_grad_norm=clip,
        grad_sample_mode=mode,
        poisson_sampling=False,
    )
    # With ghost norms the criterion is wrapped too.
    return prepared[0], prepared[1], prepared[2] if mode == "ghost" else loss


def gradient(mode: str, w: torch.Tensor, n: int) -> Callable[[torch.Tensor, torch.Tensor], Any]:
    """Return the clipped gradient sum of the logistic loss as a function of the data."""
    layer = torch.nn.Linear(w.numel(), 1, bias=False, dtype=w.dtype)
    with torch.no_grad():
        layer.weight.copy_(w[None])
    model, optimizer, loss = private(mode, layer, torch.nn.BCEWithLogitsLoss(), n, 0.0, data.CLIP)

    def sums(X: torch.Tensor, labels: torch.Tensor) -> np.ndarray:
        optimizer.zero_grad()
        loss(model(X)[:, 0], labels).backward()
        if mode == "hooks":
            optimizer.clip_and_accumulate()
            return optimizer.params[0].summed_grad.numpy()
        return optimizer.params[0].grad.numpy()

    return sums


def dense(n: int, d: int, dtype: str, loss: str) -> dict[str, Callable[[], Any]]:
    if loss != "logistic":
        return {}
    X, y, w, _ = tensors(*data.dense(n, d, dtype), dtype=dtype)
    labels = (y + 1.0) / 2.0
    calls = {name: gradient(mode, w, n) for name, mode in MODES.items()}
    return {name: lambda call=call: call(X, labels) for name, call in calls.items()}


def minibatch(n: int, d: int, rate: float, poisson: bool) -> dict[str, Callable[[], Any]]:
    if poisson:  # its mean is over a fixed size
        return {}
    X, y, w, _ = tensors(*data.dense(n, d), dtype="float64")
    labels = (y + 1.0) / 2.0
    rows = [torch.from_numpy(chosen) for chosen in data.batches(n, rate, poisson)]
    calls = {}
    for name, mode in MODES.items():
        sums, turn = gradient(mode, w, len(rows[0])), itertools.cycle(rows)

        def gathered(sums: Any = sums, turn: Any = turn) -> np.ndarray:
            chosen = next(turn)
            return sums(X[chosen], labels[chosen])

        calls[name] = gathered
    return calls


def network(batch: int) -> dict[str, Callable[[], Any]]:
    """Return a private step on one batch."""
    return steps_of(sequential, *map(torch.from_numpy, data.images(batch)))


def cnn(batch: int) -> dict[str, Callable[[], Any]]:
    """Return a private step of the CNN on one batch."""
    images, labels = map(torch.from_numpy, data.images(batch))
    return steps_of(convolutions, images.view(-1, 1, 28, 28), labels)


def lstm(batch: int) -> dict[str, Callable[[], Any]]:
    """Return a private step of the LSTM on one batch, with the layer of Opacus."""
    return steps_of(Reader, *map(torch.from_numpy, data.sentences(batch)))


def steps_of(
    build: Callable[[], torch.nn.Module], images: torch.Tensor, labels: torch.Tensor
) -> dict[str, Callable[[], Any]]:
    """Return private steps of a model, by both ways; an LSTM is exchanged for Opacus' own."""
    calls = {}
    for name, mode in MODES.items():
        model, optimizer, loss = private(
            mode, ModuleValidator.fix(build()), torch.nn.CrossEntropyLoss(), len(images), 1.0, 1.0
        )

        def step(model: Any = model, optimizer: Any = optimizer, loss: Any = loss) -> None:
            optimizer.zero_grad()
            loss(model(images), labels).backward()
            optimizer.step()

        calls[name] = step
    return calls


def training(n: int, batch: int, epochs: int, epsilon: float, delta: float) -> dict[str, Any]:
    """Return a whole run with ghost norms, from the noise for a budget to what was spent."""
    batches = loader(n, batch)

    def run() -> float:
        model, engine = sequential(), PrivacyEngine()
        model, optimizer, loss, drawn = engine.make_private_with_epsilon(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            criterion=torch.nn.CrossEntropyLoss(),
            data_loader=batches,
            target_epsilon=epsilon,
            target_delta=delta,
            epochs=epochs,
            max_grad_norm=1.0,
            grad_sample_mode="ghost",
        )
        train(model, optimizer, loss, drawn, epochs)
        return engine.get_epsilon(delta)

    return {"Opacus, ghost": run}


if __name__ == "__main__":
    work, batch = globals()[sys.argv[1]], int(sys.argv[2])
    print(peak_of(*(work(size)["Opacus, ghost"] for size in (16, batch))))
