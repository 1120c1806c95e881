"""Buffers, barriers and roles of kernels for sm_90a: the operations that they become, and what is refused, with the reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import kernelpack as kp
from kernelpack.backends.cuda.hopper import buffers
from kernelpack.errors import CompilationError
from kernelpack.frontend.ast_to_ttir import ast_to_ttir
from kernelpack.ir.core import Block, Builder
from kernelpack.ir.types import I32
from kernelpack.kernel.jit import JITFunction
from kernelpack.kernel.types import bfloat16, block_type, float8e5, float16, float32, float64, int32, int64, pointer_type
from kernelpack.kernel.values import tensor
from kernelpack.language import hopper
from kernelpack.options import Options
from kernelpack.semantics import descriptors, operators


class Code:
    """A block, and what is created in it."""

    def __init__(self) -> None:
        self.block = Block()
        self.b = Builder(self.block)

    def names(self) -> list[str]:
        return [op.name for op in self.block.operations]

    def tile(self, shape: tuple[int, ...] = (64, 64), kind: Any = float16, stages: int | None = None) -> tensor:
        return buffers.alloc(self.b, list(shape), kind, stages)

    def number(self) -> tensor:
        return tensor(self.block.add_argument(I32, "n"), int32)

    def descriptor(self, block: tuple[int, ...], kind: Any = float16) -> Any:
        """Of a tensor with contiguous rows of 256 elements."""
        base = tensor(self.block.add_argument(pointer_type(kind).to_ir(), "p"), pointer_type(kind))
        return descriptors.make(self.b, base, [4096] * (len(block) - 1) + [256], [256] * (len(block) - 1) + [1], block, "zero")

    def copy(self, block: tuple[int, ...], row: Any, kind: Any = float16) -> None:
        places = [self.number() for _ in block]
        buffers.copy_in(self.b, self.descriptor(block, kind), places, self.tile(), buffers.barriers(self.b, 1, None), row)

    def zeros(self, shape: tuple[int, ...], kind: Any = float32) -> tensor:
        return (
            operators.constant(self.b, 0.0, kind)
            if not shape
            else tensor(self.block.add_argument(block_type(kind, shape).to_ir(), "z"), block_type(kind, shape))
        )


def test_a_buffer_is_a_tile_or_a_ring_that_tma_fills() -> None:
    code = Code()
    tile, ring = code.tile(), code.tile((64, 32), bfloat16, 3)
    assert (str(tile.type), str(ring.type)) == ("buffer<[64, 64], fp16>", "buffer<3 x [64, 32], bf16>")
    assert tile.handle.type.shape == (64, 64)
    assert ring.handle.type.shape == (3, 64, 32)
    assert tile.handle.type.encoding.alignment == 1024
    assert ring.type.nbytes == 64 * 32 * 2  # of one tile


def test_a_ring_is_indexed_with_one_number() -> None:
    code = Code()
    ring = code.tile(stages=3)
    for key in (2, code.number()):
        tile = ring.type.index(code.b, ring, (key,))
        assert tile.type == code.tile().type
    assert code.names().count("ttg.memdesc_index") == 2


def test_a_tile_s_transposed_view_has_its_bytes() -> None:
    code = Code()
    tile = code.tile((64, 32))
    turned = tile.type.attribute(code.b, tile, "T")
    assert turned.type.tile == (32, 64)
    assert turned.type.attribute(code.b, turned, "T").type == tile.type
    layouts = tile.type.encoding.layout, turned.type.encoding.layout
    for offset in (0, 1, 77, 2047):
        assert layouts[0](offset=offset) == layouts[1](offset=offset)[::-1]
    assert code.names() == ["ttg.local_alloc", "ttg.memdesc_trans", "ttg.memdesc_trans"]


def test_each_barrier_of_a_ring_is_initialised() -> None:
    code = Code()
    ring = buffers.barriers(code.b, 2, 3)
    starts = [op for op in code.block.operations if op.name == "ttng.init_barrier"]
    assert [op.attributes["count"] for op in starts] == [2, 2, 2]
    assert ring.type.is_barrier
    with pytest.raises(CompilationError, match=r"one barrier is needed, not a ring of 3\n  to fix: choose one: ring\[stage\]"):
        buffers.barrier_of(ring)


def test_a_role_arrives_once_or_by_each_warp() -> None:
    code = Code()
    barrier = buffers.barriers(code.b, 1, None)
    for each_warp in (False, True):
        buffers.arrive(code.b, barrier, each_warp)
    assert [op.attributes["every"] for op in code.block.operations[-2:]] == [0, 1]


def test_types_say_what_differs_between_buffers() -> None:
    code = Code()
    kinds = [code.tile().type, code.tile((64, 32)).type, code.tile(kind=bfloat16).type, code.tile(stages=2).type]
    assert len({kind.mangle() for kind in kinds}) == len(set(kinds)) == 4
    assert code.tile().type == kinds[0]
    copy, arguments = kinds[3].__reduce__()
    assert copy(*arguments) == kinds[3]


def test_a_product_of_buffers_is_under_way_until_it_is_waited_for() -> None:
    code = Code()
    acc = buffers.dot(code.b, code.tile((64, 32)), code.tile((32, 128)), code.zeros((64, 128)))
    assert acc.shape == (64, 128)
    assert code.block.operations[-1].attributes["isAsync"] is True
    assert isinstance(buffers.wait_dots(code.b, 1, (acc,)), tensor)
    assert len(buffers.wait_dots(code.b, 0, (acc, acc))) == 2
    assert code.names()[-3:] == ["ttng.warp_group_dot", "ttng.warp_group_dot_wait", "ttng.warp_group_dot_wait"]


def test_a_store_converts_to_the_buffer_s_type() -> None:
    code = Code()
    tile = code.tile()
    buffers.store(code.b, tile, code.zeros((64, 64)))
    assert code.names() == ["ttg.local_alloc", "arith.truncf", "ttg.local_store"]
    assert buffers.load(code.b, tile).dtype == float16


def test_a_block_of_fewer_rows_is_copied_to_and_from_a_part_of_a_tile() -> None:
    code = Code()
    part, tile = code.descriptor((1, 16, 1, 64)), code.tile()
    buffers.copy_in(code.b, part, [code.number()] * 4, tile, buffers.barriers(code.b, 1, None), 48)
    buffers.copy_out(code.b, part, [code.number()] * 4, tile, 8)
    loads, stores = (op for op in code.block.operations if "tma" in op.name)
    assert (loads.attributes["row"], stores.attributes["row"]) == (48, 8)


Refused = Callable[[Code], Any]
REFUSED: list[tuple[Refused, str]] = [
    (lambda c: buffers.arrive(c.b, buffers.barriers(c.b, 1, None), 4), "each_warp is True or False at compile time, not 4"),
    (lambda c: c.tile(kind=float64), "a buffer holds elements of 8, 16 or 32 bits, not tl.float64"),
    (lambda c: c.tile(kind=pointer_type(float16)), "a buffer holds elements of 8, 16 or 32 bits"),
    (lambda c: c.tile((64,)), "a buffer has two dimensions, not 1"),
    (lambda c: c.tile(stages=65), "a ring has a compile-time number of stages, 1 to 64, not 65"),
    (lambda c: c.tile().type.index(c.b, c.tile(), (0,)), r"is no ring\n  to fix: give it stages=..."),
    (lambda c: c.tile(stages=3).type.index(c.b, c.tile(stages=3), (3,)), "the ring has 3 stages, number 3 is not one of them"),
    (lambda c: c.tile(stages=3).type.index(c.b, c.tile(stages=3), (0, 1)), "a ring is indexed with one integer, not 0, 1"),
    (lambda c: c.tile().type.attribute(c.b, c.tile(), "rows"), "has no attribute 'rows'\n  to fix: it has T, nbytes"),
    (lambda c: buffers.barriers(c.b, 0, None), "a barrier counts a compile-time number of arrivals, from 1, not 0"),
    (lambda c: buffers.barrier_of(c.tile()), r"a barrier is needed, not .*\n  to fix: make one with hopper.mbarrier_alloc"),
    (lambda c: buffers.load(c.b, c.tile(stages=2)), r"a tile in shared memory .*\n  to fix: choose a tile of the ring"),
    (
        lambda c: buffers.store(c.b, c.tile(), c.zeros((64, 32))),
        r"a value of shape \[64, 32\] does not fit a tile of shape \[64, 64\]",
    ),
    (lambda c: buffers.expect(c.b, buffers.barriers(c.b, 1, None), 1 << 20), "a compile-time integer below 2\\^20"),
    (lambda c: buffers.wait(c.b, buffers.barriers(c.b, 1, None), c.zeros((4,), int32)), "the phase of a barrier is 0 or 1"),
    (lambda c: buffers.named(c.b, "ttng.arrive_barrier_named", 0, 48, 8), "a multiple of 32 up to 1024, not 48"),
    (lambda c: buffers.named(c.b, "ttng.arrive_barrier_named", 8, 64, 8), "there are named barriers 0 to 7, not 8"),
    (lambda c: buffers.store_wait(c.b, 64), "a compile-time number below 64, not 64"),
    (
        lambda c: c.copy((16, 64), 52),
        "copies blocks of .16, 64. fp16, which .* does not hold from row 52 on\n  to fix: give the buffer",
    ),
    (lambda c: c.copy((4, 64), 8), "does not hold from row 8 on.*\n.*parts of tiles begin and end at multiples of 8 rows"),
    (lambda c: c.copy((16, 64), 56), "does not hold from row 56 on"),
    (lambda c: c.copy((16, 64), -8), "does not hold from row -8 on"),
    (lambda c: c.copy((16, 32), 0), "does not hold from row 0 on"),
    (lambda c: c.copy((64, 64), 0, bfloat16), "copies blocks of .64, 64. bf16, which .* does not hold"),
    (lambda c: c.copy((16, 64), c.number()), "the row at which a block begins in a tile is a compile-time integer, not"),
    (lambda c: buffers.dot(c.b, c.tile(), c.tile(), c.zeros((64, 64), float16)), r"summed in float32, .*\n  to fix: tl.zeros"),
    (lambda c: buffers.dot(c.b, c.tile((64, 32)), c.tile((64, 64)), c.zeros((64, 64))), "the shapes of a product do not fit"),
    (lambda c: buffers.dot(c.b, c.tile(), c.tile(kind=bfloat16), c.zeros((64, 64))), "not fp16 and bf16"),
    (lambda c: buffers.dot(c.b, c.tile(kind=float8e5), c.tile(), c.zeros((64, 64))), "not fp8e5 and fp16"),
    (lambda c: buffers.dot(c.b, c.tile((32, 64)), c.tile(), c.zeros((32, 64))), "a multiple of 64, not 32"),
    (lambda c: buffers.wait_dots(c.b, 8, (c.zeros((64, 64)),)), "a compile-time number below 8, not 8"),
    (lambda c: buffers.wait_dots(c.b, 0, ()), r"wait_dots takes the sums .*\n  to fix: acc = hopper.wait_dots\(0, acc\)"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED, ids=[message[:40] for _, message in REFUSED])
def test_what_does_not_fit_is_refused(call: Refused, message: str) -> None:
    with pytest.raises(CompilationError, match=message):
        call(Code())


@kp.jit
def nothing(copy):
    pass


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((), 3, None, 1), "a role has 1, 2, 4, 8 warps, not 3"),
        (((), 4, 100, 1), "the registers of a role are a multiple of 8 from 24 to 256, not 100"),
        (((), 4, None, 8), "a role has 1 to 7 copies, not 8"),
        (([], 4, None, 1), "the arguments of a role are a tuple"),
    ],
)
def test_roles_that_no_block_has_are_refused(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(CompilationError, match=message):
        buffers.role(nothing, *arguments)
    assert buffers.role(nothing, (), 4, None, 7) == buffers.Role(nothing, (), 4, 0, 7)


@kp.jit
def no_roles(x):
    hopper.warp_specialize()


@kp.jit
def many_roles(x):
    hopper.warp_specialize(hopper.role(nothing, (), copies=4), hopper.role(nothing, (), copies=4))


@kp.jit
def mixed_roles(x):
    hopper.warp_specialize(hopper.role(nothing, ()), hopper.role(nothing, (), registers=40))


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (no_roles, r"warp_specialize takes roles"),
        (many_roles, "a program has at most 7 roles, copies included"),
        (mixed_roles, "either every role says how many registers it has, or none"),
    ],
)
def test_roles_of_a_program_fit_together(fn: JITFunction, message: str) -> None:
    with pytest.raises(CompilationError, match=message):
        ast_to_ttir(fn, {"x": "*fp32"}, {}, (), Options())


def test_a_barrier_is_a_buffer_of_one_number() -> None:
    barrier = buffers.barriers(Code().b, 1, None)
    assert (barrier.type.element_ty, barrier.type.tile, barrier.type.nbytes) == (int64, (1,), 8)
