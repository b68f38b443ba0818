"""What may be asked of a batch besides its gradient: one file a family of queries.

A query states the event that it costs from public facts alone, and answers from the records
with noise of :mod:`dpanalysis.privacy.mechanisms`. The oracle pays before it lets it answer.
"""

from .assumptions import curvature_of
from .base import Query, Ray, Records
from .decrease import FirstDecrease, decrease_sensitivity
from .descent import NoisyDescent, largest_step
from .hessian import NoisyCurvature, NoisyHessian, hessian_sensitivity
from .minimiser import TiltedMinimum
from .quantile import NoisyQuantile
from .select import NoisyMin
from .value import NoisyValue

__all__ = [
    "FirstDecrease",
    "NoisyCurvature",
    "NoisyDescent",
    "NoisyHessian",
    "NoisyMin",
    "NoisyQuantile",
    "NoisyValue",
    "Query",
    "Ray",
    "Records",
    "TiltedMinimum",
    "curvature_of",
    "decrease_sensitivity",
    "hessian_sensitivity",
    "largest_step",
]
