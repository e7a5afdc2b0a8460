"""torch.compile: a compiled region is said to be one, and a trace changes neither graphs nor breaks."""

import pytest
import torch
from torch import nn

import firstfault as ff

dynamo = pytest.importorskip("torch._dynamo")
pytestmark = pytest.mark.usefixtures("fresh_compiler")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return torch.log(self.linear(x).clamp_min(0.0) * 0.0)


def graphs_and_breaks():
    return dynamo.utils.counters["stats"]["unique_graphs"], sum(dynamo.utils.counters["graph_break"].values())


@pytest.mark.parametrize("traced_first", [False, True])
def test_graphs_and_breaks_are_those_without_a_trace(traced_first):
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
    x = torch.ones(2, 4)
    dynamo.utils.counters.clear()
    torch.compile(model, backend="aot_eager")(x).sum().backward()
    plain = graphs_and_breaks()
    dynamo.reset()
    dynamo.utils.counters.clear()
    compiled = torch.compile(model, backend="aot_eager")
    if not traced_first:
        compiled(x).sum().backward()
    with ff.trace() as tracker:
        tracker.watch(model)
        compiled(x).sum().backward()
        during = graphs_and_breaks()
    compiled(x).sum().backward()
    assert plain == during == graphs_and_breaks() == (1, 0)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_value_from_a_compiled_region_names_the_region(backend, tracker):
    model = Net()
    compiled = torch.compile(model, backend=backend)
    compiled(torch.ones(2, 4)).sum().backward()
    with tracker:
        tracker.watch(model)
        loss = compiled(torch.ones(2, 4)).sum()
    (culprit,) = tracker.diagnose(loss).culprits
    if backend == "aot_eager":  # its ops are dispatched one by one
        assert culprit.op == "aten::log" and culprit.module == "model"
        return
    assert (culprit.op, culprit.mechanism, culprit.module) == ("CompiledFunction", "compiled_region", "model")
    assert culprit.file == __file__ and "force_eager" in culprit.advice
    assert "in module 'model'" in culprit.because


def test_a_value_that_one_kernel_of_a_region_hands_to_another_is_the_regions(tracker):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x):
            return self.second(torch.log(self.first(x) * 0.0))

    model = Two()
    compiled = torch.compile(model, backend="inductor")
    with tracker:
        tracker.watch(model)
        loss = compiled(torch.ones(2, 4)).sum()
    (culprit,) = tracker.diagnose(loss).culprits
    assert (culprit.op, culprit.mechanism) == ("CompiledFunction", "compiled_region")


def test_a_gradient_from_a_compiled_backward_names_the_region(tracker):
    class Root(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x):
            return torch.sqrt(self.linear(x) * 0.0)

    model = Root()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    compiled = torch.compile(model, backend="inductor")
    with tracker:
        tracker.watch(model)
        compiled(torch.ones(2, 4)).sum().backward()
        optimizer.step()
    faults = [origin for origin in tracker.origins() if origin.sink]
    assert {origin.mechanism for origin in faults} == {"compiled_region"}
    assert faults[0].module == "model" and faults[0].phase == "backward"


def test_the_same_step_in_eager_shows_the_op(tracker):
    model = Net()
    compiled = torch.compile(model, backend="inductor")
    with torch.compiler.set_stance("force_eager"), tracker:
        tracker.watch(model)
        loss = compiled(torch.ones(2, 4)).sum()
    (culprit,) = tracker.diagnose(loss).culprits
    assert (culprit.op, culprit.mechanism, culprit.module) == ("aten::log", "log_of_nonpositive", "model")
