"""A training loop that stops at the first NaN, before it reaches the parameters.

usage: python guarded_training.py
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from firstfault.compat.nan_detector import train_with_nan_guard


def main():
    torch.manual_seed(0)
    x = torch.randn(160, 16)
    y = x.sum(1, keepdim=True)
    x[8 * 7 + 3, 5] = float("nan")  # a missing value, in batch 7
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    losses, event = train_with_nan_guard(
        model, DataLoader(TensorDataset(x, y), batch_size=8), nn.MSELoss(), optimizer, grad_norm_warn=50.0
    )

    print(f"batches: {len(losses)}, the last loss: {losses[-1]}")
    if event:
        print(f"NaN in batch {event.batch_idx}, layer {event.layer_name}")
    print("parameters are finite:", all(bool(p.isfinite().all()) for p in model.parameters()))


if __name__ == "__main__":
    main()
