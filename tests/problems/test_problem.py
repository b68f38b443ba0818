"""The interface of a problem: required methods, public facts, refused arguments."""

import numpy as np
import pytest

import dpanalysis as dpa
from dpanalysis import clipping, losses, problems
from dpanalysis.privacy.facts import PublicFacts

RNG = np.random.default_rng(11)
X, Y = RNG.uniform(-1, 1, (12, 3)), RNG.choice([-1.0, 1.0], 12)
BOUND = dpa.RowBound(2, 1.5)


class Mine(dpa.Problem):
    """A problem with the required methods only."""

    n, d, mu, L = 10, 2, 1.0, 1.0

    def facts(self, relation):
        return PublicFacts(self.n, self.d, self.mu, self.L, relation, (1.0, 1.0))

    def value(self, w):
        return 0.5 * (np.asarray(w) ** 2).sum(axis=-1)

    def gradient(self, w):
        return np.asarray(w)

    def gradient_sum(self, w, rows=None, clipping=None):
        return self.n * np.clip(w, -0.5, 0.5)


class MineWithRules(Mine):
    def check_clipping(self, clipping):
        dpa.clipping.check_clipping(clipping)


def all_problems():
    labels = (Y > 0).astype(int)
    return [
        dpa.ERM(X, Y, losses.Logistic(), dpa.regularizers.L2(0.1), BOUND),
        problems.Softmax(X, labels, 2, row_bound=BOUND),
        problems.MLP(X, labels, (4,), 2, row_bound=BOUND),
        dpa.Quadratic([0.5, 1.0], [1.0, -1.0], sensitivity=0.1),
    ]


@pytest.mark.parametrize("problem", all_problems(), ids=lambda p: type(p).__name__)
def test_ours_keep_the_contract(problem):
    assert isinstance(problem, dpa.Problem) and problems.Problem is dpa.Problem
    w = np.stack([problem.initial(np.random.default_rng(r)) for r in range(2)])
    problem.check_private()
    problem.check_clipping(None)
    with pytest.raises(TypeError, match="clipping must be a rule"):
        problem.check_clipping(1.0)
    total = problem.gradient_sum(w)
    penalty = 0.0 if problem.regularizer is None else problem.regularizer.gradient(w)
    np.testing.assert_allclose(total / problem.n + penalty, problem.gradient(w), rtol=1e-12)
    twice = problem.gradient_sum(w, [np.array([0, 0]), np.array([], int)])
    once = problem.gradient_sum(w, [np.array([0]), np.array([0])])
    np.testing.assert_allclose(twice[0], 2.0 * once[0], rtol=1e-12)
    assert (twice[1] == 0.0).all()
    for relation in ("replace_one", "add_or_remove_one"):
        facts = problem.facts(relation)
        assert (facts.n, facts.d, facts.mu, facts.L) == (
            problem.n,
            problem.d,
            problem.mu,
            problem.L,
        )
    with pytest.raises(ValueError, match="relation must be one of"):
        problem.facts("replace")


@pytest.mark.parametrize("problem", all_problems()[:3], ids=lambda p: type(p).__name__)
def test_iterates_of_another_shape_are_refused_by_sums_of_gradients(problem):
    """One iterate (d,) used to be taken for d iterates, each of equal entries."""
    for shape in [(problem.d,), (2, problem.d + 1), (1, 1, problem.d)]:
        with pytest.raises(ValueError, match=rf"w must have shape \(R, {problem.d}\), got"):
            problem.gradient_sum(np.zeros(shape))


@pytest.mark.parametrize("problem", all_problems()[:3], ids=lambda p: type(p).__name__)
def test_two_iterates_are_refused_where_one_is_expected(problem):
    """Predictions of the second would be taken for those of other records."""
    one, two = np.zeros(problem.d), np.zeros((2, problem.d))
    calls = [(problem.line_losses, (two, one)), (problem.line_losses, (one, two))]
    if isinstance(problem, dpa.ERM):
        calls += [(problem.hessian_sum, (two,)), (problem.hvp_sum, (two, one))]
    for call, given in calls:
        with pytest.raises(ValueError, match=rf"must have shape \({problem.d},\), got"):
            call(*given)


