"""PyTorch networks: per-sample gradients, clipped sums, refused arguments."""

import copy
import itertools
import math

import numpy as np
import pytest
import scipy.sparse as sp

import dpanalysis as dpa
from dpanalysis import clipping

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch==2.13.0")
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset  # noqa: E402

from dpanalysis.problems.modules import probe  # noqa: E402
from dpanalysis.problems.modules.probe import chunk_lengths, random_samples  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_torch_thread")

RULES = [
    clipping.Flat(0.1),
    clipping.Automatic(0.1, 0.5),
    clipping.PerSampleAdaptive(0.1, 0.5),
    clipping.Value(0.3, 2.0),
    clipping.Custom(lambda norm, loss: 0.2 / (norm + loss + 1.0), 0.2),
]
TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-9}


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.attention(x, x, x, need_weights=False)[0].mean(dim=1))


class Tied(nn.Module):
    """Tokens and outputs share one table; one layer is called twice."""

    def __init__(self):
        super().__init__()
        self.table, self.middle = nn.Embedding(7, 4), nn.Linear(4, 4)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.table.weight

    def forward(self, x):
        return self.head(torch.tanh(self.middle(torch.tanh(self.middle(self.table(x).mean(1))))))


class Scale(nn.Module):
    """A custom layer: takes tensors by keyword, returns a dict of tensors."""

    def __init__(self, shape):
        super().__init__()
        self.scale = nn.Parameter(1.0 + torch.rand(shape))

    def forward(self, *, x, shift=None):
        y = self.scale * x
        return {"scaled": y if shift is None else y + shift, "size": y.square().mean(), "tail": y}


class Form(nn.Module):
    """A bilinear form of its input, which also uses the weights of another layer."""

    def __init__(self, weight):
        super().__init__()
        self.form, self.shared = nn.Parameter(0.3 * torch.randn(5, 8, 8)), weight
        self.again = self.form

    def forward(self, x):
        z = torch.einsum("...i,kij,...j->...k", x, self.form + self.again, x)
        return z + x @ self.shared.T


class Mixed(nn.Module):
    """Layers with and without a gradient rule, shared weights, a mask, frozen parameters."""

    def __init__(self, places):
        super().__init__()
        self.conv, self.scale = nn.Conv2d(2, 8, (4, 1)), Scale((8, 1, 1))
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.out = nn.Linear(8, 5)
        self.form, self.head = Form(self.out.weight), nn.Linear(5, 3)
        self.register_buffer("mask", torch.ones(places, places).triu(1).bool())
        self.conv.bias.requires_grad_(False)
        self.attention.in_proj_bias.requires_grad_(False)

    def forward(self, x):
        z = torch.tanh(self.conv(x))
        z = self.scale(x=z)["scaled"].flatten(2).mT
        z = z + self.attention(z, z, z, attn_mask=self.mask, need_weights=False)[0]
        return self.head(torch.tanh(self.form(z) + self.out(torch.tanh(z))).mean(dim=1))


class Rooted(nn.Module):
    """Holds a vector and a scalar beside its layers: only these two need a second pass."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(5, 6), nn.Linear(6, 3)
        self.shift, self.size = nn.Parameter(torch.randn(6)), nn.Parameter(torch.tensor(1.5))

    def forward(self, x):
        return self.size * self.b(torch.tanh(self.a(x) + self.shift).cos() * self.shift)


class Parted(nn.Module):
    """Starts with a layer without a rule, some of whose outputs are not used."""

    def __init__(self):
        super().__init__()
        self.scale, self.head = Scale((6,)), nn.Linear(24, 3)
        self.register_buffer("shift", torch.randn(4, 6))

    def forward(self, x):
        once = self.scale(x=x, shift=self.shift)
        twice = self.scale(x=once["scaled"], shift=self.shift)["scaled"]
        return self.head((twice * once["tail"]).flatten(1))


def encoder():
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    return nn.Sequential(nn.Linear(8, 8), layer, nn.Flatten(), nn.Linear(40, 3))


class Behind(nn.Module):
    """Uses a layer's weights without calling it, writes in place, and swaps axes."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x):
        z = torch.relu_(self.a(x.transpose(0, 1))).transpose(0, 1).mean(dim=1)
        return nn.functional.linear(z, self.b.weight, self.b.bias)


class Stepped(nn.Module):
    """Fails under vmap: its control flow depends on the data."""

    def __init__(self):
        super().__init__()
        self.scale, self.a = nn.Parameter(torch.ones(4)), nn.Linear(4, 3)

    def forward(self, x):
        rows = [self.a(self.scale * (row if row.sum() > 0 else -row)) for row in x]
        return torch.stack(rows)


def frozen():
    module = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))
    module[0].bias.requires_grad_(False)
    module[2].requires_grad_(False)
    return module


def settled(module):
    """Set the statistics of batch normalizations; return the module in eval() mode."""
    with torch.no_grad():
        for layer in module.modules():
            if isinstance(layer, nn.modules.batchnorm._BatchNorm):
                layer.running_mean.normal_()
                layer.running_var.uniform_(0.5, 2.0)
                if layer.affine:
                    layer.weight.uniform_(0.5, 2.0)
                    layer.bias.normal_()
    return module.eval()


def backbone():
    body = nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout2d(0.5), nn.Flatten()
    )
    return settled(nn.Sequential(body.requires_grad_(False), nn.Linear(36, 5), nn.Linear(5, 3)))


