"""Watch for Python: what needs Python objects (hooks on optimizers, names of modules), around firstfault._live."""

from __future__ import annotations

import atexit
import functools
import os
import platform
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from firstfault import _core
from firstfault._trace import _load_live, _names_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

    import torch

    from firstfault._core import Hypothesis, Run, Transition

_LEVELS = ("gradients", "modules", "ops")
_NAN = float("nan")
_PARAMETERS_LOOKED_AT = 4  # of a group, for the state of its optimizer


def eps_as_held(group: Mapping[str, Any]) -> float:
    """The eps of a parameter group in the dtype that it is added to: 1e-8 is 0 in float16. NaN where there is none."""
    eps, parameters = group.get("eps"), group["params"]
    if not isinstance(eps, (int, float)) or not parameters:
        return _NAN
    return _load_live().eps_as_held(eps, parameters[0], bool(group.get("fused")))


def _numbers(group: Mapping[str, object]) -> dict[str, float]:
    """The numeric hyperparameters of a parameter group."""
    numbers: dict[str, float] = {}
    for key, value in group.items():
        if key == "params":
            continue
        if isinstance(value, (bool, int, float)):
            numbers[key] = float(value)
        elif isinstance(value, (tuple, list)) and all(isinstance(one, (int, float)) for one in value):
            numbers.update({f"{key}[{i}]": float(one) for i, one in enumerate(value)})
        elif getattr(value, "numel", lambda: 0)() == 1 and (number := _number(value)) is not None:
            numbers[key] = number
    return numbers


def _number(value: object) -> float | None:
    """None for what is no single number: optimizers that people write keep what they like."""
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        return None


def _beside_training(hook: Callable[..., None]) -> Callable[..., None]:
    """A hook whose failure is said once and never reaches the training that called it."""

    @functools.wraps(hook)
    def call(self: Watch, optimizer: torch.optim.Optimizer, *args: object) -> None:
        try:
            hook(self, optimizer, *args)
        except Exception as error:
            if not self._failed:
                print(f"firstfault: an optimizer is not followed: {type(error).__name__}: {error}", file=sys.stderr)
            self._failed = True

    return call


class _Held:
    """One optimizer: its number, and what is read off its groups around a step."""

    def __init__(self, optimizer: torch.optim.Optimizer, number: int) -> None:
        self.optimizer = optimizer
        self.number = number
        self.sizes = [len(group["params"]) for group in optimizer.param_groups]
        self._with_state: set[int] = set()  # groups whose optimizer keeps any

    def groups(self) -> list[tuple]:
        import torch

        result = []
        for index, group in enumerate(self.optimizer.param_groups):
            steps, moments = _NAN, []
            for parameter in group["params"][:_PARAMETERS_LOOKED_AT]:
                state = self.optimizer.state.get(parameter)
                is_dict = isinstance(state, Mapping)
                if state is None or (is_dict and not state):
                    if index in self._with_state and parameter.grad is not None:
                        steps = 0.0
                    continue
                self._with_state.add(index)
                count = _number(state.get("step", 1.0)) if is_dict else None
                count = 1.0 if count is None else count  # momentum alone is not counted
                steps = count if not count >= steps else steps
                moment = state.get("exp_avg_sq") if is_dict else None
                if isinstance(moment, torch.Tensor):
                    moments.append(moment)
            result.append((_number(group.get("lr")), eps_as_held(group), steps, moments))
        return result

    def grown(self) -> list[torch.Tensor]:
        """Parameters that joined since the last step."""
        sizes = [len(group["params"]) for group in self.optimizer.param_groups]
        if sizes == self.sizes:
            return []
        known = self.sizes + [0] * (len(sizes) - len(self.sizes))
        fresh = [
            parameter
            for group, before in zip(self.optimizer.param_groups, known, strict=False)
            for parameter in group["params"][before:]
        ]
        self.sizes = sizes
        return fresh


