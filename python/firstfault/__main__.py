"""The `firstfault` program: whether the tool works here, and what it knows."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys

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


def mechanisms(as_json: bool) -> int:
    """List the mechanisms in the order in which they are asked, with their conditions."""
    known = _core.mechanisms()
    if as_json:
        print(json.dumps(known, indent=2))
    else:
        for one in known:
            print(f"{one['name']:26} {one['condition']}")
    return 0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="firstfault", description="Names the op that made the first NaN or Inf.")
    parser.add_argument("--version", action="version", version=f"firstfault {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("info", help=info.__doc__)
    listing = commands.add_parser("mechanisms", help=mechanisms.__doc__)
    listing.add_argument("--json", action="store_true", help="as a JSON array")
    chosen = parser.parse_args(arguments)
    return info() if chosen.command == "info" else mechanisms(chosen.json)


if __name__ == "__main__":
    sys.exit(main())
