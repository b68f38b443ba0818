"""What is released: noise with explicit units, alone or on a subsampled batch.

An event carries its noise, the sensitivity of the released quantity (in that quantity's
units and under the budget's neighbouring relation) and the norm of that sensitivity. It
knows its cost in each notion of privacy; how costs add up is the accountant's business.
"""

from .base import Event, check_event
from .bounded import GaussianBound, gaussian_terms
from .composed import Repeated, Sampled, gaussian_mu, innermost
from .covering import covers
from .releases import BoundedRange, Gaussian, Laplace, Pure
from .selection import BestOf
from .sparse import AboveThreshold

__all__ = [
    "AboveThreshold",
    "BestOf",
    "BoundedRange",
    "Event",
    "Gaussian",
    "GaussianBound",
    "Laplace",
    "Pure",
    "Repeated",
    "Sampled",
    "check_event",
    "covers",
    "gaussian_mu",
    "gaussian_terms",
    "innermost",
]
