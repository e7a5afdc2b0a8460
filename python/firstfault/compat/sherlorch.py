"""The interface of sherlorch 0.1.0, answered by firstfault.trace(): the same names and the same form of text.

``from firstfault.compat import sherlorch`` takes the place of ``import sherlorch``.
"""

from __future__ import annotations

import itertools
import re
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import firstfault as ff

if TYPE_CHECKING:
    import torch

__all__ = ["DiagnosisReport", "OpNode", "ProvenanceTracker", "trace"]
__version__ = "0.1.0"  # of the interface

_HELD_ALREADY = ("bad_input", "unwritten_memory", "compiled_region")
_NAMES = {"data": "batch"}
_NAMESPACE = re.compile(r"^aten::_?(native_)?")


@dataclass
class OpNode:
    """One op with what its output held."""

    seq: int = field(default_factory=itertools.count().__next__)
    op_name: str = ""
    shape: tuple[int, ...] = ()
    dtype: str = ""
    device: str = ""
    is_finite: bool = True
    has_nan: bool = False
    has_inf: bool = False
    parents: list[OpNode] = field(default_factory=list)  # only those that were bad
    location: str | None = None
    module_path: str | None = None
    inherited: bool = False
    extra: dict[str, Any] = field(default_factory=dict)  # of a culprit: "origin", the firstfault.Origin

    def summary(self) -> str:
        """``[10] log  shape=(4, 4) dtype=torch.float32  [model.layer1]  (train.py:27)  <-- Inf``"""
        kinds = [kind for kind, held in (("NaN", self.has_nan), ("Inf", self.has_inf)) if held]
        parts = [
            f"[{self.seq}] {self.op_name}",
            f"shape={tuple(self.shape)} dtype={self.dtype}",
            f"[{self.module_path}]" if self.module_path else "",
            f"({self.location})" if self.location else "",
            f"<-- {' & '.join(kinds)}" if kinds else "",
        ]
        return "  ".join(part for part in parts if part)

    def __repr__(self) -> str:
        return self.summary()


@dataclass
class DiagnosisReport:
    """The ops that made the bad values of ``target``, and the way from each to it by the culprit's ``seq``."""

    target: OpNode
    culprits: list[OpNode] = field(default_factory=list)
    paths: dict[int, list[OpNode]] = field(default_factory=dict)
    total_nodes_seen: int = 0
    note: str = ""  # why there is no culprit although the target is not finite, or nothing was observed

    @property
    def ok(self) -> bool:
        return not self.culprits

    def __str__(self) -> str:
        target = self.target
        if self.ok:
            where = f"[{target.seq}] {target.op_name}" if target.seq >= 0 else target.op_name
            return self.note or f"No non-finite values in {where}: {self.total_nodes_seen} ops were traced."
        lines = [
            f"sherlorch diagnosis for [{target.seq}] {target.op_name} (shape={target.shape}):",
            f"  Found {len(self.culprits)} culprit op(s) out of {self.total_nodes_seen} traced ops.",
            "",
        ]
        for number, culprit in enumerate(self.culprits, start=1):
            lines += [f"  Culprit #{number}: {culprit.summary()}", *_reason_lines(culprit)]
            path = self.paths.get(culprit.seq, [])
            if len(path) > 1:
                lines += ["    Path to target:", *(f"      -> {node.summary()}" for node in path)]
            lines.append("")
        return "\n".join(lines)


class ProvenanceTracker:
    """A :class:`firstfault.Trace` under sherlorch's names. One at a time in a process can be entered.

    capture_stack: give each culprit its ``file:line``; for a backward op, that of its forward op.
    check_dtypes, fast_shape_ops: without effect, every floating output is looked at.
    """

    def __init__(self, capture_stack: bool = False, check_dtypes: Any = None, fast_shape_ops: bool = True) -> None:
        self.capture_stack = capture_stack
        self.fast_shape_ops = fast_shape_ops
        self._trace = ff.trace(stacks=capture_stack)
        self._recording = True
        self._names: dict[str, torch.nn.Module] = {}
        self._left = False

    def __enter__(self) -> ProvenanceTracker:
        self._drop_old_names()
        self._trace.start()
        self._set_recording(self._recording)
        return self

    def __exit__(self, *error: object) -> None:
        self._trace.stop()
        self._left = True  # the names go when the tracker is used again: diagnose() still needs them

    def enable(self) -> None:
        """Record again after ``disable()``."""
        self._set_recording(True)

    def disable(self) -> None:
        """Record nothing until ``enable()``; ops are still counted."""
        self._set_recording(False)

    def reset(self) -> None:
        """Forget all that was recorded; watched modules stay watched."""
        was_running = self._trace.running
        self._trace.stop()
        self._trace.start()
        if not was_running:
            self._trace.stop()

    def watch(self, model: torch.nn.Module, name: str = "model") -> ProvenanceTracker:
        """Tag ops with the module they ran in. A name that another model has becomes ``name_2``, ``name_3``, …"""
        self._drop_old_names()
        free, number = name, 1
        while free in self._names:
            if self._names[free] is model:
                return self
            number += 1
            free = f"{name}_{number}"
        self._trace.watch(model, free)
        self._names.update((f"{free}.{path}" if path else free, module) for path, module in model.named_modules())
        return self

    def unwatch(self) -> None:
        """Tag no further ops."""
        self._trace.unwatch()
        self._names.clear()

    def has_issue(self, tensor: torch.Tensor) -> bool:
        """Does it hold NaN or Inf now? Of any tensor, traced or not."""
        if not _can_be_bad(tensor):
            return False
        try:
            return self._trace.has_issue(tensor)
        except KeyError:
            values = tensor.detach()
            return bool(values.isnan().any() or values.isinf().any())

    def diagnose(self, tensor: torch.Tensor) -> DiagnosisReport:
        """Where the bad values of ``tensor`` began. KeyError when no traced op made it."""
        if not _can_be_bad(tensor):
            target = OpNode(-1, "tensor", tuple(tensor.shape), str(tensor.dtype), str(tensor.device))
            return DiagnosisReport(target, total_nodes_seen=self._trace.run().ops)
        return _report(self._trace.diagnose(tensor))

    def _set_recording(self, on: bool) -> None:
        self._recording = on
        self._trace.resume() if on else self._trace.pause()

    def _drop_old_names(self) -> None:
        if self._left:
            self._left = False
            self.unwatch()


