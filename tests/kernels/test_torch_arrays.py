"""Problems on PyTorch tensors, with the array calls used for every device."""

import numpy as np
import pytest
from array_api_compat import array_namespace

import dpanalysis as dpa
from dpanalysis import clipping
from dpanalysis.privacy import mechanisms
from dpanalysis.problems.networks.layers import gradient_norms

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch==2.13.0")

ADD = "add_or_remove_one"
RNG = np.random.default_rng(0)
X = RNG.normal(size=(1000, 8))
Y = np.where(X @ RNG.normal(size=8) > 0.0, 1.0, -1.0)
RULES = [
    None,
    clipping.Flat(0.3),
    clipping.Automatic(0.1, 0.3),
    clipping.PerSampleAdaptive(0.1, 0.3),
    clipping.Custom(lambda norm, loss: 0.1 / (norm + 1.0), 0.1),
]


def build(kind, X, y):
    if kind == "ERM":
        penalty, bound = dpa.regularizers.L2(0.1), dpa.RowBound(2, 3.0, "clip")
        return dpa.ERM(X, y, dpa.losses.Logistic(), penalty, bound)
    labels = (y + 1) / 2
    if kind == "Softmax":
        return dpa.problems.Softmax(X, labels, n_classes=2)
    return dpa.problems.MLP(X, labels, hidden=(4,), n_classes=2)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
@pytest.mark.parametrize("kind", ["ERM", "Softmax", "MLP"])
def test_sparse_tensors_are_refused_by_name(kind):
    for rows in (torch.eye(4).to_sparse(), torch.eye(4).to_sparse_csr()):
        with pytest.raises(TypeError, match=r"X must be dense .* of layout .*_c(oo|sr)"):
            build(kind, rows, np.array([1.0, -1.0, 1.0, -1.0]))


@pytest.mark.parametrize("kind", ["ERM", "Softmax", "MLP"])
def test_complex_tensors_are_refused_by_name(kind):
    rows, y = torch.tensor(X[:9]), torch.tensor(Y[:9])
    for name, given in (("X", (rows + 1j, y)), ("y", (rows, y + 0j)), ("y", (rows, Y[:9] + 0j))):
        with pytest.raises(TypeError, match=f"{name} must hold real numbers, got dtype .*complex"):
            build(kind, *given)


@pytest.mark.parametrize("kind", ["ERM", "Softmax", "MLP"])
def test_gradients_and_signs_of_a_tensor_are_settled_before_anything_is_spent(kind):
    """NumPy, which multiplies the rows, reads neither; the signs of conjugates are pending."""
    opposite = (torch.tensor(X[:9]) * -1j).conj().imag
    assert opposite.is_neg()
    host, batch = build(kind, X[:9], Y[:9]), np.array([1, 1, 4])
    w = np.linspace(-1.0, 1.0, host.d)
    for rows in (opposite, torch.tensor(X[:9], requires_grad=True)):
        away = build(kind, rows, torch.tensor(Y[:9], requires_grad=True))
        for chosen in (None, batch):
            total, expected = (p.sums(w, chosen, clipping.Flat(0.1)) for p in (away, host))
            np.testing.assert_allclose(total.gradient, expected.gradient, rtol=1e-10, atol=1e-14)
            along, expected = (p.line_losses(w, w, chosen)(0.5) for p in (away, host))
            np.testing.assert_allclose(along, expected, rtol=1e-10)
        assert not away.gradient_sum(w[None, :]).requires_grad


@pytest.mark.parametrize("kind", ["ERM", "Softmax", "MLP"])
def test_sums_stay_on_the_device_of_the_data_whatever_the_default(kind):
    problem, batch = build(kind, torch.tensor(X), Y), np.zeros(0, int)
    w = np.linspace(-1.0, 1.0, problem.d)

    def found():
        total = problem.sums(w, clipping=clipping.Flat(0.1))
        along = [problem.line_losses(w, w, rows)(0.5).sum() for rows in (None, batch)]
        return [*total.gradient, total.value, *along, problem.accuracy(w)]

    expected = found()
    with torch.device("meta"):
        assert found() == expected


@pytest.mark.parametrize("form", [">f8", "longdouble", "reversed"])
def test_arrays_of_numpy_in_any_form_go_to_tensors(form):
    def formed(array):
        return np.flip(np.flip(array).copy()) if form == "reversed" else array.astype(form)

    host, w = build("ERM", X, Y), np.linspace(-1.0, 1.0, 8)
    away = build("ERM", torch.tensor(X), formed(Y))
    np.testing.assert_allclose(away.gradient(formed(w)), host.gradient(w), rtol=1e-12, atol=1e-14)
    total = away.sums(formed(w), weights=formed(np.arange(1000.0))).value
    assert total == pytest.approx(host.sums(w, weights=np.arange(1000.0)).value)


