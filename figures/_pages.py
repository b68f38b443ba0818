"""The tables of README and docs, written between markers from the ledger."""

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
IMAGES = {"kuru_fig3": Path(__file__).with_name("images") / "kuru_fig3.png"}

#: Figures with the headline result of a paper, one per paper.
HEADLINES = ("kuru_fig3", "cnn_table", "clipping_table", "search_cnn", "second_order_tables")

_BLOCK = re.compile(
    r"(<!-- results: (?P<figure>\w+) (?P<part>\w+) -->\n).*?(<!-- end of results -->)", re.S
)


def rewritten(text: str) -> str:
    """Return a page with its blocks rewritten from the ledger."""
    return _BLOCK.sub(lambda m: f"{m[1]}{_block(m['figure'], m['part'])}\n{m[4]}", text)


def _block(figure: str, part: str) -> str:
    if figure in ("benchmarks", "figures"):
        return {"speed": speed, "power": power, "mutants": mutants, "headlines": _headlines}[part]()
    about, tables = _ledger.read(figure)
    module = figures.load(figure)
    with _ledger.settings_of(module, about["settings"]):
        return str(module.report(tables)[part].strip())


def _headlines() -> str:
    """Return a line for each paper, with the number of cells to be recomputed."""
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
    """Return the caption of this code for the stored tables, with their provenance if incomplete.

    The provenance comes before the finding, which ends the caption. If the origin of all cells is
    known, nothing is added.
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
    """Write the caption of this code into an entry; return whether it changed."""
    about = _ledger.read_about(name)
    now = {**about, "title": figures.load(name).TITLE, "caption": caption(name)}
    if now != about:
        _ledger.write_about(_ledger.RESULTS / name, now)
    return now != about


def origin(about: Mapping[str, Any]) -> str:
    """Return a sentence on the provenance of a figure's tables."""
    maker, minutes = about["made_by"][0], about["core_seconds"] / 60.0
    changed = "" if _provenance.is_clean(about["commit"]) else " with changes that are not in it"
    device = f" ({maker['device']}, {maker['threads']} thread)" if "device" in maker else ""
    return (
        f"Made at commit `{about['commit'][:12]}`{changed} with Python {maker['python']}, "
        f"NumPy {maker['numpy']} on {plain(maker['processor'])}{device}: {about['cells']} cells, "
        f"{minutes:.1f} minutes of one core."
    )


def plain(text: str) -> str:
    """Return text escaped for Markdown, its code as it is."""
    return re.sub(r"(`[^`]*`)|([*_<>\[\]])", lambda found: found[1] or "\\" + found[2], text)


def write() -> list[Path]:
    """Write captions, the blocks of all pages and their pictures; return what changed."""
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
    """Return the digests of a figure's tables, as its picture records them."""
    about, _ = _ledger.read(name)
    return "tables " + " ".join(about["tables"][table]["digest"] for table in about["tables"])


def image(name: str, path: Path) -> None:
    """Draw a figure from its stored tables; the file records their digests."""
    _, tables = _ledger.read(name)
    with plotting.style():
        figure = figures.load(name).draw(tables)
        figure.savefig(path, metadata={"Software": None, _KEY: tables_digest(name)})


def picture_source(path: Path) -> str | None:
    """Return the digests that a PNG file records, None if it has none."""
    if not path.is_file():
        return None
    data, key = path.read_bytes(), b"tEXt" + _KEY.encode() + b"\0"
    place = data.find(key)
    if place < 4:
        return None
    size = int.from_bytes(data[place - 4 : place], "big")  # of the key, a zero byte and the text
    return data[place + len(key) : place + 4 + size].decode()
