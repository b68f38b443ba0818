"""What a result was made by: the code, the libraries and the processor that its bits depend on."""

from __future__ import annotations

import hashlib
import importlib.util
import platform
from functools import cache
from importlib.metadata import version
from pathlib import Path

__all__ = ["code_digest", "made_by"]


@cache
def code_digest(*packages: str) -> str:
    """Return a digest of the Python files of some packages, by name.

    Parameters
    ----------
    *packages : str
        Importable; what has no file (``__main__`` at a prompt) counts as empty.

    Examples
    --------
    >>> len(code_digest("dpanalysis"))
    16
    """
    digest = hashlib.sha256()
    for package in packages:
        try:
            spec = importlib.util.find_spec(package)
        except ValueError:  # __main__
            spec = None
        folders = list(spec.submodule_search_locations or ()) if spec else []
        files = [path for folder in folders for path in sorted(Path(folder).rglob("*.py"))]
        if not files and spec and spec.origin and Path(spec.origin).is_file():
            files = [Path(spec.origin)]
        for path in files:
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


@cache
def made_by(module: str) -> dict[str, str]:
    """Return what results of a function of ``module`` depend on here.

    Parameters
    ----------
    module : str
        Where the function is defined.

    Returns
    -------
    dict
        Digest of the sources (of this package and of the module's own), versions, processor.

    Examples
    --------
    >>> sorted(made_by("dpanalysis.theory"))
    ['code', 'numba', 'numpy', 'processor', 'python', 'scipy']
    """
    packages = dict.fromkeys(("dpanalysis", module.partition(".")[0]))
    return {
        "code": code_digest(*packages),
        "python": platform.python_version(),
        **{name: version(name) for name in ("numpy", "scipy", "numba")},
        "processor": _processor(),
    }


def _processor() -> str:
    """Return the processor's name: libraries choose their code by it, and round by their code."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if "model name" in line)
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
