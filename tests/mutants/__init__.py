"""Faults put into the package by a machine, and what the tests make of them.

``python -m tests.mutants --help`` says how to run it.
"""
