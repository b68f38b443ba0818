"""The commands that take CSV files: fit, predict, evaluate, domain."""

import csv
import gzip
import json
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline

from dpanalysis.__main__ import main
from dpanalysis.commands import CsvFile
from dpanalysis.linear_model import LogisticRegression, load, save
from dpanalysis.preprocessing import PublicEncoder

TOML = """
classes = ["no", "yes"]
[columns]
age = {range = [0, 100], missing = 50}
"home, town" = ["a", "b, c"]
"""


def write(path, n=600, seed=0, bom=False, newline="\n"):
    rng = np.random.default_rng(seed)
    with open(path, "w", newline="", encoding="utf-8-sig" if bom else "utf-8") as file:
        writer = csv.writer(file, lineterminator=newline)
        writer.writerow(["id", "age", "home, town", "rich"])
        for i in range(n):
            age, town = int(rng.integers(0, 101)), rng.choice(["a", "b, c"])
            rich = "yes" if age > 50 else "no"
            writer.writerow([i, "" if i % 50 == 7 else age, town, rich])
    return path


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write("train.csv", bom=True)
    write("test.csv", seed=1, newline="\r\n")
    (tmp_path / "domain.toml").write_text(TOML)
    return tmp_path


FIT = ["fit", "train.csv", "--label", "rich", "--domain", "domain.toml", "--epsilon", "5"]


def fails(capsys, argv, match):
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert match in said, said


