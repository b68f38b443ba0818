"""The page about extending: each file works from outside the package and has the stated length."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
FILES = {block.split()[1]: block for block in BLOCKS if block.startswith("# my_")}
CHECKS = [block for block in BLOCKS if not block.startswith("# my_")]


@pytest.fixture
def outside(tmp_path, monkeypatch):
    """A folder with the files of the page, on the path of modules."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in FILES:
        sys.modules.pop(Path(name).stem, None)


def test_every_kind_has_a_file_and_all_but_the_claim_a_check():
    assert len(FILES) == 7 and len(CHECKS) == 7
    kinds = [f"check_{kind}" for kind in ("loss", "clipping", "method", "problem", "mechanism")]
    for check in [*kinds, "PrivateClassifier"]:
        assert any(check in block for block in CHECKS)


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS, ids=lambda code: code.split("from ")[1].split()[0])
def test_a_file_passes_its_check(outside, check):
    if "linear_model" in check:
        pytest.importorskip("sklearn", reason="needs scikit-learn")
    exec(compile(check, "docs/extending.md", "exec"), {"__name__": "page"})


@pytest.mark.slow
def test_the_claims_of_a_sixth_paper_are_checked_from_outside(outside):
    command = [sys.executable, "-m", "dpanalysis", "claims", "--module", "my_paper"]
    path = os.pathsep.join([str(ROOT), str(outside)])
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": path},
        cwd=outside,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "sharpened" in done.stdout and "Dwork" in done.stdout
    assert "--module my_paper" in PAGE


def test_the_table_counts_the_lines():
    table = dict(re.findall(r"^\| `(my_\w+\.py)` \| (\d+) \|$", PAGE, flags=re.MULTILINE))
    counted = {
        name: sum(bool(line.strip()) for line in text.splitlines()) for name, text in FILES.items()
    }
    assert {name: int(lines) for name, lines in table.items()} == counted
    assert max(counted.values()) <= 40


@pytest.mark.slow
def test_the_check_of_a_mechanism_finds_an_event_that_costs_too_little(outside):
    (check,) = [block for block in CHECKS if "from my_mechanism" in block]
    file = outside / "my_mechanism.py"
    right = file.read_text(encoding="utf-8")
    wrong = right.replace("RandomizedChoice(self.epsilon,", "RandomizedChoice(0.5 * self.epsilon,")
    file.write_text(wrong, encoding="utf-8")
    assert wrong != right
    with pytest.raises(AssertionError, match=r"refuted: epsilon >= .* where 0\.5 is claimed"):
        exec(compile(check, "docs/extending.md", "exec"), {"__name__": "page"})
