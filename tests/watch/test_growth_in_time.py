"""By how much the gradient of recurrent layers falls or grows per time step, and what is said about it."""

import pytest
import torch
from torch import nn

import firstfault as ff


class Loop(nn.Module):
    """A cell, called in a loop."""

    def __init__(self, cell, inputs, width):
        super().__init__()
        self.cell = cell(inputs, width)
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        state = None
        for now in x.unbind(1):
            state = self.cell(now, state)
        return self.head(state[0] if isinstance(state, tuple) else state)


class Layer(nn.Module):
    def __init__(self, layer, inputs, width, **options):
        super().__init__()
        self.rnn = layer(inputs, width, batch_first=True, **options)
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        return self.head(self.rnn(x)[0][:, -1])


def scale_recurrent(model, radius):
    for name, parameter in model.named_parameters():
        if "weight_hh" in name:
            with torch.no_grad():
                parameter.copy_(radius * nn.init.orthogonal_(torch.empty_like(parameter)))


def train(model, target, steps, length=60, inputs=1, lr=3e-3):
    generator = torch.Generator().manual_seed(1)
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    with ff.watch(model, optimizer) as run:
        for _ in range(steps):
            x = torch.randn(32, length, inputs, generator=generator)
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), target(x)).backward()
            optimizer.step()
    return run


def growths(run):
    return {fact.detail: fact for fact in run.run().facts if fact.kind == "growth_in_time"}


def first_input(x):
    return x[:, 0, :1]


@pytest.mark.parametrize(
    ("make", "module"),
    [(lambda: Loop(nn.RNNCell, 1, 16), "model.cell"), (lambda: Layer(nn.RNN, 1, 16), "model.rnn")],
    ids=["cell", "layer"],
)
def test_a_first_input_that_does_not_come_through_sixty_time_steps_is_a_gradient_that_vanishes_in_time(make, module):
    torch.manual_seed(0)
    model = make()
    scale_recurrent(model, 0.6)
    run = train(model, first_input, steps=60, lr=1e-2)
    (fact,) = growths(run).values()
    assert fact.module == module and fact.detail.startswith(module + ".weight_hh") and fact.numbers["steps"] == 60
    assert 0.3 < fact.numbers["lambda_first"] < 0.62  # tanh takes its share
    assert fact.numbers["fit"] > 0.9
    first = run.explain()[0]
    assert first.cause == "vanishing_gradient" and first.module == module
    assert first.op == "TanhBackward0" and first.param == fact.detail
    assert "per time step" in first.description and "60 steps ago" in first.description


def test_lambda_is_that_of_the_gradient_itself():
    torch.manual_seed(0)
    model = Layer(nn.RNN, 1, 16)
    scale_recurrent(model, 0.6)
    with torch.no_grad():  # tanh of next to nothing passes all of the gradient
        model.rnn.weight_ih_l0.mul_(1e-3)
        model.rnn.bias_ih_l0.zero_()
        model.rnn.bias_hh_l0.zero_()
    (fact,) = growths(train(model, first_input, steps=1)).values()
    assert fact.numbers["lambda"] == pytest.approx(0.6, abs=0.005)
    assert fact.numbers["first"] / fact.numbers["last"] == pytest.approx(0.6**59, rel=0.5)


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_a_spectral_radius_above_one_is_growth_in_time(activation):
    torch.manual_seed(0)
    model = Layer(nn.RNN, 1, 16, nonlinearity=activation)
    scale_recurrent(model, 1.5)
    with torch.no_grad():
        model.rnn.weight_ih_l0.mul_(1e-6)
        model.rnn.bias_ih_l0.fill_(1e-6)
        model.rnn.bias_hh_l0.zero_()
    run = train(model, first_input, steps=2, length=25)
    (fact,) = growths(run).values()
    assert fact.numbers["lambda_most"] > 1.15
    if activation == "tanh":
        assert fact.numbers["lambda_first"] == pytest.approx(1.5, abs=0.02)


def test_growth_in_time_is_evidence_of_recurrent_weights_that_began_too_large():
    torch.manual_seed(0)
    model = Layer(nn.RNN, 4, 32, nonlinearity="relu")
    with torch.no_grad():
        model.rnn.weight_hh_l0.copy_(1.5 * torch.eye(32) + 0.05 * torch.randn(32, 32))
    run = train(model, first_input, steps=20, length=30, inputs=4)
    first = run.explain()[0]
    assert first.cause == "bad_init" and first.param == "model.rnn.weight_hh_l0"
    assert any("'model.rnn' grows by a factor of" in one.text for one in first.evidence), first.evidence


@pytest.mark.parametrize("layers", [1, 2])
def test_each_layer_of_a_stack_has_its_own(layers):
    torch.manual_seed(0)
    facts = growths(train(Layer(nn.GRU, 3, 8, num_layers=layers), first_input, steps=1, length=20, inputs=3))
    assert sorted(facts) == [f"model.rnn.weight_hh_l{i}" for i in range(layers)]
    assert all(fact.numbers["steps"] == 20 for fact in facts.values())


@pytest.mark.parametrize(
    "make",
    [lambda: Layer(nn.GRU, 1, 16), lambda: Loop(nn.LSTMCell, 1, 16), lambda: Layer(nn.RNN, 1, 16)],
    ids=["gru", "lstm", "rnn"],
)
def test_nothing_is_said_of_a_layer_that_learns_what_is_near(make):
    torch.manual_seed(0)
    run = train(make(), lambda x: x[:, -2:, 0].sum(1, keepdim=True), steps=150, lr=1e-2)
    (fact,) = growths(run).values()
    assert fact.numbers["steps"] == 60 and fact.numbers["lambda"] < 0.9  # it falls, and nothing is lost by it
    assert run.explain() == []


@pytest.mark.parametrize("lr", [1e-4, 1e-3])
def test_nothing_is_said_of_a_layer_that_has_only_begun_to_learn(lr):
    torch.manual_seed(0)
    assert train(Layer(nn.RNN, 1, 16), lambda x: x[:, -2:, 0].sum(1, keepdim=True), steps=50, lr=lr).explain() == []


def test_a_deep_net_and_one_applied_to_many_pieces_are_no_loop_in_time():
    class Pieces(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(10))
            self.head = nn.Linear(8, 1)

        def forward(self, x):
            pieces = [torch.tanh(self.layers[0](piece)) for piece in x.unbind(1)]
            deep = pieces[0]
            for layer in self.layers[1:]:
                deep = torch.tanh(layer(deep))
            return self.head(deep + sum(pieces))

    torch.manual_seed(0)
    assert growths(train(Pieces(), first_input, steps=3, length=12, inputs=8)) == {}


def test_training_is_bit_for_bit_the_same():
    def trained(watched):
        torch.manual_seed(0)
        model = Loop(nn.GRUCell, 2, 8)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        run = ff.watch(model, optimizer) if watched else None
        for _ in range(5):
            optimizer.zero_grad()
            x = torch.randn(4, 12, 2)
            nn.functional.mse_loss(model(x), first_input(x)).backward()
            optimizer.step()
        if run:
            run.close()
            assert growths(run)
        return [*model.parameters(), *(p.grad for p in model.parameters()), torch.randn(3)]

    assert all(torch.equal(a, b) for a, b in zip(trained(False), trained(True), strict=True))
