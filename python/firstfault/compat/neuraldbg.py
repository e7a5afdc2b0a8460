"""The interface of neuraldbg 1.3.2, answered by firstfault.watch(): the same names, events and states.

``from firstfault.compat.neuraldbg import NeuralDbg`` takes the place of ``from neuraldbg import NeuralDbg``.
"""

from __future__ import annotations

import gc
import json
import math
import re
from typing import TYPE_CHECKING, Any

import firstfault as ff
from firstfault.compat._neuraldbg_events import (
    ActivationHealth,
    DataHealth,
    EventType,
    GradientHealth,
    OptimizerHealth,
    SemanticEvent,
    events_of,
    is_failure,
    kind_of,
    layer_name,
    step_of,
    type_of,
)
from firstfault.compat._neuraldbg_reasons import (
    CausalHypothesis,
    Why,
    coupling,
    first_failures,
    hypotheses_of,
    pairs_of,
)

if TYPE_CHECKING:
    from types import TracebackType

    import torch

__all__ = [
    "ActivationHealth",
    "CausalHypothesis",
    "DataHealth",
    "EventType",
    "GradientHealth",
    "NeuralDbg",
    "OptimizerHealth",
    "SemanticEvent",
]
__version__ = "1.3.2"  # of the interface

_WINDOW = 5  # steps
_STEP = "neuraldbg.step"  # under which a row keeps the program's own number


