"""Problems that violate the contract, each found with a message that names the violation."""

import dataclasses
import math

import numpy as np
import pytest

import dpanalysis as dpa
from dpanalysis import testing
from dpanalysis.privacy.facts import Block, PublicFacts

RNG = np.random.default_rng(3)
DATA = RNG.uniform(-1.0, 1.0, (30, 2))


class Median(dpa.Problem):
    """A valid base class: mean of sqrt(1 + ||w - x_i||^2), with clipping rules."""

    d, mu, L = 2, 0.0, 1.0
    regularizer = dpa.regularizers.L2(0.5)

    def __init__(self, X=DATA):
        self.X, self.n = X, len(X)
        self.mu, self.L = self.regularizer.mu, 1.0 + self.regularizer.L

    def facts(self, relation):
        return PublicFacts(self.n, 2, self.mu, self.L, relation, (2.0**0.5, 1.0))

    def check_clipping(self, clipping):
        dpa.clipping.check_clipping(clipping)

    def records(self, w, rows):
        return w - (self.X if rows is None else self.X[rows])

    def each(self, w, rows):
        """Return losses (m,) and gradients (m, d)."""
        gaps = self.records(w, rows)
        losses = np.hypot(1.0, np.hypot(*gaps.T))
        return losses, gaps / losses[:, None]

    def weighted(self, w, rows, clipping):
        losses, gradients = self.each(w, rows)
        if clipping is None:
            return gradients
        norms = np.linalg.norm(gradients, axis=1)
        return clipping.weight(norms, losses)[:, None] * gradients

    def gradient_sum(self, w, rows=None, clipping=None):
        batches = [None] * len(w) if rows is None else rows
        return np.stack([self.weighted(*x, clipping).sum(axis=0) for x in zip(w, batches)])

    def value(self, w):
        w = np.asarray(w)
        if w.ndim == 2:
            return np.array([self.value(each) for each in w])
        return self.each(w, None)[0].mean() + self.regularizer.value(w)

    def gradient(self, w):
        w = np.asarray(w)
        W = w if w.ndim == 2 else w[None]
        mean = self.gradient_sum(W).reshape(w.shape) / self.n
        return mean + self.regularizer.gradient(w)


class Mixes(Median):
    """Gradients are centered by the batch, as by batch normalization."""

    def weighted(self, w, rows, clipping):
        gradients = super().weighted(w, rows, clipping)
        return gradients - 0.1 * gradients.max(axis=0) if len(gradients) else gradients


class IgnoresRules(Median):
    def weighted(self, w, rows, clipping):
        return super().weighted(w, rows, None)


class ClipsTheSum(Median):
    """Clips the mean of a batch, not the gradient of each record."""

    def weighted(self, w, rows, clipping):
        gradients = super().weighted(w, rows, None)
        if clipping is None or not len(gradients):
            return gradients
        norm = np.linalg.norm(gradients.mean(axis=0))
        return gradients * np.minimum(1.0, clipping.clip_norm / np.maximum(norm, 1e-300))


class ForgetsEmptyBatches(Median):
    def gradient_sum(self, w, rows=None, clipping=None):
        if rows is not None:
            rows = [batch if len(batch) else np.arange(self.n) for batch in rows]
        return super().gradient_sum(w, rows, clipping)


class CountsOnce(Median):
    def gradient_sum(self, w, rows=None, clipping=None):
        return super().gradient_sum(w, None if rows is None else map(np.unique, rows), clipping)


class MixesReplicates(Median):
    def gradient_sum(self, w, rows=None, clipping=None):
        return super().gradient_sum(w.mean(axis=0) + 0.9 * (w - w.mean(axis=0)), rows, clipping)


class BoundTooSmall(Median):
    """The bounds hold only at iterates of norm up to about 2."""

    def facts(self, relation):
        return dataclasses.replace(super().facts(relation), gradient_bounds=(1.3, 0.97))


class AddsThePenalty(Median):
    def weighted(self, w, rows, clipping):
        return super().weighted(w, rows, clipping) + self.regularizer.gradient(w)


