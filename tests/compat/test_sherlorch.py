"""firstfault.compat.sherlorch beside sherlorch: the same names, text and culprits, and right where it is wrong."""

import gc
import inspect
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from firstfault.compat import sherlorch as ours

theirs = pytest.importorskip("sherlorch")

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "sherlorch"
IMPORT = "from firstfault.compat import sherlorch\n"
NODE = re.compile(
    r"\[(?P<seq>\d+)\] (?P<op>\w+)(?:  shape=(?P<shape>\([\d, ]*\)) dtype=(?P<dtype>torch\.\w+))?"
    r"(?:  \[(?P<module>[\w.]+)\])?(?:  \((?P<file>[^()]+):(?P<line>\d+)\))?  <-- (?P<kind>NaN & Inf|NaN|Inf)"
)
HEADER = re.compile(r"sherlorch diagnosis for \[(\d+)\] (\w+) \(shape=(\([\d, ]*\))\):")
FOUND = re.compile(r"  Found (\d+) culprit op\(s\) out of (\d+) traced ops\.")
FINITE = re.compile(r"No non-finite values .*\b\d+ ops were traced\.")
OF_OURS_ONLY = re.compile(r"    (Reason|Backward of|Operands|Advice): \S.*")


def node_in(text):
    match = NODE.fullmatch(text)
    assert match, text
    return match.groupdict()


def parse(text, extra=None):
    """Target, culprits and their paths; every line has to be one of the form, or to match `extra`."""
    header, found, blank, *rest = text.splitlines()
    assert HEADER.fullmatch(header) and FOUND.fullmatch(found) and blank == "", text
    culprits = []
    for line in rest:
        if line.startswith("  Culprit #"):
            number, _, node = line.removeprefix("  Culprit #").partition(": ")
            assert int(number) == len(culprits) + 1
            culprits.append({**node_in(node), "path": []})
        elif line.startswith("      -> "):
            culprits[-1]["path"].append(node_in(line.removeprefix("      -> ")))
        else:
            assert line in ("", "    Path to target:") or (extra and extra.fullmatch(line)), line
    assert int(FOUND.fullmatch(found)[1]) == len(culprits) > 0
    _, target, shape = HEADER.fullmatch(header).groups()
    return {"target": target, "shape": shape, "culprits": culprits}


def both(program, **options):
    """What sherlorch answers about the tensor that `program(tracker)` returns, and what ours does."""
    answers = []
    for tool in (theirs, ours):
        torch.manual_seed(0)
        with tool.trace(**options) as tracker:
            tensor = program(tracker)
        answers.append(tracker.diagnose(tensor))
    return answers


def public(thing):
    return {name for name in dir(thing) if not name.startswith("_")}


# The interface


def test_every_public_name_of_the_module_is_there():
    assert public(theirs) <= public(ours)
    assert set(theirs.__all__) == set(ours.__all__)
    assert ours.__version__ == theirs.__version__
    for name in ("tracker", "graph", "report"):
        assert set(theirs.__all__) & public(getattr(theirs, name)) <= public(getattr(ours, name))


def test_every_public_name_of_tracker_report_and_node_is_there():
    their_report, our_report = both(lambda _: torch.log(torch.zeros(2)).sum())
    assert public(theirs.trace()) - public(TorchFunctionMode) <= public(ours.trace())
    assert public(their_report) <= public(our_report)
    assert public(their_report.culprits[0]) <= public(our_report.culprits[0])


@pytest.mark.parametrize("name", ["trace", "ProvenanceTracker"])
def test_arguments_have_the_same_names_order_and_defaults(name):
    def arguments(function):
        return [(p.name, p.default, p.kind) for p in inspect.signature(function).parameters.values()]

    assert arguments(getattr(ours, name)) == arguments(getattr(theirs, name))
    for method in ("watch", "unwatch", "enable", "disable", "reset", "has_issue", "diagnose"):
        their_method, our_method = (getattr(tool.ProvenanceTracker, method) for tool in (theirs, ours))
        assert arguments(our_method) == arguments(their_method)


