"""Replay: the faulty step again, bit for bit, and the run afterwards as if nothing had happened."""

import copy
import random

import numpy as np
import pytest
import torch
from torch import nn

import firstfault as ff


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.norm, self.b = nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Linear(16, 3)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.b(torch.dropout(self.norm(self.a(x)).relu(), 0.3, self.training))


def build(seed=0):
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)
    return model, optimizer, scheduler


BAD = 5


def bits(tensor):
    if tensor.dim() == 0:
        return repr(tensor.item())
    return tensor.detach().clone().contiguous().view(torch.uint8).numpy().tobytes()


def data(seed=1, steps=12):
    generator = torch.Generator().manual_seed(seed)
    return [(torch.randn(16, 6, generator=generator), torch.randn(16, 3, generator=generator)) for _ in range(steps)]


class Program:
    """State in every place that a replay has to know of."""

    def __init__(self, seed=0):
        self.model, self.optimizer, self.scheduler = build(seed)
        self.generator = torch.Generator().manual_seed(3)
        self.count = 0
        self.losses = []
        ticks = {"hook": 0}

        def hook(*_):
            ticks["hook"] += 1

        self.ticks = ticks
        self.model.a.register_forward_hook(hook)

    def step(self, x, y):
        self.count += 1
        self.optimizer.zero_grad()
        noise = torch.randn(x.shape, generator=self.generator) * random.random() * np.random.rand()
        out = self.model(x + 0.01 * noise + 0.001 * self.ticks["hook"])
        loss = (out - y).square().mean()
        if self.count == BAD + 1:  # so that a replay which does not put `count` back is not faulty
            loss = loss + (out[3, 0] * 0).log()
        loss.backward()
        self.losses.append(loss.item())
        return loss

    def digest(self):
        tensors = [*self.model.parameters(), *self.model.buffers()]
        tensors += [p.grad for p in self.model.parameters() if p.grad is not None]
        tensors += [v for s in self.optimizer.state.values() for v in s.values()]
        tensors += [torch.get_rng_state(), self.generator.get_state()]
        numbers = self.count, self.model.calls, dict(self.ticks), list(map(repr, self.losses))
        groups = [dict(group, params=None) for group in self.optimizer.param_groups]
        return list(map(bits, tensors)), random.getstate(), str(np.random.get_state()), numbers, groups


def train(program, guard=None, **kwargs):
    for x, y in data():
        if guard is None:
            loss = program.step(x, y)
            program.optimizer.step()
            del loss
        else:
            guard.step(program.step, x, y)
        program.scheduler.step()


def healthy(program):
    program.count = -1000
    return program


def test_a_run_without_a_fault_is_bit_for_bit_the_same():
    plain = healthy(Program())
    train(plain)
    expected = plain.digest()
    guarded = healthy(Program())
    with ff.guard(guarded.model, guarded.optimizer, scheduler=guarded.scheduler, snapshot_every=2) as guard:
        train(guarded, guard)
    assert guard.actions == []
    assert guarded.digest() == expected


@pytest.mark.parametrize("undo", ["snapshot", "step"])
def test_replays_leave_no_trace(undo):
    """The same as a run that only skipped that step."""

    seen = []

    def run(experiments):
        program = Program()
        options = {"on_fault": "skip", "undo": undo, "experiments": False}
        with ff.guard(program.model, program.optimizer, **options) as guard:
            if experiments:

                def with_experiments(replayer):
                    verdict = replayer.verify(3)
                    assert (verdict.exact, verdict.deterministic, verdict.why) == (True, True, "")
                    assert (verdict.replays, verdict.failed) == (3, 3)
                    for i in range(10):
                        result = replayer.run(batch=lambda batch, i=i: [t * (1 + i) for t in batch])
                        assert not result.finite and "loss" in result.bad
                    seen.append(replayer.replays)

                guard.on_replay = with_experiments
            train(program, guard)
        assert [one.action for one in guard.actions] == ["skip"]
        return program.digest()

    assert run(experiments=True) == run(experiments=False)
    assert seen == [13]


def test_the_replay_names_the_op_the_line_and_the_module():
    program = Program()
    with ff.guard(program.model, program.optimizer, on_fault="skip", level="gradients") as guard:
        faults = []
        apply = guard._faults.apply
        guard._faults.apply = lambda fault: (faults.append(fault), apply(fault))
        train(program, guard)
    (fault,) = faults
    assert fault.exactness.exact
    assert fault.origins[0].op == "aten::log"
    assert fault.origins[0].file.endswith("test_replay.py")