class OfAnotherLoss(Median):
    def value(self, w):
        return 1.1 * super().value(w) if np.ndim(w) == 1 else super().value(w)


class TooFlat(Median):
    def __init__(self, X=DATA):
        super().__init__(X)
        self.L = 0.6


class Overflows(Median):
    def each(self, w, rows):
        gaps = self.records(w, rows)
        losses = np.sqrt(1.0 + (gaps**2).sum(axis=1))
        return losses, gaps * losses[:, None] / losses[:, None] ** 2


class FactsFromData(Median):
    def facts(self, relation):
        longest = float(np.abs(self.X).max())
        return dataclasses.replace(super().facts(relation), value_at_zero=longest)


class ReachesFurther(Median):
    """Records are scaled by the largest one, which sums of single records do not reveal."""

    def records(self, w, rows):
        return w - (self.X if rows is None else self.X[rows]) * np.abs(self.X).max() ** 4


class PenaltyFromData(Median):
    def __init__(self, X=DATA):
        @dataclasses.dataclass
        class Pull:
            X: np.ndarray
            mu: float = 0.0
            L: float = 0.0

            def value(self, w):
                return np.asarray(w) @ self.X.mean(axis=0)

            def gradient(self, w):
                return self.X.mean(axis=0) + 0.0 * w

        self.regularizer = Pull(X)
        super().__init__(X)


class ChangesItsFacts(Median):
    calls = 0

    def facts(self, relation):
        return dataclasses.replace(super().facts(relation), rounding=1e-9 * self.calls)

    def gradient_sum(self, w, rows=None, clipping=None):
        self.calls += 1
        return super().gradient_sum(w, rows, clipping)


class DrawsItsStart(Median):
    def initial(self, rng=None):
        return np.random.default_rng().normal(size=2)


class RefusesItsOwnData(Median):
    def check_private(self):
        raise ValueError("X is not what it was")


class WrongCurvature(Median):
    def hvp_sum(self, w, v, rows=None):
        return 2.0 * v * (self.n if rows is None else len(rows))


class MixesAlong(Median):
    def line_losses(self, w, direction, rows=None):
        return lambda t: (
            self.each(w - t * direction, rows)[0] + (0.0 if rows is None else len(rows))
        )


class CannotTravel(Median):
    def __init__(self, X=DATA):
        super().__init__(X)
        self.transform = lambda x: x


class NoRecords(Median):
    n = 0

    def __init__(self, X=DATA):
        self.X = X


class DrawsGlobally(Median):
    def records(self, w, rows):
        return super().records(w, rows) + 0.0 * np.random.random()  # noqa: NPY002


LIARS = [
    (Mixes, "records mix: the gradient_sum of a batch is not the sum of its records' alone"),
    (IgnoresRules, "accepts .*, but with it record .* or refuse rules in check_clipping"),
    (ClipsTheSum, "records mix under .*: the sum is not that of single records|not weight"),
    (ForgetsEmptyBatches, "gradient_sum of an empty batch must be zero"),
    (CountsOnce, "a record that is drawn twice must count twice"),
    (MixesReplicates, "replicates mix|records mix"),
    (BoundTooSmall, "gradient_bounds says 0.97 in the L2 norm|says 1.3 in the L1 norm"),
    (AddsThePenalty, "the gradient is not the slope of value"),
    (OfAnotherLoss, "the gradient is not the slope of value"),
    (TooFlat, r"outside \[mu, L\] = \[0.5, 0.6\]"),
    (Overflows, "not finite at an iterate of size 1e.200"),
    (FactsFromData, "depends on the records: value_at_zero differs"),
    (ReachesFurther, "a replaced record moves the sum of gradients by .* is computed for"),
    (PenaltyFromData, r"the regularizer holds data of the problem \(regularizer\.X\)"),
    (ChangesItsFacts, "facts.. changes when the problem is used"),
    (DrawsItsStart, "gives other numbers from the same source"),
    (RefusesItsOwnData, "refuses data that nobody has touched: X is not what it was"),
    (WrongCurvature, "hvp_sum is not the slope of gradient_sum"),
    (MixesAlong, "line_losses over some rows is not that part of all: records mix"),
    (CannotTravel, "the problem cannot be pickled"),
    (NoRecords, r"NoRecords\.n must be a whole number >= 1"),
    (DrawsGlobally, "random numbers that the whole process shares"),
]


