"""Design rows: bounded rows with a constant 1, and the data-dependent steps before the fit.

A fit inspects the pipelines that call it, and traces the private bounds passed to it.
"""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MethodType
from typing import Any

import numpy as np
import scipy.sparse as sp
from joblib import Parallel
from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.pipeline import FeatureUnion, Pipeline

from ..preprocessing.columns import LearnedRanges, PublicColumns, columns_of, fits_in, learned_by
from ..preprocessing.encoder import PublicEncoder
from ..preprocessing.private_bounds import PrivateBounds
from ..privacy.facts import Block
from ..problems.row_bound import RowBound, as_bounds, implied_radius, with_constant
from ..problems.rows.checks import row_scale

#: Modules of scikit-learn that may fit an estimator several times to the same records.
REPEATING = (
    *("sklearn.calibration", "sklearn.ensemble", "sklearn.feature_selection"),
    *("sklearn.model_selection", "sklearn.multiclass", "sklearn.multioutput"),
    *("sklearn.impute", "sklearn.linear_model", "sklearn.semi_supervised"),
)
#: Line of the card where the fit is one of several.
SEVERAL = (
    "other fits of the same search, cross-validation or ensemble: each costs epsilon again, and "
    "more for a record that an ensemble has drawn several times"
)
_UNSEEN = (
    "whatever was learned from these records before this fit and is not in the ledger, such as "
    "bounds, a scale or a choice of columns: the fit does not see where its features and its "
    "bounds come from"
)
_STEPS = "steps before the model, which may have learned from these records: {}"


@dataclass(frozen=True)
class Upstream:
    """What a fit knows about the computations before it."""

    learned: tuple[LearnedRanges, ...] = ()  # private fits that learned ranges, without duplicates
    not_counted: tuple[str, ...] = ()  # lines of the card about other possible data access
    steps: str = ""  # names of pipeline steps that may have learned from the records
    repeated: bool = False  # whether scikit-learn fits the estimator several times


def upstream_of(
    X: Any, bounds: Any, design: Any, relation: str, of_targets: Sequence[LearnedRanges] = ()
) -> Upstream:
    """Return the steps before the calling ``fit``; ``of_targets`` learned the targets' range."""
    frames = list(_callers())
    steps = [step for each in _owners(frames, Pipeline) for _, step in each.steps[:-1]]
    transformers = [leaf for step in steps for leaf in _leaves(step)]
    targets = [
        each.transformer_
        for each in _owners(frames, TransformedTargetRegressor)
        if each.transformer is not None or _mixes_records(each.func)
    ]
    known = PublicEncoder, PrivateBounds
    leaves = [*transformers, *(leaf for step in targets for leaf in _leaves(step))]
    others = [type(step).__name__ for step in leaves if type(step) not in known]
    columns = [getattr(each, "columns_", None) for each in estimators_in([*steps, *targets])]
    columns.append(getattr(design, "columns", None))
    fits = [fit for each in columns if isinstance(each, PublicColumns) for fit in each.learned]
    learned = added_under(relation, [*learned_by(X), *fits, *of_targets])
    names = ", ".join(dict.fromkeys(others))
    repeated = any(map(_fits_several_times, frames))
    unseen = bounds is not None or (columns_of(X) is None and not transformers)
    unseen |= _in_worker(frames)
    notes = [(_UNSEEN, unseen), (_STEPS.format(names), names), (SEVERAL, repeated)]
    return Upstream(learned, tuple(note for note, holds in notes if holds), names, repeated)


def added_under(relation: str, fits: Iterable[LearnedRanges]) -> tuple[LearnedRanges, ...]:
    """Return each fit once; raise ValueError unless all learned under the relation."""
    for fit in (learned := tuple(dict.fromkeys(fits))):
        if fit.relation != relation:
            raise ValueError(
                f"relation must be that under which bounds were learned, {fit.relation!r}, since "
                f"their epsilon is added to the fit's, got {relation!r}: give PrivateBounds and "
                "the estimator the same"
            )
    return learned


