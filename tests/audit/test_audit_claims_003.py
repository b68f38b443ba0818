"""Helpers of the claims on Gao and Wright (2023), and faults that the claims must detect."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from dpanalysis import privacy, theory
from dpanalysis.papers.second_order import convergence, experiments
from dpanalysis.papers.second_order import privacy as second_order
from dpanalysis.theory import second_order_data as theory_of_data

seeds = st.integers(0, 2**32 - 1)


def test_stopping_against_simulation():
    """False alarm below 1e-8: six standard errors in each of two comparisons."""
    shift, barriers = 0.7, np.array([0.8, 0.3, 1.5, -math.inf])
    epsilons = np.array([0.5, 0.6, 0.9, 1.2])
    random = np.random.default_rng(0)
    size = 400_000
    losses = np.cumsum(0.5 * shift**2 + shift * random.normal(size=(size, 4)), axis=1)
    last = np.argmax(losses >= barriers, axis=1)
    reached = losses[np.arange(size), last]
    gains = np.maximum(0.0, -np.expm1(epsilons[last] - reached))
    delta = second_order.stopping_delta(shift, barriers, epsilons)
    assert abs(gains.mean() - delta) < 6.0 * gains.std() / math.sqrt(size)
    moments = np.exp(0.5 * reached)  # order 1.5
    exact = math.exp(0.5 * second_order.stopping_divergence(shift, barriers, 1.5))
    assert abs(moments.mean() - exact) < 6.0 * moments.std() / math.sqrt(size)


def test_a_run_that_never_stops_early_is_a_gaussian_release():
    barriers = np.array([50.0] * 8 + [-math.inf])
    delta = second_order.stopping_delta(0.4, barriers, np.full(9, 0.9))
    assert delta == pytest.approx(privacy.gaussian_delta(1.0 / 1.2, 0.9), rel=1e-9)
    assert second_order.stopping_divergence(0.4, barriers, 3.0) == pytest.approx(1.5 * 1.44)


def test_epsilon_of_batches_as_in_appendix_b_1():
    """Theorem B.4 for Gaussian noise written out: 20 answers on a tenth of the records."""
    orders = np.arange(2, 257)
    for noise in (30.0, 50.0, 100.0):
        costs = []
        for a in orders:
            j = np.arange(3, a + 1)
            terms = 2.0 * 0.1**j * special.binom(a, j) * np.exp(0.5 * (j - 1.0) * j / noise**2)
            least = min(4.0 * math.expm1(noise**-2.0), 2.0 * math.exp(noise**-2.0))
            total = 0.01 * special.binom(a, 2) * least + terms.sum()
            cost = min(math.log1p(total) / (a - 1.0), 0.5 * a / noise**2)  # or not amplified
            costs.append(20.0 * cost + math.log(1e6) / (a - 1.0))
        assert second_order.spent(noise, 10, 1000) == pytest.approx(min(costs))


def test_curvature_of_the_loss_printed_in_E_3():
    """With the penalty, lambda = 1e-3, by finite differences."""
    m = np.linspace(-6.0, 6.0, 4001)
    loss = special.expit(m) + 0.0005 * m**2
    curvature = np.diff(loss, 2) / (m[1] - m[0]) ** 2
    assert experiments.printed_curvature(1.0) == pytest.approx(curvature.min(), abs=1e-5)


@pytest.mark.parametrize("log_power", [1, 2])
def test_noise_of_the_gradient_at_the_printed_n_min(log_power):
    """T = 2, zeta = .5: half of the required bound, the logarithm with and without its root."""
    x = np.random.default_rng(3).normal(size=(200_000, 5))
    limit = 0.5 * math.sqrt(10.0 * math.log(4.0) ** log_power)
    found = 4.0 * float((np.linalg.norm(x, axis=1) > limit).mean())
    chance = convergence.gradient_exceeds(5, 4.0, log_power, 0.5)
    assert chance == pytest.approx(found, abs=0.03)
    assert chance > 1.5 > 1.0 > convergence.gradient_exceeds(5, 4.0, 1, 1.0)


def test_the_printed_n_min_has_a_reserve_for_twice_the_noise_unless_few_steps_are_taken():
    """Noise drawn in the d of Covertype; (9) is at sqrt(2 d ln(T/zeta)), here for half of rho's."""
    norms = np.linalg.norm(np.random.default_rng(4).normal(size=(100_000, 54)), axis=1)
    for odds, power, beyond in ((4000.0, 1, 0.0), (4.0, 1, 0.958), (4.0, 2, 0.556)):
        limit = math.sqrt(108.0 * math.log(odds) ** power)
        assert (2.0 * norms > limit).mean() == pytest.approx(beyond, abs=0.008)
        chance = convergence.gradient_exceeds(54, odds, power, 0.5) / odds
        assert chance == pytest.approx(beyond, abs=1e-3)
    assert (2.0 * norms > theory.gradient_noise_norm(54, 1.0, 1.0 / 4000.0)).mean() > 0.95


