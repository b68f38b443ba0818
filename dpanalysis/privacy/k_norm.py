"""Noise shaped to a sensitivity bound by blocks of coordinates, each with its own norm.

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

# The law whose density decreases exponentially in the norm of this order.
_LAWS = {1: "laplace", 2: "spherical", math.inf: "cubic"}


def second_moment(block: Block) -> float:
    r"""Return the expected squared L2 norm of :func:`draw_blocks` at scale 1.

    The norm of the noise has a gamma law and its direction is that of a uniform point in the unit
    ball of the norm, so that with m coordinates and scale s it is

    .. math:: 2 m s^2 \ (L_1), \qquad m (m+1) s^2 \ (L_2), \qquad m (m+1)(m+2) s^2 / 3 \ (L_\infty).
    """
    m, square = block.size, block.radius**2
    if block.order == 1:
        return 2.0 * m * square
    return m * (m + 1.0) * square * (1.0 if block.order == 2 else (m + 2.0) / 3.0)


def norm_shape(blocks: Sequence[Block]) -> tuple[Block, ...]:
    r"""Return the noise scales of least expected square with privacy loss at most 1.

    With noise of scale :math:`t_g` in block g, a shift of norm at most :math:`r_g` in each costs
    :math:`\sum_g r_g/t_g`, and the noise has the expected square :math:`\sum_g a_g t_g^2` with
    :math:`a_g` of :func:`second_moment`. By Lagrange multipliers
    :math:`t_g \propto (r_g/a_g)^{1/3}`, with the square :math:`(\sum_g a_g^{1/3} r_g^{2/3})^3`.
    """
    units = [second_moment(replace(block, radius=1.0)) for block in blocks]
    scales = [(block.radius / unit) ** (1 / 3) for block, unit in zip(blocks, units)]
    loss = sum(block.radius / scale for block, scale in zip(blocks, scales))
    return tuple(replace(b, radius=scale * loss) for b, scale in zip(blocks, scales))


def gaussian_shape(blocks: Sequence[Block]) -> tuple[Block, ...]:
    r"""Return the standard deviations of least total variance at sensitivity 1 in their units.

    In units of the standard deviations :math:`t_g` a record's shift has the square
    :math:`\sum_g r_g^2/t_g^2`, with the L2 radii; the variance is :math:`\sum_g m_g t_g^2`. By
    Lagrange multipliers :math:`t_g^2 \propto r_g/\sqrt{m_g}`.
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

    Also returns its distance from exact noise, as :func:`dpanalysis.privacy.mechanisms.nearly`.
    Block g has its own norm and its radius :math:`t_g` as scale; all scales are multiplied by s.
    """
    copies = d // sum(block.size for block in shape)
    parts = [
        mechanisms.nearly(random, _LAWS[block.order], scale * block.radius, block.size)
        for _ in range(copies)
        for block in shape
    ]
    return np.concatenate([noise for noise, _ in parts]), math.hypot(*(off for _, off in parts))
