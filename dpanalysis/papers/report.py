"""Checked claims as text, JSON, a web page, and as ERRATA.md."""

from __future__ import annotations

import html
import json
import math
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby

from .claim import NOT_PRINT, SHOWN, VERDICTS, Claim, Evidence, Outcome, Paper, paper_of

WIDTH = 100

_MEANINGS = {
    **VERDICTS,
    "broken": "the statement used here is violated, or nothing is compared with the printed one",
    "error": "the check raised, or compared nothing",
    "not checked": "the check needs something that is not installed here",
}

# *words*; not the star of F*, the least value.
_EMPHASIS = re.compile(r"(?<![\w)])\*(\w[^*]*\w)\*(?!\w)")


@dataclass(frozen=True)
class Words:
    """The words of a report."""

    title: str  # of a page
    first: str  # one word for the statement that is checked
    second: str  # one word for the statement that replaces it
    heads: tuple[str, str]  # the same, above the columns of a page
    same: str  # text where nothing replaces it
    meanings: Mapping[str, str]  # of each verdict
    source: Callable[[str], Paper]  # from an id to its paper: title and setting of a section
    shown: Mapping[str, str] = field(default_factory=dict)  # display names of verdicts

    def name(self, verdict: str) -> str:
        """Return the display name of a verdict."""
        return self.shown.get(verdict, verdict)

    def of(self, claim: Claim, verdict: str) -> str:
        """Return the name of a claim's verdict, with what it judges if that is not the print."""
        judged = NOT_PRINT.get(claim.judges)
        return f"{self.name(verdict)}: {judged}" if judged else self.name(verdict)


PAPERS = Words(
    title="What the papers print, and what is true",
    first="printed",
    second="used",
    heads=("as printed", "used here"),
    same="as printed",
    meanings=_MEANINGS,
    source=paper_of,
    shown=SHOWN,
)

ARGUMENTS = replace(
    PAPERS,
    title="Whether the corrections stand",
    meanings={
        "stands": "the hypotheses hold, and the printed statement, read favorably, is violated",
        "falls": "a hypothesis is broken, or the printed statement survives: the correction is "
        "wrong",
        "not checked": _MEANINGS["not checked"],
    },
)


class Table(Sequence[Outcome]):
    """Outcomes of several claims; prints as a table, with the given words.

    Examples
    --------
    >>> from dpanalysis.audit import Claim, printed
    >>> claim = Claim("999-3", "(3)", "0 <= 1", "", "holds", lambda e: [printed("0", 0, "<=", 1)])
    >>> table = Table([claim.run()])
    >>> len(table), table.failed
    (1, [])
    """

    def __init__(self, outcomes: Iterable[Outcome], words: Words = PAPERS) -> None:
        self._outcomes, self.words = tuple(outcomes), words

    def __len__(self) -> int:
        return len(self._outcomes)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        found = self._outcomes[index]
        return Table(found, self.words) if isinstance(index, slice) else found

    @property
    def failed(self) -> list[Outcome]:
        """The claims whose evidence does not give the registered verdict."""
        return [outcome for outcome in self if outcome.failed]

    @property
    def seconds(self) -> float:
        """Total time of the checks."""
        return math.fsum(outcome.seconds for outcome in self)

    def __str__(self) -> str:
        return to_text(self)

    def _repr_html_(self) -> str:
        return to_html(self, page=False)


def listed_text(claims: Sequence[Claim]) -> str:
    """Return claims as text, without evidence: id, paper, recorded verdict, statement."""
    lines = []
    for id, paper, verdict, statement in _listed(claims):
        lines += _wrapped(f"{id:6}  {verdict:21}  ", f"{paper}: {_plain(statement)}")
    counted = "1 claim" if len(claims) == 1 else f"{len(claims)} claims"
    return "\n".join([*lines, f"{counted}, not checked now: .run() does"])


def listed_html(claims: Sequence[Claim]) -> str:
    """Return claims as a table in HTML, without evidence."""
    rows = [("id", "paper", "verdict on record", "statement"), *_listed(claims)]
    cells = ["".join(f"<td>{html.escape(text)}</td>" for text in row) for row in rows]
    cells[0] = cells[0].replace("td>", "th>")
    return "\n".join(["<table>", *(f"<tr>{row}</tr>" for row in cells), "</table>"])


def _listed(claims: Sequence[Claim]) -> Iterator[tuple[str, str, str, str]]:
    for claim in claims:
        label, verdict = paper_of(claim.paper).label, PAPERS.of(claim, claim.verdict)
        yield claim.id, label, verdict, claim.printed


