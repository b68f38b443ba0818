"""Sources of noise that a recording follows, and the state that it leaves behind."""

import copy
import hashlib
import itertools
import math
import pickle
import random
import secrets
import subprocess
import sys
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np
import pytest

from dpanalysis import audit
from dpanalysis.audit.coins import _range, extreme_coin, extreme_uniform
from dpanalysis.privacy.mechanisms import laplace, nearly, noisy, smallest


class Release:
    """Creates its source of noise at the first use, and keeps it."""

    def __init__(self, make):
        self.make, self.source = make, None

    def __call__(self, data, rng, size=1):
        if self.source is None:
            self.source = self.make(rng)
        return data + self.noise() * np.ones(size)

    def noise(self):
        draw = getattr(self.source, "laplace", None) or self.source.gauss
        return draw(0.0, 1.0)


KEPT = {
    "default_rng": lambda rng: np.random.default_rng(),
    "PCG64": lambda rng: np.random.Generator(np.random.PCG64()),
    "RandomState": lambda rng: np.random.RandomState(),
    "Random": lambda rng: random.Random(),
    "handed in": lambda rng: rng,
    "child": lambda rng: rng.spawn(1)[0],
    "seed of rng": lambda rng: np.random.default_rng(rng.integers(2**63)),
    "seed of secrets": lambda rng: np.random.default_rng(secrets.randbits(128)),
    "state of rng": lambda rng: np.random.RandomState(rng.integers(2**31)),
    "list of seeds": lambda rng: np.random.default_rng([1, rng.integers(2**31)]),
    "array of seeds": lambda rng: np.random.default_rng(rng.integers(2**31, size=2)),
    "state of an array": lambda rng: np.random.RandomState(rng.integers(2**31, size=(1, 2))[0]),
    "spawned of an array": lambda rng: np.random.default_rng(
        np.random.SeedSequence(rng.integers(2**31, size=2)).spawn(1)[0]
    ),
    "spawned": lambda rng: np.random.default_rng(
        np.random.SeedSequence([7, int(rng.integers(2**31))]).spawn(1)[0]
    ),
    "bytes": lambda rng: random.Random(secrets.token_bytes(16)),
    "text": lambda rng: random.Random(secrets.token_hex(16)),
    "uuid": lambda rng: random.Random(uuid.uuid4().int),
    "float": lambda rng: random.Random(random.random()),
    "words": lambda rng: np.random.RandomState(np.frombuffer(rng.bytes(32), dtype=np.uint32)),
}


@pytest.mark.parametrize("name", KEPT)
def test_noise_of_kept_sources_does_not_repeat(name):
    """Two objects recorded with the same numbers release different noise afterwards."""
    found = []
    for _ in range(2):
        release = Release(KEPT[name])
        audit.record(release, 0.0, 1.0)
        found.append([release.noise() for _ in range(3)])
    assert not set(found[0]) & set(found[1])


def test_a_kept_source_with_a_seed_that_is_written_keeps_its_stream():
    release = Release(lambda rng: np.random.default_rng(20261201))
    audit.record(release, 0.0, 1.0)
    assert release.noise() in np.random.default_rng(20261201).laplace(0.0, 1.0, 10_000)


# Threads


def test_other_threads_draw_from_the_real_sources():
    """Tokens of a server in the same process are not part of a run, and never repeat."""
    tokens, over = [], threading.Event()

    def serve():
        while not over.is_set():
            tokens.append(secrets.token_hex(16))
            tokens.append(secrets.randbelow(1 << 128))
            tokens.append(float(np.random.default_rng().normal()))
            time.sleep(0.001)

    def slow(data, rng, size):
        time.sleep(0.004)
        return data + rng.laplace(0.0, 0.01, size)

    server = threading.Thread(target=serve)
    server.start()
    try:
        for _ in range(2):
            found = audit.record(slow, 0.0, 1.0, claim=1.0)
            assert [finding.kind for finding in found.findings] == ["epsilon"]
    finally:
        over.set()
        server.join()
    assert len(tokens) > 20 and len(set(tokens)) == len(tokens)


def test_threads_of_a_run_are_part_of_it():
    """By an executor, and by a thread that starts another one."""

    def by_executor(data, rng, size):
        with ThreadPoolExecutor(2) as pool:
            return [tuple(pool.map(lambda x: x + np.random.laplace(0.0, 0.01), data))]  # noqa: NPY002

    def by_threads(data, rng, size):
        found = []

        def second():
            found.append(data[0] + np.random.default_rng().laplace(0.0, 0.01))

        def first():
            inner = threading.Thread(target=second)
            inner.start()
            inner.join()

        outer = threading.Thread(target=first)
        outer.start()
        outer.join()
        return found

    for mechanism in (by_executor, by_threads):
        found = audit.record(mechanism, np.zeros(1), np.ones(1), claim=1.0)
        assert [finding.kind for finding in found.findings] == ["epsilon"], str(found)
        assert found.epsilon == pytest.approx(100.0, rel=1e-6)


# Coins


def response(coin):
    """Randomized response, correct for every coin that is 1 with probability Q."""

    def mechanism(data, rng):
        return int(data) ^ int(coin(rng))

    return mechanism


