"""The command line of the figures, with a tiny figure; theory figures against publications."""

import contextlib
import errno
import html
import json
import os
import shutil
import sys
import time
import types

import numpy as np
import pytest

import figures
from dpanalysis import plotting, theory
from dpanalysis.experiments import load_table, sweep, tabulate
from figures import __main__ as cli
from figures import kuru_fig1, kuru_fig2

DATA = os.environ.get("DPANALYSIS_DATA")
needs_data = pytest.mark.skipif(
    not (DATA and os.path.exists(os.path.join(DATA, "published_curves_001.json"))),
    reason="published_curves_001.json is not in $DPANALYSIS_DATA",
)
CALLS = []


def square(x):
    CALLS.append(x)
    return {"square": x * x}


def tiny_figure(title="A <tiny> figure", fail=None):
    module = types.ModuleType("figures.tiny")

    def compute(scale, *, jobs, cache, progress):
        if fail is not None:
            raise fail
        cells = [{"x": x} for x in range(3 if scale == "quick" else 5)]
        return {"squares": tabulate(sweep(square, cells, folder=cache, progress=progress))}

    def draw(tables):
        figure, axes = plotting.panels(1, 1)
        plotting.curve(axes[0, 0], tables["squares"]["x"], tables["squares"]["square"], label="a")
        return figure

    module.TITLE = title
    module.settings = lambda scale: {"n": np.int64(3), "law": "uniform & <more>"}
    module.compute = compute
    module.draw = draw
    module.caption = lambda tables, scale: (
        f"""
        Squares of {len(tables["squares"]["x"])} numbers, a < b.

        Privacy: none is claimed.
    """
    )
    return module


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Return a function that runs the command line on figures given by name and module."""
    CALLS.clear()
    out = tmp_path / "out"

    def run(*arguments, **modules):
        monkeypatch.setattr(figures, "FIGURES", dict.fromkeys(modules, 1.0))
        for name, module in modules.items():
            monkeypatch.setitem(sys.modules, f"figures.{name}", module)
        return cli.main(["--out", str(out), *arguments, "--jobs", "1", "--quiet"])

    run.out = out
    return run


@pytest.mark.slow
def test_everything_is_written(run, capsys):
    assert run(tiny=tiny_figure()) == 0
    folder = run.out / "tiny"
    for name, start in (("tiny.png", b"\x89PNG"), ("tiny.pdf", b"%PDF")):
        assert (folder / name).read_bytes().startswith(start)
    table, settings = load_table(folder / "squares.csv")
    assert table["square"].tolist() == [0, 1, 4]
    assert settings == {"scale": "quick", "n": 3, "law": "uniform & <more>"}
    page = (run.out / "index.html").read_text()
    for text in (
        "A &lt;tiny&gt; figure",
        "Squares of 3 numbers, a &lt; b.",
        '<p class="privacy">Privacy: none is claimed.</p>',
        'src="tiny/tiny.png"',
        'href="tiny/squares.csv"',
        html.escape("uniform & <more>"),
        "quick scale",
    ):
        assert text in page
    assert "<tiny>" not in page and "http" not in page  # escaped, and no external links
    assert "tiny: A <tiny> figure" in capsys.readouterr().out


@pytest.mark.slow
def test_a_quick_look_decides_nothing(run):
    """At quick scale a caption refuted what is open at the paper's."""
    tiny = tiny_figure()
    tiny.settings = lambda scale: {"n": 3 if scale == "quick" else 5}
    tiny.caption = lambda tables, scale: "Squares.\n\nFinding: that they grow is refuted.\n"
    for scale, words in (("quick", "decides nothing about the paper"), ("paper", "Finding")):
        run("--scale", scale, tiny=tiny)
        assert f"{words}: that they grow is refuted." in (run.out / "index.html").read_text()


@pytest.mark.slow
def test_cells_are_kept_unless_fresh(run):
    run(tiny=tiny_figure())
    shutil.rmtree(run.out / "tiny", ignore_errors=True)
    run(tiny=tiny_figure())
    assert CALLS == [0, 1, 2] * 2
    CALLS[:] = [0, 1, 2]
    run("--scale", "paper", tiny=tiny_figure())  # a larger scale reuses the smaller one's cells
    assert CALLS == [0, 1, 2, 3, 4]
    assert json.loads((run.out / "tiny" / "about.json").read_text())["scale"] == "paper"
    run("--fresh", tiny=tiny_figure())
    assert CALLS == [0, 1, 2, 3, 4, 0, 1, 2]


