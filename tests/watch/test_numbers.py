"""What a watched run says about each step, against the same numbers taken from the tensors by hand."""

import math
import warnings

import pytest
import torch
from torch import nn

import firstfault as ff


def sites(row, run, role):
    return {
        run.sites[i].name: health
        for i, health in enumerate(row.sites)
        if run.sites[i].role == role and health.nonfinite is not None
    }


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))


def train(model, optimizer, steps, each=lambda step: None):
    generator = torch.Generator().manual_seed(1)
    for step in range(steps):
        x = torch.randn(16, 6, generator=generator)
        y = x.sum(1, keepdim=True)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        each(step)
    return x, y, loss


def test_a_row_holds_what_the_tensors_held():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    with ff.watch(model, optimizer) as run:
        x, y, loss = train(model, optimizer, 1)
    recorded = run.run()
    row = recorded.rows[0]
    gradients = [p.grad for p in model.parameters()]
    assert row.step == 0 and row.backwards == 1 and not row.gradients_left_over and not row.skipped
    assert row.loss == pytest.approx(loss.item(), rel=1e-6)
    assert row.lr == pytest.approx(0.1)
    assert row.gradient_norm == pytest.approx(torch.cat([g.flatten() for g in gradients]).norm().item(), rel=1e-5)
    by_name = sites(row, recorded, "gradient")
    for name, parameter in model.named_parameters():
        health = by_name[f"model.{name}"]
        assert health.rms == pytest.approx(parameter.grad.square().mean().sqrt().item(), rel=1e-5)
        assert health.absmax == pytest.approx(parameter.grad.abs().max().item(), rel=1e-6)
        assert health.zeros == pytest.approx((parameter.grad == 0).float().mean().item())
        assert health.nonfinite == 0
    for name, health in sites(row, recorded, "parameter").items():
        old = before[name.removeprefix("model.")]
        moved = model.get_parameter(name.removeprefix("model.")).detach() - old
        assert health.update == pytest.approx((moved.norm() / old.norm()).item(), rel=1e-4)
    (features,) = sites(row, recorded, "input").values()
    assert features.absmax == pytest.approx(x.abs().max().item())
    assert features.mean == pytest.approx(x.mean().item(), abs=1e-6)
    (target,) = sites(row, recorded, "target").values()
    assert target.rms == pytest.approx(y.square().mean().sqrt().item(), rel=1e-6)


def test_activations_are_measured_by_module_in_the_order_of_the_forward():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with ff.watch(model, optimizer) as run:
        train(model, optimizer, 2)
    recorded = run.run()
    activations = [site for site in recorded.sites if site.role == "activation" and site.op]
    assert [(site.module, site.op) for site in activations] == [("model.1", "aten::tanh"), ("model.3", "aten::relu")]
    assert activations[0].order < activations[1].order
    orders = {site.module: site.order for site in recorded.sites if site.role == "gradient"}
    assert orders["model.0"] < activations[0].order < orders["model.2"] < activations[1].order < orders["model.4"]


def test_saturation_is_judged_by_the_nonlinearity():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 32), nn.Sigmoid(), nn.Linear(32, 1))
    with torch.no_grad():
        model[0].weight.mul_(1000)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with ff.watch(model, optimizer) as run:
        x = torch.randn(64, 4)
        model(x).sum().backward()
        optimizer.step()
    recorded = run.run()
    health = sites(recorded.rows[0], recorded, "activation")
    hidden = torch.tanh(model[0](x))
    assert health["model.1"].saturated == pytest.approx((hidden.abs() > 0.97).float().mean().item(), abs=1e-6)
    assert health["model.1"].saturated > 0.95 and health["model.3"].saturated < 0.3


def test_a_channel_is_dead_only_after_a_window_of_silence():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    with torch.no_grad():
        model[0].bias[:3] = -1000
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    with ff.watch(model, optimizer) as run:
        for _ in range(20):
            optimizer.zero_grad()
            model(torch.randn(64, 4)).square().mean().backward()
            optimizer.step()
    recorded = run.run()
    dead = [sites(row, recorded, "activation")["model.1"].dead for row in recorded.rows]
    assert all(value is None for value in dead[:15])
    assert dead[15] == pytest.approx(3 / 8) and dead[19] == pytest.approx(3 / 8)


def test_micro_batches_are_counted_and_their_losses_averaged():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    with ff.watch(model, optimizer) as run:
        for _ in range(3):
            optimizer.zero_grad()
            for _ in range(4):
                loss = model(torch.randn(8, 6)).square().mean()
                loss.backward()
                losses.append(loss.item())
            optimizer.step()
    rows = run.run().rows
    assert [row.backwards for row in rows] == [4, 4, 4]
    assert not any(row.gradients_left_over for row in rows)
    assert rows[1].loss == pytest.approx(sum(losses[4:8]) / 4, rel=1e-6)


