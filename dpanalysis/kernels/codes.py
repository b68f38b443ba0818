"""Numbers that kernels and their callers share.

The kernels know a formula by its number; :mod:`dpanalysis.kernels.twins` has the table.
"""

LOGISTIC, SQUARED_ERROR, HINGE, HUBERIZED_HINGE = 0, 1, 2, 3
UNCLIPPED, FLAT, AUTOMATIC, PER_SAMPLE_ADAPTIVE, VALUE = 0, 1, 2, 3, 4

SHARED_BLOCK = 4  # the dense kernel for many iterates takes whole blocks of features and iterates