class Curved(Median):
    """``Median`` with Hessians and losses along a line."""

    def facts(self, relation):
        stated = {"hessian_bound": 1.0, "hessian_trace": 2.0, "convex_records": True}
        return dataclasses.replace(super().facts(relation), **stated)

    def hessian_sum(self, w, rows=None):
        losses, gradients = self.each(w, rows)
        across = np.eye(2) - gradients[:, :, None] * gradients[:, None]
        return (across / losses[:, None, None]).sum(axis=0)

    def hvp_sum(self, w, v, rows=None):
        return Curved.hessian_sum(self, w, rows) @ v

    def line_losses(self, w, direction, rows=None):
        return lambda t: self.each(w - t * direction, rows)[0]


class Travels(Median):
    """The data lose digits when pickled."""

    def __getstate__(self):
        return {**vars(self), "X": self.X.astype(np.float32)}


class Lacking:
    """A penalty without value and gradient."""

    mu, L = 0.5, 0.5


class Steeper(dpa.regularizers.L2):
    mu, L, hessian_lipschitz = 0.5, 0.5, 0.0

    def gradient(self, w):
        return 1.01 * super().gradient(w)

    def hessian_diagonal(self, w):
        return super().hessian_diagonal(w)


def kind(base=Median, **members):
    return type("Liar", (base,), members)


def states(base=Median, only=None, **stated):
    """Return a class that states these facts, under one relation or both."""

    def facts(self, relation):
        found = base.facts(self, relation)
        return dataclasses.replace(found, **stated) if only in (None, relation) else found

    return kind(base, facts=facts)


def sums(change, base=Median):
    """Return a class with gradient_sum ``change(self, valid sum, w, rows, rule)``."""

    def gradient_sum(self, w, rows=None, clipping=None):
        honest = base.gradient_sum(self, w, rows, clipping)
        return change(self, honest, w, rows, clipping)

    return kind(base, gradient_sum=gradient_sum)


def turned(self, found, w, rows, rule):
    w *= 1.0 + 1e-12
    return found


def worn(self, found, w, rows, rule):
    self.__dict__["calls"] = vars(self).get("calls", 0) + 1
    return found * (1.0 + 1e-12 * self.calls)


def whole(self, rows):
    return rows is None or all(len(each) == self.n for each in rows)


def far(w):
    return np.abs(w).max() > 1e20


