"""Every claim has the verdict it is registered with, and ERRATA.md says what the checks found."""

import html
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dpanalysis import __main__ as command
from dpanalysis import audit
from dpanalysis.papers import claim as bibliography
from dpanalysis.papers import coverage, registry, report
from dpanalysis.papers.claim import (
    Claim,
    Effort,
    Evidence,
    NotChecked,
    Outcome,
    printed,
    reading,
    used,
)
from dpanalysis.papers.report import PAPERS, Table

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def table():
    jobs = 1 if "PYTEST_XDIST_WORKER" in os.environ else -1  # the other workers use the cores
    return audit.claims(module="dpanalysis.papers").run(quick=True, jobs=jobs)


OURS = registry.load(module="dpanalysis.papers")


@pytest.mark.parametrize("claim", OURS, ids=lambda claim: claim.id)
def test_verdict(claim, table):
    outcome = next(outcome for outcome in table if outcome.claim.id == claim.id)
    if outcome.missing:
        pytest.skip(outcome.missing)
    shown = "\n".join(map(str, outcome.evidence))
    assert outcome.passed, f"{outcome.verdict}\n{shown}\n{outcome.error or ''}"


def test_every_paper_has_claims_and_statements():
    assert {claim.paper for claim in OURS} == {*coverage.lines(), "bounds"}
    for claim in OURS:
        assert claim.source and claim.printed, claim.id
        assert claim.used or claim.verdict in ("holds", "refuted"), claim.id


NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d,]*\.?\d*(?:e[-+]?\d+)?(?!\w)")


def test_errata_is_generated_from_the_claims(table):
    """Words must agree; numbers may differ slightly between versions of SciPy and solvers."""
    if missing := [outcome.missing for outcome in table if outcome.missing]:
        pytest.skip("; ".join(missing))
    written = (ROOT / "ERRATA.md").read_text(encoding="utf-8").splitlines()
    generated = report.to_errata(table).splitlines()
    refresh = "stale: python -m dpanalysis claims --quick --errata -o ERRATA.md"
    assert len(written) == len(generated), refresh
    for old, new in zip(written, generated):
        assert NUMBER.split(old) == NUMBER.split(new), refresh
        for a, b in zip(NUMBER.findall(old), NUMBER.findall(new)):
            x, y = float(a.replace(",", "")), float(b.replace(",", ""))
            assert x == pytest.approx(y, rel=0.02, abs=1e-6), f"{refresh}\n{old}\n{new}"


def outcome_of(*evidence, expected="holds"):
    return Claim("999-1", "(1)", "printed", "used", expected, lambda effort: evidence).run()


GOOD, BAD = (1.0, "<=", 2.0), (3.0, "<=", 2.0)


@pytest.mark.parametrize(
    ("evidence", "verdict"),
    [
        ([printed("x", *GOOD)], "holds"),
        ([printed("x", *GOOD), used("x", *GOOD)], "sharpened"),
        ([reading("x", *GOOD), reading("x", *BAD)], "open"),
        ([printed("x", *GOOD), reading("x", *BAD), reading("x", *GOOD)], "open"),
        ([printed("x", *BAD), reading("x", *GOOD), reading("x", *BAD)], "refuted"),
        ([reading("x", *GOOD), used("x", *GOOD)], "sharpened"),
        ([printed("x", *GOOD), reading("x", *BAD), used("x", *GOOD)], "corrected"),
        ([reading("x", *GOOD), reading("x", *BAD), used("x", *BAD)], "broken"),
        ([printed("x", *BAD), printed("x", *GOOD), used("x", *GOOD)], "corrected"),
        ([printed("x", *BAD)], "refuted"),
        ([printed("x", *GOOD), used("x", *BAD)], "broken"),
        ([printed("x", *BAD), used("x", *BAD)], "broken"),
        ([used("x", *GOOD)], "broken"),
        ([], "error"),
    ],
)
def test_the_verdict_follows_from_the_evidence(evidence, verdict):
    outcome = outcome_of(*evidence, expected="holds")
    assert outcome.verdict == verdict
    assert outcome.passed == (verdict == "holds")


