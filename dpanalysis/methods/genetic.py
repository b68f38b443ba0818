"""Private model fitting by a genetic algorithm: PrivGene, a baseline of Chen and Lee (2020)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from .._validation import check_int, check_number, check_positive
from ..privacy.accounting.accountant import calibrate
from ..privacy.accounting.relations import Budget
from ..privacy.events import BoundedRange, Event, Repeated
from ..privacy.facts import PublicFacts
from ..privacy.oracle import PrivateOracle
from ..privacy.queries import NoisyMin, decrease_sensitivity
from .base import Method, Step, require_records


@dataclass(frozen=True, repr=False, kw_only=True)
class GeneticSearch(Method):
    r"""PrivGene: a genetic algorithm that selects points by the exponential mechanism.

    The initial population is random around w_0. Each generation selects ``parents`` points of small
    clamped loss by as many successive exponential mechanisms; they survive, and their children
    replace the rest of the population. A child takes each coordinate from one of two parents, and
    some coordinates mutate, by amounts that shrink each generation. The last releases one point.

    Only indices of public points are released: no gradient is needed, and the noise does not
    grow with the dimension. But a few generations search high dimensions poorly.

    Parameters
    ----------
    clip_loss : float
        C in (0, inf): the fitness of a point is its mean loss, clamped to [0, C] per record. A C
        below the losses of confident mistakes rewards confidence: with C = 1 the result on Adult
        predicts the majority class.
    population, parents : int
        K points, of which 1 <= parents < K are released.
    generations : int
        At least 1.
    radius : float
        Each coordinate of the first points is uniform in w_0 +- radius; positive.
    mutation, shrink : float
        Mutations are uniform in +- mutation (>= 0), multiplied by shrink in (0, 1] each generation.
    mutated : int, optional
        Expected number of mutated coordinates of a child; all of them by default.

    Notes
    -----
    N = parents (generations - 1) + 1 selections of equal cost epsilon' share the budget. A pure
    budget is divided by N; if delta > 0 a selection costs :math:`\epsilon'^2/8`-zCDP, as its
    privacy loss has *bounded range* (:class:`dpanalysis.privacy.queries.NoisyMin`), so that many
    selections cost far less. For the same reason the noise is half of the exponential mechanism's
    usual noise.

    Children come from uniform crossover and uniform mutation, the simplest operators.

    References
    ----------
    Zhang, Xiao, Yang, Zhang, Winslett, PrivGene: differentially private model fitting using
    genetic algorithms, SIGMOD 2013.

    Examples
    --------
    >>> import numpy as np
    >>> import dpanalysis as dpa
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(5000, 3))
    >>> problem = dpa.ERM(X, np.sign(X @ [1.0, -2.0, 0.5]), dpa.losses.Logistic())
    >>> method = dpa.methods.GeneticSearch(population=50, parents=5, radius=3.0)
    >>> result = dpa.minimize(problem, method, dpa.Budget(1.0), rng=0)
    >>> result.epsilon(), result.iterations, bool(problem.accuracy(result.w)[0] > 0.9)
    (1.0, 8, True)
    """

    clip_loss: float = 3.0
    population: int = 200
    parents: int = 10
    generations: int = 8
    radius: float = 1.0
    mutation: float = 0.5
    shrink: float = 0.9
    mutated: int | None = None

    released: ClassVar[tuple[str, ...]] = ("the points chosen in every generation",)
    needs: ClassVar[tuple[str, ...]] = ("line_losses",)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("clip_loss", "radius"):
            check_positive(name, getattr(self, name))
        check_number("mutation", self.mutation, low=0.0)
        check_number("shrink", self.shrink, low=0.0, high=1.0, low_open=True)
        check_int("population", self.population, low=2)
        check_int("parents", self.parents, low=1, high=self.population - 1)
        check_int("generations", self.generations, low=1)
        if self.mutated is not None:
            check_int("mutated", self.mutated, low=1)

    def prepare(self, facts: PublicFacts, budget: Budget | None, accountant: str) -> float:
        """Return the scale of the noise; 0 without a budget."""
        require_records(facts, "GeneticSearch clamps the loss of each")
        if budget is None:
            return 0.0
        choices = self.parents * (self.generations - 1) + 1
        scale = calibrate(
            lambda scale: Repeated(BoundedRange(1.0 / scale), choices),
            budget,
            (1e-3, 1e9),
            accountant=accountant,
        )
        return scale * decrease_sensitivity(facts, self.sampling, self.clip_loss)

    def events(self, facts: PublicFacts, plan: float) -> list[Event]:
        """Return the events of all generations."""
        nowhere = np.zeros((self.population, facts.d))
        counts = [self.parents] * (self.generations - 1) + [1]
        events = [self._query(nowhere, plan, k).event(facts, self.sampling) for k in counts]
        return [event for event in events if event is not None]

    def run(self, w: np.ndarray, oracle: PrivateOracle, plan: float) -> Iterator[Step]:
        """Yield the first selected point of each generation."""
        random, mutation = oracle.public_random(), self.mutation
        points = w + self.radius * _uniform(random, (self.population, len(w)))
        points[0] = w
        for generation in range(1, self.generations + 1):
            last = generation == self.generations
            query = self._query(points, plan, 1 if last else self.parents)
            chosen = points[np.atleast_1d(oracle.ask(query, self.sampling))]
            yield Step(chosen[0])
            points = np.concatenate([chosen, self._children(chosen, mutation, random)])
            mutation *= self.shrink

    def _query(self, points: np.ndarray, scale: float, count: int) -> NoisyMin:
        return NoisyMin(points, self.clip_loss, scale, count=count)

    def _children(self, parents: np.ndarray, mutation: float, random: Any) -> np.ndarray:
        shape = (self.population - len(parents), parents.shape[1])
        first, second = (parents[random.integers(len(parents), size=shape[0])] for _ in range(2))
        children = np.where(random.random(shape) < 0.5, first, second)
        mutates = random.random(shape) < (1.0 if self.mutated is None else self.mutated / shape[1])
        return children + mutation * mutates * _uniform(random, shape)


def _uniform(random: Any, shape: tuple[int, int]) -> np.ndarray:
    """Return uniform numbers in [-1, 1)."""
    return np.asarray(2.0 * random.random(shape) - 1.0)
