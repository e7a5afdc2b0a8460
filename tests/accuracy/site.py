"""A run as drawn, before and while a fault is put in."""

from __future__ import annotations

import functools
import random
from dataclasses import dataclass

import torch

from .architectures import ARCHITECTURES
from .task import Architecture, Spot, Task, seams, spots
from .training import OPTIMIZERS, SCHEDULES, Recipe, Training


@dataclass
class Draft:
    """All that is needed to build the run: the same draft gives the same numbers."""

    architecture: Architecture
    options: dict
    recipe: Recipe
    seed: int

    def has(self, *traits: str) -> bool:
        return self.architecture.traits.issuperset(traits)

    def build(self) -> Task:
        torch.manual_seed(self.seed)
        return self.architecture.build(self.seed, **self.options)


def draw_draft(rng: random.Random, name: str | None = None) -> Draft:
    architecture = ARCHITECTURES[name or rng.choice(list(ARCHITECTURES))]
    options = {name: rng.choice(values) for name, values in architecture.options.items()}
    optimizer = rng.choice(architecture.optimizers or tuple(OPTIMIZERS))
    _, family, factor = OPTIMIZERS[optimizer]
    recipe = Recipe(
        optimizer=optimizer,
        lr=getattr(architecture, family) * factor * rng.uniform(0.5, 1.2),
        schedule=rng.choice(SCHEDULES),
        steps=rng.randint(*architecture.steps),
        amp=rng.choice(architecture.amp),
        accumulation=rng.choice((1, 1, 1, 2, 4)),
        clip=rng.choice((None, None, 1.0, 5.0)),
        validates_every=rng.choice((0, 0, 10, 25)),
        zero_to_none=rng.random() < 0.7,
        reports_loss=rng.random() < 0.7,
        scaler={"init_scale": 2.0 ** rng.randint(8, 20), "growth_interval": rng.choice((20, 50, 2000))},
    )
    return Draft(architecture, options, recipe, rng.randrange(1 << 30))


class Site:
    """Where a fault is put in: it may change the draft first, then the task that is built from it."""

    def __init__(self, draft: Draft, rng: random.Random):
        self.draft, self.rng = draft, rng

    @functools.cached_property
    def task(self) -> Task:
        return self.draft.build()

    @property
    def recipe(self) -> Recipe:
        return self.draft.recipe

    @functools.cached_property
    def batch(self) -> int:
        """Number of a batch, somewhere in the run but not at its ends."""
        return self.rng.randint(3, max(4, self.recipe.steps * 2 // 3)) * self.recipe.accumulation + self.rng.randrange(
            self.recipe.accumulation
        )

    @property
    def step(self) -> int:
        """The step that takes that batch."""
        return self.batch // self.recipe.accumulation

    @functools.cached_property
    def sample(self) -> int:
        return self.rng.randrange(len(next(iter(self.task.batch(0).values()))))

    def seam(self) -> Spot:
        return self.rng.choice(seams(self.task))

    def spot(self, *types: type) -> Spot:
        return self.rng.choice(spots(self.task, *types))

    def size(self, low: float, high: float) -> float:
        """On a logarithmic scale."""
        return float(low * (high / low) ** self.rng.random())

    def training(self) -> Training:
        return Training(self.task, self.recipe)
