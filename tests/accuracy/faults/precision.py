"""Half precision: what it does not hold, and a loss scale that is not right."""

from __future__ import annotations

import random

from torch import nn

from ..site import Draft, Site
from ..training import PLAIN, Training
from ..truth import LOOP, MODULE, Place, Truth
from .fault import Fault, alter, factors


def in_fp16(draft: Draft, _rng: random.Random) -> None:
    draft.recipe.amp = "fp16"


def can_be_fp16(draft: Draft) -> bool:
    return "fp16" in draft.architecture.amp


def fp16_overflow(site: Site) -> Truth:
    """A product that float32 holds and float16 does not; once, for one sample."""
    site.recipe.scaler = site.rng.choice((site.recipe.scaler, None))
    seam, size = site.rng.choice(half_seams(site)), site.size(3e4, 1e8)
    loud = factors(site, size)
    alter(seam.module, after=lambda x: loud(x) if x.dtype.itemsize == 2 else loud(x.half()))
    return Truth(
        "mixed_precision", Place(MODULE, (seam.name,), (site.sample,)), site.step, note=f"x{size:.1e} at {seam.name}"
    )


def half_seams(site: Site):
    from ..task import seams

    return [seam for seam in seams(site.task) if isinstance(seam.module, nn.Linear)]


def fp16_square(site: Site) -> Truth:
    """A norm by hand squares its input in float16: beyond 65504 from the start, for most samples."""
    site.recipe.scaler = site.rng.choice((site.recipe.scaler, None))
    seam, size = site.rng.choice(half_seams(site)), site.size(1e3, 1e4)

    def normalise(x):
        x = x.half() * size
        return x / (x.square().mean(-1, keepdim=True) + 1e-3).sqrt()

    alter(seam.module, after=normalise)
    return Truth("mixed_precision", Place(MODULE, (seam.name,)), 0, diffuse=True, note=f"x{size:.1e} at {seam.name}")


def fp16_underflow(site: Site) -> Truth:
    """No loss scale, and a loss so small that its gradients are 0 in float16."""
    recipe = site.recipe
    recipe.scaler, recipe.clip = None, None
    site.task.own_loss = True
    size = site.size(1e-9, 1e-6)
    player = site.task.players[0]
    plain = player.loss
    player.loss = lambda given: plain(given) * size
    recipe.prepares.append(small_eps)
    return Truth("mixed_precision", Place(LOOP), 0, ("fp16_underflow",), diffuse=True, note=f"loss x{size:.1e}")


def small_eps(training: Training) -> None:
    """So that the size of the loss alone would not stop an adaptive optimizer."""
    for optimizer in training.optimizers:
        for group in optimizer.param_groups:
            if "eps" in group:
                group["eps"] = 1e-15


def static_scale(site: Site) -> Truth:
    """A loss scale by hand that is too large: gradients are Inf in float16 from the first step."""
    recipe = site.recipe
    recipe.scaler, recipe.clip = None, None
    recipe.fixed_scale = 2.0 ** site.rng.randint(22, 40)
    return Truth("mixed_precision", Place(LOOP), 0, ("loss_scale_collapse",), note=f"scale {recipe.fixed_scale:.1e}")


def scale_never_falls(site: Site) -> Truth:
    """The scaler begins far too high and hardly backs off: every step is skipped."""
    recipe = site.recipe
    recipe.clip = None
    recipe.scaler = {"init_scale": 2.0 ** site.rng.randint(40, 80), "backoff_factor": site.rng.uniform(0.95, 0.999)}
    return Truth("loss_scale_collapse", Place(LOOP), 0, ("mixed_precision",), diffuse=True)


def adam_eps_in_half(site: Site) -> Truth:
    """Parameters and Adam's state in float16, where eps is 0."""
    recipe = site.recipe
    recipe.optimizer, recipe.half, recipe.amp = site.rng.choice(("adam", "adam_foreach")), True, "none"
    recipe.clip, recipe.lr = None, site.draft.architecture.adam
    return Truth("optimizer_state", Place(LOOP), 0, ("mixed_precision",))


def clip_before_unscale(site: Site) -> Truth:
    """Gradients are clipped while they still hold the loss scale: what is left of them is next to nothing."""
    recipe = site.recipe
    recipe.unscales_before_clip = False
    recipe.clip = recipe.clip or site.rng.choice((0.5, 1.0, 5.0))
    return Truth("clip_before_unscale", Place(LOOP), 0, diffuse=True, note=f"clip {recipe.clip}")


FAULTS = [
    Fault(fp16_overflow, can_be_fp16, in_fp16),
    Fault(fp16_square, can_be_fp16, in_fp16),
    Fault(fp16_underflow, can_be_fp16, in_fp16),
    Fault(static_scale, can_be_fp16, in_fp16),
    Fault(scale_never_falls, can_be_fp16, in_fp16),
    Fault(adam_eps_in_half, lambda draft: draft.has("perceptron")),
    Fault(clip_before_unscale, lambda draft: can_be_fp16(draft) and draft.recipe.optimizer in PLAIN, in_fp16),
]
