"""firstfault.compat.nan_detector: the NaN detector's names and texts, and right where it is wrong."""

import inspect
import math
import re
import subprocess
import sys
import threading
from dataclasses import fields
from pathlib import Path

import pytest
import torch
from torch import nn

import firstfault as ff
from firstfault.compat import nan_detector
from firstfault.compat.nan_detector import GradEvent, NaNDetector, NaNEvent, train_with_nan_guard, watch_for_nans

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "nan_detector"
LINE = "=" * 60


class Net(nn.Module):
    """Five modules with the model itself; `between` runs before layer4, from the 13th pass on."""

    def __init__(self, between=lambda x: x, after=lambda x: x):
        super().__init__()
        self.between, self.after, self.passes = between, after, 0
        self.layer1, self.layer2 = nn.Linear(16, 64), nn.ReLU()
        self.layer3, self.layer4 = nn.Linear(64, 32), nn.Linear(32, 1)

    def forward(self, x):
        self.passes += 1
        x = self.layer3(self.layer2(self.layer1(x)))
        x = self.layer4(self.between(x) if self.passes > 12 else x)
        return self.after(x) if self.passes > 12 else x


def batch(rows=8):
    return torch.randn(rows, 16), torch.randn(rows, 1)


def detect(model, batches=16, **options):
    """What a detector says of some forward passes."""
    options = {"verbose": False, **options}
    with NaNDetector(model, **options) as detector:
        for number in range(batches):
            detector.set_batch(number)
            model(torch.randn(8, 16))
    return detector


def poisoned(shape=(8, 16)):
    """Bad before anything is traced: from a loader, so to speak."""
    values = torch.randn(shape).tolist()
    values[5][3] = float("nan")
    return values


# The interface


def arguments(function):
    return {
        p.name: p.default for p in inspect.signature(function).parameters.values() if p.name not in ("self", "model")
    }


def test_arguments_and_fields_have_the_names_and_defaults_that_are_documented():
    assert arguments(NaNDetector.__init__) == {
        "stop_on_first": True,
        "check_inputs": True,
        "check_backward": False,
        "grad_norm_warn": 100.0,
        "skip_types": (),
        "max_events": 100,
        "verbose": True,
    }
    assert [field.name for field in fields(NaNEvent)][:10] == [
        "batch_idx",
        "layer_name",
        "module_type",
        "input_has_nan",
        "output_has_nan",
        "input_has_inf",
        "output_has_inf",
        "output_shape",
        "output_stats",
        "is_backward",
    ]
    assert [f.name for f in fields(GradEvent)] == ["batch_idx", "layer_name", "param_name", "grad_norm", "threshold"]
    guard = arguments(train_with_nan_guard)
    assert list(guard) == ["loader", "criterion", "optimizer", "max_batches", "device", "detector_kwargs"]
    assert (guard["max_batches"], guard["device"]) == (None, "cpu")
    assert arguments(nan_detector.benchmark) == {"n_batches": 30, "batch_size": 64}


def test_importing_it_imports_neither_torch_nor_matplotlib():
    code = "import sys, firstfault.compat.nan_detector; sys.exit(bool({'torch', 'matplotlib'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_an_event_prints_the_block_that_is_documented():
    event = NaNEvent(12, "layer4", "Linear", True, True, False, False, (8, 1))
    none = "n/a (all non-finite)"
    assert str(event) == "\n".join(
        [
            "",
            LINE,
            "  NaN/Inf detected! [FORWARD PASS]",
            "  Batch     : 12",
            "  Layer     : layer4",
            "  Type      : Linear",
            "  Flags     : NaN in INPUT, NaN in OUTPUT",
            "  Out shape : (8, 1)",
            f"  Out stats : min={none}  max={none}  mean={none}",
            LINE,
        ]
    )
    event = NaNEvent(0, "root", "Net", False, False, True, True, (2,), {"min": -1.5, "max": 2.0, "mean": 0.25}, True)
    assert "[BACKWARD PASS]" in str(event) and "  Flags     : Inf in INPUT, Inf in OUTPUT\n" in str(event)
    assert "  Out stats : min=-1.5000  max=2.0000  mean=0.2500\n" in str(event)


