"""Queries of whole solutions: the output of a descent, and the perturbed minimizer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._devices import to_host
from ..._validation import check_choice, check_int, check_number, check_positive, check_vector
from .. import mechanisms
from ..accounting.relations import REPLACE_ONE
from ..accounting.sampling import BallsInBins, Sampling
from ..events import Event, Gaussian, GaussianBound, Pure, Sampled
from ..facts import Block
from ..k_norm import draw_blocks, second_moment
from .base import (
    Query,
    Records,
    check_double,
    check_full,
    check_penalty,
    check_smooth,
    curvature_of,
)

if TYPE_CHECKING:
    from ..facts import PublicFacts

_MOST_SENSITIVITIES = 128  # largest number of distinct sensitivities of a descent
# Rounding error of one descent relative to its sensitivity: least charged, and largest allowed.
_ROUNDING, _MOST_ROUNDING = 1e-4, 1e-2


@dataclass(frozen=True, eq=False)
class NoisyDescent(Query):
    r"""The output of some passes of gradient descent over the records, with noise.

    Each record is assigned to one of m batches, uniformly and independently, and every pass uses
    the batches in order. A step on batch b, with :math:`B = n/m` for the public n, is

    .. math:: w \leftarrow w - \eta \Big(\frac{1}{\max(B, |b|/2)} \sum_{i \in b} \nabla f_i(w)
              + \nabla r(w)\Big).

    With ``average``, one step on all records is made from the average of the last pass. Only the
    output is released, with Gaussian noise or with noise of density proportional to
    :math:`e^{-\|x\|/\text{scale}}` (:func:`dpanalysis.privacy.mechanisms.spherical`).

    Parameters
    ----------
    start : ndarray of shape (d,)
        Public.
    step_size : float
        eta, at most :func:`largest_step`.
    batches, passes : int
        m and the number of passes. One batch is gradient descent.
    average : bool
    law : {"gaussian", "spherical"}
    scale : float
        Standard deviation, or scale; 0 answers exactly.

    Notes
    -----
    *Assumptions.* Every :math:`f_i` is convex, has gradients of norm at most G and is
    :math:`\beta`-smooth; the penalty r is :math:`\mu`-strongly convex, :math:`\mu \ge 0`, with its
    minimum at 0. Both relations are covered: S is G for a record added or removed, and 2G for one
    replaced.

    *Contraction.* The objective of a step is :math:`\mu`-strongly convex, and L-smooth with
    :math:`L = 2\beta` plus the smoothness of the penalty, since at most :math:`2 \max(B, |b|/2)`
    records are in b; for m = 1, :math:`(N/n) \beta` replaces :math:`2\beta`, for the largest number
    N of records allowed: n + 1, or 2n if n is a nominal size. By co-coercivity

    .. math:: \|u - \eta g(u) - v + \eta g(v)\|^2 \le
              \Big(1 - \frac{2\eta\mu L}{\mu+L}\Big) \|u-v\|^2
              - \eta \Big(\frac{2}{\mu+L} - \eta\Big) \|g(u) - g(v)\|^2

    and :math:`\|g(u) - g(v)\| \ge \mu \|u-v\|`, the map of a step with
    :math:`\eta \le 2/(\mu+L)` contracts distances by the factor :math:`\rho = 1 - \eta\mu`.

    *One record.* Couple two runs that differ in one record and in nothing else: neither in the
    batches of the others nor in that of this record, say the j-th. At one w, the gradient of the
    j-th batch differs by at most S/B. That is immediate for a replaced record, and for an added
    one if the divisor stays B. Otherwise its s + 1 > 2B records have divisor
    :math:`a' = (s+1)/2`, the others alone :math:`a = \max(B, s/2) \ge a' - 1/2`, and

    .. math:: \Big\|\frac{\Sigma}{a} - \frac{\Sigma + g}{a'}\Big\| \le s G \frac{a'-a}{a a'}
              + \frac{G}{a'} \le \frac{2G}{a'} \le \frac{2S}{B}.

    So a distance :math:`\Delta` becomes at most :math:`\rho\Delta + [b = j] \eta S/B` in a step, an
    average has at most the average distance, and the last step adds :math:`\eta S/n`. For each j
    this gives :math:`\Delta_j`, and at most :math:`2\Delta_j` if the j-th batch has more than 2B
    records, which has known probability p: its size is 1 plus a binomial variable of N - 1 others.

    *Privacy.* The noisy outputs are mixtures, over the batches drawn, of laws that differ by a
    shift of at most :math:`\Delta_j` with probability (1-p)/m, and :math:`2\Delta_j` with p/m
    (:class:`~dpanalysis.privacy.events.GaussianBound`). The pure loss is that of the worst case.

    References
    ----------
    Chen, Lee, Kifer (2019), for the random sensitivity and its Renyi accounting; Wu et al. (2017),
    whose permutation keeps batches of equal size, but only if n is public; Zhang et al. (2017) for
    one batch.
    """

    start: np.ndarray
    step_size: float
    batches: int
    passes: int
    average: bool
    law: str
    scale: float

    evaluates = "gradient"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_vector("start", self.start)
        check_positive("step_size", self.step_size)
        check_int("batches", self.batches, low=1)
        check_int("passes", self.passes, low=1)
        check_choice("law", self.law, ("gaussian", "spherical"))
        check_number("scale", self.scale, low=0.0)

    def event(self, facts: PublicFacts, sampling: Sampling) -> Event | None:
        """Return the cost of the noise for :meth:`sensitivities`."""
        check_full(sampling)
        distances, weights = self.sensitivities(facts)
        if self.scale == 0.0:
            return None
        if self.law == "spherical":
            return Pure(float(distances.max()) / self.scale)
        if len(distances) == 1:
            return Gaussian(self.scale, float(distances[0]))
        return GaussianBound(self.scale, distances.tolist(), weights.tolist())

    def sensitivities(self, facts: PublicFacts) -> tuple[np.ndarray, np.ndarray]:
        """Return the possible sensitivities, (k,), and their probabilities.

        ValueError if the problem does not satisfy the assumptions, or ``step_size`` is too large.
        """
        limit = largest_step(facts, self.batches)
        check_double(facts)
        if self.step_size > limit * (1.0 + 1e-12):
            raise ValueError(
                f"step_size must be at most 2/(mu + L) = {limit:g}, so that steps contract, got "
                f"{self.step_size!r}"
            )
        m, n, S = self.batches, facts.n, facts.record_sensitivity(2)
        powers = (1.0 - self.step_size * facts.mu) ** np.arange(m + 1)
        jump = self.step_size * S * m / n
        facts.check_magnitude(self.step_size, S / n, what="step_size times a sensitivity")
        # The sensitivity at the end of each pass, for j = m, ..., 1.
        first = jump * powers[:m]
        before = np.zeros(m)
        for _ in range(self.passes - 1):
            before = powers[m] * before + first
        after = powers[m] * before + first
        last = 0.0
        if self.average:
            after = (before * powers[1:].sum() + jump * np.cumsum(powers[:m])) / m * powers[1]
            last = self.step_size * S / n
        # Groups of sensitivities are rounded up to their largest.
        after = after + last
        after = np.sort(after) + 2.0 * self._rounding(facts, float(after.max()))
        parts = np.array_split(after, min(m, _MOST_SENSITIVITIES))
        values = np.array([part[-1] for part in parts])
        weights = np.array([len(part) / m for part in parts])
        if m == 1 or facts.relation == REPLACE_ONE:
            return values, weights
        from scipy import stats  # here, since its import is slow

        others = facts.record_limit - 1
        crowded = float(stats.binom.sf(math.floor(2.0 * n / m - 1.0), others, 1.0 / m))
        if crowded == 0.0:
            return values, weights
        return (
            np.concatenate([values, 2.0 * values]),
            np.concatenate([(1.0 - crowded) * weights, crowded * weights]),
        )

    def _rounding(self, facts: PublicFacts, distance: float) -> float:
        """Return a public bound on the rounding errors of the steps, or raise if it is too large.

        A step rounds each coordinate by a few units in its last place, and the gradient by
        ``facts.rounding``; errors of predictions, by (d + 16) units of the longest iterate, move
        it as in :class:`~dpanalysis.privacy.queries.LastNoisyIterate`. No step increases a
        distance, so errors add up. The penalty pulls towards 0, so the norm of an iterate is at
        most that of the start plus the lengths of all steps.
        """
        steps = self.passes * self.batches + 1
        G = facts.gradient_bounds[1]
        most = 1.0 + _more(facts, self.batches)  # records over the divisor
        reach = float(np.linalg.norm(self.start)) + steps * self.step_size * most * G
        each = 2.0**-53 * reach * (8.0 + 2.0 * (facts.d + 16))
        each += self.step_size * facts.rounding * G * self.batches / facts.n
        if steps * each > _MOST_ROUNDING * distance:
            raise ValueError(
                f"start is too far away, or there are too many steps: {steps} steps at up to "
                f"{reach:g} from 0 may round by {steps * each:.3g}, and one record moves the end "
                f"by {distance:.3g}; start nearer to 0, or take fewer steps"
            )
        return max(_ROUNDING * distance, steps * each)

    def iterates(self) -> tuple[np.ndarray, ...]:
        """Return the start; the other iterates depend on the records, and stay near the start."""
        return (self.start,)

    def answer(self, records: Records, random: Any) -> tuple[np.ndarray, int]:
        """Return the noisy output, and the number of gradients of each record."""
        w = np.array(self.start)
        m, problem = self.batches, records.problem
        penalty = problem.regularizer

        def step(w: np.ndarray, rows: Any, size: float) -> np.ndarray:
            chosen = None if rows is None else [rows]
            gradient = to_host(problem.gradient_sum(w[None, :], chosen))[0] / size
            return w - self.step_size * (
                gradient if penalty is None else gradient + penalty.gradient(w)
            )

        batches: list[Any] = [None]
        if m > 1:
            batches = BallsInBins(m).draw_epoch(problem.n, random)
        total = np.zeros(len(w))
        for left in range(self.passes - 1, -1, -1):
            for rows in batches:
                size = problem.n if rows is None else len(rows)
                w = step(w, rows, max(records.size / m, 0.5 * size))
                if left == 0:
                    total += w
        if self.average:
            w = step(total / m, None, records.size)
        return mechanisms.noisy(random, w, self.law, self.scale), self.passes + self.average


def largest_step(facts: PublicFacts, batches: int = 1) -> float:
    """Return 2/(mu + L) for the smoothness L of a step of :class:`NoisyDescent`.

    ValueError if the problem does not satisfy the assumptions.
    """
    check_smooth(facts)
    check_penalty(facts)
    return 2.0 / (facts.mu + facts.L + _more(facts, batches) * facts.hessian_bound)


def _more(facts: PublicFacts, batches: int) -> float:
    """Return the largest excess of the records of a batch over the step's divisor, relative to it.

    With one batch that divisor is n, or half the records if there are more than 2n.
    """
    return 1.0 if batches > 1 else min(1.0, (facts.record_limit - facts.n) / facts.n)


# Objective perturbation


LAWS = ("gaussian", "spherical", "blocks")


@dataclass(frozen=True, eq=False)
class PerturbedMinimum(Query):
    r"""The minimizer of the objective with a random linear term: objective perturbation.

    .. math:: w^* = \arg\min_w \sum_i f_i(w) + n\,r(w) + \frac{n\lambda}{2} \|w\|^2
              + \langle b, w\rangle

    with the public n, the penalty r, an additional ridge penalty :math:`\lambda`, and noise b,
    which is Gaussian or has density proportional to :math:`e^{-\|b\|/\text{scale}}` for a norm. It
    is solved until the norm of the gradient over n is at most ``tolerance``, and released with a
    little noise of the same kind.

    Parameters
    ----------
    law : {"gaussian", "spherical", "blocks"}
        ``"spherical"``: the L2 norm. ``"blocks"``: the norm of ``shape``.
    scale : float
        Standard deviation of b, or its scale, in units of a sum of gradients; 0 for none.
    ridge : float
        :math:`\lambda \ge 0`.
    tolerance : float
        In (0, inf), and above twice the rounding of a gradient (:func:`rounding_of_gradient`).
    output_scale : float
        Standard deviation or scale of the noise that masks the solver's error; 0 for none. It is
        spherical if the law is not Gaussian.
    shape : sequence of Block
        For noise in blocks: the norm is :math:`\sum_g \|b_g\|_g / t_g` over blocks g, each with
        its own norm and the radius :math:`t_g`. For Gaussian noise: standard deviations
        :math:`t_g \cdot \text{scale}`, 1 in all blocks by default. Repeated if a record has
        several linear predictions.

    Notes
    -----
    *Assumptions.* :math:`f_i(w) = \ell(\langle x_i, w\rangle, y_i)`, or a loss of K such
    predictions, convex and smooth, with gradients :math:`\theta x_i^\top` of norm at most G; n
    times the penalties is c-strongly convex, :math:`c = n(\mu + \lambda) > 0`, in every
    direction: a constant column, for an intercept, is penalized like the others and counted in
    the bound on the row. Both relations are covered.

    *Density.* :math:`b_D(w) = -\sum_{i \in D} \nabla f_i(w) - n \nabla r(w) - n\lambda w` is the
    noise for which w is the minimizer on D. It is a bijection with Lipschitz inverse, so
    :math:`w^*` has the density :math:`\nu(b_D(w)) \det M_D(w)`, with the density :math:`\nu` of
    the noise and the Hessian :math:`M_D` of the objective, which exists almost everywhere.

    *Determinants.* Let A be :math:`M` without the record in which two data sets differ, and h its
    Hessian, of rank at most k and trace at most :math:`\tau`. The k nonzero eigenvalues of
    :math:`A^{-1/2} h A^{-1/2}` add up to :math:`\mathrm{tr}(A^{-1} h) \le \tau/c`, so by the
    inequality of arithmetic and geometric means

    .. math:: \det(A + h)/\det A \in [1, (1 + \tau/(kc))^k].

    So the determinants of neighbours have a ratio of at most :math:`e^\kappa`, :math:`\kappa = k
    \ln(1 + \tau/(kc))`, also if a record is replaced: both contain the same A. For a linear
    predictor k is 1. For softmax regression with K classes h is :math:`(\mathrm{diag}(p) - p
    p^\top) \otimes x x^\top`: k is K - 1 and :math:`\tau` is :math:`(1 - 1/K) \|x\|^2`.

    *No record has maximal slope and curvature at once.* With one prediction and the logistic loss a
    record of slope p, the size of :math:`\ell'`, has the curvature :math:`p(1-p)`. Let a be the
    cost of its largest gradient. Then its contribution to the privacy loss is at most

    .. math:: \max_{p \in [0, 1]} \; p a + \ln(1 + 4 p (1-p) \tau/c) = a + \kappa_a,

    and that of the record that it replaces is at most a: its determinant is on the other side. The
    maximum is that of a concave function; :math:`\kappa_a \le \kappa`, and it is 0 if
    :math:`4\tau/c \le a`: with enough penalty the curvature costs nothing. :math:`\kappa_a`
    replaces :math:`\kappa` for noise of a norm and losses that are
    ``curvature_vanishes_at_max_slope``.

    *Noise of a norm.* :math:`b_D(w)` moves by a vector v, which is one gradient or the difference
    of two, and :math:`|\,\|b + v\| - \|b\|\,| \le \|v\|` in any norm. So the pure loss is at most
    :math:`S/\text{scale} + \kappa` where S bounds the norm of v. In L2 that is G or 2G. In blocks,
    with :math:`\|\theta\|_1 \le \Theta` and rows of norm at most :math:`r_g` in block g, the norms
    of the K copies of a block (one for each prediction) add up to at most :math:`\Theta r_g`, and
    S is :math:`\sum_g \Theta r_g/t_g` or twice that.

    *Gaussian noise.* Let b have law :math:`N(0, \sigma^2 I)` and w be the minimizer on D. The loss
    is at most :math:`\kappa + l(v)`, where :math:`v = b_{D'}(w) - b_D(w)` and

    .. math:: l(v) = \frac{\|b + v\|^2 - \|b\|^2}{2\sigma^2}
              = \frac{\langle b, v\rangle + \|v\|^2/2}{\sigma^2}.

    v depends on b through w, so :math:`\langle b, v\rangle` is not Gaussian. But v is
    :math:`\theta x^\top` with :math:`\theta` in a polytope of q corners, or the sum of two such
    vectors: it lies in a polytope of q or q^2 corners that depends on the records alone. For a
    linear predictor that is a segment, or a parallelogram (q = 2); for softmax regression
    :math:`\theta = p - e_y`, and the simplex of the p has q = K corners. l is convex and attains
    its maximum at one of the corners, where it is the Gaussian loss of a shift of norm at most S.
    That is :class:`~dpanalysis.privacy.events.GaussianBound` with weight q or q^2 and offset
    :math:`\kappa`. If blocks have different standard deviations, all of this holds for w and b in
    these units; S is then the root of :math:`\sum_g (\Theta_2 r_g/t_g)^2`, or twice that, with L2
    radii :math:`r_g` and :math:`\|\theta\|_2 \le \Theta_2`.

    *The solver.* At its output u, the computed gradient over n is at most ``tolerance`` minus the
    rounding errors of it and of its predictions (:func:`rounding_of_gradient`), and the exact one
    at most ``tolerance``. So :math:`\|u - w^*\| \le r = n \cdot \text{tolerance}/c`. Imagine that
    :math:`w^*` is released; it and D determine b, and :math:`u - w^*` is an answer of sensitivity
    at most 2r. Its noise costs accordingly, and u with that noise is the sum of both releases.

    *Time.* The proof bounds what the answer reveals, not its running time. The solver takes more
    steps on some records than on others, seconds more if a
    :class:`~dpanalysis.losses.HuberizedHinge` is very narrow, and it raises FloatingPointError on
    some if ``tolerance`` is below the rounding of a gradient. Whoever observes the time or the
    error learns something about the records. Where that matters, choose a width and a tolerance
    that are not tiny, and release the answer at a time fixed in advance.

    References
    ----------
    Chaudhuri, Monteleoni, Sarwate (2011), who count kappa twice if a record is replaced; Kifer,
    Smith, Thakurta (2012); Iyengar et al. (2019) for the solver; Redberg, Koskela, Wang (2023) for
    the Gaussian noise if a record is added or removed; Hardt and Talwar (2010), Awan and Slavkovic
    (2020) for noise of any norm.
    """

    law: str
    scale: float
    ridge: float
    tolerance: float
    output_scale: float
    shape: Sequence[Block] = ()

    evaluates = "gradient"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("law", self.law, LAWS)
        check_positive("tolerance", self.tolerance)
        for name in ("scale", "ridge", "output_scale"):
            check_number(name, getattr(self, name), low=0.0)
        if bool(self.shape) != (self.law == "blocks") and self.law != "gaussian":
            raise ValueError(f"shape must be given for blocks alone, got {self.shape!r}")

    def shift(self, facts: PublicFacts) -> float:
        """Return the bound S on one record's shift of the random term, in units of ``shape``.

        ValueError if no public bound on the rows has the blocks of the shape.
        """
        return _shift(facts, self.law, tuple(self.shape))

    def expected_square(self, d: int) -> float:
        """Return the expected squared L2 norm of the random term in d dimensions."""
        if self.law == "spherical":
            shape: Sequence[Block] = (Block(d, 2, 1.0),)
        else:
            shape = self.shape or (Block(d, 2, 1.0),)
        copies = d // sum(block.size for block in shape)
        if self.law == "gaussian":
            return self.scale**2 * copies * sum(b.size * b.radius**2 for b in shape)
        return self.scale**2 * copies * sum(map(second_moment, shape))

    def event(self, facts: PublicFacts, sampling: Sampling) -> Event | None:
        """Return the cost of the minimizer and of the solver's error; see Notes."""
        check_full(sampling)
        curvature = curvature_of(facts)
        check_double(facts)
        convexity = facts.mu + self.ridge
        if convexity <= 0.0:
            raise ValueError(
                f"mu + ridge must be positive, got mu = {facts.mu!r} and ridge = {self.ridge!r}"
            )
        if self.scale == 0.0 or self.output_scale == 0.0:
            return None
        least = 2.0 * self._rounding(facts)
        if self.tolerance < 0.75 * least:  # what is left must be attainable for the solver
            raise ValueError(
                f"tolerance must be above twice the rounding of a gradient, {least:.3g}, got "
                f"{self.tolerance!r}"
            )
        n, moved = facts.n, self.shift(facts)
        error = 2.0 * self.tolerance / convexity
        parts: tuple[Event, Event]
        if self.law != "gaussian":
            kappa = curvature.cost(n * convexity, moved / facts.sum_sensitivity(1.0) / self.scale)
            parts = Pure(moved / self.scale + kappa), Pure(error / self.output_scale)
        else:
            kappa = curvature.cost(n * convexity)
            corners = curvature.corners ** (2 if facts.relation == REPLACE_ONE else 1)
            parts = (
                GaussianBound(self.scale, (moved,), (float(corners),), kappa),
                Gaussian(self.output_scale, error),
            )
        return Sampled(sampling, parts, n)

    def _rounding(self, facts: PublicFacts) -> float:
        """Return a bound on the distance of a computed gradient from the exact one."""
        length = math.sqrt(self.expected_square(facts.d)) / facts.n
        return rounding_of_gradient(facts, length, facts.mu + self.ridge)

    def answer(self, records: Records, random: Any) -> tuple[np.ndarray, int]:
        """Return the noisy minimizer, and the number of gradients of each record."""
        problem, n = records.problem, records.size
        # The proof is about real noise, from which the doubles used are up to ``off`` away, and
        # about exact gradients.
        tilt, off = self._tilt(random, problem.d)
        enough = self.tolerance - off / n - self._rounding(problem.facts(REPLACE_ONE))
        w, count = problem.minimize_perturbed(tilt / n, self.ridge, enough, n)
        last = "gaussian" if self.law == "gaussian" else "spherical"
        return mechanisms.noisy(random, w, last, self.output_scale), count

    def _tilt(self, random: Any, d: int) -> tuple[np.ndarray, float]:
        """Return the random term b, and its L2 distance from the real noise."""
        if self.law == "blocks":
            return draw_blocks(random, self.shape, self.scale, d)
        tilt, off = mechanisms.nearly(random, self.law, self.scale, d)
        if not self.shape:
            return tilt, off
        stds = np.concatenate([np.full(block.size, block.radius) for block in self.shape])
        return tilt * np.tile(stds, d // len(stds)), off * float(stds.max())


def rounding_of_gradient(facts: PublicFacts, tilt: float, convexity: float) -> float:
    r"""Return a bound on the rounding error of a mean gradient near the minimizer w.

    ``tilt`` is the norm :math:`\tau` of the random term over n. Each part of the gradient, of the
    records, the term and the penalties, is at most the bound G on all records over n plus the tilt
    there. The predictions are rounded too: the norm of w is at most :math:`(G + \tau)/\mu`. If the
    loss decreases from its value at 0 by at most D, then also
    :math:`\mu\|w\|^2/2 - \tau\|w\| \le D`, a much smaller bound if mu is small.
    """
    most = facts.record_limit / facts.n
    slope = most * facts.gradient_bounds[1]
    away = (slope + tilt) / convexity
    if facts.value_at_zero is not None:
        drop = most * max(facts.value_at_zero - facts.lowest_value, 0.0)
        away = min(away, (tilt + math.sqrt(tilt**2 + 2.0 * convexity * drop)) / convexity)
    predicted = max(1e-14, (facts.d + 16) * 2.0**-53) * most * curvature_of(facts).trace * away
    summed = facts.rounding / facts.n * facts.gradient_bounds[1]
    return summed + 2.0**-48 * (slope + tilt) + predicted


@lru_cache(maxsize=64)
def _shift(facts: PublicFacts, law: str, shape: tuple[Block, ...]) -> float:
    """Return :meth:`PerturbedMinimum.shift`, which does not depend on the scale."""
    if not shape:
        return facts.record_sensitivity(2)
    one = law == "blocks"  # else the shape has standard deviations, and L2 norms count
    kinds = [block.size for block in shape], [block.order for block in shape]
    shifts = []
    for moved in facts.block_sensitivities(1 if one else 2):
        if [block.size for block in moved] != kinds[0]:
            continue
        if one and [block.order for block in moved] == kinds[1]:
            shifts.append(sum(b.radius / t.radius for b, t in zip(moved, shape)))
        if not one:
            shifts.append(math.hypot(*(b.radius_in(2) / t.radius for b, t in zip(moved, shape))))
    if not shifts:
        raise ValueError(f"shape must have the blocks of a public bound on the rows, got {shape!r}")
    return min(shifts)
