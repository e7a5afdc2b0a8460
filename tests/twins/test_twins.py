"""The same faults as a C++ and as a Python program: one diagnosis, and the marked line at each optimisation level."""

import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
BIN = Path(os.environ.get("FIRSTFAULT_BUILD", HERE.parents[1] / "build")) / "bin"
LEVELS = ("O0", "O2")

# What is right, whatever the programs say; fields that are not listed are "" or None.
EXPECTED = {
    "log_in_a_module": {
        "op": "aten::log",
        "module": "model.log",
        "phase": "forward",
        "mechanism": "log_of_nonpositive",
        "kind": "-Inf",
        "index": [1, 1],
        "sample": 1,
        "shape": [2, 2],
        "operands": {"self": 0.0},
    },
    "nan_in_a_parameter": {
        "op": "aten::addmm",
        "outer_op": "aten::linear",
        "module": "model.second",
        "param": "model.second.weight",
        "phase": "parameter",
        "mechanism": "bad_input",
        "kind": "NaN",
        "index": [1, 0],
        "shape": [2, 2],
        "operands": {},
    },
    "root_backward_at_zero": {
        "op": "SqrtBackward0",
        "inner_op": "aten::div",
        "forward_op": "aten::sqrt",
        "module": "model.norm",
        "phase": "backward",
        "mechanism": "derivative_at_boundary",
        "kind": "+Inf",
        "index": [2],
        "sample": 2,
        "shape": [3],
        "operands": {"self": 1.0, "other": 0.0},
    },
    "loss_outside_the_model": {
        "op": "aten::log",
        "after_module": "model.second",
        "phase": "forward",
        "mechanism": "log_of_nonpositive",
        "kind": "-Inf",
        "index": [1, 1],
        "sample": 1,
        "shape": [2, 2],
        "operands": {"self": 0.0},
    },
    "fully_masked_row": {
        "op": "aten::_softmax",
        "outer_op": "aten::softmax",
        "module": "model.weights",
        "phase": "forward",
        "mechanism": "fully_masked_row",
        "kind": "NaN",
        "index": [1, 2, 0],
        "shape": [2, 3, 3],
        "operands": {"self": None, "dim": -1.0},
    },
    "nan_in_the_batch": {
        "op": "aten::addmm",
        "outer_op": "aten::linear",
        "module": "model.0",
        "phase": "data",
        "mechanism": "bad_input",
        "kind": "NaN",
        "index": [2, 1],
        "sample": 2,
        "shape": [4, 2],
        "operands": {},
    },
    "root_in_place": {
        "op": "aten::sqrt_",
        "module": "model.root",
        "phase": "forward",
        "mechanism": "sqrt_or_rsqrt_domain",
        "kind": "NaN",
        "index": [1, 1],
        "sample": 1,
        "shape": [2, 3],
        "operands": {"self": -0.5},
    },
    "third_layer_of_a_sequential": {
        "op": "aten::addmm",
        "outer_op": "aten::linear",
        "module": "model.2",
        "phase": "forward",
        "mechanism": "dtype_overflow",
        "kind": "+Inf",
        "index": [1, 1],
        "sample": 1,
        "shape": [2, 2],
        "operands": {"self": None, "mat1": None, "mat2": None, "beta": 1.0, "alpha": 1.0},
    },
    "layer_used_twice": {
        "op": "aten::addmm",
        "outer_op": "aten::linear",
        "module": "model.step",
        "phase": "forward",
        "mechanism": "dtype_overflow",
        "kind": "+Inf",
        "index": [1, 1],
        "sample": 1,
        "shape": [2, 2],
        "operands": {"self": None, "mat1": None, "mat2": None, "beta": 1.0, "alpha": 1.0},
    },
    "tied_weights": {
        "op": "aten::mm",
        "outer_op": "aten::matmul",
        "module": "model.decoder",
        "phase": "forward",
        "mechanism": "dtype_overflow",
        "kind": "+Inf",
        "index": [1, 1],
        "sample": 1,
        "shape": [2, 2],
        "operands": {"self": None, "mat2": None},
    },
    "root_that_where_hides": {
        "op": "SqrtBackward0",
        "inner_op": "aten::div",
        "forward_op": "aten::sqrt",
        "module": "model.safe_root",
        "phase": "backward",
        "mechanism": "derivative_at_boundary",
        "kind": "NaN",
        "index": [1, 0],
        "sample": 1,
        "shape": [2, 2],
        "operands": {"self": 0.0, "other": 0.0},
    },
    "infinite_learning_rate": {
        "op": "aten::add_",
        "param": "model.first.weight",
        "phase": "optimizer",
        "mechanism": "nonfinite_hyperparameter",
        "kind": "-Inf",
        "index": [0, 0],
        "shape": [2, 2],
        "operands": {"self": None, "other": 1.0, "alpha": "-inf"},
    },
    "adam_in_half": {
        "op": "aten::addcdiv_",
        "param": "model.0.weight",
        "phase": "optimizer",
        "mechanism": "optimizer_denominator",
        "kind": "-Inf",
        "index": [0, 0],
        "shape": [2, 2],
        "operands": {
            "self": None,
            "tensor1": pytest.approx(1e-5, rel=1e-2),
            "tensor2": 0.0,
            "value": pytest.approx(-0.01),
        },
    },
    "custom_function": {
        "op": "RootFunctionBackward",
        "inner_op": "aten::div",
        "forward_op": "RootFunction",
        "module": "model.root",
        "phase": "backward",
        "mechanism": "division_by_zero",
        "kind": "+Inf",
        "index": [1, 1],
        "sample": 1,
        "shape": [2, 2],
        "operands": {"self": 1.0, "other": 0.0},
    },
    "exp_in_half": {
        "op": "aten::exp",
        "module": "model.exp",
        "phase": "forward",
        "mechanism": "exp_overflow",
        "kind": "+Inf",
        "index": [2, 0],
        "sample": 2,
        "shape": [3, 2],
        "operands": {"self": 12.0},
    },
    "zero_over_zero": {
        "op": "aten::div",
        "module": "model.mean",
        "phase": "forward",
        "mechanism": "division_by_zero",
        "kind": "NaN",
        "index": [1],
        "sample": 1,
        "shape": [3],
        "operands": {"self": 0.0, "other": 0.0},
    },
}
# Where the languages differ by themselves. LibTorch's linear() calls addmm without at::linear around it; its nodes of a
# custom function are named by their C++ type, and it tells no observer of the function's forward.
EXPECTED_IN_CPP = {
    "nan_in_a_parameter": {"outer_op": ""},
    "nan_in_the_batch": {"outer_op": ""},
    "third_layer_of_a_sequential": {"outer_op": ""},
    "layer_used_twice": {"outer_op": ""},
    "custom_function": {"op": "CppNode<(anonymous namespace)::RootFunction>", "forward_op": "", "module": ""},
}
NAMES = ("op", "inner_op", "outer_op", "forward_op", "module", "after_module", "param", "phase", "mechanism", "kind")
COMPARED = (*NAMES, "index", "sample", "shape", "dtype", "cause", "because", "outcome", "sink", "counts", "row")