@pytest.mark.slow
def test_same_numbers_give_the_same_files(run):
    run(tiny=tiny_figure())
    files = [run.out / "tiny" / name for name in ("tiny.png", "tiny.pdf", "squares.csv")]
    first = [file.read_bytes() for file in files]
    run("--fresh", tiny=tiny_figure())
    assert CALLS == [0, 1, 2] * 2
    assert [file.read_bytes() for file in files] == first


@pytest.mark.slow
def test_a_figure_is_kept_until_something_it_follows_from_changes(run, capsys, monkeypatch):
    drawn = []

    def tiny(**settings):
        module = tiny_figure()
        draw = module.draw
        module.draw = lambda tables: drawn.append(1) or draw(tables)
        module.settings = lambda scale: {"n": 3, **settings}
        return module

    def made_again(**settings):
        drawn.clear()
        run(tiny=tiny(**settings))
        return len(drawn)

    assert made_again() == 1
    assert made_again() == 0 and "(kept)" in capsys.readouterr().out
    assert made_again(n=4) == 1  # settings
    (run.out / "tiny" / "tiny.pdf").unlink()
    assert made_again(n=4) == 1  # a file is missing
    monkeypatch.setattr("figures._making.code_digest", lambda *packages: "other")
    assert made_again(n=4) == 1  # the code
    monkeypatch.setenv("DPANALYSIS_DATA", "/elsewhere")
    assert made_again(n=4) == 1  # data
    assert made_again(n=4) == 0


@pytest.mark.slow
def test_progress_over_all_figures(run, capsys):
    modules = {name: tiny_figure(name.upper()) for name in ("one", "two", "three")}
    run(**modules)
    lines = [line for line in capsys.readouterr().out.splitlines() if line[0] == "["]
    assert lines[0].startswith("[1 of 3] one: ONE (")
    assert lines[2].startswith("[3 of 3, less than a minute left] three: THREE (")


@pytest.mark.slow
def test_a_time_limit_says_what_is_left_and_loses_nothing(run, capsys):
    assert run("--stop-after", "0", one=tiny_figure(), two=tiny_figure()) == 75
    said = capsys.readouterr().out
    assert "The same command resumes; left:\n  one: not begun\n  two: not begun" in said
    slow = tiny_figure()
    cells = [{"x": x, "seconds": 0.3} for x in range(20)]
    slow.compute = lambda scale, *, jobs, cache, progress: {
        "squares": tabulate(sweep(slowly, cells, folder=cache, progress=progress))
    }
    assert run("--stop-after", "0.5", slow=slow, other=tiny_figure()) == 75
    said = capsys.readouterr().out
    assert "slow: 2 of 20 cells are finished and kept, 18 are left\n  other: not begun" in said
    assert run("--stop-after", "1e9", slow=slow, other=tiny_figure()) == 0
    assert CALLS.count("slow") == 20


def slowly(x, seconds):
    CALLS.append("slow")
    time.sleep(seconds)
    return {"square": x * x}


def test_a_folder_that_cannot_be_written_is_named_at_once(run, capsys, tmp_path):
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(SystemExit) as stop:
            run("--out", str(out), tiny=tiny_figure())
        assert stop.value.code == 2
        errors = capsys.readouterr().err
        assert f"nothing can be written into --out {out}" in errors and "Traceback" not in errors
    assert CALLS == []


def test_a_full_disk_is_reported_once(run, capsys, monkeypatch):
    @contextlib.contextmanager
    def full(path, mode="w"):
        raise OSError(errno.ENOSPC, "No space left on device")
        yield

    monkeypatch.setitem(sweep.__globals__, "atomic_write", full)
    monkeypatch.setattr("figures._page.atomic_write", full)
    assert run(one=tiny_figure(), two=tiny_figure()) == 1
    said = capsys.readouterr()
    assert "one: OSError: [Errno 28] No space left on device: 0 of 3 cells" in said.err
    assert "two" not in said.err and "Traceback" not in said.err  # there is no room for it either
    assert "index.html: [Errno 28]" in said.err and CALLS == [0]


def test_a_cell_that_fails_shows_where_it_failed(run, capsys):
    bad = tiny_figure()
    bad.compute = lambda scale, *, jobs, cache, progress: sweep(
        slowly, [{"x": None, "seconds": 0.0}], folder=cache, progress=False
    )
    assert run(bad=bad) == 1
    errors = capsys.readouterr().err
    assert errors.count("Traceback") == 1 and "in slowly" in errors and "1 failed:" in errors


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["threading", "dask"])
def test_cells_run_on_the_backend(run, backend):
    import joblib

    tiny, backends = tiny_figure(), []
    compute = tiny.compute

    def seen(scale, **options):
        backends.append(type(joblib.parallel.get_active_backend()[0]).__name__)
        return compute(scale, **options)

    tiny.compute = seen
    if backend == "dask":
        pytest.importorskip("distributed", reason="dask[distributed] is not installed")
    assert run("--backend", backend, tiny=tiny) == 0
    assert backends == [
        {"threading": "ThreadingBackend", "dask": "DaskDistributedBackend"}[backend]
    ]
    table, _ = load_table(run.out / "tiny" / "squares.csv")
    assert table["square"].tolist() == [0, 1, 4]


