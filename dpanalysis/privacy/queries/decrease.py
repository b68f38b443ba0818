"""The query of a line search: where along a ray the objective has decreased enough."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._validation import check_choice, check_finite, check_number
from .. import mechanisms
from ..events import AboveThreshold
from ..sampling import Sampling
from .base import Query, Ray, Records

if TYPE_CHECKING:
    from ..facts import PublicFacts

__all__ = ["FirstDecrease", "decrease_sensitivity"]


@dataclass(frozen=True, eq=False)
class FirstDecrease(Query):
    r"""The first step size that decreases the objective enough.

    AboveThreshold at 0 of the queries

    .. math:: q_k = \frac1B \sum_{i \in \text{batch}} [f_i(w) - f_i(w - \eta_k g)]
              + r(w) - r(w - \eta_k g) - c_k

    with the public penalty r outside the clip and the public batch size B (errata 002-6,
    002-9). A clip at C bounds what one record can do:

    - ``query="loss_clip"``, as in the paper, clips every loss to [0, C]. All queries share f(w)
      then, and so cost less (errata 002-1).
    - ``query="difference_clip"`` clips every decrease to [-C, C]. It still sees the decrease of a
      record whose losses are above C.
    - ``query="slope_clip"`` clips every decrease per unit of step. The queries are
      :math:`q_k/\eta_k`, which have the signs of the :math:`q_k`.

    A C that is the Lipschitz constant of
    the records' losses times ||g|| clips nothing, and short steps are tried with the same noise as
    long ones (errata 003-7).

    Parameters
    ----------
    points : Ray
        w, the direction g, a private gradient that has been released, and the candidates eta_k
        in the order in which they are tried.
    required : ndarray of shape (K,)
        The decrease c_k wanted at each.
    clip : float
        C in (0, inf).
    noise : {"laplace", "gaussian"}
    threshold_scale, query_scale : float
        Laplace scales or standard deviations in units of the query; both 0 answer exactly.
    query : {"loss_clip", "difference_clip", "slope_clip"}

    Raises
    ------
    ValueError
        If an argument is outside its range.

    References
    ----------
    Chen and Lee (2020), Algorithm 1.
    """

    points: Ray
    required: np.ndarray
    clip: float
    noise: str
    threshold_scale: float
    query_scale: float
    query: str = "loss_clip"

    def __post_init__(self) -> None:
        check_number("clip", self.clip, low=0.0, low_open=True)
        check_choice("noise", self.noise, ("laplace", "gaussian"))
        check_choice("query", self.query, ("loss_clip", "difference_clip", "slope_clip"))
        exact = self.threshold_scale == 0.0 and self.query_scale == 0.0
        for name in ("threshold_scale", "query_scale"):
            check_number(name, getattr(self, name), low=0.0, low_open=not exact)
        for part in self.points:
            check_finite("points", np.asarray(part))
        sizes = np.shape(self.points.step_sizes)
        if np.shape(check_finite("required", np.asarray(self.required))) != sizes or not sizes[0]:
            raise ValueError(
                "required must hold one number a step size, got shapes "
                f"{np.shape(self.required)} and {sizes}"
            )

    def event(self, facts: PublicFacts, sampling: Sampling) -> AboveThreshold | None:
        """Return the cost of AboveThreshold; see :func:`decrease_sensitivity`."""
        if self.threshold_scale == 0.0 or not facts.has_records:
            return None
        return AboveThreshold(
            self.noise,
            self.threshold_scale,
            self.query_scale,
            decrease_sensitivity(facts, sampling, self.clip),
            len(self.required),
            shared=self.query == "loss_clip",
        )

    def iterates(self) -> tuple[np.ndarray, ...]:
        """Return the ends of the ray."""
        return self.points.ends()

    def answer(self, records: Records, random: Any) -> tuple[int | None, int]:
        """Return the index of the step size, None if there was none, and the evaluations."""
        threshold = mechanisms.Threshold(random, self.noise, self.threshold_scale, self.query_scale)
        w, direction, step_sizes = self.points
        losses = records.problem.along(w, direction, records.rows)
        penalty = records.problem.regularizer
        start = clip_losses(losses(0.0), self.clip) if self.query == "loss_clip" else losses(0.0)
        for k, (step, required) in enumerate(zip(step_sizes, self.required)):
            after = losses(float(step))
            unit = float(step) if self.query == "slope_clip" else 1.0
            if self.query == "loss_clip":
                decrease = float(np.sum(start) - np.sum(clip_losses(after, self.clip)))
            else:
                decrease = float(np.sum(_clip(start - after, -unit * self.clip, unit * self.clip)))
            wanted = float(required)
            if penalty is not None:
                wanted -= penalty.value(w) - penalty.value(w - step * direction)
            if threshold.reached(decrease / records.size / unit, wanted / unit):
                return k, k + 2
        return None, len(step_sizes) + 1


def decrease_sensitivity(facts: PublicFacts, sampling: Sampling, clip: float) -> float:
    """Return how far one record moves a mean decrease of losses clipped at ``clip``.

    By at most C over the batch size; by twice that under replace-one, where f(w) moves by what
    lies in [-C, C], and so does every f(w - eta_k g); likewise a clipped decrease. It is also
    the length of the interval in which clamped mean losses at any points move.

    Parameters
    ----------
    facts : PublicFacts
    sampling : Sampling
    clip : float
        C, positive.

    Returns
    -------
    float
    """
    return facts.moved(clip) / sampling.expected_size(facts.n)


def clip_losses(losses: np.ndarray, clip: float) -> np.ndarray:
    """Clamp losses to [0, clip]."""
    return _clip(losses, 0.0, clip)


def _clip(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """Clip; a record whose loss is not a number counts as 0, or it would give itself away."""
    return np.clip(np.nan_to_num(values, nan=0.0, posinf=high, neginf=low), low, high)
