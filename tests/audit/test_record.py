"""The recording of noise: broken mechanisms are found, correct ones and ours are not."""

import os
import random
import secrets
import sys
from random import gauss

import numpy as np
import pytest

import dpanalysis as dpa
from dpanalysis import Budget, audit, privacy
from dpanalysis.audit import GaussianPrivacy
from dpanalysis.papers.mutants import MUTANTS
from dpanalysis.privacy import mechanisms

DATA = np.array([[0.2, 0.1], [0.5, -0.3], [0.1, 0.4]])
OTHER = np.array([[0.2, 0.1], [0.5, -0.3], [-0.9, 0.8]])
FAR = np.array([[0.2, 0.1], [0.5, -0.3], [7.0, 5.0]])


def kinds(mechanism, claim=None, data=DATA, neighbor=OTHER, **options):
    found = audit.record(mechanism, data, neighbor, claim=claim, **options)
    return sorted({finding.kind for finding in found.findings})


def clipped(X):
    norms = np.linalg.norm(X, axis=1, keepdims=True)
    return X * np.minimum(1.0, 1.0 / np.maximum(norms, 1e-300))


# Broken mechanisms beside correct ones: name -> (broken, correct, claim, options, kinds)


def scale_of_data(X, rng, size):
    return X[:, 0].sum() + rng.laplace(0.0, 2.0 * abs(X[:, 0]).max(), size)


def scale_stated(X, rng, size):
    return np.clip(X[:, 0], -1.0, 1.0).sum() + rng.laplace(0.0, 2.0, size)


def one_coordinate_forgotten(X, rng, size):
    total = np.tile(clipped(X).sum(axis=0), (size, 1))
    total[:, 0] += rng.normal(0.0, 4.0, size)
    return total


def all_coordinates(X, rng, size):
    return clipped(X).sum(axis=0) + rng.normal(0.0, 4.0, (size, 2))


def unclipped(X, rng, size):
    return X.sum(axis=0) + rng.normal(0.0, 4.0, (size, 2))


def seeded(X, rng, size):
    noise = np.random.default_rng(1234).laplace(0.0, 2.0, size)
    return np.clip(X[:, 0], -1.0, 1.0).sum() + noise


def seeded_from_rng(X, rng, size):
    noise = np.random.default_rng(rng.integers(2**32)).laplace(0.0, 2.0, size)
    return np.clip(X[:, 0], -1.0, 1.0).sum() + noise


def draws_of_data(X, rng, size):
    total = np.clip(X[:, 0], -1.0, 1.0).sum()
    for _ in range(1 + int((X[:, 0] > 0.0).sum())):
        total = total + rng.laplace(0.0, 2.0, size)
    return total


def noise_twice(X, rng, size):
    total = np.clip(X[:, 0], -1.0, 1.0).sum() + rng.laplace(0.0, 2.0, size)
    return total + rng.laplace(0.0, 2.0, size)


def size_of_data(X, rng, size):
    count = int((X[:, 0] > 0.0).sum())
    return rng.laplace(0.0, 2.0, (size, 3))[:, :count]


def size_of_noise(X, rng, size):
    """How long it is depends on a noisy number."""
    value = float((np.clip(X[:, 0], -1.0, 1.0).sum() + rng.laplace(0.0, 2.0, size))[0])
    return [[0.0] * int(np.clip(value, 0.0, 5.0))] * size


def mean_by_observed_size(X, rng, size):
    n = len(X)
    return np.clip(X[:, 0], -1.0, 1.0).sum() / n + rng.laplace(0.0, 2.0 / n, size)


def mean_by_public_size(X, rng, size):
    return (np.clip(X[:, 0], -1.0, 1.0).sum() + rng.laplace(0.0, 2.0, size)) / 3.0


def exact_beside(X, rng, size):
    total = np.clip(X[:, 0], -1.0, 1.0).sum()
    return [(float(total + rng.laplace(0.0, 2.0)), float(total)) for _ in range(size)]


def noisy_twice_shown(X, rng, size):
    total = float(np.clip(X[:, 0], -1.0, 1.0).sum() + rng.laplace(0.0, 2.0))
    return [(total, round(total), 2.0 * total)] * size


def gaussian_for_pure(X, rng, size):
    return np.clip(X[:, 0], -1.0, 1.0).sum() + rng.normal(0.0, 20.0, size)


def uniform_noise(X, rng, size):
    return np.clip(X[:, 0], -1.0, 1.0).sum() + rng.uniform(-5.0, 5.0, size)


def same_noise_on_both(X, rng, size):
    return clipped(X).sum(axis=0) + rng.laplace(0.0, 9.0, (size, 1))


def fresh_noise_on_both(X, rng, size):
    return clipped(X).sum(axis=0) + rng.laplace(0.0, 9.0, (size, 2))


def too_little(X, rng, size):
    return np.clip(X[:, 0], -1.0, 1.0).sum() + rng.laplace(0.0, 0.5, size)


def removed(X, rng, size):
    noise = rng.laplace(0.0, 2.0, size)
    return (np.clip(X[:, 0], -1.0, 1.0).sum() + noise) - noise


def skipped(X, rng, size):
    total = np.clip(X[:, 0], -1.0, 1.0).sum()
    return total + (rng.laplace(0.0, 2.0, size) if total > 0.5 else np.zeros(size))


def never_looks(X, rng, size):
    return X[0, 0] + rng.laplace(0.0, 2.0, size)


CASES = {
    "scale": (scale_of_data, scale_stated, None, {}, "scale"),
    "scale, claimed": (scale_of_data, scale_stated, 1.0, {}, "scale"),
    "coordinate": (one_coordinate_forgotten, all_coordinates, None, {}, "exact"),
    "clip": (unclipped, all_coordinates, None, {"neighbor": FAR, "sensitivity": 2.0}, "sensitivity"),
    "seed": (seeded, seeded_from_rng, None, {}, "seed"),
    "draws": (draws_of_data, noise_twice, None, {}, "draws"),
    "size": (size_of_data, size_of_noise, None, {}, "size"),
    "mean": (mean_by_observed_size, mean_by_public_size, 1.0, {"neighbor": DATA[:2]}, "scale"),
    "beside": (exact_beside, noisy_twice_shown, 1.0, {}, "exact"),
    "law": (gaussian_for_pure, scale_stated, 1.0, {}, "law"),
    "uniform": (uniform_noise, scale_stated, Budget(1.0, 1e-6), {}, "epsilon"),
    "reuse": (same_noise_on_both, fresh_noise_on_both, None, {}, "reuse"),
    "epsilon": (too_little, scale_stated, 1.0, {}, "epsilon"),
    "removed": (removed, scale_stated, None, {}, "exact"),
    "skipped": (skipped, scale_stated, None, {}, "draws"),
    "untested": (never_looks, scale_stated, None, {}, "untested"),
}


@pytest.mark.parametrize("case", CASES)
def test_broken_ones_are_found_and_correct_ones_are_not(case):
    broken, correct, claim, options, kind = CASES[case]
    found = audit.record(broken, DATA, options.pop("neighbor", OTHER), claim=claim, **options)
    assert kind in {finding.kind for finding in found.findings}, str(found)
    assert not found.passed and f"[{kind}]" in str(found)
    for finding in found.findings:  # inside the mechanism, which is here
        assert finding.file == __file__
        assert 0 <= finding.line - broken.__code__.co_firstlineno <= 5
    for neighbor in (OTHER, FAR):
        fine = audit.record(correct, DATA, neighbor, claim=claim)
        assert fine.passed and "nothing found" in str(fine), str(fine)
