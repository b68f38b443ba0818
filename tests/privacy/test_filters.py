"""Filters and plans: the events they grant, refusals without cost, and speed."""

import contextlib
import math
import threading
import time

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dpanalysis.errors import IncompatibleAccounting, PrivacyBudgetExceeded
from dpanalysis.privacy import (
    Budget,
    Filter,
    Plan,
    Poisson,
    WithoutReplacement,
    epsilon,
    epsilon_to_zcdp,
    plan_order,
    rdp_to_epsilon,
    zcdp_to_epsilon,
)
from dpanalysis.privacy.events import Event, Gaussian, Laplace, Pure, Repeated, Sampled

ADD = "add_or_remove_one"
STEP = Sampled(Poisson(0.01), [Gaussian(1.0, 1.0)])


def granted(guard, event, most=10**6):
    count = 0
    while count < most and guard.can_spend(event):
        guard.spend(event)
        count += 1
    return count


def test_pure_filter_adds_exact_losses():
    guard = Filter(Budget(1.0))
    step = Sampled(WithoutReplacement(10), [Laplace(1.0, 1.0)], n=100)
    assert granted(guard, step) == math.floor(1.0 / step.pure_cost())
    assert guard.notion == "pure" and guard.spent <= 1.0


@pytest.mark.parametrize("count", [3, 10, 1000, 99_999])
def test_a_budget_cut_into_equal_parts_is_granted_whole(count):
    """The slack of 1e-9 absorbs the rounding of the sum, but no event of 1e-8."""
    guard = Filter(Budget(1.0))
    assert granted(guard, Pure(1.0 / count)) == count
    assert not guard.can_spend(Pure(1e-8))
    assert guard.spent <= 1.0 * (1 + 1e-9)


def test_zcdp_filter_of_a_zcdp_budget():
    guard = Filter(Budget.zcdp(1.0))
    assert granted(guard, Gaussian(2.0, 1.0)) == 8 and guard.notion == "zcdp"
    assert guard.remaining == 0.0
    with pytest.raises(IncompatibleAccounting, match="no finite cost under a zcdp filter"):
        guard.can_spend(Sampled(WithoutReplacement(2), [Gaussian(1.0, 1.0)], n=10))


def test_zcdp_filter_of_an_approximate_budget():
    budget = Budget(1.0, 1e-6)
    guard = Filter(budget)
    assert guard.limit == epsilon_to_zcdp(1.0, 1e-6)
    count = granted(guard, Gaussian(30.0, 1.0))
    assert zcdp_to_epsilon(count / 1800, 1e-6) <= 1.0 < zcdp_to_epsilon((count + 1) / 1800, 1e-6)


@pytest.mark.parametrize("order", [4.0, 9.5, 32])
def test_renyi_filter_at_one_order_converts_to_the_budget(order):
    budget = Budget(4.0, 1e-5, relation=ADD)
    guard = Filter(budget, order=order)
    count = granted(guard, STEP)
    cost = float(STEP.rdp_cost([order])[0])
    if count:
        assert rdp_to_epsilon([order], [count * cost], 1e-5)[0] <= 4.0 * (1 + 1e-9)
    assert rdp_to_epsilon([order], [(count + 1) * cost], 1e-5)[0] > 4.0
    assert f"order {order:g}" in repr(guard)


def test_the_planned_order_grants_the_plan():
    run = Repeated(STEP, 1000)
    budget = Budget(epsilon(run, 1e-5, ADD, "rdp") * (1 + 1e-9), 1e-5, relation=ADD)
    order = plan_order(run, budget)
    assert granted(Filter(budget, order=order), STEP) == 1000
    assert granted(Filter(budget, order=2 * order), STEP) < 1000
    with pytest.raises(ValueError, match="delta > 0"):
        plan_order(run, Budget(1.0, relation=ADD))


