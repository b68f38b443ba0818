"""Run the benchmarks and print their tables; see ``python -m benchmarks --help``."""

from __future__ import annotations

import argparse
import datetime
import importlib
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

from threadpoolctl import threadpool_info

from dpanalysis.experiments.sweep import processor

from . import BENCHMARKS
from .measure import skipped
from .table import Row, page, replaced, section, unmeasured
from .worker import POOLS

PACKAGES = (
    *("numpy", "scipy", "numba", "cvxpy", "clarabel", "scikit-learn", "jax", "torch", "opacus"),
    *("cupy-cuda12x", "cupy-cuda13x", "array-api-compat"),
    *("dp-accounting", "jax-privacy", "autolyap", "PEPit"),
)
SETTINGS = (*POOLS, "NUMBA_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT")


def machine() -> dict[str, str]:
    """Return machine, versions and settings, in display order."""
    versions = []
    for package in PACKAGES:
        try:
            versions.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            continue
    settings = [f"{name}={os.environ[name]}" for name in SETTINGS if name in os.environ]
    device = _device()
    return {
        "Processor": f"{processor()}, {os.cpu_count()} cores{_blas()}",
        **({"GPU": device} if device else {}),
        "Memory": _memory(),
        "System": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "Versions": f"Python {platform.python_version()}, " + ", ".join(versions),
        "Threads": "one and two where a row says so, else as many as there are; set: "
        + (", ".join(settings) or "nothing"),
    }


def _blas() -> str:
    """Return the core for which NumPy's library multiplies: it may be that of an older processor.

    On an AMD EPYC of family 26 OpenBLAS 0.3.31 chooses Haswell, which has no AVX-512.
    """
    found = [pool.get("architecture") for pool in threadpool_info() if pool["user_api"] == "blas"]
    return f", BLAS for {found[0]}" if found and found[0] else ""


def _first(path: str, field: str) -> str:
    """Return the first value of a field in a file of ``field : value`` lines, or ""."""
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:  # not Linux
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(field)), "")


def _device() -> str:
    """Return the GPUs with their driver, or ""."""
    if not shutil.which("nvidia-smi"):
        return ""
    command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return "; ".join(found.stdout.strip().splitlines()) if found.returncode == 0 else ""


def _memory() -> str:
    kilobytes = _first("/proc/meminfo", "MemTotal").split()
    return f"{int(kilobytes[0]) / 2**20:.0f} GiB" if kilobytes else "unknown"


def main(argv: list[str] | None = None) -> int:
    """Run the requested benchmarks and write the requested files."""
    given = sys.argv[1:] if argv is None else argv
    if given[:1] == ["penalty"]:
        from .accuracy.penalty import main as penalty

        return penalty(given[1:])
    if given[:1] == ["gaussian"]:
        from .accuracy.gaussian import main as gaussian

        return gaussian(given[1:])
    if given[:1] == ["regression"]:
        from .accuracy.regression import main as regression

        return regression(given[1:], machine())
    if given[:1] == ["accuracy"]:  # no timing: options and tables of its own
        from .accuracy import main as accuracy

        return accuracy(given[1:], machine())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Time dpanalysis and its peers. Machines differ: quote the ratios.",
        epilog="Accuracy against peers: python -m benchmarks accuracy --help, and its penalty: "
        "python -m benchmarks penalty --help; of regression: python -m benchmarks regression "
        "--help.",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions, smaller sizes")
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write the rows here")
    parser.add_argument(
        "--markdown", metavar="FILE", type=Path, help="also write a page; plots go to its images/"
    )
    parser.add_argument(
        "--into", metavar="FILE", type=Path, help="replace these sections in an existing page"
    )
    arguments = parser.parse_args(argv)
    unknown = sorted(set(arguments.names) - set(BENCHMARKS))
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; known: {', '.join(BENCHMARKS)}")
    about, began = machine(), time.perf_counter()
    print(*(f"{name}: {value}" for name, value in about.items()), sep="\n", file=sys.stderr)
    sections: dict[str, list[Row]] = {}
    summaries: dict[str, str] = {}
    images: list[str] = []
    for name in arguments.names or BENCHMARKS:
        start, busy = time.perf_counter(), sum(os.times()[:4])
        module = importlib.import_module(f"benchmarks.{name}")
        title = (module.__doc__ or name).splitlines()[0].rstrip(".")
        rows = sections[title] = []
        for row in module.run(arguments.quick):
            rows.append(row)
            print(row.as_markdown(), file=sys.stderr, flush=True)
        print(
            f"{name}: {time.perf_counter() - start:.0f} s, {sum(os.times()[:4]) - busy:.0f} s of "
            "processor time",
            file=sys.stderr,
            flush=True,
        )
        if hasattr(module, "summary"):
            summaries[title] = module.summary(rows)
        print(f"\n{section(title, rows, summaries.get(title, ''))}", flush=True)
        if arguments.into:
            taken = time.perf_counter() - start
            own = (
                f"Of a run of its own: {_run(arguments.quick, taken)}, on {about['Processor']}; "
                f"{about['Versions']}."
            )
            text = section(title, rows, summaries.get(title, ""), own)
            kept = arguments.into.read_text()
            arguments.into.write_text(replaced(kept, title, text, rows))
        written = arguments.markdown or arguments.into
        if written and hasattr(module, "plot"):
            folder = written.parent / "images"
            folder.mkdir(parents=True, exist_ok=True)
            images += [f"images/{path.name}" for path in module.plot(folder)]
        _write(
            arguments, about, began, sections, images, summaries
        )  # an interrupted run keeps its finished sections
    for why in skipped.values():
        print(f"skipped: {why}")
    return 0


def _run(quick: bool, seconds: float) -> str:
    """Return the date and the duration of a run."""
    kind = "quick" if quick else "full"
    return f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}, {kind}, {seconds:.0f} s"


def _write(
    arguments: argparse.Namespace,
    about: dict[str, str],
    began: float,
    sections: dict[str, list[Row]],
    images: list[str],
    summaries: dict[str, str],
) -> None:
    """Write the requested files."""
    about["Run"] = _run(arguments.quick, time.perf_counter() - began)
    if arguments.json:
        rows = [row for part in sections.values() for row in part]
        kept = {
            **about,
            "rows": [row.as_json() for row in rows],
            "not measured": unmeasured(rows),
            "skipped": list(skipped.values()),
        }
        arguments.json.write_text(json.dumps(kept, indent=1) + "\n")
    if arguments.markdown:
        folder = arguments.markdown.parent
        others = [f"benchmarks/{path.name}" for path in sorted(folder.glob("RESULTS-*.md"))]
        names, file = arguments.names, arguments.markdown.name
        arguments.markdown.write_text(
            page(about, sections, skipped.values(), images, summaries, others, names, file)
        )


if __name__ == "__main__":
    sys.exit(main())