class Residual(nn.Module):
    """A frozen backbone with a custom forward; the head has dropout."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(2, 2, 3, padding=1), nn.BatchNorm2d(2)
        self.requires_grad_(False)
        self.drop, self.head = nn.Dropout(0.5), nn.Linear(50, 3)

    def forward(self, x):
        return self.head(self.drop((x + torch.relu(self.norm(self.conv(x)))).flatten(1)))


def twice():
    layer = nn.Linear(6, 6)
    return nn.Sequential(layer, nn.Tanh(), layer, nn.Linear(6, 3))


def convolution(kind, **more):
    dimensions = {nn.Conv1d: 1, nn.Conv2d: 2, nn.Conv3d: 3}[kind]
    return nn.Sequential(kind(2, 4, 3, **more), nn.Tanh(), nn.Flatten(), nn.LazyLinear(3)), (
        2,
        *[7, 6, 5][:dimensions],
    )


def ready(module, shape):
    module(torch.zeros(1, *shape))
    return module, shape


MODULES = {
    "linear": lambda: (
        nn.Sequential(nn.Linear(6, 5), nn.ReLU(inplace=True), nn.Linear(5, 3)),
        (6,),
    ),
    "linear over steps": lambda: (
        nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Flatten(), nn.Linear(20, 3)),
        (4, 6),
    ),
    "wide over steps": lambda: (
        nn.Sequential(nn.Linear(40, 40), nn.Tanh(), nn.Flatten(), nn.Linear(120, 3)),
        (3, 40),
    ),
    "conv1d": lambda: ready(*convolution(nn.Conv1d, stride=2, padding=1)),
    "conv2d": lambda: ready(
        *convolution(nn.Conv2d, stride=(2, 1), padding=(1, 2), dilation=(1, 2))
    ),
    "conv2d same": lambda: ready(*convolution(nn.Conv2d, padding="same", bias=False)),
    "conv2d circular": lambda: ready(*convolution(nn.Conv2d, padding=1, padding_mode="circular")),
    "conv2d groups": lambda: ready(*convolution(nn.Conv2d, groups=2)),
    "conv3d": lambda: ready(*convolution(nn.Conv3d)),
    "embedding": lambda: (
        nn.Sequential(nn.Embedding(9, 4, padding_idx=2), nn.Flatten(), nn.Linear(20, 3)),
        (5,),
    ),
    "group norm": lambda: (
        nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(36, 3)),
        (1, 5, 5),
    ),
    "layer norm": lambda: (
        nn.Sequential(nn.Linear(6, 4), nn.LayerNorm((5, 4)), nn.Flatten(), nn.Linear(20, 3)),
        (5, 6),
    ),
    "instance norm": lambda: (
        nn.Sequential(nn.InstanceNorm1d(3, affine=True), nn.Flatten(), nn.Linear(15, 3)),
        (3, 5),
    ),
    "attention": lambda: (Attention(), (5, 8)),
    "shared": lambda: (Tied(), (3,)),
    "twice": lambda: (twice(), (6,)),
    "frozen": lambda: (frozen(), (6,)),
    "backbone": lambda: (backbone(), (2, 5, 5)),
    "residual backbone": lambda: (settled(Residual()), (2, 5, 5)),
    "batch norm in eval, trained": lambda: (
        settled(nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 3))),
        (6,),
    ),
    "behind": lambda: (Behind(), (5, 4)),
    "stepped": lambda: (Stepped(), (4,)),
    "recurrent": lambda: (Recurrent(), (5, 3)),
    "mixed": lambda: (Mixed(4), (2, 4, 4)),
    "mixed, as many places as are tried": lambda: (Mixed(3), (2, 4, 3)),
    "a parameter of its own": lambda: (Rooted(), (5,)),
    "parts in and out": lambda: (Parted(), (4, 6)),
    "encoder": lambda: (encoder(), (5, 8)),
}
WAYS = {
    "behind": "vmap",
    "stepped": "loop",
    "recurrent": "layers or vmap or loop",  # by the version of PyTorch
}


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.head = nn.LSTM(3, 4, batch_first=True), nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.cell(x)[0][:, -1])


class Sequences(nn.Module):
    """A recurrent layer with several input layouts, whose outputs and last states are used."""

    def __init__(self, kind, form="batch first", **more):
        super().__init__()
        self.form, sides = form, 2 if more.get("bidirectional") else 1
        self.cell = kind(3, 4, batch_first=form != "time first", **more)
        self.head = nn.Linear(2 * sides * more.get("proj_size", 4), 3)

    def forward(self, x):
        given = x.transpose(0, 1) if self.form == "time first" else x
        if self.form == "state":
            start = torch.tanh(x[:, 0, :1])[None].expand(1, -1, 4).contiguous()
            outputs, ends = self.cell(given, (start, start))
        else:
            outputs, ends = self.cell(given)
        outputs = outputs.transpose(0, 1) if self.form == "time first" else outputs
        last = ends[-1] if isinstance(self.cell, nn.LSTM) else ends
        last = ends[0] if self.cell.proj_size else last
        sides = 1 + self.cell.bidirectional
        return self.head(torch.cat([outputs.mean(dim=1), *last[-sides:]], dim=1))


class Alone(Sequences):
    """Calls its layer with one sequence at a time, without a batch axis."""

    def forward(self, x):
        rows = [self.cell(row)[0].mean(dim=0) for row in x]
        return self.head(torch.cat([torch.stack(rows)] * 2, dim=1))


RECURRENT = {
    "lstm": lambda: Sequences(nn.LSTM),
    "lstm, time first": lambda: Sequences(nn.LSTM, "time first", num_layers=2),
    "lstm, both ways": lambda: Sequences(nn.LSTM, num_layers=2, bidirectional=True),
    "lstm, one sequence": lambda: Alone(nn.LSTM, bias=False),
    "gru": lambda: Sequences(nn.GRU, bidirectional=True),
    "gru, two layers": lambda: Sequences(nn.GRU, "time first", num_layers=2, bias=False),
    "tanh": lambda: Sequences(nn.RNN, num_layers=2),
    "relu": lambda: Sequences(nn.RNN, bidirectional=True, nonlinearity="relu"),
}
OTHERWISE = {  # no rule: per-sample gradients are materialized
    "lstm, from a state": lambda: Sequences(nn.LSTM, "state"),
    "lstm, projected": lambda: Sequences(nn.LSTM, proj_size=2),
    "lstm, with a hook": lambda: hooked(Sequences(nn.LSTM)),
}


def hooked(module):
    module.cell.register_forward_pre_hook(lambda layer, given: (2.0 * given[0],))
    return module


@pytest.mark.parametrize("name", [*RECURRENT, *OTHERWISE])
def test_recurrent_layers_give_the_sums_of_a_loop(name):
    module = {**RECURRENT, **OTHERWISE}[name]().double()
    X, y = torch.randn(7, 5, 3, dtype=torch.float64), torch.arange(7) % 3
    problem = dpa.problems.Module(module, X, y, chunk=4)
    network, w, rows = problem._network, problem.initial(), [0, 2, 3, 3, 6]
    if name in RECURRENT:
        assert network.gradient_mode == "layers" and network.forward == "vmap"
        assert network._with_rule == {"cell", "head"}
    losses, gradients = zip(*by_loop(module, X, y, rows))
    for rule in (None, *RULES[:4]):
        gradient, clipped = clipped_sum(losses, gradients, rule)
        total = problem.sums(w, rows=np.array(rows), clipping=rule)
        np.testing.assert_allclose(total.gradient, gradient, rtol=1e-9, atol=1e-12)
        assert total.clipped == clipped
    np.testing.assert_allclose(problem.line_losses(w, w, np.array(rows))(0.0), losses, rtol=1e-9)
    problem.check_private()
    assert "forward" not in vars(network.module.cell)
    other, others = X.clone(), np.arange(7) != 2
    other[2] = 1e3
    moved = dpa.problems.Module(module, other, y, chunk=4)
    assert (moved.line_losses(w, w)(0.0) == problem.line_losses(w, w)(0.0))[others].all()
    sums = [each.sums(w, clipping=RULES[0]).gradient for each in (moved, problem)]
    assert np.linalg.norm(sums[1] - sums[0]) <= 0.2 * (1.0 + 1e-9)
    expected = problem.sample_gradients(w, np.arange(7))[others]
    assert (moved.sample_gradients(w, np.arange(7))[others] == expected).all()
    again = copy.deepcopy(problem)
    assert (again.sums(w).gradient == problem.sums(w).gradient).all()


def problem_of(name, dtype=torch.float64, n=11, **more):
    module, shape = MODULES[name]()
    module.to(dtype)
    tokens = name in ("embedding", "shared")
    X = torch.randint(0, 7, (n, *shape)) if tokens else 2.0 * torch.randn(n, *shape, dtype=dtype)
    y = torch.randint(0, 3, (n,))
    return dpa.problems.Module(module, X, y, **more), module, X, y


def by_loop(module, X, y, rows):
    """The losses and gradients, one sample after the other."""
    module = copy.deepcopy(module)
    trained = [p for p in module.parameters() if p.requires_grad]
    for i in rows:
        loss = nn.functional.cross_entropy(module(X[i : i + 1]).double(), y[i : i + 1])
        grads = torch.autograd.grad(loss, trained)
        yield loss.item(), torch.cat([g.double().flatten() for g in grads]).numpy()


@pytest.mark.parametrize("channels", [1, 3])
def test_images_are_laid_out_by_pixels_where_layers_convolve(channels):
    module = nn.Sequential(nn.Conv2d(channels, 2, 3), nn.Flatten(), nn.Linear(2 * 2 * 3, 3))
    x, y = torch.randn(5, channels, 4, 5), torch.zeros(5, dtype=torch.int64)
    laid_out = dpa.problems.Module(module, x, y)._network._channels_last
    assert torch.equal(laid_out(x), x)
    assert laid_out(x).stride() == (20 * channels, 1, 5 * channels, channels)
    flat = dpa.problems.Module(nn.Sequential(nn.Flatten(), nn.Linear(20 * channels, 3)), x, y)
    assert flat._network._channels_last(x) is x


def clipped_sum(losses, gradients, rule):
    """The clipped sum and the number of clipped samples."""
    norms = np.linalg.norm(gradients, axis=1)
    weights = np.ones(len(losses)) if rule is None else rule.weight(norms, np.array(losses))
    return weights @ np.array(gradients), np.count_nonzero(weights < 1.0)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("name", MODULES)
def test_sums_are_those_of_a_loop_over_samples(name, dtype):
    problem, _, X, y = problem_of(name, dtype, chunk=4)
    assert problem._network.gradient_mode in WAYS.get(name, "layers")
    rows = np.array([0, 3, 3, 10, 7, 2, 9])
    w = 0.9 * problem.initial()  # the parameters that count are those of the iterate
    losses, gradients = zip(*by_loop(problem.module(w), X, y, rows))
    for rule in [None, *RULES]:
        got = problem.sums(w, rows=rows, clipping=rule)
        total, clipped = clipped_sum(losses, gradients, rule)
        assert np.abs(got.gradient - total).max() <= TOLERANCE[dtype] * np.abs(total).max()
        assert math.isclose(got.value, sum(losses), rel_tol=TOLERANCE[dtype])
        assert got.clipped == clipped or rule is None
    problem.check_private()


def test_only_what_has_no_rule_is_written_out():
    """Each parameter's source of gradients, and equal gradients of a copied network."""
    homes = {
        "mixed": {
            "conv.weight": "conv",
            "scale.scale": "scale",
            "attention.in_proj_weight": "attention",
            "attention.out_proj.weight": "attention",  # its layer is never called
            "attention.out_proj.bias": "attention",
            "out.weight": "out",
            "out.bias": "out",
            "form.form": "form",
            "form.again": "form",
            "form.shared": "form",
            "head.weight": "head",
            "head.bias": "head",
        },
        "a parameter of its own": {
            "shift": "",
            "size": "",
            "a.weight": "a",
            "a.bias": "a",
            "b.weight": "b",
            "b.bias": "b",
        },
        "parts in and out": {
            "scale.scale": "scale",  # two of its outputs are used, one computed from the other
            "head.weight": "head",
            "head.bias": "head",
        },
    }
    homes["mixed, as many places as are tried"] = homes["mixed"]
    for name, expected in homes.items():
        network = problem_of(name)[0]._network
        assert network.gradient_layers == expected
        again = copy.deepcopy(network)
        x = (torch.randn(4, *MODULES[name]()[1], dtype=torch.float64),)
        y = torch.arange(4) % 3
        for one, other in zip(network.sample_gradients(x, y)[1], again.sample_gradients(x, y)[1]):
            assert one.where == other.where and torch.equal(
                one.part.materialize(), other.part.materialize()
            )