def test_orders_are_checked():
    with pytest.raises(ValueError, match="leaves no budget"):
        Filter(Budget(0.1, 1e-9), order=2.0)
    with pytest.raises(ValueError, match="order must lie in"):
        Filter(Budget(1.0, 1e-5), order=1.0)
    with pytest.raises(ValueError, match="delta > 0"):
        Filter(Budget(1.0), order=2.0)
    with pytest.raises(ValueError, match="delta > 0"):
        Filter(Budget.zcdp(1.0), order=2.0)


def test_batches_of_gaussian_noise_need_an_order():
    for guard in (Filter(Budget(1.0, 1e-5, relation=ADD)), Filter(Budget(1.0, relation=ADD))):
        with pytest.raises(IncompatibleAccounting, match=r"order=\.\.\."):
            guard.spend(STEP)
        assert guard.spent == 0.0


@given(costs=st.lists(st.floats(0.0, 0.6), max_size=30))
def test_refusals_charge_nothing_and_looking_is_free(costs):
    guard, total = Filter(Budget(1.0)), 0.0
    for cost in costs:
        event, before = Pure(cost), guard.spent
        allowed = guard.can_spend(event)
        assert guard.spent == before and allowed == guard.can_spend(event)
        if allowed:
            guard.spend(event)
            total += cost
        else:
            with pytest.raises(PrivacyBudgetExceeded, match="is left"):
                guard.spend(event)
            assert guard.spent == before
    assert guard.spent == pytest.approx(total) and guard.spent <= 1.0 + 1e-9
    assert guard.remaining == pytest.approx(max(0.0, 1.0 - total), abs=1e-12)


def test_an_adaptive_adversary_cannot_pass_the_limit():
    """Events are chosen by the remaining budget, to spend as much as possible."""
    rng = np.random.default_rng(3)
    budget = Budget(2.0, 1e-6)
    guard, spent = Filter(budget), []
    for _ in range(3000):
        sigma = math.sqrt(0.5 / max(guard.remaining, 1e-9)) * rng.uniform(0.8, 5.0)
        event = Gaussian(sigma, 1.0)
        if guard.can_spend(event):
            guard.spend(event)
            spent.append(event)
    assert len(spent) > 10
    assert epsilon(spent, 1e-6, "replace_one", "zcdp") <= 2.0 * (1 + 1e-8)


def test_threads_never_spend_the_same_remainder():
    """Each thread reads the spent budget, waits, and writes; only a lock prevents a race."""

    class Slow(Filter):
        @property
        def spent(self):
            time.sleep(1e-3)
            return super().spent

    guard, barrier, paid = Slow(Budget(1.0)), threading.Barrier(8), []

    def run():
        barrier.wait()
        with contextlib.suppress(PrivacyBudgetExceeded):
            guard.spend(Pure(0.5))
            paid.append(1)

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(paid) == 2 and guard.spent == 1.0


@pytest.mark.parametrize("first", [7, np.int64(7)])
def test_a_seed_is_used_once_whatever_its_type(first):
    guard, generator = Filter(Budget(1.0)), np.random.default_rng(9)
    guard.claim_seed(first)
    for again in (7, np.int64(7), np.uint8(7)):
        with pytest.raises(ValueError, match="rng = 7 has been used"):
            guard.claim_seed(again)
    for fresh in (8, generator, None, None, "os"):
        guard.claim_seed(fresh)
    generator.spawn(1)  # as a run does; the next run spawns other children
    guard.claim_seed(generator)


WORDS = st.sampled_from([0, 5, 9, 2**32 + 9])
ENTROPY = st.one_of(WORDS, st.lists(WORDS, min_size=1, max_size=5))


