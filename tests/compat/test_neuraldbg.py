"""firstfault.compat.neuraldbg: the names of neuraldbg, and right where it is wrong."""

import inspect
import json
import math
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
import torch
from torch import nn

from firstfault.compat import neuraldbg as ours
from firstfault.compat.neuraldbg import EventType, NeuralDbg, SemanticEvent

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "neuraldbg"
IMPORT = "from firstfault.compat.neuraldbg import NeuralDbg\n"
KINDS = (
    "vanishing_gradients",
    "exploding_gradients",
    "dead_neurons",
    "saturated_activations",
    "optimizer_instability",
    "data_anomaly",
)


def batches(scale=1.0):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(256, 16, generator=generator) * scale
    y = torch.tanh(x[:, :4].sum(1, keepdim=True) / scale)

    def batch(step):
        rows = torch.randint(len(x), (32,), generator=generator)
        return x[rows], y[rows]

    return batch


def mlp(*, width=64, act=nn.ReLU):
    return nn.Sequential(nn.Linear(16, width), act(), nn.Linear(width, width), act(), nn.Linear(width, 1))


def train(model, steps, *, lr=0.05, batch=None, optimizer=None, each=lambda step: None, first=0):
    batch = batch or batches()
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=lr)
    with NeuralDbg(model) as dbg:
        for step in range(steps):
            dbg.step = first + step
            x, y = batch(step)
            each(step)
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            dbg.record_loss(loss.item())
            optimizer.step()
            if not loss.isfinite():
                break
    return dbg


def with_nan_in(step, row, column):
    usual = batches()

    def batch(now):
        x, y = usual(now)
        if now == step:
            values = x.tolist()
            values[row][column] = float("nan")
            x = torch.tensor(values)
        return x, y

    return batch


def saturated(lr):
    model = mlp(act=nn.Tanh)
    for layer in model[::2]:
        nn.init.normal_(layer.weight, std=3.0)
    return train(model, 60, lr=lr)


def failing(kind):
    """A training that fails in this way."""
    if kind == "vanishing_gradients":
        parts = [part for _ in range(10) for part in (nn.Linear(16, 16), nn.Sigmoid())]
        return train(nn.Sequential(*parts, nn.Linear(16, 1)), 60, lr=0.1)
    if kind == "exploding_gradients":
        return train(mlp(), 60, lr=1.0, batch=batches(scale=10))
    if kind == "dead_neurons":
        model = mlp()
        nn.init.constant_(model[0].bias, -50.0)
        return train(model, 80, lr=0.01)
    if kind == "saturated_activations":
        return saturated(lr=1e-6)
    if kind == "optimizer_instability":
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

        def schedule(step):
            optimizer.param_groups[0]["lr"] = 3.0 if step >= 40 else 0.05

        return train(model, 80, optimizer=optimizer, each=schedule)
    return train(mlp(), 60, batch=with_nan_in(30, row=5, column=3))


# The interface


def arguments(function):
    return [(p.name, p.default) for p in inspect.signature(function).parameters.values() if p.name != "self"]


def test_it_has_the_names_that_are_documented():
    assert arguments(NeuralDbg.__init__) == [
        ("model", inspect.Parameter.empty),
        ("threshold_vanishing", 1e-6),
        ("threshold_exploding", 1e3),
    ]
    assert [field.name for field in fields(SemanticEvent)][:8] == [
        "event_type",
        "layer_name",
        "step",
        "from_state",
        "to_state",
        "confidence",
        "metadata",
        "id",
    ]
    names = [field.name for field in fields(ours.CausalHypothesis)]
    assert names[:4] == ["description", "confidence", "evidence", "causal_chain"]
    assert arguments(NeuralDbg.detect_coupled_failures) == [("window", 5)]


def test_its_public_names_are_those_of_neuraldbg():
    theirs = pytest.importorskip("neuraldbg")
    left_out = {"disk_cache", "hooks", "previous_activation_stats", "previous_data_health", "previous_gradient_norms"}
    left_out |= {"previous_input_stats", "previous_optimizer_health"}
    model = nn.Linear(2, 1)

    def public(thing):
        return {name for name in dir(thing) if not name.startswith("_")}

    assert public(theirs.NeuralDbg(model)) - left_out <= public(NeuralDbg(model))
    for name in ("EventType", "GradientHealth", "ActivationHealth", "OptimizerHealth", "DataHealth"):
        assert {one.name: one.value for one in getattr(theirs, name)} == {
            one.name: one.value for one in getattr(ours, name)
        }
    assert ours.__version__ == theirs.__version__


def test_importing_it_does_not_import_torch():
    code = "import sys, firstfault.compat.neuraldbg; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


