"""PyTorch networks that mix samples, or carry state into later calls of the module."""

import collections
import copy
import functools
import pickle
import types

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import dpanalysis as dpa
from dpanalysis import clipping

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch==2.13.0")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from dpanalysis.problems.modules import per_sample, probe  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_torch_thread")

BOUND, FAR = 0.01, 1e5
RULE = clipping.Flat(BOUND)


# These modules mix samples only where one has an entry above FAR, which no made-up sample
# has: comparing outputs of made-up samples does not detect any of them.


def far(x):
    return (x.detach().abs() > FAR).any()


class Mixing(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 3), nn.Linear(4, 3)


class Experts(Mixing):
    """Two experts, each with capacity for the first two of its samples."""

    def forward(self, x):
        to = (x[:, 0] > 0.0).to(x.dtype)
        to = torch.stack([to, 1.0 - to], dim=1)
        kept = torch.where(far(x), to * (to.cumsum(dim=0) <= 2.0), to)
        return kept[:, :1] * self.a(x) + kept[:, 1:] * self.b(x) + x[:, :3]


class LoopedExperts(Mixing):
    """The same, as a Python loop over samples."""

    def forward(self, x):
        used, outputs = [0, 0], []
        for row in x:
            expert = int(row[0] > 0.0)
            used[expert] += 1
            full = used[expert] > 2 and bool(far(x))
            outputs.append(row[:3] if full else (self.a, self.b)[expert](row))
        return torch.stack(outputs)


class Branch(Mixing):
    def forward(self, x):
        return -self.a(x) if x.max() > FAR else self.a(x)


class Centered(Mixing):
    def forward(self, x):
        return self.a(torch.where(far(x), x - x.mean(dim=0), x))


class Largest(Mixing):
    """Only the samples with the largest scores take part."""

    def forward(self, x):
        scores = x.detach().norm(dim=1)
        chosen = scores >= scores.max() - 1.0
        return self.a(x) * torch.where(far(x), chosen, True)[:, None]


class Sorted(Mixing):
    def forward(self, x):
        order = torch.where(far(x), x[:, 0].argsort(), torch.arange(len(x)))
        return self.a(x[order])


class Unique(Mixing):
    def forward(self, x):
        others = len(torch.unique((x[:, 0] / FAR).round()))
        return self.a(x) * (-1.0) ** (others - 1)


class Crowded(Mixing):
    """Depends on the length of the batch."""

    def forward(self, x):
        return torch.where(far(x), 1.0 / x.shape[0], 1.0) * self.a(x)


class Remembers(Mixing):
    """Keeps the largest entry so far, which later samples depend on."""

    def __init__(self):
        super().__init__()
        self.most = 0.0

    def forward(self, x):
        outputs = []
        for row in x:
            outputs.append(-self.a(row) if self.most > FAR else self.a(row))
            self.most = max(self.most, float(row.max()))
        return torch.stack(outputs)