@given(
    entropy=st.tuples(ENTROPY, ENTROPY),
    keys=st.tuples(*[st.lists(st.sampled_from([0, 5]), max_size=2)] * 2),
    whole=st.booleans(),
    kinds=st.tuples(*[st.sampled_from(["sequence", "generator", "array", "child"])] * 2),
)
@example(entropy=(9, [9]), keys=([], []), whole=True, kinds=("sequence", "sequence"))
@example(entropy=(9, [9, 0]), keys=([], []), whole=False, kinds=("generator", "array"))
@example(entropy=([9, 0, 0, 0, 5], 9), keys=([], [5]), whole=True, kinds=("sequence", "sequence"))
@example(entropy=(2**32 + 9, [9, 1]), keys=([], []), whole=True, kinds=("child", "array"))
@example(entropy=(9, 9), keys=([], [0]), whole=True, kinds=("child", "sequence"))
def test_seeds_are_equal_if_numpy_treats_them_as_equal(entropy, keys, whole, kinds):
    """9, [9], [9, 0], a padding key: refused if and only if the noise would be the same."""

    def seed(entropy, key, kind):
        if kind == "array":
            entropy = np.atleast_1d(np.asarray(entropy, dtype=np.uint64))
        made = np.random.SeedSequence(entropy, spawn_key=key)
        made = made.spawn(1)[0] if kind == "child" else made
        return np.random.default_rng(made) if kind == "generator" else made

    guard = Filter(Budget(1.0)) if whole else Plan([], Budget(1.0))
    noise = []
    for arguments in zip(entropy, keys, kinds):
        stream = np.random.default_rng(seed(*arguments)).spawn(1)[0]
        noise.append(stream.random(4).tolist())
    guard.claim_seed(seed(entropy[0], keys[0], kinds[0]))
    again = seed(entropy[1], keys[1], kinds[1])
    if noise[0] == noise[1]:
        with pytest.raises(ValueError, match=r"rng has been used under this (filter|plan)"):
            guard.claim_seed(again)
    else:
        guard.claim_seed(again)


def test_a_branch_claims_seeds_for_itself():
    guard = Filter(Budget(1.0))
    guard.claim_seed(1)
    branch = guard.branch()
    with pytest.raises(ValueError, match="has been used"):
        branch.claim_seed(1)
    branch.claim_seed(2)
    guard.claim_seed(2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("budget", "order", "events"),
    [
        (Budget(1e9), None, [Pure(0.1), Laplace(1.0, 1.0)]),
        (Budget(1e9, 1e-5), None, [Gaussian(1.0, 1.0)]),
        (Budget(1e9, 1e-5, relation=ADD), 8.0, [STEP, Sampled(Poisson(0.1), [Laplace(1.0, 1.0)])]),
    ],
)
def test_a_cost_is_worked_out_once_an_event(budget, order, events, monkeypatch):
    costs = [Filter(budget, order=order).cost(event) for event in events]
    guard, asked = Filter(budget, order=order), []
    for kind in {type(event) for event in events}:
        name = f"{guard.notion}_cost"
        cost = getattr(kind, name)

        def counted(self, *given, cost=cost):
            return asked.append(self) or cost(self, *given)

        monkeypatch.setattr(kind, name, counted)
    for i in range(100_000):
        event = events[i % len(events)]
        assert guard.can_spend(event)
        guard.spend(event)
    assert asked == events
    assert guard.spent == pytest.approx(100_000 * np.mean(costs))


def test_ever_new_events_do_not_fill_the_memory():
    guard = Filter(Budget(1e9))
    for i in range(10_000):
        guard.spend(Pure(0.1 + i * 1e-6))
    assert len(guard._known) <= 4096


def test_a_new_kind_of_event_brings_its_own_cost():
    class Half(Event):
        def pure_cost(self):
            return 0.5

    assert granted(Filter(Budget(2.0)), Half()) == 4


def test_an_event_that_says_it_equals_a_cheap_one_is_charged_what_it_costs():
    class Alike(Pure):
        def pure_cost(self):
            return 0.5

        def __eq__(self, other):
            return True

        def __hash__(self):
            return hash(Pure(0.1))

    guard = Filter(Budget(2.0))
    guard.spend(Pure(0.1))
    guard.spend(Alike(0.1))
    assert guard.spent == pytest.approx(0.6)


# Plans


