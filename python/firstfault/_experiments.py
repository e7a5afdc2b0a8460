"""Experiments for Python: the changes that only Python can make, and where a guard starts them."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING, Any

from firstfault._clip import _module
from firstfault._watch import eps_as_held

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import torch

    from firstfault._core import Experiment, Origin, Run
    from firstfault._fault import Fault
    from firstfault._guard import Guard
    from firstfault._replay import Replayer

_LOW = ("torch.float16", "torch.bfloat16")
_QUIET = 2.0  # seconds, before progress is shown

# (name, what is changed, begin, end, whether begin writes parameters)
_Own = tuple[str, str, "Callable[[], None]", "Callable[[], None] | None", bool]


class Laboratory:
    """What a guard needs for experiments: what earlier batches were like, and which steps were looked into."""

    def __init__(self, guard: Guard, looked_into: Any, max_replays: int, max_seconds: float) -> None:
        self.guard = guard
        self._looked_into = looked_into
        self.max_replays, self.max_seconds = int(max_replays), float(max_seconds)
        self.memory = _module().BatchMemory()
        # Hyperparameters as they are at the start, by number of the optimizer.
        self._usual = {
            held.number: [dict(group, params=None) for group in held.optimizer.param_groups]
            for held in guard._hooks.held.values()
        }

    def remember(self, tensors: list[torch.Tensor]) -> None:
        """The batch of a step in which nothing was wrong."""
        if self._looked_into.any():
            self.memory.remember(tensors)

    def wants(self, fault: Fault, known: Origin | None) -> bool:
        return self._looked_into.wants(fault.kind, known)

    def may_search(self) -> bool:
        """Whether a step is run again for its origin alone; counted."""
        return self._looked_into.may_search()

    def look_into(self, fault: Fault, replayer: Replayer, recorded: Run) -> None:
        """Run the step again, unchanged and then with one thing changed each; tell the watch what came of it."""
        guard = self.guard
        known = guard._faults.op_of(fault, recorded)
        live = _module()
        given = live.Circumstances(self._own_changes(fault, replayer, recorded), Progress())
        given.step = fault.watch_step if known is None else known.step
        given.raw_scores = _holds(recorded, "raw_scores")
        given.unchanged = max(2, guard._faults.replays)
        given.max_replays, given.max_seconds = self.max_replays, self.max_seconds
        done = live.experiment(replayer._live, replayer.step, self.memory, given)
        fault.exactness = done.exactness
        if known is None:
            fault.origins = [origin for origin in done.exactness.origins if origin.sink]
        if fault.kind != "hyperparameter" or done.exactness.failed:  # it was refused before it could do harm
            fault.experiments = list(done.made)
        guard.watch._live.learned(given.step, fault.origins if known is None else [], fault.experiments)
        self._looked_into.add(fault.kind, guard._faults.op_of(fault, recorded))

    def _own_changes(self, fault: Fault, replayer: Replayer, recorded: Run) -> list[_Own]:
        own: list[_Own] = []
        if fault.kind == "hyperparameter":
            own += self._repaired_hyperparameters(fault)
        own += self._earlier_state(fault)
        own += self._float32(replayer, recorded)
        if fault.step == 0:
            own += self._initialised()
        if replayer.has_gradients:
            parameters = replayer.began.parameters
            own.append(("zero_grad", "gradients set to zero before the step", lambda: _drop(parameters), None, False))
        return own

    # -- hyperparameters

    def _repaired_hyperparameters(self, fault: Fault) -> list[_Own]:
        if fault.held is None:
            return []
        usual = self._usual[fault.held.number]

        def repair(held: Any) -> None:
            for group, key, sound in _unsound(held.optimizer.param_groups, usual):
                group[key] = sound

        said = [
            f"{key} {sound:g} instead of {group[key]:g}"
            for group, key, sound in _unsound(fault.held.optimizer.param_groups, usual)
        ]
        if not said:
            return []
        hooks = self.guard._hooks

        def begin() -> None:
            hooks.repair_before_step = repair

        def end() -> None:
            hooks.repair_before_step = None

        return [("hyperparameter", ", ".join(said), begin, end, False)]

    # -- state

    def _earlier_state(self, fault: Fault) -> list[_Own]:
        snapshot = self.guard._snapshots.oldest_before(fault.step)
        if snapshot is None:
            return []
        pairs = snapshot.values_of(self.guard._parts.parameters()[0])

        def begin() -> None:
            import torch

            with torch.no_grad():
                for parameter, value in pairs:
                    parameter.copy_(value)

        text = f"this batch on the parameters of step {snapshot.step}"
        return [("earlier_state", text, begin, None, True)] if pairs else []

    def _initialised(self) -> list[_Own]:
        parameters = self.guard._parts.parameters()[0]

        def begin() -> None:
            _module().draw_anew(parameters)

        return [("initialised", "parameters drawn anew, with a variance of 1 / fan-in", begin, None, True)]

    # -- precision

    def _float32(self, replayer: Replayer, recorded: Run) -> list[_Own]:
        guard = self.guard
        tensors = [*replayer.began.parameters, *guard._parts.buffers().tensors, *replayer.began.tensors]
        low = any(str(tensor.dtype) in _LOW for tensor in tensors)
        if not low and not _holds(recorded, "low_precision"):
            return []
        stack = contextlib.ExitStack()

        def begin() -> None:
            stack.enter_context(in_float32(replayer.began.parameters, guard._parts, guard._parts.optimizers))

        return [("float32", "parameters, buffers and casts in float32", begin, stack.close, False)]


class Progress:
    """On stderr, where that is a terminal and it takes longer than a moment."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._shown = False

    def __call__(self, made: Experiment) -> None:
        if time.monotonic() - self._began < _QUIET or not sys.stderr.isatty():
            return
        sys.stderr.write(f"\rfirstfault: replaying step {made.step}: {made.name} {made.outcome}\033[K")
        sys.stderr.flush()
        self._shown = True

    def __del__(self) -> None:
        if self._shown:
            with contextlib.suppress(Exception):
                sys.stderr.write("\r\033[K")


