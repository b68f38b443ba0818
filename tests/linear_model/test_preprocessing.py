"""Public encoders and domains, private bounds, and the noisy quantile."""

import datetime
import io
import math
import pickle
import re

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn import config_context

import dpanalysis as dpa
from dpanalysis.linear_model import LogisticRegression, Ridge
from dpanalysis.preprocessing import PrivateBounds, PublicColumns, PublicEncoder
from dpanalysis.preprocessing.columns import columns_of
from dpanalysis.preprocessing.encoder import parse_domain, read_domain, template, text_of
from dpanalysis.privacy.queries import NoisyQuantile, Records
from dpanalysis.problems.base import ColumnTable

DOMAIN = {
    "age": {"range": (20, 60), "missing": 40},
    "job": {"categories": ["a", "b"], "missing": "?"},
    "sex": ["f", "m"],
}
CELLS = st.fixed_dictionaries({
    "age": st.one_of(st.none(), st.floats(-1e308, 1e308), st.integers(-(10**6), 10**6)),
    "job": st.sampled_from(["a", "b", "?", None, "", float("nan")]),
    "sex": st.sampled_from(["f", " m "]),
})  # fmt: skip


@pytest.mark.slow
@given(st.lists(CELLS, min_size=1, max_size=6))
def test_rows_are_within_the_bounds_that_the_encoder_states(rows):
    table = pd.DataFrame(rows, columns=list(DOMAIN), dtype=object)
    encoder = PublicEncoder(DOMAIN).fit(table)
    X = np.asarray(encoder.transform(table))
    assert X.min() >= 0.0 and X.max() <= 1.0
    for order in (1, 2, math.inf):
        assert np.linalg.norm(X, ord=order, axis=1).max() <= encoder.columns_.radius(order)
    # Each row is encoded independently of the others.
    for i, row in enumerate(rows):
        alone = pd.DataFrame([row], columns=list(DOMAIN), dtype=object)
        np.testing.assert_array_equal(np.asarray(encoder.transform(alone))[0], X[i])


@pytest.mark.parametrize("first", [True, 1, 1.0, "1"])
def test_what_was_seen_before_changes_no_cell(first):
    encoder = PublicEncoder({"x": ["1", "True"]}).fit(np.empty((0, 1), dtype=object))
    later = np.array([[first], [True], [1], ["1"]], dtype=object)
    assert np.asarray(encoder.transform(later))[1:, 1].tolist() == [1.0, 0.0, 0.0]


def test_an_equal_cell_of_another_text_changes_no_cell():
    """12:00 in Greenwich is 13:00 in Paris, and made it the category of the former."""
    greenwich = datetime.datetime(2020, 1, 1, 12, tzinfo=datetime.UTC)
    paris = greenwich.astimezone(datetime.timezone(datetime.timedelta(hours=1)))
    assert greenwich == paris
    domain = {"x": [str(greenwich), str(paris)]}
    encoder = PublicEncoder(domain).fit(np.empty((0, 1), dtype=object))
    for first in (greenwich, paris):
        rows = encoder.transform(np.array([[first], [paris]], dtype=object))
        assert np.asarray(rows)[1].tolist() == [0.0, 1.0]


@pytest.mark.parametrize("last", [pd.Timedelta(days=2), "b"])
def test_a_cell_that_is_no_duration_changes_no_category_of_durations(last):
    """Without it a column of nanoseconds had integers for texts: all rows became "other"."""
    day = pd.Timedelta(days=1)
    cells = pd.Series([day, last])
    encoder = PublicEncoder({"x": {"categories": [str(day)], "other": "else"}})
    rows = encoder.fit_transform(pd.DataFrame({"x": cells}))
    assert np.asarray(rows)[0].tolist() == [1.0, 0.0]


def test_an_hour_changes_no_category_of_days():
    """It gives its unit to an array of NumPy, in which days were written without hours before."""
    for last in ("2024-01-02", "2024-01-02T05", "2024-01-02T05:00:00.000000000"):
        days = np.array([[np.datetime64("2024-01-01")], [np.datetime64(last)]])
        texts = [str(each) for each in days[:, 0].astype("datetime64[us]").tolist()]
        rows = PublicEncoder({"x": ["2024-01-01 00:00:00", texts[1]]}).fit_transform(days)
        assert np.asarray(rows).tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_times_are_not_counted_as_other_categories():
    """A reader makes times of a column unless one record has another text: all rows changed."""
    encoder = PublicEncoder({"x": {"categories": ["2020-01-01", "10:11"], "other": "else"}})
    for second, is_text in (("never", True), ("2020-01-01", False)):
        file = io.StringIO(f"x\n2020-01-01\n{second}\n")
        table = pd.read_csv(file, parse_dates=["x"])
        if is_text:
            assert encoder.fit_transform(table).toarray()[0].tolist() == [1.0, 0.0, 0.0]
            continue
        others = [datetime.time(10, 11)], table["x"].to_numpy("datetime64[ns]")
        for cells in (table["x"], *others):
            with pytest.raises(ValueError, match="row 0, column 'x': expected text, not a time"):
                encoder.transform(pd.DataFrame({"x": cells}))


