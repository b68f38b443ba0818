"""The figures of Chen and Lee (2020) at a tiny scale: checks of their tables."""

import math
import re
from functools import cache, partial

import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy import stats

import dpanalysis as dpa
from dpanalysis.papers.line_search.batch import affordable_as_printed, lemma_4, search_curve
from dpanalysis.privacy.events import AboveThreshold, Gaussian, Laplace, Sampled
from figures import (
    _search,
    search_accuracy,
    search_evaluations,
    search_hyperparameters,
    search_mlp,
)
from figures._clipping import stack, welch_half, where

pytestmark = pytest.mark.usefixtures("no_data")

BUDGET = dpa.Budget(0.8, 1e-8, "add_or_remove_one")
GRADIENT = Gaussian(50.0, 1.0)
SEARCH = AboveThreshold("laplace", 20.0, 40.0, 1.0, 20, shared=True)  # epsilon_BT = .1


# ---------------------------------------------------------------- the printed accounting


@pytest.mark.parametrize("rate", [0.01, 0.1])
def test_printed_costs_are_lemma_4_of_each_access(rate):
    guard = _search.PrintedAccounting(BUDGET)
    costs = guard.costs(Sampled(dpa.Poisson(rate), [GRADIENT, SEARCH]))
    rho = 0.5 * GRADIENT.mu**2
    for order in (2, 3, 40):
        expected = lemma_4(order, rate, lambda a: a * rho)
        expected += lemma_4(order, rate, lambda a: search_curve(0.1, a))
        assert costs[order - 2] == pytest.approx(expected, rel=1e-9)
    assert guard.orders[0] == 2 and guard.orders[-1] == 500


@pytest.mark.parametrize("rate", [0.1, 1.0])
def test_the_claim_and_the_figure_count_the_same_iterations(rate):
    each = 0.4 / 100
    search = AboveThreshold("laplace", 2.0 / each, 4.0 / each, 1.0, 20, shared=True)
    guard = _search.PrintedAccounting(dpa.Budget(0.4, 1e-8, "add_or_remove_one"))
    figure = guard.affords(rate, [Gaussian(1.0 / each, 1.0), search])
    assert affordable_as_printed(rate, 0.4) == pytest.approx(figure, rel=1e-6)


def test_printed_costs_without_sampling_add_up():
    guard = _search.PrintedAccounting(BUDGET)
    both = guard.costs(Sampled(dpa.Full(), [GRADIENT, SEARCH]))
    alone = guard.costs(GRADIENT)
    np.testing.assert_allclose(alone, guard.orders * 0.5 / 50.0**2)
    np.testing.assert_allclose(both, alone + guard.costs(SEARCH))
    with pytest.raises(TypeError, match="the paper states no cost of Laplace"):
        guard.costs(Laplace(1.0, 1.0))


def test_the_printed_accounting_goes_on_while_some_order_has_budget():
    guard = _search.PrintedAccounting(BUDGET)
    event = Sampled(dpa.Poisson(0.1), [GRADIENT, SEARCH])
    count = 0
    while guard.can_spend(event):
        guard.spend(event)
        count += 1
    assert count == math.floor(guard.affords(0.1, [GRADIENT, SEARCH]))
    spent = guard.spent + math.log(1e8) / (guard.orders - 1)
    assert spent.min() <= 0.8 < (spent + guard.costs(event)).min()
    assert (spent > 0.8).any()  # where a filter at that order would have ended the run before


def test_runs_under_the_printed_accounting_are_not_private():
    problem = _search.load_problem("census", "logistic", None, 0)
    method = _search.line_search(_search.Task(problem, None, BUDGET, 0.1, 10))
    guard = _search.PrintedAccounting(BUDGET)
    result = _search.run_as_printed(problem, method, guard, 0)
    assert result.iterations > 3 and not result.private and math.isinf(result.epsilon())
    spent = np.zeros(499)
    for event in result.ledger.events:  # equal ones in a row are one Repeated
        spent += getattr(event, "count", 1) * guard.costs(getattr(event, "event", event))
    np.testing.assert_allclose(guard.spent, spent)


