"""Pages of the public names, made of the modules' ``__all__``; needs nothing of Sphinx."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

__all__ = ["MODULES", "OPTIONAL", "pages", "public"]

#: In the order of the site: what is run, what is proved, what is tested, what is around it.
MODULES = (
    "dpanalysis",
    "dpanalysis.problems",
    "dpanalysis.losses",
    "dpanalysis.regularizers",
    "dpanalysis.clipping",
    "dpanalysis.methods",
    "dpanalysis.privacy",
    "dpanalysis.privacy.events",
    "dpanalysis.privacy.mechanisms",
    "dpanalysis.privacy.queries",
    "dpanalysis.theory",
    "dpanalysis.linear_model",
    "dpanalysis.preprocessing",
    "dpanalysis.tuning",
    "dpanalysis.datasets",
    "dpanalysis.experiments",
    "dpanalysis.audit",
    "dpanalysis.audit.attack",
    "dpanalysis.audit.strategies",
    "dpanalysis.testing",
    "dpanalysis.plotting",
    "dpanalysis.errors",
)
#: Pages that need other libraries: module -> what it needs.
OPTIONAL = {"dpanalysis.opacus": "PyTorch and Opacus", "dpanalysis.problems.modules": "PyTorch"}


def public(module: ModuleType) -> dict[str, Any]:
    """Return the public names of a module with what they stand for."""
    return {name: getattr(module, name) for name in module.__all__}


def pages() -> Iterator[tuple[str, str]]:
    """Yield the name of each module and its page in reStructuredText."""
    homes: dict[int, str] = {}
    for name in MODULES:
        yield name, _page(name, homes)
    for name, needs in OPTIONAL.items():
        try:
            text = _page(name, homes)
        except ImportError:
            text = _head(name) + f"Built without {needs}, which this module needs.\n"
        yield name, text


def _head(name: str) -> str:
    return f"{name}\n{'=' * len(name)}\n\n"


def _page(name: str, homes: dict[int, str]) -> str:
    module = import_module(name)
    modules, others, data, own = [], [], [], []
    for each, value in sorted(public(module).items()):
        full = f"{name}.{each}"
        if inspect.ismodule(value):
            modules.append(f"- :doc:`{full} <{full}>`")
        elif not callable(value):
            data.append(f".. autodata:: {full}\n   :no-value:\n")
        elif id(value) in homes:
            others.append(f"- ``{each}`` is :obj:`{homes[id(value)]}`")
        else:
            homes[id(value)] = full
            own.append(f"   {each}")
    text = _head(name) + f".. automodule:: {name}\n\n"
    if own:
        names = "\n".join(own)
        text += f".. currentmodule:: {name}\n\n.. autosummary::\n   :toctree: names\n   "
        text += f":nosignatures:\n\n{names}\n\n"
    for part in ("\n".join(others), "\n".join(modules), "\n".join(data)):
        text += f"{part}\n\n" if part else ""
    return text
