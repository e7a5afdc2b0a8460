"""Module paths and lines, with no hook installed: also where the same ops run from other places."""

import inspect

import pytest
import torch
from torch import nn

import firstfault as ff


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.act = nn.Softplus()

    def forward(self, x, zero=False):
        h = self.act(self.lin(x))
        return torch.log(h * (0.0 if zero else 1.0))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block(), Block()])

    def forward(self, x, order=(0, 1, 2), zero=None):
        for i in order:
            x = self.blocks[i](x, zero=i == zero)
        return x


def step(net, optimizer, order=(0, 1, 2), zero=None, backward_zero=None):
    optimizer.zero_grad()
    out = net(torch.rand(2, 4) + 1, order, zero)
    loss = out.square().mean()
    loss.backward()
    optimizer.step()
    return loss


@pytest.mark.parametrize("where", [0, 1, 2])
def test_the_module_is_exact_when_the_fault_comes_after_many_equal_steps(tracker, where):
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)
    with tracker:
        tracker.watch(net, name="net")
        for _ in range(20):
            step(net, optimizer)
        loss = step(net, optimizer, zero=where)
    origin = tracker.diagnose(loss).culprits[0]
    assert (origin.op, origin.module) == ("aten::log", f"net.blocks.{where}")


def test_the_module_is_exact_when_the_order_of_modules_changes_in_the_very_step(tracker):
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)
    with tracker:
        tracker.watch(net, name="net")
        for _ in range(20):
            step(net, optimizer)
        loss = step(net, optimizer, order=(2, 0, 1, 1), zero=0)
    assert tracker.diagnose(loss).culprits[0].module == "net.blocks.0"


class RootAtZero(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(scale))

    def forward(self, x):
        return torch.sqrt(x * self.scale)


def test_a_backward_fault_has_the_module_of_its_forward_op_after_a_change_of_order(tracker):
    first, second = RootAtZero(1.0), RootAtZero(1.0)
    net = nn.ModuleDict({"a": first, "b": second})
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
    with tracker:
        tracker.watch(net)
        for i in range(21):
            optimizer.zero_grad()
            x = torch.ones(2)
            x = net["b" if i == 20 else "a"](x)
            x = net["a" if i == 20 else "b"](x)
            if i == 20:
                x = net["b"](x * 0)
            x.sum().backward()
            optimizer.step()
    faults = [o for o in tracker.origins() if o.sink]
    assert [(o.op, o.module) for o in faults] == [("SqrtBackward0", "model.b")]


def test_the_line_is_exact_when_another_branch_runs_the_same_op(tracker):
    def one(x):
        return torch.sqrt(x)

    def other(x):
        return torch.sqrt(x)

    line = inspect.getsourcelines(other)[1] + 1
    with tracker:
        for i in range(9):
            x = torch.ones(2, requires_grad=True)
            (one(x) if i < 8 else other(x * 0)).sum().backward()
    origin = tracker.diagnose(x.grad).culprits[0]
    assert (origin.op, origin.forward_op) == ("SqrtBackward0", "aten::sqrt")
    assert origin.line == line


def test_loss_functions_outside_the_model_have_no_module_but_say_what_ran_before(tracker):
    net = nn.Sequential(nn.Linear(2, 2), nn.Sigmoid())
    criterion = nn.BCELoss()
    with tracker:
        tracker.watch(net)
        p = net(torch.ones(1, 2))
        criterion(p, torch.ones(1, 2))
        loss = torch.log(p * 0).sum()
    origin = tracker.diagnose(loss).culprits[0]
    assert (origin.module, origin.after_module) == (None, "model.1")


def test_two_models_keep_their_names_apart(tracker):
    generator, critic = nn.Linear(2, 2), nn.Linear(2, 1)
    with tracker:
        tracker.watch(generator, name="generator")
        tracker.watch(critic, name="critic")
        with torch.no_grad():
            critic.weight.fill_(float("inf"))
        loss = critic(generator(torch.ones(1, 2))).sum()
    assert tracker.diagnose(loss).culprits[0].param == "critic.weight"


def test_no_hook_is_installed_and_compiled_models_keep_their_graphs(tracker):
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    from torch.nn.modules import module as machinery

    with tracker:
        tracker.watch(model)
        assert not machinery._global_forward_hooks and not machinery._global_forward_pre_hooks
        assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_without_stacks_a_forward_fault_still_has_its_line():
    with ff.trace(stacks=False) as tracker:
        bad = torch.log(torch.zeros(1))
    origin = tracker.diagnose(bad).culprits[0]
    assert origin.op == "aten::log"
    assert origin.file is None or origin.file == __file__


def test_names_of_what_was_recorded_survive_unwatch_and_another_watch(tracker):
    first = nn.Sequential(nn.Linear(2, 2), RootAtZero(1.0))
    second = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), RootAtZero(1.0))

    def train(model, times):
        for _ in range(times):
            loss = model(torch.ones(1, 2)).abs().sum()
        return loss

    with tracker:
        tracker.watch(first, name="first")
        train(first, 20)
        bad = first[1](torch.ones(2) * -1)
        tracker.unwatch()
        assert tracker.diagnose(bad).culprits[0].module == "first.1"
        train(second, 20)
        tracker.watch(second, name="second")
        for _ in range(3):
            x = second[2](second[0](torch.ones(1, 2)) * 0)
            x.sum().backward()
        found = tracker.diagnose(second[0].weight.grad).culprits[0]
    assert (found.op, found.module) == ("SqrtBackward0", "second.2")


def test_a_time_first_batch_names_no_sample(tracker):
    model = nn.Linear(4, 4)
    x = torch.rand(5, 3, 4)
    with tracker:
        tracker.watch(model)
        y = model(x)
        keep = torch.ones_like(y)
        keep[2, 1, 0] = 0.0
        loss = torch.log(y.abs() * keep).sum()
    assert tracker.diagnose(loss).culprits[0].sample is None
