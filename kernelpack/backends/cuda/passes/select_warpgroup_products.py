"""Gives dots to warpgroups where the target has wgmma: operands go to shared memory, or a's rows stay in registers.

    c = tt.dot a, b, c    =>    %a = ttg.local_alloc a      where a is made
                                %b = ttg.local_alloc b      where b is made
                                c = ttng.warp_group_dot %a, %b, c

A tile that is loaded lies in shared memory in the order in which it lies in global memory, so that it can be copied there
without passing through registers. An operand a that is computed from another product stays in registers.
"""

from __future__ import annotations

from kernelpack.analysis.axis_info import AxisInfoAnalysis
from kernelpack.backends.cuda.machine.async_copy import LEAST_BYTES
from kernelpack.backends.cuda.machine.features import LANES
from kernelpack.backends.cuda.machine.matrix import warpgroups_over_dot
from kernelpack.backends.cuda.machine.warpgroup import ROWS, WARPS, instruction_of, operand_tile
from kernelpack.backends.gpu.facts.memory_layouts import access_order, element_bits, memory_bits
from kernelpack.backends.gpu.facts.product_registers import is_computed, registers_together
from kernelpack.backends.gpu.facts.products import is_product
from kernelpack.backends.gpu.passes.materialize import builder_after
from kernelpack.ir.core import Block, Builder, Operation, Value
from kernelpack.ir.dialect import Trait, attribute, definition, operand
from kernelpack.ir.types import F32, FloatType, MemDescType, TensorType, element_of, shape_of
from kernelpack.layout.encoding import SharedEncoding, tma_encoding
from kernelpack.layout.transfer import permute_dims

MOST_REGISTERS = 128
"""32-bit registers of a thread that one accumulator may take."""
MOST_TOGETHER = 224
"""32-bit registers of a thread that the accumulators of a loop and rows in registers may take at once. A thread has 255, and they
cannot be spilled while a product is in flight: the assembler would wait for each (message C7511)."""


def select_warpgroup_dots(function: Operation, num_warps: int) -> None:
    """Rewrites a ttir function in place, for a target with wgmma."""
    _Selector(function, num_warps).run()


