"""Code that evaluates linear layouts: for every thread it gives what the layout says, with a mask and shift for each distance."""

from __future__ import annotations

import pytest

from kernelpack.backends.gpu.lowering.linear_code import LinearOffsets, apply_linear, i32, reach
from kernelpack.llvm.text import Emitter, Val
from tests.backends.gpu.lowering.integers import run

TID = Val("i32", "%tid")


def applied(bases: list[int]) -> tuple[list[int], list[str]]:
    """What each index becomes, and the lines that compute it."""
    em = Emitter()
    value = apply_linear(em, TID, bases)
    text = "\n".join(em.lines)
    return [
        run(text, {"%tid": index}).get(value.name, 0) if value.name.startswith("%") else int(value.name)
        for index in range(1 << len(bases))
    ], em.lines


@pytest.mark.parametrize(
    ("bases", "lines"),
    [
        ([1, 2, 4, 8, 16], 0),  # the index itself
        ([4, 8, 16, 32, 64], 1),  # one shift
        ([1, 2, 4, 0, 0], 1),  # one mask
        ([0, 0, 0, 1, 2], 2),  # a mask and a shift to the right
        ([16, 8, 4, 2, 1], 13),  # every bit on its own
        ([3, 6, 12, 24, 16], 3),
        ([0, 0, 0, 0, 0], 0),
    ],
)
def test_an_index_becomes_the_exclusive_or_of_its_bits_bases(bases: list[int], lines: int) -> None:
    got, emitted = applied(bases)
    expected = []
    for index in range(32):
        value = 0
        for bit, basis in enumerate(bases):
            value ^= basis if index >> bit & 1 else 0
        expected.append(value)
    assert got == expected
    assert len(emitted) == lines


def test_the_bits_that_any_index_can_set() -> None:
    assert reach([1, 4, 6]) == 7
    assert reach([]) == 0


def test_what_lies_outside_of_the_bases_bits_is_added_in_the_address() -> None:
    em = Emitter()
    offsets = LinearOffsets(em, [(TID, [4, 8, 16, 32, 64])])
    assert offsets.mask == 124
    base, constant = offsets.split(0)
    assert (base, constant) == (offsets.base, 0)
    before = len(em.lines)
    assert offsets.split(256) == (offsets.base, 256)  # no bit in common: an addition
    assert offsets.split(128 + 3) == (offsets.base, 131)
    assert len(em.lines) == before
    varied, constant = offsets.split(64 + 128)
    assert constant == 128
    assert em.lines[-1].strip() == f"{varied.name} = xor i32 {offsets.base.name}, 64"
    assert offsets.split(64)[0] == varied  # computed once
    assert len(em.lines) == before + 1


def test_several_indices_move_one_offset() -> None:
    em = Emitter()
    offsets = LinearOffsets(em, [(TID, [4, 8]), (Val("i32", "%row"), [16, 36])])
    text = "\n".join(em.lines)
    got = run(text, {"%tid": 3, "%row": 2})[offsets.base.name]
    assert got == (4 ^ 8) ^ 36
    assert offsets.mask == 4 | 8 | 16 | 36
    assert i32(5) == Val("i32", "5")
