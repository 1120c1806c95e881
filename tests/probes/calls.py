"""Calls of each op that its documentation allows, but perhaps for how one tensor lies in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from tests.ops import extremes
from tests.ops.grid import module_of
from tests.probes.draw import Draw
from tests.probes.tensors import LAYOUTS, MEMORY, ROW_LAYOUTS, Placed, Shape, place

FLOATS = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
FLOATS8 = {"float8_e4m3fn": torch.float8_e4m3fn, "float8_e5m2": torch.float8_e5m2}
E4M3, BF16, F32 = torch.float8_e4m3fn, torch.bfloat16, torch.float32


@dataclass
class Call:
    """An op and its arguments by name, in the schema's order. `edge` names the extreme values among them, as tests/ops/extremes.py
    does; "" where all are usual. `memory` holds the bytes of each tensor."""

    op: str
    dtype: torch.dtype
    arguments: dict[str, Any]
    edge: str = ""
    memory: list[Placed] = field(default_factory=list)

    @property
    def tensors(self) -> dict[str, torch.Tensor]:
        return {name: value for name, value in self.arguments.items() if isinstance(value, torch.Tensor)}

    def given(self, /, **arguments: Any) -> Call:
        """Returns the call with other arguments."""
        return replace(self, arguments={**self.arguments, **arguments})

    def names(self) -> list[Any]:
        """Returns the schema's arguments."""
        return list(packet(self.op).default._schema.arguments)

    def spelled(self, by_name: bool = False) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns the arguments as they are passed: by place as far as that goes, or all by name."""
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for argument in self.names():
            if argument.name not in self.arguments:
                by_name = True
            elif by_name or argument.kwarg_only:
                kwargs[argument.name] = self.arguments[argument.name]
            else:
                args.append(self.arguments[argument.name])
        unknown = {name: value for name, value in self.arguments.items() if name not in {a.name for a in self.names()}}
        return tuple(args), {**kwargs, **unknown}

    def for_reference(self, convert: Callable[[torch.Tensor], torch.Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns the arguments of the op's `reference`: tensors, of each its `convert`, by place, all else by name."""
        given = {name: convert(x) if isinstance(x, torch.Tensor) else x for name, x in self.arguments.items()}
        tensors = [argument.name for argument in self.names() if "Tensor" in str(argument.type)]
        return tuple(given.get(name) for name in tensors), {name: x for name, x in given.items() if name not in tensors}

    def reference(self, convert: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        """Returns what torch computes."""
        args, kwargs = self.for_reference(convert)
        result: torch.Tensor = module_of(self.op).reference(*args, **kwargs)
        return result


def packet(op: str) -> Any:
    return getattr(torch.ops.kernelpack, op)


def run(call: Call) -> Any:
    """Calls the op."""
    args, kwargs = call.spelled()
    return packet(call.op)(*args, **kwargs)


def as_function(call: Call, overload: str = "") -> tuple[Callable[..., Any], tuple[torch.Tensor, ...]]:
    """Returns the op or an overload as a function of the call's tensors and of further keywords, and these tensors. Compilers read it."""
    args, kwargs = call.spelled()
    count, op = len(args), getattr(packet(call.op), overload) if overload else packet(call.op)
    values, names = [*args, *kwargs.values()], list(kwargs)
    slots = [slot for slot, value in enumerate(values) if isinstance(value, torch.Tensor)]

    def function(*tensors: torch.Tensor, **more: Any) -> Any:
        filled = list(values)
        for slot, x in zip(slots, tensors, strict=True):
            filled[slot] = x
        return op(*filled[:count], **dict(zip(names, filled[count:], strict=True)), **more)

    return function, tuple(values[slot] for slot in slots)


class Maker:
    """Makes the tensors of one call: one of them lies in any way, the others so that every op takes them."""

    def __init__(self, draw: Draw, names: list[str], edges: list[str]) -> None:
        self.draw = draw
        self.odd = draw.deal("odd", names)
        self.layout = draw.deal("layout", list(LAYOUTS))
        self.memory = draw.deal("memory", list(MEMORY))
        self.edge = draw.deal("values", ["usual", "usual", *edges]) if edges else "usual"
        self.placed: list[Placed] = []

    def tensor(
        self,
        name: str,
        shape: Shape,
        dtype: torch.dtype,
        *,
        transposed: bool = False,
        values: torch.Tensor | None = None,
        largest: float | None = None,
    ) -> torch.Tensor:
        """Returns an argument; a transposed one is the transpose of how it lies."""
        layout, memory = "contiguous", "torch"
        if name == self.odd:
            layout, memory = self.layout, self.memory
        elif self.draw.chance(0.3) and name not in ("weight", "bias", "scale_a", "scale_b"):
            layout = self.draw.any(list(ROW_LAYOUTS)[:4])
        if values is not None:
            layout = "contiguous"
        made = place(
            self.draw, shape[::-1] if transposed else shape, dtype, layout=layout, memory=memory, values=values, largest=largest
        )
        self.placed.append(made)
        return made.tensor.t() if transposed else made.tensor

    def some(self, *names: str) -> bool:
        """Whether an optional argument is given: always where one of the names is the odd tensor."""
        return self.odd in names or self.draw.chance(0.6)

    def set_row(self, x: torch.Tensor, make: extremes.Row) -> None:
        """Writes extreme values to one row of a tensor, or to as much of it as lies apart."""
        if x.numel() == 0 or x.dim() == 0:
            return
        row = x[tuple(self.draw.number(0, extent - 1) for extent in x.shape[:-1])]
        apart = row if row.stride(0) else row[:1]
        apart.copy_(make(row.numel(), torch.finfo(x.dtype)).to(x.dtype)[: apart.numel()])


def _extent(draw: Draw, largest: int = 70) -> int:
    return draw.any([0, 1, 1, 2, 3, 5, 7, 8, 16, 17, 31, 33, 64, largest, draw.number(1, largest)])


def rows_shape(draw: Draw) -> Shape:
    """1 to 5 dimensions: long rows, many rows, or few."""
    rank = int(draw.deal("rank", ["1", "2", "3", "4", "5"]))
    columns = draw.any([_extent(draw), _extent(draw, 300), draw.any([127, 129, 513, 1000, 4097])])
    lead = [draw.any([1, 2, 3, 4]) for _ in range(rank - 1)]
    if lead and draw.chance(0.1):
        lead[draw.number(0, rank - 2)] = draw.any([0, 40])
    return (*lead, columns)


ROW_EDGES = list(extremes.ROWS)


def _rows(draw: Draw, optional: tuple[str, ...], edges: list[str]) -> tuple[Call, Maker]:
    """A tensor of rows, and parameters that hold one value for each column."""
    dtype = draw.deal_from("dtype", FLOATS)
    make = Maker(draw, ["x", *optional], edges)
    shape = rows_shape(draw)
    call = Call(draw.op, dtype, {"x": make.tensor("x", shape, dtype)}, memory=make.placed)
    for name in optional:
        if make.some(name):
            call.arguments[name] = make.tensor(name, shape[-1:], dtype)
    if make.edge != "usual":
        make.set_row(call.arguments["x"], extremes.ROWS[make.edge])
        call.edge = f"{make.edge}, {shape[-1]}"
    return call, make


def softmax(draw: Draw) -> Call:
    call, _ = _rows(draw, (), ROW_EDGES)
    dim = draw.any([None, -1, call.arguments["x"].dim() - 1])
    return call if dim is None else call.given(dim=dim)


WILD = [float("nan"), float("inf"), 1e30, -1.0, 0.0, 1.0]
"""Values of eps that nobody should pass; they mean what they mean in torch."""


def rms_norm(draw: Draw) -> Call:
    call, _ = _rows(draw, ("weight",), ROW_EDGES)
    return _with_eps(draw, call)


def layer_norm(draw: Draw) -> Call:
    call, _ = _rows(draw, ("weight", "bias"), ROW_EDGES)
    return _with_eps(draw, call)


def _with_eps(draw: Draw, call: Call) -> Call:
    kind = draw.deal("eps", ["none", "small", "wild"])
    if kind == "none":
        return call
    if kind == "wild" and not call.edge:
        return call.given(eps=draw.any(WILD))
    return call.given(eps=draw.any([1e-6, 1e-5, 1e-3]))


def gelu(draw: Draw) -> Call:
    call, _ = _rows(draw, (), [name for name in ROW_EDGES if "infinity" not in name])
    approximate = draw.any([None, 0, 1])
    if call.edge:
        call.edge += f", {approximate or 0}"
    return call if approximate is None else call.given(approximate=approximate)


def silu_mul(draw: Draw) -> Call:
    dtype = draw.deal_from("dtype", FLOATS)
    make = Maker(draw, ["gate", "up"], ROW_EDGES)
    shape = rows_shape(draw)
    gate, up = make.tensor("gate", shape, dtype), make.tensor("up", shape, dtype)
    call = Call(draw.op, dtype, {"gate": gate, "up": up}, memory=make.placed)
    if make.edge != "usual":
        other = draw.any(["one lowest", "subnormal", "signed zeros"])
        make.set_row(gate, extremes.ROWS[make.edge])
        make.set_row(up, extremes.ROWS[other])
        call.edge = f"{make.edge} times {other}"
    return call


def rope(draw: Draw) -> Call:
    dtype = draw.deal_from("dtype", FLOATS)
    make = Maker(draw, ["x", "cos", "sin"], ROW_EDGES)
    shape = (draw.any([0, 1, 2, 3]), draw.any([0, 1, 2, 5]), _extent(draw, 40), _extent(draw, 140))
    pairs = draw.any([shape[3] // 2, shape[3] // 2, draw.number(0, shape[3] // 2)])
    lead = draw.any([shape[2:3], (1,), (), (*shape[:1], 1, *shape[2:3]), (1, *shape[1:3]), shape[:3]])
    angles = dtype if draw.chance(0.5) else F32
    cos, sin = (make.tensor(name, (*lead, pairs), angles, largest=1.0) for name in ("cos", "sin"))
    call = Call(draw.op, dtype, {"x": make.tensor("x", shape, dtype), "cos": cos, "sin": sin}, memory=make.placed)
    interleaved = draw.any([None, False, True])
    if make.edge != "usual":
        make.set_row(call.arguments["x"], extremes.ROWS[make.edge])
        call.edge = f"{make.edge}, {bool(interleaved)}"
    return call if interleaved is None else call.given(interleaved=interleaved)


def matmul(draw: Draw) -> Call:
    dtype = draw.deal_from("dtype", FLOATS)
    make = Maker(draw, ["a", "b", "bias"], ROW_EDGES)
    rows, columns, depth = _extent(draw, 130), _extent(draw, 130), _extent(draw, 100)
    if draw.chance(0.06):  # more than a large block
        rows, columns = draw.any([260, 513, 700]), draw.any([256, 300, 520])
    batches = draw.deal(
        "batches", ["none", "none", "of a", "of both", "of both, 1", "of b", "two of a", "two of both", "two, crossed", "three"]
    )
    some = draw.any([0, 1, 2, 3, 4])
    lead_a, lead_b = {
        "none": ((), ()),
        "of a": ((some,), ()),
        "of both": ((some,), (some,)),
        "of both, 1": ((some,), (1,)),
        "of b": ((), (some,)),
        "two of a": ((2, some), ()),
        "two of both": ((2, some), (2, some)),
        "two, crossed": ((2, 1), (some,)),
        "three": ((2, some, 2), (some, 1)),
    }[batches]
    a = make.tensor("a", (*lead_a, rows, depth), dtype)
    b = make.tensor("b", (*lead_b, depth, columns), dtype, transposed=not lead_b and draw.chance(0.5))
    call = Call(draw.op, dtype, {"a": a, "b": b}, memory=make.placed)
    if make.edge != "usual" or make.some("bias"):
        call.arguments["bias"] = make.tensor("bias", (columns,), dtype)
    activation = draw.any([None, 0, 1, 2, 3, 4])
    if make.edge != "usual":
        make.set_row(a, extremes.ROWS[make.edge])
        call.edge = f"{make.edge}, {rows}x{columns}"
        return call
    return call if activation is None else call.given(activation=activation)


MHA_EDGES = ["one largest", "one lowest", "subnormal", "zeros", "one infinity", "one NaN", "all largest"]
SCALES = [-0.7, 0.0, -0.0, 1e-30, 1e-44, 5.0]


def mha(draw: Draw) -> Call:
    dtype = draw.deal_from("dtype", FLOATS)
    make = Maker(draw, ["query", "key", "value", "attn_mask"], [*MHA_EDGES, "mask", "mask"])
    group, heads = draw.any([(1, 1), (1, 3), (2, 2), (4, 1), (1, 0)])
    batch = draw.deal("batches", ["none", "0", "1", "2", "3"])
    lead = () if batch == "none" else (int(batch),)
    queries, keys = draw.any([1, 1, 2, 3, 7, 33, 65, 0, 80]), draw.any([1, 2, 9, 33, 64, 65, 130, 300, 0])
    if draw.chance(0.06):  # more than a few blocks
        queries, keys = draw.any([1, 130, 257]), draw.any([257, 600, 1100])
    size = draw.any([1, 2, 8, 16, 31, 32, 40, 64, 65, 100, 128, 256, 0])
    value_size = size if draw.chance(0.7) else draw.any([1, 7, 48, 150])
    extreme = make.edge != "usual" or draw.chance(0.2)
    if extreme:  # magnitudes of tests/ops/extremes.py are those of heads that stand side by side
        group, heads, size, value_size = 1, max(heads, 1), max(size, 1), max(value_size, 1)
        queries, keys = max(queries, 1), max(keys, 1)
    arguments: dict[str, Any] = {
        "query": make.tensor("query", (*lead, heads * group, queries, size), dtype),
        "key": make.tensor("key", (*lead, heads, keys, size), dtype),
        "value": make.tensor("value", (*lead, heads, keys, value_size), dtype),
    }
    call = Call(draw.op, dtype, arguments, memory=make.placed)
    if make.edge == "mask":
        name = draw.any(list(extremes.MASKS))
        values = extremes.MASKS[name](queries, keys, torch.finfo(dtype))
        kind = torch.bool if values.dtype == torch.bool else dtype
        arguments["attn_mask"] = make.tensor("attn_mask", (queries, keys), kind, values=values)
        call.edge = f"mask {name}, {queries}x{keys}"
    elif extreme:
        pass
    elif make.some("attn_mask"):
        shapes: list[Shape] = [(queries, keys), (1, keys), (queries, 1), (keys,), (1,), (heads * group, 1, keys)]
        if lead:
            shapes += [(*lead, 1, queries, keys), (*lead, 1, 1, keys), (*lead, heads * group, queries, keys), (1, 1, 1, 1)]
        arguments["attn_mask"] = make.tensor("attn_mask", draw.any(shapes), torch.bool if draw.chance(0.5) else dtype)
    else:
        arguments["is_causal"] = draw.chance(0.5)
    if make.edge in MHA_EDGES:
        name = draw.any(["query", "key", "value"])
        make.set_row(arguments[name], extremes.ROWS[make.edge])
        call.edge = f"{make.edge} in {name}, {queries}x{keys}"
    elif extreme and not call.edge:
        arguments["scale"] = draw.any(SCALES)
        call.edge = f"scale {arguments['scale']}, {queries}x{keys}"
    if group > 1 or draw.chance(0.2):
        arguments["enable_gqa"] = True
    return call


SCALED_EDGES = ["all largest", "all lowest", "lowest and largest", "one largest", "signed zeros", "one NaN", "subnormal"]


def scaled_matmul(draw: Draw) -> Call:
    dtype = draw.deal_from("dtype", FLOATS8)
    make = Maker(draw, ["a", "b", "scale_a", "scale_b", "bias"], SCALED_EDGES)
    rows, columns, depth = _extent(draw, 130), _extent(draw, 130), _extent(draw, 100)
    shape_a = draw.any([(), (1,), (1, 1), (rows, 1), (rows, 1)])
    shape_b = draw.any([(), (1,), (1, 1), (1, columns), (columns,), (1, columns)])
    call = Call(
        draw.op,
        dtype,
        {
            "a": make.tensor("a", (rows, depth), dtype),
            "b": make.tensor("b", (depth, columns), E4M3, transposed=True),
            "scale_a": make.tensor("scale_a", shape_a, F32),
            "scale_b": make.tensor("scale_b", shape_b, F32),
        },
        memory=make.placed,
    )
    if make.some("bias"):
        call.arguments["bias"] = make.tensor("bias", (columns,), BF16)
    elif make.edge != "usual":
        make.set_row(call.arguments["a"], extremes.ROWS[make.edge])
        call.edge = f"{make.edge}, scale 1.0"
    return call


CALLS: dict[str, Callable[[Draw], Call]] = {
    "gelu": gelu,
    "layer_norm": layer_norm,
    "matmul": matmul,
    "mha": mha,
    "rms_norm": rms_norm,
    "rope": rope,
    "scaled_matmul": scaled_matmul,
    "silu_mul": silu_mul,
    "softmax": softmax,
}
