"""A watch that was given no optimizer finds those that step its models."""

import torch
from torch import nn
from torch.optim import optimizer as torch_optimizer

import firstfault as ff


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))


def learn(model, optimizer, steps):
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        x = torch.randn(16, 4, generator=generator)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), x.sum(1, keepdim=True)).backward()
        optimizer.step()


def test_the_first_step_of_an_optimizer_that_was_not_given_is_measured_like_any_other():
    rows = []
    for given in (True, False):
        model = net()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        with ff.watch(model, optimizer if given else None) as run:
            learn(model, optimizer, 3)
        rows.append(run.run().rows)
    assert [row.step for row in rows[1]] == [0, 1, 2]
    for one, other in zip(*rows, strict=True):
        assert one.gradient_norm == other.gradient_norm and one.loss == other.loss
        assert one.update_ratio == other.update_ratio and one.lr == other.lr == 0.01


def test_one_that_is_made_later_and_a_second_one_are_followed():
    model = net()
    with ff.watch(model) as run:
        learn(model, torch.optim.SGD(model.parameters(), lr=0.1), 1)
        learn(model, torch.optim.SGD(model[2].parameters(), lr=0.2), 2)
        assert len(run.optimizers) == 2
    assert [row.optimizer for row in run.run().rows] == [0, 1, 1]


def test_one_of_another_model_is_left_alone():
    model, other = net(), net()
    with ff.watch(model) as run:
        learn(other, torch.optim.SGD(other.parameters(), lr=0.1), 2)
        assert run.optimizers == []
        assert not any(site.role in ("gradient", "parameter") for site in run.run().sites)


def test_its_hook_on_all_optimizers_goes_with_it():
    before = dict(torch_optimizer._global_optimizer_pre_hooks)
    with ff.watch(net()):
        assert len(torch_optimizer._global_optimizer_pre_hooks) == len(before) + 1
    assert dict(torch_optimizer._global_optimizer_pre_hooks) == before


def test_a_program_that_updates_by_itself_marks_its_steps():
    model = net()
    with ff.watch(model) as run:
        for _ in range(3):
            model.zero_grad()
            model(torch.randn(8, 4)).square().mean().backward()
            norm = torch.cat([p.grad.flatten() for p in model.parameters()]).norm().item()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter -= 0.01 * parameter.grad
            run.step()
    recorded = run.run()
    assert [row.step for row in recorded.rows] == [0, 1, 2]
    assert abs(recorded.rows[-1].gradient_norm / norm - 1) < 1e-5
    assert recorded.transitions == [] and ff.explain(recorded) == []
