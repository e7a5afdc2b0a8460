"""What is done about a faulty step: it is run again to see why, then the policy's measure is carried out."""

from __future__ import annotations

import contextlib
import sys
import warnings
from typing import TYPE_CHECKING, Any

from firstfault._clip import _module
from firstfault._fault import Fault, TrainingFault
from firstfault._replay import Program, Replayer

if TYPE_CHECKING:
    from collections.abc import Callable

    from firstfault._core import Origin, Run
    from firstfault._experiments import Laboratory
    from firstfault._guard import Guard
    from firstfault._guarded import Guarded

_MOST_WARNINGS = 10


class Faults:
    def __init__(self, guard: Guard, laboratory: Laboratory, policy: Any, replays: int) -> None:
        self.guard, self.laboratory = guard, laboratory
        self.replays = replays
        self.now: Fault | None = None  # of the step that is being made
        self._policy = policy
        self._said: set[str] = set()

    def note(self, finding: Any, held: Guarded, *, written: bool) -> None:
        """The first one of a step counts."""
        if self.now is None:
            guard = self.guard
            # The watch counts each optimizer's step; where several are made in one call, it began with the first.
            step = guard.watch._live.steps() if guard._began is None else guard._began.watch_step
            self.now = Fault(guard.steps, step, finding, held, written=written)

    def take(self) -> Fault | None:
        fault, self.now = self.now, None
        return fault

    def healthy(self) -> None:
        self._policy.healthy()

    def wants_origin(self, fault: Fault) -> bool:
        """Whether the batch is to be handed out once more for it."""
        return self.replays > 0 and not fault.written and self.op_of(fault) is None

    def handle(self, fault: Fault, call: Callable[[tuple], Any]) -> None:
        """``call``: makes the step, given a batch."""
        on_replay = self.guard.on_replay
        try:
            recorded = self.guard.watch.run()  # a copy of all of it: once for a faulty step
            known = self.op_of(fault, recorded)
            looks = self.laboratory.wants(fault, known)
            unknown = not looks and known is None and self.laboratory.may_search()
            replayer = self._replayer(fault, call) if looks or unknown or on_replay is not None else None
            if replayer is not None:
                with contextlib.closing(replayer):
                    if looks:
                        self.laboratory.look_into(fault, replayer, recorded)
                    if unknown:
                        fault.exactness = replayer.verify(self.replays)
                        fault.origins = [origin for origin in fault.exactness.origins if origin.sink]
                        self.guard.watch._live.learned(fault.watch_step, fault.origins, [])
                    if on_replay is not None:
                        on_replay(replayer)
                exactness = fault.exactness
                if exactness is not None and exactness.deterministic and not exactness.exact:
                    self.warn(f"this step cannot be run again exactly, so that no cause is proved: {exactness.why}")
        except Exception as error:  # the guard's own failure is no reason to end the training
            self.warn(f"step {fault.step} could not be replayed: {error}")
        self.apply(fault)

    def _replayer(self, fault: Fault, call: Callable[[tuple], Any]) -> Replayer | None:
        """None where the state before the step is not to be had: the optimizer wrote, and there is no copy."""
        guard = self.guard
        began = guard._began
        if began is None or began.unsaved or guard._on_fault == "warn":
            return None
        live = _module()
        held = fault.held
        write = fault.written or fault.kind == "hyperparameter" or bool(began.optimizer_copies)
        if write and held.copy is not None and all(one is not held.copy for one in began.optimizer_copies):
            began.optimizer_copies.append(held.copy)
        state = began.state()
        state.written = live.Copies([tensor for one in began.optimizer_copies for tensor in one.tensors])
        writes = {guard._hooks.held[id(one.optimizer)].number for one in began.optimizer_copies}
        if not fault.written and fault.kind != "hyperparameter":
            writes.discard(held.number)
        step = state.result_now(guard._function.last_loss, fault.written)
        bound = live.Replayer(Program(guard, began, call, writes), state, guard.watch._live, write)
        return Replayer(guard, fault, bound, step, began)

    def apply(self, fault: Fault) -> None:
        """Ask the policy, do it, write it down, and end the step."""
        guard, held = self.guard, fault.held
        copy = held.copy if held is not None else None
        usable = guard._snapshots.usable()
        would_lose = None if usable is None else guard.steps - usable.step
        fault.action, goes_back, undone, why = self._policy.faulty(fault.written, copy is not None, would_lose)
        guard._hooks.forget_sizes()
        lost, snapshot = 0, -1
        if goes_back:
            guard._snapshots.go_back(usable)
            guard.watch._live.rolled_back()
            lost, snapshot = would_lose, usable.step
        elif fault.action == "warn":
            self.warn(f"step {fault.step}: {fault.reason}; the step was made all the same")
        else:
            if fault.written and copy is not None:
                copy.restore()
            for one in guard._began.optimizer_copies if guard._began is not None else ():
                one.restore()  # of the optimizers that had written before
            guard._parts.restore_buffers()
        step = fault.watch_step if guard.watch.running else fault.step
        action = step, fault.action, fault.kind, fault.reason, undone, snapshot, lost
        done = guard.watch._live.acted(action)
        if len(guard.actions) < _module().MOST_ACTIONS:
            guard.actions.append(done)
        guard._next_step()
        if fault.action == "stop":
            raise TrainingFault(guard, fault, why)

    def origin_of(self, fault: Fault, recorded: Run | None = None) -> Origin | None:
        """``recorded``: the run, where the caller has it."""
        if fault.origins:
            return fault.origins[0]
        for origin in (self.guard.watch.run() if recorded is None else recorded).origins:
            if origin.sink and origin.step >= fault.watch_step:
                return origin
        return None

    def op_of(self, fault: Fault, recorded: Run | None = None) -> Origin | None:
        """The origin; None also where only a compiled region is known, whose ops a replay in eager shows."""
        origin = self.origin_of(fault, recorded)
        return None if origin is not None and origin.mechanism == "compiled_region" else origin

    def warn(self, text: str) -> None:
        if len(self._said) < _MOST_WARNINGS and text not in self._said:
            self._said.add(text)
            warnings.warn(f"firstfault.guard: {text}", RuntimeWarning, stacklevel=_level_of_program())


def _level_of_program() -> int:
    """For ``warnings.warn()`` in the caller: the innermost frame that is neither of this package nor of torch."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in ("firstfault", "torch"):
        frame, level = frame.f_back, level + 1
    return level
