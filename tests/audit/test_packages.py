"""Verdicts on released packages: the protocol, environments, the registry and the command.

Nothing is downloaded: the packages are written here, and run by this interpreter.
"""

import contextlib
import csv
import io
import json
import math
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dpanalysis.audit import Effort, hockey_stick, subsampled_gaussian
from dpanalysis.privacy.accounting.zcdp import gaussian_delta, gaussian_epsilon
from verdicts import environment, protocol, registry, store, worker
from verdicts.__main__ import main
from verdicts.claims import _exact, _tools
from verdicts.protocol import CallRaised, Worker, WorkerFailed


def through(value):
    return worker.unpack(io.BytesIO(worker.pack(value)).read)


def same(a, b):
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and np.array_equal(a, b, equal_nan=True)
    if isinstance(a, float):
        return type(b) is float and (a == b or (math.isnan(a) and math.isnan(b)))
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return type(a) is type(b) and a == b


ARRAYS = hnp.arrays(
    st.sampled_from(["<f8", "<f4", "<i8", "|u1", "|b1", "<c16"]),
    hnp.array_shapes(min_dims=0, min_side=0, max_side=4),
)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=["Cs"]))
    | ARRAYS
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abc"), inner, max_size=4),
    max_leaves=8,
)


@pytest.mark.slow
@given(VALUES)
def test_messages_arrive_as_they_were_sent(value):
    assert same(value, through(value))


@given(ARRAYS, st.integers(0, 2**31))
def test_arrays_of_any_layout_arrive(array, seed):
    for other in (
        array.T,
        array[..., ::2] if array.ndim else array,
        array.astype(array.dtype, "F"),
    ):
        assert same(np.ascontiguousarray(other).reshape(other.shape), through(other))
    big = np.arange(3, dtype=">f8")
    assert np.array_equal(through(big), big)


@pytest.mark.slow
@settings(max_examples=300)
@given(st.binary(max_size=80), st.integers(0, 80), st.integers(0, 255))
def test_bytes_that_are_no_message_are_refused(noise, place, value):
    """Any bytes give a value or one of two exceptions."""
    good = bytearray(worker.pack({"x": np.arange(3.0), "y": [1, None]}))
    good[place % len(good)] = value
    for data in (noise, worker.MAGIC + noise, bytes(good), bytes(good[:place])):
        with contextlib.suppress(worker.Garbled, EOFError):
            worker.unpack(io.BytesIO(data).read, limit=10_000)


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ({"dtype": "|O", "shape": [1]}, "numbers"),
        ({"dtype": "<f8", "shape": [2**60]}, "another size"),
        ({"dtype": "<f8", "shape": [-1]}, "lengths"),
        ({"dtype": "<f8", "shape": [True]}, "lengths"),
        ({"dtype": "f8,(", "shape": [1]}, "numbers"),
        ({"dtype": ["<f8"], "shape": [1]}, "numbers"),
        ({"dtype": "<f8", "shape": [1], "__array__": 0}, "no such array"),
        ({"dtype": "<f8", "shape": [1], "__array__": True}, "no such array"),
    ],
)
def test_arrays_with_inconsistent_headers_are_refused(entry, why):
    parts = [json.dumps({"__array__": 1, **entry}).encode(), b"\0" * 8]
    body = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    data = worker.MAGIC + (2).to_bytes(4, "big") + body
    with pytest.raises(worker.Garbled, match=why):
        worker.unpack(io.BytesIO(data).read)


@pytest.mark.parametrize(
    "value", [object(), {1: 2}, {"__array__": 1}, np.array([None]), b"bytes", {1, 2}]
)
def test_what_a_message_cannot_hold_is_refused(value):
    with pytest.raises(TypeError, match="a message"):
        worker.pack(value)
    nested = []
    for _ in range(100_000):
        nested = [nested]
    with pytest.raises(TypeError, match="a message"):
        worker.pack(nested)


