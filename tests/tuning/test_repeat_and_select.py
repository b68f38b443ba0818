"""Private selection: the law of the choice, its privacy cost, and what is refused."""

import copy
import math
from collections import deque
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.base import clone
from sklearn.ensemble import BaggingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline

import dpanalysis as dpa
from dpanalysis.linear_model import LogisticRegression, privacy_of
from dpanalysis.preprocessing import LearnedRanges, PrivateBounds, PublicColumns, PublicEncoder
from dpanalysis.privacy import Filter, mechanisms
from dpanalysis.privacy.events import Gaussian, Pure
from dpanalysis.privacy.ledger import Ledger
from dpanalysis.tuning import (
    PrivateLoss,
    Repeats,
    Selection,
    _check_output,
    _of_choice,
    affordable,
    repeat_and_select,
)

CHANCES = [np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.2, 0.6])]


def finite(chances):
    return lambda budget, rng: int(np.searchsorted(np.cumsum(chances)[:-1], rng.random()))


def own(output, budget, rng):
    return float(output)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [0.0, 1.0, math.inf])
def test_the_law_of_the_choice_is_the_one_enumerated(shape):
    """By chi-square at p = 1e-6."""
    repeats = Repeats(3.0, shape)
    budget = dpa.Budget(1.0, delta=1e-5)
    random = np.random.default_rng(4)
    candidates = [finite(each) for each in CHANCES]
    seen = [
        repeat_and_select(candidates, budget, score=own, repeats=repeats, rng=random).output
        for _ in range(250)
    ]
    codes = [0 if each is None else each + 1 for each in seen]
    mean = np.cumsum(np.concatenate([[0.0], np.mean(CHANCES, axis=0)]))
    below = repeats.below(np.minimum(mean, 1.0))
    law = np.concatenate([below[:1], np.diff(below)])
    there = law > 0.0
    counts = np.bincount(codes, minlength=4)
    assert not counts[~there].any()
    assert stats.chisquare(counts[there], 250 * law[there]).pvalue > 1e-6


@pytest.mark.parametrize("budget", [dpa.Budget(2.0), dpa.Budget(2.0, delta=1e-6)])
@pytest.mark.parametrize("shape", [0.0, 1.0])
def test_the_whole_fits_the_budget_and_uses_it(budget, shape):
    given = []
    chosen = repeat_and_select(
        [lambda each, rng: given.append(each) or 1.0],
        budget,
        score=lambda output, each, rng: given.append(each) or 1.0,
        repeats=Repeats(4.0, shape),
        score_share=0.25,
        rng=2,
    )
    assert chosen.epsilon(budget.delta) == pytest.approx(2.0, rel=1e-5)
    assert chosen.epsilon(budget.delta) <= 2.0 * (1 + 1e-9)
    assert given[:2] == [chosen.run, chosen.scoring]
    assert chosen.scoring.limit == pytest.approx(chosen.run.limit / 3.0)
    assert affordable(budget, Repeats(4.0, shape)).limit == pytest.approx(
        chosen.run.limit + chosen.scoring.limit
    )
    assert (chosen.run.delta, chosen.run.rho is None) == (0.0, budget.delta == 0.0)


def test_a_guard_is_charged_beforehand_or_nothing_runs():
    called = []

    def candidate(budget, rng):
        called.append(budget)
        return 1.0

    guard = Filter(dpa.Budget(1.5))
    repeat_and_select([candidate], dpa.Budget(1.0), score=own, guard=guard, rng=0)
    assert guard.remaining == pytest.approx(0.5) and called
    called.clear()
    with pytest.raises(dpa.PrivacyBudgetExceeded):
        repeat_and_select([candidate], dpa.Budget(1.0), score=own, guard=guard, rng=1)
    assert not called and guard.remaining == pytest.approx(0.5)

    def broken(budget, rng):
        raise OSError("gone")

    guard = Filter(dpa.Budget(1.5))
    with pytest.raises(OSError, match="gone"):
        repeat_and_select([broken], dpa.Budget(1.0), score=own, guard=guard, rng=0)
    assert guard.remaining == pytest.approx(0.5)