def test_a_problem_of_ones_own_runs_and_pays():
    result = dpa.minimize(Mine(), dpa.methods.GradientDescent(0.5, 4), dpa.Budget(1.0), rng=0)
    assert result.private and result.epsilon() == pytest.approx(1.0)
    assert result.w.shape == (1, 2)


def test_a_check_comes_before_anything_is_spent():
    class Doubtful(MineWithRules):
        looks = 0

        def check_private(self):
            raise ValueError("X is not what it was")

        def gradient_sum(self, w, rows=None, clipping=None):
            Doubtful.looks += 1
            return super().gradient_sum(w, rows, clipping)

        def line_losses(self, w, direction, rows=None):
            raise AssertionError("nobody asks for it")

    guard = dpa.privacy.Filter(dpa.Budget(1.0, 1e-5, "add_or_remove_one"))
    search = dpa.methods.LineSearchSGD(
        dpa.Poisson(0.5), step_size=1.0, iterations=3, clip_norm=1.0, clip_loss=1.0
    )
    for method, budget in [
        (dpa.methods.GradientDescent(0.5, 4), dpa.Budget(1.0)),
        (dpa.methods.GradientDescent(0.5, 4, noise=np.ones(4)), None),
        (search, guard),
    ]:
        with pytest.raises(ValueError, match="X is not what it was"):
            dpa.minimize(Doubtful(), method, budget, rng=0)
    assert Doubtful.looks == 0 and guard.spent == 0.0
    dpa.minimize(Doubtful(), dpa.methods.GradientDescent(0.5, 4), rng=0)  # no guarantee given
    assert Doubtful.looks == 4


@pytest.mark.parametrize("missing", ["facts", "value", "gradient", "gradient_sum"])
def test_what_is_not_declared_is_refused(missing):
    kept = {k: v for k, v in vars(Mine).items() if not k.startswith("_") and k != missing}
    with pytest.raises(TypeError, match=missing):
        type("Lacking", (dpa.Problem,), kept)()


def test_a_query_that_is_not_offered_names_the_problem():
    w = np.zeros(2)
    calls = {
        "line_losses": (w, w),
        "hessian_sum": (w,),
        "hvp_sum": (w, w),
        "minimize_perturbed": (w, 1.0, 1e-6, 10.0),
    }
    for name, arguments in calls.items():
        with pytest.raises(TypeError, match=f"Mine offers no {name}"):
            getattr(Mine(), name)(*arguments)


def test_a_declared_sensitivity_serves_both_norms():
    facts = dpa.Quadratic([1.0, 1.0], sensitivity=0.25).facts("replace_one")
    assert facts.record_sensitivity(1) == facts.record_sensitivity(2) == 0.25
    assert "L1 norm" in dpa.Quadratic.__doc__
    assert not dpa.Quadratic([1.0]).facts("replace_one").has_records


def test_a_rule_is_checked_by_the_problem():
    rule = clipping.Value(1.0, beta1=0.5)
    with pytest.raises(ValueError, match=r"beta1 = 0\.5"):
        all_problems()[0].check_clipping(rule)
    MineWithRules().check_clipping(clipping.Flat(1.0))
    dpa.Quadratic([1.0], sensitivity=0.1).check_clipping(clipping.Flat(1.0))


def test_rules_are_refused_by_problems_that_do_not_declare_clipped_sums():
    """The noise would be calibrated to the rule, but the gradients not clipped."""
    rule = clipping.Flat(0.01)
    method = dpa.methods.SGD(0.1, 2, dpa.Full(), rule, mechanism="gaussian")
    with pytest.raises(ValueError, match="Mine takes no clipping rule"):
        dpa.minimize(Mine(), method, dpa.Budget(1.0, 1e-5), rng=0)


def test_a_representation_does_not_show_the_number_of_records_beside_a_public_size():
    for n in (4, 5):
        problem = problems.ERM(np.ones((n, 1)), np.ones(n), losses.Logistic(), size=4)
        assert repr(problem).startswith("ERM(size=4, d=1,") and f"n={n}" not in repr(problem)
