"""Value clipping by the problem's own constants: they bound every gradient at every iterate."""

import math
import pickle
import types
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpanalysis as dpa
from dpanalysis import clipping, losses, theory
from dpanalysis.problems.empirical import EmpiricalRisk

RANDOM = np.random.default_rng(0)
BOUND = dpa.RowBound(2, 1.5, "clip")
X, Y = RANDOM.normal(size=(40, 6)), RANDOM.integers(0, 3, 40)


def mlp(bias=True, hidden=(5, 4), **more):
    return dpa.problems.MLP(X, Y, hidden, 3, "tanh", bias, row_bound=BOUND, **more)


# ------------------------------------------------------------ spectral norms


@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 10**6), st.sampled_from([1e-3, 0.1]))
def test_the_spectral_bound_is_never_below_the_norm(rows, columns, seed, excess):
    random = np.random.default_rng(seed)
    stack = random.normal(size=(3, rows, columns)) * 10.0 ** random.integers(-4, 5, (3, 1, 1))
    stack[1] = np.outer(stack[1, :, 0], stack[1, 0])  # of rank 1
    stack[2] = np.round(stack[2])  # equal singular values, and zeros
    norms = np.linalg.norm(stack, 2, axis=(1, 2))
    found = theory.spectral_bound(stack, excess)
    assert (found >= norms * (1.0 - 1e-15)).all()
    assert (found <= norms * (1.0 + 1.001 * excess) + 1e-300).all()
    assert [theory.spectral_bound(each, excess) for each in stack] == found.tolist()


def test_the_spectral_bound_of_orthogonal_rows():
    """A hundred equal singular values, and two largest ones that differ by 1e-9."""
    assert 7.0 <= theory.spectral_bound(7.0 * np.eye(100)) <= 7.0 * 1.001
    hidden = np.diag([1.0, 1.0 - 1e-9, 0.5]) @ np.linalg.qr(RANDOM.normal(size=(3, 3)))[0]
    assert 1.0 <= theory.spectral_bound(hidden) <= 1.001


def test_extreme_matrices_have_a_spectral_bound():
    assert theory.spectral_bound(np.zeros((2, 3))) == 0.0
    assert theory.spectral_bound(1e300 * np.eye(3)) == pytest.approx(1e300, rel=1e-3)
    assert theory.spectral_bound(1e-300 * np.ones((2, 2))) == pytest.approx(2e-300, rel=1e-3)
    for wrong in (math.nan, math.inf, -math.inf):
        assert theory.spectral_bound([[1.0, wrong]]) == math.inf
    mixed = np.stack([np.zeros((2, 2)), np.eye(2), np.full((2, 2), math.nan)])
    assert theory.spectral_bound(mixed).tolist() == pytest.approx([0.0, 1.0, math.inf], rel=1e-3)
    with pytest.raises(ValueError, match="matrix must have shape"):
        theory.spectral_bound([1.0])
    with pytest.raises(ValueError, match="excess"):
        theory.spectral_bound(np.eye(2), 0.0)


# ------------------------------------------------------------ the rule


@pytest.mark.parametrize("bias", [False, True])
def test_the_constant_of_an_mlp_bounds_its_gradients_and_is_that_of_the_theory(bias):
    problem = mlp(bias)
    W = np.geomspace(0.1, 10.0, 4)[:, None] * RANDOM.normal(size=(4, problem.d))
    beta1, beta2 = problem.weak_growth(W)
    assert beta1.shape == (4,) and beta2 == 0.0
    biases = [np.linalg.norm(b, axis=-1) for _, b in problem.layers(W)] if bias else None
    exact = theory.weak_growth_mlp(
        1.5, problem.spectral_norms(W), np.stack(biases, -1) if bias else None
    )
    assert (beta1 >= exact).all() and (beta1 <= 1.01 * exact).all()
    assert problem.weak_growth(W[2])[0] == beta1[2]
    for w, constant in zip(W, beta1):
        each = problem.sums(np.tile(w, (40, 1)), rows=list(np.arange(40)[:, None]))
        assert ((each.gradient**2).sum(axis=1) <= constant * each.value).all()


def linear(kind):
    if kind == "softmax":
        return dpa.problems.Softmax(X, Y, 3, row_bound=BOUND)
    return dpa.ERM(X, np.where(Y > 0, 1, -1), losses.Logistic(), row_bound=BOUND)


