"""Names of a package that are imported on first use."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any


def on_first_use(
    package: str,
    names: Mapping[str, str],
    modules: Collection[str] = (),
    moved: Mapping[str, str] = MappingProxyType({}),
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package.

    ``names`` maps modules below it, or beside it with a leading dot, to the public names that each
    defines (a colon before another name there); ``modules`` stand for themselves; ``moved`` maps
    former names to new ones, with a warning.
    """
    homes = {name: home for home, listed in names.items() for name in listed.split()}

    def get(name: str) -> Any:
        if name in modules:
            return import_module(f"{package}.{name}")
        if name in homes:
            home, _, attribute = homes[name].partition(":")
            try:
                value = getattr(import_module(f".{home}", package), attribute or name)
            except ModuleNotFoundError as error:
                if str(error.name).partition(".")[0] != "sklearn":
                    raise
                raise ModuleNotFoundError(
                    f"{package}.{name} needs scikit-learn: "
                    "pip install 'dpanalysis-toolkit[sklearn]'",
                    name="sklearn",
                ) from None
            setattr(sys.modules[package], name, value)  # found without this the next time
            return value
        if name in moved:
            warnings.warn(
                f"{package}.{name} is now {moved[name].replace(':', '.')}",
                DeprecationWarning,
                stacklevel=2,
            )
            home, _, attribute = moved[name].partition(":")
            return getattr(import_module(home), attribute) if attribute else import_module(home)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def listed_names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes, *modules})

    return get, listed_names
