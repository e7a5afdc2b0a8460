"""A training that fails, and every question that can be asked afterwards.

usage: python quickstart.py
"""

import torch
from torch import nn

from firstfault.compat.neuraldbg import NeuralDbg


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.9)
    x = torch.randn(256, 10) * 4
    y = x.sum(1, keepdim=True)

    with NeuralDbg(model) as dbg:
        for step in range(40):
            dbg.step = step
            rows = torch.randint(len(x), (32,))
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x[rows]), y[rows])
            loss.backward()
            dbg.record_loss(loss.item())
            optimizer.step()
            if not loss.isfinite():
                break

    print(f"{len(dbg.loss_history)} steps, the last loss was {dbg.loss_history[-1]}")
    for hypothesis in dbg.explain_failure("exploding_gradients"):
        print(f"[{hypothesis.confidence:.2f}] {hypothesis.description}")
    print(f"{len(dbg.get_causal_hypotheses())} hypotheses in all")
    for link in dbg.trace_causal_chain("exploding_gradients"):
        print(f"  {link}")
    for pair in dbg.detect_coupled_failures():
        print(f"  {pair['trigger']} -> {pair['consequence']} ({pair['confidence']:.2f})")
    for event in dbg.get_events()[:3]:
        print(f"  step {event.step}: {event.layer_name} {event.from_state} -> {event.to_state}")
    print(dbg.export_mermaid_causal_graph())


if __name__ == "__main__":
    main()