def test_gradients_that_were_not_cleared_are_seen():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with ff.watch(model, optimizer) as run:
        for _ in range(3):
            model(torch.randn(8, 6)).square().mean().backward()
            optimizer.step()
    assert [row.gradients_left_over for row in run.run().rows] == [False, True, True]


def test_a_gradient_penalty_is_no_second_backward():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with ff.watch(model, optimizer) as run:
        for _ in range(2):
            optimizer.zero_grad()
            x = torch.randn(8, 6, requires_grad=True)
            out = model(x).sum()
            (inner,) = torch.autograd.grad(out, x, create_graph=True)
            (out + inner.square().sum()).backward()
            optimizer.step()
    assert [row.backwards for row in run.run().rows] == [1, 1]


@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "LBFGS", "fused"])
def test_each_optimizer_is_one_row_a_step(kind):
    model = net()
    if kind == "fused":
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    else:
        optimizer = getattr(torch.optim, kind)(model.parameters(), lr=1e-3)
    x = torch.randn(16, 6)

    def closure():
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        return loss

    with ff.watch(model, optimizer) as run:
        for _ in range(3):
            if kind == "LBFGS":
                optimizer.step(closure)
            else:
                closure()
                optimizer.step()
    rows = run.run().rows
    assert [row.step for row in rows] == [0, 1, 2]
    assert all(row.gradient_norm > 0 and row.update_ratio > 0 for row in rows)


def test_a_skipped_step_of_a_grad_scaler_is_a_row_that_says_so():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24)
    taken = []
    with ff.watch(model, optimizer) as run:
        for _ in range(12):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.float16):
                loss = model(torch.randn(16, 8)).float().square().mean()
            before = scaler.get_scale()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            taken.append((loss.item(), before, scaler.get_scale() < before))
    rows = run.run().rows
    assert [row.skipped for row in rows] == [skipped for *_, skipped in taken]
    assert any(row.skipped for row in rows) and not all(row.skipped for row in rows)
    for row, (loss, scale, _) in zip(rows, taken, strict=False):
        assert row.loss_scale == pytest.approx(scale)
        assert row.loss == pytest.approx(loss, rel=1e-3)


def test_two_optimizers_take_turns():
    first, second = net(), net()
    one = torch.optim.SGD(first.parameters(), lr=0.1)
    two = torch.optim.Adam(second.parameters(), lr=0.2)
    with ff.watch({"generator": first, "critic": second}, [one, two]) as run:
        for _ in range(2):
            for model, optimizer in ((first, one), (second, two)):
                optimizer.zero_grad()
                model(torch.randn(8, 6)).square().mean().backward()
                optimizer.step()
    recorded = run.run()
    assert [row.optimizer for row in recorded.rows] == [0, 1, 0, 1]
    assert [row.lr for row in recorded.rows] == pytest.approx([0.1, 0.2, 0.1, 0.2])
    assert set(sites(recorded.rows[0], recorded, "gradient")) == {f"generator.{n}" for n, _ in first.named_parameters()}


def test_evaluation_is_kept_apart():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with ff.watch(model, optimizer) as run:
        train(model, optimizer, 1)
        with torch.no_grad():
            model(torch.full((16, 6), 1e6))
        train(model, optimizer, 1)
    recorded = run.run()
    assert len(recorded.rows) == 2
    (features,) = sites(recorded.rows[1], recorded, "input").values()
    assert features.absmax < 10


def test_late_frozen_shared_and_unused_parameters():
    torch.manual_seed(0)
    model = nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.Linear(4, 4), "c": nn.Linear(4, 4), "d": nn.Linear(4, 4)})
    model["b"].weight = model["a"].weight
    model["c"].requires_grad_(False)
    optimizer = torch.optim.SGD(model["a"].parameters(), lr=0.1)
    with ff.watch(model, optimizer) as run:
        for step in range(3):
            optimizer.zero_grad()
            model["c"](model["b"](model["a"](torch.randn(8, 4)))).square().mean().backward()
            optimizer.step()
            if step == 0:
                optimizer.add_param_group({"params": [model["b"].bias]})
    recorded = run.run()
    assert set(sites(recorded.rows[0], recorded, "gradient")) == {"model.a.weight", "model.a.bias"}
    assert set(sites(recorded.rows[2], recorded, "gradient")) == {"model.a.weight", "model.a.bias", "model.b.bias"}
    (unheld,) = [fact for fact in recorded.facts if fact.kind == "not_held"]
    assert unheld.detail == "model.b.bias" and unheld.first_step == 0 and unheld.last_step == 0


