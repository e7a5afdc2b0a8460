"""Trace for Python: what needs Python objects, around firstfault._live."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    import torch

    from firstfault._core import Diagnosis, Origin, Run

_PHASES = ("forward", "backward", "optimizer")
_TORCH = "2.13"


def _load_live():
    """Import the module that is linked against LibTorch, after torch itself."""
    import torch

    if not torch.__version__.startswith(_TORCH + "."):
        raise ImportError(f"firstfault: built for torch {_TORCH}, found {torch.__version__}; install torch=={_TORCH}.*")
    from firstfault import _live

    return _live


def _path_of(name: str, path: str) -> str:
    """As of the model that is not compiled."""
    return ".".join(part for part in (name, *path.split(".")) if part and part != "_orig_mod")


def _names_of(model: torch.nn.Module, name: str) -> tuple[list[tuple], list[tuple]]:
    """Modules as (module, path, type, parameters of its own), tensors as (tensor, path, is a parameter, its module)."""
    modules, tensors = [], []
    seen: set[int] = set()
    for path, module in model.named_modules():
        if "_orig_mod" in module._modules:  # what torch.compile() wraps around a module
            continue
        index = len(modules)
        full = _path_of(name, path)
        own = sum(p.numel() for p in module._parameters.values() if p is not None)
        modules.append((module, full, type(module).__name__, own))
        for items, is_parameter in ((module._parameters, True), (module._buffers, False)):
            for key, tensor in items.items():
                if tensor is None or id(tensor) in seen:
                    continue
                seen.add(id(tensor))
                tensors.append((tensor, _path_of(full, key), is_parameter, index))
    return modules, tensors


class Trace:
    """Observes every dispatched op of all threads between ``start()`` and ``stop()``, or within ``with``.

    stacks: keep the Python stack of forward ops, so that a fault of their backward has a line too.
    max_ops: stop looking after so many recorded ops (None: never).
    include: the phases in which op outputs are looked at.

    One trace at a time in a process; a second raises RuntimeError. Nothing about the training changes: same numbers,
    same gradients, same random state. With ``FIRSTFAULT=0`` in the environment nothing is observed.
    """

    def __init__(
        self,
        *,
        stacks: bool = True,
        max_ops: int | None = None,
        include: Iterable[str] = _PHASES,
    ) -> None:
        phases = [include] if isinstance(include, str) else list(include)
        for phase in phases:
            if phase not in _PHASES:
                raise ValueError(f"firstfault.trace: include has {phase!r}; it takes {', '.join(map(repr, _PHASES))}")
        if max_ops is not None and max_ops <= 0:
            raise ValueError(f"firstfault.trace: max_ops is {max_ops}; it takes a positive number or None")
        live = _load_live()
        self._live = live.Trace(stacks, *(phase in phases for phase in _PHASES), max_ops or 0)
        self._watched: list[torch.nn.Module] = []  # the observer knows modules by identity

    def watch(self, model: torch.nn.Module, name: str = "model") -> None:
        """Name the modules, parameters and buffers of ``model``, as ``name``, ``name.layer``, …

        Needed for module paths and for checking gradients, parameters and buffers. The parameters are kept alive until
        ``unwatch()`` or until the trace is gone. ValueError when ``name`` is taken by another module.
        """
        modules, tensors = _names_of(model, name)
        self._live.watch(modules, tensors)
        self._watched.extend(module for module, *_ in modules)

    def unwatch(self) -> None:
        """Forget all that ``watch()`` named."""
        self._live.unwatch()
        self._watched.clear()

    def start(self) -> Trace:
        """Begin to observe; what was found before is forgotten."""
        self._live.start()
        return self

    def stop(self) -> None:
        """Stop observing; answers stay available."""
        self._live.stop()

    def pause(self) -> None:
        """Look at nothing until ``resume()``; what was found stays, and ops are still counted."""
        self._live.pause()

    def resume(self) -> None:
        """Go on after ``pause()``."""
        self._live.resume()

    @property
    def running(self) -> bool:
        return self._live.running

    def __enter__(self) -> Trace:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def has_issue(self, tensor: torch.Tensor) -> bool:
        """True when ``tensor`` holds a NaN or Inf now. KeyError for a tensor that no observed op produced."""
        return self._live.has_issue(tensor)

    def diagnose(self, tensor: torch.Tensor) -> Diagnosis:
        """Where the bad values of ``tensor`` began: any result, gradient, parameter or optimizer state."""
        return self._live.diagnose(tensor)

    def origins(self) -> list[Origin]:
        """Origins that reached a sink, in the order they happened; then swallowed values, then notes."""
        return self._live.origins()

    def run(self) -> Run:
        """``origins()``, and what could not be inspected."""
        return self._live.run()

    def __repr__(self) -> str:
        return f"<firstfault.Trace {'running' if self.running else 'stopped'}, {len(self._watched)} modules watched>"


def trace(*, stacks: bool = True, max_ops: int | None = None, include: Iterable[str] = _PHASES) -> Trace:
    """A new :class:`Trace`, to be used as ``with firstfault.trace() as tracker``."""
    return Trace(stacks=stacks, max_ops=max_ops, include=include)
