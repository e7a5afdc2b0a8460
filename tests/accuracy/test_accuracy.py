"""The generator of faulty runs and the scorer, tested by themselves; `make test-accuracy` scores the tool."""

import collections
import random
import subprocess
import sys
from types import SimpleNamespace

import pytest

from . import program, verify
from .architectures import ARCHITECTURES
from .faults import BY_NAME, FAULTS
from .faults.fault import Fault
from .site import Site, draw_draft
from .truth import DATA, LOOP, LOSS, MODULE, Harm, Place, Truth

score = pytest.importorskip("tests.accuracy.score")

NAN = "nan_in_target"


def losses(fault, steps, seed=3):
    training = program.draw(seed, 0, 0, fault)[0].training()
    return [float(training.step(step)) for step in range(steps)]


def test_there_are_enough_architectures_and_kinds_of_fault():
    assert len(ARCHITECTURES) >= 14
    assert len(BY_NAME) >= 40
    runs = [(seed, index) for seed in range(3) for index in range(60)]
    kinds = collections.Counter(program.fault_of(*run) for run in runs)
    assert kinds.pop(None) == 60
    assert kinds.keys() == BY_NAME.keys()
    healthy = collections.Counter(
        program.architecture_of(*run, attempt=0, fault=None) for run in runs if program.fault_of(*run) is None
    )
    assert min(healthy.values()) >= 3 and healthy.keys() == ARCHITECTURES.keys()
    first, later = (program.architecture_of(0, 2, attempt, None) for attempt in (0, program.ATTEMPTS))
    assert first != later


def test_the_generator_does_not_know_the_tool():
    code = "import sys, tests.accuracy.generate; sys.exit('firstfault' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_run_has_the_same_numbers_each_time_and_others_under_another_seed():
    assert losses(None, 4) == losses(None, 4)
    assert losses(None, 4) != losses(None, 4, seed=4)


def test_a_fault_in_one_batch_changes_nothing_before_it():
    site, truth = program.draw(3, 0, 0, NAN)
    faulty, healthy = site.training(), program.staged(3, 0, 0, NAN).training()
    for step in range(truth.onset):
        assert float(faulty.step(step)) == float(healthy.step(step))
    assert float(faulty.step(truth.onset)) != float(healthy.step(truth.onset))


@pytest.mark.parametrize("fault", [fault.name for fault in FAULTS[::7]])
def test_what_is_put_in_does_not_depend_on_when_it_is_asked_for(fault):
    assert program.draw(5, 1, 2, fault)[1] == program.draw(5, 1, 2, fault)[1]


def test_a_harmful_fault_is_taken_with_the_step_of_its_harm():
    found = next(p for p in (program.attempted(3, 0, attempt, NAN)[0] for attempt in range(5)) if p)
    _, truth = found.build()
    assert found.harm.kind == "non-finite"
    assert found.harm.first_bad == truth.onset
    assert found.steps <= truth.onset + verify.AFTER + 4


def test_a_fault_without_harm_is_rejected(monkeypatch):
    def nothing(_site: Site) -> Truth:
        return Truth("lr_too_high", Place(LOOP), 0, diffuse=True)

    monkeypatch.setitem(BY_NAME, "nothing", Fault(nothing))
    reasons = {program.attempted(3, 0, attempt, "nothing")[1] for attempt in range(3)}
    assert all("no harm" in reason or "learnt too little" in reason for reason in reasons)
    assert any("no harm" in reason for reason in reasons)


def test_harm_before_the_fault_contradicts_the_truth():
    truth = Truth("data_nonfinite", Place(DATA), 9)
    run = verify.Measured(1.0, 1.0)
    assert "before" in program.contradiction(truth, run, Harm("non-finite", 4, first_bad=4, visible=4))
    assert "long after" in program.contradiction(truth, run, Harm("non-finite", 40, first_bad=40, visible=40))
    assert program.contradiction(truth, run, Harm("non-finite", 9, first_bad=9, visible=9)) == ""


