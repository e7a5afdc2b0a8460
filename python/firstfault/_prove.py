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


class Windows:
    """From a snapshot before the onset to just after the fault, or to the last step that was made."""

    def __init__(self, guard: Guard, train_step: Callable[..., Any], batches: Callable[[int], Any]) -> None:
        self.guard, self.train_step, self.batches = guard, train_step, batches
        self._changes = Changes(guard._parts.optimizers)
        self._snapshot: Snapshot | None = None
        self._onset, self._calls = 0, 1

    def prove(self, suspected: list[Hypothesis], recorded: Run) -> list[Experiment]:
        """``suspected``: about one step, best first. The program is afterwards as it was."""
        from firstfault import _core

        guard, best = self.guard, suspected[0]
        step = self._own_step(best.step)
        self._onset = step if best.onset_step is None else self._own_step(best.onset_step)
        self._calls = max(1, self._own_step(guard._watched_before + 1))
        diverged = any(self._own_step(one.step) == step and one.fault for one in guard.actions)
        kept = [one.step for one in guard._snapshots if not guard._function.accumulates_at(one.step)]
        made: list[Experiment] = []
        with self._as_it_was():
            for first, steps in _core.window_spans(self._onset, step, guard.steps, diverged, kept):
                self._snapshot = guard._snapshots.newest_until(first)
                made = _core.prove_by_windows(self._run, recorded, suspected, first, steps, diverged, Progress())
                if made and made[0].outcome == "failed":
                    break
        return made

    def _own_step(self, watched: int) -> int:
        """The watch counts a step per optimizer, and one where several calls accumulate."""
        guard = self.guard
        before = guard._watched_before
        return (watched - before) * guard.steps // max(1, guard.watch._live.steps() - before)

    def _at_onset(self, number: int) -> bool:
        """Of the calls that make up the step of the onset."""
        return self._onset <= number < self._onset + self._calls

    @contextlib.contextmanager
    def _as_it_was(self) -> Iterator[None]:
        """Neither the guard nor the watch takes these steps for the run's, and all is put back."""
        guard = self.guard
        now = Snapshot(guard.steps, guard._parts)
        function = guard._function.state()
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
            guard._function.restore(function)
            guard._hooks.forget_sizes()
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient

    def _run(self, name: str, divisor: int, warm_up: int, steps: int, watched: bool) -> tuple | None:
        """(losses up to the first one that is not finite, whether the step function threw, what a watch recorded)."""
        self._snapshot.restore()
        self.guard._function.begin_window()
        for parameter in self.guard._parts.parameters()[0]:
            parameter.grad = None
        change = self._change(name, divisor, warm_up)
        if change is None:
            return None
        losses: list[float] = []
        watch = self._watch() if watched else None
        try:
            with change as applied:
                self.guard._hooks.begin_window()  # after the change: it clips last
                threw = self._make(steps, applied, losses)
        finally:
            self.guard._hooks.end_window()
            if watch is not None:
                watch.close()
        return (losses, threw, watch and watch.run()) if applied.used else None

    def _make(self, steps: int, applied: Applied, losses: list[float]) -> bool:
        """Steps, until a loss is not finite or the data end; True: the step function threw."""
        for number in range(self._snapshot.step, self._snapshot.step + steps):
            try:
                given = self.batches(number)
            except IndexError:
                return False
            given = _as_tuple(given)
            given = given if applied.batch is None else applied.batch(number, given)
            try:
                result = self.guard._function.call(self.train_step, given)
            except Exception:  # as with parameters that are NaN by then
                losses.append(math.nan)
                return True
            loss = tensor_of(result)
            if loss is None:
                raise ValueError("firstfault.guard: prove() judges by the loss; train_step must return it")
            losses.append(float(loss.detach()))
            if not math.isfinite(losses[-1]):
                return False
        return False

    def _batch(self, number: int) -> tuple | None:
        """None where the data have ended before."""
        try:
            return _as_tuple(self.batches(number))
        except IndexError:
            return None

    def _watch(self) -> Any:
        from firstfault._watch import Watch

        parts = self.guard._parts
        return Watch(dict(parts.models), parts.optimizers).start()

    def _change(self, name: str, divisor: int, warm_up: int) -> Any:
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
            standardise = _standardiser(self._batch(self._snapshot.step))
            return None if standardise is None else _with_batch(lambda _, given: standardise(given))
        if name == "clipped":
            return _with_batch(_Clipping(self._at_onset))
        if name == "other_batch":
            before = self._batch(self._onset - 1) if self._onset > self._snapshot.step else None
            return before and _with_batch(lambda number, given: before if self._at_onset(number) else given)
        return self._changes.of(name, divisor, warm_up)


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
    """The batches of one step, clipped to the range of those before it."""

    def __init__(self, is_it: Callable[[int], bool]) -> None:
        self._is_it = is_it
        self._memory = _module().BatchMemory()
        self.used = False

    def __call__(self, number: int, given: tuple) -> tuple:
        import torch
        from torch.utils._pytree import tree_flatten, tree_unflatten

        leaves, spec = tree_flatten(given)
        places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        tensors = [leaves[i] for i in places]
        if not self._is_it(number):
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


def _as_tuple(given: Any) -> tuple:
    return given if isinstance(given, tuple) else (given,)


def _tensors(leaves: list[Any]) -> list[Any]:
    import torch

    return [leaf if isinstance(leaf, torch.Tensor) else None for leaf in leaves]
