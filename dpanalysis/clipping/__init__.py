"""Per-sample weights that bound the norm of every sample's gradient.

A rule is a pure function of one sample's gradient norm and loss, so that a record can
move a sum of weighted gradients by no more than the rule's ``clip_norm`` (twice that
where it is replaced). The rules here work on whole arrays in any namespace; ``code`` and
``parameters`` select the same rule in the compiled kernels.
"""

from .base import Clipping, check_clipping
from .by_norm import Automatic, Flat, PerSampleAdaptive
from .by_value import Value
from .compiled import compiled
from .custom import Custom

__all__ = [
    "Automatic",
    "Clipping",
    "Custom",
    "Flat",
    "PerSampleAdaptive",
    "Value",
    "check_clipping",
    "compiled",
]
