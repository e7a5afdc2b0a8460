"""The benchmarks run and produce their figures. What the figures are is not this test's business: see `make bench`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("FIRSTFAULT_BUILD", ROOT / "build"))


def run(*arguments):
    command = [str(argument) for argument in arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "FIRSTFAULT_BUILD": str(BUILD)}
    result = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert result.returncode == 0, result.stderr
    return result.stdout


def run_script(name, *arguments):
    if not list((BUILD / "benchmarks").glob("_floor*.so")):
        pytest.skip("the benchmarks' module is not built: make build")
    return run(sys.executable, ROOT / "benchmarks" / name, *arguments)


def test_the_overhead_of_a_trace_is_measured_beside_the_empty_callback_and_a_peer():
    (case,) = json.loads(run_script("trace_overhead.py", "--quick", "--case", "mlp", "--json", "-"))
    readings = case["readings"]
    assert set(readings) == {"empty callback", "without stacks", "detect_anomaly"}
    assert all(reading["ratio"] > 0 and reading["plain_ms"] > 0 for reading in readings.values())
    assert readings["without stacks"]["target"] == 1.25


def test_the_table_says_for_each_target_whether_it_was_met():
    table = run_script("trace_overhead.py", "--quick", "--case", "attention", "--case", "d=64, forward")
    assert table.count("met") + table.count("missed") == 2


def test_growth_reports_the_cost_of_an_op_and_the_resident_memory():
    report = run_script("growth.py", "--quick")
    assert "traced, ns" in report
    assert report.count("KiB resident") == 6


def test_the_program_measures_a_cpp_training_step():
    program = BUILD / "bin" / "bench_trace_mlp"
    if not program.exists():
        pytest.skip("the C++ benchmark is not built: make build")
    readings = [json.loads(line) for line in run(program, "--json", 40).splitlines()]
    assert [reading["observer"] for reading in readings] == ["empty callback", "without stacks", "with stacks"]
    assert all(reading["ratio"] > 0 for reading in readings)