@pytest.mark.parametrize("name", ["OpNode", "DiagnosisReport"])
def test_fields_have_the_same_names_and_order(name):
    their_fields, our_fields = ([f.name for f in fields(getattr(tool, name))] for tool in (theirs, ours))
    assert our_fields[: len(their_fields)] == their_fields


@pytest.mark.parametrize("bad", [("has_nan",), ("has_inf",), ("has_nan", "has_inf"), ()])
@pytest.mark.parametrize("placed", [{}, {"location": "train.py:27", "module_path": "model.layer1"}])
def test_a_node_made_by_hand_has_the_same_text(bad, placed):
    values = {"seq": 10, "op_name": "log", "shape": (4, 4), "dtype": "torch.float32", **placed}
    values.update(dict.fromkeys(bad, True))
    assert repr(ours.OpNode(**values)) == ours.OpNode(**values).summary() == theirs.OpNode(**values).summary()


def test_a_report_made_by_hand_has_the_same_text():
    texts = []
    for tool in (theirs, ours):
        log = tool.OpNode(seq=3, op_name="log", shape=(2,), dtype="torch.float32", has_inf=True, is_finite=False)
        total = tool.OpNode(seq=4, op_name="sum", dtype="torch.float32", has_inf=True, is_finite=False)
        texts.append(str(tool.DiagnosisReport(total, [log], {3: [log, total]}, 5)))
    assert texts[0] == texts[1]


def test_importing_it_does_not_import_torch():
    code = "import sys, firstfault.compat.sherlorch; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


# The examples


def run(path):
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def diagnosis_in(output):
    return output[output.index("sherlorch diagnosis for") :]


def line_of(source, code):
    found = [number for number, line in enumerate(source.read_text().splitlines(), 1) if code in line]
    assert len(found) == 1, f"{code!r} stands in {len(found)} lines of {source}"
    return str(found[0])


@pytest.mark.parametrize(
    ("name", "op", "module", "code", "kind"),
    [
        ("quickstart", "div", None, "/ x.std(", "NaN"),
        ("find_nan_in_transformer", "log", "model.layer1", "return torch.log(", "Inf"),
        ("module_tags", "exp", "encoder.layer1.1", None, "Inf"),
        ("long_run", "rsqrt", None, "torch.rsqrt(", "Inf"),
    ],
)
def test_an_example_prints_the_culprit_that_sherlorch_prints(name, op, module, code, kind, tmp_path):
    example = EXAMPLES / f"{name}.py"
    original = tmp_path / example.name
    assert example.read_text().count(IMPORT) == 1
    original.write_text(example.read_text().replace(IMPORT, "import sherlorch\n"))
    their_text, our_text = run(original), run(example)
    their_answer, our_answer = parse(diagnosis_in(their_text)), parse(diagnosis_in(our_text), OF_OURS_ONLY)
    (theirs_found,), (found,) = their_answer["culprits"], our_answer["culprits"]
    for key in ("op", "module", "kind", "shape", "dtype", *(("line",) if theirs_found["line"] else ())):
        assert found[key] == theirs_found[key], key
    line = line_of(example, code) if code else found["line"]
    assert (found["op"], found["module"], found["line"], found["kind"]) == (op, module, line, kind)
    assert found["file"] == str(example)
    assert our_answer["shape"] == their_answer["shape"]
    assert (found["path"][0]["op"], found["path"][-1]["module"]) == (op, theirs_found["path"][-1]["module"])
    assert re.search(r"^    Reason: .+  \[\w+\]$", our_text, flags=re.MULTILINE)
    assert our_text.count("No non-finite values") == their_text.count("No non-finite values")


# The same answers


def test_the_path_has_the_ops_that_handed_the_value_on():
    their_report, our_report = both(lambda _: nn.functional.layer_norm(torch.log(torch.zeros(2, 3)) + 1, (3,)))
    for report in (their_report, our_report):
        (culprit,) = report.culprits
        path = report.paths[culprit.seq]
        assert [node.op_name for node in path] == ["log", "add", "layer_norm"]
        assert path[0] is culprit and path[-1] is report.target
        assert path[1] in report.target.parents and path[0] in path[1].parents
        assert [(node.has_nan, node.has_inf) for node in path] == [(False, True), (False, True), (True, False)]
        assert [node.seq for node in path] == sorted(node.seq for node in path)
        assert not report.ok and not culprit.is_finite and culprit.device == "cpu" and not culprit.inherited


