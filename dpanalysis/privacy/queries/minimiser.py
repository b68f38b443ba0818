"""Queries for a whole solution: where a descent ends, and the minimiser of a tilted objective."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._devices import to_host
from ..._validation import check_choice, check_finite, check_int, check_number
from .. import mechanisms
from ..events import Event, Gaussian, GaussianBound, Pure, Sampled
from ..relations import REPLACE_ONE
from ..sampling import Full, Sampling
from .base import Query, Records

if TYPE_CHECKING:
    from ..facts import PublicFacts

__all__ = ["NoisyDescent", "TiltedMinimum", "check_linear", "largest_step"]

LAWS = ("gaussian", "spherical")

_MOST_SENSITIVITIES = 128  # of a descent that are told apart
_ROUNDING = 1e-4  # part of its sensitivity that the rounding of one descent may be


@dataclass(frozen=True, eq=False)
class NoisyDescent(Query):
    r"""Where some passes of gradient descent over the records end, with noise.

    Each record is put into one of m batches, uniformly and independently, and every pass takes
    the batches in their order. A step on batch b, with :math:`B = n/m` for the public n, is

    .. math:: w \leftarrow w - \eta \Big(\frac{1}{\max(B, |b|/2)} \sum_{i \in b} \nabla f_i(w)
              + \nabla r(w)\Big).

    With ``average`` the iterates of the last pass are averaged, and one step on all records is
    made from there. Only the end is released, with Gaussian noise or with noise of density
    proportional to :math:`e^{-\|x\|/\text{scale}}`
    (:func:`dpanalysis.privacy.mechanisms.spherical`).

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

    Raises
    ------
    ValueError
        If an argument is outside its range.

    Notes
    -----
    *Assumptions.* Every :math:`f_i` is convex, has gradients of norm at most G and is
    :math:`\beta`-smooth; the penalty r is :math:`\mu`-strongly convex, :math:`\mu \ge 0`. Both
    relations are covered: S is G for a record added or removed, and 2G for one replaced.

    *Contraction.* The objective of a step is :math:`\mu`-strongly convex, and L-smooth with
    :math:`L = 2\beta` and what the penalty adds, since at most :math:`2 \max(B, |b|/2)` records
    are in b; for m = 1 it is :math:`(1 + 1/n) \beta`, with the record that may be added to n. By
    co-coercivity

    .. math:: \|u - \eta g(u) - v + \eta g(v)\|^2 \le
              \Big(1 - \frac{2\eta\mu L}{\mu+L}\Big) \|u-v\|^2
              - \eta \Big(\frac{2}{\mu+L} - \eta\Big) \|g(u) - g(v)\|^2

    and :math:`\|g(u) - g(v)\| \ge \mu \|u-v\|`, the map of a step with
    :math:`\eta \le 2/(\mu+L)` brings two points closer by :math:`\rho = 1 - \eta\mu`.

    *One record.* Let two runs differ in one record and in nothing else: not in the batches of
    the others, which are drawn alike, nor in that of this record, say the j-th. At one w, the
    gradient of the j-th batch differs by at most S/B. That is plain for a replaced record, and
    for an added one where the divisor stays B. Otherwise its s + 1 > 2B records have divisor
    :math:`a' = (s+1)/2`, the others alone :math:`a = \max(B, s/2) \ge a' - 1/2`, and

    .. math:: \Big\|\frac{\Sigma}{a} - \frac{\Sigma + g}{a'}\Big\| \le s G \frac{a'-a}{a a'}
              + \frac{G}{a'} \le \frac{2G}{a'} \le \frac{2S}{B}.

    So a distance :math:`\Delta` becomes at most :math:`\rho\Delta + [b = j] \eta S/B` in a step,
    an average has at most the average distance, and the last step adds :math:`\eta S/n`. For
    each j this gives :math:`\Delta_j`, and at most :math:`2\Delta_j` where the j-th batch has more
    than 2B records; that one binomial variable, plus 1, exceeds 2B has a known probability p.

    *Privacy.* The noisy ends are mixtures, over the batches drawn, of laws that differ by a shift
    of at most :math:`\Delta_j` with probability (1-p)/m, and :math:`2\Delta_j` with p/m
    (:class:`~dpanalysis.privacy.events.GaussianBound`). The pure loss is that of the worst case.

    References
    ----------
    Chen, Lee, Kifer (2019), whose random sensitivity and Renyi accounting this is; Wu et al.
    (2017), whose permutation keeps batches of equal size, but only where n is public; Zhang et
    al. (2017) for one batch.
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
        check_finite("start", np.asarray(self.start))
        check_number("step_size", self.step_size, low=0.0, low_open=True)
        check_int("batches", self.batches, low=1)
        check_int("passes", self.passes, low=1)
        check_choice("law", self.law, LAWS)
        check_number("scale", self.scale, low=0.0)

    def event(self, facts: PublicFacts, sampling: Sampling) -> Event | None:
        """Return the cost of noise at :meth:`sensitivities`."""
        _check_full(sampling)
        distances, weights = self.sensitivities(facts)
        if self.scale == 0.0:
            return None
        if self.law == "spherical":
            return Pure(float(distances.max()) / self.scale)
        if len(distances) == 1:
            return Gaussian(self.scale, float(distances[0]))
        return GaussianBound(self.scale, distances.tolist(), weights.tolist())

    def sensitivities(self, facts: PublicFacts) -> tuple[np.ndarray, np.ndarray]:
        """Return the distances that one record may cause, (k,), and their probabilities.

        Raises
        ------
        ValueError
            If the problem does not satisfy the assumptions, or ``step_size`` is too large.
        """
        limit = largest_step(facts, self.batches)
        if self.step_size > limit * (1.0 + 1e-12):
            raise ValueError(
                f"step_size must be at most 2/(mu + L) = {limit:g}, so that steps contract, got "
                f"{self.step_size!r}"
            )
        m, n, S = self.batches, facts.n, facts.record_sensitivity(2)
        powers = (1.0 - self.step_size * facts.mu) ** np.arange(m + 1)
        jump = self.step_size * S * m / n
        # One pass after another: by how much the end of pass p differs, for j = m, ..., 1.
        first = jump * powers[:m]
        before = np.zeros(m)
        for _ in range(self.passes - 1):
            before = powers[m] * before + first
        after = powers[m] * before + first
        last = 0.0
        if self.average:
            after = (before * powers[1:].sum() + jump * np.cumsum(powers[:m])) / m * powers[1]
            last = self.step_size * S / n
        # The next larger one stands for those that are not told apart.
        after = after + last
        self._check_rounding(facts, float(after.max()))
        after = np.sort(after) + 2.0 * _ROUNDING * after.max()
        parts = np.array_split(after, min(m, _MOST_SENSITIVITIES))
        values = np.array([part[-1] for part in parts])
        weights = np.array([len(part) / m for part in parts])
        if m == 1 or facts.relation == REPLACE_ONE:
            return values, weights
        from scipy import stats  # heavy, hence not at the top

        crowded = float(stats.binom.sf(math.floor(2.0 * n / m - 1.0), n, 1.0 / m))
        if crowded == 0.0:
            return values, weights
        return (
            np.concatenate([values, 2.0 * values]),
            np.concatenate([(1.0 - crowded) * weights, crowded * weights]),
        )

    def _check_rounding(self, facts: PublicFacts, distance: float) -> None:
        """Raise where the steps' rounding may exceed its charge; by public numbers alone.

        A step rounds each coordinate by a few units in the last place of the largest iterate,
        and the gradient by ``facts.rounding``. No step widens a distance, so these add up. The
        penalty pulls towards 0, so no iterate is longer than the start and all steps together.
        """
        steps = self.passes * self.batches + 1
        G = facts.gradient_bounds[1]
        reach = float(np.abs(self.start).max(initial=0.0)) + steps * self.step_size * G
        each = 8.0 * 2.0**-53 * reach * math.sqrt(facts.d)
        each += self.step_size * facts.rounding * G * self.batches / facts.n
        if steps * each > _ROUNDING * distance:
            raise ValueError(
                f"start is too far away, or there are too many steps: {steps} steps at up to "
                f"{reach:g} from 0 may round by {steps * each:.3g}, and one record moves the end "
                f"by {distance:.3g}; start nearer to 0, or take fewer steps"
            )

    def iterates(self) -> tuple[np.ndarray, ...]:
        """Return the start; the other iterates depend on the records, and stay near it."""
        return (self.start,)

    def answer(self, records: Records, random: Any) -> tuple[np.ndarray, int]:
        """Return the noisy end, and the gradients of each record that it took."""
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
            drawn = (m * random.random(problem.n)).astype(np.int64)
            order = np.argsort(drawn, kind="stable")
            batches = np.split(order, np.cumsum(np.bincount(drawn, minlength=m))[:-1])
        total = np.zeros(len(w))
        for left in range(self.passes - 1, -1, -1):
            for rows in batches:
                size = problem.n if rows is None else len(rows)
                w = step(w, rows, max(records.size / m, 0.5 * size))
                if left == 0:
                    total += w
        if self.average:
            w = step(total / m, None, records.size)
        return w + _noise(random, self.law, self.scale, len(w)), self.passes + self.average


@dataclass(frozen=True, eq=False)
class TiltedMinimum(Query):
    r"""The minimiser of the objective with a random linear term: objective perturbation.

    .. math:: w^* = \arg\min_w \sum_i f_i(w) + n\,r(w) + \frac{n\lambda}{2} \|w\|^2
              + \langle b, w\rangle

    with the public n, the penalty r, more of it, :math:`\lambda`, and noise b, which is Gaussian
    or has density proportional to :math:`e^{-\|b\|/\text{scale}}`. It is solved until the gradient
    over n is at most ``tolerance``, and released with a little noise of the same kind.

    Parameters
    ----------
    law : {"gaussian", "spherical"}
    scale : float
        Standard deviation of b, or its scale, in units of a sum of gradients; 0 for none.
    ridge : float
        :math:`\lambda \ge 0`.
    tolerance : float
        In (0, inf).
    output_scale : float
        Standard deviation or scale of the noise that hides what the tolerance leaves open; 0
        for none.

    Raises
    ------
    ValueError
        If an argument is outside its range.

    Notes
    -----
    *Assumptions.* :math:`f_i(w) = \ell(\langle x_i, w\rangle, y_i)` with gradients of norm at most
    G and a convex, :math:`\beta`-smooth :math:`f_i`; n times the penalties is c-strongly convex,
    :math:`c = n(\mu + \lambda) > 0`. Both relations are covered.

    *Density.* :math:`b_D(w) = -\sum_{i \in D} \nabla f_i(w) - n \nabla r(w) - n\lambda w` is the
    noise for which w is the minimiser on D. It is a bijection with Lipschitz inverse, so
    :math:`w^*` has the density :math:`\nu(b_D(w)) \det M_D(w)`, with that of the noise,
    :math:`\nu`, and the Hessian :math:`M_D` of the objective, which exists almost everywhere.

    *Determinants.* Let A be :math:`M` without the record that two data sets differ in, and h its
    Hessian, of rank one and norm at most :math:`\beta`. Then

    .. math:: \det(A + h)/\det A = 1 + \mathrm{tr}(A^{-1} h) \in [1, 1 + \beta/c],

    so the determinants of neighbours have a ratio of at most :math:`e^\kappa`,
    :math:`\kappa = \ln(1 + \beta/c)`, also where a record is replaced: both are over one A.

    *Spherical noise.* :math:`b_D(w)` moves by one gradient, or by the difference of two: by at
    most S = G or 2G in norm. The pure loss is at most :math:`S/\text{scale} + \kappa`.

    *Gaussian noise.* Let b have law :math:`N(0, \sigma^2 I)` and w be the minimiser on D. The loss
    is at most :math:`\kappa + l(v)`, where :math:`v = b_{D'}(w) - b_D(w)` and

    .. math:: l(v) = \frac{\|b + v\|^2 - \|b\|^2}{2\sigma^2}
              = \frac{\langle b, v\rangle + \|v\|^2/2}{\sigma^2}.

    v depends on b through w, so :math:`\langle b, v\rangle` is not Gaussian. But it is
    :math:`\theta x` with :math:`|\theta| \|x\| \le G`, or the sum of two such vectors: it lies in
    a segment, or a parallelogram, that depends on the records alone. l is convex and has its
    maximum at one of the two or four corners, where it is a Gaussian loss of a shift of norm at
    most S. That is :class:`~dpanalysis.privacy.events.GaussianBound` with weight 2 or 4 and offset
    :math:`\kappa`.

    *The solver.* At the point found, u, the gradient over n is at most ``tolerance``, so
    :math:`\|u - w^*\| \le r = n \cdot \text{tolerance}/c`. Release :math:`w^*` in thought; then b
    is known from it and D, and :math:`u - w^*` is an answer that a record moves by at most 2r.
    With noise it costs what noise on such an answer costs, and u with that noise is the sum of
    both releases.

    *Time.* The proof bounds what the answer tells, not how long it takes. The solver takes more
    steps on some records than on others, seconds more where a
    :class:`~dpanalysis.losses.HuberizedHinge` is very narrow, and it raises FloatingPointError on
    some where ``tolerance`` is below the rounding of a gradient. Who sees the time or the error
    sees something of the records. Where that counts, take a width and a tolerance that are not
    tiny, and release the answer at a time fixed beforehand.

    References
    ----------
    Chaudhuri, Monteleoni, Sarwate (2011), who count kappa twice where a record is replaced; Kifer,
    Smith, Thakurta (2012); Iyengar et al. (2019) for the solver; Redberg, Koskela, Wang (2023) for
    the Gaussian noise when a record is added or removed.
    """

    law: str
    scale: float
    ridge: float
    tolerance: float
    output_scale: float

    evaluates = "gradient"

    def __post_init__(self) -> None:
        check_choice("law", self.law, LAWS)
        check_number("tolerance", self.tolerance, low=0.0, low_open=True)
        for name in ("scale", "ridge", "output_scale"):
            check_number(name, getattr(self, name), low=0.0)

    def event(self, facts: PublicFacts, sampling: Sampling) -> Event | None:
        """Return the cost of the minimiser and of its error; see Notes.

        Raises
        ------
        ValueError
            If the problem does not satisfy the assumptions.
        """
        _check_full(sampling)
        check_linear(facts)
        convexity = facts.mu + self.ridge
        if convexity <= 0.0:
            raise ValueError(
                f"mu + ridge must be positive, got mu = {facts.mu!r} and ridge = {self.ridge!r}"
            )
        if self.scale == 0.0 or self.output_scale == 0.0:
            return None
        n, moved = facts.n, facts.record_sensitivity(2)
        kappa = math.log1p(facts.hessian_bound / (n * convexity))
        error = 2.0 * self.tolerance / convexity
        parts: tuple[Event, Event]
        if self.law == "spherical":
            parts = Pure(moved / self.scale + kappa), Pure(error / self.output_scale)
        else:
            corners = 4.0 if facts.relation == REPLACE_ONE else 2.0
            parts = (
                GaussianBound(self.scale, (moved,), (corners,), kappa),
                Gaussian(self.output_scale, error),
            )
        return Sampled(sampling, parts, n)

    def answer(self, records: Records, random: Any) -> tuple[np.ndarray, int]:
        """Return the noisy minimiser, and the gradients of each record that it took."""
        problem, n = records.problem, records.size
        tilt = _noise(random, self.law, self.scale, problem.d) / n
        w, count = problem.minimise_tilted(tilt, self.ridge, self.tolerance, n)
        return w + _noise(random, self.law, self.output_scale, problem.d), count


def check_smooth(facts: PublicFacts) -> None:
    """Raise ValueError unless every record's loss is convex, Lipschitz and smooth for sure."""
    if not facts.convex_records:
        raise ValueError(
            "the loss of every record must be known to be convex: take an ERM with a convex loss"
        )
    if not math.isfinite(facts.gradient_bounds[1]):
        raise ValueError(
            "the gradient of one record has no public bound: give the problem a row_bound and a "
            "Lipschitz loss, such as Logistic() or HuberizedHinge(width)"
        )
    if not math.isfinite(facts.hessian_bound):
        raise ValueError(
            "the loss must be smooth: take Logistic() or HuberizedHinge(width), which is a smooth "
            "Hinge()"
        )


def check_linear(facts: PublicFacts) -> None:
    """Raise ValueError unless besides a record's loss is one of a linear prediction."""
    check_smooth(facts)
    if facts.hessian_rank != 1:
        raise ValueError(
            "the loss of a record must depend on one linear prediction, as in ERM: its Hessian "
            f"must have rank 1, got hessian_rank = {facts.hessian_rank!r}"
        )


def largest_step(facts: PublicFacts, batches: int = 1) -> float:
    """Return 2/(mu + L) for the smoothness L of a step of :class:`NoisyDescent`.

    Raises
    ------
    ValueError
        If the problem does not satisfy the assumptions.
    """
    check_smooth(facts)
    if facts.mu < 0.0:
        raise ValueError(f"the penalty must be convex, got mu = {facts.mu!r}: take L2(strength)")
    more = 1.0 if batches > 1 else 1.0 / facts.n  # a record more than n may be there
    return 2.0 / (facts.mu + facts.L + more * facts.hessian_bound)


def _check_full(sampling: Sampling) -> None:
    if not isinstance(sampling, Full):
        raise ValueError(f"sampling must be Full() for a whole solution, got {sampling!r}")


def _noise(random: Any, law: str, scale: float, d: int) -> Any:
    return getattr(mechanisms, law)(random, scale, d) if scale else np.zeros(d)
