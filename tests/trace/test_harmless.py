"""Watching changes nothing, and nothing of ours reaches the training: bit-for-bit, failures, forks, threads, memory."""

import gc
import os
import resource
import subprocess
import sys
import textwrap
import threading

import pytest
import torch
from torch import nn

import firstfault as ff
from firstfault import _live

OP_START, OP_END, NODE_START, MEASURE, EVIDENCE, OPTIMIZER = range(1, 7)


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout2d(0.2)
        )
        self.norm = nn.LayerNorm(8 * 4 * 4)
        self.head = nn.Sequential(nn.Linear(8 * 4 * 4, 16), nn.GELU(), nn.Dropout(0.3), nn.Linear(16, 5))

    def forward(self, x):
        return self.head(self.norm(self.features(x).flatten(1)))


def train(steps, traced, fail_at=0):
    """Everything that a step leaves behind, as bytes."""
    torch.manual_seed(7)
    model = ConvNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    tracker = ff.trace()
    if traced:
        tracker.watch(model)
        tracker.start()
    record = []
    try:
        for step in range(steps):
            if step == 3 and fail_at:
                _live._fail_at(fail_at)
            x, y = torch.randn(6, 3, 8, 8), torch.randint(0, 5, (6,))
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y, label_smoothing=0.1)
            loss.backward()
            record += [loss.detach().clone()] + [p.grad.clone() for p in model.parameters()]
            optimizer.step()
            scheduler.step()
    finally:
        _live._fail_at(0)
        tracker.stop()
    record += [v.clone() for v in model.state_dict().values()] + [torch.get_rng_state()]
    for state in optimizer.state.values():
        record += [v.clone() for v in state.values() if isinstance(v, torch.Tensor)]
    return record, tracker


def assert_same(a, b):
    assert len(a) == len(b)
    for one, other in zip(a, b, strict=True):
        assert torch.equal(one, other)


def test_fifty_steps_are_the_same_bit_for_bit_traced_and_not():
    plain, _ = train(50, traced=False)
    observed, tracker = train(50, traced=True)
    assert_same(plain, observed)
    assert tracker.run().steps == 50
    assert tracker.run().ops > 50 * 100
    assert tracker.origins() == []


@pytest.mark.parametrize("point", [OP_START, OP_END, NODE_START, MEASURE, OPTIMIZER])
def test_a_failure_inside_a_callback_switches_the_tool_off_once_and_the_training_goes_on(point, capfd):
    plain, _ = train(8, traced=False)
    observed, tracker = train(8, traced=True, fail_at=point)
    assert_same(plain, observed)
    assert capfd.readouterr().err.count("switched itself off") == 1
    assert any("a test made the observer fail here" in w for w in tracker.run().warnings)


def test_a_failure_while_reading_evidence_does_not_reach_the_program(capfd):
    tracker = ff.trace()
    _live._fail_at(EVIDENCE)
    try:
        with tracker:
            out = torch.log(torch.zeros(3))
    finally:
        _live._fail_at(0)
    assert torch.isneginf(out).all()
    assert capfd.readouterr().err.count("switched itself off") == 1


def test_an_exception_in_the_block_ends_the_trace_and_comes_through(tracker):
    model = nn.Linear(2, 2)
    with pytest.raises(ZeroDivisionError), tracker:
        tracker.watch(model)
        loss = model(torch.ones(1, 2)).log().sum()
        1 / 0
    assert not tracker.running
    with ff.trace() as again:  # the place is free
        torch.ones(2)
    assert not again.running
    assert tracker.run().ops > 0 and loss is not None


def test_an_op_that_throws_leaves_the_trace_in_order(tracker):
    with tracker:
        with pytest.raises(RuntimeError):
            torch.ones(2, 3) @ torch.ones(2, 3)
        bad = torch.log(torch.zeros(2))
    assert tracker.diagnose(bad).culprits[0].op == "aten::log"