PROBE = """
import os, sys, time
import numpy as np

def double(x):
    print("chatter on the standard output")
    os.write(1, b"DPA1 chatter on its descriptor")
    sys.stderr.write("chatter on the standard error")
    return 2 * x

def infinite(): return [float("nan"), float("inf"), np.array([np.nan, -np.inf])]
def fails(): raise ValueError("epsilon must be positive")
def leaves(): sys.exit(0)
def crashes():
    print("about to crash", file=sys.stderr)
    os._exit(3)
def killed(): os.kill(os.getpid(), 9)
def hangs(): time.sleep(60)
def strange(): return object()
def pickled(): return np.array([None])
def reads(): return sys.stdin.read() + os.read(0, 10).decode()
def secret(): return sorted(os.environ)
def here(): return os.getcwd()
def _hidden(): return 1
number = 3
"""


@pytest.fixture
def opened(tmp_path):
    probe = tmp_path / "probe.py"
    probe.write_text(PROBE)
    with Worker(sys.executable, probe, "numpy", "numpy", seconds=30.0) as package:
        yield package


def test_a_worker_answers_in_spite_of_chatter(opened):
    assert opened.version == np.__version__
    for x in (1, 2.5):
        assert opened.call("double", x=x) == 2 * x
    assert np.array_equal(opened.call("double", x=np.arange(3)), [0, 2, 4])
    found = opened.call("infinite")
    assert math.isnan(found[0]) and found[1] == math.inf
    assert np.array_equal(found[2], [np.nan, -np.inf], equal_nan=True)
    assert opened.call("reads") == ""


def test_exceptions_are_reported_and_the_worker_continues(opened):
    for function, kind, message in (
        ("fails", "ValueError", "epsilon must be positive"),
        ("leaves", "SystemExit", "0"),
        ("strange", "TypeError", "cannot hold object"),
        ("pickled", "TypeError", "arrays of numbers"),
        ("_hidden", "AttributeError", "no function"),
        ("number", "AttributeError", "no function"),
        ("nothing", "AttributeError", "no function"),
    ):
        with pytest.raises(CallRaised, match=message) as caught:
            opened.call(function)
        assert caught.value.type == kind and "Traceback" in caught.value.traceback
    assert opened.call("double", x=1) == 2
    with pytest.raises(TypeError, match="a message"):
        opened.call("double", x=object())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "why"),
    [("crashes", "status 3; the last that it wrote: about to crash"), ("killed", "SIGKILL")],
)
def test_the_end_of_a_worker_is_reported(opened, function, why):
    with pytest.raises(WorkerFailed, match=why):
        opened.call(function)
    with pytest.raises(WorkerFailed):
        opened.call("double", x=1)


def test_a_worker_that_hangs_is_ended(opened):
    opened.seconds = 0.5
    start = time.monotonic()
    with pytest.raises(WorkerFailed, match=r"no answer within 0\.5 s"):
        opened.call("hangs")
    assert time.monotonic() - start < 20.0
    assert opened._process.poll() is not None


def test_a_closed_worker_says_so(opened):
    opened.close()
    opened.close()
    with pytest.raises(WorkerFailed, match="closed"):
        opened.call("double", x=1)


def test_a_worker_that_writes_no_message_is_ended(tmp_path):
    liar = tmp_path / "liar.py"
    liar.write_text("print('this is no message', flush=True); import time; time.sleep(60)")
    fake = tmp_path / "python"
    fake.write_text(f"#!/bin/sh\nexec {sys.executable} {liar}\n")
    fake.chmod(0o755)
    with pytest.raises(WorkerFailed, match="a message begins with"):
        Worker(fake, tmp_path / "probe.py", "numpy", "numpy", seconds=30.0)


def test_a_worker_sees_no_secrets_and_none_of_our_folders(opened, monkeypatch, tmp_path):
    monkeypatch.setenv("MY_API_TOKEN", "secret")
    with Worker(sys.executable, tmp_path / "probe.py", "numpy", "numpy") as fresh:
        assert "MY_API_TOKEN" not in fresh.call("secret")
        folder = fresh.call("here")
        assert folder != os.getcwd()
    assert not os.path.exists(folder)


