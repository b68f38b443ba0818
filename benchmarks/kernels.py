"""Sums over samples: dense, CSR, minibatches, replicates, other clipping rules.

Every comparison is made with one thread and with two, the same number on both sides. A peer's
result is compared with ours before timing (to 3e-5 of the largest entry; Opacus adds 1e-6 to a
norm).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from numba import njit

from dpanalysis import ERM, RowBound, clipping, losses, regularizers
from dpanalysis._numba import finish, first_task, next_task
from dpanalysis._parallel import run_tasks
from dpanalysis.privacy.accounting.sampling import Poisson, WithoutReplacement

from .measure import compare, effort, here, peers, thread_counts
from .peers import data
from .table import Row
from .targets import BUILT_IN, ONE_READ, SINGLE_PASSES

CLIP = clipping.Flat(data.CLIP)
PENALTY = regularizers.GemanMcClure(1e-3)
EVERYONE = ("numpy_forms", "sklearn_forms", "jax_forms", "torch_forms", "opacus_forms")
LOSSES = {
    "logistic": losses.Logistic(),
    "huberised hinge": losses.HuberizedHinge(),
    "non-convex penalty": losses.Logistic(),
}


_PARTS = 64


@njit(fastmath=True, cache=True, nogil=True)
def _read(flat: Any, totals: Any, queue: Any, wake_flags: Any, helper: int) -> None:
    size = flat.size // _PARTS
    part = first_task(queue, wake_flags, helper)
    while part < _PARTS:
        block = flat[part * size : (part + 1) * size]
        total = 0.0
        for i in range(size):
            total += block[i]
        totals[part] = total
        part = next_task(queue)
    finish(queue, _PARTS, wake_flags, helper)


def read(flat: np.ndarray) -> float:
    """Sum an array with all threads, at the speed of reading it."""
    totals = np.zeros(_PARTS)
    run_tasks(_read, (flat, totals), _PARTS)
    return float(totals.sum())


def _spare(threads: int, quick: bool) -> bool:
    """Whether a quick run skips peers that start slowly."""
    return quick and threads != thread_counts()[-1]


def used(threads: int) -> str:
    return "1 thread" if threads == 1 else f"{threads} threads"


def dense(
    key: str, n: int, d: int, dtype: str, loss: str, everyone: bool, quick: bool
) -> Iterator[Row]:
    """Time a clipped gradient against one read of the data and the peers."""
    X, y, w, _ = data.dense(n, d, dtype)
    problem = ERM(X, y, LOSSES[loss])

    def ours() -> np.ndarray:
        total = problem.sums(w, clipping=CLIP, value=False).gradient
        return total + n * PENALTY.gradient(w) if loss == "non-convex penalty" else total

    clipped = ours()
    plain = problem.sums(w, value=False).gradient / n
    for threads in thread_counts():
        with peers(
            EVERYONE if everyone and not _spare(threads, quick) else EVERYONE[:1],
            "dense",
            threads,
            {"n": n, "d": d, "dtype": dtype, "loss": loss},
            lambda name: plain if "not private" in name else clipped,
            3e-5 if dtype == "float64" else 1e-3,
        ) as others:
            one_read = {ONE_READ: here(lambda: read(X.reshape(-1)), threads)}
            case = f"{loss}, {n:,} x {d} {dtype}, {used(threads)}"
            yield from compare(key, case, here(ours, threads), one_read | others, effort(quick))


def sparse(key: str, n: int, d: int, entries: int, quick: bool) -> Iterator[Row]:
    X, y, w, _ = data.csr(n, d, entries)
    problem, full = ERM(X, y, losses.Logistic()), ERM(X.toarray(), y, losses.Logistic())
    clipped = problem.sums(w, clipping=CLIP, value=False).gradient
    plain = problem.sums(w, value=False).gradient / n
    for threads in thread_counts():
        with peers(
            EVERYONE[:2],
            "sparse",
            threads,
            {"n": n, "d": d, "entries": entries},
            lambda name: plain if "not private" in name else clipped,
        ) as others:
            as_dense = here(lambda: full.sums(w, clipping=CLIP, value=False), threads)
            yield from compare(
                key,
                f"{entries} of {d}, n = {n:,}, {used(threads)}",
                here(lambda: problem.sums(w, clipping=CLIP, value=False), threads),
                others | {"the same, dense": as_dense},
                effort(quick),
            )


def minibatch(
    key: str, n: int, d: int, rate: float, quick: bool, entries: int = 0
) -> Iterator[Row]:
    """Time gradients of random batches, of sparse rows if they have a number of ``entries``."""
    X, y, w, _ = data.csr(n, d, entries) if entries else data.dense(n, d)
    problem, random = ERM(X, y, losses.Logistic()), np.random.default_rng(4)
    for sampling in (Poisson(rate), WithoutReplacement(round(rate * n))):
        poisson = isinstance(sampling, Poisson)
        batches = data.batches(n, rate, poisson)
        rows = itertools.cycle(batches)

        def ours(rows: Iterator[np.ndarray] = rows) -> object:
            return problem.sums(w, next(rows), clipping=CLIP, value=False)

        first = problem.sums(w, batches[0], clipping=CLIP, value=False).gradient
        case = f"{type(sampling).__name__}, {rate:g} of {n:,} x {d}"
        for threads in thread_counts():
            with peers(
                EVERYONE[:1]
                if entries or _spare(threads, quick)
                else ("numpy_forms", "jax_forms", "opacus_forms"),
                "minibatch",
                threads,
                {"n": n, "d": d, "rate": rate, "poisson": poisson}
                | ({"entries": entries} if entries else {}),
                lambda name, first=first: first,
            ) as others:
                yield from compare(
                    key, f"{case}, {used(threads)}", here(ours, threads), others, effort(quick)
                )
        if entries:
            continue
        yield from compare(
            "draw",
            case,
            here(lambda sampling=sampling: sampling.draw(n, random)),
            {"its gradient": here(ours, thread_counts()[-1])},
            effort(quick),
        )


def replicates(n: int, d: int, R: int, quick: bool) -> Iterator[Row]:
    X, y, _, _ = data.dense(n, d)
    problem, W = ERM(X, y, losses.Logistic()), data.iterates(R, d)
    clipped = problem.sums(W, clipping=CLIP, value=False).gradient
    asked: dict[str, dict[str, Any]] = {
        "clipped gradient": {"value": False, "clipping": CLIP},
        "value": {"gradient": False},
        "gradient and value": {},
    }
    for threads in thread_counts():
        for what, wanted in asked.items():
            modules = ("numpy_forms",) if "clipping" in wanted else ()
            arguments = {"n": n, "d": d, "R": R}
            with peers(modules, "replicates", threads, arguments, lambda _: clipped) as others:
                singles = here(
                    lambda wanted=wanted: [problem.sums(w, **wanted) for w in W], threads
                )
                yield from compare(
                    "replicates",
                    f"{R} at once, {n:,} x {d}, {what}, {used(threads)}",
                    here(lambda wanted=wanted: problem.sums(W, **wanted), threads),
                    {SINGLE_PASSES: singles} | others,
                    effort(quick),
                )


def rules(n: int, d: int, quick: bool) -> list[Row]:
    """Time other clipping rules and losses against flat clipping of the logistic loss."""
    X, y, w, _ = data.dense(n, d)
    logistic = ERM(X, y, losses.Logistic())
    bounded = ERM(X, y, losses.Logistic(), row_bound=RowBound(2, d**0.5))
    value = clipping.Value(CLIP.clip_norm, *bounded.loss.weak_growth(d**0.5))
    own = clipping.Custom(lambda norm, loss: min(1.0, 0.5 / max(norm, 1e-300)), CLIP.clip_norm)
    compared: dict[str, tuple[ERM, Any]] = {
        "Automatic": (logistic, clipping.Automatic(0.1)),
        "PerSampleAdaptive": (logistic, clipping.PerSampleAdaptive(0.1)),
        "Value": (bounded, value),
        "Custom, in Python": (logistic, own),
        "Flat, Hinge": (ERM(X, y, losses.Hinge()), CLIP),
        "Flat, HuberizedHinge": (ERM(X, y, losses.HuberizedHinge()), CLIP),
    }
    threads = thread_counts()[-1]
    others = {
        name: here(lambda p=problem, rule=rule: p.sums(w, clipping=rule, value=False), threads)
        for name, (problem, rule) in compared.items()
    }
    flat = here(lambda: logistic.sums(w, clipping=CLIP, value=False), threads)
    case = f"flat, logistic, {n:,} x {d}, {used(threads)}"
    return compare("clipping rules", case, flat, others, effort(quick))


class Own(losses.Loss):
    """The logistic loss as a user would write it."""

    classification, convex, lipschitz, smoothness = True, True, 1.0, 0.25

    def value(self, z: Any, y: Any) -> Any:
        """Return the loss."""
        size = np.abs(y * z)
        return np.log1p(np.exp(-size)) + 0.5 * (size - y * z)

    def derivative(self, z: Any, y: Any) -> Any:
        """Return the derivative in ``z``."""
        e = np.exp(-np.abs(y * z))
        return -y * np.where(y * z < 0.0, 1.0, e) / (1.0 + e)


def own_loss(n: int, d: int, quick: bool) -> Iterator[Row]:
    """Time a user's compiled loss against the built-in one with the same formulas."""
    X, y, w, _ = data.dense(n, d)
    S, labels, v, _ = data.csr(32_561, 124, 14)
    W = data.iterates(20, d)
    batch = data.batches(n, 0.05, True)[0]
    both = losses.compiled(Own()), losses.Logistic()
    dense, csr = ([ERM(A, b, loss) for loss in both] for A, b in ((X, y), (S, labels)))
    cases: dict[str, tuple[list[ERM], tuple[Any, ...]]] = {
        f"dense, {n:,} x {d}": (dense, (w,)),
        "CSR, 14 of 124": (csr, (v,)),
        f"minibatch, {batch.size:,} of {n:,} x {d}": (dense, (w, batch)),
        f"20 at once, {n:,} x {d}": (dense, (W,)),
    }
    for threads in thread_counts():
        for case, (problems, asked) in cases.items():
            ours, other = (
                here(lambda p=p, asked=asked: p.sums(*asked, clipping=CLIP, value=False), threads)
                for p in problems
            )
            name = f"{case}, {used(threads)}"
            yield from compare("own loss, compiled", name, ours, {BUILT_IN: other}, effort(quick))


def run(quick: bool) -> Iterator[Row]:
    """Run all comparisons; quick: a quarter of the rows, most peers at one setting only."""
    n = 60_000 // (data.SHRINK if quick else 1)
    yield from dense("dense gradient", n, 784, "float64", "logistic", True, quick)
    yield from dense("dense gradient", n, 784, "float32", "logistic", not quick, quick)
    for loss in ("huberised hinge", "non-convex penalty"):
        yield from dense("dense gradient", n, 784, "float64", loss, False, quick)
    yield from dense("gradient in cache", 100_000, 20, "float64", "logistic", not quick, quick)
    yield from sparse("CSR gradient, Adult-like", 32_561, 124, 14, quick)
    yield from sparse("CSR gradient", 100_000, 54, 12, quick)
    n = 495_141 // (data.SHRINK if quick else 1)
    yield from minibatch("minibatch gradient", n, 54, 0.01, quick)
    yield from minibatch("CSR minibatch gradient, Adult-like", 48_842, 124, 0.1, quick, 14)
    yield from replicates(100_000, 20, 20, quick)
    yield from rules(100_000, 20, quick)
    yield from own_loss(100_000, 20, quick)
