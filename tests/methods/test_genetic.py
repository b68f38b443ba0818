"""PrivGene: spending, optimization, refused arguments; several choices at once."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

import dpanalysis as dpa
from dpanalysis import privacy
from dpanalysis.audit import renyi_divergence
from dpanalysis.methods import GeneticSearch
from dpanalysis.privacy.events import BoundedRange, Repeated
from dpanalysis.privacy.facts import PublicFacts
from dpanalysis.privacy.queries import NoisyMin, Records

SMALL = {"population": 20, "parents": 3, "generations": 4}
CHOICES = 3 * 3 + 1


def erm(n=400, d=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, size=(n, d))
    return dpa.ERM(X, np.sign(X @ np.arange(1.0, d + 1.0)), dpa.losses.Logistic())


# --- several choices from one noise ---


def orders_of(values, scale, count):
    """The law of the chosen indices: exponential mechanisms on the points that are left."""
    law = {}
    for chosen in itertools.permutations(range(len(values)), count):
        weights, chance = np.exp(-np.asarray(values) / scale), 1.0
        for index in chosen:
            chance *= weights[index] / weights.sum()
            weights[index] = 0.0
        law[chosen] = chance
    return law


@pytest.mark.slow
def test_several_indices_have_the_law_of_as_many_choices():
    """Chi-square of 4,000 answers with 12 outcomes; false alarm 1e-6."""
    problem = dpa.ERM(np.array([[1.0], [2.0]]), [1.0, -1.0], dpa.losses.Logistic())
    points = np.array([[-2.0], [0.0], [1.0], [3.0]])
    query = NoisyMin(points, 2.0, 0.5, count=2)
    values = np.array(
        [np.clip(problem.line_losses(w, np.zeros(1))(0.0), 0.0, 2.0).sum() for w in points]
    )
    law, random = orders_of(values, 0.5, 2), np.random.default_rng(0)
    records = Records(problem, None, 1.0)
    answers = [tuple(query.answer(records, random)[0]) for _ in range(4000)]
    seen = [answers.count(order) for order in law]
    assert sum(law.values()) == pytest.approx(1.0)
    assert stats.chisquare(seen, 4000 * np.array(list(law.values()))).pvalue > 1e-6
    assert query.answer(records, random)[1] == 4


@pytest.mark.slow
@pytest.mark.parametrize("relation", ["add_or_remove_one", "replace_one"])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_several_indices_cost_as_many_choices_and_no_less(relation, count):
    """Exact divergences of the laws; the pure loss is attained by points that are rarely chosen."""
    facts = PublicFacts(10, 1, 0.0, 1.0, relation, (1.0, 1.0))
    event = NoisyMin(np.zeros((5, 1)), 2.0, 0.3, count=count).event(facts, dpa.Full())
    reach = 0.2 if relation == "add_or_remove_one" else 0.4
    choice = BoundedRange(reach / 0.3)
    assert event == (choice if count == 1 else Repeated(choice, count))
    rng, ends, losses = np.random.default_rng(1), (-0.5 * reach, 0.5 * reach), []
    rare = 10.0 * (np.arange(5) < count)  # bad points, which a record makes better
    for values in [rare, *rng.normal(0.0, 0.5, (20, 5))]:
        for moves in (np.where(rare > 0.0, *ends), rng.choice(ends, 5)):
            p, q = (
                np.array(list(orders_of(v, 0.3, count).values())) for v in (values, values + moves)
            )
            losses.append(renyi_divergence(q, p, math.inf))
            for order in (1.5, 4.0, 32.0):
                cost = float(event.rdp_cost(order))
                assert renyi_divergence(p, q, order) <= cost * (1 + 1e-9) + 1e-12
    assert max(losses) == pytest.approx(event.pure_cost(), rel=1e-6)
    assert max(losses) <= event.pure_cost() * (1 + 1e-9)


def test_several_indices_need_gumbel_noise():
    with pytest.raises(ValueError, match="count must"):
        NoisyMin(np.zeros((5, 1)), 1.0, 1.0, "exponential", count=2)
    with pytest.raises(ValueError, match="count must"):
        NoisyMin(np.zeros((5, 1)), 1.0, 1.0, count=6)


# --- the method ---


def unrolled(event, count=1):
    """The epsilons of single choices."""
    if isinstance(event, Repeated):
        return unrolled(event.event, count * event.count)
    return [event.epsilon] * count


@pytest.mark.parametrize(
    ("budget", "choice"),
    [
        (dpa.Budget(0.8), 0.8 / CHOICES),
        (dpa.Budget(0.8, relation="add_or_remove_one"), 0.8 / CHOICES),
        (dpa.Budget.zcdp(0.2), math.sqrt(8.0 * 0.2 / CHOICES)),
        (
            dpa.Budget(0.8, delta=1e-6),
            math.sqrt(8.0 * privacy.epsilon_to_zcdp(0.8, 1e-6) / CHOICES),
        ),
    ],
)
def test_all_choices_together_use_the_budget_up(budget, choice):
    result = dpa.minimize(erm(), GeneticSearch(**SMALL), budget, rng=0)
    assert result.private and result.status == "finished" and result.iterations == 4
    events = list(result.ledger.events)
    spent = list(itertools.chain.from_iterable(unrolled(event) for event in events))
    assert spent == pytest.approx([choice] * CHOICES, rel=1e-5)
    if budget.rho is None:
        assert result.epsilon() == pytest.approx(0.8)


@pytest.mark.slow
def test_the_loss_falls_further_with_more_budget():
    """The loss falls far without noise, nearly as far at epsilon 5, hardly at epsilon 1e-3."""
    problem = erm(n=4000)
    method = GeneticSearch(population=100, radius=3.0)
    start = problem.value(np.zeros(4))
    budgets = (None, dpa.Budget(5.0), dpa.Budget(1e-3))
    free, fair, tiny = (
        dpa.minimize(problem, method, budget, rng=0, replicates=5) for budget in budgets
    )
    assert not free.private and math.isinf(free.epsilon())
    loss = [float(run.history["objective"][-1].mean()) for run in (free, fair, tiny)]
    assert loss[0] < 0.5 * start and loss[0] < loss[1] < 0.6 * start < loss[2]
    # The first population contains the start; without noise the choice never gets worse.
    assert (np.diff(free.history["objective"], axis=0) <= 1e-12).all()


def test_candidates_are_drawn_apart_from_the_noise():
    """Without noise a run repeats; replicates differ, and so do runs with noise."""
    method, problem = GeneticSearch(**SMALL), erm()
    runs = [dpa.minimize(problem, method, rng=3, replicates=r).w for r in (1, 3)]
    np.testing.assert_array_equal(runs[0][0], runs[1][0])
    assert len(np.unique(runs[1], axis=0)) == 3
    noisy = dpa.minimize(problem, method, dpa.Budget(0.1), rng=3).w
    assert not np.array_equal(noisy[0], runs[0][0])
    assert dpa.minimize(problem, method, dpa.Budget(0.1), rng="os").private


@pytest.mark.parametrize("size", [2, 20])
def test_the_first_population_holds_the_start(size):
    """All other points are far from the start, which is the best of them."""
    method = GeneticSearch(population=size, parents=1, generations=1, radius=1e6)
    start = np.arange(1.0, 5.0)
    np.testing.assert_array_equal(dpa.minimize(erm(), method, w0=start, rng=0).w[0], start)


def test_mutation_is_what_the_arguments_say():
    method = GeneticSearch(population=2000, parents=2, mutation=0.5, mutated=2)
    parents = np.array([np.zeros(10), np.full(10, 100.0)])
    children = method._children(parents, 0.25, np.random.default_rng(0))
    assert children.shape == (1998, 10)
    moved = children - np.where(children > 50.0, 100.0, 0.0)
    assert np.abs(moved).max() <= 0.25 and np.abs(moved).max() > 0.24
    assert (moved != 0.0).mean() == pytest.approx(0.2, abs=0.02)
    assert (children > 50.0).mean() == pytest.approx(0.5, abs=0.03)
    # Both parents' coordinates in one child.
    assert ((children > 50.0).any(axis=1) & (children < 50.0).any(axis=1)).mean() > 0.4


def test_mutation_shrinks_from_generation_to_generation(monkeypatch):
    seen, children = [], GeneticSearch._children

    def record(self, parents, mutation, random):
        seen.append(mutation)
        return children(self, parents, mutation, random)

    monkeypatch.setattr(GeneticSearch, "_children", record)
    dpa.minimize(erm(), GeneticSearch(mutation=0.5, shrink=0.5, generations=4), rng=0)
    assert seen == [0.5, 0.25, 0.125, 0.0625]


@pytest.mark.slow
def test_a_shared_filter_ends_the_run():
    """The budget left after one run does not pay for another."""
    guard = privacy.Filter(dpa.Budget(1.0))
    method, problem = GeneticSearch(**SMALL), erm()
    dpa.minimize(problem, method, guard, rng=0)
    assert guard.remaining == pytest.approx(0.0, abs=1e-8)
    with pytest.raises(dpa.PrivacyBudgetExceeded) as error:
        dpa.minimize(problem, method, guard, rng=1)
    assert error.value.partial.iterations == 0


def test_a_search_runs_on_a_network():
    data = dpa.datasets.load("digits").split(0.2, rng=0)
    problem = dpa.problems.MLP(data.X[:200], data.y[:200], (4,), 10)
    method = GeneticSearch(**SMALL, radius=0.1, mutation=0.1)
    result = dpa.minimize(problem, method, dpa.Budget(2.0), rng=0)
    assert result.iterations == 4 and np.isfinite(result.w).all()


@pytest.mark.parametrize(
    "options",
    [
        {"clip_loss": math.inf},
        {"clip_loss": None},
        {"clip_loss": 0.0},
        {"population": 1},
        {"parents": 200},
        {"parents": 0},
        {"generations": 0},
        {"radius": 0.0},
        {"mutation": -0.1},
        {"shrink": 0.0},
        {"shrink": 1.1},
        {"mutated": 0},
    ],
)
def test_arguments_out_of_range_are_named(options):
    (name,) = options
    with pytest.raises((ValueError, TypeError), match=name):
        GeneticSearch(**options)


@pytest.mark.parametrize("budget", [None, dpa.Budget(1.0)])
def test_a_problem_without_records_is_refused(budget):
    for problem in (dpa.Quadratic([1.0]), dpa.Quadratic([1.0], sensitivity=1.0)):
        with pytest.raises(ValueError, match=r"consist of records|has no sensitivity"):
            dpa.minimize(problem, GeneticSearch(), budget)
