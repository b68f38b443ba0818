"""Compiled kernels of the subsampling draws, fed with uniforms so that any source serves."""

import numpy as np
from numba import njit

__all__ = ["bernoulli_positions", "smallest_distinct"]


@njit(cache=True, nogil=True)
def bernoulli_positions(uniforms, log_keep, start, n, out):  # type: ignore[no-untyped-def]
    """Write the successes of Bernoulli trials ``start..n-1`` to ``out`` by geometric gaps.

    ``uniforms`` lie in [0, 1); ``log_keep`` is ln(1 - rate) < 0. Returns how many were
    written and the next trial not yet decided (>= n when all are).
    """
    written = 0
    position = start
    for i in range(uniforms.size):
        gap = np.log1p(-uniforms[i]) / log_keep
        if gap >= n - position:
            return written, n
        position += np.int64(gap)
        out[written] = position
        written += 1
        position += 1
        if position >= n:
            return written, n
    return written, position


@njit(cache=True, nogil=True)
def smallest_distinct(uniforms, n, words, missing):  # type: ignore[no-untyped-def]
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


@njit(cache=True, nogil=True)
def read_bitmap(words, n, wanted, out):  # type: ignore[no-untyped-def]
    """Write the indices below ``n`` whose bit equals ``wanted`` to ``out``, ascending."""
    written = 0
    flip = np.uint64(0) if wanted else ~np.uint64(0)
    for w in range(words.size):
        word = words[w] ^ flip
        base = w << 6
        while word != np.uint64(0):
            low = word & (~word + np.uint64(1))
            # Position of the lowest set bit by counting the ones below it.
            below = low - np.uint64(1)
            count = 0
            while below != np.uint64(0):
                below &= below - np.uint64(1)
                count += 1
            if base + count >= n:
                return written
            out[written] = base + count
            written += 1
            word ^= low
    return written
