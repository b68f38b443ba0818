"""Checkpoints: no charge is lost, no event is charged twice, and nothing secret is written."""

import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import warnings
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import dpanalysis as dpa
from dpanalysis import methods
from dpanalysis.experiments import checkpoint as files
from dpanalysis.privacy import Filter, events
from dpanalysis.privacy.events import unrolled

REPLACE, ADD = dpa.Budget(1.0, 1e-5), dpa.Budget(1.0, 1e-5, "add_or_remove_one")
ADD3 = dpa.Budget(3.0, 1e-5, "add_or_remove_one")
RULE = dpa.clipping.Flat(1.0)
SEARCH = {"rho": 0.02, "epsilon": 0.2}

RESUMABLE = {
    "gradient descent": (methods.GradientDescent(0.5, 7), dpa.Budget(1.0)),
    "optimal noise": (methods.Nesterov(0.4, 7, 0.1, noise="optimal"), dpa.Budget(1.0)),
    "heavy ball": (methods.HeavyBall(0.4, 0.5, 7, mechanism="gaussian"), REPLACE),
    "stages": (methods.MultistageNesterov(9, 0.1, 0.5), dpa.Budget(1.0)),
    "momentum": (methods.SGD(0.5, 7, dpa.Poisson(0.2), RULE, 0.9, nesterov=True), ADD),
    "mean": (methods.SGD(0.5, 7, dpa.WithoutReplacement(9), RULE, output="average"), REPLACE),
    "drawn": (methods.SGD(0.5, 7, dpa.Poisson(0.2), RULE, output="uniform"), ADD),
    "Adam": (methods.Adam(0.1, 7, dpa.Poisson(0.2), RULE), ADD),
    "PSAC": (methods.SGD(0.5, 7, dpa.Poisson(0.2), dpa.clipping.PerSampleAdaptive(0.1)), ADD),
    "Auto-S": (methods.Adam(0.1, 7, dpa.Poisson(0.2), dpa.clipping.Automatic(0.1)), ADD),
    "epochs": (methods.SGD(0.5, 9, dpa.BallsInBins(3), RULE, 0.5), ADD),
    "permuted epochs": (methods.Adam(0.1, 7, dpa.Shuffle(3), RULE), REPLACE),
    # With little noise the angles matter: they are far from the initial right angle.
    "search": (
        methods.LineSearchSGD(
            dpa.Poisson(0.3),
            rho=2.0,
            epsilon=0.3,
            growth=0.1,
            memory=3,
            max_queries=1,
            angle_max=1.001,
            angle_min=0.999,
            sufficient_decrease=0.9,
            iterations=12,
        ),
        dpa.Budget(60.0, 1e-5, "add_or_remove_one"),
    ),
    "two batches": (
        methods.LineSearchSGD(
            dpa.Poisson(0.3), fresh_batch=True, adapt="always", iterations=6, **SEARCH
        ),
        ADD3,
    ),
    "search on all": (methods.LineSearchGD(memory=2, **SEARCH), dpa.Budget(3.0, 1e-5)),
    "noisy minimum": (
        methods.AdaptiveGD(rho=0.02, selection_rho=0.02, memory=2),
        dpa.Budget(3.0, 1e-5),
    ),
}
PLANNED = [name for name, (method, _) in RESUMABLE.items() if method.together]


class Watched(dpa.ERM):
    """An ERM that calls ``seen`` with the number of each gradient sum: one per opened batch."""

    opened = 0

    def facts(self, relation):
        return super().facts(relation)

    def gradient_sum(self, w, rows=None, clipping=None):
        self.opened += 1
        self.seen(self.opened)
        return super().gradient_sum(w, rows, clipping)

    def seen(self, number):
        pass


def problem(n=60, penalty=0.1, seen=None):
    random = np.random.default_rng(5)
    X = random.uniform(-0.5, 0.5, (n, 3))
    y = np.where(X[:, 0] > 0, 1.0, -1.0)
    bounds = dpa.RowBound(1, 1.5), dpa.RowBound(2, 1.0)
    made = Watched(X, y, dpa.losses.Logistic(), dpa.regularizers.L2(penalty), bounds)
    if seen is not None:
        made.seen = seen
    return made


def single(ledger):
    return [event for one, count in ledger.runs for event in [one] * count]


def run(name, on=None, **options):
    method, budget = RESUMABLE[name]
    options = {"record": (), "budget": budget, "method": method, **options}
    return dpa.minimize(on or problem(), options.pop("method"), options.pop("budget"), **options)


def killed(name, folder, place, rng, where="batch", every=1, how="checkpoint"):
    """Return the file that a killed run leaves, the number of batches it opened, and its steps.

    The file is copied at that instant: nothing that the run does later is in it.
    """
    path, left, steps = folder / "run.npz", folder / "left.npz", []
    opened = []

    def kill():
        shutil.copy(path, left)
        opened.append(watched.opened)
        raise SystemExit

    def seen(number):
        if where == "batch" and number == place:
            kill()

    def callback(number, w):
        steps.append(w.copy())
        if where == "callback" and number == place:
            kill()

    watched = problem(seen=seen)
    try:
        options = {how: path, "checkpoint_every": every}
        run(name, watched, rng=rng, callback=callback, **options)
    except SystemExit:
        return left, opened[0], steps
    return path, watched.opened, steps


places = st.tuples(st.sampled_from(["batch", "callback"]), st.integers(1, 9))
periods = st.sampled_from([1, 1, 2, 3, 20])


