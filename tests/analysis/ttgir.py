"""ttgir for the analyses: functions over tiles in shared memory, written short."""

from __future__ import annotations

from dataclasses import replace

from kernelpack.backends.cuda.machine.features import ARCHITECTURES
from kernelpack.backends.cuda.machine.gpu import NvidiaGPU
from kernelpack.ir.core import Operation, entry_function
from kernelpack.ir.text import parse_module
from kernelpack.ir.verify import verify

TILE = "tensor<256xf32, #ttg.linear<{register = [[128]], lane = [[1], [2], [4], [8], [16]], warp = [[32], [64]], block = []}>>"
_OFFSETS = "[1], [2], [4], [8], [16], [32], [64], [128]"
BUFFER = f"!ttg.memdesc<256xf32, #ttg.shared_linear<{{offset = [{_OFFSETS}]}}, alignment = 16>, #ttg.shared_memory>"
MUTABLE = BUFFER.replace("shared_memory>", "shared_memory, mutable>")


def gpu(shared_bytes: int = 1 << 20) -> NvidiaGPU:
    """Returns a machine whose blocks may use so much shared memory."""
    return NvidiaGPU(replace(ARCHITECTURES["sm_80"], shared_bytes=shared_bytes))


def function(body: str, callee: str | None = None) -> Operation:
    """Returns a function; T, B and M in the text stand for the types of a 1 KB tile, of its buffer and of a mutable buffer.

    `callee` is the body of a function @g(%x: $T, ...) of the same module.
    """
    text = f"tt.func public @f(%x: $T, %n: i32, %c: i1) {{\n{body}\ntt.return\n}}\n"
    if callee is not None:
        condition = "%n = arith.constant 4 : i32\n%c = arith.cmpi eq, %n, %n : i32\n"
        text += f"tt.func private @g(%x: $T) attributes {{noinline = true}} {{\n{condition}{callee}\ntt.return\n}}\n"
    for short, kind in (("$T", TILE), ("$B", BUFFER), ("$M", MUTABLE)):
        text = text.replace(short, kind)
    module = parse_module(text)
    verify(module)
    return entry_function(module)