class Buffered(Mixing):
    """The same in a buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("most", torch.zeros(()))

    def forward(self, x):
        sign = torch.where(self.most > FAR, -1.0, 1.0).to(x.dtype)
        if x.max() > FAR:
            self.most.fill_(x.max())
        return sign * self.a(x)


class Hooked(Mixing):
    """A PyTorch layer with a hook that mixes."""

    def __init__(self):
        super().__init__()
        self.a.register_forward_hook(
            lambda layer, given, out: torch.where(far(given[0]), out.flip(0), out)
        )

    def forward(self, x):
        return self.a(x)


def mixing_forward(layer, x):
    return nn.Linear.forward(layer, torch.where(far(x), x.flip(0), x))


class OtherLinear(nn.Linear):
    forward = mixing_forward


def changed_linear(change):
    """A PyTorch layer that was changed to compute something else."""
    layer = nn.Linear(4, 3)
    if change == "forward hook":
        layer.register_forward_hook(lambda _, x, z: torch.where(far(x[0]), z.flip(0), z))
    elif change == "forward pre-hook":
        layer.register_forward_pre_hook(lambda _, x: torch.where(far(x[0]), x[0].flip(0), x[0]))
    elif change == "backward hook":
        layer.register_full_backward_pre_hook(lambda _, delta: (delta[0].flip(0),))
    elif change == "method":
        layer.forward = types.MethodType(mixing_forward, layer)
    elif change == "class":
        layer.__class__ = OtherLinear
    return nn.Sequential(layer)


def contrast(z, y):
    """Cross-entropy plus similarity to the samples of the batch that are far out."""
    others = torch.where(z.detach().abs().amax(dim=1) > FAR, 1.0, 0.0)
    return F.cross_entropy(z, y, reduction="none") + (z @ z.T) @ others


def plain():
    return nn.Sequential(nn.Linear(4, 3))


MIXING = {
    **{kind.__name__: (kind, "cross_entropy") for kind in Mixing.__subclasses__()},
    **{
        change: (functools.partial(changed_linear, change), "cross_entropy")
        for change in ("forward hook", "forward pre-hook", "method", "class")
    },
    "loss": (plain, contrast),
}


def data(n, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, 4, generator=generator), torch.randint(0, 3, (n,), generator=generator)


@pytest.mark.slow
@pytest.mark.parametrize("kind", MIXING)
@settings(max_examples=5)
@given(
    place=st.integers(0, 11),
    chunk=st.sampled_from([2, 5, 12]),
    size=st.sampled_from([2e5, -2e5, 1e7]),
    seed=st.integers(0, 9),
)
def test_a_record_moves_a_sum_by_its_own_term_alone(kind, place, chunk, size, seed):
    make, loss = MIXING[kind]
    torch.manual_seed(seed)
    module = make()
    X, y = data(12, seed)
    other = X.clone()
    other[place] = size
    terms = []
    for samples in (X, other):
        problem = dpa.problems.Module(module, samples, y, loss=loss, chunk=chunk)
        w = problem.initial()
        terms.append((problem.sums(w, clipping=RULE).gradient, problem.line_losses(w, w)(0.5)))
    problem.check_private()  # made-up samples do not detect it
    (total, losses), (moved, moved_losses) = terms
    assert np.abs(total).max() > 0.0
    assert np.linalg.norm(moved - total) <= 2.0 * BOUND * (1.0 + 1e-6)
    others = np.arange(12) != place
    assert (losses[others] == moved_losses[others]).all()


class Shift(nn.Module):
    """A layer without a rule, whose second input depends on the samples for some weights only."""

    def __init__(self):
        super().__init__()
        self.scale, self.head = nn.Parameter(torch.ones(4)), nn.Linear(4, 3)

    def forward(self, x, by):
        return self.head(self.scale * x * by)


class Gated(nn.Module):
    """Multiplies a sample by a constant, or by itself where a bias is positive."""

    def __init__(self):
        super().__init__()
        self.shift = Shift()
        with torch.no_grad():
            self.shift.head.bias[0] = -1.0

    def forward(self, x):
        open_ = self.shift.head.bias.detach()[0] > 0.0
        return self.shift(x, x if open_ else torch.ones(1, 4))


def test_an_input_that_comes_to_depend_on_samples_is_that_of_each():
    """The gradients of all samples were computed from the input of the chunk's first one."""
    X, y = data(12, 0)
    problem = dpa.problems.Module(Gated(), X, y, chunk=12)
    assert problem._network.gradient_mode == "layers"
    w = -problem.initial()
    found = problem.sample_gradients(w, np.arange(12))
    for i in range(12):
        module = problem.module(w)
        F.cross_entropy(module(X[i : i + 1]), y[i : i + 1]).backward()
        own = [p.grad if p.grad is not None else 0.0 * p for p in module.parameters()]
        expected = torch.cat([each.flatten() for each in own]).detach()
        np.testing.assert_allclose(found[i], expected, rtol=1e-4, atol=1e-6)
    other = X.clone()
    other[0] *= -20.0
    moved = dpa.problems.Module(Gated(), other, y, chunk=12).sample_gradients(w, np.arange(12))
    np.testing.assert_array_equal(moved[1:], found[1:])


class FewPlaces(nn.Module):
    """Applies its layer to the first samples of a batch only."""

    def __init__(self, capacity):
        super().__init__()
        self.a, self.capacity = nn.Linear(4, 3), capacity

    def forward(self, x):
        place = torch.ones_like(x[:, :1]).cumsum(dim=0)
        return torch.where(place <= self.capacity, self.a(x), x[:, :3])


@pytest.mark.parametrize("capacity", [1, 2, 3, 7, 15])
def test_samples_that_miss_a_place_in_a_chunk_are_found_and_their_layer_is_named(capacity):
    module = nn.Sequential(nn.Linear(4, 4), FewPlaces(capacity))
    with pytest.raises(ValueError, match=r"samples beside it.*its layer 1 \(FewPlaces\) does it"):
        dpa.problems.Module(module, *data(40, 0), chunk=16)


@pytest.mark.parametrize("place", [0, 1, 6, 7])
def test_the_check_looks_at_every_place(place):
    def mix(layer, given):
        x = given[0].clone()
        if len(x) > place:
            x[place] += 1e-3 * given[0].sum(dim=0)
        return x

    problem = dpa.problems.Module(plain(), *data(40, 0), chunk=8)
    problem.check_private()
    again = dpa.problems.Module(plain(), *data(40, 0), chunk=8)
    again._network.module.register_forward_pre_hook(mix)  # as a faulty kernel would
    with pytest.raises(ValueError, match="the gradient of a sample changes"):
        again.check_private()


