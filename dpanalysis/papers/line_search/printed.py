"""Chen and Lee (2020): costs as printed, for comparison only. No code that adds noise uses them."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike

from ..._validation import check_choice, check_positive
from ...privacy.accounting.rdp import rdp_gaussian, rdp_laplace


def printed_above_threshold(
    orders: ArrayLike, noise: str, threshold_scale: float, query_scale: float
) -> Any:
    """Return the Renyi cost of AboveThreshold by Theorem 2 (Laplace) or Theorem 3 (Gaussian).

    The proofs of both drop the sum over the halting index, and Theorem 3 is violated. The proved
    bound is :func:`dpanalysis.privacy.rdp_above_threshold`; it depends on the number of queries.
    """
    check_choice("noise", noise, ("laplace", "gaussian"))
    first = check_positive("threshold_scale", threshold_scale)
    second = check_positive("query_scale", query_scale)
    if noise == "laplace":
        return rdp_laplace(orders, 1.0 / first) + rdp_laplace(orders, 2.0 / second)
    return rdp_gaussian(orders, first) + rdp_gaussian(orders, 0.5 * second)