@pytest.mark.slow
def test_what_a_run_has_spent():
    """Under a filter at a Renyi order, a zCDP filter, a plan, and the printed accounting."""
    spent = {}
    for name in ("DP-BLSGD", "DP-BLGD", "DP-SGD", "DP-BLSGD, as printed"):
        spent[name] = _search.run_cell("census", "logistic", name, 0.8, 0, 10)["epsilon_spent"]
    assert all(0.8 * 0.8 < each <= 0.8 * (1 + 1e-9) for each in spent.values()), spent
    few = _search.run_cell("census", "logistic", "DP-BLSGD", 0.8, 0, 10, options={"iterations": 3})
    assert 0.0 < few["epsilon_spent"] < 0.5 * 0.8


@pytest.mark.slow
def test_the_iterations_that_a_budget_allows():
    bought = _search.affordable(0.05, 100, 0.1)
    assert bought["as_printed"] == pytest.approx(3.0, abs=0.1)
    # The correct accounting composes first; the shared value of the losses makes it cheaper.
    assert bought["as_printed"] < bought["as_printed_not_sampled"] < bought["as_printed_factor_1"]
    assert bought["as_printed_factor_1"] < bought["correct"] <= bought["fresh_batch"]


# ---------------------------------------------------------------- folds and seeds


def test_folds_and_seeds(monkeypatch, tmp_path):
    """Those of the environment, else those of the stored results, else the paper's."""
    assert _search.repetitions("search_accuracy", "quick", folds=10, seeds=5) == {"folds": 1}
    monkeypatch.setattr(_search._ledger, "RESULTS", tmp_path)
    ask = partial(_search.repetitions, "any", "paper", folds=10, seeds=5)
    assert ask() == {"folds": 10, "seeds": 5}
    (tmp_path / "any").mkdir()
    (tmp_path / "any" / "about.json").write_text('{"settings": {"folds": 3}}')
    assert ask() == {"folds": 3}  # and one seed
    monkeypatch.setenv("DPANALYSIS_SEEDS", "2")
    assert ask() == {"folds": 3, "seeds": 2}
    monkeypatch.setenv("DPANALYSIS_FOLDS", "11")
    with pytest.raises(ValueError, match="DPANALYSIS_FOLDS must be from 1 to 10, got 11"):
        ask()


@pytest.mark.slow
def test_seeds_are_other_noise_and_the_first_is_the_stored_one():
    cell = _search.search_cell("census", "correct", 1.6, 2, 10, 0.1, iterations=4)
    cells = _search.seeds_of(cell, {"seeds": 3})
    assert cells[0] == cell and [c.get("seed") for c in cells] == [None, 1, 2]
    assert _search.seeds_of(cell, {"folds": 1}) == [cell]
    first, second = (_search.run_cell(**each)["objective"] for each in cells[:2])
    assert first == _search.run_cell(**cell, seed=0)["objective"] != second


def test_leads_are_paired_by_fold():
    """Folds differ by far more than methods: the interval of the difference is narrow."""
    difficulty = [0.0, 0.1, 0.2, 0.3]
    rows = [
        {"method": name, "fold": fold, "accuracy": base + difficulty[fold] + noise[fold] + jitter}
        for name, base, noise in (("a", 0.5, [0.0] * 4), ("b", 0.4, [0.01, -0.01, 0.0, 0.0]))
        for fold in range(4)
        for jitter in (-0.02, 0.02)  # two seeds, whose mean counts
    ]
    table = {key: np.array([row[key] for row in rows]) for key in rows[0]} | {
        "data": np.repeat("x", len(rows))
    }
    lead = _search.paired(table, ("data",), "method", "a")
    assert lead["method"].tolist() == ["b"] and lead["folds"].tolist() == [4]
    assert lead["lead"][0] == pytest.approx(0.1)
    half = stats.t.ppf(0.975, 3) * np.std([-0.01, 0.01, 0.0, 0.0], ddof=1) / 2.0
    assert lead["low"][0] == pytest.approx(0.1 - half)
    assert lead["high"][0] == pytest.approx(0.1 + half)
    for few in (1, 2):
        part = {key: column[table["fold"] < few] for key, column in table.items()}
        assert _search.paired(part, ("data",), "method", "a")["low"][0] == -math.inf
    means = _search.over_folds(table, ("method",), ("accuracy",))
    assert means["runs"].tolist() == [4, 4]
    assert means["accuracy_std"][0] == pytest.approx(np.std(difficulty, ddof=1))


# ---------------------------------------------------------------- data and methods


