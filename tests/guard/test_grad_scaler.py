"""The C++ GradScaler makes the same steps, at the same scales, as torch's Python one."""

import os
import subprocess
from pathlib import Path

import pytest
import torch

BUILD = Path(os.environ.get("FIRSTFAULT_BUILD", Path(__file__).resolve().parents[2] / "build"))
PROGRAM = BUILD / "bin" / "scaler_steps"


def python_steps():
    weight = (torch.arange(64, dtype=torch.float32).reshape(8, 8) / 64 - 0.5).requires_grad_()
    optimizer = torch.optim.SGD([weight], lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", growth_interval=20)
    for step in range(500):
        x = (torch.arange(256, dtype=torch.float32) * 37 + step * 11).remainder(17).reshape(32, 8) / 17 - 0.5
        if step % 97 == 50:
            x = x * 1000
        optimizer.zero_grad()
        y = x.half() @ weight.half()
        scaler.scale(y.float().square().mean()).backward()
        scale, before = scaler.get_scale(), weight.detach().clone()
        scaler.step(optimizer)
        scaler.update()
        yield scale, not torch.equal(before, weight), weight.sum().item()


def test_500_steps_with_overflows_have_the_same_scales_skips_and_weights():
    if not PROGRAM.exists():
        pytest.skip("the program is not built: make build")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    lines = subprocess.run([PROGRAM], capture_output=True, text=True, check=True, env=environment).stdout.splitlines()
    steps = [(float(scale), made == "1", float(total)) for scale, made, total in map(str.split, lines)]
    expected = list(python_steps())
    assert steps == expected
    assert 10 < sum(not made for _, made, _ in expected) < 250
    assert len({scale for scale, _, _ in expected}) > 3
