"""How sums over samples are computed: compiled (dense, CSR) and array-API twins.

The number of threads is Numba's (``numba.set_num_threads``, ``NUMBA_NUM_THREADS``); it
changes the time, never the result.
"""