def test_a_text_among_dates_changes_no_digit_of_the_others():
    """Texts left a column of timestamps, whose nanoseconds counted, while those of dates do not."""
    days = pd.Series(np.arange(10**15, 10**15 + 10**11, 10**8 + 7).view("M8[ns]"))
    mixed = days.astype(object)
    mixed.iloc[-1] = "1970-02-01"
    encoder = PublicEncoder({"x": {"dates": ["1970-01-01", "1970-02-01"]}})
    rows = [np.asarray(encoder.fit_transform(pd.DataFrame({"x": each}))) for each in (days, mixed)]
    np.testing.assert_array_equal(rows[0][:-1], rows[1][:-1])


def test_complex_numbers_are_no_categories():
    """One made a column complex: 1 was (1+0j) then, and "other"."""
    encoder = PublicEncoder({"x": {"categories": ["1"], "other": "else"}})
    with pytest.raises(ValueError, match="a label that is no complex number, got "):
        encoder.fit_transform(pd.DataFrame({"x": [1, 2j]}))


@pytest.mark.parametrize("kind", [np.bool_, np.int8, np.float32, np.float64, bool])
@pytest.mark.parametrize("last", [None, "none of them"])
def test_a_cell_of_another_kind_changes_no_other(kind, last):
    """It makes a table keep NumPy's numbers, which had another text: all rows became "other"."""
    values = [kind(0), kind(1), kind(0.1)] if kind is np.float32 else [kind(0), kind(1)]
    rows = pd.DataFrame({"x": np.array(values)})
    names = [text_of(each) for each in rows["x"].tolist()]
    domain = {"x": {"categories": names, "missing": "?", "other": "else"}}
    found = PublicEncoder(domain).fit_transform(rows).toarray()
    assert not found[:, len(names) :].any()
    cells = pd.DataFrame([{"x": each} for each in values] + [{"x": last}])
    other = PublicEncoder(domain).fit_transform(cells).toarray()
    np.testing.assert_array_equal(other[:-1], found)


def test_missing_cells_count_as_declared():
    encoder = PublicEncoder(DOMAIN)
    X = encoder.fit_transform([[None, None, "f"], [60, "b", "m"], ["", " ", "f"]])
    np.testing.assert_array_equal(
        np.asarray(X), [[0.5, 0, 0, 1, 1, 0], [1, 0, 1, 0, 0, 1], [0.5, 0, 0, 1, 1, 0]]
    )
    names = ["age", "job=a", "job=b", "job=?", "sex=f", "sex=m"]
    assert encoder.get_feature_names_out().tolist() == names


def test_bad_cells_are_named():
    encoder = PublicEncoder({"age": (0, 9), "job": ["a", "b"]}).fit(
        pd.DataFrame(columns=["age", "job"])
    )

    def fails(match, age, job):
        with pytest.raises(ValueError, match=match):
            encoder.transform(pd.DataFrame({"age": [1, age], "job": ["a", job]}, dtype=object))

    fails("row 1, column 'age': expected a number, got 'x'", "x", "a")
    fails("row 1, column 'age': expected a number, since no value", None, "a")
    fails("row 1, column 'age': expected a finite number, got inf", math.inf, "a")
    fails("row 1, column 'age': expected a number, got 'nan'", "nan", "a")  # not: declare missing
    fails("row 1, column 'job': expected one of 'a', 'b', got 'c'", 1, "c")
    fails("row 1, column 'job': expected a category, since none", 1, None)
    numbers = pd.DataFrame({"age": [1.0, np.nan], "job": ["a", "b"]})  # not got np.float64(nan)
    with pytest.raises(ValueError, match=r"since no value is declared for empty cells, got nan$"):
        encoder.transform(numbers)
    filled = PublicEncoder({"age": {"range": (0, 9), "missing": 4}})
    for text in ("NaN", "NA"):  # what other programs write in an empty cell
        with pytest.raises(ValueError, match=f"expected a number or a blank cell, got '{text}'"):
            filled.fit_transform(pd.DataFrame({"age": ["1", text]}))


def test_one_bad_cell_of_every_column_is_named_at_once():
    encoder = PublicEncoder({"age": (0, 9), "job": list("abcdefgh"), "day": {"dates": DAYS}})
    table = pd.DataFrame({"age": ["x", 1, "y"], "job": ["a", "?", "a"], "day": ["2024-02-30"] * 3})
    with pytest.raises(ValueError, match="row 0, column 'age'") as caught:
        encoder.fit_transform(table)
    assert str(caught.value) == (
        "row 0, column 'age': expected a number, got 'x'; "
        "row 1, column 'job': expected one of 'a', 'b', 'c', 'd', 'e' or 3 more, got '?'; "
        "row 0, column 'day': expected a date such as 2024-05-31, got '2024-02-30'"
    )
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value) and again.places == caught.value.places