def filled(rng):
    place = np.empty(1)
    rng.random(out=place)
    return place[0]


Q = 1.0 / (1.0 + np.exp(4.0))
TIMES = round(1.0 / Q)
USUAL = [*[1e-20] * 25, 1.0, *[1e-20] * 74]
COINS = {
    "child": lambda rng: np.random.default_rng(rng.integers(2**63)).random() < Q,
    "child of list": lambda rng: np.random.default_rng([rng.integers(2**31), 1]).random() < Q,
    "child's noise": lambda rng: np.random.default_rng(rng.integers(9)).laplace() < np.log(2 * Q),
    "old state": lambda rng: np.random.RandomState(rng.integers(2**31)).random() < Q,
    "Random": lambda rng: random.Random(int(rng.integers(2**63))).random() < Q,
    "randbelow": lambda rng: secrets.randbelow(1000) >= 1000 * (1.0 - Q),
    "secrets.choice": lambda rng: secrets.choice([False] * TIMES + [True]),
    "randbits": lambda rng: secrets.randbits(32) < Q * 2**32,
    "Warner": lambda rng: secrets.randbelow(20) == 0 and secrets.randbelow(2),
    "randrange": lambda rng: random.randrange(10**6) < 10**6 * Q,
    "randint": lambda rng: random.randint(1, 1000) > 1000 * (1.0 - Q),
    "getrandbits": lambda rng: random.getrandbits(20) < 2**20 * Q,
    "random.choice": lambda rng: random.choice([False] * TIMES + [True]),
    "choices": lambda rng: random.choices([0, 1, 0], [0.5 - Q / 2, Q, 0.5 - Q / 2])[0],
    "choices, summed": lambda rng: random.choices([0, 1], cum_weights=[1.0 - Q, 1.0])[0],
    "choices, usual": lambda rng: (  # which equal chances would make rare
        (random.choices(range(100), USUAL)[0] == 25) & (secrets.randbelow(TIMES) == 0)
    ),
    "choice": lambda rng: rng.choice(1000) < 1000 * Q,
    "choice of list": lambda rng: rng.choice([0] * TIMES + [1] + [0] * 3),
    "choice of objects": lambda rng: rng.choice([None, "yes"], p=[1.0 - Q, Q]) is not None,
    "in an array": lambda rng: filled(rng) < Q,
    "all integers": lambda rng: rng.integers(2**63) < Q * 2**63,
    "residue": lambda rng: rng.integers(1000) % TIMES == 0,
    "binomial": lambda rng: rng.binomial(1, Q),
    "multinomial": lambda rng: rng.multinomial(1, [1.0 - Q, Q])[1],
    "hypergeometric": lambda rng: rng.hypergeometric(1, TIMES, 1),
    "in the middle": lambda rng: abs(rng.random() - 0.5) < Q / 2.0,
    "near 0": lambda rng: rng.exponential() < Q,
    "uniform": lambda rng: random.uniform(0.0, 1.0) < Q,
    "beta": lambda rng: random.betavariate(1.0, 1.0) < Q,
    "poisson": lambda rng: rng.poisson(Q) > 0,
    "permutation": lambda rng: rng.permutation(TIMES)[0] == 1,
}


@pytest.mark.parametrize("name", COINS)
def test_randomized_response_by_any_coin_is_no_finding(name):
    for seed in range(3):
        mechanism = response(COINS[name])
        found = audit.record(mechanism, 0, 1, claim=4.5, rng=seed, vectorized=False)
        assert found.passed and found.epsilon is None and found.not_followed, str(found)


def test_randomized_response_by_pytorch_is_no_finding():
    torch = pytest.importorskip("torch")

    def generator(rng):
        return torch.Generator().manual_seed(int(rng.integers(2**32)))

    coins = [
        lambda rng: torch.bernoulli(torch.tensor(Q)),
        lambda rng: torch.bernoulli(torch.tensor(Q), generator=generator(rng)),
        lambda rng: torch.multinomial(torch.tensor([1.0 - Q, Q]), 1),
        lambda rng: torch.randint(1000, ()) >= 1000 * (1.0 - Q),
        lambda rng: torch.rand((), generator=generator(rng)) < Q,
    ]
    for coin in coins:
        found = audit.record(response(coin), 0, 1, claim=4.5, vectorized=False)
        assert found.passed and found.not_followed, str(found)

    def seeded(data, rng):
        noise = torch.rand((), generator=torch.Generator().manual_seed(7))
        return data + float(noise)

    found = audit.record(seeded, 0, 1, vectorized=False)
    assert [finding.kind for finding in found.findings] == ["seed"]


def test_coins_hide_no_exact_number():
    """An exact number is found beside a child generator, and a coin whose outcomes are all seen."""
    for name in ("child", "randbelow", "multinomial", "choice of list", "residue"):

        def beside(data, rng, coin=COINS[name]):
            return int(coin(rng)), 2 * data + 1

        found = audit.record(beside, 0, 1, vectorized=False)
        assert [finding.kind for finding in found.findings] == ["exact"], name

    def shuffled(data, rng):
        return rng.permutation(TIMES)[0] * 0 + data

    found = audit.record(shuffled, 0, 1, vectorized=False)
    assert found.passed and "rare outcomes of permutation" in str(found)


