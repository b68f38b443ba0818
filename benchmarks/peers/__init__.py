"""What stands beside us: one module a library, none imports dpanalysis.

A function ``work(**arguments)`` returns its calls by name, ready to be timed.
"""
