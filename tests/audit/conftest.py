"""What the tests of the claims share."""

import pytest

from dpanalysis.audit import registry
from dpanalysis.audit.registry import Effort, Outcome


class LeastEffort(Effort):
    """A third of the cases of the quick mode: enough for a fault that is put there."""

    def cases(self, quick, full):
        return max(quick // 3, 2)


@pytest.fixture
def fails():
    """A function that tells whether a claim fails, and stops as soon as that is certain."""

    def failed(name):
        paper = name.rpartition("-")[0]
        claim = next(claim for claim in registry.load(paper) if claim.id == name)
        printed_holds = claim.verdict in ("holds", "sharpened")
        evidence = []
        for each in claim.check(LeastEffort(quick=True)):
            evidence.append(each)
            if not each.holds and (each.about == "used" or printed_holds):
                break
        return Outcome(claim, tuple(evidence), 0.0).failed

    return failed