def test_loops_that_wait_for_a_usual_number_end():
    """Draws are extreme only for some time, since extreme draws never end such loops."""

    def by_coins(data, rng):
        count = 0
        while secrets.randbelow(64) == 0 or random.randrange(64) == 0:
            count += 1
        return data + count

    def by_noise(data, rng):
        while True:
            noise = rng.normal(0.0, 1.0, 20)
            if np.all(abs(noise) < 4.0):
                return data + noise[0] > 0.5

    def forever(data, rng):
        if rng.laplace() > 50.0:
            while True:
                rng.random()
        return data

    for mechanism in (by_coins, by_noise):
        found = audit.record(mechanism, 0, 7, vectorized=False)
        assert found.passed and found.not_followed, str(found)
    start = time.monotonic()
    found = audit.record(forever, 0, 7, vectorized=False, seconds=0.5)
    assert time.monotonic() - start < 3.0 and "the time was over" in str(found)


# Operations on generators, and draws that are not recorded


def reset(data, rng):
    state = rng.bit_generator.state
    first = data + rng.laplace(0.0, 4.0)
    rng.bit_generator.state = state
    return first, 3.0 * data + rng.laplace(0.0, 4.0)


def reset_numpy(data, rng):
    state = np.random.get_state()  # noqa: NPY002
    first = data + np.random.laplace(0.0, 4.0)  # noqa: NPY002
    np.random.set_state(state)  # noqa: NPY002
    return first, 3.0 * data + np.random.laplace(0.0, 4.0)  # noqa: NPY002


def reset_an_old_one(data, rng):
    source = np.random.RandomState()
    state = source.get_state()
    first = data + source.laplace(0.0, 4.0)
    source.set_state(state)
    return first, 3.0 * data + source.laplace(0.0, 4.0)


def reset_random(data, rng):
    state = random.getstate()
    first = data + random.gauss(0.0, 4.0)
    random.setstate(state)
    return first, 3.0 * data + random.gauss(0.0, 4.0)


def reset_torch(data, rng):
    torch = pytest.importorskip("torch")
    state = torch.get_rng_state()
    first = float(data + torch.randn(()))
    torch.set_rng_state(state)
    return first, float(3.0 * data + torch.randn(()))


@pytest.mark.parametrize(
    "mechanism", [reset, reset_numpy, reset_an_old_one, reset_random, reset_torch]
)
def test_setting_a_state_is_reported(mechanism):
    found = audit.record(mechanism, 0.0, 1.0, vectorized=False)
    assert "the state of a generator was set" in str(found)


@pytest.mark.parametrize(
    "clone", [copy.copy, copy.deepcopy, lambda g: pickle.loads(pickle.dumps(g))]
)
def test_copies_of_a_generator_are_reported(clone):
    """They are recorded: exact numbers beside them are found, and their coins are no finding."""

    def noisy(data, rng):
        return data + clone(rng).laplace(), 3.0 * data + clone(rng).laplace()

    found = audit.record(noisy, 0.0, 1.0, vectorized=False)
    assert "a generator was copied" in str(found)
    found = audit.record(lambda data, rng: data ^ (clone(rng).random() < Q), 0, 1, vectorized=False)
    assert found.passed, str(found)
    kept = []
    audit.record(lambda data, rng: kept.append(clone(rng)) or data, 0, 1, vectorized=False)
    other = list(kept)
    kept.clear()
    audit.record(lambda data, rng: kept.append(clone(rng)) or data, 0, 1, vectorized=False)
    assert not {g.random() for g in other} & {g.random() for g in kept}


def test_draws_of_compiled_code_are_reported():
    draw = numba.njit(lambda generator: generator.laplace(0.0, 0.001))

    def raw(data, rng):
        return data + 0.001 * rng.bit_generator.random_raw() / 2.0**64

    def compiled(data, rng):
        return data + draw(rng)

    def compiled_coin(data, rng):
        return data ^ (draw(rng) > 0.001 * np.log(1.0 / Q))

    def at_times(data, rng):  # some runs show that others are not known
        return compiled_coin(data, rng) if rng.laplace() > 0.0 else data

    for mechanism in (raw, compiled, compiled_coin, at_times):
        found = audit.record(mechanism, 0, 1, claim=1.0, vectorized=False)
        assert found.passed and "compiled code drew from a generator" in str(found), str(found)
    plain = audit.record(lambda data, rng: data + rng.laplace(), 0, 1, vectorized=False)
    assert not plain.not_followed, str(plain)


