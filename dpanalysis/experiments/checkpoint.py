"""Checkpoints: resume a run from a file without charging anything twice.

**What a file contains.** The iterates and the state of the method after a step, both computed from
released answers; the events that were charged; and the public arguments. The guarantee of the run
covers all of it, so whoever may see the iterates may read the file. A method that does not
release its iterates, such as :class:`~dpanalysis.methods.LastIterate`, has no checkpoint.

**What it omits.** The records; what is computed from them without noise (the history, counts of
evaluations, times); and the states of the generators of noise and batches: whoever has these knows
the noise of all steps, before and after, and can subtract it. So a resumed run draws fresh noise
and batches. It has the law of an uninterrupted run, since every draw is independent of all earlier
ones, whether they come from one stream or from two.

A run whose ``rng`` is an integer is the exception. Whoever knows the seed knows the noise: the file
has the states of the streams, is AS SECRET AS THE SEED, and resuming is exact to the last bit.

**Why the ledger is complete.** An event is on disk before its batch is drawn
(:meth:`~dpanalysis.privacy.oracle.PrivateOracle.write_ahead`). Whenever a run is killed, its file
lists every answer that anybody can have seen. All listed events are charged to the new guard and
recorded in the new ledger before anything else is charged; if they do not fit, the run is not
resumed. A batch that was charged after the last step in the file is lost and stays charged. It is
not drawn again: with fresh noise that would be a second release at the price of one. (A seeded run
draws the same batch and the same noise again. On the same records the answer is the same, one
release, which its ledger lists once. Other code of this package or of NumPy, or other settings of
PyTorch, may draw or round otherwise, a second release, and are refused. On other records the
difference of the two answers has no noise, as for any two runs with the same seed.) Where a plan is
written several batches ahead, those that a killed run did not reach count as lost, too.

**Resuming repeatedly.** A resumed run writes to the file that it started from, and holds a lock on
it. So a later run resumes where that one ended, with all that it was charged; a concurrent run is
refused (not on Windows, which has no ``flock``). A COPY of a file is a second budget, and neither
run can see the other: both take the remaining steps, and the ledger of each lists them once.

**Changed arguments.** A file identifies the problem by its class, its loss and penalty and its
public facts; and it records method, plan, budget, accountant, start and replicates. Functions are
identified by their code and the values that they capture, objects of a user's class by their
attributes, PyTorch modules by their layers. What such an object does is not recorded, nor what a
module with layers of unknown types does: a run with one has no checkpoint if ``rng`` is an integer,
since with another object in its place the same noise would be released once more. A file does not
identify the records: a digest would confirm a guess of them. The guarantee does not need it, since
an event bounds the effect of one record on an answer, whatever the others are; if the records were
changed in between, the guarantee is for a record that is in either set, or in both.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import fields, is_dataclass
from decimal import Decimal
from fractions import Fraction
from inspect import isabstract
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import IO, Any

import numpy as np

from .._user_classes import overridden
from ..errors import IncompatibleAccounting, PrivacyBudgetExceeded
from ..methods.base import Method
from ..privacy import events
from ..privacy.accounting import sampling
from ..privacy.accounting.events import first_runs
from ..privacy.budget import Filter, Plan
from ..privacy.events import Event
from ..privacy.facts import PublicFacts
from ..privacy.noise import is_system
from ..privacy.oracle import PrivateOracle
from ..problems.base import Problem
from .records import DAMAGED, atomic_write

try:
    import fcntl
except ImportError:  # Windows, which cannot replace an open file either
    fcntl = None  # type: ignore[assignment]

_FORMAT = 2
_PACKAGE, _INCOMPLETE = "dpanalysis.", "untold"  # fingerprints of our classes are complete
_KERNELS = "threads, device or settings of PyTorch"
_LIBRARIES = {"dpanalysis", "numpy", "scipy", "torch", *sys.stdlib_module_names}
_MAX_DEPTH = 8  # of nested objects
_MAX_LISTED = 100  # entries of a list that are written out; a longer one has a digest

# The classes that a file may name: no others are instantiated.
_CLASSES: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        *(events.AboveThreshold, events.BoundedRange, events.Epoch, events.Gaussian),
        *(events.GaussianBound, events.Laplace, events.Pure, events.Repeated, events.Sampled),
        *(sampling.Full, sampling.Poisson, sampling.WithoutReplacement),
        *(sampling.WithReplacement, sampling.BallsInBins, sampling.RandomAllocation),
        sampling.Shuffle,
    )
}


def check_resumable(method: Method, budget: Any, replicates: int) -> None:
    """Raise ValueError for a run that cannot be resumed from a file."""
    if isinstance(budget, Filter):
        raise ValueError(
            "budget must be a Budget or None with a checkpoint, which does not record what other "
            f"runs spend, got {budget!r}"
        )
    if "iterates" not in method.released:
        released = " and the ".join(each.removeprefix("the ") for each in method.released)
        raise ValueError(
            f"checkpoint must be None for {method!r}: what it releases is the {released}, and a "
            "file would release what comes before"
        )
    kind = type(method)
    if kind.resume is Method.resume or overridden(kind, ("run",), "resume"):
        raise ValueError(
            f"checkpoint must be None for {method!r}, whose class has no resume() for its run(): "
            "GradientDescent, HeavyBall, Nesterov, MultistageNesterov, SGD, Adam, LineSearchSGD, "
            "LineSearchGD and AdaptiveGD have"
        )
    if replicates != 1 and not method.together:
        raise ValueError(
            f"replicates must be 1 with a checkpoint of {method!r}, which makes one after the "
            f"other, got {replicates!r}"
        )


def check_path(checkpoint: Any, resume: Any) -> Path | None:
    """Return the path of a run's file, None without one, or raise naming the argument."""
    for name, path in (("checkpoint", checkpoint), ("resume", resume)):
        if path is not None and not isinstance(path, str | os.PathLike):
            raise TypeError(f"{name} must be the name of a file or None, got {path!r}")
    given = [Path(path) for path in (checkpoint, resume) if path is not None]
    for path in given:
        if not path.resolve().parent.is_dir():  # not created: the path may be misspelled
            raise FileNotFoundError(
                f"{'resume' if checkpoint is None else 'checkpoint'}: there is no folder "
                f"{path.resolve().parent}"
            )
    if len({os.path.realpath(path) for path in given}) > 1:
        raise ValueError(
            f"checkpoint must be None or the file of resume, {resume}, got {checkpoint}: what is "
            "paid from now on must be in the file that could be resumed again"
        )
    return Path(os.path.realpath(given[0])) if given else None  # os.replace would replace a link


