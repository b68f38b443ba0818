"""diffprivlib: mechanisms, tools and models."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy import special

from dpanalysis.papers.claim import Effort, Evidence, printed, used
from dpanalysis.privacy.accounting.zcdp import gaussian_delta

from ..protocol import Worker
from ..registry import Package, register
from ._tools import found, lower_bound, sampler

PACKAGE = Package(
    name="diffprivlib",
    version="0.6.6",
    probe=Path(__file__).parents[1] / "probes" / "diffprivlib.py",
    requirements=("scikit-learn==1.7.2",),
    setting="The documentation does not say who is a neighbour. What its sensitivities assume, one "
    "record replaced and the number of records public, is what is tested.",
)
MODELS = "docstring of `diffprivlib.models.{}`"


def _models(worker: Worker, name: str, read: list[str], **arguments: Any) -> Any:
    return sampler(worker, "fits", 500, name=name, read=read, **arguments)


def _rows(*values: float) -> np.ndarray:
    return np.array(values, dtype=float).reshape(-1, 1)


def _logistic_ratio(norm: float) -> float:
    """Return the largest log ratio of the coefficient's densities on two data sets.

    Three records with one feature, no intercept, C = 1, claim 1. At the optimum w the noise is
    b = -g(w), so that the density of w is that of the noise at -g(w) times the curvature at w. The
    constants are those of ``mechanisms.Vector``, which bounds the curvature by norm/4.
    """
    bend = 0.25 * norm
    left = 1.0 - 2.0 * math.log1p(bend)
    extra = 0.0 if left > 0.0 else (bend / math.expm1(0.25) - 1.0) / 3.0
    scale = 2.0 * norm / (left if left > 0.0 else 0.5)
    reach = np.geomspace(1e-7, 1e3, 20_001)
    w = np.concatenate([-reach[::-1], reach])

    def log_density(x: np.ndarray) -> np.ndarray:
        signed = x * np.array([-1.0, -1.0, 1.0])  # labels 0, 0, 1
        margins = np.outer(w, signed)
        gradient = -special.expit(-margins) @ signed + (1.0 + 3.0 * extra) * w
        slopes = special.expit(margins) * special.expit(-margins)
        return -np.abs(gradient) / scale + np.log(slopes @ signed**2 + 1.0 + 3.0 * extra)

    ratio = log_density(np.zeros(3)) - log_density(np.array([norm, 0.0, 0.0]))
    return float(np.max(np.abs(ratio)))


@register(
    PACKAGE,
    1,
    f"{MODELS.format('LogisticRegression')}; norm/4 is derived in the project's issue 10",
    "`LogisticRegression(epsilon, data_norm)`: 'epsilon-Differential privacy is achieved relative "
    "to the maximum norm of the data, as determined by data_norm'",
    "the same records scaled to norm 1, with `data_norm=1`: the bound of the curvature, norm/4 "
    "where norm^2/4 is needed, is then right",
    configuration="epsilon=1, C=1, fit_intercept=False, one feature; rows (100), (0), (0) and (0), "
    "(0), (0), labels 0, 0, 1; data_norm=100. Exact law also for data_norm=12, the value in the "
    "docstring's example",
    untested="more features, more classes, sparse data, warm starts, the generator without seed",
    verdict="corrected",
)
def logistic_norm(worker: Worker, effort: Effort) -> Iterator[Evidence]:
    """Test a large norm: the curvature is at most norm^2/4, but ``Vector`` receives norm/4."""
    samples = effort.cases(3_000, 30_000)
    labels = np.array([0, 0, 1])
    for norm, evidence in ((100.0, printed), (1.0, used)):
        mechanism = _models(
            worker, "LogisticRegression", ["coef_"], data_norm=norm, fit_intercept=False
        )
        pair = [{"X": _rows(x, 0.0, 0.0), "y": labels} for x in (norm, 0.0)]
        verdict = lower_bound(mechanism, (pair[0], pair[1]), 1.0, samples)
        yield evidence(**found(verdict, f"data_norm={norm:g}"))
    for norm, evidence in ((100.0, printed), (12.0, printed), (1.0, used)):
        yield evidence(
            f"data_norm={norm:g}: largest log ratio of the exact densities",
            _logistic_ratio(norm),
            "<=",
            1.0,
        )


_BOX = 40.0, 60.0  # largest coefficient and intercept that are looked at


def _intercept_densities(
    labels: np.ndarray, w: np.ndarray, c: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return both densities of coefficient and intercept.

    One feature, C = 1, data_norm = 1; all rows are 0, except the first of the second data set,
    which is 1. The noise has density exp(-|b|/scale)/(2 pi scale^2). Noise for which the objective
    has no minimum is not counted.
    """
    norm = math.sqrt(2.0)
    scale = 2.0 * norm / (1.0 - 2.0 * math.log1p(0.25 * norm))

    def density(x: float) -> np.ndarray:
        slope_w, slope_c = w.copy(), np.zeros_like(w)
        curve = [np.ones_like(w), np.zeros_like(w), np.zeros_like(w)]
        for row, label in zip([x] + [0.0] * (labels.size - 1), labels):
            margin = row * w + c
            residual = special.expit(margin) - label
            bend = special.expit(margin) * special.expit(-margin)
            slope_w, slope_c = slope_w + residual * row, slope_c + residual
            curve = [curve[0] + bend * row**2, curve[1] + bend * row, curve[2] + bend]
        determinant = np.maximum(curve[0] * curve[2] - curve[1] ** 2, 0.0)
        noise = np.exp(-np.hypot(slope_w, slope_c) / scale) / (2.0 * math.pi * scale**2)
        return noise * determinant

    return density(0.0), density(1.0)


