"""Per-sample losses of a linear predictor.

Each loss is a function of the prediction ``z = <x, w>`` and the label ``y``. Its formulas
work on whole arrays of any shape and namespace (NumPy, CuPy, anything that follows the array
API standard). A built-in loss, and one that :func:`compiled` returns, is evaluated one sample
at a time by compiled kernels; any other, subclasses of the built-in ones included, runs its
own formulas as they are written.
"""

from .base import Loss, check_loss
from .compiled import compiled
from .linear import Hinge, HuberizedHinge, Logistic, SquaredError

__all__ = [
    "Hinge",
    "HuberizedHinge",
    "Logistic",
    "Loss",
    "SquaredError",
    "check_loss",
    "compiled",
]
