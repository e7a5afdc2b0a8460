"""What a guard did: in memory, in the run file, as text and as JSON."""

import json

import torch
from torch import nn

import firstfault as ff


def train(guard, model, optimizer, bad_steps, steps=12, scale=1.0):
    def train_step(x, y):
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        return loss

    for step in range(steps):
        generator = torch.Generator().manual_seed(step)
        x = torch.randn(8, 4, generator=generator) * scale
        if step in bad_steps:
            x[1, 2] = float("inf")
        guard.step(train_step, x, torch.ones(8, 2))


def test_the_run_file_says_what_the_guard_did(tmp_path):
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    optimizer = torch.optim.Adam(model.parameters())
    path = tmp_path / "run.ffrun"
    with ff.guard(
        model, optimizer, on_fault="rollback", max_norm=0.1, snapshot_every=4, run_file=path, level="gradients"
    ) as guard:
        train(guard, model, optimizer, {6, 9})
    in_memory = [one.to_json() for one in guard.actions]
    assert [one.to_json() for one in guard.run().actions] == in_memory
    assert [one.to_json() for one in ff.read_run(path).actions] == in_memory
    kinds = [one.action for one in guard.actions]
    assert kinds.count("rollback") == 2 and kinds.count("clip") == 10
    rollback = next(one for one in guard.actions if one.action == "rollback")
    assert (rollback.step, rollback.snapshot, rollback.lost) == (6, 4, 2)
    assert "NaN" in rollback.reason or "Inf" in rollback.reason
    clip = next(one for one in guard.actions if one.action == "clip")
    assert clip.norm > 0.1 and 0 < clip.coefficient < 1 and clip.length > 0
    assert {share.name for share in clip.largest} == {"model.weight", "model.bias"}

    text = str(ff.read_run(path))
    assert "step 6: rolled back" in text and "back to step 4, 2 steps lost" in text
    assert "10 steps clipped; the last: step 11, norm" in text
    document = json.loads(ff.read_run(path).to_json())
    assert [one["action"] for one in document["actions"]] == kinds


def test_a_rollback_is_no_lost_optimizer_state():
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    optimizer = torch.optim.Adam(model.parameters())
    with ff.guard(model, optimizer, on_fault="rollback", snapshot_every=100) as guard:
        train(guard, model, optimizer, {6})
    assert "optimizer_state" not in {one.cause for one in guard.explain()}
    assert not any(row.reset_state for row in guard.run().rows)
    assert [row.step for row in guard.run().rows if row.skipped] == [6]


def test_clips_at_nearly_every_step_are_transitions_of_the_run(tmp_path):
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    path = tmp_path / "run.ffrun"
    with ff.guard(model, optimizer, max_norm=1e-3, level="gradients", run_file=path) as guard:
        train(guard, model, optimizer, (), steps=150, scale=10.0)
    for run in (guard.run(), ff.read_run(path)):
        clipping = [one for one in json.loads(run.to_json())["transitions"] if one["role"] == "clipping"]
        assert [(one["step"], one["site"], one["to_state"], one["value"]) for one in clipping] == [
            (19, "model.weight", "dominant", 1.0),
            (99, None, "chronic", 1.0),
        ]
    (clipped,) = [fact for fact in guard.run().facts if fact.kind == "clipped"]
    assert clipped.count == 150 and clipped.numbers["norm"] > 1