# The answers


@pytest.mark.parametrize(
    ("kind", "cause", "layer"),
    [
        ("vanishing_gradients", "vanishing_gradient", "Linear_0"),
        ("exploding_gradients", "lr_too_high", None),
        ("dead_neurons", "dead_units", "ReLU_1"),
        ("saturated_activations", "bad_init", "Linear_4"),
        ("optimizer_instability", "lr_too_high", None),
        ("data_anomaly", "data_nonfinite", None),
    ],
)
def test_each_documented_failure_is_explained(kind, cause, layer):
    dbg = failing(kind)
    best = dbg.explain_failure(kind)[0]
    assert best.cause == cause
    assert 0 < best.confidence < 1 and best.evidence and best.causal_chain
    assert str(best) == best.description
    if layer:
        assert f"'{layer}'" in best.description
    assert dbg.explain_failure()[0].description == best.description
    assert dbg.get_causal_hypotheses() == dbg.explain_failure() == dbg.get_root_causes()
    assert dbg.trace_causal_chain(kind) == best.causal_chain


def test_saturation_of_a_net_that_learns_all_the_same_is_told():
    dbg = saturated(lr=1e-3)  # the loss improves all the same
    (only,) = dbg.explain_failure("saturated_activations")
    assert {"step 4: Tanh_1 saturated (effect)", "step 4: Tanh_3 saturated (effect)"} <= set(only.causal_chain)


def test_a_healthy_training_of_60_steps_is_silent():
    model = mlp()
    dbg = train(model, 60, optimizer=torch.optim.Adam(model.parameters(), lr=1e-3))
    assert dbg.loss_history[-1] < dbg.loss_history[0] and len(dbg.loss_history) == 60
    assert dbg.get_events() == [] and dbg.explain_failure() == [] and dbg.detect_coupled_failures() == []
    assert all(dbg.explain_failure(kind) == [] and dbg.trace_causal_chain(kind) == [] for kind in KINDS)
    assert dbg.first_failure_step == {} and dbg.first_failure_layer == {}
    assert dbg.export_mermaid_causal_graph() == "graph TD"


class Functional(nn.Module):
    """An op between two layers goes wrong in one step."""

    def __init__(self, op):
        super().__init__()
        self.fc1, self.fc2, self.op, self.bad = nn.Linear(16, 8), nn.Linear(8, 1), op, False

    def forward(self, x):
        hidden = torch.relu(self.fc1(x))
        return self.fc2(self.op(hidden) if self.bad else hidden)


def functional(op):
    model = Functional(op)

    def each(step):
        model.bad = step == 10

    return train(model, 20, each=each, first=100)


def test_a_functional_log_is_named_and_not_the_next_layer():
    dbg = functional(lambda hidden: torch.log(hidden - 0.5))
    first = dbg.get_events()[0]
    assert (first.event_type, first.layer_name, first.step) == (EventType.DATA_ANOMALY, "root", 110)
    assert (first.from_state, first.to_state) == ("normal", "nan_detected")
    assert first.metadata["op"] == "aten::log" and first.metadata["mechanism"] == "log_of_nonpositive"
    assert first.metadata["file"] == __file__
    (best,) = dbg.explain_failure("data_anomaly")
    assert best.cause == "op_domain" and best.evidence[0] is first
    assert re.search(rf"layer 'root', step 110, {re.escape(__file__)}:\d+", best.description)
    assert not any(
        event.layer_name == "Linear_fc2" and event.event_type is EventType.DATA_ANOMALY for event in dbg.events
    )


def test_a_gradient_norm_that_is_nan_is_no_healthy_one():
    dbg = functional(lambda hidden: hidden + (hidden * 0).sqrt())
    gradients = [event for event in dbg.events if event.event_type is EventType.GRADIENT_HEALTH_TRANSITION]
    assert {"root", "Linear_fc1"} <= {event.layer_name for event in gradients if event.step == 110}
    assert all(event.to_state == "exploding" for event in gradients)
    by_parameter = next(event for event in gradients if event.layer_name == "Linear_fc1")
    assert by_parameter.metadata["sites"] == ["model.fc1.weight", "model.fc1.bias"]
    assert math.isnan(by_parameter.metadata["current_norm"])
    best = dbg.explain_failure("exploding_gradients")[0]
    assert best.cause == "op_domain" and best.hypothesis.forward_op == "aten::sqrt"
    assert best.causal_chain[0] == "step 110: op_domain in root (cause)"
    assert dbg.first_failure_layer["gradient_exploding"] == "root"
    assert dbg.first_failure_step["gradient_exploding"] == 110


