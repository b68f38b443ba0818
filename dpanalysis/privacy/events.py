"""Privacy events: releases with noise in explicit units, alone or on a subsampled batch.

An event has its noise, the sensitivity of the released quantity (in that quantity's units and
under the budget's neighbouring relation) and the norm of that sensitivity. It computes its cost
in each notion of privacy; the accountant composes costs. A number outside the range that a
docstring states raises ValueError.
"""

from .accounting.epochs import Epoch
from .accounting.events import (
    BoundedRange,
    Event,
    Gaussian,
    GaussianBound,
    Laplace,
    Pure,
    Repeated,
    Sampled,
    check_event,
    gaussian_mu,
    innermost,
    unrolled,
)
from .accounting.pairs import Pair
from .accounting.selection import BestOf
from .accounting.sparse_vector import AboveThreshold

__all__ = [
    "AboveThreshold",
    "BestOf",
    "BoundedRange",
    "Epoch",
    "Event",
    "Gaussian",
    "GaussianBound",
    "Laplace",
    "Pair",
    "Pure",
    "Repeated",
    "Sampled",
    "check_event",
    "gaussian_mu",
    "innermost",
    "unrolled",
]
