"""A loop body, or a kernel without loops, is there twice: for blocks whose masks are all true, and for the others."""

from __future__ import annotations

import re

import pytest

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.backends.cpu.ttir.version_masks import version_masks
from kernelpack.ir.core import Operation
from kernelpack.kernel.jit import JITFunction
from kernelpack.passes import TTIR
from tests.backends.cpu.plan.plans import V3, ttir
from tests.ir.examples import parse
from tests.passes.before_after import check, stays, wrap

ARGUMENTS = "%p: tensor<32x!tt.ptr<f32>>, %n: i32, %zero: i32, %one: i32"


def version(module: Operation) -> None:
    version_masks(module, V3)


def test_full_blocks_of_a_loop_run_without_their_mask() -> None:
    check(
        version,
        ARGUMENTS,
        """
        %i = tt.make_range {end = 32 : i32, start = 0 : i32} : tensor<32xi32>
        %ns = tt.splat %n : i32 -> tensor<32xi32>
        scf.for %k = %zero to %n step %one  : i32 {
          %ks = tt.splat %k : i32 -> tensor<32xi32>
          %at = arith.addi %ks, %i : tensor<32xi32>
          %m = arith.cmpi slt, %at, %ns : tensor<32xi32>
          %v = tt.load %p, %m : tensor<32x!tt.ptr<f32>>
          tt.store %p, %v, %m : tensor<32x!tt.ptr<f32>>
        }
        """,
        """
        %i = tt.make_range {end = 32 : i32, start = 0 : i32} : tensor<32xi32>
        %ns = tt.splat %n : i32 -> tensor<32xi32>
        scf.for %k = %zero to %n step %one  : i32 {
          %c0_i64 = arith.constant 0 : i64
          %0 = arith.extsi %k : i32 to i64
          %c1_i64 = arith.constant 1 : i64
          %1 = arith.muli %0, %c1_i64 : i64
          %2 = arith.addi %c0_i64, %1 : i64
          %3 = arith.extsi %n : i32 to i64
          %c_1_i64 = arith.constant -1 : i64
          %4 = arith.muli %3, %c_1_i64 : i64
          %5 = arith.addi %2, %4 : i64
          %c_32_i64 = arith.constant -32 : i64
          %6 = arith.cmpi sle, %5, %c_32_i64 : i64
          scf.if %6 {
            %cst = arith.constant dense<true> : tensor<32xi1>
            %ks = tt.splat %k : i32 -> tensor<32xi32>
            %at = arith.addi %ks, %i : tensor<32xi32>
            %v = tt.load %p, %cst : tensor<32x!tt.ptr<f32>>
            tt.store %p, %v, %cst : tensor<32x!tt.ptr<f32>>
          } else {
            %ks_0 = tt.splat %k : i32 -> tensor<32xi32>
            %at_0 = arith.addi %ks_0, %i : tensor<32xi32>
            %m = arith.cmpi slt, %at_0, %ns : tensor<32xi32>
            %v_0 = tt.load %p, %m : tensor<32x!tt.ptr<f32>>
            tt.store %p, %v_0, %m : tensor<32x!tt.ptr<f32>>
          }
        }
        """,
    )


def versions(kernel: JITFunction, **types: str | int) -> list[str]:
    """The conditions of the branches that the pass makes: what must be at most what, after later passes cleaned up."""
    module = ttir(kernel, **types)
    before = {op for op in module.walk() if op.name == "scf.if"}
    version_masks(module, V3)
    branches = [op for op in module.walk() if op.name == "scf.if" and op not in before]
    TTIR.run(module)
    texts = str(module).splitlines()
    assert len(branches) == sum("scf.if" in line for line in texts) - len(before)
    return [line.strip().split(" = ")[1] for line in texts if re.search(r"arith.(cmpi sle|andi).* : i(1|64)$", line)]


@kp.jit
def straight(x, out, n, S: tl.constexpr):
    i = tl.program_id(0) * S + tl.arange(0, S)
    tl.store(out + i, tl.load(x + i, mask=i < n), mask=i < n)


def test_a_kernel_without_loops_is_versioned_as_a_whole() -> None:
    (condition,) = versions(straight, S=32, n="i32")
    assert condition.startswith("arith.cmpi sle, ")
    assert condition.endswith("%c_32_i64 : i64")  # the program's first element less n is at most -32


@kp.jit
def by_data(x, out, n, S: tl.constexpr):
    i = tl.arange(0, S)
    v = tl.load(x + i)
    tl.store(out + i, v, mask=v > 1.0)