def test_an_interpreter_or_a_package_that_is_not_there(tmp_path):
    with pytest.raises(WorkerFailed, match="cannot be started"):
        Worker(tmp_path / "no python", "probe.py", "numpy", "numpy")
    with pytest.raises(CallRaised, match="nosuchmodule"):
        Worker(sys.executable, "probe.py", "nosuchmodule", "nosuchmodule")


# Environments: pip is replaced by a function that imitates its answers.


def fake_pip(monkeypatch, refuse=""):
    asked = []

    def run(*command):
        asked.append(command)
        if "install" in command:
            if refuse:
                raise environment.NotInstallable(refuse)
        elif "list" in command:
            return json.dumps([{"name": "numpy", "version": "2.0"}])
        else:
            Path(command[-1], "bin").mkdir()
        return ""

    monkeypatch.setattr(environment, "_run", run)
    return asked


def test_an_environment_is_made_once(monkeypatch, tmp_path):
    asked = fake_pip(monkeypatch)
    for _ in range(2):
        made = environment.prepare("tool-1.0", ["tool==1.0", "numpy"], tmp_path)
    assert made.versions == {"numpy": "2.0"} and made.python.is_relative_to(tmp_path)
    assert sum("install" in command for command in asked) == 1
    install = next(command for command in asked if "install" in command)
    assert install[-3:] == ("--", "tool==1.0", "numpy")
    environment.prepare("tool-1.0", ["tool==1.0", "numpy", "other"], tmp_path)
    assert len(list(tmp_path.iterdir())) == 2


