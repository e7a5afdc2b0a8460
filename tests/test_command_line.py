"""The program `firstfault`, run as a person runs it."""

import importlib.metadata
import json
import os
import subprocess
import sys

import pytest

import firstfault as ff


def firstfault(*arguments, **env):
    command = [sys.executable, "-m", "firstfault", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **env})


def test_version_is_that_of_the_installed_package():
    assert firstfault("--version").stdout == f"firstfault {importlib.metadata.version('firstfault')}\n"


def test_mechanisms_are_listed_with_their_conditions():
    lines = [line.strip() for line in firstfault("mechanisms").stdout.splitlines()]
    assert any(line.startswith("log_of_nonpositive ") for line in lines)
    listed = json.loads(firstfault("mechanisms", "--json").stdout)
    assert [row["name"] for row in listed] == [line.split()[0] for line in lines]
    assert all(row["condition"] for row in listed)


@pytest.mark.parametrize("arguments", [(), ("nonsense",)])
def test_without_a_known_command_it_says_how_it_is_used(arguments):
    result = firstfault(*arguments)
    assert result.returncode == 2
    assert "Run with --help for more information." in result.stderr
    assert "Traceback" not in result.stderr


def test_info_traces_one_op_to_see_that_tracing_works():
    done = firstfault("info")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"firstfault {ff.__version__}" in done.stdout
    assert "log of 0 is -Inf" in done.stdout


def test_info_says_when_the_environment_has_switched_it_off():
    done = firstfault("info", FIRSTFAULT="0")
    assert (done.returncode, "switched off by FIRSTFAULT=0" in done.stdout) == (2, True)


def test_importing_the_package_does_not_import_torch():
    code = "import sys, firstfault; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