def _mixes_records(function: Any) -> bool:
    """Return whether a function of targets mixes records, such as one that centers them."""
    if function is None:
        return False
    some = np.array([[-2.0], [0.5], [3.0], [7.0]])
    try:
        with np.errstate(all="ignore"):
            together, alone = function(some), [function(each[None]) for each in some]
            return not np.allclose(together, np.concatenate(alone), 1e-9, 0.0, equal_nan=True)
    except Exception:  # a user's function may raise anything on values outside its domain
        return True


def columns_before(X: Any) -> PublicColumns | None:
    """Return the columns of the pipeline step right before the caller, if X is its DataFrame."""
    around = _owners(_callers(), Pipeline)
    step: Any = _last(step for each in around[::-1] for _, step in each.steps[:-1])
    while isinstance(step, Pipeline):
        step = _last(each for _, each in step.steps)
    if type(step) not in (PublicEncoder, PrivateBounds) or not hasattr(X, "columns"):
        return None
    same = list(X.columns) == list(step.get_feature_names_out())
    return step.columns_ if same else None


def _last(steps: Iterable[Any]) -> Any:
    return next(reversed([each for each in steps if each not in (None, "passthrough")]), None)


def _callers() -> Iterator[Any]:
    """Yield the frames above the caller's: a frame that holds itself would be a cycle."""
    frame: Any = sys._getframe(2)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _fits_several_times(frame: Any) -> bool:
    """Return whether a frame belongs to a meta-estimator that fits its estimator several times."""
    owner = frame.f_locals.get("self") if frame.f_code.co_varnames[:1] == ("self",) else None
    within = str(frame.f_globals.get("__name__")).startswith(REPEATING)
    return within and type(owner).__name__ != "FixedThresholdClassifier"


def _in_worker(frames: Iterable[Any]) -> bool:
    """Return whether joblib runs this in a worker, where the frames of the caller are missing."""
    names = [(frame, str(frame.f_globals.get("__name__"))) for frame in frames]
    of_joblib = [frame for frame, name in names if name.partition(".")[0] == "joblib"]
    return bool(of_joblib) and not _owners(of_joblib[-1:], Parallel)


def _owners(frames: Iterable[Any], kind: type) -> list[Any]:
    """Return the instances of ``kind`` whose methods are on the stack."""
    methods = [frame for frame in frames if frame.f_code.co_varnames[:1] == ("self",)]
    owners = [frame.f_locals.get("self") for frame in methods]
    return list({id(each): each for each in owners if isinstance(each, kind)}.values())


_NUMBERING = "BaggingClassifier", "StackingClassifier", "VotingClassifier"


def check_numbering(declared: int) -> None:
    """Raise if a meta-estimator that encodes labels has not seen ``declared`` of them."""
    for each in _owners(list(_callers()), BaseEstimator):
        seen = len(getattr(each, "classes_", ()))
        if type(each).__name__ in _NUMBERING and 0 < seen != declared:
            raise ValueError(
                f"classes must be those of y in a {type(each).__name__}, which numbers the "
                f"{seen} that it sees, got {declared}"
            )


_OWN_LABELS = (
    *("sklearn.ensemble", "sklearn.multiclass", "sklearn.multioutput", "sklearn.calibration"),
    "sklearn.model_selection._classification_threshold",
)


def declared_classes(*columns: Any) -> tuple[Any, ...]:
    """Return the classes declared beside the first columns that have some.

    None in a meta-estimator that passes on labels of its own, or of several targets, or that takes
    those of y alone.
    """
    names = (str(frame.f_globals.get("__name__")) for frame in _callers())
    if any(name.startswith(_OWN_LABELS) for name in names):
        return ()
    return next(filter(None, (getattr(each, "classes", ()) for each in columns)), ())


def _leaves(step: Any) -> list[Any]:
    """Return the transformers nested in a step; "passthrough" and "drop" are none."""
    if step is None or isinstance(step, str):
        return []
    if isinstance(step, ColumnTransformer):
        if any(callable(columns) for *_, columns in step.transformers):
            return [step]  # a column selector may look at the records
        parts = [*(each[1] for each in step.transformers), step.remainder]
    elif isinstance(step, (Pipeline, FeatureUnion)):
        parts = [each[1] for each in getattr(step, "steps", None) or step.transformer_list]
    else:
        return [step]
    return [leaf for part in parts for leaf in _leaves(part)]