@pytest.mark.slow
def test_index_shows_all_figures_made_so_far(run):
    run("one", one=tiny_figure("First"), two=tiny_figure("Second"))
    assert "Second" not in (run.out / "index.html").read_text()
    run("two", one=tiny_figure("First"), two=tiny_figure("Second"))
    page = (run.out / "index.html").read_text()
    assert page.index("First") < page.index("Second")


@pytest.mark.slow
def test_a_failing_figure_does_not_stop_the_others(run, capsys):
    assert run(bad=tiny_figure(fail=ValueError("no data")), good=tiny_figure()) == 1
    assert (run.out / "good" / "good.png").exists()
    errors = capsys.readouterr().err
    assert "1 failed:" in errors and "bad: ValueError: no data" in errors


@pytest.mark.slow
def test_a_figure_that_cannot_be_drawn_is_named_and_made_again(run, capsys):
    bad, drawn = tiny_figure(), []
    bad.draw = lambda tables: drawn.append(1) or {}["a panel"]
    for times in (1, 2):
        assert run(bad=bad, good=tiny_figure()) == 1
        errors = capsys.readouterr().err
        assert "1 failed:\n  bad: KeyError: 'a panel'" in errors and "Traceback" in errors
        assert len(drawn) == times and CALLS == [0, 1, 2] * 2  # the cells are kept
    assert (run.out / "good" / "good.png").exists()


def test_ctrl_c(run, capsys):
    stop = tiny_figure(fail=KeyboardInterrupt("2 of 5 cells are finished and kept in cells"))
    assert run(stop=stop, never=tiny_figure()) == 130
    assert "2 of 5 cells are finished and kept" in capsys.readouterr().err
    assert not (run.out / "never").exists()


def test_bad_arguments_are_explained(run, capsys):
    for arguments, message in (
        (["tinny"], "unknown figure tinny; known: tiny"),
        (["--scale", "huge"], "invalid choice: 'huge'"),
        (["--jobs", "0"], "must be -1 or an integer of at least 1, got 0"),
        (["--jobs", "x"], "must be -1 or an integer of at least 1, got x"),
        (["--stop-after", "-1"], "must be a number of seconds, at least 0, got -1"),
        (["--stop-after", "x"], "must be a number of seconds, at least 0, got x"),
        (["--store"], "--store needs --scale paper"),
        (["--backend", "lokky"], "backend must be one of dask, loky, ray"),
    ):
        with pytest.raises(SystemExit) as stop:
            run(*arguments, tiny=tiny_figure())
        assert stop.value.code == 2
        assert message in capsys.readouterr().err
    assert not run.out.exists()


def test_a_figure_whose_package_is_missing_names_the_extra(run, capsys):
    figure = tiny_figure()
    figure.NEEDS = "torch_of_another_day"
    with pytest.raises(SystemExit) as stop:
        run("tiny", tiny=figure)
    assert stop.value.code == 2
    assert "pip install 'dpanalysis-toolkit[torch_of_another_day]'" in capsys.readouterr().err
    assert run(tiny=figure) == 0
    assert "tiny: left out, for torch_of_another_day is not installed" in capsys.readouterr().out


def test_list_and_help(run, capsys):
    assert run("--list", tiny=tiny_figure()) == 0
    assert capsys.readouterr().out == "tiny  A <tiny> figure\n"
    with pytest.raises(SystemExit) as stop:
        run("--help", tiny=tiny_figure())
    assert stop.value.code == 0
    shown = capsys.readouterr().out
    assert all(
        word in shown for word in ("--scale", "--jobs", "--backend", "--fresh", "$DPANALYSIS_DATA")
    )


@pytest.mark.parametrize("name", figures.FIGURES)
def test_every_figure_keeps_the_protocol(name):
    module = figures.load(name)
    assert module.TITLE and "\n" not in module.TITLE
    for scale in figures.SCALES:
        json.dumps(module.settings(scale), default=float)
    assert all(callable(getattr(module, part)) for part in ("compute", "draw", "caption"))


# ---------------------------------------------------------------- the theory figures


@pytest.fixture(scope="module")
def fig1(tmp_path_factory):
    cache = tmp_path_factory.mktemp("cells")
    return kuru_fig1.compute("quick", jobs=1, cache=cache, progress=False)


