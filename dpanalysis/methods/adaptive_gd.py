"""Gradient descent with an adaptive privacy budget: DP-AGD, a rival in Chen and Lee (2020)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .._validation import check_choice, check_int, check_number
from ..privacy.facts import PublicFacts
from ..privacy.queries import NoisyMin, Ray, decrease_sensitivity
from .adaptive import AdaptiveMethod
from .searching import Refinement, Spending

__all__ = ["AdaptiveGD"]


@dataclass(frozen=True, repr=False, kw_only=True)
class AdaptiveGD(Refinement):
    r"""DP-AGD: normalised gradient descent whose steps report-noisy-min chooses from a grid.

    Each iteration releases a noisy clipped gradient g of all records and then, of

    .. math:: w - \eta\, g / \lVert g \rVert, \quad
              \eta \in \{0, \tfrac{\eta_0}{K}, \tfrac{2 \eta_0}{K}, \dots, \eta_0\},

    the index of a point of little clamped loss. Is that index 0, the gradient is taken for too
    noisy: its budget grows, and what it grew by buys another measurement, which is averaged with
    the old one.

    Parameters
    ----------
    step_size : float
        eta_0 > 0, the largest step at first: a length, as the gradient is normalised.
    candidates : int
        K >= 1 step sizes besides 0.
    iterations : int
        At most so many; with a budget the filter ends the run, as a rule.
    clip_norm, clip_loss : float
        C_grad and C_obj, in (0, inf).
    rho, selection_rho : float, optional
        zCDP cost of the first gradient and of every choice of a step size (rho_ng and rho_nmax);
        by default e^2/2 each with e = budget.epsilon/120. Without a budget there is no noise,
        and the run ends where no step of the grid is better than none.
    growth : float
        gamma > 0: the gradient's budget grows by 1 + gamma.
    memory, headroom : int, float
        Every tau iterations the largest step becomes 1 + eta times the largest one that was
        chosen since, but no more than ``step_size``; tau >= 1 and 1 + eta > 1.
    noise : {"gumbel", "exponential"}
        Of the choice, see :class:`dpanalysis.privacy.queries.NoisyMin`.

    Raises
    ------
    ValueError
        If an argument is outside its range.

    Notes
    -----
    Lee and Kifer's Algorithm 2. Chen and Lee (2020) say of it no more than that it is a baseline
    with full batches whose step sizes NoisyMin chooses, and that C_grad = 3 and C_obj = 1 for all
    methods. From Lee's public code are the 20 candidates up to 2, gamma = .1, tau = 10, eta = .1,
    the cap, the division by 120 (60 iterations, half of the budget for the choices), and C_obj = 3:
    losses clamped at 1 hide the records that a gradient helps most, so that index 0 is chosen again
    and again (Adult at epsilon = .8: the majority's accuracy).

    Otherwise here: the choice is private (errata 002-11) and its index 0 stands for the step 0,
    not for the point before it; with Gumbel noise it costs a quarter of the
    zCDP that they charge at the same scale. The first gradient costs as much as a choice; in
    their code it costs 2 ln(1.25/delta) times less. The penalty's gradient is added before
    the sum is normalised, and the penalty is part of what is compared. The filter is asked
    before each access, not after.

    References
    ----------
    Lee, Kifer, Concentrated differentially private gradient descent with adaptive per-iteration
    privacy budget, KDD 2018.

    Examples
    --------
    >>> import numpy as np
    >>> import dpanalysis as dpa
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(5000, 3))
    >>> problem = dpa.ERM(X, np.sign(X @ [1.0, -2.0, 0.5]), dpa.losses.Logistic())
    >>> method = dpa.methods.AdaptiveGD(rho=1e-3, selection_rho=1e-3)
    >>> result = dpa.minimize(problem, method, dpa.Budget(1.0, delta=1e-6), rng=0)
    >>> result.epsilon(), bool(problem.accuracy(result.w)[0] > 0.9)
    (1.0, True)
    """

    step_size: float = 2.0
    clip_loss: float = 3.0
    candidates: int = 20
    selection_rho: float | None = None
    growth: float = 0.1
    headroom: float = 1.1
    noise: str = "gumbel"

    released: ClassVar[tuple[str, ...]] = (
        *AdaptiveMethod.released,
        "step sizes",
        "noise of every attempt",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_int("candidates", self.candidates, low=1)
        check_choice("noise", self.noise, ("gumbel", "exponential"))
        if self.selection_rho is not None:
            check_number("selection_rho", self.selection_rho, low=0.0, low_open=True)

    def _first_costs(self, total: float) -> tuple[float, float]:
        each = 0.5 * (total / 120.0) ** 2
        # eps^2/8-zCDP, or any eps-private release
        factor = 8.0 if self.noise == "gumbel" else 2.0
        return self.rho or each, math.sqrt(factor * (self.selection_rho or each))

    def _ray(self, w: np.ndarray, gradient: np.ndarray, reach: float) -> Ray:
        size = float(np.linalg.norm(gradient)) or 1.0
        return Ray(w, gradient / size, np.linspace(0.0, reach, self.candidates + 1))

    def _question(self, ray: Ray, facts: PublicFacts, spending: Spending) -> NoisyMin:
        spread = decrease_sensitivity(facts, self.sampling, spending.clip_loss)
        return NoisyMin(ray, spending.clip_loss, spread / spending.epsilon, self.noise)

    def _reach(self, chosen: Sequence[float], reach: float) -> float:
        return super()._reach(chosen, self.step_size)
