"""The benchmark of the verifier's power: its oracle, its summary and its page of results."""

import importlib
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtri

from benchmarks import audit, measure, table
from benchmarks.__main__ import machine, main
from benchmarks.mechanisms import CLAIM, Broken, broken
from benchmarks.peers import verifier_forms
from benchmarks.table import Row
from dpanalysis.audit.counting import Counts, log_p_value
from dpanalysis.audit.events import ApproximateLimit

RESULTS = Path(__file__).parents[2] / "benchmarks" / "RESULTS.md"
TITLE = (audit.__doc__ or "").splitlines()[0].rstrip(".")


def rows_of(page, title):
    """Read the rows of a section of a page."""
    text = page.split(f"## {title}\n")[1].split("\n## ")[0]
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) != 8 or cells[0] in ("work", "---"):
            continue
        (ours, unit), other = (*cells[1].split(), "")[:2], cells[3].split()
        key, _, case = cells[0].partition(": ")
        values = [(float(x.replace(",", "")),) for x in (ours, *other[:1])]
        yield Row(key, case, values[0], unit, cells[2], *values[1:])


@pytest.mark.slow
@pytest.mark.parametrize("confidence", [0.9, 1 - 1e-9])
@pytest.mark.parametrize("name", ["Laplace", "Gaussian, delta = 0.01", "sparse vector of 10"])
def test_the_oracle_refutes_in_nine_of_ten_draws(name, confidence):
    """Of 600 draws of its counts 482 to 583 refute, but with probability 1e-7."""
    case = next(case for case in broken() if case.name == name)
    n, miss = audit.oracle_samples(case, 1.0 - confidence), 1.0 - confidence
    slope = 0.5 * (np.exp(CLAIM) + (case.p - case.delta) / case.q)
    random = np.random.default_rng(0)
    limit = ApproximateLimit(case.delta)
    draws = np.stack([random.binomial(n, case.p, 600), random.binomial(n, case.q, 600)])
    refuted = sum(
        often
        for (x, y), often in zip(*np.unique(draws.T, axis=0, return_counts=True))
        if log_p_value(Counts(int(x), int(y), n, slope), limit, CLAIM, miss)[0] <= np.log(miss)
    )
    low, high = stats.binom.ppf([5e-8, 1.0 - 5e-8], 600, [0.88, 0.92])
    assert low <= refuted <= high


def test_the_interval_is_that_of_clopper_and_pearson():
    for count, of in ((0, 10), (3, 10), (36, 40), (10, 10)):
        exact = stats.binomtest(count, of).proportion_ci(0.95, "exact")
        np.testing.assert_allclose(audit.interval(count, of), exact, atol=1e-12)


@pytest.fixture
def threshold_verifier(monkeypatch):
    """A verifier that refutes from 1,000 samples on, and the sample sizes of its calls."""
    asked = []

    def verify(mechanism, dataset, neighbour, claim, *, samples, **options):
        asked.append(samples)
        return SimpleNamespace(refuted=samples >= 1_000)

    monkeypatch.setattr(audit, "verify_privacy", verify)
    monkeypatch.setattr(audit, "oracle_samples", lambda case, miss: 400)
    return asked


def test_a_multiple_is_given_up_once_it_cannot_reach_the_power(threshold_verifier):
    case = Broken("a case", lambda bit, rng, size: None, 0.0, 0.5, 0.1, simple=True)
    (found,) = audit.power_of(case, 0.9, 20, 0)
    assert found.key == "runs for power 0.9 at confidence 0.9, of numbers"
    assert (found.ours, found.other, found.ratio) == ((1_000.0,), (400.0,), 2.5)
    assert found.case == "a case, 20 of 20 seeds (0.83 to 1.00)"
    assert [threshold_verifier.count(n) for n in (500, 600, 800, 1_000)] == [3, 3, 3, 20]
    assert audit.power(case, 1_000, 0.9, 20) == 20 and audit.power(case, 999, 0.9, 20) == 0


@pytest.mark.parametrize("case", list(broken()), ids=lambda case: case.name)
def test_scores_are_higher_with_the_canary(case):
    """By the means of 20,000 scores each, ten standard deviations apart or more."""
    random = np.random.default_rng(0)
    without, held = (case.score(bit, random, 20_000) for bit in (0, 1))
    assert without.shape == held.shape == (20_000,)
    spread = np.sqrt((without.var() + held.var()) / 20_000)
    assert held.mean() - without.mean() > 10.0 * spread


def test_the_price_of_not_knowing_the_event_is_below_that_of_asking_for_each():
    """One event costs nothing; tests of ten events, each at a tenth of the level, are valid."""
    assert audit.price(1, 0.1, 10_000) == pytest.approx(1.0, abs=0.05)
    for events, least in ((2, 1.2), (10, 1.8)):
        each = (ndtri(1.0 - 0.1 / events) + ndtri(0.9)) / (2.0 * ndtri(0.9))
        assert least < audit.price(events, 0.1, 10_000) < each**2


