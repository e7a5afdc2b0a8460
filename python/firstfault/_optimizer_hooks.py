"""Around an optimizer's step: what it is about to use is looked at, what it must not see is hidden, and put back."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Any

from firstfault._clip import _module
from firstfault._guarded import Guarded
from firstfault._replay import tensor_of
from firstfault._state import OptimizerState

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from firstfault._core import GuardAction
    from firstfault._guard import Guard


class OptimizerHooks:
    """One for all optimizers of a guard."""

    def __init__(self, guard: Guard, make_check: Callable[[], Any], *, clips: bool, undo: str) -> None:
        """``make_check``: gives what looks at the gradients of an optimizer and clips them."""
        self.guard = guard
        self._make_check = make_check
        self._in_window: dict[int, Any] | None = None  # what clips while a window of steps is run again
        self._clips, self._undo_each = clips, undo == "step"
        self._copy_first = False  # several optimizers step within one call
        self._clips_kept = 0
        self.held = {
            id(one): Guarded(one, i, make_check(), guard._parts.names) for i, one in enumerate(guard._parts.optimizers)
        }
        self.repair_before_step: Callable[[Guarded], None] | None = None  # of an experiment
        self._handles: list[Any] = []
        self._own: dict[int, tuple] = {}
        holders = collections.Counter(id(p) for held in self.held.values() for p in held.parameters)
        for held in self.held.values():
            held.shared = any(holders[id(p)] > 1 for p in held.parameters)
            self._hook(held.optimizer)

    @property
    def first(self) -> Guarded:
        return next(iter(self.held.values()))

    # -- which hooks

    def _hook(self, optimizer: torch.optim.Optimizer) -> None:
        before = optimizer.register_step_pre_hook(self._before)
        first = optimizer.register_step_post_hook(self._after)
        last = optimizer.register_step_post_hook(self._settle)
        loaded = optimizer.register_load_state_dict_post_hook(lambda *_: self.held[id(optimizer)].check.forget())
        self._handles += [before, first, last, loaded]
        self._own[id(optimizer)] = (before.id, first.id, last.id)
        self._order(optimizer)

    def _order(self, optimizer: torch.optim.Optimizer) -> None:
        """Be the last to look before a step, the first and the last after it. Not from inside a hook."""
        before, first, last = self._own[id(optimizer)]
        pre, post = optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks
        if next(reversed(pre)) != before:
            pre.move_to_end(before)
        if next(iter(post)) != first:
            post.move_to_end(first, last=False)
        if next(reversed(post)) != last:
            post.move_to_end(last)

    def _is_last(self, optimizer: torch.optim.Optimizer) -> bool:
        """Nobody changes gradients after the guard has looked: hooks that were made later are known by ``order()``."""
        return next(reversed(optimizer._optimizer_step_pre_hooks)) == self._own[id(optimizer)][0]

    def order(self) -> None:
        for held in self.held.values():
            self._order(held.optimizer)

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    # -- before a step

    def _before(self, optimizer: torch.optim.Optimizer, args: tuple, kwargs: dict) -> tuple | None:
        guard, held = self.guard, self.held.get(id(optimizer))
        closure = kwargs.get("closure") or (args[1] if len(args) > 1 else None)
        if held is not None and self._in_window is not None:
            return self._before_in_window(held, closure, args, kwargs)
        if held is None or not guard.running:
            return None
        held.refresh()
        guard._function.steps_seen += 1
        if guard._replay is not None:
            self._before_in_replay(held)
            return None if not callable(closure) else self._with_closure(held, closure, args, kwargs)
        self._note_several()
        held.copy, held.bounded = None, False
        if callable(closure):
            if self._undo_each or self._copy_first or not held.trusted:
                held.save()
            return self._with_closure(held, closure, args, kwargs)
        if not self._look(held):
            guard._first_snapshot()
            # What may have to be undone: not a step that can only write what is finite.
            if held.copy is None and (self._copy_first or (self._undo_each and not held.bounded)):
                held.save()
        return None

    def _note_several(self) -> None:
        """Of several steps in one call what is written before has to be undone too, from the next call on."""
        guard = self.guard
        if guard._function.steps_seen > 1 and guard._in_step:
            self._copy_first = True
            if guard._began is not None and not guard._began.optimizer_copies:
                guard._began.unsaved = True

    def _look(self, held: Guarded, loss: float | None = None) -> bool:
        """Check what the optimizer is about to use, and clip; True: it must not."""
        if self._left_to_scaler(held.optimizer):
            return False
        guard = self.guard
        if loss is None:
            loss = guard._function.known_loss()
        finding, clip = held.check.before(held.parameters, held.names, held.hyperparameters(), loss, held.lr())
        if finding:
            guard._faults.note(finding, held, written=False)
            if guard._on_fault == "warn":
                return False
            if held.copy is None:
                held.save()
            held.hide()
            guard.watch._live.refused()
            return True
        if clip is not None and self._clips:
            self._keep(guard.watch._live.measured(clip))
        if self._clips or getattr(held.optimizer, "grad_scale", None) is None:  # else they are scaled still
            held.bound(looked_last=self._is_last(held.optimizer))
        return False

    def _keep(self, clip: GuardAction | None) -> None:
        if clip is not None and self._clips_kept < _module().MOST_CLIPS:
            self._clips_kept += 1
            self.guard.actions.append(clip)

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
            gradients = [p.grad for p in self.held[id(optimizer)].parameters if p.grad is not None]
            with torch.no_grad():
                torch._foreach_mul_(gradients, 1.0 / float(scale))
            optimizer.grad_scale = torch.ones_like(scale)
        return False

    def _with_closure(self, held: Guarded, closure: Callable, args: tuple, kwargs: dict) -> tuple:
        held.evaluations = 0

        def checked(*given: Any, **named: Any) -> Any:
            if held.hidden is not None:
                held.hidden = None  # of an evaluation before: this one makes its own
            result = closure(*given, **named)
            held.evaluations += 1
            self._look_after_evaluation(held, result)
            return result

        return _with_another(checked, args, kwargs)

    def _look_after_evaluation(self, held: Guarded, result: Any) -> None:
        guard = self.guard
        if guard._replay is not None:
            return self._look_in_replay(held)
        fault = guard._faults.now
        if fault is None or fault.held is not held:
            loss = tensor_of(result)
            self._look(held, 0.0 if loss is None else float(loss.detach()))
            if guard._faults.now is not None and held.evaluations > 1:
                guard._faults.now.written = True
        elif guard._on_fault != "warn":
            held.hide()
        return None

    # -- after a step

    def _after(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        guard, held = self.guard, self.held.get(id(optimizer))
        if held is None or not guard.running:
            return
        if held.hidden is not None:
            held.show()
            if held.copy is not None:
                held.copy.restore()
            return
        if guard._replay is not None:
            return
        if guard._began is not None:
            guard._began.has_written(held.copy)
        if guard._faults.now is not None and guard._faults.now.held is held:
            return
        anyway = _module().reads_anyway(held.made, guard.steps, guard._snapshot_every)
        held.made += 1
        if held.bounded and not anyway:
            return
        seen = guard.watch._live if held.trusted and not anyway else None  # another one may write as it likes
        finding = held.check.after(*held.results(), seen)
        if finding:
            guard._faults.note(finding, held, written=True)

    def _settle(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        """After everybody's hooks: where no ``step()`` is around the optimizer's, the step ends here."""
        guard = self.guard
        if guard.running and not guard._in_step and guard._replay is None and id(optimizer) in self.held:
            guard._end_unchanged_loop()

    def show_all(self) -> None:
        for held in self.held.values():
            if held.hidden is not None:
                held.show()

    def all_is_finite(self) -> bool:
        """Of several optimizers that take turns, not all were read in this step."""
        return all(_module().all_finite(held.results()[0]) for held in self.held.values())

    def forget_sizes(self) -> None:
        """What optimizers hold has been put back."""
        for held in self.held.values():
            held.check.forget()

    def forget_copies(self) -> None:
        for held in self.held.values():
            held.end_step()

    # -- in windows of steps that are run again

    def begin_window(self) -> None:
        """Gradients are clipped as in the run, by a history of their own, and nothing is refused."""
        self._in_window = {key: self._make_check() for key in self.held} if self._clips else None
        self.order()

    def end_window(self) -> None:
        self._in_window = None

    def _before_in_window(self, held: Guarded, closure: Any, args: tuple, kwargs: dict) -> tuple | None:
        check = self._in_window[id(held.optimizer)]

        def clip() -> None:
            held.refresh()
            check.before(held.parameters, held.names, [], 0.0, held.lr())

        if not callable(closure):
            clip()
            return None

        def clipped(*given: Any, **named: Any) -> Any:
            result = closure(*given, **named)
            clip()
            return result

        return _with_another(clipped, args, kwargs)

    # -- in replays

    def _before_in_replay(self, held: Guarded) -> None:
        if held.number in self.guard._replay.writes:
            if self.repair_before_step is not None:
                self.repair_before_step(held)
            return
        held.copy = None if held.trusted else OptimizerState(held.optimizer)
        held.hide()

    def _look_in_replay(self, held: Guarded) -> None:
        gradients = [p.grad for p in held.parameters if p.grad is not None]
        if held.number not in self.guard._replay.writes or not _module().all_finite(gradients):
            held.hide()


def _with_another(closure: Callable, args: tuple, kwargs: dict) -> tuple:
    """Arguments of ``step()`` with this closure."""
    if "closure" in kwargs:
        return args, {**kwargs, "closure": closure}
    return (args[0], closure, *args[2:]), kwargs
