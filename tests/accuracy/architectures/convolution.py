"""Convolutional nets: plain with batch norm, and residual."""

from __future__ import annotations

import itertools

import torch
from torch import nn
from torch.nn import functional as F

from ..task import Architecture, Task, generator, supervised


def images(seed: int, batch: int, channels: int, size: int, classes: int):
    """Each class is a pattern that repeats over the image, shifted at random, in noise."""
    patterns = torch.randn(classes, channels, size, size, generator=generator(seed, 1))
    patterns = F.avg_pool2d(patterns, 3, 1, 1) * 3

    def load(number):
        g = generator(seed, 2, number)
        y = torch.randint(0, classes, (batch,), generator=g)
        shift = int(torch.randint(0, 3, (1,), generator=g))
        x = patterns[y].roll(shift, 3) + 0.7 * torch.randn(batch, channels, size, size, generator=g)
        return {"x": x, "y": y}

    return load


def plain(channels: int, classes: int, width: int, pool: str) -> nn.Sequential:
    pooling = {"max": nn.MaxPool2d, "average": nn.AvgPool2d}[pool]
    return nn.Sequential(
        nn.Conv2d(channels, width, 3, padding=1),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        pooling(2),
        nn.Conv2d(width, 2 * width, 3, padding=1),
        nn.BatchNorm2d(2 * width),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(8 * width, classes),
    )


def cnn(seed: int, width: int, pool: str, batch: int) -> Task:
    model = plain(2, 5, width, pool)
    return supervised(model, images(seed, batch, 2, 8, 5), lambda out, given: F.cross_entropy(out, given["y"]))


class Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.act1, self.act2 = nn.ReLU(), nn.ReLU()
        self.shortcut = nn.Identity()
        if stride > 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        hidden = self.norm2(self.conv2(self.act1(self.norm1(self.conv1(x)))))
        return self.act2(hidden + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self, width: int, blocks: int, classes: int):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(2, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        sizes = [width] + [width if i == 0 else 2 * width for i in range(blocks)]
        self.blocks = nn.Sequential(*[Residual(a, b, 1 if a == b else 2) for a, b in itertools.pairwise(sizes)])
        self.fc = nn.Linear(sizes[-1], classes)

    def forward(self, x):
        return self.fc(self.blocks(self.stem(x)).mean((2, 3)))


def resnet(seed: int, width: int, blocks: int, batch: int) -> Task:
    model = ResNet(width, blocks, 4)
    return supervised(
        model, images(seed, batch, 2, 8, 4), lambda out, given: F.cross_entropy(out, given["y"], label_smoothing=0.05)
    )


ARCHITECTURES = [
    Architecture(
        "cnn", cnn, {"width": (6, 8), "pool": ("max", "average"), "batch": (12, 16)}, adam=3e-3, sgd=0.1,
        traits=frozenset({"floats", "classes", "images"}), amp=("none", "none", "bf16"), steps=(60, 120),
    ),
    Architecture(
        "resnet", resnet, {"width": (6, 8), "blocks": (2, 3), "batch": (12, 16)}, adam=3e-3, sgd=0.1,
        traits=frozenset({"floats", "classes", "images"}), amp=("none", "none", "bf16"), steps=(60, 100),
    ),
]  # fmt: skip
