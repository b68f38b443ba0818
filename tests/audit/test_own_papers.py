"""User-defined papers: modules outside the package that register a paper and its claims."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from joblib.externals.loky import get_reusable_executor

from dpanalysis import __main__ as command
from dpanalysis import audit
from dpanalysis.papers import claim as bibliography
from dpanalysis.papers import registry, report

PAPER = """
from dpanalysis import audit

audit.register(
    audit.Paper(id="{id}", authors="Doe, Roe, Poe", year=2025, title="On noise", label="{label}")
)
"""

GOOD = (
    PAPER
    + """
@audit.register("{id}-10", "Lemma 2", "the variance is b^2", "it is 2 b^2", verdict="corrected")
def variance(effort):
    drawn = effort.random().laplace(size=effort.cases(10_000, 100_000)).var()
    yield audit.printed("variance", drawn, "==", 1.0, tolerance=0.2)
    yield audit.used("variance", drawn, "==", 2.0, tolerance=0.2)


@audit.register("{id}-2", "Lemma 1", "the mean is 0", verdict="holds")
def mean(effort):
    yield audit.printed("mean", effort.random().laplace(size=10_000).mean(), "<=", 0.1)
"""
)


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write a module into the current folder, and undo its registrations afterwards."""
    registry.load()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(registry, "_CLAIMS", {**registry._CLAIMS})
    monkeypatch.setattr(bibliography, "_PAPERS", {**bibliography._PAPERS})
    names = set()

    def written(name, text, id="900", label="Doe 2025"):
        names.add(name.split("/")[0])
        file = tmp_path / f"{name}.py"
        file.parent.mkdir(exist_ok=True, parents=True)
        file.write_text(text.replace("{id}", id).replace("{label}", label), encoding="utf-8")

    yield written
    for name in [name for name in sys.modules if name.split(".")[0] in names]:
        del sys.modules[name]


def run(*argv):
    return command.main(["claims", "--quick", "--quiet", "--jobs", "1", *argv])


def message(capsys, *argv):
    """The message with which the command refuses its arguments."""
    with pytest.raises(SystemExit) as stop:
        run(*argv)
    assert stop.value.code == 2
    *_, last = capsys.readouterr().err.strip().splitlines()
    return last.removeprefix("python -m dpanalysis: error: ")


def test_the_claims_of_a_module_are_checked_alone(write, capsys):
    write("noise_paper", GOOD)
    assert run("--module", "noise_paper") == 0
    shown = capsys.readouterr().out
    assert shown.startswith("==== Doe et al. (2025), On noise (claims 900-2 to 900-10)")
    assert "2 claims: 1 holds, 1 corrected; none failed" in shown and "001-" not in shown
    assert run("--module", "noise_paper", "--id", "900-2", "--json") == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["id"], row["paper"], row["paper_id"]) == ("900-2", "Doe 2025", "900")
    for paper in ("900", "Doe", "doe 2025", "Doe et al. (2025)"):
        assert run("--module", "noise_paper", "--paper", paper, "--html") == 0
        page = capsys.readouterr().out
        assert "<h2>Doe et al. (2025), <em>On noise</em> (claims 900-2 to 900-10)</h2>" in page
    assert run("--module", "noise_paper", "--errata") == 0
    assert "\n- Doe, Roe, Poe, *On noise* (2025)\n" in capsys.readouterr().out


@pytest.mark.slow
def test_the_command_as_it_is_typed(write, tmp_path):
    write("noise_paper", GOOD)
    argv = [sys.executable, "-m", "dpanalysis", "claims", "--module", "noise_paper", "--quiet"]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    out = subprocess.run(
        argv, cwd=tmp_path, env=env, capture_output=True, text=True, check=True
    ).stdout
    assert "2 claims: 1 holds, 1 corrected; none failed" in out


