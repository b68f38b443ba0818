"""Verdicts on released libraries: ``python -m verdicts``.

Every package is installed in a separate environment and runs in a separate process. A *probe*
(:mod:`.probes`) calls it there; the checks (:mod:`.claims`) run in this process and yield evidence
like the claims of papers.
"""