def _default_path() -> str:
    script = os.path.splitext(os.path.basename(sys.argv[0] if sys.argv else ""))[0] or "run"
    stem = os.path.join("runs", f"{script}-{time.strftime('%Y%m%d-%H%M%S')}")
    os.makedirs("runs", exist_ok=True)
    number = 0
    while os.path.exists(f"{stem}-{number}.ffrun"):
        number += 1
    return f"{stem}-{number}.ffrun"


def _named(given: object, kind: str) -> list[tuple[str, object]]:
    """One thing, several, or a mapping from names; as pairs."""
    if given is None:
        return []
    if isinstance(given, dict):
        return list(given.items())
    if isinstance(given, (list, tuple)):
        return [(kind if i == 0 else f"{kind}{i}", one) for i, one in enumerate(given)]
    return [(kind, given)]


class Watch:
    """Watches a training run step by step: gradients, parameters, updates, activations, loss, batch, learning rate.

    model: a module, a list of them, or a mapping from names; the first is called "model" unless named.
    optimizer: one, or a list of them. Steps are marked by hooks on them; nothing else is hooked. None: each optimizer
        is followed from its first step on that holds a parameter of the models.
    run_file: a path; True: ``runs/<script>-<time>-<n>.ffrun``; None: the run is kept in memory only.
    level: "ops" observes every op, so that a fault has its origin; "modules" does so in the first steps and then in
        one of eight; "gradients" observes none. None: "ops" on the CPU, "modules" where a model is on another device.
    threshold_vanishing, threshold_exploding: L2 norms of a parameter's gradient that count as such, beside its own
        history.

    Not beside a running Trace or another Watch (RuntimeError). Nothing about the training changes. With
    ``FIRSTFAULT=0`` in the environment nothing is watched.
    """

    def __init__(
        self,
        model: torch.nn.Module | Iterable[torch.nn.Module] | Mapping[str, torch.nn.Module] | None = None,
        optimizer: torch.optim.Optimizer | Iterable[torch.optim.Optimizer] | None = None,
        *,
        run_file: str | os.PathLike | bool | None = None,
        level: str | None = None,
        threshold_vanishing: float = 1e-6,
        threshold_exploding: float = 1e3,
    ) -> None:
        if level is not None and level not in _LEVELS:
            raise ValueError(f"firstfault.watch: level is {level!r}; it takes {', '.join(map(repr, _LEVELS))} or None")
        models = _named(model, "model")
        on_cpu = all(p.device.type == "cpu" for _, one in models for p in one.parameters())
        path = _default_path() if run_file is True else os.fspath(run_file) if run_file else ""
        live = _load_live()
        chosen = level or ("ops" if on_cpu else "modules")
        self._live = live.Watch(chosen, float(threshold_vanishing), float(threshold_exploding), path)
        self._process = os.getpid()
        self._modules: list[torch.nn.Module] = []  # the observer knows modules by identity
        self._names: set[str] = set()
        self._held: dict[int, _Held] = {}
        self._handles: list = []
        self._closed = False
        self._failed = False
        for name, one in models:
            self.watch(one, name)
        for _, one in _named(optimizer, "optimizer"):
            self.hold(one)
        import torch

        if models and optimizer is None:
            from torch.optim.optimizer import register_optimizer_step_pre_hook

            self._handles.append(register_optimizer_step_pre_hook(self.follow))
        self._live.describe(
            [sys.executable, *sys.argv] if sys.argv else [],
            {"firstfault": _core.__version__, "python": platform.python_version(), "torch": torch.__version__},
        )

    def watch(self, model: torch.nn.Module, name: str = "model") -> None:
        """Name the modules, parameters and buffers of ``model``, as ``name``, ``name.layer``, …

        ValueError when ``name`` is taken by another module.
        """
        modules, tensors = _names_of(model, name)
        self._live.watch(modules, tensors)
        self._names.add(name)
        self._modules.extend(module for module, *_ in modules)

    def hold(self, optimizer: torch.optim.Optimizer) -> None:
        """Follow an optimizer: which parameters it holds, and its steps."""
        if id(optimizer) in self._held:
            return
        tensors = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        groups = [_numbers(group) for group in optimizer.param_groups]
        self._held[id(optimizer)] = _Held(optimizer, self._live.hold(tensors, type(optimizer).__name__, groups))
        if hasattr(optimizer, "register_step_pre_hook"):
            self._handles.append(optimizer.register_step_pre_hook(self._before))
            self._handles.append(optimizer.register_step_post_hook(self._after))

    @_beside_training
    def follow(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        """Hold an optimizer where it has a parameter of the watched models."""
        if id(optimizer) in self._held or not self._live.running or os.getpid() != self._process:
            return
        own = {id(parameter) for module in self._modules for parameter in module._parameters.values()}
        if any(id(parameter) in own for group in optimizer.param_groups for parameter in group["params"]):
            self.hold(optimizer)

    @property
    def optimizers(self) -> list[torch.optim.Optimizer]:
        """That are followed."""
        return [held.optimizer for held in self._held.values()]

    @_beside_training
    def _before(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        held = self._held.get(id(optimizer))
        if held is None or not self._live.running or os.getpid() != self._process:
            return
        if fresh := held.grown():
            self._live.hold_more(held.number, fresh)
        self._live.before_step(held.number, held.groups(), True)

    @_beside_training
    def _after(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        held = self._held.get(id(optimizer))
        if held is None or not self._live.running or os.getpid() != self._process:
            return
        found_inf = getattr(optimizer, "found_inf", None)  # set by GradScaler.step for those that look themselves
        if found_inf is not None:
            scale = getattr(optimizer, "grad_scale", None)
            self._live.scaled(_NAN if scale is None else float(scale), float(found_inf) > 0)
        self._live.after_step(held.number, held.groups(), True)

    def step(self, optimizer: torch.optim.Optimizer | None = None, loss: torch.Tensor | float | None = None) -> None:
        """Let the optimizer make its step, and record it. Needed only for one that is no ``torch.optim.Optimizer``.

        None: the program updates its parameters by itself, and the step ends here; how far they moved is not known.
        """
        if loss is not None:
            self.loss(loss)
        if optimizer is None:
            if self._live.running:
                self._live.before_step(0, [], False)
                self._live.after_step(0, [], False)
            return
        if hasattr(optimizer, "register_step_pre_hook"):
            self.hold(optimizer)
            optimizer.step()
            return
        self.hold(optimizer)
        held = self._held[id(optimizer)]
        self._live.before_step(held.number, held.groups(), False)
        optimizer.step()
        self._live.after_step(held.number, held.groups(), False)

    def loss(self, value: torch.Tensor | float) -> None:
        """The loss of this step, where it is not what ``backward()`` is called on."""
        if self._live.running:
            self._live.loss(float(value.detach()) if hasattr(value, "detach") else float(value))

    def log(self, **numbers: float) -> None:
        """Numbers of the program's own, kept with the step."""
        for name, value in numbers.items():
            self._live.log(name, float(value))

    def start(self) -> Watch:
        """Begin to watch; ``watch()`` and ``with`` do it."""
        self._live.start()
        atexit.register(self._at_exit)
        return self

    def _at_exit(self) -> None:
        # Set by an exception that nobody caught.
        self.close("died" if getattr(sys, "last_type", None) else "complete")

    def close(self, state: str = "complete") -> None:
        """End the run: "complete", or "died" where an exception ended it. Answers stay available."""
        if self._closed or os.getpid() != self._process:
            return
        self._closed = True
        atexit.unregister(self._at_exit)
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._live.close(state == "died")

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close("complete" if error is None else "died")

    @property
    def path(self) -> str | None:
        """Of the run file, or None."""
        return self._live.path or None

    @property
    def running(self) -> bool:
        return self._live.running

    def run(self) -> Run:
        """What was recorded so far, as a plain value."""
        return self._live.run()

    def explain(self) -> list[Hypothesis]:
        """Why the run failed, best first; empty where nothing is wrong."""
        return self._live.explain()

    def events(self) -> list[Transition]:
        """Changes of state, in order."""
        return self.run().transitions

    def __repr__(self) -> str:
        where = self.path or "memory"
        state = "running" if self.running else "closed"
        return f"<firstfault.Watch {state}, {len(self._modules)} modules, {len(self._held)} optimizers, in {where}>"

    def _repr_html_(self) -> str:
        run = self.run()
        return _core.explanation_html(explain(run), run)


def watch(
    model: torch.nn.Module | Iterable[torch.nn.Module] | Mapping[str, torch.nn.Module] | None = None,
    optimizer: torch.optim.Optimizer | Iterable[torch.optim.Optimizer] | None = None,
    *,
    run_file: str | os.PathLike | bool | None = None,
    level: str | None = None,
    threshold_vanishing: float = 1e-6,
    threshold_exploding: float = 1e3,
) -> Watch:
    """A new :class:`Watch` that is running, to be used as ``with firstfault.watch(model, optimizer) as run``."""
    return Watch(
        model,
        optimizer,
        run_file=run_file,
        level=level,
        threshold_vanishing=threshold_vanishing,
        threshold_exploding=threshold_exploding,
    ).start()


def _owners(parameters: list[torch.Tensor]) -> list[torch.nn.Module]:
    """The outermost living modules that own any of these parameters."""
    import gc

    import torch

    wanted = {id(parameter) for parameter in parameters}
    modules = [one for one in gc.get_objects() if issubclass(type(one), torch.nn.Module)]
    inside = {id(child) for module in modules for child in module._modules.values() if child is not None}
    outermost = [module for module in modules if id(module) not in inside]
    return [module for module in outermost if any(id(p) in wanted for p in module.parameters())]


class _Process(Watch):
    """Watches every optimizer that this process makes, and the models whose parameters it holds."""

    def __init__(self, *, run_file: str | None, level: str | None) -> None:
        super().__init__(run_file=run_file, level=level)
        import torch

        self._base = torch.optim.Optimizer
        self._original = original = self._base.__init__
        follow = self._follow

        def __init__(optimizer, *args, **kwargs):
            original(optimizer, *args, **kwargs)
            follow(optimizer)

        __init__.__wrapped__ = original
        self._replacement = self._base.__init__ = __init__

    def _follow(self, optimizer: torch.optim.Optimizer) -> None:
        if self._closed or os.getpid() != self._process:
            return
        try:
            parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
            for module in _owners(parameters):
                if not any(module is known for known in self._modules):
                    self.watch(module, self._name_for(module))
            self.hold(optimizer)
        except Exception as error:  # the program goes on as without us
            print(f"firstfault: an optimizer is not followed: {type(error).__name__}: {error}", file=sys.stderr)

    def _name_for(self, module: torch.nn.Module) -> str:
        """As the script calls it, where that can be seen."""
        names = [name for name, value in vars(sys.modules["__main__"]).items() if value is module]
        name = names[0] if names else "model"
        number = 1
        while name in self._names:
            number += 1
            name = f"{names[0] if names else 'model'}{number}"
        return name

    def close(self, state: str = "complete") -> None:
        if self._base.__init__ is self._replacement:
            self._base.__init__ = self._original
        super().close(state)


def watch_process(*, run_file: str | None = None, level: str | None = None) -> Watch:
    """A watch of all that this process trains from now on: every optimizer it makes, with the models behind it."""
    return _Process(run_file=run_file, level=level).start()


def read_run(path: str | os.PathLike) -> Run:
    """What a run file holds. ValueError where it is none, or cannot be read."""
    return _core.read_run(os.fspath(path))


def explain(run: Run) -> list[Hypothesis]:
    """Why the run failed, best first; empty where nothing is wrong."""
    return _core.hypotheses(run)
