"""Weak growth constants: valid, smallest possible, and those printed in the paper."""

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.optimize import minimize

from dpanalysis import clipping, losses, theory
from dpanalysis.problems import MLP, Softmax
from dpanalysis.problems.networks.softmax import CrossEntropy
from dpanalysis.theory.value_clipping import LayerSizes, growth_of_layers
from tests.broken_mechanisms.releases import printed_weak_growth_mlp

KAPPA = 0.40726437758907374
WORST_MARGIN = -0.92142  # logit of the right class minus the other: p = 0.28467


class Norms(clipping.Flat):
    """Flat clipping that stores the norms and losses passed to it."""

    def weight(self, norms, losses=None):
        self.__dict__["seen"] = norms.ravel(), losses.ravel()
        return super().weight(norms, losses)


def norms_and_losses(problem, w):
    rule = Norms(1.0)
    problem.sums(w, clipping=rule)
    return rule.seen


def quotients(problem, w):
    """Squared gradient norm over loss, of every sample."""
    norms, values = norms_and_losses(problem, w)
    return norms**2 / values


def test_the_logistic_constant_is_that_of_the_loss_and_of_a_fine_grid():
    assert theory.weak_growth_logistic(1.5) == losses.Logistic().weak_growth(1.5)[0]
    q = np.linspace(0.0, 1.0, 1_000_001)[1:-1]
    assert ((1 - q) ** 2 / -np.log(q)).max() == pytest.approx(KAPPA, rel=1e-11)
    assert theory.weak_growth_logistic(1.0) == pytest.approx(KAPPA, rel=1e-15)


@given(st.floats(1e-3, 1e3))
@example(977.0782216472915)  # its square by ** differs from its product with itself
def test_value_clipping_accepts_the_constants(row_norm):
    for beta1, loss in [
        (theory.weak_growth_logistic(row_norm), losses.Logistic()),
        (theory.weak_growth_softmax(row_norm), CrossEntropy()),
    ]:
        clipping.Value(1.0, beta1).check(loss, row_norm)


@pytest.mark.slow
@pytest.mark.parametrize("K", [2, 3, 6])
def test_the_softmax_constant_is_attained_or_approached(K):
    """Maximising over logits from five starts attains the constant and never exceeds it."""
    problem = Softmax(np.ones((1, 1)), np.zeros(1), n_classes=K)
    beta1 = theory.weak_growth_softmax(1.0)
    found = []
    for seed in range(5):
        start = 2.0 * np.random.default_rng(seed).standard_normal(K)
        options = {"maxiter": 4000, "xatol": 1e-9, "fatol": 1e-13}
        solution = minimize(
            lambda w: -quotients(problem, w)[0], start, method="Nelder-Mead", options=options
        )
        found.append(-solution.fun)
    assert max(found) <= beta1 * (1 + 1e-9)
    assert max(found) >= beta1 * (1 - 1e-6)


def aligned(norms, row_norm, bias_norms=None, width=5):
    """Return a relu network of rank-one layers aligned with the difference of two logits.

    The last layer is scaled so that the difference is the worst margin.
    """
    unit = np.full(width, width**-0.5)
    inputs, reach = row_norm, row_norm
    parts, first = [], np.zeros(width)
    first[0] = 1.0
    direction = first
    for i, norm in enumerate(norms[:-1]):
        parts.append(norm * np.outer(unit, direction))
        reach = norm * reach
        if bias_norms is not None:
            parts.append(bias_norms[i] * unit)
            reach += bias_norms[i]
        direction = unit
    across = np.array([1.0, -1.0]) / math.sqrt(2.0)
    last = -WORST_MARGIN / math.sqrt(2.0) / reach
    parts.append(last * np.outer(-across, direction))
    if bias_norms is not None:
        parts.append(np.zeros(2))
    problem = MLP(
        inputs * first[None, :],
        np.zeros(1),
        (width,) * (len(norms) - 1),
        n_classes=2,
        bias=bias_norms is not None,
    )
    return problem, np.concatenate([part.ravel() for part in parts])


