"""minimize and Result: arguments, records, warnings, stops."""

import dataclasses
import pickle
from decimal import Decimal
from fractions import Fraction
from html.parser import HTMLParser

import numpy as np
import pytest

import dpanalysis as dpa
from dpanalysis.experiments.loop import _diverged, whole_runs
from dpanalysis.experiments.sweep import sweep
from dpanalysis.privacy.events import Laplace, unrolled
from dpanalysis.privacy.facts import PublicFacts


def small_problem(n=50, relation_bound=1.0, penalty=0.1):
    rng = np.random.default_rng(5)
    X = rng.uniform(-0.5, 0.5, size=(n, 2))
    y = np.where(X[:, 0] > 0, 1.0, -1.0)
    bound = (dpa.RowBound(1, relation_bound), dpa.RowBound(2, relation_bound))
    return dpa.ERM(X, y, dpa.losses.Logistic(), dpa.regularizers.L2(penalty), row_bound=bound)


class Alike:
    """Has every member that is used, but does not extend Problem."""

    n, d, mu, L = 1, 2, 0.0, 1.0
    sensitivity = None
    value = gradient = solve = None


GD = dpa.methods.GradientDescent(0.5, 10)


def test_records_have_documented_shapes():
    def norm(problem, w):
        return np.linalg.norm(w, axis=1)

    result = dpa.minimize(
        small_problem(),
        GD,
        dpa.Budget(1.0),
        replicates=3,
        rng=0,
        record=("objective", "gap", "gradient_norm", "accuracy", norm),
        every=4,
    )
    assert result.history["iteration"].tolist() == [0, 4, 8, 10]
    for name in ("objective", "gap", "gradient_norm", "accuracy", "norm"):
        assert result.history[name].shape == (4, 3)
    assert (result.history["gap"] >= 0).all()
    frame = result.to_frame()
    assert len(frame) == 12 and list(frame)[:2] == ["iteration", "replicate"]
    np.testing.assert_array_equal(frame["gap"].to_numpy(), result.history["gap"].ravel())
    assert frame["iteration"].tolist() == [t for t in (0, 4, 8, 10) for _ in range(3)]
    assert frame["replicate"].tolist() == [0, 1, 2] * 4
    assert result.released == ("iterates",)


def test_replicates_compose_when_released_together():
    result = dpa.minimize(small_problem(), GD, dpa.Budget(1.0), replicates=3, rng=0)
    assert result.epsilon() == pytest.approx(1.0)
    assert result.epsilon(replicates=3) == pytest.approx(3.0)


def test_os_entropy_runs_and_differs():
    runs = [dpa.minimize(small_problem(), GD, dpa.Budget(1.0), rng="os").w for _ in range(2)]
    assert not np.array_equal(*runs)


class Started(dpa.ERM):
    """Logistic regression with a random initial point."""

    def initial(self, rng):
        return rng.normal(size=self.d)


def test_the_initial_point_of_a_problem_has_a_separate_stream():
    """Noise, batches and the drawn iterate equal those of a run with this start given."""
    plain = small_problem()
    started = Started(plain._X, plain._y, plain.loss, plain.regularizer, row_bound=plain.row_bounds)
    method = dpa.methods.SGD(0.5, 10, dpa.Poisson(0.2), None, output="uniform", noise=[0.1] * 10)
    options = {"rng": 3, "record": ("iterate",)}
    result = dpa.minimize(started, method, replicates=4, **options)
    starts = result.history["iterate"][0]
    assert len(np.unique(starts)) == starts.size
    given = dpa.minimize(plain, method, w0=starts, replicates=4, **options)
    np.testing.assert_array_equal(given.history["iterate"], result.history["iterate"])
    np.testing.assert_array_equal(given.drawn, result.drawn)
    # A replicate's start depends neither on the number of replicates nor on the method.
    fewer = dpa.minimize(started, GD, replicates=2, **options)
    np.testing.assert_array_equal(fewer.history["iterate"][0], starts[:2])
    # A given start takes precedence, and a generator advances.
    zero = dpa.minimize(started, method, w0=np.zeros(2), **options)
    assert not zero.history["iterate"][0].any()
    random = np.random.default_rng(3)
    two = [dpa.minimize(started, GD, rng=random, record=("iterate",)) for _ in range(2)]
    assert not np.array_equal(*(run.history["iterate"][0] for run in two))


def test_a_network_leaves_the_saddle_at_zero():
    problem = dpa.problems.MLP(np.eye(4), np.array([0, 1, 1, 0]), hidden=(8,))
    method = dpa.methods.GradientDescent(0.5, 200)
    result = dpa.minimize(problem, method, replicates=2, rng=0, record=("accuracy",))
    assert (result.history["accuracy"][-1] == 1.0).all()
    stuck = dpa.minimize(problem, method, w0=np.zeros(problem.d))
    assert not stuck.w[:, : 4 * 8].any()  # the hidden layer has not moved
    system = dpa.minimize(problem, GD, replicates=2, rng="os", record=("iterate",))
    assert not np.array_equal(*system.history["iterate"][0])


