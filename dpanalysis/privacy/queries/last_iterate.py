"""Release of the last iterate alone, of many noisy gradient steps."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._devices import to_host
from ..._validation import check_int, check_number, check_positive, check_vector
from ...clipping import Automatic, Clipping, Flat, PerSampleAdaptive
from .. import mechanisms
from ..accounting.last_iterate import last_iterate_gdp, last_iterate_gdp_cyclic
from ..accounting.relations import REPLACE_ONE
from ..accounting.sampling import Sampling
from ..events import Event, Gaussian
from .base import Query, Records, check_double, check_full, check_penalty

if TYPE_CHECKING:
    from ..facts import PublicFacts

_UNIT = 2.0**-53  # relative error of one rounding
_NEARLY = 2.0**-39  # error of mechanisms.nearly, relative to 1 + |x| in each coordinate
_FARTHEST = 1000.0  # largest norm of the start, in units of the longest step
_LARGEST = 1e100  # largest iterate; predictions are then far from overflowing


@dataclass(frozen=True, eq=False)
class LastNoisyIterate(Query):
    r"""The last iterate of gradient descent with Gaussian noise; no other iterate is released.

    .. math:: w_k = w_{k-1} - \eta \Big(\frac{1}{B} \sum_{i \in b_k} h_i(w_{k-1})
              + \nabla r(w_{k-1}) + Z_k\Big), \qquad Z_k \sim N(0, \sigma^2 I),

    with the (clipped) gradients :math:`h_i` of the records, the penalty r, and :math:`B = n/l` for
    the public n. With l = 1 batch every step uses all records; else the steps cycle through the l
    batches, and the i-th record is in the batch i mod l.

    Parameters
    ----------
    start : ndarray of shape (d,)
        Public; of norm at most 1000 times the length of the longest step.
    step_size : float
        :math:`\eta`, at most 2 / :meth:`curvature`.
    iterations : int
        A multiple of ``batches``.
    std : float
        :math:`\sigma` of the noise on one mean gradient; 0 answers exactly.
    batches : int
        l.
    clipping : Flat, Automatic, PerSampleAdaptive or None

    Notes
    -----
    *Assumptions.* The loss of every record is convex, with Hessians of norm at most H, and
    :math:`\|h_i\| \le G`; r is m-strongly convex and smooth, with its minimum at 0. All bounds are
    public. The objective of B records is L-smooth, and a batch has at most N. So its mean loss,
    penalty included, has a curvature in [m, M], :math:`M = L + (N/B - 1)H`. A step without noise
    is Lipschitz with :math:`c = \max(|1 - \eta m|, |1 - \eta M|) \le 1`, and one record moves it by
    at most :math:`\Delta = \eta S/B`, S being G for a record added or removed, 2G for one replaced.
    These are the conditions of :mod:`dpanalysis.privacy.accounting.last_iterate`, and
    mu is :func:`~dpanalysis.privacy.last_iterate_gdp` of the ratio
    :math:`\Delta/(\eta\sigma)`. Batches need replace_one: adding or removing a record would move
    the others from batch to batch.

    *Clipped gradients* are gradients of other convex losses, if a record has one linear prediction
    :math:`z = \langle x, w\rangle` and the rule is one of the three. The gradient
    :math:`\ell'(z) x` of norm :math:`u = |\ell'(z)| \|x\|` becomes

    .. math:: \psi(z)\, x, \qquad \psi(z) = \mathrm{sign}(\ell'(z))\, h(u)/\|x\|,
              \qquad h(u) = u \cdot \mathrm{weight}(u).

    h is 0 at 0 and nondecreasing: it is min(u, C) for ``Flat``, C u/(u + r) for ``Automatic``, and
    C q/(q + r), :math:`q = u^2 + ru`, for ``PerSampleAdaptive``. As :math:`\ell'` is nondecreasing,
    so is :math:`\psi`, and :math:`\psi(z) x` is the gradient in w of the convex function
    :math:`\int_0^z \psi`. Its curvature is :math:`h'(u) \ell''(z) \|x\|^2`, at most :math:`\lambda`
    times the unclipped one for the largest slope :math:`\lambda` of h (:func:`largest_slope`). So
    M has :math:`\lambda N/B` in place of N/B, and is L if that is below 1. The weights of value
    clipping decrease with the loss: for the logistic loss the clipped gradient tends to 0 where the
    loss is steepest, and no convex loss has such a gradient. With several predictions
    :math:`\mathrm{weight}(\|g\|)\, g` need not be a gradient of any function.

    *Rounding.* The lemma is about real numbers. Compare each run with one from the same start that
    takes its steps exactly and adds the same real noise. Let a computed step be within :math:`\rho`
    of the exact step from the same point; then the distance of the runs is at most :math:`r_k = c\,
    r_{k-1} + \rho`, as an exact step does not expand. Shift the exact runs towards each other as in
    the proof of the lemma, up to the last step: conditioned on all earlier draws, it adds real
    noise to a computed point, and to make the two points equal takes :math:`2(c\, r_{T-1} + \rho)`
    more than for the exact runs. The earlier points, rounding included, are functions of the real
    noise, which is determined by the exact ones. So by Minkowski's inequality mu grows by at most

    .. math:: \frac{2\rho}{\eta\sigma} \sum_{j<T} c^j.

    :math:`\rho` has four parts. With u = 2^-53 and iterates of norm at most R, they are the errors
    of the sum over records, :math:`\eta G/B` times ``facts.rounding``; of a prediction, (d + 16) u
    R :math:`\|x\|`, which moves a step by :math:`\eta M (d + 16) u R \le 2 (d + 16) u R`; of the
    other operations on a record's gradient and on the iterate, some units of the larger of R and
    :math:`\eta G N/B`, together at most 160 u R; and of the noise, 2^-39 of the sum of its norm and
    :math:`\sqrt d`. The norm of the noise of a step, shifted by at most :math:`\mu` standard
    deviations, is at most :math:`\eta\sigma\kappa`, :math:`\kappa = \sqrt d + 40 + \mu`, except
    with probability below :math:`e^{-800}`, which underflows to 0 in double precision. As the steps
    of a penalty alone do not expand and leave 0 fixed, :math:`R = (1000 + \sum_{j<T} c^j)\, \eta G
    N/B + \sum_{j<T} c^j\, \eta\sigma\kappa`.

    References
    ----------
    Bok, Su, Altschuler (2024), Shifted interpolation for differential privacy; Feldman, Mironov,
    Talwar, Thakurta (2018), Privacy amplification by iteration.
    """

    start: np.ndarray
    step_size: float
    iterations: int
    std: float
    batches: int = 1
    clipping: Any = None

    evaluates = "gradient"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_vector("start", self.start)
        check_positive("step_size", self.step_size)
        check_int("iterations", self.iterations, low=1)
        check_number("std", self.std, low=0.0)
        check_int("batches", self.batches, low=1)
        if self.iterations % self.batches:
            raise ValueError(
                f"iterations must be a multiple of batches, so that every batch has the same "
                f"number of turns, got {self.iterations} and {self.batches}"
            )

    def event(self, facts: PublicFacts, sampling: Sampling) -> Event | None:
        """Return the Gaussian event of the whole run; ValueError if an assumption fails."""
        check_full(sampling)
        contraction = self.contraction(facts)
        step = self._longest_step(facts)
        length = float(np.linalg.norm(self.start))
        if length > _FARTHEST * step:
            raise ValueError(
                f"start must be at most {_FARTHEST:g} times as long as the longest step, "
                f"{step:.3g}, or its rounding may exceed what is charged for it, got {length:.3g}"
            )
        if self.std == 0.0:
            return None
        ratio = self._sensitivity(facts) / self.std
        if self.batches == 1:
            mu = last_iterate_gdp(self.iterations, ratio, contraction)
        else:
            passes = self.iterations // self.batches
            mu = last_iterate_gdp_cyclic(passes, self.batches, ratio, contraction)
        mu += 2.0 * self._rounding(facts, contraction, mu) / (self.step_size * self.std)
        return Gaussian(1.0, mu * (1.0 + 1e-12))

    def contraction(self, facts: PublicFacts) -> float:
        """Return c, or raise ValueError naming the assumption that fails."""
        largest = self.curvature(facts)
        if self.step_size * largest > 2.0:
            raise ValueError(
                f"step_size must be at most 2/M = {2.0 / largest:g}, M = {largest:g} being the "
                f"largest curvature by public bounds, so that steps do not expand, got "
                f"{self.step_size!r}"
            )
        c = max(abs(1.0 - self.step_size * facts.mu), abs(1.0 - self.step_size * largest))
        return min(1.0, c + 2.0**-48)  # above its rounding

    def curvature(self, facts: PublicFacts) -> float:
        """Return M, or raise ValueError naming the assumption that fails."""
        _check_premises(facts, self.clipping)
        if self.batches > 1 and facts.relation != REPLACE_ONE:
            raise ValueError(
                f"batches must be 1 under {facts.relation!r}, got {self.batches}: a record that is "
                "added or removed moves others between batches of a fixed order; take replace_one"
            )
        if self.batches > facts.n:
            raise ValueError(f"batches must be at most n = {facts.n}, got {self.batches}")
        more = max(0.0, largest_slope(self.clipping) * self._crowding(facts) - 1.0)
        return (facts.L + more * _record_curvature(facts)) * (1.0 + 2.0**-48)

    def _crowding(self, facts: PublicFacts) -> float:
        """Return N/B, the largest number of records in a batch over the divisor."""
        return math.ceil(facts.record_limit / self.batches) * self.batches / facts.n

    def _sensitivity(self, facts: PublicFacts) -> float:
        """Return S/B, the sensitivity of one mean gradient."""
        return facts.record_sensitivity(2, self.clipping) * self.batches / facts.n

    def _longest_step(self, facts: PublicFacts) -> float:
        """Return the length of the longest step, without penalty and noise."""
        bound = facts.record_sensitivity(2, self.clipping) / facts.sum_sensitivity(1.0)
        return self.step_size * bound * self._crowding(facts)

    def _rounding(self, facts: PublicFacts, contraction: float, mu: float) -> float:
        """Bound the distance of the computed last iterate from the exact one; see Notes."""
        for size, name in ((self._sensitivity(facts), "a sensitivity"), (self.std, "std")):
            facts.check_magnitude(self.step_size, size, what=f"step_size times {name}")
        steps = _sum_of_powers(contraction, self.iterations)
        step, root = self._longest_step(facts), math.sqrt(facts.d)
        noise = self.step_size * self.std * (root + 40.0 + mu)
        reach = (_FARTHEST + steps) * step + steps * noise
        if reach > _LARGEST:
            raise ValueError(f"iterates must be at most {_LARGEST:g} by public bounds")
        gradient = self.step_size * self._sensitivity(facts) / facts.sum_sensitivity(1.0)
        each = gradient * facts.rounding + _UNIT * reach * (2.0 * (facts.d + 16) + 160.0)
        each += _NEARLY * (self.step_size * self.std * root + noise)
        return steps * each

    def iterates(self) -> tuple[np.ndarray, ...]:
        """Return the start; the other iterates are not public."""
        return (self.start,)

    def answer(self, records: Records, random: Any) -> tuple[np.ndarray, int]:
        """Return the last iterate, and the number of gradients of each record."""
        problem, penalty = records.problem, records.problem.regularizer
        problem.check_clipping(self.clipping)
        w = np.array(self.start, dtype=np.float64)
        rows: list[Any] = [None]
        if self.batches > 1:
            rows = [[np.arange(j, problem.n, self.batches)] for j in range(self.batches)]
        size, std = records.size / self.batches, self.step_size * self.std
        for k in range(self.iterations):
            total = problem.gradient_sum(w[None, :], rows[k % self.batches], self.clipping)
            gradient = to_host(total)[0] / size
            if penalty is not None:
                gradient = gradient + penalty.gradient(w)
            w = w - self.step_size * gradient
            if k < self.iterations - 1:
                w = w + mechanisms.nearly(random, "gaussian", std, len(w))[0]
        passes = self.iterations // self.batches
        return mechanisms.noisy(random, w, "gaussian", std), passes


def largest_slope(clipping: Clipping | None) -> float:
    r"""Return the largest slope of u weight(u), by which clipping multiplies the curvature.

    For PSAC the slope is :math:`C r (2u + r)/(q + r)^2`, q = u^2 + ru. Its derivative vanishes
    where :math:`q + r = (2u + r)^2`, that is for r < 1 at :math:`2u + r = \sqrt{(4r - r^2)/3}`, and
    the slope is C r/(2u + r)^3; else it decreases from C at u = 0. ValueError for other rules.
    """
    kind: Any = type(clipping)  # a subclass may have any weights
    if clipping is None or kind is Flat:
        return 1.0
    if kind is Automatic:
        return clipping.largest_weight
    if kind is PerSampleAdaptive:
        r: float = clipping.r  # type: ignore[attr-defined]
        at = math.sqrt((4.0 * r - r * r) / 3.0) if r < 1.0 else 1.0
        return clipping.clip_norm * (r / at**3 if r < 1.0 else 1.0) * (1.0 + 1e-12)
    raise ValueError(
        "clipping must be Flat, Automatic, PerSampleAdaptive or None, whose clipped gradients are "
        f"gradients of convex losses, got {clipping!r}"
    )


def _check_premises(facts: PublicFacts, clipping: Clipping | None) -> None:
    """Raise ValueError unless the records satisfy the assumptions of :class:`LastNoisyIterate`."""
    if not facts.has_records or facts.declared_sensitivity is not None:
        raise ValueError("problem must consist of records, whose losses are known to be convex")
    if not facts.convex_records:
        raise ValueError("the loss of every record must be known to be convex: steps contract then")
    check_penalty(facts)
    if not math.isfinite(_record_curvature(facts) + facts.L):
        raise ValueError(
            "the loss must be smooth by public bounds, so that steps contract: give the problem a "
            "row_bound and a smooth loss, such as Logistic() or HuberizedHinge(width)"
        )
    check_double(facts)
    largest_slope(clipping)
    if clipping is not None:
        widths = {sum(block.size for block in blocks) for blocks in facts.row_blocks}
        if facts.hessian_rank != 1 or widths != {facts.d}:
            raise ValueError(
                "the loss of a record must depend on one linear prediction, as in ERM, for clipped "
                "gradients to be those of a convex loss: take another problem, or no clipping rule"
            )


def _record_curvature(facts: PublicFacts) -> float:
    """Return H, the bound on the norm of one record's Hessian, which is positive semidefinite."""
    return min(facts.hessian_bound, facts.hessian_trace)


def _sum_of_powers(c: float, count: int) -> float:
    """Return the sum of the first ``count`` powers of c, from c^0 on."""
    if c == 1.0:
        return float(count)
    return -math.expm1(count * math.log(c)) / (1.0 - c)  # c is above 0, see contraction
