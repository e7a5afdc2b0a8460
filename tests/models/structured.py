"""Graphs, policies, contrastive and structured losses, physics, data with holes."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.distributions import Categorical, Normal
from torch.nn import functional as F

from .workload import Workload, descend, digit_rows, supervised

NEGATIVE_INFINITY = float("-inf")


def random_graph(nodes: int, edges: int) -> torch.Tensor:
    """Two rows, source and target; the last node has no edge."""
    return torch.randint(0, nodes - 1, (2, edges))


def scatter_softmax(scores: torch.Tensor, target: torch.Tensor, nodes: int) -> torch.Tensor:
    index = target[:, None].expand_as(scores)
    highest = torch.full((nodes, scores.shape[1]), NEGATIVE_INFINITY)
    highest = highest.scatter_reduce(0, index, scores.detach(), "amax")
    exponential = (scores - highest[target]).exp()
    total = torch.zeros(nodes, scores.shape[1]).index_add(0, target, exponential)
    return exponential / total[target]


class GraphAttention(nn.Module):
    def __init__(self, inputs: int, outputs: int, heads: int = 2):
        super().__init__()
        self.heads = heads
        self.values = nn.Linear(inputs, outputs * heads)
        self.source, self.target = nn.Parameter(torch.randn(heads, outputs)), nn.Parameter(torch.randn(heads, outputs))

    def forward(self, x, edges):
        values = self.values(x).unflatten(1, (self.heads, -1))
        scores = (values * self.source).sum(-1)[edges[0]] + (values * self.target).sum(-1)[edges[1]]
        weights = scatter_softmax(F.leaky_relu(scores, 0.2), edges[1], len(x))
        return torch.zeros_like(values).index_add(0, edges[1], weights[..., None] * values[edges[0]]).flatten(1)


def graph_attention() -> Workload:
    """Softmax over the edges of a node; a node without edges keeps the -Inf it started from."""
    model = nn.ModuleDict({"first": GraphAttention(6, 8), "second": GraphAttention(16, 4), "head": nn.Linear(8, 3)})
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

    def loss():
        x, edges = torch.randn(20, 6), random_graph(20, 60)
        hidden = F.elu(model["first"](x, edges))
        logits = model["head"](model["second"](hidden, edges))
        return F.cross_entropy(logits, x[:, :3].argmax(1))

    return supervised(model, optimizer, loss)


class GraphConvolution(nn.Module):
    """Degrees to the power of -1/2; Inf of a node without edges is written over with 0."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)

    def forward(self, x, edges):
        degree = torch.zeros(len(x)).scatter_add_(0, edges[1], torch.ones(edges.shape[1]))
        inverse = degree.pow(-0.5)
        inverse.masked_fill_(inverse == float("inf"), 0.0)
        messages = self.linear(x)[edges[0]] * (inverse[edges[0]] * inverse[edges[1]])[:, None]
        return torch.zeros(len(x), messages.shape[1]).index_add_(0, edges[1], messages)


def graph_convolution() -> Workload:
    """Node losses on a training mask, graph pooling by mean and maximum."""
    model = nn.ModuleList([GraphConvolution(6, 16), GraphConvolution(16, 3), nn.Linear(6, 1)])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)

    def loss():
        x, edges = torch.randn(24, 6), random_graph(24, 50)
        nodes = model[1](F.dropout(F.relu(model[0](x, edges)), 0.3), edges)
        graph = torch.arange(24) // 8
        mean = torch.zeros(3, 3).scatter_reduce(0, graph[:, None].expand(-1, 3), nodes, "mean", include_self=False)
        highest = torch.zeros(3, 3).scatter_reduce(0, graph[:, None].expand(-1, 3), nodes, "amax", include_self=False)
        pooled = model[2](torch.cat([mean, highest], 1)).squeeze(1)
        train = torch.rand(24) < 0.5
        train[0] = True
        return F.cross_entropy(nodes[train], x[train, :3].argmax(1)) + F.mse_loss(pooled, torch.zeros(3))

    return supervised(model, optimizer, loss)


def sparse_adjacency() -> Workload:
    """Messages by a sparse matrix product."""
    model = nn.Sequential(nn.Linear(6, 12), nn.SELU(), nn.AlphaDropout(0.1), nn.Linear(12, 3))
    optimizer = torch.optim.ASGD(model.parameters(), lr=0.02)

    def loss():
        x, edges = torch.randn(16, 6), random_graph(16, 40)
        adjacency = torch.sparse_coo_tensor(edges.flip(0), torch.full((40,), 0.2), (16, 16), check_invariants=False)
        return F.cross_entropy(torch.sparse.mm(adjacency, model(x)) + model(x), x[:, :3].argmax(1))

    return supervised(model, optimizer, loss)


