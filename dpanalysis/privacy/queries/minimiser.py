"""The minimiser of a tilted objective: objective perturbation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._validation import check_choice, check_number
from .. import mechanisms
from ..blocks import Block, draw_blocks, second_moment
from ..events import Event, Gaussian, GaussianBound, Pure, Sampled
from ..relations import REPLACE_ONE
from ..sampling import Sampling
from .assumptions import check_full, curvature_of
from .base import Query, Records

if TYPE_CHECKING:
    from ..facts import PublicFacts

__all__ = ["TiltedMinimum"]

LAWS = ("gaussian", "spherical", "blocks")


@dataclass(frozen=True, eq=False)
class TiltedMinimum(Query):
    r"""The minimiser of the objective with a random linear term: objective perturbation.

    .. math:: w^* = \arg\min_w \sum_i f_i(w) + n\,r(w) + \frac{n\lambda}{2} \|w\|^2
              + \langle b, w\rangle

    with the public n, the penalty r, more of it, :math:`\lambda`, and noise b, which is Gaussian
    or has density proportional to :math:`e^{-\|b\|/\text{scale}}` for a norm. It is solved until
    the gradient over n is at most ``tolerance``, and released with a little noise of the same kind.

    Parameters
    ----------
    law : {"gaussian", "spherical", "blocks"}
        ``"spherical"``: the norm is L2. ``"blocks"``: that of ``shape``.
    scale : float
        Standard deviation of b, or its scale, in units of a sum of gradients; 0 for none.
    ridge : float
        :math:`\lambda \ge 0`.
    tolerance : float
        In (0, inf).
    output_scale : float
        Standard deviation or scale of the noise that hides what the tolerance leaves open; 0
        for none. It is spherical where the law is not Gaussian.
    shape : sequence of Block
        Of noise in blocks: the norm is :math:`\sum_g \|b_g\|_g / t_g` over blocks g with
        norms of their own and the radii :math:`t_g`. Of Gaussian noise: standard deviations
        :math:`t_g \cdot \text{scale}`, 1 in all blocks by default. Repeated where a record has
        several linear predictions.

    Raises
    ------
    ValueError
        If an argument is outside its range.

    Notes
    -----
    *Assumptions.* :math:`f_i(w) = \ell(\langle x_i, w\rangle, y_i)`, or a loss of K such
    predictions, convex and smooth, with gradients :math:`\theta x_i^\top` of norm at most G; n
    times the penalties is c-strongly convex, :math:`c = n(\mu + \lambda) > 0`, in every
    direction: a constant column, for an intercept, is penalised as the others are and counted in
    the bound on the row. Both relations are covered.

    *Density.* :math:`b_D(w) = -\sum_{i \in D} \nabla f_i(w) - n \nabla r(w) - n\lambda w` is the
    noise for which w is the minimiser on D. It is a bijection with Lipschitz inverse, so
    :math:`w^*` has the density :math:`\nu(b_D(w)) \det M_D(w)`, with that of the noise,
    :math:`\nu`, and the Hessian :math:`M_D` of the objective, which exists almost everywhere.

    *Determinants.* Let A be :math:`M` without the record that two data sets differ in, and h its
    Hessian, of rank at most k and trace at most :math:`\tau`. The k eigenvalues of
    :math:`A^{-1/2} h A^{-1/2}` that are not 0 add up to
    :math:`\mathrm{tr}(A^{-1} h) \le \tau/c`, and the mean of positive numbers is above their
    geometric mean, so

    .. math:: \det(A + h)/\det A \in [1, (1 + \tau/(kc))^k].

    So the determinants of neighbours have a ratio of at most :math:`e^\kappa`,
    :math:`\kappa = k \ln(1 + \tau/(kc))`, also where a record is replaced: both are over one A. Of
    a linear predictor k is 1. Of softmax regression with K classes h is
    :math:`(\mathrm{diag}(p) - p p^\top) \otimes x x^\top`: k is K - 1 and :math:`\tau` is
    :math:`(1 - 1/K) \|x\|^2`.

    *A record cannot pull and bend at once.* With one prediction and the logistic loss a record of
    slope p, the size of :math:`\ell'`, has the curvature :math:`p(1-p)`. Say its largest gradient
    costs a. Then what it adds to the loss is at most

    .. math:: \max_{p \in [0, 1]} \; p a + \ln(1 + 4 p (1-p) \tau/c) = a + \kappa_a,

    and the record in whose place it is, at most a: its determinant is on the other side. The
    maximum is that of a concave function; :math:`\kappa_a \le \kappa`, and it is 0 where
    :math:`4\tau/c \le a`: with enough penalty the curvature costs nothing. It takes the place of
    :math:`\kappa` for noise of a norm and losses that are ``flat_where_steep``.

    *Noise of a norm.* :math:`b_D(w)` moves by a vector v, which is one gradient or the difference
    of two, and :math:`|\,\|b + v\| - \|b\|\,| \le \|v\|` in any norm. So the pure loss is at most
    :math:`S/\text{scale} + \kappa` where S bounds the norm of v. In L2 that is G or 2G. In blocks,
    with :math:`\|\theta\|_1 \le \Theta` and rows of norm at most :math:`r_g` in block g, the K
    copies of a block (one for each prediction) have norms that add up to at most
    :math:`\Theta r_g`, and S is :math:`\sum_g \Theta r_g/t_g` or twice that.

    *Gaussian noise.* Let b have law :math:`N(0, \sigma^2 I)` and w be the minimiser on D. The loss
    is at most :math:`\kappa + l(v)`, where :math:`v = b_{D'}(w) - b_D(w)` and

    .. math:: l(v) = \frac{\|b + v\|^2 - \|b\|^2}{2\sigma^2}
              = \frac{\langle b, v\rangle + \|v\|^2/2}{\sigma^2}.

    v depends on b through w, so :math:`\langle b, v\rangle` is not Gaussian. But it is
    :math:`\theta x^\top` with :math:`\theta` in a polytope of q corners, or the sum of two such
    vectors: it lies in a polytope of q or q^2 corners that depends on the records alone. Of a
    linear predictor that is a segment, or a parallelogram (q = 2); of softmax regression
    :math:`\theta = p - e_y`, and the simplex of the p has q = K corners. l is convex and has its
    maximum at one of the corners, where it is a Gaussian loss of a shift of norm at
    most S. That is :class:`~dpanalysis.privacy.events.GaussianBound` with weight q or q^2 and
    offset :math:`\kappa`. Where blocks have standard deviations of their own, all of this holds of
    w and b in their units; S is then the root of :math:`\sum_g (\Theta_2 r_g/t_g)^2`, or twice
    that, with L2 radii :math:`r_g` and :math:`\|\theta\|_2 \le \Theta_2`.

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
    the Gaussian noise when a record is added or removed; Hardt and Talwar (2010), Awan and
    Slavkovic (2020) for noise of any norm.
    """

    law: str
    scale: float
    ridge: float
    tolerance: float
    output_scale: float
    shape: Sequence[Block] = ()

    evaluates = "gradient"

    def __post_init__(self) -> None:
        check_choice("law", self.law, LAWS)
        check_number("tolerance", self.tolerance, low=0.0, low_open=True)
        for name in ("scale", "ridge", "output_scale"):
            check_number(name, getattr(self, name), low=0.0)
        if bool(self.shape) != (self.law == "blocks") and self.law != "gaussian":
            raise ValueError(f"shape must be given for blocks alone, got {self.shape!r}")

    def shift(self, facts: PublicFacts) -> float:
        """Return by how much one record moves the random term, in units of ``scale``.

        Raises
        ------
        ValueError
            If no public bound on the rows has the blocks of the shape.
        """
        if not self.shape:
            return facts.record_sensitivity(2)
        one = self.law == "blocks"  # else standard deviations, for which L2 norms count
        kinds = [block.size for block in self.shape], [block.order for block in self.shape]
        shifts = []
        for moved in facts.moved_blocks(1 if one else 2):
            if [block.size for block in moved] != kinds[0]:
                continue
            if one and [block.order for block in moved] == kinds[1]:
                shifts.append(sum(b.radius / t.radius for b, t in zip(moved, self.shape)))
            if not one:
                shifts.append(
                    math.hypot(*(b.radius_in(2) / t.radius for b, t in zip(moved, self.shape)))
                )
        if not shifts:
            raise ValueError(
                f"shape must have the blocks of a public bound on the rows, got {self.shape!r}"
            )
        return min(shifts)

    def expected_square(self, d: int) -> float:
        """Return the expected square of the length of the random term in d dimensions."""
        if self.law == "spherical":
            shape: Sequence[Block] = (Block(d, 2, 1.0),)
        else:
            shape = self.shape or (Block(d, 2, 1.0),)
        copies = d // sum(block.size for block in shape)
        if self.law == "gaussian":
            return self.scale**2 * copies * sum(b.size * b.radius**2 for b in shape)
        return self.scale**2 * copies * sum(map(second_moment, shape))

    def event(self, facts: PublicFacts, sampling: Sampling) -> Event | None:
        """Return the cost of the minimiser and of its error; see Notes.

        Raises
        ------
        ValueError
            If the problem does not satisfy the assumptions.
        """
        check_full(sampling)
        curvature = curvature_of(facts)
        convexity = facts.mu + self.ridge
        if convexity <= 0.0:
            raise ValueError(
                f"mu + ridge must be positive, got mu = {facts.mu!r} and ridge = {self.ridge!r}"
            )
        if self.scale == 0.0 or self.output_scale == 0.0:
            return None
        n, moved = facts.n, self.shift(facts)
        error = 2.0 * self.tolerance / convexity
        parts: tuple[Event, Event]
        if self.law != "gaussian":
            kappa = curvature.cost(n * convexity, moved / facts.moved(1.0) / self.scale)
            parts = Pure(moved / self.scale + kappa), Pure(error / self.output_scale)
        else:
            kappa = curvature.cost(n * convexity)
            corners = curvature.corners ** (2 if facts.relation == REPLACE_ONE else 1)
            parts = (
                GaussianBound(self.scale, (moved,), (float(corners),), kappa),
                Gaussian(self.output_scale, error),
            )
        return Sampled(sampling, parts, n)

    def answer(self, records: Records, random: Any) -> tuple[np.ndarray, int]:
        """Return the noisy minimiser, and the gradients of each record that it took."""
        problem, n = records.problem, records.size
        # The proof is about the real noise; what is in its place may tilt by ``off`` otherwise.
        tilt, off = self._tilt(random, problem.d)
        w, count = problem.minimise_tilted(tilt / n, self.ridge, self.tolerance - off / n, n)
        last = "gaussian" if self.law == "gaussian" else "spherical"
        return mechanisms.noisy(random, w, last, self.output_scale), count

    def _tilt(self, random: Any, d: int) -> tuple[np.ndarray, float]:
        """Return the random term b, and how far it is from the real noise (L2)."""
        if self.law == "blocks":
            return draw_blocks(random, self.shape, self.scale, d)
        tilt, off = mechanisms.nearly(random, self.law, self.scale, d)
        if not self.shape:
            return tilt, off
        stds = np.concatenate([np.full(block.size, block.radius) for block in self.shape])
        return tilt * np.tile(stds, d // len(stds)), off * float(stds.max())
