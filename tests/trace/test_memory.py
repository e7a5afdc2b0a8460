"""Kinds of memory: sparse, nested, quantized, shared with numpy, partly written, complex, 8-bit."""

import math

import numpy
import pytest
import torch
from torch import nn

import firstfault as ff

NAN = math.nan


def only_culprit(tracker, tensor):
    culprits = tracker.diagnose(tensor).culprits
    assert len(culprits) == 1, [str(culprit) for culprit in culprits]
    return culprits[0]


def edges(values):
    return torch.sparse_coo_tensor(torch.tensor([[0, 1], [1, 0]]), torch.tensor(values), (2, 2))


@pytest.mark.parametrize("layout", ["coo", "csr"])
def test_nan_in_a_sparse_matrix_is_the_matrix_and_not_the_product(tracker, layout):
    adjacency = edges([1.0, NAN])
    adjacency = adjacency.to_sparse_csr() if layout == "csr" else adjacency
    with tracker:
        y = torch.sparse.mm(adjacency, torch.ones(2, 3))
    origin = only_culprit(tracker, y)
    assert (origin.mechanism, origin.phase, origin.index) == ("bad_input", "data", (1,))


def test_a_sparse_op_that_divides_by_zero_is_named(tracker):
    with tracker:
        scaled = edges([1.0, 2.0]).coalesce() / torch.tensor(0.0)
        y = torch.sparse.mm(scaled, torch.ones(2, 3))
    assert only_culprit(tracker, y).op == "aten::div"
    assert tracker.has_issue(scaled) and only_culprit(tracker, scaled).op == "aten::div"


def test_a_sparse_gradient_that_is_nan_is_found_when_the_optimizer_takes_it(tracker):
    embedding = nn.Embedding(4, 2, sparse=True)
    optimizer = torch.optim.SGD(embedding.parameters(), lr=0.1)
    with tracker:
        tracker.watch(embedding, name="words")
        loss = torch.sqrt(embedding(torch.tensor([1, 2])) * 0).sum()
        loss.backward()
        optimizer.step()
    faults = [origin for origin in tracker.origins() if origin.sink]
    assert (faults[0].op, faults[0].forward_op, faults[0].sink) == (
        "SqrtBackward0",
        "aten::sqrt",
        "gradient of 'words.weight'",
    )


def test_healthy_sparse_training_is_silent_and_inspected(tracker):
    embedding = nn.Embedding(10, 4, sparse=True)
    optimizer = torch.optim.SparseAdam(embedding.parameters())
    with tracker:
        tracker.watch(embedding)
        for _ in range(4):
            optimizer.zero_grad()
            embedding(torch.tensor([1, 2, 1])).square().sum().backward()
            optimizer.step()
    assert tracker.origins() == [] and tracker.run().uninspected == []


def test_nested_and_quantized_tensors_are_said_to_be_uninspected(tracker):
    with tracker:
        nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
        nested * 2
        torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8)
    said = {missed.what: missed.tensors for missed in tracker.run().uninspected}
    assert said["nested tensor"] >= 1 and said["quantized dtype QUInt8"] >= 1
    with pytest.raises(KeyError):
        tracker.has_issue(nested)


def test_an_in_place_op_on_a_buffer_that_numpy_wrote_between_steps_is_not_blamed(tracker):
    class Average(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 3)
            self.register_buffer("average", torch.zeros(3))

        def forward(self, x):
            self.average.lerp_(x.mean(0), 0.1)
            return self.linear(x) * self.average

    model = Average()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with tracker:
        tracker.watch(model)
        for step in range(3):
            if step == 2:
                model.average.numpy()[1] = NAN
            optimizer.zero_grad()
            model(torch.ones(2, 3)).sum().backward()
            optimizer.step()
    origin = next(origin for origin in tracker.origins() if origin.sink)
    assert (origin.step, origin.mechanism, origin.index) == (2, "bad_input", (1,))
    assert "buffer 'model.average'" in origin.because


def test_a_clean_slice_of_a_bad_storage_is_clean(tracker):
    with tracker:
        x = torch.ones(4, 2)
        x[1:2].log_().sub_(1.0).log_()
        fine = x[2:] * 2
        bad = x[:2] * 2
    assert not tracker.has_issue(fine) and tracker.diagnose(fine).culprits == []
    assert only_culprit(tracker, bad).op == "aten::log_"


