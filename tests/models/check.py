"""Trains each healthy model twice, plain and traced: the same bits, and nothing reported that is not there.

usage: python -m tests.models.check [--steps 100] [NAME...]
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

import firstfault as ff

from . import zoo
from .workload import Workload

SEED = 11


@dataclass
class Outcome:
    """What one model came to: where plain and traced differ, and what the trace said."""

    name: str
    last_loss: float
    differences: list[str]
    nonfinite: list[str]
    faults: list[ff.Origin]
    warnings: list[ff.Origin]
    notes: list[ff.Origin]
    tool: list[str]

    @property
    def passed(self) -> bool:
        return not (self.differences or self.nonfinite or self.faults or self.tool)


def state_of(workload: Workload) -> dict[str, torch.Tensor]:
    """Parameters, buffers, gradients, optimizer state and the state of the random number generators."""
    state = {"random state of torch": torch.get_rng_state()}
    state["random state of numpy"] = torch.from_numpy(numpy.random.get_state()[1].astype("int64"))
    state["random state of python"] = torch.tensor(random.getstate()[1])
    for name, model in workload.models.items():
        state |= {f"{name}.{key}": value for key, value in (*model.named_parameters(), *model.named_buffers())}
        grads = {f"gradient of {name}.{key}": p.grad for key, p in model.named_parameters() if p.grad is not None}
        state |= {key: grad.to_dense() for key, grad in grads.items()}
    for number, optimizer in enumerate(workload.optimizers):
        for position, entries in enumerate(optimizer.state.values()):
            tensors = {key: value for key, value in entries.items() if isinstance(value, torch.Tensor)}
            state |= {f"optimizer {number}, {position}.{key}": value for key, value in tensors.items()}
    return {key: value.detach().clone() for key, value in state.items()}


@contextlib.contextmanager
def counted_optimizer_steps() -> Iterator[list[int]]:
    """One entry for each step that an optimizer of torch makes meanwhile; skipped ones are none."""
    made: list[int] = []
    handle = register_optimizer_step_post_hook(lambda *_: made.append(1))
    try:
        yield made
    finally:
        handle.remove()


def train(make: Callable[[], Workload], steps: int, tracker: ff.Trace | None) -> dict[str, torch.Tensor]:
    """Everything that the training left behind, by name."""
    workload = zoo.build(make, SEED)
    losses = {}
    if tracker:
        for name, model in workload.models.items():
            tracker.watch(model, name)
        tracker.start()
    try:
        for step in range(steps):
            losses[f"loss of step {step}"] = workload.step(step).clone()
    finally:
        if tracker:
            tracker.stop()
    return losses | state_of(workload)


def same_bytes(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return torch.equal(a.contiguous().flatten().view(torch.uint8), b.contiguous().flatten().view(torch.uint8))


def check(name: str, make: Callable[[], Workload], steps: int) -> Outcome:
    with counted_optimizer_steps() as made:
        plain = train(make, steps, None)
    tracker = ff.trace()
    traced = train(make, steps, tracker)
    differences = [key for key in plain if key not in traced or not same_bytes(plain[key], traced[key])]
    differences += [key for key in traced if key not in plain]
    losses = {key: value for key, value in plain.items() if key.startswith("loss")}
    nonfinite = [key for key, value in losses.items() if not torch.isfinite(value).all()]
    origins, run = tracker.origins(), tracker.run()
    tool = list(run.warnings)
    if not min(len(made) or steps, steps) <= run.steps <= max(len(made), steps) + 1:
        tool.append(f"{run.steps} steps were counted; optimizers made {len(made)} in {steps} steps of the loop")
    return Outcome(
        name,
        float(losses[f"loss of step {steps - 1}"].mean()),
        differences,
        nonfinite,
        faults=[origin for origin in origins if origin.sink],
        warnings=[origin for origin in origins if origin.swallowed],
        notes=[origin for origin in origins if origin.absorbed],
        tool=tool,
    )


def print_outcome(outcome: Outcome) -> None:
    said = f"{len(outcome.faults)} faults, {len(outcome.warnings)} warnings, {len(outcome.notes)} notes"
    verdict = "ok  " if outcome.passed else "FAIL"
    print(f"{verdict} {outcome.name:28} loss {outcome.last_loss:10.4g}   {said}", flush=True)
    for title, keys in (("differs", outcome.differences), ("is not finite", outcome.nonfinite)):
        if keys:
            print(f"     {title}: {', '.join(keys[:4])}{' …' if len(keys) > 4 else ''} ({len(keys)})")
    for line in outcome.tool:
        print(f"     {line}")
    for title, origins in (("fault", outcome.faults), ("warning", outcome.warnings)):
        for origin in origins:
            print(f"     {title}: " + str(origin).replace("\n", "\n       "))
    for origin in outcome.notes:
        print(f"     note: {str(origin).splitlines()[0]}")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.models.check", description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("names", nargs="*", metavar="NAME", help="all of them when none is given")
    options = parser.parse_args(arguments)
    known = zoo.models()
    unknown = [name for name in options.names if name not in known]
    if unknown:
        parser.error(f"no model {', '.join(unknown)}; there are {', '.join(known)}")
    torch.set_num_threads(1)
    failed = []
    for name in options.names or known:
        outcome = check(name, known[name], options.steps)
        print_outcome(outcome)
        if not outcome.passed:
            failed.append(name)
    print(f"{len(options.names or known) - len(failed)} passed, {len(failed)} failed {' '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