def test_a_row_of_a_shuffled_table_is_named_by_its_index_too():
    """After a split, the place of a row alone led to another row of the table."""
    table = pd.DataFrame({"a": [1.0, 2.0, np.nan]}).iloc[[2, 0]]
    with pytest.raises(ValueError, match=r"^row 0 \(index 2\), column 'a': expected") as caught:
        PublicEncoder({"a": (0, 9)}).fit_transform(table)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    with pytest.raises(ValueError, match=r"NaN, first in row 0 \(index 2\), column 'a'"):
        PrivateBounds(1.0).fit(table)
    for model in LogisticRegression(), Ridge(target_bounds=(0, 9)):
        with pytest.raises(ValueError, match=r"^y must hold .*, got nan in row 0 \(index 2\)$"):
            model.fit([[0.0], [1.0]], table["a"])
    with pytest.raises(ValueError, match=r"^y must hold .*, got None in row 1 \(index <NA>\)$"):
        index = pd.array([1, None], dtype="Int64")
        LogisticRegression().fit([[0.0], [1.0]], pd.Series(["a", None], index, dtype=object))


@pytest.mark.parametrize(("other", "missing"), [("other", None), ("b", None), ("else", "else")])
def test_a_category_for_everything_that_is_not_listed(other, missing):
    domain = {"categories": ["a", "b"], "other": other}
    domain |= {} if missing is None else {"missing": missing}
    encoder = PublicEncoder({"job": domain}).fit(np.empty((0, 1)))
    names = encoder.get_feature_names_out().tolist()
    assert names == [f"job={each}" for each in dict.fromkeys(["a", "b", other])]
    for again in (encoder, PublicEncoder.from_dict(encoder.to_dict())):
        rows = sp.csr_array(again.transform([["a"], ["zebra"], ["b"], [7]])).toarray()
        found = [names[k].removeprefix("job=") for k in rows.argmax(axis=1)]
        assert found == ["a", other, "b", other]
        if missing is None:
            with pytest.raises(ValueError, match="since none is declared for empty cells"):
                again.transform([[None]])
        else:
            assert sp.csr_array(again.transform([[None]])).toarray().tolist() == [[0, 0, 1]]


DAYS = ("2020-01-01", "2020-01-11")


def test_dates_are_numbers_of_a_public_range(tmp_path):
    texts = ["2020-01-02", "1990-01-01", "2020-01-06T12:00:00", None, "2030-01-01T00:00+02:00"]
    expected = [0.1, 0.0, 0.55, 0.2, 1.0]
    encoder = PublicEncoder({"day": {"dates": DAYS, "missing": "2020-01-03"}})
    stamps = pd.to_datetime(pd.Series([t and t.split("+")[0] for t in texts]), format="ISO8601")
    path = tmp_path / "d.toml"
    path.write_text("[columns]\nday = {dates = [2020-01-01, 2020-01-11], missing = 2020-01-03}\n")
    kept = PublicEncoder.from_dict(encoder.fit(pd.DataFrame({"day": texts})).to_dict())
    assert "other" not in PublicEncoder({"job": ["a", "b"]}).fit([["a"]]).to_dict()["domain"]["job"]
    for each in (encoder, kept, PublicEncoder(path)):
        for column in (texts, stamps, stamps.astype(object)):
            rows = each.fit_transform(pd.DataFrame({"day": column}))
            np.testing.assert_allclose(np.asarray(rows)[:, 0], expected, atol=1e-12)
    assert columns_of(rows).radius(1) == 1.0
    zoned = encoder.transform(pd.DataFrame({"day": ["2020-01-02T01:00+02:00"]}))
    assert np.asarray(zoned)[0, 0] == pytest.approx(23 / 240)
    strict = PublicEncoder({"day": {"dates": DAYS}}).fit(pd.DataFrame({"day": texts}))
    with pytest.raises(ValueError, match="row 3, column 'day': expected a date, since no value"):
        strict.transform(pd.DataFrame({"day": stamps}))
    with pytest.raises(ValueError, match="expected a date such as 2024-05-31, got 20200102"):
        strict.transform([[20200102]])


def test_a_number_outside_its_range_counts_as_the_nearest_end():
    """As the page for new users says."""
    rows = PublicEncoder({"age": (17, 90)}).fit_transform([[95], [90], [3], [17]])
    assert np.asarray(rows)[:, 0].tolist() == [1.0, 1.0, 0.0, 0.0]


def test_categories_without_an_order_are_refused():
    """The order of a set differs between processes, and with it that of the columns."""
    for declared in ({"a", "b"}, {"categories": frozenset("ab")}):
        with pytest.raises(ValueError, match="column 'job': categories must be in an order"):
            PublicEncoder({"job": declared}).fit([["a"]])


