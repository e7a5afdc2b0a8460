"""The events of compat.neuraldbg: what a watched run recorded, in neuraldbg's types and states."""

from __future__ import annotations

import bisect
import uuid
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import firstfault as ff


class EventType(Enum):
    GRADIENT_HEALTH_TRANSITION = "gradient_health_transition"
    ACTIVATION_REGIME_SHIFT = "activation_regime_shift"
    OPTIMIZER_INSTABILITY = "optimizer_instability"
    DATA_ANOMALY = "data_anomaly"


class GradientHealth(Enum):
    HEALTHY = "healthy"
    VANISHING = "vanishing"
    EXPLODING = "exploding"  # a norm that is not finite as well
    SATURATED = "saturated"


class ActivationHealth(Enum):
    NORMAL = "normal"
    SATURATED = "saturated"
    DEAD = "dead"
    ANOMALOUS = "anomalous"


class OptimizerHealth(Enum):
    STABLE = "stable"
    LOSS_PLATEAU = "loss_plateau"
    LOSS_SPIKE = "loss_spike"
    DIVERGING = "diverging"


class DataHealth(Enum):
    NORMAL = "normal"
    NAN_DETECTED = "nan_detected"
    INF_DETECTED = "inf_detected"
    DISTRIBUTION_SHIFT = "distribution_shift"


@dataclass
class SemanticEvent:
    """A change of state. ``metadata["sites"]`` has the names of what was measured."""

    event_type: EventType
    layer_name: str  # "Linear_fc1", "root"; "optimizer" and "target" where no layer owns it
    step: int
    from_state: Any
    to_state: Any
    confidence: float
    metadata: dict[str, Any]
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    key: tuple = field(default=(), repr=False, compare=False)  # the same for the same event of the same run


_ANY_FAILURE = {"healthy": "stable", "unstable": "diverging", "exploding": "diverging", "non_finite": "diverging"}
_GRADIENT = {"healthy": "healthy", "vanishing": "vanishing", "exploding": "exploding", "non_finite": "exploding"}
_ACTIVATION = {
    "healthy": "normal",
    "saturated": "saturated",
    "dead": "dead",
    "exploding": "anomalous",
    "non_finite": "anomalous",
}
_BATCH = {"healthy": "normal", "non_finite": "nan_detected", "spiking": "distribution_shift"}

_STATES: dict[str, tuple[EventType, dict[str, str]]] = {  # by the role of the site
    "gradient": (EventType.GRADIENT_HEALTH_TRANSITION, _GRADIENT),
    "activation": (EventType.ACTIVATION_REGIME_SHIFT, _ACTIVATION),
    "loss": (EventType.OPTIMIZER_INSTABILITY, _ANY_FAILURE | {"spiking": "loss_spike"}),
    "parameter": (EventType.OPTIMIZER_INSTABILITY, _ANY_FAILURE),
    "optimizer": (EventType.OPTIMIZER_INSTABILITY, _ANY_FAILURE),
    "input": (EventType.DATA_ANOMALY, _BATCH),
    "target": (EventType.DATA_ANOMALY, _BATCH),
}
_FINE = {"healthy", "normal", "stable"}
_KINDS = {
    "vanishing": "vanishing_gradients",
    "exploding": "exploding_gradients",
    "dead": "dead_neurons",
    "saturated": "saturated_activations",
    "anomalous": "data_anomaly",
}
_USUAL_STATE = {
    EventType.GRADIENT_HEALTH_TRANSITION: "healthy",
    EventType.OPTIMIZER_INSTABILITY: "stable",
    EventType.DATA_ANOMALY: "normal",
}


def is_failure(event: SemanticEvent) -> bool:
    """Not the return to health."""
    return event.to_state not in _FINE


def type_of(event: SemanticEvent) -> str:
    """Programs add events of their own to the list, whose type may be a string."""
    return getattr(event.event_type, "value", str(event.event_type))


def kind_of(event: SemanticEvent) -> str:
    """The failure type that explain_failure() takes."""
    return _KINDS.get(event.to_state, type_of(event))


