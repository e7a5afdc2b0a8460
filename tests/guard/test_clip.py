"""Clipping in Python: torch's results on finite input, better ones on the rest."""

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import firstfault as ff

FINITE = st.floats(-1e4, 1e4, width=32)
DTYPES = st.sampled_from([torch.float32, torch.float64, torch.float16, torch.bfloat16])
SHAPES = st.lists(st.integers(0, 7), max_size=3)
HALF = (torch.float16, torch.bfloat16)


def parameters_with(gradients):
    parameters = []
    for gradient in gradients:
        parameter = torch.nn.Parameter(torch.zeros_like(gradient))
        parameter.grad = gradient.clone()
        parameters.append(parameter)
    return parameters


@st.composite
def gradients_of_one_dtype(draw):
    dtype = draw(DTYPES)
    gradients = []
    for _ in range(draw(st.integers(1, 4))):
        shape = draw(SHAPES)
        values = draw(st.lists(FINITE, min_size=math.prod(shape), max_size=math.prod(shape)))
        gradient = torch.tensor(values, dtype=torch.float64).reshape(shape).to(dtype)
        if draw(st.booleans()) and gradient.dim() == 2:
            gradient = gradient.t()
        gradients.append(gradient)
    return gradients


def assert_close(ours, theirs):
    rough = theirs.dtype in HALF
    torch.testing.assert_close(ours, theirs, rtol=2e-2 if rough else 2e-5, atol=1e-3 if rough else 1e-7)


@settings(max_examples=150, deadline=None)
@given(gradients_of_one_dtype(), st.sampled_from([1.0, 2.0, 3.0, math.inf]), st.floats(0.001, 1e5))
def test_the_norm_and_the_clipped_gradients_are_those_of_torch(gradients, p, limit):
    ours, theirs = parameters_with(gradients), parameters_with(gradients)
    filled = [parameter for parameter in theirs if parameter.numel()]  # torch refuses the inf-norm of empty ones
    expected = torch.nn.utils.clip_grad_norm_(filled, limit, p)
    if not expected.isfinite():  # float16, whose norm torch cannot hold
        return
    norm = ff.clip_grad_norm_(ours, limit, p)
    assert norm.dim() == 0
    if filled:
        assert_close(norm, expected)
    for one, other in zip(ours, theirs, strict=False):
        assert_close(one.grad, other.grad)


@settings(max_examples=100, deadline=None)
@given(gradients_of_one_dtype(), st.floats(0.01, 1e4))
def test_clipping_by_value_is_that_of_torch(gradients, limit):
    ours, theirs = parameters_with(gradients), parameters_with(gradients)
    assert torch.nn.utils.clip_grad_value_(theirs, limit) is None
    assert ff.clip_grad_value_(ours, limit) is None
    for one, other in zip(ours, theirs, strict=False):
        torch.testing.assert_close(one.grad, other.grad, rtol=0, atol=0)
    record = ff.last_clip()
    before = torch.cat([g.double().flatten() for g in gradients])
    after = torch.cat([p.grad.double().flatten() for p in ours])
    if before.norm() > 1e-3:
        turned = 2 * math.asin(min(1.0, ((before / before.norm() - after / after.norm()).norm() / 2).item()))
        assert record.angle == pytest.approx(turned, abs=1e-5 if gradients[0].dtype not in HALF else 1e-3)
    assert record.clipped == (not torch.equal(before, after))


@settings(max_examples=100, deadline=None)
@given(st.lists(gradients_of_one_dtype(), min_size=2, max_size=4), st.sampled_from([1.0, 2.0, 3.0, math.inf]))
def test_the_norm_of_mixed_dtypes_is_that_of_all_numbers_in_double(lists, p):
    gradients = [gradient for one in lists for gradient in one]
    everything = torch.cat([gradient.double().flatten() for gradient in gradients])
    norm = ff.clip_grad_norm_(parameters_with(gradients), math.inf, p)
    expected = torch.linalg.vector_norm(everything, p) if everything.numel() else torch.tensor(0.0)
    assert ff.last_clip().norm == pytest.approx(expected.item(), rel=1e-9)
    widest = torch.float32 if {g.dtype for g in gradients} == set(HALF) else gradients[0].dtype
    for gradient in gradients:
        widest = torch.promote_types(widest, gradient.dtype)
    assert norm.dtype == widest or norm.item() > 65504