@pytest.mark.parametrize("again", [int, lambda seed: np.random.SeedSequence([seed])])
def test_a_seed_is_used_once_under_a_guard(again):
    """For choices and for runs: the candidates of the second would have the noise of the first."""
    guard = Filter(dpa.Budget(10.0))
    candidate, method = finite(CHANCES[0]), dpa.methods.OutputPerturbation()
    repeat_and_select([candidate], dpa.Budget(1.0), score=own, guard=guard, rng=1)
    with pytest.raises(ValueError, match="rng has been used under this filter"):
        repeat_and_select([candidate], dpa.Budget(1.0), score=own, guard=guard, rng=again(1))
    with pytest.raises(ValueError, match="rng has been used under this filter"):
        dpa.minimize(PROBLEM, method, guard, rng=again(1))
    assert guard.spent == 1.0


def test_nan_scores_are_the_worst():
    scores = iter([math.nan, 2.0, math.nan, 3.0] + [math.nan] * 10_000)
    outputs = iter(range(10_000))
    chosen = repeat_and_select(
        [lambda budget, rng: next(outputs)],
        dpa.Budget(1.0),
        score=lambda *given: next(scores),
        repeats=Repeats(50.0),
        rng=1,
    )
    assert (chosen.output, chosen.score) == (3, 3.0)


@pytest.mark.slow
def test_no_run_is_no_choice():
    budget, rare = dpa.Budget(1.0, delta=1e-6), Repeats(1.0, math.inf)
    none = [
        repeat_and_select([lambda b, r: 1.0], budget, score=own, repeats=rare, rng=k)
        for k in range(10)
    ]
    empty = [each for each in none if each.index is None]
    assert empty and empty[0].output is None and math.isnan(empty[0].score)


X = np.random.default_rng(0).uniform(-1, 1, size=(300, 2))
PROBLEM = dpa.ERM(
    X,
    np.sign(X[:, 0]),
    dpa.losses.Logistic(),
    dpa.regularizers.L2(0.1),
    dpa.RowBound(2, 2.0**0.5),
)


@pytest.mark.parametrize("budget", [dpa.Budget(3.0), dpa.Budget(3.0, delta=1e-6)])
def test_real_runs_with_the_entropy_of_the_system(budget):
    method = dpa.methods.Nesterov(step_size=0.4, iterations=5, mu=0.1, noise="optimal")
    chosen = repeat_and_select(
        [lambda each, rng: dpa.minimize(PROBLEM, method, each, rng=rng)],
        budget,
        score=PrivateLoss(PROBLEM, 2.0),
        repeats=Repeats(2.0),
        rng="os",
    )
    assert chosen.output.hardened and chosen.output.epsilon(1e-6) < 3.0
    assert chosen.epsilon(budget.delta) == pytest.approx(3.0, rel=1e-5)


def test_a_run_under_another_budget_is_refused():
    method = dpa.methods.Nesterov(step_size=0.4, iterations=5, mu=0.1, noise="optimal")
    for wrong in (
        lambda each, rng: dpa.minimize(PROBLEM, method, dpa.Budget(50.0), rng=rng),
        lambda each, rng: dpa.minimize(PROBLEM, method, each, replicates=2, rng=rng),
    ):
        with pytest.raises(ValueError, match="candidates must run under the budget"):
            repeat_and_select([wrong], dpa.Budget(3.0), score=PrivateLoss(PROBLEM, 2.0), rng=0)


