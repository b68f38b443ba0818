"""Noisy gradient descent that releases only its last iterate."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar

import numpy as np

from .._validation import check_int
from ..privacy.accounting.relations import Budget
from ..privacy.accounting.sampling import Full
from ..privacy.facts import PublicFacts
from ..privacy.oracle import PrivateOracle
from ..privacy.queries import LastNoisyIterate
from .accelerated import GradientDescent
from .base import Step, check_gaussian_budget
from .perturbation import OneShot, smallest_scale


@dataclass(frozen=True, repr=False)
class LastIterate(OneShot):
    r"""Noisy gradient descent that releases only its last iterate.

    Every step contracts, and the noise of later steps masks what an earlier step would reveal.
    With a constant step size and the same Gaussian noise in every step, the whole run is mu-GDP
    with mu of :func:`dpanalysis.privacy.last_iterate_gdp`: bounded in the number of steps, if the
    penalty is strongly convex.

    Parameters
    ----------
    method : GradientDescent
        With ``mechanism="gaussian"``, full batches, and the same noise in every step. ``clipping``
        may be :class:`~dpanalysis.clipping.Flat`, :class:`~dpanalysis.clipping.Automatic` or
        :class:`~dpanalysis.clipping.PerSampleAdaptive` for an :class:`~dpanalysis.ERM`.
    batches : int
        Above 1: the steps cycle through this many public batches; the i-th record is in batch
        i mod ``batches``. Requires the relation replace_one, and ``iterations`` must be a multiple.
        The noise is that on the mean gradient of one batch.

    Raises
    ------
    ValueError
        If an assumption fails: in the constructor for momentum, Laplace noise, random batches,
        noise that varies between steps, or ``choose_iterations``. In :func:`dpanalysis.minimize`,
        before anything is charged, if a record's loss is not convex and smooth by public bounds,
        the penalty is not convex, the step size is above 2/M for the largest curvature M, a
        clipping rule is another one, or ``w0`` is far away.

    Notes
    -----
    The proof and its assumptions are in :class:`dpanalysis.privacy.queries.LastNoisyIterate`.

    *What is released.* The run is one query, charged before its first step. So the history has the
    public start and the last iterate only, and a callback is called once, with the last iterate. An
    interrupted run has been charged in full, and releases nothing. The start must be public.

    *When it helps.* On full batches the saving is relative to equal noise with every iterate
    released. Noise allocated for the contraction c, large early, gives the last iterate the same
    variance and mu, and releases every iterate: ``noise="optimal"`` of :class:`GradientDescent`.
    The gain is for batches in a public order: composition charges every pass.

    References
    ----------
    Bok, Su, Altschuler (2024), Shifted interpolation for differential privacy.

    Examples
    --------
    >>> import numpy as np
    >>> import dpanalysis as dpa
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(5000, 3))
    >>> problem = dpa.ERM(X, np.sign(X @ [1.0, -2.0, 0.5]), dpa.losses.Logistic(),
    ...                   dpa.regularizers.L2(0.01), dpa.RowBound(2, 3.0**0.5))
    >>> steps = dpa.methods.GradientDescent(1.0, 1000, mechanism="gaussian")
    >>> budget = dpa.Budget(1.0, delta=1e-6)
    >>> result = dpa.minimize(problem, dpa.methods.LastIterate(steps), budget, rng=0)
    >>> result.epsilon(), bool(problem.accuracy(result.w)[0] > 0.9)
    (1.0, True)

    The same noise with all iterates released:

    >>> each = dpa.methods.GradientDescent(1.0, 1000, noise=np.full(1000, result.plan.std),
    ...                                    mechanism="gaussian")
    >>> dpa.minimize(problem, each, rng=0).epsilon(1e-6)
    2.41
    """

    method: GradientDescent
    _: KW_ONLY
    batches: int = 1
    released: ClassVar[tuple[str, ...]] = ("last iterate",)

    def __post_init__(self) -> None:
        super().__post_init__()
        method = self.method
        if type(method) is not GradientDescent:
            raise ValueError(
                f"method must be GradientDescent, got {method!r}: steps with momentum, or of a "
                "step size that depends on answers, do not contract in general"
            )
        if method.mechanism != "gaussian":
            raise ValueError(
                f"mechanism must be 'gaussian', got {method.mechanism!r}: what later steps hide is "
                "known for Gaussian noise"
            )
        if not isinstance(method.sampling, Full):
            raise ValueError(
                f"sampling must be Full(), got {method.sampling!r}: of batches that are drawn at "
                "random no bound is known here; batches=l takes l public ones in turns"
            )
        if method.choose_iterations is not None:
            raise ValueError(
                "choose_iterations must be None: it weighs iterations by what they cost if every "
                "iterate is released"
            )
        if method.noise != "uniform" and (method.noise == "optimal" or len(set(method.noise)) > 1):
            raise ValueError(
                f"noise must be 'uniform', or the same number for every step, got {method.noise!r}"
            )
        check_int("batches", self.batches, low=1)
        self._query(1, 0.0)  # checks that the iterations are whole passes

    @property
    def clipping(self) -> Any:
        """The clipping rule of ``method``."""
        return self.method.clipping

    def _query(self, d: int, std: float) -> LastNoisyIterate:
        """Return the query from a start of zeros."""
        method = self.method
        return LastNoisyIterate(
            *(np.zeros(d), method.step_size, method.iterations, std, self.batches, method.clipping)
        )

    def prepare(
        self, facts: PublicFacts, budget: Budget | None, accountant: str
    ) -> LastNoisyIterate:
        """Return the query with its calibrated noise."""
        query = self._query(facts.d, 0.0)
        if not isinstance(self.method.noise, str):
            return replace(query, std=float(self.method.noise[0]))
        if budget is None:
            return query
        check_gaussian_budget(budget)
        unit = facts.gradient_sensitivity(self.sampling, 2, self.clipping) * self.batches
        std = smallest_scale(lambda std: replace(query, std=std), unit, facts, budget, accountant)
        return replace(query, std=std)

    def run(self, w: np.ndarray, oracle: PrivateOracle, plan: Any) -> Iterator[Step]:
        """Yield the last iterate of the steps from ``w``."""
        return super().run(w, oracle, replace(plan, start=w))
