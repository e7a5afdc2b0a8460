"""The healthy trainings by name, in the order in which they are checked."""

from __future__ import annotations

import importlib
import importlib.util
import random
from collections.abc import Callable

import numpy
import torch

from .workload import Workload

FAMILIES = ("training", "vision", "sequence", "generative", "structured")
WITH_TRANSFORMERS = ("language", "perception")


def models() -> dict[str, Callable[[], Workload]]:
    """Name -> builder. Those of the transformers package only where it is installed."""
    families = FAMILIES + (WITH_TRANSFORMERS if importlib.util.find_spec("transformers") else ())
    found: dict[str, Callable[[], Workload]] = {}
    for family in families:
        found |= importlib.import_module(f".{family}", __package__).MODELS
    return found


def build(make: Callable[[], Workload], seed: int) -> Workload:
    """The training from its seed: the same one each time."""
    random.seed(seed)
    numpy.random.seed(seed)
    torch.manual_seed(seed)
    return make()
