"""Private first-order methods: one file a family, one line each in this list."""

from .adam import Adam
from .base import Method, Plan, State
from .gradient_descent import GradientDescent
from .heavy_ball import HeavyBall
from .multistage import MultistageNesterov
from .nesterov import Nesterov
from .sgd import SGD

__all__ = [
    "SGD",
    "Adam",
    "GradientDescent",
    "HeavyBall",
    "Method",
    "MultistageNesterov",
    "Nesterov",
    "Plan",
    "State",
]
