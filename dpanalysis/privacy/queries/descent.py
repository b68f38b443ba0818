"""Where a descent without noise ends, released with noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._devices import to_host
from ..._validation import check_choice, check_finite, check_int, check_number
from .. import mechanisms
from ..events import Event, Gaussian, GaussianBound, Pure
from ..relations import REPLACE_ONE
from ..sampling import Sampling
from .assumptions import check_full, check_smooth
from .base import Query, Records

if TYPE_CHECKING:
    from ..facts import PublicFacts

__all__ = ["NoisyDescent", "largest_step"]

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
    are in b; for m = 1 it is :math:`(N/n) \beta` for the largest number N of records that may be
    there: n + 1, or 2n where n is a nominal size. By co-coercivity

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
    than 2B records; that one binomial variable of N - 1 others, plus 1, exceeds 2B has a known
    probability p.

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
        check_choice("law", self.law, ("gaussian", "spherical"))
        check_number("scale", self.scale, low=0.0)

    def event(self, facts: PublicFacts, sampling: Sampling) -> Event | None:
        """Return the cost of noise at :meth:`sensitivities`."""
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

        others = facts.record_limit - 1
        crowded = float(stats.binom.sf(math.floor(2.0 * n / m - 1.0), others, 1.0 / m))
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
        most = 1.0 + _more(facts, self.batches)  # records for one of the divisor
        reach = float(np.abs(self.start).max(initial=0.0)) + steps * self.step_size * most * G
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
            drawn = mechanisms.parts(random, problem.n, m)
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
        return mechanisms.noisy(random, w, self.law, self.scale), self.passes + self.average


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
    return 2.0 / (facts.mu + facts.L + _more(facts, batches) * facts.hessian_bound)


def _more(facts: PublicFacts, batches: int) -> float:
    """Return how many records more than the divisor of a step a batch may have, over the divisor.

    With one batch that divisor is n, or half the records where these are more than 2n.
    """
    return 1.0 if batches > 1 else min(1.0, (facts.record_limit - facts.n) / facts.n)
