"""What is minimised: data with a loss, networks, quadratics, and synthetic data sets."""

from .base import Problem
from .empirical import Sums
from .erm import ERM
from .networks import MLP, Softmax
from .quadratic import Quadratic
from .row_bound import RowBound

__all__ = ["ERM", "MLP", "Problem", "Quadratic", "RowBound", "Softmax", "Sums"]
