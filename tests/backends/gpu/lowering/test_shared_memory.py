"""Tiles in shared memory: every thread reads and writes where the buffer's layout has its elements; buffers, and slots of rings."""

from __future__ import annotations

import re

import pytest

from kernelpack.backends.gpu.lowering.state import SHARED
from kernelpack.ir.types import F32
from kernelpack.layout.families import Threads, spread, swizzled
from kernelpack.layout.linear import LinearLayout
from kernelpack.llvm.text import Val
from tests.backends.fragments import count, in_order
from tests.backends.gpu.lowering.integers import returned, run
from tests.backends.gpu.lowering.llir import GFX942, LANES, SM80, TARGETS, gfx942, lower, nvidia, text_of
from tests.backends.gpu.lowering.tiles import buffer, loaded, stored

ROWS, COLUMNS = (1, 0), (0, 1)
PLAIN = swizzled((32, 32), (1, 0))
SWIZZLED = swizzled((32, 32), (1, 0), 4, 1, 8)


def tile(order: tuple[int, int], target: str) -> LinearLayout:
    """Returns a layout of a tile for one warp whose lanes have four elements in a row, or in a column."""
    return spread((32, 32), 4, order, Threads(1, LANES[target]))


_LOAD = re.compile(r"(%\w+) = load (?:<\d+ x )?(\w+)>?, ptr addrspace\(3\) (%\w+), align \d+")
_EXTRACT = re.compile(r"(%\w+) = extractelement <\d+ x (\w+)> (%\w+), i64 (\d+)")
_CAST = re.compile(r"(%\w+) = (?:bitcast|icmp ne) \S+ (%\w+)\b.*")
_BYTES = {"i8": 1, "i16": 2, "half": 2, "bfloat": 2, "i32": 4, "float": 4, "i64": 8, "double": 8}


def places(text: str, thread: int) -> list[int]:
    """The byte of the buffer where each returned register was read by a thread."""
    known = run(text, {"%tid": thread, "%b": 0})
    where: dict[str, int] = {}
    for line in text.splitlines():
        if load := _LOAD.fullmatch(line):
            where[load[1]] = known[load[3]]
        elif part := _EXTRACT.fullmatch(line):
            where[part[1]] = where[part[3]] + int(part[4]) * _BYTES[part[2]]
        elif (cast := _CAST.fullmatch(line)) and cast[2] in where:
            where[cast[1]] = where[cast[2]]
    return [where[name] for name in returned(text)]


@TARGETS
@pytest.mark.parametrize("kind", ["f32", "f16", "i8"])
@pytest.mark.parametrize("memory", [PLAIN, SWIZZLED], ids=["plain", "swizzled"])
@pytest.mark.parametrize("order", [ROWS, COLUMNS], ids=["rows", "columns"])
def test_a_thread_reads_its_elements_where_they_lie(
    order: tuple[int, int], memory: LinearLayout, kind: str, target: str
) -> None:
    layout, offsets = tile(order, target), memory.invert()
    text = loaded(layout, memory, kind, target)
    for lane in (0, 1, 5, 17, LANES[target] - 1):
        expected = []
        for register in range(layout.in_size("register")):
            row, column = layout(register=register, lane=lane)
            expected.append(offsets(dim0=row, dim1=column)[0] * {"f32": 4, "f16": 2, "i8": 1}[kind])
        assert places(text, lane) == expected


@TARGETS
def test_neighbours_in_memory_are_read_at_once(target: str) -> None:
    rows, columns = (loaded(tile(order, target), PLAIN, target=target) for order in (ROWS, COLUMNS))
    each = 1024 // LANES[target]
    assert count(rows, "%A = load <4 x i32>, ptr addrspace(3) ..., align 16") == each // 4
    assert count(columns, "%A = load float, ptr ...") + count(columns, "%A = load i32, ptr ...") == each


@TARGETS
def test_booleans_are_bytes(target: str) -> None:
    text = loaded(tile(COLUMNS, target), PLAIN, "i1", target)
    in_order(text, "%A = load i8, ptr addrspace(3) ..., align 1\n%B = icmp ne i8 %A, 0")


@TARGETS
def test_vectors_are_written_where_they_lie(target: str) -> None:
    rows, offsets = tile(ROWS, target), SWIZZLED.invert()
    text = stored(rows, SWIZZLED, target=target)
    stores = re.findall(r"store <4 x i32> %\w+, ptr addrspace\(3\) (%\w+), align 16", text)
    assert len(stores) == 256 // LANES[target]
    for lane in (0, 3, 31, LANES[target] - 1):
        known = run(text, {"%tid": lane, "%b": 0})
        places = [rows(register=first, lane=lane) for first in range(0, 4 * len(stores), 4)]
        expected = {offsets(dim0=row, dim1=column)[0] * 4 for row, column in places}
        assert {known[name] for name in stores} == expected


def test_of_threads_with_copies_one_writes() -> None:
    """Where no instruction has a predicate, stores stand in a branch."""
    text = stored(spread((32,), 1, (0,), Threads(1, 64)), swizzled((32,), (0,)), target=GFX942)
    in_order(
        text,
        """
        %B = and i32 %tid, 32
        %O = icmp eq i32 %B, 0
        br i1 %O, label %if..., label %endif...
        if...:
        store i32 ..., ptr addrspace(3) ..., align 4
        br label %endif...
        """,
    )


@TARGETS
def test_a_buffer_lies_where_allocation_put_it(target: str) -> None:
    in_order(
        lower(
            f"%b = ttg.local_alloc %x {{allocation.offset = 512 : i32}} : (tensor<32x32xf32, $L>) -> {buffer('f32')}",
            "%x: tensor<32x32xf32, $L>",
            {"L": tile(ROWS, target), "S": PLAIN},
            target,
        ),
        "%A = getelementptr i8, ptr addrspace(3) @shared_memory, i64 512\n%B = getelementptr i8, ptr addrspace(3) %A, i32 %C\nstore <4 x i32> ..., ptr addrspace(3) %B, align 16",
    )


@TARGETS
def test_a_slot_of_a_ring_is_as_many_bytes_further(target: str) -> None:
    text = lower(
        f"""
        %s = ttg.memdesc_index %b[%i] : {buffer("f32", "3x32x32", "$T")} -> {buffer("f32")}
        %r = ttg.local_load %s : {buffer("f32")} -> tensor<32x32xf32, $L>
        tt.return %r : tensor<32x32xf32, $L>
        """,
        f"%b: {buffer('f32', '3x32x32', '$T')}, %i: i32",
        {"L": tile(ROWS, target), "S": PLAIN, "T": PLAIN},
        target,
    )
    in_order(
        text,
        "%O = mul i32 %i, 4096\n%S = getelementptr i8, ptr addrspace(3) %b, i32 %O\n%A = getelementptr i8, ptr addrspace(3) %S, i32 ...",
    )


@TARGETS
def test_a_reader_reads_what_it_is_asked_for_once(target: str) -> None:
    """A product asks for registers one by one: the vector of a register is read then, and its neighbours are known."""
    state = nvidia() if target == SM80 else gfx942()
    reader = state.tiles.reader(state, Val(SHARED, "%b"), PLAIN, tile(ROWS, target), F32)
    assert not count(text_of(state), "%A = load ...")
    first = [reader[register] for register in range(4)]
    assert count(text_of(state), "%A = load ...") == 1
    assert [reader[register] for register in range(4)] == first
    reader.all()
    assert count(text_of(state), "%A = load ...") == 256 // LANES[target]
