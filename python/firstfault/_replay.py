"""Replay for Python: what a step began with, and the program's side of running it again."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

from firstfault._clip import _module
from firstfault._state import Hyperparameters, OptimizerState, ProgramState, RandomNumbers, TrainFlags, is_compiled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import torch

    from firstfault._fault import Fault
    from firstfault._guard import Guard


class Habits:
    """What was learnt about the program's steps, so that only those copies are made that are needed."""

    def __init__(self) -> None:
        self.left_over = _module().LeftOver()  # gradients
        self.writes_batch = False


class Began:
    """What a step began with, for it to be run again."""

    def __init__(self, guard: Guard, roots: list[Any], batch: tuple) -> None:
        from torch.utils._pytree import tree_flatten

        parts = guard._parts
        self.watch_step: int = guard.watch._live.steps()
        self.roots = roots
        self.leaves, self.spec = tree_flatten(batch)
        self.where = [i for i, leaf in enumerate(self.leaves) if hasattr(leaf, "untyped_storage")]
        self.tensors = [self.leaves[i] for i in self.where]
        self.versions = [version_of(tensor) for tensor in self.tensors]
        self._habits = guard._habits
        self.copies = _module().Copies(self.tensors).copies if self._habits.writes_batch else None
        self.random = RandomNumbers()
        self.hyperparameters = Hyperparameters(parts.optimizers)
        self.flags = TrainFlags(parts.modules)
        self.buffers, self.buffer_slots = parts.renew_buffers(), parts.buffer_slots
        self.program = ProgramState([*roots, *parts.roots()], parts.known(self.tensors), parts.modules)
        parts.generators = self.program.generators
        self.parameters, self.names = parts.parameters()
        self._habits.left_over.begin(self.parameters)
        self.optimizer_copies: list[OptimizerState] = []  # of those that have written in this step
        self.unsaved = False  # an optimizer has written, and there is no copy from before it

    def has_written(self, copy: OptimizerState | None) -> None:
        if copy is not None:
            self.optimizer_copies.append(copy)
        else:
            self.unsaved = True

    def end_gradients(self) -> None:
        """See whether the step drops what was left over, as ``zero_grad()`` does, or writes into it."""
        self._habits.left_over.end(self.parameters)

    def intact(self) -> bool:
        """Whether the step left its batch as it was."""
        return all(version_of(t) == version for t, version in zip(self.tensors, self.versions, strict=True))

    def state(self) -> Any:
        """As the C++ side takes it."""
        state = _module().StepState()
        state.set_batch(self.copies if self.copies is not None else self.tensors)
        intact = self.intact()
        self._habits.writes_batch = self._habits.writes_batch or not intact
        state.batch_intact = self.copies is not None or intact
        state.set_parameters(self.parameters, self.names)
        state.set_gradients(self._habits.left_over)
        state.buffers = self.buffers
        state.random = self.random.torch
        return state


class Program:
    """The program's side of a replay."""

    def __init__(self, guard: Guard, began: Began, call: Callable[[tuple], Any], writes: set[int]) -> None:
        self.guard, self.began, self.call, self.writes = guard, began, call, writes
        self.as_compiled = False
        self.after = self._now()

    def _now(self) -> tuple:
        parts = self.guard._parts
        return (
            ProgramState([*self.began.roots, *parts.roots()], parts.known(self.began.tensors), parts.modules),
            Hyperparameters(parts.optimizers),
            TrainFlags(parts.modules),
            RandomNumbers(),
            parts.buffers(),
        )

    def restore(self) -> None:
        for copy in self.began.optimizer_copies:
            copy.restore()
        self.began.program.restore()
        self.began.hyperparameters.restore()
        self.began.flags.restore()
        self.began.buffer_slots.restore()
        self.began.random.restore_others()

    def run(self, batch: list[torch.Tensor], write: bool) -> torch.Tensor | None:
        from torch.utils._pytree import tree_unflatten

        leaves = list(self.began.leaves)
        for place, tensor in zip(self.began.where, batch, strict=True):
            leaves[place] = tensor
        guard = self.guard
        guard._replay = self
        try:
            with contextlib.nullcontext() if self.as_compiled else in_eager():
                return tensor_of(self.call(tree_unflatten(leaves, self.began.spec)))
        finally:
            guard._replay = None
            guard._hooks.show_all()

    def use_compiled(self, on: bool) -> bool:
        """Whether the program has any compiled code; ``on``: ``run()`` uses it."""
        self.as_compiled = on
        return self.began.program.compiled or any(map(is_compiled, self.guard._parts.modules))

    def resume(self) -> None:
        for copy in self.began.optimizer_copies:
            copy.restore()
        program, hyperparameters, flags, random, slots = self.after
        slots.restore()
        program.restore()
        hyperparameters.restore()
        flags.restore()
        random.restore_others()


