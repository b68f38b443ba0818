"""Accounting of runs described in words: bounds against each other, and error messages."""

import json
import math
import re
from dataclasses import replace
from decimal import ROUND_FLOOR
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpanalysis as dpa
from dpanalysis import privacy
from dpanalysis.__main__ import main
from dpanalysis.privacy.accounting import runs
from dpanalysis.privacy.accounting.relations import directed
from dpanalysis.privacy.accounting.runs import SAMPLINGS, mixture_lower_epsilon
from dpanalysis.privacy.events import Gaussian, Repeated, Sampled

ADD = "add_or_remove_one"
PAGE = Path(__file__).parents[2] / "docs" / "release.md"


def run(name, **others):
    sizes = {"batches": 100} if name != "full" else {}
    if name in ("fixed size", "with replacement"):
        sizes = {"n": 1000, "batch_size": 10}
    arguments = {"sampling": name, "epochs": 10, "delta": 1e-5, **sizes, **others}
    return dpa.accounting(arguments.pop("noise", 1.0), **arguments)


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_lower_bounds_are_below_upper_bounds(sampling):
    found = run(sampling)
    assert 0.0 < found.lower <= found.epsilon < math.inf
    if found.replace_one is not None:
        assert found.replace_one >= found.epsilon
    text = str(found)
    assert found.why in text and found.relation in text and "Poisson" in text


@pytest.mark.slow
def test_values():
    shuffled = run("shuffle")
    assert shuffled.poisson == pytest.approx(1.83, abs=5e-3)
    assert shuffled.lower == pytest.approx(9.36, abs=5e-3)
    assert shuffled.epsilon == privacy.gaussian_epsilon(1 / math.sqrt(10), 1e-5)
    assert shuffled.replace_one == privacy.gaussian_epsilon(0.5 / math.sqrt(10), 1e-5)
    assert run("cyclic").epsilon == shuffled.epsilon
    step = Sampled(privacy.Poisson(0.01), [Gaussian(1.0, 1.0)])
    assert run("poisson").epsilon == privacy.epsilon(Repeated(step, 1000), 1e-5, ADD)
    assert run("balls in bins").epsilon == pytest.approx(1.7016, rel=1e-3)
    assert run("random allocation").epsilon == run("balls in bins").epsilon
    assert run("random allocation", times=2).epsilon > run("balls in bins").epsilon
    assert run("random allocation", times=2).lower is None


def test_the_page_and_the_command_print_the_same(capsys):
    told = "\n".join(str(run(each)) for each in ("shuffle", "balls in bins"))
    assert re.findall(r"^```text\n(.*?)\n^```", PAGE.read_text("utf-8"), re.M | re.S) == [told]
    (command,) = re.findall(r"^dpanalysis (account .*)$", PAGE.read_text("utf-8"), re.M)
    assert main(command.split()) == 0
    assert capsys.readouterr().out == f"{run('shuffle')}\n"
    with pytest.raises(SystemExit):
        main([*command.split(), "--steps", "3"])
    assert "exactly one of epochs and steps" in capsys.readouterr().err


# Lower bounds of mixtures


def test_a_lower_bound_meets_the_exact_gaussian():
    """With probability 1 the mixture is Gaussian noise; rounding must be negligible."""
    for mu, steps, delta in ((1.0, 1, 1e-5), (0.3, 100, 1e-6), (2.0, 3, 0.1), (0.01, 1000, 1e-5)):
        exact = privacy.gaussian_epsilon(1.0 / (mu * math.sqrt(steps)), delta)
        lower = mixture_lower_epsilon([1.0], mu, delta, steps)
        assert (1.0 - 1e-4) * exact - 1e-6 <= lower <= exact


@pytest.mark.slow
@settings(max_examples=20)
@given(st.floats(-4.0, 0.0), st.floats(0.5, 3.0), st.integers(1, 2000), st.floats(-9.0, -2.0))
def test_both_bounds_of_poisson_sampling_are_near(log_rate, sigma, steps, log_delta):
    rate, delta = 10.0**log_rate, 10.0**log_delta
    found = dpa.accounting(sigma, sampling="poisson", rate=rate, steps=steps, delta=delta)
    assert found.lower <= found.epsilon <= 1.01 * found.lower + 0.01