def program(level: str) -> Path:
    path = BIN / f"twins_{level}"
    if not path.exists():
        pytest.skip(f"{path} is not built; `make test-twins` builds it")
    return path


def output_of(*command, **environment) -> str:
    command = [str(part) for part in command]
    env = os.environ | environment
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def culprits_in(output: str) -> dict[str, dict]:
    """The one culprit of each fault."""
    found = {}
    for line in output.splitlines():
        record = json.loads(line)
        culprits = record["diagnosis"]["culprits"]
        assert len(culprits) == 1, (record["fault"], culprits)
        found[record["fault"]] = culprits[0]
    return found


@cache
def culprits(language: str) -> dict[str, dict]:
    return culprits_in(
        output_of(sys.executable, HERE / "twins.py") if language == "py" else output_of(program(language))
    )


def line_of(source: Path, fault: str) -> int:
    """The one line of `source` that carries the mark of `fault`."""
    lines = source.read_text().splitlines()
    found = [number for number, line in enumerate(lines, 1) if line.endswith(f" <- {fault}")]
    assert len(found) == 1, f"{fault!r} is marked in {len(found)} lines of {source}"
    return found[0]


def expected(fault: str, language: str) -> dict:
    names = dict.fromkeys(NAMES, "") | {"sample": None}
    return names | EXPECTED[fault] | (EXPECTED_IN_CPP.get(fault, {}) if language in LEVELS else {})


