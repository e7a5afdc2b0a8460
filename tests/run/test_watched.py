"""What `firstfault run` records of scripts and programs that know nothing of it. Needs the live half."""

import json
import re
import subprocess
import sys
import textwrap

import pytest

from .conftest import BUILD, RUN

pytest.importorskip("firstfault._watch")

SCRIPT = """
import sys
import torch
from torch import nn

class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Dropout(0.1), nn.Linear(16, 4))

    def forward(self, x, step):
        probability = self.body(x).softmax(1)[:, 0]
        if step == 12:
            probability = probability * 0
        return -torch.log(probability).mean()  # the fault

def train(steps):
    torch.manual_seed(0)
    model = Classifier()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(steps):
        optimizer.zero_grad()
        loss = model(torch.randn(32, 8), step)
        loss.backward()
        optimizer.step()
        print(step, loss.item().hex())
    print(sum(p.detach().sum().item() for p in model.parameters()).hex())

if __name__ == "__main__":
    train(int(sys.argv[1]))
    if len(sys.argv) > 2:
        raise ValueError(sys.argv[2])
"""
LINE = 1 + SCRIPT.splitlines().index(next(line for line in SCRIPT.splitlines() if "the fault" in line))


@pytest.fixture
def script(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    return "train.py"


def explanation(path):
    said = subprocess.run([BUILD / "bin/firstfault", "explain", "--json", path], capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    return json.loads(said.stdout)


def test_a_script_ends_alike_and_its_run_file_names_the_fault(script, both, tmp_path):
    result = both(script, 20)
    assert "nan" in result.stdout
    [path] = (tmp_path / "runs").glob("train-*.ffrun")
    [said] = result.ours
    assert re.fullmatch(r"firstfault: fault in step 12: .*; more: firstfault explain runs/train-.*\.ffrun\n", said)
    found = explanation(path)
    first = found["hypotheses"][0]
    assert (found["state"], found["steps"], first["step"]) == ("complete", 20, 12)
    assert (first["cause"], first["op"], first["line"]) == ("op_domain", "aten::log", LINE)
    assert first["file"].endswith("train.py")
    modules = {one["path"] for one in json.loads(show(path))["setup"]["modules"]}
    assert any(one.endswith("body.0") for one in modules), "names begin at the outermost module"


def show(path):
    return subprocess.run([BUILD / "bin/firstfault", "show", "--json", path], capture_output=True, text=True).stdout


def test_a_healthy_script_is_said_to_be_healthy(script, both, tmp_path):
    result = both(script, 10)
    assert len(result.ours) == 1 and result.ours[0].startswith("firstfault: no fault found; ")


def test_a_script_that_dies_of_an_exception_leaves_a_run_that_died(script, both, tmp_path):
    result = both(script, 10, "no more data")
    assert result.code == 1 and "ValueError: no more data" in result.stderr and "sitecustomize" not in result.stderr
    [path] = (tmp_path / "runs").glob("*.ffrun")
    assert explanation(path)["state"] == "died"


def test_out_and_quiet(script, run, tmp_path):
    result = run(*RUN, "--quiet", "--out", "here.ffrun", script, 20)
    assert (result.code, result.ours, result.stderr) == (0, [], "")
    assert explanation(tmp_path / "here.ffrun")["hypotheses"][0]["cause"] == "op_domain"


def test_a_file_that_cannot_be_made_leaves_the_script_alone(script, both, run, tmp_path):
    (tmp_path / "runs").write_text("in the way")
    result = both(script, 10)
    assert len(result.ours) == 1 and "unwatched" in result.ours[0]


def test_torch_is_imported_by_the_script_alone(run, tmp_path):
    (tmp_path / "late.py").write_text(
        textwrap.dedent(
            """
            import sys
            assert "torch" not in sys.modules and "firstfault" not in sys.modules
            import torch
            assert torch.__spec__.loader.__dict__.keys() == sys.modules["torch.nn"].__spec__.loader.__dict__.keys()
            assert not any("firstfault" in type(one).__module__ for one in sys.meta_path[:0])
            print("fine")
            """
        )
    )
    assert run(*RUN, "late.py").stdout == "fine\n"


def test_workers_of_a_data_loader_and_spawned_processes_are_not_watched(run, tmp_path):
    (tmp_path / "train.py").write_text(
        textwrap.dedent(
            """
            import torch, torch.multiprocessing as mp
            from torch.utils.data import DataLoader, TensorDataset

            def child(rank):
                model = torch.nn.Linear(2, 1)
                optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                for _ in range(100):
                    model(torch.ones(1, 2)).sum().backward()
                    optimizer.step()

            if __name__ == "__main__":
                loader = DataLoader(TensorDataset(torch.randn(64, 2)), batch_size=8, num_workers=2)
                model = torch.nn.Linear(2, 1)
                optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
                for (x,) in loader:
                    optimizer.zero_grad()
                    model(x).square().mean().backward()
                    optimizer.step()
                mp.spawn(child, nprocs=1)
                print("done")
            """
        )
    )
    result = run(*RUN, "train.py")
    assert (result.code, result.stdout) == (0, "done\n"), result.stderr
    [path] = (tmp_path / "runs").glob("*.ffrun")
    assert explanation(path)["steps"] == 8


@pytest.fixture
def trainer():
    program = BUILD / "bin/run_trainer"
    if not program.exists():
        pytest.skip("build/bin/run_trainer is not built")
    return program


def native_run(run, *command):
    return run(BUILD / "bin/firstfault", "run", *command)


def test_a_libtorch_program_ends_alike_and_its_run_file_names_op_and_line(trainer, run, tmp_path):
    plain, watched = run(trainer), native_run(run, trainer)
    assert plain.code == 3
    assert (watched.code, watched.stdout, watched.stderr) == (plain.code, plain.stdout, plain.stderr)
    [path] = (tmp_path / "runs").glob("run_trainer-*.ffrun")
    found = explanation(path)
    first = found["hypotheses"][0]
    assert (found["state"], first["op"]) == ("complete", "aten::log")
    source = (BUILD.parent / "tests/run/trainer.cpp").read_text().splitlines()
    assert "the fault" in source[first["line"] - 1] and first["file"].endswith("trainer.cpp")


def test_the_steps_of_a_libtorch_program_are_counted(trainer, run, tmp_path):
    native_run(run, trainer)
    [path] = (tmp_path / "runs").glob("*.ffrun")
    found = explanation(path)
    assert (found["steps"], found["hypotheses"][0]["step"]) == (20, 12)


def test_the_python_package_runs_programs_too(trainer, run, tmp_path):
    plain, watched = run(trainer, 5), run(*RUN, trainer, 5)
    assert (watched.code, watched.stdout) == (plain.code, plain.stdout) == (0, plain.stdout)
    assert len(list((tmp_path / "runs").glob("*.ffrun"))) == 1


def test_a_libtorch_program_inside_of_a_shell(trainer, run, tmp_path):
    result = native_run(run, "/bin/sh", "-c", f"{trainer} 13; exit 4")
    assert (result.code, result.stdout) == (4, run(trainer, 13).stdout)
    [path] = (tmp_path / "runs").glob("sh-*.ffrun")
    assert explanation(path)["hypotheses"][0]["op"] == "aten::log"


def test_python_itself_is_no_libtorch_program(run):
    assert native_run(run, sys.executable, "train.py").code == 2
