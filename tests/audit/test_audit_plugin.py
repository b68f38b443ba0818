"""The fixture ``assert_private``, in this project and in another one."""

import html
import importlib.metadata
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpanalysis import Budget, audit
from dpanalysis.audit import assertions, strategies
from dpanalysis.audit.outcomes import draw_pairs, pairs_of
from tests.broken_mechanisms import MUTANTS

pytest_plugins = ["pytester"]

ONE, OTHER = (np.array([[x], [0.0]]) for x in (1.0, -1.0))
LABELS = np.ones(2)
PAIR = (ONE, LABELS), (OTHER, LABELS)


def noisy_sum(dataset, rng, size):
    """Rows in [-1, 1]: the sensitivity is 2 for a row replaced and 1 for a row removed."""
    return dataset[0].sum() + rng.laplace(0.0, 2.0, size)


def test_it_is_an_entry_point():
    found = importlib.metadata.entry_points(group="pytest11", name="dpanalysis")
    assert {entry.value for entry in found} == {"dpanalysis.audit.pytest_plugin"}


def test_pytest_starts_without_numpy_and_hypothesis():
    code = (
        "import sys, dpanalysis.audit.pytest_plugin; "
        "print(sorted({'numpy', 'scipy', 'hypothesis', 'numba'} & set(sys.modules)))"
    )
    command = [sys.executable, "-W", "error", "-c", code]
    out = subprocess.run(command, capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


OUTSIDE = """
    import numpy as np
    from hypothesis import given, settings
    from dpanalysis.audit.strategies import neighbouring_datasets

    def noisy_sum(dataset, rng, size):
        X, y = dataset
        return X.sum() + rng.laplace(0.0, 2.0, size)

    def test_right(assert_private):
        assert_private(noisy_sum, 1.0, neighbours=neighbouring_datasets(d=1))

    def test_wrong(assert_private):
        assert_private(noisy_sum, 0.5, neighbours=neighbouring_datasets(d=1))

    @settings(max_examples=3, deadline=None)
    @given(pair=neighbouring_datasets(d=1))
    def test_every_pair(assert_private, pair):
        dataset, neighbour = pair
        assert_private(noisy_sum, 1.0, dataset=dataset, neighbour=neighbour, samples=20_000)
"""


@pytest.mark.slow
def test_the_tests_of_another_project(pytester):
    pytester.makepyfile(OUTSIDE)
    result = pytester.runpytest_subprocess("-W", "error", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        [
            "*def test_wrong(assert_private):*",
            "*AssertionError: refuted: epsilon >= 0.9* where 0.5 is claimed*The event 'output*",
            "*Pair 1 of 10, drawn from dataset_pairs(relation='replace_one'*",
            "*dataset = (array(*",
            "*neighbour = (array(*",
            "FAILED *::test_wrong*",
        ]
    )
    # The traceback ends in the test, not inside the package.
    assert "assertions.py" not in result.stdout.str().replace("assertions.py:AssertionError", "")
    help_text = pytester.runpytest_inprocess("--fixtures", "-p", "no:cacheprovider")
    help_text.stdout.fnmatch_lines(
        ["assert_private*", "*Fail if a mechanism is less private than claimed*"]
    )


def test_the_fixture_is_the_function(assert_private):
    assert assert_private is assertions.assert_private


@pytest.mark.parametrize("mutant", MUTANTS[:3], ids=lambda mutant: mutant.name)
def test_broken_mechanisms_fail_and_correct_ones_pass(assert_private, mutant):
    data = {"dataset": mutant.dataset, "neighbour": mutant.neighbour}
    claim = Budget(mutant.claim, mutant.delta, mutant.relation)
    with pytest.raises(AssertionError, match="Pair 1 of 1, as given"):
        assert_private(mutant.broken, claim, **data)
    (verdict,) = assert_private(mutant.correct, claim, **data)
    assert not verdict.refuted and verdict.delta == mutant.delta


@pytest.mark.slow
def test_the_default_pairs(assert_private):
    """Both relations are searched, and the worst pair decides."""
    assert len(assert_private(noisy_sum_of_first, 1.0, pairs=4)) == 4
    removal = Budget(0.5, relation="add_or_remove_one")
    assert_private(noisy_sum_of_first, removal, pairs=4)
    assert_private(noisy_sum_of_first, 0.5, relation="add_or_remove_one", pairs=4)
    with pytest.raises(AssertionError, match=r"drawn from neighbouring_datasets\('replace_one'\)"):
        assert_private(noisy_sum_of_first, 0.5, pairs=4)


def test_a_mechanism_of_other_data_is_told_what_was_drawn():
    """The data sets are then pairs (X, y), which a mechanism of arrays cannot take."""
    with pytest.raises(ValueError, match=r"has no attribute 'mean'.* data sets are pairs \(X, y\)"):
        audit.assert_private(lambda data, rng, size: data.mean(), 1.0, pairs=1, samples=1000)


def noisy_sum_of_first(dataset, rng, size):
    """One coordinate: its L1 sensitivity is that of the row's L2 ball."""
    return dataset[0][:, 0].sum() + rng.laplace(0.0, 2.0, size)


@pytest.mark.slow
def test_false_alarms_are_bounded_for_the_call_as_a_whole(assert_private):
    verdicts = assert_private(noisy_sum, 1.0, neighbours=[PAIR] * 4, confidence=0.99)
    assert [v.confidence for v in verdicts] == pytest.approx([1 - 0.01 / 4] * 4)
    # Each pair has separate runs, and an integer seed repeats them.
    assert len({v.epsilon for v in verdicts}) == 4
    again = assert_private(noisy_sum, 1.0, neighbours=[PAIR] * 4, confidence=0.99)
    assert [v.epsilon for v in again] == [v.epsilon for v in verdicts]
    other = assert_private(noisy_sum, 1.0, neighbours=[PAIR] * 4, confidence=0.99, rng=1)
    assert [v.epsilon for v in other] != [v.epsilon for v in verdicts]


def test_a_strategy_yields_the_same_pairs_in_every_run():
    strategy = strategies.neighbouring_datasets(n=(1, 4), d=(1, 2))
    first, second = (draw_pairs(strategy, 6) for _ in range(2))
    assert len(first) == 6 and repr(first) == repr(second)
    assert len({repr(pair) for pair in first}) == 6


@pytest.mark.slow
@settings(max_examples=5)
@given(pair=strategies.neighbouring_datasets(d=1))
def test_it_works_inside_hypothesis(assert_private, pair):
    dataset, neighbour = pair
    assert_private(noisy_sum, 1.0, dataset=dataset, neighbour=neighbour, samples=10_000)


def test_an_iterator_and_single_runs(assert_private):
    def one_run(dataset, rng):
        return float(dataset[0].sum() + rng.laplace(0.0, 2.0))

    assert_private(one_run, 1.0, neighbours=iter([PAIR]), vectorized=False, samples=2_000)
    with pytest.raises(AssertionError, match="refuted"):
        assert_private(one_run, 0.1, neighbours=iter([PAIR]), vectorized=False, samples=2_000)


def test_long_data_are_cut_in_the_message(assert_private):
    rows = np.arange(900.0).reshape(-1, 1)
    other = rows.copy()
    other[0] = 5.0
    pair = (rows, np.ones(900)), (other, np.ones(900))
    with pytest.raises(AssertionError, match=r"\.\.\. \([\d,]+ characters\)") as failure:
        assert_private(noisy_sum, 1.0, neighbours=[pair])
    assert len(str(failure.value)) < 6000


def test_zcdp_claims_need_a_delta(assert_private):
    def gaussian(dataset, rng, size):
        return dataset[0].sum() + rng.normal(0.0, 2.0, size)

    claim = Budget.zcdp(0.5)  # sensitivity 2, std 2
    assert_private(gaussian, claim, neighbours=[PAIR], delta=1e-3)
    with pytest.raises(AssertionError):
        assert_private(gaussian, Budget.zcdp(0.05), neighbours=[PAIR], delta=1e-3)
    with pytest.raises(ValueError, match="delta"):
        assert_private(gaussian, claim, neighbours=[PAIR])


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"neighbours": []}, ValueError, "at least one"),
        ({"neighbours": [1, 2]}, TypeError, r"pairs \(dataset, neighbour\), number 0 is 1"),
        ({"neighbours": st.integers()}, TypeError, "number 0 is 0"),
        ({"neighbours": (np.zeros((2, 1)), np.ones((2, 1)))}, TypeError, "number 0 is array"),
        ({"neighbours": 3}, TypeError, "neighbours must be pairs"),
        ({"dataset": ONE}, ValueError, "together"),
        ({"neighbours": [PAIR], "dataset": ONE, "neighbour": OTHER}, ValueError, "either"),
        ({"pairs": 0}, ValueError, "pairs must be at least 1"),
        ({"relation": "swap"}, ValueError, "relation"),
        ({"neighbours": [PAIR], "confidence": 1.0}, ValueError, "confidence"),
        ({"neighbours": [PAIR], "confidence": math.nan}, ValueError, "confidence"),
        ({"neighbours": [PAIR], "time_limit": -1.0}, ValueError, "time_limit"),
        ({"neighbours": [PAIR], "samples": "1", "time_limit": 9.0}, TypeError, "samples must be"),
        ({"neighbours": [PAIR], "samples": 1}, ValueError, r"at least \d+ are needed$"),
        ({"pairs": 1, "samples": 1}, ValueError, "needed; no neighbours were given"),
    ],
)
def test_arguments(assert_private, arguments, error, message):
    with pytest.raises(error, match=message):
        assert_private(noisy_sum, 1.0, **arguments)


