"""What a step depends on beyond parameters: optimizer state, random numbers, and what the program's functions hold."""

from __future__ import annotations

import collections
import copy
import operator
import random
import sys
import types
from typing import TYPE_CHECKING, Any

from firstfault._clip import _module

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import torch

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_COMPILED = "_torchdynamo_orig_callable"  # an attribute of what torch.compile() gives
_MOST_OBJECTS = 512  # looked at in one walk
_MOST_ITEMS = 1024  # of a list: beyond, only what is added to it can be taken away again
_MOST_BYTES = 64 * 2**20  # of tensors that functions hold


class OptimizerState:
    """Parameters, state and hyperparameters of an optimizer; ``restore()`` puts all of it back, in place.

    instead_of: an older one of the same optimizer, of no use any more: its memory is written anew.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, *, instead_of: OptimizerState | None = None) -> None:
        self.optimizer = optimizer
        self.groups = Hyperparameters([optimizer])
        tensors = [p for group in optimizer.param_groups for p in group["params"]]
        self._state = [(p, _taken_apart(entry, tensors)) for p, entry in dict(optimizer.state).items()]
        self.tensors = tensors
        if instead_of is not None and _same(instead_of.tensors, tensors):
            self.copies = instead_of.copies
            self.copies.renew()
        else:
            self.copies = _module().Copies(tensors)

    def restore(self) -> int:
        """Give how many tensors held other values."""
        written = self.copies.restore()
        self.groups.restore()
        state = self.optimizer.state
        for parameter in [p for p in state if all(p is not known for known, _ in self._state)]:
            del state[parameter]
        for parameter, entry in self._state:
            rebuilt = _put_together(entry, self.tensors)
            known = state.get(parameter)
            if isinstance(known, dict) and isinstance(rebuilt, dict):
                known.clear()
                known.update(rebuilt)
            else:
                state[parameter] = rebuilt
        return written

    def values(self) -> list[tuple]:
        """(tensor, its value then)"""
        return list(zip(self.tensors, self.copies.copies, strict=True))

    @property
    def bytes(self) -> int:
        return self.copies.bytes


def _same(known: list[torch.Tensor], tensors: list[torch.Tensor]) -> bool:
    return len(known) == len(tensors) and all(map(operator.is_, known, tensors))


class _At:
    """Stands for a tensor in a structure: its place in a list."""

    def __init__(self, place: int) -> None:
        self.place = place


def _rebuilt(value: Any, leaf: Callable[[Any], Any]) -> Any:
    """A copy of a structure of dicts, lists and tuples, with what ``leaf`` gives for what they hold."""
    if isinstance(value, dict):
        return {key: _rebuilt(one, leaf) for key, one in value.items()}
    if isinstance(value, list):
        return [_rebuilt(one, leaf) for one in value]
    if isinstance(value, tuple):
        return tuple(_rebuilt(one, leaf) for one in value)
    return leaf(value)


def _copied(value: Any) -> Any:
    return value if isinstance(value, _PLAIN) else copy.deepcopy(value)


def _taken_apart(value: Any, tensors: list[torch.Tensor]) -> Any:
    import torch

    def leaf(one: Any) -> Any:
        if not isinstance(one, torch.Tensor):
            return _copied(one)
        tensors.append(one)
        return _At(len(tensors) - 1)

    return _rebuilt(value, leaf)


def _put_together(value: Any, tensors: list[torch.Tensor]) -> Any:
    return _rebuilt(value, lambda one: tensors[one.place] if isinstance(one, _At) else _copied(one))


class StateTensors:
    """The floating-point tensors in an optimizer's state."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer
        self.tensors: list[torch.Tensor] = []
        self.names: list[tuple[str, torch.Tensor]] = []  # "exp_avg", and the parameter

    def look(self) -> None:
        """The lists stay the same ones where they hold the same."""
        import torch

        tensors, names = [], []
        for parameter, entry in self._optimizer.state.items():
            for key, value in entry.items() if isinstance(entry, dict) else ():
                if isinstance(value, torch.Tensor):
                    counts = key == "step" and not value.dim()
                    if not counts and (value.dtype.is_floating_point or value.dtype.is_complex):
                        tensors.append(value)
                        names.append((key, parameter))
                elif isinstance(value, (list, tuple)):  # as LBFGS's
                    listed = [one for one in value if isinstance(one, torch.Tensor)]
                    tensors.extend(listed)
                    names.extend([(key, parameter)] * len(listed))
        if not _same(self.tensors, tensors):
            self.tensors, self.names = tensors, names


