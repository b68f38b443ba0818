"""Events of pairs of coordinates, of keys and of prefixes: their power and their values."""

import math
import re
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dpanalysis.audit import learning, verify_privacy
from dpanalysis.audit.entries import Entries, hashable, is_repr
from dpanalysis.audit.events import Cells, Coordinate, Norm, unit_of
from dpanalysis.audit.joint import Grid, Prefixes, order_of, pairs_of_coordinates, ranked, ranks
from dpanalysis.audit.outcomes import Outcomes, Reader

LIE = 1.0 / (1.0 + math.exp(math.sqrt(2.0)))  # probability of a false answer at epsilon 1.41, not 1
KEYS = [f"key {place}" for place in range(2_000)]


def interaction(bit, rng, size):
    """Ten entries of Laplace noise; the sign of the product of two depends on the input."""
    values = rng.laplace(size=(size, 10))
    sign = np.where((rng.random(size) < LIE) != bool(bit), 1.0, -1.0)
    values[:, 7] = np.abs(values[:, 7]) * np.sign(values[:, 3]) * sign
    return values


def exclusive_or(bit, rng, size):
    """Twenty fair bits, independent in pairs except for one pair."""
    values = rng.integers(0, 2, (size, 20))
    values[:, 13] = values[:, 4] ^ ((rng.random(size) < LIE) != bool(bit))
    return values


def counts(bit, rng, size, scale=0.707):
    """A noisy count for each of six keys, in a dictionary."""
    values = rng.laplace(0.0, scale, (size, 6))
    values[:, 5] += bit
    return [dict(zip(KEYS, row)) for row in values.tolist()]


def frequent(bit, rng, size):
    """The same, without the counts below 1."""
    rows = counts(bit, rng, size)
    return [{key: count for key, count in row.items() if count >= 1.0} for row in rows]


def one_key(bit, rng, size):
    """One of 2,000 keys; twenty, drawn in a quarter of the runs, depend on the input."""
    odds = np.ones(2_000)
    odds[:20] = 25.0 * np.exp(np.repeat([1.0, -1.0], 10) * (bit - 0.5) * math.sqrt(2.0))
    edges = np.cumsum(odds) / odds.sum()
    return np.array(KEYS)[np.minimum(np.searchsorted(edges, rng.random(size)), 1_999)]


def halts(bit, rng, size):
    """A sparse vector that stops after three answers above, with the noise for one."""
    queries = np.repeat([float(bit), 1.0 - bit], [3, 9])
    above = queries + rng.laplace(0.0, 2.0, (size, 12)) >= 1.0 + rng.laplace(size=(size, 1))
    ends = [(np.flatnonzero(row)[:3].tolist() + [11] * 3)[2] + 1 for row in above]
    words = np.where(above, "above", "below").tolist()
    return [tuple(row[:end]) for row, end in zip(words, ends)]


# Mechanism; runs, at most 2.5 times those of an oracle that knows the best event; words.
HARD = {
    "interaction": (interaction, 2_988, r"\(output\[3\] . \S+\) \* \(output\[7\]"),
    "exclusive or": (exclusive_or, 2_988, r"output\[4\]|classifier"),
    "dictionary": (counts, 5_405, r"output\['key 5'\]"),
    "frequent keys": (frequent, 5_900, r"output\['key 5'\]"),
    "one key": (one_key, 17_800, "output == 'key 1?[0-9]'"),
    "halts": (halts, 6_500, r"word of output|classifier|log-ratio|trees|output\.count"),
}


@pytest.mark.parametrize("name", HARD)
def test_joint_differences_are_found_with_few_runs(name):
    mechanism, samples, words = HARD[name]
    verdict = verify_privacy(mechanism, 0, 1, 1.0, samples=samples, rng=1)
    assert verdict.refuted and re.search(words, str(verdict.event)), str(verdict)
    again = [verdict.event(mechanism(bit, np.random.default_rng(2), 2_000)) for bit in (0, 1)]
    np.testing.assert_allclose(np.mean(again, axis=1), verdict.probabilities, atol=0.06)


def leaking_pair(bit, rng, size):
    """The sign of a product leaks as much as the claim allows."""
    values = rng.laplace(size=(size, 4))
    sign = np.where((rng.random(size) < 1.0 / (1.0 + math.e)) != bool(bit), 1.0, -1.0)
    values[:, 2] = np.abs(values[:, 2]) * np.sign(values[:, 0]) * sign
    return values


def leaking_bits(bit, rng, size):
    """The exclusive or of the first and the last bit leaks as much as the claim allows."""
    values = rng.integers(0, 2, (size, 6))
    values[:, 5] = values[:, 0] ^ ((rng.random(size) < 1.0 / (1.0 + math.e)) != bool(bit))
    return values


