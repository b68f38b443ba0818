"""Per-sample gradients of one parameter: norms and weighted sums in every representation."""

import copy
import itertools
import math
import pickle
import time
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np
import pytest

import dpanalysis as dpa
from dpanalysis import clipping

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch==2.13.0")
from torch import nn  # noqa: E402

from dpanalysis.problems.modules import layers, per_sample, probe  # noqa: E402
from dpanalysis.problems.modules.per_sample import ChunkGradients, PlacedGradients  # noqa: E402


def test_parts_agree_with_gradients_written_out():
    generator = torch.Generator().manual_seed(1)

    def normal(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    weights = torch.rand(5, generator=generator, dtype=torch.float64)
    places = torch.randint(0, 4, (5, 6), generator=generator)
    for part in (
        layers.Materialized(normal(5, 3, 4)),
        layers.OuterProducts(normal(5, 3), normal(5, 4)),
        layers.SummedOuterProducts(normal(5, 6, 3), normal(5, 6, 4)),
        layers.EmbeddingGradients(normal(5, 6, 3), places, 4),
    ):
        whole = part.materialize()
        assert torch.allclose(part.squared_norms(), whole.square().sum(1), rtol=1e-12)
        total = torch.full(whole.shape[1:], math.nan, dtype=torch.float64)
        part.write_weighted_sum(total, weights)
        assert torch.allclose(total, weights @ whole, rtol=1e-12)
        lost = torch.tensor([True, False, False, True, False])
        left = part.without(lost)
        assert torch.equal(left.materialize()[lost], torch.zeros_like(whole[lost]))
        assert torch.equal(left.materialize()[~lost], whole[~lost])


@pytest.mark.parametrize("shape", [(1, 3, 4), (6, 3, 4), (2, 30, 40)])
def test_outer_products_have_the_outputs_first(shape):
    steps, out, width = shape
    deltas = torch.randn(5, steps, out, dtype=torch.float64)
    inputs = torch.randn(5, steps, width, dtype=torch.float64)
    whole = torch.einsum("bto,bti->boi", deltas, inputs).flatten(1)
    assert torch.allclose(layers.summed_outer_products(deltas, inputs).materialize(), whole)


@pytest.mark.parametrize("steps", [2, 3, 5])
@pytest.mark.parametrize("outputs", [1, 6, 30])
@pytest.mark.parametrize("width", [1, 12, 30])
def test_the_smaller_representation_of_a_sum_is_kept(steps, outputs, width):
    """Half of the memory must be saved: factors take more time."""
    deltas, inputs = torch.randn(2, steps, outputs), torch.randn(2, steps, width)
    whole, factors = outputs * width, deltas[0].numel() + inputs[0].numel()
    kept = layers.summed_outer_products(deltas, inputs)
    assert isinstance(kept, layers.SummedOuterProducts) == (whole > 2 * factors)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("channels", "size", "more"),
    [
        ((4, 6), (3, 3), {}),  # one position, and then few
        ((40, 30), (3, 5), {}),
        ((4, 6), (9, 8), {"stride": 2, "padding": (1, 0)}),
        ((4, 6), (5, 4), {"padding": 1, "padding_mode": "reflect"}),
        ((2, 4), (9, 8), {"dilation": (1, 2), "padding": "same"}),
    ],
)
def test_convolutions_have_the_gradients_of_autograd(groups, bias, channels, size, more):
    generator = torch.Generator().manual_seed(2)
    layer = nn.Conv2d(*channels, 3, groups=groups, bias=bias, dtype=torch.float64, **more)
    inputs = torch.randn((3, channels[0], *size), generator=generator, dtype=torch.float64)
    outputs = layer(inputs)
    deltas = torch.randn(outputs.shape, generator=generator, dtype=torch.float64)
    found = layers.gradients(layer, inputs, deltas)
    for i in range(3):
        parameters = dict(layer.named_parameters())
        expected = torch.autograd.grad(
            layer(inputs[i : i + 1]), list(parameters.values()), deltas[i : i + 1]
        )
        for name, gradient in zip(parameters, expected):
            torch.testing.assert_close(found[name].materialize()[i].view_as(gradient), gradient)


