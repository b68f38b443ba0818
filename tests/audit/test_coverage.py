"""The list of checked statements is complete, by the numbering of the papers."""

import importlib
import json
import os
import re
import sys
from pathlib import Path

import pytest

import dpanalysis as dpa
from dpanalysis import __main__ as command
from dpanalysis import papers
from dpanalysis.papers import claim as bibliography
from dpanalysis.papers import coverage, per_sample_clipping, registry
from dpanalysis.papers.claim import VERDICTS

ROOT = Path(__file__).parents[2]
ITEMS = coverage.items()
PAPERS = {each: bibliography.paper_of(each).label for each in coverage.lines()}
TEXTS = Path(os.environ.get("DPANALYSIS_DATA", "/nowhere")).parent / "papers"


def upto(prefix, *numbers):
    return [f"{prefix}{number}" for number in numbers]


# The numbering of the papers as published.
NUMBERING = {
    "Xia 2023": {
        "Definition": upto("", 1),
        "Assumption": upto("", 1, 2),
        "Algorithm": upto("", 1),
        "Theorem": upto("", 1, 2),
        "Corollary": upto("", 1),
        "Lemma": upto("", 1, 2, 3, 4, 5, 6),
        "Remark": upto("", 1, 2),
        "Figure": upto("", 1, 2, 3, 4),
        "Table": upto("", 1, 2, 3),
    },
    "Kuru 2022": {
        "Definition": upto("A.", 1, 2, 3),
        "Assumption": upto("3.", 2),
        "Theorem": ["3.5", "4.1", "4.3", "A.1", "A.2", "A.3"],
        "Proposition": ["3.1", "3.3", "3.4", "4.2"],
        "Lemma": ["B.1"],
        "Remark": ["4.1", "4.2"],
        "Figure": upto("", 1, 2, 3, 4),
    },
    "Chen 2020": {
        "Definition": upto("", 1, 2, 3, 4),
        "Proposition": upto("", 1),
        "Algorithm": upto("", 1, 2, 3),
        "Theorem": upto("", 1, 2, 3, 4),
        "Lemma": upto("", 1, 2, 3, 4, 5),
        "Figure": upto("", 1, 2, 3, 4, 5),
        "Table": upto("", 1),
    },
    "Gao 2023": {
        "Definition": ["1", "2", *upto("A.", 1, 2, 3, 4), "B.1"],
        "Assumption": upto("", 1, 2),
        "Algorithm": upto("", 1, 2, 3),
        "Theorem": ["1", "4", "5", "8", *upto("B.", 3, 4, 5, 6, 7, 8, 9), "D.5"],
        "Corollary": ["3", "D.4"],
        "Proposition": [*upto("A.", 1, 2, 3, 4, 5, 6, 7), "B.1"],
        "Lemma": ["2", "6", "7", "B.1", "B.2", "C.1", *upto("D.", 1, 2, 3, 6, 7)],
        "Table": upto("", *range(1, 13)),
    },
    "Fang 2023": {
        "Definition": ["3.1", "3.3"],
        "Assumption": ["4.1"],
        "Algorithm": upto("", 1, 2, 3, 4),
        "Theorem": ["3.4", "4.5"],
        "Proposition": ["4.2", "4.3", "4.4"],
        "Corollary": ["5.1"],
        "Lemma": ["3.2", *upto("A.", *range(1, 14)), "B.1", "D.1"],
        "Remark": ["4.1", "4.2", "5.1"],
        "Figure": upto("", 1, 2, 3, 4, 5),
        "Table": upto("", 1, 2),
    },
}


def test_every_paper_has_its_numbering():
    assert sorted(PAPERS.values()) == sorted(NUMBERING), "list the paper's numbers in NUMBERING"