@kp.jit
def unmasked(x, out, n, S: tl.constexpr):
    i = tl.arange(0, S)
    tl.store(out + i, tl.load(x + i))


@kp.jit
def outer_loop(x, out, n, S: tl.constexpr):
    i = tl.arange(0, S)
    for k in range(n):
        tl.store(out + i, 0.0, mask=i < k)
        for _ in range(k):
            tl.store(out + i, 1.0)


@kp.jit
def bound_made_in_the_loop(x, out, n, S: tl.constexpr):
    i = tl.arange(0, S)
    for k in range(n):
        end = tl.load(x + k).to(tl.int32)
        tl.store(out + i, 0.0)
        tl.store(out + i, 1.0, mask=i < tl.sum(tl.load(x + i)).to(tl.int32) + end)


@pytest.mark.parametrize("kernel", [by_data, unmasked, outer_loop, bound_made_in_the_loop], ids=lambda kernel: kernel.__name__)
def test_masks_that_no_bound_decides_before_the_body_stay(kernel: JITFunction) -> None:
    module = ttir(kernel, S=32, n="i32")
    before = str(module)
    version_masks(module, V3)
    assert str(module) == before


@kp.jit
def short_rows(x, out, m, S: tl.constexpr):
    row, i = tl.program_id(0) * 4 + tl.arange(0, 4), tl.arange(0, S)
    inside = (row[:, None] < m) & (i[None, :] < 20)
    tl.store(out + row[:, None] * 20 + i[None, :], 1.0, mask=inside)


@kp.jit
def one_short_row(x, out, m, S: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, S)
    tl.store(out + row * 20 + i, 1.0, mask=(row < m) & (i < 20))


@pytest.mark.parametrize("kernel", [short_rows, one_short_row], ids=lambda kernel: kernel.__name__)
def test_a_mask_that_never_holds_whole_keeps_no_other_from_being_split_off(kernel: JITFunction) -> None:
    module = ttir(kernel, S=32, m="i32")
    version_masks(module, V3)
    assert str(module).count("scf.if") == 1


@kp.jit
def rows_and_columns(x, out, m, n, S: tl.constexpr):
    i = tl.arange(0, S)
    inside = (i[:, None] < m) & (i[None, :] < n)
    tl.store(out + i[:, None] * S + i[None, :], 0.0, mask=inside)


def test_all_bounds_of_a_mask_must_hold() -> None:
    first, second, both = versions(rows_and_columns, S=32, m="i32", n="i32")
    assert "sle" in first
    assert "sle" in second
    assert both.startswith("arith.andi")


@kp.jit
def attended(x, out, keys, size, N: tl.constexpr, D: tl.constexpr):
    n, d = tl.arange(0, N), tl.arange(0, D)
    for first in range(0, keys, N):
        inside = (first + n < keys)[:, None] & (d < size)[None, :]
        tl.store(
            out + (first + n)[:, None] * D + d[None, :], tl.load(x + n[:, None] * D + d[None, :], mask=inside), mask=inside
        )


def test_what_arguments_decide_alone_gets_a_body_of_its_own() -> None:
    """Rows are whole in all blocks but the last, columns in none where `size` is too small: rows alone then lose their part of masks."""
    columns, rows, both = versions(attended, N=16, D=128, keys="i32", size="i32")
    assert rows.endswith("%c_16_i64 : i64")
    assert columns.endswith("%c_128_i64 : i64")
    assert both.startswith("arith.andi")
    module = ttir(attended, N=16, D=128, keys="i32", size="i32")
    version_masks(module, V3)
    TTIR.run(module)
    outer, inner = (op for op in module.walk() if op.name == "scf.if")
    assert inner.parent_op is outer
    masks = [[op.name for op in region.block.operations].count("arith.andi") for op in (outer, inner) for region in op.regions]
    assert masks == [0, 0, 0, 1]  # all whole; then the inner choice: columns, both


