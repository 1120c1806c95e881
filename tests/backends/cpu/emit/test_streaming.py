"""What a kernel reads or writes once: memory is asked for ahead, and results go around the caches where they are aligned."""

from __future__ import annotations

import re

import pytest

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.backends.cpu.emit.streaming import ask_ahead, finish_streams, store_past_caches
from kernelpack.backends.cpu.facts.features import Level
from kernelpack.backends.cpu.ttir.prefetch_next import prefetch_next
from kernelpack.backends.cpu.ttir.prefetch_streams import prefetch_streams
from kernelpack.llvm.text import Emitter, Val
from tests.backends.cpu.emit.llir import program, whole, written
from tests.backends.cpu.plan.plans import V3, V4, ttir
from tests.backends.fragments import count, in_order


@pytest.mark.parametrize(("offset", "asks"), [(0, True), (32, False), (64, True), (96, False), (128, True)])
def test_each_line_is_asked_for_once(offset: int, asks: bool) -> None:
    em = Emitter()
    ask_ahead(em, Val("ptr", "%p"), offset)
    assert bool(em.lines) is asks
    if asks:
        in_order(
            written(em),
            """
            %A = getelementptr i8, ptr %p, i64 8192
            call void @llvm.prefetch.p0(ptr %A, i32 0, i32 3, i32 1)
            """,
        )


@kp.jit
def sum_of_rows(x, out, n, stride, ROWS: tl.constexpr, COLUMNS: tl.constexpr, ALONG: tl.constexpr):
    rows, columns = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    for begin in range(0, n, ROWS):
        if ALONG:
            at = (begin + rows)[:, None] * stride + columns[None, :]
        else:
            at = rows[:, None] * stride + (begin + columns)[None, :]
        total += tl.load(x + at, eviction_policy="evict_first")
    tl.store(out + rows[:, None] * COLUMNS + columns[None, :], total)


@pytest.mark.parametrize("along", [True, False])
def test_short_rows_ask_for_those_of_the_next_tile_that_the_loop_goes_to(along: bool) -> None:
    text = whole(sum_of_rows, V4, n="i32", stride="i32", ROWS=8, COLUMNS=32, ALONG=along)
    assert ("@llvm.prefetch.p0(ptr %" in text) is along
    assert ("i32 0, i32 2, i32 1)" in text) is along


@kp.jit
def sum_of_pages(x, table, out, n, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    rows, columns = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    for number in range(n):
        page = x + tl.load(table + number) * (ROWS * COLUMNS)
        total += tl.load(page + rows[:, None] * COLUMNS + columns[None, :], eviction_policy="evict_first")
    tl.store(out + rows[:, None] * COLUMNS + columns[None, :], total)


@pytest.mark.parametrize(("level", "columns", "lines"), [(V3, 64, 4), (V3, 8, 2), (V4, 64, 8), (V4, 16, 2)])
def test_pages_are_asked_for_by_their_lines(level: Level, columns: int, lines: int) -> None:
    module = prefetch_next(ttir(sum_of_pages, table="*i32", n="i32", ROWS=2, COLUMNS=columns))
    text = whole(module, level)
    assert text.count("call void @llvm.prefetch.p0(ptr %") == lines  # of one row in a loop, or of both
    assert "i32 0, i32 2, i32 1)" in text


@kp.jit
def sum_of_words(x, out, n, LANES: tl.constexpr):
    lanes = tl.arange(0, LANES)
    total = tl.zeros([LANES], tl.int32)
    for block in range(n):
        for row in tl.static_range(4):
            total += tl.load(x + (block * 4 + row) * LANES + lanes, eviction_policy="evict_first")
    tl.store(out + lanes, total)


@pytest.mark.parametrize("lanes", [8, 64])
def test_a_stretch_is_asked_for_in_the_order_of_its_addresses(lanes: int) -> None:
    """Of four rows, each vector of eight lanes asks for two lines."""
    text = whole(prefetch_streams(ttir(sum_of_words, x="*i32", out="*i32", n="i32", LANES=lanes)), V3)
    asked = re.findall(r"call void @llvm.prefetch.p0\(ptr (%\S+), i32 0, i32 2, i32 1\)", text)
    later = {name: int(offset) for name, offset in re.findall(r"(%\S+) = getelementptr i8, ptr %\S+, i64 (\d+)", text)}
    assert [later.get(name, 0) for name in asked] == lanes // 8 * [0, 64]


def test_an_aligned_address_is_written_past_the_caches() -> None:
    em = Emitter(frozenset({"avx512"}))
    store_past_caches(em, Val("<16 x float>", "%x"), Val("ptr", "%p"), 4)
    in_order(
        written(em),
        """
        %A = ptrtoint ptr %p to i64
        %L = and i64 %A, 63
        %E = icmp eq i64 %L, 0
        br i1 %E, label %past..., label %through...
        past...:
        store <16 x float> %x, ptr %p, align 64, !nontemporal !2
        br label %after...
        through...:
        store <16 x float> %x, ptr %p, align 4
        br label %after...
        after...:
        """,
    )
    finish_streams(em)
    assert em.lines[-1].strip() == "call void @llvm.x86.sse.sfence()"


def test_without_avx512_it_is_a_store_and_no_fence() -> None:
    em = Emitter()
    store_past_caches(em, Val("<8 x float>", "%x"), Val("ptr", "%p"), 4)
    finish_streams(em)
    assert written(em).strip() == "store <8 x float> %x, ptr %p, align 4"


@kp.jit
def copy(x, out, S: tl.constexpr, MASKED: tl.constexpr):
    i = tl.arange(0, S)
    if MASKED:
        tl.store(out + i, tl.load(x + i, mask=i < 9, eviction_policy="evict_first"), mask=i < 9, cache_modifier=".cs")
    else:
        tl.store(out + i, tl.load(x + i, eviction_policy="evict_first"), cache_modifier=".cs")


def test_kernels_ask_for_whole_accesses_alone() -> None:
    text = program(copy, V3, S=32, MASKED=False)
    assert count(text, "call void @llvm.prefetch.p0(...)") == 2  # 128 bytes
    assert count(program(copy, V4, S=32, MASKED=False), "store ... !nontemporal !2") == 2
    masked = whole(copy, V4, S=32, MASKED=True)
    assert "prefetch" not in masked
    assert "nontemporal" not in masked
    assert "sfence" not in masked
    assert "sfence" in whole(copy, V4, S=32, MASKED=False)


@kp.jit
def rows_once(x, out, stride, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    at = tl.arange(0, ROWS)[:, None] * stride + tl.arange(0, COLUMNS)[None, :]
    tl.store(out + at, tl.load(x + at, eviction_policy="evict_first"))


@pytest.mark.parametrize(("rows", "columns", "asks"), [(1, 64, True), (4, 2048, False), (4, 4096, True)])
def test_short_rows_above_each_other_are_no_stream(rows: int, columns: int, asks: bool) -> None:
    text = program(rows_once, stride="i32", ROWS=rows, COLUMNS=columns)
    assert ("llvm.prefetch" in text) is asks