def test_a_gradient_event_prints_the_line_that_is_documented():
    event = GradEvent(1, "fc1", "weight", 4.37e18, 10.0)
    assert str(event) == "[GradNorm WARNING] batch=1  layer=fc1.weight  norm=4.37e+18  threshold=10.0"
    assert "norm=inf  threshold=10.0" in str(GradEvent(1, "fc1", "weight", math.nan, 10.0))


def test_it_says_how_many_hooks_it_has_and_what_they_cost(capsys):
    detect(Net(), batches=2, verbose=True)
    attached, detached = capsys.readouterr().out.splitlines()
    assert attached == "[NaNDetector] Attached 5 hooks."
    assert re.fullmatch(r"\[NaNDetector\] Detached\. Avg overhead: \d+\.\d{3} ms/forward-pass", detached)
    detect(Net(), batches=0, verbose=True, check_backward=True)
    assert capsys.readouterr().out.splitlines() == ["[NaNDetector] Attached 10 hooks (+ backward)."]
    detect(Net(), batches=0, verbose=True, skip_types=(nn.Linear,))
    assert capsys.readouterr().out.splitlines() == ["[NaNDetector] Attached 2 hooks."]


def test_a_healthy_model_has_no_event(capsys):
    detector = detect(Net())
    assert not detector.triggered and detector.event is None and detector.all_events == []
    assert 0 < detector.overhead_ms < 1000
    assert NaNDetector(Net()).overhead_ms == 0.0
    assert capsys.readouterr().out == ""


def test_attaching_again_forgets_and_detaching_leaves_no_hook():
    model = Net(between=torch.log)
    detector = NaNDetector(model, check_backward=True, verbose=False)
    assert detector.attach() is detector
    for _ in range(13):
        model(torch.randn(8, 16))
    assert detector.triggered
    detector.attach()
    assert not detector.triggered and detector.all_events == [] and detector.event is None
    detector.detach()
    for module in model.modules():
        assert not module._forward_hooks and not module._forward_pre_hooks
    assert all(not parameter._post_accumulate_grad_hooks for parameter in model.parameters())


# Where a NaN began


def test_the_first_nan_has_its_batch_layer_flags_shape_and_op(capsys):
    class LogHead(nn.Module):
        def forward(self, x):
            return x.log().mean(dim=1, keepdim=True)

    model = Net()
    model.layer4 = LogHead()
    nn.init.constant_(model.layer3.bias, 9.0)
    with NaNDetector(model) as detector:
        for number in range(20):
            detector.set_batch(number)
            model(torch.randn(8, 16) * (1000 if number == 12 else 1))
            if detector.triggered:
                break
    event = detector.event
    assert (event.batch_idx, event.layer_name, event.module_type) == (12, "layer4", "LogHead")
    assert (event.input_has_nan, event.output_has_nan, event.output_has_inf) == (False, True, False)
    assert event.output_shape == (8, 1) and not event.is_backward
    assert detector.all_events == [event]
    assert event.origin.op == "aten::log" and event.origin.file == __file__
    text = capsys.readouterr().out
    assert text.count(LINE) == 2 and "  Layer     : layer4\n" in text
    assert re.search(r"^  Op        : aten::log  \(.*test_nan_detector\.py:\d+\)$", text, flags=re.MULTILINE)
    assert re.search(r"^  Reason    : log of -[\d.]+ is NaN", text, flags=re.MULTILINE)


@pytest.mark.parametrize(
    ("place", "op", "what"),
    [
        ({"between": lambda x: x * float("nan")}, "aten::mul", "nan"),
        ({"between": torch.log}, "aten::log", "nan"),
        ({"after": lambda x: x / 0}, "aten::div", "inf"),
    ],
)
def test_a_functional_op_is_reported_at_its_own_module_and_not_at_the_next(place, op, what):
    detector = detect(Net(**place), stop_on_first=False, batches=14)
    assert [(e.batch_idx, e.layer_name, e.module_type) for e in detector.all_events] == [
        (12, "root", "Net"),
        (13, "root", "Net"),
    ]
    event = detector.event
    assert (event.origin.op, event.origin.file) == (op, __file__)
    assert not event.input_has_nan and not event.input_has_inf
    assert event.output_has_nan == (what == "nan") and event.output_has_inf == (what == "inf")


