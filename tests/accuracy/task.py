"""What is trained: models, batches, losses, and a number that says how well it goes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import nn

Batch = dict[str, torch.Tensor]  # "x": inputs and "y": targets where there are any; the first axis counts samples


@dataclass
class Clock:
    """Number of the training batch that is being worked on; -1 outside of training."""

    batch: int = -1


@dataclass
class Player:
    """Whoever has an optimizer: the model of that name, and its loss on a batch."""

    model: str
    loss: Callable[[Batch], torch.Tensor]


@dataclass
class Task:
    models: dict[str, nn.Module]
    batch: Callable[[int], Batch]  # pure: the same number gives the same batch; negative ones are held out
    players: list[Player] = field(default_factory=list)
    measure: Callable[[Batch], torch.Tensor] | None = None  # how bad the models are on a batch: >= 0
    predict: Callable[[Batch], torch.Tensor] | None = None  # supervised tasks only
    criterion: Callable[[torch.Tensor, Batch], torch.Tensor] | None = None  # of predict's answer
    corruptions: list[Callable[[int, Batch], Batch]] = field(default_factory=list)  # of training batches
    lasting: list[Callable[[int, Batch], Batch]] = field(default_factory=list)  # of held-out batches as well
    own_loss: bool = False  # a fault changed what the loss is, so that it cannot be compared
    clock: Clock = field(default_factory=Clock)

    def load(self, number: int) -> Batch:
        batch = self.batch(number)
        for change in [*self.lasting, *self.corruptions]:
            batch = change(number, batch)
        return batch

    def held_out(self, number: int) -> Batch:
        batch = self.batch(-1 - number)
        for change in self.lasting:
            batch = change(-1 - number, batch)
        return batch


def generator(*key: int) -> torch.Generator:
    seed = 0
    for part in key:
        seed = (seed * 1_000_003 + part + 7919) % (1 << 62)
    return torch.Generator().manual_seed(seed)


def supervised(
    model: nn.Module,
    batch: Callable[[int], Batch],
    criterion: Callable[[torch.Tensor, Batch], torch.Tensor],
    inputs: tuple[str, ...] = ("x",),
) -> Task:
    task = Task({"model": model}, batch)
    task.predict = lambda given: model(*(given[name] for name in inputs)).float()
    task.criterion = criterion
    task.players = [Player("model", lambda given: task.criterion(task.predict(given), given))]
    task.measure = lambda given: criterion(model(*(given[name] for name in inputs)).float(), given)
    return task


@dataclass(frozen=True)
class Architecture:
    """A family of tasks. `traits` say what faults can be put into it."""

    name: str
    build: Callable[..., Task]  # of a seed for its data and the options
    options: dict[str, tuple]  # what each may be
    adam: float  # learning rates that suit it
    sgd: float
    traits: frozenset[str] = frozenset()
    amp: tuple[str, ...] = ("none", "none", "bf16", "fp16")
    steps: tuple[int, int] = (60, 200)
    optimizers: tuple[str, ...] = ()  # those that suit it; all if empty


@dataclass(frozen=True)
class Spot:
    """A module of a task."""

    model: str
    path: str
    module: nn.Module

    @property
    def name(self) -> str:
        return f"{self.model}.{self.path}"

    @property
    def parameters(self) -> tuple[str, ...]:
        return tuple(f"{self.name}.{name}" for name, _ in self.module.named_parameters(recurse=False))


def spots(task: Task, *types: type) -> list[Spot]:
    return [
        Spot(name, path, module)
        for name, model in task.models.items()
        for path, module in model.named_modules()
        if path and isinstance(module, types)
    ]


def seams(task: Task) -> list[Spot]:
    """Modules without children, called once per forward pass, that answer floats with the samples on the first axis."""
    found: dict[nn.Module, list[bool]] = {}

    def note(module, _given, answer):
        fits = isinstance(answer, torch.Tensor) and answer.is_floating_point() and answer.dim() >= 2
        found.setdefault(module, []).append(fits and len(answer) == samples and answer.shape[-1] > 2)

    batch = task.batch(0)
    samples = len(next(iter(batch.values())))
    leaves = [spot for spot in spots(task, nn.Module) if not list(spot.module.children())]
    handles = [spot.module.register_forward_hook(note) for spot in leaves]
    states = [{key: value.clone() for key, value in model.state_dict().items()} for model in task.models.values()]
    random_state = torch.get_rng_state()
    with torch.no_grad():
        task.players[0].loss(batch)
    torch.set_rng_state(random_state)
    for model, state in zip(task.models.values(), states, strict=True):
        model.load_state_dict(state)  # running statistics
    for handle in handles:
        handle.remove()
    return [spot for spot in leaves if found.get(spot.module) == [True]]
