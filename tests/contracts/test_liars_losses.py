"""Losses and rules that violate the contract, each found with a message naming the violation."""

import contextlib
import math
import random

import numpy as np
import pytest

from dpanalysis import clipping, kernels, losses, testing
from dpanalysis.kernels import kernel_table
from dpanalysis.testing import formulas
from dpanalysis.testing._tools import global_random_untouched

CALLS = []


class Pseudo(losses.Loss):
    """A valid base class: sqrt(1 + (1 - yz)^2) - 1, a smooth loss of the margin."""

    classification, convex = True, True
    lipschitz, smoothness, hessian_lipschitz = 1.0, 1.0, 0.86

    def value(self, z, y):
        return np.hypot(1.0, 1.0 - y * z) - 1.0

    def derivative(self, z, y):
        gap = 1.0 - y * z
        return -y * gap / np.hypot(1.0, gap)

    def second_derivative(self, z, y):
        return np.hypot(1.0, 1.0 - y * z) ** -3.0


def slope_of_logistic(self, z, y):
    return -y / (1.0 + np.exp(y * z))


def loss(**members):
    """Return a loss with the given members and the constants of ``Pseudo``."""
    name = members.pop("name", "Liar")
    stated = ("convex", "lipschitz", "smoothness", "hessian_lipschitz")
    kept = {constant: getattr(Pseudo, constant) for constant in stated}
    return type(name, (Pseudo,), {"__module__": __name__, **kept, **members})()


class Halved(losses.Logistic):
    """Half of the formulas and constants of a built-in loss, which old kernels ignored."""

    lipschitz, smoothness, hessian_lipschitz = 0.5, 0.125, 0.05

    def value(self, z, y):
        return 0.5 * super().value(z, y)

    def derivative(self, z, y):
        return 0.5 * super().derivative(z, y)

    def second_derivative(self, z, y):
        return 0.5 * super().second_derivative(z, y)


def bumped(z, y):
    """A derivative that is too large on a short interval only."""
    return Pseudo().derivative(z, y) * np.where(np.abs(z - 3.3) < 0.004, 1.5, 1.0)


def pinched(z, y):
    """A derivative that is too large near 0 only."""
    return Pseudo().derivative(z, y) * np.where((np.abs(z) < 1e-3) & (z != 0.0), 1.5, 1.0)


def bump(z, y):
    inside = np.clip(z - 3.0, 0.0, 0.004)
    return Pseudo().value(z, y) + 0.6 * inside


def test_the_steepest_place_of_a_function_is_found():
    for center in (-7.3, 0.0, 1.3):
        slope, place = formulas._steepest(lambda z, c=center: np.tanh(50.0 * (z - c)), 1.0, 1e-5)
        assert slope == pytest.approx(50.0, rel=1e-4) and place == pytest.approx(center, abs=1e-3)
    slope, place = formulas._steepest(lambda z: np.where(z < 0.7, 0.0, 1e-3), 1.0, 1e-5)
    assert slope > 10.0 and place == pytest.approx(0.7, abs=1e-3)  # a jump


@pytest.mark.parametrize(("function", "slope"), [(np.sin, np.cos), (np.exp, np.exp)])
def test_differences_are_the_slope(function, slope):
    z = np.linspace(-3.0, 3.0, 13)
    np.testing.assert_allclose(formulas._differences(function)(z), slope(z), rtol=1e-7)


@pytest.mark.parametrize("fails", [True, False])
def test_the_random_sources_of_the_process_are_seeded_and_restored(fails):
    def states():
        return np.random.get_state()[1].tolist(), random.getstate()  # noqa: NPY002

    before, seen = states(), []
    for seed in (1, 2, 1):
        with contextlib.suppress(AssertionError), global_random_untouched("it", seed=seed):
            seen.append(states())
            assert not fails
        assert states() == before
    assert seen[0] == seen[2]
    assert all(one != other for one, other in zip(seen[0], seen[1]))


