"""Faults that twins.cpp has too, under the same names: both must get the same diagnosis, each with a line of its own.

usage: python twins.py   prints one JSON object per fault and line
"""

import json

import torch
from torch import nn

import firstfault as ff

INF = float("inf")
NAN = float("nan")


def linear(weight):
    layer = nn.Linear(weight.size(1), weight.size(0))
    with torch.no_grad():
        layer.weight.copy_(weight)
        layer.bias.zero_()
    return layer


class Log(nn.Module):
    def forward(self, x):
        return torch.log(x)  # <- log_in_a_module


class LogNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = linear(torch.eye(2))
        self.log = Log()

    def forward(self, x):
        return self.log(self.fc(x))


def log_in_a_module():
    model = LogNet()
    x = torch.tensor([[1.0, 2.0], [3.0, 0.0]])
    with ff.trace() as trace:
        trace.watch(model, "model")
        return trace.diagnose(model(x).sum())


class TwoLayers(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = linear(torch.eye(2))
        self.second = linear(torch.eye(2))

    def forward(self, x):
        x = torch.relu(self.first(x))
        return self.second(x)  # <- nan_in_a_parameter


def nan_in_a_parameter():
    model = TwoLayers()
    x = torch.ones(3, 2)
    model.second.weight.detach().numpy()[1, 0] = NAN
    with ff.trace() as trace:
        trace.watch(model, "model")
        return trace.diagnose(model(x).sum())


class Norm(nn.Module):
    def forward(self, x):
        squares = (x * x).sum(1)
        return torch.sqrt(squares)  # <- root_backward_at_zero


class NormNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = linear(torch.eye(2))
        self.norm = Norm()

    def forward(self, x):
        return self.norm(self.fc(x))


def root_backward_at_zero():
    model = NormNet()
    x = torch.tensor([[3.0, 4.0], [1.0, 1.0], [0.0, 0.0]])
    with ff.trace() as trace:
        trace.watch(model, "model")
        model(x).sum().backward()
        return trace.diagnose(model.fc.weight.grad)


def loss_outside_the_model():
    model = TwoLayers()
    x = torch.tensor([[0.5, 0.25], [0.75, 1.0]])
    with ff.trace() as trace:
        trace.watch(model, "model")
        p = model(x)
        loss = -torch.log(1 - p).mean()  # <- loss_outside_the_model
        return trace.diagnose(loss)


class Weights(nn.Module):
    def forward(self, q, k, mask):
        scores = torch.matmul(q, k.transpose(1, 2)).masked_fill(mask, -INF)
        return torch.softmax(scores, -1)  # <- fully_masked_row


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = linear(torch.eye(2))
        self.key = linear(torch.eye(2))
        self.weights = Weights()

    def forward(self, x, mask):
        return self.weights(self.query(x), self.key(x), mask)


def fully_masked_row():
    model = Attention()
    x = torch.ones(2, 3, 2)
    mask = torch.zeros(2, 3, 3, dtype=torch.bool)
    mask[0, 0, 1] = True
    mask[1, 2] = True
    with ff.trace() as trace:
        trace.watch(model, "model")
        return trace.diagnose(model(x, mask).sum())


def nan_in_the_batch():
    model = nn.Sequential(linear(torch.eye(2)), linear(torch.eye(2)))
    x = torch.ones(4, 2)
    x[2, 1] = NAN
    with ff.trace() as trace:
        trace.watch(model, "model")
        y = model(x)  # <- nan_in_the_batch
        return trace.diagnose(y.sum())


class RootInPlace(nn.Module):
    def forward(self, x):
        x.sub_(1)
        x.sqrt_()  # <- root_in_place
        return x


class RootNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = linear(torch.eye(3))
        self.root = RootInPlace()

    def forward(self, x):
        return self.root(self.fc(x))


def root_in_place():
    model = RootNet()
    x = torch.tensor([[1.0, 2.0, 3.0], [4.0, 0.5, 6.0]])
    with ff.trace() as trace:
        trace.watch(model, "model")
        return trace.diagnose(model(x).sum())


def third_layer_of_a_sequential():
    model = nn.Sequential(linear(torch.eye(2)), linear(1e20 * torch.eye(2)), linear(1e20 * torch.eye(2)))
    x = torch.tensor([[0.0, 0.0], [0.0, 1.0]])
    with ff.trace() as trace:
        trace.watch(model, "model")
        y = model(x)  # <- third_layer_of_a_sequential
        return trace.diagnose(y.sum())


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.step = linear(1e20 * torch.eye(2))

    def forward(self, x):
        x = self.step(x)
        x = self.step(x)  # <- layer_used_twice
        return x


def layer_used_twice():
    model = Recurrent()
    x = torch.tensor([[0.0, 0.0], [0.0, 1.0]])
    with ff.trace() as trace:
        trace.watch(model, "model")
        return trace.diagnose(model(x).sum())


class Decoder(nn.Module):
    def __init__(self, shared):
        super().__init__()
        self.weight = shared

    def forward(self, x):
        return torch.matmul(x, self.weight)  # <- tied_weights


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = linear(1e20 * torch.eye(2))
        self.decoder = Decoder(self.encoder.weight)

    def forward(self, x):
        return self.decoder(self.encoder(x))


def tied_weights():
    model = Tied()
    x = torch.tensor([[0.0, 0.0], [0.0, 1.0]])
    with ff.trace() as trace:
        trace.watch(model, "model")
        return trace.diagnose(model(x).sum())


class SafeRoot(nn.Module):
    def forward(self, x):
        roots = torch.sqrt(x)  # <- root_that_where_hides
        return torch.where(x > 0, roots, torch.zeros_like(x))


class SafeRootNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = linear(torch.eye(2))
        self.safe_root = SafeRoot()

    def forward(self, x):
        return self.safe_root(self.fc(x))


def root_that_where_hides():
    model = SafeRootNet()
    x = torch.tensor([[1.0, 2.0], [0.0, 3.0]])
    with ff.trace() as trace:
        trace.watch(model, "model")
        model(x).sum().backward()
        return trace.diagnose(model.fc.weight.grad)


def infinite_learning_rate():
    model = TwoLayers()
    optimizer = torch.optim.SGD(model.parameters(), lr=INF)
    x = torch.tensor([[1.0, 0.0]])
    with ff.trace() as trace:
        trace.watch(model, "model")
        model(x).sum().backward()
        optimizer.step()  # <- infinite_learning_rate
        return trace.diagnose(model.first.weight)


# Squares of gradients this small are 0 in half, and so is the default eps of 1e-8.
def adam_in_half():
    model = nn.Sequential(linear(torch.eye(2))).half()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x = torch.tensor([[1.0, 0.0]]).half()
    with ff.trace() as trace:
        trace.watch(model, "model")
        (model(x).sum() * 1e-4).backward()
        optimizer.step()  # <- adam_in_half
        return trace.diagnose(model[0].weight)


class RootFunction(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        root = torch.sqrt(x)
        context.save_for_backward(root)
        return root

    @staticmethod
    def backward(context, gradient):
        (root,) = context.saved_tensors
        return gradient / (2 * root)  # <- custom_function


class CustomRoot(nn.Module):
    def forward(self, x):
        return RootFunction.apply(x)


class CustomNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = linear(torch.eye(2))
        self.root = CustomRoot()

    def forward(self, x):
        return self.root(self.fc(x))


def custom_function():
    model = CustomNet()
    x = torch.tensor([[1.0, 4.0], [9.0, 0.0]])
    with ff.trace() as trace:
        trace.watch(model, "model")
        model(x).sum().backward()
        return trace.diagnose(model.fc.weight.grad)


class Exp(nn.Module):
    def forward(self, x):
        half = x.to(torch.half)
        return torch.exp(half)  # <- exp_in_half


class ExpNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = linear(torch.eye(2))
        self.exp = Exp()

    def forward(self, x):
        return self.exp(self.fc(x))


def exp_in_half():
    model = ExpNet()
    x = torch.tensor([[1.0, 11.0], [2.0, 3.0], [12.0, 4.0]])
    with ff.trace() as trace:
        trace.watch(model, "model")
        return trace.diagnose(model(x).sum())


class MaskedMean(nn.Module):
    def forward(self, x, mask):
        total = (x * mask).sum(1)
        count = mask.sum(1)
        return total / count  # <- zero_over_zero


class MaskedMeanNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = linear(torch.eye(2))
        self.mean = MaskedMean()

    def forward(self, x, mask):
        return self.mean(self.fc(x), mask)


def zero_over_zero():
    model = MaskedMeanNet()
    x = torch.ones(3, 2)
    mask = torch.tensor([[1.0, 1.0], [0.0, 0.0], [0.0, 1.0]])
    with ff.trace() as trace:
        trace.watch(model, "model")
        return trace.diagnose(model(x, mask).sum())


FAULTS = (
    log_in_a_module,
    nan_in_a_parameter,
    root_backward_at_zero,
    loss_outside_the_model,
    fully_masked_row,
    nan_in_the_batch,
    root_in_place,
    third_layer_of_a_sequential,
    layer_used_twice,
    tied_weights,
    root_that_where_hides,
    infinite_learning_rate,
    adam_in_half,
    custom_function,
    exp_in_half,
    zero_over_zero,
)

if __name__ == "__main__":
    torch.set_num_threads(1)
    for fault in FAULTS:
        print(json.dumps({"fault": fault.__name__, "diagnosis": json.loads(fault().to_json())}))
