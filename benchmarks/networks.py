"""Private training of 784-128-10 beside non-private training and per-sample gradients.

The data are MNIST where ``$DPANALYSIS_DATA`` has it, random numbers of its shape elsewhere.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import dpanalysis as dpa
from dpanalysis import clipping
from dpanalysis.privacy import mechanisms
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


def compare(
    work: str,
    ours: Callable[[], object],
    peers: dict[str, Callable[[], object]],
    target: str,
    repetitions: int,
) -> list[dict[str, Any]]:
    """Return a row a peer: medians of repetitions that take turns, the ratio's best and worst."""
    calls = (ours, *peers.values())
    times = np.array([by_turns(*calls, repetitions=1) for _ in range(repetitions)])
    rows = []
    for peer, other in zip(peers, times.T[1:], strict=True):
        shown = row(work, float(np.median(times[:, 0])), peer, float(np.median(other)), target)
        faster = "faster" in target
        ratios = other / times[:, 0] if faster else times[:, 0] / other
        best, worst = (ratios.max(), ratios.min()) if faster else (ratios.min(), ratios.max())
        rows.append({**shown, "best_and_worst": [float(best), float(worst)]})
    return rows


def epochs(problem: MLP, kind: str, repetitions: int) -> list[dict[str, Any]]:
    """Time an epoch of each, and what the clipping alone and the noise alone add to a step."""
    result = []
    for batch, target in ((256, "<= 1.15"), (1024, "<= 1.05")):
        work = f"784-128-10 on {problem.n} {kind}, batch {batch}"
        plain = {"non-private epoch": epoch(problem, batch, False)}
        private = epoch(problem, batch, True)
        result += compare(f"private epoch, {work}", private, plain, target, repetitions)
        rows, w = np.arange(batch), problem.initial(rng=0)
        clipped = partial(problem.sums, w, rows, RULE, value=False)
        whole = {"unclipped": partial(problem.sums, w, rows, value=False)}
        result += compare(f"clipped gradient, {work}", clipped, whole, "<= 1.1", repetitions)
        random = np.random.default_rng(0)
        noise = partial(mechanisms.gaussian, random, 1.0, problem.d)
        peers = {
            "its gradient": clipped,
            "NumPy's normal numbers": partial(random.standard_normal, problem.d),
        }
        result += compare(f"noise of a step, {work}", noise, peers, "", repetitions)
    return result


def per_sample(
    problem: MLP, X: np.ndarray, y: np.ndarray, repetitions: int
) -> list[dict[str, Any]]:
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
    return compare(
        f"clipped gradient of 784-128-10, batch {batch}",
        lambda: problem.sums(w, rows, RULE, value=False),
        {"NumPy, gradients one by one": materialised},
        "10 x faster",
        repetitions,
    )


def opacus(problem: MLP, X: np.ndarray, y: np.ndarray, repetitions: int) -> list[dict[str, Any]]:
    """Compare a private step with that of Opacus, by both of its ways to the norms."""
    batch = 256
    rows, w = np.arange(batch), problem.initial(rng=0)
    random = np.random.default_rng(0)

    def ours() -> np.ndarray:
        gradient = problem.sums(w, rows, RULE, value=False).gradient
        gradient += mechanisms.gaussian(random, RULE.clip_norm, problem.d)
        return w - 0.1 / batch * gradient

    work, target = f"private step of 784-128-10, batch {batch}", "2 x faster"
    if importlib.util.find_spec("opacus") is not None:
        return compare(work, ours, opacus_steps(X[:batch], y[:batch]), target, repetitions)
    (time,) = by_turns(ours, repetitions=repetitions)
    absent = row(work, time, "Opacus (not installed)", math.nan, target)
    return [{**absent, "peer_ms": None, "ratio": None}]


def opacus_steps(X: np.ndarray, y: np.ndarray) -> dict[str, Callable[[], object]]:
    """Return a step on one batch with gradients one by one, and with ghost norms."""
    import torch
    from opacus import PrivacyEngine

    images, labels = torch.from_numpy(X.copy()), torch.from_numpy(y.copy())
    data = torch.utils.data.TensorDataset(images, labels)
    steps: dict[str, Callable[[], object]] = {}
    for mode in ("hooks", "ghost"):
        network = torch.nn.Sequential(
            torch.nn.Linear(784, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10)
        )
        loss = torch.nn.CrossEntropyLoss()
        prepared = PrivacyEngine().make_private(
            module=network,
            optimizer=torch.optim.SGD(network.parameters(), lr=0.1),
            criterion=loss,
            data_loader=torch.utils.data.DataLoader(data, batch_size=len(y)),
            noise_multiplier=1.0,
            max_grad_norm=RULE.clip_norm,
            grad_sample_mode=mode,
            poisson_sampling=False,
        )
        # With ghost norms the criterion is wrapped too.
        model, optimizer = prepared[:2]
        criterion = prepared[2] if mode == "ghost" else loss

        def step(
            model: Any = model, optimizer: Any = optimizer, criterion: Any = criterion
        ) -> None:
            optimizer.zero_grad()
            criterion(model(images), labels).backward()
            optimizer.step()

        steps[f"Opacus, {mode}"] = step
    return steps


def run(quick: bool = True) -> list[dict[str, Any]]:
    """Run all comparisons; ``quick`` uses a sixth of the images and fewer repetitions."""
    X, y, kind = data(10_000 if quick else 60_000)
    problem = MLP(X, y, (128,), n_classes=10)
    repetitions = 2 if quick else 5
    return [
        *epochs(problem, kind, repetitions),
        *per_sample(problem, X, y, repetitions),
        *opacus(problem, X, y, repetitions),
    ]
