"""Lower bounds on epsilon from the outputs of anybody's mechanism.

:func:`verify_privacy` runs a mechanism on two neighbours (:mod:`.neighbours`), learns an event
from some of the outcomes (:mod:`.outcomes`, :mod:`.scores`, :mod:`.learning`, :mod:`.choice`),
counts it in others (:mod:`.runs`, :mod:`.event`) and tests both counts together against what is
claimed (:mod:`.limits`, :mod:`.joint`). :func:`verify_gaussian` assumes that the release is
Gaussian and needs fewer runs (:mod:`.gaussian`).
"""

from .gaussian import GaussianVerdict, verify_gaussian
from .verdict import GaussianPrivacy, Verdict
from .verify import Mechanism, verify_privacy

__all__ = [
    "GaussianPrivacy",
    "GaussianVerdict",
    "Mechanism",
    "Verdict",
    "verify_gaussian",
    "verify_privacy",
]