def test_a_nested_trace_is_an_error_that_says_so(tracker):
    with tracker:
        with pytest.raises(RuntimeError, match="do not nest"), ff.trace():
            pass
        with pytest.raises(RuntimeError, match="this trace is running"):
            tracker.start()
        bad = torch.log(torch.zeros(2))
    assert tracker.has_issue(bad)


def test_a_tensor_that_no_observed_op_produced_is_a_key_error_that_says_why(tracker):
    before = torch.full((3,), float("nan"))
    with tracker:
        torch.ones(2) + 1
    with pytest.raises(KeyError, match="no op that this trace observed produced this tensor"):
        tracker.has_issue(before)
    with pytest.raises(KeyError):
        tracker.diagnose(before)
    with pytest.raises(TypeError):
        tracker.diagnose("loss")


def test_start_and_stop_do_without_with(tracker):
    assert tracker.start() is tracker
    bad = torch.log(torch.zeros(2))
    tracker.stop()
    tracker.stop()
    after = torch.log(torch.zeros(2))
    assert tracker.has_issue(bad)
    assert len(tracker.diagnose(bad).culprits) == 1
    with pytest.raises(KeyError):
        tracker.diagnose(after)


def test_bad_options_are_refused_with_what_they_take():
    with pytest.raises(ValueError, match="'forwards'; it takes 'forward', 'backward', 'optimizer'"):
        ff.trace(include=("forwards",))
    with pytest.raises(ValueError, match="max_ops is 0"):
        ff.trace(max_ops=0)
    model = nn.Linear(1, 1)
    tracker = ff.trace()
    tracker.watch(model)
    with pytest.raises(ValueError, match="'model' is taken"):
        tracker.watch(model)


def test_phases_that_are_left_out_are_not_looked_at():
    x = torch.zeros(2, requires_grad=True)
    with ff.trace(include=("backward",)) as tracker:
        torch.log(torch.zeros(2))
        x.sqrt().sum().backward()
    assert [origin.op for origin in tracker.origins()] == ["SqrtBackward0"]


def test_after_max_ops_nothing_is_looked_at():
    with ff.trace(max_ops=10) as tracker:
        for _ in range(20):
            torch.ones(1) + 1
        torch.log(torch.zeros(2))
    assert tracker.origins() == []


def run_python(code, **env):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **env},
    )


def test_the_environment_switches_everything_off():
    done = run_python(
        """
        import torch, firstfault as ff
        with ff.trace() as t:
            bad = torch.log(torch.zeros(2))
        print(t.running, t.origins(), t.has_issue(bad), t.run().ops, "FIRSTFAULT=0" in str(t.diagnose(bad)))
        """,
        FIRSTFAULT="0",
    )
    assert done.stdout.split() == ["False", "[]", "False", "0", "True"], done.stderr


def test_a_forked_child_observes_nothing_and_the_parent_goes_on():
    done = run_python(
        """
        import os, torch, firstfault as ff
        with ff.trace() as t:
            a = torch.log(torch.zeros(2))
            ops = t.run().ops
            child = os.fork()
            if child == 0:
                b = torch.sqrt(-torch.ones(2))     # must not be recorded here, nor hang
                own = ff.trace()
                ok = t.run().ops == ops
                with own:
                    c = torch.log(torch.zeros(2))  # a trace of the child's own works
                ok = ok and own.has_issue(c)
                os._exit(0 if ok else 3)
            _, status = os.waitpid(child, 0)
            d = torch.sqrt(-torch.ones(2))
        print(os.waitstatus_to_exitcode(status), sorted(o.op for o in t.origins()))
        """
    )
    assert done.stdout.strip() == "0 ['aten::log', 'aten::sqrt']", done.stdout + done.stderr


def test_dataloader_workers_and_exit_while_tracing_work():
    done = run_python(
        """
        import torch, firstfault as ff
        from torch.utils.data import DataLoader, TensorDataset
        loader = DataLoader(TensorDataset(torch.randn(32, 4)), batch_size=8, num_workers=2)
        t = ff.trace().start()
        total = sum(float(x.sum()) for (x,) in loader)
        print("ok", t.origins())
        """
    )
    assert done.returncode == 0 and done.stdout.strip() == "ok []", done.stdout + done.stderr