def _intercept_delta(labels: np.ndarray) -> float:
    """Return a lower bound on delta at epsilon = 1 of coefficient and intercept, within a box."""
    w, c = np.meshgrid(*(np.linspace(-most, most, 401) for most in _BOX))
    cell = (w[0, 1] - w[0, 0]) * (c[1, 0] - c[0, 0])
    p, q = _intercept_densities(labels, w, c)
    return cell * max(float(np.maximum(a - math.e * b, 0.0).sum()) for a, b in ((p, q), (q, p)))


@register(
    PACKAGE,
    2,
    MODELS.format("LogisticRegression"),
    "`LogisticRegression(fit_intercept=True)`, the default: 'epsilon-Differential privacy is "
    "achieved'",
    "`fit_intercept=False` and a constant column, which the penalty covers",
    configuration="epsilon=1, C=1 (default), data_norm=1, one feature; all rows 0, but for the "
    "first, which is 0 or 1; labels 1, 0, 1, 0, ...; the exact law of the minimiser, of 5 and 30 "
    "records; and fits of 5 records, by whether the fit is in the set that these laws give. Twin: "
    "two records, columns x/sqrt(2) and 1/sqrt(2), data_norm=1, by runs",
    untested="what is returned where the noise leaves no minimum; other shapes of data",
    verdict="corrected",
)
def logistic_intercept(worker: Worker, effort: Effort) -> Iterator[Evidence]:
    """Test the intercept: without strong convexity in it, the curvature ratio is unbounded."""
    for records in (5, 30):
        labels = np.arange(records) % 2 == 0
        what = f"{records} records: delta of the exact densities at epsilon = 1, at least"
        yield printed(what, _intercept_delta(labels.astype(float)), "<=", 0.0, tolerance=1e-6)
    labels = np.arange(5) % 2 == 0
    fits = _models(worker, "LogisticRegression", ["coef_", "intercept_"], data_norm=1.0)

    def in_the_set(data: Any, rng: np.random.Generator, size: int) -> np.ndarray:
        w, c = fits(data, rng, size).T
        p, q = _intercept_densities(labels.astype(float), w, c)
        return (q > math.e * p) & (np.abs(w) < _BOX[0]) & (np.abs(c) < _BOX[1])

    pair = [{"X": _rows(x, 0.0, 0.0, 0.0, 0.0), "y": labels.astype(int)} for x in (0.0, 1.0)]
    verdict = lower_bound(in_the_set, (pair[0], pair[1]), 1.0, effort.cases(10_000, 30_000))
    yield printed(**found(verdict, "5 records, fits in the set"))
    labels, rows = np.array([1, 0]), [_rows(x, 0.0) for x in (0.0, 1.0)]
    mechanism = _models(worker, "LogisticRegression", ["coef_"], data_norm=1.0, fit_intercept=False)
    pair = [{"X": np.hstack([X, np.ones((2, 1))]) / math.sqrt(2.0), "y": labels} for X in rows]
    verdict = lower_bound(mechanism, (pair[0], pair[1]), 1.0, effort.cases(3_000, 10_000))
    yield used(**found(verdict, "constant column"))


