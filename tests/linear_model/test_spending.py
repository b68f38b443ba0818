"""Rules for all spending: cards add up, noise matches its charge, entropy comes from the system.

Charges are observed in the guards, noise where it is drawn, and entropy at the operating system:
the path to them must not change what a card states.
"""

import contextlib
import csv
import json
import math
import types
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.pipeline import make_pipeline

import dpanalysis as dpa
from dpanalysis import privacy
from dpanalysis.__main__ import main
from dpanalysis.linear_model import LinearSVC, LogisticRegression, PrivateClassifier, privacy_of
from dpanalysis.linear_model.design import design_of
from dpanalysis.linear_model.saving import model_json
from dpanalysis.preprocessing import PrivateBounds, PublicColumns
from dpanalysis.privacy import mechanisms, noise
from dpanalysis.privacy.budget import Filter, Plan
from dpanalysis.tuning import PrivateLoss, Repeats, repeat_and_select

RANDOM = np.random.default_rng(3)
X = RANDOM.uniform(-1.0, 1.0, size=(600, 3))
Y = {K: np.digitize(X[:, 0], np.linspace(-1, 1, K + 1)[1:-1]) for K in (2, 3)}
RELATIONS = ["replace_one", "add_or_remove_one"]
EPSILONS = st.floats(0.05, 5.0)


@contextlib.contextmanager
def watched():
    """What each guard grants, by budget, and all noise that is drawn, as (law, scale)."""
    guards, granted, drawn = [], [], []
    with pytest.MonkeyPatch.context() as patch:
        for guard in (Plan, Filter):

            def spend(self, event, plain=guard.spend):
                plain(self, event)
                if self not in guards:
                    guards.append(self)
                    granted.append((self.budget, []))
                granted[guards.index(self)][1].append(event)

            patch.setattr(guard, "spend", spend)
        noisy, nearly = mechanisms.noisy, mechanisms.nearly

        def add(random, values, law, scale, shares=1.0):
            drawn.append((law, scale))
            return noisy(random, values, law, scale, shares)

        def draw(random, law, scale, d):
            drawn.append((law, scale))
            return nearly(random, law, scale, d)

        patch.setattr(mechanisms, "noisy", add)
        patch.setattr(mechanisms, "nearly", draw)
        threshold = mechanisms.Threshold.__init__

        def start(self, random, law, scale, query_scale):
            drawn.append(("threshold", 1.0 / scale + 2.0 / query_scale))
            with pytest.MonkeyPatch.context() as inner:  # its own numbers are drawn by noisy
                inner.setattr(mechanisms, "noisy", lambda *_: np.zeros(1))
                threshold(self, random, law, scale, query_scale)
            self.reached = lambda value, wanted: value >= wanted
            self.first = lambda values, wanted: np.append(np.flatnonzero(values >= wanted), -1)[0]

        patch.setattr(mechanisms.Threshold, "__init__", start)
        yield granted, drawn


def spent(granted):
    """The sum over guards of the epsilon that they granted, at the delta of their budget."""
    return math.fsum(privacy.epsilon(events, b.delta, b.relation) for b, events in granted)


GENERIC = partial(PrivateClassifier, None, dpa.methods.GradientDescent(0.5, 5))
estimators = st.builds(
    lambda kind, **arguments: kind(bounds=(-1, 1), random_state=0, **arguments),
    st.sampled_from([LogisticRegression, LinearSVC, GENERIC]),
    epsilon=EPSILONS,
    delta=st.sampled_from([0.0, 1e-5]),
    C=st.sampled_from(["auto", 0.1, 10.0]),
    fit_intercept=st.booleans(),
    relation=st.sampled_from(RELATIONS),
)


@pytest.mark.slow
@settings(max_examples=15)
@given(estimators, st.sampled_from([2, 3]))
def test_a_card_states_what_was_granted_within_the_budget(model, K):
    with watched() as (granted, _):
        card = model.fit(X, Y[K]).privacy_
    assert card.epsilon == pytest.approx(spent(granted), rel=1e-9)
    assert card.epsilon <= model.epsilon * (1.0 + 1e-8)
    assert card.delta == pytest.approx(math.fsum(budget.delta for budget, _ in granted))
    assert card.delta == pytest.approx(model.delta)
    assert {budget.relation for budget, _ in granted} == {card.relation} == {model.relation}


