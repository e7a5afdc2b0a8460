"""Experiments: the faulty step again with one thing changed each, and what the hypotheses come to."""

import contextlib
import io
import random
import types
import warnings

import numpy as np
import pytest
import torch
from test_guard_cases import CASES, FAULTY, HEALTHY, MOST_STEPS, load, not_finite, step_of
from test_replay import BAD, Program, data, train
from torch import nn

import firstfault as ff
from firstfault import _core

STANDINGS = ("confirmed", "not_separable", "located", "delayed", "refuted", "not_tested", "observed", "inferred")


def guarded(case, *, prove=False, most_steps=MOST_STEPS, **options):
    """(guard, hypotheses)"""
    calls = bool(case.get("step_fn"))
    with (
        contextlib.redirect_stdout(io.StringIO()),
        warnings.catch_warnings(),
        ff.guard(case["model"], case["optimizer"], calls_step=calls, **options) as guard,
    ):
        warnings.simplefilter("ignore")
        for step in range(min(case["steps"], most_steps)):
            try:
                guard.step(step_of(case, step), *case["make_batch"](step))
            except ff.TrainingFault:
                break
        if prove:
            guard.prove(lambda x, y, step: step_of(case, step)(x, y), lambda step: (*case["make_batch"](step), step))
    return guard, guard.explain()


def accepted(truth):
    return {truth["cause"], *truth.get("also_ok", ())}


def verdict(truth, hypotheses):
    """How the right one stands, or "wrong" where another one is confirmed."""
    right = [one for one in hypotheses if one.cause in accepted(truth)]
    confirmed = [one for one in hypotheses if one.standing == "confirmed"]
    if any(one not in right for one in confirmed):
        return "wrong"
    return min((one.standing for one in right), key=STANDINGS.index, default="none")


def count(verdicts):
    return {name: list(verdicts.values()).count(name) for name in sorted(set(verdicts.values()))}


def test_point_faults_are_proved_and_none_is_proved_wrong():
    """One replay at a time; what needs a window of steps says so."""
    verdicts = {}
    for path in FAULTY:
        module = load(path)
        _, hypotheses = guarded(module.build(), on_fault="skip")
        verdicts[path.stem] = verdict(module.TRUTH, hypotheses)
        for one in hypotheses:
            if one.standing == "not_tested":
                assert any("not tested: " in evidence.text for evidence in one.evidence)
    print(count(verdicts), verdicts)
    right = [name for name, standing in verdicts.items() if standing in ("confirmed", "not_separable")]
    assert "wrong" not in verdicts.values(), verdicts
    assert len(right) >= 32, verdicts


def test_with_windows_nearly_all_cases_are_proved_and_none_is_proved_wrong():
    verdicts = {}
    for path in FAULTY:
        module = load(path)
        _, hypotheses = guarded(module.build(), prove=True, most_steps=1000, on_fault="raise")
        verdicts[path.stem] = verdict(module.TRUTH, hypotheses)
    print(count(verdicts), verdicts)
    right = [name for name, standing in verdicts.items() if standing in ("confirmed", "not_separable")]
    assert "wrong" not in verdicts.values(), verdicts
    assert len(right) >= 48, verdicts
    assert not [name for name, standing in verdicts.items() if standing in ("refuted", "none")], verdicts


@pytest.mark.parametrize("path", HEALTHY, ids=lambda path: path.stem)
def test_a_healthy_run_is_never_replayed(path):
    guard, hypotheses = guarded(load(path).build(), on_fault="skip")
    assert (guard.actions, hypotheses, _core.experiments_of(guard.run())) == ([], [], [])


# -- samples


