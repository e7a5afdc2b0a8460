"""Inputs on which other tools name the wrong op or say nothing: what they say, where installed, and what we say."""

import re

import pytest
import torch
from torch import nn

import firstfault as ff


def blamed_by_detect_anomaly(program):
    """The node it names, None when it is silent."""
    try:
        with torch.autograd.set_detect_anomaly(True, check_nan=True):
            program()
    except RuntimeError as error:
        return re.search(r"Function '(\w+)' returned nan", str(error)).group(1)
    return None


def traced(program, model=None):
    with ff.trace() as tracker:
        if model is not None:
            tracker.watch(model)
        result = program()
    return tracker, result


def only(culprits):
    assert len(culprits) == 1, [str(culprit) for culprit in culprits]
    return culprits[0]


def operand(origin, name="self"):
    return next(one for one in origin.operands if one.name == name)


# detect_anomaly: NaN in the backward only, and the node that showed it, not the op that made it.


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
@pytest.mark.parametrize("value", [-1.0, 0.0])
def test_a_log_in_the_loss_is_silent_there_and_named_here(value):
    def program():
        x = torch.tensor([2.0, value], requires_grad=True)
        loss = torch.log(x).sum()
        loss.backward()
        return loss

    assert blamed_by_detect_anomaly(program) is None
    tracker, loss = traced(program)
    origin = only(tracker.diagnose(loss).culprits)
    assert (origin.op, origin.mechanism, origin.sink) == ("aten::log", "log_of_nonpositive", "loss")
    assert (origin.kind, origin.index) == ("NaN" if value < 0 else "-Inf", (1,))
    assert (operand(origin).value, operand(origin).index) == (value, (1,))


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_of_two_square_roots_it_blames_the_outer_one_and_we_the_inner_one():
    def program():
        x = torch.tensor([3.0, 1.0], requires_grad=True)
        inner = torch.sqrt(x - 2)
        loss = torch.sqrt(inner).sum()
        loss.backward()
        return loss, inner

    assert blamed_by_detect_anomaly(program) == "SqrtBackward0"  # the outer one's, which runs first
    tracker, (loss, inner) = traced(program)
    origin = only(tracker.diagnose(loss).culprits)
    assert (origin.op, origin.mechanism, operand(origin).value) == ("aten::sqrt", "sqrt_or_rsqrt_domain", -1.0)
    assert [step.op for step in origin.path] == ["aten::sqrt", "aten::sqrt", "aten::sum"]
    assert only(tracker.diagnose(inner).culprits).op_number == origin.op_number


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_of_a_fully_masked_row_it_blames_a_matrix_product_and_we_the_softmax():
    def program():
        query, value = torch.randn(1, 3, 4, requires_grad=True), torch.randn(1, 3, 4, requires_grad=True)
        mask = torch.tensor([[[False, True, True], [True, True, True], [False, False, True]]])
        scores = torch.bmm(query, query.transpose(1, 2)).masked_fill(mask, float("-inf"))
        loss = torch.bmm(scores.softmax(-1), value).sum()
        loss.backward()
        return loss

    torch.manual_seed(0)
    assert blamed_by_detect_anomaly(program) == "BmmBackward0"
    tracker, loss = traced(program)
    origin = only(tracker.diagnose(loss).culprits)
    assert (origin.op, origin.outer_op, origin.mechanism) == ("aten::_softmax", "aten::softmax", "fully_masked_row")
    assert origin.index == (0, 1, 0)
    assert (origin.row.index, origin.row.length, origin.row.neg_inf) == ((0, 1), 3, 3)
    assert origin.counts.nan == 3


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_of_a_norm_at_zero_it_blames_the_power_and_we_the_root_that_made_the_inf():
    def program():
        x = torch.zeros(3, requires_grad=True)
        x.pow(2).sum().sqrt().backward()
        return x.grad

    assert blamed_by_detect_anomaly(program) == "PowBackward0"
    tracker, gradient = traced(program)
    origin = only(tracker.diagnose(gradient).culprits)
    assert (origin.op, origin.forward_op, origin.kind) == ("SqrtBackward0", "aten::sqrt", "+Inf")
    assert (origin.mechanism, origin.inner_op) == ("derivative_at_boundary", "aten::div")
    assert operand(origin, "other").value == 0.0


