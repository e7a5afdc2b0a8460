"""What stands around a guarded step: schedulers, scalers, several optimizers, accumulation, a second device."""

import pytest
import torch
from test_guard import batch, everything, make, step_of
from torch import nn

import firstfault as ff
from firstfault import _core


def scaled_step(model, optimizer, scaler):
    def train_step(x, y):
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        scaler.scale(loss).backward()
        return loss

    return train_step


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("before", [True, False])
def test_a_scaler_and_a_scheduler_made_before_or_after_the_guard(before, fused):
    def run(guarded):
        model = make()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=fused)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**120, growth_interval=3)
        make_scheduler = lambda: torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)  # noqa: E731
        scheduler = make_scheduler() if before else None
        guard = ff.guard(model, optimizer, on_fault="skip", scaler=scaler, max_norm=1e6) if guarded else None
        scheduler = scheduler or make_scheduler()
        train_step = scaled_step(model, optimizer, scaler)
        for seed in range(10):
            if guard:
                guard.step(train_step, *batch(seed))
            else:
                train_step(*batch(seed))
                scaler.step(optimizer)
                scaler.update()
            scheduler.step()
        if guard:
            guard.close()
            assert guard.actions == []
        return everything(model, optimizer), scaler.state_dict(), scheduler.state_dict()

    assert run(guarded=True) == run(guarded=False)


def test_a_bad_loss_under_a_scaler_is_its_own_skip_and_nothing_is_written():
    model = make()
    optimizer = torch.optim.Adam(model.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    train_step = scaled_step(model, optimizer, scaler)
    with ff.guard(model, optimizer, on_fault="skip", scaler=scaler) as guard:
        guard.step(train_step, *batch(0))
        parameters = [p.detach().clone() for p in model.parameters()]
        guard.step(train_step, *batch(1, bad=True))
        assert all(map(torch.equal, parameters, model.parameters()))
        assert scaler.get_scale() == 2.0
        guard.step(train_step, *batch(2))
    assert all(bool(torch.isfinite(p).all()) for p in model.parameters())


@pytest.mark.parametrize("replays", [True, False])
def test_two_optimizers_with_a_fault_in_the_gradients_of_one(replays):
    """The loss is finite; one net's backward is not. Neither is written, and the cause is proved."""
    options = {} if replays else {"replays": 0, "experiments": False}
    torch.manual_seed(0)
    model = nn.ModuleDict({"a": nn.Linear(5, 5), "b": nn.Linear(5, 4, bias=False)})
    optimizers = [torch.optim.SGD(model["a"].parameters(), lr=0.1), torch.optim.Adam(model["b"].parameters())]

    def train_step(x, y):
        for one in optimizers:
            one.zero_grad()
        loss = (model["a"](x)).square().mean() + model["b"](x).square().sum(1).sqrt().mean()
        loss.backward()
        return loss

    with ff.guard(model, optimizers, on_fault="skip", **options) as guard:
        for seed in range(3):
            guard.step(train_step, *batch(seed))
        before = [everything(model, one) for one in optimizers]
        x, y = batch(3)
        x[6] = 0  # the derivative of a square root at 0
        guard.step(train_step, x, y)
        assert [everything(model, one) for one in optimizers] == before
        guard.step(train_step, *batch(4))
        assert [everything(model, one) for one in optimizers] != before
    assert [(one.action, one.fault) for one in guard.actions] == [("skip", "gradient")]
    best = guard.explain()[0]
    standing = "confirmed" if replays else "observed"
    assert (best.cause, best.standing, best.op, best.sample) == ("op_domain", standing, "SqrtBackward0", 6)


def test_a_bad_micro_batch_leaves_out_the_whole_accumulated_step():
    model = make()
    optimizer = torch.optim.Adam(model.parameters())
    calls = []

    def train_step(x, y):
        if len(calls) % 4 == 0:
            optimizer.zero_grad()
        calls.append(1)
        loss = (model(x) - y).square().mean() / 4
        loss.backward()
        return loss

    with ff.guard(model, optimizer, on_fault="skip", accumulate=4) as guard:
        for i in range(4):
            guard.step(train_step, *batch(i))
        before = [p.detach().clone() for p in model.parameters()]
        for i in range(4, 8):
            guard.step(train_step, *batch(i, bad=i == 5))
        assert all(map(torch.equal, before, model.parameters()))
        for i in range(8, 12):
            guard.step(train_step, *batch(i))
        assert not all(map(torch.equal, before, model.parameters()))
    assert [one.action for one in guard.actions] == ["skip"]
    assert len(calls) == 12


class Two(nn.Module):
    """Its second half is on the meta device, and has gradients there."""

    def __init__(self):
        super().__init__()
        self.real, self.ghost = nn.Linear(5, 4), nn.Linear(5, 4, device="meta")
        self.register_buffer("seen", torch.zeros(3, device="meta"))

    def forward(self, x):
        self.ghost(x.to("meta")).sum().backward()
        return self.real(x)


@pytest.mark.parametrize("policy", ["skip", "rollback"])
@pytest.mark.parametrize("clip", [{}, {"max_norm": 1e-3}, {"clip_value": 1e-3}])
def test_gradients_on_a_second_device_are_no_hindrance_to_replays(policy, clip):
    torch.manual_seed(0)
    model = Two()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)

    def train_step(x, y):
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean() + x[:, 0].log().mean()
        loss.backward()
        return loss

    with ff.guard(model, optimizer, on_fault=policy, **clip) as guard:
        for seed in range(4):
            x, y = batch(seed)
            x = x.abs() + 0.1
            before = [p.detach().clone() for p in model.real.parameters()]
            if seed == 3:
                x[4, 0] = 0
            guard.step(train_step, x, y)
            assert all(bool(torch.isfinite(p).all()) for p in model.real.parameters())
    if policy == "skip":
        assert all(map(torch.equal, before, model.real.parameters()))
    assert [(one.step, one.action) for one in guard.actions if one.action != "clip"] == [(3, policy)]
    best = guard.explain()[0]
    assert (best.cause, best.standing, best.sample) == ("op_domain", "confirmed", 4)
    assert "unchanged" in {one.name for one in _core.experiments_of(guard.run())}


def test_a_fault_in_the_first_step_of_a_model_on_two_devices():
    """Where parameters are drawn anew."""
    torch.manual_seed(0)
    model = Two()
    with torch.no_grad():
        model.real.weight.fill_(float("nan"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    with ff.guard(model, optimizer, on_fault="skip") as guard:
        guard.step(step_of(model, optimizer), *batch(0))
    made = {one.name: one.outcome for one in _core.experiments_of(guard.run())}
    assert made["initialised"] == "cured"
    assert (guard.explain()[0].cause, guard.explain()[0].standing) == ("bad_init", "confirmed")
