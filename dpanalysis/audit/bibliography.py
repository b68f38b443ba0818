"""The papers whose claims are checked: how one is cited, registered and found."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from .._validation import check_int

__all__ = ["Paper", "enter", "find", "forget", "ids", "paper_of"]


@dataclass(frozen=True, kw_only=True)
class Paper:
    """A paper whose claims are checked, with everything that readers see of it.

    Parameters
    ----------
    id : str
        What the ids of its claims begin with: "001" for the claims "001-1", "001-2" and so on.
    title : str
    authors : str, optional
        Surnames, separated by commas.
    year : int, optional
        From 1600 on; needed where authors are given.
    venue : str, optional
        Where it appeared.
    setting : str, optional
        What all its statements assume: neighbours, sampling, the notion of privacy.
    label : str, optional
        A short name: by default the first author and the year, or the id where nobody is named.

    Raises
    ------
    TypeError, ValueError
        If a field is of the wrong kind, the title is empty, the year is missing, or the id holds
        anything but letters, digits, "_", "." and "-".

    Examples
    --------
    >>> paper = Paper(id="900", authors="Doe, Roe, Poe", year=2025, title="On noise")
    >>> paper.label, paper.cite
    ('Doe 2025', 'Doe et al. (2025)')
    >>> paper.reference
    'Doe, Roe, Poe, *On noise* (2025)'
    """

    id: str
    title: str
    authors: str = ""
    year: int | None = None
    venue: str = ""
    setting: str = ""
    label: str = ""

    def __post_init__(self) -> None:
        for name in ("id", "title", "authors", "venue", "setting", "label"):
            if not isinstance(value := getattr(self, name), str):
                raise TypeError(f"{name} must be a string, got {value!r}")
        if not self.title.strip():
            raise ValueError("title must not be empty")
        if not _ID.fullmatch(self.id):
            raise ValueError(f"id must be of letters, digits, '_', '.' and '-', got {self.id!r}")
        if self.surnames and self.year is None:
            raise ValueError(f"year must be given, as authors are: {self.authors!r}")
        if self.year is not None:
            object.__setattr__(self, "year", check_int("year", self.year, low=1600))
        if not self.label:
            short = f"{self.surnames[0]} {self.year}" if self.surnames else self.id
            object.__setattr__(self, "label", short)

    @property
    def surnames(self) -> tuple[str, ...]:
        """The authors, one by one."""
        return tuple(name.strip() for name in self.authors.split(",") if name.strip())

    @property
    def cite(self) -> str:
        """How a sentence refers to the paper: "Doe et al. (2025)"; its title if nobody is named."""
        if not self.surnames:
            return self.title
        first, *others = self.surnames
        names = f"{first} et al." if len(others) > 1 else " and ".join(self.surnames)
        return f"{names} ({self.year})"

    @property
    def reference(self) -> str:
        """Authors, title, venue and year, as in a list of references; Markdown."""
        if not self.surnames:
            return self.title
        venue = f", {self.venue}" if self.venue else ""
        return f"{self.authors}, *{self.title}*{venue} ({self.year})"


_ID = re.compile(r"\w[\w.-]*")
_PAPERS: dict[str, Paper] = {}


def enter(paper: Paper) -> Paper:
    """Add a paper to those that are known, and return it; a second time changes nothing.

    Raises
    ------
    ValueError
        If another paper has its id or its label.
    """
    for other in list(_PAPERS.values()):
        if other.id != paper.id and _same(other.label, paper.label):
            raise ValueError(
                f"label must be new, {paper.label!r} is the paper {other.id!r}: "
                f"give another, such as label='{paper.label}b'"
            )
    known = _PAPERS.setdefault(paper.id, paper)
    if known != paper:
        raise ValueError(f"id must be new, the paper {paper.id!r} is {known.reference}")
    return paper


def ids() -> set[str]:
    """Return the ids of the papers that are registered."""
    return set(_PAPERS)


def forget(ids: Collection[str]) -> None:
    """Remove papers, as if they had not been registered."""
    for id in ids:
        del _PAPERS[id]


def paper_of(id: str) -> Paper:
    """Return the paper with this id; where nothing is known of it, one whose title is its id."""
    return _PAPERS.get(id) or Paper(id=id, title=id)


def find(text: str, among: Collection[str]) -> Paper:
    """Return the paper that an id, a label, a citation or a first author names.

    Parameters
    ----------
    text : str
        For instance "001", "Kuru 2022", "Kuru et al. (2022)" or "Kuru"; capitals do not matter.
    among : collection of str
        Ids of the papers that may be meant.

    Raises
    ------
    TypeError, ValueError
        If it is no string, or names no paper, or several.
    """
    if not isinstance(text, str):
        raise TypeError(f"paper must be a string, got {text!r}")
    papers = [paper_of(id) for id in among]
    names = {paper.id: {paper.label, paper.cite, *paper.surnames[:1]} for paper in papers}
    exact = [paper for paper in papers if paper.id == text]
    found = exact or [p for p in papers if any(_same(name, text) for name in names[p.id])]
    if len(found) == 1:
        return found[0]
    listed = ", ".join(
        paper.id if paper.label == paper.id else f"{paper.id} ({paper.label})"
        for paper in found or papers
    )
    raise ValueError(f"paper must be one of {listed}; got {text!r}")


def _same(one: str, other: str) -> bool:
    return one.strip().casefold() == other.strip().casefold()