# sherlorch: forward ops only, and each op that shows a NaN for the first time.


def sherlorch_says(program):
    sherlorch = pytest.importorskip("sherlorch")
    with sherlorch.trace() as tracker:
        answer = program()
    return str(tracker.diagnose(answer))


def test_a_gradient_is_unknown_there_and_diagnosed_here():
    x = torch.zeros(2, requires_grad=True)

    def program():
        torch.sqrt(x).sum().backward()
        return x.grad

    try:
        said = sherlorch_says(program)
    except KeyError as error:  # unless the gradient has the id() of a tensor that is gone
        said = str(error)
    assert "Backward" not in said
    x.grad = None
    tracker, gradient = traced(program)
    origin = only(tracker.diagnose(gradient).culprits)
    assert (origin.op, origin.phase, origin.kind) == ("SqrtBackward0", "backward", "+Inf")
    assert (origin.mechanism, operand(origin, "other").value) == ("derivative_at_boundary", 0.0)


def test_nan_in_the_batch_is_blamed_on_its_reader_there_and_on_the_batch_here():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    x = torch.randn(5, 3)
    x[3, 2] = float("nan")

    assert re.search(r"Culprit #1: \[\d+\] (linear|addmm)", sherlorch_says(lambda: model(x).sum()))
    tracker, loss = traced(lambda: model(x).sum(), model)
    origin = only(tracker.diagnose(loss).culprits)
    assert (origin.phase, origin.mechanism, origin.cause) == ("data", "bad_input", "data_nonfinite")
    assert (origin.index, origin.sample, origin.module) == ((3, 2), 3, "model.0")


def test_a_fully_masked_row_is_blamed_on_the_mask_there_and_on_the_softmax_here():
    def program():
        scores = torch.zeros(2, 3).masked_fill(torch.tensor([[False], [True]]), float("-inf"))
        return scores.softmax(-1).sum()

    assert re.search(r"Culprit #1: \[\d+\] masked_fill", sherlorch_says(program))
    tracker, loss = traced(program)
    origin = only(tracker.diagnose(loss).culprits)
    assert (origin.op, origin.mechanism, origin.row.index) == ("aten::_softmax", "fully_masked_row", (1,))


def test_operand_values_and_a_reason_are_given():
    def program():
        x = torch.ones(2, 3)
        x[1, 2] = 0.0
        return torch.log(x).sum()

    assert "0.0" not in sherlorch_says(program)
    tracker, loss = traced(program)
    origin = only(tracker.diagnose(loss).culprits)
    assert (operand(origin).value, operand(origin).index) == (0.0, (1, 2))
    assert origin.because == "log of 0 is -Inf: its operand 'self' holds 0 at [1, 2] (1 of 6 elements is 0)"
    assert "eps" in origin.advice


def test_nothing_grows_over_adam_steps():
    torch.manual_seed(0)
    model = nn.Linear(4, 4)
    optimizer = torch.optim.Adam(model.parameters())
    with ff.trace() as tracker:
        tracker.watch(model)
        for _ in range(20):
            optimizer.zero_grad()
            model(torch.randn(2, 4)).square().sum().backward()
            optimizer.step()
    assert tracker.origins() == [] and tracker.run().steps == 20
    path = tracker.diagnose(model.weight).culprits
    assert path == []


# neuraldbg: modules only, and thresholds on their own.


def test_a_gradient_that_is_nan_is_no_healthy_gradient():
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def program():
        y = model(torch.zeros(1, 2))
        loss = torch.where(y > 5, torch.sqrt(y - y), y).sum() + torch.sqrt(model.weight - model.weight).sum()
        loss.backward()
        optimizer.step()

    tracker, _ = traced(program, model)
    origin = next(origin for origin in tracker.origins() if origin.sink)
    assert (origin.op, origin.forward_op, origin.sink) == (
        "SqrtBackward0",
        "aten::sqrt",
        "gradient of 'model.weight'",
    )
    assert operand(origin, "other").value == 0.0


