"""Sources of the site: every page is linked, every public name has a page, all code runs.

The site itself is built by ``python -m sphinx -W`` and checked by ``docs/check.py``.
"""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import dpanalysis
from dpanalysis.papers import claim as bibliography
from dpanalysis.papers import coverage, registry
from dpanalysis.papers.report import PAPERS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS / "_ext"))
site_api = importlib.import_module("site_api")
site_tables = importlib.import_module("site_tables")
checker_path = DOCS / "check.py"

PAGES = [*sorted(DOCS.glob("*.md")), *sorted((DOCS / "papers").glob("*.md"))]
TOCTREE = re.compile(r"^```\{toctree\}\n(.*?)^```", re.M | re.S)


def entries(page):
    """The pages that the toctrees of a page name."""
    for block in TOCTREE.findall(page.read_text(encoding="utf-8")):
        for line in block.splitlines():
            if line and not line.startswith(":"):
                yield (page.parent / line).resolve()


def test_every_page_is_reached_once():
    named = [entry for page in PAGES for entry in entries(page)]
    written = {page.with_suffix("").resolve() for page in PAGES} - {(DOCS / "index").resolve()}
    assert written <= set(named) and len(named) == len(set(named))
    made = {str(each.relative_to(DOCS)) for each in set(named) - written}
    assert made == {"_generated/figures/*", "_generated/notebooks/*", "_generated/api/*"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_sources_lead_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.S)
    for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        if not link.startswith(("http", "/_generated")):
            assert (page.parent / link).exists(), link
    for included in re.findall(r"\{(?:include|literalinclude)\} (\S+)", page.read_text("utf-8")):
        assert (page.parent / included).is_file(), included


def public_modules():
    """Modules with an ``__all__`` that a user can import without a leading underscore."""
    names = ["dpanalysis", *(f"dpanalysis.{name}" for name in sorted(dpanalysis._MODULES))]
    found = {name: importlib.import_module(name) for name in names}
    return {name for name, module in found.items() if getattr(module, "__all__", None)}


def test_every_public_name_has_a_page():
    pages = dict(site_api.pages())
    assert public_modules() <= set(pages)
    page = (DOCS / "api.md").read_text(encoding="utf-8")
    assert re.findall(r"^   (dpanalysis[\w.]*)$", page, re.M) == list(site_api.MODULES)
    for name in site_api.MODULES:
        for each in site_api.public(importlib.import_module(name)):
            pattern = rf"^   {each}$|``{each}`` is|autodata:: {name}\.{each}$|<{name}\.{each}>`"
            assert re.search(pattern, pages[name], re.M), f"{name}.{each}"
    listed = re.findall(r"is :obj:`([\w.]+)`", "".join(pages.values()))
    assert listed  # a name in two modules is described in one
    for full in listed:
        module, _, each = full.rpartition(".")
        assert re.search(rf"^   {each}$", pages[module], re.M), full


PAGES_WITH_CODE = "index.md", "five_minutes.md", "researchers.md", "release.md", "scale.md"
CODE = [DOCS / name for name in PAGES_WITH_CODE]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::dpanalysis.linear_model.PrivacyWarning")
@pytest.mark.parametrize("page", CODE, ids=lambda page: page.name)
def test_code_of_pages_runs(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "page"}
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), flags=re.M | re.S)
    for block in blocks:
        exec(compile(block, str(page), "exec"), names)
    assert blocks and capsys.readouterr().out


def test_every_sharp_edge_has_a_wrong_and_a_right_example():
    text = (DOCS / "release.md").read_text(encoding="utf-8")
    sections = [part for part in text.split("\n## ")[1:] if not part.startswith("Small print")]
    assert len(sections) >= 6
    for part in sections:
        assert part.count("# Wrong") == part.count("# Right") == 1, part.splitlines()[0]


def test_claims_of_the_site_are_those_of_the_registry():
    known = {claim.id: claim for claim in registry.load()}
    rows = {row[0]: row for row in site_tables.claim_rows()}
    stale = "stale: python -m dpanalysis claims --quick --errata -o ERRATA.md"
    assert set(rows) == set(known), stale
    for name, claim in known.items():
        assert rows[name][3] == PAPERS.of(claim, claim.verdict)
        assert all(text in rows[name][6] for _, text in claim.remarks), name
    page = site_tables.claims("Kuru")
    assert page.count("<tr>") == 1 + sum(claim.paper == "001" for claim in known.values())
    assert '<td data-head="verdict" class="verdict corrected">corrected</td>' in page
    assert '<td data-head="verdict" class="verdict corrected">corrected: public code</td>' in page
    with pytest.raises(ValueError, match="paper must be one of"):
        site_tables.claims("nobody")
    assert "Theorem 4.1" in site_tables.covered("Kuru")
    assert "not refuted" in site_tables.packages()


