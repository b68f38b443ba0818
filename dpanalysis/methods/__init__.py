"""Private first-order methods: one file a family, one line each in this list."""

from .base import Method, Plan, State
from .gradient_descent import GradientDescent
from .heavy_ball import HeavyBall
from .multistage import MultistageNesterov
from .nesterov import Nesterov

__all__ = [
    "GradientDescent",
    "HeavyBall",
    "Method",
    "MultistageNesterov",
    "Nesterov",
    "Plan",
    "State",
]
