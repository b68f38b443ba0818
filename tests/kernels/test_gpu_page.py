"""The page about GPUs: its examples run, and its numbers are the code's."""

import re
from pathlib import Path

import numpy as np
import pytest
from devices import ANY, LIBRARIES, Double

from dpanalysis import ERM, losses
from dpanalysis.clipping import Flat
from dpanalysis.privacy import _philox, mechanisms
from dpanalysis.problems import MLP

PAGE = (Path(__file__).parents[2] / "docs" / "gpu.md").read_text(encoding="utf-8")


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


def test_the_table_is_the_arithmetic_that_the_page_states():
    calls, each, host, device = 33, 5e-6, 50e9, 2e12
    pattern = r"^\|[^|]*?([\d.e]+) x (\d+) \|[^|]+\| ([\d.]+) ms \| ([\d.]+) ms \|$"
    rows = re.findall(pattern, PAGE, re.M)
    assert len(rows) == 4
    for n, d, on_host, on_device in rows:
        size = 8 * float(n) * float(d)
        assert float(on_host) == pytest.approx(1e3 * size / host, rel=0.25)
        assert float(on_device) == pytest.approx(1e3 * (calls * each + 2 * size / device), rel=0.25)
    assert 80 * each / 2.6e-9 == pytest.approx(1.5e5, rel=0.05)  # where the two noises meet


def test_the_calls_and_the_threshold_are_those_of_the_code():
    assert PAGE.count(f"{mechanisms.DRAWN_ON_DEVICE:,}") == 4
    xp, random = Double(), np.random.default_rng(0)
    X, y = random.standard_normal((50, 784)), random.integers(0, 10, 50)
    erm = ERM(xp.asarray(X), np.where(y > 4, 1.0, -1.0), losses.Logistic())
    mlp = MLP(xp.asarray(X.astype(np.float32)), y, (128,), 10)
    assert mlp.d == 101_770 and "101,770" in PAGE

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
    assert gradient(mlp, np.arange(20), Flat(1.0)) == pytest.approx(143, abs=6)
    for law in _philox.LAWS.values():
        seeds = np.ones((1, _philox.SEED_WORDS), dtype=np.int64)
        assert calls(law, xp, seeds, 101, None) == pytest.approx(80, abs=4)
