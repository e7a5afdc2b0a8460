"""Draws programs that fail in one known place, runs them under a trace, and says where the answer differs.

A program is a fault of the table, a dtype, a memory layout, a form of the call and a place in a model. What is right
follows from how it was made; the index of the first bad element is read off the same program run without a trace.
"""

from __future__ import annotations

import collections
import inspect
import math
import random
import threading
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import firstfault as ff
from tests.generated import backward, fault, forward

LAYOUTS = ("contiguous", "transposed", "strided", "offset", "expanded", "channels_last", "one_element")
FORWARD_FORMS = (
    "plain",
    "in-place",
    "in-place on a view",
    "out",
    "foreach",
    "foreach in-place",
    "autocast",
    "no_grad",
    "inference_mode",
    "vmap",
    "jit",
    "thread",
    "with gradients",
)
BACKWARD_FORMS = ("plain", "checkpoint", "reentrant checkpoint", "retained graph", "autograd.grad", "thread")
# What an optimizer does to every parameter: that the operand was finite is known, its values are not kept.
NOT_KEPT = ("add_", "sub_", "mul_", "addcmul_", "addcdiv_", "lerp_")
MATRIX_OPS = ("aten::mm", "aten::addmm", "aten::bmm")


@dataclass(frozen=True)
class Program:
    fault: fault.Fault
    dtype: torch.dtype
    layout: str
    form: str
    seed: int

    def __str__(self):
        dtype = str(self.dtype).removeprefix("torch.")
        return f"{self.fault.name}, {dtype}, {self.layout}, {self.form} (program {self.seed})"


IN_PLACE = lambda method, x, *rest: getattr(x, method)(*rest)  # noqa: E731
OUT = lambda out, into, *operands: out(*operands, into)  # noqa: E731
FOREACH = lambda name, *lists: getattr(torch, name)(*lists)  # noqa: E731


def line_of(function):
    return inspect.getsourcefile(function), function.__code__.co_firstlineno


def draw(seed, count):
    """`count` programs, different for each seed, every fault of the table at least once where count allows."""
    chooser = random.Random(seed)
    everything = [*fault.elementwise(), *forward.faults(), *backward.faults()]
    programs, used = [], collections.Counter()
    while len(programs) < count:
        one = everything[len(programs) % len(everything)]
        program = draw_one(one, chooser, used, seed * 1_000_000 + len(programs))
        used[program.form] += 1
        programs.append(program)
    return programs


def draw_one(one, chooser, used, number):
    """In the rarest form so far that fits, so that those which few faults have are drawn too."""
    forms = BACKWARD_FORMS if one.backward else FORWARD_FORMS
    for form in sorted(forms, key=lambda form: (used[form], chooser.random())):
        for _ in range(12):
            layout = chooser.choice(LAYOUTS if one.view else LAYOUTS[:1])
            program = Program(one, chooser.choice(one.dtypes), layout, form, number)
            if fits(program):
                return program
    raise RuntimeError(f"no program for {one.name}")


def fits(program):
    """Torch has this op in this form and dtype, and the program fails there and nowhere before."""
    fault, form = program.fault, program.form
    needs = {
        "in-place": fault.inplace,
        "in-place on a view": fault.inplace,
        "out": fault.out,
        "foreach": fault.foreach,
        "foreach in-place": fault.foreach,
        "autocast": fault.op in MATRIX_OPS and program.dtype is torch.float32,
        "vmap": fault.shapes is None and fault.value is not None and not program.dtype.is_complex,
        "jit": fault.shapes is None,
    }
    if not needs.get(form, True):
        return False
    if program.layout == "expanded" and ("in-place" in form or fault.backward):
        return False
    if program.layout in ("channels_last", "one_element") and (fault.shapes or fault.value is None):
        return False
    if fault.forward_op and form.startswith(("checkpoint", "reentrant")) and fault.setup.get("forward_bad"):
        return False
    if "float8" in fault.name and form != "plain":
        return False
    try:
        run = Run(program)
        run.forward()
        if fault.backward:
            run.backward()
    except (RuntimeError, TypeError, IndexError):
        return False
    return run.is_as_meant()


