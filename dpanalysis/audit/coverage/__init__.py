"""Every numbered statement, figure, table and headline of the papers: one line each.

A line names the claims that decide the item (:mod:`dpanalysis.audit.papers`), or the figure that
draws it, or says what uses it, or why it cannot be checked here. Nothing is computed: the state of
an item with claims is the verdict that they are registered with, which the tests recompute.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from .. import registry
from ..bibliography import paper_of
from ..claim import VERDICTS
from . import accelerated, line_search, per_sample_clipping, second_order, value_clipping

__all__ = ["STATES", "Item", "items", "summary", "to_json", "to_markdown", "to_text"]

#: What an item can be: decided by claims, or one of four more.
STATES = {
    **VERDICTS,
    "drawn": "recomputed by a figure, no claim decides it",
    "used": "a definition, an assumption or an algorithm: nothing to decide; what implements it",
    "standard": "a known fact with a proof elsewhere, which nothing here rests on",
    "not checkable": "not checkable here, with the reason",
}

_PAPERS = {
    "000": per_sample_clipping.ITEMS,
    "001": accelerated.ITEMS,
    "002": line_search.ITEMS,
    "003": second_order.ITEMS,
    "004": value_clipping.ITEMS,
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
        One of :data:`STATES`; of several claims the worst verdict.
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
    """Return all items in the order of the papers.

    Parameters
    ----------
    paper : str, optional
        Only those of this paper: its id, its label, or its first author.

    Raises
    ------
    ValueError
        If there is no such paper, or a line names a claim that is not registered.

    Examples
    --------
    >>> [item.claim for item in items("Kuru") if item.item == "Theorem 4.1"]
    ['001-9']
    """
    claims = {claim.id: claim for claim in registry.load()}
    chosen = {paper_of(claim.paper).id for claim in registry.load(paper)} if paper else _PAPERS
    found = []
    for name, lines in _PAPERS.items():
        if name in chosen:
            found += [_item(name, line, claims) for line in lines.strip().splitlines()]
    return found


def _item(paper: str, line: str, claims: dict[str, registry.Claim]) -> Item:
    """Return the item of a line: "Theorem 1 | 000-8 000-9 | reason", or a state for the ids."""
    name, state, reason = (part.strip() for part in line.split("|", 2))
    first = name.split()[0].rstrip(":")
    kind = "equation" if first.startswith("(") else _KINDS.get(first, first.lower())
    label = paper_of(paper).label
    if state in STATES:
        return Item(label, name, kind, state, "", reason)
    ids = state.split()
    for each in ids:
        if each not in claims:
            raise ValueError(f"{name} of {label} names the claim {each!r}, which is not registered")
    worst = max((claims[each].verdict for each in ids), key=list(VERDICTS).index)
    return Item(label, name, kind, worst, ", ".join(ids), reason)


def summary(found: Iterable[Item]) -> str:
    """Return one sentence: how many items of each state.

    Examples
    --------
    >>> summary([Item("Doe 2025", "Lemma 1", "lemma", "holds", "900-1")])
    '1 items: 1 holds'
    """
    counts = Counter(item.state for item in found)
    listed = ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state])
    return f"{sum(counts.values())} items: {listed}"


def to_text(found: list[Item]) -> str:
    """Return a line for each item, and the summary."""
    width = max(len(item.item) for item in found)
    lines, paper = [], ""
    for item in found:
        if item.paper != paper:
            paper = item.paper
            lines += ["", f"==== {paper}"]
        told = "; ".join(part for part in (item.claim, item.reason) if part)
        lines.append(f"{item.item:{width}}  {item.state:13}  {told}")
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
        "; ".join(f"**{state}**: {meaning}" for state, meaning in STATES.items()) + ".",
        "",
        summary(found) + ".",
    ]
    paper = ""
    for item in found:
        if item.paper != paper:
            paper = item.paper
            lines += ["", f"## {paper}", "", "| item | state | claims | |", "|---|---|---|---|"]
        lines.append(f"| {item.item} | {item.state} | {item.claim} | {item.reason} |")
    return "\n".join(lines) + "\n"
