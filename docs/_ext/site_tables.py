"""Tables of claims, of coverage and of verdicts on packages, in HTML that can be searched."""

from __future__ import annotations

import csv
import html
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from dpanalysis.papers import claim as bibliography
from dpanalysis.papers import coverage, registry
from dpanalysis.papers.claim import SHOWN, VERDICTS

__all__ = ["claim_rows", "claims", "covered", "packages", "table"]

ROOT = Path(__file__).parents[2]
_CELLS = re.compile(r"(?<!\\)\|")
# What a page shows of a verdict or a state, and the name that the style sheet has for it.
_MARKS = {SHOWN.get(name, name): name for name in (*coverage.STATES, *VERDICTS, "not refuted")}
_EVIDENCE = re.compile(r"; (?=[✓✗] )")  # a number's own words may have a semicolon
_REMARKS = re.compile(r"- \*\*(\S+-\d+)\*\* (.*)")


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], caption: str, name: str) -> str:
    """Return a table whose cells are HTML; a script adds a search field and sorts by heads."""
    head = "".join(f'<th scope="col">{each}</th>' for each in heads)
    body = "".join(
        "<tr>"
        + "".join(
            f'<td data-head="{html.escape(label)}"{_mark(cell)}>{cell}</td>'
            for label, cell in zip(heads, row, strict=True)
        )
        + "</tr>\n"
        for row in rows
    )
    return (
        f'<div class="searchable" id="{name}"><table class="searchable">'
        f"<caption>{html.escape(caption)}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _mark(cell: str) -> str:
    head = cell.partition(":")[0]
    return f' class="verdict {_MARKS[head].replace(" ", "-")}"' if head in _MARKS else ""


def _rich(text: str) -> str:
    """Return the little Markdown of the statements as HTML."""
    escaped = html.escape(text.replace("\\|", "|"))
    escaped = re.sub(r"`([^`]+)`", r"<code>\1</code>", escaped)
    return re.sub(r"(?<![\w)])\*(\w[^*]*[\w:])\*(?!\w)", r"<em>\1</em>", escaped)


def claim_rows(paper: str | None = None) -> list[list[str]]:
    """Return the rows of ERRATA.md: id, source, as printed, verdict, used here, evidence, remarks.

    The remarks are below the tables: what the paper says, and what would change the verdict.
    """
    rows, remarks = [], {}
    if paper is not None:
        paper = registry.load(paper)[0].paper
    for line in (ROOT / "ERRATA.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip().replace("\\|", "|") for cell in _CELLS.split(line)[1:-1]]
        if found := _REMARKS.fullmatch(line):
            remarks[found[1]] = found[2]
        of, _, number = cells[0].rpartition("-") if len(cells) == 6 else ("", "", "")
        if number.isdigit() and paper in (None, of):
            rows.append(cells)
    return [[*cells, remarks.get(cells[0], "")] for cells in rows]


def claims(paper: str | None = None) -> str:
    """Return the claims of a paper, by author, or all, each with its evidence folded away."""
    rows = []
    registry.load()
    for name, source, printed, verdict, used, evidence, remarks in claim_rows(paper):
        if paper is None:  # a search may be for an author
            source = f"{bibliography.paper_of(name.rpartition('-')[0]).label}: {source}"
        numbers = _EVIDENCE.split(evidence)
        items = "".join(
            f'<li class="{"against" if each.startswith("✗") else "for"}">{_rich(each)}</li>'
            for each in numbers
        )
        counted = "1 number" if len(numbers) == 1 else f"{len(numbers)} numbers"
        shown = f"<details><summary>{counted}</summary><ul>{items}</ul>"
        rows.append([name, _rich(source), _rich(printed), verdict, _rich(used), shown])
        rows[-1][-1] += f"<p>{_rich(remarks)}</p></details>" if remarks else "</details>"
        rows[-1][0] = f'<a id="claim-{name}" href="#claim-{name}">{name}</a>'
    heads = ("id", "source", "as printed", "verdict", "used here", "evidence")
    counted = f"{len(rows)} claims; the evidence of each is recomputed by its check."
    return table(heads, rows, counted, f"claims-{paper or 'all'}")


def covered(paper: str | None = None) -> str:
    """Return every numbered statement of a paper, with what decides it."""
    found = coverage.items(paper)
    rows = [
        [_rich(each.item), SHOWN.get(each.state, each.state), _rich(each.claim), _rich(each.reason)]
        for each in found
    ]
    if paper is None:
        rows = [[_rich(each.paper), *row] for each, row in zip(found, rows, strict=True)]
    heads = ("item", "state", "claims", "what draws or uses it, or why nothing does")
    heads = heads if paper else ("paper", *heads)
    return table(heads, rows, coverage.summary(found) + ".", f"coverage-{paper or 'all'}")


def packages() -> str:
    """Return the stored verdicts on released libraries."""
    path = ROOT / "figures" / "results" / "packages" / "verdicts.csv"
    with open(path, encoding="utf-8", newline="") as file:
        found = list(csv.DictReader(file))
    rows = [
        [
            row["id"],
            _rich(f"{row['package']} {row['version']}"),
            row["verdict"],
            row.get("runs") or "quick",
            _rich(row["claimed"]),
            _rich(row["twin"]),
            _rich(row["not tested"]),
        ]
        for row in found
    ]
    heads = (
        *("id", "release", "verdict", "runs", "what it claims", "the corrected twin"),
        "not tested",
    )
    return table(heads, rows, f"{len(rows)} claims of released libraries.", "packages")
