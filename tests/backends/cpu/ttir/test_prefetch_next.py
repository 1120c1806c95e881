"""What is asked for one iteration ahead. tests/passes/data/prefetch_next.ttir has the operations."""

from __future__ import annotations

import pytest
import torch

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.backends.cpu.ttir.prefetch_next import prefetch_next
from kernelpack.compiler.stages import optimise_ttir
from tests.backends.cpu.agreement import check, ttir_of
from tests.ir.examples import parse
from tests.passes.before_after import stays, wrap

ARGUMENTS = "%x: !tt.ptr<f32>, %table: !tt.ptr<i32>, %n: i32, %zero: i32, %one: i32, %none: f32"
PLACES = """
          %s = tt.splat %x : !tt.ptr<f32> -> tensor<16x!tt.ptr<f32>>
          %b = tt.splat %{number} : i32 -> tensor<16xi32>
          %q = tt.addptr %s, %b : tensor<16x!tt.ptr<f32>>, tensor<16xi32>
          %v = tt.load %q {policy}: tensor<16x!tt.ptr<f32>>
          tt.store %q, %v : tensor<16x!tt.ptr<f32>>
"""
ONCE = "evictionPolicy = evict_first "


def loop(body: str, carried: str = "", given: str = "") -> str:
    return f"""
        %r = scf.for %i = %zero to %n step %one iter_args(%c = {carried or "%zero"}) -> (i32)  : i32 {{
          {body}
          scf.yield {given or "%c"} : i32
        }}
        """


READ = """
          %a = tt.addptr %table, %i : !tt.ptr<i32>, i32
          %k = tt.load %a : !tt.ptr<i32>
"""


@pytest.mark.parametrize(
    "body",
    [
        loop(READ + PLACES.format(number="k", policy="")),  # may be in a cache
        loop(PLACES.format(number="i", policy=ONCE)),  # no number is read
        loop(  # the number's own address is read
            READ
            + """
          %a2 = tt.addptr %table, %k : !tt.ptr<i32>, i32
          %k2 = tt.load %a2 : !tt.ptr<i32>
"""
            + PLACES.format(number="k2", policy=ONCE)
        ),
        loop(
            READ.replace("%i", "%c") + PLACES.format(number="k", policy=ONCE), given="%k"
        ),  # a list: the next place is not known
        loop(  # another processor may write it
            READ.replace("tt.load %a", "tt.load %a {is_volatile = true}") + PLACES.format(number="k", policy=ONCE)
        ),
        READ.replace("%i", "%n") + PLACES.format(number="k", policy=ONCE),  # no loop
    ],
    ids=["not once", "no number", "number by number", "list", "volatile", "no loop"],
)
def test_others_stay(body: str) -> None:
    stays(prefetch_next, ARGUMENTS, body)


def test_a_sum_of_equal_numbers_is_looked_at_once() -> None:
    doubled = "".join(f"%d{i + 1} = arith.addi %d{i}, %d{i} : i32\n" for i in range(64))
    body = READ + "%d0 = arith.addi %k, %k : i32\n" + doubled
    module = parse(wrap(loop(body + PLACES.format(number="d64", policy=ONCE)), ARGUMENTS))
    assert str(prefetch_next(module)).count("cpu.prefetch") == 1  # rather than after 2^64 steps


@kp.jit
def sum_of_pages(x, table, out, n, PAGE: tl.constexpr, SIZE: tl.constexpr):
    rows, columns = tl.arange(0, PAGE), tl.arange(0, SIZE)
    total = tl.zeros([SIZE], tl.float32)
    for number in range(n):
        page = x + tl.load(table + number) * (PAGE * SIZE)
        total += tl.sum(tl.load(page + rows[:, None] * SIZE + columns[None, :], eviction_policy="evict_first"), axis=0)
    tl.store(out + columns, total)


@pytest.mark.parametrize("count", [0, 1, 5])
def test_pages_add_up(count: int) -> None:
    table = torch.tensor([7, 0, 3, 3, 6], dtype=torch.int32)[:count].clone()  # nothing after the last entry
    check(sum_of_pages, (1,), torch.randint(-9, 9, (8 * 4 * 32,)).float(), table, torch.zeros(32), count, PAGE=4, SIZE=32)


def test_each_page_is_asked_for_by_its_lines() -> None:
    module = optimise_ttir(
        ttir_of(sum_of_pages, (torch.zeros(8), torch.zeros(8, dtype=torch.int32), torch.zeros(8), 5), {"PAGE": 4, "SIZE": 32})
    )
    before = str(module)
    text = str(prefetch_next(module))
    assert text.count("cpu.prefetch") == 1
    assert "evict_first" in before
    assert "evict_first" not in text