def test_cost_of_what_the_next_iterate_shows():
    """Integrate both branches of a step, alpha = 2, sigma = .5, s = .01, eps_g at 1.7."""
    s = 0.01
    x, dx = np.linspace(-6.0, 7.0, 130_001, retstep=True)
    q, p = (np.exp(-2.0 * (x - mean) ** 2) * math.sqrt(2.0 / math.pi) for mean in (0.0, 1.0))
    mixed = 1.0 - s + s * p / q
    inside = x > 1.7
    low, high = (float((law * inside).sum() * dx) for law in (q, p))
    step = float((mixed**2 * q * ~inside).sum() * dx)
    turn = low * float(((1.0 - s + s * high / low * p / q) ** 2 * q).sum() * dx)
    bound = 2.0 * math.log1p(1e-4 * min(4.0 * math.expm1(4.0), 2.0 * math.exp(4.0)))
    found = math.log(step + turn) / bound
    assert second_order.shown_quotient(0.5, 100, 1.7) == pytest.approx(found, rel=1e-3)


def test_delta_at_the_epsilon_of_a_drawn_iteration_bound():
    """Draw T and one Gaussian loss for its answers. Six standard errors."""
    random = np.random.default_rng(8)
    T = np.maximum(1, np.ceil(18.0 + 4.7 * random.normal(size=1_000_000)))
    T = T[T <= 50]
    levels = np.arange(51.0)
    masses = [np.diff(special.ndtr((levels - f) / 4.7)) for f in (18.0, 19.0)]
    losses = np.log(masses[0] / masses[1])[T.astype(int) - 1]
    losses[T == 1] = np.log(special.ndtr(-17.0 / 4.7) / special.ndtr(-18.0 / 4.7))
    square = 0.34 * T / 18.0
    losses += 0.5 * square + np.sqrt(square) * random.normal(size=T.size)
    multipliers = 1.0 / np.sqrt(4.7**-2.0 + 0.34 * np.arange(1, 51) / 18.0)
    epsilons = np.array([privacy.gaussian_epsilon(noise, 0.01) for noise in multipliers])
    gains = np.maximum(0.0, -np.expm1(epsilons[T.astype(int) - 1] - losses))
    found = second_order.drawn_bound_delta(0.01)
    assert abs(gains.mean() - found) < 6.0 * gains.std() / 1000.0


@pytest.mark.parametrize("last", [False, True])
def test_answers_that_reveal_a_secret_iteration_bound(last):
    """Runs on constant losses, f(w0) = 0: they do not end, or end near w0. Six standard errors."""
    random = np.random.default_rng(7)
    runs = 1_000_000
    T = np.maximum(1, np.ceil(1000.0 * np.abs(random.normal(size=runs)) / math.sqrt(0.1)))
    if last:
        early = T[T <= 20]
        steps = [random.normal(size=(int(t), 54)) * math.sqrt(t) for t in early]
        hits = sum(float(np.sum(each.sum(axis=0) ** 2)) <= 60.0 for each in steps)
    else:
        ends = special.erf(1.6 / np.sqrt(2.0 * T))  # P(a noisy gradient is within eps_g)
        hits = int((random.geometric(ends) > T).sum())
    chance = second_order.returned_delta(0.1, last)
    assert abs(hits - runs * chance) < 6.0 * math.sqrt(runs * chance)