def test_four_python_threads_train_under_one_trace_without_a_deadlock():
    results = {}

    def work(index):
        generator = torch.Generator().manual_seed(index)
        model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(60):
            optimizer.zero_grad()
            loss = model(torch.randn(4, 8, generator=generator)).square().mean()
            loss.backward()
            optimizer.step()
        if index == 2:
            loss = torch.log(loss * 0)
        results[index] = loss

    with ff.trace() as tracker:
        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert sorted(results) == [0, 1, 2, 3]
    assert tracker.diagnose(results[2]).culprits[0].op == "aten::log"
    assert [o.op for o in tracker.origins()] == ["aten::log"]


def test_tensors_are_not_kept_alive(tracker):
    import weakref

    with tracker:
        x = torch.randn(100, requires_grad=True)
        loss = torch.log(x * 0).sum()
        gone = weakref.ref(loss)
        del loss
        gc.collect()
        assert gone() is None


def rss_kb():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize() // 1024


@pytest.mark.parametrize("faulty", [False, True], ids=["healthy", "with a masked NaN in every step"])
def test_six_thousand_traced_steps_keep_memory_flat(faulty):
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters())
    x, y = torch.randn(8, 16), torch.randn(8, 1)
    with ff.trace() as tracker:
        tracker.watch(model)
        for step in range(6000):
            optimizer.zero_grad()
            out = model(x)
            if faulty:
                out = torch.where(y.abs() > 0, out, torch.sqrt(-1 - y.abs()))
            loss = nn.functional.mse_loss(out, y)
            loss.backward()
            optimizer.step()
            if step == 1500:
                gc.collect()
                settled = rss_kb()
    gc.collect()
    assert rss_kb() - settled < 2048
    assert all(origin.absorbed for origin in tracker.origins())
    assert len(tracker.origins()) == (1 if faulty else 0)


def test_memory_that_a_bad_value_left_and_a_gradient_took_does_not_lend_it_the_parameters_name():
    def traced(tensors_before):  # so many that the table of storages is cleared between the fault and the gradients
        model = nn.Linear(16, 1)
        x, y = torch.randn(8, 16), torch.randn(8, 1)
        with ff.trace() as tracker:
            tracker.watch(model)
            out = model(x)
            kept = [torch.ones(1) for _ in range(tensors_before)]
            torch.where(y.abs() > 0, out, torch.sqrt(-1 - y.abs())).square().mean().backward()
        assert len(kept) == tensors_before
        return [origin.param for origin in tracker.origins()]

    assert [traced(n) for n in range(2020, 2050)] == [[None]] * 30


def test_dropping_a_running_trace_while_threads_work_does_not_hang():
    done = run_python(
        """
        import threading, time, torch, firstfault as ff
        stop = False
        def work():
            while not stop:
                exec("torch.ones(3) + 1", {"torch": torch})
        threads = [threading.Thread(target=work) for _ in range(3)]
        for t in threads: t.start()
        for _ in range(5):
            tracker = ff.trace().start()
            time.sleep(0.02)
            del tracker
        stop = True
        for t in threads: t.join()
        print("ok")
        """
    )
    assert done.stdout.strip() == "ok", done.stderr


def test_a_trace_of_a_forked_childs_own_is_right():
    done = run_python(
        """
        import os, torch, firstfault as ff
        from torch import nn
        t = ff.trace().start()
        child = os.fork()
        if child == 0:
            model = nn.Linear(2, 1)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            with ff.trace() as own:
                own.watch(model)
                torch.log(model(torch.ones(1, 2)) * 0).sum().backward()
                optimizer.step()
            right = [(o.op, o.sink) for o in own.origins() if o.sink] == [("aten::log", "loss")]
            os._exit(0 if right else 3)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """
    )
    assert done.stdout.strip() == "0", done.stderr
