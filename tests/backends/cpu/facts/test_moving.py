"""Along which axis the tile of a load moves in a loop."""

from __future__ import annotations

import pytest
import torch

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.backends.cpu.facts.moving import moves_along
from kernelpack.compiler.stages import optimise_ttir
from tests.backends.cpu.agreement import ttir_of


@kp.jit
def walk(x, table, out, n, stride, HOW: tl.constexpr):
    rows, columns = tl.arange(0, 16), tl.arange(0, 64)
    total = tl.zeros([16, 64], tl.float32)
    for begin in range(0, n, 16):
        if HOW == "rows":
            at = (begin + rows)[:, None] * stride + columns[None, :]
        elif HOW == "pages":
            at = (tl.load(table + begin // 64) * 64 + begin % 64 + rows)[:, None] * stride + columns[None, :]
        elif HOW == "columns":
            at = rows[:, None] * stride + (begin + columns)[None, :]
        elif HOW == "every second row":
            at = (begin + 2 * rows)[:, None] * stride + columns[None, :]
        else:
            at = (n + rows)[:, None] * stride + columns[None, :]
        total += tl.load(x + at)
    tl.store(out + rows[:, None] * 64 + columns[None, :], total)


@pytest.mark.parametrize(
    ("how", "axes"),
    [("rows", [True, False]), ("pages", [True, False]), ("columns", [False, True]), ("every second row", [False, False]),
     ("not at all", [False, False])],
)  # fmt: skip
def test_tiles_move_where_a_number_that_the_loop_changes_is_added(how: str, axes: list[bool]) -> None:
    x, table = torch.zeros(1), torch.zeros(1, dtype=torch.int32)
    module = optimise_ttir(ttir_of(walk, (x, table, x, 64, 64), {"HOW": how}))
    (load,) = (op for op in module.walk() if op.name == "tt.load" and len(getattr(op.result.type, "shape", ())) == 2)
    assert [moves_along(load, axis) for axis in (0, 1)] == axes


def test_what_is_in_no_loop_moves_nowhere() -> None:
    x = torch.zeros(1)
    module = optimise_ttir(ttir_of(once, (x, x), {}))
    (load,) = (op for op in module.walk() if op.name == "tt.load")
    assert not moves_along(load, 0)


@kp.jit
def once(x, out):
    rows = tl.program_id(0) * 16 + tl.arange(0, 16)
    tl.store(out + rows, tl.load(x + rows))
