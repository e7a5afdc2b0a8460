"""What clipping costs beside torch.nn.utils.clip_grad_norm_, as a ratio: ``python benchmarks/clip.py``."""

from __future__ import annotations

import argparse
import os
import statistics
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from measure import describe_machine, median_error

import firstfault as ff

WORKS = {  # number of gradients, shape: goal where nothing is to be clipped, and where all are
    (60, (512, 512)): (0.55, 0.95),
    (200, (256,)): (0.15, 0.25),
}


def make_parameters(count: int, shape: tuple[int, ...]) -> list[torch.nn.Parameter]:
    parameters = [torch.nn.Parameter(torch.zeros(shape)) for _ in range(count)]
    for parameter in parameters:
        parameter.grad = torch.randn(shape)
    return parameters


def compare(count: int, shape: tuple[int, ...], shrink: float | None, rounds: int) -> tuple[float, list[float]]:
    """Median of torch's time in us; ratios. shrink: each limit is this part of the norm; None: far above it."""
    sides = [(clip, make_parameters(count, shape)) for clip in (torch.nn.utils.clip_grad_norm_, ff.clip_grad_norm_)]
    norm = float(torch.nn.utils.get_total_norm([p.grad for p in sides[0][1]]))
    times: list[list[float]] = [[], []]
    for index in range(-3, rounds):
        limit = 1e9 if shrink is None else norm * shrink ** (index + 4)
        for side in (0, 1) if index % 2 else (1, 0):
            clip, parameters = sides[side]
            begin = time.thread_time_ns()
            clip(parameters, limit)
            if index >= 0:
                times[side].append((time.thread_time_ns() - begin) / 1e3)
    return statistics.median(times[0]), [ours / theirs for theirs, ours in zip(*times, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=0, help="of each work (0: 60 of the large, 400 of the small)")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    print(describe_machine())
    print("\n| gradients | torch, us | nothing to clip | clipped |\n| --- | --- | --- | --- |")
    for (count, shape), goals in WORKS.items():
        rounds = arguments.rounds or (60 if len(shape) > 1 else 400)
        cells = []
        for shrink, goal in zip((None, 0.999), goals, strict=True):
            plain, ratios = compare(count, shape, shrink, rounds)
            ratio = statistics.median(ratios)
            verdict = "met" if ratio <= goal else "missed"
            cells.append((plain, f"{ratio:.3f} ±{median_error(ratios):.3f} (≤ {goal:.2f}: {verdict})"))
        size = " x ".join(map(str, shape))
        print(f"| {count} of {size} | {cells[0][0]:.0f} / {cells[1][0]:.0f} | {cells[0][1]} | {cells[1][1]} |")


if __name__ == "__main__":
    main()