@pytest.mark.parametrize("budget", [dpa.Budget(0.7), dpa.Budget.zcdp(0.3)])
def test_a_score_has_the_noise_its_budget_asks_for(budget, monkeypatch):
    """One record moves the score by C/n, and a little more by rounding; no penalty is added."""
    seen = []
    plain = mechanisms.noisy

    def noisy(random, values, law, scale, shares=1.0):
        seen.append((law, scale))
        return plain(random, values, law, 0.0)

    monkeypatch.setattr(mechanisms, "noisy", noisy)
    w = np.array([1.0, -0.5])
    score = PrivateLoss(PROBLEM, 2.0)(w, budget, 0)
    losses = np.logaddexp(0.0, -np.sign(X[:, 0]) * (X @ w))
    assert score == pytest.approx(-np.minimum(losses, 2.0).mean())
    (law, scale) = seen[0]
    pure = budget.rho is None
    assert law == ("laplace" if pure else "gaussian")
    expected = 2.0 / 300 / (0.7 if pure else math.sqrt(2 * 0.3))
    assert expected <= scale <= expected * 1.001
    assert PrivateLoss(PROBLEM, 2.0)(np.array([math.nan, 0.0]), budget, 0) == -math.inf


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"candidates": []}, ValueError, "at least one"),
        ({"candidates": [3]}, TypeError, "candidates must be callable"),
        ({"candidates": finite(CHANCES[0])}, TypeError, "must be a sequence of functions"),
        ({"candidates": 3}, TypeError, "must be a sequence of functions"),
        ({"score": None}, TypeError, "score must be callable"),
        ({"score_share": 0.0}, ValueError, "score_share"),
        ({"score_share": 1.0}, ValueError, "score_share"),
        ({"budget": dpa.Budget.zcdp(1.0)}, ValueError, "zCDP"),
        ({"repeats": Repeats(2.0, math.inf)}, ValueError, "no pure loss"),
        (
            {"guard": Filter(dpa.Budget(1.0, relation="add_or_remove_one"))},
            ValueError,
            "guard must have the budget's relation",
        ),
        ({"guard": Filter(dpa.Budget(1.0)).branch()}, TypeError, "branch of a filter"),
    ],
)
def test_wrong_arguments_fail_before_anything_runs(change, error, message):
    arguments = {"candidates": [finite(CHANCES[0])], "budget": dpa.Budget(1.0), "score": own}
    with pytest.raises(error, match=message):
        repeat_and_select(**{**arguments, **change})


def test_a_score_wants_a_budget_with_a_law():
    with pytest.raises(ValueError, match="pure or of zCDP"):
        PrivateLoss(PROBLEM, 1.0)(np.zeros(2), dpa.Budget(1.0, delta=1e-6), 0)
    for output in (None, "text", ["0.5", "text"], np.zeros(3), object()):
        with pytest.raises(TypeError, match="PrivateLoss scores weights of 2 numbers"):
            PrivateLoss(PROBLEM, 1.0)(output, dpa.Budget(1.0), 0)
    with pytest.raises(ValueError, match="clip"):
        PrivateLoss(PROBLEM, 0.0)


# --- privacy reports of the output ---

PERTURBED = dpa.methods.ObjectivePerturbation()


def result_of(budget, rng):
    return dpa.minimize(PROBLEM, PERTURBED, budget, rng=rng, record=())


def model_of(budget, rng):
    epsilon = budget.epsilon or 0.9 * math.sqrt(2.0 * budget.rho)
    model = LogisticRegression(epsilon, budget.delta, bounds=(-1, 1), random_state=0)
    return model.fit(X, X[:, 0] > 0)


def piped(budget, rng):
    encoder = PublicEncoder({"a": (-1, 1), "b": (-1, 1)})
    return make_pipeline(encoder, model_of(budget, rng)).fit(X, X[:, 0] > 0)


def planned(budget, rng):
    method = dpa.methods.Nesterov(step_size=0.4, iterations=2, mu=0.1)
    return dpa.minimize(PROBLEM, method, budget, rng=rng, record=())


def adaptive(budget, rng):
    """A method that runs under a filter, whose epsilon the result reports."""
    method = dpa.methods.AdaptiveGD(iterations=3)
    return dpa.minimize(PROBLEM, method, budget, rng=rng, record=())


def chosen_of(budget, rng):
    """A choice within the budget of a run."""
    law = Repeats(2.0, 0.0)
    return repeat_and_select([result_of], budget, score=fair, repeats=law, rng=rng)


def fair(output, budget, rng):
    return float(mechanisms.random_source(rng).random())


def reports(output):
    """Every epsilon that an output reports."""
    if isinstance(output, (tuple, list)):
        return [each for part in output for each in reports(part)]
    if isinstance(output, dict):
        return reports(list(output.values()))
    if isinstance(output, Selection):
        return [output.epsilon(), *reports(output.output)]
    if isinstance(output, dpa.Result):
        return [output.epsilon(), output.ledger.epsilon(output.budget.delta)]
    if isinstance(output, float):
        return []
    card = output.privacy_ if hasattr(output, "privacy_") else output[-1].privacy_
    assert card.ledger[0].startswith("the best of") and len(card.ledger) == 1
    return [card.epsilon]