def trace(capture_stack: bool = False, check_dtypes: Any = None, fast_shape_ops: bool = True) -> ProvenanceTracker:
    """A new tracker, for ``with sherlorch.trace() as tracker``."""
    return ProvenanceTracker(capture_stack, check_dtypes, fast_shape_ops)


def _can_be_bad(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _report(diagnosis: ff.Diagnosis) -> DiagnosisReport:
    counts = diagnosis.counts
    target = OpNode(
        seq=-1,  # of a finite tensor, the op that made it is not kept
        op_name=diagnosis.target,
        shape=diagnosis.shape,
        dtype=f"torch.{diagnosis.dtype}",
        device="cpu",
        is_finite=counts.total == 0,
        has_nan=counts.nan > 0,
        has_inf=counts.pos_inf + counts.neg_inf > 0,
    )
    report = DiagnosisReport(target, total_nodes_seen=diagnosis.ops)
    if diagnosis.note or (counts.total and not diagnosis.culprits):
        report.note = str(diagnosis)
    for origin in diagnosis.culprits:
        culprit = _culprit(origin)
        report.culprits.append(culprit)
        report.paths[culprit.seq] = _path(origin, culprit, target)
    return report


def _path(origin: ff.Origin, culprit: OpNode, target: OpNode) -> list[OpNode]:
    """From culprit to target. Gives the target, named after its tensor so far, the number and name of its op."""
    steps = origin.path if _was_there(origin) else origin.path[1:]
    nodes = [culprit, *map(_step, steps)]
    last = nodes[-1]
    target.seq, target.op_name, target.module_path = last.seq, last.op_name, last.module_path
    if len(nodes) > 1:
        nodes[-1] = target
    for parent, node in itertools.pairwise(nodes):
        node.parents.append(parent)
    return nodes


def _made_as_data(origin: ff.Origin) -> bool:
    """By an op with which a loader writes down what is missing; `origin.op` is the op that read it."""
    return origin.phase == "data" and bool(origin.path) and origin.path[0].op != origin.op


def _was_there(origin: ff.Origin) -> bool:
    """A tensor that was bad already: its path begins with the op that read it."""
    return origin.mechanism in _HELD_ALREADY and not _made_as_data(origin)


def _culprit(origin: ff.Origin) -> OpNode:
    name, place = _op_name(origin.outer_op or origin.op or origin.phase), origin.stack[:1]
    if _made_as_data(origin):
        name, place = _op_name(origin.path[0].op), []  # the line is that of the reader
    elif _was_there(origin):
        name = _NAMES.get(origin.phase, origin.phase)
    holds = origin.path[0].holds if origin.path and not origin.counts.total else ""
    counts = origin.counts
    return OpNode(
        seq=origin.op_number,
        op_name=name,
        shape=origin.shape,
        dtype=f"torch.{origin.dtype}" if origin.dtype else "",
        device=origin.device,
        is_finite=False,
        has_nan=counts.nan > 0 or "NaN" in holds,
        has_inf=counts.pos_inf + counts.neg_inf > 0 or "Inf" in holds,
        location=f"{place[0].file}:{place[0].line}" if place else None,
        module_path=origin.module,
        extra={"origin": origin},
    )


def _step(step: ff.PathStep) -> OpNode:
    return OpNode(
        seq=step.op_number,
        op_name=_op_name(step.outer_op or step.op),
        shape=step.shape,
        dtype=f"torch.{step.dtype}",
        is_finite=False,
        has_nan="NaN" in step.holds,
        has_inf="Inf" in step.holds,
        module_path=step.module,
    )


def _op_name(name: str) -> str:
    """``aten::_softmax`` and ``aten::native_layer_norm`` as the functions are called in Python."""
    return _NAMESPACE.sub("", name)


def _reason_lines(culprit: OpNode) -> list[str]:
    origin = culprit.extra.get("origin")
    if origin is None:
        return []
    values = [
        f"{operand.name} = {operand.value:g}" + (f" at {list(operand.index)}" if operand.index else "")
        for operand in origin.operands
        if operand.value is not None and not operand.is_scalar_argument
    ]
    facts = (
        ("Reason", f"{origin.because}  [{origin.mechanism}]" if origin.mechanism else origin.because),
        ("Backward of", _op_name(origin.forward_op or "")),
        ("Operands", ", ".join(values)),
        ("Advice", origin.advice),
    )
    return [f"    {label}: {text}" for label, text in facts if text]


# sherlorch.graph.OpNode and its like: the submodules are all this module.
graph = report = tracker = sys.modules[__name__]