@given(seeds, st.booleans())
def test_landscapes_have_their_derivatives_and_constants(seed, cubic):
    random = np.random.default_rng(seed)
    d = int(random.integers(1, 4))
    f = convergence.waves(random, d, cubic)
    w, step = random.normal(size=d), 1e-5 * random.normal(size=d)
    change = f.value(w + step) - f.value(w - step)
    assert change == pytest.approx(2.0 * f.gradient(w) @ step, abs=1e-9)
    turn = f.gradient(w + step) - f.gradient(w - step)
    np.testing.assert_allclose(turn, 2.0 * f.hessian(w) @ step, atol=1e-8)
    far = w + random.normal(size=d)
    distance = np.linalg.norm(far - w)
    assert np.linalg.norm(f.gradient(far) - f.gradient(w)) <= f.G * distance * (1 + 1e-9)
    bend = np.linalg.norm(f.hessian(far) - f.hessian(w), 2)
    assert bend <= f.M * distance * (1 + 1e-9)


@given(seeds)
def test_sigmoid_curvature_against_differences(seed):
    """Replacing a row by zeros changes the Hessian by the second derivative of the loss."""
    random = np.random.default_rng(seed)
    w = random.normal(size=1)
    z, h = float(w[0]), 1e-3
    second = (special.expit(-z - h) - 2.0 * special.expit(-z) + special.expit(-z + h)) / h**2
    got = second_order.sigmoid_change(w, np.ones(1), np.zeros(1), 1.0, 1.0)
    assert got == pytest.approx(abs(second) / second_order.SIGMOID_CURVATURE, abs=1e-5)


@given(seeds, st.integers(1, 8))
def test_lanczos_is_the_best_of_the_krylov_space(seed, steps):
    random = np.random.default_rng(seed)
    spectrum, start = random.normal(size=9), random.normal(size=9)
    krylov = np.linalg.qr(spectrum[:, None] ** np.arange(steps) * start[:, None])[0]
    best = np.linalg.eigvalsh(krylov.T @ (spectrum[:, None] * krylov))[0]
    gap = best - spectrum.min()
    shares = [
        convergence.lanczos_misses(spectrum, steps, accuracy, start[None, :])
        for accuracy in (gap - 1e-5, gap + 1e-5)
    ]
    assert shares == [1.0, 0.0]


def test_one_iteration_of_lanczos_is_too_few_where_the_lemma_is_rounded_down():
    """One iteration returns 1 - 2 w_1, w_1 the squared first entry of the start, Beta(1/2, 3/2)."""
    spectrum, ratio, failure = np.array([-1.0, 1.0, 1.0, 1.0]), 0.399, 0.6811
    starts = np.random.default_rng(6).normal(size=(200_000, 4))
    missed = convergence.lanczos_misses(spectrum, 1, 0.5 / ratio, starts)
    assert missed == pytest.approx(special.betainc(0.5, 1.5, 1.0 - 0.25 / ratio), abs=0.006)
    assert missed > 1.05 * failure
    number = 1.0 + 0.5 * math.log(2.75 * 4 / failure**2) * math.sqrt(ratio)
    assert 1.9999 < number < 2.0 == theory.lanczos_iterations(4, ratio, 1.0, failure)
    assert convergence.lanczos_misses(spectrum, 2, 0.5 / ratio, starts[:1000]) < 0.01


def half_a_batch(*given, batch=theory.second_order_batch):
    return batch(*given) // 2


