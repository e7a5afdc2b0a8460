"""One kind of fault, and what several of them use."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from ..site import Draft, Site
from ..truth import Truth


@dataclass(frozen=True)
class Fault:
    put_in: Callable[[Site], Truth]
    fits: Callable[[Draft], bool] = lambda draft: True
    stage: Callable[[Draft, random.Random], None] = lambda draft, rng: None  # also for the run without the fault
    lost: float = 0.25  # harm: this part of what the run would learn is missing

    @property
    def name(self) -> str:
        return self.put_in.__name__


def having(*traits: str) -> Callable[[Draft], bool]:
    return lambda draft: draft.has(*traits)


def either(*traits: str) -> Callable[[Draft], bool]:
    return lambda draft: any(draft.has(trait) for trait in traits)


def wide(draft: Draft) -> bool:
    """In float16 large values would overflow by themselves, and that would be as good an answer."""
    return draft.recipe.amp != "fp16"


def alter(module: nn.Module, before: Callable | None = None, after: Callable | None = None) -> None:
    """As if the author of the module had written this into its forward."""

    def forward(self, *given, **named):
        if before:
            given = (before(given[0]), *given[1:])
        answer = super(kind, self).forward(*given, **named)
        return after(answer) if after else answer

    kind = type(type(module).__name__, (type(module),), {"forward": forward})
    module.__class__ = kind


def factors(site: Site, value: float) -> Callable[[torch.Tensor], torch.Tensor]:
    """Multiplies each sample by 1, and the drawn sample of the drawn batch by `value`."""
    batch, sample, clock = site.batch, site.sample, site.task.clock

    def apply(x):
        factor = torch.ones([len(x), *[1] * (x.dim() - 1)], dtype=x.dtype)
        if clock.batch == batch:
            factor[sample % len(x)] = value
        return x * factor

    return apply
