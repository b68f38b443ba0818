"""Mutation operators make the intended faults, and the stored results fit the code."""

import ast
from functools import cache

import pytest

from tests.mutants.__main__ import ROOT, all_faults, classes, drawn, stored, stories
from tests.mutants.operators import faults
from tests.mutants.report import CLASSES, interval, report
from tests.mutants.trial import Copies

SOURCE = '''
"""A module."""

def charge(scale: float, size=1, source="os"):
    """Return a cost: 1 + 1."""
    if scale <= 0.0:
        raise ValueError(f"scale must be {1 + 1}, got {scale}")
    total = min(size, 3) * 2.0
    total += -scale
    log(total, scale)
    return total if size and not source else total ** 2
'''


def changes(operator, function="charge"):
    found = [f for f in faults("a.py", SOURCE) if f.operator == operator]
    assert all(f.function == function for f in found)
    return {(f.old, f.new) for f in found}


def test_each_operator_finds_its_places():
    assert changes("comparison") == {("<=", "<")}
    assert changes("arithmetic") == {("*", "/"), ("+=", "-="), ("**", "*")}
    assert changes("constant") == {
        ("1", "2"), ("0.0", "1.0"), ("3", "4"), ("2.0", "(2.0 * 2.0)"), ("2", "3"),
    }  # fmt: skip
    assert changes("function") == {("min", "max")}
    assert changes("logic") == {("and", "or")}
    assert changes("sign") == {("-scale", "(scale)"), ("not source", "(source)")}
    assert changes("default") == {('"os"', "None")}
    assert changes("arguments") == {("total, scale", "scale, total")}
    assert changes("branch") == {
        ("scale <= 0.0", "False"),
        ("size and not source", "False"), ("size and not source", "True"),
    }  # fmt: skip
    assert changes("raise") == {('raise ValueError(f"scale must be {1 + 1}, got {scale}")', "pass")}
    assert changes("line") == {("total += -scale", "pass"), ("log(total, scale)", "pass")}


def test_words_are_left_alone():
    assert not [f for f in faults("a.py", SOURCE) if "1 + 1" in f.old and f.operator != "raise"]
    silent = "class A:\n    def __repr__(self):\n        return str(1 + 2)\n"
    assert not list(faults("a.py", silent))


def test_a_fault_changes_its_place_alone_and_can_be_parsed():
    for fault in faults("a.py", SOURCE):
        broken = fault.apply(SOURCE)
        ast.parse(broken)
        assert broken != SOURCE
        before, after = SOURCE.encode()[: fault.start], SOURCE.encode()[fault.end :]
        assert broken.encode() == before + fault.new.encode() + after


def test_names_of_faults_survive_a_move():
    names = [fault.key for fault in faults("a.py", SOURCE)]
    assert len(set(names)) == len(names)
    moved = "import math\n\n\n" + SOURCE.lstrip()
    assert [fault.key for fault in faults("a.py", moved)] == names


def test_a_draw_keeps_what_stays():
    keys = [str(k) for k in range(100)]
    assert drawn(keys, 10, 0) == drawn(keys[::-1], 10, 0) != drawn(keys, 10, 1)
    fewer = [key for key in keys if key != drawn(keys, 10, 0)[0]]
    assert set(drawn(keys, 10, 0)[1:]) <= set(drawn(fewer, 10, 0))


@pytest.mark.parametrize(("noticed", "tried"), [(0, 5), (3, 7), (20, 20)])
def test_the_interval_covers_the_share(noticed, tried):
    low, high = interval(noticed, tried)
    assert 0.0 <= low <= noticed / tried <= high <= 1.0
    assert interval(20, 20)[0] == pytest.approx(0.025 ** (1 / 20))  # Clopper and Pearson (1934)


def test_the_report_estimates_from_first_tries_and_leaves_equivalent_faults_out():
    results = {
        "dpanalysis/a.py::f | one": ("noticed", "a test"),
        "dpanalysis/a.py::f | two": ("alive", "3 of 3 tests"),
        "dpanalysis/a.py::f | three": ("alive", "3 of 3 tests"),
        "dpanalysis/a.py::f | four": ("noticed", "a test written since"),
        "dpanalysis/a.py::f | five": ("noticed", "a test"),
    }
    known = {"dpanalysis/a.py::f | two": ("equivalent", "the same")}
    first = dict.fromkeys(list(results)[1:4], "alive") | {"dpanalysis/a.py::gone | one": "alive"}
    first["dpanalysis/a.py::f | one"] = "noticed"
    page = report(results, known, 9, first)
    assert "1 change nothing, 0 only speed or a message, 1 a result" in page
    assert "noticed 1 of 4 among the last 5 (5 in a.py): 25.0% (" in page
    assert "| a.py | 5 | 3 | 1 | 0 | 1 | 75.0 |" in page
    assert "first try" not in report(results, known, 9, {})


def test_what_is_stored_fits_the_code():
    known = all_faults()
    survivors = classes()
    assert len(stories()) == 20
    assert {kind for kind, _ in survivors.values()} <= set(CLASSES)
    assert all(why for _, why in survivors.values())
    alive = {key for key, (verdict, _) in stored().items() if verdict != "noticed"}
    assert not (alive & known.keys()) - survivors.keys(), "a survivor that nobody looked at"


@cache
def functions(file):
    """Return the names of the functions of a test file, and whether all of their cases are slow."""
    nodes = ast.walk(ast.parse((ROOT / file).read_text("utf-8")))
    return {
        node.name: "pytest.mark.slow" in map(ast.unparse, node.decorator_list)
        for node in nodes
        if isinstance(node, ast.FunctionDef)
    }


def test_what_is_noticed_is_noticed_by_a_test_that_exists_and_is_not_slow():
    """A fault is stored with the first test that noticed it."""
    by = [by for verdict, by in stored().values() if verdict == "noticed"]
    by += [by for _, by in stories().values()]
    named = {tuple(each.partition("[")[0].split("::")) for each in by if "::" in each}
    assert len(named) > 200 and any(functions("tests/test_kuru_figures.py").values())
    assert not [(file, *rest) for file, *rest in named if functions(file).get(rest[-1], True)]


def test_a_test_that_is_gone_does_not_notice_a_fault():
    fault = next(each for each in all_faults().values() if each.file.endswith("budget.py"))
    with (
        Copies(1) as copies,
        pytest.raises(ValueError, match=r"no test .*::gone"),
    ):
        copies.try_test(fault, "tests/test_mutants.py::gone")
