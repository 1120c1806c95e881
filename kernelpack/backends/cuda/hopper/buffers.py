"""What buffers, barriers and roles of kernelpack.language.hopper mean: which shapes and types fit each other, and their operations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kernelpack.backends.cuda.machine.block_copies import transfer_into
from kernelpack.errors import CompilationError
from kernelpack.ir.core import Block, Builder, Region, Value
from kernelpack.ir.dialects.descriptors import squeezed
from kernelpack.ir.types import I32, MemDescType, TensorType
from kernelpack.kernel.builtin import Generator
from kernelpack.kernel.structured_types import indexed_type
from kernelpack.kernel.types import (
    bfloat16,
    block_type,
    check_shape,
    describe,
    dtype,
    float8e4nv,
    float8e5,
    float16,
    float32,
    int1,
    int32,
    int64,
)
from kernelpack.kernel.values import tensor
from kernelpack.layout.encoding import SharedEncoding, tma_encoding
from kernelpack.layout.families import swizzled
from kernelpack.layout.transfer import permute_dims
from kernelpack.semantics import descriptors, operators

ROLE_WARPS = (1, 2, 4, 8)
MAX_STAGES = 64


class buffer_type(indexed_type):
    """A tile in shared memory, or a ring of `stages` tiles (0: no ring). A barrier is a buffer of one int64."""

    def __new__(cls, element_ty: dtype, shape: Sequence[int], stages: int, encoding: SharedEncoding) -> buffer_type:
        self = object.__new__(cls)
        self.element_ty, self.tile, self.stages, self.encoding = element_ty, tuple(shape), stages, encoding
        ring = f"{stages} x " if stages else ""
        self.name = f"buffer<{ring}{list(self.tile)}, {element_ty}>"
        self.primitive_bitwidth = 0
        return self

    element_ty: dtype
    tile: tuple[int, ...]
    stages: int
    encoding: SharedEncoding

    def index(self, b: Builder, ring: tensor, keys: Sequence[Any]) -> tensor:
        """Returns one tile of a ring."""
        if not self.stages:
            raise CompilationError(f"{self} is no ring", cure="give it stages=... where it is allocated")
        if len(keys) != 1 or not isinstance(keys[0], (int, tensor)):
            raise CompilationError(f"a ring is indexed with one integer, not {', '.join(map(describe, keys))}")
        if isinstance(keys[0], int) and not 0 <= keys[0] < self.stages:
            raise CompilationError(f"the ring has {self.stages} stages, number {keys[0]} is not one of them")
        stage = operators.to_tensor(b, keys[0])
        if stage.shape or not stage.dtype.is_int():
            raise CompilationError(f"a ring is indexed with one integer, not {describe(stage)}")
        tile = buffer_type(self.element_ty, self.tile, 0, self.encoding)
        handle = b.value("ttg.memdesc_index", [ring.handle, operators.cast(b, stage, int32).handle], None, tile.to_ir())
        return tensor(handle, tile)

    def attribute(self, b: Builder, buffer: tensor, name: str) -> Any:
        """Returns x.T, x.nbytes, x.dtype or x.shape of a tile (of every tile of a ring)."""
        if name == "T":
            tile_of(buffer, "only one tile")
            flipped = SharedEncoding(permute_dims(self.encoding.layout, (1, 0)), self.encoding.alignment)
            view = buffer_type(self.element_ty, self.tile[::-1], 0, flipped)
            return tensor(b.value("ttg.memdesc_trans", [buffer.handle], {"order": (1, 0)}, view.to_ir()), view)
        known = {"nbytes": self.nbytes, "shape": self.tile, "dtype": self.element_ty, "type": self}
        if name not in known:
            raise CompilationError(f"{self} has no attribute {name!r}", cure=f"it has T, {', '.join(known)}")
        return known[name]

    def __reduce__(self) -> tuple[object, ...]:
        return buffer_type, (self.element_ty, self.tile, self.stages, self.encoding)

    @property
    def nbytes(self) -> int:
        """The bytes of one tile."""
        return math.prod(self.tile) * self.element_ty.itemsize

    @property
    def is_barrier(self) -> bool:
        return self.element_ty == int64 and self.tile == (1,)

    def to_ir(self) -> MemDescType:
        ring = (self.stages,) if self.stages else ()
        return MemDescType((*ring, *self.tile), self.element_ty.to_ir(), self.encoding, True)

    def mangle(self) -> str:
        return f"B{self.stages}x{'x'.join(map(str, self.tile))}{self.element_ty.mangle()}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, buffer_type) and self.to_ir() == other.to_ir()

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return self.name


# ---- buffers ----


def alloc(b: Builder, shape: Sequence[Any], kind: object, stages: object) -> tensor:
    """Returns a new tile of two dimensions, or a ring of them, as TMA fills and wgmma reads it."""
    if not isinstance(kind, dtype) or kind.is_ptr() or kind.primitive_bitwidth not in (8, 16, 32):
        raise CompilationError(f"a buffer holds elements of 8, 16 or 32 bits, not {describe(kind)}")
    tile = check_shape(shape)
    if len(tile) != 2:
        raise CompilationError(f"a buffer has two dimensions, not {len(tile)}", cure="leave out those of size 1")
    return _alloc(b, buffer_type(kind, tile, _stages(stages), tma_encoding(tile, kind.primitive_bitwidth)))


def barriers(b: Builder, count: object, stages: object) -> tensor:
    """Returns a new barrier, or a ring of them, that `count` arrivals complete."""
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count < 1 << 20:
        raise CompilationError(f"a barrier counts a compile-time number of arrivals, from 1, not {describe(count)}")
    ring = _alloc(b, buffer_type(int64, (1,), _stages(stages), SharedEncoding(swizzled((1,), (0,)))))
    assert isinstance(ring.type, buffer_type)
    for stage in range(ring.type.stages):
        b.create("ttng.init_barrier", [ring.type.index(b, ring, (stage,)).handle], {"count": count})
    if not ring.type.stages:
        b.create("ttng.init_barrier", [ring.handle], {"count": count})
    return ring


def _alloc(b: Builder, kind: buffer_type) -> tensor:
    return tensor(b.value("ttg.local_alloc", (), None, kind.to_ir()), kind)


def _stages(stages: object) -> int:
    if stages is None:
        return 0
    if isinstance(stages, bool) or not isinstance(stages, int) or not 1 <= stages <= MAX_STAGES:
        raise CompilationError(f"a ring has a compile-time number of stages, 1 to {MAX_STAGES}, not {describe(stages)}")
    return stages


def tile_of(value: object, what: str) -> buffer_type:
    """Returns the type of a single tile. Raises CompilationError for anything else."""
    kind = value.type if isinstance(value, tensor) else None
    if not isinstance(kind, buffer_type) or kind.stages or kind.is_barrier:
        ring = isinstance(kind, buffer_type) and kind.stages
        raise CompilationError(
            f"{what} in shared memory can be used here, not {describe(value)}",
            cure="choose a tile of the ring: ring[stage]" if ring else None,
        )
    return kind


def load(b: Builder, buffer: object) -> tensor:
    kind = tile_of(buffer, "a tile")
    assert isinstance(buffer, tensor)
    result = block_type(kind.element_ty, kind.tile)
    return tensor(b.value("ttg.local_load", [buffer.handle], None, result.to_ir()), result)


def store(b: Builder, buffer: object, value: operators.Operand) -> None:
    kind = tile_of(buffer, "a tile")
    assert isinstance(buffer, tensor)
    stored = operators.as_type(b, value, kind.element_ty, kind.tile)
    if stored.shape != kind.tile:
        raise CompilationError(f"a value of shape {list(stored.shape)} does not fit a tile of shape {list(kind.tile)}")
    b.create("ttg.local_store", [stored.handle, buffer.handle])


# ---- barriers ----


def barrier_of(value: object) -> tensor:
    """Returns a single barrier. Raises CompilationError for anything else."""
    if isinstance(value, tensor) and isinstance(value.type, buffer_type) and value.type.is_barrier:
        if value.type.stages:
            raise CompilationError(f"one barrier is needed, not a ring of {value.type.stages}", cure="choose one: ring[stage]")
        return value
    raise CompilationError(f"a barrier is needed, not {describe(value)}", cure="make one with hopper.mbarrier_alloc")


def expect(b: Builder, barrier: object, size: object) -> None:
    if isinstance(size, bool) or not isinstance(size, int) or not 0 < size < 1 << 20:
        raise CompilationError(f"the bytes that a barrier expects are a compile-time integer below 2^20, not {describe(size)}")
    b.create("ttng.barrier_expect", [barrier_of(barrier).handle], {"size": size})


def arrive(b: Builder, barrier: object, each_warp: object) -> None:
    if not isinstance(each_warp, bool):
        raise CompilationError(f"each_warp is True or False at compile time, not {describe(each_warp)}")
    b.create("ttng.arrive_barrier", [barrier_of(barrier).handle], {"every": int(each_warp)})


def wait(b: Builder, barrier: object, phase: operators.Operand) -> None:
    parity = operators.as_type(b, phase, int32)
    if parity.shape:
        raise CompilationError(f"the phase of a barrier is 0 or 1, not {describe(parity)}")
    b.create("ttng.wait_barrier", [barrier_of(barrier).handle, parity.handle])


def named(b: Builder, operation: str, barrier: operators.Operand, threads: object, limit: int) -> None:
    """Creates an operation on the barrier of a number."""
    if isinstance(threads, bool) or not isinstance(threads, int) or threads % 32 or not 32 <= threads <= 1024:
        raise CompilationError(f"the threads that meet at a barrier are a multiple of 32 up to 1024, not {describe(threads)}")
    if isinstance(barrier, int) and not 0 <= barrier < limit:
        raise CompilationError(f"there are named barriers 0 to {limit - 1}, not {barrier}")
    number = operators.as_type(b, barrier, int32)
    if number.shape:
        raise CompilationError(f"a named barrier is an integer, not {describe(number)}")
    b.create(operation, [number.handle], {"threads": threads})


# ---- copies ----


def copy_in(b: Builder, desc: Any, offsets: Any, buffer: object, barrier: object, row: object) -> None:
    """Starts a copy of a block of a tensor to the rows from `row` on of a tile."""
    operands, attributes = _block_and_rows(b, "async_load", desc, offsets, buffer, row)
    always = operators.constant(b, True, int1)
    assert isinstance(buffer, tensor)
    operands += [barrier_of(barrier).handle, buffer.handle, always.handle]
    b.create("ttng.async_tma_copy_global_to_local", operands, attributes)


def copy_out(b: Builder, desc: Any, offsets: Any, buffer: object, row: object) -> None:
    """Starts a copy of the rows from `row` on of a tile to a block of a tensor."""
    operands, attributes = _block_and_rows(b, "async_store", desc, offsets, buffer, row)
    assert isinstance(buffer, tensor)
    b.create("ttng.async_tma_copy_local_to_global", [*operands, buffer.handle], attributes)


def _block_and_rows(
    b: Builder, name: str, desc: Any, offsets: Any, buffer: object, row: object
) -> tuple[list[Value], dict[str, int]]:
    kind = tile_of(buffer, "a tile")
    checked, coordinates = descriptors.place(b, name, desc, offsets)
    if isinstance(row, bool) or not isinstance(row, int):
        raise CompilationError(f"the row at which a block begins in a tile is a compile-time integer, not {describe(row)}")
    block = checked.block_type.to_ir()
    assert isinstance(block, TensorType)
    if kind.element_ty != checked.dtype or transfer_into(block, squeezed(kind.tile), row) is None:
        raise CompilationError(
            f"hopper.{name} copies blocks of {list(block.shape)} {checked.dtype}, which {kind} does not hold from row {row} on",
            cure="give the buffer the descriptor's block_shape without axes of size 1, or more rows: parts of tiles begin and end "
            "at multiples of 8 rows",
        )
    return [descriptors.handle(b, checked), *coordinates], {"row": row}


def store_wait(b: Builder, pending: object) -> None:
    if isinstance(pending, bool) or not isinstance(pending, int) or not 0 <= pending < 64:
        raise CompilationError(f"the stores that may be left are a compile-time number below 64, not {describe(pending)}")
    b.create("ttng.async_tma_store_wait", (), {"pendings": pending})


# ---- products ----


def dot(b: Builder, x: object, y: object, acc: object) -> tensor:
    """Starts acc + x y: x a tile in shared memory or in registers, y one in shared memory, acc float32."""
    right = tile_of(y, "the second operand of a product is a tile")
    assert isinstance(y, tensor)
    if not isinstance(x, tensor) or not isinstance(x.type, (buffer_type, block_type)):
        raise CompilationError(f"the first operand of a product is a tile, not {describe(x)}")
    left = (tile_of(x, "a tile").tile if isinstance(x.type, buffer_type) else x.shape), x.type.element_ty
    if not isinstance(acc, tensor) or not isinstance(acc.type, block_type) or acc.dtype != float32:
        raise CompilationError(f"a product is summed in float32, not in {describe(acc)}", cure="tl.zeros([M, N], tl.float32)")
    shapes = left[0], right.tile, acc.shape
    fits = all(len(shape) == 2 for shape in shapes) and (left[0][1], (left[0][0], right.tile[1])) == (right.tile[0], acc.shape)
    if not fits:
        raise CompilationError(f"the shapes of a product do not fit: {' * '.join(str(list(shape)) for shape in shapes)}")
    kinds = {left[1], right.element_ty}
    if kinds not in ({float16}, {bfloat16}) and not kinds <= {float8e4nv, float8e5}:
        raise CompilationError(
            f"operands of products are both float16, both bfloat16, or float8e4nv and float8e5, not {left[1]} and {right.element_ty}"
        )
    if acc.shape[0] % 64:
        raise CompilationError(f"the rows of a product are a multiple of 64, not {acc.shape[0]}")
    handle = b.value("ttng.warp_group_dot", [x.handle, y.handle, acc.handle], {"isAsync": True}, acc.type.to_ir())
    return tensor(handle, acc.type)


def wait_dots(b: Builder, pending: object, accs: Sequence[Any]) -> Any:
    """Waits until at most `pending` products are under way, and returns the sums that may then be read."""
    if isinstance(pending, bool) or not isinstance(pending, int) or not 0 <= pending < 8:
        raise CompilationError(f"the products that may be left are a compile-time number below 8, not {describe(pending)}")
    if not accs or not all(isinstance(acc, tensor) and isinstance(acc.type, block_type) for acc in accs):
        raise CompilationError("wait_dots takes the sums that are read after it", cure="acc = hopper.wait_dots(0, acc)")
    types = [acc.type.to_ir() for acc in accs]
    results = b.create("ttng.warp_group_dot_wait", [acc.handle for acc in accs], {"pendings": pending}, types).results
    waited = tuple(tensor(result, acc.type) for result, acc in zip(results, accs, strict=True))
    return waited[0] if len(waited) == 1 else waited


# ---- roles ----


@dataclass(frozen=True)
class Role:
    """What some warps of a program do: a @jit function, called with the number of the copy and `args`."""

    function: Any
    args: tuple[Any, ...]
    num_warps: int
    registers: int
    copies: int


def role(function: Any, args: Any, num_warps: object, registers: object, copies: object) -> Role:
    if num_warps not in ROLE_WARPS:
        raise CompilationError(f"a role has {', '.join(map(str, ROLE_WARPS))} warps, not {describe(num_warps)}")
    if registers is not None and (not isinstance(registers, int) or registers % 8 or not 24 <= registers <= 256):
        raise CompilationError(f"the registers of a role are a multiple of 8 from 24 to 256, not {describe(registers)}")
    if isinstance(copies, bool) or not isinstance(copies, int) or not 1 <= copies <= 7:
        raise CompilationError(f"a role has 1 to 7 copies, not {describe(copies)}")
    if not isinstance(args, tuple):
        raise CompilationError(f"the arguments of a role are a tuple, not {describe(args)}")
    assert isinstance(num_warps, int)
    return Role(function, args, num_warps, registers or 0, copies)


def specialize(generator: Generator, roles: Sequence[Any]) -> None:
    """Creates the roles of a program; its other statements end here."""
    if not roles or not all(isinstance(entry, Role) for entry in roles):
        raise CompilationError(
            "warp_specialize takes roles", cure="hopper.warp_specialize(hopper.role(f, (x, y), num_warps=4), ...)"
        )
    if sum(entry.copies for entry in roles) > 7:
        raise CompilationError("a program has at most 7 roles, copies included")
    if len({bool(entry.registers) for entry in roles}) > 1:
        raise CompilationError("either every role says how many registers it has, or none")
    b = generator.builder
    outer = Block()
    with operators.inside(b, outer):
        for entry in roles:
            body = Block()
            copy = body.add_argument(I32, "copy")
            with operators.inside(b, body):
                if generator.inline(entry.function, (tensor(copy, int32), *entry.args)) is not None:
                    raise CompilationError("the function of a role returns nothing", cure="store what it computes")
                b.create("ttg.warp_return")
            attributes = {"num_warps": entry.num_warps, "copies": entry.copies, "registers": entry.registers}
            b.create("ttg.role", (), attributes, (), [Region([body])])
        b.create("ttg.warp_return")
    b.create("ttg.warp_specialize", (), None, (), [Region([outer])])
