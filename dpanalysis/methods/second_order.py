"""Noisy steps along gradients and negative curvature: Gao and Wright (2023), Algorithms 1 to 3."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, replace

import numpy as np

from .. import theory
from .._validation import check_choice, check_number
from ..privacy.facts import PublicFacts
from ..privacy.oracle import PrivateOracle
from ..privacy.queries import FirstDecrease, NoisyCurvature, Ray, decrease_sensitivity
from ..privacy.relations import Budget
from ..privacy.sampling import Full
from ..theory.second_order_data import check_shares
from .base import Step
from .curvature import CurvatureMethod, Noise, Outlook, Questions, check_facts, check_memory

__all__ = ["SecondOrder"]


@dataclass(frozen=True, repr=False)
class SecondOrder(CurvatureMethod):
    r"""Descent to a point with a small gradient and almost no negative curvature.

    In each iteration a noisy gradient g is released. Where it is longer than eps_g a step is made
    along it; otherwise the smallest eigenvalue of a noisy Hessian and its vector p (with
    <p, g> <= 0) are, and a step along p where it is below -eps_H. Where it is not, the point is
    an (eps_g, eps_H)-2NS for what was released, and the run ends with
    ``released["second_order_point"] = 1``; the true gradient and curvature are then within
    (1 + c1) eps_g and (1 + c) eps_H, if the noise was small.

    Parameters
    ----------
    eps_g, eps_H : float
        Tolerances, positive.
    step : {"short", "line_search"}
        Steps 1/G and 2 lambda/M; or those that a private backtracking search finds, which starts
        at ``b_g`` times :math:`2(1 - c_1 - c_g)/G`, or at ``b_H`` times :math:`t_2\lambda/M`, and
        falls back to these.
    two_phase : bool
        Spend ``first_share`` of the budget on T/``speedup`` iterations; if they find no point,
        start from where they ended with what is left.
    hessian : {"full", "lanczos"}
        Form the noisy Hessian; or multiply by it only, see
        :class:`~dpanalysis.privacy.queries.NoisyCurvature`. Steps are then made where the
        eigenvalue found is below -eps_H/2.
    sampling : Full or WithoutReplacement
        Batches for short steps only; each gradient and Hessian has a batch of its own.
    shares : theory.Shares, optional
        Shares of the tolerances that the noise may take: c1 < 1/2, c + c2 < 1/3 for short steps;
        c1 < 1, c + sqrt(8 c2/3) < 1 for the line search, which also has the sufficient decrease
        c_g in (0, 1 - c1) and c_H in (0, 1 - c - sqrt(8 c2/3)). By default those with which
        the tolerances need the fewest records, see below; a run has them as ``plan.shares``.
    b_g, b_H, beta_g, beta_H : float
        The search starts at b > 1 times its fallback, and backtracks by beta in (0, 1).
    first_share, speedup : float
        Of ``two_phase``: in (0, 1), and above 1.
    failure, lower_bound, start_share
        See :class:`~dpanalysis.methods.curvature.CurvatureMethod`.

    Raises
    ------
    ValueError
        If an argument is outside its range; the message gives it with the others put in.

    Notes
    -----
    The noise is that for the worst case, T = floor((f(w0) - lower_bound)/MIN_DEC) + 1 iterations
    that ask for everything. The paper reports a cost by the steps that were made, which is no
    guarantee (errata 003-3); here the filter grants what the budget says. f(0) is public; from
    another start T follows from a noisy value with a fixed margin (errata 003-4). Noise of the
    Hessian is for its true sensitivity (errata 003-1, 003-2). Searches ask for q(gamma)/gamma
    (errata 003-7), and never at the fallback, where they end anyway.

    The paper's proof for batches amplifies gradient and Hessian of one batch one by one, which
    needs a batch for each (errata 003-19). A run on batches is fixed beforehand but for the kind
    of the next answer, so loss distributions account for it:
    :mod:`dpanalysis.methods.curvature_noise` has the proof. T is that for a start at 0, which is
    enough wherever f(w0) <= f(0), and the second of two phases makes what the first left of T.

    The paper leaves the shares open. Those of :func:`dpanalysis.theory.best_shares` follow from
    what is public, and not from the budget: n_min is proportional to :math:`\rho^{-1/2}`. The
    tolerances stay, so that a larger c1 or c allows the true gradient or curvature of the answer
    to be larger, too. They are best for full batches; on small ones they need fewer records than
    shares of .1, .25 and .1 do, and nothing says that they are best.

    ``speedup`` is not in the paper, which says only "a smaller T".

    References
    ----------
    Gao and Wright (2023), Algorithms 1 to 3 and Sections 3.3, 3.4.

    Examples
    --------
    >>> import numpy as np
    >>> import dpanalysis as dpa
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(20_000, 3))
    >>> y = np.where(X @ [1.0, -2.0, 0.5] > 0, 1, -1)
    >>> penalty = dpa.regularizers.GemanMcClure(0.001)
    >>> problem = dpa.ERM(X, y, dpa.losses.Logistic(), penalty, dpa.RowBound(2, 1.0, "clip"))
    >>> method = dpa.methods.SecondOrder(eps_g=0.12, eps_H=0.4)
    >>> result = dpa.minimize(problem, method, dpa.Budget(2.0, delta=1e-6), rng=0)
    >>> result.iterations, float(result.history["second_order_point"][-1, 0])
    (4, 1.0)
    >>> round(result.plan.shares.c1, 2)
    0.32
    """

    _: KW_ONLY
    step: str = "short"
    two_phase: bool = False
    hessian: str = "full"
    shares: theory.Shares | None = None
    b_g: float = 10.0
    b_H: float = 10.0
    beta_g: float = 0.5
    beta_H: float = 0.5
    first_share: float = 0.75
    speedup: float = 10.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("step", self.step, ("short", "line_search"))
        check_choice("hessian", self.hessian, ("full", "lanczos"))
        for name in ("b_g", "b_H", "speedup"):
            check_number(name, getattr(self, name), low=1.0, low_open=True)
        for name in ("beta_g", "beta_H", "first_share"):
            check_number(
                name, getattr(self, name), low=0.0, high=1.0, low_open=True, high_open=True
            )
        if not isinstance(self.two_phase, bool):
            raise TypeError(f"two_phase must be True or False, got {self.two_phase!r}")
        if self._searches and not isinstance(self.sampling, Full):
            raise ValueError(
                f"sampling must be Full() with step='line_search', got {self.sampling!r}: a "
                "decrease on a batch says nothing of the objective"
            )
        if self.shares is not None:
            check_shares(self.shares)
            if (self.shares.c_g is None) == self._searches:
                raise ValueError(
                    "shares must have c_g and c_H with step='line_search', and not with "
                    f"step='short', got {self.shares!r}"
                )
            self._decrease(1.0, 1.0)

    @property
    def _searches(self) -> bool:
        return self.step == "line_search"

    @property
    def _curvature(self) -> float:
        """How negative an eigenvalue must be for a step: Lanczos may miss by eps_H/2."""
        return self.eps_H * (0.5 if self.hessian == "lanczos" else 1.0)

    def _decrease(self, G: float, M: float) -> float:
        c, c1, c2, c_g, c_H = self._shares
        given = (self.eps_g, self._curvature, G, M, c, c1, c2)
        if c_g is not None and c_H is not None:
            return theory.min_decrease_line_search(*given, c_g, c_H)
        return theory.min_decrease_short(*given)

    @property
    def _shares(self) -> theory.Shares:
        """The shares, once they are chosen."""
        assert self.shares is not None
        return self.shares

    def _best_shares(self, facts: PublicFacts) -> theory.Shares:
        """Return the shares with which a run on all records needs the fewest of them."""
        check_facts(facts)
        assert facts.value_at_zero is not None
        multiple, backtrack = max(
            (self.b_g, self.beta_g),
            (self.b_H, self.beta_H),
            key=lambda given: len(_lengths(1.0, *given)),
        )
        target = theory.SecondOrderTarget(
            self.eps_g,
            self._curvature,
            theory.SecondOrderConstants(
                facts.L, facts.hessian_lipschitz, facts.gradient_bounds[1], facts.hessian_bound
            ),
            facts.d,
            1.0,  # of rho the shares do not depend
            max(facts.value_at_zero - self.lower_bound, 0.0),
            self.failure,
            convex=facts.convex_records,
            multiple=multiple,
            backtrack=backtrack,
        )
        return theory.best_shares(target, self.step)

    def prepare(self, facts: PublicFacts, budget: Budget | None, accountant: str) -> Outlook:
        """Return the shares, and the horizon and the noise for a start at 0.

        As :meth:`CurvatureMethod.prepare`, which says what is refused and when a warning comes.
        """
        shares = self.shares or self._best_shares(facts)
        outlook = CurvatureMethod.prepare(replace(self, shares=shares), facts, budget, accountant)
        return replace(outlook, shares=shares)

    def _least_decrease(self, facts: PublicFacts) -> float:
        if self.hessian == "full":
            most = theory.lanczos_iterations(facts.d, facts.L, self.eps_H, self.failure)
            check_memory(
                facts.d,
                f": hessian='lanczos' holds some {most} vectors of d numbers, "
                f"{most * facts.d * 8 / 2**30:.3g} GiB",
            )
        return self._decrease(facts.L, facts.hessian_lipschitz)

    def _tolerated(self, facts: PublicFacts) -> tuple[float, float]:
        return theory.tolerated_noise(
            self.eps_g, self._curvature, facts.hessian_lipschitz, *self._shares[:3]
        )

    def _asked(self, iterations: int) -> Mapping[str, int]:
        searches = {"search": iterations} if self._searches else {}
        return {**super()._asked(iterations), **searches}

    def _phases(self, iterations: int) -> list[tuple[int, float]]:
        """Return T/speedup iterations at the first share, and T, or on batches the rest of T.

        With as much data as the guarantee asks for, every step of the first phase decreases f by
        MIN_DEC: the noise of both phases is within its tolerance then. So the rest of T is enough.
        """
        first = math.ceil(iterations / self.speedup)
        full = isinstance(self.sampling, Full)
        rest = iterations if full else iterations - first
        if not self.two_phase or not rest:
            return [(iterations, 1.0)]
        return [(first, self.first_share), (rest, 1.0 - self.first_share)]

    def _search_slack(self, facts: PublicFacts, noise: Noise, failure: float) -> float:
        """(16), sharpened; without the factors b: noise of q/gamma does not grow with gamma."""
        if not self._searches:
            return 0.0
        tries = max(
            len(_lengths(1.0, self.b_g, self.beta_g)), len(_lengths(1.0, self.b_H, self.beta_H))
        )
        c, _, c2, c_g, c_H = self._shares
        assert c_g is not None and c_H is not None
        _, t2 = theory.curvature_roots(c, c2, c_H)
        worst = max(
            1.0 / (c_g * self.eps_g),
            2.0 * facts.hessian_lipschitz / (t2 * c_H * self._curvature**2),
        )
        unit = decrease_sensitivity(facts, self.sampling, facts.gradient_bounds[1])
        return 2.0 * noise.search * theory.search_slack(tries, failure) * unit * worst

    # The run

    def run(self, w: np.ndarray, oracle: PrivateOracle, plan: Outlook) -> Iterator[Step]:
        """Yield the iterates of Algorithm 1 or 3; the last is a point found, or none was."""
        method = replace(self, shares=plan.shares)
        questions = Questions(method, oracle, plan)
        for phase in range(questions.phases()):
            iterations, noise = questions.phase(phase, w)
            for _ in range(iterations):
                w, released = method._iterate(w, questions, noise)
                yield Step(w, {**released, "phase": float(phase + 1)})
                if released["second_order_point"]:
                    return

    def _iterate(
        self, w: np.ndarray, questions: Questions, noise: Noise
    ) -> tuple[np.ndarray, dict[str, float]]:
        g = questions.gradient(w, noise)
        length, eigenvalue, step = float(np.linalg.norm(g)), math.nan, 0.0
        found = False
        if length > self.eps_g:
            step = self._gradient_step(w, g, questions, noise)
            w = w - step * g
        else:
            eigenvalue, p = self._smallest(w, questions, noise)
            found = eigenvalue >= -self._curvature
            if not found:
                p = -p if float(p @ g) > 0.0 else p
                step = self._curvature_step(w, p, -eigenvalue, questions, noise)
                w = w + step * p
        return w, {
            "second_order_point": float(found),
            "gradient_norm_noisy": length,
            "smallest_eigenvalue": eigenvalue,
            "step_size": step,
            "gradients": float(questions.gradients),
            "hessians": float(questions.hessians),
        }

    def _smallest(
        self, w: np.ndarray, questions: Questions, noise: Noise
    ) -> tuple[float, np.ndarray]:
        """Return the smallest eigenvalue of the noisy Hessian, and its vector."""
        if self.hessian == "full":
            return smallest_eigenpair(questions.hessian(w, noise))
        facts = questions.facts
        questions.hessians += 1
        failure = self.failure / questions.iterations
        U = facts.L + theory.hessian_noise_norm(facts.d, noise.hessian, failure)
        steps = theory.lanczos_iterations(facts.d, U, self.eps_H, failure)
        return questions.ask(NoisyCurvature(w, noise.hessian, steps), self.sampling)

    def _gradient_step(
        self, w: np.ndarray, g: np.ndarray, questions: Questions, noise: Noise
    ) -> float:
        if not self._searches:
            return 1.0 / questions.facts.L
        c_g = self._shares.c_g
        assert c_g is not None
        fallback = 2.0 * (1.0 - self._shares.c1 - c_g) / questions.facts.L
        steps = _lengths(fallback, self.b_g, self.beta_g)
        ray = Ray(w, g, steps)
        return self._search(ray, c_g * float(g @ g) * steps, fallback, questions, noise)

    def _curvature_step(
        self, w: np.ndarray, p: np.ndarray, depth: float, questions: Questions, noise: Noise
    ) -> float:
        M = questions.facts.hessian_lipschitz
        if not self._searches:
            return 2.0 * depth / M
        c, _, c2, _, c_H = self._shares
        assert c_H is not None
        fallback = theory.curvature_roots(c, c2, c_H)[1] * depth / M
        steps = _lengths(fallback, self.b_H, self.beta_H)
        ray = Ray(w, -p, steps)
        return self._search(ray, 0.5 * c_H * depth * steps**2, fallback, questions, noise)

    def _search(
        self, ray: Ray, required: np.ndarray, fallback: float, questions: Questions, noise: Noise
    ) -> float:
        """Return the step of Algorithm 2: the first that decreases f enough, or the fallback."""
        clip = questions.facts.gradient_bounds[1] * float(np.linalg.norm(ray.direction))
        unit = decrease_sensitivity(questions.facts, self.sampling, clip) * noise.search
        query = FirstDecrease(
            ray, required, clip, "laplace", 2.0 * unit, 4.0 * unit, query="slope_clip"
        )
        found = questions.ask(query, self.sampling)
        return fallback if found is None else float(ray.step_sizes[found])


def smallest_eigenpair(matrix: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the smallest eigenvalue of a symmetric matrix and its vector, of norm 1."""
    from scipy import linalg  # here: it takes its time

    values, vectors = linalg.eigh(matrix, subset_by_index=[0, 0])
    return float(values[0]), vectors[:, 0]


def _lengths(fallback: float, multiple: float, factor: float) -> np.ndarray:
    """Return multiple, multiple factor, ... times the fallback, as long as they are above it.

    Examples
    --------
    >>> _lengths(2.0, 8.0, 0.5)
    array([16.,  8.,  4.])
    """
    count = math.ceil(math.log(1.0 / multiple) / math.log(factor) - 1e-9)
    return fallback * multiple * factor ** np.arange(max(count, 1))