@pytest.mark.slow
@pytest.mark.parametrize(
    "candidate", [result_of, model_of, piped, chosen_of], ids=lambda f: f.__name__
)
@pytest.mark.parametrize("wrap", [lambda o: o, lambda o: (o, 1.0), lambda o: {"x": [o]}])
def test_every_report_of_the_output_is_that_of_the_whole_choice(candidate, wrap):
    budget = dpa.Budget(2.0)
    chosen = repeat_and_select(
        [lambda each, rng: wrap(candidate(each, rng))], budget, score=fair, rng=3
    )
    found = reports(chosen.output)
    assert found and found == pytest.approx([2.0] * len(found), rel=1e-9)
    assert chosen.epsilon() == pytest.approx(2.0)


@dataclass(frozen=True)
class Fitted:
    model: object
    note: str = "kept"


class Slotted:
    __slots__ = ("__weakref__", "model")

    def __init__(self, model):
        self.model = model


class Hidden:
    __slots__ = ("__model",)

    def __init__(self, model):
        self.__model = model

    def model(self):
        return self.__model


HOLDERS = {
    "queue": (lambda model: deque([model]), lambda output: output[0]),
    "key": (lambda model: {model: "kept"}, lambda output: next(iter(output))),
    "private slot": (Hidden, Hidden.model),
    "dataclass": (Fitted, lambda output: output.model),
    "namespace": (lambda model: SimpleNamespace(model=model), lambda output: output.model),
    "slots": (Slotted, lambda output: output.model),
    "method": (lambda model: model.predict, lambda output: output.__self__),
    "partial": (lambda model: partial(print, model), lambda output: output.args[0]),
    "set": (lambda model: {model}, lambda output: next(iter(output))),
    "array": (lambda model: np.array([None, model]), lambda output: output[1]),
    "frozen": (FrozenEstimator, lambda output: output.estimator),
    "in a pipeline": (
        lambda model: make_pipeline("passthrough", FrozenEstimator(model)),
        lambda output: output[-1].estimator,
    ),
}


@pytest.mark.parametrize("name", HOLDERS)
def test_reports_are_updated_wherever_the_output_holds_the_model(name):
    """A dataclass, a frozen estimator or a method reported 0.8 where the choice cost 3."""
    hold, take = HOLDERS[name]
    model, ledger = model_of(dpa.Budget(0.8), None), Ledger("replace_one")
    ledger.record(Pure(3.0))
    for wrap, unwrap in [(lambda o: o, lambda o: o), (lambda o: [{1: o}, o], lambda o: o[0][1])]:
        output = wrap(hold(model))
        copied = take(unwrap(_of_choice(output, ledger, dpa.Budget(3.0))))
        assert copied.privacy_.epsilon == 3.0 and model.privacy_.epsilon == pytest.approx(0.8)
        assert model.privacy_.of_choice(ledger, 0.0).not_covered == copied.privacy_.not_covered
        np.testing.assert_array_equal(copied.coef_, model.coef_)
        _check_output(output, dpa.Budget(0.8))
        with pytest.raises(ValueError, match="candidates must run under the budget"):
            _check_output([output, model_of(dpa.Budget(0.1), None)], dpa.Budget(0.8))


@pytest.mark.filterwarnings("ignore::dpanalysis.linear_model.PrivacyWarning")
def test_fits_within_another_estimator_are_added():
    def several(budget, rng):
        one = LogisticRegression(budget.epsilon, bounds=(-1, 1), random_state=0)
        return OneVsRestClassifier(one).fit(X, np.arange(len(X)) % 3)

    with pytest.raises(ValueError, match="candidates must run under the budget that they are giv"):
        repeat_and_select([several], dpa.Budget(2.0), score=fair, rng=3)


@pytest.mark.parametrize("candidate", [planned, adaptive, model_of])
def test_reports_are_updated_with_a_delta(candidate):
    budget = dpa.Budget(2.0, delta=1e-6)
    chosen = repeat_and_select([candidate], budget, score=fair, repeats=Repeats(2.0), rng=3)
    assert reports(chosen.output)[0] == pytest.approx(2.0, rel=1e-5)
    if candidate is model_of:
        assert chosen.output.privacy_.delta == 1e-6
    else:
        assert chosen.output.epsilon(1e-9) == pytest.approx(chosen.epsilon(1e-9))


