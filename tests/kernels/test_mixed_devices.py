"""Arguments on several devices: host arrays move to the data, others are refused."""

import array_api_strict
import numpy as np
import pytest
import scipy.sparse as sp
from devices import ANY, LIBRARIES, Double

import dpanalysis as dpa
from dpanalysis import clipping
from dpanalysis._devices import to_host
from dpanalysis.problems import MLP, Softmax

N, D = 12, 3
RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((N, D))
Y = np.where(np.arange(N) % 3, 1.0, -1.0)
KINDS = {
    "erm": lambda X, y: dpa.ERM(X, y, dpa.losses.Logistic(), dpa.regularizers.L2(0.1)),
    "softmax": lambda X, y: Softmax(X, (y + 1) / 2, 2),
    "mlp": lambda X, y: MLP(X, (y + 1) / 2, (4,), 2),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("library", ANY)
def test_everything_may_be_on_the_host_or_with_the_data(library, kind):
    """Labels, iterates, rows, weights and test data, each on either side."""
    xp = LIBRARIES[library]()
    host = KINDS[kind](X, Y)
    w, rows, weights = RANDOM.standard_normal(host.d), np.array([1, 1, 5]), np.arange(N)
    rule = clipping.Flat(0.3)
    expected = host.sums(w, rows, rule, weights=weights)
    gradient, accuracy = host.gradient(w), host.accuracy(w, X[:5], host._y[:5])
    for labels in (Y, xp.asarray(Y)):
        device = KINDS[kind](xp.asarray(X), labels)
        for at in (w, w.tolist(), xp.asarray(w)):
            for chosen in (rows, rows.tolist(), xp.asarray(rows)):
                if isinstance(chosen, list):
                    chosen = np.array(chosen)
                for counts in (weights, xp.asarray(weights)):
                    found = device.sums(at, chosen, rule, weights=counts)
                    assert float(found.value) == pytest.approx(expected.value, rel=1e-10)
                    np.testing.assert_allclose(to_host(found.gradient), expected.gradient)
                    assert int(found.clipped) == expected.clipped
            assert device.value(at) == pytest.approx(host.value(w), rel=1e-10)
            assert isinstance(device.value(at), float)
            np.testing.assert_allclose(to_host(device.gradient(at)), gradient, rtol=1e-10)
            for data in (X[:5], xp.asarray(X[:5])):
                assert device.accuracy(at, data, host._y[:5]) == accuracy
                assert device.accuracy(at, data, xp.asarray(host._y[:5])) == accuracy


def calls(problem, foreign):
    """Yield calls with each argument in turn converted by ``foreign``."""
    w = np.zeros(problem.d)
    yield "w", lambda: problem.sums(foreign(w))
    yield "w", lambda: problem.value(foreign(w))
    yield "w", lambda: problem.gradient(foreign(w))
    yield "w", lambda: problem.place(foreign(w))
    yield "rows", lambda: problem.sums(w, foreign(np.arange(3)))
    yield "rows", lambda: problem.sums(np.stack([w, w]), [np.arange(2), foreign(np.arange(3))])
    yield "weights", lambda: problem.sums(w, weights=foreign(np.ones(N)))
    yield "X", lambda: problem.accuracy(w, foreign(X), np.zeros(N) + 1)
    yield "y", lambda: problem.accuracy(w, X, foreign(np.zeros(N) + 1))
    method = dpa.methods.GradientDescent(0.1, 1)
    yield "w0", lambda: dpa.minimize(problem, method, w0=foreign(w))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", ["host", "strict", "other double"])
def test_arrays_of_another_device_are_refused_by_name(kind, place):
    """The message names the argument and both namespaces; no array is read back silently."""
    home = {"host": np, "strict": array_api_strict, "other double": Double()}[place]
    foreign = Double()
    problem = KINDS[kind](home.asarray(X), Y)
    wanted = {"host": "numpy", "strict": "array_api_strict", "other double": "double"}[place]
    for name, call in calls(problem, foreign.asarray):
        wanted_here = "numpy" if name == "w0" else wanted
        with pytest.raises(TypeError, match=f"{name} must be .*{wanted_here}.* got one of double"):
            call()
    with pytest.raises(TypeError, match=r"y must be an array of numpy.* got one of double"):
        KINDS["erm"](home.asarray(X), foreign.asarray(Y))
    assert not foreign.waits


def test_two_devices_of_one_library_are_refused():
    here, there = (array_api_strict.Device(name) for name in ("CPU_DEVICE", "device1"))
    for mine, other in ((here, there), (there, here)):
        problem = KINDS["erm"](array_api_strict.asarray(X, device=mine), Y)
        w = array_api_strict.asarray(np.zeros(D), device=other)
        with pytest.raises(TypeError, match=r"w must be on .* as the data, got one on"):
            problem.sums(w)
    # Everything stays on the device that is not the default one.
    w = array_api_strict.asarray(np.ones(D), device=there)
    problem = KINDS["erm"](array_api_strict.asarray(X, device=there), Y)
    total = problem.sums(w, np.arange(5), clipping.Flat(1.0), weights=np.ones(N))
    assert total.gradient.device == there
    other = KINDS["mlp"](array_api_strict.asarray(X, device=there), Y)
    w = array_api_strict.asarray(other.initial(0), device=there)
    assert other.sums(w, np.arange(5), clipping.Flat(1.0)).gradient.device == there


def test_a_sparse_matrix_does_not_go_to_a_device():
    problem = KINDS["erm"](array_api_strict.asarray(X), Y)
    with pytest.raises(TypeError, match=r"X must be .* got a sparse matrix"):
        problem.accuracy(np.zeros(D), sp.csr_array(X), Y)
    with pytest.raises(TypeError, match=r"y must be .* got a sparse matrix"):
        KINDS["erm"](X, sp.csr_array(Y[:, None]))
