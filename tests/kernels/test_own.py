"""User-defined losses and clipping rules: their own formulas run, as arrays and compiled."""

import functools
import math
import pickle
import threading
import warnings

import array_api_strict
import numpy as np
import pytest
import scipy.sparse as sp
from array_api_compat import array_namespace

import dpanalysis as dpa
from dpanalysis import ERM, RowBound, clipping, losses
from dpanalysis.kernels import kernel_table, user
from dpanalysis.privacy.oracle import PrivateOracle
from dpanalysis.problems import MLP, Softmax
from dpanalysis.problems.rows.memory import HostSums


class Halved(losses.Logistic):
    """Half of the logistic loss, constants included."""

    lipschitz, smoothness = 0.5, 0.125

    def value(self, z, y):
        return 0.5 * super().value(z, y)

    def derivative(self, z, y):
        return 0.5 * super().derivative(z, y)


def softplus(a):
    """Return log(1 + exp(a)): a helper of the module, on arrays or numbers."""
    return np.maximum(a, 0.0) + np.log1p(np.exp(-np.abs(a)))


class Soft(losses.Loss):
    """A logistic loss of the margin over a width, with an instance and a class attribute."""

    classification, convex, _unit = True, True, 1.0

    def __init__(self, width):
        self._width = width

    @property
    def lipschitz(self):
        return self._unit / self._width

    @property
    def smoothness(self):
        return 0.25 / self._width**2

    def value(self, z, y):
        return self._unit * softplus(-y * z / self._width)

    def derivative(self, z, y):
        xp = array_namespace(z)
        margin = y * z / self._width
        e = xp.exp(-xp.abs(margin))
        return -y / self._width * xp.where(margin < 0, xp.ones_like(e), e) / (1.0 + e)


class Root(clipping.Clipping):
    """A user-defined rule of the norm."""

    def __init__(self, clip_norm):
        self.clip_norm = clip_norm

    def wanted(self, norms, losses):
        return 1.0 / np.sqrt(1.0 + norms)

    def __repr__(self):
        return f"Root({self.clip_norm})"


SOFT = losses.compiled(Soft(0.5))
FORMS = {
    "dense": lambda X: X,
    "float32": lambda X: X.astype(np.float32),
    "csr": sp.csr_array,
}


def draw(n=70, d=5):
    random = np.random.default_rng(4)
    X = random.standard_normal((n, d)) * (random.random((n, d)) < 0.8)
    return X, np.where(random.random(n) < 0.5, -1.0, 1.0), random.standard_normal((4, d))


def same(found, expected, rtol=1e-12):
    np.testing.assert_allclose(found.gradient, expected.gradient, rtol=rtol, atol=1e-12)
    np.testing.assert_allclose(found.value, expected.value, rtol=rtol)
    np.testing.assert_array_equal(found.clipped, expected.clipped)


# User formulas are used, within their stated constants


