"""The runs of a seed: number i of seed s is the same run on every machine."""

from __future__ import annotations

import functools
import hashlib
import json
import random
from dataclasses import asdict, dataclass
from pathlib import Path

from .architectures import ARCHITECTURES
from .faults import BY_NAME, FAULTS
from .site import Draft, Site, draw_draft
from .training import Training
from .truth import Harm, Truth
from .verify import AFTER, Measured, harm, healthy, measure

HEALTHY_EVERY = 3  # one run of three has no fault
PER_SEED = 20  # so many healthy ones in 60 runs, and twice as many faults
ATTEMPTS = 25


class Unfit(RuntimeError):
    """No harmful run of this kind was found."""


@dataclass(frozen=True)
class Program:
    """A run that was verified: build() gives a fresh one each time."""

    seed: int
    index: int
    attempt: int
    fault: str | None
    harm: Harm
    steps: int

    def build(self) -> tuple[Training, Truth | None]:
        site, truth = draw(self.seed, self.index, self.attempt, self.fault)
        return site.training(), truth

    @functools.cached_property
    def draft(self) -> Draft:
        return draw(self.seed, self.index, self.attempt, self.fault)[0].draft

    @property
    def name(self) -> str:
        return f"{self.seed}:{self.index}"


def dealt(names: list[str], number: int) -> str:
    """Like cards: shuffled, given out one by one, shuffled again; so that each comes as often."""
    cards = list(names)
    random.Random(f"deal {number // len(cards)}").shuffle(cards)
    return cards[number % len(cards)]


def fault_of(seed: int, index: int, retry: int = 0) -> str | None:
    if index % HEALTHY_EVERY == HEALTHY_EVERY - 1:
        return None
    number = PER_SEED * (HEALTHY_EVERY - 1) * seed + index - index // HEALTHY_EVERY
    return dealt([fault.name for fault in FAULTS], number + 17 * retry)


def architecture_of(seed: int, index: int, attempt: int, fault: str | None) -> str | None:
    """Of a healthy run, another one after ATTEMPTS in vain; the others take whatever their fault fits."""
    number = PER_SEED * seed + index // HEALTHY_EVERY + 7 * (attempt // ATTEMPTS)
    return None if fault else dealt(list(ARCHITECTURES), number)


def draw(seed: int, index: int, attempt: int, fault: str | None) -> tuple[Site, Truth | None]:
    site = staged(seed, index, attempt, fault)
    return site, BY_NAME[fault].put_in(site) if fault else None


def staged(seed: int, index: int, attempt: int, fault: str | None) -> Site:
    """The draw, before the fault is put in."""
    rng = random.Random(f"{seed} {index} {attempt}")
    draft = draw_draft(rng, architecture_of(seed, index, attempt, fault))
    if fault:
        while not BY_NAME[fault].fits(draft):
            draft = draw_draft(rng)
        BY_NAME[fault].stage(draft, rng)
    return Site(draft, rng)


def attempted(seed: int, index: int, attempt: int, fault: str | None) -> tuple[Program | None, str]:
    """The program, or why it is none."""
    plain = staged(seed, index, attempt, fault)
    steps = plain.recipe.steps
    twin = measure(plain.training())
    reason = healthy(twin)
    if reason:
        return None, f"healthy run: {reason}"
    if not fault:
        return Program(seed, index, attempt, None, Harm("", learnt=(twin.ratio, twin.ratio)), steps), ""
    site, truth = draw(seed, index, attempt, fault)
    run = measure(site.training())
    found = harm(run, twin, truth, BY_NAME[fault].lost)
    reason = contradiction(truth, run, found)
    if reason:
        return None, reason
    if found.first_bad is not None:
        steps = min(steps, found.first_bad + AFTER + 4)
    return Program(seed, index, attempt, fault, found, steps), ""


def contradiction(truth: Truth, run: Measured, found: Harm) -> str:
    """Why the truth cannot be what happened."""
    if not found.kind:
        return f"no harm (lost {found.value:.2f})"
    if found.first_bad is not None and found.first_bad < truth.onset:
        return f"not finite in step {found.first_bad}, before the fault of step {truth.onset}"
    if not truth.diffuse and found.visible is not None and found.visible > truth.onset + 3:
        return f"harm in step {found.visible}, long after the fault of step {truth.onset}"
    return ""


def search(seed: int, index: int) -> Program:
    for retry in range(len(FAULTS)):
        fault = fault_of(seed, index, retry)
        first = 0 if fault else retry * ATTEMPTS
        for attempt in range(first, first + ATTEMPTS):
            program, _ = attempted(seed, index, attempt, fault)
            if program:
                return program
    raise Unfit(f"{seed}:{index}")


CACHE = Path(__file__).resolve().parents[2] / "build" / "accuracy"


@functools.cache
def sources() -> str:
    """Changes whenever the generator does."""
    digest, here = hashlib.sha256(), Path(__file__).parent
    beside = {here / name for name in ("__init__.py", "__main__.py", "generate.py", "score.py", "test_accuracy.py")}
    for path in sorted(set(here.rglob("*.py")) - beside):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def program(seed: int, index: int) -> Program:
    """Searched for once, then remembered in build/accuracy."""
    path = CACHE / f"{sources()}-{seed}-{index}.json"
    if path.exists():
        stored = json.loads(path.read_text())
        return Program(**stored | {"harm": Harm(**stored["harm"])})
    found = search(seed, index)
    CACHE.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(found)))
    return found
