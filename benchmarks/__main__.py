"""All benchmarks, one after the other, each in a process of its own: ``python -m benchmarks``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
BUILD = Path(os.environ.get("FIRSTFAULT_BUILD", FOLDER.parent / "build"))


def main() -> None:
    commands = [
        ("cost of a trace in Python", [sys.executable, FOLDER / "trace_overhead.py", *sys.argv[1:]]),
        ("cost of a trace in C++", [BUILD / "bin" / "bench_trace_mlp"]),
        ("cost of clipping", [sys.executable, FOLDER / "clip.py"]),
        ("growth", [sys.executable, FOLDER / "growth.py"]),
    ]
    for index, (title, command) in enumerate(commands, 1):
        print(f"\n[{index}/{len(commands)}] {title}", flush=True)
        subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})


if __name__ == "__main__":
    main()
