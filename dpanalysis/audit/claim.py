"""Claims of papers as objects that can fail.

A claim carries what a paper prints, what is used here, and a check. The check does not state a
verdict: it yields :class:`Evidence`, numbers recomputed now, and the verdict follows from them.
A claim *fails* when that verdict is not the one it was registered with. A claim whose check
needs something that is not installed here is *not checked*: it neither passes nor fails.
"""

from __future__ import annotations

import re
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from .._validation import check_choice
from .evidence import Effort, Evidence, NotChecked

__all__ = ["VERDICTS", "Claim", "Outcome"]

# What the evidence can say, from the best for the printed statement to the worst.
VERDICTS = {
    "holds": "as printed; the search found no violation",
    "sharpened": "the printed statement holds; a sharper one is used",
    "corrected": "the printed statement is violated; the one used here is not",
    "refuted": "the printed statement is violated; nothing takes its place",
}


@dataclass(frozen=True, eq=False)
class Claim:
    """A statement of a paper with the check that decides it.

    Attributes
    ----------
    id : str
        The id of the paper, a hyphen and the number of the claim: "001-9".
    source : str
        Theorem, equation or section.
    printed, used : str
        The statement as printed, and as used here ("" where they are the same).
    verdict : {"holds", "sharpened", "corrected", "refuted"}
        What the evidence must say; otherwise the claim fails.
    check : callable
        ``check(effort)`` yields :class:`Evidence`; ``effort`` is an :class:`Effort`.
    notes : tuple of (str, str)
        What else a report says of it: pairs of a heading and a text.

    Raises
    ------
    TypeError, ValueError
        If the id is not of that form, the verdict is unknown, a statement is no string or the
        check cannot be called.

    Examples
    --------
    >>> from dpanalysis.audit import printed, used
    >>> def check(effort):
    ...     yield printed("1 + 1", 1 + 1, "==", 3)
    ...     yield used("1 + 1", 1 + 1, "==", 2)
    >>> outcome = Claim("999-1", "(1)", "1 + 1 = 3", "1 + 1 = 2", "corrected", check).run()
    >>> outcome.verdict, outcome.passed
    ('corrected', True)
    """

    id: str
    source: str
    printed: str
    used: str
    verdict: str
    check: Callable[[Effort], Iterable[Evidence]] = field(repr=False)
    notes: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        for name in ("id", "source", "printed", "used"):
            if not isinstance(value := getattr(self, name), str):
                raise TypeError(f"{name} must be a string, got {value!r}")
        if not _ID.fullmatch(self.id):
            form = "the paper's id, a hyphen and a number, such as '001-9'"
            raise ValueError(f"id must be {form}, got {self.id!r}")
        check_choice("verdict", self.verdict, tuple(VERDICTS))
        if not callable(self.check):
            raise TypeError(f"check must be a function of the effort, got {self.check!r}")

    @property
    def paper(self) -> str:
        """The id of the paper."""
        return self.id.rpartition("-")[0]

    def run(self, effort: Effort | None = None) -> Outcome:
        """Recompute the evidence; an error in the check is a failure, not an exception."""
        start = time.perf_counter()
        evidence: list[Evidence] = []
        error = missing = None
        try:
            evidence.extend(map(_checked, self._yielded(effort or Effort())))
            if not evidence:
                error = "the check compares nothing: it must yield printed(...) or used(...)"
        except NotChecked as reason:
            missing = str(reason) or "the check needs something that is not installed here"
        except KeyboardInterrupt:
            raise
        except BaseException:  # a check that calls sys.exit() must not end the command either
            error = traceback.format_exc()
        return Outcome(self, tuple(evidence), time.perf_counter() - start, error, missing)

    def _yielded(self, effort: Effort) -> Iterable[Evidence]:
        """Return what the check yields: nothing, if it returns None."""
        found = self.check(effort)
        return () if found is None else found


# A paper's id, a hyphen, a number.
_ID = re.compile(r"\w[\w.-]*-[0-9]+")


def _checked(item: object) -> Evidence:
    """Return what a check yields, if it is evidence and no subclass, whose verdict could differ."""
    if type(item) is not Evidence:
        raise TypeError(f"a check must yield printed(...) or used(...), got {item!r}")
    return item


@dataclass(frozen=True)
class Outcome:
    """What a claim's check found.

    Attributes
    ----------
    claim : Claim
    evidence : tuple of Evidence
    seconds : float
    error : str or None
        Traceback of a check that raised, or a sentence on one that compared nothing.
    missing : str or None
        What the check needs and does not find here.

    Examples
    --------
    >>> from dpanalysis.audit import printed
    >>> claim = Claim("999-2", "(2)", "2 < 1", "", "holds", lambda effort: [])
    >>> Outcome(claim, (printed("2", 2, "<=", 1),), 0.0).passed
    False
    """

    claim: Claim
    evidence: tuple[Evidence, ...]
    seconds: float
    error: str | None = None
    missing: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "evidence", tuple(self.evidence))

    @property
    def verdict(self) -> str:
        """What the evidence says: a verdict of ``VERDICTS``, or one of three more.

        "not checked": the check needs something that is not installed here. "error": the check
        raised, or compared nothing. "broken": the statement used here is violated, or nothing
        was compared with the printed one.
        """
        if self.missing is not None:
            return "not checked"
        if self.error is not None or not self.evidence:
            return "error"
        of = {about: [e for e in self.evidence if e.about == about] for about in _ABOUT}
        printed_holds = all(e.holds for e in of["printed"])
        if not of["printed"] or not all(e.holds for e in of["used"]):
            return "broken"
        if printed_holds:
            return "sharpened" if of["used"] else "holds"
        return "corrected" if of["used"] else "refuted"

    @property
    def passed(self) -> bool:
        """Whether the evidence says what the claim was registered with."""
        return self.verdict == self.claim.verdict

    @property
    def failed(self) -> bool:
        """Whether the evidence says something else; a claim that is not checked does not fail."""
        return not self.passed and self.missing is None


_ABOUT = ("printed", "used")
