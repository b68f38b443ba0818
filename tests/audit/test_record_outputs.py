"""Outputs that a recording reads, and its reports where noise changes their shape."""

import datetime
import decimal
import json
import math
import os
import random
import subprocess
import sys
import types
import warnings
from collections import deque
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest
import scipy.sparse

from dpanalysis import audit
from dpanalysis.audit.entries import plain
from dpanalysis.audit.released import Entry, loss, violation
from dpanalysis.audit.verify import ParsedClaim
from dpanalysis.privacy import mechanisms

DATA, OTHER = np.array([0.0, 1.0, 1.0]), np.array([1.0, 1.0, 1.0])


def kinds(found):
    return [finding.kind for finding in found.findings]


def rows(data, rng):
    return len(data) + 100.0 + rng.laplace()


def none(data, rng, size):
    count = rows(data, rng)
    return None if count < 1.0 else [(count, data.mean())]


def raising(data, rng, size):
    count = rows(data, rng)
    if count < 1.0:
        raise ValueError("too few")
    return [(count, data.mean())]


def ragged(data, rng, size):
    count = int(rows(data, rng))
    return [(count, [0.0] * 0 if count < 0 else [data.mean()])]


def texts(data, rng, size):
    return None if rows(data, rng) < 1.0 else ["high" if data.mean() > 0.8 else "low"]


@pytest.mark.parametrize("mechanism", [none, raising, ragged, texts])
def test_exact_numbers_are_found_where_extreme_noise_takes_another_branch(mechanism):
    found = audit.record(mechanism, DATA, OTHER, claim=1.0)
    assert kinds(found) == ["exact"], str(found)


def test_less_noise_is_tried_where_hardly_any_extreme_run_has_the_usual_shape():
    def bounded(data, rng, size):
        noise = rng.laplace()
        return None if abs(noise) > 30.0 else [(noise, data.mean())]

    found = audit.record(bounded, DATA, OTHER)
    assert kinds(found) == ["exact"] and "other shapes" not in str(found)


def test_a_shape_that_hardly_any_extreme_noise_keeps_is_a_note():
    def narrow(data, rng, size):
        noise = rng.laplace(0.0, 1e-3, 40)
        return None if abs(noise).max() > 0.1 else [(noise[0], data.mean())]

    found = audit.record(narrow, DATA, OTHER)
    assert kinds(found) == ["exact"] or "other shapes where noise is larger" in str(found)

    def narrower(data, rng, size):
        noise = rng.normal(0.0, 1.0, 40)
        return None if abs(noise).max() > 6.0 else [(noise[0], data.mean())]

    found = audit.record(narrower, DATA, OTHER)
    assert found.passed and "other shapes where noise is larger" in str(found)


def test_numbers_of_draws_under_a_claim():
    """Separate noise for each record, and the same noise in another branch, are correct."""

    def local(data, rng, size):
        return [sum(x + rng.laplace(0.0, 1.0) for x in data)]

    def empty(data, rng, size):
        if len(data) == 0:
            return rng.laplace(0.0, 1.0, size)
        return np.clip(data, 0.0, 1.0).mean() + rng.laplace(0.0, 1.0, size)

    def skipped(data, rng, size):
        return data.sum() + (rng.laplace(0.0, 1.0, size) if data[0] > 0.5 else np.zeros(size))

    found = audit.record(local, DATA, DATA[:-1], claim=1.0)
    assert found.passed and "3 draws of laplace noise on the dataset and 2" in str(found)
    assert kinds(audit.record(local, DATA, DATA[:-1])) == ["draws"]
    for claim in (None, 1.0):
        found = audit.record(empty, np.array([]), np.array([1.0]), claim=claim)
        assert found.passed and found.looked and "at other lines" in str(found)
        assert "exact" in kinds(audit.record(skipped, DATA, OTHER, claim=claim))


