"""Put small faults into the package, one by one, and see whether the tests notice them.

The faults are listed in ``mutants.toml`` beside this file: what is wrong, the text as it stands,
the text with the fault, and the tests that should fail. Every fault is put into a copy of the
checkout, so the working tree is never touched. First all these tests run once without any fault:
a test that is red even then proves nothing, and its faults are reported as such. A run that
crashes or does not end in time counts as noticed: whoever waits for it does notice. Not part of
the test suite, as it takes a quarter of an hour; ``test_mutants.py`` looks at the list alone.

    python tests/mutants.py                 # all of them
    python tests/mutants.py oracle rdp      # those whose file or name contains a word
    python tests/mutants.py --check         # only: does every old text still stand, once?

The environment goes through to the tests, ``DPANALYSIS_DATA`` with it. Only the Hypothesis
profile is "few", and compiled kernels have a cache in the copy: Numba would take a kernel for
unchanged when the fault is in a function that it calls, so a fault in compiled code starts from
an empty cache.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue

ROOT = Path(__file__).parents[1]
LEFT_OUT = shutil.ignore_patterns("__pycache__", ".*", "site", "dist", "*.egg-info", "numba")
LIMIT = 120.0  # seconds for the tests of one fault


def load() -> list[dict[str, str]]:
    """Return the faults: name, file, old, new, tests."""
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))["fault"]


def mistakes(faults: list[dict[str, str]]) -> list[str]:
    """Return what is wrong with the entries: a sentence each."""
    names = [fault["name"] for fault in faults]
    found = [f"{name}: two faults have this name" for name in {*names} if names.count(name) > 1]
    for fault in faults:
        times = (ROOT / fault["file"]).read_text("utf-8").count(fault["old"])
        if times != 1:
            found.append(f"{fault['name']}: its old text stands {times} times in its file")
        if fault["old"] == fault["new"]:
            found.append(f"{fault['name']}: nothing changes")
        for test in fault["tests"].split():
            file, _, function = test.partition("::")
            text = (ROOT / file).read_text("utf-8") if (ROOT / file).is_file() else ""
            if f"def {function.partition('[')[0]}" not in text:
                found.append(f"{fault['name']}: there is no test {test}")
    return found


def failed(tests: list[str], place: Path, cache: Path, limit: float | None) -> list[str]:
    """Return the tests that fail in a copy, or say that the time limit ended the run."""
    environment = {
        **os.environ,
        "HYPOTHESIS_PROFILE": "few",
        "NUMBA_CACHE_DIR": str(cache),
        "PYTHONPATH": str(place),
        "PYTHONDONTWRITEBYTECODE": "1",  # nothing of a fault stays in the copy
    }
    command = [sys.executable, "-m", "pytest", "-q", "--tb=no", "-p", "no:cacheprovider"]
    process = subprocess.Popen(
        [*command, *(["-x"] if limit else []), *tests], cwd=place, env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    try:
        printed, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # its workers, too: they hold the pipe
        process.communicate()
        return [f"no end within {limit:.0f} s"]
    if limit is None and process.returncode not in (0, 1):
        raise RuntimeError(f"pytest ended with {process.returncode} without a fault:\n{printed}")
    lines = [line for line in printed.splitlines() if line.startswith(("FAILED", "ERROR "))]
    names = [line.partition(" ")[2].partition(" - ")[0] for line in lines]
    return names or [f"pytest ended with {process.returncode}"] if process.returncode else []


def verdict(fault: dict[str, str], red: list[str], copies: Queue[Path]) -> str:
    """Return how the tests take a fault: "noticed", "ALIVE" or "red", and by which test."""
    tests = fault["tests"].split()
    already = [each for each in red if each.startswith(tuple(tests))]
    if already:
        return f"red without the fault: {already[0]}"
    place = copies.get()
    path = place / fault["file"]
    text, stamp = path.read_text("utf-8"), path.stat()
    path.write_text(text.replace(fault["old"], fault["new"]), "utf-8")
    compiled = "dpanalysis/kernels/" in fault["file"] or "njit" in text
    try:
        with tempfile.TemporaryDirectory() as empty:
            cache = Path(empty) if compiled else place / "numba"
            killers = failed(tests, place, cache, LIMIT)
    finally:
        path.write_text(text, "utf-8")
        os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
        copies.put(place)
    return f"noticed: {killers[0]}" if killers else "ALIVE"


def main() -> int:
    """Run the faults chosen and print a line each; 1 if one survives or proves nothing."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("words", nargs="*", help="only faults whose name or file contains one")
    parser.add_argument("--check", action="store_true", help="only look whether the texts stand")
    parser.add_argument("--jobs", type=int, default=2, help="copies tested at a time")
    options = parser.parse_args()
    words = options.words or [""]
    faults = [fault for fault in load() if any(w in fault["name"] + fault["file"] for w in words)]
    wrong = mistakes(faults)
    if wrong or options.check:
        print("\n".join(wrong) or f"{len(faults)} faults, every text in its place")
        return bool(wrong)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.jobs) as pool:
        copies: Queue[Path] = Queue()
        for k in range(options.jobs):
            shutil.copytree(ROOT, Path(folder) / str(k), ignore=LEFT_OUT)
            copies.put(Path(folder) / str(k))
        tests = list(dict.fromkeys(test for fault in faults for test in fault["tests"].split()))
        place = Path(folder) / "0"
        red = failed(tests, place, place / "numba", None)
        print(f"{len(tests)} tests run without a fault, {len(red)} of them red", flush=True)
        noticed = 0
        for fault, said in zip(faults, pool.map(lambda f: verdict(f, red, copies), faults)):
            noticed += said.startswith("noticed")
            print(f"{fault['name']}\n    {said}", flush=True)
    print(f"{noticed} of {len(faults)} faults are noticed")
    return noticed < len(faults)


if __name__ == "__main__":
    sys.exit(main())