@pytest.fixture(scope="module")
def fig2(tmp_path_factory):
    cache = tmp_path_factory.mktemp("cells")
    return kuru_fig2.compute("quick", jobs=1, cache=cache, progress=False)


@pytest.mark.slow
def test_fig1_bounds_and_certificates_are_on_the_right_side(fig1):
    errors = fig1["errors"]
    assert (errors["bound"] >= errors["error"] * (1 - 1e-12)).all()
    certified = fig1["certified_rates"]
    found = 0
    for mu, alpha, beta, rate in zip(
        certified["mu"], certified["step_size"], certified["momentum"], certified["rate"]
    ):
        if np.isfinite(rate):
            exact = kuru_fig1._where(fig1["rates"], mu=mu, step_size=alpha, momentum=beta)["rate"]
            assert exact[0] - 1e-9 <= rate < 1
            found += 1
    assert found > 120  # of 190
    assert kuru_fig1._where(certified, mu=0.5, step_size=1.0, momentum=0.0)["rate"] == (
        pytest.approx(0.5, abs=1e-3)
    )


@pytest.mark.slow
def test_fig1_noise_has_a_standard_deviation_that_grows_with_the_iterations(fig1):
    pair, start = (0.1, 1.0), np.full(2, np.sqrt(2.5))  # ||x_0 - x*||^2 = 5
    chosen = {"mu": 0.1, "step_size": 0.5, "momentum": 0.3, "c_w": 0.01}
    for T in (1, 250):
        gap = theory.heavy_ball_gap(pair, 0.5, 0.3, (T * 0.01) ** 2, start, T)
        last = kuru_fig1._where(fig1["errors"], **chosen, T=T)
        assert last["error"] == pytest.approx(gap[-1])
    bounds = [
        float(theory.heavy_ball_bound(pair, 0.5, 0.3, (t * 0.01) ** 2, start, t))
        for t in range(1, T + 1)
    ]
    best = kuru_fig1._where(fig1["best_horizons"], **chosen)
    assert best["bound"] == pytest.approx(min(bounds)) and best["T"] == 1 + np.argmin(bounds)


def test_fig2_spends_the_budget(fig2):
    table = fig2["scales"]
    for stages, horizon in zip(kuru_fig2.STAGES, (53, 133, 293, 613), strict=True):
        rows = table["K"] == stages
        assert rows.sum() == horizon and table["stage"][rows].max() == stages
        assert (1 / table["b"][rows]).sum() == pytest.approx(1, abs=1e-12)
        assert (table["noise_term_uniform_over_optimal"][rows] > 1).all()


@pytest.mark.slow
@needs_data
def test_fig1_against_the_published_points(fig1):
    points = fig1["published_rates"]
    nesterov, heavy_ball = [], []
    for alpha, beta, rate in zip(points["step_size"], points["momentum"], points["rate"]):
        row = kuru_fig1._where(fig1["rates"], mu=0.1, step_size=alpha, momentum=abs(beta))
        nesterov.append(abs(row["nesterov_polynomial"][0] - rate))
        heavy_ball.append(abs(row["rate"][0] - rate))
    assert max(nesterov) < 3e-6  # the figure follows Nesterov's polynomial
    assert max(heavy_ball) > 0.09  # and not (3.18)


@needs_data
def test_fig2_against_the_published_points(fig2):
    table, points = fig2["scales"], fig2["published"]
    early, ours = [], []
    for K, t, b in zip(points["K"], points["t"], points["b"]):
        row = (table["K"] == K) & (table["t"] == t)
        early.append(abs(table["b_factor_one_step_early"][row][0] / b - 1))
        ours.append(abs(table["b"][row][0] / b - 1))
    assert max(early) < 3e-5
    assert 0.1 < max(ours) < 0.3  # the last step of a stage
    assert np.median(ours) < 0.02


@pytest.mark.slow
@pytest.mark.parametrize("module", [kuru_fig1, kuru_fig2])
@pytest.mark.parametrize("published", [True, False])
def test_theory_figures_can_be_drawn(module, published, fig1, fig2, tmp_path):
    tables = dict(fig1 if module is kuru_fig1 else fig2)
    if not published:
        tables = {name: t for name, t in tables.items() if not name.startswith("published")}
    with plotting.style():
        figure = module.draw(tables)
        figure.savefig(tmp_path / "f.png", dpi=50)
    caption = module.caption(tables, "quick")
    assert "\n\nPrivacy: " in caption and "Differences from the paper" in caption
    for ax in figure.axes:
        if ax.axison:  # the others hold legends
            assert ax.get_xlabel() and (ax.get_title() or ax.get_title(loc="right"))