# The recording, and untested mechanisms


def last_line(failure):
    return str(failure.value).splitlines()[-1]


@pytest.mark.slow
def test_the_last_line_says_whether_recording_or_outputs_found_it(assert_private):
    with pytest.raises(AssertionError, match="refuted: epsilon >= ") as both:
        assert_private(noisy_sum, 0.5, neighbours=[PAIR])
    line = last_line(both)
    assert line.startswith("found by the recording and by the outputs: test_audit_plugin.py:")
    assert "epsilon >= 1 where 0.5 is claimed: shift/scale adds up to 1" in line

    def slightly_too_little(dataset, rng, size):
        return dataset[0].sum() + rng.laplace(0.0, 1.99, size)

    with pytest.raises(AssertionError, match=r"by the recording; by outputs not ref") as one:
        assert_private(slightly_too_little, 1.0, neighbours=[PAIR], samples=10_000)
    assert last_line(one).startswith("found by the recording alone, not by the outputs: test_audit")
    assert "epsilon >= 1.005 where 1 is claimed" in last_line(one)
    assert_private(slightly_too_little, 1.0, neighbours=[PAIR], samples=10_000, recording=False)
    assert_private(slightly_too_little, 1.0, neighbours=[PAIR], samples=10_000, seconds=0.0)

    def threshold(dataset, rng, size):
        return dataset[0].sum() + rng.laplace(0.0, 0.5, size) > 0.0

    with pytest.raises(AssertionError, match="refuted: epsilon >= ") as outputs:
        assert_private(threshold, 1.0, neighbours=[PAIR])
    assert last_line(outputs).startswith("found by the outputs alone, not by the recording: eps")


