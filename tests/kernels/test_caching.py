"""A package and a home that cannot be written: kernels are compiled in memory, with one warning."""

import subprocess
import sys

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
    from dpanalysis.privacy.sampling import Poisson
    print(len(Poisson(0.5).draw(1000, np.random.default_rng(0))))
print([str(one.message).partition(":")[0] for one in caught])
"""


def test_kernels_need_no_folder():
    command = [sys.executable, "-c", PROGRAM]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    size, warned = run.stdout.splitlines()
    assert 400 < int(size) < 600
    assert warned == "['compiled kernels cannot be kept']"