@pytest.mark.parametrize("start", [np.zeros(3), np.array([np.nan, 0.0]), "zero"])
def test_an_invalid_start_names_the_problem(start):
    problem = small_problem()
    problem.initial = lambda rng: start
    with pytest.raises((ValueError, TypeError), match=r"problem\.initial"):
        dpa.minimize(problem, GD, dpa.Budget(1.0), rng=0)


def test_callback_stops():
    seen = []
    result = dpa.minimize(small_problem(), GD, callback=lambda t, w: seen.append(w) or t == 4)
    assert result.status == "stopped by callback" and result.iterations == 4
    assert not any(each.flags.writeable for each in seen)
    assert [each.shape for each in seen] == [(1, 2)] * 4


@pytest.mark.parametrize("where", ["callback", "gradient"])
def test_ctrl_c_returns_what_was_released_and_what_it_cost(where, monkeypatch):
    asked = []

    def interrupt(*_):
        asked.append(1)
        if len(asked) == 4:
            raise KeyboardInterrupt

    problem = small_problem()
    if where == "gradient":
        whole = type(problem).gradient_sum

        def gradient_sum(*args):
            interrupt()
            return whole(*args)

        monkeypatch.setattr(type(problem), "gradient_sum", gradient_sum)
    budget = dpa.Budget(1.0)
    callback = interrupt if where == "callback" else None
    with pytest.warns(RuntimeWarning, match="interrupted at iteration"):
        result = dpa.minimize(problem, GD, budget, rng=0, callback=callback, record=())
    made = 4 if where == "callback" else 3
    assert (result.status, result.iterations) == ("interrupted", made)
    assert sum(unrolled(event)[1] for event in result.ledger.events) == 4
    assert result.epsilon() == pytest.approx(1.0)
    monkeypatch.undo()
    shorter = dpa.minimize(small_problem(), GD, budget, rng=0, callback=lambda t, w: t == made)
    np.testing.assert_array_equal(result.w, shorter.w)


@pytest.mark.parametrize("call", [1, 2])
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
@pytest.mark.filterwarnings("default:interrupted", "error::RuntimeWarning")
def test_a_record_that_fails_loses_no_result(call, error):
    """At the first record, and at the last, which is made after all charges."""
    calls = []

    def record(problem, w):
        calls.append(1)
        if len(calls) >= call:
            raise error
        return problem.value(w)

    def go():
        return dpa.minimize(small_problem(), GD, dpa.Budget(1.0), record=record, every=1000)

    if error is KeyboardInterrupt:  # its warning is an error here, and loses nothing either
        result = go()
        assert result.status == "interrupted"
    else:
        with pytest.raises(OSError) as caught:
            go()
        result = caught.value.partial
        assert result.status == "failed"
    assert result.iterations == (0 if call == 1 else GD.iterations)
    assert len(result.ledger) == result.iterations


def test_replicates_before_an_interrupted_record_are_kept():
    calls = []

    def record(problem, w):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return problem.value(w)

    method = dpa.methods.ObjectivePerturbation()
    with pytest.warns(RuntimeWarning, match="interrupted at iteration 0"):
        result = dpa.minimize(small_problem(), method, dpa.Budget(1.0), replicates=3, record=record)
    assert result.status == "interrupted" and result.made.tolist() == [1, 0]
    calls.clear()
    with pytest.warns(RuntimeWarning, match="interrupted at iteration 0"):
        result = dpa.minimize(
            small_problem(), method, dpa.Budget(1.0), replicates=3, record=("iterate", record)
        )
    assert result.history["iterate"].shape == (2, 2, 2) and result.status == "interrupted"


class Median(dpa.Problem):
    """Offers gradient sums, and no other query."""

    n, d, regularizer = 50, 2, None

    def facts(self, relation="replace_one"):
        return small_problem().facts(relation)

    def check_clipping(self, clipping):
        if clipping is not None:
            raise ValueError("takes no clipping rule")

    def gradient_sum(self, W, rows=None, clipping=None):
        return np.ones_like(W)

    def value(self, w):
        return 0.0

    def gradient(self, w):
        return w


@pytest.mark.parametrize("name", ["AdaptiveGD", "GeneticSearch"])
def test_a_query_that_a_problem_lacks_is_refused_before_any_charge(name):
    method, guard = getattr(dpa.methods, name)(), dpa.privacy.Filter(dpa.Budget(1.0, 1e-5))
    with pytest.raises(TypeError, match="Median offers no"):
        dpa.minimize(Median(), method, guard)
    assert guard.spent == 0.0


