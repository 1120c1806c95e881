"""Reductions and scans: a tree within a thread, shuffles between lanes, warps through shared memory. Computed for every lane."""

from __future__ import annotations

import pytest

from kernelpack.layout.families import Threads, scan, spread
from kernelpack.layout.linear import LinearLayout
from kernelpack.options import Options
from tests.backends.fragments import count, in_order
from tests.backends.gpu.lowering.integers import returned, run
from tests.backends.gpu.lowering.llir import lower

ADD = "^bb0(%p: {0}, %q: {0}):\n%s = arith.add{1} %p, %q : {0}\ntt.{2}.return %s : {0}"


def reduced(
    layout: LinearLayout, shape: str, result: str, rest: LinearLayout | None = None, axis: int = 0, kind: str = "i32"
) -> str:
    body = ADD.format(kind, "i" if kind.startswith("i") else "f", "reduce")
    out = kind if rest is None else f"tensor<{result}x{kind}, $R>"
    return lower(
        f'%r = "tt.reduce"(%x) <{{axis = {axis} : i32}}> ({{\n{body}\n}}) : (tensor<{shape}x{kind}, $L>) -> {out}\ntt.return %r : {out}',
        f"%x: tensor<{shape}x{kind}, $L>",
        {"L": layout, **({"R": rest} if rest is not None else {})},
    )


def test_registers_are_summed_as_a_tree_of_neighbours() -> None:
    in_order(
        reduced(spread((128,), 4, (0,), Threads(1, 32)), "128", "", kind="f32"),
        """
        %A = fadd contract float %x0, %x1
        %B = fadd contract float %x2, %x3
        %C = fadd contract float %A, %B
        %I = bitcast float %C to i32
        %S = call i32 @llvm.nvvm.shfl.sync.bfly.i32(i32 -1, i32 %I, i32 1, i32 31)
        %F = bitcast i32 %S to float
        ... = fadd contract float %C, %F
        """,
    )


def lanes(text: str, layout: LinearLayout, value: dict[tuple[int, ...], int]) -> list[list[int]]:
    """What each lane returns when the tile holds `value`; shuffles are done between all lanes."""
    states = [
        {f"%x{register}": value[layout(register=register, lane=lane)] for register in range(layout.in_size("register"))}
        | {"%tid": lane}
        for lane in range(32)
    ]
    for line in text.splitlines()[:-1]:
        if ".shfl.sync." in line:
            name, mode = line.split(" = ")[0], line.split(".shfl.sync.")[1].split(".")[0]
            _, word, amount, _ = (part.split()[-1].rstrip(")") for part in line.split("(", 1)[1].split(", "))
            before = [known[word] for known in states]
            for lane, known in enumerate(states):
                step = int(amount)
                source = {"bfly": lane ^ step, "up": lane - step, "down": lane + step}[mode]
                known[name] = before[source] if 0 <= source < 32 else before[lane]
        else:
            states = [known | run(line, known) for known in states]
    return [[known[name] for name in returned(text)] for known in states]


@pytest.mark.parametrize(
    "layout",
    [
        spread((128,), 4, (0,), Threads(1, 32)),
        spread((32,), 1, (0,), Threads(1, 32)),
        LinearLayout.make(
            {"register": [(4,), (1,)], "lane": [(2,), (8,), (16,), (32,), (64,)], "warp": [], "block": []}, {"dim0": 128}
        ),
    ],
)
def test_every_lane_gets_the_sum_of_all_elements(layout: LinearLayout) -> None:
    (size,) = layout.shape
    text = reduced(layout, str(size), "")
    value = {(index,): (index * 7 + 3) % 101 for index in range(size)}
    assert lanes(text, layout, value) == [[sum(value.values())]] * 32


def test_lanes_that_hold_the_same_elements_are_not_added() -> None:
    layout = spread((16,), 1, (0,), Threads(1, 32))  # 16 elements, 32 lanes
    text = reduced(layout, "16", "")
    assert count(text, "%A = call i32 @llvm.nvvm.shfl.sync.bfly.i32(...)") == 4
    value = {(index,): index + 1 for index in range(16)}
    assert lanes(text, layout, value) == [[136]] * 32


