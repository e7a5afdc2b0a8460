"""A learning rate far beyond reason: the gradients show it in batch 1, before any forward pass holds a NaN.

usage: python exploding_gradients.py [PLOT.png]
"""

import sys
from collections import OrderedDict

import torch
from torch import nn

from firstfault.compat.nan_detector import NaNDetector, plot_grad_norms

THRESHOLD = 10.0


def main():
    torch.manual_seed(0)
    model = nn.Sequential(
        OrderedDict([("fc1", nn.Linear(16, 32)), ("relu1", nn.ReLU()), ("fc2", nn.Linear(32, 1))]),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1e9)

    with NaNDetector(model, check_backward=True, grad_norm_warn=THRESHOLD) as detector:
        for batch in range(10):
            detector.set_batch(batch)
            x, y = torch.randn(8, 16), torch.randn(8, 1)
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            warned = detector.check_grad_norms()
            optimizer.step()
            if warned or detector.triggered:
                print(f"caught in batch {batch}")
                break

    print(f"gradient events: {len(detector.grad_events)}, NaN in the forward pass: {detector.triggered}")
    if len(sys.argv) > 1:
        plot_grad_norms(detector.grad_events, THRESHOLD, save_path=sys.argv[1])


if __name__ == "__main__":
    main()
