"""Private optimization methods, one file per family."""

from .accelerated import GradientDescent, HeavyBall, MultistageNesterov, Nesterov
from .base import AdaptiveMethod, Method, Step
from .genetic import GeneticSearch
from .last_iterate import LastIterate
from .line_search import AdaptiveGD, LineSearchGD, LineSearchSGD
from .perturbation import ObjectivePerturbation, OutputPerturbation
from .planned import Recursion, Schedule, State
from .second_order import SecondOrder
from .sgd import SGD, Adam
from .trust_region import NoisyGradientDescent2NS, TrustRegion

__all__ = [
    "SGD",
    "Adam",
    "AdaptiveGD",
    "AdaptiveMethod",
    "GeneticSearch",
    "GradientDescent",
    "HeavyBall",
    "LastIterate",
    "LineSearchGD",
    "LineSearchSGD",
    "Method",
    "MultistageNesterov",
    "Nesterov",
    "NoisyGradientDescent2NS",
    "ObjectivePerturbation",
    "OutputPerturbation",
    "Recursion",
    "Schedule",
    "SecondOrder",
    "State",
    "Step",
    "TrustRegion",
]