def test_modules_that_only_pass_a_nan_on_are_not_reported():
    model = nn.Sequential(nn.Linear(16, 8), nn.Linear(8, 8), nn.Sequential(nn.ReLU(), nn.Linear(8, 8)), nn.Linear(8, 1))
    with torch.no_grad():
        model[1].weight[0, 0] = float("nan")
    detector = detect(model, batches=1, stop_on_first=False)
    (event,) = detector.all_events
    assert (event.layer_name, event.origin.phase, event.origin.param) == ("1", "parameter", "model.1.weight")


def test_the_first_is_by_time_and_not_by_the_order_of_hooks():
    class Inner(nn.Module):
        def forward(self, x):
            return torch.log(-x.abs() - 1)

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Inner()

        def forward(self, x):
            first = torch.sqrt(-x.abs() - 1)
            return first + self.inner(x)

    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.outer = Outer()

        def forward(self, x):
            return self.outer(x)

    detector = detect(Both(), batches=1, stop_on_first=False)
    assert [(e.layer_name, e.origin.op) for e in detector.all_events] == [
        ("outer", "aten::sqrt"),
        ("outer.inner", "aten::log"),
    ]
    assert detector.event.layer_name == "outer"


def test_a_nan_in_the_batch_is_reported_at_the_model_that_was_given_it():
    model = Net()
    values = poisoned()
    with NaNDetector(model, stop_on_first=False, verbose=False) as detector:
        model(torch.tensor(values))
    (event,) = detector.all_events
    assert (event.layer_name, event.input_has_nan, event.output_has_nan) == ("root", True, True)
    assert event.origin.phase == "data" and event.output_shape == (8, 1)
    assert round(7 * event.output_stats["max"] / event.output_stats["max"]) == 7
    assert event.output_stats["min"] <= event.output_stats["mean"] <= event.output_stats["max"]


def test_a_bad_value_that_the_model_leaves_out_again_is_no_event():
    mask = torch.full((4, 4), float("-inf")).triu(1)
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0)
    with NaNDetector(layer, verbose=False) as detector:
        layer(torch.randn(4, 8, 16), src_mask=mask)
        layer(torch.randn(4, 8, 16), src_mask=torch.full((4, 4), float("-inf")).triu(1))
    assert not detector.triggered
    assert not detect(Net(between=lambda x: torch.where(x > 0, torch.log(x), torch.zeros(())))).triggered


def test_an_optimizer_that_writes_nan_is_found_by_the_next_pass():
    model = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=float("nan"))
    with NaNDetector(model, verbose=False, grad_norm_warn=None) as detector:
        for number in range(2):
            detector.set_batch(number)
            optimizer.zero_grad()
            model(torch.randn(8, 16)).square().mean().backward()
            optimizer.step()
    event = detector.event
    assert (event.batch_idx, event.layer_name, event.origin.phase) == (1, "0", "optimizer")
    assert event.origin.mechanism == "nonfinite_hyperparameter"


def test_tuples_lists_mappings_and_keywords_are_looked_into():
    class Nested(nn.Module):
        def forward(self, x, *, scale):
            return {"count": 3, "parts": [x, (torch.arange(2), x / scale)]}

    with NaNDetector(Nested(), verbose=False) as detector:
        detector.model(torch.ones(2, 16), scale=torch.zeros(16))
    event = detector.event
    assert (event.layer_name, event.output_has_inf, event.output_shape) == ("root", True, (2, 16))
    assert event.output_stats == {"min": 1.0, "max": 1.0, "mean": 1.0}


def test_types_that_are_skipped_have_no_hook_but_a_nan_of_theirs_is_not_blamed_on_others():
    class Skipped(nn.Module):
        def forward(self, x):
            return torch.log(-x.abs() - 1)

    model = nn.Sequential(nn.Linear(16, 8), Skipped(), nn.Linear(8, 1))
    detector = detect(model, batches=1, skip_types=(Skipped,))
    assert (detector.event.layer_name, detector.event.module_type) == ("1", "Skipped")
    assert detector.event.output_shape == (8, 8) and detector.event.output_has_nan


