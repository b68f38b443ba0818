"""What the checks share: failing with a sentence, global random numbers, default problems."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np

__all__ = ["fail", "global_random_untouched", "optional_namespace", "quiet", "require"]


def fail(sentence: str, cause: BaseException | None = None) -> NoReturn:
    """Raise AssertionError with a sentence."""
    raise AssertionError(sentence) from cause


def require(holds: Any, sentence: str) -> None:
    """Raise AssertionError with a sentence unless something holds."""
    if not holds:
        raise AssertionError(sentence)


@contextmanager
def quiet() -> Iterator[None]:
    """Hide warnings and floating-point errors: whether they matter is decided by what comes out."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


@contextmanager
def global_random_untouched(what: str, seed: int = 0) -> Iterator[None]:
    """Fail where the random numbers that a process shares are drawn from; they stay as they were.

    They are seeded with ``seed`` meanwhile, so that what depends on them can be found out.
    """
    kept, kept_plain = np.random.get_state(), random.getstate()  # noqa: NPY002
    np.random.seed(seed)  # noqa: NPY002
    random.seed(seed)
    before: Any = np.random.get_state(), random.getstate()  # noqa: NPY002
    try:
        yield
        after: Any = np.random.get_state(), random.getstate()  # noqa: NPY002
        same = repr(before) == repr(after) and (before[0][1] == after[0][1]).all()
        require(
            same,
            f"{what} draws from the random numbers that the whole process shares (numpy.random or "
            "random), which a seed of the run does not repeat and an observer may know: draw from "
            "the source that is given",
        )
    finally:
        np.random.set_state(kept)  # noqa: NPY002
        random.setstate(kept_plain)


def optional_namespace() -> Any:
    """Return array_api_strict where it is installed, else None."""
    try:
        import array_api_strict
    except ImportError:
        return None
    return array_api_strict
