"""Which constants a class inherits although it has formulas of its own."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

__all__ = ["outdated"]


def outdated(
    cls: type, constants: Collection[str], base: type | None = None
) -> dict[str, tuple[str, str, str]]:
    """Return the inherited constants that were stated for formulas that ``cls`` overrides.

    A constant is about the formulas of the class that states it. So it is outdated where a class
    that comes earlier in the method resolution order, a mixin too, overrides an attribute of that
    class, be it a formula, a helper or a number that the formulas read. Special methods, such as
    ``__init__`` and ``__repr__``, do not count.

    Parameters
    ----------
    cls : type
    constants : collection of str
        Names of attributes.
    base : type, optional
        What this class states are defaults, which are never outdated.

    Returns
    -------
    dict
        Name of the constant -> the class that overrides an attribute, the name of the attribute,
        and the class that states the constant.

    Examples
    --------
    >>> class Square:
    ...     mu = 1.0
    ...     def gradient(self, w):
    ...         return w
    >>> class Half(Square):
    ...     def gradient(self, w):
    ...         return 0.5 * w
    >>> outdated(Half, ["mu"])
    {'mu': ('Half', 'gradient', 'Square')}
    """
    order = cls.__mro__
    found: dict[str, tuple[str, str, str]] = {}
    for constant in constants:
        stated = next((k for k, kind in enumerate(order) if constant in vars(kind)), 0)
        if order[stated] is base:
            continue
        known = {name for kind in order[stated:] for name in vars(kind)}
        for kind in order[:stated]:
            for name in vars(kind):
                if name in known and name not in constants and not _is_special(name):
                    found.setdefault(constant, (kind.__name__, name, order[stated].__name__))
    return found


def _is_special(name: Any) -> bool:
    """Whether Python, or its module abc or typing, gives the name a meaning."""
    return name.startswith(("__", "_abc_", "_is_"))
