"""Checks of a problem: sums over records, their bounds, curvature, and public facts.

Sums over batches are compared with those of single records, and the difference from a neighbouring
data set with the stated sensitivity.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from .. import clipping as rules
from .._devices import to_host
from ..clipping import Clipping
from ..privacy.accounting.relations import ADD_OR_REMOVE_ONE, REPLACE_ONE
from ..privacy.facts import Block, PublicFacts
from ..problems.base import Problem
from ._tools import (
    check_pickle,
    contents,
    fail,
    global_random_untouched,
    quiet,
    require,
    shares_memory,
)

_MOST = 40  # records that are compared one by one
_RELATIONS = (REPLACE_ONE, ADD_OR_REMOVE_ONE)


def _host(array: Any) -> np.ndarray:
    """Return a NumPy array."""
    return np.asarray(to_host(array))


def _compare(found: Any, expected: Any, tolerance: float, sentence: str, size: float = 0.0) -> None:
    """Fail with the sentence unless both agree, relative to their magnitude or ``size``."""
    found, expected = np.asarray(found), np.asarray(expected)
    require(found.shape == expected.shape, f"{sentence}: shapes {found.shape}, {expected.shape}")
    scale = max(float(np.abs(expected).max(initial=0.0)), size, 1e-12)
    off = float(np.abs(found - expected).max(initial=0.0))
    require(off <= tolerance * scale, f"{sentence}: off by {off:.3g}, at numbers up to {scale:.3g}")


class _RecordChecks:
    """Checks of sums over records at several iterates."""

    def __init__(self, problem: Problem, facts: PublicFacts, tolerance: float) -> None:
        self.problem, self.facts, self.tolerance = problem, facts, tolerance
        self.rng = np.random.default_rng(7)
        # Around the public initial point: at zero all units of a network are the same.
        self.start = np.asarray(problem.initial(np.random.default_rng(8)), dtype=float)
        self.W = self.start + self.rng.normal(size=(3, problem.d)) * np.array([[0.1], [0.5], [2.0]])
        self.few = np.unique(np.linspace(0, problem.n - 1, min(problem.n, _MOST)).astype(int))
        self._plain: dict[bytes, np.ndarray] = {}

    @cached_property
    def total(self) -> np.ndarray:
        """The sums over all records (3, d)."""
        return self.sum(self.W)

    def sum(self, W: np.ndarray, rows: Any = None, rule: Any = None) -> np.ndarray:
        """Return gradient_sum on the host, after checking its shape."""
        given = W.copy()
        found = self.problem.gradient_sum(given, rows, rule)
        require(np.array_equal(given, W), "gradient_sum changes the iterates that it is given")
        found = _host(found)
        shape = f"gradient_sum must return shape {W.shape}, got {found.shape}"
        require(found.shape == W.shape, shape)
        return found.copy()

    def singles(self, w: np.ndarray, rule: Any = None) -> np.ndarray:
        """Return the gradients of some records, one by one (k, d)."""
        known = self._plain.get(w.tobytes()) if rule is None else None
        if known is None:
            known = np.stack([self.sum(w[None], [np.array([i])], rule)[0] for i in self.few])
        if rule is None:
            self._plain[w.tobytes()] = known
        return known

    def iterates(self) -> Iterator[np.ndarray]:
        """Yield iterates at all distances, some of them along a record's gradient."""
        yield self.start
        for size in (1e-3, 0.1, 1.0, 10.0, 1e3):
            yield from self.start + size * self.rng.normal(size=(3, self.problem.d))
        for i in self.few[:4]:
            step = self.sum(self.start[None], [np.array([i])])[0]
            length = np.linalg.norm(step) or 1.0
            for size in (1.0, -1.0, 30.0, -30.0):
                yield self.start + size * step / length

    def rules(self) -> list[Clipping]:
        """Return rules that the problem accepts and that clip some of its gradients."""
        typical = float(np.median(np.linalg.norm(self.singles(self.W[1]), axis=1))) or 1.0
        tried: list[Clipping] = [rules.Flat(0.3 * typical), rules.Automatic(0.1, 0.5 * typical)]
        tried += [rules.PerSampleAdaptive(0.1, typical), rules.Value(typical, 10.0 * typical**2)]
        return [rule for rule in tried if self._accepts(rule)]

    def _accepts(self, rule: Clipping) -> bool:
        if self.facts.declared_sensitivity is not None or not self.facts.has_records:
            return False  # the noise is computed from the declared sensitivity, whatever the rule
        try:
            self.problem.check_clipping(rule)
        except (ValueError, TypeError):
            return False
        return True

    def check_sums(self) -> None:
        """Check that a sum over records is the sum of the single records' gradients."""
        problem, W, tolerance = self.problem, self.W, self.tolerance
        _compare(self.sum(W), self.total, 0.0, "gradient_sum gives other numbers the second time")
        every = [np.arange(problem.n)] * 3
        text = "gradient_sum over all rows by their numbers is not that without rows"
        _compare(self.sum(W, every), self.total, tolerance, text, self._size(W[2]))
        alone = [self.singles(w) for w in W]
        half = np.arange(len(self.few))[::2]
        batches = [self.few[half], self.few, self.few[:0]]
        expected = np.stack([alone[0][half].sum(axis=0), alone[1].sum(axis=0), 0.0 * W[2]])
        found = self.sum(W, batches)
        _compare(
            found[:2],
            expected[:2],
            tolerance,
            "records mix: the gradient_sum of a batch is not the sum of its records' alone, so one "
            "record can move the others' parts",
            self._size(W[1]),
        )
        require(not found[2].any(), "gradient_sum of an empty batch must be zero")
        twice = self.sum(W[:1], [self.few[[0, 0]]])[0]
        text = "a record that is drawn twice must count twice"
        _compare(twice, 2.0 * alone[0][0], tolerance, text, self._size(W[0]))
        for r in range(3):
            text = f"replicates mix: gradient_sum at iterate {r} depends on the other iterates"
            _compare(self.sum(W[[r]])[0], self.total[r], tolerance, text, self._size(W[r]))
        value = np.array([float(problem.value(w)) for w in W])
        text = "value at (R, d) is not that of each iterate"
        _compare(problem.value(W), value, tolerance, text)

    def _size(self, w: np.ndarray) -> float:
        """Return the magnitude of the terms of a sum, which may cancel."""
        return float(np.abs(self.singles(w)).sum())

    def check_clipping(self) -> None:
        """Check that a rule that the problem accepts bounds every record's gradient."""
        for rule in self.rules():
            for w in self.W:
                cut, plain = self.singles(w, rule), self.singles(w)
                norms = np.linalg.norm(cut, axis=1)
                k = int(np.argmax(norms))
                require(
                    norms[k] <= rule.clip_norm * (1.0 + max(self.tolerance, 1e-9)),
                    f"the problem accepts {rule!r}, but with it record {self.few[k]} has a "
                    f"gradient of norm {norms[k]:.6g}: weigh each record's gradient by "
                    "rule.weight(norm, loss), or refuse rules in check_clipping",
                )
                if not rule.needs_losses:
                    weights = np.asarray(rule.weight(np.linalg.norm(plain, axis=1)))
                    text = f"a record's gradient under {rule!r} is not weight(norm) times it"
                    _compare(cut, weights[:, None] * plain, 10.0 * self.tolerance, text)
                whole = self.sum(w[None], [self.few], rule)[0]
                text = f"records mix under {rule!r}: the sum is not that of single records"
                _compare(whole, cut.sum(axis=0), self.tolerance, text, float(np.abs(cut).sum()))

    def check_bounds(self) -> None:
        """Search for a record and an iterate with a gradient that exceeds the stated bound."""
        if self.facts.declared_sensitivity is not None or not self.facts.has_records:
            return
        for w in self.iterates():
            self._check_gradients(self.singles(w), f"at an iterate of norm {np.linalg.norm(w):.3g}")

    def _check_gradients(self, gradients: np.ndarray, where: str) -> None:
        for order, bound in zip((1, 2), self.facts.gradient_bounds):
            norms = np.linalg.norm(gradients, order, axis=1)
            k = int(np.argmax(norms))
            require(
                norms[k] <= bound * (1.0 + max(self.tolerance, 1e-9)),
                f"facts().gradient_bounds says {bound:.6g} in the L{order} norm, but the gradient "
                f"of record {self.few[k]} {where} has {norms[k]:.6g}: the noise would be too small",
            )
            for blocks in self.facts.row_blocks:
                if math.isfinite(self.facts.derivative_bounds[order - 1]):
                    self._check_blocks(gradients, order, blocks, where)

    def _check_blocks(
        self, gradients: np.ndarray, order: int, blocks: Sequence[Block], where: str
    ) -> None:
        """Compare gradients, which are copies of a scaled row, with bounds on the row's blocks."""
        bound = self.facts.derivative_bounds[order - 1]
        ends = np.cumsum([block.size for block in blocks])
        require(
            self.problem.d % ends[-1] == 0,
            f"facts().row_blocks have {ends[-1]} columns, of which d = {self.problem.d} is no "
            "multiple",
        )
        copies = gradients.reshape(len(gradients), -1, ends[-1])
        for block, hi in zip(blocks, ends):
            sizes = np.linalg.norm(copies[..., hi - block.size : hi], block.order, axis=2)
            largest = float(np.linalg.norm(sizes, order, axis=1).max())
            require(
                largest <= bound * block.radius * (1.0 + max(self.tolerance, 1e-9)),
                f"facts() bounds a record's gradient in the columns {hi - block.size} to {hi - 1} "
                f"of its row by derivative_bounds times a radius of row_blocks, "
                f"{bound * block.radius:.6g}, but {where} it is {largest:.6g}: the noise would be "
                "too small",
            )

    def check_far_away(self) -> None:
        """Check that a record adds no more than its bound even where numbers overflow."""
        cases: list[Any] = [*self.rules()]
        if self.facts.has_records and np.isfinite(self.facts.gradient_bounds[1]):
            cases.append(None)
        for rule in cases:
            for size in (1e30, 1e200):
                w = size * self.rng.choice([-1.0, 1.0], self.problem.d)
                found = self.singles(w, rule)
                require(
                    np.isfinite(found).all(),
                    f"a record's gradient is not finite at an iterate of size {size:g} (clipping: "
                    f"{rule!r}): whether a run ends there would reveal the record; "
                    "count the record as zero",
                )
                where = f"at an iterate of size {size:g}"
                if rule is None:
                    self._check_gradients(found, where)
                elif (np.linalg.norm(found, axis=1) > rule.clip_norm * (1 + 1e-6)).any():
                    fail(f"a record's gradient is longer than the clip norm of {rule!r} {where}")

    def check_derivative(self) -> None:
        """Check that the gradient is that of the value: the records' mean plus the penalty's."""
        problem = self.problem
        h = max(1e-5, 1e-2 * self.tolerance**0.5)
        tolerance = max(1e-4, 100.0 * self.tolerance)
        for w, total in zip(self.W, self.total):
            gradient = np.asarray(problem.gradient(w))
            penalty = problem.regularizer
            mean = total / self.facts.n + (0.0 if penalty is None else penalty.gradient(w))
            text = "gradient(w) is not gradient_sum(w)/facts().n plus the regularizer's gradient"
            _compare(gradient, mean, 10.0 * self.tolerance, text, self._size(w) / len(self.few))
            v = self.rng.normal(size=problem.d)
            slope = (problem.value(w + h * v) - problem.value(w - h * v)) / (2.0 * h)
            text = "the gradient is not the slope of value"
            _compare(gradient @ v, slope, tolerance, text, float(np.abs(gradient) @ np.abs(v)))
        for w in (*self.W, *self.iterates()):
            self._check_curvature_bounds(w, tolerance)

    def _check_curvature_bounds(self, w: np.ndarray, tolerance: float) -> None:
        """Check that the curvature along a direction is between mu and L."""
        problem, v = self.problem, self.rng.normal(size=self.problem.d)
        ends = [np.asarray(problem.gradient(each)) for each in (w, w + 0.1 * v)]
        if not np.isfinite(ends).all():
            return
        bend = (ends[1] - ends[0]) @ (0.1 * v) / (0.01 * (v @ v))
        # Far below 1, since mu may be 1/n, and step sizes and noise depend on it.
        rounding = self.tolerance**2 * (1.0 + float(np.abs(ends).max()))
        slack = tolerance * abs(bend) + rounding / (0.1 * float(np.linalg.norm(v)))
        # If records are not convex, mu = 0 is not a bound.
        bounded = problem.mu > 0.0 or self.facts.convex_records
        low = problem.mu if bounded else -math.inf
        require(
            low - slack <= bend <= problem.L + slack,
            f"the curvature along a direction is {bend:.6g}, outside [mu, L] = "
            f"[{low:g}, {problem.L:g}], at an iterate of size {np.linalg.norm(w):.3g}",
        )

    def check_steepness(self) -> None:
        """Compare bounds on one record's Hessian with changes of its gradient along itself."""
        facts = self.facts
        convex, most = facts.convex_records, facts.hessian_bound
        most = min(most, facts.hessian_trace) if convex else most
        if not facts.has_records or not (convex or math.isfinite(most)):
            return
        for w in self.W:
            for i, gradient in zip(self.few, self.singles(w)):
                step = 0.1 * gradient / (np.linalg.norm(gradient) or 1.0)
                ends = [self.sum(each[None], [np.array([i])])[0] for each in (w + step, w - step)]
                change, rounding = ends[0] - ends[1], self.tolerance * np.linalg.norm(ends)
                found = float(np.linalg.norm(change)) / 0.2
                require(
                    found <= most + 5.0 * rounding,
                    f"facts() bounds the Hessian of a record by {most:.6g} (hessian_bound, and "
                    f"hessian_trace of convex records), but the gradient of record {i} changes by "
                    f"{found:.6g} a unit: steps would contract less than the noise allows for",
                )
                falls = convex and change @ step < -0.1 * rounding
                require(not falls, f"facts().convex_records is True, but record {i} is not convex")

    def check_curvature(self) -> None:
        """Compare Hessians and line losses, if implemented, with gradients and values."""
        if self.facts.curvature_vanishes_at_max_slope:
            for w in self.iterates():
                self._check_bend(w)
        for w in self.W[:2]:
            v = self.rng.normal(size=self.problem.d)
            H = self._offered("hessian_sum", w, self.few)
            product = self._offered("hvp_sum", w, v, self.few)
            if H is not None:
                text = "hessian_sum must be symmetric"
                _compare(H, H.T, 10.0 * self.tolerance, text)
                self._check_single_hessians(w)
            if product is not None:
                h = 1e-5
                ends = [self.sum((w + s * h * v)[None], [self.few])[0] for s in (1.0, -1.0)]
                slope = (ends[0] - ends[1]) / (2.0 * h)
                size = float(np.abs(slope).max(initial=0.0)) + 1e-3
                _compare(product, slope, 1e-3, "hvp_sum is not the slope of gradient_sum", size)
                if H is not None:
                    _compare(product, H @ v, 1e-6, "hvp_sum is not hessian_sum times v", size)
            self._check_line_losses(w, v)

    def _offered(self, name: str, *arguments: Any) -> Any:
        """Return the result of an optional method; None if the problem does not implement it."""
        if getattr(type(self.problem), name) is getattr(Problem, name):
            return None
        try:
            answer = getattr(self.problem, name)(*arguments)
        except (ValueError, TypeError, NotImplementedError):
            return None  # it does not support this loss
        return answer if callable(answer) else _host(answer)

    def _check_single_hessians(self, w: np.ndarray) -> None:
        facts = self.facts
        for i in self.few[:10]:
            H = self._offered("hessian_sum", w, np.array([i]))
            values = np.linalg.eigvalsh(H)
            largest = float(np.abs(values).max())
            require(
                largest <= facts.hessian_bound * (1.0 + 1e-9),
                f"facts().hessian_bound is {facts.hessian_bound:.6g}, but the Hessian of "
                f"record {i} has norm {largest:.6g}",
            )
            trace = float(values.sum())
            require(
                trace <= facts.hessian_trace * (1.0 + 1e-9),
                f"facts().hessian_trace is {facts.hessian_trace:.6g}, but the Hessian of record "
                f"{i} has trace {trace:.6g}",
            )
            slack = 1e-9 * (1.0 + largest)
            convex = not facts.convex_records or values[0] >= -slack
            require(convex, f"facts().convex_records is True, but record {i} is not convex")
            rank = int((np.abs(values) > 1e-9 * (largest or 1.0)).sum())
            require(
                facts.hessian_rank is None or rank <= facts.hessian_rank,
                f"facts().hessian_rank is {facts.hessian_rank}, but record {i} has rank {rank}",
            )

    def _check_bend(self, w: np.ndarray) -> None:
        """Check that records with large gradients have little curvature, if that is stated."""
        facts = self.facts
        for i, gradient in zip(self.few[:10], self.singles(w)):
            size = float(np.linalg.norm(gradient))
            share = min(size / facts.gradient_bounds[1], 1.0)  # at most that of the derivative
            if share <= 0.5:
                continue
            v = gradient / size  # along the row
            product = self._offered("hvp_sum", w, v, np.array([i]))
            most = 4.0 * share * (1.0 - share) * facts.hessian_trace
            require(
                product is None or v @ product <= most + 1e-6 * facts.hessian_trace,
                f"facts().curvature_vanishes_at_max_slope is True, but record {i} has a gradient "
                f"that is {share:.6g} of the largest, and a Hessian of trace {v @ product:.6g}",
            )

    def _check_line_losses(self, w: np.ndarray, v: np.ndarray) -> None:
        ray = self._offered("line_losses", w, v, None)
        if ray is None:
            return
        penalty = self.problem.regularizer
        for t in (0.0, 0.5, -1.0):
            point = w - t * v
            value = float(self.problem.value(point))
            value -= 0.0 if penalty is None else float(penalty.value(point))
            losses = _host(ray(t))
            require(
                losses.shape == (self.problem.n,),
                f"line_losses(w, v)(t) must give {self.problem.n}",
            )
            text = "the mean of line_losses(w, v)(t) is not value(w - t v) without the penalty"
            _compare(losses.sum() / self.facts.n, value, 10.0 * self.tolerance, text)
            part = _host(self._offered("line_losses", w, v, self.few)(t))
            text = "line_losses over some rows is not that part of all: records mix"
            _compare(part, losses[self.few], 10.0 * self.tolerance, text)