def test_a_spike_counts_at_the_fault_only():
    twin = verify.Measured(1.0, 0.1, [1.0] * 20)
    run = verify.Measured(1.0, 0.1, [1.0] * 12 + [50.0] + [1.0] * 7)
    assert verify.harm(run, twin, Truth("data_outlier", Place(DATA), 12), 0.25).kind == "spike"
    assert verify.harm(run, twin, Truth("data_outlier", Place(DATA), 3), 0.25).kind == ""


def said(
    cause="op_domain", step=12, onset_step=None, phase="forward", module=None, param=None, sample=None, confidence=0.95
):
    return SimpleNamespace(**locals())


def verdict(truth, *hypotheses, harm=None, players=1):
    found = SimpleNamespace(harm=harm or Harm("non-finite", 12, 12, 12), steps=100, name="0:0", fault="x")
    return score.Verdict(found, truth, list(hypotheses), players=players)


def test_the_scorer_wants_cause_module_and_step():
    truth = Truth("op_domain", Place(MODULE, ("body.2",), (3,)), 12)
    right = verdict(truth, said(module="model.body.2", sample=3))
    assert right.cause_right and right.place_right
    assert not verdict(truth, said(module="body.1")).where_right
    assert not verdict(truth, said(module="body.2", sample=4)).where_right
    assert not verdict(truth, said(module="body.2", step=30)).place_right
    assert not verdict(truth, said("overflow", module="body.2")).cause_right
    assert verdict(truth, said(module=None, param="body.2.weight")).where_right
    assert not verdict(truth).cause_right and not verdict(truth).place_right


def test_the_scorer_takes_the_loss_the_data_and_the_loop_for_places():
    assert verdict(Truth("op_domain", Place(LOSS), 12), said(module=None)).where_right
    assert not verdict(Truth("op_domain", Place(LOSS), 12), said(module="head")).where_right
    assert verdict(Truth("data_nonfinite", Place(DATA), 12), said("data_nonfinite", phase="data")).where_right
    assert not verdict(Truth("data_nonfinite", Place(DATA), 12), said("op_domain", module="head")).where_right
    assert verdict(Truth("lr_too_high", Place(LOOP), 12), said("lr_too_high")).where_right
    assert not verdict(Truth("lr_too_high", Place(LOOP), 12), said("overflow")).where_right


def test_a_slow_fault_may_be_seen_anywhere_between_its_beginning_and_its_harm():
    truth, harm = Truth("lr_too_high", Place(LOOP), 10, diffuse=True), Harm("not learnt", 1.0, None, 40)
    assert verdict(truth, said("lr_too_high", step=25), harm=harm).place_right
    assert verdict(truth, said("lr_too_high", step=90, onset_step=10), harm=harm).place_right
    assert not verdict(truth, said("lr_too_high", step=2), harm=harm).place_right
    assert not verdict(truth, said("lr_too_high", step=90), harm=harm).place_right


def test_the_score_counts_confidence_and_confusions():
    truth = Truth("op_domain", Place(LOSS), 12)
    faulty = [verdict(truth, said()), verdict(truth, said("overflow", confidence=0.4)), verdict(truth)]
    healthy = [verdict(None), verdict(None, said())]
    total = score.Score(faulty + healthy)
    counts = {what: count for what, count, *_ in total.numbers()}
    assert counts["cause right"] == "1 of 3"
    assert counts["right among those with confidence >= 0.9"] == "1 of 1"
    assert counts["healthy runs with anything said"] == "1 of 2 (1 hypotheses, 0 events)"
    assert total.brier() == pytest.approx((0.05**2 + 0.4**2) / 2)
    assert total.confusions() == [("op_domain", 3, 1, 2, "overflow, nothing")]  # the place may be right alone
    assert not total.met


def test_a_draft_is_drawn_within_what_its_architecture_allows():
    rng = random.Random(0)
    for _ in range(50):
        draft = draw_draft(rng)
        low, high = draft.architecture.steps
        assert low <= draft.recipe.steps <= high
        assert draft.recipe.amp in draft.architecture.amp
