"""Devices for the tests: a double of CuPy that counts waits of the host, and CuPy itself."""

from types import SimpleNamespace

import array_api_strict
import numpy as np
import pytest

VIEWS = {"broadcast_to", "finfo", "flip", "isdtype", "permute_dims", "reshape"}
WAITS = {"nonzero", "unique_all", "unique_counts", "unique_inverse", "unique_values"}


class Double:
    """A namespace over array_api_strict whose arrays, as those of CuPy, do not mix with NumPy.

    ``waits`` lists how many numbers were read back each time that the host had to wait, and
    ``sent`` how many went to the device; ``calls`` counts operations on the device.
    """

    __name__ = "double"

    def __init__(self):
        self.waits, self.sent, self.products = [], [], []
        self.calls = 0

    def __getattr__(self, name):
        inner = getattr(array_api_strict, name)
        if not callable(inner) or isinstance(inner, type):
            return inner

        def call(*args, **kwargs):
            if name in WAITS:
                self.waits.append(1)
            idle = name in VIEWS or (name == "astype" and args[0].dtype == args[1])
            self.calls += not idle
            kwargs.pop("device", None)
            return self.wrap(inner(*map(unwrap, args), **kwargs))

        return call

    def asarray(self, array, dtype=None, device=None, copy=None):
        if not isinstance(array, Array):
            self.sent.append(np.size(array))
        return self.wrap(array_api_strict.asarray(unwrap(array, np.ndarray), dtype=dtype))

    def wrap(self, result):
        if isinstance(result, array_api_strict._array_object.Array):
            return Array(result, self)
        if isinstance(result, (tuple, list)):
            return type(result)(map(self.wrap, result))
        return result


def unwrap(value, *allowed):
    if isinstance(value, Array):
        return value.inner
    if isinstance(value, (list, tuple)):
        return type(value)(unwrap(each) for each in value)
    if isinstance(value, np.ndarray) and not isinstance(value, allowed):
        raise TypeError(f"Unsupported type {type(value)}")
    return value


class Array:
    """An array of the double; every use of its numbers on the host counts as a wait."""

    __array_ufunc__ = None

    def __init__(self, inner, owner):
        self.inner, self.owner = inner, owner

    def __array_namespace__(self, api_version=None):
        return self.owner

    def __array__(self, *args, **kwargs):
        raise TypeError("Implicit conversion to a NumPy array is not allowed")

    def get(self):
        self.owner.waits.append(self.size)
        return np.array(self.inner)

    def __getattr__(self, name):  # shape, ndim, size, dtype, T, mT
        if name.startswith("_"):
            raise AttributeError(name)
        return self.owner.wrap(getattr(self.inner, name))

    device = SimpleNamespace(name="double:0")

    def __getitem__(self, key):
        parts = key if isinstance(key, tuple) else (key,)
        if any(getattr(part, "dtype", None) == array_api_strict.bool for part in parts):
            self.owner.waits.append(1)  # the size of the result is not known before
        return self.owner.wrap(self.inner[unwrap(key)])

    def __setitem__(self, key, value):
        self.inner[unwrap(key)] = unwrap(value)

    def __matmul__(self, other):
        self.owner.calls += 1
        self.owner.products.append((self.dtype, other.dtype))
        return self.owner.wrap(self.inner @ other.inner)


def _waiting(name):
    def method(self):
        self.owner.waits.append(1)
        return getattr(self.inner, name)()

    return method


def _operator(name):
    def method(self, *others):
        self.owner.calls += 1
        return self.owner.wrap(getattr(self.inner, name)(*map(unwrap, others)))

    return method


for _name in ("bool", "int", "float", "index"):
    setattr(Array, f"__{_name}__", _waiting(f"__{_name}__"))
for _name in "add sub mul truediv pow and or xor lshift rshift".split():  # noqa: SIM905
    for _kind in ("", "r", "i"):
        if _kind + _name != "ipow":
            setattr(Array, f"__{_kind}{_name}__", _operator(f"__{_kind}{_name}__"))
for _name in ("lt", "le", "gt", "ge", "eq", "ne", "neg", "abs", "invert"):
    setattr(Array, f"__{_name}__", _operator(f"__{_name}__"))


def cupy():
    """Return CuPy, or skip the test where it or its device is missing."""
    library = pytest.importorskip("cupy", reason="needs CuPy")
    try:
        count = library.cuda.runtime.getDeviceCount()
    except library.cuda.runtime.CUDARuntimeError as error:
        pytest.skip(f"needs a CUDA device: {error}")
    if not count:
        pytest.skip("needs a CUDA device")
    return library


LIBRARIES = {"strict": lambda: array_api_strict, "double": Double, "cupy": cupy}

#: For ``parametrize``: names of LIBRARIES, of which CuPy needs a GPU.
ANY = ["strict", "double", pytest.param("cupy", marks=pytest.mark.gpu)]