class Hyperparameters:
    """The numbers of parameter groups."""

    def __init__(self, optimizers: Iterable[torch.optim.Optimizer]) -> None:
        self._saved = [
            (group, {key: _copy_of_number(value) for key, value in group.items() if key != "params"})
            for optimizer in optimizers
            for group in optimizer.param_groups
        ]

    def restore(self) -> None:
        for group, saved in self._saved:
            for key in [key for key in group if key != "params" and key not in saved]:
                del group[key]
            for key, value in saved.items():
                known = group.get(key)
                if hasattr(known, "copy_") and hasattr(value, "clone"):  # a tensor that others may hold too
                    known.detach().copy_(value)
                else:
                    group[key] = _copy_of_number(value)


def _copy_of_number(value: Any) -> Any:
    if isinstance(value, (*_PLAIN, tuple)):
        return value
    return value.detach().clone() if hasattr(value, "detach") else copy.deepcopy(value)


class RandomNumbers:
    """The state of torch's, Python's and numpy's generators."""

    def __init__(self) -> None:
        self._torch = _module().RandomState()
        self._python = random.getstate()
        numpy = sys.modules.get("numpy")
        self._numpy = numpy.random.get_state() if numpy is not None else None

    @property
    def torch(self):
        return self._torch

    def restore(self) -> None:
        self._torch.restore()
        self.restore_others()

    def restore_others(self) -> None:
        random.setstate(self._python)
        if self._numpy is not None:
            sys.modules["numpy"].random.set_state(self._numpy)


class TrainFlags:
    def __init__(self, modules: Iterable[torch.nn.Module]) -> None:
        self._saved = [(module, module.training) for module in modules]

    def restore(self) -> None:
        for module, training in self._saved:
            if module.training is not training:
                module.training = training


def is_compiled(module: torch.nn.Module) -> bool:
    return _COMPILED in module.__dict__ or module.__dict__.get("_compiled_call_impl") is not None


class ProgramState:
    """Numbers, containers, generators and tensors that can be reached from functions, saved as they are now.

    What is followed: closures, defaults, bound objects, ``functools.partial``, the globals that a function of the
    program's own names, its hooks, and attributes of objects of the program's own classes. What cannot be copied
    (files, iterators, loaders, threads) is left alone.
    """

    def __init__(self, roots: Iterable[Any], known: set[int], modules: Iterable[torch.nn.Module] = ()) -> None:
        """``modules``: of the guarded models. ``known``: ids of what is saved in another way, and of these modules."""
        self._undo: list[tuple[Callable, tuple]] = []
        self._tensors: list[torch.Tensor] = []
        self.generators: list[Any] = []
        self.compiled = False  # a function or module that torch.compile() made was met
        self._bytes = 0
        self._seen = set(known)
        self._todo = collections.deque(roots)
        for module in modules:
            self._look_at_one_module(module)
        looked_at = 0
        while self._todo and looked_at < _MOST_OBJECTS:
            one = self._todo.popleft()
            if isinstance(one, _PLAIN) or id(one) in self._seen:
                continue
            self._seen.add(id(one))
            looked_at += 1
            self._look(one)
        self._copies = _module().Copies(self._tensors) if self._tensors else None
        del self._seen, self._todo

    def restore(self) -> None:
        if self._copies is not None:
            self._copies.restore()
        for undo, arguments in self._undo:
            undo(*arguments)

    def _look(self, one: Any) -> None:
        import torch

        if isinstance(one, torch.Tensor):
            self._look_at_tensor(one)
        elif isinstance(one, types.FunctionType):
            self._look_at_function(one)
        elif isinstance(one, types.MethodType):
            self._todo.extend((one.__self__, one.__func__))
        elif hasattr(one, "func") and hasattr(one, "keywords"):  # functools.partial
            self._todo.extend((one.func, *one.args, *one.keywords.values()))
        elif isinstance(one, (list, dict, set, collections.deque)):
            self._look_at_container(one)
        elif isinstance(one, tuple):
            self._todo.extend(one)
        elif isinstance(one, torch.nn.Module):
            self._look_at_module(one)
        elif not self._look_at_generator(one) and _is_own(one):
            self._look_at_attributes(one)

    def _look_at_tensor(self, tensor: torch.Tensor) -> None:
        import torch

        size = tensor.numel() * tensor.element_size() if tensor.layout == torch.strided else 0
        if tensor.device.type != "meta" and self._bytes + size <= _MOST_BYTES:
            self._bytes += size
            self._tensors.append(tensor)

    def _look_at_function(self, function: types.FunctionType) -> None:
        self.compiled = self.compiled or _COMPILED in function.__dict__
        for cell in function.__closure__ or ():
            try:
                value = cell.cell_contents
            except ValueError:  # not assigned yet
                continue
            self._undo.append((_set_cell, (cell, value)))
            self._todo.append(value)
        self._todo.extend(function.__defaults__ or ())
        namespace = function.__globals__
        if not _is_own_module(namespace.get("__name__")):  # __module__ is copied by decorators
            return
        for name in _names_in(function.__code__):
            if name not in namespace:
                continue
            value = namespace[name]
            if isinstance(value, (*_PLAIN, tuple)):
                self._undo.append((_set_item, (namespace, name, value)))
            elif not isinstance(value, (type, types.ModuleType)):
                self._todo.append(value)

    def _look_at_container(self, container: Any) -> None:
        if isinstance(container, list) and len(container) > _MOST_ITEMS:
            self._undo.append((_shorten, (container, len(container))))
            return
        if len(container) > _MOST_ITEMS:
            return
        self._undo.append((_refill, (container, copy.copy(container))))
        self._todo.extend(container.values() if isinstance(container, dict) else container)

    def _look_at_module(self, module: torch.nn.Module) -> None:
        for one in module.modules():
            self._seen.add(id(one))
            self.compiled = self.compiled or is_compiled(one)
            self._look_at_one_module(one)
            self._todo.extend(p for p in one._parameters.values() if p is not None)
            self._todo.extend(b for b in one._buffers.values() if b is not None)

    def _look_at_one_module(self, one: torch.nn.Module) -> None:
        for table in (one._forward_hooks, one._forward_pre_hooks, one._backward_hooks, one._backward_pre_hooks):
            if table:
                self._todo.extend(table.values())
        if not type(one).__module__.startswith("torch."):
            self._look_at_attributes(one)

    def _look_at_generator(self, one: Any) -> bool:
        import torch

        if isinstance(one, torch.Generator):
            self._undo.append((one.set_state, (one.get_state(),)))
        elif isinstance(one, random.Random):
            self._undo.append((one.setstate, (one.getstate(),)))
        elif type(one).__module__.startswith("numpy.random") and hasattr(one, "bit_generator"):
            self._undo.append((_set_numpy, (one.bit_generator, one.bit_generator.state)))
        elif type(one).__module__.startswith("numpy.random") and hasattr(one, "set_state"):
            self._undo.append((one.set_state, (one.get_state(),)))
        elif type(one).__module__ == "numpy" and hasattr(one, "nbytes") and self._bytes + one.nbytes <= _MOST_BYTES:
            self._bytes += one.nbytes
            if getattr(one, "flags", None) is not None and one.flags.writeable:
                self._undo.append((one.__setitem__, (..., one.copy())))
        else:
            return False
        self.generators.append(one)
        return True

    def _look_at_attributes(self, one: Any) -> None:
        attributes = getattr(one, "__dict__", None)
        if not isinstance(attributes, dict):
            return
        internal = _internal_attributes() if hasattr(one, "_forward_hooks") else ()
        kept = {key: value for key, value in attributes.items() if key not in internal}
        self._undo.append((_put_attributes, (attributes, kept, internal)))
        self._todo.extend(value for value in kept.values() if not isinstance(value, _PLAIN))


