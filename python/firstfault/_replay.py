"""Replay for Python: what a step began with, and the program's side of running it again."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

from firstfault._clip import _module
from firstfault._state import Hyperparameters, OptimizerState, ProgramState, RandomNumbers, TrainFlags, is_compiled

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from firstfault._fault import Fault
    from firstfault._guard import Guard

_LEARN = 4  # steps in which it is seen what becomes of left-over gradients


class Began:
    """What a step began with, for it to be run again."""

    def __init__(self, guard: Guard, roots: list[Any], batch: tuple) -> None:
        from torch.utils._pytree import tree_flatten

        live = _module()
        self.guard = guard
        self.watch_step: int = guard.watch._live.steps()
        self.roots = roots
        self.leaves, self.spec = tree_flatten(batch)
        self.where = [i for i, leaf in enumerate(self.leaves) if hasattr(leaf, "untyped_storage")]
        self.tensors = [self.leaves[i] for i in self.where]
        self.versions = [version_of(tensor) for tensor in self.tensors]
        self.copies = live.Copies(self.tensors).copies if guard._writes_batch else None
        self.random = RandomNumbers()
        self.hyperparameters = Hyperparameters(guard._parts.optimizers)
        self.flags = TrainFlags(guard._parts.modules)
        self.buffers, self.buffer_slots = guard._renewed_buffers(), guard._buffer_slots
        self.program = ProgramState([*roots, *guard._roots()], guard._known(self.tensors), guard._parts.modules)
        guard._parts.generators = self.program.generators
        self.parameters, self.names = guard._all_parameters()
        self.optimizer_copies: list[OptimizerState] = []  # of those that have written in this step
        self.unsaved = False  # an optimizer has written, and there is no copy from before it
        self._begin_gradients()

    def _begin_gradients(self) -> None:
        gradients = [parameter.grad for parameter in self.parameters]
        self.left, self.left_versions, self.left_copies = None, None, None
        if all(gradient is None for gradient in gradients):
            return
        if self.guard._gradient_habit == "in place":
            self.left_copies = _module().Copies(gradients).copies
        elif self.guard._gradient_habit == "learning":
            self.left = gradients
            self.left_versions = [None if g is None else version_of(g) for g in gradients]

    def end_gradients(self) -> None:
        """See whether the step drops what was left over, as ``zero_grad()`` does, or writes into it."""
        if self.left is None:
            return
        for parameter, gradient, version in zip(self.parameters, self.left, self.left_versions, strict=True):
            if gradient is not None and parameter.grad is gradient and version_of(gradient) != version:
                self.guard._gradient_habit = "in place"
        if self.guard._gradient_habit == "learning":
            self.guard._learnt += 1
            if self.guard._learnt >= _LEARN:
                self.guard._gradient_habit = "replaced"
        self.left = None

    def intact(self) -> bool:
        """Whether the step left its batch as it was."""
        return all(version_of(t) == version for t, version in zip(self.tensors, self.versions, strict=True))

    def state(self) -> Any:
        """As the C++ side takes it."""
        live = _module()
        state = live.StepState()
        state.set_batch(self.copies if self.copies is not None else self.tensors)
        written = [i for i, t in enumerate(self.tensors) if version_of(t) != self.versions[i]]
        if written:
            self.guard._writes_batch = True
        state.batch_intact = self.copies is not None or not written
        state.set_parameters(self.parameters, self.names)
        if self.left_copies is not None:
            state.set_gradients(self.left_copies)
        elif self.left is not None:
            state.set_gradients(self._left_gradients(state))
        state.buffers = self.buffers
        state.random = self.random.torch
        return state

    def _left_gradients(self, state: Any) -> list[torch.Tensor | None]:
        import torch

        result: list[torch.Tensor | None] = []
        for parameter, gradient, version in zip(self.parameters, self.left, self.left_versions, strict=True):
            if gradient is not None and version_of(gradient) != version:
                if parameter.grad is gradient:
                    self.guard._gradient_habit = "in place"
                    state.gradients_intact = False
                # Most likely it was set to 0 first, in place.
                gradient = torch.zeros_like(gradient)
            result.append(gradient)
        return result


class Program:
    """The program's side of a replay."""

    def __init__(self, guard: Guard, began: Began, call: Callable[[tuple], Any], writes: set[int]) -> None:
        self.guard, self.began, self.call, self.writes = guard, began, call, writes
        self.as_compiled = False
        self.after = self._now()

    def _now(self) -> tuple:
        guard = self.guard
        return (
            ProgramState([*self.began.roots, *guard._roots()], guard._known(self.began.tensors), guard._parts.modules),
            Hyperparameters(guard._parts.optimizers),
            TrainFlags(guard._parts.modules),
            RandomNumbers(),
            guard._parts.buffers(),
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
            guard._show_all()

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
    def replays(self) -> int:
        return self._live.replays

    def close(self) -> None:
        self._live.close()


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
