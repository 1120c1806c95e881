"""Random ttir programs for property tests: every value they compute at the top is stored, so that it can be compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from kernelpack.ir.core import Block, Builder, Operation, Region, Value, module
from kernelpack.ir.formats import carrier, decode, encode
from kernelpack.ir.interpret import launch
from kernelpack.ir.types import (
    BF16,
    F16,
    F32,
    I1,
    I8,
    I32,
    I64,
    FloatType,
    FunctionType,
    PointerType,
    TensorType,
    Type,
    bit_width,
    element_of,
    is_float,
    is_int,
    shape_of,
    with_element,
    with_shape,
)

SIZE = 8
ELEMENTS = (I1, I8, I32, I64, F16, BF16, F32)
INT_BINARY = [
    *("addi", "subi", "muli", "andi", "ori", "xori", "maxsi", "maxui", "minsi", "minui", "divsi", "divui", "remsi", "remui"),
    *("shli", "shrsi", "shrui"),
]
FLOAT_BINARY = ["addf", "subf", "mulf", "divf", "remf", "maximumf", "minimumf", "maxnumf", "minnumf"]
FLOAT_UNARY = ("arith.negf", "math.absf", "math.ceil", "math.floor", "math.sqrt", "math.exp", "math.erf", "math.rsqrt")
NUMBERS = [0, 1, -1, 2, 3, 7, 100, -128]
FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, 8.0, 3.0, 1e30, float("inf"), float("nan")]

Draw = Callable[[st.SearchStrategy[Any]], Any]


@dataclass
class Program:
    """A module, and what to call it with: inputs of its pointer parameters, and the types of the outputs after them."""

    module: Operation
    outputs: list[Type]

    def run(self, inputs: dict[Type, np.ndarray], which: Operation | None = None) -> list[np.ndarray]:
        """Returns what the program, or another version of it, stores."""
        outs = [np.zeros(max(1, int(np.prod(shape_of(kind)))), _memory(element_of(kind))) for kind in self.outputs]
        launch(which or self.module, 2, [*(inputs[kind] for kind in ELEMENTS), *outs])
        return [decode(out, element_of(kind)) for out, kind in zip(outs, self.outputs, strict=True)]


def _memory(kind: Type) -> np.dtype[Any]:
    return np.dtype(bool) if kind == I1 else np.dtype(f"uint{kind.width}") if kind == BF16 else carrier(kind)


@st.composite
def inputs(draw: Draw) -> dict[Type, np.ndarray]:
    """Returns eight elements of every type, many of them extreme."""
    found = {}
    for kind in ELEMENTS:
        if is_float(kind):
            values = np.array(draw(st.lists(st.sampled_from([*FLOATS, -5.25, 1e-6, 65504.0]), min_size=SIZE, max_size=SIZE)))
            with np.errstate(over="ignore"):
                found[kind] = encode(decode(encode(values.astype(carrier(kind)), kind), kind), kind).view(_memory(kind))
        else:
            numbers = draw(st.lists(st.sampled_from([*NUMBERS, 127, -(1 << 31), (1 << 63) - 1]), min_size=SIZE, max_size=SIZE))
            found[kind] = np.array(numbers, np.int64).astype(_memory(kind))
    return found


@st.composite
def programs(draw: Draw, steps: int = 12) -> Program:
    """Returns a program of up to `steps` random operations, branches and loops among them."""
    block = Block([PointerType(kind) for kind in ELEMENTS], [f"in{n}" for n in range(len(ELEMENTS))])
    build = Builder(block)
    generator = _Generator(draw, build)
    generator.begin()
    for _ in range(draw(st.integers(1, steps))):
        generator.step(depth=0)
    outputs = [value for value in generator.values if is_int(value.type) or is_float(value.type)]
    for value in outputs:
        pointer = block.add_argument(PointerType(element_of(value.type)))
        build.create("tt.store", [_addresses(build, pointer, shape_of(value.type)), value])
    build.create("tt.return")
    kind = FunctionType(tuple(argument.type for argument in block.arguments), ())
    attributes = {"sym_name": "kernel", "sym_visibility": "public", "function_type": kind}
    made = module([Operation("tt.func", attributes=attributes, regions=[Region([block])])])
    return Program(made, [value.type for value in outputs])


def _addresses(build: Builder, pointer: Value, shape: tuple[int, ...]) -> Value:
    """Returns pointers to the elements of a tile in memory; the pointer itself for a scalar."""
    if not shape:
        return pointer
    size = int(np.prod(shape))
    offsets = build.value("tt.make_range", (), {"start": 0, "end": size})
    offsets = build.value("tt.reshape", [offsets], None, TensorType(shape, I32))
    return build.value("tt.addptr", [build.value("tt.splat", [pointer], None, TensorType(shape, pointer.type)), offsets])


class _Generator:
    """Adds random operations; `values` are those in sight."""

    def __init__(self, draw: Draw, build: Builder) -> None:
        self.draw = draw
        self.build = build
        self.pointers = list(build.block.arguments)
        self.values: list[Value] = []

    def begin(self) -> None:
        """Something of every kind to start with: tiles, a scalar each, the program's number."""
        for pointer in self.pointers:
            tile = self.build.value("tt.load", [_addresses(self.build, pointer, (SIZE,))])
            self.values += [tile, self.build.value("tt.load", [pointer])]
        self.values.append(self.build.value("tt.get_program_id", (), {"axis": "x"}))

    # ---- choices ----

    def pick(self, fits: Callable[[Type], bool]) -> Value | None:
        found = [value for value in self.values if fits(value.type)]
        return self.draw(st.sampled_from(found)) if found else None

    def like(self, value: Value, kind: Type | None = None) -> Value:
        """Returns a value of the same type (or of `kind`): one in sight, or a constant."""
        kind = kind or value.type
        found = self.pick(lambda other: other == kind)
        if found is not None and self.draw(st.integers(0, 2)):
            return found
        return self.constant(kind)

    def constant(self, kind: Type) -> Value:
        return self.build.constant(self.draw(st.sampled_from(FLOATS if is_float(kind) else NUMBERS)), kind)

    def step(self, depth: int) -> None:
        kinds = [self.ints, self.floats, self.compare, self.select, self.convert, self.shape, self.reduce, self.load]
        if depth < 2:
            kinds += [self.branch, self.loop]
        made = self.draw(st.sampled_from(kinds))(depth)
        if made is not None:
            self.values += made if isinstance(made, list) else [made]

    # ---- operations ----

    def ints(self, depth: int) -> Value | None:
        lhs = self.pick(is_int)
        assert lhs is not None
        name = self.draw(st.sampled_from(INT_BINARY))
        pair = [lhs, self.like(lhs)]
        return self.build.value(f"arith.{name}", pair if self.draw(st.booleans()) else pair[::-1])

    def floats(self, depth: int) -> Value | None:
        lhs = self.pick(is_float)
        assert lhs is not None
        if self.draw(st.integers(0, 3)) == 0:
            return self.build.value(self.draw(st.sampled_from(FLOAT_UNARY)), [lhs])
        if self.draw(st.integers(0, 5)) == 0:
            return self.build.value("math.fma", [lhs, self.like(lhs), self.like(lhs)])
        return self.build.value(f"arith.{self.draw(st.sampled_from(FLOAT_BINARY))}", [lhs, self.like(lhs)])

    def compare(self, depth: int) -> Value | None:
        from kernelpack.ir.dialects.arith import FLOAT_PREDICATES, INT_PREDICATES

        lhs = self.pick(lambda kind: is_int(kind) or is_float(kind))
        assert lhs is not None
        floats = is_float(lhs.type)
        predicate = self.draw(st.sampled_from(FLOAT_PREDICATES if floats else INT_PREDICATES))
        return self.build.value(f"arith.cmp{'f' if floats else 'i'}", [lhs, self.like(lhs)], {"predicate": predicate})

    def select(self, depth: int) -> Value | None:
        yes = self.pick(lambda kind: True)
        assert yes is not None
        no = self.pick(lambda kind: kind == yes.type)
        scalar = self.draw(st.booleans())
        condition = self.like(yes, I1 if scalar else with_element(yes.type, I1))
        return self.build.value("arith.select", [condition, yes, no])

    def convert(self, depth: int) -> Value | None:
        value = self.pick(lambda kind: is_int(kind) or is_float(kind))
        assert value is not None
        source, target = element_of(value.type), self.draw(st.sampled_from(ELEMENTS))
        if source == target:
            return None
        wider = bit_width(target) > bit_width(source)
        if isinstance(source, FloatType) and isinstance(target, FloatType):
            name = "tt.fp_to_fp" if bit_width(source) == bit_width(target) else "arith.extf" if wider else "arith.truncf"
        elif isinstance(source, FloatType):
            name = self.draw(st.sampled_from(["arith.fptosi", "arith.fptoui"]))
        elif isinstance(target, FloatType):
            name = self.draw(st.sampled_from(["arith.sitofp", "arith.uitofp"]))
        else:
            name = self.draw(st.sampled_from(["arith.extsi", "arith.extui"])) if wider else "arith.trunci"
        return self.build.value(name, [value], None, with_element(value.type, target))

    def shape(self, depth: int) -> Value | list[Value] | None:
        value = self.pick(lambda kind: is_int(kind) or is_float(kind))
        assert value is not None
        shape = shape_of(value.type)
        if not shape:
            return self.build.value("tt.splat", [value], None, TensorType((SIZE,), value.type))
        what = self.draw(st.sampled_from(["reshape", "trans", "expand", "split"]))
        if what == "reshape":
            shape = self.draw(st.sampled_from([(SIZE,), (2, SIZE // 2), (SIZE, 1)]))
            if int(np.prod(shape)) != int(np.prod(shape_of(value.type))):
                return None
            return self.build.value("tt.reshape", [value], None, with_shape(value.type, shape))
        if what == "trans":
            order = tuple(self.draw(st.permutations(range(len(shape)))))
            return self.build.value("tt.trans", [value], {"order": order})
        if what == "expand" and len(shape) == 1:
            wide = self.build.value("tt.expand_dims", [value], {"axis": 1})
            return self.build.value("tt.broadcast", [wide], None, with_shape(value.type, (*shape, 4)))
        if what == "split":
            join = self.build.value("tt.join", [value, self.like(value)])
            return list(self.build.create("tt.split", [join]).results)
        return None

    def reduce(self, depth: int) -> Value | None:
        value = self.pick(lambda kind: bool(shape_of(kind)) and (is_int(kind) or is_float(kind)))
        assert value is not None
        element, axis = element_of(value.type), self.draw(st.integers(0, len(shape_of(value.type)) - 1))
        name = self.draw(st.sampled_from(["tt.reduce", "tt.scan"]))
        body = Block([element, element])
        inner = Builder(body)
        combine = self.draw(st.sampled_from(["addf", "maxnumf"] if is_float(element) else ["addi", "maxsi", "xori"]))
        inner.create(f"{name}.return", [inner.value(f"arith.{combine}", body.arguments)])
        attributes: dict[str, Any] = {"axis": axis}
        if name == "tt.scan":
            attributes["reverse"] = self.draw(st.booleans())
        return self.build.create(name, [value], attributes, regions=[Region([body])]).result

    def load(self, depth: int) -> Value | None:
        pointer = self.draw(st.sampled_from(self.pointers))
        pointers = _addresses(self.build, pointer, (SIZE,))
        mask = self.like(pointers, TensorType((SIZE,), I1))
        other = self.like(pointers, TensorType((SIZE,), pointer.type.pointee)) if self.draw(st.booleans()) else None
        return self.build.value("tt.load", [pointers, mask, other])

    # ---- control flow ----

    def _nested(self, block: Block, more: list[Value], depth: int, types: list[Type]) -> None:
        """Fills a block and yields values of the given types."""
        outer, seen = self.build.block, list(self.values)
        self.build.block = block
        self.values += more
        for _ in range(self.draw(st.integers(0, 3))):
            self.step(depth + 1)
        results = [self.like(self.values[0], kind) for kind in types]
        self.build.create("scf.yield", results)
        self.build.block, self.values = outer, seen

    def _types(self) -> list[Type]:
        found = sorted({value.type for value in self.values}, key=str)
        return self.draw(st.lists(st.sampled_from(found), min_size=0, max_size=3))

    def branch(self, depth: int) -> list[Value]:
        condition = self.like(self.values[0], I1)
        types = self._types()
        op = self.build.create("scf.if", [condition], None, types, [Region([Block()]), Region([Block()])])
        for region in op.regions:
            self._nested(region.block, [], depth, types)
        return list(op.results)

    def loop(self, depth: int) -> list[Value]:
        bounds = [self.build.constant(self.draw(st.integers(low, high)), I32) for low, high in ((-1, 2), (-1, 4), (1, 3))]
        if self.draw(st.booleans()):
            count = self.pick(lambda kind: kind == I32)
            assert count is not None
            bounds[1] = self.build.value("arith.andi", [count, self.build.constant(3, I32)])
        types = self._types()
        initial = [self.like(self.values[0], kind) for kind in types]
        body = Block([I32, *types])
        op = self.build.create("scf.for", [*bounds, *initial], None, types, [Region([body])])
        self._nested(body, list(body.arguments), depth, types)
        return list(op.results)
