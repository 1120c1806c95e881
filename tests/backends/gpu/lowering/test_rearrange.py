"""Operations that rearrange tiles pick registers and cost nothing; within a warp they shuffle."""

from __future__ import annotations

import pytest

from kernelpack.layout.families import Threads, blocked, spread
from kernelpack.layout.linear import LinearLayout
from tests.backends.fragments import count, in_order
from tests.backends.gpu.lowering.integers import returned, run
from tests.backends.gpu.lowering.llir import lower

LINE = spread((128,), 4, (0,), Threads(1, 32))
PLANE = blocked((8, 16), (2, 2), (4, 8), (1, 1), (1, 0))


@pytest.mark.parametrize(
    ("constant", "kind", "register"),
    [
        ("1.500000e+00", "f32", "0x3FF8000000000000"),
        ("7", "i32", "7"),
        ("true", "i1", "true"),
        ("1.000000e+00", "bf16", "0xR3F80"),
        ("1.000000e+00", "f8E5M2", "60"),
    ],
)
def test_constants_fill_all_registers(constant: str, kind: str, register: str) -> None:
    text = lower(
        f"%r = arith.constant dense<{constant}> : tensor<128x{kind}, $L>\ntt.return %r : tensor<128x{kind}, $L>",
        layouts={"L": LINE},
    )
    assert returned(text) == [register] * 4


