"""Private training of 784-128-10 beside non-private training and per-sample gradients.

The data are MNIST where ``$DPANALYSIS_DATA`` has it, random numbers of its shape elsewhere.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np

import dpanalysis as dpa
from dpanalysis import clipping
from dpanalysis.problems import MLP

from .kernels import by_turns, row

RULE = clipping.Flat(1.0)


def data(n: int) -> tuple[np.ndarray, np.ndarray, str]:
    """Return ``n`` images in single precision, their labels, and what they are."""
    try:
        mnist = dpa.datasets.load("mnist")
    except (OSError, ValueError, ImportError):  # not on this machine
        random = np.random.default_rng(0)
        images = random.random((n, 784), dtype=np.float32)
        return images, random.integers(0, 10, n), "synthetic"
    return mnist.X[:n].astype(np.float32), mnist.y[:n].astype(np.int64), "MNIST"


def epoch(problem: MLP, batch: int, private: bool) -> Callable[[], object]:
    """Return one pass in batches of expected size ``batch``, through the oracle."""
    steps = max(1, problem.n // batch)
    method = dpa.methods.GradientDescent(
        0.1,
        steps,
        noise=np.full(steps, 1.0 / batch if private else 0.0),
        sampling=dpa.Poisson(batch / problem.n),
        mechanism="gaussian",
        clipping=RULE if private else None,
    )
    w0 = problem.initial(rng=0)
    return lambda: dpa.minimize(problem, method, w0=w0, rng=1, record=())


def epochs(problem: MLP, kind: str, repetitions: int) -> list[dict[str, Any]]:
    """Time an epoch of each, and what the clipping alone and the noise alone add to a step."""
    result = []
    for batch, target in ((256, "<= 1.15"), (1024, "<= 1.05")):
        private, plain = by_turns(
            epoch(problem, batch, True), epoch(problem, batch, False), repetitions=repetitions
        )
        work = f"784-128-10 on {problem.n} {kind}, batch {batch}"
        result.append(row(f"private epoch, {work}", private, "non-private epoch", plain, target))
        rows, w = np.arange(batch), problem.initial(rng=0)
        random = np.random.default_rng(0)
        clipped, whole, noise = by_turns(
            lambda rows=rows, w=w: problem.sums(w, rows, RULE, value=False),
            lambda rows=rows, w=w: problem.sums(w, rows, value=False),
            lambda random=random: random.standard_normal(problem.d),
            repetitions=repetitions,
        )
        result.append(row(f"clipped gradient, {work}", clipped, "unclipped", whole, "<= 1.1"))
        result.append(row(f"noise of a step, {work}", noise, "its gradient", clipped, ""))
    return result


def per_sample(problem: MLP, X: np.ndarray, y: np.ndarray, repetitions: int) -> dict[str, Any]:
    """Compare with the same clipped sum from gradients that are formed one by one."""
    batch = 64
    rows, w = np.arange(batch), problem.initial(rng=0)
    images, right = X[:batch], np.eye(10, dtype=np.float32)[y[:batch]]

    def materialised() -> np.ndarray:
        (W1, b1), (W2, b2) = (
            (weights.astype(np.float32), bias.astype(np.float32))
            for weights, bias in problem.layers(w)
        )
        hidden = np.maximum(images @ W1.T + b1, 0)
        logits = hidden @ W2.T + b2
        e = np.exp(logits - logits.max(axis=1, keepdims=True))
        out = e / e.sum(axis=1, keepdims=True) - right
        back = (out @ W2) * (hidden > 0)
        parts = (
            (back[:, :, None] * images[:, None, :]).reshape(batch, -1),
            back,
            (out[:, :, None] * hidden[:, None, :]).reshape(batch, -1),
            out,
        )
        gradients = np.concatenate(parts, axis=1)
        factors = RULE.weight(np.linalg.norm(gradients, axis=1)).astype(np.float32)
        return factors @ gradients

    ours = problem.sums(w, rows, RULE, value=False).gradient
    np.testing.assert_allclose(materialised(), ours, atol=1e-4)
    times = by_turns(
        lambda: problem.sums(w, rows, RULE, value=False), materialised, repetitions=repetitions
    )
    work = f"clipped gradient of 784-128-10, batch {batch}"
    return row(work, times[0], "NumPy, gradients one by one", times[1], "10 x faster")


def opacus(problem: MLP, X: np.ndarray, y: np.ndarray, repetitions: int) -> list[dict[str, Any]]:
    """Compare a private step with that of Opacus, gradients one by one and by ghost norms."""
    if importlib.util.find_spec("opacus") is None:
        return []
    import torch
    from opacus import PrivacyEngine

    batch = 256
    images, labels = torch.from_numpy(X[:batch].copy()), torch.from_numpy(y[:batch].copy())
    steps: dict[str, Callable[[], object]] = {}
    for mode in ("hooks", "ghost"):
        network = torch.nn.Sequential(
            torch.nn.Linear(784, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10)
        )
        loader = torch.utils.data.DataLoader(
            torch.utils.data.TensorDataset(images, labels), batch_size=batch
        )
        prepared = PrivacyEngine().make_private(
            module=network,
            optimizer=torch.optim.SGD(network.parameters(), lr=0.1),
            criterion=torch.nn.CrossEntropyLoss(),
            data_loader=loader,
            noise_multiplier=1.0,
            max_grad_norm=RULE.clip_norm,
            grad_sample_mode=mode,
            poisson_sampling=False,
        )
        # With ghost norms the criterion is wrapped too.
        model, optimizer = prepared[0], prepared[1]
        criterion = prepared[2] if mode == "ghost" else torch.nn.CrossEntropyLoss()

        def step(
            model: Any = model, optimizer: Any = optimizer, criterion: Any = criterion
        ) -> None:
            optimizer.zero_grad()
            criterion(model(images), labels).backward()
            optimizer.step()

        steps[mode] = step
    rows, w = np.arange(batch), problem.initial(rng=0)
    random = np.random.default_rng(0)

    def ours() -> np.ndarray:
        gradient = problem.sums(w, rows, RULE, value=False).gradient
        return w - 0.1 / batch * (gradient + random.standard_normal(problem.d))

    times = by_turns(ours, *steps.values(), repetitions=repetitions)
    work = f"private step of 784-128-10, batch {batch}"
    return [
        row(work, times[0], f"Opacus, {mode}", other, "2 x faster")
        for mode, other in zip(steps, times[1:])
    ]


def run(quick: bool = True) -> list[dict[str, Any]]:
    """Run all comparisons; ``quick`` uses a sixth of the images and fewer repetitions."""
    X, y, kind = data(10_000 if quick else 60_000)
    problem = MLP(X, y, (128,), n_classes=10)
    repetitions = 1 if quick else 4
    return [
        *epochs(problem, kind, repetitions),
        per_sample(problem, X, y, repetitions),
        *opacus(problem, X, y, repetitions),
    ]
