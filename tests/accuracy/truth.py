"""What is wrong with a run, as it was put in: the cause, its place, its step."""

from __future__ import annotations

from dataclasses import dataclass, field

CAUSES = {
    "op_domain": "an operation was given what it is not defined for, or has no derivative at",
    "overflow": "a value beyond what float32 holds",
    "masked_softmax": "softmax over a row that is masked completely",
    "mixed_precision": "a value or gradient that half precision does not hold",
    "data_nonfinite": "NaN or Inf in the data",
    "data_invalid": "data that the operation or the loss cannot take",
    "data_outlier": "inputs of one batch far outside of all others",
    "label_outlier": "targets of one batch far outside of all others",
    "data_scale": "features or targets that were not scaled",
    "loss_definition": "the loss does not say what it should, or is a mean over nothing",
    "hyperparameter": "a hyperparameter that is NaN, Inf or 0",
    "optimizer_state": "the state of the optimizer is lost or degenerate",
    "bad_init": "parameters are wrong before the first update",
    "lr_too_high": "the learning rate is too high",
    "warmup_missing": "the first steps are too large for the untrained model",
    "exploding_gradient": "gradients grow from layer to layer, or from time step to time step",
    "vanishing_gradient": "gradients shrink from layer to layer, or from time step to time step",
    "saturation": "most units are at the flat end of their nonlinearity",
    "dead_units": "units that give 0 for every sample, and get no gradient",
    "missing_zero_grad": "gradients of earlier steps are still in there",
    "accumulation_not_averaged": "gradients of several batches are added and not averaged",
    "weight_decay_sign": "weight decay makes the weights grow",
    "weight_growth": "the weights grow without a gradient that asks for it",
    "loss_scale_collapse": "the loss scale makes every step overflow",
    "fp16_underflow": "gradients too small for half precision",
    "clipping_chronic": "every gradient is clipped, to nearly nothing",
    "clip_before_unscale": "gradients are clipped while they are still multiplied by the loss scale",
    "loss_not_decreasing": "nothing is learnt",
    "plateau": "nothing is learnt any more",
    "attention_collapse": "every query attends to one key",
    "moe_collapse": "every sample goes to one expert",
    "optimizer_not_linked": "parameters that no optimizer changes",
    "zero_gradient_op": "an operation whose gradient is always 0",
}

DATA, LOSS, LOOP, MODULE = "data", "loss", "loop", "module"


@dataclass(frozen=True)
class Place:
    """Where the fault is.

    data: in the batch. loss: in what is computed outside of every module. loop: in the optimizer or in the order of
    things around it, for which the cause is the place. module: in any of the modules or parameters named."""

    kind: str
    names: tuple[str, ...] = ()
    samples: tuple[int, ...] = ()  # of the batch, where only some are concerned


@dataclass(frozen=True)
class Truth:
    cause: str
    place: Place
    onset: int = 0  # step in which the cause begins to act
    also: tuple[str, ...] = ()  # other causes that an expert would call just as right
    also_at: tuple[Place, ...] = ()  # other places likewise
    diffuse: bool = False  # seen over many steps; else in the very step in which it acts
    note: str = ""  # sizes that were drawn

    def __post_init__(self):
        unknown = {self.cause, *self.also} - CAUSES.keys()
        assert not unknown, unknown


@dataclass(frozen=True)
class Harm:
    """What the fault did, measured beside the same run without it."""

    kind: str  # "non-finite", "not learnt", "spike", "first loss"; "" for none
    value: float = 0.0
    first_bad: int | None = None  # first step with a loss, parameter or gradient that is not finite
    visible: int | None = None  # first step in which the loss is bad
    learnt: tuple[float, float] = field(default=(0.0, 0.0))  # measure after over before: of the run, of its twin
