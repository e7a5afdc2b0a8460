"""The watch of a script that `firstfault run` started; begun by _bootstrap/sitecustomize.py."""

from __future__ import annotations

import atexit
import itertools
import os
import sys

from firstfault import _core


class WatchedScript:
    """From the script's import of torch to its end."""

    def __init__(self, watch, path: str, quiet: bool):
        self.watch = watch
        self.change: ChangedScript | None = None
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
            if self.change is not None:
                self.change.end()
            say(f"{_core.verdict(self.path)}; more: firstfault explain {shown(self.path)}", self.quiet)
        except Exception as error:
            say(f"the run file could not be finished: {type(error).__name__}: {error}", self.quiet)


def start(path: str, level: str | None, quiet: bool, change: str = "", steps: int = 0) -> WatchedScript:
    """Watch every model and optimizer of this process from now on.

    change: name, divisor of the learning rate and warm-up of a change that it is run with, separated by blanks;
    steps: of the watch, after which it ends.
    """
    from firstfault import _watch

    os.makedirs(os.path.dirname(path), exist_ok=True)
    watch = _watch.watch_process(run_file=path, level=level)
    atexit.unregister(watch.close)  # finish() comes later, and knows how the script ended
    script = WatchedScript(watch, path, quiet)
    if change:
        script.change = ChangedScript(path, *change.split(" "))
    if steps > 0:
        _end_after(steps, script)
    return script


class ChangedScript:
    """One thing is changed for the whole of this process."""

    def __init__(self, path: str, name: str, divisor: str, warm_up: str) -> None:
        """``path``: of the run file; beside it a file is left where there is nothing to change."""
        from firstfault._changes import ProcessChanges

        self._path = path
        self._context = ProcessChanges().of(name, int(divisor), int(warm_up))
        if self._context is None:
            self._leave_word()
            os._exit(0)
        self._applied = self._context.__enter__()

    def end(self) -> None:
        if not self._applied.used:
            self._leave_word()

    def _leave_word(self) -> None:
        with open(f"{self._path}.unused", "w"):
            pass


def _end_after(steps: int, script: WatchedScript) -> None:
    from torch.optim.optimizer import register_optimizer_step_post_hook

    made = itertools.count(1)  # each optimizer's step is one of the watch

    def count(*_: object) -> None:
        if next(made) >= steps and os.getpid() == script.process:
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            script.finish()
            os._exit(0)

    register_optimizer_step_post_hook(count)


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