class _Selector:
    def __init__(self, function: Operation, num_warps: int) -> None:
        self.function = function
        self.num_warps = num_warps
        self.facts = AxisInfoAnalysis(function)
        self.buffers: dict[tuple[Value, SharedEncoding], Value] = {}

    def run(self) -> None:
        together: dict[Block | None, list[Operation]] = {}
        for op in self.function.walk():
            if op.name == "tt.dot":
                together.setdefault(op.parent, []).append(op)
        for dots in together.values():
            if registers_together(dots, self.num_warps * LANES) <= MOST_TOGETHER:
                for dot in dots:
                    self._select(dot)

    def _select(self, dot: Operation) -> None:
        if not fits_warpgroups(dot, self.num_warps):
            return
        a, b, c = dot.operands
        depth = shape_of(a.type)[1]
        in_registers = is_computed(a)
        right = self._encoding(b, 0)
        left = None if in_registers else self._encoding(a, 1)
        if right is None or (left is None and not in_registers):
            return
        if left is not None:
            a = self._buffer(a, left)
        b = self._buffer(b, right)
        attributes = {"inputPrecision": attribute(dot, "input_precision")}
        build = Builder.before(dot)
        limit = most_on_tensor_core(dot)
        if limit is None:
            dot.replace_with(build.value("ttng.warp_group_dot", [a, b, c], attributes))
            return
        for first in range(0, depth, limit):
            zero = build.constant(0.0, c.type)
            part = build.value("ttng.warp_group_dot", [a, b, zero], {**attributes, "part": (first, min(depth, first + limit))})
            c = build.value("arith.addf", [c, part])
        dot.replace_with(c)

    def _encoding(self, value: Value, k_axis: int) -> SharedEncoding | None:
        """Returns how an operand lies in shared memory; None where wgmma could not read it so."""
        kind = value.type
        assert isinstance(kind, TensorType)
        order = self._order(value)
        if order is None:  # computed: along the summed dimension
            order = (k_axis, 1 - k_axis)
        bits = memory_bits(kind)
        # where wgmma cannot read an 8-bit tile as it lies, it is turned on its way: mma.sync would have to as well
        along_k = [(k_axis, 1 - k_axis)] if bits == 8 else []
        for wanted in (order, *along_k):
            encoding = tma_encoding(kind.shape, bits, wanted)
            if operand_tile(encoding.layout, bits, k_axis) is not None:
                return encoding
        return None

    def _order(self, value: Value) -> tuple[int, ...] | None:
        """Returns the order of a tile in the memory that it is loaded from, seen through what keeps elements in place."""
        op = value.defining_op
        if op is None:
            return None
        if op.name == "tt.load":
            return access_order(op, self.facts)
        if op.name == "tt.descriptor_load":
            return tuple(reversed(range(len(shape_of(value.type)))))
        if op.name == "tt.trans":
            order = self._order(op.operand)
            return None if order is None else tuple(op.attributes["order"].index(axis) for axis in order)
        if Trait.ELEMENTWISE in definition(op.name).traits:
            return next((found for operand in op.operands if (found := self._order(operand)) is not None), None)
        return None

    def _is_copied(self, load: Operation) -> bool:
        """Whether neighbours that a load takes are wide enough for asynchronous copies, which wait for nothing."""
        pointer = operand(load, "ptr")
        width = self.facts.access_width(pointer, access_order(load, self.facts)[0])
        return width * element_bits(load) >= LEAST_BYTES * 8

    def _buffer(self, value: Value, encoding: SharedEncoding) -> Value:
        """Returns the buffer of an operand, written where the operand is made. A transposed tile is a view of the tile itself."""
        key = value, encoding
        if key not in self.buffers:
            self.buffers[key] = self._make(value, encoding)
        return self.buffers[key]

    def _make(self, value: Value, encoding: SharedEncoding) -> Value:
        kind = value.type
        assert isinstance(kind, TensorType)
        op = value.defining_op
        build = builder_after(value)
        if op is not None and op.name == "tt.trans":
            source, order = op.operand, op.attributes["order"]
            inverse = [order.index(axis) for axis in range(len(order))]
            straight = SharedEncoding(permute_dims(encoding.layout, inverse), encoding.alignment)
            buffer = self._buffer(source, straight)
            return build.value("ttg.memdesc_trans", [buffer], {"order": order}, MemDescType(kind.shape, kind.element, encoding))
        if op is not None and op.name == "tt.load" and not self._is_copied(op):
            build = Builder.after(_last_load_before_product(op))
        return build.value("ttg.local_alloc", [value], None, MemDescType(kind.shape, kind.element, encoding))


def _last_load_before_product(load: Operation) -> Operation:
    """Returns the last load on the way to the next product: writing a buffer waits for its tile, and should wait for both at once."""
    assert load.parent is not None
    operations = load.parent.operations
    last = load
    for op in operations[operations.index(load) + 1 :]:
        if op.regions or is_product(op):
            break
        if op.name == "tt.load":
            last = op
    return last


def fits_warpgroups(dot: Operation, num_warps: int) -> bool:
    """Whether wgmma can compute a dot, its operands' places in memory aside."""
    a, b, c = (value.type for value in dot.operands)
    instruction = instruction_of(element_of(a), element_of(b), element_of(c))
    if instruction is None:
        return False
    if element_of(a) == F32 and attribute(dot, "input_precision") != "tf32":
        return False
    if num_warps % WARPS or len(shape_of(c)) != 2 or shape_of(a)[1] < instruction.k:
        return False
    m, n = shape_of(c)
    columns = warpgroups_over_dot((m, n), num_warps)[1]
    return m >= ROWS and n // columns >= 8 and m * n // (num_warps * LANES) <= MOST_REGISTERS


def most_on_tensor_core(dot: Operation) -> int | None:
    """Returns how many products the tensor core may sum before the sum is added to the float32 result; None for all.

    Sums of 8-bit floats keep about 14 bits there, which a kernel can limit (max_num_imprecise_acc).
    """
    a, b, c = (value.type for value in dot.operands)
    instruction = instruction_of(element_of(a), element_of(b), element_of(c))
    assert instruction is not None
    limit: int = attribute(dot, "max_num_imprecise_acc")
    if not isinstance(element_of(a), FloatType) or instruction.bits != 8 or limit > shape_of(a)[1]:
        return None
    return max(instruction.k, limit // instruction.k * instruction.k)
