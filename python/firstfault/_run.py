"""The watch of a script that `firstfault run` started; begun by _bootstrap/sitecustomize.py."""

from __future__ import annotations

import atexit
import os
import sys

from firstfault import _core


class WatchedScript:
    """From the script's import of torch to its end."""

    def __init__(self, watch, path: str, quiet: bool):
        self.watch = watch
        self.path = path
        self.quiet = quiet
        self.process = os.getpid()

    def finish(self) -> None:
        """Close the run file and say in one line what came out; in a forked child, nothing."""
        if os.getpid() != self.process:
            return
        try:
            # Set by an exception that nobody caught.
            self.watch.close(state="died" if getattr(sys, "last_type", None) else "complete")
            say(f"{_core.verdict(self.path)}; more: firstfault explain {shown(self.path)}", self.quiet)
        except Exception as error:
            say(f"the run file could not be finished: {type(error).__name__}: {error}", self.quiet)


def start(path: str, level: str | None, quiet: bool) -> WatchedScript:
    """Watch every model and optimizer of this process from now on."""
    from firstfault import _watch

    os.makedirs(os.path.dirname(path), exist_ok=True)
    watch = _watch.watch_process(run_file=path, level=level)
    atexit.unregister(watch.close)  # finish() comes later, and knows how the script ended
    return WatchedScript(watch, path, quiet)


def shown(path: str) -> str:
    """As short as it can be typed from here."""
    try:
        relative = os.path.relpath(path)
    except OSError:  # the current folder is gone
        return path
    return path if relative.startswith("..") else relative


def say(text: str, quiet: bool) -> None:
    if not quiet:
        print(f"firstfault: {text}", file=sys.stderr, flush=True)
