"""Dense networks whose per-sample gradient norms cost no more than a backward pass."""

from .mlp import MLP
from .softmax import Softmax

__all__ = ["MLP", "Softmax"]
