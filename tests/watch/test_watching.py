"""Watching changes nothing, and what can go wrong around it goes no further."""

import os
import subprocess
import sys
import textwrap
import threading

import pytest
import torch
from torch import nn

import firstfault as ff


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(0.3)
        self.head = nn.Linear(4 * 36, 3)

    def forward(self, x):
        return self.head(self.drop(torch.relu(self.norm(self.conv(x)))).flatten(1))


def final_state(watch, steps=30, **options):
    torch.manual_seed(5)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 30)
    run = ff.watch(model, optimizer, **options) if watch else None
    losses = []
    for _ in range(steps):
        x, y = torch.randn(8, 1, 6, 6), torch.randint(0, 3, (8,))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        losses.append(loss.detach())
    if run:
        run.close()
        assert run.run().steps == steps
    tensors = [*losses, *model.state_dict().values(), *(p.grad for p in model.parameters()), torch.randn(4)]
    for state in optimizer.state.values():
        tensors += [v for v in state.values() if torch.is_tensor(v)]
    return tensors


@pytest.mark.parametrize("level", ["ops", "modules", "gradients"])
def test_training_is_bit_for_bit_the_same(level, tmp_path):
    plain = final_state(False)
    watched = final_state(True, level=level, run_file=tmp_path / "run.ffrun")
    assert all(torch.equal(a, b) for a, b in zip(plain, watched, strict=False)) and len(plain) == len(watched)


def test_the_run_file_says_what_memory_says(tmp_path):
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with ff.watch(model, optimizer, run_file=tmp_path / "run.ffrun") as run:
        for step in range(12):
            x, y = torch.randn(8, 1, 6, 6), torch.randint(0, 3, (8,))
            if step == 9:
                x[3, 0, 2, 2] = float("nan")
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            run.log(samples=8 * step)
    kept, read = run.run(), ff.read_run(run.path)
    assert read.state == "complete" and len(read.rows) == len(kept.rows) == 12
    assert [row.to_dict() for row in read.rows] == [row.to_dict() for row in kept.rows]
    assert [str(site) for site in read.sites] == [str(site) for site in kept.sites]
    assert [str(one) for one in read.transitions] == [str(one) for one in kept.transitions]
    assert [str(one) for one in ff.explain(read)] == [str(one) for one in run.explain()]
    first = ff.explain(read)[0]
    assert (first.cause, first.step) == ("data_nonfinite", 9)


