"""A long healthy run: silent, and neither its file nor its memory grows."""

import gc
import resource

import pytest
import torch
from torch import nn

import firstfault as ff


class Blocks(nn.Module):
    """Fifty residual blocks of four parameters each."""

    def __init__(self, width=16):
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, width)) for _ in range(50)
        )

    def forward(self, x):
        for block in self.blocks:
            x = x + 0.1 * block(x)
        return x


def rss_mb():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize() / 2**20


@pytest.mark.slow
def test_ten_thousand_healthy_steps_of_two_hundred_parameters_have_no_event_and_a_flat_file_and_memory(tmp_path):
    model = Blocks()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    truth = torch.randn(16, 16) / 4
    path = tmp_path / "run.ffrun"
    assert len(list(model.parameters())) == 200
    sizes, memory = {}, {}
    with ff.watch(model, optimizer, run_file=path):
        for step in range(1, 10_001):
            x = torch.randn(32, 16)
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), x @ truth)
            loss.backward()
            optimizer.step()
            if step % 2500 == 0:
                gc.collect()
                sizes[step] = sum(part.stat().st_size for part in tmp_path.iterdir()) / 2**20
                memory[step] = rss_mb()
    closed = path.stat().st_size / 2**20
    print(f"\nfile, MB: {sizes}, closed {closed:.1f}; resident, MB: {memory}")
    recorded = ff.read_run(path)
    assert recorded.steps == 10_000 and recorded.state == "complete"
    assert recorded.transitions == [] and recorded.origins == [] and ff.explain(recorded) == []
    assert memory[10_000] - memory[2500] < 8
    assert closed < 64
