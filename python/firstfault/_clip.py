"""Clipping for Python: drop-ins for torch.nn.utils around firstfault._live, which has the arithmetic."""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING

from firstfault._trace import _load_live

if TYPE_CHECKING:
    from collections.abc import Iterable

    import torch

    from firstfault._live import AdaptiveClip as _LiveAdaptiveClip
    from firstfault._live import ClipRecord

    Parameters = torch.Tensor | Iterable[torch.Tensor] | Iterable[tuple[str, torch.Tensor]]

_live = None
_NAN = float("nan")
_last = threading.local()


def _module():
    global _live
    if _live is None:
        _live = _load_live()
    return _live


def _listed(parameters: Parameters) -> tuple[list[torch.Tensor], list[str] | None]:
    """The tensors; and their names, where pairs of name and tensor were given, as ``named_parameters()`` does."""
    if hasattr(parameters, "grad"):
        return [parameters], None
    listed = list(parameters)
    if listed and type(listed[0]) is tuple:
        return [tensor for _, tensor in listed], [str(name) for name, _ in listed]
    return listed, None


def _names_in_modules(parameters: list[torch.Tensor]) -> list[str] | None:
    """As the living modules call them: looked up only once something has gone wrong."""
    from firstfault._watch import _owners

    try:
        known = {id(p): name for module in _owners(parameters) for name, p in module.named_parameters()}
    except Exception:  # a module of the program's that cannot be looked at: its parameters keep their numbers
        return None
    return [known.get(id(p), f"parameter {i}") for i, p in enumerate(parameters)] if known else None


def _with_names(call, parameters: list[torch.Tensor], names: list[str] | None):
    """``call(names)``; where it refuses and no names were given, once more with those that can be found, for its message."""
    try:
        return call(names)
    except RuntimeError:
        found = None if names else _names_in_modules(parameters)
        if found is None:
            raise
    return call(found)  # refuses again: nothing was changed


def last_clip() -> ClipRecord | None:
    """What the last clip on this thread did, or None: ``norm``, ``coefficient``, ``largest``, ``nonfinite`` and more."""
    return getattr(_last, "record", None)


def clip_grad_norm_(
    parameters: Parameters,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
    *,
    on_nonfinite: str = "error",
    lr: float | None = None,
) -> torch.Tensor:
    """Scale the gradients to a total norm of at most ``max_norm``; give the norm before.

    As ``torch.nn.utils.clip_grad_norm_``, except that the norm of finite gradients is finite (in a wider dtype where
    theirs cannot hold it), that gradients are only written where they are scaled, and that a NaN or Inf does not spread.

    parameters: as for torch; or pairs of name and tensor, as from ``named_parameters()``.
    norm_type: above 0; ``float("inf")`` for the largest magnitude.
    error_if_nonfinite, foreach: taken for compatibility; what happens is up to ``on_nonfinite`` and the device.
    on_nonfinite: what a gradient that is not finite does. "error": RuntimeError with the names, nothing is changed;
        "skip": nothing is changed, the norm is that of the others; "zero": these are set to 0, the others clipped.
    lr: learning rate, for ``last_clip().step``.

    DTensors are clipped by their local shards and the norm over all ranks, which all must call this together.
    """
    tensors, names = _listed(parameters)
    live = _module()
    if error_if_nonfinite:
        on_nonfinite = "error"
    max_norm, norm_type, rate = float(max_norm), float(norm_type), _NAN if lr is None else float(lr)

    def call(names):
        return live.clip_norm(tensors, max_norm, norm_type, on_nonfinite, rate, names)

    result = _with_names(call, tensors, names)
    if result is None:
        result = _clip_distributed(tensors, names, max_norm, norm_type, on_nonfinite, rate)
    norm, _last.record = result
    return norm


def clip_grad_value_(
    parameters: Parameters, clip_value: float, foreach: bool | None = None, *, on_nonfinite: str = "error"
) -> None:
    """Bound each element of the gradients to ``[-clip_value, clip_value]``, as torch does.

    It turns the gradient, by the ``angle`` in ``last_clip()``. foreach: taken for compatibility. on_nonfinite: as for
    :func:`clip_grad_norm_`.
    """
    tensors, names = _listed(parameters)
    live, value = _module(), float(clip_value)
    local = _local(tensors)
    _last.record = _with_names(lambda names: live.clip_value(local, value, on_nonfinite, names), tensors, names)


def clip_grad_units_(
    parameters: Parameters, clip_factor: float = 0.01, eps: float = 1e-3, *, on_nonfinite: str = "error"
) -> None:
    """Adaptive gradient clipping: each unit's gradient to at most ``clip_factor`` of the norm of its weights.

    A unit is a slice along dim 0; a tensor of at most one dim is one unit. Weights count for at least ``eps``. The last
    layer is best left out (Brock et al., 2021).
    """
    tensors, names = _listed(parameters)
    live, factor, least = _module(), float(clip_factor), float(eps)
    local = _local(tensors, whole_units=True)
    _last.record = _with_names(lambda names: live.clip_units(local, factor, least, on_nonfinite, names), tensors, names)