class Idle(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.idle, self.b = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3)
        self.last = nn.Linear(2, 1)

    def forward(self, x):
        return self.b(torch.tanh(self.a(x)))


def test_a_layer_that_is_not_called_has_gradients_of_zero():
    X, y = _small()
    problem = dpa.problems.Module(Idle().double(), X.double(), y, chunk=4)
    assert problem._network.gradient_mode == "layers"
    got = problem.sums(problem.initial(), clipping=RULES[0]).gradient
    own = problem.module(problem.initial())
    spoken = nn.Sequential(own.a, nn.Tanh(), own.b)
    alone, _ = clipped_sum(*zip(*by_loop(spoken, X.double(), y, range(9))), RULES[0])
    assert np.allclose(got, np.r_[alone[:20], np.zeros(20), alone[20:], np.zeros(3)])


class Masked(Mixed):
    """Calls its attention without a mask where a bias is negative."""

    def forward(self, x):
        mask = self.mask
        self.mask = mask if self.head.bias[0] >= 0.0 else None
        try:
            return super().forward(x)
        finally:
            self.mask = mask


def test_a_layer_that_is_called_otherwise_later_is_refused():
    module = Masked(4).double()
    with torch.no_grad():
        module.head.bias[0] = 1.0
    X, y = torch.randn(11, 2, 4, 4, dtype=torch.float64), torch.randint(0, 3, (11,))
    problem = dpa.problems.Module(module, X, y, chunk=4)
    assert problem._network.gradient_mode == "layers"
    problem.sums(problem.initial(), clipping=RULES[0])
    with pytest.raises(ValueError, match="layer attention is not called in the same way"):
        problem.sums(-problem.initial(), clipping=RULES[0])