class Rows(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        return (self.fc(x) * 0 + x - 0.4).sqrt()


def batch_of(bad, step):
    x = torch.rand(256, 4, generator=torch.Generator().manual_seed(step)) + 0.5
    if step == 3:
        x[list(bad)] = 0.3  # within the usual range, so that clipping does not cure it
    return x


def experiments_on(step_function, model, batches, **options):
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def train_step(*batch):
        optimizer.zero_grad()
        loss = step_function(*batch)
        loss.backward()
        return loss

    with ff.guard(model, optimizer, on_fault="skip", **options) as guard:
        for batch in batches:
            guard.step(train_step, *batch)
    return guard, {one.name: one for one in _core.experiments_of(guard.run())}


@pytest.mark.parametrize("bad", [(17,), (3, 200), (0, 64, 100, 192, 255)])
def test_exactly_the_bad_samples_of_256_are_named_in_few_replays(bad):
    model = Rows()
    _, made = experiments_on(lambda x: model(x).mean(), model, [(batch_of(bad, step),) for step in range(5)])
    assert made["samples"].outcome == "cured"
    assert made["samples"].samples == list(bad)
    assert made["samples"].replays <= 2 * len(bad) * 8 + len(bad)


def test_two_samples_that_fail_only_together_are_named_together():
    model = Rows()

    def loss(x):
        both = (x[:, 0] == -7).sum() - 1.5  # sqrt of a negative number where both are there
        return (model(x.abs()).mean(1) * 1).mean() + (-both * 1.0).sqrt().mean() * model.fc.weight.sum()

    batches = [(batch_of((), step),) for step in range(5)]
    batches[3][0][[40, 41], 0] = -7
    _, made = experiments_on(loss, model, batches)
    assert made["samples"].samples == [40, 41]
    assert "only together" in made["samples"].text


def test_where_all_samples_are_to_blame_none_is_named():
    model = Rows()
    _, made = experiments_on(lambda x: model(x).mean(), model, [(batch_of(range(256), step),) for step in range(5)])
    assert (made["samples"].outcome, made["samples"].samples) == ("failed", [])
    assert "no one in particular" in made["samples"].text


# -- what replays can prove


@pytest.mark.parametrize("fails_again", [0, 1, 2])
def test_a_fault_that_does_not_come_back_every_time_is_called_so(fails_again, tmp_path):
    """Counted in a file, which no replay puts back."""
    calls = tmp_path / "calls"
    calls.write_text("0")
    model = Rows()

    def loss(x):
        number = int(calls.read_text())
        calls.write_text(str(number + 1))
        bad = 3 <= number <= 3 + fails_again
        return model(x).mean() * (float("nan") if bad else 1.0)

    guard, made = experiments_on(loss, model, [(batch_of((), step),) for step in range(4)])
    causes = [one.cause for one in guard.explain()]
    if fails_again == 2:
        assert "not_reproducible" not in causes
        return
    assert "not_reproducible" in causes
    assert list(made) == ["unchanged"]
    assert f"{fails_again} of 2" in made["unchanged"].text


class BoundToABatch(Program):
    """All the state of Program; the fault is in one sample of one batch."""

    def step(self, x, y):
        self.count += 1
        self.optimizer.zero_grad()
        noise = torch.randn(x.shape, generator=self.generator) * random.random() * np.random.rand()
        out = self.model(x + 0.01 * noise + 0.001 * self.ticks["hook"])
        is_bad = (x[:, 0] == data()[BAD][0][3, 0]).float()
        loss = (out - y).square().mean() + (0.5 - is_bad + 0 * out[:, 0]).sqrt().mean()
        loss.backward()
        self.losses.append(loss.item())
        return loss


def test_a_run_with_experiments_is_bit_for_bit_the_one_that_only_skipped():
    def run(**options):
        program = BoundToABatch()
        with ff.guard(program.model, program.optimizer, on_fault="skip", **options) as guard:
            train(program, guard)
        return program.digest(), _core.experiments_of(guard.run())

    skipped, none = run(experiments=False, replays=0)
    digest, made = run(replays=4)
    assert none == []
    assert {one.name for one in made if one.outcome == "cured"} == {"previous_batch", "operand", "samples"}
    assert sum(one.replays for one in made) >= 10
    assert digest == skipped


def test_a_spike_is_not_run_again():
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    batches = [(torch.randn(8, 4) * (1000.0 if step == 30 else 1.0),) for step in range(32)]
    guard, made = experiments_on(lambda x: model(x).square().mean(), model, batches, spike=6.0)
    assert [(one.step, one.fault) for one in guard.actions] == [(30, "spike")]
    assert made == {}


def test_an_eps_of_0_that_does_no_harm_is_not_called_a_race():
    model = nn.Linear(2, 1, bias=False).half()  # in which 1e-8 is 0
    optimizer = torch.optim.Adam(model.parameters())

    def train_step(x):
        optimizer.zero_grad()
        loss = model(x).sum()
        loss.backward()
        return loss

    with ff.guard(model, optimizer, on_fault="skip") as guard:
        guard.step(train_step, torch.ones(3, 2).half())
    assert [one.fault for one in guard.actions] == ["hyperparameter"]
    assert [one.cause for one in guard.explain()] == []


def test_progress_is_shown_on_a_terminal_after_two_seconds(monkeypatch):
    from firstfault import _experiments

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    now = [0.0]
    monkeypatch.setattr(_experiments.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(_experiments.sys, "stderr", terminal := Terminal())
    progress = _experiments.Progress()
    made = types.SimpleNamespace(step=3, name="window", outcome="failed")
    progress(made)
    assert terminal.getvalue() == ""
    now[0] = 2.5
    progress(made)
    assert "window failed" in terminal.getvalue()


def test_a_budget_is_held_and_said():
    model = Rows()
    batches = [(batch_of((17,), step),) for step in range(5)]
    _, made = experiments_on(lambda x: model(x).mean(), model, batches, max_replays=2)
    assert made["operand"].outcome == "out_of_budget"
    assert sum(one.replays for one in made.values()) <= 2 + 2


def test_the_search_for_samples_takes_what_the_rivals_leave_of_a_budget():
    model = Rows()
    batches = [(batch_of((0, 64, 100, 192, 255), step),) for step in range(5)]
    _, made = experiments_on(lambda x: model(x).mean(), model, batches, max_replays=12)
    assert list(made)[-1] == "samples"
    assert made["samples"].outcome == "out_of_budget"
    assert (made["operand"].outcome, made["previous_batch"].outcome) == ("cured", "cured")
    assert [one.name for one in made.values() if one.outcome == "out_of_budget"] == ["samples"]


def test_an_op_that_prepares_the_batch_before_the_model_is_repaired():
    model = nn.Linear(4, 2)
    batches = [(torch.rand(8, 4) + 0.5,) for _ in range(4)]
    batches[3][0][5, 1] = 0.3  # within the usual range
    guard, made = experiments_on(lambda x: model((x - 0.4).log()).square().mean(), model, batches)
    assert (made["operand"].outcome, made["operand"].op) == ("cured", "aten::log")
    best = guard.explain()[0]
    assert (best.cause, best.standing, best.op) == ("op_domain", "confirmed", "aten::log")


def test_values_that_are_not_finite_are_no_outliers():
    model = nn.Linear(4, 2)
    batches = [(torch.rand(8, 4, generator=torch.Generator().manual_seed(step)),) for step in range(8)]
    batches[6][0][2, 1] = float("inf")
    batches[6][0][3, 0] = float("nan")
    batches[6][0][5, 1] = 1e3
    _, made = experiments_on(lambda x: model(x).square().mean(), model, batches)
    assert made["imputed"].outcome == "cured"
    assert (made["clipped"].outcome, made["clipped"].size) == ("failed", 1)


def test_without_experiments_none_is_made():
    model = Rows()
    batches = [(batch_of((17,), step),) for step in range(5)]
    guard, made = experiments_on(lambda x: model(x).mean(), model, batches, experiments=False)
    assert made == {}
    assert guard.explain()[0].standing == "observed"


def test_only_faults_that_begin_elsewhere_are_looked_into_again():
    model = Rows()
    x = batch_of((17,), 3)
    good = [(batch_of((), step),) for step in range(3)]
    guard, _ = experiments_on(lambda x: model(x).mean(), model, [*good, (x,), (x.clone(),), (x.clone(),)])
    assert len([one for one in guard.actions if one.action == "skip"]) == 3
    assert len({one.step for one in _core.experiments_of(guard.run())}) == 1


def test_the_standing_is_in_text_json_and_the_run_file(tmp_path):
    model = Rows()
    path = tmp_path / "a.ffrun"
    batches = [(batch_of((17,), step),) for step in range(5)]
    guard, _ = experiments_on(lambda x: model(x).mean(), model, batches, run_file=path)
    best = guard.explain()[0]
    assert (best.cause, best.standing, best.sample) == ("op_domain", "confirmed", 17)
    assert "confirmed" in str(best) and "made ordinary" in str(best)
    assert best.to_dict()["standing"] == "confirmed"
    read = ff.explain(ff.read_run(path))[0]
    assert (read.cause, read.standing, [one.text for one in read.evidence]) == (
        best.cause,
        best.standing,
        [one.text for one in best.evidence],
    )


def test_raise_carries_the_standing():
    model = Rows()
    with pytest.raises(ff.TrainingFault) as caught:
        model_, optimizer = model, torch.optim.SGD(model.parameters(), lr=1e-3)
        with ff.guard(model_, optimizer) as guard:
            for step in range(5):

                def train_step(x):
                    optimizer.zero_grad()
                    loss = model(x).mean()
                    loss.backward()
                    return loss

                guard.step(train_step, batch_of((17,), step))
    assert caught.value.hypotheses[0].standing == "confirmed"


def test_a_divergence_is_proved_by_windows_and_the_run_is_as_it_was():
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=50.0)

    def batches(step):
        generator = torch.Generator().manual_seed(step)
        x = torch.randn(16, 4, generator=generator)
        return x, x.sum(1, keepdim=True)

    def train_step(x, y):
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        return loss

    with ff.guard(model, optimizer, on_fault="raise") as guard:
        with pytest.raises(ff.TrainingFault):
            for step in range(200):
                guard.step(train_step, *batches(step))
        before = [parameter.clone() for parameter in model.parameters()], torch.get_rng_state(), guard.steps
        assert guard.explain()[0].standing == "not_tested"
        proved = guard.prove(train_step, batches)
        after = [parameter.clone() for parameter in model.parameters()], torch.get_rng_state(), guard.steps
    assert all(map(torch.equal, before[0], after[0]))
    assert torch.equal(before[1], after[1]) and before[2] == after[2]
    assert (proved[0].cause, proved[0].standing) == ("lr_too_high", "confirmed")


def test_every_case_leaves_finite_parameters_with_experiments():
    """The experiments write parameters; none of it stays."""
    for path in CASES[:12]:
        case = load(path).build()
        begun_bad = not_finite(case)
        guarded(case, on_fault="skip")
        assert begun_bad or not_finite(case) == [], path.stem
