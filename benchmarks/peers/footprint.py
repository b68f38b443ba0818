"""Peak memory of one way to a clipped gradient: ``python -m benchmarks.peers.footprint WAY n d R``.

Prints megabytes: the peak with the data, less what was resident before them; and the data alone.
"""

from __future__ import annotations

import ctypes
import gc
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from . import data


def resident(field: str) -> float:
    """Return megabytes: ``VmRSS`` is the present, ``VmHWM`` the peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    line = next(line for line in lines if line.startswith(field))
    return int(line.split()[1]) / 1e3


def peak_of(first: Callable[[], Any], call: Callable[[], Any]) -> float:
    """Return the megabytes that a call takes at its peak; ``first`` loads the libraries."""
    first()
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what was given back before is no part of this call
    Path("/proc/self/clear_refs").write_text("5")  # from here on
    before = resident("VmRSS")
    call()
    return resident("VmHWM") - before


def ours(X: np.ndarray, y: np.ndarray, W: np.ndarray) -> None:
    from dpanalysis import ERM, clipping, losses

    ERM(X, y, losses.Logistic()).sums(W, clipping=clipping.Flat(data.CLIP))


def jax(X: np.ndarray, y: np.ndarray, W: np.ndarray) -> None:
    from . import jax_forms

    jax_forms._mapped(X, y, W[0]).block_until_ready()


def opacus(mode: str) -> Callable[..., None]:
    def sums(X: np.ndarray, y: np.ndarray, W: np.ndarray) -> None:
        import torch

        from .opacus_forms import gradient

        tensors = [torch.from_numpy(array) for array in (W[0], X, (y + 1.0) / 2.0)]
        gradient(mode, tensors[0], len(y))(*tensors[1:])

    return sums


WAYS: dict[str, tuple[str, Callable[..., None]]] = {
    "ours": ("", ours),
    "JAX vmap": ("jax", jax),
    "Opacus, per sample": ("opacus", opacus("hooks")),
    "Opacus, ghost": ("opacus", opacus("ghost")),
}


def peak(way: Callable[..., Any], n: int, d: int, R: int) -> tuple[float, float]:
    """Return megabytes of data and peak, and of the data."""
    W, few = data.iterates(R, d), 400_000 // d
    random = np.random.default_rng(0)
    way(random.random((few, d)), np.ones(few), W)  # libraries and kernels are loaded
    before = resident("VmRSS")
    X, y = np.empty((n, d)), np.ones(n)
    random.random(out=X)
    way(X, y, W)
    return resident("VmHWM") - before, (X.nbytes + y.nbytes) / 1e6


if __name__ == "__main__":
    name, *sizes = sys.argv[1:]
    print(json.dumps(peak(WAYS[name][1], *map(int, sizes))))
