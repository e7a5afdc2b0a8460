"""Chains of random ops on numbers of any size: whatever first is not finite has an origin."""

import random

import torch
import torch.nn.functional as F

import firstfault as ff

SIZE = 48  # more elements than are always looked at
PROGRAMS = 2500
NUMBERS = (0.0, 1.0, -1.0, 0.5, 2.0, -3.0, 0.7, 10.0, 1e-45, 1e-38, 1e-20, 1e-8, 1e8, 1e17, -1e17, 1e18, 1e30, 3e38)


class Chain:
    """Values that are finite, and an op on some of them."""

    def __init__(self, seed):
        self.draw = random.Random(seed)
        torch.manual_seed(seed)
        fresh = [self.fresh() for _ in range(3)]
        self.values = [x if bool(torch.isfinite(x).all()) else torch.randn(SIZE, SIZE) for x in fresh]

    def number(self):
        return self.draw.choice(NUMBERS)

    def fresh(self):
        x = torch.randn(SIZE, SIZE)
        kind = self.draw.randrange(6)
        if kind == 0:
            x[self.draw.randrange(SIZE)] = 0
        return (x * self.number(), x.abs(), x.sigmoid(), x.sign() * self.number(), x * 0 + self.number(), x)[kind]

    def step(self):
        """One op; some write in place."""
        a, b, c = (self.draw.choice(self.values) for _ in range(3))
        n = self.number()
        between = self.draw.choice((0.1, 0.9, 1.0, 1.5, -0.5))
        makes = (
            lambda: torch.add(a, b, alpha=n),
            lambda: torch.sub(a, b, alpha=n),
            lambda: a + n,
            lambda: a * b,
            lambda: a * n,
            lambda: a / b,
            lambda: a / (n or 1.0),
            lambda: a / a[0, 0],
            lambda: torch.div(a, b, rounding_mode="floor"),
            lambda: torch.addcmul(a, b, c, value=n),
            lambda: torch.addcdiv(a, b, c, value=n),
            lambda: a.lerp(b, between),
            lambda: a.sqrt(),
            lambda: a.square(),
            lambda: a.abs() + n,
            lambda: a @ b,
            lambda: torch.addmm(a, b, c, alpha=n, beta=between),
            lambda: a.expand(3, SIZE, SIZE).bmm(b.expand(3, SIZE, SIZE))[0],
            lambda: a.sum(0).expand(SIZE, SIZE) * between,
            lambda: a.mean(1, keepdim=True).expand(SIZE, SIZE).clone(),
            lambda: a.softmax(-1),
            lambda: a.log_softmax(0),
            lambda: a.tanh(),
            lambda: a.relu() - b,
            lambda: F.gelu(a),
            lambda: F.silu(a),
            lambda: F.layer_norm(a, (SIZE,), b[0], c[1], eps=self.draw.choice((1e-5, 1e-12))),
            lambda: F.embedding(torch.arange(SIZE), a) * between,
            lambda: torch.where(a > b, a, c),
            lambda: a.masked_fill(b > 0, n),
            lambda: torch.maximum(a, b).clamp(max=n),
            lambda: torch.cat([a[:7], b[7:]]),
            lambda: F.conv2d(a.view(1, 1, SIZE, SIZE), b[:3, :3].reshape(1, 1, 3, 3), padding=1).view(SIZE, SIZE),
            lambda: F.scaled_dot_product_attention(*(x.view(1, 1, SIZE, SIZE) for x in (a, b, c))).view(SIZE, SIZE),
            lambda: a.clone().mul_(between).add_(b, alpha=n),
            lambda: a.clone().addcmul_(b, b, value=between),
            lambda: a.clone().copy_(b).sqrt_(),
            lambda: self.gradient_of(a, b),
        )
        made = self.draw.choice(makes)()
        self.values.append(made)
        return made

    def gradient_of(self, a, b):
        leaf = a.clone().requires_grad_()
        layers = (F.gelu, F.silu, torch.tanh, torch.sigmoid, lambda x: x.softmax(-1), lambda x: x.log_softmax(-1))
        made = self.draw.choice(layers)(leaf) * b if self.draw.random() < 0.5 else leaf @ b
        made.backward(self.draw.choice(self.values).detach())
        return leaf.grad if not bool(made.isnan().any() or made.isinf().any()) else made.detach()


def test_what_is_not_finite_has_an_origin():
    missed, found = [], 0
    for seed in range(PROGRAMS):
        with ff.trace() as tracker:
            chain = Chain(seed)
            for _ in range(12):
                try:
                    made = chain.step()
                except RuntimeError as error:  # a number that float32 does not hold
                    assert "overflow" in str(error)
                    continue
                if not bool(torch.isfinite(made).all()):
                    found += 1
                    if not tracker.diagnose(made).culprits:
                        missed.append(seed)
                    break
    assert found > PROGRAMS / 4
    assert missed == []