entry = convergence.entry
# Faults by which a claim states slightly more than is true.
RETURNED = ("2NS", "gradient", "eigenvalue")
WRONG = [
    ("003-1", second_order, "LOGISTIC_CURVATURE", 0.249),
    ("003-1", second_order, "SIGMOID_CURVATURE", 0.0962),
    (
        "003-3",
        second_order,
        "gaussian_epsilon",
        lambda s, d: privacy.gaussian_epsilon(1.05 * s, d),
    ),
    (
        "003-4",
        second_order,
        "gaussian_delta",
        lambda s, e: privacy.gaussian_delta(1.01 * s, e),
    ),
    ("003-5", second_order, "unit", lambda x: 1.01 * x / max(1.0, float(np.linalg.norm(x)))),
    ("003-7", second_order, "unit", lambda x: 1.01 * x / max(1.0, float(np.linalg.norm(x)))),
    ("003-8", theory, "curvature_roots", lambda c, c2, c_H: (0.0, 3.0 * (1.0 - c - c_H))),
    ("003-9", theory, "gradient_noise_norm", lambda d, s, eta: s * math.sqrt(d - math.log(eta))),
    ("003-9", theory, "hessian_noise_norm", lambda d, s, eta: s * math.sqrt(2.0 * d)),
    (
        "003-10",
        second_order,
        "approximation",
        lambda order, noise, s: 0.2 * order * (s / noise) ** 2,
    ),
    ("003-11", theory, "lanczos_iterations", lambda d, U, eps, failure: 13),
    ("003-11", convergence, "short_decreases", lambda *at: (1.0, 3.0 * at[1] ** 3 / at[3] ** 2)),
    (
        "003-12",
        experiments,
        "penalty_curvature",
        lambda w: (2 - 6.1 * w**2) / (1 + w**2) ** 3,
    ),
    ("003-15", theory, "second_order_constants", lambda R, s: (0.25 + 2 * s, 4.66 * s, 1, 0.25)),
    ("003-16", theory, "search_slack", lambda i, eta: 3.9 * math.log(i / 1.5 / eta)),
    ("003-16", convergence, "queries", lambda b, beta: -3),
    ("003-16", convergence, "slack_of_16", lambda **at: 1.01),
    ("003-30", convergence, "returned", lambda *at, **more: dict.fromkeys(RETURNED, 1.01)),
    (
        "003-33",
        convergence,
        "decrease_of_failure",
        lambda *at, s: {"gradient": 0.9, "curvature": 2},
    ),
    ("003-33", theory, "curvature_roots", lambda c, c2, c_H: (0.1, 0.5)),
    ("003-17", theory, "iteration_bound", lambda gap, d: max(1, math.floor(gap / d))),
    ("003-18", theory, "second_order_batch", half_a_batch),
    ("003-19", second_order, "rdp_gaussian", lambda a, s: 0.45 * np.asarray(a) / s**2),
    ("003-20", second_order, "advanced_noise", lambda epsilon, delta, T, s: 0.5),
    ("003-31", second_order, "gaussian_delta", lambda std, epsilon: 1.01),
    ("003-21", theory_of_data, "hessian_noise_norm", lambda d, s, eta: 0.5 * s),
    ("003-23", convergence, "with_noise_of_8", lambda size, eps_H: eps_H**-4.5),
    ("003-29", convergence, "entry", lambda *at: 2.0 * entry(*at)),
    ("003-29", convergence, "entry", lambda *at: 0.5 * entry(*at)),
    ("003-36", experiments, "gradient_exceeds", lambda d, odds, power, share: 0.99),
    ("003-36", experiments, "gradient_exceeds", lambda d, odds, power, share: 1.01),
    ("003-35", second_order, "response_cost", lambda excess, epsilon: 0.51 * epsilon**2),
    ("003-37", experiments, "over_required", lambda R, *at: 2.2 / R),
    ("003-34", second_order, "spent", lambda noise, T, m: 0.01 * noise),
    ("003-34", second_order, "batch_multipliers", lambda *at: ([0.9], ())),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "module", "attribute", "wrong"), WRONG)
def test_a_claim_fails_where_it_is_wrong(monkeypatch, fails, name, module, attribute, wrong):
    monkeypatch.setattr(module, attribute, wrong)
    assert fails(name)