@pytest.fixture
def clock(monkeypatch):
    """A clock that advances only where a mechanism runs or an event is learned."""
    now = [0.0]
    monkeypatch.setattr(assertions.time, "monotonic", lambda: now[0])
    return now


@pytest.mark.parametrize(
    ("limit", "learning", "vectorized", "pairs", "runs"),
    [
        *((1e9, 0.0, True, 3, 5000), (40.0, 0.0, True, 3, 4400), (9.0, 0.0, True, 3, 550)),
        *((40.0, 0.0, False, 3, 4400), (40.0, 2e-3, True, 3, 2000), (40.0, 2e-2, True, 3, 300)),
        (0.01, 0.0, True, 0, 0),
    ],
)
def test_a_time_limit_is_kept(
    monkeypatch, assert_private, clock, limit, learning, vectorized, pairs, runs
):
    """A run takes a millisecond on each side, and ``learning`` seconds to learn from."""

    def slow(dataset, rng, size=1):
        clock[0] += 1e-3 * size
        answer = noisy_sum(dataset, rng, size)
        return answer if vectorized else answer[0]

    def verify(*arguments, samples, **options):
        clock[0] += learning * samples
        return audit.verify_privacy(*arguments, samples=samples, **options)

    def go():
        return assert_private(
            slow, 1.0, neighbours=[PAIR] * 3, samples=5000, confidence=0.9, vectorized=vectorized,
            recording=False, time_limit=limit,
        )  # fmt: skip

    monkeypatch.setattr(assertions, "verify_privacy", verify)
    if not pairs:
        with pytest.raises(AssertionError, match=r"time_limit=0\.01 leaves no time for the \d+ "):
            go()
        return
    verdicts = go()
    assert len(verdicts) == pairs and clock[0] <= 1.01 * limit
    assert runs <= verdicts[0].samples <= min(5000, limit / 3 / (2e-3 + learning) + 1)


