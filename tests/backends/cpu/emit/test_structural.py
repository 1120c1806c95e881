"""Operations that move elements cost nothing: each asks for its operand at another place."""

from __future__ import annotations

import kernelpack as kp
import kernelpack.language as tl
from tests.backends.cpu.emit.llir import program
from tests.backends.fragments import count, in_order


@kp.jit
def ranges(out, S: tl.constexpr):
    i = tl.arange(4, 4 + S)
    tl.store(out + i, i)


def test_a_range_is_a_first_value_and_a_step_of_one() -> None:
    in_order(
        program(ranges, S=8, out="*i32"),
        """
        %V = add <8 x i32> splat (i32 4), <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>
        %P = getelementptr i32, ptr %out, i32 4
        store <8 x i32> %V, ptr %P, align 4
        """,
    )


@kp.jit
def broadcast(x, out, S: tl.constexpr):
    i = tl.arange(0, S)
    column = tl.load(x + i)[:, None]
    row = tl.load(x + S + i)[None, :]
    tl.store(out + i[:, None] * S + i[None, :], column + row)


def test_a_broadcast_column_is_one_element_for_all_lanes_of_a_row() -> None:
    text = program(broadcast, S=8)
    assert count(text, "%A = load float, ...") == 8
    assert count(text, "%A = load <8 x float>, ...") == 1
    in_order(
        text,
        """
        %C = load float, ptr ..., align 4
        %I = insertelement <8 x float> poison, float %C, i64 0
        %S = shufflevector <8 x float> %I, <8 x float> poison, <8 x i32> zeroinitializer
        ... = fadd contract <8 x float> ...
        """,
    )


@kp.jit
def transposed(x, out, S: tl.constexpr, T: tl.constexpr):
    i, j = tl.arange(0, S), tl.arange(0, T)
    tile = tl.trans(tl.load(x + j[:, None] * S + i[None, :]))
    tl.store(out + i[:, None] + j[None, :] * S, tile)


def test_a_transpose_exchanges_places() -> None:
    text = program(transposed, S=8, T=2)
    assert not count(text, "%A = shufflevector ...")
    assert count(text, "%A = load <8 x float>, ...") == 2


@kp.jit
def reshaped(x, out, S: tl.constexpr):
    i = tl.arange(0, S)
    a = tl.reshape(tl.load(x + i), (1, S, 1))
    tl.store(out + i[None, :, None], a)


def test_axes_of_one_are_renamed() -> None:
    text = program(reshaped, S=8)
    assert "tile" not in text
    in_order(text, "%A = load <8 x float>, ptr ..., align 4\nstore <8 x float> %A, ptr ..., align 4")


@kp.jit
def folded(x, out, S: tl.constexpr):
    i = tl.arange(0, S)
    a = tl.reshape(tl.load(x + i), (2, S // 2))
    tl.store(out + tl.arange(0, S // 2)[None, :] + tl.arange(0, 2)[:, None] * S, a)


def test_other_reshapes_read_the_row_major_buffer_in_another_shape() -> None:
    in_order(
        program(folded, S=16),
        """
        store <8 x float> ..., ptr %T, align 4
        %A = load <8 x float>, ptr %T, align 4
        %P = getelementptr i8, ptr %T, i64 32
        %B = load <8 x float>, ptr %P, align 4
        """,
    )


@kp.jit
def joined(x, y, out, S: tl.constexpr):
    i = tl.arange(0, S)
    tl.store(out + i[:, None] * 2 + tl.arange(0, 2)[None, :], tl.join(tl.load(x + i), tl.load(y + i)))


@kp.jit
def joined_columns(x, y, out, S: tl.constexpr):
    i = tl.arange(0, S)
    rows, both = i[:, None], tl.arange(0, 2)[None, :]
    tl.store(out + rows + both * S, tl.join(tl.load(x + i), tl.load(y + i)))


def test_a_join_takes_turns_where_its_axis_is_in_the_lanes() -> None:
    in_order(
        program(joined, S=4),
        """
        %P = add <2 x i32> splat (i32 0), <i32 0, i32 1>
        %F = icmp eq <2 x i32> %P, splat (i32 0)
        %A = select <2 x i1> %F, <2 x float> ..., <2 x float> ...
        """,
    )


def test_a_join_is_one_of_its_operands_where_the_place_is_known() -> None:
    text = program(joined_columns, S=8)
    in_order(
        text, "%A = load <8 x float>, ...\n%B = load <8 x float>, ...\nstore <8 x float> %A, ...\nstore <8 x float> %B, ..."
    )
    assert not count(text, "%A = select ...")


@kp.jit
def gathered(x, which, out, S: tl.constexpr):
    i = tl.arange(0, S)
    tl.store(out + i, tl.gather(tl.load(x + i), tl.load(which + i), 0))


def test_a_gather_reads_a_buffer_at_indices_that_wrap_around() -> None:
    in_order(
        program(gathered, S=8, which="*i32"),
        """
        store <8 x float> ..., ptr %T, align 4
        %W = load <8 x i32>, ptr ..., align 4
        %L = sext <8 x i32> %W to <8 x i64>
        %I = and <8 x i64> %L, splat (i64 7)
        %O = mul <8 x i64> %I, splat (i64 4)
        %P = getelementptr i8, ptr %T, <8 x i64> %O
        %V = call <8 x float> @llvm.masked.gather.v8f32.v8p0(<8 x ptr> %P, i32 4, ...)
        """,
    )


@kp.jit
def gathered_rows(x, which, out, S: tl.constexpr, T: tl.constexpr):
    i, j = tl.arange(0, S), tl.arange(0, T)
    table = tl.load(x + i[:, None] * T + j[None, :])
    index = tl.load(which + i[:, None] * T + j[None, :])
    tl.store(out + i[:, None] * T + j[None, :], tl.gather(table, index, 0))


def test_a_gather_of_rows_steps_along_the_lanes() -> None:
    text = program(gathered_rows, S=2, T=8, which="*i32")
    assert "<i64 0, i64 4, i64 8, i64 12, i64 16, i64 20, i64 24, i64 28>" in text
