"""The pages of the rules."""

import subprocess
import sys


def test_the_pages_of_the_documentation_are_those_made_from_the_source():
    done = subprocess.run([sys.executable, "-m", "tools.rule_pages", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
