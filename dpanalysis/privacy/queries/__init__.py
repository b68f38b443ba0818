"""What may be asked of a batch besides its gradient: one file a family of queries.

A query states the event that it costs from public facts alone, and answers from the records
with noise of :mod:`dpanalysis.privacy.mechanisms`. The oracle pays before it lets it answer.
"""

from .base import Query, Records
from .decrease import FirstDecrease, decrease_sensitivity

__all__ = ["FirstDecrease", "Query", "Records", "decrease_sensitivity"]