def test_without_time_to_try_half_of_it_is_used(assert_private, clock):
    """The limit is the time of 400 runs on each side, and the claim needs 59."""

    def slow(dataset, rng, size, scale):
        clock[0] += 5e-3 * size
        return dataset[0].sum() + rng.laplace(0.0, scale, size)

    options = {"neighbours": [PAIR], "recording": False, "time_limit": 4.0}
    (verdict,) = assert_private(lambda *a: slow(*a, 2.0), 1.0, **options)
    assert 190 <= verdict.samples <= 200 and clock[0] <= 4.0
    assert f"There was time for {verdict.samples:,} of 100,000 runs." in str(verdict)
    clock[0] = 0.0
    with pytest.raises(AssertionError, match=r"There was time for 1\d\d of 100,000 runs"):
        assert_private(lambda *a: slow(*a, 0.25), 1.0, **options)


def test_the_recordings_of_all_pairs_share_their_time(monkeypatch, assert_private, clock):
    given = []

    def record(*arguments, seconds, **options):
        given.append(seconds)
        clock[0] += 2.0
        return audit.record(*arguments, seconds=seconds, **options)

    monkeypatch.setattr(assertions, "record", record)
    assert_private(noisy_sum, 1.0, neighbours=[PAIR] * 4, samples=1000, seconds=5.0)
    assert given == [5.0, 3.0, 1.0]  # and none for the last


def test_what_a_recording_finds_counts_without_time_for_outputs(assert_private, clock):
    def slow(dataset, rng, size):
        clock[0] += 5e-2 * size
        return dataset[0].sum() + rng.laplace(0.0, 1.0, size)

    near = (PAIR[0], (np.zeros((2, 1)), LABELS))
    for pairs in ([PAIR], [near, PAIR]):  # in the last pair alone, too
        clock[0] = 0.0
        with pytest.raises(AssertionError, match="recording; outputs were not judged") as found:
            assert_private(slow, 1.0, neighbours=pairs, samples=5000, time_limit=2.0)
        assert "found by the recording alone" in last_line(found)


def never_looks(dataset, rng, size):
    return rng.laplace(0.0, 2.0, size)


@pytest.mark.slow
def test_a_mechanism_that_ignores_the_changed_record_is_untested(assert_private):
    verdict = audit.verify_privacy(never_looks, *PAIR, 1.0, samples=2_000, rng=0)
    assert verdict.untested and not verdict.refuted
    assert str(verdict).startswith("untested: the mechanism never looked at the changed record.")
    looks = audit.verify_privacy(noisy_sum, *PAIR, 1.0, samples=2_000, rng=0)
    assert not looks.untested and str(looks).startswith("not refuted")
    with pytest.raises(AssertionError) as failure:
        assert_private(never_looks, 1.0, neighbours=[PAIR], samples=2_000)
    assert str(failure.value).startswith("untested: ")
    assert last_line(failure).endswith("the mechanism never looked at the changed record")
    # One pair that tests it is enough.
    ((X, _), _) = PAIR
    labels = (X, np.array([1.0, -1.0])), (X, np.ones(2))
    assert_private(noisy_sum, 1.0, neighbours=[labels, PAIR], samples=2_000)
    with pytest.raises(AssertionError, match="untested"):
        assert_private(noisy_sum, 1.0, neighbours=[labels], samples=2_000)


def three_rows(dataset, rng, size):
    return np.zeros(3)


