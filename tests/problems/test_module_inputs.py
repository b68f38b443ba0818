"""Inputs of Module: arrays, data sets, losses, several inputs, augmentations."""

import copy
import math
import pickle
import random
import threading
import types
from functools import partial

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import dpanalysis as dpa
from dpanalysis import clipping

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch==2.13.0")
from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402
from torch.utils.data import DataLoader, Dataset, TensorDataset  # noqa: E402

from dpanalysis.problems.modules.network import ModuleNetwork  # noqa: E402
from dpanalysis.problems.modules.probe import random_samples  # noqa: E402
from dpanalysis.problems.modules.views import Augmentation, _hashed  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_torch_thread")

RULES = [
    clipping.Flat(0.1),
    clipping.Automatic(0.1, 0.5),
    clipping.PerSampleAdaptive(0.1, 0.5),
    clipping.Value(0.3, 2.0),
]


class Again(Dataset):
    """Returns the same array for every record, with other values."""

    def __init__(self):
        self.x = torch.zeros(4)

    def __len__(self):
        return 3

    def __getitem__(self, i):
        return self.x.fill_(i), 0


def test_a_dataset_may_use_its_array_again():
    problem = dpa.problems.Module(nn.Linear(4, 3), Again())
    assert problem._records.samples[0][:, 0].tolist() == [0.0, 1.0, 2.0]


@pytest.mark.parametrize(
    "form",
    [
        lambda array: array[::-1].copy()[::-1],
        lambda array: array.astype(array.dtype.newbyteorder()),
        lambda array: array.astype(np.longdouble),
        lambda array: np.asfortranarray(array),
    ],
)
def test_arrays_may_be_reversed_and_have_bytes_in_any_order(form):
    rng = np.random.default_rng(4)
    X, y = rng.normal(size=(9, 4)).astype(np.float32), np.arange(9) % 3
    module = nn.Linear(4, 3)
    expected, found = (dpa.problems.Module(module, *each) for each in ((X, y), (form(X), form(y))))
    w, rule = np.ones(expected.d), clipping.Flat(0.1)
    sums = (each.sums(w, clipping=rule).gradient for each in (expected, found))
    np.testing.assert_array_equal(*sums)


def test_samples_in_single_precision_are_scaled_to_within_their_bound():
    X, y = torch.randn(500, 48), torch.arange(500) % 3
    problem = dpa.problems.Module(nn.Linear(48, 3), X, y, row_bound=dpa.RowBound(2, 1.5, "clip"))
    norms = problem._records.samples[0].double().norm(dim=1)
    assert bool(((norms > 1.499) & (norms <= 1.5)).all())
    loose = dpa.problems.Module(nn.Linear(48, 3), X, y, row_bound=dpa.RowBound(2, 99.0, "clip"))
    assert torch.equal(loose._records.samples[0], X)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("at_once", [True, False])
def test_images_give_the_same_bits_in_any_memory_layout(at_once, channels):
    """The kernels depend neither on the place of a record nor on the memory layout of ``X``."""
    convolution = nn.Conv2d(channels, 4, 3, padding=1)
    module = nn.Sequential(convolution, nn.ReLU(), nn.Flatten(), nn.Linear(192, 3))
    if not at_once:
        module.register_forward_hook(lambda *_: None)
    X, y = torch.randn(10, channels, 6, 8), torch.arange(10) % 3
    strides = 48 * channels, 1, 8 * channels, channels
    lying = torch.empty_strided(X.shape, strides).copy_(X)
    problems = (dpa.problems.Module(module, each, y, chunk=4) for each in (X, lying))
    sums = (each.sums(each.initial(), clipping=RULES[0]).gradient for each in problems)
    np.testing.assert_array_equal(*sums)


@pytest.mark.parametrize(
    ("loss", "advice"),
    [
        (nn.CrossEntropyLoss(), r"CrossEntropyLoss.reduction='none'., or loss='cross_entropy'"),
        (nn.CrossEntropyLoss(reduction="sum"), r"has reduction='sum' and gives one for the batch"),
        (nn.MSELoss(), r"MSELoss.reduction='none'., or loss='mse'"),
        (nn.NLLLoss(), r"take NLLLoss.reduction='none'.$"),
        (nn.functional.cross_entropy, r"got shape ..: losses of PyTorch need reduction='none'"),
    ],
    ids=["cross_entropy", "sum", "mse", "nll", "function"],
)
def test_a_loss_over_the_batch_gets_the_advice_to_keep_its_samples(loss, advice):
    with pytest.raises(ValueError, match=f"loss must give one number a sample, .*{advice}"):
        dpa.problems.Module(
            nn.Linear(4, 3), torch.randn(9, 4), torch.randint(0, 3, (9,)), loss=loss
        )


