"""The one account of a block's shared memory and registers, from which loops get their buffers."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from functools import partial

from kernelpack.analysis.alias import buffer_bytes
from kernelpack.analysis.allocation import allocate
from kernelpack.backends.cuda.machine.block_copies import block_accessed, block_bytes, buffer_type, transfer
from kernelpack.backends.cuda.machine.dialect import PRODUCT
from kernelpack.backends.cuda.machine.features import LANES
from kernelpack.backends.cuda.machine.roles import REGISTERS, WARPGROUP
from kernelpack.backends.cuda.machine.shared_uses import SHARED_USES
from kernelpack.backends.cuda.schedule.loop_schedule import Copy
from kernelpack.backends.gpu.facts.memory_layouts import memory_bits
from kernelpack.backends.gpu.facts.products import is_product
from kernelpack.backends.gpu.facts.registers import registers_of
from kernelpack.backends.gpu.facts.scratch import alignment_of, bytes_of, scratch_bytes
from kernelpack.ir.core import Operation
from kernelpack.ir.dialects.descriptors import LOAD, STORE
from kernelpack.ir.types import Type, shape_of
from kernelpack.layout.encoding import layout_of

OTHER_REGISTERS = 64
"""Registers of a thread for all but the sums of products: addresses, masks, what is on its way."""
MOST_REGISTERS = 256
"""Registers that a thread can have, all told."""
BLOCK_BYTES = 1024
"""What each block takes beside its own shared memory (CUDA C++ Programming Guide, compute capabilities 8.0 to 9.0)."""
BARRIER_BYTES = 8
FEW_WARPS = 2
"""A block of so many waits for few at a barrier."""


class Budget:
    """The shared memory of a function's block, `limit` bytes; a multiprocessor has as much."""

    def __init__(self, function: Operation, limit: int) -> None:
        self.function = function
        self.limit = limit

    def fit(self, loop: Operation, loads: Collection[Operation], ahead: int, lasting: bool, deferred: bool) -> tuple[int, int]:
        """Returns how many iterations tiles are loaded ahead, and for how many iterations more they last; `ahead` is what is asked
        for, `lasting` whether products would use the latter.

        Buffers for the latter must fit, and leave room for as many blocks on a multiprocessor as there would be without them. Where
        they do not, tiles are loaded one iteration less ahead; but two iterations hide the way to memory better than one does, and a
        second barrier lets `deferred` products do without.
        """
        if not lasting:
            return ahead, 0
        tiles = sum(_bytes(load.result.type) for load in loads)
        needed = self._beside(loads, loop) + tiles * (ahead + 1)
        products = [op for op in loop.body.operations if op.name == PRODUCT]
        if needed + tiles <= self.limit and self._blocks(products, needed + tiles) >= self._blocks(products, needed):
            return ahead, 1
        return (ahead, 0) if ahead == 1 or (deferred and ahead == 2) else (ahead - 1, 1)

    def holds(self, loop: Operation, loads: Collection[Operation], slots: int) -> bool:
        """Whether a loop's tiles fit with so many slots."""
        return self._beside(loads, loop) + slots * sum(_bytes(load.result.type) for load in loads) <= self.limit

    def gains_blocks(self, loop: Operation, loads: Collection[Operation], ahead: int) -> bool:
        """Whether more blocks fit on a multiprocessor where a loop's tiles have one slot less than those that are loaded `ahead` and the one
        that is read, so that it is worth another barrier in each iteration: half as many again, or any more of few warps. Products on ordinary
        cores keep a multiprocessor busy as it is."""
        tiles, beside = sum(_bytes(load.result.type) for load in loads), self._beside(loads, loop)
        products = [op for op in loop.walk() if is_product(op)]
        if any(product.name == "ttg.fma_dot" for product in products):
            return False
        few_warps = ahead == 1 and layout_of(products[0].result).in_size("warp") <= FEW_WARPS
        spare = len(products) == 1 or few_warps  # operands of a single product come and go: of several, an assembler keeps some
        few, many = (self._blocks(products, beside + tiles * slots, spare) for slots in (ahead + 1, ahead))
        return many > few if few_warps else 2 * many >= 3 * few > 0

    def slots(self, loop: Operation, loads: Sequence[Operation], start: Operation) -> int:
        """Returns how many iterations' blocks, each load's with a barrier, fit beside the other buffers that are in use from `start`
        to the end of a loop."""
        assert loop.parent is not None
        before = loop.parent.operations[loop.parent.index(start) : loop.parent.index(loop)]
        slot = sum(_block_bytes(load) + BARRIER_BYTES for load in loads)
        return (self.limit - self._beside(loads, loop, before)) // slot

    def slots_of_kernel(self, loads: Collection[Operation], rings: Iterable[Sequence[Copy]]) -> int:
        """Returns how many slots rings can have, each for the copies in it, beside all else that the function keeps in shared memory.
        `loads` are all that are read from rings."""
        passing = [
            _block_bytes(op) if op.name in (LOAD, STORE) else scratch_bytes(op, SHARED_USES)
            for op in self.function.walk()
            if op not in loads
        ]
        slot = sum(_block_bytes(copy.load) for ring in rings for copy in ring)
        return (self.limit - self._beside(loads) - max(passing) - BLOCK_BYTES) // slot

    def stores_apart(self, stores: Sequence[Operation]) -> list[Operation]:
        """Returns the stores of blocks that can have memory of their own, beside all other buffers of the function: in order, as far as
        there is any."""
        own = partial(bytes_of, uses=SHARED_USES), partial(alignment_of, uses=SHARED_USES)
        taken = allocate(self.function, *own).size if stores else 0
        apart = []
        for store in stores:
            block = block_accessed(store)
            taken += buffer_bytes(buffer_type(block)) + transfer(block).encoding.alignment
            if taken <= self.limit:
                apart.append(store)
        return apart

    @staticmethod
    def registers_of_roles(few: int, many: int) -> tuple[int, int]:
        """Returns how many registers threads have in a role of `few` warps that copies, and one of `many` that computes with what is
        there; 0 where each may have as many as a thread can."""
        groups = many // WARPGROUP
        if groups == 1:
            return 0, 0
        copying = 40 if groups == 2 else 24
        whole = REGISTERS // (WARPGROUP * LANES) - copying * -(-few // WARPGROUP)
        return copying, whole // groups // 8 * 8

    def _beside(self, loads: Collection[Operation], loop: Operation | None = None, more: Collection[Operation] = ()) -> int:
        """Returns the bytes of buffers that are not those of loads: all of the function, or those that a loop uses and `more`."""
        replaced = {user for load in loads for user in load.result.users()}
        return sum(
            _bytes(op.result.type)
            for op in self.function.walk()
            if op.name == "ttg.local_alloc" and op not in replaced and (loop is None or op in more or _uses(loop, op))
        )

    def _blocks(self, products: Sequence[Operation], shared: int, spare: bool = True) -> int:
        """Returns how many blocks fit on a multiprocessor. The registers of a thread are those of its sums, and again 64 for all else; all that
        it can have without `spare`."""
        threads = layout_of(products[0].result).in_size("warp") * LANES
        registers = sum(registers_of(op.result) for op in products) + OTHER_REGISTERS if spare else MOST_REGISTERS
        return min(self.limit // (shared + BLOCK_BYTES), REGISTERS // (threads * registers))


def _uses(loop: Operation, buffer: Operation) -> bool:
    return loop in buffer.ancestors() or any(loop in user.ancestors() for user in buffer.result.users())


def _bytes(kind: Type) -> int:
    return math.prod(shape_of(kind)) * memory_bits(kind) // 8


def _block_bytes(access: Operation) -> int:
    return block_bytes(block_accessed(access))
