"""`firstfault prove script.py`: the script again with one thing changed each."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

import firstfault as ff
from firstfault import _core

from .conftest import BUILD

PROVE = [sys.executable, "-m", "firstfault", "prove"]

DEAD = """
import sys
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1), nn.ReLU())
with torch.no_grad():
    model[2].weight.abs_().mul_(-0.1)
    model[2].bias.fill_(-0.1)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(60):
    x = torch.rand(16, 4, generator=torch.Generator().manual_seed(step))
    optimizer.zero_grad()
    nn.functional.l1_loss(model(x), 2 + x.mean(1, keepdim=True)).backward()
    optimizer.step()
print("steps", step + 1, *sys.argv[1:])
"""

DIVERGES = """
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=5.0)
for step in range({steps}):
    x = torch.randn(16, 4, generator=torch.Generator().manual_seed(step))
    optimizer.zero_grad()
    (model(x) - x.sum(1, keepdim=True)).square().mean().backward()
    optimizer.step()
"""

HEALTHY = """
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(20):
    optimizer.zero_grad()
    model(torch.randn(16, 4)).square().mean().backward()
    optimizer.step()
"""


@pytest.fixture
def script(tmp_path):
    def write(text, name="train.py"):
        (tmp_path / name).write_text(textwrap.dedent(text))
        return name

    return write


def outcomes(path):
    return {one.name: one.outcome for one in _core.experiments_of(ff.read_run(path))}


def test_dead_units_are_proved_by_the_script_run_again(script, run, tmp_path):
    done = run(*PROVE, "--out", "x.ffrun", script(DEAD), "--lr", "1")
    assert done.code == 0
    assert done.stdout.startswith("steps 60 --lr 1\n")  # of the first run; the others are silent
    assert done.stdout.count("steps 60") == 1
    assert "dead units" in done.stdout and "confirmed, confidence 0.97" in done.stdout
    assert "leaky_relu in place of relu, 60 steps from step 0: cured" in "".join(done.ours)
    file = tmp_path / "x.ffrun"
    assert outcomes(file) == {"window": "failed", "leaky_activation": "cured", "lower_rate": "not_applicable"}
    explained = run(sys.executable, "-m", "firstfault", "explain", "--json", "x.ffrun")
    (hypothesis,) = json.loads(explained.stdout)["hypotheses"]
    assert (hypothesis["cause"], hypothesis["standing"]) == ("dead_units", "confirmed")
    assert sorted(os.listdir(tmp_path)) == ["train.py", "x.ffrun"]


def test_a_divergence_is_proved_by_a_lower_rate_where_the_script_is_long_enough(script, run, tmp_path):
    done = run(*PROVE, "-q", "-o", "x.ffrun", script(DIVERGES.format(steps=400)))
    assert (done.code, done.ours) == (0, [])
    best = ff.explain(ff.read_run(tmp_path / "x.ffrun"))[0]
    assert (best.cause, best.standing) == ("lr_too_high", "confirmed")
    assert outcomes(tmp_path / "x.ffrun")["averaged"] == "not_applicable"  # one backward a step
    done = run(*PROVE, "-q", "-o", "y.ffrun", script(DIVERGES.format(steps=40)))
    assert outcomes(tmp_path / "y.ffrun")["lower_rate"] == "not_applicable"
    assert "of 40 steps" in done.stdout and ", and then it ended" in done.stdout


def test_a_run_without_a_fault_and_what_cannot_be_changed(script, run, tmp_path):
    done = run(*PROVE, "-q", "-o", "x.ffrun", script(HEALTHY))
    assert (done.code, done.stdout) == (0, "no fault found; there is nothing to prove.\n")
    assert run(*PROVE, script("raise SystemExit(3)", "ends.py")).code == 3
    program = run(*PROVE, "/bin/true")
    assert program.code == 2 and "Guard::prove in the program" in "".join(program.ours) + program.stderr
    assert run(*PROVE).code == 2
    assert run(*PROVE, "--unknown", "train.py").code == 2
    folder = run(*PROVE, "-o", "none/x.ffrun", "train.py")
    assert folder.code == 2 and "does not exist; make it first" in "".join(folder.ours) + folder.stderr


def test_steps_whose_loss_is_not_known_are_no_divergence(script, run, tmp_path):
    """Two optimizers share a loss: only the first one's steps have it."""
    one = "optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)"
    two = "halves = [torch.optim.Adam(half.parameters(), lr=1e-2) for half in (model[0], model[2])]"
    text = DEAD.replace(one, two).replace("optimizer.zero_grad()", "[half.zero_grad() for half in halves]")
    text = text.replace("optimizer.step()", "[half.step() for half in halves]")
    run(*PROVE, "-q", "-o", "x.ffrun", script(text))
    assert outcomes(tmp_path / "x.ffrun")["leaky_activation"] == "cured"
    assert [one.standing for one in ff.explain(ff.read_run(tmp_path / "x.ffrun"))] == ["confirmed"]


