"""Windows of steps with one thing changed: each change by itself, and what ``prove()`` leaves behind."""

import io
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import firstfault as ff
from firstfault import _core
from firstfault._changes import Changes


def dead_model():
    """A regression whose last ReLU never fires."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1), nn.ReLU())
    with torch.no_grad():
        model[2].weight.abs_().mul_(-0.1)
        model[2].bias.fill_(-0.1)
    return model


def batch_of(step):
    x = torch.rand(16, 4, generator=torch.Generator().manual_seed(step))
    return x, 2 + x.mean(1, keepdim=True)


def trained(steps=40, **options):
    model = dead_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    def train_step(x, y):
        optimizer.zero_grad()
        loss = F.l1_loss(model(x), y)
        loss.backward()
        return loss

    guard = ff.guard(model, optimizer, on_fault="raise", **options)
    for step in range(steps):
        guard.step(train_step, *batch_of(step))
    return guard, model, optimizer, train_step


def bits(model, optimizer):
    state = [value for entry in optimizer.state.values() for value in entry.values() if isinstance(value, torch.Tensor)]
    return [one.detach().clone() for one in (*model.parameters(), *state, torch.get_rng_state())]


@pytest.mark.parametrize("level", ["ops", "modules"])
def test_what_has_no_faulty_step_is_proved_and_the_run_goes_on_as_it_was(level):
    guard, model, optimizer, train_step = trained(level=level)
    with guard:
        (before,) = guard.explain()
        assert (before.cause, before.standing) == ("dead_units", "inferred")
        was, steps, actions = bits(model, optimizer), guard.steps, list(guard.actions)
        (proved,) = guard.prove(train_step, batch_of)
        assert (proved.cause, proved.standing, proved.confidence) == ("dead_units", "confirmed", 0.97)
        made = {one.name: one.outcome for one in _core.experiments_of(guard.run())}
        assert made == {"window": "failed", "leaky_activation": "cured", "lower_rate": "failed"}
        assert all(map(torch.equal, was, bits(model, optimizer)))
        assert (guard.steps, guard.actions) == (steps, actions)
        assert [row.step for row in guard.run().rows] == list(range(steps))
        for step in range(steps, steps + 5):
            guard.step(train_step, *batch_of(step))
        assert [row.step for row in guard.run().rows] == list(range(steps + 5))
        x, y = batch_of(0)
        with pytest.raises(ff.TrainingFault) as caught:  # the watch sees ops again, with their modules
            guard.step(lambda x, y: train_step(x * 3e38 * 10, y), x, y)
        assert level != "ops" or (caught.value.origin.op, caught.value.origin.step) == ("aten::mul", 45)


def test_a_run_that_goes_on_after_it_is_the_same_as_one_without():
    guard, model, optimizer, train_step = trained()
    with guard:
        guard.prove(train_step, batch_of)
        for step in range(40, 50):
            guard.step(train_step, *batch_of(step))
    other_guard, other, other_optimizer, other_step = trained()
    with other_guard:
        for step in range(40, 50):
            other_guard.step(other_step, *batch_of(step))
    assert all(map(torch.equal, bits(model, optimizer), bits(other, other_optimizer)))


def test_data_that_end_leave_a_lower_rate_untested():
    guard, _, _, train_step = trained()

    def batches(step):
        if step >= 60:
            raise IndexError
        return batch_of(step)

    with guard:
        guard.prove(train_step, batches)
        made = {one.name: one for one in _core.experiments_of(guard.run())}
    assert made["window"].size == 40 and made["leaky_activation"].outcome == "cured"
    assert made["lower_rate"].size == 60 and made["lower_rate"].outcome == "not_applicable"


def test_a_program_that_cannot_be_run_again_is_left_as_it_was():
    guard, model, optimizer, _ = trained()
    with guard:
        was = bits(model, optimizer)

        def broken(x, y):
            raise RuntimeError("no more")

        guard.prove(broken, batch_of)
        assert all(map(torch.equal, was, bits(model, optimizer)))
        assert guard.explain()[0].standing != "confirmed"

        def interrupted(x, y):
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            guard.prove(interrupted, batch_of)
        assert all(map(torch.equal, was, bits(model, optimizer)))
        assert guard.running and guard.watch.running


def test_windows_are_clipped_as_the_run_was():
    """Unclipped, the window would diverge at once, and show another fault than the run."""
    torch.manual_seed(0)
    model = dead_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    norms = io.StringIO()  # a list would be put back

    def train_step(x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y) * 1e6
        loss.backward()
        return loss

    with ff.guard(model, optimizer, on_fault="raise", max_norm=0.01) as guard:
        for step in range(40):
            guard.step(train_step, *batch_of(step))
        optimizer.register_step_post_hook(
            lambda *_: print(float(torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])), file=norms)
        )
        guard.prove(train_step, batch_of)
        made = {one.name: one.outcome for one in _core.experiments_of(guard.run())}
    assert made["window"] == "failed" and "leaky_activation" in made  # dead units, no divergence
    assert max(map(float, norms.getvalue().split())) == pytest.approx(0.01, rel=1e-4)


def lines(steps, seed=0):
    """Regression: (inputs, targets), a batch a step."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(steps, 16, 8, generator=generator)
    return x, x.sum(2, keepdim=True)


