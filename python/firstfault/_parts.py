"""What a guard looks after: models, optimizers, and where else a training keeps state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from firstfault._clip import _module
from firstfault._trace import _path_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import torch


class Buffers:
    """Which tensors stand where as buffers: a forward may write into one, or put another in its place."""

    def __init__(self, modules: Iterable[torch.nn.Module]) -> None:
        self._slots = [(module._buffers, key, tensor) for module in modules for key, tensor in module._buffers.items()]
        seen = {id(tensor): tensor for _, _, tensor in self._slots if tensor is not None}
        self.tensors = list(seen.values())

    def hold(self) -> bool:
        """They are the same still."""
        return all(table.get(key) is tensor for table, key, tensor in self._slots)

    def restore(self) -> None:
        for table, key, tensor in self._slots:
            table[key] = tensor


class Parts:
    """Of all that is found here a list is kept, until ``forget()``."""

    def __init__(
        self, models: list[tuple[str, torch.nn.Module]], optimizers: list[Any], stateful: list[Any], own: list[Any]
    ) -> None:
        """``stateful``: scheduler, scaler, whatever has a ``state_dict()``. ``own``: no part of the training."""
        self.models, self.optimizers = models, optimizers
        self.stateful = stateful
        self.modules = [module for _, model in models for module in model.modules()]
        self.names = {id(p): _path_of(name, path) for name, model in models for path, p in model.named_parameters()}
        self.generators: list[torch.Generator] = []
        self.buffer_slots = self.buffers()
        self.buffer_copies: Any = None  # from before the step
        self._own = own
        self._parameters: tuple[list, list] | None = None
        self._ids: set[int] = set()

    def forget(self) -> None:
        """Parameters and buffers may have joined."""
        self._parameters = self.buffer_copies = None

    def tensors(self) -> list[torch.Tensor]:
        """Parameters and buffers of the models, each once."""
        seen: dict[int, torch.Tensor] = {}
        for module in self.modules:
            for tensor in (*module._parameters.values(), *module._buffers.values()):
                if tensor is not None:
                    seen.setdefault(id(tensor), tensor)
        return list(seen.values())

    def parameters(self) -> tuple[list[torch.Tensor], list[str]]:
        """Of models and optimizers, each once; and their names."""
        if self._parameters is None:
            seen = {id(p): p for module in self.modules for p in module._parameters.values() if p is not None}
            for optimizer in self.optimizers:
                for group in optimizer.param_groups:
                    seen.update((id(p), p) for p in group["params"])
            names = [self.names.get(key, f"parameter {i}") for i, key in enumerate(seen)]
            self._parameters = list(seen.values()), names
            self._ids = {*seen, *map(id, (*self.optimizers, *self.modules, *self._own))}
        return self._parameters

    def buffers(self) -> Buffers:
        return Buffers(self.modules)

    def renew_buffers(self) -> Any:
        """Copies of the buffers as they are now."""
        if self.buffer_copies is None or not self.buffer_slots.hold():
            self.buffer_slots = self.buffers()
            self.buffer_copies = _module().Copies(self.buffer_slots.tensors)
        else:
            self.buffer_copies.renew()
        return self.buffer_copies

    def restore_buffers(self) -> None:
        """To where they were when they were last renewed."""
        if self.buffer_copies is not None:
            self.buffer_slots.restore()
            self.buffer_copies.restore()

    def generator_states(self) -> list[tuple[Callable, Any]]:
        import torch

        return [(one.set_state, one.get_state()) for one in self.generators if isinstance(one, torch.Generator)]

    def roots(self) -> list[Any]:
        """Where state may hide beside the step function: scheduler, scaler, hooks."""
        roots: list[Any] = list(self.stateful)
        own = [id(one) for one in self._own]
        for optimizer in self.optimizers:
            for table in (optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks):
                roots.extend(hook for hook in table.values() if id(getattr(hook, "__self__", None)) not in own)
        return roots

    def known(self, batch: Iterable[torch.Tensor] = ()) -> set[int]:
        """Ids of what is saved in another way, or must be left alone."""
        self.parameters()
        known = set(self._ids)
        known.update(map(id, self.buffer_slots.tensors))
        known.update(map(id, batch))
        return known
