"""What is measured: models of the sizes people train on a CPU, and one step of work on each."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass
class Work:
    model: nn.Module
    step: Callable[[], None]
    optimizer: torch.optim.Optimizer | None = None


class AttentionBlock(nn.Module):
    """Self-attention written out op by op, as in a textbook."""

    def __init__(self, width: int, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def split(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        return x.view(batch, length, self.heads, width // self.heads).transpose(1, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.norm(x)
        query, key, value = self.split(self.query(h)), self.split(self.key(h)), self.split(self.value(h))
        scores = query @ key.transpose(-2, -1) / (query.shape[-1] ** 0.5)
        mixed = torch.softmax(scores, dim=-1) @ value
        return x + self.out(mixed.transpose(1, 2).reshape(x.shape))


class GptLayer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.heads = 4
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.norm1(x)).split(width, dim=2)
        query, key, value = (p.view(batch, length, self.heads, -1).transpose(1, 2) for p in parts)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    def __init__(self, width: int, layers: int = 4, vocabulary: int = 256, length: int = 64) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.layers = nn.ModuleList(GptLayer(width) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.token(tokens) + self.position(torch.arange(tokens.shape[1]))
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def attention_forward(width: int) -> Work:
    torch.manual_seed(0)
    model, x = AttentionBlock(width), torch.randn(8, 64, width)

    def step() -> None:
        model(x)

    return Work(model, step)


def attention_step(width: int) -> Work:
    torch.manual_seed(0)
    model, x, y = AttentionBlock(width), torch.randn(8, 64, width), torch.randn(8, 64, width)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step() -> None:
        optimizer.zero_grad()
        functional.mse_loss(model(x), y).backward()
        optimizer.step()

    return Work(model, step)


def gpt_step(width: int) -> Work:
    torch.manual_seed(0)
    model, tokens = Gpt(width), torch.randint(256, (8, 65))
    inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].reshape(-1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step() -> None:
        optimizer.zero_grad()
        functional.cross_entropy(model(inputs).flatten(0, 1), targets).backward()
        optimizer.step()

    return Work(model, step, optimizer)


def mlp(*widths: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def mlp_forward() -> Work:
    torch.manual_seed(0)
    model, x = mlp(64, 256, 256, 10), torch.randn(64, 64)

    def step() -> None:
        model(x)

    return Work(model, step)
