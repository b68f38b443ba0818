"""Kind of noise: ``rng="os"`` hardens every method, and ledgers name floating-point noise."""

import dataclasses
import math
from types import SimpleNamespace

import numpy as np
import pytest

import dpanalysis as dpa
from dpanalysis.privacy import mechanisms, queries
from dpanalysis.privacy.events import Laplace
from dpanalysis.privacy.oracle import PrivateOracle
from dpanalysis.privacy.queries import PerturbedMinimum, Query, Records
from dpanalysis.privacy.queries.solutions import rounding_of_gradient

X = np.random.default_rng(0).uniform(-1, 1, size=(400, 3))
PROBLEM = dpa.ERM(
    X,
    np.sign(X @ [1.0, -2.0, 0.5]),
    dpa.losses.Logistic(),
    dpa.regularizers.L2(0.1),
    dpa.RowBound(2, 3.0**0.5),
)
M = dpa.methods
PURE, APPROXIMATE = dpa.Budget(5.0), dpa.Budget(5.0, delta=1e-6)
RUNS = {
    "Laplace gradients": (M.Nesterov(step_size=0.4, iterations=5, mu=0.1, noise="optimal"), PURE),
    "line search": (M.LineSearchSGD(iterations=3, clip_norm=1.0, clip_loss=1.0), APPROXIMATE),
    "genetic search": (M.AdaptiveGD(iterations=3, clip_norm=1.0, clip_loss=1.0), APPROXIMATE),
    "output": (M.OutputPerturbation(passes=3, batches=4), PURE),
    "objective": (M.ObjectivePerturbation(), PURE),
    "Gaussian objective": (M.ObjectivePerturbation(), APPROXIMATE),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_entropy_of_the_system_hardens_every_method(name):
    method, budget = RUNS[name]
    relation = method.sampling.relations[-1]
    budget = dpa.Budget(budget.epsilon, delta=budget.delta, relation=relation)
    result = dpa.minimize(PROBLEM, method, budget, rng="os")
    assert result.hardened and result.ledger.noise == "exact"
    assert "exact noise" in repr(result.ledger)
    seeded = dpa.minimize(PROBLEM, method, budget, rng=0)
    assert not seeded.hardened and "floating point noise" in repr(seeded.ledger)
    ledgers = (result.ledger, seeded.ledger)
    assert not dataclasses.replace(result, ledgers=ledgers).hardened


def oracle(source):
    return PrivateOracle(PROBLEM, PROBLEM.facts("replace_one"), None, [source])


QUERIES = {
    "value": queries.NoisyValue(np.zeros(3), 1.0, 0.1),
    "hessian": queries.NoisyHessian(np.zeros(3), 0.1),
    "curvature": queries.NoisyCurvature(np.zeros(3), 0.1, 3),
    "choice": queries.NoisyMin(np.eye(3), 1.0, 0.1),
}


@pytest.mark.parametrize("name", QUERIES)
def test_every_query_is_answered_with_exact_noise(name):
    asked = oracle(mechanisms.random_source("os"))
    asked.ask(QUERIES[name], dpa.Full())
    assert asked.ledger.noise == "exact"


def test_curvature_of_a_matrix_too_large_to_form_says_so(monkeypatch):
    monkeypatch.setattr("dpanalysis.privacy.queries.hessian._MOST_EXACT", 2)
    asked = oracle(mechanisms.random_source("os"))
    asked.ask(QUERIES["curvature"], dpa.Full())
    assert asked.ledger.noise == "floating point"


def test_curvature_of_a_formed_matrix_is_its_least_eigenvalue():
    asked = oracle(mechanisms.random_source("os"))
    value, vector = asked.ask(queries.NoisyCurvature(np.zeros(3), 1e-9, 3), dpa.Full())
    hessian = PROBLEM.hessian(np.zeros(3))
    assert value == pytest.approx(np.linalg.eigvalsh(hessian)[0], abs=1e-7)
    assert hessian @ vector == pytest.approx(value * vector, abs=1e-6)


class MyQuery(Query):
    """A user-defined query that draws its own noise."""

    def event(self, facts, sampling):
        return Laplace(1.0, 1.0)

    def answer(self, records, random):
        return float(mechanisms.laplace(random, 1.0)), 1


def test_noise_drawn_by_itself_is_floating_point_from_every_source():
    asked = oracle(mechanisms.random_source("os"))
    assert asked.ledger.noise == "exact"
    asked.ask(MyQuery(), dpa.Full())
    assert asked.ledger.noise == "floating point"


def test_the_solver_is_held_to_what_the_doubles_leave_of_its_tolerance(monkeypatch):
    """The proof is for real noise: rounding it to doubles uses up part of the tolerance."""
    monkeypatch.setattr(mechanisms, "nearly", lambda *given: (np.ones(3), 0.5))
    seen = []

    def minimize_perturbed(tilt, ridge, tolerance, n):
        seen.append((tilt.tolist(), tolerance))
        return np.zeros(3), 1

    rows, bound = np.zeros((100, 3)), dpa.RowBound(2, 1.0)
    facts = dpa.ERM(rows, np.ones(100), dpa.losses.Logistic(), row_bound=bound).facts
    problem = SimpleNamespace(d=3, facts=facts, minimize_perturbed=minimize_perturbed)
    query = PerturbedMinimum("spherical", 1.0, 0.1, 0.02, 0.0)
    query.answer(Records(problem, None, 100.0), mechanisms.random_source(0))
    assert seen == [([0.01] * 3, pytest.approx(0.015))]
    # The rounding of a gradient, here about a tenth, is subtracted too.
    monkeypatch.setattr(mechanisms, "nearly", lambda *given: (np.ones(3), 1e-12))
    off = rounding_of_gradient(facts("replace_one"), math.sqrt(query.expected_square(3)) / 100, 0.1)
    query = dataclasses.replace(query, tolerance=10.0 * off)
    query.answer(Records(problem, None, 100.0), mechanisms.random_source(0))
    assert seen[1][1] == pytest.approx(9.0 * off - 1e-14, rel=1e-9, abs=0.0)


def test_records_in_parts_are_drawn_by_integers():
    source = mechanisms.random_source("os")
    assert all(map(len, dpa.BallsInBins(3).draw_epoch(500, source))) and not source.floating
    drawn = (3 * np.random.default_rng(0).random(50)).astype(int)
    batches = dpa.BallsInBins(3).draw_epoch(50, np.random.default_rng(0))
    assert all((drawn[rows] == bin).all() for bin, rows in enumerate(batches))