def test_rows_are_reduced_each_on_its_own() -> None:
    layout = LinearLayout.make(
        {"register": [(1, 0), (0, 1)], "lane": [(0, 2), (0, 4), (2, 0), (4, 0), (8, 0)], "warp": [], "block": []},
        {"dim0": 16, "dim1": 8},
    )
    rows = LinearLayout.make(
        {"register": [(1,)], "lane": [(0,), (0,), (2,), (4,), (8,)], "warp": [], "block": []}, {"dim0": 16}
    )
    text = reduced(layout, "16x8", "16", rows, axis=1)
    value = {(row, column): row * 100 + column for row in range(16) for column in range(8)}
    expected = [
        [sum(value[rows(register=register, lane=lane)[0], column] for column in range(8)) for register in range(2)]
        for lane in range(32)
    ]
    assert lanes(text, layout, value) == expected


def test_several_tiles_are_reduced_together() -> None:
    text = lower(
        """
        %r:2 = "tt.reduce"(%x, %y) <{axis = 0 : i32}> ({
        ^bb0(%a: f32, %b: i32, %c: f32, %d: i32):
          %g = arith.cmpf ogt, %a, %c : f32
          %m = arith.select %g, %a, %c : f32
          %n = arith.select %g, %b, %d : i32
          tt.reduce.return %m, %n : f32, i32
        }) : (tensor<64xf32, $L>, tensor<64xi32, $L>) -> (f32, i32)
        tt.return %r#1 : i32
        """,
        "%x: tensor<64xf32, $L>, %y: tensor<64xi32, $L>",
        {"L": spread((64,), 2, (0,), Threads(1, 32))},
    )
    in_order(text, "%G = fcmp ogt float %x0, %x1\n%M = select i1 %G, float %x0, float %x1\n%N = select i1 %G, i32 %y0, i32 %y1")
    assert count(text, "%A = call i32 @llvm.nvvm.shfl.sync.bfly.i32(...)") == 10


def scanned(layout: LinearLayout, reverse: bool = False, warps: int = 1) -> str:
    (size,) = layout.shape
    body = ADD.format("i32", "i", "scan")
    return lower(
        f'%r = "tt.scan"(%x) <{{axis = 0 : i32, reverse = {str(reverse).lower()}}}> ({{\n{body}\n}}) {{allocation.offset = 0 : i32}} : (tensor<{size}xi32, $L>) -> tensor<{size}xi32, $L>\ntt.return %r : tensor<{size}xi32, $L>',
        f"%x: tensor<{size}xi32, $L>",
        {"L": layout},
        options=Options(num_warps=warps),
    )


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("size", [32, 128, 16])
def test_each_element_becomes_the_sum_up_to_it(size: int, reverse: bool) -> None:
    layout = scan((size,), 0, Threads(1, 32))
    value = {(index,): (index * 5 + 2) % 31 for index in range(size)}
    expected = []
    for lane in range(32):
        places = [layout(register=register, lane=lane)[0] for register in range(layout.in_size("register"))]
        expected.append(
            [sum(value[other,] for other in range(size) if (other >= place if reverse else other <= place)) for place in places]
        )
    assert lanes(scanned(layout, reverse), layout, value) == expected


def test_totals_of_warps_meet_in_shared_memory() -> None:
    text = scanned(scan((256,), 0, Threads(4, 32)), warps=4)
    in_order(
        text,
        """
        br i1 ..., label %if..., label %endif...
        store i32 ..., ptr addrspace(3) ..., align 4
        call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
        %A = load i32, ptr addrspace(3) ..., align 4
        %B = load i32, ptr addrspace(3) ..., align 4
        %C = add i32 %A, %B
        %M = icmp ugt i32 %N, 1
        %D = select i1 %M, i32 %C, i32 %A
        %F = icmp ne i32 %N, 0
        """,
    )
    assert count(text, "%A = load i32, ptr addrspace(3) ...") == 3  # the last warp's total goes nowhere
    assert not count(scanned(scan((128,), 0, Threads(1, 32))), "%A = load ...")