class AdaptiveClip:
    """Clips a gradient norm that is unusual for this run: ``clip = AdaptiveClip(); …; clip(model.parameters())``.

    The limit is ``z`` robust deviations above the median of the newest ``window`` norms, on a log scale, and never above
    ``max_norm``, which alone holds for the first 16 steps. A norm that is not finite is never remembered; of one that is
    clipped the limit is.
    """

    def __init__(self, z: float = 3.0, window: int = 64, max_norm: float = math.inf) -> None:
        self._live: _LiveAdaptiveClip = _module().AdaptiveClip(float(z), int(window), float(max_norm))

    def __call__(self, parameters: Parameters, *, on_nonfinite: str = "error", lr: float | None = None) -> torch.Tensor:
        """Clip; give the norm before."""
        tensors, names = _listed(parameters)
        rate = _NAN if lr is None else float(lr)
        if any(_split_gradient(p) is not None for p in tensors):
            norm, record = _clip_distributed(tensors, names, self._live.limit, 2.0, on_nonfinite, rate)
            if not record.skipped:
                self._live.remember(record.norm)
        else:
            norm, record = _with_names(
                lambda names: self._live.clip(tensors, on_nonfinite, rate, names), tensors, names
            )
        _last.record = record
        return norm

    @property
    def limit(self) -> float:
        """What the next norm is clipped to."""
        return self._live.limit

    def state_dict(self) -> dict[str, list[float]]:
        return {"history": list(self._live.history)}

    def load_state_dict(self, state: dict[str, list[float]]) -> None:
        self._live.restore([float(norm) for norm in state["history"]])

    def __repr__(self) -> str:
        return f"<firstfault.AdaptiveClip limit {self.limit:.6g}, {len(self._live.history)} norms>"


def _split_gradient(parameter: torch.Tensor) -> torch.Tensor | None:
    """The gradient, where it is a DTensor."""
    gradient = parameter.grad
    return gradient if gradient is not None and hasattr(gradient, "to_local") else None


def _shards(gradient: torch.Tensor) -> tuple[object, tuple[int, ...]]:
    """The mesh, and the dims of it that the gradient is split over."""
    if any(placement.is_partial() for placement in gradient.placements):
        raise RuntimeError(
            "firstfault.clip: a DTensor's gradient is Partial: its ranks hold terms of a sum that was not taken; "
            "redistribute() it before it is clipped"
        )
    return gradient.device_mesh, tuple(d for d, p in enumerate(gradient.placements) if p.is_shard())


def _local(parameters: list[torch.Tensor], *, whole_units: bool = False) -> list[torch.Tensor]:
    """Parameters as the C++ side can take them: a DTensor stands for its local shard, with its gradient's."""
    result = list(parameters)
    for i, parameter in enumerate(parameters):
        if (gradient := _split_gradient(parameter)) is None:
            continue
        _shards(gradient)
        if whole_units and any(p.is_shard() and p.dim != 0 for p in gradient.placements):
            raise RuntimeError(
                "firstfault.clip_grad_units_: a DTensor that is not split along dim 0 has no whole units"
            )
        result[i] = parameter.to_local().detach()
        result[i].grad = gradient.to_local()
    return result


def _clip_distributed(
    parameters: list[torch.Tensor],
    names: list[str] | None,
    max_norm: float,
    norm_type: float,
    on_nonfinite: str,
    lr: float,
) -> tuple[torch.Tensor, ClipRecord]:
    """By the norm over all ranks: each adds the powers of its shards, once per way of being split."""
    gradients, groups = [], []
    for parameter in parameters:
        gradient = parameter.grad
        wrapped = _split_gradient(parameter)
        groups.append(_shards(wrapped) if wrapped is not None else (None, ()))
        gradients.append(wrapped.to_local() if wrapped is not None else gradient)

    def measure(names):
        return _module().GradientNorm(gradients, norm_type, on_nonfinite, lr, names)

    measured = measure(names)
    total = _total_of_ranks(measured.norms(), groups, norm_type, on_nonfinite)
    return _with_names(
        lambda found: (measured if found is names else measure(found)).clip(max_norm, total), parameters, names
    )


def _total_of_ranks(norms: list[float], groups: list[tuple], p: float, on_nonfinite: str) -> float:
    import torch
    import torch.distributed as dist

    largest = math.isinf(p)
    sums: dict[tuple, list[float]] = {}
    for norm, group in zip(norms, groups):
        entry = sums.setdefault(group, [0.0, 0.0])
        if not math.isfinite(norm):
            entry[1] = 1.0
        else:
            entry[0] = max(entry[0], norm) if largest else entry[0] + norm**p
    for (mesh, dims), entry in sums.items():
        for dim in dims:
            both = torch.tensor(entry, dtype=torch.float64, device=mesh.device_type)
            dist.all_reduce(both[:1], dist.ReduceOp.MAX if largest else dist.ReduceOp.SUM, group=mesh.get_group(dim))
            dist.all_reduce(both[1:], dist.ReduceOp.MAX, group=mesh.get_group(dim))
            entry[:] = both.tolist()
    if on_nonfinite != "zero" and any(bad for _, bad in sums.values()):
        return _NAN
    values = [value for value, _ in sums.values()]
    return max(values, default=0.0) if largest else sum(values) ** (1 / p)
