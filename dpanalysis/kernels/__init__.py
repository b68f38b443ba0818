"""Sums over samples: compiled kernels for dense and CSR data, and the same sums by array-API calls.

The number of threads is Numba's (``numba.set_num_threads``, ``NUMBA_NUM_THREADS``); it
changes the time, never the result.
"""