class Replayer:
    """Runs the faulty step again, as often as wanted. After ``close()`` the run is as if nothing had happened.

    ``run()`` takes one change: ``batch``, a function from the list of the batch's tensors to another one; ``begin`` and
    ``end``, called right before and after the step, with everything as it was when the step began;
    ``writes_parameters`` where ``begin`` does. Gives a result with ``finite``, ``bad``, ``loss``, the bits of loss and
    gradients, ``origins``, ``threw`` and ``error``.
    """

    def __init__(self, guard: Guard, fault: Fault, live: Any, step: Any, began: Began) -> None:
        self.guard, self.fault, self.step, self.began = guard, fault, step, began
        self._live = live

    def run(
        self,
        name: str = "",
        *,
        batch: Callable[[list], list] | None = None,
        begin: Callable[[], None] | None = None,
        end: Callable[[], None] | None = None,
        writes_parameters: bool = False,
    ) -> Any:
        return self._live.run(name, batch, begin, end, writes_parameters)

    def verify(self, n: int = 2) -> Any:
        """The unchanged replay ``n`` times: ``exact``, ``deterministic``, ``replays``, ``failed``, ``why``."""
        return self._live.verify(self.step, n)

    @property
    def has_gradients(self) -> bool:
        """Some were left over from before the step."""
        return self._live.has_gradients

    @property
    def replays(self) -> int:
        return self._live.replays

    def close(self) -> None:
        self._live.close()


def handed_out_again(guard: Guard, began: Began, fault: Fault) -> Iterator[Any]:
    """The batch of a step, for a loop to run it again from where it began; gives the fault its origins."""
    from torch.utils._pytree import tree_unflatten

    live = _module()
    program = Program(guard, began, lambda _: None, set())
    gradients = [parameter.grad for parameter in began.parameters]
    slots = guard._parts.buffers()
    buffers = live.Copies(slots.tensors)
    program.restore()
    began.buffers.restore()
    began.random.restore()
    for parameter in began.parameters:
        parameter.grad = None
    leaves = list(began.leaves)
    for place, tensor in zip(began.where, live.Copies(began.tensors).copies, strict=True):
        leaves[place] = tensor
    guard._replay = program
    guard.watch._live.begin_aside()
    try:
        with in_eager():
            yield tree_unflatten(leaves, began.spec)[0]
    finally:
        fault.origins = guard.watch._live.end_aside(False).origins
        guard._replay = None
        guard._hooks.show_all()
        for parameter, gradient in zip(began.parameters, gradients, strict=True):
            parameter.grad = gradient
        slots.restore()
        buffers.restore()
        program.resume()
        program.after[3].restore()


def version_of(tensor: torch.Tensor) -> int:
    return -1 if tensor.is_inference() else tensor._version


def in_eager() -> contextlib.AbstractContextManager:
    """What is compiled runs as it was written, so that its ops can be seen."""
    if "torch._dynamo" not in sys.modules:
        return contextlib.nullcontext()
    import torch

    return torch.compiler.set_stance("force_eager")


def tensor_of(result: Any) -> torch.Tensor | None:
    """The loss in what a step function gives back."""
    import torch

    if isinstance(result, dict):
        result = result.get("loss")
    elif isinstance(result, (tuple, list)) and result:
        result = result[0]
    elif not isinstance(result, (torch.Tensor, int, float)) and hasattr(result, "loss"):
        result = result.loss
    if isinstance(result, (int, float)) and not isinstance(result, bool):
        return torch.tensor(float(result), dtype=torch.float64)
    return result if isinstance(result, torch.Tensor) and result.numel() == 1 else None