MORE = [
    (sums(turned), "gradient_sum changes the iterates that it is given"),
    (sums(lambda self, found, *_: found[0]), r"gradient_sum must return shape \(3, 2\)"),
    (sums(worn), "gradient_sum gives other numbers the second time"),
    (
        sums(lambda self, found, w, rows, _: found if rows is None or len(w) == 1 else 2 * found),
        "gradient_sum over all rows by their numbers is not that without rows",
    ),
    (
        sums(lambda self, found, w, rows, _: len(w) * found if whole(self, rows) else found),
        "replicates mix: gradient_sum at iterate 0 depends on the other iterates",
    ),
    (
        kind(value=lambda self, w: Median.value(self, w) * (1.0 + 0.01 * (np.ndim(w) == 2))),
        r"value at \(R, d\) is not that of each iterate",
    ),
    (
        kind(value=lambda self, w: np.sum(Median.value(self, w))),
        r"value at \(R, d\) is not that of each iterate: shapes \(\), \(3,\)",
    ),
    (
        kind(gradient=lambda self, w: 1.01 * Median.gradient(self, w)),
        r"gradient\(w\) is not gradient_sum\(w\)/facts\(\).n plus",
    ),
    (
        sums(lambda self, found, w, rows, rule: found if rule is None else 0.9 * found),
        r"a record's gradient under Flat.* is not weight\(norm\) times it",
    ),
    (
        sums(lambda self, found, w, _, rule: found if rule is None or not far(w) else 1e3 * found),
        "a record's gradient is longer than the clip norm of Flat",
    ),
    (
        sums(lambda self, found, w, _, rule: found * (np.nan if rule and far(w) else 1.0)),
        r"not finite at an iterate of size 1e\+30 \(clipping: Flat",
    ),
    (
        sums(lambda self, found, w, _, rule: found * (1.0 if rule or not far(w) else 1.5)),
        "gradient_bounds says 1 in the L2 norm, but .* iterate of size|says 1.41421 in the L1 norm",
    ),
    (
        kind(Curved, hessian_sum=lambda self, *x: Curved.hessian_sum(self, *x) @ [[1, 1], [0, 1]]),
        "hessian_sum must be symmetric",
    ),
    (
        kind(Curved, hessian_sum=lambda self, *x: -Curved.hessian_sum(self, *x)),
        "convex_records is True, but record 0 is not convex",
    ),
    (
        kind(Curved, hessian_sum=lambda self, *x: 0.9 * Curved.hessian_sum(self, *x)),
        "hvp_sum is not hessian_sum times v",
    ),
    (states(Curved, hessian_bound=0.7), "hessian_bound is 0.7, but the Hessian of record"),
    (states(Curved, hessian_trace=1.0), "hessian_trace is 1, but the Hessian of record"),
    (states(Curved, hessian_rank=1), "hessian_rank is 1, but record 0 has rank 2"),
    (
        kind(Curved, line_losses=lambda self, w, v, rows=None: lambda t: np.ones(self.n + 1)),
        "line_losses.* must give 30",
    ),
    (
        kind(Curved, line_losses=lambda self, *x: lambda t: 1.01 * Curved.line_losses(self, *x)(t)),
        r"the mean of line_losses\(w, v\)\(t\) is not value",
    ),
    (kind(facts=lambda self, relation: vars(Median.facts(self, relation))), "return a PublicFacts"),
    (kind(facts=lambda self, relation: Median.facts(self, "zero_out")), r"facts\(.*\) fails"),
    (
        kind(facts=lambda self, relation: Median.facts(self, "replace_one")),
        r"facts\('add_or_remove_one'\) speaks of the relation 'replace_one'",
    ),
    (
        states(only="add_or_remove_one", gradient_bounds=(-1.0, 1.0)),
        r"facts\('add_or_remove_one'\) must have bounds >= 0",
    ),
    (states(gradient_bounds=(2.0, 1.0, 1.0)), "must have bounds >= 0"),
    (states(hessian_bound=-1.0), "must have bounds >= 0"),
    (states(hessian_lipschitz=math.nan), "must have bounds >= 0"),
    (states(rounding=-1e-9), r"rounding must lie in \[0, 1\)"),
    (states(rounding=1.0), r"rounding must lie in \[0, 1\)"),
    (states(n=31), r"facts\('replace_one'\).n is 31 and the problem's 30"),
    (states(mu=0.6), r"\.mu is 0.6 and the problem's 0.5"),
    (states(max_records=29), "max_records is 29, and n is 30"),
    (
        kind(initial=lambda self, rng=None: np.zeros(3)),
        r"initial\(\) must return finite numbers of shape \(2,\), got \(3,\)",
    ),
    (kind(initial=lambda self, rng=None: np.full(2, np.inf)), "must return finite numbers"),
    (kind(initial=lambda self, rng=None: self.X[4]), r"initial\(\) depends on the records"),
    (
        kind(
            facts=lambda self, relation: dataclasses.replace(
                Median.facts(self, relation),
                value_at_zero=self.X[4, 0] if relation == "add_or_remove_one" else None,
            )
        ),
        "depends on the records: value_at_zero differs",
    ),
    (kind(regularizer=Steeper(0.5)), "regularizer.gradient is not that of regularizer.value"),
    (kind(regularizer=Lacking()), "regularizer must have value"),
    (Travels, "a pickled copy of the problem has another gradient_sum"),
    (
        kind(__init__=lambda self, X: (Median.__init__(self, X), setattr(self, "mu", math.nan))[0]),
        "mu must be a number, got nan",
    ),
    (
        kind(__init__=lambda self, X: (Median.__init__(self, X), setattr(self, "mu", 2.0))[0]),
        "must have mu <= L and L >= 0",
    ),
]


