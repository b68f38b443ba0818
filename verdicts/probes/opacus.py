"""Runs Opacus."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np


def epsilons(mechanism: str, settings: list[dict[str, Any]]) -> np.ndarray:
    """Return the epsilon reported by an accountant after the steps of each setting."""
    from opacus.accountants import create_accountant

    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for setting in settings:
            accountant = create_accountant(mechanism)
            accountant.history = [(setting["sigma"], setting["rate"], setting["steps"])]
            found.append(accountant.get_epsilon(delta=setting["delta"]))
    return np.array(found, dtype=float)


def stepped(mechanism: str, sigma: float, rate: float, steps: int, delta: float) -> float:
    """Return the epsilon reported by an accountant after a call of ``step`` for every step."""
    from opacus.accountants import create_accountant

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        accountant = create_accountant(mechanism)
        for _ in range(steps):
            accountant.step(noise_multiplier=sigma, sample_rate=rate)
        return float(accountant.get_epsilon(delta=delta))


def sampled(records: int, rate: float, batches: int, seed: int) -> int:
    """Return the total number of records in the batches drawn by the sampler."""
    import torch
    from opacus.utils.uniform_sampler import UniformWithReplacementSampler

    sampler = UniformWithReplacementSampler(
        num_samples=records,
        sample_rate=rate,
        generator=torch.Generator().manual_seed(seed),
        steps=batches,
    )
    return sum(len(batch) for batch in sampler)


def granularity(draws: int, seed: int) -> float:
    """Return the largest distance of the sampler's uniform numbers from multiples of 2**-24."""
    import torch

    drawn = torch.rand(draws, generator=torch.Generator().manual_seed(seed)).double() * 2.0**24
    return float((drawn - drawn.round()).abs().max())


def _layers() -> dict[str, Any]:
    """Return small networks, one per layer type, with a generator of records."""
    import torch
    from opacus.layers import DPLSTM, DPMultiheadAttention
    from torch import nn

    class Last(nn.Module):
        """The last output of a recurrent layer."""

        def __init__(self) -> None:
            super().__init__()
            self.layer = DPLSTM(3, 4, batch_first=True)

        def forward(self, x: Any) -> Any:
            return self.layer(x)[0][:, -1]

    class Attention(nn.Module):
        """Self-attention."""

        def __init__(self) -> None:
            super().__init__()
            self.layer = DPMultiheadAttention(4, 2, batch_first=True)

        def forward(self, x: Any) -> Any:
            return self.layer(x, x, x)[0].flatten(1)

    def floats(*shape: int) -> Any:
        return lambda n: torch.randn(n, *shape)

    def words(n: int) -> Any:
        return torch.randint(0, 5, (n, 6))

    return {
        "Linear": (nn.Linear(5, 3), floats(5)),
        "Linear in a sequence": (nn.Sequential(nn.Linear(5, 3), nn.Flatten()), floats(4, 5)),
        "Conv1d": (nn.Sequential(nn.Conv1d(2, 3, 3, padding=1), nn.Flatten()), floats(2, 6)),
        "Conv2d, strides and groups": (
            nn.Sequential(nn.Conv2d(4, 4, 3, stride=2, groups=2), nn.Flatten()),
            floats(4, 8, 8),
        ),
        "Conv3d": (nn.Sequential(nn.Conv3d(1, 2, 2), nn.Flatten()), floats(1, 4, 4, 4)),
        "Embedding": (nn.Sequential(nn.Embedding(5, 3), nn.Flatten()), words),
        "LayerNorm": (nn.Sequential(nn.Linear(5, 4), nn.LayerNorm(4)), floats(5)),
        "GroupNorm": (
            nn.Sequential(nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.Flatten()),
            floats(2, 5, 5),
        ),
        "a layer used twice": (_twice(nn), floats(4)),
        "DPLSTM": (Last(), floats(5, 3)),
        "DPMultiheadAttention": (Attention(), floats(3, 4)),
    }


def _twice(nn: Any) -> Any:
    class Twice(nn.Module):
        """One linear layer, used twice."""

        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            return self.layer(self.layer(x).tanh())

    return Twice()


def layers() -> list[str]:
    """Return the names of the networks that :func:`gradients` knows."""
    return list(_layers())


def gradients(layer: str, records: int, scale: float, seed: int) -> dict[str, np.ndarray]:
    """Return per-sample gradients by Opacus, and by PyTorch one record at a time."""
    import torch
    from opacus import GradSampleModule

    torch.manual_seed(seed)
    model, draw = _layers()[layer]
    x = draw(records)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wrapped = GradSampleModule(model, loss_reduction="sum")
        (scale * wrapped(x).square().sum()).backward()
        theirs = [p.grad_sample.reshape(records, -1) for p in wrapped.parameters()]
        ours = []
        for record in x:
            model.zero_grad()
            wrapped.disable_hooks()
            (scale * model(record[None]).square().sum()).backward()
            ours.append(torch.cat([p.grad.reshape(-1) for p in model.parameters()]))
    return {
        "theirs": torch.cat(theirs, dim=1).double().numpy(),
        "ours": torch.stack(ours).double().numpy(),
    }


def clipped_sum(rows: np.ndarray, clip_norm: float, factor: float = 1.0) -> np.ndarray:
    """Return the sum of clipped gradients computed by the optimizer, before any noise.

    The model is linear without a bias and the loss is its output times a factor, so that a record's
    gradient is the record times this factor.
    """
    import torch
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = GradSampleModule(
            torch.nn.Linear(rows.shape[1], 1, bias=False), loss_reduction="sum"
        )
        optimizer = DPOptimizer(
            torch.optim.SGD(model.parameters(), lr=1.0),
            noise_multiplier=0.0,
            max_grad_norm=clip_norm,
            expected_batch_size=len(rows),
            loss_reduction="sum",
        )
        (factor * model(torch.tensor(rows, dtype=torch.float32)).sum()).backward()
        optimizer.clip_and_accumulate()
        weight = next(iter(model.parameters()))
        return weight.summed_grad.reshape(-1).double().numpy()
