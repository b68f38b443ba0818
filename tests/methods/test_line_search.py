"""Private line search: steps, sensitivities, budgets, and an audit of a tiny run."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
from small_runs import logistic, logistic_data, unrolled

import dpanalysis as dpa
from dpanalysis.audit import verify_privacy
from dpanalysis.methods.line_search import AttemptBudget, GradientSearch, angle_between
from dpanalysis.privacy import mechanisms
from dpanalysis.privacy.events import AboveThreshold, Gaussian, Sampled
from dpanalysis.privacy.oracle import PrivateOracle
from dpanalysis.privacy.queries import FirstDecrease
from dpanalysis.privacy.queries import values as decrease

M = dpa.methods
ADD, REPLACE = "add_or_remove_one", "replace_one"
BOTH = {"gd": M.LineSearchGD, "sgd": lambda **o: M.LineSearchSGD(dpa.Full(), **o)}


@pytest.fixture(params=BOTH)
def build(request):
    return BOTH[request.param]


def fake(monkeypatch, gradients, answers):
    """Take gradients and answers of searches from lists, repeating the last entry."""
    gradients, answers = list(gradients), list(answers)
    asked = []

    measure = GradientSearch._gradient

    def gradient(self, batch, w, facts, spending):
        measure(self, batch, w, facts, spending)  # charged, but not used
        return np.array(gradients.pop(0) if len(gradients) > 1 else gradients[0], dtype=float)

    def answer(self, records, random):
        asked.append(self)
        return (answers.pop(0) if len(answers) > 1 else answers[0]), 1

    monkeypatch.setattr(GradientSearch, "_gradient", gradient)
    monkeypatch.setattr(FirstDecrease, "answer", answer)
    return asked


# --- without noise ---


def armijo(problem, w, step_size, alpha, beta, tries):
    """Plain backtracking, from the objective alone; 0 if there is no step."""
    gradient = problem.gradient(w)
    for k in range(tries):
        eta = step_size * beta**k
        wanted = alpha * eta * (gradient @ gradient)
        if problem.value(w) - problem.value(w - eta * gradient) >= wanted:
            return eta, gradient
    return 0.0, gradient


@pytest.mark.parametrize("query", ["loss_clip", "difference_clip"])
def test_an_exact_run_is_plain_backtracking(build, query):
    """Clips out of reach: steps, iterates and shrinking range of a second implementation."""
    problem, memory, headroom = logistic(), 3, 1.2
    method = build(
        step_size=30.0, iterations=12, clip_loss=1e3, clip_norm=1e3, memory=memory, query=query,
        max_queries=30, sufficient_decrease=0.4, backtrack=0.7,
    )  # fmt: skip
    result = dpa.minimize(problem, method, None, record=("iterate",))
    w, start, chosen = np.zeros(4), 30.0, []
    for t in range(12):
        eta, gradient = armijo(problem, w, start, 0.4, 0.7, 30)
        w = w - eta * gradient
        assert result.history["step_size"][t + 1, 0] == pytest.approx(eta, rel=1e-12)
        np.testing.assert_allclose(result.history["iterate"][t + 1, 0], w, rtol=1e-9)
        chosen.append(eta)
        if len(chosen) == memory:
            start, chosen = min(headroom * max(chosen), start), []
    assert start < 30.0 and result.iterations == 12


def test_an_exact_run_ends_where_there_is_no_step(build):
    """Every loss is above the clip, so no search ever finds a decrease."""
    problem = dpa.ERM(np.full((5, 1), -9.0), np.ones(5), dpa.losses.Logistic())
    result = dpa.minimize(problem, build(clip_loss=0.5, max_queries=3), None, w0=[1.0])
    assert result.status == "finished" and result.iterations == 0


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_a_run_is_the_printed_loop(noise):
    """Algorithms 1 to 3, (7) to (9) and the rule for eta_0, with the same noise and batches.

    A batch for each access, so that a budget grows at once, as printed; sums are over q n (002-6).
    """
    (X, y), C, bound, xi, tau = logistic_data(), 0.6, 1.5, 0.3, 3
    rho, eps, eta_0, sampling = 0.004, 0.25, 8.0, dpa.Poisson(0.3)
    method = M.LineSearchSGD(
        sampling, rho=rho, epsilon=eps, step_size=eta_0, clip_norm=C, clip_loss=bound, growth=xi,
        memory=tau, max_queries=6, angle_min=0.8, clip_decay=0.05, noise=noise, fresh_batch=True,
        iterations=40,
    )  # fmt: skip
    w, budget = np.array([2.0, 2.0, -2.0, 1.0]), dpa.Budget(20.0, 1e-5, ADD)
    result = dpa.minimize(logistic(), method, budget, w0=w, rng=7, record=("iterate",))

    source, draws = mechanisms.spawn(mechanisms.spawn(7, 1)[0], 2)
    draw, size = getattr(mechanisms, noise), 0.3 * len(X)

    def batch():
        rows = sampling.draw(len(X), draws)
        return X[rows], y[rows]

    def gradient(w):
        rows, labels = batch()
        each = -(labels / (1.0 + np.exp(labels * (rows @ w))))[:, None] * rows
        each = each / np.maximum(1.0, np.linalg.norm(each, axis=1) / C)[:, None]
        std = C / math.sqrt(2.0 * rho)
        mean = each.sum(axis=0) / size + mechanisms.gaussian(source, std / size, 4)
        return mean + 0.01 * w

    def search(w, g):
        rows, labels = batch()

        def f(w):
            losses = np.log1p(np.exp(-labels * (rows @ w)))
            return np.minimum(losses, bound).sum() / size + 0.005 * w @ w

        scales = 2.0 / eps, 4.0 / eps
        if noise == "gaussian":
            scales = math.sqrt(3.0 / eps**2), math.sqrt(6.0 / eps**2)  # rho = eps^2/2
        first, second = (scale * bound / size for scale in scales)
        threshold = draw(source, first, 1)[0]
        for eta in eta_0 * 0.8 ** np.arange(6):
            q = f(w) - 0.5 * eta * g @ g - f(w - eta * g)
            if q + draw(source, second, 1)[0] >= threshold:
                return eta
        return 0.0

    def angle(g, h):
        return math.acos(g @ h / np.linalg.norm(g) / np.linalg.norm(h))

    mean_angle, previous, chosen, grown = 0.5 * math.pi, None, [], set()
    for t in range(40):
        g, start = gradient(w), (C, bound)
        while not (eta := search(w, g)):
            second = gradient(w)
            if g @ second < 0.0 or angle(g, second) > 1.1 * mean_angle:
                rho, C, bound = (1.0 + xi) * rho, 0.95 * start[0], 0.95 * start[1]
                grown.add("rho")
            elif angle(g, second) < 0.8 * mean_angle:
                eps = (1.0 + xi) * eps
                grown.add("epsilon")
            g = 0.5 * (g + second)
        w = w - eta * g
        if previous is not None:
            mean_angle = 0.8 * mean_angle + 0.2 * angle(g, previous)
        previous = g
        chosen.append(eta)
        if len(chosen) == tau:
            eta_0, chosen = min(1.2 * max(chosen), eta_0), []
        found = [result.history[name][t + 1, 0] for name in ("step_size", "rho", "epsilon")]
        assert found == pytest.approx([eta, rho, eps])
        np.testing.assert_allclose(result.history["iterate"][t + 1, 0], w, rtol=1e-9, atol=1e-9)
    assert grown == {"rho", "epsilon"} and eta_0 < 8.0


# --- queries and their costs ---


@pytest.mark.parametrize(
    ("sampling", "relation", "moved"),
    [
        (dpa.Poisson(0.25), ADD, 1.0),
        (dpa.WithoutReplacement(25), REPLACE, 2.0),
        (dpa.Full(), ADD, 1.0),
        (dpa.Full(), REPLACE, 2.0),
    ],
)
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_units_of_one_attempt(sampling, relation, moved, noise):
    """A record moves sums by C, twice that if it is replaced; over the public size of a batch."""
    size = 25.0 if not isinstance(sampling, dpa.Full) else 100.0
    facts = logistic(100).facts(relation)
    method = M.LineSearchSGD(
        sampling, rho=0.02, epsilon=0.3, clip_norm=0.5, clip_loss=2.0, noise=noise, max_queries=7
    )
    spending = method.prepare(facts, dpa.Budget(1.0, 1e-6, relation), "tightest")
    assert spending == AttemptBudget(0.02, 0.3, 0.5, 2.0)
    (batch,) = method.iteration(facts, spending)
    assert isinstance(batch, Sampled) and batch.sampling == sampling and batch.n == 100
    gradient, search = batch.events
    assert gradient.sensitivity == pytest.approx(moved * 0.5 / size)
    assert gradient.zcdp_cost() == pytest.approx(0.02)
    unit = moved * 2.0 / size
    ratios = (2 / 0.3, 4 / 0.3) if noise == "laplace" else (math.sqrt(3) / 0.3, math.sqrt(6) / 0.3)
    scales = (search.threshold_scale, search.query_scale)
    assert search.sensitivity == pytest.approx(unit)
    np.testing.assert_allclose(scales, unit * np.array(ratios))
    assert (search.noise, search.max_queries, search.shared) == (noise, 7, True)
    if noise == "laplace":  # below Theorem 1, as the queries share f(w)
        assert search.pure_cost() == pytest.approx(0.75 * 0.3)


def test_the_bound_on_rows_is_used_where_it_is_below_the_clip():
    facts = dataclasses.replace(logistic(100).facts(ADD), gradient_bounds=(1.0, 0.2))
    method = M.LineSearchGD(rho=0.02, epsilon=0.3)
    (batch,) = method.iteration(
        facts, method.prepare(facts, dpa.Budget(1.0, 1e-6, ADD), "tightest")
    )
    assert batch.events[0].sensitivity == pytest.approx(0.2 / 100)


def test_default_costs_are_the_papers(build):
    """5.4: e = epsilon/100 for the search, e^2/2 for the gradient; rho counts as sqrt(2 rho)."""
    facts = logistic(100).facts(ADD)
    spending = build().prepare(facts, dpa.Budget(0.4, 1e-8, ADD), "tightest")
    assert (spending.epsilon, spending.rho) == (pytest.approx(0.004), pytest.approx(8e-6))
    spending = build().prepare(facts, dpa.Budget.zcdp(0.08, ADD), "tightest")
    assert (spending.epsilon, spending.rho) == (pytest.approx(0.004), pytest.approx(8e-6))
    assert (
        build(rho=1.0).prepare(facts, None, "tightest").exact
    )  # without a budget there is no noise


def test_a_gaussian_search_is_charged_for_its_cap():
    """Errata 002-3: the printed cost, alpha rho = .02 whatever the cap, is exceeded: .0343."""
    facts = logistic(100).facts(ADD)
    search = []
    for cap in (20, 5000):
        method = M.LineSearchSGD(
            dpa.Full(), rho=1.0, epsilon=math.sqrt(0.02), noise="gaussian", max_queries=cap,
            query="difference_clip",
        )  # fmt: skip
        spending = method.prepare(facts, dpa.Budget(1.0, 1e-6, ADD), "tightest")
        search.append(method.iteration(facts, spending)[0].events[1])
    few, many = (float(event.rdp_cost(2.0)) for event in search)
    assert few < 0.02 < 0.0343 < many
    with pytest.raises(dpa.IncompatibleAccounting, match="gaussian"):  # no finite rho
        dpa.minimize(logistic(), M.LineSearchGD(noise="gaussian"), dpa.Budget.zcdp(1.0))


def test_a_fresh_batch_is_a_separate_event():
    method = M.LineSearchSGD(
        dpa.Poisson(0.2), rho=0.01, epsilon=0.1, iterations=4, fresh_batch=True
    )
    result = dpa.minimize(logistic(), method, dpa.Budget(3.0, 1e-5, ADD), rng=0)
    events = unrolled(result.ledger)
    assert len(events) >= 8 and len(events) % 2 == 0
    for gradient, search in zip(events[::2], events[1::2]):
        assert isinstance(gradient, Sampled) and isinstance(gradient.events[0], Gaussian)
        assert isinstance(search, Sampled) and isinstance(search.events[0], AboveThreshold)
        assert len(gradient.events) == len(search.events) == 1


# --- when the search fails ---


def test_full_batches_measure_the_gradient_again_after_a_failure(monkeypatch):
    """Two failures at growth .5: costs rho, rho/2, 3 rho/4; weights in proportion to them."""
    fake(monkeypatch, [[1.0, 0, 0, 0], [0, 1.0, 0, 0], [0, 0, 1.0, 0]], [None, None, 0])
    method = M.LineSearchGD(rho=0.01, epsilon=0.1, growth=0.5, iterations=2, step_size=1.0)
    result = dpa.minimize(
        logistic(), method, dpa.Budget(9.0, 1e-5, ADD), rng=0, record=("iterate",)
    )
    costs = [batch.events[0].zcdp_cost() for batch in unrolled(result.ledger)]
    np.testing.assert_allclose(costs, [0.01, 0.005, 0.0075, 0.0225])
    first = -np.array([0.01, 0.005, 0.0075, 0.0]) / 0.0225
    np.testing.assert_allclose(result.history["iterate"][1, 0], first)
    np.testing.assert_allclose(result.history["rho"][1:, 0], 0.0225)  # and stays there
    searches = {batch.events[1].pure_cost() for batch in unrolled(result.ledger)}
    assert len(searches) == 1


@pytest.mark.parametrize(
    ("adapt", "second", "grows"),
    [
        ("angle", [-1.0, 0.1, 0, 0], "rho"),  # apart
        ("angle", [0.1, 1.0, 0, 0], ""),  # 84 degrees, between 45 and 99
        ("angle", [1.0, 0.1, 0, 0], "epsilon"),  # alike
        ("always", [1.0, 1.0, 0, 0], "both"),
        ("never", [-1.0, 0.1, 0, 0], ""),
    ],
)
def test_the_angle_says_whose_budget_grows(monkeypatch, adapt, second, grows):
    """Algorithm 3 with theta_bar = 90 degrees; the two gradients are averaged."""
    first = [1.0, 0, 0, 0]
    asked = fake(monkeypatch, [first, second, first], [None, 3, 0])
    method = M.LineSearchSGD(
        dpa.Full(), rho=0.01, epsilon=0.1, growth=0.5, adapt=adapt, iterations=1, clip_decay=0.1,
        backtrack=0.5, step_size=1.0,
    )  # fmt: skip
    result = dpa.minimize(
        logistic(), method, dpa.Budget(9.0, 1e-5, ADD), rng=0, record=("iterate",)
    )
    rho, epsilon = (result.history[name][1, 0] for name in ("rho", "epsilon"))
    assert rho == pytest.approx(0.015 if grows in ("rho", "both") else 0.01)
    assert epsilon == pytest.approx(0.15 if grows in ("epsilon", "both") else 0.1)
    clips = [query.clip for query in asked]
    assert clips == [1.0, 1.0]  # the batch of the second gradient was charged with the old clip
    mean = 0.5 * (np.array(first) + second)
    np.testing.assert_allclose(result.history["iterate"][1, 0], -0.125 * mean)


@pytest.mark.slow
def test_clips_shrink_once_an_iteration(monkeypatch):
    """Equation (9), however often rho grows in the search for one step."""
    asked = fake(monkeypatch, [[1.0, 0, 0, 0], [-1.0, 0, 0, 0]], [None, None, None, 0])
    method = M.LineSearchSGD(
        dpa.Full(), rho=0.001, epsilon=0.1, adapt="always", clip_decay=0.1, iterations=2
    )
    result = dpa.minimize(logistic(), method, dpa.Budget(9.0, 1e-5, ADD), rng=0)
    assert [query.clip for query in asked] == pytest.approx([1.0, 1.0, 0.9, 0.9, 0.9])
    moved = [batch.events[0].sensitivity for batch in unrolled(result.ledger)]
    assert np.divide(moved, moved[0]) == pytest.approx([1.0, 1.0, 0.9, 0.9, 0.9])
    assert result.history["rho"][1, 0] == pytest.approx(0.001 * 1.3**3)


@pytest.mark.slow
def test_the_smallest_step_is_taken_instead(monkeypatch):
    """5.7: beta^max_it eta_0 where no step is found; nothing is measured again."""
    fake(monkeypatch, [[1.0, 0, 0, 0]], [None])
    method = M.LineSearchSGD(
        dpa.Full(), rho=0.01, epsilon=0.1, smallest_step=True, iterations=3, max_queries=4,
        backtrack=0.5, memory=100, step_size=1.0,
    )  # fmt: skip
    result = dpa.minimize(logistic(), method, dpa.Budget(9.0, 1e-5, ADD), rng=0)
    np.testing.assert_allclose(result.history["step_size"][1:, 0], 1.0 / 16.0)
    assert len(result.ledger) == 3


def test_angle_between():
    assert angle_between(np.array([1.0, 0.0]), np.array([-2.0, 0.0])) == pytest.approx(math.pi)
    assert angle_between(np.zeros(2), np.ones(2)) == pytest.approx(0.5 * math.pi)
    same = np.array([0.1, 0.7, 0.3])
    assert angle_between(same, 3.0 * same) == pytest.approx(0.0, abs=1e-7)


# --- black-box audit of a tiny run ---


def released(labels, method, budget):
    """Sampler of the outcome of one attempt: step times gradient, 0 if there was none."""

    def mechanism(rows, rng, size):
        problem = dpa.ERM(np.asarray(rows)[:, None], labels, dpa.losses.Logistic())
        seed = int(rng.integers(2**31))
        result = dpa.minimize(
            problem, method, budget, rng=seed, replicates=size, record=(), w0=[1.0]
        )
        return result.w[:, 0]

    return mechanism


@pytest.fixture
def tiny():
    """One attempt on two records, one of which is replaced by an outlier."""
    method = M.LineSearchGD(
        rho=0.02, epsilon=0.6, iterations=1, clip_norm=0.5, max_queries=3, step_size=4.0, growth=1e9
    )
    budget = dpa.Budget(1.5, 0.01, REPLACE)
    return method, budget, np.array([1.0, -1.0]), (np.array([1.0, 0.0]), np.array([1.0, 60.0]))


def verdict(tiny, samples):
    """Chance of a false alarm 1e-6."""
    method, budget, labels, (data, neighbour) = tiny
    with np.errstate(over="ignore"):
        return verify_privacy(
            released(labels, method, budget),
            data,
            neighbour,
            budget.epsilon,
            delta=budget.delta,
            samples=samples,
            confidence=1 - 1e-6,
            rng=0,
        )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:delta = :UserWarning")
def test_a_tiny_run_is_as_private_as_it_says(tiny):
    assert not verdict(tiny, 1000).refuted


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:delta = :UserWarning")
def test_an_unclamped_loss_is_seen(tiny, monkeypatch):
    """The outlier's loss alone decides where the search ends."""
    monkeypatch.setattr(decrease, "clip_losses", lambda losses, clip: losses)
    assert verdict(tiny, 1000).refuted