def calls(self, z, y):
    CALLS.append(1)
    return Pseudo.value(self, z, y) + 1e-6 * len(CALLS)


def counted(self, z, y):
    self.count = getattr(self, "count", 0) + 1
    return Pseudo.value(self, z, y)


def overflowing(self, z, y):
    gap = 1.0 - y * z
    return -y * gap * np.exp(gap) / (np.exp(gap) * np.hypot(1.0, gap))


def relabelling(self, z, y):
    """Write to labels of which the value is a function of the sign alone."""
    y *= 2.0
    return Pseudo.value(self, z, np.sign(y))


def keeping():
    """Return a formula that keeps what it is called with in an enclosed list."""
    kept = []

    def value(self, z, y):
        kept.append(float(np.max(z, initial=0.0)))
        return Pseudo.value(self, z, y)

    return value


class Base(Pseudo):
    """A user's base class, which keeps what its subclasses are called with."""

    most = 0.0

    def value(self, z, y):
        Base.most = max(Base.most, float(np.max(z, initial=0.0)))
        return super().value(z, y)


class Kept(Base):
    convex, lipschitz, smoothness, hessian_lipschitz = True, 1.0, 1.0, 0.86


class CannotTravel(Pseudo):
    def __init__(self):
        self.scale = lambda: 1.0


LOSSES = [
    (loss(lipschitz=0.99), r"Liar.lipschitz is 0.99, but .* y = -?1"),
    (loss(smoothness=0.9), r"Liar.smoothness is 0.9, but the derivative changes by (0\.99|1 )"),
    (loss(hessian_lipschitz=0.855), "Liar.hessian_lipschitz is 0.855, but the second derivative"),
    (
        loss(hessian_lipschitz=0.8, second_derivative=losses.Loss.second_derivative),
        "Liar.hessian_lipschitz is 0.8, but the second derivative",
    ),
    (
        loss(value=lambda self, z, y: bump(z, y)),
        r"lipschitz is 1, but the loss changes by 1\.|derivative is .* but differences",
    ),
    (loss(derivative=lambda self, z, y: bumped(z, y)), "smoothness is 1, but|but differences"),
    (loss(derivative=lambda self, z, y: pinched(z, y)), "smoothness is 1, but|but differences"),
    (
        loss(derivative=lambda self, z, y: 0.9 * Pseudo.derivative(self, z, y)),
        "Liar.derivative is .*, but differences of value give",
    ),
    (
        loss(second_derivative=lambda self, z, y: 0.5 * Pseudo.second_derivative(self, z, y)),
        "Liar.second_derivative is .*, but differences of derivative give",
    ),
    (loss(classification=False), "labels may be any real numbers; set it to True"),
    (
        loss(
            value=lambda self, z, y: np.cos(z) + 0.0 * y,
            derivative=lambda self, z, y: -np.sin(z) + 0.0 * y,
            second_derivative=lambda self, z, y: -np.cos(z) + 0.0 * y,
            hessian_lipschitz=1.0,
        ),
        "Liar.convex is True, but the derivative falls",
    ),
    (loss(growth=(0.3, 0.0)), r"Liar.weak_growth\(.*\) says .* squared gradient is"),
    (loss(smoothness=-1.0), "Liar.smoothness must be a number >= 0"),
    (loss(smoothness=math.nan), "Liar.smoothness must be a number >= 0"),
    (loss(convex=1), "Liar.convex must be True or False"),
    (
        loss(value=lambda self, z, y: Pseudo.value(self, z, y) - np.mean(y * z)),
        "Liar.value gives a sample other numbers beside other samples",
    ),
    *(
        (loss(value=form), "Liar.value gives a sample other numbers beside other samples")
        for form in (
            lambda self, z, y: Pseudo.value(self, z, y) - (np.ndim(z) == 1) * np.mean(y * z),
            lambda self, z, y: (
                Pseudo.value(self, z, y) - (np.shape(z)[1:] == (1,)) * np.mean(y * z)
            ),
        )
    ),
    (
        loss(value=lambda self, z, y: float(np.sum(z * y))),
        r"must return the shape of its arguments, \(0,\), got",
    ),
    (loss(derivative=overflowing), "Liar.derivative is nan at z = "),
    (
        loss(
            value=lambda self, z, y: np.sqrt(1.0 + np.exp(np.abs(z)) * 0.0 + (1 - y * z) ** 2) - 1
        ),
        "differences of value give nan to nan: value is nan there",
    ),
    (
        loss(value=lambda self, z, y: np.log1p(np.exp(-y * z)), derivative=slope_of_logistic),
        "Liar.derivative is .*, but differences of value give nan to nan: value is inf there",
    ),
    (loss(value=relabelling), "Liar.value writes to its arguments"),
    (loss(value=keeping()), "Liar.value changes attributes of its object or class, enclosed"),
    (Kept(), "Kept.value changes attributes of its object or class"),
    (loss(value=counted), "Liar.value changes attributes of its object or class"),
    (loss(value=calls), "Liar.value gives a sample other numbers beside other samples"),
    (
        loss(
            value=lambda self, z, y: Pseudo.value(self, z, y) + np.random.random() * 0.0,  # noqa: NPY002
        ),
        "shares",
    ),
    (
        loss(value=lambda self, z, y: Pseudo.value(self, z, y) + random.random() * 0.0),
        "shares",
    ),
    (CannotTravel(), "the loss cannot be pickled"),
    ("logistic", "extends dpanalysis.losses.Loss"),
]