def test_a_write_through_data_and_set_is_followed(tracker):
    with tracker:
        x = torch.ones(3)
        x.data.log_().sub_(1).log_()
        y = x + 1
        z = torch.zeros(3)
        z.set_(torch.log(torch.zeros(3)))
        w = z * 2
    assert only_culprit(tracker, y).op == "aten::log_"
    assert only_culprit(tracker, w).op == "aten::log"


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_complex_zero_has_a_value_and_a_mechanism(tracker, dtype):
    x = torch.tensor([1 + 1j, 0j], dtype=dtype)
    with tracker:
        y = torch.reciprocal(x)
    origin = only_culprit(tracker, y)
    assert (origin.op, origin.mechanism, origin.operands[0].value) == ("aten::reciprocal", "division_by_zero", 0.0)
    assert (origin.index, origin.dtype) == ((1,), str(dtype).removeprefix("torch."))


@pytest.mark.parametrize("dtype", [torch.float8_e5m2, torch.float8_e4m3fn])
def test_a_cast_to_8_bits_that_overflows_is_named(tracker, dtype):
    x = torch.tensor([[1.0, 2.0], [1e6, 3.0]])
    with tracker:
        y = x.to(dtype)
        back = y.float()
    if bool(torch.isfinite(back).all()):  # this format saturates
        assert tracker.origins() == []
        return
    origin = only_culprit(tracker, back)
    assert (origin.op, origin.dtype, origin.index) == ("aten::_to_copy", str(dtype).removeprefix("torch."), (1, 0))
    assert (origin.mechanism, origin.operands[0].value, origin.file) == ("dtype_overflow", 1e6, __file__)


def test_a_number_taken_out_with_item_keeps_its_origin(tracker):
    with tracker:
        norm = torch.linalg.vector_norm(torch.full((4,), 5e19))
        y = torch.ones(2).add_(torch.ones(2), alpha=-norm.item())
    assert only_culprit(tracker, y).op == "aten::linalg_vector_norm"


def test_a_mark_for_what_is_missing_says_that_it_was_written():
    x = torch.ones(3, 2)
    model = nn.Linear(2, 1)
    with ff.trace() as tracker:
        tracker.watch(model)
        marked = x.masked_fill(torch.tensor([False, True]), NAN)
        loss = model(marked).sum()
    origin = only_culprit(tracker, loss)
    assert (origin.phase, origin.mechanism, origin.op, origin.module) == ("data", "bad_input", "aten::addmm", "model")
    assert "made by aten::masked_fill" in origin.because


def test_a_log_before_the_model_runs_is_the_log_also_in_later_steps():
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with ff.trace() as tracker:
        tracker.watch(model)
        for step in range(3):
            x = torch.log(torch.full((3, 2), float(step < 2)))
            loss = model(x).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    origin = next(origin for origin in tracker.origins() if origin.sink)
    assert (origin.op, origin.step, origin.phase, origin.mechanism) == (
        "aten::log",
        2,
        "data",
        "log_of_nonpositive",
    )
    assert origin.file == __file__ and origin.operands[0].value == 0.0


def test_steps_with_a_grad_scaler_are_counted_once_skipped_or_not():
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    with ff.trace() as tracker:
        tracker.watch(model)
        for step in range(6):
            optimizer.zero_grad()
            factor = torch.tensor(math.inf if step == 2 else 1.0)
            loss = (model(torch.ones(1, 2)) * (factor if step != 4 else torch.log(torch.zeros(1)))).sum()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    assert tracker.run().steps == 6
    assert [(o.op, o.step) for o in tracker.origins() if o.op == "aten::log"] == [("aten::log", 4)]


def test_log_probabilities_of_zero_in_a_buffer_are_no_fault(tracker):
    class Markov(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(2))
            self.register_buffer("transition", torch.eye(2).log())

        def forward(self):
            return torch.logsumexp(self.transition + self.weight, 1).sum()

    with tracker:
        model = Markov()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        tracker.watch(model)
        for _ in range(3):
            optimizer.zero_grad()
            model().backward()
            optimizer.step()
    assert [str(origin) for origin in tracker.origins() if origin.sink] == []


