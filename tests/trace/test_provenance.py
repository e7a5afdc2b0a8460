"""Which op, which line, which module, which element: right on the inputs that other tools get wrong."""

import inspect

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import firstfault as ff


def here(offset=0):
    return inspect.currentframe().f_back.f_lineno + offset


def only_culprit(tracker, tensor):
    culprits = tracker.diagnose(tensor).culprits
    assert len(culprits) == 1, [str(c) for c in culprits]
    return culprits[0]


def faults(tracker):
    return [origin for origin in tracker.origins() if origin.sink]


def test_log_of_zero_is_named_with_line_element_and_operand_value(tracker):
    x = torch.ones(4, 3)
    x[2, 1] = 0.0
    with tracker:
        y = torch.log(x)
        line = here(-1)
        loss = (y * 2).sum()
    origin = only_culprit(tracker, loss)
    assert (origin.op, origin.phase, origin.kind, origin.mechanism) == (
        "aten::log",
        "forward",
        "-Inf",
        "log_of_nonpositive",
    )
    assert (origin.index, origin.counts.neg_inf, origin.counts.nan) == ((2, 1), 1, 0)
    assert (origin.file, origin.line) == (__file__, line)
    assert (origin.operands[0].name, origin.operands[0].value, origin.operands[0].index) == ("self", 0.0, (2, 1))
    assert [step.op for step in origin.path] == ["aten::log", "aten::mul", "aten::sum"]


def test_log_of_a_negative_number_in_the_loss_is_a_nan_from_log(tracker):
    x = torch.tensor([-1.0], requires_grad=True)
    with tracker:
        loss = torch.log(x).sum()
        loss.backward()
    assert (only_culprit(tracker, loss).op, only_culprit(tracker, loss).kind) == ("aten::log", "NaN")
    assert only_culprit(tracker, loss).operands[0].value == -1.0
    assert [origin.sink for origin in faults(tracker)] == ["loss"]


def test_the_inner_of_two_square_roots_is_blamed(tracker):
    x = torch.tensor([1.0, 3.0], requires_grad=True)
    with tracker:
        loss = torch.sqrt(torch.sqrt(x - 2)).sum()
        loss.backward()
    origin = only_culprit(tracker, loss)
    assert (origin.op, origin.operands[0].value) == ("aten::sqrt", -1.0)
    assert [step.op for step in origin.path] == ["aten::sqrt", "aten::sqrt", "aten::sum"]
    assert len(faults(tracker)) == 1


def test_a_fully_masked_row_is_the_softmax_and_not_the_mask(tracker):
    scores = torch.randn(2, 3, 3)
    mask = torch.zeros(2, 3, 3, dtype=torch.bool)
    mask[1, 2] = True
    with tracker:
        weights = scores.masked_fill(mask, float("-inf")).softmax(-1)
        loss = weights.sum()
    origin = only_culprit(tracker, loss)
    assert (origin.op, origin.outer_op, origin.mechanism) == ("aten::_softmax", "aten::softmax", "fully_masked_row")
    assert origin.index == (1, 2, 0)
    assert "[1, 2]" in origin.because


def test_a_mask_of_minus_infinity_that_leaves_a_key_says_nothing(tracker):
    scores = torch.randn(3, 3, requires_grad=True)
    with tracker:
        causal = torch.full((3, 3), float("-inf")).triu(1)
        (scores + causal).softmax(-1).square().sum().backward()
    assert tracker.origins() == []


def test_the_gradient_of_a_norm_at_zero_is_the_square_root_and_names_its_forward_line(tracker):
    x = torch.zeros(3, requires_grad=True)
    with tracker:
        norm = x.pow(2).sum().sqrt()
        line = here(-1)
        norm.backward()
    origin = only_culprit(tracker, x.grad)
    assert (origin.op, origin.forward_op, origin.phase) == ("SqrtBackward0", "aten::sqrt", "backward")
    assert (origin.line, origin.mechanism) == (line, "derivative_at_boundary")


def test_where_hides_the_forward_value_but_not_the_gradient(tracker):
    x = torch.tensor([200.0, -1.0], requires_grad=True)
    with tracker:
        y = torch.where(x > 0, x, torch.exp(x))
        y.sum().backward()
    origin = only_culprit(tracker, x.grad)
    assert (origin.op, origin.forward_op, origin.kind) == ("aten::exp", None, "+Inf")
    assert origin.mechanism == "exp_overflow"


