"""For every mechanism a program that fires it, and a healthy one close by. The pages of docs/mechanisms show the first.

A program gives the tensor that is asked about; one that needs names watches its model itself.
"""

import math

import numpy
import torch
import torch.nn.functional as F
from torch import nn

INF = math.inf


def leaf(*values):
    return torch.tensor(values, requires_grad=True)


def gradient(x, loss):
    loss.backward()
    return x.grad


def unwritten_memory(tracker):
    torch.use_deterministic_algorithms(True)  # fills empty memory with NaN, so that the read shows
    try:
        buffer = torch.empty(3)
        return buffer + torch.ones(3)
    finally:
        torch.use_deterministic_algorithms(False)


def unwritten_memory_silent(tracker):
    buffer = torch.empty(3)
    buffer.fill_(1.0)
    return buffer + torch.ones(3)


def compiled_region(tracker):
    model = torch.compile(nn.Sequential(nn.Linear(2, 2), nn.Softplus()), backend="aot_eager")
    return model(torch.ones(1, 2))


def bad_input(tracker):
    model = nn.Linear(2, 1)
    tracker.watch(model)
    with torch.no_grad():
        model.weight.numpy()[0, 1] = numpy.nan
    return model(torch.ones(3, 2))


def bad_input_silent(tracker):
    x = torch.tensor([1.0, math.nan])
    return x.nan_to_num(0.0) * 2


