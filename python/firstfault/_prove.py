"""Windows of steps, run again from a snapshot with one thing changed: what proves a cause that takes time to act."""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING, Any

from firstfault._changes import Applied, Changes, draw_for_relu
from firstfault._clip import _module
from firstfault._experiments import Progress, in_float32
from firstfault._replay import tensor_of
from firstfault._snapshots import Snapshot
from firstfault._state import ProgramState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from firstfault._core import Experiment, Hypothesis, Run
    from firstfault._guard import Guard

_MOST_STEPS = 5000  # in the unchanged window
_MARGIN = 2  # steps after the fault
_BEFORE = 50  # steps before the onset, for a watch to learn what is usual


class Windows:
    """From a snapshot before the onset to just after the fault, or to the last step that was made."""

    def __init__(self, guard: Guard, train_step: Callable[..., Any], batches: Callable[[int], Any]) -> None:
        self.guard, self.train_step, self.batches = guard, train_step, batches
        self._changes = Changes(guard._parts.optimizers)
        self._snapshot: Snapshot | None = None
        self._onset = 0

    def prove(self, suspected: list[Hypothesis], recorded: Run) -> list[Experiment]:
        """``suspected``: about one step, best first. The program is afterwards as it was."""
        guard, best = self.guard, suspected[0]
        self._onset = best.step if best.onset_step is None else best.onset_step
        diverged = any(one.step == best.step and one.fault for one in guard.actions)
        made: list[Experiment] = []
        with self._as_it_was():
            for snapshot in self._starts(diverged):
                self._snapshot = snapshot
                last = best.step + _MARGIN if diverged else min(guard.steps - 1, snapshot.step + _MOST_STEPS)
                made = self._prove(suspected, recorded, last + 1 - snapshot.step, diverged)
                if made and made[0].outcome == "failed":
                    break
        return made

    def _prove(self, suspected: list[Hypothesis], recorded: Run, steps: int, diverged: bool) -> list[Experiment]:
        from firstfault import _core

        first = self._snapshot.step
        return _core.prove_by_windows(self._run, recorded, suspected, first, steps, diverged, Progress())

    def _starts(self, diverged: bool) -> list[Snapshot]:
        """Where windows begin; the next one where the one before shows no fault."""
        snapshots = self.guard._snapshots
        first = snapshots.newest_until(self._onset if diverged else max(0, self._onset - _BEFORE))
        oldest = next(iter(snapshots), None)
        starts = [first] if diverged else [first, oldest]
        return [one for i, one in enumerate(starts) if one is not None and one not in starts[:i]]

    @contextlib.contextmanager
    def _as_it_was(self) -> Iterator[None]:
        """Neither the guard nor the watch takes these steps for the run's, and all is put back."""
        guard = self.guard
        now = Snapshot(guard.steps, guard._parts)
        program = ProgramState([self.train_step, self.batches, *guard._parts.roots()], guard._parts.known())
        parameters = guard._parts.parameters()[0]
        gradients = [parameter.grad for parameter in parameters]
        active, guard._active = guard._active, False
        guard.watch._live.pause()
        try:
            yield
        finally:
            guard.watch._live.resume()
            guard._active = active
            now.restore()
            program.restore()
            guard._hooks.forget_sizes()
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient

    def _run(self, name: str, times: int, warm_up: int, steps: int, watched: bool) -> tuple[list, Run | None] | None:
        """Losses up to the first one that is not finite, and what a watch recorded."""
        self._snapshot.restore()
        for parameter in self.guard._parts.parameters()[0]:
            parameter.grad = None
        change = self._change(name, times, warm_up)
        if change is None:
            return None
        losses: list[float] = []
        watch = self._watch() if watched else None
        try:
            with contextlib.suppress(IndexError), change as applied:
                self.guard._hooks.begin_window()  # after the change: it clips last
                for number in range(self._snapshot.step, self._snapshot.step + steps):
                    given = self.batches(number)
                    given = given if isinstance(given, tuple) else (given,)
                    losses.append(self._loss(given if applied.batch is None else applied.batch(number, given)))
                    if not math.isfinite(losses[-1]):
                        break
        finally:
            self.guard._hooks.end_window()
            if watch is not None:
                watch.close()
        return (losses, watch and watch.run()) if applied.used else None

    def _watch(self) -> Any:
        from firstfault._watch import Watch

        parts = self.guard._parts
        return Watch(dict(parts.models), parts.optimizers).start()

    def _loss(self, given: tuple) -> float:
        """NaN also for a step that cannot be made, as with parameters that are NaN by then."""
        try:
            loss = tensor_of(self.guard._function.call(self.train_step, given))
        except Exception:
            return math.nan
        return math.nan if loss is None else float(loss.detach())

    def _change(self, name: str, times: int, warm_up: int) -> Any:
        parts = self.guard._parts
        parameters = parts.parameters()[0]
        if name == "initialised":
            _module().draw_anew(parameters)
            return contextlib.nullcontext(Applied())
        if name == "other_activation":
            draw_for_relu(parameters)
        if name == "float32":
            return _applied(in_float32(parameters, parts, parts.optimizers))
        if name == "standardised":
            standardise = _standardiser(self.batches(self._snapshot.step))
            return None if standardise is None else _with_batch(lambda _, given: standardise(given))
        if name == "clipped":
            return _with_batch(_Clipping(self._onset))
        if name == "other_batch":
            before = self.batches(self._onset - 1) if self._onset > self._snapshot.step else None
            before = before if before is None or isinstance(before, tuple) else (before,)
            return before and _with_batch(lambda number, given: before if number == self._onset else given)
        return self._changes.of(name, times, warm_up)


@contextlib.contextmanager
def _applied(change: contextlib.AbstractContextManager) -> Iterator[Applied]:
    with change:
        yield Applied()


@contextlib.contextmanager
def _with_batch(batch: Callable[[int, tuple], tuple]) -> Iterator[Applied]:
    applied = Applied()
    applied.batch = batch
    yield applied
    applied.used = getattr(batch, "used", True)


class _Clipping:
    """The batch of one step, clipped to the range of those before it."""

    def __init__(self, step: int) -> None:
        self._step = step
        self._memory = _module().BatchMemory()
        self.used = False

    def __call__(self, number: int, given: tuple) -> tuple:
        import torch
        from torch.utils._pytree import tree_flatten, tree_unflatten

        leaves, spec = tree_flatten(given)
        places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        tensors = [leaves[i] for i in places]
        if number != self._step:
            self._memory.remember(tensors)
            return given
        for place, tensor in zip(places, self._memory.clipped(tensors), strict=True):
            if tensor is not leaves[place]:
                leaves[place] = tensor.requires_grad_(leaves[place].requires_grad)
                self.used = True
        return tree_unflatten(leaves, spec)


def _standardiser(batch: Any) -> Callable[[tuple], tuple] | None:
    """By the statistics of one batch; None where it has no floating tensor."""
    from torch.utils._pytree import tree_flatten, tree_unflatten

    leaves, _ = tree_flatten(batch)
    standardiser = _module().Standardiser(_tensors(leaves))
    if not standardiser:
        return None

    def standardise(given: tuple) -> tuple:
        leaves, spec = tree_flatten(given)
        made = standardiser(_tensors(leaves))
        return tree_unflatten([old if new is None else new for old, new in zip(leaves, made, strict=True)], spec)

    return standardise


def _tensors(leaves: list[Any]) -> list[Any]:
    import torch

    return [leaf if isinstance(leaf, torch.Tensor) else None for leaf in leaves]
