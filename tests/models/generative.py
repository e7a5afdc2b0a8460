"""Generative and probabilistic models: adversarial, diffusion, variational, flows, mixtures, distributions."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F

from .workload import Workload, descend, digit_images, digit_rows, supervised


def dcgan() -> Workload:
    """Two optimizers; the generator's step goes through the discriminator."""
    generator = nn.Sequential(
        nn.ConvTranspose2d(8, 16, 4), nn.BatchNorm2d(16), nn.ReLU(), nn.ConvTranspose2d(16, 1, 4, 2, 1), nn.Tanh()
    )
    discriminator = nn.Sequential(
        nn.Conv2d(1, 8, 4, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Conv2d(8, 16, 4),
        nn.LeakyReLU(0.2),
        nn.Flatten(),
        nn.Linear(16, 1),
    )
    first = torch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    second = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))

    def step(_):
        real, _labels = digit_images(12)
        fake = generator(torch.randn(12, 8, 1, 1))
        ones, zeros = torch.ones(12, 1), torch.zeros(12, 1)
        judged = F.binary_cross_entropy_with_logits(discriminator(2 * real - 1), ones)
        judged = judged + F.binary_cross_entropy(torch.sigmoid(discriminator(fake.detach())), zeros)
        descend(first, judged)
        return descend(second, F.binary_cross_entropy_with_logits(discriminator(fake), ones))

    return Workload({"generator": generator, "discriminator": discriminator}, step, [first, second])


def wasserstein_gan() -> Workload:
    """Gradient penalty: the norm of a gradient is part of the loss."""
    generator = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 64), nn.Sigmoid())
    critic = nn.Sequential(nn.Linear(64, 32), nn.LayerNorm(32), nn.SiLU(), nn.Linear(32, 1))
    first = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.0, 0.9))
    second = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.0, 0.9))

    def step(index):
        real, _labels = digit_rows(16)
        fake = generator(torch.randn(16, 4)).detach()
        mix = torch.rand(16, 1)
        between = (mix * real + (1 - mix) * fake).requires_grad_()
        slope = torch.autograd.grad(critic(between).sum(), between, create_graph=True)[0]
        penalty = ((slope.norm(2, dim=1) - 1) ** 2).mean()
        loss = descend(first, critic(fake).mean() - critic(real).mean() + 10 * penalty)
        if index % 3 == 2:
            descend(second, -critic(generator(torch.randn(16, 4))).mean())
        return loss

    return Workload({"generator": generator, "critic": critic}, step, [first, second])


class Denoiser(nn.Module):
    """A U-Net with sinusoidal time embedding, scale and shift, and attention in the middle."""

    def __init__(self, width: int = 8):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 2 * width))
        self.entry, self.down = nn.Conv2d(1, width, 3, padding=1), nn.Conv2d(width, 2 * width, 3, 2, 1)
        self.norm = nn.GroupNorm(2, width)
        self.attention = nn.MultiheadAttention(2 * width, 2, batch_first=True)
        self.up = nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(2 * width, width, 3, padding=1))
        self.exit = nn.Conv2d(2 * width, 1, 3, padding=1)

    def forward(self, x, time):
        angles = time[:, None] * torch.exp(-math.log(1e4) * torch.arange(8) / 8)
        scale, shift = self.time(torch.cat([angles.sin(), angles.cos()], 1))[:, :, None, None].chunk(2, 1)
        skip = F.silu(self.norm(self.entry(x)) * (1 + scale) + shift)
        low = self.down(skip)
        flat = low.flatten(2).transpose(1, 2)
        low = low + self.attention(flat, flat, flat, need_weights=False)[0].transpose(1, 2).view_as(low)
        return self.exit(torch.cat([skip, self.up(low)], 1))


