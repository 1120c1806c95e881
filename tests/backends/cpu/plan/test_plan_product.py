"""How a matrix product reads its operands: in place, or packed in the order, type and pairs that its inner loop wants."""

from __future__ import annotations

from typing import Any

import pytest

import kernelpack as kp
import kernelpack.language as tl
from kernelpack.backends.cpu.facts.features import Level
from kernelpack.backends.cpu.plan.plan_product import block_along_k
from kernelpack.kernel.jit import JITFunction
from tests.backends.cpu.plan.plans import AMX, ARM, ARM_BF16, BF16, V3, V4, V4_VNNI, plan


@kp.jit
def product(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, A: tl.constexpr, B: tl.constexpr):
    """A and B: whether rows of a and b are contiguous."""
    m, n, k = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :], tl.arange(0, K)
    x = tl.load(a + (m * K + k[None, :] if A else m + k[None, :] * M))
    y = tl.load(b + (k[:, None] * N + n if B else k[:, None] + n * K))
    z = tl.dot(x, y, input_precision="ieee")
    tl.store(c + m * N + n, z)


def operands(kernel: JITFunction, level: Level = V3, **types: Any) -> list[str]:
    """The lines of a plan that say how its products read their operands."""
    usual = {"M": 16, "N": 32, "K": 64} | ({"A": True, "B": True} if kernel is product else {})
    lines = plan(kernel, level, **(usual | types)).splitlines()
    return [line.strip() for line in lines if " * " in line or (line.startswith("buffer") and ", lanes" not in line)]


def test_a_is_read_where_it_lies_and_b_in_panels_of_two_registers() -> None:
    assert operands(product) == ["buffer y: 64x32xf32, panels of 16", "z <- %x in place * y + 0.0"]
    assert operands(product, V4, N=128) == ["buffer y: 64x128xf32, panels of 64", "z <- %x in place * y + 0.0"]


def test_panels_are_no_wider_than_the_operand() -> None:
    assert operands(product, V4)[0] == "buffer y: 64x32xf32, panels of 32"


@pytest.mark.parametrize("rows", [True, False])
def test_an_operand_with_neighbours_along_either_axis_is_read_in_place(rows: bool) -> None:
    assert operands(product, A=rows)[-1] == "z <- %x in place * y + 0.0"


@pytest.mark.parametrize("kind", ["*bf16", "*fp16"])
def test_halves_become_float32_in_buffers(kind: str) -> None:
    expected = ["buffer x: 16x64xf32, k inner", "buffer y: 64x32xf32, panels of 16", "z <- x * y + 0.0"]
    assert operands(product, a=kind, b=kind) == expected


def test_the_instruction_for_bfloat16_takes_pairs_along_k() -> None:
    pairs = ["buffer x: 16x64xbf16, k inner, pairs", "buffer y: 64x32xbf16, panels of 32, pairs", "z <- x * y + 0.0"]
    assert operands(product, BF16, a="*bf16", b="*bf16") == pairs
    assert operands(product, BF16, a="*fp16", b="*fp16")[0] == "buffer x: 16x64xf32, k inner"
    narrow = operands(product, BF16, a="*bf16", b="*bf16", N=2, M=32)  # the instruction takes four lanes or more
    assert narrow[1] == "buffer y: 64x2xf32, panels of 2"


@kp.jit
def other_uses(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :], tl.arange(0, K)
    x = tl.load(a + m * K + k[None, :])
    y = tl.load(b + k[:, None] * N + n)
    z = tl.dot(x, y, input_precision="ieee")
    tl.store(c + m * N + n, z + tl.sum(y, 0)[None, :])


