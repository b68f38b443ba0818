"""Draws with replacement: enumerated batches of tiny data, and independent composition."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import fft, optimize, special, stats

import dpanalysis as dpa
from dpanalysis import privacy
from dpanalysis.privacy.accounting import with_replacement as module
from dpanalysis.privacy.accounting.pairs import Pair
from dpanalysis.privacy.accounting.with_replacement import copies, gaussian_profile
from dpanalysis.privacy.events import Gaussian, Laplace, Pure, Repeated, Sampled
from dpanalysis.privacy.mechanisms import random_source

ADD, REPLACE = "add_or_remove_one", "replace_one"
LOSSES = np.array([0.0, 0.01, 0.1, 0.4, 1.0, 2.0])
GRID = np.linspace(-45.0, 45.0, 9001)  # the range of the sums and 10 deviations of the noise
CELL = GRID[1] - GRID[0]


def law_of_the_sum(records, m):
    """Return the k distinct sums over all n^m batches, shape (k, d), and their probabilities."""
    rows = np.asarray(records, dtype=np.float64).reshape(len(records), -1)
    batches = np.array(list(itertools.product(range(len(rows)), repeat=m)))
    sums, which = np.unique(rows[batches].sum(axis=1).round(9), axis=0, return_inverse=True)
    return sums, np.bincount(which.ravel()) / len(batches)


def answer(records, m, noise="gaussian", spread=1.0):
    """Density of the noisy sum of scalar records on the grid, times the cell."""
    sums, chances = law_of_the_sum(records, m)
    away = np.abs(GRID[:, None] - sums[:, 0]) / spread
    density = np.exp(-0.5 * away**2 if noise == "gaussian" else -away) @ chances
    return density / (spread * (math.sqrt(2 * math.pi) if noise == "gaussian" else 2.0)) * CELL


def hockey_stick(p, q, losses=LOSSES):
    return np.maximum(p - np.exp(losses)[:, None] * q, 0.0).sum(axis=1)


def neighbours(n, values=(-1.0, 0.0, 1.0)):
    """Yield all pairs of data sets with entries in ``values`` that differ in the first record."""
    for others in itertools.combinations_with_replacement(values, n - 1):
        for own, other in itertools.combinations(values, 2):
            yield (own, *others), (other, *others)


# One answer


@pytest.mark.parametrize(("n", "m"), [(2, 1), (2, 2), (3, 2), (3, 3), (5, 3)])
@pytest.mark.parametrize("std", [0.7, 1.5, 4.0])
def test_every_pair_of_tiny_data_sets_is_covered_and_the_worst_attains(n, m, std):
    """Clip norm 1: one record moves the sum by up to 2. Integrates over all n^m batches."""
    bound = gaussian_profile(LOSSES, n, m, 2.0 / std)
    worst = np.zeros(LOSSES.size)
    for one, two in neighbours(n):
        p, q = answer(one, m, spread=std), answer(two, m, spread=std)
        worst = np.maximum(worst, np.maximum(hockey_stick(p, q), hockey_stick(q, p)))
    assert (worst <= bound * (1 + 1e-5) + 1e-7).all()
    # With all other records opposite to one of the two the bound is nearly attained, except
    # where the loss is above that of one copy at the common threshold.
    assert (bound <= 1.05 * worst)[3.0 / std >= LOSSES].all()


def test_copies_that_are_not_listed_are_a_loss_without_bound(monkeypatch):
    """Very little noise identifies every batch that has the record, however often."""
    monkeypatch.setattr(module, "_NEGLIGIBLE", 1e-2)
    assert len(copies(40, 20)) < 6
    drawn = 1.0 - (1.0 - 1.0 / 40.0) ** 20
    assert gaussian_profile([0.0], 40, 20, 30.0)[0] >= drawn * (1.0 - 1e-9)


@pytest.mark.parametrize(
    "mutant",
    [
        lambda n, m, mu: Pair(mu=mu, fraction=m / n, poisson=True).remove(LOSSES),
        lambda n, m, mu: Pair(mu=mu, fraction=m / n).replace(LOSSES),
        lambda n, m, mu: gaussian_profile(LOSSES, n, m, 0.5 * mu),
        lambda n, m, mu: gaussian_profile(LOSSES, n, m, mu * math.sqrt(0.5)),
        lambda n, m, mu: sum(
            chance * privacy.gaussian_delta(1 / mu, LOSSES) for chance in copies(n, m)
        ),
    ],
    ids=["as Poisson", "as without", "k times C, not 2C", "as variances", "one copy only"],
)
def test_wrong_accounts_are_caught(mutant):
    """Enumeration on one pair of data sets refutes wrong bounds."""
    n, m, std = 3, 3, 1.5
    p, q = answer((1.0, -1.0, -1.0), m, spread=std), answer((-1.0, -1.0, -1.0), m, spread=std)
    attained = hockey_stick(p, q)
    assert (attained <= gaussian_profile(LOSSES, n, m, 2.0 / std) * (1 + 1e-6)).all()
    assert (attained > mutant(n, m, 2.0 / std) * 1.02).any()


@given(
    m=st.integers(1, 3),
    angles=st.lists(st.floats(0.0, 2 * math.pi), min_size=4, max_size=4),
    norms=st.lists(st.floats(0.0, 1.0), min_size=4, max_size=4),
    std=st.floats(0.6, 3.0),
)
@settings(max_examples=25)
def test_records_in_the_plane_are_covered(m, angles, norms, std):
    """Records anywhere in the unit disc: opposite directions are the worst case."""
    rows = np.array(norms)[:, None] * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    axis = np.linspace(-m - 6.0 * std, m + 6.0 * std, 241)
    cell = (axis[1] - axis[0]) ** 2 / (2 * math.pi * std**2)

    def law(records):
        sums, chances = law_of_the_sum(records, m)
        x = np.exp(-0.5 * ((axis[:, None] - sums[:, 0]) / std) ** 2) * chances
        y = np.exp(-0.5 * ((axis[:, None] - sums[:, 1]) / std) ** 2)
        return (x @ y.T).ravel() * cell

    p, q = law(rows[[0, 2, 3]]), law(rows[[1, 2, 3]])
    bound = gaussian_profile(LOSSES, 3, m, 2.0 / std)
    for worst in (hockey_stick(p, q), hockey_stick(q, p)):
        assert (worst <= bound * (1 + 1e-3) + 1e-5).all()


def mixture_delta(loss, n, m, mu):
    """H(sum_k Bin(k; m, 1/n) N(k mu, 1), N(0, 1)): the threshold by a root search."""
    k = np.arange(m + 1)
    law = stats.binom(m, 1.0 / n)
    likely = law.pmf(k) > 0.0
    k, log_law = k[likely], law.logpmf(k[likely])

    def excess(x):
        return special.logsumexp(log_law + k * mu * x - 0.5 * (k * mu) ** 2) - loss

    x = optimize.brentq(excess, -60.0, 60.0 + 30.0 / mu, xtol=1e-13)
    return np.exp(log_law) @ special.ndtr(k * mu - x) - math.exp(loss) * special.ndtr(-x)


@pytest.mark.parametrize(
    ("n", "m", "mu", "rel"),
    [
        (60_000, 512, 1.25, 1e-9),
        (60_000, 512, 2.5, 3e-5),
        (100, 20, 1.0, 2e-3),
        (1000, 1, 1.0, 1e-8),
    ],
)
def test_the_bound_is_that_of_the_mixture_where_batches_are_small(n, m, mu, rel):
    for loss in (0.1, 0.3, 1.0):
        exact = mixture_delta(loss, n, m, mu)
        assert exact * (1 - 1e-9) <= gaussian_profile(loss, n, m, mu) <= exact * (1 + rel) + 1e-18


@given(
    n=st.integers(2, 10**6),
    part=st.floats(0.0, 1.0),
    mu=st.floats(0.01, 5.0),
    loss=st.floats(0.0, 5.0),
)
def test_between_the_mixture_and_the_theorem_of_balle_barthe_gaboardi(n, part, mu, loss):
    """Theorem 10 there: weights in proportion to the law of the copies; m at most 200."""
    m = max(1, round(part * min(n, 200)))
    law = np.array(copies(n, m))
    rate = -math.expm1(m * math.log1p(-1.0 / n))
    k = np.arange(1, law.size + 1)
    theorem = law @ privacy.gaussian_delta(1 / (k * mu), math.log1p(math.expm1(loss) / rate))
    bound = float(gaussian_profile(loss, n, m, mu))
    assert mixture_delta(loss, n, m, mu) * (1 - 1e-9) - 1e-15 <= bound
    assert bound <= theorem * (1 + 1e-9) + 1e-15


def test_profiles_fall_and_are_convex_in_the_exponential():
    losses = np.log(np.linspace(1.0, 8.0, 2001))
    for n, m, mu in [(50, 50, 0.3), (1000, 20, 1.0), (3, 2, 3.0)]:
        profile = gaussian_profile(losses, n, m, mu)
        assert (np.diff(profile) <= 0.0).all() and (np.diff(profile, 2) >= -1e-15).all()


# Composition


def mixture_epsilon(n, m, mu, steps, delta, width=5e-4):
    """Epsilon of the mixture against N(0, 1), composed by Fourier transform, both directions."""
    k = np.arange(12)
    log_law = stats.binom.logpmf(k, m, 1.0 / n)
    x = np.linspace(-10.0, 14.0 + 8 * mu, 400_001)
    middle = 0.5 * (x[1:] + x[:-1])
    loss = special.logsumexp(log_law + k * mu * middle[:, None] - 0.5 * (k * mu) ** 2, axis=1)
    null = np.diff(special.ndtr(x))
    mixed = np.exp(log_law) @ np.diff(special.ndtr(x - (k * mu)[:, None]))
    answers = []
    for sign, mass in ((1, mixed), (-1, null)):
        cells = np.round(sign * loss / width).astype(int)
        size = fft.next_fast_len(2 * int(60.0 / width))
        law = np.bincount(cells % size, weights=mass, minlength=size)
        composed = np.maximum(fft.irfft(fft.rfft(law) ** steps, size), 0.0)
        values = width * (np.arange(size) - size * (np.arange(size) > size // 2))

        def excess(epsilon, composed=composed, values=values):
            above = values > epsilon
            return composed[above] @ -np.expm1(epsilon - values[above]) - delta

        answers.append(optimize.brentq(excess, 0.0, 55.0))
    return max(answers)


SETTING = {"n": 60_000, "m": 512, "steps": 500, "delta": 1e-5}  # errata 000-8, noise .8 C


@pytest.mark.slow
@pytest.mark.parametrize(("moved", "printed", "bound"), [(1.0, 2.458, 2.64), (2.0, 24.46, 25.5)])
def test_the_setting_of_errata_000_8(moved, printed, bound):
    """With a contribution k C the composed mixture is the 2.46 of the errata.

    Draws of a fixed number put other records in the place of those k, so that the sum moves by
    2 k C: any account of this setting must give at least 24.46.
    """
    exact = mixture_epsilon(**{**SETTING, "mu": moved / 0.8})
    assert exact == pytest.approx(printed, rel=1e-3)
    step = Sampled(dpa.WithReplacement(512), [Gaussian(0.8, moved)], n=60_000)
    run = Repeated(step, 500)
    assert exact < privacy.epsilon(run, 1e-5, REPLACE, "pld") <= bound
    poisson = Repeated(Sampled(dpa.Poisson(512 / 60_000), [Gaussian(0.8, 1.0)]), 500)
    assert privacy.epsilon(poisson, 1e-5, ADD) == pytest.approx(2.07, abs=5e-3)


def test_two_batches_listed():
    """Two answers of three draws from three records, over all pairs of data sets."""
    x = np.linspace(-14.0, 14.0, 701)
    n, m, std, loss = 3, 3, 3.0, 0.4

    def law(records):
        sums, chances = law_of_the_sum(records, m)
        density = np.exp(-0.5 * ((x[:, None] - sums[:, 0]) / std) ** 2) @ chances
        return density / density.sum()

    step, worst = Sampled(dpa.WithReplacement(m), [Gaussian(std, 2.0)], n=n), 0.0
    pairs = [[law(records) for records in pair] for pair in neighbours(n, (-1.0, 1.0))]
    for (p1, q1), (p2, q2) in itertools.product(pairs, repeat=2):
        p, q = np.multiply.outer(p1, p2).ravel(), np.multiply.outer(q1, q2).ravel()
        worst = max(worst, *hockey_stick(p, q, np.array([loss])))
        worst = max(worst, *hockey_stick(q, p, np.array([loss])))
    found = privacy.epsilon([step, step], worst, REPLACE, "pld")
    assert loss * (1 - 1e-3) <= found <= 1.4 * loss


def test_one_draw_is_one_draw_without_replacement():
    one, other = (
        Repeated(Sampled(scheme(1), [Gaussian(1.0, 1.0)], n=1000), 400)
        for scheme in (dpa.WithReplacement, dpa.WithoutReplacement)
    )
    for accountant in ("pld", "rdp"):
        both = (privacy.epsilon(run, 1e-6, REPLACE, accountant) for run in (one, other))
        assert next(both) == pytest.approx(next(both), rel=1e-4)


def test_one_record_is_the_full_batch():
    event = Sampled(dpa.WithReplacement(1), [Gaussian(2.0, 1.0)], n=1)
    whole = privacy.epsilon(Gaussian(2.0, 1.0), 1e-5, REPLACE)
    assert privacy.epsilon(event, 1e-5, REPLACE) == pytest.approx(whole)
    assert gaussian_profile(0.5, 1, 1, 2.0) == pytest.approx(privacy.gaussian_delta(0.5, 0.5))


# Renyi and pure losses


@pytest.mark.parametrize(("n", "m", "std"), [(2, 2, 2.0), (3, 3, 3.0), (4, 2, 1.5)])
def test_renyi_costs_cover_every_pair_of_tiny_data_sets(n, m, std):
    orders = [1.5, 2.0, 3.0, 6.0]
    bound = privacy.rdp_with_replacement(orders, n, m, std / 2.0)
    worst = np.zeros(len(orders))
    for one, two in neighbours(n, (-1.0, 1.0)):
        laws = answer(one, m, spread=std), answer(two, m, spread=std)
        for p, q in (laws, laws[::-1]):
            log_ratio = np.log(p) - np.log(q)
            moments = [(q * np.exp(order * log_ratio)).sum() for order in orders]
            worst = np.maximum(worst, np.log(moments) / (np.array(orders) - 1.0))
    assert (worst <= bound * (1 + 1e-6)).all()
    assert (bound <= 5.0 * worst).all()
    # Where the batch is nearly known, the bound is that of all copies.
    assert (bound <= privacy.rdp_gaussian(orders, std / (2.0 * m)) * (1 + 1e-12)).all()


def test_renyi_costs_of_many_draws_and_large_orders_stay_valid():
    many = privacy.rdp_with_replacement([2.0, 4.0], 10**6, 10_001, 5000.0)
    few = privacy.rdp_with_replacement([2.0, 4.0], 10**6, 10_000, 5000.0)
    assert (few < many).all() and np.isfinite(many).all()
    assert privacy.rdp_with_replacement(math.inf, 100, 10, 1.0) == math.inf
    step = Sampled(dpa.WithReplacement(10), [Gaussian(20.0, 1.0)], n=1000)
    run = Repeated(step, 100)
    tight, loose = (privacy.epsilon(run, 1e-5, REPLACE, name) for name in ("pld", "rdp"))
    assert tight < loose < 0.3


def test_renyi_costs_of_many_draws_are_above_those_of_every_number_of_copies(monkeypatch):
    """The largest term in place of all is an upper bound, and the mixture is exact."""
    orders = [1.5, 2.0, 8.0, 30.0]
    for n, m, noise in [(6, 6, 3.0), (40, 12, 2.0), (100, 20, 30.0)]:
        monkeypatch.undo()
        mixed = privacy.rdp_with_replacement(orders, n, m, noise)
        monkeypatch.setattr(module, "_MOST_DRAWS", 5)
        assert (privacy.rdp_with_replacement(orders, n, m, noise) >= mixed * (1 - 1e-12)).all()


@pytest.mark.parametrize(("n", "m"), [(2, 2), (3, 2), (3, 3)])
def test_the_pure_loss_covers_and_is_attained(n, m):
    """Laplace noise of scale 2: one copy of a record loses at most 1."""
    worst = 0.0
    for one, two in neighbours(n):
        p, q = (answer(records, m, "laplace", 2.0) for records in (one, two))
        worst = max(worst, np.abs(np.log(p / q)).max())
    step = Sampled(dpa.WithReplacement(m), [Laplace(2.0, 2.0)], n=n)
    assert worst == pytest.approx(step.pure_cost(), rel=1e-9)
    assert step.pure_cost() == privacy.pure_with_replacement(1.0, n, m)
    # Other pure releases of the same loss have the same cost, with every accountant.
    run = Repeated(Sampled(dpa.WithReplacement(m), [Pure(0.5), Laplace(4.0, 2.0)], n=n), 4)
    assert run.pure_cost() == pytest.approx(4 * step.pure_cost())
    for accountant in ("pure", "zcdp", "rdp", "pld"):
        like = Repeated(Pure(step.pure_cost()), 4)
        both = (privacy.epsilon(each, 1e-3, REPLACE, accountant) for each in (run, like))
        assert next(both) == pytest.approx(next(both))


def test_laplace_budgets_are_met_exactly():
    """With a pure budget and constant noise, the epsilon of the ledger is that of the budget."""
    X = np.linspace(-1.0, 1.0, 50)[:, None]
    problem = dpa.ERM(X, np.sign(X[:, 0]), dpa.losses.Logistic(), row_bound=dpa.RowBound(1, 1.0))
    method = dpa.methods.GradientDescent(0.5, 10, sampling=dpa.WithReplacement(5))
    result = dpa.minimize(problem, method, dpa.Budget(1.0), rng=0, every=10)
    assert result.epsilon() == pytest.approx(1.0, rel=1e-5)
    scale = result.ledger.events[0].event.events[0].scale
    loss = 0.1  # of one step
    assert 2.0 / 5 / scale == pytest.approx(math.log1p(50 * math.expm1(loss / 5)), rel=1e-5)


# Refused arguments, and the draws


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: dpa.WithReplacement(0), ValueError, "m must be at least 1"),
        (lambda: dpa.WithReplacement(1.5), TypeError, "m must be an integer"),
        (lambda: dpa.WithReplacement(5).validate(4), ValueError, "m must be at most n = 4"),
        (lambda: dpa.WithReplacement(5).fraction(None), ValueError, "WithReplacement needs"),
        (
            lambda: Sampled(dpa.WithReplacement(2), [Gaussian(1.0, 1.0), Pure(0.1)], n=9),
            dpa.IncompatibleAccounting,
            "Gaussian noise alone or .* pure releases alone",
        ),
        (
            lambda: privacy.epsilon(
                Sampled(dpa.WithReplacement(2), [Gaussian(1.0, 1.0)], n=9), 1e-5, ADD
            ),
            dpa.IncompatibleAccounting,
            "WithReplacement and Shuffle with 'replace_one'",
        ),
        (lambda: gaussian_profile(0.1, 5, 6, 1.0), ValueError, "m must be between 1 and 5"),
        (lambda: gaussian_profile(0.1, 5, 2, 0.0), ValueError, "mu must lie in"),
        (lambda: privacy.rdp_with_replacement(1.0, 5, 2, 1.0), ValueError, "orders must lie"),
    ],
)
def test_bad_arguments_are_named(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize(("n", "m"), [(7, 3), (1, 1), (40, 40), (10**6, 600)])
def test_copies_are_binomial(n, m):
    law = np.array(copies(n, m))
    np.testing.assert_allclose(law, stats.binom.pmf(np.arange(1, law.size + 1), m, 1.0 / n), 1e-11)
    assert stats.binom.sf(law.size, m, 1.0 / n) <= 1e-25


def test_draws_are_independent_and_sorted():
    """Chi-square over the 10 multisets of 3 draws of 3 rows; false alarm 1e-4."""
    random, draws = random_source(3), 8000
    counts = {}
    for _ in range(draws):
        rows = tuple(dpa.WithReplacement(3).draw(3, random).tolist())
        counts[rows] = counts.get(rows, 0) + 1
    batches = itertools.product(range(3), repeat=3)
    expected = {}
    for batch in batches:
        key = tuple(sorted(batch))
        expected[key] = expected.get(key, 0.0) + draws / 27
    assert counts.keys() == expected.keys()
    pairs = [(counts[key], expected[key]) for key in expected]
    assert stats.chisquare(*zip(*pairs, strict=True)).pvalue > 1e-4


def test_copies_that_are_not_listed_count_where_their_chance_is_below_rounding():
    """Their chance was the rounding error of 1 minus the others: 0, and delta a ninth."""
    n, m, mu, t = 1542, 19, 0.4977212335895767, 31.539244784139484
    law = stats.binom.pmf(np.arange(m + 1), m, 1.0 / n)
    x, shifts = np.linspace(0.0, 80.0, 8001)[:, None], mu * np.arange(m + 1)
    tests = np.exp(special.log_ndtr(shifts - x)) @ law - np.exp(t + special.log_ndtr(-x[:, 0]))
    assert 1e-84 < tests.max() <= gaussian_profile(t, n, m, mu) <= 1e-24


def test_renyi_costs_at_large_orders_take_no_loop():
    """An epsilon of 1e-3 needs them: the search for a noise multiplier took three minutes."""
    run = {"sampling": "with replacement", "n": 100, "batch_size": 1, "steps": 586, "delta": 1e-10}
    with_it = dpa.accounting(epsilon=1e-3, **run)
    without = dpa.accounting(epsilon=1e-3, **{**run, "sampling": "fixed size"})
    assert with_it.noise_multiplier == pytest.approx(without.noise_multiplier, rel=1e-3)


@pytest.mark.parametrize("sparse", [False, True])
def test_a_record_drawn_twice_counts_twice(sparse):
    from scipy.sparse import csr_matrix

    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(6, 3)), np.array([1.0, -1.0, 1.0, 1.0, -1.0, -1.0])
    problem = dpa.ERM(csr_matrix(X) if sparse else X, y, dpa.losses.Logistic())
    rule, w = dpa.clipping.Flat(0.5), rng.normal(size=(2, 3))
    rows = [np.array([0, 2, 2, 5, 5, 5]), np.array([1, 1, 1, 1, 1, 1])]
    drawn = problem.sums(w, rows=rows, clipping=rule).gradient
    for each, at, answer_ in zip(rows, w, drawn, strict=True):
        one_by_one = sum(
            problem.sums(at, rows=np.array([row]), clipping=rule).gradient for row in each
        )
        np.testing.assert_allclose(answer_, one_by_one, rtol=1e-12)
