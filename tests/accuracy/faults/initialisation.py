"""Nets that are wrong before the first update, and signals that die out or grow on their way."""

from __future__ import annotations

import itertools

import torch
from torch import nn

from ..architectures.attention import Attention
from ..site import Draft, Site
from ..task import spots
from ..truth import MODULE, Place, Truth
from .fault import Fault, alter, having, wide

WEIGHTED = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Embedding)


def names_of(found) -> tuple[str, ...]:
    return tuple(name for spot in found for name in (spot.name, *spot.parameters))


def scale(module: nn.Module, size: float, bias: bool = False) -> None:
    with torch.no_grad():
        module.weight.mul_(size)
        if bias and getattr(module, "bias", None) is not None:
            module.bias.mul_(size)


def large_weights(site: Site) -> Truth:
    """The weights of one layer are far too large (a variance taken for a deviation, a forgotten root of the fan-in)."""
    spot, size = site.spot(*WEIGHTED), site.size(20, 1e4)
    scale(spot.module, size)
    return Truth("bad_init", Place(MODULE, names_of([spot])), 0, diffuse=True, note=f"x{size:.0f} at {spot.name}")


def growing_layers(site: Site) -> Truth:
    """Every layer of a deep net multiplies the signal."""
    size, depth = site.rng.uniform(5.0, 9.0), site.rng.randint(8, 14)
    site.draft.options |= {"depth": depth, "activation": site.rng.choice(("relu", "leaky")), "norm": False}
    found = spots(site.task, nn.Linear)
    for spot in found:
        scale(spot.module, size)
    place = Place(MODULE, names_of(found))
    return Truth("bad_init", place, 0, ("exploding_gradient",), diffuse=True, note=f"x{size:.1f}, {depth} layers")


def growing_in_time(site: Site) -> Truth:
    """The recurrent weights multiply the signal in every step of time."""
    size, length = site.rng.uniform(2.0, 4.0), site.rng.randint(20, 40)
    site.draft.options |= {"activation": "relu", "length": length}
    (spot,) = [spot for spot in spots(site.task, nn.Linear) if spot.path == "recurrent"]
    scale(spot.module, size)
    place = Place(MODULE, (*names_of([spot]), "model.entry", "model.entry.weight", "model.entry.bias"))
    return Truth("exploding_gradient", place, 0, ("bad_init",), diffuse=True, note=f"x{size:.1f}, {length} steps")


def uninitialised(site: Site) -> Truth:
    """NaN or Inf in a parameter that nobody initialised."""
    spot = site.spot(*WEIGHTED)
    with torch.no_grad():
        weight = spot.module.weight.view(-1)
        weight[site.rng.randrange(len(weight))] = site.rng.choice((float("nan"), float("inf")))
    return Truth("bad_init", Place(MODULE, names_of([spot])), 0, note=spot.name)


def deep_sigmoid(site: Site) -> Truth:
    """Each sigmoid takes at least three quarters of the gradient."""
    site.draft.options |= {"depth": site.rng.randint(7, 16), "activation": "sigmoid", "norm": False, "dropout": 0.0}
    hidden = [spot for spot in spots(site.task, nn.Linear, nn.Sigmoid) if spot.path.startswith("body")]
    place = Place(MODULE, names_of(hidden))
    return Truth("vanishing_gradient", place, 0, diffuse=True, note=f"{site.draft.options['depth']} layers")


def deep_and_small(site: Site) -> Truth:
    """Weights so small that little of the signal is left after some layers."""
    size = site.rng.uniform(0.05, 0.3)
    site.draft.options |= {"depth": site.rng.randint(6, 12), "activation": site.rng.choice(("tanh", "gelu", "relu"))}
    site.draft.options |= {"norm": False}
    found = spots(site.task, nn.Linear)
    for spot in found:
        scale(spot.module, size, bias=True)
    place = Place(MODULE, names_of([*found, *spots(site.task, nn.Tanh, nn.GELU, nn.ReLU)]))
    return Truth("vanishing_gradient", place, 0, ("bad_init",), diffuse=True, note=f"x{size:.2f}")


def saturated_layers(site: Site) -> Truth:
    """Weights so large that tanh or sigmoid is at its flat end for every sample."""
    name = site.rng.choice(("tanh", "tanh", "sigmoid"))
    site.draft.options |= {"activation": name, "norm": False, "depth": site.rng.randint(3, 6)}
    linear = [spot for spot in spots(site.task, nn.Linear) if spot.path.startswith("body")]
    flat = spots(site.task, nn.Tanh, nn.Sigmoid)
    first = site.rng.randrange(len(linear))
    size = site.size(30, 300)
    for spot in linear[first:]:
        scale(spot.module, size)
    place = Place(MODULE, names_of([*linear[first:], *flat[first:]]))
    return Truth(
        "saturation", place, 0, ("bad_init",), diffuse=True, note=f"{name}, x{size:.0f} from {linear[first].path}"
    )


