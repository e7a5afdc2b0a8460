"""The examples run, and say what they are there to say."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import firstfault as ff

ROOT = Path(__file__).resolve().parents[2]
FIND_NAN = ROOT / "examples" / "find_nan.py"
DEMO = Path(os.environ.get("FIRSTFAULT_BUILD", ROOT / "build")) / "bin" / "example_demo"
needs_demo = pytest.mark.skipif(not DEMO.exists(), reason=f"{DEMO} is not built; `make build` builds it")


def run(*command):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=300)


def line_of(source: Path, code: str) -> int:
    """The one line of `source` that holds `code`."""
    found = [number for number, line in enumerate(source.read_text().splitlines(), 1) if code in line]
    assert len(found) == 1, f"{code!r} stands in {len(found)} lines of {source}"
    return found[0]


@pytest.fixture(scope="module")
def find_nan() -> list[str]:
    """What find_nan.py prints for each of its two models."""
    done = run(sys.executable, FIND_NAN)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Warning" not in done.stderr, done.stderr
    return re.split(r"^== .*\n", done.stdout, flags=re.MULTILINE)[1:]


def test_find_nan_names_the_log_its_module_line_operand_and_mechanism(find_nan):
    text = find_nan[0]
    line = line_of(FIND_NAN, "torch.log(torch.relu")
    assert "-Inf first appeared in aten::log (" in text
    assert "module 'model.block.feed_forward.0'" in text
    assert f"find_nan.py:{line}" in text
    assert "[log_of_nonpositive]" in text
    assert re.search(r"operands +self float32 \[16, 12, 32\]: 0 at \[\d+, \d+, \d+\], min 0, ", text)


def test_find_nan_names_the_backward_of_the_sqrt_its_module_line_and_mechanism(find_nan):
    text = find_nan[1]
    line = line_of(FIND_NAN, ".sqrt()")
    assert "NaN first appeared in " in text
    assert "SqrtBackward0" in text
    assert "the backward of aten::sqrt" in text
    assert "module 'model.normalise'" in text
    assert f"find_nan.py:{line}" in text
    assert "[derivative_at_boundary]" in text
    assert re.search(r"first at \[\d+, 0\] = NaN$", text, flags=re.MULTILINE)
    assert re.search(r"other float32 \[16, 1\]: 0 at \[\d+, 0\]", text)


def test_find_nan_learns_for_some_steps_before_the_loss_is_nan(find_nan):
    for text in find_nan:
        losses = re.findall(r"^step +(\d+) +loss (\S+)$", text, flags=re.MULTILINE)
        assert losses[-1][1] == "nan"
        assert int(losses[-1][0]) >= 10


@pytest.fixture(scope="module")
def demo(tmp_path_factory) -> str:
    sklearn = Path(importlib.util.find_spec("sklearn").origin).parent
    run_file = tmp_path_factory.mktemp("demo") / "demo.ffrun"
    done = run(DEMO, sklearn / "datasets" / "data" / "breast_cancer.csv", run_file)
    assert done.returncode == 0, done.stdout + done.stderr
    [hypothesis] = ff.explain(ff.read_run(run_file))
    assert str(hypothesis) in done.stdout, "the file says what the program said"
    return done.stdout


@needs_demo
def test_the_demo_names_the_log_in_the_loss_its_line_operand_and_mechanism(demo):
    line = line_of(ROOT / "examples" / "demo.cpp", "torch::log(1 - p)")
    assert re.search(rf"step \d+, forward, aten::log, module 'loss', sample \d+, at \S*demo.cpp:{line}\.", demo)
    assert re.search(r"why +log of 0 is -Inf: its operand 'self' holds 0 at \[\d+, 0\] \(1 of 32 elements is 0\)", demo)
    assert re.search(r"mechanism +log_of_nonpositive\n", demo) and "[op_domain]" in demo


@needs_demo
def test_the_demo_names_the_step_and_the_sample(demo):
    step = int(re.search(r"^step +(\d+) +loss nan$", demo, flags=re.MULTILINE)[1])
    assert f"step {step}, forward" in demo
    sample, row = re.search(r"sample (\d+), at .*\n.* holds 0 at \[(\d+), 0\]", demo).groups()
    assert row == sample
    assert re.search(rf"^Sample {sample} of this batch is row \d+ of the file\.$", demo, flags=re.MULTILINE)


@needs_demo
def test_the_demo_learns_before_its_loss_is_nan(demo):
    losses = re.findall(r"^step +\d+ +loss (\S+)$", demo, flags=re.MULTILINE)
    assert losses[-1] == "nan"
    assert float(losses[0]) > 0.6
    assert min(map(float, losses[:-1])) < 0.05


@needs_demo
def test_the_demo_says_when_the_file_cannot_be_opened():
    done = run(DEMO, "no-such-file.csv", "no-such-run.ffrun")
    assert done.returncode == 1
    assert "cannot open 'no-such-file.csv'" in done.stderr


TANH_MLP = ROOT / "examples" / "tanh_mlp.py"


def exploding(text):
    """(step, layer) of the gradients that explode, as tanh_mlp.py prints them."""
    found = re.findall(r"step (\d+): gradient of 'model\.(layer\d)\.weight' went from \w+ to exploding", text)
    return [(int(step), layer) for step, layer in found]


def test_the_tanh_mlp_saturates_first_then_explodes_in_the_first_layer():
    done = run(sys.executable, TANH_MLP)
    assert done.returncode == 0, done.stderr
    text = done.stdout
    events = text[text.index("What changed") :].splitlines()
    assert re.match(r"  step 4: aten::tanh of module 'model\.tanh1' went from healthy to saturated", events[1])
    (step, layer), *others = exploding(text)
    assert 9 <= step <= 11 and layer == "layer1"
    assert others and all(later >= step for later, _ in others)
    assert re.search(r"Learning rate too high: step \d+, begun in step 8, .*module 'model\.layer1'", text)
    assert "the learning rate went from 0.01 to 1" in text


def test_the_tanh_mlp_through_neuraldbg_names_the_first_layer_and_its_neighbours_as_effects():
    done = run(sys.executable, TANH_MLP, "--neuraldbg")
    assert done.returncode == 0, done.stderr
    links = re.findall(r"^  step (\d+): (.*)$", done.stdout, flags=re.MULTILINE)
    assert links[0] == ("4", "Tanh_tanh1 saturated")
    cause = links.index(("8", "lr_too_high in Linear_layer1 (cause)"))
    exploding = [(int(step), text) for step, text in links[cause + 1 :] if "exploding" in text]
    assert exploding[0][1] == "Linear_layer1 gradient exploding (effect)" and 9 <= exploding[0][0] <= 11
    neighbours = [text for _, text in exploding[1:]]
    assert neighbours and all(re.fullmatch(r"Linear_layer[2-8] gradient exploding \(effect\)", n) for n in neighbours)
    assert "(layer 'Linear_layer1', step" in done.stdout
    assert "activation_regime_shift in Tanh_tanh1 -> " in done.stdout


GUARDED = DEMO.with_name("example_guarded")


@pytest.mark.skipif(not GUARDED.exists(), reason=f"{GUARDED} is not built; `make build` builds it")
def test_the_guarded_training_ends_as_well_as_one_without_the_fault_and_its_cause_is_confirmed():
    done = run(GUARDED, Path(importlib.util.find_spec("sklearn").origin).parent / "datasets/data/breast_cancer.csv")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = re.findall(r"^(.+?) +loss (\S+) +(?:(\d+) of 600 steps)?$", done.stdout, flags=re.MULTILINE)
    losses = {name: float(loss) for name, loss, _ in rows}
    assert losses.keys() == {"stable loss", "faulty, skipped", "faulty, rolled back"}
    assert abs(losses["faulty, skipped"] - losses["stable loss"]) < 0.005
    assert losses["faulty, rolled back"] < 0.05
    assert all(int(faulty) > 0 for name, _, faulty in rows if name != "stable loss")
    line = line_of(ROOT / "examples" / "guarded.cpp", "torch::log(1 - p)")
    assert re.search(rf"aten::log, sample \d+, at \S*guarded.cpp:{line}\.", done.stdout)
    assert re.search(r"standing +confirmed, .*\[op_domain\]", done.stdout)
    assert re.search(r"sample (\d+) alone makes the step fail", done.stdout)
