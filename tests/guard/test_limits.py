"""A thousand bad batches in a row: the guard stops or goes back by policy, and memory stays as it is."""

import gc
import resource

import pytest
import torch
from test_guard import batch, make, step_of

import firstfault as ff
from firstfault import _core
from firstfault._clip import _module

MANY = 1000


def train(on_fault, steps, watched=lambda step: None, **options):
    """(guard, steps that were made before it stopped, model)"""
    model = make()
    optimizer = torch.optim.Adam(model.parameters())
    train_step = step_of(model, optimizer)
    made = 0
    with ff.guard(model, optimizer, on_fault=on_fault, **options) as guard:
        for i in range(4):
            guard.step(train_step, *batch(i))
        before = [p.detach().clone() for p in model.parameters()]
        try:
            for made in range(steps):
                guard.step(train_step, *batch(made, bad=True))
                watched(made)
            made += 1
        except ff.TrainingFault:
            pass
    assert all(bool(torch.isfinite(p).all()) for p in model.parameters())
    same = all(map(torch.equal, before, model.parameters()))
    return guard, made, same


def actions(guard):
    names = [one.action for one in guard.actions]
    return {name: names.count(name) for name in set(names)}


@pytest.mark.parametrize("level", ["ops", "gradients"])
def test_skips_without_end_stop(level):
    guard, made, same = train("skip", MANY, level=level)
    assert (made, same, actions(guard)) == (10, True, {"skip": 10, "stop": 1})


def test_skips_without_end_go_back_and_then_stop():
    guard, made, _ = train("skip", MANY, after_skips="rollback")
    assert made < 100
    assert actions(guard)["rollback"] == 3 and guard.actions[-1].action == "stop"


def test_the_list_of_actions_is_bounded(monkeypatch):
    assert _module().MOST_ACTIONS == 10_000
    monkeypatch.setattr(_module(), "MOST_ACTIONS", 5)
    guard, made, same = train("skip", 9, level="gradients")
    assert (made, same, actions(guard)) == (9, True, {"skip": 5})
    assert len(guard.run().actions) == 9


def test_rollbacks_without_end_stop():
    guard, made, _ = train("rollback", MANY)
    assert (made, actions(guard)) == (3, {"rollback": 3, "stop": 1})


@pytest.mark.parametrize("level", [pytest.param("ops", marks=pytest.mark.slow), "gradients"])
def test_where_a_thousand_skips_are_allowed_memory_does_not_grow(level):
    """Of which at most four steps are looked into, whether their origin is known beforehand or not."""
    used = []

    def watched(step):
        if step in (MANY // 5, MANY - 1):
            gc.collect()
            used.append((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, len(gc.get_objects())))

    guard, made, same = train("skip", MANY, watched, max_consecutive_skips=2 * MANY, level=level)
    assert (made, same, actions(guard)) == (MANY, True, {"skip": MANY})
    (early_kb, early), (late_kb, late) = used
    assert late_kb - early_kb < 4096
    assert late - early < MANY // 2
    assert len({one.step for one in _core.experiments_of(guard.run())}) <= 4
    assert len(guard.run().origins) <= 256


@pytest.mark.slow
def test_where_a_thousand_rollbacks_are_allowed_memory_does_not_grow():
    used = []

    def watched(step):
        if step in (MANY // 5, MANY - 1):
            gc.collect()
            used.append((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, len(gc.get_objects())))

    guard, made, _ = train("rollback", MANY, watched, max_rollbacks=2 * MANY, snapshot_every=2)
    assert (made, actions(guard)) == (MANY, {"rollback": MANY})
    assert used[1][0] - used[0][0] < 4096 and used[1][1] - used[0][1] < MANY // 2