@pytest.mark.parametrize("where", ["callback", "gradient"])
def test_an_error_in_a_run_keeps_what_was_released_and_what_it_cost(where, monkeypatch):
    """A missing file or a full disk must not lose answers that were charged."""
    asked = []

    def fail(*_):
        asked.append(1)
        if len(asked) == 4:
            raise OSError("no such file")

    problem = small_problem()
    whole = type(problem).gradient_sum
    if where == "gradient":
        patched = lambda *args: (fail(), whole(*args))[1]  # noqa: E731
        monkeypatch.setattr(type(problem), "gradient_sum", patched)
    budget = dpa.Budget(1.0)
    callback = fail if where == "callback" else None
    with pytest.raises(OSError, match="no such file") as caught:
        dpa.minimize(problem, GD, budget, rng=0, callback=callback, record=())
    made, result = (4 if where == "callback" else 3), caught.value.partial
    assert (result.status, result.iterations) == ("failed", made)
    assert sum(unrolled(event)[1] for event in result.ledger.events) == 4
    assert result.epsilon() == pytest.approx(1.0)
    assert f"In iteration {made + 1}" in caught.value.__notes__[0]
    monkeypatch.undo()
    shorter = dpa.minimize(small_problem(), GD, budget, rng=0, callback=lambda t, w: t == made)
    np.testing.assert_array_equal(result.w, shorter.w)
    # In trials of a selection, which need whole runs, no partial result is shown.
    asked.clear()
    with pytest.raises(OSError) as caught, whole_runs():
        dpa.minimize(small_problem(), GD, budget, rng=0, callback=fail)
    assert not hasattr(caught.value, "partial")


def _interrupted_cell(seed):
    def callback(t, w):
        raise KeyboardInterrupt

    return {"w": dpa.minimize(small_problem(), GD, rng=seed, callback=callback).w}


def test_ctrl_c_ends_a_sweep_whose_cells_need_whole_runs(tmp_path):
    with pytest.raises(KeyboardInterrupt, match="0 of 1 cells"):
        sweep(_interrupted_cell, [{"seed": 0}], folder=tmp_path, jobs=1, progress=False)


def test_a_run_that_stops_early_is_covered_by_the_whole_plan():
    """The time to stop is chosen from noisy iterates, so the events were not fixed beforehand."""
    method = dpa.methods.GradientDescent(0.5, 10, mechanism="gaussian")
    budget = dpa.Budget(1.0, 1e-5)
    whole = dpa.minimize(small_problem(), method, budget, rng=0)
    early = dpa.minimize(small_problem(), method, budget, rng=0, callback=lambda t, w: t == 3)
    assert early.ledger.epsilon(1e-5) < 0.6 < early.epsilon() == whole.epsilon()
    assert early.epsilon(replicates=3) == whole.epsilon(replicates=3) > 1.5
    # Planned noise of iterations that were not run counts as well.
    last_exact = dpa.methods.GradientDescent(0.5, 2, noise=[1.0, 0.0])
    stopped = dpa.minimize(small_problem(), last_exact, rng=0, callback=lambda t, w: True)
    assert stopped.iterations == 1 and not stopped.private and stopped.epsilon() == np.inf


@pytest.mark.parametrize("accountant", ["tightest", "pure", "zcdp", "rdp", "pld"])
def test_laplace_noise_fits_by_the_accountant_asked_for(accountant):
    """Over two iterations pure losses are the cheapest, but not every accountant uses them."""
    method = dpa.methods.GradientDescent(0.5, 2)
    budget = dpa.Budget(1.0, 1e-6)
    result = dpa.minimize(small_problem(), method, budget, accountant=accountant, rng=0)
    spent = result.ledger.epsilon(1e-6, accountant)
    assert 0.99 < spent <= 1.0 + 1e-9


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_a_budget_of_next_to_nothing_is_spent_without_a_warning(delta):
    method = dpa.methods.GradientDescent(0.5, 2)
    result = dpa.minimize(small_problem(), method, dpa.Budget(1e-200, delta), rng=0)
    assert 0.0 <= result.epsilon() <= 1e-200 and np.isfinite(result.w).all()


def test_calibration_uses_the_clipping_rule():
    """A clip norm a tenth of the row bound: the noise is a tenth, and the budget is used up."""
    budget, scales = dpa.Budget(1.0, 1e-5), []
    for rule in (None, dpa.clipping.Flat(0.1)):
        method = dpa.methods.GradientDescent(0.5, 3, mechanism="gaussian", clipping=rule)
        result = dpa.minimize(small_problem(), method, budget, rng=0)
        assert 0.99 < result.epsilon() <= 1.0 + 1e-9
        scales.append(result.plan.scales[0])
    assert scales[0] == pytest.approx(10.0 * scales[1], rel=1e-3)