def test_unequal_draws_count_as_looked_at():
    def stable(data, rng, size):  # counts above a threshold, of the values that occur
        counts = {value: (data == value).sum() + rng.laplace(0.0, 2.0) for value in set(data)}
        return [{value: count for value, count in counts.items() if count > 40.0}]

    def vectorized(data, rng, size):
        values, counts = np.unique(data, return_counts=True)
        noisy = counts + rng.laplace(0.0, 2.0, len(counts))
        return [{value: count for value, count in zip(values, noisy) if count > 40.0}]

    data = np.zeros(60)
    for mechanism in (stable, vectorized):
        found = audit.record(mechanism, data, np.append(data, 5.0), claim=(1.0, 1e-5))
        assert found.looked and found.passed, str(found)


def test_messages_name_errors_iterators_and_seeds():
    def fails_on_one(data, rng, size):
        return data.sum() + rng.laplace(0.0, 1.0, size) if data[0] == 0.0 else [][0]

    found = audit.record(fails_on_one, DATA, OTHER, claim=1.0)
    assert "(1,) on the dataset, raises IndexError on the neighbour" in str(found)

    def lazy(data, rng, size):
        yield data.sum()

    assert "the output holds a generator" in str(audit.record(lazy, DATA, OTHER))
    hidden = [np.random.default_rng()]

    def seeded_beside_hidden(data, rng, size):
        random.seed(0)
        return data.sum() + hidden[0].laplace() + random.gauss(0.0, 1.0) * np.ones(size)

    found = audit.record(seeded_beside_hidden, DATA, OTHER)
    assert "a source is seeded with 0 in every run" in str(found)


# Types of outputs, and data sets that a mechanism changes


def too_little(make):
    """One number with noise of scale 0.1 for a change of 1, in an output built by ``make``."""
    return lambda data, rng: make(data.sum() + rng.laplace(0.0, 0.1))


def tensors():
    torch = pytest.importorskip("torch")
    return {
        "bfloat16": lambda x: torch.tensor([x]).to(torch.bfloat16),
        "sparse tensor": lambda x: torch.sparse_coo_tensor([[0]], [x], (3,)),
        "gradient": lambda x: torch.tensor([x], requires_grad=True),
    }


def test_outputs_of_pytorch_and_scipy_are_read_by_both():
    makers = {
        **tensors(),
        "sparse matrix": lambda x: scipy.sparse.csr_matrix([[x, 0.0]]),
        "list of sparse": lambda x: [scipy.sparse.csr_matrix([[x, 0.0]]), 7],
        "masked": lambda x: np.ma.array([x, x], mask=[False, True]),
    }
    for name, make in makers.items():
        mechanism = too_little(make)
        found = audit.record(mechanism, DATA, OTHER, claim=1.0, vectorized=False)
        assert found.looked and (name == "bfloat16" or kinds(found) == ["epsilon"]), name
        verdict = audit.verify_privacy(
            mechanism, DATA, OTHER, 1.0, samples=2000, vectorized=False, rng=0, confidence=0.99
        )
        assert verdict.refuted, name


@pytest.mark.parametrize("form", ["array", "list"])
def test_complex_numbers_are_read_by_both(form):
    def noisy(x, rng):
        found = complex(1.0, x + rng.laplace())
        return np.array([found]) if form == "array" else [found]

    asked = {"claim": 0.5, "vectorized": False}
    assert kinds(audit.record(noisy, 0.0, 2.0, **asked)) == ["epsilon"]
    assert audit.record(noisy, 0.0, 0.4, **asked).passed
    assert audit.verify_privacy(noisy, 0.0, 2.0, samples=10_000, rng=0, **asked).refuted


def test_integers_beyond_the_floating_point_numbers_are_compared():
    def shifted(x, rng):
        return 10**400 + x + int(rng.integers(0, 2))

    exact = audit.record(lambda x, rng: 10**400 + x, 0, 1, vectorized=False)
    assert kinds(exact) == ["exact"]
    found = audit.verify_privacy(shifted, 0, 1, claim=0.5, samples=1000, rng=0, vectorized=False)
    assert found.refuted