def nonfinite_hyperparameter(tracker):
    model = nn.Linear(2, 1)
    tracker.watch(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.param_groups[0]["lr"] = 0.1 * numpy.float64(0) / numpy.float64(0)  # a warm-up of 0 steps
    optimizer.step()
    return model.weight


def nonfinite_hyperparameter_silent(tracker):
    return torch.clamp(torch.ones(2), max=INF)


def all_targets_ignored(tracker):
    scores = torch.randn(4, 3)
    return F.cross_entropy(scores, torch.full((4,), -100))


def all_targets_ignored_silent(tracker):
    scores = torch.randn(4, 3)
    return F.cross_entropy(scores, torch.tensor([-100, -100, 2, -100]))


def infeasible_ctc(tracker):
    log_probs = torch.randn(4, 1, 5).log_softmax(-1)
    targets = torch.tensor([[1, 1, 2, 2, 3, 3]])
    return F.ctc_loss(log_probs, targets, torch.tensor([4]), torch.tensor([6]))


def infeasible_ctc_silent(tracker):
    log_probs = torch.randn(4, 1, 5).log_softmax(-1)
    return F.ctc_loss(log_probs, torch.tensor([[1, 2]]), torch.tensor([4]), torch.tensor([2]))


def fully_masked_row(tracker):
    scores = torch.randn(2, 3)
    mask = torch.tensor([[False, True, True], [True, True, True]])
    return scores.masked_fill(mask, -INF).softmax(-1)


def fully_masked_row_in_place(tracker):
    scores = torch.randn(2, 3)
    scores.masked_fill_(torch.tensor([[False], [True]]), -INF)
    return torch.log_softmax(scores, -1)


def fully_masked_row_silent(tracker):
    scores = torch.randn(3, 3)
    return (scores + torch.full((3, 3), -INF).triu(1)).softmax(-1)


def optimizer_denominator(tracker):
    model = nn.Linear(2, 1, bias=False).half()
    tracker.watch(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, eps=1e-8)  # 0 in float16
    (model(torch.tensor([[0.0, 1.0]], dtype=torch.float16))).sum().backward()
    optimizer.step()
    return model.weight


def optimizer_denominator_foreach(tracker):
    model = nn.Linear(2, 1, bias=False).half()
    tracker.watch(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, eps=1e-8, foreach=True)
    (model(torch.tensor([[0.0, 1.0]], dtype=torch.float16))).sum().backward()
    optimizer.step()
    return model.weight


def optimizer_denominator_silent(tracker):
    model = nn.Linear(2, 1, bias=False).half()
    tracker.watch(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, eps=1e-4)
    (model(torch.tensor([[0.0, 1.0]], dtype=torch.float16))).sum().backward()
    optimizer.step()
    return model.weight


def degenerate_decomposition(tracker):
    x = torch.eye(3, requires_grad=True)
    values, vectors = torch.linalg.eigh(x)
    return gradient(x, (values * vectors[0]).sum())


def degenerate_decomposition_silent(tracker):
    x = torch.diag(torch.tensor([1.0, 2.0, 3.0])).requires_grad_()
    values, vectors = torch.linalg.eigh(x)
    return gradient(x, (values * vectors[0]).sum())


def derivative_at_boundary(tracker):
    x = leaf(0.0, 4.0)
    return gradient(x, torch.sqrt(x).sum())


def derivative_at_boundary_in_place(tracker):
    x = leaf(0.0, 4.0)
    y = x * 1.0
    y.sqrt_()
    return gradient(x, y.sum())


def derivative_at_boundary_silent(tracker):
    x = leaf(0.0, 4.0)
    return gradient(x, torch.sqrt(x + 1e-8).sum())


def where_hides_forward_only(tracker):
    x = leaf(1.0, 2.0)
    scale = torch.ones(2).masked_fill(torch.tensor([True, False]), INF)
    return gradient(x, torch.where(scale.isinf(), torch.zeros(2), x * scale).sum())


def where_hides_forward_only_silent(tracker):
    x = leaf(0.0, 2.0)
    safe = torch.where(x > 0, x, torch.ones(2))  # the double where
    return gradient(x, torch.where(x > 0, safe.sqrt(), torch.zeros(2)).sum())


def log_of_nonpositive(tracker):
    probabilities = torch.tensor([0.5, 0.0, 0.5])
    return torch.log(probabilities)


def log_of_nonpositive_in_place(tracker):
    probabilities = torch.tensor([0.5, -0.1])
    return probabilities.log_()


def log_of_nonpositive_silent(tracker):
    return torch.log(torch.tensor([0.5, 0.0]).clamp_min(1e-8))


def sqrt_or_rsqrt_domain(tracker):
    return torch.sqrt(torch.tensor([4.0, -1e-7]))


def sqrt_or_rsqrt_domain_in_place(tracker):
    degree = torch.tensor([2.0, 0.0])
    return degree.rsqrt_()


def sqrt_or_rsqrt_domain_silent(tracker):
    return torch.sqrt(torch.tensor([4.0, -1e-7]).clamp_min(0.0))


def division_by_zero(tracker):
    count = torch.tensor([3.0, 0.0])
    return torch.tensor([6.0, 1.0]) / count


def division_by_zero_in_place(tracker):
    total = torch.tensor([6.0, 0.0])
    return total.div_(torch.tensor([3.0, 0.0]))


def division_by_zero_silent(tracker):
    return torch.tensor([6.0, 1.0]) / torch.tensor([3.0, 0.0]).clamp_min(1.0)


def exp_overflow(tracker):
    log_variance = torch.tensor([0.1, 95.0])
    return torch.exp(log_variance)


def exp_overflow_in_place(tracker):
    return torch.tensor([0.1, 12.0], dtype=torch.float16).exp_()


def exp_overflow_silent(tracker):
    return torch.exp(torch.tensor([0.1, 95.0]).clamp(max=20.0))


def inf_minus_inf(tracker):
    mask = torch.tensor([0.0, -INF])
    return mask.masked_fill(mask < 0, -INF) - mask.masked_fill(mask < 0, -INF)


def inf_minus_inf_silent(tracker):
    return torch.ones(2) - torch.tensor([1.0, 1.0])


def zero_times_inf(tracker):
    penalty = torch.zeros(2).masked_fill(torch.tensor([False, True]), INF)
    return penalty * torch.tensor([1.0, 0.0])


def zero_times_inf_silent(tracker):
    return torch.zeros(2) * torch.tensor([1.0, 3.0])


def inf_over_inf(tracker):
    bound = torch.ones(2).masked_fill(torch.tensor([False, True]), INF)
    return bound / bound


def inf_over_inf_silent(tracker):
    bound = torch.ones(2).masked_fill(torch.tensor([False, True]), 1e9)
    return bound / bound


def reduction_overflow(tracker):
    return torch.full((4,), 2e38).sum()


def reduction_overflow_norm(tracker):
    return torch.linalg.vector_norm(torch.full((4,), 5e19))


def reduction_overflow_silent(tracker):
    return torch.full((4,), 2e37).sum() + torch.full((4,), 2e38, dtype=torch.float64).sum().log().float()


def dtype_overflow(tracker):
    activations = torch.tensor([300.0, 2.0], dtype=torch.float16)
    return activations * activations


def dtype_overflow_in_place(tracker):
    activations = torch.tensor([60000.0, 2.0], dtype=torch.float16)
    return activations.add_(torch.tensor([30000.0, 2.0], dtype=torch.float16))


def dtype_overflow_cast(tracker):
    return torch.tensor([1e6, 2.0]).half()


def dtype_overflow_silent(tracker):
    activations = torch.tensor([300.0, 2.0], dtype=torch.bfloat16)
    return activations * activations
