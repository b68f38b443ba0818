"""Bounds on the rounding error of sums over records.

A privacy proof bounds the sensitivity of a sum of real numbers. Computed sums of two neighbouring
data sets also differ by rounding errors. All implementations add in the same way, and this bound
holds for all of them: rows are added by blocks of at most :data:`BLOCK_ROWS`, in double precision,
a block's sum is added to its task's sum, and the sums of the tasks to the total.
"""

from __future__ import annotations

import math

from .._parallel import MOST_TASKS
from .._validation import check_int, check_number

BLOCK_ROWS = 4096  # rows whose terms are added up before their sum is added to another
DOUBLE, SINGLE = 2.0**-53, 2.0**-24  # relative error of one rounding
# Smaller coefficients count as zero: products of subnormal numbers have larger relative errors.
TINY = 2.0**-960
# Limits of unbounded rows: on the L1 and L2 norms, and the multiple of the stored norm.
NO_LIMITS = (math.inf, math.inf, math.inf)

_OWN = 16  # roundings of a term besides those proportional to the dimension


def sum_rounding(n: int, d: int, parts: int = 1, unit: float = DOUBLE) -> float:
    r"""Return a bound on the error of a computed sum of bounded terms, in units of the bound.

    Notes
    -----
    Write u = 2^-53 and :math:`\gamma_k = ku/(1 - ku)`. A product of k factors between 1 - u
    and 1/(1 - u) is within :math:`\gamma_k` of 1 (Higham, *Accuracy and stability of numerical
    algorithms*, 2002, Lemma 3.1).

    **One term.** The term of a record is its exact row times the coefficient that was computed
    for it, and it depends on that record alone. Its exact norm may exceed B, because the
    coefficient was chosen by a computed norm. That norm takes d squares, d - 1 additions and
    at most 6 more operations; the multiplier of the row, the weight of the rule and the
    derivative take at most 10 more. So the term's norm is at most
    :math:`(1 + \gamma_{d+16}) B`, where this gamma is that of ``unit``. The row is the one that is
    added: where it is added, its norm is compared again with the stored one, or with its bound
    (:mod:`dpanalysis.kernels.norms`); the problem must add the slack of that comparison.

    **The sum.** A term is multiplied out (one rounding per entry; three for a Hessian, whose row
    and column are scaled before, by a square root that is computed for the record) and then passes
    through additions: at most one for each of the other terms of its block, which has at most
    :math:`m = \max(4096, d)` rows (a block of a sparse matrix has d rows if that is more); one for
    each block of its task; one for each task, at most 64; one for each part. A block is closed only
    if the next rows do not fit, so it has at least 2048 rows unless it is the last, and there are
    at most n/2048 + 1. This holds in whatever order the terms of a block are added. With k the
    total, the computed sum is :math:`\sum_i t_{ij}(1 + \theta_{ij})` in entry j with
    :math:`|\theta_{ij}| \le \gamma_k`. So its error is at most :math:`\gamma_k \sum_i |t_{ij}|` in
    each entry, and in any norm that is monotone in the entries' absolute values, such as L1 and L2,
    at most :math:`\gamma_k \sum_i \|t_i\| \le n \gamma_k (1 + \gamma_{d+16}) B`.

    **Both.** The returned bound is :math:`n\gamma_k(1 + \gamma_{d+16}) + \gamma_{d+16}`. If a
    record is replaced, the exact sums of the two data sets differ by at most
    :math:`2(1 + \gamma_{d+16}) B`, and each computed sum is off by the first summand. So the
    computed sums differ by at most 2B plus twice the returned bound (in units of B). If a record is
    added or removed, there is room to spare.

    B must be a normal number, far above the smallest (1e-250 or more): sizes below 1e-300
    are rounded by more than u. A coefficient below :data:`TINY` counts as zero.
    """
    n = check_int("n", n, low=0)
    d = check_int("d", d, low=1)
    parts = check_int("parts", parts, low=1)
    unit = check_number("unit", unit, low=0.0, low_open=True)
    own = _gamma(d + _OWN + 1, unit)  # here and below with a margin for this computation's rounding
    additions = max(BLOCK_ROWS, d) + n // 2048 + 1 + MOST_TASKS + parts
    return n * _gamma(additions + 8, DOUBLE) * (1.0 + own) + own


def _gamma(k: int, unit: float) -> float:
    """Return the largest relative error of a product of ``k`` rounded factors."""
    if k * unit >= 0.5:
        raise ValueError(f"no bound on the rounding of {k} operations of relative error {unit:g}")
    return k * unit / (1.0 - k * unit)
