"""A few steps of a few healthy trainings; ``python -m tests.models.check`` does all of them at full length."""

import importlib.util
import itertools

import pytest
import torch

from . import check, zoo
from .workload import Workload, descend

STEPS = 12
CHEAP = ("quantization_aware", "encoder_padding", "ctc_speech", "graph_attention", "dcgan", "hidden_markov")


def assert_healthy(name):
    outcome = check.check(name, zoo.models()[name], STEPS)
    assert outcome.differences == []
    assert outcome.nonfinite == []
    assert [str(origin) for origin in outcome.faults] == []
    assert outcome.tool == []


@pytest.mark.parametrize("name", CHEAP)
def test_a_healthy_training_is_left_bit_for_bit_alone_and_nothing_is_blamed(name):
    assert_healthy(name)


@pytest.mark.skipif(
    not importlib.util.find_spec("transformers"), reason="needs the packages of tools/requirements-models.txt"
)
def test_a_padded_language_model_of_the_transformers_package_is_healthy():
    assert_healthy("llama_sdpa_left")


def broken(fault):
    """A training that is made wrong in step 3."""

    def make():
        model = torch.nn.Linear(3, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        runs = next(numbered)

        def step(index):
            x = torch.ones(4, 3)
            if index == 3 and fault == "log of zero":
                x = x * 0
            if index == 3 and fault == "another run":
                x = x + runs
            return descend(optimizer, model(x).square().mean() + torch.log(x).mean())

        return Workload({"model": model}, step, [optimizer])

    numbered = itertools.count()
    return make


def test_the_check_finds_a_fault_with_its_operation():
    outcome = check.check("log of zero", broken("log of zero"), 6)
    assert not outcome.passed
    assert [(origin.op, origin.sink, origin.step) for origin in outcome.faults] == [("aten::log", "loss", 3)]
    assert outcome.nonfinite == ["loss of step 3"]
    assert outcome.differences == []


def test_the_check_finds_a_second_run_that_came_out_otherwise():
    outcome = check.check("another run", broken("another run"), 6)
    assert not outcome.passed
    assert {"loss of step 3", "model.weight"} <= set(outcome.differences)
    assert "loss of step 2" not in outcome.differences
    assert check.check("none", broken("none"), 6).passed