# The contract of a problem


def check_problem(
    problem: Problem, neighbour: Problem | None = None, *, tolerance: float = 1e-6
) -> None:
    """Raise AssertionError unless a problem keeps the contract of :class:`dpanalysis.Problem`.

    Its sums must be sums of terms that depend on one record each. The public facts, and any
    clipping rule that the problem accepts, must bound each term at every iterate, also far away.
    Gradients and curvature must match its value. Facts must not depend on iterates or records.

    Parameters
    ----------
    problem : Problem
    neighbour : Problem, optional
        The same problem with ONE record replaced: its public facts must be the same, its sums may
        differ by at most the sensitivity, and the other records keep their gradients. Pass one
        whenever possible, preferably with an extreme record: facts and weights computed from the
        data are detected only in this way.
    tolerance : float
        Relative rounding error of a sum; 1e-3 for problems in single precision.

    Notes
    -----
    Up to 40 records are compared one by one, at some dozens of iterates. Passing is not a proof.

    Examples
    --------
    >>> import numpy as np
    >>> import dpanalysis as dpa
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.uniform(-1, 1, (30, 2)), rng.choice([-1.0, 1.0], 30)
    >>> problem = dpa.ERM(X, y, dpa.losses.Logistic(), row_bound=dpa.RowBound(2, 1.5))
    >>> dpa.testing.check_problem(problem)
    """
    _check_declared(problem)
    with quiet(), global_random_untouched("the problem"):
        before = _facts(problem)
        _check_regularizer(problem, before[0].penalty_flat_at_zero)
        _check_start(problem)
        records = _RecordChecks(problem, before[0], tolerance)
        records.check_sums()
        records.check_derivative()
        records.check_clipping()
        records.check_bounds()
        records.check_far_away()
        records.check_curvature()
        records.check_steepness()
        require(_facts(problem) == before, "facts() changes when the problem is used")
        try:
            problem.check_private()
        except Exception as error:
            fail(f"check_private() refuses data that nobody has touched: {error}", error)
        copied = check_pickle(problem, "the problem")
        same = np.array_equal(_host(copied.gradient_sum(records.W)), records.total)
        require(same, "a pickled copy of the problem has another gradient_sum")
        if neighbour is not None:
            _check_neighbour(records, before, neighbour)


