"""Windows of steps, run again from a snapshot with one thing changed: what proves the cause of a divergence."""

from __future__ import annotations

import contextlib
import math
import time
from typing import TYPE_CHECKING, Any

from firstfault._experiments import Progress
from firstfault._replay import tensor_of
from firstfault._snapshots import Snapshot
from firstfault._state import ProgramState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import torch

    from firstfault._core import Experiment
    from firstfault._guard import Guard

_SMALLER = (10, 100)  # parts of the learning rate, over as many times the steps
_MOST_STEPS = 5000  # in one window
_MARGIN = 2  # steps after the fault


class Windows:
    """From the oldest snapshot before the onset to just after the fault."""

    def __init__(self, guard: Guard, train_step: Callable[..., Any], batches: Callable[[int], Any]) -> None:
        self.guard, self.train_step, self.batches = guard, train_step, batches
        self.optimizers = guard._parts.optimizers
        self.progress = Progress()

    def prove(self, step: int, first: int) -> list[Experiment]:
        """``step``: of the fault; ``first``: of the snapshot. The program is afterwards as it was."""
        from firstfault import _core

        guard = self.guard
        snapshot = guard._snapshots.newest_until(first)
        if snapshot is None:
            return []
        now = Snapshot(guard.steps, guard._parts)
        program = ProgramState([self.train_step, self.batches, *guard._parts.roots()], guard._parts.known())
        gradients = [parameter.grad for parameter in guard._parts.parameters()[0]]
        made: list[Experiment] = []
        length = step - snapshot.step + 1 + _MARGIN
        try:
            with self._alone():
                began = time.monotonic()
                usual = self._run(snapshot, length, contextlib.nullcontext(), None)
                made.append(self._told(_core.Experiment(usual), step, began, f"{len(usual)} steps, nothing changed"))
                if made[0].outcome != "failed":
                    return made
                for name, times, change, batch, text in self._changes(snapshot, length):
                    if any(one.name == name and one.outcome == "cured" for one in made):
                        continue  # by less of it
                    began = time.monotonic()
                    losses = self._run(snapshot, times * length, change, batch)
                    text = f"{text}, {len(losses)} steps from step {snapshot.step}"
                    made.append(self._told(_core.Experiment(name, usual, losses), step, began, text))
        finally:
            now.restore()
            program.restore()
            for parameter, gradient in zip(guard._parts.parameters()[0], gradients, strict=True):
                parameter.grad = gradient
        return made

    def _told(self, made: Experiment, step: int, began: float, text: str) -> Experiment:
        made.step, made.text, made.seconds = step, text, time.monotonic() - began
        self.progress(made)
        return made

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Neither the guard nor the watch takes these steps for the run's."""
        active, self.guard._active = self.guard._active, False
        self.guard.watch._live.begin_aside()
        try:
            yield
        finally:
            self.guard.watch._live.end_aside(False)
            self.guard._active = active

    def _run(self, snapshot: Snapshot, steps: int, change: Any, batch: Callable | None) -> list[float]:
        """The losses, up to the first one that is not finite."""
        snapshot.restore()
        for parameter in self.guard._parts.parameters()[0]:
            parameter.grad = None
        losses: list[float] = []
        with contextlib.suppress(IndexError), change:
            for number in range(snapshot.step, snapshot.step + steps):
                given = self.batches(number)
                given = given if isinstance(given, tuple) else (given,)
                losses.append(self._loss(given if batch is None else batch(given)))
                if not math.isfinite(losses[-1]):
                    break
        return losses

    def _loss(self, given: tuple) -> float:
        """NaN also for a step that cannot be made, as with parameters that are NaN by then."""
        try:
            loss = tensor_of(self.guard._function.call(self.train_step, given))
        except Exception:
            return math.nan
        return math.nan if loss is None else float(loss.detach())

    def _changes(self, snapshot: Snapshot, length: int) -> Iterator[tuple]:
        none = contextlib.nullcontext
        for part in _SMALLER:
            if part * length <= _MOST_STEPS:
                rate = self._rate(lambda _, part=part: 1 / part)
                yield "lower_rate", part, rate, None, f"1/{part} of the learning rate"
        yield "zero_grad", 1, self._before_forward(), None, "gradients set to zero before each step"
        yield "averaged", 1, self._averaged(), None, "gradients divided by the number of backwards"
        if snapshot.step == 0:
            warm = max(5, length // 2)
            yield "warm_up", 1, self._rate(lambda n: min(1.0, n / warm)), None, f"a warm-up of {warm} steps"
        if (standardise := _standardiser(self.batches(snapshot.step))) is not None:
            yield "standardised", 1, none(), standardise, "inputs and targets with mean 0 and deviation 1"
        if any(fact.kind == "raw_scores" for fact in self.guard.watch.run().facts):
            yield "log_probabilities", 1, _log_probabilities(), None, "log_softmax of the scores before nll_loss"

    @contextlib.contextmanager
    def _hooked(self, before: Callable[[Any], None], after: Callable[[Any], None] | None = None) -> Iterator[None]:
        handles = [one.register_step_pre_hook(lambda o, *_: before(o)) for one in self.optimizers]
        if after is not None:
            handles += [one.register_step_post_hook(lambda o, *_: after(o)) for one in self.optimizers]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _rate(self, factor: Callable[[int], float]) -> Any:
        saved: dict[int, list[Any]] = {}
        count = [0]

        def before(optimizer: Any) -> None:
            count[0] += 1
            saved[id(optimizer)] = [group["lr"] for group in optimizer.param_groups]
            for group in optimizer.param_groups:
                group["lr"] = group["lr"] * factor(count[0])

        def after(optimizer: Any) -> None:
            for group, lr in zip(optimizer.param_groups, saved.pop(id(optimizer), ()), strict=False):
                group["lr"] = lr

        return self._hooked(before, after)

    def _before_forward(self) -> Any:
        def after(optimizer: Any) -> None:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    parameter.grad = None

        return self._hooked(lambda _: None, after)

    @contextlib.contextmanager
    def _averaged(self) -> Iterator[None]:
        import torch

        count = [0]
        backward = torch.Tensor.backward

        def counted(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            count[0] += 1
            return backward(tensor, *args, **kwargs)

        def before(optimizer: Any) -> None:
            times, count[0] = max(1, count[0]), 0
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        parameter.grad.div_(times)

        torch.Tensor.backward = counted
        try:
            with self._hooked(before):
                yield
        finally:
            torch.Tensor.backward = backward


@contextlib.contextmanager
def _log_probabilities() -> Iterator[None]:
    import torch.nn.functional

    plain = torch.nn.functional.nll_loss

    def on_scores(scores: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        return plain(scores.log_softmax(1 if scores.dim() > 1 else 0), *args, **kwargs)

    torch.nn.functional.nll_loss = on_scores
    try:
        yield
    finally:
        torch.nn.functional.nll_loss = plain


def _standardiser(batch: Any) -> Callable[[tuple], tuple] | None:
    """By the statistics of one batch, column by column; None where it has no floating tensor."""
    import torch
    from torch.utils._pytree import tree_flatten, tree_unflatten

    def statistics(leaf: Any) -> tuple | None:
        if not isinstance(leaf, torch.Tensor) or not leaf.is_floating_point() or leaf.dim() < 1 or len(leaf) < 2:
            return None
        if not bool(torch.isfinite(leaf).all()):
            return None
        values = leaf.double()
        along = [0] if leaf.dim() <= 2 else list(range(leaf.dim()))
        mean, deviation = values.mean(along, keepdim=True), values.std(along, keepdim=True)
        return mean, torch.where(deviation > 0, deviation, torch.ones_like(deviation))

    known = [statistics(leaf) for leaf in tree_flatten(batch)[0]]
    if not any(known):
        return None

    def standardise(given: tuple) -> tuple:
        leaves, spec = tree_flatten(given)
        for i, (leaf, one) in enumerate(zip(leaves, known, strict=True)):
            if one is not None:
                leaves[i] = ((leaf.double() - one[0]) / one[1]).to(leaf.dtype)
        return tree_unflatten(leaves, spec)

    return standardise