def layer_name(module: str | None, types: Mapping[str, str]) -> str:
    """``Linear_fc1`` for ``model.fc1``, ``root`` for the model itself and for what no module owns."""
    if module is None or "." not in module:
        return "root"
    return f"{types.get(module, 'Module')}_{module.partition('.')[2]}"


def step_of(run: ff.Run, name: str) -> Callable[[int], int]:
    """From the number of a row to the program's own, which rows keep under ``name``; the same where none does."""
    numbered = [(row.step, int(row.logged[name])) for row in run.rows if name in row.logged]
    rows = [row for row, _ in numbered]

    def number(step: int) -> int:
        if not numbered:
            return step
        row, own = numbered[max(bisect.bisect_right(rows, step) - 1, 0)]
        return max(own + step - row, 0)

    return number


def events_of(run: ff.Run, types: Mapping[str, str]) -> list[SemanticEvent]:
    """In order of time; within a step what made the first bad value comes first. One for each layer and state."""
    found: dict[tuple, SemanticEvent] = {}
    for event in sorted([*_from_origins(run, types), *_from_transitions(run, types)], key=lambda event: event.step):
        event.key = (event.step, event.event_type, event.layer_name, event.to_state)
        known = found.setdefault(event.key, event)
        if known is not event:
            known.confidence = max(known.confidence, event.confidence)
            known.metadata["sites"] += event.metadata["sites"]
    return list(found.values())


def _from_origins(run: ff.Run, types: Mapping[str, str]) -> Iterator[SemanticEvent]:
    """Of the ops that made a value which did harm; of each step the first, the others are its like."""
    told = set()
    for origin in run.origins:
        if origin.absorbed or origin.swallowed or origin.step in told:
            continue
        told.add(origin.step)
        kind, to = EventType.DATA_ANOMALY, "nan_detected" if origin.counts.nan else "inf_detected"
        layer = layer_name(origin.module, types)
        if origin.phase == "backward":
            kind, to = EventType.GRADIENT_HEALTH_TRANSITION, "exploding"
        elif origin.phase == "optimizer":
            kind, to, layer = EventType.OPTIMIZER_INSTABILITY, "diverging", "optimizer"
        yield SemanticEvent(kind, layer, origin.step, _USUAL_STATE[kind], to, 1.0, _about(origin))


def _about(origin: ff.Origin) -> dict[str, Any]:
    return {
        "sites": [origin.param or origin.module or origin.op],
        "op": origin.op,
        "forward_op": origin.forward_op,
        "phase": origin.phase,
        "nan_count": origin.counts.nan,
        "inf_count": origin.counts.pos_inf + origin.counts.neg_inf,
        "sample": origin.sample,
        "file": origin.file,
        "line": origin.line,
        "mechanism": origin.mechanism,
        "because": origin.because,
        "advice": origin.advice,
        "origin": origin,
    }


def _from_transitions(run: ff.Run, types: Mapping[str, str]) -> Iterator[SemanticEvent]:
    for one in run.transitions:
        kind, states = _STATES[one.role]
        before, after = states.get(one.from_state), states.get(one.to_state)
        if before is None or after is None or before == after:
            continue
        layer = {"loss": "optimizer", "optimizer": "optimizer", "target": "target"}.get(one.role)
        layer = layer or layer_name(one.module, types)
        metadata = {"sites": [one.name], "transition_type": f"{before}_to_{after}", **_numbers(one, run)}
        yield SemanticEvent(kind, layer, one.step, before, after, one.confidence, metadata)


def _numbers(one: ff.Transition, run: ff.Run) -> dict[str, Any]:
    """The quantity that decided, under the name that neuraldbg has for it."""
    if one.to_state == "non_finite":
        return {"nonfinite": int(one.value), **({"current_norm": float("nan")} if one.role == "gradient" else {})}
    if one.role == "gradient":
        return {"prev_norm": one.baseline, "current_norm": one.value}
    if one.role == "loss":
        recent = [row.loss for row in run.rows if row.step <= one.step and row.loss is not None]
        return {"current_loss": one.value, "recent_losses": recent[-10:]}
    what = {"saturated": "saturation", "dead": "dead"}.get(one.to_state, "value")
    return {f"prev_{what}": one.baseline, f"current_{what}": one.value}
