"""Import time in a new process, beside NumPy and dp-accounting."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from typing import Any


def seconds(statement: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", statement], check=True)
    return time.perf_counter() - start


def run(quick: bool) -> list[dict[str, Any]]:
    statements = {
        "nothing": "pass",
        "dpanalysis": "import dpanalysis",
        "dpanalysis.privacy": "import dpanalysis.privacy",
        "dpanalysis.theory": "import dpanalysis.theory",
        "dp_accounting": "import dp_accounting",
    }
    times: dict[str, list[float]] = {name: [] for name in statements}
    for _ in range(3 if quick else 10):
        for name, statement in statements.items():
            times[name].append(1e3 * seconds(statement))
    median = {name: statistics.median(values) for name, values in times.items()}
    own = {name: value - median["nothing"] for name, value in median.items()}
    return [
        {
            "work": f"import {name}",
            "ours_ms": own[name],
            "peer": "import dp_accounting",
            "peer_ms": own["dp_accounting"],
            "ratio": own["dp_accounting"] / own[name],
            "target": "500 ms, goal 300 ms" if name == "dpanalysis" else "",
        }
        for name in ("dpanalysis", "dpanalysis.privacy", "dpanalysis.theory")
    ]