def actor_critic() -> Workload:
    """A policy with forbidden actions (-Inf logits), normalised advantages, an entropy bonus."""
    body = nn.Sequential(nn.Linear(6, 24), nn.Tanh())
    model = nn.ModuleDict({"body": body, "actor": nn.Linear(24, 4), "critic": nn.Linear(24, 1)})
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3, eps=1e-5)

    def loss():
        state = torch.randn(32, 6)
        hidden = model["body"](state)
        forbidden = torch.rand(32, 4) < 0.3
        forbidden[:, 0] = False
        policy = Categorical(logits=model["actor"](hidden).masked_fill(forbidden, NEGATIVE_INFINITY))
        action = policy.sample()
        reward = (action == state[:, :4].argmax(1)).float()
        value = model["critic"](hidden).squeeze(1)
        advantage = (reward - value).detach()
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        return F.mse_loss(value, reward) - (policy.log_prob(action) * advantage + 0.01 * policy.entropy()).mean()

    return supervised(model, optimizer, loss)


def proximal_policy() -> Workload:
    """Clipped ratios over three epochs of one roll-out, a Gaussian policy with a learnt log-deviation."""
    model = nn.ModuleDict({"mean": nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 2))})
    model.register_parameter("log_std", nn.Parameter(torch.zeros(2)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step(_):
        state = torch.randn(32, 3)
        with torch.no_grad():
            policy = Normal(model["mean"](state), model.log_std.exp())
            action = policy.sample()
            old = policy.log_prob(action).sum(1)
        advantage = -(action - state[:, :2]).square().sum(1)
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        for _epoch in range(3):
            policy = Normal(model["mean"](state), model.log_std.exp())
            ratio = (policy.log_prob(action).sum(1) - old).exp()
            gain = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
            loss = descend(optimizer, -(gain.mean() + 0.01 * policy.entropy().sum(1).mean()))
        return loss

    return Workload({"model": model}, step, [optimizer])


def deep_q() -> Workload:
    """A replay buffer that fills up, a target net by lerp, -Inf for forbidden actions."""
    model = nn.Sequential(nn.Linear(4, 24), nn.ReLU(), nn.Linear(24, 3))
    target = nn.Sequential(nn.Linear(4, 24), nn.ReLU(), nn.Linear(24, 3)).requires_grad_(False)
    target.load_state_dict(model.state_dict())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    memory = torch.full((4000, 10), float("nan"))  # rows that nothing was written to

    def step(index):
        rows = memory[16 * index % 4000 :][:16]
        rows.copy_(torch.randn(16, 10))
        batch = memory[torch.randint(0, min(16 * (index + 1), 4000), (24,))]
        action, done = (batch[:, 8].abs() * 2).long().clamp(max=2), batch[:, 9] > 1
        with torch.no_grad():
            following = target(batch[:, 4:8]).masked_fill(torch.tensor([False, False, True]), NEGATIVE_INFINITY)
            wanted = batch[:, 8] + 0.9 * torch.where(done, 0.0, following.amax(1))
        loss = descend(optimizer, F.smooth_l1_loss(model(batch[:, :4]).gather(1, action[:, None]).squeeze(1), wanted))
        with torch.no_grad():
            for slow, fast in zip(target.parameters(), model.parameters(), strict=True):
                slow.lerp_(fast, 0.05)
        return loss

    return Workload({"model": model, "target": target}, step, [optimizer])


def soft_actor() -> Workload:
    """Squashed Gaussian with the stable log-determinant, twin critics, a learnt temperature."""
    actor, critics = (
        nn.Linear(3, 4),
        nn.ModuleList(nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 1)) for _ in "ab"),
    )
    temperature = nn.ParameterDict({"log": torch.zeros(())})
    optimizers = [torch.optim.Adam(m.parameters(), lr=1e-3) for m in (actor, critics, temperature)]

    def step(_):
        state, action = torch.randn(32, 3), torch.rand(32, 2) * 2 - 1
        reward = -(action - state[:, :2].tanh()).square().sum(1, keepdim=True)
        both = torch.cat([state, action], 1)
        descend(optimizers[1], sum(F.mse_loss(critic(both), reward) for critic in critics))
        mean, log_std = actor(state).chunk(2, 1)
        policy = Normal(mean, log_std.clamp(-5, 2).exp())
        raw = policy.rsample()
        log_prob = (policy.log_prob(raw) - 2 * (math.log(2) - raw - F.softplus(-2 * raw))).sum(1, keepdim=True)
        both = torch.cat([state, raw.tanh()], 1)
        value = torch.min(critics[0](both), critics[1](both))
        loss = descend(optimizers[0], (temperature["log"].exp().detach() * log_prob - value).mean())
        descend(optimizers[2], -(temperature["log"] * (log_prob.detach() - 2)).mean())
        return loss

    return Workload({"actor": actor, "critics": critics, "temperature": temperature}, step, optimizers)