def test_the_wrong_columns_are_named():
    table = pd.DataFrame({"age": [1], "job": ["a"]})
    encoder = PublicEncoder({"age": (0, 9), "job": ["a", "b"]}).fit(table)
    with pytest.raises(ValueError, match="X has no column 'job', which the domain declares"):
        encoder.transform(table[["age"]])
    for other in (table[["job", "age"]], table.assign(id=7)[["id", "job", "age"]]):
        np.testing.assert_array_equal(encoder.transform(other), encoder.transform(table))
    with pytest.raises(ValueError, match="several columns named 'job'"):
        encoder.transform(pd.concat([table, table[["job"]]], axis=1))
    for rows in ([{"age": 1, "job": "a"}], [{}]):
        with pytest.raises(ValueError, match="X must be a table with rows and columns"):
            encoder.transform(rows)
    with pytest.raises(ValueError, match="X has 3 features"):
        encoder.transform([[1, "a", 2]])
    with pytest.raises(ValueError, match="2 cells in every row, got 1 in row 1"):
        encoder.transform([[1, "a"], [2]])
    with pytest.raises(ValueError, match="no column 'job', which the domain declares"):
        PublicEncoder({"job": ["a"]}).fit(table[["age"]])
    twice = pd.DataFrame([[1, 2]], columns=["age", "age"])
    with pytest.raises(ValueError, match="several columns named 'age'"):
        PublicEncoder({"age": (0, 9)}).fit(twice)
    with pytest.raises(ValueError, match="must have the 1 columns"):
        PublicEncoder({"age": (0, 9)}).fit(np.zeros((2, 2)))


@pytest.mark.parametrize(
    ("declared", "match"),
    [
        ((5, 5), "low must be below high"), ((0, math.inf), "two finite numbers"),
        ((0, 5e-324), "low must be below high"),  # cells at 0 used to become NaN
        ([], "list of different values"), (["a", "a"], "list of different values"),
        (["a", None], "categories must be labels"),
        ("FILL IN", "not filled in yet"), (7, "declare a range"),
        ({"range": [0, 1], "categories": ["a"]}, "must have 'range' or 'categories'"),
        ({"range": [0, 1], "lost": 2}, "must have 'range' or 'categories'"),
        ({"range": [0, 1], "missing": "x"}, "two finite numbers"),
        ({"range": "01"}, "two finite numbers"),
        ({"range": [0, 1], "other": "x"}, "and 'other' beside categories"),
        ({"dates": ["2020-01-01"]}, "dates must be the first and the last date"),
        ({"dates": ["2020-01-01", "x"]}, "dates must be the first and the last date"),
        ({"dates": [1, 2]}, "dates must be the first and the last date"),
        ({"dates": ["2020-01-02", "2020-01-01"]}, "the first date must be before the last"),
    ],
)  # fmt: skip
def test_bad_domains_are_named(declared, match):
    with pytest.raises(ValueError, match=f"domain of column 'x': .*{match}"):
        parse_domain({"x": declared})


def test_domains_in_toml(tmp_path):
    path = tmp_path / "domain.toml"
    path.write_text(template(["age", 'quoted "name"', "ü"]), encoding="utf-8")
    with pytest.raises(ValueError, match=r"domain.toml: domain of column 'age': not filled in"):
        read_domain(path)
    path.write_text("classes = [0, 1]\n[columns]\nage = {range = [0, 9], missing = 1}\n")
    encoder = PublicEncoder(path).fit(pd.DataFrame({"age": [1.0]}))
    assert np.asarray(encoder.transform([[None]])).tolist() == [[1 / 9]]
    assert read_domain(path)[1] == [0, 1] and encoder.columns_.classes == (0, 1)
    columns = "\n[columns]\nage = [0, 1]"
    for text in ("age = [0, 1]", "[columns", f"classes = 3{columns}", f"classes = []{columns}"):
        path.write_text(text)
        with pytest.raises(ValueError, match=r"domain\.toml: "):
            read_domain(path)
    with pytest.raises(ValueError, match="missing must be within its range, 0 to 9, got 300"):
        PublicEncoder({"age": {"range": (0, 9), "missing": 300}}).fit([[1.0]])


def test_a_domain_file_may_begin_with_a_byte_order_mark(tmp_path):
    (tmp_path / "d.toml").write_text("[columns]\na = [0, 1]\n", encoding="utf-8-sig")
    assert PublicEncoder(tmp_path / "d.toml").fit([[1.0]]).columns_.d == 1


@pytest.mark.parametrize("unit", ["s", "us", "ns"])
@pytest.mark.parametrize("kind", ["datetime64", "timedelta64"])
def test_dates_and_durations_are_no_numbers_in_any_unit(kind, unit):
    """Nanoseconds were whole numbers, far beyond every range."""
    table = pd.DataFrame(
        {"x": np.array([10**18, "NaT"], dtype=f"{kind}[ns]").astype(f"{kind}[{unit}]")}
    )
    with pytest.raises(ValueError, match="row 0, column 'x': expected a number or a blank cell"):
        PublicEncoder({"x": {"range": (0, 100), "missing": 50}}).fit_transform(table)


def test_dates_are_declared_as_dates_and_their_missing_value_lies_among_them():
    first, last = datetime.date(2020, 1, 1), datetime.date(2024, 12, 31)
    times = np.datetime64(first), np.datetime64(last)
    for pair in ((first, last), times):
        with pytest.raises(ValueError, match=r'declare dates as \{"dates": \[first, last\]\}'):
            PublicEncoder({"a": pair}).fit([[first]])
    for missing in (datetime.date(1999, 1, 1), "2025-01-01"):
        with pytest.raises(ValueError, match="missing must be within the dates"):
            PublicEncoder({"a": {"dates": (first, last), "missing": missing}}).fit([[first]])
    encoder = PublicEncoder({"a": {"dates": (first, last)}}).fit([[first]])
    same = PublicEncoder({"a": {"dates": times}}).fit([[first]])
    assert same.transform([[first], [last]]).tolist() == [[0.0], [1.0]]
    with pytest.raises(ValueError, match="X must be a table with rows and columns"):
        encoder.transform(np.zeros(3))
    with pytest.raises(ValueError, match=r"expected a date, .*, got ''"):
        encoder.transform([[first], [""]])