def test_data_of_each_scale(monkeypatch):
    monkeypatch.setenv("DPANALYSIS_DATA", "/nowhere")
    assert _search.data_names("quick") == ["adult-10000"]
    assert _search.data_names("paper") == ["adult", "bank"]
    monkeypatch.delenv("DPANALYSIS_DATA")
    assert _search.data_names("paper") == _search.data_names("quick") == ["census"]


def test_the_census_is_like_adult():
    data = _search.synthetic_census(10_000)
    assert 0.7 < (data.y < 0).mean() < 0.8
    assert (data.X.sum(axis=1) == 8).all() and data.d == 43
    folds = _search.load_folds("census")
    assert len(folds) == 10 and folds[0].d == 44 and folds[0].n == 9000


@cache
def without_privacy(loss):
    return _search.run_cell("census", loss, "non-private", 1.6, 0, 10)["objective"]


@pytest.mark.slow
@pytest.mark.parametrize("loss", _search.LOSSES)
@pytest.mark.parametrize("name", [name for name in _search.METHODS if "," not in name])
def test_every_method_runs_and_can_be_repeated(name, loss):
    found = [_search.run_cell("census", loss, name, 1.6, 0, 10) for _ in range(2)]
    for result in found:
        result.pop("seconds")
    assert found[0] == found[1]
    assert without_privacy(loss) <= found[0]["objective"] + 0.0025
    if name != "majority":
        assert found[0]["accuracy"] > 0.7


# ---------------------------------------------------------------- the figures


@pytest.mark.slow
def test_accuracy(made):
    names = ["DP-BLSGD", "DP-BLSGD, as printed", "DP-SGD", "ObjPert", "non-private", "majority"]
    changes = {"share": 10, "epsilons": [0.2, 1.6], "losses": ["logistic"], "methods": names}
    tables, caption = made(search_accuracy, changes)
    means = tables["means"]
    levels = {
        name: where(means, method=name)["accuracy"][-1]  # at the largest epsilon
        for name in names
    }
    assert levels["majority"] < min(levels["DP-BLSGD"], levels["DP-SGD"], levels["ObjPert"])
    assert levels["DP-BLSGD"] <= levels["non-private"] + 0.02
    correct, printed = (
        where(means, method=name)["iterations"] for name in ("DP-BLSGD", "DP-BLSGD, as printed")
    )
    assert (correct > 2 * printed).all()
    assert tables["iterations_bought"]["epsilon"].tolist() == [0.2, 1.6]
    assert "non-private" in caption and "errata" not in caption
    assert "one of ten folds, one seed" in caption
    leads = tables["leads"]
    assert set(leads["method"]) == {"DP-BLSGD, as printed", "DP-SGD", "ObjPert"}
    lead = where(leads, method="DP-SGD", epsilon=1.6)["lead"][0]
    assert lead == pytest.approx(levels["DP-BLSGD"] - levels["DP-SGD"])


@pytest.mark.slow
def test_hyperparameters(made):
    changes = {
        "sufficient_decrease": [0.1, 0.5],
        "backtrack": [0.8],
        "clip_decay": [0.0, 0.2],
        "adapt": ["never", "angle"],
        "epsilons": [1.6],
    }
    cells = search_hyperparameters.cells("quick")
    assert len(cells) == len({str(cell) for cell in cells})  # none twice
    tables, _ = made(search_hyperparameters, changes)
    table = tables["accuracy"]
    default = where(table, parameter="backtrack", epsilon=1.6, accounting="correct")
    for name, value in search_hyperparameters.DEFAULTS.items():
        same = where(table, parameter=name, value=str(value), epsilon=1.6, accounting="correct")
        assert same["accuracy"] == default["accuracy"]  # the paper's values, in every panel
    noise = where(table, parameter="noise", epsilon=1.6, accounting="correct")
    laplace, gaussian = (where(noise, value=law)["iterations"] for law in ("laplace", "gaussian"))
    assert gaussian < 0.5 * laplace  # what the factor 3 of Lemma 4 costs


