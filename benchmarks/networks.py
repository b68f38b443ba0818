"""Private training of 784-128-10, of a CNN and of an LSTM, beside non-private training and peers.

The images are random numbers of MNIST's shape, which does not affect the time.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

import dpanalysis as dpa
from dpanalysis import clipping
from dpanalysis._devices import to_host
from dpanalysis.privacy import mechanisms
from dpanalysis.problems import MLP

from .measure import Effort, compare, effort, here, peers, thread_counts
from .peers import data
from .table import Row
from .targets import NON_PRIVATE

RULE = clipping.Flat(1.0)
NETWORKS = {"network": "an MLP", "cnn": "a CNN", "lstm": "an LSTM"}


def epoch(problem: MLP, batch: int, private: bool) -> Callable[[], object]:
    """Return one pass in batches of expected size ``batch``, through the oracle."""
    steps = math.ceil(problem.n / batch)
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


def private_step(problem: Any, batch: int, rule: clipping.Clipping) -> Callable[[], np.ndarray]:
    """Return a private step on one batch: sum, noise, update."""
    random, rows = np.random.default_rng(0), [np.arange(batch)]
    w = problem.initial(rng=0)[None]

    def step() -> np.ndarray:
        total = problem.gradient_sum(w, rows, rule)
        noisy = mechanisms.add_noise(total, "gaussian", rule.clip_norm, [random])
        return w - 0.1 / batch * to_host(noisy)

    return step


def run(quick: bool) -> Iterator[Row]:
    """Run all comparisons; quick: a tenth of the images."""
    X, y = data.images(6_000 if quick else 60_000)
    problem, spent = MLP(X, y, (128,), n_classes=10), effort(quick)
    w, random = problem.initial(rng=0), np.random.default_rng(0)
    for batch in (256, 1024):
        yield from compare(
            f"epoch of a network, batch {batch}",
            f"784-128-10, {problem.n:,} rows",
            here(epoch(problem, batch, True)),
            {NON_PRIVATE: here(epoch(problem, batch, False))},
            spent,
        )
        rows = np.arange(batch)
        clipped = partial(problem.sums, w, rows, RULE, value=False)

        def step(clipped: Callable = clipped, batch: int = batch) -> np.ndarray:
            noise = mechanisms.gaussian(random, RULE.clip_norm, problem.d)
            return w - 0.1 / batch * (clipped().gradient + noise)

        # BLAS parallelizes the products: ours with all cores, and the peers as well.
        modules, threads = ("torch_forms", "opacus_forms", "jax_forms"), thread_counts()[-1]
        with peers(modules, "network", threads, {"batch": batch}, lambda name: None) as others:
            yield from compare(
                "private step of a network", f"batch {batch}", here(step), others, spent
            )
        own = {
            "clipped gradient alone": here(clipped),
            "gradient without clipping": here(partial(problem.sums, w, rows, value=False)),
            "noise alone": here(partial(mechanisms.gaussian, random, 1.0, problem.d)),
            "NumPy's normal numbers": here(partial(random.standard_normal, problem.d)),
        }
        yield from compare("parts of that step", f"batch {batch}", here(step), own, spent)
    yield from convolutions(spent)
    yield from beside_ghost(spent)


def convolutions(spent: Effort) -> Iterator[Row]:
    """Compare a private step of a CNN through ``Module``."""
    modules, batch = ("module_forms", "torch_forms", "opacus_forms"), 512
    with peers(modules, "cnn", 1, {"batch": batch}, lambda name: None) as calls:
        ours = {rule: calls.pop(rule) for rule in ("Flat", "PSAC", "Auto-S") if rule in calls}
        for rule, mine in ours.items():
            key = f"private step of a CNN, {rule}"
            yield from compare(key, f"batch {batch}, 1 thread", mine, calls, spent)


def beside_ghost(spent: Effort) -> Iterator[Row]:
    """Compare private steps of three networks through ``Module`` with ghost norms."""
    modules, ghost = ("module_forms", "opacus_forms"), "Opacus, ghost"
    for work, batch, threads in itertools.product(NETWORKS, (64, 256, 512), thread_counts()):
        with peers(modules, work, threads, {"batch": batch}, lambda name: None) as calls:
            if "Flat" in calls and ghost in calls:
                key = f"private step of {NETWORKS[work]}, Module"
                case = f"batch {batch}, {threads} thread{'s' * (threads > 1)}"
                yield from compare(key, case, calls["Flat"], {ghost: calls[ghost]}, spent)