def _check_declared(problem: Any) -> None:
    require(
        isinstance(problem, Problem),
        f"a problem must be an object of a class that extends dpanalysis.Problem, got {problem!r}",
    )
    name = type(problem).__name__
    for attribute in ("n", "d"):
        value = getattr(problem, attribute, None)
        whole = isinstance(value, (int, np.integer)) and value >= 1
        require(whole, f"{name}.{attribute} must be a whole number >= 1, got {value!r}")
    mu: Any = getattr(problem, "mu", None)
    L: Any = getattr(problem, "L", None)
    for attribute, value in (("mu", mu), ("L", L)):
        real = isinstance(value, (int, float, np.number)) and not np.isnan(value)
        require(real, f"{name}.{attribute} must be a number, got {value!r}")
    require(mu <= L and L >= 0.0, f"{name} must have mu <= L and L >= 0, got mu = {mu}, L = {L}")


def _facts(problem: Problem) -> list[PublicFacts]:
    """Return the public facts under both relations, after checking them."""
    name, found = type(problem).__name__, []
    for relation in _RELATIONS:
        try:
            facts = problem.facts(relation)
        except Exception as error:
            fail(f"{name}.facts({relation!r}) fails: {error!r}", error)
        require(
            isinstance(facts, PublicFacts), f"{name}.facts must return a PublicFacts: {facts!r}"
        )
        for attribute in ("n", "d", "mu", "L"):
            stated, own = getattr(facts, attribute), getattr(problem, attribute)
            if attribute == "n" and facts.max_records is not None:
                most = facts.max_records  # of a nominal size
                require(own <= most, f"facts({relation!r}).max_records is {most}, and n is {own}")
                continue
            require(
                stated == own,
                f"facts({relation!r}).{attribute} is {stated!r} and the problem's {own!r}",
            )
        require(
            facts.relation == relation,
            f"facts({relation!r}) speaks of the relation {facts.relation!r}",
        )
        bounds = (*facts.gradient_bounds, facts.hessian_bound, facts.hessian_lipschitz)
        good = len(facts.gradient_bounds) == 2 and all(bound >= 0.0 for bound in bounds)
        require(good, f"facts({relation!r}) must have bounds >= 0, got {bounds}")
        require(
            0.0 <= facts.rounding < 1.0, f"facts().rounding must lie in [0, 1): {facts.rounding}"
        )
        found.append(facts)
    return found


