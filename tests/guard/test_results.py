"""What an optimizer wrote is finite, by arithmetic or because it was read: nothing that is not stays."""

import math
import random
import warnings

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


@pytest.mark.parametrize("name", RULES)
def test_ordinary_steps_of_known_optimizers_need_not_be_read(name):
    parameter = torch.nn.Parameter(torch.randn(40))
    optimizer = RULES[name]([parameter], 1e-2)
    bounded = []
    with guarded(parameter, optimizer, undo="step") as guard:
        for _ in range(12):
            guard.step(given(parameter, torch.randn(40)))
            bounded.append(guard._hooks.first.bounded)
    assert guard.actions == []
    assert not bounded[0]  # nothing has been read before it
    if name == "Adam":  # its weight decay makes the bound of the gradient grow with that of the parameter
        assert sum(bounded) >= 8
    else:
        assert bounded[1:] == 11 * [name not in ("RMSprop, centered", "NAdam")]


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


@pytest.mark.parametrize("way", ["loaded", "late gradient", "joined"])
def test_state_that_is_new_is_read(way):
    """Inf in the second moment leaves the parameter finite, and frozen."""
    model = torch.nn.Linear(2, 2)
    late = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.Adam([model.weight] if way != "loaded" else model.parameters(), lr=1e-3)
    if way == "late gradient":
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with ff.guard(model, optimizer, on_fault="warn", level="gradients", undo="step") as guard:
        for step in range(104):
            model.weight.grad = torch.full_like(model.weight, 0.1)
            target = model.bias
            if way == "loaded":
                model.bias.grad = torch.full((2,), 0.1)
                if step == 100:
                    optimizer.load_state_dict(optimizer.state_dict())
            if way == "joined":
                target = late
                if step == 100:
                    optimizer.add_param_group({"params": [late]})
            if step == 102:
                target.grad = torch.full((2,), 1e22)  # its square is Inf
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                optimizer.step()
    assert [(one.step, one.fault) for one in guard.actions][:1] == [(102, "result")]


def test_a_bound_is_of_float32_alone():
    model = torch.nn.Linear(2, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    with ff.guard(model, optimizer, on_fault="skip", undo="step", level="gradients") as guard:
        for step in range(5):
            if step == 2:
                model.half()
            model.weight.grad = torch.full_like(model.weight, -3.0e4 if step < 3 else -1.0)
            optimizer.step()
    assert [(one.step, one.fault, one.undone) for one in guard.actions][:1] == [(2, "result", "copy")]


def test_what_a_hook_does_to_gradients_after_the_guard_has_looked_is_read():
    model = torch.nn.Linear(2, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    with ff.guard(model, optimizer, on_fault="skip", level="gradients", undo="step") as guard:

        def spoil(*_):
            if now == 3:
                model.weight.grad.mul_(math.inf)

        optimizer.register_step_pre_hook(spoil)
        for step in range(6):
            now = step
            model.weight.grad = torch.ones_like(model.weight)
            optimizer.step()
    assert [(one.step, one.fault) for one in guard.actions] == [(3, "result")]
    assert bool(torch.isfinite(model.weight).all())


def test_parameters_that_take_the_place_of_others_are_guarded():
    model = torch.nn.Linear(2, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    with ff.guard(model, optimizer, on_fault="skip", level="gradients") as guard:
        for step in range(6):
            if step == 2:
                model.weight = torch.nn.Parameter(torch.ones(1, 2))
                optimizer.param_groups[0]["params"] = [model.weight]
            model.weight.grad = torch.full_like(model.weight, math.nan if step == 3 else 1.0)
            optimizer.step()
    assert [(one.step, one.fault) for one in guard.actions] == [(3, "gradient")]
    assert bool(torch.isfinite(model.weight).all())


def test_each_of_two_optimizers_that_take_turns_is_read_in_one_step_of_eight():
    first, second = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.01) for model in (first, second)]
    found = {}
    options = {"on_fault": "rollback", "level": "gradients", "snapshot_every": 10}
    for bad in (first, second):
        with ff.guard([first, second], optimizers, **options) as guard:
            for step in range(40):
                for model, optimizer in zip((first, second), optimizers, strict=True):
                    for parameter in model.parameters():
                        parameter.grad = torch.ones_like(parameter)
                    if model is bad and step == 14:
                        bad.weight.data[0, 0] = math.nan
                    optimizer.step()
                if guard.actions:
                    break
        found[bad] = step, guard.actions[0].fault
        assert bool(torch.isfinite(bad.weight).all())  # no snapshot held it
    assert all(14 <= step <= 22 and fault == "result" for step, fault in found.values()), found


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