@pytest.mark.slow
@pytest.mark.parametrize("sigma", [0.2, 0.084, 0.05, 0.02, 0.001])
def test_next_to_no_noise_has_bounds_too(sigma):
    for sampling, sizes in (
        ("poisson", {"rate": 0.01}),
        ("fixed size", {"n": 99, "batch_size": 9}),
        ("balls in bins", {"batches": 10}),
        ("shuffle", {"batches": 10}),
    ):
        found = dpa.accounting(sigma, sampling=sampling, steps=10, delta=1e-5, **sizes)
        assert 10.0 < found.lower <= found.epsilon
        assert found.lower > 600.0 or sigma > 0.02


@given(st.floats(1e-8, 1e12), st.integers(1, 12))
def test_printed_bounds_are_rounded_outwards(value, digits):
    """By at most a unit of the last digit, up to floating-point errors."""
    up, down = Fraction(directed(value, digits)), Fraction(directed(value, digits, ROUND_FLOOR))
    unit = Fraction(10) ** (math.floor(math.log10(value)) + 1 - digits)
    near = Fraction(value)
    assert down <= near * (1 + Fraction(1, 10**11)) and near <= up * (1 + Fraction(1, 10**11))
    assert up - down <= unit * (1 + Fraction(1, 10**6))


def test_printed_bounds_have_two_decimals_or_at_most_six_digits():
    values = {4.6501: "4.66", 10.6601: "10.67", 0.00123001: "0.00124", 12498922.01: "1.2499e+07"}
    for value, text in values.items():
        found = dpa.accounting(1.0, sampling="full", steps=1, delta=0.1)
        assert f"at most {text}," in str(replace(found, epsilon=value))
    assert "data lose 4.65:" in str(replace(found, lower=4.6599))
    alone = dpa.accounting(1e-9, sampling="poisson", rate=0.1, steps=100, delta=1e-5)
    assert "at most 5.005e+19: one" in str(alone)


def test_so_many_steps_that_no_grid_resolves_one_have_a_lower_bound_of_0():
    assert mixture_lower_epsilon([1e-3], 0.1, 1e-5, 10**12) == 0.0


def test_a_lower_bound_of_one_step_against_its_integral():
    """H(P, Q) at the bound is delta, or a little more: one step, two copies at most."""
    chances, mu, delta = [0.1, 0.02], 1.3, 1e-4
    lower = mixture_lower_epsilon(chances, mu, delta, 1)
    x = np.linspace(-12.0, 16.0, 400_001)
    normal = np.exp(-0.5 * x**2) / math.sqrt(2.0 * math.pi)
    ratio = 0.88 + sum(
        p * np.exp(k * mu * x - 0.5 * (k * mu) ** 2) for k, p in enumerate(chances, 1)
    )
    there = np.trapezoid(normal * np.maximum(ratio - math.exp(lower), 0.0), x)
    assert delta <= there * (1.0 + 1e-6) <= 1.001 * delta


# Words and errors


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", ["balls_in_bins", "Balls-in-Bins", " balls  in bins", "BallsInBins"]
)
def test_names_are_read_however_they_are_spelt(words):
    assert run("balls in bins", sampling=words) == run("balls in bins")


def test_sizes_by_records():
    one = dpa.accounting(1.0, sampling="shuffle", batches=1, epochs=4, delta=1e-5)
    assert one.epsilon == pytest.approx(privacy.gaussian_epsilon(0.5, 1e-5))
    by_size = dpa.accounting(1.0, sampling="shuffle", n=1050, batch_size=100, epochs=2, delta=1e-5)
    assert by_size == dpa.accounting(1.0, sampling="shuffle", batches=11, epochs=2, delta=1e-5)
    # The upper bound counts a partial epoch as complete; the lower bound ignores it.
    begun = dpa.accounting(1.0, sampling="shuffle", batches=11, steps=23, delta=1e-5)
    whole = [
        dpa.accounting(1.0, sampling="shuffle", batches=11, epochs=k, delta=1e-5) for k in (2, 3)
    ]
    assert (begun.lower, begun.epsilon) == (whole[0].lower, whole[1].epsilon)
    assert "23 steps" in begun.run and "2 epochs" in by_size.run
    first = dpa.accounting(1.0, sampling="shuffle", batches=11, steps=5, delta=1e-5)
    assert first.lower == 0.0 < first.epsilon


@pytest.mark.parametrize(("sampling", "times"), [("balls in bins", 1), ("random allocation", 2)])
def test_an_epoch_that_was_begun_costs_as_much_as_a_whole_one(sampling, times):
    scheme = {"sampling": sampling, "times": times, "batches": 4, "delta": 1e-5}
    begun = dpa.accounting(1.0, steps=5, **scheme)
    assert begun.epsilon == dpa.accounting(1.0, epochs=2, **scheme).epsilon