def test_batches_of_tensors_and_masks_are_read():
    def masked(data, rng, size):
        return np.ma.array(rng.laplace(0.0, 1.0, size), mask=np.full(size, data[0] > 0.5))

    def gradients(data, rng, size):
        torch = pytest.importorskip("torch")
        return torch.tensor(data.sum() + rng.laplace(0.0, 0.1, size), requires_grad=True)

    for mechanism in (masked, gradients):
        verdict = audit.verify_privacy(
            mechanism, DATA, OTHER, 1.0, samples=2000, rng=0, confidence=0.99
        )
        assert verdict.refuted


def test_objects_that_print_alike_are_not_taken_for_equal():
    class Hidden:
        __hash__ = None

        def __init__(self, value):
            self.value = value

        def __repr__(self):
            return "Hidden()"

        def __eq__(self, other):
            return self.value == other.value

    def hides(data, rng):
        return Hidden(data.sum() + rng.laplace())

    verdict = audit.verify_privacy(hides, DATA, OTHER, 1.0, samples=2000, vectorized=False, rng=0)
    assert not verdict.untested
    assert audit.record(hides, DATA, OTHER, vectorized=False).looked
    beside = lambda data, rng: (hides(data, rng), "done")  # noqa: E731
    assert audit.record(beside, DATA, OTHER, vectorized=False).looked


def test_a_mechanism_without_noise_has_none_that_is_not_followed():
    found = audit.record(lambda data, rng: data.sum(), DATA, OTHER, vectorized=False)
    assert kinds(found) == ["exact"] and found.not_followed == ()


def test_a_mechanism_that_changes_its_data_is_refused():
    def centered(data, rng, size):
        data -= data.mean()
        return data[0] + rng.laplace(0.0, 1.0, size)

    def wiped(table, rng, size):
        answer = 5.0 * table["x"].sum() + rng.laplace(0.0, 1.0, size)
        table["x"] = 0.0
        return answer

    pandas = pytest.importorskip("pandas")
    tables = [pandas.DataFrame({"x": data, "name": list("abc")}) for data in (DATA, OTHER)]
    series = [pandas.Series(data) for data in (DATA, OTHER)]
    for mechanism, pair in ((centered, (DATA, OTHER)), (centered, series), (wiped, tables)):
        for check in (audit.record, audit.assert_private, audit.verify_privacy):
            one, other = (data.copy() for data in pair)
            with pytest.raises(ValueError, match="must not change its data set"):
                if check is audit.assert_private:
                    check(mechanism, 1.0, dataset=one, neighbour=other, samples=2000)
                elif check is audit.record:
                    check(mechanism, one, other)
                else:
                    check(mechanism, one, other, 1.0, samples=2000)


# Exact numbers inside objects, tables and texts


@dataclass
class Report:
    noisy_sum: float
    exact_mean: float


def reported(make):
    """A noisy sum beside an exact mean, in an output built by ``make``."""
    return lambda data, rng: make(float(data.sum() + rng.laplace()), float(data.mean()))


def table(noisy, exact):
    return pytest.importorskip("pandas").DataFrame({"noisy": [noisy], "exact": [exact]})


def series(noisy, exact):
    return pytest.importorskip("pandas").Series({"noisy": noisy, "exact": exact})


def test_tables_are_read_by_their_columns():
    pandas = pytest.importorskip("pandas")
    numbers, names = np.array([[1.0, 2.0], [3.0, 4.0]]), ["a", "b"]
    assert plain(pandas.Series([1.0, 2.0])).tolist() == [1.0, 2.0]
    assert plain(pandas.Series([1.0, 2.0], names)) == {"a": 1.0, "b": 2.0}
    assert plain(pandas.Series([1.0, 2.0], ["a", "a"])).tolist() == [1.0, 2.0]
    assert plain(pandas.DataFrame(numbers)).tolist() == numbers.tolist()
    mixed = plain(pandas.DataFrame({"x": [1.0, 2.0], "y": names}))
    assert {name: column.tolist() for name, column in mixed.items()} == {"x": [1, 2], "y": names}
    headed = plain(pandas.DataFrame(numbers, columns=names))
    assert {name: column.tolist() for name, column in headed.items()} == {"a": [1, 3], "b": [2, 4]}
    named = plain(pandas.DataFrame(numbers, names))
    assert list(named) == ["index", 0, 1] and named["index"].tolist() == names


