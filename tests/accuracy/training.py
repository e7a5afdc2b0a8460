"""How it is trained: optimizers, schedules, precision, accumulation, clipping; and the loop."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import nn

from .task import Batch, Player, Task

optim = torch.optim
# Of parameters and learning rate; the factor by which the learning rate differs from that of Adam, or of plain SGD.
OPTIMIZERS: dict[str, tuple[Callable, str, float]] = {
    "sgd": (optim.SGD, "sgd", 1.0),
    "momentum": (lambda p, lr: optim.SGD(p, lr, momentum=0.9), "sgd", 0.15),
    "nesterov": (lambda p, lr: optim.SGD(p, lr, momentum=0.9, nesterov=True), "sgd", 0.15),
    "adam": (optim.Adam, "adam", 1.0),
    "adam_foreach": (lambda p, lr: optim.Adam(p, lr, foreach=True), "adam", 1.0),
    "adamw": (lambda p, lr: optim.AdamW(p, lr, weight_decay=0.01), "adam", 1.0),
    "adamw_fused": (lambda p, lr: optim.AdamW(p, lr, weight_decay=0.01, fused=True), "adam", 1.0),
    "rmsprop": (optim.RMSprop, "adam", 0.4),
    "adagrad": (optim.Adagrad, "adam", 4.0),
    "adamax": (optim.Adamax, "adam", 1.5),
    "nadam": (optim.NAdam, "adam", 1.0),
    "radam": (optim.RAdam, "adam", 4.0),
}
ADAPTIVE = tuple(name for name, (_, family, _) in OPTIMIZERS.items() if family == "adam")
PLAIN = tuple(name for name, (_, family, _) in OPTIMIZERS.items() if family == "sgd")
SCHEDULES = ("none", "warmup", "cosine", "step", "warmup_cosine")


@dataclass
class Recipe:
    """What is drawn, and below it what only faults change."""

    optimizer: str
    lr: float
    schedule: str
    steps: int
    amp: str = "none"  # autocast to "bf16" or "fp16"
    accumulation: int = 1
    clip: float | None = None
    validates_every: int = 0
    zero_to_none: bool = True
    reports_loss: bool = True

    scaler: dict | None = field(default_factory=dict)  # arguments of the GradScaler that fp16 gets
    half: bool = False  # models in float16
    fixed_scale: float = 1.0  # loss scale by hand
    averages: bool = True
    zeroes: Callable[[int], bool] = lambda _step: True
    unscales_before_clip: bool = True
    warms_up_over: Callable[[], float] | None = None  # instead of a tenth of the steps
    factor: Callable[[int], float] = lambda _step: 1.0  # of the learning rate, on top of the schedule
    chooses: Callable[[nn.Module], list] = lambda model: [p for p in model.parameters() if p.requires_grad]
    prepares: list[Callable[[Training], None]] = field(default_factory=list)
    before_update: list[Callable[[Training, int], None]] = field(default_factory=list)
    after_update: list[Callable[[Training, int], None]] = field(default_factory=list)

    def __str__(self) -> str:
        parts = [f"{self.optimizer} {self.lr:.3g}", self.schedule]
        parts += [self.amp] if self.amp != "none" else []
        parts += [f"x{self.accumulation}"] if self.accumulation > 1 else []
        parts += [f"clip {self.clip:g}"] if self.clip else []
        return " ".join(parts)


def schedule(recipe: Recipe, step: int) -> float:
    progress = step / recipe.steps
    warmup = max(recipe.steps // 10, 2) if recipe.warms_up_over is None else recipe.warms_up_over()
    rise = 1.0
    if recipe.schedule.startswith("warmup"):
        rise = (step + 1) / warmup if warmup else (torch.tensor(float(step)) / 0.0).item()
        rise = 1.0 if rise >= 1.0 else rise  # NaN stays
    if recipe.schedule.endswith("cosine"):
        return rise * (0.55 + 0.45 * math.cos(math.pi * progress))
    return rise * (0.3 if recipe.schedule == "step" and progress > 0.6 else 1.0)


class Training:
    """step(i) does one step of the loop: an update of every player, in turn."""

    def __init__(self, task: Task, recipe: Recipe):
        self.task, self.recipe = task, recipe
        self.models = list(task.models.values())
        if recipe.half:
            for model in self.models:
                model.half()
        make = OPTIMIZERS[recipe.optimizer][0]
        self.optimizers = [make(recipe.chooses(task.models[p.model]), lr=recipe.lr) for p in task.players]
        scaled = recipe.amp == "fp16" and recipe.scaler is not None
        self.scaler = torch.amp.GradScaler("cpu", **recipe.scaler) if scaled else None
        self.skipped = False
        for prepare in recipe.prepares:
            prepare(self)
        factor = self.factor
        self.schedulers = [optim.lr_scheduler.LambdaLR(optimizer, factor) for optimizer in self.optimizers]

    def factor(self, step: int) -> float:
        return self.recipe.factor(step) * schedule(self.recipe, step)

    def step(self, index: int) -> torch.Tensor:
        losses = [self.update(*pair, index) for pair in zip(self.task.players, self.optimizers, strict=True)]
        if self.scaler:
            scale = self.scaler.get_scale()
            self.scaler.update()
            self.skipped = self.scaler.get_scale() < scale
        for scheduler in self.schedulers:
            scheduler.step()
        every = self.recipe.validates_every
        if every and index % every == every - 1:
            self.validate()
        return torch.stack(losses).sum()

    def update(self, player: Player, optimizer: optim.Optimizer, index: int) -> torch.Tensor:
        recipe, total = self.recipe, torch.zeros(())
        if recipe.zeroes(index):
            optimizer.zero_grad(set_to_none=recipe.zero_to_none)
        for part in range(recipe.accumulation):
            loss = self.loss(player, index * recipe.accumulation + part)
            total = total + loss.detach()
            if recipe.averages and recipe.accumulation > 1:
                loss = loss / recipe.accumulation
            if recipe.fixed_scale != 1.0:
                loss = loss * recipe.fixed_scale
            (self.scaler.scale(loss) if self.scaler else loss).backward()
        self.advance(player, optimizer, index)
        return total / recipe.accumulation

    def loss(self, player: Player, number: int) -> torch.Tensor:
        self.task.clock.batch = number
        batch = self.given(self.task.load(number))
        with self.precision():
            loss = player.loss(batch)
        self.task.clock.batch = -1
        return loss

    def given(self, batch: Batch) -> Batch:
        if not self.recipe.half:
            return batch
        return {name: value.half() if value.is_floating_point() else value for name, value in batch.items()}

    def precision(self) -> contextlib.AbstractContextManager:
        dtypes = {"bf16": torch.bfloat16, "fp16": torch.float16}
        if self.recipe.amp == "none":
            return contextlib.nullcontext()
        return torch.autocast("cpu", dtype=dtypes[self.recipe.amp])

    def advance(self, player: Player, optimizer: optim.Optimizer, index: int) -> None:
        recipe = self.recipe
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        if recipe.fixed_scale != 1.0:
            for parameter in parameters:
                if parameter.grad is not None:
                    parameter.grad.div_(recipe.fixed_scale)
        if self.scaler and recipe.clip and recipe.unscales_before_clip:
            self.scaler.unscale_(optimizer)
        if recipe.clip:
            nn.utils.clip_grad_norm_(parameters, recipe.clip)
        for change in recipe.before_update:
            change(self, index)
        if self.scaler:
            self.scaler.step(optimizer)
        else:
            optimizer.step()
        for change in recipe.after_update:
            change(self, index)

    def validate(self) -> None:
        for model in self.models:
            model.eval()
        with torch.no_grad(), self.precision():
            self.task.measure(self.given(self.task.held_out(99)))
        for model in self.models:
            model.train()

    def quality(self) -> float:
        """How bad the models are on held-out batches: 0 is perfect."""
        fast = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)  # it would pass by what was put into modules
        for model in self.models:
            model.eval()
        with torch.no_grad(), self.precision():
            numbers = [float(self.task.measure(self.given(self.task.held_out(i)))) for i in range(2)]
        for model in self.models:
            model.train()
        torch.backends.mha.set_fastpath_enabled(fast)
        return sum(numbers) / len(numbers)
