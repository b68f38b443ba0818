"""Every notebook runs from top to bottom."""

import json
import runpy
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("[a-z]*.py"))
SLOW = {"which_clipping", "line_search", "second_order_points", "is_this_theorem_true"}


def test_there_are_notebooks():
    assert len(NOTEBOOKS) >= 2


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=pytest.mark.slow(share=1 / 5)) if path.stem in SLOW else path
        for path in NOTEBOOKS
    ],
    ids=lambda path: path.stem,
)
def test_notebook_runs(path, tmp_path, monkeypatch):
    jupytext = pytest.importorskip("jupytext", reason="needs the extra 'execute'")
    nbclient = pytest.importorskip("nbclient", reason="needs the extra 'execute'")
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.delenv("DPANALYSIS_DATA", raising=False)  # the small data: the same cells
    notebook = jupytext.read(path)
    client = nbclient.NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    )
    client.execute()
    assert any(cell.cell_type == "code" and cell.outputs for cell in notebook.cells)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_written_notebooks_have_pictures_whatever_the_backend(tmp_path, monkeypatch):
    pytest.importorskip("jupytext", reason="needs the extra 'execute'")
    pytest.importorskip("nbclient", reason="needs the extra 'execute'")
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    main = runpy.run_path(str(NOTEBOOKS[0].parent / "__main__.py"))["main"]
    source = tmp_path / "line.py"
    source.write_text("# %%\nimport matplotlib.pyplot as plt\n\nplt.plot([0, 1])\nplt.show()\n")
    monkeypatch.setitem(main.__globals__["SOURCES"], "line", source)
    assert main(["line", "--out", str(tmp_path)]) == 0
    (cell,) = json.loads((tmp_path / "line.ipynb").read_text())["cells"]
    assert any("image/png" in output.get("data", {}) for output in cell["outputs"])
