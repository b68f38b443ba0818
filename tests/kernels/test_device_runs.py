"""Data on a device: results equal those of NumPy, and the host waits once an iteration.

Without a GPU the device is array_api_strict, or a double of CuPy that counts every wait.
"""

import numpy as np
import pytest
from array_api_compat import array_namespace
from devices import ANY, LIBRARIES, Double
from hypothesis import given
from hypothesis import strategies as st

import dpanalysis as dpa
from dpanalysis import clipping, losses, regularizers
from dpanalysis._devices import to_host
from dpanalysis.kernels import array_api
from dpanalysis.privacy import _philox
from dpanalysis.problems import MLP, Softmax

RULES = [
    None,
    clipping.Flat(0.4),
    clipping.Automatic(0.1, 0.4),
    clipping.PerSampleAdaptive(0.1, 0.4),
    clipping.Value(0.4, 8.0),
    clipping.Custom(lambda norm, loss: 0.4 / (0.4 + norm), 0.4),
]
LOSSES = [losses.Logistic(), losses.SquaredError(), losses.Hinge(), losses.HuberizedHinge(0.5)]
BOUND = dpa.RowBound(2, 1.5)
PENALTY = regularizers.L2(0.1)
KINDS = {
    "erm": lambda X, y: dpa.ERM(X, 2 * (y > 0) - 1, losses.Logistic(), PENALTY, BOUND),
    "softmax": lambda X, y: Softmax(X, y, 3, PENALTY, BOUND),
    "mlp": lambda X, y: MLP(X, y, (5,), 3, "tanh", regularizer=PENALTY, row_bound=BOUND),
}


def draw(n=80, d=4, seed=0, dtype=np.float64):
    random = np.random.default_rng(seed)
    return random.standard_normal((n, d)).astype(dtype), random.integers(0, 3, n)


def pair(kind, xp, **data):
    """Return the same problem on the host and on the device."""
    X, y = draw(**data)
    return KINDS[kind](X, y), KINDS[kind](xp.asarray(X), y)


def assert_same(found, expected, tolerance=1e-10):
    for a, b in zip(found, expected):
        assert (a is None) == (b is None)
        if a is not None:
            np.testing.assert_allclose(to_host(a), b, rtol=tolerance, atol=tolerance)


def test_wide_rows_are_summed_in_small_blocks(monkeypatch):
    X, y = draw()
    problem = KINDS["erm"](X, y)
    custom = clipping.Custom(lambda norm, loss: 0.4 / np.maximum(0.4, norm), 0.4)
    w = np.ones((1, 4))
    expected = problem.sums(w, clipping=clipping.Flat(0.4))
    monkeypatch.setattr(array_api, "_HOST_ENTRIES", 10)
    assert_same(problem.sums(w, clipping=custom), expected)