def test_memory_that_ctc_leaves_unwritten_is_not_looked_at(tracker):
    with tracker:
        for _ in range(20):
            log_probs = torch.randn(12, 3, 5, requires_grad=True).log_softmax(-1)
            targets = torch.tensor([[1, 2, 3, 4, 1, 2], [1, 0, 0, 0, 0, 0], [2, 3, 0, 0, 0, 0]])
            torch.full((4096,), NAN)  # freed memory to be found again
            lengths = torch.tensor([12, 5, 7]), torch.tensor([6, 1, 2])
            nn.functional.ctc_loss(log_probs, targets, *lengths).backward()
    assert [str(o) for o in tracker.origins() if "ctc" in (o.op or "").lower()] == []


def test_a_tensor_made_after_the_trace_at_a_known_address_is_untracked():
    with ff.trace() as tracker:
        made = [torch.ones(7) * i for i in range(50)]
    addresses = {t.untyped_storage()._cdata for t in made}
    del made
    later = [torch.ones(1000) * i for i in range(50)]
    reused = [t for t in later if t.untyped_storage()._cdata in addresses]
    for tensor in reused:
        with pytest.raises(KeyError):
            tracker.diagnose(tensor)
    assert numpy.isfinite([float(t.sum()) for t in later]).all()


def test_in_a_notebook_a_diagnosis_shows_itself_as_html(tracker):
    with tracker:
        y = torch.log(torch.zeros(2))
    html = tracker.diagnose(y)._repr_html_()
    assert html.startswith('<div class="firstfault"><p><strong>output of aten::log (float32 [2]) holds 2 -Inf')
    assert "log of 0 is -Inf: its operand &#39;self&#39; holds 0 at [0]" in html
    assert "<strong>No fault" in tracker.run()._repr_html_()
    assert "aten::log" in tracker.origins()[0]._repr_html_()


@pytest.mark.parametrize("count", [0, torch.tensor(0), torch.tensor([0, 2])])
def test_a_count_of_0_is_a_division_by_zero_also_as_an_integer(tracker, count):
    with tracker:
        y = torch.ones(2) / count
    origin = only_culprit(tracker, y)
    assert (origin.op, origin.mechanism, origin.index) == ("aten::div", "division_by_zero", (0,))
    assert next(o for o in origin.operands if o.name == "other").value == 0.0


def test_what_where_left_out_is_no_culprit(tracker):
    with tracker:
        y = torch.logdet(torch.zeros(2, 2))  # ends in where(..., NaN)
    origin = only_culprit(tracker, y)
    assert (origin.op, origin.outer_op, origin.kind) == ("aten::_linalg_slogdet", "aten::logdet", "-Inf")
    assert origin.mechanism == "degenerate_decomposition"


def test_a_clean_write_to_a_part_does_not_make_the_rest_clean(tracker):
    array = numpy.ones((6, 2), dtype=numpy.float32)
    array[5, 1] = NAN
    x = torch.from_numpy(array)
    with tracker:
        x[0] = 0.0
        x.div_(255.0)
        y = torch.relu(x)
    for tensor in (x, y):
        assert only_culprit(tracker, tensor).mechanism == "bad_input"


def test_a_cast_of_an_integer_that_half_precision_cannot_hold_is_named(tracker):
    seconds = torch.tensor([1_700_000_000])
    with tracker:
        y = seconds.half() * 1
        z = torch.arange(0, 100_000, 50_000, dtype=torch.float16)
    assert only_culprit(tracker, y).op == "aten::_to_copy"
    if not bool(torch.isfinite(z).all()):
        assert only_culprit(tracker, z).op.startswith("aten::arange")


def test_what_was_made_while_paused_is_not_known_by_the_memory_it_got(tracker):
    x = torch.ones(5)
    with tracker:
        for _ in range(20):
            y = torch.relu(x)
            del y
            tracker.pause()
            z = torch.log(-x)
            tracker.resume()
            z.add_(1)
            assert only_culprit(tracker, z).mechanism == "bad_input"


@pytest.mark.parametrize("fused", [False, True])
def test_a_gradient_that_the_scaler_skips_is_a_note_also_in_a_fused_optimizer(fused):
    model = nn.Linear(2, 1)
    optimizer = torch.optim.AdamW(model.parameters(), fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    with ff.trace() as tracker:
        tracker.watch(model)
        for step in range(3):
            optimizer.zero_grad()
            hidden = model(torch.ones(1, 2))
            loss = (hidden * (torch.sqrt(model.weight * 0) if step == 1 else 1.0)).sum()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    assert [str(origin) for origin in tracker.origins() if origin.sink] == []
    assert tracker.run().steps == 3
