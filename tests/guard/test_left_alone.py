"""A run with ten experiments is afterwards, bit for bit, the one that only skipped that step."""

import random
import warnings

import numpy as np
import pytest
import torch
from test_replay import Net, bits
from torch import nn

import firstfault as ff
from firstfault import _core

BAD = 10  # number of the step; gradients are zeroed in the one after it


class Table(torch.utils.data.Dataset):
    """The last column of x says which sample it is; the targets of one are negative, and the loss takes their root."""

    def __init__(self):
        generator = torch.Generator().manual_seed(5)
        self.x = torch.randn(96, 6, generator=generator)
        self.y = torch.rand(96, 3, generator=generator)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i] + 0.01 * torch.rand(6), self.y[i]  # of the worker's random numbers


class Program:
    """Dropout, batch norm, Adam, a scheduler, a shuffled loader with workers, gradients that are left over, a counter
    in a hook, generators of every kind, an average of the parameters."""

    def __init__(self):
        torch.manual_seed(1)
        random.seed(1)
        np.random.seed(1)
        self.model = Net()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-2, amsgrad=True)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 4, 0.7)
        self.loader = torch.utils.data.DataLoader(Table(), batch_size=16, shuffle=True, num_workers=2)
        self.average = {name: p.detach().clone() for name, p in self.model.named_parameters()}
        self.noise, self.draw = torch.Generator().manual_seed(2), np.random.default_rng(3)
        self.count, self.losses, self.order = 0, [], []
        ticks = {"hook": 0}

        def hook(*_):
            ticks["hook"] += 1

        self.ticks = ticks
        self.model.b.register_forward_hook(hook)

    def step(self, x, y):
        self.count += 1
        if self.count % 3 == 0:  # else the gradients of the step before are added to
            self.optimizer.zero_grad(set_to_none=False)
        scale = 0.01 * random.random() * np.random.rand() * self.draw.random()
        out = self.model(x + scale * torch.randn(x.shape, generator=self.noise) + 0.001 * self.ticks["hook"])
        loss = (out - y.sqrt()).square().mean()
        loss.backward()
        self.losses.append(loss.item())
        with torch.no_grad():
            for name, p in self.model.named_parameters():
                self.average[name].lerp_(p, 0.1)
        return loss

    def train(self, guard):
        for _ in range(3):
            for x, y in self.loader:
                if self.count == BAD:
                    y[[3, 8]] = -1.0
                self.order.append(x.sum().item())
                guard.step(self.step, x, y)
                self.scheduler.step()

    def digest(self):
        tensors = [*self.model.parameters(), *self.model.buffers(), *self.average.values()]
        tensors += [p.grad for p in self.model.parameters()]
        tensors += [v for s in self.optimizer.state.values() for v in s.values()]
        tensors += [torch.get_rng_state(), self.noise.get_state()]
        numbers = self.count, self.model.calls, dict(self.ticks), list(map(repr, self.losses)), self.order
        groups = [dict(group, params=None) for group in self.optimizer.param_groups], self.scheduler.state_dict()
        generators = random.getstate(), str(np.random.get_state()), self.draw.bit_generator.state
        return list(map(bits, tensors)), numbers, groups, generators


def run(changes, **options):
    program = Program()
    with ff.guard(program.model, program.optimizer, on_fault="skip", **options) as guard:
        guard.on_replay = changes(program) if changes else None
        program.train(guard)
    assert [(one.step, one.action) for one in guard.actions] == [(BAD, "skip")]
    return program.digest(), _core.experiments_of(guard.run())


def ten_changes(program):
    """Each another kind; some of them leave more behind than they should."""
    model, optimizer = program.model, program.optimizer

    def spoil_everything():
        torch.manual_seed(99)
        random.seed(99)
        np.random.seed(99)
        program.noise.manual_seed(99)
        program.ticks["hook"] = -5
        program.count = 77
        program.losses.clear()

    def other_parameters():
        with torch.no_grad():
            for p in model.parameters():
                p.mul_(3)

    def other_state():
        model.eval()
        model.norm.running_mean.fill_(4)
        optimizer.param_groups[0].update(lr=7.0, betas=(0.1, 0.2))

    def other_gradients():
        for p in model.parameters():
            p.grad = torch.full_like(p, 1e3)

    def other_buffer():
        model.norm.running_var = torch.ones(16)

    def breaks():
        raise KeyError("the program's own")

    def finite(batch):
        batch[1].clamp_(min=0)
        return batch

    changes = [
        {"batch": finite},
        {"batch": lambda batch: [t[:3] for t in batch]},
        {"batch": lambda batch: [t[[3]].repeat(8, 1) for t in batch]},
        {"batch": lambda batch: [t * float("inf") for t in batch]},
        {"begin": spoil_everything},
        {"begin": other_parameters, "writes_parameters": True},
        {"begin": other_state},
        {"begin": other_gradients},
        {"begin": other_buffer, "batch": finite},
        {"begin": breaks},
    ]

    def make(replayer):
        results = [replayer.run(**change) for change in changes]
        outcomes = ["threw" if one.threw else "finite" if one.finite else "failed" for one in results]
        expected = ["finite", "finite", "failed", "failed", "failed", "failed", "failed", "failed", "finite", "threw"]
        assert outcomes == expected

    return make


