"""The NaN detector's benchmark and plots; the plots need matplotlib."""

from __future__ import annotations

import math
import statistics
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from firstfault.compat.nan_detector import GradEvent

_MARK_COLOUR = "black"


def benchmark(n_batches: int = 30, batch_size: int = 64) -> dict[str, list[float]]:
    """Milliseconds of each forward pass, the cold first one included: bare, with the detector, with detect_anomaly."""
    print(f"Forward passes of an MLP 64-256-256-10, {n_batches} batches of {batch_size}")
    results = {
        "baseline": _times(n_batches, batch_size),
        "nan_detector": _times(n_batches, batch_size, with_detector=True),
        "detect_anomaly": _times(n_batches, batch_size, with_anomaly_mode=True),
    }
    usual = statistics.mean(results["baseline"])
    print(f"  {'':<16}{'mean ms':>10}{'median ms':>12}{'ratio':>8}")
    for name, times in results.items():
        mean = statistics.mean(times)
        print(f"  {name:<16}{mean:>10.3f}{statistics.median(times):>12.3f}{mean / usual:>8.2f}")
    return results


def _times(
    n_batches: int, batch_size: int, with_detector: bool = False, with_anomaly_mode: bool = False
) -> list[float]:
    import torch
    from torch import nn

    from firstfault.compat.nan_detector import NaNDetector

    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    detector = NaNDetector(model, verbose=False)
    if with_detector:
        detector.attach()
    times = []
    with torch.autograd.set_detect_anomaly(with_anomaly_mode):
        for _ in range(n_batches):
            x = torch.randn(batch_size, 64)
            began = time.perf_counter()
            model(x)
            times.append((time.perf_counter() - began) * 1000)
    detector.detach()
    return times


def plot_loss_curve(losses: list[float], nan_batch: int | None = None, save_path: str = "plot_loss_curve.png") -> str:
    """The losses, with a line at the batch of the first NaN; gives the path."""
    figure, axes = _axes("plot_loss_curve")
    axes.plot(range(len(losses)), losses, marker=".", label="loss")
    if nan_batch is not None:
        axes.axvline(nan_batch, color=_MARK_COLOUR, linestyle="--", label=f"first NaN: batch {nan_batch}")
    axes.set(xlabel="batch", ylabel="loss", title="Training loss")
    return _saved(figure, axes, save_path)


def plot_grad_norms(grad_events: list[GradEvent], warn_threshold: float, save_path: str = "plot_grad_norms.png") -> str:
    """The norms by batch of each parameter that was above the threshold; gives the path.

    A norm that is not finite is drawn as a cross above all others.
    """
    if not grad_events:
        print("[plot] No grad events to plot.")
        return save_path
    figure, axes = _axes("plot_grad_norms")
    highest = max([event.grad_norm for event in grad_events if math.isfinite(event.grad_norm)], default=warn_threshold)
    by_parameter: dict[str, list[GradEvent]] = {}
    for event in grad_events:
        by_parameter.setdefault(f"{event.layer_name}.{event.param_name}", []).append(event)
    for name, events in by_parameter.items():
        finite = [event for event in events if math.isfinite(event.grad_norm)]
        (line,) = axes.plot([e.batch_idx for e in finite], [e.grad_norm for e in finite], marker="o", label=name)
        beyond = [event.batch_idx for event in events if event not in finite]
        axes.plot(beyond, [10 * highest] * len(beyond), "x", color=line.get_color())
    axes.axhline(warn_threshold, color=_MARK_COLOUR, linestyle="--", label=f"threshold {warn_threshold}")
    axes.set(xlabel="batch", ylabel="gradient norm", title="Gradient norms above the threshold", yscale="log")
    return _saved(figure, axes, save_path)


def plot_benchmark(results: dict[str, list[float]], save_path: str = "plot_benchmark.png") -> str:
    """What benchmark() gave, pass by pass; gives the path."""
    figure, axes = _axes("plot_benchmark")
    for name, times in results.items():
        axes.plot(times, label=f"{name}: mean {statistics.mean(times):.3f} ms")
    axes.set(xlabel="batch", ylabel="ms", title="Time of a forward pass", yscale="log")
    return _saved(figure, axes, save_path)


def _axes(caller: str) -> tuple[Any, Any]:
    """Of a figure that needs no display and leaves pyplot's state alone."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            f"firstfault.compat.nan_detector: {caller}() needs matplotlib, which is not installed: "
            "pip install matplotlib"
        ) from error
    figure = Figure(figsize=(10, 4.5), layout="constrained")
    return figure, figure.add_subplot()


def _saved(figure: Any, axes: Any, path: str) -> str:
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=150)
    print(f"[plot] Saved → {path}")
    return path