def _check_regularizer(problem: Problem, flat: bool) -> None:
    penalty = problem.regularizer
    if penalty is None:
        return
    for member in ("mu", "L", "value", "gradient"):
        require(hasattr(penalty, member), f"regularizer must have {member}, got {penalty!r}")
    rest = {key: part for key, part in vars(problem).items() if part is not penalty}
    data = [item for part in rest.values() for _, item in contents(part)]
    data = [item for item in data if isinstance(item, np.ndarray) and item.size]
    for place, item in contents(penalty, "regularizer"):
        require(
            not isinstance(item, Problem) and not shares_memory(item, data),
            f"the regularizer holds data of the problem ({place}), but it is public: no noise "
            "is added to it",
        )
    require(
        not (flat and np.any(penalty.gradient(np.zeros(problem.d)))),
        "facts().penalty_flat_at_zero is True, but the regularizer has a slope at 0",
    )
    rng = np.random.default_rng(3)
    w, v = rng.normal(size=(2, problem.d))
    h = 1e-6
    slope = (penalty.value(w + h * v) - penalty.value(w - h * v)) / (2.0 * h)
    text = "regularizer.gradient is not that of regularizer.value"
    _compare(penalty.gradient(w) @ v, slope, 1e-5, text)
    _check_penalty_curvature(penalty, problem.d, rng)