def diffusion() -> Workload:
    """One denoising step of a cosine schedule, weighted by a clamped signal-to-noise ratio; a sample now and then."""
    model = Denoiser()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    kept = torch.cos(torch.linspace(0, 1, 51) * math.pi / 2).square().clamp(1e-4, 0.9999)

    def step(index):
        x, _labels = digit_images(12)
        time = torch.randint(0, 51, (12,))
        alpha = kept[time][:, None, None, None]
        noise = torch.randn_like(x)
        predicted = model(alpha.sqrt() * (2 * x - 1) + (1 - alpha).sqrt() * noise, time.float())
        weight = (alpha / (1 - alpha)).clamp(max=5).flatten()
        loss = descend(optimizer, (weight * F.mse_loss(predicted, noise, reduction="none").mean((1, 2, 3))).mean())
        if index % 25 == 24:
            image = torch.randn(2, 1, 8, 8)
            with torch.no_grad():
                for t in range(50, 0, -10):
                    clean = (image - (1 - kept[t]).sqrt() * model(image, torch.full((2,), float(t)))) / kept[t].sqrt()
                    image = kept[t - 10].sqrt() * clean.clamp(-1, 1) + (1 - kept[t - 10]).sqrt() * torch.randn_like(
                        image
                    )
            loss = loss + 0 * image.mean()
        return loss

    return Workload({"model": model}, step, [optimizer])


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 32), nn.Softsign(), nn.Linear(32, 12))
        self.decoder = nn.Sequential(nn.Linear(6, 32), nn.Softplus(), nn.Linear(32, 64))

    def forward(self, x):
        mean, log_variance = self.encoder(x).chunk(2, 1)
        latent = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        return self.decoder(latent), mean, log_variance


def variational_autoencoder() -> Workload:
    model = Autoencoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

    def loss():
        x, _labels = digit_rows(32)
        logits, mean, log_variance = model(x)
        divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum(1).mean()
        return F.binary_cross_entropy_with_logits(logits, x, reduction="sum") / 32 + divergence

    return supervised(model, optimizer, loss)


def gumbel_autoencoder() -> Workload:
    """Categories by Gumbel-softmax, straight through; entropy with xlogy."""
    encoder, decoder = nn.Linear(64, 24), nn.Linear(24, 64)
    model = nn.ModuleList([encoder, decoder])
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

    def step(index):
        x, _labels = digit_rows(24)
        logits = encoder(x).view(24, 4, 6)
        code = F.gumbel_softmax(logits, tau=max(0.5, 1 - 0.01 * index), hard=True)
        p = logits.softmax(-1)
        entropy = -torch.special.xlogy(p, p).sum(-1).mean()
        return descend(optimizer, F.mse_loss(decoder(code.flatten(1)).sigmoid(), x) - 0.01 * entropy)

    return Workload({"model": model}, step, [optimizer])


class Quantizer(nn.Module):
    """Nearest code, straight through; codes are running means of what was assigned to them."""

    def __init__(self, codes: int = 12, width: int = 6):
        super().__init__()
        self.register_buffer("codes", torch.randn(codes, width))
        self.register_buffer("sizes", torch.ones(codes))
        self.register_buffer("sums", self.codes.clone())

    def forward(self, x):
        nearest = torch.cdist(x, self.codes).argmin(1)
        with torch.no_grad():
            assigned = F.one_hot(nearest, len(self.codes)).float()
            self.sizes.lerp_(assigned.sum(0), 0.1)
            self.sums.lerp_(assigned.t() @ x, 0.1)
            self.codes.copy_(self.sums / self.sizes.clamp(min=1e-5)[:, None])
        code = self.codes[nearest]
        usage = F.one_hot(nearest, len(self.codes)).float().mean(0)
        return x + (code - x).detach(), F.mse_loss(x, code), torch.exp(-(usage * torch.log(usage + 1e-10)).sum())


def vector_quantized() -> Workload:
    model = nn.ModuleDict({"encoder": nn.Linear(64, 6), "codes": Quantizer(), "decoder": nn.Linear(6, 64)})
    optimizer = torch.optim.Adamax(model.parameters(), lr=3e-3)

    def loss():
        x, _labels = digit_rows(32)
        code, commitment, _perplexity = model["codes"](model["encoder"](x))
        return F.mse_loss(model["decoder"](code), x) + 0.25 * commitment

    return supervised(model, optimizer, loss)


class Coupling(nn.Module):
    def __init__(self, flipped: bool):
        super().__init__()
        self.flipped = flipped
        self.net = nn.Sequential(nn.Linear(1, 24), nn.Tanh(), nn.Linear(24, 2))

    def forward(self, x):
        a, b = x.flip(1).chunk(2, 1) if self.flipped else x.chunk(2, 1)
        log_scale, shift = self.net(a).chunk(2, 1)
        log_scale = 2 * torch.tanh(log_scale / 2)
        out = torch.cat([a, b * log_scale.exp() + shift], 1)
        return (out.flip(1) if self.flipped else out), log_scale.sum(1)