@pytest.mark.filterwarnings("ignore:.*deprecated")
def test_modules_that_cannot_be_copied_or_taken_apart_are_refused():
    X, y = torch.randn(9, 4), torch.randint(0, 3, (9,))
    with pytest.raises(TypeError, match=r"module must be the torch.nn.Module that was scripted"):
        dpa.problems.Module(torch.jit.script(nn.Linear(4, 3)), X, y)
    with pytest.raises(ValueError, match=r"module must be one that copy.deepcopy copies"):
        dpa.problems.Module(torch.nn.utils.weight_norm(nn.Linear(4, 3)), X, y)
    locked = nn.Linear(4, 3)
    locked.lock = threading.Lock()
    with pytest.raises(ValueError, match=r"copy.deepcopy copies: cannot pickle '_thread.lock'"):
        dpa.problems.Module(locked, X, y)
    scripted = nn.Sequential(torch.jit.script(nn.Linear(4, 3)), nn.Tanh())
    with pytest.raises(ValueError, match=r"its layer 0 .*Script.* give the torch.nn.Module that"):
        dpa.problems.Module(scripted, X, y)
    dpa.problems.Module(nn.Sequential(scripted.requires_grad_(False), nn.Linear(3, 3)), X, y)


# Several inputs


class Four(nn.Module):
    """Takes tokens, a mask, a number for each sample, and a row."""

    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(7, 4), nn.Linear(7, 3)

    def forward(self, tokens, mask, number, row):
        weights = mask.to(row.dtype) / mask.sum(dim=1, keepdim=True)
        words = (self.table(tokens) * weights[..., None]).sum(dim=1)
        return self.head(torch.cat([words, number[:, None], row], dim=1))


class Branching(Four):
    """Processes samples one by one: its control flow depends on the data."""

    def forward(self, tokens, mask, number, row):
        parts = [
            super(Branching, self).forward(
                tokens[i : i + 1], mask[i : i + 1], n[None], row[i, None]
            )
            * (1.0 if n > 0 else -1.0)
            for i, n in enumerate(number)
        ]
        return torch.cat(parts)


def four_inputs(n, seed=0):
    generator = torch.Generator().manual_seed(seed)
    mask = torch.rand(n, 5, generator=generator) < 0.5
    mask[:, 0] = True
    tokens = torch.randint(0, 7, (n, 5), generator=generator)
    number, row = torch.randn(n, generator=generator), torch.randn(n, 2, generator=generator)
    labels = torch.randint(0, 3, (n,), generator=generator)
    return (tokens, mask, number.double(), row.double()), labels


@pytest.mark.parametrize(("kind", "way"), [(Four, "layers"), (Branching, "loop")])
@pytest.mark.parametrize("rule", [None, *RULES], ids=lambda rule: type(rule).__name__)
def test_sums_over_several_inputs_are_those_of_a_loop(kind, way, rule):
    X, y = four_inputs(11)
    module = kind().double()
    problem = dpa.problems.Module(module, X, y, chunk=4)
    assert problem._network.gradient_mode == way
    rows, w = np.array([0, 3, 3, 7, 10]), problem.initial()
    losses, gradients = [], []
    for i in rows:
        outputs = module(*(each[i : i + 1] for each in X))
        loss = nn.functional.cross_entropy(outputs, y[i : i + 1])
        parts = torch.autograd.grad(loss, list(module.parameters()))
        losses.append(loss.item())
        gradients.append(torch.cat([part.flatten() for part in parts]).numpy())
    norms = np.linalg.norm(gradients, axis=1)
    weights = np.ones(5) if rule is None else rule.weight(norms, np.array(losses))
    found = problem.sums(w, rows=rows, clipping=rule)
    np.testing.assert_allclose(found.gradient, weights @ np.array(gradients), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.value, np.sum(losses), rtol=1e-12)
    np.testing.assert_allclose(problem.line_losses(w, w, rows)(0.0), losses, rtol=1e-12)
    labels = problem.module(w)(*X).argmax(dim=1)
    assert problem.accuracy(w) == float((labels == y).double().mean())
    assert problem.accuracy(w, X, y) == problem.accuracy(w)
    with pytest.raises(ValueError, match="X must have 4 inputs as before, got 1"):
        problem.accuracy(w, X[3], y)
    problem.check_private()
    assert problem.keeps_bits()


@pytest.mark.slow
def test_check_problem_accepts_several_inputs():
    X, y = four_inputs(11)
    dpa.testing.check_problem(dpa.problems.Module(Four().double(), X, y, chunk=4))


class Nested(Dataset):
    """Pairs whose first part holds the inputs."""

    def __init__(self, X, y):
        self.X, self.y = X, y

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return tuple(each[i] for each in self.X), self.y[i]


def test_a_dataset_of_several_inputs_equals_its_arrays():
    X, y = four_inputs(11)
    module = Four()
    problem = dpa.problems.Module(module, X, y)
    for dataset in (TensorDataset(*X, y), Nested(X, y)):
        read = dpa.problems.Module(module, dataset)
        samples = read._records.samples, problem._records.samples
        assert all(map(torch.equal, *samples)) and torch.equal(read._y, problem._y)
    one = dpa.problems.Module(nn.Linear(2, 3), (X[3],), y)
    assert torch.equal(one._records.samples[0], X[3].float()) and one._network.forward == "direct"


