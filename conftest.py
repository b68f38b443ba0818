"""What is left out: doctests of modules whose library is not installed, and tests marked slow."""

import hashlib
import os
from importlib.util import find_spec

import pytest

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


@pytest.fixture(autouse=True)
def registrations(request):
    """Undo what an example of the package registers."""
    if not request.node.name.startswith("dpanalysis.papers"):
        yield
        return
    from dpanalysis.papers import claim, registry

    registry.load()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "_CLAIMS", dict(registry._CLAIMS))
        patch.setattr(claim, "_PAPERS", dict(claim._PAPERS))
        yield


def pytest_configure(config):
    """Give each of several processes one thread for matrix products: else they wait for others'.

    Tests of several threads ask for them.
    """
    if getattr(config.option, "numprocesses", None):
        for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
            os.environ.setdefault(name, "1")


def pytest_addoption(parser):
    """Add ``--slow``."""
    parser.addoption(
        "--slow",
        metavar="WHICH",
        help="tests marked slow run, too: 'all', or any other word, which draws a twentieth, "
        "or the share that a mark states (default: those named by FILE::TEST)",
    )


def pytest_collection_modifyitems(config, items):
    """Leave out the slow tests that nobody asked for; notebooks, the longest file, come first."""
    items.sort(key=lambda item: "test_notebooks" not in item.nodeid)
    which = config.option.slow
    if which == "all" or any("::" in argument for argument in config.args):
        return

    def is_left_out(item):
        mark = item.get_closest_marker("slow")
        if mark is None or not which:
            return mark is not None
        place = hashlib.sha256(f"{which} {item.nodeid}".encode()).digest()[0]
        return place >= 256 * mark.kwargs.get("share", 0.05)

    left_out = [item for item in items if is_left_out(item)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if not is_left_out(item)]