@pytest.mark.parametrize("kind", ["ERM", "Softmax"])
def test_hessians_are_added_in_double_precision(kind):
    host, away = build(kind, X, Y), build(kind, torch.tensor(X), torch.tensor(Y))
    w = np.linspace(-1.0, 1.0, host.d)
    np.testing.assert_allclose(away.hessian(w), host.hessian(w), rtol=1e-12, atol=1e-14)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("kind", ["ERM", "Softmax", "MLP"])
def test_sums_and_runs_are_those_of_numpy(kind, dtype):
    host = build(kind, X.astype(dtype), Y)
    away = build(kind, torch.tensor(X, dtype=getattr(torch, dtype)), torch.tensor(Y))
    tolerance = {"float64": 1e-10, "float32": 2e-3}[dtype]
    W = RNG.normal(size=(2, host.d))
    rows = [np.arange(0, 1000, 7), np.zeros(0, dtype=int)]
    for rule in RULES:
        for chosen in (None, rows):
            mine, theirs = (p.sums(W, rows=chosen, clipping=rule) for p in (away, host))
            assert isinstance(mine.gradient, np.ndarray)
            scale = np.abs(theirs.gradient).max()
            assert np.abs(mine.gradient - theirs.gradient).max() <= tolerance * scale
            np.testing.assert_allclose(mine.value, theirs.value, rtol=tolerance)
    placed = away.sums(away.place(W), clipping=RULES[1], value=False).gradient
    assert isinstance(placed, torch.Tensor)
    method = dpa.methods.SGD(0.5, 10, dpa.Poisson(0.1), RULES[1], momentum=0.9)
    budget = dpa.Budget(1.0, 1e-5, ADD)
    ends = [
        dpa.minimize(p, method, budget, w0=W[0], rng=0, record=("objective", "accuracy"), every=5)
        for p in (away, host)
    ]
    assert np.abs(ends[0].w - ends[1].w).max() <= 1e2 * tolerance
    assert ends[0].epsilon() == pytest.approx(ends[1].epsilon(), rel=0.02)


@pytest.mark.slow
def test_a_problem_on_tensors_keeps_the_contract():
    dpa.testing.check_problem(build("ERM", torch.tensor(X[:50]), torch.tensor(Y[:50])))


@pytest.mark.parametrize("replicates", [1, 3])
def test_a_record_that_is_removed_moves_no_other_prediction(replicates):
    """With steep losses the last bit of a prediction may change a gradient completely."""
    random = np.random.default_rng(1)
    rows = random.normal(size=(1000, 50)).astype(np.float32)
    rows /= np.float32(1.01) * np.linalg.norm(rows, axis=1, keepdims=True)
    W = 1e9 * random.normal(size=(replicates, 50))
    labels = (rows @ W[0].astype(np.float32)).astype(float)

    def build(kept):
        loss, bound = dpa.losses.Huber(1.0), dpa.RowBound(2, 1.0)
        X, y = torch.tensor(rows[kept]), torch.tensor(labels[kept])
        return dpa.ERM(X, y, loss, row_bound=bound, size=1000)

    sums = [build(slice(first, None)).gradient_sum(W).numpy() for first in range(5)]
    moved = np.linalg.norm(np.diff(sums, axis=0), axis=2).max()
    assert moved <= build(slice(None)).facts(ADD).record_sensitivity(2)


def test_a_record_that_is_removed_changes_no_other_norm():
    """With a rule that jumps at one norm, a last bit once moved the sum by 16 clip norms."""
    numbers = torch.tensor(np.random.default_rng(3).random((4, 1, 4096, 2)))
    sizes, hidden, *deltas = numbers[0, 0, :, 0], *numbers[1:]

    def norms(rows):
        parts = [each[:, rows] for each in (hidden, *deltas)]
        return gradient_norms(array_namespace(sizes), sizes[rows], parts[:1], parts[1:], True)[0]

    whole = norms(slice(None))
    parts = [norms(slice(first, first + 3)) for first in range(0, 4096, 3)]
    assert torch.equal(torch.cat(parts), whole)


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_noise_on_tensors_is_that_of_the_host(law):
    zeros = np.zeros((2, mechanisms.DRAWN_ON_DEVICE + 1))
    sources = [np.random.default_rng(k) for k in (1, 2)]
    away = mechanisms.add_noise(torch.tensor(zeros), law, 2.0, sources)
    sources = [np.random.default_rng(k) for k in (1, 2)]
    np.testing.assert_array_equal(away.numpy(), mechanisms.add_noise(zeros, law, 2.0, sources))


def test_arrays_that_cannot_be_written_are_taken():
    frozen = X[:9].astype(np.float32)
    frozen.flags.writeable = False
    problem = build("ERM", torch.tensor(X[:9]), Y[:9])
    w = np.broadcast_to(np.ones(8), (2, 8))
    assert problem.sums(w).gradient.shape == (2, 8)
    module = dpa.problems.Module(torch.nn.Linear(8, 2), frozen, np.broadcast_to([1], 9))
    assert module.n == 9