class Travels(Pseudo):
    """The loss changes when pickled."""

    def __init__(self):
        self.size = 1.0

    def __getstate__(self):
        return {"size": 1.0 + 1e-9}

    def value(self, z, y):
        return self.size * super().value(z, y)


def valued(change):
    """Return a loss with values ``change(valid values, z, y)``."""
    return loss(value=lambda self, z, y: change(Pseudo.value(self, z, y), z, y))


def no_table(found, z, y):
    if np.ndim(z) == 2:
        raise ValueError("z must be a vector")
    return found


class Capped(losses.SquaredError):
    """The loss stops at residuals of 1e5, as a guard against overflow."""

    convex = True

    def value(self, z, y):
        return 0.5 * np.clip(z - y, -1e5, 1e5) ** 2

    def derivative(self, z, y):
        return np.where(np.abs(z - y) < 1e5, z - y, 0.0)

    def second_derivative(self, z, y):
        return np.where(np.abs(z - y) < 1e5, 1.0, 0.0)


class Weighted(losses.Loss):
    """Samples count by the squares of their labels; the constants hold for labels up to 30."""

    classification, convex = False, True
    lipschitz, smoothness, hessian_lipschitz = 900.0, 900.0, 900.0

    def value(self, z, y):
        return y * y * np.logaddexp(0.0, z)

    def derivative(self, z, y):
        return y * y * np.exp(-np.logaddexp(0.0, -z))


