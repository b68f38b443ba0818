"""How sums over samples are computed: compiled (dense, CSR) and array-API twins.

The number of threads is Numba's (``numba.set_num_threads``, ``NUMBA_NUM_THREADS``); it
changes the time, never the result.
"""

import os

# An idle thread of GNU OpenMP spins for milliseconds before it sleeps. Where another process
# wants the core, every parallel sum then waits for the scheduler: measured 20 times slower,
# against nothing lost by a short spin. Read when the threads start, so set before that;
# whoever has set it, or OMP_WAIT_POLICY, is left alone.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "2000")
