"""Guard for Python: what needs Python objects (hooks on optimizers, closures, the state of functions)."""

from __future__ import annotations

import contextlib
import inspect
import math
import os
import types
import warnings
from typing import TYPE_CHECKING, Any

from firstfault._clip import _module
from firstfault._experiments import Laboratory
from firstfault._fault import Fault, Finding, TrainingFault
from firstfault._guarded import Guarded
from firstfault._prove import Windows
from firstfault._replay import Began, Program, Replayer, in_eager, tensor_of
from firstfault._state import (
    OptimizerState,
    Parts,
    Snapshot,
)
from firstfault._trace import _path_of
from firstfault._watch import Watch, _named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    import torch

    from firstfault._core import GuardAction, Hypothesis, Origin, Run

_POLICIES = ("raise", "skip", "rollback", "warn")
_MOST_SNAPSHOTS = 16
_MOST_SEARCHES = 16  # faulty steps of a run that are replayed for their origin alone
_MOST_CLIPS = 4096  # kept one by one; all are counted in the facts of the run
_NAN = float("nan")


def _calls_step(function: Any) -> bool:
    """Whether a function's own code calls something named ``step``, as far as can be read."""
    while hasattr(function, "func") and hasattr(function, "keywords"):
        function = function.func
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    if code is None:
        code = getattr(type(function).__call__, "__code__", None)
    todo, seen = [code], set()
    while todo:
        one = todo.pop()
        if not isinstance(one, types.CodeType) or one in seen:
            continue
        seen.add(one)
        if "step" in one.co_names:
            return True
        todo.extend(one.co_consts)
    return False