def summary(table: Table) -> str:
    """Return one sentence: claims of each verdict, failures, time."""
    words = table.words
    found = Counter(words.of(outcome.claim, outcome.verdict) for outcome in table)
    order = {words.name(verdict): place for place, verdict in enumerate(words.meanings)}
    names = sorted(found, key=lambda name: order[name.partition(":")[0]])
    parts = [f"{found[name]} {name}" for name in names]
    counted = f"{len(table)} claim{'s' * (len(table) != 1)}" + (
        ": " + ", ".join(parts) if parts else ""
    )
    failed = ", ".join(outcome.claim.id for outcome in table.failed)
    end = f"FAILED: {failed}" if failed else "none failed"
    return f"{counted}; {end}; {table.seconds:.1f} s of checks"


def _legend(table: Table) -> dict[str, str]:
    """Return the meanings of the verdicts in a table."""
    found = {outcome.verdict for outcome in table}
    words = table.words
    return {words.name(key): words.meanings[key] for key in words.meanings if key in found}


def to_text(table: Table) -> str:
    """Return the table as text: every statement, followed by its evidence."""
    blocks = []
    for paper, outcomes in _by_paper(table):
        head = _wrapped("==== ", _plain(_heading(paper, outcomes)))
        head += _wrapped(" " * 5, _plain(paper.setting)) if paper.setting else []
        blocks += ["\n".join(head), *("\n".join(_lines(each, table.words)) for each in outcomes)]
    legend = [f"{verdict:>9}: {meaning}" for verdict, meaning in _legend(table).items()]
    return "\n\n".join([*blocks, "\n".join([*legend, summary(table)])])


def _lines(outcome: Outcome, words: Words) -> Iterator[str]:
    claim = outcome.claim
    failed = f"  FAILED (expected: {words.name(outcome.expected)})" if outcome.failed else ""
    head = f"{claim.id:6}  {words.of(claim, outcome.verdict):9}  {_plain(claim.source)}{failed}"
    yield f"{head:<{WIDTH - 9}} {outcome.seconds:6.1f} s"
    names = {about: about for about in ("premise", "reading", "step")}
    names |= {"printed": words.first, "used": words.second}
    for about, statement, evidence in _halves(outcome, words):
        yield from _wrapped(f"{names[about]:>9}  ", _plain(statement))
        for item in evidence:
            yield from _wrapped(f"{_mark(item):>19}  ", _plain(str(item)))
    for heading, text in claim.remarks:
        yield from _wrapped(" " * 11, _plain(f"{heading}: {text}"))
    if outcome.missing:
        yield from _wrapped(" " * 11, outcome.missing)
    if outcome.error:
        yield textwrap.indent(outcome.error.rstrip(), " " * 11)


def _halves(outcome: Outcome, words: Words) -> Iterator[tuple[str, str, list[Evidence]]]:
    """Yield each statement with its evidence; premises come first, steps after the claim."""
    claim = outcome.claim
    statements = dict.fromkeys(("premise", "printed", "reading", "step", "used"), "")
    statements |= {"printed": claim.printed, "used": claim.used}
    same = {"premise": "its hypotheses", "step": "of the printed proof"}
    same["reading"] = "what the paper leaves open"
    for about, statement in statements.items():
        evidence = [item for item in outcome.evidence if item.about == about]
        if statement or evidence:
            yield about, statement or same.get(about, words.same), evidence


def _wrapped(prefix: str, text: str) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=prefix, subsequent_indent=" " * len(prefix)
    ) or [prefix]


def _mark(evidence: Evidence) -> str:
    return "ok" if evidence.holds else "violated"


def _plain(text: str) -> str:
    """Return Markdown without its markup, for a terminal."""
    return _EMPHASIS.sub(r"\1", text.replace("\\|", "|").replace("`", ""))


def to_json(table: Table) -> str:
    """Return the outcomes as a JSON list; infinities and NaN are strings."""
    rows = [
        {
            "id": outcome.claim.id,
            "paper": table.words.source(outcome.claim.paper).label,
            "paper_id": outcome.claim.paper,
            "source": outcome.claim.source,
            "printed": outcome.claim.printed,
            "used": outcome.claim.used or outcome.claim.printed,
            "verdict": table.words.name(outcome.verdict),
            "expected": table.words.name(outcome.expected),
            "passed": outcome.passed,
            "evidence": [_row(evidence) for evidence in outcome.evidence],
            "says": outcome.claim.says,
            "hypotheses": outcome.claim.hypotheses,
            "changes": outcome.claim.changes,
            "notes": dict(outcome.claim.notes),
            "seconds": round(outcome.seconds, 3),
            "error": outcome.error,
            "missing": outcome.missing,
        }
        for outcome in table
    ]
    return json.dumps(rows, indent=2, ensure_ascii=False, allow_nan=False)