def test_a_healthy_mlp_of_60_steps_says_nothing():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with ff.trace() as tracker:
        tracker.watch(model)
        for _ in range(60):
            x = torch.randn(16, 10)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), (x[:, 0] > 0).long()).backward()
            optimizer.step()
    assert tracker.origins() == [] and tracker.run().steps == 60


def test_a_functional_log_is_not_blamed_on_the_next_layer():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(2, 2), nn.Linear(2, 1)

        def forward(self, x):
            return self.second(torch.log(self.first(x)))

    model = Net()
    with torch.no_grad():
        model.first.weight.copy_(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))
        model.first.bias.zero_()
    tracker, loss = traced(lambda: model(torch.ones(1, 2)).sum(), model)
    origin = only(tracker.diagnose(loss).culprits)
    assert (origin.op, origin.module, origin.index) == ("aten::log", "model", (0, 1))
    assert (origin.mechanism, operand(origin).value) == ("log_of_nonpositive", -1.0)


# clip_grad_norm_: silent about all it does to a bad gradient.


def clipped(gradients):
    model = nn.ParameterList(nn.Parameter(torch.zeros(g.shape)) for g in gradients)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def program():
        loss = sum((p * g).sum() for p, g in zip(model, gradients, strict=True))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    tracker, _ = traced(program, model)
    return tracker, model


def test_a_norm_that_overflows_and_turns_finite_gradients_to_zero_is_a_warning():
    tracker, model = clipped([torch.full((4,), 5e19) for _ in range(128)])
    assert all(bool((p.grad == 0).all()) for p in model)
    origin = tracker.origins()[0]
    assert (origin.op, origin.mechanism) == ("aten::_foreach_norm", "reduction_overflow")
    assert origin.swallowed and not origin.absorbed
    assert operand(origin).max == pytest.approx(5e19)


@pytest.mark.parametrize(("value", "spreads"), [(float("nan"), True), (float("inf"), False)])
def test_one_bad_gradient_names_its_parameter_and_not_those_that_clipping_spread_it_to(value, spreads):
    gradients = [torch.ones(3) for _ in range(4)]
    gradients[2][1] = value
    tracker, model = clipped(gradients)
    assert spreads == all(bool(torch.isnan(p).all()) for p in model)
    origin = next(origin for origin in tracker.origins() if origin.sink)
    assert (origin.mechanism, origin.phase, origin.index) == ("bad_input", "data", (1,))
    assert origin.op == "aten::mul"


def test_a_step_that_grad_scaler_skips_is_noted_with_op_and_reason():
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**15)

    def program():
        with torch.autocast("cpu", torch.float16):
            loss = (model(torch.full((4, 2), 300.0)) * 4.0).sum()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    before = model.weight.detach().clone()
    tracker, _ = traced(program, model)
    assert torch.equal(model.weight.detach(), before)
    assert all(origin.absorbed for origin in tracker.origins())
    origin = tracker.origins()[0]
    assert (origin.phase, origin.mechanism, origin.cause) == ("backward", "dtype_overflow", "mixed_precision")
    assert (origin.op, origin.dtype, origin.kind) == ("MulBackward0", "float16", "+Inf")
    assert [operand(origin, name).value for name in ("self", "other")] == [2.0**15, 4.0]


def test_a_fault_of_the_backward_is_seen_where_hooks_on_modules_see_the_forward_only():
    class Distance(nn.Module):
        def forward(self, x):
            return torch.sqrt(x)

    model = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), Distance())
    with torch.no_grad():
        model[0].weight.zero_()
        model[0].bias.zero_()

    def program():
        loss = model(torch.ones(1, 2)).sum()
        loss.backward()
        return loss

    tracker, loss = traced(program, model)
    assert float(loss) == 0.0
    origin = only(tracker.diagnose(model[0].weight.grad).culprits)
    assert (origin.op, origin.forward_op, origin.module) == ("SqrtBackward0", "aten::sqrt", "model.2")
    assert origin.mechanism == "derivative_at_boundary" and operand(origin, "other").value == 0.0
