"""PyTorch without privacy tools: the closed form, and non-private training of a network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from . import data

NAME = "PyTorch, not private"


def tensors(*arrays: Any, dtype: str) -> tuple[torch.Tensor, ...]:
    """Return arrays as tensors of one type."""
    return tuple(torch.as_tensor(array).to(getattr(torch, dtype)) for array in arrays)


def dense(n: int, d: int, dtype: str, loss: str) -> dict[str, Callable[[], Any]]:
    if loss != "logistic":
        return {}
    X, y, w, norms = tensors(*data.dense(n, d, dtype), dtype=dtype)

    def closed() -> torch.Tensor:
        c = -y * torch.sigmoid(-y * (X @ w))
        c *= torch.clamp(data.CLIP / (c.abs() * norms), max=1.0)
        return c @ X

    return {"PyTorch closed form": closed}


def sequential() -> torch.nn.Sequential:
    """Return 784-128-10 with the weights of :func:`data.network`."""
    first, second = torch.nn.Linear(784, 128), torch.nn.Linear(128, 10)
    with torch.no_grad():
        for layer, (weights, bias) in zip((first, second), data.network()):
            layer.weight.copy_(torch.from_numpy(weights))
            layer.bias.copy_(torch.from_numpy(bias))
    return torch.nn.Sequential(first, torch.nn.ReLU(), second)


def convolutions() -> torch.nn.Sequential:
    """Return the CNN of Papernot et al. (2021) for images of 28 x 28: 26,010 parameters."""
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 16, 8, stride=2, padding=2),
        torch.nn.Tanh(),
        torch.nn.MaxPool2d(2, 1),
        torch.nn.Conv2d(16, 32, 4, stride=2),
        torch.nn.Tanh(),
        torch.nn.MaxPool2d(2, 1),
        torch.nn.Flatten(),
        torch.nn.Linear(512, 32),
        torch.nn.Tanh(),
        torch.nn.Linear(32, 10),
    )


class Reader(torch.nn.Module):
    """An LSTM of 64 whose last step is classified: of words from a table, or of rows of numbers."""

    def __init__(self, words: int = 1000, width: int = 32, classes: int = 2) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = torch.nn.Embedding(words, width) if words else torch.nn.Identity()
        self.cell = torch.nn.LSTM(width, 64, batch_first=True)
        self.head = torch.nn.Linear(64, classes)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.head(self.cell(self.table(words))[0][:, -1])


def network(batch: int) -> dict[str, Callable[[], Any]]:
    """Return a step that is not private."""
    return {NAME: step_of(sequential(), *map(torch.from_numpy, data.images(batch)))}


def cnn(batch: int) -> dict[str, Callable[[], Any]]:
    """Return a step of the CNN that is not private."""
    images, labels = map(torch.from_numpy, data.images(batch))
    return {NAME: step_of(convolutions(), images.view(-1, 1, 28, 28), labels)}


def step_of(
    model: torch.nn.Module, images: torch.Tensor, labels: torch.Tensor
) -> Callable[[], Any]:
    """Return a step of a model that is not private."""
    loss = torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        loss(model(images), labels).backward()
        optimizer.step()

    return step


class Images(torch.utils.data.Dataset):
    """Random images of MNIST's shape; a loader gets a batch of them at once."""

    def __init__(self, n: int) -> None:
        self.images, self.labels = map(torch.from_numpy, data.images(n))

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, i: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.images[i], self.labels[i]

    def __getitems__(self, rows: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        return self.images[rows], self.labels[rows]


def loader(n: int, batch: int) -> Any:
    """Return a loader of shuffled batches that puts no single images together."""
    return torch.utils.data.DataLoader(
        Images(n), batch_size=batch, shuffle=True, collate_fn=lambda whole: whole
    )


def train(model: Any, optimizer: Any, loss: Any, batches: Any, epochs: int) -> None:
    """Go through the data so many times."""
    for _ in range(epochs):
        for images, labels in batches:
            optimizer.zero_grad()
            loss(model(images), labels).backward()
            optimizer.step()


def training(n: int, batch: int, epochs: int, epsilon: float, delta: float) -> dict[str, Any]:
    """Return a whole run that is not private."""
    batches = loader(n, batch)

    def run() -> None:
        model = sequential()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        train(model, optimizer, torch.nn.CrossEntropyLoss(), batches, epochs)

    return {NAME: run}