@kp.jit
def few_rows(a, b, c, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows, columns, depth = tl.arange(0, M), tl.program_id(0) * N + tl.arange(0, N), tl.arange(0, K)
    total = tl.zeros((M, N), tl.float32)
    for first in range(0, k, K):
        within = first + depth < k
        at = (tl.program_id(1) * M + rows)[:, None]
        x = tl.load(a + at * k + (first + depth)[None, :], mask=(at < m) & within[None, :], other=0.0)
        y = tl.load(
            b + (first + depth)[:, None] * n + columns[None, :], mask=within[:, None] & (columns < n)[None, :], other=0.0
        )
        total = tl.dot(x, y, total, input_precision="ieee")
    tl.store(c + (tl.program_id(1) * M + rows)[:, None] * n + columns[None, :], total)


def test_few_rows_that_are_not_whole_leave_the_second_operand_without_masks() -> None:
    """2 of 4 rows: a is masked; b, which is 16 times as large, only where it ends."""

    def masks(rows: int) -> list[int]:
        module = ttir(few_rows, M=rows, N=64, K=64, m="i32", n="i32", k="i32")
        version_masks(module, V3)
        TTIR.run(module)
        branches = [region.block for op in module.walk() if op.name == "scf.if" for region in op.regions]
        return [[op.name for op in block.operations].count("arith.andi") for block in branches]

    assert masks(4) == [0, 0, 0, 2]  # all whole, or not; then rows alone are not, or others
    assert masks(32) == [0, 2]


@kp.jit
def product(a, b, c, m, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows, columns, depth = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :], tl.arange(0, K)
    x = tl.load(a + rows * K + depth[None, :], mask=rows < m, other=0.0)
    y = tl.load(b + depth[:, None] + columns * K)
    z = tl.dot(x, y, input_precision="ieee")
    tl.store(c + rows * N + columns, z)


def test_a_mask_of_what_is_packed_for_few_rows_costs_nothing_and_stays() -> None:
    assert versions(product, M=4, N=32, K=256, m="i32", k="i32") == []
    assert len(versions(product, M=64, N=32, K=256, m="i32", k="i32")) == 1


def test_a_long_block_with_few_masks_is_not_copied() -> None:
    sums = "\n".join(f"%s{n + 1} = arith.addf %s{n}, %s{n} : tensor<32xf32>" for n in range(140))
    body = f"""
        %i = tt.make_range {{end = 32 : i32, start = 0 : i32}} : tensor<32xi32>
        %ns = tt.splat %n : i32 -> tensor<32xi32>
        %m = arith.cmpi slt, %i, %ns : tensor<32xi32>
        %s0 = tt.load %p, %m : tensor<32x!tt.ptr<f32>>
        {sums}
        tt.store %p, %s140, %m : tensor<32x!tt.ptr<f32>>
        """
    stays(version, ARGUMENTS, body)
    short = body.replace("tt.store %p, %s140", "tt.store %p, %s60").split("%s61 =")[0] + body.split(sums)[1].replace(
        "%s140", "%s60"
    )
    module = parse(wrap(short, ARGUMENTS))
    version(module)
    assert "scf.if" in str(module)


def test_scalars_that_decide_a_mask_may_come_after_tiles() -> None:
    module = parse(
        wrap(
            """
            %i = tt.make_range {end = 32 : i32, start = 0 : i32} : tensor<32xi32>
            %pid = tt.get_program_id x : i32
            %c32 = arith.constant 32 : i32
            %first = arith.muli %pid, %c32 : i32
            %firsts = tt.splat %first : i32 -> tensor<32xi32>
            %at = arith.addi %firsts, %i : tensor<32xi32>
            %ns = tt.splat %n : i32 -> tensor<32xi32>
            %m = arith.cmpi slt, %at, %ns : tensor<32xi32>
            %v = tt.load %p, %m : tensor<32x!tt.ptr<f32>>
            tt.store %p, %v, %m : tensor<32x!tt.ptr<f32>>
            """,
            ARGUMENTS,
        )
    )
    version(module)
    TTIR.run(module)
    whole, _ = (region for op in module.walk() if op.name == "scf.if" for region in op.regions)
    load = next(op for op in whole.block.operations if op.name == "tt.load")
    assert len(load.operands) == 1  # no mask


def test_a_scalar_that_is_loaded_decides_no_mask() -> None:
    body = """
        %i = tt.make_range {end = 32 : i32, start = 0 : i32} : tensor<32xi32>
        %length = tt.load %lengths : !tt.ptr<i32>
        %ns = tt.splat %length : i32 -> tensor<32xi32>
        %m = arith.cmpi slt, %i, %ns : tensor<32xi32>
        tt.store %p, %v, %m : tensor<32x!tt.ptr<f32>>
        """
    stays(version, f"{ARGUMENTS}, %lengths: !tt.ptr<i32>, %v: tensor<32xf32>", body)
