"""A compiled model under Guard: the same origin, causes and run afterwards as of its eager twin."""

import pytest
import torch
from test_reproducible import step_of
from torch import nn

import firstfault as ff
from firstfault import _core

pytestmark = pytest.mark.usefixtures("fresh_compiler")


class LogOfZero(nn.Module):
    """Forward: the log of a 0."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 4), nn.Tanh())

    def forward(self, x):
        return self.inner(x) + x.relu().log()


class MaskedAttention(nn.Module):
    """Forward: the softmax of a row that is wholly masked."""

    def __init__(self):
        super().__init__()
        self.query, self.out = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        padding = x[:, 0] == 0
        scores = (self.query(x) @ x.T).masked_fill(padding[:, None], float("-inf"))
        return self.out(scores.softmax(-1) @ x)


class LengthOfZero(nn.Module):
    """Backward: the derivative of a square root at 0."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4, bias=False)

    def forward(self, x):
        return self.fc(x).square().sum(1).sqrt()


class Twice(nn.Module):
    """Backward, in a module inside: the derivative of a power below 1 at 0."""

    def __init__(self):
        super().__init__()
        self.first, self.power = nn.Linear(4, 4, bias=False), Power()

    def forward(self, x):
        return self.power(self.first(x))


class Power(nn.Module):
    def forward(self, h):
        return h.abs().pow(0.5)


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        return self.fc(x)


class Exponential(nn.Module):
    """Forward: an exp beyond float32."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        return (0.01 * self.fc(x) + x).exp()


def mean(out, x):
    return out.mean()


def ratio(out, x):
    """A loss that divides by 0 where the batch is 0."""
    return out.square().sum() / x.abs().sum()


def batch(seed):
    return torch.rand(6, 4, generator=torch.Generator().manual_seed(seed)) + 0.5


def with_row(value):
    def spoil(x):
        x[2] = value
        return x

    return spoil


# (model, loss, what is done to the batch, op, phase)
FAULTS = {
    "forward_log": (LogOfZero, mean, with_row(0.0), "aten::log", "forward"),
    "forward_softmax": (MaskedAttention, mean, with_row(0.0), "aten::_softmax", "forward"),
    "backward_sqrt": (LengthOfZero, mean, with_row(0.0), "SqrtBackward0", "backward"),
    "backward_pow": (Twice, mean, with_row(0.0), "PowBackward0", "backward"),
    "loss_div": (Plain, ratio, lambda x: x * 0, "aten::div", "forward"),
    "forward_exp": (Exponential, mean, with_row(200.0), "aten::exp", "forward"),
}
QUICK = ("forward_softmax", "backward_sqrt")  # inductor takes seconds for each


def train(name, compiled, **options):
    Net, loss_of, spoil, *_ = FAULTS[name]
    torch.manual_seed(0)
    net = Net()
    model = torch.compile(net) if compiled else net
    loss_of = torch.compile(loss_of) if compiled else loss_of
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    train_step = step_of(model, optimizer, loss_of)
    with ff.guard(model, optimizer, on_fault="skip", **options) as guard:
        for seed in range(6):
            x = batch(seed)
            guard.step(train_step, spoil(x) if seed == 4 else x)
    return guard, net


def first_origin(guard):
    origin = next(one for one in guard.run().origins if one.sink)
    return origin.step, origin.phase, origin.op, origin.forward_op, origin.module, origin.file, origin.line


def best(guard):
    one = guard.explain()[0]
    return one.cause, one.standing, one.mechanism, one.op, one.module, one.line, one.sample


def marked(names):
    return [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in names]


@pytest.mark.parametrize("name", marked(FAULTS))
def test_the_origin_is_that_of_the_eager_twin(name):
    """Whether the watch saw the compiled region, or no op at all."""
    eager, _ = train(name, compiled=False)
    for level in ("ops", "gradients"):
        compiled, _ = train(name, compiled=True, level=level)
        assert first_origin(compiled) == first_origin(eager)
        assert first_origin(compiled)[1:3] == FAULTS[name][:2:-1]
        assert best(compiled) == best(eager)
        assert [(one.step, one.action, one.fault) for one in compiled.actions] == [(4, "skip", eager.actions[0].fault)]


def test_the_origin_of_a_compiled_step_is_in_the_run_file(tmp_path):
    guard, _ = train("backward_sqrt", compiled=True, run_file=tmp_path / "a.ffrun")
    read = ff.read_run(tmp_path / "a.ffrun")
    assert [one.op for one in read.origins if one.sink] == ["SqrtBackward0"]
    assert all(one.replayed for one in read.origins if one.sink)
    one = ff.explain(read)[0]
    assert (one.cause, one.standing, one.op) == (*best(guard)[:2], guard.explain()[0].op)


def test_a_compiled_run_is_bit_for_bit_the_one_that_only_skipped():
    def bits(**options):
        guard, net = train("backward_sqrt", compiled=True, **options)
        return [parameter.detach().clone() for parameter in net.parameters()], _core.experiments_of(guard.run())

    plain, none = bits(experiments=False, replays=0)
    parameters, made = bits()
    assert none == [] and sum(one.replays for one in made) >= 4
    assert all(map(torch.equal, plain, parameters))


class Dropped(nn.Module):
    """NaN where the random numbers of compiled code, which are others than eager's, leave exactly one unit."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        return torch.dropout(self.fc(x) * 0 + x, 0.5, self.training)


def test_what_fails_only_as_it_was_compiled_is_called_neither_proved_nor_a_race():
    model = Dropped()
    compiled = torch.compile(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(3)
    mask = (compiled(torch.ones(6, 4)) != 0).detach()  # as compiled code draws it
    torch.manual_seed(3)
    assert not torch.equal(mask, model(torch.ones(6, 4)) != 0)

    def train_step(x):
        optimizer.zero_grad()
        torch.manual_seed(3)
        out = compiled(x)
        same = torch.equal(out != 0, mask) and x[0, 0] == 2
        loss = out.mean() * (float("nan") if same else 1.0)
        loss.backward()
        return loss

    with ff.guard(compiled, optimizer, on_fault="skip", level="gradients") as guard:
        guard.step(train_step, torch.ones(6, 4))
        guard.step(train_step, torch.full((6, 4), 2.0))
    assert [one.action for one in guard.actions] == ["skip"]
    (made,) = _core.experiments_of(guard.run())
    assert "as it was compiled, and not when it is run op by op" in made.text
    assert not any(one.standing == "confirmed" or one.cause == "not_reproducible" for one in guard.explain())


def test_names_are_those_of_the_model_that_is_not_compiled():
    net = LogOfZero()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with ff.guard(torch.compile(net), optimizer) as guard:
        names = {module.path for module in guard.run().setup.modules}
    with ff.guard(net, optimizer) as plain:
        assert names == {module.path for module in plain.run().setup.modules}
