"""Every correction of a paper withstands a check that argues for the paper."""

import json
import os
import re

import pytest

from dpanalysis import __main__ as command
from dpanalysis import audit
from dpanalysis.audit import Claim, NotChecked, premise, printed, step, used
from dpanalysis.papers import registry, report

CORRECTIONS = [
    claim
    for claim in registry.load(module="dpanalysis.papers")
    if claim.verdict in ("corrected", "refuted")
]


@pytest.fixture(scope="module")
def table():
    jobs = 1 if "PYTEST_XDIST_WORKER" in os.environ else -1
    ids = [claim.id for claim in CORRECTIONS]
    return audit.claims(ids=ids).run(quick=True, adversary=True, jobs=jobs)


@pytest.mark.slow
def test_no_correction_falls(table):
    assert {outcome.claim.id: outcome.error for outcome in table.failed} == {}


@pytest.mark.parametrize("claim", CORRECTIONS, ids=lambda claim: claim.id)
def test_a_verdict_against_a_paper_says_why(claim):
    assert claim.says and claim.changes and claim.adversary


GOOD, BAD = (1.0, "<=", 2.0), (3.0, "<=", 2.0)


def claim_of(*evidence, adversary=None, verdict="refuted"):
    return Claim("999-1", "(1)", "p", "u", verdict, lambda e: evidence, adversary=adversary)


@pytest.mark.parametrize(
    ("evidence", "verdict"),
    [
        ([printed("x", *GOOD), step("x", *BAD)], "repaired"),
        ([printed("x", *GOOD), used("x", *GOOD), step("x", *BAD)], "repaired"),
        ([printed("x", *GOOD), step("x", *GOOD)], "holds"),
        ([printed("x", *BAD), step("x", *BAD)], "refuted"),
        ([printed("x", *BAD), used("x", *GOOD), step("x", *GOOD)], "corrected"),
        ([printed("x", *GOOD), used("x", *BAD), step("x", *BAD)], "broken"),
        ([step("x", *BAD)], "broken"),
        ([printed("x", *BAD), premise("x", *GOOD)], "error"),
    ],
)
def test_a_step_of_a_proof_makes_no_statement_false(evidence, verdict):
    assert claim_of(*evidence).run().verdict == verdict


@pytest.mark.parametrize(
    ("evidence", "falls"),
    [
        ([premise("x", *GOOD), printed("x", *BAD), printed("y", *GOOD)], None),
        ([printed("x", *BAD)], None),
        ([premise("mu", *BAD), printed("x", *BAD)], "breaks a hypothesis: mu: 3 > 2"),
        ([premise("x", 3.0, "<=", 2.0), printed("x", *BAD)], "breaks a hypothesis"),
        ([premise("x", *GOOD), printed("x", *GOOD)], "read favorably, is not violated"),
        ([premise("x", *GOOD)], "is not violated"),
        ([], "is not violated"),
        ([used("x", *GOOD), printed("x", *BAD)], "must yield printed\\(...\\) or premise"),
    ],
)
def test_a_correction_stands_or_falls(evidence, falls):
    found = claim_of(adversary=lambda effort: evidence).argue()
    assert found.verdict == ("falls" if falls else "stands")
    assert found.passed == (falls is None) and found.failed == (falls is not None)
    if falls:
        assert re.search(falls, found.error)


def test_no_adversary_no_correction():
    found = claim_of().argue()
    assert found.verdict == "falls" and found.error == "the claim has no adversary"
    with pytest.raises(TypeError, match="adversary must be a function of the effort"):
        claim_of(adversary=1)


def test_an_adversary_that_raises_or_lacks_something():
    def broken(effort):
        yield printed("x", *BAD)
        raise ZeroDivisionError("here")

    def lacking(effort):
        yield printed("x", *BAD)
        raise NotChecked("needs the extra 'lmi'")

    assert claim_of(adversary=broken).argue().verdict == "falls"
    found = claim_of(adversary=lacking).argue()
    assert found.verdict == "not checked" and not found.passed and not found.failed


def test_reports_show_why():
    words = {"says": "it says so", "hypotheses": "all of them", "changes": "another reading"}
    check = [printed("a", *GOOD), step("b", *BAD)]
    claim = Claim("999-1", "(1)", "p", "", "repaired", lambda effort: check, **words)
    table = report.Table([claim.run()])
    row = json.loads(report.to_json(table))[0]
    assert row["verdict"] == "holds, proof repaired" and row["passed"]
    assert {name: row[name] for name in words} == words
    assert row["evidence"][1]["about"] == "step"
    for text in (str(table), report.to_html(table), report.to_errata(table)):
        assert all(word in text for word in (*words.values(), "holds, proof repaired", "b: 3 "))


def test_errata_name_the_claims_that_judge_code_or_figures():
    def claim(id, **judged):
        return Claim(id, "(1)", "p", "", "holds", lambda effort: [printed("a", *GOOD)], **judged)

    made = [claim("999-1"), claim("999-2", judges="code"), claim("999-3", judges="figures")]
    said = report.to_errata(report.Table([each.run() for each in made]))
    line = "paper: public code (999-2), figures of the authors' repository (999-3)."
    assert line in said
    assert "Rows that judge something other" not in report.to_errata(report.Table([made[0].run()]))
    with pytest.raises(ValueError, match="judges must be one of"):
        claim("999-4", judges="hearsay")


def test_the_command_says_which_corrections_stand(monkeypatch, capsys):
    def argue(effort):
        yield premise("mu", 0.5, ">=", 0.0)
        yield printed("gap", effort.cases(1, 2), "<=", 0.5)

    def check(effort):
        yield printed("gap", 1, "<=", 0.5)

    def claim(id, adversary):
        return Claim(id, "(1)", "p", "", "refuted", check, adversary=adversary)

    monkeypatch.setattr(registry, "load", lambda *a, **b: list(registry._CLAIMS.values()))
    known = {"001-1": claim("001-1", argue)}
    monkeypatch.setattr(registry, "_CLAIMS", known)
    argv = ["claims", "--adversary", "--quick", "--quiet", "--jobs", "1"]
    assert command.main(argv) == 0
    shown = capsys.readouterr().out
    assert (
        "001-1   stands" in shown and "mu: 0.5 >= 0" in shown and "1 stands; none failed" in shown
    )
    known["001-2"] = claim("001-2", None)
    known["001-3"] = Claim("001-3", "(3)", "p", "", "holds", check)
    assert command.main(argv) == 1
    shown = capsys.readouterr().out
    assert "has no adversary" in shown and "FAILED: 001-2" in shown and "001-3" not in shown
    for other in ("--errata", "--coverage"):
        with pytest.raises(SystemExit) as stop:
            command.main([*argv, other])
        assert stop.value.code == 2


def test_a_verdict_against_a_paper_of_this_package_needs_words(monkeypatch):
    monkeypatch.setattr(registry, "_CLAIMS", {})

    def check(effort):
        yield printed("x", *BAD)

    registry.register("999-1", "(1)", "p", verdict="refuted")(check)
    check.__module__ = "dpanalysis.papers.accounting.releases"
    for verdict in (*registry.AGAINST, "open"):
        with pytest.raises(ValueError, match="says and changes must be given, 999-2 is"):
            registry.register("999-2", "(2)", "p", verdict=verdict, says="so")(check)
    registry.register("999-3", "(3)", "p", verdict="refuted", says="so", changes="this")(check)