@pytest.mark.slow
@settings(max_examples=60)
@given(st.sampled_from(PLANNED), places, st.sampled_from([None, "os"]), periods)
@example("epochs", ("callback", 2), None, 1)
@example("optimal noise", ("batch", 4), None, 3)
def test_planned_events_are_charged_once_whenever_a_run_is_killed(
    tmp_path_factory, name, at, rng, every
):
    """Every event has at most one batch, in one of the two runs."""
    where, place = at
    left, opened, _ = killed(name, tmp_path_factory.mktemp("run"), place, rng, where, every)
    whole = run(name, rng=rng)
    rest = problem()
    again = run(name, rest, rng=rng, resume=left)
    assert again.ledger.events == whole.ledger.events and again.status == "finished"
    assert again.iterations == whole.iterations and again.epsilon() == whole.epsilon()
    assert again.ledger.noise == whole.ledger.noise and again.hardened == whole.hardened
    assert opened + rest.opened <= whole.iterations
    if not name.endswith("epochs"):  # else the rest of an epoch is lost
        assert opened + rest.opened > whole.iterations - every


@pytest.mark.slow
@settings(max_examples=60)
@given(st.sampled_from([*RESUMABLE]), places, st.integers(0, 3), periods)
@example("epochs", ("callback", 2), 0, 1)
@example("search", ("batch", 5), 0, 1)
def test_a_seeded_run_goes_on_bit_for_bit(tmp_path_factory, name, at, seed, every):
    where, place = at
    left, _, _ = killed(name, tmp_path_factory.mktemp("run"), place, seed, where, every)
    whole, again = run(name, rng=seed), run(name, rng=seed, resume=left)
    np.testing.assert_array_equal(again.w, whole.w)
    assert single(again.ledger) == single(whole.ledger)
    assert (again.status, again.iterations) == (whole.status, whole.iterations)
    np.testing.assert_array_equal(again.drawn, whole.drawn)


@pytest.mark.slow
@settings(max_examples=30)
@given(st.sampled_from([*RESUMABLE]), places)
def test_a_step_in_the_file_is_where_the_run_goes_on(tmp_path_factory, name, at):
    """The first record is the last step in the file."""
    where, place = at
    left, _, steps = killed(name, tmp_path_factory.mktemp("run"), place, None, where)
    again = run(name, rng=None, resume=left, record=("iterate",))
    first = int(again.history["iteration"][0])
    assert len(steps) - 1 <= first <= len(steps)
    start = steps[first - 1] if first else np.zeros((1, 3))
    np.testing.assert_array_equal(again.history["iterate"][0], start)


@pytest.mark.slow
@settings(max_examples=30)
@given(st.sampled_from([name for name in RESUMABLE if name not in PLANNED]), places)
def test_a_filter_is_charged_for_both_parts(tmp_path_factory, name, at):
    """Every batch opened in the first part is in the ledger and the filter of the second."""
    where, place = at
    folder = tmp_path_factory.mktemp("run")
    left, opened, _ = killed(name, folder, place, None, where)
    rest = problem()
    again = run(name, rest, rng=None, resume=left)
    bought = [event for event in single(again.ledger) if "Gaussian" in repr(event)]
    assert len(bought) == opened + rest.opened
    cost = sum(again.guard.cost(event) for event in single(again.ledger))
    assert again.guard.spent == pytest.approx(cost) and cost <= again.guard.limit * (1 + 1e-9)
    assert again.epsilon() == pytest.approx(RESUMABLE[name][1].epsilon)


def test_the_second_batch_of_a_step_is_in_the_file_before_it_is_drawn(tmp_path, monkeypatch):
    """A search on a fresh batch is charged after the gradient of its step."""
    path, listed = tmp_path / "run.npz", []
    losses = Watched.line_losses

    def line_losses(*arguments):
        with np.load(path) as stored:
            listed.append(sum(count for _, count in json.loads(stored["events"].tobytes())))
        return losses(*arguments)

    monkeypatch.setattr(Watched, "line_losses", line_losses)
    stop = {"callback": lambda number, w: number == 2}
    bought = single(run("two batches", checkpoint=path, **stop).ledger)
    searches = [k for k, event in enumerate(bought, 1) if "AboveThreshold" in repr(event)]
    assert listed == searches and len(searches) > 1


def test_a_seeded_run_killed_in_the_second_batch_of_a_step_repeats_the_step(tmp_path, monkeypatch):
    path, left, losses = tmp_path / "run", tmp_path / "left", Watched.line_losses
    with monkeypatch.context() as patched:
        patched.setattr(
            Watched, "line_losses", lambda *given: [shutil.copy(path, left), losses(*given)][1]
        )
        whole = run("two batches", rng=0, checkpoint=path)
    np.testing.assert_array_equal(run("two batches", rng=0, resume=left).w, whole.w)


@pytest.mark.slow
@settings(max_examples=30)
@given(
    st.sampled_from(PLANNED),
    st.lists(st.tuples(places, periods), min_size=2, max_size=5),
)
def test_a_run_killed_repeatedly_is_charged_for_nothing_twice(tmp_path_factory, name, kills):
    path, rest = tmp_path_factory.mktemp("run") / "run.npz", problem()
    opened, where = 0, "checkpoint"
    for (at, place), every in kills:
        left, more, _ = killed(name, path.parent, place, None, at, every, where)
        opened, where = opened + more, "resume"
        if left != path:
            shutil.move(left, path)
    again = run(name, rest, rng=None, resume=path)
    whole = run(name, rng=None)
    assert single(again.ledger) == single(whole.ledger) and again.status == "finished"
    assert opened + rest.opened <= again.iterations == whole.iterations