@pytest.mark.parametrize("kind", ["*fp32", "*bf16", "*fp16"])
def test_one_row_takes_each_vector_once_as_it_is_computed(kind: str) -> None:
    *_, one = operands(product, M=1, N=64, a=kind, b=kind)
    assert one.endswith("* %y as it is needed + 0.0")
    assert "as it is needed" not in operands(product, M=2, N=64, a=kind, b=kind)[-1]
    assert "as it is needed" not in operands(product, M=1, N=64, B=False, a=kind, b=kind)[-1]  # along k: it has to be turned
    assert "as it is needed" not in operands(other_uses, M=1, N=64, a=kind, b=kind)[-1]


def test_one_row_of_pairs_or_bytes_is_packed() -> None:
    assert operands(product, BF16, M=1, N=64, a="*bf16", b="*bf16")[-1] == "z <- x * y + 0.0"
    assert operands(product, V4_VNNI, M=1, N=64, a="*i8", b="*i8", c="*i32")[-1] == "z <- x * y + 0"


def test_tiles_take_rows_along_k_and_units_of_neighbours_along_k() -> None:
    kinds = {"a": "*bf16", "b": "*bf16"}
    few = ["buffer y: 64x32xbf16, panels of 32, pairs", "z <- %x in place * y + 0.0"]
    assert operands(product, AMX, **kinds) == few
    many = ["buffer x: 16x64xbf16, k inner, pairs", "buffer y: 64x256xbf16, panels of 64, pairs", "z <- x * y + 0.0"]
    assert operands(product, AMX, N=256, **kinds) == many
    turned = ["buffer x: 16x64xbf16, k inner, pairs", "buffer y: 64x32xbf16, panels of 32, pairs", "z <- x * y + 0.0"]
    assert operands(product, AMX, A=False, **kinds) == turned
    bytes_ = ["buffer y: 64x32xi8, panels of 32, quads", "z <- %x in place * y + 0"]
    assert operands(product, AMX, a="*i8", b="*i8", c="*i32") == bytes_
    assert operands(product, AMX, a="*fp16", b="*fp16") == operands(product, V4, a="*fp16", b="*fp16")


def test_bytes_are_multiplied_as_quads_or_pairs() -> None:
    """vpdpbusd takes unsigned bytes of the operand that is broadcast."""
    kinds = {"a": "*i8", "b": "*i8", "c": "*i32"}
    quads = ["buffer x: 16x64xi8, k inner, quads, biased", "buffer y: 64x32xi8, panels of 32, quads", "z <- x * y + 0"]
    assert operands(product, V4_VNNI, **kinds) == operands(product, BF16, **kinds) == quads
    pairs = ["buffer x: 16x64xi16, k inner, pairs", "buffer y: 64x32xi16, panels of 16, pairs", "z <- x * y + 0"]
    assert operands(product, V3, **kinds) == pairs
    few = operands(product, V4_VNNI, N=2, M=32, **kinds)
    assert few[1] == "buffer y: 64x2xi32, panels of 2"


def test_of_two_operands_along_k_tiles_turn_the_smaller_one() -> None:
    kinds = {"a": "*bf16", "b": "*bf16", "B": False, "N": 128}
    assert operands(product, AMX, **kinds) == ["buffer x: 16x64xbf16, panels of 16, pairs", "z <- x * %y in place + 0.0"]
    many = ["buffer x: 128x64xbf16, k inner, pairs", "buffer y: 64x256xbf16, panels of 32, pairs", "z <- x * y + 0.0"]
    assert operands(product, AMX, **(kinds | {"M": 128, "N": 256})) == many


def test_few_rows_have_k_in_the_lanes_where_tiles_would_turn_b() -> None:
    kinds = {"a": "*bf16", "b": "*bf16", "B": False, "K": 512}
    assert "k in the lanes" in operands(product, AMX, M=8, N=32, **kinds)[-1]
    assert "k in the lanes" not in operands(product, AMX, M=16, N=32, **kinds)[-1]


def test_few_rows_of_bytes_have_k_in_the_lanes() -> None:
    kinds = {"a": "*i8", "b": "*i8", "c": "*i32", "B": False, "K": 512}
    for level in (V4_VNNI, AMX):
        few = ["buffer x: 8x512xi8, k inner, quads", "z <- x * %y in place + 0, k in the lanes"]
        assert operands(product, level, M=8, N=32, **kinds) == few
    assert "k in the lanes" not in operands(product, V4_VNNI, M=32, N=32, **kinds)[-1]