@pytest.mark.parametrize("relation", ["replace_one", "add_or_remove_one"])
def test_the_relation_of_the_budget_sets_the_noise(relation):
    result = dpa.minimize(small_problem(), GD, dpa.Budget(1.0, relation=relation), rng=0)
    assert result.ledger.relation == relation
    moved = 2.0 if relation == "replace_one" else 1.0
    assert result.plan.scales == pytest.approx(moved / 50 * 10)  # ten iterations at .1 each


def test_noise_in_numbers_under_a_budget():
    """Accepted where it fits; refused where it costs more, or where an iteration has none."""
    problem, budget = small_problem(), dpa.Budget(1.0)  # an iteration costs (2/50) / scale
    fine, dear, none = ([0.08, 0.08], [0.08, 0.079], [0.08, 0.0])
    result = dpa.minimize(problem, dpa.methods.GradientDescent(0.5, 2, noise=fine), budget, rng=0)
    assert result.epsilon() == pytest.approx(1.0)
    with pytest.raises(dpa.PrivacyBudgetExceeded, match="planned events cost"):
        dpa.minimize(problem, dpa.methods.GradientDescent(0.5, 2, noise=dear), budget)
    with pytest.raises(ValueError, match="every iteration needs noise"):
        dpa.minimize(problem, dpa.methods.GradientDescent(0.5, 2, noise=none), budget)


def test_divergence_keeps_the_last_finite_iterates():
    with (
        pytest.warns(UserWarning, match=r"2/L"),
        pytest.warns(RuntimeWarning, match="diverged"),
    ):
        result = dpa.minimize(
            dpa.Quadratic([1.0]), dpa.methods.GradientDescent(1e200, 10), w0=[1.0]
        )
    assert result.status == "diverged"
    assert np.isfinite(result.w).all() and 0 < result.iterations < 10


def test_iterates_diverge_before_a_problem_overflows_on_them():
    with pytest.warns(RuntimeWarning, match="diverged at iteration 3"):
        assert _diverged(np.array([[1.0, -2e98]]), 3, 1e100)
    with pytest.warns(RuntimeWarning, match="diverged at iteration 4"):
        assert _diverged(np.array([[1.0, np.nan]]), 4, 1e100)
    assert not _diverged(np.array([[1.0, -5e97]]), 3, 1e100)


class Asks(dpa.methods.GradientDescent):
    """Makes one query more than it planned."""

    def run(self, w, oracle, plan):
        yield from super().run(w, oracle, plan)
        oracle.gradient(w, self.sampling, self.mechanism, float(plan.scales[0]))


class YieldsTheIterate(dpa.methods.GradientDescent):
    def run(self, w, oracle, plan):
        yield from (step.w for step in super().run(w, oracle, plan))


class ReturnsTheIterates(dpa.methods.GradientDescent):
    def run(self, w, oracle, plan):
        return np.stack([step.w for step in super().run(w, oracle, plan)])


@pytest.mark.parametrize("kind", [YieldsTheIterate, ReturnsTheIterates])
def test_a_method_that_yields_no_step_is_refused_by_what_it_yields(kind):
    with pytest.raises(TypeError, match=r"run\(\) must yield a Step\(w\), got ndarray"):
        dpa.minimize(small_problem(), kind(0.5, 3), dpa.Budget(1.0), rng=0)


def test_a_run_that_asks_for_more_than_it_planned_ends_with_its_plan():
    with pytest.raises(dpa.PrivacyBudgetExceeded) as caught:
        dpa.minimize(small_problem(), Asks(0.5, 3), dpa.Budget(1.0), rng=0)
    left = caught.value.partial
    assert (left.status, left.iterations) == ("budget exceeded", 3)
    assert left.charged.tolist() == [0, 1, 2, 3]