@pytest.mark.slow
def test_the_model_chosen_stays_what_it_was_when_it_was_chosen():
    """A candidate fits one estimator repeatedly: the best fit is returned, not the last."""
    model, fits = LogisticRegression(bounds=(-1, 1)), []

    def candidate(budget, rng):
        model.set_params(epsilon=budget.epsilon, random_state=len(fits))
        fits.append(model.fit(X, X[:, 0] > 0).coef_)
        return model

    scores = iter([0.0, 2.0] + [1.0] * 1000)
    chosen = repeat_and_select(
        [candidate], dpa.Budget(1.0), score=lambda *_: next(scores), repeats=Repeats(40.0), rng=1
    )
    assert len(fits) > 2 and chosen.output is not model
    assert (chosen.output.coef_ == fits[1]).all() and (model.coef_ == fits[-1]).all()
    assert model.privacy_.epsilon < chosen.output.privacy_.epsilon == pytest.approx(1.0)


def test_what_was_chosen_stays_if_all_runs_write_into_one_object():
    """Score and last run released at once can cost 3.97 where the choice is charged 3."""
    buffer = SimpleNamespace(w=np.zeros(1))
    given = []

    def candidate(budget, rng):
        buffer.w[0] = rng.random()
        given.append(buffer.w[0])
        return buffer

    def score(output, budget, rng):
        return output.w[0]

    chosen = repeat_and_select([candidate], dpa.Budget(3.0), score=score, rng=1)
    assert chosen.output.w[0] == chosen.score == max(given) > given[-1]
    with pytest.raises(TypeError, match="candidates must return what can be copied"):
        repeat_and_select(
            [lambda *_: (k for k in "ab")], dpa.Budget(3.0), score=lambda *_: 0.0, rng=1
        )


WHOLE, OTHER = dpa.Budget(2.0), dpa.Budget(0.01, relation="add_or_remove_one")


@pytest.mark.parametrize(
    ("candidate", "wrong"),
    [
        *((each, WHOLE) for each in (result_of, model_of, piped, chosen_of)),
        *((each, OTHER) for each in (result_of, chosen_of)),
        *((each, dpa.Budget(0.01, 1e-5)) for each in (result_of, model_of)),
        (result_of, None),
    ],
)
def test_reports_above_the_budget_of_a_run_are_refused(candidate, wrong):
    """A nested choice that spends the whole budget again would cost 3.2 for a claim of 1."""
    with pytest.raises(ValueError, match="candidates must run under the budget"):
        repeat_and_select([lambda each, rng: candidate(wrong, rng)], WHOLE, score=fair, rng=0)


@pytest.mark.parametrize("relation", ["replace_one", "add_or_remove_one"])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_runs_and_scores_get_shares_of_the_budget_under_its_relation(relation, delta):
    given = []

    def candidate(budget, rng):
        given.append(budget)
        return 0.0

    def score(output, budget, rng):
        given.append(budget)
        return 0.0

    budget = dpa.Budget(2.0, delta, relation)
    chosen = repeat_and_select([candidate], budget, score=score, rng=1)
    assert set(given) == {chosen.run, chosen.scoring}
    assert {each.relation for each in given} == {chosen.ledger.relation} == {relation}


def test_a_run_in_another_notion_of_privacy_is_refused():
    """A run with a budget in rho cannot be part of a budget in epsilon, however small rho is."""
    method = dpa.methods.GradientDescent(0.1, 2, mechanism="gaussian")

    def in_zcdp(_, rng):
        return dpa.minimize(PROBLEM, method, dpa.Budget(rho=1e-3), rng=rng, record=())

    with pytest.raises(ValueError, match="candidates must run under the budget"):
        repeat_and_select([in_zcdp], WHOLE, score=fair, rng=0)