def test_arm_multiplies_signed_bytes_as_they_are() -> None:
    expected = ["buffer x: 16x64xi8, k inner, quads", "buffer y: 64x32xi8, panels of 16, quads", "z <- x * y + 0"]
    assert operands(product, ARM_BF16, a="*i8", b="*i8", c="*i32") == expected


def test_bytes_become_32_bits_wide_where_no_instruction_takes_them() -> None:
    expected = ["buffer x: 16x64xi32, k inner", "buffer y: 64x32xi32, panels of 16", "z <- x * y + 0"]
    assert operands(product, ARM, a="*i8", b="*i8", c="*i32") == expected


@kp.jit
def rows_reduced(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :], tl.arange(0, K)
    x = tl.load(a + m * K + k[None, :])
    y = tl.load(b + k[:, None] * N + n)
    z = tl.dot(x, y, input_precision="ieee")
    tl.store(c + tl.arange(0, M), tl.max(z, 1))


def test_rows_in_the_lanes_pack_a_and_read_b_in_place() -> None:
    assert operands(rows_reduced) == ["buffer x: 16x64xf32, panels of 16", "z <- x * %y in place + 0.0"]


@kp.jit
def strides_unknown(a, b, c, s, t, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :], tl.arange(0, K)
    x = tl.load(a + m * s + k[None, :] * t)
    y = tl.load(b + k[:, None] * N + n)
    z = tl.dot(x, y, input_precision="ieee")
    tl.store(c + m * N + n, z)


@kp.jit
def stored_between(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :], tl.arange(0, K)
    source = a + m * K + k[None, :]
    x = tl.load(source)
    tl.store(source, 0.0)
    y = tl.load(b + k[:, None] * N + n)
    z = tl.dot(x, y, input_precision="ieee")
    tl.store(c + m * N + n, z)


@kp.jit
def masked(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :], tl.arange(0, K)
    x = tl.load(a + m * K + k[None, :], mask=m < M - 1, other=0.0)
    y = tl.load(b + k[:, None] * N + n)
    z = tl.dot(x, y, input_precision="ieee")
    tl.store(c + m * N + n, z)


@kp.jit
def computed(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :], tl.arange(0, K)
    x = tl.load(a + m * K + k[None, :]) * 2.0
    y = tl.load(b + k[:, None] * N + n)
    z = tl.dot(x, y, input_precision="ieee")
    tl.store(c + m * N + n, z)


@kp.jit
def loaded_before_a_loop(a, b, c, n, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    row, column, k = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :], tl.arange(0, K)
    x = tl.load(a + row * K + k[None, :])
    z = tl.zeros((M, N), tl.float32)
    for i in range(n):
        y = tl.load(b + (k[:, None] + i) * N + column)
        z = tl.dot(x, y, z, input_precision="ieee")
    tl.store(c + row * N + column, z)


