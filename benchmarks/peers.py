"""The tools that watch whole steps, each on a work of its own: what attaches it, and gives what to call at the end.

They are called once a step, where their guides say: before the optimizer's step, by a hook on the optimizer here.
"""

from __future__ import annotations

import contextlib
import io
import tempfile
from importlib import metadata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from works import Work

LOSS = 1.0  # they are given a number, as their users give them loss.item()


def neuraldbg(work: Work) -> Callable[[], None]:
    from neuraldbg import NeuralDbg

    watching = NeuralDbg(work.model).__enter__()

    def step(*_: object) -> None:
        watching.record_loss(LOSS)
        watching.step += 1

    work.optimizer.register_step_pre_hook(step)
    return lambda: watching.__exit__(None, None, None)


def torchmortem(work: Work) -> Callable[[], None]:
    from torchmortem import Autopsy

    autopsy = Autopsy(work.model, work.optimizer)
    autopsy.attach()
    work.optimizer.register_step_pre_hook(lambda *_: autopsy.step(loss=LOSS))
    return autopsy.detach


def trainscope(work: Work) -> Callable[[], None]:
    from trainscope import TrainScope, TrainScopeConfig

    folder = tempfile.TemporaryDirectory()
    scope = TrainScope(work.model, work.optimizer, TrainScopeConfig(run_name="bench", run_dir=folder.name)).attach()
    work.optimizer.register_step_pre_hook(lambda *_: scope.step(LOSS) and None)

    def close() -> None:
        scope.detach()
        folder.cleanup()

    return close


def ormas_monitor(work: Work) -> Callable[[], None]:
    from ormas_monitor import Monitor

    folder = tempfile.TemporaryDirectory()
    monitor = Monitor(work.model, work.optimizer, out=folder.name, check_every=1, verbose=False, overwrite=True)
    work.optimizer.register_step_pre_hook(lambda *_: monitor.step(LOSS))

    def close() -> None:
        monitor.close(report=False)
        folder.cleanup()

    return close


def stabilityguard(work: Work) -> Callable[[], None]:
    from stabilityguard import GuardedOptimizer

    folder = tempfile.TemporaryDirectory()
    optimizer = work.optimizer
    original = optimizer.step
    guarded = GuardedOptimizer(optimizer, work.model, log_dir=folder.name, verbose=False)

    def step() -> None:  # the work calls optimizer.step(), and the wrapper calls the real one
        optimizer.step = original
        with contextlib.redirect_stdout(io.StringIO()):
            guarded.step(loss=LOSS)
        optimizer.step = step

    optimizer.step = step
    return folder.cleanup


def zclip(work: Work) -> Callable[[], None]:
    from zclip import ZClip

    clip = ZClip()
    work.optimizer.register_step_pre_hook(lambda *_: clip.step(work.model) and None)
    return lambda: None


WATCHERS = {
    "neuraldbg": neuraldbg,
    "torchmortem": torchmortem,
    "trainscope": trainscope,
    "ormas-monitor": ormas_monitor,
}
GUARDS = {"stabilityguard": stabilityguard, "zclip": zclip}


def installed(tools: dict[str, Callable]) -> dict[str, Callable]:
    """Those that are there, by name and version."""
    there = {}
    for name, attach in tools.items():
        with contextlib.suppress(metadata.PackageNotFoundError):
            there[f"{name} {metadata.version(name)}"] = attach
    return there