def test_several_reports_of_one_run_are_added():
    def halves(share):
        def candidate(budget, rng):
            part = dpa.Budget(share * budget.epsilon)
            return [result_of(part, each) for each in mechanisms.spawn(rng, 2)]

        return candidate

    chosen = repeat_and_select([halves(0.5)], dpa.Budget(2.0), score=fair, rng=0)
    assert len(chosen.output) == 2 and chosen.epsilon() == pytest.approx(2.0)
    with pytest.raises(ValueError, match="candidates must run under the budget"):
        repeat_and_select([halves(0.75)], dpa.Budget(2.0), score=fair, rng=0)


@given(st.integers(0, 3), st.floats(0.1, 5.0), st.sampled_from([0.0, 0.5, 1.0, 2.0]))
def test_choices_within_choices_cost_what_the_theorem_says(depth, epsilon, shape):
    """Each of depth + 1 levels divides the budget of the innermost run once more."""
    law, spent = Repeats(1.5, shape), []

    def bottom(budget, rng):
        spent.append(budget.epsilon)
        return 1.0

    candidate = bottom
    for _ in range(depth):
        candidate = partial(
            lambda inner, budget, rng: repeat_and_select(
                [inner], budget, score=fair, repeats=law, rng=rng
            ),
            candidate,
        )
    chosen = repeat_and_select([candidate], dpa.Budget(epsilon), score=fair, repeats=law, rng=0)
    assert chosen.epsilon() == pytest.approx(epsilon)
    # On each level the choice costs (2 + shape) runs with their scores, which get a fifth.
    assert spent[0] == pytest.approx(epsilon * (0.8 / (2.0 + shape)) ** (depth + 1))
    inner = chosen
    while isinstance(inner.output, Selection):
        inner = inner.output
        assert inner.epsilon() == pytest.approx(epsilon)


def test_a_choice_of_zcdp_runs_has_no_choice_within():
    with pytest.raises(ValueError, match="the best of several runs of zCDP is not of zCDP"):
        repeat_and_select([chosen_of], dpa.Budget(2.0, delta=1e-6), score=fair, rng=0)


@pytest.mark.parametrize("rng", [3, np.random.default_rng(3), None, "os"])
def test_a_choice_is_no_better_than_the_noise_of_its_scores(rng):
    """Runs of exact noise, chosen by scores of pseudo-random noise, counted as exact."""

    def release(budget, rng):
        return dpa.minimize(PROBLEM, dpa.methods.OutputPerturbation(), budget, rng="os")

    budget, repeats = dpa.Budget(3.0), Repeats(6.0, 0.0)
    chosen = repeat_and_select([release], budget, score=fair, repeats=repeats, rng=rng)
    assert chosen.output.hardened is (rng == "os")
    told = repeat_and_select([exact_ledger], budget, score=fair, repeats=repeats, rng=rng)
    assert (told.output.noise == "exact") is (rng == "os")
    made = repeat_and_select([model_of_system], budget, score=fair, repeats=repeats, rng=rng)
    seeded = rng is not None and not isinstance(rng, str)
    assert ("RESEARCH ONLY" in str(made.output.privacy_)) is seeded


def exact_ledger(budget, rng):
    ledger = Ledger(budget.relation)
    ledger.record(Pure(budget.limit))
    ledger.noise = "exact"
    return ledger


def model_of_system(budget, rng):
    return LogisticRegression(budget.epsilon, bounds=(-1, 1)).fit(X, X[:, 0] > 0)


def test_a_report_that_a_copy_shares_is_refused():
    """A table of pandas copies its own array, but no object in it: it reported .8 of 3."""
    pandas = pytest.importorskip("pandas")
    model = model_of(dpa.Budget(0.8), None)
    ledger = Ledger("replace_one")
    ledger.record(Pure(3.0))
    with pytest.raises(TypeError, match="results in lists, dicts or attributes"):
        _of_choice(pandas.Series([model], dtype=object), ledger, dpa.Budget(3.0))


def test_a_ledger_alone_is_checked_and_restated():
    own, ledger = Ledger("replace_one"), Ledger("replace_one")
    own.record(Pure(0.8))
    ledger.record(Pure(3.0))
    assert _of_choice((1.0, own), ledger, dpa.Budget(3.0))[1].epsilon(0.0) == 3.0
    assert own.epsilon(0.0) == 0.8
    _check_output((1.0, own), dpa.Budget(0.8))
    for output in (deque([own, copy.copy(own)]), {1: own, 2: [copy.copy(own)]}):
        with pytest.raises(ValueError, match="candidates must run under the budget"):
            _check_output(output, dpa.Budget(0.8))
    gaussian = Ledger("replace_one")
    gaussian.record(Gaussian(1.0, 1.0))
    _check_output(gaussian, dpa.Budget.zcdp(0.5))
    with pytest.raises(ValueError, match="candidates must run under the budget"):
        _check_output(gaussian, dpa.Budget.zcdp(0.4))