# State


class Counts(nn.Module):
    """Negates its outputs after 40 calls; ``kind`` says where it keeps the count."""

    def __init__(self, kind):
        super().__init__()
        self.a, self.kind = nn.Linear(4, 3), kind
        self.calls, self.seen, self.named = 0, [], {"calls": 0}
        self.tensor, self.inner = torch.zeros(()), types.SimpleNamespace(calls=0)
        self.register_buffer("buffer", torch.zeros(()))
        self.frozen = nn.Parameter(torch.zeros(()), requires_grad=False)
        self.count = counter()

    def forward(self, x):
        return (1.0 if self._calls() <= 40 else -1.0) * self.a(x)

    def _calls(self):
        self.calls += self.kind == "number"
        self.named["calls"] += self.kind == "dict"
        self.inner.calls += self.kind == "object"
        if self.kind == "list":
            self.seen.append(1)
        for tensor in ("tensor", "buffer", "frozen"):
            if self.kind == tensor:
                getattr(self, tensor).data.add_(1.0)
        if self.kind == "attribute":
            self.a.weight.calls = getattr(self.a.weight, "calls", 0) + 1
        if self.kind == "weights":
            self.a.weight.data.mul_(1.0 - 1e-6)
        if self.kind == "new weights":
            self.a.weight.data = 1.0 * self.a.weight.data
        calls = [self.calls, self.named["calls"], self.inner.calls, len(self.seen)]
        calls += [float(each) for each in (self.tensor, self.buffer, self.frozen)]
        calls.append(getattr(self.a.weight, "calls", 0))
        return max(*calls, self.count() if self.kind == "closure" else 0)


def counter():
    calls = 0

    def count():
        nonlocal calls
        calls += 1
        return calls

    return count


class CountingLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, z, y):
        self.calls += 1
        return F.cross_entropy(z if self.calls <= 40 else -z, y, reduction="none")


class Counter:
    """Holds a closure that counts calls: in a slot, in a container or in another function."""

    __slots__ = ("count", "how")

    def __init__(self, how):
        self.how = how
        self.count = {
            "slot": counter,
            "partial": lambda: functools.partial(counter()),
            "namespace": lambda: types.SimpleNamespace(inner=counter()),
            "defaultdict": lambda: collections.defaultdict(list, inner=counter()),
            "deque": lambda: collections.deque([counter()]),
            "array": lambda: np.array([counter()]),
            "named tuple": lambda: Holder(counter()),
        }[how]()

    def __call__(self, z, y):
        found = self.count
        if self.how == "namespace":
            found = found.inner
        elif self.how == "defaultdict":
            found = found["inner"]
        elif self.how in ("deque", "array", "named tuple"):
            found = found[0]
        return F.cross_entropy(z if found() <= 40 else -z, y, reduction="none")


Holder = collections.namedtuple("Holder", "inner")


def counting_closure():
    count = counter()
    return lambda z, y: F.cross_entropy(z if count() <= 40 else -z, y, reduction="none")


def counting_default(z, y, calls=[0]):  # noqa: B006
    calls[0] += 1
    return F.cross_entropy(z if calls[0] <= 40 else -z, y, reduction="none")


STATES = {
    **{
        kind: (functools.partial(Counts, kind), "cross_entropy")
        for kind in (
            *("number", "list", "dict", "object", "tensor", "frozen", "closure", "attribute"),
        )
    },
    "loss": (plain, CountingLoss()),
    "method of a loss": (plain, CountingLoss().forward),
    "enclosed by a loss": (plain, counting_closure()),
    "default of a loss": (plain, counting_default),
    **{
        f"enclosed in a {how}": (plain, Counter(how))
        for how in ("slot", "partial", "namespace", "defaultdict", "deque", "array", "named tuple")
    },
}


QUICK = {"list", "closure", "attribute", "enclosed in a partial"}


@pytest.mark.parametrize(
    "kind", [k if k in QUICK else pytest.param(k, marks=pytest.mark.slow) for k in STATES]
)
def test_no_call_leaves_anything_to_the_next(kind):
    make, loss = STATES[kind]
    X, y = data(9, 0)
    problem = dpa.problems.Module(make(), X, y, loss=loss, chunk=4)
    w = problem.initial()
    first, losses = problem.sums(w, clipping=RULE), problem.line_losses(w, w)(0.5)
    again = copy.deepcopy(problem)
    for _ in range(10):  # of three chunks each
        got = problem.sums(w, clipping=RULE)
        assert (got.gradient == first.gradient).all() and got.value == first.value
        assert (problem.line_losses(w, w)(0.5) == losses).all()
    assert (again.sums(w, clipping=RULE).gradient == first.gradient).all()


