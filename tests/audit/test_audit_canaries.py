"""Audits of one run with many canaries: the bound against linear programmes, and optimizers."""

import itertools
import math

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import optimize, stats

import dpanalysis as dpa
from dpanalysis import Budget, RowBound, losses
from dpanalysis.audit.canaries import (
    chance_along_curve,
    gaussian_guessing_probability,
    guessing_probability,
    verify_with_canaries,
)
from dpanalysis.privacy import gaussian_delta, mechanisms


def best_private_guesser(correct, guesses, canaries, epsilon, delta):
    """The largest P(W >= correct) of all (epsilon, delta)-private mechanisms, enumerated.

    A linear programme over the probabilities of all answers to all coins, and the excess of
    each over e^epsilon times that of the neighbour.
    """
    coins = list(itertools.product([-1, 1], repeat=canaries))
    answers = [
        t for t in itertools.product([-1, 0, 1], repeat=canaries) if np.abs(t).sum() == guesses
    ]
    right = np.array([[sum(a == b for a, b in zip(s, t)) for t in answers] for s in coins])
    k, variables = len(answers), len(coins) * len(answers)
    pairs = [
        (i, coins.index(tuple(-x if j == place else x for j, x in enumerate(s))))
        for i, s in enumerate(coins)
        for place in range(canaries)
    ]
    n = len(pairs)
    pick = sp.lil_array((n, len(coins)))
    for row, (one, other) in enumerate(pairs):
        pick[row, one], pick[row, other] = 1.0, -math.exp(epsilon)
    each, ones = sp.eye_array(k), np.ones((1, k))
    privacy = sp.block_array(
        [[sp.kron(pick, each), -sp.eye_array(n * k)], [None, sp.kron(sp.eye_array(n), ones)]]
    )
    total = sp.hstack([sp.kron(sp.eye_array(len(coins)), ones), sp.csr_array((len(coins), n * k))])
    gain = np.concatenate([(right >= correct).reshape(-1) / len(coins), np.zeros(n * k)])
    assert gain.size == variables + n * k
    found = optimize.linprog(
        -gain,
        A_ub=privacy.tocsr(),
        b_ub=np.concatenate([np.zeros(n * k), np.full(n, delta)]),
        A_eq=total.tocsr(),
        b_eq=np.ones(len(coins)),
    )
    assert found.success
    return -found.fun


@pytest.mark.parametrize(("canaries", "guesses"), [(1, 1), (2, 1), (2, 2), (3, 2), (3, 3), (4, 2)])
@pytest.mark.parametrize("epsilon", [0.0, 1.0, 2.5])
@pytest.mark.parametrize("delta", [0.0, 0.02])
def test_the_bound_is_what_the_best_private_guesser_attains(canaries, guesses, epsilon, delta):
    for correct in range(1, guesses + 1):
        bound = guessing_probability(correct, guesses, canaries, epsilon, delta)
        best = best_private_guesser(correct, guesses, canaries, epsilon, delta)
        assert best <= bound + 1e-9
        assert (delta and bound == 1.0) or math.isclose(best, bound, rel_tol=1e-7)


def published(correct, guesses, canaries, epsilon, delta):
    """Steinke, Nasr, Jagielski (2023), Appendix D."""
    law = stats.binom(guesses, 1 / (1 + math.exp(-epsilon)))
    i = np.arange(1, correct + 1)
    between = law.cdf(correct - 1) - law.cdf(correct - i - 1)
    return law.sf(correct - 1) + 2 * canaries * delta * (between / i).max()


@pytest.mark.slow
def test_the_published_bound_is_looser_where_claims_are_refuted_and_false_below():
    ratios = []
    for guesses, epsilon, delta in itertools.product((5, 50, 300), (0, 0.5, 2), (1e-8, 1e-4)):
        for correct in range(1, guesses + 1):
            ours = guessing_probability(correct, guesses, guesses, epsilon, delta)
            if ours <= 0.1:
                ratios.append(published(correct, guesses, guesses, epsilon, delta) / ours)
    assert min(ratios) >= 1.0 - 1e-9 and max(ratios) > 12.0
    attained = best_private_guesser(1, 2, 2, 1.0, 0.02)
    assert attained > 0.9344 > 0.9335 > published(1, 2, 2, 1.0, 0.02)


