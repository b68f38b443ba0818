"""Sums over samples: compiled kernels for dense and CSR data, and the same sums by array-API calls.

The number of threads is Numba's (``numba.set_num_threads``, ``NUMBA_NUM_THREADS``); it
changes the time, never the result.
"""

# Codes of the built-in formulas; kernel_table maps classes to them.
LOGISTIC, SQUARED_ERROR, HINGE, HUBERIZED_HINGE, HUBER = 0, 1, 2, 3, 4
UNCLIPPED, FLAT, AUTOMATIC, PER_SAMPLE_ADAPTIVE, VALUE = 0, 1, 2, 3, 4

SHARED_BLOCK = 4  # the dense kernel for replicates pads features and replicates to multiples
