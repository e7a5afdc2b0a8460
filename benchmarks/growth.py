"""Does a trace grow? The cost of an op early and late in one long trace, and the memory of 6,000 traced Adam steps.

python benchmarks/growth.py [--ops 10000000] [--steps 6000] [--quick]
"""

from __future__ import annotations

import argparse
import resource
import statistics
import time
from typing import TYPE_CHECKING

import observers
import torch
import works
from measure import describe_machine
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Iterator

OPS_PER_ROUND = 4
WINDOW = 250  # rounds


def nanoseconds_per_op(rounds: int, a: torch.Tensor, b: torch.Tensor) -> float:
    begin = time.thread_time_ns()
    for _ in range(rounds):
        h = torch.relu(a * b + a)
        h.sum()
    return (time.thread_time_ns() - begin) / (rounds * OPS_PER_ROUND)


def schedule(total: int, windows: int) -> Iterator[tuple[int, int, bool]]:
    """(traced ops so far, rounds, observed): short windows at 1e3, 1e4, … ops, and what lies between them."""
    seen, mark = 0, 1000
    while mark <= total:
        if seen < mark:
            yield -1, (mark - seen) // OPS_PER_ROUND, True
        for _ in range(windows):
            yield mark, WINDOW, False
            yield mark, WINDOW, True
        seen = mark + windows * WINDOW * OPS_PER_ROUND
        while mark < seen:
            mark *= 10


def report_ops(total: int, windows: int) -> None:
    a, b = torch.randn(64), torch.randn(64)
    plain: dict[int, list[float]] = {}
    traced: dict[int, list[float]] = {}
    with observers.TraceWithStacks(torch.nn.Linear(2, 2)) as trace:
        for mark, rounds, observed in schedule(total, windows):  # one place in the program: a trace learns places
            trace.on() if observed else trace.off()
            times = traced if observed else plain
            times.setdefault(mark, []).append(nanoseconds_per_op(rounds, a, b))
    print(f"{'op number':>12} {'plain, ns':>10} {'traced, ns':>11} {'ratio':>6}")
    for mark in plain:
        before, after = statistics.median(plain[mark]), statistics.median(traced[mark])
        print(f"{mark:>12,} {before:>10.0f} {after:>11.0f} {after / before:>6.2f}")


def resident_kilobytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() // 1024


def report_memory(steps: int) -> None:
    torch.manual_seed(0)
    model, x, y = works.mlp(32, 64, 10), torch.randn(32, 32), torch.randint(10, (32,))
    optimizer = torch.optim.Adam(model.parameters())
    marks = [0, *(steps * part // 8 for part in (1, 2, 4, 6, 8))]
    settled = 0
    with observers.TraceWithStacks(model):
        for step in range(steps + 1):
            if step in marks:
                resident = resident_kilobytes()
                settled = resident if step == marks[2] else settled
                since = f", {resident - settled:+,} since step {marks[2]:,}" if step > marks[2] else ""
                print(f"step {step:>6,}: {resident:>8,} KiB resident{since}", flush=True)
            optimizer.zero_grad()
            functional.cross_entropy(model(x), y).backward()
            optimizer.step()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ops", type=int, default=10_000_000, help="length of the trace of single ops")
    parser.add_argument("--steps", type=int, default=6_000, help="length of the trace of Adam steps")
    parser.add_argument("--quick", action="store_true", help="a short run, to see that everything runs")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(describe_machine())
    report_ops(20_000 if options.quick else options.ops, 5 if options.quick else 100)
    report_memory(80 if options.quick else options.steps)


if __name__ == "__main__":
    main()
