"""The ledger of results: what is stored, what is written from it, what still comes out."""

import json
import re
import sys
import types
from pathlib import Path

import numpy as np
import pytest

import dpanalysis
import figures
from dpanalysis import plotting
from dpanalysis.experiments import sweep, tabulate
from figures import __main__ as cli
from figures import _ledger, _pages, _verify
from figures._ledger import digest, probes

ROOT = Path(__file__).parents[1]


def cube(x):
    random = np.random.default_rng(x)
    return {
        "cube": x**3 / 7.0,
        "curve": random.normal(size=5),
        "name": "α",
        "seconds": random.random(),
    }


def tiny_figure():
    module = types.ModuleType("figures.tiny")

    def compute(scale, *, jobs, cache, progress):
        cells = [{"x": x} for x in range(4)]
        records = sweep(cube, cells, folder=cache, jobs=jobs, progress=progress)
        for record in records:
            record.result.pop("curve")
        return {"cubes": tabulate(records), "published": {"theirs": np.array([1.0])}}

    def draw(tables):
        figure, axes = plotting.panels(1, 1)
        plotting.curve(axes[0, 0], tables["cubes"]["x"], tables["cubes"]["cube"], label="a")
        return figure

    module.TITLE = "Cubes_of * numbers"
    module.settings = lambda scale: {"n": 4}
    module.compute, module.draw = compute, draw
    module.caption = lambda tables, scale: f"Largest <cube>: {tables['cubes']['cube'].max()}."
    module.report = lambda tables: {"largest": f"{tables['cubes']['cube'].max():.3f}"}
    return module


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """A ledger with one figure in it."""
    module = tiny_figure()
    monkeypatch.setattr(figures, "FIGURES", {"tiny": 1.0})
    monkeypatch.setitem(sys.modules, "figures.tiny", module)
    monkeypatch.setattr(_ledger, "RESULTS", tmp_path / "results")
    monkeypatch.setenv("DPANALYSIS_DATA", str(tmp_path))
    argv = ["--scale", "paper", "--store", "--quiet", "--jobs", "1", "--out", str(tmp_path / "out")]
    assert cli.main(argv) == 0
    return module


# ---------------------------------------------------------------- what is stored


def test_an_entry_says_what_made_it(tiny, tmp_path):
    folder = tmp_path / "results" / "tiny"
    assert {path.name for path in folder.iterdir()} == {
        *("about.json", "cells.csv", "cubes.csv", "cubes.json"),  # nothing of the paper's
    }
    about, tables = _ledger.read("tiny")
    assert about["settings"] == {"n": 4} and about["cells"] == 4 and about["commit"]
    (maker,) = about["made_by"]
    assert maker["numpy"] == np.__version__ and maker["code"]
    np.testing.assert_allclose(
        tables["cubes"]["cube"], np.arange(4) ** 3 / 7.0, rtol=10.0 ** (1 - _ledger.DIGITS)
    )
    rows = _ledger.read_cells("tiny")
    assert [row["parameter.x"] for row in rows] == [0, 1, 2, 3]
    assert rows[2]["digest"] == digest(cube(2)) and rows[2]["last.cube"] == 1.14286


def test_a_table_that_was_edited_is_refused(tiny, tmp_path):
    path = tmp_path / "results" / "tiny" / "cubes.csv"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    _ledger.read("tiny")  # another system's line ends are no edit
    path.write_text(path.read_text().replace("1.1429", "1.2"))
    with pytest.raises(ValueError, match=r"cubes\.csv is not as the figure wrote it"):
        _ledger.read("tiny")


def test_an_entry_says_what_code_made_its_cells(tiny, tmp_path):
    about = json.loads((tmp_path / "results" / "tiny" / "about.json").read_text())
    assert [len(maker["code"]) for maker in about["made_by"]] == [16]
    assert about["version"] == dpanalysis.__version__


def test_digests_see_the_last_bit_and_no_time():
    result = cube(3)
    assert digest(result) == digest({**result, "seconds": 0.0})
    assert digest(result) != digest({**result, "cube": np.nextafter(result["cube"], 1.0)})
    assert digest({"a": np.array(["x", "y"])}) != digest({"a": np.array(["x", "z"])})
    assert digest({"a": np.zeros(2)}) != digest({"a": np.zeros((2, 1))})
    assert digest({"a": np.zeros(1)}) != digest({"b": np.zeros(1)})
    assert set(probes(result)) == {"last.cube", "last.curve", "mean.curve"}


# ---------------------------------------------------------------- verify


def verify(capsys, *arguments):
    code = cli.main(["verify", *arguments])
    return code, capsys.readouterr().out


