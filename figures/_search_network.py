"""The convolutional network of Chen and Lee (2020), section 5.7, and its data."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

import dpanalysis as dpa

from ._cnn import device, images

#: Channels of the convolutions and widths of the dense layers, as printed.
CHANNELS, WIDTHS = (6, 16), (256, 128)


def network(data: str, seed: int) -> Any:
    """Return the network of section 5.7; a smaller one for digits.

    The paper prints 6 and 16 channels, max pooling after each convolution, and dense layers of
    256 and 128 units, but neither filters nor activation: here 5 x 5 as in LeNet, which leaves
    16 x 4 x 4 numbers per image, and relu.
    """
    import torch
    from torch import nn

    flat, widths, padding = (256, WIDTHS, 0) if data != "digits" else (64, (32, 16), 2)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Conv2d(1, CHANNELS[0], 5, padding=padding),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(CHANNELS[0], CHANNELS[1], 5, padding=padding),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(flat, widths[0]),
            nn.ReLU(),
            nn.Linear(widths[0], widths[1]),
            nn.ReLU(),
            nn.Linear(widths[1], 10),
        )


@lru_cache(maxsize=1)
def load_problem(data: str, regularizer: Any) -> Any:
    """Return the training problem of the network, in single precision, pixels in [-1, 1]."""
    X, y, _, _ = images(data, signed=True)
    return dpa.problems.Module(network(data, 0), X, y, regularizer=regularizer, device=device())


def start(data: str, regularizer: Any, seed: int) -> np.ndarray:
    """Return the initial weights of a run, drawn by PyTorch from the seed."""
    return np.asarray(load_problem(data, regularizer).vector(network(data, seed)))
