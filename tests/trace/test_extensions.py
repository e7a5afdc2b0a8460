"""Ops that are not PyTorch's own, tensor subclasses, transforms, scripts, threads."""

import threading

import numpy
import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_map

import firstfault as ff


def only_culprit(tracker, tensor):
    culprits = tracker.diagnose(tensor).culprits
    assert len(culprits) == 1, [str(culprit) for culprit in culprits]
    return culprits[0]


@torch.library.custom_op("firstfault_tests::logarithm", mutates_args=())
def logarithm(x: torch.Tensor) -> torch.Tensor:
    return torch.log(x)


@torch.library.custom_op("firstfault_tests::by_numpy", mutates_args=())
def by_numpy(x: torch.Tensor) -> torch.Tensor:
    with numpy.errstate(divide="ignore"):
        return torch.from_numpy(numpy.log(x.numpy()))


@torch.library.custom_op("firstfault_tests::written_after_zeros", mutates_args=())
def written_after_zeros(x: torch.Tensor) -> torch.Tensor:
    y = torch.zeros(3)
    y.numpy()[1] = numpy.inf
    return y


def test_a_custom_op_that_consists_of_pytorchs_names_the_one_inside(tracker):
    with tracker:
        y = logarithm(torch.zeros(3)) * 2
    origin = only_culprit(tracker, y)
    assert (origin.op, origin.outer_op) == ("aten::log", "firstfault_tests::logarithm")
    assert (origin.mechanism, origin.file) == ("log_of_nonpositive", __file__)


@pytest.mark.parametrize("name", ["by_numpy", "written_after_zeros"])
def test_a_custom_op_with_a_kernel_of_its_own_is_named_itself(tracker, name):
    with tracker:
        y = globals()[name](torch.zeros(3)) * 2
    assert only_culprit(tracker, y).op == f"firstfault_tests::{name}"


class Wrapper(torch.Tensor):
    @staticmethod
    def __new__(cls, inner):
        wrapper = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
        wrapper.inner = inner
        return wrapper

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        def unwrap(x):
            return x.inner if isinstance(x, Wrapper) else x

        result = function(*tree_map(unwrap, args), **tree_map(unwrap, kwargs or {}))
        return tree_map(lambda x: Wrapper(x) if isinstance(x, torch.Tensor) else x, result)


def test_a_wrapper_subclass_is_seen_through(tracker):
    with tracker:
        y = torch.log(Wrapper(torch.zeros(3))) * 2
        z = y.inner + 1
    origin = only_culprit(tracker, z)
    assert (origin.op, origin.mechanism) == ("aten::log", "log_of_nonpositive")


def test_a_plain_subclass_is_a_tensor(tracker):
    class Named(torch.Tensor):
        pass

    with tracker:
        y = torch.log(torch.zeros(3).as_subclass(Named)) * 2
    assert only_culprit(tracker, y).op == "aten::log"


@torch.jit.script
def scripted(x: torch.Tensor):
    return torch.log(x) * 2


def test_a_script_is_seen_op_by_op_also_when_it_is_optimised(tracker):
    with tracker:
        for _ in range(4):
            y = scripted(torch.zeros(3))
    origin = only_culprit(tracker, y)
    assert (origin.op, origin.mechanism) == ("aten::log", "log_of_nonpositive")


def test_gradients_per_sample_by_vmap_are_seen_through(tracker):
    with tracker:
        gradient = torch.func.vmap(torch.func.grad(lambda x: torch.sqrt(x).sum()))(torch.zeros(2, 3))
        y = gradient * 1
    origin = only_culprit(tracker, y)
    assert (origin.op, origin.forward_op) == ("SqrtBackward0", "aten::sqrt")
    assert origin.mechanism == "derivative_at_boundary"


def test_of_four_threads_the_one_with_the_fault_is_named(tracker):
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    losses = {}

    def work(number):
        factor = torch.tensor(0.0 if number == 2 else 1.0)
        losses[number] = torch.log(model(torch.ones(4, 2)) * 0 + factor).sum()
        losses[number].backward()

    with tracker:
        tracker.watch(model)
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [only_culprit(tracker, losses[2]).op] == ["aten::log"]
    assert [tracker.has_issue(losses[number]) for number in range(4)] == [False, False, True, False]


def test_parameters_that_are_passed_to_a_function_still_name_the_module(tracker):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(2, 2)

        def forward(self, x):
            return torch.log(self.linear(x))

    model = Net()
    zeros = {name: torch.zeros_like(value) for name, value in model.named_parameters()}
    with tracker:
        tracker.watch(model)
        y = torch.func.functional_call(model, zeros, (torch.ones(1, 2),))
    origin = only_culprit(tracker, y)
    assert (origin.op, origin.module) == ("aten::log", "model")


def test_a_meta_tensor_is_no_fault_and_is_counted():
    with ff.trace() as tracker:
        torch.log(torch.zeros(3, device="meta"))
    assert tracker.origins() == []
    assert [missed.what for missed in tracker.run().uninspected] == ["device meta"]
