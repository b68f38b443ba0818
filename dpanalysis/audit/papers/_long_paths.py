"""Certified bounds beside exact errors after many steps."""

from __future__ import annotations

import numpy as np

from ... import theory
from ...errors import CertificateNotFound
from ..registry import Effort
from ._smooth import Step, expected_gaps, log_uniform, random_smooth

__all__ = ["certified_paths"]


def certified_paths(effort: Effort, T: int) -> float:
    """Return the largest exact error / verified bound after many steps.

    Eight steps have noise, so that all 2^8 paths can be followed.
    """
    random, worst = effort.random(16), 0.0
    for _ in range(effort.cases(30, 300)):
        mu, step_size = log_uniform(random, 0.01, 0.9), log_uniform(random, 0.05, 1.0)
        beta = random.uniform(0.0, 0.5)
        try:
            found = theory.heavy_ball_certificate(step_size, beta, mu, 1.0)
        except CertificateNotFound:
            continue
        function, start = random_smooth(random, mu, 1.0, 2), random.standard_normal(2)
        noises = np.zeros((T, 2))
        active = random.choice(T, size=8, replace=False)  # the paths branch there
        noises[active] = random.standard_normal((8, 2)) * log_uniform(random, 1e-3, 10.0)
        steps = [Step(step_size, beta, 0.0)] * T
        gaps = expected_gaps(function, steps, start, noises)
        moment = float((noises * noises).sum(1).max())
        V0 = found.lyapunov(float(np.linalg.norm(start)), float(gaps[0]))
        bounds = np.asarray(found.bound(np.arange(1, T + 1), V0, moment))
        worst = max(worst, float((gaps[1:] / bounds).max()))
    return worst
