"""Which tiles live in buffers, and where results of blocks, loops and branches go."""

from __future__ import annotations

import kernelpack as kp
import kernelpack.language as tl
from tests.backends.cpu.plan.plans import plan, same_text


@kp.jit
def elementwise(x, out, S: tl.constexpr):
    i = tl.arange(0, S)
    source, target = x + i, out + i
    double = tl.load(source) * 2.0
    tl.store(target, double)


def test_elementwise_operations_need_no_buffer() -> None:
    same_text(
        plan(elementwise, S=32),
        """
        nest 32, lanes 0
          store %double to %target
        """,
    )


@kp.jit
def added_up(x, out, n, S: tl.constexpr):
    i = tl.arange(0, S)
    total = tl.zeros((S,), tl.float32)
    count = 0.0
    for k in range(n):
        total += tl.load(x + i) * k
        count += 1.0
    target, mean = out + i, total / count
    tl.store(target, mean)


def test_a_carried_tile_has_one_buffer_that_its_next_value_is_written_to() -> None:
    same_text(
        plan(added_up, S=32, n="i32"),
        """
        buffer total: 32xf32, lanes 0, holds %total#0, %total_0, %total_1
        nest 32, lanes 0
          total <- 0.0
        for %k carrying total
          %3 <- arith.sitofp %k
          nest 32, lanes 0
            total <- %total_1
          %count_0 <- arith.addf %count, 1.0
        nest 32, lanes 0
          store %mean to %target
        """,
    )


@kp.jit
def one_value_twice(x, out, n, S: tl.constexpr):
    i = tl.arange(0, S)
    a = tl.load(x + i)
    b = a * 2.0
    for _ in range(n):
        a = tl.exp(a)
        b = a
    both, target = a + b, out + i
    tl.store(target, both)


def test_a_value_that_two_results_take_is_written_to_both_when_the_block_ends() -> None:
    same_text(
        plan(one_value_twice, S=32, n="i32"),
        """
        buffer a: 32xf32, lanes 0, holds %a_0#0, %a_1
        buffer b: 32xf32, lanes 0, holds %a_0#1, %b_0
        nest 32, lanes 0
          a <- %a
          b <- %b
        for %_ carrying a, b
          nest 32, lanes 0
            a <- %a_2
            b <- %a_2
        nest 32, lanes 0
          store %both to %target
        """,
    )


@kp.jit
def either(x, out, n, S: tl.constexpr):
    i = tl.arange(0, S)
    a = tl.load(x + i)
    if n > 2:
        b = tl.exp(a)
    else:
        b = a
    double, target = b + b, out + i
    tl.store(target, double)


def test_branches_write_to_one_buffer_what_each_of_them_gives() -> None:
    same_text(
        plan(either, S=32, n="i32"),
        """
        buffer b: 32xf32, lanes 0, holds %b, %b_0
        %2 <- arith.cmpi sgt, %n, 2
        if %2 giving b
          nest 32, lanes 0
            b <- %b_0
        else
          nest 32, lanes 0
            b <- %a
        nest 32, lanes 0
          store %double to %target
        """,
    )


@kp.jit
def while_positive(x, out, n, S: tl.constexpr):
    i = tl.arange(0, S)
    a = tl.load(x + i)
    k = n
    while k > 0:
        a = a * 0.5
        k -= 1
    target = out + i
    tl.store(target, a)


def test_each_block_of_a_while_loop_writes_what_the_other_reads() -> None:
    same_text(
        plan(while_positive, S=32, n="i32"),
        """
        buffer a: 32xf32, lanes 0, holds %a_0#0, %a_2
        buffer a.2: 32xf32, lanes 0, holds %a_1, %a_3
        nest 32, lanes 0
          a.2 <- %a
        while carrying a.2
          %2 <- arith.cmpi sgt, %k, 0
          nest 32, lanes 0
            a <- %a_1
        do with a
          nest 32, lanes 0
            a.2 <- %a_3
          %k_1 <- arith.addi %k_0, -1
        nest 32, lanes 0
          store %a_0#0 to %target
        """,
    )


@kp.jit
def one_product_or_another(a, b, c, n, M: tl.constexpr):
    i = tl.arange(0, M)
    at = i[:, None] * M + i[None, :]
    x, y = tl.load(a + at), tl.load(b + at)
    first_order = n > 1
    if first_order:
        z = tl.dot(x, y, input_precision="ieee")
    else:
        z = tl.dot(y, x, input_precision="ieee")
        top, first = tl.max(z, 1), c + i
        tl.store(first, top)
    target = c + at
    tl.store(target, z)


def test_a_product_with_other_lanes_than_its_target_is_copied_there() -> None:
    same_text(
        plan(one_product_or_another, M=16, n="i32"),
        """
        buffer x: 16x16xf32, k inner
        buffer y: 16x16xf32, panels of 16
        buffer y.2: 16x16xf32, panels of 16
        buffer x.2: 16x16xf32, k outer
        buffer z: 16x16xf32, lanes 1, holds %z, %z_0
        buffer z.2: 16x16xf32, lanes 0, holds %z_1
        buffer top: 16xf32, lanes 0, holds %top
        nest 16x16, lanes 1
          x <- %x
          x.2 <- %x
          y <- %y
        nest 16x16, lanes 1
          y.2 <- %y
        %first_order <- arith.cmpi sgt, %n, 1
        if %first_order giving z
          z <- x * y + 0.0
        else
          z.2 <- y.2 * x.2 + 0.0
          nest 16x16, lanes 0
            top <- reduce axis 1 of %z_1
          nest 16, lanes 0
            store %top to %first
          nest 16x16, lanes 0
            z <- %z_1
        nest 16x16, lanes 1
          store %z to %target
        """,
    )


