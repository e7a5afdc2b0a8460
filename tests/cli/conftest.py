"""The program `firstfault`, native and as the Python package's, and run files for it."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

BUILD = Path(os.environ.get("FIRSTFAULT_BUILD", Path(__file__).parents[2] / "build"))
KINDS = ["healthy", "other", "fault", "hostile", "empty", "killed", "guarded"]


@dataclass
class Program:
    command: list[str]

    def __call__(self, *arguments, env=None, cwd=None) -> subprocess.CompletedProcess:
        return subprocess.run(
            [*self.command, *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=60,
            cwd=cwd,
            env={**os.environ, **(env or {})},
        )


def native_program() -> list[str]:
    return [str(BUILD / "bin/firstfault")]


@pytest.fixture
def native() -> Program:
    return Program(native_program())


@pytest.fixture(params=["native", "python"])
def firstfault(request) -> Program:
    return Program(native_program() if request.param == "native" else [sys.executable, "-m", "firstfault"])


def make_run(kind: str, path: Path) -> None:
    made = subprocess.run([BUILD / "bin/make_run", kind, path], capture_output=True, text=True)
    assert made.returncode == (1 if kind == "killed" else 0), made.stderr


@pytest.fixture(scope="session")
def runs(tmp_path_factory) -> dict[str, Path]:
    """A run file of each kind."""
    folder = tmp_path_factory.mktemp("runs")
    for kind in KINDS:
        make_run(kind, folder / f"{kind}.ffrun")
    return {kind: folder / f"{kind}.ffrun" for kind in KINDS}
