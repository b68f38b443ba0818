"""What may be asked of a batch besides its gradient: one file a family of queries.

A query states the event that it costs from public facts alone, and answers from the records
with noise of :mod:`dpanalysis.privacy.mechanisms`. The oracle pays before it lets it answer.
"""

from .base import Query, Ray, Records
from .decrease import FirstDecrease, decrease_sensitivity
from .hessian import NoisyCurvature, NoisyHessian, hessian_sensitivity
from .minimiser import NoisyDescent, TiltedMinimum, check_linear, largest_step
from .select import NoisyMin
from .value import NoisyValue

__all__ = [
    "FirstDecrease",
    "NoisyCurvature",
    "NoisyDescent",
    "NoisyHessian",
    "NoisyMin",
    "NoisyValue",
    "Query",
    "Ray",
    "Records",
    "TiltedMinimum",
    "check_linear",
    "decrease_sensitivity",
    "hessian_sensitivity",
    "largest_step",
]
