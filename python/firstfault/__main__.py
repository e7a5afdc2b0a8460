"""The `firstfault` program of the Python package: the native one, and what needs Python."""

from __future__ import annotations

import contextlib
import os
import platform
import signal
import sys
from pathlib import Path

from firstfault import __version__, _core


def info() -> int:
    """Print what a bug report needs; exit code 0: tracing works here, 2: it does not."""
    print(f"firstfault {__version__}")
    print(f"Python     {platform.python_version()} on {platform.system()} {platform.machine()}")
    try:
        import torch

        print(f"torch      {torch.__version__} in {os.path.dirname(torch.__file__)}")
        from firstfault import trace

        with trace() as tracker:
            bad = torch.log(torch.zeros(1))
        if os.environ.get("FIRSTFAULT") == "0":
            print("tracing    switched off by FIRSTFAULT=0 in the environment")
            return 2
        print(f"tracing    works: {tracker.diagnose(bad).culprits[0].because}")
        return 0
    except Exception as error:
        print(f"tracing    does not work: {type(error).__name__}: {error}")
        return 2


def interpreter_flags() -> list[str]:
    """What stood between `python` and `-m firstfault`, or the path of this program."""
    given = sys.orig_argv[1 : len(sys.orig_argv) - len(sys.argv) + 1]
    flags, last = given[:-1], "".join(given[-2:-1])  # without the module or the path
    if last.startswith("-") and last.endswith("m"):  # -m, or -Bm
        return [*flags[:-1], last[:-1]] if len(last) > 2 else flags[:-1]
    return flags


def native(arguments: list[str]) -> int:
    """The program in C++, as if it had been started itself: it dies of signals, and `run` replaces the process."""
    sys.stdout.flush()
    with contextlib.suppress(ValueError):  # not the main thread
        for ended_by in (signal.SIGINT, signal.SIGPIPE):
            signal.signal(ended_by, signal.SIG_DFL)
    python = [sys.executable, *interpreter_flags()]
    bootstrap = Path(__file__).with_name("_bootstrap")
    return _core.main([os.fsencode(one) for one in arguments], [os.fsencode(one) for one in python], bytes(bootstrap))


def asks_for_parquet(arguments: list[str]) -> bool:
    given = "\0".join(arguments)
    return "--format=parquet" in given or "--format\0parquet" in given


def main(arguments: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    command = arguments[0] if arguments else ""
    if command == "info" and len(arguments) == 1:
        return info()
    if command == "run" and (sys.flags.ignore_environment or sys.flags.no_site):
        print("firstfault: run: not under python -E, -I or -S, which hide firstfault from the script", file=sys.stderr)
        return 2
    if command == "export" and asks_for_parquet(arguments):
        from firstfault import _parquet

        return _parquet.export(arguments[1:])
    return native(arguments)


if __name__ == "__main__":
    sys.exit(main())
