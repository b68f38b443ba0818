"""Codes of the built-in formulas; :mod:`dpanalysis.kernels.kernel_table` maps classes to them."""

LOGISTIC, SQUARED_ERROR, HINGE, HUBERIZED_HINGE = 0, 1, 2, 3
UNCLIPPED, FLAT, AUTOMATIC, PER_SAMPLE_ADAPTIVE, VALUE = 0, 1, 2, 3, 4

SHARED_BLOCK = 4  # the dense kernel for replicates pads features and replicates to multiples
