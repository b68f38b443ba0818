"""Tables of README and docs, written from the ledger between markers."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import figures
from dpanalysis import plotting

from . import _ledger, _provenance
from ._speed import mutants, power, speed

__all__ = [
    "IMAGES",
    "PAGES",
    "image",
    "origin",
    "paragraphs",
    "picture_source",
    "plain",
    "recaption",
    "rewritten",
    "tables_digest",
    "write",
]

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "papers").glob("*.md")),
]
#: Pictures that the pages show.
IMAGES = {
    name: Path(__file__).with_name("images") / f"{name}.png"
    for name in ("kuru_fig3", "clipping_table")
}

#: Figures that say what came out of a paper, one for each.
HEADLINES = ("kuru_fig3", "cnn_table", "clipping_table", "search_cnn", "second_order_tables")

_BLOCK = re.compile(
    r"(<!-- results: (?P<figure>\w+) (?P<part>\w+) -->\n).*?(<!-- end of results -->)", re.S
)


def rewritten(text: str) -> str:
    """Return a page with its blocks as the ledger has them.

    Raises
    ------
    FileNotFoundError
        If a block asks for a figure without results.
    KeyError
        If a figure reports nothing by that name.
    """
    return _BLOCK.sub(lambda m: f"{m[1]}{_block(m['figure'], m['part'])}\n{m[4]}", text)


def _block(figure: str, part: str) -> str:
    if figure in ("benchmarks", "figures"):
        return {"speed": speed, "power": power, "mutants": mutants, "headlines": _headlines}[part]()
    _, tables = _ledger.read(figure)
    return figures.load(figure).report(tables)[part].strip()


def _headlines() -> str:
    """Return a line for each paper, and how many of its cells wait."""
    lines = []
    for figure in HEADLINES:
        unknown, total = _provenance.unknown_cells(figure)
        waits = f" ({unknown} of {total} cells wait to be computed again.)" if unknown else ""
        line = _block(figure, "headline") + waits
        lines.append(textwrap.fill(line, 255, subsequent_indent="  ", break_on_hyphens=False))
    return "\n".join(lines)


def paragraphs(about: Mapping[str, Any]) -> list[str]:
    """Return the paragraphs of a figure's caption."""
    return [" ".join(each.split()) for each in about["caption"].strip().split("\n\n")]


def caption(name: str) -> str:
    """Return the caption of this code for what is stored, and on what it stands where that waits.

    That comes before the finding, with which a caption ends; a figure whose cells all name what
    made them has nothing added.
    """
    text = _ledger.caption(name)
    unknown, total = _provenance.unknown_cells(name)
    if not unknown:
        return text
    head, mark, finding = text.rstrip().partition("\n\nFinding:")
    return (
        f"{head}\n\nProvenance: {total - unknown} of {total} cells name a clean commit, processor, "
        "device, threads and versions; the others were stored before that was asked for and wait "
        f"to be computed again (python -m figures again).{mark}{finding}\n"
    )


def recaption(name: str) -> bool:
    """Write the caption of this code into an entry; tell if it moved."""
    about = _ledger.read_about(name)
    now = {**about, "title": figures.load(name).TITLE, "caption": caption(name)}
    if now != about:
        _ledger.write_about(_ledger.RESULTS / name, now)
    return now != about


def origin(about: Mapping[str, Any]) -> str:
    """Return what made the tables of a figure, in a sentence."""
    maker, minutes = about["made_by"][0], about["core_seconds"] / 60.0
    changed = "" if _provenance.is_clean(about["commit"]) else " with changes that are not in it"
    device = f" ({maker['device']}, {maker['threads']} thread)" if "device" in maker else ""
    return (
        f"Made at commit `{about['commit'][:12]}`{changed} with Python {maker['python']}, "
        f"NumPy {maker['numpy']} on {plain(maker['processor'])}{device}: {about['cells']} cells, "
        f"{minutes:.1f} minutes of one core."
    )


def plain(text: str) -> str:
    """Return text that Markdown shows as it stands."""
    return re.sub(r"([*_<>\[\]])", r"\\\1", text)


def write() -> list[Path]:
    """Write captions, the blocks of all pages and their pictures; return what has changed."""
    changed = [_ledger.RESULTS / name for name in _ledger.stored() if recaption(name)]
    for page in PAGES:
        before = page.read_text(encoding="utf-8")
        after = rewritten(before)
        if after != before:
            page.write_text(after, encoding="utf-8")
            changed.append(page)
    for name, path in IMAGES.items():
        if picture_source(path) != tables_digest(name):
            image(name, path)
            changed.append(path)
    return changed


# ------------------------------------------------------------------ pictures

_KEY = "Description"


def tables_digest(name: str) -> str:
    """Return what a picture of a figure says it is made of."""
    about, _ = _ledger.read(name)
    return "tables " + " ".join(about["tables"][table]["digest"] for table in about["tables"])


def image(name: str, path: Path) -> None:
    """Draw a figure from its stored tables; the file names their digests."""
    _, tables = _ledger.read(name)
    with plotting.style():
        figure = figures.load(name).draw(tables)
        figure.savefig(path, metadata={"Software": None, _KEY: tables_digest(name)})


def picture_source(path: Path) -> str | None:
    """Return what a PNG file says it is made of."""
    if not path.is_file():
        return None
    data, key = path.read_bytes(), b"tEXt" + _KEY.encode() + b"\0"
    place = data.find(key)
    if place < 4:
        return None
    size = int.from_bytes(data[place - 4 : place], "big")  # of the key, a zero byte and the text
    return data[place + len(key) : place + 4 + size].decode()