@pytest.mark.slow
@given(EPSILONS, st.sampled_from([2, 3]), st.sampled_from(RELATIONS))
def test_the_noise_of_objective_perturbation_matches_its_charge(epsilon, K, relation):
    """By the largest row alone: in a cube it moves the sum of gradients by the full bound.

    With a scale s of noise in the maximum norm that costs at least 1/s, or 2/s where the record
    is replaced; a smaller scale would cost more than the budget, whatever the ledger says.
    """
    model = LogisticRegression(
        epsilon, bounds=(-1, 1), random_state=0, relation=relation, fit_intercept=False
    )
    with watched() as (granted, drawn):
        model.fit(X, Y[K])
    ((budget, (event,)),) = granted
    laws = [each for each in drawn if each[0] == "cubic"]
    assert len(laws) == (1 if K == 2 else K)
    scale = laws[0][1]
    moved = (1.0 if relation == "add_or_remove_one" else 2.0) * (1.0 if K == 2 else 2.0)
    minimizer, error = event.events
    assert moved / scale <= minimizer.epsilon * (1.0 + 1e-9) <= epsilon
    assert drawn[-1][0] == "spherical" and len(drawn) == len(laws) + 1
    assert budget.epsilon == epsilon and minimizer.epsilon + error.epsilon <= epsilon * (1 + 1e-8)


@pytest.mark.slow
@given(st.floats(1.5, 5.0), st.integers(1, 3), st.sampled_from(RELATIONS))
def test_private_bounds_spend_what_they_state(epsilon, d, relation):
    """All thresholds together, by 1/s for the threshold and 2/(2s) for its queries."""
    with watched() as (granted, drawn):
        bounds = PrivateBounds(epsilon, relation=relation, random_state=0).fit(X[:, :d])
    assert spent(granted) == pytest.approx(epsilon)
    costs = [cost for law, cost in drawn if law == "threshold"]
    assert len(costs) == 2 * d and math.fsum(costs) == pytest.approx(epsilon)
    assert {budget.relation for budget, _ in granted} == {relation}
    for columns in (bounds.columns_, bounds.bounds_):
        assert columns.epsilon == pytest.approx(epsilon)
        assert [each.relation for each in columns.learned] == [relation]


@pytest.mark.slow
@given(EPSILONS, st.sampled_from([0.0, 1e-6]), st.floats(0.05, 0.95), st.sampled_from(RELATIONS))
def test_a_choice_grants_its_runs_and_scores_what_its_ledger_says(epsilon, delta, share, relation):
    """By the guards of the runs and scores: each is within the event that is charged."""
    budget = dpa.Budget(epsilon, delta, relation)
    bound = dpa.RowBound(math.inf, 1.0)
    problem = dpa.ERM(X, 2.0 * Y[2] - 1.0, dpa.losses.Logistic(), dpa.regularizers.L2(0.1), bound)
    method = dpa.methods.Nesterov(step_size=0.1, iterations=2, mu=0.1)
    with watched() as (granted, _):
        chosen = repeat_and_select(
            [lambda each, rng: dpa.minimize(problem, method, each, rng=rng, record=())],
            budget, score=PrivateLoss(problem, 2.0), repeats=Repeats(2.0, 0.0),
            score_share=share, rng=0,
        )  # fmt: skip
    (event,) = chosen.ledger.events
    run, score = event.events
    for given_to, charged in ((chosen.run, run), (chosen.scoring, score)):
        costs = [
            math.fsum(e.pure_cost() if given_to.rho is None else e.zcdp_cost() for e in events)
            for guard, events in granted
            if guard == given_to
        ]
        limit = charged.zcdp_cost() if given_to.rho is not None else charged.pure_cost()
        assert costs and max(costs) <= limit * (1.0 + 1e-8)
        assert max(costs) == pytest.approx(limit, rel=1e-4)
    assert {guard.relation for guard, _ in granted} == {relation} == {chosen.ledger.relation}
    assert chosen.epsilon(delta) <= epsilon * (1.0 + 1e-8)


# --- entropy ---


class Asked(Exception):
    """The operating system was asked for entropy."""


def fit_of(**arguments):
    return lambda state: LogisticRegression(bounds=(-1, 1), random_state=state, **arguments)


SPENDERS = {
    "pure": (fit_of(), Y[2]),
    "Gaussian": (fit_of(delta=1e-5), Y[2]),
    "descent": (fit_of(epsilon=0.02, delta=1e-5), Y[2]),
    "choice": (fit_of(C="private"), Y[2]),
    "softmax": (fit_of(), Y[3]),
    "one against the rest": (
        lambda state: LinearSVC(bounds=(-1, 1), random_state=state), Y[3]
    ),
    "bounds": (lambda state: PrivateBounds(1.0, random_state=state), Y[2]),
    "pipeline": (
        lambda state: make_pipeline(
            PrivateBounds(1.0, random_state=state), LogisticRegression(random_state=state)
        ),
        Y[2],
    ),
}  # fmt: skip


