"""A deep tanh network on features that nobody scaled, with a schedule whose gamma is 100 and should be 0.01.

The first tanh is saturated from the start; in step 10 the gradients explode, those of the first layer first.

usage: python tanh_mlp.py [--neuraldbg]      the second is the same through the interface of neuraldbg
"""

import sys
from collections import OrderedDict

import torch
from torch import nn

import firstfault as ff
from firstfault.compat.neuraldbg import NeuralDbg

LAYERS, WIDTH, FEATURES = 8, 64, 16
STEPS = 14
LEARNING_RATE, MILESTONE, GAMMA = 0.01, 8, 100.0
SCALE = 50.0  # of the features: a tanh wants about 1


def tanh_mlp():
    parts = OrderedDict()
    for number in range(1, LAYERS):
        inputs = FEATURES if number == 1 else WIDTH
        parts[f"layer{number}"] = layer = nn.Linear(inputs, WIDTH)
        parts[f"tanh{number}"] = nn.Tanh()
        nn.init.normal_(layer.weight, std=inputs**-0.5)
        nn.init.zeros_(layer.bias)
    parts[f"layer{LAYERS}"] = nn.Linear(WIDTH, 1)
    return nn.Sequential(parts)


def batches(steps):
    x = torch.randn(512, FEATURES) * SCALE
    y = 3 * torch.sin(x[:, :4].sum(1, keepdim=True) / SCALE)
    for _ in range(steps):
        rows = torch.randint(len(x), (64,))
        yield x[rows], y[rows]


def train(model):
    """Gives the number and the loss of each step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=0.9)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[MILESTONE], gamma=GAMMA)
    for step, (x, y) in enumerate(batches(STEPS)):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        schedule.step()
        yield step, loss.item()


def through_watch(model):
    with ff.watch(model) as run:
        for step, loss in train(model):
            print(f"step {step:2d}  loss {loss:.3g}")

    print("\nWhat changed, in order:")
    for event in run.events():
        if event.role in ("activation", "gradient") and event.to_state != "healthy":
            print(f"  {event}")
    print(f"\nWhy:\n{run.explain()[0]}")


def through_neuraldbg(model):
    with NeuralDbg(model) as dbg:
        for step, loss in train(model):
            print(f"step {step:2d}  loss {loss:.3g}")

    best = dbg.explain_failure("exploding_gradients")[0]
    print(f"\n[{best.confidence:.2f}] {best.description}")
    for link in best.causal_chain:
        print(f"  {link}")
    print("\nWhat came together:")
    for pair in dbg.detect_coupled_failures()[:8]:
        print(f"  {pair['trigger']} -> {pair['consequence']} ({pair['step_difference']} steps later)")


def main():
    torch.manual_seed(0)
    model = tanh_mlp()
    if "--neuraldbg" in sys.argv[1:]:
        through_neuraldbg(model)
    else:
        through_watch(model)


if __name__ == "__main__":
    main()
