"""What a recording leaves behind, and whom it listens to."""

import random
import secrets

import numpy as np
import pytest

from dpanalysis import audit


class Release:
    """Makes its source of noise when it is first used, and keeps it."""

    def __init__(self, make):
        self.make, self.source = make, None

    def __call__(self, data, rng, size=1):
        if self.source is None:
            self.source = self.make(rng)
        return data + self.noise() * np.ones(size)

    def noise(self):
        draw = getattr(self.source, "laplace", None) or self.source.gauss
        return draw(0.0, 1.0)


KEPT = {
    "default_rng": lambda rng: np.random.default_rng(),
    "PCG64": lambda rng: np.random.Generator(np.random.PCG64()),
    "RandomState": lambda rng: np.random.RandomState(),
    "Random": lambda rng: random.Random(),
    "handed in": lambda rng: rng,
    "child": lambda rng: rng.spawn(1)[0],
    "seed of rng": lambda rng: np.random.default_rng(rng.integers(2**63)),
    "seed of secrets": lambda rng: np.random.default_rng(secrets.randbits(128)),
    "state of rng": lambda rng: np.random.RandomState(rng.integers(2**31)),
    "bytes": lambda rng: random.Random(secrets.token_bytes(16)),
}


@pytest.mark.parametrize("name", KEPT)
def test_what_is_kept_cannot_be_drawn_again(name):
    """Two objects recorded with the same numbers release different noise afterwards."""
    found = []
    for _ in range(2):
        release = Release(KEPT[name])
        audit.record(release, 0.0, 1.0)
        found.append([release.noise() for _ in range(3)])
    assert not set(found[0]) & set(found[1])