def test_what_is_said_to_be_best_must_lead_every_other_value():
    """With quantiles of a t law of two degrees of freedom, at 97.5% and at 1 - .025/2."""

    def verdict(*leads):
        rows = [
            {"parameter": "backtrack", "epsilon": 0.05, "accounting": "correct", "folds": 3}
            | {"value": value, "lead": lead, "low": lead - 0.02, "high": lead + 0.02}
            for value, lead in leads
        ]
        said = search_hyperparameters.finding({"leads": stack(rows)})
        return re.fullmatch(r"claims of the paper, .* beta = .8 is best at 0.05: (.*)\.", said)[1]

    assert verdict(("0.5", 0.03)) == "confirmed (least lead +0.030, over 0.5)"
    assert verdict(("0.5", 0.03), ("0.9", -0.01)) == "open (least lead -0.010, over 0.9)"
    assert verdict(("0.9", -0.021)).startswith("refuted")
    widened = 0.02 * stats.t.ppf(1.0 - 0.025 / 2, 2) / stats.t.ppf(0.975, 2)
    for lead, expected in ((-widened + 1e-6, "open"), (-widened - 1e-6, "refuted")):
        assert verdict(("0.5", 0.03), ("0.9", lead)).startswith(expected)


def test_the_lead_of_another_value_is_minus_that_of_the_default():
    row = {"parameter": "clip_decay", "accounting": "correct", "folds": 3, "value": "0.05"}
    row |= {"lead": -0.03, "low": -0.05, "high": -0.01}
    for epsilon, expected in (
        (0.05, "helps at 0.05: confirmed"),
        (0.2, "not help at 0.2: refuted"),
    ):
        said = search_hyperparameters.finding({"leads": stack([{**row, "epsilon": epsilon}])})
        assert expected in said


def test_the_angle_has_to_lead_budgets_that_never_and_that_always_grow():
    row = {"parameter": "adapt", "epsilon": 0.05, "accounting": "correct", "folds": 3}
    for never, verdict in ((0.02, "confirmed"), (-0.05, "refuted"), (0.0, "open")):
        rows = [
            {**row, "value": value, "lead": lead, "low": lead - 0.01, "high": lead + 0.01}
            for value, lead in (("always", 0.03), ("never", never))
        ]
        said = search_hyperparameters.finding({"leads": stack(rows)})
        assert f"than never and always at 0.05 and 0.2: {verdict} (least lead" in said


def test_the_better_law_of_noise_is_judged_with_a_fresh_batch_too():
    """Only there are both laws charged by bounds of the same kind."""
    row = {"parameter": "noise", "folds": 3, "value": "gaussian", "lead": 0.03}
    row |= {"low": 0.01, "high": 0.05}
    rows = [
        {**row, "epsilon": epsilon, "accounting": accounting, "low": low, "high": 0.06 - low}
        for epsilon in (0.05, 0.2)
        for accounting, low in (("correct", 0.01), ("correct, fresh batch", -0.01))
    ]
    said = search_hyperparameters.finding({"leads": stack(rows)})
    assert "better at 0.05 and 0.2: confirmed (least lead +0.030, over gaussian)" in said
    assert "with a fresh batch, which is amplified alone: open (least lead +0.030" in said


def evaluations(rows):
    """Return a table of gradients, losses and accuracy by q, all with the same spread."""
    return {
        "evaluations": stack(
            [
                {"accounting": "as printed, not private", "q": q, "gradients": g, "losses": h}
                | {"accuracy": accuracy, "accuracy_std": 0.01, "runs": 10}
                for q, g, h, accuracy in rows
            ]
        )
    }


@pytest.mark.parametrize(
    ("small", "said"),
    [
        ((10.0, 40.0, 0.84), 'is confirmed at q = 0.02 with the accounting "as printed, unproved"'),
        ((10.0, 40.0, 0.7), "is confirmed at q = 0.02, but the accuracy falls as well, with"),
        ((10.0, 60.0, 0.84), 'is refuted with the accounting "as printed, unproved"'),
    ],
)
def test_what_subsampling_saves_is_judged_at_every_q(small, said):
    """Both counts less than half of those at q = 1, at an accuracy that is not lower."""
    rows = [(0.02, *small), (0.1, 110.0, 90.0, 0.85), (1.0, 100.0, 100.0, 0.845)]
    assert said in search_evaluations.finding(evaluations(rows))


def test_welch_intervals_are_those_of_scipy():
    one, other = np.random.default_rng(0).normal(size=(2, 5)) * [[1.0], [3.0]]
    interval = stats.ttest_ind(one, other, equal_var=False).confidence_interval(0.95)
    half = welch_half(one.std(ddof=1), other.std(ddof=1), 5)
    assert half == pytest.approx((interval.high - interval.low) / 2.0)
    assert welch_half(1.0, 1.0, 2) == math.inf and welch_half(0.0, 0.0, 5) == 0.0


