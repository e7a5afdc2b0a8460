"""Graphs, policies, mixtures of experts."""

from __future__ import annotations

import torch
from torch import nn
from torch.distributions import Categorical
from torch.nn import functional as F

from ..task import Architecture, Player, Task, generator, supervised
from .dense import layers


class GraphLayer(nn.Module):
    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.own, self.others = nn.Linear(inputs, outputs), nn.Linear(inputs, outputs, bias=False)

    def forward(self, x, edges):
        messages = self.others(x)[edges[0]]
        total = torch.zeros(len(x), messages.shape[1], dtype=messages.dtype).index_add(0, edges[1], messages)
        degree = torch.bincount(edges[1], minlength=len(x)).clamp(min=1)
        return self.own(x) + total / degree[:, None]


class GraphNet(nn.Module):
    def __init__(self, inputs: int, width: int, classes: int):
        super().__init__()
        self.first, self.second = GraphLayer(inputs, width), GraphLayer(width, width)
        self.act = nn.ELU()
        self.head = nn.Linear(width, classes)

    def forward(self, x, edges):
        return self.head(F.relu(self.second(self.act(self.first(x, edges)), edges)))


def gnn(seed: int, width: int, nodes: int) -> Task:
    """The class of a node is in its own features and in those of its neighbours; some nodes have none."""
    own, others = (torch.randn(6, 3, generator=generator(seed, part)) for part in (3, 4))

    def load(number):
        g = generator(seed, 2, number)
        x = torch.randn(nodes, 6, generator=g)
        edges = torch.randint(0, nodes - 2, (2, 2 * nodes), generator=g)
        total = torch.zeros(nodes, 6).index_add(0, edges[1], x[edges[0]])
        mean = total / torch.bincount(edges[1], minlength=nodes).clamp(min=1)[:, None]
        return {"x": x, "y": (x @ own + mean @ others).argmax(1), "edges": edges}

    model = GraphNet(6, width, 3)
    return supervised(model, load, lambda out, given: F.cross_entropy(out, given["y"]), ("x", "edges"))


def policy(seed: int, width: int, batch: int, entropy: float) -> Task:
    """Actor and critic of one step; some actions are forbidden (-Inf)."""
    model = nn.ModuleDict(
        {"body": layers([8, width, width], "tanh"), "actor": nn.Linear(width, 4), "critic": nn.Linear(width, 1)}
    )

    def load(number):
        g = generator(seed, 2, number)
        x = torch.randn(batch, 8, generator=g)
        forbidden = torch.rand(batch, 4, generator=g) < 0.2
        forbidden[:, 0] = False
        return {"x": x, "forbidden": forbidden}

    def act(given):
        hidden = torch.tanh(model["body"](given["x"]))
        logits = model["actor"](hidden).float().masked_fill(given["forbidden"], float("-inf"))
        best = given["x"][:, :4].float().masked_fill(given["forbidden"], float("-inf")).argmax(1)
        return Categorical(logits=logits), model["critic"](hidden).float().squeeze(1), best

    def loss(given):
        chances, value, best = act(given)
        action = chances.sample()
        reward = (action == best).float()
        advantage = (reward - value).detach()
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-6)
        gain = (chances.log_prob(action) * advantage + entropy * chances.entropy()).mean()
        return 0.5 * F.mse_loss(value, reward) - gain

    def failures(given):
        chances, _, best = act(given)
        return 1 - chances.probs.gather(1, best[:, None]).mean()

    return Task({"model": model}, load, [Player("model", loss)], measure=failures)


class Experts(nn.Module):
    """The two best of the experts, by a softmax over -Inf for all others."""

    def __init__(self, width: int, experts: int):
        super().__init__()
        self.router = nn.Linear(width, experts)
        self.experts = nn.ModuleList(layers([width, width], "gelu") for _ in range(experts))
        self.balance = torch.zeros(())

    def forward(self, x):
        scores = self.router(x)
        top, chosen = scores.topk(2, -1)
        gates = torch.full_like(scores, float("-inf")).scatter(-1, chosen, top).softmax(-1)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows = (chosen == number).any(-1).nonzero().squeeze(-1)
            if len(rows):
                out = out.index_add(0, rows, (gates[rows, number, None] * expert(x[rows])).to(out.dtype))
        self.balance = len(self.experts) * gates.mean(0).float().square().sum()
        return out


def moe(seed: int, width: int, experts: int, batch: int) -> Task:
    """Which linear map holds depends on the region; the load of the experts is balanced by a term of the loss."""
    maps, regions = torch.randn(4, 8, 1, generator=generator(seed, 1)), torch.randn(8, 4, generator=generator(seed, 5))
    model = nn.ModuleDict({"embed": nn.Linear(8, width), "moe": Experts(width, experts), "head": nn.Linear(width, 1)})

    def load(number):
        x = torch.randn(batch, 8, generator=generator(seed, 2, number))
        every = torch.einsum("nf,efo->neo", x, maps) / 8**0.5
        return {"x": x, "y": every[torch.arange(batch), (x @ regions).argmax(1)] + x[:, :1]}

    def predict(given):
        return model["head"](model["moe"](model["embed"](given["x"]))).float()

    def fit(out, given):
        return F.mse_loss(out, given["y"])

    task = Task({"model": model}, load, predict=predict, criterion=fit)
    task.players = [
        Player("model", lambda given: task.criterion(task.predict(given), given) + 0.01 * model["moe"].balance)
    ]
    task.measure = lambda given: fit(predict(given), given)
    return task


ARCHITECTURES = [
    Architecture(
        "gnn", gnn, {"width": (16, 24), "nodes": (24, 40)}, adam=5e-3, sgd=0.2, traits=frozenset({"floats", "classes"}),
        amp=("none", "none", "bf16"), steps=(60, 140),
    ),
    Architecture(
        "policy", policy, {"width": (24, 32), "batch": (48, 64), "entropy": (0.0, 0.01)}, adam=5e-3, sgd=0.2,
        traits=frozenset({"floats"}), amp=("none", "none", "bf16"), steps=(100, 200),
    ),
    Architecture(
        "moe", moe, {"width": (12, 16), "experts": (3, 4), "batch": (24, 32)}, adam=6e-3, sgd=0.1,
        traits=frozenset({"floats", "values", "moe"}), steps=(80, 160),
    ),
]  # fmt: skip