def test_what_cannot_be_installed_leaves_nothing(monkeypatch, tmp_path):
    fake_pip(monkeypatch, "ERROR: No matching distribution found for tool==1.0")
    with pytest.raises(environment.NotInstallable, match="No matching distribution"):
        environment.prepare("tool-1.0", ["tool==1.0"], tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_file_in_place_of_a_folder_is_reported(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(environment.NotInstallable, match="no environment can be kept"):
        environment.prepare("tool-1.0", [], tmp_path / "file")


def test_the_last_error_of_pip_is_the_reason():
    code = "import sys; print('ERROR: why', file=sys.stderr); print('help'); sys.exit(1)"
    with pytest.raises(environment.NotInstallable, match=r"^ERROR: why$"):
        environment._run(sys.executable, "-c", code)
    with pytest.raises(environment.NotInstallable, match="No such file"):
        environment._run("/no/such/program")


# A small package, broken and correct, in the registry and the command.

TINY = """
import numpy as np
def release(value, epsilon, size, rng):
    return value + rng.laplace(scale=1.0 / epsilon, size=size)
def deviation(value, epsilon, size, rng):
    return value + rng.laplace(scale=np.sqrt(0.5) / epsilon, size=size)
def count_of(*, nan=False):
    return float("nan") if nan else 1.0
"""
TINY_PROBE = """
import numpy as np
def draw(name, value, size, seed):
    import tinydp
    return getattr(tinydp, name)(value, 1.0, size, np.random.default_rng(seed))
def crash():
    import os
    os._exit(1)
"""
TINY_CLAIMS = """
from pathlib import Path
import numpy as np
from dpanalysis.audit import printed, used
from verdicts.claims._tools import found, lower_bound, sampler
from verdicts.registry import Package, register

HERE = Path(__file__).parent
PACKAGE = Package(name="tinydp", version="1.0", probe=HERE / "tiny_probe.py", folder=HERE / "src")
TEXTS = {"configuration": "values 0 and 1", "untested": "everything else"}

def tested(worker, name):
    pair = {"value": 0.0}, {"value": 1.0}
    return lower_bound(sampler(worker, "draw", name=name), pair, 1.0, 20_000)

@register(PACKAGE, 1, "README", "`release` is private", verdict="holds", **TEXTS)
def right(worker, effort):
    yield printed(**found(tested(worker, "release"), "release"))

@register(PACKAGE, 2, "README", "`deviation` is private", "`release`", verdict="corrected", **TEXTS)
def broken(worker, effort):
    yield printed(**found(tested(worker, "deviation"), "deviation"))
    yield used(**found(tested(worker, "release"), "release"))

@register(PACKAGE, 3, "README", "it never crashes", verdict="holds", **TEXTS)
def crash(worker, effort):
    yield printed("crash", worker.call("crash"), "==", 0)
"""


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A folder with a package, its probe and its claims, from which the command is called."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "tinydp.py").write_text(TINY)
    (tmp_path / "tiny_probe.py").write_text(TINY_PROBE)
    (tmp_path / "tiny_claims.py").write_text(TINY_CLAIMS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    registry.known()
    monkeypatch.setattr(registry, "_STATEMENTS", dict(registry._STATEMENTS))
    yield tmp_path
    sys.modules.pop("tiny_claims", None)


ARGUMENTS = ["tinydp", "--module", "tiny_claims", "--quiet"]


@pytest.mark.slow
def test_a_broken_package_is_refuted_and_a_right_one_is_not(tiny, capsys):
    ids = ["--id", "tinydp-1", "--id", "tinydp-2"]
    assert main([*ARGUMENTS, *ids, "--json", "--store", "kept"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["verdict"] for row in rows] == ["not refuted", "corrected"]
    assert rows[0]["notes"] == {"Configuration": "values 0 and 1", "Not tested": "everything else"}
    assert rows[1]["evidence"][0]["value"] > 1.0 >= rows[1]["evidence"][1]["value"]
    about = json.loads((tiny / "kept" / "about.json").read_text())
    assert about["environments"] == {"tinydp==1.0": {}} and len(about["made_by"]) == 1
    lines = (tiny / "kept" / "verdicts.csv").read_text().splitlines()
    assert len(lines) == 3 and lines[1].startswith("tinydp-1,tinydp,1.0,not refuted,not refuted")
    assert len((tiny / "kept" / "evidence.csv").read_text().splitlines()) == 4
    # Another run replaces only the rows of its claims; missing are claims without a full run.
    ahead = lines[1:]
    assert main([*ARGUMENTS, "--id", "tinydp-1", "--quick", "--store", "kept"]) == 0
    table = list(csv.DictReader(io.StringIO((tiny / "kept" / "verdicts.csv").read_text())))
    assert [(row["id"], row["runs"]) for row in table] == [
        ("tinydp-1", "quick"),
        ("tinydp-2", "full"),
    ]
    assert (tiny / "kept" / "verdicts.csv").read_text().splitlines()[2] == ahead[1]
    capsys.readouterr()
    assert main([*ARGUMENTS, *ids, "--store", "kept", "--missing", "--list"]) == 0
    assert capsys.readouterr().out.split()[0] == "tinydp-1"
    assert main([*ARGUMENTS, *ids, "--store", "kept", "--missing"]) == 0
    assert main([*ARGUMENTS, *ids, "--store", "kept", "--missing"]) == 0
    assert "Nothing is missing" in capsys.readouterr().out


@pytest.mark.slow
def test_reports_name_what_was_not_tested_and_never_say_private(tiny, capsys):
    assert main([*ARGUMENTS, "--id", "tinydp-1"]) == 0
    text = capsys.readouterr().out
    assert "tinydp 1.0" in text and "Not tested: everything else" in text
    assert "not refuted: the search found no violation, which proves nothing" in text
    assert main([*ARGUMENTS, "--id", "tinydp-1", "--html", "-o", "page.html"]) == 0
    page = (tiny / "page.html").read_text()
    assert "What released packages claim" in page and "everything else" in page
    assert "holds</td>" not in page and "<td class='holds'>not refuted</td>" in page


def test_a_crash_is_an_error_and_fails(tiny, capsys):
    assert main([*ARGUMENTS, "--id", "tinydp-3"]) == 1
    text = capsys.readouterr().out
    assert "error" in text and "the process ended with status 1" in text


@pytest.mark.slow
def test_a_verdict_that_is_not_the_expected_one_fails(tiny, capsys):
    broken = TINY_CLAIMS.replace('verdict="corrected"', 'verdict="holds"')
    (tiny / "tiny_claims.py").write_text(broken)
    assert main([*ARGUMENTS, "--id", "tinydp-2"]) == 1
    assert "FAILED (expected: not refuted)" in capsys.readouterr().out
    # Another version has no expected verdict.
    assert main(["tinydp==0.9", *ARGUMENTS[1:], "--id", "tinydp-2"]) == 0
    assert "tinydp 0.9" in capsys.readouterr().out


def test_what_cannot_be_installed_or_imported_is_not_checked(tiny, capsys, monkeypatch):
    (tiny / "src" / "tinydp.py").write_text("import nowhere_to_be_found")
    assert main([*ARGUMENTS, "--id", "tinydp-1"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "not checked" in text and "cannot be imported here: ModuleNotFoundError" in text
    fake_pip(monkeypatch, "ERROR: no network")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tiny / "cache"))
    assert main(["autodp", "--id", "autodp-1", "--quiet"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "autodp 0.2.3.1 cannot be installed here: ERROR: no network" in text


def test_another_version_than_the_one_asked_for_is_not_checked(tiny, monkeypatch):
    package = registry.Package(name="numpy", version="0.1", probe=tiny / "tiny_probe.py")
    here = environment.Environment(Path(sys.executable))
    monkeypatch.setattr(registry, "prepare", lambda *given: here)
    why = f"but {np.__version__} was installed"
    with pytest.raises(registry.NotChecked, match=why), package.open():
        pass


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["nothing"], "package must be one of"),
        (["tinydp==1.0; rm"], "version must be that of a release"),
        (["tinydp==--index-url"], "version must be that of a release"),
        (["tinydp", "tinydp"], "named once"),
        (["tinydp", "--id", "autodp-1"], "id must be one of"),
        (["--module", "no_such_module"], "there is no module 'no_such_module'"),
        (["--store", "tiny_claims.py"], "--store must be a folder"),
        (["--missing"], "--missing needs --store"),
        (["-o", "nowhere/file"], "there is no folder"),
    ],
)
def test_bad_arguments_are_named(tiny, capsys, arguments, why):
    with pytest.raises(SystemExit) as stopped:
        main(["--module", "tiny_claims", *arguments])
    assert stopped.value.code == 2 and why in capsys.readouterr().err


def test_claims_are_listed(tiny, capsys):
    assert main(["--list", "--module", "tiny_claims"]) == 0
    listed = capsys.readouterr().out
    assert "tinydp-2  tinydp==1.0  corrected  README" in listed and "opacus-1" in listed


def test_every_claim_is_complete():
    """No text is empty, every probe exists, and these packages have claims."""
    statements = registry.known()
    assert {"autodp", "diffprivlib", "dp-accounting", "jax-privacy", "opacus", "opendp"} <= {
        statement.package.name for statement in statements
    }
    for statement in statements:
        assert Path(statement.package.probe).is_file()
        assert bool(statement.twin) == (statement.verdict == "corrected")
        assert statement.untested.strip() and statement.configuration.strip()


def test_packages_are_not_among_the_claims_of_papers():
    from dpanalysis.papers.registry import load

    registry.known()
    assert not [claim.id for claim in load() if claim.id.startswith(("opacus", "opendp"))]


# The exact laws that accountants are compared with.


@pytest.mark.slow
@settings(max_examples=30)
@given(st.floats(0.3, 8.0), st.floats(0.005, 0.99), st.floats(0.0, 4.0))
def test_sampled_delta_is_the_quadrature(sigma, rate, epsilon):
    p, q = subsampled_gaussian(sigma, 1.0, rate)
    exact = max(hockey_stick(p, q, epsilon), hockey_stick(q, p, epsilon))
    assert _exact.sampled_delta(sigma, rate, epsilon) == pytest.approx(exact, rel=1e-6, abs=1e-14)


@settings(max_examples=30)
@given(st.floats(0.5, 8.0), st.floats(0.01, 0.99), st.floats(1e-8, 1e-2))
def test_sampled_epsilon_inverts_delta(sigma, rate, delta):
    epsilon = _exact.sampled_epsilon(sigma, rate, delta)
    if epsilon > 0.0:
        assert _exact.sampled_delta(sigma, rate, epsilon) == pytest.approx(delta, rel=1e-6)
    assert epsilon <= gaussian_epsilon(sigma, delta)


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(st.floats(1.0, 6.0), st.integers(1, 30), st.floats(0.0, 3.0))
def test_composed_delta_is_a_lower_bound(sigma, steps, epsilon):
    x = np.linspace(-9.0 * sigma, 1.0 + 9.0 * sigma, 20_001)
    masses = np.diff([_cdf((edge - 1.0) / sigma) for edge in x])
    low = _exact.composed_delta((2.0 * x[:-1] - 1.0) / (2.0 * sigma**2), masses, steps, epsilon)
    exact = float(gaussian_delta(sigma / math.sqrt(steps), epsilon))
    assert low <= exact and low >= 0.8 * exact - 1e-9


def test_composed_delta_counts_no_rounding_as_mass():
    """The exact delta is 1e-32, far below the rounding of the transform."""
    x = np.linspace(-18.0, 19.0, 2_001)
    masses = np.diff([_cdf((edge - 1.0) / 2.0) for edge in x])
    assert _exact.composed_delta((2.0 * x[:-1] - 1.0) / 8.0, masses, 10, 20.0) == 0.0


def _cdf(x):
    return 0.5 * math.erfc(-x / math.sqrt(2.0))


def test_margins_see_an_accountant_that_reports_too_little():
    chosen = _exact.settings(Effort().random(), 20)
    exact = [setting.exact for setting in chosen]
    assert _exact.margins(exact, chosen) == (0.0, 1.0)
    assert _exact.margins([*exact[:-1], exact[-1] - 1e-3], chosen)[0] == pytest.approx(-1e-3)
    assert math.isnan(_exact.margins([math.nan, *exact[1:]], chosen)[0])


def test_both_bounds_of_an_accountant_are_judged():
    lower, upper, exact = np.array([[1.0, 1.0], [4.0, 4.0], [2.0, 5.0]])
    above, below = _tools.both_bounds(lower, upper, exact)
    assert not above.holds and above.value == -1.0 and below.holds and below.value == 1.0


def test_no_chunk_of_runs_repeats_the_noise_of_another():
    def call(function, value, size, seed):
        return value + np.random.default_rng(seed).normal(size=size)

    runs = _tools.sampler(SimpleNamespace(call=call), "draw", chunk=3)
    verdict = _tools.lower_bound(runs, ({"value": 0.0}, {"value": 1.0}), 1.0, 1_000)
    assert verdict.confidence == 1 - 1e-6 and verdict.samples == 1_000
    assert np.unique(runs({"value": 0.0}, np.random.default_rng(0), 7)).size == 7


def test_what_was_not_checked_in_full_is_missing(tmp_path):
    kept = {
        "a-1": "full,holds,1.0",
        "a-2": "quick,holds,1.0",
        "a-3": "full,error,1.0",
        "a-4": "full,holds,0.9",
    }
    rows = [f"{id},{rest}" for id, rest in kept.items()]
    (tmp_path / "verdicts.csv").write_text("\n".join(["id,runs,verdict,version", *rows]))
    asked = [(SimpleNamespace(id=id), SimpleNamespace(version="1.0")) for id in (*kept, "a-5")]
    assert store.missing(tmp_path, asked) == ["a-2", "a-3", "a-4", "a-5"]


def test_cache_folder_follows_the_user(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert environment.cache_folder() == tmp_path / "dpanalysis" / "packages"
    assert protocol.SECONDS > 0
