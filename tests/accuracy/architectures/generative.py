"""Models that make data: adversarial, variational, by diffusion."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F

from ..task import Architecture, Player, Task, generator
from .dense import layers


def gan(seed: int, width: int, batch: int) -> Task:
    """Two optimizers; what is made shall have the mean and the spread of what is real."""
    center = 2 * torch.randn(2, generator=generator(seed, 1)).sign()
    models = {
        "generator": layers([4, width, width, 2], "relu"),
        "discriminator": layers([2, width, width, 1], "leaky"),
    }

    def load(number):
        g = generator(seed, 2, number)
        x = center + 0.5 * torch.randn(batch, 2, generator=g)
        return {"x": x, "noise": torch.randn(batch, 4, generator=g)}

    def judge(given):
        real, fake = (
            models["discriminator"](given["x"]),
            models["discriminator"](models["generator"](given["noise"]).detach()),
        )
        ones = torch.full_like(real, 0.9)
        loss = F.binary_cross_entropy_with_logits(real.float(), ones.float())
        return loss + F.binary_cross_entropy_with_logits(fake.float(), torch.zeros_like(fake).float())

    def forge(given):
        fake = models["discriminator"](models["generator"](given["noise"]))
        return F.binary_cross_entropy_with_logits(fake.float(), torch.ones_like(fake).float())

    def distance(given):
        fake = models["generator"](given["noise"])
        return (fake.mean(0) - given["x"].mean(0)).norm() + (fake.std(0) - given["x"].std(0)).norm()

    return Task(models, load, [Player("discriminator", judge), Player("generator", forge)], measure=distance)


class Variational(nn.Module):
    def __init__(self, inputs: int, width: int, latent: int):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(inputs, width), nn.Tanh(), nn.Linear(width, 2 * latent))
        self.decoder = nn.Sequential(nn.Linear(latent, width), nn.ReLU(), nn.Linear(width, inputs))

    def forward(self, x, noise):
        mean, log_variance = self.encoder(x).chunk(2, 1)
        return self.decoder(mean + noise * (0.5 * log_variance).exp()), mean, log_variance


def vae(seed: int, width: int, batch: int) -> Task:
    mix = torch.randn(2, 12, generator=generator(seed, 1))
    model = Variational(12, width, 2)

    def load(number):
        g = generator(seed, 2, number)
        x = torch.tanh(torch.randn(batch, 2, generator=g) @ mix) + 0.1 * torch.randn(batch, 12, generator=g)
        return {"x": x, "noise": torch.randn(batch, 2, generator=g)}

    def loss(given):
        out, mean, log_variance = (part.float() for part in model(given["x"], given["noise"]))
        divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum(1).mean()
        return (out - given["x"]).square().sum(1).mean() + 0.1 * divergence

    return Task({"model": model}, load, [Player("model", loss)], measure=loss)


class Denoiser(nn.Module):
    def __init__(self, inputs: int, width: int):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(8, width), nn.SiLU())
        self.entry = nn.Linear(inputs, width)
        self.body = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.SiLU())
        self.exit = nn.Linear(width, inputs)

    def forward(self, x, time):
        angles = time[:, None] * torch.exp(-math.log(100.0) * torch.arange(4) / 4)
        hidden = self.entry(x) + self.time(torch.cat([angles.sin(), angles.cos()], 1))
        return self.exit(hidden + self.body(hidden))


def diffusion(seed: int, width: int, batch: int) -> Task:
    """One step of a cosine schedule: which noise was added?"""
    model = Denoiser(4, width)
    corners = 2 * torch.randn(3, 4, generator=generator(seed, 1))
    kept = torch.cos(torch.linspace(0, 1, 21) * math.pi / 2).square().clamp(1e-3, 0.999)

    def load(number):
        g = generator(seed, 2, number)
        x = corners[torch.randint(0, 3, (batch,), generator=g)] + 0.1 * torch.randn(batch, 4, generator=g)
        time = torch.randint(0, 21, (batch,), generator=g)
        return {"x": x, "time": time, "noise": torch.randn(batch, 4, generator=g)}

    def loss(given):
        alpha = kept[given["time"]][:, None]
        mixed = alpha.sqrt() * given["x"] + (1 - alpha).sqrt() * given["noise"]
        return F.mse_loss(model(mixed, given["time"].float()).float(), given["noise"])

    return Task({"model": model}, load, [Player("model", loss)], measure=loss)


ARCHITECTURES = [
    Architecture(
        "gan", gan, {"width": (16, 24), "batch": (24, 32)}, adam=3e-3, sgd=0.1, traits=frozenset({"floats", "gan"}),
        amp=("none", "none", "bf16"), steps=(150, 250), optimizers=("adam", "adam_foreach", "adamw", "rmsprop"),
    ),
    Architecture(
        "vae", vae, {"width": (24, 32), "batch": (24, 32)}, adam=3e-3, sgd=0.02,
        traits=frozenset({"floats", "unclamped"}), steps=(80, 160),
    ),
    Architecture(
        "diffusion", diffusion, {"width": (24, 32), "batch": (24, 48)}, adam=4e-3, sgd=0.2,
        traits=frozenset({"floats"}), steps=(80, 160),
    ),
]  # fmt: skip
