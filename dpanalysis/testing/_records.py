"""The records of a problem, one by one: sums, bounds and curvature."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np

from .. import clipping as rules
from .._devices import to_host
from ..clipping import Clipping
from ..privacy.facts import PublicFacts
from ..problems.base import Problem
from ._tools import fail, require

__all__ = ["Records", "close", "host"]

_MOST = 40  # records that are looked at one by one


def host(array: Any) -> np.ndarray:
    """Return an array in NumPy's."""
    return np.asarray(to_host(array))


def close(found: Any, expected: Any, tolerance: float, sentence: str, size: float = 0.0) -> None:
    """Fail with the sentence unless both are the same, relative to their size or ``size``."""
    found, expected = np.asarray(found), np.asarray(expected)
    require(found.shape == expected.shape, f"{sentence}: shapes {found.shape}, {expected.shape}")
    scale = max(float(np.abs(expected).max(initial=0.0)), size, 1e-12)
    off = float(np.abs(found - expected).max(initial=0.0))
    require(off <= tolerance * scale, f"{sentence}: off by {off:.3g}, at numbers up to {scale:.3g}")


class Records:
    """Iterates of a problem, and what its records answer there."""

    def __init__(self, problem: Problem, facts: PublicFacts, tolerance: float) -> None:
        self.problem, self.facts, self.tolerance = problem, facts, tolerance
        self.rng = np.random.default_rng(7)
        # At zero all units of a network are the same: a public start is a fairer place.
        self.start = np.asarray(problem.initial(np.random.default_rng(8)), dtype=float)
        self.W = self.start + self.rng.normal(size=(3, problem.d)) * np.array([[0.1], [0.5], [2.0]])
        self.few = np.unique(np.linspace(0, problem.n - 1, min(problem.n, _MOST)).astype(int))

    @cached_property
    def total(self) -> np.ndarray:
        """The sums over all records (3, d)."""
        return self.sum(self.W)

    def sum(self, W: np.ndarray, rows: Any = None, rule: Any = None) -> np.ndarray:
        """Return gradient_sum on the host, checked for its shape."""
        given = W.copy()
        found = self.problem.gradient_sum(given, rows, rule)
        require(np.array_equal(given, W), "gradient_sum changes the iterates that it is given")
        found = host(found)
        shape = f"gradient_sum must return shape {W.shape}, got {found.shape}"
        require(found.shape == W.shape, shape)
        return found.copy()

    def singles(self, w: np.ndarray, rule: Any = None) -> np.ndarray:
        """Return the gradients of some records, one by one (k, d)."""
        return np.stack([self.sum(w[None], [np.array([i])], rule)[0] for i in self.few])

    def iterates(self) -> Iterator[np.ndarray]:
        """Yield points of all sizes, some of them along a record's gradient."""
        yield self.start
        for size in (1e-3, 0.1, 1.0, 10.0, 1e3):
            yield from self.start + size * self.rng.normal(size=(3, self.problem.d))
        for i in self.few[:4]:
            step = self.sum(self.start[None], [np.array([i])])[0]
            length = np.linalg.norm(step) or 1.0
            for size in (1.0, -1.0, 30.0, -30.0):
                yield self.start + size * step / length

    def rules(self) -> list[Clipping]:
        """Return rules that the problem accepts, which cut some of its gradients."""
        typical = float(np.median(np.linalg.norm(self.singles(self.W[1]), axis=1))) or 1.0
        tried: list[Clipping] = [rules.Flat(0.3 * typical), rules.Automatic(0.1, 0.5 * typical)]
        tried += [rules.PerSampleAdaptive(0.1, typical), rules.Value(typical, 10.0 * typical**2)]
        return [rule for rule in tried if self._accepts(rule)]

    def _accepts(self, rule: Clipping) -> bool:
        if self.facts.declared_sensitivity is not None or not self.facts.has_records:
            return False  # the noise is computed from what is declared, whatever the rule
        try:
            self.problem.check_clipping(rule)
        except (ValueError, TypeError):
            return False
        return True

    def check_sums(self) -> None:
        """Check that a sum over records is the sum of what each of them gives alone."""
        problem, W, tolerance = self.problem, self.W, self.tolerance
        close(self.sum(W), self.total, 0.0, "gradient_sum gives other numbers the second time")
        every = [np.arange(problem.n)] * 3
        text = "gradient_sum over all rows by their numbers is not that without rows"
        close(self.sum(W, every), self.total, tolerance, text, self._size(W[2]))
        alone = [self.singles(w) for w in W]
        half = np.arange(len(self.few))[::2]
        batches = [self.few[half], self.few, self.few[:0]]
        expected = np.stack([alone[0][half].sum(axis=0), alone[1].sum(axis=0), 0.0 * W[2]])
        found = self.sum(W, batches)
        close(
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
        close(twice, 2.0 * alone[0][0], tolerance, text, self._size(W[0]))
        for r in range(3):
            text = f"replicates mix: gradient_sum at iterate {r} depends on the other iterates"
            close(self.sum(W[[r]])[0], self.total[r], tolerance, text, self._size(W[r]))
        value = np.array([float(problem.value(w)) for w in W])
        text = "value at (R, d) is not that of each iterate"
        close(problem.value(W), value, tolerance, text)

    def _size(self, w: np.ndarray) -> float:
        """Return the size of the terms of a sum, which may cancel."""
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
                    close(cut, weights[:, None] * plain, 10.0 * self.tolerance, text)
                whole = self.sum(w[None], [self.few], rule)[0]
                text = f"records mix under {rule!r}: the sum is not that of single records"
                close(whole, cut.sum(axis=0), self.tolerance, text, float(np.abs(cut).sum()))

    def check_bounds(self) -> None:
        """Search for a record and an iterate with a gradient longer than stated."""
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

    def check_far_away(self) -> None:
        """Where numbers overflow, a record still adds no more than its bound."""
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
                    f"{rule!r}): whether a run ends there would tell that the record is present; "
                    "count such a record as zero",
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
            close(gradient, mean, 10.0 * self.tolerance, text, self._size(w) / len(self.few))
            v = self.rng.normal(size=problem.d)
            slope = (problem.value(w + h * v) - problem.value(w - h * v)) / (2.0 * h)
            text = "the gradient is not the slope of value"
            close(gradient @ v, slope, tolerance, text, float(np.abs(gradient) @ np.abs(v)))
            u = w + 0.1 * v
            bend = (np.asarray(problem.gradient(u)) - gradient) @ (0.1 * v) / (0.01 * (v @ v))
            slack = tolerance * (1.0 + abs(bend))
            require(
                problem.mu - slack <= bend <= problem.L + slack,
                f"the curvature along a direction is {bend:.6g}, outside [mu, L] = "
                f"[{problem.mu:g}, {problem.L:g}]",
            )

    def check_curvature(self) -> None:
        """Compare what is offered of Hessians and losses with the gradients and the value."""
        for w in self.W[:2]:
            v = self.rng.normal(size=self.problem.d)
            H = self._offered("hessian_sum", w, self.few)
            product = self._offered("hvp_sum", w, v, self.few)
            if H is not None:
                text = "hessian_sum must be symmetric"
                close(H, H.T, 10.0 * self.tolerance, text)
                self._check_single_hessians(w)
            if product is not None:
                h = 1e-5
                ends = [self.sum((w + s * h * v)[None], [self.few])[0] for s in (1.0, -1.0)]
                slope = (ends[0] - ends[1]) / (2.0 * h)
                size = float(np.abs(slope).max(initial=0.0)) + 1e-3
                close(product, slope, 1e-3, "hvp_sum is not the slope of gradient_sum", size)
                if H is not None:
                    close(product, H @ v, 1e-6, "hvp_sum is not hessian_sum times v", size)
            self._check_along(w, v)

    def _offered(self, name: str, *arguments: Any) -> Any:
        """Return what a member answers; None where the problem does not offer it."""
        member = getattr(type(self.problem), name)
        if member is getattr(Problem, name):
            return None
        try:
            answer = getattr(self.problem, name)(*arguments)
        except (ValueError, TypeError, NotImplementedError):
            return None  # not for this loss, and it says so
        return answer if callable(answer) else host(answer)

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

    def _check_along(self, w: np.ndarray, v: np.ndarray) -> None:
        ray = self._offered("along", w, v, None)
        if ray is None:
            return
        penalty = self.problem.regularizer
        for t in (0.0, 0.5, -1.0):
            point = w - t * v
            value = float(self.problem.value(point))
            value -= 0.0 if penalty is None else float(penalty.value(point))
            losses = host(ray(t))
            require(losses.shape == (self.problem.n,), f"along(w, v)(t) must give {self.problem.n}")
            text = "the mean of along(w, v)(t) is not value(w - t v) without the penalty"
            close(losses.sum() / self.facts.n, value, 10.0 * self.tolerance, text)
            part = host(self._offered("along", w, v, self.few)(t))
            text = "along over some rows is not that part of all: records mix"
            close(part, losses[self.few], 10.0 * self.tolerance, text)