@register(
    PACKAGE,
    3,
    MODELS.format("LinearRegression"),
    "`LinearRegression(epsilon, bounds_X, bounds_y)`: 'Differential privacy is guaranteed with "
    "respect to the training sample'",
    "bounds that are symmetric: the bound of a squared feature is taken from the lower end twice, "
    "so it is 0 where the lower end is 0 (reported in the project's issues 104 and 105; its pull "
    "request 110 mends it)",
    configuration="epsilon=1, fit_intercept=False, one feature, bounds_y=(0, 1), labels 0; rows "
    "(0.1), (1) and (0.1), (0); bounds_X=(0, 1). Twin: bounds_X=(-1, 1)",
    untested="fit_intercept=True, several features, several targets",
    verdict="corrected",
)
def linear_squares(worker: Worker, effort: Effort) -> Iterator[Evidence]:
    """Test lower bounds of 0, for which the sum of squares gets no noise."""
    samples = effort.cases(4_000, 40_000)
    pair = [{"X": _rows(0.1, x), "y": np.zeros(2)} for x in (1.0, 0.0)]
    for low, evidence in ((0.0, printed), (-1.0, used)):
        mechanism = _models(
            worker,
            "LinearRegression",
            ["coef_"],
            bounds_X=[low, 1.0],
            bounds_y=[0.0, 1.0],
            fit_intercept=False,
        )
        verdict = lower_bound(mechanism, (pair[0], pair[1]), 1.0, samples)
        yield evidence(**found(verdict, f"bounds_X=({low:g}, 1)"))


@register(
    PACKAGE,
    4,
    "docstring of `diffprivlib.tools.nanmean`",
    "`nanmean(array, epsilon, bounds)`: 'the differentially private arithmetic mean ..., ignoring "
    "NaNs'; 'sensitivity is calculated using bounds'",
    "`mean` of the entries that are numbers, if their number is public",
    configuration="epsilon=1, bounds=(0, 1); nine NaN and one entry, which is 0 or 1. Twin: that "
    "entry alone",
    untested="`nanvar`, `nanstd`, `nansum`, axes",
    verdict="corrected",
)
def nanmean(worker: Worker, effort: Effort) -> Iterator[Evidence]:
    """Test NaN: the sensitivity divides by the length, the mean by the count of numbers."""
    samples = effort.cases(10_000, 50_000)
    for missing, name, evidence in ((9, "nanmean", printed), (0, "mean", used)):
        pair = [{"values": np.array([x] + [math.nan] * missing)} for x in (0.0, 1.0)]
        mechanism = sampler(worker, "tool", name=name, epsilon=1.0, bounds=[0.0, 1.0])
        verdict = lower_bound(mechanism, (pair[0], pair[1]), 1.0, samples)
        yield evidence(**found(verdict, name))


