"""Coverage: every numbered statement, figure, table and headline of the papers, one line each.

A line names the claims that decide the item, the figure that draws it, what uses it, or why it
cannot be checked here. Each paper has its lines in ``ITEMS`` of its package, found automatically.
Nothing is computed: the state of an item with claims is their registered verdict, which the tests
recompute.

A line is ``item | claims | reason``. The item gets the worst verdict of its claims, unless the
line states another one before them, as in ``Theorem 2 | holds: 000-9 | its remark is wrong``,
where the claims judge more than the item. A line without claims states the kind of item,
``Definition 1 | used | ...``.
"""

from __future__ import annotations

import json
import pkgutil
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from . import registry
from .claim import SHOWN, VERDICTS, Claim, paper_of

#: The states of an item: a verdict, or one of four more.
STATES = {
    **VERDICTS,
    "drawn": "recomputed by a figure; no claim decides it",
    "used": "a definition, an assumption or an algorithm, with its code: nothing to decide",
    "standard": "a known fact, proved elsewhere; nothing here relies on it",
    "not checkable": "not checkable here, for the reason given",
}

_KINDS = {"Fig.": "figure", "Prop.": "proposition", "Section": "headline", "Abstract": "headline"}


@dataclass(frozen=True)
class Item:
    """One numbered statement, figure, table or headline of a paper."""

    paper: str  # its label: "Kuru 2022"
    item: str  # "Theorem 4.1", "Figure 3", "Headline: ..."
    kind: str  # its first word, in lower case; "equation" for a bare number
    state: str  # one of STATES; of several claims the worst verdict, if the line states none
    claim: str = ""  # ids of the claims that decide it
    reason: str = ""  # what draws or uses it, or why it is not checked; claims may have one too


def lines() -> dict[str, str]:
    """Return the lines of each paper by its id, from all packages beside this module."""
    from .. import papers

    registry.load()
    names = [each.name for each in pkgutil.iter_modules(papers.__path__, f"{papers.__name__}.")]
    packages = [sys.modules[name] for name in names if hasattr(sys.modules[name], "ITEMS")]
    return dict(sorted((each.PAPER.id, each.ITEMS) for each in packages))


def items(paper: str | None = None) -> list[Item]:
    """Return all items in the order of the papers."""
    claims = {claim.id: claim for claim in registry.load()}
    listed = lines()
    chosen = {paper_of(claim.paper).id for claim in registry.load(paper)} if paper else listed
    found = []
    for name, text in listed.items():
        if name in chosen:
            found += [_item(name, line, claims) for line in text.strip().splitlines()]
    return found


def _item(paper: str, line: str, claims: dict[str, Claim]) -> Item:
    """Return the item of a line; the module docstring has the format."""
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
        notes = "; ".join(part for part in (item.claim, item.reason) if part)
        lines.append(f"{item.item:{width}}  {_name(item.state):13}  {notes}")
    return "\n".join([*lines[1:], "", summary(found)])


def to_json(found: list[Item]) -> str:
    """Return a JSON list of ``{paper, item, kind, state, claim, reason}``."""
    return json.dumps([asdict(item) for item in found], indent=2, ensure_ascii=False)


def to_markdown(found: list[Item]) -> str:
    """Return a page in Markdown: a table for each paper."""
    lines = [
        "# Which statements of the papers are checked",
        "",
        "Generated by `python -m dpanalysis claims --coverage --markdown`.",
        "Every numbered statement, figure, table and headline of the papers has one line. The "
        "claims, with their",
        "evidence, are in ERRATA.md.",
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
