"""Edge cases of verdicts: mutation, threads, exceptions, inheritance, NaN."""

import dataclasses
import math
import threading

import numpy as np
import pytest

from dpanalysis import audit
from dpanalysis.audit import Claim, Effort, Evidence, NotChecked, laws, printed, used
from dpanalysis.papers import registry
from dpanalysis.papers.claim import Outcome

NAN, INF = math.nan, math.inf


def outcome(*evidence, verdict="holds"):
    return Claim("999-1", "(1)", "printed", "used", verdict, lambda effort: evidence).run()


@pytest.fixture
def empty(monkeypatch):
    """A registry without claims, which a test may fill."""
    monkeypatch.setattr(registry, "_CLAIMS", {})
    return registry._CLAIMS


# --- evidence ---


@pytest.mark.parametrize("about", [printed, used])
@pytest.mark.parametrize("sense", ["<=", ">=", "=="])
@pytest.mark.parametrize(("value", "bound"), [(NAN, 1.0), (1.0, NAN), (NAN, NAN), (NAN, INF)])
def test_a_comparison_with_nan_decides_nothing(about, sense, value, bound):
    """It used to refute the paper: 0/0 in a check is an error of the check."""
    with pytest.raises(ValueError, match="x: value or bound is NaN, which decides nothing"):
        about("x", value, sense, bound, tolerance=1e300)


@pytest.mark.parametrize("tolerance", [NAN, INF, -1e-300])
def test_a_tolerance_is_finite(tolerance):
    with pytest.raises(ValueError, match="tolerance must be at least 0 and finite"):
        printed("x", 2.0, "<=", 1.0, tolerance=tolerance)


def test_what_a_check_yields_is_fixed():
    value = np.array(2.0)
    item = printed("x", value, "<=", 1.0)
    value[...] = 0.0
    assert item.value == 2.0 and not item.holds
    for name in ("value", "bound", "tolerance", "sense", "about"):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(item, name, 0.0)


class Always(Evidence):
    """Evidence that always holds."""

    @property
    def holds(self):
        return True


@pytest.mark.parametrize("item", [Always("printed", "x", 3, "<=", 2), ("printed", "x"), 1, None])
def test_nothing_but_evidence_counts(item):
    found = outcome(item)
    assert found.verdict == "error" and found.failed
    assert "a check must yield printed(...) or used(...), got" in found.error


# --- a check that does not run to its end ---


def test_whatever_a_check_raises_is_an_error():
    """No exception may count as a verdict, of a generator, an exit or a missing check."""

    class Odd(BaseException):
        pass

    for error in (
        ValueError(),
        SystemExit(0),
        GeneratorExit(),
        StopIteration(),
        Odd(),
        MemoryError(),
    ):

        def check(effort, error=error):
            yield printed("x", 1.0, "<=", 2.0)
            raise error

        for verdict in ("holds", "sharpened", "corrected", "refuted"):
            found = Claim("999-1", "(1)", "", "", verdict, check).run()
            assert found.verdict == "error" and found.failed and not found.passed, error


def test_an_interrupt_ends_the_run():
    def check(effort):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Claim("999-1", "(1)", "", "", "holds", check).run()


def test_a_check_that_lacks_something_never_passes_even_if_it_does_not_say_what():
    def check(effort):
        yield printed("x", 1.0, "<=", 2.0)
        raise NotChecked

    found = Claim("999-1", "(1)", "", "", "holds", check).run()
    assert found.verdict == "not checked" and not found.passed and not found.failed
    assert found.missing == "the check needs something that is not installed here"


@pytest.mark.parametrize("nothing", [None, (), [], iter(())])
def test_a_check_that_compares_nothing_is_an_error(nothing):
    found = Claim("999-1", "(1)", "", "", "holds", lambda effort: nothing).run()
    assert found.verdict == "error" and "compares nothing" in found.error


def test_an_empty_error_is_an_error():
    claim = Claim("999-1", "(1)", "", "", "holds", lambda effort: [])
    good = (printed("x", 1.0, "<=", 2.0),)
    assert Outcome(claim, good, 0.0).passed
    assert Outcome(claim, good, 0.0, error="").verdict == "error"
    assert Outcome(claim, good, 0.0, missing="").verdict == "not checked"


# --- claims ---


