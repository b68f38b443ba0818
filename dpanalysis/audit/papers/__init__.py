"""The claims of each paper: one module a paper, listed in :mod:`dpanalysis.audit.registry`."""
