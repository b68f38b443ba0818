r"""Privacy curves: the whole privacy profile and trade-off function, not one (epsilon, delta).

Let H(x) be the hockey-stick divergence of the releases on two neighbours at :math:`x = e^\epsilon`,
the larger of both directions. It is convex, H(0) = 1, and :math:`H(x) = 1 - x + x H(1/x)`. Any test
between the neighbours, with false positive rate alpha and false negative rate beta, has

.. math:: \alpha x + \beta \ge 1 - H(x) \quad \text{for all } x \ge 0,

with equality for some test at every x (Neyman and Pearson). So the least beta at an alpha is the
largest of these lines (Dong, Roth, Su 2022), the advantage :math:`1 - \alpha - \beta` is at most
H(1), and the least error probability at the prior pi is :math:`\pi (1 - H((1 - \pi)/\pi))`.

Here upper bounds on H are known at some x. H is convex, so the straight lines between them lie
above it, and so does the lower convex hull of all these points and their mirror images over x in
:math:`[0, \infty)`. Everything is computed from this hull.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from ..._validation import as_scalar, check_fraction, check_number, check_reals
from .accountant import Events, Groups, _applicable, _epsilon_by, epsilon, group, listed
from .epochs import Epoch
from .events import Sampled, counted_gaussian_terms
from .pairs import Array
from .pld import _MOST_CELLS, _cell_width, _compose, has_profiles, pairs_of
from .relations import directed
from .zcdp import gaussian_divergence, gaussian_epsilon, real_losses

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["PrivacyCurve", "curve_of_epsilons", "privacy_curve"]

# Losses kept of a loss distribution: the chords between them lie about 1e-6 above the profile.
_MOST_POINTS = 2**13
# Tails of loss distributions are truncated for this delta; below it the curve is less tight.
_SMALLEST = 1e-12
# Deltas at which accountants without a loss distribution are evaluated.
_DELTAS = np.concatenate([np.geomspace(1e-15, 0.1, 80), np.linspace(0.15, 0.95, 17)])
_LARGEST_LOSS = 700.0
# Number of alphas that are compared with all lines at once.
_BLOCK = 64


@dataclass(frozen=True, eq=False)
class PrivacyCurve:
    """Privacy profile and trade-off function of a release: proven bounds on any attacker.

    The attacker knows all other records and decides between two neighbouring data sets. A false
    positive declares a record present that is absent.

    Parameters
    ----------
    epsilons, deltas : (k,) array_like
        The release is (epsilon, delta)-private at each of these pairs, in both directions.
    mu : float, optional
        Set if N(mu, 1) against N(0, 1) dominates the release: everything is then the closed form
        for that pair, and the points are not used.

    Examples
    --------
    Randomized response with epsilon 1:

    >>> curve = PrivacyCurve([1.0], [0.0])
    >>> round(curve.advantage(), 6) == round(float(np.tanh(0.5)), 6)
    True
    >>> round(float(curve.true_positive_rate(0.01)), 4)
    0.0272
    """

    epsilons: ArrayLike = ()
    deltas: ArrayLike = ()
    mu: float | None = None
    _places: Array = field(init=False, repr=False)
    _heights: Array = field(init=False, repr=False)

    def __post_init__(self) -> None:
        losses = np.atleast_1d(check_reals("epsilons", self.epsilons)).astype(np.float64)
        deltas = np.atleast_1d(check_reals("deltas", self.deltas)).astype(np.float64)
        if losses.shape != deltas.shape or losses.ndim != 1:
            raise ValueError(
                f"epsilons and deltas must have one shape (k,), got {losses.shape} and "
                f"{deltas.shape}"
            )
        if not (np.all(losses >= 0.0) and np.all((deltas >= 0.0) & (deltas <= 1.0))):
            raise ValueError("epsilons must be at least 0, and deltas in [0, 1]")
        if self.mu is not None:
            object.__setattr__(self, "mu", check_number("mu", self.mu, low=0.0))
        kept = losses <= _LARGEST_LOSS
        places, heights = _hull(losses[kept], deltas[kept])
        for name, value in (
            ("epsilons", losses), ("deltas", deltas), ("_places", places), ("_heights", heights)
        ):  # fmt: skip
            value.setflags(write=False)
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        what = f"{np.size(self.epsilons)} points" if self.mu is None else f"mu = {self.mu:.6g}"
        return f"PrivacyCurve({what}, advantage at most {directed(self.advantage(), 4)})"

    def delta(self, epsilon: ArrayLike) -> Any:
        """Return the least delta at ``epsilon``, which may be any real numbers."""
        loss = real_losses(epsilon)
        if self.mu is not None:
            return as_scalar(gaussian_divergence(self.mu, loss))
        x = np.exp(np.minimum(np.abs(loss), _LARGEST_LOSS))
        above = np.interp(x, self._places, self._heights)  # beyond the last place it is no larger
        below = np.minimum(loss, 0.0)
        return as_scalar(np.where(loss >= 0.0, above, -np.expm1(below) + np.exp(below) * above))

    def epsilon(self, delta: ArrayLike) -> Any:
        """Return the least epsilon at ``delta`` in [0, 1]; infinite where the curve has none."""
        wanted = check_reals("delta", delta)
        if not np.all((wanted >= 0.0) & (wanted <= 1.0)):
            raise ValueError(f"delta must lie in [0, 1], got {delta!r}")
        return as_scalar(np.vectorize(self._epsilon, otypes=[np.float64])(wanted))

    def _epsilon(self, delta: float) -> float:
        if self.mu is not None:
            if delta == 0.0:
                return math.inf if self.mu else 0.0
            whole = delta == 1.0 or self.mu == 0.0
            return 0.0 if whole else float(gaussian_epsilon(1.0 / self.mu, delta))
        x, height = self._places, self._heights
        fits = np.flatnonzero(height <= delta)
        if not fits.size:
            return math.inf
        right = int(fits[0])
        if right == 0 or x[right] <= 1.0:
            return 0.0
        share = (height[right - 1] - delta) / (height[right - 1] - height[right])
        return max(0.0, math.log(x[right - 1] + share * (x[right] - x[right - 1])))

    def tradeoff(self, alpha: ArrayLike) -> Any:
        """Return the least false negative rate at the false positive rate ``alpha`` in [0, 1]."""
        rate = check_reals("alpha", alpha)
        if not np.all((rate >= 0.0) & (rate <= 1.0)):
            raise ValueError(f"alpha must lie in [0, 1], got {alpha!r}")
        if self.mu is not None:
            return as_scalar(special.ndtr(-special.ndtri(rate) - self.mu))
        flat = rate.ravel()
        rows = np.split(flat, range(_BLOCK, flat.size, _BLOCK))
        least = [(1.0 - self._heights - row[:, None] * self._places).max(axis=1) for row in rows]
        return as_scalar(np.clip(np.concatenate(least).reshape(rate.shape), 0.0, 1.0 - rate))

    def true_positive_rate(self, fpr: ArrayLike) -> Any:
        """Return the largest true positive rate at the false positive rate ``fpr`` in [0, 1]."""
        return as_scalar(1.0 - self.tradeoff(fpr))

    def advantage(self) -> float:
        """Return the largest true minus false positive rate: the total variation distance."""
        return float(self.delta(0.0))

    def bayes_risk(self, prior: ArrayLike = 0.5) -> Any:
        """Return the least error probability if the record is present with probability ``prior``.

        The prior is in (0, 1); without the release the probability is min(prior, 1 - prior).
        """
        chance = check_reals("prior", prior)
        if not np.all((chance > 0.0) & (chance < 1.0)):
            raise ValueError(f"prior must lie in (0, 1), got {prior!r}")
        return as_scalar(chance * (1.0 - np.asarray(self.delta(-special.logit(chance)))))

    def plot(self, ax: Axes | None = None, *, delta: float = 1e-5) -> Axes:
        """Draw the trade-off curve and, dashed, that of Gaussian noise of equal (epsilon, delta).

        Parameters
        ----------
        ax : Axes, optional
            By default those of a new figure.
        delta : float, default=1e-5
            The marked point is where the curve touches the line of this delta and its epsilon.

        Examples
        --------
        >>> ax = PrivacyCurve(mu=1.0).plot(delta=1e-3)
        >>> ax.get_xlabel()
        'false positive rate'
        """
        from ...plotting import drawing

        delta = check_fraction("delta", delta)
        with drawing(ax, height=3.5) as ax:
            self._draw(ax, delta)
        return ax

    def _draw(self, ax: Axes, delta: float) -> None:
        at = np.concatenate([[0.0], np.geomspace(1e-6, 0.05, 150), np.linspace(0.05, 1.0, 200)[1:]])
        ax.plot(at, self.tradeoff(at), label="this release")
        ax.plot([0.0, 1.0], [1.0, 0.0], color="0.7", linewidth=0.8, label="guessing")
        loss = self.epsilon(delta)
        if 0.0 < loss < math.inf:
            label = f"epsilon = {loss:.3g}, delta = {delta:.3g}"
            mu = _mu_of(loss, delta)
            same = PrivacyCurve(mu=mu)
            ax.plot(at, same.tradeoff(at), "--", label=f"Gaussian, mu = {mu:.3g}")
            touch = self._tangent_alpha(loss)
            ax.plot(touch, self.tradeoff(touch), "o", label=label)
        ax.set(xlabel="false positive rate", ylabel="false negative rate", aspect="equal")
        ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0))  # not on the curves

    def _tangent_alpha(self, loss: float) -> float:
        """Return the alpha at which the curve has the slope ``-e^loss``."""
        if self.mu:
            return float(special.ndtr(-loss / self.mu - 0.5 * self.mu))
        x = self._places
        right = min(max(int(np.searchsorted(x, math.exp(loss))), 1), x.size - 1)
        fall = self._heights[right - 1] - self._heights[right]
        return float(np.clip(fall / (x[right] - x[right - 1]), 0.0, 1.0))


def _mu_of(loss: float, delta: float) -> float:
    """Return the mu for which the profile of Gaussian noise at ``loss`` equals ``delta``."""
    from scipy import optimize  # heavy, hence not at the top

    def excess(log_mu: float) -> float:
        return math.log(max(float(gaussian_divergence(math.exp(log_mu), loss)), 1e-300) / delta)

    return math.exp(float(optimize.brentq(excess, -25.0, math.log(100.0 + 10.0 * loss))))


def _hull(losses: Array, deltas: Array) -> tuple[Array, Array]:
    """Return the lower convex hull of the bounds on H, over x = e^epsilon in [0, largest]."""
    # It is that of the known points, their mirror images, H(0) = 1 and H(1) <= 1.
    x, back = np.exp(losses), np.exp(-losses)
    mirrored = -np.expm1(-losses) + back * deltas
    places = np.concatenate([[0.0, 1.0], back, x])
    heights = np.concatenate([[1.0, 1.0], mirrored, deltas])
    order = np.lexsort((heights, places))
    kept: list[int] = []
    for each in order.tolist():
        px, py = places[each], heights[each]
        if kept and (px == places[kept[-1]] or py >= heights[kept[-1]]):
            continue  # H does not increase
        while len(kept) > 1:
            (ax, ay), (bx, by) = ((places[k], heights[k]) for k in kept[-2:])
            if (by - ay) * (px - bx) < (py - by) * (bx - ax):
                break
            kept.pop()
        kept.append(each)
    return places[kept], heights[kept]


def curve_of_epsilons(epsilon_at: Callable[[float], float]) -> PrivacyCurve:
    """Return the curve of a release whose epsilon is known at every delta."""
    deltas = np.concatenate([[0.0], _DELTAS])
    epsilons = np.array([epsilon_at(float(delta)) for delta in deltas])
    known = np.isfinite(epsilons)
    return PrivacyCurve(epsilons[known], deltas[known])


def privacy_curve(events: Events, relation: str) -> PrivacyCurve:
    """Return the privacy curve of all events together: bounds on an attacker at all error rates.

    It is computed from the loss distributions of the events, in both directions, and in closed
    form for Gaussian noise without sampling. Where an event has no loss distribution (for example
    the sparse vector technique), the curve is the envelope of the points (epsilon, delta) of the
    pure, zCDP and Renyi accountants, which is valid but less tight.

    Parameters
    ----------
    events : Event or iterable of Event
        Fixed beforehand, as for :func:`dpanalysis.privacy.epsilon`.
    relation : {"replace_one", "add_or_remove_one"}

    Returns
    -------
    PrivacyCurve
        With ``epsilon(delta)``, ``delta(epsilon)``, ``tradeoff(alpha)``, ``advantage()``,
        ``true_positive_rate(fpr)``, ``bayes_risk(prior)`` and ``plot()``: proven bounds.

    Raises
    ------
    IncompatibleAccounting
        If a sampling scheme is not valid for the relation.

    References
    ----------
    Dong, Roth, Su (2022), Gaussian differential privacy.

    Examples
    --------
    >>> from dpanalysis import privacy
    >>> step = privacy.events.Sampled(
    ...     privacy.Poisson(0.01), [privacy.events.Gaussian(std=1.0, sensitivity=1.0)]
    ... )
    >>> curve = privacy.privacy_curve(privacy.events.Repeated(step, 1000), "add_or_remove_one")
    >>> round(curve.epsilon(1e-5), 2), round(curve.true_positive_rate(0.01), 3)
    (1.83, 0.029)
    """
    kept = listed(events)
    groups = group(kept, relation)
    terms = counted_gaussian_terms(groups.items())
    if terms is not None and terms[0].size == 1 and terms[1][0] == 1.0 and terms[2] == 0.0:
        return PrivacyCurve(mu=float(terms[0][0]))
    if not groups or terms is not None or not has_profiles(groups):
        return curve_of_epsilons(lambda delta: epsilon(kept, delta, relation))
    return PrivacyCurve(*_points(groups))


def _points(groups: Groups) -> tuple[Array, Array]:
    """Return points (loss, delta) by loss distributions in both directions and by accountants."""
    pairs = pairs_of(groups)
    losses: list[Array] = []
    deltas: list[Array] = []
    if pairs:
        tail = max(1e-6 * _SMALLEST / sum(pairs.values()), 1e-290)
        wanted, span = _cell_width(pairs, tail)
        width = max(wanted, span / _MOST_CELLS)
        both = any(pair.poisson and pair.fraction < 1.0 for pair in pairs)
        ways = [
            _compose(pairs, width, tail, way, 1e-6 * _SMALLEST) for way in (False, True)[: 1 + both]
        ]
        last = max(first + p.size - 1 for first, p, _ in ways)
        cells = np.unique(np.linspace(0, max(last, 1), _MOST_POINTS).astype(np.int64))
        cells = cells[width * cells <= _LARGEST_LOSS]
        losses.append(width * cells)
        deltas.append(np.max([_profile(*way, width, cells) for way in ways], axis=0))
    names = {*_applicable(groups, _SMALLEST)} - {"pld"}
    if any(isinstance(event, Sampled | Epoch) for event in groups):
        names -= {"rdp"}  # slow, and never better
    for name in sorted(names):
        at = np.zeros(1) if name == "pure" else _DELTAS
        losses.append(np.array([_epsilon_by(name, groups, float(delta)) for delta in at]))
        deltas.append(at)
    return np.concatenate(losses), np.concatenate(deltas)


def _profile(
    first: int, probabilities: Array, infinite: float, width: float, cells: Iterable[int]
) -> Array:
    """Return the hockey-stick divergence of a composed loss at ``width`` times the cells >= 0."""
    places = np.asarray(cells) - first
    # Losses < 0 are left out, lest e^-loss overflow; cells off the support are clipped to it.
    held = np.arange(max(0, -first), probabilities.size)
    part = probabilities[held[0] :] if held.size else np.zeros(0)
    above = np.append(np.cumsum(part[::-1])[::-1], 0.0)
    tilted = part * np.exp(-width * (first + held))
    below = np.append(np.cumsum(tilted[::-1])[::-1], 0.0)
    at = np.clip(places - (held[0] if held.size else 0), 0, part.size)
    inside = above[at] - np.exp(width * np.asarray(cells)) * below[at]
    return np.clip(np.maximum(inside, 0.0) + infinite, 0.0, 1.0)