def test_masked_entries_are_missing():
    assert str(plain(np.ma.array([1.0, 2.0], mask=[False, True])).tolist()) == "[1.0, nan]"
    assert plain(np.ma.array(["a", "b"], mask=[False, True])).tolist() == ["a", None]


REPORTS = {
    "dataclass": Report,
    "dataclass in a list": lambda noisy, exact: [Report(noisy, exact), 3],
    "json": lambda noisy, exact: json.dumps({"noisy": noisy, "mean": exact}),
    "bytes": lambda noisy, exact: json.dumps([noisy, exact]).encode(),
    "memory": lambda noisy, exact: memoryview(np.array([noisy, exact])),
    "namespace": lambda noisy, exact: types.SimpleNamespace(noisy=noisy, mean=exact),
    "sentence": lambda noisy, exact: f"The sum is {noisy:.6f}, the mean {exact:.3f}.",
    "table": table,
    "mixed table": lambda noisy, exact: table(noisy, exact).assign(name="a"),
    "series": series,
}


@pytest.mark.parametrize("name", REPORTS)
def test_exact_numbers_inside_outputs_are_found_by_both(name):
    mechanism = reported(REPORTS[name])
    found = audit.record(mechanism, DATA, OTHER, claim=1.0, vectorized=False)
    assert kinds(found) == ["exact"], str(found)
    verdict = audit.verify_privacy(
        mechanism, DATA, OTHER, 1.0, samples=3000, vectorized=False, rng=0, confidence=0.99
    )
    assert verdict.refuted and verdict.bound > 3.0, str(verdict)
    fine = reported(lambda noisy, exact: REPORTS[name](noisy, round(noisy, 3)))
    assert audit.record(fine, DATA, OTHER, claim=1.0, vectorized=False).passed
    verdict = audit.verify_privacy(
        fine, DATA, OTHER, 1.0, samples=3000, vectorized=False, rng=0, confidence=0.99
    )
    assert not verdict.refuted and not verdict.untested, str(verdict)


class Number(float):
    """A number that carries more than it prints."""


@dataclass
class Kept:
    value: float

    def keep(self, secret):
        self.secret = secret
        return self


def number(noisy, secret):
    made = Number(noisy)
    made.secret = secret
    return made


def stored(noisy, high):
    return scipy.sparse.csr_array(([noisy, 0.0], ([0, 0], [0, 2 if high else 1])), (1, 3))


def frame(noisy, **columns):
    return pytest.importorskip("pandas").DataFrame({"noisy": [noisy], **columns})


def category(high):
    kinds = ["a", "c" if high else "b"]
    return pytest.importorskip("pandas").Categorical(["a"], categories=kinds)


def warned(noisy, high):
    if high:
        warnings.warn("a value above 0.8", stacklevel=1)
    return noisy


def noted(noisy, high):
    table = frame(noisy)
    table.attrs["high"] = high
    return table


# A noisy number, and whether the data are high: in the form of the output, not in its values.
FORMS = {
    "precision": lambda noisy, high: np.float32(noisy) if high else noisy,
    "dtype": lambda noisy, high: np.array([noisy], np.float32 if high else np.float64),
    "integer": lambda noisy, high: [noisy, 1 if high else 1.0],
    "truth": lambda noisy, high: [noisy, True if high else 1],
    "kind of set": lambda noisy, high: [noisy, frozenset({1}) if high else {1}],
    "digits": lambda noisy, high: f"{noisy:.{7 if high else 6}f}",
    "minus zero": lambda noisy, high: [noisy, -0.0 if high else 0.0],
    "minus zeros": lambda noisy, high: np.array([noisy, -0.0 if high else 0.0]),
    "attribute": number,
    "attribute of a dataclass": lambda noisy, high: Kept(noisy).keep(high),
    "under a mask": lambda noisy, high: np.ma.array([noisy, float(high)], mask=[False, True]),
    "stored zero": stored,
    "categories": lambda noisy, high: frame(noisy, of=category(high)),
    "table's notes": noted,
    "dtype of a column": lambda noisy, high: frame(noisy, n=[1 if high else 1.0]),
    "warning": warned,
    "dictionary": lambda noisy, high: {"noisy": noisy, "n": 1 if high else 1.0},
}