def first_bad(tensor):
    tensor = tensor.detach()
    tensor = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    bad = ~torch.isfinite(tensor.float() if tensor.itemsize == 1 else tensor)
    if not bad.any():
        return None
    index = tuple(torch.nonzero(bad)[0].tolist())
    return index


class Layout:
    """`view(base)` has the given values in a memory of the layout's kind."""

    def __init__(self, kind, values):
        if kind == "transposed" and values.dim() >= 2:
            self.base, self.view = values.transpose(-1, -2).contiguous(), lambda b: b.transpose(-1, -2)
        elif kind == "strided" and values.dim() >= 1:
            base = torch.full((*values.shape[:-1], 2 * values.shape[-1]), 0.5, dtype=values.dtype)
            base[..., ::2] = values
            self.base, self.view = base, lambda b: b[..., ::2]
        elif kind == "offset" and values.dim() >= 1:
            self.base = torch.cat([torch.full_like(values[:1], 0.5), values])
            self.view = lambda b: b[1:]
        elif kind == "expanded" and values.dim() >= 2:
            rows = values.shape[0]
            self.base, self.view = values[:1].clone(), lambda b: b.expand(rows, *b.shape[1:])
        elif kind == "channels_last" and values.dim() == 4:
            self.base, self.view = values.contiguous(memory_format=torch.channels_last), lambda b: b
        else:
            self.base, self.view = values.clone(), lambda b: b


class Block(nn.Module):
    """The module with the fault; its operands are its parameters in a backward program."""

    def __init__(self):
        super().__init__()
        self.call = None

    def forward(self, x):
        return self.call() if self.call else x * 1.0


class Model(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(depth))

    def forward(self, x):
        outputs = [block(x) for block in self.blocks]
        return next((y for block, y in zip(self.blocks, outputs, strict=True) if block.call), None)


