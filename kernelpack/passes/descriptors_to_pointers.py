"""descriptors_to_pointers: accesses through tensor descriptors become masked accesses through tiles of pointers.

    %x = tt.descriptor_load %d[%i, %j]   =>   %x = tt.load (base + i stride0 + j + rows stride0 + columns),
                                                           (rows < size0 - i and columns < size1 - j), padding

The differences of scalars in the masks do not overflow where coordinates do; a lower bound is tested where a coordinate may be
negative.

What a backend copies as a whole stays. If it can do so only where rows end at multiples of some bytes, such as 16, the kernel asks:

    tt.descriptor_store %d[%i, %j], %x   =>   scf.if (size1 % 16 bytes == 0) { tt.descriptor_store %e[%i, %j], %x }
                                              else { tt.store ... }

where %e is %d with rows that are seen to end so.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from kernelpack.analysis.axis_info import AxisInfoAnalysis
from kernelpack.compiled import DESCRIPTOR, POINTERS, DescriptorForm
from kernelpack.ir.core import Block, Builder, Operation, Region, Value, functions
from kernelpack.ir.dialect import attribute, operand, operands_called
from kernelpack.ir.dialects.descriptors import atomic_of, block_of
from kernelpack.ir.types import I1, I32, I64, TensorType, Type, bit_width, shape_of, with_element, with_shape

MAKE = "tt.make_tensor_descriptor"
ACCESSES = (
    "tt.descriptor_load",
    "tt.descriptor_store",
    "tt.descriptor_reduce",
    "tt.descriptor_gather",
    "tt.descriptor_scatter",
)
_ALIGNED = 16
"""Bytes by which bases and strides of descriptors are divisible (make_tensor_descriptor)."""


def descriptors_to_pointers(
    module: Operation,
    form: Callable[[Operation, AxisInfoAnalysis], DescriptorForm] = lambda access, facts: POINTERS,
) -> bool:
    """Rewrites a module in place; returns whether anything changed. `form` says what becomes of an access."""
    changed = False
    for function in functions(module):
        makes = [op for op in function.walk() if op.name == MAKE]
        for make in makes:
            _promise(operand(make, "base"), _ALIGNED)
            for stride in operands_called(make, "strides"):
                _promise(stride, _ALIGNED * 8 // bit_width(block_of(make.result.type)))
        facts = AxisInfoAnalysis(function) if makes else None
        for make in makes:
            assert facts is not None
            for access in make.result.users():
                wanted = form(access, facts) if access.name in ACCESSES else DESCRIPTOR
                if wanted != DESCRIPTOR:
                    _rewrite(_ask(access, make, wanted.row_bytes) if wanted.row_bytes else access, make, facts)
                    changed = True
            if not make.result.uses:
                make.erase()
    return changed


def _ask(op: Operation, make: Operation, row_bytes: int) -> Operation:
    """Puts an access under the question whether rows end at multiples of so many bytes, and returns a copy for where they do not."""
    build = Builder.after(make)
    size = operands_called(make, "shape")[-1]
    step = build.constant(row_bytes * 8 // bit_width(block_of(make.result.type)), I32)
    whole = build.value("arith.muli", [build.value("arith.divsi", [size, step]), step])
    mapping = {size: whole}
    aligned = build.insert(make.clone(mapping)).result
    build = Builder.before(op)
    asked = build.value("arith.cmpi", [whole, size], {"predicate": "eq"})
    blocks = []
    for target in (aligned, make.result):
        branch = Builder(Block(), location=op.location)
        blocks.append(branch.insert(op.clone({make.result: target})))
        branch.create("scf.yield")
    build.create("scf.if", [asked], None, (), [Region([op.parent]) for op in blocks if op.parent is not None])
    op.erase()
    return blocks[1]


def _rewrite(op: Operation, make: Operation, facts: AxisInfoAnalysis) -> None:
    tile = _Tile(op, make, facts)
    block = block_of(make.result.type)
    build = tile.build
    if op.name in ("tt.descriptor_load", "tt.descriptor_gather"):
        padding = float("nan") if attribute(make, "padding") == "nan" else 0
        caching = {name: value for name, value in op.attributes.items() if name in ("cache", "evict")}
        other = build.constant(padding, TensorType(tile.shape, block.element))
        loaded = build.value("tt.load", [*tile.pointers_and_mask(), other], caching)
        op.replace_with(_in_shape(build, loaded, shape_of(op.result.type)))
        return
    pointers, mask = tile.pointers_and_mask()
    value = _in_shape(build, operand(op, "src"), tile.shape)
    if op.name == "tt.descriptor_reduce":
        what = atomic_of(op.attributes["kind"], block.element)
        build.create("tt.atomic_rmw", [pointers, value, mask], {"atomic_rmw_op": what, "sem": "relaxed"})
    else:
        build.create("tt.store", [pointers, value, mask])
    op.erase()


def _promise(value: Value, divisor: int) -> None:
    """Notes what a descriptor says of its base and strides, for what is read from memory. What follows from arguments is not always
    so: calls are told apart by it, and those that do not keep to it are served too."""
    op = value.defining_op
    if op is not None and len(op.results) == 1 and _is_read(value, set()):
        op.attributes.setdefault("tt.divisibility", (divisor,))


def _is_read(value: Value, seen: set[Value]) -> bool:
    """Whether a value depends on memory."""
    op = value.defining_op
    if op is None or value in seen:
        return False
    seen.add(value)
    return op.name == "tt.load" or (not op.regions and any(_is_read(operand, seen) for operand in op.operands))


def _in_shape(build: Builder, value: Value, shape: tuple[int, ...]) -> Value:
    """Returns a tile with axes of size 1 added or left out."""
    if shape_of(value.type) == shape:
        return value
    return build.value("tt.reshape", [value], None, with_shape(value.type, shape))


class _Tile:
    """Builds the pointers and the mask of one access."""

    def __init__(self, op: Operation, make: Operation, facts: AxisInfoAnalysis) -> None:
        self.op = op
        self.facts = facts
        self.build = Builder.before(op)
        self.base = operand(make, "base")
        self.sizes, self.strides = operands_called(make, "shape"), operands_called(make, "strides")
        value = op.result if op.results else operand(op, "src")
        self.is_rows = op.name in ("tt.descriptor_gather", "tt.descriptor_scatter")
        self.shape = shape_of(value.type) if self.is_rows else block_of(make.result.type).shape

    def pointers_and_mask(self) -> tuple[Value, Value]:
        if self.is_rows:
            rows, column = operand(self.op, "x_offsets"), operand(self.op, "y_offset")
            offsets = [self._scaled(0, self._wide(rows)), self._steps(1)]
            bounds = [*self._rows_inside(rows), *self._inside(1, column)]
            base = self._moved(self.base, [(1, column)])
        else:
            coordinates = operands_called(self.op, "indices")
            offsets = [self._steps(axis) for axis, extent in enumerate(self.shape) if extent > 1]
            bounds = [bound for axis, coordinate in enumerate(coordinates) for bound in self._inside(axis, coordinate)]
            base = self._moved(self.base, list(enumerate(coordinates)))
        pointers = self._splat(base)
        if offsets:
            total = functools.reduce(lambda a, b: self.build.value("arith.addi", [a, b]), offsets)
            pointers = self.build.value("tt.addptr", [pointers, total])
        return pointers, functools.reduce(lambda a, b: self.build.value("arith.andi", [a, b]), bounds)

    # ---- offsets, in elements ----

    def _moved(self, pointer: Value, places: Sequence[tuple[int, Value]]) -> Value:
        """Returns a scalar pointer moved by coordinates of some axes."""
        for axis, coordinate in places:
            wide = self.build.value("arith.extsi", [coordinate], None, I64)
            step = self.strides[axis]
            pointer = self.build.value("tt.addptr", [pointer, self.build.value("arith.muli", [wide, step])])
        return pointer

    def _steps(self, axis: int) -> Value:
        """Returns how far each element lies from the block's first one along an axis, as a tile."""
        return self._scaled(axis, self._wide(self._range(axis)))

    def _scaled(self, axis: int, places: Value) -> Value:
        step = self.build.value("tt.splat", [self.strides[axis]], None, places.type)
        return self._along(axis, self.build.value("arith.muli", [places, step]))

    def _range(self, axis: int) -> Value:
        return self.build.value("tt.make_range", (), {"start": 0, "end": self.shape[axis]})

    def _wide(self, places: Value) -> Value:
        return self.build.value("arith.extsi", [places], None, with_element(places.type, I64))

    # ---- masks ----

    def _inside(self, axis: int, coordinate: Value) -> list[Value]:
        """Returns conditions that hold for the elements that are inside of the tensor along an axis."""
        room = self.build.value("arith.subi", [self.sizes[axis], coordinate])
        places = self._range(axis)
        found = [self._along(axis, self._compare("slt", places, room))]
        if not self.facts[coordinate].nonnegative:
            before = self.build.value("arith.subi", [self.build.constant(0, I32), coordinate])
            found.append(self._along(axis, self._compare("sge", places, before)))
        return found

    def _rows_inside(self, rows: Value) -> list[Value]:
        zero = self.build.constant(0, I32)
        return [self._along(0, self._compare("slt", rows, self.sizes[0])), self._along(0, self._compare("sge", rows, zero))]

    def _compare(self, predicate: str, places: Value, bound: Value) -> Value:
        limit = self.build.value("tt.splat", [bound], None, places.type)
        return self.build.value("arith.cmpi", [places, limit], {"predicate": predicate})

    # ---- shapes ----

    def _splat(self, value: Value) -> Value:
        return self.build.value("tt.splat", [value], None, TensorType(self.shape, value.type))

    def _along(self, axis: int, value: Value) -> Value:
        """Returns a tile of one axis as a tile of the access's shape that varies along `axis` only."""
        element: Type = value.type.element if isinstance(value.type, TensorType) else I1
        for other in range(len(self.shape)):
            if other != axis:
                value = self.build.value("tt.expand_dims", [value], {"axis": other})
        if shape_of(value.type) == self.shape:
            return value
        return self.build.value("tt.broadcast", [value], None, TensorType(self.shape, element))
