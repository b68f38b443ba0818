"""What a recording reads of outputs, and what it says where noise changes their shape."""

import random

import numpy as np
import pytest

from dpanalysis import audit

DATA, OTHER = np.array([0.0, 1.0, 1.0]), np.array([1.0, 1.0, 1.0])


def kinds(found):
    return [finding.kind for finding in found.findings]


def rows(data, rng):
    return len(data) + 100.0 + rng.laplace()


def none(data, rng, size):
    count = rows(data, rng)
    return None if count < 1.0 else [(count, data.mean())]


def raising(data, rng, size):
    count = rows(data, rng)
    if count < 1.0:
        raise ValueError("too few")
    return [(count, data.mean())]


def ragged(data, rng, size):
    count = int(rows(data, rng))
    return [(count, [0.0] * 0 if count < 0 else [data.mean()])]


def texts(data, rng, size):
    return None if rows(data, rng) < 1.0 else ["high" if data.mean() > 0.8 else "low"]


@pytest.mark.parametrize("mechanism", [none, raising, ragged, texts])
def test_exact_numbers_are_found_where_extreme_noise_takes_another_branch(mechanism):
    found = audit.record(mechanism, DATA, OTHER, claim=1.0)
    assert kinds(found) == ["exact"], str(found)


def test_a_shape_that_hardly_any_extreme_noise_keeps_is_a_note():
    def narrow(data, rng, size):
        noise = rng.laplace(0.0, 1e-3, 40)
        return None if abs(noise).max() > 0.1 else [(noise[0], data.mean())]

    found = audit.record(narrow, DATA, OTHER)
    assert kinds(found) == ["exact"] or "other shapes where noise is larger" in str(found)

    def narrower(data, rng, size):
        noise = rng.normal(0.0, 1.0, 40)
        return None if abs(noise).max() > 6.0 else [(noise[0], data.mean())]

    found = audit.record(narrower, DATA, OTHER)
    assert found.passed and "other shapes where noise is larger" in str(found)


def test_numbers_of_draws_under_a_claim():
    """Each record with noise of its own, and a branch with the same noise, are correct."""

    def local(data, rng, size):
        return [sum(x + rng.laplace(0.0, 1.0) for x in data)]

    def empty(data, rng, size):
        if len(data) == 0:
            return rng.laplace(0.0, 1.0, size)
        return np.clip(data, 0.0, 1.0).mean() + rng.laplace(0.0, 1.0, size)

    def skipped(data, rng, size):
        return data.sum() + (rng.laplace(0.0, 1.0, size) if data[0] > 0.5 else np.zeros(size))

    found = audit.record(local, DATA, DATA[:-1], claim=1.0)
    assert found.passed and "3 draws of laplace noise on the dataset and 2" in str(found)
    assert kinds(audit.record(local, DATA, DATA[:-1])) == ["draws"]
    for claim in (None, 1.0):
        found = audit.record(empty, np.array([]), np.array([1.0]), claim=claim)
        assert found.passed and found.looked and "at other lines" in str(found)
        assert "exact" in kinds(audit.record(skipped, DATA, OTHER, claim=claim))


def test_unequal_draws_count_as_looked_at():
    def stable(data, rng, size):  # counts above a threshold, of the values that occur
        counts = {value: (data == value).sum() + rng.laplace(0.0, 2.0) for value in set(data)}
        return [{value: count for value, count in counts.items() if count > 40.0}]

    data = np.zeros(60)
    found = audit.record(stable, data, np.append(data, 5.0), claim=(1.0, 1e-5))
    assert found.looked and found.passed, str(found)


def test_messages_name_errors_iterators_and_seeds():
    def fails_on_one(data, rng, size):
        return data.sum() + rng.laplace(0.0, 1.0, size) if data[0] == 0.0 else [][0]

    found = audit.record(fails_on_one, DATA, OTHER, claim=1.0)
    assert "(1,) on the dataset, raises IndexError on the neighbor" in str(found)

    def lazy(data, rng, size):
        yield data.sum()

    assert "the output holds a generator" in str(audit.record(lazy, DATA, OTHER))
    hidden = [np.random.default_rng()]

    def seeded_beside_hidden(data, rng, size):
        random.seed(0)
        return data.sum() + hidden[0].laplace() + random.gauss(0.0, 1.0) * np.ones(size)

    found = audit.record(seeded_beside_hidden, DATA, OTHER)
    assert "a source is seeded with 0 in every run" in str(found)
