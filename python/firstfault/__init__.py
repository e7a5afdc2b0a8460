"""firstfault: a flight recorder and root-cause debugger for neural-network training.

``with firstfault.trace() as tracker`` observes every op of the block and names the one that made the first NaN or Inf.
Importing this package does not import torch; ``trace()`` does.
"""

from firstfault._clip import AdaptiveClip, clip_grad_norm_, clip_grad_units_, clip_grad_value_, last_clip
from firstfault._core import (
    Counts,
    Diagnosis,
    Experiment,
    Hypothesis,
    Operand,
    Origin,
    PathStep,
    Run,
    SourceFrame,
    Transition,
    __version__,
    experiments_of,
)
from firstfault._fault import TrainingFault
from firstfault._guard import Guard, guard
from firstfault._trace import Trace, trace
from firstfault._watch import Watch, explain, read_run, watch

__all__ = [
    "AdaptiveClip",
    "Counts",
    "Diagnosis",
    "Experiment",
    "Guard",
    "Hypothesis",
    "Operand",
    "Origin",
    "PathStep",
    "Run",
    "SourceFrame",
    "Trace",
    "TrainingFault",
    "Transition",
    "Watch",
    "__version__",
    "clip_grad_norm_",
    "clip_grad_units_",
    "clip_grad_value_",
    "experiments_of",
    "explain",
    "guard",
    "last_clip",
    "read_run",
    "trace",
    "watch",
]