def test_markup_and_evidence_of_the_claims_are_shown_as_written():
    page = site_tables.claims()
    assert '<td data-head="source">Chen 2020: Theorem 3' in page
    assert "<em>The paper says:</em>" in page
    assert "\\|" not in page and "*Hypotheses" not in page
    items = re.findall(r'<li class="(against|for)">(.)', page)
    assert items and all(mark == {"against": "✗", "for": "✓"}[kind] for kind, mark in items)


def test_formulas_keep_no_latex():
    pytest.importorskip("latex2mathml", reason="needs the extra 'docs'")
    pytest.importorskip("sphinx", reason="needs the extra 'docs'")
    mathml = importlib.import_module("mathml").mathml
    shown = mathml(r"\arg\min\Big\{x\Big\} \big\|y\big\| \Big\lceil z\Big\rceil", display=True)
    assert all(f">{each}<" in shown for each in ("arg", "{", "}", "‖", "⌈", "⌉"))
    with pytest.raises(ValueError, match="leaves a part of"):
        mathml(r"\nosuchword", display=False)


def test_each_paper_has_a_page_and_a_citation():
    papers = [bibliography.paper_of(each) for each in coverage.lines()]
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    pages = [page.read_text(encoding="utf-8") for page in (DOCS / "papers").glob("*.md")]
    assert len(papers) >= 5
    for paper in papers:
        title = f"title: {paper.title}\n"
        assert title in cited, f"CITATION.cff must have {title!r}"
        assert f"): {paper.title}\n" in readme, f"README.md must link the page of {paper.label}"
        headline = f"({re.sub('[()]', '', paper.cite)})"
        assert headline in readme, f"HEADLINES of figures/_pages.py must have {paper.label}"
        entry = cited[cited.index(title) :].split("  - type")[0]
        assert re.findall(r"family-names: (\S+),", entry) == list(paper.surnames)
        assert f"year: {paper.year}" in entry
        found = [text for text in pages if paper.title in text.splitlines()[0]]
        assert len(found) == 1, f"docs/papers must have one page with the title of {paper.label}"
        (page,) = found
        first = paper.surnames[0]
        for part in (f"{{claims}} {first}", f"{{coverage}} {first}", f"{{gallery}} {first}"):
            assert part in page


def test_readme_is_one_page():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = text.splitlines()
    assert len(lines) <= 105 + 3 * len(coverage.lines()) and max(map(len, lines)) <= 260
    for command in ('".[figures]" && python -m figures', '".[test]" && python -m pytest'):
        assert f"python -m pip install -e {command}" in text
    for link in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (ROOT / link).exists(), link


def test_notebooks_begin_with_what_one_learns_and_end_with_what_to_try():
    for path in (ROOT / "notebooks").glob("[a-z]*.py"):
        cells = path.read_text(encoding="utf-8").split("\n# %%")
        assert "# **You learn** " in cells[1] and "# ## To try\n" in cells[-1], path.name


@pytest.mark.slow
def test_notebooks_are_converted_by_one_command(tmp_path):
    nbformat = pytest.importorskip("nbformat", reason="needs the extra 'execute'")
    call = [sys.executable, "-m", "notebooks", "privacy_budget", "--no-run", "--out", str(tmp_path)]
    done = subprocess.run(call, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    notebook = nbformat.read(tmp_path / "privacy_budget.ipynb", 4)
    assert notebook.cells[0].cell_type == "markdown" and len(notebook.cells) > 5
    done = subprocess.run([*call[:3], "nothing"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and "unknown notebook 'nothing'" in done.stderr


@pytest.mark.slow
def test_the_page_of_a_figure_has_the_code_behind_it():
    pytest.importorskip("sphinx", reason="needs the extra 'docs'")
    pages = importlib.import_module("site_pages")
    for name in pages.drawn():
        source = (ROOT / "figures" / f"{name}.py").read_text(encoding="utf-8")
        shown = [name, *pages.shared(name)]
        assert all((ROOT / "figures" / f"{each}.py").is_file() for each in shown)
        for line in re.findall(r"^from \.(\w+) import", source, re.M):
            assert line in shown, (name, line)
        text = "".join(pages.source(each, name) for each in shown)
        assert f"literalinclude}} ../../../figures/{name}.py" in text


def test_faults_of_a_built_site_are_found(tmp_path):
    spec = importlib.util.spec_from_file_location("check", checker_path)
    check = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(check)
    (tmp_path / "a.html").write_text(
        '<title>a</title><a href="b.html#there">b</a><a href="b.html#gone">c</a>'
        '<a href="c.html">d</a><img src="p.png"><script src="https://far.org/x.js"></script>'
    )
    (tmp_path / "b.html").write_text('<p id="there">')
    found = [fault for fault in check.faults(tmp_path) if "has no entry" not in fault]
    assert sorted(found) == [
        "a.html fetches https://far.org/x.js",
        "a.html: b.html#gone names a place that is not on that page",
        "a.html: c.html leads nowhere",
        "a.html: p.png leads nowhere",
        "a.html: the picture p.png has no alt text",
        "b.html has no title",
    ]
