"""Sweeps: nothing is computed twice, nothing finished is lost; tables are read as written."""

import contextlib
import errno
import json
import os
import platform
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpanalysis.experiments import (
    Record,
    SweepError,
    SweepStopped,
    load_table,
    save_table,
    sweep,
    sweeping,
    tabulate,
)
from dpanalysis.experiments.records import atomic_write, plain
from dpanalysis.experiments.sweep import _Cell, code_digest, processor


def simulate(seed, size, log=None):
    """A cell that logs every call."""
    if log is not None:
        with open(log, "a") as file:
            file.write(f"{seed}\n")
    random = np.random.default_rng(seed)
    a = random.normal(size=(size, size))
    return {"product": a @ a, "mean": a.mean(), "name": "α", "flags": a[0] > 0}


def fragile(seed):
    if seed % 3 == 1:
        raise ZeroDivisionError(f"seed {seed}")
    return {"seed": seed}


def interrupted(seed, log):
    if seed == 2:
        raise KeyboardInterrupt
    return simulate(seed, 2, log)


def leaves(seed):
    sys.exit("no such data")


def grows(sizes, seed):
    sizes.append(seed)
    return {"sizes": sizes}


def returns_a_number(seed):
    return seed


def returns_objects(seed):
    return {"object": object()}


def threads(seed):
    import numba
    from threadpoolctl import threadpool_info

    pools = [pool["num_threads"] for pool in threadpool_info()]
    return {"threads": [numba.get_num_threads(), *pools]}


def slow(seed):
    time.sleep(0.3)
    return {"seed": seed}


def calls(log: Path) -> list[int]:
    return sorted(map(int, log.read_text().split())) if log.exists() else []


def same(first: list[Record], second: list[Record]) -> bool:
    return all(
        a.parameters == b.parameters
        and a.result.keys() == b.result.keys()
        and all(
            a.result[k].dtype == b.result[k].dtype and np.array_equal(a.result[k], b.result[k])
            for k in a.result
        )
        for a, b in zip(first, second, strict=True)
    )


def test_results_come_back_and_are_not_computed_again(tmp_path):
    log = tmp_path / "log"
    cells = [{"seed": s, "size": 3, "log": str(log)} for s in (4, 1, 4, 2)]
    first = sweep(simulate, cells, folder=tmp_path / "cells", progress=False)
    assert calls(log) == [1, 2, 4]  # a repeated cell is one cell
    assert [record.parameters["seed"] for record in first] == [4, 1, 4, 2]
    expected = simulate(1, 3)
    for name, value in expected.items():
        np.testing.assert_array_equal(first[1].result[name], value)
    again = sweep(simulate, cells, folder=tmp_path / "cells", version=1, progress=False)
    assert calls(log) == [1, 2, 4] and same(first, again)
    longer = [*cells, {"seed": 7, "size": 3, "log": str(log)}]
    sweep(simulate, longer, folder=tmp_path / "cells", progress=False)
    assert calls(log) == [1, 2, 4, 7]


def test_key_depends_on_function_version_and_parameters(tmp_path):
    log = tmp_path / "log"
    cell = {"seed": 1, "size": 2, "log": str(log)}
    folder = tmp_path / "cells"
    sweep(simulate, [cell], folder=folder, progress=False)
    sweep(simulate, [cell], folder=folder, progress=False, settings={"note": "other"})
    assert len(calls(log)) == 1
    sweep(simulate, [cell], folder=folder, progress=False, version=2)
    assert len(calls(log)) == 2
    sweep(simulate, [cell | {"size": 3}], folder=folder, progress=False)
    assert len(calls(log)) == 3
    sweep(interrupted, [{"seed": 1, "log": str(log)}], folder=folder, progress=False)
    assert len(calls(log)) == 4
    numpy_cell = {"seed": np.int64(1), "size": np.int32(2), "log": str(log)}
    sweep(simulate, [numpy_cell], folder=folder, progress=False)
    assert len(calls(log)) == 4  # NumPy's 1 is Python's 1