def test_weights_count_as_diverged_before_two_layers_can_overflow():
    for dtype in (torch.float32, torch.float64):
        problem, *_ = problem_of("wide over steps", dtype)
        assert problem.largest_iterate**2 == pytest.approx(1e-20 * torch.finfo(dtype).max)


def test_a_rule_lifts_no_double_above_its_norm():
    net = torch.nn.Sequential(torch.nn.Linear(2, 2, bias=False)).double()
    with torch.no_grad():
        net[0].weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 0.0]]))
    rows = np.random.default_rng(0).normal(size=(4, 2)), [[375.0, 1e153]]
    y = np.array([0, 1, 0, 1, 0, 0])
    lifts = clipping.Custom(lambda norm, loss: 1.0 / np.maximum(norm, 1e-300), 1.0)
    rules = (lifts, clipping.Automatic(1e-10), clipping.Flat(1e-12))
    for rule, margin in itertools.product(rules, (330.0, 372.0, 376.0, 380.0, 800.0)):
        X = np.vstack([*rows, [[margin, 1.0]]])
        few, more, most = (dpa.problems.Module(net, X[:k], y[:k], size=5) for k in (4, 5, 6))
        facts, w = more.facts("add_or_remove_one"), few.initial()[None]
        assert few.rounding == more.rounding == most.rounding  # it is public, as the size is
        most_moved = facts.record_sensitivity(2, rule)
        for one, other in ((few, more), (more, most)):
            moved = other.gradient_sum(w, None, rule) - one.gradient_sum(w, None, rule)
            assert np.linalg.norm(moved) <= most_moved


class Sides(torch.nn.Module):
    """Two parallel layers on different entries of a sequence."""

    def __init__(self):
        super().__init__()
        self.one = torch.nn.Linear(16, 16, bias=False)
        self.other = torch.nn.Linear(1, 1, bias=False)

    def forward(self, x):
        return torch.cat([self.one(x[..., :16]).relu(), self.other(x[..., 16:])], dim=-1)


def test_a_tiny_step_beside_a_huge_one_is_part_of_its_norm():
    net = Sides().double()
    with torch.no_grad():
        net.one.weight.abs_()
    X, y = (np.random.default_rng(0).normal(size=(4, 2, 17)) for _ in range(2))
    X[0], y[0] = 0.0, 0.0
    X[0, :, :16], X[0, 0, 16], y[0, 0, :16] = [[1e-90], [-1e100]], 1e-20, 1e100
    problem = dpa.problems.Module(net, X, y, loss="mse")
    assert problem._steps == 2
    w, facts = problem.initial()[None], problem.facts("add_or_remove_one")
    for rule in RULES:
        whole = problem.gradient_sum(w, None, rule)
        moved = whole - problem.gradient_sum(w, [np.array([1, 2, 3])], rule)
        assert np.linalg.norm(moved) <= facts.record_sensitivity(2, rule)


