"""Sensitivities, searches and batches as printed by Gao and Wright (2023).

For comparison only. The proved bounds are in :mod:`dpanalysis.theory`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from ... import theory
from ..._validation import check_fraction, check_int
from ...methods import SecondOrder, TrustRegion
from ...privacy.accounting.events import Gaussian
from ...privacy.accounting.sampling import Sampling
from ...privacy.facts import PublicFacts
from ...privacy.queries import NoisyHessian


def printed_search_slack(queries: int, failure: float) -> float:
    r"""Return :math:`8 \ln(i/\eta)`: the slack below 0 of an accepted query.

    Gao and Wright (2023), Lemma 7 and (16); errata 003-16.
    """
    queries = check_int("queries", queries, low=1)
    failure = check_fraction("failure", failure)
    return 8.0 * (math.log(queries) - math.log(failure))


@dataclass(frozen=True)
class PrintedTarget(theory.SecondOrderTarget):
    r"""A target whose n_min is computed with the paper's sensitivities and noise.

    The Hessian moves by :math:`2\sqrt d B_H/n`, and its noise is independent on and above the
    diagonal, so it is :math:`\sqrt2` times as long. A line search queries :math:`q(\gamma)`, which
    adds the factor ``multiple``, and accepts as in (16); ``convex`` has no effect. Gao and Wright
    (2023), Theorems 4 and 8; errata 003-1, 003-2, 003-7, 003-16.
    """

    def hessian_change(self) -> float:
        """Return n times the change of the Hessian, times a factor for the longer noise."""
        return 2.0 * math.sqrt(2.0 * self.d) * self.constants.B_H

    def slack(self, queries: int, failure: float) -> float:
        """Return the slack of a search whose queries grow with the longest step."""
        return self.multiple * printed_search_slack(queries, failure)


def printed_target(target: theory.SecondOrderTarget) -> PrintedTarget:
    """Return the same target with the paper's sensitivities and noise."""
    names = (field.name for field in fields(theory.SecondOrderTarget))
    return PrintedTarget(**{name: getattr(target, name) for name in names})


def printed_batch(*parameters: Any) -> int:
    """Return the size of a batch by (24): 64 and 32 where the proof needs 128 and 64; 003-18.

    The parameters are those of :func:`dpanalysis.theory.second_order_batch`.
    """
    return math.ceil(theory.second_order_batch(*parameters) / 2)  # as half, rounded up once


def printed_hessian_sensitivity(facts: PublicFacts, sampling: Sampling) -> float:
    r"""Return :math:`\Delta_H = 2 \sqrt d B_H/n`: the largest change of a Hessian of full rank.

    Gao and Wright (2023), (4); :func:`dpanalysis.privacy.queries.hessian_sensitivity` is smaller.
    """
    return 2.0 * math.sqrt(facts.d) * facts.hessian_bound / sampling.expected_size(facts.n)


class PrintedHessian(NoisyHessian):
    """A Hessian with noise of one size on and above the diagonal (Algorithm 1): private too.

    The cost depends on the Euclidean norm of the entries on and above the diagonal. It is at most
    the Frobenius norm, which counts those above it twice; for a diagonal change the two are equal,
    so the cost at sigma is that of the smaller noise.
    """

    off_diagonal = 1.0

    def event(self, facts: PublicFacts, sampling: Sampling) -> Gaussian | None:
        """Return the cost of the smaller noise."""
        return super().event(facts, sampling)


class _PrintedNoise:
    """Noise of the Hessian as printed, larger than needed."""

    sampling: Sampling

    def _hessian_unit(self, facts: PublicFacts) -> float:
        return printed_hessian_sensitivity(facts, self.sampling)

    def _hessian_query(self, w: np.ndarray, std: float) -> NoisyHessian:
        return PrintedHessian(w, std)


class PrintedSecondOrder(_PrintedNoise, SecondOrder):
    """:class:`~dpanalysis.methods.SecondOrder` with the noise of the Hessian as printed."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hessian == "lanczos":
            raise ValueError("hessian must be 'full' for the noise as printed, got 'lanczos'")


class PrintedTrustRegion(_PrintedNoise, TrustRegion):
    """:class:`~dpanalysis.methods.TrustRegion` with the noise of the Hessian as printed."""