@pytest.mark.parametrize("rows", [0, 1, 127, 128, 129, 256, 300])
def test_a_product_in_parts_has_every_row(rows):
    deltas, inputs = torch.randn(rows, 3).double(), torch.randn(rows, 5).double()
    out = torch.full((3, 5), torch.nan, dtype=torch.float64)
    layers._write_product(out, deltas, inputs)
    torch.testing.assert_close(out, deltas.T @ inputs)


@pytest.mark.parametrize("numbers", [1, 7, 8, 24, 1 << 19])
@pytest.mark.parametrize("count", [0, 1, 4, 6])
def test_gradients_written_out_are_added_block_by_block(numbers, count, monkeypatch):
    monkeypatch.setattr(layers, "_NUMBERS", numbers)
    gradients, weights = torch.randn(6, 4), torch.rand(count, dtype=torch.float64)
    part, out = layers.Materialized(gradients), torch.full((4,), torch.nan, dtype=torch.float64)
    part.write_weighted_sum(out, weights)
    torch.testing.assert_close(out, weights @ gradients[:count].double())
    assert torch.equal(part.squared_norms().sqrt(), gradients.double().norm(dim=1))


def test_parts_in_double_keep_their_digits_beside_others():
    fine = torch.full((2, 3), 1.0 + 2.0**-40, dtype=torch.float64)
    parts = (torch.ones(2, 1), fine)
    places = (slice(0, 1), slice(1, 4))
    placed = [
        PlacedGradients(where, layers.Materialized(each)) for where, each in zip(places, parts)
    ]
    found = ChunkGradients(placed, torch.zeros(5)).sum(torch.ones(2, dtype=torch.float64))
    assert found.tolist() == [2.0, *(3 * [2.0 + 2.0**-39]), 0.0]


def test_rounding_counts_every_operation(monkeypatch):
    """The bounds equal those that were proved."""
    counts = []

    def never_below(found, sizes, count):
        counts.append(count)
        return found

    monkeypatch.setattr(layers, "_never_below", never_below)
    layers.SummedOuterProducts(torch.ones(5, 6, 3), torch.ones(5, 6, 4)).squared_norms()
    layers.EmbeddingGradients(
        torch.ones(5, 6, 3), torch.zeros(5, 6, dtype=torch.int64), 4
    ).squared_norms()
    assert counts == [6**2 + 3 + 4, 6**2 + 3]
    every = layers.module_rounding(1000, 10, 1, 0)  # one sample, and so one addition, per chunk
    assert every == pytest.approx(1000 * (1 + 1000 + 8) * layers.DOUBLE, rel=1e-3)
    none, one, two, three = (layers.module_rounding(100, 10, 7, steps) for steps in range(4))
    assert none < one < two and three - two == pytest.approx(two - one, rel=1e-3)


def test_steps_that_cancel_are_never_too_small():
    """Norms from products over positions are upper bounds despite cancellation."""
    delta = torch.randn(1, 1, 8, dtype=torch.float64)
    deltas = torch.cat([delta, -delta, 1e-12 * delta], dim=1)
    inputs = torch.randn(1, 1, 5, dtype=torch.float64).expand(1, 3, 5)
    size = float(torch.linalg.vector_norm(delta) * torch.linalg.vector_norm(inputs[0, 0]))
    places = torch.zeros(1, 3, dtype=torch.int64)
    for part, one in (
        (layers.SummedOuterProducts(deltas, inputs), size),
        (layers.EmbeddingGradients(deltas, places, 2), float(torch.linalg.vector_norm(delta))),
    ):
        exact = float(part.materialize().square().sum())
        assert float(part.squared_norms()) >= exact
        # At least 1/MOST_CANCELLED of the sum of the steps' norms, which covers rounding.
        assert float(part.squared_norms()) >= (2.0 * one / layers.MOST_CANCELLED) ** 2


def test_rounding_makes_no_norm_of_steps_too_small():
    drawn = np.random.default_rng(0).uniform(1.0, 2.0, size=(3, 200))
    steps = torch.tensor(np.stack([drawn[0], -drawn[0] * drawn[1] / drawn[2] * 1.003], axis=1))
    inputs = torch.tensor(drawn[1:].T)
    products, places = steps * inputs, torch.zeros(200, 2, dtype=torch.int64)
    for part, deltas, factors in (
        (layers.SummedOuterProducts(steps[..., None], inputs[..., None]), steps, inputs),
        (
            layers.EmbeddingGradients(products[..., None], places, 1),
            products,
            torch.ones_like(inputs),
        ),
    ):
        for found, *pair in zip(part.squared_norms().tolist(), deltas.tolist(), factors.tolist()):
            assert sum(Fraction(d) * Fraction(a) for d, a in zip(*pair)) ** 2 <= Fraction(found)


