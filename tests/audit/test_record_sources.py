"""What a recording leaves behind, and whom it listens to."""

import random
import secrets
import threading
import time
from concurrent.futures import ThreadPoolExecutor

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


# Threads


def test_other_threads_draw_from_the_real_sources():
    """Tokens of a server in the same process are no part of a run, and cannot be drawn again."""
    tokens, over = [], threading.Event()

    def serve():
        while not over.is_set():
            tokens.append(secrets.token_hex(16))
            tokens.append(float(np.random.default_rng().normal()))
            time.sleep(0.001)

    def slow(data, rng, size):
        time.sleep(0.004)
        return data + rng.laplace(0.0, 0.01, size)

    server = threading.Thread(target=serve)
    server.start()
    try:
        for _ in range(2):
            found = audit.record(slow, 0.0, 1.0, claim=1.0)
            assert [finding.kind for finding in found.findings] == ["epsilon"]
    finally:
        over.set()
        server.join()
    assert len(tokens) > 20 and len(set(tokens)) == len(tokens)


def test_threads_of_a_run_are_part_of_it():
    """By an executor, and by a thread that starts another one."""

    def by_executor(data, rng, size):
        with ThreadPoolExecutor(2) as pool:
            return [tuple(pool.map(lambda x: x + np.random.laplace(0.0, 0.01), data))]  # noqa: NPY002

    def by_threads(data, rng, size):
        found = []

        def second():
            found.append(data[0] + np.random.default_rng().laplace(0.0, 0.01))

        def first():
            inner = threading.Thread(target=second)
            inner.start()
            inner.join()

        outer = threading.Thread(target=first)
        outer.start()
        outer.join()
        return found

    for mechanism in (by_executor, by_threads):
        found = audit.record(mechanism, np.zeros(1), np.ones(1), claim=1.0)
        assert [finding.kind for finding in found.findings] == ["epsilon"], str(found)
        assert found.epsilon == pytest.approx(100.0, rel=1e-6)