@pytest.mark.filterwarnings("ignore:a value above 0.8")
@pytest.mark.parametrize("name", FORMS)
def test_what_shows_only_in_the_form_of_an_output_is_found(name):
    """One record may decide the precision of a table, or the categories that it lists."""

    def mechanism(data, rng):
        return FORMS[name](float(data.sum() + rng.laplace()), bool(data.mean() > 0.8))

    found = audit.record(mechanism, DATA, OTHER, claim=1.0, vectorized=False)
    assert kinds(found) == ["exact"] and "stored or written" in str(found), str(found)
    with pytest.raises(AssertionError, match="found by the recording alone"):
        audit.assert_private(
            mechanism, 1.0, neighbours=[(DATA, OTHER)], vectorized=False, samples=2000
        )

    def by_noise(data, rng):
        noisy = float(data.sum() + rng.laplace())
        return FORMS[name](noisy, noisy > 2.5)

    found = audit.record(by_noise, DATA, OTHER, claim=1.0, vectorized=False)
    assert found.passed and found.looked, str(found)


def test_messages_of_errors_that_noise_raises_are_read():
    def raising(told):
        def mechanism(data, rng):
            noisy = float(data.sum() + rng.laplace())
            if noisy < 2.5:
                raise ValueError(f"too little for {told(data.mean(), noisy)}")
            return noisy

        return mechanism

    broken, fine = raising(lambda mean, noisy: mean), raising(lambda mean, noisy: noisy > 0.0)
    assert kinds(audit.record(broken, DATA, OTHER, claim=1.0, vectorized=False)) == ["exact"]
    assert audit.record(fine, DATA, OTHER, claim=1.0, vectorized=False).passed


@pytest.mark.slow
def test_a_message_that_was_seen_a_few_times_tells_nothing():
    """An error that large noise hardly ever raises: its words may agree by chance."""

    def rare(data, rng):
        noisy, sign = float(data.sum() + rng.laplace()), rng.laplace() > 0.0
        if abs(noisy - 2.5) < 0.2:
            raise ValueError(f"no sum {sign}")
        return noisy

    for seed in range(30):
        found = audit.record(rare, DATA, OTHER, claim=1.0, rng=seed, vectorized=False)
        assert found.passed, str(found)


def test_a_form_that_varies_by_itself_is_not_looking_at_the_record():
    def blind(data, rng):
        made = Number(rng.laplace())
        made.about = object()
        return made

    assert kinds(audit.record(blind, DATA, OTHER, vectorized=False)) == ["untested"]


def test_names_of_columns_are_read_by_both():
    """The columns of a table of counts are the values that occur."""
    pandas = pytest.importorskip("pandas")

    def counts(data, rng):
        values, found = np.unique(data, return_counts=True)
        return pandas.DataFrame([found + rng.laplace(0.0, 2.0, len(found))], columns=values)

    pair = np.array([1.0, 2.0, 1.0]), np.array([1.0, 3.0, 1.0])
    assert kinds(audit.record(counts, *pair, claim=1.0, vectorized=False)) == ["size"]
    verdict = audit.verify_privacy(
        counts, *pair, 1.0, samples=3000, vectorized=False, rng=0, confidence=0.99
    )
    assert verdict.refuted


def test_outputs_that_never_repeat_are_reported():
    def keyed(data, rng):
        return f"id-{int(rng.integers(2**62)):x}"

    verdict = audit.verify_privacy(keyed, DATA, OTHER, 1.0, samples=2000, vectorized=False, rng=0)
    assert not verdict.refuted and "Nearly every output occurred once" in str(verdict)


