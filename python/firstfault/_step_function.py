"""The program's step function: whether it calls the optimizer itself, and what it gave back."""

from __future__ import annotations

import inspect
import math
import types
from typing import TYPE_CHECKING, Any

from firstfault._fault import Finding
from firstfault._replay import tensor_of

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from firstfault._guard import Guard

_NAN = float("nan")
_MOST_FUNCTIONS = 64  # of which it is remembered whether they call step()


class StepFunction:
    """Calls the program's function, and makes the optimizers' steps where it leaves them to the guard."""

    def __init__(self, guard: Guard, scaler: Any, calls_step: bool | None, accumulate: int) -> None:
        self.guard = guard
        self.steps_seen = 0  # of optimizers, in this call
        self.last_loss: torch.Tensor | None = None  # of the step itself, not of a replay
        self._scaler, self._calls_step, self._accumulate = scaler, calls_step, accumulate
        self._loss: float | None = None  # while the optimizer makes its step
        self._bad_loss = False  # of a micro-batch before
        self._pending = 0
        self._known: dict[int, bool] = {}

    def state(self) -> tuple:
        """For ``restore()``."""
        return self.steps_seen, self.last_loss, self._loss, self._bad_loss, self._pending

    def restore(self, state: tuple) -> None:
        self.steps_seen, self.last_loss, self._loss, self._bad_loss, self._pending = state

    def begin_window(self) -> None:
        """Steps are accumulated from here."""
        self.restore((0, None, None, False, 0))

    def accumulates_at(self, step: int) -> bool:
        """Whether gradients of steps before this one are kept for it."""
        return step % self._accumulate != 0

    def call(self, train_step: Callable[..., Any], batch: tuple) -> Any:
        optimizers = self.guard._parts.optimizers
        calls = self._steps_itself(train_step)
        if not calls and len(optimizers) == 1 and _needs_closure(optimizers[0]):
            return self._call_as_closure(optimizers[0], train_step, batch)
        before = self.steps_seen
        result = train_step(*batch)
        loss = tensor_of(result)
        self._loss = None if loss is None else float(loss.detach())
        if self.guard._replay is None:
            self.last_loss = loss
        if self.steps_seen > before and not calls:
            self._known[_key(train_step)] = calls = True
        if not calls:
            self._make_step()
        elif self._loss is not None and not math.isfinite(self._loss) and self.guard._replay is None:
            self._late_loss()
        self._loss = None
        return result

    def _call_as_closure(self, optimizer: Any, train_step: Callable[..., Any], batch: tuple) -> Any:
        results: list[Any] = []

        def closure() -> Any:
            results.append(train_step(*batch))
            return tensor_of(results[-1])

        optimizer.step(closure)
        if self.guard._replay is None:
            self.last_loss = tensor_of(results[0]) if results else None
        return results[0] if results else None

    def _steps_itself(self, train_step: Callable[..., Any]) -> bool:
        if self._calls_step is not None:
            return self._calls_step
        key = _key(train_step)
        if key not in self._known:
            if len(self._known) > _MOST_FUNCTIONS:
                self._known.clear()
            self._known[key] = _calls_step(train_step)
        return self._known[key]

    def _make_step(self) -> None:
        if self.guard._replay is None:
            self._pending += 1
            if self._loss is not None and not math.isfinite(self._loss):
                self._bad_loss = True
            if self._pending < self._accumulate:
                return
            self._pending = 0
        for optimizer in self.guard._parts.optimizers:
            if self._scaler is not None:
                self._scaler.step(optimizer)
            else:
                optimizer.step()
        if self._scaler is not None:
            self._scaler.update()
        self._bad_loss = False  # where the scaler left the steps out, nobody has asked for it

    def _late_loss(self) -> None:
        """The loss came back not finite from a function that made the step itself."""
        faults = self.guard._faults
        if faults.now is not None or not self.guard.running:  # as in windows of steps that are run again
            return
        if self.steps_seen == 0:  # of a micro-batch, or the scaler left the step out
            self._bad_loss = self._scaler is None
            return
        faults.note(Finding("loss", f"the loss is {self._loss}"), self.guard._hooks.first, written=True)

    def known_loss(self) -> float:
        """Of the step that an optimizer is about to make; 0 where it is not known."""
        bad, self._bad_loss = self._bad_loss, False
        if bad:
            return _NAN
        if self._loss is not None:
            return self._loss
        if self._scaler is not None:  # what backward() was called on is scaled
            return 0.0
        pending = self.guard.watch._live.pending_loss()
        return 0.0 if pending is None else pending


def _calls_step(function: Any) -> bool:
    """Whether a function's own code calls something named ``step``, as far as can be read."""
    while hasattr(function, "func") and hasattr(function, "keywords"):
        function = function.func
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    if code is None:
        code = getattr(type(function).__call__, "__code__", None)
    todo, seen = [code], set()
    while todo:
        one = todo.pop()
        if not isinstance(one, types.CodeType) or one in seen:
            continue
        seen.add(one)
        if "step" in one.co_names:
            return True
        todo.extend(one.co_consts)
    return False


def _needs_closure(optimizer: torch.optim.Optimizer) -> bool:
    try:
        parameter = inspect.signature(type(optimizer).step).parameters.get("closure")
    except (TypeError, ValueError):
        return False
    return parameter is not None and parameter.default is inspect.Parameter.empty


def _key(function: Any) -> int:
    return id(getattr(getattr(function, "__func__", function), "__code__", type(function)))