@pytest.mark.parametrize(
    ("name", "every", "stop", "begun"), [("momentum", 5, 2, 0), ("epochs", 1, 5, 5)]
)
def test_a_run_that_stops_after_lost_batches_goes_on_again(tmp_path, name, every, stop, begun):
    left, *_ = killed(name, tmp_path, 2, None, every=every)
    run(name, resume=left, callback=lambda number, w: number == stop)
    again = run(name, resume=left, record=("iterate",))
    assert again.status == "finished" and again.history["iteration"][0] == begun


@pytest.mark.parametrize("rng", [None, 3])
def test_a_file_that_is_resumed_again_goes_on_from_the_run_before(tmp_path, rng):
    """Interrupted in every batch, a run is charged what it costs without interruptions."""
    path, opened = tmp_path / "run.npz", 0

    def interrupt(number):
        if number == 1:
            raise KeyboardInterrupt

    def one_batch(where):
        watched = problem(seen=lambda number: number == 2 and interrupt(1))
        with pytest.warns(RuntimeWarning, match="interrupted"):
            result = run("momentum", watched, rng=rng, **{where: path})
        return result, watched.opened

    result, opened = one_batch("checkpoint")
    events_paid = [len(result.ledger)]
    while result.iterations < 5:
        result, more = one_batch("resume")
        opened += more
        events_paid.append(len(result.ledger))
    assert events_paid == sorted(events_paid)
    last = problem()
    result = run("momentum", last, rng=rng, resume=path)
    whole = run("momentum", rng=rng)
    assert single(result.ledger) == single(whole.ledger) and result.epsilon() == whole.epsilon()
    if rng is None:
        assert opened + last.opened == 7
    else:
        np.testing.assert_array_equal(result.w, whole.w)
    done = problem()  # nothing is left to do or to charge
    finished = run("momentum", done, rng=rng, resume=path)
    np.testing.assert_array_equal(finished.w, result.w)
    assert done.opened <= (rng is not None) and len(finished.ledger) == 7


@pytest.mark.slow
def test_a_process_that_is_killed_has_written_down_what_it_opened(tmp_path):
    path = tmp_path / "run.npz"
    code = f"""
        import os, signal, sys
        sys.path.insert(0, {str(os.path.dirname(__file__))!r})
        import test_checkpoint as here
        kill = lambda number: number == 4 and os.kill(os.getpid(), signal.SIGKILL)
        here.run("momentum", here.problem(seen=kill), rng="os", checkpoint={str(path)!r})
    """
    ended = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=False)
    assert ended.returncode == -signal.SIGKILL
    rest = problem()
    result = run("momentum", rest, rng="os", resume=path)
    assert rest.opened == 3 and result.ledger.events[0].count == 7 and result.hardened
    assert os.stat(path).st_mode & 0o077 == 0


@pytest.mark.skipif(files.fcntl is None, reason="no flock here")
def test_two_runs_do_not_share_a_file(tmp_path):
    path = tmp_path / "run.npz"
    refused = []

    def other(number, w):
        with pytest.raises(RuntimeError, match="belongs to a run in progress"):
            run("Adam", resume=path)
        with pytest.raises(FileExistsError, match="resume="):
            run("Adam", checkpoint=path)
        refused.append(number)

    run("Adam", checkpoint=path, callback=other)
    assert refused == [1, 2, 3, 4, 5, 6, 7]
    with pytest.raises(FileExistsError, match="resume="):
        run("Adam", checkpoint=path)
    assert run("Adam", resume=path, checkpoint=path).status == "finished"


def test_a_file_that_is_linked_to_is_the_one_that_is_written(tmp_path, monkeypatch):
    """A callback that changes the working directory does not move it."""
    link, path = tmp_path / "link.npz", tmp_path / "run.npz"
    monkeypatch.chdir(tmp_path)
    run("momentum", checkpoint="run.npz", callback=lambda number, w: number == 3)
    link.symlink_to(path)
    (tmp_path / "other").mkdir()
    run("momentum", resume="link.npz", callback=lambda *_: os.chdir(tmp_path / "other"))
    done = problem()
    assert len(run("momentum", done, resume=path).ledger) == 7 and not done.opened
    assert link.is_symlink() and not list((tmp_path / "other").iterdir())
    assert run("momentum", done, resume=path, checkpoint=link).iterations == 7


@pytest.mark.skipif(files.fcntl is None, reason="no flock here")
def test_a_file_that_was_replaced_while_it_was_opened_is_not_resumed(tmp_path):
    path, other = tmp_path / "run.npz", tmp_path / "other.npz"
    for each in (path, other):
        each.touch()
    opened = os.open(path, os.O_RDWR)
    os.replace(other, path)
    with pytest.raises(RuntimeError, match="belongs to a run in progress"):
        files._locked(opened, path)
    opened = os.open(path, os.O_RDWR)
    os.remove(path)
    with pytest.raises(FileNotFoundError):  # no other run
        files._locked(opened, path)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(opened)  # closed


def test_systems_without_locks_and_folders_to_synchronize(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "fcntl", None)
    path = tmp_path / "run.npz"
    run("momentum", checkpoint=path, callback=lambda number, w: number == 3)
    assert len(run("momentum", resume=path).ledger) == 7


