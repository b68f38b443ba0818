"""The page about GPUs: its examples run, and its numbers are those of the code."""

import re
from pathlib import Path

import numpy as np
import pytest
from devices import ANY, LIBRARIES, Double

from dpanalysis import ERM, losses
from dpanalysis.clipping import Flat
from dpanalysis.privacy import _philox, mechanisms
from dpanalysis.problems import MLP

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "gpu.md").read_text(encoding="utf-8")
RESULTS = (ROOT / "benchmarks" / "RESULTS-GPU.md").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("library", ANY)
def test_the_examples_run(library, capsys):
    names = {"cp": LIBRARIES[library]()}
    blocks = re.findall(r"```python\n(.*?)```", PAGE, flags=re.S)
    assert len(blocks) == 2 and "import cupy as cp\n" in blocks[0]
    for block in blocks:
        exec(compile(block.replace("import cupy as cp\n", ""), "docs/gpu.md", "exec"), names)
    first, second = capsys.readouterr().out.splitlines()
    assert float(first) < 1e-10
    assert "numpy" not in second.lower() and second.endswith("(3, 10)")


def test_the_ratios_are_those_that_were_measured():
    rows = [line.split(" | ") for line in RESULTS.splitlines() if line.startswith("| ")]
    measured = {(work[2:], peer): ratio.split()[0] for work, _, peer, _, ratio, *_ in rows if peer}
    said = 0
    for key, cases in re.findall(r"^- ([a-zA-Z ]+): (.*)$", PAGE, re.M):
        for case, ratio in re.findall(r"([^;]+), ([\d.]+)(?:; |$)", cases):
            assert measured[f"{key}: {case}", "the host"] == ratio
            said += 1
    assert said == 12
    ranges = re.findall(
        r"([\d.]+) to ([\d.]+) times (?:the step .*? )?for ([\w -]+?)(?:,| where)", PAGE
    )
    for low, high, kind in ranges:
        found = [
            float(ratio)
            for (work, peer), ratio in measured.items()
            if work.startswith(f"private step of a module: {kind},") and "not private" in peer
        ]
        assert (float(low), float(high)) == (min(found), max(found)), kind
    assert len(ranges) == 3


def test_the_calls_and_the_threshold_are_those_of_the_code():
    assert PAGE.count(f"{mechanisms.DRAWN_ON_DEVICE:,} parameters") == 5
    xp, random = Double(), np.random.default_rng(0)
    X, y = random.standard_normal((50, 784)), random.integers(0, 10, 50)
    erm = ERM(xp.asarray(X), np.where(y > 4, 1.0, -1.0), losses.Logistic())
    mlp = MLP(xp.asarray(X.astype(np.float32)), y, (128,), 10)

    def calls(function, *arguments):
        xp.calls = 0
        function(*arguments)
        return xp.calls

    def gradient(problem, rows, rule):
        at = problem.place(np.zeros((1, problem.d)))
        problem.sums(at, rows, rule, value=False)  # the norms of the rows, once
        return calls(problem.sums, at, rows, rule, False)

    assert gradient(erm, None, None) == pytest.approx(33, abs=4)
    assert gradient(erm, None, Flat(1.0)) == pytest.approx(82, abs=4)
    assert gradient(mlp, np.arange(20), Flat(1.0)) == pytest.approx(160, abs=6)
    for law in _philox.LAWS.values():
        seeds = np.ones((1, _philox.SEED_WORDS), dtype=np.int64)
        assert calls(law, xp, seeds, 101, None) == pytest.approx(80, abs=4)