def test_a_child_that_is_killed_refutes_nothing(script, run, tmp_path):
    text = DIVERGES.format(steps=400).replace(
        "    optimizer.zero_grad()",
        "    if step == 60: import os, signal; os.kill(os.getpid(), signal.SIGKILL)\n    optimizer.zero_grad()",
    )
    run(*PROVE, "-q", "--steps", "40", "-o", "x.ffrun", script(text))
    assert outcomes(tmp_path / "x.ffrun")["lower_rate"] == "threw"
    assert ff.explain(ff.read_run(tmp_path / "x.ffrun"))[0].standing == "not_tested"


def test_a_run_file_of_another_day_is_not_proved(script, run, tmp_path):
    run(*PROVE, "-q", "-o", "x.ffrun", script(DEAD))
    before = (tmp_path / "x.ffrun").read_bytes()
    done = run(*PROVE, "-q", "-o", "x.ffrun", script("raise SystemExit(7)", "bad.py"))
    assert (done.code, done.stdout) == (7, "")
    assert (tmp_path / "x.ffrun").read_bytes() == before


def test_a_signal_ends_the_child_too_and_leaves_no_folder(script, tmp_path):
    script(f"import os; open(f'pid-{{os.getpid()}}', 'w').close()\n{DEAD}")
    folder = tmp_path / "tmp"
    folder.mkdir()
    started = subprocess.Popen(
        [*PROVE, "-q", "-o", "x.ffrun", "train.py"], cwd=tmp_path, env={**os.environ, "TMPDIR": str(folder)}
    )
    while len(list(tmp_path.glob("pid-*"))) < 2:  # the second one is of a window
        time.sleep(0.01)
    assert any(name.startswith("firstfault-prove-") for name in os.listdir(folder))
    started.send_signal(signal.SIGTERM)
    assert started.wait(60) == -signal.SIGTERM
    assert not any(name.startswith("firstfault-prove-") for name in os.listdir(folder))
    for pid in tmp_path.glob("pid-*"):
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid.name.removeprefix("pid-")), 0)


def test_the_first_run_may_be_ended_early(script, run, tmp_path):
    done = run(*PROVE, "-q", "--steps", "40", "-o", "x.ffrun", script(DEAD))
    assert "steps 60" not in done.stdout
    assert ff.read_run(tmp_path / "x.ffrun").steps == 40
    assert outcomes(tmp_path / "x.ffrun")["window"] == "failed"


def test_the_native_program_proves_scripts_too(script, tmp_path):
    script(DEAD)
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "python3").symlink_to(sys.executable)
    (folder / "python3").unlink()
    (folder / "python3").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (folder / "python3").chmod(0o755)
    done = subprocess.run(
        [str(BUILD / "bin/firstfault"), "prove", "-q", "-o", "x.ffrun", "train.py"],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"},
    )
    assert done.returncode == 0, done.stderr
    assert "confirmed, confidence 0.97" in done.stdout


CHANGED = """
import os
import torch
from torch import nn
from firstfault import _run

script = _run.start("{file}", None, True, "{change}")
torch.manual_seed(0)
{body}
script.finish()
"""

BODIES = {
    "initialised 1 0": (
        """
        layer = nn.Linear(4, 2)
        nn.init.constant_(layer.weight, 100.0)
        torch.optim.SGD(layer.parameters(), lr=0.1)
        assert float(layer.weight.detach().abs().max()) < 10
        """,
        0,
    ),
    "float32 1 0": (
        """
        layer = nn.Linear(4, 2).half()
        assert layer.weight.dtype == torch.float32 and torch.ones(2).half().dtype == torch.float32
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert layer(torch.ones(1, 4)).dtype == torch.float32
        """,
        0,
    ),
    "standardised 1 0": (
        """
        seen = []
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = nn.Linear(3, 1)
            def forward(self, x):
                seen.append(x)
                return self.inner(x)
        net = Net()
        x = torch.randn(64, 3) * 1e4 + 5e6
        out = net(x)
        assert float(seen[0].mean().abs()) < 1e-3 and abs(float(seen[0].std()) - 1) < 0.1
        net(x + 1e4)  # by the statistics of the first batch
        assert abs(float(seen[1].mean()) - 1) < 0.1
        y = torch.randn(64, 1) * 1e3 + 1e5
        loss = nn.MSELoss()(out, y)
        assert float(loss) < 10
        assert abs(float(nn.functional.l1_loss(torch.zeros(64, 1), y))) < 2
        """,
        0,
    ),
    "kept_state 1 0": ("layer = nn.Linear(4, 2)", 0),  # nothing was lost
    "clipped 1 0": ("raise AssertionError", 0),  # the batches of a script are not known
}
UNUSED = ("kept_state 1 0", "clipped 1 0")


@pytest.mark.parametrize("change", BODIES)
def test_changes_of_a_whole_script(change, script, run, tmp_path):
    body, code = BODIES[change]
    text = CHANGED.format(file=tmp_path / "x.ffrun", change=change, body=textwrap.dedent(body))
    done = run(sys.executable, script(text))
    assert done.code == code, done.stderr
    assert (tmp_path / "x.ffrun.unused").exists() == (change in UNUSED)