def test_independent_culprits_are_all_listed():
    def program(_):
        return torch.log(torch.zeros(2)).sum() + torch.sqrt(-torch.ones(2)).sum()

    their_report, our_report = both(program)
    assert sorted(node.op_name for node in their_report.culprits) == ["log", "sqrt"]
    assert [node.op_name for node in our_report.culprits] == ["log", "sqrt"]
    assert parse(str(our_report), OF_OURS_ONLY)["culprits"][1]["path"][0]["op"] == "sqrt"


def test_a_forward_culprit_has_its_line_here_even_without_capture_stack():
    their_report, our_report = both(lambda _: torch.log(torch.zeros(2)))
    assert their_report.culprits[0].location is None
    assert re.fullmatch(re.escape(__file__) + r":\d+", our_report.culprits[0].location)
    for report in both(lambda _: torch.log(torch.zeros(2)), capture_stack=True):
        assert re.fullmatch(re.escape(__file__) + r":\d+", report.culprits[0].location)


@pytest.mark.parametrize("make", [lambda: torch.ones(2) * 2, lambda: torch.ones(2).argmax()])
def test_a_healthy_tensor_is_said_to_be_so(make):
    for report in both(lambda _: make()):
        assert report.ok and report.culprits == [] and report.target.is_finite
        assert report.total_nodes_seen >= 2
        assert FINITE.fullmatch(str(report))


def test_has_issue_answers_for_any_tensor():
    bad = torch.tensor([1.0, float("inf")])
    for tool in (theirs, ours):
        with tool.trace() as tracker:
            made = torch.log(torch.zeros(1))
            answers = [tracker.has_issue(t) for t in (made, bad, torch.ones(1), torch.ones(1, dtype=torch.long))]
            answers += [tracker.has_issue(bad * (1 + 1j)), tracker.has_issue(torch.ones(1, dtype=torch.bool))]
        assert answers == [True, True, False, False, True, False]


def test_a_tensor_that_was_not_made_in_the_block_is_a_key_error():
    before = torch.ones(3)
    leaf = torch.ones(3, requires_grad=True)
    for tool in (theirs, ours):
        with tool.trace() as tracker:
            made = (before * leaf).sum()
        for tensor in (before, leaf):
            with pytest.raises(KeyError):
                tracker.diagnose(tensor)
        assert tracker.diagnose(made).ok


def test_reset_forgets_what_was_made_and_keeps_the_names():
    model = nn.Sequential(nn.Linear(2, 2), nn.LogSigmoid())
    for tool in (theirs, ours):
        with tool.trace() as tracker:
            tracker.watch(model)
            old = torch.log(torch.zeros(2))
            tracker.reset()
            with pytest.raises(KeyError):
                tracker.diagnose(old)
            with torch.no_grad():
                out = torch.log(model(torch.zeros(1, 2)) * 0 - 1)
                inside = model[1](torch.zeros(1, 2)) / 0
        assert tracker.diagnose(out).culprits[0].op_name == "log"
        assert tracker.diagnose(inside).culprits[0].module_path is None
        tracker.reset()
        with pytest.raises(KeyError):
            tracker.diagnose(out)


def culprits_of(tracker, tensor):
    try:
        return [node.op_name for node in tracker.diagnose(tensor).culprits]
    except KeyError:
        return []


def test_nothing_is_recorded_while_disabled():
    for tool in (theirs, ours):
        with tool.trace() as tracker:
            start = torch.ones(3) * 2
            counted = tracker.diagnose(start).total_nodes_seen
            tracker.disable()
            hidden = torch.log(torch.zeros(3))
            assert "log" not in culprits_of(tracker, hidden)
            assert tracker.has_issue(hidden)
            assert tool is ours or tracker.diagnose(start).total_nodes_seen == counted
            tracker.enable()
            seen = torch.log(torch.zeros(3))
            read = hidden * 2
        assert tracker.diagnose(seen).culprits[0].op_name == "log"
        (culprit,) = tracker.diagnose(read).culprits
        assert culprit.op_name == ("mul" if tool is theirs else "batch")