@pytest.mark.parametrize("kind", ["linear", "embedding", "steps", "written out"])
def test_no_square_of_a_double_underflows(kind):
    """Gradients that a rule scales up by 1e12 or clips at 1e-12 must not have norm 0."""
    deltas = torch.tensor([[[1.0, -2.0]], [[3.0, 1.0]]], dtype=torch.float64) * 1e-120
    inputs = torch.tensor([[[3.0, 4.0]], [[1.0, 2.0]]], dtype=torch.float64) * 1e55
    steps, other = (torch.cat([each, 2.0 * each, each], dim=1) for each in (deltas, inputs))
    parts = {
        "linear": lambda: layers.OuterProducts(deltas[:, 0], inputs[:, 0]),
        "embedding": lambda: layers.EmbeddingGradients(
            1e60 * steps, torch.zeros(2, 3, dtype=torch.int64), 2
        ),
        "steps": lambda: layers.SummedOuterProducts(steps, other),
        "written out": lambda: layers.Materialized(1e55 * deltas[:, 0]),
    }
    part = parts[kind]()
    whole = part.materialize()
    exact = whole.abs().amax(dim=1) * (whole / whole.abs().amax(dim=1, keepdim=True)).norm(dim=1)
    np.testing.assert_allclose(part.squared_norms().sqrt(), exact, rtol=1e-9)


def test_no_step_is_lost_beside_one_of_another_size():
    """A norm is at least that of the gradient, or not finite, which gives weight 0."""
    sizes = [-300, -160, -130, -90, -30, 0, 30, 59, 90, 160, 300]
    powers = [p for p in itertools.product(sizes, repeat=4) if max(p[0] + p[1], p[2] + p[3]) < 150]
    factors = 10.0 ** torch.tensor(powers, dtype=torch.float64)
    entries = torch.tensor([1.0, 0.0])  # PyTorch does not square a single entry
    deltas, inputs = (factors[:, place::2, None] * entries for place in (0, 1))
    products = factors[:, ::2] * factors[:, 1::2]
    for part, exact in (
        (layers.SummedOuterProducts(deltas, inputs), products.sum(dim=1)),
        (layers.OuterProducts(deltas[:, 0], inputs[:, 0]), products[:, 0]),
    ):
        found = part.squared_norms().sqrt()
        finite = found.isfinite()
        assert bool((exact <= found * (1.0 + 1e-12) + 1e-90)[finite].all())
        assert bool(
            finite[(deltas.amax(dim=(1, 2)) < 1e60) & (inputs.amax(dim=(1, 2)) < 1e60)].all()
        )


@pytest.mark.parametrize("kind", ["direct", "own"])
def test_threads_that_share_a_module_get_the_sums_of_their_own_iterates(kind):
    random = np.random.default_rng(0)
    X, y = random.normal(size=(60, 4)).astype(np.float32), np.arange(60) % 2
    layers = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
    problem = dpa.problems.Module(layers if kind == "direct" else Scaled(layers), X, y)
    rule, iterates = clipping.Flat(1.0), random.normal(size=(4, 1, problem.d))
    expected = [problem.gradient_sum(w, None, rule) for w in iterates]
    losses = [problem.line_losses(w[0], w[0])(0.0) for w in iterates]

    def ask(k):
        along = problem.line_losses(iterates[k][0], iterates[k][0])
        np.testing.assert_array_equal(along(0.0), losses[k])
        return [problem.gradient_sum(iterates[k], None, rule) for _ in range(10)]

    with ThreadPoolExecutor(4) as pool:
        for k, found in enumerate(pool.map(ask, range(4))):
            for each in found:
                np.testing.assert_array_equal(each, expected[k])
    again = copy.deepcopy(problem)
    np.testing.assert_array_equal(again.gradient_sum(iterates[0], None, rule), expected[0])
    np.testing.assert_array_equal(
        pickle.loads(pickle.dumps(problem)).gradient_sum(iterates[0], None, rule), expected[0]
    )


SETTINGS = []


