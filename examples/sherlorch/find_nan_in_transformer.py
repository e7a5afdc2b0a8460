"""A transformer block with log(relu(x)) two modules deep: which op, in which module, made the first Inf.

usage: python find_nan_in_transformer.py
"""

import torch
from torch import nn

from firstfault.compat import sherlorch

BATCH, HEADS, TOKENS, WIDTH = 4, 4, 16, 32


class Scores(nn.Module):
    """Attention scores as logarithms: log(relu(q @ k)) is -Inf wherever a product is negative."""

    def forward(self, query, key):
        return torch.log(torch.relu(query @ key.transpose(-2, -1)))


class Block(nn.Module):
    """Adds the mean score of each token to its values, then normalises."""

    def __init__(self):
        super().__init__()
        self.query, self.key = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.layer1 = Scores()
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x):
        scores = self.layer1(self.query(x), self.key(x))
        return self.norm(x + scores.mean(dim=-1).unsqueeze(-1))


def main():
    torch.manual_seed(0)
    model, x = Block(), torch.randn(BATCH, HEADS, TOKENS, WIDTH)
    with sherlorch.trace(capture_stack=True) as tracker:
        tracker.watch(model, name="model")
        out = model(x)
    if tracker.has_issue(out):
        print(tracker.diagnose(out))


if __name__ == "__main__":
    main()
