"""The list of faults fits the code; what the tests make of them is ``mutants.py``'s to find out."""

import mutants


def test_every_fault_still_has_its_place():
    """Old texts stand exactly once, names differ, new texts too, and the named tests exist."""
    assert mutants.mistakes(mutants.load()) == []


def test_a_fault_out_of_place_is_told():
    fault = {
        "name": "A fault",
        "file": "dpanalysis/errors.py",
        "old": "no such text",
        "new": "no such text",
        "tests": "tests/test_mutants.py::test_of_nothing tests/nowhere.py",
    }
    assert mutants.mistakes([fault, fault]) == [
        "A fault: two faults have this name",
        *[
            "A fault: its old text stands 0 times in its file",
            "A fault: nothing changes",
            "A fault: there is no test tests/test_mutants.py::test_of_nothing",
            "A fault: there is no test tests/nowhere.py",
        ]
        * 2,
    ]


def test_the_list_covers_what_privacy_stands_on():
    files = {fault["file"].rpartition("/")[2] for fault in mutants.load()}
    assert files >= {"oracle.py", "filters.py", "facts.py", "covering.py", "loop.py", "run.py"}
    assert len(mutants.load()) >= 60