def _holds(run: Run, kind: str) -> bool:
    return any(fact.kind == kind for fact in run.facts)


def _drop(parameters: list[torch.Tensor]) -> None:
    for parameter in parameters:
        parameter.grad = None


def _unsound(groups: list[dict], usual: list[dict]) -> list[tuple[dict, str, float]]:
    """(group, hyperparameter that cannot be, another value for it)"""
    return [
        (group, key, sound)
        for group, before in zip(groups, usual, strict=False)
        for key, value in group.items()
        if (sound := _sound(key, value, before.get(key), group)) is not None
    ]


def _sound(key: str, value: Any, before: Any, group: dict) -> float | None:
    """Another value for a hyperparameter that cannot be; None where it can."""
    if not isinstance(value, float):
        return None
    is_eps = key == "eps"
    held = eps_as_held(group) if is_eps else value
    return _module().sound_value(value, held, is_eps, before if isinstance(before, float) else None)


@contextlib.contextmanager
def in_float32(parameters: list[torch.Tensor], parts: Any, optimizers: list[Any]) -> Iterator[None]:
    """Whatever is float16 or bfloat16 is float32: parameters, buffers, optimizer state, casts, autocast."""
    import torch

    low = {torch.float16, torch.bfloat16}
    tensors = [*parameters, *parts.buffers().tensors]
    state = [
        (entry, key)
        for optimizer in optimizers
        for entry in optimizer.state.values()
        for key, value in entry.items()
        if isinstance(value, torch.Tensor) and value.dtype in low
    ]
    kept = [(tensor, tensor.data) for tensor in tensors if tensor.dtype in low]
    kept_state = [(entry, key, entry[key]) for entry, key in state]
    for tensor, data in kept:
        tensor.grad = None
        tensor.data = data.float()
    for entry, key, value in kept_state:
        entry[key] = value.float()
    try:
        with autocast_switched_off(), wide_casts():
            yield
    finally:
        for tensor, data in kept:
            tensor.grad = None
            tensor.data = data
        for entry, key, value in kept_state:
            entry[key] = value


@contextlib.contextmanager
def autocast_switched_off() -> Iterator[None]:
    """Whoever enters it stays in the precision that he has."""
    import torch

    autocast = torch.amp.autocast_mode.autocast
    enter, leave = autocast.__enter__, autocast.__exit__
    autocast.__enter__, autocast.__exit__ = lambda self: self, lambda *_: False
    try:
        yield
    finally:
        autocast.__enter__, autocast.__exit__ = enter, leave


def wide_casts() -> Any:
    """Casts to a low precision go to float32; so do low-precision tensors that come from outside."""
    import torch
    from torch.overrides import TorchFunctionMode
    from torch.utils._pytree import tree_map

    low = {torch.float16, torch.bfloat16}

    def wide(value: Any) -> Any:
        if isinstance(value, torch.dtype):
            return torch.float32 if value in low else value
        if isinstance(value, torch.Tensor) and value.dtype in low and not value.requires_grad:
            return value.float()
        return value

    class WideCasts(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
            name = getattr(function, "__name__", "")
            if name in ("half", "bfloat16") and args and isinstance(args[0], torch.Tensor):
                return args[0].float()
            if name in ("__get__", "__set__", "float", "to"):
                only = _dtype_only(wide)
                return function(*map(only, args), **{key: only(value) for key, value in (kwargs or {}).items()})
            return function(*tree_map(wide, args), **tree_map(wide, kwargs or {}))

    return WideCasts()


def _dtype_only(wide: Callable[[Any], Any]) -> Callable[[Any], Any]:
    import torch

    return lambda value: wide(value) if isinstance(value, torch.dtype) else value