def test_what_a_diverging_run_spent_stays_spent():
    """The penalty, which is not clipped, drives the iterates away."""
    problem = small_problem(penalty=100.0)
    rule, budget = dpa.clipping.Flat(1.0), dpa.Budget(1.0, 1e-5, "add_or_remove_one")
    method = dpa.methods.SGD(1e30, 30, dpa.Poisson(0.5), rule)
    with (
        pytest.warns(UserWarning, match=r"2/mu"),
        pytest.warns(RuntimeWarning, match="diverged at iteration 8"),
    ):
        result = dpa.minimize(problem, method, budget, rng=0, record=("iterate",))
    assert result.status == "diverged" and result.iterations == 7
    np.testing.assert_array_equal(result.w, result.history["iterate"][-1])
    assert np.isfinite(result.w).all()
    (made,) = result.ledger.events
    assert made.count == 8  # the gradient of the diverging step was released as well
    assert 0.4 < result.ledger.epsilon(1e-5) < 0.6
    assert result.epsilon() == pytest.approx(1.0, rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(("beta1", "radius"), [(0.4, 1.0), (1.6, 2.0)])
def test_value_clipping_that_bounds_nothing_is_refused_before_the_data(beta1, radius, monkeypatch):
    """A sample in the public bound may have a gradient beyond the clip norm: kappa is .407."""
    X, y = np.eye(4), np.array([1.0, -1.0, 1.0, -1.0])
    bound = dpa.RowBound(2, radius)
    budget = dpa.Budget(1.0, 1e-5, "add_or_remove_one")
    for problem in (
        dpa.ERM(X, y, dpa.losses.Logistic(), row_bound=bound),
        dpa.problems.Softmax(X, (y + 1) // 2, row_bound=bound),
    ):
        monkeypatch.setattr(problem, "_evaluate", lambda *a: pytest.fail("the data were touched"))
        method = dpa.methods.SGD(0.5, 2, dpa.Poisson(0.5), dpa.clipping.Value(1.0, beta1))
        with pytest.raises(ValueError, match=f"beta1 = {beta1} .*beta1 must be at least"):
            dpa.minimize(problem, method, budget)


@pytest.mark.parametrize(
    "call",
    [
        lambda rng: dpa.problems.MLP(np.eye(2), np.array([0, 1])).initial(rng),
        lambda rng: dpa.datasets.load("digits").split(0.2, rng=rng),
        lambda rng: dpa.datasets.kuru_synthetic(n=10, d=2, rng=rng),
        lambda rng: dpa.minimize(small_problem(), GD, rng=rng),
    ],
)
def test_seeds_are_named(call):
    for rng, error in [(-1, ValueError), (True, TypeError), ("1", TypeError), ([-1], TypeError)]:
        with pytest.raises(error, match="rng must be"):
            call(rng)


def test_step_above_the_limit_warns_with_it():
    problem = small_problem()
    with pytest.warns(UserWarning, match=f"{2 / problem.L:g}"):
        dpa.minimize(problem, dpa.methods.GradientDescent(2.1 / problem.L, 1), rng=0)
    dpa.minimize(problem, dpa.methods.GradientDescent(2.0 / problem.L, 1), rng=0)


def test_large_delta_warns():
    method = dpa.methods.GradientDescent(0.5, 2, mechanism="gaussian")
    with pytest.warns(UserWarning, match="1/n"):
        dpa.minimize(small_problem(), method, dpa.Budget(1.0, 0.1), rng=0)


def test_gaussian_needs_a_delta():
    method = dpa.methods.GradientDescent(0.5, 2, mechanism="gaussian")
    with pytest.raises(ValueError, match="delta"):
        dpa.minimize(small_problem(), method, dpa.Budget(1.0))


@pytest.mark.parametrize("sampling", [dpa.WithoutReplacement(51), dpa.WithoutReplacement(10**9)])
def test_batch_larger_than_the_data(sampling):
    method = dpa.methods.GradientDescent(0.5, 2, sampling=sampling)
    with pytest.raises(ValueError, match=str(sampling.m)):
        dpa.minimize(small_problem(), method, dpa.Budget(1.0))


def test_sampling_and_relation_must_belong_together():
    problem = small_problem()
    poisson = dpa.methods.GradientDescent(0.5, 2, sampling=dpa.Poisson(0.5))
    with pytest.raises(dpa.IncompatibleAccounting, match="add_or_remove_one"):
        dpa.minimize(problem, poisson, dpa.Budget(1.0))
    exact = dpa.methods.GradientDescent(0.5, 2, sampling=dpa.WithoutReplacement(5))
    with pytest.raises(dpa.IncompatibleAccounting, match="replace_one"):
        dpa.minimize(problem, exact, dpa.Budget(1.0, relation="add_or_remove_one"))


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"w0": [np.nan, 0.0]}, ValueError, "w0"),
        ({"w0": [np.inf, 0.0]}, ValueError, "w0"),
        ({"w0": [1.0, 2.0, 3.0]}, ValueError, "w0"),
        ({"replicates": 0}, ValueError, "replicates"),
        ({"every": 0}, ValueError, "every"),
        ({"rng": -1}, ValueError, "rng must be at least 0, got -1"),
        ({"rng": 1.5}, TypeError, "rng must be .* got 1.5"),
        ({"record": ("loss",)}, ValueError, "record"),
        ({"budget": 1.0}, TypeError, "budget"),
        ({"method": "gd"}, TypeError, "method"),
        ({"accountant": "moments"}, ValueError, "accountant"),
        ({"accountant": "moments", "budget": None}, ValueError, "accountant"),
        ({"w0": "zero"}, TypeError, "w0"),
        ({"record": None}, TypeError, "record"),
        ({"record": (len, len)}, ValueError, "record.*'len'"),
        ({"record": lambda problem, w: w[:0]}, ValueError, "record"),
        ({"callback": 3}, TypeError, "callback"),
        ({"problem": None}, TypeError, "problem.*NoneType"),
        ({"problem": dpa.ERM}, TypeError, "problem must be .* got the class ERM itself"),
        ({"problem": Alike()}, TypeError, "problem must be .* got one of Alike"),
        (
            {"problem": dpa.Quadratic([1.0]), "budget": None, "record": "accuracy"},
            ValueError,
            "acc",
        ),
    ],
)
def test_bad_arguments_fail_before_anything_runs(arguments, error, match):
    arguments = {"problem": small_problem(), "method": GD, "budget": dpa.Budget(1.0), **arguments}
    with pytest.raises(error, match=match):
        dpa.minimize(**arguments)