def normalizing_flow() -> Workload:
    """Affine couplings, a learnt rotation with slogdet, a Gaussian base."""
    model = nn.ModuleDict(
        {"flows": nn.ModuleList(Coupling(bool(i % 2)) for i in range(4)), "mix": nn.Linear(2, 2, bias=False)}
    )
    nn.init.orthogonal_(model["mix"].weight)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    base = torch.distributions.MultivariateNormal(torch.zeros(2), torch.eye(2))

    def loss():
        angle = torch.rand(64) * math.pi
        x = torch.stack([angle.cos(), angle.sin()], 1) + 0.1 * torch.randn(64, 2)
        z, log_det = model["mix"](x), torch.linalg.slogdet(model["mix"].weight).logabsdet
        for flow in model["flows"]:
            z, change = flow(z)
            log_det = log_det + change
        return -(base.log_prob(z) + log_det).mean()

    return supervised(model, optimizer, loss)


def mixture_density() -> Workload:
    """log-sum-exp over Gaussians written by hand, and torch's own MixtureSameFamily."""
    model = nn.Sequential(nn.Linear(1, 24), nn.Tanh(), nn.Linear(24, 12))
    optimizer = torch.optim.Rprop(model.parameters(), lr=1e-4)
    D = torch.distributions

    def loss():
        x = torch.rand(64, 1) * 2 - 1
        y = x.abs() * torch.sign(torch.randn(64, 1)) + 0.1 * torch.randn(64, 1)
        weight, mean, raw = model(x).chunk(3, 1)
        scale = F.softplus(raw) + 1e-3
        by_hand = torch.logsumexp(weight.log_softmax(1) - ((y - mean) / scale).square() / 2 - scale.log(), 1)
        family = D.MixtureSameFamily(D.Categorical(logits=weight), D.Normal(mean, scale))
        return -(by_hand.mean() + family.log_prob(y.squeeze(1)).mean())

    return supervised(model, optimizer, loss)


def distribution_heads() -> Workload:
    """Likelihoods of counts, fractions and heavy tails; reparametrized Gamma, Beta and Dirichlet samples."""
    model = nn.Sequential(nn.Linear(3, 24), nn.ELU(), nn.Linear(24, 8), nn.Softplus())
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    D = torch.distributions

    def loss():
        x = torch.randn(24, 3)
        p = (model(x) + 0.1).unbind(1)
        counts = torch.poisson(x[:, 0].exp().clamp(max=20))
        likelihood = D.Poisson(p[0]).log_prob(counts) + D.NegativeBinomial(p[1], logits=p[2] - 1).log_prob(counts)
        likelihood = likelihood + D.StudentT(p[3] + 2, 0.0, p[4]).log_prob(x[:, 1])
        likelihood = (
            likelihood + D.Beta(p[5], p[6]).log_prob(x[:, 2].sigmoid()) + D.Laplace(0.0, p[7]).log_prob(x[:, 1])
        )
        drawn = D.Gamma(p[0] + 1, p[1]).rsample() + D.Beta(p[5] + 1, p[6] + 1).rsample()
        divergence = D.kl_divergence(D.Gamma(p[3], p[4]), D.Gamma(1.0, 1.0))
        simplex = D.Dirichlet(torch.stack(p[5:8], 1) + 1).rsample()
        return -likelihood.mean() + 0.01 * (drawn + divergence + simplex.square().sum(1)).mean()

    return supervised(model, optimizer, loss)


def gaussian_process() -> Workload:
    """Marginal likelihood by Cholesky, in double precision, with LBFGS."""
    model = nn.ParameterDict({"length": torch.zeros((), dtype=torch.double), "noise": torch.tensor(-2.0).double()})
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=2)
    x = torch.linspace(0, 1, 24, dtype=torch.double)[:, None]

    def step(_):
        y = torch.sin(6 * x[:, 0]) + 0.1 * torch.randn(24, dtype=torch.double)

        def closure():
            optimizer.zero_grad()
            scaled = x / model["length"].exp()
            kernel = (
                torch.exp(-0.5 * (scaled - scaled.t()).square())
                + (model["noise"].exp() + 1e-6) * torch.eye(24).double()
            )
            factor = torch.linalg.cholesky(kernel)
            fit = y @ torch.cholesky_solve(y[:, None], factor).squeeze(1)
            loss = 0.5 * fit + factor.diagonal().log().sum()
            loss.backward()
            return loss

        return optimizer.step(closure).detach()

    return Workload({"model": model}, step, [optimizer])


MODELS = {
    "dcgan": dcgan,
    "wasserstein_gan": wasserstein_gan,
    "diffusion": diffusion,
    "variational_autoencoder": variational_autoencoder,
    "gumbel_autoencoder": gumbel_autoencoder,
    "vector_quantized": vector_quantized,
    "normalizing_flow": normalizing_flow,
    "mixture_density": mixture_density,
    "distribution_heads": distribution_heads,
    "gaussian_process": gaussian_process,
}
