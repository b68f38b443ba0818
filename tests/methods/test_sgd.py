"""DP-SGD and DP-Adam: explicit loops, outputs, privacy costs, refused arguments."""

import pickle
from dataclasses import dataclass

import numpy as np
import pytest
from scipy import stats

import dpanalysis as dpa
from dpanalysis import privacy
from dpanalysis.privacy import mechanisms

LOGISTIC = dpa.losses.Logistic()
FLAT = dpa.clipping.Flat(0.5)
ADD = "add_or_remove_one"


def data_of(n=300, d=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, np.where(X @ np.arange(1.0, d + 1.0) + 0.3 * rng.normal(size=n) > 0, 1.0, -1.0)


def problem_of(n=300, d=3, regularizer=None, row_bound=None, loss=LOGISTIC, seed=0):
    return dpa.ERM(*data_of(n, d, seed), loss, regularizer, row_bound=row_bound)


def noisy_gradients(sampling, clip_norm, std, seed, strength):
    """Return a function (replicate, w) -> DP-SGD's gradient, computed sample by sample."""
    pairs = [mechanisms.spawn(source, 2) for source in mechanisms.spawn(seed, 2)]
    X, y = data_of()

    def gradient(replicate, w):
        noise, batch = pairs[replicate]
        total = np.zeros(w.size)
        for i in sampling.draw(len(X), batch):
            g = -y[i] * X[i] / (1.0 + np.exp(y[i] * (X[i] @ w)))
            total += g * min(1.0, clip_norm / np.linalg.norm(g))
        mean = total / sampling.expected_size(len(X))
        return mean + mechanisms.gaussian(noise, std, w.size) + strength * w

    return gradient


@pytest.mark.parametrize(
    "sampling",
    [dpa.Poisson(0.05), dpa.Poisson(0.002), dpa.WithoutReplacement(15), dpa.WithReplacement(200)],
)
def test_sgd_is_the_loop_written_out(sampling):
    """Flat clipping, momentum as in v = beta v + g, x = x - alpha v; rate .002: empty batches."""
    problem, T, std = problem_of(regularizer=dpa.regularizers.L2(0.1)), 12, 0.3
    method = dpa.methods.SGD(0.7, T, sampling, FLAT, 0.6, noise=np.full(T, std))
    result = dpa.minimize(problem, method, replicates=2, rng=5)
    gradient = noisy_gradients(sampling, 0.5, std, 5, 0.1)
    for replicate in range(2):
        x, v = np.zeros(3), np.zeros(3)
        for _ in range(T):
            v = 0.6 * v + gradient(replicate, x)
            x = x - 0.7 * v
        np.testing.assert_allclose(result.w[replicate], x, rtol=1e-10)


@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_adam_is_the_loop_written_out(decay):
    problem, T, std, sampling = problem_of(), 15, 0.2, dpa.Poisson(0.1)
    steps = 0.1 / np.sqrt(np.arange(1.0, T + 1.0))
    method = dpa.methods.Adam(
        steps, T, sampling, FLAT, (0.8, 0.95), 1e-3, decay, noise=np.full(T, std)
    )
    result = dpa.minimize(problem, method, replicates=2, rng=8)
    gradient = noisy_gradients(sampling, 0.5, std, 8, 0.0)
    for replicate in range(2):
        x, m, v = np.zeros(3), np.zeros(3), np.zeros(3)
        for t in range(1, T + 1):
            g = gradient(replicate, x)
            m, v = 0.8 * m + 0.2 * g, 0.95 * v + 0.05 * g**2
            step = (m / (1 - 0.8**t)) / (np.sqrt(v / (1 - 0.95**t)) + 1e-3)
            x = x - steps[t - 1] * (step + decay * x)
        np.testing.assert_allclose(result.w[replicate], x, rtol=1e-10)


def test_nesterov_momentum_takes_the_gradient_ahead():
    """The usual form, v = beta v + g and x = x - alpha (g + beta v), looks at x + beta (x - x')."""
    problem = dpa.Quadratic([0.5, 2.0], center=[1.0, -1.0])
    method = dpa.methods.SGD(0.1, 12, dpa.Full(), None, momentum=0.8, nesterov=True)
    result = dpa.minimize(problem, method, w0=[3.0, 3.0])
    x, v = np.array([3.0, 3.0]), np.zeros(2)
    previous = x
    for _ in range(12):
        ahead = x + 0.8 * (x - previous)
        previous, x = x, ahead - 0.1 * problem.gradient(ahead)
    np.testing.assert_allclose(result.w[0], x, rtol=1e-12)
    point = np.array([3.0, 3.0])  # the variable of the usual form, which is ahead
    for _ in range(12):
        g = problem.gradient(point)
        v = 0.8 * v + g
        point = point - 0.1 * (g + 0.8 * v)
    np.testing.assert_allclose(result.w[0] + 0.8 * (x - previous), point, rtol=1e-12)
    with pytest.raises(ValueError, match="nesterov"):
        dpa.methods.SGD(0.1, 12, dpa.Full(), None, nesterov="yes")


def test_adam_does_not_overflow_where_squares_do():
    """Gradients of 1e200: the first step is one step size all the same."""
    problem = dpa.Quadratic([1e200, 1.0], center=[1.0, 1.0])
    result = dpa.minimize(problem, dpa.methods.Adam(0.1, 1, dpa.Full(), None), w0=[0.0, 0.0])
    np.testing.assert_allclose(result.w, 0.1, rtol=1e-6)


@pytest.mark.parametrize("kind", ["SGD", "Adam"])
def test_schedules_are_functions_or_arrays(kind):
    method, problem = getattr(dpa.methods, kind), problem_of()

    def run(step_size, iterations=6):
        chosen = method(step_size, iterations, dpa.Full(), FLAT)
        return dpa.minimize(problem, chosen, record=()).w

    falling = [0.5 / (1 + count) for count in range(6)]
    np.testing.assert_array_equal(run(lambda count: 0.5 / (1 + count)), run(falling))
    np.testing.assert_array_equal(run(np.full(6, 0.5)), run(0.5))
    assert not np.allclose(run(falling), run(0.5))
    # A function serves any number of iterations.
    np.testing.assert_array_equal(run(lambda count: 0.5, 4), run(0.5, 4))


def test_without_sampling_and_clipping_it_is_the_heavy_ball():
    problem = problem_of(row_bound=dpa.RowBound(2, 1.0), regularizer=dpa.regularizers.L2(0.5))
    budget = dpa.Budget(1.0, 1e-6)
    sgd = dpa.methods.SGD(0.3, 20, dpa.Full(), None, 0.4)
    ball = dpa.methods.HeavyBall(0.3, 0.4, 20, mechanism="gaussian")
    one, two = (dpa.minimize(problem, method, budget, rng=1) for method in (sgd, ball))
    np.testing.assert_array_equal(one.w, two.w)
    assert one.epsilon() == two.epsilon()


# Outputs of a run


OPTIONS = {"noise": np.full(7, 0.3)}


def trajectory(output, seed=3, replicates=400, **options):
    method = dpa.methods.SGD(0.5, 7, dpa.Poisson(0.05), FLAT, output=output, **OPTIONS)
    return dpa.minimize(
        problem_of(n=60),
        method,
        replicates=replicates,
        rng=seed,
        record=("iterate",),
        **options,
    )


@pytest.mark.slow
def test_the_output_is_the_last_a_drawn_or_the_mean_iterate():
    """The iterates, noise and batches are the same for every output."""
    runs = {output: trajectory(output) for output in ("last", "uniform", "average")}
    iterates = runs["last"].history["iterate"]  # (8, R, d)
    for run in runs.values():
        np.testing.assert_array_equal(run.history["iterate"], iterates)
        assert run.epsilon(1e-5) == runs["last"].epsilon(1e-5)
    np.testing.assert_array_equal(runs["last"].w, iterates[-1])
    np.testing.assert_allclose(runs["average"].w, iterates.mean(axis=0), rtol=1e-12)
    drawn = runs["uniform"].drawn
    np.testing.assert_array_equal(runs["uniform"].w, iterates[drawn, np.arange(400)])
    assert runs["last"].drawn is None and runs["average"].drawn is None
    assert [run.released for run in runs.values()] == [
        ("iterates",),
        ("iterates", "iteration drawn"),
        ("iterates", "mean of the iterates"),
    ]


@pytest.mark.slow
def test_the_iterate_is_drawn_uniformly_and_blindly():
    """Chi-square on 8 cells, rejection 1e-4; the same draw on other data and without noise."""
    drawn = trajectory("uniform", replicates=4000).drawn
    assert stats.chisquare(np.bincount(drawn, minlength=8)).pvalue > 1e-4
    assert stats.chisquare(np.bincount(drawn, minlength=9)).pvalue < 1e-4
    other = dpa.methods.SGD(0.1, 7, dpa.Full(), FLAT, output="uniform")
    same = dpa.minimize(problem_of(n=30, seed=9), other, replicates=4000, rng=3, record=()).drawn
    np.testing.assert_array_equal(drawn, same)


def test_runs_that_stop_early_return_an_iterate_made_so_far():
    stop = {"callback": lambda iteration, w: iteration == 3}
    uniform, average = (trajectory(output, **stop) for output in ("uniform", "average"))
    assert uniform.iterations == 3 and uniform.drawn.max() == 3
    iterates = average.history["iterate"]
    assert len(iterates) == 4
    np.testing.assert_allclose(average.w, iterates.mean(axis=0), rtol=1e-12)
    np.testing.assert_array_equal(uniform.w, iterates[uniform.drawn, np.arange(400)])


def test_the_longest_step_determines_the_warning():
    problem = problem_of(regularizer=dpa.regularizers.L2(1.0))
    method = dpa.methods.SGD([0.1, 10.0, 0.1], 3, dpa.Poisson(0.1), FLAT)
    with pytest.warns(UserWarning, match=r"step_size 10 is above 2/mu = 2"):
        dpa.minimize(problem, method, dpa.Budget(2.0, 1e-5, ADD), rng=0)


@pytest.mark.slow
@pytest.mark.parametrize("output", ["last", "uniform", "average"])
def test_a_step_that_diverges_stops_the_run_and_costs_the_whole_plan(output):
    """A regularizer of curvature 1 at a step of 10: the iterates grow by a factor of 9."""
    problem = problem_of(regularizer=dpa.regularizers.L2(1.0))
    method = dpa.methods.SGD(10.0, 400, dpa.Poisson(0.1), FLAT, output=output)
    budget = dpa.Budget(2.0, 1e-5, ADD)
    with (
        pytest.warns(UserWarning, match=r"step_size 10 is above 2/mu = 2"),
        pytest.warns(RuntimeWarning, match="diverged at iteration 2.*stays spent"),
    ):
        result = dpa.minimize(problem, method, budget, rng=0, every=400)
    assert result.status == "diverged" and 200 < result.iterations < 400
    assert np.isfinite(result.w).all()
    assert result.iterations < len(result.ledger) < 400
    assert 0.999 * 2.0 < result.epsilon() <= 2.0 * (1 + 1e-9)


def test_an_adam_step_that_diverges_leaves_the_start():
    method = dpa.methods.Adam(1e300, 5, dpa.Poisson(0.1), FLAT, noise=np.ones(5))
    with pytest.warns(RuntimeWarning, match="diverged at iteration 1"):
        result = dpa.minimize(problem_of(), method, rng=0)
    assert (result.w == 0.0).all() and len(result.ledger) == 1
    # One step was made, and all five are charged: the decision to stop depends on the data.
    whole = privacy.epsilon(result.planned, 1e-5, ADD)
    assert result.epsilon(1e-5) == whole > privacy.epsilon(result.ledger, 1e-5, ADD)


# Privacy


def test_a_budget_becomes_noise_by_the_loss_distribution_and_rdp_says_more():
    problem, budget = problem_of(), dpa.Budget(1.0, 1e-5, ADD)
    method = dpa.methods.SGD(0.5, 100, dpa.Poisson(0.05), FLAT, 0.9)
    result = dpa.minimize(problem, method, budget, rng=0, every=100)
    assert result.private and result.status == "finished"
    assert 0.999 < result.epsilon(accountant="pld") == result.epsilon() <= 1.0 + 1e-9
    assert 1.01 < result.epsilon(accountant="rdp") < 1.6
    with pytest.raises(dpa.IncompatibleAccounting, match="pure"):
        result.epsilon(accountant="pure")
    with pytest.raises(ValueError, match="accountant"):
        result.epsilon(accountant="moments")
    # Calibrated by RDP, the noise is larger and fits the budget by RDP.
    careful = dpa.minimize(problem, method, budget, rng=0, every=100, accountant="rdp")
    assert careful.plan.scales[0] > 1.05 * result.plan.scales[0]
    assert 0.999 < careful.epsilon(accountant="rdp") <= 1.0 + 1e-9


@pytest.mark.slow
def test_draws_with_replacement_need_more_noise():
    """Each draw of a record moves the mean of m clipped gradients by 2 C/m."""
    problem, budget = problem_of(), dpa.Budget(1.0, 1e-5)
    scales = {}
    for sampling in (dpa.WithReplacement(30), dpa.WithoutReplacement(30)):
        method = dpa.methods.SGD(0.5, 20, sampling, FLAT)
        result = dpa.minimize(problem, method, budget, rng=0, every=20)
        assert 0.999 < result.epsilon() <= 1.0 + 1e-9
        event = result.ledger.events[0].event
        assert event.sampling == sampling and event.n == 300
        assert event.events[0].sensitivity == pytest.approx(2 * 0.5 / 30)
        scales[type(sampling).__name__] = result.plan.scales[0]
    assert scales["WithReplacement"] > 1.02 * scales["WithoutReplacement"]


@pytest.mark.slow
def test_noise_of_a_multiplier_gives_the_numbers_of_004():
    """10 epochs of MNIST at noise multiplier 1 (errata 004-7): 469 batches, here one row each."""
    problem = problem_of(n=469, d=2)
    method = dpa.methods.SGD(0.1, 4690, dpa.Poisson(1 / 469), FLAT, output="uniform")
    method = method.with_noise_multiplier(1.0, problem.n)
    result = dpa.minimize(problem, method, rng=0, every=4690)
    assert result.epsilon(1e-5) == pytest.approx(0.7335, abs=1e-4)
    orders = [*(1 + x / 10 for x in range(1, 100)), *range(12, 64)]  # those of Opacus
    (run,) = result.ledger.events
    printed = privacy.rdp_to_epsilon(orders, run.rdp_cost(orders), 1e-5)[0]
    assert printed == pytest.approx(1.0379, abs=1e-4)
    # The best order is larger than all of them.
    assert 0.98 * printed > result.epsilon(1e-5, accountant="rdp") > 1.3 * 0.7335


@pytest.mark.slow
def test_the_noise_multiplier_is_the_noise_of_the_sum():
    """Empty batches leave only the noise: its deviation times the batch size is sigma C."""
    problem = problem_of(n=40)
    method = dpa.methods.SGD(1.0, 1, dpa.Poisson(1e-12), FLAT)
    noisy = method.with_noise_multiplier(3.0, 40)
    result = dpa.minimize(problem, noisy, replicates=4000, rng=0)
    size = 40 * 1e-12
    # 12,000 normal numbers: off by 5% is 7 deviations of the estimate.
    assert result.w.std() * size == pytest.approx(3.0 * 0.5, rel=0.05)
    (event,) = result.ledger.events
    assert event.events[0].mu == pytest.approx(1 / 3.0)


@pytest.mark.parametrize(
    "rule",
    [
        dpa.clipping.Flat(0.5),
        dpa.clipping.Automatic(0.1, 0.5),
        dpa.clipping.PerSampleAdaptive(0.1, 0.5),
        dpa.clipping.Value(0.5, beta1=1.0),
    ],
    ids=lambda rule: type(rule).__name__,
)
@pytest.mark.parametrize("relation", ["replace_one", ADD])
def test_full_batches_run_with_every_rule(rule, relation):
    """One record moves the clipped sum by C, or 2 C where it is replaced."""
    problem = problem_of(row_bound=dpa.RowBound(2, 1.5))
    moved = 0.5 * (2 if relation == "replace_one" else 1) / problem.n
    for method in (
        dpa.methods.GradientDescent(1.0, 30, mechanism="gaussian", clipping=rule),
        dpa.methods.SGD(1.0, 30, dpa.Full(), rule),
        dpa.methods.Adam(0.1, 30, dpa.Full(), rule),
    ):
        budget = dpa.Budget(2.0, 1e-5, relation)
        result = dpa.minimize(problem, method, budget, rng=0, every=30)
        (run,) = result.ledger.events
        assert run.event.sensitivity == pytest.approx(moved)
        assert 0.999 * 2.0 < result.epsilon() <= 2.0 * (1 + 1e-9)
        assert result.history["objective"][-1, 0] < 0.9 * result.history["objective"][0, 0]


@pytest.mark.parametrize("kind", ["SGD", "Adam"])
def test_it_learns_under_a_budget(kind):
    problem, budget = problem_of(n=4000), dpa.Budget(1.0, 1e-5, ADD)
    step = {"SGD": 1.0, "Adam": 0.05}[kind]
    rule = dpa.clipping.PerSampleAdaptive(0.1)
    method = getattr(dpa.methods, kind)(step, 150, dpa.Poisson(0.02), rule, output="average")
    result = dpa.minimize(problem, method, budget, rng=0, replicates=5, every=150)
    assert (problem.accuracy(result.w) > 0.9).all()


# Refused arguments


def sgd(step_size=0.1, iterations=5, sampling=None, clipping=FLAT, **options):
    return dpa.methods.SGD(step_size, iterations, sampling or dpa.Full(), clipping, **options)


def adam(**options):
    return dpa.methods.Adam(0.1, 5, dpa.Full(), FLAT, **options)


@pytest.mark.parametrize(
    ("build", "error", "match"),
    [
        (lambda: sgd(sampling=dpa.Poisson(0.0)), ValueError, r"rate must lie in \(0, 1\], got 0"),
        (lambda: sgd(sampling=dpa.Poisson(1.01)), ValueError, r"rate must lie in \(0, 1\]"),
        (lambda: sgd(sampling=dpa.Poisson), TypeError, "sampling must be"),
        (lambda: sgd(iterations=-3), ValueError, "iterations must be at least 1, got -3"),
        (lambda: sgd(iterations=0), ValueError, "iterations"),
        (lambda: sgd(iterations=2.5), TypeError, "iterations"),
        (lambda: sgd(step_size=0.0), ValueError, "step_size"),
        (lambda: sgd(step_size=-0.1), ValueError, "step_size"),
        (lambda: sgd(step_size=[0.1, 0.1]), ValueError, r"step_size must be 5 numbers.*\(2,\)"),
        (lambda: sgd(step_size=lambda count: 1.0 - count), ValueError, "minimum -3"),
        (lambda: sgd(step_size=[0.1, 0.1, np.nan, 0.1, 0.1]), ValueError, "step_size"),
        (lambda: sgd(step_size=[0.1, 0.1, 0.0, 0.1, 0.1]), ValueError, "minimum 0"),
        (lambda: sgd(step_size="small"), TypeError, "step_size"),
        (lambda: sgd(momentum=1.0), ValueError, r"momentum must lie in \[0, 1\)"),
        (lambda: sgd(momentum=-0.1), ValueError, "momentum"),
        (lambda: sgd(clipping=1.0), TypeError, "clipping"),
        (lambda: sgd(output="best"), ValueError, "output must be one of 'last', 'uniform', 'av"),
        (lambda: sgd(noise="optimal"), ValueError, "SGD has none.*GradientDescent"),
        (lambda: sgd(choose_iterations=1.0), ValueError, "choose_iterations need an error bound"),
        (lambda: adam(noise="optimal"), ValueError, "Adam has none"),
        (lambda: adam(betas=(1.0, 0.9)), ValueError, r"betas\[0\] must lie in \[0, 1\), got 1"),
        (lambda: adam(betas=(0.9, 1.1)), ValueError, r"betas\[1\]"),
        (lambda: adam(betas=(-0.1, 0.9)), ValueError, r"betas\[0\]"),
        (lambda: adam(betas=0.9), TypeError, "betas must be two numbers"),
        (lambda: adam(betas=(0.9, 0.9, 0.9)), TypeError, "betas must be two numbers"),
        (lambda: adam(eps=0.0), ValueError, "eps"),
        (lambda: adam(weight_decay=-0.1), ValueError, "weight_decay"),
        (lambda: adam().state_space(), ValueError, "not linear"),
        (lambda: sgd(clipping=None).with_noise_multiplier(1.0, 9), ValueError, "clipping rule"),
        (lambda: sgd(mechanism="laplace").with_noise_multiplier(1.0, 9), ValueError, "gaussian"),
        (lambda: sgd().with_noise_multiplier(0.0, 9), ValueError, "noise_multiplier must lie"),
        (lambda: sgd().with_noise_multiplier(1.0, 0), ValueError, "n must be at least 1"),
        (lambda: sgd().with_noise_multiplier(1.0, -9), ValueError, "n must be at least 1"),
        (lambda: sgd().with_noise_multiplier(1.0, 9.5), TypeError, "n must be an integer"),
        (lambda: sgd().error_recursion(None), ValueError, "SGD has none"),
    ],
)
def test_bad_arguments_are_named(build, error, match):
    with pytest.raises(error, match=match):
        build()


@pytest.mark.parametrize("noise", ["uniform", np.ones(5)])
def test_an_unbounded_loss_needs_a_clip_norm(noise):
    """Before the data are touched, with and without a budget."""
    problem = problem_of(loss=dpa.losses.SquaredError())
    method = sgd(sampling=dpa.Poisson(0.1), clipping=None, noise=noise)
    budget = dpa.Budget(1.0, 1e-5, ADD) if isinstance(noise, str) else None
    with pytest.raises(ValueError, match=r"no public bound.*clipping rule"):
        dpa.minimize(problem, method, budget)


def test_gaussian_noise_needs_a_delta_and_a_scheme_its_relation():
    with pytest.raises(ValueError, match=r"delta > 0 or in zCDP \(rho=\)"):
        dpa.minimize(problem_of(), sgd(), dpa.Budget(1.0))
    for sampling, relation in [
        (dpa.Poisson(0.1), "replace_one"),
        (dpa.WithReplacement(10), ADD),
        (dpa.WithoutReplacement(10), ADD),
    ]:
        with pytest.raises(dpa.IncompatibleAccounting, match="go with"):
            dpa.minimize(problem_of(), sgd(sampling=sampling), dpa.Budget(1.0, 1e-5, relation))
    with pytest.raises(ValueError, match="m must be at most n = 300"):
        dpa.minimize(problem_of(), sgd(sampling=dpa.WithReplacement(301)), dpa.Budget(1.0, 1e-5))


def test_a_run_with_one_exact_gradient_has_no_guarantee():
    result = dpa.minimize(problem_of(), sgd(noise=(0.0, 1.0, 1.0, 1.0, 1.0)), rng=0)
    assert result.iterations == 5 and not result.private


def test_methods_are_values():
    method = sgd(step_size=[0.1, 0.2, 0.3, 0.4, 0.5], sampling=dpa.Poisson(0.1))
    assert method == pickle.loads(pickle.dumps(method)) and hash(method)
    assert adam(betas=[0.8, 0.9]) == adam(betas=(0.8, 0.9)) and hash(adam(betas=[0.8, 0.9]))
    assert repr(method) == (
        "SGD(step_size=<5 numbers, 0.1 to 0.5>, iterations=5, sampling=Poisson(rate=0.1), "
        "clipping=Flat(clip_norm=0.5))"
    )
    facts = problem_of().facts(ADD)
    assert method.prepare(facts, None, "tightest").scales is None


def test_words_of_a_users_method_are_shown_as_they_are():
    @dataclass(frozen=True, repr=False)
    class Named(dpa.methods.Method):
        names: tuple[str, ...] = ()

        def prepare(self, facts, budget, accountant):
            return None

        def events(self, facts, plan):
            return ()

        def run(self, w, oracle, plan):
            return iter(())

    assert repr(Named(tuple("abcd"))) == "Named(names=('a', 'b', 'c', 'd'))"
