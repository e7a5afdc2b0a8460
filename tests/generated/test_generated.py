"""Faults drawn from a table: every origin right. `make test-generated` draws more of them, from several seeds."""

import warnings

import pytest

from tests.generated.program import check, draw

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch.jit and variances of one
    PROGRAMS = draw(seed=0, count=160)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", PROGRAMS, ids=str)
def test_the_origin_is_the_one_that_was_built_in(program):
    assert check(program) == []