def test_a_plan_grants_exactly_its_events_in_their_order():
    plan = Plan(
        [Repeated(Repeated(Pure(0.1), 2), 2), Pure(0.3), Repeated(Pure(0.1), 1)], Budget(1.0)
    )
    seen = []
    while (event := plan.next) is not None:
        wrong = Pure(0.2)
        assert not plan.can_spend(wrong)
        with pytest.raises(PrivacyBudgetExceeded, match="was not planned here: next comes"):
            plan.spend(wrong)
        assert plan.can_spend(event) and plan.can_spend(Pure(event.epsilon))
        plan.spend(Pure(event.epsilon))
        seen.append(event.epsilon)
        assert plan.remaining == 6 - len(seen)
    assert seen == [0.1] * 4 + [0.3, 0.1]
    assert not plan.can_spend(Pure(0.1))
    with pytest.raises(PrivacyBudgetExceeded, match="nothing is left"):
        plan.spend(Pure(0.1))


def test_a_plan_over_budget_is_refused_at_once():
    with pytest.raises(PrivacyBudgetExceeded, match=r"the planned events cost 1\.2"):
        Plan([Pure(0.6)] * 2, Budget(1.0))
    run = Repeated(STEP, 1000)
    Plan(run, Budget(1.83, 1e-5, relation=ADD))  # by the loss distribution
    with pytest.raises(PrivacyBudgetExceeded, match="by 'rdp'"):
        Plan(run, Budget(1.83, 1e-5, relation=ADD), "rdp")
    with pytest.raises(PrivacyBudgetExceeded):
        Plan(Gaussian(1.0, 1.0), Budget(1.0))  # no Gaussian noise at delta = 0
    assert Plan(Gaussian(1.0, 1.0), Budget.zcdp(0.5)).cost == 0.5
    assert "1 events left" in repr(Plan(Pure(0.5), Budget(1.0)))


def test_a_long_plan_is_granted_to_its_end_and_no_further():
    plan = Plan(Repeated(STEP, 100_000), Budget(1e3, 1e-5, relation=ADD), "rdp")
    for _ in range(100_000):
        assert plan.can_spend(STEP)
        plan.spend(STEP)
    assert plan.remaining == 0 and not plan.can_spend(STEP)


def test_a_plan_grants_several_of_its_events_at_once():
    """It grants two and one of three, but never more than remain of the next kind."""
    release, other = Pure(0.1), Pure(0.2)
    plan = Plan([Repeated(release, 3), other], Budget(1.0))
    assert not plan.can_spend(Repeated(release, 4)) and not plan.can_spend(Repeated(other, 1))
    plan.spend(Repeated(release, 2))
    assert plan.remaining == 2 and not plan.can_spend(Repeated(release, 2))
    plan.spend(Repeated(Repeated(release, 1), 1))
    assert plan.next == other and plan.remaining == 1
    with pytest.raises(PrivacyBudgetExceeded, match="was not planned here"):
        plan.spend(Repeated(other, 2))
    plan.spend(other)
    assert plan.next is None and not plan.can_spend(other)
    listed = Plan([release, Repeated(release, 2), release, other], Budget(1.0))
    listed.spend(Repeated(release, 4))
    assert listed.next == other and listed.remaining == 1


def test_an_inexact_plan_goes_forward_only():
    """An event uses the next planned event that dominates it; those passed over are lost."""
    plan = Plan([Repeated(Pure(0.1), 3), Pure(0.3), Pure(0.1)], Budget(1.0), exact=False)
    assert not plan.can_spend(Pure(0.31)) and not plan.can_spend(Laplace(1.0, 0.1))
    plan.spend(Pure(0.05))
    assert plan.remaining == 4
    plan.spend(Pure(0.2))  # passes over two events and uses Pure(0.3)
    assert plan.remaining == 1 and plan.next == Pure(0.1) and not plan.can_spend(Pure(0.2))
    plan.spend(Pure(0.1))
    with pytest.raises(PrivacyBudgetExceeded, match="nothing is left"):
        plan.spend(Pure(1e-9))


