"""Experiments for Python: the changes that only Python can make, and where a guard starts them."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from typing import TYPE_CHECKING, Any

from firstfault._clip import _module

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import torch

    from firstfault._core import Experiment
    from firstfault._fault import Fault
    from firstfault._guard import Guard
    from firstfault._replay import Replayer

_LOW = ("torch.float16", "torch.bfloat16")
_QUIET = 2.0  # seconds, before progress is shown
_MOST_STEPS = 4  # faulty steps of a run that are looked into

# (name, what is changed, begin, end, whether begin writes parameters)
_Own = tuple[str, str, "Callable[[], None]", "Callable[[], None] | None", bool]


class Laboratory:
    """What a guard needs for experiments: what earlier batches were like, and which steps were looked into."""

    def __init__(self, guard: Guard, max_replays: int, max_seconds: float) -> None:
        self.guard = guard
        self.max_replays, self.max_seconds = int(max_replays), float(max_seconds)
        self.memory = _module().BatchMemory()
        # Hyperparameters as they are at the start, by number of the optimizer.
        self._usual = {
            held.number: [dict(group, params=None) for group in held.optimizer.param_groups]
            for held in guard._held.values()
        }
        self._seen: set[tuple] = set()
        self._steps = 0

    def remember(self, tensors: list[torch.Tensor]) -> None:
        """The batch of a step in which nothing was wrong."""
        self.memory.remember(tensors)

    def wants(self, fault: Fault) -> bool:
        """The first faulty step, and later ones that began elsewhere. A spike is finite: there is nothing to cure."""
        if fault.kind == "spike" or self._steps >= _MOST_STEPS:
            return False
        return self._what(fault) not in self._seen

    def _what(self, fault: Fault) -> tuple:
        origin = self.guard._op_of(fault)
        return (fault.kind,) if origin is None else (origin.op, origin.module, origin.mechanism)

    def look_into(self, fault: Fault, replayer: Replayer) -> None:
        """Run the step again, unchanged and then with one thing changed each; tell the watch what came of it."""
        guard = self.guard
        self._steps += 1
        known = guard._op_of(fault)
        live = _module()
        given = live.Circumstances(self._own_changes(fault, replayer), Progress())
        given.step = fault.watch_step if known is None else known.step
        given.raw_scores = any(fact.kind == "raw_scores" for fact in guard.watch.run().facts)
        given.unchanged = max(2, guard._replays)
        given.max_replays, given.max_seconds = self.max_replays, self.max_seconds
        done = live.experiment(replayer._live, replayer.step, self.memory, given)
        fault.exactness = done.exactness
        if known is None:
            fault.origins = [origin for origin in done.exactness.origins if origin.sink]
        if fault.kind != "hyperparameter" or done.exactness.failed:  # it was refused before it could do harm
            fault.experiments = list(done.made)
        guard.watch._live.learned(given.step, fault.origins if known is None else [], fault.experiments)
        self._seen.add(self._what(fault))

    def _own_changes(self, fault: Fault, replayer: Replayer) -> list[_Own]:
        own: list[_Own] = []
        if fault.kind == "hyperparameter":
            own += self._repaired_hyperparameters(fault)
        own += self._earlier_state(fault)
        own += self._float32(replayer)
        if fault.step == 0:
            own += self._initialised()
        if replayer.began.left_copies is not None or replayer.began.left is not None:
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
        guard = self.guard

        def begin() -> None:
            guard._repair_before_step = repair

        def end() -> None:
            guard._repair_before_step = None

        return [("hyperparameter", ", ".join(said), begin, end, False)]

    # -- state

    def _earlier_state(self, fault: Fault) -> list[_Own]:
        snapshot = next((one for one in self.guard._snapshots if one.step < fault.step), None)
        if snapshot is None:
            return []
        pairs = _parameters_in(snapshot, self.guard._all_parameters()[0])

        def begin() -> None:
            import torch

            with torch.no_grad():
                for parameter, value in pairs:
                    parameter.copy_(value)

        text = f"this batch on the parameters of step {snapshot.step}"
        return [("earlier_state", text, begin, None, True)] if pairs else []

    def _initialised(self) -> list[_Own]:
        parameters = self.guard._all_parameters()[0]

        def begin() -> None:
            _draw_anew(parameters)

        return [("initialised", "parameters drawn anew, with a variance of 1 / fan-in", begin, None, True)]

    # -- precision

    def _float32(self, replayer: Replayer) -> list[_Own]:
        guard = self.guard
        tensors = [*replayer.began.parameters, *guard._parts.buffers().tensors, *replayer.began.tensors]
        low = any(str(tensor.dtype) in _LOW for tensor in tensors)
        if not low and not any(fact.kind == "low_precision" for fact in guard.watch.run().facts):
            return []
        stack = contextlib.ExitStack()

        def begin() -> None:
            stack.enter_context(_in_float32(replayer.began.parameters, guard._parts, guard._parts.optimizers))

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
    if not math.isfinite(value):
        return before if isinstance(before, float) and math.isfinite(before) else 1e-3
    if key == "eps" and group["params"] and str(group["params"][0].dtype) in _LOW and value < 1e-4:
        return 1e-3
    if key == "eps" and value == 0:
        return 1e-8
    return None


def _parameters_in(snapshot: Any, parameters: list[torch.Tensor]) -> list[tuple]:
    """(parameter, its value then)"""
    wanted = {id(parameter) for parameter in parameters}
    pairs = []
    for one in snapshot._optimizers:
        pairs += [(p, value) for p, value in zip(one._tensors, one.copies.copies, strict=True) if id(p) in wanted]
    return pairs


def _draw_anew(parameters: list[torch.Tensor]) -> None:
    """Matrices normal with a variance of 1 / fan-in; of vectors only those that are not finite."""
    import torch

    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in parameters:
            if not parameter.is_floating_point() or parameter.is_meta:
                continue
            if parameter.dim() >= 2:
                fan_in = parameter[0].numel()
                value = torch.randn(parameter.shape, generator=generator) / math.sqrt(max(1, fan_in))
            elif not bool(torch.isfinite(parameter).all()):
                value = 0.1 * (2 * torch.rand(parameter.shape, generator=generator) - 1)
            else:
                continue
            parameter.copy_(value.to(parameter.dtype))


@contextlib.contextmanager
def _in_float32(parameters: list[torch.Tensor], parts: Any, optimizers: list[Any]) -> Iterator[None]:
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
    enter, leave = torch.amp.autocast_mode.autocast.__enter__, torch.amp.autocast_mode.autocast.__exit__
    torch.amp.autocast_mode.autocast.__enter__ = lambda self: self
    torch.amp.autocast_mode.autocast.__exit__ = lambda *_: False
    mode = _wide_casts(low)
    try:
        with mode:
            yield
    finally:
        torch.amp.autocast_mode.autocast.__enter__, torch.amp.autocast_mode.autocast.__exit__ = enter, leave
        for tensor, data in kept:
            tensor.grad = None
            tensor.data = data
        for entry, key, value in kept_state:
            entry[key] = value


def _wide_casts(low: set) -> Any:
    """Casts to a low precision go to float32; so do low-precision tensors that come from outside."""
    import torch
    from torch.overrides import TorchFunctionMode
    from torch.utils._pytree import tree_map

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