@register(
    PACKAGE,
    5,
    MODELS.format("GaussianNB"),
    "`GaussianNB(epsilon, bounds)`: it 'adds noise to satisfy differential privacy to the learned "
    "means and variances'",
    "labels that are public: only a feature of the record is replaced",
    configuration="epsilon=1, bounds=(10, 11), one feature, six records at 10; the third has label "
    "0 or 1. Twin: it has label 0 and the feature 10 or 11",
    untested="several features, `partial_fit`, priors",
    verdict="corrected",
)
def naive_bayes(worker: Worker, effort: Effort) -> Iterator[Evidence]:
    """Test a changed label: it changes the sum of a class by up to 11, not by 11 - 10."""
    samples = effort.cases(8_000, 20_000)
    read = ["theta_", "var_", "class_count_"]
    mechanism = _models(worker, "GaussianNB", read, bounds=[10.0, 11.0])
    tens, labels = np.full(6, 10.0), np.array([0, 0, 0, 1, 1, 1])
    moved, changed = labels.copy(), tens.copy()
    moved[2], changed[2] = 1, 11.0
    first = {"X": tens[:, None], "y": labels}
    for second, evidence, what in (
        ({"X": tens[:, None], "y": moved}, printed, "another label"),
        ({"X": changed[:, None], "y": labels}, used, "another feature"),
    ):
        verdict = lower_bound(mechanism, (first, second), 1.0, samples)
        yield evidence(**found(verdict, what))


@register(
    PACKAGE,
    6,
    MODELS.format("KMeans"),
    "`KMeans(n_clusters, epsilon, bounds)`: 'K-Means clustering with differential privacy'; "
    "`inertia_` is among the attributes that it lists",
    "the centres alone",
    configuration="epsilon=1, n_clusters=1, bounds=(0, 1), records (0), (0) and (0), (1); read: "
    "centre c and inertia_ - 2 c^2",
    untested="several clusters, several features, `labels_`",
    verdict="corrected",
)
def k_means(worker: Worker, effort: Effort) -> Iterator[Evidence]:
    """Test the attribute that is computed from the records without noise."""
    samples = effort.cases(3_000, 20_000)
    pair = [{"X": _rows(0.0, x), "y": np.zeros(2)} for x in (0.0, 1.0)]
    fits = _models(
        worker, "KMeans", ["cluster_centers_", "inertia_"], n_clusters=1, bounds=[0.0, 1.0]
    )

    def both(data: Any, rng: Any, size: int) -> np.ndarray:
        centre, inertia = fits(data, rng, size).T
        return np.stack([centre, inertia - 2.0 * centre**2], axis=1)

    verdict = lower_bound(both, (pair[0], pair[1]), 1.0, samples)
    yield printed(**found(verdict, "centre and inertia_"))

    def centre(data: Any, rng: Any, size: int) -> np.ndarray:
        return fits(data, rng, size)[:, :1]

    verdict = lower_bound(centre, (pair[0], pair[1]), 1.0, samples)
    yield used(**found(verdict, "centre"))


# Mechanism, arguments, two inputs at the distance of the sensitivity, delta.
_MECHANISMS: tuple[tuple[str, dict[str, Any], tuple[Any, Any], float], ...] = (
    ("Laplace", {"sensitivity": 1.0}, (0.0, 1.0), 0.0),
    ("Laplace", {"sensitivity": 1.0, "delta": 0.1}, (0.0, 1.0), 0.1),
    ("LaplaceTruncated", {"sensitivity": 1.0, "lower": 0.0, "upper": 2.0}, (0.0, 1.0), 0.0),
    ("LaplaceFolded", {"sensitivity": 1.0, "lower": 0.0, "upper": 2.0}, (0.0, 1.0), 0.0),
    ("LaplaceBoundedDomain", {"sensitivity": 1.0, "lower": 0.0, "upper": 2.0}, (0.0, 1.0), 0.0),
    ("LaplaceBoundedNoise", {"sensitivity": 1.0, "delta": 0.1}, (0.0, 1.0), 0.1),
    ("Geometric", {"sensitivity": 2}, (0, 2), 0.0),
    ("GeometricTruncated", {"sensitivity": 1, "lower": 0, "upper": 3}, (0, 1), 0.0),
    ("GeometricFolded", {"sensitivity": 1, "lower": 0, "upper": 3}, (0, 1), 0.0),
    ("Gaussian", {"sensitivity": 1.0, "delta": 0.1}, (0.0, 1.0), 0.1),
    ("GaussianAnalytic", {"sensitivity": 1.0, "delta": 0.1}, (0.0, 1.0), 0.1),
    ("GaussianDiscrete", {"sensitivity": 1, "delta": 0.1}, (0, 1), 0.1),
    ("Staircase", {"sensitivity": 1.0}, (0.0, 1.0), 0.0),
    ("Snapping", {"sensitivity": 1.0, "lower": 0.0, "upper": 8.0}, (3.0, 4.0), 0.0),
)