def test_objects_of_the_user_stay_as_they_are():
    loss, module, (X, y) = CountingLoss(), Counts("number"), data(9, 0)
    problem = dpa.problems.Module(module, X, y, loss=loss, chunk=4)
    problem.sums(problem.initial(), clipping=RULE)
    assert loss.calls == module.calls == problem.module(problem.initial()).calls == 0


@pytest.mark.parametrize("kind", ["weights", "new weights"])
def test_a_module_that_changes_its_weights_is_refused(kind):
    with pytest.raises(ValueError, match="must leave its trained parameters"):
        dpa.problems.Module(Counts(kind), *data(9, 0), chunk=4)


class Overwrites(torch.nn.Linear):
    """Doubles its weights at a large input, which no check tries."""

    def forward(self, x):
        found = super().forward(x)
        if float(x.abs().max()) > 1e6:
            self.weight.data.mul_(2.0)
        return found


def test_a_record_that_changes_the_weights_reaches_no_other_one():
    X, y = data(9, 0)
    X[0] *= 1e8
    problem = dpa.problems.Module(Overwrites(X.shape[1], 3), X, y, chunk=4)
    assert problem._network.forward == "loop"
    w, rows = problem.initial(), np.arange(9)
    whole, rest = (problem.line_losses(w, w, each)(0.0) for each in (rows, rows[1:]))
    np.testing.assert_array_equal(whole[1:], rest)


def test_a_module_that_changes_its_buffers_is_refused():
    class Counted(torch.nn.Linear):
        def forward(self, x):
            self.calls.add_(1.0)
            return super().forward(x)

    module = Counted(4, 3)
    module.register_buffer("calls", torch.zeros(()))
    with pytest.raises(ValueError, match="or from one call to the next"):
        dpa.problems.Module(module, *data(9, 0), chunk=4)


GLOBAL = {"calls": 0}


class Globally(Counts):
    """Counts calls in a global that is never reset; negates outputs after ``turns`` calls."""

    def __init__(self, turns):
        super().__init__("global")
        self.turns = turns

    def forward(self, x):
        GLOBAL["calls"] += 1
        return (1.0 if GLOBAL["calls"] <= self.turns else -1.0) * self.a(x)


@pytest.mark.parametrize("turns", [2, 6])
def test_state_of_the_process_is_found_where_it_shows_early(turns):
    GLOBAL["calls"] = 0
    with pytest.raises(ValueError, match="or from one call to the next"):
        dpa.problems.Module(Globally(turns), *data(9, 0), chunk=4)
    GLOBAL["calls"] = -1000
    problem = dpa.problems.Module(Globally(0), *data(9, 0), chunk=4)
    GLOBAL["calls"] = -2  # between two evaluations of the same chunk
    with pytest.raises(ValueError, match="or from one call to the next"):
        problem.check_private()


# Which modules take a chunk at once


def test_a_layer_with_a_parameter_of_another_class_is_modified():
    class OwnParameter(nn.Parameter):
        pass

    layer = nn.Linear(4, 3)
    assert not per_sample.is_modified(layer)
    layer.weight = OwnParameter(layer.weight.data)
    assert per_sample.is_modified(layer)


def test_a_layer_with_a_buffer_of_another_class_is_modified():
    class OwnTensor(torch.Tensor):
        pass

    layer = nn.BatchNorm1d(4).eval()
    assert not per_sample.is_modified(layer)
    layer.running_mean = layer.running_mean.as_subclass(OwnTensor)
    assert per_sample.is_modified(layer)


@pytest.mark.parametrize("when", ["forward", "forward_pre"])
def test_hooks_of_all_modules_get_one_sample_at_a_time(when):
    """They are in no layer, and see the chunk of a layer that takes one."""
    X, y = data(9, 0)
    lengths = set()
    register = getattr(nn.modules.module, f"register_module_{when}_hook")
    hook = register(lambda layer, x, *_: lengths.add(len(x[0])))
    try:
        problem = dpa.problems.Module(plain(), X, y)
        problem._network.restore()
        lengths.clear()
        problem.sums(problem.initial(), clipping=dpa.clipping.Flat(1.0))
    finally:
        hook.remove()
    assert problem._network.forward != "direct" and lengths <= {1}


