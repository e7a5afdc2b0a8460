"""Every case under Guard: nothing that is not finite gets into parameters or state; healthy runs are left alone."""

import contextlib
import importlib.util
import io
import pathlib
import warnings

import pytest
import torch

import firstfault as ff

CASES = sorted((pathlib.Path(__file__).parents[1] / "cases").glob("case_*.py"))
MOST_STEPS = 80
# Symptoms in which loss, gradients and parameters stay finite.
FINITE_TO_THE_END = ("inf_activation_absorbed", "vanishing", "dead", "huge_initial_loss")


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def step_of(case, step):
    def train_step(x, y):
        model, optimizer, loss_fn = case["model"], case["optimizer"], case["loss_fn"]
        if case.get("step_fn"):
            return case["step_fn"](model, x, y, loss_fn, optimizer, step)
        optimizer.zero_grad()
        loss = loss_fn(model(*x) if isinstance(x, tuple) else model(x), y)
        loss.backward()
        return loss

    return train_step


def not_finite(case):
    found = [n for n, p in case["model"].named_parameters() if not bool(torch.isfinite(p).all())]
    for entry in case["optimizer"].state.values():
        for key, value in entry.items():
            if isinstance(value, torch.Tensor) and value.is_floating_point() and not bool(torch.isfinite(value).all()):
                found.append(key)
    return found


def run(case, **options):
    """(guard, what was not finite, how it ended)"""
    calls = bool(case.get("step_fn"))
    found, ended = [], "complete"
    with (
        contextlib.redirect_stdout(io.StringIO()),
        warnings.catch_warnings(),
        ff.guard(case["model"], case["optimizer"], calls_step=calls, **options) as guard,
    ):
        warnings.simplefilter("ignore")
        begun_bad = not_finite(case)
        for step in range(min(case["steps"], MOST_STEPS)):
            try:
                guard.step(step_of(case, step), *case["make_batch"](step))
            except ff.TrainingFault as fault:
                ended = str(fault)
                break
            finally:
                found += [f"step {step}: {name}" for name in not_finite(case)]
    return guard, ([] if begun_bad else found), ended


FAULTY = [path for path in CASES if "healthy" not in path.stem]
HEALTHY = [path for path in CASES if "healthy" in path.stem]


@pytest.mark.parametrize("policy", ["skip", "rollback", "raise"])
@pytest.mark.parametrize("path", FAULTY, ids=lambda path: path.stem)
def test_nothing_that_is_not_finite_is_left_behind_by_a_step(path, policy):
    module = load(path)
    guard, found, ended = run(module.build(), on_fault=policy)
    assert found == []
    first_bad = module.TRUTH["first_bad_step"]
    never_bad = module.TRUTH["symptom"] in FINITE_TO_THE_END
    if first_bad is not None and first_bad < MOST_STEPS and not never_bad:
        faults = [one for one in guard.actions if one.action != "clip"]
        assert faults and faults[0].step <= first_bad
        if policy == "raise":
            assert ended != "complete"


@pytest.mark.parametrize("path", HEALTHY, ids=lambda path: path.stem)
def test_a_healthy_run_is_left_alone(path):
    guard, _, ended = run(load(path).build(), on_fault="skip")
    assert (guard.actions, ended) == ([], "complete")


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_the_repaired_twin_is_left_alone(path):
    guard, _, ended = run(load(path).build(fixed=True), on_fault="skip")
    assert (guard.actions, ended) == ([], "complete")