@pytest.mark.parametrize("cell", ["4_5", "\u0664\u0665", b"4_5"])
def test_numbers_that_python_alone_reads_are_refused(cell):
    """float() reads both as 45, and no reader of CSV files does."""
    encoder = PublicEncoder({"a": (0, 90)}).fit([[1.0]])
    with pytest.raises(ValueError, match=re.escape(f"expected a number, got {cell!r}")):
        encoder.transform([[cell]])


@pytest.mark.parametrize("value", [1.7e308, -1.7e308, 2.0**41])
def test_a_record_whose_norm_overflows_changes_learned_bounds_like_any_other(value):
    """It was an error with the number of its row."""
    X = np.random.default_rng(0).uniform(0, 1, (5000, 2))
    X[7] = np.sign(value) * 2.0**40.5
    near = PrivateBounds(1.0, random_state=0).fit(X)
    X[7] = value
    far = PrivateBounds(1.0, random_state=0).fit(X)
    assert far.low_.tolist() == near.low_.tolist() and far.high_.tolist() == near.high_.tolist()
    assert 0.0 <= far.transform(X).min() <= far.transform(X).max() <= 1.0


def test_the_farthest_candidate_can_be_learned():
    X = np.random.default_rng(0).uniform(-1, 1, (5000, 1)) * 2.0**40
    found = PrivateBounds(1.0, random_state=0).fit(X)
    assert found.low_[0] < -(2.0**39.8) and found.high_[0] > 2.0**39.8


def test_a_learned_value_of_missing_cells_is_paid_for():
    X = pd.DataFrame({"a": np.random.default_rng(0).uniform(0, 1, 5000)})
    low = PrivateBounds(0.5).fit(X).low_[0]
    numbers = {"range": (-1, 9), "missing": low}
    for domain in (numbers, {"categories": [low, 7.0]}, {"categories": [7.0], "other": low}):
        encoder = PublicEncoder({"a": domain}).fit(X)
        assert encoder.columns_.epsilon == pytest.approx(0.5)


def test_what_is_no_table_is_named():
    with pytest.raises(ValueError, match="X must be a table with rows and columns"):
        PublicEncoder({"a": (0, 1)}).fit(None)
    with pytest.raises(ValueError, match=r"not .* as in column 'job'"):
        PrivateBounds(1.0).fit(pd.DataFrame({"age": [1.0, 2.0], "job": ["a", "b"]}))


def test_columns_stay_with_rows_and_with_nothing_else():
    encoder = PublicEncoder({"a": (0, 1), "b": (0, 1)})
    X = encoder.fit_transform([[0.1, 0.2], [0.3, 0.4]])
    assert repr(columns_of(X)) == repr(encoder.columns_)
    assert repr(columns_of(X[:1])) == repr(encoder.columns_)
    assert columns_of(pickle.loads(pickle.dumps(X))).d == 2
    for other in (X[:, :1], 2 * X, X + X, X.T @ X, np.asarray(X), X[0]):
        assert getattr(other, "ndim", 1) < 2 or columns_of(other) is None
    centered, X = X - 0.2, encoder.transform(X)
    X -= 0.2  # in place, it is computed as well
    assert columns_of(X) is None and (centered == X).all()
    many = {"word": [str(k) for k in range(50)]}
    rows = PublicEncoder(many).fit_transform([["1"], ["7"]])
    assert sp.issparse(rows) and columns_of(rows).groups == ((0, 50),)


def test_columns_in_another_order_lose_their_ranges_and_groups():
    """A row with two numbers in a group of indicators would be scaled down to the group's bound."""
    encoder = PublicEncoder({"a": (0, 1), "job": ["x", "y"], "b": (0, 1)})
    X = encoder.fit_transform([[0.1, "x", 0.2], [0.3, "y", 0.4], [0.5, "x", 0.6]])
    every, order = np.arange(4), [0, 3, 2, 1]
    kept = X[:, :], X[1:, every], X[..., :], X[[2, 0], ...], X[:2, X[0] > -1], X[np.ix_([1], every)]
    for rows in kept:
        assert columns_of(rows).groups == ((1, 3),)
    for rows in (X[:, order], X[:, ::-1], X[..., order], X[np.ix_([1], order)], np.fliplr(X)):
        assert rows.shape[1] == 4 and columns_of(rows) is None
    assert columns_of(X).groups == ((1, 3),) and X[None, 2].shape == (1, 4) and X[0, 0] == 0.1