TIGHT = {
    "pair": (leaking_pair, 1.0),
    "dictionary": (lambda bit, rng, size: counts(bit, rng, size, 1.0), 1.0),
    "keys": (lambda bit, rng, size: np.array(KEYS)[rng.integers(0, 300, size)], 0.0),
    "prefixes": (leaking_bits, 1.0),
}


def alarms(name, seeds, samples):
    mechanism, epsilon = TIGHT[name]
    return sum(
        verify_privacy(mechanism, 0, 1, epsilon, samples=samples, confidence=0.9, rng=seed).refuted
        for seed in range(seeds)
    )


def test_correct_mechanisms_are_refuted_no_more_often_than_stated():
    """Of 20 audits at confidence .9 more than 9 alarm with probability 1e-5."""
    assert sum(alarms(name, 5, 200) for name in TIGHT) <= stats.binom.isf(1e-5, 20, 0.1)


@pytest.mark.slow
@pytest.mark.parametrize("name", TIGHT)
def test_correct_mechanisms_over_many_seeds(name):
    """Of 40 audits at confidence .9 more than 14 alarm with probability 1e-5."""
    assert alarms(name, 40, 1_000) <= stats.binom.isf(1e-5, 40, 0.1)


# --- pairs ------------------------------------------------------------------------------------


