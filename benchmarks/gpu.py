"""A GPU beside the host: sums over samples, noise, whole runs, networks.

Needs CuPy and a CUDA device, and PyTorch for networks; missing packages are reported. Host and
device take turns in one process, so that the host has all of its cores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np

import dpanalysis as dpa
from dpanalysis import clipping
from dpanalysis.privacy import mechanisms
from dpanalysis.problems import MLP

from .measure import Effort, compare, here, installed, unavailable
from .networks import private_step
from .peers import data
from .table import Row
from .targets import HOST, NOT_PRIVATE_STEP

RULE = clipping.Flat(0.1)
SIZES = (
    (100_000, 20, "float64"),
    (1_000_000, 20, "float64"),
    (1_000_000, 1000, "float64"),
    (1_000_000, 1000, "float32"),
)


def summary(rows: Iterable[Row]) -> str:
    """Return sentences on how host and device were timed."""
    return (
        "Host and device, and the peers of a module, took turns in one process that had all cores. "
        "Arrays are CuPy's, modules PyTorch's; a step ends when its iterate is on the host."
    )


def cupy() -> Any:
    """Return CuPy if it has a device, else None."""
    if not installed("cupy"):
        return None
    import cupy

    try:
        cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        unavailable("cupy", f"CuPy has no device: {error}")
        return None
    return cupy


def run(quick: bool) -> Iterator[Row]:
    """Run all comparisons; quick: a tenth of the rows."""
    spent, library = Effort(2 if quick else 5, 0.05, 3), cupy()
    if library is not None:
        yield from copies(library, spent)
        yield from sums(library, spent, 10 if quick else 1)
        yield from noise(library, spent)
    if installed("torch"):
        import torch

        if torch.cuda.is_available():
            yield from networks(torch, spent)
        else:
            unavailable("torch", "PyTorch has no CUDA device")


def copies(cp: Any, spent: Effort) -> Iterator[Row]:
    """Time the primitives of the page's cost model: a call, a memory read, a copy from the host."""
    one, host = cp.zeros(1), np.ones(1 << 25)
    device = cp.asarray(host)

    def calls() -> None:
        for _ in range(1000):
            one + 1.0
        cp.cuda.Device().synchronize()

    def read() -> None:
        device.sum().item()

    yield from compare("a thousand calls of one number", "", here(calls), {}, spent)
    yield from compare("one read on the device", "268 MB", here(read), {}, spent)

    def send() -> None:
        cp.asarray(host)
        cp.cuda.Device().synchronize()

    yield from compare("a copy to the device", "268 MB", here(send), {}, spent)


def pair(cp: Any, n: int, d: int, dtype: str) -> tuple[dpa.ERM, dpa.ERM]:
    """Return a problem on the host and the same on the device."""
    X, y, _, _ = data.dense(n, d, dtype)
    bound = dpa.RowBound(2, float(d) ** 0.5)
    loss, penalty = dpa.losses.Logistic(), dpa.regularizers.L2(0.1)
    return tuple(dpa.ERM(each, y, loss, penalty, bound) for each in (X, cp.asarray(X)))


def sums(cp: Any, spent: Effort, shrink: int) -> Iterator[Row]:
    """Compare gradient sums: of all rows, clipped, of a batch; and whole runs."""
    for n, d, dtype in SIZES:
        problems = pair(cp, n // shrink, d, dtype)
        size = f"{n // shrink:,} x {d} {dtype}"
        w = np.zeros(d)
        for key, rule in (("full gradient", None), ("clipped gradient", RULE)):
            host, device = (here(partial(p.sums, w, clipping=rule, value=False)) for p in problems)
            yield from compare(key, size, device, {HOST: host}, spent)
        if d == 20:
            method = dpa.methods.Nesterov(step_size=0.07, iterations=50, mu=0.1)
            steps = [
                partial(dpa.minimize, p, method, dpa.Budget(1.0), rng=0, record=())
                for p in problems
            ]
            host, device = map(here, steps)
            yield from compare("50 private steps", size, device, {HOST: host}, spent)
        del problems
        cp.get_default_memory_pool().free_all_blocks()
    problems, rows = pair(cp, 100_000, 100, "float64"), np.arange(0, 100_000, 100)
    host, device = (here(partial(p.sums, np.zeros(100), rows, RULE, value=False)) for p in problems)
    yield from compare("clipped gradient", "1,000 of 100,000 x 100", device, {HOST: host}, spent)
    X, y = data.images(10_000)
    for batch in (1_000, 10_000):
        steps = [private_step(MLP(each, y, (128,), 10), batch, RULE) for each in (X, cp.asarray(X))]
        host, device = map(here, steps)
        case = f"784-128-10, batch {batch:,}"
        yield from compare("private step of a network", case, device, {HOST: host}, spent)


def noise(cp: Any, spent: Effort) -> Iterator[Row]:
    """Compare a noisy vector on the device with one on the host."""
    random = np.random.default_rng(0)
    for d in (10_000, 100_000, 300_000, 1_000_000, 10_000_000):
        host, device = (
            here(partial(mechanisms.add_noise, total, "gaussian", 1.0, [random]))
            for total in (np.zeros((1, d)), cp.zeros((1, d)))
        )
        yield from compare("Gaussian noise", f"{d:,} parameters", device, {HOST: host}, spent)


def networks(torch: Any, spent: Effort) -> Iterator[Row]:
    """Compare private steps of ``Module`` with those of plain PyTorch and Opacus."""
    from .peers import torch_forms

    images, labels = data.images(8192)
    words = np.random.default_rng(0).standard_normal((8192, 32, 16)).astype(np.float32)
    kinds = {
        "784-128-10": (torch_forms.sequential, images),
        "CNN": (torch_forms.convolutions, images.reshape(-1, 1, 28, 28)),
        "LSTM 16-64": (partial(torch_forms.Reader, 0, 16, 10), words),
    }
    for kind, (build, X) in kinds.items():
        for batch in (256, 2048, 8192):
            problem = dpa.problems.Module(build(), X[:batch], labels[:batch], device="cuda")
            on_device = (torch.from_numpy(each[:batch]).cuda() for each in (X, labels))
            others = {NOT_PRIVATE_STEP: torch_forms.step_of(build().cuda(), *on_device)}
            if installed("opacus"):
                from .peers import opacus_forms

                on_device = (torch.from_numpy(each[:batch]).cuda() for each in (X, labels))
                others |= opacus_forms.steps_of(lambda b=build: b().cuda(), *on_device)
            beside = {name: here(_waited(torch, call)) for name, call in others.items()}
            case = f"{kind}, batch {batch:,}"
            ours = here(private_step(problem, batch, RULE))
            yield from compare("private step of a module", case, ours, beside, spent)
            yield from memory(torch, problem, others, batch, case)


def _waited(torch: Any, step: Callable[[], Any]) -> Callable[[], None]:
    """Return a step that waits for the device."""

    def waited() -> None:
        step()
        torch.cuda.synchronize()

    return waited


def memory(
    torch: Any, problem: Any, others: dict[str, Callable[[], Any]], batch: int, case: str
) -> Iterator[Row]:
    """Compare the peak device memory of a step beyond what was allocated before."""
    found = []
    for call in (private_step(problem, batch, RULE), *others.values()):
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        found.append((torch.cuda.max_memory_allocated() - before) / 2**20)
    for name, megabytes in zip(others, found[1:], strict=True):
        yield Row("memory of that step", case, (found[0],), "MB", name, (megabytes,))
