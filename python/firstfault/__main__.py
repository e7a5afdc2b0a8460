"""The program ``firstfault``."""

from __future__ import annotations

import argparse
import json
import sys

from firstfault import __version__, _core


def list_mechanisms(as_json: bool) -> None:
    rows = _core.mechanisms()
    if as_json:
        print(json.dumps([{"name": name, "condition": condition} for name, condition in rows], indent=2))
        return
    width = max(len(name) for name, _ in rows)
    for name, condition in rows:
        print(f"{name:<{width}}  {condition}")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="firstfault", description="Names the operation that made the first NaN or Inf of a training run, and why."
    )
    parser.add_argument("--version", action="version", version=f"firstfault {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    mechanisms = commands.add_parser("mechanisms", help="list what an operation can be found guilty of")
    mechanisms.add_argument("--json", action="store_true", help="as JSON")
    options = parser.parse_args(arguments)
    list_mechanisms(options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