def test_a_record_that_is_not_finite_adds_exactly_nothing():
    for name in ("conv2d", "attention", "wide over steps"):
        problem, _, _, _ = problem_of(name, torch.float32, chunk=4)
        w = problem.initial()
        rows = np.array([0, 1, 2, 3, 4])
        before = problem.sums(w, rows=np.array([0, 1, 3, 4]), clipping=RULES[0]).gradient
        hole = problem.sums(w, rows=rows, clipping=RULES[0])
        problem._records.samples[0][2] = 1e38
        problem._records.samples[0][2].flatten()[0] = math.nan
        for rule in RULES:
            assert np.isfinite(problem.sums(w, rows=rows, clipping=rule).gradient).all()
        after = problem.sums(w, rows=rows, clipping=RULES[0])
        assert np.abs(after.gradient - before).max() < 1e-6 < np.abs(hole.gradient - before).max()


def test_a_record_whose_loss_alone_is_not_finite_adds_nothing():
    def loss(outputs, y):
        return outputs[:, 0] + torch.where(y > 50.0, torch.inf, 0.0)

    X, y = np.random.default_rng(0).normal(size=(4, 3)), np.array([0.0, 0.0, 0.0, 99.0])
    problem = dpa.problems.Module(torch.nn.Linear(3, 2), X, y, loss=loss)
    w, rule = problem.initial(), RULES[0]
    sums = (problem.sums(w, rows=np.arange(n), clipping=rule).gradient for n in (3, 4))
    np.testing.assert_allclose(*sums, rtol=1e-6, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
def test_one_record_moves_a_sum_by_no_more_than_its_bound(rule):
    problem, _, _, _ = problem_of("conv2d", torch.float32, n=40, chunk=8)
    moved = problem.facts("add_or_remove_one").record_sensitivity(2, rule)
    assert rule.clip_norm <= moved <= rule.clip_norm * (1.0 + 1e-9)
    for scale in (1e-30, 1.0, 1e3, 1e15):
        w = scale * problem.initial()
        for i in (0, 13, 39):
            others = np.delete(np.arange(40), i)
            whole = problem.sums(w, clipping=rule).gradient
            rest = problem.sums(w, rows=others, clipping=rule).gradient
            # Other records change places: whether they keep their bits depends on the machine.
            assert np.linalg.norm(whole - rest) <= moved * (1.0 + 1e-6)


def test_chunks_do_not_change_the_sum_and_places_keep_their_bits():
    problem, module, X, y = problem_of("conv2d", n=37, chunk=5)
    w, whole = problem.initial(), None
    for chunk in (1, 5, 16, 37, 64):
        again = dpa.problems.Module(module, X, y, chunk=chunk)
        got = again.sums(w, clipping=RULES[2])
        whole = got if whole is None else whole
        assert np.allclose(got.gradient, whole.gradient, rtol=1e-10, atol=1e-12)
        assert got.clipped == whole.clipped
    assert dpa.problems.Module(module, X, y, chunk=1).keeps_bits()


def test_replicates_weights_and_batches():
    problem, _, _, _ = problem_of("linear", n=20)
    rng = np.random.default_rng(0)
    W = problem.initial() + rng.normal(size=(3, problem.d))
    rows = [np.array([1, 2]), np.zeros(0, dtype=int), np.arange(20)]
    together = problem.sums(W, rows=rows, clipping=RULES[0])
    for r in range(3):
        alone = problem.sums(W[r], rows=rows[r], clipping=RULES[0])
        assert (together.gradient[r] == alone.gradient).all()
        assert together.value[r] == alone.value and together.clipped[r] == alone.clipped
    assert (together.gradient[1] == 0.0).all() and together.value[1] == 0.0
    weights = rng.integers(0, 3, 20).astype(float)
    weighted = problem.clipped_gradient_sum(W[0], RULES[0], weights)
    rows = np.repeat(np.arange(20), weights.astype(int))
    repeated = problem.sums(W[0], rows=rows, clipping=RULES[0])
    once = problem.sums(W[0], rows=np.unique(rows), clipping=RULES[0])
    assert np.allclose(weighted[0], repeated.gradient) and weighted[2] == once.clipped
    single = problem.sample_gradients(W[0], np.arange(4))
    sums = [problem.sums(W[0], rows=np.array([i])).gradient for i in range(4)]
    assert np.allclose(single, sums, atol=1e-14)


def test_values_along_a_line_accuracy_and_the_way_back():
    problem, module, X, y = problem_of("conv2d", n=23)
    w = problem.initial()
    direction = np.random.default_rng(1).normal(size=problem.d)
    rows = np.array([4, 9, 9])
    losses = problem.line_losses(w, direction, rows)(0.1)
    other = problem.module(w - 0.1 * direction)
    expected = nn.functional.cross_entropy(other(X[rows]), y[rows], reduction="none")
    assert np.allclose(losses, expected.detach().numpy())
    assert np.allclose(problem.vector(other), w - 0.1 * direction)
    assert problem.line_losses(w, direction, np.zeros(0, dtype=int))(1.0).shape == (0,)
    right = (other(X).argmax(1) == y).double().mean().item()
    assert problem.accuracy(problem.vector(other)) == pytest.approx(right)
    assert problem.accuracy(problem.vector(other)[None], X[:9], y[:9]).shape == (1,)
    assert (problem.vector(module) == w).all()
    with torch.no_grad():
        module[0].weight.add_(1.0)  # the user's module: the problem keeps its copy
    assert (problem.initial() == w).all()
    assert not np.allclose(problem.vector(module), w)


def test_losses_of_ones_own_and_squared_errors():
    X, y = torch.randn(9, 4), torch.randn(9)
    mse = dpa.problems.Module(nn.Linear(4, 1), X, y, loss="mse")
    own = dpa.problems.Module(
        mse.module(mse.initial()), X, y, loss=lambda z, y: (z[:, 0] - y).square()
    )
    got, expected = (p.sums(mse.initial(), clipping=RULES[0]) for p in (mse, own))
    assert np.allclose(got.gradient, expected.gradient)
    with pytest.raises(ValueError, match="accuracy needs loss='cross_entropy'"):
        own.accuracy(own.initial())
    with pytest.raises(ValueError, match="loss must give one number a sample"):
        dpa.problems.Module(nn.Linear(4, 1), X, y, loss=lambda z, y: (z - y).square().mean())


def test_a_pytorch_loss_without_reduction_equals_the_named_loss():
    X, y = _small()
    named = dpa.problems.Module(nn.Linear(4, 3), X, y)
    module = named.module(named.initial())
    each = dpa.problems.Module(module, X, y, loss=nn.CrossEntropyLoss(reduction="none"))
    got, expected = (p.sums(named.initial(), clipping=RULES[0]) for p in (each, named))
    assert np.allclose(got.gradient, expected.gradient, atol=1e-6)


class Mixes(nn.Module):
    def __init__(self, strength):
        super().__init__()
        self.a, self.strength = nn.Linear(4, 3), strength

    def forward(self, x):
        return self.a(x - self.strength * x.mean(dim=0))


class Draws(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 3)

    def forward(self, x):
        return self.a(x + 0.1 * torch.randn_like(x))


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)), "layer 1 .BatchNorm1d. normalizes"),
        (nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.1)), "layer 1 .Dropout. draws a mask"),
        (nn.Sequential(nn.Embedding(4, 3, max_norm=1.0)), "max_norm=None"),
        (nn.Sequential(nn.Embedding(4, 3, scale_grad_by_freq=True)), "scale_grad_by_freq=False"),
        (nn.Sequential(nn.Embedding(4, 3, sparse=True)), "sparse=False"),
        (nn.Sequential(nn.InstanceNorm1d(4, track_running_stats=True)), "track_running_stats"),
        (nn.LazyLinear(3), "has no shape yet"),
        (nn.DataParallel(nn.Linear(4, 3)), "layer DataParallel spreads .* its .module"),
        (nn.Sequential(nn.DataParallel(nn.Linear(4, 3))), "layer 0 .DataParallel. spreads"),
        (Mixes(1.0), "the loss of a sample changes with the samples beside it"),
        (nn.Sequential(nn.Linear(4, 4), Mixes(1.0)), "its layer 1 .Mixes. does it"),
        (nn.Sequential(Mixes(1.0), nn.Linear(3, 3)), "its layer 0 .Mixes. does it"),
        (Draws(), "or from one call to the next"),
        (nn.Tanh(), "requires_grad=True"),
    ],
    ids=lambda x: type(x).__name__,
)
def test_what_mixes_samples_is_refused_by_name(module, message):
    with pytest.raises(ValueError, match=message):
        dpa.problems.Module(module, torch.randn(9, 4), torch.randint(0, 3, (9,)))
    assert dpa.problems.Module(nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.0)), *_small()).d == 15


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (nn.BatchNorm1d(4), "also with frozen parameters, while it is in train.. .*call eval"),
        (nn.BatchNorm1d(4, affine=False), "normalizes over the batch: take GroupNorm .*call eval"),
        (nn.BatchNorm1d(4, track_running_stats=False).eval(), "in eval.. too, since it has no"),
        (nn.Dropout(0.5), "set its dropout to 0, or call eval.. on it, which trains without"),
        (nn.RReLU(), "draws a slope for every entry: take LeakyReLU, or call eval.. on it"),
    ],
    ids=str,
)
def test_frozen_layers_that_mix_samples_in_their_mode_are_refused(layer, message):
    module = nn.Sequential(layer.requires_grad_(False), nn.Linear(4, 3))
    with pytest.raises(ValueError, match=rf"its layer 0 .*{message}"):
        dpa.problems.Module(module, *_small())