def _row(evidence: Evidence) -> dict[str, object]:
    numbers = {name: _number(getattr(evidence, name)) for name in ("value", "bound")}
    return {**asdict(evidence), **numbers, "holds": evidence.holds}


def _number(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)


def _by_paper(table: Table) -> Iterator[tuple[Paper, list[Outcome]]]:
    for id, outcomes in groupby(table, key=lambda outcome: outcome.claim.paper):
        yield table.words.source(id), list(outcomes)


def _heading(paper: Paper, outcomes: list[Outcome]) -> str:
    """Return who wrote the paper, its title, and the ids of its claims here; Markdown."""
    ids = [outcome.claim.id for outcome in outcomes]
    listed = f"claim {ids[0]}" if len(ids) == 1 else f"claims {ids[0]} to {ids[-1]}"
    title = f"{paper.cite}, *{paper.title}*" if paper.cite != paper.title else paper.title
    return f"{title} ({listed})"


_PREFACE = (
    "# What the papers print, and what is true",
    "",
    "Generated by `python -m dpanalysis claims --quick --errata -o ERRATA.md`; a test fails "
    "when it is stale.",
    "Every row is a claim of `dpanalysis/papers`: its check recomputes the evidence, and "
    "the verdict follows",
    "from the evidence. Without `--quick` the searches try more cases.",
    "",
    "The code uses the statement in the column *used here*. Where a plot needs the printed "
    "one, it is an option",
    "(`printed=True`, `published_noise=True`), labeled as such; it never determines how much "
    "noise is added.",
    "",
    "Verdicts: "
    + "; ".join(f"**{SHOWN.get(name, name)}**: {meaning}" for name, meaning in VERDICTS.items())
    + ". In the evidence",
    "✗ marks a comparison that violates the printed statement, or a step of its proof, ✓ one that "
    "agrees with the statement.",
    "The notes below each table give the paper's own words, the hypotheses of the statement that "
    "the check satisfies,",
    "and what would change the verdict. `python -m dpanalysis claims --adversary` argues the "
    "papers' side against every correction.",
)


def to_errata(table: Table) -> str:
    """Return ERRATA.md: every claim with its verdict and its evidence, without timings."""
    lines = [*_PREFACE, *_not_print(table), "", "The papers:", ""]
    lines += [f"- {paper.reference}" for paper, _ in _by_paper(table) if paper.authors]
    for paper, outcomes in _by_paper(table):
        lines += ["", f"## {_heading(paper, outcomes)}", "", paper.setting, ""]
        lines += ["| id | source | as printed | verdict | used here | evidence |"]
        lines += ["|---|---|---|---|---|---|"]
        lines += [_markdown_row(outcome) for outcome in outcomes]
        remarked = [outcome for outcome in outcomes if outcome.claim.remarks]
        lines += [""] * bool(remarked) + [_markdown_remarks(outcome) for outcome in remarked]
    return "\n".join(lines) + "\n"


def _not_print(table: Table) -> list[str]:
    """Return a line on the rows that judge something other than the printed paper, if any."""
    listed = [
        f"{words} ({', '.join(ids)})"
        for judged, words in NOT_PRINT.items()
        if (ids := [outcome.claim.id for outcome in table if outcome.claim.judges == judged])
    ]
    if not listed:
        return []
    return [f"Rows that judge something other than the printed paper: {', '.join(listed)}."]


def _markdown_row(outcome: Outcome) -> str:
    claim = outcome.claim
    evidence = "; ".join(f"{'✓' if e.holds else '✗'} {e}" for e in outcome.evidence)
    used, verdict = claim.used or "as printed", PAPERS.of(claim, outcome.verdict)
    cells = (claim.id, claim.source, claim.printed, verdict, used, evidence)
    return "| " + " | ".join(cell.replace("\\|", "|").replace("|", "\\|") for cell in cells) + " |"


def _markdown_remarks(outcome: Outcome) -> str:
    parts = (f"*{heading}:* {text.rstrip('.')}." for heading, text in outcome.claim.remarks)
    return f"- **{outcome.claim.id}** {' '.join(parts)}"


