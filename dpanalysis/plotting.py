"""Matplotlib figures of runs, with a fixed line style for each algorithm.

Figures are created without ``pyplot``, hence without global state or windows.

Examples
--------
>>> import numpy as np
>>> from dpanalysis import plotting
>>> with plotting.style():
...     figure, axes = plotting.panels(1, 2)
...     gap = np.exp(-np.arange(50.0))[:, None] * np.ones(20)
...     for name, values in {"GD": gap, "NAG": gap**1.5}.items():
...         plotting.curve(axes[0, 0], np.arange(50), values, label=name)
...     plotting.shared_legend(figure, axes)
>>> len(axes[0, 0].lines)
2
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from ._validation import check_choice, check_int

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "COLUMN",
    "PAGE",
    "PALETTE",
    "curve",
    "drawing",
    "line_style",
    "panels",
    "reference",
    "shared_legend",
    "style",
]

#: Widths of a column and of a page of the usual journals, in inches.
COLUMN, PAGE = 3.4, 7.0
#: Colors of Okabe and Ito, distinguishable by color-blind readers.
PALETTE = {
    "blue": "#0072B2",
    "vermillion": "#D55E00",
    "green": "#009E73",
    "purple": "#CC79A7",
    "orange": "#E69F00",
    "sky": "#56B4E9",
    "black": "#000000",
}

# Variants of a method share the color and differ in dashes.
_LINE_STYLES: dict[str, tuple[str, str]] = {
    "GD": ("black", "-"),
    "HB": ("green", "-"),
    "NAG": ("blue", "-"),
    "NAG-opt": ("blue", "--"),
    "MASG": ("vermillion", "-"),
    "MASG-opt": ("vermillion", "--"),
    "SGD": ("purple", "-"),
    "Adam": ("orange", "-"),
}
_DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
# Colors that the style file chooses for a white page.
_ON_WHITE = ("axes.edgecolor", "grid.color", "savefig.facecolor", "xtick.color", "ytick.color")


@contextmanager
def style() -> Iterator[None]:
    """Use the package's style file inside the ``with`` block.

    Where text is not black, as in Matplotlib's ``dark_background``, the colors of axes and page
    remain those of the caller.

    Examples
    --------
    >>> import matplotlib
    >>> with style():
    ...     matplotlib.rcParams["legend.frameon"]
    False
    """
    matplotlib = _matplotlib()
    given = matplotlib.rcParams
    dark = {name: given[name] for name in _ON_WHITE} if given["text.color"] != "black" else {}
    if dark:
        dark["grid.alpha"] = 0.3
    with matplotlib.style.context([Path(__file__).with_name("dpanalysis.mplstyle"), dark]):
        yield


def _matplotlib() -> Any:
    """Return Matplotlib, or raise ImportError with the command that installs it."""
    try:
        import matplotlib.figure
        import matplotlib.style
    except ImportError as error:
        raise ImportError("a picture needs Matplotlib: pip install matplotlib") from error
    return matplotlib


@contextmanager
def drawing(ax: Axes | None = None, *, height: float = 2.3) -> Iterator[Axes]:
    """Yield ``ax``, or the axes of a new figure of column width in the package's style.

    Parameters
    ----------
    ax : Axes, optional
        Yielded unchanged, in the style of its figure.
    height : float
        Height of the new figure, in inches.

    Raises
    ------
    TypeError
        If ``ax`` is not an Axes.

    Examples
    --------
    >>> with drawing() as ax:
    ...     curve(ax, [0, 1], [1.0, 0.5], label="GD")
    >>> bool(ax.figure.get_figwidth() == COLUMN)
    True
    """
    if ax is not None:
        if not hasattr(ax, "plot"):
            raise TypeError(f"ax must be one Axes of Matplotlib, got {type(ax).__name__}")
        yield ax
        return
    with style():
        figure, axes = panels(1, 1, height=height)
        # The user saves the figure later, outside the style context.
        figure.set_dpi(_matplotlib().rcParams["savefig.dpi"])
        yield axes[0, 0]


def line_style(name: str, position: int = 0) -> dict[str, Any]:
    """Return color and dashes of an algorithm, as arguments of ``Axes.plot``.

    Parameters
    ----------
    name : str
        ``"GD", "HB", "NAG", "NAG-opt", "MASG", "MASG-opt", "SGD", "Adam"``, with or without
        ``"DP-"``, have fixed styles.
    position : int
        For other names: position in the palette; after seven colors the dashes change.

    Examples
    --------
    >>> line_style("DP-NAG-opt")
    {'color': '#0072B2', 'linestyle': '--'}
    >>> line_style("mine", position=1)
    {'color': '#D55E00', 'linestyle': '-'}
    """
    known = _LINE_STYLES.get(name.removeprefix("DP-"))
    if known is not None:
        return {"color": PALETTE[known[0]], "linestyle": known[1]}
    colors = list(PALETTE.values())
    turn, place = divmod(check_int("position", position), len(colors))
    return {"color": colors[place], "linestyle": _DASHES[turn % len(_DASHES)]}


def panels(
    rows: int,
    columns: int,
    *,
    width: float = COLUMN,
    height: float = 2.3,
    sharex: bool | Literal["row", "col"] = False,
    sharey: bool | Literal["row", "col"] = False,
) -> tuple[Figure, np.ndarray]:
    """Return a figure with a grid of axes (rows, columns), lettered (a), (b), ... if several.

    Parameters
    ----------
    rows, columns : int
        Size of the grid, each at least 1.
    width, height : float
        Size of one panel in inches: ``width=PAGE / columns`` fills a page.
    sharex, sharey : bool or {"row", "col"}
        As in Matplotlib.

    Examples
    --------
    >>> figure, axes = panels(2, 3)
    >>> axes.shape, axes[0, 1].get_title(loc="left")
    ((2, 3), '(b)')
    """
    check_int("rows", rows, low=1)
    check_int("columns", columns, low=1)
    figure = _matplotlib().figure.Figure(
        figsize=(width * columns, height * rows), layout="constrained"
    )
    axes: np.ndarray = figure.subplots(rows, columns, squeeze=False, sharex=sharex, sharey=sharey)
    if axes.size > 1:
        for place, ax in enumerate(axes.flat):
            # Left of the axes, so that the letter cannot overlap a title.
            at = {"loc": "left", "x": -0.42 / width, "fontweight": "bold"}
            ax.set_title(f"({chr(ord('a') + place % 26)})", **at)
    return figure, axes


def curve(
    ax: Axes,
    x: ArrayLike,
    values: ArrayLike,
    *,
    label: str,
    band: str = "quantiles",
    position: int | None = 0,
    **kwargs: Any,
) -> None:
    """Draw the mean over replicates, with a band for their spread.

    Parameters
    ----------
    ax : Axes
    x : (T,) array_like
    values : (T,) or (T, R) array_like
        One column per replicate. The MEAN of the values is drawn (on a logarithmic axis too, not
        the mean of their logarithms).
    label : str
        Name of the algorithm, which determines the style; see :func:`line_style`.
    band : {"quantiles", "range", "none"}
        The 10% to 90% quantiles of the replicates, their range, or no band.
    position : int or None
        See :func:`line_style`; None for the next color of the axes.
    **kwargs
        Passed to ``Axes.plot``.

    Examples
    --------
    >>> figure, axes = panels(1, 1)
    >>> curve(axes[0, 0], [0, 1], [[1.0, 3.0], [0.5, 1.5]], label="GD")
    >>> axes[0, 0].lines[0].get_ydata().tolist()
    [2.0, 1.0]
    """
    check_choice("band", band, ("quantiles", "range", "none"))
    times, rows = np.asarray(x), np.asarray(values, dtype=np.float64)
    if rows.ndim not in (1, 2) or times.shape != rows.shape[:1]:
        raise ValueError(
            f"values must have shape (T,) or (T, R) with T = {times.size}, got {rows.shape}"
        )
    look = kwargs if position is None else line_style(label, position) | kwargs
    mean = rows if rows.ndim == 1 else rows.mean(axis=1)
    (line,) = ax.plot(times, mean, label=label, **look)
    if band != "none" and rows.ndim == 2 and rows.shape[1] > 1:
        low, high = (0.1, 0.9) if band == "quantiles" else (0.0, 1.0)
        ax.fill_between(
            times,
            np.quantile(rows, low, axis=1),
            np.quantile(rows, high, axis=1),
            color=line.get_color(),
            alpha=0.18,
            linewidth=0,
        )


def reference(ax: Axes, x: ArrayLike, y: ArrayLike, *, label: str, **kwargs: Any) -> None:
    """Draw a published curve, thin and gray, behind all others.

    Parameters
    ----------
    ax : Axes
    x, y : (N,) array_like
    label : str
        Use the same text for all curves of one source to get one legend entry.
    **kwargs
        Passed to ``Axes.plot``.

    Examples
    --------
    >>> figure, axes = panels(1, 1)
    >>> reference(axes[0, 0], [1, 2], [3, 4], label="published")
    >>> axes[0, 0].lines[0].get_zorder()
    1
    """
    look: dict[str, Any] = {
        "color": "#777777",
        "linewidth": 0.8,
        "marker": ".",
        "markersize": 3.0,
        "zorder": 1,
    }
    ax.plot(np.asarray(x), np.asarray(y), label=label, **(look | kwargs))


def shared_legend(figure: Figure, axes: np.ndarray, *, columns: int = 6) -> None:
    """Add one legend below the figure, with each label once.

    Parameters
    ----------
    figure : Figure
    axes : ndarray of Axes
        Panels with the labels.
    columns : int
        Largest number of entries in a row.

    Examples
    --------
    >>> figure, axes = panels(1, 2)
    >>> for ax in axes.flat:
    ...     curve(ax, [0, 1], [1.0, 0.5], label="GD")
    >>> shared_legend(figure, axes)
    >>> [text.get_text() for text in figure.legends[0].get_texts()]
    ['GD']
    """
    entries: dict[str, Any] = {}
    for ax in np.ravel(axes):
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    if entries:
        figure.legend(
            list(entries.values()),
            list(entries),
            loc="outside lower center",
            ncols=min(columns, len(entries)),
        )
