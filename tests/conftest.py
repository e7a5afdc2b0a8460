"""Common to the Python tests: one thread, and no trace left running by a test that failed."""

import pytest
import torch

import firstfault as ff

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.fixture
def fresh_compiler():
    """Nothing compiled before, nothing left behind."""
    dynamo = pytest.importorskip("torch._dynamo")
    dynamo.reset()
    yield
    dynamo.reset()


@pytest.fixture
def tracker():
    trace = ff.trace()
    yield trace
    trace.stop()
