"""Operations inside of modules that are not defined for what they once get."""

from __future__ import annotations

import math

import torch

from ..site import Site
from ..truth import MODULE, Place, Truth
from .fault import Fault, alter, factors, having, wide


def put_after_seam(site: Site, operation, value: float) -> tuple[Place, int]:
    """Into a drawn module; the operation gets its answer, that of one sample multiplied by `value` once."""
    seam, change = site.seam(), factors(site, value)
    alter(seam.module, after=lambda answer: operation(change(answer)))
    return Place(MODULE, (seam.name,), (site.sample,)), site.step


def zero_row(site: Site) -> Truth:
    """The operation needs a length, a logarithm or a root of a sample that is 0 once, as if it were padding."""
    operations = {
        "length": lambda x: x / x.norm(dim=-1, keepdim=True) * math.sqrt(x.shape[-1]),
        "deviation": lambda x: x / x.std(-1, keepdim=True),
        "mean": lambda x: x / x.abs().mean(-1, keepdim=True),
        "logarithm": lambda x: x + 0.05 * x.square().sum(-1, keepdim=True).log(),
        "root": lambda x: x + 0.05 * x.square().sum(-1, keepdim=True).sqrt(),
        "inverse root": lambda x: x * x.square().mean(-1, keepdim=True).rsqrt(),
        "power": lambda x: x * x.square().mean(-1, keepdim=True).pow(-0.5),
    }
    name = site.rng.choice(list(operations))
    place, step = put_after_seam(site, operations[name], 0.0)
    return Truth("op_domain", place, step, note=f"{name} at {place.names[0]}")


def where_unused_branch(site: Site) -> Truth:
    """where() picks the safe value, but the gradient of the other branch is NaN."""

    def direction(x):
        length = x.square().sum(-1, keepdim=True).sqrt()
        return torch.where(length > 0, x / length, torch.zeros_like(x)) * math.sqrt(x.shape[-1])

    def softplus(x):
        return torch.where(x < 20, torch.log1p(torch.exp(x)), x)

    name, operation, value = site.rng.choice(
        (("direction", direction, 0.0), ("softplus", softplus, site.size(1e3, 1e5)))
    )
    place, step = put_after_seam(site, operation, value)
    return Truth(
        "op_domain", place, step, ("overflow",) if name == "softplus" else (), note=f"{name} at {place.names[0]}"
    )


def flat_end(site: Site) -> Truth:
    """Inverse of a squashing that has reached its end: log(1 - sigmoid), atanh(tanh)."""
    operations = {
        "log(1 - sigmoid)": lambda x: -torch.log(1 - torch.sigmoid(x)),
        "atanh(tanh)": lambda x: torch.atanh(torch.tanh(x)),
        "logit": lambda x: torch.logit(torch.sigmoid(x)),
    }
    name = site.rng.choice(list(operations))
    place, step = put_after_seam(site, operations[name], site.size(300, 1e5))
    return Truth("op_domain", place, step, note=f"{name} at {place.names[0]}")


def exp_overflow(site: Site) -> Truth:
    """exp without a bound: softplus, softmax and log-cosh as in a textbook."""
    operations = {
        "softplus": lambda x: torch.log(1 + torch.exp(x)),
        "softmax": lambda x: torch.exp(x) / torch.exp(x).sum(-1, keepdim=True) * x.shape[-1],
        "log-cosh": lambda x: torch.log(torch.cosh(x)),
    }
    name = site.rng.choice(list(operations))
    place, step = put_after_seam(site, operations[name], site.size(1e3, 1e6))
    return Truth("overflow", place, step, note=f"{name} at {place.names[0]}")


def square_overflow(site: Site) -> Truth:
    """Squares of a very loud sample leave float32 (bfloat16 has the same range)."""
    place, step = put_after_seam(
        site, lambda x: x + 0.05 * x.square().sum(-1, keepdim=True).log1p(), site.size(1e21, 1e30)
    )
    return Truth("overflow", place, step, note=place.names[0])


def masked_row(site: Site) -> Truth:
    """All keys of one sample are padding, in one batch."""
    batch, sample = site.batch, site.sample

    def spoil(number, given):
        if number == batch:
            given["absent"][sample] = True
        return given

    site.task.corruptions.append(spoil)
    names = {
        "encoder": ("model.encoder.layers.0.self_attn", "model.encoder.layers.0"),
        "decoder": ("model.blocks.0.attention", "model.blocks.0"),
    }[site.draft.architecture.name]
    return Truth("masked_softmax", Place(MODULE, names, (sample,)), site.step)


def masked_pooling(site: Site) -> Truth:
    """A drawn module pools by attention over its features, and once all of them are masked."""
    seam, sample, clock, batch = site.seam(), site.sample, site.task.clock, site.batch

    def gate(x):
        hidden = torch.zeros(len(x), *[1] * (x.dim() - 1), dtype=torch.bool)
        hidden[sample % len(x)] = clock.batch == batch
        hidden = hidden | (torch.arange(x.shape[-1]) >= x.shape[-1] - 1)
        return x + x * x.masked_fill(hidden, -math.inf).softmax(-1)

    alter(seam.module, after=gate)
    return Truth("masked_softmax", Place(MODULE, (seam.name,), (sample,)), site.step, note=seam.name)


FAULTS = [
    Fault(zero_row),
    Fault(zero_row),
    Fault(where_unused_branch, wide),
    Fault(flat_end, wide),
    Fault(exp_overflow, wide),
    Fault(exp_overflow, wide),
    Fault(square_overflow, wide),
    Fault(masked_row, having("attention")),
    Fault(masked_pooling),
]