class Beside(nn.Module):
    """Takes two inputs, and mixes samples in the second."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, a, b):
        return self.head(torch.cat([a, b - b.mean(dim=0)], dim=1))


class Uneven(Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, i):
        return (torch.zeros(2), torch.zeros(2), 0)[i:]


A, B, LABELS = torch.zeros(9, 2), torch.zeros(9, 2), torch.zeros(9, dtype=torch.int64)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"X": (A, B[:8])}, r"X must have inputs of one length, got 9 in X\[0\] and 8 in X\[1\]"),
        ({"X": (A[:8], B[:8])}, "y must have 8 entries"),
        ({"X": (A, B + math.nan)}, r"X\[1\] must be finite, got record 0"),
        ({"y": torch.full((9, 2), math.inf), "loss": "mse"}, "y must be finite"),
        ({"X": (A, torch.zeros(()))}, r"X\[1\] must have shape \(n,\) or"),
        ({"X": (A, np.full((9, 2), "a"))}, r"X\[1\] must hold real numbers"),
        ({"X": (A, 1j * B)}, r"X\[1\] must hold real numbers, got torch.complex"),
        ({"X": (A, [[0.0, 0.0]] * 9)}, "tuple of arrays.* with list at place 1"),
        ({"X": ()}, "X must have an array for each input"),
        ({"X": [A, B]}, "tuple of arrays.* got a list of 2"),
        ({"X": A}, r"forward\(a, b\), got 1: missing"),
        ({"X": (A, B, A)}, r"forward\(a, b\), got 3: too many"),
        ({"X": DataLoader(TensorDataset(A, B, LABELS)), "y": None}, "give its dataset"),
        ({"X": Uneven(), "y": None}, "records all have 3 parts, as record 0, got 2 for record 1"),
        ({"row_bound": dpa.RowBound(2, 1.0)}, "row_bound is for one input"),
        ({}, "module must keep its samples apart"),
    ],
)
def test_bad_inputs_are_named(change, message):
    with pytest.raises((ValueError, TypeError), match=message):
        dpa.problems.Module(Beside(), **{"X": (A, B), "y": LABELS, **change})


def test_other_labels_need_other_records():
    problem = dpa.problems.Module(nn.Linear(3, 2), torch.eye(3), [0, 1, 0])
    with pytest.raises(ValueError, match="X and y must be given together"):
        problem.accuracy(problem.initial(), y=[0, 1, 0])


def test_made_up_masks_hide_some_places_and_not_all():
    X, y = four_inputs(9)
    network = ModuleNetwork(Four(), nn.functional.cross_entropy, torch.float64, "cpu")
    mask = random_samples(network, X, y, 40)[0][1]
    assert mask.dtype == torch.bool and mask.any(dim=1).all() and (~mask).any(dim=1).all()


class WithNumbers(nn.Linear):
    """Its outputs have two numbers beside them."""

    def forward(self, x):
        return super().forward(x), x.new_tensor(1.0), 0.5


def test_numbers_beside_the_outputs_are_for_the_loss():
    def loss(outputs, y):
        return outputs[2] * nn.functional.cross_entropy(outputs[0], y, reduction="none")

    X, y = torch.eye(3), torch.tensor([0, 1, 0])
    problem = dpa.problems.Module(WithNumbers(3, 2), X, y, loss)
    plain = dpa.problems.Module(nn.Linear(3, 2), X, y)
    w = np.zeros(plain.d)
    np.testing.assert_allclose(problem.sums(w).gradient, 0.5 * plain.sums(w).gradient)


# Datasets that are not held in memory


class Counted(Dataset):
    """Returns the same arrays for every record, and notes which records are read."""

    def __init__(self, X, y):
        self.X, self.y, self.read = X, y, []
        self.again = [torch.empty_like(each[0]) for each in X]

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        self.read.append(i)
        for each, array in zip(self.again, self.X):
            each.copy_(array[i])
        return (*self.again, self.y[i])


@pytest.mark.parametrize("sampling", [dpa.Poisson(0.3), dpa.WithoutReplacement(4), dpa.Full()])
def test_stored_records_are_those_in_memory_to_the_last_bit(sampling):
    X, y = four_inputs(11)
    module, dataset = Four(), Counted(X, y)
    held = dpa.problems.Module(module, X, y, chunk=4)
    stored = dpa.problems.Module(module, dataset, chunk=4, in_memory=False)
    method = dpa.methods.SGD(0.1, 3, sampling, dpa.clipping.Flat(0.5))
    budget = dpa.Budget(1.0, 1e-3, sampling.relations[0])
    expected, found = (dpa.minimize(each, method, budget, rng=0) for each in (held, stored))
    assert (found.w == expected.w).all() and found.epsilon() == expected.epsilon()
    w = held.initial()
    assert stored.accuracy(w) == held.accuracy(w)
    dataset.read.clear()
    gradients = stored.sample_gradients(w, np.array([7, 2, 7]))
    assert dataset.read == [7, 2, 7]
    assert (gradients == held.sample_gradients(w, np.array([7, 2, 7]))).all()


def test_stored_records_are_scaled_and_augmented_as_those_in_memory():
    X, y = torch.randn(300, 4, generator=torch.Generator().manual_seed(0)), torch.arange(300) % 3
    w = np.linspace(-1.0, 1.0, 15)
    for options in ({"row_bound": dpa.RowBound(2, 1.0)}, {"augment": noisy}):
        held = dpa.problems.Module(nn.Linear(4, 3), X, y, **options)
        stored = dpa.problems.Module(nn.Linear(4, 3), Counted((X,), y), in_memory=False, **options)
        assert (stored.gradient(w) == held.gradient(w)).all() and stored.value(w) == held.value(w)
        assert (pickle.loads(pickle.dumps(stored)).gradient(w) == held.gradient(w)).all()


class Counts(nn.Module):
    """Keeps a mark of each call."""

    def __init__(self):
        super().__init__()
        self.linear, self.calls = nn.Linear(4, 3), []

    def forward(self, x):
        self.calls.append(1)
        return self.linear(x)


def test_a_copy_keeps_no_mark_of_the_last_record():
    X, y = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)), torch.arange(6) % 3
    problem = dpa.problems.Module(Counts(), X, y)
    w = np.linspace(-1.0, 1.0, 15)
    for copied in (copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))):
        problem.value(w)
        assert problem._network.module.calls == [1]
        assert copied(problem)._network.module.calls == []


class Drawn(Counted):
    """Returns another random record at every read."""

    def __getitem__(self, i):
        return self.X[0][i] + torch.rand(()), self.y[i]


class Mixed(Counted):
    """One record has another dtype, to which stacking would round the others."""

    def __getitem__(self, i):
        return self.X[0][i].to(torch.float32 if i == 4 else torch.float64), self.y[i]


@pytest.mark.parametrize("in_memory", [True, False])
def test_a_record_of_another_dtype_is_refused(in_memory):
    with pytest.raises(
        ValueError, match=r"x all have one dtype, got torch.float64 and, for rec.* 4"
    ):
        dpa.problems.Module(nn.Linear(2, 3), Mixed((A,), LABELS), in_memory=in_memory)


class Late(Counted):
    """One record behind the first ones has too few entries."""

    def __getitem__(self, i):
        return self.X[0][i][: 1 if i == 280 else 2], self.y[i]


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (A, "X must be a torch.utils.data.Dataset with in_memory=False, got Tensor"),
        (Drawn((A,), LABELS), "the same record whenever it is asked for it.*augment="),
        (
            Late((torch.zeros(300, 2),), torch.zeros(300).long()),
            r"\(2,\) and, for record 280, \(1,",
        ),
        (
            Counted((torch.zeros(300, 2).index_fill(0, torch.tensor([270]), math.inf),), [0] * 300),
            "X must be finite, got record 270",
        ),
        (Counted((A,), []), "at least one record"),
        (DataLoader(TensorDataset(A, LABELS)), "must be a torch.utils.data.Dataset"),
    ],
)
def test_invalid_stored_records_are_named(X, message):
    with pytest.raises((ValueError, TypeError), match=message):
        dpa.problems.Module(nn.Linear(2, 3), X, in_memory=False)


# Augmentation


def noisy(sample, generator):
    """Shift, flip and scale."""
    sample = sample.flip(0) if torch.rand((), generator=generator) < 0.5 else sample
    shift = torch.randn(sample.shape, generator=generator, dtype=sample.dtype)
    return sample * torch.rand((), generator=generator) + shift


def in_place(sample, generator):
    sample[int(torch.randint(0, len(sample), (), generator=generator))] = 0.0
    return sample


class Remembers:
    """Adds all earlier samples to the next one."""

    def __init__(self):
        self.seen = []

    def __call__(self, sample, generator):
        self.seen.append(sample)
        return sum(self.seen) + torch.rand((), generator=generator)


def closure():
    last = [0.0]

    def mix(sample, generator):
        view = sample + last[0] + torch.rand((), generator=generator)
        last[0] = sample
        return view

    return mix


def default(sample, generator, seen={}):  # noqa: B006
    seen[len(seen)] = sample
    return sum(seen.values()) + torch.rand((), generator=generator)


def method():
    return Remembers().__call__


AUGMENTATIONS = {
    "noisy": lambda: noisy,
    "in place": lambda: in_place,
    "object": Remembers,
    "closure": closure,
    "default": lambda: default,
    "method": method,
}


def rows(n, seed):
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(n, 4, generator=generator, dtype=torch.float64)
    return X, torch.randint(0, 3, (n,), generator=generator)


def network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).double()


@pytest.mark.parametrize("kind", AUGMENTATIONS)
@settings(max_examples=8)
@given(
    place=st.integers(0, 11),
    size=st.sampled_from([0.0, 3.0, -2e5, 1e300]),
    chunk=st.sampled_from([1, 5, 12]),
    rule=st.sampled_from(RULES),
    seed=st.integers(0, 99),
)
def test_a_record_moves_a_sum_of_views_by_its_own_term_alone(kind, place, size, chunk, rule, seed):
    """Replacing it moves the sum by at most 2 C, removing it by C; no other view changes."""
    X, y = rows(12, seed)
    other = X.clone()
    other[place] = size
    others = np.arange(12) != place
    kept = torch.as_tensor(others)
    augment = AUGMENTATIONS[kind]()
    found = []
    for samples, labels in ((X, y), (other, y), (X[kept], y[kept])):
        problem = dpa.problems.Module(network(), samples, labels, chunk=chunk, augment=augment)
        problem.check_private()
        w = problem.initial() + 0.1 * seed
        total = problem.sums(w, clipping=rule).gradient
        found.append((total, problem.line_losses(w, w)(0.5)))
    (whole, losses), (replaced, beside), (removed, fewer) = found
    assert np.linalg.norm(replaced - whole) <= 2.0 * rule.clip_norm * (1.0 + 1e-9)
    assert np.linalg.norm(removed - whole) <= rule.clip_norm * (1.0 + 1e-9)
    assert (losses[others] == beside[others]).all()
    np.testing.assert_allclose(losses[others], fewer, rtol=1e-12)


def test_a_view_belongs_to_a_record_and_to_the_parameters():
    X, y = rows(400, 0)
    X[:] = X[:1] + 1e-9 * torch.arange(400)[:, None]
    problem = dpa.problems.Module(network(), X, y, augment=noisy, chunk=64)
    w = problem.place(problem.initial())
    views = problem._augment.views(problem._records.samples, 400, w)[0]
    again = problem._augment.views((problem._records.samples[0].flip(0),), 400, w)[0].flip(0)
    assert torch.equal(views, again)
    assert len(torch.unique(views[:, 0])) == 400  # similar samples get independent draws
    elsewhere = problem._augment.views(problem._records.samples, 400, w + 1e-15)[0]
    assert (views != elsewhere).all(dim=1).all()
    shares = (views.flip(0) - views).mean(), (elsewhere - views).mean()
    assert all(abs(float(share)) < 5.0 * math.sqrt(2.0 / 1600) for share in shares)


@example(place=0, one=0.0, other=-0.0, kind=torch.float64)
@given(
    place=st.integers(0, 8),
    one=st.floats(width=32, allow_nan=False),
    other=st.floats(width=32, allow_nan=False),
    kind=st.sampled_from([torch.float16, torch.float32, torch.float64]),
)
def test_the_seed_of_a_view_depends_on_every_number(place, one, other, kind):
    x = torch.zeros(2, 9, dtype=kind)
    x[0, place], x[1, place] = one, other
    found = _hashed((torch.ones(2, dtype=torch.int64), x))
    same = torch.equal(x[0], x[1]) and math.copysign(1, x[0, place]) == math.copysign(
        1, x[1, place]
    )
    assert bool(found[0] == found[1]) == same


def test_sums_and_losses_along_a_line_are_of_the_same_views():
    X, y = rows(12, 0)
    problem = dpa.problems.Module(network(), X, y, augment=noisy, chunk=5)
    w, step = problem.initial(), np.linspace(-1.0, 1.0, problem.d)
    total = problem.sums(w)
    along = problem.line_losses(w, step)
    assert math.isclose(along(0.0).sum(), total.value, rel_tol=1e-12)
    slope = (along(-1e-6).sum() - along(1e-6).sum()) / 2e-6
    assert math.isclose(slope, float(total.gradient @ step), rel_tol=1e-6)
    np.testing.assert_allclose(
        problem.sample_gradients(w, np.arange(12)).sum(axis=0), total.gradient, rtol=1e-9
    )
    views = problem._augment.views(problem._records.samples, 12, problem.place(w))
    plain = dpa.problems.Module(network(), views[0], y, chunk=5)
    np.testing.assert_array_equal(plain.sums(w).gradient, total.gradient)
    without = dpa.problems.Module(network(), X, y)
    assert problem.accuracy(w) == without.accuracy(w)  # of the samples, not of views


def test_a_run_with_views_keeps_its_budget_and_is_repeated_by_its_seed():
    X, y = rows(40, 0)
    before = X.clone()
    problem = dpa.problems.Module(network(), X, y, augment=in_place)
    plain = dpa.problems.Module(network(), X, y)
    method = dpa.methods.SGD(0.5, 5, dpa.Poisson(0.5), RULES[0])
    budget = dpa.Budget(2.0, 1e-3, "add_or_remove_one")
    runs = [
        dpa.minimize(each, method, budget, rng=0, replicates=2)
        for each in (problem, pickle.loads(pickle.dumps(problem)), plain)
    ]
    assert runs[0].private and runs[0].epsilon() == runs[2].epsilon() <= 2.0
    assert (runs[0].w == runs[1].w).all() and not (runs[0].w == runs[2].w).any()
    assert torch.equal(X, before)  # the augmentation gets copies
    assert "augment=in_place" in repr(problem) and "augment" not in repr(plain)


def test_a_function_may_take_several_inputs():
    X, y = four_inputs(11)

    def dropped(sample, generator):
        tokens, mask, number, row = sample
        return tokens.roll(1), mask, number + torch.randn((), generator=generator), row

    module = Four().double()
    problem = dpa.problems.Module(module, X, y, augment=dropped, chunk=4)
    w = problem.initial()
    views = problem._augment.views(problem._records.samples, 11, problem.place(w))
    assert torch.equal(views[0], X[0].roll(1, dims=1)) and torch.equal(views[1], X[1])
    assert (views[2] != X[2]).all()
    with pytest.raises(ValueError, match=r"augment must keep the form .*, but gives list"):
        dpa.problems.Module(module, X, y, augment=lambda sample, generator: [*sample])
    plain = dpa.problems.Module(module, views, y, chunk=4)
    assert (
        plain.sums(w, clipping=RULES[0]).gradient == problem.sums(w, clipping=RULES[0])[1]
    ).all()


def test_a_view_that_is_not_finite_adds_exactly_nothing():
    def broken(sample, generator):
        return torch.log(sample) + torch.rand((), generator=generator)

    X, y = rows(12, 0)
    X = X.abs() + 0.1
    X[10] = -1.0  # behind the records that the check tries
    problem = dpa.problems.Module(network(), X, y, augment=broken, chunk=5)
    w, others = problem.initial(), np.arange(12) != 10
    total = problem.sums(w, clipping=RULES[0]).gradient
    expected = problem.sums(w, rows=np.flatnonzero(others), clipping=RULES[0]).gradient
    np.testing.assert_allclose(total, expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"augment": 3}, "augment must be a function of"),
        (
            {"augment": lambda x: x},
            r"augment must be a function of \(sample, generator\): too many",
        ),
        (
            {"augment": lambda x, g: x[:2]},
            r"augment must keep the form .*shape \(4,\), but .*\(2,\)",
        ),
        ({"augment": lambda x, g: x.float()}, "augment must keep .*float64 .*gives torch.float32"),
        ({"augment": lambda x, g: (x, x)}, "augment must keep .*, but gives tuple"),
        ({"augment": lambda x, g: None}, "augment must keep .*, but gives NoneType"),
        ({"augment": lambda x, g: x / 0.0}, "augment must give finite numbers.*record 0"),
        ({"augment": lambda x, g: x + torch.rand(())}, "draw from that generator alone"),
        ({"augment": lambda x, g: x + random.random()}, "draw from that generator alone"),
        ({"augment": noisy, "row_bound": dpa.RowBound(2, 9.0)}, "row_bound must be left out"),
        ({"augment": noisy, "module": nn.BatchNorm1d(4)}, "normalizes over the batch"),
    ],
)
def test_augmentations_that_make_no_views_are_refused(change, message):
    X, y = rows(12, 0)
    with pytest.raises((ValueError, TypeError), match=message):
        dpa.problems.Module(**{"module": network(), "X": X, "y": y, **change})


class Own(nn.Sequential):
    """A subclass of PyTorch's Sequential."""


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("labels", [True, False])
def test_samples_that_a_module_does_not_take_are_named_by_their_shape(own, labels):
    X, y = rows(12, 0)
    module = Own(nn.Linear(5, 2)) if own else nn.Sequential(nn.Linear(5, 2))
    y, loss = (y, "cross_entropy") if labels else (np.zeros((12, 2)), "mse")
    with pytest.raises(ValueError, match=r"take a sample of X, of shape \(4,\), but fails: mat1"):
        dpa.problems.Module(module.double(), X, y, loss)
    problem = dpa.problems.Module(network(), X, rows(12, 0)[1])
    with pytest.raises(ValueError, match=r"take a sample of X, of shape \(3,\), but fails: mat1"):
        problem.accuracy(problem.initial(), X[:, :3], rows(12, 0)[1])


