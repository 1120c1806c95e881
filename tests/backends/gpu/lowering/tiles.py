"""Tiles that are read from shared memory and written to it, lowered for a GPU of either vendor."""

from __future__ import annotations

from kernelpack.layout.linear import LinearLayout
from kernelpack.options import Options
from tests.backends.gpu.lowering.llir import SM80, lower


def buffer(kind: str, shape: str = "32x32", layout: str = "$S") -> str:
    return f"!ttg.memdesc<{shape}x{kind}, {layout}, #ttg.shared_memory>"


def loaded(layout: LinearLayout, memory: LinearLayout, kind: str = "f32", target: str = SM80) -> str:
    """Returns the lines that read a tile from the buffer at %b."""
    shape = "x".join(map(str, layout.shape))
    return lower(
        f"%r = ttg.local_load %b : {buffer(kind, shape)} -> tensor<{shape}x{kind}, $L>\ntt.return %r : tensor<{shape}x{kind}, $L>",
        f"%b: {buffer(kind, shape)}",
        {"L": layout, "S": memory},
        target,
    )


def stored(layout: LinearLayout, memory: LinearLayout, kind: str = "f32", target: str = SM80, warps: int = 1) -> str:
    """Returns the lines that write a tile to the buffer at %b."""
    shape = "x".join(map(str, layout.shape))
    return lower(
        f"ttg.local_store %x, %b : tensor<{shape}x{kind}, $L> -> {buffer(kind, shape)}",
        f"%x: tensor<{shape}x{kind}, $L>, %b: {buffer(kind, shape)}",
        {"L": layout, "S": memory},
        target,
        Options(num_warps=warps),
    )