def test_a_frozen_backbone_is_unchanged_and_only_the_head_is_trained():
    module, shape = MODULES["backbone"]()
    X, y = torch.randn(200, *shape), torch.randint(0, 3, (200,))
    problem = dpa.problems.Module(module, X, y)
    assert (problem.d, problem.frozen) == (36 * 5 + 5 + 5 * 3 + 3, 4 * 18 + 4 + 2 * 4)
    assert ", frozen=84," in repr(problem) and problem._network.forward == "direct"
    assert set(problem._network.gradient_layers.values()) == {
        "1",
        "2",
    }  # the rest runs forward only
    budget = dpa.Budget(2.0, 1e-3, "add_or_remove_one")
    method = dpa.methods.SGD(0.5, 5, dpa.Poisson(0.1), RULES[0])
    result = dpa.minimize(problem, method, budget, rng=0)
    assert result.private and result.epsilon() <= 2.0
    before, after = module.state_dict(), problem.module(result.w[0]).state_dict()
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved == {"1.weight", "1.bias", "2.weight", "2.bias"}
    inner = problem._network.module.state_dict()
    assert all(torch.equal(before[name], inner[name]) for name in before if name not in moved)
    with pytest.raises(ValueError, match="all of them frozen by requires_grad_"):
        dpa.problems.Module(module.requires_grad_(False), X, y)


def _small():
    return torch.randn(9, 4), torch.randint(0, 3, (9,))