def test_a_loss_of_one_argument_is_refused():
    X, y = rows(12, 0)
    with pytest.raises(
        TypeError, match=r"loss must be a name or a function of \(outputs, y\): too"
    ):
        dpa.problems.Module(network(), X, y, lambda outputs: outputs.sum(dim=1))


def test_inference_mode_is_refused_before_any_charge():
    X, y = rows(12, 0)
    problem, budget = dpa.problems.Module(network(), X, y), dpa.Budget(1.0)
    method = dpa.methods.GradientDescent(0.1, 2, clipping=RULES[0])
    with torch.inference_mode():
        with pytest.raises(ValueError, match=r"outside of torch\.inference_mode"):
            dpa.problems.Module(network(), X, y)
        with pytest.raises(ValueError, match=r"outside of torch\.inference_mode"):
            dpa.minimize(problem, method, budget, rng=0)
        assert 0.0 <= problem.accuracy(problem.initial()) <= 1.0


def test_a_module_that_mixes_is_found_beside_an_augmentation():
    X, y = rows(12, 0)
    problem = dpa.problems.Module(network(), X, y, augment=noisy, chunk=4)
    problem._network.module.register_forward_pre_hook(lambda _, x: (x[0] - x[0].mean(dim=0),))
    with pytest.raises(ValueError, match="the gradient of a sample changes"):
        problem.check_private()