def test_from_python_by_name_by_module_and_as_a_package(write, monkeypatch):
    monkeypatch.syspath_prepend(".")
    write("noise_paper", GOOD)
    write("noise_pack/__init__", PAPER, "901", "Doe 2025b")
    write("noise_pack/lemmas", "from dpanalysis import audit" + GOOD[len(PAPER) :], "901")
    import noise_pack.lemmas
    import noise_paper

    assert [claim.id for claim in audit.claims(module="noise_paper")] == ["900-2", "900-10"]
    assert [claim.id for claim in audit.claims(module=noise_pack)] == ["901-2", "901-10"]
    both = audit.claims(module=["noise_pack", noise_paper], ids=["901-2", "900-2"])
    assert [claim.id for claim in both] == ["900-2", "901-2"]
    assert [claim.id for claim in audit.claims("Doe 2025b")] == ["901-2", "901-10"]
    with pytest.raises(
        ValueError, match=r"must be one of 900 \(Doe 2025\), 901 \(Doe 2025b\); got"
    ):
        audit.claims("Doe")
    with pytest.raises(ValueError, match="ids must be one of"):
        audit.claims(module="noise_paper", ids=["001-1"])
    with pytest.raises(TypeError, match="module must be a module or its name, got 3"):
        audit.claims(module=[3])


@pytest.mark.slow
def test_other_processes_find_the_claims_too(write, monkeypatch, tmp_path):
    """Also workers that were started in another folder, before this one was on the path."""
    monkeypatch.chdir(tmp_path.parent)
    get_reusable_executor().shutdown()
    audit.claims(ids=["000-2", "001-10"]).run(quick=True, jobs=2)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(".")
    write("noise_in_processes", GOOD)
    alone = audit.claims(module="noise_in_processes").run(quick=True)
    both = audit.claims(module="noise_in_processes").run(quick=True, jobs=2)
    assert [o.evidence for o in both] == [o.evidence for o in alone] and not both.failed


def test_errors_of_a_module_are_reported(write, capsys):
    write("raises", "x = 1\nx / 0")
    assert message(capsys, "--module", "raises") == (
        "importing the module 'raises' failed: ZeroDivisionError: division by zero"
    )
    write("leaves", "import sys\nsys.exit(0)")
    assert "importing the module 'leaves' failed: SystemExit: 0" in message(
        capsys, "--module", "leaves"
    )
    write("misspelt", "def f(:")
    assert "SyntaxError: invalid syntax (misspelt.py, line 1)" in message(
        capsys, "--module", "misspelt"
    )
    write("lacks", "import no_such_library")
    assert "No module named 'no_such_library'" in message(capsys, "--module", "lacks")
    write("circular", "from circular import Claim")
    assert re.match(
        "importing the module 'circular' failed: ImportError: cannot import name 'Claim'",
        message(capsys, "--module", "circular"),
    )
    assert re.match(
        r"there is no module 'absent' in /.* or on Python's path",
        message(capsys, "--module", "absent"),
    )
    assert "module must be a name without folder and .py, got 'raises.py'" in message(
        capsys, "--module", "raises.py"
    )
    write("empty", PAPER)
    assert "the module 'empty' registers no claim" in message(capsys, "--module", "empty")


def test_ids_that_are_taken_and_papers_that_are_missing(write, capsys):
    write("twice", GOOD + GOOD[len(PAPER) :])
    assert message(capsys, "--module", "twice") == (
        "importing the module 'twice' failed: ValueError: id must be new, '900-10' is registered "
        "already, in twice"
    )
    write("theirs", GOOD, "001", "Doe 2025c")
    assert "the paper '001' is Kuru, Birbil" in message(capsys, "--module", "theirs")
    write("labels", GOOD, "902", "kuru 2022")
    assert "label must be new, 'kuru 2022' is the paper '001': give another, such as" in message(
        capsys, "--module", "labels"
    )
    write("orphan", "from dpanalysis import audit" + GOOD[len(PAPER) :], "903")
    assert message(capsys, "--module", "orphan") == (
        "the paper of the claim '903-2' must be registered: "
        "audit.register(audit.Paper(id='903', ...))"
    )


