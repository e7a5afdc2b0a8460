"""What a guard costs while nothing is wrong: whole steps of training with clipping, guarded and not."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import sys
from typing import TYPE_CHECKING

import observers
import peers
import torch
import works
from measure import CLOCKS, Plan, compare, describe_machine

if TYPE_CHECKING:
    from collections.abc import Callable

    from works import Work

MAX_NORM = 1.0
LEVELS = ("gradients", "modules", "ops")


def torch_clip(work: Work) -> Callable[[], None]:
    parameters = list(work.model.parameters())
    work.optimizer.register_step_pre_hook(
        lambda *_: torch.nn.utils.clip_grad_norm_(parameters, MAX_NORM) and None,
    )
    return lambda: None


def watch(work: Work, level: str) -> Callable[[], None]:
    import firstfault

    return firstfault.watch(work.model, work.optimizer, level=level).close


def guard(work: Work, **options: object) -> Callable[[], None]:
    import firstfault

    guarding = firstfault.guard(work.model, work.optimizer, max_norm=MAX_NORM, on_fault="skip", **options)
    train_step = work.step
    work.step = lambda: guarding.step(train_step)
    return guarding.close


def rows() -> dict[str, Callable[[Work], Callable[[], None]]]:
    table = {"torch clip_grad_norm_": torch_clip}
    for level in LEVELS:
        table[f"Watch, {level}"] = functools.partial(watch, level=level)
        table[f"Guard with clipping, {level}"] = functools.partial(guard, level=level)
    table['Guard, undo="step", gradients'] = functools.partial(guard, level="gradients", undo="step")
    return table | peers.installed(peers.GUARDS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", default="", help="only works whose name contains this")
    parser.add_argument("--row", default="", help="only rows whose name contains this")
    parser.add_argument("--quick", action="store_true", help="a few steps, to see that everything runs")
    parser.add_argument("--steps", type=int, default=200, help="guarded steps per figure, at least")
    parser.add_argument("--clock", choices=sorted(CLOCKS), default="thread", help="CPU time or wall time")
    options = parser.parse_args()
    torch.set_num_threads(1)
    plan = Plan(steps=options.steps, clock=options.clock)
    if options.quick:
        plan = dataclasses.replace(plan, warm_up=3, steps=4, seconds=0, block_seconds=0)
    print(f"{describe_machine()}; {options.clock} time; ratios to the same step without tool and clipping")
    print("| work | with | plain, ms | ratio | page faults |\n| --- | --- | --- | --- | --- |")
    for width in (128, 512):
        title = f"GPT 4 layers d={width}, AdamW step"
        for name, attach in rows().items():
            if options.case not in title or options.row not in name:
                continue
            with_tool = observers.Twin(functools.partial(works.gpt_step, width), attach)
            one = compare(with_tool.work, with_tool, plan)
            faults = f"{one.plain_faults:.1f} / {one.observed_faults:.1f}"
            print(f"| {title} | {name} | {one.plain_ms:.2f} | {one.ratio:.3f} ±{one.error:.3f} | {faults} |")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
