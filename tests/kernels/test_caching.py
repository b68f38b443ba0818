"""Cached kernels: invalid after any source has changed, optional on a read-only file system."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import dpanalysis
from dpanalysis import _numba
from dpanalysis.kernels import csr, dense, norms, scalar, tile
from dpanalysis.privacy import _compiled

PROGRAM = """
import warnings
import numba.core.caching

def refuse(self):
    raise OSError("read-only file system")

numba.core.caching._CacheLocator.ensure_cache_path = refuse
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import numpy as np
    import dpanalysis.kernels.dense
    from dpanalysis.privacy.accounting.sampling import Poisson
    print(len(Poisson(0.5).draw(1000, np.random.default_rng(0))))
print([str(one.message).partition(":")[0] for one in caught])
"""


def test_kernels_need_no_folder():
    command = [sys.executable, "-c", PROGRAM]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    size, warned = run.stdout.splitlines()
    assert 400 < int(size) < 600
    assert warned == "['compiled kernels cannot be cached']"


SOURCES = """
import pathlib, sys
from dpanalysis import _numba

package = pathlib.Path(_numba.__file__).parent
compiled = [p for p in sorted(package.rglob("*.py")) if "_numba import" in p.read_text()]
kept = [*(package / "kernels").glob("*.py"), *compiled, *package.glob("_numba.py")]

def hits():
    _numba._STAMP = _numba.sources_digest(package)
    kernel = _numba.njit(**_numba.FAST)(_add)
    assert kernel(1.0, 2.0) == 3.0
    return sum(kernel.stats.cache_hits.values())

def _add(a, b):
    return a + b

assert hits() == 0 and hits() == 1
for path in sorted(set(kept)):
    path.write_text(path.read_text() + "# changed\\n")
    print(path.relative_to(package), hits(), hits())
"""


def test_a_kept_kernel_is_refused_when_any_file_of_kernels_has_changed(tmp_path):
    """Numba itself checks only the file of the called kernel."""
    shutil.copytree(Path(dpanalysis.__file__).parent, tmp_path / "dpanalysis")
    (tmp_path / "program.py").write_text(SOURCES)
    run = subprocess.run(
        [sys.executable, "program.py"],
        cwd=tmp_path, env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "kept")},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    told = dict(line.split(" ", 1) for line in run.stdout.splitlines())
    assert {"kernels/scalar.py", "kernels/tile.py", "privacy/_compiled.py", "_numba.py"} <= {*told}
    assert set(told.values()) == {"0 1"}
    kernels = Path(scalar.__file__).parent.glob("*.py")
    assert {f"kernels/{path.name}" for path in kernels} <= {*told}


def test_every_kept_kernel_has_the_digest_of_the_sources():
    """Also the callback of the built-in formulas."""
    found = [dense, csr, norms, scalar, tile, _compiled]
    kept = [each for module in found for each in vars(module).values() if hasattr(each, "_cache")]
    caches = [*(each._cache for each in kept), tile.built_in_terms()._cache]
    stamps = {cache._cache_file._source_stamp for cache in caches if hasattr(cache, "_cache_file")}
    assert stamps == {_numba.sources_digest(Path(dpanalysis.__file__).parent)}
