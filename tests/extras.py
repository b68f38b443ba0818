"""``python -m tests.extras [NAME ...]``: install each extra alone, and run its documented examples.

Each runs in a separate environment, which takes minutes and a network: for a release, not for every
change. ``core`` is the package without extras. Exit status 1 if something failed.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["EXAMPLES", "Example", "code", "extras", "main"]

ROOT = Path(__file__).parents[1]
BLOCK, PAGE = "the block", "the page"
_PYTHON = re.compile(r"^```python\n(.*?)^```", re.M | re.S)


@dataclass(frozen=True)
class Example:
    """An example of an extra on a page.

    ``says`` is a text of the page. ``run`` is a command line in the checkout, where ``{out}`` is an
    empty folder, or the Python to run there: the block with that text, or the whole page.
    """

    page: str
    says: str
    run: str
    also: tuple[str, ...] = ()  # what the page installs beside the extra
    needs: str = ""  # a program that the example needs


_FIGURE = "python -m figures kuru_fig2 --quiet --out {out}"
_NOTEBOOK = "python -m notebooks privacy_budget --out {out}"
_TABLE = """cd {out}
python -c "
import random
print('age,job,income')
for _ in range(2000):
    age = random.randint(17, 90)
    print(age, random.choice(['clerk', 'nurse']), 'high' if age > 50 else 'low', sep=',')
" > train.csv
dpanalysis domain train.csv --label income -o template.toml
printf '[columns]\\nage = [17, 90]\\njob = ["clerk", "nurse"]\\n' > domain.toml
dpanalysis fit train.csv --label income --domain domain.toml --epsilon 1 --out model.json
dpanalysis evaluate train.csv --label income --model model.json"""

EXAMPLES: dict[str, list[Example]] = {
    "core": [
        Example("README.md", "result = dpa.minimize", BLOCK),
        Example("README.md", "audit.verify_privacy(noisy_sum", BLOCK),
        Example("docs/index.md", "result.plot(", BLOCK),
        Example("docs/scale.md", "np.memmap", PAGE),
        Example("docs/claims.md", "dpanalysis claims", "dpanalysis claims --quick --id 001-10"),
    ],
    "figures": [Example("README.md", "python -m figures", _FIGURE)],
    "sklearn": [
        Example("README.md", "LogisticRegression(epsilon", BLOCK),
        Example("docs/five_minutes.md", "import pandas", PAGE),
        Example("docs/five_minutes.md", "dpanalysis domain train.csv --label income", _TABLE),
    ],
    "audit": [
        Example(
            "tests/examples/test_my_mechanism.py",
            "dpanalysis-toolkit[audit]",
            "cp tests/examples/test_my_mechanism.py {out} && cd {out} && python -m pytest -q",
        )
    ],
    "execute": [Example("README.md", "python -m notebooks", _NOTEBOOK)],
    "notebooks": [
        Example("README.md", "python -m notebooks", _NOTEBOOK),
        Example("docs/notebooks.md", "jupyter lab", "jupyter lab --version"),
    ],
    "docs": [
        Example(
            "CONTRIBUTING.md",
            "python docs/check.py docs/_build/html",
            "python -m sphinx -q -W --keep-going -b html -D nb_execution_mode=off docs {out}/site"
            " && python docs/check.py {out}/site",
        )
    ],
    "dask": [Example("docs/scale.md", "--backend dask", f"{_FIGURE} --backend dask")],
    "ray": [Example("docs/scale.md", "or loky, threading, ray", f"{_FIGURE} --backend ray")],
    "torch": [Example("docs/from_opacus.md", '[torch]" opacus', PAGE, also=("opacus",))],
    "test": [
        Example(
            "README.md",
            "python -m pytest",
            "python -m pytest -q -p no:cacheprovider tests/test_readme.py tests/test_first_use.py",
        )
    ],
    "dev": [
        Example(
            "CONTRIBUTING.md",
            "ruff check . && ruff format --check . && mypy",
            "ruff check . && ruff format --check . && mypy --cache-dir={out}",
        )
    ],
    "benchmarks": [
        Example(
            "README.md", "python -m benchmarks", "python -m benchmarks --quick startup accounting"
        )
    ],
    "peers": [Example("README.md", "python -m benchmarks", "python -m benchmarks --quick lmi")],
    "gpu": [Example("docs/gpu.md", ".[gpu]", PAGE, needs="nvidia-smi")],
}


def extras() -> list[str]:
    """Return the extras that the project declares."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return list(project["optional-dependencies"])


def code(example: Example) -> str:
    """Return the Python of an example; "" where it is a command line."""
    if example.run not in (BLOCK, PAGE):
        return ""
    blocks = _PYTHON.findall((ROOT / example.page).read_text(encoding="utf-8"))
    chosen = [each for each in blocks if example.run == PAGE or example.says in each]
    return "\n\n".join(chosen)


def _shell(command: str, python: Path, log: Path) -> tuple[bool, float]:
    """Run a command line in an environment; return whether it succeeded, and its seconds."""
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "MPLBACKEND": "Agg", "PYTHONWARNINGS": "default"}
    environment["PIP_COMPILE"] = "0"  # few of the files are ever imported
    environment.pop("PYTHONPATH", None)
    start = time.perf_counter()
    with log.open("w", encoding="utf-8") as out:
        done = subprocess.run(
            ["bash", "-euc", command], cwd=ROOT, env=environment, stdout=out, stderr=out
        )
    return done.returncode == 0, time.perf_counter() - start


def _checked(name: str, folder: Path) -> Iterator[tuple[str, str, float]]:
    """Yield the label, the outcome and the seconds of each example of an extra."""
    python, log = folder / "environment" / "bin" / "python", folder / "log"
    also = sorted({each for example in EXAMPLES[name] for each in example.also})
    wanted = "." if name == "core" else f".[{name}]"
    install = f"python -m pip install -q -e '{wanted}' {' '.join(also)}"
    subprocess.run([sys.executable, "-m", "venv", folder / "environment"], check=True)
    went_well, seconds = _shell(install, python, log)
    yield install, "ok" if went_well else _tail(log), seconds
    for k, example in enumerate(EXAMPLES[name] if went_well else ()):
        label = f"{example.page}: {example.says}"
        if example.needs and shutil.which(example.needs) is None:
            yield label, f"not run: no {example.needs}", 0.0
            continue
        out = folder / f"out{k}"
        out.mkdir()
        command = example.run.replace("{out}", str(out))
        if python_code := code(example):
            (out / "example.py").write_text(python_code, encoding="utf-8")
            command = f"cd {out} && python example.py"
        went_well, seconds = _shell(command, python, log)
        yield label, "ok" if went_well else _tail(log), seconds


def _tail(log: Path) -> str:
    lines = log.read_text(encoding="utf-8").splitlines()
    return "FAILED\n" + "\n".join(f"    {line}" for line in lines[-20:])


def main(argv: list[str] | None = None) -> int:
    """Check the extras that are named, or all, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m tests.extras", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(EXAMPLES)}")
    names = parser.parse_args(argv).names or list(EXAMPLES)
    if unknown := [name for name in names if name not in EXAMPLES]:
        parser.error(f"unknown extra {unknown[0]!r}; known: {', '.join(EXAMPLES)}")
    failed = []
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            for label, outcome, seconds in _checked(name, Path(folder)):
                print(f"{name:10}  {seconds:6.1f} s  {label}: {outcome}", flush=True)
                failed += [name] if outcome.startswith("FAILED") else []
    print(f"failed: {', '.join(dict.fromkeys(failed)) or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
