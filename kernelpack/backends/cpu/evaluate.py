"""Evaluates tiles at a place: one element, or one vector of elements along the lane axis.

A value that is the same for all lanes stays scalar, an index that advances evenly stays (base, step), so that masks and addresses
of contiguous accesses cost a scalar instruction or two. Code is placed in the outermost loop it does not vary in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kernelpack.backends.cpu.elements import constant, element_bytes, from_memory, memory_type, register_type, to_memory
from kernelpack.backends.cpu.elementwise import Lowering
from kernelpack.backends.cpu.tile_program import Buffer, TileProgram, moves_unit_axes
from kernelpack.ir.core import Operation, Value
from kernelpack.ir.dialect import optional_operand, pointee_of
from kernelpack.ir.types import I1, I32, TensorType, Type, element_of, shape_of
from kernelpack.llvm.text import Emitter, Val, element_type, iota, literal, suffix, vector_type, vector_width


@dataclass(frozen=True)
class Place:
    """A position along one axis: a loop variable (or nothing) plus a constant. `lanes`: it stands for that and its successors."""

    base: str | None = None
    offset: int = 0
    depth: int = 0
    lanes: bool = False

    def plus(self, offset: int) -> Place:
        return Place(self.base, self.offset + offset, self.depth, self.lanes)

    def one(self, lane: int = 0) -> Place:
        """Returns the position of a single lane."""
        return Place(self.base, self.offset + lane, self.depth, False)


Index = tuple[Place, ...]
FIRST = Place()


@dataclass(frozen=True)
class Uniform:
    """The same for all lanes."""

    val: Val
    depth: int


@dataclass(frozen=True)
class Affine:
    """`base` in the first lane, then `step` more from lane to lane; pointers step in bytes."""

    base: Val
    step: int | Val
    depth: int


@dataclass(frozen=True)
class Vector:
    """One value a lane."""

    val: Val
    depth: int


Lanes = Uniform | Affine | Vector


class Evaluator:
    """Evaluates tiles for one nest or product.

    `width` is the number of lanes; `fresh` says which buffers (by id) are only now being filled with a tile.
    """

    def __init__(
        self,
        program: TileProgram,
        lowering: Lowering,
        scalars: dict[Value, Val],
        storage: dict[int, Val],
        base: list[str],
        width: int,
        fresh: frozenset[tuple[Value, int]] = frozenset(),
    ) -> None:
        self.program = program
        self.lowering = lowering
        self.em: Emitter = lowering.em
        self.scalars = scalars
        self.storage = storage
        self.width = width
        self.fresh = fresh
        self.frames = [base]
        self.memo: dict[tuple[object, ...], Lanes] = {}
        self.addresses: dict[tuple[object, ...], Val] = {}
        self.views: dict[tuple[int, tuple[int, ...]], Buffer] = {}

    # ---- places ----

    def at(self, depth: int) -> list[str]:
        return self.frames[min(depth, len(self.frames) - 1)]

    def position(self, place: Place, kind: str = "i64") -> Val:
        """Returns a place's (first) position as an integer."""
        if place.base is None:
            return literal(place.offset, kind)
        counter = Val("i64", place.base)
        with self.em.into(self.at(place.depth)):
            base = counter
            if kind != "i64":
                base = self.remember(("narrow", place.base, kind), lambda: self.em.cast("trunc", counter, kind))
            if place.offset == 0:
                return base
            key = ("position", place.base, place.offset, kind)
            return self.remember(key, lambda: self.em.op(kind, f"add nsw {base}, {place.offset}"))

    def remember(self, key: tuple[object, ...], make: Callable[[], Val]) -> Val:
        if key not in self.addresses:
            self.addresses[key] = make()
        return self.addresses[key]

    def forget(self, depth: int) -> None:
        """Drops what was computed in loops that are now closed."""
        self.memo = {key: lanes for key, lanes in self.memo.items() if lanes.depth < depth}

    # ---- forms ----

    def vector(self, lanes: Lanes, kind: Type) -> Val:
        """Returns one value a lane, as an LLVM vector; with one lane, a scalar."""
        if isinstance(lanes, Vector):
            return lanes.val
        with self.em.into(self.at(lanes.depth)):
            if isinstance(lanes, Uniform):
                return self.em.splat(lanes.val, self.width)
            return self._affine_vector(lanes)

    def _affine_vector(self, lanes: Affine) -> Val:
        em, width = self.em, self.width
        kind = "i64" if lanes.base.type == "ptr" else lanes.base.type
        if isinstance(lanes.step, int):
            steps = iota(kind, width, lanes.step)
        else:
            steps = em.binary("mul", em.splat(lanes.step, width), iota(kind, width))
        if lanes.base.type == "ptr":
            return em.op(f"<{width} x ptr>", f"getelementptr i8, {lanes.base}, {steps}")
        return em.binary("add", em.splat(lanes.base, width), steps)

    # ---- evaluation ----

    def evaluate(self, value: Value, index: Index) -> Lanes:
        """Returns a tile's element(s) at an index with one place an axis; scalars take ()."""
        if not isinstance(value.type, TensorType):
            return Uniform(self.scalars[value], 0)
        key = (value, index)
        if key not in self.memo:
            self.memo[key] = self._compute(value, index)
        return self.memo[key]

    def vector_of(self, value: Value, index: Index) -> Val:
        """Returns a tile's elements at an index as an LLVM vector."""
        return self.vector(self.evaluate(value, index), element_of(value.type))

    def _compute(self, value: Value, index: Index) -> Lanes:
        buffers = self._filled(value)
        if buffers:
            return self.read(self._best_buffer(buffers, index), index)
        op = value.defining_op
        assert op is not None, f"{value!r} is not in a buffer"
        if op.name == "tt.split":
            which = 0 if value is op.results[0] else 1
            return self.evaluate(op.operands[0], (*index, Place(offset=which)))
        structural = _STRUCTURAL.get(op.name)
        if structural is not None:
            return structural(self, op, index)
        operands = [self.evaluate(operand, index if shape_of(operand.type) else ()) for operand in op.operands]
        special = _INDEX_ARITHMETIC.get(op.name)
        if special is not None:
            result = special(self, op, operands)
            if result is not None:
                return result
        return self._elementwise(op, operands)

    def _elementwise(self, op: Operation, operands: Sequence[Lanes]) -> Lanes:
        depth = max(lanes.depth for lanes in operands)
        uniform = [lanes.val for lanes in operands if isinstance(lanes, Uniform)]
        if len(uniform) == len(operands):
            with self.em.into(self.at(depth)):
                return Uniform(self.lowering.lower(op, uniform), depth)
        if op.name == "arith.select" and isinstance(operands[0], Uniform):
            vectors = [operands[0].val]
        else:
            vectors = [self.vector(operands[0], op.operands[0].type)]
        vectors += [self.vector(lanes, v.type) for lanes, v in zip(operands[1:], op.operands[1:], strict=True)]
        with self.em.into(self.at(depth)):
            return Vector(self.lowering.lower(op, vectors), depth)

    # ---- buffers ----

    def _filled(self, value: Value) -> dict[int, Buffer]:
        """Returns the buffers that hold a tile by now. They are filled in the order in which the plan lists them."""
        filled: dict[int, Buffer] = {}
        for axis, buffer in self.program.plain.get(value, {}).items():
            if (value, id(buffer)) in self.fresh:
                break
            filled[axis] = buffer
        return filled

    @staticmethod
    def _best_buffer(buffers: dict[int, Buffer], index: Index) -> Buffer:
        lane_axis = next((axis for axis, place in enumerate(index) if place.lanes), None)
        return buffers[lane_axis] if lane_axis in buffers else next(iter(buffers.values()))

    def pointer(self, buffer: Buffer, index: Index) -> Val:
        """Returns the address of a buffer's (first) element at an index, in the frame where it is complete."""
        size = element_bytes(buffer.element)
        constant = 0
        parts: list[tuple[Place, int]] = []
        for place, stride in zip(index, buffer.strides, strict=True):
            constant += place.offset * stride * size
            if place.base is not None:
                parts.append((place, stride * size))
        depth = max((place.depth for place, _ in parts), default=0)
        address = self.storage[id(buffer)]
        parts.sort(key=lambda part: part[0].depth)
        for count in range(1, len(parts) + 1):
            place, factor = parts[count - 1]
            key = ("row", id(buffer), tuple((p.base, f) for p, f in parts[:count]))
            before = address

            def move(before: Val = before, place: Place = place, factor: int = factor) -> Val:
                scaled = self.em.op("i64", f"mul nsw i64 {place.base}, {factor}")
                return self.em.offset(before, scaled)

            with self.em.into(self.at(place.depth)):
                address = self.remember(key, move)
        with self.em.into(self.at(depth)):
            return self.em.offset(address, constant)

    def read(self, buffer: Buffer, index: Index) -> Lanes:
        """Reads a buffer: a vector where the lane axis is its innermost one, a gather where it is not."""
        depth = max((place.depth for place in index if place.base is not None), default=0)
        lane_axis = next((axis for axis, place in enumerate(index) if place.lanes), None)
        address = self.pointer(buffer, index)
        kind = memory_type(buffer.element)
        size = element_bytes(buffer.element)
        with self.em.into(self.at(depth)):
            if lane_axis is None:
                return Uniform(from_memory(self.em, self.em.load(kind, address, size), buffer.element), depth)
            if buffer.strides[lane_axis] == 1:
                loaded = self.em.load(vector_type(kind, self.width), address, size)
                return Vector(from_memory(self.em, loaded, buffer.element), depth)
            steps = iota("i64", self.width, buffer.strides[lane_axis] * size)
            pointers = self.em.op(f"<{self.width} x ptr>", f"getelementptr i8, {address}, {steps}")
            loaded = self.gather(vector_type(kind, self.width), pointers, None, None)
            return Vector(from_memory(self.em, loaded, buffer.element), depth)

    def view(self, buffer: Buffer, shape: tuple[int, ...]) -> Buffer:
        """Returns a row-major buffer seen in another shape."""
        key = (id(buffer), shape)
        if key not in self.views:
            self.views[key] = Buffer(buffer.name, shape, len(shape) - 1, buffer.element)
            self.storage[id(self.views[key])] = self.storage[id(buffer)]
        return self.views[key]

    def write(self, buffer: Buffer, index: Index, value: Val) -> None:
        """Writes one element, or a vector along the buffer's innermost axis."""
        address = self.pointer(buffer, index)
        depth = len(self.frames) - 1
        with self.em.into(self.at(depth)):
            self.em.store(to_memory(self.em, value, buffer.element), address, element_bytes(buffer.element))

    # ---- global memory ----

    def load(self, op: Operation, index: Index) -> Lanes:
        """Evaluates a tt.load at an index."""
        pointer = self.evaluate(op.operands[0], index)
        mask_value, other_value = optional_operand(op, "mask"), optional_operand(op, "other")
        mask = self.evaluate(mask_value, index) if mask_value is not None else None
        other = self.evaluate(other_value, index) if other_value is not None else None
        if isinstance(mask, Uniform) and mask.val.name == "true":
            mask = None
        element = element_of(op.result.type)
        depth = max(lanes.depth for lanes in (pointer, mask, other) if lanes is not None)
        kind, size = memory_type(element), element_bytes(element)
        with self.em.into(self.at(depth)):
            if isinstance(pointer, Uniform) and not isinstance(mask, (Vector, Affine)) and not isinstance(other, Vector):
                single = self._load_one(kind, pointer.val, mask, other, element)
                return Uniform(from_memory(self.em, single, element), depth)
            wide = vector_type(kind, self.width)
            passed = None if mask is None else self._passed(other, other_value, wide, element)
            lanes_mask = self.vector(mask, I1) if mask is not None else None
            if isinstance(pointer, Affine) and pointer.step == size:
                loaded = self._load_contiguous(wide, pointer.base, lanes_mask, passed, size)
            else:
                pointers = self.vector(pointer, op.operands[0].type)
                loaded = self.gather(wide, pointers, lanes_mask, passed)
            return Vector(from_memory(self.em, loaded, element), depth)

    def _passed(self, other: Lanes | None, value: Value | None, wide: str, element: Type) -> Val:
        """Returns what masked-off lanes hold: `other`, or zero."""
        if other is None or value is None:
            return literal(0, wide) if element_type(wide) != "ptr" else Val(wide, "zeroinitializer")
        return to_memory(self.em, self.vector(other, element), element)

    def _load_one(self, kind: str, pointer: Val, mask: Lanes | None, other: Lanes | None, element: Type) -> Val:
        em, size = self.em, element_bytes(element)
        if mask is None:
            return em.load(kind, pointer, size)
        assert isinstance(mask, Uniform)
        one = f"<1 x {kind}>"
        single = em.op("<1 x i1>", f"insertelement <1 x i1> poison, {mask.val}, i64 0")
        passed = Val(one, "zeroinitializer")
        if isinstance(other, Uniform):
            stored = to_memory(self.em, other.val, element)
            passed = em.op(one, f"insertelement {one} poison, {stored}, i64 0")
        return em.extract(self._load_contiguous(one, pointer, single, passed, size), 0)

    def _load_contiguous(self, wide: str, base: Val, mask: Val | None, passed: Val | None, size: int) -> Val:
        if mask is None:
            return self.em.load(wide, base, size)
        assert passed is not None
        name = f"llvm.masked.load.{suffix(wide)}.p0"
        return self.em.call(wide, name, [base, Val("i32", str(size)), mask, passed])

    def gather(self, wide: str, pointers: Val, mask: Val | None, passed: Val | None) -> Val:
        """Loads one element a lane from pointers of their own."""
        width = vector_width(wide)
        mask = mask or literal(True, f"<{width} x i1>")
        passed = passed or Val(wide, "poison")
        size = Val("i32", str(_bytes_of(element_type(wide))))
        return self.em.call(wide, f"llvm.masked.gather.{suffix(wide)}.v{width}p0", [pointers, size, mask, passed])

    def store(self, op: Operation, index: Index, value: Val, lanes: bool) -> None:
        """Stores evaluated element(s) through a tt.store's pointer and mask at an index."""
        pointer = self.evaluate(op.operands[0], index)
        mask_value = optional_operand(op, "mask")
        mask = self.evaluate(mask_value, index) if mask_value is not None else None
        if isinstance(mask, Uniform) and mask.val.name == "true":
            mask = None
        element = element_of(pointee_of(op.operands[0].type))
        size = element_bytes(element)
        em = self.em
        with em.into(self.at(len(self.frames) - 1)):
            stored = to_memory(self.em, value, element)
            if not lanes:
                assert isinstance(pointer, Uniform)
                if mask is None:
                    em.store(stored, pointer.val, size)
                else:
                    assert isinstance(mask, Uniform)
                    one = f"<1 x {stored.type}>"
                    single = em.op("<1 x i1>", f"insertelement <1 x i1> poison, {mask.val}, i64 0")
                    packed = em.op(one, f"insertelement {one} poison, {stored}, i64 0")
                    self._store_masked(packed, pointer.val, single, size)
                return
            lanes_mask = self.vector(mask, I1) if mask is not None else None
            if isinstance(pointer, Affine) and pointer.step == size:
                if lanes_mask is None:
                    em.store(stored, pointer.base, size)
                else:
                    self._store_masked(stored, pointer.base, lanes_mask, size)
                return
            pointers = self.vector(pointer, op.operands[0].type)
            chosen = lanes_mask or literal(True, f"<{self.width} x i1>")
            name = f"llvm.masked.scatter.{suffix(stored.type)}.v{self.width}p0"
            em.call("void", name, [stored, pointers, Val("i32", str(size)), chosen])

    def _store_masked(self, value: Val, base: Val, mask: Val, size: int) -> None:
        name = f"llvm.masked.store.{suffix(value.type)}.p0"
        self.em.call("void", name, [value, base, Val("i32", str(size)), mask])


