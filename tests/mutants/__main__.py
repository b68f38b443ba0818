"""Mutation testing: insert small faults into code that privacy depends on, and run the tests.

The faults are changes of the syntax tree: another operator, comparison or constant, min for max, a
branch that is never or always taken, two arguments swapped, a check or a line removed. A seed draws
a sample of all faults. Each is put into a copy of the checkout, where the tests that run its line
(measured once, by coverage) are run, the fastest first.

    python -m tests.mutants measure           # which test runs which line; half an hour
    python -m tests.mutants run --sample 600  # until 600 faults have a result, in results.csv
    python -m tests.mutants run --alive       # only survivors, after a test was added
    python -m tests.mutants report            # writes REPORT.md
    python -m tests.mutants verify            # repeats some faults that were noticed: in CI
    python -m tests.mutants dpanalysis.privacy.budget --sample 900 --json found.json
                                              # run, for faults of some modules alone

Survivors are classified once, by hand, in survivors.toml: "equivalent" (no input distinguishes the
fault from the code: say why), "cosmetic" (speed or a message), or "missing test".
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import os
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from .contexts import ROOT, Contexts
from .operators import Fault, faults
from .report import report
from .trial import Copies

HERE = Path(__file__).parent
RESULTS, SURVIVORS, STORIES = HERE / "results.csv", HERE / "survivors.toml", HERE / "stories.toml"
CONTEXTS = HERE / "output" / "contexts"

#: Every module that a statement on privacy or convergence depends on.
MODULES = (
    "privacy/**/*.py", "problems/**/*.py", "methods/**/*.py", "audit/**/*.py", "losses.py",
    "clipping.py", "regularizers.py", "theory/**/*.py", "testing/**/*.py", "datasets/**/*.py",
    "kernels/rounding.py", "kernels/norms.py", "kernels/scalar.py", "kernels/tile.py",
    "kernels/dense.py", "kernels/csr.py", "kernels/compiled.py", "kernels/products.py",
    "kernels/array_api.py", "kernels/user.py", "kernels/kernel_table.py", "experiments/**/*.py",
    "linear_model/*.py", "preprocessing/*.py", "tuning.py", "commands.py", "opacus.py",
    "_validation.py", "_user_classes.py",
)  # fmt: skip
#: Tests of these modules; those of figures, pages and claims are not used.
TESTS = (
    "tests/privacy", "tests/methods", "tests/problems", "tests/kernels", "tests/contracts",
    "tests/experiments", "tests/linear_model", "tests/tuning", "tests/audit", "tests/theory",
    "tests/test_opacus.py", "tests/test_datasets.py", "tests/test_first_use.py",
    "tests/test_extending_page.py",
)  # fmt: skip


COMMANDS = ("measure", "run", "report", "verify")


def all_faults() -> dict[str, Fault]:
    """Return every fault of :data:`MODULES` by its key."""
    paths = sorted({path for each in MODULES for path in (ROOT / "dpanalysis").glob(each)})
    found = {}
    for path in paths:
        for fault in faults(str(path.relative_to(ROOT)), path.read_text("utf-8")):
            found[fault.key] = fault
    return found


def drawn(keys: list[str], sample: int | None, seed: int | str) -> list[str]:
    """Return a sample without replacement; the order of keys is the same if others change.

    The order does not depend on the file: a module that moves keeps its faults in their order.
    """

    def place(key: str) -> bytes:
        return hashlib.sha256(f"{seed} {key.partition('::')[2] or key}".encode()).digest()

    return sorted(keys, key=place)[:sample]


def stored() -> dict[str, tuple[str, str]]:
    """Return the result of every fault tried so far: verdict, and the test or the reason."""
    if not RESULTS.is_file():
        return {}
    with RESULTS.open(newline="", encoding="utf-8") as file:
        return {row["fault"]: (row["verdict"], row["by"]) for row in csv.DictReader(file)}


def first_verdicts() -> dict[str, str]:
    """Return the verdicts of the first tries, before tests were written for the survivors.

    Those of the first 738 faults were not kept.
    """
    if not RESULTS.is_file():
        return {}
    with RESULTS.open(newline="", encoding="utf-8") as file:
        return {row["fault"]: row["first"] for row in csv.DictReader(file) if row["first"]}


def store(results: dict[str, tuple[str, str]], first: dict[str, str]) -> None:
    """Write the results, by fault."""
    with RESULTS.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["fault", "verdict", "by", "first"])
        writer.writerows([key, *results[key], first.get(key, "")] for key in sorted(results))


def classes() -> dict[str, tuple[str, str]]:
    """Return the class and the reason of every classified survivor."""
    listed = tomllib.loads(SURVIVORS.read_text("utf-8")).get("survivor", [])
    return {each["fault"]: (each["class"], each["why"]) for each in listed}


def stories() -> dict[str, tuple[Fault, str]]:
    """Return the faults of stories.toml: name -> fault and the test that must notice it."""
    found = {}
    for each in tomllib.loads(STORIES.read_text("utf-8"))["fault"]:
        text = (ROOT / each["file"]).read_text("utf-8")
        if text.count(each["old"]) != 1:
            raise ValueError(f"{each['name']}: its old text must stand once in {each['file']}")
        start = len(text[: text.index(each["old"])].encode())
        end = start + len(each["old"].encode())
        fault = Fault(each["file"], "", "story", "", each["old"], each["new"], 1, start, end, 0, 0)
        found[each["name"]] = fault, each["test"]
    return found


def measure(jobs: int) -> int:
    """Run the tests once under coverage and keep which test runs which line.

    Tests marked slow, which most runs leave out, are not among them.
    """
    CONTEXTS.mkdir(parents=True, exist_ok=True)
    for old in CONTEXTS.glob("*.json"):
        old.unlink()
    environment = {**os.environ, "MUTANT_CONTEXTS": str(CONTEXTS), "HYPOTHESIS_PROFILE": "few"}
    command = [sys.executable, "-m", "pytest", "-q"]
    command += ["-p", "tests.mutants.contexts"]
    parallel = ["-n", str(jobs), "--dist", "loadfile"] if jobs > 1 else []
    return subprocess.call([*command, *parallel, *TESTS], cwd=ROOT, env=environment)


def run(sample: int, seed: int, jobs: int, alive: bool, words: list[str]) -> int:
    """Try the drawn faults that have no result yet, and store the results."""
    known, results, contexts = all_faults(), stored(), Contexts(CONTEXTS)
    classed, first = classes(), first_verdicts()
    # A fault whose code is gone keeps its first verdict: survivors are deleted more often.
    gone = {key: ("gone", "") for key in first if key not in known}
    results = {key: result for key, result in results.items() if key in known} | gone
    if alive:
        keys = [k for k, (verdict, _) in results.items() if verdict in ("alive", "not run")]
        keys = [k for k in keys if classed.get(k, ("missing test", ""))[0] == "missing test"]
    else:
        keys = [key for key in drawn(list(known), len(known), seed) if key not in results]
        keys = keys[: max(0, sample - len(results) + len(gone))]
    keys = [key for key in keys if not words or any(word in key for word in words)]
    print(f"{len(known)} faults there are, {len(keys)} to try", flush=True)
    if not keys:
        return 0
    if not contexts:
        raise SystemExit("first: python -m tests.mutants measure")
    with Copies(jobs) as copies, ThreadPoolExecutor(jobs) as pool:
        futures = {pool.submit(copies.try_fault, known[key], contexts): key for key in keys}
        try:
            for k, future in enumerate(as_completed(futures), 1):
                key, found = futures[future], future.result()
                if key not in results:
                    first[key] = found[0]
                results[key] = found
                print(f"{k}/{len(keys)} {': '.join(results[key])}\n    {key}", flush=True)
                if k % 10 == 0:
                    store(results, first)
        finally:
            pool.shutdown(cancel_futures=True)
            store(results, first)
    return 0


def verify(sample: int, seed: int, jobs: int, tell: int | None, word: str) -> int:
    """Repeat stored faults with the test that noticed them, and return 1 if one survives.

    ``tell`` faults of stories.toml, drawn by ``word``, are repeated too; all if it is None.
    """
    known = all_faults()
    noticed = {
        key: by
        for key, (verdict, by) in stored().items()
        if verdict == "noticed" and "::" in by and key in known
    }
    chosen = [(key, known[key], noticed[key]) for key in drawn(list(noticed), sample, seed)]
    told = stories()
    chosen += [(name, *told[name]) for name in drawn(list(told), tell, word)]
    with Copies(jobs) as copies, ThreadPoolExecutor(jobs) as pool:
        fine = pool.map(lambda each: copies.try_test(each[1], each[2]), chosen)
        alive = [f"{each[0]}\n    by {each[2]}" for each, seen in zip(chosen, fine) if not seen]
    print("\n".join(alive) + "\n" * bool(alive), end="")
    print(f"{len(chosen) - len(alive)} of {len(chosen)} faults are noticed")
    return bool(alive)


def shares(words: list[str]) -> dict[str, Any]:
    """Return the share of faults noticed by module, and the survivors with their class."""
    known, classed = all_faults(), classes()
    modules: dict[str, list[str]] = {}
    survivors = []
    for key, (verdict, _) in stored().items():
        if key in known and (not words or any(word in key for word in words)):
            modules.setdefault(key.partition("::")[0], []).append(verdict)
            if verdict != "noticed":
                found = classed.get(key, ("missing test", "not looked at yet"))
                survivors.append({"fault": key, "class": found[0], "why": found[1]})
    return {
        "modules": {
            name: {"tried": len(found), "noticed": found.count("noticed") / len(found)}
            for name, found in sorted(modules.items())
        },
        "survivors": survivors,
    }


def main() -> int:
    """Run the command line."""
    argv = sys.argv[1:]
    if not argv or argv[0] not in (*COMMANDS, "-h", "--help"):
        argv = ["run", *argv]
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", choices=COMMANDS, help="run if left out")
    parser.add_argument(
        "words", nargs="*", help="only faults of these modules, or whose name contains a word"
    )
    parser.add_argument("--sample", type=int, help="how many faults (run: 600, verify: 20)")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--stories", type=int, help="verify: how many stories (default: all)")
    parser.add_argument("--word", default="", help="verify: what draws the stories")
    parser.add_argument("--jobs", type=int, default=2, help="faults tried at a time")
    parser.add_argument("--alive", action="store_true", help="only those alive, not yet excused")
    parser.add_argument("--json", type=Path, help="run: shares by module, and the survivors")
    options = parser.parse_args(argv)
    if options.what == "measure":
        return measure(options.jobs)
    if options.what == "run":
        dotted = [
            each.replace(".", "/") for each in options.words if each.startswith("dpanalysis.")
        ]
        words = [*dotted, *(each for each in options.words if not each.startswith("dpanalysis."))]
        run(options.sample or 600, options.seed, options.jobs, options.alive, words)
        if options.json:
            options.json.write_text(json.dumps(shares(words), indent=2) + "\n", "utf-8")
        return 0
    if options.what == "verify":
        sample = options.sample or 20
        return verify(sample, options.seed, options.jobs, options.stories, options.word)
    known = all_faults()
    results = {key: result for key, result in stored().items() if key in known}
    page = report(results, classes(), len(known), first_verdicts())
    (HERE / "REPORT.md").write_text(page, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