def test_the_returned_norm_has_torchs_dtype_and_is_zero_without_gradients():
    for parameters in ([], [torch.nn.Parameter(torch.ones(2))]):
        norm = ff.clip_grad_norm_(parameters, 1.0)
        expected = torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        assert norm.item() == expected.item() == 0
        assert norm.dtype == expected.dtype


def test_a_single_tensor_a_generator_and_named_parameters_are_taken():
    model = torch.nn.Linear(3, 2)
    for given_as in (
        model.weight,
        model.parameters(),
        model.named_parameters(),
        dict(model.named_parameters()).values(),
    ):
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        ff.clip_grad_norm_(given_as, 1.0)
        assert model.weight.grad.norm() <= 1
    assert ff.last_clip().largest[0].name == ""
    model.weight.grad = torch.ones_like(model.weight)
    ff.clip_grad_norm_(model.named_parameters(), 1.0, lr=0.1)
    record = ff.last_clip()
    assert record.largest[0].name == "weight"
    assert record.step == pytest.approx(0.1 * record.norm)
    assert "weight), clipped to 1 (x 0." in str(record)


def test_128_finite_gradients_of_5e19_keep_their_direction():
    gradients = [torch.full((1,), 5e19 * (-1) ** i) for i in range(128)]
    ours, theirs = parameters_with(gradients), parameters_with(gradients)
    assert torch.nn.utils.clip_grad_norm_(theirs, 1.0).isinf()
    assert all(p.grad == 0 for p in theirs)
    norm = ff.clip_grad_norm_(ours, 1.0)
    assert norm.item() == pytest.approx(5e19 * math.sqrt(128), rel=1e-6)
    for i, parameter in enumerate(ours):
        assert parameter.grad.item() == pytest.approx((-1) ** i / math.sqrt(128), rel=1e-5)


def test_a_norm_beyond_its_dtype_comes_back_in_a_wider_one():
    norm = ff.clip_grad_norm_(parameters_with([torch.full((4,), 60000.0, dtype=torch.float16)]), 1.0)
    assert (norm.dtype, norm.item()) == (torch.float32, 120000)
    norm = ff.clip_grad_norm_(parameters_with([torch.full((4,), 3e38)]), 1.0)
    assert norm.dtype == torch.float64
    assert norm.item() == pytest.approx(6e38, rel=1e-6)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_one_bad_gradient_is_named_and_nothing_is_changed(bad):
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 10.0)
    model[1].weight.grad[1, 2] = bad
    before = [p.grad.clone() for p in model.parameters()]
    for clip in (ff.clip_grad_norm_, ff.clip_grad_value_, ff.clip_grad_units_):
        with pytest.raises(RuntimeError, match=r"1 of 4 gradients is not finite: 1\.weight .* in 1 of 8 elements"):
            clip(model.parameters(), 1.0)
    for parameter, gradient in zip(model.parameters(), before, strict=False):
        torch.testing.assert_close(parameter.grad, gradient, rtol=0, atol=0, equal_nan=True)


def test_a_bad_gradient_can_be_dropped_or_the_clip_skipped():
    good, bad = torch.full((4,), 10.0), torch.full((2,), math.nan)
    parameters = parameters_with([good, bad])
    norm = ff.clip_grad_norm_(parameters, 1.0, on_nonfinite="skip")
    assert norm == 20
    assert ff.last_clip().skipped
    assert torch.equal(parameters[0].grad, good)
    ff.clip_grad_norm_(parameters, 1.0, on_nonfinite="zero")
    assert ff.last_clip().zeroed
    assert [one.index for one in ff.last_clip().nonfinite] == [1]
    assert torch.equal(parameters[1].grad, torch.zeros(2))
    assert parameters[0].grad.norm().item() == pytest.approx(1, rel=1e-5)
    with pytest.raises(ValueError, match="on_nonfinite"):
        ff.clip_grad_norm_(parameters, 1.0, on_nonfinite="ignore")


def test_an_embeddings_sparse_gradient_is_clipped_by_its_sum():
    dense, sparse = (torch.nn.Embedding(10, 4, sparse=s) for s in (False, True))
    for embedding in (dense, sparse):
        embedding(torch.tensor([1, 1, 7])).sum().backward()
    expected = torch.nn.utils.clip_grad_norm_(dense.parameters(), 1.0)
    assert ff.clip_grad_norm_(sparse.parameters(), 1.0).item() == pytest.approx(expected.item())
    torch.testing.assert_close(sparse.weight.grad.to_dense(), dense.weight.grad)