def test_the_loss_may_be_given_before_or_after_the_step_at_a_level_that_sees_none():
    for after in (False, True):
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        given = []
        with ff.watch(model, optimizer, level="gradients") as run:
            for _ in range(3):
                optimizer.zero_grad()
                loss = model(torch.randn(8, 6)).square().mean()
                loss.backward()
                given.append(loss.item())
                if not after:
                    run.loss(loss)
                optimizer.step()
                if after:
                    run.loss(loss)
        assert [row.loss for row in run.run().rows] == pytest.approx(given)


def test_the_level_modules_observes_one_step_of_eight_after_the_first():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with ff.watch(model, optimizer, level="modules") as run:
        train(model, optimizer, 25)
    recorded = run.run()
    observed = [row.step for row in recorded.rows if sites(row, recorded, "activation")]
    assert observed == [0, 1, 2, 3, 4, 5, 6, 7, 8, 16, 24]
    assert all(row.gradient_norm > 0 for row in recorded.rows) and len(recorded.rows) == 25


def test_facts_of_a_loss_that_broadcasts_and_of_raw_scores():
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with ff.watch(model, optimizer) as run, pytest.warns(UserWarning):
        nn.functional.mse_loss(model(torch.randn(8, 4)), torch.randn(8)).backward()
        optimizer.step()
    kinds = {fact.kind: fact for fact in run.run().facts}
    assert kinds["loss_broadcast"].detail == "[8, 1] and [1, 8]"
    scores = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(scores.parameters(), lr=0.01)
    for given, raw in ((lambda s: s, True), (lambda s: s.log_softmax(1), False)):
        with ff.watch(scores, optimizer) as run:
            nn.functional.nll_loss(given(scores(torch.randn(8, 4) * 3)), torch.randint(0, 3, (8,))).backward()
            optimizer.step()
        kinds = {fact.kind: fact for fact in run.run().facts}
        assert ("raw_scores" in kinds) == raw
        assert kinds["loss_op"].numbers["classes"] == 3


def test_clipping_is_seen_and_clipping_before_unscaling_too():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with ff.watch(model, optimizer) as run:
        (model(torch.randn(8, 6)) * 100).square().mean().backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    (clipped,) = [fact for fact in run.run().facts if fact.kind == "clipped"]
    assert clipped.numbers["coefficient"] == pytest.approx(1 / (norm.item() + 1e-6), rel=1e-4)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    with ff.watch(model, optimizer) as run:
        for _ in range(2):
            optimizer.zero_grad()
            scaler.scale(model(torch.randn(8, 6)).square().mean()).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
    assert any(fact.kind == "clipped_scaled" and fact.numbers["scale"] == 1024 for fact in run.run().facts)


def test_state_that_was_lost_is_seen():
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with ff.watch(model, optimizer) as run:
        train(model, optimizer, 3)
        optimizer.state.clear()
        train(model, optimizer, 2)
    recorded = run.run()
    assert [row.reset_state for row in recorded.rows] == [False, False, False, True, False]
    group = [sites(row, recorded, "optimizer")["group 0"] for row in recorded.rows]
    assert group[0].state_steps == 1 and group[2].state_steps == 3 and group[3].state_steps == 1
    assert group[0].eps == pytest.approx(1e-8) and group[0].second > 0


@pytest.mark.parametrize(("fused", "held"), [(False, 0.0), (True, 1e-8)])
def test_a_fused_kernel_holds_the_eps_in_float32_for_watch_and_guard_alike(fused, held):
    model = nn.Linear(4, 2).half()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=fused)

    def train_step(x):
        optimizer.zero_grad()
        loss = model(x).float().square().mean()
        loss.backward()
        return loss

    with ff.guard(model, optimizer, on_fault="warn", calls_step=False) as guard, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        guard.step(train_step, torch.ones(3, 4).half())
    recorded = guard.run()
    assert sites(recorded.rows[0], recorded, "optimizer")["group 0"].eps == pytest.approx(held)
    assert [one.fault for one in guard.actions] == ([] if fused else ["hyperparameter"])
    assert torch.isfinite(model.weight).all()


def test_a_nan_loss_is_a_row_too_even_when_the_step_is_never_made():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with pytest.raises(ZeroDivisionError), ff.watch(model, optimizer) as run:
        train(model, optimizer, 2)
        loss = torch.log(model(torch.randn(8, 6)).mean() * 0 - 1)
        loss.backward()
        raise ZeroDivisionError
    recorded = run.run()
    assert recorded.state == "died"
    assert math.isnan(recorded.rows[-1].loss) and recorded.rows[-1].step == 2
    origin = recorded.origins[0]
    assert (origin.op, origin.step) == ("aten::log", 2)