def test_what_stays_bad_is_one_event_and_not_one_in_each_batch():
    bad = torch.tensor(poisoned())
    with NaNDetector(Net(), stop_on_first=False, verbose=False) as detector:
        for number in range(5):
            detector.set_batch(number)
            detector.model(bad if number >= 2 else torch.randn(8, 16))
    assert [event.batch_idx for event in detector.all_events] == [2]


def test_no_more_events_are_kept_than_asked_for():
    detector = detect(Net(between=torch.log), batches=30, stop_on_first=False, max_events=3)
    assert [event.batch_idx for event in detector.all_events] == [12, 13, 14]
    assert detector.event is detector.all_events[0]


def test_an_exception_in_the_model_leaves_the_detector_usable():
    model = Net(after=lambda x: (_ for _ in ()).throw(ValueError("broken")))
    with NaNDetector(model, verbose=False) as detector:
        for _ in range(12):
            model(torch.randn(8, 16))
        with pytest.raises(ValueError, match="broken"):
            model(torch.randn(8, 16))
        model.after = torch.log
        assert not detector.triggered
        model(torch.randn(8, 16))
    assert (detector.event.layer_name, detector.event.origin.op) == ("root", "aten::log")


# Gradients


def test_a_gradient_that_explodes_is_told_a_step_before_any_nan(capsys):
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e9)
    with NaNDetector(model, check_backward=True, grad_norm_warn=10.0) as detector:
        for number in range(10):
            detector.set_batch(number)
            x, y = batch()
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            if detector.check_grad_norms():
                break
            optimizer.step()
    assert number == 1 and not detector.triggered
    event = detector.grad_events[0]
    assert (event.batch_idx, event.layer_name, event.param_name, event.threshold) == (1, "0", "weight", 10.0)
    assert event.grad_norm == pytest.approx(model[0].weight.grad.double().norm().item())
    assert capsys.readouterr().out.splitlines()[1] == str(event)


def test_gradients_as_large_as_float32_can_hold_have_a_norm_that_is_finite():
    model = nn.Linear(4, 4, bias=False)
    model.weight.grad = torch.full((4, 4), 3e38)
    with NaNDetector(model, verbose=False) as detector:
        assert detector.check_grad_norms()
    assert detector.grad_events[0].grad_norm == pytest.approx(1.2e39)
    assert not detector.triggered


def test_without_a_threshold_norms_are_not_looked_at():
    model = nn.Linear(4, 1)
    model.weight.grad = torch.full((1, 4), float("nan"))
    with NaNDetector(model, verbose=False, grad_norm_warn=None) as detector:
        assert detector.check_grad_norms() is False
    assert detector.grad_events == []


def test_a_small_gradient_is_no_warning():
    model = nn.Linear(4, 1)
    with NaNDetector(model, verbose=False) as detector:
        model(torch.randn(2, 4)).mean().backward()
        assert detector.check_grad_norms() is False


class SqrtAtZero(nn.Module):
    def forward(self, x):
        return (x * 0).sqrt()


@pytest.mark.parametrize("options", [{"check_backward": True}, {}])
def test_a_nan_of_the_backward_is_reported_at_the_module_of_its_forward_op(options):
    model = nn.Sequential(nn.Linear(16, 8), nn.ReLU(inplace=True), SqrtAtZero(), nn.Linear(8, 1))
    with NaNDetector(model, verbose=False, **options) as detector:
        model(torch.randn(8, 16)).sum().backward()
        assert detector.triggered == bool(options)
        assert detector.check_grad_norms()
    event = detector.event
    assert event.is_backward and (event.layer_name, event.module_type) == ("2", "SqrtAtZero")
    assert (event.origin.op, event.origin.forward_op) == ("SqrtBackward0", "aten::sqrt")
    assert "BACKWARD PASS" in str(event) and "SqrtBackward0" in str(event)
    assert (event.input_has_inf, event.output_has_nan, event.output_has_inf) == (True, False, False)
    assert detector.all_events == [event]


def test_a_nan_in_the_loss_is_reported_whether_gradients_show_it_or_not():
    model = nn.Linear(16, 1)
    with NaNDetector(model, verbose=False) as detector:
        loss = torch.log(model(torch.randn(8, 16)) * 0 - 1).mean()
        loss.backward()
        assert not detector.check_grad_norms() and not detector.triggered  # they are 0
        assert detector.check_loss(loss)
        assert not detector.check_loss(torch.ones(()))
    event = detector.event
    assert (event.layer_name, event.module_type, event.origin.op) == ("loss", "aten::log", "aten::log")
    assert event.output_has_nan and not event.is_backward