def test_a_gradient_with_a_graph_is_seen_to_have_changed():
    weight = torch.nn.Parameter(torch.ones(3))
    (weight**3).sum().backward(create_graph=True)
    loss = (weight.grad**2).sum()
    ff.clip_grad_norm_([weight], 0.1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_step_of_plain_sgd_is_no_longer_than_lr_times_the_limit():
    model = torch.nn.Linear(20, 20)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for scale in (1e-3, 1.0, 1e6):
        before = torch.cat([p.detach().flatten() for p in model.parameters()])
        optimizer.zero_grad()
        (model(torch.randn(8, 20)).square().sum() * scale).backward()
        ff.clip_grad_norm_(model.parameters(), 0.2)
        optimizer.step()
        after = torch.cat([p.detach().flatten() for p in model.parameters()])
        assert (after - before).norm() <= 0.5 * 0.2 * 1.0001


def test_clipping_by_unit_bounds_each_row_by_its_weights():
    weight, bias = torch.nn.Parameter(torch.randn(6, 5)), torch.nn.Parameter(torch.randn(6))
    weight.grad, bias.grad = torch.randn(6, 5), torch.randn(6)
    most = 0.01 * weight.detach().norm(dim=1).clamp_min(1e-3)
    ff.clip_grad_units_([weight, bias])
    torch.testing.assert_close(weight.grad.norm(dim=1), most)
    torch.testing.assert_close(bias.grad.norm(), 0.01 * bias.detach().norm())
    assert ff.last_clip().parts == 7


def test_adaptive_clipping_goes_on_after_nan_and_from_a_checkpoint():
    clip = ff.AdaptiveClip()
    parameter = torch.nn.Parameter(torch.zeros(1))

    def step(norm):
        parameter.grad = torch.tensor([norm])
        clip([parameter], on_nonfinite="skip")
        return ff.last_clip()

    assert not any(step(1 + 0.01 * (i % 5)).clipped for i in range(40))
    limit = clip.limit
    assert limit < 1.3
    assert all(step(math.nan).skipped for _ in range(100))
    assert clip.limit == limit
    assert step(1000.0).clipped
    assert parameter.grad.item() == pytest.approx(limit, rel=1e-4)
    other = ff.AdaptiveClip()
    other.load_state_dict(clip.state_dict())
    assert other.limit == clip.limit


RANKS = """
import sys, torch, torch.distributed as dist
import firstfault as ff
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
mesh = init_device_mesh("cpu", (2,))
torch.manual_seed(0)
whole = [torch.randn(6, 4), torch.randn(5)]

def shards():
    parameters = []
    for tensor, placement in zip(whole, (Shard(0), Replicate())):
        parameter = torch.nn.Parameter(distribute_tensor(torch.zeros_like(tensor), mesh, [placement]))
        parameter.grad = distribute_tensor(tensor.clone(), mesh, [placement])
        parameters.append(parameter)
    return parameters

for p in (1.0, 2.0, float("inf")):
    parameters = shards()
    norm = ff.clip_grad_norm_(parameters, 0.5, p)
    expected = torch.cat([t.flatten() for t in whole]).norm(p)
    torch.testing.assert_close(norm.double(), expected.double(), check_dtype=False)
    full = torch.cat([q.grad.full_tensor().flatten() for q in parameters])
    torch.testing.assert_close(full.norm(p), torch.tensor(0.5), rtol=1e-4, atol=0)
parameters = shards()
if rank == 1:
    parameters[0].grad.to_local()[0] = float("nan")
try:
    ff.clip_grad_norm_(parameters, 0.5)
    raise SystemExit("not refused")
except RuntimeError as error:
    assert ("another rank" in str(error)) == (rank == 0), error
torch.testing.assert_close(parameters[1].grad.full_tensor(), whole[1])
dist.destroy_process_group()
"""


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without distributed")
def test_dtensors_are_clipped_by_the_norm_over_all_ranks(tmp_path):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    command = [sys.executable, "-c", RANKS]
    ranks = [
        subprocess.Popen(
            [*command, str(rank), str(tmp_path / "store")], env=environment, stderr=subprocess.PIPE, text=True
        )
        for rank in range(2)
    ]
    try:
        for rank in ranks:
            _, error = rank.communicate(timeout=240)
            assert rank.returncode == 0, error
    finally:
        for rank in ranks:
            rank.kill()


def test_the_benchmark_runs_and_prints_a_ratio_for_each_work():
    script = Path(__file__).resolve().parents[2] / "benchmarks" / "clip.py"
    result = subprocess.run([sys.executable, script, "--rounds", "2"], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("met") + result.stdout.count("missed") == 4