def test_bars_are_standard_errors_over_the_folds():
    names = search_evaluations.COUNTS
    row = dict.fromkeys(names, 1.0) | {f"{name}_std": 0.3 for name in names} | {"runs": 9}
    rows = [row | {"accounting": each, "q": q} for each in _search.ACCOUNTINGS for q in (0.1, 1.0)]
    drawn = [search_evaluations.draw({"evaluations": stack(rows)}).axes[-1]]
    drawn.append(Figure().subplots())
    mine = stack([row | {"method": "DP-BLSGD", "epsilon": 0.1}])
    search_accuracy._draw_curve(drawn[1], mine, "DP-BLSGD", "accuracy", 0.0)
    for ax in drawn:
        (bar, *_) = ax.containers[0].lines[2][0].get_segments()
        assert np.ptp(bar[:, 1]) == pytest.approx(2.0 * 0.3 / 3.0)


def test_what_line_searches_lead_by_counts_intervals_and_means():
    methods = {"DP-BLSGD": 0.8, "DP-AGD": 0.7, "OutPert-RSGD": 0.75, "DP-BLGD": 0.79, "DP-SGD": 0.9}
    means = [
        {"data": data, "loss": "svm", "method": name, "epsilon": 0.4, "accuracy": a, "runs": 5}
        for data in ("adult", "bank")
        for name, a in {**methods, "DP-BLSGD, as printed": 0.6}.items()
    ]
    leads = [
        {"data": data, "method": name, "epsilon": 0.4, "low": low, "high": low + 0.3}
        for data in ("adult", "bank")
        for name, low in (
            ("DP-AGD", 0.1 if data == "adult" else -0.1),
            ("OutPert-RSGD", 0.1),
            ("DP-SGD", -0.4),
        )
    ]
    said = search_accuracy.finding({"means": stack(means), "leads": stack(leads)})
    assert "DP-AGD is open (ahead by intervals in 1, by means in 2 of 2 settings)" in said
    assert "DP-SGD is refuted (ahead by intervals in 0, by means in 0 of 2 settings)" in said
    assert "on Bank is not found with our encoding of Bank (ahead by intervals in 0" in said
    assert "DP-BLGD, with full batches like DP-AGD, is ahead of DP-AGD in 2 of 2" in said
    assert "DP-BLSGD is by means ahead of DP-AGD in 0 of 2" in said


@pytest.mark.slow
def test_evaluations(made):
    tables, _ = made(search_evaluations, {"q": [0.1, 1.0]})
    table = tables["evaluations"]
    for accounting in _search.ACCOUNTINGS:
        part, full = (where(table, accounting=accounting, q=rate) for rate in (0.1, 1.0))
        assert part["iterations"] > 2 * full["iterations"]
        assert full["gradients"] >= full["iterations"] and full["losses"] > full["gradients"]
        assert part["gradients"] < 0.2 * part["iterations"] + 5.0
        queries = 1 + _search.SEARCH["max_queries"]  # passes of one search, with those at w
        assert full["losses"] <= queries * full["iterations"]


@pytest.mark.slow
def test_mlp(made):
    changes = {"iterations": 40, "every": 10}
    tables, caption = made(search_mlp, changes)
    curves, spent = tables["curves"], tables["epsilons"]
    search, sgd = (where(curves, method=name) for name in ("DP-BLSGD", "DP-SGD"))
    assert search["test_accuracy"][1] > sgd["test_accuracy"][1] + 0.1  # faster at first
    steps = search["step_size"][1:]
    powers = np.log(steps / steps.max()) / math.log(0.8)
    np.testing.assert_allclose(powers, np.round(powers), atol=1e-9)
    assert np.isnan(sgd["step_size"]).all()
    # With a fresh batch the small cost of a search is amplified separately.
    assert spent["DP-BLSGD, fresh batch"][-1] < spent["DP-SGD"][-1] < spent["DP-BLSGD"][-1]
    assert spent["as printed"][0] == 0.0 and (np.diff(spent["as printed"]) > 0).all()
    assert "Finding: open, on 1 seed:" in caption
    free = {name: where(curves, method=name) for name in ("non-private Adam", search_mlp.UNCLIPPED)}
    ends = [mine["objective"][-1] for mine in free.values()]
    assert ends[0] != ends[1] and max(ends) < 4.0  # clipping at 3 changes Adam, too
    # The same rho per iteration: both baselines have the same cost.
    spent_by = [
        search_mlp.epsilons(name, {**search_mlp.settings("quick")}, np.array([20]))[0]
        for name in ("DP-SGD", "DP-Adam")
    ]
    assert spent_by[0] == spent_by[1]