def test_seeds_from_before_the_recording_are_reported():
    class Seeded:
        def __init__(self, seed, make=np.random.default_rng):
            self.rng = make(seed)

        def __call__(self, data, rng):
            draw = getattr(self.rng, "laplace", None) or self.rng.gauss
            return data + draw(0.0, 1.0)

    local = np.random.default_rng(43)
    for mechanism, text in (
        (Seeded(42), "rng was seeded with 42"),
        (Seeded(0, np.random.RandomState), "rng was seeded with 0"),
        (Seeded(2026, random.Random), "rng was seeded with 2026"),
        (lambda data, rng: data + local.laplace(), "local was seeded with 43"),
    ):
        found = audit.record(mechanism, 0.0, 1.0, vectorized=False)
        assert found.passed and text in str(found)
    for make in (np.random.default_rng, np.random.RandomState, random.Random):
        assert "seeded" not in str(audit.record(Seeded(None, make), 0.0, 1.0, vectorized=False))
    unused = Seeded(42)
    unused.source = np.random.default_rng()
    unused.rng, unused.source = unused.source, unused.rng
    assert "seeded" not in str(audit.record(unused, 0.0, 1.0, vectorized=False))


class Histogram:
    """Has a source of its own from before the recording."""

    shared = np.random.default_rng()

    def __init__(self, scale):
        self.scale, self.rng = scale, np.random.default_rng()

    def release(self, data):
        return data + self.rng.laplace(0.0, self.scale)


LOUD, QUIET = Histogram(1.0), Histogram(0.5)


def test_sources_of_objects_that_a_wrapper_calls_are_recorded():
    """An object with its own source has no argument for one, so that it is wrapped."""

    class Closed:
        __slots__ = ()

        def __getattr__(self, name):
            raise RuntimeError(name)

    sources, inner, method, closed = (LOUD.rng, QUIET.rng), QUIET, LOUD.release, Closed()
    for mechanism, epsilon in (
        (lambda data, rng: LOUD.release(data), 1.0),
        (lambda data, rng: inner.release(data), 2.0),
        (lambda data, rng: method(data), 1.0),
        (lambda data, rng: Histogram.release(LOUD, data), 1.0),
        (lambda data, rng: (LOUD.release(data), closed)[0], 1.0),
    ):
        found = audit.record(mechanism, 0.0, 1.0, claim=1.0, vectorized=False)
        assert found.epsilon == pytest.approx(epsilon) and not found.not_followed, str(found)
        assert found.passed == (epsilon == 1.0)
    assert (LOUD.rng, QUIET.rng) == sources


def test_a_variable_without_a_value_does_not_end_a_recording():
    def mechanism(x, rng):
        return later if x > 1.0 else x + rng.laplace()

    assert audit.record(mechanism, 0.0, 1.0, claim=1.0, vectorized=False).passed
    later = 0.0


def test_scipy_and_all_of_random_are_recorded():
    stats = pytest.importorskip("scipy.stats")

    def by_scipy(data, rng):
        return data + stats.norm.rvs(scale=0.01)

    def seeded(data, rng):
        np.random.seed(0)  # noqa: NPY002
        return data + stats.laplace.rvs()

    def seeded_scipy(data, rng):
        return data + stats.laplace.rvs(random_state=0)

    def seeded_random(data, rng):
        random.seed(0)
        return data + random.triangular(-1.0, 1.0) - random.gammavariate(1.0, 1.0)

    found = audit.record(by_scipy, 0.0, 1.0, claim=(1.0, 1e-6), vectorized=False)
    assert [finding.kind for finding in found.findings] == ["epsilon"], str(found)
    for mechanism in (seeded, seeded_scipy, seeded_random):
        found = audit.record(mechanism, 0.0, 1.0, vectorized=False)
        assert [finding.kind for finding in found.findings] == ["seed"], str(found)
    found = audit.record(
        lambda data, rng: data + random.betavariate(2.0, 3.0), 0.0, 1.0, vectorized=False
    )
    assert found.passed and "draws of betavariate noise" in str(found), str(found)


def test_the_default_source_keeps_its_other_methods():
    """scikit-learn's check_random_state(None) returns this object."""
    states = []

    def release(data, rng):
        states.append(np.random.mtrand._rand.get_state()[0])
        return data + rng.laplace()

    assert audit.record(release, 0.0, 1.0, vectorized=False).passed and set(states) == {"MT19937"}


def test_a_seed_that_one_run_leaves_to_the_others_is_a_note():
    torch = pytest.importorskip("torch")
    runs = []

    def release(data, rng):
        noisy = data + torch.randn(())
        if not runs:
            torch.manual_seed(3)
        runs.append(noisy)
        return noisy

    with torch.random.fork_rng(devices=[]):
        found = audit.record(release, 0.0, 1.0, vectorized=False)
    assert found.passed and "PyTorch's default generator was seeded with 3" in str(found)


@pytest.mark.parametrize("library", ["numpy", "random", "torch"])
def test_a_coin_that_falls_the_same_in_every_run_hides_no_epsilon(library):
    torch = pytest.importorskip("torch") if library == "torch" else None

    def release(data, rng):
        if library == "numpy":
            np.random.default_rng(7).integers(2)
        elif library == "random":
            random.Random(7).randrange(2)
        else:
            torch.bernoulli(torch.tensor(0.5), generator=torch.Generator().manual_seed(7))
        return data + rng.laplace(0.0, 2.0)

    found = audit.record(release, 0.0, 1.0, vectorized=False)
    assert found.epsilon == pytest.approx(0.5, rel=1e-9)


