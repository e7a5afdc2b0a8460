"""One optimizer under a guard: what it holds, and its gradients while it must not see them."""

from __future__ import annotations

import inspect
import operator
from typing import TYPE_CHECKING, Any

from firstfault._state import OptimizerState, StateTensors
from firstfault._watch import eps_as_held

if TYPE_CHECKING:
    import torch

_NAN = float("nan")


class Guarded:
    """One optimizer: what it holds, and what was done to the step that it is making."""

    def __init__(self, optimizer: torch.optim.Optimizer, number: int, check: Any, names: dict[int, str]) -> None:
        self.optimizer = optimizer
        self.number = number
        self.check = check
        self._names = names
        self.hidden: list[torch.Tensor | None] | None = None  # its gradients, while it must not see them
        self.copy: OptimizerState | None = None  # from before the step
        self._spare: OptimizerState | None = None  # of a step that is over
        self.evaluations = 0
        module = type(optimizer).__module__
        # Of the others it is not known what they write without gradients, or before a closure is called.
        self.trusted = module.startswith("torch.optim") and not hasattr(optimizer, "_gather_flat_grad")
        self._seen: list[torch.Tensor] = []  # when ``parameters`` was filled
        self.made = 0  # steps
        self.parameters: list[torch.Tensor] = []
        self.names: list[str] = []
        self.state = StateTensors(optimizer)
        self.shared = False  # some parameter is another optimizer's too
        self.bounded = False  # what the step writes is sure to be finite
        self._own_step: tuple[Any, bool] = (None, False)  # what is called step(), and whether that is torch's
        self._results: tuple[Any, list[str], list[str]] = (None, [], [])
        self.refresh()

    def results(self) -> tuple[list[torch.Tensor], list[str], list[str]]:
        """What it writes: tensors, their names, and what each is called in the state ("" for a parameter)."""
        self.state.look()
        if self._results[0] is not self.state.tensors:
            state = [f"{key} of {self._names.get(id(p), 'a parameter')}" for key, p in self.state.names]
            held = [""] * len(self.names) + [key for key, _ in self.state.names]
            self._results = self.state.tensors, self.names + state, held
        return self.parameters + self.state.tensors, *self._results[1:]

    def bound(self, *, looked_last: bool) -> None:
        """Right after what is about to be used was looked at: whether what the step writes is sure to be finite."""
        known = looked_last and not self.shared and self._steps_as_torch()
        rule = type(self.optimizer).__name__ if known else ""
        self.bounded = self.check.is_bounded(rule, self.optimizer.param_groups)

    def _steps_as_torch(self) -> bool:
        """Whether the class is torch's own, and nobody has put another step in place of its own."""
        import torch

        kind = type(self.optimizer)
        if getattr(torch.optim, kind.__name__, None) is not kind:
            return False
        steps = vars(self.optimizer).get("step"), kind.step  # schedulers put a wrapper around the first
        if steps != self._own_step[0]:
            of_instance, of_class = (inspect.unwrap(getattr(one, "__func__", one)) for one in steps)
            own = any(
                (of_class.__module__, of_class.__qualname__) == (base.__module__, f"{base.__qualname__}.step")
                for base in kind.__mro__  # AdamW has Adam's
            )
            self._own_step = steps, own and (of_instance is None or of_instance is of_class)
        return self._own_step[1]

    def refresh(self) -> None:
        """Parameters may have joined, or others taken their place."""
        groups = self.optimizer.param_groups
        now = [p for group in groups for p in group["params"]]
        if len(now) == len(self._seen) and all(map(operator.is_, now, self._seen)):
            return
        self._seen = now
        self.check.forget()
        self._results = (None, [], [])
        seen: dict[int, torch.Tensor] = {}
        for group in groups:
            for parameter in group["params"]:
                seen.setdefault(id(parameter), parameter)
        self.parameters = list(seen.values())
        self.names = [self._names.get(key, f"parameter {i}") for i, key in enumerate(seen)]

    def hyperparameters(self) -> list[tuple[str, float, float, bool]]:
        """(name, value, value in the dtype it is added to, is an eps)"""
        numbers = []
        for index, group in enumerate(self.optimizer.param_groups):
            of = f" of group {index}" if index else ""
            for key, value in group.items():
                if key == "params" or value is None or value is True or value is False:
                    continue
                if isinstance(value, (int, float)):
                    held = eps_as_held(group) if key == "eps" else value
                    numbers.append((key + of, value, held, key == "eps"))
                elif isinstance(value, (tuple, list)):
                    numbers.extend(
                        (f"{key}[{i}]{of}", one, one, False)
                        for i, one in enumerate(value)
                        if isinstance(one, (int, float))
                    )
                elif getattr(value, "numel", lambda: 0)() == 1 and value.device.type == "cpu":
                    number = float(value)
                    numbers.append((key + of, number, number, False))
        return numbers

    def save(self) -> None:
        """Copy what the optimizer holds, before a step."""
        self.copy = OptimizerState(self.optimizer, instead_of=self._spare)
        self._spare = None

    def end_step(self) -> None:
        """The copy is not needed any more."""
        self._spare = self.copy or self._spare
        self.copy = None

    def lr(self) -> float:
        groups = self.optimizer.param_groups
        lr = groups[0].get("lr", _NAN) if groups else _NAN
        return float(lr) if isinstance(lr, (int, float)) else _NAN

    def hide(self) -> None:
        if self.hidden is None:
            self.hidden = [parameter.grad for parameter in self.parameters]
            for parameter in self.parameters:
                parameter.grad = None

    def show(self) -> None:
        hidden, self.hidden = self.hidden, None
        for parameter, gradient in zip(self.parameters, hidden or (), strict=False):
            parameter.grad = gradient
