"""The name of the distribution, and its page on package indexes."""

import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import dpanalysis
from dpanalysis import __main__ as cli

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# Another project's name on the index; written in two parts so that this file does not match.
FOREIGN = re.compile(r"(pip install|extra)[^\n]*[\s'\"`]dpanalysis" + r"(\[|['\"`\s]*$)", re.M)


def test_no_page_or_message_installs_another_project():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    names = listed.stdout.split() or [str(p.relative_to(ROOT)) for p in ROOT.rglob("*.[pmt][yo]*")]
    read = [ROOT / name for name in names if name.endswith((".py", ".md", ".toml", ".txt"))]
    texts = {path: path.read_text(encoding="utf-8") for path in read if path.is_file()}
    assert len(texts) > 100
    found = {str(path): m[0] for path, text in texts.items() for m in FOREIGN.finditer(text)}
    assert not found
    assert FOREIGN.search("pip install 'dpanalysis" + "[torch]'")
    assert FOREIGN.search("python -m pip install dpanalysis" + "\n")


def test_extras_name_the_distribution():
    extras = PROJECT["optional-dependencies"]
    inner = [need for needs in extras.values() for need in needs if need.startswith("dpanalysis")]
    assert inner and all(re.fullmatch(rf"{PROJECT['name']}\[[\w,]+\]", need) for need in inner)
    assert {name for need in inner for name in need.split("[")[1][:-1].split(",")} <= set(extras)


def test_the_version_is_printed(capsys):
    assert PROJECT["scripts"] == {"dpanalysis": "dpanalysis.__main__:main"}
    with pytest.raises(SystemExit) as stop:
        cli.main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"dpanalysis {dpanalysis.__version__}\n"


@pytest.fixture
def hook():
    pytest.importorskip("hatchling", reason="needs hatchling, which builds the distribution")
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_links_hold_away_from_the_repository(hook):
    text = "![a](b/c.png) [d](e.md#f) [g](https://h.org) [i](#j)"
    assert hook.absolute(text, "https://host/us") == (
        "![a](https://host/us/raw/main/b/c.png) [d](https://host/us/blob/main/e.md#f) "
        "[g](https://h.org) [i](#j)"
    )
    metadata = {"urls": PROJECT["urls"]}
    hook.CustomMetadataHook(str(ROOT), {}).update(metadata)
    shown = metadata["readme"]["text"]
    links = re.findall(r"\]\(([^)]+)\)", shown)
    assert links and all(link.startswith(("https://", "#")) for link in links)


def test_the_command_runs():
    command = [sys.executable, "-m", "dpanalysis", "--version"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("dpanalysis ")