def neighbouring(kind):
    X = DATA.copy()
    X[4] = [3.0, -2.0]
    return kind(DATA), kind(X)


@pytest.mark.parametrize(("kind", "message"), LIARS, ids=[kind.__name__ for kind, _ in LIARS])
def test_a_problem_that_breaks_the_contract_is_found(kind, message):
    with pytest.raises(AssertionError, match=message):
        testing.check_problem(*neighbouring(kind))


@pytest.mark.parametrize(("kind", "message"), MORE, ids=[str(k) for k in range(len(MORE))])
def test_other_violations_of_a_problem_are_found(kind, message):
    with pytest.raises(AssertionError, match=message):
        testing.check_problem(*neighbouring(kind))


def test_valid_problems_pass():
    testing.check_problem(*neighbouring(Median))
    testing.check_problem(*neighbouring(Curved))
    with pytest.raises(AssertionError, match=r"extends dpanalysis\.Problem"):
        testing.check_problem(DATA)


class RoundsInFloat32(Median):
    """Its gradients exceed the bounds by a rounding error of 1e-5."""

    def facts(self, relation):
        near = 1.0 - 1e-5
        return dataclasses.replace(super().facts(relation), gradient_bounds=(2.0**0.5 * near, near))


def test_a_stated_tolerance_is_that_of_the_bounds_too():
    testing.check_problem(*neighbouring(RoundsInFloat32), tolerance=1e-4)
    with pytest.raises(AssertionError, match=r"gradient_bounds says 0\.99999 in the L2 norm"):
        testing.check_problem(RoundsInFloat32())


class Slopes(dpa.regularizers.L2):
    """A penalty with a slope at 0."""

    mu, L, hessian_lipschitz = 0.1, 0.1, 0.0

    def value(self, w):
        return super().value(w) + np.asarray(w).sum(axis=-1)

    def gradient(self, w):
        return super().gradient(w) + 1.0

    def hessian_diagonal(self, w):
        return super().hessian_diagonal(w)


class Stated(dpa.ERM):
    """An ERM with changed facts."""

    stated = {}  # noqa: RUF012

    def facts(self, relation):
        return dataclasses.replace(super().facts(relation), **self.stated)


BOX = (Block(2, math.inf, 1.0),)


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ({"row_blocks": ((Block(1, 1, 1.0), Block(1, 1, 1e-3)),)}, "the columns 1 to 1 of its row"),
        ({"row_blocks": (BOX, (Block(2, 2, 1.4),))}, "derivative_bounds times a radius of row_bl"),
        ({"derivative_bounds": (0.1, 1.0)}, "by derivative_bounds times a radius of row_blocks, 0"),
        ({"row_blocks": ((Block(4, 2, 9.0),),)}, "4 columns, of which d = 2 is no multiple"),
        ({"curvature_vanishes_at_max_slope": True}, "max_slope is True, but record .* has"),
        ({"penalty_flat_at_zero": True}, "penalty_flat_at_zero is True, but the regularizer has"),
    ],
)
def test_facts_that_noise_is_shaped_by_are_checked(stated, message):
    loss, penalty = dpa.losses.HuberizedHinge(1.0), Slopes(0.1)
    X = np.sign(DATA)  # corners of the box
    problem = Stated(X, X[:, 0], loss, penalty, dpa.RowBound(math.inf, 1.0))
    testing.check_problem(problem)
    problem.stated = stated
    with pytest.raises(AssertionError, match=message):
        testing.check_problem(problem)


def test_one_record_beyond_the_bound_on_a_block_is_found():
    X = np.sign(DATA) * [1.0, 0.0]
    stated = {"row_blocks": ((Block(1, 1, 1.0), Block(1, 1, 0.5)),)}
    problem = Stated(X, X[:, 0], dpa.losses.HuberizedHinge(1.0), None, dpa.RowBound(2, 2.0))
    problem.stated = stated
    testing.check_problem(problem)
    X[7, 1] = 1.0
    problem = Stated(X, X[:, 0], dpa.losses.HuberizedHinge(1.0), None, dpa.RowBound(2, 2.0))
    problem.stated = stated
    with pytest.raises(AssertionError, match="the columns 1 to 1 of its row"):
        testing.check_problem(problem)