@pytest.mark.parametrize("made_in_step", [False, True])
def test_the_batch_of_every_micro_batch_is_measured(made_in_step):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    parts = [(torch.randn(8, 6), torch.randn(8, 1)) for _ in range(4 * 3)]
    parts[4 + 2][0][5, 1], parts[4 + 2][1][3] = 700.0, -900.0
    with ff.watch(model, optimizer) as run:
        for step in range(3):
            optimizer.zero_grad()
            for x, y in parts[4 * step : 4 * step + 4]:
                if made_in_step:
                    x, y = x * 1.0, y * 1.0
                nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
    recorded = run.run()
    for step, row in enumerate(recorded.rows):
        for role, part in (("input", 0), ("target", 1)):
            [health] = sites(row, recorded, role).values()
            largest = max(part_of_step[part].abs().max().item() for part_of_step in parts[4 * step : 4 * step + 4])
            assert health.absmax == pytest.approx(largest)
    assert [health.row for health in sites(recorded.rows[1], recorded, "input").values()] == [5]


def fused_under_a_scaler(bad_step):
    model = nn.Linear(4, 3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    losses = []
    with ff.watch(model, optimizer) as run:
        for step in range(6):
            optimizer.zero_grad()
            loss = model(torch.randn(8, 4)).square().mean()
            losses.append(loss.item())
            scaler.scale(loss).backward()
            if step == bad_step:
                model.weight.grad[0, 0] = float("inf")
            scaler.step(optimizer)
            scaler.update()
    return run, losses


def test_a_fused_optimizer_that_passes_over_a_step_marks_it_skipped():
    run, losses = fused_under_a_scaler(bad_step=3)
    rows = run.run().rows
    assert [row.skipped for row in rows] == [False, False, False, True, False, False]
    assert [row.loss_scale for row in rows] == [1024.0] * 4 + [512.0] * 2
    assert [row.loss for row in rows] == pytest.approx(losses, rel=1e-5)
    assert run.events() == [] and run.explain() == []


def test_gradients_left_over_are_seen_in_skipped_steps_too():
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    with ff.watch(model, optimizer) as run:
        for _step in range(3):
            scaler.scale(model(torch.randn(8, 4)).square().mean()).backward()
            model.weight.grad[0, 0] = float("inf")
            scaler.step(optimizer)
            scaler.update()
    rows = run.run().rows
    assert [row.skipped for row in rows] == [True] * 3
    assert [row.gradients_left_over for row in rows] == [False, True, True]


@pytest.mark.parametrize("fused", [False, True])
def test_second_moments_that_were_0_all_along_are_no_lost_state(fused):
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=fused)
    with ff.watch(model, optimizer) as run:
        for _step in range(6):
            optimizer.zero_grad()
            (model(torch.randn(8, 6)) * 0.0).sum().backward()
            optimizer.step()
    assert not any(row.reset_state for row in run.run().rows)


INFINITE = {
    "a part written": lambda x: x.index_put((torch.tensor([2]), torch.tensor([1])), torch.tensor(float("inf"))),
    "masked_fill": lambda x: x.masked_fill(torch.eye(8, 6) > 0, float("inf")),
    "masked_fill -Inf": lambda x: x.masked_fill(torch.eye(8, 6) > 0, float("-inf")),
    "where": lambda x: torch.where(torch.eye(8, 6) > 0, float("inf"), x),
    "full": lambda x: torch.full((8, 6), float("inf")),
    "numpy": lambda x: torch.from_numpy(x.numpy() + float("inf")),
}


@pytest.mark.parametrize("spoil", INFINITE.values(), ids=INFINITE)
@pytest.mark.parametrize("step", [0, 2])
def test_an_inf_of_the_batch_is_the_datas_whoever_wrote_it_and_no_mask(spoil, step):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with ff.watch(model, optimizer) as run:
        for now in range(3):
            optimizer.zero_grad()
            x = torch.randn(8, 6)
            x = spoil(x) if now == step else x
            model(x).square().mean().backward()
            optimizer.step()
    first = run.explain()[0]
    assert (first.cause, first.mechanism, first.phase, first.step) == ("data_nonfinite", "bad_input", "data", step)
    assert (first.op, first.module) == ("aten::addmm", "model.0")


def test_a_constant_beyond_float16_is_no_inf_that_is_meant():
    model = nn.Linear(4, 3).half()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with ff.watch(model, optimizer) as run:
        for step in range(3):
            optimizer.zero_grad()
            offset = torch.zeros(3, dtype=torch.float16)
            if step == 2:
                offset[1] = 5.3e5
            (model(torch.randn(8, 4).half()) + offset).log_softmax(-1)[:, 0].mean().backward()
            optimizer.step()
    first = run.explain()[0]
    assert (first.cause, first.mechanism, first.step) == ("mixed_precision", "bad_input", 2)
