"""Put single-line faults into the package, one by one, and see which tests notice them.

The faults are listed in ``mutants.toml`` beside this file: the line as it stands, the line with
the fault, and the tests that should fail. Every fault is put into a copy of the checkout, so the
working tree is never touched. Not part of the test suite: it takes about half an hour.

    python tests/mutants.py                 # all of them
    python tests/mutants.py oracle rdp      # those whose file or name contains a word
    python tests/mutants.py --check         # only: does every line still stand in its file, once?
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue

ROOT = Path(__file__).parents[1]
COPIED = ("dpanalysis", "tests", "figures", "benchmarks", "docs", "pyproject.toml", "README.md")


def load() -> list[dict[str, str]]:
    """Return the faults: name, file, old, new, tests."""
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))["fault"]


def misplaced(fault: dict[str, str]) -> str | None:
    """Return what is wrong with a fault's entry: its old text must stand in the file once."""
    found = (ROOT / fault["file"]).read_text("utf-8").count(fault["old"])
    return None if found == 1 else f"{fault['name']}: its line stands {found} times in its file"


def copy_checkout(to: Path) -> None:
    """Copy what the tests need, without caches of compiled kernels."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, to / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, to / name)


def killed_by(fault: dict[str, str], copies: Queue[Path]) -> str:
    """Return the first test that fails with the fault in place, or an empty string."""
    place = copies.get()
    path = place / fault["file"]
    text = path.read_text("utf-8")
    path.write_text(text.replace(fault["old"], fault["new"]), "utf-8")
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--no-header",
             *fault["tests"].split()],
            cwd=place, capture_output=True, text=True, check=False,
            env={**os.environ, "HYPOTHESIS_PROFILE": "few", "PYTHONPATH": str(place)},
        )  # fmt: skip
    finally:
        path.write_text(text, "utf-8")
        copies.put(place)
    if done.returncode not in (0, 1, 2):
        raise RuntimeError(f"{fault['name']}: pytest ended with {done.returncode}\n{done.stdout}")
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return failed[0].split(" - ")[0] if done.returncode else ""


def main() -> int:
    """Run the faults chosen and print a line each; 1 if one survives."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("words", nargs="*", help="only faults whose name or file contains one")
    parser.add_argument("--check", action="store_true", help="only look whether the lines stand")
    parser.add_argument("--jobs", type=int, default=2, help="copies tested at a time")
    options = parser.parse_args()
    faults = [
        fault
        for fault in load()
        if not options.words or any(w in fault["name"] + fault["file"] for w in options.words)
    ]
    wrong = [message for message in map(misplaced, faults) if message]
    if wrong or options.check:
        print("\n".join(wrong) or f"{len(faults)} faults, every line in its place")
        return bool(wrong)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.jobs) as pool:
        copies: Queue[Path] = Queue()
        for k in range(options.jobs):
            copy_checkout(Path(folder) / str(k))
            copies.put(Path(folder) / str(k))
        alive = 0
        for fault, killer in zip(faults, pool.map(lambda f: killed_by(f, copies), faults)):
            alive += not killer
            print(f"{'killed' if killer else 'ALIVE ':7} {fault['name']}  {killer}", flush=True)
    print(f"{len(faults) - alive} of {len(faults)} faults are noticed")
    return bool(alive)


if __name__ == "__main__":
    sys.exit(main())
