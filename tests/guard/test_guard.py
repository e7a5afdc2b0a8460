"""Guard: which steps it refuses, that nothing of them is written, limits, snapshots, and everything around the loop."""

import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import firstfault as ff
from firstfault import _live


def everything(model, optimizer):
    tensors = [*model.parameters(), *model.buffers()]
    for entry in optimizer.state.values():
        for value in entry.values():
            if isinstance(value, torch.Tensor):
                tensors.append(value)
            elif isinstance(value, list):
                tensors.extend(v for v in value if isinstance(v, torch.Tensor))
    return _live.bits_of(tensors)  # which no observer sees


def numbers(optimizer):
    return [{k: v for k, v in entry.items() if not isinstance(v, torch.Tensor)} for entry in optimizer.state.values()]


def make(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 4, bias=False))


def batch(seed=0, bad=False):
    x = torch.randn(8, 5, generator=torch.Generator().manual_seed(seed))
    if bad:
        x[2, 1] = float("nan")
    return x, torch.zeros(8, 4)


def step_of(model, optimizer):
    def train_step(x, y):
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        return loss

    return train_step


class SignWithoutGradients(torch.optim.Optimizer):
    """Decays its parameters whether there are gradients or not."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.1})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["calls"] = self.state[p].get("calls", 0) + 1
                if p.grad is not None:
                    p.sub_(group["lr"] * p.grad.sign())
                p.mul_(0.9)


def matrices(model):
    return [p for p in model.parameters() if p.dim() == 2]


OPTIMIZERS = {
    "SGD": lambda m: torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1),
    "Adam": lambda m: torch.optim.Adam(m.parameters(), amsgrad=True),
    "AdamW": lambda m: torch.optim.AdamW(m.parameters(), foreach=False),
    "AdamW_foreach": lambda m: torch.optim.AdamW(m.parameters(), foreach=True),
    "AdamW_fused": lambda m: torch.optim.AdamW(m.parameters(), fused=True),
    "SGD_fused": lambda m: torch.optim.SGD(m.parameters(), lr=0.1, fused=True),
    "RMSprop": lambda m: torch.optim.RMSprop(m.parameters()),
    "Adagrad": lambda m: torch.optim.Adagrad(m.parameters()),
    "Adafactor": lambda m: torch.optim.Adafactor(m.parameters()),
    "Muon": lambda m: torch.optim.Muon(matrices(m), lr=0.01),
    "NAdam": lambda m: torch.optim.NAdam(m.parameters()),
    "ASGD": lambda m: torch.optim.ASGD(m.parameters()),
    "LBFGS": lambda m: torch.optim.LBFGS(m.parameters(), max_iter=4),
    "own": lambda m: SignWithoutGradients(m.parameters()),
}


@pytest.mark.parametrize("undo", ["snapshot", "step"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_faulty_step_leaves_parameters_buffers_and_state_untouched(name, undo):
    model = make()
    optimizer = OPTIMIZERS[name](model)
    with ff.guard(model, optimizer, on_fault="skip", undo=undo) as guard:
        train_step = step_of(model, optimizer)
        for seed in range(3):
            guard.step(train_step, *batch(seed))
        before = everything(model, optimizer), repr(numbers(optimizer))
        guard.step(train_step, *batch(3, bad=True))
        assert (everything(model, optimizer), repr(numbers(optimizer))) == before
        guard.step(train_step, *batch(4))
        assert everything(model, optimizer) != before[0]
    assert [(one.step, one.action) for one in guard.actions] == [(3, "skip")]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_guarding_changes_nothing_while_nothing_is_wrong(name):
    def run(guarded):
        model = make()
        optimizer = OPTIMIZERS[name](model)
        train_step = step_of(model, optimizer)
        if guarded:
            with ff.guard(model, optimizer, undo="step", snapshot_every=2) as guard:
                for seed in range(5):
                    guard.step(train_step, *batch(seed))
        else:
            for seed in range(5):
                optimizer.step(lambda seed=seed: train_step(*batch(seed))) if name == "LBFGS" else (
                    train_step(*batch(seed)),
                    optimizer.step(),
                )
        return everything(model, optimizer), repr(numbers(optimizer))

    assert run(True) == run(False)


def test_a_step_function_may_call_the_optimizer_itself():
    model = make()
    optimizer = torch.optim.Adam(model.parameters())

    def train_step(x, y):
        loss = step_of(model, optimizer)(x, y)
        optimizer.step()
        return loss

    with ff.guard(model, optimizer, on_fault="skip") as guard:
        guard.step(train_step, *batch(0))
        assert next(iter(optimizer.state.values()))["step"].item() == 1
        before = everything(model, optimizer)
        guard.step(train_step, *batch(1, bad=True))
        assert everything(model, optimizer) == before


def test_raise_says_where_it_began_and_writes_nothing():
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with ff.guard(model, optimizer) as guard:
        guard.step(step_of(model, optimizer), *batch(0))
        before = everything(model, optimizer)
        with pytest.raises(ff.TrainingFault, match="step 1") as caught:
            guard.step(step_of(model, optimizer), *batch(1, bad=True))
        assert everything(model, optimizer) == before
    fault = caught.value
    assert isinstance(fault, RuntimeError)
    assert (fault.step, fault.kind) == (1, "loss")
    assert fault.origin.phase == "data"
    assert fault.hypotheses[0].cause == "data_nonfinite"
    assert "0.weight" in " ".join(fault.names)


def test_an_unchanged_loop_is_guarded_by_the_hooks_alone():
    model = make()
    optimizer = torch.optim.Adam(model.parameters())
    with ff.guard(model, optimizer, on_fault="skip") as guard:
        for i in range(6):
            before = everything(model, optimizer)
            step_of(model, optimizer)(*batch(i, bad=i == 3))
            optimizer.step()
            assert (everything(model, optimizer) == before) == (i == 3)
    assert [(one.step, one.fault) for one in guard.actions] == [(3, "loss")]


def test_batches_hands_out_a_failing_batch_once_more_to_find_its_origin():
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(torch.randn(40, 5), torch.zeros(40, 4)), batch_size=8)
    handed_out = []
    with pytest.raises(ff.TrainingFault) as caught, ff.guard(model, optimizer, level="gradients") as guard:
        for i, (x, y) in enumerate(guard.batches(loader)):
            handed_out.append(x.clone())
            optimizer.zero_grad()
            loss = (model(x) - y).square().mean()
            if len(handed_out) in (3, 4):
                loss = loss + (loss * 0).log()
            loss.backward()
            before = everything(model, optimizer)
            optimizer.step()
            assert i < 4 or everything(model, optimizer) == before
    assert torch.equal(handed_out[2], handed_out[3])
    assert caught.value.origin.op == "aten::log"


def test_a_loader_that_is_left_while_a_batch_is_handed_out_again_leaves_the_run_as_it_was():
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with ff.guard(model, optimizer, on_fault="skip", level="gradients") as guard:
        for i, (x, y) in enumerate(guard.batches([batch(0, bad=True), batch(1)])):
            if i == 1:
                break
            step_of(model, optimizer)(x, y)
            optimizer.step()
        state = everything(model, optimizer)
        with ff.trace():  # nobody observes any more
            pass
        guard.step(step_of(model, optimizer), *batch(2))
        assert everything(model, optimizer) != state


def test_skips_in_a_row_end_in_a_fault_or_in_a_rollback():
    for after, most in (("raise", 10), ("rollback", 50)):
        model = make()
        optimizer = torch.optim.Adam(model.parameters())
        with ff.guard(model, optimizer, on_fault="skip", max_consecutive_skips=10, after_skips=after) as guard:
            guard.step(step_of(model, optimizer), *batch(0))
            made = 0
            with pytest.raises(ff.TrainingFault):
                for i in range(1000):
                    guard.step(step_of(model, optimizer), *batch(i, bad=True))
                    made += 1
        assert made == {"raise": 10, "rollback": 43}[after], (after, most)
        assert [one.action for one in guard.actions].count("rollback") == (3 if after == "rollback" else 0)


def test_a_rollback_restores_everything_that_is_listed():
    model = make()
    optimizer = torch.optim.Adam(model.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    guard = ff.guard(model, optimizer, on_fault="rollback", scheduler=scheduler, snapshot_every=4)

    def state():
        groups = repr([{k: v for k, v in g.items() if k != "params"} for g in optimizer.param_groups])
        return everything(model, optimizer), groups, repr(scheduler.state_dict()), torch.get_rng_state().sum().item()

    with guard:
        for i in range(4):
            guard.step(step_of(model, optimizer), *batch(i))
            if i < 3:
                scheduler.step()
        at_snapshot = state()
        for i in range(4, 6):
            scheduler.step()
            torch.rand(3)
            guard.step(step_of(model, optimizer), *batch(i))
        assert state() != at_snapshot
        guard.step(step_of(model, optimizer), *batch(6, bad=True))
        assert state() == at_snapshot
    (action,) = guard.actions
    assert (action.action, action.snapshot, action.lost) == ("rollback", 4, 2)


def test_snapshots_stay_within_their_bytes_and_grow_apart():
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    size = sum(t.numel() * t.element_size() for t in [*model.parameters(), *model.buffers()])
    with ff.guard(model, optimizer, on_fault="rollback", snapshot_every=1, snapshot_bytes=5 * size) as guard:
        for i in range(64):
            guard.step(step_of(model, optimizer), *batch(i))
            assert sum(one.bytes for one in guard._snapshots) <= 5 * size
        steps = [one.step for one in guard._snapshots]
    assert steps[0] == 0 and steps[-1] == 64 and len(steps) == 5


def exchange_momentum(optimizer):
    entry = next(iter(optimizer.state.values()))
    entry["momentum_buffer"] = entry["momentum_buffer"].clone()


@pytest.mark.parametrize("change", [lambda o: None, lambda o: o.state.clear(), exchange_momentum])
def test_the_copy_of_a_step_is_of_what_the_optimizer_holds_by_then(change):
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    with ff.guard(model, optimizer, on_fault="skip", undo="step") as guard:
        for i in range(3):
            guard.step(step_of(model, optimizer), *batch(i))
        change(optimizer)
        before = everything(model, optimizer)
        optimizer.param_groups[0]["lr"] = 3e38  # finite, and so are the gradients
        x, y = batch(3)
        guard.step(step_of(model, optimizer), x, y + 1e4)
        assert guard.actions[-1].undone == "copy"
        assert everything(model, optimizer) == before


def test_what_the_optimizers_own_arithmetic_breaks_is_undone():
    for undo, lost in (("step", 0), ("snapshot", 2)):
        model = make()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with ff.guard(model, optimizer, on_fault="skip", undo=undo) as guard:
            for i in range(2):
                guard.step(step_of(model, optimizer), *batch(i))
            before = everything(model, optimizer)
            optimizer.param_groups[0]["lr"] = 3e38  # finite, and so are the gradients
            x, y = batch(2)
            guard.step(step_of(model, optimizer), x, y + 1e4)
            assert all(bool(torch.isfinite(p).all()) for p in model.parameters())
            assert (everything(model, optimizer) == before) == (undo == "step")
        (action,) = guard.actions
        assert (action.fault, action.lost) == ("result", lost)
        assert action.undone == {"step": "copy", "snapshot": "snapshot"}[undo]


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("key, value", [("lr", NAN), ("betas", (0.9, INF)), ("weight_decay", NAN)])
def test_a_hyperparameter_that_is_not_finite_is_named(key, value):
    model = make()
    optimizer = torch.optim.AdamW(model.parameters())

    def late(o, *_):  # runs after the guard was made
        o.param_groups[0][key] = value

    with ff.guard(model, optimizer, on_fault="skip") as guard:
        optimizer.register_step_pre_hook(late)
        before = everything(model, optimizer)
        guard.step(step_of(model, optimizer), *batch(0))
        assert everything(model, optimizer) == before
    (action,) = guard.actions
    assert action.fault == "hyperparameter" and key in action.reason


def test_an_eps_that_is_0_in_half_is_refused():
    model = nn.Linear(4, 2).half()
    optimizer = torch.optim.Adam(model.parameters(), eps=1e-8)
    with ff.guard(model, optimizer, on_fault="skip") as guard:
        guard.step(step_of(model, optimizer), torch.ones(3, 4).half(), torch.zeros(3, 2).half())
    assert "eps is 1e-08, which is 0" in guard.actions[0].reason


def test_clipping_is_done_before_the_optimizer_and_written_down():
    reference, model = make(), make()
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (reference, model)]
    x, y = batch(0)
    step_of(reference, optimizers[0])(x * 100, y + 50)
    norm = torch.nn.utils.clip_grad_norm_(reference.parameters(), 0.5)
    optimizers[0].step()
    with ff.guard(model, optimizers[1], max_norm=0.5) as guard:
        guard.step(step_of(model, optimizers[1]), x * 100, y + 50)
    for a, b in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(a, b)
    (clip,) = guard.actions
    assert clip.action == "clip" and clip.limit == 0.5
    assert clip.norm == pytest.approx(norm.item(), rel=1e-5)
    assert clip.length == pytest.approx(0.1 * norm.item(), rel=1e-5)
    assert clip.largest[0].name.startswith("model.")
    assert "clipped" in {fact.kind for fact in guard.run().facts}


def test_a_spike_is_refused_only_where_the_policy_asks():
    for spike, refused in ((None, 0), (8.0, 1)):
        model = make()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
        with ff.guard(model, optimizer, on_fault="skip", spike=spike) as guard:
            for i in range(40):
                x, y = batch(i)
                guard.step(step_of(model, optimizer), x, y + (1000 if i == 30 else 1))
        assert [one.fault for one in guard.actions] == ["spike"] * refused


def test_skips_of_a_scaler_are_its_own():
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127 * 1.5, growth_interval=1000)

    def train_step(x, y):
        optimizer.zero_grad()
        loss = (model(x) - y - 10).square().mean()
        scaler.scale(loss).backward()
        return loss

    with ff.guard(model, optimizer, on_fault="raise", scaler=scaler) as guard:
        for i in range(12):
            guard.step(train_step, *batch(i))
    assert guard.actions == []
    assert 0 < scaler.get_scale() < 2.0**127


def test_several_optimizers_and_shared_frozen_and_late_parameters():
    torch.manual_seed(0)
    model = nn.ModuleDict({"a": nn.Linear(5, 5), "b": nn.Linear(5, 5), "c": nn.Linear(5, 4)})
    model["b"].weight = model["a"].weight
    model["c"].bias.requires_grad_(False)
    first = torch.optim.SGD([*model["a"].parameters(), model["b"].bias], lr=0.1)
    second = torch.optim.Adam(model["c"].parameters())

    def train_step(x, y):
        first.zero_grad()
        second.zero_grad()
        loss = (model["c"](model["b"](model["a"](x))) - y).square().mean()
        loss.backward()
        return loss

    with ff.guard(model, [first, second], on_fault="skip") as guard:
        guard.step(train_step, *batch(0))
        late = nn.Parameter(torch.ones(4))
        second.add_param_group({"params": [late]})
        before = everything(model, first), everything(model, second)
        guard.step(train_step, *batch(1, bad=True))
        assert (everything(model, first), everything(model, second)) == before
        guard.step(train_step, *batch(2))
    assert {one.action for one in guard.actions} == {"skip"}


def test_an_exception_of_the_programs_own_goes_through_and_the_next_step_is_made():
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def breaks(x, y):
        step_of(model, optimizer)(x, y)
        raise KeyError("the program's own")

    with ff.guard(model, optimizer) as guard:
        before = everything(model, optimizer)
        with pytest.raises(KeyError, match="own"):
            guard.step(breaks, *batch(0))
        assert all(p.grad is not None for p in model.parameters())
        guard.step(step_of(model, optimizer), *batch(1))
        assert everything(model, optimizer) != before


def test_warn_makes_the_step_and_says_so():
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with (
        ff.guard(model, optimizer, on_fault="warn") as guard,
        pytest.warns(RuntimeWarning, match="step 0: the loss is NaN; the step was made"),
    ):
        guard.step(step_of(model, optimizer), *batch(0, bad=True))
    assert [one.action for one in guard.actions] == ["warn"]
    assert not all(bool(torch.isfinite(p).all()) for p in model.parameters())


def test_a_scheduler_made_before_or_after_does_not_matter_and_does_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for early in (True, False):
            model = make()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            if early:
                scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
            guard = ff.guard(model, optimizer, on_fault="skip")
            if not early:
                scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
            with guard:
                for i in range(3):
                    guard.step(step_of(model, optimizer), *batch(i, bad=i == 0))
                    scheduler.step()
            assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1 * 0.5**3)


def test_a_part_of_the_model_on_the_meta_device_is_left_alone():
    class Half(nn.Module):
        def __init__(self):
            super().__init__()
            self.real, self.ghost = nn.Linear(5, 4), nn.Linear(5, 4, device="meta")
            self.register_buffer("seen", torch.zeros(3, device="meta"))

        def forward(self, x):
            return self.real(x)

    model = Half()
    optimizer = torch.optim.Adam(model.parameters())
    with ff.guard(model, optimizer, on_fault="rollback", snapshot_every=1) as guard:
        guard.step(step_of(model, optimizer), *batch(0))
        at_snapshot = _live.bits_of(list(model.real.parameters()))
        guard.step(step_of(model, optimizer), *batch(1, bad=True))
        assert _live.bits_of(list(model.real.parameters())) == at_snapshot
    assert [one.action for one in guard.actions] == ["rollback"]


def test_with_the_environment_switch_it_still_refuses_but_watches_nothing(monkeypatch):
    monkeypatch.setenv("FIRSTFAULT", "0")
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with ff.guard(model, optimizer, on_fault="skip") as guard:
        before = everything(model, optimizer)
        guard.step(step_of(model, optimizer), *batch(0, bad=True))
        assert everything(model, optimizer) == before
    assert guard.explain() == []


def test_choices_that_do_not_exist_are_refused():
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    choices = {"on_fault": "ignore"}, {"undo": "never"}, {"after_skips": "skip"}, {"max_norm": 1, "clip_value": 1}
    for options in choices:
        with pytest.raises(ValueError, match="firstfault"):
            ff.guard(model, optimizer, **options)
    with pytest.raises(TypeError, match="no hooks"):
        ff.guard(model, object())