# Beside other things


def test_threads_may_share_a_detector():
    model = Net(between=lambda x: x)
    detector = NaNDetector(model, stop_on_first=False, max_events=10_000, verbose=False).attach()

    def run(with_nan):
        for _ in range(50):
            model(torch.tensor(poisoned()) if with_nan else torch.randn(8, 16))

    threads = [threading.Thread(target=run, args=(number % 2 == 0,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    detector.detach()
    assert len(detector.all_events) == 100
    assert {(event.layer_name, event.input_has_nan, event.output_has_nan) for event in detector.all_events} == {
        ("root", True, True)
    }


def test_two_detectors_may_run_at_once():
    first, second = Net(between=torch.log), nn.Sequential(nn.Linear(16, 16), nn.LogSigmoid(), SqrtAtZero())
    with NaNDetector(first, verbose=False) as one, NaNDetector(second, verbose=False, check_backward=True) as two:
        for _ in range(13):
            first(torch.randn(8, 16))
        assert one.triggered and not two.triggered
        second(torch.randn(8, 16)).sum().backward()
    assert one.event.layer_name == "root" and one.event.origin.op == "aten::log"
    assert two.event.layer_name == "2" and two.event.origin.op == "SqrtBackward0"
    assert ff.trace().start().stop() is None  # no trace is left running


@pytest.mark.parametrize("observer", [ff.trace, ff.watch])
def test_beside_a_trace_of_the_programs_own_modules_are_compared(observer):
    models = [Net(between=torch.log), nn.Sequential(nn.Linear(16, 8), SqrtAtZero(), nn.Linear(8, 1)), Net()]
    observed = observer()
    if observer is ff.trace:
        observed.start()
    try:
        functional = detect(models[0], stop_on_first=False, batches=13)
        backward = NaNDetector(models[1], verbose=False, check_backward=True).attach()
        models[1](torch.randn(8, 16)).sum().backward()
        backward.detach()
        data = NaNDetector(models[2], verbose=False).attach()
        models[2](torch.tensor(poisoned()))
        data.detach()
    finally:
        observed.stop() if observer is ff.trace else observed.close()
    (event,) = functional.all_events
    assert (event.batch_idx, event.layer_name, event.input_has_nan, event.origin) == (12, "root", False, None)
    assert backward.event.is_backward and backward.event.origin is None
    assert (data.event.layer_name, data.event.input_has_nan) == ("root", True)


def test_firstfault_0_switches_it_off(monkeypatch, capsys):
    monkeypatch.setenv("FIRSTFAULT", "0")
    detector = detect(Net(between=torch.log), verbose=True)
    assert not detector.triggered and detector.overhead_ms == 0.0
    assert capsys.readouterr().out == "[NaNDetector] Attached 0 hooks.\n"


def test_the_training_is_the_same_with_and_without_it():
    results = []
    for watched in (True, False):
        torch.manual_seed(3)
        model = nn.Sequential(nn.Linear(16, 32), nn.Dropout(0.2), nn.ReLU(inplace=True), nn.Linear(32, 1))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        detector = NaNDetector(model, check_backward=True, verbose=False)
        if watched:
            detector.attach()
        for _ in range(10):
            x, y = batch()
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            if watched:
                detector.check_grad_norms()
            optimizer.step()
        detector.detach()
        results.append(torch.cat([parameter.flatten() for parameter in model.parameters()]))
    assert torch.equal(*results)


# The guarded loop, the benchmark, the plots


def loader(bad=None, batches=6):
    for number in range(batches):
        x, y = batch()
        yield (torch.tensor(poisoned()) if number == bad else x), y


def test_the_guarded_loop_stops_before_the_parameters_are_spoilt(capsys):
    model = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses, event = train_with_nan_guard(model, loader(bad=3), nn.MSELoss(), optimizer, verbose=False)
    assert len(losses) == 4 and math.isnan(losses[3]) and all(map(math.isfinite, losses[:3]))
    assert (event.batch_idx, event.layer_name, event.input_has_nan) == (3, "root", True)
    assert all(bool(parameter.isfinite().all()) for parameter in model.parameters())
    assert model.training
    assert capsys.readouterr().out == "\n[NaNDetector] Halting training at batch 3.\n"


def test_the_guarded_loop_trains_as_any_other_while_nothing_is_wrong():
    model = nn.Linear(16, 1)
    before = model.weight.detach().clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses, event = train_with_nan_guard(model, loader(), nn.MSELoss(), optimizer, max_batches=4, verbose=False)
    assert len(losses) == 4 and event is None
    assert not torch.equal(before, model.weight)
    assert train_with_nan_guard(model, loader(), nn.MSELoss(), optimizer, max_batches=0, verbose=False) == ([], None)


def test_watch_for_nans_is_shorthand():
    with watch_for_nans(nn.Linear(2, 1), max_events=7, verbose=False) as detector:
        assert isinstance(detector, NaNDetector) and detector.max_events == 7


def test_the_benchmark_times_each_pass_and_leaves_anomaly_mode_as_it_was(capsys):
    results = nan_detector.benchmark(n_batches=4, batch_size=2)
    assert list(results) == ["baseline", "nan_detector", "detect_anomaly"]
    assert all(len(times) == 4 and min(times) > 0 for times in results.values())
    assert not torch.is_anomaly_enabled()
    assert "detect_anomaly" in capsys.readouterr().out


PLOTS = {
    "plot_loss_curve": ([1.0, 0.5, math.nan], 2),
    "plot_grad_norms": (
        [GradEvent(0, "fc1", "weight", 50.0, 10.0), GradEvent(1, "fc1", "weight", math.inf, 10.0)],
        10.0,
    ),
    "plot_benchmark": ({"baseline": [1.0, 2.0], "nan_detector": [2.0, 3.0]},),
}


@pytest.mark.parametrize("name", PLOTS)
def test_a_plot_is_saved(name, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    path = str(tmp_path / "plot.png")
    assert getattr(nan_detector, name)(*PLOTS[name], save_path=path) == path
    assert Path(path).read_bytes().startswith(b"\x89PNG")
    assert capsys.readouterr().out == f"[plot] Saved → {path}\n"


@pytest.mark.parametrize("name", PLOTS)
def test_without_matplotlib_a_plot_says_what_to_install(name, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=rf"{name}\(\) needs matplotlib.*pip install matplotlib"):
        getattr(nan_detector, name)(*PLOTS[name], save_path=str(tmp_path / "plot.png"))


def test_no_gradient_event_is_no_plot(tmp_path, capsys):
    path = tmp_path / "plot.png"
    assert nan_detector.plot_grad_norms([], 10.0, str(path)) == str(path)
    assert not path.exists() and capsys.readouterr().out == "[plot] No grad events to plot.\n"


# The examples


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("forward_nan", ["  Batch     : 12\n  Layer     : layer4\n", "first: batch 12, layer layer4", "events: 1"]),
        ("exploding_gradients", ["batch=1  layer=fc1.weight  norm=", "caught in batch 1", "forward pass: False"]),
        (
            "guarded_training",
            ["Halting training at batch 7.", "NaN in batch 7, layer root", "parameters are finite: True"],
        ),
    ],
)
def test_an_example_says_what_it_is_there_to_say(name, expected):
    done = subprocess.run([sys.executable, EXAMPLES / f"{name}.py"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    for text in expected:
        assert text in done.stdout


def demo_net(passes_before):
    """The detector's own first demo, written anew: the op between two layers goes wrong."""
    model = Net(between=lambda x: x * float("nan"))
    model.passes = 12 - passes_before
    return model


def test_the_demo_with_an_op_between_two_layers_names_the_op():
    model, losses = demo_net(passes_before=12), []
    with NaNDetector(model, stop_on_first=True, verbose=False) as detector:
        for number in range(20):
            detector.set_batch(number)
            x, y = batch()
            losses.append(nn.functional.mse_loss(model(x), y).item())
            if detector.triggered:
                break
    assert len(losses) == 13 and detector.event.batch_idx == 12
    assert (detector.event.layer_name, detector.event.origin.op) == ("root", "aten::mul")