def test_an_iteration_that_is_lost_does_not_move():
    """Its momentum is reset too: the step was 0."""
    on, (method, budget) = problem(), RESUMABLE["heavy ball"]
    plan = method.prepare(on.facts(budget.relation), budget, "tightest")
    w = np.ones((1, 3))
    start = methods.Step(w, state={"previous": np.zeros((1, 3))})
    lost = list(itertools.islice(method.resume(start, 3, 2, None, plan), 2))
    assert all((each.w == w).all() and (each.state["previous"] == w).all() for each in lost)


@pytest.mark.slow
def test_a_file_has_what_is_released_and_nothing_else(tmp_path):
    for name in RESUMABLE:
        path = tmp_path / f"{name}.npz"
        result = run(name, rng="os", checkpoint=path, callback=lambda number, w: number == 2)
        with np.load(path, allow_pickle=False) as stored:
            assert {each.partition(".")[0] for each in stored.files} <= {
                *("about", "events", "w", "state", "output")
            }
            about = json.loads(stored["about"].tobytes())
            assert [
                files.decoded(each, files._CLASSES)
                for each in json.loads(stored["events"].tobytes())
            ] == [tuple(each) for each in result.ledger.runs]
        assert about["streams"] is None
        assert set(about) == {"format", "settings", "made", "bought", "noise", "streams"}


def test_a_file_does_not_depend_on_records_but_through_answers(tmp_path, monkeypatch):
    """Data sets that give the same answers give the same file, to the byte."""

    def answer(self, w, rows=None, clipping=None):
        return np.ones_like(w)

    def stored(data, name):
        made = Watched(*data, dpa.losses.Logistic(), None, dpa.RowBound(2, 1.0), size=60)
        path = tmp_path / name
        run("momentum", made, rng=4, checkpoint=path)
        with np.load(path) as file:
            about = json.loads(file["about"].tobytes())
            # The secret stream of batches of a seeded run depends on their sizes.
            return {**{each: file[each].tobytes() for each in file.files}, "about": about}

    monkeypatch.setattr(Watched, "gradient_sum", answer)
    one = stored((np.full((60, 3), 0.1), np.ones(60)), "a.npz")
    other = stored((np.full((61, 3), -0.1), -np.ones(61)), "b.npz")
    for each in (one, other):
        assert each["about"].pop("streams")
    assert one == other


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        (
            {"on": problem(n=61), "accountant": "rdp", "replicates": 2, "w0": np.ones(3)},
            r"problem\.facts\.n.*accountant, replicates, w0",
        ),
        *(
            pytest.param(*each, marks=pytest.mark.slow)
            for each in [
                ({"on": problem(n=61)}, r"problem\.facts\.n"),
                (
                    {"on": problem(penalty=0.2)},
                    r"problem\.facts\.mu.*problem\.regularizer\.strength",
                ),
                (
                    {"method": methods.SGD(0.4, 7, dpa.Poisson(0.2), RULE, 0.9, nesterov=True)},
                    "step_size",
                ),
                (
                    {"method": methods.SGD(0.5, 7, dpa.Poisson(0.3), RULE, 0.9, nesterov=True)},
                    "sampling",
                ),
                (
                    {"method": methods.SGD(0.5, 9, dpa.Poisson(0.2), RULE, 0.9, nesterov=True)},
                    "iterations",
                ),
                (
                    {"method": methods.SGD(lambda t: 0.5, 7, dpa.Poisson(0.2), RULE, 0.9)},
                    "nesterov",
                ),
                ({"method": RESUMABLE["Adam"][0]}, "method"),
                ({"budget": dpa.Budget(2.0, 1e-5, "add_or_remove_one")}, r"budget\.epsilon"),
                ({"accountant": "rdp"}, "accountant"),
                ({"replicates": 2}, "replicates"),
                ({"w0": np.ones(3)}, "w0"),
                ({"rng": 0}, "rng"),
                ({"rng": "os"}, "rng"),
            ]
        ),
    ],
)
def test_another_run_is_refused_by_name_before_anything_is_spent(tmp_path, changed, named):
    path = tmp_path / "run.npz"
    run("momentum", rng=None, checkpoint=path, callback=lambda number, w: number == 3)
    before = path.read_bytes()
    on = changed.pop("on", problem())
    with pytest.raises(ValueError, match=f"with another .*{named}"):
        run("momentum", on, resume=path, **changed)
    assert not on.opened and path.read_bytes() == before
    assert run("momentum", resume=path).status == "finished"


def test_charges_in_the_file_must_match_those_of_the_run(tmp_path, monkeypatch):
    """Another version may calibrate other noise: then the rest of the plan may not fit."""
    path = tmp_path / "run.npz"
    run("momentum", checkpoint=path, callback=lambda number, w: number == 3)
    with np.load(path) as stored:
        arrays = {name: stored[name] for name in stored.files}
    text = arrays["events"].tobytes().decode()
    (((event, count),)) = json.loads(text)
    event["events"][0]["std"] *= 0.9
    arrays["events"] = files._bytes(json.dumps([[event, count]]))
    np.savez(path, **arrays)
    on = problem()
    with pytest.raises(ValueError, match="is not what this run would spend"):
        run("momentum", on, resume=path)
    assert not on.opened


def test_a_generator_is_not_begun_again(tmp_path):
    path = tmp_path / "run.npz"
    seeded = np.random.default_rng
    run("momentum", rng=seeded(3), checkpoint=path, callback=lambda number, w: number == 3)
    for rng in (seeded(3), np.random.SeedSequence(3)):
        with pytest.raises(ValueError, match="rng must be None"):
            run("momentum", rng=rng, resume=path)
    again = run("momentum", resume=path)
    assert not np.array_equal(again.w, run("momentum", rng=3).w)


