"""One missing value, written as NaN, in the batch of step 30.

usage: python data_anomaly.py
"""

import torch
from torch import nn

from firstfault.compat.neuraldbg import NeuralDbg


def batches(steps):
    """As a loader would give them: the NaN is in the data, no operation of the training makes it."""
    features = torch.randn(steps, 32, 16)
    targets = torch.tanh(features.sum(2, keepdim=True))
    features[30, 5, 3] = float("nan")
    return zip(features.unbind(), targets.unbind(), strict=True)


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    data = batches(60)

    with NeuralDbg(model) as dbg:
        for step, (x, y) in enumerate(data):
            dbg.step = step
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            dbg.record_loss(loss.item())
            optimizer.step()
            if not loss.isfinite():
                break

    for hypothesis in dbg.explain_failure("data_anomaly"):
        print(f"[{hypothesis.confidence:.2f}] {hypothesis.description}")


if __name__ == "__main__":
    main()