class Watching(nn.Module):
    """Takes a while, and looks at a setting of the process."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 2)

    def forward(self, x):
        SETTINGS.append(torch.backends.mha.get_fastpath_enabled())
        time.sleep(0.001)
        SETTINGS.append(torch.backends.mha.get_fastpath_enabled())
        return self.a(x)


def test_threads_leave_the_settings_of_other_problems_as_they_are():
    X, y = torch.randn(6, 4), torch.arange(6) % 2
    problems = [dpa.problems.Module(Watching(), X, y) for _ in range(3)]
    before = torch.backends.mha.get_fastpath_enabled()
    SETTINGS.clear()
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda each: [each.sums(each.initial()) for _ in range(9)], problems))
    assert before and torch.backends.mha.get_fastpath_enabled() and not any(SETTINGS)


class Scaled(nn.Module):
    """A module with a custom forward."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return 0.5 * self.inner(x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", ["matrix", "sequence"])
def test_samples_that_grow_after_their_norm_was_computed_stay_clipped(kind, dtype, monkeypatch):
    """The owner of X may write to it at any time: norms and sums are of one copy."""
    shape = (6, 4) if kind == "matrix" else (6, 5, 4)
    X, norms = torch.ones(shape, dtype=dtype), ChunkGradients.squared_norms

    def growing(self):
        found = norms(self)
        X.mul_(1e3)
        return found

    module = nn.Sequential(nn.Linear(4, 3), nn.Flatten()).to(dtype)
    problem = dpa.problems.Module(module, X, torch.zeros(6), loss=lambda z, y: z.sum(1), chunk=6)
    monkeypatch.setattr(ChunkGradients, "squared_norms", growing)
    total = problem.sums(problem.initial(), clipping=clipping.Flat(0.1)).gradient
    assert 0.59 < np.linalg.norm(total) < 0.6001 and X.max() == 1e3


def test_a_gradient_too_short_for_its_norm_adds_nothing():
    """Its squares are 0, so that a rule would scale it up to 1e37 times its bound."""
    module, X = nn.Linear(4, 2, bias=False).double(), np.full((3, 4), 1e-163)
    problem = dpa.problems.Module(module, X, [0, 1, 0])
    found = problem.sums(problem.initial(), clipping=dpa.clipping.Automatic(1e-200), value=False)
    assert not found.gradient.any()


@pytest.mark.parametrize("place", ["behind", "beside"])
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_gradients_go_through_recurrent_layers(kind, place):
    """To the layer before, or to a trained sequence, the same for all samples."""

    class Through(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.head = nn.Linear(3, 4), nn.Linear(4, 3)
            self.cell, self.start = kind(4, 4, batch_first=True), nn.Parameter(torch.randn(1, 5, 4))

        def forward(self, x):
            x = self.first(x)
            found = self.cell(x + self.start if place == "behind" else self.start)[0]
            return self.head((x + found).mean(dim=1))

    module = Through().double()
    X, y = torch.randn(7, 5, 3, dtype=torch.float64), torch.arange(7) % 3
    problem = dpa.problems.Module(module, X, y, chunk=4)
    found = problem.sample_gradients(problem.initial(), np.arange(7))
    for row, sample, label in zip(found, X, y):
        loss = nn.functional.cross_entropy(module(sample[None]), label[None])
        whole = torch.autograd.grad(loss, list(module.parameters()))
        expected = torch.cat([each.flatten() for each in whole])
        np.testing.assert_allclose(row, expected, rtol=1e-9, atol=1e-12)


def test_a_way_that_gives_other_gradients_is_not_taken(monkeypatch):
    monkeypatch.setattr(probe, "_by_layers", lambda _, x, y, right: (1.01 * right, (1, 0)))
    module, X, y = nn.Linear(4, 3).double(), np.eye(4), [0, 1, 2, 0]
    problem = dpa.problems.Module(Scaled(module), X, y)
    assert problem._network.gradient_mode != "layers"


def test_a_function_without_a_signature_may_take_anything():
    assert per_sample.signature_error(torch.relu, 3) is None
    assert per_sample.signature_error(lambda x: x, 3) is not None


@pytest.mark.parametrize("part", [math.sqrt, np.add, Fraction(1, 3)])
def test_parts_of_a_state_that_have_none_of_their_own_are_kept(part):
    (kept,) = per_sample._copied([part], {})
    assert kept == part and (kept is part or isinstance(part, Fraction))