def test_a_seed_goes_on_with_itself_alone(tmp_path):
    path = tmp_path / "run.npz"
    run("momentum", rng=3, checkpoint=path, callback=lambda number, w: number == 3)
    with pytest.raises(ValueError, match="rng must be the seed"):
        run("momentum", rng=4, resume=path)
    with pytest.raises(ValueError, match="another rng"):
        run("momentum", resume=path)
    again = run("momentum", rng=np.int64(3), resume=path)
    np.testing.assert_array_equal(again.w, run("momentum", rng=3).w)


def test_replicates_that_run_together(tmp_path):
    path = tmp_path / "run.npz"
    options = {"rng": 1, "replicates": 3}
    run("drawn", checkpoint=path, callback=lambda number, w: number == 3, **options)
    again, whole = run("drawn", resume=path, **options), run("drawn", **options)
    np.testing.assert_array_equal(again.w, whole.w)
    np.testing.assert_array_equal(again.drawn, whole.drawn)


def test_a_run_that_is_over_has_the_same_output_again(tmp_path):
    path = tmp_path / "run.npz"
    whole = run("drawn", checkpoint=path, replicates=20)
    again = run("drawn", resume=path, replicates=20)
    np.testing.assert_array_equal(again.w, whole.w)
    np.testing.assert_array_equal(again.drawn, whole.drawn)


def test_runs_without_noise_and_without_records(tmp_path):
    """Nothing is charged, but the steps are written."""
    for on, w0 in ((dpa.Quadratic([0.5, 1.0]), [1.0, 2.0]), (problem(), None)):
        path = tmp_path / f"{on.d}.npz"
        options = {"method": methods.HeavyBall(0.5, 0.3, 9), "budget": None, "w0": w0}
        stop = {"callback": lambda number, w: number == 4}
        run("heavy ball", on, rng=None, checkpoint=path, **stop, **options)
        again = run("heavy ball", on, resume=path, record=("iterate",), **options)
        assert again.history["iteration"].tolist() == [4, 5, 6, 7, 8, 9]
        np.testing.assert_array_equal(again.w, run("heavy ball", on, **options).w)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["MLP", "Module"])
def test_networks_go_on(tmp_path, kind):
    X, y = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 2
    if kind == "MLP":
        on = dpa.problems.MLP(X, y, hidden=(4,), n_classes=2)
    else:
        torch = pytest.importorskip("torch")
        network = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
        on = dpa.problems.Module(network, X.astype(np.float32), y)
    path, stop = tmp_path / "run.npz", {"callback": lambda number, w: number == 4}
    run("Adam", on, rng=3, checkpoint=path, **stop)
    again, whole = run("Adam", on, rng=3, resume=path), run("Adam", on, rng=3)
    np.testing.assert_array_equal(again.w, whole.w)


@pytest.mark.parametrize("rng", [3, None])
def test_a_seeded_run_of_a_module_goes_on_with_the_same_kernels_only(tmp_path, rng):
    """Others round otherwise, and the step that is repeated has the same noise."""
    torch = pytest.importorskip("torch")
    X, y = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 2
    on = dpa.problems.Module(torch.nn.Linear(3, 2), X.astype(np.float32), y, chunk=1)
    path, stop = tmp_path / "run", {"callback": lambda number, w: number == 4}
    run("Adam", on, rng=rng, checkpoint=path, **stop)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(threads + 1)
        if rng is None:
            assert run("Adam", on, rng=rng, resume=path, **stop) is not None
        else:
            with pytest.raises(ValueError, match=r"with another .*threads, device or"):
                run("Adam", on, rng=rng, resume=path)
    finally:
        torch.set_num_threads(threads)
    run("Adam", on, rng=rng, resume=path)


@pytest.mark.parametrize("kind", ["own layer", "frozen", "augment", "buffers"])
def test_a_module_that_a_file_cannot_identify_has_no_checkpoint_with_a_seed(tmp_path, kind):
    torch = pytest.importorskip("torch")

    class Double(torch.nn.Module):
        def forward(self, x):
            return 2.0 * x

    layers = [torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2)]
    if kind == "own layer":
        layers.insert(1, Double())
    if kind == "frozen":
        layers[0].requires_grad_(False)
    if kind == "buffers":  # with others, the noise of a step was released twice
        layers.insert(0, torch.nn.BatchNorm1d(3).eval())
    augment = (lambda x, generator: x) if kind == "augment" else None
    X, y = np.ones((40, 3), dtype=np.float32), np.arange(40) % 2
    on = dpa.problems.Module(torch.nn.Sequential(*layers).eval(), X, y, augment=augment)
    with pytest.raises(ValueError, match="rng must be None or 'os' with a checkpoint"):
        run("Adam", on, rng=3, checkpoint=tmp_path / "a")
    assert not (tmp_path / "a").exists()


class Forgets(methods.SGD):
    """Overrides run(), but not resume()."""

    def run(self, w, oracle, plan):
        yield from super().run(w, oracle, plan)


class Silent(methods.SGD):
    """Releases the last iterate only."""

    released = ("last iterate",)


