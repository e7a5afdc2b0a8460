"""Who watches: firstfault, a callback that does nothing, and the tools people use today.

An observer is held (``with``) while a series of blocks runs; ``on()`` and ``off()`` decide for each block whether it is
observed, and are not part of what is timed.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn
    from works import Work

BUILD = Path(os.environ.get("FIRSTFAULT_BUILD", Path(__file__).resolve().parent.parent / "build"))


def load_floor():
    """The benchmarks' own compiled module; call after torch is imported."""
    if (folder := str(BUILD / "benchmarks")) not in sys.path:
        sys.path.insert(0, folder)
    try:
        import _floor
    except ImportError as error:
        sys.exit(f"benchmarks: the module _floor is not in {folder} ({error}); 'make build' makes it")
    return _floor


class Observer:
    name: ClassVar[str]

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    def __enter__(self) -> Observer:
        return self

    def __exit__(self, *error: object) -> None:
        self.off()

    def on(self) -> None:
        pass

    def off(self) -> None:
        pass


class Recorded(Observer):
    """Whatever is registered with LibTorch stays so; for a plain block, this thread calls no callbacks."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self.floor = load_floor()

    def __enter__(self) -> Observer:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.on()
        self.stop()

    def on(self) -> None:
        self.floor.set_recording(True)

    def off(self) -> None:
        self.floor.set_recording(False)

    def start(self) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        raise NotImplementedError


class EmptyCallback(Recorded):
    name = "empty callback"

    def start(self) -> None:
        self.floor.start_empty()

    def stop(self) -> None:
        self.floor.stop_empty()


class Trace(Recorded):
    name = "without stacks"
    stacks = False

    def start(self) -> None:
        import firstfault

        self.trace = firstfault.trace(stacks=self.stacks)
        self.trace.watch(self.model, name="model")
        self.trace.start()

    def stop(self) -> None:
        self.trace.stop()


class TraceWithStacks(Trace):
    name = "with stacks"
    stacks = True


class HeldTrace(TraceWithStacks):
    """A trace in which no block is observed, against none: tells whether the plain blocks of the others are plain."""

    name = "held, not observed"

    def __enter__(self) -> Observer:
        return self

    def __exit__(self, *error: object) -> None:
        self.off()

    def on(self) -> None:
        self.start()
        self.floor.set_recording(False)

    def off(self) -> None:
        self.floor.set_recording(True)
        if "trace" in self.__dict__:
            self.stop()


class Sherlorch(Observer):
    """A trace for each block, since its graph grows as long as one is held."""

    name = "sherlorch"
    tracker = None

    def on(self) -> None:
        import sherlorch

        self.tracker = sherlorch.trace().__enter__()
        self.tracker.watch(self.model, name="model")

    def off(self) -> None:
        if self.tracker is not None:
            self.tracker.__exit__(None, None, None)
        self.tracker = None


class DetectAnomaly(Observer):
    name = "detect_anomaly"

    def on(self) -> None:
        torch.autograd.set_detect_anomaly(True)

    def off(self) -> None:
        torch.autograd.set_detect_anomaly(False)


class Watch(Recorded):
    """A watched run; for a plain block neither its callbacks nor its hooks on the optimizer are called."""

    level: ClassVar[str]

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        super().__init__(model)
        self.optimizer = optimizer

    def start(self) -> None:
        import firstfault

        self.run = firstfault.watch(self.model, self.optimizer, level=self.level)
        self.hooks = self.optimizer._optimizer_step_pre_hooks, self.optimizer._optimizer_step_post_hooks

    def stop(self) -> None:
        self.run.close()

    def on(self) -> None:
        super().on()
        self.optimizer._optimizer_step_pre_hooks, self.optimizer._optimizer_step_post_hooks = self.hooks

    def off(self) -> None:
        super().off()
        self.optimizer._optimizer_step_pre_hooks = type(self.hooks[0])()
        self.optimizer._optimizer_step_post_hooks = type(self.hooks[1])()


class WatchOps(Watch):
    name = "ops"
    level = "ops"


class WatchModules(Watch):
    name = "modules"
    level = "modules"


class WatchGradients(Watch):
    name = "gradients"
    level = "gradients"


class Twin(Observer):
    """A second model with its optimizer, which is observed all the time; for an observed block, its step is taken.
    For a plain block, this thread calls no callbacks of LibTorch's.

    make: gives the work anew. attach: gets it, may change its step, and gives what to call at the end.
    """

    def __init__(self, make: Callable[[], Work], attach: Callable[..., Callable[[], None]]) -> None:
        self.plain, self.observed = make(), make()
        super().__init__(self.plain.model)
        self.floor = load_floor()
        self.close = attach(self.observed)
        self.work = dataclasses.replace(self.plain, step=lambda: self.step())
        self.step = self.plain.step

    def __exit__(self, *error: object) -> None:
        self.on()
        self.close()

    def on(self) -> None:
        self.floor.set_recording(True)
        self.step = self.observed.step

    def off(self) -> None:
        self.floor.set_recording(False)
        self.step = self.plain.step