def test_a_cell_that_changes_its_parameters_changes_none_of_another_cell(tmp_path):
    shared = [10]
    cells = [{"sizes": shared, "seed": seed} for seed in (1, 2)]
    records = sweep(grows, cells, folder=tmp_path, progress=False)
    assert [each.result["sizes"].tolist() for each in records] == [[10, 1], [10, 2]]
    assert [each.parameters for each in records] == cells and shared == [10]

    def one_after_another():
        for seed in (3, 4):
            shared[0] = seed  # after the cell before was yielded
            yield {"sizes": shared, "seed": 0}

    records = sweep(grows, one_after_another(), folder=tmp_path, progress=False)
    assert [each.result["sizes"].tolist() for each in records] == [[3, 0], [4, 0]]


def test_settings_are_beside_the_result(tmp_path):
    sweep(fragile, [{"seed": 0}], folder=tmp_path, progress=False, settings={"n": np.int64(5)})
    (about,) = (json.loads(path.read_text()) for path in tmp_path.glob("*.json"))
    assert about["settings"] == {"n": 5} and about["parameters"] == {"seed": 0}
    assert about["function"].endswith("test_sweep.fragile") and about["seconds"] >= 0


def test_parallel_equals_serial(tmp_path):
    cells = [{"seed": seed, "size": 150} for seed in range(5)]
    serial = sweep(simulate, cells, folder=tmp_path / "a", progress=False)
    parallel = sweep(simulate, cells, folder=tmp_path / "b", jobs=2, progress=False)
    assert same(serial, parallel)


@pytest.mark.parametrize("jobs", [1, 2])
def test_every_cell_runs_on_one_thread(tmp_path, jobs):
    import numba

    before = numba.get_num_threads()
    records = sweep(threads, [{"seed": 1}, {"seed": 2}], folder=tmp_path, jobs=jobs, progress=False)
    for record in records:
        assert (record.result["threads"] == 1).all()
    assert numba.get_num_threads() == before


@pytest.mark.parametrize("damage", ["truncate", "empty", "garbage", "other cell", "bit", "flag"])
def test_damaged_cell_is_computed_again(tmp_path, damage):
    cells = [{"seed": seed, "size": 20} for seed in (1, 2)]
    first = sweep(simulate, cells, folder=tmp_path, progress=False)
    path, other = sorted(tmp_path.glob("*.npz"))
    content = bytearray(path.read_bytes())
    if damage == "truncate":
        content = content[: len(content) // 2]
    elif damage == "empty":
        content = bytearray()
    elif damage == "garbage":
        content = bytearray(b"not a zip file")
    elif damage == "other cell":
        content = bytearray(other.read_bytes())
    elif damage == "flag":  # "encrypted"
        content[content.index(b"PK\1\2") + 8] ^= 1
    else:
        content[content.index(b"result.product.npy") + 300] ^= 1
    path.write_bytes(content)
    with pytest.warns(RuntimeWarning, match=r"\.npz (is damaged|belongs to another cell)"):
        second = sweep(simulate, cells, folder=tmp_path, progress=False)
    assert same(first, second)
    assert same(first, sweep(simulate, cells, folder=tmp_path, progress=False))  # no warning now


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_failing_cell_does_not_lose_the_others(tmp_path, jobs):
    cells = [{"seed": seed} for seed in range(6)]
    with pytest.raises(SweepError, match=r"2 of 6 cells failed.*ZeroDivisionError: seed") as error:
        sweep(fragile, cells, folder=tmp_path, jobs=jobs, progress=False)
    assert sorted(parameters["seed"] for parameters, _ in error.value.failures) == [1, 4]
    assert all("ZeroDivisionError" in trace for _, trace in error.value.failures)
    assert [int(record.result["seed"]) for record in error.value.records] == [0, 2, 3, 5]
    assert len(list(tmp_path.glob("*.npz"))) == 4


def test_interruption_keeps_what_is_finished(tmp_path):
    log = tmp_path / "log"
    cells = [{"seed": seed, "log": str(log)} for seed in range(4)]
    with pytest.raises(KeyboardInterrupt, match="2 of 4 cells are finished and kept in"):
        sweep(interrupted, cells, folder=tmp_path / "cells", progress=False)
    assert calls(log) == [0, 1]
    del cells[2]
    sweep(interrupted, cells, folder=tmp_path / "cells", progress=False)
    assert calls(log) == [0, 1, 3]


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
@pytest.mark.parametrize("jobs", [1, 2])
def test_ctrl_c_in_a_terminal(tmp_path, jobs):
    """As in a terminal: SIGINT to the whole process group, workers included."""
    here = Path(__file__).parent
    script = tmp_path / "script.py"
    script.write_text(
        "from dpanalysis.experiments import sweep\n"
        "from test_sweep import slow\n"
        "if __name__ == '__main__':\n"
        f"    sweep(slow, [{{'seed': s}} for s in range(400)], folder='cells', jobs={jobs})\n"
    )
    process = subprocess.Popen(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(here), str(here.parents[1])])},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # Processes that a shell starts in the background ignore SIGINT.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    cells = tmp_path / "cells"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and len(list(cells.glob("*.npz"))) < 2:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "KeyboardInterrupt" in errors and "of 400 cells are finished and kept in" in errors
    kept = list(cells.glob("*.npz"))
    assert 2 <= len(kept) < 400
    assert all(int(np.load(path)["result.seed"]) < 400 for path in kept)  # none is half-written


