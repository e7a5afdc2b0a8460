"""One forward pass as the NaN detector sees it: which modules read and gave bad values, and which made one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    import firstfault as ff
    from firstfault.compat._shared_trace import Traced


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Floating ones, in nested tuples, lists and mappings."""
    import torch

    if isinstance(value, torch.Tensor):
        if value.is_floating_point():
            yield value
    elif isinstance(value, (tuple, list)):
        for one in value:
            yield from tensors_in(one)
    elif isinstance(value, Mapping):
        yield from tensors_in(list(value.values()))


def stats_of(tensors: list[torch.Tensor]) -> dict[str, float]:
    """Of the finite values."""
    import torch

    with torch.no_grad():
        parts = [tensor.detach().float().flatten() for tensor in tensors]
        finite = torch.cat([part[torch.isfinite(part)] for part in parts]) if parts else torch.empty(0)
        if finite.numel() == 0:
            return {}
        return {"min": finite.min().item(), "max": finite.max().item(), "mean": finite.mean().item()}


@dataclass
class Bad:
    """What bad values some tensors hold, and which of them."""

    nan: bool = False
    inf: bool = False
    tensors: list[torch.Tensor] = field(default_factory=list)

    def add(self, tensor: torch.Tensor) -> None:
        import torch

        with torch.no_grad():
            self.nan = self.nan or bool(torch.isnan(tensor).any())
            self.inf = self.inf or bool(torch.isinf(tensor).any())
        self.tensors.append(tensor)

    def __bool__(self) -> bool:
        return bool(self.tensors)

    def as_input(self) -> tuple[bool, bool, bool, bool]:
        return self.nan, False, self.inf, False

    def shape_and_stats(self) -> tuple[tuple[int, ...], dict[str, float]]:
        return tuple(self.tensors[0].shape), stats_of(self.tensors)


@dataclass
class Frame:
    """A module that runs."""

    name: str
    kind: str
    read: Bad
    has_suspect: bool = False  # inside of it


class Call:
    """From the beginning of the outermost module to its end, on one thread.

    What counts is what the outermost gives: a bad value that it leaves out again (a mask, ``where``) is no fault.
    """

    def __init__(self, traced: Traced, batch_idx: int) -> None:
        self.batch_idx = batch_idx
        self.seconds = 0.0
        self._traced = traced
        self._frames: list[Frame] = []
        self._seen: dict[str, dict[str, Any]] = {}  # by module: the fields of its event
        self._suspects: list[str] = []  # modules that gave a bad value and had read none
        self._first = Bad()

    def begin(self, frame: Frame) -> None:
        self._frames.append(frame)

    def end(self, name: str, output: Any) -> list[dict[str, Any]] | None:
        """When the outermost ends, the fields of one event for each origin, by time; else None."""
        if all(frame.name != name for frame in self._frames):
            return None
        while self._frames[-1].name != name:  # left by an exception
            self._frames.pop()
        frame = self._frames.pop()
        outputs = list(tensors_in(output))
        gave = self._traced.look(outputs)
        if frame.read or gave:
            self._note(frame, gave, outputs)
        if self._frames:
            return None
        return self._found(frame, gave) if gave or not outputs else []

    def _note(self, frame: Frame, gave: Bad, outputs: list[torch.Tensor]) -> None:
        fields = {
            "module_type": frame.kind,
            "input_has_nan": frame.read.nan,
            "output_has_nan": gave.nan,
            "input_has_inf": frame.read.inf,
            "output_has_inf": gave.inf,
            "output_shape": tuple(outputs[0].shape) if outputs else (),
            "output_stats": stats_of(outputs),
        }
        self._seen.setdefault(frame.name, fields)
        self._first = self._first or gave or frame.read
        if frame.read or frame.has_suspect:
            return
        self._suspects.append(frame.name)
        for outer in self._frames:
            outer.has_suspect = True

    def _found(self, outermost: Frame, gave: Bad) -> list[dict[str, Any]]:
        bad = gave or self._first
        if not bad:
            return []
        origins = self._traced.origins_of(bad.tensors)
        if origins is not None:
            return [self._of_origin(origin, outermost) for origin in origins]
        return [self._of_module(name) for name in self._suspects or [outermost.name]]

    def _of_module(self, name: str) -> dict[str, Any]:
        return {"layer_name": name or "root", **self._seen[name]}

    def _of_origin(self, origin: ff.Origin, outermost: Frame) -> dict[str, Any]:
        layer = self._traced.layer_of(origin)
        if layer is None or origin.phase == "data":  # it came in from outside
            layer = outermost.name
        if layer in self._seen:
            return {**self._of_module(layer), "origin": origin}
        counts = origin.counts
        return {
            "layer_name": layer or "root",
            "module_type": self._traced.kind_of(layer),
            "input_has_nan": False,
            "output_has_nan": counts.nan > 0,
            "input_has_inf": False,
            "output_has_inf": counts.pos_inf + counts.neg_inf > 0,
            "output_shape": origin.shape,
            "origin": origin,
        }