def test_nothing_is_watched_where_the_environment_says_so(tmp_path):
    program = """
        import torch, firstfault as ff
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=1)
        with ff.watch(model, optimizer, run_file="run.ffrun") as run:
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
        print(run.run().rows, run.explain(), run.path)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={**os.environ, "FIRSTFAULT": "0"},
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0 and done.stdout.strip() == "[] [] None", done.stderr
    assert not list(tmp_path.iterdir())


def test_a_run_file_that_cannot_be_made_is_one_warning(tmp_path, capfd):
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with ff.watch(model, optimizer, run_file=tmp_path / "missing" / "run.ffrun") as run:
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    assert len(run.run().rows) == 1 and run.path is None
    assert capfd.readouterr().err.count("firstfault:") == 1


def test_misuse_says_what_to_do():
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ValueError, match="level is 'all'"):
        ff.watch(model, optimizer, level="all")
    with pytest.raises(ValueError, match="threshold"):
        ff.watch(model, optimizer, threshold_vanishing=-1)
    with ff.watch(model, optimizer), pytest.raises(RuntimeError, match="a watch is running"):
        ff.trace().start()
    with ff.watch(model, optimizer), pytest.raises(RuntimeError, match="another watch"):
        ff.watch(model, optimizer)
    with ff.watch(model, optimizer) as run, pytest.raises(ValueError, match="name 'model' is taken"):
        run.watch(nn.Linear(1, 1))


CHECKS = {
    "argument check of Normal": lambda x: torch.distributions.Normal(x, 1.0, validate_args=True),
    "argument check of Categorical": lambda x: torch.distributions.Categorical(logits=x, validate_args=True),
    "argument check of probabilities": lambda x: torch.distributions.Categorical(probs=x, validate_args=True),
    "argument check of Dirichlet": lambda x: torch.distributions.Dirichlet(x, validate_args=True),
    "an assert of isfinite": lambda x: check(torch.isfinite(x).all()),
    "an assert of isnan": lambda x: check(not torch.isnan(x.sum())),
    "a comparison of a number": lambda x: check(x.sum().item() == x.sum().item()),
}


def check(holds):
    assert holds, "not finite"


@pytest.mark.parametrize("refuse", CHECKS.values(), ids=CHECKS)
def test_a_value_that_the_program_refuses_is_followed_to_its_origin(refuse):
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises((ValueError, AssertionError)), ff.watch(model, optimizer) as run:
        for step in range(4):
            optimizer.zero_grad()
            x = torch.randn(8, 4)
            hidden = torch.log(model(x).abs() * (step < 3) - (step == 3) * 1.0)
            if step == 3:
                refuse(hidden)
            model(x).mean().backward()
            optimizer.step()
    assert run.run().state == "died"
    [first, *_] = run.explain()
    assert (first.cause, first.op, first.step) == ("op_domain", "aten::log", 3)
    assert run.run().origins[0].sink == "the end of the run"


def test_an_exception_of_another_kind_leaves_no_fault_of_what_was_deselected():
    model = nn.Linear(4, 3)
    with pytest.raises(KeyError), ff.watch(model, torch.optim.SGD(model.parameters(), lr=0.1)) as run:
        scores = model(torch.ones(8, 4))
        logarithm = torch.log(scores - scores.detach().max() - 1)
        doubled = logarithm * 2
        kept = torch.where(scores > 1e9, doubled, scores)
        raise KeyError(kept.shape)
    assert run.run().state == "died" and run.explain() == []


def test_an_exception_in_the_program_passes_unchanged_and_the_run_has_died():
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(KeyError), ff.watch(model, optimizer) as run:
        raise KeyError("theirs")
    assert run.run().state == "died" and not run.running
    assert not optimizer._optimizer_step_pre_hooks and not optimizer._optimizer_step_post_hooks


@pytest.mark.parametrize("end", ["os._exit(0)", "sys.exit(0)", "train(3)"])
def test_a_forked_child_leaves_the_run_alone(end, tmp_path):
    program = f"""
        import os, sys, torch, firstfault as ff
        torch.set_num_threads(1)
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        def train(steps):
            for _ in range(steps):
                optimizer.zero_grad()
                model(torch.ones(4, 2)).sum().backward()
                optimizer.step()
        with ff.watch(model, optimizer, run_file="run.ffrun") as run:
            train(5)
            if os.fork() == 0:
                {end}
                os._exit(0)
            os.wait()
            train(5)
        print(len(run.run().rows), len(ff.read_run(run.path).rows), ff.read_run(run.path).state)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, cwd=tmp_path, timeout=120
    )
    assert done.returncode == 0 and done.stdout.strip() == "10 10 complete", done.stdout + done.stderr


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_data_loader_workers_end_and_the_file_is_the_parents(context, tmp_path):
    program = f"""
        import torch, firstfault as ff
        class Data(torch.utils.data.Dataset):
            def __len__(self): return 32
            def __getitem__(self, i): return torch.full((2,), float(i))
        def main():
            torch.set_num_threads(1)
            model = torch.nn.Linear(2, 1)
            optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
            loader = torch.utils.data.DataLoader(Data(), batch_size=4, num_workers=2,
                multiprocessing_context="{context}")
            with ff.watch(model, optimizer, run_file="run.ffrun") as run:
                for epoch in range(2):
                    for x in loader:
                        optimizer.zero_grad()
                        model(x).square().mean().backward()
                        optimizer.step()
            print(len(run.run().rows), len(ff.read_run(run.path).rows))
        if __name__ == "__main__":
            main()
    """
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(program))
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, cwd=tmp_path, timeout=180)
    assert done.returncode == 0 and done.stdout.strip() == "16 16", done.stdout + done.stderr


