"""The ledger of results: stored entries, pages written from it, and verification."""

import json
import os
import re
import subprocess
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
from figures import _ledger, _pages, _provenance, _verify
from figures._ledger import digest, probes

ROOT = Path(__file__).parents[1]
COMMIT = "0123456789" * 4
#: Figures stored before provenance was required: no other may wait for it.
WAITED = {
    *("clipping_epochs", "clipping_gradients", "clipping_heatmaps", "clipping_privacy"),
    *("clipping_seconds", "cnn_clipping", "cnn_gradients", "cnn_heatmaps", "cnn_table"),
    *("kuru_fig1", "kuru_fig3_ball", "kuru_fig3_published", "kuru_fig4_ball", "kuru_horizons"),
    *("kuru_real", "search_accuracy", "search_cnn", "search_evaluations"),
    *("search_hyperparameters", "search_mlp"),
}


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
    monkeypatch.setattr(_provenance, "commit", lambda: COMMIT)
    argv = ["--scale", "paper", "--store", "--quiet", "--jobs", "1", "--out", str(tmp_path / "out")]
    assert cli.main(argv) == 0
    return module


# ---------------------------------------------------------------- what is stored


@pytest.mark.slow
def test_an_entry_states_its_provenance(tiny, tmp_path):
    folder = tmp_path / "results" / "tiny"
    assert {path.name for path in folder.iterdir()} == {
        *("about.json", "cells.csv", "cubes.csv", "cubes.json"),  # no published data
    }
    about, tables = _ledger.read("tiny")
    assert about["settings"] == {"n": 4} and about["cells"] == 4 and about["commit"]
    (maker,) = about["made_by"]
    assert maker["numpy"] == np.__version__ and maker["code"]
    assert (maker["commit"], maker["device"], maker["threads"]) == (COMMIT, "cpu", "1")
    assert about["commit"] == COMMIT and re.fullmatch(r"\d{4}-\d\d-\d\d", about["date"])
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


@pytest.mark.slow
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
    # A figure may allow its cells more, but not where the bits must be the same.
    monkeypatch.setattr(sys.modules[__name__], "ELSEWHERE", {"last": 0.011}, raising=False)
    code, said = verify(capsys, "--cells", "4")
    assert code == (1 if same else 0)


def test_the_same_bits_are_expected_where_the_package_has_not_changed_them():
    maker = {**_verify.provenance(__name__), **_provenance.here("kuru_fig1")}
    assert _verify._same_bits(maker, __name__)
    for other in ({**maker, "last_bits": "1"}, {**maker, "numpy": "1.0"}):
        assert not _verify._same_bits(other, __name__)
    assert not _verify._same_bits({k: v for k, v in maker.items() if k != "last_bits"}, __name__)


ORIGINAL = cube


def named_cube(factor):
    """Return ``cube`` with another answer, under its own name."""

    def cube(x):
        return {**ORIGINAL(x), "cube": factor * x**3 / 7.0}

    cube.__qualname__ = "cube"
    return cube


@pytest.mark.slow
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
    monkeypatch.setattr(figures.load("tiny"), "NEEDS", "no_such_package", raising=False)
    code, said = verify(capsys)
    assert code == 0 and "tiny: left alone, needs no_such_package" in said


def test_verify_names_what_it_does_not_know(tiny, capsys):
    for name, message in (("tinny", "unknown figure tinny"),):
        with pytest.raises(SystemExit) as stop:
            cli.main(["verify", name])
        assert stop.value.code == 2 and message in capsys.readouterr().err


# ---------------------------------------------------------------- provenance


