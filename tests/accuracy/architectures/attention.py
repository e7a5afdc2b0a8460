"""Transformers: an encoder that classifies, and a decoder that writes on."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F

from ..task import Architecture, Task, generator, supervised

NEGATIVE_INFINITY = float("-inf")


class Encoder(nn.Module):
    def __init__(self, vocab: int, width: int, depth: int, pre_norm: bool, classes: int):
        super().__init__()
        self.embedding = nn.Embedding(vocab, width)
        self.position = nn.Parameter(0.1 * torch.randn(12, width))
        layer = nn.TransformerEncoderLayer(width, 2, 2 * width, 0.0, batch_first=True, norm_first=pre_norm)
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(width, classes)

    def forward(self, x, absent):
        hidden = self.encoder(self.embedding(x) + self.position[: x.shape[1]], src_key_padding_mask=absent)
        present = (~absent)[..., None].to(hidden.dtype)
        return self.head((hidden * present).sum(1) / present.sum(1).clamp(min=1))


def encoder(seed: int, width: int, depth: int, pre_norm: bool, batch: int) -> Task:
    """Which of three kinds of token is the most frequent? Padding is masked."""

    def load(number):
        g = generator(seed, 2, number)
        y = torch.randint(0, 3, (batch,), generator=g)
        x = torch.randint(0, 12, (batch, 10), generator=g)
        favoured = torch.rand(batch, 10, generator=g) < 0.5
        x = torch.where(favoured, 4 * y[:, None] + torch.randint(0, 4, (batch, 10), generator=g), x)
        absent = torch.arange(10) >= torch.randint(6, 11, (batch, 1), generator=g)
        return {"x": x, "y": y, "absent": absent}

    model = Encoder(12, width, depth, pre_norm, 3)
    return supervised(model, load, lambda out, given: F.cross_entropy(out, given["y"]), ("x", "absent"))


class Attention(nn.Module):
    """By hand: -Inf where a token must not look."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.out = nn.Linear(width, width)

    def forward(self, x, hidden_keys):
        q, k, v = (part(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (self.q, self.k, self.v))
        scores = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).masked_fill(hidden_keys, NEGATIVE_INFINITY)
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.RMSNorm(width)
        self.attention = Attention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x, hidden_keys):
        x = x + self.attention(self.norm1(x), hidden_keys)
        return x + self.mlp(self.norm2(x))


class Decoder(nn.Module):
    def __init__(self, vocab: int, width: int, depth: int):
        super().__init__()
        self.embedding = nn.Embedding(vocab, width)
        self.position = nn.Parameter(0.1 * torch.randn(12, width))
        self.blocks = nn.ModuleList(Block(width, 2) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab, bias=False)
        self.register_buffer("future", torch.ones(12, 12, dtype=torch.bool).triu(1))

    def forward(self, x, absent):
        length = x.shape[1]
        hidden_keys = (self.future[:length, :length] | absent[:, None])[:, None]
        x = self.embedding(x) + self.position[:length]
        for block in self.blocks:
            x = block(x, hidden_keys)
        return self.head(self.norm(x)).transpose(1, 2)


def echo(seed: int, batch: int, length: int, vocab: int):
    """What was the token before this one? Only attention can tell. The first, and those after the end, are ignored."""

    def load(number):
        g = generator(seed, 2, number)
        x = torch.randint(0, vocab, (batch, length), generator=g)
        absent = torch.arange(length) >= torch.randint(length // 2, length + 1, (batch, 1), generator=g)
        ignored = absent | (torch.arange(length) == 0)
        return {"x": x, "y": x.roll(1, 1).masked_fill(ignored, -100), "absent": absent}

    return load


def decoder(seed: int, width: int, depth: int, batch: int) -> Task:
    model = Decoder(12, width, depth)
    return supervised(
        model, echo(seed, batch, 10, 12), lambda out, given: F.cross_entropy(out, given["y"]), ("x", "absent")
    )


ARCHITECTURES = [
    Architecture(
        "encoder", encoder, {"width": (16, 24), "depth": (1, 2), "pre_norm": (False, True), "batch": (12, 16)},
        adam=3e-3, sgd=0.1, traits=frozenset({"classes", "attention"}), steps=(60, 120),
    ),
    Architecture(
        "decoder", decoder, {"width": (16, 24), "depth": (1, 2), "batch": (8, 12)}, adam=6e-3, sgd=0.8,
        traits=frozenset({"tokens", "attention"}), steps=(80, 140),
    ),
]  # fmt: skip