@pytest.mark.parametrize("norms", [[1.0], [1.7, 1.0], [3.0, 0.5, 1.0], [9.0, 9.0, 0.3, 1.0]])
@pytest.mark.parametrize("bias", [False, True])
def test_the_mlp_constant_is_attained(norms, bias):
    """At the worst margin (known to five digits, where the quotient is flat) to 1e-9."""
    offsets = [0.4] * (len(norms) - 1) + [0.0] if bias else None
    problem, w = aligned(norms, 1.3, offsets)
    spectral = problem.spectral_norms(w)
    np.testing.assert_allclose(spectral[:-1], norms[:-1])
    bound = theory.weak_growth_mlp(1.3, spectral, offsets)
    assert quotients(problem, w)[0] == pytest.approx(bound, rel=1e-9)
    assert quotients(problem, w)[0] <= bound * (1 + 1e-12)


def test_the_sum_over_the_other_layers_is_no_bound():
    """Three layers, of norms 30, 30 and a small one, violate the printed formula."""
    problem, w = aligned([30.0, 30.0, 1.0], 1.0)
    spectral = problem.spectral_norms(w)
    printed = printed_weak_growth_mlp(1.0, spectral)
    assert quotients(problem, w)[0] > 20.0 * printed
    # With two layers sum and product are the same, and the factor 8 is 9.8 times too large.
    problem, w = aligned([30.0, 1.0], 1.0)
    spectral = problem.spectral_norms(w)
    tight = theory.weak_growth_mlp(1.0, spectral)
    assert printed_weak_growth_mlp(1.0, spectral) == pytest.approx(4 / KAPPA * tight)


@pytest.mark.slow
@given(
    st.integers(0, 2**32 - 1),
    st.lists(st.integers(1, 6), max_size=3),
    st.sampled_from(["relu", "tanh"]),
    st.booleans(),
    st.floats(-2.0, 2.0),
)
def test_the_constants_hold_at_random_networks(seed, hidden, activation, bias, log_reach):
    random = np.random.default_rng(seed)
    X = random.standard_normal((20, 3))
    y = random.integers(0, 4, 20)
    problem = MLP(X, y, hidden, n_classes=4, activation=activation, bias=bias)
    W = 10.0**log_reach * random.standard_normal((3, problem.d))
    spectral = problem.spectral_norms(W)
    biases = (
        np.stack([np.linalg.norm(b, axis=-1) for _, b in problem.layers(W)], -1) if bias else None
    )
    for r, w in enumerate(W):
        sizes, values = norms_and_losses(problem, w)
        for i, x in enumerate(X):
            bounds = theory.weak_growth_mlp(np.linalg.norm(x), spectral, biases)
            assert sizes[i] ** 2 <= bounds[r] * values[i] * (1 + 1e-9)


def test_special_cases_and_shapes():
    assert theory.weak_growth_mlp(2.0, [7.0]) == pytest.approx(theory.weak_growth_softmax(2.0))
    assert theory.weak_growth_mlp(2.0, [7.0], [1.0]) == pytest.approx(2 * KAPPA * 5.0)
    many = theory.weak_growth_mlp(1.0, np.ones((4, 3)))
    np.testing.assert_allclose(many, 6 * KAPPA)
    assert many.shape == (4,)


def test_bad_arguments_are_refused():
    for function in (theory.weak_growth_logistic, theory.weak_growth_softmax):
        for value in (-1.0, math.inf, math.nan):
            with pytest.raises(ValueError, match="row_norm"):
                function(value)
    for arguments, message in [
        ((-1.0, [1.0]), "row_norm"),
        ((1.0, [-1.0]), "spectral_norms"),
        ((1.0, []), "spectral_norms"),
        ((1.0, 1.0), "spectral_norms"),
        ((1.0, [1.0, 2.0], [1.0]), "bias_norms"),
    ]:
        with pytest.raises(ValueError, match=message):
            theory.weak_growth_mlp(*arguments)


@pytest.mark.parametrize(("reach", "read"), [(1.0, 1.0), (1e6, 16.0)])
def test_a_layer_behind_a_tanh_reads_at_most_what_that_puts_out(reach, read):
    layers = [LayerSizes(1.0, most=4.0), LayerSizes(3.0, 1.0)]
    assert growth_of_layers(reach, layers) == read