RARE = 1e-5
CHILDREN = {
    "default_rng": lambda rng: np.random.default_rng(rng.integers(2**63)).random(),
    "RandomState": lambda rng: np.random.RandomState(rng.integers(2**31)).random_sample(),
    "Random": lambda rng: random.Random(int(rng.integers(2**63))).random(),
    "Random's noise": lambda rng: abs(random.Random(int(rng.integers(2**63))).gauss()),
    "our laws": lambda rng: abs(laplace(np.random.default_rng(rng.integers(2**63)), 1.0)),
    "bit generator": lambda rng: np.random.RandomState(
        np.random.PCG64(rng.integers(2**63))
    ).random_sample(),
}


def by_torch(rng):
    torch = pytest.importorskip("torch")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(rng.integers(2**62)))
        return torch.rand(())


def chosen(replace):
    def multinomial(rng):
        torch = pytest.importorskip("torch")
        weights = torch.tensor([1.0 - RARE, RARE])
        return 1.0 - torch.multinomial(weights, 1, *replace)[0]

    return multinomial


CHILDREN |= {"torch": by_torch, "multinomial": chosen(()), "with replacement": chosen((True,))}


@pytest.mark.parametrize("name", CHILDREN)
def test_rare_outcomes_of_children_are_tried(name):
    """They are too rare to occur by chance, and an output that they decide is noisy."""
    found = audit.record(response(lambda rng: CHILDREN[name](rng) < RARE), 0, 1, vectorized=False)
    assert found.passed and "other shapes" not in str(found), str(found)


def test_coins_that_decide_how_many_are_tossed_are_reported():
    def nested(data, rng):
        count = secrets.randbelow(3) if secrets.randbelow(2) else 0
        return count, 2 * data + 1

    found = audit.record(nested, 0, 1, vectorized=False)
    assert found.passed and "coins decide how many others are tossed" in str(found)


def test_a_choice_among_objects_is_said_to_have_rare_outcomes():
    names = np.array([None] * 10**5 + ["yes"])

    def mechanism(data, rng):
        return int(data) ^ (rng.choice(names) is not None)

    found = audit.record(mechanism, 0, 1, vectorized=False)
    assert found.passed and "rare outcomes of choice" in str(found)


@pytest.mark.parametrize("name", KEPT)
def test_what_is_kept_can_be_copied(name):
    release = Release(KEPT[name])
    audit.record(release, 0.0, 1.0)
    assert copy.deepcopy(release).noise() == copy.deepcopy(release).noise() == release.noise()


CONSTANT = {
    "default_rng": lambda: np.random.default_rng(7).laplace(),
    "RandomState": lambda: np.random.RandomState(7).laplace(),
    "Random": lambda: random.Random(7).gauss(),
    "our laws": lambda: laplace(np.random.default_rng(7), 1.0),
    # Their first seeds are from the operating system, and have no effect.
    "jumped": lambda: np.random.Generator(np.random.PCG64(7).jumped()).laplace(),
    "state": lambda: np.random.Generator(with_state(np.random.PCG64())).laplace(),
    "bit generator": lambda: np.random.RandomState(np.random.PCG64(7)).laplace(),
    "RandomState.seed": lambda: seeded_later(np.random.RandomState()).laplace(),
    "torch": lambda: by_default_generator(7),
}


def with_state(bit_generator):
    bit_generator.state = np.random.PCG64(7).state
    return bit_generator


def seeded_later(source):
    source.seed(7)
    return source


def by_default_generator(seed):
    torch = pytest.importorskip("torch")
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return float(torch.randn(()))


@pytest.mark.parametrize("name", CONSTANT)
def test_noise_of_a_constant_seed_stays_as_it_is(name):
    """Extreme runs must not change it, or it would look like noise."""
    found = audit.record(lambda data, rng: data + CONSTANT[name](), 0.0, 1.0, vectorized=False)
    assert [finding.kind for finding in found.findings] == ["seed"], str(found)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_extreme_uniform_numbers_are_those_of_a_source(kind):
    drawn = extreme_uniform(np.random.default_rng(0), np.full(1000, 0.3, kind)).astype(kind)
    assert (drawn > 0.0).all() and (drawn < 1.0).all()
    assert {kind(0.5), kind(0.3), drawn.min(), drawn.max()} == set(drawn.tolist())
    assert drawn.min() == 1.0 - drawn.max() == np.finfo(kind).epsneg


@pytest.mark.parametrize(
    ("name", "arguments", "options", "ends"),
    [
        ("integers", (2, 7), {}, {2, 6}),
        ("integers", (7,), {}, {0, 6}),
        ("integers", (2,), {"high": 7, "endpoint": True}, {2, 7}),
        ("randint", (2, 7), {}, {2, 6}),
        ("random_integers", (2, 7), {}, {2, 7}),
        ("random_integers", (7,), {}, {1, 7}),
    ],
)
def test_extreme_integers_are_those_of_a_source(name, arguments, options, ends):
    drawn = extreme_coin(np.random.default_rng(1), name, np.full(1000, 3), arguments, options)
    assert set(drawn.tolist()) == {3} | ends


