"""Plain and observed blocks of steps, taken in turn; ratios of neighbours, and their median."""

from __future__ import annotations

import math
import resource
import statistics
import time
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from observers import Observer
    from works import Work

CLOCKS = {"thread": time.thread_time_ns, "wall": time.perf_counter_ns}


@dataclass
class Plan:
    warm_up: int = 50
    steps: int = 200  # observed ones, at least
    seconds: float = 3.0  # of observed work, at least
    block_seconds: float = 0.02
    clock: str = "thread"


@dataclass
class Reading:
    plain_ms: float
    ratio: float
    error: float  # standard error of the ratio
    plain_faults: float  # minor page faults per step
    observed_faults: float
    steps: int  # observed ones


@dataclass
class Block:
    nanoseconds: float
    faults: int


def run_block(step: Callable[[], None], steps: int, clock: Callable[[], int]) -> Block:
    faults = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
    begin = clock()
    for _ in range(steps):
        step()
    nanoseconds = clock() - begin
    return Block(nanoseconds, resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - faults)


@dataclass
class Turns:
    """How many rounds of a plain and an observed block. All run from one place in the program, as training loops do."""

    warm_up: int
    counted: int
    size: int  # steps of a block


def run_turns(work: Work, observer: Observer, turns: Turns, clock: Callable[[], int]) -> list[list[Block]]:
    """[plain blocks, observed blocks]; every other round begins with the observed one."""
    blocks: list[list[Block]] = [[], []]
    for index in range(-turns.warm_up, turns.counted):
        for observed in (index % 2 == 0, index % 2 == 1):
            if index < 0 and not observed:
                continue
            if observed:
                observer.on()
            block = run_block(work.step, turns.size, clock)
            if observed:
                observer.off()
            if index >= 0:
                blocks[observed].append(block)
    return blocks


def plan_turns(work: Work, plan: Plan, clock: Callable[[], int]) -> Turns:
    steps = max(2, plan.warm_up // 5)
    run_block(work.step, steps, clock)
    seconds = run_block(work.step, steps, clock).nanoseconds / 1e9 / steps
    size = max(1, min(100, round(plan.block_seconds / seconds)))
    counted = math.ceil(max(plan.steps, plan.seconds / seconds) / size)
    return Turns(math.ceil(plan.warm_up / size), counted + counted % 2, size)


def median_error(values: list[float]) -> float:
    """Standard error of the median, from the middle half of the values."""
    if len(values) < 4:
        return math.nan
    low, _, high = statistics.quantiles(values, n=4)
    return 1.2533 * (high - low) / 1.349 / math.sqrt(len(values))


def compare(work: Work, observer: Observer, plan: Plan) -> Reading:
    clock = CLOCKS[plan.clock]
    turns = plan_turns(work, plan, clock)
    with warnings.catch_warnings(), observer:
        warnings.simplefilter("ignore")
        blocks = run_turns(work, observer, turns, clock)
    ratios = [observed.nanoseconds / plain.nanoseconds for plain, observed in zip(*blocks, strict=True)]
    steps = turns.size * len(ratios)
    return Reading(
        plain_ms=statistics.median(block.nanoseconds for block in blocks[0]) / turns.size / 1e6,
        ratio=statistics.median(ratios),
        error=median_error(ratios),
        plain_faults=sum(block.faults for block in blocks[0]) / steps,
        observed_faults=sum(block.faults for block in blocks[1]) / steps,
        steps=steps,
    )


def describe_machine() -> str:
    model = "unknown CPU"
    with open("/proc/cpuinfo") as lines:
        for line in lines:
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    return f"{model}, one thread, torch {torch.__version__}"
