"""The interface of the forward-hook NaN detector, answered by firstfault.trace(): the same names and printed texts.

``from firstfault.compat.nan_detector import NaNDetector`` takes the place of ``from nan_detector import NaNDetector``.
"""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from firstfault.compat import _shared_trace
from firstfault.compat._nan_calls import Bad, Call, Frame, tensors_in
from firstfault.compat._nan_plots import benchmark, plot_benchmark, plot_grad_norms, plot_loss_curve

if TYPE_CHECKING:
    from collections.abc import Iterable

    import torch

    import firstfault as ff

__all__ = [
    "GradEvent",
    "NaNDetector",
    "NaNEvent",
    "benchmark",
    "plot_benchmark",
    "plot_grad_norms",
    "plot_loss_curve",
    "train_with_nan_guard",
    "watch_for_nans",
]

_OVERHEAD_SAMPLES = 1000
_LOSS = "loss"  # the layer of an op that ran after the model


@dataclass
class NaNEvent:
    """The module in which a NaN or Inf was made: what it read and what it gave. Of a batch that held it: the model.

    Of a backward event "input" is what the op made, the gradient that goes on to the layers before, and "output" is
    the gradient it was given.
    """

    batch_idx: int
    layer_name: str  # "root" for the model itself, "loss" for what came after it
    module_type: str
    input_has_nan: bool
    output_has_nan: bool
    input_has_inf: bool
    output_has_inf: bool
    output_shape: tuple
    output_stats: dict[str, float] = field(default_factory=dict)  # of the finite values; {} when none
    is_backward: bool = False
    origin: ff.Origin | None = None  # the op; None where ops are not seen

    def __str__(self) -> str:
        held = (
            ("NaN in INPUT", self.input_has_nan),
            ("NaN in OUTPUT", self.output_has_nan),
            ("Inf in INPUT", self.input_has_inf),
            ("Inf in OUTPUT", self.output_has_inf),
        )
        stats = "  ".join(f"{key}={self._stat(key)}" for key in ("min", "max", "mean"))
        lines = [
            f"  NaN/Inf detected! [{'BACKWARD' if self.is_backward else 'FORWARD'} PASS]",
            f"  Batch     : {self.batch_idx}",
            f"  Layer     : {self.layer_name}",
            f"  Type      : {self.module_type}",
            f"  Flags     : {', '.join(flag for flag, is_so in held if is_so)}",
            f"  Out shape : {self.output_shape}",
            f"  Out stats : {stats}",
            *self._about_op(),
        ]
        return "\n".join(["", "=" * 60, *lines, "=" * 60])

    def _stat(self, key: str) -> str:
        if key in self.output_stats:
            return f"{self.output_stats[key]:.4f}"
        some_are_finite = self.origin is not None and self.origin.counts.total < math.prod(self.output_shape)
        return "n/a" if some_are_finite else "n/a (all non-finite)"

    def _about_op(self) -> list[str]:
        if self.origin is None:
            return []
        origin = self.origin
        place = f"  ({origin.file}:{origin.line})" if origin.file else ""
        facts = (("Op", f"{origin.op}{place}"), ("Reason", origin.because), ("Advice", origin.advice))
        return [f"  {label:<10}: {text}" for label, text in facts if text]


@dataclass
class GradEvent:
    """A gradient's norm was above the threshold, or was not finite."""

    batch_idx: int
    layer_name: str
    param_name: str
    grad_norm: float
    threshold: float

    def __str__(self) -> str:
        norm = f"{self.grad_norm:.2e}" if math.isfinite(self.grad_norm) else "inf"
        return (
            f"[GradNorm WARNING] batch={self.batch_idx}  layer={self.layer_name}.{self.param_name}  "
            f"norm={norm}  threshold={self.threshold:.1f}"
        )


