"""What an optimizer wrote is finite, by arithmetic or because it was read: nothing that is not stays."""

import math
import random

import pytest
import torch

import firstfault as ff

RULES = {
    "SGD": lambda p, lr: torch.optim.SGD(p, lr, momentum=0.9, nesterov=True, weight_decay=0.1),
    "SGD, foreach": lambda p, lr: torch.optim.SGD(p, lr, foreach=True),
    "Adam": lambda p, lr: torch.optim.Adam(p, lr, foreach=False, weight_decay=0.1),
    "Adam, fused": lambda p, lr: torch.optim.Adam(p, lr, fused=True),
    "AdamW, amsgrad": lambda p, lr: torch.optim.AdamW(p, lr, amsgrad=True, weight_decay=2.0),
    "RMSprop": lambda p, lr: torch.optim.RMSprop(p, lr, momentum=0.5),
    "RMSprop, centered": lambda p, lr: torch.optim.RMSprop(p, lr, centered=True),
    "Adagrad": torch.optim.Adagrad,
    "NAdam": torch.optim.NAdam,
}


def held(parameter, optimizer):
    state = [one for one in optimizer.state.get(parameter, {}).values() if isinstance(one, torch.Tensor)]
    return [parameter.detach(), *state]


def finite(parameter, optimizer):
    return all(bool(torch.isfinite(one).all()) for one in held(parameter, optimizer))


def guarded(parameter, optimizer, **options):
    model = torch.nn.Module()
    model.weight = parameter
    return ff.guard(model, optimizer, level="gradients", on_fault="skip", max_consecutive_skips=10**6, **options)


def given(parameter, gradient):
    """A step whose gradient is that one."""

    def train_step():
        parameter.grad = gradient.clone()
        return parameter.detach().new_zeros(())

    return train_step


@pytest.mark.parametrize("name", RULES)
def test_steps_of_any_size_leave_only_finite_numbers_behind(name):
    numbers = random.Random(name)
    generator = torch.Generator().manual_seed(3)
    undone = made = 0
    for _ in range(12):
        parameter = torch.nn.Parameter(torch.randn(40, generator=generator))
        optimizer = RULES[name]([parameter], 10.0 ** numbers.uniform(-4, 4))
        with guarded(parameter, optimizer, undo="step", experiments=False, replays=0) as guard:
            for step in range(24):
                size = 10.0 ** numbers.choice((0, 0, 1, 5, 9, 14, 17, 18, 19, 25, 38))
                before = [one.clone() for one in held(parameter, optimizer)]
                known = len(guard.actions)
                guard.step(given(parameter, torch.randn(40, generator=generator).clamp(-3, 3) * size))
                assert finite(parameter, optimizer), (step, size)
                if len(guard.actions) > known:
                    undone += 1
                    assert guard.actions[-1].action == "skip"
                    assert all(map(torch.equal, before, held(parameter, optimizer))), (step, size)
                else:
                    made += 1
    assert made > 100
    assert undone > 0 or name.startswith("SGD, ")  # which squares nothing


def steps_until_seen(guard, train_step):
    for step in range(1, 20):
        guard.step(train_step)
        if guard.actions:
            return step
    return math.inf


@pytest.mark.parametrize("undo", ["snapshot", "step"])
def test_a_step_that_was_replaced_is_not_believed(undo):
    parameter = torch.nn.Parameter(torch.ones(8))
    optimizer = torch.optim.SGD([parameter], 0.1)
    with guarded(parameter, optimizer, undo=undo) as guard:
        for _ in range(11):
            guard.step(given(parameter, torch.ones(8)))

        class Replaced(torch.optim.SGD):
            @torch.optim.Optimizer.profile_hook_step
            def step(self, closure=None):
                super().step(closure)
                parameter.data[3] = math.nan

        optimizer.__class__ = Replaced
        assert steps_until_seen(guard, given(parameter, torch.ones(8))) == 1
        assert finite(parameter, optimizer)


def test_a_step_that_an_instance_was_given_is_not_believed_but_a_schedulers_is():
    parameter = torch.nn.Parameter(torch.ones(8))
    optimizer = torch.optim.SGD([parameter], 0.1)
    torch.optim.lr_scheduler.StepLR(optimizer, 1)
    own = optimizer.step

    def step(closure=None):
        own(closure)
        parameter.data[3] = math.nan

    with guarded(parameter, optimizer) as guard:
        for _ in range(11):
            guard.step(given(parameter, torch.ones(8)))
        assert guard._hooks.first.bounded
        optimizer.step = step
        assert steps_until_seen(guard, given(parameter, torch.ones(8))) == 2  # after all hooks


def test_a_class_whose_step_was_patched_is_not_believed(monkeypatch):
    parameter = torch.nn.Parameter(torch.ones(8))

    def step(optimizer, closure=None):
        parameter.data[3] = math.nan

    monkeypatch.setattr(torch.optim.SGD, "step", torch.optim.Optimizer.profile_hook_step(step))
    optimizer = torch.optim.SGD([parameter], 0.1)
    with guarded(parameter, optimizer) as guard:
        parameter.data[3] = 1.0
        assert steps_until_seen(guard, given(parameter, torch.ones(8))) == 1
        parameter.data[3] = 1.0
        guard.step(given(parameter, torch.ones(8)))
        assert len(guard.actions) == 2


def test_a_state_that_was_loaded_is_read_at_once():
    parameter = torch.nn.Parameter(torch.ones(8))
    optimizer = torch.optim.Adam([parameter], 0.1)
    with guarded(parameter, optimizer) as guard:
        for _ in range(11):
            guard.step(given(parameter, torch.ones(8)))
        state = optimizer.state_dict()
        state["state"][0]["exp_avg_sq"] = -torch.ones(8)
        optimizer.load_state_dict(state)
        assert steps_until_seen(guard, given(parameter, torch.zeros(8))) == 1
        assert guard.actions[0].fault == "result"


def test_what_somebody_else_writes_is_read_soon():
    parameter = torch.nn.Parameter(torch.ones(8))
    optimizer = torch.optim.Adam([parameter], 0.1)
    with guarded(parameter, optimizer, snapshot_every=5) as guard:
        for _ in range(11):
            guard.step(given(parameter, torch.ones(8)))
        parameter.data[3] = math.nan
        assert 1 <= steps_until_seen(guard, given(parameter, torch.ones(8))) <= 8
        assert finite(parameter, optimizer)  # no snapshot holds it


def test_a_state_without_dimensions_is_read_as_well():
    scale = torch.nn.Parameter(torch.tensor(1.0))
    optimizer = torch.optim.NAdam([scale], 0.1)
    with guarded(scale, optimizer, undo="step") as guard:
        guard.step(given(scale, torch.tensor(1.0)))
        guard.step(given(scale, torch.tensor(1e25)))  # its square is Inf
    assert [one.fault for one in guard.actions] == ["result"]
    assert "exp_avg_sq" in guard.actions[0].reason and finite(scale, optimizer)
