"""Functions that use released packages: one file per package, run where it is installed.

They import NumPy, the standard library and, inside functions, the package.
"""