@pytest.mark.parametrize("sampling", ["full", "cyclic", "shuffle"])
@pytest.mark.parametrize("steps", [1, 4, 5, 9])
def test_batches_that_have_the_record_are_gaussian_releases(sampling, steps):
    """One batch of each started epoch of 4; replacing a record doubles the sensitivity."""
    sizes = {} if sampling == "full" else {"batches": 4}
    found = dpa.accounting(1.5, sampling=sampling, steps=steps, delta=1e-5, **sizes)
    count = steps if sampling == "full" else math.ceil(steps / 4)
    costs = [privacy.gaussian_epsilon(1.5 / math.sqrt(count) / far, 1e-5) for far in (1.0, 2.0)]
    assert [found.epsilon, found.replace_one] == pytest.approx(costs, rel=1e-12)


def test_the_cost_by_poisson_sampling_counts_all_batches():
    step = Sampled(privacy.Poisson(0.3), [Gaussian(1.0, 1.0)])
    by_rate = dpa.accounting(1.0, sampling="poisson", rate=0.3, epochs=2, delta=1e-5)
    assert by_rate.epsilon == privacy.epsilon(Repeated(step, 8), 1e-5, ADD)  # 4 hold all records
    twice = dpa.accounting(
        1.0, sampling="random allocation", batches=6, times=2, steps=6, delta=1e-5
    )
    often = Sampled(privacy.Poisson(1.0 / 3.0), [Gaussian(1.0, 1.0)])
    assert twice.poisson == pytest.approx(privacy.epsilon(Repeated(often, 6), 1e-5, ADD))
    assert "each record in 2 of them" in twice.run and "each record" not in by_rate.run


@given(n=st.integers(2, 99), data=st.data())
@settings(max_examples=8, deadline=None)
def test_poisson_batches_of_a_mean_size_have_its_rate(n, data):
    """Also where the size does not divide n: one over the number of batches would be less."""
    size = data.draw(st.integers(1, n))
    run = {"sampling": "poisson", "steps": 3, "delta": 1e-5}
    by_size = dpa.accounting(1.0, n=n, batch_size=size, **run)
    by_rate = dpa.accounting(1.0, rate=size / n, **run)
    assert by_size.release == by_rate.release and by_size.epsilon == by_rate.epsilon


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_the_noise_for_an_epsilon_is_the_least(sampling):
    found = run(sampling, noise=None, epsilon=2.0)
    assert found.epsilon <= 2.0 and str(found).split("multiplier ")[1].startswith(
        f"{found.noise_multiplier:g},"
    )
    assert run(sampling, noise=found.noise_multiplier).epsilon == found.epsilon
    assert run(sampling, noise=(1.0 - 1e-3) * found.noise_multiplier).epsilon > 2.0


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_the_curve_has_the_epsilon_of_the_run(sampling):
    found = run(sampling)
    curve = found.curve()
    assert curve.epsilon(1e-5) == pytest.approx(found.epsilon, rel=1e-3)
    assert 0.0 < curve.advantage() < 1.0


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_neighbours_may_differ_in_a_replaced_record(sampling):
    usual = run(sampling)
    if usual.replace_one is None:
        with pytest.raises(ValueError, match="no bound is proved here for sampling="):
            run(sampling, relation="replace_one")
        return
    found = run(sampling, relation="replace_one")
    assert found.epsilon == found.replace_one == usual.replace_one and found.lower == usual.lower
    assert found.relation == "one record replaced by any other, n public"
    assert found.curve().epsilon(1e-5) == pytest.approx(found.epsilon, rel=1e-3)


@settings(max_examples=10)
@given(st.floats(0.1, 20.0))
def test_the_noise_found_for_an_epsilon_is_enough_as_it_is_printed(epsilon):
    found = dpa.accounting(epsilon=epsilon, sampling="full", steps=4, delta=1e-5)
    assert found.noise_multiplier == float(f"{found.noise_multiplier:.6g}")
    assert found.epsilon <= epsilon * (1.0 + 1e-12)


def test_the_noise_found_for_an_epsilon_is_enough_where_costs_jump():
    """On a grid of losses more noise may cost a little more: 2.6e-4 too much was reported."""
    size = {"sampling": "fixed size", "n": 362, "batch_size": 1, "steps": 6231}
    found = dpa.accounting(epsilon=36.49435920292887, delta=3.8526161417354704e-11, **size)
    assert 36.4 < found.epsilon <= 36.49435920292887 * (1.0 + 1e-12)