@pytest.mark.slow
@given(st.integers(1, 2_000), st.floats(0.0, 20.0), st.data())
def test_without_delta_the_bound_is_a_binomial_tail(guesses, epsilon, data):
    correct = data.draw(st.integers(1, guesses))
    exact = stats.binom.sf(correct - 1, guesses, 1 / (1 + math.exp(-epsilon)))
    bound = guessing_probability(correct, guesses, guesses, epsilon)
    assert math.isclose(bound, exact, rel_tol=1e-8, abs_tol=1e-250)
    assert guessing_probability(correct, guesses, guesses, epsilon, 1e-300) >= bound
    assert guessing_probability(0, guesses, guesses, epsilon) == 1.0
    assert gaussian_guessing_probability(0, guesses, guesses, epsilon) == 1.0


@given(st.integers(20, 400), st.floats(0.0, 2.0), st.floats(0.0, 1e-4), st.data())
def test_the_lower_bound_is_rejected_and_a_little_more_is_not(guesses, claim, delta, data):
    """The scores make a chosen number of guesses right."""
    correct = data.draw(st.integers(guesses // 2, guesses))
    miss = 0.01
    assume(guessing_probability(guesses, guesses, guesses, claim, delta) <= miss)

    def train(included, rng):
        """Score canaries by their coin, and those of wrong guesses by the opposite."""
        order = np.flatnonzero(included), np.flatnonzero(~included)
        scores = np.where(included, 1.0, -1.0)
        swap = min(guesses - correct, 2 * min(map(len, order))) // 2
        for side in order:
            scores[side[:swap]] *= -1.0
        return scores

    verdict = verify_with_canaries(
        train, guesses, claim, delta=delta, guesses=guesses, confidence=1 - miss, rng=0
    )
    arguments = verdict.correct, guesses, guesses
    if verdict.epsilon > 0.0:
        assert guessing_probability(*arguments, verdict.epsilon, delta) <= miss * (1 + 1e-9)
        assert guessing_probability(*arguments, verdict.epsilon + 1e-5, delta) > miss
    else:
        assert guessing_probability(*arguments, 0.0, delta) > miss
    assert verdict.refuted == (verdict.epsilon > claim)
    assert verdict.p_value == guessing_probability(*arguments, claim, delta)


def coin_flips(epsilon):
    """Scores that are right with the largest probability that epsilon allows."""
    truth = 1 / (1 + math.exp(-epsilon))
    return lambda included, rng: included == (rng.random(included.size) < truth)


def alarms(seeds, confidence, audit=verify_with_canaries):
    return sum(
        audit(coin_flips(1.0), 100, 1.0, confidence=confidence, rng=seed).refuted
        for seed in range(seeds)
    )


@pytest.mark.slow
def test_false_alarms_stay_within_the_stated_rate_and_near_it():
    """W is binomial with the q of the claim: the exact rate is P(B >= 21) of 24 guesses."""
    rate = stats.binom.sf(20, 24, 1 / (1 + math.exp(-1.0)))
    assert 0.08 < rate <= 0.1 < stats.binom.sf(19, 24, 1 / (1 + math.exp(-1.0)))
    low, high = stats.binom.ppf([1e-6, 1 - 1e-6], 500, rate)
    assert low <= alarms(500, 0.9) <= high


@pytest.mark.slow
def test_the_best_number_of_guesses_found_afterwards_would_exceed_the_rate():
    """Why ``guesses`` must be fixed beforehand: this mutant reports the largest of many bounds."""

    def best_of_many(train, canaries, claim, **options):
        found = [
            verify_with_canaries(train, canaries, claim, guesses=r, **options)
            for r in range(8, canaries + 1, 12)
        ]
        return max(found, key=lambda verdict: verdict.epsilon)

    assert alarms(100, 0.9, best_of_many) > stats.binom.ppf(1 - 1e-6, 100, 0.1)


# --- the package's own optimizers -------------------------------------------------------------

M = 1_000


def classifier(included, relation):
    """Canary j is the j-th unit vector; excluded, it has the other label or is a row of zeros."""
    if relation == "replace_one":
        X, y = np.eye(M), np.where(included, 1.0, -1.0)
    else:
        X, y = np.diag(included.astype(float)), np.ones(M)
    bounds = RowBound(1, 1.0), RowBound(2, 1.0)
    return dpa.ERM(X, y, losses.Logistic(), dpa.regularizers.L2(0.1), row_bound=bounds)


def trained_by(method, budget):
    def train(included, rng):
        problem = classifier(included, budget.relation)
        return dpa.minimize(problem, method, budget, rng=rng).w[0]

    return train


LAPLACE, GAUSSIAN = {"mechanism": "laplace"}, {"mechanism": "gaussian"}
POISSON = {"sampling": dpa.Poisson(0.3), **GAUSSIAN}
RUNS = {
    "GD, Laplace": (dpa.methods.GradientDescent, LAPLACE, Budget(1.0)),
    "GD, Gaussian": (dpa.methods.GradientDescent, GAUSSIAN, Budget(1.0, 1e-6)),
    "HB, Gaussian": (dpa.methods.HeavyBall, GAUSSIAN, Budget.zcdp(0.1)),
    "HB, Poisson": (dpa.methods.HeavyBall, POISSON, Budget(1.0, 1e-6, "add_or_remove_one")),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_optimizers_are_not_refuted_and_with_too_little_noise_they_are(name, monkeypatch):
    """False alarms have probability .001 a run; seeds are fixed."""
    kind, options, budget = RUNS[name]
    momentum = {"momentum": 0.3} if kind is dpa.methods.HeavyBall else {}
    method = kind(step_size=0.5, iterations=4, **momentum, **options)
    delta = 1e-6 if budget.rho is not None else 0.0
    arguments = trained_by(method, budget), M, budget
    correct = verify_with_canaries(*arguments, delta=delta, rng=1)
    assert not correct.refuted and correct.epsilon < correct.claim
    original = getattr(mechanisms, options["mechanism"])

    def too_little(random, scale, size=None):
        return original(random, 0.05 * scale, size)

    monkeypatch.setattr(mechanisms, options["mechanism"], too_little)
    broken = verify_with_canaries(*arguments, delta=delta, rng=1)
    assert broken.refuted and broken.epsilon > broken.claim, str(broken)


# --- arguments and the verdict ----------------------------------------------------------------


def untouched(included, rng):
    raise AssertionError("nothing must be trained")


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"train": 3}, TypeError, "train must be callable"),
        ({"canaries": 0}, ValueError, "canaries must be at least 1"),
        ({"canaries": 10.0}, TypeError, "canaries must be an integer"),
        ({"canaries": 5}, ValueError, "canaries=5 cannot refute .* more canaries, .* are needed"),
        ({"claim": -1.0}, ValueError, "claim must lie in"),
        ({"claim": math.nan}, ValueError, "claim must lie in"),
        ({"claim": 9.0}, ValueError, "even if all are right: more canaries"),
        ({"claim": Budget.zcdp(0.1)}, ValueError, r"delta must lie in \(0, 1\)"),
        ({"delta": 1.0}, ValueError, "delta must lie in"),
        ({"delta": 0.1}, ValueError, "cannot refute epsilon = 1 at delta = 0.1"),
        ({"guesses": 0}, ValueError, "guesses must be between 1 and 1000"),
        ({"guesses": 1_001}, ValueError, "guesses must be between 1 and 1000"),
        ({"guesses": 20}, ValueError, "guesses=20 .* at least 23 guesses are needed"),
        ({"confidence": 1.0}, ValueError, "confidence must lie in"),
        ({"rng": "seed"}, TypeError, "rng must be"),
    ],
)
def test_bad_arguments_fail_before_anything_is_trained(change, error, message):
    arguments = {"train": untouched, "canaries": 1_000, "claim": 1.0}
    with pytest.raises(error, match=message):
        verify_with_canaries(**{**arguments, **change})


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        (np.zeros(99), r"one real score a canary, shape \(100,\), got shape \(99,\)"),
        (np.zeros((100, 1)), "one real score a canary"),
        (np.full(100, "a"), "the output of train must be an array of real numbers"),
        ([[1.0], [1.0, 2.0]], "the output of train must be an array of real numbers"),
        (np.full(100, np.nan), "must not return NaN, got 100"),
    ],
)
def test_scores_are_checked(scores, message):
    with pytest.raises((TypeError, ValueError), match=message):
        verify_with_canaries(lambda included, rng: scores, 100, 1.0, rng=0)