class Run:
    """One execution; the same seed gives the same numbers, traced or not."""

    def __init__(self, program):
        self.program, self.fault = program, program.fault
        self.choose = random.Random(program.seed)
        self.make_operands()
        depth = self.choose.randint(1, 3)
        self.at = self.choose.randrange(depth)
        self.model = Model(depth)
        self.in_model = self.choose.random() < 0.7
        self.tail = [self.choose.choice(("mul", "add", "neg", "flat")) for _ in range(self.choose.randint(0, 2))]
        self.computed = self.choose.random() < 0.5 and not self.fault.backward
        if self.fault.backward:
            self.leaves = [nn.Parameter(layout.base) for layout in self.layouts]
            for number, leaf in enumerate(self.leaves):
                self.model.blocks[self.at].register_parameter(f"operand{number}", leaf)
        else:
            self.leaves = [layout.base for layout in self.layouts]
            if program.form == "with gradients" and not program.dtype.is_complex:
                self.leaves = [leaf.requires_grad_() for leaf in self.leaves]
        if program.form == "jit":
            self.jitted = torch.jit.trace(
                self.fault.apply, tuple(each.view(each.base) for each in self.healthy_layouts)
            )
        self.result, self.node_inputs = None, []

    def shapes(self):
        rows, columns = self.choose.randint(2, 5), self.choose.randint(2, 40)
        if self.fault.shapes:
            return self.fault.shapes(rows, columns)
        if self.program.layout == "channels_last":
            shape = (rows, 3, columns, 2)
        elif self.program.layout == "one_element":
            shape = (1, 1)
        else:
            shape = (rows, columns)
        return [shape] * len(self.fault.poison)

    def poison_of(self, number):
        value = self.fault.poison[number]
        dtype = torch.float16 if self.program.form == "autocast" else self.program.dtype
        return value(dtype) if callable(value) else value

    def make_operands(self):
        self.layouts, self.healthy_layouts, self.poisons = [], [], []
        where = None
        for number, shape in enumerate(self.shapes()):
            generator = torch.Generator().manual_seed(self.program.seed + number)
            low, high = self.fault.low, self.fault.high
            values = torch.rand(shape, generator=generator, dtype=torch.float64) * (high - low) + low
            values = values.to(self.program.dtype)
            self.healthy_layouts.append(Layout("contiguous", values))
            poison = self.poison_of(number)
            if where is None or len(where) != len(shape):
                last = 1 if self.program.layout == "expanded" else shape[0]
                where = (self.choose.randrange(last), *(self.choose.randrange(size) for size in shape[1:]))
            if self.fault.row:
                values[where[0]] = poison
            elif poison is not None and self.fault.whole:
                values.fill_(poison)
            elif poison is not None:
                values[where] = poison
            self.poisons.append(poison)
            self.layouts.append(Layout(self.program.layout, values))

    def operands(self):
        tensors = []
        for leaf, layout in zip(self.leaves, self.layouts, strict=True):
            tensors.append(layout.view(leaf * 1.0 if self.computed else leaf))
        return tensors

    def apply(self):
        form, fault = self.program.form, self.fault
        operands = self.operands()
        if form.startswith("in-place"):
            first = operands[0] if not operands[0].requires_grad else operands[0].clone()
            if form.endswith("view"):
                around = torch.cat([first, first[:1] * 0 + 0.5])
                IN_PLACE(fault.inplace, around[: first.shape[0]], *operands[1:])
                return around
            return IN_PLACE(fault.inplace, first, *operands[1:])
        if form == "out":
            return OUT(fault.out, torch.empty_like(operands[0], memory_format=torch.contiguous_format), *operands)
        if form.startswith("foreach"):
            return self.apply_foreach(operands, in_place=form.endswith("in-place"))
        if form == "vmap":
            return torch.vmap(fault.apply)(*operands)
        if form == "jit":
            return self.jitted(*operands)
        if form == "checkpoint":
            return checkpoint(fault.apply, *operands, use_reentrant=False)
        if form == "reentrant checkpoint":
            return checkpoint(fault.apply, *operands, use_reentrant=True)
        return fault.apply(*operands)

    def apply_foreach(self, operands, in_place):
        healthy = [layout.view(layout.base.clone()) for layout in self.healthy_layouts]
        position = self.choose.randrange(3)
        lists = [
            [bad if i == position else good.clone() for i in range(3)]
            for bad, good in zip(operands, healthy, strict=True)
        ]
        if in_place:
            FOREACH(self.fault.foreach + "_", *lists)
            return lists[0][position]
        return FOREACH(self.fault.foreach, *lists)[position]

    def context(self):
        return {
            "autocast": lambda: torch.autocast("cpu", torch.float16),
            "no_grad": torch.no_grad,
            "inference_mode": torch.inference_mode,
        }.get(self.program.form, torch.enable_grad)()

    def forward(self):
        if self.program.form == "thread":
            thread = threading.Thread(target=self.compute)
            thread.start()
            thread.join()
        else:
            self.compute()
        return self.loss

    def compute(self):
        with self.context():
            if self.in_model:
                self.model.blocks[self.at].call = self.apply
                y = self.model(torch.ones(2))
            else:
                self.model(torch.ones(2))
                y = self.apply()
            self.result = y
            self.loss = self.reduce(y)

    def reduce(self, y):
        if y.itemsize == 1:
            y = y.float()
        if y.is_complex():
            y = torch.view_as_real(y)
        for step in self.tail:
            y = {"mul": lambda t: t * 0.5, "add": lambda t: t + 0.25, "neg": torch.neg, "flat": torch.flatten}[step](y)
        return (y * self.fault.setup.get("scale", 1.0)).sum() if self.fault.backward else y.sum()

    def hook(self):
        """Keep the gradients that the faulty node gives, to know the first bad element."""
        todo, seen = [self.loss.grad_fn], set()
        while todo:
            node = todo.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            if node.name() == self.fault.op:
                node.register_hook(lambda inputs, outputs: self.node_inputs.extend(inputs))
            todo += [following for following, _ in node.next_functions]

    def backward(self):
        self.hook()
        if self.program.form == "autograd.grad":
            for leaf, gradient in zip(self.leaves, torch.autograd.grad(self.loss, self.leaves), strict=True):
                leaf.grad = gradient
        elif self.program.form == "retained graph":
            self.loss.backward(retain_graph=True)
        else:
            self.loss.backward()

    def is_as_meant(self):
        if not self.fault.backward:
            finite = all(first_bad(leaf) is None for leaf in self.leaves)
            return finite and first_bad(self.result) is not None and first_bad(self.loss) is not None
        gradients = [leaf.grad for leaf in self.leaves if leaf.grad is not None]
        fine = first_bad(self.loss) is None
        return fine and any(first_bad(gradient) is not None for gradient in gradients)


