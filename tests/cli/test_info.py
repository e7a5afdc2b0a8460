"""The `firstfault` program, as a user starts it."""

import os
import subprocess
import sys

import firstfault as ff


def run(*arguments, **env):
    command = [sys.executable, "-m", "firstfault", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **env})


def test_info_traces_one_op_to_see_that_tracing_works():
    done = run("info")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"firstfault {ff.__version__}" in done.stdout
    assert "log of 0 is -Inf" in done.stdout


def test_info_says_when_the_environment_has_switched_it_off():
    done = run("info", FIRSTFAULT="0")
    assert (done.returncode, "switched off by FIRSTFAULT=0" in done.stdout) == (2, True)


def test_no_command_is_an_error_that_lists_them():
    done = run()
    assert done.returncode == 2 and "info" in done.stderr


def test_importing_the_package_does_not_import_torch():
    code = "import sys, firstfault; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