def test_the_least_number_of_guesses_that_the_message_names_is_enough():
    def truth(included, rng):
        return np.where(included, np.inf, -np.inf)

    # Of 1000 canaries, 12 and more are included and excluded, so all 23 guesses are right.
    assert verify_with_canaries(truth, 1_000, 1.0, guesses=23, rng=0).refuted


def test_equal_scores_are_guessed_at_random_and_the_mask_is_a_copy():
    def spoils(included, rng):
        included[:] = True
        return np.zeros(included.size)

    right = [
        verify_with_canaries(spoils, 400, 0.5, guesses=400, rng=seed).correct for seed in range(50)
    ]
    # 20,000 fair guesses; five standard deviations.
    assert abs(sum(right) - 10_000) < 5 * math.sqrt(5_000)

    def decides(included, rng):
        included[:] = np.arange(included.size) < 200
        return included.astype(float)

    assert not verify_with_canaries(decides, 400, 0.5, guesses=400, rng=0).refuted


def test_the_verdict_reads_as_a_sentence_and_never_as_a_proof():
    right = verify_with_canaries(coin_flips(1.0), 500, 1.0, rng=0)
    wrong = verify_with_canaries(coin_flips(4.0), 500, 1.0, rng=0)
    assert str(right).startswith("not refuted: ") and "may still refute it" in repr(right)
    assert str(wrong).startswith("refuted: epsilon >= ") and "guesses about 500" in str(wrong)
    for verdict in (right, wrong):
        assert not any(word in str(verdict) for word in ("prove", "proof", "private"))
        with pytest.raises(TypeError, match="refuted"):
            bool(verdict)
    again = verify_with_canaries(coin_flips(4.0), 500, 1.0, rng=0)
    assert (again.correct, again.epsilon) == (wrong.correct, wrong.epsilon)