def bare(op):
    return op.rstrip("_") if op and not op.startswith("__") else op


def expected_op(program):
    if program.form.startswith("foreach"):
        return "aten::" + program.fault.foreach
    return program.fault.op


def check(program):
    """Run it under a trace. The list of what is wrong with the answer, empty when all is right."""
    reference = Run(program)
    reference.forward()
    if program.fault.backward:
        reference.backward()
    run = Run(program)
    if program.fault.backward:
        optimizer = torch.optim.SGD(run.model.parameters(), lr=0.1)
    tracker = ff.trace()
    with tracker:
        tracker.watch(run.model)
        run.forward()
        if program.fault.backward:
            run.backward()
            optimizer.step()
    if program.fault.backward:
        found = [origin for origin in tracker.origins() if origin.sink]
        if len({(o.op, o.forward_op) for o in found}) > 1:
            return [f"several origins: {[str(o) for o in found]}"]
        target = "gradient"
    else:
        found = tracker.diagnose(run.loss).culprits
        target = "loss"
        if len(found) > 1:
            return [f"several culprits: {[o.op for o in found]}"]
    if not found:
        return [f"nothing found for the {target}"]
    return list(differences(program, run, reference, found[0]))


def differences(program, run, reference, origin):
    fault = program.fault
    named = {bare(origin.op), bare(origin.forward_op)} if fault.setup.get("forward_bad") else {bare(origin.op)}
    if bare(expected_op(program)) not in named:
        yield f"op is {origin.op} (inner {origin.inner_op}), not {expected_op(program)}"
        return
    if fault.backward and not fault.setup.get("forward_bad") and origin.forward_op != fault.forward_op:
        yield f"forward op is {origin.forward_op}, not {fault.forward_op}"
    module = f"model.blocks.{run.at}" if run.in_model else None
    if origin.module != module:
        yield f"module is {origin.module}, not {module}"
    if program.form != "jit":
        function = fault.apply
        function = IN_PLACE if "in-place" in program.form else function
        function = FOREACH if "foreach" in program.form else function
        function = fault.out if program.form == "out" else function
        if (origin.file, origin.line) != line_of(function) and "unary" not in str(origin.file):
            yield f"line is {origin.file}:{origin.line}, not {line_of(function)}"
    if not fault.backward and not isinstance(reference.result, list):
        index = first_bad(reference.result) if fault.op == bare(origin.op) else None
        if index is not None and program.dtype.is_complex:
            index = index[:-1]
        same_shape = tuple(reference.result.shape) == origin.shape
        if index is not None and same_shape and origin.index != index:
            yield f"index is {origin.index}, not {index}"
    if fault.backward and fault.value is not None and reference.node_inputs:
        indices = [first_bad(t) for t in reference.node_inputs if t is not None and first_bad(t) is not None]
        if indices and origin.index not in indices:
            yield f"index is {origin.index}, not {indices}"
    if origin.mechanism not in fault.mechanisms:
        yield f"mechanism is {origin.mechanism}, not {fault.mechanisms}: {operands_of(origin)}"
    if fault.value is not None and not fault.backward and program.form not in ("autocast",):
        yield from value_differences(program, origin)


def value_differences(program, origin):
    if program.dtype.is_complex:
        return
    if "in-place" in program.form and origin.op.removeprefix("aten::").removeprefix("_foreach_") in NOT_KEPT:
        return
    tensors = [operand for operand in origin.operands if not operand.is_scalar_argument]
    poison = Run(program).poisons[program.fault.value]
    if not tensors or poison is None:
        return
    number = min(program.fault.value, len(tensors) - 1)
    value = tensors[number].value
    exact = torch.tensor(poison, dtype=program.dtype).item()
    if value is None or not math.isclose(value, exact, rel_tol=1e-6):
        yield f"operand {number} has value {value}, not {exact}"


def operands_of(origin):
    return [(o.name, o.dtype, str(o.state), o.value, o.min, o.max, o.was_overwritten) for o in origin.operands]