def _check_penalty_curvature(penalty: Any, d: int, rng: np.random.Generator) -> None:
    """Search for a point and a direction in which a constant of the penalty does not hold.

    The penalty is differenced alone, since the curvature of the records hides that of a small one.
    """
    mu, L = float(penalty.mu), float(penalty.L)
    diagonal = getattr(penalty, "hessian_diagonal", None)
    lipschitz = float(getattr(penalty, "hessian_lipschitz", math.inf))
    few = np.unique(np.linspace(0, d - 1, min(d, _MOST)).astype(int))
    for size in (0.0, 1e-3, 0.1, 1.0, 10.0, 1e3):
        w, h = size * rng.normal(size=d), 1e-4 * max(size, 1.0)
        hessian = None if diagonal is None else np.asarray(diagonal(w))
        for k in (None, *few):
            v = rng.normal(size=d) if k is None else np.where(np.arange(d) == k, 1.0, 0.0)
            ends = [np.asarray(penalty.gradient(each)) for each in (w + h * v, w - h * v)]
            bend = float((ends[0] - ends[1]) @ v / (2.0 * h * (v @ v)))
            slack = 1e-6 * abs(bend) + 1e-15 * float(np.abs(ends).max()) / h
            where = f"{'a direction' if k is None else f'coordinate {k}'} at size {size:g}"
            require(
                mu - slack <= bend <= L + slack,
                f"the curvature of the regularizer along {where} is {bend:.6g}, outside its "
                f"[mu, L] = [{mu:g}, {L:g}], which must hold in every direction",
            )
            if k is None or hessian is None:
                continue
            require(
                abs(bend - hessian[k]) <= lipschitz * h + slack,
                f"regularizer.hessian_diagonal is {hessian[k]:.6g} along {where}, but its gradient "
                f"changes by {bend:.6g} a unit (hessian_lipschitz = {lipschitz:g})",
            )


