"""Multilayer perceptrons, and low-rank adapters on a frozen one."""

from __future__ import annotations

import itertools

import torch
from torch import nn
from torch.nn import functional as F

from ..task import Architecture, Task, generator, supervised

ACTIVATIONS = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "tanh": nn.Tanh,
    "silu": nn.SiLU,
    "leaky": lambda: nn.LeakyReLU(0.1),
    "sigmoid": nn.Sigmoid,
}


def layers(sizes: list[int], activation: str) -> nn.Sequential:
    """Linear layers with something nonlinear between them; none after the last."""
    found: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(sizes):
        found += [nn.Linear(inputs, outputs), ACTIVATIONS[activation]()]
    return nn.Sequential(*found[:-1])


class Perceptron(nn.Module):
    def __init__(self, sizes: list[int], activation: str, norm: bool, dropout: float):
        super().__init__()
        *hidden, outputs = sizes
        self.body = nn.Sequential()
        for number, (a, b) in enumerate(itertools.pairwise(hidden)):
            self.body.append(nn.Linear(a, b))
            if norm:
                self.body.append(nn.LayerNorm(b))
            self.body.append(ACTIVATIONS[activation]())
            if dropout and number == 0:
                self.body.append(nn.Dropout(dropout))
        self.head = nn.Linear(hidden[-1], outputs)

    def forward(self, x):
        return self.head(self.body(x))


def classifier(seed: int, depth: int, width: int, activation: str, norm: bool, dropout: float, batch: int) -> Task:
    """Gaussian clusters; some labels are wrong."""
    centers = 1.5 * torch.randn(5, 16, generator=generator(seed, 1))

    def load(number):
        g = generator(seed, 2, number)
        y = torch.randint(0, 5, (batch,), generator=g)
        x = centers[y] + torch.randn(batch, 16, generator=g)
        wrong = torch.rand(batch, generator=g) < 0.03
        return {"x": x, "y": torch.where(wrong, torch.randint(0, 5, (batch,), generator=g), y)}

    model = Perceptron([16, *[width] * depth, 5], activation, norm, dropout)
    return supervised(model, load, lambda out, given: F.cross_entropy(out, given["y"]))


def regression(
    seed: int, depth: int, width: int, activation: str, norm: bool, dropout: float, batch: int, outputs: int
) -> Task:
    directions = torch.randn(12, outputs, generator=generator(seed, 1)) / 12**0.5

    def load(number):
        g = generator(seed, 2, number)
        x = torch.randn(batch, 12, generator=g)
        angle = x @ directions
        noise = 0.05 * torch.randn(batch, outputs, generator=g)
        return {"x": x, "y": torch.sin(2 * angle) + angle + noise}

    model = Perceptron([12, *[width] * depth, outputs], activation, norm, dropout)
    return supervised(model, load, lambda out, given: F.mse_loss(out, given["y"]))


class Adapted(nn.Module):
    """A frozen layer beside a low-rank one, which begins as 0."""

    def __init__(self, frozen: nn.Linear, rank: int):
        super().__init__()
        self.base = frozen.requires_grad_(False)
        self.down, self.up = nn.Linear(frozen.in_features, rank, bias=False), nn.Linear(rank, frozen.out_features)
        nn.init.zeros_(self.up.weight)
        nn.init.zeros_(self.up.bias)

    def forward(self, x):
        return self.base(x) + 2.0 * self.up(self.down(x))


def lora(seed: int, width: int, rank: int, activation: str, batch: int) -> Task:
    """The targets are those of the frozen net with its layers changed a little."""
    frozen = [nn.Linear(10, width), nn.Linear(width, width), nn.Linear(width, 3)]
    change = [torch.randn(layer.weight.shape, generator=generator(seed, i)) for i, layer in enumerate(frozen)]
    act = ACTIVATIONS[activation]()
    with torch.no_grad():
        wanted = [
            layer.weight + 1.0 / layer.in_features**0.5 * move for layer, move in zip(frozen, change, strict=True)
        ]

    def load(number):
        x = torch.randn(batch, 10, generator=generator(seed, 9, number))
        y = x
        with torch.no_grad():
            for position, weight in enumerate(wanted):
                y = y @ weight.t() if position == 0 else act(y) @ weight.t()
        return {"x": x, "y": y}

    parts: list[nn.Module] = []
    for layer in frozen:
        parts += [Adapted(layer, rank), ACTIVATIONS[activation]()]
    return supervised(nn.Sequential(*parts[:-1]), load, lambda out, given: F.mse_loss(out, given["y"]))


PERCEPTRON = {
    "depth": (2, 3, 4),
    "width": (24, 32, 48),
    "activation": ("relu", "relu", "gelu", "tanh", "silu", "leaky"),
    "norm": (False, False, True),
    "dropout": (0.0, 0.0, 0.1),
    "batch": (16, 32, 48),
}
ARCHITECTURES = [
    Architecture(
        "mlp_classifier", classifier, PERCEPTRON, adam=3e-3, sgd=0.1,
        traits=frozenset({"floats", "classes", "perceptron"}),
    ),
    Architecture(
        "mlp_regression", regression, PERCEPTRON | {"outputs": (1, 1, 3)}, adam=4e-3, sgd=0.1,
        traits=frozenset({"floats", "values", "perceptron"}),
    ),
    Architecture(
        "lora", lora, {"width": (24, 32), "rank": (2, 4), "activation": ("relu", "gelu", "tanh"), "batch": (24, 48)},
        adam=6e-3, sgd=0.05, traits=frozenset({"floats", "values"}), steps=(100, 200),
    ),
]  # fmt: skip
