"""A counter-based generator in array-API calls, for noise that is drawn where the data live.

Philox 4x32 with ten rounds (J. Salmon, M. Moraes, R. Dror, D. Shaw, Parallel random numbers: as
easy as 1, 2, 3, SC 2011): block i of a stream is a bijection, chosen by a key of 64 bits, of a
counter of 128 bits. Key and upper half of the counter come from the caller; the lower half is i.
The bits are the same in every namespace and on every device. The normal numbers are so but for
the last places, which belong to the namespace's logarithm and cosine.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["LAWS", "SEED_WORDS", "philox", "random_bits"]

SEED_WORDS = 4  # of 32 bits: the key, and the upper half of the counter

_ROUNDS = 10
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = np.array([0x9E3779B9, 0xBB67AE85], dtype=np.uint64)
_WORD = 0xFFFFFFFF


def philox(xp: Any, even: Any, odd: Any, key: np.ndarray) -> tuple[Any, Any]:
    """Return the words (0, 2) and (1, 3) of the output blocks, for those of the counters.

    Parameters
    ----------
    xp : namespace
    even, odd : uint64 array of shape (2, R, B)
        Words (0, 2) and (1, 3) of the counters, below 2^32.
    key : uint64 ndarray of shape (2, R)
        On the host.
    """
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
    """Return 64 independent bits an entry, uint64 of shape (2, R, count).

    Parameters
    ----------
    xp : namespace
    seeds : int ndarray of shape (R, 4)
        Words of 32 bits for each of R streams, on the host.
    count : int
        Blocks a stream; a longer stream begins with the shorter one.
    device : device
    """
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
    """Return standard normal numbers (R, size) by Box and Muller's transform."""
    bits = random_bits(xp, seeds, (size + 1) // 2, device)
    uniforms = xp.astype(bits >> 11, xp.float64) * 2.0**-53  # in [0, 1)
    radius = xp.sqrt(-2.0 * xp.log(1.0 - uniforms[0, ...]))
    angle = 2.0 * math.pi * uniforms[1, ...]
    return xp.concat([radius * xp.cos(angle), radius * xp.sin(angle)], axis=1)[:, :size]


def laplace(xp: Any, seeds: np.ndarray, size: int, device: Any) -> Any:
    """Return Laplace numbers (R, size) of scale 1: an exponential and a sign of its own bit."""
    bits = random_bits(xp, seeds, (size + 1) // 2, device)
    bits = xp.concat([bits[0, ...], bits[1, ...]], axis=1)[:, :size]
    magnitude = -xp.log(xp.astype((bits >> 11) + 1, xp.float64) * 2.0**-53)
    return xp.where((bits & 1) == 1, magnitude, -magnitude)


LAWS: dict[str, Callable[..., Any]] = {"gaussian": gaussian, "laplace": laplace}