@pytest.mark.parametrize(
    ("kernel", "types"),
    [
        (strides_unknown, {"s": "i32", "t": "i32"}),
        (stored_between, {}),
        (masked, {}),
        (computed, {}),
        (loaded_before_a_loop, {"n": "i32"}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_cannot_be_read_in_place_is_packed(kernel: JITFunction, types: dict[str, str]) -> None:
    assert "buffer x: 16x64xf32, k inner" in operands(kernel, **types)


@kp.jit
def transposed(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N)[None, :], tl.arange(0, K)
    x = tl.trans(tl.load(a + k[:, None] * M + m[None, :]))
    y = tl.load(b + k[:, None] * N + n)
    z = tl.dot(x, y, input_precision="ieee")
    tl.store(c + m[:, None] * N + n, z)


def test_a_transpose_of_a_load_is_read_in_place() -> None:
    assert operands(transposed)[-1] == "z <- %x in place * y + 0.0"


@pytest.mark.parametrize("kind", ["*fp32", "*bf16"])
def test_few_rows_have_k_in_the_lanes_and_leave_b_where_it_lies(kind: str) -> None:
    expected = ["buffer x: 4x256xf32, k inner", "z <- x * %y in place + 0.0, k in the lanes"]
    assert operands(product, M=4, K=256, a=kind, b=kind, B=False) == expected


@pytest.mark.parametrize(
    "types",
    [
        {"M": 4, "K": 16},  # eight rows of k pay for turning b once
        {"M": 4, "K": 256, "B": True},  # b lies along its columns
        {"M": 4, "K": 256, "A": False},  # a lies along its rows
        {"M": 4, "K": 256, "N": 1},  # there are fewer columns than accumulators
        {"M": 4, "K": 256, "a": "*i8", "b": "*i8", "c": "*i32"},
    ],
    ids=str,
)
def test_other_products_have_the_result_in_the_lanes(types: dict[str, Any]) -> None:
    assert "k in the lanes" not in operands(product, **{"B": False, **types})[-1]


@kp.jit
def one_operand_twice(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :], tl.arange(0, K)
    x = tl.load(a + m * K + k[None, :])
    y = tl.load(b + k[:, None] * N + n)
    z = tl.dot(x, y, input_precision="ieee")
    w = tl.dot(x, y, z, input_precision="ieee")
    tl.store(c + m * N + n, w)


def test_products_that_want_one_layout_share_a_buffer() -> None:
    assert operands(one_operand_twice) == [
        "buffer y: 64x32xf32, panels of 16",
        "z <- %x in place * y + 0.0",
        "w <- %x in place * y + %z",
    ]


@kp.jit
def chained(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :], tl.arange(0, K)
    x = tl.load(a + m * K + k[None, :])
    y = tl.load(b + k[:, None] * N + n)
    z = tl.dot(x, y, input_precision="ieee")
    w = tl.dot(z, y, input_precision="ieee")
    tl.store(c + m * N + n, w)


def test_a_product_of_a_product_takes_it_with_its_rows_in_the_lanes() -> None:
    assert operands(chained, K=32) == [
        "buffer x: 16x32xf32, panels of 16",
        "buffer z: 16x32xf32, k outer",
        "buffer y: 32x32xf32, panels of 16",
        "z.2 <- x * %y in place + 0.0",
        "w <- z * y + 0.0",
    ]


@kp.jit
def masked(a, b, c, n, K: tl.constexpr):
    i, k = tl.arange(0, 16), tl.arange(0, K)
    x = tl.load(a + i[:, None] * n + k[None, :], mask=k[None, :] < n, other=0.0)
    y = tl.load(b + k[:, None] * 16 + i[None, :], mask=k[:, None] < n, other=0.0)
    tl.store(c + i[:, None] * 16 + i[None, :], tl.dot(x, y, input_precision="ieee"))


def test_products_of_many_steps_end_where_both_operands_do() -> None:
    lines = [line.strip() for K in (64, 128) for line in plan(masked, n="i32", K=K).splitlines() if " * y" in line]
    assert lines == ["dot <- x * y + 0.0", "dot <- x * y + 0.0, k - %n <= -1"]


@pytest.mark.parametrize(
    ("level", "rows", "block"),
    [(V3, 1, (1, 4, 2)), (V3, 2, (2, 4, 1)), (V3, 4, (2, 4, 1)), (V4, 1, (1, 4, 4)), (V4, 2, (2, 8, 1)), (V4, 8, (4, 4, 1))],
)
def test_blocks_along_k_fill_the_registers(level: Level, rows: int, block: tuple[int, int]) -> None:
    """8 accumulators of 16 registers, 16 of 32; no more than a quarter of them are rows. A single row has several for each of four columns."""
    assert block_along_k(rows, level) == block
