"""An event that dominates another costs at least as much, in every notion of privacy."""

import dataclasses
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpanalysis.errors import PrivacyBudgetExceeded
from dpanalysis.privacy import Budget, Filter, Shuffle, epsilon
from dpanalysis.privacy.accounting.sampling import (
    Full,
    Poisson,
    WithoutReplacement,
    WithReplacement,
)
from dpanalysis.privacy.events import (
    AboveThreshold,
    BoundedRange,
    Event,
    Gaussian,
    GaussianBound,
    Laplace,
    Pure,
    Repeated,
    Sampled,
)

ORDERS = np.array([1.001, 1.5, 2.0, 3.7, 32.0, np.inf])
# Rounding of the accountants: the margin of AboveThreshold, the grid of loss distributions.
CURVES, GRIDS = 1e-5, 2e-3

sizes = st.floats(0.05, 8.0)
shares = st.floats(0.3, 1.0)


def scaled(kind):
    """Noise of scale s at sensitivity 1, and the same kind with a smaller sensitivity/scale."""
    return st.builds(
        lambda s, share, unit: (kind(s, 1.0), kind(unit * s, unit * share)), sizes, shares, sizes
    )


def lengths(kind):
    return st.builds(lambda e, share: (kind(e), kind(share * e)), st.floats(0.01, 3.0), shares)


@st.composite
def sparse(draw):
    noise = draw(st.sampled_from(["laplace", "gaussian"]))
    first, second = draw(sizes), draw(sizes)
    most = draw(st.integers(1, 30) | (st.none() if noise == "laplace" else st.nothing()))
    fewer = draw(st.integers(1, most or 40) | (st.none() if most is None else st.nothing()))
    unit, shared = draw(sizes), draw(st.booleans())
    named = AboveThreshold(noise, first, second, 1.0, most, shared)
    by = [unit / draw(shares) for _ in range(2)]
    return named, AboveThreshold(noise, first * by[0], second * by[1], unit, fewer, shared)


singles = scaled(Laplace) | scaled(Gaussian) | lengths(Pure) | lengths(BoundedRange) | sparse()


@st.composite
def repeated(draw):
    named, asked = draw(singles)
    most = draw(st.integers(1, 6))
    count = draw(st.integers(1, most))
    return Repeated(named, most), asked if count == 1 else Repeated(asked, count)