TORCH = {
    "uniform_": (lambda t: t.empty(1).uniform_(1.0, 3.0), "uniform", 2.0),
    "uniform_ to": (lambda t: t.empty(1).uniform_(to=3.0), "uniform", 3.0),
    "exponential_": (lambda t: t.empty(1).exponential_(0.5), "exponential", 2.0),
    "normal_": (lambda t: t.empty(1).normal_(1.0, 2.0), "normal", 2.0),
    "normal": (lambda t: t.normal(1.0, 2.0, (1,)), "normal", 2.0),
    "normal of tensors": (lambda t: t.normal(t.tensor([1.0]), t.tensor([2.0])), "normal", 2.0),
    "cauchy_": (lambda t: t.empty(1).cauchy_(0.0, 2.0), "cauchy", 2.0),
    "Normal": (lambda t: t.distributions.Normal(1.0, 2.0).rsample((1,)), "normal", 2.0),
    "Laplace": (lambda t: t.distributions.Laplace(1.0, 2.0).sample((1,)), "laplace", 2.0),
}


@pytest.mark.parametrize("name", TORCH)
def test_noise_of_pytorch_has_its_law_and_scale(name):
    torch = pytest.importorskip("torch")
    draw, law, scale = TORCH[name]
    found = audit.record(lambda data, rng: draw(torch) + data, 0.0, 1.0, vectorized=False)
    (quantity,) = found.quantities
    assert found.passed and (quantity.law, quantity.scale) == (law, scale)
    assert quantity.shift == pytest.approx(1.0, rel=1e-6)


OF_SCALE_2 = {
    "uniform": lambda rng: rng.uniform(1.0, 3.0),
    "uniform by name": lambda rng: rng.uniform(high=3.0, low=1.0),
    "random.uniform": lambda rng: random.uniform(1.0, 3.0),
    "exponential": lambda rng: rng.exponential(2.0),
    "expovariate": lambda rng: random.expovariate(0.5),
    "logistic": lambda rng: rng.logistic(1.0, 2.0),
    "gumbel": lambda rng: rng.gumbel(scale=2.0),
}


@pytest.mark.parametrize("name", OF_SCALE_2)
def test_noise_of_numpy_and_of_random_has_its_scale(name):
    found = audit.record(lambda x, rng: x + OF_SCALE_2[name](rng), 0.0, 1.0, vectorized=False)
    (quantity,) = found.quantities
    assert found.passed and quantity.scale == 2.0
    assert quantity.shift == pytest.approx(1.0, rel=1e-9)