class Trace(Mixes):
    """Mixes slightly, and has a parameter that needs a second pass."""

    def __init__(self, strength):
        super().__init__(strength)
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, x):
        return self.scale * super().forward(x)


@pytest.mark.parametrize("kind", [Mixes, Trace])
def test_a_trace_of_mixing_is_found_before_a_private_run(kind):
    problem = dpa.problems.Module(kind(1e-5), *_small(), chunk=4)
    assert problem._network.gradient_mode == "layers"
    method = dpa.methods.SGD(0.1, 2, dpa.Full(), RULES[0])
    budget = dpa.Budget(1.0, 1e-3, "replace_one")
    with pytest.raises(ValueError, match="the gradient of a sample changes"):
        dpa.minimize(problem, method, budget)


@pytest.mark.slow
def test_the_public_check_takes_a_module_and_finds_one_that_mixes():
    X, y = torch.randn(12, 4, dtype=torch.float64), torch.randint(0, 3, (12,))
    kept = dpa.problems.Module(nn.Linear(4, 3).double(), X, y, chunk=4)
    dpa.testing.check_problem(kept)
    # Too little for the check at construction; only a comparison of bits detects it.
    mixes = dpa.problems.Module(Mixes(1e-9).double(), X, y, chunk=4)
    with pytest.raises(AssertionError, match="refuses data that nobody has touched"):
        dpa.testing.check_problem(mixes)
    lies = dpa.problems.Module(nn.Linear(4, 3).double(), X, y, chunk=4)
    lies._network.module.register_forward_pre_hook(lambda _, x: (x[0] - x[0].mean(dim=0),))
    with pytest.raises(AssertionError, match="records mix"):
        dpa.testing.check_problem(lies)


class Pairs(Dataset):
    """Map-style, and counts how often a record is read."""

    def __init__(self, pairs):
        self.pairs, self.reads = pairs, 0

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, i):
        self.reads += 1
        return self.pairs[i]


class Stream(IterableDataset):
    def __iter__(self):
        return iter(())


@pytest.mark.slow
def test_a_dataset_of_pairs_is_read_once_and_equals_its_arrays():
    X, y = _small()
    module = nn.Linear(4, 3)
    by_arrays = dpa.problems.Module(module, X, y)
    pairs = Pairs([(x.numpy(), int(label)) for x, label in zip(X, y)])
    method = dpa.methods.SGD(0.1, 3, dpa.Poisson(0.5), RULES[0])
    budget = dpa.Budget(1.0, 1e-3, "add_or_remove_one")
    expected = dpa.minimize(by_arrays, method, budget, rng=0)
    for dataset in (TensorDataset(X, y), pairs, torch.utils.data.Subset(pairs, range(9))):
        problem = dpa.problems.Module(module, dataset)
        assert (
            torch.equal(problem._records.samples[0], by_arrays._records.samples[0])
            and (problem._y == by_arrays._y).all()
        )
        assert (dpa.minimize(problem, method, budget, rng=0).w == expected.w).all()
    assert pairs.reads == 2 * 9
    w = by_arrays.initial()
    assert by_arrays.accuracy(w, TensorDataset(X, y)) == by_arrays.accuracy(w, X, y)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"X": torch.full((9, 4), math.nan)}, "got record 0 that is not"),
        ({"X": torch.zeros(0, 4)}, "X must have shape"),
        ({"X": np.full((9, 4), "a")}, "X must hold real numbers"),
        ({"y": torch.arange(9)}, "one output a class, for y holds the label 8"),
        ({"y": torch.zeros(9) + 0.5}, "y must hold labels"),
        ({"y": torch.zeros(8)}, "y must have 9 entries"),
        ({"loss": "hinge"}, "loss must be"),
        ({"X": DataLoader(TensorDataset(*_small()))}, r"give its dataset, .*loader.dataset"),
        ({"X": DataLoader(TensorDataset(*_small())), "y": None}, r"give its dataset"),
        ({"y": None}, "y must be given, unless X is .*Dataset"),
        (
            {"X": (torch.zeros(9, 2), torch.zeros(9, 2))},
            "for each input .*forward.*, got 2: too",
        ),
        ({"X": {"a": torch.zeros(9, 4)}}, "or a tuple of arrays.*got a dict of 1"),
        ({"X": TensorDataset(*_small())}, "y must be left out"),
        (
            {"X": TensorDataset(torch.zeros(9, 4)), "y": None},
            "pairs .*a tuple of 1 for record 0",
        ),
        ({"X": Pairs([(torch.zeros(4), 0), (torch.zeros(3), 0)]), "y": None}, "for record 1, .3,"),
        ({"X": Pairs([{"x": 0}]), "y": None}, "pairs .x, y.,.*got a dict for record 0"),
        ({"X": Pairs([]), "y": None}, "got an empty Dataset"),
        ({"X": Stream(), "y": None}, "got an IterableDataset"),
        ({"chunk": 0}, "chunk"),
        ({"module": nn.Linear}, "module must be a torch.nn.Module"),
        ({"module": nn.LSTM(4, 3)}, "module must return one tensor .* got a tuple"),
        ({"module": nn.GRU(4, 3), "loss": "mse"}, "module must return one tensor .* got a tuple"),
        ({"module": nn.Linear(4, 3).half()}, r"got torch.float16, .* call float\(\)"),
        ({"X": torch.eye(9, 4).to_sparse()}, "X must be dense, got a tensor of layout .*coo"),
        ({"X": sp.csr_matrix(np.eye(9, 4))}, "X must be dense, got csr_matrix"),
    ],
)
def test_bad_arguments_are_named(change, message):
    X, y = _small()
    arguments = {"module": nn.Linear(4, 3), "X": X, "y": y, **change}
    with pytest.raises((ValueError, TypeError), match=message):
        dpa.problems.Module(**arguments)


