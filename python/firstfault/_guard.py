"""Guard for Python: what needs Python objects (hooks on optimizers, closures, the state of functions)."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any

from firstfault._clip import _module
from firstfault._experiments import Laboratory
from firstfault._faults import Faults
from firstfault._optimizer_hooks import OptimizerHooks
from firstfault._parts import Parts
from firstfault._prove import Windows
from firstfault._replay import Began, Habits, handed_out_again
from firstfault._snapshots import Snapshots
from firstfault._step_function import StepFunction
from firstfault._watch import Watch, _named

if TYPE_CHECKING:
    import types
    from collections.abc import Callable, Iterable, Iterator, Mapping

    import torch

    from firstfault._core import GuardAction, Hypothesis, Run
    from firstfault._fault import Fault
    from firstfault._replay import Program, Replayer

_POLICIES = ("raise", "skip", "rollback", "warn")
_LOOK_EVERY = 64  # steps; whether parameters or buffers have joined


class Guard:
    """Keeps faulty steps out of the parameters: refuses, skips or rolls back, and writes down what it did.

    model, optimizer: as for :func:`firstfault.watch`; None for the optimizer is not possible here.
    on_fault: "raise" (TrainingFault), "skip", "rollback" or "warn" (the step is made all the same).
    max_norm, norm_type, adaptive, clip_value, clip_factor: how gradients are clipped right before the optimizer takes
        them: by global norm; by :class:`AdaptiveClip`, with max_norm as its ceiling; by value; by unit. One of them.
    max_consecutive_skips: so many skips in a row; then ``after_skips``: "raise" or "rollback".
    max_rollbacks: so many without making good what the first one lost; then TrainingFault.
    spike: a robust z; a gradient norm so far above the usual one is a faulty step as well. None: it is not.
    undo: "snapshot": what an optimizer's own arithmetic breaks is undone from the last snapshot, and the steps since
        are lost; "step": from a copy per step.
    snapshot_every, snapshot_bytes: how often, and how much memory they may take; older ones are kept further apart.
    scheduler, scaler: rolled back too. Steps that the scaler leaves out are its own business.
    calls_step: whether the function given to ``step()`` calls ``optimizer.step()`` itself. None: it is looked at.
    accumulate: where it does not: calls of ``step()`` per optimizer step.
    replays: unchanged replays of a faulty step whose origin the watch has not seen; 0: none, and no experiments.
    experiments, max_replays, max_seconds: whether a faulty step is run again with one thing changed each, to prove its
        cause (docs/replay.md), and the budget for one step. The first faulty step is looked into, and later ones that
        began elsewhere, at most four in a run.
    watch: a running :class:`Watch`; else one is made from run_file, level and the thresholds, and closed with it.
    """

    def __init__(
        self,
        model: torch.nn.Module | Iterable[torch.nn.Module] | Mapping[str, torch.nn.Module],
        optimizer: torch.optim.Optimizer | Iterable[torch.optim.Optimizer],
        *,
        on_fault: str = "raise",
        max_norm: float | None = None,
        norm_type: float = 2.0,
        adaptive: bool | float = False,
        clip_value: float | None = None,
        clip_factor: float | None = None,
        max_consecutive_skips: int = 10,
        after_skips: str = "raise",
        max_rollbacks: int = 3,
        spike: float | None = None,
        undo: str = "snapshot",
        snapshot_every: int = 100,
        snapshot_bytes: int = 2**30,
        scheduler: Any = None,
        scaler: Any = None,
        calls_step: bool | None = None,
        accumulate: int = 1,
        replays: int = 2,
        experiments: bool = True,
        max_replays: int = 64,
        max_seconds: float = 30.0,
        watch: Watch | None = None,
        run_file: str | os.PathLike | bool | None = None,
        level: str | None = None,
        threshold_vanishing: float = 1e-6,
        threshold_exploding: float = 1e3,
    ) -> None:
        _check_choices(on_fault, after_skips, undo)
        if sum((bool(adaptive) or max_norm is not None, clip_value is not None, clip_factor is not None)) > 1:
            raise ValueError("firstfault.guard: clip by norm, by value or by unit, not by several")
        if snapshot_every < 1 or accumulate < 1:
            raise ValueError("firstfault.guard: snapshot_every and accumulate take numbers from 1 on")
        models = _named(model, "model")
        optimizers = [one for _, one in _named(optimizer, "optimizer")]
        _check_optimizers(optimizers)
        self._own_watch = watch is None
        self.watch = watch or Watch(
            model,
            optimizer,
            run_file=run_file,
            level=level,
            threshold_vanishing=threshold_vanishing,
            threshold_exploding=threshold_exploding,
        )
        #: Called with a :class:`Replayer` for each faulty step of ``step()``, before the policy.
        self.on_replay: Callable[[Replayer], None] | None = None
        self.actions: list[GuardAction] = []
        live = _module()
        self._process = os.getpid()
        self._on_fault, self._snapshot_every = on_fault, int(snapshot_every)
        self._step = 0
        self._watched_before = 0  # steps of the watch, when the guard began
        self._active = self._in_step = False
        self._began: Began | None = None
        self._replay: Program | None = None
        self._again: Fault | None = None  # a batch is to be handed out once more for it
        self._habits = Habits()
        stateful = [one for one in (*_listed(scheduler), scaler) if one is not None]
        self._parts = Parts(models, optimizers, stateful, [self, self.watch])
        policy = live.Policy(on_fault, int(max_consecutive_skips), after_skips, int(max_rollbacks))
        self._snapshots = Snapshots(self._parts, policy, int(snapshot_bytes))
        self._function = StepFunction(self, scaler, calls_step, int(accumulate))
        clip = _clip_arguments(max_norm, adaptive, clip_value, clip_factor)
        clips = any(clip[i] for i in (0, 1, 3, 4))
        make_check = functools.partial(live.StepCheck, *clip, float(norm_type), float(spike or 0))
        self._hooks = OptimizerHooks(self, make_check, clips=clips, undo=undo)
        looked_into = live.LookedInto(bool(experiments), int(replays))
        laboratory = Laboratory(self, looked_into, int(max_replays), float(max_seconds))
        self._faults = Faults(self, laboratory, policy, int(replays))

    # -- life cycle

    def start(self) -> Guard:
        """Begin; ``guard()`` and ``with`` do it."""
        if self._own_watch:
            self.watch.start()
        self._parts.renew_buffers()
        self._watched_before = self.watch._live.steps()
        self._active = True
        return self

    def close(self, state: str = "complete") -> None:
        """Take the hooks away and close the guard's own watch."""
        if os.getpid() != self._process:
            return
        self._active = False
        self._hooks.remove()
        self._snapshots.clear()
        self._began = None
        if self._own_watch:
            self.watch.close(state)

    def __enter__(self) -> Guard:
        return self if self._active else self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: types.TracebackType | None,
    ) -> None:
        self.close("complete" if error is None else "died")

    @property
    def running(self) -> bool:
        return self._active and os.getpid() == self._process

    # -- the loop

    def step(self, train_step: Callable[..., Any], *batch: Any) -> Any:
        """Make one step: call ``train_step(*batch)`` and, unless it does so itself, ``optimizer.step()``.

        ``train_step``: zero_grad, forward, backward; returns the loss (or a tuple or dict that begins with it). It may
        be called again, so what it does beyond that is done again: numbers, containers and generators that it holds are
        put back, files and loaders are not. Gives what it returned.
        """
        if not self.running or self._in_step:
            return train_step(*batch)
        self._begin([train_step], batch)
        self._in_step, self._function.steps_seen = True, 0
        try:
            result = self._function.call(train_step, batch)
        except BaseException:
            self._hooks.show_all()
            self._began = None
            raise
        finally:
            self._in_step = False
        fault = self._faults.take()
        if fault is None:
            self._end_step()
        else:
            self._faults.handle(fault, lambda again: self._function.call(train_step, again))
        return result

    def batches(self, loader: Iterable[Any]) -> Iterator[Any]:
        """Hand out the batches of a loader, for a loop whose body stays as it is.

        Where a step is refused and the watch has not seen why, its batch is handed out once more, with the same random
        numbers, buffers and gradients, only to find the origin: the optimizer does not write then either. What the loop
        does beside is done twice for it.
        """
        for batch in loader:
            if self.running:
                self._begin([], (batch,))
            yield batch
            fault, self._again = self._again, None
            if fault is None:
                continue
            if self._began is not None and self.running:
                yield from handed_out_again(self, self._began, fault)
            self._faults.apply(fault)

    # -- of each step

    def _begin(self, roots: list[Any], batch: tuple) -> None:
        self._hooks.show_all()
        self._faults.now = self._again = None
        self._hooks.order()
        self._first_snapshot()
        self._began = Began(self, roots, batch)

    def _first_snapshot(self) -> None:
        if self._step == 0 and not self._snapshots and self._began is None:
            self._take_snapshot()

    def _end_step(self) -> None:
        """Of a step in which nothing was wrong."""
        if self._began is not None:
            self._began.end_gradients()
            if self._began.intact():
                self._faults.laboratory.remember(self._began.tensors)
        self._faults.healthy()
        self._next_step()
        if self._step % self._snapshot_every == 0 and self._hooks.all_is_finite():
            self._take_snapshot()

    def _end_unchanged_loop(self) -> None:
        """The end of a step that no ``step()`` is around."""
        fault = self._faults.take()
        if fault is not None and self._began is not None and self._faults.wants_origin(fault):
            self._again = fault  # batches() hands it out once more
            return
        if fault is None:
            self._end_step()
        else:
            self._faults.apply(fault)
        self._parts.renew_buffers()

    def _next_step(self) -> None:
        self._began = None
        self._hooks.forget_copies()
        self._step += 1
        if self._step % _LOOK_EVERY == 0:
            self._parts.forget()

    def _take_snapshot(self) -> None:
        if not self._snapshots.take(self._step):
            self._faults.warn("a single snapshot is larger than snapshot_bytes; there is nothing to roll back to")

    # -- answers

    def run(self) -> Run:
        """What the watch recorded so far."""
        return self.watch.run()

    def explain(self) -> list[Hypothesis]:
        """Why steps were faulty, best first."""
        return self.watch.explain()

    def prove(self, train_step: Callable[..., Any], batches: Callable[[int], Any]) -> list[Hypothesis]:
        """Test what needs whole windows of steps, as a divergence or dead units do: minutes rather than moments.

        The steps from a snapshot before the onset to just after the fault, or where no step was faulty to the last one
        that was made, are made again, unchanged and with one thing changed each; with a tenth of the learning rate
        over ten times as many steps. ``batches(step)`` gives the batch of a step, a tuple for several arguments, from
        step 0 on and also beyond the last step that was made; it may raise IndexError at the end. Gives the hypotheses
        as they stand then. The program is as it was afterwards, but for what cannot be put back: files, loaders.
        """
        recorded = self.watch.run()
        known = self.explain()
        if not known or not self.running or self._in_step or known[0].standing in ("confirmed", "not_separable"):
            return known
        step = known[0].step
        made = Windows(self, train_step, batches).prove([one for one in known if one.step == step], recorded)
        self.watch._live.learned(step, [], made)
        return self.explain()

    @property
    def steps(self) -> int:
        """That were attempted."""
        return self._step

    def _repr_html_(self) -> str:
        return self.watch._repr_html_()

    def __repr__(self) -> str:
        counts: dict[str, int] = {}
        for one in self.actions:
            counts[one.action] = counts.get(one.action, 0) + 1
        done = ", ".join(f"{count} {name}" for name, count in counts.items()) or "no action"
        return f"<firstfault.Guard on_fault={self._on_fault!r}, {self._step} steps, {done}>"


