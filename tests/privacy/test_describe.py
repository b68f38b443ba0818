"""Every event describes its release in one line of plain words; none falls back to its repr."""

import re
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpanalysis import privacy
from dpanalysis.privacy.accounting.selection import Repeats
from dpanalysis.privacy.events import (
    AboveThreshold,
    BestOf,
    BoundedRange,
    Epoch,
    Event,
    Gaussian,
    GaussianBound,
    Laplace,
    Pure,
    Repeated,
    Sampled,
)

positive = st.floats(1e-3, 1e3)
lengths = st.floats(0.0, 1e3)
counts = st.integers(1, 10**6)
rates = st.floats(1e-6, 1.0)
batches = st.builds(lambda m, more: (m, m + more), counts, st.integers(0, 10**6))
noises = st.builds(Laplace, positive, lengths) | st.builds(Gaussian, positive, lengths)
releases = st.lists(noises, min_size=1, max_size=3)
whole = st.sampled_from([privacy.Full(), privacy.Poisson(1.0)])


def of_fixed_size(scheme):
    return st.builds(
        lambda size, events: Sampled(scheme(size[0]), events, n=size[1]),
        batches,
        st.lists(st.builds(Laplace, positive, lengths), min_size=1, max_size=3),
    )


schemes = (
    st.builds(privacy.BallsInBins, counts)
    | st.builds(privacy.Shuffle, counts)
    | st.builds(lambda size: privacy.RandomAllocation(size[1], size[0]), batches)
)
EVENTS = {
    Laplace: st.builds(Laplace, positive, lengths),
    Gaussian: st.builds(Gaussian, positive, lengths),
    Pure: st.builds(Pure, lengths),
    BoundedRange: st.builds(BoundedRange, lengths),
    GaussianBound: st.builds(
        lambda std, moves, offset: GaussianBound(std, moves, [1.0] * len(moves), offset),
        positive,
        st.lists(lengths, min_size=1, max_size=4),
        lengths,
    ),
    AboveThreshold: st.builds(
        AboveThreshold, st.just("gaussian"), positive, positive, lengths, counts
    )
    | st.builds(
        AboveThreshold, st.just("laplace"), positive, positive, lengths, st.none() | counts
    ),
    Sampled: st.builds(Sampled, whole | st.builds(privacy.Poisson, rates), releases)
    | of_fixed_size(privacy.WithoutReplacement)
    | of_fixed_size(privacy.WithReplacement),
    Epoch: st.builds(Epoch, schemes, releases),
    BestOf: st.builds(BestOf, releases, st.builds(Repeats, st.floats(1.0, 100.0))),
}
EVENTS[Repeated] = st.builds(Repeated, st.one_of(*EVENTS.values()), counts)


def kinds(base):
    """Return all classes of events of the package."""
    below = [kind for each in base.__subclasses__() for kind in kinds(each)]
    here = base.__module__.startswith("dpanalysis.privacy.")
    return {base, *below} if here else set(below)


def test_no_kind_of_event_is_left_out():
    assert kinds(Event) == {Event, *EVENTS}
    assert all("describe" in vars(kind) and vars(kind)["describe"] is not Event.describe
               for kind in EVENTS)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kind", EVENTS)
def test_an_event_is_one_line_of_plain_words(kind):
    @given(EVENTS[kind])
    def check(event):
        words = event.describe()
        assert "\n" not in words and not re.search(r"[=_<>\[\]]", words)
        for name in (each.__name__ for each in EVENTS):
            assert f"{name}(" not in words
        # No class name appears, except those that are words of the field.
        named = [n.__name__ for n in EVENTS if n not in (Laplace, Gaussian)]
        assert not re.search("|".join(named), words)

    check()


def test_the_words_are_those_of_the_numbers():
    step = Sampled(privacy.Poisson(0.01), [Gaussian(std=2.6, sensitivity=2.0)])
    told = "Gaussian noise, noise multiplier 1.3, on {} drawn by Poisson sampling with rate 0.01"
    assert step.describe() == told.format("a batch")
    assert Repeated(step, 1000).describe() == told.format("batches") + ", 1,000 times"
    assert Repeated(Repeated(step, 10), 100).describe() == Repeated(step, 1000).describe()
    assert Repeated(step, 1).describe() == step.describe()
    fixed = Sampled(privacy.WithoutReplacement(50), [Laplace(3.0, 1.5), Pure(0.5)], n=2000)
    assert fixed.describe() == (
        "Laplace noise, scale 2 times the sensitivity; and a release with epsilon 0.5 and delta 0; "
        "all on a batch of 50 of the 2,000 records, drawn without replacement"
    )


def test_numbers_that_are_bounds_are_rounded_outwards():
    assert Pure(0.00012341).describe() == "a release with epsilon 0.0001235 and delta 0"
    assert "span at most 0.1235, as" in BoundedRange(0.12341).describe()
    bound = GaussianBound(1.0, (0.3001, 0.1), (0.5, 0.5), 0.12341).describe()
    assert bound.endswith("multiplier 3.332 or more, and a privacy loss of 0.1235 beside it")
    curve = privacy.PrivacyCurve(mu=1.0)
    assert repr(curve) == "PrivacyCurve(mu = 1, advantage at most 0.383)"
    assert curve.advantage() > 0.3829


def test_a_kind_of_event_inherits_no_words():
    @dataclass(frozen=True)
    class Twice(Gaussian):
        def rdp_cost(self, orders):
            return 4.0 * super().rdp_cost(orders)

    @dataclass(frozen=True)
    class Coin(Event):
        def pure_cost(self):
            return 0.25

    @dataclass(frozen=True)
    class Named(Coin):
        def describe(self):
            return "the toss of a coin"

    assert Twice(1.0, 1.0).describe() == "a release of its own kind, named Twice"
    assert Coin().describe() == "a release of its own kind, named Coin, epsilon 0.25"
    assert Repeated(Named(), 3).describe() == "the toss of a coin, 3 times"