@kp.jit
def atomics(x, out, n, S: tl.constexpr):
    i = tl.arange(0, S)
    place, inside = x + i, i < n
    tl.atomic_add(place, i, mask=inside)
    old = tl.atomic_max(place, i)
    seen = tl.atomic_cas(place, i, old)
    target = out + i
    tl.store(target, seen)


def test_atomics_have_a_buffer_only_for_old_values_that_somebody_reads() -> None:
    same_text(
        plan(atomics, S=32, n="i32", x="*i32", out="*i32"),
        """
        buffer old: 32xi32, lanes 0, holds %old
        buffer seen: 32xi32, lanes 0, holds %seen
        nest 32, lanes 0
          atomic add %i at %place where %inside
        nest 32, lanes 0
          old <- atomic max %i at %place
        nest 32, lanes 0
          seen <- atomic cas %i, %old at %place
        nest 32, lanes 0
          store %seen to %target
        """,
    )


@kp.jit
def double(a):
    return a + a


@kp.jit
def mapped_and_scanned(x, out, S: tl.constexpr):
    i = tl.arange(0, S)
    a = tl.load(x + i)
    tl.device_print("a", a)
    m = tl.map_elementwise(double, a)
    c = tl.cumsum(m)
    best, at = tl.max(c, 0, return_indices=True)
    share, target = c / best * at, out + i
    tl.store(target, share)


def test_maps_and_scans_live_in_buffers_and_reductions_to_scalars_do_not() -> None:
    same_text(
        plan(mapped_and_scanned, S=32),
        """
        buffer m: 32xf32, lanes 0, holds %m
        buffer c: 32xf32, lanes 0, holds %c
        nest 32, lanes 0
          print %a
        nest 32, lanes 0
          m <- map of %a
        nest 32, lanes 0
          c <- scan axis 0 of %m
        nest 32, lanes 0
          %best#0, %best#1 <- reduce axis 0 of %c, %i
        %12 <- arith.sitofp %best#1
        nest 32, lanes 0
          store %share to %target
        """,
    )


@kp.jit
def counted(x, out, n, S: tl.constexpr):
    i = tl.arange(0, S)
    a = tl.load(x + i)
    low = a < n
    all_of_them, some = tl.histogram(a, S), tl.histogram(a, S, mask=low)
    both, target = all_of_them + some, out + i
    tl.store(target, both)


def test_histograms_count_into_buffers() -> None:
    same_text(
        plan(counted, S=32, n="i32", x="*i32", out="*i32"),
        """
        buffer all_of_them: 32xi32, lanes 0, holds %all_of_them
        buffer some: 32xi32, lanes 0, holds %some
        nest 32, lanes 0
          all_of_them <- histogram of %a
        nest 32, lanes 0
          some <- histogram of %a where %low
        nest 32, lanes 0
          store %both to %target
        """,
    )


@kp.jit
def by_columns(x, out, S: tl.constexpr):
    i = tl.arange(0, S)
    down, along = i[:, None], i[None, :]
    columns, rows = out + along * S + down, out + down * S + along
    tl.store(columns, 0.0)
    scattered = out + tl.load(x + down * S + along).to(tl.int32)
    tl.store(scattered, 1.0)
    ones = tl.load(x + along * S + down) + 1.0
    tl.store(rows, ones)


def test_a_store_has_the_lanes_of_its_tile_or_else_of_memory_or_else_the_last_axis() -> None:
    text = plan(by_columns, S=32)
    nests = [line for line in text.splitlines() if line.startswith("nest") or "store" in line]
    assert nests == [
        "nest 32x32, lanes 0",
        "  store 0.0 to %columns",
        "nest 32x32, lanes 1",
        "  store 1.0 to %scattered",
        "nest 32x32, lanes 0",
        "  store %ones to %rows",
    ]


@kp.jit
def unpacked(x, words, out, M: tl.constexpr, N: tl.constexpr):
    m, n, w = tl.arange(0, M)[:, None], tl.arange(0, N), tl.arange(0, 4)
    word = tl.load(words + w[:, None] * N + n[None, :])
    y = ((word[:, None, :] >> (w * 8)[None, :, None]) & 255).to(tl.float32)
    whole, rows = tl.reshape(y, [16, N]), tl.load(x + m * 16 + tl.arange(0, 16)[None, :])
    target, product = out + m * N + n[None, :], tl.dot(rows, whole)
    tl.store(target, product)


def test_an_operand_is_written_in_the_shape_that_it_has_before_a_reshape() -> None:
    same_text(
        plan(unpacked, M=8, N=32, words="*i32"),
        """
        buffer whole: 16x32xf32, panels of 16
        buffer product: 8x32xf32, lanes 1, holds %product
        nest 4x4x32, lanes 2
          whole <- %y
        product <- %rows in place * whole + 0.0
        nest 8x32, lanes 1
          store %product to %target
        """,
    )
