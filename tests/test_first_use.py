"""Common mistakes of new users: each message says what to do."""

import subprocess
import sys
import tempfile
import warnings

import numpy as np
import pytest

import dpanalysis as dpa
from dpanalysis import datasets, losses
from dpanalysis.papers import registry, report

X = np.array([[0.5, 0.1], [0.2, 0.4], [0.9, 0.3]])
WORDS = np.array(["yes", "no", "yes"])


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (
            lambda: dpa.ERM(X, WORDS, losses.Logistic()),
            TypeError,
            r"np\.where\(y == 'yes', 1, -1\)",
        ),
        (
            lambda: dpa.problems.Softmax(X, WORDS.astype(object)),
            TypeError,
            r"np\.unique\(y, return_inverse=True\)\[1\]",
        ),
        (
            lambda: dpa.ERM(X, [1, -1, 1], losses.Logistic(), 0.1),
            TypeError,
            r"dpanalysis\.regularizers, such as L2\(0\.1\), got 0\.1",
        ),
        (
            lambda: dpa.ERM(np.where(X > 0.8, np.nan, X), [1, -1, 1], losses.Logistic()),
            ValueError,
            r"X must be finite, got 1 NaN .*\(first in row 2, column 0\)",
        ),
        (
            lambda: dpa.ERM(X, [1, np.inf, 1], losses.Logistic()),
            ValueError,
            r"y must be finite.*\(first in row 1\)",
        ),
    ],
)
def test_messages_say_what_to_do(make, error, match):
    with pytest.raises(error, match=match):
        make()


def test_entries_of_sparse_rows_are_named():
    sp = pytest.importorskip("scipy.sparse")
    rows = sp.csr_array(np.array([[0.0, 1.0], [0.0, 0.0], [0.0, np.inf]]))
    with pytest.raises(ValueError, match=r"\(first in row 2, column 1\)"):
        dpa.ERM(rows, [1, -1, 1], losses.Logistic())


def test_columns_of_a_data_frame_are_named():
    pd = pytest.importorskip("pandas", reason="needs pandas")
    table = pd.DataFrame({"age": [30.0, np.nan, 50.0], "job": ["clerk", "nurse", "clerk"]})
    with pytest.raises(TypeError, match=r"in column 'job'.*PublicEncoder"):
        dpa.ERM(table, [1, -1, 1], losses.Logistic())
    with pytest.raises(ValueError, match=r"\(first in row 1, column 'age'\)"):
        dpa.ERM(table[["age"]], [1, -1, 1], losses.Logistic())