def _check_start(problem: Problem) -> None:
    starts = [np.asarray(problem.initial(np.random.default_rng(4))) for _ in range(2)]
    require(
        starts[0].shape == (problem.d,) and np.isfinite(starts[0]).all(),
        f"initial() must return finite numbers of shape ({problem.d},), got {starts[0].shape}",
    )
    same = np.array_equal(starts[0], starts[1])
    require(same, "initial(rng) gives other numbers from the same source: draw from rng alone")


def _check_neighbour(records: _RecordChecks, before: list[PublicFacts], neighbour: Problem) -> None:
    """Compare public facts and sums with those of a neighbouring data set."""
    for own, other in zip(before, (neighbour.facts(relation) for relation in _RELATIONS)):
        differ = [each for each in vars(own) if getattr(own, each) != getattr(other, each)]
        require(
            not differ,
            f"facts() depends on the records: {', '.join(differ)} differs for the neighbour; "
            "public facts must be stated bounds, never read off the data",
        )
    start = [
        np.asarray(each.initial(np.random.default_rng(4))) for each in (records.problem, neighbour)
    ]
    require(np.array_equal(start[0], start[1]), "initial() depends on the records")
    for rule in (None, *records.rules()):
        for w in records.iterates():
            W = w[None]
            sums = [_host(p.gradient_sum(W, None, rule))[0] for p in (records.problem, neighbour)]
            for order in (1, 2):
                try:
                    bound = before[0].record_sensitivity(order, rule)
                except ValueError:
                    continue  # the facts state no bound
                apart = float(np.linalg.norm(sums[0] - sums[1], order))
                slack = records.tolerance * float(np.linalg.norm(sums[0], order))
                require(
                    apart <= bound * (1.0 + 1e-9) + slack,
                    f"a replaced record moves the sum of gradients by {apart:.6g} in the L{order} "
                    f"norm, and the noise is computed for {bound:.6g} (clipping: {rule!r})",
                )
    _check_others(records, neighbour)


def _check_others(records: _RecordChecks, neighbour: Problem) -> None:
    """Check that the records which were not replaced have the gradients that they had."""
    if neighbour.n != records.problem.n:
        return
    other = _RecordChecks(neighbour, records.facts, records.tolerance)
    for w in records.W:
        own, its = records.singles(w), other.singles(w)
        moved = np.abs(own - its).max(axis=1) > records.tolerance * np.abs(own).max(initial=1e-12)
        changed = records.few[np.flatnonzero(moved)]
        require(
            len(changed) <= 1,
            f"one replaced record changes the gradients of others, as of records {changed[:5]}: "
            "their scales, weights or features may come from all records, such as means or "
            "frequencies of classes; state public ones",
        )