def _needs_closure(optimizer: torch.optim.Optimizer) -> bool:
    try:
        parameter = inspect.signature(type(optimizer).step).parameters.get("closure")
    except (TypeError, ValueError):
        return False
    return parameter is not None and parameter.default is inspect.Parameter.empty


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
        live = _module()
        self._process = os.getpid()
        self._on_fault = on_fault
        self._policy = live.Policy(on_fault, int(max_consecutive_skips), after_skips, int(max_rollbacks))
        self._undo = undo
        self._snapshot_every, self._snapshot_bytes = int(snapshot_every), int(snapshot_bytes)
        self._scaler, self._accumulate, self._calls_step = scaler, int(accumulate), calls_step
        self._replays = int(replays)
        stateful = [one for one in (*_listed(scheduler), scaler) if one is not None]
        self._parts = Parts([one for _, one in models], optimizers, stateful)
        names = {id(p): _path_of(name, path) for name, one in models for path, p in one.named_parameters()}
        self._names = names
        arguments = (
            float(max_norm or 0),
            bool(adaptive),
            float(adaptive) if adaptive and adaptive is not True else 3.0,
            float(clip_value or 0),
            float(clip_factor or 0),
            float(norm_type),
            float(spike or 0),
        )
        self._clips = any(arguments[i] for i in (0, 1, 3, 4))
        self._held = {id(one): Guarded(one, i, live.StepCheck(*arguments), names) for i, one in enumerate(optimizers)}
        self._step = 0
        self._active = False
        self._began: Began | None = None
        self._in_step = False
        self._fault: Fault | None = None
        self._again: Fault | None = None  # a batch is to be handed out once more for it
        self._replay: Program | None = None
        self._loss: float | None = None
        self._last_loss: torch.Tensor | None = None
        self._bad_loss = False
        self._steps_seen = 0  # of optimizers, in this call of step()
        self._pending = 0
        self._gradient_habit, self._learnt, self._writes_batch, self._copy_first = "learning", 0, False, False
        self._self_stepping: dict[int, bool] = {}
        self._buffers: Any = None
        self._buffer_slots = self._parts.buffers()
        self._known_of: Any = None
        self._known_ids: set[int] = set()
        self._parameters: tuple[list, list] | None = None
        self._snapshots: list[Snapshot] = []
        self._said: set[str] = set()
        self._handles: list = []
        self._own_hooks: dict[int, tuple] = {}
        self._repair_before_step: Callable[[Guarded], None] | None = None  # of an experiment
        self._laboratory = Laboratory(self, max_replays, max_seconds) if experiments and replays else None
        #: Called with a :class:`Replayer` for each faulty step of ``step()``, before the policy.
        self.on_replay: Callable[[Replayer], None] | None = None
        self._clips_kept = self._searches = 0
        self.actions: list[GuardAction] = []
        for optimizer_ in optimizers:
            self._hook(optimizer_)

    # -- life cycle

    def start(self) -> Guard:
        """Begin; ``guard()`` and ``with`` do it."""
        if self._own_watch:
            self.watch.start()
        self._renewed_buffers()
        self._active = True
        return self

    def close(self, state: str = "complete") -> None:
        """Take the hooks away and close the guard's own watch."""
        if os.getpid() != self._process:
            return
        self._active = False
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
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

    def _hook(self, optimizer: torch.optim.Optimizer) -> None:
        before = optimizer.register_step_pre_hook(self._before)
        first = optimizer.register_step_post_hook(self._after)
        last = optimizer.register_step_post_hook(self._settle)
        self._handles += [before, first, last]
        self._own_hooks[id(optimizer)] = (before.id, first.id, last.id)
        self._order(optimizer)

    def _order(self, optimizer: torch.optim.Optimizer) -> None:
        """Be the last to look before a step, the first and the last after it. Not from inside a hook."""
        before, first, last = self._own_hooks[id(optimizer)]
        pre, post = optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks
        if next(reversed(pre)) != before:
            pre.move_to_end(before)
        if next(iter(post)) != first:
            post.move_to_end(first, last=False)
        if next(reversed(post)) != last:
            post.move_to_end(last)

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
        self._in_step, self._steps_seen = True, 0
        try:
            result = self._call(train_step, batch)
        except BaseException:
            self._show_all()
            self._began = None
            raise
        finally:
            self._in_step = False
        fault, self._fault = self._fault, None
        if fault is None:
            self._end_step()
        else:
            self._handle(fault, lambda again: self._call(train_step, again))
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
            if fault is not None:
                yield from self._once_more(fault)

    def _once_more(self, fault: Fault) -> Iterator[Any]:
        began = self._began
        if began is None or not self.running:
            return self._apply(fault)
        from torch.utils._pytree import tree_unflatten

        program = Program(self, began, lambda _: None, set())
        gradients = [parameter.grad for parameter in began.parameters]
        slots = self._parts.buffers()
        buffers = _module().Copies(slots.tensors)
        state = began.state()
        program.restore()
        began.buffers.restore()
        began.random.restore()
        for parameter in began.parameters:
            parameter.grad = None
        leaves = list(began.leaves)
        for place, tensor in zip(began.where, _module().Copies(began.tensors).copies, strict=True):
            leaves[place] = tensor
        del state
        self._replay, stance = program, in_eager()
        origins: list[Origin] = []
        self.watch._live.begin_aside()
        try:
            with stance:
                yield tree_unflatten(leaves, began.spec)[0]
        finally:
            origins = self.watch._live.end_aside(False).origins
            self._replay = None
            self._show_all()
            for parameter, gradient in zip(began.parameters, gradients, strict=True):
                parameter.grad = gradient
            slots.restore()
            buffers.restore()
            program.resume()
            program.after[3].restore()
        fault.origins = origins
        self._apply(fault)

    def _call(self, train_step: Callable[..., Any], batch: tuple) -> Any:
        optimizers = self._parts.optimizers
        calls = self._steps_itself(train_step)
        if not calls and len(optimizers) == 1 and _needs_closure(optimizers[0]):
            result: list[Any] = []

            def closure() -> Any:
                result.append(train_step(*batch))
                return tensor_of(result[-1])

            optimizers[0].step(closure)
            if self._replay is None:
                self._last_loss = tensor_of(result[0]) if result else None
            return result[0] if result else None
        before = self._steps_seen
        result_ = train_step(*batch)
        loss = tensor_of(result_)
        self._loss = None if loss is None else float(loss.detach())
        if self._replay is None:
            self._last_loss = loss
        if self._steps_seen > before and not calls:
            self._self_stepping[_key(train_step)] = calls = True
        if not calls:
            self._make_step()
        elif self._loss is not None and not math.isfinite(self._loss) and self._replay is None:
            self._late_loss()
        self._loss = None
        return result_

    def _steps_itself(self, train_step: Callable[..., Any]) -> bool:
        if self._calls_step is not None:
            return self._calls_step
        key = _key(train_step)
        if key not in self._self_stepping:
            if len(self._self_stepping) > 64:
                self._self_stepping.clear()
            self._self_stepping[key] = _calls_step(train_step)
        return self._self_stepping[key]

    def _make_step(self) -> None:
        """The optimizers' steps, for a function that leaves them to the guard."""
        if self._replay is None:
            self._pending += 1
            if self._loss is not None and not math.isfinite(self._loss):
                self._bad_loss = True
            if self._pending < self._accumulate:
                return
            self._pending = 0
        for optimizer in self._parts.optimizers:
            if self._scaler is not None:
                self._scaler.step(optimizer)
            else:
                optimizer.step()
        if self._scaler is not None:
            self._scaler.update()
        self._bad_loss = False  # where the scaler left the steps out, nobody has asked for it

    def _late_loss(self) -> None:
        """The loss came back not finite from a function that made the step itself."""
        if self._fault is not None:
            return
        reason = f"the loss is {self._loss}"
        if self._steps_seen == 0:  # of a micro-batch, or the scaler left the step out
            self._bad_loss = self._scaler is None
            return
        held = next(iter(self._held.values()))
        self._note(Finding("loss", reason), held, written=True)

    # -- around an optimizer's step

    def _before(self, optimizer: torch.optim.Optimizer, args: tuple, kwargs: dict) -> tuple | None:
        held = self._held.get(id(optimizer))
        if held is None or not self.running:
            return None
        held.refresh()
        self._steps_seen += 1
        closure = kwargs.get("closure") or (args[1] if len(args) > 1 else None)
        if self._replay is not None:
            self._before_in_replay(held)
            return None if not callable(closure) else self._with_closure(held, closure, args, kwargs)
        held.copy = None
        if self._steps_seen > 1 and self._in_step:
            self._copy_first = True  # from now on; this time what was written before is not known
            if self._began is not None and not self._began.optimizer_copies:
                self._began.unsaved = True
        if self._undo == "step" or self._copy_first or (callable(closure) and not held.trusted):
            held.copy = OptimizerState(optimizer)
        if callable(closure):
            return self._with_closure(held, closure, args, kwargs)
        faulty = self._look(held)
        if not faulty and not self._snapshots and self._began is None and self._step == 0:
            self._take_snapshot()
        return None

    def _look(self, held: Guarded, loss: float | None = None) -> bool:
        """Check what the optimizer is about to use, and clip; True: it must not."""
        if self._left_to_scaler(held.optimizer):
            return False
        if loss is None:
            loss = self._known_loss()
        finding, clip = held.check.before(held.parameters, held.names, held.hyperparameters(), loss, held.lr())
        if finding:
            self._note(finding, held, written=False)
            if self._on_fault == "warn":
                return False
            if held.copy is None:
                held.copy = OptimizerState(held.optimizer)
            held.hide()
            self.watch._live.refused()
            return True
        if clip is not None and self._clips:
            action = self.watch._live.measured(clip)
            if action is not None and self._clips_kept < _MOST_CLIPS:
                self._clips_kept += 1
                self.actions.append(action)
        return False

    def _left_to_scaler(self, optimizer: torch.optim.Optimizer) -> bool:
        """A fused optimizer skips by itself where the scaler found Inf; its gradients are still scaled."""
        import torch

        found = getattr(optimizer, "found_inf", None)
        if found is None:
            return False
        if float(found) > 0:
            return True
        scale = getattr(optimizer, "grad_scale", None)
        if scale is not None and self._clips:
            gradients = [p.grad for p in self._held[id(optimizer)].parameters if p.grad is not None]
            with torch.no_grad():
                torch._foreach_mul_(gradients, 1.0 / float(scale))
            optimizer.grad_scale = torch.ones_like(scale)
        return False

    def _known_loss(self) -> float:
        """0 where it is not known."""
        bad, self._bad_loss = self._bad_loss, False
        if bad:
            return _NAN
        if self._loss is not None:
            return self._loss
        if self._scaler is not None:  # what backward() was called on is scaled
            return 0.0
        pending = self.watch._live.pending_loss()
        return 0.0 if pending is None else pending

    def _with_closure(self, held: Guarded, closure: Callable, args: tuple, kwargs: dict) -> tuple:
        held.evaluations = 0

        def checked(*given: Any, **named: Any) -> Any:
            if held.hidden is not None:
                held.hidden = None  # of an evaluation before: this one makes its own
            result = closure(*given, **named)
            held.evaluations += 1
            if self._replay is not None:
                self._look_in_replay(held)
                return result
            loss = tensor_of(result)
            value = 0.0 if loss is None else float(loss.detach())
            if self._fault is None or self._fault.held is not held:
                self._look(held, value)
                if self._fault is not None and held.evaluations > 1:
                    self._fault.written = True
            elif self._on_fault != "warn":
                held.hide()
            return result

        if "closure" in kwargs:
            return args, {**kwargs, "closure": checked}
        return (args[0], checked, *args[2:]), kwargs

    def _after(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        held = self._held.get(id(optimizer))
        if held is None or not self.running:
            return
        if held.hidden is not None:
            held.show()
            if held.copy is not None:
                held.copy.restore()
            return
        if self._replay is not None:
            return
        if self._began is not None:
            if held.copy is not None:
                self._began.optimizer_copies.append(held.copy)
            else:
                self._began.unsaved = True
        if self._fault is not None and self._fault.held is held:
            return
        held.state.look()
        finding = _module().check_after(held.parameters + held.state.tensors, held.result_names())
        if finding:
            self._note(finding, held, written=True)

    def _settle(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        """After everybody's hooks: where no ``step()`` is around the optimizer's, a fault is dealt with here."""
        if not self.running or self._in_step or self._replay is not None or id(optimizer) not in self._held:
            return
        fault, self._fault = self._fault, None
        if fault is None:
            self._end_step()
        elif self._began is not None and self._replays and not fault.written and self._op_of(fault) is None:
            self._again = fault  # batches() hands it out once more
        else:
            self._apply(fault)

    def _note(self, finding: Any, held: Guarded, *, written: bool) -> None:
        if self._fault is None:
            # The watch counts each optimizer's step; where several are made in one call, it began with the first.
            step = self.watch._live.steps() if self._began is None else self._began.watch_step
            self._fault = Fault(self._step, step, finding, held, written=written)

    def _show_all(self) -> None:
        for held in self._held.values():
            if held.hidden is not None:
                held.show()

    # -- in replays

    def _before_in_replay(self, held: Guarded) -> None:
        if held.number in self._replay.writes:
            if self._repair_before_step is not None:
                self._repair_before_step(held)
            return
        held.copy = None if held.trusted else OptimizerState(held.optimizer)
        held.hide()

    def _look_in_replay(self, held: Guarded) -> None:
        gradients = [p.grad for p in held.parameters if p.grad is not None]
        if held.number not in self._replay.writes or _module().check_after(gradients, []):
            held.hide()

    # -- faults

    def _handle(self, fault: Fault, call: Callable[[tuple], Any]) -> None:
        try:
            looks = self._laboratory is not None and self._laboratory.wants(fault)
            seeks = not looks and self._replays > 0 and self._searches < _MOST_SEARCHES
            unknown = seeks and self._op_of(fault) is None
            self._searches += unknown
            replayer = self.replayer(fault, call) if looks or unknown or self.on_replay is not None else None
            if replayer is not None:
                with contextlib.closing(replayer):
                    if looks:
                        self._laboratory.look_into(fault, replayer)
                    if unknown:
                        fault.exactness = replayer.verify(self._replays)
                        fault.origins = [origin for origin in fault.exactness.origins if origin.sink]
                        self.watch._live.learned(fault.watch_step, fault.origins, [])
                    if self.on_replay is not None:
                        self.on_replay(replayer)
                exactness = fault.exactness
                if exactness is not None and exactness.deterministic and not exactness.exact:
                    self._warn(f"this step cannot be run again exactly, so that no cause is proved: {exactness.why}")
        except Exception as error:  # the guard's own failure is no reason to end the training
            self._warn(f"step {fault.step} could not be replayed: {error}")
        self._apply(fault)

    def replayer(self, fault: Fault, call: Callable[[tuple], Any]) -> Replayer | None:
        """None where the state before the step is not to be had: the optimizer wrote, and there is no copy."""
        began = self._began
        if began is None or began.unsaved or self._on_fault == "warn":
            return None
        live = _module()
        held = fault.held
        write = fault.written or fault.kind == "hyperparameter" or bool(began.optimizer_copies)
        if write and held.copy is not None and all(one is not held.copy for one in began.optimizer_copies):
            began.optimizer_copies.append(held.copy)
        state = began.state()
        tensors = [tensor for one in began.optimizer_copies for tensor in one._tensors]
        state.written = live.Copies(tensors)
        writes = {self._held[id(one.optimizer)].number for one in began.optimizer_copies}
        if not fault.written and fault.kind != "hyperparameter":
            writes.discard(held.number)
        step = state.result_now(self._last_loss, fault.written)
        program = Program(self, began, call, writes)
        bound = live.Replayer(program, state, self.watch._live, write)
        return Replayer(self, fault, bound, step, began)

    def _apply(self, fault: Fault) -> None:
        held = fault.held
        copy = held.copy if held is not None else None
        usable = self._usable_snapshot()
        fault.action = self._policy.faulty(
            fault.written, copy is not None, usable is not None, 0 if usable is None else self._step - usable.step
        )
        lost = 0
        if fault.action == "warn":
            self._warn(f"step {fault.step}: {fault.reason}; the step was made all the same")
        elif fault.action == "rollback":
            lost = self._roll_back(usable)
        elif fault.written:
            if copy is not None:
                copy.restore()
            elif usable is not None:
                lost = self._roll_back(usable)
        if fault.action in ("skip", "stop") and not lost:
            for one in self._began.optimizer_copies if self._began is not None else ():
                one.restore()  # of the optimizers that had written before
            if self._buffers is not None:
                self._buffer_slots.restore()
                self._buffers.restore()
        undone = ""
        if fault.written and fault.action != "warn":
            undone = "snapshot" if copy is None or fault.action == "rollback" else "copy"
        went_back = fault.action == "rollback" or (undone == "snapshot" and usable is not None)
        step = fault.watch_step if self.watch.running else fault.step
        snapshot = usable.step if went_back else -1
        action = step, fault.action, fault.kind, fault.reason, undone, snapshot, lost
        self.actions.append(self.watch._live.acted(action))
        if held is not None:
            held.copy = None
        self._began = None
        self._step += 1
        if fault.action == "stop":
            raise TrainingFault(self, fault, self._why_stopped(fault))

    def _why_stopped(self, fault: Fault) -> str:
        if self._on_fault == "raise":
            return ""
        if self._policy.skips_in_a_row:
            return f", after {self._policy.skips_in_a_row} steps in a row were skipped"
        if self._policy.rollbacks:
            return f", after {self._policy.rollbacks} rollbacks that led to the same place"
        return ", and there is no snapshot to roll back to" if fault.written or self._on_fault == "rollback" else ""

    def _warn(self, text: str) -> None:
        if len(self._said) < 10 and text not in self._said:
            self._said.add(text)
            warnings.warn(f"firstfault.guard: {text}", RuntimeWarning, stacklevel=4)

    def _origin_of(self, fault: Fault) -> Origin | None:
        if fault.origins:
            return fault.origins[0]
        for origin in self.watch.run().origins:
            if origin.sink and origin.step >= fault.watch_step:
                return origin
        return None

    def _op_of(self, fault: Fault) -> Origin | None:
        """The origin; None also where only a compiled region is known, whose ops a replay in eager shows."""
        origin = self._origin_of(fault)
        return None if origin is not None and origin.mechanism == "compiled_region" else origin

    # -- snapshots

    def _usable_snapshot(self) -> Snapshot | None:
        if not self._snapshots:
            return None
        # One that was gone back to already and led to the same place is given up where there is an older one.
        if self._policy.rollbacks and len(self._snapshots) > 1:
            return self._snapshots[-2]
        return self._snapshots[-1]

    def _roll_back(self, snapshot: Snapshot) -> int:
        del self._snapshots[self._snapshots.index(snapshot) + 1 :]
        snapshot.restore()
        self.watch._live.rolled_back()
        return self._step - snapshot.step

    def _take_snapshot(self) -> None:
        self._snapshots.append(Snapshot(self._step, self._parts))
        while len(self._snapshots) > 1 and (
            len(self._snapshots) > _MOST_SNAPSHOTS or sum(one.bytes for one in self._snapshots) > self._snapshot_bytes
        ):
            steps = [one.step for one in self._snapshots]
            del self._snapshots[_module().snapshot_to_drop(steps, self._step)]
        if self._snapshots[0].bytes > self._snapshot_bytes:
            self._snapshots.clear()
            self._warn("a single snapshot is larger than snapshot_bytes; there is nothing to roll back to")

    # -- steps

    def _begin(self, roots: list[Any], batch: tuple) -> None:
        self._show_all()
        self._fault = self._again = None
        for optimizer in self._parts.optimizers:
            self._order(optimizer)
        if not self._snapshots and self._step == 0:
            self._take_snapshot()
        self._began = Began(self, roots, batch)

    def _end_step(self) -> None:
        """Of a step in which nothing was wrong."""
        if self._began is not None:
            self._began.end_gradients()
            if self._laboratory is not None and self._began.intact():
                self._laboratory.remember(self._began.tensors)
            self._began = None
        self._policy.healthy()
        self._step += 1
        for held in self._held.values():
            held.copy = None
        if self._step % self._snapshot_every == 0:
            self._take_snapshot()
        if not self._in_step and self._buffers is not None:
            self._renewed_buffers()

    def _roots(self) -> list[Any]:
        """Where state may hide beside the step function: hooks, scheduler, scaler."""
        roots: list[Any] = list(self._parts.stateful)
        for optimizer in self._parts.optimizers:
            own = self._own_hooks[id(optimizer)]
            tables = optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks
            for table in tables:
                roots.extend(
                    hook
                    for key, hook in table.items()
                    if key not in own and getattr(hook, "__self__", None) is not self.watch
                )
        return roots

    def _known(self, batch: Iterable[torch.Tensor] = ()) -> set[int]:
        """What is saved in another way, or must be left alone."""
        parameters = self._all_parameters()[0]
        if self._known_of is not parameters:
            self._known_of = parameters
            self._known_ids = {id(self), id(self.watch)}
            self._known_ids.update(map(id, (*self._parts.optimizers, *self._parts.modules, *parameters)))
        known = set(self._known_ids)
        known.update(map(id, self._buffer_slots.tensors))
        known.update(map(id, batch))
        return known

    def _all_parameters(self) -> tuple[list[torch.Tensor], list[str]]:
        """Of models and optimizers, each once."""
        if self._parameters is None or self._step % 64 == 0:
            seen: dict[int, torch.Tensor] = {}
            for module in self._parts.modules:
                for parameter in module._parameters.values():
                    if parameter is not None:
                        seen.setdefault(id(parameter), parameter)
            for held in self._held.values():
                held.refresh()
                for parameter in held.parameters:
                    seen.setdefault(id(parameter), parameter)
            names = [self._names.get(key, f"parameter {i}") for i, key in enumerate(seen)]
            self._parameters = list(seen.values()), names
        return self._parameters

    def _renewed_buffers(self) -> Any:
        """Copies of the buffers as they are now."""
        if self._buffers is None or self._step % 64 == 0 or not self._buffer_slots.hold():
            self._buffer_slots = self._parts.buffers()
            self._buffers = _module().Copies(self._buffer_slots.tensors)
        else:
            self._buffers.renew()
        return self._buffers

    # -- answers

    def run(self) -> Run:
        """What the watch recorded so far."""
        return self.watch.run()

    def explain(self) -> list[Hypothesis]:
        """Why steps were faulty, best first."""
        return self.watch.explain()

    def prove(self, train_step: Callable[..., Any], batches: Callable[[int], Any]) -> list[Hypothesis]:
        """Test what needs whole windows of steps, as the causes of a divergence do: minutes rather than moments.

        The steps from the newest snapshot before the onset to just after the fault are made again, unchanged and with
        one thing changed each; with a tenth of the learning rate over ten times as many steps. ``batches(step)`` gives
        the batch of a step, a tuple for several arguments, from step 0 on and also beyond the last step that was made;
        it may raise IndexError at the end. Gives the hypotheses as they stand then. The program is as it was
        afterwards, but for what cannot be put back: files, loaders.
        """
        known = self.explain()
        if not known or not self.running or self._in_step or known[0].standing in ("confirmed", "not_separable"):
            return known
        first = known[0].step if known[0].onset_step is None else known[0].onset_step
        made = Windows(self, train_step, batches).prove(known[0].step, first)
        self.watch._live.learned(known[0].step, [], made)
        return self.explain()

    @property
    def steps(self) -> int:
        """That were attempted."""
        return self._step

    def __repr__(self) -> str:
        counts: dict[str, int] = {}
        for one in self.actions:
            counts[one.action] = counts.get(one.action, 0) + 1
        done = ", ".join(f"{count} {name}" for name, count in counts.items()) or "no action"
        return f"<firstfault.Guard on_fault={self._on_fault!r}, {self._step} steps, {done}>"


def _key(function: Any) -> int:
    return id(getattr(getattr(function, "__func__", function), "__code__", type(function)))


def _listed(given: Any) -> list[Any]:
    return list(given) if isinstance(given, (list, tuple)) else [given]


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
