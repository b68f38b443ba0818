"""Products of a tile's rows with weights and coefficients, in vector registers.

The compiler does not vectorize loops over few features well: remainders run entry by entry, and the
weights and sums are loaded again for every four rows. So these loops are written in LLVM's vector
types, which it translates for any processor: :data:`LANES` features at a time, the last ones under
a mask, four rows at a time (eight in predictions of longer rows, whose sums would wait for each
other). Weights and sums of rows of up to 32 features stay in registers for the whole tile.

Meanwhile the next tile is prefetched, half of its rows by each of the two passes, or all of them by
the first one, into the second level of cache: the first level has too few buffers for lines that
are on their way from memory.

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
_LINE_BYTES = 64  # size of a cache line
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


def prefetch_line(b: Any, address: Any) -> None:
    """Prefetch the cache line of an address into the second level, if there is one."""
    call = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, _SHORT, _SHORT, _SHORT])
    function = cgutils.get_or_insert_function(b.module, call, "llvm.prefetch.p0")
    read, second_level, data = _SHORT(0), _SHORT(2), _SHORT(1)
    b.call(function, [b.bitcast(address, cgutils.voidptr_t), read, second_level, data])


class _Rows:
    """Rows of a C-ordered matrix, read by vectors of doubles; the last one is masked."""

    def __init__(self, context: Any, b: Any, kind: Any, X: Any) -> None:
        view = context.make_array(kind)(context, b, X)
        self.b, self.data = b, view.data
        self.d = cgutils.unpack_tuple(b, view.shape)[1]
        self.item = view.data.type.pointee
        self.vectors = b.udiv(b.add(self.d, _WHOLE(LANES - 1)), _WHOLE(LANES))
        self.last = b.mul(b.sub(self.vectors, _WHOLE(1)), _WHOLE(LANES))
        places = ir.Constant(ir.VectorType(_WHOLE, LANES), list(range(LANES)))
        self.mask = b.icmp_signed("<", places, _spread(b, b.sub(self.d, self.last)))

    def addresses(self, index: Any, k: Any, which: Sequence[int]) -> list[Any]:
        """Return the addresses of the rows ``index[k + r]`` for each r in ``which``."""
        b = self.b
        places = [b.load(b.gep(index, [b.add(k, _WHOLE(r))])) for r in which]
        return [b.gep(self.data, [b.mul(place, self.d)]) for place in places]

    def prefetch(self, soon: Sequence[tuple[Any, Sequence[Any]]], j: Any) -> None:
        """Prefetch the cache line of an entry of each row, of the parts whose condition holds."""
        for wanted, addresses in soon:
            with self.b.if_then(wanted):
                for row in addresses:
                    prefetch_line(self.b, self.b.gep(row, [j]))

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

    def widths(self, far: Any) -> Iterator[tuple[int, Any]]:
        """Build a branch per number of vectors that fit in registers, and two (0) for more.

        The second result is ``far``, or True or False in the branches for more.
        """
        for count in range(1, _IN_REGISTERS + 1):
            with self.b.if_then(self.b.icmp_signed("==", self.vectors, _WHOLE(count))):
                yield count, far
        more = self.b.icmp_signed(">", self.vectors, _WHOLE(_IN_REGISTERS))
        for known in (True, False):
            with self.b.if_then(self.b.and_(more, far if known else self.b.not_(far))):
                yield 0, known

    def each_vector(
        self, count: int, body: Callable[[Any, bool], None], far: Any, soon: Sequence[Any]
    ) -> None:
        """Build ``body`` for each vector of a row: unrolled if there are ``count``, else a loop.

        If ``far``, rows are prefetched meanwhile; ``soon`` has their addresses in parts, each with
        a condition.
        """
        b, line = self.b, _LINE_BYTES // (8 if self.item == _DOUBLE else 4)
        if count:
            with b.if_then(far):
                for j in range(0, LANES * count, line):
                    self.prefetch(soon, _WHOLE(j))
            for v in range(count):
                body(_WHOLE(LANES * v), v == count - 1)
            return
        whole = _WHOLE(0)
        if far:  # by cache lines
            whole = b.and_(self.last, _WHOLE(-line))
            with cgutils.for_range_slice(b, _WHOLE(0), whole, _WHOLE(line), inc=True) as (j, _):
                self.prefetch(soon, j)
                for v in range(0, line, LANES):
                    body(b.add(j, _WHOLE(v)), False)
            self.prefetch(soon, whole)
        with cgutils.for_range_slice(b, whole, self.last, _WHOLE(LANES), inc=True) as (j, _):
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


def _new_sums(b: Any, count: int = 4) -> list[Any]:
    """Return vectors of zeros, as variables."""
    sums = [cgutils.alloca_once(b, _VECTOR) for _ in range(count)]
    for each in sums:
        b.store(_ZERO, each)
    return sums


@contextmanager
def _groups(b: Any, start: Any, stop: Any, size: int = 4) -> Iterator[Any]:
    """Build a loop over the first rows of groups of a size."""
    with cgutils.for_range_slice(b, start, stop, _WHOLE(size), inc=True) as (k, _):
        yield k


def _array(context: Any, b: Any, signature: Any, args: Any, k: int) -> Any:
    return context.make_array(signature.args[k])(context, b, args[k]).data


@intrinsic
def _predict(
    typingctx: Any, X: Any, index: Any, quads: Any, w: Any, z: Any, far: Any, ahead: Any, alone: Any
) -> Any:
    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        index, w, z, ahead = (_array(context, b, signature, args, k) for k in (1, 3, 4, 6))
        rows = _Rows(context, b, signature.args[0], args[0])

        def group(size: int, k: Any, weights: _Kept, far: Any) -> None:
            members, sums = rows.addresses(index, k, range(size)), _new_sums(b, size)
            conditions = cgutils.true_bit, args[7]
            soon = [
                (wanted, rows.addresses(ahead, k, range(start, size, 2)))
                for start, wanted in enumerate(conditions)
            ]

            def add(j: Any, last: bool) -> None:
                weight = weights.get(j)
                for row, total in zip(members, sums):
                    product = _add_product(b, rows.load(row, j, last), weight, b.load(total))
                    b.store(product, total)

            rows.each_vector(weights.count, add, far, soon)
            for r in range(0, size, 4):
                four = [b.load(total) for total in sums[r : r + 4]]
                _store(b, _sums_of_four(b, four), z, b.add(k, _WHOLE(r)))

        for count, far in rows.widths(args[5]):
            weights = _Kept(b, w, count)
            grouped = _WHOLE(0)
            if not count:
                long = b.icmp_signed(">", rows.vectors, _WHOLE(2 * _IN_REGISTERS))
                grouped = b.select(long, b.and_(args[2], _WHOLE(-8)), grouped)
                with _groups(b, _WHOLE(0), grouped, 8) as k:
                    group(8, k, weights, far)
            with _groups(b, grouped, args[2]) as k:
                group(4, k, weights, far)
        return context.get_dummy_value()

    flag = types.boolean
    return types.void(X, index, types.int64, w, z, flag, ahead, flag), codegen


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
    far: Any,
    ahead: Any,
) -> Any:
    def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
        arrays = (_array(context, b, signature, args, k) for k in (1, 3, 4, 5, 6, 9))
        index, c, total, squares, sizes, ahead = arrays
        rows, sized = _Rows(context, b, signature.args[0], args[0]), args[7]
        kind = ir.FunctionType(_VECTOR, [_VECTOR])
        magnitude = cgutils.get_or_insert_function(b.module, kind, f"llvm.fabs.v{LANES}f64")

        def four_rows(k: Any, totals: _Kept, measured: bool, far: Any) -> None:
            four, sums, lengths = rows.addresses(index, k, range(4)), _new_sums(b), _new_sums(b)
            soon = [(cgutils.true_bit, rows.addresses(ahead, k, (1, 3)))]
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

            rows.each_vector(totals.count, add, far, soon)
            _store(b, _sums_of_four(b, [b.load(square) for square in sums]), squares, k)
            if measured:
                _store(b, _sums_of_four(b, [b.load(length) for length in lengths]), sizes, k)

        # Separate loops for both cases, since a branch inside them would be slower.
        for measured in (False, True):
            with b.if_then(sized if measured else b.not_(sized)):
                for count, far in rows.widths(args[8]):
                    totals = _Kept(b, total, count)
                    with _groups(b, _WHOLE(0), args[2]) as k:
                        four_rows(k, totals, measured, far)
                    totals.write()
        return context.get_dummy_value()

    flag = types.boolean
    kinds = X, index, types.int64, c, total, squares, sizes, flag, flag, ahead
    return types.void(*kinds), codegen


#: ``predict(X, index, quads, w, z, far, ahead, alone)`` writes the products of the rows
#: ``index[:quads]`` with ``w`` into ``z``. ``quads`` is a multiple of four, and ``w`` is padded
#: with zeros to whole vectors. If ``far``, it prefetches every other row of ``ahead[:quads]``, or
#: every row if ``alone``.
#: Typed as Any: the signature of an intrinsic is not that of its calls.
predict: Any = _predict

#: ``add_rows(X, index, quads, c, total, squares, sizes, sized, far, ahead)`` adds the rows times
#: ``c`` to ``total``, which is padded to whole vectors, and writes the sums of squares of the
#: numbers it added and, if ``sized``, of their sizes. If ``far``, it prefetches the rows between
#: those that predictions prefetch.
add_rows: Any = _add_rows