WRONG = {
    "claim": lambda: audit.verify_privacy(noisy_sum, *PAIR, -1.0),
    "pair": lambda: audit.verify_privacy(noisy_sum, *PAIR, (1.0, 1e-6, 0.0)),
    "delta of a pair": lambda: audit.verify_privacy(noisy_sum, *PAIR, (1.0, 2.0)),
    "budget": lambda: audit.verify_privacy(noisy_sum, *PAIR, Budget(1.0, 1e-6), delta=1e-3),
    "equal": lambda: audit.verify_privacy(noisy_sum, PAIR[0], PAIR[0], 1.0),
    "no mechanism": lambda: audit.verify_privacy(3, *PAIR, 1.0),
    "rows": lambda: audit.verify_privacy(three_rows, *PAIR, 1.0),
    "few samples": lambda: audit.verify_privacy(noisy_sum, *PAIR, 1.0, samples=2),
    "rng": lambda: audit.verify_privacy(noisy_sum, *PAIR, 1.0, rng="mine"),
    "truth": lambda: bool(audit.verify_privacy(noisy_sum, *PAIR, 1.0, samples=2_000, rng=0)),
    "gaussian": lambda: audit.verify_gaussian(noisy_sum, *PAIR, -1.0),
    "canaries": lambda: audit.verify_with_canaries(noisy_sum, 0, 1.0),
    "recording": lambda: audit.record(noisy_sum, *PAIR, claim=-1.0),
    "refuted": lambda: audit.assert_private(noisy_sum, 0.5, neighbours=[PAIR], samples=20_000),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_traceback_of_pytest_ends_at_the_line_of_the_caller(name):
    with pytest.raises((ValueError, TypeError, AssertionError)) as caught:
        WRONG[name]()
    shown = [str(entry.path) for entry in caught.traceback.filter(caught)]
    assert shown and set(shown) == {__file__}


def test_notebooks_show_a_verdict_as_a_table():
    noise = lambda count, rng, size: count + rng.laplace(0.0, 1.0, size)  # noqa: E731
    blind = lambda count, rng, size: rng.laplace(0.0, 1.0, size)  # noqa: E731
    for mechanism, claim, word in (
        (noise, 0.1, "refuted"),
        (noise, 1.0, "not refuted"),
        (blind, 1.0, "untested"),
    ):
        verdict = audit.verify_privacy(mechanism, 0, 1, claim, samples=20_000, rng=0)
        shown = verdict._repr_html_()
        assert f"<tr><th>verdict</th><td>{word}</td></tr>" in shown
        assert f"epsilon = {claim:g} at delta = 0" in shown and html.escape(str(verdict)) in shown
        assert f"epsilon &gt;= {verdict.bound:.4g}" in shown


def test_rare_differences_are_no_reason_to_call_it_untested():
    """They occur in 20,000 runs, hardly in 16; nor is a generator of its own a reason."""

    def rarely(dataset, rng, size):
        return dataset[0].sum() + rng.laplace(0.0, 1000.0, size) > 0.0

    def others(dataset, rng, size):
        return np.random.default_rng().laplace(size=size)

    for mechanism in (rarely, others):
        verdict = audit.verify_privacy(mechanism, *PAIR, 1.0, samples=2_000, rng=0)
        assert not verdict.untested


def test_untested_in_single_runs_and_with_texts():
    def text(dataset, rng):
        return "a" if rng.random() < 0.5 else "b"

    def looks(dataset, rng):
        return "a" if rng.random() < 0.5 + 0.1 * dataset[0].sum() else "b"

    def wide(dataset, rng, size):
        return rng.laplace(size=(size, 1_000))

    options = {"samples": 200, "rng": 0, "vectorized": False}
    assert audit.verify_privacy(text, *PAIR, 1.0, **options).untested
    assert not audit.verify_privacy(looks, *PAIR, 1.0, **options).untested
    assert audit.verify_privacy(wide, *PAIR, 1.0, samples=200, rng=0).untested


OUTSIDE_UNTESTED = """
    import numpy as np
    from hypothesis import given, settings, HealthCheck, strategies as st

    ROWS = [(np.array([[x]]), np.ones(1)) for x in (0.0, 0.5, 1.0)]

    def never_looks(dataset, rng, size):
        return rng.laplace(0.0, 2.0, size)

    def test_untested(assert_private):
        assert_private(never_looks, 1.0, pairs=2, samples=1_000)

    @settings(max_examples=1, deadline=None, suppress_health_check=list(HealthCheck))
    @given(pair=st.sampled_from([tuple(ROWS[:2]), tuple(ROWS[1:])]))
    def test_every_pair(assert_private, pair):
        dataset, neighbour = pair
        assert_private(never_looks, 1.0, dataset=dataset, neighbour=neighbour, samples=1_000)
"""


def test_the_example_is_collected_by_a_project_without_our_marks(pytester):
    example = Path(__file__).parents[1] / "examples" / "test_my_mechanism.py"
    pytester.makepyfile(example.read_text(encoding="utf-8"))
    result = pytester.runpytest_subprocess(
        "--strict-markers", "--collect-only", "-q", "-W", "error", "-p", "no:cacheprovider"
    )
    result.stdout.fnmatch_lines(["3 tests collected*"])


@pytest.mark.slow
def test_untested_tests_of_another_project_fail(pytester):
    """Hypothesis rejects untested pairs, and fails where no other is left."""
    pytester.makepyfile(OUTSIDE_UNTESTED)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*never looked at the changed record*", "*Unsatisfiable*"])
    assert "assertions.py:" not in result.stdout.str().replace("assertions.py:AssertionError", "")


def test_a_pair_of_numbers_is_a_claim(assert_private):
    def gaussian(dataset, rng, size):
        return dataset[0].sum() + rng.normal(0.0, 4.0, size)

    for claim in ((1.0, 1e-2), [1.0, 1e-2], Budget(1.0, 1e-2)):
        (verdict,) = assert_private(gaussian, claim, neighbours=[PAIR], samples=10_000)
        assert (verdict.claim, verdict.delta) == (1.0, 1e-2)
    with pytest.raises(AssertionError, match=r"delta >= .* at epsilon = 1 where 0\.001 is claimed"):
        assert_private(gaussian, (1.0, 1e-3), neighbours=[PAIR], samples=10_000)
    with pytest.raises(ValueError, match=r"claim must be \(epsilon, delta\)"):
        assert_private(gaussian, (1.0, 1e-3, 0.0), neighbours=[PAIR])


def test_one_data_set_of_two_numbers_is_no_pair():
    with pytest.raises(TypeError, match=r"for one pair write \[\(dataset, neighbour\)\]"):
        list(pairs_of(([0.2, 1.0], [0.2, 0.0]), 9))
    assert list(pairs_of([(0.0, 1.0)], 9)) == [(0.0, 1.0)]


def test_noise_of_another_source_does_not_make_a_mechanism_tested(assert_private):
    def never_looks_again(dataset, rng, size):
        return dataset[0][1, 0] + np.random.laplace(0.0, 2.0, size)  # noqa: NPY002

    one, other = (np.array([[x], [0.5]]) for x in (1.0, -1.0))
    pair = (one, LABELS), (other, LABELS)
    with pytest.raises(AssertionError, match=r"^untested: .*never looked at"):
        assert_private(never_looks_again, 1.0, neighbours=[pair], samples=2_000)


@pytest.mark.parametrize("arguments", [{"claim": 40.0}, {"claim": 1.0, "samples": 10}])
def test_what_a_recording_finds_counts_where_no_outputs_could(assert_private, arguments):
    def leaks(dataset, rng, size):
        return np.full(size, dataset[0].max()) + 0.0 * rng.laplace(size=size)

    pair = {"dataset": PAIR[0], "neighbour": (np.zeros((2, 1)), LABELS)}
    with pytest.raises(AssertionError, match=r"recording \[exact\]"):
        assert_private(leaks, **arguments, **pair)


def test_a_recording_for_which_there_is_no_time_is_left_out(assert_private, clock):
    def slow(dataset, rng, size):
        clock[0] += 0.5 * size
        return dataset[0].max() + 0.0 * rng.laplace(size=size)

    with pytest.raises(AssertionError, match="untested: time_limit=2 leaves no time"):
        assert_private(slow, 1.0, neighbours=[PAIR], time_limit=2.0)
    assert clock[0] <= 2.0


def test_a_slow_first_call_leaves_time(assert_private, clock):
    """The first call imports or compiles; later calls are fast."""
    calls = []

    def cold(dataset, rng, size):
        clock[0] += 1e-6 if calls else 1.0
        calls.append(1)
        return dataset[0].sum() + rng.laplace(0.0, 2.0, size)

    (verdict,) = assert_private(cold, 1.0, neighbours=[PAIR], samples=2_000, time_limit=60.0)
    assert verdict.samples == 2_000 and not verdict.notes


def test_a_time_limit_keeps_what_a_recording_finds(assert_private):
    def leaks(dataset, rng, size):
        return np.full(size, dataset[0].max()) + 0.0 * rng.laplace(size=size)

    pair = {"dataset": PAIR[0], "neighbour": (np.zeros((2, 1)), LABELS)}
    with pytest.raises(AssertionError, match=r"recording \[exact\]"):
        assert_private(leaks, 40.0, time_limit=60.0, **pair)