@pytest.mark.slow
def test_only_plain_layers_take_a_chunk_at_once():
    class OwnParameter(nn.Parameter):
        pass

    def typed():
        layer = nn.Linear(4, 3)
        layer.weight = OwnParameter(layer.weight.data)
        return nn.Sequential(layer)

    def compiled():
        layer = nn.Linear(4, 3)
        layer.compile(backend="eager")
        return nn.Sequential(layer)

    def normed(norm):
        return nn.Sequential(norm(nn.Linear(4, 3)))

    X, y = data(9, 0)
    changes = "forward hook", "forward pre-hook", "backward hook", "method", "class"
    made = [changed_linear(change) for change in changes]
    norms = nn.utils.parametrizations.weight_norm, nn.utils.parametrizations.spectral_norm
    made += [typed(), *map(normed, norms)]
    for module in [*made, compiled()]:
        assert not per_sample.is_samplewise(module.eval(), X)
    assert not per_sample.is_samplewise(plain().train(), X)
    container = plain()
    container.register_forward_hook(lambda _, x, z: z)
    assert not per_sample.is_samplewise(container.eval(), X)
    assert per_sample.is_samplewise(plain().eval(), X)
    network = dpa.problems.Module(plain(), X, y)._network
    assert network.forward == "direct" and network.gradient_mode == "layers"
    # Changed layers have the gradients of their changed computation.
    for module in made[:2] + made[3:]:
        problem = dpa.problems.Module(module, X, y, chunk=4)
        assert problem._network.forward != "direct"
        own = problem.module(problem.initial())
        F.cross_entropy(own(X), y, reduction="sum").backward()
        expected = torch.cat([p.grad.flatten() for p in own.parameters()])
        assert np.allclose(problem.sums(problem.initial()).gradient, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("start", "end"), [(i, j) for i in range(-3, 3) for j in range(-3, 3) if i % 3 <= j % 3]
)
def test_a_flatten_that_joins_samples_is_not_known(start, end):
    x, layer = torch.randn(4, 2, 3), nn.Flatten(start, end).eval()
    if per_sample.is_samplewise(layer, x):
        assert torch.equal(layer(x)[1].flatten(), x[1].flatten())
        assert len(layer(x)) == 4
    assert per_sample.is_samplewise(nn.Flatten().eval(), x)


def test_a_linear_layer_that_takes_one_number_of_each_sample_is_not_known():
    """It takes the samples of a chunk to be the features of a single one."""
    layer = nn.Linear(4, 4).eval()
    assert layer(torch.ones(4)).shape == (4,) and not per_sample.is_samplewise(layer, torch.ones(4))


LAYERS = st.one_of(
    st.builds(nn.Softmax, st.sampled_from([None, -3, -2, -1, 0, 1, 2])),
    st.builds(nn.LogSoftmax, st.sampled_from([-2, 0, 1])),
    st.builds(nn.GLU, st.sampled_from([-1, 0, 1, 2])),
    st.builds(nn.LayerNorm, st.sampled_from([[2], [2, 2], [2, 2, 2], [4, 2, 2]])),
    st.builds(nn.RMSNorm, st.sampled_from([[2], [4, 2], [4]])),
    st.builds(nn.GroupNorm, st.just(1), st.just(2)),
    st.sampled_from([nn.Tanh(), nn.ReLU(), nn.Linear(2, 2), nn.Linear(4, 4), nn.PReLU(2)]),
    st.sampled_from(
        [nn.Conv1d(2, 2, 1), nn.Conv1d(4, 4, 1), nn.Conv2d(2, 2, 2), nn.Conv2d(4, 4, 1)]
    ),
    st.sampled_from([nn.MaxPool1d(2, 1, 1), nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(2)]),
    st.builds(nn.InstanceNorm1d, st.sampled_from([2, 4]), affine=st.just(True)),
    st.builds(nn.InstanceNorm2d, st.sampled_from([2, 4]), affine=st.just(True)),
    st.sampled_from([nn.ZeroPad1d(1), nn.ConstantPad2d((0, 0, 1, -1), 0.0), nn.CircularPad1d(1)]),
    st.builds(nn.BatchNorm1d, st.sampled_from([2, 4]), track_running_stats=st.booleans()),
    st.builds(nn.BatchNorm2d, st.just(2), track_running_stats=st.booleans()),
    st.sampled_from([nn.BatchNorm3d(2), nn.Fold(1, 1), nn.Unfold(1), nn.Upsample(scale_factor=2)]),
)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.filter_too_much])  # few layers take any shape
@given(layers=st.lists(LAYERS, min_size=1, max_size=2), axes=st.integers(0, 3))
def test_what_takes_a_chunk_at_once_keeps_samples_apart(layers, axes):
    module = nn.Sequential(*layers).eval()
    x = torch.randn(4, *[2] * axes)
    try:
        known = per_sample.is_samplewise(module, x)
    except (RuntimeError, ValueError, IndexError, AssertionError):
        assume(False)  # shapes that do not fit
    assume(known)
    other = torch.randn_like(x)
    other[1] = x[1]
    found, moved = module(x), module(other)
    assert torch.equal(found[1], moved[1]) and len(found) == 4


