"""Stack memory of tiles: each its own while they are small, and shared by tiles that are never needed at once where they are many."""

from __future__ import annotations

from kernelpack.backends.cpu.emit.scratch import APART, Scratch
from kernelpack.backends.cpu.plan.buffers import Buffer
from kernelpack.ir.types import F32
from kernelpack.llvm.text import Emitter

SMALL, HALF, BIG = 64, APART // 8, APART // 4  # elements of 4 bytes


def buffers(*sizes: int) -> list[Buffer]:
    return [Buffer(f"b{number}", (size,), 0, F32) for number, size in enumerate(sizes)]


def used(scratch: Scratch, steps: list[list[Buffer]]) -> None:
    """Asks for the buffers of each step."""
    for step in steps:
        scratch.step()
        for buffer in step:
            scratch[id(buffer)]


def test_small_tiles_have_memory_of_their_own() -> None:
    a, b = tiles = buffers(SMALL, 2 * SMALL)
    scratch = Scratch(Emitter(), tiles)
    used(scratch, [[a], [b]])
    lines, total = scratch.allocate()
    assert [line.strip() for line in lines] == ["%tile1 = alloca [256 x i8], align 64", "%tile2 = alloca [512 x i8], align 64"]
    assert total == 256 + 512


def test_tiles_of_other_steps_share_the_memory_of_the_largest() -> None:
    a, b, c = tiles = buffers(BIG, HALF, BIG)
    scratch = Scratch(Emitter(), tiles)
    used(scratch, [[a], [b], [c]])
    lines, total = scratch.allocate()
    assert [line.strip() for line in lines] == [
        f"%tile1 = alloca [{4 * BIG} x i8], align 64",
        "%tile3 = getelementptr i8, ptr %tile1, i64 0",
        "%tile2 = getelementptr i8, ptr %tile1, i64 0",
    ]
    assert total == 4 * BIG


def test_tiles_of_one_step_lie_apart() -> None:
    a, b = tiles = buffers(BIG, BIG)
    scratch = Scratch(Emitter(), tiles)
    used(scratch, [[a], [a, b], [b]])
    lines, total = scratch.allocate()
    assert len([line for line in lines if "alloca" in line]) == 2
    assert total == 8 * BIG


def test_a_tile_from_outside_is_needed_by_all_of_a_loop() -> None:
    """It is read in the loop's first statement, and again in the next iteration."""
    a, b, c = tiles = buffers(BIG, BIG, BIG)
    scratch = Scratch(Emitter(), tiles)
    used(scratch, [[a]])
    with scratch.loop():
        used(scratch, [[a], [b], [c]])
    lines, total = scratch.allocate()
    assert total == 8 * BIG  # b and c, which begin and end in an iteration, share
    assert [line.strip() for line in lines if "getelementptr" in line] == ["%tile3 = getelementptr i8, ptr %tile2, i64 0"]


def test_a_tile_of_an_inner_loop_is_needed_by_its_own_loop_alone() -> None:
    a, b, c = tiles = buffers(BIG, BIG, BIG)
    scratch = Scratch(Emitter(), tiles)
    with scratch.loop():
        used(scratch, [[a]])
        with scratch.loop():
            used(scratch, [[a], [b]])
        used(scratch, [[c]])
    _, total = scratch.allocate()
    assert total == 8 * BIG  # a and b meet; c meets neither


def test_tiles_that_nobody_asks_for_have_no_memory() -> None:
    a, _b = tiles = buffers(BIG, BIG + 1)
    scratch = Scratch(Emitter(), tiles)
    used(scratch, [[a]])
    lines, total = scratch.allocate()
    assert (len(lines), total) == (1, 4 * BIG)
