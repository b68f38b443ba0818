"""Runs jax-privacy."""

from __future__ import annotations

from typing import Any

import numpy as np


def epsilons(kind: str, sampling: str, settings: list[dict[str, Any]]) -> np.ndarray:
    """Return the epsilons reported by the DP-SGD accountant; rates are batch_size / num_samples."""
    from jax_privacy import accounting

    config = {"pld": accounting.PldAccountantConfig, "rdp": accounting.RdpAccountantConfig}[kind]
    accountant = accounting.DpsgdTrainingAccountant(dp_accountant_config=config())
    found = []
    for setting in settings:
        params = accounting.DpParams(
            noise_multipliers=setting["sigma"],
            num_samples=setting["records"],
            delta=setting["delta"],
            batch_size=setting["batch"],
            sampling_method=accounting.SamplingMethod[sampling],
        )
        found.append(accountant.compute_epsilon(setting["steps"], params))
    return np.array(found, dtype=float)


def batches(
    records: int, rate: float, batches: int, truncated: int | None, seed: int
) -> np.ndarray:
    """Return the membership of records in batches; shape (batches, records)."""
    from jax_privacy import batch_selection

    strategy = batch_selection.CyclicPoissonSampling(
        sampling_prob=rate, iterations=batches, truncated_batch_size=truncated
    )
    found = np.zeros((batches, records), dtype=np.uint8)
    for place, batch in enumerate(strategy.batch_iterator(records, rng=seed)):
        found[place, batch] = 1
    return found


def clipped_sum(rows: np.ndarray, clip_norm: float, factor: float = 1.0) -> np.ndarray:
    """Return the sum of clipped gradients; a record's gradient is the record times a factor."""
    import jax.numpy as jnp
    from jax_privacy import clipping

    gradient = clipping.clipped_grad(
        lambda w, x: factor * jnp.sum(w * x), l2_clip_norm=clip_norm, keep_batch_dim=False
    )
    return np.asarray(gradient(jnp.zeros(rows.shape[1]), jnp.asarray(rows)), dtype=float)