def test_from_a_table_to_predictions(folder, capsys):
    assert main([*FIT, "--out", "m.json", "--card", "card.html", "--seed", "0"]) == 0
    assert "epsilon = 5, delta = 0 (pure)" in capsys.readouterr().out
    assert "<!doctype html>" in (folder / "card.html").read_text()
    assert json.loads((folder / "m.json").read_text())["classes"] == ["no", "yes"]
    assert main(["evaluate", "test.csv", "--model", "m.json", "--label", "rich"]) == 0
    said = capsys.readouterr().out
    assert "NOT private" in said
    scores = dict(line.split(": ") for line in said.splitlines() if ": " in line and "." in line)
    assert 0.0 < float(scores["log loss"]) < 1.0
    assert float(scores["accuracy"]) > 0.9 and float(scores["area under the curve"]) > 0.95
    assert main(["predict", "test.csv", "--model", "m.json", "-o", "p.csv"]) == 0
    with open("p.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 600 and set(rows[0]) == {"prediction", "p(no)", "p(yes)"}
    assert {row["prediction"] for row in rows} == {"no", "yes"}
    assert float(rows[0]["p(no)"]) + float(rows[0]["p(yes)"]) == pytest.approx(1.0, abs=1e-5)
    with gzip.open("test.csv.gz", "wb") as file:
        file.write((folder / "test.csv").read_bytes())
    assert main(["predict", "test.csv.gz", "--model", "m.json"]) == 0
    assert capsys.readouterr().out == (folder / "p.csv").read_text()


@pytest.mark.filterwarnings("always::dpanalysis.linear_model.PrivacyWarning")
def test_a_warning_is_a_line_of_words(folder, capsys):
    write("few.csv", n=80)
    few = ["fit", "few.csv", *FIT[2:-1], "0.01"]
    assert main([*few, "--out", "few.json"]) == 0
    said = capsys.readouterr().err.splitlines()
    assert said and all(line.startswith("warning: ") for line in said)


def test_a_nominal_size_is_what_the_card_shows(folder, capsys):
    added = ["--relation", "add_or_remove_one", "--seed", "0", "--out", "m.json", "--force"]
    assert main([*FIT, *added, "--size", "500"]) == 0
    said = capsys.readouterr().out
    assert "nominal size 500" in said and "600 records" not in said
    fails(capsys, [*FIT, *added, "--size", "200"], "size must be at least half of the number")
    assert main([*FIT, *added]) == 0
    assert "600 records" in capsys.readouterr().out


def test_the_same_as_the_estimator_but_for_single_precision(folder, capsys):
    import pandas as pd

    from dpanalysis.linear_model import LinearSVC, load
    from dpanalysis.preprocessing import PublicEncoder

    assert main([*FIT, "--out", "m.json", "--kind", "svm", "--seed", "3"]) == 0
    table = pd.read_csv("train.csv", encoding="utf-8-sig")
    encoder = PublicEncoder("domain.toml").fit(table)
    model = LinearSVC(5.0, classes=["no", "yes"], random_state=3)
    model.fit(encoder.transform(table), table["rich"])
    loaded = load("m.json").steps[1][1]
    np.testing.assert_allclose(loaded.coef_, model.coef_, rtol=1e-4)


def test_a_template_names_the_columns_and_no_value(folder, capsys):
    assert main(["domain", "train.csv"]) == 0
    said = capsys.readouterr().out
    assert '"home, town" = "FILL IN"' in said and "b, c" not in said
    assert main(["domain", "train.csv", "-o", "new.toml"]) == 0
    fails(capsys, ["domain", "train.csv", "-o", "new.toml"], "new.toml exists already")
    fails(
        capsys,
        ["fit", "train.csv", "--label", "rich", "--domain", "new.toml", "--epsilon", "1", "--out",
         "m.json"],
        "domain of column 'id': not filled in yet",
    )  # fmt: skip
    (folder / "none.toml").write_text("[columns]\n")
    argv = [*FIT[:5], "none.toml", *FIT[6:], "--out", "m.json"]
    fails(capsys, argv, "none.toml: domain must be a mapping such as")


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "bad.csv: expected a header line, got an empty file"),
        ("age,age,rich\n1,2,no\n", "the header has 'age' twice, in columns 1 and 2"),
        ("age,,rich\n1,2,no\n", "column 2 of the header has no name"),
        ('age,rich\n1,no\n', "there is no column 'home, town'"),
        ('age,"home, town",rich\n1,a\n', "line 2: expected 3 fields, as in the header, got 2"),
        ('age,"home, town",rich\n', "there are no rows"),
        ('age,"home, town",rich\n1,a,no\nx,a,no\n', "line 3, column 'age': expected a number"),
        ('age,"home, town",rich\n1,"a\n",no\n2,z,no\n', "line 4, column 'home, town': expected"),
        ('age,"home, town",rich\n1,a,no\n1,,no\n', "line 3, column 'home, town': expected a"),
        ('age,"home, town",rich\n1,a,maybe\n', "line 2, column 'rich': expected one of 'no'"),
        ('age,"home, town",rich\n1,a,\n', "line 2, column 'rich': expected one of"),
        ('age,"home, town",rich\n1,"a"b,no\n', "line 2: "),
    ],
)  # fmt: skip
def test_bad_files_are_named_by_line_and_column(folder, capsys, text, match):
    (folder / "bad.csv").write_text(text)
    argv = ["fit", "bad.csv", *FIT[2:], "--out", "m.json"]
    fails(capsys, argv, match)
    assert not (folder / "m.json").exists()


def test_a_file_in_another_encoding_is_named(folder, capsys):
    (folder / "bad.csv").write_bytes('age,"home, town",rich\n1,a,n\xf6\n'.encode("latin-1"))
    fails(capsys, ["fit", "bad.csv", *FIT[2:], "--out", "m.json"], "bad.csv, line 2: not UTF-8")


def test_nothing_is_spent_where_the_result_cannot_be_kept(folder, capsys):
    fails(capsys, [*FIT, "--out", "none/m.json"], "there is no folder")
    fails(capsys, [*FIT, "--out", "."], "is a folder")
    fails(capsys, [*FIT, "--out", "m" * 300], "File name too long")
    fails(capsys, [*FIT, "--out", "n.json", "--card", "/proc/c.html"], "/proc/c.html: No such file")
    (folder / "m.json").write_text("an older model")
    fails(capsys, [*FIT, "--out", "m.json"], "m.json exists already")
    fails(capsys, [*FIT[:-1], "0", "--out", "n.json"], "epsilon must lie in (0, inf)")
    fails(capsys, [*FIT, "--delta", "0.9", "--out", "n.json"], "delta must be below 1/n")
    fails(capsys, ["fit", "gone.csv", *FIT[2:], "--out", "n.json"], "gone.csv: No such file")
    fails(
        capsys,
        ["predict", "test.csv", "--model", "m.json"],
        "not a model that dpanalysis has saved",
    )
    argv = [*FIT[:3], "age", *FIT[4:], "--out", "n.json"]
    fails(capsys, argv, "the label 'age' must have no domain")
    assert (folder / "m.json").read_text() == "an older model"