def kind_of_rng(rng: Any) -> str:
    """Return "seeded" for an integer seed, "os" for the system's entropy, else "fresh"."""
    if isinstance(rng, int | np.integer):
        return "seeded"
    return "os" if is_system(rng) else "fresh"


def check_rng_again(rng: Any) -> None:
    """Raise ValueError for a generator that could repeat the noise of an earlier one."""
    if rng is not None and kind_of_rng(rng) == "fresh":
        raise ValueError(
            f"rng must be None, 'os' or an integer with resume, got {rng!r}: made of the same seed "
            "as before, it would give the noise of the first part a second time"
        )


_same_objects: ContextVar[bool] = ContextVar("same_objects", default=False)


@contextmanager
def same_objects() -> Iterator[None]:
    """Let seeded runs resume with objects of incomplete fingerprint: they are the same objects."""
    token = _same_objects.set(True)
    try:
        yield
    finally:
        _same_objects.reset(token)


def fingerprint(value: Any, depth: int = 0) -> Any:
    """Return a JSON fingerprint of a public argument, made of numbers, names and digests."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list) and len(value) <= _MAX_LISTED:
        return [fingerprint(each, depth + 1) for each in value]
    if isinstance(value, np.ndarray | tuple | list):
        array = np.ascontiguousarray(value)
        if array.dtype.hasobject:
            return [fingerprint(each, depth + 1) for each in array.ravel().tolist()]
        return f"{array.shape} {hashlib.sha256(array.tobytes()).hexdigest()}"
    if isinstance(value, np.ufunc):
        name = value.__name__  # those of np.frompyfunc have a user's code
        known = getattr(np, name, None) is value
        return {"class": f"numpy.{name}", **({} if known else {_INCOMPLETE: True})}
    kind = type(value)
    named = value if hasattr(value, "__qualname__") else kind
    about: dict[str, Any] = {"class": f"{named.__module__}.{named.__qualname__}"}
    if isinstance(value, BuiltinFunctionType) and isinstance(value.__self__, ModuleType | None):
        return about
    if isinstance(value, type):
        return about if _is_of_a_library(value) else about | {_INCOMPLETE: True}
    if depth > _MAX_DEPTH:
        return about | {_INCOMPLETE: True}
    ours = str(kind.__module__).startswith(_PACKAGE)
    if isinstance(value, FunctionType):
        parts = _code_of(value)
    elif is_dataclass(value) and (ours or "__dataclass_fields__" in vars(kind)):
        parts = {each.name: getattr(value, each.name) for each in fields(value)}
    else:
        held = getattr(value, "__dict__", {})
        parts = {name: each for name, each in held.items() if name[0] != "_"}
        if held or any(getattr(each, "__slots__", ()) for each in kind.__mro__):
            parts[_INCOMPLETE] = True  # private attributes are left out
    if not isinstance(value, FunctionType) and not ours:
        parts[_INCOMPLETE] = True  # the code of methods is left out
    return about | {name: fingerprint(each, depth + 1) for name, each in parts.items()}


def _is_of_a_library(value: type | ModuleType) -> bool:
    """Return whether a class or a module is not the user's, who may change it between two runs."""
    name = value.__name__ if isinstance(value, ModuleType) else value.__module__
    return name.partition(".")[0] in _LIBRARIES