class SameInBothNorms(dpa.ERM):
    """States the L2 bound in both norms, which holds for rows with a single entry."""

    def facts(self, relation):
        return dataclasses.replace(super().facts(relation), gradient_bounds=(1.0, 1.0))


def test_a_neighbour_that_moves_the_sum_too_far_in_the_first_norm_alone_is_found():
    one = np.tile(np.eye(9)[0], (30, 1))
    other = one.copy()
    other[4] = 0.999 / 3.0  # of norm 3 in L1
    loss, bound = dpa.losses.Logistic(), dpa.RowBound(2, 1.0)
    problems = [SameInBothNorms(X, np.ones(30), loss, None, bound) for X in (one, other)]
    testing.check_problem(problems[0])
    with pytest.raises(AssertionError, match=r"moves the sum of gradients by .* in the L1 norm"):
        testing.check_problem(*problems)


def noisy(dataset, rng, size):
    return np.clip(dataset, -1.0, 1.0).sum() + rng.laplace(scale=2.0, size=size)


MECHANISMS = {
    "half the noise": noisy,
    "no noise": lambda x, rng, size: np.full(size, np.sum(x)),
    "noise from the data": lambda x, rng, size: rng.laplace(scale=3.0 + x[0], size=size),
    "tells a record by NaN": lambda x, rng, size: noisy(x, rng, size) * np.exp(800.0 * (x[0] > 0)),
}


@pytest.mark.parametrize("name", MECHANISMS)
def test_a_mechanism_that_is_less_private_is_found(name):
    one, other = np.array([1.0, 0.2]), np.array([-1.0, 0.2])
    with pytest.raises(AssertionError, match=r"refuted: epsilon >= .* where 0\.5 is claimed"):
        testing.check_mechanism(MECHANISMS[name], one, other, 0.5)


def test_a_mechanism_that_keeps_its_claim_passes():
    testing.check_mechanism(noisy, np.array([1.0]), np.array([-1.0]), 1.0, samples=20_000)


class FlatFarAway(Median):
    """A valid mu near the start, and none at the distance of a thousand."""

    regularizer = dpa.regularizers.L2(1e-9)

    def __init__(self, X=DATA):
        super().__init__(X)
        self.mu = 0.05


def test_a_mu_that_holds_nearby_alone_is_found():
    """Noise of output perturbation rests on it."""
    with pytest.raises(AssertionError, match=r"curvature along a direction is .* at an iterate"):
        testing.check_problem(FlatFarAway(), FlatFarAway(-DATA))


class Redescending(Median):
    """Losses r^2/(2 + 2 r^2): their curvature is negative for r > 1/sqrt(3), the mean's is not."""

    def __init__(self, X=DATA):
        super().__init__(X)
        self.mu = 0.25

    def each(self, w, rows):
        gaps = self.records(w, rows)
        small = 1.0 / np.hypot(1.0, np.hypot(*gaps.T)) ** 2
        near = np.where(np.isfinite(gaps), gaps, 0.0)
        return 0.5 - 0.5 * small, near * small[:, None] ** 2


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (states(hessian_bound=0.7), "bounds the Hessian of a record by 0.7 .* of record"),
        (
            states(convex_records=True, hessian_trace=0.8),
            "bounds the Hessian of a record by 0.8 .* a unit",
        ),
        (states(Redescending, convex_records=True), "convex_records is True, but record"),
    ],
    ids=["bound", "trace", "convex"],
)
def test_bounds_on_hessians_are_checked_without_hessians(kind, message):
    """Noise of output perturbation rests on them; such a problem has no hessian_sum."""
    testing.check_problem(*neighbouring(kind.__mro__[1]))
    with pytest.raises(AssertionError, match=message):
        testing.check_problem(*neighbouring(kind))