def test_a_change_of_the_batch_cures_and_does_not_leak_into_the_next_replay():
    program = Program()
    program.count = -1000

    def train_step(x, y):
        program.optimizer.zero_grad()
        loss = (program.model(x) - y).square().mean() + x[0, 0].log() * 0
        loss.backward()
        return loss

    with ff.guard(program.model, program.optimizer, on_fault="skip") as guard:
        seen = []

        def with_experiments(replayer):
            def repaired(batch):
                batch[0][0, 0] = 1.0  # in place
                return batch

            seen.extend([replayer.run().finite, replayer.run(batch=repaired).finite, replayer.run().finite])

        guard.on_replay = with_experiments
        x, y = data()[0]
        x[0, 0] = 0.0
        guard.step(train_step, x, y)
    assert seen == [False, True, False]
    assert x[0, 0] == 0.0


def test_a_fault_that_does_not_come_back_is_not_deterministic():
    program = healthy(Program())

    class Clock:
        """What no walk can put back."""

        def __init__(self):
            self.read = iter([True] + [False] * 100)

        def bad(self):
            return next(self.read)

    clock = Clock()

    def flaky(x, y):
        program.optimizer.zero_grad()
        loss = (program.model(x) - y).square().mean()
        if clock.bad():
            loss = loss * float("nan")
        loss.backward()
        return loss

    with ff.guard(program.model, program.optimizer, on_fault="skip") as guard:
        verdicts = []
        guard.on_replay = lambda replayer: verdicts.append(replayer.verify(3))
        guard.step(flaky, *data()[0])
    (verdict,) = verdicts
    assert (verdict.exact, verdict.deterministic, verdict.failed) == (False, False, 0)
    assert "0 of 3 replays" in verdict.why


def test_gradients_that_add_up_over_calls_are_there_again_in_a_replay():
    program = healthy(Program())
    optimizer = torch.optim.SGD(program.model.parameters(), lr=1e-3)
    calls = [0]

    def train_step(x, y):
        calls[0] += 1
        loss = (program.model(x) - y).square().mean() / 4
        if calls[0] == 11:
            loss = loss + (loss * 0).log()
        loss.backward()
        if calls[0] % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()
        return loss

    with ff.guard(program.model, optimizer, on_fault="skip", calls_step=True) as guard:
        for x, y in data():
            guard.step(train_step, x, y)
    assert [(one.action, one.fault) for one in guard.actions] == [("skip", "loss")]
    assert all(bool(torch.isfinite(p).all()) for p in program.model.parameters())


def test_a_compiled_model_is_replayed_in_eager():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    compiled = torch.compile(copy.deepcopy(model), backend="eager")
    optimizer = torch.optim.SGD(compiled.parameters(), lr=0.1)

    def train_step(x):
        optimizer.zero_grad()
        loss = compiled(x).sum().log()
        loss.backward()
        return loss

    with ff.guard(compiled, optimizer, on_fault="skip", level="gradients") as guard:
        faults = []
        apply = guard._faults.apply
        guard._faults.apply = lambda fault: (faults.append(fault), apply(fault))
        guard.step(train_step, torch.zeros(2, 4) - 100 * torch.ones(2, 4) * 0)
        with torch.no_grad():
            for p in model.parameters():
                p.zero_()
            for p in compiled.parameters():
                p.zero_()
        guard.step(train_step, torch.ones(2, 4))
    assert faults[-1].origins[0].op == "aten::log"


def test_a_shuffled_loader_with_workers_goes_on_as_if_nothing_had_been_replayed():
    def run(replays):
        program = healthy(Program())
        dataset = torch.utils.data.TensorDataset(torch.randn(64, 6), torch.zeros(64, 3))
        loader = torch.utils.data.DataLoader(dataset, batch_size=8, shuffle=True, num_workers=2)
        order = []
        with ff.guard(program.model, program.optimizer, on_fault="skip") as guard:
            made = []
            if replays:
                guard.on_replay = lambda replayer: made.extend(replayer.run().finite for _ in range(3))
            for _ in range(2):
                for i, (x, y) in enumerate(loader):
                    order.append(x.sum().item())
                    guard.step(program.step, x * float("nan") if i == 3 else x, y)
        assert made == [False] * 6 * replays
        assert [one.action for one in guard.actions] == ["skip"] * 2
        return order, program.digest()

    assert run(replays=True) == run(replays=False)


def test_a_buffer_that_the_forward_puts_in_the_place_of_another_is_put_back():
    class Moving(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 1)
            self.register_buffer("mean", torch.zeros(4))

        def forward(self, x):
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
            return self.fc(x - self.mean)

    torch.manual_seed(0)
    model = Moving()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train_step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        return loss

    verdicts = []
    with ff.guard(model, optimizer, on_fault="skip") as guard:
        guard.on_replay = lambda replayer: verdicts.append(replayer.verify(2).exact)
        for i in range(3):
            guard.step(train_step, torch.full((2, 4), float(i)))
        before = model.mean.clone()
        guard.step(train_step, torch.full((2, 4), float("nan")))
    assert verdicts == [True]
    assert torch.equal(model.mean, before)
