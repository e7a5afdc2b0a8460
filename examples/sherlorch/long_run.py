"""Leaving out a warm-up and forgetting each healthy step: disable(), enable() and reset().

usage: python long_run.py
"""

import torch
from torch import nn

from firstfault.compat import sherlorch


def main():
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.rand(16, 4)

    with sherlorch.trace(capture_stack=True, fast_shape_ops=False) as tracker:
        tracker.watch(model)
        tracker.disable()
        for _ in range(3):
            model(x)
        tracker.enable()

        for step in range(5):
            scale = 0.0 if step == 3 else 1.0
            loss = torch.rsqrt(scale * model(x).square()).mean()
            if tracker.has_issue(loss):
                print(f"step {step}")
                print(tracker.diagnose(loss))
                break
            print(f"step {step}: {tracker.diagnose(loss)}")
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            tracker.reset()


if __name__ == "__main__":
    main()
