"""Helpers of the claims on Kuru et al. (2022), and faults that the claims must detect."""

import json
import math
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpanalysis import losses, privacy, theory
from dpanalysis.papers.accelerated import functions, heavy_ball, nesterov
from dpanalysis.papers.accelerated import printed as accelerated_printed
from dpanalysis.papers.accelerated import privacy as accelerated_privacy
from dpanalysis.papers.tools import batch_means
from dpanalysis.privacy import mechanisms
from dpanalysis.privacy.accounting.sampling import Poisson
from dpanalysis.privacy.events import Laplace, Repeated, Sampled
from figures import _published

seeds = st.integers(0, 2**32 - 1)


def test_the_function_on_which_the_heavy_ball_method_cycles_is_in_the_class():
    """By the interpolation condition of the points, and by definition at random ones."""
    mu, L = heavy_ball.MU, heavy_ball.SMOOTHNESS
    beta = float(theory.nesterov_momentum(1.0 / L, mu))
    points, corners = heavy_ball.rolling(1.0 / L, beta, mu, L, 8)
    inner = np.array([heavy_ball.nearest(x, corners) for x in points])
    np.testing.assert_allclose(inner, corners, atol=1e-12)
    random = np.random.default_rng(0)
    x = np.append(points, 3.0 * (random.standard_normal((40, 2)) @ [1.0, 1j]))
    inner = np.array([heavy_ball.nearest(each, corners) for each in x])
    for each, near in zip(x, inner):  # the angle at the projection is obtuse
        assert (((each - near).conjugate() * (corners - near)).real <= 1e-12).all()
    values = 0.5 * L * np.abs(x) ** 2 - 0.5 * (L - mu) * np.abs(x - inner) ** 2
    slopes = mu * x + (L - mu) * inner
    for i in range(x.size):
        bend = values - values[i] - (slopes[i].conjugate() * (x - x[i])).real
        size = 0.5 * np.abs(x - x[i]) ** 2
        assert (mu * size <= bend + 1e-9).all() and (bend <= L * size + 1e-9).all()
        # Of S_{mu,L} (Taylor, Hendrickx and Glineur 2017), for x_i and the points of the cycle.
        moved, turned = x - x[i], slopes - slopes[i]
        apart = np.abs(turned) ** 2 / L + mu * np.abs(moved) ** 2
        apart -= 2.0 * mu / L * (turned.conjugate() * moved).real
        assert (0.5 * apart / (1.0 - mu / L) <= bend + 1e-9).all()
    assert heavy_ball.nearest(0j, corners) == 0.0  # the minimizer, F* = 0
    for T in (1, 7, 999):
        assert heavy_ball.gap_of_rolling(1.0 / L, beta, mu, L, T) == pytest.approx(1.0)
    assert heavy_ball.gap_of_rolling(0.5 / L, 0.3, mu, L, 2000) < 1e-3


@given(seeds, st.floats(1e-3, 0.95), st.integers(1, 3))
def test_random_functions_are_in_the_class(seed, mu, d):
    """mu ||x - y||^2 <= <g(x) - g(y), x - y>, co-coercivity at L = 1, gradients by differences."""
    random = np.random.default_rng(seed)
    function = functions.random_smooth(random, mu, 1.0, d)
    x, y = random.standard_normal((2, 200, d)) * np.exp(random.uniform(-3, 3, (2, 200, 1)))
    g, h = function.gradient(x), function.gradient(y)
    inner, size = ((g - h) * (x - y)).sum(1), ((x - y) ** 2).sum(1)
    assert (inner >= mu * size * (1 - 1e-9)).all()
    excess = ((g - h - mu * (x - y)) ** 2).sum(1)
    assert (excess <= (1 - mu) * (inner - mu * size) + 1e-9 * size).all()
    assert not function.gradient(np.zeros(d)).any() and function.value(np.zeros(d)) == 0.0
    step = 1e-6 * random.standard_normal((200, d))
    difference = function.value(x + step) - function.value(x - step)
    np.testing.assert_allclose(difference, 2 * (g * step).sum(1), atol=1e-9)


@given(seeds, st.booleans())
def test_paths_and_moments_agree_on_parabolas(seed, restart):
    random = np.random.default_rng(seed)
    steps = functions.nesterov_steps(random.uniform(0.1, 1.0, 6), 0.2)
    steps[3] = steps[3]._replace(restart=restart)
    steps[1] = steps[1]._replace(lookahead=0.0)
    parabola = functions.Smooth(0.2, np.array([[np.sqrt(0.8)]]), np.array([0]), np.ones(1))
    noises = random.standard_normal((6, 1))
    paths = functions.expected_gaps(parabola, steps, np.array([1.5]), noises)
    moments = functions.quadratic_gaps([1.0], steps, 1.5, noises[:, 0] ** 2)
    np.testing.assert_allclose(paths, moments, rtol=1e-12)


