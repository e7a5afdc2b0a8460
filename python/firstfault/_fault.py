"""What a guard says of a faulty step."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from firstfault._core import Experiment, Hypothesis, Origin
    from firstfault._guard import Guard
    from firstfault._guarded import Guarded


class TrainingFault(RuntimeError):
    """A step that must not be made, or skips without end. Nothing that is not finite has been written.

    step: number of the step. kind: "loss", "gradient", "hyperparameter", "spike" or "result". reason: what was found, a
    sentence. names: the parameters. origin, hypotheses: where it began and why, as far as is known; asked for late, so
    that they also know of what the watch saw last.
    """

    def __init__(self, guard: Guard, fault: Fault, why: str) -> None:
        super().__init__(f"step {fault.step}: {fault.reason}{why}")
        self._guard, self._fault = guard, fault
        self.step, self.kind, self.reason, self.names = fault.step, fault.kind, fault.reason, list(fault.names)

    @property
    def origin(self) -> Origin | None:
        return self._guard._faults.origin_of(self._fault)

    @property
    def hypotheses(self) -> list[Hypothesis]:
        return self._guard.explain()

    def __str__(self) -> str:
        text = super().__str__()
        with contextlib.suppress(Exception):
            if (origin := self.origin) is not None:
                text += f"\n{origin}"
        return text

    def __reduce__(self):
        return RuntimeError, (str(self),)


class Fault:
    """One faulty step, while it is dealt with."""

    def __init__(self, step: int, watch_step: int, finding: Any, held: Guarded | None, *, written: bool) -> None:
        self.step = step
        self.watch_step = watch_step
        self.kind: str = finding.kind
        self.reason: str = finding.reason
        self.names: list[str] = list(finding.names)
        self.held = held
        self.written = written
        self.origins: list[Origin] = []  # of a replay
        self.exactness: Any = None
        self.experiments: list[Experiment] = []
        self.action = ""


class Finding:
    """As the C++ one, for what only Python sees."""

    def __init__(self, kind: str, reason: str, names: Iterable[str] = ()) -> None:
        self.kind, self.reason, self.names = kind, reason, list(names)
