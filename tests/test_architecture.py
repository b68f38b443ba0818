"""Architecture: imports run one way, importing is cheap, lower version bounds are tested."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import dpanalysis

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "dpanalysis"

# Subpackage ("room") -> those whose modules it may import beside its own. ``privacy.oracle``, with
# its queries, counts separately: it connects the privacy core, which imports none, to the methods.
ALLOWED = {
    "dpanalysis": {"*"},
    "_devices": set(),
    "_lazy": set(),
    "_numba": set(),
    "_parallel": set(),
    "_user_classes": set(),
    "_validation": set(),
    "errors": set(),
    "losses": set(),
    "regularizers": set(),
    "clipping": set(),
    "kernels": {"losses", "clipping"},
    "problems": {"losses", "regularizers", "clipping", "kernels", "privacy", "theory"},
    "privacy": set(),
    "privacy.oracle": {"privacy", "clipping"},
    "methods": {"privacy", "privacy.oracle", "theory", "clipping"},
    "theory": {"privacy"},
    "datasets": {"problems", "losses", "regularizers"},
    "experiments": {"methods", "privacy", "privacy.oracle", "problems", "theory"},
    "preprocessing": {"problems", "privacy", "privacy.oracle", "experiments", "methods"},
    "linear_model": {
        *("preprocessing", "experiments", "methods", "problems", "privacy", "privacy.oracle"),
        *("losses", "regularizers", "clipping", "tuning", "theory"),
    },
    # Runs candidates as a user would.
    "tuning": {"experiments", "privacy", "privacy.oracle", "problems", "preprocessing"},
    "plotting": set(),  # imports nothing but Matplotlib, and that late
    # The audit may import everything; only the command line imports it.
    "audit": {"*"},
    # The claims of papers: they may import everything, the audit included.
    "papers": {"*"},
    # So may the checks of user-defined classes; nothing imports them.
    "testing": {"*"},
    "commands": {"datasets", "linear_model", "preprocessing"},
    # Rules for another library's optimizers; nothing here imports it.
    "opacus": {"clipping"},
    "__main__": {"dpanalysis", "papers", "commands"},  # the version is the package's
}
EVERYWHERE = {
    *("errors", "plotting", "_devices", "_lazy", "_numba", "_parallel", "_user_classes"),
    "_validation",
}


def room_of(module):
    if module.startswith(("privacy.oracle", "privacy.queries")):
        return "privacy.oracle"
    return module.split(".")[0] or "dpanalysis"


def module_of(path):
    """Dotted name of a file below ``dpanalysis``; a package's is that of its ``__init__``."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def imports_of(path):
    """Modules of the package that a file imports, as dotted names below ``dpanalysis``.

    Anywhere in the file: inside functions and for type checkers, too. A name that an ``__init__``
    re-exports counts as an import of that package, and so does one that it re-exports lazily.
    """
    here = path.relative_to(PACKAGE).with_suffix("").parts
    package = here[:-1]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            if node.level:
                base = package[: len(package) - node.level + 1]
                target = ".".join((*base, *(node.module or "").split("."))).strip(".")
            elif (node.module or "").split(".")[0] == "dpanalysis":
                target = node.module.removeprefix("dpanalysis").strip(".")
            else:
                continue
            for alias in node.names:
                full = f"{target}.{alias.name}".strip(".")
                yield full if full in MODULES else target
        elif isinstance(node, ast.Import):
            for alias in node.names:
                assert not alias.name.startswith("dpanalysis."), "import by relative name"
    if path.name == "__init__.py" and "on_first_use" in path.read_text(encoding="utf-8"):
        strings = (n.value for n in ast.walk(tree) if isinstance(n, ast.Constant))
        late = {".".join((*package, word)) for word in strings if isinstance(word, str)}
        yield from sorted(late & MODULES)


