"""Neighbouring data sets are accepted; others are refused with their differences."""

import numpy as np
import pytest
import scipy.sparse as sp

from dpanalysis import ERM, Budget, RowBound, losses
from dpanalysis.audit.outcomes import check_neighbours
from dpanalysis.audit.verify import verify_privacy


def untouched(data, rng, size):
    raise AssertionError("the mechanism must not run")


X = np.arange(12.0).reshape(4, 3)
Y = np.array([1.0, -1.0, 1.0, -1.0])
OTHER = np.where(np.arange(4)[:, None] == 2, -X, X)
FLIPPED = np.where(np.arange(4) == 1, -Y, Y)
REPLACE, ADD = "replace_one", "add_or_remove_one"


def problem(X, y):
    return ERM(X, y, losses.Logistic(), row_bound=RowBound(2, 100.0))


NEIGHBOURS = [
    (X, OTHER, None),
    (X, OTHER, REPLACE),
    (X, X[1:], None),
    (X[[3, 1, 0]], X, ADD),
    ((X, Y), (X, FLIPPED), None),
    ((X, Y), (X[:3], Y[:3]), ADD),
    (problem(X, Y), problem(X, FLIPPED), REPLACE),
    (sp.csr_array(X), sp.csr_array(OTHER), REPLACE),
    (sp.csr_array(X.astype(np.int64)), sp.csr_array(OTHER), REPLACE),
    (X.astype(np.float32), OTHER, REPLACE),
    (np.where(X == 0.0, -0.0, X), OTHER, REPLACE),
    ([[1, 2], [3, 4]], [[1, 2], [3, 5]], None),
    ([1, 2, 3], [1, 2], ADD),
    (["a", "b"], ["a", "c"], REPLACE),
    ([1.0, 2.0, 3.0], [2.0, 3.0, 4.0], None),  # answers to queries: all may move
    (0.0, 1.0, REPLACE),
    ({"count": 0}, {"count": 9}, None),
    ([{"age": 3}, {"age": 4}], [{"age": 4}], None),
    ([{"age": 3}, {"tags": ["a"]}], [{"age": 3}, {"tags": ["b"]}], REPLACE),
    ([[1, 2], [3]], [[1, 2]], ADD),
    ([[1, 2], [3]], [[1, 2], [3, 4]], None),
    ((Y, 3.0), (Y, 4.0), None),
]


@pytest.mark.parametrize(("dataset", "neighbour", "relation"), NEIGHBOURS)
def test_neighbours_are_accepted(dataset, neighbour, relation):
    def ignores(data, rng, size):
        return rng.random(size)

    for pair in ((dataset, neighbour), (neighbour, dataset)):
        verify_privacy(ignores, *pair, 1.0, samples=200, relation=relation, rng=0)


NOT_NEIGHBOURS = [
    (X, -X, None, r"differ in one row \(replace_one\), they differ in 4 \(0, 1, 2, 3\)"),
    (X, X[::-1], REPLACE, "they differ in 4 .* 0 if order is ignored"),
    (X, X.copy(), None, "they are equal"),
    (X, X[:2], None, "without one row .* but they have 4 and 2 rows"),
    (X, X[1:], REPLACE, "the same number of rows, but they have 4 and 3"),
    (X, OTHER, ADD, "without one row .* but they have 4 and 4"),
    (X, -X[1:], None, "4 rows of the longer are not in the shorter"),
    ((X, Y), (OTHER, FLIPPED), None, r"they differ in 2 \(1, 2\)$"),
    (problem(X, Y), problem(-X, Y), None, r"they differ in 4"),
    (sp.csr_array(X), sp.csr_array(-X), None, r"they differ in 4"),
    (X, (X, Y), None, "records of one kind"),
    (X, 3.0, None, "of one kind, got ndarray and float"),
    (X, X[:, :2], None, r"records of one kind, got rows of shape \(3,\) and rows of shape \(2,\)"),
    (Y, Y[:2], None, "without one entry .* they have 4 and 2 entries"),
    (Y, -Y, REPLACE, "differ in one entry .* they differ in 4"),
    (Y, Y.copy(), None, "they are equal"),
    ("text", "text", None, "must differ, they are equal"),
    ({"a": 1}, {"a": 1}, REPLACE, "must differ, they are equal"),
    ([{"a": 1}, {"a": 2}], [{"a": 2}, {"a": 1}], None, "they differ in 2"),
    ([[1, 2], [3]], [[1], [2]], None, "they differ in 2"),
]


@pytest.mark.parametrize(("dataset", "neighbour", "relation", "message"), NOT_NEIGHBOURS)
def test_other_pairs_are_refused_with_their_differences(dataset, neighbour, relation, message):
    with pytest.raises(ValueError, match=message):
        verify_privacy(untouched, dataset, neighbour, 1.0, samples=1_000, relation=relation)


def test_the_relation_of_a_budget_is_used():
    with pytest.raises(ValueError, match="the same number of rows"):
        verify_privacy(untouched, X, X[1:], Budget(1.0), samples=1_000)
    with pytest.raises(ValueError, match="without one row"):
        verify_privacy(untouched, X, OTHER, Budget(1.0, relation=ADD), samples=1_000)


def test_sparse_records_are_left_as_they_are():
    """Explicit zeros and duplicates of the caller's arrays were removed in place."""
    data = sp.csr_array((np.array([1.0, 0.0, 2.0, 3.0]), [1, 0, 1, 1], [0, 2, 4]), shape=(2, 2))
    other = data.copy()
    other.data[0] = 5.0
    stored = data.data.copy(), data.indices.copy()
    check_neighbours(data, other, "replace_one")
    np.testing.assert_array_equal(data.data, stored[0])
    np.testing.assert_array_equal(data.indices, stored[1])
    assert data.nnz == other.nnz == 4


def test_sparse_records_are_equal_if_their_numbers_are():
    """However the zeros of a row are stored: the other row is the one record that differs."""
    indptr, indices = [0, 2, 3], [0, 1, 1]
    data = sp.csr_array((np.array([-0.0, 1.0, 2.0]), indices, indptr), shape=(2, 2))
    other = sp.csr_array(np.array([[0.0, 1.0], [0.0, 3.0]]))
    check_neighbours(data, other, "replace_one")
    check_neighbours(other, data, "replace_one")