class NeuralDbg:
    """A :class:`firstfault.Watch` under neuraldbg's names, for ``with NeuralDbg(model) as dbg``. One at a time.

    Steps are those of any optimizer that holds a parameter of the model. Where there is none, each new value of
    ``step`` ends one; where that is never set, each ``record_loss()``.
    threshold_vanishing, threshold_exploding: L2 norms of a gradient that count as such, beside its own history.
    """

    def __init__(
        self, model: torch.nn.Module, threshold_vanishing: float = 1e-6, threshold_exploding: float = 1e3
    ) -> None:
        self.model = model
        self.threshold_vanishing = threshold_vanishing
        self.threshold_exploding = threshold_exploding
        self.loss_history: list[float] = []
        self.is_monitoring = False
        self._watch: ff.Watch | None = None
        self._events: list[SemanticEvent] = []
        self._known: set[tuple] = set()
        self._step = 0
        self._step_is_set = False
        self._searched = False

    def __enter__(self) -> NeuralDbg:
        self._watch = ff.watch(
            self.model, threshold_vanishing=self.threshold_vanishing, threshold_exploding=self.threshold_exploding
        )
        self._known = set()
        self._step_is_set = self._searched = False
        self.is_monitoring = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._watch.close("complete" if error is None else "died")
        self.is_monitoring = False

    @property
    def watch(self) -> ff.Watch | None:
        """The watch behind it; None before ``with``."""
        return self._watch

    @property
    def step(self) -> int:
        """The program's own number of the step, which events will have."""
        return self._step

    @step.setter
    def step(self, value: int) -> None:
        if self._step_is_set and value != self._step:
            self._end_step()
        self._step = value
        if self.is_monitoring:
            self._step_is_set = True
            self._watch.log(**{_STEP: value})

    def step_iteration(self) -> None:
        """The next step."""
        self.step += 1

    def record_loss(self, loss_value: float) -> None:
        """The loss of this step; the one that ``backward()`` is called on is seen without it."""
        self.loss_history.append(float(loss_value))
        if not self.is_monitoring:
            return
        self._watch.loss(loss_value)
        if not self._step_is_set:
            self._end_step()

    def register_composite_hook(self, module: torch.nn.Module) -> None:
        """Nothing to do: every op is seen, in whatever module. TypeError where it is no module."""
        import torch

        if not isinstance(module, torch.nn.Module):
            raise TypeError(f"register_composite_hook expects nn.Module, got {type(module).__name__}")

    def _end_step(self) -> None:
        """Where no optimizer ends it."""
        if not self.is_monitoring or self._has_optimizer():
            return
        self._watch.step()

    def _has_optimizer(self) -> bool:
        """One that has made no step yet, while micro-batches add up, counts too."""
        import torch

        if not self._watch.optimizers and not self._searched:
            self._searched = True
            for one in gc.get_objects():
                if issubclass(type(one), torch.optim.Optimizer):
                    self._watch.follow(one)
        return bool(self._watch.optimizers)

    @property
    def events(self) -> list[SemanticEvent]:
        """The same list each time; what happened since is added to it."""
        if self._watch is not None:
            self._add(self._watch.run())
        return self._events

    def get_events(self) -> list[SemanticEvent]:
        """Changes of state, in order; empty while the run is healthy."""
        return self.events

    def _add(self, run: ff.Run) -> None:
        types = {module.path: module.type for module in run.setup.modules}
        number = step_of(run, _STEP)
        for event in events_of(run, types):
            if event.key not in self._known:
                self._known.add(event.key)
                event.step = number(event.step)
                self._events.append(event)

    @property
    def first_failure_step(self) -> dict[str, int]:
        """By "gradient_exploding", "activation_dead", …"""
        return {key: event.step for key, event in first_failures(self.events).items()}

    @property
    def first_failure_layer(self) -> dict[str, str]:
        """By "gradient_exploding", "activation_dead", …"""
        return {key: event.layer_name for key, event in first_failures(self.events).items()}

    def explain_failure(self, failure_type: str | None = None) -> list[CausalHypothesis]:
        """Why, best first; empty where nothing of the kind happened.

        failure_type: vanishing_gradients, exploding_gradients, dead_neurons, saturated_activations,
        optimizer_instability, data_anomaly, or the name of an event type; None: whatever happened.
        """
        if self._watch is None:
            return []
        run = self._watch.run()
        self._add(run)
        types = {module.path: module.type for module in run.setup.modules}
        number = step_of(run, _STEP)
        why = [Why(one, _layer_of(one, types), number) for one in ff.explain(run)]
        return hypotheses_of(why, self._events, failure_type)

    def get_causal_hypotheses(self) -> list[CausalHypothesis]:
        """All of them, best first."""
        return self.explain_failure()

    def get_root_causes(self) -> list[CausalHypothesis]:
        """The same: effects are evidence of a hypothesis, not hypotheses beside it."""
        return self.explain_failure()

    def trace_causal_chain(self, event_type: str) -> list[str]:
        """What came before, the cause and its effects, in order; of the best hypothesis for this kind of failure."""
        hypotheses = self.explain_failure(event_type)
        return hypotheses[0].causal_chain if hypotheses else []

    def detect_coupled_failures(self, window: int = _WINDOW) -> list[dict[str, Any]]:
        """Each failure with the earliest one of another layer or kind at most ``window`` steps before it."""
        failures = [event for event in self.events if is_failure(event)]
        return [coupling(*pair) for pair in pairs_of(failures, window)]

    def export_mermaid_causal_graph(self) -> str:
        """Failures as nodes, couplings as edges, and the hypotheses above the events they rest on."""
        failures = [event for event in self.events if is_failure(event)]
        number = {id(event): i for i, event in enumerate(failures)}
        lines = ["graph TD"]
        for i, event in enumerate(failures):
            lines.append(f'    E{i}["{_label(f"{type_of(event)} in {event.layer_name} (Step {event.step})")}"]')
        for trigger, consequence in pairs_of(failures, _WINDOW):
            lines.append(f"    E{number[id(trigger)]} -->|coupled| E{number[id(consequence)]}")
        for i, hypothesis in enumerate(self.explain_failure()):
            lines.append(f'    H{i}["{_label(f"{hypothesis.cause} ({hypothesis.confidence:.2f})")}"]')
            if hypothesis.evidence and id(hypothesis.evidence[0]) in number:
                lines.append(f"    H{i} -->|explains| E{number[id(hypothesis.evidence[0])]}")
        return "\n".join(lines)

    def export_aquarium_package(self, package_path: str) -> str:
        """Events, hypotheses, couplings and losses as a JSON file; gives its path."""
        package = {
            "events": [_event_as_json(event) for event in self.events],
            "hypotheses": [
                {"description": one.description, "confidence": one.confidence, "causal_chain": one.causal_chain}
                for one in self.get_causal_hypotheses()
            ],
            "couplings": self.detect_coupled_failures(),
            "first_failure_layer": self.first_failure_layer,
            "first_failure_step": self.first_failure_step,
            "loss_history": [_number(loss) for loss in self.loss_history],
        }
        with open(package_path, "w", encoding="utf-8") as file:
            json.dump(package, file, indent=2, allow_nan=False)
        return package_path


def _layer_of(hypothesis: ff.Hypothesis, types: dict[str, str]) -> str:
    module = hypothesis.module or (hypothesis.param or "").rpartition(".")[0]
    return "optimizer" if not module and hypothesis.phase == "optimizer" else layer_name(module, types)


def _label(text: str) -> str:
    """Names come from the model: what Mermaid could take for its own syntax is written by its number."""
    return re.sub(r"[^\w .,()-]", lambda match: f"#{ord(match[0])};", text)


def _number(value: Any) -> Any:
    """JSON has no NaN and no infinity: they become strings."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _event_as_json(event: SemanticEvent) -> dict[str, Any]:
    simple = (str, int, float, bool, type(None))
    return {
        "type": type_of(event),
        "kind": kind_of(event),
        "layer": event.layer_name,
        "step": event.step,
        "from": str(event.from_state),
        "to": str(event.to_state),
        "confidence": getattr(event, "confidence", 1.0),
        "metadata": {key: _number(value) for key, value in event.metadata.items() if isinstance(value, simple)},
    }
