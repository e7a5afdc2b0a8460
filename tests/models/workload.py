"""What a healthy training is made of, and the batches that several of them share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from sklearn.datasets import load_digits
from torch import nn


@dataclass
class Workload:
    """Models by the name they are watched under; step(i) trains one step and returns its loss."""

    models: dict[str, nn.Module]
    step: Callable[[int], torch.Tensor]
    optimizers: list[torch.optim.Optimizer] = field(default_factory=list)


def descend(optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> torch.Tensor:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def supervised(
    model: nn.Module, optimizer: torch.optim.Optimizer, loss_of_step: Callable[[], torch.Tensor]
) -> Workload:
    """The plain loop: one model, one optimizer, a new batch in each step."""
    return Workload({"model": model}, lambda step: descend(optimizer, loss_of_step()), [optimizer])


@functools.cache
def digits() -> tuple[torch.Tensor, torch.Tensor]:
    """The handwritten digits of scikit-learn: 1797 rows of 64 pixels in [0, 1]."""
    images, labels = load_digits(return_X_y=True)
    return torch.from_numpy(images).float() / 16, torch.from_numpy(labels).long()


def digit_rows(batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    images, labels = digits()
    rows = torch.randint(0, len(images), (batch,))
    return images[rows], labels[rows]


def digit_images(batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    rows, labels = digit_rows(batch)
    return rows.view(batch, 1, 8, 8), labels


def patches(batch: int, channels: int, size: int, classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Noise with a bright square whose place is the label."""
    labels = torch.randint(0, classes, (batch,))
    images = 0.3 * torch.randn(batch, channels, size, size)
    for image, label in zip(images, labels.tolist(), strict=True):
        column = label * (size - 4) // max(classes - 1, 1)
        image[:, 2:6, column : column + 4] += 1.0
    return images, labels


def tokens(batch: int, length: int, vocab: int) -> torch.Tensor:
    """Sequences that count upwards; ids 0 to 3 are left for padding and the like."""
    start = torch.randint(0, vocab, (batch, 1))
    stride = torch.randint(1, 4, (batch, 1))
    return 4 + (start + stride * torch.arange(length)) % (vocab - 4)


def lengths_mask(batch: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Lengths of at least half, the first one full, and True where a token is."""
    lengths = torch.randint(length // 2, length + 1, (batch,))
    lengths[0] = length
    return lengths, torch.arange(length) < lengths[:, None]