@register(
    PACKAGE,
    7,
    "docstrings of `diffprivlib.mechanisms`",
    "each mechanism of numbers is (epsilon, delta)-differentially private for its sensitivity",
    configuration="; ".join(
        f"{name}({', '.join(f'{key}={value:g}' for key, value in given.items())}) at "
        f"{pair[0]:g} and {pair[1]:g}"
        for name, given, pair, _ in _MECHANISMS
    )
    + "; epsilon=1 each",
    untested="which of several neighbouring doubles is returned, mechanisms of categories and of "
    "matrices, epsilons other than 1, the generator without seed",
    verdict="holds",
)
def mechanisms(worker: Worker, effort: Effort) -> Iterator[Evidence]:
    """Run black-box tests of inputs at the distance of the sensitivity."""
    samples = effort.cases(10_000, 100_000)
    for name, given, (first, second), delta in _MECHANISMS:
        mechanism = sampler(worker, "mechanism", name=name, epsilon=1.0, **given)
        pair = {"value": first}, {"value": second}
        verdict = lower_bound(mechanism, pair, 1.0, samples, delta=delta)
        yield printed(**found(verdict, name))


@register(
    PACKAGE,
    8,
    "docstrings of `diffprivlib.mechanisms.Gaussian` and `GaussianAnalytic`",
    "their noise is large enough for (epsilon, delta), with epsilon 'in (0, 1]' for the one and "
    "'in (0, inf]' for the other",
    "epsilon of at most 5: beyond it the differences of `erf` lose delta in their rounding",
    configuration="sensitivity 1; delta from 1e-9 to 0.1, epsilon 0.01, 0.1, 1 (`Gaussian`) and "
    "0.1, 1, 5, 20 (`GaussianAnalytic`; twin: to 5); the standard deviation is the root of what "
    "`variance(0)` says",
    untested="smaller delta; that the noise drawn has this variance, beyond claim 7",
    verdict="corrected",
)
def calibration(worker: Worker, effort: Effort) -> Iterator[Evidence]:
    """Compare the exact delta of the added noise with the claimed delta."""
    deltas = np.geomspace(1e-9, 0.1, 9)

    def worst(name: str, epsilons: tuple[float, ...]) -> dict[str, Any]:
        ratios = []
        for epsilon, delta in itertools.product(epsilons, map(float, deltas)):
            given = {"epsilon": epsilon, "delta": delta, "sensitivity": 1.0}
            sigma = math.sqrt(worker.call("variance", name=name, **given))
            ratios.append(float(gaussian_delta(sigma, epsilon)) / delta)
        what = f"{name}, epsilon up to {epsilons[-1]:g}: largest exact delta / delta"
        # A bisection in doubles ends about 1e-6 from the root at the smallest delta.
        return {
            "what": what,
            "value": max(ratios),
            "sense": "<=",
            "bound": 1.0,
            "tolerance": 1e-5,
            "cases": len(ratios),
        }

    yield printed(**worst("Gaussian", (0.01, 0.1, 1.0)))
    yield printed(**worst("GaussianAnalytic", (0.1, 1.0, 5.0, 20.0)))
    yield used(**worst("GaussianAnalytic", (0.1, 1.0, 5.0)))