# --- Gaussian privacy -------------------------------------------------------------------------


@pytest.mark.parametrize(("canaries", "guesses"), [(1, 1), (2, 1), (2, 2), (3, 2), (3, 3)])
@pytest.mark.parametrize("mu", [0.3, 1.0])
def test_the_gaussian_bound_is_above_what_private_guessers_attain(canaries, guesses, mu):
    """Each score has its own Gaussian noise, so W is binomial with rate Phi(mu/2).

    One guess about one canary attains the bound.
    """
    right = stats.norm.cdf(mu / 2)
    for correct in range(1, guesses + 1):
        attained = stats.binom.sf(correct - 1, guesses, right)
        bound = gaussian_guessing_probability(correct, guesses, canaries, mu)
        assert attained <= bound * (1 + 1e-9)
        assert canaries > 1 or math.isclose(attained, bound, rel_tol=2e-3)


def gaussian_scores(mu):
    return lambda included, rng: included * mu + rng.normal(size=included.size)


@pytest.mark.slow
def test_gaussian_claims_raise_no_false_alarms_and_too_little_noise_is_refuted():
    """Of 20 seeds at most 10 may alarm; at the rate .1, more do with probability below 1e-6."""
    claim = dpa.audit.GaussianPrivacy(1.0)
    options = {"guesses": 40, "confidence": 0.9}
    found = [
        verify_with_canaries(gaussian_scores(1.0), 200, claim, rng=seed, **options).refuted
        for seed in range(20)
    ]
    assert sum(found) <= stats.binom.ppf(1 - 1e-6, 20, 0.1)
    wrong = verify_with_canaries(gaussian_scores(4.0), 200, claim, rng=0, **options)
    assert wrong.refuted and 1.0 < wrong.mu <= 4.0 and "mu >= " in str(wrong)


def test_where_nearly_all_guesses_are_right_the_curve_tells_more_than_any_epsilon():
    mu, (correct, guesses, canaries) = 1.0, (100, 100, 1_000)
    by_epsilon = min(
        guessing_probability(correct, guesses, canaries, e, gaussian_delta(1 / mu, e))
        for e in np.linspace(0.05, 6.0, 100)
    )
    assert gaussian_guessing_probability(correct, guesses, canaries, mu) < 0.5 * by_epsilon


@pytest.mark.parametrize("mu", [20.0, 100.0, 1e4])
def test_so_large_a_mu_that_delta_rounds_to_one_excludes_nothing(mu):
    assert chance_along_curve(60, 100, 100, mu) == 1.0