@pytest.mark.slow
def test_methods_run_and_keep_their_budget():
    problem, _, _, _ = problem_of("conv2d", torch.float32, n=60)
    budget = dpa.Budget(2.0, 1e-3, "add_or_remove_one")
    sampling, rule = dpa.Poisson(0.1), RULES[0]
    for method in (
        dpa.methods.SGD(0.5, 5, sampling, rule, momentum=0.9),
        dpa.methods.Adam(0.01, 5, sampling, rule),
        dpa.methods.LineSearchSGD(
            sampling, clip_norm=0.5, clip_loss=1.0, rho=0.05, epsilon=0.3, iterations=3
        ),
    ):
        result = dpa.minimize(problem, method, budget, rng=0, replicates=2)
        assert result.private and result.epsilon() <= 2.0 + 1e-9
        assert result.w.shape == (2, problem.d) and not (result.w[0] == result.w[1]).all()
    with pytest.raises(ValueError, match="no public bound"):
        dpa.minimize(problem, dpa.methods.SGD(0.5, 5, sampling, None), budget)


def test_a_step_of_any_size_does_not_end_in_numbers_that_are_none():
    problem, _, _, _ = problem_of("linear", torch.float32, n=20)
    w = np.full(problem.d, 1e200)
    total = problem.sums(w, clipping=RULES[0])
    assert (total.gradient == 0.0).all() and total.clipped == 20


def test_made_up_samples_hold_nothing_private():
    problem, _, _, _ = problem_of("embedding", n=30)
    x, y = random_samples(problem._network, problem._records.samples, problem._y, 5)
    zeros = (torch.zeros_like(problem._records.samples[0]),)
    again = random_samples(problem._network, zeros, torch.zeros_like(problem._y), 5)
    assert torch.equal(x[0], again[0][0]) and torch.equal(y, again[1])
    assert set(random_samples(problem._network, zeros, problem._y, 40)[1].tolist()) == {0, 1, 2}


@pytest.mark.parametrize("name", ["linear", "conv2d", "recurrent"])
def test_a_short_last_chunk_gives_a_sample_the_same_bits(name):
    """Then adding or removing a record does not change the terms of the others."""
    problem, *_ = problem_of(name, torch.float32, n=80, chunk=128)
    w = problem.initial()
    if problem._chunk_lengths == (128,):
        pytest.skip("the kernels of this machine give other bits in shorter chunks")
    every = (16, 32, 40, 48, 64, 128)  # from the longest down, as far as the bits are kept
    assert problem._chunk_lengths == every[-len(problem._chunk_lengths) :]
    whole = problem.sample_gradients(w, np.arange(80))
    for size in (1, 16, 17, 33, 48, 64):
        rows = np.arange(size)
        assert (problem.sample_gradients(w, rows) == whole[:size]).all()
        expected = clipped_sum(np.zeros(size), whole[:size], RULES[0])
        found = problem.sums(w, rows=rows, clipping=RULES[0])
        np.testing.assert_allclose(found.gradient, expected[0], rtol=1e-9, atol=1e-12)
        assert found.clipped == expected[1]
    if not problem.keeps_bits():
        pytest.skip("the kernels of this machine give other bits at other places of a chunk")


def test_other_bits_in_a_short_chunk_are_seen(monkeypatch):
    X, y = torch.randn(40, 4), torch.arange(40) % 3
    problem = dpa.problems.Module(nn.Sequential(nn.Linear(4, 3)), X, y, chunk=64)
    assert dpa.problems.Module(nn.Linear(4, 3), X, y, chunk=31)._chunk_lengths == (31,)
    with monkeypatch.context() as patch:  # of gradients alone
        patch.setattr(probe, "_same_bits", lambda *_: False)
        assert chunk_lengths(problem._network, problem._records.samples, problem._y, 64) == (64,)
    layer = problem._network.module[0]
    hook = layer.register_forward_pre_hook(lambda _, x: (x[0] * (1.0 + 2e-7 * (len(x[0]) < 64)),))
    assert chunk_lengths(problem._network, problem._records.samples, problem._y, 64) == (64,)
    hook.remove()
    hook = layer.register_forward_pre_hook(lambda _, x: (x[0] * (1.0 + 2e-7 * (len(x[0]) < 20)),))
    found = chunk_lengths(problem._network, problem._records.samples, problem._y, 64)
    hook.remove()
    if problem._chunk_lengths[0] == 16:  # where the kernels of this machine give the same bits
        assert problem._chunk_lengths == (16, 20, 24, 32, 64) and found == (20, 24, 32, 64)
    problem.check_private()
    problem._found.clear()
    layer.register_forward_pre_hook(
        lambda _, x: (x[0] + 1e-3 * (len(x[0]) == problem._chunk_lengths[0]) * x[0].sum(dim=0),)
    )
    with pytest.raises(ValueError, match="the gradient of a sample changes"):
        problem.check_private()


def test_a_module_does_not_state_double_precision():
    """A query whose proof needs it refuses the problem: PyTorch may compute in less on a device."""
    X, y = torch.randn(6, 3, dtype=torch.float64), torch.arange(6) % 2
    problem = dpa.problems.Module(nn.Linear(3, 2).double(), X, y)
    assert problem.facts("replace_one").double_precision is False


def test_parameters_of_another_shape_are_no_start():
    problem = dpa.problems.Module(nn.Linear(3, 4, bias=False), np.ones((6, 3)), np.arange(6) % 4)
    with pytest.raises(ValueError, match="weight of the same shape as before"):
        problem.vector(nn.Linear(4, 3, bias=False))
    assert problem.vector(nn.Linear(3, 4, bias=False)).shape == (12,)