def test_many_categories_make_a_table_where_one_is_asked_for():
    """Elsewhere they give sparse rows, of which scikit-learn cannot make a table."""
    values = [f"v{k}" for k in range(50)]
    X = pd.DataFrame({"job": values[::-1]})
    expected = np.eye(50)[::-1]
    encoder = PublicEncoder({"job": values})
    asked = PublicEncoder({"job": values}).set_output(transform="pandas").fit_transform(X)
    with config_context(transform_output="pandas"):
        found = encoder.fit_transform(X)
        plain = PublicEncoder({"job": values}).set_output(transform="default").fit_transform(X)
    assert sp.issparse(plain) and sp.issparse(encoder.transform(X))
    for table in (asked, found):
        assert table.columns.tolist() == [f"job={value}" for value in values]
        np.testing.assert_array_equal(table.to_numpy(), expected)


def test_columns_keep_the_ranges_that_were_checked():
    """An array that is written to later would be theirs."""
    low, high = np.zeros(2), np.ones(2)
    columns = PublicColumns(low, high)
    low[0], high[0] = 5.0, 1e9
    assert columns.low.tolist() == [0.0, 0.0] and columns.radius(1) == 2.0


def test_columns_check_what_they_are_given():
    with pytest.raises(ValueError, match="low must be below high"):
        PublicColumns([0, 1], [1, 1])
    with pytest.raises(ValueError, match="one number a column"):
        PublicColumns([0], [1, 1])
    for groups in ([(0, 2), (1, 3)], [(2, 1)], [(0, 4)], [(-1, 1)]):
        with pytest.raises(ValueError, match="groups must be"):
            PublicColumns([0, 0, 0], [1, 1, 1], groups)


@pytest.mark.parametrize(
    ("categories", "cells"),
    [
        (["1", "2"], ["01", "2", "1.0"]),
        (["0.5", "1e3"], ["0.50", "1000", ".5"]),
        (["True", "False"], ["TRUE", "false", "True"]),
        (["01", "02"], ["01", "02", "01"]),
        (["3.10", "3.9"], ["3.10", "3.9", "3.1"]),
        (["true", "false"], ["true", "false", "true"]),
        (["9007199254740993", "1"], ["9007199254740993", "1", ""]),
    ],
)
def test_one_cell_does_not_decide_how_others_are_read(categories, cells):
    """With a ``?`` in the column pandas keeps 01 as text; without one it reads the number 1."""
    missing = {"missing": "none"} if "" in cells else {}
    encoder = PublicEncoder({"a": {"categories": categories, "other": "other", **missing}})
    found = []
    for last in (cells[-1], "?"):
        table = "\n".join(["a,b", *(f"{cell}," for cell in [*cells[:-1], last])])
        rows = pd.read_csv(io.StringIO(table), usecols=["a"])
        try:
            found.append(encoder.fit_transform(rows)[: len(cells) - 1])
        except ValueError as error:
            assert "read it with dtype=str" in str(error)
    part = [np.asarray(each.todense() if sp.issparse(each) else each) for each in found]
    assert part and all((each == part[0]).all() for each in part)


# --- private bounds ---


@pytest.mark.parametrize("side", ["below", "above"])
def test_a_noisy_quantile_has_the_law_of_the_sparse_vector_that_is_charged(side):
    """A chi-squared test of 6,000 answers at 1e-4; < in place of <= would be detected."""
    from scipy import stats

    from dpanalysis import audit
    from dpanalysis.privacy import mechanisms
    from dpanalysis.privacy.events import AboveThreshold

    column = np.array([[0.0], [0.0], [1.0], [1.5], [2.0], [7.0]])
    grid = np.array([0.0, 1.0, 2.0, 4.0])
    counts = [2, 3, 5, 5] if side == "below" else [1, 2, 4, 6]  # from the first candidate on
    query = NoisyQuantile(0, 0.5, grid, 1.5, side)
    law = audit.above_threshold_distribution(np.array(counts) - 3.0, "laplace", 1.5, 3.0)
    expected = [*law[:3], law[3] + law[4]]  # the last candidate where none is found
    random, records = mechanisms.random_source(4), Records(ColumnTable(column), None, 6.0)
    found = [query.answer(records, random)[0] for _ in range(6000)]
    order = grid if side == "below" else grid[::-1]
    observed = [found.count(c) for c in order.tolist()]
    assert stats.chisquare(observed, 6000 * np.array(expected)).pvalue > 1e-4
    event = query.event(ColumnTable(column).facts("replace_one"), dpa.Full())
    assert event == AboveThreshold("laplace", 1.5, 3.0, 1.0, None)
    assert event.pure_cost() == pytest.approx(2 / 1.5)


def test_a_table_of_columns_is_a_copy():
    """Its numbers are checked once."""
    X = np.ones((5, 2))
    table = ColumnTable(X)
    X[0] = np.nan
    assert table.X.min() == 1.0


@pytest.mark.parametrize("relation", ["replace_one", "add_or_remove_one"])
def test_the_run_of_all_columns_costs_its_budget(relation):
    from dpanalysis.methods.perturbation import Quantiles

    table = ColumnTable(np.random.default_rng(0).normal(size=(100, 3)))
    method = Quantiles(0.9, (-1.0, 0.0, 1.0, 4.0))
    result = dpa.minimize(table, method, dpa.Budget(0.7, 0.0, relation), rng=0, record=())
    assert result.epsilon() == pytest.approx(0.7) and len(result.ledger.events) >= 1
    for budget in (None, dpa.Budget.zcdp(0.1, relation)):
        with pytest.raises(ValueError, match="budget must be of epsilon for quantiles"):
            dpa.minimize(table, method, budget, record=())