MORE = [
    (
        loss(derivative=lambda self, z, y: (1.0 + 5e-5) * Pseudo.derivative(self, z, y)),
        "Liar.lipschitz is 1, but derivative is 1.000[0-9]* in size",
    ),
    (
        loss(
            derivative=lambda self, z, y: (1.0 + 5e-5) * Pseudo.derivative(self, z, y),
            lipschitz=1.00006,
            second_derivative=lambda self, z, y: (
                (1.0 + 9e-5) * Pseudo.second_derivative(self, z, y)
            ),
        ),
        "Liar.smoothness is 1, but (second_derivative is 1.000[0-9]* in|the derivative changes)",
    ),
    (
        loss(derivative=lambda self, z, y: Pseudo.derivative(self, z, y) * (1 + (abs(z) > 1e100))),
        r"Liar.derivative is -2.0 at z = -1e\+300|Liar.derivative is 2.0 at z = -1e\+300",
    ),
    (
        valued(lambda found, z, y: np.where(np.abs(z) > 1e100, np.nan, found)),
        r"Liar.value is nan at z = -1e\+300",
    ),
    (
        valued(lambda found, z, y: found + np.log1p(np.exp(np.where(z > 999.0, z, 0.0))) * 0.0),
        "Liar.value (warns at predictions up to 1e3 in float64|is nan)|differences of value give",
    ),
    (
        valued(lambda found, z, y: found + (np.exp(np.abs(z)) if z.dtype == "f" else 0.0) * 1e-30),
        "Liar.value warns at predictions up to 1e3 in float32",
    ),
    (
        valued(lambda found, z, y: np.full_like(found, np.inf) if z.dtype == "f" else found),
        "Liar.value is not finite at predictions up to 1e3 in float32",
    ),
    (
        valued(lambda found, z, y: found if len(z) else np.zeros(1)),
        r"must return the shape of its arguments, \(0,\), got \(1,\)",
    ),
    (
        valued(lambda found, z, y: found if z.shape == y.shape else found[:, :1]),
        r"\(4, 1\) and \(1, 3\) must have shape \(4, 3\)",
    ),
    (valued(no_table), r"Liar.value fails for arrays of shape \(4, 3\)"),
    (Travels(), "a pickled copy of the loss has other values"),
    (Capped(), "Capped.convex is True, but the derivative falls from .* to 0 at z = 1e.06"),
    (Weighted(), "Weighted.lipschitz is 900, but the loss changes by .* y = -10000"),
    (
        loss(growth=(2.0, 0.0), _remainder=lambda self, beta1: 0.0),
        r"Liar.weak_growth\(0.5, 0.0\) says \(0, 0\), but",
    ),
]


@pytest.mark.parametrize(("liar", "message"), LOSSES, ids=[str(k) for k in range(len(LOSSES))])
def test_a_loss_that_breaks_the_contract_is_found(liar, message):
    with pytest.raises(AssertionError, match=message):
        testing.check_loss(liar, devices=False, compiled=False)


@pytest.mark.parametrize(("liar", "message"), MORE, ids=[str(k) for k in range(len(MORE))])
def test_other_violations_of_a_loss_are_found(liar, message):
    with pytest.raises(AssertionError, match=message):
        testing.check_loss(liar, devices=False, compiled=False)


def test_other_numbers_on_other_arrays_are_found():
    pytest.importorskip("array_api_strict")

    class Elsewhere(losses.Logistic):
        def value(self, z, y):
            return super().value(z, y) * (1.0 if isinstance(z, np.ndarray) else 1.001)

    with pytest.raises(AssertionError, match="value gives other numbers on arrays of array_api_st"):
        testing.check_loss(Elsewhere(), compiled=False)


def test_valid_losses_pass():
    testing.check_loss(Pseudo(), devices=False, compiled=False)
    far = loss(value=lambda self, z, y: 1e6 + Pseudo.value(self, z, y))  # differences are rounded
    testing.check_loss(far, devices=False, compiled=False)
    testing.check_loss(Halved(), compiled=False)


def test_a_formula_for_numpy_only_is_reported():
    # Older namespaces accept NumPy's functions, and give other numbers.
    told = (
        r"write it in array_api_compat.array_namespace|over another library's arrays are not those"
    )
    with pytest.raises(AssertionError, match=told):
        testing.check_loss(Pseudo(), compiled=False)


def test_a_kernel_of_other_formulas_is_found(monkeypatch):
    """This happened when a subclass inherited the kernel of its base class."""
    monkeypatch.setitem(kernel_table._LOSSES, Halved, (kernels.LOGISTIC, None))
    with pytest.raises(AssertionError, match="the sums of losses over NumPy arrays are not those"):
        testing.check_loss(Halved(), compiled=False)


