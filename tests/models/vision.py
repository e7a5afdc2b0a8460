"""Nets on images and points: what torchvision ships, at a few thousand parameters."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from .workload import Workload, descend, digit_images, patches, supervised


def conv_norm(inputs: int, outputs: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs))


class Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.body = nn.Sequential(
            conv_norm(inputs, outputs, stride=stride), nn.ReLU(inplace=True), conv_norm(outputs, outputs)
        )
        self.shortcut = conv_norm(inputs, outputs, 1, stride) if stride > 1 or inputs != outputs else nn.Identity()

    def forward(self, x):
        return F.relu(self.body(x) + self.shortcut(x), inplace=True)


def resnet() -> Workload:
    model = nn.Sequential(
        conv_norm(3, 8),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
        Residual(8, 8, 1),
        Residual(8, 16, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 5),
    ).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)

    def loss():
        x, y = patches(8, 3, 16, 5)
        return F.cross_entropy(model(x.to(memory_format=torch.channels_last)), y)

    return supervised(model, optimizer, loss)


class InvertedResidual(nn.Module):
    """Expand, depthwise, squeeze-and-excite, project; the whole branch is dropped now and then."""

    def __init__(self, width: int):
        super().__init__()
        self.expand = conv_norm(width, 4 * width, 1)
        self.depthwise = conv_norm(4 * width, 4 * width, groups=4 * width)
        self.squeeze = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(4 * width, width, 1), nn.ReLU(), nn.Conv2d(width, 4 * width, 1)
        )
        self.project = conv_norm(4 * width, width, 1)

    def forward(self, x):
        hidden = F.hardswish(self.depthwise(F.hardswish(self.expand(x))))
        hidden = self.project(hidden * F.hardsigmoid(self.squeeze(hidden)))
        if self.training:
            hidden = hidden * (torch.rand(len(x), 1, 1, 1) < 0.8) / 0.8
        return x + hidden


def mobilenet() -> Workload:
    model = nn.Sequential(
        conv_norm(3, 8, stride=2), nn.Hardswish(), InvertedResidual(8), InvertedResidual(8), nn.AvgPool2d(8),
        nn.Flatten(), nn.Linear(8, 5),
    )  # fmt: skip
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3, momentum=0.9, alpha=0.9, eps=1e-3)

    def loss():
        x, y = patches(8, 3, 16, 5)
        mixed = torch.distributions.Beta(0.4, 0.4).sample()
        order = torch.randperm(8)
        logits = model(mixed * x + (1 - mixed) * x[order])
        return mixed * F.cross_entropy(logits, y) + (1 - mixed) * F.cross_entropy(logits, y[order])

    return supervised(model, optimizer, loss)


class DenseNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.BatchNorm2d(8 + 4 * i), nn.PReLU(), nn.Conv2d(8 + 4 * i, 4, 3, padding=1))
            for i in range(3)
        )
        self.transition = nn.Sequential(nn.InstanceNorm2d(20, affine=True), nn.AvgPool2d(4), nn.Dropout2d(0.1))
        self.head = nn.LazyLinear(5)

    def forward(self, x):
        x = self.stem(x)
        for layer in self.layers:
            x = torch.cat([x, layer(x)], 1)
        return self.head(self.transition(x).flatten(1))


def densenet() -> Workload:
    model = DenseNet()
    model(torch.zeros(2, 3, 16, 16))
    optimizer = torch.optim.Adagrad(model.parameters(), lr=1e-2)

    def loss():
        x, y = patches(6, 3, 16, 5)
        return F.multi_margin_loss(model(x), y) + 0.1 * F.cross_entropy(model(x), y)

    return supervised(model, optimizer, loss)


class Segmenter(nn.Module):
    """A U-Net of two levels."""

    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.Mish())
        self.middle = nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.Mish())
        self.up = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.head = nn.Conv2d(16, 3, 1)

    def forward(self, x):
        skip = self.down(x)
        up = self.up(self.middle(F.max_pool2d(skip, 2)))
        return self.head(torch.cat([skip, up], 1))


def segmentation() -> Workload:
    """Cross-entropy with ignored pixels, dice, and an upsampled second head."""
    model = Segmenter()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    def loss():
        x, _ = patches(4, 1, 16, 4)
        target = (x[:, 0] > 0.3).long() + (x[:, 0] > 0.9).long()
        target[:, 0] = 255
        logits = model(x)
        valid = target != 255
        probability = logits.softmax(1)[:, 1:][valid[:, None].expand(-1, 2, -1, -1)]
        truth = F.one_hot(target.clamp(max=2), 3).permute(0, 3, 1, 2)[:, 1:][valid[:, None].expand(-1, 2, -1, -1)]
        dice = 1 - (2 * (probability * truth).sum() + 1) / (probability.sum() + truth.sum() + 1)
        coarse = F.interpolate(logits, scale_factor=0.5, mode="bilinear")
        return F.cross_entropy(logits, target, ignore_index=255) + dice + 1e-3 * coarse.square().mean()

    return supervised(model, optimizer, loss)


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(conv_norm(3, 8, stride=2), nn.SiLU(), conv_norm(8, 16, stride=2), nn.SiLU())
        self.classes, self.boxes = nn.Conv2d(16, 2, 1), nn.Conv2d(16, 4, 1)
        nn.init.constant_(self.classes.bias, -2.0)

    def forward(self, x):
        x = self.body(x)
        return self.classes(x).flatten(2).transpose(1, 2), self.boxes(x).flatten(2).transpose(1, 2)


def generalized_iou(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    overlap = (torch.min(a[..., 2:], b[..., 2:]) - torch.max(a[..., :2], b[..., :2])).clamp(min=0).prod(-1)
    union = (a[..., 2:] - a[..., :2]).prod(-1) + (b[..., 2:] - b[..., :2]).prod(-1) - overlap
    hull = (torch.max(a[..., 2:], b[..., 2:]) - torch.min(a[..., :2], b[..., :2])).prod(-1)
    return overlap / union - (hull - union) / hull


def detection() -> Workload:
    """Focal loss over all anchors, boxes (IoU and smooth L1) on the positive ones; some images have none."""
    model = Detector()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    grid = torch.stack(torch.meshgrid(torch.arange(4.0), torch.arange(4.0), indexing="xy"), -1).view(16, 2) * 4 + 2

    def loss():
        x, place = patches(4, 3, 16, 4)
        logits, offsets = model(x)
        boxes = torch.cat([grid - offsets[..., :2].exp(), grid + offsets[..., 2:].exp()], -1)
        left = (place * 4).float()
        truth = torch.stack([left, torch.full_like(left, 1), left + 4, torch.full_like(left, 7)], -1)[:, None]
        inside = ((grid > truth[..., :2]) & (grid < truth[..., 2:])).all(-1)
        inside[0] = False
        target = F.one_hot(inside.long(), 2).float()
        cross = F.binary_cross_entropy_with_logits(logits, target, reduction="none")
        p = logits.sigmoid()
        focal = (cross * (1 - (p * target + (1 - p) * (1 - target))) ** 2).sum() / inside.sum().clamp(min=1)
        chosen, wanted = boxes[inside], truth.expand_as(boxes)[inside]
        return focal + (1 - generalized_iou(chosen, wanted)).mean() + 0.1 * F.smooth_l1_loss(chosen, wanted)

    return supervised(model, optimizer, loss)


class SpatialTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.localize = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 6))
        nn.init.zeros_(self.localize[-1].weight)
        self.localize[-1].bias.data = torch.tensor([1.0, 0, 0, 0, 1, 0])
        self.classify = nn.Sequential(nn.Conv2d(1, 6, 3), nn.CELU(), nn.LPPool2d(2, 2), nn.Flatten(), nn.Linear(54, 10))

    def forward(self, x):
        grid = F.affine_grid(self.localize(x).view(-1, 2, 3), x.shape, align_corners=False)
        return self.classify(F.grid_sample(x, grid, padding_mode="border", align_corners=False) + 0.01)


def spatial_transformer() -> Workload:
    model = SpatialTransformer()
    optimizer = torch.optim.RAdam(model.parameters(), lr=2e-3)

    def loss():
        x, y = digit_images(16)
        return F.nll_loss(F.log_softmax(model(x), 1), y)

    return supervised(model, optimizer, loss)


class VisionTransformer(nn.Module):
    def __init__(self, width: int = 24):
        super().__init__()
        self.patch = nn.Conv2d(3, width, 4, 4)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.position = nn.Parameter(0.02 * torch.randn(1, 17, width))
        self.scale = nn.Parameter(1e-4 * torch.ones(width))
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.RMSNorm(width), nn.Linear(width, 48), nn.GELU(approximate="tanh"), nn.Linear(48, width)
        )
        self.head = nn.Linear(width, 5)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.position
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, dropout_p=0.1 if self.training else 0.0)
        x = x + self.scale * self.out(attended.transpose(1, 2).flatten(2))
        return self.head((x + self.scale * self.mlp(x))[:, 0])


def vision_transformer() -> Workload:
    model = VisionTransformer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.05)

    def loss():
        x, y = patches(8, 3, 16, 5)
        return F.cross_entropy(model(x), y)

    return supervised(model, optimizer, loss)


class PointNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.points = nn.Sequential(nn.Conv1d(6, 16, 1), nn.BatchNorm1d(16), nn.ReLU(), nn.Conv1d(16, 24, 1))
        self.head = nn.Linear(24, 3)

    def forward(self, points):
        distance = torch.cdist(points, points)
        distance = distance.masked_fill(torch.eye(points.shape[1], dtype=torch.bool), float("inf"))
        nearest = distance.topk(3, largest=False).indices
        neighbours = points[torch.arange(len(points))[:, None, None], nearest].mean(2)
        return self.head(self.points(torch.cat([points, neighbours], -1).transpose(1, 2)).amax(-1))


def point_net() -> Workload:
    """Nearest neighbours with Inf on the diagonal of the distances, then a maximum over points."""
    model = PointNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

    def loss():
        y = torch.randint(0, 3, (6,))
        points = torch.randn(6, 20, 3) * (1 + y)[:, None, None]
        return F.cross_entropy(model(points), y)

    return supervised(model, optimizer, loss)


class FourierLayer(nn.Module):
    def __init__(self, width: int, modes: int):
        super().__init__()
        self.modes = modes
        self.weight = nn.Parameter(torch.randn(width, width, modes, dtype=torch.cfloat) / width)
        self.local = nn.Conv1d(width, width, 1)

    def forward(self, x):
        spectrum = torch.fft.rfft(x)
        kept = torch.einsum("bim,iom->bom", spectrum[..., : self.modes], self.weight)
        return F.gelu(torch.fft.irfft(kept, n=x.shape[-1]) + self.local(x))


def fourier_operator() -> Workload:
    """Complex weights; learns to differentiate."""
    model = nn.Sequential(nn.Conv1d(1, 12, 1), FourierLayer(12, 6), FourierLayer(12, 6), nn.Conv1d(12, 1, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    grid = torch.linspace(0, 6.28, 33)[:-1]

    def loss():
        phase = torch.rand(8, 1, 1) * 6
        predicted = model(torch.sin(grid + phase))
        return (predicted - torch.cos(grid + phase)).flatten(1).norm(dim=1).mean()

    return supervised(model, optimizer, loss)


def siamese() -> Workload:
    """Pairs, triplets and cosines of one encoder."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 8))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

    def step(_):
        x, y = digit_images(24)
        anchor, other, third = model(x).chunk(3)
        same = (y[:8] == y[8:16]).float()
        distance = F.pairwise_distance(anchor, other)
        pairs = (same * distance**2 + (1 - same) * F.relu(1 - distance) ** 2).mean()
        triplets = F.triplet_margin_loss(anchor, other, third, swap=True)
        cosines = F.cosine_embedding_loss(anchor, third, torch.where(y[:8] == y[16:], 1, -1), margin=0.2)
        return descend(optimizer, pairs + triplets + cosines)

    return Workload({"model": model}, step, [optimizer])


MODELS = {
    "resnet": resnet,
    "mobilenet": mobilenet,
    "densenet": densenet,
    "segmentation": segmentation,
    "detection": detection,
    "spatial_transformer": spatial_transformer,
    "vision_transformer": vision_transformer,
    "point_net": point_net,
    "fourier_operator": fourier_operator,
    "siamese": siamese,
}
