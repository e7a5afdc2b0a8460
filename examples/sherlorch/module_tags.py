"""Each op is tagged with the submodule that ran it, by the names that the model gave.

usage: python module_tags.py
"""

import torch
from torch import nn

from firstfault.compat import sherlorch


class SoftSign(nn.Module):
    """Overflows: exp of anything above 88.7 is Inf in float32."""

    def forward(self, x):
        return torch.exp(100 * x.abs())


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.input = nn.Linear(6, 6)
        self.layer1 = nn.Sequential(nn.Tanh(), SoftSign())
        self.head = nn.Linear(6, 2)

    def forward(self, x):
        return self.head(self.layer1(self.input(x)))


def main():
    torch.manual_seed(0)
    model, x = Encoder(), 3 * torch.ones(5, 6)

    with sherlorch.trace() as tracker:
        tracker.watch(model, name="encoder")
        out = model(x)

    print(tracker.diagnose(out))


if __name__ == "__main__":
    main()
