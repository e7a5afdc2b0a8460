"""`firstfault run` beside the same command without it."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

BUILD = Path(os.environ.get("FIRSTFAULT_BUILD", Path(__file__).parents[2] / "build"))
RUN = [sys.executable, "-m", "firstfault", "run"]


@dataclass
class Ended:
    """How a program ended; `ours` are the lines of firstfault's own."""

    code: int
    stdout: str
    stderr: str
    ours: list[str]


def ended(process: subprocess.CompletedProcess) -> Ended:
    lines = process.stderr.splitlines(keepends=True)
    ours = [line for line in lines if line.startswith("firstfault: ")]
    theirs = "".join(line for line in lines if line not in ours)
    return Ended(process.returncode, process.stdout, theirs, ours)


@pytest.fixture
def run(tmp_path):
    """run(command...): the command in a folder of its own, to its end."""

    def call(*command, stdin="", env=None):
        return ended(
            subprocess.run(
                list(map(str, command)),
                input=stdin,
                capture_output=True,
                text=True,
                timeout=120,
                cwd=tmp_path,
                env={**os.environ, **(env or {})},
            )
        )

    return call


@pytest.fixture
def both(run):
    """both(arguments...): `python arguments…` and `firstfault run arguments…`, which must end alike."""

    def call(*arguments, stdin="", env=None):
        plain = run(sys.executable, *arguments, stdin=stdin, env=env)
        watched = run(*RUN, *arguments, stdin=stdin, env=env)
        assert (watched.code, watched.stdout, watched.stderr) == (plain.code, plain.stdout, plain.stderr)
        assert plain.ours == []
        return watched

    return call