@pytest.fixture
def people(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text("age,rich\n30,yes\n80,no\n")
    return path


def test_labels_in_words_get_a_hint(people, tmp_path):
    with pytest.raises(ValueError, match=r"line 2, column 'rich': .*'yes'; .*labels=\{'no': -1"):
        datasets.load_csv(people, label="rich", columns={"age": (0, 100)})
    path = tmp_path / "a.libsvm"
    path.write_text("yes 1:0.5\n")
    with pytest.raises(ValueError, match="line 1: expected a label, got 'yes': labels are numbers"):
        datasets.load_libsvm(path)


def test_a_list_of_columns_is_no_mapping_of_domains(people):
    with pytest.raises(TypeError, match=r"columns must be a mapping such as \{'age': \(0, 100\)"):
        datasets.load_csv(people, label="rich", columns=["age"])
    with pytest.raises(TypeError, match=r"labels must be a mapping"):
        datasets.load_csv(people, label="rich", labels=["no", "yes"])


def test_a_class_that_needs_scikit_learn_says_so():
    program = """
import sys
import tempfile
sys.modules["sklearn"] = None
import dpanalysis.linear_model, dpanalysis.preprocessing
for name in ("linear_model.Ridge", "preprocessing.PublicEncoder"):
    package, _, last = name.partition(".")
    try:
        getattr(getattr(dpanalysis, package), last)
    except ImportError as error:
        print(error)
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    for line, name in zip(ran.stdout.splitlines(), ("Ridge", "PublicEncoder"), strict=True):
        assert f".{name} needs scikit-learn: pip install 'dpanalysis-toolkit[sklearn]'" in line


MASKED = np.ma.masked_invalid(np.where(X > 0.8, np.nan, X))


def classifier(X, y):
    pytest.importorskip("sklearn", reason="needs scikit-learn")
    from dpanalysis.linear_model import LogisticRegression

    return LogisticRegression(bounds=(0.0, 1.0), random_state=0).fit(X, y)


def module(X, y):
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    return dpa.problems.Module(torch.nn.Linear(2, 2), X, y)


def chunked(X, y):
    da = pytest.importorskip("dask.array", reason="needs Dask")
    return dpa.ERM(da.from_array(X, chunks=(2, 2), asarray=False), y, losses.Logistic())


def ranges(X, y):
    pytest.importorskip("sklearn", reason="needs scikit-learn")
    from dpanalysis.preprocessing import PrivateBounds

    return PrivateBounds(1.0).fit(X)


def answers(X, y):
    return classifier(np.ones((50, 2)), np.arange(50) % 2).predict(X)


def answers_of_tensors(X, y):
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    problem = dpa.ERM(torch.ones(3, 2), y, losses.Logistic())
    return problem.accuracy(np.ones(2), X, y)


MAKERS = [
    lambda X, y: dpa.ERM(X, y, losses.Logistic()),
    lambda X, y: dpa.problems.MLP(X, (np.asarray(y) + 1) // 2, (3,)),
    classifier,
    module,
    chunked,
]


@pytest.mark.parametrize("make", [*MAKERS, ranges, answers, answers_of_tensors])
def test_a_masked_table_is_refused(make):
    with pytest.raises(TypeError, match="X must not be a masked array, whose mask would be lost"):
        make(MASKED, np.array([1, -1, 1]))


def in_a_file(X, y):
    with tempfile.TemporaryFile() as file:
        rows = np.memmap(file, dtype=np.float64, mode="w+", shape=X.shape)
    rows[...] = X
    return dpa.ERM(rows, y, losses.Logistic())


@pytest.mark.parametrize("make", [MAKERS[0], in_a_file, classifier, module, chunked])
def test_masked_labels_are_refused(make):
    with pytest.raises(TypeError, match="y must not be a masked array"):
        make(X, np.ma.array([1, -1, 1], mask=[0, 0, 1]))


def test_a_masked_start_or_table_to_encode_is_refused():
    problem = dpa.Quadratic([1.0, 2.0])
    method = dpa.methods.GradientDescent(0.1, 2)
    with pytest.raises(TypeError, match="w0 must not be a masked array"):
        dpa.minimize(problem, method, w0=np.ma.array([1.0, 2.0], mask=[0, 1]))
    pytest.importorskip("sklearn", reason="needs scikit-learn")
    from dpanalysis.preprocessing import PublicEncoder

    with pytest.raises(TypeError, match="X must not be a masked array"):
        PublicEncoder({"a": (0, 1), "b": (0, 1)}).fit(MASKED)


def test_a_warning_about_the_step_size_points_at_the_users_line():
    problem = dpa.Quadratic([1.0, 2.0])
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        dpa.minimize(problem, dpa.methods.GradientDescent(3.0, 2), w0=[1.0, 1.0])
        dpa.minimize(problem, dpa.methods.HeavyBall(3.0, 0.5, 2), w0=[1.0, 1.0])
    assert len(told) == 2 and all("step_size 3 is above 2/L" in str(each.message) for each in told)
    assert {each.filename for each in told} == {__file__}


@pytest.mark.slow
def test_a_page_of_claims_can_be_moved_sideways_on_a_narrow_screen():
    chosen = registry.load("Kuru")[0]
    page = report.to_html(report.Table([chosen.run()]))
    assert page.count("<div class='wide'>") == page.count("</table></div>") == 1
    assert ".wide { overflow-x: auto; }" in page
