"""What a trace costs: steps of training observed and not, beside the tools people use today.

python benchmarks/trace_overhead.py [--case gpt] [--json FILE] [--markdown] [--quick]
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import observers
import torch
import works
from measure import CLOCKS, Plan, Reading, compare, describe_machine

if TYPE_CHECKING:
    from collections.abc import Callable

TRACE, STACKS = observers.Trace, observers.TraceWithStacks
SHERLORCH, ANOMALY = observers.Sherlorch, observers.DetectAnomaly


@dataclass
class Case:
    name: str
    make: Callable[[], works.Work]
    targets: dict[type[observers.Observer], float]  # at most; who has none here is not measured
    peers: tuple[type[observers.Observer], ...]
    readings: dict[str, Reading] = field(default_factory=dict)

    def target_of(self, name: str) -> float | None:
        return next((target for kind, target in self.targets.items() if kind.name == name), None)


def all_cases() -> list[Case]:
    cases = []
    for width, plain, stacks in ((64, 1.20, 1.25), (256, 1.07, 1.09), (1024, 1.02, 1.02)):
        make = lambda width=width: works.attention_forward(width)  # noqa: E731
        cases.append(Case(f"attention block d={width}, forward", make, {TRACE: plain, STACKS: stacks}, (SHERLORCH,)))
    for width, stacks in ((64, 1.25), (256, 1.08), (1024, 1.05)):
        make = lambda width=width: works.attention_step(width)  # noqa: E731
        cases.append(Case(f"attention block d={width}, SGD step", make, {STACKS: stacks}, (SHERLORCH, ANOMALY)))
    for width, plain, stacks in ((128, 1.05, 1.08), (512, 1.03, 1.04)):
        make = lambda width=width: works.gpt_step(width)  # noqa: E731
        targets = {TRACE: plain, STACKS: stacks}
        cases.append(Case(f"GPT 4 layers d={width}, AdamW step", make, targets, (SHERLORCH, ANOMALY)))
    cases.append(Case("MLP 64-256-256-10, forward", works.mlp_forward, {TRACE: 1.25}, (ANOMALY,)))
    return cases


def measure(case: Case, plan: Plan, short: Plan, check_plain: bool) -> None:
    work = case.make()
    kinds: list[type[observers.Observer]] = [observers.EmptyCallback, *case.targets, *case.peers]
    if check_plain:
        kinds.append(observers.HeldTrace)
    for kind in kinds:
        print(f"  {case.name}: {kind.name} … ", end="", file=sys.stderr, flush=True)
        reading = compare(work, kind(work.model), plan if kind in case.targets else short)
        print(f"{reading.ratio:.3f} ±{reading.error:.3f}, {reading.steps} steps", file=sys.stderr)
        case.readings[kind.name] = reading


def cell(case: Case, name: str) -> str:
    reading = case.readings.get(name)
    if reading is None:
        return "-"
    target = case.target_of(name)
    if target is None:
        return f"{reading.ratio:.2f}"
    verdict = "met" if reading.ratio <= target else "missed"
    return f"{reading.ratio:.3f} ±{reading.error:.3f} (≤ {target:.2f}: {verdict})"


def faults(case: Case) -> str:
    """Page faults per step, plain and observed, of the last of our variants."""
    own = [case.readings[kind.name] for kind in case.targets]
    return f"{own[-1].plain_faults:.1f} / {own[-1].observed_faults:.1f}"


HEAD = ("work", "plain, ms", "empty callback", TRACE.name, STACKS.name, SHERLORCH.name, ANOMALY.name, "page faults")


def rows(cases: list[Case]) -> list[tuple[str, ...]]:
    table = [HEAD]
    for case in cases:
        plain = case.readings[next(iter(case.targets)).name].plain_ms
        ratios = (cell(case, name) for name in HEAD[2:7])
        table.append((case.name, f"{plain:.3f}", *ratios, faults(case)))
    return table


def print_table(table: list[tuple[str, ...]], markdown: bool) -> None:
    if markdown:
        table = [table[0], tuple("---" for _ in HEAD), *table[1:]]
        for row in table:
            print("| " + " | ".join(row) + " |")
        return
    widths = [max(len(row[column]) for row in table) for column in range(len(HEAD))]
    for row in table:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())


def to_json(case: Case) -> dict:
    readings = {
        name: {**dataclasses.asdict(reading), "target": case.target_of(name)} for name, reading in case.readings.items()
    }
    return {"work": case.name, "readings": readings}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", action="append", default=[], help="only works whose name contains this; repeatable")
    parser.add_argument("--quick", action="store_true", help="a few steps, to see that everything runs")
    parser.add_argument("--steps", type=int, default=200, help="observed steps per figure, at least")
    parser.add_argument("--seconds", type=float, default=3.0, help="of observed work per figure, at least")
    parser.add_argument("--clock", choices=sorted(CLOCKS), default="thread", help="CPU time or wall time")
    parser.add_argument("--check-plain", action="store_true", help="also compare plain blocks with no trace at all")
    parser.add_argument("--json", metavar="FILE", help="write all readings there ('-': standard output, no table)")
    parser.add_argument("--markdown", action="store_true", help="print the table for a document")
    return parser.parse_args()


def main() -> None:
    options = parse()
    torch.set_num_threads(1)
    cases = [case for case in all_cases() if all(part.lower() in case.name.lower() for part in options.case)]
    if not cases:
        sys.exit(f"no work is called {' '.join(options.case)!r}; there are: {', '.join(c.name for c in all_cases())}")
    plan = Plan(steps=options.steps, seconds=options.seconds, clock=options.clock)
    short = dataclasses.replace(plan, warm_up=10, steps=options.steps // 5, seconds=options.seconds / 2)
    if options.quick:
        plan = short = Plan(warm_up=3, steps=4, seconds=0, block_seconds=0, clock=options.clock)
    for case in cases:
        measure(case, plan, short, options.check_plain)
    if options.json:
        text = json.dumps([to_json(case) for case in cases], indent=1)
        if options.json == "-":
            print(text)
            return
        with open(options.json, "w") as file:
            file.write(text + "\n")
    if not options.markdown:
        print(f"{describe_machine()}; {options.clock} time; ratios to the same step without the tool")
    print_table(rows(cases), options.markdown)
    if options.check_plain:
        for case in cases:
            reading = case.readings[observers.HeldTrace.name]
            print(f"{case.name}: plain in a held trace / without one: {reading.ratio:.3f} ±{reading.error:.3f}")


if __name__ == "__main__":
    main()