@pytest.mark.parametrize("number", ["0.1", b"1", True, np.True_, None, [0.1], np.array([0.1])])
def test_text_and_truth_values_are_no_numbers(number):
    for build in (
        lambda: dpa.methods.GradientDescent(number, 5),
        lambda: dpa.Budget(1.0, delta=number),
        lambda: dpa.Poisson(number),
        lambda: dpa.RowBound(2, number),
    ):
        with pytest.raises(TypeError, match="must be a number"):
            build()


@pytest.mark.parametrize("name", ["GradientDescent", "HeavyBall"])
def test_optimal_noise_needs_public_curvature(name):
    arguments = {"step_size": 0.1, "iterations": 5, "noise": "optimal"}
    if name == "HeavyBall":
        arguments["momentum"] = 0.1
    X, y = np.eye(4), np.array([1.0, -1.0, 1.0, -1.0])
    flat = dpa.ERM(X, y, dpa.losses.Logistic(), row_bound=dpa.RowBound(1, 1.0))
    method = getattr(dpa.methods, name)(**arguments)
    with pytest.raises(ValueError, match=r"strong convexity.*regularizer"):
        dpa.minimize(flat, method, dpa.Budget(1.0))
    steep = dpa.ERM(X, y, dpa.losses.Logistic(), dpa.regularizers.L2(0.1))
    method = getattr(dpa.methods, name)(**arguments, clipping=dpa.clipping.Flat(1.0))
    with pytest.raises(ValueError, match=r"finite L.*row_bound"):
        dpa.minimize(steep, method, dpa.Budget(1.0))


def test_what_is_printed_is_short():
    noise = np.linspace(1.0, 2.0, 500)
    method = dpa.methods.GradientDescent(0.1, 500, noise=noise)
    result = dpa.minimize(small_problem(), method, rng=0)
    assert repr(method) == (
        "GradientDescent(step_size=0.1, iterations=500, noise=<500 numbers, 1 to 2>)"
    )
    assert repr(result.plan) == "Schedule(500 iterations, scales 1 to 2)"
    assert repr(result).startswith("Result(finished after 500 iterations of GradientDescent(")
    assert len(repr(result)) < 400
    # No guarantee covers the time, and what is printed is pasted.
    assert repr(result) == repr(dataclasses.replace(result, seconds=1234.5))
    twin = pickle.loads(pickle.dumps(result))
    np.testing.assert_array_equal(twin.w, result.w)
    assert twin.epsilon() == result.epsilon()


def test_a_problem_without_data_has_no_budget_to_spend():
    with pytest.raises(ValueError, match="sensitivity"):
        dpa.minimize(dpa.Quadratic([1.0]), GD, dpa.Budget(1.0))
    declared = dpa.Quadratic([1.0, 1.0], sensitivity=0.1)
    assert dpa.minimize(declared, GD, dpa.Budget(1.0), rng=0).epsilon() == pytest.approx(1.0)
    # Ten iterations at .1 each: Laplace scale S / .1, S as declared.
    assert dpa.minimize(declared, GD, dpa.Budget(1.0), rng=0).plan.scales == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("build", "match"),
    [
        (lambda: dpa.methods.GradientDescent(0.0, 5), "step_size"),
        (lambda: dpa.methods.GradientDescent(-1.0, 5), "step_size"),
        (lambda: dpa.methods.GradientDescent(np.inf, 5), "step_size"),
        (lambda: dpa.methods.GradientDescent(0.1, 0), "iterations"),
        (lambda: dpa.methods.HeavyBall(0.1, 1.0, 5), "momentum"),
        (lambda: dpa.methods.HeavyBall(0.1, -0.1, 5), "momentum"),
        (lambda: dpa.methods.Nesterov(0.1, 5, mu=0.0), "mu"),
        (lambda: dpa.methods.Nesterov(3.0, 5, mu=1.0), "step_size"),
        (lambda: dpa.methods.MultistageNesterov(5, mu=2.0, L=1.0), "L"),
        (lambda: dpa.methods.MultistageNesterov(5, mu=1.0, L=2.0, p=0.5), "p"),
        (lambda: dpa.methods.MultistageNesterov(5, mu=1.0, L=2.0, scale=1.5), "scale"),
        (lambda: dpa.methods.MultistageNesterov(5, mu=1.0, L=2.0, first_stage=0), "first_stage"),
        (lambda: dpa.Budget(0.0), r"epsilon must lie in \(0, inf\), got 0\.0"),
        (lambda: dpa.Budget(-1.0), "epsilon"),
        (lambda: dpa.Budget(1.0, 1.0), "delta"),
        (lambda: dpa.Budget(1.0, -0.1), "delta"),
        (lambda: dpa.WithoutReplacement(0), "m"),
        (lambda: dpa.Poisson(0.0), "rate"),
        (lambda: dpa.Poisson(1.5), "rate"),
    ],
)
def test_arguments_outside_their_range(build, match):
    with pytest.raises(ValueError, match=match):
        build()