def contrastive() -> Workload:
    """NT-Xent with -Inf on the diagonal, and a supervised one with log-sum-exp over positives."""
    model = nn.Sequential(nn.Linear(64, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, 12))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    diagonal = torch.eye(32, dtype=torch.bool)

    def loss():
        x, y = digit_rows(16)
        views = torch.cat([x + 0.1 * torch.randn_like(x), x * (torch.rand_like(x) < 0.8)])
        z = F.normalize(model(views), dim=1)
        logits = (z @ z.t() / 0.2).masked_fill(diagonal, NEGATIVE_INFINITY)
        self_supervised = F.cross_entropy(logits, torch.arange(32).roll(16))
        same = (torch.cat([y, y])[:, None] == torch.cat([y, y])) & ~diagonal
        positives = logits.masked_fill(~same, NEGATIVE_INFINITY)
        return self_supervised + (logits.logsumexp(1) - positives.logsumexp(1)).mean()

    return supervised(model, optimizer, loss)


def optimal_transport() -> Workload:
    """Sinkhorn in the log domain; weights of padding are -Inf."""
    model = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    log_weight = torch.full((12,), -math.log(10.0))
    log_weight[10:] = NEGATIVE_INFINITY

    def loss():
        cost = torch.cdist(model(torch.randn(12, 2)), torch.randn(12, 2) + 2).square()
        scaled, f, g = -cost / 0.5, torch.zeros(12), torch.zeros(12)
        for _ in range(5):
            f = -torch.logsumexp(scaled + g + log_weight, 1)
            g = -torch.logsumexp(scaled + (f + log_weight)[:, None], 0)
        plan = (scaled + (f + log_weight)[:, None] + g + log_weight).exp()
        return (plan * cost).sum()

    return supervised(model, optimizer, loss)


def missing_values() -> Workload:
    """Features and targets with NaN where nothing was measured: filled and masked, as they should be."""
    model = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

    def loss():
        full = torch.randn(24, 6)
        features = full.masked_fill(torch.rand(24, 6) < 0.2, float("nan"))
        targets = torch.stack([full.sum(1), full.prod(1)], 1)
        targets[torch.rand(24, 2) < 0.3] = float("nan")
        targets[0] = 0.0
        absent = features.isnan()
        center = features.nanmean(0)
        out = model(torch.cat([torch.where(absent, center, features), absent.float()], 1))
        known = ~targets.isnan()
        return F.mse_loss(out[known], targets[known])

    return supervised(model, optimizer, loss)