def test_the_command_gives_json_and_takes_an_epsilon(capsys):
    argv = [
        "account",
        "--sampling",
        "full",
        "--steps",
        "4",
        "--delta",
        "1e-5",
        "--epsilon",
        "2",
        "--json",
    ]
    assert main(argv) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == dpa.accounting(epsilon=2.0, sampling="full", steps=4, delta=1e-5).to_dict()
    assert found["noise_multiplier"] == pytest.approx(
        2.0 * privacy.calibrate(lambda s: Gaussian(s, 1.0), dpa.Budget(2.0, 1e-5), (0.1, 10.0)),
        rel=1e-5,
    )
    with pytest.raises(SystemExit):
        main(argv[:-3])
    assert "exactly one of noise_multiplier and epsilon" in capsys.readouterr().err


def test_a_large_delta_is_reported():
    told = dpa.accounting(1.0, sampling="full", n=100, steps=1, delta=0.01).why
    assert "delta is not below 1/n" in told


def test_a_loader_that_drops_incomplete_batches_is_told_to_say_so():
    """Its 30 steps are 10 epochs of 3 batches, and not 8 of 4."""
    sizes = {"sampling": "shuffle", "n": 1000, "delta": 1e-5}
    run = dpa.accounting(1.0, batch_size=300, steps=30, **sizes)
    dropped = dpa.accounting(1.0, batches=3, steps=30, **sizes)
    assert run.epsilon < dropped.lower and "give batches=3 instead" in run.why
    assert dropped.epsilon == dpa.accounting(1.0, batch_size=300, epochs=10, **sizes).epsilon
    for more in ({"batch_size": 250, "steps": 30}, {"batch_size": 300, "epochs": 10}):
        assert "Beware" not in dpa.accounting(1.0, **more, **sizes).why


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"sampling": "random"}, "sampling must be one of 'poisson', 'shuffle'.*permutes"),
        ({"sampling": dpa.Shuffle(3)}, "sampling must be words such as 'shuffle'"),
        ({"batches": None}, "takes exactly one of: batches, or n and batch_size; got none"),
        ({"batches": None, "batch_size": 10}, "batch_size needs n"),
        ({"batches": None, "batch_size": 10, "n": 9}, "batch_size must be at most n = 9"),
        ({"batch_size": 10, "n": 100}, "exactly one of.*got batch_size and batches"),
        ({"n": 9}, "batches must be at most n = 9, got 10"),
        ({"batches": None, "rate": 0.1}, "'shuffle' takes exactly one of.*got rate"),
        ({"steps": 5}, "exactly one of epochs and steps, got epochs=3 and steps=5"),
        ({"epochs": None}, "exactly one of epochs and steps, got epochs=None"),
        ({"times": 2}, "times belongs to sampling='random allocation'"),
        ({"sampling": "random allocation", "times": 11}, "times must be at most the batches"),
        ({"sampling": "full"}, "takes all records: leave out batches"),
        ({"sampling": "fixed size"}, "takes exactly one of: n and batch_size; got batches"),
        ({"sampling": "poisson", "batches": None, "rate": 1.5}, r"rate must lie in \(0, 1\]"),
        ({"delta": 0.0}, r"delta must lie in \(0, 1\)"),
        *(({"noise_multiplier": x}, "noise_multiplier must lie in") for x in (0.0, 1e-21, 1e101)),
        ({"epochs": 2.5}, "epochs must be an integer"),
    ],
)
def test_errors_name_what_is_allowed(arguments, match):
    usual = {"noise_multiplier": 1.0, "sampling": "shuffle", "batches": 10, "epochs": 3}
    with pytest.raises((TypeError, ValueError), match=match):
        dpa.accounting(**{**usual, "delta": 1e-5, **arguments})


@pytest.mark.parametrize("drawn", ["poisson", "shuffle", "balls in bins", "cyclic"])
def test_the_least_and_the_most_noise_have_a_bound(drawn):
    """Squares overflowed, or were divided by after they had vanished."""
    most, least = (
        dpa.accounting(noise, sampling=drawn, batches=10, epochs=1, delta=1e-5).epsilon
        for noise in (1e100, 1e-20)
    )
    assert most == 0.0 and 1e39 < least < math.inf


def test_fixed_sizes_may_go_by_the_name_of_their_class():
    same = [
        dpa.accounting(1.0, sampling=words, n=1000, batch_size=10, steps=5, delta=1e-5)
        for words in ("fixed size", "WithoutReplacement", "without replacement")
    ]
    assert same[0] == same[1] == same[2]
    for words in ("WithReplacement", "Poisson", "RandomAllocation", "Shuffle", "FULL"):
        assert runs._sampling_name(words) in runs.SAMPLINGS