@pytest.mark.parametrize(
    ("method", "why"),
    [
        (methods.LastIterate(methods.GradientDescent(0.1, 5, mechanism="gaussian")), "comes befor"),
        (methods.OutputPerturbation(), "comes before"),
        (Silent(0.5, 7, dpa.Full(), RULE), "comes before"),
        (Forgets(0.5, 7, dpa.Full(), RULE), "has no resume"),
        (methods.SecondOrder(0.1, 0.3), "has no resume"),
        (methods.TrustRegion(0.1, 0.3), "has no resume"),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, methods.Method) else "",
)
def test_methods_without_a_checkpoint_are_refused_by_name(tmp_path, method, why):
    on = problem()
    with pytest.raises(
        ValueError, match=rf"checkpoint must be None for {type(method).__name__}.*{why}"
    ):
        dpa.minimize(on, method, REPLACE, checkpoint=tmp_path / "run.npz")
    assert not on.opened and not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "options", "error", "match"),
    [
        ("momentum", {"checkpoint": 3}, TypeError, "checkpoint must be the name of a file"),
        ("momentum", {"checkpoint": "a", "checkpoint_every": 0}, ValueError, "checkpoint_every"),
        ("momentum", {"resume": b"x"}, TypeError, "resume must be the name of a file"),
        ("momentum", {"checkpoint": "a", "resume": "b"}, ValueError, "the file of resume"),
        ("momentum", {"resume": "missing.npz"}, FileNotFoundError, "missing.npz"),
        ("search", {"checkpoint": "a", "replicates": 2}, ValueError, "replicates must be 1"),
        ("search", {"checkpoint": "a", "budget": Filter(ADD, 50.0)}, ValueError, "budget must be"),
    ],
)
def test_arguments(tmp_path, monkeypatch, name, options, error, match):
    monkeypatch.chdir(tmp_path)
    on = problem()
    with pytest.raises(error, match=match):
        run(name, on, **options)
    assert not on.opened and not any(tmp_path.iterdir())


def encrypted(text):
    """Set the bit of a zip file's directory that says so of each of its files."""
    return re.sub(rb"(PK\x01\x02.{4}).", b"\\1\x01", text, flags=re.DOTALL)


@pytest.mark.parametrize(
    "damage", [lambda text: b"", lambda text: text[:-200], lambda text: b"no", encrypted]
)
def test_a_damaged_file_is_named(tmp_path, damage):
    path = tmp_path / "run.npz"
    run("momentum", checkpoint=path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=r"run\.npz is no checkpoint, or damaged"):
        run("momentum", resume=path)
    np.savez(path, w=np.array([object()]))
    with pytest.raises(ValueError, match=r"run\.npz is no checkpoint, or damaged$"):
        run("momentum", resume=path)
    with pytest.raises(FileNotFoundError, match=r"resume: there is no file .*other\.npz"):
        run("momentum", resume=tmp_path / "other.npz")


def test_a_file_of_another_format_is_refused(tmp_path):
    path = tmp_path / "run.npz"
    run("momentum", checkpoint=path)
    with np.load(path) as stored:
        arrays = dict(stored)
    about = json.loads(arrays.pop("about").tobytes()) | {"format": 0}
    np.savez(path, about=np.frombuffer(json.dumps(about).encode(), np.uint8), **arrays)
    with pytest.raises(ValueError, match="has the format 0, and not 2"):
        run("momentum", resume=path)


def test_a_file_that_cannot_be_written_ends_the_run_before_the_batch(tmp_path, monkeypatch):
    """The previous file stays intact, and records every batch that was opened."""
    path, on = tmp_path / "run.npz", problem()
    replace = os.replace

    def full(source, target):
        if on.opened == 3:
            raise OSError(28, "No space left on device")
        replace(source, target)

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        run("momentum", on, checkpoint=path)
    monkeypatch.undo()
    assert on.opened == 3 and [each.name for each in tmp_path.iterdir()] == ["run.npz"]
    rest = problem()
    result = run("momentum", rest, resume=path)
    assert rest.opened == 4 and len(result.ledger) == 7


@pytest.mark.parametrize("rng", [None, 0])
@pytest.mark.parametrize("at", ["rename", "close"])
def test_ctrl_c_as_the_file_is_replaced_loses_nothing(tmp_path, monkeypatch, at, rng):
    """Neither the result, nor the lock, with which nobody could resume the run."""
    path, on, replace, locked = tmp_path / "run.npz", problem(), os.replace, files._locked

    def interrupted(call, *given):
        call(*given)
        if on.opened == 3:
            on.opened = -99  # once
            raise KeyboardInterrupt

    def held(*given):
        return SimpleNamespace(close=partial(interrupted, locked(*given).close))

    if at == "rename":
        monkeypatch.setattr(os, "replace", partial(interrupted, replace))
    else:
        monkeypatch.setattr(files, "_locked", held)
    with pytest.warns(RuntimeWarning, match="interrupted at iteration 3"):
        result = run("momentum", on, rng=rng, checkpoint=path)
    assert on.opened == -99 and result.iterations == 3 and len(result.ledger) == 4
    assert len(run("momentum", rng=rng, resume=path).ledger) == 7