@dataclasses.dataclass(frozen=True)
class Ridge:
    """The ridge penalty, with constants that need not be its own."""

    strength: float
    mu: float
    L: float
    free: int = 0  # last coordinates without a penalty
    hessian_lipschitz: float = 0.0
    stated: float = 1.0  # diagonal of the Hessian over the true one

    def _share(self, w):
        return self.strength * (np.arange(w.shape[-1]) < w.shape[-1] - self.free)

    def value(self, w):
        return (0.5 * self._share(w) * w * w).sum(axis=-1)

    def gradient(self, w):
        return self._share(w) * w

    def hessian_diagonal(self, w):
        return self.stated * self._share(w) + 0.0 * w


@pytest.mark.parametrize("strength", [1e-5, 0.1])
def test_constants_of_a_penalty_are_checked_however_small(strength):
    """The curvature of the records is no help: noise is computed from mu, which may be 1/n."""

    def problems(**wrong):
        penalty = Ridge(strength, **{"mu": strength, "L": strength, **wrong})
        return neighbouring(kind(regularizer=penalty))

    testing.check_problem(*problems())
    outside = r"curvature of the regularizer along .* outside its \[mu, L\]"
    for wrong in ({"mu": 1.01 * strength, "L": 1.0}, {"free": 1}, {"mu": 0.0, "L": 0.9 * strength}):
        with pytest.raises(AssertionError, match=outside):
            testing.check_problem(*problems(**wrong))
    with pytest.raises(AssertionError, match=r"hessian_diagonal is .* along coordinate 0"):
        testing.check_problem(*problems(stated=1.1))


@dataclasses.dataclass(frozen=True)
class Cornered(Ridge):
    """The ridge penalty plus a multiple of the absolute values, but for their corner at 0."""

    corner: float = 0.0

    def value(self, w):
        return super().value(w) + self.corner * np.abs(w).sum(axis=-1)

    def gradient(self, w):
        return super().gradient(w) + self.corner * np.sign(w)


def test_a_corner_of_a_penalty_at_0_is_found():
    message = r"curvature of the regularizer along a direction at size 0 is .* outside its"
    with pytest.raises(AssertionError, match=message):
        testing.check_problem(kind(regularizer=Cornered(0.1, 0.1, 0.1, corner=1e-6))())


def test_large_gradients_without_curvature_are_no_violation():
    """Rounding of the gradients is not counted as curvature, here of size 0."""
    X, y = 1e5 * np.sign(DATA), np.sign(DATA[:, 0])
    problem = dpa.ERM(X, y, dpa.losses.Huber(1e-3), None, dpa.RowBound(math.inf, 1e5))
    testing.check_problem(problem)


class Linear(Median):
    """Losses <x, w>/||x||, so that all curvature is that of the penalty."""

    regularizer = dpa.regularizers.L2(1e-5)

    def each(self, w, rows):
        X = self.X if rows is None else self.X[rows]
        X = X / np.hypot(*X.T)[:, None]
        return X @ w, X


def test_a_small_mu_of_a_problem_is_checked():
    class Stated(Linear):
        def __init__(self, X=DATA):
            super().__init__(X)
            self.mu = 1.5e-5

    testing.check_problem(*neighbouring(Linear))
    with pytest.raises(AssertionError, match=r"outside \[mu, L\] = \[1.5e-05, 1.00001\]"):
        testing.check_problem(*neighbouring(Stated))


class Centered(Median):
    """Records are moved by a share of their mean, which bounds on single records do not reveal."""

    def records(self, w, rows):
        return super().records(w, rows) + 0.1 * self.X.mean(axis=0)


class Weighs(Median):
    """Records count by the frequency of large ones, as by that of their class."""

    def each(self, w, rows):
        losses, gradients = super().each(w, rows)
        share = 0.5 + 0.2 * np.mean(self.X[:, 0] > 2.0)
        return share * losses, share * gradients


@pytest.mark.parametrize("kind", [Centered, Weighs])
def test_a_record_that_moves_the_others_a_little_is_found(kind):
    """The sum moves by less than its sensitivity here, but another data set may move it further."""
    with pytest.raises(AssertionError, match="changes the gradients of others, as of records"):
        testing.check_problem(*neighbouring(kind))