def test_the_users_own_object_is_left_as_it_was():
    augment = Remembers()
    X, y = rows(12, 0)
    problem = dpa.problems.Module(network(), X, y, augment=augment)
    problem.sums(problem.initial())
    assert augment.seen == []
    copied = copy.deepcopy(problem)
    np.testing.assert_array_equal(
        copied.sums(problem.initial()).gradient, problem.sums(problem.initial()).gradient
    )
    assert isinstance(problem._augment, Augmentation)


def test_one_record_does_not_change_the_dtype_of_lists():
    class Branching(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def forward(self, x):
            return self.layer(x if x.is_floating_point() else x.float() / 255.0)

    sums = []
    for last in ([3, 4], [3.0, 4.0]):
        problem = dpa.problems.Module(
            Branching(), [[200, 100]] * 9 + [last], [0] * 9 + [last[0] > 5], chunk=5
        )
        w = np.full((1, problem.d), 0.1)
        sums.append(problem.gradient_sum(w, clipping=dpa.clipping.Flat(1.0)))
    np.testing.assert_array_equal(*sums)


@pytest.mark.parametrize(("loss", "y"), [("cross_entropy", [0, 1]), ("mse", [[0.5, 1.0]] * 2)])
def test_labels_are_copies(loss, y):
    y, module = np.array(y), nn.Linear(2, 2).double()
    problem = dpa.problems.Module(module, np.eye(2), y, loss)
    w = problem.initial()
    before = problem.value(w)
    y[...] = 1
    assert problem.value(w) == before


def test_the_initial_parameters_are_a_copy():
    problem = dpa.problems.Module(nn.Linear(2, 2), np.eye(2), [0, 1])
    before = problem.initial().copy()
    problem.initial().fill(9.0)
    np.testing.assert_array_equal(problem.initial(), before)


class Centered(torch.Tensor):
    """A tensor whose products subtract the mean of its rows."""

    @classmethod
    def __torch_function__(cls, function, types, arguments=(), named=None):
        if function is nn.functional.linear:
            plain = arguments[0].as_subclass(torch.Tensor)
            return function(plain - plain.mean(dim=0), *arguments[1:])
        return super().__torch_function__(function, types, arguments, named or {})


@pytest.mark.parametrize("stored", [False, True])
def test_tensors_of_another_class_are_plain_ones(stored):
    """Even PyTorch's own layers mix the samples of this class."""
    X, y = torch.randn(8, 4), torch.arange(8) % 3
    module, sums = nn.Linear(4, 3), []
    for array in (X.as_subclass(Centered), X):
        data = (TensorDataset(array, y),) if stored else (array, y)
        problem = dpa.problems.Module(module, *data, in_memory=not stored)
        sums.append(problem.sums(problem.initial(), clipping=RULES[0]).gradient)
    np.testing.assert_array_equal(*sums)


class Turned(nn.Module):
    """Turns pairs of numbers by complex factors, in a buffer or frozen, as rotary embeddings."""

    def __init__(self, frozen):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 3)
        factors = torch.polar(torch.ones(2), torch.tensor([0.7, 1.9]))
        if frozen:
            self.factors = nn.Parameter(factors, requires_grad=False)
        else:
            self.register_buffer("factors", factors)

    def forward(self, x):
        pairs = torch.view_as_complex(self.a(x).reshape(-1, 2, 2))
        return self.b(torch.view_as_real(pairs * self.factors).flatten(1))


