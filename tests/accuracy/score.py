"""Scores firstfault.watch on generated runs: python -m tests.accuracy --seed 0 --runs 60 [--only 7]."""

from __future__ import annotations

import argparse
import collections
import contextlib
import io
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch

import firstfault as ff

from .program import Program, program
from .truth import DATA, LOOP, LOSS, Place, Truth

BEGIN, END = "<!-- tables -->", "<!-- end of tables -->"
SURE = 0.9
TOLERANCE = 1  # steps, for a fault that shows at once
SLOW_TOLERANCE = 10  # for one that takes many steps to be seen
CAUSE, PLACE, CALIBRATED, CONFIDENT = 0.9, 0.85, 0.9, 0.6  # targets


@dataclass
class Verdict:
    program: Program
    truth: Truth | None
    hypotheses: list = field(default_factory=list)
    events: list = field(default_factory=list)
    raised: str = ""
    seconds: float = 0.0
    players: int = 1

    @property
    def first(self):
        return self.hypotheses[0] if self.hypotheses else None

    @property
    def silent(self) -> bool:
        return not self.hypotheses and not self.events and not self.raised

    @property
    def cause_right(self) -> bool:
        return bool(self.first) and self.first.cause in (self.truth.cause, *self.truth.also)

    @property
    def where_right(self) -> bool:
        return bool(self.first) and any(self.at(place) for place in (self.truth.place, *self.truth.also_at))

    @property
    def place_right(self) -> bool:
        return self.where_right and self.when_right

    def at(self, place: Place) -> bool:
        said = self.first
        if said.sample is not None and place.samples and said.sample not in place.samples:
            return False
        if place.kind == LOOP:
            return self.cause_right  # that is its place
        if place.kind == DATA:
            return said.phase == "data" or said.cause.startswith(("data_", "label_"))
        if place.kind == LOSS:
            return said.module in (None, "", "model") and said.phase not in ("data", "optimizer")
        owner = (said.param or "").rpartition(".")[0]
        return any(same(name, place.names) for name in (said.module, said.param, owner) if name)

    @property
    def when_right(self) -> bool:
        """One of the steps it names lies between the beginning of the cause and the harm that was measured."""
        truth, harm = self.truth, self.program.harm
        tolerance = SLOW_TOLERANCE if truth.diffuse else TOLERANCE
        shown = [step for step in (harm.visible, harm.first_bad) if step is not None]
        last = max(shown, default=self.program.steps if truth.diffuse else truth.onset) + tolerance
        named = [step for step in (self.first.step, self.first.onset_step) if step is not None] if self.first else []
        named += [step // self.players for step in named]  # an update of each player is a step of the tool
        return any(truth.onset - TOLERANCE <= step <= last for step in named)


def same(name: str, names: tuple[str, ...]) -> bool:
    """With or without "model" before it, which is the name of a single one."""
    return name.removeprefix("model.") in {known.removeprefix("model.") for known in names}


def noted(event) -> bool:
    """Transitions back to healthy say that it is over."""
    return event.to_state == "healthy"


def watch(found: Program) -> Verdict:
    training, truth = found.build()
    verdict = Verdict(found, truth, players=len(training.optimizers))
    begun = time.perf_counter()
    models, optimizers = training.task.models, training.optimizers
    alone = len(models) == 1
    run = ff.watch(models["model"] if alone else models, optimizers[0] if alone else optimizers)
    with contextlib.suppress(ValueError), run:  # distributions refuse NaN: the program ends
        for step in range(found.steps):
            loss = training.step(step)
            if training.recipe.reports_loss:
                run.loss(loss)
    verdict.hypotheses = list(run.explain())
    verdict.events = [event for event in run.events() if not noted(event)]
    verdict.seconds = time.perf_counter() - begun
    return verdict


def verdict_of(seed: int, index: int) -> Verdict:
    found = program(seed, index)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            return watch(found)
    except Exception as error:  # the tool's own failures count as wrong answers
        return Verdict(found, found.build()[1], raised=f"{type(error).__name__}: {error}")


def line(verdict: Verdict) -> str:
    found, truth, said = verdict.program, verdict.truth, verdict.first
    head = f"{found.name:6} {found.draft.architecture.name:14}"
    answer = verdict.raised or "-"
    if said:
        place = said.module or said.param or "-"
        answer = f"{said.cause} {said.confidence:.2f} {said.phase} {place} step {said.step}"
    if truth is None:
        return f"{'ok   ' if verdict.silent else 'FALSE'}  {head} healthy: {answer}, {len(verdict.events)} events"
    marks = "".join(
        letter if right else "-"
        for letter, right in zip("cwt", (verdict.cause_right, verdict.where_right, verdict.when_right), strict=True)
    )
    wanted = f"{found.fault}: {truth.cause} {truth.place.kind} {' '.join(truth.place.names[:1])} step {truth.onset}"
    return f"{marks:5}  {head} {wanted} | {answer}"


def counted(what: str, right: int, total: int, target: float) -> tuple[str, str, str, bool]:
    return what, f"{right} of {total}", f"{target:.0%}", right >= target * total


@dataclass
class Score:
    verdicts: list[Verdict]

    def __post_init__(self):
        self.healthy = [v for v in self.verdicts if v.truth is None]
        self.faulty = [v for v in self.verdicts if v.truth is not None]
        self.answered = [v for v in self.faulty if v.first]
        self.right = [v for v in self.faulty if v.cause_right]
        self.sure = [v for v in self.answered if v.first.confidence >= SURE]

    def brier(self) -> float:
        errors = [(v.first.confidence - v.cause_right) ** 2 for v in self.answered]
        return sum(errors) / max(len(errors), 1)

    def numbers(self) -> list[tuple[str, str, str, bool]]:
        """What, how many, the target, whether it is met."""
        n = len(self.faulty)
        place, sure_right = sum(v.place_right for v in self.faulty), sum(v.cause_right for v in self.sure)
        loud = sum(not v.silent for v in self.healthy)
        said, events = sum(len(v.hypotheses) for v in self.healthy), sum(len(v.events) for v in self.healthy)
        noise = f"{loud} of {len(self.healthy)} ({said} hypotheses, {events} events)"
        return [
            ("healthy runs with anything said", noise, "0", loud == 0),
            counted("cause right", len(self.right), n, CAUSE),
            counted("place and step right", place, n, PLACE),
            counted("right among those with confidence >= 0.9", sure_right, len(self.sure), CALIBRATED),
            counted("right answers with confidence >= 0.9", sure_right, len(self.right), CONFIDENT),
            ("Brier score of the first hypothesis", f"{self.brier():.3f} over {len(self.answered)} answers", "", True),
            ("faults without an answer", f"{n - len(self.answered)} of {n}", "", True),
        ]

    def confusions(self) -> list[tuple[str, int, int, int, str]]:
        """Per cause: runs, cause right, place right, what was said instead."""
        rows = []
        for cause in sorted({v.truth.cause for v in self.faulty}):
            those = [v for v in self.faulty if v.truth.cause == cause]
            wrong = collections.Counter(v.first.cause if v.first else "nothing" for v in those if not v.cause_right)
            said = ", ".join(f"{name} {count}" if count > 1 else name for name, count in wrong.most_common())
            rows.append((cause, len(those), sum(v.cause_right for v in those), sum(v.place_right for v in those), said))
        return rows

    def report(self, markdown: bool) -> str:
        if not markdown:
            rows = [f"{what:42} {count:34} target {target or '-':5} {'' if met else 'MISSED'}"
                    for what, count, target, met in self.numbers()]  # fmt: skip
            confusions = self.confusions()
            rows += [
                f"  {cause:26} {n:3} runs, cause {c:3}, place {p:3}   {said}" for cause, n, c, p, said in confusions
            ]
            return "\n".join(rows)
        rows = ["| what | count | target |", "| --- | --- | --- |"]
        rows += [f"| {what} | {count} | {target} |" for what, count, target, _ in self.numbers()]
        rows += ["", "| cause put in | runs | cause right | place and step right | said instead |"]
        rows += ["| --- | --- | --- | --- | --- |"]
        rows += [f"| {cause} | {n} | {c} | {p} | {said} |" for cause, n, c, p, said in self.confusions()]
        return "\n".join(rows)

    @property
    def met(self) -> bool:
        return all(met for *_, met in self.numbers())


def write(path: Path, tables: str) -> None:
    before, _, rest = path.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    if not after:
        raise SystemExit(f"{path} has no {BEGIN} … {END}")
    path.write_text(f"{before}{BEGIN}\n{tables}\n{END}{after}")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.accuracy", description=__doc__)
    parser.add_argument("--seed", type=int, nargs="+", default=[0])
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--only", type=int, help="this run alone, with all that is said about it")
    parser.add_argument("--markdown", action="store_true", help="tables in Markdown")
    parser.add_argument("--write", metavar="FILE", help="put the tables into this file, between its marks")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    verdicts = []
    for seed in options.seed:
        for index in [options.only] if options.only is not None else range(options.runs):
            verdicts.append(verdict_of(seed, index))
            print(line(verdicts[-1]), flush=True, file=sys.stderr if options.markdown else sys.stdout)
    if options.only is not None:
        for verdict in verdicts:
            print(*verdict.hypotheses, *verdict.events, sep="\n")
        return 0
    score = Score(verdicts)
    print(score.report(options.markdown))
    if options.write:
        seeds = ", ".join(map(str, options.seed))
        write(Path(options.write), f"Seeds {seeds}, {options.runs} runs each.\n\n{score.report(markdown=True)}")
    return 0 if score.met else 1


if __name__ == "__main__":
    sys.exit(main())
