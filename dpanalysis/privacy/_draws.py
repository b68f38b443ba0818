"""Compiled kernels of the subsampling draws, fed with uniforms so that any source serves."""

import numpy as np
from numba import njit

from .._compiling import CACHE

__all__ = ["bernoulli_positions", "mark_distinct", "read_bitmap"]


@njit(cache=CACHE, nogil=True)
def bernoulli_positions(uniforms, log_keep, start, n, out):  # type: ignore[no-untyped-def]
    """Write the successes of Bernoulli trials ``start..n-1`` to ``out`` by geometric gaps.

    ``uniforms`` lie in (0, 1]; ``log_keep`` is ln(1 - rate) < 0. Returns how many were
    written and the next trial not yet decided (>= n when all are).
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


@njit(cache=CACHE, nogil=True)
def mark_distinct(uniforms, n, words, missing):  # type: ignore[no-untyped-def]
    """Mark floor(n u) in the bitmap ``words`` until ``missing`` new ones are marked.

    Returns how many are still missing when the uniforms are used up. Accepting an
    index only when it is new makes every set of the final size equally likely.
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


@njit(cache=CACHE, nogil=True)
def read_bitmap(words, n, wanted, out):  # type: ignore[no-untyped-def]
    """Write the indices below ``n`` whose bit equals ``wanted`` to ``out``, ascending.

    ``out`` has one entry more than there are such indices. The first bit of a word is
    written without asking whether there is one: at usual rates most words hold none or
    one, at random, and a wrongly predicted branch costs more than a write.
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


@njit(cache=CACHE, nogil=True, inline="always")
def _trailing_zeros(word):  # type: ignore[no-untyped-def]
    """Return how many zeros end ``word``: the ones below its lowest one, counted in parallel."""
    below = ~word & (word - np.uint64(1))
    below -= (below >> np.uint64(1)) & np.uint64(0x5555555555555555)
    pairs = np.uint64(0x3333333333333333)
    below = (below & pairs) + ((below >> np.uint64(2)) & pairs)
    below = (below + (below >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((below * np.uint64(0x0101010101010101)) >> np.uint64(56))