@pytest.mark.parametrize("layout", [LINE, spread((512,), 2, (0,), Threads(2, 32)), spread((16,), 1, (0,), Threads(1, 32))])
@pytest.mark.parametrize("start", [0, 64])
def test_ranges_are_what_the_layout_says_for_every_thread(layout: LinearLayout, start: int) -> None:
    (size,) = layout.shape
    text = lower(
        f"%r = tt.make_range {{end = {start + size} : i32, start = {start} : i32}} : tensor<{size}xi32, $L>\ntt.return %r : tensor<{size}xi32, $L>",
        layouts={"L": layout},
    )
    for thread in range(64 if layout.in_size("warp") > 1 else 32):
        known = run(text, {"%tid": thread})
        got = [known[name] if name in known else int(name) for name in returned(text)]
        expected = [layout(register=register, lane=thread % 32, warp=thread // 32)[0] + start for register in range(len(got))]
        assert got == expected


def moved(line: str, source: str, result: str, layouts: dict[str, LinearLayout]) -> list[str]:
    text = lower(f"{line} : {source} -> {result}\ntt.return %r : {result}", f"%x: {source}, %y: {source}", layouts)
    assert len(text.splitlines()) == 1  # nothing is computed
    return returned(text)


def test_a_transpose_takes_registers_in_another_order() -> None:
    turned = blocked((16, 8), (2, 2), (8, 4), (1, 1), (0, 1))
    got = moved(
        "%r = tt.trans %x {order = array<i32: 1, 0>}", "tensor<8x16xf32, $P>", "tensor<16x8xf32, $T>", {"P": PLANE, "T": turned}
    )
    places = {place: register for register, place in enumerate(PLANE.images("register"))}
    assert got == [f"%x{places[column, row]}" for row, column in turned.images("register")]


def test_a_broadcast_repeats_registers() -> None:
    column = blocked((8, 1), (2, 1), (4, 8), (1, 1), (1, 0))
    got = moved("%r = tt.broadcast %x", "tensor<8x1xf32, $C>", "tensor<8x16xf32, $P>", {"C": column, "P": PLANE})
    assert got == [f"%x{place[0]}" for place in PLANE.images("register")]


def test_an_axis_of_one_more_changes_nothing() -> None:
    layouts = {
        "L": LINE,
        "R": LinearLayout.make({name: [(0, *basis) for basis in bases] for name, bases in LINE.ins}, {"dim0": 1, "dim1": 128}),
    }
    assert moved("%r = tt.expand_dims %x {axis = 0 : i32}", "tensor<128xf32, $L>", "tensor<1x128xf32, $R>", layouts) == [
        "%x0",
        "%x1",
        "%x2",
        "%x3",
    ]


def test_a_reshape_keeps_the_order_of_elements() -> None:
    flat = LINE
    square = LinearLayout.make(
        {name: [(basis[0] // 16, basis[0] % 16) for basis in bases] for name, bases in flat.ins}, {"dim0": 8, "dim1": 16}
    )
    assert moved("%r = tt.reshape %x", "tensor<128xf32, $F>", "tensor<8x16xf32, $S>", {"F": flat, "S": square}) == [
        "%x0",
        "%x1",
        "%x2",
        "%x3",
    ]


def test_joined_tiles_are_split_again() -> None:
    both = LinearLayout.make(
        {
            "register": [(0, 1), *((basis[0], 0) for basis in LINE.bases("register"))],
            "lane": [(basis[0], 0) for basis in LINE.bases("lane")],
            "warp": [],
            "block": [],
        },
        {"dim0": 128, "dim1": 2},
    )
    text = lower(
        "%r = tt.join %x, %y : tensor<128xf32, $L> -> tensor<128x2xf32, $B>\ntt.return %r : tensor<128x2xf32, $B>",
        "%x: tensor<128xf32, $L>, %y: tensor<128xf32, $L>",
        {"L": LINE, "B": both},
    )
    assert text == "return %x0, %y0, %x1, %y1, %x2, %y2, %x3, %y3"
    text = lower(
        "%r:2 = tt.split %x : tensor<128x2xf32, $B> -> tensor<128xf32, $L>\ntt.return %r#1 : tensor<128xf32, $L>",
        "%x: tensor<128x2xf32, $B>",
        {"L": LINE, "B": both},
    )
    assert text == "return %x1, %x3, %x5, %x7"


def test_a_scalar_fills_a_tile_and_comes_back() -> None:
    text = lower(
        "%t = tt.splat %x : f32 -> tensor<1xf32, $L>\n%r = tt.unsplat %t : tensor<1xf32, $L>\ntt.return %r : f32",
        "%x: f32",
        {"L": spread((1,), 1, (0,), Threads(1, 32))},
    )
    assert text == "return %x"


def converted(before: LinearLayout, after: LinearLayout, kind: str = "i32") -> str:
    size = before.shape[0]
    return lower(
        f"%r = ttg.convert_layout %x : tensor<{size}x{kind}, $A> -> tensor<{size}x{kind}, $B>\ntt.return %r : tensor<{size}x{kind}, $B>",
        f"%x: tensor<{size}x{kind}, $A>",
        {"A": before, "B": after},
    )


def test_conversions_within_a_thread_pick_registers() -> None:
    other = LINE.with_bases("register", [(2,), (1,)])
    assert converted(LINE, other) == "return %x0, %x2, %x1, %x3"


def simulate(before: LinearLayout, after: LinearLayout) -> tuple[list[list[int]], list[list[int]]]:
    """What each lane gets, and what the new layout says, for a tile that holds its own indices."""
    text = converted(before, after)
    values: list[dict[str, int]] = []
    for lane in range(32):
        known = {f"%x{register}": before(register=register, lane=lane)[0] for register in range(before.in_size("register"))}
        values.append(known | {"%tid": lane})
    for line in text.splitlines()[:-1]:
        name = line.split(" = ")[0]
        if "shfl.sync.idx" in line:
            _, word, lane_of, _ = (part.split()[-1].rstrip(")") for part in line.split("(", 1)[1].split(", "))
            found = [values[known.get(lane_of, 0) if lane_of in known else int(lane_of)][word] for known in values]
            for known, value in zip(values, found, strict=True):
                known[name] = value
        else:
            values = [known | run(line, known) for known in values]
    got = [[known[name] for name in returned(text)] for known in values]
    right = [[after(register=register, lane=lane)[0] for register in range(after.in_size("register"))] for lane in range(32)]
    return got, right


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            spread((32,), 1, (0,), Threads(1, 32)),
            LinearLayout.make({"register": [], "lane": [(16,), (8,), (4,), (2,), (1,)], "warp": [], "block": []}, {"dim0": 32}),
        ),
        (spread((64,), 2, (0,), Threads(1, 32)), spread((64,), 1, (0,), Threads(1, 32))),
        (spread((64,), 1, (0,), Threads(1, 32)), spread((64,), 2, (0,), Threads(1, 32))),
    ],
)
def test_conversions_within_a_warp_shuffle_each_element_to_its_lane(before: LinearLayout, after: LinearLayout) -> None:
    got, right = simulate(before, after)
    assert got == right


def test_a_lane_that_needs_one_of_two_registers_gets_both_and_selects() -> None:
    text = converted(spread((64,), 2, (0,), Threads(1, 32)), spread((64,), 1, (0,), Threads(1, 32)))
    assert count(text, "%A = call i32 @llvm.nvvm.shfl.sync.idx.i32(...)") == 4
    in_order(text, "%A = select i1 %B, i32 %C, i32 %D")
