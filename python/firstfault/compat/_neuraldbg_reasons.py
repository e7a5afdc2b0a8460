"""The hypotheses of compat.neuraldbg: which explanation of a run answers for which failure, and what led to what."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from firstfault.compat._neuraldbg_events import EventType, SemanticEvent, is_failure, kind_of, type_of

if TYPE_CHECKING:
    from collections.abc import Callable

    import firstfault as ff

_LONGEST_CHAIN = 16  # a deep model has as many effects as layers
_UNEXPLAINED = 0.5  # of the event's own confidence, where no rule knows why
_KIND_OF_CAUSE = {
    "vanishing_gradient": "vanishing_gradients",
    "zero_gradient_op": "vanishing_gradients",
    "exploding_gradient": "exploding_gradients",
    "dead_units": "dead_neurons",
    "saturation": "saturated_activations",
    "attention_collapse": "saturated_activations",
    "data_nonfinite": "data_anomaly",
    "data_invalid": "data_anomaly",
    "data_outlier": "data_anomaly",
    "label_outlier": "data_anomaly",
    "data_scale": "data_anomaly",
    "op_domain": "data_anomaly",
    "masked_softmax": "data_anomaly",
    "overflow": "data_anomaly",
}
_PREFIX = {
    EventType.GRADIENT_HEALTH_TRANSITION: "gradient",
    EventType.ACTIVATION_REGIME_SHIFT: "activation",
    EventType.OPTIMIZER_INSTABILITY: "optimizer",
    EventType.DATA_ANOMALY: "data",
}


@dataclass
class CausalHypothesis:
    """Why training failed. ``hypothesis`` is firstfault's own, with advice; None where no rule knows why."""

    description: str
    confidence: float
    evidence: list[SemanticEvent]
    causal_chain: list[str]
    hypothesis: ff.Hypothesis | None = field(default=None, compare=False)

    @property
    def cause(self) -> str:
        return self.hypothesis.cause if self.hypothesis else "unexplained"

    def __str__(self) -> str:
        return self.description


def first_failures(events: list[SemanticEvent]) -> dict[str, SemanticEvent]:
    first: dict[str, SemanticEvent] = {}
    for event in filter(is_failure, events):
        first.setdefault(f"{_PREFIX.get(event.event_type, event.event_type)}_{event.to_state}", event)
    return first


def pairs_of(failures: list[SemanticEvent], window: int) -> list[tuple[SemanticEvent, SemanticEvent]]:
    """Each with the earliest other one, of another layer or type, at most ``window`` steps before it."""
    pairs = []
    for i, event in enumerate(failures):
        for other in failures[:i]:
            is_other = (other.layer_name, other.event_type) != (event.layer_name, event.event_type)
            if is_other and event.step - other.step <= window:
                pairs.append((other, event))
                break
    return pairs


def coupling(trigger: SemanticEvent, consequence: SemanticEvent) -> dict[str, Any]:
    names = [f"{type_of(event)} in {event.layer_name}" for event in (trigger, consequence)]
    return {
        "trigger": names[0],
        "consequence": names[1],
        "event1": names[0],
        "event2": names[1],
        "step_difference": consequence.step - trigger.step,
        "confidence": min(getattr(event, "confidence", 1.0) for event in (trigger, consequence)),
    }


class Why(NamedTuple):
    """An explanation, the layer it names, and the program's own numbers of steps."""

    hypothesis: ff.Hypothesis
    layer: str
    number: Callable[[int], int]


def hypotheses_of(why: list[Why], events: list[SemanticEvent], failure_type: str | None) -> list[CausalHypothesis]:
    """Those that answer for a failure of this type: it is their own, or it is among their effects."""
    of_type = [event for event in events if is_failure(event) and _is_of(event, failure_type)]
    answers = [
        _converted(one, events, of_type)
        for one in why
        if of_type
        or failure_type is None
        or failure_type in _KIND_OF_CAUSE.get(one.hypothesis.cause, "optimizer_instability")
    ]
    return answers or [_unexplained(group) for group in _by_kind(of_type)]


def _kind_of_cause(cause: str) -> str:
    return _KIND_OF_CAUSE.get(cause, "optimizer_instability")


def _is_of(event: SemanticEvent, failure_type: str | None) -> bool:
    return failure_type is None or failure_type in kind_of(event) or failure_type in type_of(event)


def _by_kind(events: list[SemanticEvent]) -> list[list[SemanticEvent]]:
    groups: dict[str, list[SemanticEvent]] = {}
    for event in events:
        groups.setdefault(kind_of(event), []).append(event)
    return list(groups.values())


def _converted(one: Why, events: list[SemanticEvent], of_type: list[SemanticEvent]) -> CausalHypothesis:
    hypothesis, layer, number = one
    onset = number(hypothesis.step if hypothesis.onset_step is None else hypothesis.onset_step)
    before = [e for e in events if is_failure(e) and e.step < onset and e not in of_type]
    evidence = sorted([*before, *of_type], key=lambda event: event.step)
    cause = f"step {onset}: {hypothesis.cause} in {layer} (cause)"
    chain = [_link(event) for event in evidence if event.step < onset]
    chain += [cause, *(_link(event) + " (effect)" for event in evidence if event.step >= onset)]
    place = f"layer '{layer}', step {number(hypothesis.step)}" + (
        f", {hypothesis.file}:{hypothesis.line}" if hypothesis.file else ""
    )
    description = f"{hypothesis.description.rstrip('.')} ({place})."
    return CausalHypothesis(description, hypothesis.confidence, evidence, _shortened(chain), hypothesis)


def _unexplained(events: list[SemanticEvent]) -> CausalHypothesis:
    first = events[0]
    layers = {event.layer_name for event in events} - {first.layer_name}
    description = f"{kind_of(first)}: first in layer '{first.layer_name}' at step {first.step}"
    if layers:
        description += f", then in {len(layers)} more"
    confidence = _UNEXPLAINED * first.confidence
    return CausalHypothesis(description + ".", confidence, events, _shortened([_link(event) for event in events]))


def _link(event: SemanticEvent) -> str:
    what = "gradient " if event.event_type is EventType.GRADIENT_HEALTH_TRANSITION else ""
    return f"step {event.step}: {event.layer_name} {what}{event.to_state}"


def _shortened(chain: list[str]) -> list[str]:
    more = len(chain) - _LONGEST_CHAIN
    return chain if more <= 0 else [*chain[:_LONGEST_CHAIN], f"and {more} more"]
