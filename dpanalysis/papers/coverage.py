"""Every numbered statement, figure, table and headline of the papers: one line each.

A line names the claims that decide the item, or the figure that draws it, or says what uses it, or
why it cannot be checked here. The lines stand with their paper (``ITEMS``). Nothing is computed:
the state of an item with claims is the verdict that they are registered with, which the tests
recompute.

A line is ``item | claims | reason``. The claims give the item their worst verdict, unless the line
states another one before them, ``Theorem 2 | holds: 000-9 | its remark is wrong``, where they judge
something beside the item. Without claims a line states what it is, ``Definition 1 | used | ...``.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from . import accelerated, line_search, per_sample_clipping, registry, second_order, value_clipping
from .claim import SHOWN, VERDICTS, paper_of

#: What an item can be: decided by claims, or one of four more.
STATES = {
    **VERDICTS,
    "drawn": "recomputed by a figure, no claim decides it",
    "used": "a definition, an assumption or an algorithm: nothing to decide; what implements it",
    "standard": "a known fact with a proof elsewhere, which nothing here rests on",
    "not checkable": "not checkable here, with the reason",
}

_PAPERS = {
    paper.PAPER.id: paper.ITEMS
    for paper in (per_sample_clipping, accelerated, line_search, second_order, value_clipping)
}
_KINDS = {"Fig.": "figure", "Prop.": "proposition", "Section": "headline", "Abstract": "headline"}


@dataclass(frozen=True)
class Item:
    """One numbered statement, figure, table or headline of a paper.

    Attributes
    ----------
    paper : str
        Its label: "Kuru 2022".
    item : str
        "Theorem 4.1", "Figure 3", "Headline: ...".
    kind : str
        Its first word, in lower case; "equation" for a number alone.
    state : str
        One of :data:`STATES`; of several claims the worst verdict, if the line states none.
    claim : str
        Ids of the claims that decide it; "" if there is none.
    reason : str
        What draws or uses it, or why it is not checked; may stand beside claims.
    """

    paper: str
    item: str
    kind: str
    state: str
    claim: str = ""
    reason: str = ""


def items(paper: str | None = None) -> list[Item]:
    """Return all items in the order of the papers."""
    claims = {claim.id: claim for claim in registry.load()}
    chosen = {paper_of(claim.paper).id for claim in registry.load(paper)} if paper else _PAPERS
    found = []
    for name, lines in _PAPERS.items():
        if name in chosen:
            found += [_item(name, line, claims) for line in lines.strip().splitlines()]
    return found


def _item(paper: str, line: str, claims: dict[str, registry.Claim]) -> Item:
    """Return the item of a line; the module says what a line is."""
    name, middle, reason = (part.strip() for part in line.split("|", 2))
    state, _, listed = (part.strip() for part in middle.rpartition(":"))
    first = name.split()[0].rstrip(":")
    kind = "equation" if first.startswith("(") else _KINDS.get(first, first.lower())
    label = paper_of(paper).label
    if middle in STATES:
        return Item(label, name, kind, middle, "", reason)
    if state and state not in STATES:
        raise ValueError(f"{name} of {label} states {state!r}, which is none of {list(STATES)}")
    ids = listed.split()
    for each in ids:
        if each not in claims:
            raise ValueError(f"{name} of {label} names the claim {each!r}, which is not registered")
    worst = max((claims[each].verdict for each in ids), key=list(VERDICTS).index)
    return Item(label, name, kind, state or worst, ", ".join(ids), reason)


def summary(found: Iterable[Item]) -> str:
    """Return one sentence with the number of items of each state."""
    counts = Counter(item.state for item in found)
    listed = ", ".join(f"{counts[state]} {_name(state)}" for state in STATES if counts[state])
    return f"{sum(counts.values())} items: {listed}"


def _name(state: str) -> str:
    return SHOWN.get(state, state)


def to_text(found: list[Item]) -> str:
    """Return a line for each item, and the summary."""
    width = max(len(item.item) for item in found)
    lines, paper = [], ""
    for item in found:
        if item.paper != paper:
            paper = item.paper
            lines += ["", f"==== {paper}"]
        told = "; ".join(part for part in (item.claim, item.reason) if part)
        lines.append(f"{item.item:{width}}  {_name(item.state):13}  {told}")
    return "\n".join([*lines[1:], "", summary(found)])


def to_json(found: list[Item]) -> str:
    """Return a JSON list of ``{paper, item, kind, state, claim, reason}``."""
    return json.dumps([asdict(item) for item in found], indent=2, ensure_ascii=False)


def to_markdown(found: list[Item]) -> str:
    """Return a page in Markdown: a table for each paper."""
    lines = [
        "# What of the papers is checked",
        "",
        "Generated by `python -m dpanalysis claims --coverage --markdown`.",
        "Every numbered statement, figure, table and headline of the five papers has one line. The "
        "claims, with what",
        "the machine finds, are in ERRATA.md.",
        "",
        "; ".join(f"**{_name(state)}**: {meaning}" for state, meaning in STATES.items()) + ".",
        "",
        summary(found) + ".",
    ]
    paper = ""
    for item in found:
        if item.paper != paper:
            paper = item.paper
            lines += ["", f"## {paper}", "", "| item | state | claims | |", "|---|---|---|---|"]
        lines.append(f"| {item.item} | {_name(item.state)} | {item.claim} | {item.reason} |")
    return "\n".join(lines) + "\n"
