"""The terms of a tile: built-in formulas are part of the kernel, those from outside are called.

A kernel that is compiled for a loss of somebody else takes seconds, and every form of the data has
one. So formulas from outside are compiled alone, as one function of a tile
(:mod:`dpanalysis.kernels.own`), and the kernels, which are kept on disk, call it by its address.
The call costs a few nanoseconds and a tile has up to 256 samples.

Which of the two a kernel does follows from the type of its ``rule``: the flat numbers of
:func:`~dpanalysis.kernels.tile.split_rule`, or ``(address, numbers)``. The owner of the function
keeps it for as long as the address is in use.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import carray, cfunc, types
from numba.core import cgutils
from numba.extending import intrinsic, overload
from numba.np.unsafe.ndarray import to_fixed_tuple

from .scalar import FAST
from .tile import TABLE_ROWS, built_in_terms

# Compiled with scalar.py, sha256 bf3f66e93e22f545
# Compiled with tile.py, sha256 fe983ad4240e19b1

__all__ = ["callable_terms", "tile_terms"]

_NUMBERS, _COUNTS = types.CPointer(types.float64), types.CPointer(types.int64)
# value = f(numbers, want_value, want_gradient, z, table, its columns, count, c, clipped)
_SIGNATURE = types.float64(
    _NUMBERS,
    types.int64,
    types.int64,
    _NUMBERS,
    _NUMBERS,
    types.int64,
    types.int64,
    _NUMBERS,
    _COUNTS,
)
_OPTIONS: Any = {key: option for key, option in FAST.items() if key != "cache"}


def tile_terms(
    rule: Any,
    want_value: bool,
    want_gradient: bool,
    z: Any,
    at: int,
    table: Any,
    count: int,
    c: Any,
) -> Any:
    """Return what :func:`~dpanalysis.kernels.tile.built_in_terms` does, by the rule's formulas."""
    raise NotImplementedError("kernels are compiled")


# No types are written here: Numba would have them be the same in all three.
@overload(tile_terms, jit_options={**_OPTIONS, "forceinline": True})
def _tile_terms(rule, want_value, want_gradient, z, at, table, count, c):  # type: ignore[no-untyped-def]
    def built_in(rule, want_value, want_gradient, z, at, table, count, c):  # type: ignore[no-untyped-def]
        return built_in_terms(rule, want_value, want_gradient, z, at, table, count, c)

    def called(rule, want_value, want_gradient, z, at, table, count, c):  # type: ignore[no-untyped-def]
        address, numbers = rule
        return _call(  # type: ignore[call-arg]
            address, numbers, int(want_value), int(want_gradient), z, at, table, count, c
        )

    return called if len(rule) == 2 else built_in


@intrinsic
def _call(
    typingctx: Any,
    address: Any,
    numbers: Any,
    want_value: Any,
    want_gradient: Any,
    z: Any,
    at: Any,
    table: Any,
    count: Any,
    c: Any,
) -> Any:
    """Call the function at an address; return its value, and what it counted."""
    whole = types.int64
    result = types.Tuple((types.float64, whole))

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        def array(k: int) -> Any:
            return context.make_array(signature.args[k])(context, builder, args[k])

        address, _, want_value, want_gradient, _, at, _, count, _ = args
        numbers, z, table, c = (array(k) for k in (1, 4, 6, 8))
        clipped = cgutils.alloca_once_value(builder, context.get_constant(whole, 0))
        given = [
            numbers.data,
            want_value,
            want_gradient,
            builder.gep(z.data, [at]),
            table.data,
            cgutils.unpack_tuple(builder, table.shape)[1],
            count,
            builder.gep(c.data, [at]),
            clipped,
        ]
        kind = ir.FunctionType(ir.DoubleType(), [each.type for each in given])
        value = builder.call(builder.inttoptr(address, kind.as_pointer()), given)
        return context.make_tuple(builder, result, [value, builder.load(clipped)])

    return result(whole, numbers, whole, whole, z, whole, table, whole, c), codegen


def callable_terms(terms: Any, length: int) -> Any:
    """Return compiled terms of a tile as a function with an ``address``.

    Parameters
    ----------
    terms : compiled function
        Takes what :func:`tile_terms` takes.
    length : int
        Of its rule, a tuple of numbers.
    """

    @cfunc(_SIGNATURE)
    def function(  # type: ignore[no-untyped-def]
        numbers, want_value, want_gradient, z, table, columns, count, c, clipped
    ):
        value, clipped[0] = terms(
            to_fixed_tuple(carray(numbers, length), length),  # type: ignore[call-arg]
            want_value != 0,
            want_gradient != 0,
            carray(z, count),
            0,
            carray(table, (TABLE_ROWS, columns)),
            count,
            carray(c, count),
        )
        return value

    return function