class Unsolved(dpa.Problem):
    """A user-defined problem with the required methods only."""

    n, d, mu, L = 4, 2, 0.0, 1.0

    def facts(self, relation):
        return PublicFacts(self.n, self.d, self.mu, self.L, relation, (1.0, 1.0))

    def value(self, w):
        return 0.5 * (np.asarray(w) ** 2).sum(axis=-1)

    def gradient(self, w):
        return np.asarray(w)

    def gradient_sum(self, w, rows=None, clipping=None):
        return self.n * np.clip(w, -0.5, 0.5)


@pytest.mark.parametrize("kind", ["mlp", "without solve"])
def test_a_gap_to_what_cannot_be_solved_for_is_refused_before_the_data_are_touched(kind):
    problem = dpa.problems.MLP(np.eye(4), np.array([0, 1, 1, 0]), hidden=(3,))
    if kind == "without solve":
        problem = Unsolved()
    problem.value = problem.gradient = lambda w: pytest.fail("the data were touched")
    method = dpa.methods.SGD(0.5, 2, dpa.Full(), dpa.clipping.Flat(1.0))
    with pytest.raises(ValueError, match="'gap' needs a problem that can be solved"):
        dpa.minimize(problem, method, record=("gap",), w0=np.ones(problem.d))


def test_the_gap_is_not_solved_for_before_the_plan_stands(monkeypatch):
    """A budget that cannot be met fails before any access to the data."""
    problem = small_problem()
    monkeypatch.setattr(problem, "solve", lambda: pytest.fail("the data were touched"))
    method = dpa.methods.GradientDescent(0.5, 2, mechanism="gaussian")
    with pytest.raises(ValueError, match="delta"):
        dpa.minimize(problem, method, dpa.Budget(1.0), record=("gap",))


def test_a_delta_of_one_record_in_the_clear_is_warned_of_from_1_over_n_on():
    problem = dpa.ERM(np.eye(4), np.ones(4), dpa.losses.Logistic(), row_bound=dpa.RowBound(2, 1.0))
    method = dpa.methods.GradientDescent(0.1, 1, mechanism="gaussian")
    with pytest.warns(UserWarning, match="is not below 1/n"):
        dpa.minimize(problem, method, dpa.Budget(1.0, 0.25), rng=0)
    dpa.minimize(problem, method, dpa.Budget(1.0, 0.2499), rng=0)


def test_a_filter_is_for_methods_that_decide_on_the_way():
    """A plan is verified as a whole, which is impossible with a shared filter."""
    problem = dpa.ERM(np.eye(4), np.ones(4), dpa.losses.Logistic(), row_bound=dpa.RowBound(2, 1.0))
    guard = dpa.privacy.Filter(dpa.Budget(1.0))
    with pytest.raises(TypeError, match="budget must be a Budget or None for GradientDescent"):
        dpa.minimize(problem, dpa.methods.GradientDescent(0.1, 1), guard, rng=0)
    assert guard.spent == 0.0


class Rows(HTMLParser):
    """The cells of a table, row by row."""

    def __init__(self, text):
        super().__init__()
        self.rows = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        assert tag in ("table", "tr", "th", "td")  # what is quoted is escaped
        if tag == "tr":
            self.rows.append([])
        elif tag != "table":
            self.rows[-1].append("")

    def handle_data(self, data):
        if self.rows and self.rows[-1]:
            self.rows[-1][-1] += data.rstrip("\n")


class Named(dpa.methods.GradientDescent):
    def __repr__(self):
        return "<b>&"