@pytest.mark.parametrize("kind", ["softmax", "erm"])
def test_linear_predictors_take_the_constants_of_their_loss(kind):
    problem = linear(kind)
    W = RANDOM.normal(size=(3, problem.d))
    rows = [np.arange(5), np.arange(0), np.array([7, 7])]
    given_ = clipping.Value(0.3, *problem.loss.weak_growth(1.5))
    own, numbers = (problem.sums(W, rows, rule) for rule in (clipping.Value(0.3), given_))
    np.testing.assert_array_equal(own.gradient, numbers.gradient)
    assert own.clipped.tolist() == numbers.clipped.tolist()
    problem.check_clipping(clipping.Value(0.3))


@pytest.mark.parametrize("shared", [True, False])
def test_each_replicate_goes_by_its_own_constant(shared):
    problem = mlp()
    W = np.array([[0.3], [3.0]]) * RANDOM.normal(size=(2, problem.d))
    rows = np.arange(9) if shared else [np.arange(9), np.arange(20, 25)]
    found = problem.sums(W, rows, clipping.Value(0.2))
    beta1 = problem.weak_growth(W)[0]
    for r in range(2):
        mine = rows if shared else rows[r]
        alone = problem.sums(W[r], mine, clipping.Value(0.2, beta1[r]))
        np.testing.assert_allclose(found.gradient[r], alone.gradient, rtol=1e-12, atol=1e-15)
        assert found.value[r] == pytest.approx(alone.value) and found.clipped[r] == alone.clipped
    one = problem.sums(W[0], rows if shared else rows[0], clipping.Value(0.2))
    np.testing.assert_allclose(one.gradient, found.gradient[0], rtol=1e-12, atol=1e-15)


def test_a_private_run_costs_what_flat_clipping_costs():
    problem, budget = mlp(), dpa.Budget(2.0, delta=1e-5, relation="add_or_remove_one")
    ledgers = []
    for rule in (clipping.Flat(0.5), clipping.Value(0.5)):
        method = dpa.methods.SGD(0.1, 5, dpa.Poisson(0.3), rule)
        result = dpa.minimize(problem, method, budget, rng=0, replicates=2, record=())
        ledgers.append(result.ledger)
        assert result.status == "finished"
    assert ledgers[0].events == ledgers[1].events


def test_value_clipping_at_zero_and_at_huge_weights():
    """At 0 every gradient of a network without biases is 0; far out the constant overflows."""
    problem = mlp(bias=False, hidden=(5,))
    assert problem.weak_growth(np.zeros(problem.d))[0] == 0.0
    total = problem.sums(np.zeros(problem.d), clipping=clipping.Value(1.0))
    assert not total.gradient.any() and total.clipped == 0
    with np.errstate(all="ignore"):
        far = problem.sums(np.full(problem.d, 1e200), clipping=clipping.Value(1.0))
    assert np.isfinite(far.gradient).all()
    assert np.linalg.norm(far.gradient) <= 40.0
    assert clipping.Value(1.0).at(math.nan).beta1 == clipping.Value(1.0).at(math.inf).beta1
    assert clipping.Value(1.0).at(0.0, 2.0) == clipping.Value(1.0, 0.0, 2.0)


def test_what_has_no_constants_says_so():
    unbounded = dpa.problems.MLP(X, Y, (5,), 3)
    for call in (
        lambda: unbounded.check_clipping(clipping.Value(1.0)),
        lambda: unbounded.sums(np.zeros(unbounded.d), clipping=clipping.Value(1.0)),
        lambda: dpa.ERM(X, np.sign(X[:, 0]), losses.Logistic()).check_clipping(clipping.Value(1.0)),
    ):
        with pytest.raises(ValueError, match="needs a public bound on the rows"):
            call()
    with pytest.raises(ValueError, match="beta1 must be given to Value"):
        clipping.Value(1.0).weight(None, losses=np.ones(2))
    for more in ({"beta2": 1.0}, {"lower_bound": -1.0}):
        with pytest.raises(ValueError, match="must be 0 without a beta1"):
            clipping.Value(1.0, **more)

    class Own(EmpiricalRisk):  # the base class of problems over samples
        n, d, loss, regularizer = 1, 1, None, None
        _evaluate = L = gradient_bound = None

    with pytest.raises(ValueError, match="Own has no constants of weak growth"):
        Own().check_clipping(clipping.Value(1.0))