def _code_of(function: FunctionType) -> dict[str, Any]:
    """Return a digest of a function's code, and the values that the code refers to."""
    code, around = function.__code__, function.__globals__
    used = [around[name] for name in sorted(_names(code)) if name in around]
    kinds = bool | int | float | str | FunctionType | BuiltinFunctionType | np.ufunc
    named = ModuleType | type
    rest = [each for each in used if not (isinstance(each, named) and _is_of_a_library(each))]
    values = [each for each in rest if isinstance(each, kinds)]
    return {
        "code": hashlib.sha256(repr(_code_parts(code)).encode()).hexdigest(),
        "enclosed": [cell.cell_contents for cell in function.__closure__ or ()],
        "defaults": [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()],
        "globals": values,
        **({_INCOMPLETE: True} if len(values) < len(rest) else {}),
    }


def _names(code: CodeType) -> set[str]:
    """Return the global names that a function and its nested functions may use."""
    inside = [_names(each) for each in code.co_consts if isinstance(each, CodeType)]
    return set(code.co_names).union(*inside)


def _code_parts(code: CodeType) -> list[Any]:
    inside = [
        _code_parts(each)
        if isinstance(each, CodeType)
        else sorted(map(repr, each))  # the order of a set differs between processes
        if isinstance(each, frozenset)
        else repr(each)
        for each in code.co_consts
    ]
    return [code.co_code, code.co_names, inside]


def is_complete(settings: Any) -> bool:
    """Return whether a result of :func:`fingerprint` leaves nothing out."""
    if _same_objects.get():
        return True
    if isinstance(settings, Mapping):
        return _INCOMPLETE not in settings and all(map(is_complete, settings.values()))
    return all(map(is_complete, settings)) if isinstance(settings, list) else True


def fingerprint_problem(problem: Problem, facts: PublicFacts, seeded: bool) -> dict[str, Any]:
    """Return the fingerprint of a problem, with the public facts in place of its records.

    For a seeded run it contains what the last bits of a Module's sums depend on.
    """
    public = ("loss", "regularizer", "activation", "hidden", "bias", "n_classes", "row_bounds")
    network, kernels = (getattr(problem, n, None) for n in ("_network", "_kernels"))  # of a Module
    # Known layers, all of them trained, without buffers or augmentation.
    layers = ("direct", 0, None)
    buffers = [] if network is None else list(network.module.buffers())
    ours = [kind for kind in type(problem).__mro__ if kind.__module__.startswith(_PACKAGE)]
    known = not (all(map(isabstract, ours)) or buffers) and (
        network is None
        or layers == (network.forward, *(getattr(problem, n) for n in ("frozen", "_augment")))
    )
    return {
        "class": fingerprint(type(problem))["class"],
        "facts": fingerprint(facts),
        **{name: fingerprint(getattr(problem, name, None)) for name in public},
        "module": None if network is None else _layers(network.module),
        **({_KERNELS: kernels} if seeded and kernels else {}),
        **({} if known else {_INCOMPLETE: True}),
    }


def _layers(module: Any) -> list[Any]:
    """Return the classes and settings of a module's layers; their repr may leave some out."""
    plain = (bool, int, float, str, tuple, type(None))
    return [
        [path, str(type(layer)), {k: repr(v) for k, v in vars(layer).items() if type(v) in plain}]
        for path, layer in module.named_modules()
    ]