def test_notebooks_show_a_result_and_its_ledger_as_tables():
    method, budget = dpa.methods.GradientDescent(0.5, 10), dpa.Budget(1.0, 1e-5)
    result = dpa.minimize(small_problem(), method, budget, rng=0)
    rows = Rows(result._repr_html_()).rows
    shown = dict(rows)
    assert shown["status"] == "finished" and shown["iterations"] == "10"
    assert shown["epsilon at delta = 1e-05"] == f"{result.epsilon():.6g}"
    assert shown["budget"] == repr(budget) and shown["relation"] == budget.relation
    assert shown["events"] == "10 of one replicate" and shown[""] in repr(result.ledger)
    ledger = Rows(result.ledger._repr_html_()).rows
    assert ledger[-1] == rows[-1] and ["events", "10"] in ledger
    named = dpa.minimize(small_problem(), Named(0.5, 10), budget, rng=0)
    assert Rows(named._repr_html_()).rows[0] == ["method", "<b>&"]


def test_a_result_states_epsilon_at_many_deltas_and_delta_at_many_epsilons():
    method, budget = dpa.methods.GradientDescent(0.5, 10, mechanism="gaussian"), (1.0, 1e-5)
    result = dpa.minimize(small_problem(), method, dpa.Budget(*budget), rng=0)
    deltas = [1e-2, 1e-5, 1e-7]
    found = result.epsilon(deltas)
    assert found.tolist() == [result.epsilon(delta) for delta in deltas]
    np.testing.assert_allclose(result.delta(found), deltas, rtol=1e-3)
    assert result.delta(1.0, replicates=2) > 10.0 * result.delta(1.0)
    exact = dpa.minimize(small_problem(), method)
    assert exact.delta(3.0) == 1.0 and exact.delta([0.0, 3.0]).tolist() == [1.0, 1.0]
    assert exact.epsilon(deltas).tolist() == [np.inf] * 3


@pytest.mark.slow
def test_what_a_result_shows_is_its_guarantee():
    """At delta 0 without a budget, that of a filter under one, infinite without noise."""
    noisy = dpa.methods.GradientDescent(0.5, 3, noise=[1.0] * 3)
    free = dpa.minimize(small_problem(), noisy, rng=0)
    shown = dict(Rows(free._repr_html_()).rows)
    assert shown["budget"] == "none"
    assert float(shown["epsilon at delta = 0"]) == pytest.approx(free.epsilon(), rel=1e-5)
    assert float(shown["epsilon at delta = 0"]) >= free.epsilon()  # never rounded down
    exact = dict(Rows(dpa.minimize(small_problem(), GD, rng=0)._repr_html_()).rows)
    assert exact["epsilon at delta = 0"] == "inf"
    search = dpa.methods.LineSearchGD(rho=0.005, epsilon=0.1, iterations=3)
    guarded = dpa.minimize(small_problem(500), search, dpa.Budget(2.0, 1e-5), rng=0)
    assert guarded.guard is not None
    shown = dict(Rows(guarded._repr_html_()).rows)
    assert shown["epsilon at delta = 1e-05"] == f"{guarded.guard.epsilon():.6g}"


def test_a_long_ledger_is_cut_short():
    ledger = dpa.privacy.Ledger("replace_one")
    for i in range(13):
        ledger.record(Laplace(scale=100.0 + i, sensitivity=1.0))
    assert Rows(ledger._repr_html_()).rows[-1] == ["", "... 3 more"]
    assert repr(ledger).endswith("  ... 3 more")


def test_a_record_does_not_take_the_place_of_the_iterations():
    def iteration(problem, w):
        return np.zeros(len(w))

    method = dpa.methods.GradientDescent(0.5, 3, noise=[1.0] * 3)
    with pytest.raises(ValueError, match="record must have no function named 'iteration'"):
        dpa.minimize(small_problem(), method, record=(iteration, "objective"))


@pytest.mark.parametrize("half", [Fraction(1, 2), Decimal("0.5"), np.float32(0.5)])
def test_step_sizes_may_be_any_real_numbers(half):
    """Fractions used to fail at the first step, after its charge."""
    problem = dpa.Quadratic([1.0, 0.5])
    for kind in (dpa.methods.GradientDescent, dpa.methods.Nesterov):
        more = (0.5,) if kind is dpa.methods.Nesterov else ()
        found, same = (
            dpa.minimize(problem, kind(each, 5, *more), w0=[1.0, 1.0]).w for each in (half, 0.5)
        )
        np.testing.assert_array_equal(found, same)


def test_a_gap_of_an_objective_that_is_not_convex_warns():
    X, y = np.eye(3), np.array([1, -1, 1])
    penalty = dpa.regularizers.GemanMcClure(0.5)
    problem = dpa.ERM(X, y, dpa.losses.Logistic(), penalty, dpa.RowBound(2, 1.0))
    with pytest.warns(
        UserWarning, match="record 'gap' is the distance to the value at a stationary"
    ):
        dpa.minimize(problem, dpa.methods.GradientDescent(0.1, 2), record=("gap",))