# ------------------------------------------------------------ modules of PyTorch

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch==2.13.0")
nn = torch.nn


def module(layers, shape, loss="cross_entropy", radius=1.5, seed=0, outputs=3):
    random = np.random.default_rng(seed)
    X = random.normal(size=(12, *shape))
    if loss == "cross_entropy":
        y = random.integers(0, outputs, 12)
    else:
        y = random.normal(size=(12, outputs))
    bound = dpa.RowBound(2, radius, "clip")
    net = nn.Sequential(*layers).to(torch.float64)
    return dpa.problems.Module(net, X, y, loss, row_bound=bound)


NETWORKS = {
    "convolutions": (
        lambda: [
            nn.Conv2d(2, 4, 3, stride=2, padding=1),
            nn.Tanh(),
            nn.MaxPool2d(2, 1),
            nn.Conv2d(4, 6, (2, 3), padding=(2, 1), groups=2),
            nn.ReLU(),
            nn.AvgPool2d(2),
            nn.Flatten(),
            nn.Linear(18, 3),
        ],
        (2, 8, 8),
    ),
    "one axis": (
        lambda: [
            nn.Sequential(nn.Conv1d(2, 3, 4, dilation=2, padding=3), nn.ReLU()),
            nn.MaxPool1d(3, 2, padding=1),
            nn.AvgPool1d(2, 1),
            nn.Flatten(),
            nn.Linear(12, 3, bias=False),
        ],
        (2, 9),
    ),
    "steps": (lambda: [nn.Linear(4, 5), nn.Tanh(), nn.Flatten(), nn.Linear(15, 3)], (3, 4)),
}


def test_the_outputs_of_tanh_are_as_long_as_is_stated():
    problem = module([nn.Linear(4, 9), nn.Tanh(), nn.Linear(9, 3)], (4,))
    problem.weak_growth(problem.initial())
    assert problem._chain.sizes()[1].most == 3.0  # of nine numbers near -1 or 1


@pytest.mark.parametrize("loss", ["cross_entropy", "mse"])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_constant_of_a_module_bounds_its_gradients(name, loss):
    layers, shape = NETWORKS[name]
    problem = module(layers(), shape, loss)
    start, rows = problem.initial(), np.arange(12)
    for size in (0.2, 1.0, 4.0):
        w = size * (start + 0.1 * RANDOM.normal(size=problem.d))
        beta1 = problem.weak_growth(w)[0]
        squares = (problem.sample_gradients(w, rows) ** 2).sum(axis=1)
        values = problem.line_losses(w, np.zeros_like(w), rows)(0.0)
        assert (squares <= beta1 * values).all()
        clipped = problem.sums(w, clipping=clipping.Value(0.1))
        np.testing.assert_allclose(
            clipped.gradient,
            problem.sums(w, clipping=clipping.Value(0.1, beta1)).gradient,
            rtol=1e-12,
        )
    both = problem.weak_growth(np.stack([start, w]))[0]
    assert both.shape == (2,) and both[1] == beta1
    again = pickle.loads(pickle.dumps(problem))
    assert again.weak_growth(w)[0] == beta1


LAYERS = [
    *(
        (nn.Conv2d(2, 4, k, stride=s, padding=p, dilation=q, groups=g), (2, 7, 6))
        for k, s, p, q, g in [
            (3, 1, 0, 1, 1),
            (3, 2, 1, 1, 2),
            ((2, 4), (3, 1), (2, 0), 1, 1),
            (2, 2, 1, 3, 1),
            (3, 2, 2, 2, 1),
        ]
    ),
    (nn.Conv1d(3, 2, 5, stride=3, padding=4), (3, 8)),
    (nn.MaxPool2d(3, 1, padding=1), (2, 5, 5)),
    (nn.MaxPool2d((3, 2), 2, dilation=(2, 1), ceil_mode=True), (1, 7, 7)),
    (nn.AvgPool2d(3, 2, padding=1), (1, 7, 7)),
    (nn.AvgPool2d(3, 1, padding=1, count_include_pad=False), (1, 5, 5)),
    (nn.AvgPool2d(3, 3, ceil_mode=True), (1, 7, 7)),
    (nn.AvgPool1d(4, 2), (2, 9)),
    (nn.Linear(4, 5), (3, 4)),
]


