"""Compiled loops for subsampling, and for uniforms and Gaussian noise on all threads.

Every operation of the noise is rounded separately, in the order written (no ``fastmath``,
polynomials in place of the C library's functions), so the same uniforms give the same noise on
every machine. The loop has no branches, so that it is vectorized, and threads divide long arrays: a
pair of numbers is the same whichever thread computes it.
"""

import math
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

from .._numba import FAST, INNER, finish, first_task, next_task, njit
from .._parallel import run_tasks


@njit(cache=FAST["cache"], nogil=True)
def bernoulli_positions(uniforms, log_keep, start, n, out):  # type: ignore[no-untyped-def]
    """Write the successes of Bernoulli trials ``start..n-1`` to ``out`` by geometric gaps.

    ``uniforms`` lie in (0, 1]; ``log_keep`` is ln(1 - rate) < 0. Returns the number of successes
    written and the next undecided trial (>= n when all are decided).
    """
    written = 0
    position = start
    per_log = 1.0 / log_keep
    for i in range(uniforms.size):
        gap = np.log(uniforms[i]) * per_log
        if gap >= n - position:
            return written, n
        position += np.int64(gap)
        out[written] = position
        written += 1
        position += 1
        if position >= n:
            return written, n
    return written, position


@njit(cache=FAST["cache"], nogil=True)
def mark_distinct(uniforms, n, words, missing):  # type: ignore[no-untyped-def]
    """Mark floor(n u) in the bitmap ``words`` until ``missing`` new ones are marked.

    Returns how many are still missing when the uniforms are used up. Accepting only new
    indices makes every set of the final size equally likely.
    """
    for i in range(uniforms.size):
        if missing == 0:
            break
        index = np.int64(uniforms[i] * n)
        word = index >> 6
        bit = np.uint64(1) << np.uint64(index & 63)
        if words[word] & bit == np.uint64(0):
            words[word] |= bit
            missing -= 1
    return missing


@njit(cache=FAST["cache"], nogil=True)
def read_bitmap(words, n, wanted, out):  # type: ignore[no-untyped-def]
    """Write the indices below ``n`` whose bit equals ``wanted`` to ``out``, ascending.

    ``out`` has one entry more than there are such indices. The first bit of a word is
    written without testing whether there is one: at usual rates most words have none or
    one, at random, and a mispredicted branch costs more than a write.
    """
    written = 0
    flip = np.uint64(0) if wanted else ~np.uint64(0)
    one = np.uint64(1)
    for w in range(words.size):
        word = words[w] ^ flip
        base = w << 6
        if n - base < 64:
            word &= (one << np.uint64(n - base)) - one
        out[written] = base + _trailing_zeros(word)
        written += word != np.uint64(0)
        word &= word - one
        while word != np.uint64(0):
            out[written] = base + _trailing_zeros(word)
            written += 1
            word &= word - one
    return written


