"""A test of your own mechanism: copy this file and replace ``private_mean`` by it.

It needs only ``pip install "dpanalysis-toolkit[audit]"``; the fixture ``assert_private`` is part
of the package.
"""

import functools

import numpy as np
import pytest
from hypothesis import given

from dpanalysis import Budget, RowBound, privacy
from dpanalysis.audit import strategies

CLIP_NORM = 1.0
BUDGET = Budget(epsilon=1.0, delta=1e-3, relation="replace_one")


def clipped_mean(X, clip_norm=CLIP_NORM):
    """Return the exact answer, to which noise is added."""
    norms = np.linalg.norm(X, axis=1, keepdims=True)
    return (X * np.minimum(1.0, clip_norm / np.maximum(norms, 1e-300))).mean(axis=0)


@functools.cache
def noise_for(n):
    """Standard deviation: replacing one of n rows moves their mean by at most 2 C / n."""
    sensitivity = 2.0 * CLIP_NORM / n
    return privacy.calibrate(
        lambda std: privacy.events.Gaussian(std, sensitivity), BUDGET, bracket=(1e-3, 1e3)
    )


def private_mean(dataset, rng, size):
    """``size`` independent releases, shape (size, d)."""
    X, _ = dataset
    noise = rng.normal(0.0, noise_for(len(X)), (size, X.shape[1]))
    return clipped_mean(X) + noise


# Rows exceed the clip norm, as otherwise a missing clip would not be found.
NEIGHBOURS = strategies.neighbouring_datasets(
    BUDGET.relation, n=(1, 6), d=(1, 3), row_bound=RowBound(2, 5.0)
)


@given(NEIGHBOURS)
def test_the_sensitivity_is_what_the_noise_is_calibrated_to(pair):
    (X, _), (X_other, _) = pair
    moved = np.linalg.norm(clipped_mean(X) - clipped_mean(X_other))
    assert moved <= 2.0 * CLIP_NORM / len(X) * (1.0 + 1e-12)


def test_the_mechanism_keeps_its_promise(assert_private):
    assert_private(private_mean, BUDGET, neighbours=NEIGHBOURS)


def test_half_the_noise_would_have_been_noticed(assert_private):
    """The test has power: it refutes a broken mechanism."""

    def broken_mean(dataset, rng, size):
        exact = clipped_mean(dataset[0])
        return exact + 0.5 * (private_mean(dataset, rng, size) - exact)

    with pytest.raises(AssertionError, match="refuted: epsilon >= "):
        assert_private(broken_mean, BUDGET, neighbours=NEIGHBOURS)