@given(st.integers(1, 40), st.integers(1, 4), st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_ranks_of_equal_entries_are_their_mean(runs, width, levels, seed):
    values = np.random.default_rng(seed).integers(0, levels, (runs, width)).astype(float)
    expected = 2.0 * (stats.rankdata(values, axis=0) - 0.5) / runs - 1.0
    np.testing.assert_allclose(ranks(values), expected, atol=1e-12)


@pytest.mark.parametrize("square", [False, True])
@pytest.mark.parametrize("width", [2, 9, 80])
def test_the_pair_that_differs_is_the_first(square, width):
    """By sign, or by distance from the middle."""
    random = np.random.default_rng(width)
    first, second = random.normal(size=(2, 800, width))
    i, j = 0, width - 1
    if square:
        second[:, j] = np.sign(second[:, j]) * np.sort(np.abs(second[:, j]))
        second = second[np.argsort(np.argsort(np.abs(second[:, i])))]
        second[:, i] = random.permutation(second[:, i])
        far = np.argsort(np.abs(second[:, i]))
        second[far, j] = np.sort(np.abs(second[:, j])) * random.choice([-1.0, 1.0], 800)
    else:
        second[:, j] = np.abs(second[:, j]) * np.sign(second[:, i])
    sides = ranked(first, second)
    pairs = pairs_of_coordinates(sides, np.arange(width), 3)
    assert pairs[0].tolist() == [i, j] and len(pairs) == min(3, width * (width - 1) // 2)


def test_coordinates_that_differ_alone_come_first():
    random = np.random.default_rng(0)
    first, second = random.normal(size=(2, 500, 30))
    second[:, 21] += 1.0
    second[:, 8] *= 3.0
    assert set(order_of(ranked(first, second))[:2].tolist()) == {8, 21}


def test_a_word_that_has_the_middle_rank_counts_as_a_difference():
    """Words have no order, so they may differ without a shift in location or spread."""
    random = np.random.default_rng(0)
    first, second = random.integers(0, 40, (2, 600, 30)).astype(float)
    first[:150, 17], second[:150, 17] = 20.0, random.choice([19.0, 21.0], 150)
    assert order_of(ranked(first, second))[0] == 17


@pytest.mark.parametrize("large", [True, False])
def test_a_union_is_not_empty_where_all_runs_make_ratios_less_extreme(large):
    score = Coordinate(0)
    runs = [Outcomes(np.repeat([[0.0], [1.0]], counts, axis=0)) for counts in ([30, 10], [10, 30])]
    scores = (runs[0].values[:, 0], runs[1].values[:, 0])
    fold = learning._Fold(score, runs, runs, scores, scores)
    parts = [Cells.fit(scores, (None, None), 0)]
    families = list(
        learning._unions_of(
            score, [fold], parts, Cells.fit(scores, (None, None), 0, pseudocount=90.0), ()
        )
    )
    (counts, make, size) = families[0 if large else 1]
    for place in range(counts[0].size - 1 + large):
        inside = make(place).contains(runs[0])
        assert size == 40 and inside.any(), place


def test_bins_hold_equal_shares_and_tails_less():
    scores = tuple(np.random.default_rng(0).normal(size=(2, 3_200)))
    cells = Cells.fit(scores, (None, None), 0)
    shares = np.bincount(cells.index(np.concatenate(scores), None)) / 6_400
    assert shares.size <= 70 and shares.max() <= 1 / 64 and min(shares[0], shares[-1]) < 2e-4


def test_norms_are_what_is_printed():
    values = np.array([[-3.0, 2.0, 0.0], [1.0, -1.0, 4.0]])
    norms = [Norm(kind) for kind in ("norm", "max |.|", "max", "min")]
    assert {str(norm): norm(values).tolist() for norm in norms} == {
        "norm(output)": [math.sqrt(13.0), math.sqrt(18.0)],
        "max |output|": [3.0, 4.0],
        "max(output)": [2.0, 4.0],
        "min(output)": [-3.0, -1.0],
    }


@pytest.mark.parametrize(("most", "centers"), [(40, [2.0, 1.0, 3.0]), (39, [1.0, 1.0])])
def test_scores_are_fitted_to_all_of_few_runs_and_to_half_of_many(monkeypatch, most, centers):
    """A square is centered at the median; the final score comes first, then that of each fold."""
    monkeypatch.setattr(learning, "_CROSSED", most)
    runs = Outcomes(np.repeat([[1.0], [3.0]], 40, axis=0))
    trial = next(each for each in learning._trials(runs, runs) if each.scores is None)
    fitted = [trial.score, *(fold.score for fold in trial.folds)]
    assert [score.center[0] for score in fitted] == centers


def test_thresholds_are_scores_in_the_unit_of_the_final_one(monkeypatch):
    """Fitted to half of the runs, the final score is that of its fold, whose scores were held."""
    monkeypatch.setattr(learning, "_CROSSED", 0)
    random = np.random.default_rng(0)
    runs = [Outcomes(random.normal(mean, 5.0, (400, 2))) for mean in (0.0, 4.0)]
    trials = [each for each in learning._trials(*runs) if each.scores is None]
    scales = [unit_of(trial.score)[1] for trial in trials]
    assert max(scales) > 2.0
    for trial in trials:
        held = np.concatenate(trial.folds[0].held_scores)
        for _, line, _ in learning._lines(trial):
            assert np.abs(line(0).threshold - held).min() < 1e-9 * np.abs(held).max()


def test_values_that_repeat_have_cells_of_their_own():
    scores = np.repeat([1.0, 2.0, 3.0], 10)
    cells = Cells.fit((scores, scores), (None, None), 0)
    assert np.unique(cells.index(np.array([1.0, 2.0, 2.5, 3.0]), None)).size == 4


def test_a_grid_has_a_cell_for_nan_and_scores_unseen_cells_as_0():
    first, second = np.full((200, 2), np.nan), np.zeros((200, 2))
    grid = Grid.fit(first, second, (0, 1))
    assert grid(first)[0] > 2.0 and grid(second)[0] < -2.0
    assert grid(np.array([[np.nan, 0.0]]))[0] == 0.0


def test_a_grid_of_thousands_of_runs_tells_quarters_apart():
    """Odd and even squares of a chessboard: every half of it has as many of both."""
    rng = np.random.default_rng(0)
    points = rng.random((5_000, 2))
    odd = np.floor(4.0 * points).sum(axis=1) % 2 == 1
    first, second = points[odd], points[~odd]
    grid = Grid.fit(first[::2], second[::2], (0, 1))
    assert grid(first[1::2]).mean() > 1.0 and grid(second[1::2]).mean() < -1.0
    few = Grid.fit(first[:30], second[:30], (0, 1))  # each half is one cell, as for NaN
    assert few.ratios.shape == (3, 3)


# --- prefixes ---------------------------------------------------------------------------------


def test_an_unknown_outcome_is_judged_by_its_longest_known_prefix():
    first = np.array([[0, 0, 0]] * 30 + [[1, 1, 0]] * 10, dtype=float)
    second = np.array([[0, 0, 1]] * 10 + [[1, 0, 0]] * 30, dtype=float)
    prefixes = Prefixes.fit(first, second)
    known = prefixes(np.array([[0, 0, 0], [0, 0, 1], [1, 1, 0], [1, 0, 0]], dtype=float))
    assert (np.sign(known) == [1, -1, 1, -1]).all()
    unknown = prefixes(np.array([[0, 1, 1], [1, 1, 1], [7, 0, 0]], dtype=float))
    assert 0.5 < unknown[0] < known[0] and unknown[1] == known[2] and unknown[2] == 0.0
    # A prefix shared by all runs of its parent has the ratio of the parent.
    assert prefixes.ratios[1][0] == prefixes.ratios[0][0]
    assert Prefixes.fit(first[:, :1], second[:, :1]) is None


# --- entries ----------------------------------------------------------------------------------


LEAVES = st.one_of(st.sampled_from(["a", "b", "c"]), st.integers(-3, 3), st.booleans())
COLLECTIONS = st.one_of(
    st.lists(LEAVES, max_size=4),
    st.lists(LEAVES, max_size=4).map(tuple),
    st.dictionaries(st.sampled_from("xyz"), st.integers(-3, 3), max_size=3),
    st.dictionaries(st.sampled_from("xyz"), LEAVES, max_size=3),
    st.frozensets(st.sampled_from("pqr"), max_size=3),
    st.tuples(st.sampled_from("ab"), st.lists(st.integers(0, 2), max_size=2)),
)


@given(st.lists(COLLECTIONS, min_size=1, max_size=12))
def test_rows_are_equal_where_outputs_are(outputs):
    """Among outputs of one kind, rows are equal only where outputs are."""
    entries = Entries(outputs)
    rows = entries.rows(outputs)
    assert rows.shape == (len(outputs), entries.width) and not np.isnan(rows).any()
    np.testing.assert_array_equal(rows, np.stack([entries.rows([x])[0] for x in outputs]))
    np.testing.assert_array_equal(rows, np.stack([entries._read(x) for x in outputs]))
    for a, row in zip(outputs, rows):
        for b, other in zip(outputs, rows):
            if type(a) is type(b):
                assert (row == other).all() == (hashable(a) == hashable(b))
    assert entries.name(entries.width - 1) == "len(output)"


def test_a_word_or_a_key_that_was_never_seen():
    entries = Entries([{"x": 1.0, "y": 2.0}, {"x": 3.0}])
    assert [entries.name(place) for place in range(3)] == [
        "output['x']",
        "output['y']",
        "len(output)",
    ]
    rows = entries.rows([{"x": 1.0, "z": 5.0}, {"y": "word"}, {"x": 10**400}, {}])
    np.testing.assert_array_equal(rows, [[1, 1, 2], [0, 1, 1], [0, 1, 1], [0, 1, 0]])
    words = Entries([["a", "b"], ["b"]])
    names = [words.name(place) for place in range(words.width)]
    assert sorted(names[:2]) == ["word of output[0]", "word of output[1]"]
    assert set(names[2:4]) == {"output.count('a')", "output.count('b')"}
    unseen = words.rows([["c", "b"]])[0]
    assert unseen[0] == 2.0 and (unseen != words.rows([["a", "b"]])[0]).any()


def test_words_are_numbered_alike_whichever_input_showed_them_first():
    """Numbering by first occurrence would create a difference between the inputs."""
    outputs = [(f"word {place % 7}", "z") for place in range(20)]
    entries = [Entries(outputs), Entries(outputs[::-1])]
    first, second = (
        {each.name(place): column.tolist() for place, column in enumerate(each.rows(outputs).T)}
        for each in entries
    )
    assert first == second and len(first) == 11


def test_records_returned_by_one_call_are_read_by_their_entries():
    def records(bit, rng, size):
        return [SimpleNamespace(value=noisy) for noisy in 3 * bit + rng.laplace(size=size)]

    assert verify_privacy(records, 0, 1, 1.0, samples=1_000, rng=0).refuted


def test_few_collections_vectors_and_numbers_are_read_as_before():
    few = [("a", place % 3) for place in range(100)]
    vectors = [np.full(3, float(place)) for place in range(100)]
    mixed = [(place, "a") for place in range(100)] + [1.0]
    for outputs in (few, vectors, mixed):
        assert Reader([outputs], entries=True).entries is None
    many = [("a", place) for place in range(100)]
    assert Reader([many]).entries is None
    reader = Reader([many, np.ones((3, 2))], entries=True)
    outcomes = reader.read([*many[:2], None])
    assert outcomes.codes.tolist() == [0, 0, 1] and reader.name(1) == "output == None"
    assert np.isnan(outcomes.values[2]).all() and reader.read(np.ones((3, 2))).codes is None


class Opaque:
    """An object without a hash, which may hold more than it prints."""

    __hash__ = None

    def __repr__(self):
        return "Opaque()"


@pytest.mark.parametrize(
    "hold", [lambda x: x, lambda x: [1, x], lambda x: {"a": x}, lambda x: ({"a": [x]}, 2)]
)
def test_a_key_tells_wherever_it_is_only_what_an_object_prints(hold):
    assert is_repr(hashable(hold(Opaque())))
    assert not is_repr(hashable(hold("Opaque()")))