def test_outputs_of_which_some_repeat_are_not_reported():
    def keyed(data, rng):
        return f"id-{int(rng.pareto(0.15))}"

    verdict = audit.verify_privacy(keyed, DATA, OTHER, 1.0, samples=2000, vectorized=False, rng=0)
    assert not verdict.refuted and "occurred once" not in str(verdict)


START = datetime.datetime(2026, 1, 31, tzinfo=datetime.UTC)
MEASURED = {
    "a date and time": lambda x: START + datetime.timedelta(seconds=x),
    "without a zone": lambda x: START.replace(tzinfo=None) + datetime.timedelta(seconds=x),
    "a date": lambda x: START.date() + datetime.timedelta(days=round(100 * x)),
    "a duration": lambda x: datetime.timedelta(seconds=x),
    "datetime64": lambda x: np.datetime64(int(1e6 * x), "us"),
    "timedelta64": lambda x: np.timedelta64(int(1e6 * x), "us"),
    "pandas": lambda x: pytest.importorskip("pandas").Timestamp(int(1e9 * x)),
    "decimal": decimal.Decimal,
    "record": lambda x: np.array([(x, 1)], dtype=[("a", "f8"), ("b", "i4")]),
    "row of records": lambda x: np.array([(x, 1)], dtype=[("a", "f8"), ("b", "i4")])[0],
    "deque": lambda x: deque([x]),
    "mapping": lambda x: types.MappingProxyType({"a": x}),
}


@pytest.mark.parametrize("name", MEASURED)
def test_dates_decimals_and_records_are_read_as_numbers(name):
    """Read as categories, they would hide too little noise."""

    def noisy(x, rng):
        return MEASURED[name](x + rng.laplace())

    options = {"samples": 3000, "vectorized": False, "rng": 0, "confidence": 0.99}
    assert audit.verify_privacy(noisy, 0.0, 1.0, 0.5, **options).refuted
    assert not audit.verify_privacy(noisy, 0.0, 1.0, 1.0, **options).refuted
    assert audit.record(noisy, 0.0, 1.0, claim=1.0, vectorized=False).passed


def test_missing_times_are_nan():
    pandas = pytest.importorskip("pandas")
    assert np.isnan(plain(pandas.NaT)) and np.isnan(plain(np.datetime64("NaT", "s")))


def test_outputs_of_any_length_that_are_the_same_on_both_are_left_open():
    def varied(data, rng):
        return [1.0] * int(abs(rng.laplace(0.0, 4.0)))

    recording = audit.record(varied, DATA, OTHER, vectorized=False)
    assert recording.passed and "whether the changed record is looked at is open" in str(recording)


SETS = """
from dpanalysis.audit import record, verify_privacy
few = lambda d, rng: frozenset(w for w in ("ab", "cd", "ef", "gh") if rng.random() < 0.5 + 0.1 * d)
many = lambda d, rng: {w: 1 + d for w in "abcdefghij" if rng.random() < 0.7}.keys() - {"z"}
for mechanism in (few, many):
    print(verify_privacy(mechanism, 0.0, 1.0, 1.0, samples=2000, rng=7, vectorized=False).event)
    print(record(mechanism, 0.0, 1.0, rng=3, vectorized=False))
"""


def test_texts_about_sets_are_the_same_in_every_process():
    found = set()
    for seed in ("0", "1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", SETS]
        found.add(subprocess.run(command, env=environment, capture_output=True, check=True).stdout)
    assert len(found) == 1 and b"frozenset({'ab', 'cd'" in found.pop()


@pytest.mark.parametrize("day", ["1500-01-31", "2026-01-31", "3000-01-31"])
def test_dates_of_any_century_are_seconds_since_1970(day):
    date = datetime.date.fromisoformat(day)
    seconds = 86_400.0 * (date - datetime.date(1970, 1, 1)).days
    assert plain(date) == plain(np.datetime64(day)) == seconds
    assert plain(np.datetime64(f"{day}T00:00:00.250")) == seconds + 0.25
    assert plain(np.timedelta64(-1_500, "ms")) == -1.5

    def rounded(x, rng, size):
        noise = 86_400 * int(np.round(rng.laplace(0.0, 1e5)))
        return np.datetime64(day, "s") + int(1e6 * x) + noise

    assert [each.kind for each in audit.record(rounded, 0.0, 1.0).findings] == ["exact"]