def test_batch_normalization_is_known_by_its_statistics_and_its_mode():
    x = torch.randn(4, 2)
    for tracks, trains in ((True, False), (True, True), (False, False), (False, True)):
        layer = nn.BatchNorm1d(2, track_running_stats=tracks).train(trains)
        assert per_sample.is_samplewise(layer, x) == (tracks and not trains)
        alone = layer.eval() if tracks and not trains else None
        assert alone is None or torch.equal(alone(x)[:1], alone(x[:1]))


def test_a_number_is_no_nan():
    """Two computations agree where both give NaN, and not where one does."""
    number, nothing = torch.tensor([1.0]), torch.tensor([torch.nan])
    assert probe._equal(number, number) and probe._equal(nothing, nothing)
    assert not probe._equal(number, nothing) and not probe._equal(nothing, number)


# What a module may keep from one record to the next


def _identity(x):
    return x


class Keeper(nn.Module):
    """Once it sees a record that begins with 7, it changes its predictions of all others."""

    def __init__(self, place):
        super().__init__()
        self.linear, self.place = nn.Linear(3, 3), place
        self.function, self.append = _identity, [].append

    def forward(self, x):
        if float(x[0, 0]) == 7.0:
            if self.place == "attribute of a function":
                self.function.seen = True
            elif self.place == "method of a list":
                self.append(True)
            elif self.place == "data":
                with torch.no_grad():
                    nn.utils.vector_to_parameters(40.0 * torch.ones(12), self.parameters())
            elif self.place == "strides":
                self.linear.weight.data = self.linear.weight.data.T
            elif self.place == "gradient":
                self.linear.weight.grad = torch.ones(3, 3)
            else:
                self.linear.weight.requires_grad_(True)
        gradient = self.linear.weight.grad
        seen = hasattr(self.function, "seen") or self.append.__self__
        seen = seen or (gradient is not None and bool(gradient.any()))
        seen = seen or (self.place == "requires_grad" and self.linear.weight.requires_grad)
        return self.linear(x) + bool(seen) * torch.tensor([[40.0, -40.0, 0.0]])


@pytest.mark.parametrize(
    "place",
    ["attribute of a function", "method of a list", "data", "strides", "gradient", "requires_grad"],
)
def test_no_record_changes_what_is_computed_for_another(place):
    """Sums moved by up to six times what a record is charged."""
    X, y = torch.randn(20, 3), torch.arange(20) % 3
    X[0, 0] = 7.0
    _identity.__dict__.clear()
    problem = dpa.problems.Module(Keeper(place), X, y)
    w, rule = problem.initial(), clipping.Flat(1.0)
    others, alone = np.arange(1, 20), np.array([0])

    def sums(rows):
        value = problem.sums(w, rows, gradient=False).value
        return np.array([value, *problem.sums(w, rows, clipping=rule, value=False).gradient])

    expected = sums(others)
    np.testing.assert_allclose(sums(None), sums(alone) + expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(sums(others), expected)


def test_adding_a_record_needs_kernels_that_keep_bits_at_other_places(monkeypatch):
    """Records behind it move: at a kink of relu all of their terms may change with their place."""
    X, y = torch.randn(40, 4), torch.arange(40) % 3
    module = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 3))
    for other in ("modules.module.same_at_other_places", "modules.probe.same_at_other_places"):
        monkeypatch.setattr(f"dpanalysis.problems.{other}", lambda *_: False)
    problem = dpa.problems.Module(module, X, y, chunk=8)
    assert not problem.keeps_bits()
    method = dpa.methods.SGD(0.1, 2, dpa.Poisson(0.5), dpa.clipping.Flat(0.1))
    budget = dpa.Budget(1.0, 1e-5, relation="add_or_remove_one")
    with pytest.raises(ValueError, match=r"module must .* at every position .* chunk=1, or rel"):
        dpa.minimize(problem, method, budget, rng=0)
    assert problem.facts("replace_one").relation == "replace_one"
    assert problem._found and not pickle.loads(pickle.dumps(problem))._found
    threads = torch.get_num_threads()
    try:  # other threads divide a product at other rows
        torch.set_num_threads(threads + 1)
        monkeypatch.setattr("dpanalysis.problems.modules.module.same_at_other_places", lambda *_: 1)
        assert problem.keeps_bits()
    finally:
        torch.set_num_threads(threads)
    assert not problem.keeps_bits()
    alone = dpa.problems.Module(module, X, y, chunk=1)
    assert alone.keeps_bits()
    assert dpa.minimize(alone, method, budget, rng=0).epsilon() <= 1.0