@pytest.mark.parametrize("same", [True, False], ids=["same versions", "other versions"])
def test_verify(tiny, monkeypatch, capsys, same):
    if not same:
        monkeypatch.setattr(_verify, "_same_bits", lambda maker, module: False)
    code, said = verify(capsys, "--cells", "3", "--seed", "1")
    assert code == 0 and "3 of 4 cells" in said and "--seed 1" in said
    assert ("to the last bit" in said) == same
    # A difference of the last bits counts where the bits must be the same.
    monkeypatch.setattr(sys.modules[__name__], "cube", named_cube(1.0 + 1e-12))
    code, said = verify(capsys, "--cells", "4")
    assert code == (1 if same else 0) and ("last bits" in said) == same
    monkeypatch.setattr(sys.modules[__name__], "cube", named_cube(1.01))
    code, said = verify(capsys, "--cells", "4")
    assert code == 1 and "last of cube 1.14286 stored, 1.15429 now" in said
    assert "curve" not in said and "seconds" not in said


ORIGINAL = cube


def named_cube(factor):
    """Return ``cube`` with another answer, under its own name."""

    def cube(x):
        return {**ORIGINAL(x), "cube": factor * x**3 / 7.0}

    cube.__qualname__ = "cube"
    return cube


def test_verify_all_compares_the_tables(tiny, monkeypatch, capsys):
    code, said = verify(capsys, "--all", "--jobs", "1")
    assert code == 0 and "all 1 tables, to the last bit: agrees" in said
    monkeypatch.setattr(sys.modules[__name__], "cube", named_cube(1.01))
    code, said = verify(capsys, "--all", "--jobs", "1")
    assert code == 1 and "table cubes: cube" in said


def test_verify_leaves_alone_what_takes_long_or_lacks_data(tiny, monkeypatch, capsys):
    code, said = verify(capsys, "--at-most", "0")
    assert code == 0 and "not looked at, everything takes more than 0 s" in said

    def cube(x):
        raise FileNotFoundError("mnist is not in any folder")

    cube.__qualname__ = "cube"
    monkeypatch.setattr(sys.modules[__name__], "cube", cube)
    code, said = verify(capsys)
    assert code == 0 and "left alone, FileNotFoundError: mnist is not" in said


def test_verify_names_what_it_does_not_know(tiny, capsys):
    for name, message in (("tinny", "unknown figure tinny"),):
        with pytest.raises(SystemExit) as stop:
            cli.main(["verify", name])
        assert stop.value.code == 2 and message in capsys.readouterr().err


# ---------------------------------------------------------------- pages


def test_report_writes_between_the_markers(tiny, monkeypatch, tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_text("Before <!-- results: tiny largest -->\nold\n<!-- end of results --> after\n")
    picture = tmp_path / "tiny.png"
    monkeypatch.setattr(_pages, "PAGES", [page])
    monkeypatch.setattr(_pages, "IMAGES", {"tiny": picture})
    assert cli.main(["report"]) == 0
    text = page.read_text()
    assert "Before <!-- results: tiny largest -->\n3.857\n<!-- end of results --> after" in text
    about, _ = _ledger.read("tiny")
    assert _pages.plain(about["title"]) == "Cubes\\_of \\* numbers"
    assert _pages.paragraphs(about) == ["Largest <cube>: 3.8571."]
    assert "4 cells" in _pages.origin(about)
    assert "old" not in text and _pages.rewritten(text) == text
    assert _pages.picture_source(picture) == _pages.tables_digest("tiny")
    first = picture.stat().st_mtime_ns
    assert cli.main(["report"]) == 0 and picture.stat().st_mtime_ns == first
    page.write_text("<!-- results: missing x -->\n<!-- end of results -->")
    capsys.readouterr()
    assert cli.main(["report"]) == 1 and "missing has no results" in capsys.readouterr().err


@pytest.mark.parametrize("page", _pages.PAGES, ids=lambda page: page.name)
def test_pages_show_the_stored_results(page):
    text = page.read_text(encoding="utf-8")
    assert _pages.rewritten(text) == text, "python -m figures report"
    assert text.count("<!-- results:") == text.count("<!-- end of results -->")


@pytest.mark.parametrize("name", _pages.IMAGES)
def test_pictures_are_drawn_from_the_stored_tables(name):
    assert _pages.picture_source(_pages.IMAGES[name]) == _pages.tables_digest(name)


@pytest.mark.parametrize("name", _ledger.stored())
def test_stored_results_are_whole(name):
    about, tables = _ledger.read(name)
    module = figures.load(name)
    assert about["scale"] == "paper" and about["caption"] and about["title"] == module.TITLE
    assert len(_ledger.read_cells(name)) == about["cells"]
    for table, known in about["tables"].items():
        assert {len(column) for column in tables[table].values()} == {known["rows"]}
    with plotting.style():
        assert module.draw(tables).axes
    for text in getattr(module, "report", lambda tables: {})(tables).values():
        assert text and not re.search(r"\bnan\b|\binf\b", text)


def test_the_ledger_is_small():
    files = [path for path in _ledger.RESULTS.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 5_000_000
    assert {path.suffix for path in files} <= {".csv", ".json", ".png"}
