"""What the site makes of the repository: pages of names, of figures, notebooks, and tables."""

from __future__ import annotations

import ast
import re
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import jupytext
import nbformat
import site_api
import site_tables
from docutils import nodes
from jupyter_cache import get_cache
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import figures
from dpanalysis.papers import claim, registry
from figures import _ledger, _pages

__all__ = ["setup"]

ROOT = Path(__file__).parents[2]
MADE = Path(__file__).parents[1] / "_generated"
_ID = re.compile(r"\b(\d{3}-\d+)\b")  # of a claim


# ------------------------------------------------------------------ pages, before Sphinx looks


def generate(app: Sphinx, config: Any) -> None:
    """Write the pages that are made; what has not changed keeps its time."""
    kept = {_write(MADE / "api" / f"{name}.rst", text) for name, text in site_api.pages()}
    kept |= {_figure_page(name, app.tags.has("quick")) for name in drawn()}
    kept |= {_notebook(path) for path in sorted((ROOT / "notebooks").glob("[a-z]*.py"))}
    for path in MADE.glob("*/*.*"):
        if path.suffix in (".rst", ".md", ".ipynb") and path not in kept:
            path.unlink()
    pages = dict(site_api.pages())
    for path in (MADE / "api" / "names").glob("*.rst"):  # of a build with more libraries
        module, _, name = path.stem.rpartition(".")
        if not re.search(rf"^   {name}$", pages.get(module, ""), re.M):
            path.unlink()


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")
    return path


def drawn() -> list[str]:
    """Return the figures with stored results, in the order of the command."""
    stored = _ledger.stored()
    return [name for name in figures.FIGURES if name in stored]


def _figure_page(name: str, quick: bool) -> Path:
    """Write the page of a figure: its picture, caption, and tables to download.

    A quick build shows the picture of another figure, which the next one replaces.
    """
    about, _ = _ledger.read(name)
    picture = MADE / "pictures" / f"{name}.png"
    picture.parent.mkdir(parents=True, exist_ok=True)
    if quick and not picture.is_file():
        shutil.copy(_pages.IMAGES["kuru_fig3"], picture)
    if not quick and _pages.picture_source(picture) != _pages.tables_digest(name):
        _pages.image(name, picture)
    text = [
        "---\nhtml_theme.sidebar_secondary.remove: true\n---\n",
        f"# {_pages.plain(about['title'])}\n",
        f":::{{figure}} /_generated/pictures/{name}.png\n:alt: {alt(about)}\n:class: wide-picture\n"
        f":target: ../../_images/{name}.png\n:::\n",
        *(f"{_pages.plain(each)}\n" for each in _pages.paragraphs(about)),
        "## Data\n",
        *(
            f"- {{download}}`{table}.csv </../figures/results/{name}/{table}.csv>`: "
            f"{known['rows']} rows, what the columns are and the settings in "
            f"{{download}}`{table}.json </../figures/results/{name}/{table}.json>`"
            for table, known in about["tables"].items()
        ),
        f"\n{_pages.origin(about)} To make it again, from a checkout of the repository:\n",
        f"```bash\npython -m figures {name} --scale paper\n```\n",
        "## Code\n",
        *(source(each, name) for each in [name, *shared(name)]),
    ]
    return _write(MADE / "figures" / f"{name}.md", "\n".join(text))


def source(module: str, of: str) -> str:
    """Return a module of a figure as a block that opens at a click, another figure's as a link."""
    if module in figures.FIGURES and module != of:
        return f"[`figures/{module}.py`]({module}.md#code)\n"
    return (
        f"<details><summary><code>figures/{module}.py</code></summary>\n\n"
        f"```{{literalinclude}} ../../../figures/{module}.py\n:language: python\n```\n\n"
        "</details>\n"
    )


def shared(name: str) -> list[str]:
    """Return the modules of the figures that a figure's module is made with."""
    tree = ast.parse((ROOT / "figures" / f"{name}.py").read_text(encoding="utf-8"))
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            found += [node.module] if node.module else [each.name for each in node.names]
    return list(dict.fromkeys(found))


def alt(about: dict[str, Any]) -> str:
    """Return what a figure shows, in one line: its title, and how its caption begins."""
    first = re.split(r"(?<=[.:])\s", " ".join(about["caption"].split()))[0].rstrip(".:")
    return f"{about['title']}. {first}."