def test_a_missing_folder_is_named_and_not_created(tmp_path):
    """A misspelt folder used to be created, and held the only record of the charges."""
    (tmp_path / "file").touch()
    for name in ("checkpoint", "resume"):
        for folder in ("new/folder", "file"):
            on = problem()
            with pytest.raises(FileNotFoundError, match=f"{name}: there is no folder .*{folder}"):
                run("momentum", on, **{name: tmp_path / folder / "run.npz"})
            assert on.opened == 0
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_a_purchase_is_on_the_disk_before_its_batch_is_drawn(tmp_path, monkeypatch):
    done = []
    for name in ("fsync", "replace"):
        plain = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *a, f=plain, n=name: (done.append(n), f(*a)))
    drawn = dpa.Poisson.draw
    monkeypatch.setattr(dpa.Poisson, "draw", lambda *a: (done.append("draw"), drawn(*a))[1])
    run("momentum", checkpoint=tmp_path / "run.npz", callback=lambda number, w: number == 2)
    written = ["fsync", "replace", *(["fsync"] if files.fcntl else [])]
    assert done == [*written, *written, "draw", *written, "draw", *written]
    done.clear()
    run("momentum", checkpoint=tmp_path / "other.npz", checkpoint_every=3)
    assert done.count("replace") == 1 + 3 + 1  # 7 batches, and at both ends


def test_noise_that_was_not_exact_is_not_exact_afterwards(tmp_path):
    path = tmp_path / "run.npz"
    run("momentum", rng="os", checkpoint=path, callback=lambda number, w: number == 3)
    with np.load(path) as stored:
        arrays = {name: stored[name] for name in stored.files}
    about = json.loads(arrays["about"].tobytes())
    assert about["noise"] == "exact"
    arrays["about"] = files._bytes(json.dumps({**about, "noise": "floating point"}))
    np.savez(path, **arrays)
    result = run("momentum", rng="os", resume=path)
    assert result.ledger.noise == "floating point" and not result.hardened


def test_the_first_file_is_written_before_any_charge(tmp_path, monkeypatch):
    on = problem()
    monkeypatch.setattr(os, "replace", lambda *a: (_ for _ in ()).throw(OSError("read-only")))
    with pytest.raises(OSError, match="read-only"):
        run("momentum", on, checkpoint=tmp_path / "run.npz")
    assert not on.opened and not any(tmp_path.iterdir())


@given(st.data())
def test_events_are_read_as_they_were_written(data):
    numbers = st.floats(1e-3, 1e3)
    kinds = [
        st.builds(events.Laplace, numbers, numbers),
        st.builds(events.Gaussian, numbers, numbers),
        st.builds(events.Pure, numbers),
        st.builds(events.BoundedRange, numbers),
        st.builds(
            events.AboveThreshold,
            *(st.just("laplace"), numbers, numbers, numbers, st.none() | st.integers(1, 9)),
        ),
        st.builds(events.GaussianBound, numbers, st.tuples(numbers, numbers), st.just((0.5, 0.5))),
    ]
    one = data.draw(st.one_of(kinds))
    inner = data.draw(st.sampled_from([dpa.Full(), dpa.Poisson(0.3), dpa.WithoutReplacement(3)]))
    epoch = events.Epoch(dpa.RandomAllocation(5, 2), [events.Gaussian(1.0, 2.0)])
    for event in (one, events.Sampled(inner, [one, one], 9), events.Repeated(one, 3), epoch):
        again = files.decoded(
            json.loads(json.dumps(files.encoded(event, files._CLASSES))), files._CLASSES
        )
        assert again == event and type(again) is type(event)


class Wordy(methods.SGD):
    """Its steps have a state that is not numeric."""

    def resume(self, step, made, lost, oracle, plan):
        for each in super().resume(step, made, lost, oracle, plan):
            yield methods.Step(each.w, state={**each.state, "note": "x"})

    def run(self, w, oracle, plan):
        return self.resume(methods.Step(w), 0, 0, oracle, plan)


def test_a_state_is_numbers(tmp_path):
    on, method = problem(), Wordy(0.5, 7, dpa.Poisson(0.2), RULE)
    with pytest.raises(TypeError, match=r"state\['note'\] of a step must be numbers, got 'x'"):
        run("momentum", on, method=method, checkpoint=tmp_path / "run.npz")
    assert on.opened == 1


def test_events_of_others_are_refused():
    class Mine(events.Pure):
        pass

    with pytest.raises(TypeError, match=r"objects of dpanalysis alone, .*, got .*Mine"):
        files.encoded(events.Repeated(Mine(1.0), 2), files._CLASSES)
    assert unrolled(events.Repeated(Mine(1.0), 2))[1] == 2


def stopped(problem, method, path, **options):
    """Run two of three iterations, and leave the file."""
    options = {"checkpoint": path, "callback": lambda t, w: t == 2, **options}
    return dpa.minimize(problem, method, dpa.Budget(1.0, 1e-5), **options)


def images(activation="tanh", hidden=(3,), bound=None):
    random = np.random.default_rng(0)
    X, y = random.normal(size=(40, 2)), np.arange(40) % 2
    row_bound = None if bound is None else dpa.RowBound(2, bound, "clip")
    return dpa.problems.MLP(
        X, y, hidden=hidden, n_classes=2, activation=activation, row_bound=row_bound
    )


def custom(limit, power=1.0):
    return dpa.clipping.Custom(lambda n, loss: limit / (1.0 + n**power), limit)


OTHER_RUNS = {
    "problem.activation": (lambda: images("relu"), lambda: dpa.clipping.Flat(1.0)),
    "problem.row_bounds": (lambda: images(bound=2.0), lambda: dpa.clipping.Flat(1.0)),
    "method.clipping.function": (images, lambda: custom(0.5, 2.0)),
}


