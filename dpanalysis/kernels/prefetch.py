"""Asking the cache for data that will be needed soon.

A pass over the data goes by tiles, and while it turns predictions into losses it loads
nothing: memory would stand idle. The rows of a minibatch lie where no hardware foresees them.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

__all__ = ["LINE_BYTES", "prefetch"]

LINE_BYTES = 64


@intrinsic
def prefetch(typingctx: Any, array: Any, i: Any, j: Any) -> Any:
    """Ask for the cache line of ``array[i, j]``; it has no value, and cannot fail."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = signature.args[0]
        view = context.make_array(kind)(context, builder, args[0])
        item = cgutils.get_item_pointer(
            context, builder, kind, view, args[1:], wraparound=False, boundscheck=False
        )
        number = ir.IntType(32)
        call = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, number, number, number])
        function = cgutils.get_or_insert_function(builder.module, call, "llvm.prefetch.p0")
        read, keep, data = number(0), number(3), number(1)
        builder.call(function, [builder.bitcast(item, cgutils.voidptr_t), read, keep, data])
        return context.get_dummy_value()

    return types.void(array, types.int64, types.int64), codegen
