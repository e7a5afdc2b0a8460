"""export --format parquet, which the Python package does with pyarrow."""

import math
import subprocess
import sys

import pytest


@pytest.fixture
def export(runs):
    def call(kind, *arguments):
        command = [sys.executable, "-m", "firstfault", "export", str(runs[kind]), "--format", "parquet", *arguments]
        return subprocess.run(command, capture_output=True, text=True)

    return call


def test_parquet_has_the_numbers_of_csv_with_their_types(export, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    file = tmp_path / "steps.parquet"
    result = export("fault", "--out", str(file))
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    steps = parquet.read_table(file)
    assert [str(steps.schema.field(name).type) for name in ("step", "loss", "skipped")] == ["int64", "double", "bool"]
    assert steps["step"].to_pylist() == list(range(41))
    assert steps["loss"].to_pylist()[40] == -math.inf and steps["loss_scale"].null_count == 41


def test_names_in_parquet_stay_whole(export, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    file = tmp_path / "events.parquet"
    assert export("hostile", "--what", "events", "--out", str(file)).returncode == 0
    assert parquet.read_table(file)["name"].to_pylist()[1] == r'model.\x1b[31m\u202e\xff,"q"\n<b>.weight'


def test_a_run_that_cannot_be_read_leaves_no_file(runs, tmp_path):
    pytest.importorskip("pyarrow")
    file = tmp_path / "x.parquet"
    command = [
        sys.executable,
        "-m",
        "firstfault",
        "export",
        str(tmp_path / "missing"),
        "--format=parquet",
        "--out",
        file,
    ]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 2 and "missing" in result.stderr and not file.exists()


def test_without_pyarrow_it_says_what_to_install(export, tmp_path, monkeypatch):
    (tmp_path / "pyarrow").mkdir()
    (tmp_path / "pyarrow" / "__init__.py").write_text("raise ImportError('not here')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    result = export("fault", "--out", str(tmp_path / "x.parquet"))
    assert (result.returncode, result.stdout) == (2, "")
    assert "pip install pyarrow" in result.stderr