@given(seeds)
def test_laplace_losses_are_extreme_at_the_kinks(seed):
    random = np.random.default_rng(seed)
    values, other = random.standard_normal((2, 4, 2))
    other[1:] = values[1:]
    exact = accelerated_privacy.laplace_loss(values, other, 2, 0.5)
    at = random.uniform(-4, 4, (2000, 2))
    laws = [
        accelerated_privacy.log_density(at, batch_means(data, 2), 0.5) for data in (values, other)
    ]
    assert np.abs(laws[0] - laws[1]).max() <= exact * (1 + 1e-12)


@pytest.mark.slow
@given(seeds, st.sampled_from([1.0, 0.5, 1e-3]))
def test_duality_bounds_every_division(seed, ratio):
    """The bound holds for every guess, and is tight for the best one."""
    random = np.random.default_rng(seed)
    weights, epsilon, _, _ = nesterov.random_division(random)
    n = 10**6
    best = theory.allocate_epsilon(weights, epsilon, n, int(ratio * n))

    def cost(shares):
        return float(weights @ nesterov.base_loss(shares, ratio) ** -2.0)

    guess = random.dirichlet(np.ones(weights.size)) * epsilon + 1e-6 * epsilon
    assert nesterov.least_cost(weights, epsilon, ratio, guess) <= cost(best) * (1 + 1e-9)
    bound = nesterov.least_cost(weights, epsilon, ratio, best)
    assert bound == pytest.approx(cost(best), rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(("T", "delta"), [(10, 1e-3), (1000, 1e-5)])
def test_composed_laplace_noise_agrees_with_the_accountant(T, delta):
    """Poisson sampling has the same pair, and its accountant takes the worse direction."""
    step = Sampled(Poisson(0.01), [Laplace(1.0, 1.0)])
    expected = privacy.epsilon([Repeated(step, T)], delta, privacy.ADD_OR_REMOVE_ONE)
    ours = [
        accelerated_privacy.composed_epsilon(1.0, 0.01, T, delta, reverse)
        for reverse in (False, True)
    ]
    assert max(ours) == pytest.approx(expected, rel=2e-3)


def test_composed_responses_of_one_release():
    """delta = p - e^epsilon (1 - p) of one randomized response."""
    p = 1 / (1 + math.exp(-2.0))
    delta = p - math.exp(1.2) * (1 - p)
    assert accelerated_privacy.response_epsilon(2.0, 1, delta) == pytest.approx(1.2)


def test_points_of_the_figures_are_the_published_ones():
    path = Path(os.environ.get("DPANALYSIS_DATA") or ".") / "published_curves_001.json"
    if not path.is_file():
        pytest.skip("set DPANALYSIS_DATA to the folder of published_curves_001.json")
    figures = json.loads(path.read_text())["figures"]
    rates = {
        (panel["alpha"], abs(beta), rate)
        for panel in figures["quad_rho_vs_beta.eps"]["panels"]
        for beta, rate in panel["curves"][0]["points"]
    }
    assert {tuple(point) for point in heavy_ball.FIGURE_1.tolist()} <= rates
    for panel in figures["errors_n_100000_m_100000_c_10_various_T.eps"]["panels"]:
        if (ends := nesterov.FIGURE_3.get(panel["title"])) is not None:
            assert ends == {curve["T"]: curve["final"]["log10"] for curve in panel["curves"]}
    for panel in figures["MASG_optimum_b_vs_iter.eps"]["panels"][:2]:
        curve = panel["curves"][0]
        assert nesterov.FIGURE_2[curve["T"]] == dict(curve["stage_edges"])


def test_best_gaps_are_those_of_the_published_ends():
    for m, table in ((1000, nesterov.FIGURE_4), (100_000, nesterov.FULL_DATA)):
        for (name, c), gaps in table.items():
            ends = _published.FINALS[m, c]
            algorithms = (name, f"{name}-opt")
            assert gaps == tuple(min(gap for _, gap in ends[each]) for each in algorithms)


def scaled(function, factor):
    """Return the function with its result, or the last part of it, multiplied."""

    def wrong(*args, **options):
        result = function(*args, **options)
        return (*result[:-1], result[-1] * factor) if isinstance(result, tuple) else result * factor

    return wrong


def uniform(weights, epsilon, n=None, m=None):
    return np.full(len(weights), epsilon / len(weights))


def longer_steps(step_size, momentum):
    return REAL_SYSTEM(1.05 * step_size, momentum)


REAL_SYSTEM = theory.heavy_ball_system


def printed_horizon(T, step_size, stages, mu, L, *rest):
    recursion = accelerated_printed.printed_recursion(
        theory.nesterov_recursion(T, step_size, mu, L)
    )
    bounds = theory.horizon_bounds(recursion, *rest)
    return int(bounds.argmin()) + 1, float(bounds.min())


FAULTS = [
    ("001-1", privacy, "laplace_epsilon", scaled(privacy.laplace_epsilon, 0.99)),
    ("001-1", privacy, "amplify_without_replacement",
     scaled(privacy.amplify_without_replacement, 0.99)),
    ("001-2", theory, "heavy_ball_system", longer_steps),
    ("001-4", theory, "noise_second_moment", scaled(theory.noise_second_moment, 0.9)),
    ("001-5", theory, "subsampling_variance", scaled(theory.subsampling_variance, 0.9)),
    ("001-6", theory.Certificate, "noise_coefficient", property(lambda self: 1e-3)),
    ("001-7", theory, "heavy_ball_stationary_gap", scaled(theory.heavy_ball_stationary_gap, 1.01)),
    ("001-10", theory, "nesterov_weights", lambda *a: (0.3 * WEIGHTS(*a)[0], WEIGHTS(*a)[1])),
    ("001-11", theory, "nesterov_weights", scaled(theory.nesterov_weights, 1.01)),
    ("001-12", theory, "allocate_epsilon", uniform),
    ("001-12", theory, "nesterov_weights", lambda T, *at: (1.0, np.ones(T))),
    ("001-13", theory, "laplace_scales", scaled(theory.laplace_scales, 0.99)),
    ("001-14", theory, "allocate_epsilon", uniform),
    ("001-14", theory, "nesterov_weights", lambda T, *at: (1.0, np.ones(T))),
    ("001-15", theory, "multistage_weights",
     lambda *a: (0.2 * STAGES(*a)[0], 0.0 * STAGES(*a)[1])),
    ("001-17", losses.Logistic, "lipschitz", 0.9),
    ("001-18", losses.Logistic, "smoothness", 0.2),
    ("001-19", mechanisms, "laplace",
     lambda random, scale, size: random.laplace(0.0, scale / math.sqrt(2.0), size)),
    ("001-20", privacy, "epsilon", scaled(privacy.epsilon, 0.8)),
    ("001-21", theory, "heavy_ball_rate", theory.nesterov_rate),
    ("001-22", theory, "multistage_weights", accelerated_printed.published_multistage_weights),
    ("001-23", theory, "best_horizon", printed_horizon),
    ("001-26", heavy_ball, "rolling", lambda *at: rolling(at[0], 0.4, *at[2:])),
    ("001-26", theory, "heavy_ball_certificate",
     lambda *at: CERTIFIED(at[0], 0.5 * at[1], *at[2:])),
    ("001-30", theory, "heavy_ball_stationary_gap", scaled(theory.heavy_ball_stationary_gap, 1.01)),
    ("001-39", heavy_ball, "tuned_gap", lambda T, c_w, pairs: 1.0),
    ("001-31", theory, "heavy_ball_optimal_momentum", lambda steps, mu, L: 0.5 + 0.0 * steps),
    ("001-32", theory, "noise_second_moment", scaled(theory.noise_second_moment, 0.5)),
    ("001-36", accelerated_privacy, "loss_of_iterates", lambda random, beta, n: 1.0 - 0.1 * beta),
    ("001-37", heavy_ball, "noise_term", lambda *at: 0.0),
    ("001-35", nesterov, "laplace_cost", lambda response, mixing, scales: 1.0),
    ("001-34", theory, "allocate_gaussian", scaled(theory.allocate_gaussian, 1.01)),
]  # fmt: skip
rolling, CERTIFIED = heavy_ball.rolling, theory.heavy_ball_certificate
WEIGHTS, STAGES = theory.nesterov_weights, theory.multistage_weights


@pytest.mark.parametrize(("name", "home", "attribute", "fault"), FAULTS)
def test_a_fault_in_the_code_is_found(name, home, attribute, fault, monkeypatch, fails):
    monkeypatch.setattr(home, attribute, fault)
    assert fails(name)
