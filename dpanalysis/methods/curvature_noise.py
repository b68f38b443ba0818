r"""How noisy the answers are of a method that looks for second-order points.

Full batches are paid from a filter under zCDP, which lets a run decide on the way how noisy the
rest will be. Small batches have no zCDP cost, and the Renyi bound for batches of a fixed size
(Theorem B.4 of Gao and Wright 2023) can be ten times worse than the truth. So all of a run on
batches is fixed beforehand but for one thing: whether the next answer is a gradient or a Hessian.

*Why that is enough.* Both kinds of answer are Gaussian noise of the same multiplier s on a batch
of their own: a record moves the answer by at most 1/s standard deviations of its noise. Without
subsampling the pair N(0, 1), N(1/s, 1) dominates both, and with it the amplified pair does. A run
of a phase has at most as many answers as all its iterations may ask for; so the product of that
many pairs dominates it, whichever kind is asked next and wherever it ends (see
:class:`dpanalysis.privacy.Plan`). With two multipliers that would be false: which of the two pairs
comes how often would depend on the answers. Products of fixed pairs are what loss distributions
compose.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .. import privacy
from ..privacy.events import Event, Gaussian, Repeated, Sampled
from ..privacy.relations import Budget
from ..privacy.sampling import Sampling

__all__ = ["Noise", "batch_multipliers", "check_noise", "pure_of"]


@dataclass(frozen=True)
class Noise:
    """What every answer of a phase is perturbed by; zeros are exact answers.

    Attributes
    ----------
    gradient, hessian : float
        Standard deviations.
    search : float
        lambda: the search is 1/lambda-private.
    """

    gradient: float = 0.0
    hessian: float = 0.0
    search: float = 0.0


def batch_multipliers(
    sampling: Sampling,
    n: int,
    phases: Sequence[tuple[int, float]],
    budget: Budget,
    accountant: str,
) -> tuple[list[float], tuple[Event, ...]]:
    """Return the noise multiplier of each phase on batches, and what all of them ask at most.

    The shares of the phases are shares of rho, which the cost of small batches is nearly
    proportional to: the variance of a phase grows with its answers over its share.

    Parameters
    ----------
    sampling : WithoutReplacement
        Each answer has a batch of its own.
    n : int
        Number of records.
    phases : sequence of (int, float)
        The answers of each phase, at most, and its share of the budget.
    budget : Budget
        With delta > 0.
    accountant : {"tightest", "rdp", "pld"}

    Returns
    -------
    multipliers : list of float
        Above those of the events by 1e-11: a standard deviation is a rounded product.
    events : tuple of Event

    Raises
    ------
    ValueError
        If the budget is pure or zCDP.
    IncompatibleAccounting
        If the accountant cannot account for small batches with Gaussian noise.

    References
    ----------
    Gao and Wright (2023), Section 3.3 and Appendix B; errata 003-20.

    Examples
    --------
    >>> from dpanalysis.privacy.sampling import WithoutReplacement
    >>> budget = Budget(0.2, delta=1e-6)
    >>> batch_multipliers(WithoutReplacement(7922), 79_222, [(390, 1.0)], budget, "rdp")[0]
    [405.9]
    >>> batch_multipliers(WithoutReplacement(7922), 79_222, [(390, 1.0)], budget, "tightest")[0]
    [37.87]
    """
    check_noise(budget)
    if budget.rho is not None:
        raise ValueError(
            f"budget must be an epsilon with delta > 0 for {sampling!r}, got {budget!r}: small "
            "batches have no zCDP cost"
        )
    sizes = np.sqrt([count / share for count, share in phases])
    sizes /= sizes[0]

    def asked(multiplier: float) -> list[Event]:
        batches = (Sampled(sampling, [Gaussian(multiplier * size, 1.0)], n) for size in sizes)
        return [Repeated(batch, count) for batch, (count, _) in zip(batches, phases, strict=True)]

    least = privacy.calibrate(asked, budget, (1e-2, 1e6), tol=1e-3, accountant=accountant)
    return [float(least * size * (1.0 + 1e-11)) for size in sizes], tuple(asked(least))


def check_noise(budget: Budget) -> None:
    """Raise unless the budget allows Gaussian noise."""
    if budget.rho is None and budget.delta == 0.0:
        raise ValueError(
            f"budget must have delta > 0 or be zCDP for Gaussian noise, got {budget!r}"
        )


def pure_of(rho: float) -> float:
    """Return the epsilon with epsilon tanh(epsilon/2) = rho (errata 003-6)."""
    from scipy import optimize

    low = math.sqrt(2.0 * rho)
    high = low + rho + 1.0
    root = optimize.brentq(lambda e: privacy.zcdp_pure(e) - rho, low, high, rtol=1e-14)
    return root * (1.0 - 1e-12)