@pytest.mark.slow
@given(
    st.sampled_from(sorted(KINDS)),
    st.sampled_from(RULES),
    st.integers(0, 2**20),
    st.sampled_from([None, "shared", "each"]),
    st.booleans(),
    st.sampled_from([10_000, 1 << 28]),
)
def test_sums_are_those_of_numpy(kind, rule, seed, batch, weighted, block):
    """All rules, networks and batches, in small blocks and large; one record is all zeros."""
    random = np.random.default_rng(seed)
    R = int(random.integers(1, 4))
    X, y = draw(seed=seed)
    X[3] = 0.0
    twins = [KINDS[kind](X, y)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(array_api, "DEVICE_BLOCK_BYTES", block)
        twins.append(KINDS[kind](LIBRARIES["strict"]().asarray(X), y))
        W = random.standard_normal((R, twins[0].d)) * 10.0 ** random.uniform(-1, 1)
        rows = [random.integers(0, 80, random.integers(0, 30)) for _ in range(R)]
        rows = {None: None, "shared": rows[0], "each": rows}[batch]
        weights = random.integers(0, 3, 80) if weighted else None
        found, expected = [], []
        for problem, into in zip(twins, (expected, found), strict=True):
            total = problem.sums(W, rows, rule, weights=weights)
            single = problem.sums(W[0], None, rule, value=False, weights=weights)
            into += [*total, *single, problem.value(W), problem.gradient(W), problem.accuracy(W)]
    assert_same(found, expected)


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("library", ANY)
def test_every_loss_and_curvature(library, loss):
    xp = LIBRARIES[library]()
    X, y = draw()
    signs = np.where(y > 0, 1.0, -1.0)
    host, device = (dpa.ERM(data, signs, loss, PENALTY, BOUND) for data in (X, xp.asarray(X)))
    W = np.random.default_rng(1).standard_normal((2, 4))
    for rule in RULES[:4] + RULES[5:]:
        assert_same(device.sums(W, clipping=rule), host.sums(W, clipping=rule))
    step = host.line_losses(W[0], W[1])(0.3)
    assert_same([device.line_losses(W[0], W[1])(0.3)], [step])
    if np.isfinite(loss.smoothness):
        assert_same([device.hessian(W)], [host.hessian(W)])
        assert_same([device.hvp(W, W + 1.0)], [host.hvp(W, W + 1.0)])


@pytest.mark.parametrize("kind", ["softmax", "mlp"])
@pytest.mark.parametrize("library", ANY)
def test_a_record_that_overflows_affects_no_other(library, kind):
    xp = LIBRARIES[library]()
    X, y = draw()
    X[5] = 1e200
    make = {"softmax": lambda X: Softmax(X, y), "mlp": lambda X: MLP(X, y, (5,))}[kind]
    host, device = make(X), make(xp.asarray(X))
    W = np.random.default_rng(0).standard_normal((2, host.d))
    W[1] *= 1e150
    with np.errstate(all="ignore"):
        found = device.sums(W, clipping=clipping.Flat(1.0), value=False)
    expected = host.sums(W, clipping=clipping.Flat(1.0), value=False)
    assert_same(found, expected)
    assert np.isfinite(expected.gradient).all()


METHODS = {
    "nesterov": lambda T, noise: dpa.methods.Nesterov(0.2, T, 0.1, noise=noise),
    "heavy ball": lambda T, noise: dpa.methods.HeavyBall(
        0.2, 0.3, T, noise=noise, sampling=dpa.Poisson(0.3), mechanism="gaussian"
    ),
    "sgd": lambda T, noise: dpa.methods.SGD(
        0.5, T, dpa.Poisson(0.2), clipping.Flat(0.5), noise=noise
    ),
    "adam": lambda T, noise: dpa.methods.Adam(
        0.1, T, dpa.WithoutReplacement(20), clipping.PerSampleAdaptive(0.1), noise=noise
    ),
}
RUNS = [
    ("erm", "nesterov"),
    ("erm", "heavy ball"),
    ("erm", "sgd"),
    ("erm", "adam"),
    ("softmax", "sgd"),
    ("softmax", "nesterov"),
    ("mlp", "sgd"),
    ("mlp", "adam"),
]


def run(problem, method, iterations, replicates=2, **keywords):
    chosen = METHODS[method](iterations, np.full(iterations, 0.01))
    return dpa.minimize(problem, chosen, rng=3, replicates=replicates, **keywords)


@pytest.mark.parametrize(("kind", "method"), RUNS)
@pytest.mark.parametrize("library", ANY)
def test_runs_are_those_of_numpy(library, kind, method):
    """Same seed, same noise, same batches: whole private runs agree to rounding."""
    host, device = pair(kind, LIBRARIES[library]())
    results = [run(p, method, 5, record=("objective", "accuracy")) for p in (host, device)]
    assert_same([results[1].w], [results[0].w])
    assert isinstance(results[1].w, np.ndarray)
    for name in ("objective", "accuracy"):
        assert_same([results[1].history[name]], [results[0].history[name]])


@pytest.mark.slow
@pytest.mark.parametrize("long", [False, True], ids=["host noise", "device noise"])
@pytest.mark.parametrize("replicates", [1, 3])
@pytest.mark.parametrize(("kind", "method"), RUNS)
def test_the_host_waits_once_an_iteration(kind, method, replicates, long, monkeypatch):
    """Per iteration R d numbers come back; only rows and iterates go to the device."""
    monkeypatch.setattr("dpanalysis.privacy.mechanisms.DRAWN_ON_DEVICE", 1 if long else 10**9)
    monkeypatch.setattr(array_api, "DEVICE_BLOCK_BYTES", 2000)  # several blocks
    xp = Double()
    problem = pair(kind, xp)[1]
    run(problem, method, 1, replicates, record=())  # the norms of the rows, once
    size = replicates * problem.d
    for iterations in (2, 6):
        xp.waits.clear()
        xp.sent.clear()
        run(problem, method, iterations, replicates, record=())
        before = xp.waits[:-iterations]  # the second check of the data: one number per norm
        assert xp.waits[-iterations:] == [size] * iterations
        assert len(before) <= 2 and set(before) <= {1}
        assert sum(xp.sent) <= iterations * (2 * size + replicates * (problem.n + 40) + 10)


@pytest.mark.parametrize("law", sorted(_philox.LAWS))
@pytest.mark.parametrize("library", ANY)
def test_noise_is_the_same_on_every_device(library, law):
    """Bits are equal; logarithm and cosine may differ in the last places."""
    xp = LIBRARIES[library]()
    seeds = np.random.default_rng(0).integers(2**32, size=(2, _philox.SEED_WORDS))
    device = xp.asarray(np.zeros(1)).device
    space = array_namespace(xp.asarray(np.zeros(1)))
    bits = to_host(_philox.random_bits(space, seeds, 1000, device))
    np.testing.assert_array_equal(bits, _philox.random_bits(np, seeds, 1000, "cpu"))
    found = to_host(_philox.LAWS[law](space, seeds, 1001, device))
    np.testing.assert_allclose(found, _philox.LAWS[law](np, seeds, 1001, "cpu"), atol=1e-13)


def test_every_record_costs_one_wait():
    xp = Double()
    problem = pair("mlp", xp)[1]
    run(problem, "sgd", 4, record=())
    xp.waits.clear()
    run(problem, "sgd", 4, record=("objective", "accuracy"), every=2)
    assert len(xp.waits) <= 2 + 4 + 2 * 3  # two waits for the second check of the data


def test_sums_at_an_iterate_on_the_device_stay_there():
    xp = Double()
    for kind in KINDS:
        host, device = pair(kind, xp)
        W = np.random.default_rng(2).standard_normal((2, host.d))
        rule = clipping.Flat(0.4)
        expected = host.sums(W, clipping=rule), host.sums(W[0], clipping=rule)
        device.sums(W, clipping=rule)  # the norms of the rows, once
        places = device.place(W), device.place(W[0])
        xp.waits.clear()
        found = [device.sums(place, clipping=rule) for place in places]
        assert not xp.waits
        for a, b in zip(found, expected):
            assert_same(a, b)
        xp.waits.clear()
        device.sums(W, clipping=rule)
        assert xp.waits == [2 * (host.d + 2)]  # value, gradient and count in one transfer


@pytest.mark.slow
@pytest.mark.parametrize("library", ANY)
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_single_precision_keeps_close_and_keeps_its_bound(library, kind):
    """No gradient of a sample exceeds the clip norm, though products are single precision."""
    xp, n = LIBRARIES[library](), 80
    X, y = draw(dtype=np.float32)
    exact, device = KINDS[kind](X.astype(np.float64), y), KINDS[kind](xp.asarray(X), y)
    random = np.random.default_rng(0)
    w = random.standard_normal(exact.d)
    for rule in RULES[1:4]:
        expected = exact.sums(w, clipping=rule)
        found = device.sums(w, clipping=rule)
        assert found.value == pytest.approx(expected.value, rel=1e-5)
        np.testing.assert_allclose(found.gradient, expected.gradient, atol=1e-5 * n)
        each = device.sums(np.tile(30.0 * w, (n, 1)), [np.array([i]) for i in range(n)], rule)
        norms = np.linalg.norm(each.gradient, axis=1)
        assert 0.9 * rule.clip_norm < norms.max() <= rule.clip_norm


def test_predictions_are_single_precision_and_sums_over_records_double():
    xp = Double()
    X, y = draw(dtype=np.float32)
    for kind in KINDS:
        problem = KINDS[kind](xp.asarray(X), y)
        xp.products.clear()
        problem.sums(np.zeros(problem.d), np.arange(30), clipping.Flat(1.0))
        assert xp.products[0] == (xp.float32, xp.float32)
        assert xp.products[-1] == (xp.float64, xp.float64)
