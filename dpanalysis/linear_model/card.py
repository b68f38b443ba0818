"""Privacy card of a fitted model: the guarantee and what it covers, as text, JSON and HTML."""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from ..privacy.accounting.curves import PrivacyCurve
from ..privacy.accounting.relations import directed
from ..privacy.ledger import Ledger

_RELATIONS = {
    "replace_one": "one record replaced by any other; the number of records is public",
    "add_or_remove_one": "one record added or removed, under the same public nominal size",
}

#: Line of the card where the noise was drawn from a seed or a generator.
RESEARCH_ONLY = (
    "RESEARCH ONLY: random_state was given, and anyone who knows it, or another fit with it, can "
    "undo the noise; leave it None for a release"
)

# Integers, and the arguments of NumPy's objects, which a long repr may cut off.
_SEED = re.compile(
    r"\brandom_state=(?!None\b|'os')(?:[\w.]+\((?:[^()]|\([^()]*\))*\)?|[\w.]+)(?: at 0x\w+)?"
)

_CHOICE_REPEATS = (
    "RESEARCH ONLY: rng was given to the choice, and anyone who knows it can undo the noise of its "
    "scores; pass rng='os' for a release"
)


@dataclass(frozen=True)
class PrivacyCard:
    """The guarantee of a fitted model.

    Attributes
    ----------
    epsilon, delta : float
        Cost of the releases in the ledger: the fit, and the learned bounds that could be traced.
        Not the total where ``not_counted`` lists anything.
    relation : str
        The neighbouring relation.
    ledger : tuple of str
        The releases, each described in one line.
    model : str
        The estimator with its settings; a seed is not shown, which would undo the noise.
    facts : mapping of str to str
        Decisions made from public facts or from charged releases, with their reasons.
    covered, not_covered : tuple of str
    not_counted : tuple of str
        Possible further uses of the same records, not in the ledger, which would add to epsilon.

    Examples
    --------
    >>> line = "a release with epsilon 1 and delta 0"
    >>> card = PrivacyCard(1.0, 0.0, "replace_one", (line,), "LogisticRegression()")
    >>> PrivacyCard.from_json(card.to_json()) == card
    True
    >>> print(str(card).splitlines()[1])
    epsilon = 1, delta = 0 (pure): one record replaced by any other; the number of records is public
    >>> print(str(card).splitlines()[2])
    An attacker who knows all other records, and ..., finds at most 2.8 of 100 that are present
    """

    epsilon: float
    delta: float
    relation: str
    ledger: tuple[str, ...]
    model: str
    facts: Mapping[str, str] = None  # type: ignore[assignment]
    covered: tuple[str, ...] = ()
    not_covered: tuple[str, ...] = ()
    not_counted: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "facts", dict(self.facts or {}))
        shown = _SEED.sub("random_state=<not shown>", self.model)
        object.__setattr__(self, "model", shown)

    def __str__(self) -> str:
        lines = [self.model, self._guarantee(), self._in_words(), ""]
        for title, content in self._parts():
            lines += [title, *(f"  - {line}" for line in content), ""]
        return "\n".join(lines).rstrip()

    def _guarantee(self) -> str:
        delta = f"delta = {directed(self.delta, 3)}" + (" (pure)" if self.delta == 0.0 else "")
        alone = ", for what the ledger lists, which may not be all" if self.not_counted else ""
        return f"epsilon = {directed(self.epsilon, 6)}, {delta}{alone}: {_RELATIONS[self.relation]}"

    def _in_words(self) -> str:
        """Return an attacker's largest true positive rate at a false positive rate of 1/100."""
        found = PrivacyCurve([self.epsilon], [self.delta]).true_positive_rate(0.01)
        alone = "From what the ledger lists, an" if self.not_counted else "An"
        return (
            f"{alone} attacker who knows all other records, and takes 1 in 100 absent ones for "
            f"present, finds at most {min(math.ceil(1000.0 * found - 1e-9) / 10.0, 100.0):g} of "
            "100 that are present"
        )

    def _parts(self) -> list[tuple[str, list[str]]]:
        parts = [
            ("Ledger", list(self.ledger)),
            ("Not counted in epsilon", list(self.not_counted)),
            (
                "Decided from public facts, or paid for",
                [f"{k}: {v}" for k, v in self.facts.items()],
            ),
            ("Covered by the guarantee", list(self.covered)),
            ("Not covered", list(self.not_covered)),
        ]
        return [(title, content) for title, content in parts if content]

    def of_choice(self, ledger: Ledger, delta: float, repeatable: bool = False) -> PrivacyCard:
        """Return the card of a model that was selected from several private runs.

        ``ledger`` covers the whole selection, as in a :class:`~dpanalysis.tuning.Selection`;
        epsilon is stated at ``delta``. ``repeatable``: the selection used a seed or a generator.
        """
        note = "the best of a random number of runs, by a private score; the ledger is of them all"
        return replace(
            self,
            epsilon=ledger.epsilon(delta),
            delta=delta,
            ledger=tuple(event.describe() for event in ledger),
            facts={**self.facts, "Choice": note},
            not_covered=tuple(dict.fromkeys([*[_CHOICE_REPEATS] * repeatable, *self.not_covered])),
        )

    def to_json(self) -> str:
        """Return the card as JSON."""
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> PrivacyCard:
        """Return a card from the output of :meth:`to_json`; ValueError for another text."""
        try:
            read = json.loads(text).items()
            kept: Any = {k: tuple(v) if isinstance(v, list) else v for k, v in read}
            return cls(**kept)
        except (AttributeError, TypeError, ValueError) as error:
            raise ValueError(f"text must be a card written by to_json() ({error})") from None

    def to_html(self) -> str:
        """Return the card as an HTML page without scripts."""
        return (
            '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width">\n<title>Model card</title>\n'
            "<style>body { font: 16px/1.5 sans-serif; max-width: 45em; margin: 2em auto; "
            f"padding: 0 1em }}</style>\n{self._repr_html_()}\n</html>\n"
        )

    def _repr_html_(self) -> str:
        rows = [f"<h2>{html.escape(self.model)}</h2>"]
        rows += [f"<p>{html.escape(line)}</p>" for line in (self._guarantee(), self._in_words())]
        for title, content in self._parts():
            rows.append(f"<h3>{html.escape(title)}</h3>\n<ul>")
            rows += [f"<li>{html.escape(line)}</li>" for line in content]
            rows.append("</ul>")
        return "\n".join(rows)
