"""User classes that override answers must also override the facts, events or constants."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpanalysis as dpa
from dpanalysis import clipping, losses, regularizers
from dpanalysis.privacy.events import Pure
from dpanalysis.privacy.facts import PublicFacts
from dpanalysis.privacy.oracle import PrivateOracle
from dpanalysis.privacy.queries import NoisyHessian, NoisyValue, PerturbedMinimum
from dpanalysis.problems import MLP, Softmax

BOUND = dpa.RowBound(2, 1.0)


class Doubled(dpa.ERM):
    """Its sums are twice those for which the bounds hold."""

    def sums(self, *args, **options):
        total = super().sums(*args, **options)
        return total._replace(gradient=2.0 * total.gradient)


class Stated(Doubled):
    """Its bounds are doubled too."""

    def gradient_bound(self, order):
        return 2.0 * super().gradient_bound(order)

    def facts(self, relation):
        return super().facts(relation)


class Below(Stated):
    """It overrides sums in a subclass of the class that stated the bounds."""

    def gradient_sum(self, *args, **options):
        return 2.0 * super().gradient_sum(*args, **options)


class Named(dpa.ERM):
    """It changes nothing that affects privacy."""

    def initial(self, rng=None):
        return np.ones(self.d)


class Solved(dpa.ERM):
    """Its minimizer is that of another objective."""

    def minimize_perturbed(self, *arguments, **options):
        w, steps = super().minimize_perturbed(*arguments, **options)
        return 2.0 * w, steps


class Rows(Softmax):
    """A network with another evaluation."""

    def _evaluate(self, *arguments):
        return super()._evaluate(*arguments)


class Bent(dpa.ERM):
    """Its Hessians exceed the bound for one record."""

    def _hessian_sum(self, w, rows=None):
        return 1e3 * super()._hessian_sum(w, rows)


def run(kind, *more):
    problem = kind(np.eye(2), np.array([1.0, 1.0]), *more, row_bound=BOUND)
    return dpa.minimize(problem, dpa.methods.GradientDescent(0.1, 2), dpa.Budget(1.0), record=())


def test_overridden_sums_need_overridden_facts():
    loss = dpa.losses.Logistic()
    with pytest.raises(TypeError, match="Doubled overrides sums, but its facts are those of Empi"):
        run(Doubled, loss)
    with pytest.raises(TypeError, match="Below overrides gradient_sum, but its facts are those"):
        run(Below, loss)
    with pytest.raises(TypeError, match="Rows overrides _evaluate"):
        run(Rows, 2)
    with pytest.raises(TypeError, match="Solved overrides minimize_perturbed"):
        run(Solved, loss)
    with pytest.raises(TypeError, match="Bent overrides _hessian_sum"):
        run(Bent, loss)
    assert run(Stated, loss).private and run(Named, loss).private and run(dpa.ERM, loss).private


def test_the_oracle_is_answered_by_the_sums_that_the_facts_are_about():
    w = np.array([[0.3, -0.2]])
    own, plain = (
        kind(np.eye(2), np.ones(2), losses.Logistic(), row_bound=BOUND).gradient_sum(w)
        for kind in (Stated, dpa.ERM)
    )
    np.testing.assert_allclose(own, 2.0 * plain, rtol=1e-15)


@pytest.mark.parametrize(
    "name", ["sums", "gradient_sum", "line_losses", "hessian_sum", "hvp_sum", "minimize_perturbed"]
)
def test_no_sum_that_a_query_may_ask_for_is_overridden_without_facts(name):
    kind = type("Other", (dpa.ERM,), {name: lambda *_: None})
    problem = kind(np.eye(2), np.ones(2), losses.Logistic(), row_bound=BOUND)
    with pytest.raises(TypeError, match=f"Other overrides {name}, but its facts are those"):
        problem.check_private()


class Target(dpa.Problem):
    """A problem that extends ``Problem`` directly, with numbers in [0, 1]."""

    d, mu, L, n = 1, 1.0, 1.0, 2

    def facts(self, relation):
        return PublicFacts(self.n, 1, 1.0, 1.0, relation, (1.0, 1.0))

    def value(self, w):
        return 0.5 * np.mean((w - 0.5) ** 2, axis=-1)

    def gradient(self, w):
        return w - 0.5

    def gradient_sum(self, w, rows=None, clipping=None):
        return np.clip(2.0 * w - 1.0, -2.0, 2.0)


class Farther(Target):
    def gradient_sum(self, w, rows=None, clipping=None):
        return 10.0 * super().gradient_sum(w, rows, clipping)


def test_overridden_sums_of_plain_problems_need_overridden_facts():
    method = dpa.methods.GradientDescent(0.1, 2)
    with pytest.raises(TypeError, match="Farther overrides gradient_sum, but its facts are those"):
        dpa.minimize(Farther(), method, dpa.Budget(1.0), record=())
    assert dpa.minimize(Target(), method, dpa.Budget(1.0), record=()).private


class Forgetful(dpa.ERM):
    """It overrides check_private without calling the inherited checks."""

    def check_private(self):
        pass


class ForgetfulSums(Forgetful):
    def gradient_sum(self, *args, **options):
        return 100.0 * super().gradient_sum(*args, **options)


class Lazy(Farther):
    def check_private(self):
        pass


def test_a_check_of_ones_own_adds_to_those_of_the_package():
    """Overriding check_private without super() allowed sums 100 times larger than charged."""
    loss, method = dpa.losses.Logistic(), dpa.methods.GradientDescent(0.1, 2)
    assert run(Forgetful, loss).private
    with pytest.raises(TypeError, match="ForgetfulSums overrides gradient_sum, but its facts are"):
        run(ForgetfulSums, loss)
    with pytest.raises(TypeError, match="Farther overrides gradient_sum, but its facts are those"):
        dpa.minimize(Lazy(), method, dpa.Budget(1.0), record=())
    problem = Forgetful(np.eye(2), np.ones(2), loss, row_bound=BOUND)
    problem._X[0] = 5.0
    with pytest.raises(ValueError, match="X has been changed since the problem was built"):
        dpa.minimize(problem, method, dpa.Budget(1.0), record=())
    problem = dpa.ERM(np.eye(2), np.ones(2), loss, row_bound=BOUND)
    problem.check_private = lambda: None
    problem._X[0] = 5.0
    with pytest.raises(ValueError, match="X has been changed since the problem was built"):
        dpa.minimize(problem, method, dpa.Budget(1.0), record=())


@pytest.mark.parametrize("name", ["gradient_sum", "sums", "hessian_sum", "minimize_perturbed"])
@pytest.mark.parametrize("build", [Target, lambda: dpa.ERM(np.eye(2), [1, 1], dpa.losses.Hinge())])
def test_sums_that_are_set_on_the_object_are_refused(build, name):
    problem, guard = build(), dpa.privacy.Filter(dpa.Budget(1.0))
    setattr(problem, name, lambda *args, **options: np.full((1, problem.d), 1e9))
    facts = problem.facts("replace_one")
    oracle = PrivateOracle(problem, facts, guard, [0])
    rule = dpa.clipping.Flat(1.0) if isinstance(problem, dpa.ERM) else None
    with pytest.raises(TypeError, match=f"{name} must be a method of the problem's class"):
        oracle.gradient(np.zeros(problem.d), dpa.Full(), "laplace", 9.0, rule)
    assert guard.spent == 0.0


# Queries


class Count(NoisyValue):
    """It returns the number of records, but is charged for a noisy mean of losses."""

    def answer(self, records, random):
        return float(records.count), 1


class Priced(Count):
    def event(self, facts, sampling):
        return Pure(0.25)


class Points(NoisyValue):
    def iterates(self):
        return ()


def test_a_query_with_an_answer_of_its_own_states_its_event():
    """A subclass of NoisyValue returned the exact number of records at the cost of a mean."""
    problem = dpa.ERM(np.eye(2), [1, -1], dpa.losses.Logistic(), row_bound=BOUND)
    guard = dpa.privacy.Filter(dpa.Budget(1.0))
    oracle = PrivateOracle(problem, problem.facts("replace_one"), guard, [0])
    arguments = np.zeros(2), 1.0, 9.0, "laplace"
    for kind, name in ((Count, "answer"), (Points, "iterates")):
        with pytest.raises(TypeError, match=f"{kind.__name__} overrides {name}, but its event is"):
            oracle.ask(kind(*arguments), dpa.Full())
        with (
            pytest.raises(TypeError, match=f"{kind.__name__} overrides {name}"),
            oracle.batch(dpa.Full(), [Pure(1e-3)]) as batch,
        ):
            batch.ask(kind(*arguments))
    assert guard.spent == pytest.approx(2e-3)
    assert oracle.ask(Priced(*arguments), dpa.Full()) == 2.0
    assert guard.spent == pytest.approx(0.252)


@dataclass(frozen=True, eq=False)
class Shaped(NoisyHessian):
    """Its noise has an additional parameter that the inherited event ignores."""

    off_diagonal: float


class Costly(Shaped):
    def event(self, facts, sampling):
        return dpa.privacy.events.Gaussian(self.std * self.off_diagonal, 1.0)


class Silent(PerturbedMinimum):
    def _tilt(self, random, d):
        return np.zeros(d), 0.0


def test_fields_and_helpers_of_an_answer_must_be_in_the_event():
    """A field of a subclass of NoisyHessian once removed the noise off the diagonal."""
    penalty = dpa.regularizers.L2(0.1)
    problem = dpa.ERM(np.eye(2), [1, -1], dpa.losses.Logistic(), penalty, BOUND)
    guard = dpa.privacy.Filter(dpa.Budget(1.0, 1e-6))
    oracle = PrivateOracle(problem, problem.facts("replace_one"), guard, [0])
    silent = Silent("spherical", 100.0, 1.0, 1e-3, 100.0)
    for query, name in ((Shaped(np.zeros(2), 1e3, 0.0), "off_diagonal"), (silent, "_tilt")):
        with pytest.raises(TypeError, match=f"overrides {name}, but its event is that of"):
            oracle.ask(query, dpa.Full())
    assert guard.spent == 0.0
    oracle.ask(Costly(np.zeros(2), 1e3, 0.1), dpa.Full())


# Constants belong to the formulas of the class that states them

DEFAULTS = {
    "convex": False,
    "lipschitz": math.inf,
    "smoothness": math.inf,
    "hessian_lipschitz": math.inf,
    "curvature_vanishes_at_max_slope": False,
    "lowest": -math.inf,
}
STATED = {
    "convex": True,
    "lipschitz": 9.0,
    "smoothness": 8.0,
    "hessian_lipschitz": 7.0,
    "curvature_vanishes_at_max_slope": True,
    "lowest": -6.0,
}
PARENTS = [
    losses.Logistic,
    losses.SquaredError,
    losses.Hinge,
    losses.HuberizedHinge,
    losses.Huber,
    type("Compiled", (losses.Loss,), {**STATED, "value": None, "derivative": None, "_part": None}),
]


def formula(*arguments):
    return 0.0


@given(
    parent=st.sampled_from(PARENTS),
    names=st.sets(st.sampled_from(["value", "derivative", "second_derivative", "_part", "_slope"])),
    stated=st.sets(st.sampled_from(sorted(STATED))),
    mixin=st.booleans(),
    labels=st.booleans(),
)
def test_a_class_has_the_constants_that_it_states_or_those_of_the_formulas_that_it_keeps(
    parent, names, stated, mixin, labels
):
    """A class may override a formula, a helper, the labels, directly or by a mixin."""
    members = dict.fromkeys(names, formula)
    if labels:
        members["classification"] = not parent.classification
    constants = {name: STATED[name] for name in stated}
    if mixin:
        child = type("Child", (type("Mixin", (), members), parent), constants)
    else:
        child = type("Child", (parent,), {**members, **constants})
    grandchild = type("Grandchild", (child,), {"__repr__": formula})
    overrides = any(hasattr(parent, name) for name in members)
    for kind in (child, grandchild):
        for name, default in DEFAULTS.items():
            expected = default if overrides else vars_of(parent, name)
            assert vars_of(kind, name) == constants.get(name, expected), name
    below = type("Below", (child,), {"value": formula})
    assert {name: getattr(below, name) for name in DEFAULTS} == DEFAULTS


def vars_of(kind, name):
    """Return the class attribute itself, without evaluating properties."""
    return next(vars(each)[name] for each in kind.__mro__ if name in vars(each))


def test_growth_is_that_of_the_formulas_too():
    doubled = type("Doubled", (losses.Logistic,), {"value": formula, "lipschitz": 2.0})
    assert doubled.__new__(doubled).weak_growth(1.0) == (0.0, 4.0)
    with pytest.raises(ValueError, match="no constants of weak growth"):
        type("Unknown", (losses.SquaredError,), {"derivative": formula})().weak_growth(1.0)


def test_a_weak_growth_of_ones_own_holds_for_its_formulas_alone():
    stated = type("Stated", (losses.Logistic,), {"weak_growth": lambda *_: (0.0, 0.1)})
    assert stated().weak_growth(1.0) == (0.0, 0.1)
    below = type("Below", (stated,), {"derivative": formula, "lipschitz": 2.0})
    assert below.__new__(below).weak_growth(1.0) == (0.0, 4.0)


class Doubling(losses.Logistic):
    """Twice the loss with its constants unchanged: 3.2 times the epsilon by its curvature."""

    def value(self, z, y):
        return 2.0 * super().value(z, y)

    def derivative(self, z, y):
        return 2.0 * super().derivative(z, y)

    def second_derivative(self, z, y):
        return 2.0 * super().second_derivative(z, y)


class Stating(Doubling):
    """Its constants are doubled too."""

    convex, lipschitz, smoothness = True, 2.0, 0.5


def perturbed(loss, penalty, budget=None):
    X, y = np.array([[0.6, 0.8], [1.0, 0.0], [0.0, -1.0]]), np.array([1.0, -1.0, 1.0])
    problem = dpa.ERM(X, y, loss, penalty, row_bound=BOUND)
    guard = dpa.Budget(1.0) if budget is None else budget
    return dpa.minimize(problem, dpa.methods.ObjectivePerturbation(), guard, rng=0, record=())


def test_guarantees_by_curvature_need_stated_constants():
    penalty = regularizers.L2(0.5)
    with pytest.raises(ValueError, match="must be known to be convex"):
        perturbed(Doubling(), penalty)
    assert perturbed(Stating(), penalty).private
    instance = Stating()
    instance.derivative = formula
    with pytest.raises(ValueError, match=r"Stating\.derivative must be a method of its class"):
        perturbed(instance, penalty)


# Penalties


class Intercept(regularizers.L2):
    """It omits the last parameter, along which the objective has no curvature."""

    def value(self, w):
        return super().value(w[..., :-1])

    def gradient(self, w):
        return self.strength * w * self._kept(w)

    def hessian_diagonal(self, w):
        return self.strength * self._kept(w)

    def _kept(self, w):
        return np.append(np.ones(np.shape(w)[-1] - 1), 0.0)


class Honest(Intercept):
    mu, hessian_lipschitz = 0.0, 0.0

    @property
    def L(self):
        return self.strength


class Renamed(regularizers.L2):
    def __repr__(self):
        return "renamed"


class Plain:
    """A penalty without a base class."""

    mu, L, hessian_lipschitz = 1.0, 1.0, 0.0

    def value(self, w):
        return 0.5 * (w * w).sum(axis=-1)

    def gradient(self, w):
        return w * self.pull()

    def hessian_diagonal(self, w):
        return np.ones_like(w)

    def pull(self):
        return 1.0


class Pulled(Plain):
    """It overrides a helper of the formulas."""

    def pull(self):
        return 0.0


def test_a_penalty_with_formulas_of_its_own_states_its_constants():
    """Objective perturbation once used the inherited ``mu`` in a direction without curvature."""
    guard = dpa.privacy.Filter(dpa.Budget(1.0, 1e-5))
    for penalty, message in [
        (Intercept(0.5), "Intercept overrides value, but its mu is that of L2"),
        (Pulled(), "Pulled overrides pull, but its mu is that of Plain"),
        (
            type("Own", (regularizers.GemanMcClure,), {"gradient": formula})(0.1),
            "must state mu, L, hessian_lipschitz of its own",
        ),
    ]:
        for build in (
            lambda penalty: perturbed(losses.Logistic(), penalty, guard),
            lambda penalty: Softmax(np.eye(2), [0, 1], 2, penalty),
            lambda penalty: MLP(np.eye(2), [0, 1], (2,), 2, regularizer=penalty),
        ):
            with pytest.raises(TypeError, match=message):
                build(penalty)
    assert guard.spent == 0.0
    assert perturbed(losses.Logistic(), Renamed(0.5)).private
    assert perturbed(losses.Logistic(), Plain()).private
    assert dpa.ERM(np.eye(2), [1, -1], losses.Logistic(), Honest(0.5)).mu == 0.0


class Unfrozen(Plain):
    """A penalty that sets a formula on the object."""

    def __init__(self, name):
        setattr(self, name, lambda w: 0.0 * w)


@pytest.mark.parametrize("name", ["value", "gradient", "hessian_diagonal"])
def test_a_penalty_has_no_formula_on_the_object(name):
    penalty = regularizers.L2(0.5)
    object.__setattr__(penalty, name, lambda w: 0.0 * w)
    for each in (Unfrozen(name), penalty):
        with pytest.raises(TypeError, match=f"{name} must be a method of {type(each).__name__}"):
            perturbed(losses.Logistic(), each)


# Rules


@given(
    parent=st.sampled_from([clipping.Automatic, clipping.PerSampleAdaptive, clipping.Flat]),
    name=st.sampled_from(["wanted", "weight", "check", "__repr__", "largest_weight"]),
)
def test_a_rule_with_a_formula_of_its_own_does_not_inherit_the_largest_weight(parent, name):
    child = type("Child", (parent,), {name: 3.0 if name == "largest_weight" else formula})
    kept = parent is clipping.Flat or name == "__repr__"
    expected = vars_of(parent, "largest_weight") if kept else math.inf
    if name == "largest_weight":
        expected = 3.0
    assert vars_of(type("Grandchild", (child,), {}), "largest_weight") == expected
