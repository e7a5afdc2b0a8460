"""The program `firstfault`, run as a person runs it."""

import importlib.metadata
import json
import subprocess
import sys

import pytest


def firstfault(*arguments):
    return subprocess.run([sys.executable, "-m", "firstfault", *arguments], capture_output=True, text=True)


def test_version_is_that_of_the_installed_package():
    assert firstfault("--version").stdout == f"firstfault {importlib.metadata.version('firstfault')}\n"


def test_mechanisms_are_listed_with_their_conditions():
    lines = firstfault("mechanisms").stdout.splitlines()
    assert any(line.startswith("log_of_nonpositive ") for line in lines)
    listed = json.loads(firstfault("mechanisms", "--json").stdout)
    assert [row["name"] for row in listed] == [line.split()[0] for line in lines]
    assert all(row["condition"] for row in listed)


@pytest.mark.parametrize("arguments", [(), ("nonsense",)])
def test_without_a_known_command_it_says_how_it_is_used(arguments):
    result = firstfault(*arguments)
    assert result.returncode == 2
    assert "usage: firstfault" in result.stderr
    assert "Traceback" not in result.stderr
