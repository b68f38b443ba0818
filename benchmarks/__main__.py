"""Run the benchmarks and print one table; see ``python -m benchmarks --help``."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

import numpy as np

from . import BENCHMARKS


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Time dpanalysis beside its peers. Machines differ: quote the ratios.",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions, smaller sizes")
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write the rows here")
    arguments = parser.parse_args(argv)
    unknown = sorted(set(arguments.names) - set(BENCHMARKS))
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; known: {', '.join(BENCHMARKS)}")
    about = {
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }
    print(", ".join(f"{key} {value}" for key, value in about.items()), file=sys.stderr)
    print("| work | ours (ms) | peer | peer (ms) | ratio | target |")
    print("|---|---|---|---|---|---|")
    rows: list[dict[str, Any]] = []
    for name in arguments.names or BENCHMARKS:
        for row in importlib.import_module(f"benchmarks.{name}").run(arguments.quick):
            rows.append({"benchmark": name, **row})
            print(
                f"| {row['work']} | {_number(row['ours_ms'])} | {row['peer'] or ''} "
                f"| {_number(row['peer_ms'])} | {_ratio(row)} | {row['target']} |",
                flush=True,
            )
    if arguments.json:
        arguments.json.write_text(json.dumps({**about, "rows": rows}, indent=1))
    return 0


def _ratio(row: dict[str, Any]) -> str:
    """Show a ratio, with the best and the worst of the repetitions where they are given."""
    spread = ", ".join(map(_number, row.get("best_and_worst", ())))
    return _number(row["ratio"]) + (f" ({spread})" if spread else "")


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


if __name__ == "__main__":
    sys.exit(main())
