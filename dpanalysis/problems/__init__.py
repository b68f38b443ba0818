"""Problems to minimize: losses over data, networks, quadratics.

An argument outside the range stated in a docstring raises ValueError.
"""

from typing import TYPE_CHECKING

from .._lazy import on_first_use
from .base import Problem
from .empirical import Sums
from .erm import ERM
from .networks import MLP, Softmax
from .quadratic import Quadratic
from .row_bound import RowBound

if TYPE_CHECKING:
    from .modules import Module as Module

__getattr__, __dir__ = on_first_use(__name__, {"modules": "Module"})  # lazily: it needs PyTorch

__all__ = ["ERM", "MLP", "Problem", "Quadratic", "RowBound", "Softmax", "Sums"]
