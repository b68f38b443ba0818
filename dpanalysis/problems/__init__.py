"""What is minimised: data with a loss, quadratics, and synthetic data sets."""

from .erm import ERM, Sums
from .quadratic import Quadratic
from .row_bound import RowBound

__all__ = ["ERM", "Quadratic", "RowBound", "Sums"]
