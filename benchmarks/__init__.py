"""Speed beside peers, as ratios of medians within one run: ``python -m benchmarks``.

Each module has ``run(quick) -> list of rows``; a row has ``work``, ``ours_ms``, ``peer``,
``peer_ms``, ``ratio`` and ``target``, and may have ``best_and_worst``, the extremes of the ratio
over the repetitions. Never part of the tests.
"""

BENCHMARKS = [
    "kernels",
    "networks",
    "lmi",
    "allocation",
    "accounting",
    "audit",
    "startup",
    "figures",
]
