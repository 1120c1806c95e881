"""Accesses of tiles in global memory, lowered for a GPU of either vendor."""

from __future__ import annotations

from kernelpack.layout.families import Threads, spread
from tests.backends.gpu.lowering.llir import LANES, SM80, lower


def access(
    line: str, kind: str = "f32", per: int = 4, size: int = 0, aligned: int = 16, mask: str = "", target: str = SM80
) -> str:
    """Returns the lines of `line` on a tile of consecutive pointers %a, values %x and a mask %m; `mask` may compute another one.

    A lane of the one warp has `per` of the tile's elements; `size` is how many there are, where that is less than all lanes have.
    """
    size = size or per * LANES[target]
    layout = spread((size,), per, (0,), Threads(1, LANES[target]))
    divisibility = f" {{tt.divisibility = {aligned} : i32}}" if aligned > 1 else ""
    body = f"""
    %i = tt.make_range {{end = {size} : i32, start = 0 : i32}} : tensor<{size}xi32, $L>
    %q = tt.splat %p : !tt.ptr<{kind}> -> tensor<{size}x!tt.ptr<{kind}>, $L>
    %a = tt.addptr %q, %i : tensor<{size}x!tt.ptr<{kind}>, $L>, tensor<{size}xi32, $L>
    {mask}
    {line} : tensor<{size}x!tt.ptr<{kind}>, $L>
    """
    if "%r =" in line:
        body += f"tt.return %r : tensor<{size}x{kind}, $L>"
    arguments = f"%p: !tt.ptr<{kind}>{divisibility}, %x: tensor<{size}x{kind}, $L>, %n: i32, %m: tensor<{size}xi1, $L>"
    return lower(body.strip(), arguments, {"L": layout}, target)
