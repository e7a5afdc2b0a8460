"""One firstfault.Trace for all NaN detectors of the process: a second trace would be refused."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

import firstfault as ff
from firstfault.compat._nan_calls import Bad

if TYPE_CHECKING:
    from collections.abc import Iterable

    import torch

_lock = threading.Lock()
_trace: ff.Trace | None = None
_users = 0
_names: dict[int, str] = {}  # by identity of the model, while the trace lives


@dataclass
class Traced:
    """What a detector may ask. Without a trace there is an answer for modules, none for ops."""

    model: torch.nn.Module
    name: str  # of the model, in the trace
    trace: ff.Trace | None
    enabled: bool

    def look(self, tensors: Iterable[torch.Tensor]) -> Bad:
        bad = Bad()
        for tensor in tensors:
            if self._has_issue(tensor):
                bad.add(tensor)
        return bad

    def _has_issue(self, tensor: torch.Tensor) -> bool:
        import torch

        if self.trace is not None:
            try:
                return self.trace.has_issue(tensor)
            except (KeyError, RuntimeError):  # not made by an op, or of a kind that is not inspected
                pass
        try:
            with torch.no_grad():
                return not bool(torch.isfinite(tensor).all())
        except (NotImplementedError, RuntimeError):  # of a layout that has no such op
            return False

    def origins_of(self, tensors: Iterable[torch.Tensor]) -> list[ff.Origin] | None:
        """By time; none for an Inf that is meant, such as a mask's. None where it cannot be said."""
        if self.trace is None:
            return None
        found: dict[int, ff.Origin] = {}
        for tensor in tensors:
            try:
                culprits = self.trace.diagnose(tensor).culprits
            except (KeyError, RuntimeError):
                return None
            if not culprits:
                return None
            found.update((one.op_number, one) for one in culprits if one.outcome != "intended")
        return [found[number] for number in sorted(found)]

    def layer_of(self, origin: ff.Origin) -> str | None:
        """Path in this model, "" for itself; None where the op ran outside of it."""
        path = (origin.param or "").rpartition(".")[0] if origin.phase == "parameter" else origin.module
        path = path or (origin.param or "").rpartition(".")[0]
        if path == self.name:
            return ""
        return path.removeprefix(self.name + ".") if path and path.startswith(self.name + ".") else None

    def kind_of(self, layer: str) -> str:
        return type(self.model.get_submodule(layer)).__name__


def enter(model: torch.nn.Module) -> Traced:
    global _trace, _users
    if os.environ.get("FIRSTFAULT") == "0":
        return Traced(model, "", None, False)
    with _lock:
        if _users == 0:
            _trace = _started()
        _users += 1
        if _trace is not None and id(model) not in _names:
            name = "model" if not _names else f"model{len(_names)}"
            _trace.watch(model, name)
            _names[id(model)] = name
        return Traced(model, _names.get(id(model), ""), _trace, True)


def leave(traced: Traced) -> None:
    global _trace, _users
    if not traced.enabled:
        return
    with _lock:
        _users -= 1
        if _users or _trace is None:
            return
        _trace.stop()
        _trace = None
        _names.clear()


def _started() -> ff.Trace | None:
    try:
        return ff.trace().start()
    except RuntimeError:  # the program watches or traces by itself
        return None
