"""Privacy accounting beside dp-accounting and Opacus: Renyi curves, PLD, filter and ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from dpanalysis import clipping, methods, privacy
from dpanalysis.privacy.events import Gaussian, Laplace, Pure, Repeated, Sampled
from dpanalysis.privacy.facts import PublicFacts
from dpanalysis.privacy.mechanisms import random_source

from .measure import Effort, compare, effort, forget_epsilons, here, installed, quietly
from .table import Row

ADD = "add_or_remove_one"
ORDERS = np.arange(2.0, 256.0)
RATE, STEPS, DELTA = 0.01, 1000, 1e-5
ROWS = 495_141
# Grids on which dp-accounting is about as accurate as our default: epsilon exceeds the exact one by
# 4.4e-5 (ours by 4.7e-5) and by 2.7e-5 (ours by 3.1e-5). Its default, 1e-4, is finer and slower.
PEER_GRID, PEER_CALIBRATION_GRID = 2.5e-4, 1.5e-4


def rdp_curve() -> Any:
    return privacy.rdp_poisson_gaussian(ORDERS, RATE, 1.0)


def peer_rdp_curve() -> Any:
    import dp_accounting
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant(list(ORDERS))
    event = dp_accounting.PoissonSampledDpEvent(RATE, dp_accounting.GaussianDpEvent(1.0))
    return accountant.compose(event, 1)


def opacus_rdp_curve() -> Any:
    from opacus.accountants.analysis.rdp import compute_rdp

    return compute_rdp(q=RATE, noise_multiplier=1.0, steps=1, orders=list(ORDERS))


def run_of(multiplier: float) -> Repeated:
    return Repeated(Sampled(privacy.Poisson(RATE), [Gaussian(multiplier, 1.0)]), STEPS)


def pld() -> float:
    return privacy.epsilon(run_of(1.0), DELTA, ADD, "pld")


def peer_pld() -> float:
    from dp_accounting.pld import privacy_loss_distribution

    once = privacy_loss_distribution.from_gaussian_mechanism(
        1.0, sampling_prob=RATE, value_discretization_interval=PEER_GRID
    )
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

    bracket = dp_accounting.ExplicitBracketInterval(0.5, 20.0)
    grid = PEER_CALIBRATION_GRID
    accountant = partial(dp_accounting.pld.PLDAccountant, value_discretization_interval=grid)
    return dp_accounting.calibrate_dp_mechanism(accountant, make, 1.0, DELTA, bracket, tol=1e-4)


def plan(rate: float, steps: int) -> object:
    """Calibrate the noise of a whole run of SGD on two million records, at (1, 1e-8)."""
    infinite = (np.inf, np.inf)
    facts = PublicFacts(2_000_000, 2, 0.0, 1.0, ADD, gradient_bounds=infinite)
    sampling, rule = privacy.Poisson(rate), clipping.Flat(1.0)
    method = methods.SGD(1.0, steps, sampling=sampling, clipping=rule)
    return method.prepare(facts, privacy.Budget(1.0, 1e-8, ADD), "tightest")


def thousand_laplace() -> float:
    events = [Laplace(scale, 1.0) for scale in np.geomspace(100.0, 1000.0, 1000)]
    return privacy.epsilon(events, DELTA, "replace_one")


def filter_and_ledger(steps: int) -> None:
    guard, ledger, event = privacy.Filter(privacy.Budget(1e9)), privacy.Ledger(ADD), Pure(0.1)
    for _ in range(steps):
        guard.spend(event)
        ledger.record(event)


def multipliers(steps: int) -> np.ndarray:
    """Return the noise multipliers of an adaptive run, different at every step."""
    return np.linspace(50.0, 100.0, steps)


def adaptive(steps: int) -> float:
    """Check the budget before every step and record the step."""
    guard, ledger = privacy.Filter(privacy.Budget(5.0, DELTA, ADD)), privacy.Ledger(ADD)
    for multiplier in multipliers(steps):
        event = Gaussian(float(multiplier), 1.0)
        guard.spend(event)
        ledger.record(event)
    return guard.epsilon()


def peer_adaptive(steps: int) -> float:
    import dp_accounting
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant()
    for multiplier in multipliers(steps):
        accountant.compose(dp_accounting.GaussianDpEvent(multiplier))
        assert accountant.get_epsilon(DELTA) < 5.0
    return accountant.get_epsilon(DELTA)


def opacus_adaptive(steps: int) -> float:
    """Do the same by Opacus, which sums its whole history at each query: quadratic in the steps."""
    from opacus.accountants import RDPAccountant

    accountant = RDPAccountant()
    for multiplier in multipliers(steps):
        accountant.step(noise_multiplier=float(multiplier), sample_rate=1.0)
        assert accountant.get_epsilon(DELTA) < 5.0
    return accountant.get_epsilon(DELTA)


def draw(sampling: Any) -> Callable[[], Any]:
    random = random_source(0)
    return lambda: sampling.draw(ROWS, random)


def mask() -> Any:
    return np.flatnonzero(np.random.default_rng(0).random(ROWS) < RATE)


def choice() -> Any:
    return np.sort(np.random.default_rng(0).choice(ROWS, 4951, replace=False, shuffle=False))


def run(quick: bool) -> Iterator[Row]:
    """Run all comparisons."""
    spent = effort(quick)
    slow = Effort(1 if quick else 3, 0.0, 1)  # for calls that take seconds

    def row(
        key: str,
        case: str,
        ours: Callable[[], object],
        spent: Effort = spent,
        **beside: Callable[[], object],
    ) -> list[Row]:
        names = {"dp_accounting": "dp-accounting", "numpy": "NumPy", "opacus": "Opacus"}
        there = {names[key]: call for key, call in beside.items() if installed(names[key].lower())}
        others = {name: here(call) for name, call in there.items()}

        def anew() -> object:
            forget_epsilons()
            return ours()

        return compare(key, case, here(anew), others, spent)

    yield from row(
        "RDP of Poisson-sampled Gaussian noise",
        "orders 2 to 255",
        rdp_curve,
        dp_accounting=peer_rdp_curve,
        opacus=opacus_rdp_curve,
    )
    yield from row("RDP of 1000 noise scales", "orders 2 to 255", thousand_curves, slow)
    yield from row("PLD epsilon", f"{STEPS} steps", pld, dp_accounting=peer_pld)
    yield from row("noise by PLD", "to 1e-4", calibration, slow, dp_accounting=peer_calibration)
    for rate, steps in ((1e-6, 100), (1e-4, 100_000), (0.5, 10_000_000), (1e-6, 10_000_000)):
        case = f"SGD, Poisson({rate:g}), {steps:,} steps"
        yield from row("plan", case, partial(plan, rate, steps), slow)
    yield from row("1000 Laplace scales", "tightest epsilon", thousand_laplace, slow)
    steps = 100_000
    yield from row("filter and ledger, 1e5 steps", "pure", partial(filter_and_ledger, steps), slow)
    for steps in (100, 400):
        yield from row(
            "adaptive run",
            f"a budget kept over {steps} steps of distinct noise",
            partial(adaptive, steps),
            slow,
            dp_accounting=partial(peer_adaptive, steps),
            opacus=partial(quietly, partial(opacus_adaptive, steps)),
        )
    yield from row("Poisson draw", f"{RATE} of {ROWS:,}", draw(privacy.Poisson(RATE)), numpy=mask)
    fixed = draw(privacy.WithoutReplacement(4951))
    yield from row("draw without replacement", f"4951 of {ROWS:,}", fixed, numpy=choice)