def test_a_failed_import_leaves_nothing_behind(write, capsys):
    write("mended", GOOD + "\nraise RuntimeError('not yet')")
    assert "not yet" in message(capsys, "--module", "mended")
    assert not any(id.startswith("900-") for id in registry._CLAIMS)
    write("mended", GOOD.replace("On noise", "On its variance"))
    assert run("--module", "mended") == 0 and "On its variance" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("return None", "the check compares nothing: it must yield printed(...) or used(...)"),
        ("return []", "the check compares nothing"),
        ("yield (1, '<=', 2)", "a check must yield printed(...) or used(...), got (1, '<=', 2)"),
        ("import sys; sys.exit(0)", "SystemExit: 0"),
        ("yield audit.printed('x', 1, '<=', 2); raise OSError('gone')", "OSError: gone"),
    ],
)
def test_a_check_that_compares_nothing_or_raises_fails(body, why, write, capsys):
    head = '@audit.register("{id}-1", "(1)", "1 < 2", verdict="holds")\ndef check(effort):\n    '
    write("wrong", PAPER + head + body)
    assert run("--module", "wrong") == 1
    shown = capsys.readouterr().out
    assert "900-1   error" in shown and why in shown and "FAILED: 900-1" in shown


def test_cells_of_a_session_may_run_again(write, monkeypatch):
    """In a session there is no file; the last definition counts, and no other process has it."""
    session = SimpleNamespace()
    monkeypatch.setitem(sys.modules, "__main__", session)

    def cell(value):
        space = {"__name__": "__main__", "value": value}
        exec(
            PAPER.format(id="904", label="Session 2025")
            + "@audit.register('904-1', '(1)', 'x < 2', verdict='holds')\n"
            + "def check(effort):\n    yield audit.printed('x', value, '<=', 2)",
            space,
        )

    cell(3)
    assert audit.claims("904").run().failed
    cell(1)
    assert not audit.claims("904").run().failed
    with pytest.raises(ValueError, match="jobs must be 1 for 904-1: other processes cannot"):
        audit.claims("904").run(jobs=2)
    session.__file__ = "script.py"
    with pytest.raises(ValueError, match="id must be new, '904-1' is registered already"):
        cell(1)


def test_a_paper():
    two = audit.Paper(id="905", authors="Chen, Lee", year=2020, title="On search")
    assert two.cite == "Chen and Lee (2020)" and two.label == "Chen 2020"
    one = audit.Paper(id="906", authors="Doe", year=2021, title="On all", venue="ICML")
    assert one.cite == "Doe (2021)" and one.reference == "Doe, *On all*, ICML (2021)"
    none = audit.Paper(id="ours", title="What we rely on")
    assert none.cite == none.reference == "What we rely on" and none.label == "ours"
    for field, error, match in (
        ({"id": ""}, ValueError, "id must be of letters, digits"),
        ({"id": "<b>"}, ValueError, "id must be of letters, digits"),
        ({"title": " "}, ValueError, "title must not be empty"),
        ({"year": None}, ValueError, "year must be given"),
        ({"year": "2020"}, TypeError, "year must be an integer"),
        ({"year": 20}, ValueError, "year must be at least 1600"),
        ({"authors": ["Doe"]}, TypeError, "authors must be a string"),
    ):
        with pytest.raises(error, match=match):
            audit.Paper(**{"id": "907", "authors": "Doe", "year": 2020, "title": "T"} | field)
    with pytest.raises(AttributeError):
        one.title = "another"
    with pytest.raises(TypeError, match="paper must be a string, got 1"):
        audit.claims(1)


def test_reports_of_papers_that_are_not_registered():
    """A table built directly, or read where the module is not imported, still prints."""
    claim = audit.Claim(
        "999-1", "(1)", "1 < 2", "", "holds", lambda e: [audit.printed("1", 1, "<=", 2)]
    )
    table = audit.Table([claim.run()])
    assert "999" in str(table) and "999" in report.to_errata(table)
    assert "<h2>999 (claim 999-1)</h2>" in report.to_html(table)
    assert json.loads(report.to_json(table))[0]["paper"] == "999"