@njit(cache=FAST["cache"], nogil=True, inline="always")
def _trailing_zeros(word):  # type: ignore[no-untyped-def]
    """Return the number of trailing zeros of ``word``, by a parallel count of bits."""
    below = ~word & (word - np.uint64(1))
    below -= (below >> np.uint64(1)) & np.uint64(0x5555555555555555)
    pairs = np.uint64(0x3333333333333333)
    below = (below & pairs) + ((below >> np.uint64(2)) & pairs)
    below = (below + (below >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((below * np.uint64(0x0101010101010101)) >> np.uint64(56))


# The sequence of NumPy's PCG64: states are (high, low) words of integers mod 2^128


_MULTIPLIER = (np.uint64(0x2360ED051FC65DA4), np.uint64(0x4385DF649FCCF645))
_TASK = 1 << 13  # numbers, even


@intrinsic
def _high_product(typingctx: Any, a: Any, b: Any) -> Any:
    """Return the upper 64 of the 128 bits of a product."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        wide = ir.IntType(128)
        product = builder.mul(*(builder.zext(arg, wide) for arg in args))
        return builder.trunc(builder.lshr(product, wide(64)), ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), codegen


@njit(forceinline=True, **INNER)
def _affine(x, m, c):  # type: ignore[no-untyped-def]
    """Return m x + c."""
    product = x[1] * m[1]
    low = product + c[1]
    upper: np.uint64 = _high_product(x[1], m[1])  # type: ignore[call-arg]
    return upper + x[0] * m[1] + x[1] * m[0] + c[0] + np.uint64(low < product), low


@njit(**INNER)
def _jump(increment, steps):  # type: ignore[no-untyped-def]
    """Return (m, c): so many steps take a state x to m x + c."""
    zero = np.uint64(0)
    none = (zero, zero)
    m, c = (zero, np.uint64(1)), none
    m_power, c_power = _MULTIPLIER, increment  # of 1, 2, 4, ... steps
    while steps > 0:
        if steps % 2 == 1:
            m, c = _affine(m, m_power, none), _affine(c, m_power, c_power)
        m_power, c_power = _affine(m_power, m_power, none), _affine(c_power, m_power, c_power)
        steps //= 2
    return m, c


@njit(cache=FAST["cache"], nogil=True)
def _state_after(state, increment, steps):  # type: ignore[no-untyped-def]
    m, c = _jump(increment, steps)
    return _affine(state, m, c)


@njit(forceinline=True, **INNER)
def _uniform(state):  # type: ignore[no-untyped-def]
    """Return the number in [0, 1) of a state."""
    word, turn = state[0] ^ state[1], state[0] >> np.uint64(58)
    word = (word >> turn) | (word << ((np.uint64(64) - turn) & np.uint64(63)))
    return (word >> np.uint64(11)) * 2.0**-53


@njit(**INNER)
def _uniforms(state, increment, numbers):  # type: ignore[no-untyped-def]
    """Write the numbers that follow a state; four of the sequence at a time do not wait."""
    a = _affine(state, _MULTIPLIER, increment)
    b = _affine(a, _MULTIPLIER, increment)
    c = _affine(b, _MULTIPLIER, increment)
    d = _affine(c, _MULTIPLIER, increment)
    m, four = _jump(increment, 4)
    for i in range(0, numbers.size - 3, 4):
        numbers[i], numbers[i + 1] = _uniform(a), _uniform(b)
        numbers[i + 2], numbers[i + 3] = _uniform(c), _uniform(d)
        a, b = _affine(a, m, four), _affine(b, m, four)
        c, d = _affine(c, m, four), _affine(d, m, four)
    for i in range(numbers.size // 4 * 4, numbers.size):
        numbers[i] = _uniform(a)
        a = _affine(a, _MULTIPLIER, increment)


def _words(number: int) -> tuple[np.uint64, np.uint64]:
    return np.uint64(number >> 64), np.uint64(number & (2**64 - 1))


# Gaussian noise


_ONE = np.int64(0x3FF0000000000000)  # the bits of 1.0
_ROOT_HALF = np.int64(0x3FE6A09E667F3BCD)  # of sqrt(1/2)
_MANTISSA = np.int64(0x000FFFFFFFFFFFFF)
_LN2 = math.log(2.0)
_SMALL = 2.0**-40


@njit(cache=FAST["cache"], nogil=True, error_model="numpy", inline="always")
def _log(v):  # type: ignore[no-untyped-def]
    """Return ln v for a normal number v in (0, 1], relative error below 1e-15."""
    bits = np.float64(v).view(np.int64) + (_ONE - _ROOT_HALF)
    k = np.float64((bits >> 52) - 1023)
    m = np.int64((bits & _MANTISSA) + _ROOT_HALF).view(np.float64)  # v = 2^k m, m^2 in [1/2, 2)
    s = (m - 1.0) / (m + 1.0)  # ln m = 2 atanh(s)
    t = s * s
    # (2 atanh(s)/s - 2) / s^2, Chebyshev fit on t <= 0.0295 with error 3.1e-16.
    q = 0.15331721600556042 + t * 0.14616449685043406
    q = 0.18182889125261723 + t * q
    q = 0.2222221113479508 + t * q
    q = 0.28571428625975487 + t * q
    q = 0.39999999999899505 + t * q
    q = 0.666666666666667 + t * q
    return k * _LN2 + (2.0 * s + s * (t * q))


@njit(cache=FAST["cache"], nogil=True, error_model="numpy")
def _box_muller(numbers):  # type: ignore[no-untyped-def]
    """Transform pairs of uniforms into normals, in place; return how many are in the far tail."""
    far = 0
    for i in range(numbers.size // 2):
        rest = 1.0 - numbers[2 * i]
        far += rest <= _SMALL
        radius = math.sqrt(-2.0 * _log(rest))
        turn = 4.0 * numbers[2 * i + 1]
        quarter = math.floor(turn)
        f = turn - quarter - 0.5  # quarter turns from the middle of this quadrant
        z = f * f
        # sin(pi f / 2) / f and cos(pi f / 2), Chebyshev fits with errors 4.9e-18 and 4.7e-17.
        s = -3.59864335298231e-06 + z * 5.633933781537854e-08
        s = 0.0001604411507421909 + z * s
        s = -0.004681754132340976 + z * s
        s = 0.07969262624604301 + z * s
        s = -0.6459640975062443 + z * s
        s = f * (1.5707963267948966 + z * s)
        c = -2.520013526428479e-05 + z * 4.6552961874867623e-07
        c = 0.000919259950041661 + z * c
        c = -0.02086348073494657 + z * c
        c = 0.25366950789986475 + z * c
        c = -1.2337005501361513 + z * c
        c = 1.0 + z * c
        # Half circles differ by the sign, the two quadrants of a half by a rotation of pi/2.
        radius = -radius if quarter >= 2.0 else radius
        turned = quarter == 1.0 or quarter == 3.0
        numbers[2 * i] = radius * (-s if turned else c)
        numbers[2 * i + 1] = radius * (c if turned else s)
    return far


@njit(cache=FAST["cache"], nogil=True, error_model="numpy")
def _normal_tasks(numbers, far, start, increment, queue, wake_flags, helper):  # type: ignore[no-untyped-def]
    t = first_task(queue, wake_flags, helper)
    while t < far.size:
        block = numbers[t * _TASK : min(numbers.size, (t + 1) * _TASK)]
        if increment[1] > 0:
            _uniforms(_state_after(start, increment, t * _TASK), increment, block)
        far[t] = _box_muller(block)
        t = next_task(queue)
    finish(queue, far.size, wake_flags, helper)


_NONE = _words(0)


def box_muller(numbers: np.ndarray, start: Any = _NONE, increment: Any = _NONE) -> int:
    """Transform pairs of uniforms in [0, 1) into independent standard normals, in place.

    The first uniform u gives the radius sqrt(-2 ln(1 - u)), the second v the angle
    2 pi (v - 1/8) (G. Box and M. Muller, A note on the generation of random normal deviates,
    1958). Returns how many 1 - u were at most 2^-40. Their radii need more than 53 bits: none of
    those computed here exceeds sqrt(106 ln 2) = 8.58. Uses all threads for long arrays, which also
    compute the uniforms if the increment of PCG64 is given, an odd number.
    """
    if numbers.size <= 2 * _TASK:
        return int(_box_muller(numbers))
    far = np.zeros(-(-numbers.size // _TASK), np.int64)
    run_tasks(_normal_tasks, (numbers, far, start, increment), far.size)
    return int(far.sum())


def standard_normals(random: Any, count: int) -> tuple[np.ndarray, int]:
    """Return :func:`box_muller` of the uniforms ``random.random(count)``, and what it returns.

    All threads compute long arrays of NumPy's PCG64 (M. O'Neill, PCG: a family of simple fast
    space-efficient statistically good algorithms for random number generation, 2014), to the same
    bits: k steps of the generator are an affine function of its state mod 2^128.
    """
    generator = type(random) is np.random.Generator
    if count <= 2 * _TASK or not (generator and type(random.bit_generator) is np.random.PCG64):
        numbers = random.random(count)
        return numbers, box_muller(numbers)
    bits = random.bit_generator
    with bits.lock:
        kept = bits.state
        start, increment = (_words(kept["state"][key]) for key in ("state", "inc"))
        high, low = _state_after(start, increment, count)
        kept["state"]["state"] = (int(high) << 64) + int(low)
        bits.state = kept
    numbers = np.empty(count)
    return numbers, box_muller(numbers, start, increment)