def test_comparisons():
    assert Evidence("used", "x", 1.0 + 1e-9, "<=", 1.0, tolerance=1e-8).holds
    assert not Evidence("used", "x", 1.0 + 1e-7, "<=", 1.0, tolerance=1e-8).holds
    assert Evidence("used", "x", 0.9, ">=", 0.5).holds
    assert not Evidence("used", "x", 0.9, "==", 1.0, tolerance=0.05).holds
    assert Evidence("used", "x", float("inf"), "==", float("inf")).holds
    assert str(Evidence("used", "x", 0.9, ">=", 1.0, cases=2000)) == "x: 0.9 < 1 (2,000 cases)"
    assert str(Evidence("used", "x", 0.9999996, ">=", 0.999999)) == "x: 1 >= 0.999999"
    assert str(Evidence("used", "x", 1.0 - 1e-12, "<=", 1.0)) == "x: 1 <= 1"
    assert str(Evidence("used", "x", 1.0 + 1e-12, "<=", 1.0)) == "x: 1.000000000001 > 1"
    with pytest.raises(ValueError, match="sense must be one of"):
        Evidence("used", "x", 1.0, "<", 2.0)
    with pytest.raises(ValueError, match="about must be one of"):
        Evidence("theirs", "x", 1.0, "<=", 2.0)
    with pytest.raises(ValueError, match="tolerance"):
        Evidence("used", "x", 1.0, "<=", 2.0, tolerance=-1.0)


def test_of_several_values_the_worst_one_counts():
    values = np.array([[0.5, 3.0], [1.0, -2.0]])
    for sense, bound, worst in (("<=", 1.0, 3.0), (">=", 1.0, -2.0), ("==", 0.0, 3.0)):
        found = used("x", values, sense, bound)
        assert (found.value, found.cases) == (worst, 4) and type(found.value) is float
        assert used("x", values, sense, bound, cases=9).cases == 9
        with pytest.raises(ValueError, match="x: value or bound is NaN"):
            printed("x", [0.0, math.nan, 1.0], sense, 0.0, tolerance=5.0)
    assert not used("x", [math.inf, 3.0], "==", math.inf).holds
    assert used("x", (math.inf, math.inf), "==", math.inf).holds
    assert used("x", np.float64(2.0), "<=", 2.0).cases == 1
    with pytest.raises(ValueError, match="value must hold at least one number"):
        used("x", [], "<=", 1.0)
    with pytest.raises(ValueError, match="sense must be one of"):
        used("x", [1.0], "<", 2.0)


def test_a_check_that_raises_is_a_failure_and_stops_no_other_check():
    def check(effort):
        yield printed("x", *GOOD)
        raise ZeroDivisionError("in the check")

    broken = Claim("999-2", "(2)", "printed", "", "holds", check).run(Effort(quick=True))
    assert broken.failed and not broken.passed and broken.verdict == "error"
    assert len(broken.evidence) == 1 and "in the check" in broken.error
    both = Table([broken, outcome_of(printed("x", *GOOD))])
    assert [outcome.claim.id for outcome in both.failed] == ["999-2"]
    assert "FAILED: 999-2" in report.summary(both) and "in the check" in str(both)


def test_a_check_that_lacks_something_is_neither_passed_nor_failed():
    def check(effort):
        yield printed("x", *BAD)
        raise NotChecked("needs the extra 'figures'")

    claim = Claim("001-1", "(1)", "printed", "", "holds", check)
    table = Table([claim.run(), outcome_of(printed("x", *GOOD))])
    assert table[0].verdict == "not checked" and not table[0].passed and not table.failed
    assert "1 holds, 1 not checked; none failed" in report.summary(table)
    text = str(table)
    assert "needs the extra 'figures'" in text and "not checked: the check needs" in text
    row = json.loads(report.to_json(table))[0]
    assert row["missing"] == "needs the extra 'figures'" and row["passed"] is False
    page = report.to_html(table[:1])
    assert "needs the extra" in page and "class='failed'" not in page
    assert "body {" in page and "body {" not in table._repr_html_()  # a notebook keeps its style


def test_registering():
    with pytest.raises(ValueError, match="registered already"):
        registry.register(registry.load("001")[0].id, "", "", verdict="holds")
    with pytest.raises(ValueError, match="verdict must be one of"):
        Claim("001-1", "", "", "", "true", lambda effort: [])


@pytest.mark.slow
def test_claims_are_chosen_by_paper_and_id():
    two = audit.claims("001", ids=["001-10", "001-2"]).run(quick=True)
    assert [outcome.claim.id for outcome in two] == ["001-2", "001-10"]
    assert two[:1].seconds <= two.seconds
    with pytest.raises(ValueError, match="ids must be one of"):
        audit.claims("001", ids=["002-1"])
    with pytest.raises(ValueError, match="paper must be one of"):
        audit.claims("1")
    with pytest.raises(TypeError, match="ids must be a sequence such as"):
        audit.claims(ids="001-10")
    with pytest.raises(TypeError, match="quick must be True or False, got 'no'"):
        audit.claims(ids=["001-10"]).run(quick="no")
    with pytest.raises(ValueError, match="jobs must be at least 1"):
        audit.claims("001").run(jobs=0)