@pytest.mark.parametrize("paper", NUMBERING)
def test_every_numbered_statement_has_one_line(paper):
    numbered = [
        f"{kind} {number}" for kind, all_of in NUMBERING[paper].items() for number in all_of
    ]
    named = [item.item for item in ITEMS if item.paper == paper]
    assert sorted(set(numbered) - set(named)) == [], "missing"
    assert len(named) == len(set(named)), "twice"
    kinds = tuple(NUMBERING[paper])
    assert sorted({name for name in named if name.startswith(kinds)} - set(numbered)) == [], "extra"
    headlines = sum(item.kind == "headline" for item in ITEMS if item.paper == paper)
    assert headlines >= 5, "ITEMS must have five lines 'Headline: ...', the paper's own claims"


# Numbers in a text that belong to another paper, or are misprints.
ELSEWHERE = {
    "Kuru 2022": {
        *("Theorem 12", "Theorem 1", "Theorem 2.3", "Theorem 9", "Lemma 3.3", "Lemma 4.5"),
        *("Proposition 4.6", "Corollary 3.15", "Corollary 4.7", "Definition 1", "Definition 3.1"),
        "Algorithm 2",
    },
    "Gao 2023": {"Lemma 17", "Definition 5", "Definition 20"},
    "Fang 2023": {
        *("Theorem 1", "Theorem 2.1", "Theorem 3.2", "Proposition 2.5", "Proposition 4.1"),
        *("Remark 5", "Lemma A.4", "Assumption 2"),
    },
}
MENTIONED = re.compile(
    r"\b(Theorem|Lemma|Proposition|Corollary|Remark|Definition|Assumption|Algorithm|Figure|Fig\.|Table)"
    r"\s*\(?([A-D]\.\d+|\d+(?:\.\d+)?)",
    re.I,
)


@pytest.mark.skipif(not TEXTS.is_dir(), reason="the texts of the papers are not beside the data")
@pytest.mark.parametrize(("number", "paper"), list(PAPERS.items()))
def test_the_texts_mention_no_other_numbers(number, paper):
    text = next(TEXTS.glob(f"{number}_*.txt"), None)
    if text is None:
        pytest.skip(f"the text of {paper} is not beside the data")
    named = {item.item for item in ITEMS if item.paper == paper}
    for kind, at in MENTIONED.findall(text.read_text(encoding="utf-8")):
        name = f"{'Figure' if kind[:3].lower() == 'fig' else kind.title()} {at}"
        assert name in named | ELSEWHERE.get(paper, set()), name


def test_every_line_has_claims_or_a_reason():
    registered = {claim.id: claim.verdict for claim in registry.load()}
    order = list(VERDICTS)
    lines = [line for table in coverage.lines().values() for line in table.strip().splitlines()]
    for line, item in zip(lines, ITEMS, strict=True):
        assert item.state in coverage.STATES and item.kind
        ids = item.claim.split(", ") if item.claim else []
        assert all(each in registered for each in ids) and (ids or item.reason), item
        worst = max((registered[each] for each in ids), key=order.index) if ids else None
        if ":" in line.split("|")[1]:
            assert item.state != worst and item.reason, item
        else:
            assert item.state == worst if ids else item.state not in order, item


def test_a_line_may_state_another_verdict_than_its_claims(monkeypatch):
    line = "Theorem 1 | holds: 000-8 | its remark is wrong"
    monkeypatch.setattr(per_sample_clipping, "ITEMS", line)
    (item,) = coverage.items("Xia")
    assert (item.state, item.claim, item.reason) == ("holds", "000-8", "its remark is wrong")
    monkeypatch.setattr(per_sample_clipping, "ITEMS", "Theorem 1 | right: 000-8 |")
    with pytest.raises(ValueError, match="states 'right', which is none of"):
        coverage.items("Xia")


PACKAGES = sorted(os.listdir(Path(papers.__file__).parent))