def test_the_sample_of_a_bad_batch_is_in_the_metadata():
    dbg = failing("data_anomaly")
    event = next(event for event in dbg.events if event.event_type is EventType.DATA_ANOMALY)
    assert (event.step, event.to_state, event.metadata["nan_count"], event.metadata["sample"]) == (
        30,
        "nan_detected",
        1,
        5,
    )


def test_effects_are_coupled_to_what_came_first():
    dbg = functional(lambda hidden: torch.log(hidden - 0.5))
    pairs = dbg.detect_coupled_failures()
    assert pairs and all(pair["trigger"] == "data_anomaly in root" for pair in pairs)
    assert [pair["event1"] for pair in pairs] == [pair["trigger"] for pair in pairs]
    assert "gradient_health_transition in Linear_fc1" in {pair["consequence"] for pair in pairs}
    assert all(pair["step_difference"] == 0 and pair["confidence"] == 1.0 for pair in pairs)


def test_a_type_may_be_named_by_a_part_and_an_unknown_one_finds_nothing():
    dbg = functional(lambda hidden: torch.log(hidden - 0.5))
    assert dbg.explain_failure("exploding") == dbg.explain_failure("exploding_gradients")
    assert len(dbg.explain_failure("gradient_health_transition")) == 1
    assert dbg.explain_failure("no_such_failure") == []


# Steps


def test_the_numbers_of_steps_are_the_programs_own():
    dbg = functional(lambda hidden: torch.log(hidden - 0.5))
    assert {event.step for event in dbg.events} == {110}
    assert dbg.step == 110