@given(
    losses=st.lists(st.floats(0.1, 2.0), min_size=3, max_size=3),
    delta=st.floats(1e-4, 0.1),
    wanted=st.lists(st.tuples(st.floats(0.01, 2.0), st.floats(0.01, 1.0)), min_size=7, max_size=7),
)
def test_an_inexact_plan_covers_every_adversary(losses, delta, wanted):
    """A binary tree of depth 3: after every history the adversary requests an arbitrary loss.

    Each answer is a coin whose odds change by that loss, of any probability. All answers are
    enumerated; their delta at the planned epsilon is at most the planned delta.
    """
    events = [Pure(loss) for loss in losses]
    bound = epsilon(events, delta, ADD)
    leaves = []

    def visit(node, path, reached):
        plan = Plan(events, None, exact=False)
        for event in path:
            plan.spend(event)
        if node >= 7 or not plan.can_spend(Pure(wanted[node][0])):
            leaves.append(reached)
            return
        loss, share = wanted[node]
        yes = share / (1.0 + math.exp(-loss))
        laws = np.array([[yes, 1.0 - yes], [yes * math.exp(-loss), 1.0 - yes * math.exp(-loss)]])
        for answer in (0, 1):
            visit(2 * node + 1 + answer, [*path, Pure(loss)], reached * laws[:, answer])

    visit(0, [], np.ones(2))
    p, q = np.array(leaves).T
    for a, b in ((p, q), (q, p)):
        assert np.maximum(a - math.exp(bound) * b, 0.0).sum() <= delta * (1 + 1e-6)


def test_a_plan_grants_only_what_comes_next():
    plan = Plan([Pure(0.1), Pure(0.3)], Budget(1.0))
    assert not plan.can_spend(Pure(0.3))
    with pytest.raises(PrivacyBudgetExceeded, match="was not planned here"):
        plan.spend(Pure(0.3))
    assert plan.remaining == 2 and plan.can_spend(Pure(0.1))


def test_what_a_guard_was_made_with_cannot_be_changed():
    guard = Filter(Budget(1.0))
    guard.spend(Pure(0.75))
    plan = Plan([Pure(0.5), Pure(0.25)], Budget(1.0))
    plan.spend(Pure(0.5))
    for one, names in (
        (guard, ("budget", "limit", "order", "notion", "spent", "remaining", "is_branch")),
        (guard.branch(), ("limit", "is_branch")),
        (plan, ("budget", "cost", "remaining", "next")),
    ):
        before = repr(one)
        for name in names:
            with pytest.raises(AttributeError):
                setattr(one, name, 100.0)
        assert repr(one) == before
    with pytest.raises(PrivacyBudgetExceeded):
        guard.spend(Pure(0.5))


def test_what_comes_next_in_a_plan():
    one, two = Pure(0.1), Pure(0.2)
    plan = Plan([Repeated(one, 3), two], None)
    assert plan.upcoming(2) == [(one, 2)] and plan.upcoming(9) == [(one, 3), (two, 1)]
    for _ in range(3):
        plan.spend(one)
    assert plan.upcoming(9) == [(two, 1)] and plan.upcoming(0) == []
    assert Plan([one], None, exact=False).upcoming(9) == []  # the event may be passed over


def test_costs_below_the_rounding_of_the_sum_are_charged():
    """Each is less than half a unit in the last place of the budget spent before."""
    guard = Filter(Budget(1.0))
    guard.spend(Pure(0.5))
    for _ in range(64):
        guard.spend(Pure(2.0**-55))
    assert guard.spent == 0.5 + 2.0**-49


def test_a_guarantee_counts_the_runs_that_are_released():
    one = Filter(Budget(1.0)), Filter(Budget.zcdp(0.5)), Filter(Budget(1.0, 1e-5), order=50.0)
    assert one[0].epsilon(copies=3) == 3.0
    assert one[1].epsilon(1e-5, copies=3) == Filter(Budget.zcdp(1.5)).epsilon(1e-5)
    # At one order the limits add up, and the conversion to epsilon is paid once.
    assert one[2].epsilon(copies=3) == pytest.approx(1.0 + 2.0 * one[2].limit)


def test_what_a_plan_passes_over_is_lost_though_some_is_left():
    plan = Plan([Pure(0.3), Repeated(Pure(0.4), 2)], Budget(2.0), exact=False)
    plan.spend(Pure(0.4))
    assert plan.next == Pure(0.4) and plan.remaining == 1