class NaNDetector:
    """Names the module, and the op in it, that made the first NaN or Inf; ``with NaNDetector(model) as det``.

    stop_on_first: look no further after the first event.
    check_inputs: look at what modules read, too.
    check_backward: look at each gradient as it arrives in its parameter.
    grad_norm_warn: the norm from which check_grad_norms() warns; None: it does nothing.
    skip_types: modules of these types are not looked at.
    max_events: so many are kept.

    A bad value that the model leaves out again before its output is no event. Ops are seen unless a Trace or Watch of
    the program's own is running; then modules alone are compared. Any thread may run the model.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        stop_on_first: bool = True,
        check_inputs: bool = True,
        check_backward: bool = False,
        grad_norm_warn: float | None = 100.0,
        skip_types: tuple[type, ...] = (),
        max_events: int = 100,
        verbose: bool = True,
    ) -> None:
        self.model = model
        self.stop_on_first = stop_on_first
        self.check_inputs = check_inputs
        self.check_backward = check_backward
        self.grad_norm_warn = grad_norm_warn
        self.skip_types = tuple(skip_types)
        self.max_events = max_events
        self.verbose = verbose
        self._lock = threading.Lock()
        self._local = threading.local()
        self._handles: list = []
        self._traced: _shared_trace.Traced | None = None
        self._batch_idx = 0
        self._clear()

    def _clear(self) -> None:
        with self._lock:
            self.triggered = False
            self.event: NaNEvent | None = None
            self.all_events: list[NaNEvent] = []
            self.grad_events: list[GradEvent] = []
            self._told: set[int] = set()  # ops that have an event
            self._overhead: list[float] = []

    def attach(self) -> NaNDetector:
        """Begin; what was found before is forgotten. With ``FIRSTFAULT=0`` in the environment nothing is looked at."""
        self._remove()
        self._clear()
        self._traced = _shared_trace.enter(self.model)
        hooks = 0
        if self._traced.enabled:
            for name, module in self.model.named_modules():
                if not isinstance(module, self.skip_types):
                    hooks += self._hook(name, module)
        if self.verbose:
            print(f"[NaNDetector] Attached {hooks} hooks{' (+ backward)' if self.check_backward else ''}.")
        return self

    def detach(self) -> None:
        """End; what was found stays."""
        self._remove()
        if self.verbose and self._overhead:
            print(f"[NaNDetector] Detached. Avg overhead: {self.overhead_ms:.3f} ms/forward-pass")

    def _hook(self, name: str, module: torch.nn.Module) -> int:
        def before(_module, args, kwargs):
            self._before(name, module, (args, kwargs))

        def after(_module, _args, output):
            self._after(name, output)

        self._handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
        self._handles.append(module.register_forward_hook(after, always_call=True))
        if not self.check_backward:
            return 1
        for parameter in module.parameters(recurse=False):
            if parameter.requires_grad:

                def arrived(parameter):
                    self._look_at_gradient(name, parameter.grad)

                self._handles.append(parameter.register_post_accumulate_grad_hook(arrived))
        return 2

    def _remove(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []
        if self._traced is not None:
            _shared_trace.leave(self._traced)
            self._traced = None

    def __enter__(self) -> NaNDetector:
        return self.attach()

    def __exit__(self, *error: object) -> None:
        self.detach()

    def set_batch(self, idx: int) -> None:
        """The number of the batch that comes now."""
        with self._lock:
            self._batch_idx = idx

    @property
    def overhead_ms(self) -> float:
        """Mean time spent in the hooks of one forward pass; 0.0 when there was none."""
        with self._lock:
            return sum(self._overhead) / len(self._overhead) if self._overhead else 0.0

    def check_grad_norms(self) -> bool:
        """After backward: is a gradient above ``grad_norm_warn``, or not finite? The latter is an event as well."""
        if self.grad_norm_warn is None:
            return False
        warned = False
        for layer, module in self.model.named_modules():
            for name, parameter in module.named_parameters(recurse=False):
                if parameter.grad is None:
                    continue
                norm = _norm(parameter.grad)
                if math.isfinite(norm) and norm <= self.grad_norm_warn:
                    continue
                warned = True
                self._warn(GradEvent(self._batch_idx, layer or "root", name, norm, self.grad_norm_warn))
                if not math.isfinite(norm):
                    self._look_at_gradient(layer, parameter.grad)
        return warned

    def check_loss(self, loss: torch.Tensor) -> bool:
        """Is the loss not finite? That is an event, whether the gradients show it or not."""
        traced = self._traced
        bad = traced.look([loss]) if traced is not None and traced.enabled else Bad()
        if not bad or self._is_done():
            return bool(bad)
        origins = traced.origins_of([loss])
        if origins is None:
            self._record(NaNEvent(self._batch_idx, _LOSS, "", False, bad.nan, False, bad.inf, *bad.shape_and_stats()))
        for origin in origins or []:
            self._record(self._of_origin(origin))
        return True

    def _warn(self, event: GradEvent) -> None:
        with self._lock:
            self.grad_events.append(event)
            if self.verbose:
                print(event)

    # Hooks: state changes under the lock, tensors are looked at outside of it.

    def _is_done(self) -> bool:
        with self._lock:
            return (self.triggered and self.stop_on_first) or len(self.all_events) >= self.max_events

    def _before(self, name: str, module: torch.nn.Module, inputs: Any) -> None:
        import torch

        if torch.compiler.is_compiling() or self._traced is None or self._is_done():
            return
        began = time.perf_counter()
        call = getattr(self._local, "call", None) or Call(self._traced, self._batch_idx)
        self._local.call = call  # of this thread, until its outermost module has ended
        bad = self._traced.look(tensors_in(inputs)) if self.check_inputs else Bad()
        call.begin(Frame(name, type(module).__name__, bad))
        call.seconds += time.perf_counter() - began

    def _after(self, name: str, output: Any) -> None:
        import torch

        if torch.compiler.is_compiling():
            return
        call = getattr(self._local, "call", None)
        if call is None:
            return
        began = time.perf_counter()
        found = call.end(name, output)
        call.seconds += time.perf_counter() - began
        if found is None:
            return
        self._local.call = None
        with self._lock:
            if len(self._overhead) < _OVERHEAD_SAMPLES:
                self._overhead.append(call.seconds * 1000)
        for fields in found:
            self._record(NaNEvent(call.batch_idx, **fields))

    def _look_at_gradient(self, layer: str, gradient: torch.Tensor) -> None:
        traced = self._traced
        bad = Bad() if traced is None or not traced.enabled or self._is_done() else traced.look([gradient])
        if not bad:
            return
        origins = traced.origins_of(bad.tensors)
        if origins is None:
            return self._record_gradient_of(layer, bad)
        for origin in origins:
            self._record(self._of_origin(origin))

    def _record_gradient_of(self, layer: str, bad: Bad) -> None:
        """Where ops cannot be told: the first parameter of the batch."""
        with self._lock:
            known = any(event.batch_idx == self._batch_idx for event in self.all_events)
        if not known:
            kind, name = self._traced.kind_of(layer), layer or "root"
            self._record(NaNEvent(self._batch_idx, name, kind, *bad.as_input(), *bad.shape_and_stats(), True))

    def _of_origin(self, origin: ff.Origin) -> NaNEvent:
        """An op of the backward, or one after the model, that no module's output shows."""
        layer = self._traced.layer_of(origin)
        is_backward = origin.phase == "backward"
        nan, inf = origin.counts.nan > 0, origin.counts.pos_inf + origin.counts.neg_inf > 0
        flags = (nan, False, inf, False) if is_backward else (False, nan, False, inf)
        kind = origin.op if layer is None else self._traced.kind_of(layer)
        name = _LOSS if layer is None else layer or "root"
        return NaNEvent(self._batch_idx, name, kind, *flags, origin.shape, {}, is_backward, origin)

    def _record(self, event: NaNEvent) -> None:
        with self._lock:
            number = event.origin.op_number if event.origin else None
            is_told = number is not None and number in self._told
            if is_told or len(self.all_events) >= self.max_events or (self.triggered and self.stop_on_first):
                return
            if number is not None:
                self._told.add(number)
            self.all_events.append(event)
            if self.triggered:
                return
            self.triggered, self.event = True, event
            if self.verbose:
                print(event)


