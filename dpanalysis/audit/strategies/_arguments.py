"""Arguments that all strategies share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from hypothesis import strategies as st

from ..._validation import check_int

__all__ = ["SIGN", "UNIT", "Draw", "Size", "choice", "sizes"]

Draw: TypeAlias = Callable[[st.SearchStrategy[Any]], Any]
Size: TypeAlias = int | tuple[int, int]

SIGN = st.sampled_from([1.0, -1.0])
UNIT = st.floats(-1.0, 1.0, allow_subnormal=False)


def sizes(name: str, value: Size, low: int = 1) -> st.SearchStrategy[int]:
    """Return integers of a range given as one number or as (smallest, largest)."""
    if isinstance(value, (tuple, list)):
        if len(value) != 2:
            raise ValueError(f"{name} must be an integer or (smallest, largest), got {value!r}")
        first = check_int(name, value[0], low=low)
        return st.integers(first, check_int(name, value[1], low=first))
    return st.just(check_int(name, value, low=low))


def choice(value: Any, default: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return ``value`` as a strategy: itself, the default for None, else that value alone."""
    if value is None:
        return default
    return value if isinstance(value, st.SearchStrategy) else st.just(value)