@contextlib.contextmanager
def entropy():
    """Count the bytes that sources of noise take, and refuse generators of NumPy."""
    taken = []

    def urandom(count):
        taken.append(count)
        return plain.urandom(count)

    def refused(*_):
        raise AssertionError("a generator of NumPy was made")

    def refused_unseeded(seed=None):
        return default(seed) if isinstance(seed, int) else refused()

    plain, default = noise.os, np.random.default_rng
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(noise, "os", types.SimpleNamespace(urandom=urandom))
        patch.setattr(noise, "check_rng", refused)
        patch.setattr(np.random, "default_rng", refused_unseeded)
        yield taken


@pytest.fixture
def few(monkeypatch):
    candidates = tuple(np.linspace(-2.0, 2.0, 9).tolist())
    monkeypatch.setattr("dpanalysis.preprocessing.private_bounds._CANDIDATES", candidates)


@pytest.mark.parametrize("name", SPENDERS)
def test_noise_is_made_of_the_system_s_entropy_where_no_seed_is_given(name, few):
    make, y = SPENDERS[name]
    with entropy() as taken:
        make(None).fit(X, y)
    assert sum(taken) >= 8 * 3  # 64 bits a number, and a number for each column
    with pytest.raises(AssertionError, match="a generator of NumPy was made"), entropy():
        make(0).fit(X, y)


@pytest.mark.slow
@pytest.mark.parametrize("name", SPENDERS)
def test_different_seeds_give_different_noise_and_equal_ones_the_same(name, few):
    make, y = SPENDERS[name]

    def fit(state):
        fitted = make(state).fit(X, y)
        return (
            fitted.low_
            if name == "bounds"
            else fitted[-1].coef_
            if name == "pipeline"
            else fitted.coef_
        )

    numbers = [np.random.RandomState(seed) for seed in range(10)]
    assert (fit(np.random.RandomState(5)) == fit(np.random.RandomState(5))).all()
    assert len({fit(state).tobytes() for state in numbers}) > (1 if name == "bounds" else 5)


@pytest.mark.filterwarnings("ignore::dpanalysis.linear_model.PrivacyWarning")
@settings(max_examples=10, deadline=None)
@given(
    seed=st.integers(10**12, 2**60),
    of=st.sampled_from(
        [
            *(int, np.int64, np.random.SeedSequence, np.random.default_rng),
            lambda k: np.random.SeedSequence([k]),
        ]
    ),
    long=st.booleans(),
)
def test_no_card_and_no_file_shows_the_seed_of_the_noise(seed, of, long):
    """Whoever reads the card of a model could draw its noise again, and subtract it."""
    bounds = ([-1.0] * 3, [1.0 - 1e-9 * k for k in range(3)]) if long else (-1, 1)
    model = LinearSVC(C=1.0, bounds=bounds, random_state=of(seed)).fit(X, Y[2])
    several = [model] if not long else [make_pipeline(model) for _ in range(9)]  # cut off somewhere
    card, joint = model.privacy_, privacy_of(several)
    texts = [str(card), card.to_json(), card.to_html(), str(joint), joint.to_json()]
    for text in [*texts, model_json(model)]:
        assert str(seed) not in text and str(seed)[:8] not in text
    assert "random_state=<not shown>)" in card.model


@pytest.mark.slow
def test_the_two_sides_of_private_bounds_have_independent_noise(monkeypatch):
    seen = []
    plain = mechanisms.noisy
    monkeypatch.setattr(mechanisms, "noisy", lambda *a: seen.append(plain(*a)) or seen[-1])
    PrivateBounds(1.0, random_state=0).fit(X[:, :1])
    numbers = np.concatenate(seen)
    assert len(np.unique(numbers)) == len(numbers) > 100