def _norm(gradient: torch.Tensor) -> float:
    """Summed in float64: finite gradients have a finite norm."""
    import torch

    values = gradient.detach()
    values = values.coalesce().values() if values.is_sparse else values
    return torch.linalg.vector_norm(values, dtype=torch.float64).item()


def watch_for_nans(model: torch.nn.Module, **kwargs: Any) -> NaNDetector:
    """``with watch_for_nans(model) as det``."""
    return NaNDetector(model, **kwargs)


def train_with_nan_guard(
    model: torch.nn.Module,
    loader: Iterable,
    criterion: Any,
    optimizer: torch.optim.Optimizer,
    max_batches: int | None = None,
    device: str = "cpu",
    **detector_kwargs: Any,
) -> tuple[list[float], NaNEvent | None]:
    """Train until the first NaN or Inf; its batch makes no step, so that the parameters stay as they were.

    Gives the losses, that batch's included, and the first event or None.
    """
    model.to(device).train()
    losses: list[float] = []
    with NaNDetector(model, **detector_kwargs) as detector:
        for batch_idx, (x, y) in enumerate(loader):
            if max_batches is not None and batch_idx >= max_batches:
                break
            detector.set_batch(batch_idx)
            optimizer.zero_grad()
            loss = criterion(model(x.to(device)), y.to(device))
            loss.backward()
            detector.check_loss(loss)
            detector.check_grad_norms()
            losses.append(loss.item())
            if detector.triggered:
                print(f"\n[NaNDetector] Halting training at batch {batch_idx}.")
                break
            optimizer.step()
        return losses, detector.event