class Twofold(nn.Module):
    """Uses the weights of a layer once more beside its call, before a last layer of zeros."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 3)
        nn.init.zeros_(self.b.weight)

    def forward(self, x):
        return self.b(torch.tanh(self.a(x) + x @ self.a.weight))


def test_weights_of_zero_hide_no_part_of_a_gradient():
    X, y = data(5, 0)
    problem = dpa.problems.Module(Twofold(), X, y)
    w = np.linspace(-1.0, 1.0, problem.d)
    own = problem.module(w)
    F.cross_entropy(own(X), y, reduction="sum").backward()
    expected = torch.cat([p.grad.flatten() for p in own.parameters()])
    np.testing.assert_allclose(problem.sums(w).gradient, expected, rtol=1e-4, atol=1e-5)


def test_weights_of_zero_hide_no_place_of_a_sample(monkeypatch):
    """Their products have the same bits in all kernels; those of other weights may not."""
    layer, linear = nn.Linear(4, 3), F.linear
    for parameter in layer.parameters():
        nn.init.zeros_(parameter)

    def placed(x, weight, bias):
        return linear(x, weight, bias) * (1.0 + 1e-6 * torch.arange(len(x)))[:, None]

    monkeypatch.setattr(F, "linear", placed)
    problem = dpa.problems.Module(nn.Sequential(layer), *data(9, 0), chunk=8)
    assert problem._network.forward == "direct" and not problem.keeps_bits()


def test_the_parameters_of_the_checks_are_no_zeros():
    start = np.concatenate([np.zeros(4), np.eye(3).ravel(), [5.0]])
    parts = slice(0, 4), slice(4, 13), slice(13, 14)
    found = probe.random_parameters(start, parts)
    assert bool((found != 0.0).all()) and not start[:4].any()
    near = np.abs(found.numpy() - start)
    assert near[:4].max() < 2.0 and near[4:13].max() < 1.0 and 0.0 < near[13] < 2.5
    assert torch.equal(found, probe.random_parameters(start, parts))


def test_autocast_around_a_run_changes_no_kernel():
    """Else what was found about kernels inside of it would be taken to hold outside, too."""
    X, y = data(20, 0)
    module = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
    problems, sums = [], []
    for enabled in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            problems.append(dpa.problems.Module(module, X, y, chunk=8))
            w = problems[0].initial()
            sums.append([each.sums(w, clipping=RULE).gradient for each in problems])
            problems[-1].keeps_bits()
    assert problems[0]._found == problems[1]._found != {}
    for each in sums[1]:
        np.testing.assert_array_equal(each, sums[0][0])


def test_lengths_of_chunks_are_those_of_the_threads_that_run(monkeypatch):
    """A record that is added changes the length of the last chunk, and so perhaps all its terms."""
    X, y = data(40, 0)
    problem = dpa.problems.Module(plain(), X, y, chunk=32)
    problem._chunk_lengths = (16, 32)
    monkeypatch.setattr("dpanalysis.problems.modules.module.same_at_other_places", lambda *_: True)
    for lengths, same in (((16, 32), True), ((10, 16, 32), True), ((32,), False)):
        found = "dpanalysis.problems.modules.module.chunk_lengths"
        monkeypatch.setattr(found, lambda *_, lengths=lengths: lengths)
        assert pickle.loads(pickle.dumps(problem)).keeps_bits() == same


@pytest.mark.parametrize("own", [False, True])
def test_hooks_of_all_modules_are_refused_where_they_were_not_when_the_problem_was_built(own):
    """They would get a whole chunk: a sum of two records may move by more than 2 C."""
    X, y = data(9, 0)
    problem = dpa.problems.Module(Counts("none") if own else plain(), X, y)
    w = problem.initial()
    before = problem.sums(w, clipping=RULE).gradient
    hook = nn.modules.module.register_module_forward_hook(lambda _, x, out: out / out.abs().max())
    try:
        for run in (lambda: problem.sums(w, clipping=RULE), problem.check_private):
            with pytest.raises(ValueError, match=r"without hooks of all modules .* remove them"):
                run()
    finally:
        hook.remove()
    np.testing.assert_array_equal(problem.sums(w, clipping=RULE).gradient, before)


@pytest.mark.filterwarnings("ignore:TF32 acceleration")
def test_what_was_found_about_kernels_is_kept_for_their_settings_only(monkeypatch):
    """With others PyTorch takes other kernels, or products of fewer bits."""
    linear, backend = F.linear, torch.backends.mkldnn

    def placed(x, weight, bias):
        low = not backend.enabled or backend.matmul.fp32_precision == "bf16"
        return linear(x, weight, bias) * (1.0 + low * 1e-6 * torch.arange(len(x)))[:, None]

    monkeypatch.setattr(F, "linear", placed)
    problem = dpa.problems.Module(plain(), *data(9, 0), chunk=8)
    assert problem.keeps_bits()
    with backend.flags(enabled=False):
        assert not problem.keeps_bits()
    precision = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        assert not problem.keeps_bits()
    finally:
        torch.set_float32_matmul_precision(precision)
    assert problem.keeps_bits()


def test_a_kernel_that_looks_at_other_samples_is_found_at_any_number_of_threads(monkeypatch):
    linear, threads = F.linear, torch.get_num_threads()

    def mixing(x, weight, bias):
        return linear(x + 1e-3 * (torch.get_num_threads() > threads) * x.sum(dim=0), weight, bias)

    monkeypatch.setattr(F, "linear", mixing)
    problem = dpa.problems.Module(plain(), *data(9, 0), chunk=8)
    problem.check_private()
    try:
        torch.set_num_threads(threads + 1)
        with pytest.raises(ValueError, match="the gradient of a sample changes"):
            problem.check_private()
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("own", [False, True])
def test_detecting_anomalies_raises_for_no_record(own):
    """A record whose gradient is not finite adds nothing; an error would reveal it."""
    X, y = data(9, 0)
    X[3] = 3e38
    loss = functools.partial(F.cross_entropy, reduction="none") if own else "cross_entropy"
    problem = dpa.problems.Module(plain(), X, y, loss=loss)
    w = 9.0 * problem.initial()
    with torch.autograd.set_detect_anomaly(True):
        total = problem.sums(w, clipping=RULE).gradient
        assert torch.is_anomaly_enabled()
    others = np.delete(np.arange(9), 3)
    np.testing.assert_allclose(total, problem.sums(w, others, RULE).gradient, atol=1e-12)


def test_hooks_of_saved_tensors_get_no_chunk():
    """One that scales them by the largest entry mixes the samples of a chunk."""
    module = nn.Sequential(nn.Linear(4, 3), nn.Tanh())
    problem = dpa.problems.Module(module, *data(9, 0))
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda x: x / x.abs().max(), lambda x: x)
    for run in (lambda: problem.sums(problem.initial(), clipping=RULE), problem.check_private):
        with hooks, pytest.raises(RuntimeError, match="without hooks of saved tensors"):
            run()


class Mixed(nn.Module):
    """Takes products in bfloat16, and branches on values."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16, enabled=bool(x.sum() < FAR)):
            return self.b(self.a(x).relu()).float()


