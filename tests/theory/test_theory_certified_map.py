"""Certified rates over a grid: by the direct solver and by one compiled program of cvxpy."""

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpanalysis import theory
from dpanalysis.theory import lmi

MU, L = 0.1, 2.0
STEP_SIZES = np.array([0.05, 0.3, 0.6, 0.95])
MOMENTA = np.array([0.0, 0.2, 0.5, 0.85])


@pytest.fixture(scope="module")
def direct():
    return theory.heavy_ball_certified_rate(STEP_SIZES[:, None], MOMENTA, MU, L)


def test_a_map_has_the_rates_of_its_certificates(direct):
    assert direct.shape == (4, 4) and 0 < np.isnan(direct).sum() < 16
    for i, alpha in enumerate(STEP_SIZES):
        for j, beta in enumerate(MOMENTA):
            if np.isfinite(direct[i, j]):
                certificate = theory.heavy_ball_certificate(alpha, beta, MU, L)
                assert certificate.rate == direct[i, j] and certificate.margin >= 0.0
            else:
                with pytest.raises(theory.certificates.CertificateNotFound):
                    theory.heavy_ball_certificate(alpha, beta, MU, L)
    one = theory.heavy_ball_certified_rate(0.3, 0.2, MU, L)
    assert isinstance(one, float) and one == direct[1, 1]
    assert np.isnan(theory.heavy_ball_certified_rate(0.95, 0.85, MU, L))


@given(st.floats(1e-3, 0.99), st.floats(0.02, 1.9))
@settings(max_examples=20)
def test_without_momentum_it_is_the_rate_of_gradient_descent(mu, alpha):
    rate = theory.heavy_ball_certified_rate(alpha, 0.0, mu, 1.0)
    exact = max(abs(1 - alpha * mu), abs(1 - alpha))
    assert exact - 1e-9 <= rate <= exact + 1e-4 * (1 - exact)


@pytest.mark.slow
def test_one_compiled_program_gives_the_same_map(direct):
    lmi._program.cache_clear()
    modelled = theory.heavy_ball_certified_rate(
        STEP_SIZES[:, None], MOMENTA, MU, L, solver="CLARABEL"
    )
    assert lmi._program.cache_info().misses == 1
    assert lmi._program(5, (3, 2, 1, 1)).problem.is_dpp()
    np.testing.assert_array_equal(np.isnan(modelled), np.isnan(direct))
    # cvxpy sets the tolerance of Clarabel to 1e-8, not 1e-11; both results are verified.
    np.testing.assert_allclose(modelled, direct, rtol=0.0, atol=1e-6)


@pytest.mark.slow
@given(st.integers(0, 2**32 - 1))
@settings(max_examples=20)
def test_both_solve_the_same_program(seed):
    random = np.random.default_rng(seed)
    a, b = random.normal(size=(2, 3, 3, 3))
    # Bounded: |y_i| <= 1; feasible: y = 0.
    blocks = [
        np.array([np.eye(3) * (1.0 + random.random()), *(a + a.transpose(0, 2, 1))]),
        np.array([np.eye(3), *(b + b.transpose(0, 2, 1))]),
        *(np.array([1.0, *sign * row]).reshape(4, 1, 1) for row in np.eye(3) for sign in (1, -1)),
    ]
    cost = random.normal(size=3)
    first, second = lmi.maximize(cost, blocks), lmi.maximize_with_cvxpy(cost, blocks, "CLARABEL")
    assert cost @ first == pytest.approx(cost @ second, abs=1e-6)
    for block in blocks:
        for y in (first, second):
            assert np.linalg.eigvalsh(block[0] + np.tensordot(y, block[1:], 1))[0] > -1e-7


def test_concurrent_programs_do_not_share_parameters():
    identity, flip = np.eye(2), np.array([[0.0, 1.0], [1.0, 0.0]])
    wrong = []

    def solve(size):
        for _ in range(5):
            (y,) = lmi.maximize_with_cvxpy([1.0], [np.array([size * identity, flip])], "CLARABEL")
            if abs(y - size) > 1e-5 * size:
                wrong.append((size, y))

    threads = [threading.Thread(target=solve, args=(size,)) for size in (1.0, 2.0, 3.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_bad_arguments_of_maps():
    rate = theory.heavy_ball_certified_rate
    for call, match in (
        (lambda: rate([0.5, 0.0], 0.1, 0.5, 1.0), "step_size"),
        (lambda: rate(0.5, [0.1, 1.0], 0.5, 1.0), "momentum"),
        (lambda: rate([0.5, 0.4], [0.1, 0.2, 0.3], 0.5, 1.0), "must broadcast"),
        (lambda: rate([], 0.1, 2.0, 1.0), "L must"),
        (lambda: rate(0.5, 0.1, 0.5, 1.0, solver="NOSUCH"), "NOSUCH"),
    ):
        with pytest.raises(ValueError, match=match):
            call()
    assert rate([], 0.1, 0.5, 1.0).shape == (0,)