def test_a_commit_is_clean_where_the_python_files_are(tmp_path, monkeypatch):
    commit = _provenance.commit.__wrapped__
    monkeypatch.setenv("GIT_COMMIT", COMMIT)
    assert commit(tmp_path) == COMMIT  # no repository there
    for name in ("dpanalysis/a.py", "figures/results/b.csv", "README.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1\n")
    who = ["-c", "user.name=n", "-c", "user.email=e"]
    for words in (["init", "-q"], ["add", "."], [*who, "commit", "-q", "-m", "m"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    clean = commit(tmp_path)
    assert _provenance.is_clean(clean) and clean != COMMIT
    for name in ("figures/results/b.csv", "README.md"):  # files that storing writes
        (tmp_path / name).write_text("2\n")
    assert commit(tmp_path) == clean
    (tmp_path / "dpanalysis" / "b.py").write_text("3\n")  # untracked
    assert commit(tmp_path) == f"{clean}-dirty"


def test_a_call_is_its_function_and_its_parameters():
    row = {"function": "figures.a.run", "parameter.x": 1, "seconds": 2.0}
    assert _ledger.call(row) == _ledger.call({**row, "seconds": 3.0})
    for other in ({"function": "figures.b.run"}, {"parameter.x": 2}):
        assert _ledger.call(row) != _ledger.call({**row, **other})


@pytest.mark.slow
def test_nothing_is_stored_from_a_tree_that_is_not_committed(tiny, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(_provenance, "commit", lambda: f"{COMMIT}-dirty")
    before = _ledger.read_about("tiny")
    for argv in (["tiny", "--scale", "paper", "--store"], ["again", "tiny"]):
        with pytest.raises(SystemExit) as stop:
            cli.main([*argv, "--out", str(tmp_path / "out")])
        assert stop.value.code == 2
        assert f"this is {COMMIT}-dirty: commit first" in capsys.readouterr().err
    assert _ledger.read_about("tiny") == before


@pytest.mark.slow
@pytest.mark.parametrize(
    "lacks",
    [
        {"code": "unknown"},
        {"commit": f"{COMMIT}-dirty"},
        {"commit": "unknown"},
        {"device": "unknown"},
        {"threads": "unknown"},
        {"processor": "unknown"},
        {"scipy": "unknown"},
    ],
    ids=lambda lacks: "-".join(lacks),
)
def test_incomplete_provenance_counts_as_unknown(tiny, lacks):
    (maker,) = _ledger.read_about("tiny")["made_by"]
    assert _provenance.is_known("tiny", maker)
    assert not _provenance.is_known("tiny", {**maker, **lacks})
    (name,) = lacks
    without = {key: value for key, value in maker.items() if key != name}
    # Sweeps run on one CPU thread, and old entries have one commit; the rest must be named.
    implied = name in ("device", "threads", "commit")
    assert _provenance.is_known("tiny", without, COMMIT) == implied
    tiny.NEEDS = "torch"
    assert _provenance.is_known("tiny", without, COMMIT) == (name == "commit")


@pytest.fixture
def waits(tiny, tmp_path):
    """The ledger, with two of four cells of unknown provenance; and the folder of kept cells."""
    about = _ledger.read_about("tiny")
    about["made_by"].append({"code": "unknown"})
    rows = _ledger.read_cells("tiny")
    for row in rows[2:]:
        row["made_by"] = 1
    _ledger.write_cells(_ledger.RESULTS / "tiny" / "cells.csv", rows)
    _ledger.write_about(_ledger.RESULTS / "tiny", about)
    (_ledger.RESULTS / "waiting.json").write_text('{"tiny": 2}')
    cells = tmp_path / "out" / "tiny" / "cells"
    for path in cells.glob("*.json"):
        cell = json.loads(path.read_text())
        if cell["parameters"]["x"] >= 2:
            path.write_text(json.dumps({**cell, "made_by": {"code": "unknown"}}))
    return cells


def again(capsys, out, *arguments):
    code = cli.main(["again", *arguments, "--jobs", "1", "--quiet", "--out", str(out)])
    return code, capsys.readouterr().out


@pytest.mark.slow
def test_cells_of_unknown_provenance_are_computed_again(waits, tmp_path, capsys, monkeypatch):
    assert _provenance.unknown_cells("tiny") == (2, 4) and _provenance.waiting() == {"tiny": 2}
    assert "Provenance: 2 of 4 cells name a clean commit" in " ".join(
        _pages.caption("tiny").split()
    )
    assert "tiny: 2 of 4 wait" in again(capsys, tmp_path / "out", "--list")[1]
    calls = []

    def cube(x):
        calls.append(x)
        return ORIGINAL(x)

    cube.__qualname__ = "cube"
    monkeypatch.setattr(sys.modules[__name__], "cube", cube)
    code, said = again(capsys, tmp_path / "out", "--stop-after", "0")
    assert code == 75 and calls == [] and "2 cells of 1 figures wait" in said
    assert _provenance.listed() == {"tiny": 2}
    code, said = again(capsys, tmp_path / "out")
    assert code == 0 and sorted(calls) == [2, 3]  # those of known provenance were kept
    assert "of 4 cells that were stored before, 4 agree to the last bit and 4 within" in said
    assert _provenance.waiting() == _provenance.listed() == {}
    assert "Provenance" not in _pages.caption("tiny")


@pytest.mark.slow
def test_again_reports_results_that_differ(waits, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "cube", named_cube(1.01))
    code, said = again(capsys, tmp_path / "out")
    assert code == 0
    assert (
        "stored before, 2 agree to the last bit and 2 within the tolerance for other machines; "
        "0 are new" in said
    )
    assert _ledger.read_cells("tiny")[3]["last.cube"] == pytest.approx(1.01 * 27 / 7.0, rel=1e-5)


@pytest.mark.slow
def test_verify_refuses_an_unknown_maker_that_does_not_wait(waits, capsys):
    code, said = verify(capsys, "--cells", "1")
    assert code == 0 and "tiny: what made 2 of 4 is unknown" in said
    (_ledger.RESULTS / "waiting.json").unlink()
    code, said = verify(capsys, "--cells", "1")
    assert code == 1 and "1 differences" in said
    with pytest.raises(ValueError, match=r"what made them is unknown: \{'tiny': 2\}"):
        _provenance.write_list()


def test_every_stored_result_names_what_made_it_or_waits():
    """The list is that of the repository, and only gets shorter."""
    listed = _provenance.listed()
    assert _provenance.waiting() == listed, "python -m figures again, or report"
    assert set(listed) <= WAITED


# ---------------------------------------------------------------- captions


# Their captions name the authors' curves that are drawn, or the data.
WITH_DATA = ("kuru_fig1", "kuru_fig2", "kuru_fig3", "kuru_fig3_published", "kuru_real")


def words(text):
    return " ".join(text.split())


@pytest.mark.parametrize("name", _ledger.stored())
def test_captions_are_those_of_the_code_and_of_the_tables(name):
    if name in WITH_DATA and not os.environ.get("DPANALYSIS_DATA"):
        pytest.skip("the caption names what is in $DPANALYSIS_DATA")
    about = _ledger.read_about(name)
    assert about["caption"] == _pages.caption(name), "python -m figures report"
    said = words(about["caption"])
    assert not re.search(r"\b(nan|inf)\b", said)
    assert not re.search(r"\b1 runs\b|run\(s\)|needs a GPU", said)
    if about["settings"].get("seeds") == 1:
        assert "standard deviation" not in said and "±" not in said


@pytest.mark.parametrize("name", [n for n in _ledger.stored() if n.startswith(("clip", "cnn"))])
def test_captions_end_with_the_finding(name):
    last = _pages.paragraphs(_ledger.read_about(name))[-1]
    assert re.match(r"Finding: .*\b(confirmed|refuted|open)\b.*\.$", last)


def best_steps(name, settings, tables):
    """Return for each tuned entry of a figure whether its best step is inside what was tried."""
    if name in ("clipping_table", "cnn_table"):
        best, tried = tables["best"], tables["by_step_size"]
        keys = [key for key in ("model", "rule") if key in best]
        found = []
        for k, step in enumerate(best["step_size"]):
            mine = np.all([tried[key] == best[key][k] for key in keys], axis=0)
            found.append(tried["step_size"][mine].min() < step < tried["step_size"][mine].max())
        return found
    if name.endswith("heatmaps"):
        table, found = tables["accuracy"], []
        for rule in dict.fromkeys(table["rule"].tolist()):
            step, score = (
                table[key][table["rule"] == rule] for key in ("step_size", "test_accuracy")
            )
            found.append(step.min() < step[score.argmax()] < step.max())
        return found
    table = tables["accuracy" if name == "clipping_privacy" else "curves"]
    if "ends" in tables:
        table = tables["ends"]
    elif "epoch" in table:
        last = table["epoch"] == table["epoch"].max()
        table = {key: column[last] for key, column in table.items()}
    if "best_step_inside" in table:
        return table["best_step_inside"].tolist()
    if name == "cnn_clipping":
        steps, grid = table["step_size"] * table["clip_norm"], settings["reaches"]
    else:
        steps, grid = table["step_size"], settings["step_sizes"]
    return [min(grid) < step < max(grid) for step in steps]


@pytest.mark.parametrize(
    "name",
    [
        *("clipping_table", "clipping_epochs", "clipping_privacy", "clipping_synthetic"),
        *("clipping_heatmaps", "cnn_table", "cnn_heatmaps", "cnn_clipping"),
    ],
)
def test_the_best_step_is_inside_the_grid_or_the_caption_says_that_it_is_not(name):
    about, tables = _ledger.read(name)
    inside = [bool(each) for each in best_steps(name, about["settings"], tables)]
    caption = words(about["caption"])
    if len(about["settings"].get("reaches", "several")) == 1:
        assert "the one step size 0.5/C, which is not tuned" in caption
    elif all(inside):
        assert f"The best step size is inside the grid for all {len(inside)} entries." in caption
    else:
        out = f"an end of the grid for {inside.count(False)} of {len(inside)} entries"
        assert f"The best step size is {out}" in caption


@pytest.mark.parametrize("page", _pages.PAGES, ids=lambda page: page.name)
def test_pages_contain_no_missing_numbers(page):
    said = words(page.read_text(encoding="utf-8"))
    assert not re.search(r"\bnan\b(?!`)|\b1 runs\b|run\(s\)|standard deviation of 1 run", said)
    assert "needs a GPU" not in said


# ---------------------------------------------------------------- pages


@pytest.mark.slow
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
    assert _pages.plain("a_b `c_d`") == "a\\_b `c_d`"
    assert _pages.paragraphs(about) == ["Largest <cube>: 3.8571."]
    assert "4 cells" in _pages.origin(about)
    assert "old" not in text and _pages.rewritten(text) == text
    assert _pages.picture_source(picture) == _pages.tables_digest("tiny")
    first = picture.stat().st_mtime_ns
    assert cli.main(["report"]) == 0 and picture.stat().st_mtime_ns == first
    monkeypatch.delenv("DPANALYSIS_DATA")
    with pytest.raises(SystemExit, match="2"):  # captions would name other data
        cli.main(["report"])
    monkeypatch.setenv("DPANALYSIS_DATA", str(tmp_path))
    page.write_text("<!-- results: missing x -->\n<!-- end of results -->")
    capsys.readouterr()
    assert cli.main(["report"]) == 1 and "missing has no results" in capsys.readouterr().err


@pytest.mark.parametrize("page", _pages.PAGES, ids=lambda page: page.name)
def test_pages_show_the_stored_results(page):
    text = page.read_text(encoding="utf-8")
    assert _pages.rewritten(text) == text, "python -m figures report"
    assert text.count("<!-- results:") == text.count("<!-- end of results -->")


def test_pages_do_not_depend_on_the_data_at_hand(monkeypatch):
    """README stated the batches of the small data."""
    monkeypatch.delenv("DPANALYSIS_DATA", raising=False)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert _pages.rewritten(text) == text


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
    assert sum(path.stat().st_size for path in files) < 12_000_000
    assert {path.suffix for path in files} <= {".csv", ".json", ".png"}
