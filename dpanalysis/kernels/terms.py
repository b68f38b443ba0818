"""The call from a kernel to the function that turns a tile's predictions into terms.

That function is :func:`~dpanalysis.kernels.tile.tile_terms`, compiled for the built-in formulas or
for one's own (:mod:`dpanalysis.kernels.own`). It is no part of a kernel: each kernel, of which
every form of the data has one, is compiled once, and is not compiled again for other formulas. One
call serves a tile of up to 256 samples.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

__all__ = ["terms_at"]


@intrinsic
def _terms_at(
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
    """Call the function at an address on the tile that begins at a place of ``z`` and of ``c``.

    Returns its value, and the number of clipped samples.
    """
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


#: The types that mypy sees of an intrinsic are not those of the call.
terms_at: Any = _terms_at