def test_a_loop_that_hooks_alone_guard_goes_on_as_it_was_after_it():
    torch.manual_seed(0)
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=30.0)
    x, y = lines(4000)

    def train_step(x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    with ff.guard(model, optimizer, on_fault="skip", max_consecutive_skips=1000) as guard:
        for step in range(110):
            if step == 100:
                guard.prove(train_step, lambda step: (x[step], y[step]))
                known = len(guard.actions)
                optimizer.param_groups[0]["lr"] = 1e-2
                with torch.no_grad():
                    for parameter in model.parameters():
                        parameter.zero_()
            train_step(x[step], y[step])
    assert guard.actions[known:] == []


def two_optimizers():
    torch.manual_seed(0)
    a, b = nn.Linear(8, 16), nn.Linear(16, 1)
    model = nn.Sequential(a, nn.Tanh(), b)
    optimizers = [torch.optim.SGD(half.parameters(), lr=0.02) for half in (a, b)]

    def train_step(x, y):
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        return loss

    return model, optimizers, train_step


def test_steps_of_several_optimizers_are_counted_as_the_program_does():
    model, optimizers, train_step = two_optimizers()
    x, y = lines(200)
    y[150] *= 60
    with ff.guard(model, optimizers, on_fault="skip") as guard:
        for step in range(200):
            guard.step(train_step, x[step], y[step])
        guard.prove(train_step, lambda step: (x[step], y[step]))
        made = {one.name: one for one in _core.experiments_of(guard.run())}
    assert made["window"].outcome == "failed" and made["other_batch"].outcome == "cured"
    assert made["other_batch"].size <= 200


def test_an_outlier_in_an_accumulated_step_is_found_by_the_batches_of_all_its_calls():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    x, y = lines(600)
    y[401] *= 60
    calls = [0]

    def train_step(x, y):
        if calls[0] % 4 == 0:
            optimizer.zero_grad()
        calls[0] += 1
        loss = F.mse_loss(model(x), y)
        (loss / 4).backward()
        return loss

    with ff.guard(model, optimizer, on_fault="skip", accumulate=4) as guard:
        for step in range(600):
            guard.step(train_step, x[step], y[step])
        before = guard._function.state(), calls[0]
        guard.prove(train_step, lambda step: (x[step], y[step]))
        assert (guard._function.state(), calls[0]) == before
        made = {one.name: one.outcome for one in _core.experiments_of(guard.run())}
    assert made["window"] == "failed" and made["other_batch"] == "cured"


@pytest.mark.parametrize("at", [202, 203])
def test_accumulation_goes_on_where_it_was(at):
    def run(proves):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
        with torch.no_grad():
            model[0].bias.fill_(-9.0)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        calls = [0]

        def train_step(x, y):
            if calls[0] % 5 == 0:
                optimizer.zero_grad()
            calls[0] += 1
            loss = F.mse_loss(model(x), y)
            (loss / 5).backward()
            return loss

        with ff.guard(model, optimizer, on_fault="skip", accumulate=5, level="modules") as guard:
            for step in range(230):
                if step == at and proves:
                    assert guard.explain()
                    guard.prove(train_step, batch_of)
                guard.step(train_step, *batch_of(step))
        return bits(model, optimizer)

    assert all(map(torch.equal, run(False), run(True)))


def test_a_longer_window_that_shows_something_else_refutes_nothing():
    """Three times a good rate: at a tenth the run learns, and its watch may still find something late."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=3.0)
    x, y = lines(9000)

    def train_step(x, y):
        optimizer.zero_grad()
        loss = F.smooth_l1_loss(model(x), y + 10)
        loss.backward()
        return loss

    with ff.guard(model, optimizer, on_fault="skip") as guard:
        for step in range(80):
            guard.step(train_step, x[step], y[step])
        for one in guard.prove(train_step, lambda step: (x[step], y[step])):
            assert (one.cause, one.standing) != ("lr_too_high", "refuted"), one


def test_a_step_function_without_a_loss_is_told_so():
    guard, _, _, train_step = trained()

    def silent(x, y):
        train_step(x, y)

    with guard, pytest.raises(ValueError, match="train_step must return it"):
        guard.prove(silent, batch_of)


# -- each change


def change(name, optimizers=None, **numbers):
    return Changes(optimizers).of(name, numbers.get("divisor", 1), numbers.get("warm_up", 0))


def test_relu_is_leaky_however_it_is_called():
    x = torch.tensor([-1.0, 2.0])
    kept = F.relu  # as a module keeps it from before
    calls = [F.relu, torch.relu, torch.Tensor.relu, kept, nn.ReLU(), lambda t: nn.ReLU(inplace=True)(t.clone())]
    calls += [lambda t: t.clone().relu_(), lambda t: F.relu(t.clone(), inplace=True), lambda t: torch.relu_(t.clone())]
    with change("leaky_activation") as applied:
        assert not applied.used
        for call in calls:
            assert torch.equal(call(x), torch.tensor([-0.01, 2.0]))
        assert applied.used
    for call in calls:
        assert torch.equal(call(x), torch.tensor([0.0, 2.0]))


def test_the_last_sigmoid_stays_where_no_layer_follows():
    parameter = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter], 0.0)
    layer = nn.Linear(1, 1)
    nn.init.ones_(layer.weight), nn.init.zeros_(layer.bias)
    with change("other_activation", [optimizer]) as applied:
        seen = []
        for _ in range(3):
            hidden = torch.sigmoid(torch.tensor([[2.0]]))
            out = torch.tanh(layer(hidden))
            seen.append((float(hidden), float(out)))
            optimizer.step()
    usual = float(torch.sigmoid(torch.tensor(2.0)))
    assert seen[0] == (usual, pytest.approx(math.tanh(usual)))  # from it is learnt which is the last
    assert seen[1:] == [(2.0, pytest.approx(math.tanh(2.0)))] * 2
    assert applied.used


def test_targets_take_the_shape_of_predictions_only_where_they_differ():
    with change("target_shape") as applied:
        assert float(nn.MSELoss()(torch.tensor([[1.0], [2.0]]), torch.tensor([[1.0], [2.0]]))) == 0
        assert float(F.mse_loss(torch.ones(3, 2), torch.ones(2))) == 0  # meant to broadcast
        assert not applied.used
        assert float(F.mse_loss(torch.tensor([[1.0], [2.0]]), torch.tensor([1.0, 2.0]))) == 0
        assert applied.used


def test_scores_become_log_probabilities():
    scores, labels = torch.tensor([[3.0, 1.0]]), torch.tensor([0])
    with change("log_probabilities"):
        inside = nn.NLLLoss()(scores, labels)
    assert float(inside) == pytest.approx(float(F.cross_entropy(scores, labels)))


def stepped(optimizers, make, steps, gradient=1.0):
    """The parameter after so many steps with that gradient, from 0."""
    parameter = nn.Parameter(torch.zeros(1))
    optimizer = make([parameter])
    with change(*optimizers[:1], [optimizer] if optimizers[1] else None, **optimizers[2]) as applied:
        for _ in range(steps):
            parameter.grad = torch.full((1,), gradient)
            optimizer.step()
    return float(parameter), optimizer, applied


@pytest.mark.parametrize("own", [True, False])
def test_numbers_of_the_optimizer_are_changed_for_its_step_alone(own):
    def sgd(parameters):
        return torch.optim.SGD(parameters, lr=1.0)

    moved, optimizer, _ = stepped(("lower_rate", own, {"divisor": 10}), sgd, 3)
    assert moved == pytest.approx(-0.3) and optimizer.param_groups[0]["lr"] == 1.0
    moved, _, _ = stepped(("warm_up", own, {"warm_up": 4}), sgd, 6)
    assert moved == pytest.approx(-(0.25 + 0.5 + 0.75 + 3))

    def decays(parameters):
        nn.init.constant_(parameters[0], 8.0)
        return torch.optim.SGD(parameters, lr=1.0, weight_decay=0.5)

    moved, optimizer, _ = stepped(("without_weight_decay", own, {}), decays, 1)
    assert moved == pytest.approx(7.0) and optimizer.param_groups[0]["weight_decay"] == 0.5


def test_state_that_was_lost_is_put_back_and_counted_only_then():
    parameter = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.Adam([parameter])
    with change("kept_state", [optimizer]) as applied:
        for step in range(6):
            parameter.grad = torch.ones(1)
            if step == 4:
                assert not applied.used
                optimizer.state.clear()
            optimizer.step()
    assert float(optimizer.state[parameter]["step"]) == 6
    assert applied.used


def test_gradients_are_averaged_over_backwards():
    parameter = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], 1.0)
    with change("averaged", [optimizer]) as applied:
        (parameter * 3).backward()
        optimizer.step()
        assert not applied.used and float(parameter) == -3
        optimizer.zero_grad()
        for _ in range(4):
            (parameter * 2).backward()
        optimizer.step()
    assert applied.used and float(parameter) == pytest.approx(-5)


def test_a_change_that_nobody_knows_is_none():
    assert change("another") is None