class Checkpoint:
    """The last step of a run and all events charged, in a file that stays locked until exit."""

    def __init__(
        self, path: Path, settings: Mapping[str, Any], oracle: PrivateOracle, every: int
    ) -> None:
        self._path, self._settings, self._oracle, self._every = path, settings, oracle, every
        self._seeded = settings["rng"] == "seeded"
        self._process = os.getpid()
        self._held: list[IO[bytes]] = []  # locked; of two, the last one is about to be the file
        self._texts: list[str] = []  # JSON of the runs of equal events that cannot grow any more
        self._charged_since_step = False
        self._charged = 0  # events charged until the last step
        self._on_disk = 0  # events that the file lists
        self.unwritten: OSError | None = None  # why the file lacks the last step
        self.made = 0  # steps
        self.lost = 0  # batches charged after the last step of the file read; they stay charged
        self.w = np.empty(0)  # (R, d), of the last step, as are the states of method and output
        self.state: Mapping[str, Any] = {}
        self.output: Mapping[str, np.ndarray] = {}

    def begin(self, w: np.ndarray) -> None:
        """Create the file of a run that starts from ``w``."""
        self.w = w
        try:
            made = os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        except FileExistsError:
            raise FileExistsError(
                f"checkpoint: {self._path} exists, and may be the only record of what a run has "
                "spent; continue it by resume=, or give another name"
            ) from None
        try:
            self._held.append(_locked(made, self._path))
            self._write()
        except BaseException:
            self._release()
            self._path.unlink()
            raise
        self._oracle.write_ahead(self._write_charge)

    def resume(self) -> None:
        """Read the file, and charge the events that it lists."""
        try:
            opened = os.open(self._path, os.O_RDWR)
        except FileNotFoundError:
            raise FileNotFoundError(
                f"resume: there is no file {self._path}; a run begins with checkpoint="
            ) from None
        self._held.append(_locked(opened, self._path))
        try:
            self._restore(*_read(self._path))
        except BaseException:
            self._release()
            raise
        self._oracle.write_ahead(self._write_charge)

    def _restore(self, about: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        _check_same(self._path, about["settings"], self._settings)
        self.made, self._charged = about["made"], about["bought"]
        self.w = arrays["w"]
        self.state, self.output = _with_prefix("state.", arrays), _with_prefix("output.", arrays)
        runs = [(decoded(event, _CLASSES), count) for event, count in about["events"]]
        if self._seeded:  # batches after the last step are charged again, with the same noise
            runs = list(first_runs(runs, self._charged))
            self._oracle.streams = about["streams"]
        self.lost = sum(count for _, count in runs) - self._charged
        try:
            self._oracle.charge_again(runs, about["noise"])
        except (PrivacyBudgetExceeded, IncompatibleAccounting) as error:
            raise ValueError(
                f"resume: what {self._path} has spent is not what this run would spend: {error}"
            ) from error

    def step(
        self, made: int, w: np.ndarray, state: Mapping[str, Any], output: Mapping[str, np.ndarray]
    ) -> None:
        """Keep the result of a step; it is written at the next charge, or else here."""
        # No file has the remaining batches of an epoch: a seeded run repeats the epoch.
        charged, self._charged_since_step = self._charged_since_step, False
        if self.lost and not charged:
            return
        self.made, self.w, self.state, self.output = made, w, state, output
        self._charged, self.lost = len(self._oracle.ledger), 0
        epoch_left = self._seeded and self._oracle.is_busy
        if not charged and not epoch_left and made % self._every == 0:
            self._write()

    def _write_charge(self) -> None:
        """Write what has just been charged, before it is drawn, and what is planned next."""
        # At its first charge after a step, the streams of a seeded run are still those of the step.
        first, self._charged_since_step = not self._charged_since_step, True
        if len(self._oracle.ledger) <= self._on_disk or (self._seeded and not first):
            return
        guard, ahead = self._oracle.guard, []
        if isinstance(guard, Plan):
            ahead = guard.upcoming(self._every - 1)
        self._write(ahead)

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, *error: object) -> None:
        """Write the last step, which a seeded run repeats instead, and release the lock."""
        try:
            # A fork that ends here would write what was charged before it was made.
            if not self._seeded and self._process == os.getpid():
                self._write()
        except OSError as failure:  # all charges are on disk, so the result need not be lost
            self.unwritten = failure
        finally:
            self._release()

    def _write(self, ahead: Sequence[tuple[Event, int]] = ()) -> None:
        """Replace the file by a complete, locked one; events ``ahead`` count as charged."""
        about = {
            "format": _FORMAT,
            "settings": self._settings,
            "made": self.made,
            "bought": self._charged,
            "noise": self._oracle.ledger.noise,
            "streams": self._oracle.streams if self._seeded else None,
        }
        arrays: dict[str, Any] = {f"output.{name}": each for name, each in self.output.items()}
        arrays |= {f"state.{name}": _numbers(name, each) for name, each in self.state.items()}
        arrays |= {"about": _bytes(json.dumps(about)), "events": _bytes(self._events(ahead))}
        with atomic_write(self._path, "wb") as file:
            np.savez(file, w=self.w, **arrays)
            file.flush()
            os.fsync(file.fileno())
            self._held.append(_locked(os.dup(file.fileno())))
        self._release(kept=1)
        self._on_disk = len(self._oracle.ledger) + sum(count for _, count in ahead)
        if fcntl is not None:  # Windows cannot open a folder to synchronize it
            folder = os.open(self._path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def _events(self, ahead: Sequence[tuple[Event, int]]) -> str:
        """Return the ledger and the events ahead as JSON; the ledger's last run may still grow."""
        runs = self._oracle.ledger.runs[len(self._texts) :]
        texts = [json.dumps([encoded(event, _CLASSES), count]) for event, count in (*runs, *ahead)]
        self._texts += texts[: max(0, len(runs) - 1)]
        return f"[{', '.join([*self._texts, *texts[max(0, len(runs) - 1) :]])}]"

    def _release(self, kept: int = 0) -> None:
        """Close the locked files but the last ``kept``."""
        while len(self._held) > kept:
            self._held.pop(0).close()


def _locked(opened: int, path: Path | None = None) -> IO[bytes]:
    """Lock an open file until it is closed; raise if ``path`` is in use or another file now."""
    file = os.fdopen(opened, "rb")
    if fcntl is None:
        file.close()
        return file
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if path is not None and not os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
            raise BlockingIOError
    except BaseException as error:
        file.close()
        if not isinstance(error, BlockingIOError):
            raise
        raise RuntimeError(
            f"{path} belongs to a run in progress: two runs would both spend on the remaining "
            "steps, and the ledger of each would list them once"
        ) from None
    return file


# Contents of a file


def _numbers(name: str, value: Any) -> np.ndarray:
    """Return a part of a method's state as a numeric array, which can be read without pickle."""
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"state[{name!r}] of a step must be numbers, got {value!r}")
    return array