def test_a_block_left_while_disabled_leaves_nothing_switched_off():
    with ours.trace() as tracker:
        tracker.disable()
    with ours.trace() as other:
        bad = torch.log(torch.zeros(1))
    assert other.diagnose(bad).culprits[0].op_name == "log"
    with tracker:  # still disabled, as sherlorch's is
        hidden = torch.log(torch.zeros(1))
        tracker.enable()
        seen = torch.log(torch.zeros(1))
    assert tracker.diagnose(seen).culprits[0].op_name == "log"
    assert "log" not in culprits_of(tracker, hidden)


class Log(nn.Module):
    def forward(self, x):
        return torch.log(x)


def test_watch_returns_the_tracker_and_unwatch_ends_the_tags():
    model = nn.Sequential(Log())
    for tool in (theirs, ours):
        with tool.trace() as tracker:
            assert tracker.watch(model, name="net") is tracker
            first = model(torch.zeros(1))
            tracker.unwatch()
            second = model(torch.zeros(1))
        tags = [tracker.diagnose(t).culprits[0].module_path for t in (first, second)]
        assert tags == ["net.0", None]


def test_watching_again_and_a_second_model_of_the_same_name_are_no_errors():
    one, two = nn.Sequential(Log()), nn.Sequential(Log())
    with ours.trace() as tracker:
        tracker.watch(one).watch(one).watch(two)
        outs = one(torch.zeros(1)), two(torch.zeros(1))
    assert [tracker.diagnose(t).culprits[0].module_path for t in outs] == ["model.0", "model_2.0"]
    with tracker:
        tracker.watch(two)
        out = two(torch.zeros(1))
    assert tracker.diagnose(out).culprits[0].module_path == "model.0"


def test_names_of_the_block_are_gone_in_the_next():
    model = nn.Sequential(Log())
    for tool in (theirs, ours):
        tracker = tool.trace().watch(model)
        with tracker:
            first = tracker.diagnose(model(torch.zeros(1)))
        with tracker:
            second = tracker.diagnose(model(torch.zeros(1)))
        assert [report.culprits[0].module_path for report in (first, second)] == ["model.0", None]


# Where sherlorch is wrong


def test_a_gradient_has_an_answer_where_sherlorch_has_a_key_error():
    def program(_):
        x = torch.zeros(3, requires_grad=True)
        x.pow(2).sum().sqrt().backward()
        return x

    with theirs.trace() as tracker:
        x = program(tracker)
    with pytest.raises(KeyError):
        tracker.diagnose(x.grad)
    with theirs.trace() as tracker:  # read in the block, it is blamed on being read
        assert tracker.diagnose(program(tracker).grad).culprits[0].op_name == "__get__"
    with ours.trace(capture_stack=True) as tracker:
        x = program(tracker)
        inside = tracker.diagnose(x.grad)
    report = tracker.diagnose(x.grad)
    assert str(report) == str(inside)
    (culprit,) = report.culprits
    line = inspect.getsourcelines(program)[1] + 2
    assert (culprit.op_name, culprit.location) == ("SqrtBackward0", f"{__file__}:{line}")
    assert [node.op_name for node in report.paths[culprit.seq]] == ["SqrtBackward0", "PowBackward0"]
    assert "    Backward of: sqrt" in str(report).splitlines()
    parse(str(report), OF_OURS_ONLY)


def test_a_gradient_of_a_watched_parameter_has_an_answer_after_the_block():
    model = nn.Linear(2, 1)
    with ours.trace() as tracker:
        tracker.watch(model)
        torch.sqrt(model(torch.zeros(1, 2)) * 0).sum().backward()
    report = tracker.diagnose(model.weight.grad)
    assert [node.op_name for node in report.culprits] == ["SqrtBackward0"]
    assert (report.target.shape, report.target.has_nan) == ((1, 2), True)