def test_blocks_end_where_they_should(folder, monkeypatch):
    monkeypatch.setattr("dpanalysis.commands._ROWS", 7)
    blocks = list(CsvFile("train.csv").chunks())
    assert [len(block.lines) for block in blocks] == [7] * 85 + [5]
    assert blocks[0].lines[0] == 2 and blocks[-1].lines[-1] == 601
    assert [cell for block in blocks for cell in block["id"]] == [str(i) for i in range(600)]


def test_abbreviated_options_are_refused(folder, capsys):
    with pytest.raises(SystemExit) as ended:
        main([*FIT, "--out", "m.json", "--target", "rich"])
    assert ended.value.code == 2 and "arguments: --target rich" in capsys.readouterr().err
    assert not (folder / "m.json").exists()


def test_a_table_without_rows_and_a_model_without_an_encoder_are_named(folder, capsys):
    main([*FIT, "--out", "m.json", "--seed", "0"])
    (folder / "empty.csv").write_text('id,age,"home, town",rich\n')
    argv = ["evaluate", "empty.csv", "--model", "m.json", "--label", "rich"]
    fails(capsys, argv, "empty.csv: there are no rows")
    X = np.linspace(0.0, 1.0, 400)[:, np.newaxis]
    bare = LogisticRegression(5.0, bounds=(0.0, 1.0), random_state=0).fit(X, X[:, 0] > 0.5)
    save(bare, "bare.json")
    argv = ["predict", "test.csv", "--model", "bare.json"]
    fails(capsys, argv, "the model has no encoder, so it takes no CSV file")
    encoder = PublicEncoder({"a": (0.0, 1.0)})
    unnamed = make_pipeline(encoder, LogisticRegression(5.0, random_state=0))
    save(unnamed.fit(X, X[:, 0] > 0.5), "unnamed.json")
    for argv in (["predict", "test.csv"], ["evaluate", "test.csv", "--label", "rich"]):
        fails(capsys, [*argv, "--model", "unnamed.json"], "the encoder was fitted on an array")