def test_bad_arguments_fail_before_any_work(tmp_path):
    for function in (lambda seed: {}, tmp_path.joinpath):  # of an object that no file tells
        with pytest.raises(TypeError, match="top level of a module"):
            sweep(function, [{"seed": 1}], folder=tmp_path)
    with pytest.raises(TypeError, match=r"cell\['seed'\] must be made of numbers.*got ndarray"):
        sweep(fragile, [{"seed": np.arange(2)}], folder=tmp_path)
    for cells in ([3], 3):
        with pytest.raises(TypeError, match="cells must be dicts of parameters, got 3"):
            sweep(fragile, cells, folder=tmp_path)
    for jobs in (0, -2):
        with pytest.raises(ValueError, match=rf"jobs must be .*at least -?1, got {jobs}"):
            sweep(fragile, [], folder=tmp_path, jobs=jobs)
    with pytest.raises(TypeError, match="folder must be a path, got None"):
        sweep(fragile, [{"seed": 1}], folder=None)
    with pytest.raises(NotADirectoryError, match=r"folder must be a directory, .*test_sweep"):
        sweep(fragile, [{"seed": 1}], folder=__file__)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (returns_a_number, "must return a dict"),
        (returns_objects, "must be numbers or text"),
        (leaves, "SystemExit: no such data"),
    ],
)
def test_results_must_be_dicts_of_arrays(tmp_path, function, message):
    with pytest.raises(SweepError, match=message):
        sweep(function, [{"seed": 1}], folder=tmp_path, progress=False)
    assert list(tmp_path.glob("*.npz")) == []


def test_progress_goes_to_stderr(tmp_path, capsys):
    sweep(fragile, [{"seed": 0}, {"seed": 2}], folder=tmp_path)
    captured = capsys.readouterr()
    assert captured.out == "" and "fragile" in captured.err and "2/2" in captured.err


# ---------------------------------------------------------------- tables

columns = st.one_of(
    st.lists(st.floats(allow_nan=True), min_size=3, max_size=3),
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=3, max_size=3),
    st.lists(st.booleans(), min_size=3, max_size=3),
    st.lists(st.text(st.characters(exclude_categories=["Cs", "Cc"])), min_size=3, max_size=3),
)


@given(st.dictionaries(st.text(st.characters(categories=["L", "P"]), min_size=1), columns))
def test_tables_round_trip(tmp_path_factory, table):
    path = tmp_path_factory.mktemp("table") / "t.csv"
    settings = {"epsilon": float("inf"), "name": 'a "quoted", name', "sizes": [1, 2.5, None]}
    save_table(path, table, settings)
    read, about = load_table(path)
    assert about == settings and list(read) == list(table)
    for name, column in table.items():
        expected = np.asarray(column)
        assert read[name].dtype == expected.dtype
        np.testing.assert_array_equal(read[name], expected)


