"""Curves read off the authors' own figures, if the data folder has them.

``published_curves_001.json`` has some points of some figures. A copy of the authors' public
repository, ``git clone https://github.com/sibirbil/DPAccGradMethods`` in ``$DPANALYSIS_DATA``, has
the figures as vector graphics, one vertex per iteration, for every batch size and step size.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

__all__ = ["FINALS", "published_errors", "published_panels", "read_eps"]

#: The folder of the repository's figures inside the data folder.
FIGURES = Path("DPAccGradMethods", "outputfiles")
#: T by the color of a curve.
_COLORS = {"0 1 0": 100, "": 200, "0 0 1": 500, "1 0 0": 1000}
#: Lengths of the labeled tick marks, in points; the others are half as long.
_LONG = (1.2, 1.8)

#: Ends of the 96 published curves: iterations made and log10 of the final gap, at T = 100, 200,
#: 500 and 1000, by (m, c) and algorithm; read off the authors' figures by :func:`read_eps`.
FINALS: dict[tuple[int, float], dict[str, tuple[tuple[int, float], ...]]] = {
    (100_000, 0.1): {
        "DP-GD": ((100, 1.429), (200, 1.393), (500, 1.283), (1000, 1.099)),
        "DP-NAG": ((100, 0.549), (200, -1.273), (500, -0.997), (1000, -0.435)),
        "DP-MASG": ((100, 0.710), (200, 0.588), (500, 0.316), (1000, 0.074)),
        "DP-HB": ((100, 0.537), (200, -1.060), (500, -0.975), (1000, -0.415)),
        "DP-NAG-opt": ((100, 0.548), (200, -1.289), (396, -1.633), (396, -1.789)),
        "DP-MASG-opt": ((89, 0.716), (89, 0.715), (89, 0.714), (89, 0.716)),
    },
    (100_000, 1.0): {
        "DP-GD": ((100, 1.096), (200, 0.690), (500, -1.364), (1000, -0.830)),
        "DP-NAG": ((100, -1.878), (200, -1.327), (500, -0.570), (1000, 0.141)),
        "DP-MASG": ((100, -1.942), (200, -1.785), (500, -1.374), (1000, -1.144)),
        "DP-HB": ((100, -1.880), (200, -1.305), (500, -0.418), (1000, 0.152)),
        "DP-NAG-opt": ((100, -2.286), (136, -2.183), (136, -2.219), (136, -2.247)),
        "DP-MASG-opt": ((89, -2.295), (89, -2.283), (89, -2.267), (89, -2.284)),
    },
    (1_000, 0.1): {
        "DP-GD": ((100, 1.429), (200, 1.393), (500, 1.284), (1000, 1.097)),
        "DP-NAG": ((100, 0.544), (200, -1.187), (500, -0.933), (1000, -0.339)),
        "DP-MASG": ((100, 0.714), (200, 0.587), (500, 0.334), (1000, 0.066)),
        "DP-HB": ((100, 0.538), (200, -1.001), (500, -0.884), (1000, -0.326)),
        "DP-NAG-opt": ((100, 0.548), (200, -1.228), (396, -1.560), (396, -1.563)),
        "DP-MASG-opt": ((89, 0.717), (89, 0.716), (89, 0.716), (89, 0.716)),
    },
    (1_000, 1.0): {
        "DP-GD": ((100, 1.097), (200, 0.692), (500, -1.306), (1000, -0.767)),
        "DP-NAG": ((100, -1.596), (200, -1.032), (500, -0.399), (1000, 0.234)),
        "DP-MASG": ((100, -1.624), (200, -1.588), (500, -1.287), (1000, -1.059)),
        "DP-HB": ((100, -1.534), (200, -1.101), (500, -0.411), (1000, 0.157)),
        "DP-NAG-opt": ((100, -1.807), (136, -1.762), (136, -1.816), (136, -1.820)),
        "DP-MASG-opt": ((89, -1.940), (89, -1.843), (89, -1.906), (89, -1.858)),
    },
}


def published_panels(figure: str) -> list[dict[str, Any]]:
    """Return the panels of a figure of Kuru et al. (2022), empty without ``$DPANALYSIS_DATA``.

    Each panel has ``title`` and ``curves``; a curve has ``points``, a list of ``[x, y]``.
    """
    folder = os.environ.get("DPANALYSIS_DATA")
    path = Path(folder or ".", "published_curves_001.json")
    if not folder or not path.is_file():
        return []
    figures = json.loads(path.read_text(encoding="utf-8"))["figures"]
    panels: list[dict[str, Any]] = figures[figure]["panels"] if figure in figures else []
    return panels


def published_errors(m: int, c: float) -> list[dict[str, Any]]:
    """Return the panels of the authors' errors at a batch size and step size c/L.

    From their vector figure if a copy of their repository is available, else from the points read
    off it, for c = 1 without subsampling.
    """
    name = f"errors_n_100000_m_{m}_c_{round(10 * c):02d}_various_T.eps"
    path = Path(os.environ.get("DPANALYSIS_DATA") or ".", FIGURES, name)
    if os.environ.get("DPANALYSIS_DATA") and path.is_file():
        return read_eps(path.read_text(encoding="latin-1"))
    return published_panels(name)


def read_eps(text: str) -> list[dict[str, Any]]:
    """Return the panels of a figure of errors that MATLAB wrote, as :func:`published_panels` does.

    A curve is a polyline with one vertex per iteration. The logarithmic scale is inferred from the
    labeled tick marks and the exponents of their labels. The y axis points down.
    """
    panels: list[dict[str, Any]] = []
    exponents: list[int] = []
    marks: dict[float, None] = {}
    title = ""
    for block in re.split(r"\nGR\n", text[text.index("%%EndPageSetup") :]):
        said = re.search(r"\((.*?)\) t", block)
        path = re.findall(r"^([-\d.]+) ([-\d.]+) [ML]$", block, re.M)
        if said and "/Helvetica 8 F" in block:
            exponents.append(int(said[1]))
        elif said and "/Helvetica-Bold" in block:
            title = said[1]
            panels.append({"title": title, "curves": []})
            scale = _scale(list(marks), exponents)
            exponents, marks = [], {}
        elif len(path) == 2 and _LONG[0] < float(path[1][0]) - float(path[0][0]) < _LONG[1]:
            marks[float(path[0][1])] = None
        elif len(path) > 50 and title:
            color = re.search(r"^([01] [01] [01]) RC$", block, re.M)
            points = [[t, scale(float(y))] for t, (_, y) in enumerate(path, start=1)]
            curve = {"T": _COLORS[color[1] if color else ""], "points": points}
            panels[-1]["curves"].append(curve)
    return panels


def _scale(marks: list[float], exponents: list[int]) -> Any:
    """Return the map from a vertical position on the page to log10 of the value."""
    if len(marks) != len(exponents):
        raise ValueError(f"{len(marks)} ticks have {len(exponents)} labels")
    bottom, top = marks[0], marks[-1]
    low, high = exponents[0], exponents[-1]
    return lambda y: low + (high - low) * (y - bottom) / (top - bottom)
