"""Which of the tests that are marked slow are run."""

import importlib.util
from pathlib import Path
from types import SimpleNamespace

spec = importlib.util.spec_from_file_location("root", Path(__file__).parents[1] / "conftest.py")
root = importlib.util.module_from_spec(spec)
spec.loader.exec_module(root)

MARKS = [SimpleNamespace(kwargs={}), SimpleNamespace(kwargs={"share": 0.5})]
ITEMS = [
    SimpleNamespace(
        nodeid=f"tests/test_a.py::test[{k}]",
        get_closest_marker=lambda name, k=k: MARKS[k % 2] if name == "slow" and k < 1000 else None,
    )
    for k in range(1010)
]


def run(which=None, args=("tests",)):
    items, left_out = list(ITEMS), []
    hook = SimpleNamespace(pytest_deselected=lambda items: left_out.extend(items))
    option = SimpleNamespace(slow=which)
    root.pytest_collection_modifyitems(SimpleNamespace(option=option, args=args, hook=hook), items)
    assert len(items) + len(left_out) == len(ITEMS) and items[-10:] == ITEMS[-10:]
    return {item.nodeid for item in items[:-10]}


def test_slow_tests_run_where_they_are_asked_for():
    assert not run()
    assert len(run("all")) == len(run(args=("tests/test_a.py::test",))) == 1000


def test_any_other_word_draws_a_twentieth_or_the_stated_share():
    """Of 500 with a probability of 13/256 or 1/2: the bounds are five standard deviations off."""
    drawn = [run(f"word {k}") for k in range(160)]
    assert run("word 0") == drawn[0] != drawn[1]
    halves = {item.nodeid for item in ITEMS[1:1000:2]}
    assert all(1 < len(each - halves) < 51 and 193 < len(each & halves) < 307 for each in drawn)
    assert len(set().union(*drawn)) > 990