def test_nan_in_the_batch_is_the_batch_and_not_the_op_that_read_it():
    model = nn.Linear(3, 2)
    batch = torch.ones(4, 3)
    batch[3, 1] = float("nan")

    their_report, our_report = both(lambda tracker: tracker.watch(model) and model(batch).sum())
    assert [node.op_name for node in their_report.culprits] == ["linear"]
    (culprit,) = our_report.culprits
    assert (culprit.op_name, culprit.shape, culprit.module_path) == ("batch", (4, 3), "model")
    assert (culprit.extra["origin"].index, culprit.has_nan, culprit.has_inf) == ((3, 1), True, False)
    assert our_report.paths[culprit.seq][-1].op_name == "sum"
    assert "    Reason: the NaN was already in the batch" in str(our_report)


def test_nan_in_a_parameter_is_the_parameter():
    model = nn.Linear(3, 2)
    with torch.no_grad():
        model.weight[1, 2] = float("nan")
    their_report, our_report = both(lambda tracker: tracker.watch(model) and model(torch.ones(4, 3)).sum())
    assert [node.op_name for node in their_report.culprits] == ["linear"]
    (culprit,) = our_report.culprits
    assert (culprit.op_name, culprit.shape, culprit.module_path) == ("parameter", (2, 3), "model")
    assert "model.weight" in str(our_report)


def test_a_fully_masked_row_is_the_softmax_and_not_the_mask():
    mask = torch.tensor([[False, True], [True, True]])
    their_report, our_report = both(lambda _: torch.randn(2, 2).masked_fill(mask, float("-inf")).softmax(-1).sum())
    assert [node.op_name for node in their_report.culprits] == ["masked_fill"]
    assert [node.op_name for node in our_report.culprits] == ["softmax"]
    assert re.search(r"Reason: .* the row \[1\] .*\[fully_masked_row\]$", str(our_report), flags=re.MULTILINE)


def test_the_values_that_the_op_read_and_the_reason_are_in_the_text():
    values = torch.tensor([2.0, -3.0])
    their_report, our_report = both(lambda _: torch.log(values))
    assert "-3" not in str(their_report)
    assert "    Operands: self = -3 at [1]" in str(our_report).splitlines()
    assert "[log_of_nonpositive]" in str(our_report)


def reachable(nodes):
    seen, todo = set(), list(nodes)
    while todo:
        node = todo.pop()
        if id(node) not in seen:
            seen.add(id(node))
            todo.extend(node.parents)
    return len(seen)


def train(tool, steps):
    """Adam on finite numbers, then NaN in the batch: how many nodes are alive after each step, and the last report."""
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    optimizer = torch.optim.Adam(model.parameters(), foreach=False)
    alive = []
    with tool.trace() as tracker:
        tracker.watch(model)
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.ones(2, 3)).square().mean().backward()
            optimizer.step()
            gc.collect()
            alive.append(sum(type(one) is tool.OpNode for one in gc.get_objects()))
        report = tracker.diagnose(model(torch.full((2, 3), float("nan"))).mean())
    return alive, report


def test_the_graph_does_not_grow_over_steps_of_adam():
    their_nodes, their_report = train(theirs, 4)
    assert their_nodes == sorted(set(their_nodes))
    our_nodes, our_report = train(ours, 4)
    assert our_nodes == [our_nodes[0]] * 4
    _, later = train(ours, 12)
    assert reachable([later.target]) == reachable([our_report.target]) < reachable([their_report.target])


def test_a_mask_is_still_answered_in_the_form_when_asked_for():
    mask = torch.tensor([True, False])
    their_report, our_report = both(lambda _: torch.ones(2).masked_fill(mask, float("-inf")))
    for report in (their_report, our_report):
        (found,) = parse(str(report), OF_OURS_ONLY)["culprits"]
        assert (found["op"], found["kind"], found["dtype"]) == ("masked_fill", "Inf", "torch.float32")


def test_switched_off_it_says_so(monkeypatch):
    monkeypatch.setenv("FIRSTFAULT", "0")
    with ours.trace() as tracker:
        bad = torch.log(torch.zeros(1))
    assert not tracker.has_issue(bad)
    assert tracker.diagnose(bad).ok
    assert "FIRSTFAULT=0" in str(tracker.diagnose(bad))


def test_a_second_tracker_inside_a_block_is_refused():
    with ours.trace(), pytest.raises(RuntimeError), ours.trace():
        pass
