"""Choosing between candidates by looking at private data, and paying for the look."""

from ..privacy.repeats import Repeats
from .score import PrivateLoss
from .select import Selection, affordable, repeat_and_select

__all__ = ["PrivateLoss", "Repeats", "Selection", "affordable", "repeat_and_select"]
