"""Texts for readers name papers by authors and year; ids of claims (001-9) are allowed."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from dpanalysis import audit
from dpanalysis.papers import report

ROOT = Path(__file__).parents[1]

# Folders and pages that are searched.
READ = (
    "dpanalysis",
    "figures",
    "notebooks",
    "benchmarks",
    "docs",
    "tests",
    "README.md",
    "ERRATA.md",
    "CHANGELOG.md",
)

NUMBER = "00[0-4]"
NAMED = re.compile(rf"(?<!-)\bpapers?\s+{NUMBER}\b(?!-\d)", re.I)
# "(001, (3.5))" and "002's": no part of 0.001 or 100 000, no literal ("001"), no count (003 rows).
BARE = re.compile(
    rf"(?<![\w.,\"'`-])(?<!\d )(?<!--paper ){NUMBER}"
    r"(?!'(?!s\b)|[\w\"`%]|[.,]\d|-\d| ?(?:x|samples|rows|cases|records|runs)\b)"
)


def numbers(text):
    """Paper numbers in a text, with their context."""
    found = sorted({m.start() for pattern in (NAMED, BARE) for m in pattern.finditer(text)})
    return [text[max(0, at - 40) : at + 20].replace("\n", " ") for at in found]


def files():
    for name in READ:
        path = ROOT / name
        yield from [path] if path.is_file() else sorted(path.rglob("*.*"))


# Generated pages of the site, which may be incomplete at this moment.
MADE = {"_generated", "_build"}
SOURCES = [
    path
    for path in files()
    if path.suffix in (".py", ".md", ".ipynb")
    and path != Path(__file__)
    and not MADE & set(path.relative_to(ROOT).parts)
]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_papers_have_authors_and_a_year(path):
    assert not numbers(path.read_text(encoding="utf-8"))


NUMBERS = "as paper 001 says|Papers 000 and 004|Paper 003.|(001, (3.5))|002's search|of 001.|003 is"
OTHERS = "errata 003-19|001-9, 001-10|100 000 rows|0.001|3,001|load('001')|--paper 001|`001`|1e-003"


@pytest.mark.parametrize("text", [*NUMBERS.split("|"), "paper\n  002"])
def test_paper_numbers_are_found(text):
    assert numbers(text)


@pytest.mark.parametrize("text", OTHERS.split("|"))
def test_ids_and_quantities_are_not(text):
    assert not numbers(text)


@pytest.mark.slow
def test_reports_and_messages():
    table = audit.claims(ids=["000-2", "001-10", "003-9", "004-2"]).run(quick=True)
    for text in (str(table), report.to_html(table), report.to_errata(table), report.to_json(table)):
        assert not numbers(text)
    argv = [sys.executable, "-m", "dpanalysis", "claims", "--help"]
    shown = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    assert not numbers(shown)
    with pytest.raises(ValueError, match=r"001 \(Kuru 2022\)") as error:
        audit.claims("nobody")
    assert "Chen 2020" in str(error.value)
