"""python -m tests.accuracy.generate --seed 0 --runs 60 --check: the runs and what was measured, without the tool."""

from __future__ import annotations

import argparse
import sys
import time

import torch

from .program import ATTEMPTS, attempted, fault_of, program


def describe(seed: int, index: int) -> str:
    found = program(seed, index)
    _, truth = found.build()
    draft = found.draft
    head = f"{found.name:7} {draft.architecture.name:15} {draft.recipe!s:48} {found.steps:4} steps"
    if truth is None:
        return f"{head}  healthy, learnt to {found.harm.learnt[0]:.2f}"
    place = truth.place.kind + (f" {truth.place.names[0]}" if truth.place.names else "")
    place += f" sample {truth.place.samples[0]}" if truth.place.samples else ""
    harm = found.harm
    measured = f"{harm.kind} {harm.value:.3g}, visible {harm.visible}, learnt {harm.learnt[0]:.2f}"
    return (
        f"{head}  {found.fault} ({truth.note}): {truth.cause} in {place}, step {truth.onset};"
        f" {measured} beside {harm.learnt[1]:.2f}, attempt {found.attempt}"
    )


def attempts(seed: int, index: int) -> None:
    """What was drawn and rejected before."""
    for attempt in range(ATTEMPTS):
        found, reason = attempted(seed, index, attempt, fault_of(seed, index))
        print(f"  attempt {attempt} of {fault_of(seed, index)}: {reason or 'taken'}", flush=True)
        if found:
            return


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.accuracy.generate", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--only", type=int, help="this run alone, with the attempts before it")
    parser.add_argument("--check", action="store_true", help="verify (it is done in any case the first time)")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    for index in [options.only] if options.only is not None else range(options.runs):
        begun = time.perf_counter()
        if options.only is not None:
            attempts(options.seed, index)
        print(describe(options.seed, index), f"({time.perf_counter() - begun:.1f} s)", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
