"""What is minimised: data with a loss, networks, quadratics, and synthetic data sets."""

from .erm import ERM, Sums
from .networks import MLP, Softmax
from .quadratic import Quadratic
from .row_bound import RowBound

__all__ = ["ERM", "MLP", "Quadratic", "RowBound", "Softmax", "Sums"]