def test_classes_that_are_numbers_are_those_of_the_cells(folder, capsys):
    """A column of 0 and 1 has classes 0.0 and 1.0 where it was read as numbers."""
    with open("train.csv", encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    ages = [[float(row["age"] or 50)] for row in rows]
    table = pd.DataFrame(ages, columns=["age"])
    model = make_pipeline(
        PublicEncoder({"age": (0, 100)}), LogisticRegression(50.0, random_state=0)
    )
    save(model.fit(table, table["age"] > 50.0), "words.json")
    save(model.fit(table, (table["age"] > 50.0).astype(float)), "numbers.json")
    said = []
    for name, words in (
        ("words", ("False", "True")),
        ("words", ("false", "TRUE")),
        ("numbers", ("0", "1")),
        ("numbers", ("0.0", "1.0")),
    ):
        cells = [f"{age:g},{words[age > 50.0]}" for (age,) in ages]
        (folder / "labels.csv").write_text("\n".join(["age,label", *cells]) + "\n")
        main(["evaluate", "labels.csv", "--label", "label", "--model", f"{name}.json"])
        said.append(capsys.readouterr().out)
    assert len(set(said)) == 1 and "accuracy: 0.9" in said[0]


@pytest.mark.parametrize("dtype", ["<c16", "<M8[s]", "V4"])
def test_a_model_with_labels_of_no_known_kind_is_refused(folder, capsys, dtype):
    main([*FIT, "--out", "m.json", "--seed", "0"])
    content = json.loads((folder / "m.json").read_text())
    (folder / "n.json").write_text(json.dumps({**content, "classes_dtype": dtype}))
    with pytest.raises(ValueError, match="labels of dtype"):
        load("n.json")


def test_a_column_of_fractions_is_no_class_unless_declared(folder, capsys):
    """Each number used to be a class: epsilon was spent, and the model listed all values."""
    lines = (folder / "train.csv").read_text("utf-8-sig").splitlines()
    for values in ("0.5", "1.5"), ("0", "1.0"):
        each = [f"{line},{values[i % 2]}" for i, line in enumerate(lines[1:])]
        (folder / "t.csv").write_text("\n".join([lines[0] + ",score", *each]) + "\n")
        declared = f'classes = ["{values[0]}", "{values[1]}"]\n'
        for head in ("", declared):
            (folder / "d.toml").write_text(head + TOML[TOML.index("[columns]") :])
            argv = ["fit", "t.csv", "--label", "score", "--domain", "d.toml", "--epsilon", "5"]
            argv += ["--out", "s.json", "--force"]
            if head or values[0] == "0":
                assert main(argv) == 0
            else:
                said = "t.csv, line 2, column 'score': expected a class: declare classes, or let"
                fails(capsys, argv, said)
                assert not (folder / "s.json").exists()


@pytest.mark.parametrize("distinct", [20, 21])
def test_many_whole_numbers_are_no_classes_unless_declared(folder, capsys, distinct):
    """Hours from 1 to 99 were 99 classes, of which each was a run."""
    lines = (folder / "train.csv").read_text("utf-8-sig").splitlines()
    each = [f"{line},{i % distinct}" for i, line in enumerate(lines[1:])]
    (folder / "t.csv").write_text("\n".join([lines[0] + ",hours", *each]) + "\n")
    (folder / "d.toml").write_text(TOML[TOML.index("[columns]") :])
    argv = ["fit", "t.csv", "--label", "hours", "--domain", "d.toml", "--epsilon", "5"]
    argv += ["--out", "s.json", "--force"]
    if distinct == 20:
        assert main(argv) == 0
    else:
        fails(capsys, argv, "t.csv, line 22, column 'hours': expected a class: declare classes")
    assert (folder / "s.json").exists() == (distinct == 20)


def test_many_words_or_dates_are_no_classes_unless_declared(folder, capsys):
    lines = (folder / "train.csv").read_text("utf-8-sig").splitlines()
    each = [f"{line},2024-01-{1 + i % 28:02}" for i, line in enumerate(lines[1:])]
    (folder / "t.csv").write_text("\n".join([lines[0] + ",day", *each]) + "\n")
    (folder / "d.toml").write_text(TOML[TOML.index("[columns]") :])
    argv = ["fit", "t.csv", "--label", "day", "--domain", "d.toml", "--epsilon", "5"]
    said = "t.csv, line 22, column 'day': expected a class: declare classes, got '2024-01-21'"
    fails(capsys, [*argv, "--out", "s.json"], said)
    assert not (folder / "s.json").exists()


def test_an_open_quote_and_another_delimiter_are_named(folder, capsys):
    (folder / "q.csv").write_text('a,b\n1,2\n"3,4\n5,6\n')
    argv = ["fit", "q.csv", "--label", "b", "--domain", "domain.toml", "--epsilon", "1"]
    (folder / "d.toml").write_text("[columns]\na = [0, 1]\n")
    argv[argv.index("domain.toml")] = "d.toml"
    fails(capsys, [*argv, "--out", "s.json"], "line 4: unexpected end of data (the record begins")
    (folder / "s.csv").write_text("a;b\n1;2\n")
    fails(capsys, ["domain", "s.csv"], "'a;b'; is the delimiter ';'? Pass it by --delimiter")
    (folder / "s.csv").write_text('"a";"b"\n1;2\n')
    fails(
        capsys, ["domain", "s.csv"], "line 1: ',' expected after '\"'; is the delimiter ';'? Pass"
    )
    argv = ["domain", "q.csv", "--label", "b", "--delimiter", ";"]
    fails(capsys, argv, "is the delimiter ','? Pass it by --delimiter")


def test_a_reader_that_exits_loses_no_card(folder):
    """Whose budget is spent; and a long output ends without a traceback."""
    fit = f"{' '.join(FIT)} --out m.json --card m.html"
    for command in (fit, "claims --coverage"):
        line = f"set -o pipefail; {sys.executable} -W ignore -m dpanalysis {command} | true"
        done = subprocess.run(["bash", "-c", line], cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    assert "epsilon" in (folder / "m.html").read_text()


@pytest.mark.parametrize("command", ["fit", "predict", "evaluate"])
def test_help_keeps_the_words_as_they_are(capsys, command):
    with pytest.raises(SystemExit):
        main([command, "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert " a CSV file" in text and "csv file" not in text
    assert command != "predict" or "the second of two classes, in sorted order," in text


def test_predictions_carry_an_id_and_a_threshold(folder, capsys):
    main([*FIT, "--out", "m.json", "--seed", "0"])
    capsys.readouterr()
    argv = ["predict", "test.csv", "--model", "m.json"]

    def rows(*more):
        assert main([*argv, *more]) == 0
        return list(csv.DictReader(capsys.readouterr().out.splitlines()))

    found = rows("--id", "id")
    assert list(found[0]) == ["id", "prediction", "p(no)", "p(yes)"]
    assert [row["id"] for row in found] == [str(i) for i in range(600)]
    plain = [row["prediction"] for row in rows()]
    assert [row["prediction"] for row in rows("--threshold", "0.5")] == plain
    for row in rows("--threshold", "0.9"):
        assert row["prediction"] == ("yes" if float(row["p(yes)"]) >= 0.9 else "no")
    assert {row["prediction"] for row in rows("--threshold", "0")} == {"yes"}
    fails(capsys, [*argv, "--threshold", "1.5"], "--threshold must lie in [0, 1], got 1.5")
    fails(capsys, [*argv, "--id", "number"], "there is no column 'number'")
    main([*FIT, "--out", "s.json", "--kind", "svm"])
    argv[-1] = "s.json"
    fails(capsys, [*argv, "--threshold", "0.4"], "for a logistic model of two classes")
    three = TOML.replace('["no", "yes"]', '["no", "perhaps", "yes"]')
    (folder / "domain.toml").write_text(three)
    main([*FIT, "--out", "three.json"])
    argv[-1] = "three.json"
    fails(capsys, [*argv, "--threshold", "0.4"], "for a logistic model of two classes")


def test_a_file_is_written_whole_or_not_at_all(folder, capsys, monkeypatch):
    main([*FIT, "--out", "m.json", "--seed", "0"])
    monkeypatch.setattr("dpanalysis.commands._ROWS", 10)
    text = (folder / "test.csv").read_text().splitlines()
    (folder / "bad.csv").write_text("\n".join([*text[:300], '300,x,"z",no', *text[301:]]) + "\n")
    (folder / "p.csv").write_text("older")
    argv = ["predict", "bad.csv", "--model", "m.json", "-o", "p.csv"]
    said = "line 301, column 'age': expected a number or a blank cell, got 'x'; line 301, column 'h"
    fails(capsys, argv, said)
    assert (folder / "p.csv").read_text() == "older"
    kept = sorted(path.name for path in folder.iterdir())
    assert main([*argv[:1], "test.csv", *argv[2:]]) == 0
    assert len((folder / "p.csv").read_text().splitlines()) == 601
    assert kept == sorted(path.name for path in folder.iterdir())  # nothing beside it
    assert main([*argv[:1], "test.csv", *argv[2:-1], "/dev/null"]) == 0


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_a_model_that_cannot_be_written_is_printed(folder, capsys):
    """Since its budget is spent."""
    with pytest.raises(SystemExit):
        main([*FIT, "--out", "/dev/full", "--force", "--card", "card.html", "--seed", "0"])
    said = capsys.readouterr()
    assert "/dev/full could not be written (No space left on device)" in said.err
    (folder / "kept.json").write_text(said.out)
    main([*FIT, "--out", "m.json", "--seed", "0"])
    assert load("kept.json")[-1].coef_.tolist() == load("m.json")[-1].coef_.tolist()
    capsys.readouterr()
    with pytest.raises(SystemExit):  # the card is on the screen if it cannot be written
        main([*FIT, "--out", "n.json", "--card", "/dev/full", "--force"])
    assert load("n.json") and "epsilon = 5" in capsys.readouterr().out


def test_the_template_leaves_the_label_out(folder, capsys):
    assert main(["domain", "train.csv", "--label", "rich"]) == 0
    said = capsys.readouterr().out
    assert '"rich" =' not in said and '"age" = "FILL IN"' in said and 'labels in "rich"' in said
    fails(capsys, ["domain", "train.csv", "--label", "poor"], "there is no column 'poor'")
    argv = ["domain", "train.csv", "-o", "none/domain.toml"]
    fails(capsys, argv, "there is no folder")


def test_a_message_lists_at_most_five_labels(folder, capsys):
    labels = '["1", "2", "3", "4", "5", "6"]'
    (folder / "domain.toml").write_text(TOML.replace('["no", "yes"]', labels))
    fails(capsys, [*FIT, "--out", "m.json"], "expected one of '1', '2', '3', '4', '5' or 1 more")


NUMBERS = ["--label", "hours", "--domain", "numbers.toml", "--epsilon", "5", "--seed", "0"]
NUMBERS += ["--kind", "ridge", "--out", "m.json"]


@pytest.fixture
def hours(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    with open("hours.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["age", "town", "hours"])
        for _ in range(3000):
            age, town = int(rng.integers(0, 101)), rng.choice(["a", "b"])
            writer.writerow([age, town, f"{0.4 * age + 10 * (town == 'b') - 20:.2f}"])
    (tmp_path / "numbers.toml").write_text('[columns]\nage = [0, 100]\ntown = ["a", "b"]\n')
    return tmp_path


def test_a_number_is_predicted_too(hours, capsys):
    assert main(["fit", "hours.csv", *NUMBERS, "--target-bounds", "-2e1", "30"]) == 0
    card = capsys.readouterr().out
    assert "epsilon = 5, delta = 0 (pure)" in card and "clipped to the range from -20 to 30" in card
    assert main(["evaluate", "hours.csv", "--model", "m.json", "--label", "hours"]) == 0
    said = dict(line.split(": ") for line in capsys.readouterr().out.splitlines() if ": " in line)
    assert main(["predict", "hours.csv", "--model", "m.json", "--id", "hours", "-o", "p.csv"]) == 0
    with open("p.csv", newline="") as file:
        rows = [tuple(map(float, row.values())) for row in csv.DictReader(file)]
    y, guess = np.array(rows).T
    assert float(said["R^2"]) > 0.9
    assert float(said["R^2"]) == pytest.approx(1 - ((y - guess) ** 2).mean() / y.var(), abs=1e-4)
    absolute = np.abs(y - guess).mean()
    assert float(said["mean absolute error"]) == pytest.approx(absolute, rel=1e-3)
    assert load("m.json")[-1].target_bounds == (-20.0, 30.0)


def test_regression_refuses_bad_arguments(hours, capsys):
    """Always before a file is written, and mostly before one is read."""
    fit = ["fit", "hours.csv", *NUMBERS]
    fails(capsys, fit, "--kind ridge needs --target-bounds LOW HIGH")
    logistic = ["fit", "hours.csv", *NUMBERS, "--kind", "logistic", "--target-bounds", "0", "1"]
    fails(capsys, logistic, "--target-bounds is for --kind ridge")
    for low, high in ("1", "1"), ("2", "1"), ("nan", "1"), ("0", "inf"), ("-1e308", "-1e309"):
        fails(capsys, [*fit, "--target-bounds", low, high], "target_bounds")
    (hours / "semicolons.csv").write_text("age;hours\n3;1,5\n")
    other = ["fit", "semicolons.csv", *NUMBERS, "--target-bounds", "0", "1"]
    fails(capsys, other, "is the delimiter ';'? Pass it by --delimiter")
    fails(capsys, [*fit, "--seed", "-1"], "--seed: must be a whole number, 0 or more, got '-1'")
    (hours / "numbers.toml").write_text('classes = ["a", "b"]\n[columns]\nage = [0, 100]\n')
    fails(capsys, [*fit, "--target-bounds", "0", "1"], "the label of --kind ridge has no classes")
    (hours / "numbers.toml").write_text("[columns]\nage = [0, 100]\n")
    for cell in ("many", "nan", "inf", ""):
        (hours / "hours.csv").write_text(f"age,hours\n3,1.5\n4,{cell}\n")
        where = f"hours.csv, line 3, column 'hours': expected a number, got {cell!r}"
        fails(capsys, [*fit, "--target-bounds", "0", "1"], where)
    assert not (hours / "m.json").exists()


def test_nothing_that_is_read_or_written_is_replaced_by_another(folder, capsys):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    for more, match in (
        (["--out", "x.json", "--card", "x.json"], "--card x.json is the file of --out"),
        (["--out", "train.csv", "--force"], "--out train.csv is the file of CSV"),
        (["--out", "x.json", "--card", "./domain.toml", "--force"], "is the file of --domain"),
    ):
        fails(capsys, [*FIT, *more], match)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert main([*FIT, "--out", "m.json", "--seed", "0"]) == 0
    for out, of in (("test.csv", "CSV"), ("m.json", "--model")):
        fails(capsys, ["predict", "test.csv", "--model", "m.json", "-o", out], f"the file of {of}")
    assert (folder / "test.csv").read_bytes() == before["test.csv"]


def test_a_pipe_and_a_cut_archive_are_refused(folder, capsys):
    import os

    assert main([*FIT, "--out", "m.json", "--seed", "0"]) == 0
    os.mkfifo("pipe")
    fails(capsys, ["predict", "pipe", "--model", "m.json"], "pipe: not a file: save it first")
    (folder / "cut.csv.gz").write_bytes(gzip.compress((folder / "test.csv").read_bytes())[:1500])
    (folder / "no.csv.gz").write_bytes(b"age,rich\n")
    for name in ("cut.csv.gz", "no.csv.gz"):
        fails(capsys, ["predict", name, "--model", "m.json"], f"{name}: not a whole gzip file")


def test_tables_split_by_tabs_and_classes_that_repeat(folder, capsys):
    (folder / "tabs.csv").write_text("age\thome, town\trich\n60\ta\tyes\n10\ta\tno\n")
    fit = ["fit", "tabs.csv", "--label", "rich", "--domain", "domain.toml", "--epsilon", "1"]
    assert main([*fit, "--out", "t.json", "--seed", "0", "--delimiter", r"\t"]) == 0
    fails(capsys, [*fit, "--out", "u.json", "--delimiter", ";;"], "--delimiter: must be one char")
    (folder / "domain.toml").write_text(TOML.replace('["no", "yes"]', '["yes", "yes"]'))
    fails(capsys, [*FIT, "--out", "n.json"], "classes must be different labels")
    (folder / "domain.toml").write_text(TOML.replace('["no", "yes"]', '["yes"]'))
    fails(capsys, [*FIT, "--out", "n.json"], "classes must be at least two labels, got ['yes']")


@pytest.mark.parametrize("change", ["classes", "parameters", "privacy"])
def test_a_model_edited_by_hand_is_refused(folder, capsys, change):
    assert main([*FIT, "--out", "m.json", "--seed", "0"]) == 0
    content = json.loads((folder / "m.json").read_text())
    content[change] = ["a", "b", "c"] if change == "classes" else "a word"
    (folder / "m.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"m.json: not a model that dpanalysis has saved"):
        load("m.json")


def test_ranges_learned_under_another_relation_are_refused(folder, capsys):
    learned = '{range = [0, 100], missing = 50, learned = [[0.5, "add_or_remove_one", "a fit"]]}'
    (folder / "domain.toml").write_text(f"[columns]\nage = {learned}\n")
    fails(capsys, [*FIT, "--out", "m.json"], "under which bounds were learned")
    assert main([*FIT, "--out", "m.json", "--relation", "add_or_remove_one"]) == 0
    assert "epsilon = 5.5," in capsys.readouterr().out