def dead_relu(site: Site) -> Truth:
    """Biases so far below zero that the units of a layer give 0 for every sample."""
    site.draft.options |= {"activation": "relu", "norm": False} if site.draft.has("perceptron") else {}
    pairs = before_relu(site)
    linear, relu = site.rng.choice(pairs)
    bias = -site.size(5, 100)
    with torch.no_grad():
        linear.module.bias.fill_(bias)
    place = Place(MODULE, names_of([linear, relu]))
    return Truth("dead_units", place, 0, ("bad_init",), diffuse=True, note=f"bias {bias:.1f} at {linear.name}")


def before_relu(site: Site) -> list:
    """Layers with a bias whose next module is a ReLU."""
    every = spots(site.task, nn.Module)
    return [
        (a, b)
        for a, b in itertools.pairwise(every)
        if isinstance(b.module, nn.ReLU) and getattr(a.module, "bias", None) is not None
    ]


def dies_at_once(site: Site) -> Truth:
    """An update moves all biases of a layer far below zero."""
    site.draft.options |= {"activation": "relu", "norm": False} if site.draft.has("perceptron") else {}
    linear, relu = site.rng.choice(before_relu(site))
    step, size = site.rng.randint(site.recipe.steps // 4, site.recipe.steps // 2), site.size(10, 1000)

    def move(_training, now: int) -> None:
        if now == step:
            with torch.no_grad():
                linear.module.bias.sub_(size)

    site.recipe.after_update.append(move)
    place = Place(MODULE, names_of([linear, relu]))
    return Truth("dead_units", place, step, diffuse=True, note=f"bias -{size:.0f} at {linear.name}")


def zero_gradient_op(site: Site) -> Truth:
    """Rounding, a sign or a softmax over one element: nothing above it gets a gradient."""
    operations = {
        "round": lambda x: torch.round(4 * x) / 4,
        "sign": torch.sign,
        "softmax of one": lambda x: x.unsqueeze(1).softmax(1).squeeze(1),
        "floor": lambda x: torch.floor(2 * x),
    }
    name, seam = site.rng.choice(list(operations)), site.seam()
    alter(seam.module, after=operations[name])
    above = []
    for path, _ in site.task.models[seam.model].named_parameters():
        above.append(f"{seam.model}.{path}")
        if path.startswith(seam.path + "."):
            break
    place = Place(MODULE, (seam.name, *above))
    return Truth("zero_gradient_op", place, 0, diffuse=True, note=f"{name} at {seam.name}")


def sharp_attention(site: Site) -> Truth:
    """Queries and keys so large that every softmax is one-hot."""
    size = site.size(15, 100)
    found = spots(site.task, Attention)
    for spot in found:
        scale(spot.module.q, size)
        scale(spot.module.k, size)
    names = tuple(f"{spot.name}{part}" for spot in found for part in ("", ".q", ".k", ".q.weight", ".k.weight"))
    return Truth("attention_collapse", Place(MODULE, names), 0, ("bad_init",), diffuse=True, note=f"x{size:.0f}")


def one_expert(site: Site) -> Truth:
    """The router sends every sample to the same expert, and nothing makes it spread them."""
    size = site.size(20, 1000)
    chosen = site.rng.randrange(site.draft.options["experts"])
    router = site.task.models["model"]["moe"].router
    with torch.no_grad():
        router.bias[chosen] += size
    site.task.players[0].loss = lambda given: site.task.criterion(site.task.predict(given), given)
    place = Place(MODULE, ("model.moe", "model.moe.router", "model.moe.router.bias", "model.moe.router.weight"))
    return Truth("moe_collapse", place, 0, ("bad_init",), diffuse=True, note=f"bias {size:.0f}")


def has_relu(draft: Draft) -> bool:
    return draft.has("perceptron") or draft.architecture.name in ("gan", "vae", "speech")


FAULTS = [
    Fault(large_weights, wide),
    Fault(growing_layers, lambda draft: draft.has("perceptron") and wide(draft)),
    Fault(growing_in_time, having("unrolled")),
    Fault(uninitialised),
    Fault(deep_sigmoid, having("perceptron")),
    Fault(deep_and_small, having("perceptron")),
    Fault(saturated_layers, lambda draft: draft.has("perceptron") and wide(draft)),
    Fault(dead_relu, has_relu),
    Fault(dies_at_once, has_relu),
    Fault(zero_gradient_op),
    Fault(sharp_attention, lambda draft: draft.architecture.name == "decoder" and wide(draft)),
    Fault(one_expert, having("moe"), lost=0.1),
]