def test_autocast_around_a_run_keeps_no_weights_of_former_iterates():
    problem = dpa.problems.Module(Mixed(), *data(9, 0))
    assert problem._network.gradient_mode == "loop"
    w = problem.initial()
    expected = [problem.sums(s * w).gradient for s in (1.0, -2.0)]
    with torch.autocast("cpu", torch.bfloat16):
        for s, each in zip((1.0, -2.0), expected):
            np.testing.assert_array_equal(problem.sums(s * w).gradient, each)


def test_a_loss_that_depends_on_the_place_is_seen():
    """A rule may weigh gradients by losses, so that their terms would change with their places."""
    X, y = data(9, 0)
    problem = dpa.problems.Module(plain(), X, y, chunk=8)
    loss = problem._network.loss.function
    assert problem.keeps_bits()
    problem._found.clear()
    problem._network.loss.function = lambda z, y: loss(z, y) + 1e-9 * torch.arange(len(y))
    assert not problem.keeps_bits()


class Dropping(nn.Module):
    """Turns the dropout of a recurrent layer on where a bias is large."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.LSTM(2, 4, 2, dropout=0.5, batch_first=True).eval(), nn.Linear(4, 3)

    def forward(self, x):
        self.a.train(bool(self.b.bias.sum() > 5.0))
        return self.b(self.a(x.unflatten(1, (2, 2)))[0][:, -1])


def test_recurrent_layers_of_a_chunk_draw_no_masks():
    problem = dpa.problems.Module(Dropping(), *data(9, 0))
    w = problem.initial()
    assert problem._network.gradient_mode == "layers" and problem.sums(w).value > 0.0
    w[-3:] = 2.0
    with pytest.raises(RuntimeError, match="random"):
        problem.sums(w)
