"""Fingerprints: what a checkpoint knows of functions, classes and modules of users."""

import dataclasses
import functools
import math
import os
import subprocess
import sys

import numpy as np
import pytest

import dpanalysis as dpa
from dpanalysis.experiments import checkpoint as files

HALF, TABLE = 0.5, np.ones(3)


class Free:
    def __init__(self, center):
        self.center = center

    def value(self, z, y):
        return z - self.center


@dataclasses.dataclass
class Scaled:
    scale: float


def test_a_user_s_class_of_the_name_of_ours_is_not_written():
    own = type("Poisson", (dpa.Poisson,), {})(0.1)
    with pytest.raises(TypeError, match="a file has objects of dpanalysis alone"):
        files.encoded([own], files._CLASSES)


def test_functions_of_users_in_a_ufunc_are_not_known():
    assert files.fingerprint(np.exp) == {"class": "numpy.exp"}
    made = np.frompyfunc(lambda norm, loss: norm, 2, 1)
    assert files._INCOMPLETE in files.fingerprint(made)


def test_modules_with_other_settings_of_their_layers_differ():
    """The repr of average pooling leaves ``count_include_pad`` out."""
    nn = pytest.importorskip("torch", reason="PyTorch is not installed").nn
    both = (nn.Sequential(nn.AvgPool2d(2, count_include_pad=flag)) for flag in (True, False))
    assert files._layers(next(both)) != files._layers(next(both))


def test_fingerprints_of_functions():
    def made(scale=1.0, most=1):
        def function(t, scale=scale, *, most=most):
            return scale / t if t in {"a", "b"} else most

        return function

    def enclosing(k):
        return lambda t: k / t

    base = made()
    assert files.fingerprint(base) == files.fingerprint(made())
    assert files.fingerprint(base) != files.fingerprint(made(scale=2.0))
    assert files.fingerprint(base) != files.fingerprint(made(most=2))
    assert files.fingerprint(enclosing(1.0)) == files.fingerprint(enclosing(1.0))
    assert files.fingerprint(enclosing(1.0)) != files.fingerprint(enclosing(2.0))
    complete = lambda t: HALF / t + np.pi  # noqa: E731
    incomplete = lambda t: TABLE[0] / t  # noqa: E731
    assert files.is_complete(files.fingerprint(complete)) and files.is_complete(
        files.fingerprint(base)
    )
    ours = dpa.ERM(np.eye(2), np.ones(2), dpa.losses.Logistic())  # its records are private
    partial = functools.partial(base, 2.0)
    for value in (incomplete, Free(1.0), partial, enclosing(Free(1.0)), ours):
        assert not files.is_complete(files.fingerprint([value]))
    for library in (math.sqrt, np.exp, min):
        assert files.is_complete(files.fingerprint(library))
    assert files.fingerprint(math.sqrt) != files.fingerprint(math.exp)
    assert not files.is_complete(files.fingerprint([[].append, Free(1.0).value]))
    within = lambda t: [HALF for _ in range(t)] + [max(x, TABLE[0]) for x in range(t)]  # noqa: E731
    assert not files.is_complete(files.fingerprint(within))  # of a function in a function, too
    for other in (lambda t: Free(t), lambda t: pytest.approx(t)):
        assert not files.is_complete(files.fingerprint(other))  # classes and modules of others
    assert not files.is_complete(files.fingerprint(Scaled(1.0)))  # a data class may change, too
    deep = functools.reduce(lambda inner, _: [inner], range(20), Free(1.0))
    assert not files.is_complete(files.fingerprint(deep))
    assert files.fingerprint(np.float32(0.5)) == 0.5 and files.fingerprint(np.int64(3)) == 3
    functions = [complete, base, math.sqrt]
    assert files.fingerprint(np.array(functions, dtype=object)) == files.fingerprint(functions)
    long = (None,) * 200
    assert files.fingerprint(long) == files.fingerprint(list(long)) != files.fingerprint((1,) * 200)


def test_fingerprints_of_functions_are_the_same_in_every_process():
    code = (
        "from dpanalysis.experiments.checkpoint import fingerprint\n"
        "def f(t):\n    return max(1.0 if x in {'a', 'b', 'c'} else 2.0 for x in t)\n"
        "print(fingerprint(f))"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", "\n" * int(seed) + code],  # the function may move
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(said) == 1
