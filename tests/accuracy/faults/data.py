"""Data that is not as it should be."""

from __future__ import annotations

import torch

from ..site import Draft, Site
from ..truth import DATA, LOSS, Place, Truth
from .fault import Fault, having, wide


def nan_in_sample(site: Site) -> Truth:
    """A few features of one sample are NaN or Inf."""
    batch, sample, value = site.batch, site.sample, site.rng.choice((float("nan"), float("nan"), float("inf")))
    several = site.rng.choice((1, 3))

    def spoil(number, given):
        if number == batch:
            given["x"][sample].view(-1)[:several] = value
        return given

    site.task.corruptions.append(spoil)
    return Truth("data_nonfinite", Place(DATA, samples=(sample,)), site.step, note=f"{value} x{several}")


def nan_in_target(site: Site) -> Truth:
    """A missing value among the targets of a regression."""
    batch, sample = site.batch, site.sample

    def spoil(number, given):
        if number == batch:
            given["y"][sample, 0] = float("nan")
        return given

    site.task.corruptions.append(spoil)
    return Truth("data_nonfinite", Place(DATA, samples=(sample,)), site.step)


def nan_column(site: Site) -> Truth:
    """A feature that was never filled in: NaN for some samples of each batch from the start."""
    column, share = site.rng.randrange(3), site.rng.uniform(0.1, 1.0)

    def spoil(number, given):
        rows = torch.arange(len(given["x"])) < max(1, int(share * len(given["x"])))
        given["x"][rows, ..., column] = float("nan")
        return given

    site.task.corruptions.append(spoil)
    return Truth("data_nonfinite", Place(DATA), 0, note=f"column {column}")


def outlier_in_batch(site: Site) -> Truth:
    """Fill values or another unit in one or a few samples of one batch."""
    batch, sample, size = site.batch, site.sample, site.size(1e3, 1e7)
    several = site.rng.choice((1, 1, 4))

    def spoil(number, given):
        if number == batch:
            rows = [(sample + i) % len(given["x"]) for i in range(several)]
            given["x"][rows] = given["x"][rows] * size
        return given

    site.task.corruptions.append(spoil)
    return Truth("data_outlier", Place(DATA), site.step, note=f"x{size:.1e}")


def outlier_in_target(site: Site) -> Truth:
    """One target with the wrong unit."""
    batch, sample, size = site.batch, site.sample, site.size(1e3, 1e6)

    def spoil(number, given):
        if number == batch:
            given["y"][sample] = given["y"][sample].sign() * size
        return given

    site.task.corruptions.append(spoil)
    return Truth("label_outlier", Place(DATA, samples=(sample,)), site.step, note=f"{size:.1e}")


def unscaled_features(site: Site) -> Truth:
    """Some columns are in another unit, and nobody standardised them."""
    size, share = site.size(1e2, 1e5), site.rng.choice((0.2, 0.5, 1.0))
    shift = site.rng.choice((0.0, 1.0))

    def scale(_number, given):
        x = given["x"].clone()
        columns = max(1, int(share * x.shape[-1]))
        x[..., :columns] = (x[..., :columns] + shift) * size
        return given | {"x": x}

    site.task.lasting.append(scale)
    return Truth("data_scale", Place(DATA), 0, diffuse=True, note=f"x{size:.1e}, {share:.0%} of columns")


def unscaled_targets(site: Site) -> Truth:
    """Prices in single units."""
    size, shift = site.size(1e2, 1e5), site.rng.choice((0.0, 3.0))
    site.task.lasting.append(lambda _number, given: given | {"y": (given["y"] + shift) * size})
    return Truth("data_scale", Place(DATA), 0, diffuse=True, note=f"x{size:.1e}")


def constant_feature(site: Site) -> Truth:
    """Features are standardised by the batch; in one batch a feature has one value only."""
    batch, column = site.batch, site.rng.randrange(3)

    def standardise(number, given):
        x = given["x"]
        if number == batch:
            x[..., column] = 1.0
        return given | {"x": (x - x.mean(0)) / x.std(0)}

    site.task.lasting.append(standardise)
    return Truth("data_invalid", Place(DATA), site.step, also=("op_domain",), also_at=(Place(LOSS),))


def constant_target(site: Site) -> Truth:
    """The error is measured in units of the targets' variance, which is 0 in one batch."""
    task, batch = site.task, site.batch
    plain = task.criterion

    def spoil(number, given):
        if number == batch:
            given["y"] = torch.zeros_like(given["y"]) + given["y"][:1]
        return given

    task.corruptions.append(spoil)
    task.own_loss, task.criterion = True, lambda out, given: plain(out, given) / given["y"].var()
    return Truth("data_invalid", Place(LOSS), site.step, also=("op_domain",), also_at=(Place(DATA),))


def target_too_long(site: Site) -> Truth:
    """CTC: more symbols than frames, or repeated ones that need a blank between them."""
    batch, sample = site.batch, site.sample

    def spoil(number, given):
        if number == batch:
            y = torch.ones(len(given["y"]), 12, dtype=torch.long)
            y[:, :5] = given["y"]
            y[sample] = torch.arange(12) % 5 + 1
            given["y"], given["lengths"][sample] = y, 12
        return given

    site.task.corruptions.append(spoil)
    return Truth("data_invalid", Place(LOSS, samples=(sample,)), site.step, also=("op_domain",), also_at=(Place(DATA),))


def bounded(draft: Draft) -> bool:
    """Where large inputs overflow in an exp without a bound, that would be as good an answer."""
    return draft.has("floats") and not draft.has("unclamped") and wide(draft)


FAULTS = [
    Fault(nan_in_sample, having("floats")),
    Fault(nan_in_target, having("values")),
    Fault(nan_column, having("floats")),
    Fault(outlier_in_batch, bounded),
    Fault(outlier_in_target, lambda draft: draft.has("values") and wide(draft)),
    Fault(unscaled_features, bounded),
    Fault(unscaled_targets, lambda draft: draft.has("values") and wide(draft)),
    Fault(
        constant_feature, lambda draft: draft.has("floats", "perceptron") or draft.architecture.name in ("moe", "gnn")
    ),
    Fault(constant_target, having("values")),
    Fault(target_too_long, having("ctc")),
]