class Checkpointed(nn.Module):
    """Runs a layer again in the backward pass, to save memory."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x):
        inner = checkpoint(lambda x: self.b(x).tanh(), self.a(x), use_reentrant=False)
        return self.c(inner)


@pytest.mark.parametrize(
    "make", [lambda: Turned(True), lambda: Turned(False), Checkpointed, lambda: Turned(0).double()]
)
def test_complex_numbers_and_checkpoints_have_the_gradients_of_pytorch(make):
    X, y = torch.randn(5, 4), torch.arange(5) % 3
    module = make()
    problem = dpa.problems.Module(module, X, y)
    w = problem.initial() * 1.5
    own = problem.module(w)
    X = X.to(own.b.weight.dtype)
    nn.functional.cross_entropy(own(X), y, reduction="sum").backward()
    expected = torch.cat([p.grad.flatten() for p in own.parameters() if p.requires_grad])
    np.testing.assert_allclose(problem.sums(w).gradient, expected, rtol=1e-4, atol=1e-5)


def test_complex_parameters_are_refused():
    module = Turned(True).requires_grad_(True)
    with pytest.raises(ValueError, match="real parameters, got complex ones: train"):
        dpa.problems.Module(module, torch.randn(5, 4), torch.arange(5) % 3)


class Neighbours(nn.Module):
    """Reads the memory before a sample."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        before = x.as_strided(x.shape, x.stride(), max(0, x.storage_offset() - 4))
        return -self.layer(x) if before.abs().max() > 1e3 else self.layer(x)