def test_without_numbers_steps_are_counted():
    torch.manual_seed(0)
    model = Functional(lambda hidden: torch.log(hidden - 0.5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with NeuralDbg(model) as dbg:
        for step in range(8):
            model.bad = step == 7
            optimizer.zero_grad()
            model(torch.randn(16, 16)).square().mean().backward()
            optimizer.step()
    assert {event.step for event in dbg.events} == {7}


def micro_batches(model, optimizer, dbg):
    for micro in range(12):
        dbg.step = micro
        if micro % 4 == 0:
            optimizer.zero_grad()
        (model(torch.randn(8, 16)).square().mean() / 4).backward()
        dbg.record_loss(0.5)
        if micro % 4 == 3:
            optimizer.step()


def test_micro_batches_are_one_step_of_the_optimizer():
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with NeuralDbg(model) as dbg:
        micro_batches(model, optimizer, dbg)
    assert [row.backwards for row in dbg.watch.run().rows] == [4, 4, 4]


@pytest.mark.parametrize("numbered", [True, False])
def test_a_loop_without_an_optimizer_has_steps_too(numbered):
    model = mlp()
    with NeuralDbg(model) as dbg:
        for step in range(6):
            if numbered:
                dbg.step = step
            model.zero_grad()
            loss = model(torch.randn(8, 16)).square().mean()
            loss.backward()
            dbg.record_loss(loss.item())
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter -= 0.01 * parameter.grad
    rows = dbg.watch.run().rows
    assert [row.backwards for row in rows] == [1] * 6
    assert [row.loss for row in rows] == pytest.approx(dbg.loss_history)
    assert all(row.gradient_norm > 0 for row in rows[:5])
    assert dbg.get_events() == []


# The list of events, and what is made of it


def test_events_are_one_list_to_which_programs_may_add():
    dbg = functional(lambda hidden: torch.log(hidden - 0.5))
    events = dbg.events
    own = SemanticEvent("reward_hacking", "policy", 111, "healthy", "reward_hacking", 0.5, {})
    events.append(own)
    assert dbg.events is events and dbg.get_events()[-1] is own
    assert len({event.id for event in events}) == len(events)
    assert "reward_hacking in policy (Step 111)" in dbg.export_mermaid_causal_graph()
    assert dbg.detect_coupled_failures()[-1]["consequence"] == "reward_hacking in policy"
    assert dbg.explain_failure("reward_hacking")[0].evidence[-1] is own


def test_events_can_be_asked_for_while_the_training_runs():
    model = Functional(lambda hidden: torch.log(hidden - 0.5))
    seen = []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with NeuralDbg(model) as dbg:
        for step in range(6):
            model.bad = step == 4
            optimizer.zero_grad()
            model(torch.randn(16, 16)).square().mean().backward()
            optimizer.step()
            seen.append(len(dbg.get_events()))
    assert seen[:4] == [0] * 4 and seen[4] > 0
    assert len(dbg.events) >= seen[5]
    keys = [(event.step, event.event_type, event.layer_name, event.to_state) for event in dbg.events]
    assert len(set(keys)) == len(keys)


def test_the_graph_has_a_node_for_each_failure_and_no_syntax_out_of_names():
    class Sneaky(nn.Module):
        def forward(self, x):
            return torch.log(x - 100)

    Sneaky.__name__ = 'Odd"]; click E0 "javascript:alert()"'
    model = nn.Sequential(nn.Linear(16, 8), Sneaky(), nn.Linear(8, 1))
    dbg = train(model, 3)
    graph = dbg.export_mermaid_causal_graph().splitlines()
    assert graph[0] == "graph TD"
    node = re.compile(r'    [EH]\d+\["[\w .,()#;-]+"\]')
    edge = re.compile(r"    [EH]\d+ -->\|(coupled|explains)\| E\d+")
    assert all(node.fullmatch(line) or edge.fullmatch(line) for line in graph[1:])
    assert sum(bool(node.fullmatch(line)) for line in graph) == len(dbg.events) + len(dbg.explain_failure())
    assert any("explains" in line for line in graph)


def test_the_package_is_json_that_any_reader_takes(tmp_path):
    dbg = functional(lambda hidden: torch.log(hidden - 0.5))
    path = dbg.export_aquarium_package(str(tmp_path / "package.json"))

    def refuse(constant):
        raise ValueError(constant)

    package = json.loads(Path(path).read_text(), parse_constant=refuse)
    assert set(package) == {
        "events",
        "hypotheses",
        "couplings",
        "first_failure_layer",
        "first_failure_step",
        "loss_history",
    }
    assert package["events"][0]["type"] == "data_anomaly" and package["events"][0]["layer"] == "root"
    assert package["hypotheses"][0]["confidence"] == pytest.approx(0.95)
    assert package["loss_history"][-1] == "nan" and len(package["loss_history"]) == 11


def test_before_the_block_there_is_nothing_to_say():
    dbg = NeuralDbg(nn.Linear(2, 1))
    dbg.record_loss(1.0)
    dbg.step_iteration()
    assert (dbg.step, dbg.loss_history, dbg.events, dbg.explain_failure()) == (1, [1.0], [], [])


def test_a_composite_module_needs_no_hook():
    attention = nn.MultiheadAttention(8, 2)
    with NeuralDbg(attention) as dbg:
        dbg.register_composite_hook(attention)
        with pytest.raises(TypeError, match="got str"):
            dbg.register_composite_hook("attention")


def test_the_training_is_the_same_with_and_without_it():
    results = []
    for watched in (True, False):
        torch.manual_seed(3)
        model = nn.Sequential(nn.Linear(16, 32), nn.Dropout(0.2), nn.Tanh(), nn.Linear(32, 1))
        if watched:
            train(model, 20)
        else:
            optimizer, batch = torch.optim.SGD(model.parameters(), lr=0.05), batches()
            for step in range(20):
                x, y = batch(step)
                optimizer.zero_grad()
                nn.functional.mse_loss(model(x), y).backward()
                optimizer.step()
        results.append(torch.cat([parameter.flatten() for parameter in model.parameters()]))
    assert torch.equal(*results)


# The examples


def run(path, *arguments):
    done = subprocess.run([sys.executable, path, *arguments], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "quickstart",
            [r"\[0\.\d\d\] The steps overshoot", r"step \d: lr_too_high in Linear_\d \(cause\)", "graph TD"],
        ),
        (
            "vanishing_gradients",
            [r"shrinks by a factor of 0\.1\d* per layer", r"Linear_0 gradient vanishing \(effect\)"],
        ),
        (
            "optimizer_instability",
            [r"^\[0\.\d\d\] In step 40 the learning rate went from 0\.05 to 5\. The steps overshoot"],
        ),
        ("data_anomaly", [r"the NaN was already in the batch .* at \[5, 3\].* step 30,"]),
    ],
)
def test_an_example_says_what_it_is_there_to_say(name, expected):
    output = run(EXAMPLES / f"{name}.py")
    for pattern in expected:
        assert re.search(pattern, output, flags=re.MULTILINE), (pattern, output)


@pytest.mark.parametrize("name", sorted(path.stem for path in EXAMPLES.glob("*.py")))
def test_an_example_runs_on_neuraldbg_with_only_the_import_changed(name, tmp_path):
    pytest.importorskip("neuraldbg")
    text = (EXAMPLES / f"{name}.py").read_text()
    assert text.count(IMPORT) == 1
    original = tmp_path / f"{name}.py"
    original.write_text(text.replace(IMPORT, "from neuraldbg import NeuralDbg\n"))
    done = subprocess.run([sys.executable, original], capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
