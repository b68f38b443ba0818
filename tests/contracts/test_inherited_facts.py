"""A class of one's own that answers otherwise must say what one record can do to its answers."""

import numpy as np
import pytest

import dpanalysis as dpa
from dpanalysis.problems import Softmax

BOUND = dpa.RowBound(2, 1.0)


class Doubled(dpa.ERM):
    """Its sums are twice those that the bounds are of."""

    def sums(self, *args, **options):
        total = super().sums(*args, **options)
        return total._replace(gradient=2.0 * total.gradient)


class Stated(Doubled):
    """It says so."""

    def gradient_bound(self, order):
        return 2.0 * super().gradient_bound(order)

    def facts(self, relation):
        return super().facts(relation)


class Below(Stated):
    """Sums of its own again, below the class that stated the bounds."""

    def gradient_sum(self, *args, **options):
        return 2.0 * super().gradient_sum(*args, **options)


class Named(dpa.ERM):
    """It changes nothing that is charged."""

    def initial(self, rng=None):
        return np.ones(self.d)


class Solved(dpa.ERM):
    """Its minimiser is that of another objective."""

    def minimise_tilted(self, *arguments, **options):
        w, steps = super().minimise_tilted(*arguments, **options)
        return 2.0 * w, steps


class Rows(Softmax):
    """A network that looks at the data in another way."""

    def _evaluate(self, *arguments):
        return super()._evaluate(*arguments)


def run(kind, *more):
    problem = kind(np.eye(2), np.array([1.0, 1.0]), *more, row_bound=BOUND)
    return dpa.minimize(problem, dpa.methods.GradientDescent(0.1, 2), dpa.Budget(1.0), record=())


def test_sums_of_ones_own_need_facts_of_ones_own():
    loss = dpa.losses.Logistic()
    with pytest.raises(TypeError, match="Doubled overrides sums, but its facts are those of Empi"):
        run(Doubled, loss)
    with pytest.raises(TypeError, match="Below overrides gradient_sum, but its facts are those"):
        run(Below, loss)
    with pytest.raises(TypeError, match="Rows overrides _evaluate"):
        run(Rows, 2)
    with pytest.raises(TypeError, match="Solved overrides minimise_tilted"):
        run(Solved, loss)
    assert run(Stated, loss).private and run(Named, loss).private and run(dpa.ERM, loss).private