LAZY = """
import sys
from dpanalysis import audit
assert "torch" not in sys.modules
def coin(data, rng):
    import torch
    torch.manual_seed(int(rng.integers(2**62)))
    return int(data) ^ int(torch.rand(()) < 1e-5)
def noisy(data, rng):
    import torch
    return data + torch.distributions.Laplace(0.0, 2.0).sample((1,))
print(audit.record({name}, 0, 1, vectorized=False))
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["coin", "noisy"])
def test_modules_imported_by_the_mechanism_are_recorded(name):
    pytest.importorskip("torch")
    command = [sys.executable, "-c", LAZY.format(name=name)]
    shown = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    assert "nothing found" in shown and ("epsilon >= 0.5 " in shown) == (name == "noisy"), shown


# Several coins together -----------------------------------------------------------------------


def two_laws_on_a_line(data, rng):
    return data ^ (int(rng.random() < 2.0 / (1.0 + math.exp(5.0))) & int(rng.integers(2)))


def bits_of_a_number(data, rng):
    u = rng.integers(0, 2, size=32) @ 2.0 ** -np.arange(1, 33)
    return data ^ int(u < 1.0 / (1.0 + math.exp(5.0)))


def bits_of_the_system(data, rng):
    return data ^ int(all(secrets.randbits(1) for _ in range(8)))


def a_hashed_key(data, rng):
    return data ^ int(hashlib.sha256(secrets.token_bytes(16)).digest()[0] < 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    "mechanism", [two_laws_on_a_line, bits_of_a_number, bits_of_the_system, a_hashed_key]
)
def test_functions_of_several_coins_are_no_constants(mechanism):
    for seed in range(10):
        found = audit.record(mechanism, 0, 1, claim=5.0, rng=seed, vectorized=False)
        assert found.passed, str(found)


@pytest.mark.parametrize("coin", [lambda rng: rng.integers(2), lambda rng: secrets.token_bytes(4)])
def test_a_bare_number_beside_coins_is_found(coin):
    found = audit.record(lambda data, rng: [data, coin(rng)], 0, 1, claim=5.0, vectorized=False)
    assert [finding.kind for finding in found.findings] == ["exact"], str(found)


def test_files_of_one_name_draw_different_noise(tmp_path):
    lines = []
    for folder in ("first", "second"):
        path = tmp_path / folder / "noise.py"
        path.parent.mkdir()
        path.write_text("def noisy(x, rng):\n    return x + rng.laplace(0.0, 2.0)\n")
        space = {}
        exec(compile(path.read_text(), str(path), "exec"), space)
        lines.append(space["noisy"])

    def both(data, rng):
        return [noisy(x, rng) for noisy, x in zip(lines, data, strict=True)]

    one, other = np.array([0.0, 0.0]), np.array([1.0, -1.0])
    found = audit.record(both, one, other, claim=1.0, vectorized=False)
    assert found.passed and found.epsilon == pytest.approx(1.0), str(found)


def test_default_sources_with_a_seed_from_before_are_named():
    before = np.random.get_state(), random.getstate()  # noqa: NPY002
    try:
        np.random.seed(5)  # noqa: NPY002
        random.seed(6)
        for draw, said in (
            (lambda: np.random.laplace(), "NumPy's global source was seeded with 5"),  # noqa: NPY002
            (lambda: random.gauss(0.0, 1.0), "the module random was seeded with 6"),
        ):
            found = audit.record(lambda x, rng, draw=draw: x + draw(), 0.0, 1.0, vectorized=False)
            assert said in str(found)
        found = audit.record(lambda x, rng: x + rng.laplace(), 0.0, 1.0, vectorized=False)
        assert not found.not_followed
    finally:
        np.random.set_state(before[0])  # noqa: NPY002
        random.setstate(before[1])


def test_a_seed_of_pytorch_from_before_is_named_unless_the_system_chose_it():
    torch = pytest.importorskip("torch")

    def noisy(data, rng):
        return data + float(torch.randn(()))

    said = []
    with torch.random.fork_rng(devices=[]):
        for seeded in (lambda: torch.manual_seed(7), torch.seed):
            seeded()
            said.append(str(audit.record(noisy, 0.0, 1.0, vectorized=False)))
    assert "PyTorch's default generator was seeded with 7" in said[0]
    assert "seeded" not in said[1]


@pytest.mark.parametrize("scale", [0.0, 1.0])
@pytest.mark.parametrize(
    "release",
    [
        lambda data, rng, scale: noisy(rng, [float(data)], "laplace", scale),
        lambda data, rng, scale: data + nearly(rng, "gaussian", scale, 2)[0],
        lambda data, rng, scale: smallest(rng, [0.5, 1.0 - data], [0.0, 0.0], "gumbel", scale),
    ],
)
def test_our_mechanisms_are_exact_at_scale_0_alone(release, scale):
    found = audit.record(lambda data, rng: release(data, rng, scale), 0.0, 1.0, vectorized=False)
    assert [finding.kind for finding in found.findings] == ["exact"] * (scale == 0.0), str(found)


# Runs that grow with their noise -----------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_a_run_whose_size_is_noisy_stays_small(seed):
    sizes = []

    def synthetic(data, rng):
        count = len(data) + rng.laplace()
        sizes.append(max(1, int(count)))
        rows = rng.normal(data.sum() + rng.laplace(), 1.0, min(sizes[-1], 10_000_000))
        return {"count": count, "mean": rows.mean()}

    found = audit.record(synthetic, np.ones(50), np.ones(49), claim=2.0, rng=seed, vectorized=False)
    assert found.passed and max(sizes) < 1e8
    assert "times its usual size, with which runs grow" in str(found)


def test_a_long_release_is_none_that_grows():
    """Else its noise would not be made large enough to show what depends on it."""

    def rounded(data, rng):
        return np.round(data + rng.laplace(size=500))

    found = audit.record(rounded, 0.0, 1.0, vectorized=False)
    assert found.passed and "grow" not in str(found), str(found)


@pytest.mark.parametrize("total", [100.0, 99.37])
def test_noise_that_is_taken_off_again_is_found_where_it_rounds(total):
    def removed(data, rng):
        noise = rng.laplace()
        return data + noise - noise

    for seed in range(5):
        found = audit.record(removed, total, total + 1.0, rng=seed, vectorized=False)
        assert [finding.kind for finding in found.findings] == ["exact"], str(found)


def test_noise_that_is_taken_off_again_is_found_beside_less_noise():
    """What rounds is the larger noise: in all runs, in some, or where it is extreme alone."""

    def removed(data, rng):
        noise = rng.laplace(0.0, 1e6)
        return data + noise - noise, data + rng.laplace()

    for seed, start in enumerate([99.37] * 40 + [99.3125]):
        found = audit.record(removed, start, start + 1.0, rng=seed, vectorized=False)
        assert [finding.kind for finding in found.findings] == ["exact"], str(found)


def test_keys_that_only_some_records_have_are_a_note_at_a_positive_delta_alone():
    def stable(data, rng):
        found = {key: count + rng.laplace() for key, count in data.items()}
        return {key: value for key, value in found.items() if value > 12.0}

    one, other = {"a": 40, "b": 30, "c": 11}, {"a": 40, "b": 30}
    found = audit.record(stable, one, other, claim=(1.0, 1e-5), vectorized=False)
    assert found.passed and "what is drawn depends on the data" in str(found)
    # At delta = 0 a key that is shown in some runs on one input alone is no private answer.
    found = audit.record(stable, {**one, "c": 12}, other, claim=1.0, vectorized=False)
    assert "draws" in [finding.kind for finding in found.findings]


@pytest.mark.slow
def test_a_rare_flip_beside_large_noise_is_no_rounding():
    def mechanism(data, rng):
        flipped = rng.uniform(size=8) < 1.0 / (1.0 + math.exp(6.0))
        return np.concatenate([data ^ flipped, rng.laplace(0.0, 1e7, 8)])

    one, other = np.zeros(8, dtype=bool), np.eye(8, dtype=bool)[0]
    for seed in range(5):
        found = audit.record(mechanism, one, other, claim=6.0, rng=seed, vectorized=False)
        assert found.passed, str(found)


@pytest.mark.slow
def test_a_rare_flip_beside_a_noisy_size_stays_rare():
    def mechanism(data, rng):
        rows = rng.normal(size=max(1, int(50 + rng.laplace(0.0, 5.0))))
        return data ^ int(rng.uniform() < 1.0 / (1.0 + math.exp(8.0))), rows.mean()

    for seed in range(6):
        found = audit.record(mechanism, 0, 1, claim=8.0, rng=seed, vectorized=False)
        assert found.passed, str(found)


@pytest.mark.parametrize(
    "word",
    [
        lambda: str(uuid.uuid4()),
        lambda: secrets.token_hex(16),
        lambda: int(np.random.default_rng(list(secrets.token_bytes(16))).integers(9)),
    ],
)
def test_a_bare_number_beside_a_long_word_is_found(word):
    found = audit.record(lambda x, rng: [x, word()], 0.0, 1.0, claim=1.0, vectorized=False)
    assert [finding.kind for finding in found.findings] == ["exact"], str(found)


def test_a_record_used_only_in_extreme_runs_counts_as_looked_at():
    def mechanism(data, rng):
        return (data if rng.laplace() > 9.0 else 0.0) + rng.laplace()

    assert audit.record(mechanism, 0.0, 1.0, vectorized=False).looked


def test_runs_with_larger_noise_keep_the_time_limit():
    calls = []

    def slow(data, rng):
        calls.append(time.sleep(0.05))
        return data

    audit.record(slow, 0.0, 1.0, seconds=0.3, vectorized=False)
    assert len(calls) <= 20


def test_threads_that_draw_at_the_same_time_are_both_recorded():
    """One draws while the other is inside of NumPy's sampler, where it reads the scale."""

    def mechanism(data, rng, size):
        inside, drawn, found = threading.Event(), threading.Event(), []

        class Scale:
            def __array__(self, dtype=None, copy=None):
                return np.array(1.0)

            def __float__(self):
                inside.set()
                drawn.wait(5.0)
                return 1.0

        def second():
            inside.wait(5.0)
            found.append(np.random.default_rng().laplace(0.0, 0.01))
            drawn.set()

        other = threading.Thread(target=second)
        other.start()
        first = rng.laplace(0.0, Scale())
        other.join()
        return [data[0] + found[0], first]

    found = audit.record(mechanism, np.zeros(1), np.ones(1), claim=1.0)
    assert [finding.kind for finding in found.findings] == ["epsilon"], str(found)


