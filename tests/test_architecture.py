"""The house: imports run one way, importing is cheap, the README and the lower bounds are true."""

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

# Room -> rooms whose modules it may import, itself aside. ``privacy.oracle``, with its
# queries, is a room of its own: it joins the privacy core, which stands alone, to the methods.
ALLOWED = {
    "dpanalysis": {"*"},
    "_devices": set(),
    "_lazy": set(),
    "_threads": set(),
    "_validation": set(),
    "errors": set(),
    "losses": set(),
    "regularizers": set(),
    "clipping": set(),
    "kernels": {"losses", "clipping"},
    "problems": {"losses", "regularizers", "clipping", "kernels", "privacy"},
    "privacy": set(),
    "privacy.oracle": {"privacy", "clipping"},
    "methods": {"privacy", "privacy.oracle", "theory", "clipping"},
    "theory": {"privacy"},
    "datasets": {"problems", "losses", "regularizers"},
    "experiments": {"methods", "privacy", "privacy.oracle", "problems", "theory"},
    "plotting": set(),
    # The audit looks at everything; nothing but the command line looks at it.
    "audit": {"*"},
    "__main__": {"audit"},
}
EVERYWHERE = {"errors", "_devices", "_lazy", "_threads", "_validation"}


def room_of(module):
    parts = module.split(".")
    if module.startswith(("privacy.oracle", "privacy.queries")):
        return "privacy.oracle"
    return parts[0]


def imports_of(path):
    """Modules of the package that a file imports, as dotted names below ``dpanalysis``."""
    here = path.relative_to(PACKAGE).with_suffix("").parts
    package = here[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
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
                exists = (PACKAGE / Path(*full.split("."))).with_suffix(".py").exists()
                yield full if exists or not target else target
        elif isinstance(node, ast.Import):
            for alias in node.names:
                assert not alias.name.startswith("dpanalysis."), "import by relative name"


SOURCES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_run_one_way(path):
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    module = ".".join(p for p in parts if p != "__init__")
    room = room_of(module) if module else "dpanalysis"
    allowed = ALLOWED[room]
    for target in imports_of(path):
        other = room_of(target) if target else "dpanalysis"
        assert other != "figures"
        if "*" in allowed or other in (room, *EVERYWHERE):
            continue
        assert other in allowed, f"{module} imports {target}"


def test_every_room_is_listed():
    rooms = {p.relative_to(PACKAGE).parts[0].removesuffix(".py") for p in SOURCES}
    assert rooms - {"__init__"} == {room for room in ALLOWED if "." not in room} - {"dpanalysis"}


def test_importing_is_cheap():
    """No third-party package is imported before it is used; one process, no timing."""
    heavy = {"numpy", "scipy", "numba", "cvxpy", "clarabel", "matplotlib", "dp_accounting"}
    code = f"import sys, dpanalysis; print(sorted({heavy!r} & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
    heavy -= {"numpy", "scipy"}
    code = (
        "import sys, dpanalysis.privacy, dpanalysis.theory, dpanalysis.methods; "
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
    for extra in ("figures", "notebooks", "audit", "test"):
        declared |= requirements(project["optional-dependencies"][extra])
    pinned = requirements((ROOT / "tests" / "minimum-requirements.txt").read_text().splitlines())
    assert set(declared) == set(pinned) - {"pyparsing"}  # see the comment there
    for name, bound in declared.items():
        assert pinned[name][: len(bound)] == bound, name


def python_blocks(path):
    return re.findall(r"```python\n(.*?)```", path.read_text(encoding="utf-8"), flags=re.S)


def test_the_readme_example_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = python_blocks(ROOT / "README.md")
    assert blocks
    namespace = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), namespace)
