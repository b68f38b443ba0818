"""A counter-based generator in array-API calls, which draws noise on the device of the data.

Philox 4x32 with ten rounds (J. Salmon, M. Moraes, R. Dror, D. Shaw, Parallel random numbers: as
easy as 1, 2, 3, SC 2011) scrambles a counter of 128 bits by a key of 64 bits, and no two counters
give the same block. A stream is identified by its key and the upper half of its counter; the lower
half counts the blocks.

Every namespace and every device gives the same bits. Normal and Laplace numbers may differ in
their last places, because each namespace has its own logarithm and cosine.

Tails have full precision, as on the host (:mod:`dpanalysis.privacy.noise`), without synchronizing
with the device. A uniform number below 2^-40 takes all 64 bits of its word, followed by the 128
bits of one more block, which the numbers of a row share. So tails end at 2^-192. Sharing matters
only if two numbers in a row of d are below 2^-54, which has probability below d^2 2^-109.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

SEED_WORDS = 4  # of 32 bits: the key, and the upper half of the counter

_ROUNDS = 10
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = np.array([0x9E3779B9, 0xBB67AE85], dtype=np.uint64)
_WORD = 0xFFFFFFFF
_TAIL = 2**24  # words below have 40 leading zeros, where numbers of 53 bits get coarse


def philox(xp: Any, even: Any, odd: Any, key: np.ndarray) -> tuple[Any, Any]:
    """Return the words (0, 2) and (1, 3) of the output blocks, given those of the counters."""
    steps = np.arange(_ROUNDS, dtype=np.uint64)[:, None] * _KEY_STEPS
    keys = (key + steps[..., None]) & np.uint64(_WORD)  # (rounds, 2, R)
    keys = xp.asarray(keys[..., None], device=even.device)
    multipliers = np.array(_MULTIPLIERS, dtype=np.uint64)[:, None, None]
    multipliers = xp.asarray(multipliers, device=even.device)
    for i in range(_ROUNDS):
        product = even * multipliers
        even = xp.flip(product >> 32, axis=0) ^ odd ^ keys[i, ...]
        odd = xp.flip(product & _WORD, axis=0)
    return even, odd


def random_bits(xp: Any, seeds: np.ndarray, count: int, device: Any) -> Any:
    """Return 64 independent bits per entry, uint64 of shape (2, R, count)."""
    words = seeds.astype(np.uint64).T  # (4, R)
    index = xp.arange(count, dtype=xp.uint64, device=device)
    shape = (seeds.shape[0], count)
    above = xp.asarray(words[2:, :, None], device=device)
    even, odd = (
        xp.stack([xp.broadcast_to(low, shape), xp.broadcast_to(high, shape)])
        for low, high in ((index & _WORD, above[0, ...]), (index >> 32, above[1, ...]))
    )
    even, odd = philox(xp, even, odd, words[:2])
    return (even << 32) | odd


def gaussian(xp: Any, seeds: np.ndarray, size: int, device: Any) -> Any:
    """Return standard normal numbers (R, size) by the Box-Muller transform."""
    bits, more = _bits_and_tails(xp, seeds, (size + 1) // 2, device)
    uniforms = xp.astype(bits >> 11, xp.float64) * 2.0**-53  # in [0, 1)
    rest = ~bits[0, ...]
    tail = (xp.astype(rest, xp.float64) + more) * 2.0**-64
    radius = xp.sqrt(-2.0 * xp.log(xp.where(rest < _TAIL, tail, 1.0 - uniforms[0, ...])))
    angle = 2.0 * math.pi * uniforms[1, ...]
    return xp.concat([radius * xp.cos(angle), radius * xp.sin(angle)], axis=1)[:, :size]


def laplace(xp: Any, seeds: np.ndarray, size: int, device: Any) -> Any:
    """Return Laplace numbers (R, size) of scale 1: exponentials with signs from separate bits."""
    bits, more = _bits_and_tails(xp, seeds, (size + 1) // 2, device)
    bits = xp.concat([bits[0, ...], bits[1, ...]], axis=1)[:, :size]
    tail = (xp.astype(bits >> 1, xp.float64) + more) * 2.0**-63
    uniforms = xp.astype((bits >> 11) + 1, xp.float64) * 2.0**-53  # in (0, 1]
    magnitude = -xp.log(xp.where(bits < _TAIL, tail, uniforms))
    return xp.where((bits & 1) == 1, magnitude, -magnitude)


def _bits_and_tails(xp: Any, seeds: np.ndarray, count: int, device: Any) -> tuple[Any, Any]:
    """Return the bits of ``count`` blocks, and uniforms (R, 1) in (0, 1] from the next block."""
    bits = random_bits(xp, seeds, count + 1, device)
    high, low = (xp.astype(bits[i, :, count:], xp.float64) for i in (0, 1))
    return bits[:, :, :count], (high + (low + 1.0) * 2.0**-64) * 2.0**-64


LAWS: dict[str, Callable[..., Any]] = {"gaussian": gaussian, "laplace": laplace}