@st.composite
def sampled(draw):
    pairs = draw(st.lists(singles | repeated(), min_size=1, max_size=2))
    n = draw(st.sampled_from([20, 1000]))
    schemes = [Full(), Poisson(0.1), Poisson(0.9), WithoutReplacement(n // 10)]
    if all(isinstance(event, Gaussian) for event, _ in pairs):
        schemes.append(WithReplacement(10))
    scheme = draw(st.sampled_from(schemes))
    return tuple(Sampled(scheme, [pair[i] for pair in pairs], n) for i in range(2))


def check(named, asked, *, with_grids):
    assert named.dominates(asked)
    dearer, cheaper = named.pure_cost(), asked.pure_cost()
    assert cheaper <= dearer * (1.0 + 1e-12)
    assert asked.zcdp_cost() <= named.zcdp_cost() * (1.0 + 1e-12)
    assert (asked.rdp_cost(ORDERS) <= named.rdp_cost(ORDERS) * (1.0 + CURVES) + 1e-12).all()
    if with_grids:
        relation = named.relations[0]
        for times in (1, 50):
            few, many = (epsilon(Repeated(e, times), 1e-5, relation) for e in (asked, named))
            assert few <= many * (1.0 + GRIDS)


@pytest.mark.slow
@settings(max_examples=10)
@given(singles | repeated())
def test_a_dominated_event_costs_no_more(pair):
    check(*pair, with_grids=False)


@pytest.mark.slow
@settings(max_examples=6)
@given(sampled())
def test_a_dominated_batch_costs_no_more(pair):
    check(*pair, with_grids=False)


@settings(max_examples=4)
@given(scaled(Laplace) | scaled(Gaussian) | lengths(Pure) | sampled())
def test_a_dominated_event_costs_no_more_by_loss_distributions(pair):
    check(*pair, with_grids=True)


BATCH = (Gaussian(1.0, 1.0), Pure(0.5))
SVT = AboveThreshold("laplace", 2.0, 4.0, 1.0, 20)


@pytest.mark.parametrize(
    "named, asked",
    [
        (Gaussian(1.0, 1.0), Gaussian(1.0, 1.0 + 1e-9)),
        (Laplace(1.0, 1.0), Laplace(1.0 - 1e-9, 1.0)),
        (Pure(1.0), Pure(1.0 + 1e-9)),
        (BoundedRange(1.0), BoundedRange(1.0 + 1e-9)),
        (Pure(1.0), BoundedRange(1.0)),
        (Pure(2.0), Laplace(1.0, 1.0)),
        (BoundedRange(1.0), Pure(1.0)),
        (SVT, dataclasses.replace(SVT, threshold_scale=1.9)),
        (SVT, dataclasses.replace(SVT, query_scale=3.9)),
        (SVT, dataclasses.replace(SVT, sensitivity=1.1)),
        (SVT, dataclasses.replace(SVT, max_queries=21)),
        (SVT, dataclasses.replace(SVT, max_queries=None)),
        (SVT, dataclasses.replace(SVT, noise="gaussian")),
        (dataclasses.replace(SVT, shared=True), SVT),
        (Repeated(Pure(1.0), 3), Repeated(Pure(0.5), 4)),
        (Repeated(Pure(1.0), 3), Repeated(Pure(1.5), 2)),
        (Repeated(Repeated(Pure(1.0), 3), 2), Repeated(Pure(1.0), 7)),
        (Sampled(Poisson(0.1), BATCH), Sampled(Poisson(0.05), BATCH)),
        (Sampled(WithoutReplacement(2), BATCH, 20), Sampled(WithoutReplacement(2), BATCH, 40)),
        (Sampled(Poisson(0.1), BATCH), Sampled(Poisson(0.1), BATCH[::-1])),
        (Sampled(Poisson(0.1), BATCH), Sampled(Poisson(0.1), (*BATCH, Pure(0.1)))),
        (Sampled(Poisson(0.1), BATCH), Gaussian(1.0, 0.0)),
        (GaussianBound(1.0, (2.0,), (2.0,)), GaussianBound(1.0, (1.0,), (2.0,))),
    ],
)
def test_what_is_worse_in_one_thing_is_not_dominated(named, asked):
    assert not named.dominates(asked)
    assert named.dominates(named) and asked.dominates(asked)


def test_a_subclass_may_cost_what_it_likes_and_is_not_dominated():
    class Dear(Gaussian):
        def zcdp_cost(self):
            return 100.0

    assert not Gaussian(1.0, 1.0).dominates(Dear(1.0, 0.5))
    assert not Dear(1.0, 1.0).dominates(Gaussian(1.0, 0.5))

    class Own(Event):
        pass

    one, other = Own(), Own()
    assert one.dominates(one) and not one.dominates(other)


def test_the_cost_of_an_event_that_can_change_is_not_kept():
    class Mine(Event):
        def __init__(self, cost):
            object.__setattr__(self, "cost", cost)

        def pure_cost(self):
            return self.cost

    guard, event = Filter(Budget(1.0)), Mine(0.01)
    guard.spend(event)
    object.__setattr__(event, "cost", 5.0)
    with pytest.raises(PrivacyBudgetExceeded):
        guard.spend(event)


def test_user_defined_samplings_are_refused():
    class Often(Poisson):
        pass

    with pytest.raises(TypeError, match=r"sampling must be Full\(\), Without"):
        Sampled(Often(0.1), [Pure(1.0)])


def test_a_scheme_of_epochs_is_sent_to_its_event():
    with pytest.raises(TypeError, match=r"got Shuffle.* go with Epoch\(sampling, events\)"):
        Sampled(Shuffle(20), [Pure(1.0)])


def test_only_events_are_dominated():
    with pytest.raises(TypeError, match="an event is needed"):
        Pure(1.0).dominates("pure")


def test_a_class_claims_no_rule_of_the_class_that_it_extends():
    """A subclass may change the costs, so the inherited rules could give too small ones."""

    class Dear(Gaussian):
        def pure_cost(self):
            return 5.0

    class Twice(Repeated):
        def rdp_cost(self, orders):
            return 2.0 * super().rdp_cost(orders)

    class Batch(Sampled):
        def rdp_cost(self, orders):
            return 3.0 * super().rdp_cost(orders)

    class Group(Pure):  # no dataclass: the inherited comparison ignores the new field
        def __init__(self, epsilon, k):
            super().__init__(epsilon)
            object.__setattr__(self, "k", k)

        def pure_cost(self):
            return self.k * self.epsilon

    @dataclass(frozen=True)
    class Fields(Pure):
        k: int = 1

    one, many = Group(0.01, 1), Group(0.01, 1000)
    assert one == one and one != many and not one.dominates(many) and Group(0.01, 1) != one
    for first, second in ((one, many), (many, one)):
        assert epsilon([first, second], 0.0, "replace_one") == pytest.approx(10.01)
    guard = Filter(Budget(1.0))
    guard.spend(one)
    with pytest.raises(PrivacyBudgetExceeded):
        guard.spend(many)
    assert Fields(0.1, 2) == Fields(0.1, 2) != Fields(0.1, 3)
    assert len({Fields(0.1, 2), Fields(0.1, 2), Pure(0.1), Pure(0.1)}) == 2

    dear, noise = Dear(1.0, 1.0), Gaussian(1.0, 1.0)
    assert noise.exact_pair and noise.immutable and not dear.exact_pair and not dear.immutable
    assert dear.pair() == Pure(5.0).pair() and noise.pair() != dear.pair()
    for event in (Twice(noise, 3), Batch(Full(), [noise])):
        plain = Repeated(noise, 3) if isinstance(event, Repeated) else noise
        assert event.parts() is None and not event.immutable and event.pair() is None
        assert not event.dominates(noise)
        charged = epsilon([event], 1e-5, "replace_one", accountant="rdp")
        assert charged > epsilon([plain], 1e-5, "replace_one", accountant="rdp")


@pytest.mark.parametrize(
    "scheme",
    [Poisson(0.1), WithoutReplacement(2), WithReplacement(2)],
    ids=lambda s: type(s).__name__,
)
def test_pairs_of_batches_are_not_multiplied(scheme):
    """A product of their parameters would ignore that a record may be drawn several times."""
    batch = Sampled(scheme, [Gaussian(1.0, 1.0)], n=20)
    assert batch.pair() is not None and Repeated(batch, 3).pair() is None
    assert Repeated(Gaussian(1.0, 1.0), 4).pair() == Gaussian(1.0, 2.0).pair()


@dataclass(frozen=True)
class Own(Event):
    """Gaussian noise of a class of the user's, whose ``no_worse`` has its sign reversed."""

    std: float

    def rdp_cost(self, orders):
        return 0.5 * np.asarray(orders) / self.std**2

    def no_worse(self, other):
        return other.std <= self.std


def test_a_no_worse_that_contradicts_the_costs_is_refused():
    with pytest.raises(ValueError, match="no_worse of Own must hold for cheaper events only"):
        Own(2.0).dominates(Own(1.0))
    with pytest.raises(ValueError, match="no_worse of Own"):
        Sampled(Poisson(0.1), [Own(2.0)]).dominates(Sampled(Poisson(0.1), [Own(1.0)]))
    assert not Own(1.0).dominates(Own(2.0)) and Own(1.0).dominates(Own(1.0))


@dataclass(frozen=True)
class Crossing(Own):
    """Dearer than a smaller ``std`` at the orders above 2 alone."""

    def rdp_cost(self, orders):
        return np.where(np.asarray(orders) > 2.0, self.std, 1.0)


def test_a_cost_that_is_larger_at_some_orders_only_contradicts_no_worse():
    """The reverse, cheaper at some orders and no dearer at the others, does not."""

    class Reversed(Crossing):
        def no_worse(self, other):
            return True

    with pytest.raises(ValueError, match="no_worse of Reversed must hold for cheaper events only"):
        Reversed(1.0).dominates(Reversed(2.0))
    assert Reversed(2.0).dominates(Reversed(1.0))