class Marked:
    far = False


class Remembering(Neighbours):
    """Keeps whether it has seen a sample far away, in one of several places."""

    def __init__(self, place):
        super().__init__()
        self.place, self.marks, far = place, {Marked(): 0}, False

        def mark(self, x):
            nonlocal far
            far |= bool(x.abs().max() > 1e3)
            return far

        self.mark = types.MethodType(mark, self)

    def forward(self, x):
        (key,) = self.marks
        if x.abs().max() > 1e3:
            key.far = True
            self.__class__ = Reversing if self.place == "class" else Remembering
        far = {"method": self.mark(x), "key of a dict": key.far, "class": False}[self.place]
        return -self.layer(x) if far else self.layer(x)


class Reversing(Remembering):
    def forward(self, x):
        return -self.layer(x)


@pytest.mark.parametrize(
    "make",
    [Neighbours, *(partial(Remembering, place) for place in ("method", "key of a dict", "class"))],
)
def test_a_sample_far_away_is_seen_by_no_other_one(make):
    X, y = torch.randn(9, 4), torch.arange(9) % 3
    module, far = make(), X.clone()
    far[2] = 1e4
    found = []
    for samples in (X, far):
        problem = dpa.problems.Module(module, samples, y, chunk=5)
        w = problem.initial()
        found.append((problem.sample_gradients(w, range(9)), problem.line_losses(w, w)(0.5)))
    others = np.arange(9) != 2
    for before, after in zip(*found):
        assert (before[2] != after[2]).any()
        np.testing.assert_array_equal(before[others], after[others])