@pytest.mark.filterwarnings("ignore::dpanalysis.linear_model.PrivacyWarning")
def test_estimators_cost_what_their_fits_did():
    """Ranges of other models, discarded fits and copies of records are on no card of a model."""
    X, y = np.random.default_rng(0).uniform(-1, 1, (3000, 2)), np.arange(3000) % 2
    ranges = PrivateBounds(2.0).fit(X)
    plain = LogisticRegression(2.0, bounds=(-1, 1))
    piped = make_pipeline(FrozenEstimator(ranges), LogisticRegression(2.0)).fit(X, y)
    one_each, copies = (
        BaggingClassifier(plain, 2, bootstrap=each, random_state=0).fit(X, y)
        for each in (False, True)
    )
    search = GridSearchCV(plain, {}, cv=KFold(2)).fit(X, y)
    for output, cost in (
        ([ranges, clone(plain).fit(X, y)], 4.0),
        ([ranges, piped], 4.0),
        (one_each, 4.0),
        (copies, privacy_of(copies).epsilon),
        ({"search": search}, 6.0),
    ):
        _check_output(output, dpa.Budget(cost))
        with pytest.raises(ValueError, match="candidates must run under the budget"):
            _check_output(output, dpa.Budget(0.99 * cost))


def test_learned_ranges_beside_a_result_are_added_to_its_cost():
    """A card includes the ranges that its model was fitted with; no other report does."""
    result, ranges = Ledger("replace_one"), LearnedRanges(0.6)
    result.record(Pure(0.6))
    _check_output([result, ranges], dpa.Budget(1.2))
    with pytest.raises(ValueError, match="under the budget that they are given"):
        _check_output([result, ranges], dpa.Budget(1.0))


def test_a_table_that_states_the_cost_of_its_bounds_is_refused():
    """The attributes of a copied table kept the 1.2 of one run, of a choice that cost 9."""
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(np.random.default_rng(0).normal(0.0, 5.0, size=(400, 2)))

    def candidate(budget, rng):
        bounds = PrivateBounds(budget.epsilon, random_state=0).set_output(transform="pandas")
        return bounds.fit_transform(table)

    with pytest.raises(TypeError, match="copying a DataFrame does not copy the report in it"):
        repeat_and_select([candidate], dpa.Budget(9.0), score=lambda *_: 0.0, rng=1)


def test_learned_bounds_state_the_cost_of_the_choice():
    """Another model on the bounds of the selected pipeline used to count those of one run."""
    X = np.random.default_rng(0).normal(0.0, 5.0, size=(4000, 2))

    def candidate(budget, rng, share=0.5):
        bounds = PrivateBounds(0.5 * budget.epsilon, random_state=0)
        model = LogisticRegression(share * budget.epsilon, random_state=0)
        return make_pipeline(bounds, model).fit(X, X[:, 0] > 0.0)

    options = {"score": lambda *_: 0.0, "rng": 1}
    bounds, model = repeat_and_select([candidate], dpa.Budget(9.0), **options).output
    other = LogisticRegression(1.0, random_state=0)
    for fits in (bounds.columns_, bounds.bounds_, bounds.low_, bounds.high_):
        assert [fit.epsilon for fit in fits.learned] == pytest.approx([9.0])
    assert bounds.columns_.epsilon == model.privacy_.epsilon == pytest.approx(9.0)
    again = other.fit(bounds.transform(X), X[:, 0] > 0.0)
    assert again.privacy_.epsilon == pytest.approx(10.0)
    with pytest.raises(ValueError, match="under the budget that they are given"):
        repeat_and_select([partial(candidate, share=0.6)], dpa.Budget(9.0), **options)


