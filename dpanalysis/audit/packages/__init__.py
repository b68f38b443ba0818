"""Verdicts on released libraries: ``python -m dpanalysis packages``.

Every package is installed in an environment of its own and runs in a process of its own. A
*probe* (:mod:`.probes`) calls it there; the checks (:mod:`.claims`) run here, and yield the same
evidence as the claims of papers do.
"""
