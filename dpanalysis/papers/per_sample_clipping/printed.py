"""The bias bound that Xia et al. (2023) print: it holds; `theory.psac_table1` is sharper."""

from __future__ import annotations

from numpy.typing import ArrayLike

from ..._validation import as_scalar
from ...theory._arguments import FloatArray
from ...theory.adaptive_clipping import check_spread, invert_gain, peak_and_offset


def printed_table1(
    tau0: ArrayLike, tau1: ArrayLike, r: ArrayLike, kind: str = "psac"
) -> FloatArray | float:
    r"""Return the bound whose order Table 1 gives.

    :math:`(a\beta + \sqrt{a^2\beta^2 + 4R\beta})/2` in the symbols of
    :mod:`dpanalysis.theory.adaptive_clipping`. As r tends to 0 it grows like the largest weight,
    :math:`1/(2\sqrt r - r)` for PSAC and :math:`1/r` for Auto-S.
    Xia et al. (2023), Table 1 and Remark 2.
    """
    tau0, tau1 = check_spread(tau0, tau1)
    peak, offset = peak_and_offset(kind, r)
    beta = peak * tau0**2 / (4.0 * (1.0 - tau1))
    return as_scalar(invert_gain(beta, 1.0 + tau1, tau0 + offset))
