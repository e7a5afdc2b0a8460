"""Does the fault do harm? Measured with plain checks, beside the same run without it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch

from .training import Training
from .truth import Harm, Truth

LEARNT = 0.75  # a healthy run ends below this part of what it began with
SPIKE = 8.0  # harm: the loss of one step over the median of those before
FIRST = 4.0  # harm: the first loss over that of the twin
AFTER = 8  # steps that are still made once parameters hold NaN or Inf


@dataclass
class Measured:
    before: float
    after: float
    losses: list[float] = field(default_factory=list)
    first_bad: int | None = None  # step with a loss, gradient or parameter that is not finite
    own_scale: bool = False  # its data or its loss is not that of the twin
    own_data: bool = False

    @property
    def ratio(self) -> float:
        return self.after / self.before if math.isfinite(self.after) else math.inf


def finite(tensors) -> bool:
    return all(bool(torch.isfinite(tensor).all()) for tensor in tensors if tensor is not None)


def state(training: Training) -> list[torch.Tensor]:
    found = [value for model in training.models for value in model.state_dict().values()]
    return [value for value in found if value.is_floating_point()]


def broken(training: Training, loss: float) -> bool:
    gradients = [] if training.skipped else [p.grad for model in training.models for p in model.parameters()]
    return not (math.isfinite(loss) and finite(state(training)) and finite(gradients))


def measure(training: Training) -> Measured:
    """Runs it to its end, or until there is nothing left to be seen."""
    own_data = bool(training.task.lasting)
    seen = Measured(training.quality(), math.inf, own_scale=own_data or training.task.own_loss, own_data=own_data)
    for step in range(training.recipe.steps):
        try:
            seen.losses.append(float(training.step(step)))
        except ValueError:  # distributions refuse NaN
            seen.losses.append(math.nan)
            seen.first_bad = step if seen.first_bad is None else seen.first_bad
            return seen
        if seen.first_bad is None and broken(training, seen.losses[-1]):
            seen.first_bad = step
        if seen.first_bad is not None and step >= seen.first_bad + AFTER and not finite(state(training)):
            return seen
    seen.after = training.quality()
    return seen


def healthy(run: Measured) -> str:
    """Why it is not, or nothing."""
    if run.first_bad is not None:
        return f"not finite in step {run.first_bad}"
    if not run.ratio < LEARNT:
        return f"learnt too little: {run.before:.3g} -> {run.after:.3g}"
    quarter = max(len(run.losses) // 4, 1)
    early, late = run.losses[:quarter], run.losses[-quarter:]
    if sum(late) > sum(early) and min(early) > 0:
        return "the loss rises"
    return ""


def median(values: list[float]) -> float:
    ordered = sorted(values)
    return ordered[len(ordered) // 2]


def first_visible(run: Measured, twin: Measured, onset: int) -> int | None:
    """First step of the fault in which the loss is far above all that the twin shows, or above what was usual."""
    ceiling = math.inf if run.own_scale else 3 * max(abs(loss) for loss in twin.losses)
    for step, loss in enumerate(run.losses):
        usual = abs(median(run.losses[max(0, step - 10) : step])) if step >= 3 else math.inf
        like_twin = not run.own_scale and step < len(twin.losses) and loss < SPIKE * abs(twin.losses[step])
        high = loss > ceiling or (loss > SPIKE * usual and not like_twin)
        if step >= onset and (high or not math.isfinite(loss)):
            return step
    return None


def harm(run: Measured, twin: Measured, truth: Truth, enough: float) -> Harm:
    """Of the kinds of harm the strongest; `enough`: the part of the twin's progress that must be missing."""
    learnt, visible = (run.ratio, twin.ratio), first_visible(run, twin, truth.onset)
    if run.first_bad is not None:
        visible = run.first_bad if visible is None else min(visible, run.first_bad)
        return Harm("non-finite", run.first_bad, run.first_bad, visible, learnt)
    scale = run.before if run.own_data else twin.before
    lost = (run.after / scale - twin.ratio) / (1 - twin.ratio)
    if lost >= enough:
        return Harm("not learnt", lost, None, visible, learnt)
    excess = run.losses[0] / max(abs(twin.losses[0]), 1e-9)
    if excess >= FIRST and truth.onset == 0 and not run.own_scale:
        return Harm("first loss", excess, None, 0, learnt)
    if visible is not None and 3 <= visible <= truth.onset + 3 and not truth.diffuse:
        usual = abs(median(run.losses[max(0, visible - 10) : visible]))
        return Harm("spike", run.losses[visible] / max(usual, 1e-9), None, visible, learnt)
    return Harm("", lost, learnt=learnt)
