r"""Private SGD as printed by Fang et al. (2023): constants that are larger, or left open.

For comparison only. The proved bounds, with all constants, are in :mod:`dpanalysis.theory`.
"""

from __future__ import annotations

from math import inf, log, sqrt
from typing import NamedTuple

from ..._validation import check_int, check_number, check_positive
from ...theory._arguments import check_failure
from ...theory.clipped_sgd import sampled_tails


def printed_objective_bound(
    initial_gap: float,
    L: float,
    step_size: float,
    noise_scale: float,
    iterations: int,
    failure: float,
) -> float:
    r"""Return :math:`2(D + c_1 L \ln(2/\delta)/2) + 32 c_2 L \ln(2T/\delta)` of Proposition 4.2.

    It is taken from the end of the proof, with constants for which that is valid.
    """
    gap = check_number("initial_gap", initial_gap, low=0.0)
    L = check_positive("L", L)
    scale = check_number("noise_scale", noise_scale, low=0.0)
    T = check_int("iterations", iterations, low=1)
    failure = check_failure(failure)
    largest = min(0.5 / L, 1.0 / (scale * sqrt(T)) if scale else inf)
    check_number("step_size", step_size, low=0.0, low_open=True, high=largest * (1.0 + 1e-12))
    c1, c2 = 1.0 + 1.0 / log(2.0), 1.5
    drift = 2.0 * (gap + 0.5 * c1 * L * log(2.0 / failure))
    return drift + 32.0 * c2 * L * log(2.0 * T / failure)


class PrintedParameters(NamedTuple):
    r"""The paper's :math:`\sigma`, C and :math:`\eta` of (2), and its rate."""

    noise_multiplier: float
    clip_norm: float
    step_size: float
    rate: float


def printed_clipped_sgd(
    n: int,
    batch_size: int,
    dimension: int,
    iterations: int,
    epsilon: float,
    delta: float,
    L: float,
    rho: float | None,
    *,
    c1: float,
    c2: float,
    c3: float,
    c4: float,
    c5: float,
    failure: float | None = None,
) -> PrintedParameters:
    r"""Return the paper's parameters and rate, given the constants that it leaves open.

    .. math:: \sigma = c_2 \frac{B \sqrt{T \ln(1/\delta)}}{n\epsilon}, \quad
              C = c_3 + c_4 \sqrt{\ln(nT/\delta')}, \quad
              \eta = \min\left\{\frac{1}{2L},
              \frac{c_5 B}{\sqrt{(B\rho^2 + C^2 d\sigma^2) T}}\right\},

    The rate is that of Proposition 4.4, and without ``failure`` of Theorem 4.5 up to logarithms;
    roots that our text has lost follow from (9) to (11). Without ``rho`` (then B = n) Remark 4.2
    applies. For comparison ONLY: misprints are corrected (004-2, 004-3), and no value of c2 makes
    the noise private for all budgets.
    """
    n, d = check_int("n", n, low=1), check_int("dimension", dimension, low=1)
    B = check_int("batch_size", batch_size, low=1, high=n)
    T, epsilon = check_int("iterations", iterations, low=1), check_positive("epsilon", epsilon)
    delta = check_number("delta", delta, low=0.0, high=0.5, low_open=True, high_open=True)
    L, heavy = check_positive("L", L), rho is None
    rho = sampled_tails(None, B, n) if heavy else check_number("rho", rho, low=0.0)
    c1, c2, c5 = check_positive("c1", c1), check_positive("c2", c2), check_positive("c5", c5)
    c3, c4 = check_number("c3", c3, low=0.0), check_number("c4", c4, low=0.0)
    least = epsilon / (c1 * (B / n) ** 2)
    if least >= T:
        raise ValueError(f"iterations must exceed epsilon/(c1 q^2) = {least:g}, got {T}")
    logarithm = log(n * T)
    if failure is not None:
        failure = check_number("failure", failure, low=0.0, high=0.5, low_open=True, high_open=True)
        logarithm += log(1.0 / failure)
    sigma = c2 * B * sqrt(T * log(1.0 / delta)) / (n * epsilon)
    growth = sqrt(n) if heavy else 1.0
    C = growth * (c3 + c4 * sqrt(logarithm))
    noise = sqrt((B * rho**2 + d * (C * sigma) ** 2) * T)
    privacy = growth * sqrt(d) / (n * epsilon)
    if failure is not None:
        privacy *= sqrt(logarithm * log(1.0 / delta))
    return PrintedParameters(
        noise_multiplier=sigma,
        clip_norm=C,
        step_size=min(0.5 / L, c5 * B / noise) if noise else 0.5 / L,
        rate=1.0 / T + (0.0 if heavy else 1.0 / sqrt(B * T)) + privacy,
    )
