"""Lazy imports of the names of a package."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from typing import Any


def on_first_use(
    package: str, names: Mapping[str, str], modules: Collection[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` for a package with lazy imports.

    ``names`` maps submodules, or sibling modules with a leading dot, to the public names that each
    defines (after a colon, its name there); ``modules`` are imported by their own names.
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
            setattr(sys.modules[package], name, value)  # later accesses bypass __getattr__
            return value
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def listed_names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes, *modules})

    return get, listed_names
