"""Rows, verdicts and the Markdown that shows them."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from .targets import TARGETS, Target, reason

HEADER = "| work | ours | beside | its value | ratio (best, worst) | floor | goal | verdict |"
RULE = "|---|---|---|---|---|---|---|---|"


@dataclass(frozen=True)
class Row:
    """Our measurement and that of a peer.

    ``key`` is the work, as named in :mod:`benchmarks.targets`, and ``case`` its size or setting.
    ``ours`` and ``other`` have one entry per turn, in ``unit``; ``other`` is empty without a peer.
    """

    key: str
    case: str
    ours: tuple[float, ...]
    unit: str = "ms"
    peer: str = ""
    other: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.other and len(self.other) != len(self.ours):
            raise ValueError(f"{self.path}: {len(self.ours)} turns beside {len(self.other)}")
        target = self.target
        if target is not None and target.sense == "at most" and target.unit not in ("", self.unit):
            raise ValueError(f"{self.path}: measured in {self.unit}, target in {target.unit}")
        if target is not None and target.sense != "at most" and not self.other:
            raise ValueError(f"{self.path}: a ratio is asked for and nothing stands beside")

    @property
    def path(self) -> str:
        """``key/peer/case``, the key for reasons."""
        return f"{self.key}/{self.peer}/{self.case}"

    @property
    def target(self) -> Target | None:
        """The target, or None."""
        return TARGETS.get(f"{self.key}/{self.peer}")

    @property
    def sense(self) -> str:
        """How to read the ratio: without a target, how much faster we are."""
        return "faster" if self.target is None else self.target.sense

    def _ratio(self, ours: float, other: float) -> float:
        return ours / other if self.sense == "times" else other / ours

    @property
    def ratio(self) -> float | None:
        """Ratio of the medians; None without a peer, or for a division by 0."""
        if not self.other or 0.0 in (self.other if self.sense == "times" else self.ours):
            return None
        return self._ratio(statistics.median(self.ours), statistics.median(self.other))

    @property
    def best_and_worst(self) -> tuple[float, float]:
        """Extremes over the turns of the ratio, or of ours without a peer."""
        if self.ratio is None:
            return min(self.ours), max(self.ours)
        ratios = [self._ratio(a, b) for a, b in zip(self.ours, self.other)]
        low, high = min(ratios), max(ratios)
        return (low, high) if self.sense == "times" else (high, low)

    @property
    def value(self) -> float:
        """The quantity that the target bounds."""
        ratio = self.ratio
        own = ratio is None or self.sense == "at most"
        return statistics.median(self.ours) if own else ratio

    @property
    def verdict(self) -> str:
        """``goal reached``, ``floor reached``, ``NOT reached`` or nothing."""
        return "" if self.target is None else self.target.verdict(self.value)

    def as_json(self) -> dict[str, Any]:
        """Return all fields and derived numbers."""
        return {
            "key": self.key,
            "case": self.case,
            "unit": self.unit,
            "ours": list(self.ours),
            "peer": self.peer,
            "other": list(self.other),
            "sense": self.sense,
            "ratio": self.ratio,
            "best_and_worst": list(self.best_and_worst),
            "floor": self.target and self.target.floor,
            "goal": self.target and self.target.goal,
            "verdict": self.verdict,
            "reason": reason(self.path) if self.verdict == "NOT reached" else "",
        }

    def as_markdown(self) -> str:
        """Return the line of the table."""
        ratio, (best, worst) = self.ratio, self.best_and_worst
        shown = "" if ratio is None else number(ratio)
        if len(self.ours) > 1:
            shown = f"{shown} ({number(best)}, {number(worst)})".lstrip()
        other = f"{number(statistics.median(self.other))} {self.unit}" if self.other else ""
        why = reason(self.path) if self.verdict == "NOT reached" else ""
        cells = [
            f"{self.key}: {self.case}" if self.case else self.key,
            f"{number(statistics.median(self.ours))} {self.unit}".rstrip(),
            self.peer,
            other.rstrip(),
            shown,
            *(("", "") if self.target is None else map(self.target.show, _bounds(self.target))),
            f"{self.verdict}: {why}" if why else self.verdict,
        ]
        return "| " + " | ".join(cells) + " |"


def _bounds(target: Target) -> tuple[float | None, float | None]:
    return target.floor, target.goal


def number(value: float) -> str:
    """Format with three digits, without an exponent if that is readable."""
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e7 else f"{value:.3g}"


def table(rows: Iterable[Row]) -> str:
    """Return the rows as one Markdown table."""
    return "\n".join([HEADER, RULE, *(row.as_markdown() for row in rows)])


def unmeasured(rows: Iterable[Row]) -> list[str]:
    """Return the targets without rows."""
    seen = {f"{row.key}/{row.peer}" for row in rows}
    return [name for name in TARGETS if name not in seen]


def section(title: str, rows: Iterable[Row], summary: str = "", own: str = "") -> str:
    """Return one section; ``own`` is a note if its run is not that of the page."""
    parts = [f"## {title}", own, table(rows), summary]
    return "\n\n".join(part for part in parts if part)


def _counted(text: str) -> str:
    """Return the sentence that counts the verdicts of some lines."""
    verdicts = [line.split("|")[-2].strip() for line in text.splitlines() if line.startswith("| ")]
    counts = ", ".join(
        f"{sum(found.startswith(verdict) for found in verdicts)} x {verdict}"
        for verdict in ("goal reached", "floor reached", "NOT reached")
    )
    return f"Rows with a target: {counts}."


def replaced(page: str, title: str, text: str, rows: Iterable[Row]) -> str:
    """Return the page with one section replaced or appended; counts and gaps are updated."""
    found = re.search(
        rf"^## {re.escape(title)}\n.*?(?=^## |^!\[|^Not measured|\Z)", page, re.M | re.S
    )
    if found:
        page = f"{page[: found.start()]}{text}\n\n{page[found.end() :]}"
    else:
        end = re.search(r"^!\[|^Not measured|^- skipped|\Z", page, re.M)
        assert end is not None
        page = f"{page[: end.start()].rstrip()}\n\n{text}\n\n{page[end.start() :]}"
    counted = re.compile(r"^Rows with a target: .*$", re.M)
    if not counted.search(page):
        raise ValueError("this is no page of results: it does not count its rows")
    measured = {f"{row.key}/{row.peer}" for row in rows}
    gaps = re.search(r"^Not measured in this run: (.*)\.$", page, re.M)
    if gaps:
        left = [name for name in gaps[1].split("; ") if name not in measured]
        line = "Not measured in this run: " + "; ".join(left) + "."
        page = page.replace(gaps[0], line if left else "")
    return counted.sub(_counted(page), page, count=1).rstrip() + "\n"


def page(
    about: dict[str, str],
    sections: dict[str, list[Row]],
    skipped: Iterable[str],
    images: Iterable[str] = (),
    summaries: Mapping[str, str] = MappingProxyType({}),
    elsewhere: Sequence[str] = (),
    names: Sequence[str] = (),
    file: str = "RESULTS.md",
) -> str:
    """Return the whole page of results.

    Sections have rows, and summaries a text below them, by title. ``elsewhere`` are pages of other
    processors, ``names`` the requested benchmarks, if not all.
    """
    rows = [row for part in sections.values() for row in part]
    others = [f"- Other processors: {', '.join(f'`{each}`' for each in elsewhere)}"]
    command = " ".join(["python -m benchmarks", *names, "--markdown", f"benchmarks/{file}"])
    lines = [
        "# Speed and memory beside peers",
        "",
        f"Written by `{command}`. Each ratio compares",
        "medians of calls that took turns in one run; best and worst are those of a single turn.",
        '"x" is ours over the other (less is better), "x faster" the other over ours (more is',
        "better); a row without floor and goal is for information, its ratio says how much faster",
        "we are. Unless a section says otherwise every peer ran in a process of its own, tied to",
        "as many cores as it had threads.",
        "",
        *(f"- {name}: {value}" for name, value in about.items()),
        *(others if elsewhere and not names else []),
        "",
        _counted("\n".join(row.as_markdown() for row in rows)),
    ]
    for title, part in sections.items():
        lines += ["", section(title, part, summaries.get(title, ""))]
    lines += ["", *(f"![{image}]({image})" for image in images)]
    missing, left_out = [] if names else unmeasured(rows), list(skipped)
    if missing:
        lines += ["", "Not measured in this run: " + "; ".join(missing) + "."]
    if left_out:
        lines += ["", *(f"- skipped: {line}" for line in left_out)]
    return "\n".join(lines).rstrip() + "\n"