def test_a_watch_that_is_never_closed_is_complete_at_exit(tmp_path):
    program = """
        import torch, firstfault as ff
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        run = ff.watch(model, optimizer, run_file="run.ffrun")
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    read = ff.read_run(tmp_path / "run.ffrun")
    assert read.state == "complete" and len(read.rows) == 1


def test_threads_may_train_at_once():
    models = [nn.Linear(4, 1) for _ in range(3)]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.01) for model in models]

    def train(model, optimizer):
        for _ in range(20):
            optimizer.zero_grad()
            model(torch.randn(8, 4)).square().mean().backward()
            optimizer.step()

    with ff.watch(models, optimizers) as run:
        threads = [threading.Thread(target=train, args=pair) for pair in zip(models, optimizers, strict=False)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    # Steps that end at the same time share a row; what matters is that nobody is blamed.
    assert {row.optimizer for row in run.run().rows} == {0, 1, 2} and not run.explain()


def test_compiled_graphs_are_the_same_in_number():
    from torch._dynamo.utils import counters

    def graphs(watch):
        torch._dynamo.reset()
        counters.clear()
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        compiled = torch.compile(model, backend="eager")
        run = ff.watch(model, optimizer) if watch else None
        for _ in range(4):
            optimizer.zero_grad()
            compiled(torch.randn(8, 4)).square().mean().backward()
            optimizer.step()
        if run:
            run.close()
        return counters["stats"]["unique_graphs"], sum(counters["graph_break"].values())

    assert graphs(True) == graphs(False) == (1, 0)


class OddOptimizer(torch.optim.Optimizer):
    """As people write them: what it keeps is its own affair."""

    def __init__(self, parameters, rate, state):
        super().__init__(parameters, {"lr": rate})
        self.kept = state

    @torch.no_grad()
    def step(self):
        for parameter in self.param_groups[0]["params"]:
            self.state[parameter] = self.kept
            parameter.sub_(0.1 * parameter.grad)


@pytest.mark.parametrize("given", [True, False], ids=["given", "followed"])
@pytest.mark.parametrize(
    ("rate", "state"),
    [
        (lambda: 0.1, {}),
        (0.1, torch.zeros(3)),
        (0.1, [1, 2]),
        (0.1, {"step": torch.zeros(3), "exp_avg_sq": "none yet"}),
        (0.1, {"step": None}),
    ],
    ids=["callable rate", "tensor", "list", "odd entries", "no step"],
)
def test_an_optimizer_that_keeps_its_state_in_its_own_way_steps_as_without(rate, state, given):
    model = nn.Linear(3, 2)
    optimizer = OddOptimizer(model.parameters(), rate, state)
    with ff.watch(model, optimizer if given else None) as run:
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(4, 3)).pow(2).mean().backward()
            optimizer.step()
    assert len(run.run().rows) == 3
    assert run.explain() == []


def test_a_hook_that_fails_does_not_reach_the_training(capfd, monkeypatch):
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with ff.watch(model, optimizer) as run:
        monkeypatch.setattr(run._held[id(optimizer)], "groups", lambda: 1 / 0)
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.randn(4, 3)).pow(2).mean().backward()
            optimizer.step()
    assert capfd.readouterr().err.count("an optimizer is not followed: ZeroDivisionError") == 1


def test_a_learning_rate_of_nan_is_the_hyperparameters_also_where_the_optimizer_makes_a_tensor_of_it():
    model = nn.Linear(3, 2)
    optimizer = torch.optim.ASGD(model.parameters(), lr=0.1)
    with ff.watch(model, optimizer) as run:
        for step in range(4):
            optimizer.param_groups[0]["lr"] = float("nan") if step == 2 else 0.1
            optimizer.zero_grad()
            model(torch.randn(4, 3)).pow(2).mean().backward()
            optimizer.step()
    first = run.explain()[0]
    assert (first.cause, first.step) == ("hyperparameter", 2)
