"""The rounding bound for sums, against exact arithmetic; tiny coefficients; functions."""

import math
from fractions import Fraction

import array_api_strict as xp
import mpmath as mp
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from dpanalysis import ERM, RowBound, clipping, losses
from dpanalysis.kernels import scalar
from dpanalysis.kernels.array_api import Total, product_sum
from dpanalysis.kernels.rounding import BLOCK_ROWS, DOUBLE, SINGLE, TINY, sum_rounding
from dpanalysis.problems.rows.checks import recheck_slack


@pytest.mark.parametrize(
    ("n", "d"), [(0, 1), (1, 1), (5000, 3), (100, 50_000), (10**6, 784), (10**8, 54)]
)
def test_the_bound_is_that_of_its_proof_in_exact_arithmetic(n, d):
    def gamma(k):
        return Fraction(k) * Fraction(DOUBLE) / (1 - Fraction(k) * Fraction(DOUBLE))

    own = gamma(d + 16)
    exact = n * gamma(max(4096, d) + n // 2048 + 1 + 64 + 1) * (1 + own) + own
    assert exact <= Fraction(sum_rounding(n, d)) <= exact * Fraction(11, 10)


def test_the_bound_grows_with_all_that_it_depends_on():
    base = sum_rounding(10_000, 20)
    assert base < sum_rounding(10_001, 20) and base < sum_rounding(10_000, 21)
    assert base < sum_rounding(10_000, 20, parts=100)
    assert sum_rounding(10_000, 20, unit=SINGLE) - base == pytest.approx(37 * SINGLE, rel=1e-3)


def test_a_problem_has_the_bound_of_one_record_more():
    """Under add_or_remove_one the other data set may have it."""
    problem = ERM(np.ones((99, 3)), np.ones(99), losses.Logistic())
    assert problem.rounding == sum_rounding(100, 3) + recheck_slack(3)


def test_a_block_of_an_array_sum_has_at_most_so_many_rows():
    """Two ones are lost beside 2^53 one by one, but not as the sum of a block of their own."""
    total = Total(np.zeros(1))
    for rows, term in ((BLOCK_ROWS, 2.0**53), (1, 1.0), (BLOCK_ROWS - 1, 1.0)):
        block = total.open(rows)
        block += term
    assert total.close() == 2.0**53 + 2.0


class _Additions:
    """A number that counts the additions which its terms have gone through, at most."""

    def __init__(self, count=0):
        self.count = count

    def __mul__(self, other):
        return _Additions()

    def __add__(self, other):
        return _Additions(1 + max(self.count, getattr(other, "count", 0)))

    __radd__ = __add__


@pytest.mark.parametrize("blocks", [1, 3, 20])
def test_a_product_adds_no_term_more_often_than_the_proof_says(blocks):
    n = blocks * BLOCK_ROWS + 5
    terms = np.array([_Additions() for _ in range(n)])[:, None]
    (total,) = product_sum(terms, terms).ravel()
    assert total.count <= BLOCK_ROWS + n // 2048 + 1


@pytest.mark.parametrize(
    "arguments", [(-1, 1), (1, 0), (1, 1, 0), (1, 1, 1, 0.0), (1, 1, 1, 0.1), (10**17, 10**17)]
)
def test_what_has_no_bound_is_refused(arguments):
    with pytest.raises(ValueError, match=r"n must|d must|parts must|unit must|no bound"):
        sum_rounding(*arguments)


@pytest.mark.parametrize("matrix", [np.asarray, sp.csr_array, xp.asarray])
def test_coefficients_below_the_smallest_add_exactly_nothing(matrix):
    """Near underflow a product with them may have a larger relative error than the bound."""
    X = np.ones((3, 2))
    problem = ERM(matrix(X), [1.0, 1.0, -1.0], losses.SquaredError())
    for factor in (1.0, 0.5):
        scale = TINY * factor
        found = problem.sums(np.zeros(2), clipping=clipping.Flat(scale), value=False).gradient
        # The coefficient of a record is its clipped residual scale/||x||, below TINY for both.
        assert not np.asarray(found).any()
    found = problem.sums(np.zeros(2), clipping=clipping.Flat(4.0 * TINY), value=False).gradient
    assert np.asarray(found).any()
    # Scaling a row to its bound multiplies its coefficient, which is then below or above TINY.
    problem = ERM(matrix(X), [1.0, 1.0, -1.0], losses.SquaredError(), row_bound=RowBound(2, 1e-3))
    for times, any_left in ((2e-3, False), (20.0, True)):
        rule = clipping.Flat(times * TINY)
        found = problem.sums(np.zeros(2), clipping=rule, value=False).gradient
        assert np.asarray(found).any() == any_left


FUNCTIONS = {
    "log": (scalar.log_any, mp.log, (5e-324, 1.7e308)),
    "log1p": (scalar.log1p_any, mp.log1p, (math.nextafter(-1.0, 0.0), 1.7e308)),
    "exp": (scalar.exp_any, mp.exp, (-708.0, 709.78)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@given(st.data())
def test_elementary_functions_have_the_error_stated(name, data):
    found, exact, (low, high) = FUNCTIONS[name]
    near = st.floats(max(low, -1e-3), 1e-3) | st.floats(0.5, 2.0)
    x = data.draw(st.sampled_from([low, high]) | near | st.floats(low, high))
    with mp.workdps(60):
        error = abs(mp.mpf(found(x)) - exact(mp.mpf(x)))
        assert error <= 1e-15 * abs(exact(mp.mpf(x)))


def test_the_error_of_a_rounding_is_half_the_gap_after_one():
    assert [np.finfo(kind).eps / 2 for kind in ("f8", "f4")] == [DOUBLE, SINGLE]