def test_where_with_a_finite_forward_blames_the_backward(tracker):
    x = torch.tensor([0.0, 4.0], requires_grad=True)
    with tracker:
        y = torch.where(x > 0, torch.sqrt(x), torch.zeros(2))
        y.sum().backward()
    origin = only_culprit(tracker, x.grad)
    assert (origin.op, origin.forward_op, origin.index) == ("SqrtBackward0", "aten::sqrt", (0,))


def test_nan_in_the_batch_is_the_batch_and_not_the_op_that_read_it(tracker):
    model = nn.Linear(3, 2)
    x = torch.ones(4, 3)
    x[3, 1] = float("nan")
    with tracker:
        tracker.watch(model)
        loss = model(x).sum()
        loss.backward()
    origin = only_culprit(tracker, loss)
    assert (origin.phase, origin.op, origin.module, origin.mechanism) == ("data", "aten::addmm", "model", "bad_input")
    assert (origin.index, origin.shape) == ((3, 1), (4, 3))


def test_nan_in_a_parameter_names_the_parameter(tracker):
    model = nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 1))
    with torch.no_grad():
        model[2].weight[0, 1] = float("nan")
    with tracker:
        tracker.watch(model)
        loss = model(torch.ones(4, 3)).sum()
        loss.backward()
    origin = only_culprit(tracker, loss)
    assert (origin.phase, origin.param, origin.module) == ("parameter", "model.2.weight", "model.2")
    assert origin.index == (0, 1)


def test_uninitialised_memory_counts_only_when_it_is_read(tracker):
    torch.use_deterministic_algorithms(True)  # fills empty memory with NaN
    try:
        with tracker:
            written = torch.empty(3).fill_(1.0)
            unused = torch.empty(3)
            raw = torch.empty(3)
            loss = (raw + written).sum()
    finally:
        torch.use_deterministic_algorithms(False)
    assert unused.shape == raw.shape
    origin = only_culprit(tracker, loss)
    assert (origin.op, origin.mechanism) == ("aten::add", "unwritten_memory")


@pytest.mark.parametrize("name", ["log_", "sqrt_", "div_", "exp_"])
def test_in_place_ops_show_the_operand_from_before(tracker, name):
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    value = {"log_": 0.0, "sqrt_": -4.0, "div_": 5.0, "exp_": 100.0}[name]
    x[1, 0] = value
    with tracker:
        if name == "div_":
            x.div_(torch.tensor([[1.0, 1.0], [0.0, 1.0]]))
        else:
            getattr(x, name)()
    origin = only_culprit(tracker, x)
    assert (origin.op, origin.index) == (f"aten::{name}", (1, 0))
    assert origin.operands[0].was_overwritten and origin.operands[0].value == value
    assert origin.mechanism in ("log_of_nonpositive", "sqrt_or_rsqrt_domain", "division_by_zero", "exp_overflow")


def test_inf_that_turns_into_nan_later_is_the_op_that_made_the_inf(tracker):
    with tracker:
        big = torch.exp(torch.tensor([100.0]))
        loss = (big - big).sum()
    origin = only_culprit(tracker, loss)
    assert (origin.op, origin.kind, origin.mechanism) == ("aten::exp", "+Inf", "exp_overflow")


def test_independent_culprits_are_all_named(tracker):
    with tracker:
        a = torch.log(torch.zeros(2))
        b = torch.sqrt(-torch.ones(2))
        loss = a.sum() + b.sum()
    assert [c.op for c in tracker.diagnose(loss).culprits] == ["aten::log", "aten::sqrt"]


def test_out_arguments_are_not_operands(tracker):
    garbage = torch.full((2,), float("nan"))
    with tracker:
        torch.add(torch.ones(2), 1, out=garbage)
        fine = garbage * 2
        torch.log(torch.zeros(2), out=garbage)
        bad = garbage * 2
    assert not tracker.has_issue(fine)
    assert only_culprit(tracker, bad).op == "aten::log"


@pytest.mark.parametrize("how", ["single", "foreach", "fused"])
@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW])
def test_a_learning_rate_of_nan_is_found_in_the_optimizer_at_the_parameter(tracker, kind, how):
    model = nn.Linear(2, 2)
    optimizer = kind(model.parameters(), lr=0.1, foreach=how == "foreach", fused=how == "fused")
    with tracker:
        tracker.watch(model)
        for step in range(3):
            if step == 2:
                optimizer.param_groups[0]["lr"] = float("nan")
            optimizer.zero_grad()
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
    found = faults(tracker)
    assert {origin.phase for origin in found} == {"optimizer"}
    assert {origin.step for origin in found} == {2}
    assert {origin.param for origin in found} == {"model.weight", "model.bias"}
    assert found[0].sink.startswith("parameter 'model.")


