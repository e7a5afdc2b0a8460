"""The optimizer, and the order of things around it."""

from __future__ import annotations

import math
import random

import torch
from torch import nn

from ..site import Draft, Site
from ..training import ADAPTIVE, PLAIN, Training
from ..truth import LOOP, MODULE, Place, Truth
from .fault import Fault, wide


def late_step(site: Site) -> int:
    """In the middle of the run."""
    return site.rng.randint(site.recipe.steps // 4, site.recipe.steps * 2 // 3)


def lr_too_high(site: Site) -> Truth:
    """From the first step on."""
    size = site.size(10, 3000)
    site.recipe.factor = lambda _step: size
    site.recipe.clip = None
    return Truth("lr_too_high", Place(LOOP), 0, diffuse=True, note=f"x{size:.0f}")


def lr_jump(site: Site) -> Truth:
    """The schedule multiplies where it should divide, from some step on."""
    size, step = site.size(20, 3000), late_step(site)
    site.recipe.factor = lambda now: size if now >= step else 1.0
    site.recipe.clip = None
    return Truth("lr_too_high", Place(LOOP), step, diffuse=True, note=f"x{size:.0f}")


def lr_tiny(site: Site) -> Truth:
    """A learning rate at which nothing moves."""
    size = site.size(1e-7, 1e-4)
    site.recipe.factor = lambda _step: size
    return Truth("loss_not_decreasing", Place(LOOP), 0, ("plateau",), diffuse=True, note=f"x{size:.1e}")


def warmup_of_no_steps(site: Site) -> Truth:
    """step / warm-up is 0/0 in the first step."""
    site.recipe.schedule = site.rng.choice(("warmup", "warmup_cosine"))
    site.recipe.warms_up_over = lambda: 0.0
    return Truth("hyperparameter", Place(LOOP), 0)


def schedule_is_nan(site: Site) -> Truth:
    """A schedule that leaves its domain: a root of a negative number, a division by 0."""
    step, value = late_step(site), site.rng.choice((math.nan, math.inf))
    site.recipe.factor = lambda now: value if now >= step else 1.0
    return Truth("hyperparameter", Place(LOOP), step, note=f"lr {value}")


def group_value_is_nan(site: Site) -> Truth:
    """Weight decay or momentum is annealed to NaN."""
    step = late_step(site)
    name = "weight_decay" if site.recipe.optimizer not in ("momentum", "nesterov") else "momentum"

    def spoil(training: Training, now: int) -> None:
        if now == step:
            for optimizer in training.optimizers:
                for group in optimizer.param_groups:
                    group[name] = math.nan

    site.recipe.before_update.append(spoil)
    return Truth("hyperparameter", Place(LOOP), step, note=f"{name} nan")


def missing_zero_grad(site: Site) -> Truth:
    """Never, or no more from some step on."""
    step = site.rng.choice((0, 0, late_step(site)))
    site.recipe.zeroes = lambda now: now < step
    site.recipe.clip = None
    return Truth("missing_zero_grad", Place(LOOP), step, diffuse=True, note=f"from step {step}")


def accumulation_not_averaged(site: Site) -> Truth:
    """The loss of each part counts in full."""
    recipe = site.recipe
    recipe.averages = False
    return Truth(
        "accumulation_not_averaged", Place(LOOP), 0, ("lr_too_high",), diffuse=True, note=f"x{recipe.accumulation}"
    )


def second_moment_lost(site: Site) -> Truth:
    """A resume restores the optimizer's first moments and its count of steps, and not the second moments."""
    step = late_step(site)

    def lose(training: Training, now: int) -> None:
        if now != step:
            return
        for optimizer in training.optimizers:
            for entries in optimizer.state.values():
                for name in ("exp_avg_sq", "square_avg", "sum", "exp_inf"):
                    if name in entries:
                        entries[name].zero_()

    site.recipe.before_update.append(lose)
    return Truth("optimizer_state", Place(LOOP), step)


def state_lost(site: Site) -> Truth:
    """A resume without the optimizer's state."""
    step = late_step(site)

    def lose(training: Training, now: int) -> None:
        if now == step:
            for optimizer in training.optimizers:
                optimizer.state.clear()

    site.recipe.before_update.append(lose)
    return Truth("optimizer_state", Place(LOOP), step)


def eps_is_zero(site: Site) -> Truth:
    """0/0 for whatever got no gradient yet."""

    def spoil(training: Training) -> None:
        for optimizer in training.optimizers:
            for group in optimizer.param_groups:
                group["eps"] = 0.0

    site.recipe.prepares.append(spoil)
    return Truth("optimizer_state", Place(LOOP), 0, ("hyperparameter",))


def weight_decay_sign(site: Site) -> Truth:
    """Decay that is added instead of taken away."""
    step, size = site.rng.choice((0, late_step(site))), site.size(0.02, 0.5)

    def grow(training: Training, now: int) -> None:
        if now >= step:
            with torch.no_grad():
                for model in training.models:
                    for parameter in model.parameters():
                        parameter.add_(parameter, alpha=size)

    def group(training: Training) -> None:
        for optimizer in training.optimizers:
            for options in optimizer.param_groups:
                options["weight_decay"] = -size / options["lr"]

    by_optimizer = site.recipe.optimizer in ("adamw", "adamw_fused", "sgd") and site.rng.random() < 0.5
    if by_optimizer:
        step = 0
        site.recipe.prepares.append(group)
    else:
        site.recipe.after_update.append(grow)
    return Truth("weight_decay_sign", Place(LOOP), step, ("weight_growth",), diffuse=True, note=f"{size:.2f} a step")


def named_parameters(site: Site) -> list[tuple[str, nn.Parameter]]:
    return [(f"{key}.{name}", p) for key, model in site.task.models.items() for name, p in model.named_parameters()]


def parameters_not_given(site: Site) -> Truth:
    """Most layers are not in the optimizer, though they get gradients."""
    kept = site.rng.choice(("last", "biases", "norms"))

    def choose(model: nn.Module) -> list:
        named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        if kept == "last":
            return [p for _, p in named[-2:]]
        few = [p for name, p in named if p.dim() == 1 and (kept == "biases" or "norm" in name)]
        return few or [named[-1][1]]

    chosen = {id(p) for model in site.task.models.values() for p in choose(model)}
    names = tuple(name for name, p in named_parameters(site) if p.requires_grad and id(p) not in chosen)
    site.recipe.chooses = choose
    return Truth("optimizer_not_linked", Place(MODULE, names), 0, diffuse=True, note=f"only {kept} given")


def parameters_replaced(site: Site) -> Truth:
    """The optimizer was made before layers were replaced (a new head, a cast, a reload): it holds the old ones."""

    def replace(training: Training) -> None:
        with torch.no_grad():
            for model in training.models:
                for module in model.modules():
                    for name, parameter in list(module.named_parameters(recurse=False)):
                        if not isinstance(module, nn.RNNBase):
                            setattr(module, name, nn.Parameter(parameter.clone(), parameter.requires_grad))

    site.recipe.prepares.append(replace)
    names = tuple(name for name, _ in named_parameters(site))
    return Truth("optimizer_not_linked", Place(MODULE, names), 0, diffuse=True, also_at=(Place(LOOP),))


def clipping_chronic(site: Site) -> Truth:
    """A norm so small that every gradient is cut down to nothing."""
    site.recipe.clip = site.size(1e-6, 1e-3)
    return Truth("clipping_chronic", Place(LOOP), 0, diffuse=True, note=f"clip {site.recipe.clip:.1e}")


def one_huge_update(site: Site) -> Truth:
    """The learning rate of one step is far too high, and most units never recover."""
    step, size = late_step(site), site.size(100, 1e4)
    site.recipe.factor = lambda now: size if now == step else 1.0
    site.recipe.clip = None
    return Truth("lr_too_high", Place(LOOP), step, ("dead_units",), diffuse=True, note=f"x{size:.0f}")


def many_parts(draft: Draft, rng: random.Random) -> None:
    draft.recipe.accumulation, draft.recipe.clip = rng.choice((8, 16)), None
    draft.recipe.steps = min(draft.recipe.steps, 80)
    draft.recipe.lr *= 3.0


def long_run(draft: Draft, rng: random.Random) -> None:
    draft.recipe.steps, draft.recipe.clip, draft.recipe.schedule = rng.randint(200, 300), None, "none"
    draft.recipe.lr *= 6.0 if draft.recipe.optimizer == "adagrad" else 2.0


def converges(draft: Draft) -> bool:
    return (
        draft.architecture.name in ("mlp_regression", "mlp_classifier", "lora", "speech")
        and draft.recipe.accumulation == 1
    )


def adaptive(draft: Draft) -> bool:
    return draft.recipe.optimizer in ADAPTIVE


FAULTS = [
    Fault(lr_too_high),
    Fault(lr_too_high),
    Fault(lr_jump),
    Fault(lr_tiny),
    Fault(warmup_of_no_steps),
    Fault(schedule_is_nan),
    Fault(group_value_is_nan),
    Fault(missing_zero_grad),
    Fault(missing_zero_grad),
    Fault(accumulation_not_averaged, lambda draft: draft.recipe.optimizer in PLAIN, many_parts),
    Fault(second_moment_lost, lambda draft: adaptive(draft) and converges(draft), long_run),
    Fault(state_lost, lambda draft: adaptive(draft) and converges(draft), long_run),
    Fault(eps_is_zero, adaptive),
    Fault(weight_decay_sign, wide),
    Fault(parameters_not_given),
    Fault(
        parameters_replaced, lambda draft: draft.architecture.name not in ("lstm", "gru") and draft.recipe.amp != "fp16"
    ),
    Fault(clipping_chronic, lambda draft: draft.recipe.optimizer in PLAIN),
    Fault(one_huge_update),
]