def test_ten_different_changes_leave_no_trace():
    skipped, _ = run(None, experiments=False, replays=0)
    changed, _ = run(ten_changes, experiments=False, replays=0)
    assert changed == skipped


def test_a_fault_that_is_looked_into_by_itself_leaves_no_trace():
    skipped, none = run(None, experiments=False, replays=0)
    digest, made = run(None)
    assert none == []
    assert sum(one.replays for one in made) >= 10
    done = {one.name for one in made if one.outcome != "not_applicable"}
    assert {"unchanged", "previous_batch", "earlier_state", "operand", "zero_grad", "grown", "samples"} <= done
    assert next(one for one in made if one.name == "samples").samples == [3, 8]
    assert digest == skipped


class Sized(nn.Module):
    """Refuses a batch that is not whole; its buffer counts what it has seen."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 1)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.seen += 1
        if len(x) != 8:
            raise ValueError("half a batch")
        return self.fc(x)


def counted(batches, **options):
    torch.manual_seed(0)
    model = Sized()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train_step(x):
        optimizer.zero_grad()
        loss = (model(x) + x.log().mean(1, keepdim=True)).square().mean()
        loss.backward()
        return loss

    with ff.guard(model, optimizer, on_fault="skip", **options) as guard:
        for x in batches:
            guard.step(train_step, x)
    return guard, bits(model.fc.weight), model.seen.item()


def test_an_exception_of_the_step_in_an_experiment_is_an_answer_and_nothing_more():
    batches = [torch.ones(8, 4) * (i + 1) for i in range(4)]
    batches[0][2] = -1.0  # in the first step: samples are left out, there are none to replace them
    guard, *state = counted([b.clone() for b in batches])
    made = {one.name: one for one in _core.experiments_of(guard.run())}
    assert made["operand"].outcome == "cured"
    assert made["samples"].outcome == "threw"
    assert [(one.step, one.action) for one in guard.actions] == [(0, "skip")]
    _, *plain = counted(batches, experiments=False, replays=0)
    assert state == plain


def test_an_exception_in_every_replay_ends_the_replays_and_not_the_training():
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    calls = iter(range(100))

    def train_step(x):
        optimizer.zero_grad()
        if next(calls) > 1:
            raise OSError("a socket that is closed")
        loss = model(x).mean()
        loss.backward()
        return loss

    with ff.guard(model, optimizer, on_fault="skip") as guard:
        guard.step(train_step, torch.ones(8, 4))
        before = bits(model.weight)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            guard.step(train_step, torch.full((8, 4), float("nan")))
        assert bits(model.weight) == before
    assert [one.action for one in guard.actions] == ["skip"]
    (warning,) = [str(one.message) for one in said]
    assert "cannot be run again exactly" in warning and "OSError: a socket that is closed" in warning
    assert not any(one.standing in ("confirmed", "refuted") for one in guard.explain())


def test_a_loader_that_ends_in_the_middle_of_a_replay_ends_the_replays_only():
    """The step function draws from it; it is one of the things that no replay can put back."""
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = [torch.ones(8, 4), torch.ones(8, 4), torch.full((8, 4), float("nan")), torch.ones(8, 4)]
    loader = iter(torch.utils.data.DataLoader(data, batch_size=None))
    losses = []

    def train_step():
        optimizer.zero_grad()
        loss = model(next(loader)).mean()
        loss.backward()
        losses.append(loss.item())
        return loss

    with (
        ff.guard(model, optimizer, on_fault="skip") as guard,
        pytest.warns(RuntimeWarning, match="cannot be run again exactly"),
    ):
        while True:
            try:
                guard.step(train_step)
            except StopIteration:
                break
    assert [(one.step, one.action) for one in guard.actions] == [(2, "skip")]
    assert len(losses) == 3  # the replays took the last one
    assert torch.isfinite(model.weight).all()
    assert not any(one.standing in ("confirmed", "refuted") for one in guard.explain())


def test_a_step_with_side_effects_is_warned_of_once(tmp_path):
    """It counts in a file, and what it computes depends on it."""
    log = tmp_path / "log"
    log.write_text("")
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train_step(x):
        optimizer.zero_grad()
        with log.open("a") as file:
            file.write("x")
        loss = model(x * (1 + log.stat().st_size)).sum() + x.min().log()
        loss.backward()
        return loss

    with (
        warnings.catch_warnings(record=True) as said,
        ff.guard(model, optimizer, on_fault="skip", level="gradients") as guard,
    ):
        warnings.simplefilter("always")
        for i in range(9):
            x = torch.ones(8, 4)
            x[0, 0] = i % 3  # log of 0
            guard.step(train_step, x)
    assert [one.step for one in guard.actions] == [0, 3, 6]
    (warning,) = [str(one.message) for one in said if issubclass(one.category, RuntimeWarning)]
    assert "cannot be run again exactly" in warning and "a file" in warning