@pytest.mark.parametrize("name", [n for n in PACKAGES if "." not in n and "__" not in n])
def test_numbers_without_a_claim_are_explained(name):
    paper = importlib.import_module(f"dpanalysis.papers.{name}")
    numbers = [int(claim.id.rpartition("-")[2]) for claim in registry.load(paper.PAPER.id)]
    absent = {f"{paper.PAPER.id}-{n}" for n in set(range(1, max(numbers))) - set(numbers)}
    gaps = getattr(paper, "GAPS", {})
    assert absent == set(gaps) and all(gaps.values())


def test_every_claim_of_the_papers_stands_in_a_line():
    named = {each for item in ITEMS for each in item.claim.split(", ")}
    inside = [c for c in registry.load() if registry._home(c).count(".") > 2]  # not of doctests
    ours = {c.id for c in inside if bibliography.paper_of(c.paper).authors}
    assert sorted(ours - named) == []


def test_what_lines_name_exists():
    """Figures, and public names of the package."""
    for item in ITEMS:
        for command_line in re.findall(r"`python -m figures ([\w ]+)`", item.reason):
            for name in command_line.split():
                assert (ROOT / "figures" / f"{name}.py").is_file(), name
        for module, name in re.findall(
            r"`(theory|methods|clipping|privacy|audit)\.(\w+)", item.reason
        ):
            found = importlib.import_module(f"dpanalysis.{module}")
            if not hasattr(found, name):
                importlib.import_module(f"dpanalysis.{module}.{name}")
    assert dpa.Budget and dpa.ERM and dpa.RowBound


def test_the_command(tmp_path, capsys):
    assert command.main(["claims", "--coverage", "--json", "--paper", "Kuru"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["paper"] for row in rows} == {"Kuru 2022"}
    assert set(rows[0]) == {"paper", "item", "kind", "state", "claim", "reason"}
    assert command.main(["claims", "--coverage"]) == 0
    shown = capsys.readouterr().out
    assert shown.splitlines()[-1] == coverage.summary(ITEMS) and "Theorem 4.1 " in shown
    file = tmp_path / "coverage.md"
    assert command.main(["claims", "--coverage", "--markdown", "-o", str(file)]) == 0
    assert file.read_text(encoding="utf-8") == coverage.to_markdown(ITEMS)
    for wrong in (["--markdown"], ["--coverage", "--html"], ["--coverage", "--id", "001-9"]):
        with pytest.raises(SystemExit) as error:
            command.main(["claims", *wrong])
        assert error.value.code == 2


def test_a_line_with_an_unknown_claim_is_refused(monkeypatch):
    monkeypatch.setattr(per_sample_clipping, "ITEMS", "Theorem 1 | 000-999 |")
    with pytest.raises(ValueError, match="names the claim '000-999', which is not registered"):
        coverage.items("Xia")


SIXTH = """
from ..claim import Paper, printed
from ..registry import register

PAPER = register(Paper(id="999", authors="Roe", year=2026, title="On nothing"))
ITEMS = "Theorem 1 | 999-1 |"


@register("999-1", "Theorem 1", "0 is at most 1", verdict="holds")
def nothing(effort):
    yield printed("0", 0.0, "<=", 1.0)
"""


def test_the_lines_of_another_paper_are_found(monkeypatch, tmp_path):
    (tmp_path / "sixth").mkdir()
    (tmp_path / "sixth" / "__init__.py").write_text(SIXTH, encoding="utf-8")
    monkeypatch.setattr(papers, "__path__", [*papers.__path__, str(tmp_path)])
    monkeypatch.setattr(bibliography, "_PAPERS", {**bibliography._PAPERS})
    monkeypatch.setattr(registry, "_CLAIMS", {**registry._CLAIMS})
    try:
        (item,) = [each for each in coverage.items() if each.paper == "Roe 2026"]
    finally:
        sys.modules.pop(f"{papers.__name__}.sixth", None)
    assert (item.item, item.state, item.claim) == ("Theorem 1", "holds", "999-1")
