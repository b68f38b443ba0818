"""Products of a tile's rows with weights and coefficients, in vector registers.

The compiler does not vectorize loops over few features well: remainders run entry by entry, and the
weights and sums are loaded again for every four rows. So these loops are written in LLVM's vector
types, which it translates for any processor: :data:`LANES` features at a time, the last ones under
a mask, four rows at a time. Weights and sums of rows of up to 32 features stay in registers
for the whole tile.

A row's product is added up in an order that depends on the number of features alone: no operation
may be reordered, and the four rows of a step undergo the same operations. Entries after the last
feature are not loaded, so that no number of another row is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 4
_IN_REGISTERS = 8  # vectors of weights, and of sums, that stay in registers
_FUSED = ("contract",)  # a product and its sum may be rounded once; nothing may be reordered
_WHOLE, _DOUBLE = ir.IntType(64), ir.DoubleType()
_SHORT = ir.IntType(32)
_VECTOR = ir.VectorType(_DOUBLE, LANES)
_ZERO = ir.Constant(_VECTOR, [0.0] * LANES)


def _shuffle(b: Any, x: Any, y: Any, places: Sequence[int]) -> Any:
    """Return the entries at these indices of the concatenation of two vectors."""
    return b.shuffle_vector(x, y, ir.Constant(ir.VectorType(_SHORT, len(places)), list(places)))


def _spread(b: Any, number: Any) -> Any:
    """Return a vector with a number in every entry."""
    kind = ir.VectorType(number.type, LANES)
    first = b.insert_element(ir.Constant(kind, ir.Undefined), number, _SHORT(0))
    return _shuffle(b, first, first, [0] * LANES)


def _at(b: Any, data: Any, place: Any, kind: Any) -> Any:
    """Return the address of a vector that starts at an entry of an array."""
    return b.bitcast(b.gep(data, [place]), kind.as_pointer())


def _load(b: Any, data: Any, place: Any) -> Any:
    return b.load(_at(b, data, place, _VECTOR), align=8)


def _store(b: Any, vector: Any, data: Any, place: Any) -> None:
    b.store(vector, _at(b, data, place, vector.type), align=8)


def _add_product(b: Any, x: Any, y: Any, total: Any) -> Any:
    return b.fadd(b.fmul(x, y, flags=_FUSED), total, flags=_FUSED)


def _sums_of_four(b: Any, vectors: Sequence[Any]) -> Any:
    """Return the sums of four vectors as one; each is added up in the same order."""

    def pairs(x: Any, y: Any) -> Any:
        return b.fadd(_shuffle(b, x, y, (0, 4, 2, 6)), _shuffle(b, x, y, (1, 5, 3, 7)))

    v0, v1, v2, v3 = vectors
    x, y = pairs(v0, v1), pairs(v2, v3)
    return b.fadd(_shuffle(b, x, y, (0, 1, 4, 5)), _shuffle(b, x, y, (2, 3, 6, 7)))


class _Rows:
    """Rows of a C-ordered matrix, read by vectors of doubles; the last one is masked."""

    def __init__(self, context: Any, b: Any, kind: Any, X: Any, index: Any) -> None:
        view = context.make_array(kind)(context, b, X)
        self.b, self.data, self.index = b, view.data, index
        self.d = cgutils.unpack_tuple(b, view.shape)[1]
        self.item = view.data.type.pointee
        self.vectors = b.udiv(b.add(self.d, _WHOLE(LANES - 1)), _WHOLE(LANES))
        self.last = b.mul(b.sub(self.vectors, _WHOLE(1)), _WHOLE(LANES))
        places = ir.Constant(ir.VectorType(_WHOLE, LANES), list(range(LANES)))
        self.mask = b.icmp_signed("<", places, _spread(b, b.sub(self.d, self.last)))

    def four(self, k: Any) -> list[Any]:
        """Return the addresses of the rows ``index[k] .. index[k + 3]``."""
        b = self.b
        places = [b.load(b.gep(self.index, [b.add(k, _WHOLE(r))])) for r in range(4)]
        return [b.gep(self.data, [b.mul(place, self.d)]) for place in places]

    def load(self, row: Any, j: Any, last: bool) -> Any:
        """Return the features of a row from ``j`` on as doubles; 0 beyond its end."""
        b, kind, size = self.b, ir.VectorType(self.item, LANES), 8 if self.item == _DOUBLE else 4
        address = _at(b, row, j, kind)
        if last:
            name = f"llvm.masked.load.v{LANES}f{8 * size}.p0"
            given = [address, _SHORT(size), self.mask, ir.Constant(kind, [0.0] * LANES)]
            call = ir.FunctionType(kind, [each.type for each in given])
            x = b.call(cgutils.get_or_insert_function(b.module, call, name), given)
        else:
            x = b.load(address, align=size)
        return x if self.item == _DOUBLE else b.fpext(x, _VECTOR)

    def widths(self) -> Iterator[int]:
        """Build a branch per number of vectors that fit in registers, and one (0) for more."""
        for count in range(1, _IN_REGISTERS + 1):
            with self.b.if_then(self.b.icmp_signed("==", self.vectors, _WHOLE(count))):
                yield count
        with self.b.if_then(self.b.icmp_signed(">", self.vectors, _WHOLE(_IN_REGISTERS))):
            yield 0

    def each_vector(self, count: int, body: Callable[[Any, bool], None]) -> None:
        """Build ``body`` for each vector of a row: unrolled if there are ``count``, else a loop."""
        if count:
            for v in range(count):
                body(_WHOLE(LANES * v), v == count - 1)
            return
        step = _WHOLE(LANES)
        with cgutils.for_range_slice(self.b, _WHOLE(0), self.last, step, inc=True) as (j, _):
            body(j, False)
        body(self.last, True)


class _Kept:
    """Vectors of an array, by the index of their first entry; in registers if ``count`` > 0."""

    def __init__(self, b: Any, data: Any, count: int) -> None:
        self.b, self.data, self.count = b, data, count
        self.variables = [cgutils.alloca_once(b, _VECTOR) for _ in range(count)]
        for v, variable in enumerate(self.variables):
            b.store(_load(b, data, _WHOLE(LANES * v)), variable)

    def get(self, j: Any) -> Any:
        if self.variables:
            return self.b.load(self.variables[j.constant // LANES])
        return _load(self.b, self.data, j)

    def set(self, j: Any, vector: Any) -> None:
        if self.variables:
            self.b.store(vector, self.variables[j.constant // LANES])
        else:
            _store(self.b, vector, self.data, j)

    def write(self) -> None:
        """Write the registers back to the array."""
        for v, variable in enumerate(self.variables):
            _store(self.b, self.b.load(variable), self.data, _WHOLE(LANES * v))


def _new_sums(b: Any) -> list[Any]:
    """Return four vectors of zeros, as variables."""
    sums = [cgutils.alloca_once(b, _VECTOR) for _ in range(4)]
    for each in sums:
        b.store(_ZERO, each)
    return sums


@contextmanager
def _fours(b: Any, count: Any) -> Iterator[Any]:
    """Build a loop over k = 0, 4, .. below ``count``."""
    with cgutils.for_range_slice(b, _WHOLE(0), count, _WHOLE(4), inc=True) as (k, _):
        yield k


def _array(context: Any, b: Any, signature: Any, args: Any, k: int) -> Any:
    return context.make_array(signature.args[k])(context, b, args[k]).data


@intrinsic
def _predict(typingctx: Any, X: Any, index: Any, quads: Any, w: Any, z: Any) -> Any:
    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        index, w, z = (_array(context, b, signature, args, k) for k in (1, 3, 4))
        rows = _Rows(context, b, signature.args[0], args[0], index)

        def four_rows(k: Any, weights: _Kept) -> None:
            four, sums = rows.four(k), _new_sums(b)

            def add(j: Any, last: bool) -> None:
                weight = weights.get(j)
                for row, total in zip(four, sums):
                    product = _add_product(b, rows.load(row, j, last), weight, b.load(total))
                    b.store(product, total)

            rows.each_vector(weights.count, add)
            _store(b, _sums_of_four(b, [b.load(total) for total in sums]), z, k)

        for count in rows.widths():
            weights = _Kept(b, w, count)
            with _fours(b, args[2]) as k:
                four_rows(k, weights)
        return context.get_dummy_value()

    return types.void(X, index, types.int64, w, z), codegen


@intrinsic
def _add_rows(
    typingctx: Any,
    X: Any,
    index: Any,
    quads: Any,
    c: Any,
    total: Any,
    squares: Any,
    sizes: Any,
    sized: Any,
) -> Any:
    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        arrays = (_array(context, b, signature, args, k) for k in (1, 3, 4, 5, 6))
        index, c, total, squares, sizes = arrays
        rows, sized = _Rows(context, b, signature.args[0], args[0], index), args[7]
        kind = ir.FunctionType(_VECTOR, [_VECTOR])
        magnitude = cgutils.get_or_insert_function(b.module, kind, f"llvm.fabs.v{LANES}f64")

        def four_rows(k: Any, totals: _Kept, measured: bool) -> None:
            four, sums, lengths = rows.four(k), _new_sums(b), _new_sums(b)
            places = [b.add(k, _WHOLE(r)) for r in range(4)]
            c0, c1, c2, c3 = (_spread(b, b.load(b.gep(c, [place]))) for place in places)

            def add(j: Any, last: bool) -> None:
                x = [rows.load(row, j, last) for row in four]
                first = _add_product(b, x[0], c0, b.fmul(x[1], c1))
                second = _add_product(b, x[2], c2, _add_product(b, x[3], c3, totals.get(j)))
                totals.set(j, b.fadd(first, second))
                for each, square in zip(x, sums):
                    b.store(_add_product(b, each, each, b.load(square)), square)
                for each, length in zip(x, lengths) if measured else ():
                    b.store(b.fadd(b.call(magnitude, [each]), b.load(length)), length)

            rows.each_vector(totals.count, add)
            _store(b, _sums_of_four(b, [b.load(square) for square in sums]), squares, k)
            if measured:
                _store(b, _sums_of_four(b, [b.load(length) for length in lengths]), sizes, k)

        # Separate loops for both cases, since a branch inside them would be slower.
        for measured in (False, True):
            with b.if_then(sized if measured else b.not_(sized)):
                for count in rows.widths():
                    totals = _Kept(b, total, count)
                    with _fours(b, args[2]) as k:
                        four_rows(k, totals, measured)
                    totals.write()
        return context.get_dummy_value()

    return types.void(X, index, types.int64, c, total, squares, sizes, types.boolean), codegen


#: ``predict(X, index, quads, w, z)`` writes the products of the rows ``index[:quads]`` with ``w``
#: into ``z``. ``quads`` is a multiple of four, and ``w`` is padded with zeros to whole vectors.
#: Typed as Any: the signature of an intrinsic is not that of its calls.
predict: Any = _predict

#: ``add_rows(X, index, quads, c, total, squares, sizes, sized)`` adds the rows times ``c`` to
#: ``total``, which is padded to whole vectors, and writes the sums of squares of the numbers it
#: added and, if ``sized``, of their sizes.
add_rows: Any = _add_rows
