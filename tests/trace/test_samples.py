"""The sample of the batch: named where the batch axis is known to come through, None elsewhere. Never a wrong one."""

import pytest
import torch
from torch import nn

import firstfault as ff


def sample_of(model, x, make_loss=lambda y: y.sum()):
    with ff.trace() as tracker:
        tracker.watch(model)
        loss = make_loss(model(x))
    culprits = tracker.diagnose(loss).culprits
    assert len(culprits) == 1, [str(culprit) for culprit in culprits]
    return culprits[0]


class Log(nn.Module):
    """log of what is far below 0 only in the marked sample."""

    def forward(self, x):
        return torch.log(x)


def batch(rows, bad, features=4):
    x = torch.ones(rows, features)
    x[bad] = -1.0
    return x


def positive(linear):
    with torch.no_grad():
        linear.weight.fill_(1.0)
        linear.bias.fill_(0.0)
    return linear


@pytest.mark.parametrize("bad", [0, 5])
def test_rows_of_features_carry_the_sample_through_linear_layers(bad):
    model = nn.Sequential(positive(nn.Linear(4, 3)), Log())
    origin = sample_of(model, batch(6, bad))
    assert (origin.op, origin.sample, origin.index[0]) == ("aten::log", bad, bad)


def test_images_carry_it_through_convolutions_and_pooling():
    conv = nn.Conv2d(1, 2, 3)
    with torch.no_grad():
        conv.weight.fill_(1.0)
        conv.bias.zero_()
    x = torch.ones(4, 1, 8, 8)
    x[2] = -1.0
    origin = sample_of(nn.Sequential(conv, nn.AvgPool2d(2), Log()), x)
    assert (origin.op, origin.sample) == ("aten::log", 2)


def test_flattened_tokens_name_the_sample_and_not_the_token():
    class Tokens(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(10, 4)
            with torch.no_grad():
                self.embed.weight.fill_(1.0)
                self.embed.weight[7].fill_(-1.0)

        def forward(self, ids):
            return torch.log(self.embed(ids).reshape(-1, 4))  # (batch * tokens, 4)

    ids = torch.zeros(3, 5, dtype=torch.long)
    ids[1, 2] = 7
    origin = sample_of(Tokens(), ids)
    assert origin.index[0] == 7  # row of the flattened tensor
    assert origin.sample in (1, None)


def test_heads_folded_into_the_batch_name_the_sample():
    class Heads(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(10, 8)
            with torch.no_grad():
                self.embed.weight.fill_(1.0)
                self.embed.weight[7].fill_(-1.0)

        def forward(self, ids):
            x = self.embed(ids)  # (batch, tokens, 8)
            rows, tokens, _ = x.shape
            x = x.view(rows, tokens, 2, 4).transpose(1, 2).reshape(rows * 2, tokens, 4)
            return torch.log(x)

    ids = torch.zeros(3, 5, dtype=torch.long)
    ids[2, 0] = 7
    origin = sample_of(Heads(), ids)
    assert origin.index[0] == 4  # batch * heads
    assert origin.sample in (2, None)


def test_heads_folded_before_the_batch_are_not_taken_for_samples():
    class Heads(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = positive(nn.Linear(4, 8))

        def forward(self, x):
            x = self.linear(x).view(x.shape[0], 2, 4).transpose(0, 1).reshape(-1, 4)  # (heads * batch, 4)
            return torch.log(x)

    origin = sample_of(Heads(), batch(6, 3))
    assert origin.index[0] == 3 and origin.sample in (3, None)


@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM])
@pytest.mark.parametrize("batch_first", [False, True])
def test_after_a_recurrent_layer_no_sample_is_named(kind, batch_first):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.recurrent = kind(4, 3, batch_first=batch_first)

        def forward(self, x):
            y, _ = self.recurrent(x)
            return torch.log(y - 5.0)

    assert sample_of(Net(), torch.ones(5, 2, 4)).sample is None


def test_time_first_input_to_a_linear_layer_names_no_time_step():
    class TimeFirst(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = positive(nn.Linear(4, 4))

        def forward(self, x):  # (time, batch, features)
            return torch.log(self.linear(x))

    x = torch.ones(7, 3, 4)
    x[5, 1] = -1.0
    assert sample_of(TimeFirst(), x).sample is None


def test_a_transposed_batch_is_followed_and_a_mixed_one_given_up():
    class Transposed(nn.Module):
        def __init__(self, mix):
            super().__init__()
            self.linear, self.mix = positive(nn.Linear(4, 4)), mix

        def forward(self, x):
            y = self.linear(x).t()  # (features, batch)
            if self.mix:
                y = y @ torch.ones(6, 6)
            return torch.log(y)

    followed = sample_of(Transposed(mix=False), batch(6, 3))
    assert (followed.sample, followed.index[1]) == (3, 3)
    assert sample_of(Transposed(mix=True), batch(6, 3) - 5).sample is None


def test_the_loss_over_samples_names_the_sample():
    model = nn.Sequential(positive(nn.Linear(4, 1)))
    target = torch.ones(6, 1)
    origin = sample_of(model, batch(6, 2), lambda y: (target * torch.log(y)).mean())
    assert (origin.op, origin.sample) == ("aten::log", 2)


def test_a_batch_whose_samples_were_shuffled_by_index_gives_up():
    class Shuffled(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = positive(nn.Linear(4, 4))

        def forward(self, x):
            return torch.log(self.linear(x)[torch.tensor([5, 4, 3, 2, 1, 0])])

    origin = sample_of(Shuffled(), batch(6, 1))
    assert origin.index[0] == 4 and origin.sample in (1, None)