# --- the command ---


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with open("t.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["a", "b", "c", "y"])
        writer.writerows([*row, label] for row, label in zip(X.round(6).tolist(), Y[2].tolist()))
    (tmp_path / "d.toml").write_text(
        'classes = ["0", "1", "never"]\n[columns]\na = [-1, 1]\nb = [-1, 1]\nc = [-1, 1]\n'
    )
    return ["fit", "t.csv", "--label", "y", "--domain", "d.toml", "--out", "m.json", "--force"]


@pytest.mark.parametrize("kind", ["logistic", "svm"])
@pytest.mark.parametrize("delta", [0.0, 1e-4])
@pytest.mark.parametrize("relation", RELATIONS)
def test_the_command_spends_what_it_is_given(table, kind, delta, relation, capsys):
    argv = [*table, "--epsilon", "0.7", "--delta", str(delta), "--relation", relation]
    with watched() as (granted, _), entropy() as taken:
        assert main([*argv, "--kind", kind]) == 0
    content = json.loads(Path("m.json").read_text(encoding="utf-8"))
    card = content["privacy"]
    assert card["epsilon"] == pytest.approx(spent(granted)) == pytest.approx(0.7, rel=1e-3)
    assert card["epsilon"] <= 0.7 * (1.0 + 1e-8) and card["delta"] == pytest.approx(delta)
    assert card["relation"] == relation and sum(taken) > 24
    assert "RESEARCH ONLY" not in capsys.readouterr().out
    assert content["classes"] == ["0", "1", "never"] and card["not_counted"] == []
    assert "the set of labels: declared by the user" in card["not_covered"]


def test_the_command_refuses_a_delta_of_one_record(table, capsys):
    with pytest.raises(SystemExit):
        main([*table, "--epsilon", "1", "--delta", str(1 / 600)])
    assert "delta must be below 1/n" in capsys.readouterr().err


def test_a_delta_of_one_record_in_the_clear_is_refused():
    LogisticRegression(1.0, math.nextafter(1 / 600, 0.0), bounds=(-1, 1)).fit(X, Y[2])
    for delta in (1 / 600, 0.01):
        with pytest.raises(ValueError, match="delta must be below 1/n"):
            LogisticRegression(1.0, delta, bounds=(-1, 1)).fit(X, Y[2])


# --- bounds on the rows ---

RANGES = st.lists(
    st.tuples(st.floats(-1e3, 1e3), st.floats(1e-3, 1e3)).map(lambda p: (p[0], p[0] + p[1])),
    min_size=1,
    max_size=4,
)


@pytest.mark.slow
@given(RANGES, st.lists(st.integers(1, 3), max_size=2), st.booleans(), st.data())
def test_the_largest_row_within_public_ranges_is_within_the_bounds(ranges, sizes, sparse, data):
    """A corner: each number at the end that is further from 0, an indicator in each group.

    So is the row of the design, with the same predictions: nothing was cut.
    """
    import scipy.sparse as sp

    m, ends = len(ranges), np.cumsum([len(ranges), *sizes])
    low, high = np.zeros(ends[-1]), np.ones(ends[-1])
    low[:m], high[:m] = np.array(ranges).T
    groups = list(zip(ends[:-1].tolist(), ends[1:].tolist()))
    columns = PublicColumns(low, high, groups)
    corner = np.zeros(ends[-1])
    corner[:m] = np.where(abs(low[:m]) > abs(high[:m]), low[:m], high[:m])
    for start, stop in groups:
        corner[data.draw(st.integers(start, stop - 1))] = 1.0
    for order in (1, 2, math.inf):
        assert columns.radius(order) == pytest.approx(np.linalg.norm(corner, order))
    rows = np.array([low, high, corner, 0.5 * low + 0.5 * high])
    rows[[0, 1, 3], m:] = 0.0
    for intercept in (True, False):
        design, _ = design_of(columns, None, len(low), intercept, sparse)
        D = design.rows(sp.csr_array(rows) if sparse else rows)
        problem = dpa.ERM(D, np.ones(4), dpa.losses.Logistic(), row_bound=design.row_bound)
        w = np.cos(np.arange(D.shape[1]))[None, :]
        coef, constant = design.weights(w)
        scale = problem._data.scale
        assert scale is None or np.min(scale) > 1.0 - 1e-9
        found, said = rows @ coef.T + constant, np.asarray(D @ w.T)
        np.testing.assert_allclose(found, said, atol=1e-6 * (1.0 + abs(coef).max() * 2e3))


@given(st.sampled_from([1, 2, math.inf]), st.floats(1e-3, 1e3), st.integers(1, 40))
def test_rows_of_a_norm_keep_it_in_the_design(order, radius, d):
    """A row at the bound stays uncut, with and without the constant."""
    row = np.full(d, radius / d ** (0.0 if math.isinf(order) else 1.0 / order))
    for intercept in (True, False):
        design, _ = design_of(dpa.RowBound(order, radius), None, d, intercept, False)
        D = design.rows(np.array([row, 0.0 * row]))
        problem = dpa.ERM(D, np.ones(2), dpa.losses.Logistic(), row_bound=design.row_bound)
        scale = problem._data.scale
        assert scale is None or np.min(scale) > 1.0 - 1e-9
        # Scaled to a length of at most sqrt(d) and 4, which the rule for the penalty assumes.
        assert np.linalg.norm(D[0, :d]) <= min(math.sqrt(d), 4.0) * (1.0 + 1e-9)


@given(radius=st.floats(1e-3, 1e3), d=st.integers(1, 60))
def test_rows_of_a_norm_have_the_length_of_so_many_columns_and_at_most_four(radius, d):
    """The penalty and the solver assume a unit of the rows that depends on d only."""
    design, _ = design_of(dpa.RowBound(2, radius), None, d, False, False)
    (bound,) = design.row_bound
    assert bound.radius == pytest.approx(min(math.sqrt(d), 4.0))
