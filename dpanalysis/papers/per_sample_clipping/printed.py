r"""What Xia et al. (2023) print about per-sample adaptive clipping (DP-PSAC).

Both bounds hold, and are never sharper than those of :mod:`dpanalysis.theory`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ...theory._arguments import FloatArray, check_array, plain
from ...theory.adaptive_clipping import check_spread, invert_gain, peak_and_offset

__all__ = ["printed_lemma2", "printed_table1"]


def printed_lemma2(
    L0: ArrayLike, L1: ArrayLike, tau0: ArrayLike, tau1: ArrayLike, r: ArrayLike
) -> FloatArray | float:
    r"""Return the paper's bound on :math:`(L_0 + L_1 \|\nabla f\|)\, w(\|g\|)` for PSAC.

    The paper prints a maximum of two terms; the second term is always the larger one.

    References
    ----------
    Xia et al. (2023), Lemma 2; its lost roots are restored from :math:`2\sqrt r - r \ge \sqrt r`.
    """
    L0 = check_array("L0", L0, low=0.0, low_open=True)
    L1 = check_array("L1", L1, low=0.0)
    tau0, tau1 = check_spread(tau0, tau1)
    r = check_array("r", r, low=0.0, low_open=True, high=1.0)
    constant, root = L0 * (1.0 - tau1) + L1 * tau0, np.sqrt(r)
    first = (constant + L1 * (root - r)) / (2.0 * root - r)
    return plain(np.maximum(first, (constant + L1 * root) / root) / (1.0 - tau1))


def printed_table1(
    tau0: ArrayLike, tau1: ArrayLike, r: ArrayLike, kind: str = "psac"
) -> FloatArray | float:
    r"""Return the bound whose order Table 1 prints.

    :math:`(a\beta + \sqrt{a^2\beta^2 + 4R\beta})/2` in the symbols of
    :mod:`dpanalysis.theory.adaptive_clipping`. As r tends to 0 it grows like the largest weight,
    :math:`1/(2\sqrt r - r)` for PSAC and :math:`1/r` for Auto-S.

    References
    ----------
    Xia et al. (2023), Table 1 and Remark 2.
    """
    tau0, tau1 = check_spread(tau0, tau1)
    peak, offset = peak_and_offset(kind, r)
    beta = peak * tau0**2 / (4.0 * (1.0 - tau1))
    return plain(invert_gain(beta, 1.0 + tau1, tau0 + offset))
