"""The pytest plugin, found through dpanalysis' entry point; it adds no import time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

__all__ = ["assert_private"]


# Session scope, so that Hypothesis tests can use it.
@pytest.fixture(scope="session")
def assert_private() -> Callable[..., Any]:
    """Fail if a mechanism is less private than claimed: ``assert_private(mechanism, claim)``.

    ``mechanism(dataset, rng, size)`` returns ``size`` independent runs; the claim is an epsilon or
    a Budget. Its noise is recorded and replayed on the neighbour, and its outputs are counted; the
    last line of a failure says which of the two found it. Choose the inputs by ``neighbours=``,
    pairs of data sets or a Hypothesis strategy that yields them. See
    :func:`dpanalysis.audit.assertions.assert_private`.
    """
    from .assertions import assert_private

    return assert_private
