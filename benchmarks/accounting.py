"""Privacy accounting beside dp-accounting: Renyi curves, loss distributions, ledger, draws.

Run it alone with ``python -m benchmarks.accounting`` or with the others by
``python -m benchmarks accounting``.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from dpanalysis import privacy
from dpanalysis.privacy.events import Gaussian, Laplace, Pure, Repeated, Sampled
from dpanalysis.privacy.mechanisms import random_source

ADD = "add_or_remove_one"
ORDERS = np.arange(2.0, 256.0)
RATE, STEPS, DELTA = 0.01, 1000, 1e-5


def median_ms(calls: list[Callable[[], Any]], repetitions: int) -> list[float]:
    """Return the median milliseconds of each call, the repetitions interleaved."""
    times: list[list[float]] = [[] for _ in calls]
    for call in calls:
        call()
    for _ in range(repetitions):
        for call, kept in zip(calls, times):
            start = time.perf_counter()
            call()
            kept.append(1e3 * (time.perf_counter() - start))
    return [statistics.median(kept) for kept in times]


def rdp_curve() -> Any:
    return privacy.rdp_poisson_gaussian(ORDERS, RATE, 1.0)


def peer_rdp_curve() -> Any:
    import dp_accounting
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant(list(ORDERS))
    event = dp_accounting.PoissonSampledDpEvent(RATE, dp_accounting.GaussianDpEvent(1.0))
    return accountant.compose(event, 1)


def run_of(multiplier: float) -> Repeated:
    return Repeated(Sampled(privacy.Poisson(RATE), [Gaussian(multiplier, 1.0)]), STEPS)


def pld() -> float:
    return privacy.epsilon(run_of(1.0), DELTA, ADD, "pld")


def peer_pld() -> float:
    from dp_accounting.pld import privacy_loss_distribution

    once = privacy_loss_distribution.from_gaussian_mechanism(1.0, sampling_prob=RATE)
    return float(once.self_compose(STEPS).get_epsilon_for_delta(DELTA))


def thousand_curves() -> None:
    for multiplier in np.linspace(0.5, 5.0, 1000):
        privacy.rdp_poisson_gaussian(ORDERS, RATE, multiplier)


def calibration() -> float:
    return privacy.calibrate(run_of, privacy.Budget(1.0, DELTA, ADD), (0.5, 20.0), tol=1e-4)


def peer_calibration() -> Any:
    import dp_accounting

    def make(multiplier: float) -> Any:
        step = dp_accounting.PoissonSampledDpEvent(RATE, dp_accounting.GaussianDpEvent(multiplier))
        return dp_accounting.SelfComposedDpEvent(step, STEPS)

    return dp_accounting.calibrate_dp_mechanism(
        dp_accounting.pld.PLDAccountant,
        make,
        1.0,
        DELTA,
        dp_accounting.ExplicitBracketInterval(0.5, 20.0),
        tol=1e-4,
    )


def thousand_laplace() -> float:
    events = [Laplace(scale, 1.0) for scale in np.geomspace(100.0, 1000.0, 1000)]
    return privacy.epsilon(events, DELTA, "replace_one")


def filter_and_ledger() -> None:
    guard, ledger, event = privacy.Filter(privacy.Budget(1e9)), privacy.Ledger(ADD), Pure(0.1)
    for _ in range(100_000):
        guard.spend(event)
        ledger.record(event)


def draw(sampling: Any) -> Callable[[], Any]:
    random = random_source(0)
    return lambda: sampling.draw(495_141, random)


def mask() -> Any:
    return np.flatnonzero(np.random.default_rng(0).random(495_141) < RATE)


def choice() -> Any:
    return np.sort(np.random.default_rng(0).choice(495_141, 4951, replace=False, shuffle=False))


def run(quick: bool = False) -> list[dict[str, Any]]:
    """Return one row a comparison; ``target`` is what performance.md asks for."""
    # work, ours, peer's name, peer, target, repetitions
    rows = [
        ("RDP, orders 2..255", rdp_curve, "dp-accounting", peer_rdp_curve, "1 ms; goal .3 ms", 30),
        ("RDP, 1000 noise scales", thousand_curves, None, None, "500 ms", 3),
        ("PLD epsilon, T=1000", pld, "dp-accounting", peer_pld, "310 ms", 10),
        ("calibrate noise by PLD", calibration, "dp-accounting", peer_calibration, "", 1),
        ("1000 Laplace scales, tightest", thousand_laplace, None, None, "", 2),
        ("filter + ledger, 1e5 steps", filter_and_ledger, None, None, "2 s; goal .5 s", 3),
        ("Poisson draw", draw(privacy.Poisson(RATE)), "NumPy mask", mask, "0.044 ms", 200),
        (
            "draw without replacement",
            draw(privacy.WithoutReplacement(4951)),
            "NumPy choice",
            choice,
            "0.044 ms",
            200,
        ),
    ]
    table = []
    for work, ours, name, peer, target, repetitions in rows:
        calls = [ours] if peer is None else [ours, peer]
        repetitions = max(1, repetitions // 5) if quick else repetitions
        try:
            times = median_ms(calls, repetitions)
        except ImportError:  # the peer is an extra
            name, times = f"{name} (not installed)", median_ms([ours], repetitions)
        peer_ms = times[1] if len(times) == 2 else None
        table.append(
            {
                "work": work,
                "ours_ms": times[0],
                "peer": name,
                "peer_ms": peer_ms,
                "ratio": peer_ms / times[0] if peer_ms is not None else None,
                "target": target,
            }
        )
    return table


if __name__ == "__main__":
    for row in run():
        beside = (
            f"{row['peer']} {row['peer_ms']:.3f} ms, x{row['ratio']:.1f}" if row["ratio"] else ""
        )
        print(f"{row['work']:32} {row['ours_ms']:10.3f} ms   {beside:44} target {row['target']}")
