"""Two small transformers that train for a while and then reach NaN by themselves, and what firstfault says of each.

The first takes log(relu(x)) two modules deep, so the bad value is born in the forward. In the second every value of the
forward is finite: NaN is born in the backward, and the loss shows it one step later, when the weights have become NaN.

usage: python find_nan.py
"""

import torch
from torch import nn

import firstfault as ff

TOKENS, CLASSES, WIDTH, LENGTH, BATCH = 40, 4, 32, 12, 16
PADDING = 0


class Block(nn.Module):
    """A pre-norm transformer block."""

    def __init__(self, feed_forward):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, num_heads=4, batch_first=True)
        self.feed_forward = feed_forward

    def forward(self, x):
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.feed_forward(self.norm2(x))


class LogFeatures(nn.Module):
    """log(relu(x)): -Inf as soon as one unit is turned off. At the start all are well above 0."""

    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(WIDTH, WIDTH)
        nn.init.normal_(self.proj.weight, std=0.02)
        nn.init.constant_(self.proj.bias, 1.0)

    def forward(self, x):
        return torch.log(torch.relu(self.proj(x)))


class UnitLength(nn.Module):
    """Scales rows to length 1. The eps keeps a row of zeros finite in the forward, not in the backward."""

    def forward(self, x):
        return x / (x.square().sum(dim=-1, keepdim=True).sqrt() + 1e-8)


class Classifier(nn.Module):
    """Sum of what the block makes of each token, as a unit vector, then the scores of the classes."""

    def __init__(self, feed_forward, normalise):
        super().__init__()
        self.embed = nn.Embedding(TOKENS, WIDTH, padding_idx=PADDING)
        self.block = Block(feed_forward)
        self.normalise = normalise
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, tokens):
        present = (tokens != PADDING).unsqueeze(-1)
        x = self.block(self.embed(tokens)) * present
        return self.head(self.normalise(x.sum(dim=1)))


def next_batch():
    """Sentences whose class can be told from any of their tokens; now and then an empty one."""
    classes = torch.randint(CLASSES, (BATCH,))
    tokens = torch.randint(1, TOKENS // CLASSES, (BATCH, LENGTH)) * CLASSES + classes.unsqueeze(-1)
    lengths = torch.randint(0, 600, (BATCH, 1)).clamp(max=LENGTH)
    tokens[torch.arange(LENGTH) >= lengths] = PADDING
    return tokens, classes


def train_until_nan(model, steps=500):
    """Prints the loss by step, then where its NaN began."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    with ff.trace() as tracker:
        tracker.watch(model, name="model")
        for step in range(steps):
            tokens, classes = next_batch()
            loss = nn.functional.cross_entropy(model(tokens), classes)
            if step % 10 == 0 or tracker.has_issue(loss):
                print(f"step {step:3}   loss {loss.item():.4f}")
            if tracker.has_issue(loss):
                print(f"\n{tracker.diagnose(loss)}")
                return
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    raise SystemExit(f"the loss stayed finite for {steps} steps")


def main():
    torch.set_num_threads(1)  # the tensors are small

    print("== log(relu(x)) in the feed-forward part of a transformer block\n")
    torch.manual_seed(0)
    train_until_nan(Classifier(nn.Sequential(LogFeatures(), nn.Linear(WIDTH, WIDTH)), nn.Identity()))

    print("\n== a unit vector made by hand, with an eps that does not help the backward\n")
    torch.manual_seed(4)
    feed_forward = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))
    train_until_nan(Classifier(feed_forward, UnitLength()))


if __name__ == "__main__":
    main()