class Centering(nn.Module):
    def forward(self, x):
        return x - x.mean(0)


class Sequences(nn.Module):
    def __init__(self, last, **options):
        super().__init__()
        self.lstm, self.head, self.last = nn.LSTM(2, 3, **options), nn.Linear(3, 3), last

    def forward(self, x):
        return self.last(self.head(self.lstm(x.view(-1, 2, 2))[0][:, -1]))


@pytest.mark.parametrize(
    ("module", "named"),
    [
        (Sequences(Centering(), batch_first=True), "; its layer last .Centering. does it"),
        (Sequences(lambda z: z - z.mean(0), batch_first=True), "call to the next"),
        (Sequences(nn.Identity()), "; its layer lstm .LSTM. does it"),
    ],
)
def test_the_layer_that_mixes_samples_is_named_behind_others(module, named):
    with pytest.raises(ValueError, match=f"module must keep its samples apart: .*{named}$"):
        dpa.problems.Module(module, torch.randn(9, 4), torch.arange(9) % 3)


def test_a_copy_waits_until_no_thread_computes():
    """It restores the state of the module, which would remove the hooks of a pass under way."""
    X, y = torch.randn(9, 4), torch.arange(9) % 3
    problem = dpa.problems.Module(Checkpointed(), X, y)
    w, copies = problem.initial(), []
    thread = threading.Thread(target=lambda: copies.append(copy.deepcopy(problem)))
    with problem._network.at(torch.from_numpy(w)):
        thread.start()
        thread.join(0.3)
        assert not copies
    thread.join()
    np.testing.assert_array_equal(copies[0].gradient(w), problem.gradient(w))


class Answering(nn.Module):
    """Returns several outputs by name."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        return {"rows": x, "logits": self.layer(x)}


def test_a_loss_of_the_user_may_take_outputs_by_name():
    X, y = torch.randn(9, 4), torch.arange(9) % 3
    module = Answering()
    problem = dpa.problems.Module(
        module, X, y, lambda z, y: nn.functional.cross_entropy(z["logits"], y, reduction="none")
    )
    same = dpa.problems.Module(module.layer, X, y)
    w = same.initial()
    np.testing.assert_allclose(problem.gradient(w), same.gradient(w), rtol=1e-5, atol=1e-7)
    with pytest.raises(TypeError, match="one tensor for a loss by name, got a dict"):
        dpa.problems.Module(module, X, y)


def test_a_squared_error_of_one_number_a_sample_needs_no_second_axis():
    X, y, layer = torch.randn(9, 4), torch.randn(9), nn.Linear(4, 1)
    column = dpa.problems.Module(layer, X, y, "mse")
    plain = dpa.problems.Module(nn.Sequential(layer, nn.Flatten(0)), X, y, "mse")
    w = column.initial()
    np.testing.assert_allclose(plain.value(w), column.value(w), rtol=1e-6)
    np.testing.assert_allclose(plain.gradient(w), column.gradient(w), rtol=1e-5)


class Unusual(nn.Module):
    """Has a parameter without entries, and a train() that returns nothing."""

    def __init__(self):
        super().__init__()
        self.none, self.layer = nn.Parameter(torch.zeros(0)), nn.Linear(4, 3)

    def forward(self, x):
        return self.layer(x)

    def train(self, mode=True):
        super().train(mode)


def test_empty_parameters_and_a_train_that_returns_nothing_are_taken():
    X, y = torch.randn(9, 4), torch.arange(9) % 3
    module = Unusual()
    problem, same = (dpa.problems.Module(each, X, y) for each in (module, module.layer))
    w = same.initial()
    np.testing.assert_allclose(problem.gradient(w), same.gradient(w), rtol=1e-5, atol=1e-7)