def test_compiled_sums_of_other_formulas_are_found(monkeypatch):
    """Here those of a loss twice as large; a formula may also be compiled to give others."""
    monkeypatch.setattr(losses, "compiled", lambda loss: losses.Logistic())
    with pytest.raises(AssertionError, match="sums of losses over NumPy arrays, compiled are not"):
        testing.check_loss(Halved())


def test_a_formula_that_is_another_when_it_is_compiled_is_found():
    class Wraps(Rule):
        def wanted(self, norms, losses):
            three = 3  # a power of an integer of 64 bits has the last 64 bits when compiled
            return three**50 / 3.0**50 / (1.0 + norms)

    with pytest.raises(AssertionError, match=r"cannot be compiled: .* compiled, at norm = "):
        testing.check_clipping(Wraps(), devices=False)


class Rule(clipping.Clipping):
    """A valid base class."""

    clip_norm = 2.0

    def wanted(self, norms, losses):
        return 1.0 / (1.0 + norms)


class Whole(Rule):
    """It overrides ``weight`` without limiting it."""

    def weight(self, norms, losses=None):
        return np.ones_like(norms)


def rule(**members):
    return type("Liar", (Rule,), {"__module__": __name__, **members})()


def remembering(self, norms, losses):
    self.seen = float(norms[..., :1].sum()) if isinstance(norms, np.ndarray) else 0.0
    return 1.0 / (1.0 + norms)


class Forgets(Rule):
    """The rule changes when pickled."""

    def __init__(self):
        self.size = 1.0

    def __getstate__(self):
        return {"size": 0.9}

    def wanted(self, norms, losses):
        return self.size / (1.0 + norms)


RULES = [
    (Forgets(), "a pickled copy of the rule has other weights"),
    (rule(clip_norm=-1.0), "Liar.clip_norm must be a number > 0"),
    (rule(clip_norm=math.inf), "Liar.clip_norm must be finite"),
    (Whole(), r"Whole.clip_norm is 2, but the weighted norm at norm = .* is over it"),
    (
        rule(weight=lambda self, norms, losses=None: 3.0 / (1.0 + norms)),
        r"Liar.clip_norm is 2, but|Liar.largest_weight is 1, but the weight at norm = 0 is 3",
    ),
    (
        rule(weight=lambda self, norms, losses=None: 1.0 / (1.0 + norms) - 0.2),
        "not a finite number >= 0",
    ),
    (
        rule(wanted=lambda self, norms, losses: 1.0 / (1.0 + norms.mean()) + 0.0 * norms),
        "Liar.weight gives a sample other numbers beside other samples",
    ),
    (
        rule(wanted=lambda self, norms, losses: np.arange(norms.size).reshape(norms.shape) % 2),
        "Liar.weight gives a sample other numbers",
    ),
    (
        rule(wanted=lambda self, norms, losses: np.exp(-losses) / (1.0 + norms)),
        "for other losses|Liar.weight gives",
    ),
    (
        rule(wanted=lambda self, norms, losses: np.where(norms < 2.0, 0.5 * (losses > 1.0), 0.0)),
        "for other losses",
    ),
    (rule(wanted=remembering), "Liar.weight changes attributes of its object or class"),
    (rule(needs_losses="no"), "needs_losses must be True or False"),
    (1.0, "extends dpanalysis.clipping.Clipping"),
]


@pytest.mark.parametrize(("liar", "message"), RULES, ids=[str(k) for k in range(len(RULES))])
def test_a_rule_that_breaks_the_contract_is_found(liar, message):
    with pytest.raises(AssertionError, match=message):
        testing.check_clipping(liar, compiled=False)


def test_valid_rules_pass():
    testing.check_clipping(Rule(), compiled=False)


def test_a_kernel_of_another_rule_is_found(monkeypatch):
    monkeypatch.setitem(kernel_table._RULES, Rule, (kernels.FLAT, ()))
    with pytest.raises(AssertionError, match="the sums of gradients over NumPy arrays are not"):
        testing.check_clipping(Rule(), compiled=False)