def test_a_gradient_that_overflows_is_found_when_the_optimizer_takes_it(tracker):
    model = nn.Linear(1, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with tracker:
        tracker.watch(model)
        loss = (model(torch.full((1, 1), 1e30)) * 1e10).sum() * 0.0
        (loss + model.weight.sum() * 1e38 * 3.0).backward()
        model.weight.grad.mul_(1e10)
        optimizer.step()
    origin = faults(tracker)[0]
    assert (origin.sink, origin.param) == ("gradient of 'model.weight'", "model.weight")


def test_a_running_variance_that_turns_bad_is_a_fault_of_the_buffer(tracker):
    model = nn.BatchNorm1d(2, affine=False)
    weight = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    with tracker:
        tracker.watch(model)
        model(torch.full((4, 2), 3e30) * torch.tensor([[1.0], [-1.0], [1.0], [-1.0]]))
        weight.sum().backward()
        optimizer.step()
    assert [(o.op, o.sink) for o in faults(tracker)] == [("aten::native_batch_norm", "buffer 'model.running_var'")]


def test_a_value_that_arithmetic_swallows_is_a_warning(tracker):
    x = torch.tensor([1e30, 1.0], requires_grad=True)
    with tracker:
        y = 1.0 / x.pow(2)
        (y * 2).sum().backward()
    warned = [o for o in tracker.origins() if o.swallowed]
    assert [(o.op, o.sink, o.absorbed) for o in warned] == [("aten::pow", None, False)]


def test_a_value_that_is_left_out_is_a_note(tracker):
    x = torch.tensor([0.0, 1.0])
    with tracker:
        y = torch.log(x)
        torch.where(x > 0, y, torch.zeros(2)).sum()
    assert [(o.op, o.absorbed, o.swallowed) for o in tracker.origins()] == [("aten::log", True, False)]


class Reciprocal(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x + 1

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient / x


def test_a_python_function_whose_backward_divides_by_zero_is_named(tracker):
    x = torch.tensor([0.0, 1.0], requires_grad=True)
    with tracker:
        Reciprocal.apply(x).sum().backward()
    origin = only_culprit(tracker, x.grad)
    assert (origin.op, origin.forward_op, origin.inner_op) == ("ReciprocalBackward", "Reciprocal", "aten::div")


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointed_blocks_name_the_op_of_the_forward(tracker, reentrant):
    def block(x):
        return torch.log(x * 0)

    x = torch.ones(2, requires_grad=True)
    with tracker:
        loss = checkpoint(block, x, use_reentrant=reentrant).sum()
        loss.backward()
    assert only_culprit(tracker, loss).op == "aten::log"


def test_double_backward_names_the_node_and_the_op_it_came_from(tracker):
    x = torch.zeros(1, requires_grad=True)
    with tracker:
        y = x.abs().pow(1.5).sum()
        (g,) = torch.autograd.grad(y, x, create_graph=True)
        assert bool(torch.isfinite(g).all())
        g.sum().backward()
    origin = only_culprit(tracker, x.grad)
    assert origin.phase == "backward" and origin.op.startswith("Pow")


def test_functorch_gradients_are_seen_through(tracker):
    with tracker:
        g = torch.func.grad(lambda x: torch.sqrt(x).sum())(torch.zeros(2))
        h = torch.func.vmap(torch.log)(torch.zeros(2, 2))
    assert torch.isinf(g).all()
    assert only_culprit(tracker, h).op == "aten::log"


def test_a_value_written_from_numpy_is_said_to_come_from_outside(tracker):
    with tracker:
        x = torch.ones(3)
        x.numpy()[1] = float("nan")
        loss = (x * 2).sum()
    origin = only_culprit(tracker, loss)
    assert origin.phase in ("data", "outside") and origin.mechanism == "bad_input"
    assert origin.index == (1,)


def test_lbfgs_closures_have_a_forward_and_a_backward_inside_the_step(tracker):
    model = nn.Linear(1, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)

    def closure():
        optimizer.zero_grad()
        loss = torch.log(model(torch.zeros(1, 1)) * 0).sum()
        loss.backward()
        return loss

    with tracker:
        tracker.watch(model)
        optimizer.step(closure)
    assert (faults(tracker)[0].op, faults(tracker)[0].phase, faults(tracker)[0].step) == ("aten::log", "forward", 0)


def test_half_precision_overflow_is_found_by_index(tracker):
    a = torch.full((2, 3), 300.0, dtype=torch.float16)
    with tracker:
        product = a * a
        loss = product.float().sum()
    origin = only_culprit(tracker, loss)
    assert (origin.op, origin.dtype, origin.kind, origin.mechanism) == (
        "aten::mul",
        "float16",
        "+Inf",
        "dtype_overflow",
    )


def test_layouts_do_not_change_the_index(tracker):
    base = torch.ones(3, 4)
    base[2, 1] = 0.0
    for view in (base.t(), base[:, 1:2].expand(3, 4), base.reshape(1, 3, 4).permute(2, 0, 1)):
        with ff.trace() as t:
            y = torch.log(view)
        expected = tuple(torch.nonzero(~torch.isfinite(y))[0].tolist())
        assert only_culprit(t, y).index == expected


def test_bad_values_of_the_step_before_are_not_reported_again(tracker):
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with tracker:
        tracker.watch(model)
        for step in range(4):
            optimizer.zero_grad()
            out = model(torch.ones(1, 2))
            loss = (torch.log(out * 0) if step == 1 else out).sum()
            loss.backward()
            optimizer.step()
    assert [(o.step, o.op) for o in faults(tracker)] == [(1, "aten::log")]
    assert tracker.run().steps == 4


def test_a_sum_that_overflows_from_a_mask_is_the_sum(tracker):
    x = torch.ones(2, 3, requires_grad=True)
    with tracker:
        masked = x.masked_fill(torch.tensor([False, True, False]), float("-inf"))
        loss = masked.sum()
        loss.backward()
    assert only_culprit(tracker, loss).op == "aten::sum"


def test_a_value_kept_from_an_earlier_step_is_a_fault_when_it_reaches_the_loss_later(tracker):
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with tracker:
        tracker.watch(model)
        for step in range(3):
            optimizer.zero_grad()
            loss = model(torch.ones(1, 2)).sum()
            if step == 0:
                kept = torch.log(torch.zeros(1))
            if step == 2:
                loss = loss + kept.sum()
            loss.backward()
            optimizer.step()
    assert [(o.op, o.step, o.sink, o.absorbed) for o in tracker.origins()] == [("aten::log", 0, "loss", False)]


def test_a_mask_in_a_buffer_is_never_a_fault(tracker):
    model = nn.Linear(3, 3)
    model.register_buffer("mask", torch.full((3, 3), float("-inf")).triu(1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with tracker:
        tracker.watch(model)
        for _ in range(3):
            optimizer.zero_grad()
            scores = model(torch.ones(3, 3)) + model.mask
            y = torch.where(torch.ones(3, 3) > 0, scores.softmax(-1), torch.log(torch.zeros(3, 3)))
            y.square().sum().backward()
            optimizer.step()
    assert [o for o in tracker.origins() if not o.absorbed] == []


def test_an_operand_of_an_in_place_op_in_reused_memory_is_looked_at_again(tracker):
    import numpy

    with tracker:
        for _ in range(20):
            a = torch.ones(4) * 2
            del a
        x = torch.from_numpy(numpy.array([float("nan"), 1.0], dtype=numpy.float32))
        x.mul_(2.0)
    assert only_culprit(tracker, x).mechanism == "bad_input"


def test_a_loss_that_is_a_view_is_a_sink(tracker):
    w = nn.Parameter(torch.ones(1))
    with tracker:
        loss = (w + torch.log(torch.zeros(1))).view(())
        loss.backward()
    assert [(o.op, o.sink) for o in faults(tracker)] == [("aten::log", "loss")]


def test_a_tensor_that_cannot_be_inspected_is_not_called_finite(tracker):
    with tracker:
        x = torch.ones(3, device="meta") * 2
    with pytest.raises(KeyError):
        tracker.has_issue(x)
    assert [u.what for u in tracker.run().uninspected] == ["device meta"]


def test_after_the_cap_an_op_that_was_looked_at_before_is_not_blamed():
    with ff.trace(max_ops=40) as t:
        a = torch.log(torch.zeros(1))
        for _ in range(60):
            torch.ones(1) + 1
        a.fill_(1.0)
        a.add_(float("nan"))
    with pytest.raises(KeyError):  # what was known of it holds no more
        t.diagnose(a)


def test_dispatch_modes_of_the_program_see_only_its_own_ops(tracker):
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Log(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    x = torch.ones(2)
    with tracker, Log():
        x.sqrt_()
    assert seen == ["aten.sqrt_.default"]


@pytest.mark.parametrize(
    ("make", "change"),
    [
        (lambda p: torch.optim.AdamW(p, lr=0.1), {"weight_decay": float("inf")}),
        (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), {"momentum": float("inf")}),
    ],
    ids=["AdamW's decay", "SGD's momentum"],
)
def test_an_infinite_number_in_the_optimizers_arithmetic_is_no_inf_that_is_meant(tracker, make, change):
    model = nn.Linear(3, 2)
    optimizer = make(model.parameters())
    with tracker:
        tracker.watch(model, name="model")
        for step in range(3):
            if step == 1:
                optimizer.param_groups[0].update(change)
            optimizer.zero_grad()
            model(torch.randn(4, 3)).square().mean().backward()
            optimizer.step()
    first = faults(tracker)[0]
    assert (first.step, first.phase, first.mechanism) == (1, "optimizer", "nonfinite_hyperparameter")


def test_a_sparse_optimizer_too(tracker):
    model = nn.Embedding(6, 3, sparse=True)
    optimizer = torch.optim.SparseAdam(model.parameters(), lr=float("inf"))
    with tracker:
        tracker.watch(model, name="model")
        model(torch.tensor([1, 2])).square().sum().backward()
        optimizer.step()
    first = faults(tracker)[0]
    assert (first.step, first.phase, first.mechanism) == (0, "optimizer", "nonfinite_hyperparameter")


def test_an_infinite_weight_of_the_loss_is_a_number_in_the_call_and_no_data(tracker):
    model = nn.Linear(3, 2)
    with tracker:
        tracker.watch(model, name="model")
        loss = model(torch.randn(4, 3)).square().mean() * float("inf")
        line = here(-1)
        loss.backward()
    first = faults(tracker)[0]
    assert (first.op, first.phase, first.mechanism, first.line) == (
        "aten::mul",
        "forward",
        "nonfinite_hyperparameter",
        line,
    )
    assert [(o.name, o.value) for o in first.operands] == [("other", float("inf"))]


def test_a_constant_that_an_op_writes_for_its_operands_is_that_ops(tracker):
    x = torch.diag(torch.tensor([1.0, -1.0])).requires_grad_()
    with tracker:
        loss = torch.logdet(x)
    origin = only_culprit(tracker, loss)
    assert (origin.op, origin.inner_op, origin.mechanism) == (
        "aten::logdet",
        "aten::scalar_tensor",
        "log_of_nonpositive",
    )


@pytest.mark.parametrize("on", ["result", "leaf", "node"])
def test_an_op_in_a_hook_of_the_backward_is_named_itself_with_its_line(tracker, on):
    x = torch.rand(3, requires_grad=True)

    def divide(gradient):
        return gradient / torch.zeros(())

    def divide_all(gradients):
        return tuple(gradient / torch.zeros(()) for gradient in gradients)

    lines = {divide.__code__.co_firstlineno + 1, divide_all.__code__.co_firstlineno + 1}
    with tracker:
        y = torch.tanh(x)
        if on == "node":
            y.grad_fn.register_prehook(divide_all)
        else:
            (y if on == "result" else x).register_hook(divide)
        y.sum().backward()
    origin = only_culprit(tracker, x.grad)
    assert (origin.op, origin.phase, origin.mechanism) == ("aten::div", "backward", "division_by_zero")
    assert (origin.forward_op, origin.file) == (None, __file__)
    assert origin.line in lines


def test_a_gradient_that_the_engine_sums_to_shape_is_still_the_nodes(tracker):
    x = torch.full((1,), 3e38, requires_grad=True)
    with tracker:
        y = x * torch.ones(4)
        y.backward(torch.full((4,), 3e38))
    origin = only_culprit(tracker, x.grad)
    assert (origin.op, origin.forward_op) == ("MulBackward0", "aten::mul")


def test_a_number_that_the_program_writes_into_its_batch_is_told_as_that(tracker):
    model = nn.Linear(8, 1)
    tracker.watch(model)
    x = torch.randn(16, 8)
    with tracker:
        x[11, 3] = float("nan")
        line = here(-1)
        model(x).square().mean().backward()
    (origin,) = faults(tracker)
    assert (origin.op, origin.cause, origin.line) == ("aten::copy_", "data_nonfinite", line)
    assert str(origin).startswith("NaN was written into a tensor by the program (op ")
    assert "the program itself wrote NaN into a tensor" in str(origin)