def circles(graph):
    """The sets of nodes that reach each other, each sorted (Tarjan's algorithm)."""
    order, lowest, stack, found = {}, {}, [], set()

    def visit(node):
        order[node] = lowest[node] = len(order)
        stack.append(node)
        for other in sorted(graph[node]):
            if other not in order:
                visit(other)
            if other in stack:
                lowest[node] = min(lowest[node], lowest[other])
        if lowest[node] == order[node]:
            circle = stack[stack.index(node) :]
            del stack[-len(circle) :]
            if len(circle) > 1:
                found.add(tuple(sorted(circle)))

    for node in sorted(graph):
        if node not in order:
            visit(node)
    return found


SOURCES = sorted(PACKAGE.rglob("*.py"))
MODULES = {module_of(path) for path in SOURCES}
IMPORTS = {module_of(path): set(imports_of(path)) - {module_of(path)} for path in SOURCES}


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_run_one_way(path):
    module = module_of(path)
    room = room_of(module)
    allowed = ALLOWED[room]
    for target in imports_of(path):
        other = room_of(target)
        assert other != "figures"
        if "*" in allowed or other in (room, *EVERYWHERE):
            continue
        assert other in allowed, f"{module} imports {target}"


@pytest.mark.parametrize("room", ["dpanalysis", "tests", "figures", "benchmarks", "verdicts"])
def test_a_file_has_at_most_1000_lines(room):
    lines = {path: path.read_text().count("\n") for path in (ROOT / room).rglob("*.py")}
    assert lines
    assert {path: count for path, count in lines.items() if count > 1000} == {}


def test_no_modules_import_each_other():
    assert not circles(IMPORTS)


def test_no_rooms_import_each_other():
    rooms = {room_of(module): set() for module in MODULES}
    for module, targets in IMPORTS.items():
        rooms[room_of(module)] |= {room_of(target) for target in targets} - {room_of(module)}
    assert not circles(rooms)


def test_circles_are_found():
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": {"e"}, "e": set(), "f": {"d", "a"}}
    assert circles(graph) == {("b", "c")}
    assert circles({**graph, "e": {"a"}}) == {("a", "b", "c", "d", "e")}
    # Imports inside functions count; an ``__init__`` imports what it re-exports lazily.
    assert "privacy.accounting.sampling" in IMPORTS["theory.second_order"]
    assert {"experiments.run", "experiments.result"} <= IMPORTS["experiments"]


def test_every_room_is_listed():
    rooms = {p.relative_to(PACKAGE).parts[0].removesuffix(".py") for p in SOURCES}
    assert rooms - {"__init__"} == {room for room in ALLOWED if "." not in room} - {"dpanalysis"}


@pytest.mark.slow
def test_importing_is_cheap():
    """No third-party package is imported before it is used; one process, no timing."""
    heavy = {"numpy", "scipy", "numba", "cvxpy", "clarabel", "matplotlib", "torch"}
    code = f"import sys, dpanalysis; print(sorted({heavy!r} & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
    heavy -= {"numpy", "scipy"}
    code = (
        "import sys, dpanalysis.privacy, dpanalysis.theory, dpanalysis.methods, "
        "dpanalysis.clipping; "
        f"print(sorted({heavy!r} & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_every_public_name_resolves_and_is_documented():
    for name in dpanalysis.__all__:
        value = getattr(dpanalysis, name)
        assert value.__doc__, name
    assert set(dpanalysis.__all__) <= set(dir(dpanalysis))
    with pytest.raises(AttributeError, match="no attribute"):
        dpanalysis.nothing  # noqa: B018


def requirements(lines):
    pattern = re.compile(r"^([A-Za-z0-9_.-]+)\s*(?:>=|==)\s*([0-9.]+)")
    found = (pattern.match(line.strip()) for line in lines)
    return {m[1].lower(): tuple(map(int, m[2].rstrip(".").split("."))) for m in found if m}


def test_lower_bounds_are_the_tested_versions():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = requirements(project["dependencies"])
    for extra in ("figures", "sklearn", "execute", "audit", "test"):
        declared |= requirements(project["optional-dependencies"][extra])
    pinned = requirements((ROOT / "tests" / "minimum-requirements.txt").read_text().splitlines())
    assert set(declared) == set(pinned) - {"pyparsing"}  # see the comment there
    for name, bound in declared.items():
        assert pinned[name][: len(bound)] == bound, name
