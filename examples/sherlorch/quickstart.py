"""A loss that divides by a standard deviation of 0: the division is named, not the loss.

usage: python quickstart.py
"""

import torch
from torch import nn

from firstfault.compat import sherlorch


def standardised(x):
    centred = x - x.mean(dim=0)
    return centred.abs() / x.std(dim=0)


def main():
    torch.manual_seed(0)
    model = nn.Linear(8, 4)
    x, y = torch.randn(32, 8), torch.randn(32, 4)
    y[:, 2] = 5.0  # a constant target: nothing to learn, and a spread of 0

    with sherlorch.trace(capture_stack=True) as tracker:
        wanted = standardised(y)
        loss = (model(x) - wanted).square().sum()
        loss.backward()

    if tracker.has_issue(loss):
        print(tracker.diagnose(loss))


if __name__ == "__main__":
    main()
