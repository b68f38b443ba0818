"""The generator of broken mechanisms: its events, its decoys, and the share that is refuted."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from benchmarks import audit
from benchmarks.drawn import FAULTS, WIDEST, drawn
from benchmarks.mechanisms import CLAIM
from dpanalysis.audit.outcomes import as_batch
from figures import _speed


@pytest.mark.parametrize("fault", FAULTS)
def test_the_best_event_is_as_probable_as_the_oracle_believes(fault):
    """Each of 32 counts misses its interval with probability 1e-7."""
    for seed in range(8):
        case = drawn(fault, seed)
        core, broken = case.core, case.broken
        assert core.p > math.exp(CLAIM) * core.q + core.delta and broken.delta == core.delta
        events = [core.event(core.sample(b, np.random.default_rng(1), 4_000)) for b in (0, 1)]
        counts = sorted(int(event.sum()) for event in events)
        for count, rate in zip(counts, (core.q, core.p)):
            low, high = stats.binom.ppf([5e-8, 1.0 - 5e-8], 4_000, rate)
            assert low <= count <= high, (broken.name, count, rate)


def numbers_of(outputs):
    """Undo the form of outputs: dictionaries and words become numbers."""

    def number(entry):
        return float(entry.removeprefix("w")) if isinstance(entry, str) else float(entry)

    rows = []
    for output in outputs:
        entries = output.values() if isinstance(output, dict) else output
        whole = np.ndim(output) == 0 and not isinstance(output, dict)
        rows.append([number(output)] if whole else [number(entry) for entry in entries])
    return np.array(rows)


@pytest.mark.parametrize("fault", FAULTS)
def test_decoys_and_form_change_nothing(fault):
    forms, widths = set(), set()
    for seed in range(12):
        case = drawn(fault, seed)
        assert case.broken.name == drawn(fault, seed).broken.name
        outputs = case.broken.mechanism(1, np.random.default_rng(2), 40)
        values = numbers_of(as_batch(outputs, 40))
        expected = case.core.sample(1, np.random.default_rng(2), 40)
        np.testing.assert_array_equal(values[:, case.places], expected)
        rest = np.delete(values, case.places, axis=1)
        assert values.shape[1] <= WIDEST and (rest.std(axis=0) > 0.0).all()
        forms.add(case.broken.name.rpartition(", ")[2])
        widths.add(values.shape[1])
    assert len(forms) >= 2 and len(widths) > 4


@pytest.mark.parametrize(("refuting", "share"), [(1_000, 0.0), (10**9, 100.0)])
def test_what_is_missed_is_counted_at_the_stated_runs(monkeypatch, refuting, share):
    asked = []

    def verify(mechanism, dataset, neighbour, claim, *, samples, **options):
        asked.append(samples)
        return SimpleNamespace(refuted=samples >= refuting)

    monkeypatch.setattr(audit, "verify_privacy", verify)
    monkeypatch.setattr(audit, "oracle_samples", lambda case, miss: 400)
    row = audit.missed("few of many keys", 1.0 - 1e-9, 4)
    assert row.ours == (share,) and set(asked) == {1_000} and row.target is not None
    found = f"few of many keys, {round(share / 25)} of 4 (" in row.case
    assert found and row.key.endswith("confidence 1 - 1e-09")
    told = audit.summary([row, audit.missed("several halts", 1.0 - 1e-9, 4)])
    assert told.startswith("Of 8 mechanisms drawn by a generator (few of many keys, several halts;")
    assert f" {100.0 - share:.1f} % are refuted by one audit at 2.5 times the oracle's runs" in told


def line(kind, case, ratio, confidence="1 - 1e-09"):
    key = f"runs for power 0.9 at confidence {confidence}, {kind}"
    return f"| {key}: {case}, 36 of 40 seeds (0 to 1) | 3 runs | oracle | 2 runs | {ratio} | |"


def test_the_page_of_the_project_names_the_cases(monkeypatch, tmp_path):
    path = tmp_path / "page.md"
    monkeypatch.setattr(_speed, "PAGE", path)
    share = (
        "Of 280 mechanisms drawn by a generator (a, b; up to 100) 92.5 % are refuted by one audit"
    )
    lines = [
        line("of numbers", "Laplace", 1.5),
        line("of selections and vectors", "vector of 2, one leaks", 2.5),
        line("of numbers", "geometric", 4.5, "0.9"),
    ]
    lines += ["", "At confidence 1 - 1e-09 nine of ten audits refute, who knows the best event. "]
    listed = (
        "each of 2 mechanisms (Laplace to vector) with 2.5 times the runs that the best event needs"
    )
    for told, end in (("", "."), (share, "; one audit refutes 92.5 % of 280 random ones.")):
        path.write_text("\n".join(lines) + told)
        assert _speed.power() == (
            f"At confidence 1 - 1e-09 nine of ten audits refute {listed}{end}"
        )