@pytest.mark.parametrize("dtype", ["f4", "f8", "u1", "i8", "?", "U3"])
def test_types_and_empty_tables_round_trip(tmp_path, dtype):
    for size in (0, 3):
        column = np.array([0.1, 2.7, 3.3][:size]).astype(dtype)
        save_table(tmp_path / "t.csv", {"a": column})
        read = load_table(tmp_path / "t.csv")[0]["a"]
        assert read.dtype == column.dtype
        np.testing.assert_array_equal(read, column)


def test_bad_tables(tmp_path):
    path = tmp_path / "t.csv"
    with pytest.raises(ValueError, match="equal length"):
        save_table(path, {"a": [1], "b": [1, 2]})
    with pytest.raises(ValueError, match="1-d"):
        save_table(path, {"a": [[1]]})
    with pytest.raises(ValueError, match=r"table\['a'\] must hold numbers or text"):
        save_table(path, {"a": [object()]})
    assert list(tmp_path.iterdir()) == []
    save_table(path, {"a": [1]})
    path.write_text("a\n1,2\n")
    with pytest.raises(ValueError, match="expected rows of the columns a"):
        load_table(path)
    path.write_text("b\n1\n")
    with pytest.raises(ValueError, match="expected rows of the columns a"):
        load_table(path)


def test_tabulate():
    first = Record({"T": 2, "m": "GD"}, {"t": np.arange(2), "gap": np.array([1.0, 0.5])})
    second = Record({"T": 1, "m": "NAG"}, {"t": np.arange(1), "gap": np.array([2.0])})
    table = tabulate([first, second])
    assert table["T"].tolist() == [2, 2, 1] and table["m"].tolist() == ["GD", "GD", "NAG"]
    assert table["gap"].tolist() == [1.0, 0.5, 2.0]
    assert tabulate([Record({"T": 2}, {"gap": np.array(3.0)})])["gap"].tolist() == [3.0]
    assert tabulate([]) == {}
    with pytest.raises(ValueError, match="same columns"):
        tabulate([first, Record({"T": 1}, {})])
    with pytest.raises(ValueError, match="one length"):
        tabulate([Record({}, {"a": np.arange(2), "b": np.arange(3)})])
    with pytest.raises(ValueError, match="1-d arrays"):
        tabulate([Record({}, {"a": np.eye(2)})])


def test_atomic_write_leaves_nothing_behind(tmp_path):
    path = tmp_path / "new" / "file"
    with pytest.raises(RuntimeError), atomic_write(path) as file:
        file.write("half")
        raise RuntimeError
    assert list(path.parent.iterdir()) == []
    with atomic_write(path, "wb") as file:
        file.write(b"whole\r\n")
        assert not path.exists()
    assert path.read_bytes() == b"whole\r\n"


def test_plain_rejects_what_json_cannot_hold():
    with pytest.raises(TypeError, match=r"settings\['a'\]\[1\] must be made of .* got complex"):
        plain({"a": [1, 1j]}, "settings")
    with pytest.raises(TypeError, match="text keys"):
        plain({1: 2})


# A time limit, and a full disk ---------------------------------------------------------------


@pytest.mark.parametrize(("jobs", "backend"), [(1, None), (2, "loky"), (2, "threading")])
def test_a_time_limit_keeps_what_is_at_work(tmp_path, jobs, backend):
    cells = [{"seed": seed} for seed in range(40)]
    options = {"folder": tmp_path, "jobs": jobs, "backend": backend, "progress": False}
    sweep(slow, cells[:jobs], **options)  # the workers are started
    with sweeping(stop_after=0.4), pytest.raises(SweepStopped) as stop:
        sweep(slow, cells, **options)
    kept = len(list(tmp_path.glob("*.npz")))
    assert stop.value.finished == kept and stop.value.total == 40
    assert jobs < kept <= 4 * jobs  # what was at work is finished, nothing began later
    assert str(stop.value) == f"{kept} of 40 cells are finished and kept, {40 - kept} are left"
    with sweeping(stop_after=0.0):
        records = sweep(slow, cells[:jobs], **options)  # nothing to compute: no limit is met
    assert [int(record.result["seed"]) for record in records] == list(range(jobs))