def hidden_markov() -> Workload:
    """The forward algorithm with a left-to-right chain: log(0) of what cannot happen is -Inf from outside."""
    model = nn.ModuleDict({"emission": nn.Embedding(4, 6)})
    allowed = torch.eye(4) * 0.7 + torch.diag(torch.full((3,), 0.3), 1)
    model.register_buffer("transition", allowed.log())
    model.register_buffer("initial", torch.tensor([1.0, 0, 0, 0]).log())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    def loss():
        seen = (torch.arange(9) * 2 // 3 + torch.randint(0, 2, (8, 9))) % 6
        emission = model["emission"].weight.log_softmax(1).t()[seen]
        alpha = model.initial + emission[:, 0]
        for t in range(1, 9):
            moved = alpha[:, :, None] + model.transition
            if t < 4:  # later states cannot have been reached
                reached = t + 1
                moved = torch.logsumexp(moved[:, :, :reached], 1)
                alpha = F.pad(moved, (0, 4 - reached), value=NEGATIVE_INFINITY) + emission[:, t]
            else:
                alpha = torch.logsumexp(moved, 1) + emission[:, t]
        return -torch.logsumexp(alpha, 1).mean()

    return supervised(model, optimizer, loss)


def physics_informed() -> Workload:
    """u'' = -u with boundary values: second derivatives inside of the loss."""
    model = nn.Sequential(nn.Linear(1, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 1))
    optimizer = torch.optim.NAdam(model.parameters(), lr=2e-3)

    def loss():
        x = (torch.rand(32, 1) * 3).requires_grad_()
        u = model(x)
        first = torch.autograd.grad(u.sum(), x, create_graph=True)[0]
        second = torch.autograd.grad(first.sum(), x, create_graph=True)[0]
        start = torch.zeros(1, 1, requires_grad=True)
        slope = torch.autograd.grad(model(start).sum(), start, create_graph=True)[0]
        return (second + u).square().mean() + model(start).square().mean() + (slope - 1).square().mean()

    return supervised(model, optimizer, loss)


def neural_ode() -> Workload:
    model = nn.Sequential(nn.Linear(2, 24), nn.SiLU(), nn.Linear(24, 2))
    optimizer = torch.optim.Adamax(model.parameters(), lr=3e-3)

    def loss():
        state = torch.randn(16, 2)
        wanted = state @ torch.tensor([[0.54, 0.84], [-0.84, 0.54]])
        for _ in range(4):
            a = model(state)
            b = model(state + 0.125 * a)
            c = model(state + 0.125 * b)
            state = state + 0.25 * (a + 2 * b + 2 * c + model(state + 0.25 * c)) / 6
        return F.mse_loss(state, wanted)

    return supervised(model, optimizer, loss)


def deep_equilibrium() -> Workload:
    """A fixed point found without gradients, its gradient by a solve; a custom autograd function."""
    model = nn.ParameterDict({"w": 0.3 * torch.randn(6, 6) / 6**0.5, "u": torch.randn(6, 6) / 6**0.5})
    optimizer = torch.optim.Adagrad(model.parameters(), lr=1e-2)

    class FixedPoint(torch.autograd.Function):
        @staticmethod
        def forward(ctx, w, drive):
            z = torch.zeros_like(drive)
            for _ in range(20):
                z = torch.tanh(z @ w + drive)
            ctx.save_for_backward(w, z)
            return z

        @staticmethod
        def backward(ctx, gradient):
            w, z = ctx.saved_tensors
            slope = 1 - z.square()
            system = torch.eye(6) - w[None] * slope[:, None, :]
            inner = torch.linalg.solve(system, (gradient)[:, :, None]).squeeze(2) * slope
            return z.t() @ inner, inner

    def loss():
        x = torch.randn(16, 6)
        return F.mse_loss(FixedPoint.apply(model["w"], x @ model["u"]), x.tanh().flip(1))

    return supervised(model, optimizer, loss)


def ranking() -> Workload:
    """ListMLE and pairwise hinges over lists of different lengths."""
    model = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

    def loss():
        x, lengths = torch.randn(8, 6, 5), torch.randint(2, 7, (8, 1))
        absent = torch.arange(6) >= lengths
        relevance = x[..., 0].masked_fill(absent, NEGATIVE_INFINITY)
        order = relevance.argsort(1, descending=True)
        scores = model(x).squeeze(-1).gather(1, order)
        absent = absent.gather(1, order)
        tails = scores.masked_fill(absent, NEGATIVE_INFINITY).flip(1).logcumsumexp(1).flip(1)
        list_loss = (tails - scores).masked_fill(absent, 0.0).sum(1).mean()
        gaps = scores[:, :, None] - scores[:, None, :]
        valid = ~(absent[:, :, None] | absent[:, None, :]) & torch.ones(6, 6, dtype=torch.bool).triu(1)
        return list_loss + F.relu(1 - gaps)[valid].mean() + F.multilabel_soft_margin_loss(scores, (~absent).float())

    return supervised(model, optimizer, loss)


MODELS = {
    "graph_attention": graph_attention,
    "graph_convolution": graph_convolution,
    "sparse_adjacency": sparse_adjacency,
    "actor_critic": actor_critic,
    "proximal_policy": proximal_policy,
    "deep_q": deep_q,
    "soft_actor": soft_actor,
    "contrastive": contrastive,
    "optimal_transport": optimal_transport,
    "missing_values": missing_values,
    "hidden_markov": hidden_markov,
    "physics_informed": physics_informed,
    "neural_ode": neural_ode,
    "deep_equilibrium": deep_equilibrium,
    "ranking": ranking,
}
