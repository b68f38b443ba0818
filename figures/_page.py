"""Write a figure's pictures and tables with their settings, and the index page."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dpanalysis
from dpanalysis import plotting
from dpanalysis.experiments import save_table
from dpanalysis.experiments.records import Table, atomic_write, plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["is_kept", "write_figure", "write_index"]


def write_figure(
    folder: Path,
    name: str,
    title: str,
    scale: str,
    settings: Mapping[str, Any],
    tables: Mapping[str, Table],
    picture: Figure,
    caption: str,
    seconds: float,
    key: str,
) -> None:
    """Write ``name.png``, ``name.pdf``, one CSV and JSON file per table, and ``about.json``.

    The ``key`` is a digest of everything the figure depends on; :func:`is_kept` compares it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files = {}
    for table_name, table in tables.items():
        save_table(folder / f"{table_name}.csv", table, {"scale": scale, **settings})
        files[f"{table_name}.csv"] = len(next(iter(table.values()), ()))
    with plotting.style():
        _save(picture, folder / name, scale)
    about = {
        "name": name,
        "title": title,
        "scale": scale,
        "settings": plain(dict(settings), "settings"),
        "caption": caption,
        "tables": files,
        "seconds": round(seconds, 1),
        "version": dpanalysis.__version__,
        "key": key,
    }
    with atomic_write(folder / "about.json") as file:  # last: the figure is complete
        json.dump(about, file, indent=1, ensure_ascii=False)


def _save(picture: Figure, stem: Path, scale: str) -> None:
    """Write PNG and PDF like ``savefig``, without its trial drawing and with a single layout."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_pdf import FigureCanvasPdf

    if scale == "quick":  # publishers want the style's TrueType fonts, which take longer to embed
        matplotlib.rcParams["pdf.fonttype"] = 3
    picture.set_dpi(matplotlib.rcParams["savefig.dpi"])
    engine = picture.get_layout_engine()
    if engine is not None:
        engine.execute(picture)
        picture.set_layout_engine("none")
    FigureCanvasAgg(picture).print_png(f"{stem}.png", metadata={"Software": None})
    # Without a date the same numbers give the same file.
    FigureCanvasPdf(picture).print_pdf(f"{stem}.pdf", metadata={"CreationDate": None})


def is_kept(folder: Path, name: str, key: str) -> bool:
    """Return whether the folder holds the complete figure with the same key."""
    try:
        about = json.loads((folder / "about.json").read_text(encoding="utf-8"))
        files = [f"{name}.png", f"{name}.pdf", *about["tables"]]
        return about.get("key") == key and all((folder / file).is_file() for file in files)
    except (OSError, ValueError, KeyError):
        return False


_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>dpanalysis: figures</title>
<style>
:root {{ color-scheme: light; --ink: #1c2430; --soft: #5b6675; --line: #dfe4ea; --mark: #0072b2; }}
* {{ box-sizing: border-box; }}
body {{ margin: 0; font: 16px/1.55 system-ui, sans-serif; color: var(--ink); background: #f5f7f9; }}
main {{ max-width: 1080px; margin: 0 auto; padding: 2rem 1.2rem 4rem; }}
h1 {{ font-size: 1.7rem; margin: 0 0 .3rem; }}
h2 {{ font-size: 1.25rem; margin: 0 0 .8rem; }}
a {{ color: var(--mark); }}
nav {{ margin: 1rem 0 2rem; padding: 0; display: flex; flex-wrap: wrap; gap: .5rem; }}
nav a {{ background: #fff; border: 1px solid var(--line); border-radius: 1rem;
  padding: .2rem .8rem; text-decoration: none; font-size: .9rem; }}
article {{ background: #fff; border: 1px solid var(--line); border-radius: .6rem;
  padding: 1.5rem; margin: 0 0 2rem; }}
img {{ width: 100%; height: auto; display: block; }}
article > a:first-of-type {{ display: block; margin: 0 0 1rem; }}
.lead, footer {{ color: var(--soft); }}
.privacy {{ border-left: 4px solid var(--mark); background: #eef5fa; padding: .6rem 1rem; }}
.badge {{ font-size: .75rem; font-weight: 600; color: var(--soft); border: 1px solid var(--line);
  border-radius: 1rem; padding: .1rem .6rem; margin-left: .5rem; vertical-align: middle; }}
details {{ margin-top: 1rem; }}
summary {{ cursor: pointer; color: var(--soft); }}
table {{ border-collapse: collapse; font-size: .9rem; margin-top: .6rem; }}
td {{ border-top: 1px solid var(--line); padding: .25rem .9rem .25rem 0; vertical-align: top; }}
td:first-child {{ color: var(--soft); white-space: nowrap; }}
</style>
</head>
<body>
<main>
<h1>Figures and tables</h1>
<p class="lead">Made by <code>python -m figures</code>, dpanalysis {version}. Every picture is a
function of the tables next to it; every table comes with its settings.</p>
<nav>{links}</nav>
{articles}
</main>
</body>
</html>
"""

_ARTICLE = """<article id="{name}">
<h2>{title}<span class="badge">{scale} scale</span></h2>
<a href="{name}/{name}.pdf" title="Open the PDF"><img src="{name}/{name}.png" alt="{title}"></a>
{paragraphs}
<p>Tables: {tables}.</p>
<details><summary>Settings</summary><table>{settings}</table></details>
<footer><small>{name}, computed in {seconds} s with dpanalysis {version}</small></footer>
</article>
"""


def write_index(out: Path, names: list[str]) -> Path:
    """Write ``index.html`` with every figure of ``names`` that has been made so far."""
    articles, links = [], []
    for name in names:
        record = out / name / "about.json"
        if not record.is_file():
            continue
        about = json.loads(record.read_text(encoding="utf-8"))
        articles.append(_article(about))
        links.append(f'<a href="#{html.escape(name)}">{html.escape(about["title"])}</a>')
    page = _PAGE.format(
        version=html.escape(dpanalysis.__version__),
        links="".join(links),
        articles="\n".join(articles) or "<p>No figure has been made yet.</p>",
    )
    with atomic_write(out / "index.html") as file:
        file.write(page)
    return out / "index.html"


def _article(about: Mapping[str, Any]) -> str:
    paragraphs = []
    for paragraph in about["caption"].strip().split("\n\n"):
        text = html.escape(" ".join(paragraph.split()))
        mark = ' class="privacy"' if text.startswith("Privacy:") else ""
        paragraphs.append(f"<p{mark}>{text}</p>")
    name = html.escape(about["name"])
    tables = [
        f'<a href="{name}/{html.escape(file)}">{html.escape(file)}</a> ({rows} rows)'
        for file, rows in about["tables"].items()
    ]
    settings = [
        f"<tr><td>{html.escape(key)}</td><td>{html.escape(_readable(value))}</td></tr>"
        for key, value in about["settings"].items()
    ]
    return _ARTICLE.format(
        name=name,
        title=html.escape(about["title"]),
        scale=html.escape(about["scale"]),
        paragraphs="\n".join(paragraphs),
        tables=", ".join(tables),
        settings="".join(settings),
        seconds=about["seconds"],
        version=html.escape(about["version"]),
    )


def _readable(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_readable, value))
    return value if isinstance(value, str) else json.dumps(value)
