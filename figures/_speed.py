"""A selection of benchmark rows for README, read from the table of results."""

from __future__ import annotations

import re
from pathlib import Path

from ._markdown import markdown

__all__ = ["SHOWN", "power", "speed"]

PAGE = Path(__file__).parents[1] / "benchmarks" / "RESULTS.md"

#: Description for readers: the work of the row, and the peers it is compared with.
SHOWN = {
    "a clipped gradient of 60,000 x 784 numbers": (
        "dense gradient: logistic, 60,000 x 784 float64, 2 threads",
        ("NumPy closed form", "Opacus, ghost"),
    ),
    "a private step of `MLP`, one hidden layer of 128, batch 256": (
        "private step of a network: batch 256",
        ("Opacus, ghost", "Opacus, per sample"),
    ),
    "the best certified rate of a method": (
        "best certified rate: step 1, momentum 0.2, mu 0.5",
        ("cvxpy, compiled once", "cvxpy, rebuilt"),
    ),
    "epsilon of a thousand private steps, by PLD of equal accuracy": (
        "PLD epsilon: 1000 steps",
        ("dp-accounting",),
    ),
    "memory for a file of 1e8 rows": (
        "private memory: memmap, 100,000,000 x 8 float32",
        ("the file",),
    ),
}


def speed() -> str:
    """Return the processor and a table of work, our time, and the peers' multiples of it."""
    text = PAGE.read_text(encoding="utf-8")
    (processor,) = re.findall("^- Processor: (.*)$", text, re.M)
    rows: dict[tuple[str, str], list[str]] = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) == 8:
            rows[cells[0], cells[2]] = cells
    lines = []
    for told, (work, others) in SHOWN.items():
        found = [_row(rows, work, other) for other in others]
        ratios = [float(re.split(r"[ (]", row[4])[0].replace(",", "")) for row in found]
        beside = "; ".join(
            f"{ratio:.2g} times as much: {name}" for name, ratio in zip(others, ratios, strict=True)
        )
        lines.append([told, found[0][1], beside])
    table = markdown(["work", "here", "beside"], lines)
    return f"Measured on: {processor}.\n\n{table}"


def _row(rows: dict[tuple[str, str], list[str]], work: str, other: str) -> list[str]:
    """Return the row of a work; its name may continue with machine-dependent details."""
    (found,) = (row for key, row in rows.items() if key[0].startswith(work) and key[1] == other)
    return found


def power() -> str:
    """Return a line on the measured power of the verifier."""
    page = PAGE.read_text("utf-8")
    (at,) = re.findall(r"^At confidence (.*?) nine of ten audits .*? best event\.", page, re.M)
    row = rf"^\| runs for power 0.9 at confidence {at}, [^:|]*: (.*), \d+ of \d+ seeds .*?\|(.*)$"
    rows = [(name, float(rest.split("|")[3])) for name, rest in re.findall(row, page, re.M)]
    first, *_, last = (re.split(r",| of \d", name)[0] for name, _ in rows)
    drawn = re.search(r"Of (\d+) mechanisms drawn by a generator .*? ([\d.]+) % are refuted", page)
    most = max(ratio for _, ratio in rows)
    share = f"; one audit refutes {drawn[2]} % of {drawn[1]} random ones" if drawn else ""
    return (
        f"At confidence {at} nine of ten audits refute each of {len(rows)} mechanisms "
        f"({first} to {last}) with {most:g} times the runs that the best event needs{share}."
    )


def mutants() -> str:
    """Return how many generated faults the tests notice: the page's first sentences."""
    page = (Path(__file__).parents[1] / "tests" / "mutants" / "REPORT.md").read_text("utf-8")
    (found,) = re.findall(r"^(Of \d+ one-line faults.*)$", page, re.M)
    return str(found)
