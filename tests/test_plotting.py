"""Plots show the values of their arrays, and each algorithm in one style."""

import subprocess
import sys

import matplotlib
import matplotlib.style
import numpy as np
import pytest
from matplotlib.colors import to_rgb

from dpanalysis import plotting


def luminance(color: str) -> float:
    rgb = np.array(to_rgb(color))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def test_mean_of_the_values_and_band(tmp_path):
    values = np.random.default_rng(0).lognormal(sigma=2, size=(40, 21))
    with plotting.style():
        figure, axes = plotting.panels(1, 1)
        plotting.curve(axes[0, 0], np.arange(40), values, label="HB")
        figure.savefig(tmp_path / "f.png")
    ax = axes[0, 0]
    np.testing.assert_allclose(ax.lines[0].get_ydata(), values.mean(axis=1))
    vertices = ax.collections[0].get_paths()[0].vertices
    for t in (0, 17):
        at = np.unique(vertices[vertices[:, 0] == t, 1])
        expected = np.quantile(values[t], [0.1, 0.9])
        np.testing.assert_allclose([at.min(), at.max()], expected)
    assert (tmp_path / "f.png").stat().st_size > 1000


def test_no_band_without_replicates():
    _, axes = plotting.panels(1, 3)
    plotting.curve(axes[0, 0], [0, 1], [1, 2], label="GD")
    plotting.curve(axes[0, 1], [0, 1], [[1], [2]], label="GD")
    plotting.curve(axes[0, 2], [0, 1], [[1, 2], [2, 3]], label="GD", band="none")
    assert all(len(ax.lines) == 1 and not ax.collections for ax in axes.flat)


@pytest.mark.parametrize("shape", [(3,), (3, 2), (2, 2, 2), ()])
def test_wrong_shapes(shape):
    _, axes = plotting.panels(1, 1)
    with pytest.raises(ValueError, match="values must have shape"):
        plotting.curve(axes[0, 0], [0, 1], np.ones(shape), label="GD")


def test_wrong_choices():
    _, axes = plotting.panels(1, 1)
    with pytest.raises(ValueError, match="band must be one of"):
        plotting.curve(axes[0, 0], [0], [1], label="GD", band="stripes")
    with pytest.raises(ValueError, match="rows must be at least 1"):
        plotting.panels(0, 1)


def test_looks():
    assert plotting.line_style("DP-HB") == plotting.line_style("HB")
    assert plotting.line_style("NAG")["color"] == plotting.line_style("NAG-opt")["color"]
    assert plotting.line_style("NAG") != plotting.line_style("NAG-opt")
    looks = [str(plotting.line_style("other", position)) for position in range(35)]
    assert len(set(looks)) == 35
    for color in plotting.PALETTE.values():  # seen on white: contrast of at least 2 to 1
        assert 1.05 / (luminance(color) + 0.05) >= 2


def test_letters_and_one_legend():
    figure, axes = plotting.panels(2, 2)
    assert [ax.get_title(loc="left") for ax in axes.flat] == ["(a)", "(b)", "(c)", "(d)"]
    assert [ax.get_title(loc="left") for ax in plotting.panels(1, 2)[1].flat] == ["(a)", "(b)"]
    assert plotting.panels(1, 1)[1][0, 0].get_title(loc="left") == ""
    plotting.shared_legend(figure, axes)
    assert figure.legends == []  # no entries
    for ax in axes.flat:
        for name, values in {"GD": [1, 2], "HB": [2, 3]}.items():
            plotting.curve(ax, [0, 1], values, label=name)
        plotting.reference(ax, [0, 1], [1, 1], label="published")
    plotting.shared_legend(figure, axes)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "GD",
        "HB",
        "published",
    ]


def test_what_is_no_axes_is_refused():
    figure, axes = plotting.panels(1, 2)
    for wrong, kind in ((figure, "Figure"), (axes, "ndarray"), (3, "int")):
        with (
            pytest.raises(TypeError, match=f"ax must be one Axes of Matplotlib, got {kind}"),
            plotting.drawing(wrong),
        ):
            pass


@pytest.mark.parametrize("theme", ["default", "dark_background"])
def test_text_and_ticks_are_legible_on_the_page(theme):
    with matplotlib.style.context(theme):
        with plotting.drawing() as ax:
            plotting.curve(ax, [0, 1], [1.0, 0.5], label="NAG")
        saved = matplotlib.rcParams["savefig.facecolor"]
    page = ax.figure.get_facecolor() if saved == "auto" else saved
    shown = [ax.xaxis.label, *ax.get_xticklabels(), *ax.get_yticklabels()]
    for color in {ax.spines["left"].get_edgecolor(), *(each.get_color() for each in shown)}:
        assert abs(luminance(color) - luminance(page)) > 0.5


@pytest.mark.slow
def test_style_is_undone_and_pyplot_is_not_loaded():
    before = matplotlib.rcParams["axes.grid"]
    with plotting.style():
        assert matplotlib.rcParams["axes.grid"] is True
    assert matplotlib.rcParams["axes.grid"] == before
    code = (
        "import sys; from dpanalysis import plotting; assert 'matplotlib' not in sys.modules; "
        "plotting.panels(1, 1); assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
