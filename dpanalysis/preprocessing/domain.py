"""Domains of the columns of a table: declared by the owner of the data, never read off them."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Categories", "Range", "parse_domain", "read_domain", "template", "text_of"]

_UNFILLED = "FILL IN"


def is_missing(value: Any) -> bool:
    """Whether a cell is empty: None, NaN, NaT, NA, or text of blanks.

    Examples
    --------
    >>> [is_missing(value) for value in (None, float("nan"), "  ", "0", 0)]
    [True, True, True, False, False]
    """
    if value is None:
        return True
    if isinstance(value, str):
        return not value.strip()
    try:
        return bool(value != value)  # NaN and NaT
    except TypeError:  # pandas.NA has no truth value
        return True


def text_of(value: Any) -> str:
    """Return how a category is written: ``1``, ``1.0`` and ``"1"`` are one.

    Examples
    --------
    >>> [text_of(value) for value in (1, 1.0, "1", True, " a ")]
    ['1', '1', '1', 'True', 'a']
    """
    if isinstance(value, str):
        return value.strip()
    try:
        if not isinstance(value, bool) and float(value).is_integer():
            return str(int(value))
    except (TypeError, ValueError, OverflowError):
        pass
    return str(value)


@dataclass(frozen=True)
class Range:
    """Numbers from ``low`` to ``high``; a missing one counts as ``missing``, if that is declared.

    A number outside counts as the nearest end.
    """

    low: float
    high: float
    missing: float | None = None

    width = 1

    def to_dict(self) -> dict[str, Any]:
        """Return what :func:`parse_domain` reads."""
        kept: dict[str, Any] = {"range": [self.low, self.high]}
        return kept if self.missing is None else {**kept, "missing": self.missing}


@dataclass(frozen=True)
class Categories:
    """Texts; a missing one counts as the category ``missing``, if that is declared."""

    values: tuple[str, ...]
    missing: str | None = None

    @property
    def width(self) -> int:
        """Number of indicators."""
        return len(self.values)

    def to_dict(self) -> dict[str, Any]:
        """Return what :func:`parse_domain` reads."""
        kept: dict[str, Any] = {"categories": list(self.values)}
        return kept if self.missing is None else {**kept, "missing": self.missing}


def parse_domain(domain: Mapping[str, Any]) -> dict[str, Range | Categories]:
    """Return the domain of every column.

    Parameters
    ----------
    domain : mapping of str
        ``(low, high)``, a list of categories, or a mapping with ``"range"`` or ``"categories"``
        and perhaps ``"missing"``: the number, or the category, that stands for an empty cell. A
        category for empty cells that is not in the list is added to it.

    Raises
    ------
    ValueError, TypeError
        Naming the column, if its domain is not one.

    Examples
    --------
    >>> parse_domain({"age": (17, 90), "job": {"categories": ["a", "b"], "missing": "?"}})
    {'age': Range(low=17.0, high=90.0, missing=None),
     'job': Categories(values=('a', 'b', '?'), missing='?')}
    """
    if not isinstance(domain, Mapping) or not domain:
        raise TypeError(
            'domain must be a mapping such as {"age": (17, 90), "job": ["a", "b"]}, got '
            f"{domain!r}"
        )
    return {str(name): _parse(str(name), declared) for name, declared in domain.items()}


def _parse(name: str, declared: Any) -> Range | Categories:
    if isinstance(declared, (Range, Categories)):
        return declared
    if isinstance(declared, Mapping):
        kinds = [kind for kind in ("range", "categories") if kind in declared]
        unknown = set(declared) - {"range", "categories", "missing"}
        if len(kinds) != 1 or unknown:
            raise ValueError(
                f"domain of column {name!r}: must have 'range' or 'categories', and perhaps "
                f"'missing', got {dict(declared)!r}"
            )
        missing = declared.get("missing")
        if kinds == ["range"]:
            return _range(name, declared["range"], missing)
        return _categories(name, declared["categories"], missing)
    if isinstance(declared, str) or not isinstance(declared, Iterable):
        why = "not filled in yet: " if declared == _UNFILLED else ""
        raise ValueError(
            f"domain of column {name!r}: {why}declare a range such as [0, 100] or categories "
            f'such as ["yes", "no"], got {declared!r}'
        )
    values = list(declared)
    return _range(name, values, None) if _is_pair(values) else _categories(name, values, None)


def _is_pair(values: list[Any]) -> bool:
    return len(values) == 2 and all(_is_number(value) for value in values)


def _is_number(value: Any) -> bool:
    return not isinstance(value, (str, bool)) and hasattr(value, "__float__")


def _range(name: str, declared: Any, missing: Any) -> Range:
    values = [] if isinstance(declared, str) else list(declared)
    numbers = values if missing is None else [*values, missing]
    if len(values) != 2 or not all(_is_number(v) and math.isfinite(float(v)) for v in numbers):
        raise ValueError(
            f"domain of column {name!r}: a range must be two finite numbers, and what is missing "
            f"one, got {declared!r} and {missing!r}"
        )
    low, high = (float(value) for value in values)
    if not low < high:
        raise ValueError(
            f"domain of column {name!r}: low must be below high, got {low:g} and {high:g}"
        )
    return Range(low, high, None if missing is None else float(missing))


def _categories(name: str, declared: Any, missing: Any) -> Categories:
    values = [] if isinstance(declared, str) else [text_of(value) for value in declared]
    if missing is not None and text_of(missing) not in values:
        values.append(text_of(missing))
    if not values or len(set(values)) < len(values) or _UNFILLED in values:
        raise ValueError(
            f"domain of column {name!r}: categories must be a list of different values, got "
            f"{declared!r}"
        )
    return Categories(tuple(values), None if missing is None else text_of(missing))


def read_domain(path: str | os.PathLike[str]) -> tuple[dict[str, Range | Categories], list[str]]:
    r"""Return the domains and the classes of a TOML file.

    Parameters
    ----------
    path : str or path-like
        With a table ``[columns]``, and perhaps ``classes``, the list of the labels.

    Raises
    ------
    ValueError
        Naming what is wrong.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "domain.toml")
    ...     _ = path.write_text('classes = ["no", "yes"]\n[columns]\nage = [17, 90]\n')
    ...     read_domain(path)
    ({'age': Range(low=17.0, high=90.0, missing=None)}, ['no', 'yes'])
    """
    import tomllib

    try:
        with open(path, "rb") as file:
            content = tomllib.load(file)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not TOML: {error}") from error
    columns = content.get("columns")
    unknown = set(content) - {"columns", "classes"}
    if not isinstance(columns, dict) or unknown:
        raise ValueError(
            f"{path}: must have a table [columns], and perhaps classes = [...], got "
            f"{', '.join(map(repr, content)) or 'nothing'}"
        )
    classes = content.get("classes", [])
    if not isinstance(classes, list) or any(value == _UNFILLED for value in classes):
        raise ValueError(f"{path}: classes must be a list of labels, got {classes!r}")
    try:
        return parse_domain(columns), [text_of(value) for value in classes]
    except (TypeError, ValueError) as error:
        raise type(error)(f"{path}: {error}") from None


def template(names: Iterable[str]) -> str:
    """Return a TOML file with the columns' names, and with their domains to be filled in.

    Examples
    --------
    >>> print(template(["age"]).splitlines()[-1])
    "age" = "FILL IN"
    """
    import json

    lines = [
        "# Fill in, for every column, what can occur: from the code book, never from these data.",
        "#   a number:    [0, 100]            or {range = [0, 100], missing = 40}",
        '#   categories:  ["a", "b", "c"]     or {categories = ["a", "b"], missing = "unknown"}',
        "# Values outside a range count as its nearest end. Delete the columns that are not used.",
        '# classes = ["no", "yes"]            # the labels: otherwise they are read off the data',
        "",
        "[columns]",
    ]
    lines += [f"{json.dumps(name, ensure_ascii=False)} = {json.dumps(_UNFILLED)}" for name in names]
    return "\n".join(lines) + "\n"