@pytest.mark.parametrize("law", ["laplace", "logistic", "normal"])
def test_noise_whose_sign_depends_on_the_data_hides_no_shift(law):
    """Its law is the same with either sign."""

    def signed(x, rng, size, move=1.0):
        noise = getattr(rng, law)(0.0, 1.0, size)
        return move * x + (noise if x > 0.0 else -noise)

    claim = {"claim": 0.9, "delta": 0.125 if law == "normal" else 0.0}
    assert kinds(audit.record(signed, 0.0, 1.0, **claim)) == ["epsilon"]
    assert audit.record(partial(signed, move=0.8), 0.0, 1.0, **claim).passed
    assert audit.record(partial(signed, move=0.0), 0.0, 1.0).passed


def test_of_exponential_noise_with_two_signs_nothing_is_known():
    def signed(x, rng, size):
        noise = rng.exponential(1.0, size)
        return noise if x > 0.0 else -noise

    assert audit.record(signed, 0.0, 1.0, claim=1.0).epsilon == 0.0


@pytest.mark.parametrize("kind", ["threshold", "smallest"])
def test_noise_of_the_systems_entropy_is_read_as_that_of_a_generator(kind):
    def chosen(x, source):
        if kind == "threshold":
            threshold = mechanisms.Threshold(source, "laplace", 1.0, 2.0)
            return [threshold.reached(x, 0.0), threshold.reached(-x, 1.0)]
        return mechanisms.smallest(source, [x, 1.0, 2.0], np.zeros(3), "gumbel", 1.0, 2)

    ours = lambda x, rng, size: [chosen(x, rng)]  # noqa: E731
    theirs = lambda x, rng, size: [chosen(x, mechanisms.random_source("os"))]  # noqa: E731
    found, expected = (audit.record(each, 0.0, 1.5, sensitivity=1.0) for each in (theirs, ours))
    assert kinds(found) == kinds(expected) and set(kinds(found)) == {"sensitivity"}
    assert [q.shift for q in found.quantities] == [q.shift for q in expected.quantities]


@pytest.mark.parametrize(
    "claim", [ParsedClaim("mu", 0.99, 0.0), ParsedClaim("epsilon", 0.9, 0.125)], ids=["mu", "delta"]
)
def test_numbers_known_up_to_an_error_violate_a_claim_only_beyond_it(claim):
    """Of mu = 1: at epsilon .9 delta is .146, and .142 at .92."""
    entry = Entry(0, "normal", 0, "normal", (1.0, 1.0), (0.0, 1.0), (1.0, 1.0), off=0.0)
    assert violation([entry], math.inf, claim, None)
    assert violation([replace(entry, off=0.02)], math.inf, claim, None) is None


def test_a_law_that_data_turn_around_has_no_known_loss():
    """By the formula for one direction, the loss of Gumbel's law and its mirror was infinite."""
    entry = Entry(0, "gumbel", 0, "gumbel", (1.0, -1.0), (0.0, 1.0), (1.0, -1.0), off=0.0)
    assert loss(entry) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("scale", "release"),
    [
        (1.0, lambda noisy: np.where(noisy > 0.5, np.inf, noisy)),
        (1.0, lambda noisy: np.exp(1e3 * noisy)),
        (1e200, lambda noisy: noisy),
        (1e-310, lambda noisy: noisy),
        (1e308, lambda noisy: np.clip(noisy, -1.7e308, 1.7e308)),
    ],
    ids=["infinite", "overflowing", "huge", "tiny", "largest"],
)
def test_numbers_at_the_ends_of_the_range_give_no_warnings(scale, release):
    """Warnings are errors here, as in many projects."""

    def mechanism(data, rng, size):
        return release(data + rng.laplace(0.0, scale, size))

    assert set(kinds(audit.record(mechanism, 0.0, scale, claim=1.0))) <= {"untested"}