def test_an_auditor_of_scores_stands_beside_ours(threshold_verifier, monkeypatch):
    """It gets the scores of as many runs as ours needed, and the requested number of seeds."""
    asked = []

    def auditor(scores, epsilon, delta, samples, miss, rng):
        asked.append((samples, round(miss, 9), scores(1, rng, 3).tolist()))
        return len(asked) % 2 == 0

    monkeypatch.setattr(audit, "AUDITORS", {"an auditor": auditor, "another": None})
    monkeypatch.setattr(audit, "RIVALS", {})
    monkeypatch.setattr(audit, "installed", lambda name: name == "an auditor")

    def mechanism(bit, rng, size):
        return np.full((size, 2), bit)

    case = Broken("a case", mechanism, 0.0, 0.5, 0.1, canary=np.array([2.0, 1.0]))
    _, found = audit.power_of(case, 0.9, 20, 6)
    assert (found.peer, found.other) == ("an auditor", (0.5,))
    assert asked == [(1_000, 0.1, [3.0] * 3)] * 6
    rows = list(audit.alarms("A", mechanism, 1.0, 0.0, case.canary, 0.9, 4))
    assert [(row.peer, row.ours, row.other) for row in rows] == [
        ("", (100.0,), ()),
        ("an auditor", (100.0,), (50.0,)),
    ]
    assert audit.summary(rows).endswith("in at most 4 of 4 audits at confidence 0.9.")
    assert len(list(audit.alarms("A", mechanism, 1.0, 0.0, 1.0, 0.5, 4))) == 1  # another level


def test_jax_privacy_refutes_what_is_broken_and_not_what_is_right():
    pytest.importorskip(
        "jax_privacy", reason="jax-privacy is not installed: pip install jax-privacy"
    )
    for scale, refuted in ((0.5, True), (1.0, False)):

        def laplace(bit, rng, size, scale=scale):
            return bit + rng.laplace(0.0, scale, size)

        seeds = map(np.random.default_rng, range(5))
        found = {verifier_forms.jax_privacy(laplace, 1.0, 0.0, 20_000, 1e-6, rng) for rng in seeds}
        assert found == {refuted}


def test_a_ratio_that_would_divide_by_nothing_is_not_shown():
    row = Row("false alarms", "a case", (0.0,), "%", "a peer", (0.5,))
    assert row.ratio is None and row.value == 0.0 and row.best_and_worst == (0.0, 0.0)
    assert "| 0 % | a peer | 0.5 % |  |" in row.as_markdown()


def test_a_power_that_is_never_reached_is_an_error(threshold_verifier, monkeypatch):
    case = Broken("a case", lambda bit, rng, size: None, 0.0, 0.5, 0.1)
    monkeypatch.setattr(audit, "MULTIPLES", (1.0, 2.0))
    with pytest.raises(RuntimeError, match=r"a case: power 0\.9 is not reached at 2\.0 x"):
        list(audit.power_of(case, 0.9, 20, 0))


def runs(confidence, kind, ratio):
    key = f"runs for power 0.9 at confidence {confidence}, {kind}"
    return Row(key, "a case", (100.0 * ratio,), "runs", "oracle", (100.0,))


def test_the_summary_states_the_worst_of_the_table():
    rows = [
        runs("0.9", "of numbers", 2.0),
        runs("0.9", "of numbers", 1.5),
        runs("0.9", "of selections and vectors", 4.0),
        Row("false alarms at confidence 0.9", "A, one, 3 of 2,000 seeds (0% to 1%)", (0.15,), "%"),
        Row("false alarms at confidence 0.9", "B, 12 of 2,000 seeds (0% to 1%)", (0.6,), "%"),
    ]
    assert audit.summary(rows) == (
        "At confidence 0.9 nine of ten audits refute a broken mechanism with at most 2 times "
        "(releases of numbers) or 4 times (releases of selections and vectors) the runs of an "
        "oracle that knows the best event. A mechanism that keeps its claim was refuted in at most "
        "12 of 2,000 audits at confidence 0.9."
    )
    assert audit.summary([]) == ""


def test_the_sentences_of_the_stored_page_are_those_of_its_table():
    page = RESULTS.read_text()
    rows = list(rows_of(page, TITLE))
    assert len(rows) > 12 and f"\n\n{audit.summary(rows)}\n" in page


def a_page():
    sections = {"Sums": [runs("0.9", "of numbers", 9.0)], "Other": [Row("work", "case", (1.0,))]}
    return table.page({}, sections, [], ["images/a.png"])


def test_a_section_is_exchanged_and_the_rest_of_the_page_follows():
    page = a_page()
    assert "0 x goal reached, 0 x floor reached, 1 x NOT reached" in page
    rows = [runs("0.9", "of numbers", 1.0), Row("false alarms at confidence 0.5", "", (1.0,), "%")]
    new = table.replaced(page, "Sums", table.section("Sums", rows, "In words.", "Own."), rows)
    assert "2 x goal reached, 0 x floor reached, 0 x NOT reached" in new
    assert "## Sums\n\nOwn.\n\n| work |" in new and "|\n\nIn words.\n\n## Other\n" in new
    assert new.count("## ") == 2 and "900 runs" not in new
    missing = "false alarms at confidence 0.5/"
    assert missing in page and missing not in new and "\n\n![images/a.png]" in new
    added = table.replaced(page, "New", table.section("New", rows), rows)
    assert re.search(r"## Other\n.*## New\n.*!\[images", added, re.S) and "900 runs" in added
    with pytest.raises(ValueError, match="no page of results"):
        table.replaced("# Title\n", "New", "## New", [])


def test_the_command_exchanges_its_section(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(measure, "skipped", {})
    module = importlib.import_module("benchmarks.audit")
    monkeypatch.setattr(module, "run", lambda quick: [runs("0.9", "of numbers", 2.0)])
    path = tmp_path / "page.md"
    path.write_text(a_page())
    assert main(["audit", "--quick", "--into", str(path)]) == 0
    page = path.read_text()
    assert "900 runs" in page and "200 runs" in page and "Of a run of its own: " in page
    assert f", on {machine()['Processor']}; Python" in page.split(f"## {TITLE}")[1]
    assert "at most 2 times (releases of numbers)" in page.split(f"## {TITLE}")[1]