def summary(culprit: dict) -> dict:
    """The fields of `culprit` that EXPECTED tells."""
    fields = {key: culprit[key] for key in (*NAMES, "index", "sample", "shape")}
    return fields | {"operands": {operand["name"]: operand["value"] for operand in culprit["operands"]}}


@pytest.mark.parametrize("fault", EXPECTED)
@pytest.mark.parametrize("language", ["py", *LEVELS])
def test_the_diagnosis_is_right(fault, language):
    assert summary(culprits(language)[fault]) == expected(fault, language)


@pytest.mark.parametrize("fault", EXPECTED)
@pytest.mark.parametrize("language", ["py", *LEVELS])
def test_the_line_is_the_marked_one(fault, language):
    culprit = culprits(language)[fault]
    source = HERE / ("twins.py" if language == "py" else "twins.cpp")
    assert culprit["file"] and Path(culprit["file"]).resolve() == source
    assert culprit["line"] == line_of(source, fault)


@pytest.mark.parametrize("fault", EXPECTED)
@pytest.mark.parametrize("level", LEVELS)
def test_cpp_tells_what_python_tells(fault, level):
    ours, theirs = culprits(level)[fault], dict(culprits("py")[fault])
    same = [key for key in COMPARED if key not in EXPECTED_IN_CPP.get(fault, {})]
    theirs["because"] = theirs["because"].replace(theirs["op"], ours["op"])
    assert {key: ours[key] for key in same} == {key: theirs[key] for key in same}
    assert ours["operands"] == theirs["operands"]


def test_every_fault_is_in_both_programs_and_is_expected():
    for language in ("py", *LEVELS):
        assert list(culprits(language)) == list(EXPECTED)


@pytest.fixture(scope="module")
def without_addr2line(tmp_path_factory):
    """The command and environment of a run that finds no addr2line."""
    return (program("O2"),), {"PATH": str(tmp_path_factory.mktemp("no_binutils"))}


@pytest.fixture(scope="module")
def without_debug_information(tmp_path_factory):
    """The command and environment of a run of a stripped copy."""
    copy = tmp_path_factory.mktemp("stripped") / "twins"
    strip = shutil.which("strip")
    if strip is None:
        pytest.skip("no strip; it is in the Debian package binutils")
    output_of(strip, "-g", "-o", copy, program("O2"))
    return (copy,), {}


@pytest.mark.parametrize("missing", ["without_addr2line", "without_debug_information"])
def test_without_lines_a_diagnosis_is_otherwise_the_same(missing, request):
    command, environment = request.getfixturevalue(missing)
    found = culprits_in(output_of(*command, **environment))
    assert list(found) == list(EXPECTED)
    for fault, culprit in found.items():
        assert culprit["line"] is None, fault
        with_lines = culprits("O2")[fault]
        assert {key: culprit[key] for key in COMPARED} == {key: with_lines[key] for key in COMPARED}, fault


@pytest.mark.parametrize(
    ("missing", "reason"), [("without_addr2line", "addr2line"), ("without_debug_information", "-g")]
)
def test_the_text_says_why_no_line_is_known(missing, reason, request):
    command, environment = request.getfixturevalue(missing)
    for text in output_of(*command, "text", **environment).split("== ")[1:]:
        assert "twins.cpp" not in text
        assert f" {reason}" in text, text
