"""Snapshots in memory: all that a run goes back to, and which of them are kept."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from firstfault._clip import _module
from firstfault._state import OptimizerState, RandomNumbers, TrainFlags

if TYPE_CHECKING:
    from collections.abc import Iterator

    from firstfault._parts import Parts


class Snapshot:
    """All that a run goes back to."""

    def __init__(self, step: int, parts: Parts) -> None:
        self.step = step
        groups = [group for optimizer in parts.optimizers for group in optimizer.param_groups]
        optimized = {id(parameter) for group in groups for parameter in group["params"]}
        rest = [tensor for tensor in parts.tensors() if id(tensor) not in optimized]
        self._optimizers = [OptimizerState(optimizer) for optimizer in parts.optimizers]
        self._rest = _module().Copies(rest)
        self._random = RandomNumbers()
        self._flags = TrainFlags(parts.modules)
        self._generators = parts.generator_states()
        self._objects = [(one, copy.deepcopy(one.state_dict())) for one in parts.stateful]

    @property
    def bytes(self) -> int:
        return self._rest.bytes + sum(one.bytes for one in self._optimizers)

    def values_of(self, parameters: list[Any]) -> list[tuple]:
        """(parameter, its value then), of those that an optimizer holds."""
        wanted = {id(parameter) for parameter in parameters}
        return [pair for one in self._optimizers for pair in one.values() if id(pair[0]) in wanted]

    def restore(self) -> None:
        for one in self._optimizers:
            one.restore()
        self._rest.restore()
        self._flags.restore()
        for one, state in self._objects:
            one.load_state_dict(copy.deepcopy(state))
        for undo, state in self._generators:
            undo(state)
        self._random.restore()


class Snapshots:
    """In the order of their steps."""

    def __init__(self, parts: Parts, policy: Any, most_bytes: int) -> None:
        self._parts, self._policy, self._most_bytes = parts, policy, most_bytes
        self._all: list[Snapshot] = []

    def __iter__(self) -> Iterator[Snapshot]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def take(self, step: int) -> bool:
        """False: a single one takes too many bytes, and none is left."""
        self._all.append(Snapshot(step, self._parts))
        while True:
            held = [(one.step, one.bytes) for one in self._all]
            drop = _module().snapshot_to_drop(held, step, self._most_bytes)
            if drop is None:
                return bool(self._all)
            del self._all[drop]

    def usable(self) -> Snapshot | None:
        """The one to roll back to."""
        index = self._policy.snapshot_to_use(len(self._all))
        return None if index is None else self._all[index]

    def go_back(self, snapshot: Snapshot) -> None:
        """Those after it are of a run that has not been."""
        del self._all[self._all.index(snapshot) + 1 :]
        snapshot.restore()

    def oldest_before(self, step: int) -> Snapshot | None:
        return next((one for one in self._all if one.step < step), None)

    def newest_until(self, step: int) -> Snapshot | None:
        return next((one for one in reversed(self._all) if one.step <= step), None)

    def clear(self) -> None:
        self._all.clear()