def _bytes(text: str) -> np.ndarray:
    return np.frombuffer(text.encode(), np.uint8)


def _read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the metadata and the arrays of a file, or raise ValueError naming it."""
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        about = json.loads(arrays.pop("about").tobytes())
        about["events"] = json.loads(arrays.pop("events").tobytes())
        version = about["format"]
    except DAMAGED as error:
        raise ValueError(f"resume: {path} is no checkpoint, or damaged") from error
    if version != _FORMAT:
        raise ValueError(f"resume: {path} has the format {version}, and not {_FORMAT}")
    return about, arrays


def _with_prefix(prefix: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the arrays whose names begin with ``prefix``, without it in their names."""
    return {
        name.removeprefix(prefix): each for name, each in arrays.items() if name.startswith(prefix)
    }


def encoded(value: Any, classes: Mapping[str, Any]) -> Any:
    """Return plain values, and objects of ``classes`` with what they are made of, for JSON."""
    if isinstance(value, np.generic | Decimal | Fraction):
        value = value.item() if isinstance(value, np.generic) else float(value)
    kind = type(value)
    if classes.get(kind.__name__) is kind:
        names = getattr(value, "_fields", ())
        if is_dataclass(value):
            names = [each.name for each in fields(value) if each.init]
        parts = {name: encoded(getattr(value, name), classes) for name in names}
        return {"class": kind.__name__, **parts}
    if isinstance(value, tuple | list):
        return [encoded(each, classes) for each in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(
        f"a file has objects of dpanalysis alone, since it holds no code, got {value!r}"
    )


def decoded(value: Any, classes: Mapping[str, Any]) -> Any:
    """Return what :func:`encoded` described; nothing else than ``classes`` is made from a file."""
    if isinstance(value, list):
        return tuple(decoded(each, classes) for each in value)
    if not isinstance(value, dict):
        return value
    parts = {name: decoded(each, classes) for name, each in value.items() if name != "class"}
    return classes[value["class"]](**parts)


def _check_same(path: Path, then: Any, now: Any) -> None:
    """Raise ValueError naming the arguments that differ from those of the file's run."""
    other = _differences("", then, json.loads(json.dumps(now)))
    if other:
        raise ValueError(
            f"resume: {path} is of a run with another {', '.join(other)}; resume a run with the "
            "arguments that it started with, or start a new one"
        )


def _differences(name: str, then: Any, now: Any) -> list[str]:
    """Return the names of the settings that differ."""
    if not (isinstance(then, dict) and isinstance(now, dict) and then.keys() == now.keys()):
        return [] if repr(then) == repr(now) else [name]
    inner = {key: f"{name}.{key}" if name else key for key in now}
    return [each for key in now for each in _differences(inner[key], then[key], now[key])]