def _read(path: Path) -> nbformat.NotebookNode:
    """Return a notebook from its source, with the kernel that the cache knows it by."""
    notebook = jupytext.read(path)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook.metadata["kernelspec"] = kernel
    for k, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{k}"
    return notebook


def _notebook(path: Path) -> Path:
    """Write the page of a notebook, which ends with a link to it as a file."""
    notebook = _read(path)
    words = f'<a href="{path.stem}.ipynb" download>Open as .ipynb</a>'
    notebook.cells.append(nbformat.v4.new_markdown_cell(words, id="download"))
    return _write(
        MADE / "notebooks" / f"{path.stem}.ipynb", nbformat.writes(notebook, version=4) + "\n"
    )


def write_notebooks(app: Sphinx, failed: Exception | None) -> None:
    """Put the notebooks beside their pages, with the outputs that the cache has of them."""
    if failed is not None or app.builder.format != "html":
        return
    cache = get_cache(app.config.nb_execution_cache_path)
    for path in sorted((ROOT / "notebooks").glob("[a-z]*.py")):
        notebook = _read(path)
        with suppress(KeyError):  # not run: the mode is "off"
            _, notebook = cache.merge_match_into_notebook(notebook)
        out = Path(app.outdir) / "_generated" / "notebooks" / f"{path.stem}.ipynb"
        out.write_text(nbformat.writes(notebook, version=4) + "\n", encoding="utf-8")


# ------------------------------------------------------------------ directives


class Html(SphinxDirective):
    """A table in HTML: ``{claims} Kuru``, ``{coverage} Kuru``, ``{packages}``."""

    optional_arguments = 1
    final_argument_whitespace = True
    make = staticmethod(site_tables.claims)

    def run(self) -> list[nodes.Node]:
        """Return the table; its sources are those of the page."""
        self.env.note_dependency(str(ROOT / "ERRATA.md"))
        text = type(self).make(*self.arguments)
        return [nodes.raw("", text, format="html")]


class Claims(Html):
    """The claims of a paper by its first author, or all."""


class Coverage(Html):
    """Every numbered statement of a paper, or of all."""

    make = staticmethod(site_tables.covered)


class Packages(Html):
    """Verdicts on released libraries."""

    make = staticmethod(site_tables.packages)


class Gallery(SphinxDirective):
    """Pictures that lead to their pages: those whose title names an author, or all."""

    optional_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return a grid of small pictures."""
        author = self.arguments[0] if self.arguments else ""
        titles = {name: _ledger.read(name)[0] for name in drawn()}
        chosen = {name: about for name, about in titles.items() if author in about["title"]}
        text = [
            f"[![{_pages.plain(alt(about))}](/_generated/pictures/{name}.png)"
            f"{_pages.plain(about['title'])}](/_generated/figures/{name}.md)"
            f" ([code](/_generated/figures/{name}.md#code))\n"
            for name, about in chosen.items()
        ]
        grid = nodes.container("", *self.parse_text_to_nodes("\n".join(text)), classes=["gallery"])
        return [grid]


class References(SphinxDirective):
    """The papers, as one refers to them."""

    def run(self) -> list[nodes.Node]:
        """Return a list."""
        registry.load()
        papers = [claim.paper_of(each) for each in sorted(claim.ids())]
        named = [f"- {paper.reference}" for paper in papers if paper.authors]
        return self.parse_text_to_nodes("\n".join(named))


def link_claims(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Make every id of a claim in a text lead to its row in the table of all claims."""
    texts = doctree.findall(lambda node: isinstance(node, nodes.Text) and _ID.search(node))
    for text in [each for each in texts if isinstance(each.parent, nodes.paragraph)]:
        table = app.builder.get_relative_uri(page, "claims")
        known = {row[0] for row in site_tables.claim_rows()}
        made = [
            nodes.reference("", part, refuri=f"{table}#claim-{part}", internal=True)
            if part in known
            else nodes.Text(part)
            for part in _ID.split(text)
        ]
        text.parent.replace(text, made)


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the pages and the directives."""
    app.connect("config-inited", generate)
    app.connect("doctree-resolved", link_claims)
    app.connect("build-finished", write_notebooks)
    for name, directive in (
        ("claims", Claims),
        ("coverage", Coverage),
        ("packages", Packages),
        ("gallery", Gallery),
        ("references", References),
    ):
        app.add_directive(name, directive)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
