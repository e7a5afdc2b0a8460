"""What watching a run costs: whole steps of training, watched and not.

python benchmarks/watch_overhead.py [--case d=128] [--level ops] [--quick] [--markdown]
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import sys

import observers
import peers
import torch
import works
from measure import CLOCKS, Plan, Reading, compare, describe_machine

LEVELS = {kind.name: kind for kind in (observers.WatchGradients, observers.WatchModules, observers.WatchOps)}
TARGETS = {"modules": {128: 1.04, 512: 1.02}, "ops": {128: 1.10, 512: 1.05}}


@dataclasses.dataclass
class Row:
    work: str
    name: str
    reading: Reading
    target: float | None

    def cells(self) -> list[str]:
        one = self.reading
        aim = "-" if self.target is None else f"≤ {self.target:.2f}: {'met' if one.ratio <= self.target else 'missed'}"
        ratio = f"{one.ratio:.3f} ±{one.error:.3f}"
        pages = f"{one.plain_faults:.1f} / {one.observed_faults:.1f}"
        return [self.work, self.name, f"{one.plain_ms:.2f}", ratio, aim, pages]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", default="", help="only works whose name contains this")
    parser.add_argument("--level", action="append", choices=LEVELS, help="only these; repeatable")
    parser.add_argument("--quick", action="store_true", help="a few steps, to see that everything runs")
    parser.add_argument("--steps", type=int, default=200, help="watched steps per figure, at least")
    parser.add_argument("--clock", choices=sorted(CLOCKS), default="thread", help="CPU time or wall time")
    parser.add_argument("--markdown", action="store_true", help="print the table for a document")
    options = parser.parse_args()
    torch.set_num_threads(1)
    plan = Plan(steps=options.steps, clock=options.clock)
    if options.quick:
        plan = Plan(warm_up=3, steps=4, seconds=0, block_seconds=0, clock=options.clock)
    rows = []
    for width in (128, 512):
        title = f"GPT 4 layers d={width}, AdamW step"
        if options.case not in title:
            continue
        work = works.gpt_step(width)
        rows.append(Row(title, "empty callback", compare(work, observers.EmptyCallback(work.model), plan), None))
        for level in options.level or LEVELS:
            reading = compare(work, LEVELS[level](work.model, work.optimizer), plan)
            rows.append(Row(title, level, reading, TARGETS.get(level, {}).get(width)))
            print("  ".join(rows[-1].cells()), file=sys.stderr)
        for name, attach in [] if options.level else peers.installed(peers.WATCHERS).items():
            other = observers.Twin(functools.partial(works.gpt_step, width), attach)
            fewer = dataclasses.replace(plan, steps=max(4, plan.steps // 5))
            rows.append(Row(title, name, compare(other.work, other, fewer), None))
            print("  ".join(rows[-1].cells()), file=sys.stderr)
    print(f"{describe_machine()}; {options.clock} time; ratios to the same step without the tool")
    head = ["work", "watched", "plain, ms", "ratio", "goal", "page faults"]
    table = [head, ["---"] * len(head), *(row.cells() for row in rows)] if options.markdown else [head]
    for cells in table if options.markdown else [head, *(row.cells() for row in rows)]:
        print("| " + " | ".join(cells) + " |" if options.markdown else "  ".join(cells))


if __name__ == "__main__":
    main()