def estimators_in(values: Iterable[Any], seen: set[int] | None = None) -> Iterator[BaseEstimator]:
    """Yield the estimators among ``values`` and, recursively, in their attributes, each once."""
    seen, kept = set() if seen is None else seen, []
    for value in values:
        value = value.__self__ if isinstance(value, MethodType) else value
        if id(value) in seen:
            continue
        if isinstance(value, np.ndarray) and value.dtype == object:
            value = value.ravel().tolist()
        if isinstance(value, (list, tuple, dict)):
            seen.add(id(value))
            kept.append(value)  # keep it alive, so that its id is not reused
            yield from estimators_in(value.values() if isinstance(value, dict) else value, seen)
        elif isinstance(value, BaseEstimator) or type(value).__module__.startswith("sklearn."):
            seen.add(id(value))
            if isinstance(value, BaseEstimator):
                yield value
            yield from estimators_in(getattr(value, "__dict__", {}).values(), seen)


# Design rows


# Numeric columns of a sparse matrix that may become dense: at most this many, or this share of all.
_MOST_CENTERED, _SHARE_CENTERED = 32, 0.25
_LENGTH = 4.0  # largest length of scaled rows when only norm bounds are known
_FARTHEST = 2.0**40  # largest entry of rows before they are scaled down to norm bounds

#: Line of the card where no bounds were declared.
NO_BOUNDS = "No bounds were declared: every feature was clipped to the range from -1 to 1."
#: Line of the card where the bounds were learned privately.
LEARNT_BOUNDS = "Every feature is clipped to a range that was learned from the data and paid for."


