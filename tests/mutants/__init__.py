"""Mutation testing: small faults in the package, and whether the tests detect them.

``python -m tests.mutants --help`` says how to run it.
"""
