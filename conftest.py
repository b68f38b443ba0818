"""Doctests of modules whose library is not installed are left out, and the head says so."""

import os
from importlib.util import find_spec

# What cannot even be imported: path -> the libraries that it needs.
NEEDS = {
    "dpanalysis/problems/modules": ("torch",),
    "dpanalysis/opacus.py": ("torch", "opacus"),
    "tests/doctests/test_modules.txt": ("torch",),
}
MISSING = {
    path: names
    for path, libraries in NEEDS.items()
    if (names := [name for name in libraries if find_spec(name) is None])
}
collect_ignore = list(MISSING)


def pytest_report_header():
    """Say what is left out, and why."""
    return [
        f"no doctests of {path}: not installed: {', '.join(names)} (pip install torch==2.13.0)"
        for path, names in MISSING.items()
    ]


def pytest_configure(config):
    """Give each of several processes one thread for matrix products: else they wait for others'.

    Tests of several threads ask for them.
    """
    if getattr(config.option, "numprocesses", None):
        for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
            os.environ.setdefault(name, "1")
