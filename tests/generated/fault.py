"""The table of faults: each op with an operand that breaks it, and the op and mechanisms that are then right.

Ranges and breaking values are per dtype. An entry's `apply` is one line, for its line number is part of the answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
WIDE = (torch.float64, torch.float32)
COMPLEX = (torch.complex64, torch.complex128)


def real(dtype):
    return torch.empty(0, dtype=dtype).real.dtype if dtype.is_complex else dtype


def largest(dtype):
    return torch.finfo(real(dtype)).max


def over_root(dtype):
    """Its square is beyond the dtype, twice it is not."""
    return math.sqrt(largest(dtype)) * 4


def over_half(dtype):
    return largest(dtype) * 0.75


def over_exp(dtype):
    return math.log(largest(dtype)) * 1.2


@dataclass(frozen=True)
class Fault:
    name: str
    apply: Callable  # of the operands
    op: str  # the op at the level of autograd; in the backward the node
    mechanisms: tuple  # any of them
    poison: tuple  # per operand: None, or a value or function of the dtype, put at one random element
    low: float = 0.2
    high: float = 0.8
    dtypes: tuple = FLOATS
    inplace: str = ""  # method of the first operand
    out: Callable | None = None  # takes out=
    foreach: str = ""  # torch._foreach_*
    shapes: Callable | None = None  # of (rows, columns): the shapes of the operands; else both alike
    row: bool = False  # fill the first operand's row with the poison
    whole: bool = False  # fill the operand with the poison
    backward: bool = False  # finite in the forward, broken in the backward
    forward_op: str = ""
    view: bool = True  # non-contiguous layouts make sense
    value: int | None = 0  # operand whose value at the element the diagnosis must show; None: not element by element
    setup: dict = field(default_factory=dict)


def unary(name, function, poison, mechanisms, **more):
    out = getattr(function, "__name__", "") if not more.pop("no_out", False) else ""
    return Fault(
        name=f"{name} of {poison if not callable(poison) else poison.__name__}",
        apply=more.pop("apply", None) or (lambda x: function(x)),
        op=more.pop("op", f"aten::{name}"),
        mechanisms=mechanisms,
        poison=(poison,),
        inplace=more.pop("inplace", f"{name}_"),
        out=(lambda x, out: function(x, out=out)) if out else None,
        **more,
    )


LOG = ("log_of_nonpositive",)
ROOT = ("sqrt_or_rsqrt_domain",)
DIVISION = ("division_by_zero",)
EXP = ("exp_overflow",)
OVERFLOW = ("dtype_overflow",)
REDUCED = ("reduction_overflow", "dtype_overflow")
EDGE = ("derivative_at_boundary",)
DECOMPOSITION = ("degenerate_decomposition",)


def elementwise():
    foreach = {"log", "log2", "log10", "log1p", "sqrt", "rsqrt", "exp", "expm1", "acos", "asin", "sinh", "cosh"}
    foreach |= {"reciprocal", "lgamma"}

    def table():
        yield from ((n, getattr(torch, n), 0.0, LOG, {}) for n in ("log", "log2", "log10"))
        yield from ((n, getattr(torch, n), -0.5, LOG, {}) for n in ("log", "log2", "log10"))
        yield "log1p", torch.log1p, -1.0, LOG, {}
        yield "log1p", torch.log1p, -2.0, LOG, {}
        yield "sqrt", torch.sqrt, -0.25, ROOT, {}
        yield "rsqrt", torch.rsqrt, 0.0, ROOT, {}
        yield "rsqrt", torch.rsqrt, -1.0, ROOT, {}
        yield "acos", torch.acos, 1.5, ROOT, {}
        yield "asin", torch.asin, -1.5, ROOT, {}
        yield "acosh", torch.acosh, 0.5, ROOT, {"low": 1.5, "high": 3.0}
        yield "atanh", torch.atanh, 1.0, ROOT, {}
        yield "atanh", torch.atanh, 2.0, ROOT, {}
        yield "erfinv", torch.erfinv, 1.0, ROOT, {}
        yield "erfinv", torch.erfinv, 1.5, ROOT, {}
        yield "logit", torch.logit, 0.0, LOG, {}
        yield "logit", torch.logit, 1.0, LOG, {}
        yield "logit", torch.logit, 1.5, LOG, {}
        yield "reciprocal", torch.reciprocal, 0.0, DIVISION, {}
        yield "digamma", torch.digamma, 0.0, ROOT, {}
        yield "lgamma", torch.lgamma, 0.0, ROOT, {}
        yield "exp", torch.exp, over_exp, EXP, {}
        yield "exp2", torch.exp2, lambda d: over_exp(d) * 1.5, EXP, {}
        yield "expm1", torch.expm1, over_exp, EXP, {}
        yield "sinh", torch.sinh, over_exp, EXP, {}
        yield "cosh", torch.cosh, over_exp, EXP, {}
        yield "square", torch.square, over_root, OVERFLOW, {"op": "aten::pow", "no_out": True, "inplace": ""}
        yield "i0", torch.i0, lambda d: over_exp(d) * 1.1, (*EXP, *OVERFLOW), {"dtypes": WIDE}

    for name, function, poison, mechanisms, more in table():
        yield unary(name, function, poison, mechanisms, foreach=f"_foreach_{name}" if name in foreach else "", **more)