def test_a_listing_computes_nothing_before_it_is_asked(monkeypatch):
    def refuse(*arguments):
        raise AssertionError("a check ran")

    monkeypatch.setattr(Claim, "run", refuse)
    monkeypatch.setattr(Claim, "argue", refuse)
    listed = audit.claims()
    known = registry.load()
    assert isinstance(listed, audit.Claims) and list(listed) == known == list(listed[:])
    text, page = repr(listed), listed._repr_html_()
    for claim in known:
        label = bibliography.paper_of(claim.paper).label
        verdict = re.escape(PAPERS.of(claim, claim.verdict))
        assert re.search(rf"^{claim.id} +{verdict} +{label}: ", text, re.M)
        assert f"<td>{claim.id}</td><td>{label}</td>" in page
        assert html.escape(claim.printed) in page
    assert len(listed) == page.count("<tr>") - 1
    with pytest.raises(AssertionError, match="a check ran"):
        listed[:1].run(quick=True)


@pytest.mark.slow
def test_options_of_a_check_run_it():
    (outcome,) = audit.claims(ids=["001-10"], quick=True)
    assert outcome.passed and outcome.evidence
    with pytest.raises(TypeError, match="fast"):
        audit.claims(ids=["001-10"], fast=True)


def test_json_and_html_carry_everything():
    odd = outcome_of(printed("a < b & `c`", float("inf"), "<=", 2.0), expected="refuted")
    odd = Table([Outcome(registry.load("001")[0], odd.evidence, 0.5)])
    row = json.loads(report.to_json(odd))[0]
    assert row["evidence"][0]["value"] == "inf" and row["evidence"][0]["holds"] is False
    page = report.to_html(odd)
    assert "a &lt; b &amp; <code>c</code>" in page and "class='failed'" in page
    setting = "Replace-one neighbours, sampling m of n without replacement, pure epsilon."
    for shown in (page, report.to_text(odd), report.to_errata(odd)):
        assert setting in shown
    assert "<table" in odd._repr_html_() and "<html" not in odd._repr_html_()


@pytest.mark.slow
def test_command_line(capsys, tmp_path):
    assert command.main(["claims", "--id", "001-10", "--quick", "--quiet", "--jobs", "1"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("==== Kuru et al. (2022), Diff") and "none failed" in shown
    # Evidence is printed below its statement.
    words = [line.split()[0] for line in shown.splitlines() if line.strip()]
    order = [word for word in words if word in ("printed", "violated", "used", "ok", "corrected:")]
    checks = ["violated", "violated", "used", "ok", "ok", "ok"]
    assert order == ["printed", *checks, "corrected:"]
    file = tmp_path / "claims.json"
    argv = ["claims", "--id", "001-10", "--quick", "--quiet", "--jobs", "1", "--json"]
    assert command.main([*argv, "-o", str(file)]) == 0
    assert json.loads(file.read_text())[0]["id"] == "001-10"
    for bad in (
        ["--id", "001-99"],
        ["--paper", "9"],
        ["--jobs", "0"],
        ["--jobs", "x"],
        ["-o", "/no/such/x"],
        ["-o", str(tmp_path)],
    ):
        with pytest.raises(SystemExit) as stop:
            command.main(["claims", *bad])
        assert stop.value.code == 2
    assert f"--output must be a file, got the folder {tmp_path}" in capsys.readouterr().err
    assert command.main([]) == 2 and "claims" in capsys.readouterr().err


def test_a_wrong_verdict_fails_the_command(monkeypatch, capsys):
    claim = registry.load("001")[0]
    wrong = Claim(claim.id, claim.source, claim.printed, claim.used, "refuted", claim.check)
    monkeypatch.setitem(registry._CLAIMS, claim.id, wrong)
    argv = ["claims", "--id", claim.id, "--quick", "--quiet", "--jobs", "1"]
    assert command.main(argv) == 1
    assert f"FAILED: {claim.id}" in capsys.readouterr().out


def test_help_lists_options_and_an_example():
    out = subprocess.run(
        [sys.executable, "-m", "dpanalysis", "claims", "--help"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for word in ("--paper", "--json", "--html", "--quick", "--module my_paper", "audit.Paper("):
        assert word in out
