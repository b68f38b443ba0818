"""Queries that a batch answers besides its gradient, one file per family.

A query computes its event from public facts alone, and its answer from the records with noise of
:mod:`dpanalysis.privacy.mechanisms`. The oracle charges the event before the query is answered.
A number outside the range that a docstring states raises ValueError.
"""

from .base import Query, Ray, Records, curvature_of
from .hessian import NoisyCurvature, NoisyHessian, hessian_sensitivity
from .last_iterate import LastNoisyIterate, largest_slope
from .solutions import NoisyDescent, PerturbedMinimum, largest_step
from .values import FirstDecrease, NoisyMin, NoisyQuantile, NoisyValue, decrease_sensitivity

__all__ = [
    "FirstDecrease",
    "LastNoisyIterate",
    "NoisyCurvature",
    "NoisyDescent",
    "NoisyHessian",
    "NoisyMin",
    "NoisyQuantile",
    "NoisyValue",
    "PerturbedMinimum",
    "Query",
    "Ray",
    "Records",
    "curvature_of",
    "decrease_sensitivity",
    "hessian_sensitivity",
    "largest_slope",
    "largest_step",
]
