"""A learning rate that a schedule raises by a hundred in step 40.

usage: python optimizer_instability.py
"""

import torch
from torch import nn

from firstfault.compat.neuraldbg import NeuralDbg


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    x = torch.randn(256, 16)
    y = torch.tanh(x[:, :4].sum(1, keepdim=True))

    with NeuralDbg(model) as dbg:
        for step in range(60):
            dbg.step = step
            if step == 40:
                optimizer.param_groups[0]["lr"] = 5.0
            rows = torch.randint(len(x), (32,))
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x[rows]), y[rows])
            loss.backward()
            dbg.record_loss(loss.item())
            optimizer.step()
            if not loss.isfinite():
                break

    for hypothesis in dbg.explain_failure("optimizer_instability"):
        print(f"[{hypothesis.confidence:.2f}] {hypothesis.description}")


if __name__ == "__main__":
    main()
