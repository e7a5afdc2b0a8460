"""From batch 12 on, some inputs of the last layer are negative, and it takes their logarithm.

usage: python forward_nan.py [PLOT.png]
"""

import sys

import torch
from torch import nn

from firstfault.compat.nan_detector import NaNDetector, plot_loss_curve


class LogHead(nn.Module):
    """A mean of logarithms."""

    def forward(self, x):
        return x.log().mean(dim=1, keepdim=True)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer1 = nn.Linear(16, 64)
        self.layer2 = nn.ReLU()
        self.layer3 = nn.Linear(64, 32)
        self.layer4 = LogHead()

    def forward(self, x):
        return self.layer4(self.layer3(self.layer2(self.layer1(x))))


def main():
    torch.manual_seed(0)
    model = Net()
    nn.init.constant_(model.layer3.bias, 5.0)  # so that what layer4 reads is above 0, for inputs of the usual size
    losses = []

    with NaNDetector(model, stop_on_first=True) as detector:
        for batch in range(20):
            detector.set_batch(batch)
            x, y = torch.randn(8, 16), torch.randn(8, 1)
            if batch == 12:
                x = x * 100
            losses.append(nn.functional.mse_loss(model(x), y).item())
            if detector.triggered:
                break

    print(f"\nfirst: batch {detector.event.batch_idx}, layer {detector.event.layer_name}")
    print(f"events: {len(detector.all_events)}")
    if len(sys.argv) > 1:
        plot_loss_curve(losses, detector.event.batch_idx, save_path=sys.argv[1])


if __name__ == "__main__":
    main()
