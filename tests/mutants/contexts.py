"""Which tests run which line: measured once by coverage, and looked up for every fault.

This module is also the pytest plugin that measures: ``pytest -p tests.mutants.contexts`` with
``MUTANT_CONTEXTS`` set to a folder writes a file for each test process there.
"""

from __future__ import annotations

import ast
import json
import os
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]

# Test folders of a package folder, unless only the folder of the same name has its tests.
_TEST_FOLDERS = {
    "kernels": ("kernels", "problems"), "losses": ("problems",), "clipping": ("problems",),
    "regularizers": ("problems",), "commands": ("linear_model",), "tuning": ("tuning",),
    "preprocessing": ("linear_model",), "opacus": ("test_opacus.py",),
    "testing": ("contracts",), "datasets": ("test_datasets.py",),
}  # fmt: skip
# These compare digests of files, and would detect any change of text.
_DIGESTS = ("test_caching.py", "test_every_kept_kernel")


# Measuring


class Measuring:
    """A pytest plugin: every test is a separate context, and its duration is stored."""

    def __init__(self, folder: str) -> None:
        import coverage

        self._folder = Path(folder)
        self._seconds: dict[str, float] = defaultdict(float)
        self._coverage = coverage.Coverage(data_file=None, source=[str(ROOT / "dpanalysis")])
        self._coverage.start()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._coverage.switch_context(nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        self._seconds[report.nodeid] += report.duration
        if report.failed:
            self._seconds[report.nodeid] = float("inf")  # a failing test is not used

    def pytest_sessionfinish(self) -> None:
        self._coverage.stop()
        data = self._coverage.get_data()
        lines = {
            str(Path(file).relative_to(ROOT)): {
                line: [test for test in tests if test]
                for line, tests in data.contexts_by_lineno(file).items()
            }
            for file in data.measured_files()
        }
        found = {"seconds": {k: v for k, v in self._seconds.items() if v < 1e9}, "lines": lines}
        (self._folder / f"{os.getpid()}.json").write_text(json.dumps(found))


def pytest_configure(config: Any) -> None:
    """Measure in the processes that run tests; with pytest-xdist the main one runs none."""
    runs_tests = hasattr(config, "workerinput") or not getattr(config.option, "numprocesses", 0)
    if runs_tests and "MUTANT_CONTEXTS" in os.environ:
        config.pluginmanager.register(Measuring(os.environ["MUTANT_CONTEXTS"]))


# Looking up


@cache
def functions(source: str) -> dict[int, str]:
    """Return the qualified name of the innermost function or class of every line in one."""
    names: dict[int, str] = {}

    def walk(node: ast.AST, path: tuple[str, ...]) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                inner = (*path, child.name)
                first = min([child.lineno, *(each.lineno for each in child.decorator_list)])
                for line in range(first, (child.end_lineno or first) + 1):
                    names[line] = ".".join(inner)
                walk(child, inner)
            else:
                walk(child, path)

    walk(ast.parse(source), ())
    return names


@cache
def _is_compiled(source: str, function: str) -> bool:
    """Return whether Numba compiles a function of a module."""
    return any(
        isinstance(node, ast.FunctionDef)
        and node.name == function.partition(".")[0]
        and any("jit" in ast.dump(each) for each in node.decorator_list)
        for node in ast.walk(ast.parse(source))
    )


class Contexts:
    """The tests that run a line, the fastest first.

    Lines are identified by their function and text, so that measurements stay valid when the
    code moves. Coverage does not see compiled functions: all tests of their file, and of the
    folder of the same name, stand for them.
    """

    def __init__(self, folder: Path) -> None:
        self.seconds: dict[str, float] = {}
        self._by_line: dict[tuple[str, str, str], set[str]] = defaultdict(set)
        self._by_function: dict[tuple[str, str], set[str]] = defaultdict(set)
        self._by_file: dict[str, set[str]] = defaultdict(set)
        for part in sorted(folder.glob("*.json")):
            found = json.loads(part.read_text())
            self.seconds.update(found["seconds"])
            for file, lines in found["lines"].items():
                self._add(file, {int(line): tests for line, tests in lines.items()})

    def _add(self, file: str, lines: dict[int, list[str]]) -> None:
        if not (ROOT / file).is_file():
            return
        source = (ROOT / file).read_text("utf-8")
        text, names = source.splitlines(), functions(source)
        for line, tests in lines.items():
            if line > len(text):
                continue
            name, kept = names.get(line, "<module>"), set(tests) & self.seconds.keys()
            self._by_line[file, name, " ".join(text[line - 1].split())] |= kept
            self._by_function[file, name] |= kept
            self._by_file[file] |= kept

    def __bool__(self) -> bool:
        return bool(self.seconds)

    def tests(self, file: str, function: str, lines: list[str]) -> list[str]:
        """Return the tests to run for a fault in these lines of a function, the fastest first."""
        inside = [
            tests
            for (place, name), tests in self._by_function.items()
            if place == file and name.startswith(f"{function}.")
        ]
        chosen: set[str] = set()
        compiled = _is_compiled((ROOT / file).read_text("utf-8"), function)
        if compiled:
            function = "<module>"
        elif not inside and function != "<module>":  # lines of classes and modules run on import
            for line in lines:
                chosen |= self._by_line.get((file, function, line), set())
        chosen = chosen or self._by_function.get((file, function), set()).union(*inside)
        if not chosen or function == "<module>":
            folder = Path(file).parts[1].removesuffix(".py")
            folders = tuple(f"tests/{name}" for name in _TEST_FOLDERS.get(folder, (folder,)))
            chosen = self._by_file.get(file, set()) | {
                test for test in self.seconds if test.startswith(folders)
            }
        chosen = {test for test in chosen if not any(name in test for name in _DIGESTS)}
        return sorted(chosen, key=lambda test: (self.seconds[test], test))