@dataclass(frozen=True, eq=False)
class ColumnDesign:
    r"""Design of rows bounded by columns: numbers in [-1, 1], the constant 1, then indicators.

    A number x in [low, high] becomes :math:`(2x - low - high)/(high - low)`, which changes
    only the intercept and the unit of its weight. So the numbers and the constant lie in
    one cube, an :math:`L_\infty` ball, and each group of indicators in an :math:`L_1` ball.

    Without an intercept numbers are not centered, but divided by the largest magnitude in their
    range. The same holds for sparse rows with many numbers, which centering would make dense. The
    entries of such sparse rows are clipped to the range extended to 0.
    """

    columns: PublicColumns
    intercept: bool
    sparse: bool

    @property
    def _indicator_columns(self) -> np.ndarray:
        return np.setdiff1d(np.arange(self.columns.d), self.columns.numbers)

    @property
    def _scales(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the centers and half widths of the ranges of the numbers."""
        numbers = self.columns.numbers
        low, high = (np.asarray(end)[numbers] for end in (self.columns.low, self.columns.high))
        most = max(_MOST_CENTERED, _SHARE_CENTERED * self.columns.d)
        if not self.intercept or (self.sparse and len(numbers) > most):
            return np.zeros(len(numbers)), np.maximum(abs(low), abs(high))
        return 0.5 * low + 0.5 * high, 0.5 * high - 0.5 * low

    def _ends(self, dtype: Any, center: np.ndarray, half: np.ndarray) -> tuple[Any, Any]:
        """Return the scaled ends of the ranges: -1 and 1 for numbers that are centered."""
        ends = (
            np.asarray(end)[self.columns.numbers] for end in (self.columns.low, self.columns.high)
        )
        low, high = ((end / half).clip(-1.0, 1.0).astype(dtype) for end in ends)
        return np.where(center, -1.0, low), np.where(center, 1.0, high)

    @property
    def row_bound(self) -> RowBound:
        """Blockwise bound on the rows returned by :meth:`rows`."""
        cube = len(self.columns.numbers) + self.intercept
        blocks = [Block(cube, math.inf, 1.0)] if cube else []
        blocks += [Block(stop - start, 1, 1.0) for start, stop in self.columns.groups]
        return RowBound(tuple(blocks), 1.0)

    @np.errstate(all="ignore")  # a warning would reveal a record
    def rows(self, X: Any) -> Any:
        """Return the design rows, each computed from the same row of X."""
        numbers, indicators = self.columns.numbers, self._indicator_columns
        center, half = _in_precision(X.dtype, *self._scales)
        low, high = self._ends(X.dtype, center, half)
        if sp.issparse(X):
            scaled, ones = X[:, numbers], X[:, indicators]
            if center.any():
                dense = (scaled.toarray() - center) / half
                scaled = sp.csr_array(np.clip(dense, low, high))
            else:
                scaled = sp.csr_array(scaled @ sp.diags_array(1.0 / half))
                low, high = (each[scaled.indices] for each in (low.clip(max=0), high.clip(min=0)))
                np.clip(scaled.data, low, high, out=scaled.data)
            ones.sum_duplicates()
            np.clip(ones.data, 0.0, 1.0, out=ones.data)  # their sum may overflow: an error
            one = [sp.csr_array(np.ones((X.shape[0], 1), dtype=X.dtype))] * self.intercept
            return sp.hstack([scaled, *one, ones], format="csr")
        m = len(numbers)
        D = np.empty((X.shape[0], m + self.intercept + len(indicators)), dtype=X.dtype)
        np.subtract(_columns_at(X, numbers), center, out=D[:, :m])
        D[:, :m] /= half
        np.clip(D[:, :m], low, high, out=D[:, :m])
        if self.intercept:
            D[:, m] = 1.0
        np.clip(_columns_at(X, indicators), 0.0, 1.0, out=D[:, m + self.intercept :])
        return D

    def weights(self, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return coefficients (k, d) and intercepts (k,) for X from design weights (k, D)."""
        numbers, (center, half) = self.columns.numbers, self._scales
        m = len(numbers)
        coef = np.empty((len(w), self.columns.d))
        coef[:, numbers] = w[:, :m] / half
        coef[:, self._indicator_columns] = w[:, m + self.intercept :]
        constant = w[:, m] if self.intercept else np.zeros(len(w))
        return coef, constant - coef[:, numbers] @ center


def _in_precision(dtype: Any, shift: np.ndarray, size: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return shift and size in the precision of the rows; raise if they overflow or vanish."""
    # Decided by the bounds only: with a range that rounds to 0, some rows would become NaN.
    with np.errstate(over="ignore", under="ignore", divide="ignore"):
        shift, size = shift.astype(dtype), size.astype(dtype)
        kept = [np.isfinite(each).all() for each in (shift, size, 1.0 / size)]
    if not all(kept):
        raise ValueError(f"bounds must be ranges and norms that {dtype} numbers can have")
    return shift, size


def _columns_at(X: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Return the columns at these indices, as a view if they are contiguous."""
    if len(places) and (np.diff(places) == 1).all():
        return X[:, places[0] : places[-1] + 1]
    return X[:, places]


@dataclass(frozen=True, eq=False)
class RowDesign:
    """Design of scaled rows with bounded norms and the constant 1; ``bounds`` are unscaled."""

    bounds: Sequence[RowBound]
    d: int
    intercept: bool

    @property
    def _scale(self) -> float:
        return min(math.sqrt(self.d), _LENGTH) / implied_radius(self.bounds, 2, self.d)

    @property
    def _scaled_bounds(self) -> list[RowBound]:
        return [replace(b, radius=self._scale * b.radius) for b in self.bounds]

    @property
    def row_bound(self) -> list[RowBound]:
        """Bounds on the rows returned by :meth:`rows`."""
        scaled = self._scaled_bounds
        return [with_constant(b) for b in scaled] if self.intercept else scaled

    @np.errstate(all="ignore")  # a warning would reveal a record
    def rows(self, X: Any) -> Any:
        """Return the design rows, each computed from the same row of X."""
        scale, _ = _in_precision(X.dtype, np.array(self._scale), np.ones(()))
        # Cut first where a norm would overflow, which would be an error: it would reveal a record.
        if sp.issparse(X):
            X = X.copy()
            X.sum_duplicates()  # their sum may overflow, too
            np.clip(X.data * scale, -_FARTHEST, _FARTHEST, out=X.data)
            one = [sp.csr_array(np.ones((X.shape[0], 1), dtype=X.dtype))] * self.intercept
            return sp.hstack([self._within(X), *one], format="csr")
        D = np.ones((X.shape[0], self.d + self.intercept), dtype=X.dtype)
        D[:, : self.d] = self._within(np.clip(X * scale, -_FARTHEST, _FARTHEST))
        return D

    def _within(self, rows: Any) -> Any:
        """Return the rows scaled down to the bounds; later the constant would shrink with them."""
        factors = row_scale(rows, self._scaled_bounds) if self.intercept else None
        if factors is None:
            return rows
        kept = factors[:, None].astype(rows.dtype)
        return sp.csr_array(rows.multiply(kept)) if sp.issparse(rows) else rows * kept

    def weights(self, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return coefficients (k, d) and intercepts (k,) for X from design weights (k, D)."""
        constant = w[:, self.d] if self.intercept else np.zeros(len(w))
        return self._scale * w[:, : self.d], constant


@contextmanager
def in_file(parts: Iterable[np.ndarray]) -> Iterator[np.memmap]:
    """Write rows to a temporary file and yield them memory-mapped, never all in memory."""
    with tempfile.TemporaryDirectory() as folder:
        path, shape, dtype = Path(folder, "rows"), (0, 0), np.dtype(np.float64)
        with open(path, "wb") as file:
            for rows in parts:
                file.write(np.ascontiguousarray(rows).data)
                shape, dtype = (shape[0] + len(rows), rows.shape[1]), rows.dtype
        if not shape[0]:
            raise ValueError("there are no rows")
        yield np.memmap(path, dtype, "r", shape=shape)


def design_of(
    bounds: Any, attached: PublicColumns | None, d: int, intercept: bool, sparse: bool
) -> tuple[ColumnDesign | RowDesign, str]:
    """Return the design for the given or attached bounds, and the card's line about them."""
    note = "Every feature is clipped to a range that was given as public."
    if bounds is None and attached is not None:
        bounds = attached
        note = "Every feature is clipped to its declared public range."
    if bounds is None:
        note = NO_BOUNDS
        columns = PublicColumns(np.full(d, -1.0), np.ones(d))
    elif isinstance(bounds, PublicColumns):
        columns = bounds
    elif isinstance(bounds, RowBound) or (
        isinstance(bounds, Sequence) and any(isinstance(b, RowBound) for b in bounds)
    ):
        rows = as_bounds(bounds)
        if any(isinstance(bound.order, tuple) for bound in rows):
            raise TypeError("bounds by blocks must be given as PublicColumns")
        norms = ", ".join(f"L{bound.order:g} norm at most {bound.radius:g}" for bound in rows)
        return RowDesign(rows, d, intercept), f"Rows are scaled down to public bounds: {norms}."
    else:
        columns = _columns(bounds, d)
    if columns.d != d:
        raise ValueError(f"bounds are for {columns.d} features, and X has {d}")
    if columns.learned:
        note = LEARNT_BOUNDS
    return ColumnDesign(columns, intercept, sparse), note


def _columns(bounds: Any, d: int) -> PublicColumns:
    """Return columns with the ranges ``(low, high)``, numbers or arrays of shape (d,)."""
    if d == 2 and type(bounds) is list and all(type(end) is tuple for end in bounds):
        raise ValueError(
            f"bounds = {bounds!r} may be one pair for each of the 2 features: give (low, high), "
            "with two arrays, ([low, low], [high, high])"
        )
    try:
        fits = list(fits_in(bounds))
        if any(np.asarray(end).dtype.kind in "US" for end in bounds):
            raise TypeError("texts are no numbers")
        if any(np.shape(end) == (1,) for end in bounds) and d > 1:
            raise ValueError("one of several columns")
        low, high = (np.broadcast_to(np.asarray(end, dtype=np.float64), (d,)) for end in bounds)
    except (TypeError, ValueError):
        raise ValueError(
            f"bounds must be (low, high) for all features or for each of the {d}, as two arrays "
            f"([low, ...], [high, ...]), PublicColumns, or RowBound, got {bounds!r}"
        ) from None
    try:
        return PublicColumns(low, high, learned=tuple(fits))
    except ValueError as error:
        raise ValueError(f"bounds: {error}") from None