def test_the_printed_cost_of_a_network_is_valid():
    """Section 5.7 composes gradient and search of a batch before Lemma 4, as its caption says."""
    (batch,) = search_mlp.events("DP-BLSGD", search_mlp.settings("quick"))
    assert [type(event) for event in batch.events] == [Gaussian, AboveThreshold]
    orders = _search.PrintedAccounting.orders
    proved = np.sum([event.rdp_cost(orders) for event in batch.events], axis=0)
    assert (proved <= 0.5 * orders).all()  # rho = 1/2
    spent = {name: [0.0, 2.0] for name in (*search_mlp.NAMES[:3], "as printed")}
    said = search_mlp.cost(spent)
    assert "all three spend 2.00" in said and "a valid bound" in said and "unproved" not in said


def test_verdicts_on_curves():
    """Ahead of both baselines beyond the seeds' spread, behind, or neither."""

    def curves(early, last, objective):
        rows = [
            {"method": name, "iteration": iteration, "test_accuracy": accuracy, "objective": value}
            for k, name in enumerate(("DP-BLSGD", "DP-SGD", "DP-Adam"))
            for iteration, accuracy, value in (
                (0, 0.1, 2.0),
                (100, early if k == 0 else 0.8, 1.0),
                (500, last if k == 0 else 0.9, objective if k == 0 else 0.5),
            )
        ]
        spread = {"test_accuracy_std": 0.01, "objective_std": 0.02, "runs": 5}
        every = [{**row, **spread} for row in rows]
        return {"curves": {key: np.array([row[key] for row in every]) for key in every[0]}}

    said = search_mlp.verdicts(curves(0.9, 0.9, 0.5))
    assert said == "That it is faster is confirmed; that it ends at a similar accuracy is confirmed"
    said = search_mlp.verdicts(curves(0.805, 0.8, 0.5))
    assert "faster is open" in said and "paper states none): it ends behind" in said
    lower, higher = (search_mlp.verdicts(curves(0.7, 0.9, v), "objective") for v in (0.3, 0.7))
    assert lower.endswith("lower objective is confirmed") and "faster is refuted" in lower
    assert higher.endswith("lower objective is refuted")
    said = search_mlp.finding(curves(0.7, 0.9, 0.7), "objective")
    assert "; objective after 500 iterations 0.700 against DP-SGD 0.500 and DP-Adam" in said
    assert "objective" not in search_mlp.finding(curves(0.7, 0.9, 0.7))


@pytest.mark.parametrize(("last", "words"), [(0.4, "fall"), (0.6, "do not decrease")])
def test_the_trend_of_the_steps_compares_the_last_quarter_with_the_first(last, words):
    steps = np.array([np.nan, 1.0, 9.0, 9.0, last])  # none at the start
    assert search_mlp.trend({"method": np.full(5, "DP-BLSGD"), "step_size": steps}) == words


@pytest.mark.slow
def test_epsilons_of_the_mlp_are_those_of_the_ledger(monkeypatch):
    chosen = {**search_mlp.settings("quick"), "iterations": 5, "every": 5}
    problem = search_mlp.load_problem(chosen["data"], chosen["hidden"])
    assert problem.n == chosen["n"]
    for name in search_mlp.PRIVATE:
        expected = search_mlp.epsilons(name, chosen, np.array([5]))[0]
        budget = None
        if name.startswith("DP-BLSGD"):
            budget = dpa.Budget(1.05 * expected, 1e-8, "add_or_remove_one")
        method = search_mlp.build_method(name, chosen)
        ledger = dpa.minimize(problem, method, budget, rng=0, record=()).ledger
        assert ledger.epsilon(1e-8, accountant="rdp") == pytest.approx(expected, rel=1e-9)


def test_no_two_folds_and_seeds_share_their_noise(monkeypatch):
    drawn = []

    def noted(*arguments, rng, **options):
        drawn.append(rng)
        raise RuntimeError

    monkeypatch.setattr(dpa, "minimize", noted)
    for fold in range(3):
        for seed in range(3):
            with pytest.raises(RuntimeError):
                _search.run_cell("census", "logistic", "DP-SGD", 0.8, fold, 10, seed=seed)
    assert len(set(drawn)) == 9