@pytest.mark.parametrize("name", ["integers", "random_integers"])
def test_a_closed_range_is_known_however_its_end_is_given(name):
    if name == "integers":
        assert _range(name, (2, 5), {}) == (2, 4) and _range(name, (5,), {}) == (0, 4)
        assert _range(name, (2, 5, None, np.int64, True), {}) == (2, 5)
        assert _range(name, (2, 5), {"endpoint": True}) == (2, 5)
    else:
        assert _range(name, (2, 5), {}) == (2, 5) and _range(name, (5,), {}) == (1, 5)


RISING = {
    "Generator": lambda k: np.random.default_rng(k).laplace(),
    "RandomState": lambda k: np.random.RandomState(k).laplace(),
    "random": lambda k: random.Random(k).gauss(0.0, 1.0),
    "clock": lambda k: np.random.default_rng(time.time_ns()).laplace(),
}


@pytest.mark.parametrize("name", RISING)
def test_noise_seeded_by_a_count_of_calls_or_by_the_time_is_found(name):
    """The first call of every process has the same noise; outputs look as they should."""
    calls = itertools.count()

    def counted(data, rng):
        return data + RISING[name](next(calls))

    def system(data, rng):  # its seeds are not recorded
        return data + np.random.default_rng(np.random.SeedSequence().entropy).laplace()

    def beside(data, rng):  # a count that separates streams of one secret seed
        return data + np.random.default_rng([next(calls), rng.integers(2**62)]).laplace()

    def fixed(data, rng):  # a seed that is the same in every run does not rise
        return data + np.random.default_rng(5).laplace() + next(calls)

    found = audit.record(counted, 0.0, 1.0, claim=1.0, vectorized=False)
    assert [finding.kind for finding in found.findings] == ["seed"], str(found)
    with pytest.raises(AssertionError, match="a source is seeded with numbers that rise"):
        audit.assert_private(counted, 1.0, neighbours=[(0.0, 1.0)], vectorized=False, samples=2000)
    for other in (system, beside, fixed):
        assert audit.record(other, 0.0, 1.0, vectorized=False).passed
