"""Baselines of Gao and Wright (2023): DP-TR, a private trust region method, and DP-GD."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass

import numpy as np
from scipy import linalg, optimize

from .._validation import check_int, check_number, check_positive
from ..privacy.facts import PublicFacts
from ..privacy.oracle import PrivateOracle
from .base import Step
from .second_order import (
    CurvatureMethod,
    QueryCounter,
    SecondOrderPlan,
    check_memory,
    smallest_eigenpair,
)


@dataclass(frozen=True, repr=False)
class TrustRegion(CurvatureMethod):
    r"""DP-TR: a trust region method with noisy gradients and Hessians.

    .. math:: h = \arg\min_{\lVert h \rVert \le r} \langle g, h \rangle + \tfrac12 h^\top H h

    is the step for a noisy gradient g and a noisy Hessian H. As in the experiments of Gao and
    Wright (2023), the run ends if ||g|| <= eps_g and no eigenvalue of H is below -eps_H.

    Parameters
    ----------
    eps_g, eps_H, sampling, failure, lower_bound, start_share
        See :class:`~dpanalysis.methods.second_order.CurvatureMethod`.
    radius : float, optional
        r > 0. By default the smaller of sqrt(eps_g/M) and eps_H/M, for the Lipschitz constant M
        of the Hessian; they coincide for the tolerances alpha and sqrt(M alpha).
    c, c2 : float
        Tolerated noise norms: c2 M r^2 for a gradient, c M r for a Hessian, with c/2 + c2 < 1/3.

    Notes
    -----
    A step on the sphere whose multiplier is above M r decreases f by at least
    (1/3 - c2 - c/2) M r^3, since the model decreases by r^2/2 times the multiplier or more and
    the cubic remainder is M r^3/6. T follows from this least decrease. After a step with a smaller
    multiplier the gradient is at most (3/2 + c + c2) M r^2 and the smallest eigenvalue at least
    -(2 + c) M r: a 2NS up to a constant factor, which the explicit test may miss, so that T does
    not prove termination. The fixed radius and the structure are the published ones as far as Gao
    and Wright (2023) report them; constants and the equal division of the budget are reconstructed.

    References
    ----------
    Wang, Xu, Escaping saddle points of empirical risk privately and scalably via DP-trust region
    method, 2021; Gao and Wright (2023), Section 4.

    Examples
    --------
    >>> import numpy as np
    >>> import dpanalysis as dpa
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(20_000, 3))
    >>> y = np.where(X @ [1.0, -2.0, 0.5] > 0, 1, -1)
    >>> penalty = dpa.regularizers.GemanMcClure(0.001)
    >>> problem = dpa.ERM(X, y, dpa.losses.Logistic(), penalty, dpa.RowBound(2, 1.0, "clip"))
    >>> method = dpa.methods.TrustRegion(eps_g=0.12, eps_H=0.4)
    >>> result = dpa.minimize(problem, method, dpa.Budget(2.0, delta=1e-6), rng=0)
    >>> float(result.history["second_order_point"][-1, 0])
    1.0
    """

    _: KW_ONLY
    radius: float | None = None
    c: float = 0.1
    c2: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.radius is not None:
            check_positive("radius", self.radius)
        for name in ("c", "c2"):
            check_positive(name, getattr(self, name))
        high = 1.0 / 3.0 - 0.5 * self.c
        check_number(f"c2 with c = {self.c:g}", self.c2, low=0.0, high=high, high_open=True)

    def _radius(self, facts: PublicFacts) -> float:
        M = facts.hessian_lipschitz
        return self.radius or min(math.sqrt(self.eps_g / M), self.eps_H / M)

    def _least_decrease(self, facts: PublicFacts) -> float:
        check_memory(facts.d)
        r = self._radius(facts)
        return (1.0 / 3.0 - self.c2 - 0.5 * self.c) * facts.hessian_lipschitz * r**3

    def _tolerated(self, facts: PublicFacts) -> tuple[float, float]:
        slope = facts.hessian_lipschitz * self._radius(facts)
        return self.c2 * slope * self._radius(facts), self.c * slope

    def run(self, w: np.ndarray, oracle: PrivateOracle, plan: SecondOrderPlan) -> Iterator[Step]:
        """Yield the iterates, up to a second-order point if one is found."""
        queries = QueryCounter(self, oracle, plan)
        radius = self._radius(queries.facts)
        iterations, noise = queries.phase(0, w)
        for _ in range(iterations):
            g, H = queries.gradient(w, noise), queries.hessian(w, noise)
            length, eigenvalue = float(np.linalg.norm(g)), smallest_eigenpair(H)[0]
            found = length <= self.eps_g and eigenvalue >= -self.eps_H
            multiplier = math.nan
            if not found:
                h, multiplier = trust_region_step(g, H, radius)
                w = w + h
            yield Step(w, queries.released(found, length, eigenvalue, multiplier=multiplier))
            if found:
                return


def trust_region_step(
    gradient: np.ndarray, hessian: np.ndarray, radius: float
) -> tuple[np.ndarray, float]:
    r"""Return the minimizer of <g, h> + h'Hh/2 over ||h|| <= r, and its multiplier.

    The multiplier :math:`\nu \ge 0` satisfies :math:`(H + \nu I)h = -g` with H + nu I positive
    semidefinite, and is 0 inside the ball. It is the root of the secular equation
    1/||h(nu)|| = 1/r, which is nearly linear in nu. In the hard case, where g has no component
    along the eigenvector of the smallest eigenvalue and h(nu) does not reach the sphere, a
    multiple of that eigenvector is added. Conn, Gould, Toint, Trust-region methods, Section 7.3.
    """
    radius = check_positive("radius", radius)
    values, vectors = linalg.eigh(hessian)
    parts = vectors.T @ gradient
    least = max(0.0, -float(values[0]))
    # Multipliers are relative to the least possible one: no cancellation near the pole.
    gaps = values + least
    scale = max(float(np.abs(values).max()), float(np.linalg.norm(parts)) / radius, 1e-100)

    def step(above: float) -> np.ndarray:
        return -parts / (gaps + above)

    low = 1e-100 * scale
    if np.linalg.norm(step(low)) <= radius:
        h = step(low)
        if least > 0.0:
            h[0] = math.sqrt(max(radius**2 - float(h[1:] @ h[1:]), 0.0))
        return vectors @ h, least
    above = optimize.brentq(
        lambda above: 1.0 / np.linalg.norm(step(above)) - 1.0 / radius,
        low,
        2.0 * scale,
        xtol=low,
        rtol=1e-15,
        maxiter=1000,
    )
    return vectors @ step(above), least + above


@dataclass(frozen=True, repr=False)
class NoisyGradientDescent2NS(CurvatureMethod):
    """DP-GD: noisy gradient descent, then a search through its iterates for a 2NS.

    Steps 1/G are made along noisy gradients, on full batches for half of the budget. The iterates
    with a noisy gradient norm of at most eps_g are then checked in increasing order of this norm:
    the output is the first with a noisy Hessian whose smallest eigenvalue is at least -eps_H, with
    ``released["second_order_point"] = 1``, or the last iterate if there is none.

    Parameters
    ----------
    eps_g, eps_H, sampling, failure, lower_bound, start_share
        See :class:`~dpanalysis.methods.second_order.CurvatureMethod`.
    iterations : int, optional
        Number of steps; by default (f(w0) - lower_bound) over the least decrease of a gradient
        step, (1 - 2 c1) eps_g^2/(2 G), plus one.
    checks : int, optional
        Largest number of Hessians; by default the number of iterates.
    c, c1 : float
        Tolerated noise norms: c1 eps_g for a gradient, c1 < 1/2, and c eps_H for a Hessian.

    Notes
    -----
    No step is made along negative curvature: unless the noise drives the iterates away from a
    saddle, no point is found. According to Gao and Wright (2023), the paper of DP-GD makes the
    same steps and "sorts through all the iterates"; its step size and number of steps, which they
    call impractical, are replaced here, and the order by released gradients is ours.

    References
    ----------
    Wang, Chen, Xu, Differentially private empirical risk minimization with non-convex loss
    functions, 2019; Gao and Wright (2023), Section 1.

    Examples
    --------
    >>> import numpy as np
    >>> import dpanalysis as dpa
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(20_000, 3))
    >>> y = np.where(X @ [1.0, -2.0, 0.5] > 0, 1, -1)
    >>> penalty = dpa.regularizers.GemanMcClure(0.001)
    >>> problem = dpa.ERM(X, y, dpa.losses.Logistic(), penalty, dpa.RowBound(2, 1.0, "clip"))
    >>> method = dpa.methods.NoisyGradientDescent2NS(eps_g=0.12, eps_H=0.4, iterations=20)
    >>> result = dpa.minimize(problem, method, dpa.Budget(2.0, delta=1e-6), rng=0)
    >>> result.iterations, float(result.history["second_order_point"][-1, 0])
    (21, 1.0)
    """

    _: KW_ONLY
    iterations: int | None = None
    checks: int | None = None
    c: float = 0.1
    c1: float = 0.25

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("iterations", "checks"):
            if getattr(self, name) is not None:
                check_int(name, getattr(self, name), low=1)
        check_positive("c", self.c)
        check_number("c1", self.c1, low=0.0, high=0.5, low_open=True, high_open=True)

    def _least_decrease(self, facts: PublicFacts) -> float:
        check_memory(facts.d)
        return (1.0 - 2.0 * self.c1) / (2.0 * facts.L) * self.eps_g**2

    def _tolerated(self, facts: PublicFacts) -> tuple[float, float]:
        return self.c1 * self.eps_g, self.c * self.eps_H

    def _horizon(self, value: float, decrease: float) -> int:
        return self.iterations or super()._horizon(value, decrease)

    def _query_counts(self, iterations: int) -> Mapping[str, int]:
        return {"gradient": iterations, "hessian": min(self.checks or iterations, iterations)}

    def run(self, w: np.ndarray, oracle: PrivateOracle, plan: SecondOrderPlan) -> Iterator[Step]:
        """Yield the iterates, then the checked points; the last one is the output."""
        queries = QueryCounter(self, oracle, plan)
        iterations, noise = queries.phase(0, w)
        seen: list[tuple[float, np.ndarray]] = []
        for _ in range(iterations):
            g = queries.gradient(w, noise)
            length = float(np.linalg.norm(g))
            if length <= self.eps_g:
                seen.append((length, w))
            w = w - g / queries.facts.L
            yield Step(w, queries.released(False, length))
        seen.sort(key=lambda pair: pair[0])
        for length, point in seen[: self._query_counts(iterations)["hessian"]]:
            eigenvalue = smallest_eigenpair(queries.hessian(point, noise))[0]
            found = eigenvalue >= -self.eps_H
            yield Step(point if found else w, queries.released(found, length, eigenvalue))
            if found:
                return