@pytest.mark.parametrize("form", [*FORMS.values(), array_api_strict.asarray])
def test_a_class_that_extends_a_built_in_loss_runs_its_own_formulas(form):
    """Half the loss has half the gradient, for which the noise is scaled."""
    X, y, W = draw()
    halves = ERM(form(X), y, Halved(), row_bound=RowBound(2, 1.0)).sums(W)
    whole = ERM(form(X), y, losses.Logistic(), row_bound=RowBound(2, 1.0)).sums(W)
    np.testing.assert_allclose(2.0 * halves.gradient, whole.gradient, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(2.0 * halves.value, whole.value, rtol=1e-5)


def test_kernels_go_by_the_exact_class():
    assert not kernel_table.is_compiled_loss(Halved()) and not kernel_table.is_compiled_rule(
        Root(1.0)
    )
    wide = type("Wide", (clipping.Flat,), {"wanted": lambda self, norms, losses: 0.25 * norms**0})
    X, y, W = draw()
    problem = ERM(X, y, losses.Logistic())
    assert type(problem._data.backend(wide(1.0))) is HostSums
    found = problem.sums(W, clipping=wide(100.0)).gradient
    np.testing.assert_allclose(found, 0.25 * problem.sums(W).gradient, rtol=1e-12)


def test_a_built_in_loss_cannot_be_changed_by_hand():
    """The compiled kernel would ignore the change."""
    for loss in (losses.Logistic(), losses.SquaredError(), losses.Hinge(), losses.HuberizedHinge()):
        for name, item in (("value", math.exp), ("lipschitz", 0.1), ("other", 1.0)):
            with pytest.raises((AttributeError, TypeError)):
                setattr(loss, name, item)


class Halves(losses.Loss):
    """A loss without parameters."""

    convex, lipschitz, smoothness = True, 0.5, 0.5

    def value(self, z, y):
        return 0.5 * (np.sqrt(1.0 + (z - y) ** 2) - 1.0)

    def derivative(self, z, y):
        return 0.5 * (z - y) / np.sqrt(1.0 + (z - y) ** 2)

    def __eq__(self, other):
        return type(self) is type(other)

    def __hash__(self):
        return 7

    def __repr__(self):
        return "Halves()"


class Lying(losses.Loss):
    """A loss whose derivative is 10 at one margin that is on no grid."""

    classification, lipschitz = True, 1.0

    def value(self, z, y):
        return np.where(z == 0.123456789, 3.0, 1.0 + 0.0 * y * z)

    def derivative(self, z, y):
        return np.where(z == 0.123456789, 10.0, -0.5 * y + 0.0 * z)


class Lifting(clipping.Clipping):
    """A rule with weights above its bound, above its largest weight, and below zero."""

    clip_norm, largest_weight = 2.0, 1.5

    def weight(self, norms, losses=None):
        return np.where(norms < 0.2, 40.0, np.where(norms < 5.0, 1.5, np.where(norms < 9, 1e9, -1)))

    def wanted(self, norms, losses):
        raise NotImplementedError


@pytest.mark.slow
def test_formulas_are_clipped_to_the_stated_constants():
    problem = ERM(np.array([[1.0], [2.0]]), np.ones(2), Lying(), row_bound=RowBound(2, 2.0))
    assert problem.sums([0.123456789], value=False).gradient == 1.0 - 0.5 * 2.0
    compiled = ERM(np.array([[1.0], [2.0]]), np.ones(2), losses.compiled(Lying()))
    assert compiled.sums([0.123456789], value=False).gradient == 1.0 - 0.5 * 2.0
    X = np.array([[0.1], [3.0], [8.0], [10.0]])
    for rows, expected in (([0], 0.15), ([1], 2.0), ([2], 2.0), ([3], 0.0)):
        problem = ERM(X[rows], -np.ones(1), losses.Hinge())
        found = problem.sums([0.0], clipping=Lifting(), value=False)
        assert found.gradient == pytest.approx([expected], rel=1e-14)
        assert (np.abs(found.gradient) <= 2.0).all()


class Constant(clipping.Clipping):
    """The same weight for every sample, even beyond the bound."""

    clip_norm, size = 10.0, 5.0

    def wanted(self, norms, losses):
        return self.size + 0.0 * norms

    def weight(self, norms, losses=None):
        return self.wanted(norms, losses)


@pytest.mark.parametrize("size", [5.0, -5.0, 1e300, math.nan])
def test_networks_keep_the_constants_of_a_rule_too(size):
    """A weight of 5 once moved a sum by 7.07 at a sensitivity of 1.41."""
    rule = Constant()
    rule.size = size
    bound = RowBound(2, 1.0)
    w = np.array([0.0, 0.0, 9.0, 0.0])
    for problem in (
        Softmax(np.array([[1.0, 0.0]]), [0], 2, row_bound=bound),
        MLP(np.array([[1.0, 0.0]]), [0], (), 2, bias=False, row_bound=bound),
    ):
        charged = problem.facts("add_or_remove_one").record_sensitivity(2, rule)
        assert np.linalg.norm(problem.sums(w, clipping=rule).gradient) <= charged


class Failing(losses.Loss):
    """A loss that raises an error, or gives NaN, at one prediction only."""

    lipschitz = 1.0

    def value(self, z, y):
        if np.any(z == 3.0):
            raise ArithmeticError("a record that should not show")
        return np.where(z == 4.0, np.nan, np.abs(z))

    def derivative(self, z, y):
        if np.any(z == 3.0):
            raise ArithmeticError("a record that should not show")
        return np.where(z == 5.0, np.nan, np.sign(z))


def test_a_formula_that_fails_at_one_record_adds_zero_there():
    X, w = np.array([[1.0], [3.0], [2.0], [4.0], [5.0]]), np.array([1.0])
    problem = ERM(X, np.zeros(5), Failing())
    for rule in (None, clipping.Flat(100.0)):
        sums = problem.sums(w, clipping=rule)
        assert sums.value == 1.0 + 2.0 + 5.0 and sums.gradient == 1.0 + 2.0 + 4.0
        one = problem.sums(w, np.array([1]), clipping=rule)
        assert one.value == 0.0 and one.gradient == 0.0 and one.clipped == 0


class Refusing(clipping.Clipping):
    """A rule that raises an error at large norms."""

    clip_norm = 1.0

    def wanted(self, norms, losses):
        if (norms > 2.5).any():
            raise ArithmeticError("a record that should not show")
        return 1.0 / (1.0 + norms)


def test_a_rule_that_fails_at_one_record_adds_zero_there():
    X, y = np.array([[1.0], [3.0], [2.0]]), np.array([0, 1, 0])
    erm, rest = (ERM(X[k], -np.ones(len(X[k])), losses.Hinge()) for k in ([0, 1, 2], [0, 2]))
    for w in (np.zeros(1), np.zeros((3, 1))):
        both, one = (problem.sums(w, clipping=Refusing()).gradient for problem in (erm, rest))
        np.testing.assert_array_equal(both, one)
        assert np.linalg.norm(one) > 1.0
    nets = [Softmax(X[k], y[k], 2) for k in ([0, 1, 2], [0, 2])]
    w = 9.0 * np.array([[-1.0, 1.0], [1.0, -1.0]])  # where the wrong class has all probability
    both, one = (problem.sums(w, np.array([0]), Refusing()).gradient for problem in nets)
    np.testing.assert_array_equal(both, one)


class Imaginary(clipping.Clipping):
    """A rule whose weights are all complex numbers if one norm is above 2.5."""

    clip_norm = 1.0

    def wanted(self, norms, losses):
        return np.where(norms > 2.5, 0.5, np.emath.sqrt(2.5 - norms))


class ImaginaryLoss(losses.Loss):
    """A loss whose numbers are all complex if one prediction is 3."""

    lipschitz = 1.0

    def value(self, z, y):
        return np.abs(z) + 0.0 * np.emath.sqrt(np.where(z == 3.0, -1.0, 1.0))

    def derivative(self, z, y):
        return np.sign(z) + 0.0 * np.emath.sqrt(np.where(z == 3.0, -1.0, 1.0))


def test_one_complex_number_does_not_make_all_complex():
    """One record changed the type of all terms: a sum with it failed, or warned."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")  # an error would count as a failure of the formula
        check_sums_with_a_complex_number()
    assert not heard


def check_sums_with_a_complex_number():
    X, y = np.array([[1.0], [3.0], [2.0]]), np.array([0, 1, 0])
    chosen = [0, 1, 2], [0, 2]
    for loss, rule, sign in ((losses.Hinge(), Imaginary(), -1.0), (ImaginaryLoss(), None, 1.0)):
        both, rest = (ERM(X[k], np.ones(len(k)), loss) for k in chosen)
        for w in (np.full(1, sign), np.full((3, 1), sign)):
            sums, others = both.sums(w, clipping=rule), rest.sums(w, clipping=rule)
            np.testing.assert_array_equal(sums.gradient, others.gradient)
            assert rule or np.array_equal(sums.value, others.value)
    w = np.array([0.5, -0.5])  # the norm of the second gradient is 4.0
    nets = [Softmax(X[k], y[k], 2) for k in chosen]
    both, one = (problem.sums(w, clipping=Imaginary()).gradient for problem in nets)
    np.testing.assert_array_equal(both, one)
    assert np.linalg.norm(one) > 0.1


def test_a_rule_with_complex_numbers_is_refused_before_anything_is_spent():
    with pytest.raises(ValueError, match=r"Imaginary\.weight gives complex numbers"):
        train(losses.Logistic(), Imaginary(), dpa.Budget(1.0, 1e-5))


# Formulas may use one sample only

MIXED = {
    "centered": lambda z: z - z.mean(),
    "divided by the median": lambda z: z / np.median(np.abs(z)),
    "divided by the largest": lambda z: z / np.abs(z).max(),
    "standardized": lambda z: (z - z.mean(axis=0)) / (1e-9 + z.std(axis=0)),
    "mean of the replicates": lambda z: z - z.mean(axis=-1, keepdims=True),
    "ranks": lambda z: z.argsort(axis=0).argsort(axis=0) / len(z),
    "sums so far": lambda z: np.cumsum(z, axis=0),
    "the first": lambda z: z - z.ravel()[0],
    "how many": lambda z: z / len(z),
    "above a quantile": lambda z: np.where(z > np.quantile(z, 0.99), 0.0, z),
}
HONEST = {
    "z": lambda z: z,
    "exp": lambda z: np.exp(-np.abs(z)),
    "tanh": np.tanh,
    "log1p": lambda z: np.log1p(z * z),
    "power": lambda z: np.abs(z) ** 1.7 / (1.0 + np.hypot(1.0, z)),
    "where": lambda z: np.where(np.abs(z) < 1e-3, z, np.sin(z)),
}


def loss_of(change, formula):
    def changed(self, z, y):
        return np.clip(change(z) - y, -1.0, 1.0) + 0.0 * z

    return type("Mixed", (Halves,), {formula: changed, "lipschitz": 1.0})()


def rule_of(change, needs):
    def wanted(self, norms, losses):
        return 1.0 / (1.0 + np.abs(change(norms + (losses if needs else 0.0))))

    return type(
        "Mixed", (clipping.Clipping,), {"wanted": wanted, "clip_norm": 1.0, "needs_losses": needs}
    )()


def train(loss, rule, guard):
    X = np.random.default_rng(0).normal(size=(40, 2))
    problem = ERM(X, np.ones(40), loss, dpa.regularizers.L2(0.1), RowBound(2, 1.0))
    plan = dpa.methods.GradientDescent(0.1, 2, mechanism="gaussian", clipping=rule)
    return dpa.minimize(problem, plan, guard, rng=0, record=())


@pytest.mark.parametrize("change", [*MIXED, *HONEST])
@pytest.mark.parametrize("formula", ["value", "derivative", "second_derivative"])
def test_a_loss_that_looks_at_other_samples_is_refused_before_anything_is_spent(change, formula):
    """Centered predictions moved a sum by 197 at a sensitivity of 2."""
    loss = loss_of({**MIXED, **HONEST}[change], formula)
    guard = dpa.Budget(1.0, 1e-5)
    if change in HONEST:
        assert train(loss, clipping.Flat(1.0), guard).private
        return
    with pytest.raises(ValueError, match=rf"Mixed\.{formula} gives a sample other numbers"):
        train(loss, clipping.Flat(1.0), guard)
    free = dpa.minimize(
        ERM(np.eye(2), [1, 1], loss), dpa.methods.GradientDescent(0.1, 1), record=()
    )
    assert not free.private  # allowed without a privacy guarantee


@pytest.mark.parametrize("change", [*MIXED, *HONEST])
@pytest.mark.parametrize("needs", [False, True])
def test_a_rule_that_looks_at_other_samples_is_refused_before_anything_is_spent(change, needs):
    """A median of norms moved a sum by 499.5 at a sensitivity of 2."""
    rule, guard = rule_of({**MIXED, **HONEST}[change], needs), dpa.Budget(1.0, 1e-5)
    for _ in range(2):  # a refused rule stays refused
        if change in HONEST:
            assert train(losses.Logistic(), rule, guard).private
            continue
        with pytest.raises(ValueError, match=r"Mixed\.weight gives a sample other numbers"):
            train(losses.Logistic(), rule, guard)
    network = MLP(np.eye(3), [0, 1, 1], (2,), 2)
    method = dpa.methods.GradientDescent(0.1, 1, mechanism="gaussian", clipping=rule)
    if change in MIXED:
        with pytest.raises(ValueError, match="gives a sample other numbers"):
            dpa.minimize(network, method, guard, rng=0)


class Running:
    """A running average of the norms."""

    mean = 1.0

    def __call__(self, norm, loss):
        self.mean = 0.9 * self.mean + 0.1 * min(norm, 1e3)
        return 1.0 / (self.mean + norm + 1.0)


class Counting(clipping.Clipping):
    """A rule that counts its calls and changes its formula after 100."""

    clip_norm, calls = 1.0, 0

    def wanted(self, norms, losses):
        self.calls += 1
        return np.ones_like(norms) / (norms.mean() if self.calls > 100 else 1.0)


class Keeping(Halves):
    """A loss that stores its arguments."""

    def __init__(self):
        self.seen = []

    def value(self, z, y):
        self.seen.append(float(np.max(z)))
        return super().value(z, y)


def test_formulas_with_state_are_refused_before_anything_is_spent():
    for loss, rule, message in [
        (losses.Logistic(), clipping.Custom(Running(), 1.0), "Custom.weight gives a sample other"),
        (losses.Logistic(), Counting(), "Counting.weight changes attributes of its object"),
        (Keeping(), clipping.Flat(1.0), "Keeping.value changes attributes of its object"),
    ]:
        with pytest.raises(ValueError, match=message):
            train(loss, rule, dpa.Budget(1.0, 1e-5))


LARGEST = {"global": 0.0}


def _largest(norms):
    LARGEST["global"] = max(LARGEST["global"], float(norms.max()))
    return LARGEST["global"] > 1e30


def remembering():
    """Yield rules with state, stored in different places, that change beyond any tested norm."""
    enclosed = [0.0]

    class InClass(clipping.Clipping):
        clip_norm, seen = 1.0, [0.0]

        def wanted(self, norms, losses):
            self.seen[0] = max(self.seen[0], float(norms.max()))
            return np.full_like(norms, float(self.seen[0] < 1e30))

    class Rebound(InClass):
        largest = 0.0

        def wanted(self, norms, losses):
            type(self).largest = max(self.largest, float(norms.max()))
            return np.full_like(norms, float(self.largest < 1e30))

    class Enclosed(clipping.Clipping):
        clip_norm = 1.0

        def wanted(self, norms, losses):
            enclosed[0] += norms.size
            return np.full_like(norms, float(enclosed[0] < 1e9))

    class Default(clipping.Clipping):
        clip_norm = 1.0

        def wanted(self, norms, losses, seen=[0]):  # noqa: B006
            seen[0] += norms.size
            return np.full_like(norms, float(seen[0] < 1e9))

    class ByProperty(clipping.Clipping):
        clip_norm = 1.0

        @property
        def calls(self):
            enclosed[0] += 1
            return enclosed[0]

        def wanted(self, norms, losses):
            return np.full_like(norms, float(self.calls < 1e9))

    class Global(clipping.Clipping):
        clip_norm = 1.0

        def wanted(self, norms, losses):
            return np.full_like(norms, 0.0 if _largest(norms) else 1.0)

    yield from (InClass(), Rebound(), Enclosed(), Default(), ByProperty(), Global())

    def function(norm, loss):
        enclosed[0] += 1
        return (1.0 if enclosed[0] < 1e9 else 0.0) / max(1.0, norm)

    yield clipping.Custom(function, 1.0)


@pytest.mark.parametrize("number", range(7))
def test_formulas_with_hidden_state_are_refused_before_anything_is_spent(number):
    """After one record of a large norm, or many calls, all weights would be zero."""
    rule = list(remembering())[number]
    guard = dpa.privacy.Filter(dpa.Budget(1.0, 1e-5))
    problem = ERM(np.eye(2), [1, -1], losses.Logistic())
    facts = problem.facts("replace_one")
    oracle = PrivateOracle(problem, facts, guard, [0])
    for _ in range(2):
        with pytest.raises(ValueError, match="enclosed or global variables"):
            oracle.gradient(np.zeros(2), dpa.Full(), "gaussian", 9.0, rule)
    assert guard.spent == 0.0


def by_dimension(z):
    return z - z.mean() if z.ndim == 1 else z


def by_length(z):
    return z - z.mean() if len(z) > 5000 else z


def in_place(z):
    np.clip(z, -1.0, 1.0, out=z)
    return z


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (by_dimension, "other numbers"),
        (by_length, "other numbers"),
        (in_place, "writes to its"),
    ],
)
def test_formulas_are_tried_in_one_dimension_and_long_and_may_not_write(change, message):
    """Losses along a line are computed in one dimension, those of all records in one call."""
    for formula in ("value", "derivative"):
        with pytest.raises(ValueError, match=message):
            train(loss_of(change, formula), clipping.Flat(1.0), dpa.Budget(1.0, 1e-5))

    class Direct(clipping.Clipping):
        clip_norm = 1.0

        def wanted(self, norms, losses):
            return 1.0 / (1.0 + np.abs(change(norms)))

    with pytest.raises(ValueError, match=message):
        train(losses.Logistic(), Direct(), dpa.Budget(1.0, 1e-5))


def test_a_rule_that_cannot_be_tried_is_refused():
    rule = type("Torch", (clipping.Clipping,), {"clip_norm": 1.0, "wanted": lambda *a: a[1].no})
    with pytest.raises(ValueError, match=r"Torch\.weight fails for NumPy arrays"):
        train(losses.Logistic(), rule(), dpa.Budget(1.0, 1e-5))


def test_value_clipping_of_a_users_class_is_tried_with_constants():
    class Softer(clipping.Value):
        def wanted(self, norms, losses):
            return 0.5 * super().wanted(norms, losses)

    loss = losses.Logistic()
    for rule in (Softer(1.0), Softer(1.0, *loss.weak_growth(1.0)), clipping.Value(1.0)):
        assert train(loss, rule, dpa.Budget(1.0, 1e-5)).private


# Compiled


@pytest.mark.parametrize(
    ("form", "rule"),
    [
        ("dense", clipping.Flat(0.8)),
        ("float32", clipping.Flat(0.8)),
        ("csr", clipping.Flat(0.8)),
        ("dense", None),
        ("csr", clipping.Automatic(0.3)),
    ],
)
def test_compiled_sums_are_those_of_the_arrays(form, rule):
    X, y, W = draw()
    fast, slow = (ERM(FORMS[form](X), y, loss) for loss in (SOFT, Soft(0.5)))
    rows = np.array([0, 69, 7, 7, 40])
    k = np.random.default_rng(1).integers(0, 3, 70).astype(float)
    for w, chosen in ((W[0], None), (W[0], rows), (W, None), (W, rows), (W, [rows] * 4)):
        same(fast.sums(w, chosen, rule), slow.sums(w, chosen, rule))
        same(fast.sums(w, chosen, rule, weights=k), slow.sums(w, chosen, rule, weights=k))
    assert kernel_table.is_compiled(fast.loss, rule)


@pytest.mark.slow
def test_rules_compile_too():
    X, y, W = draw()
    by_both = clipping.Custom(lambda norm, loss: 0.6 / (norm + loss + 0.1), 0.6)
    for rule, loss in ((by_both, SOFT), (Root(0.9), losses.Logistic())):
        fast = clipping.compiled(rule)
        assert kernel_table.is_compiled_rule(fast) and repr(fast) == f"compiled({rule!r})"
        assert (fast.clip_norm, fast.largest_weight) == (rule.clip_norm, rule.largest_weight)
        assert fast.needs_losses == rule.needs_losses
        problem = ERM(X, y, loss)
        same(problem.sums(W[0], clipping=fast), problem.sums(W[0], clipping=rule))
        again = pickle.loads(pickle.dumps(Root(0.9))) if rule is not by_both else rule
        assert type(clipping.compiled(again)) is type(fast)


def test_compiled_weights_are_cut_to_what_the_rule_promises():
    """The rule violates its constants at a norm that is on no grid."""
    for fault, expected in ((1e9, 1.5), (-1.0, 0.0), (math.nan, 0.0), (math.inf, 1.5)):
        rule = type("Fault", (clipping.Clipping,), {"wanted": _wanted, "clip_norm": 2.0})()
        type(rule).fault, type(rule).largest_weight = fault, 1.5
        fast = clipping.compiled(rule)
        problem = ERM(np.array([[0.777], [1e3]]), -np.ones(2), losses.Hinge())
        for each in (rule, fast):
            found = problem.sums([0.0], np.array([0]), each).gradient
            assert found == pytest.approx([expected * 0.777])


def _wanted(self, norms, losses):
    return np.where(norms == 0.777, self.fault, np.where(norms > 2.0, 2.0 / norms, 1.0))


def test_a_compiled_loss_with_a_rule_that_is_not_runs_as_arrays():
    X, y, W = draw()
    rule = clipping.Custom(_stateful, 1.0)
    same(ERM(X, y, SOFT).sums(W, clipping=rule), ERM(X, y, Soft(0.5)).sums(W, clipping=rule))


def _stateful(norm, loss):
    return min(1.0, 1.0 / max(norm, 1e-9)) if str(norm) else 0.0


def test_what_is_not_finite_adds_zero_to_compiled_sums():
    X = np.array([[1.0], [1e300], [-1e300]])
    problem = ERM(X, np.ones(3), SOFT)
    for w in ([1e10], [-1e10]):
        one, both = problem.sums(w, np.array([0])), problem.sums(w)
        assert (both.value, both.gradient) == (one.value, one.gradient)


def test_every_number_of_the_object_is_an_argument():
    """Other parameters reuse the same kernels, and a change takes effect at once."""
    other = losses.compiled(Soft(2.0))
    for sparse in (True, False):
        plans = [kernel_table.plan(loss, None, sparse) for loss in (SOFT, other)]
        built_in = kernel_table.plan(losses.Logistic(), None, sparse)
        assert plans[0].terms == plans[1].terms != built_in.terms
        assert (plans[0].numbers != plans[1].numbers).any()
        assert plans[0].kernels == plans[1].kernels == built_in.kernels
    X, y, W = draw()
    same(ERM(X, y, other).sums(W[0]), ERM(X, y, Soft(2.0)).sums(W[0]))


@pytest.mark.slow
@pytest.mark.parametrize("form", ["dense", "csr"])
@pytest.mark.parametrize("replicates", [1, 4])
def test_a_record_adds_the_same_to_compiled_sums_wherever_it_stands(form, replicates):
    """The last samples of a tile, unlike the others, are not computed in vector registers."""
    X, _, W = draw()
    n, w = 259, W[:replicates]
    problem = ERM(FORMS[form](np.tile(X[0], (n, 1))), np.ones(n), SOFT)
    terms = set()
    for place in (*range(9), 127, 128, *range(250, n)):
        sums = problem.sums(w, clipping=clipping.compiled(Root(0.9)), weights=np.eye(n)[place])
        terms.add(sums.gradient.tobytes() + sums.value.tobytes())
    assert len(terms) == 1


def test_compiled_losses_are_values_that_can_be_pickled():
    again = pickle.loads(pickle.dumps(losses.compiled(Halves())))
    assert again == losses.compiled(Halves()) and hash(again) == hash(losses.compiled(Halves()))
    assert type(again.loss) is Halves and repr(again) == "compiled(Halves())"
    assert (again.lipschitz, again.smoothness, again.hessian_lipschitz) == (0.5, 0.5, math.inf)
    assert (again.classification, again.convex) == (False, True)
    assert again.weak_growth(2.0) == Halves().weak_growth(2.0) == (0.0, 1.0)
    assert losses.compiled(again) is again and losses.compiled(losses.Hinge()) == losses.Hinge()
    with pytest.raises(NotImplementedError, match="Halves has no second_derivative"):
        again.second_derivative(1.0, 1.0)


def test_threads_compile_one_kernel():
    found, errors = [], []

    def work():
        try:
            loss = losses.compiled(Soft(0.7))
            found.append(kernel_table.plan(loss, None, sparse=False).terms)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and len(set(found)) == 1


class Method(Halves):
    def gap(self, z, y):
        return z - y

    def value(self, z, y):
        return 0.5 * (np.sqrt(1.0 + self.gap(z, y) ** 2) - 1.0)


class Raising(Halves):
    def value(self, z, y):
        if z is None:
            raise ValueError("never")
        return 0.5 * (np.sqrt(1.0 + (z - y) ** 2) - 1.0)


class Strange(Halves):
    def value(self, z, y):
        return np.linalg.norm(np.stack([z, y]), axis=0) * 0.0 + 1.0


class Partial(Halves):
    value = functools.partialmethod(Halves.value)


class Called(Halves):
    value = staticmethod(functools.partial(Halves.value, None))


@pytest.mark.parametrize(
    ("loss", "reason"),
    [
        (Method(), r"calls self\.gap"),
        (Raising(), "raises"),
        (Strange(), "Numba cannot compile"),
        (Partial(), "Numba cannot compile"),
        (Called(), "value is not a plain method"),
    ],
)
def test_what_cannot_be_compiled_says_so_and_runs_as_arrays(loss, reason):
    with pytest.warns(UserWarning, match=rf"Halves\(\) is not compiled.*{reason}"):
        assert losses.compiled(loss) is loss
    X, y, W = draw()
    assert np.isfinite(ERM(X, y, loss).sums(W).gradient).all()


def test_rules_that_cannot_be_compiled_say_so():
    for rule, reason in (
        (Lifting(), "weight of its own"),
        (clipping.Custom(_Call(), 1.0), "plain"),
    ):
        with pytest.warns(UserWarning, match=f"not compiled.*{reason}"):
            assert clipping.compiled(rule) is rule
    assert clipping.compiled(clipping.Flat(1.0)) == clipping.Flat(1.0)
    with pytest.raises(TypeError, match="clipping must be a rule"):
        clipping.compiled("flat")


class _Call:
    def __call__(self, norm, loss):
        return 0.0


class Restless(Halves):
    """A loss with an attribute that changes each time it is read."""

    seen = 0.0

    @property
    def shift(self):
        type(self).seen += 1.0
        return type(self).seen

    def value(self, z, y):
        return self.shift + 0.0 * z + 0.0 * y


@pytest.mark.slow
def test_formulas_that_differ_from_those_of_the_arrays_are_refused():
    with pytest.raises(ValueError, match=r"Restless.value gives .* arrays and .* compiled"):
        losses.compiled(Restless())


def test_the_warning_is_one_line():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        losses.compiled(Strange())
    assert len(caught) == 1 and "\n" not in str(caught[0].message)
    with pytest.raises(user.CannotCompile):
        user.loss_formulas(Method())


def test_a_plan_that_is_kept_is_that_of_the_rule_at_hand():
    """User-defined rules may change, unlike built-in ones: they are read at every call."""
    X, y, W = draw()
    problem, fresh = ERM(X, y, losses.Logistic()), lambda: ERM(X, y, losses.Logistic())
    root = clipping.compiled(Root(1.0))
    for rule in (clipping.Flat(0.1), None, clipping.Flat(0.3), root, clipping.Automatic(0.2, 0.1)):
        for _ in range(2):
            same(problem.sums(W, clipping=rule), fresh().sums(W, clipping=rule))
    object.__setattr__(root.rule, "clip_norm", 0.05)
    bound = 0.05 * len(y)
    assert np.linalg.norm(problem.sums(W[0], clipping=root).gradient) <= bound
    same(problem.sums(W, clipping=root), fresh().sums(W, clipping=root))


class Movable(clipping.Clipping):
    clip_norm = 1.0

    def wanted(self, norms, losses):
        return 1.0 + 0.0 * norms


def test_numbers_of_a_compiled_rule_are_read_at_each_sum():
    """Noise for a smaller clip norm must not go with the sums of the one before."""
    rule = Movable()
    compiled, problem = clipping.compiled(rule), ERM(9.0 * np.eye(2), [1, -1], losses.Logistic())
    for rule.clip_norm in (1.0, 0.1):
        gradient = problem.sums(np.zeros(2), clipping=compiled, value=False).gradient
        np.testing.assert_allclose(np.abs(gradient), rule.clip_norm, rtol=1e-9)


STEEPNESS = 1.0


def steep(a):
    """Return a multiple of the margin: a helper that reads a global variable."""
    return STEEPNESS * a


def test_formulas_are_compiled_again_when_what_they_read_has_changed(monkeypatch):
    """Global and enclosed variables and helpers; else the curvature is not the stated one."""
    power = 1.0

    class Steep(losses.Loss):
        classification, convex = True, True
        lipschitz = property(lambda self: STEEPNESS * power)
        smoothness = property(lambda self: 0.25 * (STEEPNESS * power) ** 2)

        def value(self, z, y):
            return np.log1p(np.exp(-y * power * steep(z)))

        def derivative(self, z, y):
            return -y * steep(power) / (1.0 + np.exp(y * power * steep(z)))

    def weight(norm, loss):
        return power / (STEEPNESS + norm)

    X, y, w = np.array([[0.6, 0.8], [1.0, 0.0]]), [1, -1], np.array([0.3, -0.2])
    loss, rule = losses.compiled(Steep()), clipping.compiled(clipping.Custom(weight, 9.0))
    assert kernel_table.is_compiled(loss, rule)

    def agree():
        problem, arrays = (ERM(X, y, each, row_bound=RowBound(2, 1.0)) for each in (loss, Steep()))
        found = problem.sums(w, clipping=rule), arrays.sums(w, clipping=rule.rule)
        np.testing.assert_allclose(found[0].gradient, found[1].gradient, rtol=1e-12)
        np.testing.assert_allclose(found[0].value, found[1].value, rtol=1e-12)
        return found[0].gradient

    first = agree()
    monkeypatch.setitem(globals(), "STEEPNESS", 4.0)
    second = agree()
    power = 0.5
    third = agree()
    monkeypatch.setitem(globals(), "steep", lambda a: 2.0 * a)
    fourth = agree()
    assert len({each.tobytes() for each in (first, second, third, fourth)}) == 4
    count = len(user._losses), len(user._rules)
    agree()
    assert (len(user._losses), len(user._rules)) == count