def _bytes_of(kind: str) -> int:
    fixed = {"half": 2, "bfloat": 2, "float": 4, "double": 8, "ptr": 8}
    return fixed[kind] if kind in fixed else max(1, int(kind[1:]) // 8)


# ---- operations that move elements ----


def _constant(ev: Evaluator, op: Operation, index: Index) -> Lanes:
    return Uniform(constant(op.attributes["value"], element_of(op.result.type)), 0)


def _splat(ev: Evaluator, op: Operation, index: Index) -> Lanes:
    return ev.evaluate(op.operands[0], ())


def _range(ev: Evaluator, op: Operation, index: Index) -> Lanes:
    place = index[0].plus(op.attributes["start"])
    first = ev.position(place, "i32")
    depth = place.depth if place.base is not None else 0
    return Affine(first, 1, depth) if place.lanes else Uniform(first, depth)


def _expand_dims(ev: Evaluator, op: Operation, index: Index) -> Lanes:
    axis = op.attributes["axis"]
    return ev.evaluate(op.operands[0], (*index[:axis], *index[axis + 1 :]))


def _broadcast(ev: Evaluator, op: Operation, index: Index) -> Lanes:
    extents = shape_of(op.operands[0].type)
    return ev.evaluate(op.operands[0], tuple(FIRST if e == 1 else p for e, p in zip(extents, index, strict=True)))


def _trans(ev: Evaluator, op: Operation, index: Index) -> Lanes:
    source = [FIRST] * len(index)
    for position, axis in enumerate(op.attributes["order"]):
        source[axis] = index[position]
    return ev.evaluate(op.operands[0], tuple(source))


def _reshape(ev: Evaluator, op: Operation, index: Index) -> Lanes:
    """A reshape that only moves axes of extent 1 renames places; any other reads the source's row-major buffer in another shape."""
    source, result = shape_of(op.operands[0].type), shape_of(op.result.type)
    if moves_unit_axes(op):
        places = iter(place for place, extent in zip(index, result, strict=True) if extent > 1)
        return ev.evaluate(op.operands[0], tuple(FIRST if extent == 1 else next(places) for extent in source))
    buffer = ev.program.plain[op.operands[0]][len(source) - 1]
    return ev.read(ev.view(buffer, result), index)


def _join(ev: Evaluator, op: Operation, index: Index) -> Lanes:
    which = index[-1]
    if which.base is None and not which.lanes:
        return ev.evaluate(op.operands[which.offset], index[:-1])
    left, right = (ev.evaluate(operand, index[:-1]) for operand in op.operands)
    depth = max(left.depth, right.depth, which.depth)
    with ev.em.into(ev.at(depth)):
        position = ev.position(which, "i32")
        if which.lanes:  # neighbouring lanes take turns
            position = ev.vector(Affine(position, 1, depth), I32)
        first = ev.em.compare("icmp", "eq", position, literal(0, position.type))
        a, b = ev.vector(left, op.operands[0].type), ev.vector(right, op.operands[1].type)
        return Vector(ev.em.select(first, a, b), depth)


def _gather(ev: Evaluator, op: Operation, index: Index) -> Lanes:
    """Reads the source's buffer at indices that are computed; indices beyond its extent wrap around."""
    source, axis = op.operands[0], op.attributes["axis"]
    buffer = next(iter(ev.program.plain[source].values()))
    indices = ev.evaluate(op.operands[1], index)
    kind, size = memory_type(buffer.element), element_bytes(buffer.element)
    base = ev.pointer(buffer, tuple(FIRST if at == axis else place for at, place in enumerate(index)))
    depth = max(indices.depth, max((place.depth for place in index if place.base is not None), default=0))
    lane_axis = next((at for at, place in enumerate(index) if place.lanes), None)
    with ev.em.into(ev.at(depth)):
        single = lane_axis in (None, axis) and isinstance(indices, Uniform)
        at = indices.val if single and isinstance(indices, Uniform) else ev.vector(indices, op.operands[1].type)
        width = vector_width(at.type)
        wide = ev.em.cast("sext", at, vector_type("i64", width)) if element_type(at.type) != "i64" else at
        inside = ev.em.binary("and", wide, literal(buffer.shape[axis] - 1, wide.type))
        offsets = ev.em.binary("mul", inside, literal(buffer.strides[axis] * size, wide.type))
        if single:
            return Uniform(from_memory(ev.em, ev.em.load(kind, ev.em.offset(base, offsets), size), buffer.element), depth)
        if lane_axis not in (None, axis):
            offsets = ev.em.binary("add", offsets, iota("i64", width, buffer.strides[lane_axis] * size))
        pointers = ev.em.op(f"<{width} x ptr>", f"getelementptr i8, {base}, {offsets}")
        return Vector(from_memory(ev.em, ev.gather(vector_type(kind, width), pointers, None, None), buffer.element), depth)


_STRUCTURAL: dict[str, Callable[[Evaluator, Operation, Index], Lanes]] = {
    "arith.constant": _constant,
    "tt.splat": _splat,
    "tt.make_range": _range,
    "tt.expand_dims": _expand_dims,
    "tt.broadcast": _broadcast,
    "tt.trans": _trans,
    "tt.reshape": _reshape,
    "tt.join": _join,
    "tt.gather": _gather,
    "tt.load": lambda ev, op, index: ev.load(op, index),
}


# ---- index arithmetic that keeps the (base, step) form ----


def _scalar(lanes: Lanes) -> Val:
    assert isinstance(lanes, (Uniform, Affine))
    return lanes.val if isinstance(lanes, Uniform) else lanes.base


def _step(lanes: Lanes) -> int | Val:
    return lanes.step if isinstance(lanes, Affine) else 0


def _combine_steps(ev: Evaluator, a: int | Val, b: int | Val, opcode: str, kind: str) -> int | Val:
    if isinstance(a, int) and isinstance(b, int):
        return a + b if opcode == "add" else a - b
    if b == 0:
        return a
    left = literal(a, kind) if isinstance(a, int) else a
    right = literal(b, kind) if isinstance(b, int) else b
    return ev.em.binary(opcode, left, right)


Arithmetic = Callable[["Evaluator", Operation, Sequence[Lanes]], "Lanes | None"]


def _sum(opcode: str) -> Arithmetic:
    def emit(ev: Evaluator, op: Operation, operands: Sequence[Lanes]) -> Lanes | None:
        if any(isinstance(lanes, Vector) for lanes in operands) or all(isinstance(lanes, Uniform) for lanes in operands):
            return None
        a, b = operands
        depth = max(a.depth, b.depth)
        with ev.em.into(ev.at(depth)):
            base = ev.em.binary(f"{opcode} nsw", _scalar(a), _scalar(b))
            return Affine(base, _combine_steps(ev, _step(a), _step(b), opcode, base.type), depth)

    return emit


def _product(ev: Evaluator, op: Operation, operands: Sequence[Lanes]) -> Lanes | None:
    a, b = operands
    if isinstance(a, Uniform) and isinstance(b, Affine):
        a, b = b, a
    if not (isinstance(a, Affine) and isinstance(b, Uniform)):
        return None
    depth = max(a.depth, b.depth)
    factor = b.val
    with ev.em.into(ev.at(depth)):
        base = ev.em.binary("mul nsw", a.base, factor)
        step: int | Val
        if isinstance(a.step, int) and not factor.name.startswith("%"):
            step = a.step * int(factor.name)
        elif a.step == 1:
            step = factor
        else:
            own = literal(a.step, factor.type) if isinstance(a.step, int) else a.step
            step = ev.em.binary("mul", own, factor)
        return Affine(base, step, depth)


def _resize(opcode: str) -> Arithmetic:
    def emit(ev: Evaluator, op: Operation, operands: Sequence[Lanes]) -> Lanes | None:
        (lanes,) = operands
        if not isinstance(lanes, Affine):
            return None
        kind = register_type(element_of(op.result.type))
        with ev.em.into(ev.at(lanes.depth)):
            step = lanes.step if isinstance(lanes.step, int) else ev.em.cast(opcode, lanes.step, kind)
            return Affine(ev.em.cast(opcode, lanes.base, kind), step, lanes.depth)

    return emit


def _add_pointer(ev: Evaluator, op: Operation, operands: Sequence[Lanes]) -> Lanes:
    pointer, offset = operands
    pointee = element_of(pointee_of(op.operands[0].type))
    kind, size = memory_type(pointee), element_bytes(pointee)
    depth = max(pointer.depth, offset.depth)
    em = ev.em
    if isinstance(pointer, Vector) or isinstance(offset, Vector):
        offsets = ev.vector(offset, element_of(op.operands[1].type))
        base = pointer.val if isinstance(pointer, Uniform) else ev.vector(pointer, op.operands[0].type)
        with em.into(ev.at(depth)):
            return Vector(em.op(f"<{ev.width} x ptr>", f"getelementptr {kind}, {base}, {offsets}"), depth)
    with em.into(ev.at(depth)):
        moved = em.op("ptr", f"getelementptr {kind}, {_scalar(pointer)}, {_scalar(offset)}")
        if isinstance(pointer, Uniform) and isinstance(offset, Uniform):
            return Uniform(moved, depth)
        own, more = _step(pointer), _step(offset)
        scaled: int | Val
        if isinstance(more, int):
            scaled = more * size
        else:
            scaled = em.binary("mul", em.cast("sext", more, "i64"), literal(size, "i64"))
        return Affine(moved, _combine_steps(ev, own, scaled, "add", "i64"), depth)


_INDEX_ARITHMETIC: dict[str, Arithmetic] = {
    "arith.addi": _sum("add"),
    "arith.subi": _sum("sub"),
    "arith.muli": _product,
    "arith.extsi": _resize("sext"),
    "arith.trunci": _resize("trunc"),
    "tt.addptr": _add_pointer,
}