def test_an_enclosing_limit_stays(tmp_path):
    with sweeping(stop_after=0.0), sweeping(stop_after=100.0), pytest.raises(SweepStopped):
        sweep(slow, [{"seed": 0}], folder=tmp_path, progress=False)
    with pytest.raises(ValueError, match="stop_after must lie in"), sweeping(stop_after=-1.0):
        pass


def test_cells_are_passed_to_a_watcher_in_order_with_their_provenance(tmp_path):
    cells = [{"seed": seed, "size": 2} for seed in (3, 1, 3, 2)]
    sweep(simulate, cells[:2], folder=tmp_path, progress=False)
    told = []
    watch = sweeping(watch=lambda path, result: told.append((path, result)))
    with sweeping(made_by={"commit": "a", "device": "b"}), watch, sweeping(made_by={"device": "c"}):
        records = sweep(simulate, cells, folder=tmp_path, jobs=2, progress=False)
    assert len(told) == 3  # each once, computed now or before
    for (path, result), record in zip(told, [records[0], records[1], records[3]], strict=True):
        about = json.loads(path.with_suffix(".json").read_text())
        assert about["parameters"] == record.parameters
        assert (result["product"] == record.result["product"]).all()
        assert len(about["made_by"]["code"]) == 16 and about["made_by"]["numpy"] == np.__version__
        # Cells of an earlier sweep keep their provenance; workers record the present one.
        said = {"commit": "a", "device": "c"} if about["parameters"]["seed"] == 2 else {}
        assert about["made_by"] | said == about["made_by"]
        assert ("device" in about["made_by"]) == bool(said)


def test_the_code_digest_follows_the_files(tmp_path, monkeypatch):
    package = tmp_path / "some_package_of_a_test"
    package.mkdir()
    (package / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    digests = set()
    for text in ("x = 1", "x = 2", "x = 1"):
        (package / "inner.py").write_text(text)
        digests.add(code_digest.__wrapped__(package.name))
    assert len(digests) == 2
    assert code_digest("no_such_package") == code_digest()
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)  # as in a script
    assert code_digest.__wrapped__(package.name, "__main__") in digests


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_full_disk_ends_the_sweep_at_once(tmp_path, jobs, monkeypatch):
    log = tmp_path / "log"
    cells = [{"seed": seed, "size": 2, "log": str(log)} for seed in range(30)]
    folder = tmp_path / "cells"
    sweep(simulate, cells[:3], folder=folder, progress=False)

    @contextlib.contextmanager
    def full(path, mode="w"):
        time.sleep(0.05)
        raise OSError(errno.ENOSPC, "No space left on device")
        yield

    monkeypatch.setitem(_Cell.keep.__globals__, "atomic_write", full)
    said = "No space left on device: 3 of 30 cells are finished and kept in"
    with pytest.raises(OSError, match=said) as stop:
        sweep(simulate, cells, folder=folder, jobs=jobs, backend="threading", progress=False)
    assert stop.value.errno == errno.ENOSPC
    assert len(calls(log)) <= 3 + 4 * jobs  # the rest is not computed in vain


@pytest.mark.parametrize(
    ("cpuinfo", "name"),
    [
        (
            "model\t\t: 17\nmodel name\t: AMD EPYC\ncpu family\t: 25\n",
            "AMD EPYC, family 25, model 17",
        ),
        ("model name\t: Intel(R) Xeon(R) Processor @ 2.50GHz\nmodel\t: 85\n", "@ 2.50GHz"),
        ("", platform.processor() or platform.machine()),
    ],
)
def test_a_processor_of_a_name_without_a_number_has_its_model_in_the_provenance(
    monkeypatch, cpuinfo, name
):
    monkeypatch.setattr(Path, "read_text", lambda path, encoding: cpuinfo)
    assert processor().endswith(name)


def test_a_processor_is_named_where_no_file_says_so(monkeypatch):
    def missing(path, encoding):
        raise FileNotFoundError(path)

    monkeypatch.setattr(Path, "read_text", missing)
    assert processor() == (platform.processor() or platform.machine())