# --- bad input ---


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("step_size", (0.0, -1.0, math.nan, math.inf)),
        ("clip_norm", (0.0, -1.0)),
        ("clip_loss", (0.0, -1.0, math.inf)),
        ("sufficient_decrease", (0.0, 1.0, -0.5)),
        ("backtrack", (0.0, 1.0, 1.5)),
        ("max_queries", (0, -3)),
        ("iterations", (0,)),
        ("memory", (0,)),
        ("headroom", (1.0, 0.5)),
        ("rho", (0.0, -1.0)),
        ("epsilon", (0.0, math.nan)),
        ("growth", (-0.1,)),
        ("noise", ("cauchy",)),
        ("query", ("clip",)),
    ],
)
def test_refuses_bad_arguments(build, name, values):
    for value in values:
        with pytest.raises(ValueError, match=name):
            build(**{name: value})


def test_refuses_bad_arguments_of_one_or_the_other():
    for name, value in [
        ("adapt", "sometimes"),
        ("angle_decay", 1.0),
        ("angle_max", 1.0),
        ("angle_min", 0.0),
        ("clip_decay", 1.0),
    ]:
        with pytest.raises(ValueError, match=name):
            M.LineSearchSGD(dpa.Poisson(0.1), **{name: value})
    for method in (M.LineSearchGD, M.AdaptiveGD):
        for value in (0.0, 1e-17):  # too small to change a budget
            with pytest.raises(ValueError, match="growth"):
                method(growth=value)
    with pytest.raises(TypeError, match="sampling"):
        M.LineSearchSGD(0.1)
    with pytest.raises(TypeError, match="max_queries"):
        M.LineSearchGD(max_queries=2.5)
    with pytest.raises(ValueError, match="growth"):
        M.LineSearchGD(growth=0.0)  # a failed search could then change nothing


def test_the_angle_in_the_state_is_the_moving_average_of_the_gradients_angles():
    problem, method = logistic(), M.LineSearchSGD(dpa.Full(), iterations=6, angle_decay=0.7)
    facts = problem.facts(REPLACE)
    oracle = PrivateOracle(problem, facts, None, [np.random.default_rng(0)])
    plan = method.prepare(facts, None, "tightest")
    states = [step.state for step in method.run(np.ones(4), oracle, plan)]
    average = 0.5 * math.pi
    for before, state in itertools.pairwise(states):
        turned = angle_between(state["previous"], before["previous"])
        average = 0.7 * average + 0.3 * turned
        assert state["angle"] == pytest.approx(average)
    assert len(states) == 6 and average < 1.0
