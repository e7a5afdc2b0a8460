"""A fault that does not come back in every replay is called so; one that does never is."""

import itertools
import random

import pytest
import torch
from torch import nn

import firstfault as ff
from firstfault import _core

REPLAYS = 4


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.norm, self.b = nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1)

    def forward(self, x):
        return self.b(torch.dropout(self.norm(self.a(x)).relu(), 0.3, self.training))


def step_of(model, optimizer, loss_of):
    def train_step(x):
        optimizer.zero_grad()
        loss = loss_of(model(x), x)
        loss.backward()
        return loss

    return train_step


def guarded(model, loss_of, batches, **options):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    train_step = step_of(model, optimizer, loss_of)
    with ff.guard(model, optimizer, on_fault="skip", replays=REPLAYS, **options) as guard:
        for x in batches:
            guard.step(train_step, x)
    return guard, {one.name: one for one in _core.experiments_of(guard.run())}


def batch(seed):
    return torch.randn(8, 4, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("level", ["ops", "gradients"])
@pytest.mark.parametrize("back", [1, REPLAYS - 1])
@pytest.mark.parametrize("seed", range(6))
def test_a_fault_that_comes_back_in_some_of_the_replays_is_called_so(seed, back, level):
    """In ``back`` of them, drawn by the seed. They are counted by an iterator, which no replay can put back."""
    torch.manual_seed(seed)
    calls = itertools.count()
    fails = {2} | {3 + i for i in random.Random(seed).sample(range(REPLAYS), back)}

    def loss_of(out, x):
        return out.square().mean() * (float("nan") if next(calls) in fails else 1.0)

    guard, made = guarded(Net(), loss_of, map(batch, range(3)), level=level)
    assert [one.step for one in guard.actions] == [2]
    assert list(made) == ["unchanged"]
    assert f"{back} of {REPLAYS} replays" in made["unchanged"].text
    hypotheses = guard.explain()
    assert "not_reproducible" in [one.cause for one in hypotheses]
    assert not any(one.standing == "confirmed" for one in hypotheses)
    assert next(calls) == 3 + REPLAYS


@pytest.mark.parametrize("seed", range(20))
def test_a_fault_that_depends_on_random_numbers_and_state_alone_never_is(seed):
    """Dropout, noise and a buffer; the fault is in the forward, the backward or the batch."""
    torch.manual_seed(seed)
    random.seed(seed)
    bad = batch(2)
    where = ("forward", "backward", "batch")[seed % 3]
    noise = torch.Generator().manual_seed(seed)

    def loss_of(out, x):
        loss = (out - torch.rand(8, 1, generator=noise) * random.random()).square().mean()
        if torch.equal(x, bad):
            loss = loss + ((out * 0).log().mean() if where == "forward" else (out * 0).sqrt().mean())
        return loss

    if where == "batch":
        bad[3, 1] = float("nan")
    guard, made = guarded(Net(), loss_of, [batch(0), batch(1), bad])
    assert [one.step for one in guard.actions] == [2]
    assert made["unchanged"].outcome == "failed"
    assert f"{REPLAYS} of {REPLAYS} replays, bit for bit" in made["unchanged"].text
    assert "not_reproducible" not in [one.cause for one in guard.explain()]
