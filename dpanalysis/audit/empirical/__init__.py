"""Lower bounds on epsilon from the outputs of anybody's mechanism.

:func:`verify_privacy` runs a mechanism on two neighbours (:mod:`.neighbours`), learns an event
from some of the outcomes (:mod:`.outcomes`, :mod:`.scores`) and counts it in others
(:mod:`.event`).
"""

from .verdict import Verdict
from .verify import Mechanism, verify_privacy

__all__ = ["Mechanism", "Verdict", "verify_privacy"]
