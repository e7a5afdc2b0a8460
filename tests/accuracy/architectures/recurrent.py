"""Recurrent nets: LSTM, GRU, a plain one written out, and speech with CTC."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from ..task import Architecture, Task, generator, supervised


def waves(seed: int, batch: int, length: int, features: int, classes: int):
    """The class is the frequency of a wave in noise, with a phase of its own in each sample."""
    mix = torch.randn(2, features, generator=generator(seed, 1))

    def load(number):
        g = generator(seed, 2, number)
        y = torch.randint(0, classes, (batch,), generator=g)
        angle = (0.4 + 0.5 * y[:, None]) * torch.arange(length) + 3 * torch.rand(batch, 1, generator=g)
        x = torch.stack([angle.sin(), angle.cos()], -1) @ mix
        return {"x": x + 0.2 * torch.randn(batch, length, features, generator=g), "y": y}

    return load


class Recurrent(nn.Module):
    def __init__(self, cell: str, inputs: int, width: int, depth: int, classes: int):
        super().__init__()
        self.project = nn.Linear(inputs, width)
        self.rnn = getattr(nn, cell)(width, width, depth, batch_first=True)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        return self.head(self.rnn(self.project(x))[0].mean(1))


def lstm(seed: int, width: int, depth: int, batch: int) -> Task:
    model = Recurrent("LSTM", 4, width, depth, 3)
    return supervised(model, waves(seed, batch, 12, 4, 3), lambda out, given: F.cross_entropy(out, given["y"]))


class Characters(nn.Module):
    """A language model; embedding and head may share their weights."""

    def __init__(self, vocab: int, width: int, tied: bool):
        super().__init__()
        self.embedding = nn.Embedding(vocab, width)
        self.gru = nn.GRU(width, width, batch_first=True)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab)
        if tied:
            nn.init.normal_(self.embedding.weight, std=width**-0.5)
            self.head.weight = self.embedding.weight

    def forward(self, x):
        return self.head(self.norm(self.gru(self.embedding(x))[0])).transpose(1, 2)


def counting(seed: int, batch: int, length: int, vocab: int):
    """Sequences that count upwards by 1, 2 or 3; what comes after the end of a sequence is ignored (-100)."""

    def load(number):
        g = generator(seed, 2, number)
        start = torch.randint(0, vocab, (batch, 1), generator=g)
        stride = torch.randint(1, 4, (batch, 1), generator=g)
        ids = (start + stride * torch.arange(length + 1)) % vocab
        ends = torch.randint(length // 2, length + 1, (batch, 1), generator=g)
        absent = torch.arange(length) >= ends
        return {"x": ids[:, :-1], "y": ids[:, 1:].masked_fill(absent, -100), "absent": absent}

    return load


def gru(seed: int, width: int, tied: bool, batch: int) -> Task:
    model = Characters(18, width, tied)
    return supervised(model, counting(seed, batch, 10, 18), lambda out, given: F.cross_entropy(out, given["y"]))


class Unrolled(nn.Module):
    def __init__(self, inputs: int, width: int, outputs: int, activation: str):
        super().__init__()
        self.entry, self.recurrent = nn.Linear(inputs, width), nn.Linear(width, width)
        nn.init.orthogonal_(self.recurrent.weight)
        self.activation = {"tanh": torch.tanh, "relu": torch.relu}[activation]
        self.head = nn.Linear(width, outputs)

    def forward(self, x):
        entry, hidden = self.entry(x), x.new_zeros(len(x), self.recurrent.in_features)
        for t in range(x.shape[1]):
            hidden = self.activation(entry[:, t] + self.recurrent(hidden))
        return self.head(hidden)


def rnn(seed: int, width: int, activation: str, batch: int, length: int) -> Task:
    """The sum of what was marked, a little noisy."""
    weight = torch.randn(3, 1, generator=generator(seed, 1)) / 3**0.5

    def load(number):
        g = generator(seed, 2, number)
        x = torch.randn(batch, length, 3, generator=g)
        x = x * (torch.rand(batch, length, 1, generator=g) < 0.3)
        return {"x": x, "y": (x @ weight).sum(1) + 0.05 * torch.randn(batch, 1, generator=g)}

    model = Unrolled(3, width, 1, activation)
    return supervised(model, load, lambda out, given: F.mse_loss(out, given["y"]))


class Listener(nn.Module):
    def __init__(self, features: int, width: int, symbols: int):
        super().__init__()
        self.conv = nn.Conv1d(features, width, 3, stride=2, padding=1)
        self.act = nn.ReLU()
        self.head = nn.Linear(width, symbols)

    def forward(self, x):
        return self.head(self.act(self.conv(x)).transpose(1, 2)).log_softmax(-1)


FRAMES = 10


def speech(seed: int, width: int, batch: int) -> Task:
    """Each symbol is a pattern over four frames; CTC finds out which."""
    patterns = torch.randn(6, 5, generator=generator(seed, 1))

    def load(number):
        g = generator(seed, 2, number)
        order = torch.stack([torch.randperm(5, generator=g) + 1 for _ in range(batch)])
        x = patterns[order].repeat_interleave(4, 1).transpose(1, 2)
        x = x + 0.3 * torch.randn(batch, 5, 2 * FRAMES, generator=g)
        return {"x": x, "y": order, "lengths": torch.full((batch,), 5)}

    def criterion(out, given):
        frames = torch.full((len(out),), FRAMES)
        return F.ctc_loss(out.transpose(0, 1), given["y"], frames, given["lengths"])

    return supervised(Listener(5, width, 6), load, criterion)


ARCHITECTURES = [
    Architecture(
        "lstm", lstm, {"width": (12, 16), "depth": (1, 2), "batch": (12, 16)}, adam=8e-3, sgd=1.5,
        traits=frozenset({"floats", "classes"}), amp=("none",), steps=(60, 120),
    ),
    Architecture(
        "gru", gru, {"width": (16, 24), "tied": (False, True), "batch": (8, 12)}, adam=6e-3, sgd=0.5,
        traits=frozenset({"tokens"}), amp=("none",), steps=(60, 140),
    ),
    Architecture(
        "rnn", rnn, {"width": (16, 24), "activation": ("tanh", "relu"), "batch": (16, 24), "length": (8, 10)},
        adam=4e-3, sgd=0.02, traits=frozenset({"floats", "values", "unrolled"}), amp=("none", "none", "bf16"),
        steps=(80, 160),
    ),
    Architecture(
        "speech", speech, {"width": (16, 24), "batch": (6, 8)}, adam=8e-3, sgd=0.1,
        traits=frozenset({"floats", "ctc"}), amp=("none", "none", "bf16"), steps=(80, 160),
    ),
]  # fmt: skip
