"""Noise of the shape of a bound that has blocks of coordinates, each with a norm of its own.

K-norm mechanisms: Hardt and Talwar (2010), On the geometry of differential privacy; Awan and
Slavkovic (2020), Structure and sensitivity in differential privacy: comparing K-norm mechanisms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from . import mechanisms
from .facts import Block

# The law of noise whose density falls off with the norm of this order.
_LAWS = {1: "laplace", 2: "spherical", math.inf: "cubic"}


def second_moment(block: Block) -> float:
    r"""Return the expected square of the L2 length of :func:`draw_blocks` at scale 1.

    The norm of the noise has a gamma law and its direction is that of a point drawn uniformly
    from the unit ball of the norm, so that with m coordinates and scale s it is

    .. math:: 2 m s^2 \ (L_1), \qquad m (m+1) s^2 \ (L_2), \qquad m (m+1)(m+2) s^2 / 3 \ (L_\infty).
    """
    m, square = block.size, block.radius**2
    if block.order == 1:
        return 2.0 * m * square
    return m * (m + 1.0) * square * (1.0 if block.order == 2 else (m + 2.0) / 3.0)


def norm_shape(blocks: Sequence[Block]) -> tuple[Block, ...]:
    r"""Return the noise of the least expected square whose privacy loss is at most 1.

    A shift of norm at most :math:`r_g` in block g costs :math:`\sum_g r_g/t_g` with noise of
    scale :math:`t_g` there, and the noise has the expected square :math:`\sum_g a_g t_g^2` with
    :math:`a_g` of :func:`second_moment`. By Lagrange's rule :math:`t_g \propto (r_g/a_g)^{1/3}`,
    and the square is :math:`(\sum_g a_g^{1/3} r_g^{2/3})^3`.
    """
    units = [second_moment(replace(block, radius=1.0)) for block in blocks]
    scales = [(block.radius / unit) ** (1 / 3) for block, unit in zip(blocks, units)]
    loss = sum(block.radius / scale for block, scale in zip(blocks, scales))
    return tuple(replace(b, radius=scale * loss) for b, scale in zip(blocks, scales))


def gaussian_shape(blocks: Sequence[Block]) -> tuple[Block, ...]:
    r"""Return the standard deviations of least total square at which a record's shift is 1.

    In units of its standard deviations :math:`t_g` the shift has the square
    :math:`\sum_g r_g^2/t_g^2`, with the L2 radii, and the noise is :math:`\sum_g m_g t_g^2`. By
    Lagrange's rule :math:`t_g^2 \propto r_g/\sqrt{m_g}`.
    """
    radii = [block.radius_in(2) for block in blocks]
    squares = [r / math.sqrt(block.size) for r, block in zip(radii, blocks)]
    shift = sum(r**2 / square for r, square in zip(radii, squares))
    return tuple(
        Block(block.size, 2, math.sqrt(square * shift)) for square, block in zip(squares, blocks)
    )


def draw_blocks(
    random: Any, shape: Sequence[Block], scale: float, d: int
) -> tuple[np.ndarray, float]:
    r"""Return noise of density proportional to :math:`e^{-\sum_g \|b_g\|/(s t_g)}`, (d,).

    And how far it is from real noise, as :func:`dpanalysis.privacy.mechanisms.nearly` does. Block g
    has its own norm and the scale :math:`t_g`, its radius; all are stretched by s.
    """
    copies = d // sum(block.size for block in shape)
    parts = [
        mechanisms.nearly(random, _LAWS[block.order], scale * block.radius, block.size)
        for _ in range(copies)
        for block in shape
    ]
    return np.concatenate([noise for noise, _ in parts]), math.hypot(*(off for _, off in parts))