@given(spent=st.lists(st.floats(0.0, 1.0), min_size=1, max_size=3), choice=st.floats(0.01, 9.0))
def test_every_copy_of_learned_ranges_is_restated(spent, choice):
    columns = PublicColumns([0.0], [1.0], learned=[LearnedRanges(each) for each in spent])
    output = {"columns": columns, "low": columns.low, "high": [columns.high[0]]}
    ledger = Ledger("replace_one")
    ledger.record(Pure(choice))
    whole = _of_choice(output, ledger, dpa.Budget(choice))
    for each in (whole["columns"], whole["low"], whole["high"][0]):
        assert [fit.epsilon for fit in each.learned] == [choice] * len(spent)
    assert whole["columns"].epsilon == pytest.approx(choice * len(spent))
    assert [fit.epsilon for fit in columns.learned] == spent  # a copy
    if math.fsum(spent) > 1.001:
        with pytest.raises(ValueError, match="under the budget that they are given"):
            _check_output(output, dpa.Budget(1.0))
    elif math.fsum(spent) <= 1.0:
        _check_output(output, dpa.Budget(1.0))


@pytest.mark.parametrize("rng", [3, None, "os"])
@pytest.mark.parametrize("repeatable", [False, True])
def test_ranges_can_be_repeated_if_their_noise_or_that_of_the_choice_can(repeatable, rng):
    ledger = Ledger("replace_one")
    ledger.record(Pure(3.0))
    ranges = LearnedRanges(0.5, repeatable=repeatable)
    found = _of_choice([ranges], ledger, dpa.Budget(3.0), rng)[0]
    assert found.repeatable is (repeatable or rng == 3)


def test_a_result_and_its_ledger_are_one_report():
    problem, method = (
        dpa.Quadratic([0.5, 1.0], sensitivity=0.1),
        dpa.methods.GradientDescent(0.1, 2),
    )
    own = dpa.minimize(problem, method, dpa.Budget(1.0), rng=0)
    _check_output((own, own.ledger), dpa.Budget(1.0))


def test_a_released_result_is_not_written_into_by_a_later_run():
    """The released weights were those of the last run, and the score of the best one."""
    problem = dpa.Quadratic([0.5, 1.0], sensitivity=0.1)
    method = dpa.methods.GradientDescent(0.1, 2)
    own = dpa.minimize(problem, method, dpa.Budget(1.0), rng=0)
    ledger = Ledger("replace_one")
    ledger.record(Pure(3.0))
    released = _of_choice(own, ledger, dpa.Budget(3.0))
    before = released.w.copy()
    own.w[...] = 7.0
    np.testing.assert_array_equal(released.w, before)


def test_wrong_types_are_refused_before_anything_is_spent():
    guard = dpa.privacy.Filter(dpa.Budget(5.0))
    with pytest.raises(TypeError, match="repeats must be a law"):
        repeat_and_select([lambda b, rng: 1], dpa.Budget(3.0), score=len, repeats=5, guard=guard)
    with pytest.raises(TypeError, match="problem must be a problem"):
        PrivateLoss(5, 1.0)
    assert guard.spent == 0.0


def test_a_selection_states_its_epsilon_at_the_delta_of_its_budget():
    chosen = repeat_and_select(
        [lambda budget, rng: 1.0], dpa.Budget(3.0, 1e-6), score=lambda o, b, rng: o, rng=1
    )
    assert chosen.epsilon() == chosen.epsilon(1e-6) <= 3.0 and chosen.epsilon(0.0) == math.inf
    pure = repeat_and_select(
        [lambda budget, rng: 1.0], dpa.Budget(1e-9), score=lambda o, b, rng: o, rng=2
    )
    outer = repeat_and_select(
        [lambda budget, rng: pure], dpa.Budget(3.0, 1e-6), score=lambda o, b, rng: 1.0, rng=1
    )
    assert outer.output.epsilon() == outer.epsilon() <= 3.0


def test_what_is_no_number_is_no_weight_of_a_problem_with_one():
    problem = dpa.ERM([[1.0]], [1.0], dpa.losses.Logistic(), row_bound=dpa.RowBound(2, 1.0))
    for output in (None, "text", object()):
        with pytest.raises(TypeError, match="PrivateLoss scores weights of 1 numbers"):
            PrivateLoss(problem, 1.0)(output, dpa.Budget(1.0), 0)
