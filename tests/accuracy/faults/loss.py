"""Losses that do not say what they should."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from ..site import Draft, Site
from ..truth import DATA, LOOP, LOSS, Place, Truth
from .fault import Fault, either, factors, having


def log_of_probability(site: Site) -> Truth:
    """Cross-entropy by hand: the probability of one very sure sample underflows to 0."""
    task, size = site.task, site.size(500, 1e4) * site.rng.choice((-1, 1))
    sharpen = factors(site, size)

    def criterion(out, given):
        y = given["y"].clamp(min=0)
        chosen = sharpen(out).softmax(1).gather(1, y.unsqueeze(1)).squeeze(1)
        return -(chosen.log() * (given["y"] >= 0)).sum() / (given["y"] >= 0).sum()

    task.own_loss, task.criterion = True, criterion
    return Truth("op_domain", Place(LOSS, samples=(site.sample,)), site.step, note=f"logits x{size:.0f}")


def root_of_error(site: Site) -> Truth:
    """Root mean square of each sample; one sample has no error at all, as its weight is 0."""
    task = site.task
    weigh = factors(site, 0.0)
    task.own_loss, task.criterion = True, lambda out, given: weigh(out - given["y"]).square().mean(1).sqrt().mean()
    return Truth("op_domain", Place(LOSS, samples=(site.sample,)), site.step)


def log_of_target(site: Site) -> Truth:
    """Logarithmic error; -999 stands for a missing target."""
    task, batch, sample = site.task, site.batch, site.sample

    def spoil(number, given):
        y = given["y"].abs()
        if number == batch:
            y[sample] = -999.0
        return given | {"y": y}

    task.lasting.append(spoil)
    task.own_loss, task.criterion = (
        True,
        lambda out, given: (F.softplus(out).log1p() - given["y"].log1p()).square().mean(),
    )
    return Truth(
        "op_domain", Place(LOSS, samples=(sample,)), site.step, ("data_invalid", "label_outlier"), (Place(DATA),)
    )


def mean_of_nothing(site: Site) -> Truth:
    """A mask picks the samples that count, and once picks none."""
    task, batch = site.task, site.batch

    def mask(number, given):
        kept = torch.arange(len(given["y"])) % 4 != number % 4
        return given | {"kept": kept if number != batch else torch.zeros_like(kept)}

    def criterion(out, given):
        if site.draft.has("values"):
            errors = (out - given["y"]).square().mean(1)
        else:
            errors = F.cross_entropy(out, given["y"], reduction="none").view(len(out), -1).mean(1)
        return (errors * given["kept"]).sum() / given["kept"].sum()

    task.corruptions.append(mask)
    task.own_loss, task.criterion = True, criterion
    return Truth("loss_definition", Place(LOSS), site.step, ("op_domain",))


def all_targets_ignored(site: Site) -> Truth:
    """Every target of one batch is the index that is ignored."""
    batch = site.batch

    def spoil(number, given):
        return given | {"y": torch.full_like(given["y"], -100)} if number == batch else given

    site.task.corruptions.append(spoil)
    return Truth("loss_definition", Place(LOSS), site.step, ("data_invalid",), (Place(DATA),))


def nll_on_raw_logits(site: Site) -> Truth:
    """nll_loss without log_softmax before it."""
    task = site.task
    task.own_loss, task.criterion = True, lambda out, given: F.nll_loss(out, given["y"])
    return Truth("loss_definition", Place(LOSS), 0, diffuse=True)


def broadcast_targets(site: Site) -> Truth:
    """Targets of shape (N) against answers of shape (N, 1)."""
    task = site.task
    task.own_loss, task.criterion = True, lambda out, given: (out - given["y"].squeeze(1)).square().mean()
    return Truth("loss_definition", Place(LOSS), 0, diffuse=True)


def weight_is_nan(site: Site) -> Truth:
    """The weight of the loss is annealed by a formula that is 0/0 from some step on."""
    task, batch, clock = site.task, site.batch, site.task.clock
    value = site.rng.choice((float("nan"), float("inf")))
    player = task.players[0]
    plain = player.loss
    task.own_loss, player.loss = True, lambda given: plain(given) * (value if clock.batch >= batch else 1.0)
    return Truth("hyperparameter", Place(LOSS), site.step, ("loss_definition",), (Place(LOOP),), note=f"weight {value}")


def one_value(draft: Draft) -> bool:
    return draft.has("values") and draft.options.get("outputs", 1) == 1 and draft.architecture.name != "lora"


FAULTS = [
    Fault(log_of_probability, either("classes", "tokens")),
    Fault(root_of_error, having("values")),
    Fault(log_of_target, having("values")),
    Fault(mean_of_nothing, either("values", "classes", "tokens")),
    Fault(all_targets_ignored, either("classes", "tokens")),
    Fault(nll_on_raw_logits, either("classes", "tokens")),
    Fault(broadcast_targets, one_value),
    Fault(weight_is_nan),
]