@pytest.mark.slow
def test_private_bounds_are_found_charged_and_used():
    rng = np.random.default_rng(0)
    years = rng.integers(1990, 2021, 20_000)
    zeros = rng.integers(0, 2, 20_000)
    X = np.column_stack([
        rng.normal(170, 10, 20_000), rng.exponential(1e4, 20_000), years, zeros, -years
    ])  # fmt: skip
    bounds = PrivateBounds(0.5, random_state=0).fit(X)
    inside = (bounds.low_ <= X) & (bounds.high_ >= X)
    assert (inside.mean(axis=0) > 0.95).all()
    assert (bounds.high_ <= [220, 1e5, 2040, 1.1, -1970]).all()
    assert (bounds.low_ >= [120, -2e4, 1970, -0.1, -2040]).all()
    rows = bounds.transform(X)
    assert rows.min() == 0.0 and rows.max() == 1.0
    assert columns_of(rows).epsilon == 0.5


def test_too_few_rows_for_bounds_are_said_before_anything_is_spent():
    X = np.random.default_rng(0).normal(size=(200, 5))
    with pytest.raises(ValueError, match="too little for the ranges of 5 columns of 200 rows"):
        PrivateBounds(0.1).fit(X)
    for n in range(40, 60):
        with pytest.raises(ValueError, match="is enough") as caught:
            PrivateBounds(0.1).fit(X[:n, :1])
        PrivateBounds(float(str(caught.value).split("rows: ")[1].split()[0])).fit(X[:n, :1])
    with pytest.raises(ValueError, match="trimmed"):
        PrivateBounds(1.0, trimmed=0.5).fit(X)
    with pytest.raises(ValueError, match="epsilon"):
        PrivateBounds(0.0).fit(X)


@given(st.floats(0.05, 5.0), st.integers(1, 4))
def test_no_search_stops_before_all_records(epsilon, d):
    """The fit is refused just below the smallest number of rows, and accepted just above."""
    candidates = 2 * (60 * 700 + 1) + 1
    least = 16.0 * d / epsilon * math.log(160.0 / 3.0 * d * candidates)
    n, asked = math.ceil(least), []

    def stop(table, method, *_, **__):
        asked.append(method.level)
        raise InterruptedError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dpanalysis.preprocessing.private_bounds.minimize", stop)
        with pytest.raises(ValueError, match="too little for the ranges"):
            PrivateBounds(epsilon).fit(np.zeros((n - 1, d)))
        with pytest.raises(InterruptedError):
            PrivateBounds(epsilon).fit(np.zeros((n + 1, d)))
    share = 4.0 * d / epsilon * math.log(160.0) / (n + 1)
    assert asked == [pytest.approx(1.0 - max(0.01, share))]


@pytest.mark.parametrize(("epsilon", "d"), [(0.275, 5), (1.2, 20)])
def test_the_least_epsilon_gives_ranges_of_the_size_of_the_data(epsilon, d):
    """One fit in 40 may fail; none of these seeds does."""
    X = np.random.default_rng(0).uniform(17.0, 90.0, (5000, d))
    with pytest.raises(ValueError, match=f"for the ranges of {d} columns"):
        PrivateBounds(0.97 * epsilon).fit(X)
    for seed in range(6):
        bounds = PrivateBounds(epsilon, random_state=seed).fit(X)
        inside = (bounds.low_ <= X) & (bounds.high_ >= X)
        assert bounds.low_.min() > 10.0 and bounds.high_.max() < 100.0
        assert inside.mean() > 0.6


@pytest.mark.parametrize("value", [0.0, -3.0, 5e-324, 1e30])
def test_bounds_of_a_constant_column_are_a_range(value):
    bounds = PrivateBounds(1.0, random_state=0).fit(np.full((2000, 1), value))
    assert bounds.low_ < bounds.high_ and np.isfinite(bounds.transform([[value]])).all()
    assert bounds.transform([[-1e300], [1e300]]).tolist() == [[0.0], [1.0]]


@pytest.mark.slow
def test_bounds_are_shares_of_the_nominal_size():
    """The level of an end is a share of the nominal size: a larger size leaves out less."""
    X = np.linspace(0.0, 1.0, 4001)[:, None]
    options = {"relation": "add_or_remove_one", "random_state": 0, "trimmed": 0.2}
    exact = {
        size: PrivateBounds(1e3, size=size, **options).fit(X).high_[0]
        for size in (None, 4001, 8000)
    }
    assert exact[None] == exact[4001] == pytest.approx(0.81, abs=0.02)
    assert exact[8000] > 1e6  # 80 % of 8000 rows are never reached: the last candidate
    with pytest.raises(ValueError, match=r"too little for the ranges of 1 columns of 50 rows"):
        PrivateBounds(0.1, size=50, relation="add_or_remove_one").fit(X[:60])
    with pytest.raises(ValueError, match="size must be at least half"):
        PrivateBounds(1.0, size=2000).fit(X)


