"""Private first-order methods: one file a family, one line each in this list."""

from .adam import Adam
from .adaptive import AdaptiveMethod
from .adaptive_gd import AdaptiveGD
from .base import Method, Step
from .genetic import GeneticSearch
from .gradient_descent import GradientDescent
from .heavy_ball import HeavyBall
from .line_search import LineSearchGD, LineSearchSGD
from .multistage import MultistageNesterov
from .nesterov import Nesterov
from .perturbation import ObjectivePerturbation, OutputPerturbation
from .recursion import Recursion, Schedule, State
from .second_order import SecondOrder
from .sgd import SGD
from .trust_region import NoisyGradientDescent2NS, TrustRegion

__all__ = [
    "SGD",
    "Adam",
    "AdaptiveGD",
    "AdaptiveMethod",
    "GeneticSearch",
    "GradientDescent",
    "HeavyBall",
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