@pytest.mark.slow
def test_a_claim_is_what_it_was_registered_as():
    claim = registry.load("001")[0]
    for field in dataclasses.fields(claim):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(claim, field.name, "refuted")
    listed = registry.load("001")
    listed.clear()
    assert registry.load("001")[0] is claim
    table = audit.claims(ids=["001-10"]).run(quick=True)
    assert isinstance(Outcome(claim, [*table[0].evidence], 0.0).evidence, tuple)
    with pytest.raises(TypeError):
        table[0] = None


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"id": "1"}, ValueError, "id must be the paper's id, a hyphen and a number"),
        ({"id": "001-"}, ValueError, "id must be"),
        ({"id": "-1"}, ValueError, "id must be"),
        ({"id": "<b>-1"}, ValueError, "id must be"),
        ({"id": "001-²"}, ValueError, "id must be"),
        ({"id": "001-1\n"}, ValueError, "id must be"),
        ({"id": 1}, TypeError, "id must be a string"),
        ({"printed": None}, TypeError, "printed must be a string"),
        ({"verdict": "true"}, ValueError, "verdict must be one of"),
        ({"check": [printed("x", 1, "<=", 2)]}, TypeError, "check must be a function"),
    ],
)
def test_a_claim_is_checked_when_it_is_made(change, error, match):
    good = {"id": "999-1", "source": "", "printed": "", "used": "", "verdict": "holds"}
    with pytest.raises(error, match=match):
        Claim(**{**good, "check": lambda effort: [], **change})


def test_an_id_is_taken_once_whatever_the_order(empty):
    """Two decorators may be made before either registers its check."""
    first = audit.register("900-1", "", "", verdict="holds")
    second = audit.register("900-1", "", "", verdict="refuted")
    claim = first(lambda effort: [])
    with pytest.raises(ValueError, match="id must be new, '900-1' is registered already, in "):
        second(lambda effort: [])
    with pytest.raises(ValueError, match="id must be new"):
        audit.register("900-1", "", "", verdict="holds")
    assert empty == {"900-1": claim}


def test_of_several_threads_one_registers_an_id(empty):
    count, rounds = 8, 50
    for number in range(rounds):
        barrier, done = threading.Barrier(count), []

        def enter(id=f"900-{number}", barrier=barrier, done=done):
            decorator = audit.register(id, "", "", verdict="holds")
            barrier.wait()
            try:
                done.append(decorator(lambda effort: []))
            except ValueError:
                done.append(None)

        threads = [threading.Thread(target=enter) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [claim for claim in done if claim] == [empty[f"900-{number}"]]


@pytest.mark.parametrize("quick", ["no", 1, None])
def test_effort_is_quick_or_not(quick):
    with pytest.raises(TypeError, match="quick must be True or False"):
        Effort(quick)


def test_efforts_have_no_state():
    effort = Effort(quick=True)
    assert effort.random().normal() == effort.random().normal()
    assert effort.random(1).normal() != effort.random().normal()
    with pytest.raises(dataclasses.FrozenInstanceError):
        effort.quick = False


# --- runs ---

SEVERAL = ["000-1", "000-2", "001-10", "001-11", "001-17", "003-9", "004-2"]


def found(ids, **options):
    table = audit.claims(ids=ids).run(quick=True, **options)
    return {each.claim.id: (each.verdict, each.evidence) for each in table}


@pytest.mark.slow
def test_evidence_depends_on_nothing_that_ran_before():
    """Alone, together, in reverse order and in other processes: the same numbers."""
    together = found(SEVERAL)
    np.random.default_rng(0).normal(size=10)
    alone = {}
    for id in reversed(SEVERAL):
        alone |= found([id])
    assert alone == together == found(SEVERAL, jobs=2)
    assert all(verdict not in ("error", "broken") for verdict, _ in together.values())


def test_every_run_computes_anew(empty, monkeypatch):
    """A claim follows a change of its code at once."""
    world = {"value": 3.0}
    audit.register("900-1", "(1)", "x <= 2", verdict="holds")(
        lambda effort: [printed("x", world["value"], "<=", 2.0)]
    )
    claim = empty["900-1"]
    assert claim.run().failed
    world["value"] = 1.0
    assert claim.run().passed


# --- caches ---


def test_a_density_that_changes_is_looked_at_again():
    """Its integral is cached, and must be computed again after its object has changed."""

    class Gaussian:
        std = 1.0

        def logpdf(self, x):
            return -0.5 * (x / self.std) ** 2 - 0.5 * math.log(2.0 * math.pi)

    law = Gaussian()
    density = audit.Density(law.logpdf, (0.0,))
    assert audit.hockey_stick(density, density, 0.0) == 0.0
    law.std = 0.5
    with pytest.raises(ValueError, match="p must integrate to 1"):
        audit.hockey_stick(density, density, 0.0)


def test_tables_of_batches_cannot_be_changed():
    """They are computed once and shared."""
    for make in (
        lambda: laws.poisson(2, 0.5),
        lambda: laws.without_replacement(3, 2),
    ):
        sampling = make()
        for array in (sampling.first, sampling.second, sampling.neighbours):
            with pytest.raises(ValueError, match="read-only"):
                array[...] = 0
        assert make() is sampling
    own = np.array([0.5, 0.5])
    mine = laws.Subsampling(own, own, np.array([[0, 1]]))
    own[...] = 0.0
    assert mine.first.sum() == 1.0 and own.flags.writeable