def test_bounds_of_public_columns_hold_at_their_corners():
    columns = PublicColumns([-3.0, 0.0, 0.0, 0.0], [1.0, 2.0, 1.0, 1.0], [(2, 4)])
    corner = np.array([[-3.0, 2.0, 0.0, 1.0]])
    for bound in columns.row_bound:
        assert bound.radius == pytest.approx(np.linalg.norm(corner[0], bound.order))
    problem = dpa.ERM(corner, [1], dpa.losses.Logistic(), row_bound=columns.row_bound)
    assert problem._data.scale is None


def test_a_saved_encoder_takes_missing_cells_as_the_first_one_did():
    encoder = PublicEncoder(DOMAIN).fit(pd.DataFrame({"age": [30], "job": ["a"], "sex": ["f"]}))
    again = PublicEncoder.from_dict(encoder.to_dict())
    table = pd.DataFrame({"age": [math.nan, 20.0], "job": [None, "b"], "sex": ["f", "m"]})
    np.testing.assert_array_equal(again.transform(table), encoder.transform(table))


@pytest.mark.parametrize("trimmed", [0.0, 0.25, 0.5])
def test_a_share_that_leaves_no_middle_is_refused(trimmed):
    with pytest.raises(ValueError, match=r"trimmed must lie in \(0, 0.25\)"):
        PrivateBounds(1.0, trimmed=trimmed).fit(np.linspace(0.0, 1.0, 2000)[:, np.newaxis])


@pytest.mark.parametrize("cells", [[[None], ["nan"]], [["nan"], [None]], [["1"], [None], [" NaN"]]])
def test_text_that_python_reads_as_nan_is_no_empty_cell(cells):
    encoder = PublicEncoder({"a": {"range": (0, 10), "missing": 5}}).fit([[1]])
    with pytest.raises(ValueError, match=r"expected a number or a blank cell, got ' ?[nN]a[nN]'"):
        encoder.transform(cells)


@pytest.mark.parametrize("kind", ["range", "categories", "dates"])
def test_a_domain_that_is_no_list_is_named(kind):
    with pytest.raises(ValueError, match=r"'a'.*got 5"):
        PublicEncoder({"a": {kind: 5}}).fit([[1]])
    with pytest.raises(ValueError, match="expected a number, got 1000"):
        PublicEncoder({"a": {"range": (0, 1)}}).fit([[1]]).transform([[10**400]])


def test_bounds_are_not_learned_of_rows_whose_width_was_read_off(tmp_path):
    (tmp_path / "rows.txt").write_text("1 1:2\n" * 500)
    X, _ = dpa.datasets.load_libsvm(tmp_path / "rows.txt")
    with pytest.raises(ValueError, match="n_features"):
        PrivateBounds(1.0).fit(X)


def test_bounds_are_not_learned_of_empty_cells():
    X = np.ones((500, 1))
    X[3] = np.nan
    with pytest.raises(ValueError, match="Input X contains NaN, first in row 3, column 0: a Pub"):
        PrivateBounds(1.0).fit(X)
    with pytest.raises(ValueError, match="domain of column 'a'"):
        PublicEncoder({"a": (0, 10**400)}).fit([[1]])


def test_a_huge_number_is_cut_without_a_warning():
    """A warning would reveal that such a record exists."""
    X = np.full((100, 1), 5e-4)
    X[3] = 1e308
    encoded = PublicEncoder({"x": (0.0, 1e-3)}).fit_transform(X)
    assert encoded[3] == 1.0 and encoded[0] == 0.5
    bounds = PrivateBounds(epsilon=100.0, random_state=0).fit(X)
    assert bounds.high_ < 1e-2 and bounds.transform(X)[3] == 1.0
    X[4] = -1e-310
    with np.errstate(all="raise"):
        assert PublicEncoder({"x": (0.0, 1e3)}).fit_transform(X)[4] == 0.0
        assert bounds.transform(X)[4] == bounds.transform(np.zeros((1, 1)))


def test_no_setting_of_numpy_tells_of_a_long_double_that_is_no_double():
    """Under np.seterr(all="raise") a number of 1e-320 ended whatever converts long doubles."""
    X = np.zeros((600, 2), dtype=np.longdouble)
    X[3, 1] = np.longdouble("1e-320") * (1 + np.longdouble(2.0) ** -60)
    y = [-1.0, 1.0] * 300
    with np.errstate(all="raise"):
        PublicEncoder({"a": (0, 1), "b": (0, 1)}).fit_transform(X)
        dpa.ERM(X, y, dpa.losses.Logistic(), row_bound=dpa.RowBound(2, 1.0))
        PrivateBounds(9.0, random_state=0)._numbers(X)


@pytest.mark.parametrize("row", [[0.5], [0.5, 0.5, 0.5]])
def test_a_row_with_fewer_or_more_cells_is_named(row):
    encoder = PublicEncoder({"a": (0, 1), "b": (0, 1)}).fit([[0.5, 0.5]])
    with pytest.raises(ValueError, match=f"2 cells in every row, got {len(row)} in row 1"):
        encoder.transform([[0.5, 0.5], row])
