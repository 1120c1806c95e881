"""Evaluates tiles at a place: one element, or one vector of elements along the lane axis.

A value that is the same for all lanes stays scalar, an index that advances evenly stays (base, step), so that masks and addresses
of contiguous accesses cost a scalar instruction or two. Code is placed in the outermost loop it does not vary in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from kernelpack.backends.cpu.emit.elements import element_bytes, from_memory, memory_type, to_memory
from kernelpack.backends.cpu.emit.elementwise import Lowering
from kernelpack.backends.cpu.emit.index_arithmetic import INDEX_ARITHMETIC, QUOTIENTS, divide_neighbours
from kernelpack.backends.cpu.emit.masked_moves import is_native, load_lanes, store_if, store_masked
from kernelpack.backends.cpu.emit.places import Affine, Index, Lanes, Place, Uniform, Vector, at_lane
from kernelpack.backends.cpu.emit.streaming import ask_ahead, ask_for_next, is_stream, store_past_caches
from kernelpack.backends.cpu.emit.structural import STRUCTURAL
from kernelpack.backends.cpu.facts.affine import Bound, bounds_along, may_wrap, span_of
from kernelpack.backends.cpu.facts.observed import leading
from kernelpack.backends.cpu.facts.waiting import sees_changes
from kernelpack.backends.cpu.plan.buffers import Buffer
from kernelpack.backends.cpu.plan.tile_program import TileProgram
from kernelpack.ir.core import Operation, Value
from kernelpack.ir.dialect import operand, optional_operand, pointee_of
from kernelpack.ir.types import I1, TensorType, Type, element_of, shape_of
from kernelpack.llvm.text import Emitter, Val, element_type, iota, literal, suffix, vector_type, vector_width

_AVX2_BYTES = 32
"""What one masked load reads at most without AVX-512."""


class Evaluator:
    """Evaluates tiles for one nest or product.

    `width` is the number of lanes; `fresh` says which buffers (by id) are only now being filled with a tile. `lane_step`
    is what divides the base of each place with lanes, whose offsets are multiples of `width`; 1 where that is not known.
    `holding` are bounds that hold, with the place added, in all iterations of a loop, by what counts these.
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
        lane_step: int = 1,
    ) -> None:
        self.program = program
        self.lowering = lowering
        self.em: Emitter = lowering.em
        self.scalars = scalars
        self.storage = storage
        self.width = width
        self.fresh = fresh
        self.lane_step = lane_step
        self.frames = [base]
        self.memo: dict[tuple[object, ...], Lanes] = {}
        self.addresses: dict[tuple[object, ...], Val] = {}
        self.views: dict[tuple[int, tuple[int, ...]], Buffer] = {}
        self.holding: dict[str, Bound] = {}
        self.reloaded: Mapping[Value, Val] = {}  # scalars that loops load again, and their addresses

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

    @contextmanager
    def loop(
        self, label: str, first: int | Val, advance: Callable[[str], str], ends: Callable[[str, str], str]
    ) -> Iterator[Place]:
        """Opens a loop around what is written inside of the `with`, and yields the place that it counts, from `first` on.

        `advance` gives the LLVM instruction that leads from an iteration's counter to the next one's, `ends`, given both, the
        one that says whether there is no next one.
        """
        em = self.em
        slot = em.alloca("i64", "i", 8)
        head, exit_ = em.new_label(label), em.new_label("done")
        outer, depth = self.frames[-1], len(self.frames)
        body: list[str] = []
        self.frames.append(body)
        with em.into(body):
            counter = em.load("i64", slot, 8)
        yield Place(counter.name, 0, depth)
        self.frames.pop()
        self.forget(depth)
        with em.into(outer):
            em.store(first if isinstance(first, Val) else literal(first, "i64"), slot, 8)
            em.jump(head)
            em.label(head)
        outer += body
        with em.into(outer):
            following = em.op("i64", advance(counter.name))
            em.store(following, slot, 8)
            done = em.op("i1", ends(counter.name, following.name))
            em.line(f"br {done}, label %{exit_}, label %{head}, !llvm.loop !0")
            em.label(exit_)

    @contextmanager
    def when(self, condition: Val) -> Iterator[None]:
        """Runs what is written inside of the `with` where a condition holds."""
        em = self.em
        then, after = em.new_label("then"), em.new_label("after")
        memo, addresses = dict(self.memo), dict(self.addresses)
        with em.into(self.frames[-1]):
            em.branch(condition, then, after)
            em.label(then)
        yield
        with em.into(self.frames[-1]):
            em.jump(after)
            em.label(after)
        self.memo, self.addresses = memo, addresses

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
        pending = [] if (value, index) in self.memo else [value]
        while pending:  # operands before what is made of them: formulas are longer than Python may call
            unknown = next(self._unknown_operands(pending[-1], index), None)
            if unknown is not None:
                pending.append(unknown)
            else:
                made = pending.pop()
                self.memo[made, index] = self._compute(made, index)
        return self.memo[value, index]

    def _unknown_operands(self, value: Value, index: Index) -> Iterator[Value]:
        """Yields the tiles that an elementwise operation takes at the same index, and that are not evaluated there."""
        op = value.defining_op
        if op is None or op.name == "tt.split" or op.name in STRUCTURAL or self.filled(value):
            return
        for source in op.operands:
            if shape_of(source.type) and (source, index) not in self.memo:
                yield source

    def vector_of(self, value: Value, index: Index) -> Val:
        """Returns a tile's elements at an index as an LLVM vector."""
        return self.vector(self.evaluate(value, index), element_of(value.type))

    def _compute(self, value: Value, index: Index) -> Lanes:
        buffers = self.filled(value)
        if buffers:
            return self.read(self._best_buffer(buffers, index), index)
        op = value.defining_op
        assert op is not None, f"{value!r} is not in a buffer"
        if self.em.located is None:
            return self._computed(op, value, index)
        with self.em.work_on(op):
            return self._computed(op, value, index)

    def _computed(self, op: Operation, value: Value, index: Index) -> Lanes:
        if op.name == "tt.split":
            which = 0 if value is op.results[0] else 1
            return self.evaluate(op.operand, (*index, Place(offset=which)))
        structural = STRUCTURAL.get(op.name)
        if structural is not None:
            return structural(self, op, index)
        known = self._known(value, index) if op.name == "arith.cmpi" else None
        if known is not None:
            return Uniform(literal(known, "i1"), 0)
        if op.name in QUOTIENTS and self.lane_step > 1:
            grouped = divide_neighbours(self, op, index)
            if grouped is not None:
                return grouped
        operands = [self.evaluate(operand, index if shape_of(operand.type) else ()) for operand in op.operands]
        special = INDEX_ARITHMETIC.get(op.name)
        if special is not None and not may_wrap(value) and not (op.name == "arith.extsi" and self._is_number(op)):
            result = special(self, op, operands)
            if result is not None:
                return result
        return self._elementwise(op, operands)

    def _known(self, mask: Value, index: Index) -> bool | None:
        """Returns what a comparison is known to give at an index, for all lanes."""
        found = leading(mask)
        if found is not None and index[found[0]].ends_by(found[1], self.width):
            return True
        for axis, place in enumerate(index):
            if place.end is not None and place.base in self.holding and self.holding[place.base] in bounds_along(mask, axis):
                return True
        extents = self.program.observed.mask_extents(mask, shape_of(mask.type))
        beyond = any(place.base is None and place.offset >= end for place, end in zip(index, extents, strict=True))
        return False if beyond else None

    def _is_number(self, widened: Operation) -> bool:
        """Whether an extension must see what its operand is where that wraps: a kernel works with it, and it is not known to fit."""
        span = span_of(widened.operand)
        return (span is None or bool(span.terms)) and widened.result in self.program.data

    def _elementwise(self, op: Operation, operands: Sequence[Lanes]) -> Lanes:
        depth = max(lanes.depth for lanes in operands)
        uniform = [lanes.val for lanes in operands if isinstance(lanes, Uniform)]
        if len(uniform) == len(operands):
            with self.em.into(self.at(depth)):
                return Uniform(self.lowering.lower(op, uniform), depth)
        (first, value), *others = zip(operands, op.operands, strict=True)
        if op.name == "arith.select" and isinstance(first, Uniform):
            vectors = [first.val]
        else:
            vectors = [self.vector(first, value.type)]
        vectors += [self.vector(lanes, value.type) for lanes, value in others]
        with self.em.into(self.at(depth)):
            return Vector(self.lowering.lower(op, vectors), depth)

    # ---- buffers ----

    def filled(self, value: Value) -> dict[int, Buffer]:
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
        """Writes one element, or a vector: whole along the buffer's innermost axis, or else element by element."""
        lane_axis = next((axis for axis, place in enumerate(index) if place.lanes), None)
        if lane_axis is not None and buffer.strides[lane_axis] != 1:
            for lane in range(self.width):
                self.write(buffer, at_lane(index, lane), self.em.extract(value, lane))
            return
        address = self.pointer(buffer, index)
        depth = len(self.frames) - 1
        with self.em.into(self.at(depth)):
            self.em.store(to_memory(self.em, value, buffer.element), address, element_bytes(buffer.element))

    # ---- global memory ----

    def load(self, op: Operation, index: Index) -> Lanes:
        """Evaluates a tt.load at an index."""
        loaded = self._loaded(op, index)
        if sees_changes(op):
            with self.em.into(self.at(loaded.depth)):
                self.em.line("fence acquire")  # no load moves across: neither the next time, nor what was written before
        return loaded

    def _loaded(self, op: Operation, index: Index) -> Lanes:
        pointer = self.evaluate(operand(op, "ptr"), index)
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
                if lanes_mask is None and op.attributes.get("evict") == "evict_first":
                    if is_stream(op.result.type, index, size):
                        ask_ahead(self.em, pointer.base, size * sum(place.offset for place in index if place.lanes))
                    else:
                        ask_for_next(self, op, index)
                base = self._in_memory(pointer.base, mask_value, index, wide)
                whole = isinstance(mask, Uniform) and mask.val.name != "false"
                if isinstance(mask, Uniform) and passed is not None and whole and not is_native(self.em, self.width, size):
                    loaded = self.em.select(mask.val, self.em.load(wide, base, size), passed)
                else:
                    loaded = self._load_contiguous(wide, base, lanes_mask, passed, size)
            else:
                pointers = self.vector(pointer, operand(op, "ptr").type)
                loaded = self.gather(wide, pointers, lanes_mask, passed)
            return Vector(from_memory(self.em, loaded, element), depth)

    def _in_memory(self, base: Val, mask: Value | None, index: Index, wide: str) -> Val:
        """Returns where a vector lies, or memory of our own where its mask is known to hold for no lane. Nothing is read or written there, but
        x86 CPUs take hundreds of cycles to find that out where no memory is: after a tensor's end, or in a page that was never written."""
        pending = [] if mask is None else [mask]
        while pending:
            value = pending.pop()
            lanes, op = self.evaluate(value, index), value.defining_op
            if isinstance(lanes, Uniform) and lanes.val.name not in ("true", "false"):
                base = self.em.op("ptr", f"select {lanes.val}, {base}, {self._own_memory(wide)}")
            elif op is not None and op.name == "arith.andi" and not self.filled(value):
                pending += op.operands
        return base

    def _own_memory(self, wide: str) -> Val:
        """Returns where a vector has room that nothing else counts on."""
        return self.remember(("nowhere", wide), lambda: self.em.alloca(wide, "nowhere"))

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
        if vector_width(wide) > 1 and not is_native(self.em, vector_width(wide), size):
            return load_lanes(self.em, base, mask, passed, size, self._own_memory(wide))
        if vector_width(wide) * size > _AVX2_BYTES and "avx512" not in self.em.features:
            mask = self._opaque(mask)
        name = f"llvm.masked.load.{suffix(wide)}.p0"
        return self.em.call(wide, name, [base, Val("i32", str(size)), mask, passed])

    def _opaque(self, mask: Val) -> Val:
        """Returns a mask of which LLVM knows nothing. Without AVX-512 it splits masks that are wider than a register, and gives half
        of them to both halves where constants turn one off: lanes after the end of memory were read."""
        kind = vector_type("i32", vector_width(mask.type))
        hidden = self.em.op(kind, f'call {kind} asm "", "=x,0"({self.em.cast("sext", mask, kind)})')
        return self.em.compare("icmp", "ne", hidden, Val(kind, "zeroinitializer"))

    def gather(self, wide: str, pointers: Val, mask: Val | None, passed: Val | None) -> Val:
        """Loads one element a lane from pointers of their own."""
        width = vector_width(wide)
        mask = mask or literal(True, f"<{width} x i1>")
        passed = passed or Val(wide, "poison")
        size = Val("i32", str(_bytes_of(element_type(wide))))
        return self.em.call(wide, f"llvm.masked.gather.{suffix(wide)}.v{width}p0", [pointers, size, mask, passed])

    def store(self, op: Operation, index: Index, value: Val, lanes: bool) -> None:
        """Stores evaluated element(s) through a tt.store's pointer and mask at an index."""
        pointer = self.evaluate(operand(op, "ptr"), index)
        mask_value = optional_operand(op, "mask")
        mask = self.evaluate(mask_value, index) if mask_value is not None else None
        if isinstance(mask, Uniform) and mask.val.name == "true":
            mask = None
        if isinstance(mask, Uniform) and mask.val.name == "false":
            return
        element = element_of(pointee_of(operand(op, "ptr").type))
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
                    store_masked(em, packed, pointer.val, single, size, self._own_memory)
                return
            lanes_mask = self.vector(mask, I1) if mask is not None else None
            if isinstance(pointer, Affine) and pointer.step == size:
                if lanes_mask is None and op.attributes.get("cache") == "cs":
                    store_past_caches(em, stored, pointer.base, size)
                elif lanes_mask is None:
                    em.store(stored, pointer.base, size)
                elif isinstance(mask, Uniform) and "avx512" not in em.features:  # its masked stores take tens of cycles
                    store_if(em, mask.val, stored, pointer.base, size)
                else:
                    target = self._in_memory(pointer.base, mask_value, index, stored.type)
                    store_masked(em, stored, target, lanes_mask, size, self._own_memory)
                return
            pointers = self.vector(pointer, operand(op, "ptr").type)
            chosen = lanes_mask or literal(True, f"<{self.width} x i1>")
            name = f"llvm.masked.scatter.{suffix(stored.type)}.v{self.width}p0"
            em.call("void", name, [stored, pointers, Val("i32", str(size)), chosen])


def _bytes_of(kind: str) -> int:
    fixed = {"half": 2, "bfloat": 2, "float": 4, "double": 8, "ptr": 8}
    return fixed[kind] if kind in fixed else max(1, int(kind[1:]) // 8)
