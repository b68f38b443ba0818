"""The rule of the default penalty agrees with the stored fits."""

import csv
import math

import pytest

from benchmarks.accuracy.penalty import FITTED, FOLDER, Curves
from dpanalysis.linear_model import runs


def test_a_rule_is_found_where_it_is_the_best():
    rows = [
        {
            "data": "made", "n": 1, "epsilon": epsilon, "tau": tau, "least": 1e-9,
            "strength": strength, "auc": 0.5, "log_loss": 0.5,
            "accuracy": 0.9 - 0.01 * abs(math.log(strength / (0.4 * tau**1.2))),
        }
        for epsilon, tau in ((0.1, 0.1), (1.0, 0.01), (4.0, 0.002))
        for strength in (0.1 * tau**1.2, 0.4 * tau**1.2, 1.6 * tau**1.2)
    ]  # fmt: skip
    curves = Curves(rows)
    factor, power = curves.rule(["made"])
    assert power == pytest.approx(1.2) and factor == pytest.approx(0.4, rel=0.05)
    key = ("made", 1, 1.0)
    assert curves.regret(key, curves.strength(key, 0.4, 1.2)) < 1e-9
    assert curves.regret(key, curves.strength(key, 1.6, 1.2)) == pytest.approx(0.01 * math.log(4))


@pytest.mark.slow
def test_the_rule_in_use_is_within_a_thousandth_of_the_best_of_the_fits():
    with open(FOLDER / "penalty_fits.csv", newline="", encoding="utf-8") as file:
        curves = Curves(list(csv.DictReader(file)))
    keys = [key for key in curves.keys if key[0] in FITTED]

    def loss(rule):
        return sum(curves.regret(key, curves.strength(key, *rule)) for key in keys) / len(keys)

    assert loss((runs.FACTOR, runs.POWER)) < loss(curves.rule(FITTED)) + 1e-3
    assert loss((0.8, 1.3)) > loss(curves.rule(FITTED)) + 1e-3  # another rule is worse