def _listed(given: Any) -> list[Any]:
    return list(given) if isinstance(given, (list, tuple)) else [given]


def _clip_arguments(max_norm: Any, adaptive: bool | float, clip_value: Any, clip_factor: Any) -> tuple:
    """As GuardClip has them."""
    z = float(adaptive) if adaptive and adaptive is not True else 3.0
    return float(max_norm or 0), bool(adaptive), z, float(clip_value or 0), float(clip_factor or 0)


def _check_choices(on_fault: str, after_skips: str, undo: str) -> None:
    if on_fault not in _POLICIES:
        raise ValueError(f"firstfault.guard: on_fault is {on_fault!r}; it takes {', '.join(map(repr, _POLICIES))}")
    if after_skips not in ("raise", "rollback"):
        raise ValueError(f"firstfault.guard: after_skips is {after_skips!r}; it takes 'raise' or 'rollback'")
    if undo not in ("snapshot", "step"):
        raise ValueError(f"firstfault.guard: undo is {undo!r}; it takes 'snapshot' or 'step'")


def _check_optimizers(optimizers: list[Any]) -> None:
    if not optimizers:
        raise TypeError("firstfault.guard: it needs the optimizer whose steps it guards")
    for optimizer in optimizers:
        if not hasattr(optimizer, "register_step_pre_hook"):
            raise TypeError(
                f"firstfault.guard: {type(optimizer).__name__} is no torch.optim.Optimizer: its step has no hooks, so "
                "that nothing can be kept out of it; derive it from torch.optim.Optimizer"
            )


def guard(model: Any, optimizer: Any, **options: Any) -> Guard:
    """A new :class:`Guard` that is running, to be used as ``with firstfault.guard(model, optimizer) as g``.

    For the options see :class:`Guard`.
    """
    return Guard(model, optimizer, **options).start()