@pytest.mark.parametrize("name", OTHER_RUNS)
@pytest.mark.parametrize("rng", [None, 7])
def test_another_network_or_rule_gets_no_noise_of_the_first(tmp_path, name, rng):
    other, rule = OTHER_RUNS[name]
    first = custom(0.5) if name.startswith("method") else rule()
    before = images(bound=1.0 if name.endswith("bounds") else None)
    w0 = np.zeros(before.d)
    method = methods.SGD(0.1, 3, dpa.Full(), first)
    stopped(before, method, tmp_path / "a", rng=rng, w0=w0)
    with pytest.raises(ValueError, match=r"with another .*(activation|bounds|clipping)"):
        dpa.minimize(
            other(), methods.SGD(0.1, 3, dpa.Full(), rule()), dpa.Budget(1.0, 1e-5),
            resume=tmp_path / "a", rng=rng, w0=w0,
        )  # fmt: skip
    again = custom(0.5) if name.startswith("method") else rule()
    result = dpa.minimize(
        before, methods.SGD(0.1, 3, dpa.Full(), again), dpa.Budget(1.0, 1e-5),
        resume=tmp_path / "a", rng=rng, w0=w0,
    )  # fmt: skip
    assert result.status == "finished" and len(result.ledger) == 3


def test_a_network_with_as_many_parameters_gets_no_noise_of_the_first(tmp_path):
    X, y, w0 = np.random.default_rng(0).normal(size=(40, 9)), np.arange(40) % 4, np.zeros(60)
    before = dpa.problems.MLP(X, y, hidden=(4,), n_classes=4)
    other = dpa.problems.MLP(X, y, hidden=(4,), n_classes=6, bias=False)
    method = methods.SGD(0.1, 3, dpa.Full(), dpa.clipping.Flat(1.0))
    stopped(before, method, tmp_path / "a", rng=7, w0=w0)
    options = {"budget": dpa.Budget(1.0, 1e-5), "resume": tmp_path / "a", "rng": 7, "w0": w0}
    with pytest.raises(ValueError, match=r"another problem\.bias, problem\.n_classes; "):
        dpa.minimize(other, method, **options)
    assert dpa.minimize(before, method, **options).status == "finished"


@pytest.mark.parametrize("rng", [None, 7])
def test_a_seed_goes_on_with_the_code_that_draws_its_noise(tmp_path, monkeypatch, rng):
    """Another may draw other noise for the batch that is repeated, but listed once."""
    path = tmp_path / "run.npz"
    run("momentum", rng=rng, checkpoint=path, callback=lambda number, w: number == 3)
    with monkeypatch.context() as patched:
        patched.setattr("dpanalysis.experiments.run.code_digest", lambda package: "other")
        if rng is None:
            assert run("momentum", rng=rng, resume=path).status == "finished"
            return
        with pytest.raises(ValueError, match="with another code; "):
            run("momentum", rng=rng, resume=path)
    assert run("momentum", rng=rng, resume=path).status == "finished"


class Shifted(dpa.losses.Loss):
    convex, lipschitz, smoothness = True, 1.0, 1.0

    def __init__(self, center):
        self.center = center

    def value(self, z, y):
        return np.sqrt(1.0 + (z - y - self.center) ** 2) - 1.0

    def derivative(self, z, y):
        g = z - y - self.center
        return g / np.sqrt(1.0 + g * g)


class Bent(dpa.losses.Logistic):
    def __init__(self, k):
        self.k = k


TOLD = {
    "compiled": lambda k: dpa.losses.compiled(Shifted(k)),
    "own": Shifted,
    "extends": Bent,
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", TOLD)
def test_a_user_defined_loss_gets_no_noise_of_another(tmp_path, kind):
    def erm(center):
        loss, row_bound = TOLD[kind](center), dpa.RowBound(2, 1)
        return dpa.ERM(np.ones((40, 1)), np.ones(40), loss, row_bound=row_bound)

    method, budget = methods.GradientDescent(0.1, 3, mechanism="gaussian"), dpa.Budget(1.0, 1e-5)
    with pytest.raises(ValueError, match="rng must be None or 'os' with a checkpoint"):
        stopped(erm(0.0), method, tmp_path / "a", rng=3)
    assert not (tmp_path / "a").exists()
    stopped(erm(0.0), method, tmp_path / "a")
    if kind != "compiled":
        with pytest.raises(ValueError, match=r"another problem\.loss\.(k|center)"):
            dpa.minimize(erm(9.0), method, budget, resume=tmp_path / "a")
    again = dpa.minimize(erm(0.0), method, budget, resume=tmp_path / "a")
    assert again.status == "finished"


@pytest.mark.parametrize("how", ["finish", "raise", "interrupt", "warnings are errors"])
def test_a_last_step_that_cannot_be_written_loses_no_result(tmp_path, monkeypatch, how):
    method = methods.GradientDescent(0.1, 3, mechanism="gaussian")

    def last(t, w):
        if t == 3:
            monkeypatch.setattr(files, "atomic_write", full_disk)
            if how == "raise":
                raise ValueError("mine")
            if how == "interrupt":
                raise KeyboardInterrupt

    def full_disk(*arguments):
        raise OSError(28, "No space left on device")

    def go():
        return stopped(problem(), method, tmp_path / "a", callback=last)

    if how == "raise":
        with pytest.raises(ValueError, match="mine") as error:
            go()
        assert len(error.value.partial.ledger) == 3
        return
    if how == "warnings are errors":
        with warnings.catch_warnings(action="error"):
            result = go()
    else:
        with pytest.warns(RuntimeWarning) as warned:
            result = go()
        assert "has not the last step" in str(warned[-1].message)
    assert len(result.ledger) == 3 and result.iterations == 3
