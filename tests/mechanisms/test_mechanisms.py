"""Every mechanism end to end: its programs fire it and nothing else, the healthy ones close by fire nothing."""

import json
import subprocess
import sys

import pytest
import torch

import firstfault as ff
from tests.mechanisms import programs
from tools import mechanism_pages

KNOWN = [one["name"] for one in ff._core.mechanisms()]
COMPILED = "compiled_region"  # what fires it needs a compiler: tests/trace/test_compiled.py


def programs_of(name, silent):
    for function, program in vars(programs).items():
        rest = function.removeprefix(name)
        named = callable(program) and function.startswith(name) and rest[:1] in ("", "_")
        if named and (rest == "_silent") == silent:
            yield program


FIRING = [(name, p) for name in KNOWN if name != COMPILED for p in programs_of(name, silent=False)]
SILENT = [p for name in KNOWN for p in programs_of(name, silent=True)]


@pytest.mark.parametrize(("name", "program"), FIRING, ids=lambda value: getattr(value, "__name__", None))
def test_it_fires(name, program, tracker):
    with tracker:
        answer = program(tracker)
    culprits = tracker.diagnose(answer).culprits
    assert [culprit.mechanism for culprit in culprits] == [name], [str(culprit) for culprit in culprits]
    assert culprits[0].because and culprits[0].advice and culprits[0].cause is not None


@pytest.mark.parametrize("program", SILENT, ids=lambda program: program.__name__)
def test_it_is_silent(program, tracker):
    with tracker:
        answer = program(tracker)
    assert bool(torch.isfinite(answer).all())
    assert [str(origin) for origin in tracker.origins() if origin.sink or origin.swallowed] == []


def test_every_mechanism_has_a_program_that_fires_it_and_a_silent_one():
    for name in KNOWN:
        assert list(programs_of(name, silent=False)), name
        assert name == COMPILED or list(programs_of(name, silent=True)), name


def test_the_pages_of_the_documentation_are_those_made_from_the_source():
    done = subprocess.run([sys.executable, "-m", "tools.mechanism_pages", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_pages_name_every_mechanism_in_the_order_in_which_they_are_asked():
    index = (mechanism_pages.FOLDER / "index.md").read_text()
    places = [index.index(f"[{name}]({name}.md)") for name in KNOWN]
    assert places == sorted(places)
    assert json.loads(json.dumps(ff._core.mechanisms()))[0]["name"] == KNOWN[0]
