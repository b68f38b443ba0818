"""Tables as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["markdown"]


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table; the first column holds the names of the rows.

    >>> print(markdown(["", "GD"], [["gap", "-1.03"]]))
    |  | GD |
    |---|---|
    | gap | -1.03 |
    """
    lines = [list(head), ["---"] * len(head), *map(list, rows)]
    text = ["| " + " | ".join(line) + " |" for line in lines]
    text[1] = "|" + "---|" * len(head)
    return "\n".join(text)
