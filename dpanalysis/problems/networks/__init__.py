"""Networks of dense layers with per-sample gradient norms at the price of a backward pass."""

from .mlp import MLP
from .softmax import Softmax

__all__ = ["MLP", "Softmax"]