@pytest.mark.slow
@pytest.mark.parametrize(("layer", "shape"), LAYERS, ids=[str(layer) for layer, _ in LAYERS])
def test_the_norm_of_a_layer_is_at_least_that_of_its_matrix(layer, shape):
    """Against the explicit Jacobian in the input, and the gradients in weight and bias."""
    out = layer(torch.zeros(1, *shape)).numel()
    problem = module([layer, nn.Flatten(), nn.Linear(out, 3)], shape)
    problem.weak_growth(problem.initial())
    first = problem._chain.sizes()[0]
    layer = layer.to(torch.float64)
    random = torch.Generator().manual_seed(0)
    for k in range(8):
        x = torch.randn((1, *shape), generator=random, dtype=torch.float64)
        matrix = torch.autograd.functional.jacobian(layer, x).reshape(out, -1)
        norm = float(torch.linalg.matrix_norm(matrix, 2))
        assert norm <= first.norm * (1.0 + 1e-12)
        if not list(layer.parameters()):
            continue
        x, y = x.requires_grad_(False), layer(x)
        # All ones, the worst case for the bias; then random directions.
        delta = torch.ones_like(y) if k == 0 else torch.randn(y.shape, generator=random)
        delta = delta / delta.norm()
        weight, bias = torch.autograd.grad((y * delta).sum(), [layer.weight, layer.bias])
        assert float(weight.norm()) <= math.sqrt(first.reads) * float(x.norm()) * (1.0 + 1e-6)
        assert float(bias.norm()) <= math.sqrt(first.places) * (1.0 + 1e-6)
        with torch.no_grad():
            assert float(layer(0 * x).norm()) <= first.offset * (1.0 + 1e-12)


def test_windows_that_step_over_their_gaps_read_an_entry_more_often():
    layer = nn.Conv1d(1, 1, 3, stride=2, dilation=2, bias=False, dtype=torch.float64)
    torch.nn.init.ones_(layer.weight)
    problem = module([layer, nn.Flatten(), nn.Linear(19, 3)], (1, 41))
    problem.weak_growth(problem.initial())
    matrix = torch.stack([layer(row[None]).flatten() for row in torch.eye(41).double()[:, None]])
    assert 2.9 < torch.linalg.matrix_norm(matrix, 2) <= problem._chain.sizes()[0].norm


def test_a_bias_counts_at_every_place_that_padding_adds():
    """In this network only the bias has a gradient, and the bound is nearly attained."""
    layers = [nn.Conv2d(1, 1, 1, padding=2), nn.Flatten(), nn.Linear(64, 2, bias=False)]
    problem = module(layers, (1, 4, 4), radius=1e-3, outputs=2)
    w = np.zeros(problem.d)
    w[2:66], w[66:] = 1.0, -1.0
    squares = (problem.sample_gradients(w, np.arange(12)) ** 2).sum(axis=1)
    bound = problem.weak_growth(w)[0] * math.log(2.0)
    assert (squares <= bound).all() and squares.max() >= 0.8 * bound


def test_the_constant_of_two_dense_layers_is_that_of_the_mlp():
    layers = [nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)]
    theirs = dpa.problems.Module(
        nn.Sequential(*layers).to(torch.float64), X, Y, row_bound=dpa.RowBound(2, 1.5)
    )
    ours = dpa.problems.MLP(X, Y, (5,), 3, row_bound=BOUND)
    w = RANDOM.normal(size=ours.d)
    assert theirs.weak_growth(w)[0] == pytest.approx(ours.weak_growth(w)[0], rel=1e-12)
    rule = clipping.Value(0.3)
    np.testing.assert_allclose(
        theirs.sums(w, clipping=rule).gradient, ours.sums(w, clipping=rule).gradient, atol=1e-9
    )


def test_frozen_parameters_do_not_count():
    layers = [nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)]
    all_ = module(layers, (6,))
    for parameter in layers[0].parameters():
        parameter.requires_grad_(False)
    last = module(layers, (6,))
    assert last.weak_growth(last.initial())[0] < all_.weak_growth(all_.initial())[0]


