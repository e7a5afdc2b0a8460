"""tools/check_layers.py on small trees with the real table's form, and on this repository."""

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
spec = importlib.util.spec_from_file_location("check_layers", ROOT / "tools/check_layers.py")
check_layers = importlib.util.module_from_spec(spec)
sys.modules["check_layers"] = check_layers
spec.loader.exec_module(check_layers)

DOCUMENT = """
| folder | may include | purpose |
| --- | --- | --- |
| `firstfault/base` | | names |
| `firstfault/record` | `firstfault/base` | the read model |
| `firstfault/reason` | `firstfault/record/run.h` fmt | judges |
| `firstfault/live` | `firstfault/base` LibTorch | live |
| `firstfault/live/measure` | LibTorch | scan |
| `python/src` | `firstfault` LibTorch | bindings |

| library | its headers |
| --- | --- |
| LibTorch | `ATen/` `torch/` |
| fmt | `fmt/` |
| GoogleTest | `gtest/` |
"""


@pytest.fixture
def problems_of(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/architecture.md").write_text(DOCUMENT)
    for folder in check_layers.read_rules(DOCUMENT).layers:
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)

    def run(path, *lines):
        (tmp_path / path).write_text("\n".join(lines) + "\n")
        return check_layers.check(tmp_path)

    return run


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("firstfault/base/a.cpp", '#include "firstfault/base/b.h"'),
        ("firstfault/base/a.cpp", "#include <vector>"),
        ("firstfault/base/a.cpp", "#include <sys/mman.h>"),
        ("firstfault/base/a_test.cc", "#include <gtest/gtest.h>"),
        ("firstfault/reason/a.cpp", '#include "firstfault/record/run.h"'),
        ("firstfault/reason/a.cpp", "#include <fmt/format.h>"),
        ("firstfault/live/a.cpp", "#include <ATen/core/Tensor.h>"),
        ("python/src/live_a.cpp", '#include "firstfault/live/session.h"'),
        ("python/src/core_a.cpp", '#include "firstfault/record/run.h"'),
    ],
)
def test_allowed_includes_pass(problems_of, path, line):
    assert problems_of(path, line) == []


@pytest.mark.parametrize(
    ("path", "line", "message"),
    [
        ("firstfault/base/a.cpp", "#include <ATen/ATen.h>", "firstfault/base may not use LibTorch (<ATen/ATen.h>)"),
        ("firstfault/base/a.h", '#include "firstfault/record/run.h"', "firstfault/base may not include"),
        ("firstfault/reason/a.cpp", '#include "firstfault/record/file.h"', "firstfault/reason may not include"),
        ("firstfault/reason/a.h", "#include <fmt/format.h>", "fmt is for .cpp files only"),
        ("firstfault/base/a.cpp", "#include <gtest/gtest.h>", "may not use GoogleTest"),
        ("firstfault/base/a.cpp", "#include <boost/any.hpp>", "belongs to no library"),
        ("firstfault/base/a.cpp", '#include "b.h"', "is not a path from the root"),
        ("firstfault/live/measure/a.cpp", '#include "firstfault/live/session.h"', "live/measure may not include"),
        ("firstfault/live/a.cpp", '#include "firstfault/live/measure/scan.h"', "firstfault/live may not include"),
        ("python/src/core_a.cpp", '#include "firstfault/live/session.h"', "must load without LibTorch"),
        ("python/src/core_a.cpp", "#include <torch/torch.h>", "must load without LibTorch"),
    ],
)
def test_forbidden_includes_are_named_with_their_line(problems_of, path, line, message):
    (problem,) = problems_of(path, "// a comment", line)
    assert problem.startswith(f"{path}:2: ")
    assert message in problem


def test_a_folder_without_a_row_and_a_row_without_a_folder_are_problems(problems_of, tmp_path):
    (tmp_path / "cli").mkdir()
    (tmp_path / "firstfault/record").rmdir()
    (tmp_path / "firstfault/guard").mkdir()
    problems_of("firstfault/guard/policy.cpp", "#include <vector>")
    assert problems_of("cli/main.cpp", "#include <vector>") == [
        "docs/architecture.md: folder firstfault/record does not exist",
        "firstfault/guard/policy.cpp:1: no row of docs/architecture.md covers firstfault/guard/policy.cpp",
        "cli/main.cpp:1: no row of docs/architecture.md covers cli/main.cpp",
    ]


def test_this_repository_keeps_its_own_rules():
    assert check_layers.check(ROOT) == []
