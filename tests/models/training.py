"""Ways to train: optimizers, precision, accumulation, averaging, parametrizations, functional transforms."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.checkpoint import checkpoint

from .workload import Workload, descend, digit_images, digit_rows, supervised


def small_mlp(width: int = 24) -> nn.Sequential:
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))


def digits_mlp() -> Workload:
    model = nn.Sequential(
        nn.Linear(64, 48),
        nn.BatchNorm1d(48),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Linear(48, 32),
        nn.GELU(),
        nn.Linear(32, 10),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=2000)

    def step(_):
        x, y = digit_rows(32)
        loss = descend(optimizer, F.cross_entropy(model(x), y, label_smoothing=0.1))
        scheduler.step()
        return loss

    return Workload({"model": model}, step, [optimizer])


def lbfgs_regression() -> Workload:
    model = nn.Linear(64, 10)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4, line_search_fn="strong_wolfe")

    def step(_):
        x, y = digit_rows(128)

        def closure():
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y) + 1e-3 * model.weight.square().sum()
            loss.backward()
            return loss

        return optimizer.step(closure).detach()

    return Workload({"model": model}, step, [optimizer])


def optimizer_tour() -> Workload:
    """The same net under each optimizer of torch, in its forms."""
    optim = torch.optim
    makers = {
        "adam_single": lambda p: optim.Adam(p, lr=1e-3, foreach=False),
        "adam_foreach": lambda p: optim.Adam(p, lr=1e-3, foreach=True, amsgrad=True),
        "adamw_fused": lambda p: optim.AdamW(p, lr=1e-3, fused=True),
        "adamw_capturable": lambda p: optim.AdamW(p, lr=torch.tensor(1e-3), weight_decay=0.1),
        "sgd_fused": lambda p: optim.SGD(p, lr=1e-2, momentum=0.9, fused=True),
        "rmsprop": lambda p: optim.RMSprop(p, lr=1e-3, centered=True, momentum=0.5),
        "adagrad": lambda p: optim.Adagrad(p, lr=1e-2),
        "adadelta": lambda p: optim.Adadelta(p),
        "adamax": lambda p: optim.Adamax(p),
        "nadam": lambda p: optim.NAdam(p, decoupled_weight_decay=True),
        "radam": lambda p: optim.RAdam(p),
        "rprop": lambda p: optim.Rprop(p, lr=1e-4),
        "asgd": lambda p: optim.ASGD(p),
        "adafactor": lambda p: optim.Adafactor(p),
    }
    models = {name: small_mlp(12) for name in makers}
    optimizers = {name: make(models[name].parameters()) for name, make in makers.items()}

    def step(_):
        x, y = digit_rows(16)
        return torch.stack([descend(optimizers[n], F.cross_entropy(models[n](x), y)) for n in models])

    return Workload(models, step, list(optimizers.values()))


def muon() -> Workload:
    model = nn.Sequential(nn.Linear(64, 24, bias=False), nn.SiLU(), nn.Linear(24, 10, bias=False))
    optimizer = torch.optim.Muon(model.parameters(), lr=1e-2)

    def loss():
        x, y = digit_rows(32)
        return F.cross_entropy(model(x), y)

    return supervised(model, optimizer, loss)


def hand_written_sgd() -> Workload:
    """Without torch.optim: gradients switched off, parameters written in place."""
    model = small_mlp()

    def step(_):
        x, y = digit_rows(32)
        loss = F.cross_entropy(model(x), y)
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.05 * parameter.grad
        return loss.detach()

    return Workload({"model": model}, step)


def accumulated_and_clipped() -> Workload:
    model = small_mlp(32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

    def step(index):
        optimizer.zero_grad()
        total = torch.zeros(())
        for _ in range(3):
            x, y = digit_rows(16)
            loss = F.cross_entropy(model(x), y) / 3
            loss.backward()
            total += loss.detach()
        if index % 2:
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        else:
            nn.utils.clip_grad_value_(model.parameters(), 0.1)
        optimizer.step()
        return total

    return Workload({"model": model}, step, [optimizer])


class CheckpointedNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Dropout(0.1))
        self.second = nn.Sequential(nn.Linear(32, 32), nn.LayerNorm(32), nn.ELU())
        self.head = nn.Linear(32, 10)

    def forward(self, x):
        x = checkpoint(self.first, x, use_reentrant=False)
        return self.head(checkpoint(self.second, x, use_reentrant=True))


def gradient_checkpointing() -> Workload:
    model = CheckpointedNet()
    optimizer = torch.optim.NAdam(model.parameters(), lr=2e-3)

    def loss():
        x, y = digit_rows(32)
        return F.cross_entropy(model(x), y)

    return supervised(model, optimizer, loss)


def averaged_weights() -> Workload:
    """EMA and SWA beside the net, validated every tenth step."""
    model = nn.Sequential(nn.Linear(64, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 10))
    ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.95), use_buffers=True)
    swa = AveragedModel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def step(index):
        x, y = digit_rows(32)
        loss = descend(optimizer, F.cross_entropy(model(x), y))
        ema.update_parameters(model)
        if index % 10 == 9:
            swa.update_parameters(model)
            torch.optim.swa_utils.update_bn([digit_rows(32)[0] for _ in range(2)], swa)
            ema.eval()
            with torch.inference_mode():
                loss = loss + F.cross_entropy(ema(x), y)
        return loss

    return Workload({"model": model, "ema": ema, "swa": swa}, step, [optimizer])


def parametrized_layers() -> Workload:
    model = nn.Sequential(
        parametrizations.weight_norm(nn.Linear(64, 32)),
        nn.LeakyReLU(0.2),
        parametrizations.spectral_norm(nn.Linear(32, 32)),
        nn.LeakyReLU(0.2),
        parametrizations.orthogonal(nn.Linear(32, 16)),
        nn.Softplus(),
        nn.Linear(16, 10),
    )
    optimizer = torch.optim.Adamax(model.parameters(), lr=3e-3)

    def loss():
        x, y = digit_rows(32)
        return F.cross_entropy(model(x), y)

    return supervised(model, optimizer, loss)


def per_sample_gradients() -> Workload:
    """Private SGD: gradients of each sample by vmap(grad), clipped, summed, noised."""
    model = small_mlp(16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def sample_loss(parameters, x, y):
        logits = torch.func.functional_call(model, parameters, (x[None],))
        return F.cross_entropy(logits, y[None])

    per_sample = torch.func.vmap(torch.func.grad_and_value(sample_loss), in_dims=(None, 0, 0))

    def step(_):
        parameters = dict(model.named_parameters())
        gradients, losses = per_sample({k: p.detach() for k, p in parameters.items()}, *digit_rows(16))
        norms = torch.stack([g.flatten(1).norm(dim=1) for g in gradients.values()]).norm(dim=0)
        scale = (1.0 / norms.clamp(min=1e-6)).clamp(max=1.0)
        for name, parameter in parameters.items():
            summed = torch.einsum("b...,b->...", gradients[name], scale)
            parameter.grad = (summed + 0.1 * torch.randn_like(summed)) / 16
        optimizer.step()
        return losses.mean()

    return Workload({"model": model}, step, [optimizer])


def autocast_bfloat16() -> Workload:
    model = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(512, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, fused=True)

    def loss():
        x, y = digit_images(32)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return F.cross_entropy(model(x), y)

    return supervised(model, optimizer, loss)


def scaled_float16() -> Workload:
    """The scale grows until gradients overflow: the scaler skips those steps, as it is meant to."""
    model = nn.Sequential(nn.Linear(64, 48), nn.LayerNorm(48), nn.GELU(), nn.Linear(48, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14, growth_interval=5)

    def step(_):
        x, y = digit_rows(32)
        with torch.autocast("cpu", dtype=torch.float16):
            loss = F.cross_entropy(model(x).float(), y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    return Workload({"model": model}, step, [optimizer])


def master_weights() -> Workload:
    """bfloat16 weights, float32 copies that the optimizer writes."""
    model = small_mlp(32).bfloat16()
    masters = [p.detach().float().requires_grad_() for p in model.parameters()]
    optimizer = torch.optim.AdamW(masters, lr=2e-3)

    def step(_):
        x, y = digit_rows(32)
        loss = F.cross_entropy(model(x.bfloat16()).float(), y)
        model.zero_grad()
        loss.backward()
        for master, parameter in zip(masters, model.parameters(), strict=True):
            master.grad = parameter.grad.float()
        optimizer.step()
        with torch.no_grad():
            for master, parameter in zip(masters, model.parameters(), strict=True):
                parameter.copy_(master)
        return loss.detach()

    return Workload({"model": model}, step, [optimizer])


def maml() -> Workload:
    """Second order: the gradient of a loss after two inner steps."""
    model = nn.Sequential(nn.Linear(1, 24), nn.Tanh(), nn.Linear(24, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def task_loss(parameters, amplitude, phase):
        x = torch.rand(10, 1) * 6 - 3
        return F.mse_loss(torch.func.functional_call(model, parameters, (x,)), amplitude * torch.sin(x + phase))

    def loss():
        total = torch.zeros(())
        for _ in range(3):
            amplitude, phase = torch.rand(()) + 0.5, torch.rand(()) * 3
            parameters = dict(model.named_parameters())
            for _ in range(2):
                inner = task_loss(parameters, amplitude, phase)
                gradients = torch.autograd.grad(inner, list(parameters.values()), create_graph=True)
                parameters = {k: p - 0.05 * g for (k, p), g in zip(parameters.items(), gradients, strict=True)}
            total = total + task_loss(parameters, amplitude, phase)
        return total / 3

    return supervised(model, optimizer, loss)


class FakeQuantized(nn.Module):
    """A linear layer as quantization-aware training sees it; the observer starts at Inf and -Inf."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)
        self.register_buffer("lowest", torch.tensor(float("inf")))
        self.register_buffer("highest", torch.tensor(float("-inf")))

    def forward(self, x):
        out = self.linear(x)
        if self.training:
            low, high = torch.aminmax(out.detach())
            self.lowest.copy_(torch.min(self.lowest, low))
            self.highest.copy_(torch.max(self.highest, high))
        scale = (self.highest - self.lowest) / 255
        zero_point = (-self.lowest / scale).round().clamp(0, 255).int()
        return torch.fake_quantize_per_tensor_affine(out, scale, zero_point, 0, 255)


def quantization_aware() -> Workload:
    model = nn.Sequential(FakeQuantized(64, 32), nn.ReLU6(), FakeQuantized(32, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def loss():
        x, y = digit_rows(32)
        return F.cross_entropy(model(x), y)

    return supervised(model, optimizer, loss)


MODELS = {
    "digits_mlp": digits_mlp,
    "lbfgs_regression": lbfgs_regression,
    "optimizer_tour": optimizer_tour,
    "muon": muon,
    "hand_written_sgd": hand_written_sgd,
    "accumulated_and_clipped": accumulated_and_clipped,
    "gradient_checkpointing": gradient_checkpointing,
    "averaged_weights": averaged_weights,
    "parametrized_layers": parametrized_layers,
    "per_sample_gradients": per_sample_gradients,
    "autocast_bfloat16": autocast_bfloat16,
    "scaled_float16": scaled_float16,
    "master_weights": master_weights,
    "maml": maml,
    "quantization_aware": quantization_aware,
}