def test_samples_are_brought_inside_their_bound():
    problem = module(NETWORKS["steps"][0](), (3, 4), radius=0.5)
    big = 100.0 * np.ones((2, 3, 4))
    whole = problem.accuracy(problem.initial(), big, np.array([0, 0]))
    same = problem.accuracy(problem.initial(), big / np.sqrt(12) / 200.0, np.array([0, 0]))
    assert whole == same
    norms = problem._records.samples[0].flatten(1).norm(dim=1)
    assert float(norms.max()) <= 0.5
    tight = dpa.RowBound(2, 0.5, "check")
    with pytest.raises(ValueError, match="rows of X exceed"):
        dpa.problems.Module(nn.Linear(6, 3), X, Y, row_bound=tight)
    with pytest.raises(TypeError, match="row_bound needs samples that are real"):
        dpa.problems.Module(
            nn.Sequential(nn.Embedding(4, 2), nn.Flatten(), nn.Linear(4, 3)),
            np.zeros((3, 2), int),
            np.zeros(3, int),
            row_bound=tight,
        )


def _hooked():
    layer = nn.Linear(6, 6)
    layer.register_forward_pre_hook(lambda layer, x: None)
    return layer


def _with_a_method():
    layer = nn.Linear(6, 6)
    layer.forward = types.MethodType(lambda layer, x: 9.0 * x, layer)
    return layer


class First(nn.Module):
    """Take the values of a layer that returns indices, too."""

    def forward(self, both):
        return both[0]


TIED = nn.Linear(6, 6)


@pytest.mark.parametrize(
    ("layers", "shape", "named"),
    [
        ([nn.Linear(6, 6), nn.Sigmoid()], (6,), r"1 \(Sigmoid\) is none of Linear"),
        ([nn.Sequential(nn.LayerNorm(6))], (6,), r"0\.0 \(LayerNorm\) is none of"),
        ([_hooked()], (6,), r"0 \(Linear\) has hooks"),
        ([_with_a_method()], (6,), r"0 \(Linear\) has hooks or a method of its own"),
        ([TIED, nn.ReLU(), TIED], (6,), r"2 \(Linear\) shares a parameter"),
        (
            [nn.Conv1d(1, 1, 3, padding=1, padding_mode="circular"), nn.Flatten()],
            (1, 6),
            r"0 \(Conv1d\) pads by copies",
        ),
        (
            [nn.Conv2d(1, 1, 1), nn.AvgPool2d(1, divisor_override=3), nn.Flatten()],
            (1, 2, 3),
            r"1 \(AvgPool2d\) has a divisor",
        ),
        (
            [nn.MaxPool1d(1, return_indices=True), First(), nn.Flatten()],
            (1, 6),
            r"0 \(MaxPool1d\) returns indices",
        ),
    ],
)
def test_a_layer_that_nothing_is_known_of_is_named(layers, shape, named):
    problem = module([*layers, nn.Linear(6, 3)], shape)
    with pytest.raises(ValueError, match=named):
        problem.check_clipping(clipping.Value(1.0))
    problem.check_clipping(clipping.Value(1.0, 2.0))  # with given constants, the norms decide


def test_a_loss_of_ones_own_and_no_bound_are_refused():
    own = dpa.problems.Module(
        nn.Linear(6, 3), X, Y, lambda out, y: out.square().sum(dim=1), row_bound=BOUND
    )
    with pytest.raises(ValueError, match="needs loss='cross_entropy' or 'mse'"):
        own.check_clipping(clipping.Value(1.0))
    with pytest.raises(ValueError, match="needs a public bound on the rows"):
        dpa.problems.Module(nn.Linear(6, 3), X, Y).check_clipping(clipping.Value(1.0))


@pytest.mark.parametrize("seed", range(10))
def test_the_spectral_bound_covers_its_own_rounding(seed):
    """Of outer products of integers u and v, whose squared norm |u|^2 |v|^2 is exact."""
    random = np.random.default_rng(seed)
    u, v = random.integers(1, 1000, 7), random.integers(1, 1000, 5)
    found = theory.spectral_bound(np.outer(u, v).astype(float))
    assert Fraction(float(found)) ** 2 >= int(u @ u) * int(v @ v)
