"""Changes that whole windows of steps are run with: by the names of docs/replay.md, as context managers."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from firstfault._clip import _module

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import torch


class Applied:
    """A change while it is made."""

    def __init__(self) -> None:
        self.used = True  # False: it met nothing that it could change
        self.batch: Callable[[int, tuple], tuple] | None = None  # (step, batch) to the batch that is used


class Changes:
    """Of the steps of these optimizers; None: of all in this process."""

    def __init__(self, optimizers: list[torch.optim.Optimizer] | None = None) -> None:
        self._optimizers = optimizers

    def of(self, name: str, divisor: int, warm_up: int) -> contextlib.AbstractContextManager[Applied] | None:
        """None for one that needs more than optimizers, or is not known."""
        made = {
            "": lambda: contextlib.nullcontext(Applied()),
            "lower_rate": lambda: self._rate(lambda _: 1 / divisor),
            "warm_up": lambda: self._rate(lambda n: min(1.0, n / max(1, warm_up))),
            "zero_grad": self._zero_grad,
            "averaged": self._averaged,
            "without_weight_decay": lambda: self._group_numbers("weight_decay", lambda value, _: 0 * value),
            "kept_state": self._kept_state,
            "leaky_activation": _leaky,
            "other_activation": self._other_activation,
            "target_shape": _target_shape,
            "log_probabilities": _log_probabilities,
        }.get(name)
        return None if made is None else made()

    # -- around optimizers

    @contextlib.contextmanager
    def hooked(self, before: Callable[[Any], None], after: Callable[[Any], None] | None = None) -> Iterator[Applied]:
        from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

        def pre(optimizer: Any, *_: Any) -> None:
            before(optimizer)

        def post(optimizer: Any, *_: Any) -> None:
            if after is not None:
                after(optimizer)

        if self._optimizers is None:
            handles = [register_optimizer_step_pre_hook(pre), register_optimizer_step_post_hook(post)]
        else:
            handles = [one.register_step_pre_hook(pre) for one in self._optimizers]
            handles += [one.register_step_post_hook(post) for one in self._optimizers]
        try:
            yield Applied()
        finally:
            for handle in handles:
                handle.remove()

    def _group_numbers(self, key: str, changed: Callable[[Any, int], Any]) -> Any:
        """A number of each group, while the optimizer makes its step. ``changed(value, step)``, steps from 1."""
        saved: dict[int, list[Any]] = {}
        counts: dict[int, int] = {}

        def before(optimizer: Any) -> None:
            counts[id(optimizer)] = count = counts.get(id(optimizer), 0) + 1
            saved[id(optimizer)] = [group.get(key) for group in optimizer.param_groups]
            for group in optimizer.param_groups:
                if group.get(key) is not None:
                    group[key] = changed(group[key], count)

        def after(optimizer: Any) -> None:
            for group, value in zip(optimizer.param_groups, saved.pop(id(optimizer), ()), strict=False):
                if value is not None:
                    group[key] = value

        return self.hooked(before, after)

    def _rate(self, factor: Callable[[int], float]) -> Any:
        return self._group_numbers("lr", lambda lr, step: lr * factor(step))

    def _zero_grad(self) -> Any:
        def after(optimizer: Any) -> None:
            for parameter in _parameters(optimizer):
                parameter.grad = None

        return self.hooked(lambda _: None, after)

    @contextlib.contextmanager
    def _averaged(self) -> Iterator[Applied]:
        import torch

        count = [0]
        backward = torch.Tensor.backward

        def counted(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            count[0] += 1
            return backward(tensor, *args, **kwargs)

        def before(optimizer: Any) -> None:
            times, count[0] = max(1, count[0]), 0
            applied.used = applied.used or times > 1
            for parameter in _parameters(optimizer):
                if parameter.grad is not None:
                    parameter.grad.div_(times)

        torch.Tensor.backward = counted
        try:
            with self.hooked(before) as applied:
                applied.used = False
                yield applied
        finally:
            torch.Tensor.backward = backward

    @contextlib.contextmanager
    def _kept_state(self) -> Iterator[Applied]:
        """State that is gone before a step, and was there after the one before, is put back."""
        known: dict[int, list] = {}

        def before(optimizer: Any) -> None:
            for parameter, entry in known.get(id(optimizer), ()):
                if not optimizer.state.get(parameter):
                    optimizer.state[parameter] = entry
                    applied.used = True

        def after(optimizer: Any) -> None:
            known[id(optimizer)] = [(p, dict(one)) for p, one in optimizer.state.items() if isinstance(one, dict)]

        with self.hooked(before, after) as applied:
            applied.used = False
            yield applied

    # -- in place of functions

    @contextlib.contextmanager
    def _other_activation(self) -> Iterator[Applied]:
        mode = _activations()
        with self.hooked(lambda _: None, lambda _: mode.end_step()) as applied, mode:
            applied.used = False
            mode.applied = applied
            yield applied


def _parameters(optimizer: Any) -> Iterable[torch.Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


@contextlib.contextmanager
def _instead(table: dict[Any, Callable[..., Any]]) -> Iterator[Applied]:
    """Functions of torch replaced by others, whoever calls them on this thread; not where these give NotImplemented."""
    from torch.overrides import TorchFunctionMode

    applied = Applied()
    applied.used = False

    class Instead(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
            other = table.get(function)
            made = NotImplemented if other is None else other(*args, **(kwargs or {}))
            if made is NotImplemented:
                return function(*args, **(kwargs or {}))
            applied.used = True
            return made

    with Instead():
        yield applied


def _leaky() -> Any:
    import torch
    import torch.nn.functional as F

    def in_place(x: torch.Tensor) -> torch.Tensor:
        return F.leaky_relu(x, inplace=True)

    def leaky(x: torch.Tensor, inplace: bool = False) -> torch.Tensor:
        return F.leaky_relu(x, inplace=inplace)

    plain = (F.relu, torch.relu, torch.Tensor.relu)
    return _instead(dict.fromkeys(plain, leaky) | dict.fromkeys((torch.relu_, torch.Tensor.relu_), in_place))


def _target_shape() -> Any:
    import torch.nn.functional as F

    def shaped(loss: Callable[..., Any]) -> Callable[..., Any]:
        def call(given: torch.Tensor, target: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            if given.shape == target.shape or given.numel() != target.numel():
                return NotImplemented
            return loss(given, target.reshape(given.shape), *args, **kwargs)

        return call

    losses = (F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss)
    return _instead({loss: shaped(loss) for loss in losses})


def _log_probabilities() -> Any:
    import torch.nn.functional as F

    def on_scores(scores: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        return F.nll_loss(scores.log_softmax(1 if scores.dim() > 1 else 0), *args, **kwargs)

    return _instead({F.nll_loss: on_scores})


def _activations() -> Any:
    """relu in place of each sigmoid and tanh after which a layer follows; known after the first step, unchanged."""
    import torch
    import torch.nn.functional as F
    from torch.overrides import TorchFunctionMode

    squashing = {torch.sigmoid, torch.Tensor.sigmoid, F.sigmoid, torch.tanh, torch.Tensor.tanh, F.tanh}
    mixing = {F.linear, F.conv1d, F.conv2d, F.conv3d, torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__}
    mixing |= {torch.mm, torch.Tensor.mm, torch.bmm, torch.addmm}

    class Activations(TorchFunctionMode):
        def __init__(self) -> None:
            super().__init__()
            self.applied = Applied()
            self._inner = self._calls = 0  # of a step: those before its last layer; those so far
            self._first = True

        def end_step(self) -> None:
            self._first = False
            self._calls = 0

        def __torch_function__(self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
            if function in mixing and self._first:
                self._inner = self._calls
            if function in squashing:
                self._calls += 1
                if not self._first and self._calls <= self._inner:
                    self.applied.used = True
                    return torch.relu(*args, **(kwargs or {}))
            return function(*args, **(kwargs or {}))

    return Activations()


def draw_for_relu(parameters: list[torch.Tensor]) -> None:
    """As He initialisation has it: a variance of 2 / fan-in."""
    import torch

    _module().draw_anew(parameters)
    with torch.no_grad():
        for parameter in parameters:
            if parameter.dim() > 1 and parameter.is_floating_point():
                parameter.mul_(2**0.5)


class ProcessChanges(Changes):
    """Of a whole script, from its import of torch to its end."""

    def of(self, name: str, divisor: int, warm_up: int) -> contextlib.AbstractContextManager[Applied] | None:
        if name == "initialised":
            return _drawn(_module().draw_anew)
        if name == "other_activation":
            return self._drawn_activation()
        if name == "float32":
            return _wide()
        if name == "standardised":
            return _standardised_calls()
        return super().of(name, divisor, warm_up)

    @contextlib.contextmanager
    def _drawn_activation(self) -> Iterator[Applied]:
        with _drawn(draw_for_relu), self._other_activation() as applied:
            yield applied


@contextlib.contextmanager
def _drawn(draw: Callable[[list], None]) -> Iterator[Applied]:
    """The parameters of each optimizer, when it is made."""
    import torch

    applied = Applied()
    applied.used = False
    init = torch.optim.Optimizer.__init__

    def made(optimizer: Any, *args: Any, **kwargs: Any) -> None:
        init(optimizer, *args, **kwargs)
        applied.used = True
        draw(list(_parameters(optimizer)))

    torch.optim.Optimizer.__init__ = made
    try:
        yield applied
    finally:
        torch.optim.Optimizer.__init__ = init


@contextlib.contextmanager
def _wide() -> Iterator[Applied]:
    from firstfault._experiments import autocast_switched_off, wide_casts

    with autocast_switched_off(), wide_casts():
        yield Applied()


@contextlib.contextmanager
def _standardised_calls() -> Iterator[Applied]:
    """What modules of the outermost kind are called on, and the targets of regression losses."""
    import torch
    import torch.nn.functional as F
    from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

    known: dict[Any, Any] = {}  # of Standardisers
    depth = [0]

    def standardised(key: Any, tensors: list[Any]) -> list[Any]:
        given = [one if _is_data(one) else None for one in tensors]
        if key not in known:
            known[key] = _module().Standardiser(given)
        if not known[key]:
            return tensors
        applied.used = True
        return [old if new is None else new for old, new in zip(tensors, known[key](given), strict=True)]

    def enter(module: Any, args: tuple) -> tuple | None:
        depth[0] += 1
        if depth[0] > 1 or isinstance(module, torch.nn.modules.loss._Loss):
            return None
        return tuple(standardised((id(module), len(args)), list(args)))

    def leave(*_: Any) -> None:
        depth[0] -= 1

    def with_target(loss: Callable[..., Any]) -> Callable[..., Any]:
        def call(given: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
            return loss(given, *standardised(loss, [target]), *args, **kwargs)

        return call

    losses = (F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss)
    handles = [
        register_module_forward_pre_hook(enter),
        register_module_forward_hook(leave, always_call=True),
    ]
    try:
        with _instead({loss: with_target(loss) for loss in losses}) as applied:
            applied.used = False
            yield applied
    finally:
        for handle in handles:
            handle.remove()


def _is_data(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor) and value.is_floating_point() and value.grad_fn is None
