"""Results believed to be finite by the sizes of their operands: where that may be wrong, they are looked at."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

N = 2000  # what is small is always looked at
NAN_BITS = 0x7FC00000


def ordinary(*sizes):
    return torch.randn(*(sizes or (N,)), generator=torch.Generator().manual_seed(0)) * 1.0


def from_one_to_two():
    return ordinary().sigmoid() + 1


def one_of_them():
    mask = torch.zeros(N, dtype=torch.bool)
    mask[5] = True
    return mask


def written_as_integers():
    x = ordinary() * 1
    x.view(torch.int32).fill_(NAN_BITS)
    return x * 2


def integers_where_a_float_had_been():
    x = ordinary() * 1
    del x
    b = torch.empty(N, dtype=torch.int32)
    b.fill_(NAN_BITS)
    return b.view(torch.float32) * 2


def numpy_memory_that_is_wrapped_again():
    memory = np.ones(N, dtype=np.float32)
    for value in (1.0, 2.0, np.nan):
        memory[:] = value
        x = torch.from_numpy(memory)
        x.mul_(2.0)
        result = x * 0.5
        del x
    return result


def an_eps_that_float32_rounds():
    x = torch.empty(N).uniform_(-0.7, 0.7)
    x[0] = -0.7
    x = F.leaky_relu(x, 1.0)
    torch._foreach_add_([x], 0.7)
    return ordinary().abs() / x


def a_sum_that_cancels():
    x = torch.empty(N).uniform_(-7, 7)
    x[0] = -7
    return torch.add(F.leaky_relu(x, 1.0), 10, alpha=0.7).sqrt()


def a_complex_number():
    y = from_one_to_two()
    y.copy_(torch.tensor(-1 + 0j))
    return y.sqrt()


def gradients_of_attention_with_huge_scores():
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 1, 700, 80, generator=generator) for _ in range(3))
    leaves = [(one * size).requires_grad_() for one, size in ((q, 1e4), (k, 1e4), (v, 1.0))]
    F.scaled_dot_product_attention(*leaves).sum().backward()
    return torch.cat([leaf.grad.flatten() for leaf in leaves])


PROGRAMS = {
    "mean of nothing": lambda: ordinary(5, N)[:0].mean(0),
    "a pool in its padding": lambda: F.max_pool2d(ordinary(1200, 1, 2, 2), 2, stride=1, padding=1, dilation=3),
    "minimum with an integer": lambda: torch.minimum(ordinary().abs(), torch.tensor(-5)).sqrt(),
    "masked_fill of an integer": lambda: ordinary() / from_one_to_two().masked_fill(one_of_them(), torch.tensor(0)),
    "masked_fill of a bool": lambda: ordinary() / from_one_to_two().masked_fill(one_of_them(), False),
    "where with an integer": lambda: ordinary() / torch.where(one_of_them(), torch.tensor(0), from_one_to_two()),
    "where with integers": lambda: (
        ordinary() / torch.where(one_of_them(), torch.zeros(N, dtype=torch.long), from_one_to_two())
    ),
    "cat with integers": lambda: ordinary(N + 10) / torch.cat([from_one_to_two(), torch.zeros(10, dtype=torch.long)]),
    "clamp by an integer": lambda: ordinary() / from_one_to_two().clamp(max=torch.tensor(0)),
    "clamp by a bool": lambda: ordinary() / from_one_to_two().clamp(max=False),
    "addcmul by a bool": lambda: torch.addcmul(
        from_one_to_two() - 1.5, from_one_to_two(), from_one_to_two(), value=False
    ).sqrt(),
    "addcmul that overflows on the way": lambda: torch.addcmul(
        ordinary(), ordinary().clamp(-1, 1) * 10, ordinary() * 1e-30, value=3e38
    ),
    "gelu at the end of float32": lambda: F.gelu(torch.full((N,), 1.5e38) * 2),
    "an integer view": written_as_integers,
    "integers where a float had been": integers_where_a_float_had_been,
    "numpy's memory": numpy_memory_that_is_wrapped_again,
    "an eps that float32 rounds": an_eps_that_float32_rounds,
    "a sum that cancels": a_sum_that_cancels,
    "a complex number": a_complex_number,
    "attention": gradients_of_attention_with_huge_scores,
}


@pytest.mark.parametrize("shift", range(3))  # some results are looked at by their number
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_a_result_that_may_not_be_finite_is_looked_at(program, shift, tracker):
    with tracker:
        for _ in range(shift):
            torch.ones(3)
        result = program()
    assert not bool(torch.isfinite(result).all())
    assert tracker.diagnose(result).culprits


def test_what_a_collective_may_still_write_is_looked_at(tracker, tmp_path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'ranks'}", rank=0, world_size=1)
    try:
        with tracker:
            x = ordinary() * 1
            torch.distributed.all_reduce(x)
            x.numpy()[5] = np.nan  # as the other ranks' part that comes in later
            result = x * 2
    finally:
        torch.distributed.destroy_process_group()
    assert tracker.diagnose(result).culprits


def test_what_is_finite_has_no_origin(tracker):
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.LayerNorm(64), torch.nn.Linear(64, 8)
    )
    optimizer = torch.optim.AdamW(model.parameters())
    tracker.watch(model)
    with tracker:
        for _ in range(20):
            optimizer.zero_grad()
            model(torch.randn(128, 64)).square().mean().backward()
            optimizer.step()
    assert tracker.origins() == []
