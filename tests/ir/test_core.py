"""Blocks: operations stand where they were put, and know where that is, in whatever order they come and go."""

from __future__ import annotations

import random

import pytest

from kernelpack.ir.core import Block, Operation


def test_a_block_knows_the_place_of_each_operation() -> None:
    draw = random.Random(0)
    block, expected = Block(), list[Operation]()
    for _ in range(3000):
        step, place = draw.random(), draw.choice([0, len(expected) // 2, len(expected), draw.randrange(len(expected) + 1)])
        if step < 0.7 or not expected:
            expected.insert(place, block.insert(place, Operation("arith.constant")))
        elif step < 0.85:
            expected.pop(draw.randrange(len(expected))).detach()
        else:  # to its end, from wherever it is
            op = expected.pop(draw.randrange(len(expected)))
            expected.append(block.append(op))
    assert block.operations == expected
    assert [block.index(op) for op in expected] == list(range(len(expected)))


@pytest.mark.parametrize("after", [False, True])
def test_there_is_room_between_two_operations_for_thousands(after: bool) -> None:
    block = Block()
    first, last = block.append(Operation("arith.constant")), block.append(Operation("arith.constant"))
    for _ in range(5000):
        block.insert(1 if after else block.index(last), Operation("arith.constant"))
    assert block.index(first) == 0
    assert block.index(last) == 5001


def test_an_operation_of_another_block_has_no_place() -> None:
    with pytest.raises(ValueError, match=r"arith.constant is in another block"):
        Block().index(Block().append(Operation("arith.constant")))