_internal: frozenset[str] = frozenset()


def _internal_attributes() -> frozenset[str]:
    global _internal
    if not _internal:
        import torch

        _internal = frozenset(torch.nn.Module().__dict__)
    return _internal


def _names_in(code: types.CodeType) -> set[str]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _names_in(constant)
    return names


_own_modules: dict[str, bool] = {}


def _is_own_module(name: str | None) -> bool:
    """Of the program, not of something that is installed."""
    name = name or ""
    if name not in _own_modules:
        root = name.partition(".")[0]
        path = getattr(sys.modules.get(name), "__file__", None) or ""
        foreign = root in sys.stdlib_module_names and root != "__main__"
        _own_modules[name] = not (foreign or root in ("torch", "firstfault") or "site-packages" in path)
    return _own_modules[name]


def _is_own(one: Any) -> bool:
    import torch

    kind = type(one)
    if isinstance(one, (torch.optim.lr_scheduler.LRScheduler, torch.amp.GradScaler)):
        return True
    if isinstance(one, (type, types.ModuleType, torch.optim.Optimizer, torch.utils.data.DataLoader)):
        return False
    return _is_own_module(kind.__module__)


def _set_cell(cell: Any, value: Any) -> None:
    cell.cell_contents = value


def _set_item(namespace: dict, name: str, value: Any) -> None:
    namespace[name] = value


def _set_numpy(generator: Any, state: Any) -> None:
    generator.state = state


def _shorten(items: list, length: int) -> None:
    del items[length:]


def _refill(container: Any, saved: Any) -> None:
    if isinstance(container, list):
        container[:] = saved
    else:
        container.clear()
        container.extend(saved) if isinstance(container, collections.deque) else container.update(saved)


def _put_attributes(attributes: dict, saved: dict, internal: Iterable[str]) -> None:
    for key in [key for key in attributes if key not in saved and key not in internal]:
        del attributes[key]
    attributes.update(saved)