def to_html(table: Table, *, page: bool = True) -> str:
    """Return a table in HTML, as a whole page or for a notebook."""
    parts = [f"<style>{_STYLE}</style>"]
    parts += [f"<p class='summary'>{html.escape(summary(table))}</p>"]
    meanings = [
        f"<b class='{verdict}'>{verdict}</b>: {html.escape(meaning)}"
        for verdict, meaning in _legend(table).items()
    ]
    parts += [f"<p>{'; '.join(meanings)}</p>"] if meanings else []
    for paper, outcomes in _by_paper(table):
        heading = _rich(_heading(paper, outcomes))
        parts += [f"<h2>{heading}</h2><p>{_rich(paper.setting)}</p>"]
        parts += ["<div class='wide'><table class='claims'><thead><tr>"]
        parts += [f"<th>{head}</th>" for head in ("id", "verdict", *table.words.heads, "seconds")]
        parts += ["</tr></thead><tbody>"]
        parts += [_html_row(outcome, table.words) for outcome in outcomes]
        parts += ["</tbody></table></div>"]
    body = "\n".join(parts)
    if not page:
        return body
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width'><title>Claims</title>"
        f"<style>{_PAGE_STYLE}</style></head>\n"
        f"<body><h1>{html.escape(table.words.title)}</h1>\n{body}\n</body></html>\n"
    )


_PAGE_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 90em; padding: 0 1em;
  overflow-wrap: break-word; }
.claims th { position: sticky; top: 0; background: #fff; }
@media (max-width: 60em) { .claims th { position: static; } }
"""

_STYLE = """
table.claims { border-collapse: collapse; width: 100%; margin-bottom: 2em; }
.claims th, .claims td { border-top: 1px solid #ccc; padding: .5em; text-align: left;
  vertical-align: top; }
.claims td { width: 41%; }
.claims td:first-child, .claims td:nth-child(2), .claims td:last-child { width: 6%; }
.claims ul { margin: .4em 0 0; padding-left: 1.4em; font-size: 92%; }
.claims li::marker { content: "\\2713  "; }
.claims li.violated::marker { content: "\\2717  "; }
.claims .source { opacity: .75; font-size: 90%; white-space: normal; }
.claims .violated { color: #a4161a; }
.holds, .repaired, .sharpened, .stands { color: #1b6e3c; font-weight: 600; }
.corrected, .open { color: #a15c00; font-weight: 600; }
.refuted, .broken, .error, .falls { color: #a4161a; font-weight: 600; }
.claims tr.failed { background: #ffe3e3; }
.claims pre { white-space: pre-wrap; }
@media (max-width: 60em) {
  .wide { overflow-x: auto; } table.claims { min-width: 56em; }
  .claims td:first-child, .claims td:nth-child(2) { min-width: 6em; }
}
"""


def _html_row(outcome: Outcome, words: Words) -> str:
    claim = outcome.claim
    cells = {"printed": "", "used": words.same}
    for about, statement, evidence in _halves(outcome, words):
        items = "".join(f"<li class='{_mark(e)}'>{_rich(str(e))}</li>" for e in evidence)
        shown = _rich(statement) + f"<ul>{items}</ul>" * bool(items)
        if about == "used":
            cells["used"] = shown
        else:
            cells["printed"] += shown if about == "printed" else f"<p>{about}: {shown}</p>"
    trouble = outcome.error or outcome.missing
    error = f"<pre>{html.escape(trouble)}</pre>" if trouble else ""
    expected = "" if outcome.passed else f"<br>expected: {words.name(outcome.expected)}"
    notes = "".join(f"<p><b>{_rich(head)}:</b> {_rich(text)}</p>" for head, text in claim.remarks)
    return (
        f"<tr class='{'failed' if outcome.failed else 'passed'}'>"
        f"<td>{claim.id}<div class='source'>{_rich(claim.source)}</div></td>"
        f"<td class='{outcome.verdict}'>{words.of(claim, outcome.verdict)}{expected}</td>"
        f"<td>{cells['printed']}{notes}</td><td>{cells['used']}{error}</td>"
        f"<td>{outcome.seconds:.1f}</td></tr>"
    )


def _rich(text: str) -> str:
    """Return a statement as HTML, with its Markdown `code` and *emphasis*."""
    escaped = html.escape(text.replace("\\|", "|"))
    escaped = re.sub(r"`([^`]+)`", r"<code>\1</code>", escaped)
    return _EMPHASIS.sub(r"<em>\1</em>", escaped)
