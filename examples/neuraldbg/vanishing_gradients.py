"""A stack of sigmoids: next to nothing of the gradient arrives in the first layers.

usage: python vanishing_gradients.py
"""

import torch
from torch import nn

from firstfault.compat.neuraldbg import NeuralDbg


def sigmoid_stack(depth=10, width=16):
    parts = []
    for _ in range(depth):
        parts += [nn.Linear(width, width), nn.Sigmoid()]
    return nn.Sequential(*parts, nn.Linear(width, 1))


def main():
    torch.manual_seed(0)
    model = sigmoid_stack()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(256, 16)
    y = torch.tanh(x.sum(1, keepdim=True))

    with NeuralDbg(model, threshold_vanishing=1e-6) as dbg:
        for step in range(60):
            dbg.step = step
            rows = torch.randint(len(x), (32,))
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x[rows]), y[rows])
            loss.backward()
            dbg.record_loss(loss.item())
            optimizer.step()

    counts = {}
    for event in dbg.events:
        counts[event.event_type.value] = counts.get(event.event_type.value, 0) + 1
    print(counts)
    hypotheses = dbg.explain_failure("vanishing_gradients")
    print(f"{len(hypotheses)} hypotheses")
    for hypothesis in hypotheses:
        print(f"[{hypothesis.confidence:.2f}] {hypothesis.description}")
        print(f"{len(hypothesis.evidence)} events")
        for link in hypothesis.causal_chain:
            print(f"  {link}")


if __name__ == "__main__":
    main()
